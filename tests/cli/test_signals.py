"""An interrupted run leaves nothing behind, whatever it was doing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dplcli.pipeline import partitioning, writing
from tests.cli.support import ROOT, Dpl, contents
from tests.support.helpers import one_in

PARTITION = ("partition", "m.onnx", "--target", "dnnl", "-o", "out.onnx", "--json", "r.json")
# Stops where the staged model lies beside its destination, and says so.
IGNORING = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from dplcli.pipeline import writing
from dplcli.cli.main import main
check = writing.check_model
def hang_up(path, **rest):
    os.kill(os.getpid(), signal.SIGHUP)
    return check(path, **rest)
writing.check_model = hang_up
main()
"""
# As from a terminal, also if the tests themselves run under nohup or in the background.
WAITING = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from dplcli.pipeline import writing
def wait(*_, **__):
    print("waiting", flush=True)
    time.sleep(60)
writing.compare = wait
from dplcli.cli.main import main
main()
"""
ASKED_TO_END = """
import os, signal, sys, time
from dplcli import files
from dplcli.cli.main import main
made, count = files._made, int(sys.argv.pop(1))
def made_then(*arguments):
    global count
    path = made(*arguments)
    count -= 1
    if count == 0:
        for number in (signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
    return path
files._made = made_then
main()
"""
IN_A_CALLBACK = """
import os, signal, time, weakref
from dplcli.pipeline import writing
from dplcli.cli.main import main
class Object:
    pass
def end(_):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
def wait(*_, **__):
    here = Object()
    reference = weakref.ref(here, end)
    del here
    time.sleep(50)
writing.compare = wait
main()
"""
IN_AN_IMPORT = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, str(Path("module").resolve()))
from dplcli.pipeline import writing
from dplcli.cli.main import main
def load(*_, **__):
    import slow
    Path("../imported").write_text("")
    __import__("time").sleep(50)
writing.compare = load
main()
"""
SLOW = """
import os, signal, time
from pathlib import Path
os.kill(os.getpid(), signal.SIGTERM)
while %s:
    time.sleep(0.01)
Path("../done").write_text("")
"""
WRITING = {
    "partition": (PARTITION, 3),
    "rewrite": (("rewrite", "m.onnx", "-p", "prepare", "--plan", "p.plan", "-o", "o.onnx"), 2),
    "verify": (
        ("verify", "m.onnx", "m.onnx", "--save-inputs", "i.npz", "--save-results", "r.npz"),
        2,
    ),
    "html": (("partition", "m.onnx", "-p", "conv_relu", "--html", "r.html", "-o", "o.onnx"), 2),
    "learn": (("learn", "m.onnx", "--nodes", "Conv_0", "-o", "rule.yaml"), 1),
}
"""Commands, and how many temporary files each makes at least."""
STEPS = {
    **dict.fromkeys(("load_rules", "select_matches", "outline_matches"), partitioning),
    **dict.fromkeys(("load_model", "staged", "check_model", "compare"), writing),
}
"""What each module calls on its way."""


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("step", STEPS)
def test_interrupted_in_any_step(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Ctrl-C: one line, exit 130, and the folder as it was."""
    monkeypatch.setattr(STEPS[step], step, _raise(KeyboardInterrupt()))
    before = contents(folder)

    answer = dpl(*PARTITION)

    assert answer.code == 130
    assert "interrupted" in answer.message
    assert contents(folder) == before


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", [MemoryError(), RecursionError("deep"), OSError(28, "full")])
def test_a_failure_in_any_step(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    """What nobody foresaw is one line, exit 2, no traceback, and the folder as it was."""
    monkeypatch.setattr(STEPS[step], step, _raise(error))
    before = contents(folder)

    answer = dpl(*PARTITION)

    assert answer.code == 2
    assert answer.message
    assert "Traceback" not in answer.err
    assert contents(folder) == before


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("step", STEPS)
def test_want_of_memory_is_no_fault_of_dpl(
    dpl: Dpl, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Nobody is told to report it."""
    monkeypatch.setattr(STEPS[step], step, _raise(MemoryError("Unable to allocate 481. MiB")))

    answer = dpl(*PARTITION)

    assert answer.code == 2
    assert answer.message == "out of memory"


@pytest.mark.usefixtures("model")
def test_debug_adds_the_traceback(dpl: Dpl, monkeypatch: pytest.MonkeyPatch) -> None:
    """``dpl --debug`` shows where it happened, and then the same message."""
    monkeypatch.setattr(writing, "load_model", _raise(ValueError("odd")))

    answer = dpl("--debug", *PARTITION)

    assert answer.code == 2
    assert "Traceback (most recent call last)" in answer.err
    assert "dpl: error: internal error: ValueError: odd" in answer.err


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("name", one_in(3, ["SIGTERM", "SIGINT", "SIGHUP"]))
def test_a_signal_leaves_nothing_behind(folder: Path, name: str) -> None:
    """Ctrl-C, a time limit of CI, a closed terminal: the staged model is taken away."""
    before = contents(folder)
    with subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-c", WAITING, *PARTITION],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"

        process.send_signal(signal.Signals[name])
        try:
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()

    assert process.returncode not in {0, 1}
    assert "Traceback" not in err
    assert contents(folder) == before


@pytest.mark.usefixtures("model")
@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "number"),
    [(name, number) for name, (_, most) in WRITING.items() for number in range(1, most + 1)],
)
def test_two_signals_right_after_a_temporary_file_was_made(
    folder: Path, command: str, number: int
) -> None:
    """Between two statements of ours, and again while we take away what there is."""
    process = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", ASKED_TO_END, str(number), *WRITING[command][0]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (process.returncode, process.stderr.count("\n")) == (2, 1), process.stderr
    assert "dpl: error: interrupted; no file is left half-written" in process.stderr
    assert not [name for name in contents(folder) if ".dpl-" in name]


