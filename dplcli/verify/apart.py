"""Each partition judged by itself: on what the original computes there, kernel against body.

The outputs of a whole model are a poor witness of kernels (:mod:`dplcli.verify.places`): the last
bits of a partition decide over large differences behind a Softmax, a Sigmoid that onnxruntime
rounds to steps, or a quantisation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx

from dplcli.analysis.extract import Wiring, cut, made_name
from dplcli.errors import counted
from dplcli.onnx_io import model_from_proto
from dplcli.verify.call_types import complete_types
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.compare import Facts, scale_of
from dplcli.verify.layers import alone, capture, type_of, value_of
from dplcli.verify.model import (
    model_of,
)
from dplcli.verify.values import ModelSource, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dplcli.verify.compare import Judge
    from dplcli.verify.run import Runner
    from dplcli.verify.values import Feed, Leaf

_ROUNDINGS = 1 << 10
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_LAST_PLACE = 2.0**-7
"""Of bfloat16: what a call makes, and what lies between two of its products, may be rounded to
either side. Errors add up like a random walk. Of real models, single calls were off by half of this
at most, and a region of 53 convolutions by 4 times this."""

_MOST_VALUES = 64
"""How many partitions run in one session: what they read and make is held at once."""


@dataclass(frozen=True)
class ApartJudgement:
    """What partitions give by themselves.

    Attributes:
        judged: How many were run by themselves.
        unseen: How many ran in the model and do not by themselves, such as those in bodies.
        differing: What is wrong with those that do not give what their bodies give.
    """

    judged: int
    unseen: int
    differing: tuple[str, ...]

    @property
    def excuse(self) -> str:
        """What this says for the kernels; "" if it is not enough to say anything."""
        if self.differing or self.unseen or not self.judged:
            return ""
        return (
            "rounding, amplified by the model: "
            f"{counted(self.judged, 'partition')} by themselves give what the bodies give"
        )


def judge_apart(
    candidate: ModelSource,
    ran: Collection[str],
    feeds: Mapping[str, Feed],
    judge: Judge,
    create: Callable[[ModelSource], Runner],
) -> ApartJudgement:
    """Run partitions by themselves, on a library and by their bodies.

    Args:
        candidate: The model, with the kernels that it is to have.
        ran: The names of the calls that ran on the library.
        feeds: What the model is fed.
        judge: Says for which inputs this is.
        create: Creates a session.

    Raises:
        RunError: A model that is cut out does not run.
        StoppedError: The process crashed, or took longer than allowed.
    """
    wiring = Wiring(model_of(candidate))
    calls = [row for row, node in enumerate(wiring.nodes) if node.name in ran]
    bodies = replace(candidate, execution=candidate.execution.plain())
    kernels = candidate.execution.kernels
    is_bf16 = kernels is not None and kernels.math == "bf16"
    narrow = _read_in_bfloat16(bodies) if bodies.execution.widens else frozenset()
    differing: list[str] = []
    seen: set[str] = set()
    for start in range(0, len(calls), _MOST_VALUES):
        rows = calls[start : start + _MOST_VALUES]
        read = dict.fromkeys(name for row in rows for name in wiring.reads[row])
        makers = {name: wiring.makers[name] for name in read if name in wiring.makers}
        # A kernel may have to know a constant, such as the bound of a Clip.
        constants = {row for row in makers.values() if wiring.nodes[row].op_type == "Constant"}
        asked = [name for name, row in makers.items() if row not in constants]
        outputs = capture(bodies, asked, feeds) if asked else {}
        for name in narrow.intersection(outputs):  # it was computed in float32
            outputs[name] = tuple(replace(leaf, dtype="bfloat16") for leaf in outputs[name])
        values = {name: value_of(leaves) for name, leaves in outputs.items()}
        if lost := [name for name, value in values.items() if value is None]:
            raise RunError(f"{lost[0]!r} cannot be fed")
        given = {**{name: feeds[name] for name in read if name in feeds}, **values}
        sources = [
            _cut_out(wiring, rows, constants, source, given) for source in (bodies, candidate)
        ]
        expected, runner = create(sources[0]).run(given), create(sources[1])
        actual = runner.run(given)
        seen |= {item.call for item in runner.record() if item.runs}
        rounded = create(in_bf16(sources[0])).run(given) if is_bf16 else None
        differing += _differences(wiring, rows, judge, (expected, rounded), actual)
    return ApartJudgement(len(seen), len(ran) - len(seen), tuple(differing))


def _read_in_bfloat16(source: ModelSource) -> frozenset[str]:
    """Return the values of a main graph that are of bfloat16, by the types of what is read."""
    model = model_from_proto(model_of(source), source.path.parent, source.path.name)
    complete_types(model, source)
    read = {value for node in model.graph for value in node.inputs if value is not None}
    types = {value.name: value.known_type() for value in read}
    return frozenset(n for n, known in types.items() if known and known.dtype == "bfloat16")


def _differences(
    wiring: Wiring,
    rows: Sequence[int],
    judge: Judge,
    wanted: tuple[Mapping[str, Sequence[Leaf]], Mapping[str, Sequence[Leaf]] | None],
    actual: Mapping[str, Sequence[Leaf]],
) -> list[str]:
    """Say which partitions give something else than their bodies, in neither arithmetic."""
    expected, rounded = wanted
    stepped = frozenset(
        name
        for name, leaves in expected.items()
        if any(leaf.data.dtype.kind in "iu" for leaf in leaves)
    )
    judge = replace(
        judge, facts=Facts(stepped=stepped), roundings=_ROUNDINGS, level=REFERENCE_LEVEL
    )
    objections = []
    for row in rows:
        node = wiring.nodes[row]
        for output in filter(None, node.output):
            name = output if output in expected else made_name(output)
            compared = judge.compare(name, expected[name], actual[name])
            products = _products_of(wiring.model, node)
            is_ok, reason = compared.ok, compared.reason
            if all(leaf.dtype == "bfloat16" for leaf in actual[name]):
                off = _off(expected[name], actual[name])
                is_ok = off <= _LAST_PLACE * max(products, 1) ** 0.5
                reason = f"it is off by {off:.2%} of its largest element"
            elif not is_ok and rounded is not None:
                is_ok = judge.compare(name, rounded[name], actual[name]).ok
                is_ok |= products > 1 and _off(rounded[name], actual[name]) <= _LAST_PLACE
            if not is_ok:
                objections.append(
                    f"partition {node.name!r} ({node.domain}::{node.op_type}) by itself gives "
                    f"something else than its body: {reason}"
                )
    return objections


def _products_of(model: onnx.ModelProto, node: onnx.NodeProto) -> int:
    """Count the products that a call stands for."""
    if not node.domain:
        return int(node.op_type in _PRODUCTS)
    bodies = [f for f in model.functions if (f.domain, f.name) == (node.domain, node.op_type)]
    return sum(_products_of(model, each) for body in bodies for each in body.node)


def _off(expected: Sequence[Leaf], actual: Sequence[Leaf]) -> float:
    """Return how far some element is off, as a share of the largest one (fill values: of it)."""
    furthest = 0.0
    for one, other in zip(expected, actual, strict=True):
        if one.data.shape != other.data.shape:
            return np.inf
        numbers, others = one.data.astype(np.float64), other.data.astype(np.float64)
        is_same = (numbers == others) | (np.isnan(numbers) & np.isnan(others))
        with np.errstate(all="ignore"):
            sizes = np.maximum(np.abs(numbers), scale_of(numbers))
            shares = np.where(is_same, 0.0, np.abs(numbers - others) / sizes)
        furthest = max(furthest, float(np.where(np.isnan(shares), np.inf, shares).max(initial=0.0)))
    return furthest


def in_bf16(source: ModelSource) -> ModelSource:
    """Return a model whose functions round what products read to bfloat16, and sum as ever."""
    model = model_of(source)
    for function in model.functions:
        nodes: list[onnx.NodeProto] = []
        for node in function.node:
            slots = (0, 1) if not node.domain and node.op_type in _PRODUCTS else ()
            for slot in slots:
                name = node.input[slot]
                short = f"{name}.{node.output[0]}.{slot}"
                node.input[slot] = f"{short}.wide"
                code = onnx.TensorProto.BFLOAT16
                nodes.append(onnx.helper.make_node("Cast", [name], [short], to=code))
                nodes.append(onnx.helper.make_node("CastLike", [short, name], [f"{short}.wide"]))
            nodes.append(node)
        del function.node[:]
        function.node.extend(nodes)
    return replace(source, content=model.SerializeToString())


def _cut_out(
    wiring: Wiring,
    rows: Sequence[int],
    constants: Collection[int],
    source: ModelSource,
    given: Mapping[str, Feed],
) -> ModelSource:
    """Return calls and constants as a model that is fed what else the calls read."""
    types = {name: type_of(value) for name, value in given.items() if value is not None}
    ends = [name for row in rows for name in wiring.nodes[row].output if name]
    return alone(source, cut(wiring, {*rows, *constants}, types, ends, given), "partitions")
