"""Commands in processes with limits, and what is wrong with how they ended."""

from __future__ import annotations

import ctypes
import gc
import importlib
import math
import os
import pickle
import pkgutil
import resource
import select
import signal
import sys
import tempfile
import traceback
from collections import Counter
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort

import dplcli
from dplcli.catalog import compiled
from dplcli.catalog.finding import find_catalog
from dplcli.cli.main import main
from dplcli.language import RewriteRule
from dplcli.onnx_io import OnnxSchemas, check_model
from dplcli.onnx_io.bounded import made_by_dpl
from dplcli.pipeline.rules import READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Numbers = list[np.ndarray]

SECONDS = 20
BYTES = 2 << 30
"""What no command may take of the processor, and of memory."""

PATIENCE = 240
"""After how many seconds a command that waits for something is ended."""

_END_WITH_PARENT = 1
"""``PR_SET_PDEATHSIG``: what a test that hangs has started holds nobody up."""

COUNTS: Counter[str] = Counter()
"""How many commands were run, by name and exit code."""


class End(NamedTuple):
    """How a piece of work ended.

    Attributes:
        code: Its exit code, or minus the signal that ended its process.
        said: What it printed.
        peak: The bytes that it took at most, beyond those of the process when it began.
        seconds: The seconds of processor that it took, in its process and in those that it started.
    """

    code: int
    said: str
    peak: int
    seconds: float


def forked(work: Callable[[], object], seconds: int = 0) -> End:
    """Do something in a fork, within limits; what it prints is kept.

    Args:
        work: What to do.
        seconds: What it may take of the processor, if that is more than usual.
    """
    room, own = _memory()
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if not child:
            code = 70
            try:
                _enter(out.fileno(), room)
                _limit_seconds(seconds or SECONDS)
                code = _done(work)
            finally:
                os._exit(code)
        ended = os.pidfd_open(child)
        if not select.select([ended], [], [], PATIENCE)[0]:  # an alarm would be dpl's own
            os.kill(child, signal.SIGKILL)
        os.close(ended)
        _, status, usage = os.wait4(child, 0)
        said = _read(out)
    spent = usage.ru_utime + usage.ru_stime
    peak = max(usage.ru_maxrss * 1024 - own, 0)
    return End(os.waitstatus_to_exitcode(status), said, peak, spent)


def _memory() -> tuple[int, int]:
    """Return the bytes of this process's address space, and of its memory."""
    room, own = Path("/proc/self/statm").read_text(encoding="ascii").split()[:2]
    return int(room) * resource.getpagesize(), int(own) * resource.getpagesize()


