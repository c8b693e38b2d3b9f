"""Models of which onnxruntime does not run some nodes: the others are judged all the same."""

import pytest

from dplcli.errors import VerificationError
from dplcli.verify import VerificationResult
from dplcli.verify.equivalence import verify_equivalence
from tests.verify.conftest import Save

HEADER = '<ir_version: 8, opset_import: ["" : 17, "shop" : 1]>'
NET = f"""{HEADER} g (float[N, 8] x) => (float[N, 8] y) <float two = {{2}}, float none = {{0}}>
    {{ a = Tanh (x)  b = Mul (a, two)  c = shop.Price <rate = 0.5> (b, a)
       d = Sigmoid (c)  y = Add (d, none) }}"""
ROW = NET.replace("d = Sigmoid (c)", "e = shop.Price <rate = 2.0> (c, b)  d = Sigmoid (e)")
LAST = NET.replace("Price <rate = 0.5> (b, a)", "Price (b, a)").replace(
    "d = Sigmoid (c)  y = Add (d, none)", "y = shop.Price <rate = 1.5> (c, a)"
)
LONG = pytest.mark.long
BRANCH = f"""{HEADER} g (float[N, 8] x, bool k) => (float[N, 8] y) <float none = {{0}}>
    {{ a = Tanh (x)  c = If (k) <
         then_branch = t () => (float[N, 8] u) {{ u = shop.Price <rate = 0.5> (a) }},
         else_branch = e () => (float[N, 8] v) {{ v = Exp (a) }}>
       y = Add (c, none) }}"""


def changed(save: Save, net: str, old: str, new: str) -> VerificationResult:
    """Compare a model with one in which something was replaced."""
    assert old in net
    return verify_equivalence(save(net), save(net.replace(old, new), "candidate"))


@pytest.mark.parametrize(
    ("net", "old", "new"),
    [
        pytest.param(NET, "Add (d, none)", "Sub (d, none)", id="behind"),
        pytest.param(NET, "Mul (a, two)", "Add (a, a)", id="before"),
        pytest.param(ROW, "Mul (a, two)", "Add (a, a)", id="two-in-a-row", marks=LONG),
        pytest.param(LAST, "Mul (a, two)", "Add (a, a)", id="an-output", marks=LONG),
        pytest.param(BRANCH, "Add (c, none)", "Sub (c, none)", id="in-a-branch", marks=LONG),
    ],
)
def test_what_did_not_change_need_not_run(save: Save, net: str, old: str, new: str) -> None:
    """The same custom operator is in both, and what changed gives the same; it is said."""
    result = changed(save, net, old, new)
    assert result.verdict == "equivalent"
    assert result.warnings[0].startswith("onnxruntime does not run ")
    assert "it is the same in both models" in result.warnings[0]


@pytest.mark.parametrize(
    ("net", "old", "new"),
    [
        pytest.param(NET, "Sigmoid", "Tanh", id="behind"),
        pytest.param(NET, "{2}", "{2.1}", id="before"),
        pytest.param(NET, "Tanh (x)", "Sin (x)", id="before-both", marks=LONG),
        pytest.param(ROW, "two = {2}", "two = {3}", id="two-in-a-row", marks=LONG),
        pytest.param(LAST, "two = {2}", "two = {3}", id="read-by-what-gives-an-output", marks=LONG),
        pytest.param(BRANCH, "none = {0}", "none = {1}", id="behind-a-branch", marks=LONG),
    ],
)
def test_what_changed_is_seen(save: Save, net: str, old: str, new: str) -> None:
    """Before and behind the operator that does not run."""
    assert changed(save, net, old, new).verdict == "different"


@pytest.mark.parametrize(
    ("net", "old", "new"),
    [
        pytest.param(NET, "rate = 0.5", "rate = 0.6", id="attribute"),
        pytest.param(NET, "(b, a)", "(a, b)", id="operands"),
        pytest.param(NET, "shop.Price <rate = 0.5> (b, a)", "Sub (b, a)", id="gone"),
        pytest.param(ROW, "(c, b)", "(c, a)", id="second-of-two"),
        pytest.param(BRANCH, "Exp (a)", "Sin (a)", id="beside-it-in-a-branch"),
        pytest.param(
            NET.replace("y =", "z = Neg (d)  y ="), "d = Sigmoid (c)  z = Neg (d)",
            "d = shop.Cost (c)", id="new"),
    ],
)  # fmt: skip
def test_what_does_not_run_and_changed_is_not_seen(
    save: Save, net: str, old: str, new: str
) -> None:
    """It is named, and nobody calls the models equivalent."""
    result = changed(save, net, old, new)
    assert result.verdict == "inconclusive"
    assert "was not seen: onnxruntime does not run it" in result.doubts[0]


@pytest.mark.parametrize("end", ["Add (a, z)", "Ad (a, z)"])
def test_a_model_that_is_wrong_has_no_verdict(save: Save, end: str) -> None:
    """Shapes that do not fit, or no such operator: onnx says so, too."""
    net = f"g (float[2, 3] x, float[4, 5] z) => (float[2, 3] y) {{ a = Tanh (x)  y = {end} }}"
    with pytest.raises(VerificationError, match="onnxruntime does not run the original"):
        changed(save, net, "Tanh", "Sin")
