"""Repeated blocks: what is one, what is none, and what becomes of it."""

import json

import onnx
import pytest

from dplcli.settings import RepeatSettings
from tests.passes.repeating import (
    ANY_SAVING,
    chain,
    check_repeat,
    describe,
    numbered,
    repeated,
    weights,
)
from tests.support.helpers import check_sound, proto_from_text

LAYER = "a# = Relu (@) b# = Sin (a#) c# = Mul (b#, @) d# = Tanh (c#)"
HEAD = "g (float[4] x) => (float[4] z)"


def test_a_stack_of_layers_becomes_calls_of_one_function() -> None:
    """Three layers of four nodes: one function, three calls, and what is behind them."""
    check_repeat(
        chain(3, numbered(LAYER)),
        ["block: a0,b0,c0,d0 a1,b1,c1,d1 a2,b2,c2,d2"],
        after="""
        (x) => (z) {
          [block_0] d0 = repeat.block (x)
          [block_1] d1 = repeat.block (d0)
          [block_2] d2 = repeat.block (d1)
          z = Neg (d2)
        }
        repeat.block (x) => (Tanh_3_out) {
          [Relu_0] Relu_0_out = Relu (x)
          [Sin_1] Sin_1_out = Sin (Relu_0_out)
          [Mul_2] Mul_2_out = Mul (Sin_1_out, x)
          [Tanh_3] Tanh_3_out = Tanh (Mul_2_out)
        }
        """,
    )


def test_weights_are_inputs() -> None:
    """Each layer has weights of its own; none of them goes into the function."""
    layer = numbered("a# = Mul (@, w#) b# = Sin (a#) c# = Add (b#, v#) d# = Relu (c#)")
    text = chain(3, layer).replace(" {", f" <{weights('w v', 3)}> {{", 1)
    model, _, _ = repeated(text)
    check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1 a2,b2,c2,d2"])
    calls = [[v.name for v in node.inputs if v] for node in model.graph if node.domain]
    assert calls == [["x", "w0", "v0"], ["d0", "w1", "v1"], ["d1", "w2", "v2"]]


def test_a_weight_that_all_share_is_an_input_too() -> None:
    """What is the same for all stays outside, under its own name."""
    layer = numbered("a# = Mul (@, w0) b# = Sin (a#) c# = Add (b#, w0) d# = Relu (c#)")
    text = chain(2, layer).replace(" {", f" <{weights('w', 1)}> {{", 1)
    model, _, _ = repeated(text)
    check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1"])
    (function,) = model.functions.values()
    assert [value.name for value in function.body.inputs] == ["x", "w0"]


# -- attributes -------------------------------------------------------------------------------

LEAKY = (
    "a0 = LeakyRelu <alpha = 0.5> (x) b0 = Sin (a0) c0 = Cos (b0) d0 = Tanh (c0) "
    "a1 = LeakyRelu <alpha = 0.5> (d0) b1 = Sin (a1) c1 = Cos (b1) d1 = Tanh (c1) "
)


def test_equal_attributes_stay_in_the_body() -> None:
    """What is the same in every block is written once."""
    model, result, _ = repeated(f"{HEAD} {{ {LEAKY} z = Neg (d1) }}")
    (function,) = model.functions.values()
    assert (function.attributes, result.families[0].differing) == ((), ())
    assert next(iter(function.body)).attributes["alpha"].value == 0.5
    check_repeat(f"{HEAD} {{ {LEAKY} z = Neg (d1) }}", ["block: a0,b0,c0,d0 a1,b1,c1,d1"])


@pytest.mark.parametrize(
    ("stated", "given"),
    [("<alpha = 0.25>", 0.25), ("", 0.01)],
    ids=["another-value", "left-to-its-default"],
)
def test_differing_attributes_are_given_at_the_calls(stated: str, given: float) -> None:
    """An attribute in which blocks differ is declared; what was left out is completed, and said."""
    nodes = LEAKY.replace("a1 = LeakyRelu <alpha = 0.5>", f"a1 = LeakyRelu {stated}")
    text = f"{HEAD} {{ {nodes} z = Neg (d1) }}"
    proto = check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1"])
    calls = [node for node in proto.graph.node if node.domain]
    assert [call.attribute[0].f for call in calls] == pytest.approx([0.5, given])
    assert list(proto.functions[0].attribute) == ["alpha"]
    entries = [json.loads(call.metadata_props[0].value)[0] for call in calls]
    assert [entry[3:] for entry in entries] == [[], [] if stated else [["alpha"]]]


