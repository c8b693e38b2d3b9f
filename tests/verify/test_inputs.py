"""Inputs that fit the model: bounds of indices, sizes of symbols, domains of operators."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from dplcli.errors import UsageError, VerificationError
from dplcli.report.json import parts_of
from dplcli.verify import Check, InputChoice
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.inputs.draws import Range, draw
from dplcli.verify.inputs.relations import static_sizes, tied_sizes
from dplcli.verify.inputs.sizes import shape_of, size_plans
from dplcli.verify.model import Bound, Dataflow, Port, input_domain, input_ports

Save = Callable[..., Path]

TABLE = "float[50, 2] table"
HEADER = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
FLOAT, INT64, BOOL = 1, 7, 9


def tables(text: str, **sizes: int) -> onnx.ModelProto:
    """Return a model with initializers of two columns and the given numbers of rows."""
    model = onnx.parser.parse_model(HEADER + text)
    for name, rows in sizes.items():
        values = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return model


def choices(path: Path, **settings: object) -> dict[str, InputChoice]:
    """Return what each input of a model is fed when the model is compared with itself."""
    result = verify_equivalence(path, path, Check(**settings))  # type: ignore[arg-type]
    assert result.equivalent
    return {choice.name: choice for choice in result.inputs}


def parsed(text: str) -> onnx.ModelProto:
    """Parse a model in which weights are declared and hold nothing; they get zeros."""
    model = onnx.parser.parse_model(HEADER + text)
    graph = model.graph
    known = {name for node in graph.node for name in node.output}
    known |= {tensor.name for tensor in graph.initializer}
    for info in graph.value_info:
        if info.name not in known:
            shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            zeros = np.zeros(shape, np.float32)
            graph.initializer.append(onnx.numpy_helper.from_array(zeros, info.name))
    return model


def bounds(text: str, name: str) -> set[Bound]:
    """Return the index bounds that the consumers of one input set."""
    model = parsed(text)
    ports = {port.name: port for port in input_ports(model.graph)}
    return input_domain(Dataflow(model), ports[name]).bounds


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("y = Gather (table, i)", id="directly"),
        pytest.param("c = Cast <to = 6> (i) y = Gather (table, c)", id="cast"),
        pytest.param(
            "s = Constant <value_ints = [-1]> () r = Reshape (i, s) y = Gather (table, r)",
            id="reshape",
        ),
        pytest.param("d = Identity (table) y = Gather (d, i)", id="data-behind-identity"),
        pytest.param("d = Relu (table) y = Gather (d, i)", id="data-behind-inferred-shape"),
        pytest.param("y = own.embed (table, i)", id="inside-a-function"),
        pytest.param("j = own.pass (i) y = Gather (table, j)", id="out-of-a-function"),
        pytest.param("y = own.outer (table, i)", id="inside-a-nested-function"),
        pytest.param(
            """b = Constant <value = bool {1}> ()
            y = If (b) <then_branch = t () => (float[N, 2] p) { p = Gather (table, i) },
                        else_branch = e () => (float[N, 2] q) { q = Gather (table, i) }>""",
            id="inside-a-branch",
        ),
    ],
)
def test_index_is_bounded_by_the_axis_it_selects_from(body: str) -> None:
    """However an index reaches its Gather, the size of the table bounds it."""
    text = f"""g (int64[N] i) => (float[a, b] y) <{TABLE}> {{ {body} }}
    <domain: "own", opset_import: ["" : 17]> embed (t, k) => (r) {{ r = Gather (t, k) }}
    <domain: "own", opset_import: ["" : 17]> pass (k) => (r) {{ r = Identity (k) }}
    <domain: "own", opset_import: ["" : 17, "own" : 1]>
    outer (t, k) => (r) {{ r = own.embed (t, k) }}"""

    assert bounds(text, "i") == {Bound(50)}


def test_axis_attribute_of_a_call_reaches_the_bound() -> None:
    """The axis may be an attribute that the function's caller gives."""
    text = """g (int64[3] i) => (float[a, b] y) <float[50, 4] table>
    { y = own.pick <n = 1> (table, i) }
    <domain: "own", opset_import: ["" : 17]>
    pick <n> (t, k) => (r) { r = Gather <axis: int = @n> (t, k) }"""

    assert bounds(text, "i") == {Bound(4)}


