"""Processes that work on many models: none is lost, none is done twice, whatever dies."""

import os
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

from dplcli.batch.done import once
from dplcli.batch.processes import LostError, run_here, run_there
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


def test_a_scheduler_that_is_not_there_is_one_message(tmp_path: Path) -> None:
    """Whether or not Dask is installed."""
    with pytest.raises(UsageError, match=r"^--scheduler tcp://127\.0\.0\.1:9: ") as caught:
        list(run_there(work, [Job(0, tmp_path / "log")], "tcp://127.0.0.1:9"))

    assert caught.value.hint


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler of Dask and three workers, each a process."""
    pytest.importorskip("distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    common = ["--no-dashboard", "--host", "127.0.0.1"]
    calls = [["dask_scheduler", "--port", str(port), *common]]
    calls += [
        ["dask_worker", address, "--nthreads", "1", "--no-nanny", "--name", f"w{n}", *common]
        for n in range(3)
    ]
    started = []
    with (tmp_path / "dask.log").open("wb") as log:
        for module, *words in calls:
            started.append(
                subprocess.Popen(  # noqa: S603  # our own
                    [sys.executable, "-m", f"distributed.cli.{module}", *words],
                    env=environment,
                    cwd=tmp_path,
                    stdout=log,
                    stderr=log,
                )
            )
        wait_for(address)
        yield address, started[1:]
        for process in reversed(started):
            with suppress(OSError):
                process.kill()
            process.wait(30)


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
    tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    """The others do what it had begun, and nothing that was done is done again."""
    address, workers = cluster
    log = tmp_path / "log"
    jobs = [Job(number, log, seconds=0.3) for number in range(24)]
    answers = {}
    for job, answer in run_there(work_once, jobs, address):
        assert isinstance(answer, dict), answer
        answers[job.number] = answer["square"]
        if len(answers) == 6:
            workers[1].kill()

    assert answers == {number: number**2 for number in range(24)}
    begun = Counter(log.read_text().splitlines())
    assert ends(log) == Counter(f"end {number}" for number in range(24))
    assert sum(begun[f"begin {number}"] for number in range(24)) <= 25  # one was being done
