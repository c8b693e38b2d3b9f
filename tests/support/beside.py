"""Models that say more than their nodes: of training, quantisation, devices, and of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.numpy_helper

from tests.passes.rewriting import all_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random

HEADER = '<ir_version: 11, opset_import: ["" : 17]>\n'
UNKNOWN = b"\xa2\x06\x03new"
"""Field 100, which no message of onnx has."""


def conv_bn() -> onnx.ModelProto:
    """Return Conv, BatchNormalization, Relu: what ``prepare`` folds to two nodes."""
    model = onnx.parser.parse_model(
        f"""{HEADER}g (float[N,3,8,8] x) => (float[N,4,8,8] y) {{
          [conv] c = Conv <pads = [1, 1, 1, 1]> (x, w)
          [bn] n = BatchNormalization (c, s, b, m, v)
          [relu] y = Relu (n)
        }}"""
    )
    random = np.random.default_rng(0)
    for name, shape in {"w": (4, 3, 3, 3), "s": (4,), "b": (4,), "m": (4,), "v": (4,)}.items():
        data = random.uniform(0.5, 1.5, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    return plain(model)


def plain(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without the empty texts that the parser of onnx writes."""
    for node in all_nodes(model):
        for name in ("name", "domain", "doc_string", "overload"):
            if not getattr(node, name):
                node.ClearField(name)
    return model


def trained(model: onnx.ModelProto, weight: str) -> onnx.ModelProto:
    """Let training update *weight*."""
    info = model.training_info.add()
    info.algorithm.name = "step"
    info.algorithm.node.add(op_type="Identity", input=[weight], output=["new"])
    info.algorithm.output.add(name="new")
    info.update_binding.add(key=weight, value="new")
    return model


def quantised(model: onnx.ModelProto, *names: str) -> onnx.ModelProto:
    """Say of tensors how they are quantised; no node reads the parameters."""
    scale, zero = np.array(0.1, np.float32), np.array(0, np.int8)
    for name, array in (("scale", scale), ("zero", zero)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for name in names:
        note = model.graph.quantization_annotation.add(tensor_name=name)
        note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
        note.quant_parameter_tensor_names.add(key="ZERO_POINT_TENSOR", value="zero")
    return model


def placed(  # noqa: PLR0913  # all that a file says of it
    model: onnx.ModelProto,
    node: str,
    stage: int | None = None,
    devices: Iterable[int] = (),
    tensor: str = "",
    *,
    name: str = "two",
    group: Iterable[int] = (),
) -> onnx.ModelProto:
    """Say where a node runs in the configuration *name*; device -1 is a *group*."""
    if name not in {item.name for item in model.configuration}:
        model.configuration.add(name=name, num_devices=4)
    found = next(each for each in all_nodes(model) if each.name == node)
    place = found.device_configurations.add(configuration_id=name)
    if stage is not None:
        place.pipeline_stage = stage
    if devices:
        spec = place.sharding_spec.add(tensor_name=tensor or found.output[0])
        spec.device.extend(devices)
        if group:
            spec.index_to_device_group_map.add(key=-1, value=group)
    return model


def decorated(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """Let a model say all that a file can say beside its nodes, of parts that are drawn.

    No node is placed elsewhere than another, so that matches are not refused for that.
    """
    model.doc_string, model.producer_name, model.domain = "model", "us", "org"
    model.graph.doc_string = "graph"
    model.metadata_props.add(key="of", value="model")
    model.graph.metadata_props.add(key="of", value="graph")
    model.configuration.add(name="two", num_devices=2)
    model.ir_version = 11
    for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        info.doc_string = f"of {info.name}"
        info.type.denotation = "FEATURES"
    for node in all_nodes(model):
        _decorate(node, random)
    names = sorted(values_of(model))
    for name in random.sample(names, random.randint(0, len(names))):
        note = model.graph.quantization_annotation.add(tensor_name=name)
        for key in ("SCALE_TENSOR", "ZERO_POINT_TENSOR"):
            note.quant_parameter_tensor_names.add(key=key, value=random.choice(names))
    for name in random.sample(names, random.randint(0, min(2, len(names)))):
        trained(model, name)
    return plain(model)


def _decorate(node: onnx.NodeProto, random: Random) -> None:
    for attribute in node.attribute:
        attribute.doc_string = f"of {attribute.name}"
    if node.op_type == "Constant" or random.random() < 0.5:
        return
    node.MergeFromString(UNKNOWN)
    place = node.device_configurations.add(configuration_id="two", pipeline_stage=1)
    for name in sorted({*node.input, *node.output} - {""}):
        if random.random() < 0.5:
            place.sharding_spec.add(tensor_name=name).device.extend([0, 1])


def values_of(model: onnx.ModelProto) -> set[str]:
    """Return the names of the values of the main graph."""
    graph = model.graph
    given = (*graph.input, *graph.initializer)
    made = (name for node in graph.node for name in node.output)
    return {*(item.name for item in given), *made} - {""}


def shardings_of(model: onnx.ModelProto) -> set[str]:
    """Return the names of the tensors that nodes say to be spread."""
    places = [place for node in all_nodes(model) for place in node.device_configurations]
    return {spec.tensor_name for place in places for spec in place.sharding_spec}


def lost_in_silence(before: onnx.ModelProto, after: onnx.ModelProto, said: str) -> list[str]:
    """Say what *after* lacks, or has no right to, without a word in *said*."""
    found = [] if _of_model(before) == _of_model(after) else ["what the model says of itself"]
    ports = [(model.graph.input, model.graph.output) for model in (before, after)]
    found += ["inputs or outputs"] if ports[0] != ports[1] else []
    trained_away = _named_by_training(before) & values_of(before) - values_of(after)
    found += [f"{name}, which training names" for name in trained_away]
    gone = shardings_of(before) - shardings_of(after)
    found += [f"the sharding of {name}" for name in gone if not is_said(name, said)]
    return [*found, *_annotations_lost(before, after, said)]


def _annotations_lost(before: onnx.ModelProto, after: onnx.ModelProto, said: str) -> Iterator[str]:
    values, known = values_of(after), values_of(before)
    old, new = (
        {note.tensor_name: note for note in model.graph.quantization_annotation}
        for model in (before, after)
    )
    for name, note in old.items():
        if new.get(name) != note and (name in values or not is_said(name, said)):
            yield f"the annotation of {name}"
    for name, note in new.items():
        used = {name, *(entry.value for entry in note.quant_parameter_tensor_names)}
        yield from (f"{each}, which an annotation names" for each in used & known - values)


def _named_by_training(model: onnx.ModelProto) -> set[str]:
    nodes = (node for info in model.training_info for node in info.algorithm.node)
    return {name for node in nodes for name in node.input}


def is_said(name: str, said: str) -> bool:
    """Tell whether a note names something, or names too much to name it."""
    return repr(name) in said or "…" in said


def _of_model(model: onnx.ModelProto) -> bytes:
    """Return what a model says of itself, and its graph of itself."""
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    for field in ("graph", "functions", "opset_import"):
        rest.ClearField(field)
    rest.graph.doc_string = model.graph.doc_string
    rest.graph.metadata_props.extend(model.graph.metadata_props)
    data: bytes = rest.SerializeToString(deterministic=True)
    return data
