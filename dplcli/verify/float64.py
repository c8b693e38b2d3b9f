"""A model that computes in float64 what it computes in coarser floats.

What two ways to compute a value give apart from rounding shows in float64: there, rounding is half
a billion times as fine as in float32. onnx's reference evaluator runs such models. (onnxruntime has
no float64 kernels of many operators, Conv among them.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

from dplcli.ir.operators import canonical_domain
from dplcli.onnx_io.convert import all_scopes, all_tensors
from dplcli.onnx_io.infer import ONNX_ERRORS
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.compare import scale_of
from dplcli.verify.float32 import STATED_TYPE
from dplcli.verify.model import whole_of
from dplcli.verify.run import Runner
from dplcli.verify.values import RunError, map_feed, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto, NodeProto

    from dplcli.verify.compare import Reals
    from dplcli.verify.values import Array, Feed, Leaf, ModelSource, Outputs

_COARSER: dict[int, float] = {
    TensorProto.FLOAT: 2.0**-23,
    TensorProto.FLOAT16: 2.0**-10,
    TensorProto.BFLOAT16: 2.0**-7,
}
"""Types that become float64, and their units in the last place of 1."""

_LEAST, _MOST = 0.5, 2.0
"""How many units in the last place numbers are moved."""

_FEW = 4


def in_float64(model: ModelProto, moved: np.random.Generator | None = None) -> ModelProto:
    """Return a copy that computes in float64.

    Args:
        model: The model; its weights lie in it.
        moved: If given, each float constant is moved by half a unit to two units in the last place
            of its own type, up or down: about as far as computing it in advance does.

    Raises:
        ValueError: A constant is damaged.
    """
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for root in (wide.graph, *wide.functions):
        for scope in all_scopes(root):
            del scope.value_info[:]
            for node in scope.node:
                _widen(node)
            # Correct the types that a graph states of what enters and leaves.
            ends = (*scope.input, *scope.output) if isinstance(scope, onnx.GraphProto) else ()
            for info in ends:
                if info.type.tensor_type.elem_type in _COARSER:
                    info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in all_tensors(wide):
        if tensor.data_type in _COARSER:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            is_exact = values.size <= _FEW and bool((values == np.round(values)).all())  # exponents
            if moved is not None and not is_exact:
                values = _moved(values, _COARSER[tensor.data_type], moved)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return wide


def widened(content: bytes) -> bytes:
    """Return the file of a model, its weights in it, that computes in float64.

    Raises:
        ValueError: A constant is damaged.
    """
    content_wide: bytes = in_float64(onnx.ModelProto.FromString(content)).SerializeToString()
    return content_wide


def wide_feed(value: Feed, moved: np.random.Generator | None = None) -> Feed:
    """Return in float64 what is fed in coarser floats; moved in the last place if asked.

    Args:
        value: What is fed: nothing, an array, or a list of arrays.
        moved: As for :func:`in_float64`.
    """
    return map_feed(partial(_wide, moved=moved), value)


def _wide(values: Array, moved: np.random.Generator | None) -> Array:
    if values.dtype.kind in "OUS":
        return values
    unit = _COARSER.get(onnx.helper.np_dtype_to_tensor_dtype(values.dtype))
    if unit is None:
        return values
    wide = values.astype(np.float64)
    return wide if moved is None else _moved(wide, unit, moved)


def _moved(values: Reals, unit: float, rng: np.random.Generator) -> Reals:
    """Return values moved by half a unit to two units in the last place, up or down.

    Not by one unit each: two constants that cancel out would often move together.
    """
    sizes = rng.uniform(_LEAST, _MOST, values.shape) * rng.choice([-1.0, 1.0], values.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        moved: Reals = values * (1 + unit * sizes)
    return moved


def _widen(node: NodeProto) -> None:
    """Let a node state float64 instead of coarser types, and constants as tensors."""
    if canonical_domain(node.domain):
        return
    given = {item.name: item for item in node.attribute}
    for name in STATED_TYPE:
        if name in given and given[name].i in _COARSER:
            given[name].i = TensorProto.DOUBLE
    if node.op_type == "GroupNormalization":  # its body casts, which those of others do not
        given.setdefault(
            "stash_type", node.attribute.add(name="stash_type", type=AttributeProto.INT)
        )
        given["stash_type"].i = TensorProto.DOUBLE
    if node.op_type == "ConstantOfShape" and "value" not in given:
        zero = onnx.numpy_helper.from_array(np.zeros(1, np.float32))
        node.attribute.append(onnx.helper.make_attribute("value", zero))
    if node.op_type == "Constant":
        for name in ("value_float", "value_floats"):
            if name in given:
                values = np.array(onnx.helper.get_attribute_value(given[name]), np.float32)
                tensor = onnx.numpy_helper.from_array(values)
                given[name].CopyFrom(onnx.helper.make_attribute("value", tensor))


# Places of two models in float64, and what they say there.


_EXACT = 1e-9
"""The share of the largest element that two ways to compute it may differ by in float64."""

_FAR = 2.0**-6
"""The share of the largest element beyond which no rounding is looked for."""

ROUNDED_AGAIN = 4.0
"""How many times as far as a unit in the last place of constants moves it, a value may move: what
is computed in advance may be rounded in several steps."""

TOO_COARSE = 16.0
"""How many times as far from float64 as the original's a candidate's value may be."""

_EVALUATED = 64.0
"""The original may be this many times as far from float64 as its last bits move it. Else the
evaluator computes something else than onnxruntime."""

_MEANT = 2.0**-7
"""The original may always be off by this share of the largest element: that is no other meaning."""

_OF_ATTRIBUTES = 5e-6
"""Constants that a rule takes for the number that it names are as near, and so are attributes."""

_HALF = 2.0**-12
"""Floats of 16 bits have larger units in the last place of 1."""

_NARROWER = 2.0**-24
"""Rounding in float64 is finer than in float32 by this, and a margin of 32."""


@dataclass(frozen=True)
class Precision:
    """How a place is computed in float64.

    Attributes:
        moves_constants: Whether float constants are moved in their last place.
        moves_inputs: Whether what is fed is moved so, too.
    """

    moves_constants: bool = False
    moves_inputs: bool = False

    def run(self, source: ModelSource, feeds: Mapping[str, Feed]) -> Outputs:
        """Run a model in onnx's reference evaluator.

        Raises:
            RunError: It cannot be had in float64, or does not run.
            StoppedError: It takes too long.
        """
        constants = np.random.default_rng(0) if self.moves_constants else None
        inputs = np.random.default_rng(1) if self.moves_inputs else None
        try:
            wide = in_float64(whole_of(source), constants)
            content = wide.SerializeToString()
        except (OSError, *ONNX_ERRORS) as error:
            raise RunError(f"it cannot be had in float64: {one_line(str(error))}") from error
        plain = replace(source, content=content, libraries=())
        plain = replace(plain, execution=source.execution.plain())
        given = {name: wide_feed(value, inputs) for name, value in feeds.items()}
        return Runner(plain, REFERENCE_LEVEL, "evaluator").run(given)


PLAIN = Precision()

MOVED = Precision(moves_constants=True, moves_inputs=True)

CONSTANTS_MOVED = Precision(moves_constants=True)


@dataclass(frozen=True, eq=False)
class Exact:
    """What a place gives in float64.

    Attributes:
        ours: The original.
        theirs: The candidate.
        moved: The original with its constants, and what it is fed, moved in their last bits.
        ours_moved: The original with its constants moved.
        theirs_moved: The candidate with its constants moved.
    """

    ours: Array
    theirs: Array
    moved: Array
    ours_moved: Array
    theirs_moved: Array

    def objection(  # noqa: PLR0911, PLR0913  # what was given, how strict to be; a way out each
        self,
        expected: Array,
        given: Array,
        unit: float,
        reason: str,
        *,
        is_joined: bool,
        moves: bool,
        rounds_freely: bool = False,
    ) -> str:
        """Say why a place gives something else; "" if it does not.

        Args:
            expected: What the original gives in its own type, of one shape with all others.
            given: What the candidate gives.
            unit: The unit in the last place of 1, in the coarsest type.
            reason: Why these are too far apart for a thousand roundings; "" if they are not.
            is_joined: Whether another place failed on the way: then no tolerance excuses anything.
            moves: Whether the two hold other constants, which may be rounded, too.
            rounds_freely: Whether the candidate may round as far as it likes.
        """
        is_finite = np.isfinite(expected)
        if rounds_freely:  # what overflows even in float64 says nothing of what is meant
            is_finite &= np.isfinite(self.ours)
            if not is_finite.any():
                return ""
        if not is_finite.all() and is_finite.any():  # nothing is compared where it is not
            some = Exact(*(values[is_finite] for values in vars(self).values()))
            return some.objection(
                expected[is_finite],
                given[is_finite],
                unit,
                reason,
                is_joined=is_joined,
                moves=moves,
                rounds_freely=rounds_freely,
            )
        # Halves overflow soon, which says nothing of what is meant.
        own = () if rounds_freely and unit > _HALF else (expected, given)
        if not all(np.isfinite(values).all() for values in (*vars(self).values(), *own)):
            return reason
        scale = max(scale_of(self.ours), float(rounds_freely))  # tiny results are rounded, too
        exact = _OF_ATTRIBUTES if rounds_freely else _EXACT
        least = unit * scale
        rounded, sensitivity = apart_of(expected, self.ours), apart_of(self.moved, self.ours)
        is_meant = apart_of(self.theirs, self.ours) <= exact * scale
        if is_meant and (rounds_freely or apart_of(given, self.theirs) <= _EVALUATED * least):
            return ""  # it is the original that is rounded
        if rounded > max(_EVALUATED * (sensitivity + least), _MEANT * scale):
            return reason
        constants = max(
            apart_of(self.ours_moved, self.ours), apart_of(self.theirs_moved, self.theirs)
        )
        apart = apart_of(self.theirs, self.ours)
        constants *= moves
        if apart > exact * scale + _NARROWER * rounded + ROUNDED_AGAIN * constants:
            share = f", {apart / scale:.2g} of the largest element" if scale else ""
            return f"computed in float64, it is up to {apart:.3g} off{share}"
        usual = max(rounded, sensitivity, least)
        further = apart_of(given, self.theirs)
        if (reason or is_joined) and further > TOO_COARSE * usual and not rounds_freely:
            if not usual:
                return f"it is rounded, and the original is exact; {reason}"
            times = f"{further / usual:.0f} times as far as in the original"
            return f"it is rounded {times}; {reason}"
        return ""


def extended(
    known: tuple[Array, ...], given: Sequence[Leaf] | RunError, *, rounds_freely: bool = False
) -> tuple[Array, ...]:
    """Add what a place gives in float64; return nothing if that is none, or far from the other.

    Args:
        known: What was computed before: the original, then the candidate.
        given: What it gives now.
        rounds_freely: Whether tiny results may be all rounding.
    """
    if isinstance(given, RunError):
        return ()
    values = given[0].data
    if values.dtype != np.float64 or (known and values.shape != known[0].shape):
        return ()
    is_second = len(known) == 1  # the candidate, as it is
    if is_second:
        scale = max(scale_of(known[0]), float(rounds_freely))
        told = np.isfinite(known[0]) if rounds_freely else np.ones(values.shape, bool)
        if apart_of(values[told], known[0][told]) > _FAR * scale:
            return ()
    return (*known, values)


def apart_of(one: Array, other: Array) -> float:
    """Return the largest difference of two elements; NaN if one of them is."""
    with np.errstate(invalid="ignore"):  # infinite in both
        return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max(initial=0.0))
