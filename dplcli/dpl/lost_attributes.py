"""Refuse a rewrite that would silently drop attributes of the nodes it takes away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.callee import OpKind, OpName
from dplcli.dpl.pattern import WAIVED, CallPattern, RepeatPattern
from dplcli.dpl.scoping import visible_parts
from dplcli.errors import PatternSyntaxError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.pattern import DFPattern
    from dplcli.ir import SchemaLibrary

FIRST_OPSET = 7
"""The oldest opset that dpl supports."""


def check_attributes(pattern: DFPattern, carried: AbstractSet[str], schemas: SchemaLibrary) -> None:
    """Refuse a pattern whose nodes may have attributes that the replacement does not know of.

    Raises:
        PatternSyntaxError: Names operator and attributes, and what to write.
    """
    for call in _calls(pattern):
        if call.attributes_name == WAIVED:
            continue
        if call.attributes_name:
            if call.attributes_name not in carried:
                raise _wrong(
                    call,
                    f"**{call.attributes_name} is bound and not carried into the replacement",
                    "write **_ if those attributes may be lost",
                )
            continue
        _check_call(call, schemas)


def _calls(pattern: DFPattern) -> Iterator[CallPattern]:
    for part in visible_parts(pattern):
        if isinstance(part, CallPattern):
            yield part
        if isinstance(part, RepeatPattern):
            yield part.step


def _check_call(call: CallPattern, schemas: SchemaLibrary) -> None:
    named = {name for name, _ in (*call.attributes, *call.bodies)}
    for choice in call.op.choices:
        if isinstance(choice, OpKind):
            raise _wrong(
                call, f"{choice.spelled()} may have attributes, which would be lost", _ADVICE
            )
        if not isinstance(choice, OpName):
            continue
        lost = sorted(_attributes_of(choice, schemas) - named)
        if lost:
            names = lost[0] if lost[0] == "attributes of its own" else ", ".join(lost)
            raise _wrong(call, f"{choice.spelled()} may have {names}, which would be lost", _ADVICE)


_ADVICE = "name them, bind them with **attrs and carry them, or waive them with **_"


def _attributes_of(op: OpName, schemas: SchemaLibrary) -> set[str]:
    versions = list(schemas.versions(op.op_type, op.domain))
    if not versions:
        return {"attributes of its own"}
    if op.domain == "":
        older = [schema for schema in versions if schema.since <= FIRST_OPSET]
        versions = older[-1:] + [schema for schema in versions if schema.since > FIRST_OPSET]
    return {name for schema in versions for name in schema.attributes}


def _wrong(call: CallPattern, message: str, hint: str) -> PatternSyntaxError:
    if call.place is None:
        return PatternSyntaxError(message, hint=hint)
    return PatternSyntaxError(message, line=call.place.line, column=call.place.column, hint=hint)
