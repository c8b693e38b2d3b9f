"""The text spelling: what it accepts, and what it refuses, where and with which advice."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.errors import PatternSyntaxError
from dplcli.language import parse_pattern
from dplcli.language.pattern import DFPattern
from dplcli.language.text import SPELLINGS
from tests.support.helpers import SCHEMAS, check_match, pattern_of
from tests.support.strategies import within

AB = "g (float[2] a, float[2] b) => (o)"


def failure(text: str) -> PatternSyntaxError:
    """Return the error that parsing *text* raises."""
    with pytest.raises(PatternSyntaxError) as caught:
        parse_pattern(text, SCHEMAS)
    return caught.value


@pytest.mark.parametrize(
    ("pattern", "op"),
    [
        ("x + y", "Add"),
        ("x - y", "Sub"),
        ("x * y", "Mul"),
        ("x / y", "Div"),
        ("x ** y", "Pow"),
        ("x @ y", "MatMul"),
    ],
)
def test_python_operators(pattern: str, op: str) -> None:
    """The arithmetic signs are ONNX's operators."""
    check_match(pattern, f"{AB} {{ o = {op} (a, b) }}", {"o": "x=a y=b"})


def test_minus_is_neg_or_a_negative_number() -> None:
    """A minus before a pattern is Neg, before a number a negative constant."""
    check_match("-x", f"{AB} {{ o = Neg (a) }}", {"o": "x=a"})
    text = "g (float[2] a) => (o) <float w = {-2}> { o = Sub (a, w) }"
    check_match("x - -2", text, {"o": "x=a"})


def test_operators_bind_as_in_python() -> None:
    """Precedence and brackets are Python's."""
    text = f"{AB} {{ m = Mul (a, b) o = Sub (m, a) }}"
    check_match("x * y - x", text, {"o": "x=a y=b"})
    check_match("x * (y - x)", text, {})


def test_comments_blank_lines_and_unused_names() -> None:
    """Comments and blank lines mean nothing."""
    pattern = "# first\n\nr = Relu(x)  # the inner one\n\nSigmoid(r)\n# last"
    check_match(pattern, f"{AB} {{ t = Relu (a) o = Sigmoid (t) }}", {"o": "r=t x=a"})


def test_foreign_domains() -> None:
    """A dotted name is an operator of another domain; ai.onnx is the standard one."""
    check_match("com.microsoft.Gelu(x)", f"{AB} {{ o = com.microsoft.Gelu (a) }}", {"o": "x=a"})
    check_match("com.microsoft.Gelu(x)", f"{AB} {{ o = Gelu (a) }}", {})
    check_match("ai.onnx.Relu(x)", f"{AB} {{ o = Relu (a) }}", {"o": "x=a"})


STEPS = "a step of several nodes: repeat(Relu(Conv(_, w)), x), or repeat(Add(Relu(h), h), h=x)"


@pytest.mark.parametrize(
    ("text", "line", "column", "hint"),
    [
        ("Rleu(x)", 1, 0, "did you mean 'Relu'?"),
        ("Add(x, Sigmod(y))", 1, 7, "did you mean 'Sigmoid'?"),
        ("c = Conv(x, w)\nRelu(conv(c))", 2, 5, "did you mean 'Conv'?"),
        ("optional(Rleu)(x)", 1, 9, "did you mean 'Relu'?"),
        ("s = Relu(x)\nrepeat(s, y)", 2, 7, STEPS),
        ("repeat(Cast(x), y)", 1, 7, STEPS),
        ("repeat(Add(_, Relu(_)), y)", 1, 7, STEPS),
        ("repeat(Add(h, Relu(h)), g=y)", 1, 7, STEPS),
        ("Add(x, FusedMatMul(y, z))", 1, 7, "write com.microsoft.FusedMatMul(…)"),
        ("LinearRegressor(x)", 1, 0, "write ai.onnx.ml.LinearRegressor(…)"),
        ('Relu(x.has_dtype("float"))', 1, 5, "did you mean 'float32'?"),
        ('Cast(x, to="double")', 1, 0, "did you mean 'float64'?"),
        ('x.has_dtype("flaot32")', 1, 0, "did you mean 'float32'?"),
        ("Add(x, Relu)", 1, 7, "write Relu(…)"),
        ("Add(é, Rleu(x))", 1, 7, "did you mean 'Relu'?"),
    ],
)
def test_error_points_and_suggests(text: str, line: int, column: int, hint: str) -> None:
    """An error knows its line, its column in characters, and what was meant."""
    error = failure(text)
    assert (error.line, error.column, error.hint) == (line, column, hint)


