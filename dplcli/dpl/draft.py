"""Descriptions of what takes a match's place: made by rules, carried out by ``passes.replace``."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from dplcli.dpl.draft_attributes import BuildError, as_attribute, as_tensor, fit_attributes
from dplcli.ir import Attribute, Tensor, Value
from dplcli.ir.functions import called_function
from dplcli.ir.operators import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from dplcli.dpl.match import Match, Rejection
    from dplcli.ir import Function, Graph, Node, OpSchema

    RewriteFunction: TypeAlias = Callable[
        ["Match", "GraphBuilder"],
        "Operand | Sequence[Operand] | Rejection | None",
    ]
    """Takes a match; returns what takes the place of its outputs, or None to leave it."""


_MOST_OUTPUTS = 1000


class DraftNode:
    """A node to make; one object is one node.

    Attributes:
        op_type: Its operator.
        domain: The operator's domain.
        inputs: What it reads; None is an omitted input.
        attributes: Its attributes.
        output_count: How many outputs it has.
        version: The version of the domain to import where none is imported.
        function: The function that it calls, which the model gets; None if it is an operator.
    """

    __slots__ = (
        "attributes",
        "domain",
        "function",
        "inputs",
        "op_type",
        "output_count",
        "version",
    )

    def __init__(  # noqa: PLR0913  # these are the parts of a node
        self,
        op_type: str,
        domain: str,
        inputs: tuple[Operand | None, ...],
        attributes: Mapping[str, Attribute],
        *,
        output_count: int = 1,
        version: int = 1,
        function: Function | None = None,
    ) -> None:
        """Describe a node."""
        self.op_type = op_type
        self.domain = domain
        self.inputs = inputs
        self.attributes = attributes
        self.output_count = output_count
        self.version = version
        self.function = function


class DraftOutput:
    """One output of a node to make."""

    __slots__ = ("index", "node")

    def __init__(self, node: DraftNode, index: int = 0) -> None:
        """Describe output *index* of *node*."""
        self.node = node
        self.index = index

    def __repr__(self) -> str:
        """Name the operator."""
        return f"<output {self.index} of a new {self.node.op_type}>"


class DraftConstant:
    """A constant to make; one object is one constant."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        """Describe a constant."""
        self.tensor = tensor

    def __repr__(self) -> str:
        """Show the type."""
        return f"<a new constant {self.tensor.dtype}{list(self.tensor.shape)}>"


NewValue: TypeAlias = DraftOutput | DraftConstant
Operand: TypeAlias = Value | NewValue


@dataclass
class Draft:
    """What takes the place of a match.

    Attributes:
        outputs: One per output of the match.
        parts: The nodes and constants to make, each after what it reads.
    """

    outputs: tuple[Operand, ...] = ()
    parts: list[DraftNode | DraftConstant] = field(default_factory=list)

    def drop_unread(self) -> None:
        """Forget the parts that no output needs."""
        needed = {_part_of(operand) for operand in self.outputs}
        for part in reversed(self.parts):
            if part in needed and isinstance(part, DraftNode):
                needed.update(_part_of(item) for item in part.inputs if item is not None)
        self.parts = [part for part in self.parts if part in needed]


def _part_of(operand: Operand) -> Value | DraftNode | DraftConstant:
    return operand.node if isinstance(operand, DraftOutput) else operand


class GraphBuilder:
    """Describes new nodes over the values of a match; nothing is edited yet.

    Args:
        match: The match that is to be replaced.
    """

    def __init__(self, match: Match) -> None:
        """Describe what may stand in the place of *match*."""
        self.match = match
        self.graph: Graph = match.root.graph
        self.draft = Draft()
        self._own: set[DraftNode | DraftConstant] = set()

    @property
    def opset(self) -> int:
        """The version of the standard operators in force."""
        return self.graph.opset_imports.get("", 0)

    def op(
        self, op_type: str, *inputs: Operand | None, domain: str = "", **attributes: object
    ) -> DraftOutput:
        """Describe a node and return its first output; see :meth:`ops` for several.

        Args:
            op_type: Its operator.
            inputs: Captured values, results of this method, constants, or None for omitted ones.
            domain: The operator's domain.
            attributes: Numbers, strings, lists, arrays, or :class:`~dplcli.ir.Attribute`; those
                that are None are left out.

        Raises:
            BuildError: The operator does not exist in this opset, or takes no such inputs or
                attributes; it refuses the match.
            TypeError: An input is no value, or was described for another match.
        """
        return DraftOutput(self.node(op_type, domain, inputs, attributes))

    def ops(
        self,
        op_type: str,
        *inputs: Operand | None,
        outputs: int,
        domain: str = "",
        **attributes: object,
    ) -> tuple[DraftOutput, ...]:
        """Describe a node with several outputs and return them all.

        Raises:
            BuildError: As for :meth:`op`.
        """
        node = self.node(op_type, domain, inputs, attributes, outputs)
        return tuple(DraftOutput(node, index) for index in range(outputs))

    def node(
        self,
        op_type: str,
        domain: str,
        inputs: Sequence[Operand | None],
        attributes: Mapping[str, object],
        outputs: int = 1,
    ) -> DraftNode:
        """Describe a node whose parts are at hand as a list and a mapping.

        Raises:
            BuildError: As for :meth:`op`.
        """
        domain = "" if domain == "ai.onnx" else domain
        schema = self._schema(op_type, domain)
        given = self._known_attributes(attributes, {} if schema is None else schema.attributes)
        read = tuple(inputs)
        while read and read[-1] is None:
            read = read[:-1]
        self._check_owned(read, op_type)
        if schema is not None:
            given = fit_attributes(op_type, len(read), given, schema)
        if not 1 <= outputs <= (_MOST_OUTPUTS if schema is None else schema.max_outputs):
            raise BuildError(f"{op_type} has no {outputs} outputs")
        version = 1 if schema is None else schema.since
        return self._keep(
            DraftNode(op_type, domain, read, given, output_count=outputs, version=version)
        )

    def call(
        self,
        function: Function,
        inputs: Sequence[Operand | None],
        attributes: Mapping[str, object] = MappingProxyType({}),
    ) -> DraftNode:
        """Describe a call of a function of another model, which comes along, once.

        Raises:
            BuildError: It takes other inputs or attributes, or means something else in this opset.
            TypeError: An input is no value, or was described for another match.
        """
        body, label = function.body, f"{function.domain}::{function.name}"
        if len(inputs) != len(body.inputs):
            raise BuildError(f"{label} takes no {len(inputs)} inputs")
        given = self._known_attributes(attributes, {})
        if sorted(given) != sorted(function.attributes):
            wanted = ", ".join(function.attributes) or "none"
            raise BuildError(f"{label} has other attributes: {wanted}")
        self._check_versions(function)
        read = tuple(inputs)
        self._check_owned(read, label)
        count = len(body.outputs)
        return self._keep(
            DraftNode(
                function.name,
                function.domain,
                read,
                given,
                output_count=count,
                function=function,
            )
        )

    def _check_versions(self, function: Function) -> None:
        """Refuse a function whose operators mean something else in this model."""
        model = self.graph.model
        pending, seen = [function], {function}
        while pending:
            for node in pending.pop().body:
                callee = called_function(node)
                if callee is not None and callee not in seen:
                    seen.add(callee)
                    pending.append(callee)
                version = model.opset_imports.get(node.domain)
                theirs = schema_of(node)
                if callee is not None or theirs is None or version is None:
                    continue
                ours = model.codec.schemas.find(node.op_type, node.domain, version)
                if ours is None or ours.since != theirs.since:
                    since = "none" if ours is None else ours.since
                    raise BuildError(
                        f"{function.domain}::{function.name} means {node.op_type}-{theirs.since}, "
                        f"the model has {since}"
                    )

    def _keep(self, node: DraftNode) -> DraftNode:
        self.draft.parts.append(node)
        self._own.add(node)
        return node

    def _check_owned(self, inputs: Iterable[Operand | None], label: str) -> None:
        for item in inputs:
            if item is not None and not self.owns(item):
                raise TypeError(f"{label}: {item!r} is no value of this match")

    def owns(self, item: object) -> bool:
        """Tell whether *item* is a value of a graph, or was described for this match."""
        if isinstance(item, DraftOutput):
            return item.node in self._own and 0 <= item.index < item.node.output_count
        return isinstance(item, Value) or (isinstance(item, DraftConstant) and item in self._own)

    def _known_attributes(
        self, attributes: Mapping[str, object], kinds: Mapping[str, str]
    ) -> Mapping[str, Attribute]:
        """Turn values into attributes; nodes that carry the same attributes share them."""
        carried = self._carried(attributes)
        if carried is not None:
            return carried
        return {
            name: value
            if isinstance(value, Attribute)
            else as_attribute(value, name, kinds.get(name, ""))
            for name, value in attributes.items()
            if value is not None
        }

    def _carried(self, attributes: Mapping[str, object]) -> Mapping[str, Attribute] | None:
        """Return the bound attributes that *attributes* are a copy of, if they are."""
        for bound in self.match.attributes.values():
            if len(bound) == len(attributes) and all(
                attributes.get(name) is attribute for name, attribute in bound.items()
            ):
                return bound
        return None

    def constant(self, data: NDArray[Any] | np.generic | Tensor) -> DraftConstant:
        """Describe a constant of exactly this element type, shape and data.

        Raises:
            TypeError: No tensor can hold it.
        """
        constant = DraftConstant(data if isinstance(data, Tensor) else as_tensor(data))
        self.draft.parts.append(constant)
        self._own.add(constant)
        return constant

    def evaluate(self, node: Node) -> tuple[NDArray[Any], ...] | None:
        """Compute a node whose inputs are all constant; None if that cannot be done.

        Elements are computed by onnx's reference evaluator.
        """
        arrays = []
        for value in node.inputs:
            tensor = None if value is None else value.constant
            if value is not None and tensor is None:
                return None
            arrays.append(None if tensor is None else tensor.numpy())
        return self.graph.model.codec.evaluate(node, arrays)

    def _schema(self, op_type: str, domain: str) -> OpSchema | None:
        """Return the schema in force; None for an operator of a foreign domain.

        In a domain that is not imported yet it is the operator's newest.
        """
        model = self.graph.model
        schemas = model.codec.schemas
        version = self.graph.opset_imports.get(domain) or model.opset_imports.get(domain, 0)
        if domain and not version:
            return next(reversed(list(schemas.versions(op_type, domain))), None)
        schema = schemas.find(op_type, domain, version)
        if schema is None and domain == "":
            raise BuildError(f"opset {version} has no {op_type}")
        return schema
