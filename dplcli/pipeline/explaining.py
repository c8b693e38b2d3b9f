"""Why rules match where they do, and why nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import UsageError, did_you_mean_rule, opt
from dplcli.onnx_io import paused_gc
from dplcli.outcomes.matching import ExplainOutcome
from dplcli.passes.nearest import nearest_rules
from dplcli.passes.select import explain_rules
from dplcli.pipeline.inspecting import find_nodes
from dplcli.pipeline.matching import read_with_rules
from dplcli.pipeline.rules import names_of, rules_named

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.settings import ExplainSettings


@paused_gc()
def explain(model_path: Path, settings: ExplainSettings) -> ExplainOutcome:
    """Explain why rules match where they do, and why nowhere else.

    Args:
        model_path: The model.
        settings: Which rules and nodes.

    Raises:
        DplError: The model or a catalogue cannot be used, or there is no such rule or node.
    """
    if settings.progress is not None:
        settings.progress(f"explaining {model_path.name}")
    model, tried = read_with_rules(model_path, settings)
    names = names_of(tried)
    for name in settings.rule:
        if name not in names:
            raise UsageError(
                f"{opt('rule')} {name}: there is no such rule", hint=did_you_mean_rule(name, names)
            )
    asked = rules_named(tried, settings.rule)
    if settings.left_out and settings.node is not None:
        raise UsageError("--left-out is about all nodes, and --node about one", hint="pass one")
    nodes = [] if settings.node is None else find_nodes(model, settings.node)
    explainer = explain_rules(model, tried)
    is_by_rule = settings.node is None and not settings.left_out
    return ExplainOutcome(
        label=model_path.name,
        rules=tuple(map(explainer.rule, asked)) if is_by_rule else (),
        left_out=nearest_rules(explainer, asked) if settings.left_out else None,
        verdicts=tuple(explainer.node(rule, node) for node in nodes for rule in asked),
        notes=tuple(model.notes),
    )