def test_smallest_of_several_tables_bounds_the_index(save: Save) -> None:
    """An index that two tables share fits both."""
    text = """g (int64[40] i) => (float[a, b] y, float[c, d] z)
    { y = Gather (t, i) z = Gather (u, i) }"""

    assert choices(save(tables(text, t=50, u=9)))["i"].high == 8


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("o = Add (i, two) y = Gather (t, o)", 0, 47),
        ("o = Add (two, i) y = Gather (t, o)", 0, 47),
        ("o = Sub (i, two) y = Gather (t, o)", 2, 51),
    ],
)
def test_constant_offset_moves_the_bounds(save: Save, body: str, low: int, high: int) -> None:
    """What is added to an index on the way is taken off its range."""
    text = f"g (int64[999] i) => (float[a, b] y) <int64 two = {{2}}> {{ {body} }}"

    choice = choices(save(tables(text, t=50)))["i"]

    assert (choice.low, choice.high) == (low, high)


def test_index_into_another_input_is_bounded_by_the_size_chosen_for_it(save: Save) -> None:
    """A symbol bounds an index with the number that the symbol gets."""
    path = save("g (float[S, 2] x, int64[200] i) => (float[a, b] y) { y = Gather (x, i) }")

    chosen = choices(path, sizes={"S": 11})

    assert chosen["x"].shape == (11, 2)
    assert chosen["i"].high == 10


def test_number_of_a_negative_index_is_no_bound(save: Save) -> None:
    """Exporters add the size of the axis to negative indices; the others use all of the table."""
    text = """g (int64[40] i) => (float[a, b] y) <int64 zero = {0}, int64 rows = {50}> {
        below = Less (i, zero) moved = Add (i, rows) k = Where (below, moved, i)
        y = Gather (t, k) }"""

    choice = choices(save(tables(text, t=50)))["i"]

    assert (choice.low, choice.high) == (0, 49)


def test_clipped_index_is_bounded_by_the_table() -> None:
    """Whole numbers go on through Clip; of a float, nothing is learnt behind it."""
    text = """g (int64[N] i, float[N] x) => (float[a, b] y, float[N] z)
    <float[50, 2] table, int64 low = {0}, int64 high = {49}, float tiny = {0.001}>
    { k = Clip (i, low, high) y = Gather (table, k) p = Clip (x, tiny) z = Log (p) }"""
    model = parsed(text)
    ports = {port.name: port for port in input_ports(model.graph)}

    assert bounds(text, "i") == {Bound(50, is_strict=False)}
    assert input_domain(Dataflow(model), ports["x"]).uses == set()


@pytest.mark.parametrize(
    ("indices", "attributes", "limits"),
    [
        ("int64[N, 1]", "", {50}),
        ("int64[N, 2]", "", {50, 3}),
        ("int64[50, N, 1]", "<batch_dims = 1>", {3}),
        ("int64[N, K]", "", {50, 3, 4}),
    ],
)
def test_tuples_of_indices_are_bounded_by_the_axes_that_they_select_from(
    indices: str, attributes: str, limits: set[int]
) -> None:
    """As many axes as a tuple has numbers, after those of the batch; all, if that is not known."""
    text = f"""g ({indices} i) => (float y) <float[50, 3, 4] table>
    {{ y = GatherND {attributes} (table, i) }}"""

    assert bounds(text, "i") == {Bound(limit) for limit in limits}


CLASSES = """g (int64[N, 4] i) => (float[a, b, c] y)
<int64[1] last = {-1}, int64[3] shape = {1, 1, 5}, int64 zero = {0}, int64 one = {1},
 int64 five = {5}, int64[5] table = {TABLE}> { u = Unsqueeze (i, last) BODY
e = Equal (SIDES) y = Cast <to = 1> (e) }
<domain: "own", opset_import: ["" : 17]> same (a, b) => (c) { c = Equal (a, b) }"""


