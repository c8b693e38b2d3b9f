"""What a file says beside its graph, as a user meets it: kept, restored, refused or reported."""

import json
from pathlib import Path

import onnx
import pytest

from tests.cli.support import Dpl
from tests.support.beside import conv_bn, placed, quantised, trained

FAST = "--no-verify"


def test_training_keeps_its_weight(dpl: Dpl, folder: Path) -> None:
    """The rule that would fold it says who else names it."""
    onnx.save(trained(conv_bn(), "w"), "m.onnx")
    answer = dpl("rewrite", "m.onnx", "-p", "prepare", "-o", "out.onnx")
    assert answer.code == 0
    assert "'w.uses == 1' does not hold; 'w' is named by the training information" in answer.out
    assert "w" in {tensor.name for tensor in onnx.load(folder / "out.onnx").graph.initializer}


def test_annotations_that_go_are_reported(dpl: Dpl, folder: Path) -> None:
    """Once for a rewrite, and for what is prepared before a partition."""
    onnx.save(quantised(conv_bn(), "w", "c", "y"), "m.onnx")
    lost = "note: m.onnx: left out: the quantization annotations of 'w', 'c', which are gone"
    answer = dpl("rewrite", "m.onnx", "-p", "prepare", "-o", "out.onnx", FAST)
    assert answer.out.count(lost) == 1
    prepared = dpl("partition", "m.onnx", "--target", "dnnl", "--prepare", "-o", "out.onnx", FAST)
    assert prepared.out.count(lost) == 1
    kept = onnx.load(folder / "out.onnx").graph.quantization_annotation
    assert [note.tensor_name for note in kept] == ["y"]


@pytest.mark.parametrize("merge", [(), ("--merge",)])
def test_a_partition_is_undone_to_the_byte(dpl: Dpl, folder: Path, merge: tuple[str, ...]) -> None:
    """What each node carried is there again, and the quantization annotations are."""
    model = placed(quantised(conv_bn(), "c", "n"), "conv", 3, [0, 1], "w")
    model.graph.node[0].attribute[0].doc_string = "of pads"
    onnx.save(model, "m.onnx")
    answer = dpl("partition", "m.onnx", "--target", "dnnl", "-o", "p.onnx", *merge)
    assert answer.code == 0
    assert "annotations of 'c', 'n', which are inside functions now" in answer.out
    assert dpl("inline", "p.onnx", "-o", "again.onnx").code == 0
    again = onnx.load(folder / "again.onnx")
    assert [node.SerializeToString() for node in again.graph.node] == [
        node.SerializeToString() for node in model.graph.node
    ]
    assert again.graph.quantization_annotation == model.graph.quantization_annotation
    assert again.configuration == model.configuration


def test_a_match_across_stages_is_refused(dpl: Dpl) -> None:
    """With that reason, in the table of what is left out and in what explain says."""
    onnx.save(placed(placed(conv_bn(), "conv", 0), "relu", 1), "m.onnx")
    reason = "it would run in two places: 'conv' has pipeline stage 0, 'relu' pipeline stage 1"
    answer = dpl("partition", "m.onnx", "--target", "dnnl", "-o", "p.onnx")
    assert answer.code == 0
    assert reason in answer.out.partition("left out")[2]
    pattern = "Relu(BatchNormalization(Conv(x, w), ...))"
    assert reason in dpl("explain", "m.onnx", "-p", pattern, "--node", "relu").out


def test_extract_keeps_what_holds_for_a_part(dpl: Dpl, folder: Path) -> None:
    """Docs, denotations and metadata of inputs and outputs, configurations; not training."""
    model = trained(placed(quantised(conv_bn(), "c"), "conv", 1), "w")
    (given,) = model.graph.input
    given.doc_string, given.type.denotation = "pictures", "IMAGE"
    given.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    given.metadata_props.add(key="k", value="v")
    info = onnx.helper.make_tensor_value_info("c", 1, None, doc_string="of c")
    model.graph.value_info.append(info)
    model.producer_name, model.doc_string, model.graph.doc_string = "us", "all", "graph"
    model.metadata_props.add(key="a", value="b")
    onnx.save(model, "m.onnx")
    answer = dpl("extract", "m.onnx", "--to", "c", "-o", "part.onnx")
    assert "note: left out: the training information, which is of the whole model" in answer.out
    part = onnx.load(folder / "part.onnx")
    assert part.graph.input == model.graph.input
    (made,) = part.graph.output
    assert made.doc_string == "of c"
    assert len(made.type.tensor_type.shape.dim) == 4
    assert (part.configuration, part.metadata_props) == (model.configuration, model.metadata_props)
    assert (part.producer_name, part.doc_string, part.graph.doc_string) == ("us", "all", "graph")
    assert part.graph.quantization_annotation == model.graph.quantization_annotation
    assert {"scale", "zero"} <= {tensor.name for tensor in part.graph.initializer}
    assert not part.training_info


def test_extract_says_which_annotations_it_cannot_keep(dpl: Dpl, folder: Path) -> None:
    """Their parameters are computed by nodes that the part does not have."""
    model = conv_bn()
    note = model.graph.quantization_annotation.add(tensor_name="n")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="c")
    onnx.save(model, "m.onnx")
    answer = dpl("extract", "m.onnx", "--from", "n", "-o", "part.onnx")
    assert "left out: the quantization annotations of 'n', whose parameters are" in answer.out
    assert not onnx.load(folder / "part.onnx").graph.quantization_annotation
    dpl("extract", "m.onnx", "--to", "n", "-o", "part.onnx")
    assert onnx.load(folder / "part.onnx").graph.quantization_annotation == [note]


def test_inspect_tells_defaults_that_callers_may_override(dpl: Dpl) -> None:
    """From IR version 4 on: before, every initializer had to be an input, too."""
    model = conv_bn()
    onnx.save(model, "plain.onnx")
    for name in ("w", "s"):
        dims = next(t.dims for t in model.graph.initializer if t.name == name)
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, 1, dims))
    onnx.save(model, "m.onnx")
    assert (
        "overridable   2 with a default that callers may override" in dpl("inspect", "m.onnx").out
    )
    record = json.loads(dpl("inspect", "m.onnx", "--json", "-").out)
    assert [value["name"] for value in record["overridable"]] == ["w", "s"]
    assert [value["name"] for value in record["inputs"]] == ["x"]
    assert "overridable" not in dpl("inspect", "plain.onnx").out
    model.ir_version = 3
    onnx.save(model, "old.onnx")
    assert json.loads(dpl("inspect", "old.onnx", "--json", "-").out)["overridable"] == []


def test_functions_of_one_name_and_two_overloads_are_extracted(dpl: Dpl, folder: Path) -> None:
    """An overload is part of what a function is called."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 17, "own" : 1]>'
        "g (float[2] x) => (float[2] y) { a = own.f:one (x) b = own.f:two (a) y = Neg (b) }"
        '<domain: "own", overload: "one", opset_import: ["" : 17]> f (x) => (y) { y = Abs (x) }'
        '<domain: "own", overload: "two", opset_import: ["" : 17]> f (x) => (y) { y = Relu (x) }'
    )
    onnx.save(model, "m.onnx")
    assert dpl("extract", "m.onnx", "--to", "b", "-o", "part.onnx").code == 0
    part = onnx.load(folder / "part.onnx")
    assert [function.overload for function in part.functions] == ["one", "two"]
