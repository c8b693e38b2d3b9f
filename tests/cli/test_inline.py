"""``dpl inline``: a partition undone, or chosen functions put in the place of their calls."""

import json
from pathlib import Path

import onnx
import pytest

from tests.cli.support import SAMPLES, Dpl, Save, contents
from tests.support.structure import differences

OUT = ("-o", "out.onnx")
NET = """g (float[2] x) => (float[2] y) {
    [a] s = f.double (x)  [b] t = f.double (s)  [c] u = f.flip (t)  [d] y = Relu (u) }
    <domain: "f", opset_import: ["" : 17, "f" : 1]>
    double (x) => (y) { [add] z = Add (x, x) [in] y = f.flip (z) }
    <domain: "f", opset_import: ["" : 17]>
    flip (x) => (y) { y = Neg (x) }"""


@pytest.fixture
def functions(save: Save) -> Path:
    """Return a model with functions that dpl did not write, ``m.onnx``."""
    proto = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17, "f" : 1]>' + NET)
    return save(proto)


@pytest.fixture
def partitioned(dpl: Dpl, model: Path) -> Path:
    """Return a small net partitioned, ``p.onnx``; the original is ``m.onnx``."""
    done = dpl("partition", model, "-p", "conv_relu", "-o", "p.onnx")
    assert (done.code, done.err) == (0, "")
    return Path("p.onnx")


def ops(path: str = "out.onnx") -> list[str]:
    """Return the operators of a model's main graph."""
    return [node.op_type for node in onnx.load(path).graph.node]


def test_a_partition_is_undone(dpl: Dpl, model: Path, partitioned: Path) -> None:
    """The table says what was put back; the result is verified and the original's equal."""
    answer = dpl("inline", partitioned, *OUT)
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].split() == ["function", "calls", "inlined", "nodes"]
    assert lines[1].split() == ["dnnl::conv2d_bias_relu", "2", "4"]
    assert lines[3] == "1 function was removed; the main graph went from 5 to 7 nodes."
    assert lines[-2].startswith(
        "Equivalent by proof: the original's 2 calls stand for exactly the same"
    )
    assert lines[-2].endswith("; it gives the same bits in onnxruntime (seeds 0, 1).")
    assert lines[-1] == "Wrote out.onnx."
    assert differences(onnx.load(model), onnx.load("out.onnx")) == []


def test_the_same_bytes_each_time(dpl: Dpl, partitioned: Path) -> None:
    """Two runs, the second with standard settings for where to write."""
    assert dpl("inline", partitioned, *OUT).code == 0
    assert dpl("inline", partitioned).code == 0
    assert Path("out.onnx").read_bytes() == Path("p.inlined.onnx").read_bytes()


def test_json(dpl: Dpl, functions: Path) -> None:
    """Calls with their scopes, what took their place, functions removed, and no table."""
    answer = dpl("inline", functions, "--all-functions", *OUT, "--json", "-")
    found = json.loads(answer.out)
    assert found["schema"] == "dpl.inline/1"
    assert found["model"] == "m.onnx"
    assert found["counts"] == {"f::double": 2, "f::flip": 3}
    assert [(i["call"]["name"], i["scope"]) for i in found["calls"]] == [
        *(("a", "main"), ("b", "main"), ("c", "main")),
        *(("a/in", "main"), ("b/in", "main")),
    ]
    assert [n["output"] for n in found["calls"][0]["nodes"]] == ["a/z", "s"]
    assert {item["restored"] for item in found["calls"]} == {False}
    assert found["removed"] == [
        {"domain": "f", "name": "double"},
        {"domain": "f", "name": "flip"},
    ]
    assert found["nodes"] == {"before": 4, "after": 6}
    assert found["refused"] == []
    assert found["verification"]["equivalent"] is True


