"""Cut a part out of a model, so that it runs by itself on what flows into it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from onnx import ModelProto, TypeProto, ValueInfoProto

from dplcli.errors import UsageError, did_you_mean, opt, some_of
from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.ir.operators import canonical_domain
from dplcli.onnx_io.convert import all_nodes, encode_type, graphs_of, names_read
from dplcli.onnx_io.infer import count_calls, functions_in_order
from dplcli.onnx_io.parts import copy_but

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

    from onnx import GraphProto, NodeProto

    from dplcli.ir import TensorType


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs that *node* holds as attributes."""
    return (graph for _, graph in graphs_of(node))


def label_of(node: NodeProto) -> str:
    """Name a node by its operator and the first value that it makes."""
    return f"{node.op_type} {next(filter(None, node.output), '')!r}"


class Wiring:
    """Which node makes and which nodes read a value, in the main graph of a model.

    What the bodies of a node read, the node reads.

    Args:
        model: The model, which is not changed.
    """

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.nodes = list(model.graph.node)
        self.reads = [tuple(dict.fromkeys(names_read(node))) for node in self.nodes]
        self.makers: dict[str, int] = {}
        self.readers: dict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(self.nodes):
            self.makers.update((name, index) for name in node.output if name)
            for name in self.reads[index]:
                self.readers[name].append(index)
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.sparse = {item.values.name: item for item in model.graph.sparse_initializer}
        self.outputs = {info.name for info in model.graph.output}

    def holders(self, names: Collection[str]) -> set[int]:
        """Return the nodes that make one of *names*, or in whose bodies or function it is made."""
        functions = {
            (function.domain, function.name)
            for function in self.model.functions
            if any(name in names for node in function.node for name in _made(node))
        }
        return {
            index
            for index, node in enumerate(self.nodes)
            if (node.domain, node.op_type) in functions or any(n in names for n in _made(node))
        }

    def neighbours(self, nodes: set[int]) -> set[int]:
        """Return *nodes* and those that make what they read, or read what they make."""
        near = set(nodes)
        for index in nodes:
            near |= {self.makers[name] for name in self.reads[index] if name in self.makers}
            for name in self.nodes[index].output:
                near.update(self.readers.get(name, ()))
        return near

    def with_constants(self, nodes: Collection[int]) -> set[int]:
        """Return *nodes* and the Constant nodes that they read."""
        read = {self.makers.get(name) for index in nodes for name in self.reads[index]}
        return set(nodes) | {
            index
            for index in read
            if index is not None
            and self.nodes[index].op_type == "Constant"
            and not canonical_domain(self.nodes[index].domain)
        }

    def entering(self, nodes: Collection[int], fed: Container[str] = ()) -> list[str]:
        """Return what *nodes* read that is no initializer and that they do not make.

        What is in *fed* enters, whether they make it or not.
        """
        outputs = {n for index in nodes for n in self.nodes[index].output if n not in fed}
        read = dict.fromkeys(name for index in sorted(nodes) for name in self.reads[index])
        stored = (self.initializers, self.sparse, outputs)
        return [name for name in read if not any(name in own for own in stored)]

    def leaving(self, nodes: Collection[int]) -> list[str]:
        """Return what *nodes* make that others read or the model returns.

        If there is no such value, return those that nobody reads.
        """
        read_later, last = [], []
        for index in sorted(nodes):
            for name in filter(None, self.nodes[index].output):
                readers = self.readers.get(name, ())
                if name in self.outputs or any(reader not in nodes for reader in readers):
                    read_later.append(name)
                elif not readers:
                    last.append(name)
        return read_later or last

    def between(
        self, start: Container[str], end: Iterable[str], known: Container[int] = ()
    ) -> set[int]:
        """Return the nodes that compute *end* from the values of *start*, and from nothing else.

        What is in both is computed, too. Nodes that are *known*, and those before them, are not
        among them.
        """
        rows: set[int] = set()
        makers = [self.makers.get(name) for name in end]
        while makers:
            index = makers.pop()
            if index is None or index in rows or index in known:
                continue
            rows.add(index)
            makers += [self.makers.get(name) for name in self.reads[index] if name not in start]
        return rows


_MADE = "dpl/made/"


def made_name(name: str) -> str:
    """Return how a value is called that :func:`cut` makes beside what is fed in its place."""
    return f"{_MADE}{name}"


