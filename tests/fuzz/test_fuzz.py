"""A short run of the fuzzers with fixed seeds; ``python -m tests.fuzz`` is the long one."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import strategies as st

from tests.diff.test_comparison_growth import nested_ifs, nested_loops
from tests.execute.support import needs_onednn
from tests.fuzz import properties
from tests.fuzz.__main__ import batch
from tests.fuzz.properties import PROPERTIES
from tests.fuzz.running import BYTES, HOST, Host, dpl, faults, forked, warm_up, wrong_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.forks,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it forks"),
]


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    warm_up()
    yield
    HOST.close()


@pytest.fixture
def host() -> Iterator[Host]:
    """Return a host of the test's own."""
    made = Host()
    yield made
    made.close()


@pytest.mark.long
@pytest.mark.parametrize("count", [3, pytest.param(30, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", PROPERTIES)
def test_some_files_bring_no_fault_about(tmp_path: Path, name: str, count: int) -> None:
    """So many of each kind."""
    if name == "kernels":
        needs_onednn()  # and a C++ compiler, as what is deployed does
    assert batch(name, 2, tmp_path, count) == ""


NESTED = {"if": nested_ifs, "loop": nested_loops}
COMMANDS = [
    ("match", "m.onnx", "--target", "dnnl"),
    ("partition", "m.onnx", "--target", "dnnl", "--no-verify", "-o", "p.onnx"),
    ("repeat", "m.onnx", "--no-verify", "-o", "p.onnx"),
    ("rewrite", "m.onnx", "-p", "prepare", "-p", "fuse", "--no-verify", "-o", "r.onnx"),
    ("inspect", "m.onnx"),
    ("view", "m.onnx", "-o", "v.html"),
    ("diff", "m.onnx", "m.onnx"),
    ("inline", "m.onnx", "--no-verify", "-o", "i.onnx"),
    ("explain", "m.onnx", "--target", "dnnl"),
]


@pytest.mark.long
@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[::2]))
def test_twice_as_deep_is_at_most_three_times_as_much(
    tmp_path: Path, kind: str, command: tuple[str, ...]
) -> None:
    """Of every command; protobuf reads no file whose bodies nest deeper than 33."""
    took = []
    for depth in (14, 28):
        onnx.save(NESTED[kind](depth, "Relu", "Neg"), tmp_path / "m.onnx")
        end = dpl(tmp_path, *command)
        assert end.code == 0, end.said
        took.append(end.seconds)
    assert took[1] <= 3 * took[0] + 0.2


# -- the fuzzers notice what is wrong --------------------------------------------------------------


def nothing(_path: Path) -> None:
    """Do nothing."""


def leave(path: Path) -> None:
    """Leave a file behind."""
    (path / ".dpl-left").write_text("x")


def crash(_path: object) -> None:
    """End as C++ does."""
    os.abort()


def fail(_path: object) -> None:
    """Raise what nobody foresaw."""
    raise ValueError("odd")


@pytest.mark.parametrize(
    ("act", "said"),
    [(nothing, None), (leave, "left behind"), (crash, "exit -6"), (fail, "internal error")],
)
def test_a_fault_is_noticed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: Host,
    act: Callable[[Path], None],
    said: str | None,
) -> None:
    """Stray files, crashes, tracebacks; and nothing where nothing is wrong."""
    monkeypatch.setattr("tests.fuzz.running.main", partial(act, tmp_path))
    monkeypatch.setattr("tests.fuzz.running.HOST", host)
    found = faults(tmp_path, "match", "m.onnx")
    assert any(said in fault for fault in found) if said else found == []


