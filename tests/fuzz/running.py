"""Commands in forks, within limits, and what is wrong with how they ended."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort

import dplcli
from dplcli.catalog import compiled
from dplcli.catalog.places import find_catalog
from dplcli.cli.main import main
from dplcli.dpl import RewriteRule
from dplcli.onnx_io import OnnxSchemas, check_model
from dplcli.pipeline.rules import READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Numbers = list[np.ndarray]

SECONDS = 20
BYTES = 2 << 30
"""What no command may take of the processor, and of memory."""

PATIENCE = 300
"""After how many seconds a command that waits for something is ended."""

COUNTS: Counter[str] = Counter()
"""How many commands were run, by name and exit code."""


class End(NamedTuple):
    """How a process ended.

    Attributes:
        code: Its exit code, or minus the signal that ended it.
        said: What it printed.
        peak: The bytes that it took at most, beyond those of the process that it is a fork of.
        seconds: The seconds of processor that it took.
    """

    code: int
    said: str
    peak: int
    seconds: float


def forked(work: Callable[[], object]) -> End:
    """Do something in a fork, within limits; what it prints is kept."""
    room, own = _memory()
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if not child:
            code = 70
            try:
                code = _limited(work, out.fileno(), room + 4 * BYTES)
            finally:
                os._exit(code)
        _, status, usage = os.wait4(child, 0)
        out.seek(0)
        said = out.read().decode("utf-8", "replace")
    spent = usage.ru_utime + usage.ru_stime
    peak = max(usage.ru_maxrss * 1024 - own, 0)
    return End(os.waitstatus_to_exitcode(status), said, peak, spent)


def _memory() -> tuple[int, int]:
    """Return the bytes of this process's address space, and of its memory."""
    room, own = Path("/proc/self/statm").read_text(encoding="ascii").split()[:2]
    return int(room) * resource.getpagesize(), int(own) * resource.getpagesize()


def _limited(work: Callable[[], object], out: int, room: int) -> int:
    """Do something within limits; the address space may have so many bytes."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  # descriptors
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGXCPU, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(PATIENCE)
    gc.enable()
    code: object = 0
    try:
        work()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001  # printed, as Python would
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


def warm_up() -> None:
    """Do here, once, what is the same for all commands, so that no fork has to.

    That is most of what a command on a small model does: imports, catalogues, and the steps that
    their patterns are compiled to.
    """
    for module in pkgutil.walk_packages(dplcli.__path__, "dplcli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in SHIPPED:
        catalog = compiled.read_compiled([name], OnnxSchemas(), readers=READERS)
        for rule in (*catalog.patterns, *catalog.rewrites):
            if not (isinstance(rule, RewriteRule) and rule.is_nodewise):
                assert rule.matcher is not None  # it is made when it is asked for
        compiled._read_again(find_catalog(name).resolve(), OnnxSchemas)  # noqa: SLF001  # for places
    gc.collect()
    gc.freeze()  # or the first collection of every fork copies the memory


SHIPPED = (
    *("dnnl", "cutlass", "cublas", "prepare"),
    *("fuse", "fuse_ort", "fuse_ort_quantized", "fuse_attention"),
)
"""Catalogues that commands are given here."""


def dpl(folder: Path, *words: str) -> End:
    """Run a command in a folder."""

    def work() -> None:
        os.chdir(folder)
        sys.argv = ["dpl", *words]
        main()

    end = forked(work)
    COUNTS[f"{words[0]} {end.code}"] += 1
    return end


def faults(
    folder: Path, *words: str, codes: tuple[int, ...] = (0, 1, 2), makes_any: bool = False
) -> list[str]:
    """Run a command in a folder; return what nobody's input may bring about.

    Args:
        folder: The folder.
        words: The command.
        codes: The exit codes that it may have.
        makes_any: Whether its input names what it writes.
    """
    before = set(folder.iterdir())
    end = dpl(folder, *words)
    found = []
    if end.code not in codes:
        found.append(f"exit {end.code}")
    if "internal error" in end.said or "Traceback" in end.said:
        found.append("internal error")
    if end.code == 2 and not end.said.strip():  # as README says
        found.append("no message")
    if end.peak > BYTES:
        found.append(f"{end.peak >> 20} MB")
    asked_for = {folder / word for word in words}
    left = {path.name for path in folder.iterdir()} - {p.name for p in before | asked_for}
    if makes_any:
        left = {path.name for path in folder.rglob(".dpl-*")}
    if left:
        found.append(f"left behind: {sorted(left)}")
    return [f"dpl {' '.join(words)}: {what}: {end.said[-600:]}" for what in found]


def refused_results(folder: Path, before: str, *results: str) -> list[str]:
    """Name what the checker refuses although it accepts the model that it was made of."""
    written = [name for name in results if (folder / name).exists()]
    if not written or check_model(folder / before):
        return []
    said = {name: check_model(folder / name) for name in written}
    return [f"{name}: the checker refuses it: {words}" for name, words in said.items() if words]


LEVELS = (
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
)


def wrong_numbers(folder: Path, tolerances: Mapping[str, float], before: str) -> list[str]:
    """Compare in onnxruntime, at both levels, what models compute with what they were made of."""

    def work() -> None:
        os.chdir(folder)
        wanted = _outputs(before, LEVELS[0])
        for name, tolerance in tolerances.items():
            for level in LEVELS:
                for one, other in zip(wanted, _outputs(name, level), strict=True):
                    room = tolerance * max(float(np.abs(one).max(initial=0)), 1.0)
                    np.testing.assert_allclose(other, one, rtol=tolerance, atol=room, err_msg=name)

    end = forked(work)
    return [f"numbers: {end.said[-900:]}"] if end.code else []


def _outputs(name: str, level: ort.GraphOptimizationLevel) -> Numbers:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(name, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    model = onnx.load(name)
    feeds = {
        info.name: rng.standard_normal([d.dim_value for d in info.type.tensor_type.shape.dim])
        for info in model.graph.input
    }
    made: Numbers = session.run(None, {n: array.astype("float32") for n, array in feeds.items()})
    return made
