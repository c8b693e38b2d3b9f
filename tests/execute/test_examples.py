"""Every example that the catalogue dnnl takes: it runs on oneDNN and agrees, or has a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dplcli.execute import kernels_for
from dplcli.execute.session import open_session
from dplcli.language import PatternRule
from dplcli.onnx_io import OnnxSchemas, to_proto
from dplcli.passes.partition import partition
from dplcli.passes.select import select_matches
from dplcli.pipeline import load_catalog_rules
from dplcli.pipeline.proving import Trier
from dplcli.verify.check import Execution
from dplcli.verify.values import ModelSource
from tests.execute.support import SECONDS, needs_onednn

if TYPE_CHECKING:
    from dplcli.ir import Model

TRIER = Trier(OnnxSchemas())
DRAWN = {
    "float32": np.float32,
    "float16": np.float16,
    "int8": np.int8,
    "uint8": np.uint8,
    "int32": np.int32,
}
ROUNDINGS = {"float32": 1 << 10, "float16": 1}
"""The check's own tolerance: in float32 a thousand roundings; in float16 one, of the result."""

AGREED = {dtype: 4 * float(np.finfo(dtype).eps) * count**0.5 for dtype, count in ROUNDINGS.items()}
"""How far results may be apart, of the largest number."""

STEP = 1
"""How far whole numbers may be apart: what lies between two steps may be rounded to either."""


@pytest.mark.long
def test_every_example_is_classified(tmp_path: Path) -> None:
    """What runs agrees with the body; what is refused has a reason, and most of it runs.

    In a process of its own: a library that breaks the heap ends that, and no other test.
    """
    needs_onednn()
    code = "import sys; from tests.execute.test_examples import classify; classify(sys.argv[1])"
    done = subprocess.run(  # noqa: S603  # our own code
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * SECONDS,
    )
    assert done.returncode == 0, done.stderr


def classify(folder: str) -> None:
    """Run every example; raise AssertionError where something is wrong."""
    ran, refused = 0, {}
    rules = [rule for rule in load_catalog_rules(["dnnl"]) if isinstance(rule, PatternRule)]
    for rule in rules:
        for number, model in enumerate(TRIER.shown(rule)):
            place = Path(folder, f"{rule.name}_{number}.onnx")
            reasons = _run(rule, model, place)
            refused.update({f"{place.stem}: {reason}": reason for reason in reasons})
            ran += not reasons
    assert ran > len(refused)
    assert all(refused.values())


def _run(rule: PatternRule, model: Model, path: Path) -> list[str]:
    """Run a model by its bodies and on the library; return why partitions were refused."""
    made = partition(model, select_matches(model, [rule]))
    assert made
    path.write_bytes(to_proto(model).SerializeToString())
    random = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.inputs:
        known = value.known_type()
        if known is None or known.dtype not in DRAWN or known.shape is None:
            return [f"{value.name} is not drawn"]
        shape = [size if isinstance(size, int) else 2 for size in known.shape]
        feeds[value.name] = (3 * random.standard_normal(shape)).astype(DRAWN[known.dtype])
    asked = Execution(isolated=False, kernels=kernels_for("dnnl"))
    kernels = open_session(ModelSource(path, execution=asked), "disable")
    found = kernels.run(feeds)
    if reasons := [item.why for item in kernels.record() if item.why]:
        return reasons
    assert all(item.runs == 1 for item in kernels.record())
    from dplcli.verify.engines import Session  # noqa: PLC0415  # onnxruntime

    wanted = Session(ModelSource(path), "disable").run(feeds)
    for name, (leaf,) in wanted.items():
        (other,) = found[name]
        scale = float(np.abs(leaf.data.astype(float)).max(initial=1e-3))
        difference = np.abs(leaf.data.astype(float) - other.data.astype(float)).max(initial=0.0)
        allowed = STEP if leaf.data.dtype.kind in "iu" else AGREED[leaf.dtype] * scale
        assert difference <= allowed, (path.stem, name, difference, scale)
    return []
