"""The work grows with the model, not with its square; what has no end is ended and named.

Work is counted in calls of Python functions, which are the same in every run.
"""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from dplcli.ir.traversal import check_structure
from dplcli.language.matcher import Matcher
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import RewriteLimitError, rewrite
from dplcli.passes.rewriter import GraphRewriter
from tests.passes.rewriting import bound, check_settled, rewrite_rule, rewritten
from tests.support.helpers import check_sound, model_from_bytes, model_from_text, thinned, with_long
from tests.support.strategies import FOUR_TIMES, growth, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dplcli.ir import Node
    from dplcli.language import Match, RewriteRule
    from dplcli.language.replacement import GraphBuilder, NewValue
    from dplcli.passes.rewrite import Rewriting

    Steps = list[tuple[str, list[str], list[str]]]

LIMIT = 12
"""Ten times the nodes may take so many times the calls."""


def net(steps: Steps, outputs: list[str], **data: float) -> bytes:
    """Write a model with an input x of steps (operator, inputs, outputs), and constants."""
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node(op, reads, makes, name=f"n{number}")
            for number, (op, reads, makes) in enumerate(steps)
        ],
        "g",
        [info("x", onnx.TensorProto.FLOAT, [4])],
        [info(name, onnx.TensorProto.FLOAT, [4]) for name in outputs],
        [
            onnx.numpy_helper.from_array(np.full(4, number, np.float32), name)
            for name, number in data.items()
        ],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets)
    data_of_model: bytes = model.SerializeToString()
    return data_of_model


def chain(count: int, *ops: str) -> bytes:
    """Write one node behind the other, operators in turn."""
    names = ["x", *(f"v{number}" for number in range(count))]
    steps: Steps = [
        (ops[number % len(ops)], [above], [below])
        for number, (above, below) in enumerate(pairwise(names))
    ]
    return net(steps, names[-1:])


def fan(count: int) -> bytes:
    """Write a value with many readers, two nodes below each of them, all summed up in tens."""
    steps: Steps = [("Abs", ["x"], ["h"])]
    level = []
    for number in range(count):
        steps += [("Neg", ["h"], [f"a{number}"]), ("Neg", [f"a{number}"], [f"b{number}"])]
        level.append(f"b{number}")
    while len(level) > 1:
        groups = [level[at : at + 10] for at in range(0, len(level), 10)]
        level = []
        for group in groups:
            level.append(f"s{len(steps)}")
            steps.append(("Sum", group, level[-1:]))
    return net(steps, level)


def products(count: int) -> bytes:
    """Write a chain of sums, the last of which is multiplied by a constant."""
    names = ["x", *(f"a{number}" for number in range(count))]
    steps: Steps = [("Add", [above, "x"], [below]) for above, below in pairwise(names)]
    return net([*steps, ("Mul", [names[-1], "k"], ["out"])], ["out"], k=2.0)


def weights(count: int) -> bytes:
    """Write many products with the same weight, each of two factors too many."""
    steps: Steps = []
    names = ["x", *(f"v{number}" for number in range(count))]
    for number, (above, below) in enumerate(pairwise(names)):
        steps += [
            ("Mul", [above, "k"], [f"m{number}"]),
            ("Mul", [f"m{number}", "k"], [f"p{number}"]),
            ("Add", [f"p{number}", above], [below]),
        ]
    return net(steps, names[-1:], k=0.5)


def calls_of(action: Callable[[], Rewriting]) -> tuple[int, Rewriting]:
    """Count the calls that *action* makes."""
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        result = action()
    finally:
        sys.setprofile(None)
    return count, result


def _exp(match: Match, build: GraphBuilder) -> NewValue:
    return build.op("Exp", bound(match, "v"))


