"""How far two outputs may be apart, and how far they are: tolerances, figures, a judge."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import EncodeError

from dplcli.errors import UsageError, did_you_mean
from dplcli.ir import Node, Shape, Value, operators
from dplcli.ir.types import DTYPE_CODES
from dplcli.onnx_io.convert import all_nodes
from dplcli.verify.check import REFERENCE_LEVEL, Check, Override
from dplcli.verify.model import Dataflow, Waypoint, integer, model_of, other_floats
from dplcli.verify.run import Runner
from dplcli.verify.values import (
    Array,
    Feed,
    Leaf,
    ModelSource,
    Outputs,
    RunError,
    Runs,
    StoppedError,
    map_feed,
)
from dplcli.verify.verdict import Figures, OutputComparison

# How many roundings lead to an output, counted along the longest path to it.


# What a sum of unknown length counts for.
_ASSUMED_TERMS = 4096
_DOMAINS = frozenset({"", "com.microsoft"})


@dataclass(frozen=True)
class Depth:
    """How often a number is rounded on the longest path to an output.

    Attributes:
        roundings: The terms of all sums, plus one for every other operator that computes.
        operators: The operators that compute; a sum counts as one.
        assumed: Whether the length of some sum is not known.
    """

    roundings: int = 0
    operators: int = 0
    assumed: bool = False


_NOTHING = Depth()


def output_depths(flow: Dataflow) -> Mapping[str, Depth]:
    """Return the depth of every graph output whose depth can be counted."""
    depths = value_depths(flow)
    names = (info.name for info in flow.model.graph.output)
    return {name: depths[name] for name in names if name in depths}


def value_depths(flow: Dataflow) -> Mapping[str, Depth]:
    """Return the depth of every value of the main graph.

    Nodes with bodies, calls of functions and operators of other domains cannot be counted. Every
    value that depends on one of them is left out.
    """
    depths: dict[Value, Depth | None] = {}
    for node in flow.graph:
        depth = _depth_after(node, depths)
        depths.update((value, depth) for value in node.outputs if value is not None)
    for value in flow.graph.outputs:
        depths.setdefault(value, _NOTHING)
    return {value.name: depth for value, depth in depths.items() if depth is not None}


def _depth_after(node: Node, depths: Mapping[Value, Depth | None]) -> Depth | None:
    before = [depths.get(value, _NOTHING) for value in node.inputs if value is not None]
    counted = [depth for depth in before if depth is not None]
    if node.subgraphs or node.domain not in _DOMAINS or len(counted) < len(before):
        return None
    terms = _terms(node)
    return Depth(
        max((depth.roundings for depth in counted), default=0)
        + (_ASSUMED_TERMS if terms is None else terms),
        max((depth.operators for depth in counted), default=0) + (terms != 0),
        terms is None or any(depth.assumed for depth in counted),
    )


_MOST_ASKED = 4
"""Which of the first operands may be a matrix or a window."""


def _terms(node: Node) -> int | None:
    """Return how many numbers one element of the result sums up; None if that is unknown."""
    if node.op_type in operators.EXACT:
        return 0
    if (over := operators.SUMMED.get(node.op_type)) is None:
        return 1
    shapes = [None if value is None else Waypoint(value).dims for value in node.inputs]
    shapes += [None] * _MOST_ASKED  # of operands that a node lacks nothing is known
    match over:
        case "inner":
            return _inner_size(node, shapes)
        case "window":
            window = node.attributes.get("kernel_shape")
            return math.prod(window.value) if window and isinstance(window.value, tuple) else None
        case "kernel":
            dims, start = shapes[operators.KERNEL_SLOT.get(node.op_type, 1)], 1
        case "row":
            dims, start = shapes[0], integer(node, "axis", -1)
        case "sample":
            dims = shapes[0]
            start = int(len(dims or ()) > 1)
        case _:
            return None
    return None if dims is None else _size(dims[start:])


def _inner_size(node: Node, shapes: list[Shape | None]) -> int | None:
    left, right = shapes[0], shapes[operators.MATRIX_SLOT.get(node.op_type, 1)]
    if left and not integer(node, "transA", 0) and isinstance(left[-1], int):
        return left[-1]
    axis = -1 if integer(node, "transB", 0) else -2
    if right and len(right) >= -axis and isinstance(right[axis], int):
        return _size(right[axis : axis + 1 or None])
    return None


def _size(dims: Shape) -> int | None:
    sizes = [dim for dim in dims if isinstance(dim, int)]
    return math.prod(sizes) if len(sizes) == len(dims) else None


# What the original says about its outputs.


_QUANTISE = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "QGemm", "QAttention"})
_CHOOSE = frozenset({"ArgMax", "ArgMin", "TopK", "NonMaxSuppression"})
_ROUND = frozenset({"Round", "Floor", "Ceil", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
_MOVES = operators.REARRANGING | {"MaxPool", "Slice"}


@dataclass(frozen=True)
class Facts:
    """What the original says about its outputs.

    Attributes:
        coarsest: The coarsest float type that it computes with.
        depths: How many roundings lead to each output, where that can be counted.
        stepped: Outputs that a quantising operator makes.
        rounds: Whether some operator inside rounds to steps.
    """

    coarsest: str = ""
    depths: Mapping[str, Depth] = field(default_factory=dict)
    stepped: Collection[str] = frozenset()
    rounds: bool = False


def facts_of(flow: Dataflow) -> Facts:
    """Read off the original what a comparison of its outputs depends on."""
    graphs = flow.graph.model.graphs()
    is_stepped = any(rounds(node) for graph in graphs for node in graph)
    return Facts(working_type(flow), output_depths(flow), _stepped_outputs(flow), is_stepped)


def quantises(node: onnx.NodeProto | Node) -> bool:
    """Tell whether a node makes steps of a quantised type."""
    return node.op_type in _QUANTISE or node.op_type.startswith("QLinear")


_OF_STEPS = frozenset({"DequantizeLinear", "MatMulInteger", "ConvInteger", "MatMulIntegerToFloat"})
_OF_STEPS |= {"DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulNBits", "MatMulBnb4"}
_OF_STEPS |= {"GatherBlockQuantized"}


def is_quantised(model: onnx.ModelProto) -> bool:
    """Tell whether a model computes with numbers in steps."""
    nodes = (node for scope in (model.graph, *model.functions) for node in all_nodes(scope))
    return any(quantises(node) or node.op_type in _OF_STEPS for node in nodes)


def rounds(node: onnx.NodeProto | Node) -> bool:
    """Tell whether a node rounds to steps."""
    return quantises(node) or node.op_type in _ROUND


def hides_differences(node: onnx.NodeProto) -> bool:
    """Tell whether a node may give the same for values that differ by more than rounding."""
    return rounds(node) or node.op_type in _CHOOSE


def _stepped_outputs(flow: Dataflow) -> frozenset[str]:
    """Return the graph outputs that rounding to steps makes, reshapes and the like aside.

    A cast from floats counts: for integers, it rounds.
    """
    outputs = set()
    for output in flow.graph.outputs:
        value: Value | None = output
        while value and (node := value.producer) and node.op_type in _MOVES and not node.domain:
            value = node.inputs[0]
        if value is None or (node := value.producer) is None or value.index:
            continue
        read = node.inputs[0].declared_type if node.inputs and node.inputs[0] else None
        is_cast = node.op_type == "Cast" and read is not None and read.dtype in FLOATS
        if quantises(node) or is_cast:
            outputs.add(output.name)
    return frozenset(outputs)


# How far two results may be apart that compute the same thing in another order.
#
# A rounding error is at most half a unit in the last place. Errors of *n* steps add up like a
# random walk: to about ``eps * sqrt(n)``. *n* is counted above (`Depth`).
#
# - Four times that is allowed relative to the element itself.
# - A quarter of that, relative to the largest element, is added, for sums whose terms cancel.
# - *n* is at least 1,024: Exp, or a division by a small number, enlarges errors made before it.
# - *n* is at most 65,536 (256 operators of 256 terms, say). This is also taken where *n* cannot be
#   counted.
# - Every kernel we know sums half precision up in float32 and rounds once per operator. For half
#   precision, therefore, *n* is the number of operators, from 4 to 16.
#
# ===========  ====================  ====================
# dtype        rtol                  atol / max |original|
# ===========  ====================  ====================
# float64      2.8e-14 to 2.3e-13    7.1e-15 to 5.7e-14
# float32      1.5e-5 to 1.2e-4      3.8e-6 to 3.1e-5
# float16      7.8e-3 to 1.6e-2      2.0e-3 to 3.9e-3
# bfloat16     6.3e-2 to 1.3e-1      1.6e-2 to 3.1e-2
# ===========  ====================  ====================
#
# For comparison, measured over 135 real models: onnxruntime's own optimiser moves a typical output
# by a fiftieth of the largest tolerance, and five models, most of them quantised, by more than a
# third of it.
#
# An output is judged by the coarsest type that the model computes with: a float32 output of float16
# layers carries their rounding.
#
# "The largest element" leaves out fill values, the -3.4e38, -65504 or -1e9 that stand for masked
# places. They are no part of any sum, and would allow every other element to be anything.


UNITS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_TINY = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
_HALVES = frozenset({"float16", "bfloat16"})
_MARGIN = 4.0
_CANCELLING = 0.25
_FEWEST, _MOST = 2**10, 2**16
_HALF_FEWEST, _HALF_MOST = 2**2, 2**4
# Operators that compute nothing: they move, convert or make values.
_NOT_ARITHMETIC = (
    operators.MOVING
    | operators.CASTS
    | operators.CONTROL_FLOW
    | {"DequantizeLinear", "QuantizeLinear"}
)

# A fill value is at least this large, and this many times as large as all other numbers.
_FILL, _APART = 1e4, 2.0**10
# The largest number of a type is a fill value even where it stands once.
_LARGEST = {name: float(np.finfo(name).max) for name in ("float16", "float32", "float64")}
_LARGEST["bfloat16"] = 2.0**128 - 2.0**120
_EXTREMES = frozenset(_LARGEST.values())

FLOATS = frozenset(UNITS)


def held_as(dtype: str, feed: Feed) -> Feed:
    """Return floats as another float type holds them: what is finite stays so.

    Args:
        dtype: The type, as numpy calls it; for all but floats, nothing is done.
        feed: The value.
    """

    def hold(array: Array) -> Array:
        if array.dtype.name == dtype or not {array.dtype.name, dtype} <= FLOATS:
            return array
        most = _LARGEST[dtype]
        wide = array.astype(np.float64)
        within = np.where(np.isinf(wide), wide, np.clip(wide, -most, most))
        return within.astype(onnx.helper.tensor_dtype_to_np_dtype(DTYPE_CODES[dtype]))

    return map_feed(hold, feed)


def in_types(feeds: Mapping[str, Feed], types: Mapping[str, str]) -> dict[str, Feed]:
    """Return what a model is fed that takes some inputs in other float types."""
    return {n: held_as(types[n], feed) if n in types else feed for n, feed in feeds.items()}


@dataclass(frozen=True)
class Retyped:
    """What a candidate has in other float types than the original.

    Attributes:
        inputs: The types of the candidate's inputs that are others.
        outputs: The types of the original's outputs that are others in the candidate.
        types: Those of the candidate.
        said: The differences in words.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    types: frozenset[str]
    said: tuple[str, ...]

    @classmethod
    def of(cls, original: onnx.GraphProto, candidate: onnx.GraphProto) -> Self:
        """Compare two signatures."""
        inputs, outputs = other_floats(original, candidate)
        types = {theirs for _, theirs in (*inputs.values(), *outputs.values())}
        said = (
            f"{what} {name!r} is {theirs}, not {ours}"
            for what, ends in (("input", inputs), ("output", outputs))
            for name, (ours, theirs) in ends.items()
        )
        return cls(
            {name: theirs for name, (_, theirs) in inputs.items()},
            {name: ours for name, (ours, _) in outputs.items()},
            frozenset(types),
            tuple(said),
        )

    def as_original(self, outputs: Outputs) -> Outputs:
        """Return what the candidate gave in the types of the original."""
        return outputs | {
            name: tuple(
                replace(leaf, dtype=dtype, data=_held_here(dtype, leaf.data))
                for leaf in outputs[name]
            )
            for name, dtype in self.outputs.items()
        }


