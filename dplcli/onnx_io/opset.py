"""Raise a model to a newer version of the standard operator set, or say why that cannot be done.

This works on the message, before the IR is built over it. Whatever does not change is not even
copied: nodes, weights, external data, metadata and fields that the installed onnx does not know.
Every node is looked at by itself, in the main graph, in the bodies of control flow and in
functions: if the schema of its operator is the same at both opsets, or changed in ways that keep
the meaning, it stays; otherwise an adapter says what takes its place, which keeps the names of its
outputs, its own name and its metadata; otherwise the model is refused, and is as it was.

onnx has a converter of its own, which is right about most operators but not about all of them. It
takes an attribute that refers to a function's for absent, and silently drops functions, sparse
initializers and metadata. ``benchmarks/opset_raising.py`` compares the two.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)
from onnx.helper import make_attribute

from dplcli.errors import OpsetError, UsageError
from dplcli.ir import TensorType
from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.ir.operators import FIRST_OPSET, LAST_OPSET, MOVED, REDUCTIONS
from dplcli.ir.types import DTYPE_CODES, dtype_name
from dplcli.onnx_io.convert import (
    UNREADABLE,
    OnnxSchemas,
    all_nodes,
    all_scopes,
    decode_attribute,
    graphs_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from onnx import ModelProto, OperatorSetIdProto, ValueInfoProto

    from dplcli.ir import Dim, Graph, Node

    IsGiven = Callable[[FunctionProto, str], bool]

    Key = tuple[str, str, str]


# Graphs and function bodies as their nodes see them, and the edits that are to come.


STANDARD_DOMAINS = ("", "ai.onnx")
"""The names that the standard's domain goes by."""

Body: TypeAlias = tuple[int, str]
"""Which body of which node: the node's index, the attribute's name."""


