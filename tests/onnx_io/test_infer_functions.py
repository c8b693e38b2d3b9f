"""Types inside model-local functions: what all calls agree on, and nothing else."""

import contextlib

import pytest

from dplcli.errors import InvalidModelError
from dplcli.ir import Model
from dplcli.onnx_io import to_proto
from tests.support.helpers import model_from_bytes, model_from_text
from tests.support.models import ir_of

HEAD = '<ir_version: 8, opset_import: ["" : 17, "o" : 1]>'
FUNCTION = '<domain: "o", opset_import: ["" : 17, "o" : 1]>'
IN_A_BRANCH = f"""{HEAD} g (float[2] a, bool c) => (float[2] y) {{
    y = If (c) <then_branch = t () => (float[2] p) {{ p = o.f (a) }},
                else_branch = e () => (float[2] q) {{ q = Neg (a) }}> }}
{FUNCTION} f (x) => (z) {{ z = Relu (x) }}"""


def model_of(calls: str, body: str, *, inputs: str, attributes: str = "") -> Model:
    """Build a model whose function ``o::f (x, w) => (z)`` has that body, and which calls it so."""
    return model_from_text(
        f"{HEAD} g ({inputs}) => (u, v) {{ {calls} }}\n"
        f"{FUNCTION} f {attributes} (x, w) => (z) {{ {body} }}"
    )


def inside(model: Model, *names: str, function: str = "f") -> list[str]:
    """Return the known types of values of a function's body."""
    values = model.functions["o", function, ""].body.values
    return [str(values[name].known_type()) for name in names]


def test_one_call_gives_its_types() -> None:
    """The body is inferred as if it stood in the place of the call."""
    calls = "u = o.f (a, b) v = Neg (a)"
    model = model_of(calls, "t = MatMul (x, w) z = Relu (t)", inputs="float[N,4] a, float[4,8] b")
    assert inside(model, "x", "w", "t", "z") == [
        *("float32[N,4]", "float32[4,8]", "float32[N,8]", "float32[N,8]")
    ]


def test_dimensions_that_differ_but_are_equal_at_each_call_share_a_symbol() -> None:
    """The depth of a product is 4 at one call and 5 at the other: of both operands, each time."""
    calls = "u = o.f (a, b) v = o.f (c, d)"
    inputs = "float[2,4] a, float[4,3] b, float[2,5] c, float[5,6] d"
    model = model_of(calls, "z = MatMul (x, w)", inputs=inputs)
    assert inside(model, "x", "w", "z") == ["float32[2,f:0]", "float32[f:0,f:1]", "float32[2,f:1]"]


def test_equal_once_is_not_equal() -> None:
    """At the second call the two dimensions differ, so they have two names."""
    calls = "u = o.f (a, a) v = o.f (a, b)"
    model = model_of(calls, "n = Neg (w) z = Abs (x)", inputs="float[4] a, float[5] b")
    assert inside(model, "x", "w", "n") == ["float32[4]", "float32[f:0]", "float32[f:0]"]


@pytest.mark.parametrize(
    ("second", "known"),
    [
        ("float[2,3] b", ["float32[2,3]", "float32[2,3]"]),
        ("float[2] b", ["float32", "float32"]),
        ("float16[2,3] b", ["?[2,3]", "?[2,3]"]),
        ("float[M,3] b", ["float32[f:0,3]", "float32[f:0,3]"]),
        ("float b", ["float32", "float32"]),
    ],
)
def test_what_calls_do_not_agree_on_is_unknown(second: str, known: list[str]) -> None:
    """Ranks, element types, sizes."""
    calls = "u = o.f (a, a) v = o.f (b, a)"
    model = model_of(calls, "z = Relu (x)", inputs=f"float[2,3] a, {second}")
    assert inside(model, "x", "z") == known


