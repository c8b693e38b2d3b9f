"""A runtime that crashes, hangs or takes all memory: a verdict, and nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli.errors import UsageError, VerificationError
from dplcli.verify import Check, Execution
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.run import end_workers
from tests.support.helpers import with_long

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Save = Callable[..., Path]

ROOT = Path(__file__).parents[2]
GCC = shutil.which("gcc")
MODEL = """<ir_version: 8, opset_import: ["" : 17, "harm" : 1]>
g (float[2, 3] x) => (float[2, 3] y) {{ t = Relu (x) y = harm.act <kind = {kind}> (t) }}
<domain: "harm", opset_import: ["" : 17]>
act <kind> (a) => (c) {{ c = Identity (a) }}"""
CONVOLUTION = """<ir_version: 8, opset_import: ["" : 17, "harm" : 1]>
g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y) <float[1, 1, 1, 1] w = {2}>
{ c = Conv (x, w) t = Relu (c) y = harm.act <kind = 1> (t) }
<domain: "harm", opset_import: ["" : 17]>
act <kind> (a) => (c) { c = Identity (a) }"""
COPY, SEGFAULT, HANG, EXIT, ABORT, GREED, SEGFAULT_AT_CREATION, HANG_AT_CREATION = range(8)
STARVE = 8

pytestmark = [
    pytest.mark.skipif(GCC is None, reason="gcc, which compiles the kernel, is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel is compiled as on Linux"),
]


def compiled(path: Path, *options: str) -> Path:
    """Compile the harmful operator."""
    command = [str(GCC), "-std=gnu11", "-shared", "-fPIC", f"-I{ROOT / 'tests' / 'targets'}"]
    command += [*options, str(Path(__file__).with_name("harm.c")), "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def harm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library of the harmful operator."""
    return compiled(tmp_path_factory.mktemp("harm") / "harm.so")


def children(process: int) -> set[int]:
    """Return the processes that *process* started and that are there still, zombies included."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if f"\nPPid:\t{process}\n" in text:
            found.add(int(status.parent.name))
    return found


def ignores(process: int, number: signal.Signals) -> bool:
    """Tell whether a process was started to ignore a signal, as shells start those with ``&``."""
    status = Path(f"/proc/{process}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After each test and the end of the workers there is no child, zombies included."""
    end_workers()
    before = children(os.getpid())
    yield
    end_workers()
    assert children(os.getpid()) - before == set()


OTHER_HARM = {
    "abort": (ABORT, {}, "crashed (SIGABRT) running the candidate at level all, seed 0"),
    "exit": (
        *(EXIT, {}),
        "ended the process (exit code 3) running the candidate at level all, seed 0",
    ),
    "crash at creation": (
        *(SEGFAULT_AT_CREATION, {}),
        "(SIGSEGV) creating a session for the candidate at level all",
    ),
    "hang at creation": (
        *(HANG_AT_CREATION, {"timeout": 1.0}),
        "did not finish within 1 s creating a session for the candidate at level all",
    ),
}


@pytest.mark.parametrize(
    ("kind", "execution", "reason"),
    [
        (SEGFAULT, {}, "crashed (SIGSEGV) running the candidate at level all, seed 0"),
        (HANG, {"timeout": 1.0}, "did not finish within 1 s running the candidate at level all"),
        *with_long(OTHER_HARM, OTHER_HARM),
        (
            GREED,
            {"memory_limit": 200},
            "ran out of memory (limit: 200 MB) running the candidate at level all, seed 0",
        ),
        (
            STARVE,
            {"memory_limit": 200},
            "ran out of memory (limit: 200 MB) running the candidate at level all, seed 0",
        ),
    ],
)
def test_harm_of_the_candidate_is_an_answer(
    save: Save, harm: Path, kind: int, execution: dict[str, float], reason: str
) -> None:
    """Not equivalent, and the reason says what the runtime did, where and when."""
    path = save(MODEL.format(kind=kind))
    limits = Execution(**execution)  # type: ignore[arg-type]

    result = verify_equivalence(path, path, Check(custom_ops=(harm,), execution=limits))

    assert not result.equivalent
    assert reason in result.reasons[1]
    assert "at level disable" in result.reasons[0]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "limit"), [(COPY, 24), (GREED, 1024), (GREED, None)])
def test_what_stays_within_the_limit_passes(
    save: Save, harm: Path, kind: int, limit: int | None
) -> None:
    """The limit counts what the model takes, not what onnxruntime does by itself."""
    path = save(MODEL.format(kind=kind))
    settings = Check(
        custom_ops=(harm,), execution=Execution(memory_limit=limit), seeds=(0,), levels=("all",)
    )

    assert verify_equivalence(path, path, settings).equivalent


