"""Run models: in worker processes of their own, or in ours. onnxruntime is loaded when used."""

import array
import atexit
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal, Protocol, cast, runtime_checkable

import numpy as np

from dplcli.errors import DplError, UsageError, VerificationError, opt
from dplcli.files import resolved
from dplcli.verify.check import CPU, REFERENCE_LEVEL, TIMEOUT, Execution, Kernels
from dplcli.verify.values import (
    Array,
    Feed,
    Leaf,
    ModelSource,
    Outputs,
    PartitionTime,
    RunError,
    Runs,
    ShortageError,
    StoppedError,
    arrays_in,
    is_exotic,
)
from dplcli.verify.verdict import PartitionRun

# Messages between dpl and its workers: JSON, and arrays in shared memory.
#
# Each message is two lengths, a JSON object, the arrays one after another, and at most one file
# descriptor. Small arrays stand in the message. The descriptor stands for a file without a name,
# which holds large ones; the receiver maps it and reads them in place. Nothing is unpickled, and
# no file is left behind, whichever side dies.


Header = dict[str, Any]

OUT_OF_MEMORY = 71
"""Exit code of a worker that has not even the memory to say so."""

_ALIGNMENT = 64
_LENGTH = 8
_CHUNK = 1 << 20
_SMALL = 1 << 15
"""Up to how many bytes arrays stand in the message: a file costs more than copying so few."""


class ClosedError(Exception):
    """The other side is gone."""


def send(to: socket.socket, header: Header, arrays: Sequence[Array] = ()) -> None:
    """Send a message.

    Raises:
        ClosedError: Nobody listens any more.
        TimeoutError: Nobody read it in the time that the socket allows.
    """
    places, chunks, size = list[Header](), list[memoryview | bytes](), 0
    for values in arrays:
        place, data = _pack(values)
        places.append({**place, "offset": size, "nbytes": data.nbytes})
        padding = bytes(-data.nbytes % _ALIGNMENT)
        chunks += [data.reshape(-1).view(np.uint8).data, padding]
        size += data.nbytes + len(padding)
    text = json.dumps({**header, "arrays": places, "size": size}).encode()
    content = b"".join(chunks) if size <= _SMALL else b""
    descriptors = [] if size <= _SMALL else [_file_of(chunks)]
    lengths = len(text).to_bytes(_LENGTH, "little") + len(content).to_bytes(_LENGTH, "little")
    try:
        if descriptors:
            socket.send_fds(to, [lengths], descriptors)
            lengths = b""
        to.sendall(b"".join((lengths, text, content)))
    except TimeoutError:
        raise
    except OSError as error:
        raise ClosedError from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def receive(
    at: socket.socket, deadline: float | None = None, *, writable: bool = False
) -> tuple[Header, list[Array]]:
    """Wait for a message.

    Args:
        at: Where it comes in.
        deadline: When to give up, by `time.monotonic`; None for never.
        writable: Map the arrays so that writing to them changes a private copy.

    Raises:
        ClosedError: The other side went away before or within the message.
        TimeoutError: It did not come in time.
    """
    descriptors: list[int] = []
    try:
        lengths = _read(at, 2 * _LENGTH, deadline, descriptors)
        of_text, of_content = (
            int.from_bytes(part, "little") for part in (lengths[:_LENGTH], lengths[_LENGTH:])
        )
        header = cast("Header", json.loads(_read(at, of_text, deadline, descriptors)))
        content = _read(at, of_content, deadline, descriptors)
        places, size = header.pop("arrays"), header.pop("size")
        memory: mmap.mmap | bytearray = content
        if descriptors:
            access = mmap.ACCESS_COPY if writable else mmap.ACCESS_WRITE
            try:
                memory = mmap.mmap(descriptors[0], size, access=access)
            except OSError as error:
                raise MemoryError from error
        return header, [_array(memory, place) for place in places]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _read(
    at: socket.socket, size: int, deadline: float | None, descriptors: list[int]
) -> bytearray:
    content = bytearray()
    room = socket.CMSG_SPACE(array.array("i", [0]).itemsize)
    while len(content) < size:
        at.settimeout(None if deadline is None else max(deadline - time.monotonic(), 1e-3))
        try:
            part, extra, _, _ = at.recvmsg(min(size - len(content), _CHUNK), room)
        except TimeoutError:
            raise
        except OSError as error:
            raise ClosedError from error
        for level, kind, data in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors += array.array("i", data).tolist()
        if not part:
            raise ClosedError
        content += part
    return content


