"""The original as it runs: what it was fed, and what it gave with optimisation off."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from dplcli.errors import opt
from dplcli.verify.check import REFERENCE_LEVEL, Check
from dplcli.verify.compare import Facts, Judge
from dplcli.verify.inputs.files import write_arrays
from dplcli.verify.inputs.relations import SizeTerms
from dplcli.verify.inputs.stimulus import Stimulus, find_stimulus, save_inputs
from dplcli.verify.model import Dataflow, input_ports
from dplcli.verify.power import blind_outputs
from dplcli.verify.run import Runner, open_original
from dplcli.verify.values import BlockCuts, Feed, ModelSource, Outputs, arrays_in


@dataclass(frozen=True)
class Reference:
    """The original, what it was fed, and what it gave with optimisation off.

    Attributes:
        source: What ran.
        facts: What it says about its values.
        stimulus: What it was fed.
        outputs: What it gave, per case.
        blind: Outputs that ignore what it is fed.
    """

    source: ModelSource
    facts: Facts
    stimulus: Stimulus
    outputs: dict[int, Outputs]
    blind: tuple[str, ...]

    @property
    def feeds(self) -> Mapping[int, Mapping[str, Feed]]:
        """What it was fed, per case and input."""
        return self.stimulus.feeds


def open_reference(  # noqa: PLR0913  # the model, how to run it, and whom to tell
    path: Path,
    flow: Dataflow,
    facts: Facts,
    check: Check,
    *,
    create: Callable[[ModelSource], Runner] = lambda source: Runner(source, REFERENCE_LEVEL),
    resize: bool = True,
    blocks: BlockCuts | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Reference:
    """Run the original on inputs that it accepts.

    Args:
        path: The original.
        flow: What it holds.
        facts: What it says about its outputs.
        check: Seeds, sizes, wishes for the inputs.
        create: Creates a session with optimisation off.
        resize: Whether to feed other sizes, too, than those of the seeds.
        blocks: Where the original is cut; None if it runs whole.
        say: Called with a short phrase before each step that may take long.

    Raises:
        VerificationError: onnxruntime does not run it, or no inputs were found that it accepts.
    """
    every_port = input_ports(flow.model.graph)
    terms = SizeTerms(flow, every_port)
    sums = {**terms.inner(), **terms.related(), **check.request.sums}
    ports = [replace(port, sums=sums) for port in every_port]
    judge = Judge(check, facts, check.first_seeds[0])
    source = ModelSource(path, execution=check.execution.plain(), blocks=blocks)
    source, runner = open_original(source, check.custom_ops, create)
    say("looking for inputs that the original accepts")
    stimulus, outputs = find_stimulus(
        flow,
        ports,
        runner,
        check.first_seeds,
        check.sizes,
        request=check.request,
        resize=resize,
        may_save=check.seeds is None,
    )
    runs = [outputs[case] for case in _of_one_shape(stimulus.feeds)]
    if len(runs) == 1:  # inputs are given, and no two of one shape
        runs = list(outputs.values())
    blind = blind_outputs(judge, runs) if ports and len(runs) > 1 else ()
    return Reference(source, facts, stimulus, outputs, blind)


def fed_reference(
    path: Path, model: onnx.ModelProto, check: Check, say: Callable[[str], None]
) -> Reference:
    """Run a model that nothing is compared with place by place; save what it is fed, if asked.

    Raises:
        VerificationError: onnxruntime does not run it, or no inputs were found that it accepts.
        UsageError: What it is fed cannot be written.
    """
    reference = open_reference(path, Dataflow(model), Facts(), check, resize=False, say=say)
    if check.request.save is not None:
        save_inputs(check.request.save, reference.stimulus)
    return reference


def _of_one_shape(feeds: Mapping[int, Mapping[str, Feed]]) -> list[int]:
    """Return the cases whose inputs have the shapes of the first, but for what is left out.

    An output whose shape follows from an input's depends on that; its numbers need not.
    """
    shapes = {
        case: [[array.shape for array in arrays_in(feed)] for feed in fed.values()]
        for case, fed in feeds.items()
    }
    first = next(iter(shapes.values()))
    return [
        case
        for case, own in shapes.items()
        if all(not a or not b or a == b for a, b in zip(own, first, strict=True))
    ]


def candidate_source(path: Path, check: Check, blocks: BlockCuts | None = None) -> ModelSource:
    """Return the candidate as the user deploys it."""
    return ModelSource(
        path,
        libraries=check.custom_ops,
        execution=check.execution,
        name="candidate",
        blocks=blocks,
    )


def save_outputs(path: Path, outputs: Outputs) -> None:
    """Write what a model gave as .npz: arrays by the names of the outputs.

    Raises:
        UsageError: The file cannot be written.
    """
    leaves = ((name, leaf) for name, given in outputs.items() for leaf in given)
    write_arrays(opt("output"), path, ((f"{name}{leaf.label}", leaf.data) for name, leaf in leaves))
