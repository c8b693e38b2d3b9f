"""Finding inputs that the original accepts: plans of sizes and ranges, tried until one runs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dplcli.errors import VerificationError
from dplcli.verify.dataflow import Dataflow
from dplcli.verify.domains import input_domain
from dplcli.verify.inputs import Range, check_feedable, choose_range, describe, draw
from dplcli.verify.interface import Port
from dplcli.verify.result import InputChoice
from dplcli.verify.sessions import Feed, Outputs, RunError, Runner
from dplcli.verify.sizes import size_plans

_CAUTIOUS_PLANS = 4
_WANTED = re.compile(r"requested shape:\{[^}]*\}|[Ee]xpected:? \d+")


@dataclass(frozen=True)
class Stimulus:
    """What to feed: the values of every input per seed, and how they were chosen."""

    feeds: Mapping[int, Mapping[str, Feed]]
    choices: tuple[InputChoice, ...]


def find_stimulus(
    flow: Dataflow,
    ports: Sequence[Port],
    runner: Runner,
    seeds: Sequence[int],
    sizes: Mapping[str, int],
) -> tuple[Stimulus, dict[int, Outputs]]:
    """Return the first inputs that run for every seed, with the outputs that they give.

    Raises:
        VerificationError: An input has a type that cannot be made, or no attempt ran; the message
            is what onnxruntime said of the first one, which is the most plausible.
        UsageError: A size was given for a dimension that no input has.
    """
    check_feedable(ports)
    domains = {port.name: input_domain(flow, port) for port in ports}
    first_error: RunError | None = None
    wanted: list[int] = []
    for plan, cautious in _attempts(ports, sizes, wanted):
        ranges = {p.name: choose_range(p, domains[p.name], plan, cautious=cautious) for p in ports}
        feeds = {seed: _feeds(ports, ranges, plan, seed) for seed in seeds}
        try:
            outputs = {seed: runner.run(feeds[seed]) for seed in seeds}
        except RunError as error:
            first_error = first_error or error
            wanted += [size for size in _sizes_in(str(error)) if size not in wanted]
            continue
        choices = [
            describe(p, ranges[p.name], plan, [feeds[seed][p.name] for seed in seeds])
            for p in ports
        ]
        return Stimulus(feeds, tuple(choices)), outputs
    raise VerificationError(
        f"no inputs were found that the original accepts; onnxruntime says: {first_error}",
        hint="give sizes for its symbolic dimensions: --size NAME=NUMBER",
    ) from first_error


def _sizes_in(message: str) -> list[int]:
    """Return the sizes that a refusal says it would have liked."""
    numbers = [n for found in _WANTED.finditer(message) for n in re.findall(r"\d+", found.group())]
    return [int(number) for number in numbers if int(number) > 1]


def _attempts(
    ports: Sequence[Port], sizes: Mapping[str, int], wanted: Sequence[int]
) -> Iterator[tuple[dict[str, int], bool]]:
    """Yield sizes and whether to keep the values cautious; likely ones first."""
    for index, plan in enumerate(size_plans(ports, sizes, wanted)):
        yield plan, False
        if index < _CAUTIOUS_PLANS:
            yield plan, True


def _feeds(
    ports: Sequence[Port], ranges: Mapping[str, Range], plan: Mapping[str, int], seed: int
) -> dict[str, Feed]:
    return {port.name: draw(port, ranges[port.name], plan, seed) for port in ports}