NEGATION = rewrite_rule("Neg(Neg(v))", "v", name="negation")
CASES: dict[str, tuple[Callable[[int], bytes], list[RewriteRule]]] = {
    "erased-in-pairs": (lambda n: chain(n, "Neg"), [NEGATION]),
    "merged": (lambda n: chain(n, "Relu"), [rewrite_rule("Relu(Relu(v))", "Relu(v)")]),
    "merged-from-the-other-end": (
        lambda n: chain(n, "Relu"),
        [rewrite_rule("a = Relu(v)\nb = Relu(a)\nb", "a")],
    ),
    "replaced": (lambda n: chain(n, "Relu", "Neg"), [rewrite_rule("Neg(v)", "Sub(v, Abs(v))")]),
    "by-a-function": (lambda n: chain(n, "Relu", "Neg"), [rewrite_rule("Neg(v)", _exp)]),
    "with-types": (
        lambda n: chain(n, "Relu", "Neg"),
        [rewrite_rule("Neg(v)", "Abs(Sin(v))", "v.rank == 1", "v.uses == 1")],
    ),
    "one-after-the-other": (
        lambda n: chain(n, "Relu", "Neg"),
        [
            rewrite_rule("Exp(Sin(v))", "Cos(v)", name="third"),
            rewrite_rule("Neg(v)", "Exp(v)", name="second"),
            rewrite_rule("Relu(v)", "Sin(v)", name="first"),
        ],
    ),
    "many-readers": (fan, [NEGATION]),
    "many-readers-twice": (
        fan,
        [rewrite_rule("Exp(Exp(v))", "v", name="b"), rewrite_rule("Neg(v)", "Exp(v)", name="a")],
    ),
    "distributed": (
        products,
        [rewrite_rule("Mul(Add(a, b), const(k))", "Add(Mul(a, k), Mul(b, k))")],
    ),
    "one-weight": (
        weights,
        [rewrite_rule("Mul(Mul(v, const(k)), const(l))", "Mul(v, const(k.value * l.value))")],
    ),
    "nothing-matches": (lambda n: chain(n, "Relu", "Neg"), [rewrite_rule("Neg(Neg(v))", "v")]),
}
QUICK = {"erased-in-pairs", "by-a-function", "nothing-matches"}


@pytest.mark.parametrize(("write", "rules"), with_long(CASES, CASES.keys() - QUICK))
def test_the_work_grows_with_the_model(
    write: Callable[[int], bytes], rules: list[RewriteRule]
) -> None:
    """Ten times the nodes, about ten times the applications and ten times the work."""
    found = []
    for count in (200, 2000):
        model = model_from_bytes(write(count))
        calls, done = calls_of(lambda model=model: rewrite(model, rules))  # type: ignore[misc]
        check_structure(model)
        found.append((calls, sum(done.counts.values())))
    (few, once), (many, often) = found
    assert often == 0 or 9 * once <= often <= 11 * once
    assert many < LIMIT * few


def test_a_node_that_reads_all_the_others() -> None:
    """Another operand costs as much as in a node of two, however many there are; so does a name."""

    def prepared(count: int) -> Callable[[], object]:
        names = [f"v{number}" for number in range(count)]
        steps: Steps = [("Relu", ["x"], [name]) for name in names]
        graph = model_from_bytes(net([*steps, ("Concat", names, ["out"])], ["out"])).graph
        first, *others = (graph.values[name] for name in names)
        rewriter = GraphRewriter(graph)

        def work() -> None:
            for other in others:
                rewriter.replace_uses(other, first)
            (node,) = (node for node in graph if node.op_type == "Concat")
            assert node.inputs == (first,) * count
            assert node.rewired

        return work

    assert growth(prepared, 2000) < FOUR_TIMES


def test_a_rule_costs_nothing_in_bodies_that_lack_its_operators() -> None:
    """However many bodies there are: another rule that fits nowhere takes as many calls."""

    def cost(bodies: int, count: int) -> int:
        branches = [
            f"t{number} = If (c) <then_branch = a () => (p{number}) {{ p{number} = Neg (x) }},"
            f" else_branch = b () => (q{number}) {{ q{number} = Relu (x) }}>"
            for number in range(bodies)
        ]
        text = f"g (bool c, float[2] x) => (float[2] t0) {{ {' '.join(branches)} }}"
        rules = [rewrite_rule("Exp(Neg(v))", "v", name=f"r{number}") for number in range(count)]
        model = model_from_text(text)
        return calls_of(lambda: rewrite(model, rules))[0]

    few, many = (cost(bodies, 12) - cost(bodies, 2) for bodies in (20, 200))
    assert many < 1.5 * few


