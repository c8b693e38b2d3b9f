"""What a model is made of, what its functions ask of kernels, and what dpl runs on."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from dplcli.errors import counted
from dplcli.ir.printer import node_window, print_node
from dplcli.keys import keys
from dplcli.outcomes.inspecting import NodesOutcome, NodeView
from dplcli.report.document import Document, versions
from dplcli.report.layout import Group, Text
from dplcli.report.tables import some, table_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir import Model, Node
    from dplcli.outcomes.inspecting import InspectOutcome
    from dplcli.outcomes.rules import Diagnosis, LibraryState
    from dplcli.report.layout import Part
    from dplcli.targets.contract import AttributeContract, Contract, FunctionContract, PortContract


# A model: what is in it, and its nodes.


_MOST_NAMED = 12


def model_document(outcome: InspectOutcome) -> Document:
    """Report on the contents of a model."""
    return Document(
        said=_model_text(outcome),
        of=outcome,
        command="dpl inspect",
        subject=outcome.label,
        facts=(("nodes", f"{outcome.total:,}"), ("functions", f"{len(outcome.functions):,}")),
    )


def _model_text(outcome: InspectOutcome) -> Part:
    model, weights = outcome.ir, outcome.weights
    opsets = [f"{name} {number}" for name, number in outcome.opsets.items()]
    external = f", {weights.external} in external files" if weights.external else ""
    defaults = [value.name for value in outcome.overridable]
    told = f"{len(defaults):,} with a default that callers may override, so no constant: "
    inner = len(list(model.graphs())) - 1 - len(model.functions)
    constants = outcome.counts.get("Constant", 0)
    data = f", {constants:,} of them Constant, which are data" if constants else ""
    facts = [
        ("model", outcome.label),
        ("ir version", str(model.ir_version)),
        ("opsets", ", ".join(opsets)),
        *(("input", str(value)) for value in outcome.inputs),
        *(("output", str(value)) for value in outcome.outputs),
        ("nodes", f"{model.node_count:,}{data}"),
        ("initializers", f"{weights.count:,} with {weights.elements:,} elements{external}"),
        *([("overridable", told + some(defaults, _MOST_NAMED))] if defaults else []),
        *([("bodies", f"{inner} of If, Loop or Scan")] if inner else []),
        *(("note", note) for note in model.notes),
    ]
    functions = [
        (
            f"{each.function.domain}::{each.function.name}",
            some([value.name for value in each.function.body.inputs], _MOST_NAMED),
            some([node.qualified_op for node in each.function.body], _MOST_NAMED, " "),
        )
        for each in outcome.functions
    ]
    parts: list[Part] = [table_of(facts, "", "= =:prose"), Text()]
    operators = [*outcome.counts.items()]
    parts.append(table_of(operators[:_MOST_NAMED], "", "operator nodes:count"))
    if (left := len(operators) - _MOST_NAMED) > 0:
        parts.append(Text(f"and {left} more operators", style="dim"))
    if functions:
        parts += [Text(), table_of(functions, "", "function inputs:prose body:prose")]
    return Group(*parts)


def nodes_document(nodes: Sequence[Node], label: str, said: Part | None = None) -> Document:
    """Report on nodes and their neighbours, or with *said* about them."""
    said = said or Group(*map(_node_text, nodes))
    return Document(said=said, of=NodesOutcome(label=label, nodes=tuple(map(NodeView, nodes))))


def list_document(model: Model, label: str) -> Document:
    """List all nodes of a model, graph by graph."""
    graphs = list(model.graphs())
    nodes = [node for graph in graphs for node in graph]
    rows = [
        (node.name, node.qualified_op, NodeView(node).made, node.scope if graphs[1:] else None)
        for node in nodes
    ]
    return nodes_document(nodes, label, table_of(rows, "", "node operator makes graph?"))


def _node_text(node: Node) -> Part:
    """Return the values that a node reads and makes, with their types, and the nodes around it."""
    rows = []
    for slot, value in enumerate(node.inputs):
        if value is not None:
            made_by = "" if value.producer is None else print_node(value.producer)
            rows.append((f"in {slot}", value.name, value.known_type() or "?", made_by))
    for index, output in enumerate(node.outputs):
        if output is not None:
            read_by = ", ".join(f"{user.op_type} {user.label}" for user, _ in output.iter_uses())
            where = f"{read_by} (graph output)" if output.is_graph_output else read_by
            rows.append((f"out {index}", output.name, output.known_type() or "?", where))
    window = [Text(line, whole=True) for line in node_window(node)]
    return Group(table_of(rows, "", "= value type from_or_to:prose"), Text(), *window)


# Contracts: what the kernels for a target must do.


_SHOWN_VALUES = 4
_SHOWN_NODES = 24


def contract_document(contract: Contract) -> Document:
    """Report on the functions that kernels stand for: the interface and the body of each."""
    parts: list[Part] = []
    for function in contract.functions:
        parts += [_heading(function), _interface(function), Text()]
    if not contract.functions:
        nothing = "has no function of a target" if contract.is_of_model else "outlines nothing"
        parts += [Text(f"{contract.label} {nothing}."), Text()]
    parts += [Text(f"{rule}: {note}", style="yellow") for rule, note in contract.notes.items()]
    while parts and isinstance(parts[-1], Text) and not parts[-1].plain:
        parts.pop()
    return Document(said=Group(*parts), of=contract)


def _heading(function: FunctionContract) -> Part:
    lines = [Text(f"{function.domain}::{function.name}", style="bold")]
    calls = "" if function.calls is None else f", {counted(function.calls, 'call')}"
    body = some([node.qualified_op for node in function.body], _SHOWN_NODES, " ")
    lines.append(Text(f"  {function.origin}{calls}, body: {body}"))
    own = [*function.parts.operators, *(f"input {name}" for name in function.parts.inputs)]
    if own:
        lines.append(Text(f"  not in every function of the rule: {', '.join(own)}"))
    lines += [Text(f"  where {condition}") for condition in function.conditions]
    lines += [Text(f"  {variation}") for variation in function.variations]
    return Group(*lines)


def _interface(function: FunctionContract) -> Part:
    rows: list[tuple[str, ...]] = []
    for number, port in enumerate(function.inputs):
        constant = f"constant: {_some(port)}" if port.values else "constant"
        told = constant if port.is_constant else ""
        rows.append(("  input", str(number), port.name, _type(port), told))
    for attribute in function.attributes:
        given = attribute.kind if attribute.is_given else f"{attribute.kind}, optional"
        reader = function.reader_of(attribute)
        default = f"default {json.dumps(attribute.default, ensure_ascii=False)}"
        values = _some(attribute) or ("" if attribute.default is None else default)
        known = f"{reader}: {values}" if values else reader
        rows.append(("  attribute", "", attribute.name, given, known))
    for number, port in enumerate(function.outputs):
        rows.append(("  output", str(number), port.name, _type(port), ""))
    return table_of(rows, "", "= = name type values:prose", has_headings=False)


def _type(port: PortContract) -> str:
    if port.unknown and not port.dtypes and not port.ranks:
        return "unknown"
    ranks = f"rank {' | '.join(map(str, port.ranks))}" if port.ranks else "of any rank"
    partly = f", {port.unknown} unknown" if port.unknown else ""
    return f"{' | '.join(port.dtypes) or 'any type'} {ranks}{partly}"


def _some(listed: AttributeContract | PortContract) -> str:
    """Write the first values and the number of the others."""
    shown = [json.dumps(value, ensure_ascii=False) for value in listed.values[:_SHOWN_VALUES]]
    more = listed.distinct - len(shown)
    return " | ".join(shown) + (f" and {more} more" if more > 0 else "")


# What dpl runs on.


@keys("versions *=found", "dpl.doctor/1")
class Doctor(NamedTuple):
    """What dpl runs on."""

    versions: Mapping[str, str]
    found: Diagnosis


def diagnosis_document(found: Diagnosis) -> Document:
    """Report on what dpl runs on."""
    others = Counter(found.catalogs.values())
    ours = others.pop("dpl", 0)
    told = [f"{ours} of dpl", *(f"{count} of {package}" for package, count in others.items())]
    extras = [
        f"{extra}: {'lacks ' + ', '.join(missing) if missing else 'installed'}"
        for extra, missing in found.missing.items()
    ]
    rows = [
        *versions().items(),
        ("system", found.system),
        ("providers", ", ".join(found.providers) or "none"),
        ("models run in", "a process of their own" if found.is_isolated else "the process of dpl"),
        ("catalogues", ", ".join(told)),
        *((name, _library(state)) for name, state in found.libraries.items()),
        *zip(("extra", *[""] * len(extras)), extras, strict=False),
    ]
    verdict = f"{counted(len(found.problems), 'problem')}." if found.problems else "No problems."
    lines = [Text(f"problem: {problem}", style="red") for problem in found.problems]
    said = Group(table_of(rows, "", "= ="), Text(), *lines, Text(verdict))
    return Document(said=said, ok=not found.problems, of=Doctor(versions(), found))


def _library(state: LibraryState) -> str:
    if state.version:
        return ", ".join([state.version, state.path, *state.features])
    looked_for = f"not found; looked for {', '.join(state.looked_for)}"
    return "cannot be used" if state.problem else looked_for
