"""A partition is undone: nodes, names, constants, types, order and all that nodes carry."""

from __future__ import annotations

import onnx
import pytest

from dplcli.errors import InvalidModelError
from dplcli.onnx_io import to_proto
from dplcli.passes.inline import inline
from tests.passes.inlining import check_undone, inlined, partitioned
from tests.support.helpers import check_sound, model_from_bytes, proto_from_text, rule
from tests.support.structure import differences

CONVS = """g (float[1,1,8,8] a) => (float[1,1,N,M] o)
  <float[1,1,1,1] k = {2}, float[1,1,1,1] l = {3}>"""


def test_attributes_left_to_defaults_are_left_to_them_again() -> None:
    """What the call completes is taken away; what the file states stays."""
    text = f"""{CONVS} {{ [c1] c = Conv <strides = [2, 2]> (a, k) [r1] d = Relu (c)
        [c2] e = Conv <group = 1> (d, l) o = Relu (e) }}"""
    check_undone(text, "Relu(Conv(x, w))", matches=2)


def test_two_attributes_of_one_name_go_to_their_nodes() -> None:
    """Declared as alpha and alpha_1, given back as alpha to each."""
    text = """g (float[2] a) => (float[2] o) {
        c = LeakyRelu <alpha = 0.5> (a) o = LeakyRelu <alpha = 0.25> (c) }"""
    check_undone(text, "LeakyRelu(LeakyRelu(x))")


def test_a_kind_written_for_another_match() -> None:
    """Each call has its own names, attributes and omitted inputs, whatever the body shows."""
    text = """g (float[2] a) => (float[2] o) {
        [x] b = Clip (a) [y] c = Relu (b) [z] d = Clip (c, , ) o = Relu (d) }"""
    check_undone(text, "Relu(Clip(x))", matches=2)


def test_unused_and_omitted_outputs_keep_their_names() -> None:
    """A second output that nobody reads, and one that is left out."""
    text = """g (float[4] a) => (float[2] o) {
        [s] p, q = Split <axis = 0> (a) o = Relu (p) }"""
    check_undone(text, "Relu(Split(x)[0])")
    text = """g (float[1,1,4] a) => (float[1,1,N] o) {
        [m] p,  = MaxPool <kernel_shape = [2]> (a) o = Relu (p) }"""
    before = proto_from_text(text.replace("p,  =", "p, i ="))
    before.graph.node[0].output[1] = ""
    check_undone(before, "Relu(MaxPool(x))")


def test_identities_that_were_looked_through_are_read_again() -> None:
    """Two readings of one value, once through an Identity, become one input of the call."""
    text = """g (float[2] a) => (float[2] o) {
        i = Identity (a) r = Relu (a) o = Add (r, i) }"""
    check_undone(text, rule("Add(Relu(x), x)"))


def test_a_copy_of_an_inner_value_is_read_again() -> None:
    """What goes into the match by way of a node outside it is read from there."""
    text = """g (float[2] a) => (float[2] o) {
        r = Relu (a) i = Identity (r) n = Neg (r) o = Add (n, i) }"""
    check_undone(text, rule("Add(Neg(Relu(x)), y)", escape="duplicate"))


SCATTERED = """g (float[2] a, float[2] b) => (float[2] o, float[2] p, float[2] q, float[2] s) {
    c = Relu (a) s = Neg (b) d = Relu (b) t = Abs (s) o = Neg (c) q = Abs (t) p = Neg (d) }"""


def test_nodes_go_back_to_their_places_among_others() -> None:
    """Two calls whose nodes lie between each other's and those of neither."""
    check_undone(SCATTERED, "Neg(Relu(x))", matches=2)


def test_the_order_survives_when_calls_are_inlined_one_by_one() -> None:
    """A call that stays counts with the nodes that it stands for."""
    before = proto_from_text(SCATTERED)
    written = partitioned(before, "Neg(Relu(x))", matches=2)
    for names in (["r_0", "r_1"], ["r_1", "r_0"]):
        proto = written
        for name in names:
            assert proto.functions
            proto, _ = inlined(proto, calls=[name])
        assert differences(before, proto) == []


