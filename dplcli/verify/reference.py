"""A model in onnx's reference evaluator: slow, written for clarity, and nobody's optimiser."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx.external_data_helper import load_external_data_for_model
from onnx.reference import ReferenceEvaluator

from dplcli.files import text_path
from dplcli.verify.interface import read_whole
from dplcli.verify.ort_messages import one_line
from dplcli.verify.ort_values import leaves_of, numbered
from dplcli.verify.values import (
    Feed,
    Leaf,
    Outputs,
    RunError,
    ShortageError,
    Source,
    is_exotic,
)


class ReferenceSession:
    """A model that the reference evaluator runs."""

    def __init__(self, source: Source) -> None:
        """Load the model with all its weights.

        Raises:
            RunError: The reference evaluator does not know an operator, or cannot read the model.
        """
        try:
            model = _load(source)
            self._names = [output.name for output in model.graph.output]
            self._evaluator = ReferenceEvaluator(model)
        except Exception as error:
            raise _run_error(error) from error

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model.

        Raises:
            RunError: The reference evaluator fails on the way.
        """
        try:
            with np.errstate(all="ignore"):
                values = self._evaluator.run(None, dict(feeds))
            return {
                name: tuple(_readable(leaf) for leaf in leaves_of(value))
                for name, value in zip(self._names, values, strict=True)
            }
        except Exception as error:
            raise _run_error(error) from error


def _load(source: Source) -> onnx.ModelProto:
    """Read the model; refilled weights are put in, which are declared external without a file."""
    if source.content is None:
        return read_whole(source.path)
    model = onnx.load_from_string(source.content)
    weights = source.weights or {}
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(onnx.numpy_helper.from_array(weights[tensor.name], tensor.name))
    with text_path(source.path.parent) as folder:
        load_external_data_for_model(model, folder)
    return model


def _readable(leaf: Leaf) -> Leaf:
    """Return data as onnxruntime's comes: bfloat16 as float32, float8 as its steps."""
    if not is_exotic(leaf.data):
        return leaf
    if leaf.dtype == "bfloat16":
        return Leaf(leaf.label, leaf.dtype, leaf.data.astype(np.float32))
    if leaf.dtype.startswith("float8"):
        return Leaf(leaf.label, leaf.dtype, numbered(leaf.data.view(np.uint8), leaf.dtype))
    raise NotImplementedError(f"an output of type {leaf.dtype}")


def _run_error(error: Exception) -> RunError:
    message = one_line(f"{type(error).__name__}: {error}")
    return ShortageError(message) if isinstance(error, MemoryError) else RunError(message)