def test_a_default_that_all_but_one_state_is_no_difference() -> None:
    """The default value, stated here and left out there, is one value."""
    nodes = LEAKY.replace("<alpha = 0.5>", "<alpha = 0.01>", 1).replace("<alpha = 0.5>", "")
    proto = check_repeat(f"{HEAD} {{ {nodes} z = Neg (d1) }}", ["block: a0,b0,c0,d0 a1,b1,c1,d1"])
    assert not proto.functions[0].attribute
    second = json.loads(proto.graph.node[1].metadata_props[0].value)
    assert second[0] == ["LeakyRelu", "", ["a1"], ["alpha"]]


def test_with_same_attributes_another_value_is_another_block() -> None:
    """Near miss: one layer of three differs in an attribute, so two are left."""
    layer = "a# = LeakyRelu <alpha = 0.5> (@) b# = Sin (a#) c# = Cos (b#) d# = Tanh (c#)"
    text = chain(3, numbered(layer)).replace("a1 = LeakyRelu <alpha = 0.5>", "a1 = LeakyRelu")
    same = ANY_SAVING.but(same_attributes=True)
    check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1 a2,b2,c2,d2"])
    check_repeat(text, ["block: a0,b0,c0,d0 a2,b2,c2,d2"], options=same)


CONSTANTS = (
    "k# = Constant <value = float[4] {1, 2, 3, #}> () a# = Add (@, k#) b# = Sin (a#) "
    "c# = Cos (b#) d# = Relu (c#)"
)


def test_small_constants_belong_to_the_block() -> None:
    """Constant nodes are in the body; numbers that differ are attributes of the calls."""
    proto = check_repeat(
        chain(3, numbered(CONSTANTS)), ["block: k0,a0,b0,c0,d0 k1,a1,b1,c1,d1 k2,a2,b2,c2,d2"]
    )
    assert list(proto.functions[0].attribute) == ["value"]
    assert len(proto.graph.node) == 4


def test_a_constant_read_elsewhere_is_an_input() -> None:
    """Near miss: another node reads the constant of one block, so all of them stay outside."""
    text = chain(2, numbered(CONSTANTS)).replace("Neg (d1)", "Sub (d1, k0)")
    check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1"])


def test_a_large_constant_is_a_weight() -> None:
    """Near miss: 65 numbers stay outside, as an initializer would; 64 go into the body."""
    for count, size in ((64, 5), (65, 4)):
        numbers = ", ".join("1" * 1 for _ in range(count))
        layer = f"k# = Constant <value = float[{count}] {{{numbers}}}> () a# = Add (@, k#) "
        text = chain(2, numbered(layer + "b# = Sin (a#) c# = Cos (b#) d# = Relu (c#)"))
        text = text.replace("float[4]", f"float[{count}]")
        _, result, _ = repeated(text)
        assert [family.size for family in result.families] == [size]
        check_repeat(text, [describe(family) for family in result.families])


def test_attributes_that_a_caller_gives_are_handed_on() -> None:
    """Blocks in a function that read its attribute: they get it at their calls."""
    layers = LEAKY.replace("<alpha = 0.5>", "<alpha: float = @slope>").replace("(x)", "(u)")
    text = f"""<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
    {HEAD} {{ z = f.two <slope = 0.3> (x) }}
    <domain: "f", opset_import: ["" : 17]> two <slope> (u) => (w) {{ {layers} w = Neg (d1) }}"""
    proto = check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1"])
    outer = next(function for function in proto.functions if function.domain == "f")
    assert [node.attribute[0].ref_attr_name for node in outer.node[:2]] == ["slope", "slope"]


