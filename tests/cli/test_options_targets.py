"""``--target`` for several targets: a list, repeated, and who comes first."""

import json
from pathlib import Path

import onnx
import pytest

from tests.cli.support import Dpl, Save, contents

MODEL = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 4, 8] x, float[8, 6] w, float[6] b, float[6] s) => (float[2, 4, 6] y) {
    m = MatMul (x, w) a = Add (m, b) n = LayerNormalization (a, s, b) y = Relu (n) }"""

MATCHED = {
    "cutlass,cublas": ["cutlass.layer_norm", "cutlass.matmul_bias"],
    "cublas,cutlass": ["cublas.matmul_bias", "cutlass.layer_norm"],
    " cublas , cutlass ": ["cublas.matmul_bias", "cutlass.layer_norm"],
    "cublas,cublas": ["cublas.matmul_bias"],
}


@pytest.fixture
def net(save: Save) -> Path:
    """Write a product with bias, and a normalisation."""
    return save(onnx.parser.parse_model(MODEL))


def matched(printed: str) -> list[str]:
    """Name the rules that match."""
    return sorted(rule for rule, count in json.loads(printed)["counts"].items() if count)


@pytest.mark.parametrize(("targets", "rules"), MATCHED.items())
def test_the_first_of_a_list_wins(dpl: Dpl, net: Path, targets: str, rules: list[str]) -> None:
    """Where rules of two targets want the same nodes, those of the target named first get them."""
    answer = dpl("match", net, "--target", targets, "--json", "-")

    assert answer.code == 0
    assert matched(answer.out) == rules


def test_lists_and_repetition_mean_the_same(dpl: Dpl, net: Path) -> None:
    """A list is the option given as often, in its order."""
    listed = dpl("match", net, "--target", "cublas,cutlass,dnnl", "--json", "-")
    repeated = dpl(
        "match", net, *(f"--target={name}" for name in ("cublas", "cutlass", "dnnl")), "--json", "-"
    )
    mixed = dpl("match", net, "--target", "cublas", "--target", "cutlass,dnnl", "--json", "-")

    assert listed.out == repeated.out == mixed.out


def test_partitions_of_two_targets_are_in_one_file(dpl: Dpl, net: Path) -> None:
    """Each target has its domain in the file, and the file is as good as the model."""
    answer = dpl("partition", net, "--target", "cublas,cutlass", "-o", "out.onnx")

    assert answer.code == 0
    assert "by proof: 2 calls stand for exactly the same nodes" in answer.out
    functions = onnx.load("out.onnx").functions
    assert sorted(function.domain for function in functions) == ["cublas", "cutlass"]


@pytest.mark.parametrize("targets", ["", ",", " , "])
def test_no_name_is_given(dpl: Dpl, net: Path, folder: Path, targets: str) -> None:
    """As with an unset variable of a shell."""
    before = contents(folder)

    answer = dpl("partition", net, "--target", targets)

    assert answer.code == 2
    assert f"--target {targets!r}: no name is given" in answer.message
    assert contents(folder) == before


@pytest.mark.parametrize("targets", ["cublas,", "cublas,,cutlass", ", cublas", "cublas, "])
def test_a_name_is_missing(dpl: Dpl, net: Path, folder: Path, targets: str) -> None:
    """A comma stands between two names."""
    before = contents(folder)

    answer = dpl("partition", net, "--target", targets)

    assert answer.code == 2
    assert f"--target {targets}: a name is missing beside a comma" in answer.message
    assert contents(folder) == before


def test_the_unknown_one_of_a_list_is_named(dpl: Dpl, net: Path) -> None:
    """The message is about one name, not about the list."""
    answer = dpl("match", net, "--target", "cublas,cutlas")

    assert answer.code == 2
    assert "--target cutlas: no such catalogue" in answer.message
    assert "did you mean 'cutlass'?" in answer.hint
