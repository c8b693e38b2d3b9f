"""Contracts as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dplcli.targets import AttributeContract, Contract, FunctionContract, PortContract

    Json = dict[str, Any]


def contract_record(contract: Contract) -> Json:
    """Return the record ``dpl.contract/1``: what kernels for a target have to keep to."""
    source = "model" if contract.is_of_model else "catalogue"
    return {
        "schema": "dpl.contract/1",
        "of": source,
        source: contract.label,
        "functions": [_function(function) for function in contract.functions],
        "notes": dict(contract.notes),
    }


def _function(function: FunctionContract) -> Json:
    return {
        "domain": function.domain,
        "name": function.name,
        "rule": function.rule,
        "target": function.target,
        "doc": function.doc,
        "calls": function.calls,
        "opsets": {domain or "ai.onnx": number for domain, number in function.opsets.items()},
        "inputs": [_port(port) for port in function.inputs],
        "attributes": [_attribute(attribute) for attribute in function.attributes],
        "outputs": [_port(port) for port in function.outputs],
        "body": [
            {
                "op_type": node.op_type,
                "domain": node.domain,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "references": dict(node.references),
                "attributes": dict(node.attributes),
            }
            for node in function.body
        ],
        "parts": {
            "operators": list(function.parts.operators),
            "inputs": list(function.parts.inputs),
        },
        "conditions": list(function.conditions),
        "variations": list(function.variations),
    }


def _port(port: PortContract) -> Json:
    return {
        "name": port.name,
        "dtypes": list(port.dtypes),
        "ranks": list(port.ranks),
        "unknown": port.unknown,
        "constant": port.is_constant,
        "values": list(port.values),
        "distinct": port.distinct,
    }


def _attribute(attribute: AttributeContract) -> Json:
    return {
        "name": attribute.name,
        "kind": attribute.kind,
        "node": attribute.node,
        "reads": attribute.reads,
        "given": attribute.is_given,
        "values": list(attribute.values),
        "distinct": attribute.distinct,
        "default": attribute.default,
    }
