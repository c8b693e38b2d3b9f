"""Functions that dpl did not write, put in the place of their calls under new names."""

from __future__ import annotations

import json
from itertools import pairwise

import onnx
import pytest

from dplcli.errors import PassError
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.inline import inline
from tests.passes.inlining import check_inlined, inlined, partitioned
from tests.support.helpers import check_sound, model_from_bytes, print_model, proto_from_text, rule

HEAD = '<ir_version: 10, opset_import: ["" : 17, "f" : 1]>'
F = '<domain: "f", opset_import: ["" : 17]>'
G = '<domain: "f", opset_import: ["" : 17, "f" : 1]>'


def test_a_body_takes_the_place_of_each_call() -> None:
    """Outputs keep their names; the rest is named after the call; no function is left."""
    written = check_inlined(
        f"""{HEAD} g (float[2] a) => (float[2] o) {{ [one] m = f.h (a) o = f.h (m) }}
        {F} h (x) => (y) {{ [neg] z = Neg (x) y = Abs (z) }}""",
        after="""
(a) => (o) {
  [one/neg] one/z = Neg (a)
  [one/Abs] m = Abs (one/z)
  [o/neg] o/z = Neg (m)
  [o/Abs] o = Abs (o/z)
}""",
    )
    assert list(written.functions) == []
    assert [(item.domain, item.version) for item in written.opset_import] == [("", 17)]


def test_names_in_use_are_not_used_again() -> None:
    """A value or a node of the model has the name already, perhaps in a body."""
    original = proto_from_text(f"""{HEAD} g (float[2] a, bool c) => (float[2] o) {{
        [n] b = Neg (a)
        [i] w = If (c) <then_branch = t () => (float[2] p) {{ [q] p = Neg (b) }},
                        else_branch = e () => (float[2] p) {{ p = Abs (b) }}>
        [k] o = f.h (w) }}
    {F} h (x) => (y) {{ [neg] z = Neg (x) [abs] y = Abs (z) }}""")
    then = original.graph.node[1].attribute[0].g
    then.node[0].output[0] = then.output[0].name = "k/z"
    then.node[0].name = "k/neg"
    original.graph.node[0].name = "k/abs"
    written, _ = inlined(original, everything=True)
    check_sound(original, written)
    made = [(node.name, node.output[0]) for node in written.graph.node]
    assert made == [("k/abs", "b"), ("i", "w"), ("k/neg_1", "k/z_1"), ("k/abs_1", "o")]


def test_attributes_references_and_defaults() -> None:
    """What the call gives, the function's default, or nothing, which is the operator's default."""
    check_inlined(
        f"""{HEAD} g (float[4] a) => (float[4] o) {{
            [one] m = f.h <alpha = 0.5> (a) [two] o = f.h <beta = 0.125, alpha = 0.75> (m) }}
        {F} h <alpha, gamma, beta: float = 0.25> (x) => (y) {{
            u = LeakyRelu <alpha: float = @alpha> (x)
            v = LeakyRelu <alpha: float = @beta> (u)
            y = LeakyRelu <alpha: float = @gamma> (v) }}""",
        after="""
(a) => (o) {
  [one/LeakyRelu] one/u = LeakyRelu <alpha = 0.5> (a)
  [one/LeakyRelu_1] one/v = LeakyRelu <alpha = 0.25> (one/u)
  [one/LeakyRelu_2] m = LeakyRelu (one/v)
  [two/LeakyRelu] two/u = LeakyRelu <alpha = 0.75> (m)
  [two/LeakyRelu_1] two/v = LeakyRelu <alpha = 0.125> (two/u)
  [two/LeakyRelu_2] o = LeakyRelu (two/v)
}""",
    )


def test_omitted_inputs_and_outputs() -> None:
    """What the call leaves out, the nodes leave out; what it does not list gets a name."""
    original = proto_from_text(f"""{HEAD} g (float[2] a) => (float[2] o) {{ [k] o = f.h (a) }}
        {F} h (x, low, high) => (y, z) {{ y = Clip (x, low, high) z = Neg (y) }}""")
    written, result = inlined(original, everything=True)
    assert not result.refused
    onnx.checker.check_model(written, full_check=True)
    model = model_from_bytes(written.SerializeToString())
    assert print_model(model).splitlines()[1:-1] == [
        "  [k/Clip] o = Clip (a)",
        "  [k/Neg] k/z = Neg (o)",
    ]


