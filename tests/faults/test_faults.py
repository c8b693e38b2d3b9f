"""What goes wrong outside: processes that are killed, full disks, folders, two runs at once.

A file is there whole or not at all, whatever command writes it, and the next run is undisturbed.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from dplcli import files
from dplcli.cli.main import main
from tests.cli.support import SAMPLES, contents
from tests.fuzz.running import End, dpl, forked, warm_up
from tests.support.helpers import thinned

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it forks")

WRITING = {
    "partition": ("partition", "m.onnx", "--target", "dnnl", "--no-verify", "-o", "o.onnx"),
    "partition-verified": ("partition", "m.onnx", "-p", "conv_relu", "-o", "o.onnx"),
    "partition-reports": (
        *("partition", "m.onnx", "-p", "conv_relu", "--no-verify", "-o", "o.onnx"),
        *("--json", "o.json", "--html", "o.html"),
    ),
    "rewrite": ("rewrite", "m.onnx", "-p", "prepare", "--no-verify", "-o", "o.onnx"),
    "rewrite-plan": (
        *("rewrite", "m.onnx", "-p", "prepare", "--no-verify", "-o", "o.onnx"),
        *("--plan", "o.plan"),
    ),
    "inline": ("inline", "p.onnx", "--no-verify", "-o", "o.onnx"),
    "apply": ("apply", "m.plan", "m.onnx", "--no-verify", "-o", "o.onnx"),
    "learn": ("learn", "m.onnx", "--nodes", "Conv_0", "-o", "o.yaml"),
    "view": ("view", "m.onnx", "-o", "o.html"),
    "verify": ("verify", "m.onnx", "m.onnx", "--save-inputs", "o.npz"),
}
"""A command for each way to write; what it writes is called o."""


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    warm_up()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the commands read."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copy(SAMPLES / "residual_block.onnx", folder / "m.onnx")
    ready = (
        ("partition", "m.onnx", "-p", "conv_relu", "--no-verify", "-o", "p.onnx"),
        ("rewrite", "m.onnx", "-p", "prepare", "--no-verify", "-o", "r.onnx", "--plan", "m.plan"),
    )
    for command in ready:
        end = dpl(folder, *command)
        assert end.code == 0, end.said
    (folder / "r.onnx").unlink()
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path) -> Path:
    """Return a folder of the test's own with what the commands read."""
    shutil.copytree(made, tmp_path / "here")
    return tmp_path / "here"


def results(folder: Path) -> dict[str, bytes]:
    """Return what a command wrote."""
    return {name: data for name, data in contents(folder).items() if name.startswith("o.")}


def ended_at(folder: Path, how: int, number: int, command: tuple[str, ...]) -> End:
    """Run a command that gets a signal once it has made so many files that are to stay or not."""

    def act() -> None:
        made, count = files._made, 0  # noqa: SLF001  # all go through it

        def made_then(*arguments: object) -> Path:
            nonlocal count
            path = made(*arguments)  # type: ignore[arg-type]  # passed through
            count += 1
            if count == number:
                os.kill(os.getpid(), how)
                time.sleep(0.05)
            return path

        files._made = made_then  # type: ignore[assignment]  # noqa: SLF001
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(folder)
        sys.argv = ["dpl", *command]
        main()

    return forked(act)


def let_go(path: Path) -> None:
    """Wait until a fork that asked onnx for a killed process has ended, too: it holds its locks."""
    late = time.monotonic() + 60
    while (descriptor := files._locked(path)) is None:  # noqa: SLF001  # as dpl asks
        assert time.monotonic() < late
        time.sleep(0.02)
    os.close(descriptor)


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(3, WRITING))
def test_killed_outright(here: Path, name: str) -> None:
    """What is there is whole, and the next run takes away what the killed one left."""
    command = WRITING[name]
    assert dpl(here, *command).code == 0
    whole = results(here)
    assert whole
    for number in range(1, 4):
        for path in here.glob("o.*"):
            path.unlink()
        end = ended_at(here, signal.SIGKILL, number, command)
        assert end.code in {0, -signal.SIGKILL}
        left = results(here)
        assert left.keys() <= whole.keys()
        if name != "verify":  # an archive holds the time
            assert all(whole[part] == data for part, data in left.items())
        for path in here.glob(".dpl-*"):
            let_go(path)
            os.utime(path, (0, 0))
        for path in here.glob("o.*"):
            path.unlink()
        again = dpl(here, *command)
        assert again.code == 0, again.said
        assert results(here).keys() == whole.keys()
        assert not [*here.glob(".dpl-*")]


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(3, WRITING, first=1))
def test_asked_to_end(here: Path, name: str) -> None:
    """One line, exit code 2, and the folder as it was but for what was finished before."""
    before = contents(here)
    end = ended_at(here, signal.SIGTERM, 1, WRITING[name])
    assert end.code == 2, end.said
    assert "interrupted" in end.said
    assert contents(here) == before


@pytest.mark.parametrize("name", WRITING)
def test_a_disk_that_is_full(here: Path, name: str) -> None:
    """No file may be longer than a few bytes: a message that says which, and nothing is left."""
    before = contents(here)

    def act() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        os.chdir(here)
        sys.argv = ["dpl", *WRITING[name]]
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # no file
        main()

    assert forked(act).code == 2
    assert contents(here) == before


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(3, WRITING, first=2))
def test_a_folder_that_takes_no_files(here: Path, name: str) -> None:
    """A message that names the file; the system folder refuses everybody."""
    words = [f"/sys/{word}" if word.startswith("o.") else word for word in WRITING[name]]
    before = contents(here)
    end = dpl(here, *words)
    assert end.code == 2, end.said
    assert "/sys" in end.said
    assert "internal error" not in end.said
    assert contents(here) == before


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(3, WRITING, first=1))
def test_two_runs_on_one_output(here: Path, name: str) -> None:
    """Both end well, and what is there afterwards is what either writes.

    Only learn replaces nothing: the second one says so.
    """
    command = WRITING[name]
    assert dpl(here, *command).code == 0
    whole = results(here)
    for path in here.glob("o.*"):
        path.unlink()
    children = []
    for _ in range(2):
        child = os.fork()
        if not child:
            code = 70
            try:
                code = dpl(here, *command).code
            finally:
                os._exit(code)
        children.append(child)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    assert codes in ([0, 0], [0, 2] if name == "learn" else [0, 0])
    assert results(here).keys() == whole.keys()
    if name != "verify":
        assert results(here) == whole
    assert not [*here.glob(".dpl-*")]
