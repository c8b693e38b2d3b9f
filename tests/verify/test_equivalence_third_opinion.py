"""Whom onnx's reference evaluator agrees with, and what it makes of the two models."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dplcli.report.tables import third_opinions
from dplcli.verify import Check, Execution, InputRequest
from dplcli.verify.equivalence import Evaluator, verify_equivalence
from dplcli.verify.run import Runner
from dplcli.verify.values import Leaf, ModelSource, StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Save = Callable[..., Path]

ROOT = Path(__file__).parents[2]
NET = """g (float[N, 3] x) => (float[N, 2] y)
<float[3, 2] w = {0.5, -1.25, 2, 0.75, -0.3, 1}>
{ t = MatMul (x, w) y = Relu (t) }"""
NARROW = {17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2"}
ASK = Check(third_opinion=True)


def test_it_sides_with_the_original_against_a_wrong_candidate(save: Save) -> None:
    """A wrong weight is wrong in every runtime, at each level."""
    result = verify_equivalence(save(NET), save(NET.replace("-1.25", "-1.2"), "wrong"), ASK)

    assert [(o.output, o.level, o.agrees_with, o.models_agree) for o in result.opinions] == [
        ("y", "disable", "original", False),
        ("y", "all", "original", False),
    ]
    assert "agrees with the original on y at level disable" in result.opinions[0].sentence()


def test_it_is_not_asked_about_what_passes(save: Save) -> None:
    """Where the models agree there is nothing to decide."""
    path = save(NET)

    assert verify_equivalence(path, path, ASK).opinions == ()


def test_it_is_not_asked_unless_wanted(save: Save) -> None:
    """It can be slow."""
    assert verify_equivalence(save(NET), save(NET.replace("Relu", "Abs"), "wrong")).opinions == ()


def leaves(*values: float) -> tuple[Leaf, ...]:
    """Return an output of one tensor."""
    return (Leaf("", "float32", np.array(values, np.float32)),)


def equal(_name: str, expected: Sequence[Leaf], actual: Sequence[Leaf], _seed: int) -> bool:
    """Compare without tolerance."""
    return bool((expected[0].data == actual[0].data).all())


@pytest.mark.parametrize(
    ("original", "candidate", "side"),
    [(2.0, 5.0, "original"), (5.0, 2.0, "candidate"), (2.0, 2.0, "both"), (5.0, 6.0, "neither")],
)
def test_it_says_whom_it_agrees_with(
    save: Save, original: float, candidate: float, side: str
) -> None:
    """And that both files say the same, so that the difference is onnxruntime's."""
    source = ModelSource(save("g (float[1] x) => (float[1] y) { y = Add (x, x) }"))
    feeds = {0: {"x": np.ones(1, np.float32)}}
    (failed,) = verify_equivalence(source.path, source.path, Check(levels=("all",))).outputs

    found = Evaluator(source, source, feeds, equal).opinion(
        failed, {0: {"y": leaves(original)}}, {0: {"y": leaves(candidate)}}
    )

    assert (found.agrees_with, found.models_agree) == (side, True)
    assert found.sentence().endswith("both models equal, so the difference is onnxruntime's")


def test_an_operator_it_does_not_know_leaves_it_without_opinion(save: Save) -> None:
    """That is said, and the verdict stands."""
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[2] x) => (float[2] y) <float[1] w = {%s}>
    { t = com.microsoft.QuickGelu <alpha = 1.0> (x) y = Mul (t, w) }"""

    result = verify_equivalence(save(text % 1), save(text % 2, "wrong"), ASK)

    assert not result.equivalent
    assert result.opinions[0].agrees_with is None
    assert "could not say anything of y" in result.opinions[0].sentence()
    assert "QuickGelu" in result.opinions[0].problem


@pytest.mark.long
@pytest.mark.parametrize("error", [np.exceptions.AxisError("axis 3"), KeyError("y"), IndexError()])
@pytest.mark.parametrize("when", ["run", "agree"])
def test_whatever_it_raises_leaves_it_without_opinion(
    save: Save, monkeypatch: pytest.MonkeyPatch, when: str, error: Exception
) -> None:
    """Its operators are written for clarity: they raise, and give, anything."""

    def fail(*_: object, **__: object) -> bool:
        raise error

    source = ModelSource(save("g (float[1] x) => (float[1] y) { y = Add (x, x) }"))
    (failed,) = verify_equivalence(source.path, source.path, Check(levels=("all",))).outputs
    if when == "run":
        monkeypatch.setattr(Runner, "run", fail)
    feeds = {0: {"x": np.ones(1, np.float32)}}
    evaluator = Evaluator(source, source, feeds, fail if when == "agree" else equal)

    found = evaluator.opinion(failed, {0: {"y": leaves(1)}}, {0: {"y": leaves(2)}})

    assert (found.agrees_with, found.models_agree) == (None, None)
    assert type(error).__name__ in found.problem
    assert "could not say anything of y at level all, seed 0, because " in found.sentence()
    assert "\n" not in found.sentence()


def test_a_candidate_it_does_not_run_is_said(save: Save) -> None:
    """It still tells whom it agrees with."""
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[2] x) => (float[2] y) { y = com.microsoft.QuickGelu <alpha = 1.0> (x) }"""
    original = "g (float[2] x) => (float[2] y) { y = Relu (x) }"

    result = verify_equivalence(save(original), save(text, "wrong"), ASK)

    assert (result.opinions[0].agrees_with, result.opinions[0].models_agree) == ("original", None)
    assert "it could not say anything of the candidate, because " in result.opinions[0].sentence()


