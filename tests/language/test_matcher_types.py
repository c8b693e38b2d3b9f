"""has_dtype, has_rank and has_shape: provable facts only, dimension variables shared."""

import pytest

from dplcli.language import wildcard
from tests.support.helpers import check_match


def graph(declared: str) -> str:
    """Return a graph of one Relu on an input declared so."""
    return f"g ({declared} a) => (o) {{ o = Relu (a) }}"


@pytest.mark.parametrize(
    ("declared", "pattern", "fits"),
    [
        ("float[2]", 'x.has_dtype("float32")', True),
        ("float[2]", 'x.has_dtype("float16", "float32")', True),
        ("float[2]", 'x.has_dtype("float16")', False),
        ("float", 'x.has_dtype("float32")', True),
        ("float[2,3]", "x.has_rank(2)", True),
        ("float[2,3]", "x.has_rank(1, 2)", True),
        ("float[2,3]", "x.has_rank(3)", False),
        ("float[]", "x.has_rank(0)", False),
        ("float", "x.has_rank(0)", True),
        ("float[2,3]", "x.has_shape(2, 3)", True),
        ("float[2,3]", "x.has_shape(2, _)", True),
        ("float[2,3]", "x.has_shape(2)", False),
        ("float[2,3]", "x.has_shape(2, 4)", False),
        ("float[2,3]", "x.has_shape(n, n)", False),
        ("float[3,3]", "x.has_shape(n, n)", True),
        ("float[2,3]", "x.has_shape(n, m)", True),
        ("float[N,N]", "x.has_shape(n, n)", True),
        ("float[N,M]", "x.has_shape(n, n)", False),
        ("float[N,4]", "x.has_shape(4, 4)", False),
        ("float[?,4]", "x.has_shape(n, 4)", False),
        ("float[?,?]", "x.has_shape(n, n)", False),
        ("float[?,4]", "x.has_shape(_, 4)", True),
        ("float[0,4]", "x.has_shape(0, n)", True),
        ("float[0,0]", "x.has_shape(n, n)", True),
        ("float", "x.has_shape()", True),
        ("float[]", "x.has_shape()", False),
        ("float[]", "x.has_shape(_)", False),
    ],
)
def test_declared_types(declared: str, pattern: str, *, fits: bool) -> None:
    """R7: a fact that the model does not state is a no."""
    check_match(f"Relu({pattern})", graph(declared), {"o": "x=a"} if fits else {})


def test_types_are_inferred_where_not_declared() -> None:
    """What shape inference proves counts as known."""
    text = "g (float[2,3] a) => (o) { t = Transpose (a) o = Relu (t) }"
    check_match("Relu(x.has_shape(3, 2))", text, {"o": "x=t"})
    check_match('Relu(Transpose(x)).has_dtype("float32")', text, {"o": "x=a"})


def test_a_dimension_variable_is_shared_over_the_whole_pattern() -> None:
    """One letter is one dimension wherever it stands, also after backtracking."""
    head = "g (float[2,3] a, float[3,4] b, float[2,3] c) => (o)"
    pattern = "MatMul(x.has_shape(_, k), y.has_shape(k, _))"
    check_match(pattern, f"{head} {{ o = MatMul (a, b) }}", {"o": "x=a y=b"})
    check_match(pattern, f"{head} {{ o = MatMul (a, c) }}", {})
    swapped = "Add(x.has_shape(n, 1), y.has_shape(1, n))"
    text = "g (float[1,5] a, float[5,1] b) => (o) { o = Add (a, b) }"
    check_match(swapped, text, {"o": "x=b y=a"})


def test_a_dimension_and_a_value_may_share_a_letter() -> None:
    """The letter n in a shape has nothing to do with a value called n."""
    check_match("Relu(n.has_shape(n))", graph("float[3]"), {"o": "n=a"})


def test_an_omitted_input_has_no_type() -> None:
    """A type is demanded of a present value."""
    text = "g (float[2] a, float hi) => (o) { o = Clip (a, , hi) }"
    check_match('Clip(x, l.has_dtype("float32"), h)', text, {})
    check_match("Clip(x, None.has_rank(0), h)", text, {})


def test_methods_in_python() -> None:
    """The methods mean the same in Python, None being any dimension."""
    text = "g (float[2,3] a) => (o) { o = Relu (a) }"
    x = wildcard("x")
    pattern = -x.has_rank(2).has_dtype("float32").has_shape(2, None)
    check_match(pattern, text.replace("Relu", "Neg"), {"o": "x=a"})
    check_match(-x.has_shape(None, 2), text.replace("Relu", "Neg"), {})