def test_a_domain_that_is_used_without_being_imported() -> None:
    """The model does not say which version of an operator's domain it uses: it is imported."""
    layer = numbered("a# = Relu (@) b# = Sin (a#) c# = Mul (b#, @) d# = Tanh (c#)")
    proto = proto_from_text(chain(2, layer).replace("Sin", "com.microsoft.Gelu"))
    kept = [entry for entry in proto.opset_import if not entry.domain]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)
    _, result, written = repeated(proto.SerializeToString())
    assert [describe(f) for f in result.families] == ["block: a0,b0,c0,d0 a1,b1,c1,d1"]
    (function,) = onnx.ModelProto.FromString(written).functions
    imports = {entry.domain: entry.version for entry in function.opset_import}
    assert imports == {"": 17, "com.microsoft": 1}


# -- what is equal ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "second",
    [
        pytest.param("a1 = Sin (d0) b1 = Sin (a1) c1 = Mul (b1, d0) d1 = Tanh (c1)", id="operator"),
        pytest.param("a1 = Relu (d0) b1 = Sin (a1) c1 = Mul (d0, b1) d1 = Tanh (c1)", id="slot"),
        pytest.param("a1 = Relu (d0) b1 = Sin (a1) c1 = Mul (b1, a1) d1 = Tanh (c1)", id="wire"),
        pytest.param(
            "a1 = Relu (d0) b1 = Clip (a1) c1 = Mul (b1, d0) d1 = Tanh (c1)", id="inserted"
        ),
    ],
)
def test_what_is_nearly_equal_is_no_block(second: str) -> None:
    """Near misses: one operator, one slot, or one wire is different."""
    first = "a0 = Relu (x) b0 = Sin (a0) c0 = Mul (b0, x) d0 = Tanh (c0)"
    check_repeat(f"{HEAD} {{ {first} {second} z = Neg (d1) }}", [])


def test_optional_inputs_that_only_one_has_are_a_difference() -> None:
    """Near miss: a bound is given here and left out there."""
    layer = "a# = Clip (@, , m) b# = Sin (a#) c# = Cos (b#) d# = Relu (c#)"
    bound = "<float m = {0.5}>"
    text = chain(2, numbered(layer)).replace(" {", f" {bound} {{", 1)
    check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1"])
    check_repeat(text.replace("Clip (x, , m)", "Clip (x, m)"), [])


def test_shapes_may_differ() -> None:
    """A function does not care for shapes: blocks over four and over two rows share one."""
    text = """g (float[4, 4] x, float[2, 4] y) => (float[4, 4] p, float[2, 4] q)
    { a = Relu (x) b = Sin (a) c = Cos (b) p = Softmax (c)
      d = Relu (y) e = Sin (d) f = Cos (e) q = Softmax (f) }"""
    check_repeat(text, ["block: a,b,c,p d,e,f,q"])


def test_the_same_value_given_for_two_inputs() -> None:
    """One block reads one value twice, another two values: both are calls of one function."""
    text = """g (float[4] x, float[4] y) => (float[4] p, float[4] q)
    { a = Relu (x) b = Sin (a) c = Mul (b, x) p = Tanh (c)
      d = Relu (x) e = Sin (d) f = Mul (e, y) q = Tanh (f) }"""
    model, _, _ = repeated(text)
    check_repeat(text, ["block: a,b,c,p d,e,f,q"])
    calls = [[v.name for v in node.inputs if v] for node in model.graph]
    assert calls == [["x", "x"], ["x", "y"]]


# -- what leaves a block ----------------------------------------------------------------------


def test_an_inner_value_read_outside_is_an_output_of_all() -> None:
    """One block's inner value has another reader: every call returns it."""
    text = chain(2, numbered(LAYER)).replace("z = Neg (d1)", "z = Sub (d1, b0)")
    model, _, _ = repeated(text)
    check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1"])
    calls = [[v.name for v in node.outputs if v] for node in model.graph if node.domain]
    assert calls == [["d0", "b0"], ["d1", "b1"]]


