"""Calling dpl in this process, as its console script does in one of its own."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from dplcli.cli.main import dpl, run

if TYPE_CHECKING:
    from collections.abc import Sequence


def exit_code(monkeypatch: pytest.MonkeyPatch, arguments: Sequence[object]) -> int:
    """Run a command and return its exit code.

    Afterwards signals do what they did. The garbage collector goes on: a console script would leave
    its memory to the end of the process, which is not here.
    """
    monkeypatch.setattr("sys.argv", ["dpl", *map(str, arguments)])
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    handlers = [signal.getsignal(number) for number in numbers]
    monkeypatch.setattr("sys.unraisablehook", sys.unraisablehook)
    try:
        with pytest.raises(SystemExit) as caught:
            run(dpl)
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
    assert isinstance(caught.value.code, int)
    return caught.value.code
