"""Measure what the check costs: verified commands beside the same ones with ``--no-verify``.

The net is that of :mod:`benchmarks.partition`: Conv, Add and Relu in a row. A partition is proved,
and runs once. Times are CPU time of the whole command as a user runs it, of its workers, too.

Run it from the root of the repository, with dplcli installed::

    python -m benchmarks.verify
    python -m benchmarks.verify --only small small-verified --repeat 5
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.partition import (
    CATALOGUE,
    Benchmark,
    Figure,
    Job,
    Measurement,
    in_own_process,
    parse,
    run,
    write_net,
)

SIZES = {"small": (286, 1.5), "large": (5_715, 2.0)}
"""Blocks of each net, of 3.5 nodes each, and how many times as long the check may make it."""


def make_jobs(folder: Path, _: int) -> list[Job]:
    """Write the nets into *folder* and return everything that can be measured."""
    found = []
    for name, (blocks, _target) in SIZES.items():
        model = folder / f"{name}.onnx"
        in_own_process(write_net, model, blocks)
        quiet = ("--patterns", CATALOGUE, "--quiet")
        found.append(Job(name, (*quiet, "--no-verify"), model))
        found.append(Job(f"{name}-verified", quiet, model))
    return found


def check(best: dict[str, Measurement], _: int) -> None:
    """Refuse to compare commands that did not do the same.

    Raises:
        SystemExit: One found other matches than there are.
    """
    for name, found in best.items():
        expected = SIZES[name.partition("-")[0]][0]
        if found.calls != expected:
            message = f"{name}: {found.calls} matches instead of {expected}"
            raise SystemExit(message)


def figures(best: dict[str, Measurement], _: int) -> Iterator[Figure]:
    """Yield each figure whose two measurements were taken."""
    for name, (blocks, target) in SIZES.items():
        if {name, f"{name}-verified"} <= best.keys():
            a, b = best[f"{name}-verified"].seconds, best[name].seconds
            title = f"partition of {blocks * 7 // 2:,} nodes, verified : not"
            yield Figure(title, f"{a:.3f} s : {b:.3f} s", a / b, target)


def main(arguments: list[str] | None = None) -> None:
    """Measure the check."""
    benchmark = Benchmark("dpl.verify-benchmark/1", make_jobs, check, figures)
    run(benchmark, parse(arguments, __doc__ or ""))


if __name__ == "__main__":
    main()