STEPS = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float s = {0.5}, float c = {1.5}> {
  k = com.microsoft.QuickGelu <alpha = 1.0> (x)  l = Mul (k, c)  f = Floor (l)
  y = Mul (f, s)  z = Abs (f) }"""


@pytest.mark.long
def test_it_is_asked_about_a_place_inside(save: Save) -> None:
    """It lacks an operator of the whole; of the place that differs by itself it knows all."""
    wrong = STEPS.replace("1.5", "4.5")
    found = verify_equivalence(save(STEPS), save(wrong, "wrong"), ASK)

    assert not found.equivalent
    *mute, inside = found.opinions
    assert {opinion.agrees_with for opinion in mute} == {None}
    assert (inside.output, inside.agrees_with, inside.models_agree) == ("l", "original", False)
    said = third_opinions(found.opinions)
    assert len(said) == 2
    assert said[1] == (
        "third opinion: onnx's reference evaluator agrees with the original on the value 'l' by "
        "itself; it finds that the models differ"
    )


def test_it_is_asked_where_no_output_shows_the_difference(save: Save) -> None:
    """The place alone is refused, so there is no output to ask about."""
    text = """g (float[4] x) => (float[4] y) <float k = {K}, float s = {100.0}, uint8 z = {128}>
    { a = Mul (x, k)  q = QuantizeLinear (a, s, z)  y = Cast <to = 1> (q) }"""
    request = InputRequest(ranges={"x": (1.0, 9.0)})
    paths = save(text.replace("K", "1.0")), save(text.replace("K", "1.01"), "wrong")

    found = verify_equivalence(*paths, replace(ASK, request=request))

    assert all(output.ok for output in found.outputs)
    assert [(o.output, o.agrees_with, o.is_inside) for o in found.opinions] == [
        ("a", "original", True)
    ]


@pytest.mark.long
def test_why_it_says_nothing_is_one_line(save: Save) -> None:
    """However many outputs differ; and there is a line, too, if there is nothing to ask about."""
    text = STEPS.replace("y = Mul (f, s)  z = Abs (f)", "y = Mul (k, s)  z = Add (k, s)")
    wrong = text.replace("alpha = 1.0", "alpha = 2.0")
    mute = verify_equivalence(save(text), save(wrong, "wrong"), ASK)
    refused = verify_equivalence(save(NET), save(NET.replace("Relu", "QuickGelu"), "wrong"), ASK)
    other = verify_equivalence(save(NET), save(NET.replace("N, 3", "N, 4"), "wrong"), ASK)

    (said,) = third_opinions(mute.opinions)
    assert "could not say anything of y at level disable, seed 1 (and 3 more), because " in said
    for result in (refused, other):
        assert result.reasons
        (said,) = third_opinions(result.opinions)
        assert said.endswith(
            "was not asked, because the candidate gave nothing that could be compared"
        )


def test_functions_may_stand_in_any_order(save: Save) -> None:
    """One that calls another that comes later is known to it, too."""
    text = """<ir_version: 8, opset_import: ["" : 17, "l" : 1]>
    g (float[3] x) => (float[3] y) { y = l.outer (x) }
    <domain: "l", opset_import: ["" : 17, "l" : 1]> outer (a) => (b) { b = l.inner (a) }
    <domain: "l", opset_import: ["" : 17]> inner (a) => (b) { b = Relu (a) }"""

    found = verify_equivalence(save(text), save(text.replace("Relu", "Exp"), "wrong"), ASK)

    assert {opinion.agrees_with for opinion in found.opinions} == {"original"}


def test_refilled_weights_are_what_it_computes_with(save: Save) -> None:
    """Weights that live in memory only reach the evaluator, too."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3] x) => (float[2, 2] y) <int64[2] s = {3, 2}>
    { w = ConstantOfShape <value = float[1] {1}> (s) t = MatMul (x, w) y = %s (t) }"""
    settings = Check(third_opinion=True, refill_weights=True)

    result = verify_equivalence(save(text % "Relu"), save(text % "Abs", "wrong"), settings)

    assert result.refilled == 1
    assert {o.agrees_with for o in result.opinions} == {"original"}


@pytest.mark.parametrize("isolated", [True, False])
def test_bfloat16_is_compared_as_onnxruntime_gives_it(save: Save, isolated: bool) -> None:  # noqa: FBT001
    """The evaluator's own type for it becomes float32 of that name."""
    text = '<ir_version: 9, opset_import: ["" : 19]> g (float[2] x) => (bfloat16[2] y)'
    path = save(text + "{ y = Cast <to = 16> (x) }")
    source = ModelSource(path, execution=Execution(isolated=isolated))
    feeds = {"x": np.array([1.5, -2], np.float32)}

    ours, theirs = (
        Runner(source, "disable", engine).run(feeds)["y"][0]
        for engine in ("onnxruntime", "reference")
    )

    assert (ours.dtype, ours.data.tolist()) == (theirs.dtype, theirs.data.tolist())


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize(
    ("code", "given", "steps"),
    [
        pytest.param(17, [-0.0, 2.0**-9, -(2.0**-9)], [0, 1, -1], id="e4m3fn"),
        pytest.param(18, [-0.0, 2.0**-10, np.nan], [0, 1, -128], id="e4m3fnuz"),
        pytest.param(19, [-0.0, 2.0**-16, -1.0], [0, 1, -60], id="e5m2"),
    ],
)
def test_float8_is_compared_in_steps(
    save: Save,
    code: int,
    given: list[float],
    steps: list[int],
    isolated: bool,  # noqa: FBT001
) -> None:
    """Its shape is kept, neighbours are one apart, and -0 is 0, whoever runs the model."""
    text = '<ir_version: 9, opset_import: ["" : 19]> g (float[3, 1] x) => (%s[3, 1] y)'
    body = f"{{ y = Cast <to = {code}> (x) }}"
    source = ModelSource(save(text % NARROW[code] + body), execution=Execution(isolated=isolated))
    feeds = {"x": np.array(given, np.float32).reshape(3, 1)}

    for engine in ("onnxruntime", "reference"):
        leaf = Runner(source, "disable", engine).run(feeds)["y"][0]

        assert leaf.data.shape == (3, 1)
        assert leaf.data.reshape(-1).tolist() == steps, engine