NOTHING_RETYPED = Retyped({}, {}, frozenset(), ())


def _held_here(dtype: str, data: Array) -> Array:
    """Return floats as leaves hold them: bfloat16 as float32."""
    held = held_as(dtype, data)
    assert isinstance(held, np.ndarray)  # noqa: S101  # as data is
    return held.astype(np.float32) if dtype == "bfloat16" else held


def coarsest_of(types: Iterable[str]) -> str:
    """Return the coarsest of some float types, '' for none."""
    return max(types, key=lambda name: UNITS.get(name, 0.0), default="")


@dataclass(frozen=True)
class Tolerance:
    """The difference that one element may have: ``atol + rtol * |original|``.

    Attributes:
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        derivation: Where the two come from, in words.
    """

    rtol: float
    atol: float
    derivation: str = ""


def derive_tolerance(  # noqa: PLR0913  # what it depends on
    dtype: str,
    reference: Array,
    *,
    coarsest: str,
    rtol: float | None,
    atol: float | None,
    depth: Depth | None = None,
    roundings: int | None = None,
) -> Tolerance:
    """Return the tolerance of one output.

    Args:
        dtype: Element type of the output; anything but a float has to agree exactly.
        reference: The original's values, whose magnitude sets the absolute tolerance.
        coarsest: The coarsest float type that the model computes with (`working_type`).
        rtol: Overrides the derived relative tolerance.
        atol: Overrides the derived absolute tolerance.
        depth: How many roundings lead to the output; None if that is not known.
        roundings: How many to allow for, whatever *depth* says; halves have sixteen at most.
    """
    if dtype not in FLOATS:
        return Tolerance(0.0, 0.0, "exact")
    judged = coarsest_of([dtype, coarsest])
    halved = judged in _HALVES
    if roundings is None:
        roundings, counted = _roundings(depth, halved=halved)
    else:
        roundings, counted = min(roundings, _HALF_MOST if halved else _MOST), "of one place"
    relative = _MARGIN * UNITS[judged] * roundings**0.5
    absolute = _CANCELLING * relative * max(scale_of(reference), _TINY[dtype])
    chosen = [name for name, value in (("rtol", rtol), ("atol", atol)) if value is not None]
    given = f"; {' and '.join(chosen)} given" if chosen else ""
    derivation = f"{_MARGIN:g} x eps({judged}) x sqrt({roundings:,} roundings, {counted}){given}"
    return Tolerance(
        relative if rtol is None else rtol,
        absolute if atol is None else atol,
        derivation if len(chosen) < len(("rtol", "atol")) else "given",
    )