def _pack(values: Array) -> tuple[Header, Array]:
    """Return how an array is described, and its content as numbers."""
    place: Header = {"shape": list(values.shape), "dtype": values.dtype.str}
    if values.dtype.kind in "OUS":
        text = json.dumps([str(word) for word in values.reshape(-1)]).encode()
        return {**place, "dtype": "string"}, np.frombuffer(text, np.uint8)
    data = np.ascontiguousarray(values)
    if is_exotic(values):
        import onnx  # noqa: PLC0415  # slow to load, and rarely needed

        number = onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
        return {**place, "dtype": number}, data.reshape(-1).view(np.uint8)
    return place, data


def _file_of(chunks: Iterable[memoryview | bytes]) -> int:
    """Return a file without a name that holds bytes.

    They are written, and not copied into the mapped file: each page would be a fault, and that
    takes twice as long as the copying.
    """
    descriptor = _nameless()
    try:
        for chunk in chunks:
            left = memoryview(chunk)
            while left:
                left = left[os.write(descriptor, left) :]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dpl", os.MFD_CLOEXEC)
    import tempfile  # noqa: PLC0415  # not on Linux

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _array(memory: mmap.mmap | bytearray, place: Header) -> Array:
    shape, dtype = tuple(place["shape"]), place["dtype"]
    raw = np.frombuffer(memory, np.uint8, place["nbytes"], place["offset"])
    if dtype == "string":
        words = np.empty(shape, dtype=object)
        words.reshape(-1)[:] = json.loads(raw.tobytes())
        return words
    if isinstance(dtype, int):
        import onnx  # noqa: PLC0415  # slow to load, and rarely needed

        return raw.view(onnx.helper.tensor_dtype_to_np_dtype(dtype)).reshape(shape)
    return raw.view(dtype).reshape(shape)


# Processes that run models for us: started, used again, limited, and always ended.
#
# A worker runs one model at a time. It is used again for the next session if it only ever ran plain
# models: on the CPU, without libraries and without a memory limit. So onnxruntime is loaded once.
# Each worker is a child in a process group of its own: Ctrl-C reaches dpl, and dpl ends the worker.
# Workers end by themselves when dpl is killed.


_START = "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
_START += "from dplcli.verify.run import main; main(int(sys.argv[1]))"
_STARTING = 120.0
_GRACE = 2.0
_SOON = 0.02
_LOOK = 0.5
_OF_SESSIONS = {
    "enable_cpu_mem_arena",
    "enable_mem_pattern",
    "execution_order",
    "session.disable_prepacking",
}
"""Options that say nothing beyond a session: a worker that had them is used again."""
_MOST_IDLE = 2
_LARGEST_IDLE = 512 << 20
"""Bytes of an idle worker; onnxruntime keeps much of what a model once took."""

_READ_ONCE = ("DPL_", "OMP_", "ONEDNN_")
"""How variables begin that libraries read when they are loaded."""

IS_POSSIBLE = hasattr(socket, "send_fds") and sys.platform != "win32"
"""Whether this system lets us pass memory between processes."""