def test_an_inner_value_may_be_a_graph_output() -> None:
    """Each layer returns a state, as those with a cache do."""
    text = """g (float[4] x) => (float[4] b0, float[4] b1, float[4] d1)
    { a0 = Relu (x) b0 = Sin (a0) c0 = Mul (b0, x) d0 = Tanh (c0)
      a1 = Relu (d0) b1 = Sin (a1) c1 = Mul (b1, d0) d1 = Tanh (c1) }"""
    proto = check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1"])
    assert [list(node.output) for node in proto.graph.node] == [["d0", "b0"], ["d1", "b1"]]


def test_an_inner_value_may_be_read_in_a_body() -> None:
    """A branch reads it: it is an output, and the If comes behind the call."""
    text = """g (float[4] x, bool k) => (float[4] z)
    { a0 = Relu (x) b0 = Sin (a0) i = If (k) <then_branch = t () => (float[4] r) { r = Relu (b0) },
      else_branch = e () => (float[4] s) { s = Abs (b0) }>
      c0 = Mul (b0, x) d0 = Tanh (c0)
      a1 = Relu (d0) b1 = Sin (a1) c1 = Mul (b1, d0) d1 = Tanh (c1) z = Add (d1, i) }"""
    check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1"])


def test_what_a_block_needs_back_is_not_in_it() -> None:
    """A value goes out and comes back: the smaller side of the detour is left out."""
    layer = "a# = Relu (@) b# = Sin (a#) c# = Cos (b#) e# = Exp (c#) f# = Ceil (e#) "
    back = ["h# = Abs (f#) ", "h# = Neg (f#) "]
    close = "d# = Add (f#, h#)"
    text = chain(2, lambda n, v: numbered(layer + back[n % 2] + close)(n, v))
    check_repeat(text, ["block: a0,b0,c0,e0,f0 a1,b1,c1,e1,f1"])


def test_blocks_that_need_each_other_are_no_blocks() -> None:
    """Each of two equal regions reads what the other makes inside: no call can come first."""
    text = """g (float[4] x, float[4] y) => (float[4] p, float[4] q)
    { a = Relu (x) b = Sin (a) c = Cos (b) d = Relu (y) e = Sin (d) f = Cos (e)
      s = Mul (c, e) t = Mul (f, b) p = Tanh (s) q = Tanh (t) }"""
    options = ANY_SAVING.but(min_nodes=5)
    check_repeat(text, [], options=options)


def test_blocks_listed_row_by_row() -> None:
    """The nodes of many blocks are mixed in the file, and something reads inner values of each."""
    branches, rows = 12, ("Relu", "Sin", "Cos", "Tanh", "Abs")
    lines = [
        f"v{row}_{branch} = {op} ({f'v{row - 1}_{branch}' if row else 'x'})"
        for row, op in enumerate(rows)
        for branch in range(branches)
    ]
    taken = [f"n{branch} = Neg (v2_{branch})" for branch in range(branches)]
    lines[3 * branches : 3 * branches] = taken
    ends = [f"{name}{branch}" for branch in range(branches) for name in ("v4_", "n")]
    outputs = ", ".join(f"float[4] {name}" for name in ends)
    text = f"g (float[4] x) => ({outputs}) {{ {' '.join(lines)} }}"
    model, result, _ = repeated(text)
    (family,) = result.families
    assert (len(family.partitions), family.size) == (12, 6)
    check_repeat(text, [describe(family)])
    inner = ANY_SAVING.but(min_nodes=4)
    cut = text.replace("n0 = Neg", "n0 = Exp").replace("n5 = Neg", "n5 = Ceil")
    _, result, _ = repeated(cut, inner)
    check_repeat(cut, [describe(found) for found in result.families], options=inner)
    assert model.graph.node_count == branches


def test_the_call_stands_where_all_that_it_reads_is_there() -> None:
    """The nodes of two blocks are in another order, and one reads a value that comes late."""
    text = """g (float[4] x) => (float[4] p, float[4] q)
    { s0 = Abs (x) a0 = Relu (x) c0 = Cos (a0) e0 = Add (c0, s0) b0 = Sin (a0) p = Sub (b0, e0)
      a1 = Relu (p) b1 = Sin (a1) s1 = Ceil (p) c1 = Cos (a1) e1 = Add (c1, s1)
      q = Pow (b1, e1) }"""
    check_repeat(text, ["block: a0,c0,e0,b0 a1,c1,e1,b1"])


