"""Leave out of a file what computes nothing: metadata, and types of inner values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from onnx import FunctionProto, ModelProto

from dplcli.errors import ModelExportError
from dplcli.ir.model import ORIGIN_KEY, RULE_KEY
from dplcli.onnx_io.convert import all_scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path
    from typing import Any


def strip_file(path: Path, kinds: Collection[str]) -> dict[str, int]:
    """Leave *kinds* out of a model file; external data is not read.

    Args:
        path: The file, which is written anew.
        kinds: Names out of :data:`STRIPPERS`.

    Returns:
        How many bytes each of them took.

    Raises:
        ModelExportError: The file is too large for one message.
    """
    data, freed = stripped(path.read_bytes(), kinds)
    path.write_bytes(data)
    return freed


def stripped(data: bytes, kinds: Collection[str]) -> tuple[bytes, dict[str, int]]:
    """Return a model without *kinds*, and how many bytes each of them took.

    Raises:
        ModelExportError: The model is too large for one message.
    """
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelExportError(
            "the result is too large to be stripped", hint="store its weights as external data"
        ) from error
    freed = {}
    for kind in sorted(kinds):
        before = model.ByteSize()
        STRIPPERS[kind](model)
        freed[kind] = before - model.ByteSize()
    return model.SerializeToString(deterministic=True), freed


def _strip_metadata(model: ModelProto) -> None:
    """Clear docs, and the metadata of all but what dpl needs to put a partition back.

    That is the metadata of functions, which tells kernels what to be as well, and what calls say of
    the nodes that they stand for.
    """
    _clear(model)
    for body in all_scopes(model.graph, *model.functions):
        if isinstance(body, FunctionProto):
            body.ClearField("doc_string")
        else:
            _clear(body)
            for part in (*body.input, *body.output, *body.initializer):
                _clear(part)
            for sparse in body.sparse_initializer:
                _clear(sparse.values)
                _clear(sparse.indices)
        for value in body.value_info:
            _clear(value)
        for node in body.node:
            kept = [
                entry
                for entry in node.metadata_props
                if entry.key.startswith("dpl.") and entry.key not in {RULE_KEY, ORIGIN_KEY}
            ]
            _clear(node)
            node.metadata_props.extend(kept)
            for attribute in node.attribute:
                attribute.ClearField("doc_string")
                if attribute.HasField("t"):
                    _clear(attribute.t)
                for tensor in attribute.tensors:
                    _clear(tensor)


def _clear(message: Any) -> None:  # noqa: ANN401  # whatever has these fields
    message.ClearField("doc_string")
    message.ClearField("metadata_props")


def _strip_value_info(model: ModelProto) -> None:
    for body in all_scopes(model.graph, *model.functions):
        body.ClearField("value_info")


STRIPPERS: dict[str, Callable[[ModelProto], None]] = {
    "metadata": _strip_metadata,
    "value_info": _strip_value_info,
}
"""What can be left out, by the names that ``--strip`` takes."""
