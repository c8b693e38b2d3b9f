"""What leaves match: constants, numbers, inputs, omitted inputs, and values behind Identity."""

import pytest

from dplcli.language import absent, is_const, is_op, wildcard
from tests.support.helpers import check_match, find_solutions, model_from_text, selected, taken

AB = "g (float[2] a, float[2] b) => (float[2] o)"


def number_graph(dtype: str, data: str, shape: str = "[1]") -> str:
    """Return a graph that casts one stored constant."""
    return f"g () => (float{shape} o) <{dtype}{shape} w = {{{data}}}> {{ o = Cast <to=1> (w) }}"


@pytest.mark.parametrize(
    ("number", "dtype", "data", "fits"),
    [
        ("2.0", "float", "2", True),
        ("2", "float", "2", True),
        ("-2", "float", "-2", True),
        ("2.0", "int64", "2", True),
        ("2.5", "int64", "2", False),
        ("0.1", "float", "0.1", True),
        ("0.1", "double", "0.1", True),
        ("0.1", "float", "0.10001", False),
        ("1", "bool", "1", True),
        ("0", "bool", "0", True),
        ("0", "bool", "1", False),
    ],
)
def test_number_equals_a_constant(number: str, dtype: str, data: str, *, fits: bool) -> None:
    """A number equals a constant in the constant's own element type."""
    check_match(f"Cast({number})", number_graph(dtype, data), {"o": ""} if fits else {})


@pytest.mark.parametrize(
    ("number", "dtype", "data"),
    [("-1", "uint8", "255"), ("256", "uint8", "0"), ("2", "bool", "1"), ("-1", "bool", "1")],
)
def test_number_out_of_range_equals_nothing(number: str, dtype: str, data: str) -> None:
    """A number that the element type cannot hold does not wrap round to one it can."""
    check_match(f"Cast({number})", number_graph(dtype, data), {})


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 30, "-1e999", "1" + "0" * 400])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool", "float"])
def test_huge_number_is_no_crash(number: str, dtype: str) -> None:
    """A number beyond every element type simply does not match."""
    check_match(f"Cast({number})", number_graph(dtype, "1"), {})


def test_half_precision_is_rounded_first() -> None:
    """0.1 equals the float16 nearest to it."""
    text = """g () => (float[1] o) {
        c = Constant <value = float[1] {0.1}> () h = Cast <to=10> (c) o = Cast <to=1> (h) }"""
    check_match("Cast(Cast(0.1))", text, {"o": ""})
    half = "g () => (float[1] o) <float16[1] w = {11878}> { o = Cast <to=1> (w) }"
    check_match("Cast(0.1)", half, {"o": ""})


@pytest.mark.parametrize(("shape", "fits"), [("", True), ("[1]", True), ("[1,1]", True)])
def test_number_is_one_element_of_any_rank(shape: str, *, fits: bool) -> None:
    """A scalar, [1] and [1, 1] are one element each."""
    check_match("Cast(2)", number_graph("float", "2", shape), {"o": ""} if fits else {})


def test_number_is_not_several_elements() -> None:
    """Two equal elements are not one number."""
    check_match("Cast(2)", number_graph("float", "2, 2", "[2]"), {})


def test_strings_equal_no_number() -> None:
    """A string constant is no number, and no crash."""
    text = 'g () => (string[1] o) <string[1] w = {"2"}> { o = Identity (w) p = Reshape (w, o) }'
    check_match("Reshape(2, _)", text, {})


@pytest.mark.parametrize(
    ("declaration", "fits"),
    [
        ("g (float[2] a) => (o) <float[2] w = {1, 2}> {", True),
        ("g (float[2] a, float[2] w) => (o) <float[2] w = {1, 2}> {", False),
        ("g (float[2] a, float[2] w) => (o) {", False),
        ("g (float[2] a) => (o) { w = Constant <value = float[2] {1, 2}> ()", True),
        ("g (float[2] a) => (o) { w = Relu (a)", False),
    ],
)
def test_what_is_a_constant(declaration: str, *, fits: bool) -> None:
    """A constant is data that nobody can override: no input with a default, no computed value."""
    text = f"{declaration} o = Sub (a, w) }}"
    check_match("Sub(x, const(c))", text, {"o": "c=w x=a"} if fits else {})


def test_listed_initializer_below_ir_4_is_a_constant() -> None:
    """Before IR 4 initializers had to be listed as inputs, which makes them no less constant."""
    text = """<ir_version: 3, opset_import: ["" : 7]>
        g (float[2] a, float[2] w) => (o) <float[2] w = {1, 2}> { o = Sub (a, w) }"""
    check_match("Sub(x, const(c))", text, {"o": "c=w x=a"})