@pytest.mark.long
def test_a_hundred_thousand_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node is looked at once; after that only what lies below the few that changed."""
    starts = 0
    solutions = Matcher.solutions

    def counted(self: Matcher, root: Node, *taken: object) -> Iterator[object]:
        nonlocal starts
        starts += 1
        return solutions(self, root, *taken)  # type: ignore[arg-type]

    monkeypatch.setattr(Matcher, "solutions", counted)
    count = 100_000
    names = ["x", *(f"v{number}" for number in range(count))]
    steps: Steps = [
        ("Abs" if number % 1000 == 7 else "Neg" if number % 2 else "Relu", [above], [below])
        for number, (above, below) in enumerate(pairwise(names))
    ]
    model = model_from_bytes(net(steps, names[-1:]))
    absolute = rewrite_rule("Abs(v)", "Sin(v)", name="absolute")
    waiting = rewrite_rule("Neg(Relu(Sin(v)))", "Exp(v)", name="waiting")
    done = rewrite(model, [waiting, absolute])
    assert done.counts == {"waiting": 100, "absolute": 100}
    assert starts < count / 2 + 1000


@pytest.mark.long
def test_fifty_thousand_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value read as often, in a model where many rounds change who reads it."""
    starts = 0
    solutions = Matcher.solutions

    def counted(self: Matcher, root: Node, *taken: object) -> Iterator[object]:
        nonlocal starts
        starts += 1
        return solutions(self, root, *taken)  # type: ignore[arg-type]

    monkeypatch.setattr(Matcher, "solutions", counted)
    count, rounds = 50_000, 40
    names = ["x", *(f"a{number}" for number in range(rounds))]
    steps: Steps = [("Abs", ["x"], ["h"])]
    steps += [("Add", [above, "h"], [below]) for above, below in pairwise(names)]
    steps += [("Mul", [names[-1], "h"], ["out"])]
    steps += [("Sub", ["x", "h"], [f"s{number}"]) for number in range(count)]
    model = model_from_bytes(net(steps, ["out", *(f"s{number}" for number in range(count))]))
    distribute = rewrite_rule("Mul(Add(a, b), c)", "Add(Mul(a, c), Mul(b, c))", name="distribute")
    never = rewrite_rule("Sub(Sub(a, b), c)", "a", name="never")
    with within(60):
        done = rewrite(model, [never, distribute])
    assert done.counts == {"never": 0, "distribute": rounds}
    assert done.rounds == rounds
    assert starts < count + 20 * rounds


def test_a_product_over_a_thousand_sums() -> None:
    """Distributed until none is left: the right numbers, and a round for each."""
    rule = rewrite_rule("Mul(Add(a, b), const(k))", "Add(Mul(a, k), Mul(b, k))")
    model = model_from_bytes(products(1000))
    done = rewrite(model, [rule])
    assert (done.counts, done.rounds) == ({"r": 1000}, 1000)
    check_structure(model)
    after = to_proto(model)
    assert [node.op_type for node in after.graph.node].count("Mul") == 1001
    check_sound(onnx.ModelProto.FromString(products(1000)), after)
    few = rewritten(onnx.ModelProto.FromString(products(30)), [rule])
    check_settled(few, [rule])


