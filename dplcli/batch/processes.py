"""Processes that work on many models: here, or on the machines of a Dask cluster.

What does the work is an executor of ``concurrent.futures``. A process that dies takes one model
with it, never the others.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import forkserver, resource_tracker
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from dplcli.errors import DplError, UsageError
from dplcli.files import remove_provisional

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Executor, Future
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess

    Task = TypeVar("Task")
    Answer = TypeVar("Answer")

_PATIENCE = 5.0
_CONNECTING = 10.0
_DIED = "the process that worked on it died, also when it was tried again alone"


class LostError(DplError):
    """Nobody could finish a task; the others go on."""


def default_jobs() -> int:
    """Return how many processes this one may keep busy."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Where the work is done.


def run_here(
    work: Callable[[Task], Answer], tasks: Sequence[Task], jobs: int, preload: Iterable[str] = ()
) -> Iterator[tuple[Task, Answer | Exception]]:
    """Do tasks in processes of this machine; yield each with its answer as it is done.

    No more tasks are handed out than there are processes. So if one dies, few are suspected, and
    these are tried again, one at a time: who is guilty is then known, and nobody else is lost.

    Args:
        work: Does a task; a function of a module, as it is called elsewhere.
        tasks: What to do.
        jobs: How many processes.
        preload: Modules that all processes need.

    Yields:
        A task with its answer, or with the error that kept it from having one.
    """
    waiting = deque(tasks)
    suspects: list[Task] = []
    while waiting:
        with _processes(min(jobs, len(waiting)), preload) as executor:
            suspects += yield from _handed_out(executor, work, waiting, jobs)
    while suspects:
        alone = deque(suspects)
        with _processes(1, preload) as executor:
            guilty = yield from _handed_out(executor, work, alone, 1)
        for task in guilty:
            yield task, LostError(_DIED, hint="it may need more memory than there is")
        suspects = list(alone)


def _handed_out(
    executor: Executor, work: Callable[[Task], Answer], waiting: deque[Task], most: int
) -> Generator[tuple[Task, Answer | Exception], None, list[Task]]:
    """Do tasks until all are done or the executor is broken; return those that it broke on."""
    running: dict[Future[Answer], Task] = {}
    while waiting or running:
        try:
            while waiting and len(running) < most:
                running[executor.submit(work, waiting[0])] = waiting[0]
                waiting.popleft()
        except BrokenExecutor:
            return list(running.values())
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        broken = []
        for future in done:
            task = running.pop(future)
            try:
                answer: Answer | Exception = future.result()
            except BrokenExecutor:
                broken.append(task)
                continue
            except Exception as error:  # noqa: BLE001  # whatever it is, the others go on
                answer = error
            yield task, answer
        if broken:
            return [*broken, *running.values()]
    return []


@contextmanager
def _processes(jobs: int, preload: Iterable[str]) -> Iterator[Executor]:
    """Yield an executor whose processes are gone at the end, whatever they are doing."""
    before = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(jobs, _context(preload), _begin)
    try:
        yield executor
        executor.shutdown(wait=False)  # all have answered; one that does not end is not waited for
        _wait_for(set(multiprocessing.active_children()) - before)
    finally:
        started = set(multiprocessing.active_children()) - before
        executor.shutdown(wait=False, cancel_futures=True)
        for each in started:
            each.terminate()
        _wait_for(started)
        for each in started:
            each.kill()


def _wait_for(processes: Iterable[BaseProcess]) -> None:
    """Wait until processes have ended, but not for long."""
    late = monotonic() + _PATIENCE
    for each in processes:
        each.join(max(late - monotonic(), 0))


def _context(preload: Iterable[str]) -> BaseContext:
    """Choose how processes are started: never as forks of this one, which has threads."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    resource_tracker.ensure_running()  # which lets interrupts through again when it is started
    with _interrupts_held():
        forkserver.ensure_running()  # what it loads is not to be interrupted by a terminal
    return context


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let an interrupt wait; what is started meanwhile never sees any."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Prepare a process for many models: it ends cleanly, and with the one that started it."""
    for name in ("SIGINT", "SIGHUP"):  # a terminal tells all of a group; the first one decides
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: _leave())
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    gc.freeze()  # what is loaded stays


def _leave_with(parent: BaseProcess) -> None:
    parent.join()
    _leave()


def _leave() -> None:
    with suppress(OSError):
        remove_provisional()
    os._exit(1)


# Where a scheduler of Dask has the work done.


def run_there(
    work: Callable[[Task], Answer], tasks: Sequence[Task], scheduler: str
) -> Iterator[tuple[Task, Answer | Exception]]:
    """Do tasks in the workers of a Dask cluster; yield each with its answer as it is done.

    Dask gives the task of a worker that dies to another one.

    Args:
        work: Does a task; the workers must have dpl, and see the same files.
        tasks: What to do.
        scheduler: The address of the scheduler.

    Yields:
        A task with its answer, or with the error that kept it from having one.

    Raises:
        UsageError: Dask is not installed, or there is no such scheduler.
    """
    with _cluster(scheduler) as executor:
        for task, answer in _handed_out(executor, work, deque(tasks), max(len(tasks), 1)):
            yield task, _from_there(answer) if isinstance(answer, Exception) else answer


@contextmanager
def _cluster(scheduler: str) -> Iterator[Executor]:
    try:
        dask: Any = import_module("distributed")  # an extra, half of it without types
    except ImportError as error:
        raise UsageError(
            f"--scheduler {scheduler}: Dask is not installed",
            hint="python -m pip install 'dplcli[dask]'",
        ) from error
    try:
        client = dask.Client(scheduler, timeout=_CONNECTING, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(
            f"--scheduler {scheduler}: no scheduler of Dask answers there",
            hint="start one with: dask scheduler; it prints its address, such as "
            "tcp://127.0.0.1:8786",
        ) from error
    with client:
        executor = client.get_executor(pure=False)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)


def _from_there(error: Exception) -> Exception:
    """Say in words of ours what only Dask's own names tell."""
    name = type(error).__name__
    if name == "KilledWorker":
        return LostError("every worker of Dask that was given it died")
    if isinstance(error, ModuleNotFoundError):
        return LostError(f"the workers of Dask lack a module: {error}", hint="install dpl there")
    if name in {"CancelledError", "FutureCancelledError", "CommClosedError"}:
        return LostError("the scheduler of Dask is gone", hint="--resume goes on")
    return error
