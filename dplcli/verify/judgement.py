"""Judging runs: what is compared with what, in which order, until an output passes or fails."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from dplcli.errors import UsageError
from dplcli.verify.compare import Judge, Limit, severity
from dplcli.verify.dataflow import Dataflow, subgraphs
from dplcli.verify.depth import Depth, output_depths
from dplcli.verify.result import OutputComparison, Settings
from dplcli.verify.sessions import Outputs
from dplcli.verify.tolerance import working_type

if TYPE_CHECKING:
    import onnx

Runs = Mapping[int, Outputs]

REFERENCE = "disable"
_QUANTISE = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "QGemm", "QAttention"})
_ROUND = frozenset({"Round", "Floor", "Ceil", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
_MOVES = frozenset(
    {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "MaxPool"}
)


@dataclass(frozen=True)
class Facts:
    """What the original says about its outputs.

    Attributes:
        coarsest: The coarsest float type that it computes with.
        depths: How many roundings lead to each output, where that can be counted.
        stepped: Outputs that a quantising operator makes.
        rounds: Whether an operator inside rounds numbers to steps.
    """

    coarsest: str = ""
    depths: Mapping[str, Depth] = field(default_factory=dict)
    stepped: Collection[str] = frozenset()
    rounds: bool = False


class Witness(Protocol):
    """Who can say more about the original when an output leaves its tolerance."""

    def original_at(self, level: str) -> Runs | None:
        """Return what the original gives at *level*; None if that cannot be had."""

    def limits(self) -> Mapping[str, Limit]:
        """Return how far each output moves with the original's own last bits."""


def check_names(tolerances: Collection[str], outputs: Collection[str]) -> None:
    """Refuse a tolerance for an output that does not exist.

    Raises:
        UsageError: One of *tolerances* is for none of *outputs*.
    """
    for name in tolerances:
        if name not in outputs:
            close = difflib.get_close_matches(name, outputs, 1)
            raise UsageError(
                f"a tolerance is given for {name!r}, which is no output of the model",
                hint=f"did you mean {close[0]!r}?" if close else f"it has {', '.join(outputs)}",
            )


def facts_of(flow: Dataflow) -> Facts:
    """Collect what the judgement of a model's outputs depends on."""
    return Facts(working_type(flow), output_depths(flow), _stepped_outputs(flow), _rounds(flow))


def make_judge(  # noqa: PLR0913  # what a comparison depends on
    settings: Settings,
    facts: Facts,
    seed: int,
    *,
    level: str = REFERENCE,
    baseline: str = REFERENCE,
    limits: Mapping[str, Limit] | None = None,
) -> Judge:
    """Return the judge of one seed at one level."""
    return Judge(
        level=level,
        baseline=baseline,
        seed=seed,
        coarsest=facts.coarsest,
        rtol=settings.rtol,
        atol=settings.atol,
        overrides=settings.tolerances,
        depths=facts.depths,
        stepped=facts.stepped,
        limits=limits or {},
    )


def judge_level(  # noqa: PLR0913  # two runs, who made them, and how to judge
    settings: Settings, facts: Facts, level: str, *, reference: Runs, runs: Runs, witness: Witness
) -> list[OutputComparison]:
    """Return one comparison per output: that of its worst seed, against what it agrees with best.

    Args:
        settings: Tolerances that somebody chose.
        facts: What the original says about its outputs.
        level: Optimisation level at which the candidate ran.
        reference: What the original gave with optimisation off, per seed.
        runs: What the candidate gave, per seed.
        witness: Asked only if an output fails.
    """
    found = _worst(settings, facts, level, expected=reference, actual=runs)
    if all(comparison.ok for comparison in found):
        return found
    if level != REFERENCE and (alike := witness.original_at(level)) is not None:
        again = _worst(settings, facts, level, expected=alike, actual=runs, baseline=level)
        found = [b if b.ok and not a.ok else a for a, b in zip(found, again, strict=True)]
    if all(comparison.ok for comparison in found) or not (limits := witness.limits()):
        return found
    again = _worst(settings, facts, level, expected=reference, actual=runs, limits=limits)
    return [a if a.ok else b for a, b in zip(found, again, strict=True)]


def _worst(  # noqa: PLR0913  # two runs and how they were made
    settings: Settings,
    facts: Facts,
    level: str,
    *,
    expected: Runs,
    actual: Runs,
    baseline: str = REFERENCE,
    limits: Mapping[str, Limit] | None = None,
) -> list[OutputComparison]:
    per_seed = []
    for seed, theirs in actual.items():
        judge = make_judge(settings, facts, seed, level=level, baseline=baseline, limits=limits)
        ours = expected[seed]
        per_seed.append([judge.compare(name, ours[name], theirs[name]) for name in ours])
    return [replace(max(same, key=severity), by_seed=same) for same in zip(*per_seed, strict=True)]


def _stepped_outputs(flow: Dataflow) -> frozenset[str]:
    """Return the graph outputs that a quantising operator makes, seen through moves."""
    found = set()
    for info in flow.model.graph.output:
        name = info.name
        while (node := flow.main.body.producers.get(name)) is not None and node.op_type in _MOVES:
            name = node.input[0]
        quantises = node is not None and (
            node.op_type in _QUANTISE or node.op_type.startswith("QLinear")
        )
        if quantises and node is not None and name == node.output[0]:
            found.add(info.name)
    return frozenset(found)


def _rounds(flow: Dataflow) -> bool:
    """Tell whether a node anywhere in the model rounds to steps."""
    pending: list[onnx.NodeProto] = list(flow.model.graph.node)
    for function in flow.model.functions:
        pending.extend(function.node)
    while pending:
        node = pending.pop()
        if node.op_type in _QUANTISE | _ROUND or node.op_type.startswith("QLinear"):
            return True
        for graph in subgraphs(node):
            pending.extend(graph.node)
    return False
