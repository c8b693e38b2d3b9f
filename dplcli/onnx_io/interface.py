"""What a file says of a model's interface, said anew: sizes of its inputs, and names of values.

No node and no weight is touched, but for the names that it reads and makes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from onnx import GraphProto, ModelProto

from dplcli.errors import UsageError, did_you_mean, opt
from dplcli.onnx_io.convert import all_scopes, graphs_of, names_in_training, names_read
from dplcli.onnx_io.read import model_from_proto
from dplcli.onnx_io.source import source_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from onnx import TypeProto, ValueInfoProto

    from dplcli.ir import Model

    Size: TypeAlias = int | str
    """A number, or the symbol of a dimension that is open."""


class Restated(NamedTuple):
    """A model with another interface.

    Attributes:
        proto: Its message.
        notes: What is said anew, a sentence each.
        trial: Sizes of dimensions that are open now and were not: what was baked in shows there.
    """

    proto: ModelProto
    notes: tuple[str, ...]
    trial: Mapping[str, int]


def restate(
    model: Model, shape: Mapping[str, Size | Sequence[int]], rename: Mapping[str, str]
) -> Restated:
    """Return a loaded model with other sizes and names; the model itself stays as it is.

    What follows from sizes of inputs is inferred anew, or left out where it does not follow.

    Args:
        model: The model.
        shape: The size of a symbol or of ``input:axis``, or a whole shape of an input.
        rename: New names of values of the main graph, by the old ones.

    Raises:
        UsageError: The model has no such dimension or value, a name is taken, or two sizes
            contradict each other.
    """
    source = source_of(model)
    proto = ModelProto()
    proto.CopyFrom(source.proto)
    notes: list[str] = []
    trial: dict[str, int] = {}
    if shape:
        before = {info.name: info.type for info in source.proto.graph.output}
        notes += _resized(proto, shape, trial)
        again = model_from_proto(proto, source.home.folder, source.home.label)
        again.infer()
        known = {value.name: value.known_type() for value in again.graph.outputs}
        symbols = {dim.dim_param for info in proto.graph.input for dim in _dims(info.type)}
        for info in proto.graph.output:
            kind, was = known.get(info.name), _shape_text(before[info.name])
            open_axes = [None for _ in _dims(before[info.name])]
            inferred = kind.shape if kind is not None else None
            _fill(info.type, open_axes if inferred is None else inferred, symbols)
            if (now := _shape_text(info.type)) != was:
                notes.append(f"the output {info.name!r} has the shape {now}; it was {was}")
    if rename:
        notes += _renamed(proto, rename)
    return Restated(proto, tuple(notes), trial)


# Sizes.


def _resized(
    proto: ModelProto, shape: Mapping[str, Size | Sequence[int]], trial: dict[str, int]
) -> Iterator[str]:
    """Change sizes of inputs, and what is stated of values that they reach; fill in *trial*."""
    graph = proto.graph
    stored = {tensor.name for tensor in graph.initializer}
    inputs = {info.name: info for info in graph.input if info.name not in stored}
    symbols, axes = _settled(inputs, shape)
    changed: set[str] = set()
    for (name, axis), new in axes.items():
        dim = _dim(inputs, name, axis)
        if dim.dim_value != new or isinstance(new, str):
            changed.add(name)
            was = dim.dim_value if dim.HasField("dim_value") else "open"
            if isinstance(was, int) and isinstance(new, str):
                trial.setdefault(new, 2 * was)  # which keeps it a multiple of what it has to be
            yield f"axis {axis} of {name!r} is {new}; it was {was}"
        _set(dim, new)
    _forget(graph, changed)
    for symbol, new in symbols.items():
        if symbol != new:
            yield f"the dimension {symbol} is {new}"
    for info in _statements(graph):
        for dim in _dims(info.type):
            if dim.dim_param in symbols:
                _set(dim, symbols[dim.dim_param])


def _settled(
    inputs: Mapping[str, ValueInfoProto], shape: Mapping[str, Size | Sequence[int]]
) -> tuple[dict[str, Size], dict[tuple[str, int], Size]]:
    """Return the sizes of symbols, and of axes that have none.

    Raises:
        UsageError: There is no such dimension, or it is given two sizes.
    """
    symbols: dict[str, Size] = {}
    axes: dict[tuple[str, int], Size] = {}
    for at, new in _wanted(inputs, shape):
        symbol = at if isinstance(at, str) else _dim(inputs, *at).dim_param
        key = symbol or at
        known: dict[Any, Size] = symbols if symbol else axes
        if known.setdefault(key, new) != new:
            name = key if isinstance(key, str) else f"{key[0]}:{key[1]}"
            raise UsageError(f"{opt('shape')}: {name} cannot be both {known[key]} and {new}")
    return symbols, axes


def _wanted(
    inputs: Mapping[str, ValueInfoProto], shape: Mapping[str, Size | Sequence[int]]
) -> Iterator[tuple[str | tuple[str, int], Size]]:
    """Yield symbols, and axes of inputs, with their sizes.

    Raises:
        UsageError: There is no such dimension.
    """
    symbols = {dim.dim_param for info in inputs.values() for dim in _dims(info.type)} - {""}
    for name, new in shape.items():
        owner, _, axis = name.rpartition(":")
        for size in (new,) if isinstance(new, (int, str)) else new:
            if isinstance(size, int) and size < 0:
                raise UsageError(f"{opt('shape')} {name}: {size} is no size")
        if not isinstance(new, (int, str)):
            if name not in inputs:
                hint = did_you_mean(name, inputs) or f"there are: {', '.join(inputs)}"
                raise UsageError(f"{opt('shape')} {name}: there is no such input", hint=hint)
            rank = _rank(inputs[name])
            if rank != len(new):
                raise UsageError(f"{opt('shape')} {name}: it has {rank} axes, not {len(new)}")
            yield from (((name, number), size) for number, size in enumerate(new))
        elif name in symbols:
            yield name, new
        elif owner in inputs and axis.removeprefix("-").isdecimal():
            rank = _rank(inputs[owner])
            if not -rank <= int(axis) < rank:
                raise UsageError(f"{opt('shape')} {name}: {owner} has {rank} axes, from 0")
            yield (owner, int(axis) % rank), new
        else:
            there = [*sorted(symbols), *(f"{each}:AXIS" for each in inputs)]
            hint = did_you_mean(name, there) or f"there are: {', '.join(there)}"
            raise UsageError(f"{opt('shape')}: no input has a dimension {name!r}", hint=hint)


def _dim(inputs: Mapping[str, ValueInfoProto], name: str, axis: int) -> Any:  # noqa: ANN401  # a message inside a message
    return inputs[name].type.tensor_type.shape.dim[axis]


def _rank(info: ValueInfoProto) -> int:
    if not info.type.tensor_type.HasField("shape"):
        raise UsageError(f"{opt('shape')}: the model does not say how many axes {info.name} has")
    return len(info.type.tensor_type.shape.dim)


def _dims(kind: TypeProto) -> Iterator[Any]:
    """Yield the dimensions of a tensor, or of those in a sequence or an optional."""
    held = kind.WhichOneof("value")
    if held in {"tensor_type", "sparse_tensor_type"}:
        yield from getattr(kind, held).shape.dim
    elif held in {"sequence_type", "optional_type"}:
        yield from _dims(getattr(kind, held).elem_type)


def _set(dim: Any, size: Size | None) -> None:  # noqa: ANN401  # a message inside a message
    dim.ClearField("value")
    if isinstance(size, int):
        dim.dim_value = size
    elif size is not None:
        dim.dim_param = size


def _statements(graph: GraphProto) -> Iterator[ValueInfoProto]:
    """Yield what is stated of the values of a graph and of the bodies in it."""
    for scope in all_scopes(graph):
        yield from scope.value_info
        if isinstance(scope, GraphProto):
            yield from (*scope.input, *scope.output)


def _forget(graph: GraphProto, reached: set[str]) -> None:
    """Leave out what is stated of values that follow from others, which have other sizes now.

    Args:
        graph: The main graph.
        reached: The inputs with other sizes.
    """
    if not reached:
        return
    for node in graph.node:
        if not reached.isdisjoint(names_read(node)):
            reached |= {*node.output}
            for info in (i for _, body in graphs_of(node) for i in _statements(body)):
                for dim in _dims(info.type):
                    _set(dim, None)
    reached -= {info.name for info in graph.input}
    kept = [info for info in graph.value_info if info.name not in reached]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    for info in graph.output:
        if info.name in reached and info.type.WhichOneof("value") == "tensor_type":
            info.type.tensor_type.ClearField("shape")  # inferred anew


def _fill(kind: TypeProto, shape: Sequence[Size | None], symbols: Container[str]) -> None:
    """State a shape that was inferred, as far as it says more than what is stated.

    Args:
        kind: The type of an output.
        shape: Its shape.
        symbols: Those of inputs; of other symbols a file says nothing.
    """
    if kind.WhichOneof("value") != "tensor_type":
        return
    stated = kind.tensor_type.shape
    if not kind.tensor_type.HasField("shape"):
        stated.SetInParent()
        stated.dim.extend(type(stated).Dimension() for _ in shape)
    for dim, size in zip(stated.dim, shape, strict=False):
        if isinstance(size, str) and (dim.WhichOneof("value") or not _is_of(size, symbols)):
            continue
        if size is not None:
            _set(dim, size)


def _is_of(size: str, symbols: Container[str]) -> bool:
    return all(name in symbols for name in _NAME.findall(size))


_NAME = re.compile(r"[^\W\d]\w*")


def _shape_text(kind: TypeProto) -> str:
    dims = [
        dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else "?")
        for dim in _dims(kind)
    ]
    return f"[{', '.join(map(str, dims))}]"


# Names.


def _renamed(proto: ModelProto, names: Mapping[str, str]) -> Iterator[str]:
    """Give values of the main graph other names, wherever they are named.

    Raises:
        UsageError: There is no such value, or a name is taken.
    """
    graph = proto.graph
    own = _defined(graph)
    everywhere = {name for scope in all_scopes(graph) for name in _defined(scope)} - names.keys()
    in_training, _, _ = names_in_training(proto.training_info)
    for old, new in names.items():
        if old not in own:
            hint = did_you_mean(old, sorted(own))
            raise UsageError(f"{opt('rename')} {old}: the model has no such value", hint=hint)
        if old in in_training or new in in_training:
            raise UsageError(f"{opt('rename')} {old}: the training information names it")
        if not new:
            raise UsageError(f"{opt('rename')} {old}: nothing is no name")
        if new in everywhere:
            hint = "give that another name, too" if new in own else None
            raise UsageError(f"{opt('rename')} {old}={new}: the name is taken", hint=hint)
        everywhere.add(new)
        yield f"{old!r} is called {new!r}"
    pending: list[tuple[GraphProto, Mapping[str, str]]] = [(graph, names)]
    for scope, visible in pending:
        rename_in(scope, visible)
        for body in (body for node in scope.node for _, body in graphs_of(node)):
            hidden = _defined(body)  # what a body defines has nothing to do with names outside
            inner = {old: new for old, new in visible.items() if old not in hidden}
            pending.append((body, inner))


def rename_in(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Give values other names in one graph, but for the bodies in it."""
    values: list[Any] = [*graph.input, *graph.output, *graph.value_info, *graph.initializer]
    values += [sparse.values for sparse in graph.sparse_initializer]
    for value in values:
        value.name = names.get(value.name, value.name)
    notes = graph.quantization_annotation
    shardings = [
        spec for n in graph.node for c in n.device_configurations for spec in c.sharding_spec
    ]
    for told in (*notes, *shardings):
        told.tensor_name = names.get(told.tensor_name, told.tensor_name)
    for entry in (entry for note in notes for entry in note.quant_parameter_tensor_names):
        entry.value = names.get(entry.value, entry.value)
    for said in (said for node in graph.node for said in (node.input, node.output)):
        if not names.keys().isdisjoint(said):
            said[:] = [names.get(name, name) for name in said]


def _defined(scope: Any) -> set[str]:  # noqa: ANN401  # a graph or a function
    """Return the values that a graph is given, stores or makes."""
    stored = (*scope.initializer, *scope.input) if isinstance(scope, GraphProto) else ()
    sparse = scope.sparse_initializer if isinstance(scope, GraphProto) else ()
    names = {item.name for item in stored} | {item.values.name for item in sparse}
    return (names | {name for node in scope.node for name in node.output}) - {""}
