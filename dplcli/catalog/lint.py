"""Mistakes in rules that can be found without a model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from dplcli.ir.operators import FIRST_OPSET, MOVED
from dplcli.language.pattern import CallPattern, OpName, all_parts, visible_parts
from dplcli.language.replacement import RewriteRule, in_force
from dplcli.language.text import bound_names, is_of_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.ir import OpSchema, SchemaLibrary
    from dplcli.language.pattern import DFPattern
    from dplcli.language.replacement import NodeCall
    from dplcli.language.rule import Rule

Severity: TypeAlias = Literal["error", "warning"]


class Problem(NamedTuple):
    """A mistake, or something suspicious.

    Attributes:
        severity: "error" (the rule cannot work as written) or "warning".
        rule: The rule's name.
        place: Where it is written, or "".
        message: What is wrong.
    """

    severity: Severity
    rule: str
    place: str
    message: str


def lint(rule: Rule, schemas: SchemaLibrary) -> list[Problem]:
    """Find mistakes in *rule*, in every opset that it claims."""
    objections = [
        *_claimed_opsets(rule, schemas),
        *(Objection("warning", f"the line {name!r} is not used") for name in rule.unused),
        *_unused_names(rule),
        *(_new_nodes(rule, schemas) if isinstance(rule, RewriteRule) else ()),
    ]
    return [
        Problem(
            each.severity,
            rule.qualified_name,
            rule.origin if each.part is None else rule.place(each.part),
            each.message,
        )
        for each in objections
    ]


class Objection(NamedTuple):
    """A mistake in the rule under test; *part* is the wrong part of its pattern, if any."""

    severity: Severity
    message: str
    part: DFPattern | None = None


def _named_calls(rule: Rule) -> Iterator[tuple[CallPattern, OpName]]:
    """Yield the nodes of a pattern with each operator that they name."""
    for part in all_parts(rule.pattern):
        if isinstance(part, CallPattern):
            yield from ((part, choice) for choice in part.op.choices if isinstance(choice, OpName))


def _claimed_opsets(rule: Rule, schemas: SchemaLibrary) -> Iterator[Objection]:
    """Compare the operators and attributes of the pattern with the opsets that the rule states."""
    first = rule.opsets[0]
    for call, op in _named_calls(rule):
        versions = list(schemas.versions(op.op_type, op.domain))
        if first is None or op.domain or not versions:
            continue
        since = versions[0].since
        if since > first:
            message = f"{op.op_type} exists from opset {since} on, the rule claims {first}"
            yield Objection("warning", message, call)
            continue
        moved = {name for p in MOVED.get(op.op_type, ()) for name in (p.name, p.attribute)}
        for schema in in_force(versions, rule.opsets):
            for name, _ in call.attributes:
                if not (name in schema.attributes or name in schema.inputs or name in moved):
                    message = f"{op.op_type} has no attribute {name!r} in opset {schema.since}"
                    yield Objection("warning", message, call)


def _unused_names(rule: Rule) -> Iterator[Objection]:
    """Report names that a rewrite binds and never uses."""
    if not isinstance(rule, RewriteRule) or rule.text is None or rule.check is not None:
        return
    used = set(rule.text.used).union(*(condition.names for condition in rule.where))
    uses = Counter(inner.name for part in all_parts(rule.pattern) for inner in part.parts)
    for name in sorted(bound_names(rule.pattern) - used):
        leaf = next((p for p in visible_parts(rule.pattern) if p.name == name), None)
        if leaf is not None and not leaf.parts and uses[name] <= 1:
            message = f"{name!r} is bound and not used; write _ if it does not matter"
            yield Objection("warning", message, leaf)


def _new_nodes(rule: RewriteRule, schemas: SchemaLibrary) -> Iterator[Objection]:
    """Compare the nodes of a replacement with every opset that the rule claims."""
    first = rule.opsets[0] or FIRST_OPSET
    for node in rule.text.calls if rule.text else ():
        versions = list(schemas.versions(node.op_type, node.domain))
        if not versions or node.domain:
            continue
        since = versions[0].since
        if since > first:
            message = f"makes {node.op_type}, which exists from opset {since} on"
            yield Objection("error", f"the replacement {message}: say opsets: [{since}]")
            continue
        for schema in in_force(versions, rule.opsets):
            yield from (Objection("error", message) for message in _misfits(node, schema))


def _misfits(node: NodeCall, schema: OpSchema) -> Iterator[str]:
    where, gives = f"in opset {schema.since}", f"the replacement gives {node.op_type}"
    names, count = node.spelled_for(schema)
    if not schema.min_inputs <= count <= schema.max_inputs:
        yield f"{gives} {count} inputs, wrong {where}"
    for name in names:
        if name not in schema.attributes:
            yield f"{gives} {name!r}, unknown {where}"
    for name in node.stated:
        kind, expression = schema.attributes.get(name), node.attributes[name]
        if kind is None or expression.names:
            continue
        try:
            value = expression.value({})
        except ValueError as error:
            yield f"the replacement's {name} of {node.op_type} cannot be computed: {error}"
            continue
        if not is_of_kind(name, value, kind):
            yield f"{gives} {name} = {value!r}, which is no {kind}"
