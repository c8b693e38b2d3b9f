"""Functions are raised with the model; their bodies know neither types nor attribute values."""

import numpy as np
import onnx
import pytest

from dplcli.onnx_io import AdaptedNode
from tests.onnx_io.raised import check_raised, check_refused, parsed, raise_opset
from tests.support.helpers import run_model

NESTED = """<ir_version: 8, opset_import: ["" : 12, "f" : 1]>
g (float[2, 3, 4] x) => (float[A, B, C] y, float[D, E, F] z) {
    y = f.outer <axes = [1]> (x)
    z = f.mean <along = [2]> (x)
}
<domain: "f", opset_import: ["" : 12]>
mean <along> (v) => (m) {
    [reduction] m = ReduceMean <axes: ints = @along> (v)
}
<domain: "f", opset_import: ["" : 12, "f" : 1]>
outer <axes> (v) => (r) {
    one = Constant <value = float[1, 1] {2}> ()
    w = Squeeze <axes = [0]> (one)
    s = ReduceSum <axes: ints = @axes> (v)
    t = Softmax (v)
    m = f.mean <along: ints = @axes> (v)
    u = Sum (s, t, m)
    r = Mul (u, w)
}"""


def one_function(call: str, body: str, *, attributes: str = "", opset: int = 12) -> str:
    """Write a model that calls one function."""
    return f"""<ir_version: 8, opset_import: ["" : {opset}, "f" : 1]>
    g (float[2, 3, 4] x) => (float[A, B, C] y) {{ y = {call} }}
    <domain: "f", opset_import: ["" : {opset}]>
    fun {attributes} (v) => (r) {{ {body} }}"""


def test_attributes_reach_the_new_inputs() -> None:
    """What the caller gives becomes an input through a Constant, and constants come first."""
    model = check_raised(NESTED, 18, adapted=4)
    mean, outer = model.functions
    assert [item.version for item in mean.opset_import] == [18]
    assert [(item.domain, item.version) for item in outer.opset_import] == [("", 18), ("f", 1)]
    assert [node.op_type for node in mean.node] == ["Constant", "ReduceMean"]
    assert mean.node[0].attribute[0].ref_attr_name == "along"
    assert mean.node[1].name == "reduction"
    assert [node.op_type for node in outer.node[:4]] == [
        "Constant",
        "Constant",
        "Constant",
        "Squeeze",
    ]


def test_the_report_names_functions() -> None:
    """Each function raised is named, and each node with the function that it is in."""
    result = raise_opset(parsed(NESTED), 18)
    assert result.functions == ("f::mean", "f::outer")
    assert AdaptedNode("ReduceMean", "reduction", " in f::mean") in result.adapted


def test_axis_of_softmax_may_be_the_callers() -> None:
    """The older meaning is written out for every axis, so that it need not be known."""
    call, body = "f.fun <axis = 1> (x)", "r = Softmax <axis: int = @axis> (v)"
    check_raised(one_function(call, body, attributes="<axis>"), 18, adapted=1)


@pytest.mark.parametrize("bounds", ["min = -0.5, max = 0.5", "max = 1.0"])
def test_a_bound_gets_the_type_of_the_input_when_called(bounds: str) -> None:
    """Where types are not known, CastLike makes the bound fit; before 15 there is none."""
    text = one_function("f.fun (x)", f"r = Clip <{bounds}> (v)", opset=10)
    check_raised(text, 15, adapted=1)
    check_refused(
        text,
        14,
        "Clip 'r' in f::fun: the type of 'v', which 'm[a-z]+' must have, is not known, and only "
        "opset 15 and later can do without",
        hint="keep it at opset 10, or export it anew at opset 14",
    )


def test_a_bound_may_be_the_callers() -> None:
    """A float attribute of the function becomes a scalar input."""
    body = "r = Clip <min: float = @low> (v)"
    text = one_function("f.fun <low = 0.25> (x)", body, attributes="<low>", opset=10)
    check_raised(text, 18, adapted=1)


NOT_GIVEN = "which not every call gives"


def test_an_attribute_that_a_call_leaves_out_is_refused() -> None:
    """A Constant of nothing would be invalid; a default or giving it at each call is enough."""
    body = "r = ReduceSum <axes: ints = @axes> (v)"
    without = one_function("f.fun (x)", body, attributes="<axes>")
    check_refused(
        without,
        13,
        f"its attribute 'axes' is the function's 'axes', {NOT_GIVEN}",
        hint="keep it at opset 12, or export it anew at opset 13",
    )
    check_raised(one_function("f.fun <axes = [1]> (x)", body, attributes="<axes>"), 13, adapted=1)
    check_raised(one_function("f.fun (x)", body, attributes="<axes: ints = [1]>"), 13, adapted=1)


def test_an_attribute_passed_on_must_be_given_all_the_way() -> None:
    """A function that hands its own attribute on gives it only if it is given that itself."""
    check_raised(NESTED, 18, adapted=4)
    check_refused(
        NESTED.replace("f.outer <axes = [1]>", "f.outer"),
        18,
        rf"ReduceMean 'reduction' in f::mean: .* 'along', {NOT_GIVEN}; 1 more such node$",
        hint="keep it at opset 12, or export it anew at opset 18",
    )


