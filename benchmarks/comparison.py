"""What tools make of one model: sizes, operators made, latency, and whether the result is right."""

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from benchmarks.counting import NodeCount, count_file, count_nodes
from benchmarks.partition_runtime import compare, feeds_for
from benchmarks.peers import Counts, Tool, ort_all, run_limited

OURS = "dpl"
RIVALS = ("onnxslim", "onnxsim", "onnxscript")
"""The tools whose better result is to be reached."""


@dataclass(frozen=True)
class Size:
    """How large a model is.

    Attributes:
        nodes: Its nodes, but for Constant nodes.
        constants: Those.
        bytes: Its file, with external data.
        optimised: The nodes that are left when onnxruntime has optimised it as it does by default;
            None if onnxruntime does not load it.
    """

    nodes: int
    constants: int
    bytes: int
    optimised: int | None


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
        latency: How long the result takes to run as part of what the model takes; None if that was
            not asked, or cannot be told.
    """

    size: Size | None
    problem: str
    seconds: float
    made: Counts = field(default_factory=dict)
    rules: Counts = field(default_factory=dict)
    verdict: Verdict | None = None
    latency: float | None = None

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
        return min(self._rivals, key=lambda size: (size.nodes, size.bytes), default=None)

    @property
    def _rivals(self) -> list[Size]:
        found = [outcome for name, outcome in self.outcomes.items() if name in RIVALS]
        return [item.size for item in found if item.size is not None and not item.is_wrong]

    @property
    def behind(self) -> int | None:
        """How many nodes dpl leaves more than the best rival; None if there is no such number."""
        ours = self.outcomes[OURS].size
        return None if ours is None or self.best is None else ours.nodes - self.best.nodes

    @property
    def behind_optimised(self) -> int | None:
        """The same of the nodes that onnxruntime leaves."""
        ours = self.outcomes[OURS].size
        left = [size.optimised for size in self._rivals if size.optimised is not None]
        if ours is None or ours.optimised is None or not left:
            return None
        return ours.optimised - min(left)

    @property
    def defeated(self) -> int:
        """How many nodes more onnxruntime leaves of dpl's result than of the model itself."""
        ours = self.outcomes[OURS].size
        if ours is None or ours.optimised is None or self.before.optimised is None:
            return 0
        return max(0, ours.optimised - self.before.optimised)

    @property
    def is_reached(self) -> bool:
        """Whether dpl has a result that is not wrong and no larger than the best rival's."""
        return self.behind is not None and self.behind <= 0 and not self.outcomes[OURS].is_wrong

    @property
    def growth(self) -> float:
        """Bytes of dpl's result per byte of the model; 0 without a result."""
        ours = self.outcomes[OURS].size
        return ours.bytes / self.before.bytes if ours is not None else 0.0


def compare_tools(  # noqa: PLR0913, PLR0917  # what the command hands over
    model: Path,
    tools: dict[str, Tool],
    folder: Path,
    limit: float,
    checked: set[str],
    rounds: int = 0,
) -> Row:
    """Run each of *tools* on *model*, one after the other, each in a process of its own.

    Args:
        model: What each tool reads.
        tools: The tools, by name.
        folder: Where a tool's result goes, into a folder of the tool's name.
        limit: Seconds that a tool, and the check of its result, may take.
        checked: Names of the tools whose results are compared with the model.
        rounds: How often each result is run in turn with the model, for its latency.

    Raises:
        DecodeError: *model* is none.
    """
    proto = onnx.load(model, load_external_data=False)
    before = count_nodes(proto)
    optimised = optimised_nodes(model, limit)
    size = Size(before.nodes, before.constants, model_bytes(model, proto), optimised)
    outcomes = {}
    for name, tool in tools.items():
        place = folder / name
        place.mkdir(parents=True)
        output = place / model.name
        outcome = run_tool(tool, model, output, before, limit)
        if outcome.size is not None and name in checked:
            outcome = replace(outcome, verdict=judge(model, output, limit))
        if outcome.size is not None and rounds:
            outcome = replace(outcome, latency=latency(model, output, limit, rounds))
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
    size = Size(after.nodes, after.constants, written, optimised_nodes(output, limit))
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


def optimised_nodes(model: Path, limit: float) -> int | None:
    """Return how many nodes are left of *model* when onnxruntime has optimised it; None if none."""
    with tempfile.TemporaryDirectory(prefix="dpl-benchmark-") as folder:
        written = Path(folder) / "optimised.onnx"
        run_limited(limit, ort_all, model, written)
        return count_file(written).nodes if written.exists() else None


def latency(model: Path, result: Path, limit: float, rounds: int) -> float | None:
    """Return the median ratio of what *result* and *model* take to run; None if one does not."""
    ratio = run_limited(limit, _ratio, model, result, rounds).answer
    return ratio if isinstance(ratio, float) else None


def _ratio(model: Path, result: Path, rounds: int) -> float:
    return compare(model, result, feeds_for(model), rounds)[1]


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
