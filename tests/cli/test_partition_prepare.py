"""``dpl partition --prepare``: rewritten first, the result judged against the model as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.cli.support import contents
from tests.support.helpers import rule_name

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.support import Dpl, Save

NET = """g (float[n,4] x) => (float[n,3] y)
    <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {1,2,3}> {
    i = Identity (x) m = MatMul (i, w) a = Add (m, b) d = Dropout (a) y = Relu (d) }"""
RULES = """
dpl: 1
target: t
patterns:
  - {name: gemm_relu, pattern: "Relu(Gemm(x, const(w), const(b)))"}
"""


@pytest.fixture
def rules(folder: Path) -> Path:
    """Return a catalogue whose rule fits what ``prepare`` makes, and nothing that was there."""
    path = folder / "rules.yaml"
    path.write_text(RULES, encoding="utf-8")
    return path


def test_both_in_one_go(dpl: Dpl, save: Save, rules: Path) -> None:
    """One file comes out; the report says what was rewritten, and of what a call is proved."""
    save(NET)
    alone = dpl("partition", "m.onnx", "-p", rules, "-o", "alone.onnx")
    both = dpl("partition", "m.onnx", "-p", rules, "--prepare", "-o", "o.onnx", "--json", "r.json")

    assert "None of the 1 rules matches" in alone.out or "does not match" in alone.out
    assert (both.code, both.err) == (0, "")
    lines = both.out.splitlines()
    assert lines[0].startswith("Prepared: 5 nodes became 2 by 3 applications: ")
    assert "matmul_add_to_gemm 1" in lines[0]
    assert "2 of 2 nodes (100 %) are inside functions; the main graph went from 5 to 1 nodes." in (
        lines
    )
    assert "Of the prepared model, 1 call stands for exactly the same nodes: proved by " in both.out
    assert lines[-1] == "Wrote o.onnx."
    result = onnx.load("o.onnx")
    assert [rule_name(node.op_type) for node in result.graph.node] == ["gemm_relu"]
    fed = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    (expected,), (found,) = (ort.InferenceSession(m).run(None, fed) for m in ("m.onnx", "o.onnx"))
    np.testing.assert_allclose(expected, found)


def test_the_record(dpl: Dpl, save: Save, rules: Path, folder: Path) -> None:
    """It says what prepare did; without --prepare there is no such entry."""
    save(NET)
    dpl("partition", "m.onnx", "-p", rules, "--prepare", "-o", "o.onnx", "--json", "r.json")
    dpl("partition", "m.onnx", "-p", rules, "-o", "p.onnx", "--json", "s.json")
    record, other = (json.loads((folder / name).read_text()) for name in ("r.json", "s.json"))

    prepared = record["prepared"]
    assert prepared["nodes"] == {"before": 5, "after": 2}
    assert prepared["counts"]["matmul_add_to_gemm"] == 1
    assert all(prepared["counts"].values())
    assert prepared["proof"] == "1 call stands for exactly the same nodes"
    assert prepared["unproved"] == ""
    assert record["verification"]["equivalent"] is True
    assert record["verification"]["proof"] is None, "of the original nothing is proved"
    assert "prepared" not in other


def test_nothing_to_prepare(dpl: Dpl, save: Save, rules: Path) -> None:
    """Then it is a partition as any other, proved against the original."""
    save("""g (float[n,4] x) => (float[n,3] y)
        <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {1,2,3}> {
        m = Gemm (x, w, b) y = Relu (m) }""")
    answer = dpl("partition", "m.onnx", "-p", rules, "--prepare", "-o", "o.onnx")

    assert answer.code == 0
    assert answer.out.splitlines()[0] == "Nothing is to be prepared."
    assert "Equivalent by proof: 1 call stands for exactly the same nodes" in answer.out
    assert "Of the prepared model" not in answer.out


def test_no_match_is_no_reason_to_drop_what_was_prepared(dpl: Dpl, save: Save, rules: Path) -> None:
    """The result is the prepared model, and is judged as a rewrite is."""
    save("g (float[n,4] x) => (float[n,4] y) { i = Identity (x) t = Tanh (i) y = Identity (t) }")
    answer = dpl("partition", "m.onnx", "-p", rules, "--prepare", "-o", "o.onnx")

    assert answer.code == 0
    assert "Equivalent" in answer.out
    assert "unchanged" not in answer.out
    assert [node.op_type for node in onnx.load("o.onnx").graph.node] == ["Tanh"]


def test_a_second_run_changes_nothing(dpl: Dpl, save: Save, rules: Path, folder: Path) -> None:
    """Neither what was prepared nor what was outlined is touched again."""
    save(NET)
    options = ("-p", rules, "--prepare", "-o")
    dpl("partition", "m.onnx", *options, "o.onnx")
    again = dpl("partition", "o.onnx", *options, "p.onnx")

    assert again.code == 0
    assert (folder / "o.onnx").read_bytes() == (folder / "p.onnx").read_bytes()


def test_it_can_replace_the_model(dpl: Dpl, save: Save, rules: Path) -> None:
    """The original is there until the result is known to be equivalent to it."""
    path = save(NET)
    answer = dpl("partition", "m.onnx", "-p", rules, "--prepare", "--in-place")

    assert answer.code == 0
    assert "Equivalent in onnxruntime" in answer.out
    assert [rule_name(node.op_type) for node in onnx.load(path).graph.node] == ["gemm_relu"]


@pytest.mark.parametrize(
    "options", [("--expect", "t.gemm_relu>=2"), ("--rtol", "0", "--atol", "-1")]
)
def test_a_no_leaves_no_file(
    dpl: Dpl, save: Save, rules: Path, folder: Path, options: tuple[str, ...]
) -> None:
    """Neither the result nor the prepared model stays behind."""
    save(NET)
    before = contents(folder)
    answer = dpl("partition", "m.onnx", "-p", rules, "--prepare", "-o", "o.onnx", *options)

    assert answer.code != 0
    assert contents(folder) == before


def test_weights_in_other_files(dpl: Dpl, save: Save, rules: Path, folder: Path) -> None:
    """They are copied beside the result once, and stay there."""
    proto = onnx.load(save(NET, "whole.onnx"))
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        )
    (folder / "from").mkdir()
    (folder / "to").mkdir()
    onnx.save(
        proto,
        folder / "from" / "m.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    answer = dpl("partition", "from/m.onnx", "-p", rules, "--prepare", "-o", "to/o.onnx")

    assert (answer.code, answer.err) == (0, "")
    assert {path.name for path in (folder / "to").iterdir()} == {"o.onnx", "w.bin"}
    assert {path.name for path in (folder / "from").iterdir()} == {"m.onnx", "w.bin"}
    fed = {"x": np.ones((2, 4), np.float32)}
    (expected,) = ort.InferenceSession("from/m.onnx").run(None, fed)
    (found,) = ort.InferenceSession("to/o.onnx").run(None, fed)
    np.testing.assert_allclose(expected, found)


def test_a_file_of_that_name_is_not_taken_for_the_catalogue(
    dpl: Dpl, save: Save, rules: Path, folder: Path
) -> None:
    """--prepare means the rules that dpl ships."""
    save(NET)
    (folder / "prepare").write_text("no catalogue at all", encoding="utf-8")
    (folder / "prepare.yaml").write_text("dpl: [", encoding="utf-8")
    answer = dpl("partition", "m.onnx", "-p", rules, "--prepare", "-o", "o.onnx")

    assert (answer.code, answer.err) == (0, "")


def test_regions_are_pruned_in_the_prepared_model(dpl: Dpl, save: Save, folder: Path) -> None:
    """Pruning begins anew with the model as it was prepared, not as it was."""
    save("""g (float[n,4] x) => (float[n,3] y, float[n,4] z)
        <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {1,2,3}> {
        m = MatMul (x, w) a = Add (m, b) y = Relu (a) i = Identity (x) t = Tanh (i)
        z = Identity (t) }""")
    path = folder / "rules.yaml"
    path.write_text(RULES + '  - {name: tanh, pattern: "Tanh(x)"}\n', encoding="utf-8")
    options = ("-p", path, "--prepare", "--merge", "--prune", "-o", "o.onnx")
    answer = dpl("partition", "m.onnx", *options)

    assert answer.code == 0, answer.err
    names = sorted(rule_name(node.op_type) for node in onnx.load("o.onnx").graph.node)
    assert names == ["Tanh", "gemm_relu"]
    assert "proved by structure" in answer.out


def test_unverified(dpl: Dpl, save: Save, rules: Path) -> None:
    """Nothing is proved that was not to be checked."""
    save(NET)
    answer = dpl("partition", "m.onnx", "-p", rules, "--prepare", "--no-verify", "-o", "o.onnx")

    assert answer.code == 0
    assert "Not verified, as asked." in answer.out
    assert "proved" not in answer.out
