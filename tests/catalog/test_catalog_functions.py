"""Rules from pairs of ONNX functions: inputs bind, attributes and constants are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx.parser
import pytest

from dplcli.catalog import read_catalogs
from dplcli.cli.main import dpl
from dplcli.errors import CatalogError
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import rewrite
from dplcli.pipeline.rules import READERS
from tests.support.helpers import (
    SCHEMAS,
    check_sound,
    model_from_text,
    print_model,
    proto_from_text,
)

if TYPE_CHECKING:
    from pathlib import Path

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
OWN = '<domain: "rules", opset_import: ["" : {opset}]>\n'


def pair(before: str, after: str, name: str = "r", opset: int = 20) -> str:
    """Write two functions: *before* and *after* are signature and body."""
    own = OWN.format(opset=opset)
    return f"{own}{name}_pattern {before}\n{own}{name}_replacement {after}\n"


def apply(folder: Path, rules: str, graph: str) -> tuple[str, list[str]]:
    """Rewrite *graph*; return the result and why matches were refused; check it throughout."""
    path = folder / "rules.onnxtxt"
    path.write_text(rules, encoding="utf-8")
    model = model_from_text(HEADER + graph)
    done = rewrite(model, read_catalogs([str(path)], SCHEMAS, readers=READERS).rewrites)
    check_structure(model)
    onnx.checker.check_model(to_proto(model), full_check=True)
    return " ".join(print_model(model).split()), [item.reason for item in done.refused]


GELU = pair(
    """(x) => (y) { s = Constant <value = float {1.4142135}> ()
    one = Constant <value = float {1.0}> () half = Constant <value = float {0.5}> ()
    d = Div (x, s) e = Erf (d) p = Add (e, one)
    m = Mul (x, p) y = Mul (m, half) }""",
    "(x) => (y) { y = Gelu (x) }",
)
ERF = """g (float[2] x) => (float[2] y) <float s = {S}, float one = {1}, float half = {0.5}> {
    d = Div (x, s) e = Erf (d) p = Add (one, e) m = Mul (p, x) y = Mul (half, m) }"""


def test_a_pattern_with_constants(tmp_path: Path) -> None:
    """Operands commute; the constants are those of the pattern, as initializers too."""
    text = ERF.replace("{S}", "{1.4142135}")
    after, _ = apply(tmp_path, GELU, text)
    assert after == "(x) => (y) { y = Gelu (x) }"


@pytest.mark.parametrize("constant", ["{1.41}", "{1.5}"])
def test_another_constant_is_no_match(tmp_path: Path, constant: str) -> None:
    """A constant that is a little off is another constant."""
    text = ERF.replace("{S}", constant)
    after, _ = apply(tmp_path, GELU, text)
    assert "Erf" in after


LEAKY = pair(
    "<a> (x) => (y) { z = LeakyRelu <alpha: float = @a> (x) y = Neg (z) }",
    "<a> (x) => (y) { z = Neg (x) y = LeakyRelu <alpha: float = @a> (z) }",
)


@pytest.mark.parametrize(("stated", "alpha"), [("<alpha = 0.25>", "0.25"), ("", "0.01")])
def test_an_attribute_that_refers_is_bound(tmp_path: Path, stated: str, alpha: str) -> None:
    """Any value, the default too, and the replacement gets it."""
    graph = f"g (float[2] x) => (float[2] y) {{ a = LeakyRelu {stated} (x) y = Neg (a) }}"
    after, _ = apply(tmp_path, LEAKY, graph)
    assert after.startswith(f"(x) => (y) {{ y_Neg = Neg (x) y = LeakyRelu <alpha = {alpha}")


SOFTMAX = pair("(x) => (y) { z = Softmax (x) y = Log (z) }", "(x) => (y) { y = LogSoftmax (x) }")


@pytest.mark.parametrize(
    ("stated", "fits"), [("", True), ("<axis = -1>", True), ("<axis = 0>", False)]
)
def test_an_attribute_left_to_its_default(tmp_path: Path, stated: str, *, fits: bool) -> None:
    """Left out in the pattern it means the default, wherever the model states it."""
    graph = f"g (float[2,2] x) => (float[2,2] y) {{ a = Softmax {stated} (x) y = Log (a) }}"
    after, reasons = apply(tmp_path, SOFTMAX, graph)
    assert ("LogSoftmax" in after) is fits
    assert reasons == ([] if fits else ["axis of 'a' is 0, not -1"])


def test_the_same_reference_twice_is_one_value(tmp_path: Path) -> None:
    """Two nodes that refer to one attribute must agree."""
    rules = pair(
        """<a> (x) => (y) { z = LeakyRelu <alpha: float = @a> (x)
        y = LeakyRelu <alpha: float = @a> (z) }""",
        "<a> (x) => (y) { y = Elu <alpha: float = @a> (x) }",
    )
    graph = """g (float[2] x) => (float[2] y)
        { a = LeakyRelu <alpha = 0.5> (x) y = LeakyRelu <alpha = 0.25> (a) }"""
    after, (reason,) = apply(tmp_path, rules, graph)
    assert "Elu" not in after
    assert "not what it is elsewhere" in reason
    after, _ = apply(tmp_path, rules, graph.replace("0.25", "0.5"))
    assert after == "(x) => (y) { y = Elu <alpha = 0.5> (x) }"


def test_another_version_of_an_operator(tmp_path: Path) -> None:
    """Softmax of opset 12 means another thing than that of 13."""
    rules = SOFTMAX.replace(": 20", ": 12")
    graph = "g (float[2,2] x) => (float[2,2] y) { a = Softmax (x) y = Log (a) }"
    after, (reason,) = apply(tmp_path, rules, graph)
    assert "LogSoftmax" not in after
    assert reason == "the rule means Softmax-11, the model 13"


def test_several_outputs(tmp_path: Path) -> None:
    """Two outputs, the second output of a node among them, and a shared node."""
    rules = pair(
        "(x) => (p, q) { a, b = Split <axis = 0, num_outputs = 2> (x) p = Neg (a) q = Neg (b) }",
        "(x) => (p, q) { n = Neg (x) p, q = Split <axis = 0, num_outputs = 2> (n) }",
    )
    graph = """g (float[4] x) => (float[2] y, float[2] z)
        { a, b = Split <num_outputs = 2> (x) y = Neg (a) z = Neg (b) }"""
    after, _ = apply(tmp_path, rules, graph)
    assert after.startswith("(x) => (y, z) { y_Neg = Neg (x) y, z = Split")
    model = model_from_text(HEADER + graph)
    path = tmp_path / "rules.onnxtxt"
    rewrite(model, read_catalogs([str(path)], SCHEMAS, readers=READERS).rewrites)
    check_sound(proto_from_text(HEADER + graph), to_proto(model))


def test_omitted_inputs_and_new_constants(tmp_path: Path) -> None:
    """An omitted input is one; a constant of the replacement becomes an initializer."""
    rules = pair(
        """(x) => (y) { six = Constant <value = float {6.0}> () y = Clip (x, , six) }""",
        """(x) => (y) { six = Constant <value = float {6.0}> () y = Min (x, six) }""",
    )
    head = "g (float[2] x) => (float[2] y) <float six = {6}, float zero = {0}> "
    after, _ = apply(tmp_path, rules, head + "{ y = Clip (x, , six) }")
    assert after == "(x) => (y) { y = Min (x, y_Constant) }"
    after, _ = apply(tmp_path, rules, head + "{ y = Clip (x, zero, six) }")
    assert "Clip" in after


BROKEN = {
    "alone": (
        OWN.format(opset=20) + "r_pattern (x) => (y) { y = Neg (x) }",
        "there is no function 'r_replacement' beside 'r_pattern'",
    ),
    "other-alone": (
        OWN.format(opset=20) + "r_replacement (x) => (y) { y = Neg (x) }",
        "there is no function 'r_pattern' beside 'r_replacement'",
    ),
    "none": (OWN.format(opset=20) + "f (x) => (y) { y = Neg (x) }", "has no pair of functions"),
    "inputs": (
        pair("(x) => (y) { y = Neg (x) }", "(x, z) => (y) { y = Add (x, z) }"),
        "the pattern has 1 inputs, the replacement 2",
    ),
    "outputs": (
        pair("(x) => (y) { y = Neg (x) }", "(x) => (y, z) { y = Abs (x) z = Neg (x) }"),
        "the pattern has 1 outputs, the replacement 2",
    ),
    "attribute": (
        pair("(x) => (y) { y = Neg (x) }", "<a> (x) => (y) { y = Elu <alpha: float = @a> (x) }"),
        "does not bind the attribute 'a'",
    ),
    "text": ("r_pattern (x => y", "is not ONNX text"),
}


@pytest.mark.parametrize(("rules", "message"), BROKEN.values(), ids=BROKEN)
def test_what_makes_no_rule(tmp_path: Path, rules: str, message: str) -> None:
    """Refused when read, with the name of the file."""
    path = tmp_path / "rules.onnxtxt"
    path.write_text(rules, encoding="utf-8")
    with pytest.raises(CatalogError, match=message) as caught:
        read_catalogs([str(path)], SCHEMAS, readers=READERS)
    assert caught.value.message.startswith("rules.onnxtxt: ")


def test_a_model_file_on_the_command_line(tmp_path: Path) -> None:
    """The same as a protobuf file, shown and matched like any catalogue."""
    from click.testing import CliRunner  # noqa: PLC0415  # this test alone

    text = f'<ir_version: 10, opset_import: ["" : 20]> e () => () {{}}\n{SOFTMAX}'
    path = tmp_path / "rules.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    model = tmp_path / "model.onnx"
    graph = "g (float[2,2] x) => (float[2,2] y) { a = Softmax (x) y = Log (a) }"
    onnx.save(onnx.parser.parse_model(HEADER + graph), model)
    shown = CliRunner().invoke(dpl, ["patterns", "show", str(path)])
    assert "Log(Softmax(x))" in shown.output
    found = CliRunner().invoke(dpl, ["match", str(model), "--patterns", str(path)])
    assert "r           1" in found.output