@pytest.mark.parametrize(
    ("table", "body", "sides", "limit"),
    [
        pytest.param("0, 1, 2, 3, 4", "", "u, table", 5, id="constant"),
        pytest.param("0, 1, 2, 3, 4", "", "table, u", 5, id="constant-first"),
        pytest.param("2, 0, 1, 1, 0", "", "u, table", 3, id="in-another-order"),
        pytest.param("0, 1, 2, 3, 4", "t = Expand (table, shape)", "u, t", 5, id="expanded"),
        pytest.param("0, 0, 0, 0, 0", "t = Range (zero, five, one)", "u, t", 5, id="range"),
        pytest.param("0, 0, 0, 0, 0", "t = Range (one, five, one)", "u, t", 0, id="range-of-some"),
        pytest.param("1, 2, 3, 4, 5", "", "u, table", 0, id="numbers-of-their-own"),
        pytest.param("0, 1, 1, 0, 1", "", "u, table", 0, id="two-are-a-flag"),
        pytest.param("0, 1, 2, 3, 4", "t = Neg (table)", "u, t", 0, id="computed"),
    ],
)
def test_index_that_is_compared_with_all_classes_is_bounded_by_their_number(
    table: str, body: str, sides: str, limit: int
) -> None:
    """So JAX writes OneHot: fed 0 and 1 alone, all other rows of a table would go unseen."""
    text = CLASSES.replace("TABLE", table).replace("BODY", body).replace("SIDES", sides)
    inside = text.replace("Equal (SIDES)".replace("SIDES", sides), f"own.same ({sides})")

    assert bounds(text, "i") == ({Bound(limit, is_strict=False)} if limit else set())
    assert bounds(inside, "i") == bounds(text, "i")


def test_table_of_many_classes_is_read() -> None:
    """It is as large as a small weight, which is not looked at."""
    model = onnx.parser.parse_model(
        HEADER
        + "g (int32[N, 4, 1] i) => (float[a, b, c] y) { e = Equal (i, t) y = Cast <to = 1> (e) }"
    )
    table = np.arange(1_000, dtype=np.int32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "t"))

    assert input_domain(Dataflow(model), input_ports(model.graph)[0]).bounds == {
        Bound(1_000, is_strict=False)
    }


@pytest.mark.parametrize(
    ("name", "body", "high"),
    [
        ("count", "c = Cast <to = 1> (count) y = MatMul (c, w)", 7),
        ("mask", "c = Cast <to = 1> (mask) y = MatMul (c, w)", 1),
        ("flag", "c = Cast <to = 1> (flag) n = Sub (one, c) y = MatMul (n, w)", 1),
        ("flag", "c = Cast <to = 1> (flag) r = Relu (w) y = MatMul (c, r)", 1),
    ],
)
def test_number_that_weights_multiply_is_no_flag(
    save: Save, name: str, body: str, high: int
) -> None:
    """What goes into a layer as it is may be anything; a mask is told by name or by arithmetic."""
    text = f"""g (int64[N, 3] {name}) => (float[N, 2] y)
    <float[3, 2] w = {{1, 2, 3, 4, 5, 6}}, float one = {{1}}> {{ {body} }}"""

    assert choices(save(text))[name].high == high


@pytest.mark.parametrize("size", [2, 3, 40])
def test_whole_numbers_reach_both_ends_of_their_range(size: int) -> None:
    """For every seed, the first row of a table and the last are used."""
    port = Port("i", "tensor", INT64, (size,))

    for seed in range(20):
        drawn = np.asarray(draw(port, Range("integers", 3, 1_000, ""), {}, seed))
        assert (drawn.min(), drawn.max()) == (3, 1_000)


def test_single_whole_number_is_any_of_its_range() -> None:
    """There is no place for both ends."""
    port = Port("i", "tensor", INT64, (1,))

    drawn = {int(np.asarray(draw(port, Range("integers", 0, 9, ""), {}, s))[0]) for s in range(40)}

    assert len(drawn) > 5
    assert drawn <= set(range(10))


