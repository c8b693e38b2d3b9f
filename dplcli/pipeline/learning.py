"""Making a rule from an example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplcli.dpl.catalog_writer import write_catalog
from dplcli.errors import UsageError
from dplcli.onnx_io import load_model, paused_gc
from dplcli.passes.learning import learn_rule
from dplcli.pipeline.inspecting import find_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.passes.learning import LearnedRule


@dataclass(frozen=True)
class LearnOutcome:
    """What :func:`learn` made.

    Attributes:
        label: The model's file name.
        learned: The rule, and what was generalised.
        yaml: The catalogue that holds it.
    """

    label: str
    learned: LearnedRule
    yaml: str


@paused_gc()
def learn(
    model_path: Path, *, nodes: Sequence[str], name: str, target: str, exact: bool
) -> LearnOutcome:
    """Make a rule for a subgraph.

    Args:
        model_path: The model.
        nodes: Names of its nodes, or of values that they make.
        name: What to call the rule; "" for a name made from the operators.
        target: Target of the rule.
        exact: Whether to demand every attribute that the file states.

    Raises:
        DplError: The model cannot be used, or the nodes make no subgraph.
    """
    model = load_model(model_path)
    chosen = []
    for wanted in nodes:
        found = find_nodes(model, wanted)
        if len(found) > 1:
            hint = "name a value that it makes instead"
            raise UsageError(f"{wanted!r}: {len(found)} nodes have this name", hint=hint)
        chosen += found
    learned = learn_rule(model, chosen, name=name, target=target, exact=exact)
    doc = f"Learned from {model_path.name}."
    return LearnOutcome(model_path.name, learned, write_catalog([learned.rule], doc=doc))
