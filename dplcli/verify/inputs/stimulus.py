"""What a model is fed in all cases of a check, and how that was chosen.

A case is one set of inputs: of a seed, of a file, or of other sizes than those of the seeds. The
user's own values come first. What they leave open is made up so that it fits them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path

import numpy as np

from dplcli.errors import UsageError, VerificationError, opt
from dplcli.verify.check import InputRequest
from dplcli.verify.inputs.attempts import Attempts, Found
from dplcli.verify.inputs.draws import Mood
from dplcli.verify.inputs.files import write_arrays
from dplcli.verify.inputs.given import GivenSet, read_given, sizes_given
from dplcli.verify.inputs.resizing import Resizing, is_dear
from dplcli.verify.inputs.sizes import shape_of
from dplcli.verify.model import Dataflow, Port, output_ports
from dplcli.verify.run import Runner
from dplcli.verify.values import Array, Feed, Outputs, RunError, StoppedError, arrays_in
from dplcli.verify.verdict import InputChoice

_MOST_OTHERS = 4
"""How many sizes of a kind are tried at the most."""

_MOST_SHOWN = 4
"""How many sizes the name of a case says."""


@dataclass(frozen=True)
class Stimulus:
    """What to feed, and how it was chosen.

    Attributes:
        feeds: The values of every input, per case.
        choices: What each input was fed over all cases that are judged; its shape for the seeds.
        cases: What to call each case that is judged. Other cases in *feeds* only tell whether an
            output depends on the inputs at all.
        seeds: The seeds that were drawn from or, if inputs are given, those that were asked for.
    """

    feeds: Mapping[int, Mapping[str, Feed]]
    choices: tuple[InputChoice, ...]
    cases: Mapping[int, str]
    seeds: tuple[int, ...]


def find_stimulus(  # noqa: PLR0913  # what there is, and what is asked
    flow: Dataflow,
    ports: Sequence[Port],
    runner: Runner,
    seeds: Sequence[int],
    sizes: Mapping[str, int],
    *,
    request: InputRequest | None = None,
    resize: bool = False,
    may_save: bool = False,
) -> tuple[Stimulus, dict[int, Outputs]]:
    """Return the first inputs that run for every case, with the outputs that they give.

    There are at least two cases, if a second one can be made: only between two cases does it show
    whether an output depends on the inputs.

    Args:
        flow: The model.
        ports: Its inputs.
        runner: Runs it.
        seeds: One case is made for each.
        sizes: Sizes that the user fixed.
        request: What else the user wants.
        resize: Whether to add cases of other sizes, unless inputs or whole shapes are given.
        may_save: Whether one of the seeds is enough where a run is dear.

    Raises:
        VerificationError: An input has a type that cannot be made, or no attempt ran. The message
            is what onnxruntime said of the first attempt, the most plausible one.
        UsageError: A size, shape or range is for no input, or a value does not fit.
    """
    request = request or InputRequest()
    given = read_given(request, flow.model.graph, ports, seeds)
    attempts = Attempts(flow, ports, runner, request, sizes)
    drawn = tuple(dict.fromkeys(seeds))
    if given:
        found, cases = _with_given(attempts, given, seeds)
    else:
        # without a second case, nobody knows whether an output depends on the inputs
        found = attempts.run(drawn if len(drawn) > 1 else (*drawn, drawn[0] + 1), {})
        drawn = drawn[:1] if may_save and is_dear(flow, ports, found.sizes) else drawn
        cases = {seed: f"seed {seed}" for seed in drawn}
        if resize and not request.shapes:
            cases |= _resized(attempts, found, drawn[0])
    origin = f"from {given[0].label}" if given else ""
    origin += f" and {len(given) - 1} more" if len(given) > 1 else ""
    choices = [_choice(port, found, cases, origin) for port in ports]
    return Stimulus(found.feeds, tuple(choices), cases, drawn), found.outputs


# Inputs that are given.


def _with_given(
    attempts: Attempts, given: Sequence[GivenSet], seeds: Sequence[int]
) -> tuple[Found, dict[int, str]]:
    """Return one case per given set; the inputs that a set leaves open are drawn."""
    every: list[Found] = []
    cases: dict[int, str] = {}
    for number, one in zip(chain(dict.fromkeys(seeds), count(max(seeds) + 1)), given, strict=False):
        if one.values.keys() != given[0].values.keys():
            first, other = (", ".join(map(repr, s.values)) or "nothing" for s in (given[0], one))
            raise UsageError(
                f"{one.label} holds {other}, but {given[0].label} {first}",
                hint="every case must hold the same inputs",
            )
        if twice := [name for name in one.values if name in attempts.asked]:
            raise UsageError(
                f"{one.label}: holds values for {twice[0]!r}, for which a range is given, too"
            )
        every.append(_run(attempts, number, one))
        cases[number] = one.label
    feeds = {case: fed for one in every for case, fed in one.feeds.items()}
    outputs = {case: made for one in every for case, made in one.outputs.items()}
    found = replace(every[-1], feeds=feeds, outputs=outputs)
    if len(cases) == 1:
        _add_made_up(attempts, found, given[0])
    return found, cases


def _run(attempts: Attempts, number: int, one: GivenSet) -> Found:
    if not {port.name for port in attempts.ports} <= one.values.keys():
        return attempts.run([number], one.values)
    try:
        return attempts.attempt({}, Mood.PLAIN, [number], one.values)
    except RunError as error:
        raise UsageError(
            f"{one.label}: the original does not accept these inputs; onnxruntime says: {error}"
        ) from error


def _add_made_up(attempts: Attempts, found: Found, one: GivenSet) -> None:
    """Add a case of the same shapes that is all made up, if it runs."""
    seed = max(found.feeds) + 1
    try:
        if (sizes := attempts.first_sizes(sizes_given(attempts.ports, one.values))) is not None:
            made = attempts.attempt(sizes, Mood.PLAIN, [seed])
            found.add(made.feeds[seed], made.outputs[seed])
    except (RunError, VerificationError, UsageError):
        return


# Inputs of other sizes.


def _resized(attempts: Attempts, found: Found, seed: int) -> dict[int, str]:
    """Add cases of other, of larger and of long sizes to *found*; return their names.

    A case is left out where the original runs on none of the sizes tried, and where an output has
    other sizes than it declares: what rests on the declaration need not hold there.
    """
    cases: dict[int, str] = {}
    resizing = Resizing(attempts.flow, attempts.ports, found.sizes, attempts.sizes)
    for kind, tried in (
        ("other", resizing.smaller()),
        ("larger", resizing.larger()),
        ("long", resizing.longer()),
    ):
        for sizes in islice((each for each in tried if each != found.sizes), _MOST_OTHERS):
            try:
                made = attempts.attempt(sizes, found.mood, (seed,))
            except RunError:
                continue
            except StoppedError:
                attempts.runner.restart()
                continue
            is_usable = made.is_finite or not found.is_finite
            if is_usable and _are_declared(attempts.flow, made.outputs[seed], sizes):
                changed = [f"{n}={size}" for n, size in sizes.items() if size != found.sizes[n]]
                shown = [*changed[:_MOST_SHOWN], *["…"] * (len(changed) > _MOST_SHOWN)]
                number = found.add(made.feeds[seed], made.outputs[seed])
                cases[number] = f"{kind} sizes ({', '.join(shown)})"
                break
    return cases


def _are_declared(flow: Dataflow, outputs: Outputs, sizes: Mapping[str, int]) -> bool:
    """Tell whether outputs have the sizes that they share with inputs by name."""
    return all(
        sizes.get(dim, size) == size
        for port in output_ports(flow.model.graph)
        for leaf in outputs[port.name]
        for dim, size in zip(port.shape or (), leaf.data.shape, strict=False)
        if isinstance(dim, str)
    )


def _choice(port: Port, found: Found, cases: Iterable[int], origin: str) -> InputChoice:
    """Return what one input was fed over the *cases* that are judged."""
    fed = [arrays_in(found.feeds[case][port.name]) for case in cases]
    if port.name in found.ranges:
        how, shape = found.ranges[port.name].how, shape_of(port, found.sizes)
    else:
        how, shape = origin, fed[0][0].shape if fed[0] else ()
    arrays = (array for arrays in fed for array in arrays)
    numbers = [a.astype(np.float64) for a in arrays if a.size and a.dtype.kind not in "OUSc"]
    least = min((float(a.min()) for a in numbers), default=math.nan)
    most = max((float(a.max()) for a in numbers), default=math.nan)
    low, high = (number if math.isfinite(number) else None for number in (least, most))
    return InputChoice(port.name, port.type_name, shape, low, high, how)


# Writing what was fed, so that a comparison can be run again, by dpl or another tool.


def save_inputs(path: Path, stimulus: Stimulus) -> None:
    """Write the inputs of every case as .npz, in one step and the same bytes each time.

    A single case has the inputs' own names, several cases have ``NAME@CASE``. Elements of a
    sequence are ``NAME[0]``, ``NAME[1]``, …; an empty sequence or an absent optional is an empty
    array ``NAME[]``.

    Raises:
        UsageError: The file cannot be written.
    """
    cases = {
        str(case) if label == f"seed {case}" else label.rpartition("@")[2]: stimulus.feeds[case]
        for case, label in stimulus.cases.items()
    }
    write_arrays(opt("save_inputs"), path, _members(cases))


def _members(cases: Mapping[str, Mapping[str, Feed]]) -> Iterator[tuple[str, Array]]:
    for label, feeds in cases.items():
        suffix = f"@{label}" if len(cases) > 1 else ""
        for name, feed in feeds.items():
            if isinstance(feed, np.ndarray):
                yield f"{name}{suffix}", feed
            elif feed:
                yield from ((f"{name}[{n}]{suffix}", item) for n, item in enumerate(feed))
            else:
                yield f"{name}[]{suffix}", np.empty(0, np.uint8)
