"""Calls of a partitioned model, each as a model of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from dplcli.errors import DplError
from dplcli.ir.model import calls_in
from dplcli.language import PatternRule
from dplcli.onnx_io import OnnxSchemas, load_model, to_proto
from dplcli.passes.partition import partition as outline
from dplcli.passes.select import select_matches
from dplcli.pipeline import load_catalog_rules, partition
from dplcli.pipeline.proving import Trier
from dplcli.settings import PartitionSettings
from dplcli.verify.engines import Session
from dplcli.verify.values import ModelSource, RunError
from tests.execute.emulated import opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from dplcli.ir import Node


@dataclass(frozen=True)
class OneCall:
    """A model that is one call, and what it is fed.

    Attributes:
        name: The function, and the shapes.
        model: The model.
        feeds: Its inputs; constants are in the model.
    """

    name: str
    model: onnx.ModelProto
    feeds: dict[str, NDArray[Any]]


LIMITS = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2, "float64": 1e-13}
"""How far results may be apart, of the largest number."""


def compare_calls(
    model: Path,
    folder: Path,
    target: str,
    seen: set[str] | None = None,
    *,
    is_partitioned: bool = False,
) -> tuple[Counter[str], Counter[str]]:
    """Partition a model, and run each of its calls on the library and by its body.

    Args:
        model: The model.
        folder: Where to write.
        target: The target.
        seen: The calls that were compared before.
        is_partitioned: Whether the model is partitioned already.

    Returns:
        How many calls agreed, by function, and why others were refused.
    """
    agreed: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    seen = set() if seen is None else seen
    whole, alone = folder / "partitioned.onnx", folder / "alone.onnx"
    settings = PartitionSettings(verify=False)
    try:
        if is_partitioned:
            whole = model
        else:
            partition(model, settings.but(output=whole, target=(target,)))
    except DplError:  # a model that is not for onnxruntime, or with nothing to partition
        return agreed, refused
    for choices in calls_of(whole, target, seen):
        for call in choices:
            alone.write_bytes(call.model.SerializeToString())
            try:
                wanted = Session(ModelSource(alone), "disable").run(call.feeds)
            except RunError:  # sizes that this call does not have together
                continue
            break
        else:
            refused["sizes"] += 1
            continue
        session = opened(alone, target)
        (record,) = session.record()
        if record.why:
            refused[f"{record.function}: {record.why}"] += 1
            continue
        found = session.run(call.feeds)
        for name, (leaf,) in wanted.items():
            numbers, others = (each.data.astype(float) for each in (leaf, found[name][0]))
            scale = float(np.abs(numbers).max(initial=1e-3))
            difference = float(np.abs(numbers - others).max(initial=0.0))
            assert difference <= LIMITS[leaf.dtype] * scale, (model.name, call.name, difference)
        agreed[record.function] += 1
    return agreed, refused


def compare_examples(folder: Path, target: str) -> tuple[Counter[str], Counter[str]]:
    """Compare the calls that the examples of a catalogue give.

    Returns:
        How many agreed, by rule, and why others were refused.
    """
    trier = Trier(OnnxSchemas())
    agreed: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for rule in load_catalog_rules([target]):
        if not isinstance(rule, PatternRule):
            continue
        for number, model in enumerate(trier.shown(rule)):
            assert outline(model, select_matches(model, [rule]))
            path = folder / f"{rule.name}_{number}.onnx"
            path.write_bytes(to_proto(model).SerializeToString())
            ran, left = compare_calls(path, folder, target, is_partitioned=True)
            agreed[rule.name] += ran.total()
            refused += left
    return agreed, refused


def calls_of(path: Path, target: str, seen: set[str]) -> Iterator[Iterator[OneCall]]:
    """Yield each call of a target, with 2 and with 1 for sizes that are open.

    What is in *seen* is left out: making up numbers for all takes longer than running the others.
    """
    model = load_model(path)
    raw = onnx.load(path)
    protos = {node.name: node for node in _nodes(raw.graph) if node.domain == target}
    for function, nodes in calls_in(model).items():
        if function.domain != target:
            continue
        for node in nodes:
            if node.name not in protos:  # in a function of the model's own
                continue
            proto = protos[node.name]
            shapes = [_shapes(node, size) for size in (2, 1)]
            if shapes[0] is None or _name(node, proto, shapes[0]) in seen:
                continue
            seen.add(_name(node, proto, shapes[0]))
            yield (_one(node, proto, raw, each) for each in shapes if each is not None)


def _shapes(node: Node, open_size: int) -> dict[int, list[int]] | None:
    """Return the sizes of each input, with one for what is open; None if a rank is not known."""
    known = {}
    for number, value in enumerate(node.inputs):
        kind = None if value is None else value.known_type()
        if kind is None or kind.shape is None or kind.dtype is None:
            return None
        known[number] = kind
    shapes = {
        n: [size if isinstance(size, int) else open_size for size in kind.shape or ()]
        for n, kind in known.items()
    }
    end = -1 if "transposed" in node.op_type else -2
    if "matmul" in node.op_type and len(shapes[1]) > 1:  # both sides are as deep
        if isinstance((known[0].shape or ())[-1], int):
            shapes[1][end] = shapes[0][-1]
        else:
            shapes[0][-1] = shapes[1][end]
    return shapes


def _dtypes(node: Node) -> list[str]:
    types = [value.known_type() for value in node.inputs if value is not None]
    return [str(kind.dtype) for kind in types if kind is not None]


def _name(node: Node, proto: onnx.NodeProto, shapes: Mapping[int, list[int]]) -> str:
    kinds = [f"{dtype}{shape}" for dtype, shape in zip(_dtypes(node), shapes.values(), strict=True)]
    attributes = sorted(str(attribute) for attribute in proto.attribute)
    return " ".join([node.op_type, *kinds, *attributes])


def _one(
    node: Node, proto: onnx.NodeProto, raw: onnx.ModelProto, shapes: Mapping[int, list[int]]
) -> OneCall:
    """Return a call by itself, with inputs of these sizes."""
    random, dtypes = np.random.default_rng(len(node.name)), _dtypes(node)
    feeds: dict[str, NDArray[Any]] = {}
    weights: list[onnx.TensorProto] = []
    stated = []
    for number, value in enumerate(node.inputs):
        assert value is not None
        dtype = dtypes[number]
        wanted = np.dtype(getattr(ml_dtypes, dtype.replace("float8", "float8_"), dtype))
        data = np.asarray(random.standard_normal(shapes[number], np.float32)).astype(wanted)
        if value.is_constant and value.constant is not None and data.size == 1:
            data = value.constant.numpy()
        if proto.input[number] in feeds or any(w.name == proto.input[number] for w in weights):
            continue
        if value.is_constant:
            weights.append(numpy_helper.from_array(data, proto.input[number]))
        else:
            feeds[proto.input[number]] = data
            code = helper.np_dtype_to_tensor_dtype(wanted)
            stated.append(helper.make_tensor_value_info(proto.input[number], code, data.shape))
    results = [onnx.ValueInfoProto(name=name) for name in proto.output]
    called = [function for function in raw.functions if function.name == node.op_type]
    made = onnx.ModelProto(ir_version=max(raw.ir_version, 8), functions=called)
    made.opset_import.extend(raw.opset_import)
    made.graph.CopyFrom(helper.make_graph([proto], "g", stated, results, weights))
    return OneCall(_name(node, proto, shapes), made, feeds)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)
