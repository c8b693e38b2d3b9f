"""Calling dpl in this process, as its console script does."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from dplcli.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Sequence


def exit_code(monkeypatch: pytest.MonkeyPatch, arguments: Sequence[object]) -> int:
    """Run a command and return its exit code.

    A command leaves its memory to the end of the process, which is not here: the garbage collector
    is given back what it had.
    """
    monkeypatch.setattr("sys.argv", ["dpl", *map(str, arguments)])
    try:
        with pytest.raises(SystemExit) as caught:
            main()
    finally:
        gc.unfreeze()
        gc.enable()
    assert isinstance(caught.value.code, int)
    return caught.value.code