def _roundings(depth: Depth | None, *, halved: bool) -> tuple[int, str]:
    """Return how many roundings to allow for, and where that number comes from."""
    fewest, most = (_HALF_FEWEST, _HALF_MOST) if halved else (_FEWEST, _MOST)
    if depth is None:
        return most, "assumed"
    counted = depth.operators if halved else depth.roundings
    if not fewest < counted < most:
        return (fewest, "the least") if counted <= fewest else (most, "the most")
    return counted, "partly assumed" if depth.assumed else "on the longest path"


def scale_of(values: Array) -> float:
    """Return the largest finite magnitude that is no fill value.

    A fill value is far from all other numbers. It stands in several elements, or is the largest
    number of a type.
    """
    finite = np.abs(values[np.isfinite(values)].astype(np.float64))
    largest = float(finite.max(initial=0.0))
    while largest >= _FILL:
        others = finite[finite < largest]
        below = float(others.max(initial=0.0))
        is_alone = finite.size - others.size == 1 and largest not in _EXTREMES
        if is_alone or not 0 < below <= largest / _APART:
            break
        finite, largest = others, below
    return largest


def working_type(flow: Dataflow) -> str:
    """Return the coarsest float type that an operator of the main graph computes, '' if none."""
    types = (
        value.declared_type
        for node in flow.graph
        if node.op_type not in _NOT_ARITHMETIC
        for value in node.outputs
        if value is not None
    )
    computed = {declared.dtype or "" for declared in types if declared is not None}
    return coarsest_of(computed & FLOATS)