@pytest.mark.parametrize(
    ("options", "expected", "left"),
    [
        (("--all-functions",), ["Add", "Neg", "Add", "Neg", "Neg", "Relu"], []),
        (("--target", "f"), ["Add", "Neg", "Add", "Neg", "Neg", "Relu"], []),
        (("--function", "f::flip"), ["double", "double", "Neg", "Relu"], ["double"]),
        (("--function", "f::double"), ["Add", "flip", "Add", "flip", "flip", "Relu"], ["flip"]),
        (("--call", "b"), ["double", "Add", "flip", "flip", "Relu"], ["double", "flip"]),
        (("--call", "s"), ["Add", "flip", "double", "flip", "Relu"], ["double", "flip"]),
        (("--call", "a", "--call", "u"), ["Add", "flip", "double", "Neg", "Relu"], None),
        (("--call", "in"), ["double", "double", "flip", "Relu"], ["double", "flip"]),
    ],
)
def test_choices(
    dpl: Dpl, functions: Path, options: tuple[str, ...], expected: list[str], left: list[str] | None
) -> None:
    """All, a domain, a function, or calls by name or output; what is called stays."""
    answer = dpl("inline", functions, *options, *OUT)
    assert (answer.code, answer.err) == (0, "")
    assert ops() == expected
    if left is not None:
        assert [function.name for function in onnx.load("out.onnx").functions] == left


def test_what_dpl_did_not_write_stays_without_a_choice(dpl: Dpl, functions: Path) -> None:
    """The file is copied byte for byte, and the way to go on is said."""
    answer = dpl("inline", functions, *OUT)
    assert answer.code == 0
    assert answer.out.splitlines() == [
        "dpl wrote none of the model's 2 functions; --all-functions inlines them.",
        "Wrote out.onnx, unchanged.",
    ]
    assert Path("out.onnx").read_bytes() == functions.read_bytes()


def test_a_model_without_functions(dpl: Dpl, model: Path) -> None:
    """There is nothing to do, which is done."""
    answer = dpl("inline", model, *OUT)
    assert answer.code == 0
    assert answer.out.splitlines() == [
        "There is no function to inline.",
        "Wrote out.onnx, unchanged.",
    ]


def test_calls_that_stay_are_in_the_table(dpl: Dpl, save: Save) -> None:
    """With the reason; the exit code is 0, as for refused matches."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2,2] x) => (float[2,2] y) { [k] y = f.h (x) }
        <domain: "f", opset_import: ["" : 11]> h (x) => (y) { y = Softmax (x) }"""
    save(onnx.parser.parse_model(text))
    answer = dpl("inline", "m.onnx", "--all-functions", *OUT, "--no-verify", "--verbose")
    assert answer.code == 0
    reason = "Softmax is of opset 11 in the function, and of opset 17 where it is called"
    lines = [line.split(maxsplit=4) for line in answer.out.splitlines()]
    assert ["f::h", "0", "0", "1", reason] in lines
    assert "Wrote out.onnx, unchanged." in answer.out


WRONG = {
    "no-such-call": (("--call", "nix"), "'nix': no node has this name", None),
    "no-call": (("--call", "d"), "--call 'd': is a Relu, not a call of a function", None),
    "no-such-target": (("--target", "g"), "no function of this domain", "there is f"),
    "no-such-function": (("--function", "f::dubble"), "no such function", "'f::double'?"),
    "no-domain": (("--function", "double"), "no such function", "'f::double'?"),
    "two-choices": (("--call", "a", "--target", "f"), "--call and --target contradict", None),
    "all-and-one": (("--all-functions", "--call", "a"), "--all-functions and --call", None),
    "in-place-and-output": (("--in-place",), "--in-place and --output contradict", None),
    "bad-size": (("--size", "batch"), "--shape 'batch': not a size", None),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage(dpl: Dpl, functions: Path, folder: Path, name: str) -> None:
    """One message, exit code 2, and nothing written."""
    assert functions.exists()
    options, message, hint = WRONG[name]
    before = contents(folder)
    answer = dpl("inline", "m.onnx", *options, *OUT)
    assert answer.code == 2
    assert message in answer.message
    assert hint is None or hint in answer.hint
    assert contents(folder) == before


def test_two_nodes_of_one_name(dpl: Dpl, save: Save) -> None:
    """An output's name tells them apart."""
    proto = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17, "f" : 1]>' + NET)
    proto.graph.node[1].name = "a"
    save(proto)
    answer = dpl("inline", "m.onnx", "--call", "a", *OUT)
    assert (answer.code, answer.hint) == (2, "name one by its output")
    assert answer.message == "--call 'a': 2 nodes have this name: f.double -> 's', f.double -> 't'"
    assert dpl("inline", "m.onnx", "--call", "t", *OUT, "--no-verify").code == 0
    assert ops() == ["double", "Add", "flip", "flip", "Relu"]