def cut(
    wiring: Wiring,
    nodes: Collection[int],
    types: Mapping[str, TypeProto],
    ends: Sequence[str],
    fed: Container[str] = (),
) -> ModelProto:
    """Return a model of *nodes* alone; values keep their names.

    Args:
        wiring: The model.
        nodes: Indices of what is to be kept.
        types: The types of what enters, and of what leaves where that has to be said.
        ends: What the model is to return.
        fed: Values that nodes read as they are fed. What the nodes make there has the name of
            :func:`made_name`.
    """
    old, new = wiring.model, ModelProto()
    new.ir_version = old.ir_version
    new.opset_import.extend(old.opset_import)
    new.functions.extend(old.functions)
    new.graph.name = old.graph.name or "cut"
    new.graph.node.extend(wiring.nodes[index] for index in sorted(nodes))
    read = {name for index in nodes for name in wiring.reads[index]}
    outputs = {name for index in nodes for name in wiring.nodes[index].output}
    new.graph.initializer.extend(t for name, t in wiring.initializers.items() if name in read)
    new.graph.sparse_initializer.extend(t for name, t in wiring.sparse.items() if name in read)
    for node in new.graph.node:
        for place, name in enumerate(node.output):
            if name in fed:
                node.output[place] = made_name(name)
    for name in wiring.entering(nodes, fed):
        new.graph.input.add(name=name, type=types[name])
    for name in ends:
        new.graph.output.add(
            name=made_name(name) if name in fed else name, type=types.get(name, TypeProto())
        )
    shown = {name for name in read | outputs if name in fed} | set(ends)
    new.graph.value_info.extend(
        info for info in old.graph.value_info if info.name in outputs and info.name not in shown
    )
    return new


def _made(node: NodeProto) -> Iterator[str]:
    """Yield what a node makes, and what is made in its bodies."""
    yield from filter(None, node.output)
    for graph in subgraphs(node):
        yield from (name for inner in all_nodes(graph) for name in inner.output if name)


# The part between values that somebody names.


def named_values(wiring: Wiring, option: str, names: Iterable[str]) -> list[str]:
    """Return the values of the main graph that an option names, each once; commas separate several.

    Raises:
        UsageError: There is no such value.
    """
    main = {info.name for info in wiring.model.graph.input} | wiring.initializers.keys()
    main |= wiring.makers.keys() | wiring.sparse.keys()
    named: dict[str, None] = {}
    for text in names:
        for name in [text] if text in main else map(str.strip, text.split(",")):
            if name not in main:
                raise _missing(wiring, main, option, name)
            named[name] = None
    return list(named)


def _missing(wiring: Wiring, main: Collection[str], option: str, name: str) -> UsageError:
    node = next((node for node in reversed(wiring.nodes) if name and node.name == name), None)
    if node is not None:
        outputs = ", ".join(map(repr, filter(None, node.output)))
        return UsageError(
            f"{option} {name!r}: is a node, and a value is needed", hint=f"it makes {outputs}"
        )
    bodies = (body for node in wiring.nodes for body in subgraphs(node))
    if name and any(name in inner.output for body in bodies for inner in all_nodes(body)):
        return UsageError(
            f"{option} {name!r}: lies in the body of a node, such as a branch of If",
            hint="name values of the main graph",
        )
    hint = did_you_mean(name, sorted(main))
    return UsageError(f"{option} {name!r}: the model has no such value", hint=hint)


def part_between(
    wiring: Wiring, start: Sequence[str], end: Sequence[str], known: Mapping[str, TensorType]
) -> ModelProto:
    """Return what computes some values from others: its nodes, weights and functions.

    Inputs of the model that are needed as well are inputs of the part, too.

    Args:
        wiring: The model.
        start: Values that the part is given.
        end: Values that it computes.
        known: The types of values, as far as they are known.

    Raises:
        UsageError: A value plays no part, or no type of it is stated or known.
    """
    if both := [name for name in end if name in start]:
        raise UsageError(
            f"{opt('to')} {both[0]!r}: is named by {opt('from_')}, too: there is nothing between"
        )
    nodes = wiring.between(set(start), end)
    if given := [name for name in end if name not in wiring.makers]:
        raise UsageError(f"{opt('to')} {given[0]!r}: no node makes it: it is given")
    entering = wiring.entering(nodes)
    read = {name for index in nodes for name in wiring.reads[index]}
    if idle := [name for name in start if name not in read]:
        raise UsageError(
            f"{opt('from_')} {idle[0]!r}: nothing between it and the end reads it",
            hint="leave it out, or name another end",
        )
    weights = [name for name in start if name in read and name not in entering]
    types = _types(wiring, known, [*weights, *entering, *end])
    part = cut(wiring, nodes, types, end)
    if weights:  # what was stored is given now
        kept = [tensor for tensor in part.graph.initializer if tensor.name not in weights]
        sparse = [t for t in part.graph.sparse_initializer if t.values.name not in weights]
        del part.graph.initializer[:], part.graph.sparse_initializer[:]
        part.graph.initializer.extend(kept)
        part.graph.sparse_initializer.extend(sparse)
    order = [name for name in start if name in {*weights, *entering}]
    order += [name for name in entering if name not in start]
    whole = wiring.model.graph
    stated = {info.name: info for info in (*whole.value_info, *whole.output, *whole.input)}
    del part.graph.input[:], part.graph.output[:]
    part.graph.input.extend(_described(name, types[name], stated) for name in order)
    part.graph.output.extend(_described(name, types[name], stated) for name in end)
    part.MergeFrom(copy_but(wiring.model, _OF_CUTS | {"training_info"}))
    part.graph.MergeFrom(copy_but(whole, _OF_CUTS | {"quantization_annotation"}))
    # Say how values are quantised, as far as the part can have the tensors for that.
    names = read | {n for index in nodes for n in wiring.nodes[index].output}
    graph = part.graph
    there = {*names, *(tensor.name for tensor in graph.initializer)}
    for note in wiring.model.graph.quantization_annotation:
        needed = {entry.value for entry in note.quant_parameter_tensor_names} - there
        if note.tensor_name in names and needed <= wiring.initializers.keys():
            graph.quantization_annotation.add().CopyFrom(note)
            graph.initializer.extend(wiring.initializers[name] for name in sorted(needed))
            there |= needed
    if part.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS:
        part.graph.input.extend(
            stated[tensor.name] for tensor in part.graph.initializer if tensor.name in stated
        )
    _drop_functions(part)
    return part


