"""Run a model once, with its partitions on the library of their target if that is asked for."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.errors import UsageError, VerificationError, opt
from dplcli.onnx_io import check_external_data, load_model
from dplcli.outcomes.running import BenchOutcome, BenchSide, RunOutcome
from dplcli.pipeline.verifying import check_of, compare, prepare
from dplcli.verify.values import ModelSource, PartitionTime, RunError, Timing
from dplcli.verify.verdict import KernelReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from dplcli.settings import BenchSettings, RunSettings
    from dplcli.verify.check import Execution
    from dplcli.verify.run import Runner
    from dplcli.verify.values import Feed
    from dplcli.verify.verdict import PartitionRun


def run_model(path: Path, chosen: RunSettings) -> RunOutcome:
    """Run a model in onnxruntime, on given inputs or on inputs made up for it.

    Args:
        path: The model.
        chosen: Seed, sizes and inputs, level and kernels, and where what it gives is written.

    Raises:
        DplError: The file is no model, onnxruntime does not run it, or a library is missing.
    """
    from dplcli.verify.inputs import check_saving, fed_reference, save_outputs  # noqa: PLC0415  # only where something is run
    from dplcli.verify.model import read_model  # noqa: PLC0415  # onnx
    from dplcli.verify.run import Runner, check_setup  # noqa: PLC0415  # onnxruntime

    settings, output = check_of(chosen), chosen.output
    say = chosen.progress or (lambda _phrase: None)
    for option, place in ((opt("output"), output), (opt("save_inputs"), settings.request.save)):
        check_saving(option, place, path, settings.request.given)
    prepare(settings)
    check_external_data(load_model(path))
    check_setup(settings.custom_ops, settings.execution)
    try:
        reference = fed_reference(path, read_model(path), settings, say)
    except VerificationError as error:
        message = error.wording.replace("the original model", path.name)
        raise VerificationError(message, hint=error.advice) from error
    case, fed = next(iter(reference.stimulus.cases.items()))
    (level,) = settings.judged_levels
    say("running")
    source = ModelSource(path, libraries=settings.custom_ops, execution=settings.execution)
    try:
        runner = Runner(source, level)
        outputs = runner.run(reference.feeds[case])
    except RunError as error:
        raise VerificationError(f"{path.name} does not run: {error}") from error
    kernels = settings.execution.kernels
    report = None if kernels is None else KernelReport(kernels, 1, tuple(runner.record()))
    verification = None
    if chosen.checked:
        settings = replace(settings, request=replace(settings.request, save=None))
        verification = compare(path, path, settings, chosen.progress)
    outcome = RunOutcome(
        label=path.name,
        fed=fed,
        feeds=reference.stimulus.feeds[case],
        level=level,
        leaves=outputs,
        kernels=report,
        verification=verification,
    )
    if output is None or outcome.complaints:  # if the answer is no, nothing is left behind
        return outcome
    save_outputs(output, outputs)
    return replace(outcome, output=output)


# Time two models by turns, one of them with its partitions on a library if that is asked for.


_ROUND = 0.02
"""Seconds that a round takes at least, if the model is not too quick for that."""

_MOST_TIMES = 1000
_WARM_UP = 2
_PROFILES = 3


def bench(first: Path, second: Path | None, chosen: BenchSettings) -> BenchOutcome:
    """Time two models on the same inputs, round by round, each in a process of its own.

    Args:
        first: The model that is the measure. It runs in onnxruntime alone.
        second: The other, which has kernels if they are asked for; None for the same model.
        chosen: Inputs, level, kernels, and how to time.

    Raises:
        UsageError: A number is out of range; or nothing is compared; or a library is missing.
        DplError: A file is no model, or onnxruntime does not run it.
    """
    from dplcli.verify.inputs import check_saving, fed_reference  # noqa: PLC0415  # onnx
    from dplcli.verify.model import read_model, signature_differences  # noqa: PLC0415  # onnx
    from dplcli.verify.run import Runner, check_setup  # noqa: PLC0415  # onnxruntime

    settings, rounds, threads = check_of(chosen), chosen.runs, chosen.threads
    say = chosen.progress or (lambda _phrase: None)
    kernels = settings.execution.kernels
    if second is None and kernels is None:
        raise UsageError(
            "dpl bench needs two models, or one and --with", hint="see dpl bench --help"
        )
    if rounds < 1 or threads < 0:
        what, number, least = ("runs", rounds, 1) if rounds < 1 else ("threads", threads, 0)
        raise UsageError(f"--{what} {number}: must be at least {least}")
    other = first if second is None else second
    request = settings.request
    check_saving(opt("save_inputs"), request.save, first, other, request.given)
    prepare(settings)
    for path in (first, other):
        check_external_data(load_model(path))
    check_setup(settings.custom_ops, settings.execution)
    ours, theirs = read_model(first), read_model(other)
    if differences := signature_differences(ours.graph, theirs.graph):
        raise UsageError(f"{first.name} and {other.name} do not compare: {differences[0]}")
    reference = fed_reference(first, ours, settings, say)
    case, fed = next(iter(reference.stimulus.cases.items()))
    feeds = reference.feeds[case]
    (level,) = settings.judged_levels
    execution = settings.execution
    runners = []
    for path, how in ((first, replace(execution, kernels=None)), (other, execution)):
        say(f"creating a session for {path.name}")
        source = ModelSource(
            path, libraries=settings.custom_ops, execution=_limited(how, threads), name=path.name
        )
        try:
            runner = Runner(source, level)
            runner.run(feeds)
        except RunError as error:
            raise VerificationError(f"{path.name} does not run: {error}") from error
        runners.append(runner)
    timings = _timed(runners, feeds, rounds, say)
    report = None if kernels is None else KernelReport(kernels, *_runs(runners[1], feeds))
    times = () if report is None else _profiled(runners[1], feeds)
    names = (
        "onnxruntime",
        "onnxruntime" if kernels is None else f"onnxruntime and {kernels.library}",
    )
    return BenchOutcome(
        label=first.name,
        sides=tuple(
            BenchSide(path.name, engine, timing)
            for path, engine, timing in zip((first, other), names, timings, strict=True)
        ),
        fed=fed,
        inputs=reference.stimulus.feeds[case],
        level=level,
        threads=threads,
        kernels=report,
        times=times,
    )


def _limited(execution: Execution, threads: int) -> Execution:
    """Return how a model runs: with so many threads, which wait as they do by default."""
    given = dict(execution.options)
    usual = {"intra_op_num_threads": str(threads), "session.intra_op.allow_spinning": "1"}
    if execution.kernels is not None:
        del usual["session.intra_op.allow_spinning"]  # they would take the library's cores
    return replace(execution, options=tuple((usual | given).items()))


def _timed(
    runners: Sequence[Runner], feeds: Mapping[str, Feed], rounds: int, say: Callable[[str], None]
) -> tuple[Timing, ...]:
    """Run each model some times in a row, then the other; the order changes from round to round."""
    times = []
    for runner in runners:
        wall, _ = min(runner.time(feeds, 1) for _ in range(_WARM_UP))
        times.append(min(max(math.ceil(_ROUND / max(wall, 1e-9)), 1), _MOST_TIMES))
    seconds: list[list[tuple[float, float]]] = [[] for _ in runners]
    for number in range(rounds):
        say(f"round {number + 1:,} of {rounds:,}")
        order = list(range(len(runners)))
        for place in order if number % 2 else order[::-1]:
            seconds[place].append(runners[place].time(feeds, times[place]))
    return tuple(
        Timing(tuple(wall for wall, _ in each), tuple(cpu for _, cpu in each)) for each in seconds
    )


def _runs(runner: Runner, feeds: Mapping[str, Feed]) -> tuple[int, tuple[PartitionRun, ...]]:
    """Run once, and return by how much the counts of partitions rose."""
    runner.run(feeds)
    before = {item.call: item.runs for item in runner.record()}
    runner.run(feeds)
    return 1, tuple(replace(item, runs=item.runs - before[item.call]) for item in runner.record())


def _profiled(runner: Runner, feeds: Mapping[str, Feed]) -> tuple[PartitionTime, ...]:
    """Return how long each partition takes, the median of a few runs."""
    runs = [runner.profile(feeds) for _ in range(_PROFILES)]
    return tuple(
        PartitionTime(
            alike[0].call,
            statistics.median(each.milliseconds for each in alike),
            statistics.median(each.reorders for each in alike),
        )
        for alike in zip(*runs, strict=True)
    )