def test_nodes_that_had_to_move_go_back() -> None:
    """Readers of an early output stood before the call's last node, among other nodes."""
    text = """g (float[2] a, float[2] b) => (float[2] o, float[2] p, float[2] q) {
        c = Relu (a) u = Neg (c) v = Abs (b) p = Abs (u) d = Sigmoid (b) q = Neg (v)
        o = Add (c, d) }"""
    check_undone(text, rule("Add(Relu(x), y)", escape="outputs"))
    check_undone(
        text, [rule("Add(Relu(x), y)", escape="outputs"), rule("Abs(Neg(x))", name="s")], matches=2
    )


def test_a_node_that_stayed_takes_one_place() -> None:
    """A call has a copy of it, another call's nodes stood on both sides."""
    text = """g (float[2] a, float[2] b) => (float[2] o, float[2] p, float[2] u, float[2] v) {
        u = Sin (b) r = Relu (b) v = Cos (b) c = Sigmoid (a) d = Tanh (c) o = Add (d, c)
        p = Neg (r) }"""
    rules = [rule("Add(y, Sigmoid(x))", escape="duplicate"), rule("Neg(Relu(x))", name="s")]
    check_undone(text, rules, matches=2)


def test_duplicated_nodes_are_one_again() -> None:
    """What a call computes for itself, and the rest too, is computed once."""
    text = """g (float[2] a) => (float[2] o) {
        [r] c = Relu (a) [n] d = Neg (c) [s] e = Abs (d) [t] o = Add (e, c) }"""
    check_undone(text, rule("Add(Abs(y), Relu(x))", escape="duplicate"), matches=1)


def test_a_node_that_two_calls_took_along_is_made_once() -> None:
    """Nothing outside needed it, so only the calls know of it."""
    text = """g (float[2] a) => (float[2] o) {
        [r] c = Relu (a) [n] d = Neg (c) [m] e = Abs (c) o = Add (d, e) }"""
    rules_of_three = [
        rule("Add(Neg(Relu(x)), y)", name="big", escape="duplicate"),
        rule("Abs(Relu(x))", name="small", escape="duplicate"),
    ]
    check_undone(text, rules_of_three, matches=2)


def test_an_edited_original_is_not_taken_for_the_duplicate() -> None:
    """A node of the right names that reads something else stays what it is."""
    text = """g (float[2] a, float[2] b) => (float[2] o) {
        [r] c = Relu (a) [n] d = Neg (c) [s] e = Abs (d) [t] o = Add (e, c) }"""
    rules = rule("Add(Abs(y), Relu(x))", escape="duplicate")
    written = partitioned(proto_from_text(text), rules, matches=1)
    relu = next(node for node in written.graph.node if node.name == "r")
    relu.input[0] = "b"
    after, _ = inlined(written)
    reads = {node.output[0]: list(node.input) for node in after.graph.node}
    assert reads["c"] == ["b"]
    assert reads["d"] == ["c"]
    assert reads[reads["o"][1]] == ["a"]
    assert reads["o"][1] != "c"


ADD = "g (float[2] a) => (float[2] o) <float[2] k = {1, 2}> { o = Add (a, k) }"


@pytest.mark.parametrize("policy", ["auto", "embed", "lift"])
def test_an_initializer_is_one_again(policy: str) -> None:
    """Embedded or not, it comes back under its name."""
    check_undone(ADD, rule("Add(x, const(c))", constants=policy))


def test_an_initializer_that_others_read_is_found() -> None:
    """It was never gone, so it is not made a second time."""
    text = ADD.replace("o = Add (a, k)", "m = Add (a, k) o = Sub (m, k)")
    check_undone(text, rule("Add(x, const(c))", constants="embed"))


def test_another_constant_of_that_name_is_left_alone() -> None:
    """Somebody has used the name since; what was embedded gets another."""
    written = partitioned(
        proto_from_text(ADD), rule("Add(x, const(c))", constants="embed"), matches=1
    )
    written.graph.initializer.append(onnx.helper.make_tensor("k", 1, [2], [7.0, 8.0]))
    after, _ = inlined(written)
    data = {t.name: onnx.numpy_helper.to_array(t).tolist() for t in after.graph.initializer}
    assert data == {"k": [7.0, 8.0], "k_1": [1.0, 2.0]}
    assert list(after.graph.node[0].input) == ["a", "k_1"]