def test_functions_in_a_circle_do_no_harm() -> None:
    """They are invalid, but asking what their calls give comes to an end."""
    body = "w = f.fun <axes: ints = @axes> (v) r = ReduceSum <axes: ints = @axes> (w)"
    model = parsed(one_function("f.fun <axes = [1]> (x)", body, attributes="<axes>"))
    model.functions[0].opset_import.add(domain="f", version=1)
    assert len(raise_opset(model, 18).adapted) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("r = GridSample <mode: string = @p> (v, v)", "its attribute 'mode' is the function's 'p'"),
        ("r = BatchNormalization <spatial: int = @p> (v, v, v, v, v)", "'spatial' is the function"),
        ("r, i = TopK <k: int = @p> (v)", "its attribute 'k' is the function's 'p'"),
    ],
)
def test_a_value_that_must_be_known_cannot_be_the_callers(body: str, reason: str) -> None:
    """Where the new form depends on the value, the model is refused."""
    opset = 16 if "Grid" in body else 8
    text = one_function("f.fun <p = 1> (x)", body, attributes="<p>", opset=opset)
    with pytest.raises(Exception, match=reason):
        raise_opset(parsed(text), 20)


def test_an_input_for_a_callers_attribute_needs_opset_12() -> None:
    """Only since then a Constant takes its value from an attribute of the function."""
    body = "r = Slice <starts: ints = @s, ends = [9]> (v)"
    text = one_function("f.fun <s = [1]> (x)", body, attributes="<s>", opset=9)
    check_refused(
        text,
        11,
        "which only opset 12 and later can turn into an input",
        hint="keep it at opset 9, or export it anew at opset 11",
    )
    model = parsed(text)
    raise_opset(model, 12)
    feeds = {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
    (found,) = run_model(model, feeds, optimise=False).values()
    np.testing.assert_array_equal(found, feeds["x"][1:])


def test_what_a_function_returns_is_read() -> None:
    """An output that changed cannot be left out if the function hands it on."""
    text = one_function("f.fun (x)", "r, m = Dropout (v)", opset=9)
    assert len(raise_opset(parsed(text), 18).adapted) == 1
    model = parsed(text)
    model.functions[0].output.append("m")
    check_refused(
        model,
        18,
        "Dropout 'r' in f::fun: its output 'mask' is read",
        hint="keep it at opset 9, or export it anew at opset 18",
    )


def test_a_newer_function_stays() -> None:
    """A function is never lowered."""
    model = parsed(one_function("f.fun (x)", "r = Relu (v)"))
    model.functions[0].opset_import[0].version = 21
    newer = model.functions[0].SerializeToString()
    result = raise_opset(model, 18)
    assert result.functions == ()
    assert model.functions[0].SerializeToString() == newer


def test_a_function_without_imports_is_of_the_models_opset() -> None:
    """Its nodes are adapted, and it still imports nothing."""
    model = parsed(one_function("f.fun (x)", "r = ReduceSum <axes = [1]> (v)"))
    del model.functions[0].opset_import[:]
    assert len(raise_opset(model, 18).adapted) == 1
    assert not model.functions[0].opset_import


def test_a_function_that_imports_other_domains_only_has_no_standard_nodes() -> None:
    """A standard node in it is of no version, so nothing can be said about it."""
    model = parsed(one_function("f.fun (x)", "r = Relu (v)"))
    model.functions[0].opset_import[0].domain = "other"
    check_refused(
        model,
        18,
        "Relu 'r' in f::fun: it is of the standard, of which no version is imported",
        hint="keep it at opset 12, or export it anew at opset 18",
    )


def test_a_function_may_bear_the_name_of_an_operator() -> None:
    """Such calls stay while the operator of that name does, and are refused where it changes."""
    text = """<ir_version: 8, opset_import: ["" : 12]>
    g (float[2, 3] x) => (float[A, B] y) { y = NAME (x) }
    <domain: "", opset_import: ["" : 12]>
    NAME (v) => (r) { r = Neg (v) }"""
    for name in ("Relu", "Unheard"):
        model = parsed(text.replace("NAME", name))
        raise_opset(model, 18)
        assert [node.op_type for node in model.graph.node] == [name]
    check_refused(
        text.replace("NAME", "Hardmax"),
        18,
        "Hardmax 'y': a function of the model has the name of its operator",
        hint="keep it at opset 12, or export it anew at opset 18",
    )


def test_bodies_in_functions_are_raised() -> None:
    """A constant of a body in a function is stored in that body."""
    body = """c = Constant <value = bool {1}> ()
    r = If (c) <
        then_branch = t () => (float[A, B, C] p) { p = ReduceSum <axes = [1]> (v) },
        else_branch = e () => (float[A, B, C] q) { q = Identity (v) }
    >"""
    model = check_raised(one_function("f.fun (x)", body), 18, adapted=1)
    branch = model.functions[0].node[1].attribute[0].g
    assert [tensor.name for tensor in branch.initializer] == ["axes"]


def test_a_partitioned_model_can_be_raised() -> None:
    """Attributes at calls, as an outlined model has them, become inputs in the function."""
    model = parsed(NESTED)
    assert isinstance(model, onnx.ModelProto)
    raise_opset(model, 13)
    assert [node.op_type for node in model.functions[0].node] == ["ReduceMean"]
    raise_opset(model, 18)
    assert [node.op_type for node in model.functions[0].node] == ["Constant", "ReduceMean"]
