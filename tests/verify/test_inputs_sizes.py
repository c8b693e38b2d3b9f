"""Made-up sizes: none coincide, there are two sets of them, and no clock has a say."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.llm import SIZES, STYLES, write
from dplcli.verify import Check
from dplcli.verify.check import Execution, InputRequest
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.inputs import find_stimulus
from dplcli.verify.inputs.relations import SizeTerms, fixed_sizes
from dplcli.verify.inputs.sizes import other_sizes, shape_of, size_plans, smaller_size
from dplcli.verify.model import Dataflow, Port, input_ports, read_model
from dplcli.verify.values import Leaf, RunError, StoppedError
from tests.verify.conftest import TOKENS, reference

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from dplcli.verify.inputs import Reference
    from dplcli.verify.values import Feed, Outputs
    from tests.verify.conftest import Save

FLOAT, INT64 = 1, 7
TOTAL = {"total": ("past", "seq")}
"""What a graph says of a mask over past and present."""
HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'

LAYOUTS = {
    "tokens": [
        Port("ids", "tensor", INT64, ("batch", "seq")),
        Port("mask", "tensor", INT64, ("batch", "seq")),
    ],
    "two-sequences": [
        Port("one", "tensor", INT64, ("batch", "eseq")),
        Port("other", "tensor", INT64, ("batch", "dseq")),
        Port("states", "tensor", FLOAT, ("batch", "eseq", 32)),
    ],
    "past": [
        Port("ids", "tensor", INT64, ("batch", "seq")),
        Port("mask", "tensor", INT64, ("batch", "total"), TOTAL),
        Port("past_key", "tensor", FLOAT, ("batch", 4, "past", 8), TOTAL),
    ],
    "past-of-one-token": [
        Port("ids", "tensor", INT64, ("batch", 1)),
        Port("past_key", "tensor", FLOAT, ("batch", 4, "past", 8), {"past + 1": ("past", 1)}),
    ],
    "two-batches": [
        Port("text", "tensor", INT64, ("texts", "seq")),
        Port("image", "tensor", FLOAT, ("images", 3, 64, 64)),
    ],
    "image": [Port("x", "tensor", FLOAT, ("N", 3, "height", "width"))],
    "many-axes": [Port("x", "tensor", FLOAT, ("batch", "a", 1, 2, "a", "b", "batch", "c", "a"))],
    "unnamed": [
        Port("x", "tensor", FLOAT, (None, None, 5)),
        Port("y", "tensor", FLOAT, None),
    ],
}
BATCHES = {
    **{layout: {"batch"} for layout in LAYOUTS},
    "two-batches": {"texts", "images"},
    "image": {"N"},
    "unnamed": {"x:0", "y:0"},
}
FIXED = st.frozensets(st.integers(2, 40), max_size=5)


def built(text: str, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """Return a model with weights of these shapes."""
    model = onnx.parser.parse_model(HEADER + text)
    for name, shape in shapes.items():
        values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return model


def made_up(ports: list[Port], sizes: Mapping[str, int]) -> list[int]:
    """Return the sizes that were made up: one for each symbol, and past plus one."""
    ranked = [*ports] if all(port.shape for port in ports) else [ports[0]]
    symbols = dict.fromkeys(symbol for port in ranked for symbol in port.symbols if symbol)
    found = [sizes[symbol] for symbol in symbols] + [
        sizes[f"{port.name}:{axis}"]
        for port in ports
        if port.shape is None
        for axis in range(sizes[f"{port.name}:rank"])
    ]
    is_lone = any(port.shape == ("batch", 1) for port in ports)
    return [*found, *([sizes["past"] + 1] if is_lone else [])]


def coincide(made: list[int], fixed: Collection[int]) -> bool:
    """Tell whether two sizes are equal, or one is a product of two."""
    products = {one * other for one in made for other in (*made, *fixed)}
    return len(set(made)) < len(made) or not products.union(fixed).isdisjoint(made)


def smaller(sizes: Mapping[str, int], batches: Collection[str]) -> dict[str, int]:
    """Return where to search for other sizes."""
    roles = {name: "batch" if name in batches else "length" for name in sizes}
    names = [name for name in sizes if not name.endswith(":rank")]
    return {name: smaller_size(roles[name], sizes[name]) for name in names}


# -- sizes that coincide --------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
@given(fixed=FIXED)
def test_no_two_sizes_coincide(layout: str, fixed: frozenset[int]) -> None:
    """Neither when they are made up, nor when they have grown, nor in the second set.

    There, batches are 1: what holds for several need not hold for one.
    """
    ports = LAYOUTS[layout]
    first = next(size_plans(ports, {}, (), fixed=fixed))
    made = made_up(ports, first)
    assert not coincide(made, fixed)

    batches = BATCHES[layout]
    names = [name for name in first if not name.endswith(":rank")]
    starts = {name: first[name] * (16 if name in batches else 2) for name in names}
    larger = other_sizes(ports, first, starts, fixed)
    assert not coincide(made_up(ports, larger), fixed)
    assert all(larger[name] >= start for name, start in starts.items() if name != "total")

    for sizes in (first, larger):
        others = other_sizes(ports, sizes, smaller(sizes, batches), fixed)
        assert not coincide([size for size in made_up(ports, others) if size > 1], fixed)
        assert {name for name in names if others[name] == 1} == BATCHES[layout]
        assert not {others[name] for name in names} & {sizes[name] for name in names}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sizes_stay_small(layout: str) -> None:
    """Batches of two or three, short sequences, and images of a few steps of 32."""
    ports = LAYOUTS[layout]
    sizes = next(size_plans(ports, {}, (), fixed={4, 8, 16, 64}))

    assert max(made_up(ports, sizes)) <= (160 if layout == "image" else 16)
    for port in ports:
        if port.shape is not None:
            assert shape_of(port, sizes)[0] in {2, 3}
    if layout == "image":
        assert sizes["height"] % 32 == sizes["width"] % 32 == 0


def test_images_have_three_dimensions_at_most() -> None:
    """Along more axes, sizes of images would be too many elements for any plan."""
    solid = [Port("x", "tensor", FLOAT, ("N", 3, "depth", "height", "width"))]
    sizes = next(size_plans(solid, {}, ()))
    assert min(sizes["depth"], sizes["height"], sizes["width"]) >= 32

    more = [Port("x", "tensor", FLOAT, ("N", 3, "time", "depth", "height", "width"))]
    sizes = next(size_plans(more, {}, ()))
    assert max(shape_of(more[0], sizes)) <= 16


def test_images_stay_small_where_all_sizes_are_fixed_elsewhere() -> None:
    """Time is worth more there than a number of its own."""
    fixed = range(32, 1000, 32)
    sizes = next(size_plans(LAYOUTS["image"], {}, (), fixed=fixed))

    assert max(sizes["height"], sizes["width"]) <= 192


def test_given_sizes_are_kept_clear_of() -> None:
    """What is made up differs from what the user gave, and a total follows it."""
    ports = LAYOUTS["past"]
    for given_sizes in ({"past": 6}, {"batch": 7}, {"seq": 3}):
        sizes = next(size_plans(ports, given_sizes, (), fixed={4, 8}))
        assert sizes.items() >= given_sizes.items()
        assert sizes["total"] == sizes["past"] + sizes["seq"]
        assert not coincide(made_up(ports, sizes), {4, 8})


def test_batches_are_one_size_where_they_have_to_be(save: Save) -> None:
    """Two names for what is one: the lengths still differ."""
    path = save("""g (float[N, S, 4] x, float[M, T, 4] z) => (float[a, b, c] y)
        { y = Concat <axis = 1> (x, z) }""")

    x, z = (np.asarray(feed).shape for feed in reference(path).feeds[0].values())

    assert x[0] == z[0]
    assert x[1] != z[1]


def test_fixed_sizes_are_those_of_matrices_and_stored_shapes() -> None:
    """Of values, too, but not those of vectors, nor how large a kernel is."""
    model = built(
        """g (float[N, 30, 17] x) => (float[a, b] y)
        <int64[2] shape = {-1, 11}> {
        c = Conv (x, w, bias) y = Reshape (c, shape) }""",
        w=(12, 30, 5),
        bias=(19,),
    )

    assert fixed_sizes(Dataflow(model)) == {30, 17, 12, 13, 11}


def test_swapped_target_of_a_reshape_is_found(save: Save) -> None:
    """With eight of the last length, two times four would be as many."""
    text = """g (float[B, S, 99] s, float[B, T] t, float[B, 4, U] x)
        => (float[B, S, 99] p, float[B, T] q, float[a, b] y)
        <int64 two = {2}, int64[1] last = {-1}, int64[1] zero = {0}> {
        p = Neg (s) q = Neg (t) d = Shape (x) u = Gather (d, two) n = Unsqueeze (u, zero)
        f = Concat <axis = 0> (%s) y = Reshape (x, f) }"""

    assert not verify_equivalence(save(text % "last, n"), save(text % "n, last", "b")).equivalent


# -- a second set ---------------------------------------------------------------------------------

ROWS = "g (float[N, 4] x) => (float[N, 4] y) { y = Neg (x) }"
PAIRS = "g (float[N, S] x) => (float[N, S] y) { y = Identity (x) }"


def added(found: Reference) -> dict[str, int]:
    """Return the cases of other sizes and of larger ones, by their kind."""
    cases = {name.partition(" (")[0]: case for case, name in found.stimulus.cases.items()}
    return {kind: case for kind, case in cases.items() if kind.endswith(" sizes")}


def test_one_case_has_other_sizes_and_one_larger_ones(save: Save) -> None:
    """They are drawn from the first seed, are the last, and say what changed."""
    found = reference(save(TOKENS), seeds=(5, 6))
    stimulus = found.stimulus

    first, _, other, larger = (np.asarray(f["ids"]).shape for f in stimulus.feeds.values())
    assert not set(first) & set(other)
    assert (larger[0] >= 64 * first[0], larger[1] >= 2 * first[1]) == (True, True)
    assert list(stimulus.cases) == [5, 6, 7, 8] == list(found.outputs)
    assert stimulus.seeds == (5, 6)
    assert stimulus.cases[7] == f"other sizes (batch={other[0]}, seq={other[1]})"
    assert stimulus.cases[8] == f"larger sizes (batch={larger[0]}, seq={larger[1]})"
    assert stimulus.choices[0].shape == first


def test_other_sizes_do_not_count_for_what_is_blind(save: Save) -> None:
    """That the shape of an output follows a size says nothing about its numbers."""
    text = ROWS.replace("=> (float[N, 4] y)", "=> (float[N, 4] y, float[N, 4] z)").replace(
        "y = Neg (x)", "y = Neg (x) h = Sub (x, x) z = Cos (h)"
    )
    found = reference(save(text))

    cases = [name.partition(" (")[0] for name in found.stimulus.cases.values()]
    assert cases[-2:] == ["other sizes", "larger sizes"]
    assert found.blind == ("z",)


def test_many_symbols_are_not_all_named(save: Save) -> None:
    """The first four are."""
    axes = ", ".join(f"float[A{index}, B{index}] x{index}" for index in range(3))
    text = f"g ({axes}) => (float y) {{ s = Size (x0) y = Cast <to = 1> (s) }}"
    found = reference(save(text))

    label = found.stimulus.cases[added(found)["other sizes"]]
    assert label.endswith(", …)")
    assert label.count("=") == 4


def test_size_that_was_baked_in_is_found(save: Save) -> None:
    """The candidate runs on the sizes that it was made for, and on no others."""
    ours = save(ROWS)
    rows = reference(ours).stimulus.choices[0].shape[0]
    baked = f"<int64[2] s = {{{rows}, 4}}> {{ n = Neg (x) y = Reshape (n, s)"

    theirs = save(ROWS.replace("{ y = Neg (x)", baked), "theirs")

    assert not verify_equivalence(ours, theirs).equivalent


def test_what_is_equal_stays_so() -> None:
    """Sizes that only run where they are equal are changed together."""
    ports = LAYOUTS["two-sequences"]
    sizes = {"batch": 2, "eseq": 8, "dseq": 8}

    others = other_sizes(ports, sizes, smaller(sizes, {"batch"}))

    assert others["eseq"] == others["dseq"] != 8


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        pytest.param(ROWS, {"sizes": {"N": 2}}, id="sizes-are-given"),
        pytest.param(ROWS, {"request": InputRequest(shapes={"x": (2, 4)})}, id="shapes-are-given"),
        pytest.param(ROWS.replace("[N, 4]", "[3, 4]"), {}, id="nothing-is-open"),
        pytest.param(ROWS.replace("Neg (x)", "Add (x, w)"), {}, id="tied"),
        pytest.param(
            ROWS.replace("{ y = Neg (x)", "<int64[2] s = {2, 4}> { y = Reshape (x, s)"),
            {},
            id="baked-in",
        ),
    ],
)
def test_there_are_no_other_sizes(save: Save, text: str, settings: dict[str, object]) -> None:
    """The user's are the only ones, or the model's; nothing is said."""
    found = reference(save(built(text, w=(5, 4))), **settings)
    stimulus = found.stimulus

    assert not added(found)
    assert all(name.startswith("seed ") for name in stimulus.cases.values())


def test_given_inputs_have_no_other_sizes(save: Save, tmp_path: Path) -> None:
    """Who gives values has chosen."""
    np.savez(tmp_path / "x.npz", x=np.ones((3, 4), np.float32))

    found = reference(save(ROWS), request=InputRequest(given=tmp_path / "x.npz"))

    assert found.stimulus.cases == {0: "x.npz"}


class Picky:
    """A runner that refuses other sizes along some axes than those that it saw first."""

    def __init__(self, kept: Collection[int], error: Exception) -> None:
        """Refuse with *error*."""
        self.kept, self.error = kept, error
        self.tried: list[tuple[int, ...]] = []
        self.restarts = 0

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return what is fed."""
        values = np.asarray(feeds["x"])
        self.tried.append(values.shape)
        if any(values.shape[axis] != self.tried[0][axis] for axis in self.kept):
            raise self.error
        return {"y": (Leaf("", "float32", values),)}

    def run_each(self, feeds: Sequence[Mapping[str, Feed]]) -> list[Outputs]:
        """Return what is fed, each time."""
        return [self.run(each) for each in feeds]

    def restart(self) -> None:
        """Count."""
        self.restarts += 1