# Comparing one output of two models, element by element.
#
# A float passes within the tolerance above, NaN and infinity in the same place only. An integer, a
# boolean or a string has to agree exactly. Two rules are softer, because a difference in the last
# bit before a rounding is a whole step after it:
#
# - An integer output that a quantising operator makes may be one step off in a few elements.
# - Where the original rounds inside and an output leaves its tolerance, the original's own last
#     bits decide (`Limit`): the largest difference and the root mean square must both stay within
#     a small multiple of what these bits move. More than that is refused.


Steps = npt.NDArray[np.uint64]
Reals = npt.NDArray[np.float64]

_QUANTILE = 0.99
_DECIBELS = 20
# Rounding in the last bits must not make the tolerance that is needed fail by itself.
_ROUNDED_UP = 1 + 2.0**-40
# How many times as far as the original's own last bits a candidate may move an output.
_BIT_MARGIN = 2.0
# What share of a quantised output may be one step off.
_FLIPPED = 0.02
_NO_OVERRIDE = Override()


@dataclass(frozen=True)
class Limit:
    """How far an output of the original moves with its own last bits.

    Attributes:
        max_abs: Largest movement of one element.
        rmse: Largest root mean square movement of one run.
    """

    max_abs: float
    rmse: float


@dataclass(frozen=True)
class Judge:
    """How to compare outputs: the tolerances, and at which levels the two models ran.

    Attributes:
        check: Tolerances that somebody chose.
        facts: What the original says about its outputs.
        case: Number of the inputs (`VerificationResult.cases`).
        level: Optimisation level at which the candidate ran.
        baseline: Level at which the original ran.
        limits: How far outputs move with the original's own last bits, where measured.
        is_exact: Whether nothing may differ, since both models are proved to be one graph.
        roundings: How many roundings to allow for; None for as many as were counted.
        is_brief: Whether figures are left out where floats agree.
    """

    check: Check
    facts: Facts
    case: int
    level: str = REFERENCE_LEVEL
    baseline: str = REFERENCE_LEVEL
    limits: Mapping[str, Limit] = field(default_factory=dict)
    is_exact: bool = False
    roundings: int | None = None
    is_brief: bool = False

    def compare(
        self, name: str, expected: Sequence[Leaf], actual: Sequence[Leaf]
    ) -> OutputComparison:
        """Compare one output. For a sequence, return the comparison of its worst element."""
        pairs = [
            self._compare_leaf(name, ours, theirs)
            for ours, theirs in zip(expected, actual, strict=False)
        ]
        if not pairs:
            pairs = [self._blank(name, Leaf("", "empty", np.empty(0, np.uint8)))]
        worst = max(pairs, key=severity)
        if len(expected) == len(actual):
            return worst
        reason = f"it holds {len(actual)} elements where the original's holds {len(expected)}"
        return _beyond_help(worst, reason)

    def _blank(self, name: str, leaf: Leaf) -> OutputComparison:
        tolerance = self._tolerance(name, leaf)
        return OutputComparison(
            name=name,
            dtype=leaf.dtype,
            shape=leaf.data.shape,
            level=self.level,
            baseline=self.baseline,
            seed=self.case,
            rtol=tolerance.rtol,
            atol=tolerance.atol,
            ok=True,
            figures=Figures(needed_rtol=0.0, needed_atol=0.0),
            derivation=tolerance.derivation,
        )

    def _tolerance(self, name: str, leaf: Leaf) -> Tolerance:
        if self.is_exact:
            return Tolerance(0.0, 0.0, "none: the same graph gives the same bits")
        override = self.check.tolerances.get(name, _NO_OVERRIDE)
        if leaf.dtype not in FLOATS:
            return _tolerance_of_steps(leaf, override, stepped=name in self.facts.stepped)
        return derive_tolerance(
            leaf.dtype,
            leaf.data,
            coarsest=self.facts.coarsest,
            rtol=self.check.rtol if override.rtol is None else override.rtol,
            atol=self.check.atol if override.atol is None else override.atol,
            depth=self.facts.depths.get(name),
            roundings=self.roundings,
        )

    def _compare_leaf(self, name: str, expected: Leaf, actual: Leaf) -> OutputComparison:
        blank = self._blank(name, expected)
        where = f"element {expected.label}: " if expected.label else ""
        if expected.dtype != actual.dtype or expected.data.shape != actual.data.shape:
            what = ("type", actual.dtype, expected.dtype)
            if expected.dtype == actual.dtype:
                what = ("shape", str(actual.data.shape), str(expected.data.shape))
            reason = f"{where}its {what[0]} is {what[1]}, not {what[2]}"
            return replace(_beyond_help(blank, reason), mismatches=expected.data.size)
        if expected.dtype in FLOATS:
            if self.check.of_rule is not None:  # a number for none, or for an overflow
                is_free = np.isnan(expected.data) | (
                    np.isinf(expected.data) & np.isfinite(actual.data)
                )
                actual = replace(actual, data=np.where(is_free, expected.data, actual.data))
            comparison = _compare_floats(blank, expected, actual, is_brief=self.is_brief)
        elif expected.data.dtype.kind in "iub":
            flips = name in self.facts.stepped and name not in self.check.tolerances
            flips = flips and not self.is_exact
            comparison = _compare_integers(
                blank,
                expected.data,
                actual.data,
                flips=flips,
                most=1.0 if self.check.of_rule is not None else _FLIPPED,
            )
        else:
            comparison = _compare_exactly(blank, expected, actual)
        given, limit = self.check, self.limits.get(name)
        is_chosen = name in given.tolerances or (given.rtol, given.atol) != (None, None)
        if not comparison.ok and limit is not None and not is_chosen:
            comparison = _within_limit(comparison, blank, limit, expected, actual)
        return (
            comparison
            if comparison.ok
            else replace(comparison, reason=where + (comparison.reason or ""))
        )


