"""What can be said against a rule without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from dplcli.dpl.attributes import DTYPE_ATTRIBUTES
from dplcli.dpl.callee import OpName
from dplcli.dpl.lost_attributes import FIRST_OPSET
from dplcli.dpl.pattern import AndPattern, CallPattern, RepeatPattern
from dplcli.dpl.replacement import new_nodes
from dplcli.dpl.rule import RewriteRule
from dplcli.dpl.scoping import all_parts, bound_names, visible_parts
from dplcli.ir.parameters import MOVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.dpl.expressions import Expression
    from dplcli.dpl.pattern import DFPattern
    from dplcli.dpl.replacement import NewNode
    from dplcli.dpl.rule import Rule
    from dplcli.ir import OpSchema, SchemaLibrary

    Severity: TypeAlias = Literal["error", "warning"]

_NUMERIC = {"int": (int,), "float": (int, float)}
_LIST_OF = {"ints": (int,), "floats": (int, float), "strings": (str,)}


class Problem(NamedTuple):
    """Something to look at.

    Attributes:
        severity: "error" (the rule cannot work as written) or "warning".
        rule: The rule's name.
        place: Where, or "".
        message: What, for a reader.
    """

    severity: Severity
    rule: str
    place: str
    message: str


def lint(rule: Rule, schemas: SchemaLibrary) -> list[Problem]:
    """Look for what cannot be right in *rule*, in every opset that it claims."""
    return [
        *_attribute_kinds(rule, schemas),
        *_claimed_opsets(rule, schemas),
        *_two_nodes_at_once(rule),
        *_unused_lines(rule),
        *_unused_names(rule),
        *(_new_nodes(rule, schemas) if isinstance(rule, RewriteRule) else ()),
    ]


def _unused_lines(rule: Rule) -> list[Problem]:
    """Report the lines of a pattern's text that the pattern does not need."""
    return [
        Problem("warning", rule.qualified_name, rule.origin, f"the line {name!r} is not used")
        for name in rule.unused
    ]


def _calls(pattern: DFPattern) -> Iterator[CallPattern]:
    for part in all_parts(pattern):
        if isinstance(part, CallPattern):
            yield part
        if isinstance(part, RepeatPattern):
            yield part.step


def _attribute_kinds(rule: Rule, schemas: SchemaLibrary) -> Iterator[Problem]:
    for call in _calls(rule.pattern):
        for choice in call.op.choices:
            if not isinstance(choice, OpName):
                continue
            kinds: dict[str, set[str]] = {}
            for schema in schemas.versions(choice.op_type, choice.domain):
                for name, kind in schema.attributes.items():
                    kinds.setdefault(name, set()).add(kind)
            for name, value in call.attributes:
                known = kinds.get(name)
                if known and not any(_is_of(name, value, kind) for kind in known):
                    message = (
                        f"{choice.op_type}: {name} is {' or '.join(sorted(known))}, not {value!r}"
                    )
                    yield Problem("error", rule.qualified_name, rule.place(call), message)


def _is_of(name: str, value: object, kind: str) -> bool:
    if kind == "int" and isinstance(value, str):
        return name in DTYPE_ATTRIBUTES
    if kind in _NUMERIC:
        return isinstance(value, _NUMERIC[kind])
    if kind in _LIST_OF:
        items = value if isinstance(value, (tuple, list)) else (None,)
        return all(isinstance(item, _LIST_OF[kind]) for item in items)
    return kind != "string" or isinstance(value, str)


def _claimed_opsets(rule: Rule, schemas: SchemaLibrary) -> Iterator[Problem]:
    """Compare what the pattern names with the opsets that the rule claims outright."""
    first, last = rule.opsets
    if first is None:
        return
    for call in _calls(rule.pattern):
        for choice in call.op.choices:
            if not isinstance(choice, OpName) or choice.domain:
                continue
            versions = list(schemas.versions(choice.op_type, choice.domain))
            if versions and versions[0].since > first:
                message = (
                    f"{choice.op_type} exists from opset {versions[0].since} on, "
                    f"the rule claims {first}"
                )
                yield Problem("warning", rule.qualified_name, rule.place(call), message)
                continue
            for schema in _in_force(versions, first, last):
                yield from _unknown_attributes(rule, call, choice, schema)


