"""What tools make of one model: sizes, operators made, and whether the result is right."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from benchmarks.counting import NodeCount, count_file, count_nodes
from benchmarks.peers import Counts, Tool, run_limited

OURS = "dpl"
RIVALS = ("onnxslim", "onnxsim")
"""The tools whose better result is to be reached."""


@dataclass(frozen=True)
class Size:
    """How large a model is: nodes, Constant nodes apart, and bytes with its external data."""

    nodes: int
    constants: int
    bytes: int


@dataclass(frozen=True)
class Verdict:
    """Whether a result computes what the model does; None where that cannot be said."""

    equivalent: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Outcome:
    """What one tool did with one model.

    Attributes:
        size: How large its result is; None if there is none.
        problem: Why there is none.
        seconds: How long it took.
        made: Operators that there are more of than before.
        rules: How often each rule was applied, where the tool tells.
        verdict: Whether the result is right; None if that was not asked.
    """

    size: Size | None
    problem: str
    seconds: float
    made: Counts = field(default_factory=dict)
    rules: Counts = field(default_factory=dict)
    verdict: Verdict | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether the result was found to compute something else."""
        return self.verdict is not None and self.verdict.equivalent is False


@dataclass(frozen=True)
class Row:
    """One model, before and after each tool."""

    model: str
    before: Size
    outcomes: dict[str, Outcome]

    @property
    def best(self) -> Size | None:
        """The rival's result with the fewest nodes, out of those that were not found wrong."""
        sizes = [
            outcome.size
            for name, outcome in self.outcomes.items()
            if name in RIVALS and outcome.size is not None and not outcome.is_wrong
        ]
        return min(sizes, key=lambda size: (size.nodes, size.bytes), default=None)

    @property
    def behind(self) -> int | None:
        """How many nodes dpl leaves more than the best rival; None if there is no such number."""
        ours = self.outcomes[OURS].size
        return None if ours is None or self.best is None else ours.nodes - self.best.nodes

    @property
    def is_reached(self) -> bool:
        """Whether dpl has a result that is not wrong and no larger than the best rival's."""
        return self.behind is not None and self.behind <= 0 and not self.outcomes[OURS].is_wrong

    @property
    def growth(self) -> float:
        """Bytes of dpl's result per byte of the model; 0 without a result."""
        ours = self.outcomes[OURS].size
        return ours.bytes / self.before.bytes if ours is not None else 0.0


def compare_tools(
    model: Path, tools: dict[str, Tool], folder: Path, limit: float, checked: set[str]
) -> Row:
    """Run each of *tools* on *model*, one after the other, each in a process of its own.

    Args:
        model: What each tool reads.
        tools: The tools, by name.
        folder: Where a tool's result goes, into a folder of the tool's name.
        limit: Seconds that a tool, and the check of its result, may take.
        checked: Names of the tools whose results are compared with the model.

    Raises:
        DecodeError: *model* is none.
    """
    proto = onnx.load(model, load_external_data=False)
    before = count_nodes(proto)
    size = Size(before.nodes, before.constants, model_bytes(model, proto))
    outcomes = {}
    for name, tool in tools.items():
        place = folder / name
        place.mkdir(parents=True)
        output = place / model.name
        outcome = run_tool(tool, model, output, before, limit)
        if outcome.size is not None and name in checked:
            outcome = replace(outcome, verdict=judge(model, output, limit))
        outcomes[name] = outcome
    return Row(model.name, size, outcomes)


def run_tool(tool: Tool, model: Path, output: Path, before: NodeCount, limit: float) -> Outcome:
    """Return what *tool* makes of *model*; nothing else may lie beside *output*."""
    ending = run_limited(limit, tool, model, output)
    if ending.problem:
        return Outcome(None, ending.problem, ending.seconds)
    if not output.exists():
        return Outcome(None, "wrote nothing", ending.seconds)
    try:
        after = count_file(output)
    except (DecodeError, OSError) as error:
        return Outcome(None, f"wrote no model: {error}", ending.seconds)
    written = sum(path.stat().st_size for path in output.parent.iterdir())
    rules = ending.answer if isinstance(ending.answer, dict) else {}
    size = Size(after.nodes, after.constants, written)
    return Outcome(size, "", ending.seconds, after.more_than(before), rules)


def model_bytes(path: Path, model: onnx.ModelProto) -> int:
    """Return the size of a model's file and of those that its initializers lie in."""
    places = {
        path.parent / entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return sum(place.stat().st_size for place in {path, *places} if place.is_file())


def judge(model: Path, result: Path, limit: float) -> Verdict:
    """Return whether *result* computes what *model* does, as ``dpl verify`` judges."""
    ending = run_limited(limit, _equivalence, model, result)
    if isinstance(ending.answer, Verdict):
        return ending.answer
    return Verdict(None, ending.problem)


def _equivalence(model: Path, result: Path) -> Verdict:
    from dplcli.errors import DplError  # noqa: PLC0415  # the parent process stays small
    from dplcli.pipeline import compare  # noqa: PLC0415  # the parent process stays small

    try:
        found = compare(model, result, None, None)
    except DplError as error:
        return Verdict(None, error.message)
    reasons = [*found.reasons]
    reasons += [f"output {output.name!r} differs" for output in found.outputs if not output.ok]
    return Verdict(found.equivalent, reasons[0] if reasons else "")
