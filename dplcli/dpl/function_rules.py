"""Rewrite rules from pairs of ONNX functions: ``gelu_pattern`` becomes ``gelu_replacement``.

After TVM's ``PatternMatchingRewriter.from_module`` (``python/tvm/relax/dpl/rewrite.py``), where two
functions of a module are pattern and replacement; here attributes and constants are compared, too.

The inputs of the pattern function match any values, those of the replacement stand for them in
the same order. A constant matches a constant of its element type, shape and data. What a node of
the pattern says of its attributes, or leaves to their defaults, the matched node must say as well;
an attribute that refers to one of the function (``alpha = @a``) matches any value, which the
replacement may use under the same name.

Other functions that a replacement calls come along: the model gets each of them once, when it is
first needed, under another name if it has another function of that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplcli.dpl.builders import absent, is_op, is_value, outputs, wildcard
from dplcli.dpl.draft import DraftOutput
from dplcli.dpl.rule import RewriteRule
from dplcli.errors import CatalogError
from dplcli.ir import Attribute, Tensor
from dplcli.ir.functions import called_function
from dplcli.ir.operators import attribute_of, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.pattern import CallPattern, DFPattern
    from dplcli.ir import Function, Node, Value

PATTERN, REPLACEMENT = "_pattern", "_replacement"
"""How the names of the two functions of a rule end."""


def rules_of_functions(functions: Iterable[Function], label: str) -> list[RewriteRule]:
    """Make a rule of each pair of functions, in the order of the patterns.

    Args:
        functions: The functions of a model; those without such a name are left alone.
        label: Where they were written, for messages.

    Raises:
        CatalogError: One of a pair is missing, they do not fit together, or a function holds
            something that no rule can.
    """
    by_name = {function.name: function for function in functions}
    for name in by_name:
        stem = name.removesuffix(REPLACEMENT)
        if stem != name and stem + PATTERN not in by_name:
            raise CatalogError(f"{label}: there is no function {stem + PATTERN!r} beside {name!r}")
    rules = []
    for name, function in by_name.items():
        stem = name.removesuffix(PATTERN)
        if stem == name:
            continue
        other = by_name.get(stem + REPLACEMENT)
        if other is None:
            raise CatalogError(
                f"{label}: there is no function {stem + REPLACEMENT!r} beside {name!r}"
            )
        rules.append(_rule(stem, function, other, label))
    if not rules:
        raise CatalogError(
            f"{label}: has no pair of functions", hint=f"name them x{PATTERN} and x{REPLACEMENT}"
        )
    return rules


def _rule(name: str, before: Function, after: Function, label: str) -> RewriteRule:
    where = f"{label}: rule {name!r}"
    for kind in ("inputs", "outputs"):
        wanted, given = len(getattr(before.body, kind)), len(getattr(after.body, kind))
        if wanted != given:
            raise CatalogError(f"{where}: the pattern has {wanted} {kind}, the replacement {given}")
    reader = _PatternReader(before, where)
    pattern = reader.read()
    unbound = sorted(set(_references(after)) - set(_references(before)))
    if unbound:
        raise CatalogError(f"{where}: the pattern does not bind the attribute {unbound[0]!r}")
    _check_callees(after, where)
    return RewriteRule(
        name,
        pattern,
        FunctionReplacement(before, after, reader.calls),
        origin=label,
        doc=f"{before.name} becomes {after.name}.",
    )


def _check_callees(function: Function, where: str) -> None:
    """Refuse functions that cannot come along, and a function that calls itself."""
    pending: list[tuple[Function, tuple[Function, ...]]] = [(function, (function,))]
    while pending:
        current, callers = pending.pop()
        for node in current.body:
            _refuse_bodies(node, where)
            callee = called_function(node)
            if callee is None:
                continue
            label = f"{callee.domain}::{callee.name}"
            if callee in callers:
                raise CatalogError(f"{where}: {label} calls itself")
            if not callee.domain or callee.domain.startswith("ai.onnx"):
                raise CatalogError(f"{where}: {label} is in the standard's own domain")
            undeclared = sorted(set(_references(callee)) - set(callee.attributes))
            if undeclared:
                raise CatalogError(
                    f"{where}: the attribute {undeclared[0]!r} of {label} has a default"
                )
            pending.append((callee, (*callers, callee)))


def _references(function: Function) -> list[str]:
    return [a.ref for node in function.body for a in node.attributes.values() if a.ref]


def _refuse_bodies(node: Node, where: str) -> None:
    if node.subgraphs:
        raise CatalogError(f"{where}: {node.op_type} has a body, which no rule can hold")


class _PatternReader:
    """Turns the body of a function into a pattern."""

    def __init__(self, function: Function, where: str) -> None:
        self.body = function.body
        self.where = where
        self.calls: dict[Node, CallPattern] = {}
        self.made: dict[Value, DFPattern] = {
            value: wildcard(value.name) for value in function.body.inputs
        }

    def read(self) -> DFPattern:
        for node in self.body:
            _refuse_bodies(node, self.where)
            self._read_node(node)
        found = [self.made[value] for value in self.body.outputs]
        root = self.body.outputs[0].producer if self.body.outputs else None
        if root is None or root not in self.calls:
            raise CatalogError(f"{self.where}: the pattern's output is made by no node")
        return found[0] if len(found) == 1 else outputs(*found)

    def _read_node(self, node: Node) -> None:
        if node.op_type == "Constant" and not node.domain:
            value = node.outputs[0]
            tensor = None if value is None else value.constant
            if value is None or tensor is None:
                raise CatalogError(f"{self.where}: a constant of the pattern has no data")
            self.made[value] = is_value(tensor.numpy())
            return
        args = [absent() if value is None else self.made[value] for value in node.inputs]
        call = is_op(node.op_type, node.domain)(*args)
        self.calls[node] = call
        for index, output in enumerate(node.outputs):
            if output is not None:
                self.made[output] = call if index == 0 else call[index]


@dataclass(frozen=True)
class FunctionReplacement:
    """The rewrite function of a rule that was made of two ONNX functions.

    Attributes:
        before: The pattern.
        after: The replacement.
        calls: The pattern object of each node of *before*.
    """

    before: Function
    after: Function
    calls: Mapping[Node, CallPattern]

    @property
    def __name__(self) -> str:
        """The name of the replacement, for readers."""
        return self.after.name

    def __call__(self, match: Match, build: GraphBuilder) -> Sequence[Operand] | Rejection | None:
        """Describe the replacement's nodes, if the attributes are those of the pattern."""
        bound: dict[str, Attribute] = {}
        for node, call in self.calls.items():
            found = match.node(call)
            reason = "" if found is None else _difference(node, found, bound)
            if reason:
                return match.reject(reason, at=found)
        made: dict[Value, Operand] = {
            value: match.bindings[source.name]
            for value, source in zip(self.after.body.inputs, self.before.body.inputs, strict=True)
            if source.name in match.bindings
        }
        for node in self.after.body:
            reason = _build(node, made, bound, build)
            if reason:
                return match.reject(reason)
        return [made[value] for value in self.after.body.outputs]


