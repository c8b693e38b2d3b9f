"""Run what a page of the documentation shows.

A session is a fenced block marked ``console``. A line ``$ command`` runs in bash (lines that
start with ``> `` continue it); the lines below it are the output, standard error included. All
sessions of a page share one folder, in which ``sample_models/`` lies, and are run in order.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dplcli.cli.main import main
from tests.fuzz.running import forked

ROOT = Path(__file__).parents[1].parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCE = "```"
NOT_RUN = ("pip ", "python -m pip ", "python -m venv ", "python3 -m venv ")
TIMEOUT = 300  # seconds for one command

ALONE = re.compile(r"(?P<words>dpl [^|<>$&;`*?{~#\\\n[]*?)(?: \| head -(?P<most>\d+))?")
"""A command of dpl, of whose output the first lines may be all that is wanted."""

ROUNDING = re.compile(
    r"^(\S+\s+(?:disable|basic|extended|all))(?: \(same level\))?\s[\s\d.e+%-]+(?=ok$)"
)
HEADING = re.compile(r"^output +level +max abs ")
SPREAD = re.compile(r"^(\S+\s+(?:disable|basic|extended|all))\s[\s▁▂▃▄▅▆▇█]+\s[\d,e+-]+$")
NEED = re.compile(r"A run needs about .*?(?:free|\))\.$", re.DOTALL | re.MULTILINE)
WAITING = re.compile(r"(?m)^dpl: still .* s now\n")
LARGEST = re.compile(r"(?ms)^The largest error is .*?\(--verbose shows every\s+output\)\.\n")

Runner = Callable[[str], str]


def replayed(text: str, run: Runner) -> str:
    """Return *text* with the output of each command of its console blocks replaced by *run*'s."""
    lines: list[str] = []
    rest = iter(text.splitlines())
    for line in rest:
        lines.append(line)
        if line.strip() == f"{FENCE}console":
            lines += _replayed_block(_until_fence(rest), run)
            lines.append(FENCE)
    return "\n".join(lines) + "\n"


def _until_fence(lines: Iterator[str]) -> list[str]:
    """Return the lines up to the closing fence, which is consumed."""
    block: list[str] = []
    for line in lines:
        if line.strip() == FENCE:
            return block
        block.append(line)
    pytest.fail("a console block is not closed")


def _replayed_block(block: list[str], run: Runner) -> Iterator[str]:
    """Yield the lines of one console block with real output."""
    while block:
        command, shown, block = _first_command(block)
        yield from command
        script = "\n".join(line[2:] for line in command)
        if script.startswith(NOT_RUN):
            yield from shown
        else:
            yield from tidy(run(script))


def _first_command(block: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Split *block* into its first command, the output shown below that, and the rest."""
    assert block[0].startswith("$ "), f"a console block starts with '$ ', not {block[0]!r}"
    end = 1
    while end < len(block) and block[end].startswith("> "):
        end += 1
    following = end
    while following < len(block) and not block[following].startswith("$ "):
        following += 1
    return block[:end], block[end:following], block[following:]


def tidy(output: str) -> list[str]:
    """Return the lines of *output* without trailing white space or empty lines at the end."""
    return [line.rstrip() for line in output.rstrip().splitlines()]


class Shell:
    """Runs commands as a reader of a page would, in *folder*; ``$?`` carries over."""

    def __init__(self, folder: Path) -> None:
        """Lay out *folder* and find the ``dpl`` that belongs to this interpreter."""
        self.folder = folder / "work"
        self.folder.mkdir()
        shutil.copytree(ROOT / "sample_models", self.folder / "sample_models")
        scripts = Path(sysconfig.get_path("scripts"))
        if shutil.which("dpl", path=str(scripts)) is None:
            scripts = _script_for_the_source_tree(folder)
        path = os.pathsep.join([str(scripts), str(Path(sys.executable).parent), os.environ["PATH"]])
        fixed = {"COLUMNS": "100", "LINES": "50", "NO_COLOR": "1", "TERM": "dumb", "PATH": path}
        self.environment = os.environ | fixed
        for name in ("FORCE_COLOR", "PYTHONPATH", "PYTHONWARNINGS"):
            self.environment.pop(name, None)
        self.status = 0

    def __call__(self, command: str) -> str:
        """Return what *command* writes to standard output and standard error.

        A command of dpl alone is run in a fork: half of its time is what it imports.
        """
        if (alone := ALONE.fullmatch(command)) and sys.platform.startswith("linux"):
            end = forked(partial(self._dpl, shlex.split(alone["words"])), TIMEOUT)
            self.status = 0 if alone["most"] else end.code
            return "\n".join(end.said.split("\n")[: int(alone["most"] or sys.maxsize)])
        done = subprocess.run(  # noqa: S603  # the pages are ours
            [shutil.which("bash") or "bash", "-c", f"(exit {self.status})\n{command}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=TIMEOUT,
            check=False,
        )
        self.status = done.returncode
        return done.stdout

    def _dpl(self, words: list[str]) -> None:
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        sys.argv = words
        main()


def _script_for_the_source_tree(folder: Path) -> Path:
    """Return a folder with a ``dpl`` that runs this checkout, for when none is installed."""
    scripts = folder / "bin"
    scripts.mkdir()
    dpl = scripts / "dpl"
    dpl.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m dplcli "$@"\n')
    dpl.chmod(0o755)
    return scripts


def without_rounding(text: str) -> list[str]:
    """Return the lines of *text*, differences from rounding alone made equal.

    How far two sums of the same terms are apart depends on the processor; that the verdict is
    ``ok`` does not. Nor does how wide a column is that holds it, or which level it is taken at.
    Some add them up to the same bits: then nothing is said of it. Memory that is free is another
    each time, and slow machines say what they are still at.
    """
    lines = tidy(NEED.sub("A run needs …", LARGEST.sub("", WAITING.sub("", text))))
    lines = [SPREAD.sub(r"\1 …", ROUNDING.sub(r"\1 …", line)) for line in lines]
    return [" ".join(line.split()) if HEADING.match(line) else line for line in lines]


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of *page* in *language*."""
    parts = page.read_text(encoding="utf-8").split(f"{FENCE}{language}\n")[1:]
    return [part.partition(FENCE)[0] for part in parts]
