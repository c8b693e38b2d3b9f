"""A condition from a stranger's catalogue: no effect, no crash, no wait."""

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from dplcli.errors import PatternSyntaxError
from dplcli.onnx_io import model_from_proto, to_proto
from dplcli.passes.select import select_matches
from tests.support.helpers import describe_refusals, one_in, proto_from_text, rule, selected, taken

GRAPH = "g (float[2] a) => (float[2] o) <float[2] w = {1, 2}> { o = Add (a, w) }"
PATTERN = "Add(x, const(w))"
ROOT = Path(__file__).parents[2]

CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (3, 3))
from tests.support.helpers import rule, selected, taken
from dplcli.errors import PatternSyntaxError
from dplcli.onnx_io import model_from_proto, to_proto
try:
    found = selected(rule({pattern!r}, sys.argv[1]), {graph!r})
    print("no" if not taken(found) else "yes")
except PatternSyntaxError:
    print("refused")
"""


BOMBS = {
    "power": "3999999**3999999 > 0",
    "product": "prod([10**100000]*200) > 0",
    "fstring": 'f"{x.rank:9999999999999}"',
    "wide": 'f"{x.rank:2000000000}" == ""',
    "percent": '"%9999999999999d" % x.rank',
    "padding": '"%2000000000d" % x.rank == ""',
    "lists": "[[[1]*9999]*9999]*9999 == 1",
    "nested": "all([v29 == w29 for v0 in [(1, 1)] for w0 in [(1, 1)] "
    + " ".join(f"for {a}{n} in [({a}{n - 1}, {a}{n - 1})]" for a in "vw" for n in range(1, 30))
    + "])",
    "deep": "+".join(["x.rank"] * 3000) + " > 0",
}


@pytest.mark.parametrize("kind", one_in(12, BOMBS))
def test_a_bomb_is_a_no_or_refused_quickly(kind: str) -> None:
    """An expression that would take minutes or gigabytes ends at once, without an exception."""
    program = CHILD.format(pattern=PATTERN, graph=GRAPH)
    command = [sys.executable, "-W", "error", "-c", program, BOMBS[kind]]
    result = subprocess.run(  # noqa: S603  # our own interpreter and program
        command, cwd=ROOT, timeout=60, capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() in {"no", "refused"}, result.stderr[-400:]


@pytest.mark.parametrize(
    "condition",
    [
        'w.value.tofile("{}")',
        'w.value.dump("{}")',
        'open("{}", "w")',
        "().__class__.__base__.__subclasses__()",
        'x.shape.__class__("{}")',
        'x._value.graph.name == "{}"',
        "[open('{}', 'w') for _ in x.shape]",
    ],
)
def test_a_condition_writes_no_file(condition: str, tmp_path: Path) -> None:
    """No spelling of a call reaches the file system or Python's inside."""
    mark = tmp_path / "written"
    with contextlib.suppress(PatternSyntaxError):
        assert not taken(selected(rule(PATTERN, condition.format(mark)), GRAPH))
    assert not mark.exists()


@pytest.mark.parametrize(
    "condition",
    [
        "w.value.fill(0)",
        "w.value.sum() == 3",
        'x.name.upper() == "A"',
        "x.shape.count(2) == 1",
        'x.dtype.join(["a"]) == "a"',
        "w.value.resize(4)",
        "w.value.setflags(1)",
    ],
)
def test_only_listed_functions_are_called(condition: str) -> None:
    """A method call is not one of the listed helpers: it is refused or a no."""
    try:
        assert not taken(selected(rule(PATTERN, condition), GRAPH))
    except PatternSyntaxError:
        return


def test_a_condition_changes_no_weight() -> None:
    """Asking leaves the constants as they were, however they are stored."""
    for raw in (False, True):
        proto = proto_from_text(GRAPH)
        if raw:
            tensor = onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "w")
            proto.graph.initializer[0].CopyFrom(tensor)
        model = model_from_proto(proto, Path(), "test")
        before = to_proto(model).SerializeToString()
        for condition in ("w.value.fill(0)", "w.value.sort()", "w.value.put(0, 9)"):
            with contextlib.suppress(PatternSyntaxError):
                select_matches(model, [rule(PATTERN, condition)])
        constant = model.graph.values["w"].constant
        assert constant is not None
        assert constant.numpy().tolist() == [1, 2]
        assert to_proto(model).SerializeToString() == before


@pytest.mark.parametrize(
    "condition",
    [
        "x.__class__",
        "x.attrs.__dict__",
        "x.foo",
        "x.shape['a']",
        "w.value == 1",
        "w.value[5] == 1",
        "w.value / 0 > 1",
        "w.value ** 1000 > 1",
        "w.value @ w.value",
        "1 / 0",
        "1 % 0",
        "x.shape + 1",
        "x < w",
        "-x",
        "min(x, w) == x",
        "abs(x) == 1",
        "max() == 1",
        "len(5) == 5",
        "prod(5)",
        "all(5)",
        "same_shape(x)",
        "same_shape(1, 2)",
        "same_shape(x.shape, w.shape)",
        "broadcasts_to(1, x)",
        "per_channel(1, 2)",
        "per_channel(x, None)",
        "is_close(1, 1)",
        "is_close(w, 'a')",
        "is_close(w, None)",
        "is_close(w, [1, 2, 3])",
        "{}[1]",
        "(-1) ** 0.5 > 0",
        "1 << 10**10",
        "'a' * 10**9",
        "[1] * 10**9",
        "x.shape * 10**10",
        "[a for a in [1] * 100000]",
        "lambda: 1",
        "(x := 3)",
        "x.rank == '\\ud800'",
    ],
)
def test_nonsense_is_a_no_with_a_reason(condition: str) -> None:
    """Whatever goes wrong in evaluating is a refusal that says so, never an exception."""
    try:
        selection = selected(rule(PATTERN, condition), GRAPH)
    except PatternSyntaxError:
        return
    assert taken(selection) == []
    assert describe_refusals(selection)[0].startswith("r at o: where: ")


