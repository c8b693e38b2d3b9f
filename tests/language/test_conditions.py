"""``where``: what an expression may ask, and what happens when the answer is unknown."""

import pytest

from dplcli.errors import PatternSyntaxError
from tests.support.helpers import describe_refusals, rule, selected, taken

CONV = """g (float[1,3,8,8] a, float[4,1,1] b) => (o)
  <float[4,3,1,1] k = {1,1,1,1,1,1,1,1,1,1,1,1}> {
  c = Conv <strides = [2, 2]> (a, k) o = Add (c, b) }"""
PATTERN = "conv = Conv(x, const(w))\nAdd(conv, b)"


def holds(text: str, condition: str, pattern: str) -> bool:
    """Tell whether a rule with *condition* is taken; if not, check that there is a reason."""
    selection = selected(rule(pattern, condition), text)
    if taken(selection):
        return True
    reasons = describe_refusals(selection)
    assert reasons
    assert all(": where: " in reason and condition in reason for reason in reasons)
    return False


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("x.rank == 4", True),
        ("x.rank == 3", False),
        ('x.dtype == "float32"', True),
        ('x.dtype == "float16"', False),
        ("x.shape == (1, 3, 8, 8)", True),
        ("x.shape[1] == 3", True),
        ("x.shape[-1] == x.shape[-2]", True),
        ("x.shape == [1, 2] or x.shape == [i for i in x.shape]", True),
        ("x.shape != list(x.shape)", False),
        ("len([0] + x.shape) == x.rank + 1", True),
        ("x.shape[7] == 3", False),
        ('x.name == "a"', True),
        ("x.name == w.name", False),
        ("x.name != w.name", True),
        ("x.name == x.name", True),
        ("x.name != x.name", False),
        ("x.name == x.name != w.name", True),
        ("x.name < w.name", True),
        ("1 < x.rank < 3", False),
        ("w.is_const and not x.is_const", True),
        ("x.uses == 1 and conv.uses == 1", True),
        ("conv.attrs.strides == (2, 2)", True),
        ("conv.attrs.group == 1", True),
        ("conv.attrs.dilations[0] == 1", True),
        ("conv.attrs.kernel_shape == (1, 1)", True),
        ("conv.attrs.nonsense == 1", False),
        ("x.attrs.group == 1", False),
        ("len(x.shape) == 4", True),
        ("min(x.shape) == 1 and max(x.shape) == 8", True),
        ("abs(x.rank - 6) == 2", True),
        ("prod(x.shape) == 192", True),
        ("all([x.rank == 4, w.rank == 4])", True),
        ("any([x.rank == 5, w.rank == 5])", False),
        ("is_close(w, 1)", True),
        ("is_close(w, 2)", False),
        ("is_close(w, 1.0005)", True),
        ("is_close(x, 1)", False),
        ("x.value == 1", False),
        ("same_shape(x, x)", True),
        ("same_shape(x, w)", False),
        ("broadcasts_to(b, conv)", True),
        ("broadcasts_to(w, b)", False),
        ("per_channel(b, conv)", True),
        ("per_channel(w, conv)", False),
        ("1 < x.rank <= 4", True),
        ("x.rank in (3, 4)", True),
        ("x.rank == 4 if w.is_const else False", True),
    ],
)
def test_facts_and_helpers(condition: str, *, expected: bool) -> None:
    """Each attribute and helper of the language answers as its name says."""
    assert holds(CONV, condition, PATTERN) is expected


@pytest.mark.parametrize(
    ("bias", "channels", "fits"),
    [
        ("[4,1,1]", 4, True),
        ("[1,4,1,1]", 4, True),
        ("[4]", 4, False),
        ("[4,4,1]", 4, False),
        ("[1,1,1]", 4, False),
        ("", 4, False),
        ("", 1, True),
        ("[1]", 1, True),
        ("[1,1,4,1,1]", 4, False),
        ("[?,1,1]", 4, False),
        ("[C,1,1]", 4, False),
    ],
)
def test_per_channel(bias: str, channels: int, *, fits: bool) -> None:
    """A bias is per channel if it has one number for each, along axis 1 only."""
    data = ",".join(["1"] * channels)
    text = f"""g (float[1,1,8,8] a, float{bias} b) => (o)
        <float[{channels},1,1,1] k = {{{data}}}> {{
        c = Conv (a, k) o = Add (c, b) }}"""
    assert holds(text, "per_channel(b, conv)", PATTERN) is fits


UNKNOWN = "g (float[1,?,4,4] a, float[?,1,1] b, float[] u, float[N,2] n, float[N,2] m) => (o)"


@pytest.mark.parametrize(
    ("condition", "body"),
    [
        ("per_channel(y, x)", "o = Sub (a, b)"),
        ("same_shape(x, x)", "o = Sub (a, b)"),
        ("broadcasts_to(y, x)", "o = Sub (a, b)"),
        ("broadcasts_to(x, x)", "o = Sub (a, b)"),
        ("same_shape(x, y)", "o = Sub (u, b)"),
        ("x.rank == 4", "o = Sub (u, b)"),
        ("x.shape[0] == 1", "o = Sub (u, b)"),
        ("x.shape[1] == 3", "o = Sub (a, b)"),
        ("x.shape[1] > 0", "o = Sub (a, b)"),
        ("x.shape[1] == x.shape[1]", "o = Sub (a, b)"),
        ("x.shape[1] == y.shape[0]", "o = Sub (a, b)"),
        ("prod(x.shape) > 0", "o = Sub (n, m)"),
        ("x.shape[0] != 4", "o = Sub (n, m)"),
        ("not x.shape[0] == 4", "o = Sub (n, m)"),
        ("x.shape != (4, 2)", "o = Sub (n, m)"),
        ("4 not in x.shape", "o = Sub (n, m)"),
        ("not (x.rank == 3 or x.shape[0] in (3, 4))", "o = Sub (n, m)"),
        ("not any([d == 4 for d in x.shape])", "o = Sub (n, m)"),
        ("x.shape[0] < 4", "o = Sub (n, m)"),
    ],
)
def test_unknown_facts_are_a_no(condition: str, body: str) -> None:
    """Two unknown dimensions are not equal, an unknown rank is no rank: unknown is no."""
    assert holds(f"{UNKNOWN} {{ {body} }}", condition, "Sub(x, y)") is False