class Worker:
    """A process that waits for messages; not safe for threads."""

    def __init__(self) -> None:
        """Start the process, and do not wait for it."""
        self._socket, theirs = socket.socketpair()
        self._is_ready = False
        self._variables = _variables()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, "-P", "-c", _START, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        self._shortages: list[bytes] = []
        said = self._process.stderr
        self._relay = threading.Thread(target=_pass_on, args=(said, self._shortages), daemon=True)
        self._relay.start()

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    @property
    def is_current(self) -> bool:
        """Whether it was started with the variables that are set now."""
        return self._variables == _variables()

    @property
    def memory(self) -> int:
        """Bytes that the process has beside mapped files; 0 if the system does not say."""
        try:
            sizes = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii").split()
            return (int(sizes[1]) - int(sizes[2])) * mmap.PAGESIZE
        except (OSError, IndexError):
            return 0

    def ask(
        self, header: Header, arrays: Sequence[Array], doing: str, timeout: float | None
    ) -> tuple[Header, list[Array]]:
        """Send a message and return the answer; if it fails, the worker is gone.

        Args:
            header: The message.
            arrays: What goes with it.
            doing: What the worker does with it, for messages.
            timeout: Seconds until the answer has to be there.

        Raises:
            StoppedError: The process died, or the time was up.
            RunError: onnxruntime refused.
            ShortageError: There was not enough memory.
            UsageError: What was asked for cannot be done here.
            VerificationError: onnxruntime cannot be loaded.
        """
        try:
            self._wait_until_ready()
            deadline = None if timeout is None else time.monotonic() + timeout
            self._socket.settimeout(timeout)
            send(self._socket, header, arrays)
            answer, given = receive(self._socket, deadline, writable=True)
        except TimeoutError:
            self.kill()
            raise StoppedError(
                f"did not finish within {timeout:g} s",
                doing,
                hint=f"give it more: {opt('timeout', '7200')}",
            ) from None
        except ClosedError:
            how, hint = self._cause_of_death()
            raise StoppedError(how, doing, hint=hint) from None
        except BaseException:
            self.kill()
            raise
        match answer.get("error"):
            case "memory":
                raise ShortageError(answer["message"])
            case "run":
                raise RunError(answer["message"])
            case "usage":
                raise UsageError(answer["message"], hint=answer["hint"])
            case _:
                return answer, given

    def tell(self, header: Header) -> None:
        """Send a message that has no answer."""
        with suppress(ClosedError, TimeoutError):
            send(self._socket, header)

    def kill(self) -> None:
        """End the process, and wait until nothing is left of it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._socket.close()  # not before: a thread may wait for an answer, and gets none now
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._relay.join(_GRACE)  # what it said last explains why it ended

    def _wait_until_ready(self) -> None:
        if self._is_ready:
            return
        try:
            answer, _ = receive(self._socket, time.monotonic() + _STARTING)
        except (TimeoutError, ClosedError) as error:
            self.kill()
            raise VerificationError(
                "the process that runs onnxruntime does not start", hint="its error is above"
            ) from error
        if "error" in answer:
            self.kill()
            raise VerificationError(f"onnxruntime cannot be loaded: {answer['message']}")
        self._is_ready = True

    def _cause_of_death(self) -> tuple[str, str | None]:
        """Say how the process ended; it may be about to end still."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        code = self._process.poll()
        self.kill()
        if code is None:
            return "went silent", None
        if code == OUT_OF_MEMORY or self._shortages:
            raise ShortageError("out of memory")
        if code >= 0:
            return f"ended the process (exit code {code})", None
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        if name == "SIGKILL":
            return "was killed (SIGKILL)", "the system does that when it runs out of memory"
        return f"crashed ({name})", None


_NO_MEMORY = b"cannot allocate memory for thread-local data"


def _pass_on(said: IO[bytes], shortages: list[bytes]) -> None:
    """Print what a worker and the libraries in it say, on what is our standard error now.

    They do not write to the terminal themselves: a message may quote a model, and what a model
    says has to be escaped first. What glibc says when it ends a process for want of memory goes
    into *shortages* instead: dpl says that itself.
    """
    with said:
        for line in said:
            if line.startswith(_NO_MEMORY):
                shortages.append(line)
                continue
            with suppress(AttributeError, OSError, ValueError):  # nobody listens any more
                sys.stderr.writelines([line.decode("utf-8", "backslashreplace")])


def _variables() -> dict[str, str]:
    # few values are decoded: this is asked for each session
    return {name: os.environ[name] for name in os.environ if name.startswith(_READ_ONCE)}


class _Pool:
    """Workers that wait for their next model.

    A worker comes back when the garbage collector finds that nobody holds its session any more.
    That can be at any time, even while this very thread is inside one of the methods. So giving
    back never waits for the lock: what cannot be settled at once is settled by the next call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._returned: deque[tuple[Worker, bool]] = deque()
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._owner = os.getpid()
        atexit.register(self.clear)

    def warm_up(self) -> None:
        with self._lock:
            self._settle()
            if not self._idle:
                self._idle.append(Worker())

    def take(self) -> Worker:
        """Return a worker that runs nothing else."""
        with self._lock:
            self._settle()
            while self._idle and not (self._idle[-1].is_alive and self._idle[-1].is_current):
                self._idle.pop().kill()
            worker = self._idle.pop() if self._idle else Worker()
            self._busy.add(worker)
            return worker

    def give(self, worker: Worker, *, reusable: bool) -> None:
        """Take *worker* back, for others to use or to be ended."""
        self._returned.append((worker, reusable))
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Make workers that were given back idle, or end them."""
        if os.getpid() != self._owner:
            self._returned.clear()
            self._idle, self._busy, self._owner = [], set(), os.getpid()
        while self._returned:
            worker, reusable = self._returned.popleft()
            if worker not in self._busy:
                continue
            self._busy.discard(worker)
            is_small = worker.memory <= _LARGEST_IDLE
            if reusable and worker.is_alive and is_small and len(self._idle) < _MOST_IDLE:
                worker.tell({"do": "close"})
                self._idle.append(worker)
            else:
                worker.kill()

    def clear(self) -> None:
        """End every worker, as at the end of the program."""
        if os.getpid() != self._owner:
            return
        for worker in [*self._idle, *self._busy]:
            worker.kill()
            self._busy.discard(worker)  # no other: a thread may have taken one just now
            with suppress(ValueError):
                self._idle.remove(worker)


