"""Processes that work on many models: none is lost, none is done twice, whatever dies."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from dplcli.batch import processes
from dplcli.batch.done import once, program
from dplcli.batch.processes import (
    Cluster,
    LostError,
    UnfitError,
    run_here,
    run_program,
    run_there,
)
from dplcli.errors import UsageError

ROOT = Path(__file__).parents[2]


class Job(NamedTuple):
    """Something to do, noted in a file when it begins and when it is done."""

    number: int
    log: Path
    kills: str = ""
    seconds: float = 0.0


def work(job: Job) -> int:
    """Do a job; one that kills its process never ends, or only the first time."""
    note(job.log, f"begin {job.number}")
    first = job.log.read_text().split("\n").count(f"begin {job.number}") == 1
    if job.kills == "always" or (job.kills == "once" and first):
        os.kill(os.getpid(), signal.SIGKILL)
    if job.kills == "raises":
        raise ValueError("no such thing")
    time.sleep(job.seconds)
    note(job.log, f"end {job.number}")
    return job.number**2


def note(log: Path, line: str) -> None:
    """Add a line in one step."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def ends(log: Path) -> Counter[str]:
    """Count how often each job was done to its end."""
    return Counter(line for line in log.read_text().splitlines() if line.startswith("end"))


def test_every_task_is_done_once(tmp_path: Path) -> None:
    """Each has its answer, in whatever order."""
    jobs = [Job(number, tmp_path / "log") for number in range(7)]

    answers = dict(run_here(work, jobs, 2))

    assert answers == {job: job.number**2 for job in jobs}
    assert ends(tmp_path / "log") == Counter(f"end {number}" for number in range(7))


@pytest.mark.skipif(sys.platform != "linux", reason="only there processes are forked")
def test_a_fork_starts_processes_of_its_own(tmp_path: Path) -> None:
    """As where a web server forks after dpl was used: what the parent started is no child of it."""
    assert len(dict(run_here(work, [Job(1, tmp_path / "log")], 1))) == 1
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os._exit(
                len(dict(run_here(work, [Job(number, tmp_path / "log") for number in (2, 3)], 1)))
            )
        os._exit(99)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert ends(tmp_path / "log") == Counter(f"end {number}" for number in (1, 2, 3))


@pytest.mark.long
@pytest.mark.parametrize("kills", ["always", "once"])
def test_a_process_that_dies_takes_no_other_task_with_it(tmp_path: Path, kills: str) -> None:
    """The guilty one is named, if it dies again alone; all others have answers."""
    jobs = [Job(number, tmp_path / "log") for number in range(6)]
    jobs[2] = jobs[2]._replace(kills=kills)

    answers = dict(run_here(work, jobs, 2))

    lost = answers.pop(jobs[2])
    assert answers == {job: job.number**2 for job in jobs if job.number != 2}
    if kills == "once":
        assert lost == 4
    else:
        assert isinstance(lost, LostError)
        assert "died" in lost.message
        assert lost.hint


def test_an_error_is_the_answer_of_its_task(tmp_path: Path) -> None:
    """The others go on in the same processes."""
    jobs = [Job(number, tmp_path / "log") for number in range(3)]
    jobs[0] = jobs[0]._replace(kills="raises")

    answers = dict(run_here(work, jobs, 1))

    assert str(answers.pop(jobs[0])) == "no such thing"
    assert list(answers.values()) == [1, 4]


def test_who_stops_asking_leaves_no_process_behind(tmp_path: Path) -> None:
    """What is being done is given up at once."""
    jobs = [Job(number, tmp_path / "log", seconds=30 * (number > 0)) for number in range(3)]
    begun = time.monotonic()

    asked = run_here(work, jobs, 2)
    next(asked)
    asked.close()  # type: ignore[attr-defined]  # it is a generator

    assert time.monotonic() - begun < 20
    assert set(ends(tmp_path / "log")) == {"end 0"}


