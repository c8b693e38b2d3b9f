"""What the tests of learning share: rules learned from ONNX text."""

from dplcli.catalog.catalog import write_catalog
from dplcli.ir import Model, Node
from dplcli.language import PatternRule
from dplcli.passes.learn_pattern import LearnedRule, learn_rule
from tests.support.helpers import catalog_rules, model_from_text

CONV = "g (float[1,3,8,8] x, float[4,3,3,3] w) => (y)"


def nodes_of(model: Model, labels: str) -> list[Node]:
    """Return the nodes with these labels, in the order named."""
    found = {node.label: node for graph in model.graphs() for node in graph}
    return [found[label] for label in labels.split()]


def learned(text: str, labels: str, *, exact: bool = False) -> LearnedRule:
    """Learn from nodes of a model given as ONNX text."""
    model = model_from_text(text)
    return learn_rule(model, nodes_of(model, labels), exact=exact)


def lines(found: LearnedRule) -> list[str]:
    """Return the lines of the pattern, then the conditions."""
    return found.text.splitlines() + [f"where {item.text}" for item in found.rule.where]


def check_written(found: PatternRule) -> None:
    """Check that a rule reads back from YAML as it is."""
    (read,) = catalog_rules(write_catalog([found]))
    assert (read.qualified_name, read.doc, read.constants) == (
        found.qualified_name,
        found.doc,
        found.constants,
    )
    assert read.pattern == found.pattern
    assert [item.text for item in read.where] == [item.text for item in found.where]


def alike(count: int) -> str:
    """Return a graph with so many pairs of nodes that read one value."""
    body = " ".join(f"v{i} = Abs (x) w{i} = Neg (v{i})" for i in range(count))
    outputs = ", ".join(f"w{i}" for i in range(count))
    return f"g (float[2] x) => ({outputs}) {{ {body} }}"
