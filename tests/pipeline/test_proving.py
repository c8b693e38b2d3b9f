"""Rules are tried on graphs drawn at random: wrong ones are refused with a graph that shows it."""

from __future__ import annotations

import gc
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dplcli.catalog.sketch import sketches
from dplcli.ir import Model
from dplcli.language import is_op, wildcard
from dplcli.language.conditions import Condition
from dplcli.language.replacement import RewriteRule
from dplcli.language.rule import Example
from dplcli.onnx_io.convert import RuntimeSchemas
from dplcli.onnx_io.scratch import model_from_text
from dplcli.passes.select import select_matches
from dplcli.pipeline import proving, verifying
from dplcli.pipeline.catalogs import load_catalog_rules, try_catalogs
from dplcli.pipeline.drawing import DeadEndError
from dplcli.pipeline.operands import FORMS
from dplcli.pipeline.proving import DEFAULT_TRIALS, Trier
from dplcli.pipeline.sampling import Sampler, model_of
from dplcli.pipeline.wishes import Facet, Wish, wishes_of
from tests.support.helpers import one_in, shipped_rewrites, thinned

if TYPE_CHECKING:
    from dplcli.language.replacement import GraphBuilder, RewriteFunction
    from dplcli.language.rule import Match
    from dplcli.outcomes.rules import Trial
    from dplcli.verify import Check, VerificationResult

SCHEMAS = RuntimeSchemas()
RULES = Path(__file__).parent / "rules"
CASES = sorted((RULES / "cases").glob("*.yaml"))
FEW = 60
"""Graphs on which rules are tried here."""

HEAD = "dpl: 1\nrewrites:\n"


def rules_in(path: Path) -> dict[str, RewriteRule]:
    """Return the rewrites of a catalogue, by name."""
    found = load_catalog_rules([str(path)])
    return {rule.name: rule for rule in found if isinstance(rule, RewriteRule)}


def made_up(rule: RewriteRule, most: int = FEW, seed: int = 0) -> Trial:
    """Return the one trial on graphs made up for *rule*."""
    (trial,) = [t for t in Trier(SCHEMAS, most, seed).trials(rule) if t.kind == "made up"]
    return trial


def rule_of(folder: Path, *lines: str) -> RewriteRule:
    """Return the rule that *lines* of a catalogue describe."""
    path = folder / "rules.yaml"
    path.write_text(HEAD + "\n".join(["  - name: r", *(f"    {line}" for line in lines)]))
    return rules_in(path)["r"]


WRONG = rules_in(RULES / "wrong.yaml")
RIGHT = rules_in(RULES / "right.yaml")


def test_there_are_forty_of_each() -> None:
    """As many as were asked for, and no name stands twice in a file."""
    assert len(WRONG) >= 40
    assert len(RIGHT) >= 40


@pytest.mark.parametrize("name", one_in(16, WRONG, gate=8))
def test_refuses_a_wrong_rule(name: str) -> None:
    """And the counterexample is a model by itself, on which the rule is still wrong."""
    trial = made_up(WRONG[name])

    assert trial.verdict == "failed"
    assert trial.reason
    model = model_from_text(trial.counterexample, "counterexample")
    assert len(list(model.graph)) <= 4


@pytest.mark.parametrize("name", one_in(48, RIGHT, gate=12))
def test_passes_a_right_rule(name: str) -> None:
    """It is tried on graphs, and none is against it."""
    trial = made_up(RIGHT[name])

    assert (trial.verdict, trial.reason) == ("passed", "")
    assert trial.graphs > 5


def judged(path: Path, seed: int) -> str:
    """Return the verdict on the rule of a file."""
    (rule,) = rules_in(path).values()
    return made_up(rule, DEFAULT_TRIALS, seed).verdict


@pytest.mark.long
@pytest.mark.parametrize("path", thinned(24, CASES, name=lambda path: path.stem))
def test_judges_a_rule_rightly(path: Path) -> None:
    """Those whose names begin with R are right; of others, a part is wrong or is never reached."""
    assert (judged(path, 0) == "passed") == path.stem.startswith("R_")


@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1, 10))
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_judges_a_rule_rightly_at_every_seed(path: Path, seed: int) -> None:
    """Nothing depends on what is drawn."""
    assert (judged(path, seed) == "passed") == path.stem.startswith("R_")


