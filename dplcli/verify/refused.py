"""Two models of which onnxruntime does not run some nodes: what can be said of the others.

A custom operator whose library is missing, or a kernel that this build lacks, keeps a whole model
from running. Nodes that say the same in both models need not run: what they read becomes outputs of
both, and what they give becomes inputs. A node that differs is a place that cannot be seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx

from dplcli.analysis.extract import cut, label_of
from dplcli.ir.operators import canonical_domain
from dplcli.onnx_io import model_from_proto
from dplcli.onnx_io.infer import ONNX_ERRORS, types_by_name
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.cuts import CutModels
from dplcli.verify.model import (
    input_ports,
    read_model,
    whole_of,
)
from dplcli.verify.run import Runner
from dplcli.verify.values import ModelSource, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onnx import TypeProto

    from dplcli.verify.check import Execution
    from dplcli.verify.cuts import CutSide

_MOST_NAMED = 3


@dataclass(frozen=True)
class Runnable:
    """Two models without the nodes that do not run.

    Attributes:
        models: The original and the candidate; None if nodes that do not run differ.
        said: What to say: what was not run or not seen, and why.
    """

    models: tuple[onnx.ModelProto, onnx.ModelProto] | None
    said: tuple[str, ...]


def without_refused(original: Path, candidate: Path, execution: Execution) -> Runnable | None:
    """Return two models without the nodes that onnxruntime refuses; None if that is not why.

    Raises:
        RunError: Weights cannot be read.
    """
    inputs = dict.fromkeys(port.name for port in input_ports(read_model(original).graph))
    ours, theirs = (
        ModelSource(path, execution=execution.plain()) for path in (original, candidate)
    )
    models = CutModels(ours, theirs, inputs)
    types = [_types(side) for side in models.sides]
    refused = [
        _refused(side, types_there) for side, types_there in zip(models.sides, types, strict=True)
    ]
    if not refused[0]:
        return None
    changed = {pair.original for pair in models.changed()}
    pairs = {
        pair.original: pair.candidate for pair in models.pairs() if pair.original not in changed
    }
    kept = ({*pairs}, {*pairs.values()})
    unseen = [
        f"{label_of(side.wiring.nodes[row])} was not seen: onnxruntime does not run it: {why}"
        for side, rows, same in zip(models.sides, refused, kept, strict=True)
        for row, why in rows.items()
        if not same.issuperset(filter(None, side.wiring.nodes[row].output))
    ]
    if unseen:
        return Runnable(None, tuple(dict.fromkeys(unseen)))
    given = [name for row in refused[0] for name in models.ours.nodes[row].output if name]
    if any(name not in types[0] for name in given):
        return None
    names = {name: name for name in given}, {pairs[name]: name for name in given}
    models_left = [
        _without(side, rows, own, types[0])
        for side, rows, own in zip(models.sides, refused, names, strict=True)
    ]
    return Runnable((models_left[0], models_left[1]), tuple(_not_run(models.sides[0], refused[0])))


def _types(side: CutSide) -> dict[str, TypeProto]:
    """Return the types of values; what an unknown operator gives has that of its first input."""
    model = onnx.ModelProto()
    model.CopyFrom(side.wiring.model)
    guesses: dict[str, TypeProto] = {}
    while True:
        path = side.source.path
        types = guesses | types_by_name(model_from_proto(model, path.parent, path.name))
        more = {
            name: types[node.input[0]]
            for node in side.wiring.nodes
            if node.domain and node.input and node.input[0] in types
            for name in node.output
            if name and name not in types
        }
        if not more:
            break
        guesses |= more
        model.graph.value_info.extend(
            onnx.ValueInfoProto(name=name, type=guess) for name, guess in more.items()
        )
    for tensor in side.wiring.initializers.values():
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    return types


def _refused(side: CutSide, types: Mapping[str, TypeProto]) -> dict[int, str]:
    """Return the nodes that onnxruntime refuses, and why; of one kind, one is tried."""
    tried: dict[object, str] = {}
    refused = {}
    for row, node in enumerate(side.wiring.nodes):
        reads = side.wiring.entering([row])
        if not any(node.output) or any(name not in types for name in reads):
            continue
        elements = [
            types[name].tensor_type.elem_type for name in side.wiring.reads[row] if name in types
        ]
        kind = (node.domain, node.op_type, *sorted(a.name for a in node.attribute), *elements)
        if kind not in tried:
            tried[kind] = _refusal(side, row, types)
        if tried[kind]:
            refused[row] = tried[kind]
    return refused


def _refusal(side: CutSide, row: int, types: Mapping[str, TypeProto]) -> str:
    """Return why onnxruntime refuses a model of one node; "" if it does not, or if onnx does."""
    node = side.wiring.nodes[row]
    if not canonical_domain(node.domain) and not onnx.defs.has(node.op_type):
        return ""  # a misspelt name
    ends = [name for name in node.output if name]
    model = cut(side.wiring, [row], types, ends)
    for output in model.graph.output:
        output.ClearField("type")  # what is known of it may be a guess
    content = model.SerializeToString()
    try:
        Runner(replace(side.source, content=content), REFERENCE_LEVEL)
    except RunError as error:
        refusal = str(error)
    else:
        return ""
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except ONNX_ERRORS:
        return ""  # the model is at fault
    return refusal


def _without(
    side: CutSide, rows: Mapping[int, str], names: Mapping[str, str], types: Mapping[str, TypeProto]
) -> onnx.ModelProto:
    """Return a model with inputs for what some nodes give, and outputs for what they read.

    Args:
        side: The model.
        rows: The nodes.
        names: What they give, and the original's names of it, by which the inputs are called.
        types: The types of values of the original.
    """
    model = onnx.ModelProto()
    model.CopyFrom(side.wiring.model)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for row, node in enumerate(nodes):
        if row not in rows:
            model.graph.node.append(node)
            continue
        given = [(name, f"stand-in for {names[name]}") for name in node.output if name]
        for name, stand_in in given:
            model.graph.input.add(name=stand_in, type=types[names[name]])
            model.graph.node.add(op_type="Identity", input=[stand_in], output=[name])
        first = names[next(filter(None, node.output))]
        for slot, name in enumerate(node.input):
            if name in side.wiring.makers:
                read = f"input {slot} of {first}"
                model.graph.node.add(op_type="Identity", input=[name], output=[read])
                model.graph.output.add(name=read)
    del model.graph.value_info[:]
    return whole_of(ModelSource(side.source.path, content=model.SerializeToString()))


def _not_run(side: CutSide, rows: Mapping[int, str]) -> Iterator[str]:
    """Say which nodes did not run, and why."""
    for why in dict.fromkeys(rows.values()):
        called = [label_of(side.wiring.nodes[row]) for row in rows if rows[row] == why]
        more = f" and {len(called) - _MOST_NAMED} more" if len(called) > _MOST_NAMED else ""
        yield (
            f"onnxruntime does not run {', '.join(called[:_MOST_NAMED])}{more}, so numbers were "
            f"drawn for what comes of it; it is the same in both models: {why}"
        )