@pytest.mark.parametrize(
    "condition", ["-" * 5000 + "x.rank", "not " * 5000 + "x", "(" * 5000 + "x" + ")" * 5000]
)
def test_deep_expression_is_refused_or_a_no(condition: str) -> None:
    """An expression nested beyond reason ends in the language's own error."""
    try:
        assert not taken(selected(rule(PATTERN, condition), GRAPH))
    except PatternSyntaxError:
        return


@pytest.mark.parametrize("condition", ["not " * 900 + "True", "[1]" + "[0:1]" * 900])
def test_what_is_nested_too_deeply_is_a_no(condition: str) -> None:
    """Whatever limit of Python's it meets; nothing is raised while models are matched."""
    with contextlib.suppress(PatternSyntaxError):
        assert not taken(selected(rule(PATTERN, condition), GRAPH))


def test_comprehensions_within_comprehensions_are_read_soon() -> None:
    """Each part is looked at once, however deep it lies and however many variables there are."""
    nested = "[1]"
    for number in range(40):
        nested = f"[v{number} for v{number} in {nested}]"
    many = " and ".join(f"[i{number} for i{number} in [1]]" for number in range(400))
    assert taken(selected(rule(PATTERN, nested), GRAPH))
    assert taken(selected(rule(PATTERN, many), GRAPH))


def test_an_operand_of_a_chain_is_evaluated_once() -> None:
    """Comparisons within comparisons take as long as they are many, not twice as long for each."""
    condition = "x.rank"
    for _ in range(40):
        condition = f"(0 <= {condition} < 9)"
    assert taken(selected(rule(PATTERN, condition), GRAPH))


@pytest.mark.parametrize(
    "condition",
    [
        "[1 for a in [w.value] for a[0] in [5.0]]",
        "[1 for x.rank in [5.0]]",
        "any([x > 0 for x in x.shape])",
        "any([n > 0 for n in x.shape]) and n == 4",
        "x.attrs.attrs.real",
        "x.rank << 3",
        "w.value @ w.value",
    ],
)
def test_what_is_not_in_the_language_is_refused(condition: str) -> None:
    """Assignments, variables that are names, too, other operators and facts: when it is read."""
    with pytest.raises(PatternSyntaxError):
        rule(PATTERN, condition)


@pytest.mark.parametrize("condition", ["p[0] == " + "-" * 1500 + "1", "not " * 1500 + "p"])
def test_what_nests_too_deeply_is_refused(condition: str) -> None:
    """It is an error of ours, also where names stand for attributes."""
    with pytest.raises(PatternSyntaxError, match=r"too deeply|too many nested"):
        rule("Transpose(x, perm=p)", condition)


@pytest.mark.parametrize(
    "condition",
    [
        "[y for q in [1] for y in y]",
        "[q for q in (1, 2) if z for z in (1,)]",
        "[q for q in (1, 2) for z in [t] for t in [3]]",
    ],
)
def test_a_variable_that_is_read_before_it_has_a_value_is_a_no(condition: str) -> None:
    """Python raises a NameError; the reader is told about the condition."""
    selection = selected(rule(PATTERN, condition), GRAPH)
    assert not taken(selection)


def test_python_gives_no_advice_about_a_condition(recwarn: pytest.WarningsRecorder) -> None:
    """Its advice would be about code that nobody wrote."""
    assert not taken(selected(rule(PATTERN, '"abc"["x"] == 1'), GRAPH))
    assert taken(selected(rule(PATTERN, "0x1or x.rank == 1"), GRAPH))
    assert not recwarn.list


def test_what_is_not_evaluated_is_not_refused() -> None:
    """A misused function in a branch that is not taken does no harm."""
    assert taken(selected(rule(PATTERN, "x.rank == 1 or value_or(3, 4) == 3"), GRAPH))
    assert not taken(selected(rule(PATTERN, "x.rank == 2 or value_or(3, 4) == 3"), GRAPH))


def test_numpy_may_import_what_it_needs() -> None:
    """Its C code does so in the frame of the condition."""
    assert taken(selected(rule(PATTERN, 'w.value.dtype.name == "float32"'), GRAPH))


def test_large_constants_have_a_type_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be asked for, though they are not read as a whole."""
    monkeypatch.setattr("dplcli.language.blocks.CHUNK", 1)
    assert taken(selected(rule(PATTERN, 'w.value.dtype.name == "float32"'), GRAPH))