def test_what_reads_a_block_stands_behind_its_call() -> None:
    """The one output is read before the block's last node, which nobody reads."""
    layer = "a# = Relu (@) b# = Sin (a#) d# = Cos (b#) "
    text = chain(
        2,
        lambda n, v: numbered(
            layer + f"{'gh'[n]}# = {('Neg', 'Exp')[n]} (d#) e# = Floor (a#)", "gh"[n]
        )(n, v),
    )
    check_repeat(text, ["block: a0,b0,d0,e0 a1,b1,d1,e1"])


# -- overlap ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [8, 9, 12, 13])
def test_a_chain_of_equal_nodes(count: int) -> None:
    """Blocks of four out of a chain of one operator: as many as fit, one after the other."""
    text = chain(count, numbered("d# = Relu (@)"), last="Sin")
    _, result, _ = repeated(text)
    (family,) = result.families
    found = [node.outputs[0] for p in family.partitions for node in p.match.nodes]
    names = [value.name for value in found if value is not None]
    first = int(names[0][1:])
    assert names == [f"d{first + number}" for number in range(count // 4 * 4)]
    check_repeat(text, [describe(family)])


def test_a_chain_that_is_too_short() -> None:
    """Near miss: seven nodes are not two blocks of four."""
    check_repeat(chain(7, numbered("d# = Relu (@)"), last="Sin"), [])


def test_a_node_is_in_one_block() -> None:
    """Two equal regions share their first node: what is left of each is the block."""
    text = """g (float[4] x) => (float[4] p, float[4] q)
    { a = Relu (x) b = Sin (a) c = Cos (b) d = Exp (c) p = Tanh (d)
      e = Sin (a) f = Cos (e) h = Exp (f) q = Tanh (h) }"""
    check_repeat(text, ["block: b,c,d,p e,f,h,q"])


def test_where_a_layer_ends_is_where_least_goes_across() -> None:
    """Layers that begin with a norm, and a last norm behind them: the norm is the layer's first."""
    layer = numbered("n# = Tanh (@) a# = Sin (n#) b# = Relu (a#) c# = Cos (b#) d# = Add (@, c#)")
    check_repeat(
        chain(3, layer, last="Tanh"), ["block: n0,a0,b0,c0,d0 n1,a1,b1,c1,d1 n2,a2,b2,c2,d2"]
    )


@pytest.mark.parametrize("norm", ["last", "first"])
def test_names_decide_where_a_layer_ends_if_nothing_else_does(norm: str) -> None:
    """A norm before the first layer and one behind each: by wiring it could be either's."""
    layer = "a# = Sin (@) b# = Exp (a#) c# = Add (b#, @) d# = Tanh (c#)"
    text = chain(3, numbered(layer)).replace("{ a0 = Sin (x)", "{ n = Tanh (x) a0 = Sin (n)")
    proto = proto_from_text(text.replace("Add (b0, x)", "Add (b0, n)"))
    for node in proto.graph.node:
        letter, number = node.output[0][0], int(node.output[0][1:] or -1)
        if letter == "d" and norm == "first":
            number += 1
        node.name = f"/layer.{number}/{letter}" if 0 <= number < 3 else f"/other/{letter}"
    if norm == "first":
        proto.graph.node[0].name = "/layer.0/d"
    _, result, _ = repeated(proto.SerializeToString())
    wanted = {
        "last": "layer: a0,b0,c0,d0 a1,b1,c1,d1 a2,b2,c2,d2",
        "first": "layer: n,a0,b0,c0 d0,a1,b1,c1 d1,a2,b2,c2",
    }
    assert [describe(family) for family in result.families] == [wanted[norm]]


# -- kinds of blocks --------------------------------------------------------------------------

TWO_KINDS = (
    "g (float[4] x) => (float[4] z) { "
    + " ".join(
        numbered(text)(number, "x" if not number else f"d{number - 1}")[0]
        for number, text in enumerate(
            [LAYER] * 3 + ["a# = Cos (@) b# = Exp (a#) c# = Abs (b#) d# = Ceil (c#)"] * 2
        )
    )
    + " z = Neg (d4) }"
)


def test_several_kinds_of_blocks() -> None:
    """Two kinds: a function each, the one that saves more first."""
    check_repeat(
        TWO_KINDS,
        ["block: a0,b0,c0,d0 a1,b1,c1,d1 a2,b2,c2,d2", "block_1: a3,b3,c3,d3 a4,b4,c4,d4"],
    )


def test_max_families_counts_those_of_earlier_runs() -> None:
    """One kind is asked for: the most saving one; a second run adds none."""
    check_repeat(
        TWO_KINDS,
        ["block: a0,b0,c0,d0 a1,b1,c1,d1 a2,b2,c2,d2"],
        options=ANY_SAVING.but(max_families=1),
    )


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (RepeatSettings(min_saving=0, min_repeats=3), 1),
        (RepeatSettings(min_saving=0, min_repeats=4), 0),
        (RepeatSettings(min_saving=0, min_nodes=5), 0),
        (RepeatSettings(min_saving=0.2), 1),
        (RepeatSettings(min_saving=0.25), 0),
    ],
)
def test_limits(options: RepeatSettings, found: int) -> None:
    """How often, how large, and how much of the 21 nodes is saved: 5 by the first kind, 2."""
    _, result, _ = repeated(TWO_KINDS, options)
    assert len(result.families) == found


