"""Turn the text of a replacement into a description of new nodes, for one match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.dpl.draft import DraftConstant, DraftNode, DraftOutput, GraphBuilder
from dplcli.dpl.draft_attributes import BuildError
from dplcli.dpl.facts import UnknownFactError
from dplcli.dpl.match import Rejection
from dplcli.dpl.replacement import Captured, NewConstant, NewNode, NewOutput, Replacement
from dplcli.errors import DplError, PassError
from dplcli.ir import ArrayTensor, Attribute, Value
from dplcli.ir.types import dtype_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dplcli.dpl.draft import Draft, Operand, RewriteFunction
    from dplcli.dpl.expressions import Expression
    from dplcli.dpl.match import Match
    from dplcli.dpl.replacement import Part

_PREDICATES = frozenset(
    {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not"}
    | {"IsInf", "IsNaN"}
)
"""Operators whose results say nothing of the numbers they compare."""


def draft_replacement(
    match: Match, replacement: Replacement | RewriteFunction
) -> Draft | Rejection | None:
    """Describe what takes the place of *match*.

    Returns:
        The description; or why it cannot be made here; or None if the rule leaves the match.

    Raises:
        PassError: The rule's own function fails, or answers with something else than it may.
    """
    builder = GraphBuilder(match)
    draft = builder.draft
    try:
        if isinstance(replacement, Replacement):
            drafter = _Drafter(match, replacement, builder)
            draft.outputs = tuple([drafter.part(part) for part in replacement.outputs])
        else:
            answer = _ask(match, replacement, builder)
            if answer is None or isinstance(answer, Rejection):
                return answer
            draft.outputs = answer
            draft.drop_unread()
    except BuildError as error:
        return match.reject(str(error))
    nothing_new = match.outputs and draft.outputs == match.outputs
    return None if nothing_new else draft


def _ask(
    match: Match, function: RewriteFunction, builder: GraphBuilder
) -> tuple[Operand, ...] | Rejection | None:
    try:
        answer = function(match, builder)
    except (DplError, BuildError):
        raise
    except (Exception, SystemExit) as error:
        label, where = _names_of(match)
        reason = " ".join(str(error).split())
        raise PassError(f"{label} failed {where} with {type(error).__name__}: {reason}") from error
    if answer is None or isinstance(answer, Rejection):
        return answer
    outputs = _operands(answer, builder)
    if outputs is None or len(outputs) != len(match.outputs):
        label, where = _names_of(match)
        raise PassError(
            f"{label} answered {answer!r} {where}",
            hint=f"return {len(match.outputs)} value(s), None, or match.reject(reason)",
        )
    return outputs


def _names_of(match: Match) -> tuple[str, str]:
    """Say for a message which function looked at what."""
    label = f"the function of the rule {match.rule.qualified_name!r}"
    return label, f"at {match.root.op_type} {match.root.label!r}"


def _operands(answer: object, builder: GraphBuilder) -> tuple[Operand, ...] | None:
    """Read values of the graph and what was described for this match; None for anything else."""
    items: Sequence[object] = answer if isinstance(answer, (list, tuple)) else [answer]
    kinds = (Value, DraftOutput, DraftConstant)
    operands = tuple(item for item in items if isinstance(item, kinds) and builder.owns(item))
    return operands if len(operands) == len(items) else None


class _Drafter:
    def __init__(self, match: Match, replacement: Replacement, builder: GraphBuilder) -> None:
        self.match = match
        self.replacement = replacement
        self.builder = builder
        self.made: dict[int, DraftNode] = {}

    def part(self, part: Part, reader: NewNode | None = None, slot: int = 0) -> Operand:
        """Describe *part*, which *reader* reads in its input *slot*."""
        match part:
            case Captured():
                return self._captured(part)
            case NewConstant():
                return self.builder.constant(self._array(part, reader, slot))
            case NewNode():
                return DraftOutput(self._node(part))
            case NewOutput():
                return DraftOutput(self._node(part.node), part.index)

    def _captured(self, part: Captured) -> Value:
        value = self.match.bindings.get(part.name)
        if value is None:
            raise BuildError(f"{part.name!r} took no part in the match")
        return value

    def _node(self, node: NewNode) -> DraftNode:
        known = self.made.get(id(node))
        if known is not None:
            return known
        inputs = [
            None if arg is None else self.part(arg, node, slot)
            for slot, arg in enumerate(node.args)
        ]
        made = self.made[id(node)] = self.builder.node(
            node.op_type,
            node.domain,
            inputs,
            self._attributes_of(node),
            self.replacement.output_counts.get(id(node), 1),
        )
        return made

    def _attributes_of(self, node: NewNode) -> dict[str, object]:
        attributes: dict[str, object] = {}
        for name in node.carried:
            attributes |= self.match.attributes.get(name, {})
        for name, expression in node.attributes.items():
            attributes[name] = self._evaluate(expression)
        return attributes

    def _dtype_of(self, node: NewNode | None, slot: int) -> str | None:
        """Return the element type of a number in an input of a new node.

        What the schema says, else that of the operands beside it, else of the match's output.
        """
        if node is None:
            return None
        version = self.builder.graph.opset_imports.get(node.domain, 0)
        schemas = self.builder.graph.model.codec.schemas
        schema = schemas.find(node.op_type, node.domain, version)
        if schema is not None and slot in schema.integer_inputs:
            return "int64"
        for arg in node.args:
            found = self._dtype_of_part(arg)
            if found is not None:
                return found
        known = self.match.outputs[0].known_type()
        return None if known is None else known.dtype

    def _dtype_of_part(self, part: Part | None) -> str | None:
        """Return the element type of a part; of a new node mostly that of its first operand."""
        while isinstance(part, (NewNode, NewOutput)):
            node = part if isinstance(part, NewNode) else part.node
            if node.op_type in _PREDICATES:
                return None
            if node.op_type == "Cast":
                wanted = self._attributes_of(node).get("to")
                code = wanted.value if isinstance(wanted, Attribute) else wanted
                return dtype_name(code) if isinstance(code, int) else None
            operands = node.args[1:] if node.op_type == "Where" else node.args
            part = next((arg for arg in operands if not isinstance(arg, NewConstant)), None)
        value = self.match.bindings.get(part.name) if isinstance(part, Captured) else None
        known = None if value is None else value.known_type()
        return None if known is None else known.dtype

    def _array(self, part: NewConstant, reader: NewNode | None, slot: int) -> NDArray[Any]:
        text = part.expression.text
        value = self._evaluate(part.expression)
        if isinstance(value, (np.ndarray, np.generic)):
            return self._folded(np.asarray(value), part)
        items = value if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(item, (bool, int, float)) for item in items):
            raise BuildError(f"{text!r} is no number and no array")
        dtype = self._dtype_of(reader, slot)
        if dtype is None:
            raise BuildError(f"the element type of {text!r} is not known")
        return _numbers(text, value, dtype)

    def _folded(self, array: NDArray[Any], part: NewConstant) -> NDArray[Any]:
        """Take an array that was computed from constants, if it has the type of one of them."""
        bindings = self.match.bindings
        values = (bindings[name] for name in part.expression.names if name in bindings)
        types = {known.dtype for value in values if (known := value.known_type()) is not None}
        found = ArrayTensor(array).dtype
        if found not in types:
            raise BuildError(f"{part.expression.text!r} comes to {found}, which nothing is")
        return array

    def _evaluate(self, expression: Expression) -> object:
        try:
            return expression.value(self.match.bindings)
        except (UnknownFactError, ValueError) as error:
            raise BuildError(f"{expression.text!r} cannot be computed: {error}") from error


def _numbers(text: str, value: object, dtype: str) -> NDArray[Any]:
    """Make an array of an element type, if that can hold the numbers."""
    try:
        with np.errstate(all="ignore"):
            wanted = np.asarray(value)
            made = wanted.astype(np.dtype(dtype))
    except (TypeError, OverflowError) as error:
        raise BuildError(f"{text!r} cannot be {dtype}") from error
    is_exact = made.dtype.kind == "f" or np.array_equal(made, wanted)
    if not is_exact or not np.array_equal(np.isinf(made), np.isinf(wanted)):
        raise BuildError(f"{dtype} cannot hold {text!r}")
    return made


def operands_of(draft: Draft) -> Sequence[Value]:
    """List the existing values that *draft* reads or returns."""
    nodes = [part for part in draft.parts if isinstance(part, DraftNode)]
    read = [operand for node in nodes for operand in node.inputs]
    return [operand for operand in [*read, *draft.outputs] if isinstance(operand, Value)]