def test_a_constant_that_is_made_later_now_is_not_read() -> None:
    """Somebody has moved its node behind the call, which did not read it."""
    before = proto_from_text("""g (float[2] a) => (float[2] o) {
        k = Constant <value = float[2] {1, 2}> () m = Add (a, k) o = Sub (m, k) }""")
    written = partitioned(before, rule("Add(x, const(c))", constants="embed"), matches=1)
    nodes = [written.graph.node[index] for index in (1, 0, 2)]
    moved = onnx.ModelProto.FromString(written.SerializeToString())
    del moved.graph.node[:]
    moved.graph.node.extend(nodes)
    after, _ = inlined(moved)
    check_sound(before, after)


def test_equal_constants_of_two_matches_are_two_again() -> None:
    """Calls of one function with one embedded constant had one initializer each, or shared one."""
    text = """g (float[2] a) => (float[2] o) <float[2] k = {1, 2}, float[2] l = {1, 2}> {
        b = Add (a, k) c = Relu (b) d = Add (c, l) e = Relu (d) f = Add (e, k) o = Relu (f) }"""
    check_undone(text, rule("Relu(Add(x, const(c)))", constants="embed"), matches=3)


def test_one_constant_in_two_slots_and_two_equal_ones() -> None:
    """The function is the same; what each call read is not."""
    text = """g (float[2] a) => (float[2] o) <float[2] k = {1, 2}, float[2] l = {1, 2}> {
        b = Add (a, k) c = Mul (b, k) d = Add (c, k) o = Mul (d, l) }"""
    check_undone(text, rule("Mul(Add(x, y), z)", constants="embed"), matches=2)
    text = text.replace("c = Mul (b, k)", "c = Mul (b, l)").replace("(d, l)", "(d, k)")
    check_undone(text, rule("Mul(Add(x, y), z)", constants="embed"), matches=2)


FORMS = [
    "value = float[2] {1, 2}",
    "value_floats = [1.0, 2.0]",
    "value_float = 0.1",
    "value_int = 3",
    "value_ints = [3, 4]",
]


@pytest.mark.parametrize("form", FORMS)
def test_a_constant_node_is_one_again(form: str) -> None:
    """With its name, its place and the attribute that it used."""
    text = f"""g (float[2] a) => (float[2] o, float[2] p) {{
        p = Neg (a) [const] k = Constant <{form}> () n = Neg (p) m = Cast <to = 1> (k)
        i = Identity (m) o = Mul (n, m) }}"""
    check_undone(text, rule("Cast(const(c))", constants="embed"))


def test_constant_nodes_and_copies_of_constants_go_back_to_their_places() -> None:
    """A Constant and two Identity nodes before the match, with other nodes between."""
    text = """g (float[2] a) => (float[2] o, float[2] p) {
        [k1] k = Constant <value = float[2] {1, 2}> () p = Neg (a) [i1] i = Identity (k)
        q = Abs (p) j = Identity (i) o = Add (q, j) }"""
    check_undone(text, rule("Add(x, const(c))", constants="embed"))
    text = text.replace("[k1] k = Constant <value = float[2] {1, 2}> ()", "")
    text = text.replace(
        "(float[2] o, float[2] p)", "(float[2] o, float[2] p) <float[2] k = {3, 4}>"
    )
    check_undone(text, rule("Add(x, const(c))", constants="embed"))


def test_strings_and_sparse_constants() -> None:
    """A string stays a string; a sparse tensor comes back with all its data."""
    text = """g (float[2] a) => (float[2] o, string[1] t) {
        s = Constant <value_strings = ["b", "c"]> () u = Constant <value_string = "b"> ()
        t = StringConcat (s, u) o = Neg (a) }"""
    text = f'<ir_version: 9, opset_import: ["" : 20]> {text}'
    check_undone(text, rule("StringConcat(const(s), const(u))", constants="embed"))
    before = proto_from_text(ADD)
    values = onnx.helper.make_tensor("k", onnx.TensorProto.FLOAT, [1], [5.0])
    indices = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [1], [1])
    del before.graph.initializer[:]
    before.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [2]))
    written = partitioned(before, rule("Add(x, const(c))", constants="embed"), matches=1)
    after, _ = inlined(written)
    data = onnx.numpy_helper.to_array(after.graph.initializer[0])
    assert data.tolist() == [0.0, 5.0]


