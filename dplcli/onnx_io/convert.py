"""Types, tensors, attributes and schemas between protobuf and the IR."""

from __future__ import annotations

import math
import stat
from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorAnnotation,
    TensorProto,
    TrainingInfoProto,
    TypeProto,
    ValueInfoProto,
    numpy_helper,
)

from dplcli.errors import ModelLoadError
from dplcli.files import place_in
from dplcli.ir import (
    Annotation,
    Attribute,
    Dim,
    Graph,
    OpSchema,
    Remarks,
    StatedType,
    Tensor,
    TensorType,
)
from dplcli.ir.model import NO_REMARKS, FormalInput
from dplcli.ir.types import CHUNK, DTYPE_CODES, PLAIN_KINDS, bits_of, dtype_name, shared_type
from dplcli.onnx_io.contrib import (
    CONTRIB,
    IN_STANDARD_DOMAIN,
    contrib_operators,
    runtime_schemas,
)
from dplcli.onnx_io.parts import fields

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Container,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from google.protobuf.message import Message
    from numpy.typing import NDArray
    from onnx.defs import OpSchema as OnnxSchema


# Tensors between protobuf and the IR; data is decoded only when asked for.


UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    MemoryError,
    RuntimeError,
    onnx.checker.ValidationError,
)
"""What onnx raises where the data of a tensor cannot be read."""


_SHORT = 256
"""Up to how many bytes a tensor is kept once it was read."""


class Home(NamedTuple):
    """Where a model comes from.

    Attributes:
        folder: Where its external data lies.
        label: What messages call it.
    """

    folder: Path
    label: str


