"""Bad models: one clear message that names the file, exit code 2, nothing left behind."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tests.cli.support import SAMPLES, Dpl, Save, contents

GOOD = (SAMPLES / "residual_block.onnx").read_bytes()
Make = Callable[[Path], object]

UNREADABLE = {
    "missing": (lambda _: None, "no such file"),
    "directory": (lambda path: path.mkdir(), "is a directory"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "cut-in-the-middle": (lambda path: path.write_bytes(GOOD[: len(GOOD) // 2]), "cut off"),
    "cut-after-one-byte": (lambda path: path.write_bytes(GOOD[:1]), "cut off"),
    "cut-before-the-last-byte": (lambda path: path.write_bytes(GOOD[:-1]), "cut off"),
    "text": (lambda path: path.write_text("hello world\n"), "is a text file"),
    "text-in-utf-8": (lambda path: path.write_bytes("grüße\n".encode()), "is a text file"),
    "html": (lambda path: path.write_text("<!DOCTYPE html>\n<html></html>\n"), "is a text file"),
    "zip": (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(60)), "is not an ONNX model"),
    "noise": (lambda path: path.write_bytes(bytes(range(256))), "is not an ONNX model"),
    "zeros": (lambda path: path.write_bytes(bytes(1000)), "is not an ONNX model"),
    "graph-only": (
        lambda path: path.write_bytes(onnx.ModelProto.FromString(GOOD).graph.SerializeToString()),
        "is not an ONNX model",
    ),
    "git-lfs-pointer": (
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        "Git LFS pointer",
    ),
}
COMMANDS = {
    "partition": ("partition", "bad.onnx", "--target", "dnnl", "-o", "out.onnx"),
    "match": ("match", "bad.onnx", "--target", "dnnl"),
    "inspect": ("inspect", "bad.onnx"),
    "verify-original": ("verify", "bad.onnx", "m.onnx"),
    "verify-candidate": ("verify", "m.onnx", "bad.onnx"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(("make", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_model_is_refused_in_one_line(  # noqa: PLR0913, PLR0917  # fixtures
    dpl: Dpl, folder: Path, model: Path, make: Make, message: str, command: tuple[str, ...]
) -> None:
    """Every command names the file and what it is instead, and leaves the folder alone."""
    assert model.exists()
    make(folder / "bad.onnx")
    before = contents(folder)

    answer = dpl(*command)

    assert answer.code == 2
    assert answer.message.startswith("bad.onnx: ")
    assert message in answer.message
    assert "\n" not in answer.message
    assert answer.out == ""
    assert contents(folder) == before


INVALID = {
    "undefined-name": (
        "g (float[2] x) => (float[2] y) { y = Add (x, nowhere) }",
        "reads 'nowhere', which nothing defines",
    ),
    "undefined-in-a-body": (
        """g (float[2] x, bool c) => (float[2] y) { y = If (c) <
        then_branch = a () => (float[2] p) { p = Relu (nowhere) },
        else_branch = b () => (float[2] q) { q = Relu (x) }> }""",
        "reads 'nowhere', which nothing defines",
    ),
    "name-made-twice": (
        "g (float[2] x) => (float[2] y) { y = Relu (x) y = Abs (x) }",
        "'y' is made twice",
    ),
    "input-made-again": (
        "g (float[2] x) => (float[2] y) { x = Relu (x) y = Abs (x) }",
        "'x' is made twice",
    ),
    "two-inputs-of-one-name": (
        "g (float[2] x, float[2] x) => (float[2] y) { y = Relu (x) }",
        "two inputs are named 'x'",
    ),
    "cycle": (
        "g (float[2] x) => (float[2] y) { a = Add (x, b) b = Relu (a) y = Abs (b) }",
        "cycle",
    ),
    "node-reads-itself": ("g (float[2] x) => (float[2] y) { y = Add (x, y) }", "cycle"),
    "output-never-made": (
        "g (float[2] x) => (float[2] z) { y = Relu (x) }",
        "output 'z' is never made",
    ),
}


@pytest.mark.parametrize("command", ["partition", "match", "inspect"])
@pytest.mark.parametrize(("text", "message"), INVALID.values(), ids=INVALID)
def test_a_graph_that_contradicts_itself_is_refused_in_one_line(  # noqa: PLR0913, PLR0917  # fixtures
    dpl: Dpl, folder: Path, save: Save, text: str, message: str, command: str
) -> None:
    """The message names the file, the graph and the culprit."""
    save(text)
    before = contents(folder)

    answer = dpl(command, "m.onnx", *(() if command == "inspect" else ("--target", "dnnl")))

    assert answer.code == 2
    assert answer.message.startswith("m.onnx: invalid model: graph 'g': ")
    assert message in answer.message
    assert "\n" not in answer.message
    assert contents(folder) == before


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_an_empty_path_is_refused(
    dpl: Dpl, folder: Path, model: Path, command: tuple[str, ...]
) -> None:
    """An empty path, as an unset shell variable gives, is an error with a message."""
    assert model.exists()
    before = contents(folder)

    answer = dpl(*("" if word == "bad.onnx" else word for word in command))

    assert answer.code == 2
    assert answer.message
    assert contents(folder) == before


def test_no_verdict_is_no_output_and_the_hint_says_how_to_go_on(
    dpl: Dpl, folder: Path, save: Save
) -> None:
    """A model that onnxruntime refuses: exit 2, nothing written, the hint names --no-verify."""
    net = save(UNRUNNABLE)
    before = contents(folder)

    answer = dpl("partition", net, "--target", "dnnl", "-o", "out.onnx")

    assert answer.code == 2
    assert "onnxruntime does not run the original" in answer.message
    assert "nowhere" in answer.message
    assert "--no-verify" in answer.hint
    assert contents(folder) == before


def test_no_verify_goes_without_a_verdict_and_says_so(dpl: Dpl, folder: Path, save: Save) -> None:
    """With --no-verify the structural work is done, and the report says what is missing."""
    net = save(UNRUNNABLE)

    answer = dpl("partition", net, "--target", "dnnl", "-o", "out.onnx", "--no-verify")

    assert (answer.code, answer.err) == (0, "")
    assert "Not verified" in answer.out
    result = onnx.load(folder / "out.onnx")
    assert [node.op_type for node in result.graph.node] == ["conv2d_relu", "Odd"]


def test_verify_does_not_hint_at_options_that_it_has_not(dpl: Dpl, save: Save) -> None:
    """--no-verify is no way out of ``dpl verify``."""
    net = save(UNRUNNABLE)

    answer = dpl("verify", net, net)

    assert answer.code == 2
    assert "onnxruntime does not run the original" in answer.message
    assert "--no-verify" not in answer.hint


@pytest.mark.parametrize("data", [None, b"", bytes(100)], ids=["missing", "empty", "cut-off"])
def test_external_data_that_is_not_there_is_named(
    dpl: Dpl, folder: Path, data: bytes | None
) -> None:
    """The message names the file that is missing or cut off, in words of ours."""
    proto = onnx.ModelProto.FromString(GOOD)
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        )
    onnx.save(proto, "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (folder / "w.bin").unlink()
    if data is not None:
        (folder / "w.bin").write_bytes(data)
    before = contents(folder)

    answer = dpl("partition", "m.onnx", "--target", "dnnl", "-o", "out.onnx")

    assert answer.code == 2
    assert "w.bin" in answer.message
    assert ".cc:" not in answer.message
    assert answer.message.count('"') % 2 == 0
    assert contents(folder) == before


UNRUNNABLE = """g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] z) <float[1, 1, 1, 1] w = {2}>
{ c = Conv (x, w) r = Relu (c) z = nowhere.Odd (r) }"""