def _enter(out: int, room: int) -> None:
    """Make a fork fit for work: it reads nothing, prints to a file, and has so much room more."""
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    resource.setrlimit(resource.RLIMIT_AS, (room + 4 * BYTES, room + 4 * BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    gc.enable()


def _limit_seconds(seconds: int) -> None:
    """End this process once it has taken that much more of the processor."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def _done(work: Callable[[], object]) -> int:
    """Do something; return the exit code that Python would end with."""
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  # descriptors
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
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


def _read(out: IO[bytes]) -> str:
    out.seek(0)
    return out.read().decode("utf-8", "replace")


class Host:
    """A fork that does one piece of work after another, each within limits.

    A fork for each would take several times what most commands on small files do. One that a piece
    of work has ended, or that has done many, is replaced.
    """

    MOST = 250

    def __init__(self) -> None:
        self._child = 0
        self._count = 0

    def do(self, function: Callable[..., object], *arguments: object) -> End:
        """Call a function of some module, and say how that ended."""
        if self._count >= self.MOST:
            self.close()
        if not self._child:
            self._start()
        self._count += 1
        pickle.dump((function, arguments), self._requests)
        self._requests.flush()
        if not select.select([self._answers], [], [], PATIENCE)[0]:
            os.kill(self._child, signal.SIGKILL)
        try:
            code, peak, seconds = pickle.load(self._answers)  # noqa: S301  # of our fork
        except EOFError:
            _, status, usage = os.wait4(self._child, 0)
            code, peak = os.waitstatus_to_exitcode(status), 0
            seconds = usage.ru_utime + usage.ru_stime
            said = _read(self._out)
            self._forget()
            return End(code, said, peak, seconds)
        return End(code, _read(self._out), peak, seconds)

    def close(self) -> None:
        """End the process."""
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._forget()

    def _forget(self) -> None:
        self._child = 0
        self._out.close()
        self._requests.close()
        self._answers.close()

    def _start(self) -> None:
        room, _ = _memory()
        reading, writing = os.pipe(), os.pipe()
        self._count = 0
        self._out = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._child = os.fork()
        if not self._child:
            code = 70
            try:
                os.close(reading[1])
                os.close(writing[0])
                _enter(self._out.fileno(), room)
                _serve(reading[0], writing[1])
                code = 0
            finally:
                os._exit(code)
        os.close(reading[0])
        os.close(writing[1])
        self._requests = os.fdopen(reading[1], "wb")
        self._answers = os.fdopen(writing[0], "rb")


def _serve(requests: int, answers: int) -> None:
    """Do what is asked until nobody asks any more."""
    gc.freeze = lambda: None  # a command freezes what it leaves, as nothing comes after it
    hook = sys.unraisablehook
    with os.fdopen(requests, "rb") as asked, os.fdopen(answers, "wb") as answered:
        while True:
            try:
                function, arguments = pickle.load(asked)  # noqa: S301  # of our parent
            except EOFError:
                return
            gc.enable()
            sys.unraisablehook = hook
            os.ftruncate(1, 0)
            os.lseek(1, 0, os.SEEK_SET)
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak
            own, before = _memory()[1], _spent()
            _limit_seconds(SECONDS)
            code = _done(partial(function, *arguments))
            pickle.dump((code, max(_peak() - own, 0), _spent() - before), answered)
            answered.flush()


def _spent() -> float:
    sides = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(side.ru_utime + side.ru_stime for side in sides)


def _peak() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmHWM")) << 10


HOST = Host()
"""What files are tried in."""


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
    """Run a command in a folder, in a fork of its own."""
    return forked(partial(_command, folder, words))


def _command(folder: Path, words: tuple[str, ...]) -> None:
    os.chdir(folder)
    sys.argv = ["dpl", *words]
    main()


def _hasty(folder: Path, words: tuple[str, ...]) -> None:
    with made_by_dpl():
        _command(folder, words)


def asked(folder: Path, *words: str) -> End:
    """Run a command in a folder, in the host.

    First onnx is asked in the host itself, as the forks for it are half of what a command on a
    small file takes. Where that ends it, or takes much, the command is run once more as it is.
    """
    end = HOST.do(_hasty, folder, words)
    if end.code < 0 or end.seconds > SECONDS / 8 or end.peak > BYTES / 8:
        end = HOST.do(_command, folder, words)
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
    end = asked(folder, *words)
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
    """Compare in onnxruntime, at both levels, what models compute with what they were made of.

    Where onnxruntime's optimiser changes the original's own numbers, a result may follow it: the
    optimiser quantises an output of the model that is quantised further on, for instance.
    """
    end = HOST.do(_compare, folder, tolerances, before)
    if end.code < 0 and HOST.do(_run_at_levels, folder, before).code < 0:
        return []  # onnxruntime's optimiser crashes on the original, too
    return [f"numbers: {end.said[-900:]}"] if end.code else []


def _run_at_levels(folder: Path, name: str) -> None:
    os.chdir(folder)
    for level in LEVELS:
        _outputs(name, level)


def _compare(folder: Path, tolerances: Mapping[str, float], before: str) -> None:
    os.chdir(folder)
    plain = _outputs(before, LEVELS[0])
    for name, tolerance in tolerances.items():
        for level in LEVELS:
            moved = _outputs(before, level)
            for one, same, other in zip(plain, moved, _outputs(name, level), strict=True):
                room = tolerance * max(float(np.abs(one).max(initial=0)), 1.0)
                if not np.allclose(other, same, tolerance, room, equal_nan=True):
                    np.testing.assert_allclose(other, one, rtol=tolerance, atol=room, err_msg=name)


def _outputs(name: str, level: ort.GraphOptimizationLevel) -> Numbers:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(name, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    model = onnx.load(name)
    feeds = {
        info.name: rng.standard_normal([_size(d) for d in info.type.tensor_type.shape.dim])
        for info in model.graph.input
    }
    made: Numbers = session.run(None, {n: array.astype("float32") for n, array in feeds.items()})
    return made


def _size(dim: onnx.TensorShapeProto.Dimension) -> int:
    return int(dim.dim_param[1:]) if dim.dim_param else dim.dim_value