@pytest.mark.parametrize("kept", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize(
    "error", [RunError("no"), StoppedError("crashed (SIGSEGV)", "running the original")]
)
def test_fewer_sizes_change_where_all_do_not_run(
    save: Save, kept: tuple[int, ...], error: Exception
) -> None:
    """Only the batch, or only the lengths; larger ones have more rows. A crash is not the end."""
    flow, runner = Dataflow(read_model(save(PAIRS))), Picky(kept, error)
    stimulus, outputs = find_stimulus(
        flow,
        input_ports(flow.model.graph),
        runner,  # type: ignore[arg-type]
        (0, 1),
        {},
        resize=True,
    )

    first, _, *others = (np.asarray(feeds["x"]).shape for feeds in stimulus.feeds.values())
    assert outputs.keys() == stimulus.feeds.keys() == stimulus.cases.keys()
    kinds = [[axis for axis in (0, 1) if shape[axis] == first[axis]] for shape in others]
    assert kinds == {(): [[], []], (0,): [[0]], (1,): [[1], [1]], (0, 1): []}[kept]
    assert bool(runner.restarts) == (bool(kept) and isinstance(error, StoppedError))


def test_other_sizes_of_images_are_smaller_and_odd(save: Save) -> None:
    """They cost no more, and what holds for even sizes need not hold for them."""
    text = "g (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { y = Neg (x) }"

    first, _, other, *_ = (np.asarray(f["x"]).shape for f in reference(save(text)).feeds.values())

    assert np.prod(other) < np.prod(first)
    assert all(one != two and two % 2 for one, two in zip(first[2:], other[2:], strict=True))


def test_larger_sizes_are_tried_where_they_are_little_work(save: Save) -> None:
    """The wider a layer, the fewer rows; none are added where that is much work, too."""
    text = "g (float[N, 500] x) => (float[N, 20] y) { h = MatMul (x, v) y = MatMul (h, w) }"
    rows = {}
    for width in (1, 4_000, 8_000):
        found = reference(save(built(text, v=(500, width), w=(width, 20))))
        case = added(found).get("larger sizes")
        rows[width] = 0 if case is None else np.asarray(found.feeds[case]["x"]).shape[0]

    assert rows == {1: 128, 4_000: 16, 8_000: 0}


def test_difference_of_one_row_in_a_hundred_is_found(save: Save) -> None:
    """It shows in a large batch only."""
    text = """g (float[N, 4] x) => (float[N, 4] y)
    <int64 zero = {0}, int64 first = {40}, float w = {2}>
    { s = Shape (x) n = Gather (s, zero) b = Less (n, first) z = Mul (x, w)
      y = Where (b, x, SIDE) }"""
    ours, theirs = save(text.replace("SIDE", "x")), save(text.replace("SIDE", "z"), "theirs")

    assert verify_equivalence(ours, theirs).verdict == "different"
    assert verify_equivalence(ours, theirs, Check(sizes={"N": 2})).verdict == "inconclusive"


def test_length_stays_where_the_table_of_positions_ends(save: Save) -> None:
    """There are more rows all the same."""
    text = """g (int64[batch, seq] ids) => (float[a, b, c] y) <int64 zero = {0}, int64 one = {1}>
    { s = Shape (ids) n = Gather (s, one) r = Range (zero, n, one) p = Gather (places, r)
      e = Gather (words, ids) y = Add (e, p) }"""
    found = reference(save(built(text, places=(13, 2), words=(9, 2))))

    first, larger = (np.asarray(found.feeds[c]["ids"]) for c in (0, added(found)["larger sizes"]))
    assert larger.shape[0] >= 64 * first.shape[0]
    assert larger.shape[1] == first.shape[1]


def test_sizes_that_make_nan_of_numbers_are_left_out(save: Save) -> None:
    """NaN equals NaN, so nothing would be compared any more."""
    path = save("""g (float[N, 2] x) => (float[N, 2] y) <int64 zero = {0}, float most = {20}>
    { s = Shape (x) n = Gather (s, zero) f = Cast <to = 1> (n) d = Sub (most, f)
      l = Log (d) y = Mul (x, l) }""")
    found = reference(path)

    assert list(added(found)) == ["other sizes"]
    assert all(np.isfinite(leaf.data).all() for run in found.outputs.values() for leaf in run["y"])


def test_what_is_proved_is_fed_little(save: Save) -> None:
    """Numbers prove nothing more there."""
    path = save(ROWS)

    proved = verify_equivalence(path, path, Check(), prove=True)

    assert list(proved.cases.values()) == ["seed 0", "seed 1"]


def test_output_is_as_blind_when_saved_inputs_are_read(save: Save, tmp_path: Path) -> None:
    """That its shape follows the input's says nothing about its numbers."""
    path, saved = (
        save(ROWS.replace("y = Neg (x)", "h = Sub (x, x) y = Cos (h)")),
        tmp_path / "x.npz",
    )
    made = verify_equivalence(path, path, Check(request=InputRequest(save=saved)))
    read = verify_equivalence(path, path, Check(request=InputRequest(given=saved)))

    assert made.blind_outputs == read.blind_outputs == ("y",)
    assert len(read.cases) == 4


# -- sizes that the model relates -----------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_mask_is_as_long_as_past_and_present(tmp_path: Path, style: str) -> None:
    """That is read from the graph, whatever dimensions are called."""
    write(path := tmp_path / "m.onnx", replace(SIZES["tiny"], layers=1), style)
    model = onnx.load(path, load_external_data=False)
    names = {"batch": "n", "sequence": "s", "past": "p", "total": "m"}
    for info in (*model.graph.input, *model.graph.output):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = names[dim.dim_param]
    onnx.save(model, path)

    assert SizeTerms(Dataflow(read_model(path)), input_ports(model.graph)).related() == {
        "m": ("p", "s")
    }
    for feeds in reference(path).feeds.values():
        shapes = {name: np.asarray(feed).shape for name, feed in feeds.items()}
        past = shapes["past_key_values.0.key"][2]
        assert shapes["attention_mask"][1] == past + shapes["input_ids"][1]


@pytest.mark.parametrize(
    ("nodes", "related"),
    [
        pytest.param("c = Concat <axis = 0> (a, b) y = Add (c, d)", {"d": ("a", "b")}, id="sum"),
        pytest.param("y = Add (a, d)", {"d": ("a",)}, id="same"),
        pytest.param(
            "c = Concat <axis = 0> (a, a, one) y = Add (c, d)", {"d": ("a", "a", 1)}, id="number"
        ),
        pytest.param(
            "e = Add (a, b) c = Concat <axis = 0> (a, b) y = Add (c, d)",
            {"b": ("a",), "d": ("a", "a")},
            id="sum-of-what-is-the-same",
        ),
        pytest.param("y = Concat <axis = 0> (a, b, d)", {}, id="beside-each-other"),
        pytest.param("n = Shape (a) t = Slice (d, zero, n) y = Add (a, t)", {}, id="cut-to-length"),
        pytest.param(
            "u = Concat <axis = 0> (a, b) v = Concat <axis = 0> (d, one) y = Add (u, v)",
            {},
            id="no-sum",
        ),
    ],
)
def test_sizes_that_meet_are_related(
    save: Save, nodes: str, related: dict[str, tuple[int | str, ...]]
) -> None:
    """Those that never meet, of which one is cut, or of which none is a sum of others, are not."""
    stored = "<int64[1] zero = {0}, float[1] one = {1}>"
    path = save(f"g (float[a] a, float[b] b, float[d] d) => (float[y] y) {stored} {{ {nodes} }}")
    model = read_model(path)

    assert SizeTerms(Dataflow(model), input_ports(model.graph)).related() == related


# -- no clock -------------------------------------------------------------------------------------


def test_no_clock_has_a_say(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which each run takes an hour is fed the same, if it may take that long."""
    fixed = ROWS.replace("[N, 4]", "[1, 2]")
    paths = [save(text, str(index)) for index, text in enumerate((TOKENS, ROWS, fixed))]
    execution = Execution(isolated=False)  # a process of its own has a time limit

    def fed() -> list[bytes]:
        found = [reference(path, execution=execution).feeds for path in paths]
        return [
            np.asarray(f).tobytes() for feeds in found for c in feeds.values() for f in c.values()
        ]

    expected = fed()
    for clock in ("monotonic", "perf_counter", "process_time", "time"):
        monkeypatch.setattr(time, clock, itertools.count(0.0, 3600.0).__next__)

    assert fed() == expected
