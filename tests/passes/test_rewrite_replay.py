"""Replaying plans: exactly what is listed, in its order, also where rules would go another way."""

from __future__ import annotations

import tempfile
from pathlib import Path
from textwrap import dedent, indent
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.catalog import read_catalogs
from dplcli.catalog.plan import PlanEntry
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import (
    Refusal,
    RestrictingObserver,
    Restriction,
    RewriteObserver,
    Trace,
    replay,
    rewrite,
)
from tests.support.helpers import SCHEMAS, model_from_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Model, Node
    from dplcli.language import RewriteRule
    from dplcli.language.rule import Match
    from dplcli.passes.rewrite import Application


def rules_from(text: str) -> list[RewriteRule]:
    """Load the items of ``rewrites``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yaml"
        items = indent(dedent(text).strip(), "  ")
        path.write_text(f"dpl: 1\nrewrites:\n{items}\n", encoding="utf-8")
        return read_catalogs([str(path)], SCHEMAS).rewrites


# Rules that feed each other, one that may be applied once only, one with a condition on shapes
# that only inference after other rewrites can tell, one with several ways to match.
RULES = rules_from("""
- {name: triple, pattern: Neg(Neg(Neg(x))), replacement: Neg(x)}
- {name: double, pattern: Neg(Neg(x)), replacement: x}
- {name: to_mul, pattern: "Add(x, x)", replacement: "Mul(x, 2.0)"}
- {name: to_sum, pattern: "Add(x, y)", replacement: "Sum(y, x)"}
- {name: swap, once: true, pattern: "Sum(x, y)", replacement: "Sum(y, x)"}
- name: square
  once: true
  pattern: Mul(x, y)
  where: ["same_shape(x, y)"]
  replacement: Mul(y, x)