def test_a_task_that_takes_too_long_is_lost_alone(tmp_path: Path) -> None:
    """The others have answers, in the same processes."""
    jobs = [Job(number, tmp_path / "log", seconds=60 * (number == 1)) for number in range(4)]
    begun = time.monotonic()

    answers = dict(run_here(work, jobs, 1, seconds=1.5))

    assert str(answers.pop(jobs[1])) == "took longer than 1.5 s"
    assert list(answers.values()) == [0, 4, 9]
    assert time.monotonic() - begun < 30


def deaf(job: Job) -> int:
    """Hear no signal, as C++ that never comes back does not."""
    if job.seconds:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    return work(job)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be held")
def test_a_process_that_hears_nothing_any_more_is_ended(tmp_path: Path) -> None:
    """It is not tried again: that would take as long; who was beside it is."""
    jobs = [Job(number, tmp_path / "log", seconds=60 * (number == 1)) for number in range(4)]

    answers = dict(run_here(deaf, jobs, 2, seconds=1))

    assert str(answers.pop(jobs[1])) == "took longer than 1 s"
    assert sorted(answers.values(), key=str) == [0, 4, 9]
    assert (tmp_path / "log").read_text().count("begin 1\n") == 1


def run_for_long(mark: str) -> int:
    """Run a program that starts another one."""
    return run_program(["/bin/sh", "-c", f"sleep {mark} & wait"]).returncode


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_what_a_program_has_started_ends_with_its_time() -> None:
    """Also what it did not wait for."""
    mark = f"1000.{os.getpid()}"
    ((_, answer),) = run_here(run_for_long, [mark], 1, seconds=1)
    assert str(answer) == "took longer than 1 s"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            assert mark.encode() not in path.read_bytes().split(b"\0")


INTERRUPTED = """
import os, signal, sys
from dplcli.batch.processes import run_here

if __name__ == "__main__":
    print(list(run_here(abs, [-1], 1, ["interrupting"])))
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be held")
def test_an_interrupt_while_processes_load_is_the_first_ones_alone(tmp_path: Path) -> None:
    """A terminal tells all of a group; what only helps says nothing, and goes on."""
    hit = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "interrupting.py").write_text(hit)
    (tmp_path / "main.py").write_text(INTERRUPTED)
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = subprocess.run(  # noqa: S603
        [sys.executable, tmp_path / "main.py"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert (done.stdout.strip(), done.stderr) == ("[(-1, 1)]", "")


def test_a_scheduler_that_is_not_there_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not Dask is installed."""
    monkeypatch.setattr(processes, "_CONNECTING", 0.5)
    with pytest.raises(UsageError, match=r"^--scheduler tcp://127\.0\.0\.1:9: ") as caught:
        list(run_there(work, [Job(0, tmp_path / "log")], Cluster("tcp://127.0.0.1:9", {})))

    assert caught.value.hint