def test_values_that_are_returned_as_they_are_or_twice() -> None:
    """An input that is an output, and one value as two outputs, become copies."""
    original = proto_from_text(f"""{HEAD} g (float[2] a) => (float[2] o, float[2] p, float[2] q) {{
        [k] o, p, q = f.h (a) }}
    {F} h (x) => (x, y, y) {{ y = Neg (x) }}""")
    written, result = inlined(original, everything=True)
    assert not result.refused
    onnx.checker.check_model(written, full_check=True)
    model = model_from_bytes(written.SerializeToString())
    assert print_model(model).splitlines()[1:-1] == [
        "  [k/Neg] p = Neg (a)",
        "  [k/Identity] o = Identity (a)",
        "  [k/Identity_1] q = Identity (p)",
    ]


NESTED = f"""{HEAD} g (float[2] a) => (float[2] o) {{ [k] o = f.outer <alpha = 0.5> (a) }}
    {G} outer <alpha> (x) => (y) {{
        [l] z = f.inner <slope: float = @alpha> (x) [m] y = f.inner <slope = 0.25> (z) }}
    {F} inner <slope> (x) => (y) {{ z = LeakyRelu <alpha: float = @slope> (x) y = Neg (z) }}"""


def test_functions_that_call_functions() -> None:
    """References lead from one function to the next."""
    check_inlined(
        NESTED,
        after="""
(a) => (o) {
  [k/l/LeakyRelu] k/l/z = LeakyRelu <alpha = 0.5> (a)
  [k/l/Neg] k/z = Neg (k/l/z)
  [k/m/LeakyRelu] k/m/z = LeakyRelu <alpha = 0.25> (k/z)
  [k/m/Neg] o = Neg (k/m/z)
}""",
    )


@pytest.mark.parametrize(
    ("chosen", "left", "ops"),
    [
        ("outer", ["inner"], ["inner", "inner"]),
        ("inner", ["outer"], ["outer"]),
    ],
)
def test_one_function_alone(chosen: str, left: list[str], ops: list[str]) -> None:
    """The outer one leaves calls of the inner one; the inner one goes from the outer's body."""
    model = model_from_bytes(proto_from_text(NESTED).SerializeToString())
    inline(model, [model.functions["f", chosen, ""]])
    check_structure(model)
    written = to_proto(model)
    check_sound(proto_from_text(NESTED), written)
    assert [function.name for function in written.functions] == left
    assert [node.op_type for node in written.graph.node] == ops


BODIES = f"""{HEAD} g (float[2] a, bool c) => (float[2] o) {{
        [i] t = f.h <alpha = 0.5> (a, c) [j] o = f.h <alpha = 0.25> (t, c) }}
    {F} h <alpha> (x, c) => (y) {{
        k = Constant <value = float[2] {{1, 2}}> ()
        z = LeakyRelu <alpha: float = @alpha> (x)
        y = If (c) <
            then_branch = th () => (r) <float[2] w = {{3, 4}}> {{
                s = LeakyRelu <alpha: float = @alpha> (z)
                u = If (c) <then_branch = in () => (v) {{ v = Add (s, w) }},
                            else_branch = ie () => (v) {{ v = Sub (z, k) }}>
                r = Mul (u, x) }},
            else_branch = el () => (z) {{ t = Neg (z) z = Identity (t) }}> }}"""


def test_bodies_in_functions() -> None:
    """Bodies are copied for each call: captured values, references, data, names."""
    original = proto_from_text(BODIES.replace("(z) { t", "(q) { t").replace(" z = Id", " q = Id"))
    written, result = inlined(original, everything=True)
    assert not result.refused
    for condition in (True, False):
        check_sound(original, written, seed=int(condition))
    names = []
    graphs = [written.graph]
    for graph in graphs:
        names += [node.name for node in graph.node if node.name]
        graphs += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    assert len(set(names)) == len(names)
    outputs = [name for graph in graphs[1:3] for node in graph.node for name in node.output]
    assert len(set(outputs)) == len(outputs)


def test_a_call_in_a_body_of_a_function() -> None:
    """A function is inlined in the bodies that another one brings along."""
    original = proto_from_text(f"""{HEAD} g (float[2] a, bool c) => (float[2] o) {{
        [i] o = f.h (a, c) }}
    {G} h (x, c) => (y) {{
        y = If (c) <then_branch = th () => (r) {{ [q] r = f.n (x) }},
                    else_branch = el () => (r) {{ r = Abs (x) }}> }}
    {F} n (x) => (y) {{ z = Neg (x) y = Relu (z) }}""")
    written, result = inlined(original, everything=True)
    check_sound(original, written)
    assert [item.scope for item in result.calls] == ["main", "main/i/If.then_branch"]
    assert list(written.functions) == []


