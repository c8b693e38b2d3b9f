"""Topological order of node messages, for files that do not keep it."""

from collections import deque
from collections.abc import Iterator, Sequence

from onnx import GraphProto, NodeProto

from dplcli.onnx_io.attributes import graphs_of


def sort_nodes(protos: Sequence[NodeProto]) -> list[NodeProto]:
    """Sort *protos* so that producers come first; stable (Kahn's algorithm).

    Names that none of *protos* makes are taken as defined elsewhere. Nodes on a cycle, and those
    that depend on one, are left out.
    """
    maker = {name: index for index, proto in enumerate(protos) for name in proto.output if name}
    consumers: dict[int, list[int]] = {}
    waiting = []
    for index, proto in enumerate(protos):
        makers = {maker[name] for name in _names_read(proto) if name in maker}
        waiting.append(len(makers))
        for made_by in makers:
            consumers.setdefault(made_by, []).append(index)
    ready = deque(index for index, count in enumerate(waiting) if not count)
    ordered = []
    while ready:
        index = ready.popleft()
        ordered.append(protos[index])
        for consumer in consumers.get(index, ()):
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
    return ordered


def _names_read(proto: NodeProto) -> Iterator[str]:
    yield from proto.input
    for _, graph in graphs_of(proto):
        yield from _names_captured(graph)


def _names_captured(graph: GraphProto) -> set[str]:
    defined = {info.name for info in graph.input}
    defined |= {tensor.name for tensor in graph.initializer}
    defined |= {tensor.values.name for tensor in graph.sparse_initializer}
    defined |= {name for proto in graph.node for name in proto.output}
    read = {name for proto in graph.node for name in _names_read(proto)}
    read |= {info.name for info in graph.output}
    return read - defined
