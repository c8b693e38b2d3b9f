"""The library's front door: what it writes, and what it never overwrites."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from dplcli import pipeline
from dplcli.errors import DplError, ModelLoadError, UsageError
from dplcli.language import PatternRule, is_op, wildcard
from dplcli.settings import MatchSettings, PartitionSettings

SAMPLES = Path(__file__).parents[2] / "sample_models"
RULE = "dpl: 1\ntarget: t\npatterns:\n  - {name: k, pattern: Relu(x)}\n"
HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """Return a model whose one weight lies in ``w.bin`` beside it."""
    proto = onnx.parser.parse_model(
        HEADER + "g (float[2, 3] x) => (float[2, 4] y) { t = MatMul (x, w) y = Relu (t) }"
    )
    weight = proto.graph.initializer.add(name="w", data_type=1, dims=[3, 4], data_location=1)
    weight.external_data.add(key="location", value="w.bin")
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "w.bin").write_bytes(np.arange(12, dtype=np.float32).tobytes())
    (tmp_path / "c.yaml").write_text(RULE)
    return path


def check_refused(model: Path, output: Path, catalog: Path, **settings: object) -> None:
    """Check that writing *output* is refused and every file round it stays as it was."""
    folder = model.parent
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    given: dict[str, Any] = {"output": output, "patterns": [str(catalog)], **settings}
    with pytest.raises(UsageError):
        pipeline.partition(model, PartitionSettings(**given))
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_weights_are_never_overwritten(external: Path) -> None:
    """The output may not take the place of the model's external data, here or where it goes."""
    other = external.parent / "other"
    other.mkdir()

    for place in (external.parent, other):
        check_refused(external, place / "w.bin", external.parent / "c.yaml")


def test_a_catalogue_is_never_overwritten(external: Path) -> None:
    """The output may not take the place of a catalogue that the run reads, included or not."""
    outer = external.parent / "outer.yaml"
    outer.write_text("dpl: 1\ntarget: t\ninclude: [c.yaml]\n")

    for name in ("outer.yaml", "c.yaml"):
        check_refused(external, external.parent / name, outer)


def test_a_failed_result_never_replaces_the_model(external: Path) -> None:
    """``--keep-failed`` writes beside the output, and not over the input."""
    model = external.rename(external.parent / "o.failed.onnx")
    catalog = external.parent / "c.yaml"

    check_refused(model, external.parent / "o.onnx", catalog, keep_failed=True, expect=["t.k>=9"])


def test_missing_weights_are_noticed_though_nothing_matches(external: Path) -> None:
    """A model whose data is gone is no model to write again."""
    folder = external.parent
    (folder / "w.bin").unlink()
    catalog = folder / "none.yaml"
    catalog.write_text(RULE.replace("Relu", "Abs"))

    with pytest.raises(ModelLoadError, match=r"w\.bin"):
        pipeline.partition(
            external, PartitionSettings(output=folder / "o.onnx", patterns=[str(catalog)])
        )
    assert not (folder / "o.onnx").exists()


def test_in_place_through_a_link_finds_the_weights(external: Path, tmp_path: Path) -> None:
    """A link into another folder is followed: the file it names is replaced, the data stays."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = elsewhere / "link.onnx"
    link.symlink_to(external)
    shutil.copy(external.parent / "w.bin", elsewhere)
    settings = PartitionSettings(in_place=True, verify=False)

    outcome = pipeline.partition(
        link, settings.but(output=link, patterns=[str(external.parent / "c.yaml")])
    )

    assert outcome.ok
    assert link.is_symlink()
    assert [function.name for function in onnx.load(external).functions] == ["k"]


def test_a_rule_made_in_python_is_applied(tmp_path: Path) -> None:
    """Python rules go the whole way, verification included."""
    conv = is_op("Conv")(wildcard("x"), wildcard("w"), wildcard("b"))
    rule = PatternRule("mine", "conv_relu", is_op("Relu")(conv), constants="lift")

    outcome = pipeline.partition(
        SAMPLES / "residual_block.onnx",
        PartitionSettings(output=tmp_path / "o.onnx", patterns=[rule]),
    )

    assert outcome.counts == {"mine.conv_relu": 2}
    assert outcome.verification is not None
    assert outcome.verification.equivalent
    assert (
        pipeline.match(SAMPLES / "residual_block.onnx", MatchSettings(patterns=[rule])).counts
        == outcome.counts
    )


def test_onnxruntime_optimises_a_partition_like_the_original(tmp_path: Path) -> None:
    """After inlining, fully optimised, both models are made of the same operators."""
    original = SAMPLES / "resnet18_bn.onnx"
    partitioned = tmp_path / "partitioned.onnx"
    pipeline.partition(original, PartitionSettings(output=partitioned, patterns=["conv_relu"]))

    assert optimised(partitioned, tmp_path) == optimised(original, tmp_path)


def optimised(model: Path, folder: Path) -> Counter[str]:
    """Count the operators of *model* as onnxruntime runs it."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "optimised.onnx").graph.node)


def test_two_rules_of_one_name_are_refused() -> None:
    """A name is a contract with one meaning, wherever the rules come from."""
    relu = PatternRule("dnnl", "conv2d_relu", is_op("Relu")(wildcard("x")))

    with pytest.raises(DplError, match=r"dnnl\.conv2d_relu"):
        pipeline.match(SAMPLES / "residual_block.onnx", MatchSettings(patterns=["conv_relu", relu]))


def test_a_target_is_a_catalogue_of_its_own_name() -> None:
    """``conv_relu`` is a catalogue for dnnl, not a target."""
    with pytest.raises(DplError, match="no such catalogue"):
        pipeline.match(SAMPLES / "residual_block.onnx", MatchSettings(target=["conv_relu"]))


@pytest.mark.parametrize("place", [".", "./.", "/", ""])
def test_a_folder_is_no_model(place: str) -> None:
    """A directory is refused before anything else is thought about."""
    path = Path(place)
    with pytest.raises(DplError):
        pipeline.partition(
            path,
            PartitionSettings(
                output=pipeline.default_output(path, "partitioned"), patterns=["conv_relu"]
            ),
        )