def test_overloads_are_functions_of_their_own() -> None:
    """A call gets the body of the overload that it names."""
    original = proto_from_text(f"""{HEAD} g (float[2] a) => (float[2] o) {{
        [j] m = f.h (a) [k] o = f.h (m) }}
    {F} h (x) => (y) {{ y = Neg (x) }}
    {F} h2 (x) => (y) {{ y = Abs (x) }}""")
    original.functions[1].name, original.functions[1].overload = "h", "other"
    original.graph.node[1].overload = "other"
    written, _ = inlined(original, everything=True)
    assert [node.op_type for node in written.graph.node] == ["Neg", "Abs"]


def test_documentation_and_metadata_of_a_functions_nodes() -> None:
    """They come along with the nodes."""
    original = proto_from_text(f"""{HEAD} g (float[2] a) => (float[2] o) {{ o = f.h (a) }}
        {F} h (x) => (y) {{ y = Neg (x) }}""")
    original.functions[0].node[0].doc_string = "turned round"
    original.functions[0].node[0].metadata_props.add(key="from", value="torch")
    written, _ = inlined(original, everything=True)
    node = written.graph.node[0]
    assert (node.doc_string, node.metadata_props[0].value) == ("turned round", "torch")


def test_a_domain_that_only_the_function_imports() -> None:
    """The model imports it when nodes of it are in its own graph."""
    original = proto_from_text(f"""{HEAD} g (float[2] a) => (float[2] o) {{ o = f.h (a) }}
        <domain: "f", opset_import: ["" : 17, "com.microsoft" : 1, "unused" : 3]>
        h (x) => (y) {{ y = com.microsoft.Gelu (x) }}""")
    written, _ = inlined(original, everything=True)
    imports = {item.domain: item.version for item in written.opset_import}
    assert imports == {"": 17, "com.microsoft": 1}
    onnx.checker.check_model(written, full_check=True)


def refusals(text: str) -> list[str]:
    """Inline everything; return why calls stay, and check that the model is as it was."""
    original = proto_from_text(text)
    written, result = inlined(original, everything=True)
    if not result.calls:
        assert written == original
    return [f"{item.call.label}: {item.reason}" for item in result.refused]


def test_an_operator_of_another_opset_stays_in_its_function() -> None:
    """Softmax changed with opset 13; Relu, which did not change between, may go."""
    text = f"""{HEAD} g (float[2,2] a) => (float[2,2] o) {{ [k] o = f.h (a) }}
        <domain: "f", opset_import: ["" : 11]> h (x) => (y) {{ y = Softmax (x) }}"""
    reason = "Softmax is of opset 11 in the function, and of opset 17 where it is called"
    assert refusals(text) == [f"k: {reason}"]
    assert refusals(text.replace("11", "14").replace("Softmax", "Relu")) == []


def test_a_call_that_does_not_fit_its_function_stays() -> None:
    """More inputs or outputs than there are, or a returned input that is left out."""
    text = f"""{HEAD} g (float[2] a) => (float[2] o) {{ [k] o = f.h (a, a) }}
        {F} h (x) => (y) {{ y = Neg (x) }}"""
    assert refusals(text) == ["k: it has 2 inputs, and the function 1"]
    text = f"""{HEAD} g (float[2] a) => (float[2] o) {{ [k] o, p = f.h (a) }}
        {F} h (x) => (y) {{ y = Neg (x) }}"""
    assert refusals(text) == ["k: it has 2 outputs, and the function 1"]
    text = f"""{HEAD} g (float[2] a) => (float[2] o) {{ [k] o, p = f.h (a) }}
        {F} h (x, z) => (y, z) {{ y = Neg (x) }}"""
    assert refusals(text) == ["k: the function returns its input 'z', which the call leaves out"]
    text = f"""{HEAD} g (float[2] a) => (float[2] o) {{ [k] o = f.h (a) }}
        {F} h (x, z) => (y) {{ y = Add (x, z) }}"""
    assert refusals(text) == ["k: Add needs 'z', which the call leaves out"]
    assert refusals(text.replace("Add (x, z)", "Clip (x, z)")) == []
    text = f"""{HEAD} g (bool c, float[2] a) => (float[2] o) {{ [k] o = f.h (c, a) }}
        {F} h (c, x, z) => (y) {{ y = If (c) <then_branch = t () => (p) {{ p = Max (x, z) }},
            else_branch = e () => (q) {{ q = Sub (z, x) }}> }}"""
    assert refusals(text) == ["k: Max needs 'z', which the call leaves out"]


