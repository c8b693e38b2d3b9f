"""Where checks of other tools give the wrong answer, this one gives the right one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from dplcli.onnx_io import load_model
from dplcli.verify import Check
from dplcli.verify.equivalence import verify_equivalence
from tests.support.calling import exit_code

Save = Callable[..., Path]

ADDS = "g (float[2, 3] x, float[2, 3] z) => (float[2, 3] y) { y = Add (x, z) }"
WRONG_RULE = """\
dpl: 1
rewrites:
  - name: add_to_sub
    pattern: Add(x, z)
    replacement: Sub(x, z)
"""
FOLDABLE = """g (float[1, 2, 5, 5] x) => (float[1, 3, 5, 5] y)
<float[3, 2, 1, 1] w = {1, 2, 3, 4, 5, 6}, float[3] s = {1, 2, 3}, float[3] b = {0.5, 0, 1},
 float[3] m = {0.1, 0.2, 0.3}, float[3] v = {1, 2, 3}>
{ c = Conv (x, w) n = BatchNormalization (c, s, b, m, v) y = Relu (n) }"""
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.fixture
def dpl(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that runs a command and gives its exit code."""

    def call(*arguments: object) -> int:
        return exit_code(monkeypatch, arguments)

    return call


def test_f7_a_mismatch_is_exit_code_1_and_nothing_is_written(
    save: Save, tmp_path: Path, dpl: Callable[..., int]
) -> None:
    """A rule that changes the numbers leaves no file behind, and CI notices."""
    rules, out = tmp_path / "wrong.yaml", tmp_path / "out.onnx"
    rules.write_text(WRONG_RULE)

    assert dpl("rewrite", save(ADDS), "-p", rules, "-o", out, "--all-or-nothing") == 1
    assert not out.exists()
    assert dpl("rewrite", save(ADDS), "-p", rules, "-o", out, "--no-verify") == 0
    assert dpl("verify", save(ADDS), out) == 1


@pytest.mark.parametrize("option", ["--skip", "--only"])
def test_f8_a_misspelt_rule_is_an_error(
    save: Save,
    tmp_path: Path,
    dpl: Callable[..., int],
    capfd: pytest.CaptureFixture[str],
    option: str,
) -> None:
    """A name that no rule has is refused, with the one that was meant."""
    rules, out = tmp_path / "wrong.yaml", tmp_path / "out.onnx"
    rules.write_text(WRONG_RULE)

    assert dpl("rewrite", save(ADDS), "-p", rules, "-o", out, option, "add_to_subb") == 2
    assert "add_to_sub" in capfd.readouterr().err.replace("add_to_subb", "")
    assert not out.exists()


def test_f9_a_value_that_kept_its_name_but_not_its_meaning_is_no_difference(
    save: Save, tmp_path: Path, dpl: Callable[..., int]
) -> None:
    """BatchNormalization folded into Conv: the values between differ, the model does not."""
    path, out = save(FOLDABLE), tmp_path / "out.onnx"

    assert dpl("rewrite", path, "-p", "prepare", "-o", out) == 0

    kinds = [node.op_type for node in load_model(out).graph]
    assert "BatchNormalization" not in kinds
    assert dpl("verify", path, out) == 0


def test_f10_token_ids_cover_the_vocabulary(save: Save) -> None:
    """Ids come from the whole table, not from 0 and 1, and never from beyond it."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "g (int64[batch, length] ids) => (float[batch, length, 2] y) { y = Gather (w, ids) }"
    )
    table = np.arange(2000, dtype=np.float32).reshape(1000, 2)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "w"))
    path = save(model)

    found = verify_equivalence(path, path, Check(sizes={"batch": 4, "length": 64}))

    (choice,) = found.inputs
    assert choice.low is not None
    assert choice.high is not None
    assert 0 <= choice.low < 100
    assert 900 < choice.high < 1000
