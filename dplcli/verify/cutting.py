"""Cutting a part out of a model, so that it runs alone on what flows into it there."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import onnx

from dplcli.verify.dataflow import subgraphs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_STANDARD = frozenset({"", "ai.onnx"})


class Wiring:
    """Who makes and who reads what in the main graph of a model; bodies count for their node.

    Args:
        model: The model, which is not changed.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        """Index the main graph."""
        self.model = model
        self.nodes = list(model.graph.node)
        self.reads = [tuple(dict.fromkeys(read_names(node))) for node in self.nodes]
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
        """Return the nodes that make one of *names*: themselves, in a body or in a function."""
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
        found = set(nodes)
        for index in nodes:
            found |= {self.makers[name] for name in self.reads[index] if name in self.makers}
            for name in self.nodes[index].output:
                found.update(self.readers.get(name, ()))
        return found

    def with_constants(self, nodes: Collection[int]) -> set[int]:
        """Return *nodes* and the Constant nodes that they read."""
        read = {self.makers.get(name) for index in nodes for name in self.reads[index]}
        return set(nodes) | {
            index
            for index in read
            if index is not None
            and self.nodes[index].op_type == "Constant"
            and self.nodes[index].domain in _STANDARD
        }

    def entering(self, nodes: Collection[int]) -> list[str]:
        """Return what *nodes* read and neither make nor find among the initializers."""
        made = {name for index in nodes for name in self.nodes[index].output}
        read = dict.fromkeys(name for index in sorted(nodes) for name in self.reads[index])
        own = self.initializers.keys() | self.sparse.keys() | made
        return [name for name in read if name not in own]

    def leaving(self, nodes: Collection[int]) -> list[str]:
        """Return what *nodes* make and others read or the model returns; else their last values."""
        found, last = [], []
        for index in sorted(nodes):
            for name in filter(None, self.nodes[index].output):
                readers = self.readers.get(name, ())
                if name in self.outputs or any(reader not in nodes for reader in readers):
                    found.append(name)
                elif not readers:
                    last.append(name)
        return found or last

    def between(self, start: Collection[str], end: Iterable[str]) -> set[int]:
        """Return the nodes that *end* is computed by, from the values of *start* on."""
        found: set[int] = set()
        pending = list(end)
        while pending:
            name = pending.pop()
            index = self.makers.get(name)
            if index is None or index in found or name in start:
                continue
            found.add(index)
            pending += self.reads[index]
        return found


def cut(
    wiring: Wiring, nodes: Collection[int], types: Mapping[str, onnx.TypeProto], ends: Sequence[str]
) -> onnx.ModelProto:
    """Return a model of *nodes* alone, under the names that its values have.

    Args:
        wiring: The model.
        nodes: Indices of what is to be kept.
        types: The types of what enters and leaves.
        ends: What the model is to return.
    """
    old, new = wiring.model, onnx.ModelProto()
    new.ir_version = old.ir_version
    new.opset_import.extend(old.opset_import)
    new.functions.extend(old.functions)
    new.graph.name = old.graph.name or "cut"
    new.graph.node.extend(wiring.nodes[index] for index in sorted(nodes))
    read = {name for index in nodes for name in wiring.reads[index]}
    made = {name for index in nodes for name in wiring.nodes[index].output}
    new.graph.initializer.extend(t for name, t in wiring.initializers.items() if name in read)
    new.graph.sparse_initializer.extend(t for name, t in wiring.sparse.items() if name in read)
    for name in wiring.entering(nodes):
        new.graph.input.add(name=name, type=types[name])
    for name in ends:
        new.graph.output.add(name=name, type=types[name])
    shown = set(ends)
    new.graph.value_info.extend(
        info for info in old.graph.value_info if info.name in made and info.name not in shown
    )
    return new


def read_names(node: onnx.NodeProto) -> Iterator[str]:
    """Yield what a node reads, and what its bodies capture."""
    yield from filter(None, node.input)
    for graph in subgraphs(node):
        yield from _captured(graph)


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a body reads and does not make."""
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {tensor.values.name for tensor in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in read_names(node) if name not in own)
    yield from (info.name for info in graph.output if info.name not in own)


def _made(node: onnx.NodeProto) -> Iterator[str]:
    """Yield what a node makes, and what is made in its bodies."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield from filter(None, current.output)
        for graph in subgraphs(current):
            pending.extend(graph.node)