@pytest.mark.parametrize("chain", ["i = Identity (w)", "h = Identity (w) i = Identity (h)"])
def test_constant_behind_identity(chain: str) -> None:
    """A constant is recognised through Identity, and bound itself."""
    text = f"g (float[2] a) => (o) <float[2] w = {{1, 2}}> {{ {chain} o = Sub (a, i) }}"
    check_match("Sub(x, const(c))", text, {"o": "c=w x=a"})


def test_number_behind_identity() -> None:
    """A number is recognised through Identity."""
    text = "g (float[2] a) => (o) <float w = {2}> { i = Identity (w) o = Sub (a, i) }"
    check_match("Sub(x, 2)", text, {"o": "x=a"})


def test_inputs() -> None:
    """input() is an input without data, input("a") the one of that name."""
    text = "g (float[2] a, float[2] w) => (o) <float[2] w = {1, 2}> { r = Relu (a) o = Sub (r, w) }"
    check_match("Relu(input())", text, {"r": ""})
    check_match('Relu(input("a"))', text, {"r": "a=a"})
    check_match('Relu(input("b"))', text, {})
    check_match("Sub(_, input())", text, {})
    check_match("Sub(input(), _)", text, {})


CLIP = "g (float[2] a, float lo, float hi) => (o)"


@pytest.mark.parametrize(
    ("call", "pattern", "bound"),
    [
        ("Clip (a, lo, hi)", "Clip(x, l, h)", {"o": "h=hi l=lo x=a"}),
        ("Clip (a, , hi)", "Clip(x, l, h)", {}),
        ("Clip (a, , hi)", "Clip(x, None, h)", {"o": "h=hi x=a"}),
        ("Clip (a, lo)", "Clip(x, l, None)", {"o": "l=lo x=a"}),
        ("Clip (a, lo)", "Clip(x, l)", {"o": "l=lo x=a"}),
        ("Clip (a, lo, hi)", "Clip(x, l)", {}),
        ("Clip (a)", "Clip(x)", {"o": "x=a"}),
        ("Clip (a)", "Clip(x, None, None)", {"o": "x=a"}),
        ("Clip (a)", "Clip(x, l, ...)", {}),
        ("Clip (a)", "Clip(x, ...)", {"o": "x=a"}),
        ("Clip (a, , hi)", "Clip(x, ...)", {"o": "x=a"}),
        ("Clip (a, lo, hi)", "Clip(...)", {"o": ""}),
        ("Clip (a, , hi)", "Clip(x, l | None, h)", {"o": "h=hi x=a"}),
        ("Clip (a, , hi)", "Clip(x, _, h)", {}),
    ],
)
def test_omitted_inputs(call: str, pattern: str, bound: dict[str, str]) -> None:
    """A wildcard is a present value, None an omitted one, ... any further inputs."""
    check_match(pattern, f"{CLIP} {{ o = {call} }}", bound)


def test_trailing_empty_inputs_are_trimmed() -> None:
    """Inputs omitted at the end by empty names are the same as none."""
    model = model_from_text("g (float[2] a) => (o) { o = Clip (a, , ) }")
    assert [str(found) for found in find_solutions("Clip(x)", model)] == ["x=a"]


def test_absent_in_python() -> None:
    """absent() and None mean the same as an argument."""
    hi = wildcard("h")
    for nothing in (absent(), None):
        pattern = is_op("Clip")(wildcard("x"), nothing, hi)
        check_match(pattern, f"{CLIP} {{ o = Clip (a, , hi) }}", {"o": "h=hi x=a"})


def test_number_in_python() -> None:
    """A number as an argument is a constant of that number."""
    text = "g (float[2] a) => (o) <float w = {2}> { o = Sub (a, w) }"
    for two in (2, 2.0, is_const(value=2.0)):
        check_match(is_op("Sub")(wildcard("x"), two), text, {"o": "x=a"})


SPLIT = "g (float[2] a) => (o) { p, q = Split (a) o = Sub (q, p) }"


@pytest.mark.parametrize(
    ("pattern", "bound"),
    [
        ("s = Split(x)\nSub(s[1], s[0])", {"o": "s=p x=a"}),
        ("s = Split(x)\nSub(s[1], s)", {"o": "s=p x=a"}),
        ("s = Split(x)\nSub(s[0], s[1])", {}),
        ("s = Split(x)\nSub(s, s)", {}),
        ("Sub(Split(x)[1], Split(y)[0])", {}),
        ("Sub(y, Split(x))", {"o": "x=a y=q"}),
    ],
)
def test_outputs_of_one_node(pattern: str, bound: dict[str, str]) -> None:
    """p[i] is output i of the node p; a bare node is its output 0."""
    check_match(pattern, SPLIT, bound)


