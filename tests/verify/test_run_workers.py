"""What goes between dpl and its workers arrives as it was, and a worker is used again."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from dplcli.errors import UsageError, VerificationError
from dplcli.verify import Check, Execution, run
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.run import ClosedError, Runner, receive, send
from dplcli.verify.values import Feed, ModelSource, Outputs, RunError, StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable

    Save = Callable[..., Path]

ROOT = Path(__file__).parents[2]
NET = """g (float[N, 3] x) => (float[N, 2] y)
<float[3, 2] w = {0.5, -1.25, 2, 0.75, -0.3, 1}>
{ t = MatMul (x, w) y = Relu (t) }"""


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.arange(6, dtype=np.float32).reshape(2, 3), id="float32"),
        pytest.param(np.arange(12, dtype=np.int64).reshape(3, 4).T[::2], id="strided"),
        pytest.param(np.array(2.5), id="scalar"),
        pytest.param(np.empty((0, 3), np.float32), id="empty"),
        pytest.param(np.array([True, False]), id="bool"),
        pytest.param(np.array([1 + 2j], np.complex64), id="complex"),
        pytest.param(np.array([["a", "ü\n"], ["", "x\0y"]], dtype=object), id="strings"),
        pytest.param(np.array([], dtype=object), id="no-strings"),
        pytest.param(np.array([1, -2.5], ml_dtypes.bfloat16), id="bfloat16"),
        pytest.param(np.array([[1, -2]], ml_dtypes.float8_e4m3fn), id="float8"),
        pytest.param(np.array([[1, -2]], ml_dtypes.float8_e5m2), id="float8-that-looks-built-in"),
        pytest.param(np.array([1, -2, 3], ml_dtypes.int4), id="int4"),
    ],
)
def test_arrays_arrive_as_they_were(
    values: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
) -> None:
    """Shape, type and every element, beside others in the same message."""
    here, there = socket.socketpair()
    with here, there:
        send(here, {"do": "x"}, [np.ones(3, np.int8), values])
        header, (first, found) = receive(there)

    assert header == {"do": "x"}
    assert first.tolist() == [1, 1, 1]
    assert (found.shape, found.dtype) == (values.shape, values.dtype)
    assert found.tolist() == values.tolist()


def test_a_large_message_arrives_in_parts() -> None:
    """A header beyond what a socket takes at once; the sender must not wait for ever."""
    words = np.array(["word"] * 100_000, dtype=object)
    here, there = socket.socketpair()
    child = os.fork() if hasattr(os, "fork") else pytest.skip("needs fork")
    if child == 0:
        there.close()  # or it would wait for ever to be read
        try:
            send(here, {"long": "x" * 3_000_000}, [words])
        finally:
            os._exit(0)
    here.close()
    with there:
        header, (found,) = receive(there, time.monotonic() + 60)
    os.waitpid(child, 0)

    assert len(header["long"]) == 3_000_000
    assert found.size == 100_000


def test_silence_and_absence_are_told_apart() -> None:
    """Nothing in time is a TimeoutError, a closed socket a ClosedError, on both sides."""
    here, there = socket.socketpair()
    with there:
        with pytest.raises(TimeoutError):
            receive(there, deadline=0)
        here.close()
        with pytest.raises(ClosedError):
            receive(there)
        with pytest.raises(ClosedError):
            send(there, {})


def test_outputs_may_be_written_to(save: Save) -> None:
    """What a worker gives belongs to the caller, as if it had run here."""
    runner = Runner(ModelSource(save(NET)), "disable")
    (leaf,) = runner.run({"x": np.ones((2, 3), np.float32)})["y"]

    leaf.data[...] = 0

    assert not leaf.data.any()


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        pytest.param(
            "g (float[2] x) => (bfloat16[2] y) { y = Cast <to = 16> (x) }",
            {"x": np.array([1.5, -2], np.float32)},
            id="bfloat16-out",
        ),
        pytest.param(
            "g (bfloat16[2] x) => (float[2] y) { y = Cast <to = 1> (x) }",
            {"x": np.array([1.5, -2], ml_dtypes.bfloat16)},
            id="bfloat16-in",
        ),
        pytest.param(
            "g (string[2] x) => (string[2] y) { y = Identity (x) }",
            {"x": np.array(["a", "ü"], dtype=object)},
            id="strings",
        ),
        pytest.param(
            "g (seq(float[2]) x) => (seq(float[2]) y) { y = Identity (x) }",
            {"x": [np.zeros(2, np.float32), np.ones(2, np.float32)]},
            id="sequence",
        ),
        pytest.param(
            "g (optional(float[2]) x) => (bool y) { y = OptionalHasElement (x) }",
            {"x": None},
            id="absent-optional",
        ),
    ],
)
def test_a_worker_gives_what_we_would(save: Save, text: str, feeds: dict[str, Feed]) -> None:
    """Every kind of value goes there and comes back as if the model had run here."""
    path = save('<ir_version: 9, opset_import: ["" : 19]>' + text)
    (here,), (there,) = (
        Runner(ModelSource(path, execution=Execution(isolated=isolated)), "all").run(feeds).values()
        for isolated in (False, True)
    )

    assert [(leaf.label, leaf.dtype, leaf.data.shape) for leaf in here] == [
        (leaf.label, leaf.dtype, leaf.data.shape) for leaf in there
    ]
    assert [leaf.data.tolist() for leaf in here] == [leaf.data.tolist() for leaf in there]


@pytest.mark.parametrize("isolated", [False, True])
def test_what_is_fed_together_is_answered_one_by_one(
    save: Save,
    isolated: bool,  # noqa: FBT001  # from the table
) -> None:
    """Small and large, and where one is refused the others run."""
    path = save("g (float[n] x, float[m] z) => (float[k] y) { y = Add (x, z) }")
    runner = Runner(ModelSource(path, execution=Execution(isolated=isolated)), "disable")
    shapes = [(2, 2), (2, 3), (9000, 1), (9000, 9000), (0, 0), (1, 3)]
    feeds = [{"x": np.ones(a, np.float32), "z": np.ones(b, np.float32)} for a, b in shapes]
    given = runner.try_each(feeds)

    sizes = [None if isinstance(one, RunError) else one["y"][0].data.size for one in given]
    assert sizes == [2, None, 9000, 9000, 0, 3]


@pytest.mark.parametrize(
    "text",
    [
        "g (bool[2] c, bool[2] x) => (bool[2] y) { y = Where (c, x, x) }",  # no kernel
        "g (float[n] x) => (float[2, 3] y) <int64[2] s = {2, 3}> { y = Reshape (x, s) }",
    ],
)
def test_the_process_of_what_was_refused_is_free_at_once(save: Save, text: str) -> None:
    """It does not wait for the garbage collector, which jobs on many graphs suspend."""
    path = save(text)
    gc.collect()
    gc.disable()
    try:
        run.end_workers()
        with suppress(VerificationError):
            verify_equivalence(path, path)
        before = run.take_worker()
        run.give_back(before, reusable=True)
        assert not run._POOL._busy  # noqa: SLF001
    finally:
        gc.enable()


@pytest.mark.long
def test_a_worker_is_used_again(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two verifications of plain models start at most as many processes as levels run at once."""
    run.end_workers()
    started: list[run.Worker] = []
    init = run.Worker.__init__

    def count(self: run.Worker) -> None:
        started.append(self)
        init(self)

    monkeypatch.setattr(run.Worker, "__init__", count)
    path = save(NET)

    for _ in range(2):
        assert verify_equivalence(path, path).equivalent

    assert 1 <= len(started) <= min(2, len(os.sched_getaffinity(0)))