# What was tried.


def test_graphs_leave_no_garbage(tmp_path: Path) -> None:
    """Also where a program does not collect garbage, as the command line."""
    rule_of(tmp_path, 'pattern: "Neg(Neg(x))"', 'replacement: "x"')
    catalogue = str(tmp_path / "rules.yaml")
    gc.collect()
    gc.disable()
    try:
        assert {trial.graphs for trial in try_catalogs([catalogue], trials=200)} == {200}
        assert sum(isinstance(each, Model) for each in gc.get_objects()) < 20
    finally:
        gc.enable()


def test_tries_every_opset_that_a_rule_claims(tmp_path: Path) -> None:
    """One for each way in which an operator is defined, and each is reported."""
    lines = [
        "opsets: [11, 18]",
        'pattern: "Neg(Softmax(x, axis=a))"',
        'replacement: "Neg(Softmax(x, axis=a))"',
    ]
    trial = made_up(rule_of(tmp_path, *lines, "once: true"))

    assert trial.verdict == "passed"
    assert trial.tried[0] == "opsets 12, 18"


@pytest.mark.parametrize(
    ("where", "asked"),
    [
        ("all(c.value)", {"Where is true"}),  # of which some have no elements
        ("c.rank < 6", {"Where is true", "Where is false"}),
    ],
)
def test_a_constant_without_elements_asks_for_nothing(
    tmp_path: Path, where: str, asked: set[str]
) -> None:
    """A condition that is always true is never false, and one of no elements is neither."""
    lines = ['pattern: "Where(const(c), x, y)"', 'replacement: "Neg(Where(c, Neg(x), Neg(y)))"']
    lines += ["once: true", f"where: [{where!r}, 'x.dtype == \"float32\"']"]
    trial = made_up(rule_of(tmp_path, *lines), seed=11)

    assert trial.verdict == "passed"
    assert {*trial.behaviours} == asked