class ProtoTensor(Tensor):
    """A ``TensorProto`` as it stands in the file.

    Args:
        proto: The message.
        home: The model that it is part of; None if it cannot have external data.
    """

    __slots__ = ("_array", "_type", "home", "proto")

    def __init__(self, proto: TensorProto, home: Home | None = None) -> None:
        """Wrap *proto* without looking at its data."""
        self.proto = proto
        self.home = home
        self._array: NDArray[Any] | None = None
        self._type: TensorType | None = None

    @property
    def message(self) -> Message:
        """What the file holds of it."""
        return self.proto

    def is_encoded_as(self, other: ProtoTensor) -> bool:
        """Tell whether another file holds the same of *other*."""
        return bool(self.message == other.message)

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        if self._type is None:
            self._type = shared_type(dtype_name(self.proto.data_type), tuple(self.proto.dims))
        return self._type

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return self.type.dtype or "undefined"

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return tuple(self.proto.dims)

    @property
    def is_external(self) -> bool:
        """Whether the data lies in a file beside the model."""
        return self.proto.data_location == TensorProto.EXTERNAL

    def numpy(self) -> NDArray[Any]:
        """Decode the data, from the external file if it lies there.

        An element of a STRING tensor is bytes if it is not UTF-8, which onnx lets pass.

        Raises:
            ModelLoadError: The external file is missing, too short or outside the folder, or the
                tensor is only a segment of one.
        """
        if self._array is not None:
            return self._array
        proto = self.proto
        if proto.HasField("segment"):
            raise self._unreadable(
                "it is one of several segments of a tensor, which onnx does not put together",
                "save the model again with every tensor in one piece",
            )
        folder = self.home.folder if self.home else Path()
        try:
            if proto.data_type == TensorProto.STRING:
                return np.array(list(map(_text, proto.string_data)), object).reshape(proto.dims)
            array: NDArray[Any]
            if not self.is_external:
                array = numpy_helper.to_array(proto)
                if array.nbytes <= _SHORT and proto.HasField("raw_data"):
                    self._array = array
                return array
            proto = TensorProto.FromString(proto.SerializeToString())  # whose data is put in
            load_data(proto, folder)
            array = numpy_helper.to_array(proto)
        except UNREADABLE as error:
            if isinstance(error, FileNotFoundError) and self.home is not None:
                location = entries_of(self.proto)["location"]
                lost = f"{self.home.label}: its external data {location!r} is missing"
                raise ModelLoadError(lost) from error
            raise self._unreadable(" ".join(str(error).split())) from error
        return array

    def reader(self) -> Callable[[int, int], NDArray[Any]]:
        """Return what reads some elements: onnx reads those from the file, and no more.

        Where elements take less than a byte, it begins and ends at whole bytes.
        """
        place = self._begin()
        if place is None or self.size <= CHUNK:
            return super().reader()  # or what is stated does not fit, which this says
        proto, bits = self.proto, dtype_bits(self.proto.data_type)

        def read(begin: int, end: int) -> NDArray[Any]:
            part = TensorProto(name=proto.name, data_type=proto.data_type, dims=[end - begin])
            part.data_location = TensorProto.EXTERNAL
            span = {"offset": place + begin * bits // 8, "length": (end - begin) * bits // 8}
            for key, entry in {**entries_of(proto), **span}.items():
                part.external_data.add(key=key, value=str(entry))
            return ProtoTensor(part, self.home).numpy()

        return read

    @property
    def place(self) -> Hashable:
        """Which file the data lies in, by device and number, and where it begins there."""
        begin = self._begin()
        if begin is None or self.home is None or self.proto.HasField("segment"):
            return None
        try:
            status = place_in(self.home.folder, entries_of(self.proto)["location"]).stat()
        except (OSError, ValueError, KeyError):
            return None
        return (status.st_dev, status.st_ino, begin) if status.st_ino else None

    def _begin(self) -> int | None:
        """Return where in its file the data begins; None if it lies in none as its type says."""
        proto = self.proto
        if not self.is_external or not dtype_bits(proto.data_type):
            return None
        try:
            return span_of(proto)[0]
        except ValueError:
            return None

    def _unreadable(self, why: str, hint: str | None = None) -> ModelLoadError:
        where = f"{self.home.label}: " if self.home else ""
        name = self.proto.name
        return ModelLoadError(
            f"{where}constant {name!r}: its data cannot be read: {why}", hint=hint
        )


def load_data(proto: TensorProto, folder: Path) -> None:
    """Put the external data of a tensor into it.

    onnx would refuse a file with two names, which ``--external-data link`` makes, and any link.

    Args:
        proto: The tensor, which is changed.
        folder: Where the data lies.

    Raises:
        OSError: It cannot be read.
        ValueError: It lies elsewhere, or there is not what the tensor needs.
    """
    place, begin, size = file_of(proto, folder)
    with place.open("rb") as file:
        file.seek(begin)
        proto.raw_data = file.read(size)
    proto.data_location = TensorProto.DEFAULT
    del proto.external_data[:]


def file_of(proto: TensorProto, folder: Path) -> tuple[Path, int, int]:
    """Return the file in which the external data of a tensor lies, where, and how many bytes.

    Args:
        proto: The tensor.
        folder: The folder of its model.

    Raises:
        OSError: The file cannot be looked at.
        ValueError: The data lies elsewhere, or there is not what the tensor needs.
    """
    place = place_in(folder, entries_of(proto).get("location", ""))
    begin, size = span_of(proto)
    status = place.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{place.name!r} is not a regular file")
    if status.st_size < begin + size:
        raise ValueError(
            f"external data of {proto.name!r} is cut off: it needs {begin + size:,} bytes of "
            f"{place.name!r}, there are {status.st_size:,}"
        )
    return place, begin, size


def span_of(proto: TensorProto) -> tuple[int, int]:
    """Return where in its file the external data of a tensor begins, and how many bytes it has.

    Raises:
        ValueError: What is stated cannot be, or does not fit the type.
    """
    stated = entries_of(proto)
    bits = dtype_bits(proto.data_type)
    needed = -(-math.prod(proto.dims) * bits // 8)
    begin, size = stated.get("offset", "0"), stated.get("length", str(needed))
    for key, text in (("offset", begin), ("length", size)):
        if not (text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS):
            raise ValueError(f"external data of {proto.name!r} has no possible {key}: {text!r}")
    if bits and int(size) != needed:
        raise ValueError(
            f"external data of {proto.name!r} is stated to have {int(size):,} bytes, and its type "
            f"needs {needed:,}"
        )
    return int(begin), int(size)


_MOST_DIGITS = 19
"""With fewer, a number of bytes has 64 bits."""


def entries_of(proto: TensorProto) -> dict[str, str]:
    """Return where the data of a tensor lies, as far as it is stated."""
    return {entry.key: entry.value for entry in proto.external_data}


class SparseTensor(ProtoTensor):
    """A sparse initializer, which reads as a dense tensor.

    Args:
        proto: The message; its indices are linear or one row of coordinates per value.
        home: The model that it is part of.
    """

    __slots__ = ("sparse",)

    def __init__(self, proto: SparseTensorProto, home: Home) -> None:
        """Wrap *proto* without looking at its data."""
        super().__init__(proto.values, home)
        self.sparse = proto

    @property
    def shape(self) -> tuple[int, ...]:
        """The dense dimensions."""
        return tuple(self.sparse.dims)

    @property
    def message(self) -> Message:
        """What the file holds of it."""
        return self.sparse

    reader = Tensor.reader
    place = Tensor.place

    def numpy(self) -> NDArray[Any]:
        """Decode to a dense array."""
        values = super().numpy()
        indices = ProtoTensor(self.sparse.indices, self.home).numpy()
        coordinates = (indices,) if indices.ndim == 1 else tuple(indices.T)
        extents = (self.size,) if indices.ndim == 1 else self.shape
        if len(coordinates) != len(extents) or len(indices) != len(values):
            raise self._unreadable("its indices do not fit its values")
        if any((c < 0).any() or (c >= n).any() for c, n in zip(coordinates, extents, strict=True)):
            raise self._unreadable("an index lies outside its shape")
        try:
            dense = np.zeros(extents, dtype=values.dtype)
        except UNREADABLE as error:
            raise self._unreadable(str(error)) from error
        dense[coordinates] = values
        return dense.reshape(self.shape)


def tensor_to_proto(tensor: Tensor, name: str) -> TensorProto:
    """Write *tensor* under *name*; what came from a file is copied, not re-encoded.

    A sparse tensor becomes a dense one.
    """
    if isinstance(tensor, ProtoTensor) and not isinstance(tensor, SparseTensor):
        proto = TensorProto()
        proto.CopyFrom(tensor.proto)
        proto.name = name
        return proto
    return numpy_helper.from_array(np.asarray(tensor.numpy()), name)


# Attributes between protobuf and the IR.


_KIND_NAMES = {code: name.lower() for name, code in AttributeProto.AttributeType.items()}
_KIND_CODES = {name: code for code, name in _KIND_NAMES.items()}


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


_FIELDS = {
    "float": "f",
    "int": "i",
    "string": "s",
    "tensor": "t",
    "graph": "g",
    "sparse_tensor": "sparse_tensor",
    "type_proto": "tp",
}
"""The field that holds the value, by kind, where it is not a list."""

_WITHOUT_GRAPHS = frozenset(_KIND_NAMES) - {
    AttributeProto.UNDEFINED,
    AttributeProto.GRAPH,
    AttributeProto.GRAPHS,
}
_WITHOUT_TENSORS = frozenset(_KIND_CODES[kind] for kind in PLAIN_KINDS)
_OF_ATTRIBUTES = {"name", "type", "ref_attr_name", *_FIELDS.values(), *map("{}s".format, _FIELDS)}
"""The fields of an attribute that dpl has words for."""
_GUESSED_KINDS = ("tensor", "graph", "float", "int", "string")
_HEAD = frozenset({"name", "type", "ref_attr_name", "doc_string"})
_GUESSED_LISTS = ("floats", "ints", "strings", "tensors", "graphs")


def decode_attribute(
    proto: AttributeProto,
    subgraphs: Mapping[str, Graph],
    home: Home | None = None,
    *,
    in_function: bool = True,
) -> Attribute:
    """Read one attribute.

    Outside of functions there is nothing to refer to. There the value beside the reference counts,
    as it does for onnx.checker and onnxruntime.

    Args:
        proto: The message.
        subgraphs: The graph that stands for each graph attribute, by name.
        home: The model, beside which a tensor's external data lies.
        in_function: Whether the node is in a function's body.
    """
    kind = _KIND_NAMES[proto.type] if proto.type else _guess_kind(proto)
    is_plain = not proto.HasField("doc_string") and not len(UnknownFieldSet(proto))
    rest = b"" if is_plain else fields(proto, without=_OF_ATTRIBUTES)
    if proto.ref_attr_name and (in_function or not _holds_value(proto)):
        return Attribute(kind, None, proto.ref_attr_name, rest)
    if kind == "graph":
        return Attribute(kind, subgraphs.get(proto.name), rest=rest)
    if kind == "graphs":
        names = (f"{proto.name}[{number}]" for number in range(len(proto.graphs)))
        return Attribute(kind, tuple(subgraphs.get(name) for name in names), rest=rest)
    value: Any = getattr(proto, _FIELDS.get(kind, kind))
    if kind in _FIELDS:
        return Attribute(kind, _decoded(kind, value, home), rest=rest)
    return Attribute(kind, tuple([_decoded(kind, item, home) for item in value]), rest=rest)


def _decoded(kind: str, item: Any, home: Home | None) -> object:  # noqa: ANN401  # a field's value
    """Read what an attribute holds, or one item of its list."""
    if kind.startswith("tensor"):
        return ProtoTensor(item, home)
    return _text(item) if kind.startswith("string") else item


def graphs_of(proto: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """Iterate over the bodies of a node: the attribute's name, ``name[i]`` in a list of graphs."""
    for attribute in proto.attribute:
        if attribute.type in _WITHOUT_GRAPHS:
            continue
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for number, graph in enumerate(attribute.graphs):
            yield f"{attribute.name}[{number}]", graph


def all_scopes(*roots: GraphProto | FunctionProto) -> Iterator[GraphProto | FunctionProto]:
    """Iterate over graphs and functions and every body in them, outer ones first."""
    pending = [*roots]
    while pending:
        scope = pending.pop()
        yield scope
        for node in scope.node:
            pending += [body for _, body in graphs_of(node)]


def all_nodes(*roots: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Iterate over the nodes of graphs and functions and of every body in them."""
    for scope in all_scopes(*roots):
        yield from scope.node


def all_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Iterate over the tensors of a model, in nodes and functions, too; sparse ones are two."""
    for scope in (proto.graph, *proto.functions):
        yield from _tensors_of(scope)


def external_tensors(proto: ModelProto) -> list[TensorProto]:
    """List the tensors of a model of which the data lies in files beside it."""
    return [each for each in all_tensors(proto) if each.data_location == TensorProto.EXTERNAL]


def _tensors_of(scope: GraphProto | FunctionProto) -> Iterator[TensorProto]:
    stated = chain.from_iterable(node.attribute for node in scope.node)
    if isinstance(scope, GraphProto):
        yield from scope.initializer
        yield from _parts_of(scope.sparse_initializer)
    else:
        stated = chain(stated, scope.attribute_proto)
    for attribute in stated:
        if attribute.type in _WITHOUT_TENSORS:
            continue
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        if attribute.HasField("sparse_tensor"):
            yield from _parts_of([attribute.sparse_tensor])
        yield from _parts_of(attribute.sparse_tensors)
        if attribute.HasField("g"):
            yield from _tensors_of(attribute.g)
        for graph in attribute.graphs:
            yield from _tensors_of(graph)


def _parts_of(sparse: Iterable[SparseTensorProto]) -> Iterator[TensorProto]:
    for item in sparse:
        yield item.values
        yield item.indices


def names_read(proto: NodeProto) -> Iterator[str]:
    """Iterate over the names that a node reads, and those that its bodies capture."""
    yield from filter(None, proto.input)
    for _, graph in graphs_of(proto):
        yield from _names_captured(graph)


def _names_captured(graph: GraphProto) -> Iterator[str]:
    """Iterate over the names that a body reads and does not define."""
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {tensor.values.name for tensor in graph.sparse_initializer}
    own |= {name for proto in graph.node for name in proto.output}
    for proto in graph.node:
        yield from (name for name in names_read(proto) if name not in own)
    yield from (info.name for info in graph.output if info.name not in own)


def _holds_value(proto: AttributeProto) -> bool:
    """Tell whether *proto* holds a value, and not a name and a reference alone."""
    return any(field.name not in _HEAD for field, _ in proto.ListFields())


def missing_value(proto: AttributeProto) -> str:
    """Return what an attribute is stated to hold and does not; "" if nothing is missing.

    A number or text that is not there is 0 or empty, as for onnx; a list that is not there, too.
    """
    kind = _KIND_NAMES[proto.type]
    needs = kind in _FIELDS and kind not in PLAIN_KINDS and not proto.ref_attr_name
    return kind if needs and not proto.HasField(_FIELDS[kind]) else ""


def _guess_kind(proto: AttributeProto) -> str:
    """Tell the kind of an attribute that states none, as files of IR version 1 and 2 may."""
    for kind in _GUESSED_LISTS:
        if len(getattr(proto, kind)):
            return kind
    return next((kind for kind in _GUESSED_KINDS if proto.HasField(_FIELDS[kind])), "ints")


def encode_attribute(name: str, attribute: Attribute) -> AttributeProto:
    """Write one attribute that a pass has made."""
    proto = AttributeProto(name=name, type=_KIND_CODES[attribute.kind])
    if attribute.rest:
        with suppress(DecodeError):  # what a call says of a constant may be anything
            rest = AttributeProto.FromString(attribute.rest)
            proto.MergeFromString(fields(rest, without=_OF_ATTRIBUTES))
    if attribute.ref:
        proto.ref_attr_name = attribute.ref
        return proto
    kind = attribute.kind
    field = _FIELDS.get(kind, kind)
    if kind not in _FIELDS:
        items: Any = attribute.value
        getattr(proto, field).extend(map(_encodable, items))
    elif kind in {"float", "int", "string"}:
        setattr(proto, field, _encodable(attribute.value))
    else:
        getattr(proto, field).CopyFrom(_encodable(attribute.value))
    return proto


def _encodable(value: object) -> Any:  # noqa: ANN401  # whatever protobuf's field takes
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, ProtoTensor) and not isinstance(value, SparseTensor):
        return value.proto
    if isinstance(value, Tensor):
        return tensor_to_proto(value, "")
    if isinstance(value, Graph):
        return GraphProto() if value.source is None else value.source
    return value


# The standard's operator schemas, read from the installed onnx package when asked for.


_VARIADIC = 2**31 - 1
_CALLED_OTHERWISE = {"float": "float32", "double": "float64"}
"""What onnx's schemas call some element types."""

_NEWEST = (1 << 31) - 1
"""An opset that no operator is too new for."""


def schema_in_force(op_type: str, version: int, domain: str) -> OnnxSchema | None:
    """Return onnx's schema of an operator at a version of its domain, or None if there is none.

    A file can state versions of 64 bits, and onnx takes none of more than 32.
    """
    if not -_NEWEST <= version <= _NEWEST:
        return None
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def _all_versions(op_type: str, domain: str) -> list[OnnxSchema]:
    """Return onnx's schemas of an operator, oldest first; none if it is unknown."""
    schemas: list[OnnxSchema] = []
    version = _NEWEST
    while version > 0 and onnx.defs.has(op_type, version, domain):
        schemas.append(onnx.defs.get_schema(op_type, version, domain))
        version = schemas[-1].since_version - 1
    return schemas[::-1]


@cache
def fewest_operands(op_type: str, domain: str) -> tuple[int, int]:
    """Return how many inputs and outputs a node has at least, in whichever version."""
    schemas = _all_versions(op_type, domain)
    return (
        min((schema.min_input for schema in schemas), default=0),
        min((schema.min_output for schema in schemas), default=0),
    )


class OnnxSchemas:
    """A :class:`dplcli.ir.SchemaLibrary` over ``onnx.defs``, remembering what it looked up."""

    @staticmethod
    @cache
    def find(op_type: str, domain: str, version: int) -> OpSchema | None:
        """Return the schema in force at opset *version*, or None if there is none."""
        schema = schema_in_force(op_type, version, domain)
        return None if schema is None else convert_schema(schema)

    @staticmethod
    @cache
    def versions(op_type: str, domain: str) -> tuple[OpSchema, ...]:
        """Return every version of an operator's schema, oldest first; none if unknown."""
        return tuple(map(convert_schema, _all_versions(op_type, domain)))

    @staticmethod
    @cache
    def op_types(domain: str) -> frozenset[str]:
        """Return all operators of *domain*; none if they are not known."""
        if domain == CONTRIB:
            return frozenset(contrib_operators())
        known = onnx.defs.get_all_schemas_with_history()
        names = frozenset(schema.name for schema in known if schema.domain == domain)
        return names if domain else names | IN_STANDARD_DOMAIN

    def attributes_of(self, op_type: str, domain: str) -> frozenset[str] | None:
        """Return the attributes of an operator, of all versions; None if they are not known."""
        if domain == CONTRIB:
            return contrib_operators().get(op_type)
        versions = self.versions(op_type, domain)
        return frozenset().union(*(v.attributes for v in versions)) if versions else None


class RuntimeSchemas(OnnxSchemas):
    """The same, with the operators of ``com.microsoft`` as onnxruntime describes them."""

    @staticmethod
    @cache
    def find(op_type: str, domain: str, version: int) -> OpSchema | None:
        """Return the schema in force at opset *version*, or None if there is none."""
        if domain != CONTRIB:
            return OnnxSchemas.find(op_type, domain, version)
        schema = runtime_schemas().get(op_type)
        return None if schema is None else convert_schema(schema)

    @staticmethod
    @cache
    def versions(op_type: str, domain: str) -> tuple[OpSchema, ...]:
        """Return every version of an operator's schema, oldest first; none if unknown."""
        if domain != CONTRIB:
            return OnnxSchemas.versions(op_type, domain)
        found = RuntimeSchemas.find(op_type, domain, 1)
        return () if found is None else (found,)


def convert_schema(schema: OnnxSchema) -> OpSchema:
    """Return *schema* as the IR has it; onnxruntime's say less of defaults and types."""
    defaults: dict[str, Attribute] = {
        name: decode_attribute(attribute.default_value, {})
        for name, attribute in schema.attributes.items()
        if getattr(attribute, "default_value", None) is not None and attribute.default_value.type
    }
    return OpSchema(
        inputs=tuple(formal.name for formal in schema.inputs),
        min_inputs=schema.min_input,
        max_inputs=min(schema.max_input, _VARIADIC),
        outputs=tuple(formal.name for formal in schema.outputs),
        max_outputs=min(schema.max_output, _VARIADIC),
        min_outputs=schema.min_output,
        attributes={
            name: str(attribute.type).rpartition(".")[2].lower()
            for name, attribute in schema.attributes.items()
        },
        defaults=defaults,
        since=schema.since_version,
        required_attributes=frozenset(
            name for name, attribute in schema.attributes.items() if attribute.required
        ),
        required_inputs=frozenset(
            slot
            for slot, formal in enumerate(schema.inputs)
            if not str(formal.option).endswith("Optional")
        ),
        typed_by=tuple(_typed_by(schema, formal) for formal in schema.outputs),
        typed=tuple(
            FormalInput(_type_text(formal), frozenset(map(_dtype_of_schema, formal.types)))
            for formal in schema.inputs
        ),
    )


def _type_text(formal: OnnxSchema.FormalParameter) -> str:
    """Return the type variable of a formal input, which onnxruntime spells otherwise."""
    return str(getattr(formal, "type_str", None) or getattr(formal, "typeStr", ""))


def _dtype_of_schema(text: str) -> str:
    """Read ``tensor(float)``; what is no tensor stays as it is."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return _CALLED_OTHERWISE.get(name, name)


def _typed_by(schema: OnnxSchema, made: OnnxSchema.FormalParameter) -> int | str | None:
    if not getattr(made, "is_homogeneous", False):
        return None
    if made.types <= {"tensor(bool)"} or made.types <= {"tensor(int64)"}:
        return min(made.types).removeprefix("tensor(").removesuffix(")")
    slots = (slot for slot, formal in enumerate(schema.inputs) if formal.type_str == made.type_str)
    return next(slots, None)


# Types between protobuf and the IR.


def decode_type(proto: TypeProto) -> TensorType | None:
    """Read a type; None if it is not a dense tensor's or states nothing."""
    if not proto.HasField("tensor_type"):
        return None
    tensor = proto.tensor_type
    dtype = dtype_name(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return shared_type(dtype, None)
    return shared_type(dtype, tuple([_dim(dim) for dim in tensor.shape.dim]))


def encode_type(name: str, known: TensorType) -> ValueInfoProto:
    """Write the type of the value *name*; an element type newer than the table is left out."""
    proto = ValueInfoProto(name=name)
    tensor = proto.type.tensor_type
    tensor.elem_type = 0 if known.dtype is None else DTYPE_CODES.get(known.dtype, 0)
    if known.shape is None:
        return proto
    tensor.shape.SetInParent()
    for dim in known.shape:
        entry = tensor.shape.dim.add()
        if isinstance(dim, int):
            entry.dim_value = dim
        elif dim is not None:
            entry.dim_param = dim
    return proto


def remarks_of(proto: NodeProto | ValueInfoProto) -> Remarks:
    """Read the documentation and metadata of a message; what is not UTF-8 text is left out."""
    doc = proto.doc_string
    if not doc and not proto.metadata_props:
        return NO_REMARKS
    items = [(item.key, item.value) for item in proto.metadata_props]
    metadata = {key: text for key, text in items if type(key) is type(text) is str}
    return Remarks(doc if type(doc) is str else "", metadata)


_OF_NODES = {"input", "output", "name", "op_type", "domain", "overload", "attribute"}
_OF_NODES |= {"doc_string", "metadata_props"}
"""The fields of a node that dpl has words for."""


def node_remarks(proto: NodeProto) -> Remarks:
    """Read what a node carries for readers and tools; the rest says which devices it runs on."""
    return remarks_of(proto)._replace(rest=fields(proto, without=_OF_NODES))


def decode_annotations(protos: Iterable[TensorAnnotation]) -> dict[str, tuple[Annotation, ...]]:
    """Read how a graph says that tensors are quantised, by their names."""
    found: dict[str, tuple[Annotation, ...]] = {}
    for proto in protos:
        name, entries = proto.tensor_name, proto.quant_parameter_tensor_names
        rest = fields(proto, without={"tensor_name", "quant_parameter_tensor_names"})
        annotation = Annotation({entry.key: entry.value for entry in entries}, rest)
        found[name] = (*found.get(name, ()), annotation)
    return found


def encode_annotation(name: str, annotation: Annotation) -> TensorAnnotation:
    """Write how the tensor *name* is quantised."""
    proto = TensorAnnotation()
    with suppress(DecodeError):  # what a call says of a value may be anything
        proto.ParseFromString(annotation.rest)
    if name:
        proto.tensor_name = name
    for key, tensor in annotation.parameters.items():
        proto.quant_parameter_tensor_names.add(key=key, value=tensor)
    return proto


def names_in_training(
    protos: Iterable[TrainingInfoProto],
) -> tuple[frozenset[str], Sequence[str], frozenset[tuple[str, str, str]]]:
    """Collect what training information names.

    Returns:
        All names of values in it, and all texts of attributes, as Gradient names values so; the
        values that it sets; domain, type and overload of its nodes.
    """
    names: set[str] = set()
    updated: dict[str, None] = {}
    operators = set()
    for proto in protos:
        bindings = (*proto.initialization_binding, *proto.update_binding)
        updated |= {entry.key: None for entry in bindings}
        names.update(entry.value for entry in bindings)
        for graph in all_scopes(proto.initialization, proto.algorithm):
            assert isinstance(graph, GraphProto)  # noqa: S101  # there is no function in it
            names.update(part.name for part in (*graph.input, *graph.initializer, *graph.output))
            names.update(tensor.values.name for tensor in graph.sparse_initializer)
            for node in graph.node:
                names.update(node.input, node.output)
                operators.add((node.domain, node.op_type, node.overload))
                for item in node.attribute:
                    names.update(text.decode(errors="replace") for text in (item.s, *item.strings))
    return frozenset({*names, *updated} - {""}), tuple(updated), frozenset(operators)


@lru_cache(maxsize=1024)
def placements_of(encoded: bytes) -> Mapping[tuple[str, str], str]:
    """Read from the rest of what a node carries where it runs: what is said of each configuration.

    Its ``pipeline stage``, and the ``devices`` over which its tensors are spread.
    """
    found = {}
    for item in _configurations(encoded):
        devices: set[int] = set()
        for spec in item.sharding_spec:
            groups = {entry.key: entry.value for entry in spec.index_to_device_group_map}
            devices.update(d for index in spec.device for d in groups.get(index, (index,)))
        if item.HasField("pipeline_stage"):
            found[item.configuration_id, "pipeline stage"] = str(item.pipeline_stage)
        if devices:
            found[item.configuration_id, "devices"] = ", ".join(map(str, sorted(devices)))
    return found


def shardings_of(encoded: bytes) -> list[tuple[str, str]]:
    """Return configuration and name of each tensor of which is said how it is spread."""
    configurations = _configurations(encoded)
    return [(c.configuration_id, s.tensor_name) for c in configurations for s in c.sharding_spec]


def joined_devices(carried: Iterable[bytes], names: Container[str]) -> bytes:
    """Return what nodes, which run on the same devices, say of that and of tensors of *names*."""
    joined = NodeProto()
    known: dict[str, Any] = {}
    for item in (item for encoded in carried for item in _configurations(encoded)):
        name = item.configuration_id
        if name not in known:
            known[name] = joined.device_configurations.add(configuration_id=name)
        if item.HasField("pipeline_stage"):
            known[name].pipeline_stage = item.pipeline_stage
        told = {spec.tensor_name for spec in known[name].sharding_spec}
        known[name].sharding_spec.extend(
            s for s in item.sharding_spec if s.tensor_name in names and s.tensor_name not in told
        )
    for item in reversed(list(joined.device_configurations)):
        if not item.sharding_spec and not item.HasField("pipeline_stage"):
            joined.device_configurations.remove(item)
    data: bytes = joined.SerializeToString()
    return data


def moved_devices(own: bytes, names: Mapping[str, str], call: bytes = b"") -> bytes:
    """Return what a node of a function carries beside remarks where the function is called.

    A node that does not say where it runs does so where the call does.

    Args:
        own: What it carries in the function.
        names: By name in the function, that of what it reads and makes here.
        call: What the call carries.
    """
    proto = NodeProto.FromString(own)
    for place in proto.device_configurations:
        for spec in place.sharding_spec:
            spec.tensor_name = names.get(spec.tensor_name, spec.tensor_name)
    if not proto.device_configurations:
        proto.MergeFromString(joined_devices([call], names.values()))
    data: bytes = proto.SerializeToString()
    return data


def _configurations(encoded: bytes) -> Sequence[Any]:
    try:
        return list(NodeProto.FromString(encoded).device_configurations)
    except DecodeError:  # what a call says of its nodes may be anything
        return ()


def decode_statement(encoded: bytes) -> tuple[TensorType | None, StatedType]:
    """Read what a graph states of a value: its type, and all of it.

    Args:
        encoded: A ``ValueInfoProto`` without the name. What we have no words for stays encoded.
    """
    proto = ValueInfoProto.FromString(encoded)
    proto.name = ""
    known = decode_type(proto.type)
    found = StatedType(known, remarks_of(proto))
    try:
        is_all = encode_statement("", found) == proto
    except ValueError:
        is_all = False  # a symbol is not UTF-8 text
    return known, found if is_all else StatedType(None, encoded=proto.SerializeToString())


def encode_statement(name: str, stated: StatedType) -> ValueInfoProto | None:
    """Write what is stated of the value *name*; None if it came encoded and cannot be read."""
    if stated.encoded:
        proto = ValueInfoProto()
        try:
            proto.ParseFromString(stated.encoded)
        except DecodeError:
            return None
        proto.name = name
        return proto
    if stated.known is None:
        return None
    proto = encode_type(name, stated.known)
    doc, metadata, _ = stated.remarks
    if doc:
        proto.doc_string = doc
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value)
    return proto


def restated(stated: StatedType, symbols: Mapping[str, Dim]) -> StatedType:
    """Return a statement with other words, or numbers, for the symbols of a tensor's sizes."""
    if stated.known is not None:
        dims = stated.known.shape
        words = dims and tuple(symbols.get(d, d) if isinstance(d, str) else d for d in dims)
        return stated._replace(known=stated.known._replace(shape=words))
    proto = ValueInfoProto.FromString(stated.encoded)
    for dim in proto.type.tensor_type.shape.dim:
        word = symbols.get(dim.dim_param)
        if isinstance(word, int):
            dim.dim_value = word
        elif word:
            dim.dim_param = word
    return stated._replace(encoded=proto.SerializeToString())


def _dim(proto: onnx.TensorShapeProto.Dimension) -> Dim:
    value = proto.dim_value
    if value > 0:
        return value
    if value == 0 and proto.HasField("dim_value"):
        return 0
    return proto.dim_param or None


def dtype_bits(code: int) -> int:
    """Return the size of one element in bits; 0 for a type that is unknown or has no size."""
    return bits_of(dtype_name(code))