def severity(comparison: OutputComparison) -> tuple[bool, int, float]:
    """Return a key that sorts comparisons from best to worst, failures last."""
    return (not comparison.ok, comparison.mismatches, comparison.max_abs or 0.0)


def _tolerance_of_steps(leaf: Leaf, override: Override, *, stepped: bool) -> Tolerance:
    """Return the tolerance of what is no float: 0, or steps of integers."""
    if leaf.data.dtype.kind not in "iu" or leaf.dtype in {"string", "empty"}:
        return Tolerance(0.0, 0.0, "exact")
    if override != _NO_OVERRIDE:
        return Tolerance(override.rtol or 0.0, override.atol or 0.0, "given for this output")
    if stepped:
        return Tolerance(0.0, 1.0, f"one quantisation step, in {_FLIPPED:.0%} of the elements")
    return Tolerance(0.0, 0.0, "exact")


def _compare_exactly(blank: OutputComparison, expected: Leaf, actual: Leaf) -> OutputComparison:
    differs = np.asarray(expected.data != actual.data)
    if not differs.any():
        return blank
    comparison = _beyond_help(replace(blank, mismatches=int(differs.sum())), "")
    index = _index(differs.reshape(-1).argmax(), differs.shape)
    return _with_reason(_at_worst(comparison, index, expected.data, actual.data))


def _compare_integers(
    blank: OutputComparison, expected: Array, actual: Array, *, flips: bool, most: float = _FLIPPED
) -> OutputComparison:
    """Compare integers or booleans; with *flips*, a share of *most* may be one step off."""
    differs = np.asarray(expected != actual)
    ours, theirs = expected.astype(np.float64), actual.astype(np.float64)
    comparison = _with_distances(blank, ours, theirs)
    if not differs.any():
        return replace(comparison, figures=replace(comparison.figures, steps=0 if flips else None))
    # Integers beyond 2**53 can differ where their nearest floats do not.
    difference = np.where(differs, np.maximum(np.abs(theirs - ours), 1.0), 0.0)
    outside = difference > blank.atol + blank.rtol * np.abs(ours)
    moved = int(differs.sum())
    too_many = flips and moved > max(1, int(most * differs.size))
    comparison = _with_needed(comparison, np.abs(ours), difference)
    comparison = replace(
        comparison,
        mismatches=moved if too_many else int(outside.sum()),
        ok=not outside.any() and not too_many,
        figures=replace(comparison.figures, steps=moved if flips else None),
    )
    comparison = _at_worst(
        comparison, _index(difference.reshape(-1).argmax(), ours.shape), expected, actual
    )
    if too_many and not outside.any():
        reason = f"{moved} of {differs.size} elements are one quantisation step off, all at once"
        return replace(comparison, reason=reason)
    return comparison if comparison.ok else _with_reason(comparison)


def _compare_floats(
    blank: OutputComparison, expected: Leaf, actual: Leaf, *, is_brief: bool = False
) -> OutputComparison:
    ours, theirs = expected.data.astype(np.float64), actual.data.astype(np.float64)
    both = np.isfinite(ours) & np.isfinite(theirs)
    nan_differs = np.isnan(ours) != np.isnan(theirs)
    other_differs = ~both & ~(np.isnan(ours) & np.isnan(theirs)) & (ours != theirs)
    ours_finite, theirs_finite = np.where(both, ours, 0), np.where(both, theirs, 0)
    magnitude = np.abs(ours_finite)
    with np.errstate(over="ignore"):
        difference = np.abs(theirs_finite - ours_finite)
        excess = difference - (blank.atol + blank.rtol * magnitude)
    outside = (excess > 0) | other_differs
    if is_brief and not outside.any():
        return blank
    places = _ordered(expected), _ordered(actual)  # by how many representable numbers they are off
    steps = (np.maximum(*places) - np.minimum(*places))[both]
    comparison = _with_distances(blank, ours_finite, theirs_finite) if both.any() else blank
    if other_differs.any():
        comparison = _beyond_help(comparison, "")
    else:
        comparison = _with_needed(comparison, magnitude, difference)
    comparison = replace(
        comparison,
        max_ulp=int(steps.max()) if steps.size else None,
        mismatches=int(outside.sum()),
        nan_mismatches=int(nan_differs.sum()),
        ok=not outside.any(),
        figures=replace(
            comparison.figures,
            inf_mismatches=int((other_differs & ~nan_differs).sum()),
            ulp_histogram=ulp_histogram(steps),
        ),
    )
    if not difference.any() and comparison.ok:
        return comparison
    badness = np.where(other_differs, np.inf, np.where(difference > 0, excess, -np.inf))
    index = _index(badness.reshape(-1).argmax(), badness.shape)
    comparison = _at_worst(comparison, index, ours, theirs)
    return comparison if comparison.ok else _with_reason(comparison)


