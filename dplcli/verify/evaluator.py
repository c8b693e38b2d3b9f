"""Run a model in onnx's reference evaluator: slow, written for clarity, without an optimiser.

It errs in some operators, and in some versions of others. Those are corrected here, or refuse: who
is asked as a referee had better say nothing than something false.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op
from onnx.reference.ops.op_scan import Scan as OwnScan

from dplcli.onnx_io.infer import functions_in_order
from dplcli.verify.check import CPU
from dplcli.verify.engines import numbered
from dplcli.verify.model import whole_of
from dplcli.verify.values import (
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

_IMAGE = 4
_IR_VERSION = 8
"""That of models of one operator: old enough for all versions of onnxruntime."""

_SCAN_WITHOUT_BATCHES, _MASK_OF_WHAT_IS_KEPT, _ALONG_ONE_AXIS, _HALF_A_PIXEL = 9, 12, 13, 16
"""The opsets from which operators mean what they mean today."""

_ONE_WAY_OR_ANOTHER = {8, 21, 22, 25, 26}
"""Types that floats are cast to in several ways: text, uint4, int4, uint2, int2."""

_ROUNDED_LENGTHS_THAT_COUNT = {
    "align_corners": math.inf,
    "pytorch_half_pixel": 2,
    "tf_crop_and_resize": math.inf,
}
"""Ways of Resize to find places by the length of the result, and below which length they do."""

_ACTIVATIONS = {"GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"], "RNN": ["tanh"]}
"""The activations of recurrent operators in each direction, unless they state others."""

Float64s = npt.NDArray[np.float64]
Value: TypeAlias = Any  # an array, an attribute, or nothing
Values: TypeAlias = tuple[Value, ...]


class BatchNormalization(OpRun):
    """The operator in inference, in all opsets; onnx's own trains before opset 14."""

    op_domain = ""

    def _run(self, x: Float64s, *given: Float64s, **attributes: float) -> tuple[Float64s]:
        if attributes.get("training_mode") or len(self.onnx_node.output) > 1:
            # nobody feeds a model in training here; to say so beats another operator's result
            raise NotImplementedError("BatchNormalization in training")
        if not attributes.get("spatial", 1):
            raise NotImplementedError("BatchNormalization of each place by itself")
        shape = (-1, *(1,) * (x.ndim - 2))
        scale, bias, mean, variance = (values.reshape(shape) for values in given)
        made: Float64s = (x - mean) * (scale / np.sqrt(variance + attributes["epsilon"])) + bias
        return (made.astype(x.dtype),)


class LRN(OpRun):
    """The operator for tensors of any rank; onnx's own takes the batch for the channels."""

    op_domain = ""

    def _run(
        self, x: Float64s, *, alpha: float, beta: float, bias: float, size: int
    ) -> tuple[Float64s]:
        around = [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)]
        squares = np.pad(np.square(x), around)
        near = sum(squares[:, first : first + x.shape[1]] for first in range(size))
        made: Float64s = x / (bias + alpha / size * near) ** beta
        return (made.astype(x.dtype),)


class LpNormalization(OpRun):
    """The operator; onnx's own forgets that numbers have a sign."""

    op_domain = ""

    def _run(self, x: Float64s, *, axis: int, p: int) -> tuple[Float64s]:
        norm = (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p)
        return (np.where(norm == 0, 0, x / norm).astype(x.dtype),)


class Scan(OwnScan):
    """onnx's own operator, from the version on that it has; the first one scans in batches."""

    op_domain = ""

    def __init__(self, onnx_node: onnx.NodeProto, run_params: dict[str, Any]) -> None:
        super().__init__(onnx_node, run_params)  # type: ignore[no-untyped-call]  # as onnx has it
        if run_params["opsets"][onnx_node.domain] < _SCAN_WITHOUT_BATCHES:
            raise NotImplementedError("Scan in batches, as in opset 8")


class _AlongAxis(OpRun):
    """An operator along an axis; below opset 13, along that and all behind it taken together."""

    op_domain = ""

    def __init__(self, onnx_node: onnx.NodeProto, run_params: dict[str, Any]) -> None:
        self._opset: int = run_params["opsets"][onnx_node.domain]
        schema = onnx.defs.get_schema(onnx_node.op_type, self._opset)  # for its default axis
        super().__init__(onnx_node, run_params, schema)

    def _run(self, x: Float64s, *, axis: int) -> tuple[Float64s]:
        if not x.size:
            return (x,)
        if self._opset < _ALONG_ONE_AXIS:
            rows = x.reshape(math.prod(x.shape[:axis]), -1)
            return (self._along(rows, 1).reshape(x.shape).astype(x.dtype),)
        return (self._along(x, axis).astype(x.dtype),)

    @abstractmethod
    def _along(self, x: Float64s, axis: int) -> Float64s:
        """Return the result along one axis."""


