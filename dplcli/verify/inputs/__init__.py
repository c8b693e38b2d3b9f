"""Inputs that a model accepts: given or drawn, with sizes for them."""

import lzma
import math
import re
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property, partial
from itertools import chain, count, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO
from zlib import crc32

import ml_dtypes
import numpy as np
import onnx
from google.protobuf.message import DecodeError

from dplcli.errors import UsageError, VerificationError
from dplcli.files import write_file
from dplcli.ir import Dim, Graph, Node, Value, operators
from dplcli.shapes.knowledge import Knowledge
from dplcli.shapes.terms import Algebra, Number, Term, add, negative
from dplcli.verify.check import REFERENCE_LEVEL, Check, InputFunction, InputRequest, Sums
from dplcli.verify.compare import Facts, Judge
from dplcli.verify.inputs.draws import (
    Mood,
    Range,
    asked_range,
    check_feedable,
    choose_range,
    draw,
    is_bold,
)
from dplcli.verify.inputs.files import ARCHIVE_ERRORS, check_saving, write_arrays
from dplcli.verify.inputs.given import GivenSet, check_known, read_given
from dplcli.verify.inputs.plans import NO_SIZES, shaped_sizes, size_plans
from dplcli.verify.inputs.relations import (
    SizeTerms,
    fixed_sizes,
    static_sizes,
    tied_sizes,
)
from dplcli.verify.inputs.sizes import (
    IMAGE_RANK,
    Dimensions,
    holds_indices,
    other_sizes,
    shape_of,
    smaller_size,
)
from dplcli.verify.model import (
    Dataflow,
    Domain,
    Kind,
    Port,
    Purpose,
    Waypoint,
    input_domain,
    input_ports,
    integer,
    kind_of,
    numbers_in,
    output_ports,
    stored,
)
from dplcli.verify.power import blind_outputs
from dplcli.verify.run import Runner, open_original
from dplcli.verify.values import (
    Array,
    BlockCuts,
    Feed,
    ModelSource,
    Outputs,
    RunError,
    StoppedError,
    arrays_in,
    storable,
)
from dplcli.verify.verdict import InputChoice

# Finding inputs that the original accepts: plans of sizes and ranges, tried until one runs.
#
# The user's own values come first. What they leave open is made up so that it fits them. A case is
# one set of inputs: of a seed, of a file, or of other sizes than those of the seeds.
# The last ones find what is right for one set of sizes only, or for few rows only.


_CAUTIOUS_PLANS = 5
_MOST_SMALL = 3
_MOST_OTHERS = 4
_MOST_SHOWN = 4
_WANTED = re.compile(r"requested shape:\{[^}]*\}|[Ee]xpected:? \d+")

_CHEAP = 1 << 25
"""The work up to which a case may have larger sizes than those of the seeds."""

_DEAR = 1 << 33
"""The work from which on a run is dear: that of a billion weights at eight positions."""

_LARGER = ((64, 2), (64, 1), (8, 1))
"""How many times as large the batch and the lengths are in a larger case; the first that runs."""

_LONG = 16
"""The larger cases have lengths of about so much."""

_LONGEST = 1 << 13
"""The largest number beyond which a length is tried."""

_MOST_BOUNDS = 4
"""How many numbers a bound of sizes has at most, one for each axis."""

_PATCH = 256  # pixels, after the 16 x 16 of vision transformers

Feeds = dict[str, Feed]
NO_FEEDS: Mapping[str, Feed] = MappingProxyType({})


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