def _within_limit(
    found: OutputComparison, blank: OutputComparison, limit: Limit, expected: Leaf, actual: Leaf
) -> OutputComparison:
    """Judge an output outside of its tolerance by what the original's own last bits move."""
    found = replace(found, figures=replace(found.figures, sensitivity=limit.max_abs))
    furthest = _BIT_MARGIN * limit.max_abs
    if furthest <= blank.atol or found.rmse is None or found.figures.needed_atol is None:
        return found
    wider = replace(
        blank,
        atol=furthest,
        derivation=f"{_BIT_MARGIN:g} x what the original's own last bits move, as it rounds inside",
    )
    if expected.dtype in FLOATS:
        again = _compare_floats(wider, expected, actual)
    else:
        again = _compare_integers(wider, expected.data, actual.data, flips=False)
    figures = replace(again.figures, sensitivity=limit.max_abs, steps=found.figures.steps)
    again = replace(again, figures=figures)
    if again.ok and found.rmse > _BIT_MARGIN * limit.rmse:
        reason = (
            f"its root mean square difference is {found.rmse:.3g}; the original's own last bits "
            f"move it by {limit.rmse:.3g}"
        )
        return replace(again, ok=False, reason=reason, mismatches=found.mismatches)
    return again


def _beyond_help(found: OutputComparison, reason: str) -> OutputComparison:
    """Return *found* as a failure that no tolerance would change."""
    figures = replace(found.figures, needed_rtol=None, needed_atol=None)
    return replace(found, ok=False, reason=reason, figures=figures)


def _with_needed(found: OutputComparison, magnitude: Reals, difference: Reals) -> OutputComparison:
    """Fill in the smallest multiple of the tolerance in force that covers *difference*.

    Where no multiple does (a tolerance of 0), the absolute part alone covers it.
    """
    rtol = atol = 0.0
    apart = difference > 0
    if apart.any():
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            factor = float((difference[apart] / (found.atol + found.rtol * magnitude[apart])).max())
        rtol, atol = factor * found.rtol * _ROUNDED_UP, factor * found.atol * _ROUNDED_UP
        if not math.isfinite(factor * max(found.rtol, found.atol)):
            rtol, atol = 0.0, float(difference.max())
    if not math.isfinite(rtol + atol):
        return _beyond_help(found, found.reason or "")
    figures = replace(found.figures, needed_rtol=rtol, needed_atol=atol)
    return replace(found, figures=figures)


def _with_distances(found: OutputComparison, ours: Reals, theirs: Reals) -> OutputComparison:
    """Fill in how far *theirs* is from *ours*: finite numbers of one shape.

    Numbers are divided by the largest one before they are squared, so that no square overflows.
    """
    if not ours.size:
        return found
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        difference = np.abs(theirs - ours)
        nonzero = ours != 0
        relative = difference[nonzero] / np.abs(ours[nonzero])
        scale = max(float(np.abs(ours).max()), float(np.abs(theirs).max()))
        mean_abs, mean_rel = difference.mean(), relative.mean() if relative.size else None
    rmse = _root_mean_square(difference)
    return replace(
        found,
        max_abs=_finite(difference.max()),
        max_rel=_finite(relative.max()) if relative.size else None,
        rmse=_finite(rmse),
        cosine=_cosine(ours / scale, theirs / scale) if scale else None,
        figures=replace(
            found.figures,
            mean_abs=_finite(mean_abs),
            mean_rel=None if mean_rel is None else _finite(mean_rel),
            quantile_abs=_finite(np.quantile(difference, _QUANTILE, method="higher")),
            snr_db=_decibels(_root_mean_square(np.abs(ours)), rmse),
        ),
    )


def _root_mean_square(values: Reals) -> float:
    largest = float(values.max(initial=0.0))
    if not largest or not math.isfinite(largest):
        return largest
    return float(np.sqrt(np.mean((values / largest) ** 2))) * largest


def _decibels(signal: float, noise: float) -> float | None:
    if not signal or not noise or not math.isfinite(signal) or not math.isfinite(noise):
        return None
    return _DECIBELS * (math.log10(signal) - math.log10(noise))


def _cosine(ours: Reals, theirs: Reals) -> float | None:
    norms = math.sqrt(float((ours**2).sum()) * float((theirs**2).sum()))
    if not norms:
        return None
    return max(-1.0, min(1.0, float((ours * theirs).sum()) / norms))


def _finite(value: float | np.floating) -> float | None:
    return float(value) if math.isfinite(value) else None


def ulp_histogram(steps: Steps) -> tuple[int, ...]:
    """Count elements 0, 1, 2 to 3, 4 to 7, … steps apart; the last entry is never 0."""
    if not steps.size:
        return ()
    _, exponents = np.frexp(steps.astype(np.float64))
    return tuple(int(count) for count in np.bincount(exponents.reshape(-1)))


