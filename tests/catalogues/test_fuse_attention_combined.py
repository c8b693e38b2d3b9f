"""Spellings of attention in combination: whatever is put together is found and stays the same."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import rewrite
from tests.support.helpers import (
    model_from_text,
    print_model,
    proto_from_text,
    run_model,
    shipped_rewrites,
)

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

SIZE, HEADS = 8, 4
DTYPES = {"float": np.float32, "bool": np.bool_}


class Step(NamedTuple):
    """Nodes, and the inputs and constants that they need; $ is what the step works on."""

    nodes: str = ""
    inputs: str = ""
    constants: str = ""


SCALES = {
    "mul": Step("z = Mul ($, c)", constants="float c = {0.3}"),
    "div": Step("z = Div ($, c)", constants="float[1] c = {3.0}"),
    "none": Step("z = Identity ($)"),
    "computed": Step(
        "cn = Shape <start = 3, end = 4> (q) cf = Cast <to = 1> (cn) cr = Sqrt (cf)"
        " ci = Reciprocal (cr) z = Mul (ci, $)"
    ),
}
CAPS = {
    "none": Step("x = Identity ($)"),
    "div": Step(
        "xd = Div ($, cap) xt = Tanh (xd) x = Mul (cap, xt)", constants="float cap = {2.5}"
    ),
    "mul": Step(
        "xd = Mul ($, uncap) xt = Tanh (xd) x = Mul (xt, cap)",
        constants="float cap = {4.0}, float uncap = {0.125}",
    ),
}
MASKS = {
    "none": Step("w = Identity ($)"),
    "float": Step("w = Add ($, m)", "float[B,1,S,T] m"),
    "row": Step("w = Add (m, $)", "float[B,1,1,T] m"),
    "heads": Step("w = Add ($, m)", "float[H,S,T] m"),
    "two": Step("w1 = Add ($, m) w = Add (w1, r)", "float[B,1,S,T] m, float[1,H,S,T] r"),
    "choice": Step("w = Where (keep, $, low)", "bool[B,1,S,T] keep", "float low = {-inf}"),
    "drop": Step("w = Where (keep, low, $)", "bool[S,T] keep", "float low = {-inf}"),
    "added": Step(
        "m = Where (keep, zero, low) w = Add ($, m)",
        "bool[B,1,1,T] keep",
        "float low = {-inf}",
    ),
    "low": Step(
        "m = Where (keep, zero, low) w = Add ($, m)",
        "bool[B,1,S,T] keep",
        "float low = {-3.40282347e+38}",
    ),
}
GUARDS = {
    "nan": Step("pn = IsNaN ($) p = Where (pn, zero, $)"),
    "none": Step("p = Identity ($)"),
}
KEYS = {
    "plain": Step("kt = Transpose <perm = [0, 1, 3, 2]> (k)", "float[B,H,T,8] k, float[B,H,T,8] v"),
    "swapped": Step(
        "kt = Transpose <perm = [0, 2, 3, 1]> (k)", "float[B,T,H,8] k, float[B,H,T,8] v"
    ),
    "scaled": Step(
        "kq = Mul (k, kc) kt = Transpose <perm = [0, 1, 3, 2]> (kq)",
        "float[B,H,T,8] k, float[B,H,T,8] v",
        "float kc = {0.5}",
    ),
    "merged": Step(
        "k3 = Reshape (k, kn) k4 = Transpose <perm = [0, 2, 1]> (k3) kt = Reshape (k4, km)",
        "float[B,H,T,8] k, float[B,H,T,8] v",
        "int64[3] kn = {-1, T, 8}, int64[4] km = {-1, H, 8, T}",
    ),
    "shared": Step(
        "ku = Unsqueeze (k0, ka) kx = Expand (ku, kn) k = Reshape (kx, km) vu = Unsqueeze (v0, ka)"
        " vx = Expand (vu, kn) v = Reshape (vx, km) kt = Transpose <perm = [0, 1, 3, 2]> (k)",
        "float[B,2,T,8] k0, float[B,2,T,8] v0",
        "int64[1] ka = {2}, int64[5] kn = {B, 2, 2, T, 8}, int64[4] km = {B, H, T, 8}",
    ),
    "single": Step(
        "kt = Transpose <perm = [0, 1, 3, 2]> (k)", "float[B,1,T,8] k, float[B,1,T,8] v"
    ),
}
NAMED = [SCALES, CAPS, MASKS, GUARDS, KEYS]
UNGUARDED = {"choice", "drop", "added"}
"""Masks by -inf, which can leave a query without keys: then what results is no number."""


def combinations() -> list[tuple[str, ...]]:
    """Choose some of all combinations, each spelling at least twice."""
    chance = random.Random(0)  # noqa: S311  # not for secrets
    found = {tuple(chance.choice(list(kind)) for kind in NAMED) for _ in range(75)}
    return sorted(one for one in found if one[3] == "nan" or one[2] not in UNGUARDED)


COMBINATIONS = combinations()


def test_each_spelling_comes_more_than_once() -> None:
    """The choice leaves nothing out."""
    for place, kind in enumerate(NAMED):
        for name in kind:
            assert sum(one[place] == name for one in COMBINATIONS) > 1, name


def written(names: tuple[str, ...], *, opset: int, square: bool) -> str:
    """Write a model."""
    scale, cap, mask, guard, key = (kind[name] for kind, name in zip(NAMED, names, strict=True))
    nodes = [
        key.nodes,
        "a = MatMul (q, kt)",
        scale.nodes.replace("$", "a"),
        cap.nodes.replace("$", "z"),
        mask.nodes.replace("$", "x"),
        "s = Softmax <axis = -1> (w)",
        guard.nodes.replace("$", "s"),
        "y = MatMul (p, v)",
    ]
    steps = [Step(constants="float zero = {0}"), scale, cap, mask, guard, key]
    inputs = ", ".join(["float[B,H,S,8] q", *(step.inputs for step in steps if step.inputs)])
    constants = ", ".join(step.constants for step in steps if step.constants)
    text = (
        f'<ir_version: 10, opset_import: ["" : {opset}]>\n'
        f"g ({inputs}) => (float[B,H,S,8] y) <{constants}> {{ {' '.join(nodes)} }}"
    )
    sizes = {"B": 2, "H": HEADS, "S": 4 if square else 3, "T": 4}
    for letter, size in sizes.items():
        for before in "[,{ ":
            for after in ",]}":
                text = text.replace(f"{before}{letter}{after}", f"{before}{size}{after}")
    return text


def feeds_of(text: str) -> dict[str, NDArray[Any]]:
    """Make inputs; a query here and there has no keys."""
    rng = np.random.default_rng(0)
    feeds: dict[str, NDArray[Any]] = {}
    for item in proto_from_text(text).graph.input:
        shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        is_bool = item.type.tensor_type.elem_type == 9
        feeds[item.name] = (
            rng.random(shape) > 0.4 if is_bool else rng.normal(size=shape).astype(np.float32)
        )
    if "keep" in feeds:
        feeds["keep"][..., -1, :] = False
    return feeds


@pytest.mark.parametrize("names", COMBINATIONS, ids="-".join)
@pytest.mark.parametrize("square", [True, False], ids=["square", "not-square"])
def test_the_standard_operator(names: tuple[str, ...], square: bool) -> None:  # noqa: FBT001  # a parameter
    """One Attention is left of everything but masks, and computes the same."""
    _check(written(names, opset=23, square=square), "fuse_attention", {"Attention"})


OWN = {"com.microsoft.MultiHeadAttention", "com.microsoft.GroupQueryAttention"}


@pytest.mark.parametrize("names", COMBINATIONS, ids="-".join)
def test_operators_of_onnxruntime(names: tuple[str, ...]) -> None:
    """One operator is left, in opset 17."""
    _check(written(names, opset=17, square=True), "fuse_ort_attention", OWN)


def _check(before: str, catalogue: str, wanted: set[str]) -> None:
    model = model_from_text(before)

    rewrite(model, shipped_rewrites(catalogue))

    operators = [node.qualified_op for node in model.graph]
    assert sum(op in wanted for op in operators) == 1, print_model(model)
    assert not {"Softmax", "Tanh", "MatMul"} & {*operators}, print_model(model)
    feeds = feeds_of(before)
    expected = run_model(proto_from_text(before), feeds, optimise=False)["y"]
    for optimise in (False, True):
        found = run_model(to_proto(model), feeds, optimise=optimise)["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