@pytest.mark.long
def test_a_session_may_die_while_a_worker_is_taken(
    save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector runs when it likes: also where nobody else may touch the workers."""
    run.end_workers()
    path = save(NET)
    init = run.Worker.__init__

    def collect(self: run.Worker) -> None:
        gc.collect()
        init(self)

    runner = Runner(ModelSource(path), "disable")
    knot: list[object] = [runner]
    knot.append(knot)  # only the collector finds it
    del runner, knot
    monkeypatch.setattr(run.Worker, "__init__", collect)
    answers: list[bool] = []
    thread = threading.Thread(
        target=lambda: answers.append(verify_equivalence(path, path).equivalent), daemon=True
    )
    thread.start()
    thread.join(300)

    assert answers == [True]


def test_a_worker_that_has_grown_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle ones hold no memory of a large model; small ones are taken again."""
    run.end_workers()
    small = run.take_worker()
    run.give_back(small, reusable=True)
    assert run.take_worker() is small
    until = time.monotonic() + 30
    while small.memory <= 1 << 20:  # it is just starting
        assert time.monotonic() < until
        time.sleep(0.01)
    monkeypatch.setattr(run, "_LARGEST_IDLE", 1 << 20)

    run.give_back(small, reusable=True)

    assert run.take_worker() is not small
    assert not small.is_alive
    run.end_workers()


def test_a_worker_that_was_started_with_other_variables_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A library that a variable names now would not be the one that it has loaded."""
    run.end_workers()
    before = run.take_worker()
    run.give_back(before, reusable=True)
    monkeypatch.setenv("DPL_DNNL_LIBRARY", "/nowhere.so")

    after = run.take_worker()

    assert after is not before
    assert not before.is_alive
    run.give_back(after, reusable=True)
    assert run.take_worker() is after
    run.end_workers()


def test_a_worker_that_died_is_replaced(save: Save) -> None:
    """An idle worker that somebody killed is not the next model's crash."""
    run.end_workers()
    worker = run.take_worker()
    run.give_back(worker, reusable=True)
    worker._process.kill()  # noqa: SLF001  # as the system would
    worker._process.wait(30)  # noqa: SLF001
    path = save(NET)

    assert verify_equivalence(path, path).equivalent


@pytest.mark.long
def test_a_module_in_the_working_folder_is_not_imported(save: Save, tmp_path: Path) -> None:
    """A file named like a package beside the model is nobody's business."""
    for name in ("onnxruntime", "json", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hijacked')")
    path = save(NET)
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.insert(0, {str(ROOT)!r})"
    )
    code += "; from dplcli.cli.main import main; main()"
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", code, "verify", path, path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("isolated", [True, False])
def test_options_reach_the_candidate_only(save: Save, isolated: bool) -> None:  # noqa: FBT001
    """An option that onnxruntime refuses is the candidate's problem: the reference is plain."""
    execution = Execution(isolated=isolated, options=(("session.disable_cpu_ep_fallback", "1"),))
    path = save(NET)

    result = verify_equivalence(path, path, Check(execution=execution))

    assert not result.equivalent
    assert "fallback to the CPU EP" in result.reasons[0]


@pytest.mark.parametrize("isolated", [True, False])
def test_harmless_options_change_nothing(save: Save, isolated: bool) -> None:  # noqa: FBT001
    """Each kind of option is accepted by onnxruntime as it is handed over."""
    options = (
        ("intra_op_num_threads", "1"),
        ("enable_mem_pattern", "off"),
        ("execution_mode", "parallel"),
        ("execution_order", "priority"),
        ("session.disable_prepacking", "1"),
    )
    path = save(NET)

    execution = Execution(isolated=isolated, options=options)

    assert verify_equivalence(path, path, Check(execution=execution)).equivalent


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("provider", ["CUDAExecutionProvidr", "", "cpu"])
def test_a_provider_that_is_not_there_is_refused(
    save: Save,
    provider: str,
    isolated: bool,  # noqa: FBT001
) -> None:
    """With its name and what there is."""
    path = save(NET)
    settings = Check(execution=Execution(isolated=isolated, provider=provider))

    with pytest.raises(UsageError, match=f"--provider {provider}: .* does not have it") as caught:
        verify_equivalence(path, path, settings)
    assert "CPUExecutionProvider" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"timeout": 0}, "more than 0 seconds"),
        ({"timeout": float("nan")}, "more than 0 seconds"),
        ({"timeout": float("inf")}, "at most 1,000,000,000 seconds"),
        ({"timeout": 5.0, "isolated": False}, "process of its own"),
        ({"memory_limit": 0}, "more than 0 MB"),
        ({"memory_limit": 10**20}, "at most 1,000,000,000 MB"),
        ({"memory_limit": 5, "isolated": False}, "process of its own"),
        ({"options": (("threads", "1"),)}, "no such option"),
        ({"options": (("intra_op_num_threads", "-1"),)}, "number of threads"),
        ({"options": (("enable_mem_reuse", "maybe"),)}, "on or off"),
        ({"options": (("execution_mode", "fast"),)}, "no such mode"),
        ({"options": (("execution_order", "random"),)}, "no such order"),
    ],
)
def test_an_execution_that_makes_no_sense_is_refused(
    wrong: dict[str, object], message: str
) -> None:
    """Before any work."""
    with pytest.raises(UsageError, match=message):
        Execution(**wrong)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits memory")
