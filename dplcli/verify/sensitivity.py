"""How far a model's outputs move when its own numbers move in their last bits.

Rounding to steps (quantisation, Round) turns a difference in the last bit into a whole step, so
the size of rounding errors says nothing about how far two equivalent models may be apart. The
model itself is asked: its float weights and inputs are multiplied by ``1 + u``, with ``u`` up to
two units in the last place, a few times, and the movement of its outputs is measured. Where that
crosses no step, it is tried again with 32 units, the rounding error of a sum of a thousand terms:
small models have few numbers near a step. A candidate that moves not much further cannot be told
from the original; one that computes something else usually can.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx
from google.protobuf.message import EncodeError

from dplcli.verify.compare import Limit
from dplcli.verify.figures import distances
from dplcli.verify.interface import read_model
from dplcli.verify.sessions import (
    Array,
    Feed,
    Leaf,
    Outputs,
    RunError,
    Runner,
    Source,
    StoppedError,
)

_DRAWS = 8
_QUIET, _LOUD = 2.0, 32.0
_EPS = {"float16": 2.0**-11, "float32": 2.0**-23, "float64": 2.0**-52}
# Numbers this large stand for infinity (masks), or make it (their scales): a step beyond the
# largest float would be no rounding error.
_ENDLESS = {"float16": 2.0**15, "float32": 2.0**100, "float64": 2.0**100}
# A movement beyond this share of the largest number is no rounding error but a step.
_STEP = 2.0**-12
_TYPES = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE})
# Operators whose numbers decide how large a result is: those are left alone.
_SIZED = frozenset({"Resize", "Upsample", "Range"})


def measure_limits(
    source: Source,
    feeds: Mapping[int, Mapping[str, Feed]],
    outputs: Mapping[int, Outputs],
    open_session: Callable[[Source], Runner],
) -> dict[str, Limit]:
    """Return how far each output moves; an output that was never measured is left out.

    Args:
        source: The original.
        feeds: What it was fed, per seed.
        outputs: What it gave for that.
        open_session: Creates a session for a changed copy.
    """
    quiet = _measure(source, feeds, outputs, open_session, _QUIET)
    if all(_crosses_a_step(limit, name, outputs) for name, limit in quiet.items()) and quiet:
        return quiet
    loud = _measure(source, feeds, outputs, open_session, _LOUD)
    return {
        name: quiet[name] if _crosses_a_step(quiet.get(name), name, outputs) else limit
        for name, limit in loud.items()
    }


def _measure(
    source: Source,
    feeds: Mapping[int, Mapping[str, Feed]],
    outputs: Mapping[int, Outputs],
    open_session: Callable[[Source], Runner],
    units: float,
) -> dict[str, Limit]:
    """Return how far each output moves when numbers move by so many units in the last place."""
    found: dict[str, Limit] = {}
    for draw in range(_DRAWS):
        rng = np.random.default_rng(draw)
        try:
            runner = open_session(_moved_source(source, rng, units))
            for seed, given in feeds.items():
                moved = runner.run({n: _moved_feed(feed, rng, units) for n, feed in given.items()})
                for name, leaves in outputs[seed].items():
                    for ours, theirs in zip(leaves, moved[name], strict=False):
                        found[name] = _larger(found.get(name), _movement(ours, theirs))
        except (RunError, StoppedError, EncodeError):
            continue
    return found


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
    """Return how far one array moved; what is not finite in both has not."""
    if ours.data.shape != theirs.data.shape or ours.data.dtype.kind not in "fiu":
        return Limit(0.0, 0.0)
    before, after = ours.data.astype(np.float64), theirs.data.astype(np.float64)
    both = np.isfinite(before) & np.isfinite(after)
    apart = distances(np.where(both, before, 0), np.where(both, after, 0))
    return Limit(apart.max_abs or 0.0, apart.rmse or 0.0)


def _larger(limit: Limit | None, other: Limit) -> Limit:
    if limit is None:
        return other
    return Limit(max(limit.max_abs, other.max_abs), max(limit.rmse, other.rmse))


def _moved_source(source: Source, rng: np.random.Generator, units: float) -> Source:
    """Return *source* with the float weights that it holds itself moved in their last bits."""
    if source.content is None:
        model = read_model(source.path)
    else:
        model = onnx.load_model_from_string(source.content)
    sized = {n for node in model.graph.node if node.op_type in _SIZED for n in node.input}
    for tensor in model.graph.initializer:
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if tensor.data_type not in _TYPES or external or tensor.name in sized:
            continue
        values = _moved(onnx.numpy_helper.to_array(tensor), rng, units)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    weights = {name: _moved(array, rng, units) for name, array in (source.weights or {}).items()}
    return replace(source, content=model.SerializeToString(), weights=weights or None)


def _moved_feed(feed: Feed, rng: np.random.Generator, units: float) -> Feed:
    if isinstance(feed, list):
        return [_moved(array, rng, units) for array in feed]
    return None if feed is None else _moved(feed, rng, units)


def _moved(values: Array, rng: np.random.Generator, units: float) -> Array:
    """Return floats up to so many units in the last place away from *values*."""
    if values.dtype.name not in _EPS:
        return values
    share = units * _EPS[values.dtype.name]
    with np.errstate(over="ignore", invalid="ignore"):
        factors = 1 + rng.uniform(-share, share, values.shape)
        moved = (values.astype(np.float64) * factors).astype(values.dtype)
        is_kept = ~np.isfinite(moved) | (np.abs(values) >= _ENDLESS[values.dtype.name])
    return np.where(is_kept, values, moved)
