"""How far a change moves a model's outputs, beside how far they move by themselves.

Measured with onnxruntime alone, so that it says nothing of ``dpl verify``, which it is to judge.
The *noise* is how far an original's outputs move between onnxruntime's levels, and when its float
inputs and weights move by half a unit in the last place. The *effect* is how far a mutant's outputs
are from the original's with optimisation off. Both are the largest difference, and the root mean
square; the ratio that is larger counts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.mutations import Array, is_float, put, scopes_of, values_of

CLEAR = 10.0  # times the noise: an effect that counts
_ENDLESS = 1e30  # numbers this large stand for infinity: they are not moved
_LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_ALL")
_SILENT = 4
# They read sizes from floats, or whole numbers as exponents of what may be negative.
_KEPT = frozenset({"Resize", "Upsample", "Range", "Pow"})

Fed: TypeAlias = Array | list[Array] | None
Feeds: TypeAlias = Sequence[Mapping[str, Fed]]
Outputs: TypeAlias = list[dict[str, object]]
Distance: TypeAlias = tuple[float, float]
"""The largest difference and the root mean square."""


@dataclass(frozen=True)
class Baseline:
    """What an original gives for one set of inputs after the other.

    Attributes:
        outputs: Its outputs with optimisation off.
        noise: How far each of them moves by itself, by name.
    """

    outputs: Outputs
    noise: list[dict[str, Distance]]


def run(model: Path, feeds: Feeds, level: str = "ORT_DISABLE_ALL") -> Outputs:
    """Return what a model gives in onnxruntime."""
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    given = [{name: feed for name, feed in case.items() if feed is not None} for case in feeds]
    return [dict(zip(names, session.run(None, case), strict=True)) for case in given]


def measure_noise(original: Path, feeds: Feeds, draws: int, folder: Path) -> Baseline:
    """Run an original at all levels, and so many times with its last bits moved.

    Raises:
        ValueError: No output is the same kind of number at all levels.
    """
    outputs = run(original, feeds)
    moves = [_distances(outputs, run(original, feeds, level)) for level in _LEVELS]
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        fed = [
            {n: _each_float(feed, partial(moved, rng=rng)) for n, feed in case.items()}
            for case in feeds
        ]
        try:
            move = _distances(outputs, run(_moved_model(original, rng, folder), fed))
        except Exception:  # noqa: BLE001, S112  # onnxruntime's errors have no common base class
            continue  # some float decides about a shape
        if all(math.isfinite(far) for case in move for far, _ in case.values()):
            moves.append(move)  # else some float decides about what has no result at all
    noise = [
        {name: _largest([_floor(case[name]), *(move[i][name] for move in moves)]) for name in case}
        for i, case in enumerate(outputs)
    ]
    if all(math.isinf(far) for case in noise for far, _ in case.values()):
        raise ValueError("its outputs are infinite or no numbers at some level only")
    return Baseline(outputs, noise)


def measure_effect(mutant: Path, feeds: Feeds, baseline: Baseline) -> list[float]:
    """Return how many times the noise a mutant moves the output that it moves most, per input.

    Raises:
        ValueError: An output has another shape.
    """
    moves = _distances(baseline.outputs, run(mutant, feeds))
    return [_ratio(move, noise) for move, noise in zip(moves, baseline.noise, strict=True)]


def _ratio(move: Mapping[str, Distance], noise: Mapping[str, Distance]) -> float:
    ratios = [
        far / least if least else math.inf
        for name in move
        for far, least in zip(move[name], noise[name], strict=True)
        if far and not math.isinf(least)
    ]
    return max(ratios, default=0.0)


def widened(feeds: Feeds, factor: float) -> Feeds:
    """Return inputs with floats so many times as large, as an image of 0 to 255 has them."""
    return [{name: _widened(feed, factor) for name, feed in case.items()} for case in feeds]


def _widened(feed: Fed, factor: float) -> Fed:
    return _each_float(feed, lambda values: (values * factor).astype(values.dtype))


def _each_float(feed: Fed, change: Callable[[Array], Array]) -> Fed:
    """Return what is fed with its floats changed."""
    if feed is None:
        return None
    if isinstance(feed, list):
        return [change(item) if item.dtype.kind == "f" else item for item in feed]
    return change(feed) if feed.dtype.kind == "f" else feed


def _moved_model(original: Path, rng: np.random.Generator, folder: Path) -> Path:
    model = onnx.load(original)
    for scope in scopes_of(model):
        kept = {name for node in scope.nodes if node.op_type in _KEPT for name in node.input}
        for name, tensor in scope.tensors.items():
            if is_float(tensor) and name not in kept:
                put(tensor, moved(values_of(tensor), rng))
    path = folder / "moved.onnx"
    onnx.save(model, path)
    return path


def moved(values: Array, rng: np.random.Generator) -> Array:
    """Return floats moved up or down by half a unit in the last place of 1."""
    share = float(np.finfo(values.dtype).eps) / 2 * rng.choice((-1, 1), values.shape)
    near = np.abs(values) < min(_ENDLESS, float(np.finfo(values.dtype).max) / 2)
    with np.errstate(invalid="ignore", over="ignore"):
        made = (values.astype(np.longdouble) * (1 + share)).astype(values.dtype)
    return np.where(near, made, values)


def _distances(ours: Outputs, theirs: Outputs) -> list[dict[str, Distance]]:
    """Return how far each output is off, for one set of inputs after the other."""
    pairs = zip(ours, theirs, strict=True)
    return [{name: distance(a[name], b[name]) for name in a} for a, b in pairs]


def _largest(distances: Sequence[Distance]) -> Distance:
    return max(d for d, _ in distances), max(d for _, d in distances)


def distance(ours: object, theirs: object) -> Distance:
    """Return how far two outputs are apart; what is not a number is 0 or 1 apart.

    Raises:
        ValueError: They have different shapes.
    """
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            raise ValueError("a sequence has another length")
        return _largest([(0.0, 0.0), *(distance(a, b) for a, b in zip(ours, theirs, strict=True))])
    if (
        not isinstance(ours, np.ndarray)
        or not isinstance(theirs, np.ndarray)
        or ours.dtype.kind not in "fiub"
    ):
        differs = float(np.any(np.asarray(ours != theirs)))
        return differs, differs
    if ours.shape != theirs.shape:
        raise ValueError("an output has another shape")
    before, after = ours.astype(np.float64), theirs.astype(np.float64)
    both = np.isfinite(before) & np.isfinite(after)
    if not np.array_equal(before[~both], after[~both], equal_nan=True):
        return math.inf, math.inf
    with np.errstate(over="ignore"):
        apart = np.abs(before[both] - after[both])
        return float(apart.max(initial=0.0)), float(
            np.sqrt(np.mean(apart**2))
        ) if apart.size else 0.0


def _floor(values: object) -> Distance:
    """Return the least noise: a unit in the last place, or a tenth of a step of one integer."""
    if not isinstance(values, np.ndarray) or not values.size or values.dtype.kind not in "fiub":
        return 0.0, 0.0
    if values.dtype.kind != "f":
        return 1 / CLEAR, 1 / CLEAR / math.sqrt(values.size)
    finite = np.where(np.isfinite(values), values, 0).astype(np.float64)
    eps = float(np.finfo(values.dtype).eps)
    with np.errstate(over="ignore"):
        return eps * float(np.abs(finite).max()), eps * float(np.sqrt(np.mean(finite**2)))
