"""What made-up inputs dare: whole rows hidden, absent optionals, lengths, positions."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx.helper
import onnx.parser
import pytest

from dplcli.errors import UsageError, VerificationError
from dplcli.verify import Check, InputChoice, VerificationResult
from dplcli.verify.check import InputRequest
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.inputs import find_stimulus
from dplcli.verify.inputs.draws import Mood, Range, choose_range, draw
from dplcli.verify.model import Dataflow, Port, Purpose, input_domain, input_ports, purposes
from dplcli.verify.run import Runner
from dplcli.verify.values import Feed, ModelSource

Save = Callable[..., Path]
Numbers = npt.NDArray[np.float64]
HEADER = '<ir_version: 10, opset_import: ["" : 22, "own" : 1, "com.microsoft" : 1]>\n'
FLOAT, INT32, INT64, BOOL, FLOAT8 = 1, 6, 7, 9, 17

# Attention as exporters write it; FILL is what hides a key, TURN is where its numbers go.
ATTENTION = """g (float[B, 4, 8] q, int64[B, K] mask, float[B, K, 8] k) => (float[B, 4, K] p)
<float one = {1}, float fill = {FILL}, int64[1] axis = {1}> {
    f = Cast <to = 1> (mask) n = Sub (one, f) h = Mul (n, fill) m = Unsqueeze (h, axis)
    t = Transpose <perm = [0, 2, 1]> (k) s = MatMul (q, t) a = Add (s, m) p = Softmax (a) }"""


def model(text: str) -> onnx.ModelProto:
    """Read ONNX text with an opset that has everything."""
    return onnx.parser.parse_model(HEADER + text)


def with_optional(text: str) -> onnx.ModelProto:
    """Read ONNX text, and make its first input an optional, which the text cannot say."""
    found = model(text)
    declared = found.graph.input[0].type
    found.graph.input[0].type.CopyFrom(onnx.helper.make_optional_type_proto(declared))
    return found


def stimulus(path: Path, *seeds: int) -> dict[str, list[Feed]]:
    """Return what each input is fed, seed by seed."""
    flow = Dataflow(onnx.load(path))
    ports = input_ports(flow.model.graph)
    found, _ = find_stimulus(flow, ports, Runner(ModelSource(path), "disable"), seeds or (0, 1), {})
    return {port.name: [found.feeds[case][port.name] for case in found.cases] for port in ports}


def uses(text: str, name: str) -> set[Purpose]:
    """Return what one input is for."""
    found = model(text)
    ports = {port.name: port for port in input_ports(found.graph)}
    return purposes(Dataflow(found), ports[name])


def check(ours: Path, *theirs: Path, **request: object) -> VerificationResult:
    """Compare two models, or one with itself, on what a request asks for."""
    settings = Check(levels=("disable",), request=InputRequest(**request))  # type: ignore[arg-type]
    return verify_equivalence(ours, theirs[0] if theirs else ours, settings)


def choice(result: VerificationResult, name: str) -> InputChoice:
    """Return what one input was fed."""
    return next(made for made in result.inputs if made.name == name)


# -- masks ------------------------------------------------------------------------------------


def test_one_seed_hides_every_key_of_a_row(save: Save) -> None:
    """The even seed hides some, the odd one all of the last row and some of the first."""
    even, odd = map(np.asarray, stimulus(save(model(ATTENTION.replace("FILL", "-3.4e38"))))["mask"])

    assert (even[:, 0] == 1).all()
    assert (odd[-1] == 0).all()
    assert odd[0, 0] == 1


def test_fill_of_another_size_shows_only_where_all_keys_are_hidden(save: Save) -> None:
    """Without such a row the two models give the same numbers: this is what it is for."""
    ours = save(model(ATTENTION.replace("FILL", "-3.4e38")))
    theirs = save(model(ATTENTION.replace("FILL", "-500.0")), "theirs")

    assert not verify_equivalence(ours, theirs, Check(levels=("disable",))).equivalent
    even = Check(levels=("disable",), seeds=(0,))
    assert verify_equivalence(ours, theirs, even).equivalent


def test_row_is_not_hidden_where_that_makes_nan(save: Save) -> None:
    """NaN equals NaN: where minus infinity hides, a hidden row would prove nothing."""
    text = """g (float[B, 4, 8] q, bool[B, 1, K] mask, float[B, 8, K] k) => (float[B, 4, K] p) {
        low = Constant <value_float = -1.0> () zero = Constant <value_float = 0.0> ()
        inf = Div (low, zero) s = MatMul (q, k) a = Where (mask, s, inf) p = Softmax (a) }"""
    path = save(model(text))

    masks = [np.asarray(mask) for mask in stimulus(path)["mask"]]

    assert all(mask.any(axis=-1).all() for mask in masks)
    assert not all(mask.all() for mask in masks)


def test_lone_row_of_a_mask_is_never_hidden() -> None:
    """With a batch of one nothing would be left to compare."""
    port = Port("mask", "tensor", INT64, (1, 6))

    assert np.asarray(draw(port, Range("hiding", 0, 1, ""), {}, 1)).any()


def test_boolean_mask_has_a_row_of_either_value() -> None:
    """True hides in some models and shows in others; both hide a row whole."""
    mask = np.asarray(draw(Port("m", "tensor", BOOL, (3, 5)), Range("hiding", 0, 1, ""), {}, 1))

    assert mask[0].all()
    assert not mask[-1].any()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(ATTENTION.replace("FILL", "-9.0"), {Purpose.MASK}, id="added-to-a-softmax"),
        pytest.param(
            """g (float[2, 5] s, bool[2, 5] mask) => (float[2, 5] p) <float low = {-9}>
            { n = Not (mask) a = Where (n, low, s) p = Softmax (a) }""",
            {Purpose.MASK},
            id="chosen-before-a-softmax",
        ),
        pytest.param(
            """g (float[1, 2, 3, 8] q, bool[3, 3] mask) => (float[1, 2, 3, 8] p)
            { p = Attention (q, q, q, mask) }""",
            {Purpose.MASK},
            id="of-the-operator",
        ),
        pytest.param(
            """g (float[2, 5] s, int64[2, 5] mask) => (float[2, 5] p) { p = own.hide (s, mask) }
            <domain: "own", opset_import: ["" : 22]> hide (x, m) => (y)
            { c = Cast <to = 1> (m) a = Add (x, c) y = Softmax (a) }""",
            {Purpose.MASK},
            id="inside-a-function",
        ),
        pytest.param(
            """g (int64[2, 5] mask, float[1, 4] f) => (float[2, 4] p) {
            c = Cast <to = 1> (mask) s = ReduceSum (c, ) p = Mul (s, f) }""",
            set(),
            id="summed-only",
        ),
        pytest.param(
            """g (int64[5, 1] mask, float[1, 4] f) => (float[5, 4] p) {
            c = Cast <to = 1> (mask) t = MatMul (c, f) p = Softmax (t) }""",
            set(),
            id="behind-a-matrix-product",
        ),
        pytest.param(
            """g (int64[5, 1] mask, float[1, 4] f) => (float[5, 4] p) {
            c = Cast <to = 1> (mask) t = MatMul (c, f) p = Sin (t) }""",
            {Purpose.ANGLE},
            id="position-of-a-rotation",
        ),
        pytest.param(
            "g (float[2, 5] mask) => (float[2, 5] p) { p = Softmax (mask) }", set(), id="a-float"
        ),
    ],
)
def test_purpose_is_told_by_where_the_influence_ends(text: str, expected: set[Purpose]) -> None:
    """A mask is what reaches a softmax by arithmetic, a position what reaches a sine."""
    assert uses(text, "mask") == expected


def test_positions_of_a_rotation_are_more_than_zero_and_one(save: Save) -> None:
    """Turned by 0 or 1 alone, a wrong table of frequencies would pass."""
    text = """g (int64[20, 1] position, float[1, 4] f) => (float[20, 4] p) {
        c = Cast <to = 1> (position) t = MatMul (c, f) p = Cos (t) }"""

    first, _ = map(np.asarray, stimulus(save(model(text)))["position"])

    assert len(np.unique(first)) > 5


# -- lengths, parts, optionals ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "longest"),
    [
        ("a, y, b = LSTM <hidden_size = 2> (x, w, r, , n)", 7),
        ("y = ReverseSequence (x, n)", 7),
        ("y = ReverseSequence <time_axis = 1, batch_axis = 0> (x, n)", 30),
    ],
)
def test_lengths_go_from_one_to_the_size_of_the_axis(body: str, longest: int) -> None:
    """A length of 0, or beyond the axis, is refused or undefined."""
    found = model(
        f"g (float[7, 30, 3] x, int32[30] n, float[1, 8, 3] w, float[1, 8, 2] r) => (float y) "
        f"{{ {body} }}"
    )
    port = input_ports(found.graph)[1]

    chosen = choose_range(port, input_domain(Dataflow(found), port), {}, Mood.PLAIN)
    lengths = np.asarray(draw(port, chosen, {}, 0))

    assert (chosen.low, chosen.high) == (1, longest)
    assert lengths.min() >= 1
    assert lengths.max() > 1


def test_sizes_of_a_split_add_up(save: Save) -> None:
    """The parts fill the axis, whatever is drawn, over every seed."""
    text = (
        "g (float[3, 11] x, int64[4] s) => (seq(float) y) { y = SplitToSequence <axis = 1> (x, s) }"
    )

    for parts in stimulus(save(model(text)), 0, 1, 2, 3)["s"]:
        assert np.asarray(parts).sum() == 11
        assert np.asarray(parts).min() >= 0


def test_optional_is_there_for_one_seed_and_absent_for_the_other(save: Save) -> None:
    """Both branches are compared."""
    text = """g (float[3] o, float[3] x) => (float[3] y) {
        h = OptionalHasElement (o)
        y = If (h) <then_branch = t () => (float[3] p) { p = OptionalGetElement (o) },
                    else_branch = e () => (float[3] q) { q = %s (x) }> }"""
    ours = save(with_optional(text % "Neg"))
    theirs = save(with_optional(text % "Exp"), "theirs")

    fed = stimulus(ours)["o"]

    assert fed[0] is not None
    assert fed[1] is None
    assert not check(ours, theirs).equivalent


def test_optional_that_must_be_there_is_there(save: Save) -> None:
    """Where the absent one does not run, it is fed for every seed."""
    path = save(with_optional("g (float[3] o) => (float[3] y) { y = OptionalGetElement (o) }"))

    assert all(feed is not None for feed in stimulus(path)["o"])


def test_float8_and_its_like_are_numbers() -> None:
    """No sign, no zero in an exponent: still no NaN."""
    for dtype in range(FLOAT8, 25):
        name = onnx.TensorProto.DataType.Name(dtype)
        if not name.startswith("FLOAT8"):
            continue
        port = Port("x", "tensor", dtype, (40,))
        empty = input_domain(Dataflow(model("g (float a) => (float b) { b = Relu (a) }")), port)
        values = np.asarray(draw(port, choose_range(port, empty, {}, Mood.PLAIN), {}, 0))
        assert np.isfinite(values.astype(np.float32)).all(), name
        assert len(np.unique(values.astype(np.float32))) > 2, name


# -- shapes and ranges --------------------------------------------------------------------------

TALL = """g (float[N, C, 4] x, int64[N] i) => (float[N, C, 4] y, int64[N] j)
{ y = Relu (x) j = Abs (i) }"""


def test_whole_shape_sets_its_symbols_for_every_input(save: Save) -> None:
    """One number per symbol, over all inputs."""
    result = check(save(model(TALL)), shapes={"x": (5, 2, 4)})

    assert [made.shape for made in result.inputs] == [(5, 2, 4), (5,)]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1,)}, "no input 'z'"),
        ({"x": (1, 2)}, "has 2 dimensions, but 3"),
        ({"x": (1, 2, 3)}, "dimension 2 of 'x' is 4, not 3"),
        ({"x": (1, 2, 4), "i": (3,)}, "two sizes are given for 'N'"),
    ],
)
def test_shape_that_cannot_be_is_refused(
    save: Save, shapes: dict[str, tuple[int, ...]], message: str
) -> None:
    """Which input, and which dimension."""
    with pytest.raises(UsageError) as caught:
        check(save(model(TALL)), shapes=shapes)
    assert message in caught.value.message


def test_range_is_used_to_both_ends(save: Save) -> None:
    """Integers reach both, floats stay inside; what was asked for is in the report."""
    result = check(
        save(model(TALL)), ranges={"i": (-2, 1), "x": (10, 11)}, shapes={"x": (200, 2, 4)}
    )

    assert (choice(result, "i").low, choice(result, "i").high) == (-2, 1)
    assert 10 <= (choice(result, "x").low or 0) < (choice(result, "x").high or 0) <= 11
    assert "-2 to 1, as asked" in choice(result, "i").how


def test_range_goes_before_what_the_model_suggests(save: Save) -> None:
    """Somebody who knows better than the operators is believed."""
    text = "g (float[300] x) => (float[300] y) { y = Log (x) }"

    assert (
        choice(check(save(model(text)), ranges={"x": (50, 60)}), "x").how
        == "from 50 to 60, as asked"
    )


@pytest.mark.parametrize(
    ("kind", "low", "high", "message"),
    [
        ("uint8", 0, 256, "whole numbers from 0 to 255"),
        ("int8", -129, 0, "whole numbers from -128 to 127"),
        ("int64", 0.5, 3, "whole numbers"),
        ("uint64", 0, 2**60, "whole numbers from 0 to 9007199254740992"),
        ("bool", 0, 2, "whole numbers from 0 to 1"),
        ("string", 0, 2, "which is a string"),
    ],
)
def test_range_outside_of_the_type_is_refused(
    save: Save, kind: str, low: float, high: float, message: str
) -> None:
    """Nothing wraps around and nothing is cut."""
    path = save(model(f"g ({kind}[4] x) => ({kind}[4] y) {{ y = Identity (x) }}"))

    with pytest.raises(UsageError) as caught:
        check(path, ranges={"x": (low, high)})
    assert message in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("ends", [(2, 1), (float("nan"), 1), (0, float("inf"))])
def test_range_without_numbers_is_refused(ends: tuple[float, float]) -> None:
    """Before anything runs."""
    with pytest.raises(UsageError, match="holds no number"):
        InputRequest(ranges={"x": ends})


def test_range_for_no_input_is_refused(save: Save) -> None:
    """With the names that there are."""
    with pytest.raises(UsageError, match="'ids', which is no input") as caught:
        check(save(model(TALL)), ranges={"ids": (0, 1)})
    assert caught.value.hint == "there are: x, i"


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param("z = Equal (x, zero) y = Where (z, one, x)", id="zero"),
        pytest.param("z = Less (x, big) y = Where (z, x, big)", id="large"),
        pytest.param(
            "s = ReduceMax <keepdims = 0> (x) z = Less (s, zero) y = Where (z, zero, x)",
            id="all-negative",
        ),
    ],
)
def test_difference_that_ordinary_numbers_do_not_show_is_found(save: Save, theirs: str) -> None:
    """Outputs show nothing; the place is fed what tells, and the model, too."""
    text = """g (float[4, 5] x) => (float[4, 5] y)
        <float zero = {0}, float one = {1}, float big = {90}> { %s }"""
    ours, other = save(model(text % "y = Identity (x)")), save(model(text % theirs), "theirs")

    result = check(ours, other)

    assert all(output.ok for output in result.outputs)
    assert result.verdict == "different"


def test_range_for_what_cannot_be_made_names_the_type(save: Save) -> None:
    """A map has no range."""
    path = save(model("g (float[3] x) => (float[3] y) { y = Relu (x) }"))
    flow = Dataflow(onnx.load(path))
    ports = [Port("m", "map", INT64, None)]

    with pytest.raises(VerificationError, match="'m' is a map of int64"):
        find_stimulus(
            flow,
            ports,
            Runner(ModelSource(path), "disable"),
            (0, 1),
            {},
            request=InputRequest(ranges={"m": (0, 1)}),
        )


def test_range_that_does_not_run_is_what_the_way_out_speaks_of(save: Save) -> None:
    """Sizes would not help."""
    text = "g (int64[N] i) => (float[a, b] y) <float[2, 1] t = {1, 2}> { y = Gather (t, i) }"

    with pytest.raises(VerificationError) as caught:
        check(save(model(text)), ranges={"i": (5, 9)})
    assert "another --range" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("kernel", "declared", "samples"),
    [
        pytest.param(400, "T", 4096, id="one-frame-of-few-samples"),
        pytest.param(100, "T", 256, id="several-frames-of-few-samples"),
        pytest.param(400, "1", 512, id="declared-as-one"),
    ],
)
def test_sizes_are_larger_where_few_come_down_to_one(
    save: Save, kernel: int, declared: str, samples: int
) -> None:
    """Of a single frame nothing shows: neither an order nor a sum over frames."""
    last = "y = Identity (c)" if declared == "T" else "y = ReduceSum (c, axis)"
    path = save(
        model(f"""g (float[N, 1, S] x) => (float[N, 1, {declared}] y)
            <int64[1] axis = {{2}}> {{
            s = Constant <value_ints = [1, 1, {kernel}]> ()
            w = ConstantOfShape <value = float[1] {{1}}> (s)
            c = Conv <strides = [{kernel}]> (x, w) {last} }}""")
    )

    assert np.asarray(stimulus(path)["x"][0]).shape[2] == samples


def test_sizes_stay_where_larger_ones_come_down_to_one_as_well(save: Save) -> None:
    """A declared symbol that is always one costs a few runs, and changes nothing."""
    text = "g (float[N, S] x) => (float[N, T] y) <int64[1] axis = {1}> { y = ReduceSum (x, axis) }"

    assert np.asarray(stimulus(save(text))["x"][0]).shape == (2, 6)
