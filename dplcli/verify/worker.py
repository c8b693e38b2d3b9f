"""The process that runs models for dpl: what crashes here is a verdict there.

It reads messages from a socket (see `dplcli.verify.wire`), one at a time: *open* creates a session
in place of the last one, *run* feeds it, *try* looks for a provider and loads libraries, *close*
forgets the session, without an answer. It ends when dpl does, whatever it is busy with.
"""

import os
import socket
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Protocol

from dplcli.errors import UsageError
from dplcli.verify.execution import Execution
from dplcli.verify.values import Array, Feed, Outputs, RunError, ShortageError, Source
from dplcli.verify.wire import OUT_OF_MEMORY, ClosedError, Header, receive, send

_MEGABYTE = 1 << 20
_FAILED = 70


class Engine(Protocol):
    """What can run a model that it was made for."""

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model."""


def main(descriptor: int) -> None:
    """Serve until the other side closes the socket, and leave without farewell."""
    try:
        _prepare()
        serve(socket.socket(fileno=descriptor))
    except ClosedError:
        os._exit(0)  # a library's clean-up is no part of any verdict
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except BaseException:  # noqa: BLE001  # nobody above can help
        traceback.print_exc()
        os._exit(_FAILED)


def _prepare() -> None:
    """Leave no core file, keep off standard output, and end when standard input is closed.

    Standard input is a pipe that nobody writes to. When its writer is gone the kernel sends
    SIGIO, which ends the process even within a kernel that never returns.
    """
    import fcntl  # noqa: PLC0415  # not on Windows
    import resource  # noqa: PLC0415  # not on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(2, 1)
    with suppress(AttributeError, OSError):  # not every system can
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(0, fcntl.F_GETFL)
        fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)


def serve(at: socket.socket) -> None:
    """Answer messages, one after another.

    Raises:
        ClosedError: The other side is gone.
    """
    try:
        from dplcli.verify import ort_session  # noqa: PLC0415  # may fail: that is an answer
    except Exception as error:  # noqa: BLE001  # whatever a broken installation does
        send(at, {"error": "run", "message": f"{type(error).__name__}: {error}"})
        return
    send(at, {"ready": True})
    engine: Engine | None = None
    while True:
        header, arrays = receive(at)
        if header["do"] in {"open", "close"}:
            engine = None
        if header["do"] == "open":
            engine = _answer(at, partial(_open, ort_session, header, arrays))
        elif header["do"] == "try":
            libraries = [Path(name) for name in header["libraries"]]
            _answer(at, partial(ort_session.check_setup, libraries, header["provider"]))
        elif header["do"] == "run" and engine is not None:
            _run(at, engine, header, arrays)
        del arrays


def _answer(at: socket.socket, work: Callable[[], Engine | None]) -> Engine | None:
    """Do *work*, and say that it is done, or why not."""
    try:
        made = work()
    except RunError as error:
        send(at, {"error": _kind_of(error), "message": str(error)})
    except UsageError as error:
        send(at, {"error": "usage", "message": error.message, "hint": error.hint})
    else:
        send(at, {})
        return made
    return None


def _kind_of(error: RunError) -> str:
    return "memory" if isinstance(error, ShortageError) else "run"


def _open(engines: ModuleType, header: Header, arrays: Sequence[Array]) -> Engine:
    execution = Execution(
        provider=header["provider"],
        options=tuple((key, text) for key, text in header["options"]),
        memory_limit=header["memory_limit"],
    )
    content, weights = header["content"], header["weights"]
    source = Source(
        Path(header["path"]),
        None if content is None else arrays[content].tobytes(),
        None if weights is None else {name: arrays[place] for name, place in weights.items()},
        tuple(Path(name) for name in header["libraries"]),
        execution,
    )
    if execution.memory_limit is not None:
        _limit_memory(execution.memory_limit)
    if header["engine"] == "reference":
        from dplcli.verify.reference import ReferenceSession  # noqa: PLC0415  # loads onnx

        return ReferenceSession(source)
    session: Engine = engines.Session(source, header["level"])
    return session


def _limit_memory(megabytes: int) -> None:
    """Allow so much private memory beyond what is taken by now."""
    import resource  # noqa: PLC0415  # not on Windows

    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    taken = next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmData"))
    limit = taken * 1024 + megabytes * _MEGABYTE
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _run(at: socket.socket, engine: Engine, header: Header, arrays: Sequence[Array]) -> None:
    feeds: dict[str, Feed] = {
        name: [arrays[each] for each in place]
        if isinstance(place, list)
        else (None if place is None else arrays[place])
        for name, place in header["feeds"].items()
    }
    try:
        outputs = engine.run(feeds)
        given = [leaf.data for leaves in outputs.values() for leaf in leaves]
        places = iter(range(len(given)))
        described = [
            [name, [[leaf.label, leaf.dtype, next(places)] for leaf in leaves]]
            for name, leaves in outputs.items()
        ]
    except RunError as error:
        send(at, {"error": _kind_of(error), "message": str(error)})
        return
    send(at, {"outputs": described}, given)
