"""A type that a file states and its graph contradicts is reported, and not relied on."""

import json

import onnx
import pytest

from tests.cli.support import Dpl, Save

WRONG = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] x) => (float[9,9] y) <float[2,3] t> {
    t = Transpose <perm = [1, 0]> (x)
    y = Relu (t)
}"""
IN_ORDER = WRONG.replace("9,9", "M,2").replace("<float[2,3] t>", "<float[M,N] t>")
LEFT = "the statement is left as it is, and not relied on"
NOTES = [
    f"m.onnx: 't' is stated to be float32[2,3], and is float32[3,2]; {LEFT}",
    f"m.onnx: output 'y' is stated to be float32[9,9], and is float32[3,2]; {LEFT}",
]
COMMANDS = {
    "inspect": ["inspect", "m.onnx"],
    "match": ["match", "m.onnx", "-p", "conv_relu"],
    "explain": ["explain", "m.onnx", "-p", "conv_relu"],
    "rewrite": ["rewrite", "m.onnx", "-p", "prepare", "-o", "o.onnx", "--no-verify"],
    "partition": ["partition", "m.onnx", "-p", "conv_relu", "-o", "o.onnx", "--no-verify"],
    "repeat": ["repeat", "m.onnx", "-o", "o.onnx", "--no-verify"],
    "inline": ["inline", "m.onnx", "-o", "o.onnx"],
}
RESHAPED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[b,s,8] x, int64[1] n) => (float[?,?,?] y) <float[b,s,8] t> {
    rest = Constant <value = int64[1] {-1}> ()
    last = Constant <value = int64[1] {8}> ()
    target = Concat <axis = 0> (n, rest, last)
    t = Reshape (x, target)
    y = Relu (t)
}"""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_reads_types_says_so(dpl: Dpl, save: Save, command: str) -> None:
    """What the file states of an inner value, and of an output."""
    save(onnx.parser.parse_model(WRONG))
    answer = dpl(*COMMANDS[command])
    assert answer.code == 0, answer.err
    said = " ".join((answer.out + answer.err).split())
    assert all(note in said for note in NOTES)


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_said_of_what_is_in_order(dpl: Dpl, save: Save, command: str) -> None:
    """Symbols contradict nothing."""
    save(onnx.parser.parse_model(IN_ORDER))
    answer = dpl(*COMMANDS[command])
    assert answer.code == 0, answer.err
    assert "stated" not in answer.out + answer.err


def test_programs_are_told(dpl: Dpl, save: Save) -> None:
    """The JSON of inspect has the notes."""
    save(onnx.parser.parse_model(WRONG))
    assert json.loads(dpl("inspect", "m.onnx", "--json", "-", "-q").out)["notes"] == NOTES


def test_what_is_declared_is_left_as_it_is(dpl: Dpl, save: Save) -> None:
    """A rewrite keeps the statements of what it does not touch."""
    model = onnx.parser.parse_model(
        WRONG.replace("y = Relu (t)", "u = Identity (t) y = Softmax (u)")
    )
    save(model)
    assert dpl(*COMMANDS["rewrite"]).code == 0
    written = onnx.load("o.onnx")
    assert len(written.graph.node) == 2
    assert [info.name for info in written.graph.value_info] == ["t"]
    assert written.graph.value_info[0] == model.graph.value_info[0]
    assert written.graph.output == model.graph.output


def test_symbols_of_inner_values_are_not_relied_on(dpl: Dpl, save: Save) -> None:
    """A Reshape to sizes that are fed keeps them, whatever the file calls what comes out."""
    save(onnx.parser.parse_model(RESHAPED))
    assert dpl(*COMMANDS["rewrite"]).code == 0
    target = {node.op_type: node for node in onnx.load("o.onnx").graph.node}["Reshape"].input[1]
    made = {name for node in onnx.load("o.onnx").graph.node for name in node.output}
    assert target in made