def test_a_call_of_which_nothing_is_known_leaves_nothing() -> None:
    """One call with an operator that nobody knows before it."""
    calls = "u = o.f (a, a) s = x.Strange (a) v = o.f (s, a)"
    model = model_of(calls, "z = Relu (x)", inputs="float[2,3] a")
    assert inside(model, "x", "z", "w") == ["None", "None", "float32[2,3]"]


def test_an_input_left_out() -> None:
    """What a call does not give has no type; what all give has."""
    calls = "u = o.f (a) v = o.f (a, a)"
    model = model_of(calls, "z = Relu (x)", inputs="float[2,3] a")
    assert inside(model, "x", "w") == ["float32[2,3]", "None"]


@pytest.mark.parametrize(
    ("other", "known"), [("2, 3", "float32[2,3]"), ("3, 2", "float32[f:0,f:1]")]
)
def test_constants_that_calls_give(other: str, known: str) -> None:
    """The shape of a Reshape comes from outside."""
    model = model_from_text(f"""{HEAD} g (float[6] a) => (u, v)
        <int64[2] k = {{2, 3}}, int64[2] l = {{{other}}}> {{ u = o.f (a, k) v = o.f (a, l) }}
        {FUNCTION} f (x, w) => (z) {{ z = Reshape (x, w) }}""")
    assert inside(model, "z") == [known]


@pytest.mark.parametrize(("second", "known"), [("0", "float32[4,3]"), ("1", "float32[f:0,f:1]")])
def test_attributes_that_calls_give(second: str, known: str) -> None:
    """Each call's own value counts: the results are what is joined."""
    calls = f"u = o.f <k = 0> (a, a) v = o.f <k = {second}> (a, a)"
    body = "z = Concat <axis : int = @k> (x, w)"
    model = model_of(calls, body, inputs="float[2,3] a", attributes="<k>")
    assert inside(model, "z") == [known]


def test_an_attribute_that_the_call_takes_from_elsewhere() -> None:
    """What only the caller's caller knows may be anything: its node is not inferred."""
    model = model_from_text(f"""{HEAD} g (float[2,3] a) => (u) {{ u = o.h <k = 1> (a) }}
        {FUNCTION} f <k> (x) => (z) {{ z = Concat <axis : int = @k> (x, x) }}
        {FUNCTION} h <k> (x) => (z) {{ t = o.f <k : int = @k> (x) z = Abs (t) }}""")
    assert inside(model, "x", "z", function="h") == ["float32[2,3]", "float32[2,6]"]
    assert inside(model, "x") == ["float32[2,3]"]


def test_functions_in_functions() -> None:
    """Callers come first, whatever the order in the file."""
    model = model_from_text(f"""{HEAD} g (float[2,3] a) => (u) {{ u = o.h (a) }}
        {FUNCTION} f (x) => (z) {{ z = Transpose (x) }}
        {FUNCTION} h (x) => (z) {{ t = o.f (x) s = o.f (x) z = Add (t, s) }}""")
    assert inside(model, "t", "z", function="h") == ["float32[3,2]", "float32[3,2]"]
    assert inside(model, "x", "z") == ["float32[2,3]", "float32[3,2]"]


def test_a_call_in_a_branch() -> None:
    """It counts as any other, and captured values have their types."""
    assert inside(model_from_text(IN_A_BRANCH), "x", "z") == ["float32[2]", "float32[2]"]


def test_a_branch_in_a_function() -> None:
    """Values of its bodies are typed as well."""
    model = model_from_text(f"""{HEAD} g (float[2] a, bool c) => (y) {{ y = o.f (a, c) }}
        {FUNCTION} f (x, c) => (z) {{
            z = If (c) <then_branch = t () => (p) {{ n = Neg (x) p = Shape (n) }},
                        else_branch = e () => (q) {{ q = Shape (x) }}> }}""")
    (node,) = model.functions["o", "f", ""].body
    assert str(node.subgraphs["then_branch"].values["n"].known_type()) == "float32[2]"