def _ordered(leaf: Leaf) -> Steps:
    """Number the floats of a type in increasing order; both zeros get the same number."""
    width = leaf.data.dtype.itemsize * 8
    bits = leaf.data.view(f"u{leaf.data.dtype.itemsize}").astype(np.uint64)
    if leaf.dtype == "bfloat16":
        width, bits = 16, bits >> np.uint64(16)
    middle = np.uint64(1 << (width - 1))
    magnitude = bits & (middle - np.uint64(1))
    return np.where(bits & middle, middle - magnitude, middle + magnitude)


def _index(flat: np.intp, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.unravel_index(flat, shape))


def _at_worst(
    found: OutputComparison, index: tuple[int, ...], ours: Array, theirs: Array
) -> OutputComparison:
    values = (_shown(ours[index]), _shown(theirs[index]))
    return replace(found, worst_index=index, figures=replace(found.figures, worst_values=values))


def _with_reason(found: OutputComparison) -> OutputComparison:
    how_many = f"{found.mismatches} of {math.prod(found.shape)} elements"
    limit = "differ" if found.rtol == found.atol == 0 else "are outside the tolerance"
    want, got = found.figures.worst_values or ("", "")
    where = list(found.worst_index or ())
    return replace(found, reason=f"{how_many} {limit}; at {where} it is {got}, not {want}")


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# How far a model's outputs move when its own numbers move in their last bits.
#
# Rounding to steps (quantisation, Round) turns a difference in the last bit into a whole step. Then
# the size of rounding errors does not say how far two equivalent models may be apart, so the model
# itself is asked. Its float weights and inputs are multiplied by ``1 + u``, with ``u`` up to two
# units in the last place, several times, and the movement of its outputs is measured. Small models
# have few numbers near a step. Where no step is crossed, 32 units are tried: the rounding error of
# a sum of a thousand terms. A candidate that moves little further than this cannot be told from the
# original. One that computes something else usually can.


_DRAWS = 8
_QUIET, _LOUD = 2.0, 32.0
_LAST_BIT = {"float16": 2.0**-11, "float32": 2.0**-23, "float64": 2.0**-52}
# Numbers this large stand for infinity, as in masks, or make it, as scales do. They are not moved:
# to pass the largest float is no rounding error.
_ENDLESS = {"float16": 2.0**15, "float32": 2.0**100, "float64": 2.0**100}
# A movement of more than this share of the largest number is a step, no rounding error.
_STEP = 2.0**-12
_TYPES = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE})
# Operators that read the size of their result from an input: that input is not moved.
_SIZED = frozenset({"Resize", "Upsample", "Range"})
_STILL = Limit(0.0, 0.0)


def measure_limits(
    source: ModelSource,
    feeds: Mapping[int, Mapping[str, Feed]],
    outputs: Mapping[int, Outputs],
    open_session: Callable[[ModelSource], Runner],
    exact: Collection[str] = (),
) -> dict[str, Limit]:
    """Return how far each output moves; leave out outputs that could not be measured.

    Args:
        source: The original.
        feeds: What it was fed, per case.
        outputs: What it gave, per case.
        open_session: Creates a session for a changed copy.
        exact: Inputs that have no last bits to move.
    """
    limits: dict[str, Limit] = {}
    for units in (_QUIET, _LOUD):
        for name, limit in _measure(
            source, feeds, outputs, open_session, units, exact=exact
        ).items():
            if not _crosses_a_step(limits.get(name), name, outputs):
                limits[name] = limit
        if limits and all(_crosses_a_step(limit, name, outputs) for name, limit in limits.items()):
            break
    return limits


def _measure(  # noqa: PLR0913  # what is measured, and how
    source: ModelSource,
    feeds: Mapping[int, Mapping[str, Feed]],
    outputs: Mapping[int, Outputs],
    open_session: Callable[[ModelSource], Runner],
    units: float,
    *,
    exact: Collection[str],
) -> dict[str, Limit]:
    """Return how far each output moves when numbers move by so many units in the last place."""
    limits: dict[str, Limit] = {}
    for draw in range(_DRAWS):
        rng = np.random.default_rng(draw)
        try:
            runner = open_session(_moved_source(source, rng, units))
            move = partial(map_feed, partial(_moved, rng=rng, units=units))
            fed = [
                {name: feed if name in exact else move(feed) for name, feed in own.items()}
                for own in feeds.values()
            ]
            moved = dict(zip(feeds, runner.run_each(fed), strict=True))
            for name, limit in movements(outputs, moved).items():
                limits[name] = _further(limits.get(name, _STILL), limit)
        except (RunError, StoppedError, EncodeError):
            continue
    return limits


def movements(before: Mapping[int, Outputs], after: Mapping[int, Outputs]) -> dict[str, Limit]:
    """Return how far each output is from what it was, in the worst of the cases."""
    limits: dict[str, Limit] = {}
    for case, outputs in before.items():
        for name, leaves in outputs.items():
            for ours, theirs in zip(leaves, after[case][name], strict=False):
                limits[name] = _further(limits.get(name, _STILL), _movement(ours, theirs))
    return limits


def _further(one: Limit, other: Limit) -> Limit:
    return Limit(max(one.max_abs, other.max_abs), max(one.rmse, other.rmse))