class ValueNames:
    """The names in a main graph and its bodies, or in a function; gives out unused ones.

    Args:
        root: The main graph, or the function.
    """

    def __init__(self, root: GraphProto | FunctionProto) -> None:
        self._root = root

    def is_read(self, name: str) -> bool:
        """Tell whether any node or output reads a value of this name."""
        return name in self._read

    def new(self, wanted: str) -> str:
        """Return *wanted*, or with a number behind it, for a new value or node."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    @cached_property
    def _taken(self) -> set[str]:
        scopes = [*all_scopes(self._root)]
        taken = {name for scope in scopes for name, _ in _definitions(scope)}
        return taken.union(self._read, (node.name for scope in scopes for node in scope.node))

    @cached_property
    def _read(self) -> set[str]:
        returned = (_interface(scope.output) for scope in all_scopes(self._root))
        read = (node.input for node in all_nodes(self._root))
        return set(chain(*returned, *read))


def _interface(values: Iterable[str | ValueInfoProto]) -> Iterator[str]:
    """Return the names of inputs or outputs; a function has names alone."""
    return (value if isinstance(value, str) else value.name for value in values)


@dataclass
class Scope:
    """A graph, or the body of a function, and what is to change in it.

    Attributes:
        proto: The message, which stays as it is until :meth:`apply`.
        types: Reads the main graph, whose values know their types.
        outer: The graph round it, whose values it sees; None for a main graph or a function.
        body: Which body of which node of *outer* it is.
        names: Gives out names that are free here and in all graphs that share names with it.
        function: The function that it is, or lies in, if any.
        where: What to put behind a node's name in messages: "", or " in ...".
        replaced: What to put into the places of nodes, by index.
    """

    proto: GraphProto | FunctionProto
    types: Callable[[], Graph]
    outer: Scope | None = None
    body: Body = (0, "")

    def __post_init__(self) -> None:
        proto, outer, (number, name) = self.proto, self.outer, self.body
        self.replaced: dict[int, list[NodeProto]] = {}
        self.function: FunctionProto | None = None
        self.where: str = ""
        self.names: ValueNames = ValueNames(proto) if outer is None else outer.names
        if outer is not None:
            self.function = outer.function
            self.where = f" in {name} of {node_label(outer.proto.node[number])}{outer.where}"
        elif isinstance(proto, FunctionProto):
            self.function = proto
            self.where = f" in {proto.domain}::{proto.name}"
        self._shared: dict[bytes, str] = {}
        self._initializers: list[TensorProto] = []
        self._first: list[NodeProto] = []

    def type_of(self, name: str) -> TensorType | None:
        """Return what is known about a value that is visible here."""
        values = self._defined
        if name not in values:
            return self.outer.type_of(name) if self.outer else None
        tensor = values[name]
        if tensor is not None:
            return TensorType(dtype_name(tensor.data_type), tuple(tensor.dims))
        value = None if self.function else self.graph.values.get(name)
        return None if value is None else value.known_type()

    @cached_property
    def graph(self) -> Graph:
        """The graph with the types of its values."""
        if self.outer is None:
            return self.types()
        number, name = self.body
        return self.outer.nodes[number].subgraphs[name]

    @cached_property
    def nodes(self) -> Sequence[Node]:
        """Its nodes with the types of their values."""
        return [*self.graph]

    def value_of(self, name: str) -> NDArray[Any] | None:
        """Return the value of a constant that is visible here, unless it is external data."""
        values = self._defined
        if name not in values:
            return self.outer.value_of(name) if self.outer else None
        tensor = values[name]
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return None
        try:
            array: NDArray[Any] = numpy_helper.to_array(tensor)
        except UNREADABLE:
            return None
        return array

    @cached_property
    def _defined(self) -> dict[str, TensorProto | None]:
        """What this graph itself defines, with the tensors of constants."""
        return dict(_definitions(self.proto))

    def add_constant(self, value: AttributeProto, wanted: str) -> str:
        """Return the name of a value that is always the same; equal ones are shared.

        Args:
            value: What a Constant would have; it may be what the caller of the function gives.
            wanted: What to call the value if that is free.
        """
        key = value.SerializeToString()
        if key in self._shared:
            return self._shared[key]
        name = self._shared[key] = self.names.new(wanted)
        if isinstance(self.proto, GraphProto) and not value.ref_attr_name:
            value.t.name = name
            self._initializers.append(value.t)
        else:
            self._first.append(NodeProto(op_type="Constant", output=[name], attribute=[value]))
        return name

    def apply(self) -> None:
        """Edit the message; the caller edits bodies before the graphs round them."""
        nodes = self.proto.node
        if self._first or any(len(new) != 1 for new in self.replaced.values()):
            kept = list(nodes)
            del nodes[:]
            nodes.extend(self._first)
            for number, node in enumerate(kept):
                nodes.extend(self.replaced.get(number, [node]))
        else:
            for number, (new,) in self.replaced.items():
                nodes[number].CopyFrom(new)
        if isinstance(self.proto, GraphProto):
            self.proto.initializer.extend(self._initializers)


def node_label(node: NodeProto) -> str:
    """Return how messages call a node: its operator, and its name or its first output."""
    return f"{node.op_type} {_name_of(node)!r}"


def _name_of(node: NodeProto) -> str:
    """Return the name of a node, or of its first output where it has none."""
    return node.name or next(filter(None, node.output), "")


def _definitions(proto: GraphProto | FunctionProto) -> Iterator[tuple[str, TensorProto | None]]:
    if isinstance(proto, GraphProto):
        yield from ((tensor.name, tensor) for tensor in proto.initializer)
        yield from ((sparse.values.name, None) for sparse in proto.sparse_initializer)
    yield from ((name, None) for name in _interface(proto.input))
    for node in proto.node:
        constant = _constant(node)
        yield from ((name, constant) for name in node.output)


def _constant(node: NodeProto) -> TensorProto | None:
    if node.op_type != "Constant" or node.domain not in STANDARD_DOMAINS:
        return None
    attribute = next(iter(node.attribute), None)
    if attribute is None or attribute.name != "value" or attribute.ref_attr_name:
        return None
    tensor: TensorProto = attribute.t
    return tensor


# What an adapter sees of a node, and how it says what takes the node's place.


Setting = TypeVar("Setting", int, str)
_SCHEMAS = OnnxSchemas()
_ARRAY_TYPES = {"int": "int64", "ints": "int64", "float": "float32", "floats": "float32"}
_FLOATS = {"float16", "float32", "float64"}
_FIRST_CAST_LIKE = 15
_FIRST_PLAIN_CONSTANT = 12


class NotRaisableError(Exception):  # an answer, not an error, until all are collected
    """A node cannot be raised; the message says why, without naming it.

    Attributes:
        version: The opset that it cannot be raised to, though to the one before; 0 if to none.
    """

    version = 0


@dataclass
class Site:
    """One node to be adapted to the schema of the next version of its operator.

    An adapter asks, and then says what takes the node's place by :meth:`helper` and
    :meth:`replace`; if it says nothing, the node stays as it is.

    Attributes:
        node: The node, which is not edited.
        scope: The graph or function that it is in.
        version: The opset whose schema the node is to fit.
        target: The opset that the model is raised to.
        is_given: Tells whether a function's attribute has a value at every call.
        made: What takes the node's place, each with the opset that it is written for.
    """

    node: NodeProto
    scope: Scope
    version: int
    target: int
    is_given: IsGiven
    made: list[tuple[NodeProto, int]] = field(default_factory=list)

    def attribute(self, name: str) -> AttributeProto | None:
        """Return an attribute as it stands."""
        return next((found for found in self.node.attribute if found.name == name), None)

    def setting(self, name: str, default: Setting) -> Setting:
        """Return the value of an attribute, *default* if it is not there or of another type.

        Raises:
            NotRaisableError: The value is whatever the function's caller gives.
        """
        found = self.attribute(name)
        if found is None:
            return default
        if found.ref_attr_name:
            raise NotRaisableError(
                f"its attribute {name!r} is the function's {found.ref_attr_name!r}"
            )
        value = decode_attribute(found, {}).value
        return value if isinstance(value, type(default)) else default

    def input(self, slot: int) -> str:
        """Return the name of an input, "" if there is none."""
        return self.node.input[slot] if slot < len(self.node.input) else ""

    def is_output_read(self, slot: int) -> bool:
        """Tell whether an output is there and read by anything."""
        return slot < len(self.node.output) and self.scope.names.is_read(self.node.output[slot])

    def dtype(self, slot: int) -> str | None:
        """Return the element type of an input if it is known."""
        found = self.scope.type_of(self.input(slot))
        return None if found is None else found.dtype

    def shape(self, slot: int) -> tuple[Dim, ...] | None:
        """Return the shape of an input if its rank is known."""
        found = self.scope.type_of(self.input(slot))
        return None if found is None else found.shape

    def value(self, slot: int) -> NDArray[Any] | None:
        """Return the value of an input if it is a constant in the file."""
        return self.scope.value_of(self.input(slot))

    def constant(self, array: NDArray[Any], wanted: str) -> str:
        """Return the name of a value that is always *array*."""
        return self.scope.add_constant(
            make_attribute("value", numpy_helper.from_array(array)), wanted
        )

    def as_input(self, name: str, dtype: str = "") -> str:
        """Make a value of an attribute and return its name, "" if the attribute is not there.

        An empty list counts as not there: so the older operators treat it.

        Args:
            name: The attribute.
            dtype: The element type to give it, if not that of the attribute.
        """
        found = self.attribute(name)
        if found is None:
            return ""
        schema = _SCHEMAS.find(self.node.op_type, "", self.version - 1)
        assert schema is not None  # noqa: S101  # its change is what is being adapted to
        kind = schema.attributes[name]
        if not found.ref_attr_name:
            value = decode_attribute(found, {}).value
            array = np.array(value, dtype or _ARRAY_TYPES[kind])
            return self.constant(array, name) if array.shape != (0,) else ""
        if self.target < _FIRST_PLAIN_CONSTANT:
            raise NotRaisableError(
                f"its attribute {name!r} is the function's {found.ref_attr_name!r}, which only "
                f"opset {_FIRST_PLAIN_CONSTANT} and later can turn into an input"
            )
        function = self.scope.function
        if function is None or not self.is_given(function, found.ref_attr_name):
            raise NotRaisableError(
                f"its attribute {name!r} is the function's {found.ref_attr_name!r}, which not "
                "every call gives"
            )
        reference = AttributeProto(
            name=f"value_{kind}", type=found.type, ref_attr_name=found.ref_attr_name
        )
        return self.scope.add_constant(reference, name)

    def scalar_like_input(self, name: str) -> str:
        """Make a scalar of a float attribute, with the first input's type, and return its name.

        Returns:
            "" if the attribute is not there.

        Raises:
            NotRaisableError: The type is no float, or not known and the target has no CastLike.
        """
        found = self.attribute(name)
        if found is None:
            return ""
        dtype = self.dtype(0)
        if dtype is not None and dtype not in _FLOATS:
            raise NotRaisableError(f"its input is of type {dtype}, which it did not take")
        if dtype is not None and not found.ref_attr_name:
            with np.errstate(over="ignore"):  # a bound beyond float16 is an infinite one
                return self.as_input(name, dtype)
        if self.target < _FIRST_CAST_LIKE:
            raise NotRaisableError(
                f"the type of {self.input(0)!r}, which {name!r} must have, is not known, and only "
                f"opset {_FIRST_CAST_LIKE} and later can do without"
            )
        inputs = [self.as_input(name), self.input(0)]
        return self.helper("CastLike", inputs, f"{name}_cast", version=_FIRST_CAST_LIKE)

    def helper(
        self,
        op_type: str,
        inputs: Iterable[str],
        wanted: str,
        attributes: Iterable[AttributeProto] = (),
        *,
        version: int = 0,
    ) -> str:
        """Add a new node; nodes stand in the order of the calls.

        Args:
            op_type: The operator, of the standard.
            inputs: Names of values.
            wanted: What to call its output if that is free; an output of the node is taken over.
            attributes: The attributes.
            version: The opset that the node is written for; that of the site if 0.

        Returns:
            The name of its output.
        """
        output = wanted if wanted in self.node.output else self.scope.names.new(wanted)
        name = self.node.name and self.scope.names.new(f"{self.node.name}_{op_type}")
        node = NodeProto(op_type=op_type, name=name, input=inputs, output=[output])
        node.attribute.extend(attributes)
        self.made.append((node, version or self.version))
        return output

    def replace(  # noqa: PLR0913  # all by keyword
        self,
        *,
        op_type: str = "",
        inputs: Sequence[str] = (),
        output: str = "",
        outputs: int = 0,
        without: Iterable[str] = (),
        attributes: Mapping[str, int | str | list[int]] = MappingProxyType({}),
        version: int = 0,
    ) -> str:
        """Add the node itself, changed; whatever is not named stays, unknown fields included.

        Args:
            op_type: The new operator.
            inputs: The new inputs; those at the end may be "".
            output: What to call the first output, if that is free, where the name is taken over.
            outputs: How many outputs to keep; all if 0.
            without: Attributes to drop.
            attributes: Attributes to add, or to give another value.
            version: The opset that the node is written for; that of the site if 0.

        Returns:
            The name of its first output.
        """
        node = NodeProto()
        node.CopyFrom(self.node)
        node.op_type = op_type or node.op_type
        if inputs:
            del node.input[:]
            used = len(inputs)
            while used and not inputs[used - 1]:
                used -= 1
            node.input.extend(inputs[:used])
        if output:
            node.output[0] = self.scope.names.new(output)
        del node.output[outputs or len(node.output) :]
        for number in reversed(range(len(node.attribute))):
            if node.attribute[number].name in {*without, *attributes}:
                del node.attribute[number]
        node.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
        self.made.append((node, version or self.version))
        return str(node.output[0])


# Adapters for the bumps that turned attributes into inputs and left the meaning alone.


_NONE = np.array([], np.int64)


def _to_inputs(site: Site) -> None:
    """Move what became inputs behind the first one, in the order of :data:`MOVED`."""
    names = [parameter.attribute for parameter in MOVED[site.node.op_type]]
    if any(site.attribute(name) is not None for name in names):
        moved = [site.as_input(name) for name in names]
        site.replace(inputs=[site.input(0), *moved], without=names)


def _unsqueeze_13(site: Site) -> None:
    """Move the axes; the input must be there even for an empty list."""
    axes = site.as_input("axes") or site.constant(_NONE, "axes")
    site.replace(inputs=[site.input(0), axes], without=["axes"])


def _top_k_10(site: Site) -> None:
    """Move the number of elements, which became a vector of one."""
    count = site.constant(np.array([site.setting("k", 1)], np.int64), "k")
    site.replace(inputs=[site.input(0), count], without=["k"])


def _dft_20(site: Site) -> None:
    """Move the axis, whose default changed from 1 to the last but one."""
    axis = site.as_input("axis") or site.constant(np.array(1, np.int64), "axis")
    site.replace(inputs=[site.input(0), site.input(1), axis], without=["axis"])


def _clip_11(site: Site) -> None:
    """Move the bounds, which became scalars of the input's type."""
    if site.attribute("min") is None and site.attribute("max") is None:
        return
    bounds = [site.scalar_like_input("min"), site.scalar_like_input("max")]
    site.replace(inputs=[site.input(0), *bounds], without=["min", "max"])


