"""Structural differences as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

from dplcli.diff import FACETS
from dplcli.ir.printer import print_attribute
from dplcli.ir.scopes import scope_of
from dplcli.ir.tensor import Tensor
from dplcli.report.records import node_record

if TYPE_CHECKING:
    from dplcli.diff import GraphDiff, ModelDiff, NodeChange, Remark
    from dplcli.diff.result import Distance, FunctionChange, SignatureChange, WeightChange
    from dplcli.ir import Attribute, Function, Value

Json: TypeAlias = dict[str, Any]


def diff_record(labels: tuple[str, str], difference: ModelDiff) -> Json:
    """Return ``dpl.diff/1``: all differences, in a stable order."""
    graphs = difference.graphs
    ignored = [facet for facet in FACETS if facet in difference.ignored]
    counts = dict.fromkeys(FACETS, 0)
    for remark in difference.all_remarks:
        counts[remark.facet] += 1
    return {
        "schema": "dpl.diff/1",
        "models": list(labels),
        "equal": difference.is_equal,
        "ignored": ignored,
        "counts": diff_counts(difference),
        "not_counted": {facet: counts[facet] for facet in ignored},
        "opsets": [
            {"domain": item.domain, "before": item.before, "after": item.after}
            for item in difference.opsets
        ],
        "functions": [_function_change(item) for item in difference.functions],
        "graphs": [_graph(graph) for graph in graphs],
        "remarks": [_remark(remark) for remark in difference.counted],
    }


def diff_counts(difference: ModelDiff) -> dict[str, int]:
    """Count the differences by kind."""
    graphs = difference.graphs
    changes = [change for graph in graphs for change in graph.changes]
    return {
        "added": sum(len(graph.added) for graph in graphs),
        "removed": sum(len(graph.removed) for graph in graphs),
        "changed": len(changes),
        "replaced": sum(change.is_other_op for change in changes),
        "attributes": sum(len(change.attributes) for change in changes),
        "rewired": sum(len(change.inputs) for change in changes),
        "weights": sum(len(graph.weights) for graph in graphs),
        "signature": sum(len(graph.signature) for graph in graphs),
        "functions": len(difference.functions),
        "opsets": len(difference.opsets),
        "remarks": len(difference.counted),
    }


def _graph(graph: GraphDiff) -> Json:
    return {
        "scope": {"before": scope_of(graph.before), "after": scope_of(graph.after)},
        "nodes": {
            "before": graph.paired + len(graph.removed),
            "after": graph.paired + len(graph.added),
            "paired": graph.paired,
        },
        "signature": [_signature(item) for item in graph.signature],
        "removed": [node_record(node) for node in graph.removed],
        "added": [node_record(node) for node in graph.added],
        "changed": [_change(change) for change in graph.changes],
        "weights": [_weight(change) for change in graph.weights],
    }


def _change(change: NodeChange) -> Json:
    return {
        "before": node_record(change.before),
        "after": node_record(change.after),
        "attributes": [
            {"name": a.name, "before": _attribute(a.before), "after": _attribute(a.after)}
            for a in change.attributes
        ],
        "inputs": [
            {"slot": i.slot, "before": _name(i.before), "after": _name(i.after)}
            for i in change.inputs
        ],
        "outputs": list(change.outputs),
    }


def _attribute(attribute: Attribute | None) -> object:
    """Return a value that JSON has, else as text; null where there is no such attribute."""
    if attribute is None:
        return None
    value = attribute.value
    items = value if isinstance(value, tuple) else (value,)
    is_plain = all(isinstance(item, (int, str)) or _is_finite(item) for item in items)
    if attribute.ref or isinstance(value, Tensor) or not is_plain:
        return print_attribute(attribute)
    return list(value) if isinstance(value, tuple) else value


def _is_finite(item: object) -> bool:
    return isinstance(item, float) and math.isfinite(item)


def _signature(item: SignatureChange) -> Json:
    return {
        "side": item.side,
        "what": item.what,
        "before": _typed(item.before),
        "after": _typed(item.after),
    }


def _typed(value: Value | None) -> Json | None:
    if value is None:
        return None
    known = value.declared_type
    return {"name": value.name, "type": None if known is None else str(known)}


def _weight(change: WeightChange) -> Json:
    return {
        "before": _typed(change.before),
        "after": _typed(change.after),
        "distance": None if change.distance is None else _distance(change.distance),
    }


def _distance(found: Distance) -> Json:
    return {
        "changed": found.changed,
        "size": found.size,
        "max_abs": _number(found.max_abs),
        "max_rel": _number(found.max_rel),
    }


def _number(number: float | None) -> float | str | None:
    """Return *number*; infinity and NaN, which JSON lacks, as text."""
    return number if number is None or math.isfinite(number) else str(number)


def _function_change(item: FunctionChange) -> Json:
    return {"what": item.what, "before": _key(item.before), "after": _key(item.after)}


def _key(function: Function | None) -> Json | None:
    return None if function is None else {"domain": function.domain, "name": function.name}


def _remark(remark: Remark) -> Json:
    return {
        "facet": remark.facet,
        "where": remark.where,
        "before": remark.before,
        "after": remark.after,
    }


def _name(value: Value | None) -> str | None:
    return None if value is None else value.name
