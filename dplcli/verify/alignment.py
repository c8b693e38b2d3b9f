"""Which values of two models ought to be the same: told by structure, before anything runs.

The pairs are those of :mod:`dplcli.diff`. A pair is no claim. It says where both models can be cut,
and what lies between two cuts is judged by itself (:mod:`dplcli.verify.places`). So a wrong pair
makes a place larger, and never hides one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import onnx

from dplcli.diff.regions import corresponding_values
from dplcli.onnx_io import model_from_proto

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.ir import Model
    from dplcli.onnx_io.cutting import Wiring
    from dplcli.verify.settings import ModelSource

How = Literal["structure", "readers", "output"]


@dataclass(frozen=True)
class Pair:
    """Two values that ought to be the same.

    Attributes:
        original: The value of the original.
        candidate: The value of the candidate.
        how: ``structure``: alike nodes make them of the same; ``readers``: what reads them takes
            one for the other; ``output``: both models return them under one name.
    """

    original: str
    candidate: str
    how: How


@dataclass(frozen=True)
class Alignment:
    """Pairs of values of two main graphs, each value in one pair at most.

    Attributes:
        pairs: The pairs of values that nodes make, by the original's name.
        models: Both models, as they were compared.
    """

    pairs: Mapping[str, Pair]
    models: tuple[Model, Model]


def align(ours: Wiring, theirs: Wiring, sources: tuple[ModelSource, ModelSource]) -> Alignment:
    """Pair the values that the nodes of two main graphs make."""
    first, second = (
        _model(wiring, source) for wiring, source in zip((ours, theirs), sources, strict=True)
    )
    pairs: dict[str, Pair] = {}
    taken: set[str] = set()
    for old, new, how in corresponding_values(first, second):
        is_made = old in ours.makers and new in theirs.makers
        is_made = is_made and (_is_used(ours, old) or _is_used(theirs, new))
        if is_made and old not in pairs and new not in taken:
            pairs[old] = Pair(old, new, how)
            taken.add(new)
    return Alignment(pairs, (first, second))


def _is_used(wiring: Wiring, name: str) -> bool:
    return name in wiring.outputs or bool(wiring.readers.get(name))


def _model(wiring: Wiring, source: ModelSource) -> Model:
    """Build the graph of a model; weights that lie nowhere but in memory become inputs."""
    proto, held = wiring.model, source.weights or {}
    if held:
        proto = onnx.ModelProto()
        proto.CopyFrom(wiring.model)
        kept = [tensor for tensor in proto.graph.initializer if tensor.name not in held]
        away = [tensor for tensor in proto.graph.initializer if tensor.name in held]
        for tensor in away:
            made = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            proto.graph.input.append(made)
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(kept)
    return model_from_proto(proto, source.path.parent, source.path.name)
