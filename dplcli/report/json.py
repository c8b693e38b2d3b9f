"""Outcomes as JSON. It is versioned, in a stable order, and has no times and no absolute paths."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from dplcli.dpl.rule import Rejection, Rule
from dplcli.ir import Attribute, Function, Node, Tensor, Value
from dplcli.ir.model import calls_in, scope_of
from dplcli.ir.printer import node_window, print_attribute
from dplcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dplcli.ir import Model

    Json = dict[str, Any]


_COUNTS_BY_RULE = {"dpl.match/1", "dpl.partition/1", "dpl.rewrite/1"}


def published(record: Mapping[str, Any]) -> Json:
    """Return a record as it is written: with dpl's version, and without the rules that do nothing.

    A target has more than a hundred rules, and few of them match in one model.
    """
    head = {"schema": record["schema"], "dpl_version": __version__} if "schema" in record else {}
    written = {**head, **record}
    if record.get("schema") in _COUNTS_BY_RULE:
        written["counts"] = {rule: count for rule, count in record["counts"].items() if count}
    return written


def record_of(value: Any) -> Any:  # noqa: ANN401, PLR0911  # anything; a return for each kind
    """Return *value* as JSON: its fields, or what identifies it.

    Fields keep their order; ``is_constant`` becomes ``constant``. Values that JSON lacks, such as
    infinity, become text.
    """
    match value:
        case None | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Node():
            return node_record(value)
        case Value():
            return value.name
        case Function():
            return {"domain": value.domain, "name": value.name}
        case Rule():
            return value.qualified_name
        case Rejection():
            return picked(value, "rule root stage reason at")
        case Attribute():
            return _attribute_record(value)
        case Mapping():
            return {key: record_of(item) for key, item in value.items()}
        case _:
            return _parts_of(value)


def _parts_of(value: Any) -> Any:  # noqa: ANN401  # anything
    """Return the fields of a record, or the items of a list."""
    names = [field.name for field in fields(value)] if is_dataclass(value) else None
    names = getattr(value, "_fields", names)  # of a named tuple
    if names is not None:
        return {name.removeprefix("is_"): record_of(getattr(value, name)) for name in names}
    return [record_of(item) for item in value] if isinstance(value, (list, tuple)) else value


def picked(value: object, names: str) -> Json:
    """Return the fields of *value* that *names* lists, in that order, as JSON."""
    return {name: record_of(getattr(value, name)) for name in names.split()}


def ends(before: object, after: object) -> Json:
    """Return a value before and after a change."""
    return {"before": record_of(before), "after": record_of(after)}


def _attribute_record(attribute: Attribute) -> object:
    """Return the attribute's value; as text if JSON has no such value."""
    value = attribute.value
    items = value if isinstance(value, tuple) else (value,)
    is_plain = all(isinstance(item, (int, str)) or _is_finite(item) for item in items)
    if attribute.ref or isinstance(value, Tensor) or not is_plain:
        return print_attribute(attribute)
    return list(value) if isinstance(value, tuple) else value


def _is_finite(item: object) -> bool:
    return isinstance(item, float) and math.isfinite(item)


def node_record(node: Node) -> Json:
    """Identify a node. The name of its first output does so even if nodes have no names."""
    output = next((output.name for output in node.outputs if output is not None), "")
    return {"op_type": node.op_type, "domain": node.domain, "name": node.name, "output": output}


def inspect_record(model: Model, label: str) -> Json:
    """Return the record ``dpl.inspect/1``: the contents of a model."""
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
        "overridable": [_value(value) for value in model.graph.inputs if value.is_overridable],
        "functions": [
            {
                **record_of(function),
                "nodes": function.body.node_count,
                "calls": len(calls),
                "composite": function.metadata.get("Composite", ""),
            }
            for function, calls in calls_in(model).items()
        ],
        "notes": list(model.notes),
    }


def nodes_record(nodes: Iterable[Node], label: str) -> Json:
    """Return the record ``dpl.node/1``: nodes with their inputs, outputs and attributes."""
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
    counts = Counter(node.qualified_op for graph in model.graphs() for node in graph)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def initializer_summary(model: Model) -> Json:
    """Count the initializers, their elements, and the initializers with external data."""
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
