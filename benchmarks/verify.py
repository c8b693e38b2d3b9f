"""Measure what the check costs: verified commands beside the same ones with ``--no-verify``.

The net is that of ``benchmarks/partition.py``: Conv, Add and Relu in a row. Times are CPU time of the
whole command as a user runs it, of its workers, too. Run it from an environment that holds dplcli::

    python benchmarks/verify.py
    python benchmarks/verify.py --only small small-verified --repeat 5
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if __package__:
    from benchmarks.partition import (
        CATALOGUE,
        Benchmark,
        Figure,
        Job,
        Measurement,
        dpl_partition,
        in_own_process,
        parse,
        run,
        write_net,
    )
else:
    from partition import (  # type: ignore[no-redef]  # started as a file
        CATALOGUE,
        Benchmark,
        Figure,
        Job,
        Measurement,
        dpl_partition,
        in_own_process,
        parse,
        run,
        write_net,
    )

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = {"small": 286, "large": 5_715}
"""Blocks of each net: 1,001 and 20,002 nodes."""

TARGETS = {"small": 1.5, "large": 2.0}
