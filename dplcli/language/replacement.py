"""What takes a match's place: rewrite rules, and the new nodes that they describe.

A replacement is a function that takes a match and a :class:`GraphBuilder`. A replacement that was
written as text is such a function, too: it calls the builder as the text says.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from dplcli.errors import DplError, PassError, PatternSyntaxError, did_you_mean
from dplcli.ir import ArrayTensor, Attribute, Node, Tensor, Value
from dplcli.ir.model import called_function, is_in_function
from dplcli.ir.operators import (
    DTYPE_ATTRIBUTES,
    FIRST_OPSET,
    LIGHT,
    MOVED,
    ONLY_SCALARS,
    PREDICATES,
    VECTORS,
    canonical_domain,
    schema_of,
)
from dplcli.ir.traversal import behind_identities, captured_values, is_read
from dplcli.ir.types import DTYPE_CODES, Exempt, dtype_name
from dplcli.keys import keys
from dplcli.language.conditions import SHAPE_FUNCTIONS, Expression, SymbolicDim, UnknownFactError
from dplcli.language.expression import (
    MOST_OUTPUTS,
    TextReader,
    read_array,
    read_word,
    signed,
    wrong,
)
from dplcli.language.matcher import reach_of
from dplcli.language.pattern import (
    WAIVED,
    CallPattern,
    EdgePattern,
    OpName,
    OrPattern,
    OutputsPattern,
    all_parts,
    is_op,
    taken_parts,
    unknown_dtype,
)
from dplcli.language.rule import Match, OrderPolicy, Rejection, RewriteEscapePolicy, Rule
from dplcli.language.text import (
    attribute_names,
    bound_names,
    captures_of,
    operators_of,
    variadic_names,
    wrong_part,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from dplcli.ir import Function, Graph, OpSchema, SchemaLibrary, TensorType
    from dplcli.ir.operators import Parameter
    from dplcli.language.conditions import Bound
    from dplcli.language.pattern import DFPattern, OpPattern
    from dplcli.language.rule import Opsets


# Attributes of new nodes: Python's and numpy's values, checked against the schema.


_INT64 = 1 << 63


class BuildError(Exception):
    """The nodes that a rule describes cannot be made in this graph; the match stays as it is."""


def fit_attributes(
    op_type: str, count: int, attributes: Mapping[str, Attribute], schema: OpSchema
) -> Mapping[str, Attribute]:
    """Check a new node against its schema, and turn whole numbers into floats where it wants them.

    Raises:
        BuildError: The operator takes no such inputs or attributes.
    """
    if not schema.min_inputs <= count <= schema.max_inputs:
        raise BuildError(f"{op_type}-{schema.since} takes no {count} inputs")
    missing = sorted(schema.required_attributes - attributes.keys())
    if missing:
        raise BuildError(f"{op_type}-{schema.since} needs {missing[0]!r}")
    kinds = schema.attributes
    if all(kinds.get(name) == attribute.kind for name, attribute in attributes.items()):
        return attributes
    fitting = {}
    for name, attribute in attributes.items():
        if name not in kinds:
            raise BuildError(f"{op_type}-{schema.since} has no {name!r}")
        fitting[name] = _of_kind(attribute, kinds[name], f"{op_type}: {name}")
    return fitting


def _of_kind(attribute: Attribute, wanted: str, label: str) -> Attribute:
    value = attribute.value
    if attribute.kind == wanted:
        return attribute
    if (attribute.kind, wanted) == ("int", "float") and isinstance(value, int):
        return Attribute("float", float(value), attribute.ref)
    if attribute.kind == "floats" and value == () and wanted.endswith("s"):  # of any kind
        return Attribute(wanted, (), attribute.ref)
    if (attribute.kind, wanted) == ("ints", "floats") and isinstance(value, tuple):
        return Attribute("floats", tuple(map(float, value)), attribute.ref)
    raise BuildError(f"{label} is {wanted}, not {attribute.kind} {value!r}")


def as_tensor(data: NDArray[Any] | np.generic) -> ArrayTensor:
    """Wrap an array.

    Raises:
        TypeError: No tensor can hold it.
    """
    array = np.asarray(data)
    if array.dtype.hasobject and not all(isinstance(item, (str, bytes)) for item in array.flat):
        raise TypeError(f"{data!r} is no array of numbers or strings")
    return ArrayTensor(array)


def as_attribute(value: object, name: str, kind: str = "") -> Attribute:
    """Turn a number, a string, a tensor or a list into an attribute.

    Args:
        value: What to turn into one.
        name: Its name, for the message.
        kind: The kind that the schema wants, or "" if there is no schema.

    Raises:
        BuildError: No attribute can hold it.
    """
    if isinstance(value, Tensor):
        return Attribute("tensor", value)
    if kind == "tensor":
        return Attribute("tensor", as_tensor(_as_array(value, name)))
    if kind == "int" and isinstance(value, str) and name in DTYPE_ATTRIBUTES:
        value = DTYPE_CODES.get(value, value)
    plain = _plain(value)
    is_list = isinstance(plain, list)
    items: list[Any] = plain if isinstance(plain, list) else [plain]
    kinds = [kind for kind, python in _KINDS if all(isinstance(item, python) for item in items)]
    if items and is_list and not kinds and all(isinstance(item, (int, float)) for item in items):
        kinds, items = ["float"], list(map(float, items))
    for item in items:
        if isinstance(item, int) and not -_INT64 <= item < _INT64:
            kinds = []
        is_odd = isinstance(item, str) and item != item.encode(errors="ignore").decode()
        if is_odd or isinstance(item, SymbolicDim):
            kinds = []  # no file can hold it; or it is the name of a size
    if not kinds:
        raise BuildError(f"the attribute {name!r} cannot be {value!r}")
    if not is_list:
        return Attribute(kinds[0], items[0])
    return Attribute(f"{kinds[0] if items else 'float'}s", tuple(items))


_KINDS = (("int", int), ("float", float), ("string", str))


def _as_array(value: object, name: str) -> NDArray[Any] | np.generic:
    """Make an array of numbers: of whole ones int64, else float32; one number is a list of one."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value
    items = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(item, (int, float)) for item in items):
        raise BuildError(f"the attribute {name!r} cannot be {value!r}")
    return read_array(list(items), None)


