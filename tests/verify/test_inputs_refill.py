"""Weights that ConstantOfShape makes: refilled alike in both models, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from dplcli.verify import Check
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.inputs import draw_weights, find_weights
from dplcli.verify.model import Dataflow

Save = Callable[..., Path]

REFILL = Check(refill_weights=True)
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
HEADER = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
NET = """g (float[2, 3, 8, 8] x) => (float[2, 4, 6, 6] y)
<int64[4] ws = {4, 3, 3, 3}, int64[1] bs = {4}>
{ w = ConstantOfShape <value = float[1] {0.02}> (ws)
  b = ConstantOfShape <value = float[1] {0.02}> (bs)
  c = Conv (x, w, b)
  y = Relu (c) }"""


def refilled(body: str, shape: str = "int64[2] s = {4, 4}") -> list[str]:
    """Return the names that would be refilled in a graph with one input x of 4x4."""
    text = f"""g (float[4, 4] x) => (float[a, b] y) <{shape}> {{ {body} }}
    <domain: "own", opset_import: ["" : 17]> dense (p, q) => (r) {{ r = MatMul (p, q) }}"""
    return [w.name for w in find_weights(Dataflow(onnx.parser.parse_model(HEADER + text)))]


MADE = "w = ConstantOfShape <value = float[1] {%s}> (s) "


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(MADE % "0.02" + "y = MatMul (x, w)", id="matrix"),
        pytest.param(MADE % "0" + "y = MatMul (x, w)", id="matrix-of-zeros"),
        pytest.param(MADE % "0.02" + "t = Transpose (w) y = Gemm (x, t)", id="through-transpose"),
        pytest.param(MADE % "0.02" + "y = own.dense (x, w)", id="inside-a-function"),
        pytest.param(MADE % "0.02" + "y = Add (x, w)", id="bias"),
    ],
)
def test_weights_are_found(body: str) -> None:
    """What is only ever used as a weight is refilled."""
    assert refilled(body) == ["w"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(MADE % "-1e9" + "m = Trilu <upper = 1> (w) y = Add (x, m)", id="causal-mask"),
        pytest.param(MADE % "-1e9" + "y = Add (x, w)", id="large-fill"),
        pytest.param(MADE % "0" + "y = Add (x, w)", id="neutral-zero"),
        pytest.param(MADE % "1" + "y = Mul (x, w)", id="neutral-one"),
        pytest.param("w = ConstantOfShape <value = int64[1] {2}> (s) y = Add (x, w)", id="integer"),
        pytest.param("d = Shape (x) w = ConstantOfShape (d) y = MatMul (x, w)", id="dynamic"),
        pytest.param(MADE % "0.02" + "v = MatMul (x, w) y = Where (v, w, x)", id="other-use-too"),
        pytest.param(MADE % "0.02" + "z = MatMul (x, w) y = Identity (w)", id="graph-output"),
    ],
)
def test_what_is_not_surely_a_weight_stays(body: str) -> None:
    """Masks, states, neutral elements, integers, dynamic shapes and outputs are left alone."""
    assert refilled(body) == []


def test_single_number_stays() -> None:
    """One element is a scalar, not a weight."""
    assert refilled(MADE % "0.02" + "y = MatMul (x, w)", "int64[1] s = {1}") == []


def test_vectors_are_positive_and_kernels_scaled_by_fan_in() -> None:
    """A vector may be a variance; a kernel keeps the magnitude of what it is applied to."""
    text = NET.replace("{4, 3, 3, 3}", "{64, 32, 3, 3}").replace("{4}", "{64}")
    weights = find_weights(Dataflow(onnx.parser.parse_model(HEADER + text)))

    values = draw_weights(weights, 0, 1.0)

    assert values["b"].min() >= 0.5
    assert float(np.std(values["w"].astype(np.float64))) == pytest.approx(
        (2 / 288) ** 0.5, rel=0.02
    )
    assert values["w"].dtype == np.float32


def test_refill_gives_the_check_its_power(save: Save) -> None:
    """A missing Relu is invisible behind channels that are all equal, until they are refilled."""
    original = NET.replace("y = Relu (c)", "r = Relu (c) y = Softmax <axis = 1> (r)")
    mutant = original.replace("Relu", "Identity")

    assert verify_equivalence(save(original), save(mutant, "mutant")).equivalent
    assert not verify_equivalence(save(original), save(mutant, "mutant"), REFILL).equivalent


def test_both_models_get_the_same_weights(save: Save) -> None:
    """A model and its copy with another node order and a function call agree after refilling."""
    lines = NET.replace("c = Conv (x, w, b)", "c = own.block (x, w, b)").replace("g (", "h (", 1)
    call = f"""{HEADER}{lines}
    <domain: "own", opset_import: ["" : 17]> block (p, q, r) => (s) {{ s = Conv (p, q, r) }}"""

    result = verify_equivalence(save(NET), save(call, "call"), REFILL)

    assert result.equivalent
    assert result.refilled == 2
    assert not result.warnings


def test_files_stay_untouched(save: Save, tmp_path: Path) -> None:
    """Refilling happens in memory: neither file changes, and nothing is left beside them."""
    ours, theirs = save(NET), save(NET, "copy")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    verify_equivalence(ours, theirs, REFILL)

    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_own_external_data_is_still_found(save: Save, tmp_path: Path) -> None:
    """A model with weights of both kinds gets the external ones from beside its file."""
    model = onnx.load(save(NET.replace("y = Relu (c)", "d = Mul (c, k) y = Relu (d)")))
    scale = np.linspace(-1, 1, 6, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(scale, "k"))
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths.append(tmp_path / name / "m.onnx")
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        onnx.save(copy, paths[-1], save_as_external_data=True, location="w.bin", size_threshold=24)

    result = verify_equivalence(paths[0], paths[1], REFILL)

    assert result.equivalent
    assert result.refilled == 2


def test_weight_that_the_candidate_lost_is_left_in_the_original(save: Save) -> None:
    """What only one model makes is refilled in neither, and the report says so."""
    model = onnx.load(save(NET))
    bias = next(node for node in model.graph.node if node.output[0] == "b")
    model.graph.node.remove(bias)
    values = np.full(4, 0.02, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(values, "b"))

    result = verify_equivalence(save(NET), save(model, "folded"), REFILL)

    assert result.equivalent
    assert result.refilled == 1
    assert "1 weights keep their values" in result.warnings[0]


def test_nothing_to_refill_is_a_warning(save: Save) -> None:
    """Asking for it where there is nothing is no error, but it is said."""
    path = save("g (float[3] x) => (float[3] y) { y = Relu (x) }")

    result = verify_equivalence(path, path, REFILL)

    assert result.refilled == 0
    assert "no weights to refill" in result.warnings[0]


def test_blind_net_of_the_onnx_package_is_named_and_cured() -> None:
    """light_squeezenet returns one number whatever it is fed; refilled, it does not."""
    path = LIGHT / "light_squeezenet.onnx"
    settings = {"seeds": (0,), "levels": ("disable",)}

    blind = verify_equivalence(path, path, Check(**settings))  # type: ignore[arg-type]
    cured = verify_equivalence(path, path, Check(refill_weights=True, **settings))  # type: ignore[arg-type]

    assert "try --refill-weights" in blind.warnings[0]
    assert cured.equivalent
    assert (cured.blind_outputs, cured.refilled, cured.warnings) == ((), 39, ())


@pytest.mark.long
@pytest.mark.parametrize("net", ["squeezenet", "shufflenet", "resnet50"])
def test_dropped_activation_in_a_deep_net_is_noticed(save: Save, net: str) -> None:
    """With refilled weights one Relu less, in the middle of a real net, fails the check."""
    path = LIGHT / f"light_{net}.onnx"
    model = onnx.load(path)
    relus = [node for node in model.graph.node if node.op_type == "Relu"]
    relus[len(relus) // 2].op_type = "Identity"

    result = verify_equivalence(
        path, save(model), Check(refill_weights=True, seeds=(0,), levels=("disable",))
    )

    assert not result.equivalent
    assert result.blind_outputs == ()