IF = """g (float[2] a, bool c) => (float[2] o) <float[2] k = {{1, 2}}> {{
    {outer}
    [if] o = If (c) <
        then_branch = t () => (float[2] p) {inner} {{ {local} [x] p = Add (n, {name}) }},
        else_branch = e () => (float[2] q) {{ q = Abs (n) }}> }}"""


@pytest.mark.parametrize(
    "parts",
    [
        {"name": "k"},
        {"outer": "n = Neg (a) [kk] m = Constant <value = float[2] {1, 2}> ()", "name": "m"},
        {"outer": "n = Neg (a) m = Identity (k)", "name": "m"},
        {"inner": "<float[2] w = {3, 4}>", "name": "w"},
        {"local": "w = Constant <value = float[2] {3, 4}> ()", "name": "w"},
        {"local": "w = Identity (k)", "name": "w"},
    ],
)
@pytest.mark.parametrize("policy", ["embed", "lift"])
def test_constants_inside_and_round_a_body(parts: dict[str, str], policy: str) -> None:
    """Each comes back in the graph that had it, as what it was."""
    text = IF.format(**({"outer": "n = Neg (a)", "inner": "", "local": ""} | parts))
    check_undone(text, rule("Add(x, const(w))", constants=policy))


def test_bodies_and_functions_of_the_model() -> None:
    """Calls in an If body and in the body of the model's own function; that one stays."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] a, bool c) => (float[2] o) {
          m = Relu (a) n = f.body <alpha = 0.5> (m)
          o = If (c) <then_branch = t () => (float[2] p) { r = Relu (n) p = Neg (r) },
                      else_branch = e () => (float[2] q) { q = Relu (n) }> }
        <domain: "f", opset_import: ["" : 17]>
        body <alpha> (x) => (y) { z = Relu (x) y = LeakyRelu <alpha: float = @alpha> (z) }"""
    check_undone(text, "Relu(v)", matches=4)
    check_undone(text, "LeakyRelu(Relu(v))")


def test_types_that_a_function_states() -> None:
    """From IR version 10 a function may state types; what goes into calls comes back."""
    before = proto_from_text("""<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        g (float[2] a) => (float[2] y) { y = own.f (a) }
        <domain: "own", opset_import: ["" : 21]>
        f (a) => (e) { b = Neg (a) c = Abs (b) d = Relu (c) e = Sqrt (d) }""")
    for name in "bcd":
        info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])
        before.functions[0].value_info.append(info)
    rules = rule("Relu(Abs(Neg(x)))")
    written = partitioned(before, rules, matches=1)
    (function,) = [f for f in written.functions if f.domain == "own"]
    assert [info.name for info in function.value_info] == ["d"]
    check_undone(before, rules)


def test_a_constant_in_a_function_is_a_node_again() -> None:
    """A function has no initializers."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] a) => (float[2] o) { o = f.body (a) }
        <domain: "f", opset_import: ["" : 17]>
        body (x) => (y) { [kk] k = Constant <value = float[2] {1, 2}> () y = Add (x, k) }"""
    check_undone(text, rule("Add(x, const(c))", constants="embed"))


def test_types_remarks_and_repeated_names() -> None:
    """What the file says of inner values and of nodes, and names that are not unique."""
    before = proto_from_text("""g (float[2] a) => (float[2] o) <float[2] k = {1, 2}> {
        [n] b = Relu (a) [n] c = Add (b, k) [m] d = Neg (c) [n] o = Abs (d) }""")
    tensor = onnx.TensorProto.FLOAT
    infos = [
        onnx.helper.make_tensor_value_info("b", tensor, ["N é", None, 3]),
        onnx.helper.make_tensor_value_info("c", tensor, None),
        onnx.helper.make_tensor_value_info("k", tensor, [2], doc_string="weights"),
        onnx.helper.make_tensor_sequence_value_info("d", tensor, [2]),
    ]
    infos[0].metadata_props.add(key="from", value="torch")
    before.graph.value_info.extend(infos)
    before.graph.node[0].doc_string = 'quoted "text"\n'
    before.graph.node[2].metadata_props.add(key="trace", value="line 1\nline 2")
    check_undone(before, rule("Abs(Neg(Add(Relu(x), y)))", constants="embed"))
    check_undone(before, rule("Neg(Add(x, y))", constants="lift"))