def _plain(value: object) -> object:
    """Turn numpy's numbers, truth values and tuples into Python's numbers and lists."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.item() if value.ndim == 0 else value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, bool) else value


# Drafts: rules describe what takes a match's place, ``passes.rewrite`` makes it.


@dataclass(eq=False, slots=True)
class DraftNode:
    """A node to make; one object is one node.

    Attributes:
        op_type: Its operator.
        domain: The operator's domain.
        inputs: What it reads; None is an omitted input.
        attributes: Its attributes.
        output_count: How many outputs it has.
        version: The version of the domain to import where none is imported.
        function: The function that it calls, which is added to the model; None for an operator.
        copied: The node of a body that it is a copy of, with its bodies and names; None for a new
            one.
        captured: What stands for the values that those bodies read from outside.
    """

    op_type: str
    domain: str
    inputs: tuple[Operand | None, ...]
    attributes: Mapping[str, Attribute]
    output_count: int = 1
    version: int = 1
    function: Function | None = None
    copied: Node | None = None
    captured: tuple[tuple[Value, Operand], ...] = ()

    @property
    def read(self) -> list[Operand]:
        """What it and its bodies read."""
        read = [item for item in self.inputs if item is not None]
        return [*read, *(item for _, item in self.captured)]


@dataclass(eq=False, repr=False, slots=True)
class DraftOutput:
    """One output of a node to make."""

    node: DraftNode
    index: int = 0

    def __repr__(self) -> str:
        """Name the operator."""
        return f"<output {self.index} of a new {self.node.op_type}>"


@dataclass(eq=False, repr=False, slots=True)
class DraftConstant:
    """A constant to make; one object is one constant, unless equal ones may be shared.

    Attributes:
        tensor: Its data.
        is_shared: Whether an equal one of another match may take its place.
        name: The name that it had in a body; "" for a new one.
    """

    tensor: Tensor
    is_shared: bool = False
    name: str = ""

    def __repr__(self) -> str:
        """Show the type."""
        return f"<a new constant {self.tensor.dtype}{list(self.tensor.shape)}>"


SomePart = TypeVar("SomePart", DraftNode, DraftConstant)
NewValue: TypeAlias = DraftOutput | DraftConstant
Operand: TypeAlias = Value | NewValue


@dataclass
class Draft:
    """What takes the place of a match.

    Attributes:
        outputs: One per output of the match.
        parts: The nodes and constants to make, each after what it reads.
        is_respelled: Whether the model's opset has an input where the rule says an attribute, or
            an attribute where it says an input; or whether a vector of one number became a scalar.
    """

    outputs: tuple[Operand, ...] = ()
    parts: list[DraftNode | DraftConstant] = field(default_factory=list)
    is_respelled: bool = False

    def drop_unread(self) -> None:
        """Drop the parts that no output needs."""
        needed = {_part_of(operand) for operand in self.outputs}
        for part in reversed(self.parts):
            if part in needed and isinstance(part, DraftNode):
                needed.update(map(_part_of, part.read))
        self.parts = [part for part in self.parts if part in needed]


def _part_of(operand: Operand) -> Value | DraftNode | DraftConstant:
    return operand.node if isinstance(operand, DraftOutput) else operand


RewriteFunction: TypeAlias = (
    "Callable[[Match, GraphBuilder], Operand | Sequence[Operand] | Rejection | None]"
)
"""Takes a match; returns what takes the place of its outputs, or None to leave it."""


class GraphBuilder:
    """Describes new nodes over the values of a match; nothing is edited yet.

    Args:
        match: The match that is to be replaced.
    """

    def __init__(self, match: Match) -> None:
        self.match = match
        self.graph: Graph = match.root.graph
        self.draft = Draft()
        self._own: set[DraftNode | DraftConstant] = set()

    @property
    def opset(self) -> int:
        """The version of the standard operators in force."""
        return self.graph.opset_imports.get("", 0)

    def op(
        self,
        op_type: str | OpName,
        *inputs: Operand | float | None,
        domain: str = "",
        **attributes: object,
    ) -> DraftOutput:
        """Describe a node and return its first output; see :meth:`ops` for several.

        What became an input in some opset (axes, the bounds of Clip, …) may be given as an input or
        as an attribute: the node is spelled as the model's opset has it.

        Args:
            op_type: Its operator: a name, or what an operator variable stands for, ``match[f]``.
            inputs: Captured values, results of this method, constants, or None for omitted ones. A
                number becomes a constant of the type of what stands beside it.
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
        op_type: str | OpName,
        *inputs: Operand | float | None,
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
        op_type: str | OpName,
        domain: str,
        inputs: Sequence[Operand | float | None],
        attributes: Mapping[str, object],
        outputs: int = 1,
    ) -> DraftNode:
        """Describe a node, with its inputs as a list and its attributes as a mapping.

        Raises:
            BuildError: As for :meth:`op`.
        """
        if isinstance(op_type, OpName):
            domain, op_type = op_type.domain, op_type.op_type
        domain = canonical_domain(domain)
        schema = self._schema(op_type, domain)
        given = self._known_attributes(attributes, {} if schema is None else schema.attributes)
        read = self._with_numbers(op_type, domain, inputs)
        while read and read[-1] is None:
            read = read[:-1]
        slots = ONLY_SCALARS.get((domain, op_type), ())
        scalars = {
            item: self._scalar(op_type, item)
            for item in dict.fromkeys(read[slot] for slot in slots if slot < len(read))
        }
        read = tuple(scalars.get(item, item) for item in read)
        if schema is not None and not domain and op_type in MOVED:
            read, given = self._respelled(op_type, read, given, schema)
        if schema is not None:
            given = fit_attributes(op_type, len(read), given, schema)
        if not 1 <= outputs <= (MOST_OUTPUTS if schema is None else schema.max_outputs):
            raise BuildError(f"{op_type} has no {outputs} outputs")
        if schema is not None:  # nobody need read all, but all have to be there
            outputs = max(outputs, schema.min_outputs)
        version = 1 if schema is None else schema.since
        return self._keep(DraftNode(op_type, domain, read, given, outputs, version))

    def output(self, node: DraftNode, index: int) -> DraftOutput:
        """Return an output of a new node, which gets more of them if it has too few.

        Raises:
            BuildError: The operator has no such output.
        """
        schema = None if index < node.output_count else self._schema(node.op_type, node.domain)
        if schema is not None and index >= schema.max_outputs:
            raise BuildError(f"{node.op_type} has no {index + 1} outputs")
        node.output_count = max(node.output_count, index + 1)
        return DraftOutput(node, index)

    def call(
        self,
        function: Function,
        inputs: Sequence[Operand | None],
        attributes: Mapping[str, object] = MappingProxyType({}),
    ) -> DraftNode:
        """Describe a call of another model's function, which is copied into this model once.

        Raises:
            BuildError: The function takes other inputs or attributes, or its operators mean
                something else in this opset.
            TypeError: An input is no value, or was described for another match.
        """
        label = f"{function.domain}::{function.name}"
        if len(inputs) != len(function.body.inputs):
            raise BuildError(f"{label} takes no {len(inputs)} inputs")
        given = self._known_attributes(attributes, {})
        if sorted(given) != sorted(function.attributes):
            wanted = ", ".join(function.attributes) or "none"
            raise BuildError(f"{label} has other attributes: {wanted}")
        self._check_versions(function)
        read, count = tuple(inputs), len(function.body.outputs)
        self._check_owned(read, label)
        return self._keep(
            DraftNode(function.name, function.domain, read, given, count, function=function)
        )

    def copy(self, body: Graph, given: Sequence[Operand] = ()) -> list[Operand]:
        """Describe what a body of a node holds, to stand where that node is.

        Args:
            body: The body of an If, a Loop or a Scan, which the match has.
            given: What stands for its inputs, but for what it stores itself.

        Returns:
            What stands for its outputs.

        Raises:
            BuildError: It stores data that cannot be stored here.
        """
        values: dict[Value, Operand] = {value: self._stored(value) for value in body.initializers}
        values.update(zip(body.inputs, given, strict=False))
        for node in body:
            read = [None if value is None else values.get(value, value) for value in node.inputs]
            draft = DraftNode(
                node.op_type,
                node.domain,
                tuple(read),
                node.attributes,
                len(node.outputs),
                copied=node,
                captured=tuple([(v, values.get(v, v)) for v in captured_values(node)]),
            )
            self._keep(draft)
            outputs = (value for value in node.outputs if value is not None)
            values.update((value, DraftOutput(draft, value.index)) for value in outputs)
        return [values.get(value, value) for value in body.outputs]

    def _stored(self, value: Value) -> DraftConstant:
        tensor = value.constant
        if tensor is None or (tensor.is_external and is_in_function(self.graph)):
            raise BuildError(f"{value.name!r} cannot be stored here")
        return self._keep(DraftConstant(tensor, name=value.name))

    def _check_versions(self, function: Function) -> None:
        """Refuse a function whose operators mean something else in this model's opset."""
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

    def _with_numbers(
        self, op_type: str, domain: str, inputs: Sequence[Operand | float | None]
    ) -> tuple[Operand | None, ...]:
        """Make constants of numbers, of the types that they have where they stand."""
        others = [None if isinstance(item, (int, float)) else item for item in inputs]
        self._check_owned(others, op_type)
        read: list[Operand | None] = []
        for index, item in enumerate(inputs):
            if item is None or not isinstance(item, (int, float)):
                read.append(item)
                continue
            dtype = self.dtype_at(OpName(op_type, domain), index, others)
            if dtype is None:
                raise BuildError(f"{op_type}: nothing beside {item} says of what type it is")
            read.append(self.constant(_numbers(repr(item), item, dtype)))
        return tuple(read)

    def dtype_at(
        self, op: OpName, index: int, beside: Sequence[Operand | None], made: str | None = None
    ) -> str | None:
        """Return the element type that a number has as input *index* of a node; None if unknown.

        Where the schema says that some operands are of one type, one of them decides, or what the
        node makes. Else the first of the others does whose type is known and fits.

        Args:
            op: The operator.
            index: Where the number stands.
            beside: All inputs, None for those whose types are not known yet.
            made: The element type that output 0 has to have, if that is known.
        """
        schema = self._schema(op.op_type, op.domain)
        formal = None if schema is None else schema.formal(index)
        if schema is None or formal is None:  # in older opsets some inputs are attributes
            moved = () if op.domain else MOVED.get(op.op_type, ())
            is_whole = any(item.slot == index and item.kind in {"int", "ints"} for item in moved)
            known = filter(None, map(self._dtype_of, beside))
            return "int64" if is_whole else next(known, made)
        others = [(schema.formal(slot), item) for slot, item in enumerate(beside) if item]
        alike = [item for its, item in others if its and its.variable == formal.variable]
        passed = made if self.passes_type(op, index) else None
        found = next(filter(None, map(self._dtype_of, alike)), passed)
        if found is not None or alike:
            return found
        free = (self._dtype_of(item) for its, item in others if its and not its.only_dtype)
        fitting = (dtype for dtype in free if dtype in formal.dtypes)
        return formal.only_dtype or next(fitting, None)

    def passes_type(self, op: OpName, slot: int) -> bool:
        """Tell whether output 0 of a node has the element type of an input."""
        schema = self._schema(op.op_type, op.domain)
        formal = None if schema is None else schema.formal(slot)
        if schema is None or formal is None:
            return True
        source = schema.typed_by[0] if schema.typed_by else None
        its = schema.formal(source) if isinstance(source, int) else None
        return its is not None and its.variable == formal.variable

    def _keep(self, part: SomePart) -> SomePart:
        self.draft.parts.append(part)
        self._own.add(part)
        return part

    def _check_owned(self, inputs: Iterable[Operand | None], label: str) -> None:
        for item in inputs:
            if item is not None and not self.owns(item):
                what = f"{item!r} is neither a value of this match nor a number"
                raise TypeError(f"{label}: {what}; build.constant(…) makes one of an array")

    def _respelled(
        self,
        op_type: str,
        inputs: tuple[Operand | None, ...],
        attributes: Mapping[str, Attribute],
        schema: OpSchema,
    ) -> tuple[tuple[Operand | None, ...], Mapping[str, Attribute]]:
        """Move what an opset has as an input, or as an attribute, to where it has it."""
        read, given = list(inputs), dict(attributes)
        for parameter in MOVED[op_type]:
            slot, name = parameter.slot, parameter.attribute
            stated = read[slot] if slot < len(read) else None
            is_attribute = name in schema.attributes
            if is_attribute and stated is not None and slot >= schema.max_inputs:
                if name in given:
                    raise BuildError(f"{op_type}: {parameter.name} is given twice")
                given[name] = self._as_attribute(
                    op_type, stated, parameter, schema.attributes[name]
                )
                read[slot] = None
            elif not is_attribute and name in given:
                if stated is not None:
                    raise BuildError(f"{op_type}: {parameter.name} is given twice")
                read += [None] * (slot + 1 - len(read))
                read[slot] = self._as_input(op_type, read, given.pop(name), parameter)
            else:
                continue
            self.draft.is_respelled = True
        while read and read[-1] is None:
            read.pop()
        return tuple(read), given if self.draft.is_respelled else attributes

    def _scalar(self, op_type: str, operand: Operand | None) -> Operand | None:
        """Make a scalar of a constant vector of one number; leave any other scalar as it is."""
        if operand is None or isinstance(operand, DraftOutput):
            return operand
        tensor: Tensor | None
        stated: Tensor | TensorType | None
        if isinstance(operand, DraftConstant):
            tensor = stated = operand.tensor
        else:
            tensor, stated = behind_identities(operand).constant, operand.known_type()
        if stated is not None and stated.shape == ():
            return operand
        if tensor is None or tensor.shape != (1,):
            raise BuildError(f"{op_type} takes scalars, which {operand!r} is not known to be")
        self.draft.is_respelled = True
        return self.constant(tensor.numpy().reshape(()))

    def _as_attribute(
        self, op_type: str, stated: Operand, parameter: Parameter, kind: str
    ) -> Attribute:
        tensor = stated.tensor if isinstance(stated, DraftConstant) else None
        if isinstance(stated, Value):
            tensor = stated.constant
        if tensor is None:
            name, version = parameter.name, self.opset
            raise BuildError(f"{name} of {op_type} is an attribute in opset {version}: no constant")
        items = tensor.numpy().reshape(-1).tolist()
        value = items if kind in {"ints", "floats"} else items[0]
        return as_attribute(value, parameter.attribute, kind)

    def _as_input(
        self,
        op_type: str,
        read: Sequence[Operand | None],
        stated: Attribute,
        parameter: Parameter,
    ) -> DraftConstant:
        dtype = self._dtype_of(read[0]) if parameter.kind == "float" else parameter.dtype
        if stated.ref:
            raise BuildError(f"{parameter.name} of {op_type} is an input here, not {stated.ref!r}")
        if dtype is None:
            raise BuildError(f"the element type of {parameter.name} of {op_type} is not known")
        value: Any = stated.value
        if op_type in VECTORS:
            value = [value]
        return self.constant(_numbers(repr(value), value, dtype))

    def _dtype_of(self, operand: Operand | None) -> str | None:
        """Return an operand's element type; of a new node, what its schema says."""
        while isinstance(operand, DraftOutput):
            node = operand.node
            if node.op_type in PREDICATES:
                return None
            if node.op_type == "Cast":
                code = node.attributes["to"].value
                return dtype_name(code) if isinstance(code, int) else None
            schema = self._schema(node.op_type, node.domain)
            if schema is None:
                operand = next((item for item in node.inputs if item is not None), None)
                continue
            source = schema.typed_by[min(operand.index, len(schema.typed_by) - 1)]
            if not isinstance(source, int):
                return None if source == "bool" else source
            operand = node.inputs[source] if source < len(node.inputs) else None
        if isinstance(operand, DraftConstant):
            return operand.tensor.dtype
        return dtype_of(operand)

    def owns(self, item: object) -> bool:
        """Tell whether *item* is a value of a graph, or was described for this match."""
        if isinstance(item, DraftOutput):
            return item.node in self._own and 0 <= item.index < item.node.output_count
        return isinstance(item, Value) or (isinstance(item, DraftConstant) and item in self._own)

    def _known_attributes(
        self, attributes: Mapping[str, object], kinds: Mapping[str, str]
    ) -> Mapping[str, Attribute]:
        """Turn values into attributes. Nodes that carry the same attributes share one mapping."""
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
        """Return the bound mapping that *attributes* is a copy of; None if it is no copy."""
        for bound in self.match.attributes.values():
            if len(bound) == len(attributes) and all(
                attributes.get(name) is attribute for name, attribute in bound.items()
            ):
                return bound
        return None

    def constant(
        self, data: NDArray[Any] | np.generic | Tensor, *, is_shared: bool = False
    ) -> DraftConstant:
        """Describe a constant of exactly this element type, shape and data.

        Args:
            data: What it holds.
            is_shared: Whether an equal one that was made so for another match may take its place.

        Raises:
            TypeError: No tensor can hold it.
        """
        tensor = data if isinstance(data, Tensor) else as_tensor(data)
        return self._keep(DraftConstant(tensor, is_shared=is_shared))

    def evaluate(self, node: Node) -> tuple[NDArray[Any], ...] | None:
        """Compute a node whose inputs are all constant with onnx's reference evaluator.

        None if an input is not constant, or if the evaluator cannot compute it.
        """
        arrays = []
        for value in node.inputs:
            tensor = None if value is None else value.constant
            if value is not None and tensor is None:
                return None
            arrays.append(None if tensor is None else tensor.numpy())
        return self.graph.model.codec.evaluate(node, arrays)

    def _schema(self, op_type: str, domain: str) -> OpSchema | None:
        """Return the schema in force; None if the operator of a foreign domain has none.

        A domain that the model does not import yet gets the operator's newest schema.
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


# The text of replacements: calls of the builder over captured names, parsed and never executed.
#
# To read a text compiles it: each part of it makes its own calls when a match comes. The grammar is
# that of patterns; attribute values and ``const(…)`` take expressions over the captured names.


class _Making(NamedTuple):
    """One match, and what was made for it of the parts of a text.

    Attributes:
        match: The match.
        build: Makes nodes and constants.
        bound: What each name of an expression stands for.
        nodes: The nodes that were made.
        constants: The constants that were made; one part is one constant for each element type.
        there: Of which parts all that they need took part in the match, as far as it was asked.
    """

    match: Match
    build: GraphBuilder
    bound: Mapping[str, Bound]
    nodes: dict[NodeCall, DraftNode]
    constants: dict[tuple[Computed, np.dtype[Any]], DraftConstant]
    there: dict[TextPart, bool]

    def value(self, expression: Expression) -> object:
        """Compute an expression.

        Raises:
            BuildError: It has no value here.
        """
        try:
            return expression.value(self.bound)
        except (UnknownFactError, ValueError) as error:
            raise BuildError(f"{expression.text!r} cannot be computed: {error}") from error


Wanted: TypeAlias = "Callable[[], str | None]"
"""Returns the element type that something has to have; None if that is not known."""


class TextPart(ABC):
    """A part of a text; one object makes one thing."""

    @property
    def parts(self) -> Sequence[TextPart | None]:
        """What it is made of."""
        return ()

    @property
    def needs(self) -> frozenset[str]:
        """The names that must have taken part in the match, but for those of its parts."""
        return frozenset()

    def is_there(self, making: _Making) -> bool:
        """Tell whether all that it needs took part in the match."""
        if self not in making.there:
            there = (part is None or part.is_there(making) for part in self.parts)
            enough = any if isinstance(self, Either) else all
            making.there[self] = self.needs <= making.bound.keys() and enough(there)
        return making.there[self]

    def read(self, making: _Making) -> Sequence[Value | TextPart | None]:
        """Return the inputs that it stands for as an argument; parts are still to be made."""
        del making
        return (self,)

    @abstractmethod
    def made(self, making: _Making, wanted: Wanted) -> Operand:
        """Make it.

        Raises:
            BuildError: It cannot be made of this match.
        """


@dataclass(frozen=True, eq=False)
class Captured(TextPart):
    """The value of a captured name; if it *is_several*, the inputs that ``*name`` is bound to."""

    name: str
    is_several: bool = False

    @property
    def needs(self) -> frozenset[str]:
        """The name."""
        return frozenset({self.name})

    def read(self, making: _Making) -> Sequence[Value]:
        """Return what is there."""
        match = making.match
        if self.is_several and self.name in match.runs:
            return match.runs[self.name].values
        if self.is_several or self.name not in match.bindings:
            name = f"*{self.name}" if self.is_several else repr(self.name)
            raise BuildError(f"{name} took no part in the match")
        return (match.bindings[self.name],)

    def made(self, making: _Making, wanted: Wanted) -> Value:
        """Return the value."""
        del wanted
        return self.read(making)[0]


@dataclass(frozen=True, eq=False)
class Computed(TextPart):
    """A constant: a number, or what an expression computes."""

    expression: Expression

    @property
    def needs(self) -> frozenset[str]:
        """The names that the expression needs."""
        return self.expression.needed

    def made(self, making: _Making, wanted: Wanted) -> DraftConstant:
        """Compute it; a number has the type that is *wanted*, an array that of a constant in it."""
        text, value = self.expression.text, making.value(self.expression)
        items = value if isinstance(value, (list, tuple)) else [value]
        if isinstance(value, (np.ndarray, np.generic)):
            array, bindings = np.asarray(value), making.match.bindings
            dtype: str | None = ArrayTensor(array).dtype
            if not any(dtype == dtype_of(bindings.get(name)) for name in self.expression.names):
                what = f"has the element type {dtype}, but none of its constants has"
                raise BuildError(f"{text!r} {what}")
        elif not all(isinstance(item, (bool, int, float)) for item in items):
            raise BuildError(f"{text!r} is no number and no array")
        elif (dtype := wanted()) is None:
            raise BuildError(f"the element type of {text!r} is not known")
        else:
            array = _numbers(text, value, dtype)
        key = (self, array.dtype)
        if key not in making.constants:
            is_shared = self.expression.says_target
            making.constants[key] = making.build.constant(array, is_shared=is_shared)
        return making.constants[key]


@dataclass(frozen=True, eq=False)
class NodeCall(TextPart):
    """A node that a text describes; one object is one node.

    Attributes:
        op_type: The operator; "" if a variable stands for it.
        domain: The operator's domain.
        args: The inputs; None is an omitted one.
        attributes: The attributes, as expressions.
        carried: Names of bound attributes (``**attrs``) that the node gets.
        variable: Name of the operator variable, or "".
        output_count: How many outputs it has at least.
    """

    op_type: str
    domain: str
    args: tuple[TextPart | None, ...]
    attributes: Mapping[str, Expression]
    carried: tuple[str, ...]
    variable: str = ""
    output_count: int = 1

    @property
    def parts(self) -> Sequence[TextPart | None]:
        """The inputs."""
        return self.args

    @cached_property
    def needs(self) -> frozenset[str]:
        """The operator and the attributes."""
        needed = (expression.needed for expression in self.attributes.values())
        return frozenset({self.variable, *self.carried} - {""}).union(*needed)

    @property
    def stated(self) -> list[str]:
        """The attributes that it is given: ``dilations=None`` leaves one of ``**attrs`` out."""
        return [name for name, value in self.attributes.items() if value.text != "None"]

    def spelled_for(self, schema: OpSchema) -> tuple[list[str], int]:
        """Return the names of its attributes, and its number of inputs, as an opset has them."""
        names, slots = self.stated, {n for n, arg in enumerate(self.args) if arg is not None}
        for parameter in () if self.domain else MOVED.get(self.op_type, ()):
            slot, name = parameter.slot, parameter.attribute
            if name in schema.attributes and slot in slots and slot >= schema.max_inputs:
                slots.remove(slot)
                names.append(name)
            elif name in names and name not in schema.attributes:
                names.remove(name)
                slots.add(slot)
        return names, max(slots, default=-1) + 1

    def made(self, making: _Making, wanted: Wanted) -> Operand:
        """Make the node; of a Cast to the type that is there already, only what it reads."""
        source = self.args[0] if (self.op_type, self.domain) == ("Cast", "") else None
        if isinstance(source, Captured) and "to" in self.attributes:
            dtype = dtype_of(making.match.bindings.get(source.name))
            to = making.value(self.attributes["to"])
            if dtype is not None and to in {dtype, DTYPE_CODES[dtype]}:
                return source.made(making, wanted)
        return DraftOutput(self.node(making, wanted))

    def node(self, making: _Making, wanted: Wanted) -> DraftNode:
        """Make the node, once; its first output is of the type that is *wanted*."""
        if self in making.nodes:
            return making.nodes[self]
        match, dtype_at = making.match, making.build.dtype_at
        items = [item for arg in self.args for item in (arg.read(making) if arg else (None,))]
        if self.variable and self.variable not in match.operators:
            raise BuildError(f"the operator {self.variable!r} took no part in the match")
        named = OpName(self.op_type, self.domain)
        op = match.operators[self.variable] if self.variable else named
        first = wanted()
        read: list[Operand | None] = [i if isinstance(i, Value) else None for i in items]
        for is_number in (False, True):  # numbers come last, since all others may type them
            for index, item in enumerate(items):
                if isinstance(item, TextPart) and isinstance(item, Computed) is is_number:
                    read[index] = item.made(making, partial(dtype_at, op, index, read, first))
        attributes: dict[str, object] = {}
        for name in self.carried:
            attributes |= match.attributes.get(name, {})
        attributes |= {name: making.value(each) for name, each in self.attributes.items()}
        node = making.build.node(op, op.domain, read, attributes, self.output_count)
        making.nodes[self] = node
        return node


@dataclass(frozen=True, eq=False)
class CallOutput(TextPart):
    """One output of a node that a text describes."""

    call: NodeCall
    number: int

    @property
    def parts(self) -> Sequence[TextPart]:
        """The node."""
        return (self.call,)

    def made(self, making: _Making, wanted: Wanted) -> DraftOutput:
        """Make the node, if it was not made before, with so many outputs."""
        node = self.call.node(making, (lambda: None) if self.number else wanted)
        return making.build.output(node, self.number)


@dataclass(frozen=True, eq=False)
class Either(TextPart):
    """A part, or another one where a name that the first needs took no part in the match.

    Attributes:
        first: What is taken if all that it needs is there.
        otherwise: What is taken if not; None, in an argument, is an omitted input.
    """

    first: TextPart
    otherwise: TextPart | None

    @property
    def parts(self) -> Sequence[TextPart | None]:
        """Both."""
        return (self.first, self.otherwise)

    def read(self, making: _Making) -> Sequence[Value | TextPart | None]:
        """Return the inputs that the one stands for which is taken."""
        chosen = self._chosen(making)
        return (None,) if chosen is None else chosen.read(making)

    def made(self, making: _Making, wanted: Wanted) -> Operand:
        """Make the one that is taken."""
        chosen = self._chosen(making)
        assert chosen is not None  # noqa: S101  # only of an argument
        return chosen.made(making, wanted)

    def _chosen(self, making: _Making) -> TextPart | None:
        return self.first if self.first.is_there(making) else self.otherwise


def _all_parts(roots: Iterable[TextPart]) -> tuple[TextPart, ...]:
    """List *roots* and what they are made of, each once, wholes before their parts."""
    parts: dict[TextPart, None] = {}
    pending = deque[TextPart | None](roots)
    while pending:
        part = pending.popleft()
        if part is not None and part not in parts:
            parts[part] = None
            pending += part.parts
    return tuple(parts)


@dataclass(frozen=True)
class Replacement:
    """A replacement that was written as text: a rewrite function without Python code of a rule.

    Attributes:
        text: As written.
        outputs: One per output of the pattern.
        used: The captured names that it uses.
        carried: The names of bound attributes that it uses.
    """

    text: str
    outputs: tuple[TextPart, ...]
    used: frozenset[str]
    carried: frozenset[str]

    def __call__(self, match: Match, build: GraphBuilder) -> Sequence[Operand]:
        """Make the calls; a further output that nothing outside reads stays with the match."""
        operators = {name: op.op_type for name, op in match.operators.items()}
        bound = {**match.bound, **operators} if operators else match.bound
        making = _Making(match, build, bound, {}, {}, {})
        return [
            old if _is_idle(part, old, match) else part.made(making, partial(dtype_of, old))
            for part, old in zip(self.outputs, match.outputs, strict=True)
        ]

    @cached_property
    def parts(self) -> tuple[TextPart, ...]:
        """All parts, each once, wholes before their parts."""
        return _all_parts(self.outputs)

    @property
    def expressions(self) -> Iterator[Expression]:
        """Its constants and attributes."""
        yield from (part.expression for part in self.parts if isinstance(part, Computed))
        yield from (value for call in self.calls for value in call.attributes.values())

    @cached_property
    def calls(self) -> tuple[NodeCall, ...]:
        """The calls that it may make, each once."""
        return tuple(part for part in self.parts if isinstance(part, NodeCall))


def _is_idle(part: TextPart, old: Value, match: Match) -> bool:
    """Tell whether *old* need not become *part*, an output that only nodes of the match read."""
    if not isinstance(part, CallOutput) or old.returned_by or old.producer is match.nodes[-1]:
        return False
    return all(node in match.nodes for node, _ in old.iter_uses())


def parse_replacement(text: str, pattern: DFPattern, schemas: SchemaLibrary) -> Replacement:
    """Read the text of a replacement.

    Args:
        text: Lines ``name = expression``, then one expression, or several separated by commas.
        pattern: Binds the names.
        schemas: The standard operators.

    Raises:
        PatternSyntaxError: With line, column and, if possible, what was meant.
    """
    reader = _Reader(pattern, schemas)
    outputs = reader.read(text)
    return Replacement(text, outputs, frozenset(reader.used), frozenset(reader.carried))


class _Reader(TextReader[tuple[TextPart, ...]]):
    what = "replacement"
    side = "expression"
    result = "what takes the match's place"

    def __init__(self, pattern: DFPattern, schemas: SchemaLibrary) -> None:
        super().__init__(schemas)
        self.names = bound_names(pattern)
        self.attribute_names = attribute_names(pattern)
        self.captures = captures_of(pattern)
        self.operators = operators_of(pattern)
        self.variadic = variadic_names(pattern)
        self.assigned: dict[str, TextPart] = {}
        self.used: set[str] = set()
        self.carried: set[str] = set()

    def conclude(self, last: ast.expr) -> tuple[TextPart, ...]:
        return tuple(map(self._part, last.elts if isinstance(last, ast.Tuple) else [last]))

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        part = self._part(value)
        if not isinstance(target, ast.Tuple):
            self._define(target, part)
            return
        if not isinstance(part, NodeCall):
            raise wrong(target, "only a new node has several outputs to name")
        if isinstance(value, ast.Call) and not read_word(target.elts[-1]):
            last = self._output_of(part, len(target.elts) - 1, target)
            part = replace(part, output_count=last.number + 1)
        for index, item in enumerate(target.elts):
            if read_word(item):
                self._define(item, self._output_of(part, index, item))

    def _define(self, target: ast.expr, part: TextPart) -> None:
        name = read_word(target)
        taken = (self.assigned, self.names, self.op_types, self.operators)
        if not name or any(name in names for names in taken):
            raise wrong(target, f"{name or '_'!r} has a meaning already")
        self.assigned[name] = part

    def _part(self, node: ast.expr) -> TextPart:  # noqa: PLR0911  # a case per kind
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return Computed(self._expression(node))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
                return Computed(self._expression(node))
            case ast.List():
                return Computed(self._expression(node))
            case ast.Subscript():
                return self._output(node)
            case ast.BoolOp(op=ast.Or()):
                return self._either(node.values, self._part)
            case ast.Call(func=ast.Name(id="const"), args=[expression], keywords=[]):
                return Computed(self._expression(expression))
            case ast.Call():
                return self._node(self._op(node.func), node.args, node, node.keywords)
            case _ if (operation := signed(node)) is not None:
                return self._node(is_op(operation[0]), operation[1], node)
            case _:
                raise wrong(node, f"{ast.unparse(node)!r} is not a value")

    def _name(self, node: ast.Name) -> TextPart:
        if node.id in self.assigned:
            return self.assigned[node.id]
        if node.id in self.captures:
            what = f"{node.id!r} is the attribute {self.captures[node.id]!r}, not a value"
            raise wrong(node, what, f"const({node.id}) makes a constant of it")
        if node.id in self.variadic:
            what = f"{node.id!r} is several inputs, not one value"
            raise wrong(node, what, f"write *{node.id}, as an argument of a node")
        if node.id in self.operators:
            raise wrong(node, f"the operator {node.id!r} needs arguments", f"write {node.id}(…)")
        if node.id in self.names:
            self.used.add(node.id)
            return Captured(node.id)
        hint = did_you_mean(node.id, sorted(self.names | self.assigned.keys()))
        raise wrong(node, f"uses the name {node.id!r}, which the pattern does not bind", hint)

    def _output(self, node: ast.Subscript) -> TextPart:
        part = self._part(node.value)
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(part, NodeCall) or type(index) is not int:
            raise wrong(node, "only the outputs of a new node are chosen by number")
        return self._output_of(part, index, node)

    def _output_of(self, node: NodeCall, index: int, at: ast.expr) -> CallOutput:
        self.check_output((OpName(node.op_type, node.domain),), index, at)
        return CallOutput(node, index)

    def _op(self, node: ast.expr) -> OpPattern:
        if isinstance(node, ast.Name) and node.id in self.operators:
            return self.operators[node.id]
        if not isinstance(node, ast.Name):
            return self.foreign_op(node)
        if node.id not in self.op_types:
            raise self.unknown_op(node, ["const"])
        return is_op(node.id)

    def _node(
        self,
        op: OpPattern,
        args: Sequence[ast.expr],
        node: ast.expr,
        keywords: Sequence[ast.keyword] = (),
    ) -> NodeCall:
        parts = tuple(map(self._argument, args))
        attributes: dict[str, Expression] = {}
        carried: list[str] = []
        for keyword in keywords:
            if keyword.arg is None:
                carried.append(self._carried(keyword.value))
            elif keyword.arg in attributes:
                raise wrong(keyword, f"the attribute {keyword.arg!r} is given twice")
            else:
                attributes[keyword.arg] = self._expression(keyword.value)
                stated = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                is_dtype = keyword.arg in DTYPE_ATTRIBUTES and isinstance(stated, str)
                if is_dtype and stated not in DTYPE_CODES:
                    raise wrong(keyword.value, *unknown_dtype(str(stated)))
        named = [choice for choice in op.choices if isinstance(choice, OpName)]
        one = OpName("") if op.name else named[0]
        call = NodeCall(one.op_type, one.domain, parts, attributes, tuple(carried), op.name)
        for choice in named:
            self._check_against_schema(call, choice, node)
        return call

    def _either(
        self, items: Sequence[ast.expr], read_last: Callable[[ast.expr], TextPart | None]
    ) -> Either:
        """Read ``bias or 0``; what comes last may be None if that is an argument of a node."""
        item, *others = items
        first = self._part(item)
        if not any(part.needs for part in _all_parts([first])):
            text = ast.unparse(item)
            raise wrong(item, f"{text!r} is always there, so 'or' has no effect")
        is_last = len(others) == 1
        return Either(first, read_last(others[0]) if is_last else self._either(others, read_last))

    def _argument(self, node: ast.expr) -> TextPart | None:
        """Read an argument of a node: also ``*name``, ``optional(name)``, or None."""
        if isinstance(node, ast.Constant) and node.value is None:
            return None
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return self._either(node.values, self._argument)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "optional":
            part = self._part(node.args[0]) if len(node.args) == 1 and not node.keywords else None
            if not isinstance(part, Captured):
                raise wrong(node, "optional takes a name of the pattern here", "optional(bias)")
            return Either(part, None)
        if not isinstance(node, ast.Starred):
            return self._part(node)
        name = read_word(node.value)
        if name not in self.variadic:
            hint = did_you_mean(name, sorted(self.variadic))
            raise wrong(node, f"the pattern binds no *{name or '…'}", hint)
        self.used.add(name)
        return Captured(name, is_several=True)

    def _carried(self, node: ast.expr) -> str:
        name = read_word(node)
        if name not in self.attribute_names:
            hint = did_you_mean(name, sorted(self.attribute_names))
            raise wrong(node, f"no attributes are bound to {name!r}", hint)
        self.carried.add(name)
        return name

    def _expression(self, node: ast.expr) -> Expression:
        expression = Expression(ast.unparse(node), "replacement", self.captures, node)
        expression.check_names(frozenset(self.names | self.operators.keys()))
        self.used |= expression.names
        return expression

    def _check_against_schema(self, call: NodeCall, op: OpName, node: ast.expr) -> None:
        """Refuse what no opset version of the operator allows."""
        attributes = self.schemas.attributes_of(op.op_type, op.domain)
        for name in call.stated:
            if attributes is not None and name not in attributes:
                hint = did_you_mean(name, sorted(attributes))
                raise wrong(node, f"{op.op_type} has no attribute {name!r}", hint)
        versions: list[OpSchema] = list(self.schemas.versions(op.op_type, op.domain))
        if not versions:
            return
        most = max(schema.max_inputs for schema in versions)
        fewest = min(schema.min_inputs for schema in versions)
        count = sum(not (isinstance(arg, Captured) and arg.is_several) for arg in call.args)
        if count > most or (count == len(call.args) < fewest):
            wanted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise wrong(node, f"{op.op_type} takes {wanted} inputs, not {count}")
        needed = frozenset.intersection(*(schema.required_attributes for schema in versions))
        missing = sorted(needed - set(call.stated))
        if missing and not call.carried:
            raise wrong(node, f"{op.op_type} needs the attribute {missing[0]!r}")


def dtype_of(value: Value | None) -> str | None:
    """Return the element type of a value; None if it is not known."""
    stated = None if value is None else value.known_type()
    return None if stated is None else stated.dtype


def _numbers(text: str, value: object, dtype: str) -> NDArray[Any]:
    """Make an array of the element type *dtype*, which must hold the numbers."""
    try:
        with np.errstate(all="ignore"):
            wanted = np.asarray(value)
            array = wanted.astype(np.dtype(dtype))
    except (TypeError, OverflowError) as error:
        raise BuildError(f"{text!r} cannot be {dtype}") from error
    is_exact = array.dtype.kind == "f" or np.array_equal(array, wanted)
    if not is_exact or not np.array_equal(np.isinf(array), np.isinf(wanted)):
        raise BuildError(f"{dtype} cannot hold {text!r}")
    return array


# Ask a rule what takes the place of one match.


def draft_replacement(match: Match, function: RewriteFunction) -> Draft | Rejection | None:
    """Describe what takes the place of *match*.

    Returns:
        The draft, or why it cannot be made here, or None if the rule leaves the match as it is.

    Raises:
        PassError: The rule's function raises an error, or returns something that is no answer.
    """
    builder = GraphBuilder(match)
    draft = builder.draft
    try:
        answer = _ask(match, function, builder)
    except BuildError as error:
        return match.reject(str(error))
    if answer is None or isinstance(answer, Rejection):
        return answer
    draft.outputs = answer
    draft.drop_unread()
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
        reason = " ".join(str(error).split())
        failed = f"failed {_where(match)} with {type(error).__name__}: {reason}"
        raise PassError(f"{_label(match.rule)} {failed}") from error
    if answer is None or isinstance(answer, Rejection):
        return answer
    items: Sequence[object] = answer if isinstance(answer, (list, tuple)) else [answer]
    kinds = (Value, DraftOutput, DraftConstant)
    operands = tuple(item for item in items if isinstance(item, kinds) and builder.owns(item))
    if len(operands) != len(items) or len(operands) != len(match.outputs):
        raise PassError(
            f"{_label(match.rule)} answered {answer!r} {_where(match)}",
            hint=f"return {len(match.outputs)} value(s), None, or match.reject(reason)",
        )
    return operands


def _label(rule: Rule) -> str:
    return f"the function of the rule {rule.qualified_name!r}"


def _where(match: Match) -> str:
    return f"at {match.root.op_type} {match.root.label!r}"


def operands_of(draft: Draft) -> Sequence[Value]:
    """List the existing values that *draft* reads or returns."""
    nodes = [part for part in draft.parts if isinstance(part, DraftNode)]
    read = [operand for node in nodes for operand in node.read]
    return [operand for operand in [*read, *draft.outputs] if isinstance(operand, Value)]


# Functions that look at nodes one by one, without a pattern.


AnyFunction = TypeVar("AnyFunction")


@dataclass(frozen=True)
class Nodewise:
    """What a function without a pattern looks at.

    Attributes:
        operators: The operators (domain, type) of its nodes; None for all.
        reach: How many levels of nodes above its node the answer may depend on.
        unread: Whether it also looks at nodes that nobody reads.
        concerns: Tells cheaply of a node whether it may do something there; None if nothing does.
            A class may have a method of that name instead, which may remember the nodes that it
            was asked about; the function must not rely on having been asked.
    """

    operators: frozenset[tuple[str, str]] | None
    reach: int
    unread: bool
    concerns: Callable[[Node], bool] | None


_NODEWISE = "dpl_nodewise"
_FAR = "dpl_far_sighted"


def nodewise(
    *op_types: str,
    reach: int = 1,
    domain: str = "",
    unread: bool = False,
    concerns: Callable[[Node], bool] | None = None,
) -> Callable[[AnyFunction], AnyFunction]:
    """Mark a rewrite function, or a class of them, as one that needs no pattern.

    Args:
        op_types: The operators whose nodes it looks at; none for all.
        reach: How many levels of nodes above its node the answer may depend on.
        domain: The operators' domain.
        unread: Whether it also looks at nodes that nobody reads. Such a match has no outputs, so
            the function can only take the node out. Most functions skip such nodes.
        concerns: Tells cheaply of a node whether the function may do something there.
    """
    operators = frozenset((domain, name) for name in op_types)

    def mark(function: AnyFunction) -> AnyFunction:
        setattr(function, _NODEWISE, Nodewise(operators or None, reach, unread, concerns))
        return function

    return mark


def nodewise_of(function: object) -> Nodewise | None:
    """Return how *function* was marked by :func:`nodewise`; None if it was not."""
    return getattr(function, _NODEWISE, None)


def far_sighted(function: AnyFunction) -> AnyFunction:
    """Mark a rewrite function that may look at anything above the root, however far away."""
    setattr(function, _FAR, True)
    return function


def whole_node(rule: RewriteRule, node: Node) -> Match | None:
    """Match *node* by itself, with the outputs that somebody reads.

    None if nobody reads any output, unless the rule is for such nodes.
    """
    read = tuple(output for output in node.outputs if output is not None and is_read(output))
    if not read and not (rule.nodewise is not None and rule.nodewise.unread):
        return None
    return Match(rule, node, (node,), {}, (), {}, read)


# Attributes of the nodes that a rewrite removes.


def check_attributes(pattern: DFPattern, carried: AbstractSet[str]) -> None:
    """Refuse a pattern that binds attributes which the replacement does not carry.

    Args:
        pattern: What is replaced.
        carried: Names of bound attributes that the replacement uses.

    Raises:
        PatternSyntaxError: Names the attributes, and says what to write.
    """
    for part in taken_parts(pattern):
        name = part.attributes_name if isinstance(part, CallPattern) else ""
        if name not in {"", WAIVED, *carried}:
            raise wrong_part(
                part,
                f"**{name} is bound and not carried into the replacement",
                "write **_ if those attributes may be lost",
            )


def possible_attributes(op: OpName, opsets: Opsets, schemas: SchemaLibrary) -> dict[str, int]:
    """Return the attributes that *op* has in some of *opsets*, and since when each is there."""
    versions = list(schemas.versions(op.op_type, op.domain))
    if not versions:
        stated = schemas.attributes_of(op.op_type, op.domain)
        return dict.fromkeys({"attributes of its own"} if stated is None else stated, 0)
    if op.domain:
        return {name: 0 for schema in versions for name in schema.attributes}
    read = {item.attribute for item in MOVED.get(op.op_type, ())}
    opsets = max(opsets[0] or FIRST_OPSET, FIRST_OPSET), opsets[1]  # older ones: as they were then
    return {
        name: schema.since
        for schema in reversed(in_force(versions, opsets))
        for name in schema.attributes
        if name not in read
    }


def in_force(versions: Sequence[OpSchema], opsets: Opsets) -> list[OpSchema]:
    """Return the versions, oldest first, that are in force at some opset that a rule claims."""
    first, last = opsets[0] or FIRST_OPSET, opsets[1]
    older = [schema for schema in versions if schema.since <= first]
    newer = [s for s in versions if s.since > first and (last is None or s.since <= last)]
    return older[-1:] + newer


# Rewrite rules.


_REACH_OF_SHAPES = 3
"""How many nodes above a value shape arithmetic is usually spread over."""


@keys("... replacement=becomes")
@dataclass(frozen=True)
class RewriteRule(Rule):
    """A kind of subgraph, and what to put in its place.

    Attributes:
        replacement: What takes its place: a text that was parsed, or a function that describes it
            (:data:`RewriteFunction`), as TVM's ``rewrite_call`` callbacks do.
        once: Whether the rule skips nodes that it made itself (Relay's ``rewrite_once``).
        escape: What to do if something outside reads an inner value. ``keep``: the outputs are
            replaced, and what is still read stays, as in PDL and TVM. ``refuse``: nothing is done,
            which is the default where the replacement would do work again that stays
            (`repeats_work`).
        excepted: For which numbers the result may be another one: those that are none (``nan``) or
            are infinite (``inf``), zeros that have a sign (``zero_sign``), and those at the ends of
            their type (``overflow``).
    """

    kind = "rewrite"
    target: str = field(default="", init=False)
    escape: RewriteEscapePolicy | None = field(default=None, kw_only=True)  # type: ignore[assignment]  # never None once made
    order: OrderPolicy = field(default="outermost", init=False)
    replacement: RewriteFunction
    once: bool = field(default=False, kw_only=True)
    excepted: tuple[Exempt, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            PatternSyntaxError: A condition names something unbound, or the replacement has more
                or fewer outputs than the pattern.
        """
        super().__post_init__()
        if self.escape is None:
            usual = "refuse" if self.repeats_work else "keep"
            object.__setattr__(self, "escape", usual)
        if not callable(self.replacement):
            raise PatternSyntaxError(
                f"the replacement of the rule {self.name!r} is {self.replacement!r}, no function",
                hint='lambda match, build: build.op("Neg", match["x"]) is one; texts are for YAML',
            )
        if not isinstance(self.replacement, Replacement):
            return
        outputs = self.pattern.outputs if isinstance(self.pattern, OutputsPattern) else ()
        wanted, given = len(outputs) or 1, len(self.replacement.outputs)
        if wanted != given:
            raise PatternSyntaxError(
                f"the pattern has {wanted} output(s) and the replacement {given}"
            )
        read = {part.name for part in self.replacement.parts if isinstance(part, Captured)}
        pairs = zip(outputs or (self.pattern,), self.replacement.outputs, strict=True)
        for output, part in pairs:
            is_kept = isinstance(part, Captured) and part.name == output.name
            if output.name in read and not is_kept:
                what = f"the replacement reads {output.name!r}, which it replaces"
                raise PatternSyntaxError(what)

    def holds_for(self, graph: Graph) -> bool:
        """Tell whether the opset of *graph* is one that the rule holds for.

        Before opset 7 operators broadcast in another way, so a rule must name such opsets.
        """
        version = graph.opset_imports.get("", 0)
        if self.opsets[0] is None and 0 < version < FIRST_OPSET:
            return False
        return super().holds_for(graph)

    @property
    def repeats_work(self) -> bool:
        """Whether a replacement does more than what makes the outputs alone did.

        Then inner nodes that stay do the work once, and the replacement does it again. It does not
        if it is one node of the operator that makes the output now, or of one that is light. Nobody
        knows what a function makes.
        """
        if not isinstance(self.replacement, Replacement):
            return True
        calls = self.replacement.calls
        if not calls:
            return False
        if len(calls) > 1 or isinstance(self.pattern, OutputsPattern):
            return True
        if calls[0].variable and isinstance(self.pattern, CallPattern):
            return calls[0].variable != self.pattern.op.name
        op = OpName(calls[0].op_type, calls[0].domain)
        is_light = not op.domain and op.op_type in LIGHT
        return not is_light and set(_root_operators(self.pattern)) != {op}

    @property
    def text(self) -> Replacement | None:
        """The replacement, if it is a text."""
        return self.replacement if isinstance(self.replacement, Replacement) else None

    @property
    def has_code(self) -> bool:
        """Whether a Python function looks at its matches."""
        return self.text is None or self.check is not None

    @property
    def keeps_defaults(self) -> bool:
        """Whether attributes that the pattern does not name must have their default.

        A replacement that is a text would lose them; a function may read them.
        """
        return self.text is not None

    @property
    def becomes(self) -> str:
        """What takes a match's place, for a reader."""
        if isinstance(self.replacement, Replacement):
            return self.replacement.text
        return f"what {getattr(self.replacement, '__name__', 'a function')} makes"

    @property
    def nodewise(self) -> Nodewise | None:
        """The nodes that its function looks at one by one; None if the rule looks for a pattern."""
        return None if self.text is not None else nodewise_of(self.replacement)

    @property
    def is_nodewise(self) -> bool:
        """Whether a function looks at nodes one by one, and the pattern says nothing."""
        return self.nodewise is not None

    @property
    def producers_first(self) -> bool:
        """Whether the search goes in program order; functions without a pattern always do."""
        return self.is_nodewise or super().producers_first

    @property
    def heads(self) -> frozenset[tuple[str, str]] | None:
        """The operators (domain, type) that its matches are rooted in; None for all."""
        return self.nodewise.operators if self.nodewise else self.demand.heads

    @cached_property
    def reach(self) -> int | None:
        """How many nodes above its root a match depends on; None if there is no such number."""
        if hasattr(self.replacement, _FAR):
            return None
        reach = self.nodewise.reach if self.nodewise else reach_of(self.pattern)
        return max(reach, _REACH_OF_SHAPES) if reach and self.follows_shapes else reach

    @cached_property
    def follows_shapes(self) -> bool:
        """Whether it asks what the nodes above a match say of sizes."""
        if self.nodewise is not None:
            return self.nodewise.reach > 1
        asked = [*self.where, *(self.text.expressions if self.text else ())]
        return any(expression.calls(SHAPE_FUNCTIONS) for expression in asked)

    @cached_property
    def inner_operators(self) -> frozenset[tuple[str, str]] | None:
        """The operators of the nodes that it looks at besides the root of a match; None for any."""
        is_open = self.is_nodewise or self.follows_shapes
        return None if is_open else self.matcher.program.inner_operators

    @cached_property
    def largest_match(self) -> int:
        """The most nodes that a match can have, not counting chains, regions and Identity nodes."""
        return sum(isinstance(part, CallPattern) for part in all_parts(self.pattern))

    @cached_property
    def counts_uses(self) -> bool:
        """Whether a match may depend on how many uses the values have that it only reads."""
        if self.has_code or any(condition.asks_for("uses") for condition in self.where):
            return True
        return any(isinstance(p, EdgePattern) and p.only for p in all_parts(self.pattern))

    def instance(self) -> RewriteFunction:
        """Return the function for one run over one model.

        If the replacement is a class, each run gets a new object, which may remember things.
        """
        function = self.replacement
        return function() if isinstance(function, type) else function


def _root_operators(pattern: DFPattern) -> list[OpName]:
    """Return the operators that make the output of a pattern; none if it does not say all."""
    match pattern:
        case OrPattern(left, right):
            sides = _root_operators(left), _root_operators(right)
            return [*sides[0], *sides[1]] if all(sides) else []
        case CallPattern(op=callee):
            operators = [each for each in callee.choices if isinstance(each, OpName)]
            return operators if len(operators) == len(callee.choices) else []
        case _:
            return []
