"""All that dpl prints passes here, on its way to standard output and standard error.

Under :func:`guarded` a :class:`Stream` is in the place of both. What anybody writes there, Python's
warnings, tracebacks and the functions of catalogues included, controls no terminal and is no
command of another program. What dpl prints itself comes through the functions below, which know
more: what is one line, and what is a table. Only styles of dpl's own, and its spinner, get past.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from dplcli.errors import shortened
from dplcli.escaping import inert, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from dplcli.report.layout import Part


_REMEMBERED = 64
"""More than the beginning of any command of another program."""


class Stream:
    """A text stream that makes harmless what terminals and programs would obey.

    Args:
        stream: Where they go.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream
        self._line = ""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # as there
        """Be the stream in all else."""
        return getattr(self.unguarded, name)

    def write(self, text: str) -> int:
        """Write *text*, which may be part of a line."""
        self.unguarded.write(inert(text, self._line))
        line = self._line + text if "\n" not in text else text.rpartition("\n")[2]
        self._line = line if len(line) <= _REMEMBERED else f"…{line[-_REMEMBERED:]}"
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write each of *lines*."""
        for line in lines:
            self.write(line)


@contextmanager
def guarded() -> Iterator[None]:
    """Guard standard output and error: nothing that a terminal or a program obeys gets past."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", Stream(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def say(line: str = "", *, err: bool = False) -> None:
    """Print one line, whatever it holds; names of any length lose their middle."""
    write(f"{shortened(one_line(line, None))}\n", err=err)


_EXCERPT = re.compile(r"\n(?= {4})")


def complain(text: str) -> None:
    """Print a message and the indented excerpt below it to standard error.

    Tabs stay in the excerpt, since its last line points at a column of the line above.
    """
    first, *excerpt = _EXCERPT.split(f"dpl: {text}")
    say(first, err=True)
    for line in excerpt:
        write("\t".join(one_line(part, None) for part in line.split("\t")) + "\n", err=True)


def write(text: str, *, err: bool = False) -> None:
    """Print text that has lines of its own, such as a record or a catalogue."""
    stream = sys.stderr if err else sys.stdout
    stream.write(text)
    stream.flush()


def show(report: Part) -> None:
    """Print a report: as wide as the terminal, or with long lines into a pipe."""
    from dplcli.report.layout import lines_of  # noqa: PLC0415  # loads rich

    console = _console(sys.stdout)
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ  # FORCE_COLOR makes no terminal
    width = console.width if has_width else None
    is_ascii = console.options.ascii_only or console.legacy_windows
    with console.capture() as capture:
        for line in lines_of(report, width, is_ascii=is_ascii):
            console.print(line, soft_wrap=True)
    stream = _unguarded(sys.stdout)
    stream.write(capture.get())
    stream.flush()


_PATIENCE = 30.0
"""Seconds after which a log is told what is still being done."""


@contextmanager
def progress(*, quiet: bool, verbose: bool) -> Iterator[Callable[[str], None]]:
    """Show what is going on, and for how long it has been.

    A terminal shows a spinner. In a log there is a line for every half minute that one step takes;
    if verbose, also one when it begins.
    """
    if quiet:
        yield lambda _phrase: None
        return
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    with _spinner() if is_terminal and not verbose else _log(is_verbose=verbose) as begin:
        yield begin


@contextmanager
def _log(*, is_verbose: bool) -> Iterator[Callable[[str], None]]:
    doing, since = "", time.monotonic()
    is_over = threading.Event()

    def begin(phrase: str) -> None:
        nonlocal doing, since
        doing, since = phrase, time.monotonic()
        if is_verbose:
            say(f"dpl: {phrase}", err=True)

    def tell() -> None:
        told = since
        while not is_over.wait(max(told, since) + _PATIENCE - time.monotonic()):
            if (now := time.monotonic()) - max(told, since) >= _PATIENCE:
                told = now
                say(f"dpl: still {doing or 'at work'}, for {now - since:.0f} s now", err=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield begin
    finally:
        is_over.set()
        teller.join()


@contextmanager
def _spinner() -> Iterator[Callable[[str], None]]:
    from rich.progress import (  # noqa: PLC0415  # slow to load
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    bar = Progress(
        SpinnerColumn(style="status.spinner"),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=_console(sys.stderr),
        refresh_per_second=12.5,
        transient=True,
        redirect_stdout=False,  # it would take what others print past the guard
        redirect_stderr=False,
    )
    with bar:
        step = bar.add_task("", total=None)
        yield lambda phrase: bar.reset(step, description=shortened(one_line(phrase, None)))


def _console(stream: TextIO) -> Console:
    """Return the console that adds styles; all its text comes from `dplcli.report.layout`."""
    from rich.console import Console  # noqa: PLC0415  # slow to load

    return Console(file=_unguarded(stream), markup=False, emoji=False, highlight=False)


def _unguarded(stream: TextIO) -> TextIO:
    return stream.unguarded if isinstance(stream, Stream) else stream