@pytest.mark.parametrize("name", ["b", "é", "x" * 127, "x" * 128, "é" * 64, "y" * 20_000])
def test_types_of_values_with_names_of_any_length(name: str) -> None:
    """Two values with one type differ in nothing but their names."""
    before = proto_from_text(
        "g (float[2] a) => (float[2] o) { b = Relu (a) c = Neg (b) o = Abs (c) }"
    )
    before.graph.node[0].output[0] = before.graph.node[1].input[0] = name
    for value in (name, "c"):
        info = onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [2])
        before.graph.value_info.append(info)
    check_undone(before, "Abs(Neg(Relu(x)))")


def test_text_that_is_not_utf_8() -> None:
    """Documentation of a node comes back with its bytes spelled out; a symbol is refused."""
    before = proto_from_text("g (float[2] a) => (float[2] o) { b = Relu (a) o = Abs (b) }")
    before.graph.node[0].doc_string = "REMARK"
    data = before.SerializeToString().replace(b"REMARK", b"\xff\xfe\xfd\xfc\xfb\xfa")
    before = onnx.ModelProto.FromString(data)
    after, _ = inlined(partitioned(before, rule("Abs(Relu(x))"), matches=1))
    assert after.graph.node[0].doc_string == r"\xff\xfe\xfd\xfc\xfb\xfa"
    assert differences(before, after) == ["main: Relu ['b']: documentation or metadata"]
    info = onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, ["SYMBOL"])
    before.graph.value_info.append(info)
    data = before.SerializeToString().replace(b"SYMBOL", b"\xff\xfe\xfd\xfc\xfb\xfa")
    with pytest.raises(InvalidModelError, match="is not UTF-8 text"):
        partitioned(onnx.ModelProto.FromString(data), rule("Abs(Relu(x))"), matches=1)


def test_a_constant_nodes_remarks() -> None:
    """The node of an embedded constant comes back with what it carried."""
    before = proto_from_text("""g (float[2] a) => (float[2] o) {
        [k1] k = Constant <value = float[2] {1, 2}> () o = Add (a, k) }""")
    before.graph.node[0].doc_string = "a constant"
    before.graph.node[0].metadata_props.add(key="trace", value="here")
    check_undone(before, rule("Add(x, const(c))", constants="embed"))


def test_a_second_target_is_undone_first() -> None:
    """Calls of two runs among each other; one target alone leaves the other's calls."""
    before = proto_from_text("""g (float[2] a, float[2] b) => (float[2] o, float[2] p) {
        c = Relu (a) d = Sigmoid (b) e = Abs (d) f = Neg (c) m = Abs (f) n = Sigmoid (m)
        o = Relu (n) p = Neg (e) }""")
    once = partitioned(before, rule("Neg(Relu(x))", target="first"), matches=1)
    twice = partitioned(once, rule("Abs(Sigmoid(x))", target="second"), matches=1)
    after, _ = inlined(twice)
    assert differences(before, after) == []
    undone, _ = inlined(twice, calls=["r_0_1"])
    assert differences(once, undone) == []


def test_a_second_partition_counts_calls_of_the_first_as_one_node() -> None:
    """Its nodes stood round those that were in a call by then."""
    before = proto_from_text("""g (float[2] a, float[2] b) => (float[2] o, float[2] p) {
        c = Sigmoid (b) d = Relu (a) e = Sin (d) o = Neg (e) p = Abs (c) }""")
    once = partitioned(before, rule("Neg(Sin(Relu(x)))", target="first"), matches=1)
    twice = partitioned(once, rule("Abs(Sigmoid(x))", target="second"), matches=1)
    after, _ = inlined(twice)
    assert differences(before, after) == []