- {name: absolute, pattern: "Abs(Neg(x)) | Abs(Abs(x))", replacement: Abs(x), escape: refuse}
""")


def entries_of(applications: Sequence[Application]) -> list[PlanEntry]:
    """Write a plan that does the same again."""
    return [
        PlanEntry(item.rule, item.scope, item.root.output, item.root.qualified_op)
        for item in applications
    ]


def data(model: Model) -> bytes:
    """Return what would be written."""
    written: bytes = to_proto(model).SerializeToString(deterministic=True)
    return written


@st.composite
def graphs(draw: st.DrawFn) -> str:
    """Draw a graph of a few operators over earlier values, with several outputs."""
    lines, names = [], ["x0"]
    for number in range(1, draw(st.integers(1, 14)) + 1):
        name = f"x{number}"
        operator = draw(st.sampled_from(["Neg", "Neg", "Abs", "Add", "Mul", "Sum"]))
        count = 1 if operator in {"Neg", "Abs"} else 2
        read = [draw(st.sampled_from(names[-3:])) for _ in range(count)]
        lines.append(f"{name} = {operator} ({', '.join(read)})")
        names.append(name)
    outputs = dict.fromkeys([names[-1], draw(st.sampled_from(names[1:]))])
    returned = ", ".join(f"float[2] {name}" for name in outputs)
    return f"g (float[2] x0) => ({returned}) {{ {' '.join(lines)} }}"


@pytest.mark.long
@given(text=graphs())
def test_an_unedited_plan_does_the_same(text: str) -> None:
    """Applications, counts, rounds and bytes."""
    first, second = model_from_text(text), model_from_text(text)
    done = rewrite(first, RULES)

    again = replay(second, RULES, entries=entries_of(done.applications))

    check_structure(second)
    assert again.missing == ()
    assert again.rewriting.counts == done.counts
    assert again.rewriting.rounds == done.rounds
    assert entries_of(again.rewriting.applications) == entries_of(done.applications)
    assert data(second) == data(first)


@pytest.mark.long
@given(text=graphs(), chosen=st.data())
def test_an_edited_plan_does_what_fits_of_it_in_its_order(text: str, chosen: st.DataObject) -> None:
    """Whatever is listed is applied or missing, and nothing else is done."""
    done = rewrite(model_from_text(text), RULES)
    entries = chosen.draw(st.permutations(entries_of(done.applications)))
    entries = entries[: chosen.draw(st.integers(0, len(entries)))]
    model = model_from_text(text)

    again = replay(model, RULES, entries=entries, skip_missing=True)

    check_structure(model)
    missing = [item.entry for item in again.missing]
    applied = entries_of(again.rewriting.applications)
    rest = iter(entries)
    assert sorted([*applied, *missing]) == sorted(entries)
    assert all(entry in rest for entry in applied), "the order of the plan"
    assert all(item.reason for item in again.missing)


@pytest.mark.long
@given(text=graphs(), limit=st.integers(0, 6))
def test_a_plan_of_a_part_does_that_part(text: str, limit: int) -> None:
    """A rewrite that was cut short, or narrowed, is replayed just so."""
    for observer in (
        RestrictingObserver(limit=limit),
        RestrictingObserver(only=[Restriction("double"), Restriction("to_mul")]),
        RestrictingObserver(skip=[Restriction("triple"), Restriction("", f"x{limit}")]),
    ):
        first, second = model_from_text(text), model_from_text(text)
        done = rewrite(first, RULES, observer)

        again = replay(second, RULES, entries=entries_of(done.applications))

        assert again.missing == ()
        assert data(second) == data(first)


def test_an_entry_that_does_not_fit_ends_it() -> None:
    """What stands before it is done, what stands behind it is not, unless that is wanted."""
    text = "g (float[2] x) => (float[2] y) { s = Add (x, x) y = Add (s, s) }"
    good = [PlanEntry("to_mul", "main", name, "Add") for name in ("s", "y")]
    bad = PlanEntry("to_mul", "main", "z", "Add")

    for skip, counts in ((False, 1), (True, 2)):
        model = model_from_text(text)
        done = replay(model, RULES, entries=[good[0], bad, good[1]], skip_missing=skip)
        assert [item.entry for item in done.missing] == [bad]
        assert done.rewriting.counts["to_mul"] == counts


def test_a_rule_that_holds_for_other_opsets_does_not_fit() -> None:
    """The reason names the opset."""
    rules = rules_from("- {name: r, opsets: [20], pattern: Neg(x), replacement: Abs(x)}")
    model = model_from_text("g (float[2] x) => (float[2] y) { y = Neg (x) }")

    done = replay(model, rules, entries=[PlanEntry("r", "main", "y", "Neg")])

    assert done.missing[0].reason == "the rule does not hold for opset 17"


def test_any_output_names_the_node() -> None:
    """Plans are written with the first one; a reader may know another."""
    rules = rules_from("""
    - name: r
      pattern: "a, b = Split(x, s, axis=0, **_)\\na, b"
      replacement: "c, d = Split(x, s, axis=0)\\nc, d"
      once: true
    """)
    text = """g (float[4] x) => (float[2] y, float[2] z) <int64[2] s = {2, 2}> {
        y, z = Split <axis = 0> (x, s) }"""

    for name in ("y", "z"):
        done = replay(model_from_text(text), rules, entries=[PlanEntry("r", "main", name, "Split")])
        assert (done.missing, done.rewriting.counts) == ((), {"r": 1})


def test_graphs_of_one_name_are_told_apart_by_what_fits() -> None:
    """Bad files give two nodes one name; the first graph in which the entry fits is meant."""
    body = "() => (float[2] o) {{ {} }}"
    text = """g (bool c, float[2] x) => (float[2] y) {{
        [i] p = If (c) {}  [i] q = If (c) {}  y = Add (p, q) }}"""
    one, two = (
        f"<then_branch = t{n} {body.format(op)}, "
        f"else_branch = e{n} {body.format('o = Identity (x)')}>"
        for n, op in ((1, "o = Abs (x)"), (2, "o = Mul (x, x)"))
    )
    rules = rules_from("- {name: r, pattern: 'Mul(x, x)', replacement: 'Pow(x, 2.0)'}")
    model = model_from_text(text.format(one, two))
    done = rewrite(model_from_text(text.format(one, two)), rules)

    again = replay(model, rules, entries=entries_of(done.applications))

    assert (again.missing, again.rewriting.counts) == ((), {"r": 1})


# -- those who watch -------------------------------------------------------------------------------


class Log(RewriteObserver):
    """Writes down what it is told; admits and wants what it was told to."""

    def __init__(self, refuses: str = "", unwanted: str = "", last: int = 99) -> None:
        """Refuse a rule before it is tried, or a match afterwards, or end it all."""
        self.refuses, self.unwanted, self.last = refuses, unwanted, last
        self.lines: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether enough was applied."""
        return sum(line.startswith("applied") for line in self.lines) >= self.last

    def admits(self, rule: RewriteRule, root: Node) -> bool:
        """Refuse one rule."""
        del root
        return rule.name != self.refuses

    def wants(self, match: Match) -> bool:
        """Refuse one rule."""
        return match.rule.name != self.unwanted

    def turn_started(self, number: int, rule: RewriteRule, candidates: int) -> None:
        """Note it."""
        self.lines.append(f"turn {number} {rule.name} {candidates}")

    def applied(self, application: Application) -> None:
        """Note it."""
        self.lines.append(f"applied {application.rule}")

    def turn_ended(self, rule: RewriteRule, count: int) -> None:
        """Note it."""
        self.lines.append(f"end {rule.name} {count}")


