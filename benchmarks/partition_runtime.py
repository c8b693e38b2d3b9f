"""Measure how fast onnxruntime runs a partitioned model, beside the original.

Stock onnxruntime inlines the functions of a partition before it optimises, so both should run at
the same speed. Each round runs the original, the partitioned model and a second session of the
original, in turn, on one thread and at full optimisation; what counts is the median of the ratios
within a round, of processor time, so that a busy machine does little harm. The second session says
how far ratios stray by themselves.

Run it from the root of the repository, with dplcli installed::

    python -m benchmarks.partition_runtime sample_models/*.onnx
    python -m benchmarks.partition_runtime model.onnx --target dnnl --constants embed --rounds 50

The exit code is 1 if a model is slower by more than ``--limit``, and by more than it strays; 2 if
one cannot be measured.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from dplcli import pipeline
from dplcli.errors import DplError
from dplcli.language.rule import POLICIES
from dplcli.settings import PartitionSettings
from dplcli.verify.inputs import find_stimulus
from dplcli.verify.model import Dataflow, input_ports, read_model
from dplcli.verify.run import Runner
from dplcli.verify.values import ModelSource, RunError

Feeds = Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]

LIMIT = 1.05
ROUNDS = 25
BATCH = 0.02
"""Seconds that a model runs at least, over and over, in one round."""


@dataclass(frozen=True)
class Figures:
    """What one model takes.

    Attributes:
        partitions: How many calls the partitioned model has.
        seconds: Of the original, once.
        ratio: Of the partitioned model to the original.
        noise: Of the original to itself.
    """

    partitions: int
    seconds: float
    ratio: float
    noise: float


def feeds_for(model: Path) -> Feeds:
    """Return inputs that *model* runs with.

    Raises:
        RunError: onnxruntime does not run it, or an input is no tensor.
        DplError: No inputs are found.
    """
    flow = Dataflow(read_model(model))
    runner = Runner(ModelSource(model), "disable")
    stimulus, _ = find_stimulus(flow, input_ports(flow.model.graph), runner, (0, 1), {})
    feeds = {}
    for name, value in stimulus.feeds[0].items():
        if not isinstance(value, np.ndarray):
            raise RunError(f"the input {name!r} is no tensor")
        feeds[name] = value
    return feeds


def session(model: Path) -> ort.InferenceSession:
    """Load *model* as it is deployed, on one thread."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def seconds_of(loaded: ort.InferenceSession, feeds: Feeds, runs: int) -> float:
    """Return the processor time that one of *runs* runs takes."""
    begin = time.thread_time()
    for _ in range(runs):
        loaded.run(None, feeds)
    return (time.thread_time() - begin) / runs


def compare(original: Path, partitioned: Path, feeds: Feeds, rounds: int) -> tuple[float, ...]:
    """Return the median seconds of the original, and the ratios of the two others to it."""
    loaded = [session(path) for path in (original, partitioned, original)]
    for each in loaded:
        each.run(None, feeds)
    runs = max(1, round(BATCH / seconds_of(loaded[0], feeds, 1)))
    taken: list[list[float]] = []
    for number in range(rounds):
        row = [0.0] * len(loaded)
        for place in range(len(loaded)):
            index = (place + number) % len(loaded)
            row[index] = seconds_of(loaded[index], feeds, runs)
        taken.append(row)
    ratios = [statistics.median(row[index] / row[0] for row in taken) for index in (1, 2)]
    return (statistics.median(row[0] for row in taken), *ratios)


def measure(model: Path, folder: Path, target: str, constants: str, rounds: int) -> Figures:
    """Partition *model* and compare both.

    Raises:
        RunError: onnxruntime does not run it.
        DplError: It cannot be partitioned, or no inputs are found.
    """
    output = folder / "partitioned.onnx"
    outcome = pipeline.partition(
        model,
        PartitionSettings(output=output, target=[target], verify=False, constants=[constants]),
    )
    seconds, ratio, noise = compare(model, output, feeds_for(model), rounds)
    return Figures(len(outcome.partitions), seconds, ratio, noise)


def main(arguments: Sequence[str]) -> int:
    """Print a line for each model; return 1 if one is too slow."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--target", default="dnnl")
    parser.add_argument("--constants", default="lift", choices=POLICIES["constants"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--limit", type=float, default=LIMIT, help="largest ratio (%(default)s)")
    asked = parser.parse_args(arguments)
    width = max(len(model.name) for model in asked.models)
    print(f"{'model':{width}}  partitions  original ms   ratio  to itself")
    slow = []
    is_measured = True
    for model in asked.models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = measure(model, Path(folder), asked.target, asked.constants, asked.rounds)
            except (DplError, RunError) as error:
                print(f"{model.name:{width}}  {error}")
                is_measured = False
                continue
        print(
            f"{model.name:{width}}  {found.partitions:10}  {found.seconds * 1e3:11.3f}"
            f"  {found.ratio:6.3f}  {found.noise:9.3f}",
            flush=True,
        )
        if found.partitions and found.ratio > asked.limit * max(found.noise, 1):
            slow.append(model.name)
    if slow:
        print(f"slower than {asked.limit} times the original: {', '.join(slow)}")
    return 1 if slow else 0 if is_measured else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