def _pad_11(site: Site) -> None:
    """Move the widths, and the value unless it is the default."""
    value = ""
    found = site.attribute("value")
    if found is not None and (found.ref_attr_name or found.f):
        value = site.scalar_like_input("value")
    pads = site.as_input("pads") or site.constant(_NONE, "pads")
    site.replace(inputs=[site.input(0), pads, value], without=["pads", "value"])


# Adapters for the bumps that changed what a node means, and guards where only some nodes did.


_FIRST_OPTIONAL_ROI = 13
_FIRST_ALLOWZERO = 14
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def _softmax_13(site: Site) -> None:
    """Keep normalising over all dimensions from the axis on; since 13 it is one alone.

    Where the dimensions behind the axis are all 1 that is the same. Elsewhere the input is made a
    matrix for the time being, which is how the older schema described it.
    """
    found = site.attribute("axis")
    if found is None or not found.ref_attr_name:
        axis = 1 if found is None else found.i
        if axis == -1 or _ends_at(site, axis):
            if found is None and len(site.shape(0) or ()) != axis + 1:
                site.replace(attributes={"axis": axis})
            return
    name = site.node.output[0]
    if site.target < _FIRST_ALLOWZERO and 0 in (site.shape(0) or ()):
        raise NotRaisableError(f"its input is empty, which opset {_FIRST_ALLOWZERO} is needed for")
    flat = site.helper("Flatten", [site.input(0)], f"{name}_flat", [found] if found else [])
    normal = site.replace(inputs=[flat], output=f"{name}_matrix", attributes={"axis": -1})
    shape = site.helper("Shape", [site.input(0)], f"{name}_shape")
    if site.target < _FIRST_ALLOWZERO:
        site.helper("Reshape", [normal, shape], name)
    else:
        zeros = make_attribute("allowzero", 1)
        site.helper("Reshape", [normal, shape], name, [zeros], version=_FIRST_ALLOWZERO)


