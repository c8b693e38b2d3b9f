"""The text of replacements: new nodes over captured names, parsed and never executed.

The grammar is that of patterns; attribute values and ``const(…)`` take expressions over the
captured names.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from dplcli.dpl.expressions import Expression
from dplcli.dpl.literals import BINARY_OPS, parse_lines, read_word, wrong
from dplcli.errors import PatternSyntaxError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.ir import OpSchema, SchemaLibrary


_MOST_OUTPUTS = 1000


@dataclass(frozen=True)
class Captured:
    """A value that the pattern has bound."""

    name: str


@dataclass(frozen=True)
class NewConstant:
    """A constant computed from captured ones; a number takes its dtype from what it meets."""

    expression: Expression


@dataclass(frozen=True, eq=False)
class NewNode:
    """A node to make; one object is one node.

    Attributes:
        op_type: Its operator.
        domain: The operator's domain.
        args: Its inputs; None is an omitted one.
        attributes: Its attributes, as expressions.
        carried: Names of bound attributes (``**attrs``) that it takes over.
    """

    op_type: str
    domain: str
    args: tuple[Part | None, ...]
    attributes: Mapping[str, Expression] = field(default_factory=dict)
    carried: tuple[str, ...] = ()


@dataclass(frozen=True)
class NewOutput:
    """One output of a node to make."""

    node: NewNode
    index: int


Part: TypeAlias = Captured | NewConstant | NewNode | NewOutput


@dataclass(frozen=True)
class Replacement:
    """What takes a match's place.

    Attributes:
        text: As written.
        outputs: One per output of the pattern.
        used: The captured names that it uses.
        carried: The names of bound attributes that it uses.
    """

    text: str
    outputs: tuple[Part, ...]
    used: frozenset[str]
    carried: frozenset[str]

    @cached_property
    def output_counts(self) -> dict[int, int]:
        """How many outputs each new node must have, by the ``id`` of the node."""
        counts: dict[int, int] = {}
        parts = [arg for node in new_nodes(self.outputs) for arg in node.args]
        for part in [*parts, *self.outputs]:
            if isinstance(part, NewOutput):
                key = id(part.node)
                counts[key] = max(counts.get(key, 1), part.index + 1)
        return counts


def new_nodes(parts: Iterable[Part | None]) -> list[NewNode]:
    """List the nodes that *parts* make, each once."""
    found: dict[int, NewNode] = {}
    pending = list(parts)
    while pending:
        part = pending.pop(0)
        node = part.node if isinstance(part, NewOutput) else part
        if isinstance(node, NewNode) and id(node) not in found:
            found[id(node)] = node
            pending += node.args
    return list(found.values())


def parse_replacement(
    text: str,
    names: AbstractSet[str],
    attribute_names: AbstractSet[str],
    schemas: SchemaLibrary,
) -> Replacement:
    """Read the text of a replacement.

    Args:
        text: Lines ``name = expression``, then one expression, or several separated by commas.
        names: What the pattern binds to values.
        attribute_names: What the pattern binds to attributes.
        schemas: The standard operators.

    Raises:
        PatternSyntaxError: With line, column and, if possible, what was meant.
    """
    module = parse_lines(text, "the replacement")
    reader = _Reader(names, attribute_names, schemas)
    try:
        outputs = reader.read(module)
    except RecursionError as error:
        raise PatternSyntaxError("the replacement is nested too deeply") from error
    return Replacement(text, outputs, frozenset(reader.used), frozenset(reader.carried))


class _Reader:
    def __init__(
        self,
        names: AbstractSet[str],
        attribute_names: AbstractSet[str],
        schemas: SchemaLibrary,
    ) -> None:
        self.names = names
        self.attribute_names = attribute_names
        self.schemas = schemas
        self.op_types = frozenset(schemas.op_types(""))
        self.assigned: dict[str, Part] = {}
        self.used: set[str] = set()
        self.carried: set[str] = set()

    def read(self, module: ast.Module) -> tuple[Part, ...]:
        if not module.body:
            raise PatternSyntaxError("the replacement is empty")
        *assignments, last = module.body
        for statement in assignments:
            self._assign(statement)
        if not isinstance(last, ast.Expr):
            raise wrong(last, "the last line must be an expression: what takes the match's place")
        items = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
        return tuple(self._part(item) for item in items)

    def _assign(self, statement: ast.stmt) -> None:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            raise wrong(statement, "expected a line: name = expression")
        target = statement.targets[0]
        part = self._part(statement.value)
        if isinstance(target, ast.Tuple):
            if not isinstance(part, NewNode):
                raise wrong(statement, "only a new node has several outputs to name")
            for index, item in enumerate(target.elts):
                if read_word(item):
                    self._define(item, self._output_of(part, index, item))
            return
        self._define(target, part)

    def _define(self, target: ast.expr, part: Part) -> None:
        name = read_word(target)
        if not name or name in self.assigned or name in self.names or name in self.op_types:
            raise wrong(target, f"{name or '_'!r} has a meaning already")
        self.assigned[name] = part

    def _part(self, node: ast.expr) -> Part:  # noqa: PLR0911  # a case per kind
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return NewConstant(self._expression(node))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
                return NewConstant(self._expression(node))
            case ast.UnaryOp(op=ast.USub()):
                return self._node("Neg", "", [node.operand], node)
            case ast.BinOp() if type(node.op) in BINARY_OPS:
                args = [node.left, node.right]
                return self._node(BINARY_OPS[type(node.op)], "", args, node)
            case ast.Subscript():
                return self._output(node)
            case ast.Call(func=ast.Name(id="const"), args=[expression], keywords=[]):
                return NewConstant(self._expression(expression))
            case ast.Call():
                domain, op_type = self._op(node.func)
                return self._node(op_type, domain, node.args, node, node.keywords)
            case _:
                raise wrong(node, f"{ast.unparse(node)!r} is not a value")

    def _name(self, node: ast.Name) -> Part:
        if node.id in self.assigned:
            return self.assigned[node.id]
        if node.id in self.names:
            self.used.add(node.id)
            return Captured(node.id)
        hint = did_you_mean(node.id, sorted(self.names | self.assigned.keys()))
        raise wrong(node, f"uses the name {node.id!r}, which the pattern does not bind", hint)

    def _output(self, node: ast.Subscript) -> Part:
        part = self._part(node.value)
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(part, NewNode) or type(index) is not int:
            raise wrong(node, "only the outputs of a new node are chosen by number")
        return self._output_of(part, index, node)

    def _output_of(self, node: NewNode, index: int, at: ast.expr) -> NewOutput:
        versions = list(self.schemas.versions(node.op_type, node.domain))
        most = max((schema.max_outputs for schema in versions), default=_MOST_OUTPUTS)
        if not 0 <= index < min(most, _MOST_OUTPUTS):
            raise wrong(at, f"{node.op_type} has no output {index}")
        return NewOutput(node, index)

    def _op(self, node: ast.expr) -> tuple[str, str]:
        if isinstance(node, ast.Name):
            if node.id not in self.op_types:
                hint = did_you_mean(node.id, [*self.op_types, "const"])
                raise wrong(node, f"unknown operator {node.id!r}", hint)
            return "", node.id
        domain, _, op_type = ast.unparse(node).rpartition(".")
        if not isinstance(node, ast.Attribute) or not all(
            part.isidentifier() for part in domain.split(".")
        ):
            raise wrong(node, f"{ast.unparse(node)!r} is not an operator")
        return ("" if domain == "ai.onnx" else domain), op_type

    def _node(
        self,
        op_type: str,
        domain: str,
        args: Sequence[ast.expr],
        node: ast.expr,
        keywords: Sequence[ast.keyword] = (),
    ) -> NewNode:
        parts = tuple(
            None if isinstance(arg, ast.Constant) and arg.value is None else self._part(arg)
            for arg in args
        )
        attributes: dict[str, Expression] = {}
        carried: list[str] = []
        for keyword in keywords:
            if keyword.arg is None:
                carried.append(self._carried(keyword.value))
            elif keyword.arg in attributes:
                raise wrong(keyword, f"the attribute {keyword.arg!r} is given twice")
            else:
                attributes[keyword.arg] = self._expression(keyword.value)
        made = NewNode(op_type, domain, parts, attributes, tuple(carried))
        self._check_against_schema(made, node)
        return made

    def _carried(self, node: ast.expr) -> str:
        name = read_word(node)
        if name not in self.attribute_names:
            hint = did_you_mean(name, sorted(self.attribute_names))
            raise wrong(node, f"no attributes are bound to {name!r}", hint)
        self.carried.add(name)
        return name

    def _expression(self, node: ast.expr) -> Expression:
        try:
            expression = Expression(ast.unparse(node), "replacement")
            expression.check_names(frozenset(self.names))
        except PatternSyntaxError as error:
            raise wrong(node, error.message, error.hint) from error
        self.used |= expression.names
        return expression

    def _check_against_schema(self, made: NewNode, node: ast.expr) -> None:
        """Refuse what no opset version of the operator allows."""
        versions: list[OpSchema] = list(self.schemas.versions(made.op_type, made.domain))
        if not versions:
            return
        most = max(schema.max_inputs for schema in versions)
        fewest = min(schema.min_inputs for schema in versions)
        if not fewest <= len(made.args) <= most:
            wanted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise wrong(node, f"{made.op_type} takes {wanted} inputs, not {len(made.args)}")
        needed = frozenset.intersection(*(schema.required_attributes for schema in versions))
        missing = sorted(needed - made.attributes.keys())
        if missing and not made.carried:
            raise wrong(node, f"{made.op_type} needs the attribute {missing[0]!r}")
        known = {name for schema in versions for name in schema.attributes}
        for name in made.attributes:
            if name not in known:
                hint = did_you_mean(name, sorted(known))
                raise wrong(node, f"{made.op_type} has no attribute {name!r}", hint)