class Softmax(_AlongAxis):
    """The operator in all opsets."""

    def _along(self, x: Float64s, axis: int) -> Float64s:
        powers: Float64s = np.exp(x - x.max(axis, keepdims=True))
        made: Float64s = powers / powers.sum(axis, keepdims=True)
        return made


class LogSoftmax(_AlongAxis):
    """The operator in all opsets; onnx's own gives the logarithm of 0 where Softmax is small."""

    def _along(self, x: Float64s, axis: int) -> Float64s:
        less: Float64s = x - x.max(axis, keepdims=True)
        made: Float64s = less - np.log(np.exp(less).sum(axis, keepdims=True))
        return made


class Hardmax(_AlongAxis):
    """The operator in all opsets."""

    def _along(self, x: Float64s, axis: int) -> Float64s:
        made = np.zeros_like(x)
        np.put_along_axis(made, x.argmax(axis, keepdims=True), 1, axis)
        return made


class _Own(OpRun):
    """onnx's own operator, asked by who knows where it errs."""

    op_domain = ""

    def __init__(self, onnx_node: onnx.NodeProto, run_params: dict[str, Any]) -> None:
        self.opset: int = run_params["opsets"][onnx_node.domain]
        self._own = load_op("", onnx_node.op_type, self.opset)(onnx_node, run_params)
        super().__init__(onnx_node, run_params, self._own._schema)  # noqa: SLF001  # onnx's operators have no public way

    def _ask(self, *given: Value, **attributes: Value) -> Values:
        """Return what onnx's own gives."""
        values: Values = self._own._run(*given, **attributes)  # noqa: SLF001  # onnx's operators have no public way
        return values


class ReduceLogSumExp(_Own):
    """onnx's own operator, which fails for a number alone."""

    def _run(self, x: Float64s, *axes: Float64s, **attributes: Value) -> Values:
        return self._ask(x, *axes, **attributes) if np.ndim(x) else (x,)


class ConvTranspose(_Own):
    """onnx's own operator, group by group; it takes the wrong weights and biases for those."""

    def _run(
        self,
        x: Float64s,
        weights: Float64s,
        bias: Float64s | None = None,
        *,
        group: int,
        **attributes: Value,
    ) -> Values:
        biases = [None] * group if bias is None else np.split(bias, group)
        groups = zip(np.split(x, group, 1), np.split(weights, group), biases, strict=True)
        made = [self._ask(*each, group=1, **attributes)[0] for each in groups]
        return (np.concatenate(made, 1),)


class MaxPool(_Own):
    """onnx's own operator, by that of its two ways that knows what pads are."""

    def _run(self, x: Float64s, **attributes: Value) -> Values:
        if x.dtype == np.float64:
            return self._in_onnxruntime(x, attributes)
        if attributes["auto_pad"] == "SAME_LOWER":
            raise NotImplementedError("MaxPool with auto_pad SAME_LOWER")
        if any(attributes["pads"] or ()):
            made: Values = self._own._max_pool(x, **attributes)  # noqa: SLF001  # onnx's operators have no public way
            return made
        return self._ask(x, **attributes)

    def _in_onnxruntime(self, x: Float64s, attributes: Mapping[str, Value]) -> Values:
        """Return what onnxruntime gives, which takes float64; onnx's goes element by element."""
        given = {item.name: attributes[item.name] for item in self.onnx_node.attribute}
        node = onnx.helper.make_node("MaxPool", self.input, self.output, **given)
        graph = onnx.helper.make_graph(
            [node],
            "pool",
            [onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.DOUBLE, x.shape)],
            [onnx.ValueInfoProto(name=name) for name in node.output],
        )
        opsets = [onnx.helper.make_opsetid(*each) for each in self.run_params["opsets"].items()]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        session = ort.InferenceSession(model.SerializeToString(), providers=[CPU])
        return tuple(session.run(None, {node.input[0]: x}))


class ReduceSumSquare(_Own):
    """onnx's own operator; it gives integers of 64 bits for all."""

    def _run(self, x: Float64s, *given: Value, **attributes: Value) -> Values:
        return (np.asarray(self._ask(x, *given, **attributes)[0], x.dtype),)