def test_what_a_function_that_stays_calls_is_inlined_in_it() -> None:
    """A refused call keeps its function, whose own calls are replaced all the same."""
    text = f"""{HEAD} g (float[2,2] a) => (float[2,2] o) {{ [k] o = f.h (a) }}
        <domain: "f", opset_import: ["" : 11, "f" : 1]>
        h (x) => (y) {{ s = Softmax (x) [l] y = f.n (s) }}
        <domain: "f", opset_import: ["" : 11]> n (x) => (y) {{ y = Neg (x) }}"""
    written, result = inlined(proto_from_text(text), everything=True)
    assert [item.call.name for item in result.calls] == ["l"]
    assert [item.call.name for item in result.refused] == ["k"]
    assert [node.op_type for node in written.functions[0].node] == ["Softmax", "Neg"]
    assert len(written.functions) == 1


@pytest.mark.parametrize("cycle", [["h", "h"], ["h", "n", "h"]])
def test_a_function_that_calls_itself_is_an_error(cycle: list[str]) -> None:
    """Directly or through others; the message names one of them."""
    bodies = [f"{G} {name} (x) => (y) {{ y = f.{callee} (x) }}" for name, callee in pairwise(cycle)]
    text = f"{HEAD} g (float[2] a) => (float[2] o) {{ o = f.h (a) }} {' '.join(bodies)}"
    with pytest.raises(PassError, match=r"the function f::[hn] calls itself"):
        inlined(proto_from_text(text), everything=True)


def test_functions_that_unfold_without_measure() -> None:
    """Forty functions that each call the next one twice: one sentence, at once."""
    names = [f"h{number}" for number in range(40)]
    bodies = [
        f"{G} {name} (x) => (y) {{ z = f.{callee} (x) y = f.{callee} (z) }}"
        for name, callee in pairwise([*names, "last"])
    ]
    text = f"""{HEAD} g (float[2] a) => (float[2] o) {{ o = f.h0 (a) }} {" ".join(bodies)}
        {F} last (x) => (y) {{ y = Neg (x) }}"""
    with pytest.raises(PassError, match=r"the model would have 1,099,511,627,776 nodes"):
        inlined(proto_from_text(text), everything=True)
    written, _ = inlined(proto_from_text(text), everything=True, calls=["nothing"])
    assert len(written.functions) == 41


def test_one_of_several_calls() -> None:
    """The others stay, and so does the function."""
    text = f"""{HEAD} g (float[2] a) => (float[2] o) {{ [j] m = f.h (a) [k] o = f.h (m) }}
        {F} h (x) => (y) {{ y = Neg (x) }}"""
    written, _ = inlined(proto_from_text(text), everything=True, calls=["k"])
    assert [node.op_type for node in written.graph.node] == ["h", "Neg"]
    assert len(written.functions) == 1
    assert {item.domain for item in written.opset_import} == {"", "f"}


def test_a_function_that_nothing_calls_goes() -> None:
    """Chosen to be inlined, it has no place left in the model."""
    text = f"""{HEAD} g (float[2] a) => (float[2] o) {{ o = Neg (a) }}
        {F} h (x) => (y) {{ y = Neg (x) }}"""
    written, result = inlined(proto_from_text(text), everything=True)
    assert [function.name for function in result.removed] == ["h"]
    assert [item.domain for item in written.opset_import] == [""]


