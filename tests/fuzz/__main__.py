"""Fuzz for as long as there is time: ``python -m tests.fuzz --minutes 30 [--keep DIR] [NAME...]``.

What brings a fault about is made smaller by Hypothesis, and its files are kept.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.properties import PROPERTIES
from tests.fuzz.running import COUNTS, warm_up

BATCH = 100
"""Examples that are drawn from one seed."""


def batch(name: str, number: int, keep: Path, count: int = BATCH) -> str:
    """Draw examples of one property; return what is wrong with the smallest that fails."""
    holds, strategy = PROPERTIES[name]
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))  # noqa: PTH112, S108  # memory

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(strategy)
    def check(drawn: Any) -> None:  # noqa: ANN401  # what the strategy draws
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        found = holds(folder, drawn)
        COUNTS[name] += 1
        assert not found, "\n".join(found)

    try:
        check()
    except AssertionError as error:
        place = keep / f"{name}-{number}"
        shutil.copytree(folder, place, dirs_exist_ok=True)
        (place / "faults.txt").write_text(str(error), encoding="utf-8", errors="backslashreplace")
        return f"{place}: {error}"
    finally:
        shutil.rmtree(folder)
    return ""


def counted(name: str, number: int, keep: Path) -> tuple[str, Counter[str]]:
    """Draw examples of one property; return what is wrong, and what was run."""
    COUNTS.clear()
    fault = batch(name, number, keep)
    return fault, COUNTS.copy()


def main() -> int:
    """Go round the properties until the time is up; print what was run, and what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PROPERTIES)}; all by default")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"), help="for reproducers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many side by side")
    options = parser.parse_args()
    warm_up()
    said = time.monotonic() + 60
    end, found, counts = time.monotonic() + 60 * options.minutes, 0, Counter[str]()
    rounds = (
        (name, number)
        for number in itertools.count(options.seed)
        for name in options.names or PROPERTIES
    )
    context = multiprocessing.get_context("fork")  # it is warm
    with ProcessPoolExecutor(options.jobs, context) as pool:
        pending: set[Future[tuple[str, Counter[str]]]] = set()
        while pending or time.monotonic() < end:
            while len(pending) < options.jobs and time.monotonic() < end:
                pending.add(pool.submit(counted, *next(rounds), options.keep))
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for fault, more in (future.result() for future in done):
                counts += more
                if fault:
                    found += 1
                    print(fault, flush=True)  # noqa: T201  # a script
            if time.monotonic() > said:
                said += 60
                drawn = (f"{counts[name]:,} {name}" for name in PROPERTIES if counts[name])
                print(f"{', '.join(drawn)}: {found} faults", file=sys.stderr, flush=True)  # noqa: T201
    for what, count in sorted(counts.items()):
        print(f"{what}: {count:,}")  # noqa: T201
    number = next(rounds)[1]
    print(f"{found} faults; the next --seed: {number + 1}")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
