"""``dpl accuracy``: how near a quantised model comes to its source."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

import dplcli
from dplcli.verify.accuracy import Accuracy, Sums
from tests.helpers import proto_from_text

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.support import Dpl

HEAD = "g (float[N, 16] x) => (float[N, 4] y)\n<float[16, 4] w"
WEIGHTS = ", ".join(f"{math.sin(n):.4f}" for n in range(64))
FLOAT = f"""{HEAD} = {{{WEIGHTS}}}> {{ a = Relu (x)  m = MatMul (a, w)  y = Tanh (m) }}"""
QDQ = f"""{HEAD} = {{{WEIGHTS}}}, float s = {{SCALE}}, uint8 z = {{0}}>
{{ q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
  m = MatMul (d, w)  y = Tanh (m) }}"""
"""The steps begin at zero: they are the Relu, too, as onnxruntime's quantiser leaves it."""


@pytest.fixture(autouse=True)
def models(folder: Path) -> None:
    """Write a model, and two that are quantised, the second in coarse steps."""
    for name, text in (
        ("float", FLOAT),
        ("fine", QDQ.replace("SCALE", "0.02")),
        ("coarse", QDQ.replace("SCALE", "0.5")),
        ("broken", FLOAT.replace("y = Tanh (m)", "b = Log (m)  y = Tanh (b)")),
        ("other", FLOAT.replace("x)", "v)").replace(" x", " v")),
    ):
        onnx.save(proto_from_text(text), folder / f"{name}.onnx")


def figures(one: list[float], two: list[float]) -> Accuracy:
    """Return the figures of two rows."""
    sums = Sums()
    sums.add(np.array([one], np.float32), np.array([two], np.float32))
    return sums.figures()


def test_the_figures_are_the_usual_ones() -> None:
    """Checked by hand: |a|^2 = 25, |b - a|^2 = 0.25, a.b = 25 + 0.5 * 3."""
    got = figures([3, 4, 0], [3.5, 4, 0])
    assert got.sqnr == pytest.approx(20)
    assert got.cosine == pytest.approx(26.5 / (5 * math.hypot(3.5, 4)))
    assert (got.agreement, got.max_abs, got.lost) == (1, 0.5, 0)


@pytest.mark.parametrize(
    ("change", "error", "agreement"),
    [
        ([[0.1, 0.2], [0.3, 0.1], [0.0, 0.5]], 0.1, 1),  # a tenth everywhere
        ([[0, 0], [0, -4], [0, 0]], 4 / math.sqrt(40), 1),
        ([[0, -2], [0, 0], [0, 0]], 2 / math.sqrt(40), 2 / 3),
        ([[0, math.nan], [0, 0], [0, 0]], math.inf, 2 / 3),
    ],
)
def test_the_relative_error_says_the_same_as_sqnr(
    change: list[list[float]], error: float, agreement: float
) -> None:
    """The length of the difference over that of the original; no number at all is no small one."""
    one = np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 5.0]])
    sums = Sums()
    sums.add(one, one + change)
    assert sums.figures().relative_error == pytest.approx(error)
    if math.isfinite(error):
        assert sums.figures().agreement == pytest.approx(agreement)


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ([1, 2], [1, 2], (math.inf, 1, 1, 0, 0)),
        ([0, 0], [0, 0], (math.inf, 1, 1, 0, 0)),
        ([0, 0], [0, 1], (-math.inf, 0, 0, 1, 0)),
        ([1, math.nan], [1, math.nan], (math.inf, 1, 1, 0, 0)),
        ([1, 2], [1, math.nan], (math.inf, 1, 1, 0, 1)),
        ([1, math.inf], [1, -math.inf], (math.inf, 1, 0, 0, 1)),
    ],
)
def test_corners(one: list[float], two: list[float], expected: tuple[float, ...]) -> None:
    """Nothing at all, and what is no number."""
    assert figures(one, two) == pytest.approx(expected)


