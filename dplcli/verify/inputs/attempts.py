"""Attempts to run a model on made-up inputs: sizes and numbers in turn, until one tells enough."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial

import numpy as np

from dplcli.errors import VerificationError, opt
from dplcli.verify.check import InputRequest
from dplcli.verify.compare import held_as
from dplcli.verify.inputs import draws
from dplcli.verify.inputs.draws import Mood, Range
from dplcli.verify.inputs.given import check_known, shaped_sizes, sizes_given
from dplcli.verify.inputs.relations import fixed_sizes, static_sizes, tied_sizes
from dplcli.verify.inputs.sizes import size_plans
from dplcli.verify.model import Dataflow, Port, dtype_name, input_domain, output_ports
from dplcli.verify.run import Runner
from dplcli.verify.values import Feed, Outputs, RunError

Feeds = dict[str, Feed]

_CAUTIOUS_PLANS = 5
"""Of so many plans numbers near 0 and 1 are tried, too."""

_MOST_SMALL = 4
"""After so many runs in which a size comes down to 1, larger sizes are taken not to help."""

_WANTED = re.compile(r"requested shape:\{[^}]*\}|[Ee]xpected:? \d+")
"""Where a refusal of onnxruntime says which sizes it asks for."""


@dataclass(frozen=True)
class Found:
    """Inputs that run: their values and the outputs per case, how free ones were drawn, sizes."""

    feeds: dict[int, Feeds]
    outputs: dict[int, Outputs]
    ranges: Mapping[str, Range]
    sizes: Mapping[str, int]
    mood: Mood = Mood.PLAIN

    @property
    def is_finite(self) -> bool:
        """Whether no float of any output is NaN or infinite."""
        given = (leaves for outputs in self.outputs.values() for leaves in outputs.values())
        floats = (leaf.data for leaves in given for leaf in leaves if leaf.data.dtype.kind == "f")
        return all(bool(np.isfinite(data).all()) for data in floats)

    def add(self, feeds: Feeds, outputs: Outputs) -> int:
        """Add a case, and return its number."""
        number = max(self.feeds) + 1
        self.feeds[number], self.outputs[number] = feeds, outputs
        return number


class _Worth(IntEnum):
    """What inputs that run are good for.

    EMPTY: A size of an output is 0. ODD: Some outputs are NaN or infinite, perhaps since all keys
    are hidden. SMALL: A size of an output is 1. ENOUGH: None of that.
    """

    EMPTY = 0
    ODD = 1
    SMALL = 2
    ENOUGH = 3


class Attempts:
    """The inputs of one model that are made up.

    Args:
        flow: The model.
        ports: Its inputs.
        runner: Runs it.
        request: Ranges and whole shapes that the user wants.
        sizes: Sizes that the user fixed.

    Attributes:
        flow: The model.
        ports: Its inputs.
        runner: Runs it.
        sizes: All sizes that the user fixed.
        asked: How inputs are drawn that have a range of the user's.

    Raises:
        UsageError: A size, shape or range is for no input, or does not fit.
    """

    def __init__(
        self,
        flow: Dataflow,
        ports: Sequence[Port],
        runner: Runner,
        request: InputRequest,
        sizes: Mapping[str, int],
    ) -> None:
        self.flow, self.ports, self.runner = flow, ports, runner
        self.sizes = shaped_sizes(ports, request.shapes, sizes, request.sums)
        by_name = {port.name: port for port in ports}
        check_known(request.ranges, by_name, "a range is given for {!r}, which is no input")
        self.asked = {
            name: draws.asked_range(by_name[name], *r) for name, r in request.ranges.items()
        }
        self._exact_in = request.exact_in
        self._domain = cache(partial(input_domain, flow))
        self._fixed = fixed_sizes(flow)
        self._has_run = False

    def first_sizes(self, given: Mapping[str, int]) -> dict[str, int] | None:
        """Return sizes of which none coincide, given some; None if all are too large."""
        return next(size_plans(self.ports, {**self.sizes, **given}, (), fixed=self._fixed), None)

    def run(self, seeds: Sequence[int], given: Mapping[str, Feed]) -> Found:
        """Return inputs that run for every seed, the first from which something shows.

        Args:
            seeds: The cases.
            given: Inputs that the user has, the same for every seed.

        Raises:
            VerificationError: There are none, or an input has a type that cannot be made. The
                message is what onnxruntime said of the first attempt, the most plausible one.
        """
        free = [port for port in self.ports if port.name not in given]
        first_error: RunError | None = None
        wanted: list[int] = []
        kept: dict[_Worth, Found] = {}
        small: list[Mapping[str, int]] = []
        sizes = {**sizes_given(self.ports, given), **self.sizes}
        for plan, mood in self._tried(free, sizes, wanted):
            if small[-1:] == [plan]:
                continue
            try:
                found = self.attempt(plan, mood, seeds, given)
            except RunError as error:
                # what was raised holds on to this frame, and so to the session
                first_error = first_error or RunError(str(error))
                said = " ".join(_WANTED.findall(str(error)))
                wanted += [int(number) for number in re.findall(r"\d+", said)]
                continue
            worth = self._worth(found)
            kept.setdefault(worth, found)
            small += [plan] if worth is _Worth.SMALL else []
            if worth is _Worth.ENOUGH or len(small) == _MOST_SMALL:
                break
        if kept:
            return kept[max(kept)]
        raise VerificationError(
            f"no inputs were found that the original accepts; onnxruntime says: {first_error}",
            hint=_way_out(free, str(first_error), asked=bool(self.asked)),
        ) from first_error

    def attempt(
        self,
        sizes: Mapping[str, int],
        mood: Mood,
        seeds: Sequence[int],
        given: Mapping[str, Feed] | None = None,
    ) -> Found:
        """Return inputs of these sizes for every seed, and what they give.

        Raises:
            VerificationError: An input has a type that cannot be made.
            RunError: The original does not run on them.
            StoppedError: It crashed, or took longer than allowed.
        """
        given = given or {}
        free = [port for port in self.ports if port.name not in given]
        draws.check_feedable([port for port in free if port.name not in self.asked])
        ranges = {
            p.name: self.asked.get(p.name) or draws.choose_range(p, self._domain(p), sizes, mood)
            for p in free
        }
        feeds: dict[int, Feeds] = {}
        for seed in seeds:
            made = {p.name: draws.draw(p, ranges[p.name], sizes, seed) for p in free}
            fed = {**made, **given}
            feeds[seed] = {port.name: self._exact(port, fed[port.name]) for port in self.ports}
        outputs = dict(zip(feeds, self.runner.run_each([*feeds.values()]), strict=True))
        self._has_run = True
        return Found(feeds, outputs, ranges, sizes, mood)

    def _exact(self, port: Port, feed: Feed) -> Feed:
        """Return what is fed, rounded so that another float type holds it, too, if it has to."""
        other = self._exact_in.get(port.name)
        return feed if other is None else held_as(dtype_name(port.dtype), held_as(other, feed))

    def _tried(
        self, free: Sequence[Port], sizes: Mapping[str, int], wanted: Sequence[int]
    ) -> Iterator[tuple[dict[str, int], Mood]]:
        """Yield sizes and moods to try, the likely ones first."""
        bold = any(draws.is_bold(p, self._domain(p)) for p in free if p.name not in self.asked)
        tied, static = tied_sizes(self.flow, free), self._static_sizes()
        plans = size_plans(free, sizes, wanted, static, tied=tied, fixed=self._fixed)
        for index, plan in enumerate(plans):
            if bold:
                yield plan, Mood.BOLD
            yield plan, Mood.PLAIN
            if index < _CAUTIOUS_PLANS:
                yield plan, Mood.CAUTIOUS

    def _static_sizes(self) -> Iterator[int]:
        """Yield sizes that may be the only ones, if nothing ran by now."""
        if not self._has_run:
            yield from static_sizes(self.flow)

    def _worth(self, found: Found) -> _Worth:
        """Tell what inputs are good for, by the outputs and by their sizes that follow from others.

        A size of 0 or 1 shows little: not which row is which, nor what was summed over the rows.
        """
        if found.mood is Mood.BOLD and not found.is_finite:
            return _Worth.ODD
        chosen = {symbol for port in self.ports for symbol in port.symbols}
        outputs = found.outputs.values() if found.sizes else ()
        sizes = {
            size
            for port in output_ports(self.flow.model.graph)
            for each in outputs
            for leaf in each.get(port.name, ())
            for axis, (dim, size) in enumerate(zip(port.shape or (), leaf.data.shape, strict=False))
            if axis and not isinstance(dim, int) and dim not in chosen
        }
        return _Worth.EMPTY if 0 in sizes else _Worth.SMALL if 1 in sizes else _Worth.ENOUGH


def _way_out(free: Sequence[Port], refusal: str, *, asked: bool) -> str:
    # onnxruntime blocks channels by 8 or by 16, as wide as the vectors of the processor on which it
    # optimised the model (mlas, `MlasNchwcGetBlockSize`); no input makes up for the other width.
    if "nchwc" in refusal.casefold():
        return (
            "operators of com.microsoft.nchwc run only on processors like the one on which "
            "onnxruntime optimised the model: take the model from before that, or such a processor"
        )
    if asked:
        return f"give another {opt('range')}, or none: dpl then takes one that the model suggests"
    symbols = list(dict.fromkeys(s for port in free for s in port.symbols if s is not None))
    sizes = " ".join(opt("shape", f"{symbol}=N") for symbol in symbols[:3])
    return f"{f'give sizes: {sizes}; ' * bool(sizes)}or values: {opt('inputs', 'FILE')}"