ADDS = "g (float[2] x) => (float[2] y) { s = Add (x, x) y = Add (s, s) }"


def test_every_turn_that_starts_ends() -> None:
    """Also the one in which a limit is reached."""
    log = Log()

    rewrite(model_from_text(ADDS), RULES, RestrictingObserver(limit=1), watchers=[log])

    assert log.lines == ["turn 1 to_mul 2", "applied to_mul", "end to_mul 1"]


@pytest.mark.parametrize(
    ("watchers", "counts"),
    [
        ([Log()], {"to_mul": 2}),
        ([Log(), Log(refuses="to_mul")], {"to_sum": 2}),
        ([Log(unwanted="to_mul"), Log()], {"to_sum": 2}),
        ([Log(refuses="to_mul"), Log(unwanted="to_sum")], {}),
        ([Log(), Log(last=1)], {"to_mul": 1}),
    ],
    ids=["all", "refused", "unwanted", "both", "over"],
)
def test_what_one_observer_refuses_is_not_done(
    watchers: list[RewriteObserver], counts: dict[str, int]
) -> None:
    """All must admit and want it, and none have enough; all are told the same."""
    done = rewrite(model_from_text(ADDS), RULES[:4], watchers=watchers)

    assert {name: count for name, count in done.counts.items() if count} == counts
    told = [watcher.lines for watcher in watchers if isinstance(watcher, Log)]
    assert all(lines == told[0] for lines in told)


def test_all_observers_are_told_of_refusals() -> None:
    """Each of several traces has all."""
    traces = [Trace(), Trace()]
    model = model_from_text(
        "g (float[2] x) => (float[2] y, float[2] n) { n = Neg (x) y = Abs (n) }"
    )

    rewrite(model, RULES, watchers=traces)

    for trace in traces:
        (refusal,) = [event for turn in trace.turns for event in turn.events]
        assert isinstance(refusal, Refusal)
        assert (refusal.scope, refusal.root.output, refusal.stage) == ("main", "y", "escape")


def test_a_trace_stays_true_after_further_edits() -> None:
    """What is told of a refusal is what was there then."""
    trace = Trace()
    model = model_from_text(
        "g (float[2] x) => (float[2] z) { n = Neg (x) y = Abs (n) m = Add (n, n) z = Add (y, m) }"
    )

    rewrite(model, RULES, watchers=[trace])

    told = [event for turn in trace.turns for event in turn.events if isinstance(event, Refusal)]
    assert [(event.root.op_type, event.root.output) for event in told] == [
        *(("Mul", "m"), ("Abs", "y")),
    ]
    assert [turn.applied for turn in trace.turns if turn.rule == "to_mul"] == [1]