def test_what_the_function_states_of_its_values_counts() -> None:
    """``value_info`` of a function is believed, as that of a graph is."""
    model = model_from_text(f"""{HEAD} g (float[2] a) => (u) {{ u = o.f (a) }}
        {FUNCTION} f (x) => (z) <float[7] t> {{ t = x.Strange (x) z = Neg (t) }}""")
    assert inside(model, "t", "z") == ["float32[7]", "float32[7]"]


def test_many_calls_that_differ_are_looked_at_at_once() -> None:
    """Forty calls of forty sizes: equal dimensions share a symbol all the same."""
    sizes = range(40)
    inputs = ", ".join(f"float[2,{n + 3}] a{n}, float[{n + 3},5] b{n}" for n in sizes)
    calls = " ".join(f"r{n} = o.f (a{n}, b{n})" for n in sizes) + " u = Neg (r0) v = Neg (r1)"
    model = model_of(calls, "z = MatMul (x, w)", inputs=inputs)
    assert inside(model, "x", "w", "z") == ["float32[2,f:0]", "float32[f:0,5]", "float32[2,5]"]


@pytest.mark.parametrize(
    "functions",
    [
        f"{FUNCTION} f (x) => (z) {{ z = Relu (x) }}",
        f"{FUNCTION} f (x) => (z) {{ z = o.f (x) }}",
        f"{FUNCTION} f (x) => (z) {{ z = o.h (x) }} {FUNCTION} h (x) => (z) {{ z = o.f (x) }}",
        f"{FUNCTION} f (x) => (z) {{ t = MatMul (y, x) y = Relu (x) z = Neg (t) }}",
    ],
    ids=["called by none", "calls itself", "call each other", "not sorted"],
)
def test_nothing_is_made_up(functions: str) -> None:
    """Functions that nobody calls, or that call each other, stay without types; nothing fails."""
    model = model_from_text(f"{HEAD} g (float[2] a) => (u) {{ u = Neg (a) }} {functions}")
    assert [*model.infer().types] == [model.graph.values["u"]]


def test_symbols_of_two_scopes_are_kept_apart() -> None:
    """Two functions of one name: the symbols that the one got are not those of the other."""
    other = '<domain: "other", opset_import: ["" : 17]>'
    model = model_from_text(f"""<ir_version: 8, opset_import: ["" : 17, "o" : 1, "other" : 1]>
        g (float[2] a, float[3] b, float[5] c) => (u, v) {{ u = o.f (a, b) v = o.f (c, a) }}
        <domain: "o", opset_import: ["" : 17, "other" : 1]> f (x, w) => (z) {{
            t = other.f (x, x) z = other.f (x, w) }}
        {other} f (x, w) => (z) {{ n = Neg (x) z = Abs (w) }}""")
    assert inside(model, "x", "w") == ["float32[f:0]", "float32[f:1]"]
    values = model.functions["other", "f", ""].body.values
    assert str(values["x"].known_type()) == "float32[f:0]"
    assert str(values["w"].known_type()) == "float32[f:1]"


def test_what_inference_cannot_tell_has_symbols_of_its_own() -> None:
    """How many elements are not zero is one number outside, and another one inside."""
    model = model_from_text(f"""{HEAD} g (float[N] a) => (u) {{ n = NonZero (a) u = o.f (n) }}
        {FUNCTION} f (x) => (z) {{ z = NonZero (x) }}""")
    model.graph.values["u"].known_type()
    outside = model.graph.values["n"].known_type()
    within = [model.functions["o", "f", ""].body.values[name].known_type() for name in ("x", "z")]
    assert within[0] == outside
    assert within[1] is not None
    assert outside is not None
    assert within[1].shape is None or within[1].shape[1] != (outside.shape or ())[1]


def test_a_scalar_that_is_given_is_a_scalar() -> None:
    """One index takes an axis away; an index of one element would leave it."""
    model = model_from_text(f"""{HEAD}
        g (float[5, 6] a) => (u) <int64 i = {{1}}> {{ u = o.f (a, i) }}
        {FUNCTION} f (x, i) => (z) {{ z = Gather <axis = 0> (x, i) }}""")
    assert inside(model, "i", "z") == ["int64[]", "float32[6]"]


