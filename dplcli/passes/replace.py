"""Put a rule's replacement in the place of one match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.dpl.facts import UnknownFactError
from dplcli.dpl.match import Rejection
from dplcli.dpl.replacement import Captured, NewConstant, NewNode, NewOutput
from dplcli.dpl.rule import RewriteRule
from dplcli.ir import ArrayTensor, Attribute, Value
from dplcli.ir.traversal import dependents_before, needed_within
from dplcli.ir.types import dtype_name
from dplcli.passes.outline import unique
from dplcli.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.dpl.match import Match
    from dplcli.dpl.replacement import Part
    from dplcli.ir import Graph, Node, OpSchema

_PREDICATES = frozenset(
    {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not"}
    | {"IsInf", "IsNaN"}
)
"""Operators whose results say nothing of the numbers they compare."""

RULE_KEY = "dpl.rule"
"""Metadata key of a node that a rule has made: the rule's name."""


class _CannotBuildError(Exception):
    """The replacement needs something that is not known here."""


def replace_match(match: Match) -> Rejection | None:
    """Replace *match*; outputs keep their names.

    Returns:
        None, or why the replacement cannot be made here; then nothing has been changed.
    """
    assert isinstance(match.rule, RewriteRule)  # noqa: S101  # the other rules outline
    builder = _Builder(match, match.rule)
    try:
        plans = [builder.plan(part) for part in match.rule.replacement.outputs]
        builder.keep_what_is_read(plans)
    except _CannotBuildError as error:
        return Rejection(match.rule, match.root, "check", str(error), match.root)
    builder.build(plans)
    return None


class _Plan:
    """A node to make, with everything computed that could go wrong."""

    def __init__(
        self,
        node: NewNode | None,
        inputs: Sequence[_Source | None],
        attributes: Mapping[str, Attribute],
    ) -> None:
        self.node = node
        self.inputs = inputs
        self.attributes = attributes


class _Source:
    """Where an input comes from: a captured value, or an output of a node to make."""

    def __init__(
        self, value: Value | None = None, plan: _Plan | None = None, index: int = 0
    ) -> None:
        self.value = value
        self.plan = plan
        self.index = index


