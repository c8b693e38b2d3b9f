"""Cases of ``fuse_ort.yaml``: a model, what it has to become, and both in onnxruntime."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort

from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import rewrite
from tests.support.helpers import model_from_bytes, shipped_rewrites, thinned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.language.replacement import RewriteRule

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]

SEEDS = thinned(4, range(4))
HEADER = '<ir_version: 10, opset_import: ["" : {opset}]>\n'
ONNX_NAMES = {"float32": "float", "float64": "double"}


@cache
def rules() -> list[RewriteRule]:
    """Read the catalogue, without the one for attention."""
    every = shipped_rewrites("fuse_ort")
    return [rule for rule in every if not rule.origin.startswith("fuse_ort_attention")]


class Case(NamedTuple):
    """A model before, and what it must become.

    Attributes:
        made: The operators after, in order of the alphabet.
        feeds: The inputs by name.
        weights: The initializers by name.
        body: The nodes, as ONNX text; they make ``y``.
        result: Type of ``y``.
        rank: Rank of ``y``.
        opset: Version of the standard operators.
    """

    made: str
    feeds: Arrays
    weights: Arrays
    body: str
    result: str
    rank: int
    opset: int = 21


def declared(arrays: Mapping[str, Array]) -> str:
    """Declare arrays in ONNX text."""
    return ", ".join(
        f"{ONNX_NAMES.get(str(data.dtype), str(data.dtype))}"
        f"{list(data.shape) if data.ndim else ''} {name}"
        for name, data in arrays.items()
    )


def model_of(case: Case) -> onnx.ModelProto:
    """Build the model of a case."""
    dims = ", ".join(f"d{axis}" for axis in range(case.rank))
    result = f"{ONNX_NAMES.get(case.result, case.result)}[{dims}] y"
    text = f"g ({declared(case.feeds)}) => ({result}) {{ {case.body} }}"
    proto: onnx.ModelProto = onnx.parser.parse_model(HEADER.format(opset=case.opset) + text)
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(data, name) for name, data in case.weights.items()
    )
    return proto


def run(proto: onnx.ModelProto, feeds: Arrays) -> NDArray[Any]:
    """Run a model as it is."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    results: Sequence[NDArray[Any]] = session.run(None, feeds)
    return results[0]


def before_and_after(case: Case) -> tuple[NDArray[Any], NDArray[Any]]:
    """Run a case before and after rewriting, which must make what the case says."""
    original = model_of(case)
    model = model_from_bytes(original.SerializeToString())
    rewrite(model, rules())
    result = to_proto(model)

    assert " ".join(sorted(node.op_type for node in result.graph.node)) == case.made
    return run(original, case.feeds), run(result, case.feeds)


def floats(rng: np.random.Generator, *dims: int, dtype: str = "float32") -> Array:
    """Draw from a normal distribution."""
    return rng.normal(size=dims).astype(dtype)
