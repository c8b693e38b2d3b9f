"""Finding inputs that the original accepts: plans of sizes and ranges, tried until one runs.

Somebody's own values come first (`verify.given`); what they leave open is made up so that it fits
them. A case is one set of inputs: of a seed, of a file, or of a corner.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dplcli.errors import UsageError, VerificationError
from dplcli.verify.compare import Judge
from dplcli.verify.corners import corner_feeds, nudged, objection
from dplcli.verify.dataflow import Dataflow
from dplcli.verify.domains import Domain, input_domain
from dplcli.verify.given import GivenSet, read_given
from dplcli.verify.inputs import (
    Mood,
    Range,
    asked_range,
    check_feedable,
    choose_range,
    describe,
    draw,
    is_bold,
)
from dplcli.verify.interface import Port, output_ports
from dplcli.verify.request import CORNERS, InputRequest
from dplcli.verify.result import InputChoice
from dplcli.verify.sessions import Feed, Outputs, RunError, Runner
from dplcli.verify.sizes import belonging, check_sizes, shape_of, shaped_sizes, size_plans

_CAUTIOUS_PLANS = 4
_MOST_SMALL = 3
_WANTED = re.compile(r"requested shape:\{[^}]*\}|[Ee]xpected:? \d+")

Feeds = dict[str, Feed]


@dataclass(frozen=True)
class Stimulus:
    """What to feed, and how it was chosen.

    Attributes:
        feeds: The values of every input, per case.
        choices: What each input was fed over all cases that are judged.
        cases: What to call each case that is judged. Others in *feeds* only tell whether an
            output depends on the input at all.
        notes: What was left out, and why, in whole sentences.
    """

    feeds: Mapping[int, Mapping[str, Feed]]
    choices: tuple[InputChoice, ...]
    cases: Mapping[int, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Found:
    """Inputs that run: per case, how the free ones were drawn, and what comes out."""

    feeds: dict[int, Feeds]
    outputs: dict[int, Outputs]
    ranges: Mapping[str, Range]
    sizes: Mapping[str, int]


def find_stimulus(  # noqa: PLR0913  # what there is, what is asked, and who judges
    flow: Dataflow,
    ports: Sequence[Port],
    runner: Runner,
    seeds: Sequence[int],
    sizes: Mapping[str, int],
    *,
    request: InputRequest | None = None,
    judge: Judge | None = None,
) -> tuple[Stimulus, dict[int, Outputs]]:
    """Return the first inputs that run for every case, with the outputs that they give.

    There are two cases at least, where a second one can be made: what an output does not show of
    two different inputs it does not show at all.

    Raises:
        VerificationError: An input has a type that cannot be made, or no attempt ran; the message
            is what onnxruntime said of the first one, which is the most plausible.
        UsageError: A size, shape or range was given for what no input has, or a value does not
            fit.
    """
    request = request or InputRequest()
    given = read_given(request, flow.model.graph, ports, seeds)
    search = _Search(flow, ports, runner, request, sizes)
    if given:
        found, cases = search.with_given(given, seeds)
    else:
        found = search.run(_with_a_second(seeds), {})
        cases = {seed: f"seed {seed}" for seed in dict.fromkeys(seeds)}
    notes: list[str] = []
    if request.corners and judge is not None:
        names, notes = _add_corners(found, runner, judge)
        cases |= names
    choices = [search.describe(port, found, cases) for port in ports]
    return Stimulus(found.feeds, tuple(choices), cases, tuple(notes)), found.outputs


def _with_a_second(seeds: Sequence[int]) -> tuple[int, ...]:
    """Return *seeds*, plus another one if there is only one: blindness shows between two."""
    distinct = tuple(dict.fromkeys(seeds))
    return distinct if len(distinct) > 1 else (*distinct, distinct[0] + 1)


class _Search:
    """The search for inputs of one model."""

    def __init__(
        self,
        flow: Dataflow,
        ports: Sequence[Port],
        runner: Runner,
        request: InputRequest,
        sizes: Mapping[str, int],
    ) -> None:
        """Read off the model what its inputs are for; settle what was asked for by name."""
        self._flow = flow
        self._ports = ports
        self._runner = runner
        self._sizes = shaped_sizes(ports, request.shapes, sizes)
        check_sizes(ports, self._sizes)
        self._domains: dict[str, Domain] = {}
        by_name = {port.name: port for port in ports}
        if unknown := [name for name in request.ranges if name not in by_name]:
            known = ", ".join(by_name) or "none"
            raise UsageError(
                f"a range is given for {unknown[0]!r}, which is no input",
                hint=f"there are: {known}",
            )
        self._asked = {
            name: asked_range(by_name[name], low, high)
            for name, (low, high) in request.ranges.items()
        }
        self._origin: dict[str, str] = {}

    def run(self, seeds: Sequence[int], fixed: Mapping[str, Feed]) -> _Found:
        """Return inputs that run for every seed.

        Args:
            seeds: The cases.
            fixed: Inputs that are not to be made up; they are the same for every seed.
        """
        free = [port for port in self._ports if port.name not in fixed]
        check_feedable(free)
        first_error: RunError | None = None
        wanted: list[int] = []
        spare: _Found | None = None
        empty: _Found | None = None
        small: list[_Found] = []
        shapes = {n: f.shape for n, f in fixed.items() if isinstance(f, np.ndarray)}
        sizes = {**_fitting(self._ports, shapes), **self._sizes}
        for plan, mood in self._attempts(free, sizes, wanted):
            if small and small[-1].sizes == plan:
                continue
            ranges = {port.name: self._range(port, plan, mood) for port in free}
            feeds = {
                s: {**fixed, **{p.name: draw(p, ranges[p.name], plan, s) for p in free}}
                for s in seeds
            }
            try:
                outputs = {seed: self._runner.run(feeds[seed]) for seed in seeds}
            except RunError as error:
                first_error = first_error or error
                wanted += [size for size in _sizes_in(str(error)) if size not in wanted]
                if spare is not None:
                    return spare
                continue
            found = _Found(feeds, outputs, ranges, plan)
            if mood is Mood.BOLD and not _is_finite(outputs.values()):
                spare = found
                continue
            least = self._least_following(outputs.values()) if plan else None
            if least == 0:
                empty = empty or found
            elif least == 1 and len(small) < _MOST_SMALL:
                small.append(found)
            else:
                return found
        for left in (*small, spare, empty):
            if left is not None:
                return left
        raise VerificationError(
            f"no inputs were found that the original accepts; onnxruntime says: {first_error}",
            hint=_way_out(free, asked=bool(self._asked)),
        ) from first_error

    def _least_following(self, runs: Iterable[Outputs]) -> int | None:
        """Return the least size of an output that follows from those of the inputs, if one does.

        Of one frame or row nothing shows: not which is which, nor what was summed up over them.
        """
        chosen = {symbol for port in self._ports for symbol in port.symbols}
        given = [item for outputs in runs for item in outputs.items()]
        sizes: list[int] = []
        for port in output_ports(self._flow.model.graph):
            shapes = [leaf.data.shape for name, ls in given if name == port.name for leaf in ls]
            for axis, dim in enumerate(port.shape or ()):
                if axis and not isinstance(dim, int) and dim not in chosen:
                    sizes += [shape[axis] for shape in shapes if axis < len(shape)]
        return min(sizes, default=None)

    def _range(self, port: Port, plan: Mapping[str, int], mood: Mood) -> Range:
        asked = self._asked.get(port.name)
        return asked or choose_range(port, self._domain(port), plan, mood)

    def _domain(self, port: Port) -> Domain:
        if port.name not in self._domains:
            self._domains[port.name] = input_domain(self._flow, port)
        return self._domains[port.name]

    def _attempts(
        self, free: Sequence[Port], sizes: Mapping[str, int], wanted: Sequence[int]
    ) -> Iterator[tuple[dict[str, int], Mood]]:
        """Yield sizes and how far to go with the values; likely ones first."""
        bold = any(is_bold(p, self._domain(p)) for p in free if p.name not in self._asked)
        for index, chosen in enumerate(size_plans(free, belonging(free, sizes), wanted)):
            plan = {**sizes, **chosen}
            if bold:
                yield plan, Mood.BOLD
            yield plan, Mood.PLAIN
            if index < _CAUTIOUS_PLANS:
                yield plan, Mood.CAUTIOUS

    def with_given(
        self, given: Sequence[GivenSet], seeds: Sequence[int]
    ) -> tuple[_Found, dict[int, str]]:
        """Return one case per given set; what a set leaves open is drawn for a seed."""
        merged: _Found | None = None
        cases: dict[int, str] = {}
        numbers = [*dict.fromkeys(seeds)]
        numbers += range(max(numbers) + 1, max(numbers) + 1 + len(given))
        for number, one in zip(numbers, given, strict=False):
            if one.values.keys() != given[0].values.keys():
                raise UsageError(
                    f"{one.label} holds {_listed(one)}, but {given[0].label} {_listed(given[0])}",
                    hint="every case must hold the same inputs",
                )
            if twice := [name for name in one.values if name in self._asked]:
                raise UsageError(
                    f"{one.label}: holds values for {twice[0]!r}, for which a range is given, too"
                )
            found = self._run_given(number, one)
            cases[number] = one.label
            merged = found if merged is None else _merge(merged, found)
        if merged is None:
            raise UsageError("no inputs are given")
        self._origin = {name: _sources(given) for name in given[0].values}
        if len(cases) == 1:
            merged = self._probed(merged, given[0])
        return merged, cases

    def _run_given(self, number: int, one: GivenSet) -> _Found:
        if all(port.name in one.values for port in self._ports):
            feeds: Feeds = {port.name: one.values[port.name] for port in self._ports}
            try:
                return _Found({number: feeds}, {number: self._runner.run(feeds)}, {}, {})
            except RunError as error:
                raise UsageError(
                    f"{one.label}: the original does not accept these inputs; "
                    f"onnxruntime says: {error}"
                ) from error
        return self.run([number], one.values)

    def _probed(self, found: _Found, one: GivenSet) -> _Found:
        """Add a case that is made up whole, of the same shapes, if one runs."""
        shapes = {n: f.shape for n, f in one.values.items() if isinstance(f, np.ndarray)}
        number = max(found.feeds) + 1
        try:
            sizes = {**self._sizes, **_fitting(self._ports, shapes)}
            free = [port for port in self._ports if port.name not in self._asked]
            check_feedable(free)
            plan = next(size_plans(self._ports, sizes, ()))
            ranges = {port.name: self._range(port, plan, Mood.PLAIN) for port in self._ports}
            feeds = {p.name: draw(p, ranges[p.name], plan, number) for p in self._ports}
            outputs = self._runner.run(feeds)
        except (RunError, VerificationError, UsageError, StopIteration):
            return found
        return replace(
            found,
            feeds={**found.feeds, number: feeds},
            outputs={**found.outputs, number: outputs},
        )

    def describe(self, port: Port, found: _Found, cases: Iterable[int]) -> InputChoice:
        """Return what one input was fed over the *cases* that are judged."""
        fed = [found.feeds[case][port.name] for case in cases]
        if port.name in found.ranges:
            return describe(port, found.ranges[port.name].how, shape_of(port, found.sizes), fed)
        first = fed[0]
        array = first[0] if isinstance(first, list) and first else first
        shape = array.shape if isinstance(array, np.ndarray) else ()
        return describe(port, self._origin[port.name], shape, fed)


def _merge(ours: _Found, theirs: _Found) -> _Found:
    return _Found(
        ours.feeds | theirs.feeds, ours.outputs | theirs.outputs, theirs.ranges, theirs.sizes
    )


def _listed(one: GivenSet) -> str:
    return ", ".join(map(repr, one.values)) or "nothing"


def _sources(given: Sequence[GivenSet]) -> str:
    more = f" and {len(given) - 1} more" if len(given) > 1 else ""
    return f"from {given[0].label}{more}"


def _fitting(ports: Sequence[Port], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the sizes that arrays of these shapes give the symbols; the first one decides."""
    sizes: dict[str, int] = {}
    for port in ports:
        for symbol, dim in zip(port.symbols, shapes.get(port.name, ()), strict=False):
            if symbol is not None:
                sizes.setdefault(symbol, dim)
    return sizes