def _ends_at(site: Site, axis: int) -> bool:
    """Tell whether all dimensions of the input behind *axis* are known to be 1."""
    shape = site.shape(0)
    if shape is None or not -len(shape) <= axis < len(shape):
        return False
    return all(dim == 1 for dim in shape[axis % len(shape) + 1 :])


def _resize_11(site: Site) -> None:
    """State how coordinates are computed, as the default changed.

    Before 11 the nearest element was the one before it where an axis grows and the one behind it
    where it shrinks: that is what onnxruntime does, the schema does not say.
    """
    rounding = {}
    if site.setting("mode", "nearest") == "nearest":
        scales = site.value(1)
        if scales is None:
            raise NotRaisableError(
                "which element is nearest depends on its scales, which are no constant"
            )
        if (scales >= 1).all():
            rounding["nearest_mode"] = "floor"
        elif (scales <= 1).all():
            rounding["nearest_mode"] = "ceil"
        else:
            raise NotRaisableError(
                "it grows along one axis and shrinks along another, rounding differently"
            )
    _resize_asymmetrically(site, rounding)


def _upsample_10(site: Site) -> None:
    """Make it a Resize; an axis can only grow."""
    if site.target == site.version:
        site.replace(op_type="Resize")
        return
    is_nearest = site.setting("mode", "nearest") == "nearest"
    _resize_asymmetrically(site, {"nearest_mode": "floor"} if is_nearest else {})


