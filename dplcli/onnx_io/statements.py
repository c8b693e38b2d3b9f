"""What a model's file says of itself beside its graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import ModelProto

if TYPE_CHECKING:
    from dplcli.ir import Model


def statements_of(model: Model) -> dict[tuple[str, str], str]:
    """Return what the file of a loaded model states, as text; empty fields are left out.

    Returns:
        The texts by kind (``doc``, ``metadata`` or ``names``) and by what states it.
    """
    found = {("metadata", "IR version"): str(model.ir_version)}
    proto = model.source
    if not isinstance(proto, ModelProto):
        return found
    found["doc", "model"] = proto.doc_string
    found["doc", "graph"] = proto.graph.doc_string
    found["names", "graph"] = proto.graph.name
    found["metadata", "producer"] = f"{proto.producer_name} {proto.producer_version}".strip()
    found["metadata", "domain"] = proto.domain
    found["metadata", "model version"] = str(proto.model_version or "")
    for entry in proto.metadata_props:
        found["metadata", f"model: {entry.key}"] = entry.value
    for entry in proto.graph.metadata_props:
        found["metadata", f"graph: {entry.key}"] = entry.value
    return {key: text for key, text in found.items() if text}
