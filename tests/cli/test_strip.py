"""``--strip``: a result without metadata and types, checked as it is written."""

import json
from pathlib import Path

import onnx
import pytest

from tests.cli.support import Dpl, Save
from tests.support.helpers import proto_from_text
from tests.support.structure import differences

CONV_RELU = ("-p", "conv_relu", "-o", "p.onnx")


@pytest.mark.parametrize("kinds", ["metadata", "value_info", "metadata, value_info"])
def test_a_partition_without_metadata_is_undone(dpl: Dpl, model: Path, kinds: str) -> None:
    """What calls and functions say of the nodes that they stand for is still there."""
    done = dpl("partition", model, *CONV_RELU, "--strip", kinds)
    assert (done.code, done.err) == (0, "")
    assert dpl("inline", "p.onnx", "-o", "back.onnx").code == 0
    original, back = onnx.load(model), onnx.load("back.onnx")
    if "value_info" in kinds:  # the calls still say what is inside them
        assert not onnx.load("p.onnx").graph.value_info
        del original.graph.value_info[:], back.graph.value_info[:]
    assert differences(original, back) == []


def test_a_rewrite_says_what_it_left_out(dpl: Dpl, save: Save) -> None:
    """The bytes of each kind, in text and JSON; the size is that of the file."""
    net = (
        "g (float[2] x) => (float[2] y) <float[2] a> { a = Identity (x)  b = Neg (a)  y = Exp (b) }"
    )
    path = save(proto_from_text(net))
    options = ("-p", "prepare", "-o", "r.onnx", "--json", "r.json")
    plain = dpl("rewrite", path, *options)
    assert (plain.code, "Left out" in plain.out, "stripped" in Path("r.json").read_text()) == (
        0,
        False,
        False,
    )
    before = Path("r.onnx").stat().st_size
    answer = dpl("rewrite", path, *options, "--strip", "value_info,metadata")
    record = json.loads(Path("r.json").read_text(encoding="utf-8"))
    size = Path("r.onnx").stat().st_size
    assert record["bytes"]["after"] == size == before - sum(record["stripped"].values())
    freed = record["stripped"]
    dry = dpl("rewrite", path, "-p", "prepare", "--dry-run", "--strip", "value_info,metadata")
    assert dry.out.split("bytes")[1].split()[1] == str(size)
    line = f"Left out: metadata {freed['metadata']} bytes, value_info {freed['value_info']} bytes."
    assert (answer.code, line in answer.out.splitlines()) == (0, True)


def test_a_model_that_no_rule_changes_is_stripped_and_checked(dpl: Dpl, save: Save) -> None:
    """There is something to write, so that it is not called unchanged."""
    proto = proto_from_text("g (float[2] x) => (float[2] y) { y = Exp (x) }")
    proto.graph.node[0].doc_string = "a doc"
    answer = dpl("rewrite", save(proto), "-p", "prepare", "-o", "r.onnx", "--strip", "metadata")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[-2:] == ["Left out: metadata 7 bytes.", "Wrote r.onnx."]
    assert "Equivalent in onnxruntime" in answer.out
    assert not onnx.load("r.onnx").graph.node[0].doc_string


@pytest.mark.parametrize(
    ("given", "word", "hint"),
    [
        ("metdata", "metdata", "did you mean 'metadata'?"),
        ("metadata,value-info", "value-info", "did you mean 'value_info'?"),
        ("weights", "weights", "there are: metadata, value_info"),
    ],
)
@pytest.mark.parametrize("command", ["rewrite", "partition"])
def test_what_there_is_not(  # noqa: PLR0913, PLR0917  # fixtures
    dpl: Dpl, model: Path, command: str, given: str, word: str, hint: str
) -> None:
    """An unknown kind is refused before anything is read."""
    answer = dpl(command, model, *CONV_RELU, "--strip", given)
    assert (answer.code, answer.out) == (2, "")
    assert f"--strip: there is no {word!r} to leave out" in answer.err
    assert hint in answer.err
    assert not Path("p.onnx").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "--strip '': no name is given"),
        (" , ", "--strip ' , ': no name is given"),
        ("metadata,", "--strip metadata,: a name is missing beside a comma"),
        ("metadata,,value_info", "--strip metadata,,value_info: a name is missing beside a comma"),
    ],
)
def test_names_that_are_missing(dpl: Dpl, model: Path, given: str, message: str) -> None:
    """Said as such: nobody asked for a kind without a name."""
    answer = dpl("partition", model, *CONV_RELU, "--strip", given)
    assert (answer.code, answer.message) == (2, message)
