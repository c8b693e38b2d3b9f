"""``dpl extract``: the part of a model between values computes what it did inside."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import dplcli as dpl
from benchmarks.llm import SIZES, write
from dplcli import __version__
from tests.cli.support import SAMPLES, Dpl, Save, contents
from tests.corpus.nets import real_model

CHAIN = "g (float[2,3] x, float[2,3] m) => (float[2,3] y) "
BODY = "{ a = Relu (x) b = Add (a, m) c = Neg (b) d = Mul (c, w) y = Sub (d, a) }"
WEIGHT = "<float[2,3] w = {1, 2, 3, 4, 5, 6}> "
BRANCHES = """g (bool b, float[2] x) => (float[2] y) {
  t = Neg (x)
  s = If (b) <then_branch = h () => (float[2] u) { u = Abs (t) },
              else_branch = k () => (float[2] v) { inner = Relu (t) v = Neg (inner) }>
  y = Add (s, x) }"""
FUNCTIONS = """<ir_version: 9, opset_import: ["" : 17, "d" : 1]>
g (float[2] x) => (float[2] y) { a = d.f (x) b = d.h (a) y = Neg (b) }
<domain: "d", opset_import: ["" : 17, "d" : 1]> f (x) => (y) { y = d.g (x) }
<domain: "d", opset_import: ["" : 17]> g (x) => (y) { y = Abs (x) }
<domain: "d", opset_import: ["" : 17]> h (x) => (y) { y = Relu (x) }"""


def session(model: onnx.ModelProto | str) -> ort.InferenceSession:
    """Create a session that optimises nothing."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model if isinstance(model, str) else model.SerializeToString()
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def check_part(path: Path, start: list[str], end: list[str]) -> onnx.ModelProto:
    """Extract, and compare what the part gives with what the values are inside the model."""
    whole = onnx.load(path)
    part = dpl.extract(path, from_=start, to=end).model
    onnx.checker.check_model(part, full_check=True)
    fed = dpl.run(path).inputs
    inputs = [info.name for info in part.graph.input]
    wanted = [*inputs, *end]
    shown = {info.name for info in whole.graph.output}
    given = {info.name for info in (*whole.graph.input, *whole.graph.initializer)}
    known = {info.name: info.type for info in (*part.graph.input, *part.graph.output)}
    for name in wanted:
        if name not in shown | given:
            whole.graph.output.add(name=name, type=known[name])
    names = [name for name in wanted if name not in given]
    inside = dict(zip(names, session(whole).run(names, fed), strict=True))
    stored = {item.name: onnx.numpy_helper.to_array(item) for item in whole.graph.initializer}
    found = session(part).run(end, {name: (stored | fed | inside)[name] for name in inputs})
    for name, value in zip(end, found, strict=True):
        assert np.array_equal(value, inside[name], equal_nan=True), name
    return part


@pytest.mark.parametrize(
    ("start", "end", "ops", "inputs"),
    [
        ([], ["b"], ["Relu", "Add"], ["x", "m"]),
        (["b"], ["c"], ["Neg"], ["b"]),
        (["c"], ["d"], ["Mul"], ["c"]),
        (["c", "w"], ["d"], ["Mul"], ["c", "w"]),
        (["c", "a"], ["y"], ["Mul", "Sub"], ["c", "a"]),
        (["a"], ["b", "y"], ["Add", "Neg", "Mul", "Sub"], ["a", "m"]),
        (["a,c"], ["y", "y"], ["Mul", "Sub"], ["a", "c"]),
        ([], [], ["Relu", "Add", "Neg", "Mul", "Sub"], ["x", "m"]),
    ],
)
def test_a_part_is_what_is_needed(
    save: Save, start: list[str], end: list[str], ops: list[str], inputs: list[str]
) -> None:
    """Nodes and weights, and inputs of the model that nobody named; what was named comes first."""
    path = save(CHAIN + WEIGHT + BODY)
    part = dpl.extract(path, from_=start, to=end)
    assert [node.op_type for node in part.model.graph.node] == ops
    assert [info.name for info in part.model.graph.input] == inputs
    assert [tensor.name for tensor in part.model.graph.initializer] == (
        ["w"] if "Mul" in ops and "w" not in inputs else []
    )
    check_part(
        path,
        [name for text in start for name in text.split(",")],
        list(dict.fromkeys(end)) or ["y"],
    )


