"""``dpl partition --merge`` and ``--prune``: tables, JSON, what is left out, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from dplcli.passes.select import REPEATED
from tests.passes.repeating import chain, numbered
from tests.support.helpers import rule_name

if TYPE_CHECKING:
    from tests.cli.support import Answer, Dpl, Save

RULES = """
dpl: 1
target: t
patterns:
  - {name: conv, pattern: "Conv(x, w)"}
  - {name: relu, pattern: Relu(x)}
  - {name: neg, pattern: Neg(x)}
  - {name: own, pattern: 'call("own::heavy", x)'}
"""
OTHERS = """
dpl: 1
target: u
patterns:
  - {name: tanh, pattern: Tanh(x)}
"""
IMAGE = "float[1,1,4,4]"
NET = f"""g ({IMAGE} x) => ({IMAGE} o) <float[1,1,1,1] w = {{2}}> {{
    a = Neg (x) b = Relu (a) [e] e = Exp (b) c = Conv (e, w) d = Relu (c)
    f = Sigmoid (d) o = Neg (f) }}"""


@pytest.fixture
def rules(folder: Path) -> Path:
    """Return a catalogue with light and heavy rules."""
    path = folder / "rules.yaml"
    path.write_text(RULES, encoding="utf-8")
    return path


def merge(dpl: Dpl, *options: object) -> tuple[Answer, dict[str, Any], onnx.ModelProto]:
    """Partition m.onnx and merge; return the answer, the record and the model written."""
    answer = dpl("partition", "m.onnx", "--merge", "-o", "out.onnx", "--json", "r.json", *options)
    with open("r.json", encoding="utf-8") as file:  # noqa: PTH123  # the working directory's
        record = json.load(file)
    return answer, record, onnx.load("out.onnx")


def ops(model: onnx.ModelProto) -> list[str]:
    """Return the operators of the main graph."""
    return [node.op_type for node in model.graph.node]


def test_the_table(dpl: Dpl, save: Save, rules: Path) -> None:
    """Regions have a row per function; a partition without a neighbour is counted."""
    save(NET)
    answer, _, model = merge(dpl, "-p", rules)
    assert answer.code == 0
    assert ops(model) == ["region", "Exp", "region_1", "Sigmoid", "neg"]
    assert answer.out.splitlines()[6:12] == [
        "region       calls  partitions each  inputs  outputs",
        "t::region        1                2       1        1",
        "t::region_1      1                2       2        1",
        "1 partition has no neighbour that it can be merged with.",
        "",
        "5 of 7 nodes (71 %) are inside functions; the main graph went from 7 to 5 nodes.",
    ]


def test_the_record(dpl: Dpl, save: Save, rules: Path) -> None:
    """Each region says what it is made of; a partition by itself is one, too."""
    save(NET)
    _, record, _ = merge(dpl, "-p", rules)
    assert [item["call"] for item in record["partitions"]] == [
        *("neg_0", "relu_0", "conv_0", "relu_1", "neg_1"),
    ]
    assert record["regions"][1:] == [
        {
            "target": "t",
            "function": {"domain": "t", "name": "region_1"},
            "call": "region_1_0",
            "scope": "main",
            "partitions": ["conv_0", "relu_1"],
            "inputs": ["e", "w"],
            "outputs": ["d"],
        },
        {
            "target": "t",
            "function": {"domain": "t", "name": "neg"},
            "call": "neg_1",
            "scope": "main",
            "partitions": ["neg_1"],
            "inputs": ["f"],
            "outputs": ["o"],
        },
    ]


def test_without_merge_there_are_none(dpl: Dpl, save: Save, rules: Path) -> None:
    """The record says null where nobody asked."""
    save(NET)
    answer = dpl("partition", "m.onnx", "-p", rules, "-o", "out.onnx", "--json", "-")
    assert json.loads(answer.out)["regions"] is None


def test_nothing_to_merge(dpl: Dpl, save: Save, rules: Path) -> None:
    """A model without a match is written as it is, and the table says so."""
    path = save(f"g ({IMAGE} x) => ({IMAGE} o) {{ o = Exp (x) }}")
    answer, record, _ = merge(dpl, "-p", rules)
    assert "There are no partitions to merge." in answer.out
    assert "Wrote out.onnx, unchanged." in answer.out
    assert record["regions"] == []
    assert path.with_name("out.onnx").read_bytes() == path.read_bytes()


def test_partitions_of_an_earlier_run(dpl: Dpl, save: Save, rules: Path, folder: Path) -> None:
    """They are merged, whatever their target, though nothing new matches; a third run rests."""
    (folder / "others.yaml").write_text(OTHERS, encoding="utf-8")
    save(NET)
    assert dpl("partition", "m.onnx", "-p", rules, "-o", "first.onnx").code == 0
    (folder / "first.onnx").replace("m.onnx")
    answer, record, model = merge(dpl, "-p", "others.yaml")
    assert answer.code == 0
    assert record["partitions"] == []
    assert "by proof: 2 calls stand for exactly the same nodes" in answer.out
    assert "unchanged" not in answer.out
    assert ops(model) == ["region", "Exp", "region_1", "Sigmoid", "neg"]
    written = (folder / "out.onnx").read_bytes()
    (folder / "out.onnx").replace("m.onnx")
    answer, _, _ = merge(dpl, "-p", rules, "-p", "others.yaml")
    assert "Wrote out.onnx, unchanged." in answer.out
    assert (folder / "out.onnx").read_bytes() == written


def test_prune_leaves_light_regions_out(dpl: Dpl, save: Save, rules: Path) -> None:
    """What is in no region with a heavy operator stays, nodes and all, and the reason is told."""
    save(NET)
    answer, record, model = merge(dpl, "-p", rules, "--prune")
    assert answer.code == 0
    assert ops(model) == ["Neg", "Relu", "Exp", "region", "Sigmoid", "Neg"]
    assert sorted(function.name for function in model.functions) == ["conv", "region", "relu"]
    assert record["counts"] == {"t.conv": 1, "t.relu": 1}
    assert [item["call"] for item in record["regions"]] == ["region_0"]
    several = "none of the 2 partitions of its region has a heavy operator"
    assert {
        (item["root"]["output"], item["stage"], item["reason"]) for item in record["refused"]
    } == {
        ("a", "prune", several),
        ("b", "prune", several),
        ("o", "prune", "it has no heavy operator and no neighbour"),
    }
    assert f"prune: {several}" in answer.out


def test_prune_changes_nothing_the_second_time(
    dpl: Dpl, save: Save, rules: Path, folder: Path
) -> None:
    """What was left out is left out again."""
    save(NET)
    merge(dpl, "-p", rules, "--prune")
    written = (folder / "out.onnx").read_bytes()
    (folder / "out.onnx").replace("m.onnx")
    answer, _, _ = merge(dpl, "-p", rules, "--prune")
    assert "Wrote out.onnx, unchanged." in answer.out
    assert (folder / "out.onnx").read_bytes() == written


def test_prune_keeps_the_only_region(dpl: Dpl, save: Save, rules: Path) -> None:
    """A target's only region stays, light as it is."""
    save(f"g ({IMAGE} x) => ({IMAGE} o) {{ a = Neg (x) b = Relu (a) o = Exp (b) }}")
    _, record, model = merge(dpl, "-p", rules, "--prune")
    assert ops(model) == ["region", "Exp"]
    assert record["refused"] == []