def _difference(node: Node, found: Node, bound: dict[str, Attribute]) -> str:
    """Say how the attributes of *found* differ from those of the pattern's *node*, or ""."""
    ours, theirs = schema_of(node), schema_of(found)
    if ours is not None and theirs is not None and ours.since != theirs.since:
        return f"the rule means {node.op_type}-{ours.since}, the model {theirs.since}"
    for name in dict.fromkeys([*node.attributes, *found.attributes]):
        wanted = node.attributes.get(name) or attribute_of(node, name)
        given = attribute_of(found, name)
        if given is not None and given.ref:
            return f"{name} of {found.label!r} is given by the caller of a function"
        if wanted is not None and wanted.ref:
            known = bound.get(wanted.ref)
            if given is None or (known is not None and not _equal(known, given)):
                return f"{name} of {found.label!r} is not stated, or not what it is elsewhere"
            bound[wanted.ref] = given
        elif wanted is None or given is None or not _equal(wanted, given):
            return f"{name} of {found.label!r} is {_shown(given)}, not {_shown(wanted)}"
    return ""


def _equal(one: Attribute, other: Attribute) -> bool:
    if isinstance(one.value, Tensor) and isinstance(other.value, Tensor):
        a, b = one.value, other.value
        same_type = (a.dtype, a.shape) == (b.dtype, b.shape)
        return same_type and a.numpy().tobytes() == b.numpy().tobytes()
    return one == other


def _shown(attribute: Attribute | None) -> str:
    return "left out" if attribute is None else repr(attribute.value)


def _build(
    node: Node, made: dict[Value, Operand], bound: Mapping[str, Attribute], build: GraphBuilder
) -> str:
    """Describe one node of the replacement; return why that cannot be done, or ""."""
    output = node.outputs[0]
    tensor = None if output is None else output.constant
    if output is not None and tensor is not None:
        made[output] = build.constant(tensor)
        return ""
    missing = [value.name for value in node.inputs if value is not None and value not in made]
    if missing:
        return f"{missing[0]!r} took no part in the match"
    attributes = {
        name: bound[attribute.ref] if attribute.ref else attribute
        for name, attribute in node.attributes.items()
    }
    inputs = [None if value is None else made[value] for value in node.inputs]
    callee = called_function(node)
    if callee is None:
        drafted = build.node(node.op_type, node.domain, inputs, attributes, len(node.outputs))
    else:
        drafted = build.call(callee, inputs, attributes)
    for index, value in enumerate(node.outputs):
        if value is not None:
            made[value] = DraftOutput(drafted, index)
    return ""