def _crosses_a_step(limit: Limit | None, name: str, outputs: Mapping[int, Outputs]) -> bool:
    """Tell whether an output moved by more than rounding errors do."""
    if limit is None:
        return False
    arrays = [leaf.data for runs in outputs.values() for leaf in runs[name]]
    sizes = [
        float(np.abs(data[np.isfinite(data)].astype(np.float64)).max(initial=0.0))
        for data in arrays
        if data.dtype.kind in "fiu"
    ]
    return limit.max_abs > _STEP * max(sizes, default=0.0)


def _movement(ours: Leaf, theirs: Leaf) -> Limit:
    """Return how far one array moved; only elements that are finite in both count."""
    if ours.data.shape != theirs.data.shape or ours.data.dtype.kind not in "fiu":
        return _STILL
    before, after = ours.data.astype(np.float64), theirs.data.astype(np.float64)
    both = np.isfinite(before) & np.isfinite(after)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.where(both, np.abs(after - before), 0)
    largest = float(apart.max(initial=0.0))
    return Limit(_finite(largest) or 0.0, _finite(_root_mean_square(apart)) or 0.0)


def _moved_source(source: ModelSource, rng: np.random.Generator, units: float) -> ModelSource:
    """Return *source* with its own float weights moved in their last bits."""
    model = model_of(source)
    kept = {n for node in model.graph.node if node.op_type in _SIZED for n in node.input}
    # A negative number has a square, and no power of 2.0000001.
    kept |= {node.input[1] for node in model.graph.node if node.op_type == "Pow"}
    for tensor in model.graph.initializer:
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if tensor.data_type not in _TYPES or external or tensor.name in kept:
            continue
        values = _moved(onnx.numpy_helper.to_array(tensor), rng, units)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    blocks = source.blocks and replace(source.blocks, kept=None)  # other weights give other values
    return replace(source, content=model.SerializeToString(), blocks=blocks)


def _moved(values: Array, rng: np.random.Generator, units: float) -> Array:
    """Return *values* moved by up to so many units in the last place."""
    if values.dtype.name not in _LAST_BIT:
        return values
    share = units * _LAST_BIT[values.dtype.name]
    with np.errstate(over="ignore", invalid="ignore"):
        factors = 1 + rng.uniform(-share, share, values.shape)
        moved = (values.astype(np.float64) * factors).astype(values.dtype)
        is_kept = ~np.isfinite(moved) | (np.abs(values) >= _ENDLESS[values.dtype.name])
    return np.where(is_kept, values, moved)


# The decision: what each output is compared with, and in which order, until it passes or fails.


class Witness(Protocol):
    """Who can say more about the original when an output leaves its tolerance."""

    def original_at(self, level: str) -> Runs | None:
        """Return what the original gives at *level*; None if that cannot be had."""

    def limits(self) -> Mapping[str, Limit]:
        """Return how far each output moves with the original's own last bits."""


def judge_level(
    judge: Judge, reference: Runs, runs: Runs, witness: Witness
) -> list[OutputComparison]:
    """Return one comparison per output: its worst case, against the baseline that fits best.

    Args:
        judge: The tolerances, and the level at which the candidate ran.
        reference: What the original gave with optimisation off, per case.
        runs: What the candidate gave, per case.
        witness: Asked only if an output fails.
    """
    comparisons = _worst(judge, reference, runs)
    if judge.is_exact or all(comparison.ok for comparison in comparisons):
        return comparisons
    level = judge.level
    if level != REFERENCE_LEVEL and (alike := witness.original_at(level)) is not None:
        again = _worst(replace(judge, baseline=level), alike, runs)
        comparisons = [
            b if b.ok and not a.ok else a for a, b in zip(comparisons, again, strict=True)
        ]
    if all(comparison.ok for comparison in comparisons) or not (limits := witness.limits()):
        return comparisons
    again = _worst(replace(judge, limits=limits), reference, runs)
    return [a if a.ok else b for a, b in zip(comparisons, again, strict=True)]


def _worst(judge: Judge, expected: Runs, actual: Runs) -> list[OutputComparison]:
    """Return one comparison per output: that of the worst case, which holds those of all cases."""
    per_case = []
    for case, theirs in actual.items():
        compare, ours = replace(judge, case=case).compare, expected[case]
        per_case.append([compare(name, ours[name], theirs[name]) for name in ours])
    return [replace(max(same, key=severity), by_seed=same) for same in zip(*per_case, strict=True)]


def failed_cases(outputs: Sequence[OutputComparison]) -> list[int]:
    """Return the cases in which outputs fail, each once."""
    cases = (each for output in outputs for each in output.by_seed or (output,) if not each.ok)
    return list(dict.fromkeys(each.seed for each in cases))


def excused(output: OutputComparison, excuse: str | None) -> OutputComparison:
    """Accept an output that is outside its tolerance, if there is an excuse for it."""
    if output.ok or not excuse:
        return output
    return replace(output, ok=True, reason=None, excuse=excuse)


def check_names(tolerances: Collection[str], outputs: Collection[str]) -> None:
    """Refuse a tolerance for an output that does not exist.

    Raises:
        UsageError: One of *tolerances* is for none of *outputs*.
    """
    for name in tolerances:
        if name not in outputs:
            raise UsageError(
                f"a tolerance is given for {name!r}, which is no output of the model",
                hint=did_you_mean(name, outputs) or f"it has {', '.join(outputs)}",
            )
