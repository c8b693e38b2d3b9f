"""Descriptions of what takes a match's place: made by rules, carried out by ``passes.replace``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dplcli.ir import ArrayTensor, Attribute, Tensor, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.match import Match, Rejection
    from dplcli.ir import Graph, Node, OpSchema

    RewriteFunction: TypeAlias = Callable[
        ["Match", "GraphBuilder"],
        "Operand | Sequence[Operand] | Rejection | None",
    ]
    """Takes a match; returns what takes the place of its outputs, or None to leave it."""


class BuildError(Exception):
    """What is described cannot be made here; the match is left as it is."""


class DraftNode:
    """A node to make; one object is one node.

    Attributes:
        op_type: Its operator.
        domain: The operator's domain.
        inputs: What it reads; None is an omitted input.
        attributes: Its attributes.
        output_count: How many outputs it has.
    """

    __slots__ = ("attributes", "domain", "inputs", "op_type", "output_count")

    def __init__(
        self,
        op_type: str,
        domain: str,
        inputs: tuple[Operand | None, ...],
        attributes: Mapping[str, Attribute],
        output_count: int = 1,
    ) -> None:
        """Describe a node."""
        self.op_type = op_type
        self.domain = domain
        self.inputs = inputs
        self.attributes = attributes
        self.output_count = output_count


class DraftOutput:
    """One output of a node to make."""

    __slots__ = ("index", "node")

    def __init__(self, node: DraftNode, index: int = 0) -> None:
        """Describe output *index* of *node*."""
        self.node = node
        self.index = index


class DraftConstant:
    """A constant to make; one object is one constant."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        """Describe a constant."""
        self.tensor = tensor


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
        schema = self._schema(op_type, domain)
        given = self._known_attributes(attributes)
        read = tuple(inputs)
        while read and read[-1] is None:
            read = read[:-1]
        if schema is not None:
            given = _fitting(op_type, len(read), given, schema)
        made = DraftNode(op_type, domain, read, given, outputs)
        self.draft.parts.append(made)
        return made

    def _known_attributes(self, attributes: Mapping[str, object]) -> Mapping[str, Attribute]:
        """Turn values into attributes; nodes that carry the same attributes share them."""
        carried = self._carried(attributes)
        if carried is not None:
            return carried
        return {
            name: value if isinstance(value, Attribute) else as_attribute(value, name)
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
        """Describe a constant of exactly this element type, shape and data."""
        tensor = data if isinstance(data, Tensor) else ArrayTensor(np.asarray(data))
        constant = DraftConstant(tensor)
        self.draft.parts.append(constant)
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
        """Return the schema in force; None for an operator of a foreign domain."""
        version = self.graph.opset_imports.get(domain, 0)
        schema = self.graph.model.codec.schemas.find(op_type, domain, version)
        if schema is None and domain == "":
            raise BuildError(f"opset {version} has no {op_type}")
        return schema


def _fitting(
    op_type: str, count: int, attributes: Mapping[str, Attribute], schema: OpSchema
) -> Mapping[str, Attribute]:
    """Compare a node with its schema; a whole number may stand for a float."""
    if not schema.min_inputs <= count <= schema.max_inputs:
        raise BuildError(f"{op_type}-{schema.since} takes no {count} inputs")
    missing = sorted(schema.required_attributes - attributes.keys())
    if missing:
        raise BuildError(f"{op_type}-{schema.since} needs {missing[0]!r}")
    known = schema.attributes
    if all(known.get(name) == attribute.kind for name, attribute in attributes.items()):
        return attributes
    fitting = {}
    for name, attribute in attributes.items():
        wanted = known.get(name)
        if wanted is None:
            raise BuildError(f"{op_type}-{schema.since} has no {name!r}")
        fitting[name] = _of_kind(attribute, wanted, f"{op_type}: {name}")
    return fitting


def _of_kind(attribute: Attribute, wanted: str, label: str) -> Attribute:
    value = attribute.value
    if attribute.kind == wanted:
        return attribute
    if (attribute.kind, wanted) == ("int", "float") and isinstance(value, int):
        return Attribute("float", float(value), attribute.ref)
    if attribute.kind == "floats" and value == ():
        return Attribute(wanted, (), attribute.ref)
    if (attribute.kind, wanted) == ("ints", "floats") and isinstance(value, tuple):
        return Attribute("floats", tuple(map(float, value)), attribute.ref)
    raise BuildError(f"{label} is {wanted}, not {attribute.kind} {value!r}")


def as_attribute(value: object, name: str) -> Attribute:  # a guard per kind
    """Turn a number, a string, a tensor or a list into an attribute.

    Raises:
        BuildError: It is nothing of the kind.
    """
    if isinstance(value, Tensor):
        return Attribute("tensor", value)
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.item() if value.ndim == 0 else value.tolist()
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
    raise BuildError(f"the attribute {name!r} cannot be {value!r}")