def _way_out(free: Sequence[Port], *, asked: bool) -> str:
    if asked:
        return "give another --range, or none: dpl then takes one that the model suggests"
    symbols = list(dict.fromkeys(s for port in free for s in port.symbols if s is not None))
    sizes = f"give sizes: {' '.join(f'--shape {s}=N' for s in symbols[:3])}; " if symbols else ""
    return f"{sizes}or values: --inputs FILE"


def _is_finite(runs: Iterable[Outputs]) -> bool:
    """Tell whether no float of any output is NaN or infinite."""
    return all(
        leaf.data.dtype.kind != "f" or bool(np.isfinite(leaf.data).all())
        for outputs in runs
        for leaves in outputs.values()
        for leaf in leaves
    )


def _add_corners(found: _Found, runner: Runner, judge: Judge) -> tuple[dict[int, str], list[str]]:
    """Run the original at the corners; keep those that are a fair test.

    Returns:
        What to call each case that was added to *found*, and which corners were left out, why.
    """
    cases: dict[int, str] = {}
    notes: list[str] = []
    missing: list[str] = []
    feeds = found.feeds[min(found.feeds)]
    for number, corner in enumerate(CORNERS, start=max(found.feeds) + 1):
        moved = corner_feeds(corner, feeds, found.ranges)
        if moved is None:
            missing.append(corner)
            continue
        try:
            outputs = runner.run(moved)
            reason = objection(corner, judge, outputs, runner.run(nudged(moved)))
        except RunError as error:
            notes.append(
                f"corner {corner!r} was left out: the original does not run there: {error}"
            )
            continue
        if reason is not None:
            notes.append(f"corner {corner!r} was left out: {reason}")
            continue
        found.feeds[number], found.outputs[number] = moved, outputs
        cases[number] = corner
    if missing:
        notes.append(f"no made-up input has these corners: {', '.join(missing)}")
    return cases, notes


def _sizes_in(message: str) -> list[int]:
    """Return the sizes that a refusal says it would have liked."""
    numbers = [n for found in _WANTED.finditer(message) for n in re.findall(r"\d+", found.group())]
    return [int(number) for number in numbers if int(number) > 1]
