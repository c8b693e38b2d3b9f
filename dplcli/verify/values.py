"""What goes into a run of a model, and what comes out of it: arrays, errors and times."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from dplcli.errors import VerificationError, shortened
from dplcli.verify.check import PLAIN, Execution

# How long a run takes.


@dataclass(frozen=True)
class PartitionTime:
    """How long one partition took in one run of the model, by the library's own account.

    Attributes:
        call: Name of the call.
        milliseconds: What it computes.
        reorders: To lay tensors out in another way, in milliseconds.
    """

    call: str
    milliseconds: float
    reorders: float


@dataclass(frozen=True)
class Timing:
    """How long one model took, in seconds for one run: a number for each round.

    Attributes:
        wall: By the clock.
        cpu: Of all its threads together.
    """

    wall: tuple[float, ...]
    cpu: tuple[float, ...]


# What goes in, and what comes out.


Array = npt.NDArray[np.generic]
Feed = Array | list[Array] | None


def map_feed(change: Callable[[Array], Array], feed: Feed) -> Feed:
    """Return what is fed with every array changed; what is absent stays absent."""
    if isinstance(feed, list):
        return [change(array) for array in feed]
    return None if feed is None else change(feed)


def arrays_in(feed: Feed) -> list[Array]:
    """Return the arrays of what is fed: none for what is absent."""
    return feed if isinstance(feed, list) else [] if feed is None else [feed]


_ADDED = 2  # numpy's mark of an element type that another package registered


def is_exotic(array: Array) -> bool:
    """Tell whether numpy itself lacks the element type: ml_dtypes adds bfloat16, float8, ..."""
    return array.dtype.isbuiltin == _ADDED


def storable(array: Array) -> Array:
    """Return *array* as numpy's files hold it: words as text, types that numpy lacks as bytes."""
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.view(f"V{array.dtype.itemsize}") if is_exotic(array) else array


_NOISE = (
    re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : "),
    re.compile(r"Load model from .*? failed:\s*"),
    re.compile(r"Non-zero status code returned while "),
    re.compile(r"Status Message: "),
    re.compile(r"<lambda\(\)>\s*"),
    re.compile(r"/?[\w./\\+-]*onnxruntime[\w./\\+-]*\.(?:cc|h|cpp):\d+\s*"),
    re.compile(r"[\w:~]*onnxruntime::[\w:<>,&*~ ]*\(.*?\)(?: const)?(?: \[with [^]]*\])?[:\s]*"),
)
_LONGEST_MESSAGE = 300
_SHORTAGE = re.compile(
    r"bad_?\s?alloc|allocate memory|out of memory|cannot allocate|allocation fail", re.IGNORECASE
)


def one_line(message: str) -> str:
    """Return a message of onnxruntime on one line, without codes, C++ paths and signatures.

    A name of any length is shortened first: what looks for noise takes the square of its length.
    """
    text = " ".join(map(shortened, message.split()))
    for noise in _NOISE:
        text = noise.sub("", text)
    text = _balanced(" ".join(text.split()))
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


def _balanced(text: str) -> str:
    """Strip quotes round the whole message, and add or drop one that has no partner."""
    text = text.strip(" ")
    for quote in "'\"":
        if text.startswith(quote) and text.endswith(quote) and text.count(quote) == 2:  # noqa: PLR2004  # the two at the ends
            text = text.strip(quote)
        if text.count(quote) % 2:
            text = text.removesuffix(quote) if text.endswith(quote) else f"{text}{quote}"
    return text


def tells_of_shortage(message: str) -> bool:
    """Tell whether a message says that there was not enough memory."""
    return _SHORTAGE.search(message) is not None


class RunError(Exception):
    """onnxruntime refused a model or a set of inputs; the message is one clean line."""


class ShortageError(RunError):
    """There was not enough memory for a model or its run."""


class StoppedError(VerificationError):
    """The process that ran a model crashed, or was stopped at a limit.

    Args:
        how: What onnxruntime did, such as 'crashed (SIGSEGV)'.
        doing: On what, such as 'running the candidate at level all'.
        hint: What may help.
    """

    def __init__(self, how: str, doing: str, *, hint: str | None = None) -> None:
        super().__init__(f"onnxruntime {how} {doing}", hint=hint)
        self.how = how
        self.doing = doing


@dataclass(frozen=True)
class Leaf:
    """One array of an output.

    Attributes:
        label: Where it is inside the output: '' for a tensor, '[3]' in a sequence.
        dtype: Element type, as numpy calls it.
        data: The values. bfloat16 comes as float32. Other types that numpy lacks come as integers,
            in the order of the numbers that they stand for.
    """

    label: str
    dtype: str
    data: Array


def leaves_of(value: object) -> tuple[Leaf, ...]:
    """Return the arrays of one output: a tensor, a sequence, a map or an absent optional."""
    match value:
        case None:
            return ()
        case np.ndarray():
            return (_leaf("", value),)
        case dict():
            return _map_leaves([value])
        case [dict(), *_]:
            return _map_leaves([entry for entry in value if isinstance(entry, dict)])
        case list():
            return tuple(_leaf(f"[{index}]", np.asarray(v)) for index, v in enumerate(value))
        case _:
            return (_leaf("", np.asarray(value)),)


def _map_leaves(maps: Sequence[Mapping[object, object]]) -> tuple[Leaf, ...]:
    keys = np.array([[str(key) for key in entry] for entry in maps], dtype=object)
    values = np.array([list(entry.values()) for entry in maps])
    if values.dtype == np.float64:
        values = values.astype(np.float32)
    return (_leaf(".keys", keys), _leaf(".values", values))


def _leaf(label: str, data: Array) -> Leaf:
    name = "string" if data.dtype.kind in "OUS" else data.dtype.name
    return Leaf(label, name, data)


Calls = Mapping[tuple[str, str, str], tuple[Sequence[str], Sequence[str]]]
"""By domain, function and name of calls, the element types of what they read and make."""

NO_CALLS: Calls = MappingProxyType({})

Outputs = dict[str, tuple[Leaf, ...]]
Runs = Mapping[int, Outputs]
"""What a model gave, per case."""


@dataclass(frozen=True, eq=False)
class BlockCuts:
    """Where a model is cut into blocks, which run one after the other.

    Attributes:
        create: What runs a model so: it is given a source, a level and an engine.
        ends: For each block but the last: values that it makes, and that others need.
        noted: Further values that are asked for where optimisation is off.
        kept: What the model gave there by what it was fed, so that blocks need not run again; None
            if nothing is kept.
        say: Called with a short phrase before each block.
        results: Where what blocks give is stored until the check is over, so that one that was
            interrupted goes on from there; None for nowhere.
        stored: The files there that this check has to do with.
    """

    create: Callable[..., Any]
    ends: Sequence[Sequence[str]]
    noted: frozenset[str] = frozenset()
    kept: dict[bytes, dict[str, Feed]] | None = None
    say: Callable[[str], None] = lambda _phrase: None
    results: Path | None = None
    stored: set[Path] = field(default_factory=set)

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return len(self.ends) + 1


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from, and how it is to be run.

    Attributes:
        path: The file; external data is looked up beside it.
        content: What to run instead of the file's own bytes, if set.
        libraries: Libraries of custom operators that it may use.
        execution: Provider, options and limits.
        name: What messages call it.
        blocks: Where it is cut, if it runs in blocks.
    """

    path: Path
    content: bytes | None = None
    libraries: tuple[Path, ...] = ()
    execution: Execution = PLAIN
    name: str = "model"
    blocks: BlockCuts | None = None
