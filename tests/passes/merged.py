"""What the tests of regions share: merging, undoing it, and looking for more to merge."""

from __future__ import annotations

import json
from itertools import permutations
from textwrap import dedent
from typing import TYPE_CHECKING, TypeAlias

import onnx

from dplcli.ir.traversal import captured_values, check_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.merge import merge_partitions
from dplcli.passes.partition import partition
from dplcli.passes.select import select_matches
from tests.support.helpers import (
    check_sound,
    model_from_bytes,
    partitioned,
    print_numbered,
    proto_from_text,
    rules_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dplcli.ir import Graph, Model
    from dplcli.passes.merge import Region
    from tests.support.helpers import Rules

    Edges: TypeAlias = set[tuple[str, str]]


def merged(rules: Rules, before: str | bytes) -> tuple[Model, list[Region], bytes]:
    """Partition a model and merge; return it, its regions, and the model written."""
    data = proto_from_text(before).SerializeToString() if isinstance(before, str) else before
    model = model_from_bytes(data)
    partition(model, select_matches(model, rules_of(rules)))
    regions = merge_partitions(model)
    check_structure(model)
    return model, regions, to_proto(model).SerializeToString(deterministic=True)


def check_merge(rules: Rules, before: str, after: str | None = None) -> onnx.ModelProto:
    """Merge and compare everything: text, numbers, what can be undone, what is left, a second run.

    Args:
        rules: As for ``check_partition``.
        before: The model as ONNX text.
        after: What is printed of it afterwards; None if it does not matter.

    Returns:
        The model written.
    """
    model, regions, written = merged(rules, before)
    if after is not None:
        assert print_numbered(model) == dedent(after).strip()
    result: onnx.ModelProto = onnx.ModelProto.FromString(written)
    check_sound(proto_from_text(before), result)
    plain, _, partitions = partitioned(rules, before)
    check_largest(plain, regions)
    check_undone(onnx.ModelProto.FromString(partitions), result)
    assert merged(rules, before)[2] == written
    check_merged_again(rules, result)
    return result


def check_merged_again(rules: Rules, result: onnx.ModelProto) -> None:
    """Check that a second run finds nothing to outline or to merge."""
    model, regions, again = merged(rules, result.SerializeToString())
    assert not any(region.members for region in regions)
    assert onnx.ModelProto.FromString(again) == result
    assert select_matches(model, rules_of(rules)).matches == []


def groups(rules: Rules, before: str) -> list[str]:
    """Write each region as ``a: y z``: its target, and what the calls in it are named after.

    What a call is named after is its first output's name in the model without regions.
    """
    plain, _, _ = partitioned(rules, before)
    outputs = {
        node.name: node.outputs[0].name
        for graph in plain.graphs()
        for node in graph
        if node.outputs[0]
    }
    _, regions, _ = merged(rules, before)
    return [
        f"{region.function.domain}: {' '.join(outputs[name] for name in region.partitions)}"
        for region in regions
    ]


# -- what is left to merge -------------------------------------------------------------------------


def check_largest(plain: Model, regions: Sequence[Region]) -> None:
    """Check that regions form no cycle in *plain*, and that no two neighbours could be one."""
    group_of = {name: number for number, region in enumerate(regions) for name in region.partitions}
    targets = {str(number): region.function.domain for number, region in enumerate(regions)}
    bodies = {f.body for f in plain.functions.values() if "Composite" in f.metadata}
    found = set()
    for graph in plain.graphs():
        if graph in bodies:
            continue
        labels = {id(node): str(group_of.get(node.name, f"n{id(node)}")) for node in graph}
        found |= {label for label in labels.values() if label in targets}
        edges, direct = _edges(graph, labels)
        assert not _has_cycle(edges)
        here = sorted({label for label in labels.values() if label in targets})
        for first, last in permutations(here, 2):
            if (first, last) in direct and targets[first] == targets[last]:
                joined = {(_joined(a, first, last), _joined(b, first, last)) for a, b in edges}
                assert _has_cycle({(a, b) for a, b in joined if a != b}), (first, last)
    assert found == set(targets)


def _joined(label: str, first: str, last: str) -> str:
    return first if label == last else label


def _edges(graph: Graph, labels: Mapping[int, str]) -> tuple[Edges, Edges]:
    """Return the edges between groups, and those of them that no body makes."""
    every: Edges = set()
    direct: Edges = set()
    for node in graph:
        for value in (*node.inputs, *captured_values(node)):
            if value is None or value.graph is not graph or value.producer is None:
                continue
            edge = (labels[id(value.producer)], labels[id(node)])
            if edge[0] != edge[1]:
                every.add(edge)
                if value in node.inputs:
                    direct.add(edge)
    return every, direct


def _has_cycle(edges: Edges) -> bool:
    left = set(edges)
    while left:
        targets = {target for _, target in left}
        fewer = {edge for edge in left if edge[0] in targets}
        if fewer == left:
            return True
        left = fewer
    return False


# -- undoing it ------------------------------------------------------------------------------------


def check_undone(plain: onnx.ModelProto, result: onnx.ModelProto) -> None:
    """Check that what calls of regions carry is enough to get the calls of partitions back."""
    regions = {
        (function.domain, function.name): function
        for function in result.functions
        if {item.key for item in function.metadata_props} == {"Codegen"}
    }
    found: dict[tuple[tuple[str, str], tuple[str, ...]], bytes] = {}
    for scope, node in _nodes(result):
        if scope not in regions:
            function = regions.get((node.domain, node.op_type))
            restored = [node] if function is None else list(_inlined(node, function))
            found |= {(scope, tuple(item.output)): _content(item) for item in restored}
    expected = {(scope, tuple(node.output)): _content(node) for scope, node in _nodes(plain)}
    assert found == expected


def _nodes(model: onnx.ModelProto) -> Iterator[tuple[tuple[str, str], onnx.NodeProto]]:
    """Yield every node, with the domain and name of the function that it is in."""
    pending = [(("", ""), node) for node in model.graph.node]
    for function in model.functions:
        pending += [((function.domain, function.name), node) for node in function.node]
    while pending:
        scope, node = pending.pop()
        yield scope, node
        pending += [(scope, inner) for item in node.attribute for inner in item.g.node]


def _content(node: onnx.NodeProto) -> bytes:
    """Return the node without its bodies, attributes in order."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    kept = [item for item in copy.attribute if not item.HasField("g")]
    del copy.attribute[:]
    copy.attribute.extend(sorted(kept, key=lambda item: item.name))
    data: bytes = copy.SerializeToString(deterministic=True)
    return data


def _inlined(call: onnx.NodeProto, function: onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yield the calls that a call of a region stands for, named and described as they were."""
    notes = {item.key: json.loads(item.value) for item in call.metadata_props}
    entries, undo = notes["dpl.nodes"], notes["dpl.undo"]
    assert len(entries) == len(function.node)
    names = dict(zip(function.input, call.input, strict=True))
    names |= dict(zip(function.output, call.output, strict=True))
    given = {item.name: item for item in call.attribute}
    for number, (node, entry) in enumerate(zip(function.node, entries, strict=True)):
        op, name, outputs = entry
        assert op == f"{node.domain}.{node.op_type}"
        copy = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=name)
        for inside, outside in zip(node.output, outputs, strict=True):
            assert names.setdefault(inside, outside) == outside
        copy.input.extend(names[value] for value in node.input)
        copy.output.extend(outputs)
        for item in node.attribute:
            attribute = copy.attribute.add()
            attribute.CopyFrom(given[item.ref_attr_name] if item.ref_attr_name else item)
            attribute.name = item.name
        for key, text in undo["remarks"][str(number)]["metadata"].items():
            copy.metadata_props.add(key=key, value=text)
        yield copy
