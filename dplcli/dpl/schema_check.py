"""Refuse node patterns that no opset version of their operator allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.callee import OpName
from dplcli.dpl.literals import wrong
from dplcli.errors import did_you_mean
from dplcli.ir.parameters import MOVED

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

    from dplcli.dpl.pattern import CallPattern
    from dplcli.ir import OpSchema, SchemaLibrary


def check_call(call: CallPattern, node: ast.Call, schemas: SchemaLibrary) -> None:
    """Compare *call* with the schemas of the operators it names.

    Raises:
        PatternSyntaxError: Too many or too few inputs, or an attribute that does not exist.
    """
    for choice in call.op.choices:
        if not isinstance(choice, OpName):
            continue
        versions = list(schemas.versions(choice.op_type, choice.domain))
        if versions:
            _check_attributes(call, node, choice, versions)
            _check_inputs(call, node, choice, versions)


def _check_attributes(
    call: CallPattern, node: ast.Call, op: OpName, versions: Iterable[OpSchema]
) -> None:
    known = {name for schema in versions for name in (*schema.attributes, *schema.inputs)}
    stated = {name for schema in versions for name in schema.attributes}
    for name, _ in call.attributes:
        if name not in known:
            hint = did_you_mean(name, sorted(stated))
            raise wrong(node, f"{op.op_type} has no attribute {name!r}", hint)


def _check_inputs(
    call: CallPattern, node: ast.Call, op: OpName, versions: Iterable[OpSchema]
) -> None:
    by_name = len(_input_names(call, op, versions))
    most = max(schema.max_inputs for schema in versions)
    given = len(call.args) + by_name
    if given > most:
        raise wrong(node, f"{op.op_type} takes at most {most} inputs, not {given}")
    fewest = min(schema.min_inputs for schema in versions)
    if given < fewest and not call.rest:
        raise wrong(
            node,
            f"{op.op_type} takes at least {fewest} inputs, not {given}",
            "write ... as the last argument if the others do not matter",
        )


def _input_names(call: CallPattern, op: OpName, versions: Iterable[OpSchema]) -> set[str]:
    """Return the inputs of *call* that are given by name: constants of a known value."""
    always = [set(schema.attributes) for schema in versions]
    renamed = {item.attribute: item.name for item in MOVED.get(op.op_type, ())}
    inputs = {name for schema in versions for name in schema.inputs}
    names = {renamed.get(name, name) for name, _ in call.attributes}
    return {name for name in names & inputs if not all(name in known for known in always)}