def _resize_asymmetrically(site: Site, rounding: dict[str, str]) -> None:
    """Make it a Resize of opset 11."""
    roi = ""
    if site.target < _FIRST_OPTIONAL_ROI:
        roi = site.constant(np.zeros(0, np.float32), "roi")
    site.replace(
        op_type="Resize",
        inputs=[site.input(0), roi, site.input(1)],
        version=11,
        attributes={"coordinate_transformation_mode": "asymmetric", **rounding},
    )


def _resize_13(site: Site) -> None:
    """Leave out the scales where there are sizes, instead of giving an empty tensor."""
    mode = site.setting("coordinate_transformation_mode", "half_pixel")
    if mode == "tf_half_pixel_for_nn":
        raise NotRaisableError(
            f"its coordinate_transformation_mode {mode!r} was taken out in opset 13"
        )
    if site.input(2) and site.input(3):
        site.replace(inputs=[site.input(0), site.input(1), "", site.input(3)])


def _dropout_10(site: Site) -> None:
    """Drop the mask: opset 10 changed its type, and opset 12 its value."""
    if site.is_output_read(1):
        raise NotRaisableError(
            "its output 'mask' is read, which became another in opsets 10 and 12"
        )
    if len(site.node.output) > 1:
        site.replace(outputs=1)


def _dropout_12(site: Site) -> None:
    """Move the ratio as well."""
    _dropout_10(site)
    ratio = site.as_input("ratio")
    if ratio:
        site.made.clear()
        site.replace(inputs=[site.input(0), ratio], outputs=1, without=["ratio"])


def _batch_normalization_9(site: Site) -> None:
    if not site.setting("spatial", 1):
        raise NotRaisableError(
            "its attribute 'spatial' is 0: per-activation statistics ended with opset 9"
        )
    if site.attribute("spatial") is not None:
        site.replace(without=["spatial"])


def _batch_normalization_14(site: Site) -> None:
    if any(site.node.output[1:]):
        raise NotRaisableError("it is in training mode, whose outputs changed in opset 14")


def _mean_variance_normalization_13(site: Site) -> None:
    """State the default of the axes; without them onnx.checker fails on the newer schema."""
    if site.attribute("axes") is None:
        site.replace(attributes={"axes": [0, 2, 3]})


def _grid_sample_20(site: Site) -> None:
    """Rename the modes; the default mode is the same under its new name."""
    renamed = {"bilinear": "linear", "bicubic": "cubic"}
    mode = site.setting("mode", "")
    if mode in renamed:
        site.replace(attributes={"mode": renamed[mode]})