def test_a_float8_output_of_another_shape_is_another_output(save: Save) -> None:
    """Two rows of three are no three rows of two, though the bytes are the same."""
    text = """<ir_version: 9, opset_import: ["" : 19]>
    g (float[2, 3] x) => (float8e4m3fn[a, b] y) <int64[2] s = {%s}>
    { r = Reshape (x, s) y = Cast <to = 17> (r) }"""

    result = verify_equivalence(save(text % "2, 3"), save(text % "3, 2", "wrong"))

    assert {output.reason for output in result.outputs} == {"its shape is (3, 2), not (2, 3)"}


@pytest.mark.long
def test_a_hang_of_the_evaluator_meets_the_time_limit(save: Save) -> None:
    """It is run like any model: apart from us, and within limits."""
    text = """g (int64 n) => (int64 y) <bool c = {1}> { y = Loop (n, c, n)
    <body = b (int64 i, bool k, int64 a) => (bool l, int64 o)
    { l = Identity (k) o = Add (a, i) }> }"""
    source = ModelSource(save(text), execution=Execution(timeout=2))
    runner = Runner(source, "disable", "reference")

    with pytest.raises(StoppedError, match="within 2 s") as caught:
        runner.run({"n": np.array(10**9)})
    assert "in onnx's reference evaluator" in str(caught.value)


@pytest.mark.long
def test_a_time_limit_is_why_it_says_nothing(save: Save) -> None:
    """What onnxruntime runs in no time takes it minutes: the verdict stands, with a line."""
    text = """g (float[1, 8, 8, 8] x) => (float[2, 8, 300, 300] y)
    <float[2, 4] rois = {0, 0, 7, 7, 1, 1, 6, 6}, int64[2] of = {0, 0}>
    { r = RoiAlign <output_height = 300, output_width = 300, sampling_ratio = 2> (x, rois, of)
      y = %s (r) }"""
    settings = replace(ASK, seeds=(0,), levels=("disable",), execution=Execution(timeout=3))

    found = verify_equivalence(save(text % "Neg"), save(text % "Abs", "wrong"), settings)

    assert not found.equivalent
    said, _ = third_opinions(found.opinions)  # of the model, and of the last node by itself
    assert said.endswith("because it did not finish within 3 s running the original")


@pytest.mark.long
def test_the_command_prints_and_records_it(save: Save) -> None:
    """``--third-opinion`` adds lines to the report, and ``third_opinion`` to the record."""
    paths = save(NET), save(NET.replace("Relu", "Abs"), "wrong")
    command = [sys.executable, "-m", "dplcli", "verify", *map(str, paths), "--third-opinion"]
    shown, record = (
        subprocess.run(  # noqa: S603  # our own program
            [*command, *more],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=ROOT,
        )
        for more in ([], ["--json", "-"])
    )

    assert shown.returncode == record.returncode == 1
    assert "onnx's reference evaluator agrees with the original on y at level disable" in " ".join(
        shown.stdout.split()
    )
    assert json.loads(record.stdout)["third_opinion"][0]["agrees_with"] == "original"
