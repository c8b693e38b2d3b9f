"""``--math bf16``: products of bfloat16 are judged as such, and refused where they gain nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dplcli.errors import UsageError
from dplcli.execute import kernels_for
from dplcli.execute.onednn.library import Library
from dplcli.execute.onednn.plans import plan_text
from dplcli.execute.planned import planned, taken
from dplcli.pipeline import verify
from dplcli.verify.check import Check, Execution, Kernels
from dplcli.verify.values import ModelSource
from tests.execute.rounding import FAULT
from tests.execute.support import NET, SECONDS, needs_onednn, net, partitioned
from tests.verify.test_bfloat16 import model as narrow_model

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.execute.plan import KernelPlan

ROUNDING = Kernels("dnnl", "rounding", "tests.execute.rounding", math="bf16")
DEEP = """g (float[N,32] x) => (float[N,32] y)
  <float[32,32] a, float[32] b, float[32,32] c, float[32,32] d> {
    p = MatMul (x, a) q = Add (p, b) r = Relu (q) s = MatMul (r, c) t = Relu (s)
    y = MatMul (t, d) }"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "merge"), [(NET, False), (DEEP, False), (DEEP, True)], ids=["net", "deep", "region"]
)
def test_products_of_bfloat16_are_right(tmp_path: Path, text: str, *, merge: bool) -> None:
    """Outputs are outside their tolerance, and each partition gives what its body gives in bf16."""
    paths = partitioned(net(text), tmp_path, merge=merge)
    found = verify(*paths, check=_asking(ROUNDING))
    assert found.verdict == "equivalent"
    excuses = [output.excuse for output in found.outputs]
    assert all(" from float32 (relative error), cosine 0.9999" in excuse for excuse in excuses)
    assert all(", top-1 agreement " in excuse for excuse in excuses)
    strict = _asking(ROUNDING, rtol=1e-9, atol=1e-9)  # what somebody chose decides alone
    assert verify(*paths, check=strict).verdict == "different"


@pytest.mark.long
@pytest.mark.parametrize("merge", [False, True], ids=["apart", "region"])
def test_a_wrong_body_is_wrong_in_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, merge: bool
) -> None:
    """An activation that is left out is no rounding."""
    paths = partitioned(net(DEEP), tmp_path, merge=merge)
    monkeypatch.setenv(FAULT, "Relu")
    found = verify(*paths, check=_asking(ROUNDING))
    assert found.verdict == "different"
    assert "by itself gives something else than its body" in found.reasons[0]


MLP = """g (bfloat16[N,32] x) => (bfloat16[N,32] y)
  <bfloat16[32,32] a, bfloat16[32] b, bfloat16[32,32] c> {
    p = MatMul (x, a) q = Add (p, b) r = Relu (q) s = Sin (r) y = MatMul (s, c) }"""


@pytest.mark.parametrize("fault", ["", "Relu"])
def test_a_model_in_bfloat16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Its partitions are judged by their bodies in float32, also where outputs are near."""
    monkeypatch.setenv(FAULT, fault)
    paths = partitioned(narrow_model(MLP), tmp_path)
    found = verify(*paths, check=_asking(ROUNDING, seeds=(0,)))
    assert found.verdict == ("different" if fault else "equivalent")
    assert "computed in float32" in found.warnings[0]
    if fault:
        assert "'dense_bias_relu" in found.reasons[0]


def test_a_model_in_bfloat16_runs(tmp_path: Path) -> None:
    """On a CPU that has it, both products run; what lies between is computed in float32."""
    needs_onednn()
    if "AVX512_BF16" not in Library().features:
        pytest.skip("this CPU does not compute in bfloat16")
    paths = partitioned(narrow_model(MLP), tmp_path)
    found = verify(*paths, check=_asking(kernels_for("dnnl", "all"), seeds=(0,)))
    assert found.verdict == "equivalent"
    assert found.kernels is not None
    assert found.kernels.ran == 2


def _asking(kernels: Kernels, **settings: object) -> Check:
    return Check(execution=Execution(kernels=kernels, timeout=SECONDS), **settings)  # type: ignore[arg-type]


def test_where_nothing_is_gained_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU without AMX computes in float32 all the same; one with it is told to go on."""
    needs_onednn()
    monkeypatch.setattr(Library, "has_bf16", False)
    library = Library()
    library.check_math("fp32")
    with pytest.raises(UsageError, match="--math bf16: this CPU has no AMX"):
        library.check_math("bf16")
    monkeypatch.setattr(Library, "has_bf16", True)
    library.check_math("bf16")


class Willing:
    """A library that runs everything."""

    def judge(self, _: KernelPlan) -> str:
        """Return no objection."""
        return ""


def test_a_plan_says_which_arithmetic(tmp_path: Path) -> None:
    """Every call of it, with the fewest rows that pay; without the option nothing is said."""
    _, path = partitioned(net(DEEP), tmp_path)
    for math, lines in (("fp32", 0), ("bf16", 3)):
        calls = taken(planned(Willing(), ModelSource(path), "dnnl", math))
        text = plan_text(
            {
                (function.domain, function.name): [
                    (call.node.name, plan, {}) for call, plan in alike
                ]
                for function, alike in calls.items()
            },
            "test",
        )
        assert text.count("\nmath 1 2\n") == lines
        assert ("\nmath" in text) == bool(lines)
