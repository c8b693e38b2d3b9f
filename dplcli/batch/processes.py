"""Processes that work on many models: here, or on the machines of a Dask cluster.

What does the work is an executor of ``concurrent.futures``. A process that dies takes one model
with it, never the others, and so does one that takes too long.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import threading
from collections import Counter, deque
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from functools import partial
from importlib import import_module
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dplcli.errors import DplError, UsageError, opt
from dplcli.files import remove_provisional

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess
    from types import FrameType

    Task = TypeVar("Task")
    Answer = TypeVar("Answer")

_PATIENCE = 5.0
_LOOK = 1.0
"""How often somebody looks whether things are as they were."""

_CONNECTING = 10.0
_DIED = "the process that worked on it died, also when it was tried again alone"


class LostError(DplError):
    """Nobody could finish a task; the others go on."""


class UnfitError(DplError):
    """A task cannot be done where somebody tried, whatever it is; elsewhere it can."""


class _UnwantedError(Exception):
    """Nobody waits for a task any more."""


class _TimeIsUpError(BaseException):
    """Raised in the middle of what takes too long; nobody on the way takes it for an answer."""


def default_jobs() -> int:
    """Return how many processes this one may keep busy."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Where the work is done.


def run_here(  # noqa: PLR0913, PLR0917  # all that is said of the work
    work: Callable[[Task], Answer],
    tasks: Sequence[Task],
    jobs: int,
    preload: Iterable[str] = (),
    seconds: float | None = None,
    is_wanted: Callable[[], bool] | None = None,
) -> Iterator[tuple[Task, Answer | Exception]]:
    """Do tasks in processes of this machine; yield each with its answer as it is done.

    No more tasks are handed out than there are processes. So if one dies, few are suspected, and
    these are tried again, one at a time: who is guilty is then known, and nobody else is lost.

    Args:
        work: Does a task; a function of a module, as it is called elsewhere.
        tasks: What to do.
        jobs: How many processes.
        preload: Modules that all processes need.
        seconds: How long a task may take; None for as long as it likes.
        is_wanted: Is asked now and then whether anybody waits for the answers.

    Yields:
        A task with its answer, or with the error that kept it from having one.
    """
    waiting = deque(tasks)
    suspects: list[Task] = []
    while waiting:
        with _processes(min(jobs, len(waiting)), preload) as executor:
            suspects += yield from _handed_out(executor, work, waiting, jobs, seconds, is_wanted)
    while suspects:
        alone = deque(suspects)
        with _processes(1, preload) as executor:
            guilty = yield from _handed_out(executor, work, alone, 1, seconds, is_wanted)
        for task in guilty:
            yield task, LostError(_DIED, hint="it may need more memory than there is")
        suspects = list(alone)


def _handed_out(  # noqa: PLR0913, PLR0917  # all that is said of the work
    executor: Executor,
    work: Callable[[Task], Answer],
    waiting: deque[Task],
    most: int,
    seconds: float | None,
    is_wanted: Callable[[], bool] | None,
) -> Generator[tuple[Task, Answer | Exception], None, list[Task]]:
    """Do tasks until all are done or the executor is broken; return those that it broke on.

    Raises:
        _UnwantedError: Nobody waits for them any more.
    """
    running: dict[Future[Answer], tuple[Task, float]] = {}
    suspects: list[Task] = []
    is_broken = False
    while (waiting or running) and not is_broken:
        try:
            while waiting and len(running) < most:
                future = executor.submit(_limited, work, waiting[0], seconds)
                running[future] = waiting.popleft(), monotonic()
        except BrokenExecutor:
            is_broken = True
        done, _ = wait(running, None if is_wanted is None else _LOOK, FIRST_COMPLETED)
        if is_wanted is not None and not is_wanted():
            raise _UnwantedError
        for future in done:
            task, since = running.pop(future)
            try:
                answer: Answer | Exception = future.result()
            except BrokenExecutor:
                is_broken = True
                if seconds is None or monotonic() - since < seconds:
                    suspects.append(task)
                    continue
                answer = _too_long(seconds)
            except Exception as error:  # noqa: BLE001  # whatever it is, the others go on
                answer = error
            yield task, answer
    return [*suspects, *(task for task, _ in running.values())]


