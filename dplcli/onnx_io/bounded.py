"""onnx's C++ on whole models: in a process of its own, with a budget of time and memory.

onnx trusts a file. It takes for granted that a node has the inputs that its operator needs, reads
beyond the end of a vector where it has not, and the process ends without a word. It makes a message
for each element of what it takes for a shape, so eight bytes can ask for all memory. And it holds
Python's lock, so neither a signal nor a timer stops it. Therefore a fork of this process asks it,
and we wait for what that says. A fork costs some milliseconds; a new process would cost as much as
the whole command.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LEAST_MEMORY = 512 << 20
_MEMORY_PER_BYTE = 64
_LEAST_SECONDS = 5
_SECONDS_PER_BYTE = 1e-6
_MOST_SECONDS = 600
_SLOWEST = 20
"""How much longer than its seconds of processor a fork may take: a machine may be busy."""

_MEGABYTE = 1 << 20

_ANSWERED, _RAISED, _OUT_OF_MEMORY = b"a", b"r", b"m"
"""How the fork begins what it says."""

_ENDING = (
    *("SIGINT", "SIGTERM", "SIGHUP", "SIGABRT", "SIGSEGV"),
    *("SIGBUS", "SIGFPE", "SIGXCPU", "SIGALRM"),
)
"""What ends a fork at once, whatever dpl does on it."""


_IS_OURS = ContextVar("is_ours", default=False)


@contextmanager
def made_by_dpl() -> Iterator[None]:
    """Ask onnx in this process: what it is asked about was made up by dpl, and is no stranger's.

    A rule is tried on dozens of graphs; a fork for each would cost more than the trials.
    """
    token = _IS_OURS.set(True)
    try:
        yield
    finally:
        _IS_OURS.reset(token)


class GivenUpError(RuntimeError):
    """onnx came to no answer; the message is a clause that says why: ``after 5 s``."""


def bounded(work: Callable[[], bytes], size: int) -> bytes:
    """Do *work*, which asks onnx, in a fork; only Linux can do that, elsewhere nothing is limited.

    Args:
        work: Computes an answer. What else it changes is lost.
        size: The bytes of what it looks at: the budget grows with them.

    Raises:
        GivenUpError: It took too long or too much memory, or it crashed.
        RuntimeError: It raised something, which is in the message.
    """
    if _IS_OURS.get() or not sys.platform.startswith("linux"):
        return _here(work, size)
    reading, writing = os.pipe()
    try:
        child = _fork()
    except OSError:  # there is no room for another process
        os.close(reading)
        os.close(writing)
        return _here(work, size)
    if not child:
        os.close(reading)  # or it would wait for ever to be read, should its parent be killed
        _answer(work, size, writing)
    os.close(writing)
    try:
        with open(reading, "rb") as answer:  # noqa: PTH123  # a descriptor has no path
            kind, said = answer.read(1), answer.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if kind == _ANSWERED and not status:
        return said
    if kind == _RAISED:
        raise RuntimeError(said.decode("utf-8", "replace"))
    raise GivenUpError(_cause(kind, status, size))


def _here(work: Callable[[], bytes], size: int) -> bytes:
    """Do *work* in this process; what it raises comes as it would from a fork."""
    try:
        return _limited(work, size)
    except GivenUpError:
        raise
    except Exception as error:
        raise RuntimeError(str(error)) from error


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns where there are threads. The fork uses no lock that one of them may hold,
        # but those of the C library, which sees to that itself.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _answer(work: Callable[[], bytes], size: int, to: int) -> None:
    """Write what *work* answers, and end; nothing that the parent has set up happens here."""
    said = _RAISED
    try:
        gc.disable()
        for name in _ENDING:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # C++ says in its own words why it ends
        _limit_time(size)
        try:
            said = _ANSWERED + _limited(work, size)
        except GivenUpError:
            said = _OUT_OF_MEMORY
        with open(to, "wb") as answer:
            answer.write(said)
    except Exception as error:  # noqa: BLE001  # the parent raises it
        with suppress(OSError):
            os.write(to, _RAISED + str(error).encode("utf-8", "replace"))
    finally:
        os._exit(0)


def _limited(work: Callable[[], bytes], size: int) -> bytes:
    try:
        with limited_memory(size):
            return work()
    except MemoryError:
        raise GivenUpError(_cause(_OUT_OF_MEMORY, 0, size)) from None


def _cause(kind: bytes, status: int, size: int) -> str:
    if kind == _OUT_OF_MEMORY:
        return f"at {(_LEAST_MEMORY + _MEMORY_PER_BYTE * size) // _MEGABYTE} MB"
    limits = {-signal.SIGXCPU: _seconds(size), -signal.SIGALRM: _SLOWEST * _seconds(size)}
    if status in limits:
        return f"after {limits[status]} s"
    with suppress(ValueError):
        return f"as onnx crashed ({signal.Signals(-status).name})"
    return "as onnx ended the process"


def _seconds(size: int) -> int:
    return min(int(_LEAST_SECONDS + _SECONDS_PER_BYTE * size), _MOST_SECONDS)


def _limit_time(size: int) -> None:
    import resource  # noqa: PLC0415  # not on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard == resource.RLIM_INFINITY or hard > _seconds(size):
        resource.setrlimit(resource.RLIMIT_CPU, (_seconds(size), hard))
    signal.alarm(_SLOWEST * _seconds(size))  # waiting, as for a lock of the parent, takes no CPU


@contextmanager
def limited_memory(size: int) -> Iterator[None]:
    """Limit memory: C++ raises MemoryError if it takes far more than *size* bytes need.

    Only Linux can do that; elsewhere nothing is limited.
    """
    used = _address_space()
    if used is None:
        yield
        return
    import resource  # noqa: PLC0415  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + _LEAST_MEMORY + _MEMORY_PER_BYTE * size
    if soft != resource.RLIM_INFINITY and soft <= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    """Return how many bytes of addresses this process has; None if the system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
