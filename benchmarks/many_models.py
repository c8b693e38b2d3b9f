"""Many models in one command: how much faster two processes are than one, and than many commands.

``python -m benchmarks.many_models FOLDER [COUNT]`` takes the smallest models of a folder. It prints
processor time, which hardly depends on what else the machine does, and time as it passes, which
says something only on idle cores.
"""

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_SUBREAPER = 36  # of Linux: who loses its parent becomes our child, so that its time counts


class Cost(NamedTuple):
    """What something took, all processes that it started included.

    Attributes:
        wall: Seconds that passed.
        cpu: Seconds of processors.
    """

    wall: float
    cpu: float


def measure(*commands: list[str], cache: Path) -> Cost:
    """Run commands one after the other, to their last process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    for command in commands:
        environment = os.environ | {"DPL_CACHE": str(cache)}
        words = [sys.executable, "-m", "dplcli", *command]
        subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603  # our own
    wall = time.monotonic() - start
    with suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu)


def main() -> None:
    """Measure, and print a table."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    folder = Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 50  # noqa: PLR2004  # the one argument
    models = sorted(folder.glob("*.onnx"), key=lambda path: path.stat().st_size)[:count]
    names = list(map(str, models))
    kinds = {
        "match": ["match", "--target", "dnnl"],
        "partition": ["partition", "--target", "dnnl", "--no-verify"],
        "verified partition": ["partition", "--target", "dnnl"],
    }
    for kind, words in kinds.items():
        with tempfile.TemporaryDirectory() as scratch:
            here = Path(scratch)
            writes = [] if kind == "match" else ["-o"]

            def run(jobs: int, *, here: Path = here, words: list[str] = words) -> Cost:
                output = [str(here / f"jobs{jobs}")] if words[0] != "match" else []
                command = [*words, *names, "--jobs", str(jobs), *writes, *output]  # noqa: B023
                return measure(command, cache=here / f"cache{jobs}")

            one, two = run(1), run(2)
            single = [
                [*words, name, *writes, *([str(here / Path(name).name)] if writes else [])]
                for name in names
            ]
            alone = measure(*single, cache=here / "cache")
        print(f"{kind}, {len(names)} models, load {os.getloadavg()[0]:.1f}")
        print(f"  1 process    {one.wall:6.1f} s, {one.cpu:6.1f} s of processors")
        print(f"  2 processes  {two.wall:6.1f} s, {two.cpu:6.1f} s: {one.wall / two.wall:.2f} x")
        print(f"  commands     {alone.wall:6.1f} s, {alone.cpu:6.1f} s", end=": ")
        ratios = alone.wall / two.wall, alone.cpu / two.cpu
        print(f"{ratios[0]:.1f} x as long as 2 processes, {ratios[1]:.1f} x the work", flush=True)


if __name__ == "__main__":
    main()
