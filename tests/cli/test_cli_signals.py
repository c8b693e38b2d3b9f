"""An interrupted run leaves nothing behind, whatever it was doing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dplcli.pipeline import partitioning, writing
from tests.cli.support import ROOT, Dpl, contents

PARTITION = ("partition", "m.onnx", "--target", "dnnl", "-o", "out.onnx", "--json", "r.json")
# Stops where the staged model lies beside its destination, and says so.
IGNORING = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from dplcli.pipeline import writing
from dplcli.cli.main import main
check = writing.check_model
def hang_up(path):
    os.kill(os.getpid(), signal.SIGHUP)
    return check(path)
writing.check_model = hang_up
main()
"""
# As from a terminal, also if the tests themselves run under nohup.
WAITING = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from dplcli.pipeline import writing
def wait(*_, **__):
    print("waiting", flush=True)
    time.sleep(60)
writing.compare = wait
from dplcli.cli.main import main
main()
"""
STEPS = {
    **dict.fromkeys(("load_rules", "select_matches", "outline_matches"), partitioning),
    **dict.fromkeys(("load_model", "check_model", "compare"), writing),
}
"""What each module calls on its way."""


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("step", STEPS)
def test_interrupted_in_any_step(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Ctrl-C: one line, exit 2, and the folder as it was."""
    monkeypatch.setattr(STEPS[step], step, _raise(KeyboardInterrupt()))
    before = contents(folder)

    answer = dpl(*PARTITION)

    assert answer.code == 2
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
def test_debug_adds_the_traceback(dpl: Dpl, monkeypatch: pytest.MonkeyPatch) -> None:
    """``dpl --debug`` shows where it happened, and then the same message."""
    monkeypatch.setattr(writing, "load_model", _raise(ValueError("odd")))

    answer = dpl("--debug", *PARTITION)

    assert answer.code == 2
    assert "Traceback (most recent call last)" in answer.err
    assert "dpl: error: internal error: ValueError: odd" in answer.err


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(folder: Path, number: signal.Signals) -> None:
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

        process.send_signal(number)
        try:
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()

    assert process.returncode not in {0, 1}
    assert "Traceback" not in err
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
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
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
