"""Run a model in onnx's reference evaluator: slow, written for clarity, without an optimiser."""

from collections.abc import Mapping
from graphlib import TopologicalSorter

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from dplcli.onnx_io.opset import all_nodes
from dplcli.verify.engines import numbered
from dplcli.verify.model import whole_of
from dplcli.verify.settings import (
    CPU,
    Feed,
    Leaf,
    ModelSource,
    Outputs,
    RunError,
    ShortageError,
    is_exotic,
    leaves_of,
    one_line,
)

_IR_VERSION = 8
"""That of models of one operator: old enough for all versions of onnxruntime."""

Float64s = npt.NDArray[np.float64]


class BatchNormalization(OpRun):
    """The operator in inference, in all opsets; onnx's own trains before opset 14."""

    op_domain = ""

    def _run(self, x: Float64s, *given: Float64s, **attributes: float) -> tuple[Float64s]:
        if attributes.get("training_mode") or len(self.onnx_node.output) > 1:
            # nobody feeds a model in training here; to say so beats another operator's result
            raise NotImplementedError("BatchNormalization in training")
        shape = (-1, *(1,) * (x.ndim - 2))
        scale, bias, mean, variance = (values.reshape(shape) for values in given)
        made: Float64s = (x - mean) * (scale / np.sqrt(variance + attributes["epsilon"])) + bias
        return (made.astype(x.dtype),)


class MaxPool(OpRun):
    """onnxruntime's operator, which takes float64; onnx's own goes from element to element."""

    op_domain = ""

    def _run(self, x: Float64s, **_: float) -> tuple[Float64s, ...]:
        kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
        graph = onnx.helper.make_graph(
            [self.onnx_node],
            "pool",
            [onnx.helper.make_tensor_value_info(self.onnx_node.input[0], kind, x.shape)],
            [onnx.ValueInfoProto(name=name) for name in self.onnx_node.output],
        )
        opsets = [onnx.helper.make_opsetid(*each) for each in self.run_params["opsets"].items()]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        session = ort.InferenceSession(model.SerializeToString(), providers=[CPU])
        return tuple(session.run(None, {self.onnx_node.input[0]: x}))


class ReferenceSession:
    """A model that the reference evaluator runs."""

    def __init__(self, source: ModelSource, *, is_fast: bool = False) -> None:
        """Load the model with all its weights.

        Args:
            source: The model.
            is_fast: Whether onnxruntime may do what the evaluator does element by element.

        Raises:
            RunError: The reference evaluator does not know an operator, or cannot read the model.
        """
        try:
            model = whole_of(source)
            _sort_functions(model)
            self._names = [output.name for output in model.graph.output]
            operators: list[type[OpRun]] = [BatchNormalization, *[MaxPool] * is_fast]
            self._evaluator = ReferenceEvaluator(model, new_ops=operators)
        except Exception as error:
            raise _evaluator_error(error) from error

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
            raise _evaluator_error(error) from error


def _sort_functions(model: onnx.ModelProto) -> None:
    """Put the functions that others call before these: the evaluator knows those it has read."""
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    calls = {
        key: {(node.domain, node.op_type, node.overload) for node in all_nodes(each)}
        & functions.keys()
        for key, each in functions.items()
    }
    order = [functions[key] for key in TopologicalSorter(calls).static_order()]
    del model.functions[:]
    model.functions.extend(order)


def _readable(leaf: Leaf) -> Leaf:
    """Return an array in the form of onnxruntime's: bfloat16 as float32, float8 in steps."""
    if not is_exotic(leaf.data):
        return leaf
    if leaf.dtype == "bfloat16":
        return Leaf(leaf.label, leaf.dtype, leaf.data.astype(np.float32))
    if leaf.dtype.startswith("float8"):
        return Leaf(leaf.label, leaf.dtype, numbered(leaf.data.view(np.uint8), leaf.dtype))
    raise NotImplementedError(f"an output of type {leaf.dtype}")


def _evaluator_error(error: Exception) -> RunError:
    message = one_line(f"{type(error).__name__}: {error}")
    return ShortageError(message) if isinstance(error, MemoryError) else RunError(message)
