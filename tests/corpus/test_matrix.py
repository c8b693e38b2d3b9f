"""Every real model for every target, with constants lifted and embedded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.corpus.matrix import (
    CONSTANTS,
    FOR_EACH_CALL,
    FOR_EACH_FUNCTION,
    FORMS,
    LARGEST_GROWTH,
    TARGETS,
    Cell,
    fill,
)
from tests.corpus.nets import LIGHT_NETS, UNFILLED, filled_net, light_net, manifest, real_model
from tests.support.helpers import thinned

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLE_MODELS = Path(__file__).parents[2] / "sample_models"
SAMPLES = sorted(SAMPLE_MODELS.glob("*.onnx"))
MODELS = manifest()

# One session takes onnxruntime two minutes; the structure is checked all the same.
UNVERIFIED = {"gru_unrolled-legacy17.onnx"}
# Too small for a function of a few hundred bytes not to count: nets without weights, or nearly so.
SMALLEST = 10_000
# Weights of a few numbers each: a call, which says what it stands for, is as long as they are.
MANY_CALLS = {
    "gru_unrolled-legacy17.onnx": 0.11,
    "ortgo_big_fanout.onnx": 0.31,
}

CELLS = [(t, c, f) for t in TARGETS for c in CONSTANTS for f in FORMS]


def dealt(names: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """Give each model one cell, in turns: all of them take an hour."""
    return [(name, *CELLS[rank % len(CELLS)]) for rank, name in enumerate(names)]


def check_growth(model: Path, cell: Cell, constants: str, form: str) -> None:
    """Check that the file hardly grew; weights that are embedded make functions of their own."""
    size = model.stat().st_size
    if constants == "lift" and size >= SMALLEST:
        more = FOR_EACH_CALL[form] * cell.partitions + FOR_EACH_FUNCTION * cell.functions
        assert cell.growth <= MANY_CALLS.get(model.name, LARGEST_GROWTH) + more / size


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "target", "constants", "form"), dealt([path.name for path in SAMPLES])
)
def test_samples(name: str, tmp_path: Path, target: str, constants: str, form: str) -> None:
    """The models that come with dpl."""
    model = SAMPLE_MODELS / name
    cell = fill(model, tmp_path, target=target, constants=constants, form=form)
    assert cell.ran
    check_growth(model, cell, constants, form)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "target", "constants", "form"), thinned(4, dealt(LIGHT_NETS), first=2)
)
def test_light_nets(name: str, tmp_path: Path, target: str, constants: str, form: str) -> None:
    """The nets of the onnx package, with weights that mean something."""
    verify = name not in UNFILLED
    model = filled_net(name, tmp_path) if verify else light_net(name)
    cell = fill(model, tmp_path, target=target, constants=constants, form=form, verify=verify)
    assert cell.ran == verify
    check_growth(model, cell, constants, form)


@pytest.mark.long
@pytest.mark.parametrize(("name", "target", "constants", "form"), thinned(7, dealt(sorted(MODELS))))
def test_corpus(name: str, tmp_path: Path, target: str, constants: str, form: str) -> None:
    """Exported and hand-made nets of every kind."""
    model = real_model(name)
    verify = name not in UNVERIFIED
    cell = fill(model, tmp_path, target=target, constants=constants, form=form, verify=verify)
    runs = MODELS[name]["checks"]["onnxruntime_cpu"] == "ok"
    assert cell.ran == (verify and (runs or not cell.partitions))
    check_growth(model, cell, constants, form)