def test_two_stacks_of_layers_that_are_nearly_equal_are_two_kinds() -> None:
    """Layers of another stack have a part in common with these: whole layers win over the part."""
    shared = "a# = Relu (@) b# = Sin (a#) c# = Cos (b#) e# = Exp (c#) f# = Abs (e#) "
    first = numbered(shared + "i# = Ceil (f#) j# = Tanh (i#) d# = Mul (j#, @)")
    second = numbered(shared + "i# = Floor (f#) j# = Sqrt (i#) d# = Mul (j#, @)")
    text = chain(8, lambda n, v: (first if n < 4 else second)(n, v))
    _, result, _ = repeated(text)
    assert [(len(f.partitions), f.size) for f in result.families] == [(4, 8), (4, 8)]


# -- inside others ----------------------------------------------------------------------------

NESTED = numbered(
    "a# = Relu (@) b# = Sin (a#) c# = Cos (b#) e# = Exp (c#) m# = Ceil (e#) "
    "f# = Relu (m#) h# = Sin (f#) i# = Cos (h#) j# = Exp (i#) d# = Add (j#, @)"
)


def test_nested_blocks_are_functions_that_functions_call() -> None:
    """Each of two layers has two equal halves: a function in which a function is called."""
    text = chain(9, NESTED, last="Sqrt")
    _, result, _ = repeated(text)
    assert [(len(f.partitions), f.size) for f in result.families] == [(9, 10)]
    halves = "Relu_0_out,Sin_1_out,Cos_2_out,Exp_3_out Relu_5_out,Sin_6_out,Cos_7_out,Exp_8_out"
    proto = check_repeat(
        text,
        [describe(result.families[0]), f"block_1: {halves}"],
        options=ANY_SAVING.but(nested=True),
    )
    layer = next(function for function in proto.functions if function.name == "block")
    assert [node.op_type for node in layer.node] == ["block_1", "Ceil", "block_1", "Add"]
    assert {entry.domain: entry.version for entry in layer.opset_import} == {"": 17, "repeat": 1}


def test_bodies_are_searched() -> None:
    """Blocks in the branch of an If, in the other one, and in the main graph share a function."""
    block = "a# = Relu (@) b# = Sin (a#) c# = Mul (b#, @) {} = Tanh (c#)"
    main, then, other = (numbered(block.format(f"d{n}"))(n, v)[0] for n, v in enumerate("xyx"))
    text = f"""g (float[4] x, float[4] y, bool k) => (float[4] z) {{ {main}
    i = If (k) <then_branch = t () => (float[4] d1) {{ {then} }},
    else_branch = e () => (float[4] d2) {{ {other} }}> z = Add (i, d0) }}"""
    check_repeat(text, ["block: a0,b0,c0,d0 a1,b1,c1,d1 a2,b2,c2,d2"])