def _limited(work: Callable[[Task], Answer], task: Task, seconds: float | None) -> Answer:
    """Do a task in a process for many; one that does not even hear that its time is up is ended."""
    if seconds is None:
        return work(task)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        faulthandler.dump_traceback_later(seconds + _PATIENCE, exit=True, file=nowhere)
        try:
            with limited(seconds):
                return work(task)
        finally:
            faulthandler.cancel_dump_traceback_later()


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Give a block so much time; only in the main thread, and not on Windows.

    Raises:
        LostError: The time is up.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not (is_main and hasattr(signal, "setitimer")):
        yield
        return
    late, before = monotonic() + seconds, signal.getsignal(signal.SIGALRM)

    def end(number: int, frame: FrameType | None) -> None:
        if monotonic() >= late:
            raise _TimeIsUpError
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, _PATIENCE)  # again, where Python dropped it
    try:
        yield
    except _TimeIsUpError:
        raise _too_long(seconds) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _too_long(seconds: float) -> LostError:
    return LostError(
        f"took longer than {seconds:g} s", hint=f"give it more: {opt('model_timeout')}"
    )


@contextmanager
def _processes(jobs: int, preload: Iterable[str]) -> Iterator[Executor]:
    """Yield an executor whose processes are gone at the end, whatever they are doing."""
    context: Any = copy(_context(preload))
    started: list[BaseProcess] = []

    def process(**told: Any) -> BaseProcess:  # noqa: ANN401  # what the executor says
        started.append(type(context).Process(**told))
        return started[-1]

    context.Process = process  # this process may start others, too
    executor = ProcessPoolExecutor(jobs, context, _begin)
    try:
        yield executor
        executor.shutdown(wait=False)  # all have answered; one that does not end is not waited for
        _wait_for(started)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        living = [each for each in started if each.is_alive()]
        for each in living:
            each.terminate()
        _wait_for(living)
        for each in living:
            each.kill()


def _wait_for(processes: Iterable[BaseProcess]) -> None:
    """Wait until processes have ended, but not for long."""
    late = monotonic() + _PATIENCE
    for each in processes:
        if each.pid is not None:
            each.join(max(late - monotonic(), 0))