def test_one_hot_is_bounded_by_its_depth() -> None:
    """Classes lie below the depth."""
    text = """g (int64[4] i) => (float[a, b] y) <int64 depth = {5}, float[2] v = {0, 1}>
    { y = OneHot (i, depth, v) }"""

    assert bounds(text, "i") == {Bound(5, is_strict=False)}


def test_name_used_again_in_another_function_sets_no_bound() -> None:
    """Names are local to a function: an equal name elsewhere is another value."""
    text = """g (int64[4] i, int64[4] k) => (float[a, b] y, int64[4] z) <float[50, 2] table>
    { y = own.embed (table, i) z = Identity (k) }
    <domain: "own", opset_import: ["" : 17]> embed (t, k) => (r) { r = Gather (t, k) }"""

    assert bounds(text, "k") == set()


def test_one_symbol_is_one_number_over_all_inputs(save: Save) -> None:
    """Inputs that share a symbol get the same size, and unnamed dimensions their own."""
    path = save("g (float[N, 3] a, float[3, N] b) => (float[c, d] y) { y = MatMul (a, b) }")

    chosen = choices(path)

    assert chosen["a"].shape[0] == chosen["b"].shape[1]


def test_batch_backs_off_to_one(save: Save) -> None:
    """A batch that is declared dynamic but baked in as 1 is found."""
    path = save(
        """g (float[batch, 4] x) => (float[a, b] y) <int64[2] s = {1, 4}> { y = Reshape (x, s) }"""
    )

    assert choices(path)["x"].shape == (1, 4)


def test_sizes_that_onnxruntime_asks_for_are_tried(save: Save) -> None:
    """An unusual baked-in size is read off the refusal."""
    path = save(
        """g (float[2, seq] x) => (float[a, b] y) <int64[2] s = {2, 37}> { y = Reshape (x, s) }"""
    )

    assert choices(path)["x"].shape == (2, 37)


def test_sizes_that_the_model_has_elsewhere_are_tried_before_ones(save: Save) -> None:
    """Three axes that only run at 20, where a broadcast 1 would run, too, and show nothing."""
    model = onnx.parser.parse_model(HEADER + "g (float[A, B, C] x) => (float y) { y = Mul (x, t) }")
    table = np.random.default_rng(0).standard_normal((20, 20, 20)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "t"))

    assert choices(save(model))["x"].shape == (20, 20, 20)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = MatMul (x, w)", {"S": 37}),
        ("y = MatMul (w, x)", {"N": 53}),
        ("y = MatMul (x, v)", {"S": 37}),
        ("y = Gemm (x, w)", {"S": 37}),
        ("y = Gemm <transB = 1> (x, w)", {"S": 53}),
        ("y = Gemm <transA = 1> (x, w)", {"N": 37}),
        ("r = Relu (x) y = Add (v, r)", {"S": 37}),
        ("y = Sub (x, w)", {"S": 53, "N": 37}),
        ("y = Sub (x, flat)", {"N": 37}),
        ("y = Conv (i, k)", {"C": 5}),
        ("y = Conv <group = 2> (i, k)", {}),
        ("y = Concat <axis = 0> (x, w)", {}),
        ("p = MatMul (x, w) y = Gemm <transB = 1> (x, w)", {}),
        ("y = MatMul (x, z)", {}),
        ("y = Neg (x)", {}),
    ],
)
def test_size_that_has_to_equal_a_fixed_one_is_tied_to_it(
    body: str, expected: dict[str, int]
) -> None:
    """What is summed over, and what is added; nothing where two sizes compete."""
    text = f"""g (float[N, S] x, float[S, M] z, float[B, C, 8, 8] i) => (float y)
    <float[37, 53] w, float[37] v, float[37, 1] flat, float[4, 5, 3, 3] k> {{ {body} }}"""
    model = parsed(text)

    assert tied_sizes(Dataflow(model), input_ports(model.graph)) == expected


