"""Bad models: one clear message that names the file, exit code 2, nothing left behind."""

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tests.cli.support import SAMPLES, Dpl, Save, contents

GOOD = (SAMPLES / "residual_block.onnx").read_bytes()
Make = Callable[[Path], object]
Edit = Callable[[onnx.ModelProto], object]

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


def with_bytes(edit: Edit) -> bytes:
    """Return a model in which what *edit* calls QQ is no UTF-8."""
    proto = onnx.ModelProto.FromString(GOOD)
    edit(proto)
    data: bytes = proto.SerializeToString()
    assert b"QQ" in data
    return data.replace(b"QQ", b"\xff\xfe")


NAMES = {
    "dimension": lambda m: setattr(
        m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "QQ"
    ),
    "node": lambda m: setattr(m.graph.node[0], "name", "QQ"),
    "operator": lambda m: setattr(m.graph.node[0], "op_type", "QQ"),
    "domain": lambda m: setattr(m.graph.node[0], "domain", "QQ"),
    "attribute": lambda m: setattr(m.graph.node[0].attribute[0], "name", "QQ"),
    "metadata-key": lambda m: m.metadata_props.add(key="QQ", value="v"),
    "opset": lambda m: m.opset_import.add(domain="QQ", version=1),
    "type": lambda m: setattr(m.graph.input[0].type, "denotation", "QQ"),
    "external": lambda m: m.graph.initializer[0].external_data.add(key="location", value="QQ"),
}
PROSE = {
    "doc": lambda m: setattr(m, "doc_string", "QQ"),
    "doc-of-a-node": lambda m: setattr(m.graph.node[0], "doc_string", "QQ"),
    "producer": lambda m: setattr(m, "producer_name", "QQ"),
    "metadata": lambda m: m.metadata_props.add(key="k", value="QQ"),
    "metadata-of-a-node": lambda m: m.graph.node[0].metadata_props.add(key="k", value="QQ"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("edit", NAMES.values(), ids=NAMES)
def test_a_name_that_is_not_text_is_refused(
    dpl: Dpl,
    folder: Path,
    model: Path,
    edit: Callable[[onnx.ModelProto], object],
    command: tuple[str, ...],
) -> None:
    """Every command says which, and where."""
    assert model.exists()
    (folder / "bad.onnx").write_bytes(with_bytes(edit))

    answer = dpl(*command)

    assert answer.code == 2
    assert answer.message.startswith("bad.onnx: invalid model: b'\\xff\\xfe' is not UTF-8 text (")
    assert answer.hint == "save the model again with names in UTF-8"


@pytest.mark.parametrize("edit", PROSE.values(), ids=PROSE)
def test_prose_that_is_not_text_is_spelled_out(
    dpl: Dpl, folder: Path, model: Path, edit: Edit
) -> None:
    """It says so; nothing depends on it, and the result is text."""
    assert model.exists()
    (folder / "bad.onnx").write_bytes(with_bytes(edit))

    said = dpl("match", "bad.onnx", "--target", "dnnl")
    written = dpl("partition", "bad.onnx", "--target", "dnnl", "-o", "out.onnx")

    assert (said.code, written.code) == (0, 0)
    assert "note: bad.onnx: is not UTF-8 text: " in said.out
    assert "is not UTF-8" not in dpl("match", "out.onnx", "--target", "dnnl").out
    assert dpl("verify", "bad.onnx", "out.onnx").code == 0


@pytest.mark.parametrize("command", ["diff", "rewrite", "verify"])
def test_a_segment_of_a_tensor_is_named(dpl: Dpl, folder: Path, model: Path, command: str) -> None:
    """Neither onnx nor onnxruntime reads it; nothing is written."""
    proto = onnx.load(model)
    proto.graph.initializer[0].segment.begin = 0
    proto.graph.initializer[0].segment.end = 1
    onnx.save(proto, folder / "bad.onnx")
    options = {"rewrite": ("-p", "prepare", "-p", "fuse", "--no-verify", "-o", "out.onnx")}

    answer = dpl(command, "bad.onnx", *options.get(command, ("bad.onnx",)))

    assert "internal error" not in answer.err
    assert "Currently not supporting" not in answer.err
    if answer.code:
        assert "bad.onnx" in answer.err or command == "verify"
    assert command != "diff" or "is one of several segments" in answer.message


@pytest.mark.parametrize("command", ["diff", "partition", "verify"])
def test_a_location_of_any_length_is_said_in_short(
    dpl: Dpl, folder: Path, model: Path, command: str
) -> None:
    """Its beginning and its end, and what the system says of it."""
    proto = onnx.load(model)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="x" * 5000)
    (folder / "bad.onnx").write_bytes(proto.SerializeToString())
    options = {"partition": ("--target", "dnnl", "--no-verify", "-o", "out.onnx")}

    answer = dpl(command, "bad.onnx", *options.get(command, ("bad.onnx",)))

    assert answer.code == 2
    assert "bad.onnx: " in answer.message
    assert "File name too long" in answer.message
    assert len(answer.message) < 1000


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
    "two-bodies": (
        """g (float[2] x, bool c) => (float[2] y) {
          [n] y = If (c) <then_branch = t () => (float[2] a) { a = Relu (x) },
                          else_branch = e () => (float[2] b) { b = Neg (x) },
                          else_branch = f () => (float[2] d) { d = Abs (x) }> }""",
        "If 'n' has two bodies 'else_branch'",
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
    rule = '  - {name: abs, pattern: "Relu(x)", replacement: "Abs(x)"}\n'
    (folder / "r.yaml").write_text("dpl: 1\nrewrites:\n" + rule)
    before = contents(folder)

    answer = dpl("rewrite", net, "-p", "r.yaml", "-o", "out.onnx")

    assert answer.code == 2
    assert "onnxruntime does not run the original" in answer.message
    assert "nowhere" in answer.message
    assert "--no-verify" in answer.hint
    assert contents(folder) == before


def test_a_partition_of_what_does_not_run_is_proved(dpl: Dpl, folder: Path, save: Save) -> None:
    """Nodes were only moved, which needs no run to be seen; that none was made is a warning."""
    model = onnx.load(save(UNRUNNABLE))
    model.opset_import.add(domain="nowhere", version=1)
    onnx.save(model, folder / "imported.onnx")
    answer = dpl("partition", "imported.onnx", "--target", "dnnl", "-o", "out.onnx")

    assert (answer.code, answer.err) == (0, "")
    assert "warning: it was not run: onnxruntime does not run the original model" in answer.out
    assert "by proof: 1 call stands for exactly the same nodes.\n" in answer.out
    assert (folder / "out.onnx").exists()
    of_many = dpl("partition", "imported.onnx", "--target", "dnnl", "-o", "made", "--resume")
    assert "imported.onnx  Equivalent by proof, not run " in of_many.out


def test_no_verify_goes_without_a_verdict_and_says_so(dpl: Dpl, folder: Path, save: Save) -> None:
    """With --no-verify the structural work is done, and the report says what is missing."""
    net = save(UNRUNNABLE)

    answer = dpl("partition", net, "--target", "dnnl", "-o", "out.onnx", "--no-verify")

    assert (answer.code, answer.err) == (0, "")
    assert "Not verified" in answer.out
    result = onnx.load(folder / "out.onnx")
    assert [node.op_type for node in result.graph.node] == ["conv2d_relu", "Odd"]


def test_verify_does_not_hint_at_options_that_it_has_not(
    dpl: Dpl, folder: Path, save: Save
) -> None:
    """--no-verify is no way out of ``dpl verify``."""
    net = save(UNRUNNABLE)
    other = onnx.load(net)
    other.graph.node[0].name = "renamed"
    other.graph.node.add(op_type="Abs", input=["x"], output=["unused"])
    onnx.save(other, folder / "other.onnx")

    answer = dpl("verify", net, "other.onnx")

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


WRITING = [
    ("rewrite", "-p", "prepare"),
    ("partition", "--target", "dnnl"),
    ("repeat",),
    ("inline",),
]


@pytest.mark.parametrize(("command", "options"), [(c, o) for c, *o in WRITING])
@pytest.mark.parametrize(
    ("opset", "node", "said"),
    [
        (17, "Rellu (x)", "No Op registered for Rellu"),
        (99, "Exp (x)", "opset 99 is not known"),
        (17, "Exp (x)", ""),
    ],
)
def test_what_onnx_objects_to_is_not_unchanged_in_silence(  # noqa: PLR0913, PLR0917  # fixtures, and a case
    dpl: Dpl, save: Save, command: str, options: list[str], opset: int, node: str, said: str
) -> None:
    """One warning says what onnx says; of a valid model there is none, nor without checks."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    text = f"{head} g (float[2] x) => (float[2] y) {{ y = {node} }}"
    model = save(onnx.parser.parse_model(text))

    answer = dpl(command, model, *options, "-o", "o.onnx", "--json", "o.json")

    assert answer.code == 0
    assert "Wrote o.onnx, unchanged." in answer.out
    assert answer.out.count("onnx objects to the model") == bool(said)
    assert said in answer.out
    assert said in json.loads(Path("o.json").read_text()).get("fault", "")
    unchecked = dpl(command, model, *options, "-o", "o.onnx", "--no-verify")
    assert "objects" not in unchecked.out
