"""Measure what the check costs: CPU beyond ``--no-verify``, beside what a plain script needs.

The plain script imports onnxruntime, makes a session of each of the two models (optimisation off),
and runs each once, on inputs of the same sizes. Each command is run as a user runs it, and the CPU
of its workers counts. The nets of many nodes are those of :mod:`benchmarks.partition`: Conv, Add
and Relu in a row. Their partitions are proved, so that what the proof takes by itself is measured,
too; a rewrite is judged place by place.

Run it from the root of the repository, with dplcli installed::

    python -m benchmarks.verify
    python -m benchmarks.verify --models models/resnet18.onnx models/gpt2.onnx --repeat 5
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.partition import CATALOGUE, in_own_process, write_net

BLOCKS = {1_000: 286, 5_000: 1_429, 20_000: 5_715}
"""Nodes of the nets, and how many blocks have so many."""

MOST = 1.3
"""How many times the plain script's CPU the check may take."""

MOST_PROOF = 0.6
"""What share of the CPU of the command without a check the proof may take."""

_REWRITE = ("rewrite", "--patterns", "prepare", "--patterns", "fuse")
_PARTITION = ("partition", "--patterns", CATALOGUE)

_PLAIN = """
import sys, numpy as np, onnxruntime as ort
feeds = dict(np.load(sys.argv[3]))
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
for path in sys.argv[1:3]:
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    session.run(None, feeds)
"""

_PROOF = """
import sys, time
from pathlib import Path
from dplcli.verify.proof import prove_same
import onnx.inliner
times = []
for _ in range(3):
    start = time.process_time()
    prove_same(Path(sys.argv[1]), Path(sys.argv[2]))
    times.append(time.process_time() - start)
print(min(times))
"""


@dataclass(frozen=True)
class Spent:
    """What a process and its children took, in seconds."""

    cpu: float
    wall: float


@dataclass(frozen=True)
class Row:
    """One model and command.

    Attributes:
        name: What to call it.
        bare: The command with ``--no-verify``.
        verified: The command.
        plain: The plain script.
        proof: CPU of the proof by itself; None if nothing is proved.
    """

    name: str
    bare: Spent
    verified: Spent
    plain: Spent
    proof: float | None = None

    @property
    def ratio(self) -> float:
        """What the check takes, in plain scripts."""
        return (self.verified.cpu - self.bare.cpu) / self.plain.cpu

    @property
    def share(self) -> float | None:
        """What the proof takes of the command without a check."""
        return None if self.proof is None else self.proof / self.bare.cpu


def spent(command: Sequence[str], repeat: int) -> Spent:
    """Run a command several times; return the least of each."""
    best = Spent(float("inf"), float("inf"))
    for _ in range(repeat):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # our own
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = Spent(min(best.cpu, cpu), min(best.wall, time.perf_counter() - start))
    return best


def measure(model: Path, job: Sequence[str], repeat: int, *, is_proved: bool) -> Row:
    """Measure one command on one model."""
    command = [sys.executable, "-m", "dplcli", job[0], str(model), *job[1:], "--quiet"]
    with tempfile.TemporaryDirectory(prefix="dpl-benchmark-") as name:
        output, inputs = Path(name) / "out.onnx", Path(name) / "inputs.npz"
        command += ["-o", str(output)]
        bare = spent([*command, "--no-verify"], repeat)
        verified = spent(command, repeat)
        run = ["run", str(model), "--save-inputs", str(inputs), "--quiet"]
        subprocess.run([sys.executable, "-m", "dplcli", *run], check=True)  # noqa: S603  # our own
        files = [str(model), str(output), str(inputs)]
        plain = spent([sys.executable, "-c", _PLAIN, *files], repeat)
        proof = None
        if is_proved:
            said = subprocess.run(  # noqa: S603  # our own
                [sys.executable, "-c", _PROOF, *files[:2]],
                check=True,
                capture_output=True,
                text=True,
            )
            proof = float(said.stdout)
    return Row(f"{job[0]} {model.stem}", bare, verified, plain, proof)


def rows(models: Sequence[Path], repeat: int, nets: Sequence[int]) -> Iterator[Row]:
    """Measure the nets, partitioned, and the models, rewritten."""
    with tempfile.TemporaryDirectory(prefix="dpl-benchmark-") as folder:
        for nodes in nets:
            model = Path(folder) / f"{nodes:_}_nodes.onnx"
            in_own_process(write_net, model, BLOCKS[nodes])
            yield measure(model, _PARTITION, repeat, is_proved=True)
    for model in models:
        yield measure(model, _REWRITE, repeat, is_proved=False)


def main(arguments: list[str] | None = None) -> None:
    """Measure the check, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    corpus = Path(os.environ.get("DPL_CORPUS", "sample_models"))
    named = ("resnet18-legacy13", "distilbert-dynamo18", "segformer-legacy13-eager")
    usual = [corpus / f"{name}.onnx" for name in (*named, "gpt2-dynamo20")]
    parser.add_argument("--models", nargs="*", type=Path, help="rewrite these")
    parser.add_argument("--nets", nargs="*", type=int, default=[*BLOCKS], choices=[*BLOCKS])
    parser.add_argument("--repeat", type=int, default=3, help="best of this many (default 3)")
    args = parser.parse_args(arguments)
    models = args.models if args.models is not None else [m for m in usual if m.exists()]
    print("seconds of CPU, of wall time in parentheses")
    print(f"{'':40}{'--no-verify':>14}{'verified':>16}{'plain':>16}{'ratio':>7}{'proof':>7}")
    is_met = True
    for row in rows(models, args.repeat, args.nets):
        times = "".join(
            f"{each.cpu:9.2f} ({each.wall:.2f})" for each in (row.bare, row.verified, row.plain)
        )
        share = "" if row.share is None else f"{row.share:7.2f}"
        print(f"{row.name[:38]:38}{times}{row.ratio:7.2f}{share}", flush=True)
        is_met &= row.ratio <= MOST and (row.share is None or row.share <= MOST_PROOF)
    print(f"ratio: at most {MOST}; proof: at most {MOST_PROOF} of the command without a check")
    raise SystemExit(not is_met)


if __name__ == "__main__":
    main()