def test_the_agreement_of_images_is_that_of_classes() -> None:
    """From rank 4 on, along axis 1: the places of an image are rows."""
    one = np.zeros((1, 3, 2, 2), np.float32)
    two = one.copy()
    one[0, 1], two[0, 1, 0, 0], two[0, 2] = 1, 1, 0.5
    sums = Sums()
    sums.add(one, two)
    assert sums.figures().agreement == 0.25


def test_a_bound_is_kept_or_not(dpl: Dpl, folder: Path) -> None:
    """The fine steps pass; the coarse ones do not, and the report says by how much."""
    bound = ("--min-sqnr", "25", "--min-cosine", "0.99", "--range", "x=-3:3")
    assert dpl("accuracy", "float.onnx", "fine.onnx", *bound, "--save-inputs", "x.npz").code == 0
    assert dpl("accuracy", "float.onnx", "fine.onnx", *bound[:4], "--inputs", "x.npz").code == 0
    files = ("--json", "r.json", "--junit", "j", "--markdown", "m")
    answer = dpl("accuracy", "float.onnx", "coarse.onnx", *bound, *files)
    assert answer.code == 1
    assert "y: SQNR " in answer.err
    record = json.loads((folder / "r.json").read_text())
    assert record["outputs"][0]["sqnr"] < 25
    assert record["unmet"]
    assert (folder / "j").read_text().count("<failure") == 1
    summary = (folder / "m").read_text()
    assert f"- least SQNR dB: {record['outputs'][0]['sqnr']:.1f}" in summary
    assert "at least 25 is asked for" in summary


def test_steps_that_stand_for_a_relu_are_compared_as_they_are_read(dpl: Dpl, folder: Path) -> None:
    """What is not yet rounded is negative, where the original has zeros."""
    answer = dpl("accuracy", "float.onnx", "fine.onnx", "--layers", "--json", "r.json")
    assert answer.code == 0, answer.err
    layers = json.loads((folder / "r.json").read_text())["layers"]
    assert [layer["name"] for layer in layers][-2:] == ["m", "y"]
    assert all(layer["sqnr"] > 20 for layer in layers)


def test_what_is_finite_in_one_model_alone_is_a_no(dpl: Dpl) -> None:
    """Without any bound, too: a figure over the rest would hide it."""
    answer = dpl("accuracy", "float.onnx", "broken.onnx")
    assert answer.code == 1
    assert "finite in one model alone" in answer.err


def test_a_bound_that_nothing_has_is_a_no(dpl: Dpl, folder: Path) -> None:
    """Labels have no SQNR: to ask for one and pass would say something false."""
    labels = proto_from_text("g (float[2, 3] x) => (int64[2, 1] y) { y = ArgMax <axis = 1> (x) }")
    onnx.save(labels, folder / "labels.onnx")
    assert dpl("accuracy", "labels.onnx", "labels.onnx", "--min-agreement", "1").code == 0
    answer = dpl("accuracy", "labels.onnx", "labels.onnx", "--min-sqnr", "10")
    assert answer.code == 1
    assert "no output has an SQNR" in answer.err


@pytest.mark.parametrize(
    ("second", "why"), [("other.onnx", "has no input 'x'"), ("none.onnx", "none.onnx")]
)
def test_models_that_cannot_be_measured(dpl: Dpl, second: str, why: str) -> None:
    """One message, and exit code 2."""
    answer = dpl("accuracy", "float.onnx", second)
    assert answer.code == 2
    assert why in answer.err


def test_from_python(folder: Path) -> None:
    """The same figures, and the same bound."""
    outcome = dplcli.accuracy(folder / "float.onnx", folder / "coarse.onnx", min_sqnr=60)
    assert not outcome.ok
    sqnr = outcome.measured.outputs[0].accuracy.sqnr
    assert sqnr is not None
    assert sqnr < 60
