"""Counting the nodes of a model in the one way that is fair to every tool.

The canonical count of a model:

* A node counts once wherever it stands: in the main graph, or in a body (of If, Loop, Scan, …) at
  any depth. How often a loop runs does not matter.
* A node that calls a function of the model counts as what the function's body counts, calls in
  there counted the same way; the call itself counts nothing. A tool that inlines functions, or one
  that makes some, therefore neither gains nor loses, and a function that nobody calls is nothing.
* ``Constant`` nodes are counted apart: a tool may keep a constant as such a node or as an
  initializer, and that is no work saved. "Nodes" without further words are those without them.
* Everything else is one node each, whatever its domain: an operator of ONNX that is itself defined
  as a function (Gelu, LayerNormalization, …) is one node unless the model brings a function of
  that name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import onnx

FunctionKey: TypeAlias = tuple[str, str, str]

_DEFAULT_DOMAINS = ("", "ai.onnx")
_CONSTANT = "Constant"


@dataclass(frozen=True)
class NodeCount:
    """The canonical count of one model.

    Attributes:
        ops: Nodes per operator, those of another domain as ``domain::Op``, without Constant.
        constants: Constant nodes.
    """

    ops: Counter[str]
    constants: int

    @property
    def nodes(self) -> int:
        """Nodes without Constant nodes."""
        return self.ops.total()

    def more_than(self, before: "NodeCount") -> dict[str, int]:
        """Return the operators that there are more of than *before*, most first."""
        return dict((self.ops - before.ops).most_common())


def count_file(path: Path) -> NodeCount:
    """Return the canonical count of a model file; its external data need not be there."""
    return count_nodes(onnx.load(path, load_external_data=False))


def count_nodes(model: onnx.ModelProto) -> NodeCount:
    """Return the canonical count of *model*."""
    functions = {_function_key(f.domain, f.name, f.overload): f for f in model.functions}
    ops = _Counting(functions).nodes(model.graph.node)
    constants = ops.pop(_CONSTANT, 0)
    return NodeCount(ops, constants)


class _Counting:
    """Counts each function once, and takes its count at every call."""

    def __init__(self, functions: dict[FunctionKey, onnx.FunctionProto]) -> None:
        self._functions = functions
        self._known: dict[FunctionKey, Counter[str]] = {}

    def nodes(self, nodes: Iterable[onnx.NodeProto]) -> Counter[str]:
        found: Counter[str] = Counter()
        for node in _with_bodies(nodes):
            key = _function_key(node.domain, node.op_type, node.overload)
            if key in self._functions:
                found += self._function(key)
            else:
                found[_operator(node)] += 1
        return found

    def _function(self, key: FunctionKey) -> Counter[str]:
        if key not in self._known:
            self._known[key] = Counter()  # a function that calls itself, which ONNX forbids, ends
            self._known[key] = self.nodes(self._functions[key].node)
        return self._known[key]


def _with_bodies(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield *nodes* and those in their bodies, at any depth."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            waiting += attribute.g.node
            for graph in attribute.graphs:
                waiting += graph.node


def _function_key(domain: str, name: str, overload: str) -> FunctionKey:
    return ("" if domain in _DEFAULT_DOMAINS else domain, name, overload)


def _operator(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in _DEFAULT_DOMAINS else f"{node.domain}::{node.op_type}"
