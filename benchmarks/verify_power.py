"""Measure what the verification is worth: how many wrong models it notices, and false alarms.

Each model is partitioned, and wrong versions of the result are tried: a weight, an attribute or
the order of operands changed in one place inside the partitions. All but a few should be refused.
Then the original is compared with models that are equivalent to it: partitioned, rewritten, and as
onnxruntime itself writes it after its optimisation. None may be refused.

Run it from the root of the repository, with dplcli installed::

    python -m benchmarks.verify_power sample_models/*.onnx
    python -m benchmarks.verify_power models/*.onnx --mutants 5 --seeds 5 --target dnnl

A line is printed for each model as it comes, and what was missed. The exit code is 1 if fewer than
``--least`` of the mutants are caught, or if there is a false alarm.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort

from dplcli import pipeline
from dplcli.errors import DplError, VerificationError
from dplcli.verify import Power

LEAST = 0.95
_SILENT = 4


@dataclass
class Tally:
    """What was found in all models.

    Attributes:
        caught: Mutants that were refused.
        of: Mutants that ran.
        pairs: Equivalent pairs that were compared.
        alarms: Those of them that were refused.
    """

    caught: int = 0
    of: int = 0
    pairs: int = 0
    alarms: int = 0

    @property
    def score(self) -> float:
        """The share of mutants that was caught."""
        return self.caught / self.of if self.of else 0.0


def power_of(model: Path, folder: Path, target: str, mutants: int) -> Power | None:
    """Return how many mutants of the partitioned model are caught; None without a partition."""
    verification = pipeline.VerifySettings(mutants=mutants, refill_weights=True)
    outcome = pipeline.partition(
        model,
        output=folder / "mutated.onnx",
        targets=[target],
        settings=pipeline.PartitionSettings(verification=verification),
    )
    power = outcome.verification and outcome.verification.power
    return power if power and "partitions" in power.regions else None


def write_partitioned(model: Path, output: Path, target: str) -> None:
    """Partition a model."""
    settings = pipeline.PartitionSettings(verify=False)
    pipeline.partition(model, output=output, targets=[target], settings=settings)


def write_rewritten(model: Path, output: Path, _target: str) -> None:
    """Rewrite a model with what is shipped."""
    settings = pipeline.RewriteSettings(verify=False)
    pipeline.rewrite(model, output=output, patterns=["prepare", "fuse"], settings=settings)


def write_optimised(model: Path, output: Path, _target: str) -> None:
    """Let onnxruntime write what it runs; without layouts that only this processor has."""
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(output)
    try:
        ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no other base class
        raise VerificationError(str(error).splitlines()[0]) from error


EQUIVALENTS = {
    "partitioned": write_partitioned,
    "rewritten": write_rewritten,
    "optimised by onnxruntime": write_optimised,
}


def alarm_of(model: Path, candidate: Path, seeds: int) -> str:
    """Return why two equivalent models are told apart, "" if they are not.

    Raises:
        DplError: There is no verdict, or the two do not take the same inputs.
    """
    settings = pipeline.VerifySettings(seeds=tuple(range(seeds)), refill_weights=True)
    result = pipeline.verify(model, candidate, settings=settings)
    if any("another input" in reason for reason in result.reasons):
        raise VerificationError("weights have become inputs")
    said = [*result.reasons, *(output.reason or "" for output in result.outputs)]
    return "" if result.equivalent else next(filter(None, said))


def measure(model: Path, arguments: argparse.Namespace, tally: Tally) -> list[str]:
    """Add one model to *tally*, and return what is to be said of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            power = power_of(model, folder, arguments.target, arguments.mutants)
        except DplError as error:
            return [f"{model.name}: no verdict: {error.message}"]
        lines = [f"{model.name}: no partition"]
        if power is not None:
            tally.caught += power.caught
            tally.of += power.of
            lines = [f"{model.name}: caught {power.caught} of {power.of}"]
            lines += [f"    missed: {what}" for what in power.missed]
        for how, write in EQUIVALENTS.items():
            candidate = folder / "candidate.onnx"
            try:
                write(model, candidate, arguments.target)
                alarm = alarm_of(model, candidate, arguments.seeds)
            except DplError as error:
                lines.append(f"    not compared, {how}: {error}")
                continue
            tally.pairs += 1
            tally.alarms += bool(alarm)
            lines += [f"    FALSE ALARM, {how}: {alarm}"] if alarm else []
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every model; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--target", default="dnnl")
    parser.add_argument("--mutants", type=int, default=5, help="for each model")
    parser.add_argument("--seeds", type=int, default=5, help="for each equivalent pair")
    parser.add_argument("--least", type=float, default=LEAST)
    arguments = parser.parse_args(argv)
    tally = Tally()
    for model in arguments.models:
        print("\n".join(measure(model, arguments, tally)), flush=True)
    print(f"caught {tally.caught} of {tally.of} mutants ({tally.score:.1%})")
    print(f"{tally.alarms} false alarms in {tally.pairs} equivalent pairs")
    return int(tally.score < arguments.least or tally.alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