# -- depth -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replacement", "count"),
    [
        pytest.param("Abs(Abs(v))", 3000, id="a-chain-of-thousands"),
        pytest.param("Add(Abs(v), Neg(v))", 60, id="diamonds-with-more-ways-than-can-be-walked"),
    ],
)
def test_new_nodes_above_each_other_whose_type_is_asked_for(replacement: str, count: int) -> None:
    """In a function that is called for two ranks, so that neither is known."""
    body = " ".join(f"v{n} = own.g ({f'v{n - 1}' if n else 'p'})" for n in range(count))
    text = f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x, float[2, 2] v) => (float[2] y, float[2, 2] z) {{
            y = own.f (x) z = own.f (v) }}
        <domain: "own", opset_import: ["" : 17, "own" : 1]> f (p) => (q)
            {{ {body} q = Neg (v{count - 1}) }}"""
    model = model_from_text(text)
    rules = [
        rewrite_rule("own.g(v)", replacement, name="new"),
        rewrite_rule("Neg(v)", "Exp(v)", "v.rank == 1", name="asks"),
    ]
    with within(60):
        assert rewrite(model, rules).counts == {"new": count, "asks": 0}


def test_types_reach_through_a_thousand_new_nodes() -> None:
    """What is known at the top is known at the bottom of a chain that passes have made."""

    def long(match: Match, build: GraphBuilder) -> NewValue:
        value = build.op("Abs", bound(match, "v"))
        for _ in range(1000):
            value = build.op("Sin", value)
        return build.op("Abs", value)

    model = model_from_text("g (float[2, 3] x) => (float[2, 3] y) { a = Neg (x) y = Exp (a) }")
    rewrite(model, [rewrite_rule("Neg(v)", long)])
    check_structure(model)
    node = model.graph.values["a"].producer
    assert node is not None
    last = node.inputs[0]
    assert last is not None
    assert str(last.known_type()) == "float32[2,3]"


def test_a_long_dead_producer() -> None:
    """A chain of thousands that only the match needed goes with it, without recursion."""
    count = 5000
    names = ["x", *(f"v{number}" for number in range(count))]
    steps: Steps = [("Sin", [above], [below]) for above, below in pairwise(names)]
    model = model_from_bytes(net([*steps, ("Max", ["x", names[-1]], ["y"])], ["y"]))
    done = rewrite(model, [rewrite_rule("Max(v, _)", "Abs(v)")])
    assert done.counts == {"r": 1}
    assert [node.op_type for node in model.graph] == ["Abs"]


def test_many_bodies_in_bodies() -> None:
    """Twenty branches inside each other: matches at every depth, and names that clash nowhere."""
    inner = "d20 = Neg (x) b20 = Neg (d20)"
    for depth in range(19, -1, -1):
        inner = (
            f"d{depth} = Neg (x) e{depth} = Neg (d{depth}) i{depth} = If (c) <"
            f"then_branch = t{depth} () => (float[2] b{depth + 1}) {{ {inner} }}, "
            f"else_branch = u{depth} () => (float[2] o{depth}) {{ o{depth} = Exp (x) }}> "
            f"b{depth} = Add (i{depth}, e{depth})"
        )
    before = f"g (float[2] x, bool c) => (float[2] b0) {{ {inner} }}"
    result = rewritten(
        before,
        [
            rewrite_rule("Neg(Neg(v))", "Abs(Sin(v))", name="both"),
            rewrite_rule("Exp(v)", "Mul(v, 2.0)", name="one"),
        ],
    )
    assert result.done.counts == {"both": 21, "one": 20}
    onnx.checker.check_model(result.after)


# -- what has no end -------------------------------------------------------------------------------

ENDLESS: dict[str, tuple[list[RewriteRule], set[str]]] = {
    "grows-above": ([rewrite_rule("Add(a, b)", "Add(Neg(a), b)", name="grow")], {"grow"}),
    "grows-below": ([rewrite_rule("Add(a, b)", "Neg(Add(a, b))", name="grow")], {"grow"}),
    "doubles": (
        [rewrite_rule("Add(a, b)", "Add(Add(a, b), Add(b, a))", name="grow")],
        {"grow"},
    ),
    "swaps": ([rewrite_rule("Add(a, b)", "Add(b, a)", name="swap")], {"swap"}),
    "the-same-again": ([rewrite_rule("Add(a, b)", "Add(a, b)", name="same")], {"same"}),
    "three-in-a-circle": (
        [
            rewrite_rule("Add(a, b)", "Sub(a, b)", name="one"),
            rewrite_rule("Sub(a, b)", "Mul(a, b)", name="two"),
            rewrite_rule("Mul(a, b)", "Add(a, b)", name="three"),
        ],
        {"one", "two", "three"},
    ),
    "to-and-fro-in-constants": (
        [rewrite_rule("Mul(a, const(k))", "Mul(a, const(k.value * -1.0))", name="flip")],
        {"flip"},
    ),
    "constants-that-never-repeat": (
        [rewrite_rule("Mul(a, const(k))", "Mul(a, const(k.value + 1.0))", name="count")],
        {"count"},
    ),
    "large-constants": (
        [rewrite_rule("Div(a, const(k))", "Div(a, const(k.value * -1.0))", name="flip")],
        {"flip"},
    ),
    "captured-and-back": (
        [
            rewrite_rule("Add(a, b)", "Identity(Add(a, Abs(b)))", name="wrap"),
        ],
        {"wrap"},
    ),
    "a-pair-beside-one-that-ends": (
        [
            rewrite_rule("Relu(v)", "Max(v, 0.0)", name="ends"),
            rewrite_rule("Sub(a, b)", "Add(a, Neg(b))", name="out"),
            rewrite_rule("Add(a, Neg(b))", "Sub(a, b)", name="back"),
        ],
        {"out", "back"},
    ),
    "two-outputs": (
        [rewrite_rule("a = Relu(v)\nb = Abs(v)\na, b", "Relu(v), Abs(v)", name="pair")],
        {"pair"},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "case", thinned(3, [f"{where} {name}" for name in ENDLESS for where in ("main", "body")])
)
def test_rules_without_an_end(case: str) -> None:
    """An error within seconds, which names the rules that go on and no others."""
    where, name = case.split()
    rules, names = ENDLESS[name]
    nodes = """r = Relu (x) t = Abs (x) s = Sub (r, t) a = Add (s, z) m = Mul (a, k)
        d = Div (m, large) v = Add (d, d)"""
    data = f"float[100] k = {{{', '.join(['2'] * 100)}}}, float[100] large = {{" + ", ".join(
        ["4"] * 100
    )
    head = f"g (float[100] x, float[100] z, bool c) => (float[100] y) <{data}}}>"
    text = f"{head} {{ {nodes} y = Exp (v) }}"
    if where == "body":
        text = f"""{head} {{ y = If (c) <
            then_branch = tb () => (float[100] v) {{ {nodes} }},
            else_branch = eb () => (float[100] q) {{ q = Exp (x) }}> }}"""
    model = model_from_text(text)
    with within(20), pytest.raises(RewriteLimitError) as caught:
        rewrite(model, rules)
    check_structure(model)
    assert set(re.findall(r"\b[a-z]+\b", caught.value.message)) & {r.name for r in rules} == names
    assert caught.value.hint is not None
    assert "once: true" in caught.value.hint
    onnx.checker.check_model(to_proto(model), full_check=True)


def test_once_is_the_way_out() -> None:
    """The same rules end when each has only one turn."""
    for rules, _ in ENDLESS.values():
        once = [
            rewrite_rule(repr(rule.pattern), rule.becomes, name=rule.name, once=True)
            for rule in rules
        ]
        result = rewritten(
            """g (float[2] x, float[2] z) => (float[2] y) <float[2] k = {1, 2}> {
            r = Relu (x) t = Abs (x) s = Sub (r, t) a = Add (s, z) m = Mul (a, k)
            d = Div (m, k) y = Exp (d) }""",
            once,
        )
        assert sum(result.done.counts.values()) >= 1
        assert result.done.rounds == 1


def test_a_long_way_is_no_endless_one() -> None:
    """A value may be replaced as often as the model has nodes."""
    model = model_from_bytes(chain(3000, "Neg"))
    done = rewrite(model, [rewrite_rule("Neg(Neg(Neg(v)))", "Neg(v)", name="odd")])
    assert sum(done.counts.values()) == 1499