REFUSED = [
    "",
    "# nothing",
    "x = Relu(a)",
    "Relu(x",
    "Relu(x))",
    "x y",
    "`x`",
    "True",
    '"text"',
    'b"bytes"',
    "1j",
    "[a, b]",
    "{a: b}",
    "a < b",
    "a and b",
    "not a",
    "a if b else c",
    "lambda x: x",
    "(y := x)",
    "Relu(*[x])",
    "Relu(x for x in y)",
    "Sum(..., x)",
    "...",
    "f(x)(y)",
    "Relu()",
    "Relu(x, y)",
    "Relu(x)[-1]",
    "Relu(x)[True]",
    'Relu(x)["a"]',
    "Relu(x)[0:1]",
    "x[0]",
    "Relu",
    "Relu = x\nRelu",
    "_ = Relu(x)\n_",
    "a = b = Relu(x)\na",
    "a += 1\na",
    "a: int = 1\na",
    "x.y = 1\nx",
    "r = Relu(x)\nr = Relu(r)\nr",
    "Add(r, x)\nr = Relu(x)\nr",
    "x = Relu(x)\nx",
    "r = Relu(x)\nr(x)",
    "const(1)",
    "const(x, y)",
    "const(name=x)",
    "input(3)",
    'input("a", "b")',
    "input(a)",
    "optional(Relu)()",
    "optional(Relu, Add)(x)",
    "optional(Relu)",
    "x.has_rank(1.5)",
    "x.has_rank(True)",
    "x.has_rank(r)",
    "x.has_rank(rank=4)",
    'x.has_dtype("float32", strict=1)',
    "x.has_dtype({[]: 1})",
    "x.has_dtype(float32)",
    'x.has_shape("n")',
    "x.has_shape(-1)",
    "x.has_shape(1, n=2)",
    "x.has_shape(True)",
    "Conv(x, w, group={1: 2})",
    "Conv(x, w, group={[]: 2})",
    "Conv(x, w, group=None)",
    "Conv(x, w, group=g[0])",
    'Conv(x, w, auto_pad=b"VALID")',
    "Conv(x, w, pads=[[1]])",
    "Conv(x, w, group=1 + 1)",
    'Conv(x, w, **{"a": 1})',
    "import os",
    "import os\nRelu(x)",
    "for x in y: pass",
    "def f(): pass\nRelu(x)",
    "del x\nRelu(x)",
    "global x\nRelu(x)",
    "assert x\nRelu(x)",
    "while 1: pass",
    "Add(\0)",
    "Relu(\ud800)",
]


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_pattern_is_refused(text: str) -> None:
    """Whatever is not in the language is an error with a place inside the text."""
    error = failure(text)
    lines = text.split("\n")
    assert 1 <= error.line <= len(lines)
    assert 0 <= error.column <= len(lines[error.line - 1])
    assert error.message


@pytest.mark.parametrize("method", ["has_rnk", "has_dtpye", "hasshape", "optional", "has_attr"])
def test_misspelt_method_is_no_foreign_operator(method: str) -> None:
    """A method that does not exist is an error, not an operator of the domain x."""
    assert failure(f"x.{method}(4)").message
    assert failure(f"r = Relu(x)\nr.{method}(4)").message


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch {}')",
        "Relu(__import__('os').system('touch {}'))",
        "open('{}', 'w')",
        "(lambda: open('{}', 'w'))()",
        "[open('{}', 'w') for _ in [1]]",
        "f\"{{open('{}', 'w')}}\"",
        "Conv(x, w, group=open('{}', 'w'))",
        "x = open('{}', 'w')\nx",
        "Conv(x, w, **open('{}', 'w'))",
        "x.has_rank(open('{}', 'w'))",
    ],
)
def test_nothing_is_executed(text: str, tmp_path: Path) -> None:
    """A pattern is data: code in it is an error and never runs."""
    mark = tmp_path / "executed"
    failure(text.format(mark))
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "x" + ")" * 5000,
        "-" * 20000 + "x",
        "Relu(" * 5000 + "x" + ")" * 5000,
        " + ".join(["x"] * 20000),
        " | ".join(["Relu(x)"] * 20000),
        "x" + "[0]" * 20000,
        "x" + ".has_rank(1)" * 20000,
        "Conv(x, w, pads=" + "[" * 5000 + "]" * 5000 + ")",
        "(" + " | ".join(["Relu"] * 20000) + ")(x)",
        "x" + ".y" * 20000 + "(x)",
    ],
    ids=["brackets", "minus", "calls", "sum", "or", "index", "method", "list", "ops", "dots"],
)
def test_deep_nesting_is_an_error_not_a_crash(text: str) -> None:
    """A text nested beyond reason is refused, quickly."""
    with within(5):
        failure(text)


WORDS = ["Relu", "Add", "Conv", "x", "y", "_", "(", ")", ",", "...", "None", "2.0"]
WORDS += ["|", "&", "~", "+", "-", "*", "@", "**", "=", "[", "]", "0", ".", "has_rank", "\n"]
WORDS += ["const", "input", "optional", '"a"', "group", "lambda", ":", "if", "else", "{", "}"]


@given(
    st.lists(
        st.sampled_from(WORDS),
        max_size=14,
    )
)
def test_any_text_parses_or_is_refused(words: list[str]) -> None:
    """No sequence of the language's own words does anything but parse or raise its error."""
    with contextlib.suppress(PatternSyntaxError):
        parse_pattern(" ".join(words), SCHEMAS)


def test_indented_helper_text() -> None:
    """The tests' own helper removes common indentation."""
    check_match(
        pattern_of("  r = Relu(x)\n  -r"), f"{AB} {{ t = Relu (a) o = Neg (t) }}", {"o": "r=t x=a"}
    )


def test_every_kind_of_pattern_has_one_spelling() -> None:
    """A kind that nobody wrote down could be made in Python and not be shown."""
    kinds = [spelling.kind for spelling in SPELLINGS]
    pending, there = [DFPattern], set()
    while pending:
        kind = pending.pop()
        below = kind.__subclasses__()
        pending += below
        there |= set() if below else {kind}

    assert len(kinds) == len(set(kinds))
    assert set(kinds) == there


def test_a_word_or_method_is_read_as_one_kind_of_pattern() -> None:
    """A second row of the same word would hide the first."""
    for table in ("words", "methods"):
        read = [word for spelling in SPELLINGS for word in getattr(spelling, table)]
        assert len(read) == len(set(read))