@pytest.mark.usefixtures("model")
def test_a_signal_within_a_callback_is_not_lost(folder: Path) -> None:
    """Python raises nothing from there: what calls back goes on, and we stop a little later."""
    before = contents(folder)
    process = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", IN_A_CALLBACK, *PARTITION],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )

    assert process.returncode == 2
    assert process.stderr == "dpl: error: interrupted; no file is left half-written\n"
    assert contents(folder) == before


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("ends", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_signal_within_an_import_lets_it_end(
    folder: Path,
    ends: bool,  # noqa: FBT001
) -> None:
    """Libraries in C++ abort where their import fails; one that never ends is stopped, too."""
    (folder / "module").mkdir()
    waiting = "time.monotonic() < start" if ends else "True"
    text = SLOW % waiting
    text = text.replace("import os,", "import time; start = time.monotonic() + 0.2\nimport os,")
    (folder / "module" / "slow.py").write_text(text, encoding="utf-8")
    before = contents(folder)
    process = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", IN_AN_IMPORT, *PARTITION],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )

    assert process.returncode == 2
    assert process.stderr == "dpl: error: interrupted; no file is left half-written\n"
    assert contents(folder) == before
    assert (folder.parent / "done").exists() == ends


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", one_in(3, WRITING))
def test_a_full_disk_leaves_nothing_behind(folder: Path, command: str) -> None:
    """No file may grow beyond 100 bytes: one message, and the folder as it was."""
    before = contents(folder)
    limited = "import resource, dplcli.cli.main as m\n"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); m.main()"
    process = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", limited, *WRITING[command][0]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert process.returncode == 2
    assert "File too large" in process.stderr
    assert "internal error" not in process.stderr
    assert contents(folder) == before


@pytest.mark.usefixtures("model")
def test_a_signal_that_is_ignored_stays_ignored(folder: Path) -> None:
    """Under nohup a closed terminal does not stop the work."""
    process = subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-c", IGNORING, "partition", "m.onnx", "-p", "conv_relu"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, "")
    assert (folder / "m.partitioned.onnx").is_file()


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("closed", one_in(4, ["<&- >&- 2>&-", "<&-", ">&-", "2>&-"]))
def test_closed_streams_change_no_verdict(folder: Path, closed: str) -> None:
    """Some services start programs without them: what is printed goes nowhere, that is all."""
    command = [sys.executable, "-c", "from dplcli.cli.main import main; main()", "verify"]
    options = ["m.onnx", "m.onnx", "--save-results", "r.npz"]
    process = subprocess.run(  # noqa: S603  # our own program
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (process.returncode, process.stderr) == (0, "")
    assert (folder / "r.npz").is_file()


def _raise(error: BaseException) -> object:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


INTERRUPTED = """
import os, runpy, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, getattr(signal, sys.argv[1]))
sys.meta_path.insert(0, Finder())
sys.argv = ["dpl", "--version"]
runpy.run_module("dplcli", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("handler", "code"), [("default_int_handler", -signal.SIGINT), ("SIG_IGN", 0)]
)
def test_ctrl_c_before_dpl_is_there(handler: str, code: int) -> None:
    """It ends without a traceback, unless the one who started it had that signal ignored."""
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", INTERRUPTED, handler],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code
    assert done.stderr == ""