_POOL = _Pool()


def warm_up() -> None:
    """Start a worker that will be needed soon, while we do something else."""
    if IS_POSSIBLE:
        _POOL.warm_up()


take_worker = _POOL.take
give_back = _POOL.give
end_workers = _POOL.clear


# A model that can be run: in a process of its own, or in ours. onnxruntime is loaded when used.


_MORE_MEMORY = f"give it more: {opt('memory_limit')}"

Kind = Literal["onnxruntime", "evaluator"]


class Engine(Protocol):
    """What runs one model."""

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model."""


@runtime_checkable
class SeveralEngine(Protocol):
    """An engine for which one run on several sets of inputs is less work than several runs."""

    def run_each(self, feeds: Sequence[Mapping[str, Feed]]) -> list[Outputs]:
        """Return every output for each of them."""


@runtime_checkable
class KernelEngine(Protocol):
    """An engine that runs partitions on a library."""

    def record(self) -> list[PartitionRun]:
        """Return what has become of each partition so far."""

    def profile(self, feeds: Mapping[str, Feed]) -> list[PartitionTime]:
        """Run once, and return how long each partition took."""


class Runner:
    """One model, ready to run at one optimisation level."""

    def __init__(self, source: ModelSource, level: str, engine: Kind = "onnxruntime") -> None:
        """Create the session; this can take minutes for a large graph.

        Raises:
            RunError: onnxruntime does not accept the model.
            StoppedError: The process crashed, or took longer than allowed.
            UsageError: onnxruntime does not have the provider, or does not know an option.
        """
        self._opened = source, level, engine
        self.restart()

    def restart(self) -> None:
        """Create the session anew, as after its process ended.

        Raises:
            RunError: onnxruntime does not accept the model.
            StoppedError: The process crashed, or took longer than allowed.
        """
        source, level, engine = self._opened
        is_remote = source.execution.isolated and IS_POSSIBLE
        create = _Remote if is_remote else _engine_here
        if source.blocks is not None:
            create = source.blocks.create
        self._engine: Engine = create(source, level, engine)

    @property
    def is_in_blocks(self) -> bool:
        """Whether the model runs one block after the other."""
        return self._opened[0].blocks is not None

    def record(self) -> list[PartitionRun]:
        """Return what has become of each partition; none if no kernels were asked for."""
        return self._engine.record() if isinstance(self._engine, KernelEngine) else []

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model.

        Raises:
            RunError: onnxruntime does not accept the inputs, or fails on the way.
            StoppedError: The process crashed, or took longer than allowed.
        """
        return self._engine.run(feeds)

    def run_each(self, feeds: Sequence[Mapping[str, Feed]]) -> list[Outputs]:
        """Return every output for each of several sets of inputs.

        A model in blocks opens each block once for all of them.

        Raises:
            RunError: As for :meth:`run`.
            StoppedError: As for :meth:`run`.
        """
        if isinstance(self._engine, SeveralEngine):
            return self._engine.run_each(feeds)
        return [self._engine.run(each) for each in feeds]

    def try_each(self, feeds: Sequence[Mapping[str, Feed]]) -> list[Outputs | RunError]:
        """Return for each of several sets of inputs every output, or why it does not run.

        What is small is sent to a worker together.

        Raises:
            ShortageError: There was not enough memory.
            StoppedError: As for :meth:`run`.
        """
        if isinstance(self._engine, _Remote):
            return self._engine.try_each(feeds)
        given: list[Outputs | RunError] = []
        for each in feeds:
            try:
                given.append(self._engine.run(each))
            except ShortageError:
                raise
            except RunError as error:
                given.append(RunError(str(error)))  # the other holds on to the session
        return given

    def time(self, feeds: Mapping[str, Feed], times: int) -> tuple[float, float]:
        """Run so many times in a row, and return the seconds of one run: by the clock, and of CPU.

        Raises:
            RunError: As for :meth:`run`.
            StoppedError: As for :meth:`run`.
        """
        if isinstance(self._engine, _Remote):
            return self._engine.time(feeds, times)
        return timed(self._engine, feeds, times)

    def profile(self, feeds: Mapping[str, Feed]) -> list[PartitionTime]:
        """Run once, and return how long each partition took; none if no kernels were asked for.

        Raises:
            RunError: As for :meth:`run`.
            StoppedError: As for :meth:`run`.
        """
        return self._engine.profile(feeds) if isinstance(self._engine, KernelEngine) else []