def test_prune_with_light_regions_only(dpl: Dpl, save: Save, rules: Path, folder: Path) -> None:
    """Several light regions all go, and the model is as it was, to the byte."""
    save(f"g ({IMAGE} x) => ({IMAGE} o) {{ a = Neg (x) b = Exp (a) o = Relu (b) }}")
    answer, _, _ = merge(dpl, "-p", rules, "--prune")
    assert "Wrote out.onnx, unchanged." in answer.out
    assert (folder / "out.onnx").read_bytes() == (folder / "m.onnx").read_bytes()


def test_prune_looks_into_functions(dpl: Dpl, save: Save, rules: Path) -> None:
    """A partition that calls a function with a convolution in it is heavy."""
    save(
        onnx.parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
            g ({IMAGE} x) => ({IMAGE} o) {{ a = own.heavy (x) b = Exp (a) o = Neg (b) }}
            <domain: "own", opset_import: ["" : 17]> heavy (x) => (y) {{
                w = Constant <value = float[1,1,1,1] {{2}}> () c = Conv (x, w) y = Exp (c) }}"""
        )
    )
    rules.write_text(RULES.replace('"Conv(x, w)"', "Sin(x)"), encoding="utf-8")
    _, _, model = merge(dpl, "-p", rules, "--prune", "--no-verify")
    assert list(map(rule_name, ops(model))) == ["own", "Exp", "Neg"]


def test_prune_counts_each_target_by_itself(
    dpl: Dpl, save: Save, rules: Path, folder: Path
) -> None:
    """The only region of another target stays."""
    (folder / "others.yaml").write_text(OTHERS, encoding="utf-8")
    save(NET.replace("Sigmoid", "Tanh"))
    _, _, model = merge(dpl, "-p", rules, "-p", "others.yaml", "--prune")
    assert ops(model) == ["Neg", "Relu", "Exp", "region", "tanh", "Neg"]


def test_prune_may_leave_an_expectation_unmet(dpl: Dpl, save: Save, rules: Path) -> None:
    """What was left out does not count."""
    save(NET)
    options = ("--merge", "--prune", "--expect", "t.neg>=1", "-o", "out.onnx")
    answer = dpl("partition", "m.onnx", "-p", rules, *options)
    assert answer.code == 1
    assert "t.neg" in answer.err


def test_prune_without_merge(dpl: Dpl, save: Save, rules: Path, folder: Path) -> None:
    """There are no regions then: a usage error."""
    save(NET)
    answer = dpl("partition", "m.onnx", "-p", rules, "--prune", "-o", "out.onnx")
    assert answer.code == 2
    assert answer.message == "--prune is about the regions that --merge makes"
    assert answer.hint == "pass both"
    assert not (folder / "out.onnx").exists()


def test_partitions_that_were_there_are_inside(dpl: Dpl, save: Save, rules: Path) -> None:
    """A second run says of the first one's calls that they are inside, in text and JSON."""
    save(NET)
    merge(dpl, "-p", rules)
    Path("others.yaml").write_text(OTHERS, encoding="utf-8")
    again = ("partition", "out.onnx", "-p", "others.yaml", "-o", "two.onnx", "--json", "r.json")
    assert dpl(*again).code == 0
    coverage = json.loads(Path("r.json").read_text(encoding="utf-8"))["coverage"]
    assert (coverage["nodes"], coverage["of"]) == (3, 5)
    assert coverage["by_op"]["t.region"]["covered"] == 1
    assert {name: work["nodes"] for name, work in coverage["by_target"].items()} == {"t": 3}
    assert sorted(item["op"] for item in coverage["left_out"]) == ["Exp", "Sigmoid"]
    assert (
        "3 of 5 nodes (60 %) are inside functions, 3 of them calls that were there before; "
        "the main graph went from 5 to 5 nodes." in dpl(*again[:-2]).out
    )


def test_repeated_blocks_are_no_partitions(dpl: Dpl, save: Save, rules: Path) -> None:
    """A repeated block stays what it is: no target takes it, nor what calls it."""
    block = "b# = Tanh (@) c# = Sin (b#) d# = Exp (c#) e# = Abs (d#)"
    save(chain(3, numbered(block), last="Neg"))
    assert dpl("repeat", "m.onnx", "--in-place", "--no-verify").code == 0
    answer, record, model = merge(dpl, "-p", rules)
    assert answer.code == 0
    assert ops(model) == ["block", "block", "block", "neg"]
    assert [item["call"] for item in record["regions"]] == ["neg_0"]
    left = {item["op"]: item["reason"] for item in record["coverage"]["left_out"]}
    assert left == {"repeat.block": REPEATED}
    assert record["coverage"]["nodes"] == 1