class LocalCluster:
    """A scheduler of Dask and its workers, each a process.

    Args:
        folder: Where they work.
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._start("dask_scheduler", "--port", str(port))
        wait_for(self.address)

    def worker(self, *paths: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker that finds modules in *paths*."""
        found = os.pathsep.join(map(str, [*paths, ROOT]))
        words = (self.address, "--nthreads", "1", "--no-nanny")
        return self._start("dask_worker", *words, PYTHONPATH=found, **environment)

    def _start(self, module: str, *words: str, **more: str) -> subprocess.Popen[bytes]:
        with (self._folder / "dask.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603  # our own
                [
                    *(sys.executable, "-m", f"distributed.cli.{module}", *words),
                    *("--no-dashboard", "--host", "127.0.0.1"),
                ],
                env=os.environ | more,
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        self._started.append(process)
        return process

    def wait_for(self, count: int) -> None:
        """Wait until so many workers are there."""
        distributed = pytest.importorskip("distributed")
        with distributed.Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=60)

    def close(self) -> None:
        """End all of them."""
        for process in reversed(self._started):
            with suppress(OSError):
                process.kill()
            process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Start a scheduler of Dask; its workers see the modules of these tests, too."""
    pytest.importorskip("distributed")
    (tmp_path / "dask").mkdir()
    made = LocalCluster(tmp_path / "dask")
    try:
        yield made
    finally:
        made.close()


def work_once(job: Job) -> dict[str, object]:
    """Do a job as the commands do: what was done in the same run is not done again."""

    def do() -> dict[str, object]:
        return {"status": "yes", "square": work(job)}

    return once(f"{job.log.parent.name}-{job.number}", "this run", do)


def wait_for(address: str) -> None:
    """Wait until a scheduler listens; a machine may be busy."""
    host, port = address.removeprefix("tcp://").split(":")
    for _ in range(120):
        with suppress(OSError), socket.create_connection((host, int(port)), 1):
            return
        time.sleep(0.5)
    pytest.fail("the scheduler does not start")


@pytest.mark.long
def test_a_worker_of_a_cluster_that_is_killed_loses_nothing(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    """The others do what it had begun, and nothing that was done is done again."""
    workers = [cluster.worker() for _ in range(3)]
    log, told = tmp_path / "log", list[str]()
    jobs = [Job(number, log, seconds=0.3) for number in range(24)]
    answers = {}
    asked = Cluster(cluster.address, program(), [__name__], tell=told.append)
    for job, answer, machine in run_there(work_once, jobs, asked):
        assert isinstance(answer, dict), answer
        assert machine == socket.gethostname()
        answers[job.number] = answer["square"]
        if len(answers) == 6:
            workers[1].kill()

    assert answers == {number: number**2 for number in range(24)}
    begun = Counter(log.read_text().splitlines())
    assert ends(log) == Counter(f"end {number}" for number in range(24))
    assert sum(begun[f"begin {number}"] for number in range(24)) <= 25  # one was being done
    assert [line.partition(")")[2] for line in told] in (
        [" is gone; others do what it had not done"],
        [],  # it was never asked for
    )


@pytest.mark.long
def test_who_has_another_dpl_or_none_does_nothing(tmp_path: Path, cluster: LocalCluster) -> None:
    """Each is named with what it lacks; nobody who fits, or strictness, is one message."""
    log, told = tmp_path / "log", list[str]()
    jobs = [Job(number, log) for number in range(9)]
    asked = Cluster(cluster.address, program(), [__name__], tell=told.append, patience=1)
    with pytest.raises(UsageError, match="for 1 s no worker could do the work: there is none"):
        list(run_there(work, jobs, asked))

    absent, edited = tmp_path / "absent", tmp_path / "edited"
    absent.mkdir()
    (absent / "dplcli.py").write_text("raise ModuleNotFoundError(\"No module named 'dplcli'\")")
    for name in ("dplcli", "patterns"):
        shutil.copytree(ROOT / name, edited / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (edited / "dplcli" / "version.py").open("a", encoding="utf-8") as code:
        code.write("# edited\n")
    cluster.worker(absent)
    cluster.worker(edited)
    cluster.wait_for(2)
    with pytest.raises(UsageError, match="no worker could do the work: ") as caught:
        list(run_there(work, jobs, asked._replace(patience=8)))
    ours = program()["dpl"]
    assert f"here {ours}" in caught.value.message
    assert "lacks dpl, or what it needs: No module named 'dplcli'" in caught.value.message
    assert not log.exists()
    with pytest.raises(UsageError, match=r"^--strict-workers: "):
        list(run_there(work, jobs, asked._replace(is_strict=True, patience=20)))

    told.clear()
    cluster.worker()
    done = list(run_there(work, jobs, asked._replace(patience=60)))
    assert sorted(job.number for job, _, _ in done) == list(range(9))
    assert [answer for job, answer, _ in done if answer != job.number**2] == []
    assert ends(log) == Counter(f"end {number}" for number in range(9))
    assert all(line.startswith("left out: ") for line in told)


@pytest.mark.long
def test_what_hangs_on_a_cluster_is_lost_alone(tmp_path: Path, cluster: LocalCluster) -> None:
    """Its worker goes on with others."""
    cluster.worker()
    jobs = [Job(number, tmp_path / "log", seconds=60 * (number == 1)) for number in range(4)]
    asked = Cluster(cluster.address, program(), [__name__])
    answers = {job.number: answer for job, answer, _ in run_there(work, jobs, asked, 2)}
    assert str(answers.pop(1)) == "took longer than 2 s"
    assert answers == {0: 0, 2: 4, 3: 9}


@pytest.mark.long
def test_a_worker_of_a_cluster_that_stands_still_loses_nothing(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    """The others do what it had begun, long before Dask gives it up; one that goes on may work."""
    workers = [cluster.worker() for _ in range(2)]
    cluster.wait_for(2)
    told = list[str]()
    jobs = [Job(number, tmp_path / "log", seconds=0.3) for number in range(12)]
    asked = Cluster(cluster.address, program(), [__name__], 8, tell=told.append)
    answers = {}
    begun = time.monotonic()
    for job, answer, _ in run_there(work, jobs, asked):
        answers[job.number] = answer
        if len(answers) == 2:
            workers[0].send_signal(signal.SIGSTOP)
    assert answers == {number: number**2 for number in range(12)}
    assert time.monotonic() - begun < 60
    (line,) = told
    assert re.fullmatch(r".* has said nothing for \d+ s; others do what it had not done", line)

    workers[1].kill()
    with pytest.raises(UsageError, match=r"no worker could do the work: tcp.*: does not answer"):
        list(run_there(work, jobs, asked))
    workers[0].send_signal(signal.SIGCONT)
    done = {job.number: answer for job, answer, _ in run_there(work, jobs, asked)}
    assert done == answers


def work_where_it_can(job: Job) -> int:
    """Do a job, but not where the environment says that a file is missing."""
    if "UNFIT" in os.environ:
        raise UnfitError(f"{job.log.name} is another file there, or none")
    return work(job)


def stands(job: Job) -> bool:
    """Tell of one job that it can be done nowhere any more."""
    return job.number != 3


@pytest.mark.long
def test_a_worker_that_is_unfit_leaves_the_crew(tmp_path: Path, cluster: LocalCluster) -> None:
    """It fails fast, but takes no task with it: others do them; the last one's reason is said."""
    cluster.worker(UNFIT="1")
    cluster.worker()
    cluster.wait_for(2)
    told = list[str]()
    jobs = [Job(number, tmp_path / "log", seconds=0.5) for number in range(8)]
    asked = Cluster(cluster.address, program(), [__name__], tell=told.append)

    answers = {job.number: each for job, each, _ in run_there(work_where_it_can, jobs, asked)}

    assert answers == {number: number**2 for number in range(8)}
    assert ends(tmp_path / "log") == Counter(f"end {number}" for number in range(8))
    (line,) = told
    assert line.startswith("left out: ")
    assert line.endswith(": log is another file there, or none; others do what it had not done")