_OF_CUTS = {"ir_version", "opset_import", "functions", "graph", "name", "node", "input", "output"}
_OF_CUTS |= {"initializer", "sparse_initializer", "value_info"}
"""What :func:`cut` has seen to; the rest is said of the whole model, and holds for a part."""


def _described(name: str, kind: TypeProto, stated: Mapping[str, ValueInfoProto]) -> ValueInfoProto:
    """Return what is stated of a value with the type *kind*, which is at least as exact."""
    info = ValueInfoProto(name=name)
    info.CopyFrom(stated.get(name, info))
    old, new = info.type.tensor_type.shape.dim, kind.tensor_type.shape.dim
    meanings = [dim.denotation for dim in old] if len(old) == len(new) else []
    meaning = info.type.denotation
    info.type.CopyFrom(kind)
    if meaning:
        info.type.denotation = meaning
    for dim, text in zip(info.type.tensor_type.shape.dim, meanings, strict=False):
        if text:
            dim.denotation = text
    return info


def left_out(wiring: Wiring, part: ModelProto) -> Iterator[str]:
    """Say what the model states that :func:`part_between` could not keep."""
    if wiring.model.training_info:
        yield "left out: the training information, which is of the whole model"
    values = {name for node in part.graph.node for name in (*node.input, *node.output)}
    kept = {note.tensor_name for note in part.graph.quantization_annotation}
    notes = wiring.model.graph.quantization_annotation
    lost = {note.tensor_name: None for note in notes if note.tensor_name in values - kept}
    if lost:
        named = some_of(list(lost))
        yield f"left out: the quantization annotations of {named}, whose parameters are computed"


def _types(
    wiring: Wiring, known: Mapping[str, TensorType], names: Iterable[str]
) -> dict[str, TypeProto]:
    """Return what is stated of values or, where nothing is, what follows."""
    graph = wiring.model.graph
    stated: Mapping[str, TypeProto] = {
        info.name: info.type
        for info in (*graph.value_info, *graph.output, *graph.input)
        if info.type.WhichOneof("value") not in {None, "tensor_type"}
        or info.type.tensor_type.elem_type
    }
    types = {}
    for name in names:
        inferred = encode_type(name, known[name]).type if name in known else None
        if inferred is not None and inferred.tensor_type.elem_type:
            types[name] = inferred
        elif name in stated:
            types[name] = stated[name]
        else:
            raise UsageError(
                f"{name!r}: its type is not stated and does not follow",
                hint=_untyped(wiring, {*known, *stated}, name),
            )
    return types


def _untyped(wiring: Wiring, typed: Container[str], name: str) -> str:
    """Return what helps where no type of a value is known: it is lost at some node before."""
    index = wiring.makers[name]
    while unknown := [
        each for each in wiring.reads[index] if each in wiring.makers and each not in typed
    ]:
        index = wiring.makers[unknown[0]]
    node = wiring.nodes[index]
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    computed = [each for each in wiring.reads[index] if each not in wiring.initializers]
    before = f"cut before it, at {some_of(computed)}, or " if computed else ""
    output = next(filter(None, node.output))
    return (
        f"nothing says what {operator} makes: {before}state the type of {output!r} in the model's "
        "value_info, with onnx.helper.make_tensor_value_info"
    )


def _drop_functions(part: ModelProto) -> None:
    """Take out the functions that nothing calls."""
    functions = functions_in_order(part)
    called = {*count_calls(part.graph.node, functions)[1]}
    for key, (_, inside) in reversed(functions.items()):
        called.update(inside if key in called else ())
    kept = [
        each
        for each in part.functions
        if (canonical_domain(each.domain), each.name, each.overload) in called
    ]
    del part.functions[:]
    part.functions.extend(kept)


def operators_of(model: ModelProto) -> dict[str, int]:
    """Count the nodes of the main graph by operator, the most frequent first."""
    names = (
        ".".join(filter(None, (canonical_domain(node.domain), node.op_type)))
        for node in model.graph.node
    )
    return dict(Counter(names).most_common())