@dataclass(frozen=True)
class _Found:
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
    search = _Search(flow, ports, runner, request, sizes)
    drawn = tuple(dict.fromkeys(seeds))
    if given:
        inputs, cases = search.with_given(given, seeds)
    else:
        # without a second case, nobody knows whether an output depends on the inputs
        inputs = search.run(drawn if len(drawn) > 1 else (*drawn, drawn[0] + 1), {})
        drawn = drawn[:1] if may_save and search.is_dear else drawn
        cases = {seed: f"seed {seed}" for seed in drawn}
    if resize and not given and not request.shapes:
        cases |= search.add_other_sizes(inputs, drawn[0])
    choices = [search.describe(port, inputs, cases) for port in ports]
    return Stimulus(inputs.feeds, tuple(choices), cases, drawn), inputs.outputs


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
        """Settle the sizes and ranges that the user asked for.

        Raises:
            UsageError: One of them is for no input, or does not fit.
        """
        self._flow = flow
        self._ports = ports
        self._runner = runner
        self._sizes = shaped_sizes(ports, request.shapes, sizes)
        # Refuse a size for a dimension that no input has.
        symbols = {s for port in ports for s in port.symbols if s is not None}
        free = any(port.shape is None for port in ports)
        named = [name for name in self._sizes if not (free and ":" in name)]
        check_known(named, sorted(symbols), "no input has a dimension {!r}")
        self._domain = cache(partial(input_domain, flow))
        by_name = {port.name: port for port in ports}
        check_known(request.ranges, by_name, "a range is given for {!r}, which is no input")
        self._asked = {
            name: asked_range(by_name[name], low, high)
            for name, (low, high) in request.ranges.items()
        }
        self._origin: dict[str, str] = {}
        self._has_run = False
        self._fixed = fixed_sizes(flow)

    @cached_property
    def is_dear(self) -> bool:
        """Whether one run takes seconds, told by the work in it."""
        sizes = next(size_plans(self._ports, self._sizes, ()), None)
        return sizes is not None and self._work(sizes) > _DEAR

    def run(self, seeds: Sequence[int], fixed: Mapping[str, Feed]) -> _Found:
        """Return inputs that run for every seed.

        Args:
            seeds: The cases.
            fixed: Inputs that are given, the same for every seed.
        """
        free = [port for port in self._ports if port.name not in fixed]
        check_feedable(free)
        first_error: RunError | None = None
        wanted: list[int] = []
        spare: _Found | None = None
        empty: _Found | None = None
        small: list[_Found] = []
        sizes = {**_fitting(self._ports, fixed), **self._sizes}
        for plan, mood in self._attempts(free, sizes, wanted):
            if small and small[-1].sizes == plan:
                continue
            try:
                found = self._attempt(plan, mood, seeds, fixed)
            except RunError as error:
                first_error = first_error or error
                wanted += [size for size in _sizes_in(str(error)) if size not in wanted]
                if spare is not None:
                    return spare
                continue
            if mood is Mood.BOLD and not found.is_finite:
                spare = found
                continue
            least = self._least_following(found.outputs.values()) if plan else None
            if least == 0:
                empty = empty or found
            elif least == 1 and len(small) < _MOST_SMALL:
                small.append(found)
            else:
                return found
        if left := next(filter(None, (*small, spare, empty)), None):
            return left
        raise VerificationError(
            f"no inputs were found that the original accepts; onnxruntime says: {first_error}",
            hint=_way_out(free, str(first_error), asked=bool(self._asked)),
        ) from first_error

    def _attempt(
        self,
        sizes: Mapping[str, int],
        mood: Mood,
        seeds: Sequence[int],
        fixed: Mapping[str, Feed] = NO_FEEDS,
    ) -> _Found:
        """Return inputs of these sizes for every seed, and what they give.

        Raises:
            RunError: The original does not run on them.
            StoppedError: It crashed, or took longer than allowed.
        """
        free = [port for port in self._ports if port.name not in fixed]
        ranges = {
            port.name: self._asked.get(port.name)
            or choose_range(port, self._domain(port), sizes, mood)
            for port in free
        }
        feeds = {
            s: {**fixed, **{p.name: draw(p, ranges[p.name], sizes, s) for p in free}} for s in seeds
        }
        outputs = dict(zip(feeds, self._runner.run_each([*feeds.values()]), strict=True))
        self._has_run = True
        return _Found(feeds, outputs, ranges, sizes, mood)

    def _least_following(self, runs: Iterable[Outputs]) -> int | None:
        """Return the least size of an output that follows from sizes of inputs; None if none does.

        A size of 0 or 1 shows little: not which row is which, nor what was summed over the rows.
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

    def _attempts(
        self, free: Sequence[Port], sizes: Mapping[str, int], wanted: Sequence[int]
    ) -> Iterator[tuple[dict[str, int], Mood]]:
        """Yield sizes and moods to try, the likely ones first."""
        bold = any(is_bold(p, self._domain(p)) for p in free if p.name not in self._asked)
        tied = tied_sizes(self._flow, free)
        static = self._static_sizes()
        plans = size_plans(
            free, sizes, wanted, static, tied=tied, fixed=self._fixed, is_dear=self.is_dear
        )
        for index, plan in enumerate(plans):
            if bold:
                yield plan, Mood.BOLD
            yield plan, Mood.PLAIN
            if index < _CAUTIOUS_PLANS:
                yield plan, Mood.CAUTIOUS

    def _static_sizes(self) -> Iterator[int]:
        """Yield sizes that may be the only ones, if nothing ran by now."""
        if not self._has_run:
            yield from static_sizes(self._flow)

    def with_given(
        self, given: Sequence[GivenSet], seeds: Sequence[int]
    ) -> tuple[_Found, dict[int, str]]:
        """Return one case per given set; the inputs that a set leaves open are drawn."""
        every: list[_Found] = []
        cases: dict[int, str] = {}
        numbers = chain(dict.fromkeys(seeds), count(max(seeds) + 1))
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
            every.append(self._run_given(number, one))
            cases[number] = one.label
        more = f" and {len(given) - 1} more" if len(given) > 1 else ""
        self._origin = dict.fromkeys(given[0].values, f"from {given[0].label}{more}")
        found = replace(
            every[-1],
            feeds={case: feeds for one in every for case, feeds in one.feeds.items()},
            outputs={case: outputs for one in every for case, outputs in one.outputs.items()},
        )
        if len(cases) == 1:
            self._add_made_up(found, given[0])
        return found, cases

    def _run_given(self, number: int, one: GivenSet) -> _Found:
        if any(port.name not in one.values for port in self._ports):
            return self.run([number], one.values)
        feeds: Feeds = {port.name: one.values[port.name] for port in self._ports}
        try:
            return _Found({number: feeds}, {number: self._runner.run(feeds)}, {}, {})
        except RunError as error:
            raise UsageError(
                f"{one.label}: the original does not accept these inputs; onnxruntime says: {error}"
            ) from error

    def _add_made_up(self, found: _Found, one: GivenSet) -> None:
        """Add a case of the same shapes that is all made up, if it runs."""
        seed = max(found.feeds) + 1
        try:
            check_feedable([port for port in self._ports if port.name not in self._asked])
            sizes = {**self._sizes, **_fitting(self._ports, one.values)}
            plan = next(size_plans(self._ports, sizes, (), fixed=self._fixed))
            attempt = self._attempt(plan, Mood.PLAIN, [seed])
        except (RunError, VerificationError, UsageError, StopIteration):
            return
        found.add(attempt.feeds[seed], attempt.outputs[seed])

    def add_other_sizes(self, found: _Found, seed: int) -> dict[int, str]:
        """Add cases of other, of larger and of long sizes to *found*; return their names.

        A case is left out where the original runs on none of the sizes tried, and where an output
        has other sizes than it declares: what rests on the declaration need not hold there.
        """
        cases: dict[int, str] = {}
        for kind, tried in (
            ("other", self._smaller_sizes(found.sizes)),
            ("larger", self._larger_sizes(found.sizes)),
            ("long", self._long_sizes(found.sizes)),
        ):
            for sizes in islice((each for each in tried if each != found.sizes), _MOST_OTHERS):
                try:
                    attempt = self._attempt(sizes, found.mood, (seed,))
                except RunError:
                    continue
                except StoppedError:
                    self._runner.restart()
                    continue
                is_usable = attempt.is_finite or not found.is_finite
                if is_usable and self._are_as_declared(attempt.outputs[seed], sizes):
                    changed = [f"{n}={size}" for n, size in sizes.items() if size != found.sizes[n]]
                    shown = [*changed[:_MOST_SHOWN], *["…"] * (len(changed) > _MOST_SHOWN)]
                    number = found.add(attempt.feeds[seed], attempt.outputs[seed])
                    cases[number] = f"{kind} sizes ({', '.join(shown)})"
                    break
        return cases

    def _are_as_declared(self, outputs: Outputs, sizes: Mapping[str, int]) -> bool:
        """Tell whether outputs have the sizes that they share with inputs by name."""
        return all(
            sizes.get(dim, size) == size
            for port in output_ports(self._flow.model.graph)
            for leaf in outputs[port.name]
            for dim, size in zip(port.shape or (), leaf.data.shape, strict=False)
            if isinstance(dim, str)
        )

    def _open_roles(self, sizes: Mapping[str, int]) -> dict[str, str]:
        """Return the roles of the sizes that may be others."""
        kept = self._sizes.keys() | tied_sizes(self._flow, self._ports)
        roles = Dimensions(self._ports, sizes).roles
        return {s: role for s, role in roles.items() if role != "channel" and s not in kept}

    def _larger_sizes(self, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield sizes many times as large as *sizes*, where that is little work."""
        roles = self._open_roles(sizes)
        for batch, length in _LARGER:
            times = {"batch": batch, "length": length, "image": 1}
            starts = {s: sizes[s] * times[role] for s, role in roles.items() if times[role] > 1}
            others = other_sizes(self._ports, sizes, starts, self._fixed)
            if starts and self._work(others) <= _CHEAP:
                yield others

    def _long_sizes(self, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield sizes with lengths beyond a number that sizes are compared with, where it is cheap.

        A length that is cut off at 512 shows in no run that is shorter.
        """
        lengths = [s for s, role in self._open_roles(sizes).items() if role == "length"]
        for bound in sorted(self._bounds_of_sizes(), reverse=True) if lengths else ():
            starts = dict.fromkeys(lengths, bound + 1)
            others = other_sizes(self._ports, sizes, starts, self._fixed)
            if self._work(others) <= _CHEAP:
                yield others

    def _bounds_of_sizes(self) -> set[int]:
        """Return the whole numbers that sizes may be compared with, or that are a part of one."""
        nodes = [*self._flow.nodes()]
        measuring = operators.MEASURING | operators.BOUNDED_BY_SIZE
        if measuring.isdisjoint(node.op_type for node in nodes):
            return set()
        arrays = (
            numbers_in(stored(value))
            for node in nodes
            if node.op_type in operators.BOUNDING or node.op_type in {"Add", "Sub"}
            for value in node.inputs
            if value is not None
        )
        return {
            number
            for array in arrays
            if array is not None and array.dtype == np.int64 and array.size <= _MOST_BOUNDS
            for number in array.reshape(-1).tolist()
            if _LONG <= number <= _LONGEST
        }

    def _smaller_sizes(self, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield sizes other than *sizes*: all that are open, only the batch, and all but that."""
        roles = self._open_roles(sizes)
        batch = {symbol for symbol, role in roles.items() if role == "batch"}
        for changed in (roles.keys(), batch, roles.keys() - batch):
            starts = {symbol: smaller_size(roles[symbol], sizes[symbol]) for symbol in changed}
            others = other_sizes(self._ports, sizes, starts, self._fixed)
            images = [symbol for symbol in changed if roles[symbol] == "image"]
            if images:  # what holds for even sizes need not hold for odd ones
                yield {**others, **{symbol: others[symbol] - 1 for symbol in images}}
            if others != sizes:
                yield others

    def _work(self, sizes: Mapping[str, int]) -> int:
        """Estimate the multiplications and copies of one run; it may be wrong by ten times.

        Every weight is used once at every position: a row, an index or a patch of an image. Every
        node touches as many elements as the inputs have.
        """
        tensors = (stored(value) for value in self._flow.values())
        weights = sum(math.prod(tensor.shape) for tensor in tensors if tensor is not None)
        value_count = sum(value.producer is not None for value in self._flow.values())
        shapes = [shape_of(port, sizes) for port in self._ports]
        positions = max(map(_positions, self._ports, shapes), default=1)
        return weights * positions + value_count * sum(map(math.prod, shapes))

    def describe(self, port: Port, found: _Found, cases: Iterable[int]) -> InputChoice:
        """Return what one input was fed over the *cases* that are judged."""
        fed = [arrays_in(found.feeds[case][port.name]) for case in cases]
        if port.name in found.ranges:
            how, shape = found.ranges[port.name].how, shape_of(port, found.sizes)
        else:
            how, shape = self._origin[port.name], fed[0][0].shape if fed[0] else ()
        arrays = (array for arrays in fed for array in arrays)
        numbers = [a.astype(np.float64) for a in arrays if a.size and a.dtype.kind not in "OUSc"]
        least = min((float(a.min()) for a in numbers), default=math.nan)
        most = max((float(a.max()) for a in numbers), default=math.nan)
        low, high = (number if math.isfinite(number) else None for number in (least, most))
        return InputChoice(port.name, port.type_name, shape, low, high, how)


def _positions(port: Port, shape: Sequence[int]) -> int:
    """Return at how many rows, indices or patches of an image a model looks."""
    if len(shape) >= IMAGE_RANK:
        return shape[0] * max(math.prod(shape[2:]) // _PATCH, 1)
    if holds_indices(port):
        return math.prod(shape)
    fixed = math.prod(dim for dim in port.shape or () if isinstance(dim, int))
    return math.prod(shape) // max(fixed, 1)


def _listed(one: GivenSet) -> str:
    return ", ".join(map(repr, one.values)) or "nothing"


def _fitting(ports: Sequence[Port], given: Mapping[str, Feed]) -> dict[str, int]:
    """Return the sizes of symbols in given arrays; the first array decides."""
    sizes: dict[str, int] = {}
    for port in ports:
        if isinstance(array := given.get(port.name), np.ndarray):
            for symbol, dim in zip(port.symbols, array.shape, strict=False):
                if symbol is not None:
                    sizes.setdefault(symbol, dim)
    return sizes


def _way_out(free: Sequence[Port], refusal: str, *, asked: bool) -> str:
    # onnxruntime blocks channels by 8 or by 16, as wide as the vectors of the processor on which it
    # optimised the model (mlas, `MlasNchwcGetBlockSize`); no input makes up for the other width.
    if "nchwc" in refusal.casefold():
        return (
            "operators of com.microsoft.nchwc run only on processors like the one on which "
            "onnxruntime optimised the model: take the model from before that, or such a processor"
        )
    if asked:
        return "give another --range, or none: dpl then takes one that the model suggests"
    symbols = list(dict.fromkeys(s for port in free for s in port.symbols if s is not None))
    sizes = f"give sizes: {' '.join(f'--shape {s}=N' for s in symbols[:3])}; " if symbols else ""
    return f"{sizes}or values: --inputs FILE"


def _sizes_in(message: str) -> list[int]:
    """Return the sizes that a refusal of onnxruntime asks for."""
    numbers = [n for found in _WANTED.finditer(message) for n in re.findall(r"\d+", found.group())]
    return [int(number) for number in numbers if int(number) > 1]


# The original as it runs, with inputs that it accepts.


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
    settings: Check,
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
        settings: Seeds, sizes, wishes for the inputs.
        create: Creates a session with optimisation off.
        resize: Whether to feed other sizes, too, than those of the seeds.
        blocks: Where the original is cut; None if it runs whole.
        say: Called with a short phrase before each step that may take long.

    Raises:
        VerificationError: onnxruntime does not run it, or no inputs were found that it accepts.
    """
    every_port = input_ports(flow.model.graph)
    terms = SizeTerms(flow, every_port)
    sums = {**terms.inner(), **terms.related(), **settings.request.sums}
    ports = [replace(port, sums=sums) for port in every_port]
    judge = Judge(settings, facts, settings.first_seeds[0])
    source = ModelSource(path, execution=settings.execution.plain(), blocks=blocks)
    source, runner = open_original(source, settings.custom_ops, create)
    say("looking for inputs that the original accepts")
    stimulus, outputs = find_stimulus(
        flow,
        ports,
        runner,
        settings.first_seeds,
        settings.sizes,
        request=settings.request,
        resize=resize,
        may_save=settings.seeds is None,
    )
    runs = [outputs[case] for case in _of_one_shape(stimulus.feeds)]
    if len(runs) == 1:  # inputs are given, and no two of one shape
        runs = list(outputs.values())
    blind = blind_outputs(judge, runs) if ports and len(runs) > 1 else ()
    return Reference(source, facts, stimulus, outputs, blind)


def fed_reference(
    path: Path, model: onnx.ModelProto, settings: Check, say: Callable[[str], None]
) -> Reference:
    """Run a model that nothing is compared with place by place; save what it is fed, if asked.

    Raises:
        VerificationError: onnxruntime does not run it, or no inputs were found that it accepts.
        UsageError: What it is fed cannot be written.
    """
    reference = open_reference(path, Dataflow(model), Facts(), settings, resize=False, say=say)
    if settings.request.save is not None:
        save_inputs(settings.request.save, reference.stimulus)
    return reference


def _of_one_shape(feeds: Mapping[int, Mapping[str, Feed]]) -> list[int]:
    """Return the cases whose inputs have the shapes of the first, but for what is left out.

    An output whose shape follows from an input's depends on that; its numbers need not.
    """
    shapes = {
        case: {name: [a.shape for a in arrays_in(feed)] for name, feed in fed.items()}
        for case, fed in feeds.items()
    }
    first = next(iter(shapes.values()))
    return [
        case
        for case, known in shapes.items()
        if all(not shape or not first[n] or shape == first[n] for n, shape in known.items())
    ]


def candidate_source(path: Path, settings: Check, blocks: BlockCuts | None = None) -> ModelSource:
    """Return the candidate as the user deploys it."""
    return ModelSource(
        path,
        libraries=settings.custom_ops,
        execution=settings.execution,
        name="candidate",
        blocks=blocks,
    )


# Writing what was fed, so that a comparison can be run again, by dpl or another tool.


def save_inputs(path: Path, stimulus: Stimulus) -> None:
    """Write the inputs of every case as .npz, in one step and the same bytes each time.

    A single case has the inputs' own names, several cases have ``NAME@CASE``. Elements of a
    sequence are ``NAME[0]``, ``NAME[1]``, …; an empty sequence or an absent optional is an empty
    array ``NAME[]``. numpy has no name for bfloat16 and the like. Such arrays are raw bytes of that
    width in the file, and are read back as the type that the model declares.

    Raises:
        UsageError: The file cannot be written.
    """
    cases = {
        str(case) if label == f"seed {case}" else label.rpartition("@")[2]: stimulus.feeds[case]
        for case, label in stimulus.cases.items()
    }
    write_arrays("--save-inputs", path, _members(cases))


def save_outputs(path: Path, outputs: Outputs) -> None:
    """Write what a model gave as .npz: arrays by the names of the outputs.

    Raises:
        UsageError: The file cannot be written.
    """
    leaves = ((name, leaf) for name, given in outputs.items() for leaf in given)
    write_arrays("--output", path, ((f"{name}{leaf.label}", leaf.data) for name, leaf in leaves))


def _members(cases: Mapping[str, Mapping[str, Feed]]) -> Iterator[tuple[str, Array]]:
    for label, feeds in cases.items():
        suffix = f"@{label}" if len(cases) > 1 else ""
        for name, feed in feeds.items():
            if feed is None or (isinstance(feed, list) and not feed):
                yield f"{name}[]{suffix}", np.empty(0, np.uint8)
            elif isinstance(feed, list):
                for index, item in enumerate(feed):
                    yield f"{name}[{index}]{suffix}", item
            else:
                yield f"{name}{suffix}", feed