class Resize(_Own):
    """onnx's own operator; it takes the length before it is rounded for that of the result."""

    def _run(self, x: Float64s, *given: Value, **attributes: Value) -> Values:
        most = _ROUNDED_LENGTHS_THAT_COUNT.get(attributes["coordinate_transformation_mode"], 0)
        scales = given[1] if given[1:] else None
        if scales is not None and scales.size:
            lengths = scales * np.take(x.shape, attributes.get("axes") or range(x.ndim))
            is_rounded = ~np.isclose(lengths, np.round(lengths)) & (lengths < most)
        else:
            is_rounded = np.array(attributes["keep_aspect_ratio_policy"] != "stretch" and most > 0)
        if is_rounded.any():
            raise NotImplementedError("Resize by the length of a result that is rounded")
        if attributes["mode"] == "nearest" and not most:  # onnx's own adds 0 times the others
            places = np.arange(x.size, dtype=np.float64).reshape(x.shape)
            return (x.reshape(-1)[self._ask(places, *given, **attributes)[0].astype(int)],)
        return self._ask(x, *given, **attributes)


class RoiAlign(_Own):
    """onnx's own operator; it moves all by half a pixel, which was not so before opset 16."""

    def _run(self, *given: Value, **attributes: Value) -> Values:
        if self.opset < _HALF_A_PIXEL:
            attributes["coordinate_transformation_mode"] = "output_half_pixel"
        return self._ask(*given, **attributes)


# What onnx's own operators get wrong, or each in its own way: then there is no result.


def _of_cast(x: Float64s, to: int) -> str:
    is_open = to in _ONE_WAY_OR_ANOTHER and x.dtype.kind not in "biuOSTU"
    return "of floats to text, or to integers of 2 or 4 bits" if is_open else ""


def _of_dropout(op: _Own, given: Values, _: Mapping[str, Value]) -> str:
    is_old = len(op.onnx_node.output) > 1 and op.opset < _MASK_OF_WHAT_IS_KEPT
    return "in training" if given[2:] and given[2] else "with a mask, before opset 12" * is_old


def _of_recurrent(op: _Own, given: Values, said: Mapping[str, Value]) -> str:
    usual = _ACTIVATIONS[op.op_type]
    names = [name.lower() for name in said.get("activations") or usual]
    lengths = given[4] if given[4:] else None
    steps = given[0].shape[said.get("layout") or 0]
    unknown = {
        "with activations": names not in (usual, usual * 2),
        "with clip": said.get("clip") is not None,
        "with input_forget": said.get("input_forget"),
        "with sequences of several lengths": lengths is not None and (lengths != steps).any(),
    }
    return next((what for what, is_there in unknown.items() if is_there), "")


_REFUSED: Mapping[str, Callable[[_Own, Values, Mapping[str, Value]], str]] = {
    "Cast": lambda _, given, said: _of_cast(given[0], said["to"]),
    "CastLike": lambda _, given, _said: _of_cast(
        given[0], onnx.helper.np_dtype_to_tensor_dtype(given[1].dtype)
    ),
    "Dropout": _of_dropout,
    # windows over the edge count for larger than they are
    "LpPool": lambda _, _given, said: "with ceil_mode" if said.get("ceil_mode") else "",
    # places are counted in a shape that may not be the one that is given
    "MaxUnpool": lambda _, given, _said: (
        "with a given shape" * any(g is not None for g in given[2:])
    ),
    "QLinearConv": lambda _, given, _said: (
        "with scales of channels, but for images" * (given[0].ndim != _IMAGE and given[4].size > 1)
    ),
    **dict.fromkeys(_ACTIVATIONS, _of_recurrent),
}
"""By operator, what is refused."""


class _Refusing(_Own):
    """onnx's own operator, where it is right."""

    def _run(self, *given: Value, **attributes: Value) -> Values:
        if why := _REFUSED[self.op_type](self, given, attributes):
            raise NotImplementedError(f"{self.op_type} {why}")
        return self._ask(*given, **attributes)


class _Evaluator(ReferenceEvaluator):
    """onnx's evaluator with the operators above, in functions, too; it knows them by name."""

    _operators: ClassVar[Sequence[type[OpRun]]] = (
        *(BatchNormalization, ConvTranspose, Hardmax, LogSoftmax, LpNormalization, LRN, MaxPool),
        *(ReduceSumSquare, ReduceLogSumExp, Resize, RoiAlign, Scan, Softmax),
        *(type(name, (_Refusing,), {}) for name in _REFUSED),
    )

    def __init__(self, *given: Value, **named: Value) -> None:
        super().__init__(*given, **named | {"new_ops": self._operators})


class ReferenceSession:
    """A model that the reference evaluator runs."""

    def __init__(self, source: ModelSource) -> None:
        """Load the model with all its weights.

        Raises:
            RunError: The reference evaluator does not know an operator, or cannot read the model.
        """
        try:
            model = whole_of(source)
            # Put the functions that others call before these: the evaluator knows those it has
            # read.
            order = [function for function, _ in functions_in_order(model).values()]
            del model.functions[:]
            model.functions.extend(order)
            self._names = [output.name for output in model.graph.output]
            self._evaluator = _Evaluator(model)
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
