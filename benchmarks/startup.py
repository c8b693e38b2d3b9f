"""CPU time of commands on a small model, beside that of importing numpy and onnx.

``python -m benchmarks.startup [MODEL]`` prints the best of several runs of each, as a user starts
them: a process of its own, the processes that it starts included. The first run of all fills the
cache of catalogues; ``DPL_CACHE= python -m benchmarks.startup`` shows what it saves.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = 7
FLOOR = "import numpy, onnx"
MOST = {"help": 2.0, "match": 2.5, "partition": 5.0}
"""How many times as long as the floor a command may take."""


def cpu_time(*arguments: str) -> float:
    """Return the CPU time of a Python process and of those that it started, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(  # noqa: S603  # our own program
        [sys.executable, *arguments], check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(model: str) -> int:
    """Print a line for each command; return 1 if one is too slow."""
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "out.onnx")
        dpl = ("-m", "dplcli")
        commands = {
            "floor": ("-c", FLOOR),
            "help": (*dpl, "--help"),
            "match": (*dpl, "match", model, "--patterns", "conv_relu"),
            "partition": (*dpl, "partition", model, "--patterns", "conv_relu", "-o", output),
        }
        for command in commands.values():
            cpu_time(*command)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(RUNS):  # side by side, as machines are busy now and then
            for name, command in commands.items():
                times[name].append(cpu_time(*command))
    floor = min(times.pop("floor"))
    print(f"{FLOOR:20} {floor:5.2f} s")
    slow = False
    for name, found in times.items():
        ratio = min(found) / floor
        slow = slow or ratio > MOST[name]
        print(f"dpl {name:16} {min(found):5.2f} s  {ratio:4.1f} times (at most {MOST[name]:g})")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or [str(ROOT / "sample_models" / "light_squeezenet.onnx")]))