def test_symbols_are_known_to_equal_themselves() -> None:
    """The same symbol is the same dimension, another symbol is not known to be."""
    text = f"{UNKNOWN} {{ o = Sub (n, m) }}"
    assert holds(text, "same_shape(x, y)", "Sub(x, y)")
    assert holds(text, "x.shape[0] == y.shape[0]", "Sub(x, y)")
    assert holds(text, "x.shape[1] != 3 and x.shape != (4, 3, 2)", "Sub(x, y)")
    assert holds(text, "not (x.shape[1] == 3 and x.shape[0] == 4)", "Sub(x, y)")


@pytest.mark.parametrize("name", ["min", "max", "len", "all", "prod", "same_shape"])
def test_a_name_may_be_that_of_a_function(name: str) -> None:
    """Clip's natural names min and max may be asked about like any other."""
    text = "g (float[4] a, float lo) => (o) { o = Clip (a, lo) }"
    assert holds(text, f"{name}.rank == 0", f"Clip(x, {name})")
    assert not holds(text, f"{name}.rank == 1", f"Clip(x, {name})")


def test_condition_over_an_absent_part_is_no_obstacle() -> None:
    """A name whose alternative took no part makes its condition hold."""
    text = "g (float[4] a) => (o) { r = Relu (a) o = Neg (r) }"
    assert holds(text, "s.rank == 9", "Neg(Relu(x) | Sigmoid(s))")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("y.rank == 4", "'y'"),
        ("foo(x)", "'foo'"),
        ("open('/etc/passwd')", "'open'"),
        ("eval('1')", "'eval'"),
        ("__import__('os')", "'__import__'"),
        ("lenn(x.shape) == 1", "'lenn'"),
    ],
)
def test_unbound_names_are_an_error(condition: str, message: str) -> None:
    """A name or function that does not exist is refused when the rule is made."""
    with pytest.raises(PatternSyntaxError, match=message):
        rule("Relu(x)", condition)


def test_unbound_names_get_a_guess() -> None:
    """The error suggests the name that was meant."""
    with pytest.raises(PatternSyntaxError) as caught:
        rule("Relu(weight)", "wieght.rank == 1")
    assert caught.value.hint == "did you mean 'weight'?"
    with pytest.raises(PatternSyntaxError) as caught:
        rule("Relu(x)", "lenn(x.shape) == 1")
    assert caught.value.hint == "did you mean 'len'?"


@pytest.mark.parametrize(
    ("condition", "message", "hint"),
    [
        ("is_close(a, 0.5)", "gives a, which is an attribute, to is_close", "abs(a - 0.5) < 1e-6"),
        ("is_close(y.attrs.alpha, 0.5)", "gives y.attrs.alpha", "abs(y.attrs.alpha - 0.5) < 1e-6"),
        ("is_close(x.value, 0.5)", "gives x.value to is_close", "write is_close(x, …)"),
        ("dims(x.shape) == dims(y)", "gives x.shape to dims", "write dims(x)"),
        ("is_static(x.shape[0])", "gives x.shape[0] to is_static", "write is_static(x)"),
        ("same_shape(x, 3)", "gives 3 to same_shape", None),
        ("y.alpha == 1", "asks for 'alpha'", "an attribute of its node is y.attrs.alpha"),
    ],
)
def test_what_is_no_value_is_an_error(condition: str, message: str, hint: str | None) -> None:
    """A function of a value takes no attribute and no fact; this is said when the rule is made."""
    with pytest.raises(PatternSyntaxError) as caught:
        rule("y = LeakyRelu(x, alpha=a)\ny", condition)
    assert message in caught.value.message
    assert (hint or "") in (caught.value.hint or "")
    assert bool(caught.value.hint) is bool(hint)


@pytest.mark.parametrize(
    "condition",
    ["is_close(x, 0.5)", "all(is_close(v, 0.5) for v in rest)", "is_close(rest[0], 1)", "a == 1"],
)
def test_what_is_a_value_is_none(condition: str) -> None:
    """A near miss for each."""
    rule("Concat(LeakyRelu(x, alpha=a), *rest, axis=0)", condition)


@pytest.mark.parametrize("text", ["", "   ", "x.rank ==", "x.rank; 1", "x = 3", "import os", "(x"])
def test_what_is_no_expression_is_an_error(text: str) -> None:
    """A condition is exactly one expression."""
    with pytest.raises(PatternSyntaxError):
        rule("Relu(x)", text)


def test_all_conditions_must_hold() -> None:
    """Several conditions are joined by and; the first that fails is the reason."""
    text = "g (float[4] a) => (o) { o = Relu (a) }"
    assert taken(selected(rule("Relu(x)", "x.rank == 1", "x.shape[0] == 4"), text)) == ["r: o"]
    refused = selected(rule("Relu(x)", "x.rank == 1", "x.rank == 2"), text)
    assert describe_refusals(refused) == ["r at o: where: 'x.rank == 2' does not hold"]
