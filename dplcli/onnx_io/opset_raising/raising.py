"""Raise a model to a newer version of the standard operator set, or say why that cannot be done.

This works on the message, before the IR is built over it. Whatever does not change is not even
copied: nodes, weights, external data, metadata and fields that the installed onnx does not know.
Every node is looked at by itself, in the main graph, in the bodies of control flow and in
functions: if the schema of its operator is the same at both opsets, or changed in ways that keep
the meaning, it stays; otherwise an adapter says what takes its place, which keeps the names of its
outputs, its own name and its metadata; otherwise the model is refused, and is as it was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
from onnx import GraphProto, helper

from dplcli.errors import OpsetError, UsageError
from dplcli.ir.value import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.onnx_io.opset_raising.plan import Plan, imported_standard
from dplcli.onnx_io.opset_raising.scopes import STANDARD, InferredTypes, all_scopes

if TYPE_CHECKING:
    from onnx import ModelProto

    from dplcli.onnx_io.opset_raising.plan import AdaptedNode


@dataclass(frozen=True)
class RaisedOpset:
    """What :func:`raise_opset` did.

    Attributes:
        before: The model's opset before; None if it imported none, having no standard nodes.
        after: Its opset now.
        ir_versions: The IR version before and now.
        adapted: The nodes that were changed.
        functions: The functions that were raised, as ``domain::name``.
    """

    before: int | None
    after: int
    ir_versions: tuple[int, int]
    adapted: tuple[AdaptedNode, ...]
    functions: tuple[str, ...]

    @property
    def is_changed(self) -> bool:
        """Whether the model differs from what it was."""
        return self.before != self.after or bool(self.adapted or self.functions)

    def __str__(self) -> str:
        """Read as ``raised from opset 12 to 18; adapted: Clip 2, Squeeze``."""
        counts = Counter(node.op_type for node in self.adapted)
        parts = [f"{name} {count}" if count > 1 else name for name, count in sorted(counts.items())]
        adapted = ", ".join(parts) or "no node"
        return f"raised from opset {self.before or 'none'} to {self.after}; adapted: {adapted}"


def raise_opset(proto: ModelProto, version: int, label: str = "the model") -> RaisedOpset:
    """Raise a model and its functions to opset *version* of the standard.

    The message is edited in place; if this raises an error it is as it was. The IR version goes
    up to what the opset needs; if it was below 4, initializers are taken off the graph inputs, as
    onnxruntime does not fold those that could be overridden. Other domains stay as they are, and
    so do functions that are newer already.

    Args:
        proto: The model, of which an IR can be built; external data is neither read nor needed.
        version: The opset to raise it to.
        label: What to call the model in messages.

    Raises:
        UsageError: The model is newer than *version*, or *version* than the installed onnx.
        OpsetError: A node cannot be expressed at *version*, as far as dpl knows.
    """
    before = _checked_opset(proto, version, label)
    ir_version = proto.ir_version
    types = InferredTypes(proto)
    plan = Plan(proto, version, types)
    if plan.refused:
        raise _refusal(plan, proto, label, types)
    plan.apply()
    if before is None:
        proto.opset_import.add(domain="", version=version)
    if before != version:
        _raise_ir_version(proto, version)
    return RaisedOpset(
        before,
        version,
        (ir_version, proto.ir_version),
        tuple(plan.adapted),
        tuple(f"{function.domain}::{function.name}" for function in plan.raised_functions),
    )


def _checked_opset(proto: ModelProto, version: int, label: str) -> int | None:
    """Return the model's opset; refuse what makes no sense.

    Raises:
        UsageError: The version cannot be raised to.
        OpsetError: The model cannot be raised at all.
    """
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= version <= newest:
        raise UsageError(
            f"there is no opset {version} in the installed onnx {onnx.__version__}",
            hint=f"ask for {newest} at most, or install a newer onnx",
        )
    if len({entry.version for entry in proto.opset_import if entry.domain in STANDARD}) > 1:
        raise OpsetError(f"{label}: imports the standard more than once, in different versions")
    if proto.training_info:
        raise OpsetError(f"{label}: holds training graphs, which cannot be raised")
    before = imported_standard(proto.opset_import)
    if before is not None and before > version:
        raise UsageError(
            f"{label}: is of opset {before}, which cannot be lowered to {version}",
            hint=f"ask for {before} or a newer one",
        )
    return before


def _refusal(plan: Plan, proto: ModelProto, label: str, types: InferredTypes) -> OpsetError:
    """Say which nodes stand in the way, and how far the model can be raised."""
    before = imported_standard(proto.opset_import) or 0
    first = plan.refused[0]
    others = len(plan.refused) - 1
    more = f"; {others} more such node{'s' * (others > 1)}" if others else ""
    possible = before
    refused = plan.refused
    while refused:
        possible = min(node.version for node in refused) - 1
        refused = Plan(proto, possible, types).refused if possible > before else []
    stay = f"raise it to {possible}" if possible > before else f"keep it at opset {before}"
    return OpsetError(
        f"{label}: cannot be raised from opset {before or 'none'} to {plan.target}: {first.what}: "
        f"{first.reason}{more}",
        hint=f"{stay}, or export it anew at opset {plan.target}" if before else None,
    )


def _raise_ir_version(proto: ModelProto, version: int) -> None:
    needed = helper.find_min_ir_version_for([helper.make_opsetid("", version)])
    needed = max(needed, FIRST_IR_WITH_PLAIN_INITIALIZERS)
    if proto.ir_version >= needed:
        return
    if proto.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS:
        for graph in all_scopes(proto.graph):
            assert isinstance(graph, GraphProto)  # noqa: S101  # bodies are never functions
            _take_initializers_off_inputs(graph)
    proto.ir_version = needed


def _take_initializers_off_inputs(graph: GraphProto) -> None:
    stored = {tensor.name for tensor in graph.initializer}
    stored.update(sparse.values.name for sparse in graph.sparse_initializer)
    kept = [info for info in graph.input if info.name not in stored]
    if len(kept) < len(graph.input):
        del graph.input[:]
        graph.input.extend(kept)