def timed(engine: Engine, feeds: Mapping[str, Feed], times: int) -> tuple[float, float]:
    """Run a model some times in a row; return the seconds of one run, by the clock and of CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        engine.run(feeds)
    return (time.perf_counter() - wall) / times, (time.process_time() - cpu) / times


def _engine_here(source: ModelSource, level: str, engine: Kind) -> Engine:
    kernels = source.execution.kernels
    if kernels is not None and engine == "onnxruntime":
        opened: Engine = import_module(kernels.module).open_session(source, level)
        return opened
    if engine == "onnxruntime":
        from dplcli.verify import engines  # noqa: PLC0415  # loads onnxruntime

        return engines.Session(source, level)
    from dplcli.verify.evaluator import ReferenceSession  # noqa: PLC0415  # loads onnx, too

    return ReferenceSession(source)


def open_original(
    source: ModelSource, libraries: Sequence[Path], create: Callable[[ModelSource], Runner]
) -> tuple[ModelSource, Runner]:
    """Create the original's session, without custom operators if it runs without.

    Args:
        source: The original.
        libraries: The custom operators that it may need.
        create: Creates a session.

    Raises:
        VerificationError: onnxruntime does not run it, with custom operators or without.
    """
    problem: RunError | None = None
    for attempt in [source, replace(source, libraries=tuple(libraries))][: 1 + bool(libraries)]:
        try:
            return attempt, create(attempt)
        except RunError as error:
            problem = RunError(str(error))  # what was raised holds on to the session
    raise VerificationError(f"onnxruntime does not run the original model: {problem}") from problem


def run_cases(
    runner: Runner, feeds: Mapping[int, Mapping[str, Feed]], cases: Sequence[int]
) -> dict[int, Outputs]:
    """Return the outputs for every case.

    Raises:
        RunError: onnxruntime does not accept the inputs of a case, or fails on the way.
        StoppedError: The process crashed, or took longer than allowed; the message says in which
            case.
    """
    if runner.is_in_blocks:
        return dict(zip(cases, runner.run_each([feeds[case] for case in cases]), strict=True))
    outputs = {}
    for case in cases:
        try:
            outputs[case] = runner.run(feeds[case])
        except StoppedError as error:
            doing = f"{error.doing}, seed {case}"
            raise StoppedError(error.how, doing, hint=error.advice) from error
    return outputs


def run_levels(
    levels: Sequence[str], run: Callable[[str], Runs], *, at_once: int = 1
) -> tuple[dict[str, Runs], dict[str, str]]:
    """Return what the candidate gives at each level, and by level why it does not run at others.

    Args:
        levels: The levels.
        run: Runs the candidate at one level.
        at_once: How many may run at the same time, each in a process of its own.
    """
    runs: dict[str, Runs] = {}
    failures: dict[str, str] = {}
    running: list[str] = []
    is_over = threading.Event()

    def run_unless_over(level: str) -> Runs:
        running.append(level)
        try:
            if is_over.is_set():
                raise CancelledError
            return run(level)
        finally:
            running.remove(level)

    with ThreadPoolExecutor(max(1, at_once)) as pool:
        try:
            pending = [(level, pool.submit(run_unless_over, level)) for level in levels]
            for level, found in pending:
                while not found.done():  # a signal that comes just before a wait does not end it
                    wait([found], _LOOK)
                try:
                    runs[level] = found.result()
                except RunError as error:
                    why = f"onnxruntime does not run the candidate ({at_level(level)}): {error}"
                    failures[level] = why
                except StoppedError as error:
                    failures[level] = error.message
        except BaseException:  # nobody waits for what the others do
            is_over.set()  # a signal may come before a future is in our hands: no use asking those
            pool.shutdown(wait=False, cancel_futures=True)
            while running:
                end_workers()  # one may have been started just now
                time.sleep(_SOON)
            raise
    return runs, failures


def at_level(level: str) -> str:
    """Say how a model runs at a level."""
    return "optimisation off" if level == REFERENCE_LEVEL else f"optimisation level {level}"


class _Remote:
    """A session in a worker; the worker is given back when nobody holds the session any more."""

    def __init__(self, source: ModelSource, level: str, engine: Kind) -> None:
        execution = source.execution
        where = f"at level {level}" if engine == "onnxruntime" else "in onnx's reference evaluator"
        self._label = f"the {source.name} {where}"
        self._execution = execution
        self._worker = take_worker()
        own = [option for option in execution.options if option[0] not in _OF_SESSIONS]
        is_plain = replace(execution, options=tuple(own)).is_plain
        is_plain &= not (source.libraries or execution.memory_limit)
        self.close = weakref.finalize(self, give_back, self._worker, reusable=is_plain)
        self.close.atexit = False
        self._record: list[PartitionRun] = []
        arrays: list[Array] = []
        header = {**_described(source, arrays), "level": level, "engine": engine}
        self._ask(header, arrays, f"creating a session for {self._label}")

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        (outputs,) = self._tried([feeds])
        if isinstance(outputs, RunError):
            raise RunError(str(outputs))  # who holds what it raises holds on to the session
        return outputs

    def try_each(self, feeds: Sequence[Mapping[str, Feed]]) -> list[Outputs | RunError]:
        together: list[list[Mapping[str, Feed]]] = []
        room = 0
        for fed in feeds:
            size = sum(array.nbytes for feed in fed.values() for array in arrays_in(feed))
            if not together or size > room:
                together.append([])
                room = _SMALL
            together[-1].append(fed)
            room -= size
        return [outputs for some in together for outputs in self._tried(some)]

    def _tried(self, feeds: Sequence[Mapping[str, Feed]]) -> list[Outputs | RunError]:
        answer, given = self._fed("run", feeds)
        self._record = _partition_runs(answer.get("record", ()))
        return [
            RunError(found)
            if isinstance(found, str)
            else {
                name: tuple(Leaf(label, dtype, given[place]) for label, dtype, place in leaves)
                for name, leaves in found
            }
            for found in answer["outputs"]
        ]

    def record(self) -> list[PartitionRun]:
        return self._record

    def time(self, feeds: Mapping[str, Feed], times: int) -> tuple[float, float]:
        wall, cpu = self._fed("time", [feeds], times=times)[0]["seconds"]
        return wall, cpu

    def profile(self, feeds: Mapping[str, Feed]) -> list[PartitionTime]:
        return [PartitionTime(**item) for item in self._fed("profile", [feeds])[0]["profile"]]

    def _fed(
        self, do: str, feeds: Sequence[Mapping[str, Feed]], **more: int
    ) -> tuple[Header, list[Array]]:
        arrays: list[Array] = []
        places = [{name: _placed(feed, arrays) for name, feed in fed.items()} for fed in feeds]
        header = {"do": do, "feeds": places, **more}
        return self._ask(header, arrays, f"running {self._label}", steps=len(feeds))

    def _ask(
        self, header: Header, arrays: Sequence[Array], doing: str, *, steps: int = 1
    ) -> tuple[Header, list[Array]]:
        limit, each = self._execution.memory_limit, self._execution.timeout
        try:
            return self._worker.ask(header, arrays, doing, each and each * steps)
        except StoppedError as error:
            if limit is None or not error.how.startswith("crashed"):
                raise
            how = f"{error.how}, under a memory limit of {limit:,} MB,"
            raise StoppedError(how, doing, hint=_MORE_MEMORY) from error
        except ShortageError as error:
            if limit is None:
                raise
            how = f"ran out of memory (limit: {limit:,} MB)"
            raise StoppedError(how, doing, hint=_MORE_MEMORY) from error


def check_setup(libraries: Sequence[Path], execution: Execution) -> None:
    """Refuse, before any work is done, libraries and providers that onnxruntime cannot use.

    Raises:
        UsageError: A file is missing, no library, or one without ``RegisterCustomOps``, or
            onnxruntime does not have the provider.
    """
    for library in libraries:
        if not library.is_file():
            raise UsageError(f"{opt('custom_ops')} {library}: there is no such file")
    kernels = execution.kernels
    if kernels is not None and (libraries or execution.provider != CPU):
        raise UsageError(
            f"{opt('kernels')} cannot be had together with {opt('custom_ops')} or {opt('provider')}"
        )
    if not libraries and execution.provider == CPU and kernels is None:
        return
    header = {
        "do": "try",
        "libraries": [str(resolved(library)) for library in libraries],
        "provider": execution.provider,
        "options": execution.options,
        "kernels": None if kernels is None else asdict(kernels),
    }
    what = ", ".join(map(str, libraries)) or (kernels.library if kernels is not None else "")
    try:
        _asked(header, f"loading {what}", execution.timeout, isolated=execution.isolated)
    except StoppedError as error:
        asked = opt("kernels") if kernels is not None else opt("custom_ops")
        raise UsageError(f"{asked}: {error.wording}") from error


def plan_kernels(
    path: Path, target: str, module: str, library: str, math: str = "fp32"
) -> tuple[str, list[PartitionRun]]:
    """Have the partitions of a model planned where a crash of the library does no harm.

    Args:
        path: The model.
        target: The domain of the partitions.
        module: Has ``plan_model``, as :mod:`dplcli.execute.onednn.session` does.
        library: What the library is called.
        math: In which arithmetic products of float32 may be computed.

    Returns:
        The plan as text, and for each partition where it runs.

    Raises:
        UsageError: The model cannot be read, or there is no library, or it crashes.
    """
    header = {"do": "plan", "path": str(resolved(path)), "target": target}
    header |= {"module": module, "math": math}
    try:
        answer = _asked(header, f"asking {library}", TIMEOUT)
    except StoppedError as error:
        raise UsageError(f"{library} {error.how} while it was asked what it runs") from error
    except UsageError as error:
        message = error.wording.replace(header["path"], str(path))
        raise UsageError(message, hint=error.advice) from error
    return answer["text"], _partition_runs(answer["partitions"])


def available_providers() -> tuple[str, ...]:
    """Return the execution providers of onnxruntime.

    Raises:
        VerificationError: onnxruntime cannot be loaded.
    """
    doing = "listing its execution providers"
    return tuple(_asked({"do": "list"}, doing, _STARTING, reusable=True)["providers"])


def _asked(
    header: Header,
    doing: str,
    timeout: float | None,
    *,
    isolated: bool = True,
    reusable: bool = False,
) -> Header:
    """Ask what needs no model: a worker where a crash does no harm, or this process."""
    if not (isolated and IS_POSSIBLE):
        return _answer(header)
    worker = take_worker()
    try:
        return worker.ask(header, (), doing, timeout)[0]
    finally:
        give_back(worker, reusable=reusable)


def _partition_runs(described: Iterable[Header]) -> list[PartitionRun]:
    return [PartitionRun(**{**each, "primitives": tuple(each["primitives"])}) for each in described]


def _described(source: ModelSource, arrays: list[Array]) -> Header:
    """Describe a source for a worker; large parts go to *arrays*."""
    execution = source.execution
    content = None if source.content is None else np.frombuffer(source.content, np.uint8)
    return {
        "do": "open",
        "path": str(source.path.absolute()),
        "content": _placed(content, arrays),
        "libraries": [str(resolved(library)) for library in source.libraries],
        "provider": execution.provider,
        "options": execution.options,
        "memory_limit": execution.memory_limit,
        "widens": execution.widens,
        "kernels": None if execution.kernels is None else asdict(execution.kernels),
    }


def _placed(feed: Feed, arrays: list[Array]) -> int | list[int] | None:
    """Add a feed to *arrays*, and return its places there."""
    if isinstance(feed, list):
        return [_put(array, arrays) for array in feed]
    return None if feed is None else _put(feed, arrays)


def _put(array: Array, arrays: list[Array]) -> int:
    arrays.append(array)
    return len(arrays) - 1


# The process that runs models for dpl. A crash here is an answer there, and harms nothing else.
#
# It reads messages from a socket, one at a time:
#
# - *open* creates a session in place of the last one;
# - *run* feeds it one set of inputs after another, *time* one some times in a row and answers with
#   the seconds, *profile* with what the library of a target says of each partition;
# - *try* looks for a provider and loads libraries;
# - *list* answers with the providers;
# - *close* forgets the session, and has no answer.
#
# The process ends when dpl does, whatever it is busy with.


_MEGABYTE = 1 << 20
_FAILED = 70


def main(descriptor: int) -> None:
    """Serve until the other side closes the socket, then end at once."""
    try:
        # Leave no core file, keep off standard output, and end when standard input is closed.
        # Standard input is a pipe that nobody writes to. When its writer is gone the kernel sends
        # SIGIO, which ends the process even within a kernel that never returns.
        import fcntl  # noqa: PLC0415  # not on Windows
        import resource  # noqa: PLC0415  # not on Windows

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(2, 1)
        with suppress(AttributeError, OSError):  # not every system can
            fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
            flags = fcntl.fcntl(0, fcntl.F_GETFL)
            fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)
        serve(socket.socket(fileno=descriptor))
    except ClosedError:
        os._exit(0)  # a library that crashes in its clean-up changes no answer
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except BaseException:  # noqa: BLE001  # nobody above can help
        traceback.print_exc()
        os._exit(_FAILED)


def serve(at: socket.socket) -> None:
    """Answer messages, one after another.

    Raises:
        ClosedError: The other side is gone.
    """
    try:
        import_module("dplcli.verify.engines")
    except Exception as error:  # noqa: BLE001  # whatever a broken installation does
        send(at, {"error": "run", "message": f"{type(error).__name__}: {error}"})
        return
    send(at, {"ready": True})
    engine: Engine | None = None
    while True:
        header, arrays = receive(at)
        answer: Header = {}
        given: list[Array] = []
        try:
            match header["do"]:
                case "open":
                    engine = None  # first let go of the one before
                    engine = _open(header, arrays)
                case "try" | "list" | "plan":
                    answer = _answer(header)
                case "run" | "time" | "profile" if engine is not None:
                    answer, given = _run(engine, header, arrays)
                case _:
                    engine = None
                    continue
        except RunError as error:
            kind = "memory" if isinstance(error, ShortageError) else "run"
            answer = {"error": kind, "message": str(error)}
        except DplError as error:
            answer = {"error": "usage", "message": error.wording, "hint": error.advice}
        send(at, answer, given)
        del arrays, given


def _answer(header: Header) -> Header:
    """Look for a provider and load libraries, list what there is, or plan partitions."""
    from dplcli.verify import engines  # noqa: PLC0415  # loads onnxruntime

    if header["do"] == "list":
        return {"providers": engines.providers()}
    if header["do"] == "plan":
        text, partitions = import_module(header["module"]).plan_model(
            Path(header["path"]), header["target"], header["math"]
        )
        return {"text": text, "partitions": [asdict(each) for each in partitions]}
    if header["kernels"] is not None:
        kernels = Kernels(**header["kernels"])
        import_module(kernels.module).check(kernels.target, kernels.math)
    libraries = [Path(name) for name in header["libraries"]]
    execution = Execution(provider=header["provider"], options=_options(header))
    engines.check_provider_and_libraries(libraries, execution)
    return {}


def _options(header: Header) -> tuple[tuple[str, str], ...]:
    return tuple((key, text) for key, text in header["options"])


def _open(header: Header, arrays: Sequence[Array]) -> Engine:
    execution = Execution(
        provider=header["provider"],
        options=_options(header),
        memory_limit=header["memory_limit"],
        widens=header["widens"],
        kernels=None if header["kernels"] is None else Kernels(**header["kernels"]),
    )
    content = header["content"]
    source = ModelSource(
        Path(header["path"]),
        None if content is None else arrays[content].tobytes(),
        tuple(Path(name) for name in header["libraries"]),
        execution,
    )
    if execution.memory_limit is not None:
        # Allow this much private memory beyond what is in use now.
        import resource  # noqa: PLC0415  # not on Windows

        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        taken = next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmData"))
        limit = taken * 1024 + execution.memory_limit * _MEGABYTE
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    return _engine_here(source, header["level"], header["engine"])


def _run(engine: Engine, header: Header, arrays: Sequence[Array]) -> tuple[Header, list[Array]]:
    every: list[dict[str, Feed]] = [
        {
            name: [arrays[each] for each in place]
            if isinstance(place, list)
            else (None if place is None else arrays[place])
            for name, place in places.items()
        }
        for places in header["feeds"]
    ]
    if header["do"] == "time":
        return {"seconds": timed(engine, every[0], header["times"])}, []
    if header["do"] == "profile":
        profile = engine.profile(every[0]) if isinstance(engine, KernelEngine) else []
        return {"profile": [asdict(item) for item in profile]}, []
    given: list[Array] = []
    described: list[str | list[Any]] = []
    for feeds in every:
        try:
            outputs = engine.run(feeds)
        except ShortageError:
            raise
        except RunError as error:
            described.append(str(error))
            continue
        described.append(
            [
                [name, [[leaf.label, leaf.dtype, _put(leaf.data, given)] for leaf in leaves]]
                for name, leaves in outputs.items()
            ]
        )
    answer: Header = {"outputs": described}
    if isinstance(engine, KernelEngine):
        answer["record"] = [asdict(item) for item in engine.record()]
    return answer, given