@pytest.mark.long
def test_who_alone_is_unfit_is_one_message(tmp_path: Path, cluster: LocalCluster) -> None:
    """With its reason; unless it is the task, which can be done nowhere."""
    cluster.worker(UNFIT="1")
    cluster.wait_for(1)
    jobs = [Job(number, tmp_path / "log") for number in (3, 4)]
    asked = Cluster(cluster.address, program(), [__name__], 10)
    lost = list(run_there(work_where_it_can, jobs, asked, stands=stands))
    (_, first, _), (_, second, _) = lost
    assert isinstance(first, UnfitError)
    assert "no worker could do the work: " in str(second)
    assert "log is another file there, or none" in str(second)
    with pytest.raises(UsageError, match=r"^--strict-workers: .*: log is another file there"):
        list(run_there(work_where_it_can, jobs, asked._replace(is_strict=True)))


@pytest.mark.long
@pytest.mark.parametrize("how", ["close", "kill"])
def test_what_nobody_waits_for_any_more_is_ended(
    tmp_path: Path, cluster: LocalCluster, how: str
) -> None:
    """What workers have begun ends with who asked for it, also if that was killed."""
    cluster.worker()
    log = tmp_path / "log"
    script = tmp_path / "asking.py"
    script.write_text(ASKING.format(address=cluster.address, log=str(log)))
    paths = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    with subprocess.Popen(  # noqa: S603
        [sys.executable, script], env={**os.environ, "PYTHONPATH": paths}
    ) as process:
        late = time.monotonic() + 60
        while not log.exists():
            assert time.monotonic() < late
            time.sleep(0.1)
        process.send_signal(signal.SIGINT if how == "close" else signal.SIGKILL)
    begun, late = int(log.read_text().split()[0]), time.monotonic() + 20
    while Path(f"/proc/{begun}").exists():
        assert time.monotonic() < late
        time.sleep(0.1)
    job = Job(1, tmp_path / "next")
    asked = Cluster(cluster.address, program(), [__name__])
    assert [answer for _, answer, _ in run_there(work, [job], asked)] == [1]


