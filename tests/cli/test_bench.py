"""``dpl bench``: two models by turns, the second with its partitions on a library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import dplcli
from dplcli.outcomes.running import BenchOutcome, BenchSide
from dplcli.report.running import bench_document
from dplcli.verify.values import Timing
from tests.execute.support import needs_onednn, net, partitioned, written

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.support import Dpl


def _slow(count: int) -> str:
    """Return a model of so many products, one after the other."""
    steps = "".join(f"a{n + 1} = MatMul (a{n}, w) " for n in range(count))
    return f"""g (float[64,64] x) => (float[64,64] y) <float[64,64] w> {{
        a0 = Tanh (x) {steps} y = Tanh (a{count}) }}"""


@pytest.mark.long
def test_the_quicker_model_is_named(dpl: Dpl, folder: Path) -> None:
    """Forty products take longer than two; the record holds every round."""
    written(net(_slow(2)), folder / "few.onnx")
    written(net(_slow(40)), folder / "many.onnx")
    answer = dpl("bench", "few.onnx", "many.onnx", "--runs", "3", "--json", "r.json")
    assert answer.code == 0, answer.err
    assert "A is quicker: few.onnx." in answer.out
    record = json.loads((folder / "r.json").read_text())
    assert (record["schema"], record["quicker"]) == ("dpl.bench/1", "first")
    assert record["ratios"]["cpu"]["median"] > 2
    assert [len(model["rounds"]["wall"]) for model in record["models"]] == [3, 3]
    result = dplcli.bench(folder / "many.onnx", folder / "few.onnx", runs=3)
    assert result.ratio < 1
    assert "B is quicker: few.onnx" in str(result)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ((1.0, 1.1, 0.9), "Neither is quicker: the rounds disagree."),
        ((2.0, 2.1, 1.9), "A is quicker: a.onnx."),
        ((0.5, 0.6, 0.4), "B is quicker: b.onnx in onnxruntime."),
    ],
)
def test_a_verdict_needs_rounds_that_agree(times: tuple[float, ...], said: str) -> None:
    """Half of the rounds say so at least."""
    sides = (
        BenchSide("a.onnx", "onnxruntime", Timing((1.0,) * 3, (1.0,) * 3)),
        BenchSide("b.onnx", "onnxruntime", Timing(times, times)),
    )
    outcome = BenchOutcome(
        label="a.onnx", sides=sides, fed="seed 0", inputs={}, level="all", threads=1
    )
    assert bench_document(outcome).verdict == said


@pytest.mark.long
def test_partitions_on_a_library_are_timed(dpl: Dpl, folder: Path) -> None:
    """Each has a time of its own, as the library says; nothing run is no success."""
    needs_onednn()
    partitioned(net(), folder)
    answer = dpl("bench", "m.onnx", "p.onnx", "--with", "dnnl", "--runs", "2", "--json", "r.json")
    assert answer.code == 0, answer.err
    assert "2 of 2 partitions ran on oneDNN." in answer.out
    record = json.loads((folder / "r.json").read_text())
    assert record["models"][1]["engine"] == "onnxruntime and oneDNN"
    assert [item["runs"] for item in record["kernels"]["partitions"]] == [1, 1]
    assert all(item["milliseconds"] > 0 for item in record["times"])
    assert len(record["times"]) == 2
    alone = dpl("bench", "p.onnx", "--with", "dnnl", "--runs", "2", "--require", "all")
    assert alone.code == 0, alone.err
    none = dpl("bench", "m.onnx", "--with", "dnnl", "--runs", "2")
    assert none.code == 1
    assert "no partition ran on the library" in none.out


def test_what_cannot_be_timed_is_refused(dpl: Dpl, folder: Path) -> None:
    """One message, exit code 2, nothing written."""
    written(net(), folder / "m.onnx")
    written(net("g (float[2] x) => (float[2] y) { y = Sin (x) }"), folder / "n.onnx")
    np.savez(folder / "x.npz", x=np.zeros((1, 3, 8, 8), np.float32))
    for options, said in (
        (("m.onnx",), "needs two models, or one and --with"),
        (("m.onnx", "n.onnx"), "do not compare"),
        (("m.onnx", "m.onnx", "--runs", "0"), "--runs 0: must be at least 1"),
        (("m.onnx", "m.onnx", "--threads", "-1"), "--threads -1: must be at least 0"),
        (("m.onnx", "gone.onnx"), "gone.onnx"),
        ((*("m.onnx", "m.onnx", "--inputs"), "x.npz", "--save-inputs", "x.npz"), "would replace"),
        (("m.onnx", "m.onnx", "--json", "m.onnx"), "m.onnx"),
    ):
        answer = dpl("bench", *options)
        assert answer.code == 2, options
        assert said in answer.message