def test_a_memory_limit_beyond_that_of_the_system_is_that_of_the_system(save: Save) -> None:
    """Where somebody limited us, more cannot be allowed, and need not be."""
    path = save(NET)
    command = [sys.executable, "-m", "dplcli", "verify", str(path), str(path)]
    shown = subprocess.run(  # noqa: S603  # our own program
        ["/bin/sh", "-c", 'ulimit -d 8000000; exec "$@"', "sh", *command, "--memory-limit=100000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )

    assert (shown.returncode, shown.stderr) == (0, "")


def test_levels_run_at_the_same_time_and_answer_in_order() -> None:
    """Each waits for the other here; what goes wrong at one is said, and takes nothing away."""
    both = threading.Barrier(2, timeout=30)

    def run_one(level: str) -> dict[int, Outputs]:
        both.wait()
        if level == "disable":
            return {0: {}}
        raise RunError("no kernel") if level == "all" else StoppedError("crashed", "doing it")

    for other, reason in (
        ("all", "onnxruntime does not run the candidate (optimisation level all): no kernel"),
        ("basic", "onnxruntime crashed doing it"),
    ):
        found = run.run_levels((other, "disable"), run_one, at_once=2)
        assert found == ({"disable": {0: {}}}, {other: reason})


def test_one_level_at_a_time_where_that_is_asked_for() -> None:
    """Two sessions of a large model may not fit."""
    running, most = 0, 0

    def run_one(_level: str) -> dict[int, Outputs]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1
        return {}

    levels = ("disable", "basic", "all")
    assert run.run_levels(levels, run_one)[0] == {level: {} for level in levels}
    assert most == 1


def test_nobody_waits_for_levels_when_dpl_is_stopped(save: Save) -> None:
    """As with Ctrl-C: the workers end, and no other level begins."""
    source = ModelSource(save(NET))
    begun: list[str] = []

    def run_one(level: str) -> dict[int, Outputs]:
        begun.append(level)
        if level == "disable":
            raise KeyboardInterrupt
        Runner(source, level)
        return {}

    gc.collect()  # errors of other tests may hold workers
    with pytest.raises(KeyboardInterrupt):
        run.run_levels(("disable", "basic", "all"), run_one)
    assert begun[0] == "disable"
    assert not run._POOL._busy  # noqa: SLF001  # nothing else shows it


def test_nobody_waits_for_a_level_whose_future_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come when a level runs already and nobody holds its future yet."""
    begun, ended = threading.Event(), threading.Event()

    def run_one(_level: str) -> dict[int, Outputs]:
        begun.set()
        assert ended.wait(30), "nobody ended its worker"
        return {}

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *args: Any, **others: Any) -> Future[Any]:  # noqa: ANN401  # as there
            super().submit(*args, **others)
            assert begun.wait(30)
            raise KeyboardInterrupt

    monkeypatch.setattr(run, "ThreadPoolExecutor", Interrupted)
    monkeypatch.setattr(run, "end_workers", ended.set)
    since = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run.run_levels(("disable", "all"), run_one, at_once=2)
    assert time.monotonic() - since < 20


def test_a_worker_that_is_taken_while_others_end_is_ended_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal ends all workers again and again until nobody runs a level; none is forgotten."""
    pool = run._Pool()  # noqa: SLF001  # the one in use has real workers
    ended: list[str] = []

    class Fake:
        memory, is_alive = 0, True

        def __init__(self, name: str) -> None:
            self.name = name

        def kill(self) -> None:
            ended.append(self.name)
            if self.name == "first":
                pool.take()

    monkeypatch.setattr(run, "Worker", lambda: Fake("second" if ended else "first"))
    pool.take()
    pool.clear()
    assert ended == ["first"]
    pool.clear()
    assert ended == ["first", "second"]