def test_a_graph_that_is_drawn_again_counts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is not compared again: it would be fed the same."""
    compared: list[bytes] = []

    def compare(
        original: Path, candidate: Path, settings: Check | None, progress: None
    ) -> VerificationResult:
        compared.append(original.read_bytes())
        return verifying.compare(original, candidate, settings, progress)

    monkeypatch.setattr(proving, "compare", compare)
    lines = ['pattern: "Not(Not(x))"', 'replacement: "x"', "once: true"]
    trial = made_up(rule_of(tmp_path, *lines))

    assert (trial.verdict, trial.graphs) == ("passed", FEW)
    assert len(set(compared)) == len(compared) < FEW


@pytest.mark.parametrize(
    ("split", "verdict"),
    [
        ("Split(x, split=[2, 2], axis=1)", "passed"),
        ("Split(x, const(s), axis=1)", "passed"),
        ("Split(x, split=[2, 2, 1], axis=1)", "failed"),
        ("Split(x, num_outputs=2, axis=1)", "passed"),
    ],
)
def test_outputs_that_are_chosen_by_number_are_made(
    tmp_path: Path, split: str, verdict: str
) -> None:
    """A node has as many outputs as the pattern reads, or as its sizes say."""
    pattern = f"|\n      n = {split}\n      Concat(n[0], n[1], axis=1)"
    where = ["where: [prod(s.shape) == 2]"] if "(s)" in split else []

    rule = rule_of(tmp_path, f"pattern: {pattern}", *where, "replacement: Identity(x)")

    assert made_up(rule).verdict == verdict


def test_too_many_outputs_are_not_made(tmp_path: Path) -> None:
    """No graph has so many, and the reason says so."""
    rule = rule_of(tmp_path, "pattern: Relu(Split(x, **_)[99])", "replacement: Relu(x)")

    trial = made_up(rule)

    assert trial.verdict == "not tried"
    assert "100 outputs" in trial.reason


def test_a_form_that_no_graph_has_is_not_tried(tmp_path: Path) -> None:
    """Dropout of opset 7 has no form with three inputs."""
    lines = ["opsets: [11, 11]", 'pattern: "Neg(x) | Gelu(x)"', 'replacement: "Mul(x, -1.0)"']
    trial = made_up(rule_of(tmp_path, *lines, "where: ['x.dtype == \"float32\"']"))

    assert (trial.verdict, "Gelu(x)" in trial.reason) == ("not tried", True)


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("", "failed"),
        ("except: [nan]", "passed"),
        ("except: [inf]", "failed"),
        ("doc: Right but for NaN.", "passed"),
        ("doc: NaN is a number.", "failed"),
    ],
)
def test_a_rule_says_for_which_numbers_it_may_be_wrong(
    tmp_path: Path, said: str, verdict: str
) -> None:
    """In words of its own, or in its description."""
    lines = ['pattern: "Where(IsNaN(x), const(c), x)"', 'replacement: "x"', "opsets: [13, 18]"]
    lines.append('where: ["c.rank == 0"]')
    assert made_up(rule_of(tmp_path, *lines, *filter(None, [said]))).verdict == verdict


@pytest.mark.parametrize(("types", "verdict"), [('"int8"', "failed"), ('"float32"', "passed")])
def test_the_lowest_number_of_a_type_tells(tmp_path: Path, types: str, verdict: str) -> None:
    """It has no negative."""
    lines = ["opsets: [18, 18]", 'pattern: "ReduceMin(x, _, keepdims=1, **_)"', 'replacement: "x"']
    lines[2] = 'replacement: "Neg(ReduceMax(Neg(x), axes=[0], keepdims=1))"'
    lines[1] = 'pattern: "ReduceMin(x, axes=[0], keepdims=1, **_)"'
    assert made_up(rule_of(tmp_path, *lines, f"where: ['x.dtype == {types}']")).verdict == verdict


# Counterexamples.


def test_counterexample_is_as_small_as_it_gets() -> None:
    """One number times -1: nothing can go."""
    trial = made_up(WRONG["scale_through_relu"])

    assert " ".join(trial.counterexample.split()) == (
        "made_up (float x) => (float made_1) <float c = {-1}> "
        "{ made_0 = Mul (x, c) made_1 = Relu (made_0) }"
    )
    assert trial.reason.endswith("it is -0, not 0.648539")


@pytest.mark.long
def test_counterexample_becomes_an_example(tmp_path: Path) -> None:
    """Pasted as it is printed, it fails for the wrong rule and passes for the mended one."""
    pattern = 'pattern: "Relu(Mul(x, const(c)))"'
    replacement = 'replacement: "Mul(Relu(x), c)"'
    lines = made_up(rule_of(tmp_path, pattern, replacement)).counterexample.splitlines()
    example = ["examples:", "  - before: |", *(f"      {line}" for line in lines)]
    example.append("    after: unchanged")
    wrong = rule_of(tmp_path, pattern, replacement, *example)
    right = rule_of(tmp_path, pattern, 'where: ["all(c.value >= 0)"]', replacement, *example)

    assert next(t.verdict for t in Trier(SCHEMAS, 1).trials(wrong)) == "failed"
    assert [t.verdict for t in Trier(SCHEMAS).trials(right)] == ["passed", "passed"]


def test_counterexample_of_another_opset_says_so(tmp_path: Path) -> None:
    """Without a header, a text is of opset 21."""
    rule = rule_of(
        tmp_path,
        "opsets: [9, 12]",
        'pattern: "Softmax(Relu(x), axis=1)"',
        'replacement: "Relu(Softmax(x, axis=1))"',
    )

    text = made_up(rule).counterexample

    assert text.startswith('< ir_version: 10, opset_import: ["" : 12]>')
    assert model_from_text(text, "counterexample").graph.opset_imports[""] == 12


def test_the_same_seed_gives_the_same_counterexample() -> None:
    """Another one may give another."""
    first, again = (made_up(WRONG["clips_merge"], seed=3) for _ in range(2))

    assert (first.reason, first.counterexample) == (again.reason, again.counterexample)


def test_tries_as_many_graphs_as_asked_for() -> None:
    """Not more, if the rule holds."""
    assert made_up(RIGHT["negative_twice"], most=7).graphs == 7


def test_a_weight_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    """A rank that a condition would allow is not one that a convolution has."""
    rule = rule_of(
        tmp_path,
        'pattern: "Conv(Pad(x, const(n), **_), w, b, **attrs)"',
        'where: ["all(n.value == 0)", "w.rank < 5"]',
        'replacement: "Conv(x, w, b, **attrs)"',
    )

    assert made_up(rule, most=5).verdict == "passed"


# What conditions ask for is drawn.


def drawn(folder: Path, pattern: str, *where: str, count: int = 12) -> list[bool]:
    """Draw graphs for a pattern; return of those that are valid whether the rule matches them."""
    becomes = "Conv(x, w, **p)" if "**p" in pattern else "x"
    lines = (f'pattern: "{pattern}"', f"where: {list(where)}", f'replacement: "{becomes}"')
    rule = rule_of(folder, *lines)
    found = []
    for sketch, outputs in sketches(rule, SCHEMAS):
        sampler = Sampler(sketch, rule, SCHEMAS, 22, np.random.default_rng(0), daring=0.3)
        for _ in range(count):
            with suppress(DeadEndError):
                found.append((rule, model_of(sampler.draw(outputs), 22)))
    return [bool(select_matches(model, [rule]).matches) for rule, model in found if model]


@pytest.mark.parametrize(
    ("pattern", "where"),
    [
        ("Relu(x)", ["x.rank == 3", "x.shape[1] == 7"]),
        ("Relu(x)", ["2 < x.rank <= 4", "x.shape[-1] % 4 == 0"]),
        ("Add(x, const(e))", ["0 < e.value", "e.value < 0.0001", "e.rank == 0"]),
        ("Expand(x, const(c))", ["list(c.value) == [1, 1, c.value[2], 1]", "x.rank == 4"]),
        ("Add(Conv(x, w, **p), Conv(y, w, **p))", ["same_shape(x, y)"]),
        ("Concat(x, Relu(y), axis=0)", ["x.rank == y.rank", "x.shape[0] == y.shape[0] + 1"]),
        ("Expand(x, Shape(y))", ["x.rank == y.rank"]),
        ("Softmax(x, axis=a)", ["a == 1", "x.rank == 3"]),
        ("Pow(x, const(e))", ["all(e.value >= 2)", "x.dtype == 'float64'"]),
        ("Reshape(x, const(s))", ["len(s.value) == x.rank - 1", "x.rank == 3"]),
        ("com.microsoft.FusedMatMul(x, y, alpha=f, **_)", ["f == 0.25"]),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_conditions_are_solved_for_what_they_speak_of(
    tmp_path: Path, pattern: str, where: list[str]
) -> None:
    """Ranks, sizes, numbers, lists, types, attributes, and what is to equal each other."""
    fits = drawn(tmp_path, pattern, *where)

    assert len(fits) >= 4
    assert sum(fits) >= len(fits) / 2


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        ("x.rank == 3", {Facet("rank", "x"): Wish(items=(3.0,))}),
        ("len(x.shape) - 1 <= 3", {Facet("rank", "x"): Wish(high=4.0)}),
        ("all([axis % x.rank < 2 for axis in [0, 1]])", {}),
        ("5 - x.rank == 3", {}),
        ("x.rank != 3", {}),
    ],
)
def test_only_what_is_stated_is_asked_for(
    tmp_path: Path, condition: str, asked: dict[Facet, Wish]
) -> None:
    """What is computed with it says nothing of it."""
    rule = rule_of(tmp_path, 'pattern: "Relu(x)"', f'where: ["{condition}"]', 'replacement: "x"')

    assert wishes_of(rule, np.random.default_rng(0)).ranges == asked


@pytest.mark.parametrize("operator", one_in(9, FORMS))
def test_operands_are_drawn_by_the_form_of_their_operator(operator: str) -> None:
    """Of all operators that have one, as onnx and onnxruntime want them."""
    domain, _, op_type = operator.rpartition(".")
    schema = SCHEMAS.versions(op_type, domain)[-1]
    inputs = [wildcard(f"x{slot}") for slot in range(schema.min_inputs)]
    rule = RewriteRule("r", is_op(op_type, domain)(*inputs, ...), lambda _match, _build: None)
    opset = max(22, schema.since) if not domain else 22
    ((sketch, outputs), *_) = sketches(rule, SCHEMAS)
    sampler = Sampler(sketch, rule, SCHEMAS, opset, np.random.default_rng(0))
    models = []
    for number in range(60):
        sampler.daring = number / 60
        with suppress(DeadEndError):
            models.append(model_of(sampler.draw(outputs), opset))

    assert any(models)


# What cannot be tried, and what is tried by its examples.


@pytest.mark.long
@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (['pattern: "Relu(x)"', 'where: ["x.uses == 9"]', 'replacement: "x"'], "x.uses == 9"),
        (['pattern: "Relu(x)"', 'where: ["x.rank == 9"]', 'replacement: "x"'], "x.rank == 9"),
        (['pattern: "com.acme.Gelu(x, **_)"', 'replacement: "Gelu(x)"'], "com.acme.Gelu"),
    ],
)
def test_says_what_keeps_a_rule_from_being_tried(
    tmp_path: Path, lines: list[str], reason: str
) -> None:
    """The condition that refuses the graphs, or the operator that nothing is known of."""
    trial = made_up(rule_of(tmp_path, *lines))

    assert trial.verdict == "not tried"
    assert reason in trial.reason


def test_examples_are_trials_where_no_graph_can_be_made_up(tmp_path: Path) -> None:
    """Those on which the rule does something; an example that stays unchanged shows nothing."""
    lines = ['pattern: "Relu(Relu(x))"', "where: ['x.rank == 9']", 'replacement: "Relu(x)"']
    one = "Constant <value = float[1] {1}> ()"
    branches = f"then_branch = t () => (float[1] u) {{ u = {one} }}, "
    branches += f"else_branch = e () => (float[1] v) {{ v = {one} }}"
    before = (
        "g (float[1,1,1,1,1,1,1,1,2] x, bool c) => (float[1,1,1,1,1,1,1,1,2] y, float[1] z) "
        f"{{ a = Relu(x) y = Relu(a) z = If (c) <{branches}> }}"
    )
    applies = ["examples:", f"  - before: '{before}'"]
    idle = ["examples:", f"  - before: '{before.replace('= Relu(x)', '= Abs(x)')}'"]
    idle += ["    after: unchanged"]

    assert made_up(rule_of(tmp_path, *lines, *applies)).verdict == "by example"
    assert made_up(rule_of(tmp_path, *lines, *idle)).verdict == "not tried"


@pytest.mark.long
def test_an_example_of_an_operator_that_onnxruntime_does_not_have(tmp_path: Path) -> None:
    """It shows the structure; a wrong one, or an operator used wrongly, is a failure."""
    before = "g (float[2] x) => (float[2] y) { y = Neg(x) }"
    own = '<ir_version: 10, opset_import: ["" : 21, "my" : 1]> g (float[2] x) => (float[2] y) '

    def verdict(replacement: str, after: str) -> tuple[str, str]:
        lines = ['pattern: "Neg(x)"', f'replacement: "{replacement}"']
        examples = ["examples:", f"  - before: '{before}'", f"    after: '{after}'"]
        trial = next(Trier(SCHEMAS).trials(rule_of(tmp_path, *lines, *examples)))
        return trial.verdict, trial.reason

    missing = "onnxruntime has no my.Foo"
    assert verdict("my.Foo(x)", "any") == ("not tried", missing)
    assert verdict("my.Foo(x)", own + "{ y = my.Foo(x) }") == ("not tried", missing)
    assert verdict("my.Foo(x)", own + "{ y = my.Bar(x) }")[0] == "failed"
    assert verdict("my.Foo(x)", "unchanged")[0] == "failed"
    assert verdict("Exp(x)", "any")[0] == "failed"


# Rules whose replacement is a function.


BEFORE = "g (float[3] x) => (float[3] y) { a = Neg(x)\n y = Relu(a) }"


def of_function(replacement: RewriteFunction) -> RewriteRule:
    """Return a rule that a function does, with an example."""
    pattern = is_op("Relu")(is_op("Neg")(wildcard("x")))
    examples = (Example(before=BEFORE),)
    return RewriteRule("r", pattern, replacement, examples=examples, excepted=("nan", "inf"))


def largest_of_two(match: Match, build: GraphBuilder) -> object:
    """Write -x where x is negative as Max(-x, x - x)."""
    x = match["x"]
    return build.op("Max", build.op("Neg", x), build.op("Sub", x, x))


@pytest.mark.long
@pytest.mark.parametrize(
    ("replacement", "verdict"),
    [
        (largest_of_two, "passed"),
        (lambda match, build: build.op("Neg", match["x"]), "failed"),
        (lambda _match, _build: None, "not tried"),
    ],
)
def test_tries_functions_likewise(replacement: RewriteFunction, verdict: str) -> None:
    """On graphs made up for the pattern, as a text."""
    assert made_up(of_function(replacement)).verdict == verdict


@pytest.mark.long
@pytest.mark.parametrize("name", ["group_normalization", "reduce_log_sum_exp"])
def test_what_is_gone_in_float64_is_rounding(name: str) -> None:
    """Where a float32 is cast to float32, where groups say float32, and for a number alone."""
    rule = next(item for item in shipped_rewrites("fuse") if item.name == name)
    assert {trial.verdict for trial in Trier(SCHEMAS).trials(rule)} <= {"passed", "by example"}


PLAIN_SOFTMAX = """|
      e = Exp(x)
      y = Div(e, ReduceSum(e, const(axes), keepdims=1, **_))
      y"""
STABLE_SOFTMAX = """|
      largest = ReduceMax(x, const(), keepdims=1, **_)
      e = Exp(Sub(x, largest))
      y = Div(e, ReduceSum(e, const(axes), keepdims=1, **_))
      y"""
AXES = """where: ['prod(axes.shape) == 1', 'shaped_like(y, x)', 'x.dtype == "float64"']"""
OF_LARGEST = AXES.replace("[", "['largest.attrs.axes == tuple(axes.value)', ", 1)
DOUBLE = """where: ['x.dtype == "float64"']"""


@pytest.mark.parametrize(
    ("pattern", "where", "replacement"),
    [
        pytest.param(PLAIN_SOFTMAX, AXES, "Softmax(x, axis=0)", id="along another axis"),
        pytest.param(
            STABLE_SOFTMAX,
            OF_LARGEST,
            "Div(Exp(x), ReduceSum(Exp(x), axes, keepdims=1))",
            id="nothing subtracted",
        ),
        pytest.param(
            PLAIN_SOFTMAX,
            AXES,
            "Mul(Softmax(x, axis=int(axes.value)), const(cast(1.001, x.dtype)))",
            id="a factor",
        ),
        pytest.param(
            "Log(Softmax(x, axis=a))",
            DOUBLE,
            "Max(LogSoftmax(x, axis=a), const(cast(-80, x.dtype)))",
            id="cut off",
        ),
    ],
)
def test_what_leaves_its_range_excuses_no_other_meaning(
    tmp_path: Path, pattern: str, where: str, replacement: str
) -> None:
    """Where the original overflows inside it is no reference; everywhere else it is one."""
    rule = rule_of(
        tmp_path,
        "opsets: [13]",
        "except: [inf]",
        where,
        f"pattern: {pattern}",
        f"replacement: {replacement}",
    )
    assert made_up(rule).verdict == "failed"


@pytest.mark.parametrize("name", ["softmax", "log_of_softmax"])
def test_an_original_that_overflows_inside_is_no_reference(name: str) -> None:
    """In float64 there is no finer type to ask: exp(703), and the logarithm of a subnormal."""
    rule = next(item for item in shipped_rewrites("fuse") if item.name == name)
    narrow = replace(rule, where=(*rule.where, Condition('x.dtype == "float64"')), examples=())
    assert made_up(narrow, seed=11).verdict == "passed"


TODAY = datetime.now(UTC).date().toordinal()
A_DAY = 5
"""So many shipped rewrites have their turn each day, all within two months."""

SHIPPED = ("prepare", "fuse", "fuse_attention", "fuse_ort")
"""The last one holds the other catalogues for onnxruntime, too."""


@pytest.mark.long
@pytest.mark.parametrize("turn", range(A_DAY))
def test_shipped_rewrites_hold_on_graphs_of_the_day(turn: int) -> None:
    """A rare graph that shows one wrong is found some day; the seed that draws it is told."""
    rules = [rule for name in SHIPPED for rule in shipped_rewrites(name)]
    rule = rules[(TODAY * A_DAY + turn) % len(rules)]
    for trial in Trier(SCHEMAS, 200, TODAY).trials(rule):
        told = f"{rule.name}, seed {TODAY}: {trial.reason}\n{trial.counterexample}"
        assert trial.verdict != "failed", told