def _in_force(versions: list[OpSchema], first: int | None, last: int | None) -> list[OpSchema]:
    """Return the versions in force at some opset from *first* to *last*."""
    begin = FIRST_OPSET if first is None else first
    older = [schema for schema in versions if schema.since <= begin]
    newer = [s for s in versions if s.since > begin and (last is None or s.since <= last)]
    return older[-1:] + newer


def _unknown_attributes(
    rule: Rule, call: CallPattern, op: OpName, schema: OpSchema
) -> Iterator[Problem]:
    moved = {name for p in MOVED.get(op.op_type, ()) for name in (p.name, p.attribute)}
    for name, _ in call.attributes:
        if name not in schema.attributes and name not in schema.inputs and name not in moved:
            message = f"{op.op_type} has no attribute {name!r} in opset {schema.since}"
            yield Problem("warning", rule.qualified_name, rule.place(call), message)


def _two_nodes_at_once(rule: Rule) -> Iterator[Problem]:
    for part in visible_parts(rule.pattern):
        if isinstance(part, AndPattern):
            sides = (part.left, part.right)
            if all(isinstance(side, CallPattern) for side in sides) and part.left is not part.right:
                message = "both sides of & are nodes of their own, so no value is both"
                yield Problem("error", rule.qualified_name, rule.place(part), message)


def _unused_names(rule: Rule) -> Iterator[Problem]:
    """Report captured names that a rewrite neither uses nor compares."""
    if not isinstance(rule, RewriteRule) or rule.text is None:
        return
    used = set(rule.text.used).union(*(condition.names for condition in rule.where))
    uses: dict[str, int] = {}
    for part in all_parts(rule.pattern):
        for inner in part.parts:
            uses[inner.name] = uses.get(inner.name, 0) + 1
    for name in sorted(bound_names(rule.pattern) - used):
        leaf = next((p for p in visible_parts(rule.pattern) if p.name == name), None)
        if leaf is not None and not leaf.parts and uses.get(name, 0) < 2 and rule.check is None:  # noqa: PLR2004  # one use
            message = f"{name!r} is bound and not used; write _ if it does not matter"
            yield Problem("warning", rule.qualified_name, rule.place(leaf), message)


def _new_nodes(rule: RewriteRule, schemas: SchemaLibrary) -> Iterator[Problem]:
    """Compare the nodes of a replacement with every opset that the rule claims."""
    first, last = rule.opsets
    for node in new_nodes(rule.text.outputs if rule.text else ()):
        versions = list(schemas.versions(node.op_type, node.domain))
        if not versions or node.domain:
            continue
        begin = FIRST_OPSET if first is None else first
        if versions[0].since > begin:
            message = (
                f"the replacement makes {node.op_type}, which exists from opset "
                f"{versions[0].since} on: say opsets: [{versions[0].since}]"
            )
            yield Problem("error", rule.qualified_name, rule.origin, message)
            continue
        for schema in _in_force(versions, first, last):
            yield from _misfits(rule, node, schema)


def _misfits(rule: RewriteRule, node: NewNode, schema: OpSchema) -> Iterator[Problem]:
    where = f"in opset {schema.since}"
    if not schema.min_inputs <= len(node.args) <= schema.max_inputs:
        message = f"the replacement gives {node.op_type} {len(node.args)} inputs, wrong {where}"
        yield Problem("error", rule.qualified_name, rule.origin, message)
    for name in node.attributes:
        if name not in schema.attributes:
            message = f"the replacement gives {node.op_type} {name!r}, unknown {where}"
            yield Problem("error", rule.qualified_name, rule.origin, message)
    for name, expression in node.attributes.items():
        kind = schema.attributes.get(name)
        if kind is not None and not expression.names:
            yield from _wrong_kind(rule, node, name, expression, kind)


def _wrong_kind(
    rule: RewriteRule, node: NewNode, name: str, expression: Expression, kind: str
) -> Iterator[Problem]:
    try:
        value = expression.value({})
    except ValueError as error:
        message = f"the replacement's {name} of {node.op_type} cannot be computed: {error}"
        yield Problem("error", rule.qualified_name, rule.origin, message)
        return
    if not _is_of(name, value, kind) or (kind == "int" and isinstance(value, str)):
        message = f"the replacement gives {node.op_type} {name} = {value!r}, which is no {kind}"
        yield Problem("error", rule.qualified_name, rule.origin, message)
