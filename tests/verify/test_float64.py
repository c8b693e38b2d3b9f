"""Models that compute in float64 what they compute in coarser floats."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from dplcli.verify.float64 import in_float64, wide_feed
from dplcli.verify.values import Feed
from tests.support.helpers import proto_from_text

NET = """g (float[2, 3] x, float16[2, 3] h, int64[2] n) => (float[2, 3] y, int64[2] m)
<float third = {0.333333343}, float16 half = {14336}, int64 one = {1}>
{ a = Mul (x, third)
  c = Constant <value_float = 0.1> ()
  l = Constant <value_floats = [1.0, 2.0, 3.0]> ()
  s = Constant <value_ints = [2, 3]> ()
  z = ConstantOfShape (s)
  o = ConstantOfShape <value = float[1] {2}> (s)
  k = Mul (h, half)
  w = Cast <to = 1> (k)
  b = Sum (a, c, l, z, o, w)
  t = Constant <value = bool {1}> ()
  y = If (t) <
    then_branch = p () => (float[2, 3] u) <float v = {0.7}> { u = Mul (b, v) },
    else_branch = q () => (float[2, 3] u2) { u2 = Identity (b) }>
  m = Add (n, one) }"""


def run(model: onnx.ModelProto, feeds: Mapping[str, Feed]) -> list[np.ndarray]:
    """Run a model in onnx's evaluator."""
    found = ReferenceEvaluator(model).run(None, dict(feeds))
    assert isinstance(found, list)
    return found


def test_all_floats_are_wide_and_keep_their_values() -> None:
    """Constants of each form, casts, bodies; whole numbers stay as they are."""
    rng = np.random.default_rng(0)
    x, h = rng.normal(size=(2, 3)).astype(np.float32), rng.normal(size=(2, 3)).astype(np.float16)
    n = np.arange(2)
    wide = {name: wide_feed(array) for name, array in (("x", x), ("h", h), ("n", n))}
    y, m = run(in_float64(proto_from_text(NET)), wide)
    single = [np.float64(np.float32(value)) for value in (0.333333343, 0.1, 0.7)]
    exact = x.astype(np.float64) * single[0] + single[1] + [1, 2, 3] + 2
    exact = (exact + h.astype(np.float64) * 0.5) * single[2]
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, exact, rtol=1e-14)
    assert m.dtype == np.int64
    assert m.tolist() == [1, 2]


def test_functions_are_wide() -> None:
    """Constants in their bodies, too; what belongs to another domain is left alone."""
    model = proto_from_text("""<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
        g (float[2] x) => (float[2] y) { y = d.f (x) }
        <domain: "d", opset_import: ["" : 17]>
        f (a) => (b) { c = Constant <value_float = 0.1> ()  b = Add (a, c) }""")
    (y,) = run(in_float64(model), {"x": np.zeros(2)})
    assert y.dtype == np.float64
    assert y[0] == np.float64(np.float32(0.1))


def test_the_model_itself_is_not_changed() -> None:
    """A copy is."""
    model = proto_from_text(NET)
    before = model.SerializeToString(deterministic=True)
    wide = in_float64(model)
    assert model.SerializeToString(deterministic=True) == before
    assert wide.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE
    assert wide.graph.input[2].type.tensor_type.elem_type == TensorProto.INT64


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 2.0**-23), ("float16", 2.0**-10)])
def test_constants_and_inputs_move_in_the_last_place(dtype: str, unit: float) -> None:
    """By half a unit to two, both ways among many; and the same for the same seed."""
    values = np.linspace(1, 2, 64).astype(dtype)
    tensor = onnx.numpy_helper.from_array(values, "w")
    model = proto_from_text("g () => (float[64] y) { y = Identity (w) }")
    model.graph.initializer.append(tensor)
    moved = [
        onnx.numpy_helper.to_array(in_float64(model, rng).graph.initializer[0])
        for rng in (np.random.default_rng(1), np.random.default_rng(1))
    ]
    fed = wide_feed(values, np.random.default_rng(1))
    assert isinstance(fed, np.ndarray)
    for wide in (*moved, fed):
        shares = wide / values.astype(np.float64) - 1
        assert unit / 2 <= np.abs(shares).min() < np.abs(shares).max() <= 2 * unit
        assert {*np.sign(shares)} == {-1, 1}
    np.testing.assert_array_equal(moved[0], moved[1])


def test_what_is_fed_keeps_its_form() -> None:
    """Nothing, lists, words and whole numbers."""
    words = np.array(["a", "b"], object)
    assert wide_feed(None) is None
    assert wide_feed(words, np.random.default_rng(0)) is words
    found = wide_feed([np.ones(2, np.float32), np.ones(2, np.int64)])
    assert isinstance(found, list)
    assert [array.dtype.name for array in found] == ["float64", "int64"]


def test_groups_are_normalised_in_float64() -> None:
    """Not in float32, which is what a GroupNormalization says of itself by default."""
    opset = '<ir_version: 10, opset_import: ["" : 21]>'
    whole = f"""{opset} g (float[2,4,3] x, float[4] s, float[4] b) => (float[2,4,3] y) {{
        y = GroupNormalization <num_groups = 2> (x, s, b) }}"""
    spelt = f"""{opset} g (float[2,4,3] x, float[2] s, float[2] b) => (float[2,4,3] y)
        <int64[3] t = {{0,2,-1}}, int64[3] h = {{2,4,3}}> {{
        r = Reshape (x, t) i = InstanceNormalization (r, s, b) y = Reshape (i, h) }}"""
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    one, other = (
        run(
            in_float64(proto_from_text(text)),
            {"x": wide_feed(x), "s": np.ones(count), "b": np.zeros(count)},
        )[0]
        for text, count in ((whole, 4), (spelt, 2))
    )
    np.testing.assert_allclose(one, other, rtol=1e-7)  # epsilon is a float32