def test_tied_sizes_are_tried_first_and_given_ones_before_them(save: Save) -> None:
    """Several axes of one model want several sizes, which no plan for all of them has."""
    text = (
        """g (float[N, S, D] x) => (float[N, S, 5] y) { p = MatMul (x, w) y = Add (p, places) }"""
    )
    model = onnx.parser.parse_model(HEADER + text)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (37, 5)), ("places", (1, 53, 5))):
        values = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    path = save(model)

    assert choices(path)["x"].shape == (2, 53, 37)
    with pytest.raises(VerificationError, match="onnxruntime says"):
        choices(path, sizes={"S": 54})


def test_sizes_that_are_slow_to_make_are_tried_late() -> None:
    """Making up 16 million numbers three times takes seconds, a refusal a millisecond."""
    ports = [Port("x", "tensor", FLOAT, ("N", "S", "T"))]

    plans = [(plan["S"], plan["T"]) for plan in size_plans(ports, {}, [], [77])]

    assert plans.index((4096, 4096)) > plans.index((77, 77)) > plans.index((512, 512))


def test_static_sizes_come_in_the_order_of_how_likely_they_are() -> None:
    """Stored shapes, then shapes of values, then those of weights; often before seldom."""
    model = parsed(
        """g (float[N, 30] x) => (float[a, b] y)
        <float[7, 3] v, float[30, 12] w, int64[2] shape = {-1, 11}, int64[1] other = {99},
         int64[1] zero = {0}, int64[1] end = {9223372036854775807}, float[1, 70000] long> {
        p = MatMul (x, w) s = Slice (p, zero, end) q = Relu (s) r = Add (v, v)
        y = Reshape (q, shape) z = Neg (other) }"""
    )

    assert static_sizes(Dataflow(model)) == [11, 12, 3, 7, 30, 2]


def test_sizes_of_the_batch_alone_and_of_an_image_are_tried() -> None:
    """A baked-in size may be that of any role, or of all at once; there are few tries."""
    ports = [
        Port("x", "tensor", FLOAT, ("N", 3, "H", "W")),
        Port("y", "tensor", FLOAT, ("N", "S")),
    ]
    before = list(size_plans(ports, {}, []))

    plans = list(size_plans(ports, {}, [], [77]))
    found = [plan for plan in plans if plan not in before]

    tried = [(plan["N"], plan["H"], plan["S"]) for plan in found]
    assert tried == [(77, 64, 77), (2, 64, 77), (1, 64, 77), (77, 77, 77), (77, 64, 8)]
    assert list(size_plans(ports, {"N": 5}, [], [77]))[-3]["N"] == 5
    assert len(list(size_plans(ports, {}, [], range(100, 200)))) < len(before) + 50


def test_total_is_past_plus_present() -> None:
    """A decoder with a past gets a mask over past and present."""
    ports = [
        Port("ids", "tensor", INT64, ("batch", "seq")),
        Port("mask", "tensor", INT64, ("batch", "total"), {"total": ("past", "seq")}),
        Port("past_key", "tensor", FLOAT, ("batch", 4, "past", 8)),
    ]

    for plan in list(size_plans(ports, {}, []))[:4]:
        assert plan["total"] == plan["past"] + plan["seq"]


def test_given_sizes_hold_in_every_plan() -> None:
    """The user's number is never replaced, named by symbol or by input and axis."""
    ports = [Port("x", "tensor", FLOAT, ("N", None, 3, 4))]

    for plan in size_plans(ports, {"N": 5, "x:1": 7}, []):
        assert shape_of(ports[0], plan) == (5, 7, 3, 4)


def test_size_for_an_unknown_dimension_is_an_error(save: Save) -> None:
    """A misspelt symbol is named together with those that exist."""
    path = save("g (float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }")

    with pytest.raises(UsageError, match="'M'") as caught:
        verify_equivalence(path, path, Check(sizes={"M": 3}))
    assert "N" in (caught.value.hint or "")


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_input_without_a_shape_gets_a_rank_that_runs(save: Save, rank: int) -> None:
    """Where not even the rank is declared, ranks are guessed until one runs."""
    shape = ", ".join(str(dim) for dim in range(2, 2 + rank))
    axes = ", ".join(str(axis) for axis in reversed(range(rank)))
    model = onnx.parser.parse_model(
        HEADER
        + f"""g (float[{shape}] x) => (float y)
        {{ t = Transpose <perm = [{axes}]> (x) y = ReduceSum <keepdims = 0> (t) }}"""
    )
    model.graph.input[0].type.tensor_type.ClearField("shape")

    assert len(choices(save(model), seeds=(0,))["x"].shape) == rank


