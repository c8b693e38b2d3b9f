"""What flows through a model: inputs that it accepts, and the values inside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx

from dplcli.verify.dataflow import Dataflow
from dplcli.verify.depth import value_depths
from dplcli.verify.interface import input_ports, read_model
from dplcli.verify.judgement import REFERENCE, Facts, facts_of, make_judge
from dplcli.verify.power import blind_outputs
from dplcli.verify.refill import MATRIX_GAINS, Drawer, find_weights, replace_weights
from dplcli.verify.sessions import Runner, Source, open_original
from dplcli.verify.stimulus import find_stimulus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from dplcli.verify.compare import Judge
    from dplcli.verify.result import Settings
    from dplcli.verify.sessions import Array, Feed, Leaf, Outputs


@dataclass(frozen=True)
class Fed:
    """A model with inputs that it runs on.

    Attributes:
        source: What runs: the file, or a copy with refilled weights.
        feeds: What it is fed, by seed and input.
        facts: What it says about its values.
        settings: How it is compared.
    """

    source: Source
    feeds: Mapping[int, Mapping[str, Feed]]
    facts: Facts
    settings: Settings

    def judge(self, level: str, seed: int) -> Judge:
        """Return who compares values of this model with others."""
        return make_judge(self.settings, self.facts, seed, level=level)


def feed(path: Path, settings: Settings, made: Collection[str] | None = None) -> Fed:
    """Find inputs that the model at *path* runs on, as the verification does.

    Args:
        path: The model.
        settings: Seeds, sizes, and whether to refill weights.
        made: If given, no other weights are refilled.

    Raises:
        VerificationError: onnxruntime does not run it, or no inputs were found that it accepts.
    """
    flow = Dataflow(read_model(path))
    weights = find_weights(flow) if settings.refill_weights else []
    weights = [weight for weight in weights if made is None or weight.name in made]
    facts = replace(facts_of(flow), depths=value_depths(flow))
    execution, first = settings.execution.plain(), settings.seeds[0]
    judge = make_judge(settings, facts, first)
    ports = input_ports(flow.model.graph)
    drawer = Drawer(weights, first)
    gains = list(MATRIX_GAINS if weights else MATRIX_GAINS[:1])
    while True:
        source, gain = Source(path, execution=execution), gains.pop(0)
        if weights:
            values = drawer.values(gain)
            content = replace_weights(read_model(path), values)
            source = replace(source, content=content, weights=values)
        source, runner = open_original(source, settings.custom_ops, _with_optimisation_off)
        stimulus, outputs = find_stimulus(
            flow,
            ports,
            runner,
            settings.seeds,
            settings.sizes,
            request=settings.request,
            judge=judge,
        )
        if not gains or not blind_outputs(judge, list(outputs.values())):
            return Fed(source, stimulus.feeds, facts, settings)


def _with_optimisation_off(source: Source) -> Runner:
    return Runner(source, REFERENCE)


def capture(source: Source, names: Iterable[str], feeds: Mapping[str, Feed]) -> Outputs:
    """Run a model with optimisation off, and return values of its main graph by name.

    Raises:
        RunError: onnxruntime does not run it.
    """
    model = read_model(source.path) if source.content is None else onnx.ModelProto()
    if source.content is not None:
        model.ParseFromString(source.content)
    wanted = list(names)
    declared = {info.name: info for info in model.graph.output}
    del model.graph.output[:]
    for name in wanted:
        model.graph.output.append(declared.get(name, onnx.ValueInfoProto(name=name)))
    runner = Runner(replace(source, content=model.SerializeToString()), REFERENCE)
    return runner.run(feeds)


def value_of(leaves: Sequence[Leaf]) -> Array | list[Array] | None:
    """Return what was captured as something that can be fed; None if it cannot be."""
    arrays = [_array_of(leaf) for leaf in leaves]
    known = [array for array in arrays if array is not None]
    if len(known) < len(arrays) or not arrays or any(leaf.label[:1] == "." for leaf in leaves):
        return None
    if leaves[0].label:
        return known
    return known[0]


def _array_of(leaf: Leaf) -> Array | None:
    if leaf.dtype == "bfloat16":
        dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
        return leaf.data.astype(dtype)
    is_raw = leaf.dtype not in {leaf.data.dtype.name, "string"}
    return None if is_raw else leaf.data


def type_of(value: Array | list[Array]) -> onnx.TypeProto:
    """Return the type of a value, sizes included."""
    if isinstance(value, list):
        inner = onnx.helper.make_tensor_type_proto(_element_type(value[0]), None)
        return onnx.helper.make_sequence_type_proto(inner)
    return onnx.helper.make_tensor_type_proto(_element_type(value), value.shape)


def _element_type(array: Array) -> int:
    if array.dtype.kind in "OUS":
        return onnx.TensorProto.STRING
    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(array.dtype))
