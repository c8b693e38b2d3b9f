"""What a value is computed by, as a digest: equal digests, equal computations from equal inputs.

Names of nodes and of values do not enter, with the exception of graph inputs; attributes, weights
and bodies do. Identity is looked through, and where a constant is kept makes no difference.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

import onnx

from dplcli.ir.randomness import RANDOM_OPS
from dplcli.verify.dataflow import attribute

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_STANDARD = frozenset({"", "ai.onnx"})
Digests = dict[str, bytes]


def digests(model: onnx.ModelProto) -> Digests:
    """Return the digest of every value of the main graph."""
    return _Digester(model).main()


class _Digester:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.versions = {_domain(item.domain): item.version for item in model.opset_import}
        self.functions = {
            (_domain(function.domain), function.name): _hashed(
                b"function", function.SerializeToString(deterministic=True)
            )
            for function in model.functions
        }
        self.unique = 0

    def main(self) -> Digests:
        """Return the digests of the main graph."""
        graph = self.model.graph
        found = {info.name: _hashed(b"input", info.name.encode()) for info in graph.input}
        found |= {tensor.name: _tensor(tensor) for tensor in graph.initializer}
        self._walk(graph.node, found)
        return found

    def _walk(self, nodes: Iterable[onnx.NodeProto], found: Digests) -> None:
        """Add the digests of what *nodes* make."""
        for node in nodes:
            base = self._node(node, found)
            for index, name in enumerate(node.output):
                if name:
                    found[name] = self._output(node, base, index, found)

    def _output(
        self, node: onnx.NodeProto, base: bytes, index: int, found: Mapping[str, bytes]
    ) -> bytes:
        if _domain(node.domain) == "" and not index:
            if node.op_type == "Identity" and node.input[0] in found:
                return found[node.input[0]]
            value = attribute(node, "value") if node.op_type == "Constant" else None
            if value is not None and value.type == onnx.AttributeProto.TENSOR:
                return _tensor(value.t)
        return _hashed(base, str(index).encode())

    def _node(self, node: onnx.NodeProto, found: Mapping[str, bytes]) -> bytes:
        """Return the digest of an operator with its attributes and inputs."""
        domain = _domain(node.domain)
        if node.op_type in RANDOM_OPS:
            return self._nothing_else()
        inputs = list(node.input)
        while inputs and not inputs[-1]:
            inputs.pop()
        parts = [
            domain.encode(),
            node.op_type.encode(),
            str(self.versions.get(domain, 0)).encode(),
            self.functions.get((domain, node.op_type), b""),
        ]
        parts += [found.get(n) or self._nothing_else() if n else b"" for n in inputs]
        parts += [
            _hashed(item.name.encode(), self._attribute(item, found))
            for item in sorted(node.attribute, key=lambda item: item.name)
        ]
        return _hashed(*parts)

    def _attribute(self, item: onnx.AttributeProto, found: Mapping[str, bytes]) -> bytes:
        if item.type == onnx.AttributeProto.GRAPH:
            return self._body(item.g, found)
        if item.type == onnx.AttributeProto.GRAPHS:
            return _hashed(*(self._body(graph, found) for graph in item.graphs))
        if item.type == onnx.AttributeProto.TENSOR:
            return _tensor(item.t)
        plain = onnx.AttributeProto()
        plain.CopyFrom(item)
        plain.ClearField("doc_string")
        content: bytes = plain.SerializeToString(deterministic=True)
        return content

    def _body(self, graph: onnx.GraphProto, outer: Mapping[str, bytes]) -> bytes:
        """Return the digest of what a body returns, captured values included."""
        found = dict(outer)
        for index, info in enumerate(graph.input):
            found[info.name] = _hashed(b"formal", str(index).encode())
        found |= {tensor.name: _tensor(tensor) for tensor in graph.initializer}
        self._walk(graph.node, found)
        return _hashed(*(found.get(i.name) or self._nothing_else() for i in graph.output))

    def _nothing_else(self) -> bytes:
        """Return a digest that nothing else has, in no model."""
        self.unique += 1
        return _hashed(b"unique", str((id(self), self.unique)).encode())


def _tensor(tensor: onnx.TensorProto) -> bytes:
    head = f"{tensor.data_type}{tuple(tensor.dims)}".encode()
    if tensor.data_type == onnx.TensorProto.STRING:
        return _hashed(b"tensor", head, *tensor.string_data)
    try:
        data = onnx.numpy_helper.to_array(tensor).tobytes()
    except (ValueError, TypeError):
        data = tensor.SerializeToString(deterministic=True)
    return _hashed(b"tensor", head, data)


def _hashed(*parts: bytes) -> bytes:
    """Return the digest of *parts*, of which no two lists run into each other."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def _domain(domain: str) -> str:
    return "" if domain in _STANDARD else domain


def same_digest(
    ours: Mapping[str, bytes], theirs: dict[str, bytes], names: Sequence[str]
) -> dict[str, str]:
    """Return for each of *names* a value of the other model with its digest, each once."""
    alike: dict[bytes, list[str]] = defaultdict(list)
    for name in reversed(theirs):
        alike[theirs[name]].append(name)
    found = {}
    for name in names:
        if partners := alike.get(ours.get(name, b"")):
            found[name] = partners.pop()
    return found