ASKING = """
import signal
from pathlib import Path
from dplcli.batch.done import program
from dplcli.batch.processes import Cluster, run_there
from tests.batch.test_processes import work_for_long

signal.signal(signal.SIGINT, signal.default_int_handler)
list(run_there(work_for_long, [Path({log!r})], Cluster({address!r}, program())))
"""


def work_for_long(log: Path) -> None:
    """Say which process works, and go on and on."""
    note(log, f"{os.getpid()}")
    time.sleep(600)


MAPPED = """
import os
change = os.chdir
os.chdir = lambda path: change(os.environ["MAPPED"] if str(path) == os.environ["SEEN"] else path)
"""


@pytest.mark.long
def test_nothing_is_said_to_be_done_that_is_not_here(tmp_path: Path, cluster: LocalCluster) -> None:
    """One worker has another disk under the same name; ok is what lies here, and is right."""
    here, there, modules = tmp_path / "here", tmp_path / "there", tmp_path / "modules"
    for folder in (here, there):
        (folder / "models").mkdir(parents=True)
        for number in range(6):
            model = ROOT / "sample_models" / "residual_block.onnx"
            shutil.copy(model, folder / "models" / f"m{number}.onnx")
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(MAPPED)
    cluster.worker()
    cluster.worker(modules, MAPPED=str(there), SEEN=str(here))
    cluster.wait_for(2)
    (there / "out").mkdir()

    def partition() -> tuple[int, dict[str, str], str]:
        words = ["partition", "models", "-p", "conv_relu", "--no-verify", "-o", "out"]
        words += ["--scheduler", cluster.address, "--json", "r.json"]
        ended = subprocess.run(  # noqa: S603  # our own program
            [sys.executable, "-m", "dplcli", *words],
            cwd=here,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        record = json.loads((here / "r.json").read_text())
        return (
            ended.returncode,
            {each["model"]: each["status"] for each in record["answers"]},
            ended.stderr,
        )

    for content, message in ((b"", " wrote "), (b"other", " is another file there, or none")):
        for model in (there / "models").iterdir():
            model.write_bytes(model.read_bytes() + content)
        shutil.rmtree(here / "out", ignore_errors=True)
        code, answers, said = partition()
        good = {name for name, status in answers.items() if status == "ok"}
        assert len(answers) == 6
        assert good == {f"models/{path.name}" for path in (here / "out").glob("*.onnx")}
        assert (len(good) < 6) is (not content), "the other worker did nothing"
        assert code == (2 if not content else 0), said
        assert (message in said, socket.gethostname() in said) == (True, True), said
