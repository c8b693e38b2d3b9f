"""``dpl repeat`` as a user meets it."""

import json
import re
from pathlib import Path

import onnx
import pytest

from tests.cli.support import Dpl, contents
from tests.passes.repeating import chain, numbered

LAYERS = chain(3, numbered("a# = Relu (@) b# = Sin (a#) c# = Mul (b#, @) d# = Tanh (c#)"))
TEXT = f'<ir_version: 8, opset_import: ["" : 17]> {LAYERS}'
REPEAT = ("repeat", "m.onnx", "-o", "out.onnx")


@pytest.fixture
def layers(folder: Path) -> Path:
    """Save three layers as m.onnx."""
    onnx.save(onnx.parser.parse_model(TEXT), folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.usefixtures("layers")
def test_a_table_a_verdict_and_a_file(dpl: Dpl, folder: Path) -> None:
    """Exit 0, one row per kind of block, nodes and bytes before and after, one new file."""
    answer = dpl(*REPEAT)

    assert (answer.code, answer.err) == (0, "")
    row = next(line.split() for line in answer.out.splitlines() if line.startswith("repeat::"))
    assert row == ["repeat::block", "3", "4", "92", "%", "1", "1", "inputs", "alone"]
    assert "12 of 13 nodes (92 %) are inside functions" in answer.out
    assert "the main graph went from 13 to 4 nodes" in answer.out
    size = (folder / "out.onnx").stat().st_size
    assert f"to {size:,} bytes" in answer.out
    assert "by proof: 3 calls stand for exactly the same nodes" in answer.out
    assert sorted(contents(folder)) == ["m.onnx", "out.onnx"]


@pytest.mark.usefixtures("layers")
def test_json_is_that_of_a_partition(dpl: Dpl, folder: Path) -> None:
    """The partitions as for patterns, and the kinds of blocks."""
    assert dpl(*REPEAT, "--json", "out.json", "--quiet").out == ""
    record = json.loads((folder / "out.json").read_text())

    assert record["schema"] == "dpl.partition/1"
    assert record["counts"] == {"repeat.block": 3}
    assert [item["call"] for item in record["partitions"]] == ["block_0", "block_1", "block_2"]
    assert [node["output"] for node in record["partitions"][1]["nodes"]] == ["a1", "b1", "c1", "d1"]
    assert record["coverage"]["nodes"] == 12
    assert record["verification"]["equivalent"]
    assert record["regions"] is None
    (family,) = record["families"]
    assert (family["calls"], family["nodes"], family["nested"]) == (3, 4, False)
    assert family["differing"] == {"attributes": [], "weight_shapes": 0}


@pytest.mark.usefixtures("layers")
def test_a_second_run_changes_nothing(dpl: Dpl, folder: Path) -> None:
    """What was outlined stays as it is, and the answer says so."""
    dpl(*REPEAT)
    answer = dpl("repeat", "out.onnx", "-o", "again.onnx")

    assert (answer.code, answer.err) == (0, "")
    assert "No block repeats often enough" in answer.out
    assert "Wrote again.onnx, unchanged." in answer.out
    assert onnx.load(folder / "again.onnx") == onnx.load(folder / "out.onnx")


@pytest.mark.usefixtures("layers")
@pytest.mark.parametrize(
    ("option", "calls"),
    [
        (("--min-repeats", "4"), 0),
        (("--min-nodes", "5"), 0),
        (("--min-saving", "39"), 0),
        (("--min-saving", "38"), 3),
        (("--max-families", "1"), 3),
        (("--same-attributes",), 3),
        (("--nested",), 3),
    ],
)
def test_what_counts_as_a_block(
    dpl: Dpl, folder: Path, option: tuple[str, ...], calls: int
) -> None:
    """Each limit keeps out what does not meet it: five of thirteen nodes are saved."""
    assert dpl(*REPEAT, "--no-verify", *option).code == 0
    graph = onnx.load(folder / "out.onnx").graph
    assert sum(node.domain == "repeat" for node in graph.node) == calls


@pytest.mark.usefixtures("layers")
def test_verbose_lists_the_calls(dpl: Dpl) -> None:
    """From which node to which each call goes; progress is on the other stream."""
    answer = dpl(*REPEAT, "--verbose")
    assert "block_2  block  Relu:a2  Tanh:d2  4" in answer.out
    assert "dpl: searching for repeated blocks" in answer.err


@pytest.mark.usefixtures("layers")
@pytest.mark.parametrize(
    ("expectation", "code"),
    [("repeat.block>=3", 0), ("repeat.block==2", 1), ("repeat.layer>=1", 1)],
)
def test_expectations(dpl: Dpl, folder: Path, expectation: str, code: int) -> None:
    """A block that was not found was found zero times; what is not as expected is not written."""
    answer = dpl(*REPEAT, "--expect", expectation)
    assert answer.code == code
    assert (folder / "out.onnx").exists() == (code == 0)
    if code:
        assert f"dpl: expected {expectation}, found" in answer.err


@pytest.mark.usefixtures("layers")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--patterns", "conv_relu"), "No such option:? '?--patterns"),
        (("--merge",), "No such option:? '?--merge"),
        (("--expect", "dnnl.x>=1"), "there is no rule 'dnnl.x'"),
        (("--expect", "nonsense"), "not an expectation"),
        (("--min-repeats", "1"), "Invalid value for '--min-repeats'"),
        (("--min-saving", "101"), "Invalid value for '--min-saving'"),
    ],
)
def test_bad_usage(dpl: Dpl, folder: Path, arguments: tuple[str, ...], message: str) -> None:
    """One clear message, exit 2, nothing written."""
    answer = dpl("repeat", "m.onnx", *arguments)
    assert answer.code == 2
    assert re.search(message, answer.message)
    assert sorted(contents(folder)) == ["m.onnx"]


@pytest.mark.usefixtures("layers")
@pytest.mark.parametrize("before", [(), ("--target", "dnnl")])
def test_the_option_of_old_names_the_command(dpl: Dpl, before: tuple[str, ...]) -> None:
    """``dpl partition --repeat`` was this command, whatever else is given."""
    answer = dpl("partition", "m.onnx", *before, "--repeat")
    assert (answer.code, answer.hint) == (2, "dpl repeat MODEL")
    assert answer.message == "--repeat is a command of its own now"
    assert "--repeat" not in dpl("partition", "--help").out
