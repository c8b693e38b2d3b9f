"""Keep rules from making operators that the installed onnxruntime does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.replacement import DraftConstant, DraftNode
from dplcli.ir import Value
from dplcli.passes.rewrite import RewriteObserver
from dplcli.verify.runnable import KernelAnswers, KernelQuestion

if TYPE_CHECKING:
    from dplcli.dpl.replacement import Draft
    from dplcli.dpl.rule import Match


class RunnableOnly(RewriteObserver):
    """Refuses replacements with an operator that the installed onnxruntime has no kernel for."""

    def __init__(self) -> None:
        self._kernels = KernelAnswers()

    def objection(self, match: Match, draft: Draft) -> str:
        """Ask for each operator that the match does not have."""
        known = {(node.domain, node.op_type) for node in match.nodes}
        imports = match.root.graph.opset_imports
        for part in draft.parts:
            if not isinstance(part, DraftNode) or part.function or part.copied:
                continue
            if (part.domain, part.op_type) in known:
                continue
            opset, dtypes = imports.get(part.domain, part.version), _dtypes_of(part, match)
            asked = KernelQuestion(
                part.domain, part.op_type, opset, dtypes, part.attributes, part.output_count
            )
            if self._kernels.lacks(asked):
                name = f"{part.domain}.{part.op_type}" if part.domain else part.op_type
                return f"the installed onnxruntime has no kernel for {name} at opset {opset}"
        return ""


def _dtypes_of(part: DraftNode, match: Match) -> list[str]:
    """Return the element types of what a node to be reads; what is not known is as the rest."""
    known: list[str | None] = []
    for operand in part.inputs:
        if isinstance(operand, Value):
            kind = operand.known_type()
            known.append(None if kind is None else kind.dtype)
        elif isinstance(operand, DraftConstant):
            known.append(operand.tensor.dtype)
        else:
            known.append(None if operand is not None else "")
    made = [kind.dtype for value in match.outputs if (kind := value.known_type()) is not None]
    rest = next(filter(None, [*known, *made]), "float32")
    return [rest if dtype is None else dtype for dtype in known]