def _context(preload: Iterable[str]) -> BaseContext:
    """Choose how processes are started: never as forks of this one, which has threads."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    resource_tracker.ensure_running()  # which lets interrupts through again when it is started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()  # what it loads is not to be interrupted by a terminal
    except ChildProcessError:  # this process is a fork of one whose child the server is
        return multiprocessing.get_context("spawn")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


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
    for group in [*_PROGRAMS]:
        _end_group(group)
    with suppress(OSError):
        remove_provisional()
    os._exit(1)


# Other programs.


_PROGRAMS: set[int] = set()
"""The process groups of programs that run."""


def run_program(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a program; what it started ends with it, or when nobody waits for it any more.

    Raises:
        OSError: It cannot be run.
    """
    with subprocess.Popen(  # noqa: S603  # the caller names it
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        _PROGRAMS.add(process.pid)
        try:
            out, err = process.communicate()
        finally:
            _end_group(process.pid)
            process.kill()
            _PROGRAMS.discard(process.pid)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end_group(group: int) -> None:
    with suppress(OSError, AttributeError):  # it has ended, or is on Windows
        os.killpg(group, signal.SIGKILL)


# Where a scheduler of Dask has the work done.


_AHEAD = 2
"""How many tasks a thread of a worker has while there are many, so that none waits for us."""

_MOST_DEATHS = 3
"""How many workers may die of a task."""

_QUIET = 5.0
"""For how many seconds a worker may say nothing in any case; each speaks up every few."""

_ASKED = "(__import__('socket').gethostname(), "
_ASKED += "__import__('dplcli.batch.done', fromlist=['program']).program())"
"""What every worker is asked first, as text: it may have another dpl, another Python, or no dpl."""


class Cluster(NamedTuple):
    """Where a scheduler of Dask has work done.

    Attributes:
        scheduler: Its address.
        program: What a worker has to have: what it is called, and its version.
        preload: Modules that all processes need.
        patience: For how many seconds a worker may say nothing, and there may be none that can do
            the work.
        is_strict: Whether a worker that cannot is an error. If not, it is left out.
        tell: Is told who is left out, and who is gone.
    """

    scheduler: str
    program: Mapping[str, str]
    preload: Sequence[str] = ()
    patience: float = 60.0
    is_strict: bool = False
    tell: Callable[[str], None] = print


def run_there(
    work: Callable[[Task], Answer],
    tasks: Sequence[Task],
    cluster: Cluster,
    seconds: float | None = None,
    stands: Callable[[Task], bool] = bool,
) -> Iterator[tuple[Task, Answer | Exception, str]]:
    """Do tasks in the workers of a Dask cluster; yield each as it is done.

    What a worker that dies, stands still or is unfit had not done is given to others.

    Args:
        work: Does a task; the workers must have dpl, and see the same files.
        tasks: What to do.
        cluster: Where.
        seconds: How long a task may take; None for as long as it likes.
        stands: Tells whether a task can still be done here. If so, it is a worker that is unfit.

    Yields:
        A task with its answer, or with the error that kept it from having one; and the name of
        the machine, if one answered.

    Raises:
        UsageError: Dask is not installed, there is no such scheduler, or no worker can do it.
    """
    there = partial(_do_there, work, token_hex(8), cluster.preload, seconds)
    with _client(cluster.scheduler) as client:
        yield from _Crew(client, cluster, stands).done(there, tasks)


def _do_there(
    work: Callable[[Task], Answer],
    run: str,
    preload: Sequence[str],
    seconds: float | None,
    task: Task,
) -> tuple[str, Answer | Exception]:
    """Do a task in a process of this thread of a worker of Dask; return where, and the answer.

    The process stays for the next task of the run. It ends with one that nobody waits for.
    """
    multiprocessing.current_process().daemon = False  # or it could start none
    is_wanted = _wanted()
    if vars(_OWN).get("run") != run:  # files may have changed since, which a process remembers
        _end_own()
    if not hasattr(_OWN, "executor"):
        _OWN.run, _OWN.scope = run, _processes(1, preload)
        _OWN.executor = _OWN.scope.__enter__()
    try:
        answers = list(_handed_out(_OWN.executor, work, deque([task]), 1, seconds, is_wanted))
        if not answers:
            _end_own()
            answers = list(run_here(work, [task], 1, preload, seconds, is_wanted))
    except _UnwantedError as error:
        _end_own(error)
        answers = [(task, LostError("nobody waits for it any more"))]
    return socket.gethostname(), answers[0][1]


def _end_own(error: Exception | None = None) -> None:
    """End the process of this thread; at once, whatever it is doing, if there is an error."""
    scope = vars(_OWN).pop("scope", None)
    vars(_OWN).clear()
    if scope is not None:
        with suppress(_UnwantedError):
            scope.__exit__(error and type(error), error, None)


def _wanted() -> Callable[[], bool]:
    """Return what tells whether the scheduler still waits for what this thread works on.

    Dask stops no thread: what is cancelled, or whose client is gone, would go on.
    """
    dask: Any = import_module("distributed")
    try:
        worker = dask.get_worker()
        key = worker.get_current_task()
    except (ValueError, KeyError):  # no worker of Dask called
        return lambda: True

    def is_wanted() -> bool:
        known = worker.state.tasks.get(key)
        return known is not None and known.state != "cancelled"

    return is_wanted


_OWN = threading.local()


@contextmanager
def _client(scheduler: str) -> Iterator[Any]:
    try:
        dask: Any = import_module("distributed")  # an extra, half of it without types
    except ImportError as error:
        raise UsageError(
            f"{opt('scheduler')} {scheduler}: Dask is not installed",
            hint="python -m pip install 'dplcli[dask]'",
        ) from error
    logging.disable()  # what is wrong is said here, in words of ours
    with ExitStack() as scope:
        scope.callback(logging.disable, logging.NOTSET)
        try:
            client = dask.Client(scheduler, timeout=_CONNECTING, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(
                f"{opt('scheduler')} {scheduler}: no scheduler of Dask answers there",
                hint="start one with: dask scheduler; it prints its address, such as "
                "tcp://127.0.0.1:8786",
            ) from error
        try:
            yield client
        finally:
            with suppress(Exception):  # it may be gone
                client.close(timeout=_PATIENCE)


class _NobodyError(UsageError):
    """There is no worker."""


class _Crew:
    """The workers of a cluster: who may work, and why others may not.

    Args:
        client: Of the scheduler.
        cluster: What is asked of them.
        stands: Tells whether a task can still be done here.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401  # Dask's
        cluster: Cluster,
        stands: Callable[[Any], bool],
    ) -> None:
        self._client, self._cluster, self._stands = client, cluster, stands
        self._threads: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._faults: dict[str, str] = {}
        self._seen: dict[str, tuple[object, float]] = {}
        self._still: set[str] = set()
        self._deaths: Counter[int] = Counter()
        self._asked: dict[Future[tuple[str, Mapping[str, str]]], str] = {}
        self._next, self._since = 0.0, monotonic()

    def done(
        self, work: Callable[[Task], tuple[str, Answer | Exception]], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Answer | Exception, str]]:
        """Do tasks; yield each with its answer and the name of the machine.

        Raises:
            UsageError: There is no worker that can do the work, for too long, and was none.
        """
        waiting = deque(tasks)
        running: dict[Future[tuple[str, Answer | Exception]], tuple[Task, str]] = {}
        has_answers = False
        try:
            while waiting or running:
                try:
                    self._look()
                except Exception as error:
                    is_ours = isinstance(error, DplError)
                    if is_ours and not (has_answers and isinstance(error, _NobodyError)):
                        raise
                    lost = error if is_ours else _gone()
                    left = (*(task for task, _ in running.values()), *waiting)
                    yield from ((task, lost, "") for task in left)
                    return
                for task in self._taken_back(waiting, running):
                    yield task, LostError("every worker of Dask that was given it died"), ""
                self._hand_out(work, waiting, running)
                if not (running or self._asked):
                    sleep(_LOOK)
                futures: list[Future[Any]] = [*running, *self._asked]
                done, _ = wait(futures, _LOOK, FIRST_COMPLETED)
                for future in done & running.keys():
                    task, address = running.pop(future)
                    answer, machine = _answered(future)
                    if isinstance(answer, UnfitError) and self._stands(task):
                        waiting.appendleft(task)
                        self._leave_out(address, answer)
                        continue
                    has_answers = True
                    yield task, answer, machine
        finally:
            for future in running:
                with suppress(Exception):  # the scheduler may be gone
                    future.cancel()  # which ends what a worker has begun

    def _taken_back(
        self, waiting: deque[Task], running: dict[Future[Any], tuple[Task, str]]
    ) -> Iterator[Task]:
        """Let what workers had not done that are of the crew no more wait again.

        Yields:
            Tasks that too many workers died of.
        """
        for future, (task, address) in [*running.items()]:
            if address in self._names or future.done():
                continue
            del running[future]
            future.cancel()
            self._deaths[id(task)] += address not in self._threads
            if self._deaths[id(task)] > _MOST_DEATHS:
                yield task
            else:
                waiting.append(task)

    def _hand_out(
        self,
        work: Callable[[Task], tuple[str, Answer | Exception]],
        waiting: deque[Task],
        running: dict[Future[tuple[str, Answer | Exception]], tuple[Task, str]],
    ) -> None:
        """Give each worker tasks of its own: then it is known what is lost with it."""
        has = Counter(address for _, address in running.values())
        threads = {each: self._threads.get(each, 1) for each in self._names}
        for ahead in range(1, _AHEAD + 1):
            spare = (ahead - 1) * sum(threads.values())
            for address, count in threads.items():
                only = self._client.get_executor(pure=False, workers=[address])
                while has[address] < ahead * count and len(waiting) > spare:
                    task = waiting.popleft()
                    running[only.submit(work, task)] = task, address
                    has[address] += 1

    def _look(self) -> None:
        """Notice who has come, who is gone and who stands still; ask who is new what it has."""
        for future in [each for each in self._asked if each.done()]:
            self._judge(self._asked.pop(future), future)
        if monotonic() >= self._next:
            self._next = monotonic() + _LOOK
            workers = self._client.sync(self._client.scheduler.identity)["workers"]
            self._threads = {address: each["nthreads"] for address, each in workers.items()}
            for address in self._names.keys() - self._threads:
                name = self._names.pop(address)
                self._cluster.tell(f"{name} is gone; others do what it had not done")
            for address, each in workers.items():
                self._listen(address, each["last_seen"])
            known = {*self._names, *self._faults, *self._asked.values(), *self._still}
            for address in self._threads.keys() - known:
                only = self._client.get_executor(pure=False, workers=[address])
                self._asked[only.submit(eval, _ASKED)] = address
        if self._names and not (self._cluster.is_strict and self._asked):
            self._since = monotonic()
        elif monotonic() - self._since > self._cluster.patience:
            raise self._nobody()

    def _listen(self, address: str, seen: object) -> None:
        """Give a worker up that the scheduler has not heard of for too long, until it has.

        It says when that was by its own clock.
        """
        before, since = self._seen.get(address, (None, 0.0))
        if before != seen:
            self._seen[address] = seen, monotonic()
            self._still.discard(address)
        elif monotonic() - since > max(self._cluster.patience, _QUIET):
            self._still.add(address)
            if name := self._names.pop(address, None):
                told = f"{name} has said nothing for {monotonic() - since:.0f} s"
                self._cluster.tell(f"{told}; others do what it had not done")

    def _leave_out(self, address: str, fault: DplError) -> None:
        """Give a worker nothing any more.

        Raises:
            UsageError: None may be left out.
        """
        name = self._names.pop(address, None)
        if name is None:  # by another task
            return
        self._faults[address] = f"{name}: {fault.message}"
        if self._cluster.is_strict:
            raise UsageError(f"{opt('strict_workers')}: {self._faults[address]}", hint=fault.advice)
        self._cluster.tell(f"left out: {self._faults[address]}; others do what it had not done")

    def _judge(self, address: str, future: Future[tuple[str, Mapping[str, str]]]) -> None:
        """Take a worker on, or leave it out, by what it says that it has."""
        try:
            machine, program = future.result()
            name = f"{machine} ({address})"
            faults = [
                f"{what} {program.get(what, 'none')}, here {version}"
                for what, version in self._cluster.program.items()
                if program.get(what) != version
            ]
        except ModuleNotFoundError as error:
            name, faults = address, [f"lacks dpl, or what it needs: {error}"]
        except Exception as error:  # noqa: BLE001  # of many kinds
            name, faults = address, [f"has no dpl of this kind: {error}"]
        if not faults:
            self._names[address] = name
            return
        self._faults[address] = f"{name}: {'; '.join(faults)}"
        if self._cluster.is_strict:
            raise UsageError(f"{opt('strict_workers')}: {self._faults[address]}")
        self._cluster.tell(f"left out: {self._faults[address]}")

    def _nobody(self) -> _NobodyError:
        quiet = {*self._asked.values(), *self._still}
        silent = [f"{address}: does not answer" for address in sorted(quiet)]
        there = [self._faults[each] for each in self._faults if each in self._threads]
        lines = [*there, *silent] or ["there is none"]
        told = f"for {self._cluster.patience:g} s no worker could do the work"
        return _NobodyError(
            f"{opt('scheduler')} {self._cluster.scheduler}: {told}: {'; '.join(lines)}",
            hint=f"start one where this dpl is: dask worker {self._cluster.scheduler}",
        )


def _answered(future: Future[tuple[str, Answer | Exception]]) -> tuple[Answer | Exception, str]:
    """Return an answer and where it comes from; say in words of ours what Dask's own names tell."""
    try:
        machine, answer = future.result()
    except Exception as error:  # noqa: BLE001  # of many kinds
        name = type(error).__name__
        if name == "KilledWorker":
            return LostError("every worker of Dask that was given it died"), ""
        return _gone() if "Cancelled" in name or name == "CommClosedError" else error, ""
    return answer, machine


def _gone() -> LostError:
    return LostError("the scheduler of Dask is gone", hint=f"{opt('resume')} goes on")