def test_inputs_that_were_initializers_before_ir_4_stay_taken_out() -> None:
    """A partition raises the IR version for good."""
    text = """<ir_version: 3, opset_import: ["" : 9]>
        g (float[2] a, float[2] k) => (float[2] o) <float[2] k = {1, 2}> { o = Add (a, k) }"""
    before = proto_from_text(text)
    written = partitioned(before, rule("Add(x, const(c))", constants="embed"), matches=1)
    after, _ = inlined(written)
    assert differences(before, after) == []
    assert (after.ir_version, [value.name for value in after.graph.input]) == (8, ["a"])


def test_untouched_nodes_keep_their_bytes() -> None:
    """What was in no call is written as it came, fields that onnx has no name for included."""
    before = proto_from_text(SCATTERED)
    odd = before.graph.node[1].SerializeToString() + b"\xfa\x7f\x03odd"
    before.graph.node[1].ParseFromString(odd)
    written = partitioned(before, "Neg(Relu(x))", matches=2)
    after, _ = inlined(written)
    assert after.graph.node[1].SerializeToString() == odd


def test_an_import_goes_when_another_run_takes_the_last_function() -> None:
    """A function of the model that the last run does not touch loses the import, too."""
    before = proto_from_text("""
        <ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] a) => (y, z) { y = Relu (a) z = own.f (a) }
        <domain: "own", opset_import: ["" : 17]> f (a) => (b) { [n] b = Neg (a) }""")
    rules = [rule("Neg(x)", name="neg"), rule("Relu(x)", name="relu")]
    written = partitioned(before, rules, matches=2)
    for name in ("neg", "relu"):
        model = model_from_bytes(written.SerializeToString())
        inline(model, [model.functions["t", name, ""]])
        written = to_proto(model)
    assert differences(before, written) == []


def test_a_statement_that_says_nothing_comes_back() -> None:
    """A ``value_info`` of nothing but a name."""
    proto = proto_from_text("g (float[2] a) => (float[2] o) { t = Relu (a) o = Abs (t) }")
    proto.graph.value_info.add(name="t")
    check_undone(proto, "Abs(Relu(x))")


FOREIGN = """<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float16[n, 4] x, bool c) => (float16[n, 4] y) <float16[4] s = {{1, 1, 1, 1}}> {{ {} }}"""
BRANCHES = """<then_branch = t () => (float16[n, 4] z) {{ {} z = Neg (a) }},
    else_branch = e () => (float16[n, 4] w) {{ w = Exp (x) }}>"""


@pytest.mark.parametrize(
    ("nodes", "stated"),
    [
        ("a = com.microsoft.Gelu (x) b = Neg (a) y = Exp (b)", "float16[n,4]"),
        ("b = com.microsoft.Gelu (x) a = Relu (b) y = Exp (a)", "float16[n,4]"),
        (f"a = com.microsoft.Gelu (x) y = If (c) {BRANCHES.format('')}", "float16[n,4]"),
        (f"y = If (c) {BRANCHES.format('a = com.microsoft.Gelu (x)')}", "float16[?,4]"),
        ("a = Neg (x) y = com.microsoft.Gelu (a)", ""),
        ("a = Relu (x) y = Exp (a)", ""),
    ],
    ids=["reader", "last", "captured", "body", "returned", "standard"],
)
def test_types_of_what_onnx_knows_nothing_of(nodes: str, stated: str) -> None:
    """They are stated of such calls, and of no others: onnx's check passes; none is left behind."""
    original = proto_from_text(FOREIGN.format(nodes))
    onnx.checker.check_model(original, full_check=True)
    rules = rule("Relu(com.microsoft.Gelu(x)) | com.microsoft.Gelu(x) | Relu(x)")
    written = partitioned(original, rules, matches=1)

    onnx.checker.check_model(written, full_check=True)
    model = model_from_bytes(written.SerializeToString())
    values = [value for graph in model.graphs() for value in graph.values.values()]
    types = {value.name: str(value.declared_type) for value in values if value.stated_type}
    assert types == ({"a": stated} if stated else {})
    check_undone(original, rules)


def test_a_stated_type_stays_when_a_call_is_undone() -> None:
    """Only a statement that a partition has added goes."""
    original = proto_from_text(FOREIGN.format("a = com.microsoft.Gelu (x) y = Neg (a)"))
    known = onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT16, [None, 4])
    original.graph.value_info.append(known)
    check_undone(original, rule("com.microsoft.Gelu(x)"))