def test_a_node_with_a_body_is_in_no_block() -> None:
    """Near miss: an If in the middle of each layer; the rest of the layers repeats."""
    branches = (
        "<then_branch = t# () => (float[4] r#) { r# = Relu (c#) }, "
        "else_branch = e# () => (float[4] s#) { s# = Abs (c#) }>"
    )
    layer = f"a# = Relu (@) b# = Sin (a#) e# = Exp (b#) c# = Cos (e#) d# = If (k) {branches}"
    text = chain(2, numbered(layer)).replace("float[4] x)", "float[4] x, bool k)")
    check_repeat(text, ["block: a0,b0,e0,c0 a1,b1,e1,c1"])


# -- names ------------------------------------------------------------------------------------


MODULES = {"a": "fc/MatMul", "b": "act/Sin", "c": "out/Add", "d": "out/Relu"}


def test_names_come_from_what_the_model_calls_its_parts() -> None:
    """The function, its inputs and its nodes are named after modules, numbers left out."""
    layer = numbered("a# = Mul (@, w#) b# = Sin (a#) c# = Add (b#, v#) d# = Relu (c#)")
    text = chain(2, layer).replace(" {", f" <{weights('w v', 2)}> {{", 1)
    proto = proto_from_text(text)
    renamed = {f"w{number}": f"enc.layer.{number}.fc.weight" for number in range(2)}
    renamed |= {"v0": "onnx::Add_12", "v1": "onnx::Add_17"}
    for tensor in proto.graph.initializer:
        tensor.name = renamed[tensor.name]
    for node in proto.graph.node[:-1]:
        letter, number = node.output[0]
        node.name = f"/m/enc/layer.{number}/{MODULES[letter]}"
        node.input[:] = [renamed.get(name, name) for name in node.input]

    model, result, _ = repeated(proto.SerializeToString())

    (function,) = model.functions.values()
    assert [describe(f) for f in result.families] == ["enc_layer: a0,b0,c0,d0 a1,b1,c1,d1"]
    assert [value.name for value in function.body.inputs] == ["x", "fc_weight", "out_Add_B"]
    assert [node.name for node in function.body] == [f"/{name}" for name in MODULES.values()]
    calls = [node.name for node in model.graph if node.domain]
    assert calls == ["enc_layer_0", "enc_layer_1"]


def test_names_in_bodies_are_not_mistaken_for_those_of_other_calls() -> None:
    """What onnxruntime makes of the names of a call and of a node in its function is unique.

    The first kind is called ``layer`` and has a part ``1/f/Relu``; the second is ``layer_1`` and
    has a part ``f/Relu``.
    """
    first = [f"a# = Relu (@) b# = {op} (a#) c# = Sin (b#) d# = Add (c#, @)" for op in ("Abs",) * 3]
    second = "a# = Relu (@) b# = Cos (a#) c# = Exp (b#) d# = Tanh (c#)"
    text = chain(6, lambda n, v: numbered([*first, second, second, second][n])(n, v))
    proto = proto_from_text(text)
    for node in proto.graph.node[:-1]:
        number = node.output[0][1]
        inner = "1/f" if int(number) < 3 else "f"
        node.name = f"/layer.{number}/{inner}/{node.op_type}"
    _, result, written = repeated(proto.SerializeToString())
    assert [family.function.name for family in result.families] == ["layer", "layer_1"]
    check_sound(proto, onnx.ModelProto.FromString(written))


def test_names_that_others_have_are_left_to_them() -> None:
    """An operator ``repeat::block`` that is no function of the model keeps its name."""
    text = chain(2, numbered(LAYER)).replace("Neg (d1)", "repeat.block (d1)")
    header = '<ir_version: 8, opset_import: ["" : 17, "repeat" : 1]>'
    model, result, _ = repeated(f"{header} {text}")
    assert [family.function.name for family in result.families] == ["block_1"]
    assert [node.op_type for node in model.graph] == ["block_1", "block_1", "block"]
