"""``fuse_attention.yaml`` and ``fuse_ort_attention.yaml``: examples, and reasons for refusals."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from dplcli.onnx_io import to_proto
from dplcli.onnx_io.scratch import model_from_text as model_of_example
from dplcli.passes.rewrite import rewrite
from dplcli.pipeline.proving import Trier
from tests.catalogues.near_misses import FEW
from tests.support.helpers import (
    SCHEMAS,
    model_from_text,
    one_in,
    proto_from_text,
    run_model,
    shipped_rewrites,
)

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.language.replacement import RewriteRule

CATALOGUES = ("fuse_attention", "fuse_ort_attention")
READERS = ("attention", "rotary_embedding", "ort_attention", "ort_rotary_embedding")
"""Rules whose functions decide most, and have to say why they refuse."""


NAMES = [rule.name for name in CATALOGUES for rule in shipped_rewrites(name, with_examples=False)]


@cache
def rules() -> dict[str, RewriteRule]:
    """Read both catalogues; their rules have different names."""
    found = [rule for name in CATALOGUES for rule in shipped_rewrites(name)]
    assert len({rule.name for rule in found}) == len(found)
    return {rule.name: rule for rule in found}


@pytest.mark.parametrize("name", one_in(18, NAMES, gate=6))
def test_rules_hold_on_their_examples(name: str) -> None:
    """What a rule makes is valid and computes the same; what it must leave it leaves."""
    trials = list(Trier(SCHEMAS, FEW).trials(rules()[name]))

    assert [trial for trial in trials if trial.verdict == "failed"] == []
    assert sum(trial.verdict == "passed" for trial in trials) >= len(rules()[name].examples)


@pytest.mark.parametrize("name", NAMES)
def test_rules_show_what_they_take_and_what_they_leave(name: str) -> None:
    """A rule has an example of each kind, says when it holds, and from which opset on."""
    rule = rules()[name]

    assert {example.after == "unchanged" for example in rule.examples} == {True, False}
    assert "Holds when" in rule.doc
    assert "Numerics:" in rule.doc
    assert rule.opsets[0] is not None


@pytest.mark.parametrize("name", READERS)
def test_what_is_refused_is_refused_for_a_reason(name: str) -> None:
    """No example of what is left is left in silence, unless the pattern does not fit."""
    rule = rules()[name]
    reasons = set()
    for example in rule.examples:
        if example.after == "unchanged":
            done = rewrite(model_of_example(example.before, "example"), [rule])
            reasons |= {rejection.reason for rejection in done.refused}

    assert len(reasons) >= sum(e.after == "unchanged" for e in rule.examples) * 2 // 3
    assert all(len(reason) > 20 for reason in reasons)


@pytest.mark.parametrize("name", NAMES)
def test_a_second_run_changes_nothing(name: str) -> None:
    """What a catalogue makes of an example it leaves alone afterwards."""
    own = [r for r in rules().values() if r.name.startswith("ort_") == name.startswith("ort_")]
    for example in rules()[name].examples:
        model = model_of_example(example.before, "example")
        rewrite(model, own)
        assert rewrite(model, own).rounds == 0, example.origin


MASKED = """<ir_version: 10, opset_import: ["" : %d]>
g (float[2,2,4,8] q, float[2,2,5,8] k, float[2,2,5,8] v, bool[2,1,4,5] keep) => (float[2,2,4,8] y)
<float low = {%s}, float zero = {0}, float c = {0.35355338}> {
  kt = Transpose <perm = [0, 1, 3, 2]> (k)  a = MatMul (q, kt)  s = Mul (a, c)
  m = Where (keep, zero, low)  w = Add (s, m)  p = Softmax <axis = -1> (w)
  n = IsNaN (p)  safe = Where (n, zero, p)  y = MatMul (safe, v)
}"""


@pytest.mark.parametrize("low", ["-inf", "-3.40282347e+38", "-1e+30"])
@pytest.mark.parametrize(("name", "opset"), [(CATALOGUES[0], 23), (CATALOGUES[1], 17)])
def test_queries_without_keys_get_what_they_got(name: str, opset: int, low: str) -> None:
    """That is 0 where -inf is added, and the mean of all values where a very low number is."""
    before = MASKED % (opset, low)
    model = model_from_text(before)
    done = rewrite(model, shipped_rewrites(name))
    feeds = _feeds()
    feeds["keep"][0, 0, 1] = False
    feeds["keep"][1] = False

    wanted = run_model(proto_from_text(before), feeds, optimise=False)["y"]
    found = run_model(to_proto(model), feeds, optimise=False)["y"]

    assert sum(count for rule, count in done.counts.items() if rule.endswith("attention")) == 1
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    mean = feeds["v"].mean(axis=2)[0]
    expected = np.zeros_like(mean) if low == "-inf" else mean
    np.testing.assert_allclose(found[0, :, 1], expected, rtol=1e-5, atol=1e-6)


def _feeds() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    shapes = {"q": (2, 2, 4, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 8)}
    feeds: dict[str, NDArray[Any]] = {
        name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()
    }
    feeds["keep"] = rng.random((2, 1, 4, 5)) > 0.3
    return feeds


TWO_LAYERS = """<ir_version: 10, opset_import: ["" : 23]>
g (float[b,s,16] x, float[16,16] wq, float[16,16] wk, float[16,16] wv, bool[b,1,s,s] keep)
=> (float[b,s,16] y)
<float low = {-3.40282347e+38}, float zero = {0}, float c = {0.35355338},
 int64[4] n = {0, 0, 2, 8}, int64[3] o = {0, 0, 16}> {
  m = Where (keep, zero, low)
  q1 = MatMul (x, wq)  q2 = Reshape (q1, n)  q3 = Transpose <perm = [0, 2, 1, 3]> (q2)
  k1 = MatMul (x, wk)  k2 = Reshape (k1, n)  k3 = Transpose <perm = [0, 2, 3, 1]> (k2)
  v1 = MatMul (x, wv)  v2 = Reshape (v1, n)  v3 = Transpose <perm = [0, 2, 1, 3]> (v2)
  a = MatMul (q3, k3)  s1 = Mul (a, c)  w = Add (s1, m)  p = Softmax <axis = -1> (w)
  z = MatMul (p, v3)  z1 = Transpose <perm = [0, 2, 1, 3]> (z)  z2 = Reshape (z1, o)
  q6 = MatMul (z2, wq)  q4 = Reshape (q6, n)  q5 = Transpose <perm = [0, 2, 1, 3]> (q4)
  a2 = MatMul (q5, k3)  s2 = Mul (a2, c)  w2 = Add (s2, m)  p2 = Softmax <axis = -1> (w2)
  t = MatMul (p2, v3)  t1 = Transpose <perm = [0, 2, 1, 3]> (t)  y = Reshape (t1, o)
}"""


def test_layers_share_their_mask() -> None:
    """One mask for both, heads by the operator, no Transpose and no Reshape left."""
    model = model_from_text(TWO_LAYERS)

    rewrite(model, shipped_rewrites("fuse_attention"))

    operators = sorted(node.op_type for node in model.graph)
    assert operators == ["Attention"] * 2 + ["MatMul"] * 4 + ["Where"]
    onnx.checker.check_model(to_proto(model), full_check=True)
