"""The tools that are compared, each as a function from a model file to another one.

Every tool runs as its documentation shows first, with its own defaults. :func:`run_limited` runs
one in a process of its own: what it prints is dropped, and that it crashes or hangs is a result.
"""

import importlib.util
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import TypeAlias

Counts: TypeAlias = dict[str, int]
Tool: TypeAlias = Callable[[Path, Path], Counts]
"""Reads the first file, writes the second; returns how often each of its rules was applied, if it
tells."""

_SECONDS_TO_EXIT = 5


@dataclass(frozen=True)
class Ending:
    """How a limited run ended.

    Attributes:
        answer: What the function returned, if it did.
        problem: Else why not, in words.
        seconds: How long it took.
    """

    answer: object
    problem: str
    seconds: float


# --- the tools ----------------------------------------------------------------------------------


def onnxslim(model: Path, output: Path) -> Counts:
    """Run onnxslim."""
    import onnxslim  # noqa: PLC0415  # a process loads one tool only

    onnxslim.slim(str(model), str(output))
    return {}


def onnxsim(model: Path, output: Path) -> Counts:
    """Run onnxsim."""
    import onnx  # noqa: PLC0415  # a process loads one tool only
    import onnxsim  # noqa: PLC0415  # a process loads one tool only

    simplified, _ = onnxsim.simplify(onnx.load(model))
    onnx.save(simplified, output)
    return {}


def onnxscript(model: Path, output: Path) -> Counts:
    """Run onnxscript's optimizer and then its rewriter, both with their default rules."""
    from onnxscript import ir, optimizer, rewriter  # noqa: PLC0415  # a process loads one tool only

    loaded = ir.load(model)
    optimizer.optimize(loaded)
    ir.save(rewriter.rewrite(loaded), output)
    return {}


def ort_basic(model: Path, output: Path) -> Counts:
    """Let onnxruntime write the model that it makes at level basic."""
    return _onnxruntime(model, output, "ORT_ENABLE_BASIC")


def ort_extended(model: Path, output: Path) -> Counts:
    """Let onnxruntime write the model that it makes at level extended."""
    return _onnxruntime(model, output, "ORT_ENABLE_EXTENDED")


def ort_all(model: Path, output: Path) -> Counts:
    """Let onnxruntime write the model that it makes by default, for this machine."""
    return _onnxruntime(model, output, "ORT_ENABLE_ALL")


def _onnxruntime(model: Path, output: Path, level: str) -> Counts:
    import onnxruntime  # noqa: PLC0415  # a process loads one tool only

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(output)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return {}


def dpl(model: Path, output: Path, *, catalogs: tuple[str, ...]) -> Counts:
    """Apply the rules of *catalogs* until none matches, as ``dpl rewrite --no-verify`` does."""
    from dplcli.catalog import read_catalogs  # noqa: PLC0415  # a process loads one tool only
    from dplcli.onnx_io import load_model, paused_gc, staged  # noqa: PLC0415  # a process loads one tool only
    from dplcli.passes.rewrite import rewrite  # noqa: PLC0415  # a process loads one tool only

    with paused_gc():
        loaded = load_model(model)
        rules = read_catalogs(catalogs, loaded.codec.schemas).rewrites
        counts = rewrite(loaded, rules).counts
        with staged(loaded, output) as written:
            written.commit()
    return {rule: count for rule, count in counts.items() if count}


PEERS: dict[str, Tool] = {
    "onnxslim": onnxslim,
    "onnxsim": onnxsim,
    "onnxscript": onnxscript,
    "ort-basic": ort_basic,
    "ort-extended": ort_extended,
}
"""The other tools, by the name of their column."""

PACKAGES = ("dplcli", "onnx", "protobuf", "onnxslim", "onnxsim", "onnxscript", "onnxruntime")


def missing_packages(names: list[str]) -> list[str]:
    """Return which of the tools *names* are not installed."""
    return [
        name
        for name in names
        if importlib.util.find_spec("onnxruntime" if name.startswith("ort-") else name) is None
    ]


# --- running them -------------------------------------------------------------------------------


def run_limited(limit: float, function: Callable[..., object], *args: object) -> Ending:
    """Call *function* in a process of its own, for at most *limit* seconds."""
    context = _context()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, function, args), daemon=True)
    start = time.perf_counter()
    process.start()
    theirs.close()
    ending = _wait(ours, limit, start)
    process.join(_SECONDS_TO_EXIT if ending is None or not ending.problem else 0)
    if process.is_alive():
        process.kill()
        process.join()
    ours.close()
    return ending or Ending(None, _death(process.exitcode), time.perf_counter() - start)


def _wait(ours: Connection, limit: float, start: float) -> Ending | None:
    """Return what the process says; None if it died without a word."""
    if not ours.poll(limit):
        return Ending(None, f"took longer than {limit:g} s", time.perf_counter() - start)
    try:
        answer, problem, seconds = ours.recv()
    except EOFError:
        return None
    return Ending(answer, problem, seconds)


def _answer(theirs: Connection, function: Callable[..., object], args: tuple[object, ...]) -> None:
    """Call *function* with standard output and error closed, and send what comes of it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    start = time.perf_counter()
    try:
        answer, problem = function(*args), ""
    except BaseException as error:  # noqa: BLE001  # a tool's failure is a result
        first = (str(error).strip() or "no message").splitlines()[0]
        answer, problem = None, f"{type(error).__name__}: {first}"
    theirs.send((answer, problem, time.perf_counter() - start))
    theirs.close()


def _death(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended without an answer, exit code {code}"
    return f"died of {signal.Signals(-code).name}"


def _context() -> SpawnContext | ForkServerContext:
    """Return a way to start a process, where possible with the slow imports done."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "numpy", "onnx", "onnxruntime", "sympy"])
    return context