class _Builder:
    def __init__(self, match: Match, rule: RewriteRule) -> None:
        self.match = match
        self.rule = rule
        self.graph: Graph = match.root.graph
        self.plans: dict[int, _Plan] = {}
        self.order: list[_Plan] = []
        self.made: dict[int, Node] = {}
        self.read: dict[Value, str] = {}
        self.kept: set[Node] = set()
        self.rewriter = GraphRewriter(self.graph)
        self.anchor = match.nodes[-1]

    # -- planning: nothing is edited -----------------------------------------------------------

    def plan(self, part: Part, dtype: str | None = None) -> _Source:
        match part:
            case Captured():
                value = self.match.bindings.get(part.name)
                if value is None:
                    raise _CannotBuildError(f"{part.name!r} took no part in the match")
                self.read[value] = part.name
                return _Source(value)
            case NewConstant():
                array = self._array(part, dtype)
                constant = {"value": Attribute("tensor", ArrayTensor(array))}
                plan = _Plan(None, (), constant)
                self.order.append(plan)
                return _Source(plan=plan)
            case NewNode():
                return _Source(plan=self._plan_node(part))
            case NewOutput():
                return _Source(plan=self._plan_node(part.node), index=part.index)

    def _plan_node(self, node: NewNode) -> _Plan:
        known = self.plans.get(id(node))
        if known is not None:
            return known
        dtype = self._dtype_of(node)
        schema = self._schema_of(node)
        whole = frozenset() if schema is None else schema.integer_inputs
        inputs = [
            None if arg is None else self.plan(arg, "int64" if slot in whole else dtype)
            for slot, arg in enumerate(node.args)
        ]
        attributes = self._attributes_of(node) if schema is None else self._fitting(node, schema)
        plan = self.plans[id(node)] = _Plan(node, inputs, attributes)
        self.order.append(plan)
        return plan

    def _attributes_of(self, node: NewNode) -> dict[str, Attribute]:
        attributes: dict[str, Attribute] = {}
        for name in node.carried:
            attributes |= self.match.attributes.get(name, {})
        for name, expression in node.attributes.items():
            attributes[name] = _attribute(self._evaluate(expression), name)
        return attributes

    def _schema_of(self, node: NewNode) -> OpSchema | None:
        """Return the schema in force; None for an operator of a foreign domain."""
        version = self.graph.opset_imports.get(node.domain, 0)
        schema = self.graph.model.codec.schemas.find(node.op_type, node.domain, version)
        if schema is None and node.domain == "":
            raise _CannotBuildError(f"opset {version} has no {node.op_type}")
        return schema

    def _fitting(self, node: NewNode, schema: OpSchema) -> dict[str, Attribute]:
        """Compare the node with its schema; a whole number may stand for a float."""
        attributes = self._attributes_of(node)
        version = self.graph.opset_imports.get(node.domain, 0)
        if not schema.min_inputs <= len(node.args) <= schema.max_inputs:
            count = len(node.args)
            raise _CannotBuildError(f"{node.op_type} of opset {version} takes no {count} inputs")
        missing = sorted(schema.required_attributes - attributes.keys())
        if missing:
            raise _CannotBuildError(f"{node.op_type} of opset {version} needs {missing[0]!r}")
        fitting = {}
        for name, attribute in attributes.items():
            wanted = schema.attributes.get(name)
            if wanted is None:
                raise _CannotBuildError(f"{node.op_type} of opset {version} has no {name!r}")
            if (attribute.kind, wanted) == ("int", "float"):
                attribute = Attribute("float", float(attribute.value))  # type: ignore[arg-type]  # noqa: PLW2901  # an int
            if attribute.kind != wanted:
                found = f"{attribute.kind} {attribute.value!r}"
                raise _CannotBuildError(f"{node.op_type}: {name} is {wanted}, not {found}")
            fitting[name] = attribute
        return fitting

    def _dtype_of(self, node: NewNode) -> str | None:
        """Return the element type of the operands beside a number, else of the match's output."""
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
                code = None if wanted is None else wanted.value
                return dtype_name(code) if isinstance(code, int) else None
            operands = node.args[1:] if node.op_type == "Where" else node.args
            part = next((arg for arg in operands if not isinstance(arg, NewConstant)), None)
        value = self.match.bindings.get(part.name) if isinstance(part, Captured) else None
        known = None if value is None else value.known_type()
        return None if known is None else known.dtype

    def _array(self, part: NewConstant, dtype: str | None) -> NDArray[Any]:
        text = part.expression.text
        value = self._evaluate(part.expression)
        if isinstance(value, (np.ndarray, np.generic)):
            return self._folded(np.asarray(value), part)
        items = value if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(item, (bool, int, float)) for item in items):
            raise _CannotBuildError(f"{text!r} is no number and no array")
        if dtype is None:
            raise _CannotBuildError(f"the element type of {text!r} is not known")
        try:
            with np.errstate(all="ignore"):
                wanted = np.asarray(value)
                made = wanted.astype(np.dtype(dtype))
        except (TypeError, OverflowError) as error:
            raise _CannotBuildError(f"{text!r} cannot be {dtype}") from error
        is_exact = made.dtype.kind == "f" or np.array_equal(made, wanted)
        if not is_exact or not np.array_equal(np.isinf(made), np.isinf(wanted)):
            raise _CannotBuildError(f"{dtype} cannot hold {text!r}")
        return made

    def _folded(self, array: NDArray[Any], part: NewConstant) -> NDArray[Any]:
        """Take an array that was computed from constants, if it has the type of one of them."""
        values = (self.match.bindings[name] for name in part.expression.names)
        types = {known.dtype for value in values if (known := value.known_type()) is not None}
        found = ArrayTensor(array).dtype
        if found not in types:
            raise _CannotBuildError(f"{part.expression.text!r} comes to {found}, which nothing is")
        return array

    def _evaluate(self, expression: Any) -> object:  # noqa: ANN401  # an Expression
        try:
            value: object = expression.value(self.match.bindings)
        except (UnknownFactError, ValueError) as error:
            raise _CannotBuildError(f"{expression.text!r} cannot be computed: {error}") from error
        return value

    def keep_what_is_read(self, outputs: Sequence[_Source]) -> None:
        """Keep the matched nodes that the replacement reads, and those that they need."""
        own = {
            old
            for source, old in zip(outputs, self.match.outputs, strict=True)
            if source.value is old
        }
        for value, name in self.read.items():
            if value in self.match.outputs and value not in own:
                raise _CannotBuildError(f"the replacement reads {name!r}, which it replaces")
        self.kept = needed_within(self.match.nodes, self.read)
        if self.anchor in self.kept and self.order:
            label = self.anchor.label
            raise _CannotBuildError(f"the replacement reads {label!r}, the last node of the match")

    # -- building ------------------------------------------------------------------------------

    def build(self, outputs: Sequence[_Source]) -> None:
        if len(outputs) > 1:
            moved = dependents_before(self.anchor, self.match.outputs, self.match.nodes)
            self.rewriter.move_behind(self.anchor, moved)
        names = self._output_names(outputs)
        for plan in self.order:
            self._make(plan, names)
        for source, old in zip(outputs, self.match.outputs, strict=True):
            if source.value is not old and names.get((id(source.plan), source.index)) is not old:
                self._copy(self._value(source), old)
        self.rewriter.erase([node for node in self.match.nodes if node not in self.kept])

    def _output_names(self, outputs: Sequence[_Source]) -> dict[tuple[int, int], Value]:
        """Say which outputs of new nodes become which values of the match."""
        names: dict[tuple[int, int], Value] = {}
        for source, old in zip(outputs, self.match.outputs, strict=True):
            if source.plan is not None:
                names.setdefault((id(source.plan), source.index), old)
        return names

    def _copy(self, value: Value, old: Value) -> None:
        origin = {RULE_KEY: self.rule.name}
        copy = self.rewriter.insert(self.anchor, "Identity", [value], metadata=origin)
        self.rewriter.take_over_outputs(copy, [old])

    def _make(self, plan: _Plan, names: Mapping[tuple[int, int], Value]) -> None:
        op_type = "Constant" if plan.node is None else plan.node.op_type
        domain = "" if plan.node is None else plan.node.domain
        if domain:
            version = self.graph.model.opset_imports.setdefault(domain, 1)
            self.graph.opset_imports.setdefault(domain, version)
        inputs = [None if source is None else self._value(source) for source in plan.inputs]
        while inputs and inputs[-1] is None:
            inputs.pop()
        node = self.rewriter.insert(
            self.anchor,
            op_type,
            inputs,
            domain=domain,
            attributes=plan.attributes,
            metadata={RULE_KEY: self.rule.name},
        )
        used = {index for owner, index in names if owner == id(plan)}
        sources = (source for other in self.order for source in other.inputs)
        used |= {source.index for source in sources if source is not None and source.plan is plan}
        outputs = [
            names.get((id(plan), index)) or self._fresh(node, index)
            for index in range(max(used, default=0) + 1)
        ]
        self.rewriter.take_over_outputs(node, outputs)
        self.made[id(plan)] = node

    def _fresh(self, node: Node, index: int) -> Value:
        name = unique(f"{self.match.outputs[0].name}_{node.op_type}", self._is_visible)
        value = self.graph.values[name] = Value(name, self.graph, node, index)
        return value

    def _is_visible(self, name: str) -> bool:
        """Tell whether a name means something here, outside or in a body inside."""
        graphs = [self.graph, *self.graph.and_inner()]
        owner = self.graph.owner
        while owner is not None:
            graphs.append(owner.graph)
            owner = owner.graph.owner
        return any(name in graph.values for graph in graphs)

    def _value(self, source: _Source) -> Value:
        if source.value is not None:
            return source.value
        output = self.made[id(source.plan)].outputs[source.index]
        assert output is not None  # noqa: S101  # every output that is used was made
        return output


def _attribute(value: object, name: str) -> Attribute:
    """Turn what an expression came to into an attribute."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.reshape(()).item() if value.size == 1 and value.ndim == 0 else value.tolist()
    if isinstance(value, bool):
        return Attribute("int", int(value))
    for kind, known in (("int", int), ("float", float), ("string", str)):
        if isinstance(value, known):
            return Attribute(kind, value)
        items = value if isinstance(value, (list, tuple)) else ()
        if items and all(isinstance(item, known) for item in items):
            return Attribute(f"{kind}s", tuple(items))
    if isinstance(value, (list, tuple)) and all(isinstance(v, (int, float)) for v in value):
        return Attribute("floats", tuple(map(float, value)))
    raise _CannotBuildError(f"the attribute {name!r} cannot be {value!r}")