def test_what_a_body_reads_is_given_to_the_part(save: Save) -> None:
    """It is read by the node that has the body."""
    path = save(BRANCHES)
    part = check_part(path, ["t"], ["s"])
    assert {info.name for info in part.graph.input} == {"t", "b"}
    check_part(path, [], ["t"])


def test_functions_come_along_if_something_calls_them(folder: Path) -> None:
    """Those that functions call, too, and no others."""
    path = folder / "f.onnx"
    onnx.save(onnx.parser.parse_model(FUNCTIONS), path)
    first, last = dpl.extract(path, to="a").model, dpl.extract(path, from_="a").model
    assert sorted(item.name for item in first.functions) == ["f", "g"]
    assert [item.name for item in last.functions] == ["h"]
    onnx.checker.check_model(first)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "q"], ("--to 'q': the model has no such value", "")),
        (["--to", "aa"], ("--to 'aa': the model has no such value", "did you mean 'a'?")),
        (["--to", "b,"], ("--to '': the model has no such value", "")),
        (["--from", "d", "--to", "b"], ("--from 'd': nothing between it and the end", "leave")),
        (["--from", "b", "--to", "b"], ("--to 'b': is named by --from, too", "")),
        (["--to", "x"], ("--to 'x': no node makes it: it is given", "")),
        (["--to", "w"], ("--to 'w': no node makes it: it is given", "")),
        (["-o", "m.onnx"], ("m.onnx: the output is the input", "")),
        (["-o", "none/p.onnx"], ("none/p.onnx: there is no folder 'none' to write to", "")),
        (["--json", "m.extracted.onnx"], ("is another file of this command", "")),
    ],
)
def test_what_cannot_be_cut_out_is_said(
    dpl: Dpl, save: Save, folder: Path, options: list[str], said: tuple[str, str]
) -> None:
    """In one message, and nothing is written."""
    save(CHAIN + WEIGHT + BODY)
    before = contents(folder)
    answer = dpl("extract", "m.onnx", *options)
    assert answer.code == 2
    assert said[0] in answer.message
    assert said[1] in answer.hint
    assert contents(folder) == before