def test_root_may_be_a_later_output() -> None:
    """A pattern for output 1 matches the node that makes it."""
    check_match("Split(x)[1]", SPLIT, {"p": "x=a"})
    check_match("Split(x)[2]", SPLIT, {})


@pytest.mark.parametrize(
    "chain", ["i = Identity (r)", "h = Identity (r) i = Identity (h)"], ids=["one", "two"]
)
def test_identity_is_looked_through(chain: str) -> None:
    """Nodes match through Identity nodes, which then belong to the match."""
    text = f"{AB} {{ r = Relu (a) {chain} o = Sigmoid (i) }}"
    check_match("Sigmoid(Relu(x))", text, {"o": "x=a"})
    nodes = ["r", *(part.split()[0] for part in chain.split(") ")), "o"]
    assert taken(selected("Sigmoid(Relu(x))", text)) == [f"r: {', '.join(nodes)}"]


def test_leaf_behind_identity_is_the_value_itself() -> None:
    """A leaf binds what stands before the Identity, which stays outside the match."""
    text = f"{AB} {{ i = Identity (a) r = Relu (i) o = Sub (r, a) }}"
    check_match("Sub(Relu(x), x)", text, {"o": "x=a"})
    assert taken(selected("Sub(Relu(x), x)", text)) == ["r: r, o"]


@pytest.mark.parametrize(
    "pattern", ["Relu(x)", "x | Relu(x)", "_ & Relu(x)", "Relu(x).has_rank(1)"]
)
def test_root_is_never_an_identity_looked_through(pattern: str) -> None:
    """An Identity after the root is no root, whatever the pattern's outermost part is."""
    text = f"{AB} {{ r = Relu (a) o = Identity (r) }}"
    assert taken(selected(pattern, text)) == ["r: r"]


@pytest.mark.parametrize(
    ("pattern", "body", "bound"),
    [
        ("Identity(x)", "o = Identity (a)", {"o": "x=a"}),
        ("Identity(Relu(x))", "r = Relu (a) o = Identity (r)", {"o": "x=a"}),
        ("Relu(Identity(x))", "i = Identity (a) o = Relu (i)", {"o": "x=a"}),
        ("Relu(Identity(x))", "o = Relu (a)", {}),
        ("Identity(Identity(x))", "o = Identity (a)", {}),
    ],
)
def test_pattern_that_names_identity(pattern: str, body: str, bound: dict[str, str]) -> None:
    """A pattern may name Identity like any operator, and then needs one."""
    check_match(pattern, f"{AB} {{ {body} }}", bound)


def test_identity_of_another_domain_is_not_looked_through() -> None:
    """Only the standard Identity is known to pass its input on."""
    text = f"{AB} {{ r = Relu (a) i = com.microsoft.Identity (r) o = Sigmoid (i) }}"
    check_match("Sigmoid(Relu(x))", text, {})


IF = """g (bool c, float[2] a) => (o) {
  r = Relu (a)
  o = If (c) <then_branch = t () => (p) { p = Sigmoid (r) },
              else_branch = e () => (q) { s = Relu (a) q = Sigmoid (s) }>
}"""


def test_a_pattern_never_spans_two_scopes() -> None:
    """A value captured from outside is a leaf, though the same nodes in one body match."""
    check_match("Sigmoid(Relu(x))", IF, {"q": "x=a"})
    check_match("Sigmoid(x)", IF, {"p": "x=r", "q": "x=s"})


def test_outer_identity_is_looked_through_to_a_leaf_only() -> None:
    """An Identity outside the body leads to an outer value, never to an outer node."""
    text = IF.replace("p = Sigmoid (r)", "p = Sigmoid (i)").replace(
        "r = Relu (a)\n", "r = Relu (a) i = Identity (r)\n"
    )
    check_match("Sigmoid(Relu(x))", text, {"q": "x=a"})


def test_captured_constant_is_a_constant() -> None:
    """A body sees the constants round it."""
    text = """g (bool c, float[2] a) => (o) <float[2] w = {1, 2}> {
      o = If (c) <then_branch = t () => (p) { p = Sub (a, w) },
                  else_branch = e () => (q) { q = Sub (w, a) }> }"""
    check_match("Sub(x, const(k))", text, {"p": "k=w x=a"})
