"""Outcomes as JSON: versioned, in stable order, without times or absolute paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.ir import Node
from dplcli.ir.model import scope_of
from dplcli.ir.printer import node_window, print_attribute
from dplcli.passes.select import in_program_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.dpl import Match, Rejection
    from dplcli.ir import Model, Value
    from dplcli.passes.partition import Partition
    from dplcli.passes.select import Selection
    from dplcli.verify import VerificationResult

    Json = dict[str, Any]


def node_record(node: Node) -> Json:
    """Identify a node; its first output's name does so even where node names are empty."""
    return {
        "op_type": node.op_type,
        "domain": node.domain,
        "name": node.name,
        "output": next((output.name for output in node.outputs if output is not None), ""),
    }


def match_record(
    label: str, counts: Mapping[str, int], selection: Selection, unmet: Sequence[str]
) -> Json:
    """Return the record ``dpl.match/1``."""
    return {
        "schema": "dpl.match/1",
        "model": label,
        "counts": dict(counts),
        "unmet": list(unmet),
        "matches": [_match(found) for found in in_program_order(selection.matches)],
        "refused": refusals(selection.refused),
    }


def _match(found: Match) -> Json:
    return {
        "rule": found.rule.qualified_name,
        "scope": scope_of(found.root.graph),
        "root": node_record(found.root),
        "nodes": [node_record(node) for node in found.nodes],
        "bindings": {name: value.name for name, value in sorted(found.bindings.items())},
    }


def refusals(refused: Iterable[Rejection]) -> list[Json]:
    """Return one record per refused match."""
    return [
        {
            "rule": item.rule.qualified_name,
            "root": node_record(item.root),
            "stage": item.stage,
            "reason": item.reason,
            "at": _place(item.at),
        }
        for item in refused
    ]


def _place(at: Value | Node | None) -> object:
    if at is None:
        return None
    return node_record(at) if isinstance(at, Node) else at.name


def partition_record(  # noqa: PLR0913  # the parts of an outcome
    counts: Mapping[str, int],
    partitions: Sequence[Partition],
    selection: Selection,
    verification: VerificationResult | None,
    *,
    unmet: Sequence[str],
    objection: str,
) -> Json:
    """Return the record ``dpl.partition/1``."""
    return {
        "schema": "dpl.partition/1",
        "counts": dict(counts),
        "unmet": list(unmet),
        "partitions": [_partition(item) for item in partitions],
        "refused": refusals(selection.refused),
        "coverage": coverage(selection),
        "objection": objection,
        "verification": None if verification is None else verification.to_json(),
    }


def _partition(item: Partition) -> Json:
    call = item.call
    return {
        "rule": item.match.rule.qualified_name,
        "target": item.function.domain,
        "function": {"domain": item.function.domain, "name": item.function.name},
        "call": call.name,
        "scope": scope_of(call.graph),
        "nodes": [node_record(node) for node in item.match.nodes],
        "inputs": [value.name for value in call.inputs if value is not None],
        "outputs": [value.name for value in call.outputs if value is not None],
    }


def coverage(selection: Selection) -> Json:
    """Count the nodes inside matches, and calls of earlier ones, in total and by operator.

    A Constant is data that stands in a node, and counts as none.
    """
    covered: dict[str, int] = {}
    for found in selection.matches:
        for node in found.nodes:
            covered[node.qualified_op] = covered.get(node.qualified_op, 0) + 1
    covered |= selection.outlined
    covered.pop("Constant", None)
    totals = {op: total for op, total in selection.totals.items() if op != "Constant"}
    return {
        "nodes": sum(covered.values()),
        "of": sum(totals.values()),
        "by_op": {
            op: {"covered": covered.get(op, 0), "of": total} for op, total in sorted(totals.items())
        },
    }


def inspect_record(model: Model, label: str) -> Json:
    """Return the record ``dpl.inspect/1``: what a model is made of."""
    return {
        "schema": "dpl.inspect/1",
        "model": label,
        "ir_version": model.ir_version,
        "opsets": {domain or "ai.onnx": v for domain, v in sorted(model.opset_imports.items())},
        "inputs": [_value(v) for v in model.graph.inputs if not v.is_initializer],
        "outputs": [_value(value) for value in model.graph.outputs],
        "nodes": {
            "total": sum(graph.node_count for graph in model.graphs()),
            "main": model.graph.node_count,
            "by_op": op_histogram(model),
        },
        "initializers": initializer_summary(model),
        "functions": [
            {
                "domain": function.domain,
                "name": function.name,
                "nodes": function.body.node_count,
                "calls": calls,
                "composite": function.metadata.get("Composite", ""),
            }
            for function, calls in _called(model)
        ],
        "notes": list(model.notes),
    }


def nodes_record(nodes: Iterable[Node], label: str) -> Json:
    """Return the record ``dpl.node/1``: nodes with what they read, make and state."""
    return {
        "schema": "dpl.node/1",
        "model": label,
        "nodes": [
            {
                **node_record(node),
                "scope": scope_of(node.graph),
                "inputs": [_value(value) if value else None for value in node.inputs],
                "outputs": [_value(value) if value else None for value in node.outputs],
                "attributes": {
                    name: print_attribute(attribute) for name, attribute in node.attributes.items()
                },
                "window": node_window(node),
            }
            for node in nodes
        ],
    }


def _value(value: Value) -> Json:
    known = value.known_type()
    shape = None if known is None or known.shape is None else list(known.shape)
    return {"name": value.name, "dtype": known.dtype if known else None, "shape": shape}


def op_histogram(model: Model) -> dict[str, int]:
    """Count the nodes of every graph by operator, most frequent first."""
    counts: dict[str, int] = {}
    for graph in model.graphs():
        for node in graph:
            counts[node.qualified_op] = counts.get(node.qualified_op, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def initializer_summary(model: Model) -> Json:
    """Count initializers, their elements, and those whose data lies in other files."""
    tensors = [
        model.codec.tensor(value.initializer_source)
        for graph in model.graphs()
        for value in graph.initializers
    ]
    return {
        "count": len(tensors),
        "elements": sum(tensor.size for tensor in tensors),
        "external": sum(tensor.is_external for tensor in tensors),
    }


def _called(model: Model) -> list[tuple[Any, int]]:
    calls: dict[tuple[str, str, str], int] = {}
    for graph in model.graphs():
        for node in graph:
            key = (node.domain, node.op_type, node.overload)
            if key in model.functions:
                calls[key] = calls.get(key, 0) + 1
    return [(function, calls.get(key, 0)) for key, function in model.functions.items()]