@pytest.mark.parametrize(("calls", "known"), [(1, "float32[6,20]"), (40, "float32[f:1,f:2]")])
def test_what_is_given_from_afar_is_not_left_to_its_default(calls: int, known: str) -> None:
    """Through two functions: Flatten's own default of 1 would be wrong."""
    several = " ".join(f"u{n} = o.h <k = {2 + n % 2}> (a{n})" for n in range(calls))
    inputs = ", ".join(f"float[2, 3, 4, {n + 5}] a{n}" for n in range(calls))
    model = model_from_text(f"""{HEAD} g ({inputs}) => (u0) {{ {several} }}
        {FUNCTION} h <k> (x) => (z) {{ z = o.f <k : int = @k> (x) }}
        {FUNCTION} f <k> (x) => (z) {{ t = o.q <k : int = @k> (x) z = Neg (t) }}
        {FUNCTION} q <k> (x) => (z) {{ z = Flatten <axis : int = @k> (x) }}""")
    assert inside(model, "t", "z") == [known, known]


@pytest.mark.parametrize("symbol", ["N", "f:0"])
@pytest.mark.parametrize("sizes", [["N"], ["2", "3"], ["N", "M"], ["2", "f:0"]])
def test_what_a_function_declares_is_no_symbol_of_its_callers(
    symbol: str, sizes: list[str]
) -> None:
    """The result is twice as long as what is given, whatever both are called."""
    calls = " ".join(f"u{n} = o.f (a{n})" for n in range(len(sizes)))
    inputs = ", ".join(f"float[S] a{n}" for n in range(len(sizes)))
    model = model_from_text(f"""{HEAD} g ({inputs}) => (u0) {{ {calls} }}
        {FUNCTION} f (x) => (z) <float[S] t> {{ t = Concat <axis = 0> (x, x) z = Neg (t) }}""")
    proto = to_proto(model)
    for info, size in zip(proto.graph.input, sizes, strict=True):
        (dim,) = info.type.tensor_type.shape.dim
        dim.ClearField("dim_param")
        if size.isdigit():
            dim.dim_value = int(size)
        else:
            dim.dim_param = size
    proto.functions[0].value_info[0].type.tensor_type.shape.dim[0].dim_param = symbol
    values = ir_of(proto).functions["o", "f", ""].body.values
    given, made = values["x"].known_type(), values["t"].known_type()
    assert given is not None
    assert made is not None
    assert given.shape != made.shape


def test_a_body_that_the_call_gives_beside_one_that_is_there() -> None:
    """Only what is in the file can have types."""
    model = model_from_text(f"""{HEAD} g (float[2] a, bool c) => (u) {{
            u = o.f <b = th () => (float[2] q) {{ q = Neg (a) }}> (a, c) }}
        {FUNCTION} f <b> (x, c) => (z) {{
            z = If <then_branch : graph = @b,
                    else_branch = e () => (float[2] r) {{ r = Neg (x) }}> (c) }}""")
    assert inside(model, "x") == ["float32[2]"]


@pytest.mark.parametrize("part", ["dimension", "attribute", "domain"])
def test_text_that_is_not_text_is_refused_or_leaves_things_unknown(part: str) -> None:
    """Bytes that are not UTF-8 in a symbol, an attribute's name, a domain."""
    proto = to_proto(
        model_from_text(f"""{HEAD} g (float[ZZ] a) => (u) {{ u = o.f <qq = 1> (a) }}
        {FUNCTION} f <qq> (x) => (z) {{ z = Concat <axis : int = @qq> (x, x) }}""")
    )
    broken = {"dimension": b"ZZ", "attribute": b"qq", "domain": b"o"}[part]
    data = proto.SerializeToString().replace(broken, b"\xff" * len(broken))
    with contextlib.suppress(InvalidModelError):
        model_from_bytes(data).infer()