def test_a_node_and_an_inner_value_are_told_apart_from_values(dpl: Dpl, save: Save) -> None:
    """With what may have been meant."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {BRANCHES}')
    proto.graph.node[0].name = "the_node"
    save(proto)
    answer = dpl("extract", "m.onnx", "--to", "the_node")
    assert answer.message == "--to 'the_node': is a node, and a value is needed"
    assert answer.hint == "it makes 't'"
    answer = dpl("extract", "m.onnx", "--from", "inner")
    assert answer.message == "--from 'inner': lies in the body of a node, such as a branch of If"


def test_a_value_without_a_known_type_is_no_end(dpl: Dpl, folder: Path) -> None:
    """Nobody knows what a foreign operator makes; what is stated of it counts."""
    text = '<ir_version: 8, opset_import: ["" : 17, "z" : 1]> g (float[2] x) => (float[2] y) '
    body = "{ t = z.What (x) y = Relu (t) }"
    onnx.save(onnx.parser.parse_model(text + body), folder / "m.onnx")
    answer = dpl("extract", "m.onnx", "--from", "t")
    assert answer.code == 2
    assert answer.message == "'t': its type is not stated and does not follow"
    assert answer.hint == (
        "nothing says what z.What makes: cut before it, at 'x', or state the type of 't' in the "
        "model's value_info, with onnx.helper.make_tensor_value_info"
    )
    after = body.replace("Relu (t)", "Relu (n)").replace("y =", "n = Neg (t) y =")
    onnx.save(onnx.parser.parse_model(text + after), folder / "m.onnx")
    for options in (("--from", "n"), ("--to", "n")):
        later = dpl("extract", "m.onnx", *options)
        assert later.message == "'n': its type is not stated and does not follow"
        assert later.hint == answer.hint
    onnx.save(onnx.parser.parse_model(f"{text} <float[2] t> {body}"), folder / "m.onnx")
    assert dpl("extract", "m.onnx", "--from", "t").code == 0


def test_the_command_says_what_it_made(dpl: Dpl, save: Save) -> None:
    """As a table, and as JSON."""
    save(CHAIN + WEIGHT + BODY)
    answer = dpl("extract", "m.onnx", "--from", "a", "--to", "d", "-o", "p.onnx")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "        value",
        "input   a",
        "input   m",
        "output  d",
        "",
        "3 of 5 nodes and 1 weight.",
        "note: the part needs 1 input of the model as well: 'm'",
        "Wrote p.onnx.",
    ]
    record = json.loads(dpl("extract", "m.onnx", "--to", "b", "--json", "-").out)
    assert record == {
        "schema": "dpl.extract/1",
        "dpl_version": __version__,
        "model": "m.onnx",
        "inputs": ["x", "m"],
        "outputs": ["b"],
        "weights": 0,
        "operators": {"Relu": 1, "Add": 1},
        "data": 0,
        "notes": [],
        "nodes": {"before": 5, "after": 2},
    }


BIG = 3 << 30


def large_model(folder: Path) -> Path:
    """Write a model with 3 GB of external data, most of it a hole in the file."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y) '
        "{ a = MatMul (x, small) g = Shape (huge) b = Add (a, last) c = Cast <to = 1> (g) "
        "y = Mul (b, c) }"
    )
    rng = np.random.default_rng(0)
    small, last = rng.random((4, 4), np.float32), rng.random((1, 4), np.float32)
    with (folder / "w.bin").open("wb") as file:
        file.write(small.tobytes())
        file.seek(4096 + BIG)
        file.write(last.tobytes())
    places = {"small": (0, small.shape), "last": (4096 + BIG, last.shape)}
    places["huge"] = (4096, (BIG // 4, 1, 1, 1))
    for name, (offset, shape) in places.items():
        tensor = proto.graph.initializer.add(name=name, data_type=1, dims=shape, data_location=1)
        for key, value in (
            ("location", "w.bin"),
            ("offset", offset),
            ("length", 4 * int(np.prod(shape))),
        ):
            tensor.external_data.add(key=key, value=str(value))
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


def test_a_little_of_a_lot_of_external_data_is_a_little(dpl: Dpl, folder: Path) -> None:
    """What lies beyond 2 GB is found, and only what is needed is copied."""
    large_model(folder)
    (folder / "parts").mkdir()
    answer = dpl("extract", "m.onnx", "--to", "b", "-o", "parts/p.onnx")
    assert (answer.code, answer.err) == (0, "")
    assert (folder / "parts" / "p.onnx.data").stat().st_size == 4096 + 16
    x = np.ones((1, 4), np.float32)
    small = np.fromfile(folder / "w.bin", np.float32, 16).reshape(4, 4)
    last = np.fromfile(folder / "w.bin", np.float32, 4, offset=4096 + BIG)
    (found,) = session("parts/p.onnx").run(["b"], {"x": x})
    assert np.allclose(found, x @ small + last)


def test_external_data_of_an_object_in_memory(folder: Path) -> None:
    """The part has its own file wherever it is saved, twice in one folder as well."""
    path = large_model(folder)
    before = {name: (folder / name).stat().st_mtime_ns for name in ("m.onnx", "w.bin")}
    first, last = dpl.extract(path, to="a"), dpl.extract(path, from_="a", to="b")
    assert {name: (folder / name).stat().st_mtime_ns for name in before} == before
    assert sorted(item.name for item in folder.iterdir()) == ["m.onnx", "w.bin"]
    first.save("first.onnx")
    last.save("last.onnx")
    assert [t.name for t in onnx.load("first.onnx").graph.initializer] == ["small"]
    assert [t.name for t in onnx.load("last.onnx").graph.initializer] == ["last"]
    assert first.model.graph.initializer[0].raw_data == np.fromfile("w.bin", np.uint8, 64).tobytes()
    (folder / "other.onnx.data").write_bytes(b"somebody's")
    with pytest.raises(dpl.DplError, match="a different file stands where external data must go"):
        last.save("other.onnx")
    assert (folder / "other.onnx.data").read_bytes() == b"somebody's"
    assert not (folder / "other.onnx").exists()


@pytest.mark.long
def test_more_than_two_gigabytes_are_cut_out(dpl: Dpl, folder: Path) -> None:
    """They are copied with their holes, and are never in memory."""
    large_model(folder)
    answer = dpl("extract", "m.onnx", "--from", "a", "-o", "p.onnx")
    assert (answer.code, answer.err) == (0, "")
    data = (folder / "p.onnx.data").stat()
    assert data.st_size > BIG
    assert data.st_blocks * 512 < 1 << 20
    tensors = {t.name: t for t in onnx.load("p.onnx", load_external_data=False).graph.initializer}
    assert set(tensors) == {"huge", "last"}
    place = {entry.key: entry.value for entry in tensors["last"].external_data}
    found = np.fromfile(folder / "p.onnx.data", np.float32, 4, offset=int(place["offset"]))
    assert np.array_equal(found, np.fromfile(folder / "w.bin", np.float32, 4, offset=4096 + BIG))


NETS = ("bert-legacy17", "gpt2-dynamo20", "llama-dynamo18-noopt", "faster_rcnn-legacy13")


@pytest.mark.long
@pytest.mark.parametrize("name", ["resnet18_bn", "deit", "super_resolution", *NETS])
def test_real_nets_are_cut_anywhere(name: str) -> None:
    """At some values of each: what is before them and what is behind them."""
    own = SAMPLES / f"{name}.onnx"
    path = own if own.exists() else real_model(name)
    whole = onnx.load(path, load_external_data=False)
    nodes = [node for node in whole.graph.node if node.op_type != "Constant" and node.output[0]]
    inputs = {info.name for info in whole.graph.input}
    tried = 0
    for node in nodes[len(nodes) // 5 :: len(nodes) // 4]:
        (middle, *_) = node.output
        if not inputs & set(node.input):
            check_part(path, [], [middle])
            tried += 1
    assert tried


def test_layers_are_cut_out_by_their_numbers(dpl: Dpl, folder: Path) -> None:
    """Those that are repeated, in order; the part is given the stream, and returns it.

    Layers that there are not, and values beside layers, are refused.
    """
    write(folder / "m.onnx", replace(SIZES["tiny"], layers=3), "dynamo", "fp32")

    def part(layers: str) -> onnx.GraphProto:
        answer = dpl("extract", "m.onnx", "--layers", layers, "-o", f"{layers}.onnx")
        assert answer.code == 0, answer.err
        onnx.checker.check_model(f"{layers}.onnx", full_check=True)
        return onnx.load(f"{layers}.onnx", load_external_data=False).graph

    middle = part("1")
    given, returned = ({info.name for info in each} for each in (middle.input, middle.output))
    assert {"/model.layers.0.Add_1", "past_key_values.1.key", "/mask"} <= given
    assert returned == {"present.1.key", "present.1.value", "/model.layers.1.Add_1"}
    assert not {each for each in given if "layers.1" in each}
    weights = {tensor.name for tensor in middle.initializer if len(tensor.dims) > 1}
    assert len(weights) == 7
    assert all("layers.1." in name for name in weights)

    both = part("0:2")
    assert {"present.0.key", "present.1.key", "/model.layers.1.Add_1"} <= {
        info.name for info in both.output
    }
    assert "/embed" in {info.name for info in both.input}

    for options, said in (
        (("--layers", "2:4"), "the model has layers 0:3"),
        (("--layers", "2:2"), "no such layers"),
        (("--layers", "first"), "no such layers"),
        (("--layers", "0", "--to", "logits"), "contradict"),
    ):
        answer = dpl("extract", "m.onnx", *options)
        assert (answer.code, said in answer.err) == (2, True), answer.err