def _group_normalization_21(site: Site) -> None:
    """Repeat scale and bias for each channel of a group, and keep the precision."""
    shape, dtype, groups = site.shape(0), site.dtype(0), site.setting("num_groups", 0)
    channels = None if shape is None or len(shape) < 2 else shape[1]  # noqa: PLR2004  # N and C
    if not isinstance(channels, int) or dtype is None or not groups or channels % groups:
        raise NotRaisableError(
            "scale and bias are per channel since opset 21, and those are not known"
        )
    inputs = [site.input(0), site.input(1), site.input(2)]
    if channels != groups:
        inputs[1:] = [_repeated(site, name, channels // groups) for name in inputs[1:]]
    if dtype != "float32":
        site.replace(inputs=inputs, attributes={"stash_type": DTYPE_CODES[dtype]})
    elif channels != groups:
        site.replace(inputs=inputs)


def _repeated(site: Site, name: str, times: int) -> str:
    """Return the name of the vector *name* with each element repeated."""
    column = site.constant(np.array([-1, 1]), "column")
    widths = site.constant(np.array([1, times]), "widths")
    vector = site.constant(np.array([-1]), "vector")
    tall = site.helper("Reshape", [name, column], f"{name}_column")
    wide = site.helper("Expand", [tall, widths], f"{name}_repeated")
    return site.helper("Reshape", [wide, vector], f"{name}_per_channel")


def _without_integers(site: Site) -> None:
    """Refuse integers, which are no longer taken.

    An unknown type passes: if it is one of integers after all, the result is an invalid model and
    not a wrong one.
    """
    dtype = site.dtype(0)
    if dtype in _INTEGERS:
        raise NotRaisableError(f"it takes no {dtype} since opset {site.version}")


def _split_18(site: Site) -> None:
    """Say into how many parts to split where the lengths are not given."""
    if not site.input(1):
        site.replace(attributes={"num_outputs": len(site.node.output)})


# What happened to each operator of the standard between two opsets.
#
# An operator's schema is in force from the opset it names until the next version of the schema: a
# *bump*. Every bump from opset 8 to 28 has been read. There is an adapter for it, or it is refused,
# or it keeps the meaning of every node that was valid before: it brings more types, optional inputs
# and attributes whose default is the old way. A bump of an onnx yet to come is refused as unknown.
#
# A few changed the wording as well, to what onnxruntime and onnx's reference evaluator had computed
# for the older version all along, and what models therefore expect: where ConvTranspose 11 puts
# the odd element of the padding, what OneHot 11 makes of negative indices, that AveragePool 22 and
# MaxPool 22 drop windows that begin in the padding, and how Cast 24 and CastLike 24 round infinity
# to the finite eight-bit floats.


Adapter: TypeAlias = Callable[[Site], object]
"""Tells a site what takes the node's place; tells nothing if the node may stay."""

REFUSED = {("Scan", 9): "Scan before opset 9 runs over a batch, which later ones do not"}

ADAPTERS: dict[tuple[str, int], Adapter] = {
    ("BatchNormalization", 9): _batch_normalization_9,
    ("BatchNormalization", 14): _batch_normalization_14,
    ("Clip", 11): _clip_11,
    ("DFT", 20): _dft_20,
    ("Dropout", 10): _dropout_10,
    ("Dropout", 12): _dropout_12,
    ("GridSample", 20): _grid_sample_20,
    ("GroupNormalization", 21): _group_normalization_21,
    ("MeanVarianceNormalization", 13): _mean_variance_normalization_13,
    ("Pad", 11): _pad_11,
    ("Resize", 11): _resize_11,
    ("Resize", 13): _resize_13,
    ("Scatter", 11): lambda site: site.replace(op_type="ScatterElements"),
    ("Split", 18): _split_18,
    ("TopK", 10): _top_k_10,
    ("Unsqueeze", 13): _unsqueeze_13,
    ("Upsample", 10): _upsample_10,
    # the default became another
    ("RoiAlign", 16): lambda site: site.replace(
        attributes={"coordinate_transformation_mode": "output_half_pixel"}
    ),
    **dict.fromkeys([("Slice", 10), ("Upsample", 9)], _to_inputs),
    **dict.fromkeys([("ReduceSum", 13), ("Split", 13), ("Squeeze", 13)], _to_inputs),
    **{(op_type, 18): _to_inputs for op_type in REDUCTIONS - {"ReduceSum"}},
    **{(op_type, 13): _softmax_13 for op_type in ("Hardmax", "LogSoftmax", "Softmax")},
    ("Erf", 13): _without_integers,
    ("ReduceLogSum", 28): _without_integers,
    ("ReduceLogSumExp", 28): _without_integers,
}


def rule_for(op_type: str, version: int) -> Adapter | None:
    """Return what makes a node fit the schema of *version*; None if it fits as it is.

    Raises:
        NotRaisableError: Nothing does.
    """
    key = (op_type, version)
    if key in REFUSED:
        raise NotRaisableError(REFUSED[key])
    if version <= FIRST_OPSET:
        raise NotRaisableError(
            f"{op_type} changed in opset {version}, and only changes after 7 are covered"
        )
    if version > LAST_OPSET:
        raise NotRaisableError(
            f"{op_type} changed in opset {version} in a way that dpl does not know"
        )
    return ADAPTERS.get(key)


@cache
def bumps(op_type: str, old: int, new: int) -> tuple[int, ...]:
    """Return the versions at which an operator's schema changed after *old*, up to *new*.

    Raises:
        NotRaisableError: The operator is not in the standard at *old*.
    """
    start = _SCHEMAS.find(op_type, "", old)
    if start is None:
        raise NotRaisableError(f"{op_type} is no operator of the standard at opset {old}")
    changed = (schema.since for schema in _SCHEMAS.versions(op_type, ""))
    return tuple(version for version in changed if start.since < version <= new)


# What raising a model's opset would change, worked out before anything is changed.


class AdaptedNode(NamedTuple):
    """One node that did not fit the new opset as it was.

    Attributes:
        op_type: Its operator before.
        name: Its name, or its first output where it has none.
        where: "" in the main graph, or " in ..." a body or a function.
    """

    op_type: str
    name: str
    where: str


class OpsetRaise:
    """The changes that raise a model to another opset.

    Args:
        model: The model, which stays as it is until :meth:`apply`.
        target: The opset to raise it to.
        types: Reads its main graph, whose values know their types.

    Attributes:
        target: As given.
        adapted: The nodes to change.
        refused: The nodes that cannot be raised: what each is and where, and why not. If there
            are any, it cannot be applied.
        raised_functions: The functions that import the standard at an older opset.
    """

    def __init__(self, model: ModelProto, target: int, types: Callable[[], Graph]) -> None:
        self.adapted: list[AdaptedNode] = []
        self.refused: list[tuple[str, NotRaisableError]] = []
        self._model = model
        self.target = target
        self._types = types
        self._functions = {_key(item): item for item in model.functions}
        self._calls = _Calls(model, self._functions)
        self._scopes: list[Scope] = []
        self.raised_functions: list[FunctionProto] = []
        before = imported_standard(model.opset_import)
        self._visit(Scope(model.graph, types), before)
        for function in model.functions:
            own = imported_standard(function.opset_import)
            if own is None and not function.opset_import:
                self._visit(Scope(function, types), before)
            elif own is None:
                self._visit(Scope(function, types), own)
            elif own < target:
                self.raised_functions.append(function)
                self._visit(Scope(function, types), own)

    def apply(self) -> None:
        """Edit the model."""
        for scope in reversed(self._scopes):
            scope.apply()
        imports = chain(
            self._model.opset_import, *(item.opset_import for item in self.raised_functions)
        )
        for entry in imports:
            if entry.domain in STANDARD_DOMAINS:
                entry.version = self.target

    def _visit(self, root: Scope, version: int | None) -> None:
        """Look at the nodes of a graph, and of the bodies in it, outer ones first."""
        pending = deque([root])
        while pending:
            scope = pending.popleft()
            self._scopes.append(scope)
            for number, node in enumerate(scope.proto.node):
                if node.domain in STANDARD_DOMAINS:
                    self._visit_node(node, version, scope, number)
                pending.extend(
                    Scope(body, self._types, scope, (number, name))
                    for name, body in graphs_of(node)
                )

    def _visit_node(self, node: NodeProto, version: int | None, scope: Scope, number: int) -> None:
        try:
            new = self._raised(node, version, scope)
        except NotRaisableError as refusal:
            self.refused.append((f"{node_label(node)}{scope.where}", refusal.with_traceback(None)))
            return
        if new is not None:
            scope.replaced[number] = new
            self.adapted.append(AdaptedNode(node.op_type, _name_of(node), scope.where))

    def _raised(self, node: NodeProto, version: int | None, scope: Scope) -> list[NodeProto] | None:
        """Return what takes a node's place, None if it stays.

        Raises:
            NotRaisableError: It cannot be raised.
        """
        if version is None:
            raise NotRaisableError("it is of the standard, of which no version is imported")
        try:
            steps = bumps(node.op_type, version, self.target)
        except NotRaisableError:
            if _key(node) in self._functions:
                return None
            raise
        for step in steps:
            try:
                adapted = self._adapted(node, step, scope)
            except NotRaisableError as refusal:
                refusal.version = step
                raise
            if adapted:
                return [
                    made
                    for new, written_for in adapted
                    for made in self._raised(new, written_for, scope) or [new]
                ]
        return None

    def _adapted(self, node: NodeProto, step: int, scope: Scope) -> Sequence[tuple[NodeProto, int]]:
        """Return nodes that fit the schema of *step* in a node's place; none if it fits itself.

        Raises:
            NotRaisableError: Nothing does, as far as dpl knows.
        """
        rule = rule_for(node.op_type, step)
        if rule is None:
            return ()
        if _key(node) in self._functions:
            raise NotRaisableError("a function of the model has the name of its operator")
        if not node.output:
            raise NotRaisableError("it has no output")
        site = Site(node, scope, step, self.target, self._calls.always_give)
        rule(site)
        return site.made


class _Calls:
    """The calls of a model's functions, looked up when first asked about."""

    def __init__(self, model: ModelProto, functions: Mapping[Key, FunctionProto]) -> None:
        self._model = model
        self._functions = functions
        self._given: dict[tuple[Key, str], bool] = {}
        self._known: dict[Key, list[tuple[FunctionProto | None, dict[str, str]]]] | None = None

    def always_give(self, function: FunctionProto, attribute: str) -> bool:
        """Tell whether an attribute of a function has a value whenever it is called."""
        asked = (_key(function), attribute)
        if asked not in self._given:
            self._given[asked] = True  # should functions call each other in a circle
            declared = any(default.name == attribute for default in function.attribute_proto)
            self._given[asked] = declared or all(
                self._gives(caller, given, attribute) for caller, given in self._of(asked[0])
            )
        return self._given[asked]

    def _gives(
        self, caller: FunctionProto | None, given: Mapping[str, str], attribute: str
    ) -> bool:
        if attribute not in given:
            return False
        passed_on = given[attribute]
        return not passed_on or (caller is not None and self.always_give(caller, passed_on))

    def _of(self, key: Key) -> list[tuple[FunctionProto | None, dict[str, str]]]:
        """Return, for each call, the caller and the attributes given, with what they refer to."""
        if self._known is None:
            self._known = {}
            for caller in (None, *self._functions.values()):
                for node in all_nodes(self._model.graph if caller is None else caller):
                    callee = _key(node)
                    if callee in self._functions:
                        given = {item.name: item.ref_attr_name for item in node.attribute}
                        self._known.setdefault(callee, []).append((caller, given))
        return self._known.get(key, [])


def imported_standard(imports: Iterable[OperatorSetIdProto]) -> int | None:
    """Return the version of the standard that is imported, the last one if there are several."""
    versions = [entry.version for entry in imports if entry.domain in STANDARD_DOMAINS]
    return versions[-1] if versions else None


def _key(of: FunctionProto | NodeProto) -> Key:
    """Return the key of a function, from the function or from a node that calls it."""
    domain = "" if of.domain in STANDARD_DOMAINS else of.domain
    return (domain, of.name if isinstance(of, FunctionProto) else of.op_type, of.overload)


@dataclass(frozen=True)
class RaisedOpset:
    """What :func:`raise_opset` did.

    Attributes:
        before: The model's opset before; None if it imported none, having no standard nodes.
        after: Its opset now.
        ir_versions: The IR version before and now.
        adapted: The nodes that were changed.
        functions: The functions that were raised, as ``domain::name``.
    """

    before: int | None
    after: int
    ir_versions: tuple[int, int]
    adapted: tuple[AdaptedNode, ...]
    functions: tuple[str, ...]

    @property
    def is_changed(self) -> bool:
        """Whether the model differs from what it was."""
        return self.before != self.after or bool(self.adapted or self.functions)

    def __str__(self) -> str:
        """Read as ``raised from opset 12 to 18; adapted: Clip 2, Squeeze``."""
        counts = Counter(node.op_type for node in self.adapted)
        parts = [f"{name} {count}" if count > 1 else name for name, count in sorted(counts.items())]
        adapted = ", ".join(parts) or "no node"
        return f"raised from opset {self.before or 'none'} to {self.after}; adapted: {adapted}"


def raise_opset(
    proto: ModelProto, version: int, types: Callable[[], Graph], label: str = "the model"
) -> RaisedOpset:
    """Raise a model and its functions to opset *version* of the standard.

    The message is edited in place; if this raises an error it is as it was. The IR version goes
    up to what the opset needs; if it was below 4, initializers are taken off the graph inputs, as
    onnxruntime does not fold those that could be overridden. Other domains stay as they are, and
    so do functions that are newer already.

    Args:
        proto: The model, of which an IR can be built; external data is neither read nor needed.
        version: The opset to raise it to.
        types: Reads its main graph, whose values know their types.
        label: What to call the model in messages.

    Raises:
        UsageError: The model is newer than *version*, or *version* than the installed onnx.
        OpsetError: A node cannot be expressed at *version*, as far as dpl knows.
    """
    # The model's opset.
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= version <= newest:
        raise UsageError(
            f"there is no opset {version} in the installed onnx {onnx.__version__}",
            hint=f"ask for {newest} at most, or install a newer onnx",
        )
    if len({entry.version for entry in proto.opset_import if entry.domain in STANDARD_DOMAINS}) > 1:
        raise OpsetError(f"{label}: imports the standard more than once, in different versions")
    if proto.training_info:
        raise OpsetError(f"{label}: holds training graphs, which cannot be raised")
    before = imported_standard(proto.opset_import)
    if before is not None and before > version:
        raise UsageError(
            f"{label}: is of opset {before}, which cannot be lowered to {version}",
            hint=f"ask for {before} or a newer one",
        )
    ir_version = proto.ir_version
    change = OpsetRaise(proto, version, types)
    if change.refused:
        raise _refusal(change, proto, label, types)
    change.apply()
    if before is None:
        proto.opset_import.add(domain="", version=version)
    if before != version:
        _raise_ir_version(proto, version)
    return RaisedOpset(
        before,
        version,
        (ir_version, proto.ir_version),
        tuple(change.adapted),
        tuple(f"{function.domain}::{function.name}" for function in change.raised_functions),
    )


def _refusal(
    change: OpsetRaise, proto: ModelProto, label: str, types: Callable[[], Graph]
) -> OpsetError:
    """Say which nodes stand in the way, and how far the model can be raised."""
    before = imported_standard(proto.opset_import) or 0
    what, why = change.refused[0]
    others = len(change.refused) - 1
    more = f"; {others} more such node{'s' * (others > 1)}" if others else ""
    possible = before
    refused = change.refused
    while refused:
        possible = min(refusal.version for _, refusal in refused) - 1
        refused = OpsetRaise(proto, possible, types).refused if possible > before else []
    stay = f"raise it to {possible}" if possible > before else f"keep it at opset {before}"
    return OpsetError(
        f"{label}: cannot be raised from opset {before or 'none'} to {change.target}: {what}: "
        f"{why}{more}",
        hint=f"{stay}, or export it anew at opset {change.target}" if before else None,
    )


def _raise_ir_version(proto: ModelProto, version: int) -> None:
    needed = helper.find_min_ir_version_for([helper.make_opsetid("", version)])
    needed = max(needed, FIRST_IR_WITH_PLAIN_INITIALIZERS)
    if proto.ir_version >= needed:
        return
    if proto.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS:
        for graph in all_scopes(proto.graph):
            assert isinstance(graph, GraphProto)  # noqa: S101  # bodies are never functions
            stored = {tensor.name for tensor in graph.initializer}
            stored.update(sparse.values.name for sparse in graph.sparse_initializer)
            kept = [info for info in graph.input if info.name not in stored]
            if len(kept) < len(graph.input):
                del graph.input[:]
                graph.input.extend(kept)
    proto.ir_version = needed