def test_wrong_numbers_are_noticed(tmp_path: Path) -> None:
    """At both levels; the same numbers are none."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {{ y = {} (x) }}'
    )
    for name, op_type in (("m", "Relu"), ("same", "Relu"), ("other", "Abs")):
        onnx.save(onnx.parser.parse_model(text.format(op_type)), tmp_path / f"{name}.onnx")
    assert wrong_numbers(tmp_path, {"same.onnx": 1e-5}, "m.onnx") == []
    assert "other.onnx" in wrong_numbers(tmp_path, {"other.onnx": 1e-5}, "m.onnx")[0]


def test_what_the_optimiser_changes_is_not_held_against_a_result(tmp_path: Path) -> None:
    """Onnxruntime quantises the first output of this one, too; a wrong result is wrong even so."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[8] x) => (float[8] y, float[8] z) <float s = {0.5}, uint8 o = {3}> {
            y = Exp (x) t = Transpose <perm = [0]> (y)
            q = QuantizeLinear (t, s, o) z = DequantizeLinear (q, s, o) }"""
    for name, of in (("m", text), ("same", text), ("other", text.replace("Exp", "Neg"))):
        onnx.save(onnx.parser.parse_model(of), tmp_path / f"{name}.onnx")
    assert wrong_numbers(tmp_path, {"same.onnx": 1e-5}, "m.onnx") == []
    assert "other.onnx" in wrong_numbers(tmp_path, {"other.onnx": 1e-5}, "m.onnx")[0]


def test_what_fails_is_made_small_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest number that fails, with the files that it failed on."""

    def holds(folder: Path, drawn: int) -> list[str]:
        (folder / "drawn").write_text(str(drawn))
        return ["too large"] if drawn > 17 else []

    monkeypatch.setitem(properties.PROPERTIES, "number", (holds, st.integers(0, 1000)))
    assert "too large" in batch("number", 3, tmp_path)
    assert (tmp_path / "number-3" / "drawn").read_text() == "18"
    assert "too large" in (tmp_path / "number-3" / "faults.txt").read_text()


def forever() -> None:
    """Go on without an end."""
    while True:
        np.zeros(10).sum()


def take(count: int) -> None:
    """Use so many bytes."""
    bytearray(count)


def answer(code: int) -> None:
    """End with an exit code, and say so."""
    print(f"code {code}")  # noqa: T201  # what is printed is kept
    raise SystemExit(code)


def wait() -> None:
    """Wait for what does not come."""
    time.sleep(1000)


@pytest.mark.long
def test_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no end is ended."""
    monkeypatch.setattr("tests.fuzz.running.SECONDS", 1)
    assert forked(forever).code == -24


def test_a_host_does_one_thing_after_another(host: Host) -> None:
    """What is printed and the exit code are those of each alone."""
    for code in (0, 3, 1):
        end = host.do(answer, code)
        assert (end.code, end.said) == (code, f"code {code}\n")
    assert "ValueError: odd" in host.do(fail, None).said


def test_a_host_says_what_each_took(host: Host) -> None:
    """Memory that one took is not held against the next."""
    assert host.do(take, BYTES // 4).peak > BYTES // 5
    assert host.do(answer, 0).peak < BYTES // 40


@pytest.mark.long
@pytest.mark.parametrize(
    ("work", "limits", "code"),
    [
        (partial(crash, None), {}, -6),
        (forever, {"SECONDS": 1}, -24),
        (wait, {"PATIENCE": 1}, -9),
    ],
)
def test_a_host_that_is_ended_is_replaced(
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[], object],
    limits: dict[str, int],
    code: int,
) -> None:
    """By a crash, by a limit of its time, or as it waits for ever."""
    for name, limit in limits.items():
        monkeypatch.setattr(f"tests.fuzz.running.{name}", limit)
    assert host.do(work).code == code
    assert host.do(answer, 0).code == 0


def test_a_host_that_has_done_many_is_replaced(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they leave behind does not pile up."""
    monkeypatch.setattr(Host, "MOST", 2)
    asked = [int(host.do(say_process).said) for _ in range(4)]
    assert asked[0] == asked[1] != asked[2] == asked[3]


def say_process() -> None:
    """Print which process this is."""
    print(os.getpid())  # noqa: T201  # what is printed is kept