WRONG = [
    ("dpl.nodes", "no JSON"),
    ("dpl.nodes", "[" * 100_000),
    ("dpl.nodes", "{}"),
    ("dpl.nodes", "[]"),
    ("dpl.nodes", '[["Neg"]]'),
    ("dpl.nodes", '[["Neg", "n", ["b"]], ["Abs", "m", [["o"]]]]'),
    ("dpl.nodes", '[["Abs", "n", ["b"]], ["Neg", "m", ["o"]]]'),
    ("dpl.nodes", '[["Neg", "n", ["b", "c"]], ["Abs", "m", ["o"]]]'),
    ("dpl.nodes", '[["Neg", "n", ["b"]]]'),
    ("dpl.nodes", '[["Neg", "n", ["b"]], ["Abs", "m", ["o"]], ["Abs", "l", ["p"]]]'),
    ("dpl.undo", "3"),
    ("dpl.undo", '{"order": [1]}'),
    ("dpl.undo", '{"order": [0, 0, "o"]}'),
    ("dpl.undo", '{"order": [true, 0]}'),
    ("dpl.undo", '{"behind": ["o", ""]}'),
    ("dpl.undo", '{"behind": {"b": 1}}'),
    ("dpl.undo", '{"behind": {"b": true}}'),
    ("dpl.undo", '{"run": 1e9}'),
    ("dpl.undo", '{"reads": {"x": {}}}'),
    ("dpl.undo", '{"types": {"0": ["float99", []]}}'),
    ("dpl.undo", '{"types": {"0": [[], []]}}'),
    ("dpl.undo", '{"types": {"0": ["float32", [1.5]]}}'),
    ("dpl.undo", '{"types": {"0": "not base 64!"}}'),
    ("dpl.undo", '{"remarks": {"0": {"metadata": {"a": 1}}}}'),
    ("dpl.undo", '{"constants": {"k": {"up": "far"}}}'),
]


@pytest.mark.parametrize(("key", "text"), WRONG)
def test_metadata_that_cannot_be_right_are_as_good_as_missing(key: str, text: str) -> None:
    """The call is inlined under new names, and the result says that it was."""
    original = proto_from_text("g (float[2] a) => (float[2] o) { [n] b = Neg (a) o = Abs (b) }")
    written = partitioned(original, rule("Abs(Neg(x))"), matches=1)
    call = written.graph.node[0]
    for entry in [entry for entry in call.metadata_props if entry.key == key]:
        call.metadata_props.remove(entry)
    call.metadata_props.add(key=key, value=text)
    after, result = inlined(written)
    assert [item.is_restored for item in result.calls] == [False]
    assert [node.name for node in after.graph.node] == ["r_0/Neg_0", "r_0/Abs_1"]
    check_sound(original, after)


STRANGE = [
    {"order": [1, "nothing", 0, "p"]},
    {"behind": {"b": "", "o": "b"}},
    {"behind": {"b": "o", "o": "p", "p": "b"}},
    {"behind": {"b": "nothing", "nothing": "p", "": "o"}},
    {"reads": {"0": {"0": "o"}, "1": {"7": "", "0": "nothing"}, "9": {"9": "b"}}},
    {"reads": {"1": {"2000000000": ""}}},
    {"constants": {"k": {"reads": "k"}, "l": {"reads": "k"}}},
    {"types": {"0": ["float32", ["N"]], "7": ["float32", []]}, "repeated": [0, 77]},
    {"types": {"0": "////"}},
    {"run": 7},
]


@pytest.mark.parametrize("undo", STRANGE)
def test_metadata_that_are_odd_do_no_harm(undo: dict[str, object]) -> None:
    """Whatever a record says, the model is whole and computes the same."""
    original = proto_from_text(
        "g (float[2] a) => (float[2] o, float[2] p) { b = Neg (a) p = Relu (a) o = Abs (b) }"
    )
    written = partitioned(original, rule("Abs(Neg(x))"), matches=1)
    call = next(node for node in written.graph.node if node.domain == "t")
    call.metadata_props.add(key="dpl.undo", value=json.dumps(undo))
    del call.metadata_props[-2]
    after, _ = inlined(written)
    check_sound(original, after)
    assert sorted(node.op_type for node in after.graph.node) == ["Abs", "Neg", "Relu"]


@pytest.mark.parametrize("record", [{}, {"up": 40}, {"node": "", "reads": "l"}, {"attribute": "x"}])
def test_constants_whose_record_is_odd(record: dict[str, object]) -> None:
    """An embedded constant comes back as something that computes the same."""
    original = proto_from_text(
        "g (float[2] a) => (float[2] o) <float[2] k = {1, 2}> { o = Add (a, k) }"
    )
    written = partitioned(original, rule("Add(x, const(c))", constants="embed"), matches=1)
    undo = written.graph.node[0].metadata_props[1]
    assert undo.key == "dpl.undo"
    undo.value = json.dumps(
        {"reads": {"0": {"1": "k"}}, "constants": {"k": record, "l": {"reads": "k"}}}
    )
    after, _ = inlined(written)
    check_sound(original, after)
