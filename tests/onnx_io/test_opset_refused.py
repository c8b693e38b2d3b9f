"""What cannot be raised is refused: which node, why, and how far it could go."""

import numpy as np
import onnx
import pytest

from dplcli.errors import OpsetError, UsageError
from tests.onnx_io.one_node import IMAGE, OneNode, noise, vector
from tests.onnx_io.raised import check_refused, parsed, raise_opset


def graph(opset: int, nodes: str, inputs: str = "float[1, 2, 4, 6] x") -> str:
    """Write a model whose outputs are untyped, as only refused ones may be."""
    return f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g ({inputs}) => (float[A, B, C, D] y) {{ {nodes} }}"""


KEEP = "keep it at opset {}, or export it anew at opset {}"
RAISE = "raise it to {}, or export it anew at opset {}"


@pytest.mark.parametrize(
    ("opset", "nodes", "reason", "hint"),
    [
        pytest.param(
            8,
            "y = BatchNormalization <spatial = 0> (x, x, x, x, x)",
            "BatchNormalization 'y': its attribute 'spatial' is 0",
            KEEP.format(8, 18),
            id="per-activation",
        ),
        pytest.param(
            9,
            "y, m, v, sm, sv = BatchNormalization (x, x, x, x, x)",
            "BatchNormalization 'y': it is in training mode",
            RAISE.format(13, 18),
            id="training",
        ),
        pytest.param(
            9,
            "d, m = Dropout (x) y = Mul (d, m)",
            "Dropout 'd': its output 'mask' is read",
            KEEP.format(9, 18),
            id="mask",
        ),
        pytest.param(
            10,
            "s = Constant <value = float[4] {1, 1, 2, 0.5}> () y = Resize (x, s)",
            "Resize 'y': it grows along one axis and shrinks along another",
            KEEP.format(10, 18),
            id="nearest-both-ways",
        ),
        pytest.param(
            11,
            'y = Resize <coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, x, x)',
            "its coordinate_transformation_mode 'tf_half_pixel_for_nn' was taken out in opset 13",
            RAISE.format(12, 18),
            id="resize-mode",
        ),
        pytest.param(
            12,
            "y = Softmax <axis = 1> (x) z = Ungrounded (y)",
            "Ungrounded 'z': Ungrounded is no operator of the standard at opset 12$",
            KEEP.format(12, 18),
            id="unknown",
        ),
        pytest.param(
            16,
            "y = LayerNormalization (x, x)",
            "LayerNormalization is no operator of the standard at opset 16",
            KEEP.format(16, 18),
            id="not-yet-there",
        ),
        pytest.param(
            6,
            "y = Relu (x) z = Add <broadcast = 1> (x, x)",
            "Add 'z': Add changed in opset 7, and only changes after 7 are covered",
            KEEP.format(6, 18),
            id="too-old",
        ),
        pytest.param(
            9,
            "a, m = Dropout (x) [b] y = Dropout (m) c, e = Dropout (x) d = Add (c, e)",
            "Dropout 'a': .*; 1 more such node$",
            KEEP.format(9, 18),
            id="several",
        ),
    ],
)
def test_says_which_node_and_why(opset: int, nodes: str, reason: str, hint: str) -> None:
    """The message names the node, and the hint says how far the model could be raised."""
    check_refused(graph(opset, nodes), 18, reason, hint)


def test_a_dynamic_scale_is_refused() -> None:
    """Which element is nearest depends on the scales; other modes do not."""
    text = graph(10, "y = Resize <mode = MODE> (x, s)", "float[1, 2, 4, 6] x, float[4] s")
    check_refused(
        text.replace("MODE", '"nearest"'),
        11,
        "Resize 'y': which element is nearest depends on its scales, which are no constant",
        KEEP.format(10, 11),
    )
    assert raise_opset(parsed(text.replace("MODE", '"linear"')), 11).is_changed


def test_external_scales_are_not_read() -> None:
    """A constant in a file beside the model counts as unknown."""
    model = OneNode(
        "", "Resize", 10, (IMAGE, vector(1, 1, 2, 2, dtype=np.float32)), {}, (1,)
    ).model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="nowhere.bin")
    check_refused(model, 11, "which are no constant", KEEP.format(10, 11))


@pytest.mark.parametrize(("op_type", "old", "new"), [("Erf", 9, 13), ("ReduceLogSum", 18, 28)])
def test_integers_that_are_no_longer_taken_are_refused(op_type: str, old: int, new: int) -> None:
    """Types that a schema gave up are refused where they are known."""
    text = f"""<ir_version: 8, opset_import: ["" : {old}]>
    g (TYPE[2] x) => (TYPE[N] y) {{ y = {op_type} (x) }}"""
    check_refused(
        text.replace("TYPE", "int32"),
        new,
        f"{op_type} 'y': it takes no int32 since opset {new}",
        RAISE.format(new - 1, new),
    )
    raise_opset(parsed(text.replace("TYPE", "float")), new)


def test_a_bound_of_integers_is_refused() -> None:
    """Clip took floats only, so a bound cannot have meant anything."""
    text = """<ir_version: 4, opset_import: ["" : 9]>
    g (int32[2] x) => (int32[2] y) { y = Clip <max = 2.5> (x) }"""
    check_refused(text, 11, "its input is of type int32, which", RAISE.format(10, 11))


def test_standard_nodes_without_an_import_are_refused() -> None:
    """Of which opset they are cannot be known."""
    model = parsed(graph(12, "y = Relu (x)"))
    model.opset_import[0].domain = "other"
    check_refused(model, 18, "from opset none to 18: Relu 'y': it is of the standard, of", "")


def test_scan_of_opset_8_is_refused() -> None:
    """It runs over a batch and knows sequence lengths, which is too much to imitate."""
    text = """<ir_version: 3, opset_import: ["" : 8]>
    g (float[1, 2] i, float[1, 3, 2] x) => (float[A, B] f, float[C, D, E] y) {
        f, y = Scan <
            num_scan_inputs = 1,
            body = b (float[2] s, float[2] v) => (float[2] t, float[2] o) {
            t = Add (s, v)
            o = Identity (t)
        }> ("", i, x)
    }"""
    check_refused(text, 18, "Scan before opset 9 runs over a batch", KEEP.format(8, 18))


@pytest.mark.parametrize("shape", [None, (1, "c", 4, 4), (1, 5, 4, 4)])
def test_group_normalisation_needs_the_number_of_channels(
    shape: tuple[int | str, ...] | None,
) -> None:
    """Scale and bias are repeated for each channel, of which the number must be known."""
    case = OneNode(
        "", "GroupNormalization", 18, (noise(1, 4, 4, 4), noise(2), noise(2)), {"num_groups": 2}
    )
    model = case.model()
    model.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("x0", 1, shape))
    check_refused(model, 21, "are per channel since opset 21", RAISE.format(20, 21))


def test_an_attribute_of_another_type_counts_as_absent() -> None:
    """A model may be wrong; the message is about the node all the same."""
    case = OneNode(
        "", "GroupNormalization", 18, (noise(1, 4, 4, 4), noise(2), noise(2)), {"num_groups": 2}
    )
    model = case.model()
    model.graph.node[0].attribute[0].CopyFrom(onnx.helper.make_attribute("num_groups", "two"))
    check_refused(model, 21, "are per channel since opset 21", RAISE.format(20, 21))


def test_the_hint_can_be_followed() -> None:
    """What the hint names works, though a later node would be refused earlier."""
    model = parsed(
        graph(
            9,
            "a, m, v, sm, sv = BatchNormalization (x, x, x, x, x)"
            ' y = Resize <coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, x, x)',
        )
    )
    model.opset_import[0].version = 11
    with pytest.raises(OpsetError) as caught:
        raise_opset(model, 18)
    assert caught.value.hint == RAISE.format(12, 18)
    assert raise_opset(model, 12).after == 12


def test_lowering_is_refused() -> None:
    """A newer model is not lowered."""
    with pytest.raises(UsageError, match="m: is of opset 18, which cannot be lowered to 17"):
        raise_opset(parsed(graph(18, "y = Relu (x)")), 17, "m")


@pytest.mark.parametrize("version", [0, -1, onnx.defs.onnx_opset_version() + 1, 2**40])
def test_an_opset_that_onnx_does_not_know_is_refused(version: int) -> None:
    """The message says which is the newest."""
    with pytest.raises(
        UsageError, match=f"there is no opset {version} in the installed onnx"
    ) as error:
        raise_opset(parsed(graph(17, "y = Relu (x)")), version)
    assert f"ask for {onnx.defs.onnx_opset_version()} at most" in (error.value.hint or "")


def test_two_imports_that_disagree_are_refused() -> None:
    """It is not known which of them the nodes are of."""
    model = parsed(graph(17, "y = Relu (x)"))
    model.opset_import.add(domain="ai.onnx", version=18)
    with pytest.raises(OpsetError, match="imports the standard more than once"):
        raise_opset(model, 21)


def test_a_node_without_outputs_is_refused() -> None:
    """Nothing can take the place of what makes nothing."""
    model = parsed(graph(12, "y = Relu (x) z = Softmax (x)"))
    del model.graph.node[1].output[:]
    check_refused(model, 13, "Softmax '': it has no output", KEEP.format(12, 13))


def test_training_graphs_are_refused() -> None:
    """They hold nodes of the same opset in graphs that dpl does not look at."""
    model = parsed(graph(17, "y = Relu (x)"))
    model.training_info.add()
    with pytest.raises(OpsetError, match="holds training graphs"):
        raise_opset(model, 21)
