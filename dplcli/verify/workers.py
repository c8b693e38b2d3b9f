"""Processes that run models for us: started, reused, limited, and always taken away again.

A worker runs one model at a time. One that only ever ran plain models, on the CPU and without
libraries or a memory limit, is used again for the next session, so onnxruntime is loaded once.
Workers are children in process groups of their own: Ctrl-C reaches dpl, and dpl ends them. They
end by themselves when dpl is killed.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from dplcli.errors import UsageError, VerificationError
from dplcli.verify.values import Array, RunError, ShortageError, StoppedError
from dplcli.verify.wire import OUT_OF_MEMORY, ClosedError, Header, receive, send

_START = "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
_START += "from dplcli.verify.worker import main; main(int(sys.argv[1]))"
_STARTING = 120.0
_GRACE = 2.0
_MOST_IDLE = 2

IS_POSSIBLE = hasattr(socket, "send_fds") and sys.platform != "win32"
"""Whether this system lets us pass memory between processes."""


class Worker:
    """A process that waits for messages; not safe for threads."""

    def __init__(self) -> None:
        """Start the process, and do not wait for it."""
        self._socket, theirs = socket.socketpair()
        self._is_ready = False
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, "-P", "-c", _START, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        said = self._process.stderr
        self._relay = threading.Thread(target=_pass_on, args=(said,), daemon=True)
        self._relay.start()

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

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
                f"did not finish within {timeout:g} s", doing, hint="give it more: --timeout 7200"
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
        self._socket.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
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
        """Say how the process ended, which it did or is about to do."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        code = self._process.poll()
        self.kill()
        if code is None:
            return "went silent", None
        if code == OUT_OF_MEMORY:
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


def _pass_on(said: IO[bytes]) -> None:
    """Print what a worker, and libraries in it, say: on our standard error, whatever that is now.

    They do not write there themselves: a message that quotes a model must not reach a terminal.
    """
    with said:
        for line in said:
            with suppress(AttributeError, OSError, ValueError):  # nobody listens any more
                sys.stderr.writelines([line.decode("utf-8", "backslashreplace")])


class _Pool:
    """Workers that wait for their next model.

    Workers come back when the garbage collector finds that nobody holds a session any more, which
    can be at any time: while this very thread is inside one of the methods, too. So whoever gives
    one back waits for nobody; what cannot be settled at once is settled by the next call.
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
        with self._lock:
            self._settle()
            while self._idle and not self._idle[-1].is_alive:
                self._idle.pop().kill()
            worker = self._idle.pop() if self._idle else Worker()
            self._busy.add(worker)
            return worker

    def give(self, worker: Worker, *, reusable: bool) -> None:
        self._returned.append((worker, reusable))
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Let others have what was given back, or end it."""
        self._forget_in_a_fork()
        while self._returned:
            worker, reusable = self._returned.popleft()
            if worker not in self._busy:
                continue
            self._busy.discard(worker)
            if reusable and worker.is_alive and len(self._idle) < _MOST_IDLE:
                worker.tell({"do": "close"})
                self._idle.append(worker)
            else:
                worker.kill()

    def clear(self) -> None:
        if os.getpid() != self._owner:
            return
        for worker in [*self._idle, *self._busy]:
            worker.kill()
        self._idle.clear()
        self._busy.clear()

    def _forget_in_a_fork(self) -> None:
        """Leave the parent's workers to the parent."""
        if os.getpid() != self._owner:
            self._returned.clear()
            self._idle, self._busy, self._owner = [], set(), os.getpid()


_POOL = _Pool()


def warm_up() -> None:
    """Start a worker that will be needed soon, while we do something else."""
    if IS_POSSIBLE:
        _POOL.warm_up()


def take_worker() -> Worker:
    """Return a worker that runs nothing else."""
    return _POOL.take()


def give_back(worker: Worker, *, reusable: bool) -> None:
    """Let others have *worker*, or end it."""
    _POOL.give(worker, reusable=reusable)


def end_workers() -> None:
    """End every worker, as at the end of the program."""
    _POOL.clear()


def try_in_worker(libraries: Sequence[Path], provider: str, timeout: float | None) -> None:
    """Look for a provider, and load custom operators, where it does no harm.

    Raises:
        UsageError: onnxruntime does not have the provider; a file is no library, or one without
            ``RegisterCustomOps``, or loading it crashes.
    """
    worker = take_worker()
    doing = f"loading {', '.join(map(str, libraries))}"
    names = [str(library.resolve()) for library in libraries]
    try:
        worker.ask({"do": "try", "libraries": names, "provider": provider}, (), doing, timeout)
    except StoppedError as error:
        raise UsageError(f"--custom-ops: {error.message}") from error
    finally:
        give_back(worker, reusable=False)