@pytest.mark.parametrize(
    ("kind", "timeout", "message"),
    [
        pytest.param(
            *(SEGFAULT, None),
            r"no verdict: onnxruntime crashed \(SIGSEGV\) running the original",
            marks=pytest.mark.long,
        ),
        (HANG, 1.0, "no verdict: onnxruntime did not finish within 1 s running the original"),
    ],
)
def test_harm_of_the_original_is_no_verdict(
    save: Save, harm: Path, kind: int, timeout: float | None, message: str
) -> None:
    """Where the reference itself crashes there is nothing to compare with."""
    model = onnx.load(save(MODEL.format(kind=kind)))
    del model.functions[:]
    path = save(model, "bare")

    with pytest.raises(VerificationError, match=message):
        verify_equivalence(
            path, path, Check(custom_ops=(harm,), execution=Execution(timeout=timeout))
        )


def test_a_library_that_crashes_when_it_is_loaded_is_refused(save: Save, tmp_path: Path) -> None:
    """Before any work, with the library's name."""
    library = compiled(tmp_path / "loaded.so", "-DHARM_WHEN_LOADED")
    path = save(MODEL.format(kind=COPY))

    with pytest.raises(UsageError, match=r"crashed \(SIGSEGV\) loading .*loaded\.so"):
        verify_equivalence(path, path, Check(custom_ops=(library,)))


@contextmanager
def start(folder: Path, *args: object) -> Iterator[subprocess.Popen[str]]:
    """Run dpl in *folder*; a test that gave up does not wait for a kernel that hangs."""
    with subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-m", "dplcli", *map(str, args)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.long
def test_the_command_answers_on_clean_output(save: Save, harm: Path, tmp_path: Path) -> None:
    """Exit code 1 with the reason in the JSON, which a kernel's own prints do not spoil."""
    folder = tmp_path / "empty"
    folder.mkdir()
    codes, records = [], []
    for kind in (COPY, SEGFAULT):
        path = save(MODEL.format(kind=kind), f"kind{kind}")
        with start(folder, "verify", path, path, "--custom-ops", harm, "--json", "-") as process:
            out, err = process.communicate(timeout=60)
        codes.append(process.returncode)
        records.append(json.loads(out))
        assert "Traceback" not in err

    assert codes == [0, 1]
    assert "crashed (SIGSEGV)" in records[1]["reasons"][0]
    assert list(folder.iterdir()) == []  # no core file


def test_a_limit_that_the_original_does_not_keep_is_one_message(save: Save, tmp_path: Path) -> None:
    """Exit code 2, what happened and what helps, and nothing of onnxruntime's own."""
    path = save("g (float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }")
    other = save("g (float[N, 3] x) => (float[N, 3] y) { y = Abs (x) }", "other")
    with start(tmp_path, "verify", path, other, "--memory-limit", 1) as process:
        out, err = process.communicate(timeout=60)

    assert process.returncode == 2
    assert out == ""
    error, hint = err.splitlines()
    assert error.startswith("dpl: error: no verdict: onnxruntime ran out of memory (limit: 1 MB)")
    assert error.endswith("creating a session for the original at level disable")
    assert hint == "dpl: hint: give it more: --memory-limit"


@pytest.mark.long
def test_partition_keeps_nothing_that_crashes(save: Save, harm: Path, tmp_path: Path) -> None:
    """The check of what dpl writes is made in the same way: exit code 1 and no output."""
    folder = tmp_path / "out"
    folder.mkdir()
    path = save(CONVOLUTION)
    args = ("-p", "conv_relu", "-o", folder / "o.onnx", "--custom-ops", harm, "--all-or-nothing")
    with start(folder, "partition", path, *args) as process:
        out, _ = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "onnxruntime crashed (SIGSEGV) running the candidate" in out
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_a_worker_ends_with_dpl(
    save: Save, harm: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C, a time limit of CI, and even SIGKILL take a hanging kernel along."""
    folder = tmp_path / "empty"
    folder.mkdir()
    path = save(MODEL.format(kind=HANG))
    with start(folder, "verify", path, path, "--custom-ops", harm) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "the kernel hangs\n"
        workers = children(process.pid)
        assert workers

        if ignores(process.pid, number):
            pytest.skip("these tests run in the background, where Ctrl-C is ignored")
        process.send_signal(number)
        _, err = process.communicate(timeout=30)

    until = time.monotonic() + 10
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < until, "a worker is left"
        time.sleep(0.05)
    assert "Traceback" not in err
    assert list(folder.iterdir()) == []