@pytest.mark.parametrize("op_type", ["Log", "Sqrt", "Reciprocal"])
def test_positive_domain_gets_positive_numbers(save: Save, op_type: str) -> None:
    """What goes into a logarithm or a root is positive, so that nothing is NaN."""
    path = save(f"g (float[100] x) => (float[100] y) {{ y = {op_type} (x) }}")

    choice = choices(path)["x"]

    assert choice.low is not None
    assert choice.low > 0


def test_boolean_condition_takes_both_branches(save: Save) -> None:
    """Over two seeds a lone condition is true once and false once: both branches are compared."""
    text = """g (bool c, float[30] x) => (float[30] y) {
    y = If (c) <then_branch = t () => (float[30] p) { p = Relu (x) },
                else_branch = e () => (float[30] q) { q = %s (x) }> }"""

    for then, otherwise in [("Elu", "Neg"), ("Relu", "Abs")]:
        other = text.replace("Relu", then) % otherwise
        assert not verify_equivalence(save(text % "Neg"), save(other, "other")).equivalent


def test_mask_never_hides_a_whole_row() -> None:
    """The first element of each row of a mask is 1, so that a softmax over it is a number."""
    port = Port("attention_mask", "tensor", INT64, (50, 6))

    mask = draw(port, Range("mask", 0, 1, ""), {}, 0)

    assert isinstance(mask, np.ndarray)
    assert (mask[:, 0] == 1).all()
    assert 0 < mask.mean() < 1


def test_initializer_that_is_also_an_input_is_not_fed(save: Save) -> None:
    """A default is what the model ships with, and stays."""
    model = onnx.load(save("g (float[3] x, float[3] w) => (float[3] y) { y = Mul (x, w) }"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "w"))

    assert list(choices(save(model))) == ["x"]


def test_strings_and_sequences_are_fed(save: Save) -> None:
    """Strings come from a fixed list, sequences hold tensors of the declared shape."""
    strings = save("g (string[4] s) => (string[4] y) { y = Identity (s) }")
    sequence = save(
        "g (seq(float[2]) s) => (float[4] y) { y = ConcatFromSequence <axis = 0> (s) }", "sequence"
    )

    assert choices(strings)["s"].dtype == "string"
    assert choices(sequence)["s"].dtype == "sequence of float32"


def test_input_that_cannot_be_made_is_named(save: Save) -> None:
    """A map as input is beyond what can be made up: an error that names it."""
    model = onnx.load(save("g (float[3] x) => (float[3] y) { y = Relu (x) }"))
    info = model.graph.input.add(name="m")
    info.type.map_type.key_type = INT64
    info.type.map_type.value_type.tensor_type.elem_type = FLOAT
    path = save(model)

    with pytest.raises(VerificationError, match=r"'m'|original model"):
        verify_equivalence(path, path)


def test_same_seed_gives_the_same_values_whatever_else_is_drawn() -> None:
    """An input's values depend on seed and name, not on the other inputs; seeds differ."""
    port, chosen = Port("x", "tensor", FLOAT, (4,)), Range("normal", 0, 1, "")

    first, again, other = (draw(port, chosen, {}, seed) for seed in (0, 0, 1))

    assert np.array_equal(np.asarray(first), np.asarray(again))
    assert not np.array_equal(np.asarray(first), np.asarray(other))


def test_inputs_are_in_the_json_form(save: Save) -> None:
    """What was fed can be read off the report."""
    path = save("g (float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }")

    decoded = json.loads(json.dumps(parts_of(verify_equivalence(path, path))))

    assert decoded["inputs"][0]["name"] == "x"
    assert decoded["inputs"][0]["shape"] == [2, 3]
