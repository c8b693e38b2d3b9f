"""A model that can be run: in a process of its own, or in ours. onnxruntime is loaded when used."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from dplcli.errors import UsageError, VerificationError
from dplcli.verify.execution import CPU, Execution
from dplcli.verify.values import (
    Array,
    Feed,
    Leaf,
    Outputs,
    RunError,
    ShortageError,
    Source,
    StoppedError,
)
from dplcli.verify.wire import Header
from dplcli.verify.workers import (
    IS_POSSIBLE,
    give_back,
    take_worker,
    try_in_worker,
)

__all__ = [
    "Array",
    "Feed",
    "Leaf",
    "Outputs",
    "RunError",
    "Runner",
    "Source",
    "StoppedError",
    "check_setup",
    "open_original",
    "run_seeds",
]

_MORE_MEMORY = "give it more: --memory-limit"

Kind = Literal["onnxruntime", "reference"]


class _Engine(Protocol):
    def run(self, feeds: Mapping[str, Feed]) -> Outputs: ...


class Runner:
    """One model, ready to run at one optimisation level."""

    def __init__(self, source: Source, level: str, engine: Kind = "onnxruntime") -> None:
        """Create the session; this can take minutes for a large graph.

        Raises:
            RunError: onnxruntime does not accept the model.
            StoppedError: The process crashed, or took longer than allowed.
            UsageError: onnxruntime does not have the provider, or does not know an option.
        """
        self._engine: _Engine
        if source.execution.isolated and IS_POSSIBLE:
            self._engine = _Remote(source, level, engine)
        elif engine == "reference":
            from dplcli.verify.reference import ReferenceSession  # noqa: PLC0415  # loads onnx

            self._engine = ReferenceSession(source)
        else:
            from dplcli.verify.ort_session import Session  # noqa: PLC0415  # loads onnxruntime

            self._engine = Session(source, level)

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model.

        Raises:
            RunError: onnxruntime does not accept the inputs, or fails on the way.
            StoppedError: The process crashed, or took longer than allowed.
        """
        return self._engine.run(feeds)


def open_original(
    source: Source, libraries: Sequence[Path], create: Callable[[Source], Runner]
) -> tuple[Source, Runner]:
    """Create the session that is right by definition, without custom operators if it can be.

    Args:
        source: The original.
        libraries: The custom operators that it may need.
        create: Creates a session.

    Raises:
        VerificationError: onnxruntime does not run it with them either.
    """
    problem: RunError | None = None
    for attempt in [source, replace(source, libraries=tuple(libraries))][: 1 + bool(libraries)]:
        try:
            return attempt, create(attempt)
        except RunError as error:
            problem = error
    raise VerificationError(f"onnxruntime does not run the original model: {problem}") from problem


def run_seeds(
    runner: Runner, feeds: Mapping[int, Mapping[str, Feed]], seeds: Sequence[int]
) -> dict[int, Outputs]:
    """Return the outputs for every seed.

    Raises:
        RunError: onnxruntime does not accept the inputs of a seed, or fails on the way.
        StoppedError: The process crashed, or took longer than allowed; the message says at which
            seed.
    """
    found = {}
    for seed in seeds:
        try:
            found[seed] = runner.run(feeds[seed])
        except StoppedError as error:
            doing = f"{error.doing}, seed {seed}"
            raise StoppedError(error.how, doing, hint=error.hint) from error
    return found


class _Remote:
    """A session in a worker; the worker is given back when nobody holds this any more."""

    def __init__(self, source: Source, level: str, engine: Kind) -> None:
        execution = source.execution
        self._label = f"the {source.name} at level {level}"
        if engine == "reference":
            self._label = f"the {source.name} in onnx's reference evaluator"
        self._execution = execution
        self._worker = take_worker()
        is_plain = execution.is_plain and not (source.libraries or execution.memory_limit)
        self.close = weakref.finalize(self, give_back, self._worker, reusable=is_plain)
        self.close.atexit = False
        arrays: list[Array] = []
        header = {**_described(source, arrays), "level": level, "engine": engine}
        self._ask(header, arrays, f"creating a session for {self._label}")

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        arrays: list[Array] = []
        places = {name: _placed(feed, arrays) for name, feed in feeds.items()}
        answer, given = self._ask({"do": "run", "feeds": places}, arrays, f"running {self._label}")
        return {
            name: tuple(Leaf(label, dtype, given[place]) for label, dtype, place in leaves)
            for name, leaves in answer["outputs"]
        }

    def _ask(
        self, header: Header, arrays: Sequence[Array], doing: str
    ) -> tuple[Header, list[Array]]:
        limit = self._execution.memory_limit
        try:
            return self._worker.ask(header, arrays, doing, self._execution.timeout)
        except StoppedError as error:
            if limit is None or not error.how.startswith("crashed"):
                raise
            how = f"{error.how}, under a memory limit of {limit:,} MB,"
            raise StoppedError(how, doing, hint=_MORE_MEMORY) from error
        except ShortageError as error:
            if limit is None:
                raise
            how = f"ran out of memory (limit: {limit:,} MB)"
            raise StoppedError(how, doing, hint=_MORE_MEMORY) from error


def check_setup(libraries: Sequence[Path], execution: Execution) -> None:
    """Refuse, before any work is done, libraries and providers that onnxruntime cannot use.

    Raises:
        UsageError: A file is missing, no library, or one without ``RegisterCustomOps``, or
            onnxruntime does not have the provider.
    """
    for library in libraries:
        if not library.is_file():
            raise UsageError(f"--custom-ops {library}: there is no such file")
    if not libraries and execution.provider == CPU:
        return
    if execution.isolated and IS_POSSIBLE:
        try_in_worker(libraries, execution.provider, execution.timeout)
        return
    from dplcli.verify import ort_session  # noqa: PLC0415  # loads onnxruntime

    ort_session.check_setup(libraries, execution.provider)


def _described(source: Source, arrays: list[Array]) -> Header:
    """Return what a worker needs to know of a source; large parts go to *arrays*."""
    content: int | None = None
    weights: dict[str, int] | None = None
    if source.content is not None:
        content = len(arrays)
        arrays.append(np.frombuffer(source.content, np.uint8))
    if source.weights is not None:
        weights = {}
        for name, values in source.weights.items():
            weights[name] = len(arrays)
            arrays.append(values)
    return {
        "do": "open",
        "path": str(source.path.absolute()),
        "content": content,
        "weights": weights,
        "libraries": [str(library.resolve()) for library in source.libraries],
        "provider": source.execution.provider,
        "options": [list(option) for option in source.execution.options],
        "memory_limit": source.execution.memory_limit,
    }


def _placed(feed: Feed, arrays: list[Array]) -> int | list[int] | None:
    """Add a feed to *arrays*, and return where it is."""
    if feed is None:
        return None
    values = feed if isinstance(feed, list) else [feed]
    places = list(range(len(arrays), len(arrays) + len(values)))
    arrays.extend(values)
    return places if isinstance(feed, list) else places[0]