def test_a_function_that_calls_itself(dpl: Dpl, save: Save, folder: Path) -> None:
    """It has no end; one message and no file."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] x) => (float[2] y) { y = f.h (x) }
        <domain: "f", opset_import: ["" : 17, "f" : 1]> h (x) => (y) { y = f.h (x) }"""
    save(onnx.parser.parse_model(text))
    before = contents(folder)
    answer = dpl("inline", "m.onnx", "--all-functions", *OUT)
    assert answer.code == 2
    assert answer.message == "the function f::h calls itself, so it has no end when inlined"
    assert contents(folder) == before


def test_what_does_not_run_is_proved(dpl: Dpl, save: Save) -> None:
    """What onnxruntime does not run is written, since nothing but functions was changed."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1, "no.such" : 1]>
        g (float[2] x) => (float[2] y) { y = f.h (x) }
        <domain: "f", opset_import: ["no.such" : 1]> h (x) => (y) { y = no.such.Op (x) }"""
    save(onnx.parser.parse_model(text))
    answer = dpl("inline", "m.onnx", "--all-functions", *OUT)
    assert answer.code == 0
    assert "warning: it was not run: onnxruntime does not run the original model" in answer.out
    assert "by proof: the original's 1 call stands for exactly the same nodes.\n" in answer.out
    assert ops() == ["Op"]


def test_in_place(dpl: Dpl, model: Path, partitioned: Path) -> None:
    """The partitioned model is replaced by what it was made from."""
    assert dpl("inline", partitioned, "-o", partitioned).code == 2
    assert dpl("inline", partitioned, "--in-place", "--quiet").out == ""
    assert differences(onnx.load(model), onnx.load(partitioned)) == []


def test_external_data_stays_where_it_is(dpl: Dpl, folder: Path) -> None:
    """Weights in another file are not read into the model, embedded or not."""
    proto = onnx.load(SAMPLES / "residual_block.onnx")
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        )
    onnx.save(proto, "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    rules = (folder / "rules.yaml").absolute()
    rules.write_text(
        "dpl: 1\ntarget: t\nconstants: embed\npatterns:\n"
        "  - {name: r, pattern: 'Relu(Conv(x, const(w), const(b)))'}\n"
    )
    assert dpl("partition", "m.onnx", "-p", rules, "-o", "p.onnx").code == 0
    answer = dpl("inline", "p.onnx", *OUT)
    assert (answer.code, answer.err) == (0, "")
    before = onnx.load("m.onnx", load_external_data=False)
    after = onnx.load("out.onnx", load_external_data=False)
    assert differences(before, after) == []
    stored = [tensor.data_location for tensor in after.graph.initializer]
    assert set(stored) == {onnx.TensorProto.EXTERNAL}


def test_several_targets_beside_commas(dpl: Dpl, save: Save) -> None:
    """As dpl partition takes them; a name that is missing is no target."""
    save("g (float[2] x) => (float[2] y) { z = Relu (x) y = Tanh (z) }")
    for target, op in (("one", "Relu"), ("two", "Tanh")):
        rules = f"dpl: 1\ntarget: {target}\npatterns: [{{name: r, pattern: {op}(x)}}]"
        Path("r.yaml").write_text(rules, encoding="utf-8")
        assert dpl("partition", "m.onnx", "-p", "r.yaml", "--in-place", "--no-verify").code == 0
    assert ops("m.onnx") == ["r", "r"]
    assert dpl("inline", "m.onnx", "--target", "one,two", *OUT).code == 0
    assert ops() == ["Relu", "Tanh"]
    answer = dpl("inline", "m.onnx", "--target", "one,", *OUT)
    assert (answer.code, "--target one,: a name is missing beside a comma" in answer.err) == (
        2,
        True,
    )
