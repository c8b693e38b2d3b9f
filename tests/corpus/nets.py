"""The real models of the tests: which there are, where each is, and what is known of it.

Some small ones come with the project: in ``models`` here, in ``sample_models``, and in the onnx
package. Many more are a corpus, a folder with a ``manifest.json`` of the same form as ours. It is
the one that the environment variable ``DPL_CORPUS`` names (an empty text says: none), or else
``shared/models`` beside the checkout, if that is there.

A test that needs a model of the corpus is ``long``, and is skipped where there is no corpus.
"""

from __future__ import annotations

import json
import math
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.backend.test
import pytest

from dplcli.ir.operators import is_placeholder
from dplcli.onnx_io import model_from_proto

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark.structures import ParameterSet

ROOT = Path(__file__).parents[2]
VARIABLE = "DPL_CORPUS"
MANIFEST = "manifest.json"
BESIDE = ROOT.parent / "shared" / "models"
OURS = Path(__file__).parent / "models"
SAMPLES = {
    "deit-dynamo18": "deit",
    "pytorch_super_resolution": "super_resolution",
    "qonnx_residual_block": "residual_block",
    "resnet18-legacy13-keepbn": "resnet18_bn",
}
"""What the corpus calls the nets of ``sample_models``."""

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
LIGHT_NETS = [
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
]
UNFILLED = {"vgg19", "zfnet512"}
"""Light nets that are not run with weights drawn for them, 144 and 87 million numbers: that takes
longer than all other nets together, and ``bvlc_alexnet`` has all of their operators."""
OF_THE_PACKAGE = "onnx_light_"
"""How the corpus begins the names of nets of the onnx package."""

ABSENT = f"is not among the models of this project, and {VARIABLE} names no folder that has it"


@cache
def corpus() -> Path | None:
    """Return the folder of the corpus, or None where there is none."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return BESIDE if (BESIDE / MANIFEST).is_file() else None
    if not named:
        return None
    folder = Path(named).resolve()
    if not (folder / MANIFEST).is_file():
        message = f"{VARIABLE}={named}: no folder with a {MANIFEST}; correct it or unset it"
        raise pytest.UsageError(message)
    return folder


def _entries(folder: Path | None) -> dict[str, dict[str, Any]]:
    if folder is None:
        return {}
    entries = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["models"]
    return {entry["name"]: entry for entry in entries}


@cache
def manifest() -> dict[str, dict[str, Any]]:
    """Return what is known of each model at hand, by the name of its file, in order."""
    return dict(sorted((_entries(OURS) | _entries(corpus())).items()))


@cache
def corpus_manifest() -> dict[str, dict[str, Any]]:
    """Return what the corpus says of its models, by the names of their files."""
    return _entries(corpus())


def light_net(name: str) -> Path:
    """Return the path of a net of the onnx package."""
    return LIGHT / f"light_{name}.onnx"


_GAINS = {"resnet50": 2.0**-14, "shufflenet": 2.0**-21}


def filled_net(name: str, folder: Path) -> Path:
    """Write a net of the onnx package with weights that mean something, and return its path.

    Its own are one number each, made at run time, so that it gives the same whatever it is fed.
    Kernels get normal numbers scaled by their fan-in (after He), matrices much smaller ones, so
    that the last softmax does not give 0 and 1; vectors get 0.5 to 1.5: one may be a variance. What
    flows through some grows with every block, so their matrices are smaller still.
    """
    path = folder / light_net(name).name
    model = onnx.load(light_net(name))
    graph = model_from_proto(model, folder, path.name).graph
    made = [node for node in graph if is_placeholder(node)]
    ends = {
        value.name: (value, size.constant.numpy().tolist())
        for value, size in ((node.outputs[0], node.inputs[0]) for node in made)
        if value is not None and size is not None and size.constant is not None
    }
    random = np.random.default_rng(0)
    for node in [node for node in model.graph.node if node.output[0] in ends]:
        value, shape = ends[node.output[0]]
        is_matrix = any(user.op_type in {"Gemm", "MatMul"} for user, _ in value.iter_uses())
        weights = random.uniform(0.5, 1.5, shape)
        if len(shape) > 1:
            scale = _GAINS.get(name, 2.0**-7) if is_matrix else 1.0
            weights = random.standard_normal(shape) * scale * (2 / math.prod(shape[1:])) ** 0.5
        tensor = onnx.numpy_helper.from_array(weights.astype(np.float32), node.output[0])
        model.graph.initializer.append(tensor)
        model.graph.node.remove(node)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin")
    return path


def our_model(name: str) -> Path | None:
    """Return the path of a model that every checkout has, or None if it is not one of those."""
    stem = name.removesuffix(".onnx")
    if stem in SAMPLES:
        return ROOT / "sample_models" / f"{SAMPLES[stem]}.onnx"
    if stem.startswith(OF_THE_PACKAGE):
        return light_net(stem.removeprefix(OF_THE_PACKAGE))
    path = OURS / f"{stem}.onnx"
    return path if path.is_file() else None


def listed_models() -> dict[str, Path]:
    """Return where each model of the manifest is, by the name of its file."""
    folder = corpus() or OURS
    return {name: our_model(name) or folder / name for name in manifest()}


def real_model(name: str) -> Path:
    """Return the path of the model that is called *name*, or skip the test and say why."""
    ours, folder = our_model(name), corpus()
    if ours is not None:
        return ours
    path = None if folder is None else folder / f"{name.removesuffix('.onnx')}.onnx"
    if path is None or not path.is_file():
        pytest.skip(f"{name} {ABSENT}")
    return path


def each_model(
    names: Iterable[str], *rest: object, gate: int = 1, first: int = 0
) -> list[ParameterSet]:
    """Return one parameter for each model; those of the corpus are for the long part.

    Args:
        names: The models, or the keys of a table of them.
        rest: What follows the name in each parameter.
        gate: Of so many models of the corpus, one is for the long part; the rest are exhaustive.
        first: Where to begin to count, so that sweeps over the corpus take different models.
    """
    every = list(names)
    distant = [name for name in every if our_model(name) is None]
    marks = {name: [pytest.mark.long] for name in distant}
    for rank, name in enumerate(distant):
        if (rank - first) % gate:
            marks[name].append(pytest.mark.exhaustive)
    return [pytest.param(name, *rest, id=name, marks=marks.get(name, ())) for name in every]
