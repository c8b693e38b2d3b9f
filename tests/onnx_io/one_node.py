"""Models of one node at old opsets, to be raised and run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tests.support.helpers import run_model

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = NDArray[Any]

_rng = np.random.default_rng(0)


def noise(*shape: int, dtype: Any = np.float32) -> Array:  # noqa: ANN401  # as numpy takes it
    """Return numbers between -2 and 2, others with each call but the same in each run."""
    return np.asarray(_rng.uniform(-2, 2, shape)).astype(dtype)


@dataclass(frozen=True)
class OneNode:
    """One node, and the opsets at which it is written the way it is.

    Attributes:
        name: What the case is called.
        op_type: The operator.
        opset: The opset of the model.
        inputs: Its inputs in order; None for one that is left out.
        attributes: Its attributes.
        constants: Which inputs, by index, are initializers.
        outputs: How many outputs it has.
    """

    name: str
    op_type: str
    opset: int
    inputs: tuple[Array | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    outputs: int = 1

    def model(self, *, shapes: bool = True) -> onnx.ModelProto:
        """Write the model down; its output is declared as onnxruntime computes it.

        Args:
            shapes: Whether the inputs' shapes are stated.
        """
        names = ["" if item is None else f"x{number}" for number, item in enumerate(self.inputs)]
        results = [f"y{number}" for number in range(self.outputs)]
        node = helper.make_node(self.op_type, names, results, name="node", **self.attributes)
        given = [(names[n], n, item) for n, item in enumerate(self.inputs) if item is not None]
        graph = helper.make_graph(
            [node],
            "g",
            [
                declaration(name, item, shapes=shapes)
                for name, number, item in given
                if number not in self.constants
            ],
            [onnx.ValueInfoProto(name=name) for name in results],
            [
                numpy_helper.from_array(item, name)
                for name, number, item in given
                if number in self.constants
            ],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        lowest = max(4, helper.find_min_ir_version_for(opsets))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=lowest)
        computed = run_model(model, self.feeds(), optimise=False)
        for output in model.graph.output:
            output.CopyFrom(declaration(output.name, computed[output.name]))
        return model

    def feeds(self) -> dict[str, Array]:
        """Return what to feed the model."""
        return {
            f"x{number}": item
            for number, item in enumerate(self.inputs)
            if item is not None and number not in self.constants
        }


def declaration(name: str, array: Array, *, shapes: bool = True) -> onnx.ValueInfoProto:
    """Declare a value of the type that *array* has."""
    dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, dtype, array.shape if shapes else None)


def vector(*numbers: float, dtype: Any = np.int64) -> Array:  # noqa: ANN401  # as numpy takes it
    """Return a vector, of int64 unless said otherwise."""
    return np.array(numbers, dtype)


IMAGE = noise(1, 2, 5, 7)
CUBE = noise(2, 3, 4)
LINE = noise(2, 9)
CHANNELS = tuple(np.abs(noise(2)) for _ in range(4))
REDUCTIONS = [
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
]


def cases() -> list[OneNode]:
    """Return every case: each change of meaning or signature, and the edges of its adapter."""
    return [
        *_clips_and_pads(),
        *_axes(),
        *_softmaxes(),
        *_resizes(),
        *_normalisations(),
        *_samplers(),
        *_kept(),
    ]


def _clips_and_pads() -> list[OneNode]:
    bounds: list[dict[str, float]] = [
        {"min": -0.5, "max": 1.25},
        {"min": 0.0},
        {"max": 0.1},
        {},
        {"min": -3.4028234663852886e38},
    ]
    pads: list[dict[str, Any]] = [
        {"pads": [1, 0, 2, 3]},
        {"pads": [1, 0, 2, 3], "value": 1.5},
        {"pads": [1, 0, 0, -2], "value": -0.25},
        {"pads": [1, 2, 0, 1], "mode": "reflect"},
        {"pads": [1, 2, 0, 1], "mode": "edge", "value": 2.0},
    ]
    return [
        *(OneNode(f"clip-{n}", "Clip", 10, (CUBE,), item) for n, item in enumerate(bounds)),
        *(OneNode(f"pad-{n}", "Pad", 10, (LINE,), item) for n, item in enumerate(pads)),
        OneNode("pad-double", "Pad", 10, (noise(2, 3, dtype=np.float64),), pads[1]),
    ]


def _axes() -> list[OneNode]:
    ones = noise(1, 3, 1, 2)
    positive = np.abs(CUBE) + 0.1
    reductions: list[dict[str, Any]] = [
        {"axes": [0, 2]},
        {"keepdims": 0},
        {"axes": [1], "keepdims": 0},
    ]
    slices: list[dict[str, list[int]]] = [
        {"starts": [0, 1], "ends": [1, 3]},
        {"starts": [-2], "ends": [2**31 - 1], "axes": [2]},
        {"starts": [1, 0], "ends": [-1, 99], "axes": [2, 0]},
    ]
    return [
        OneNode("squeeze", "Squeeze", 11, (ones,), {"axes": [0, -2]}),
        OneNode("squeeze-all", "Squeeze", 10, (ones,)),
        OneNode("unsqueeze", "Unsqueeze", 11, (LINE,), {"axes": [0, -1]}),
        *(
            OneNode(f"{name}-{n}-{opset}", name, opset, (positive,), attributes)
            for name in REDUCTIONS
            for opset in ((10, 12) if name == "ReduceSum" else (10, 12, 17))
            for n, attributes in enumerate(reductions)
        ),
        *(OneNode(f"slice-{n}", "Slice", 9, (CUBE,), item) for n, item in enumerate(slices)),
        OneNode("split", "Split", 11, (LINE,), {"split": [2, 3, 4], "axis": 1}, outputs=3),
        OneNode("split-evenly", "Split", 10, (LINE,), {"axis": 1}, outputs=3),
        OneNode("split-by-input", "Split", 13, (LINE, vector(4, 5)), {"axis": 1}, (1,), 2),
        OneNode("split-13-evenly", "Split", 13, (LINE,), {"axis": 0}, outputs=2),
        OneNode("top-k", "TopK", 9, (LINE,), {"k": 4, "axis": 1}, outputs=2),
        OneNode("dft", "DFT", 17, (noise(2, 5, 1),)),
        OneNode("dft-axis", "DFT", 19, (noise(2, 5, 4, 2),), {"axis": 2, "inverse": 1}),
        OneNode("dft-default-axis", "DFT", 17, (noise(2, 5, 4, 1),), {"onesided": 1}),
        OneNode("dft-length", "DFT", 17, (noise(2, 5, 1), np.array(4, np.int64)), {}, (1,)),
    ]


def _softmaxes() -> list[OneNode]:
    shaped: list[tuple[str, Array, dict[str, int]]] = [
        ("last", CUBE, {"axis": 2}),
        ("last-from-behind", CUBE, {"axis": -1}),
        ("middle", CUBE, {"axis": 1}),
        ("middle-from-behind", CUBE, {"axis": -2}),
        ("first", CUBE, {"axis": 0}),
        ("default", CUBE, {}),
        ("matrix", LINE, {}),
        ("ones-behind", noise(2, 3, 1, 1), {}),
        ("ones-behind-stated", noise(2, 3, 1, 1), {"axis": 1}),
        ("empty", noise(2, 3, 0), {"axis": 1}),
    ]
    return [
        OneNode(f"{name}-{label}", name, 11, (array,), attributes)
        for name in ("Softmax", "LogSoftmax", "Hardmax")
        for label, array, attributes in shaped
    ]


def _resizes() -> list[OneNode]:
    grow, shrink = (1.0, 1.0, 1.7, 2.3), (1.0, 1.0, 0.6, 0.5)
    empty = vector(dtype=np.float32)
    sizes = vector(1, 2, 8, 3)
    found = []
    for mode in ("nearest", "linear"):
        found += [
            OneNode(f"upsample-7-{mode}", "Upsample", 7, (IMAGE,), {"scales": grow, "mode": mode}),
            OneNode(
                f"upsample-9-{mode}",
                "Upsample",
                9,
                (IMAGE, vector(*grow, dtype=np.float32)),
                {"mode": mode},
            ),
        ]
        found += [
            OneNode(
                f"resize-10-{mode}-{label}",
                "Resize",
                10,
                (IMAGE, vector(*scales, dtype=np.float32)),
                {"mode": mode},
                (1,),
            )
            for label, scales in (("grow", grow), ("shrink", shrink), ("same", (1.0,) * 4))
        ]
    for mode in ("nearest", "linear", "cubic"):
        for coordinates in ("half_pixel", "align_corners", "pytorch_half_pixel", "asymmetric"):
            attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
            found += [
                OneNode(
                    f"resize-11-{mode}-{coordinates}-sizes",
                    "Resize",
                    11,
                    (IMAGE, empty, empty, sizes),
                    attributes,
                    (1, 2, 3),
                ),
                OneNode(
                    f"resize-12-{mode}-{coordinates}-scales",
                    "Resize",
                    12,
                    (IMAGE, empty, vector(*grow, dtype=np.float32)),
                    attributes,
                    (1, 2),
                ),
            ]
    return found


def _normalisations() -> list[OneNode]:
    grouped = (noise(2, 6, 3, 3), vector(1.5, -2, dtype=np.float32), noise(2))
    return [
        OneNode("batch-7", "BatchNormalization", 7, (IMAGE, *CHANNELS), {"spatial": 1}),
        OneNode("batch-8", "BatchNormalization", 8, (IMAGE, *CHANNELS), {"epsilon": 0.25}),
        OneNode("batch-9", "BatchNormalization", 9, (IMAGE, *CHANNELS), {"momentum": 0.5}),
        OneNode("group", "GroupNormalization", 18, grouped, {"num_groups": 2}),
        OneNode(
            "group-half",
            "GroupNormalization",
            18,
            tuple(item.astype(np.float16) for item in grouped),
            {"num_groups": 2},
        ),
        OneNode(
            "group-per-channel",
            "GroupNormalization",
            20,
            (IMAGE, *CHANNELS[:2]),
            {"num_groups": 2},
        ),
        OneNode("dropout-7", "Dropout", 7, (CUBE,), {"ratio": 0.25}),
        OneNode("dropout-10", "Dropout", 10, (CUBE,)),
    ]


def _samplers() -> list[OneNode]:
    grid = noise(1, 4, 3, 2) / 2
    boxes = vector(0.3, 0.2, 3.1, 4.4, dtype=np.float32).reshape(1, 4)
    scattered = (noise(3, 3), vector(1, 0, 2, 0, 2, 1).reshape(2, 3), noise(2, 3))
    return [
        *(
            OneNode(f"grid-{mode}", "GridSample", 16, (IMAGE, grid), {"mode": mode})
            for mode in ("bilinear", "bicubic", "nearest")
        ),
        OneNode("grid-default", "GridSample", 19, (IMAGE, grid), {"align_corners": 1}),
        *(
            OneNode(
                f"roi-{mode}",
                "RoiAlign",
                10,
                (IMAGE, boxes, vector(0)),
                {"mode": mode, "output_height": 3, "output_width": 2, "sampling_ratio": 2},
            )
            for mode in ("avg", "max")
        ),
        OneNode("scatter", "Scatter", 9, scattered, {"axis": 0}),
    ]


def _kept() -> list[OneNode]:
    """Return nodes that stay, and whose schema's wording changed most, or no other test sees."""
    kernel = noise(2, 3, 3, 3)
    windows = {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    depth = (vector(0, -1, 2, 5, -7), np.array(4, np.int64), vector(0, 1, dtype=np.float32))
    same: dict[str, Any] = {"strides": [2, 2], "auto_pad": "SAME_UPPER"}
    shaped: dict[str, Any] = {"strides": [2, 2], "output_shape": [10, 14]}
    scale, zero = np.array(0.1, np.float32), np.array(3, np.uint8)
    cell = (noise(3, 1, 2), noise(1, 8, 2), noise(1, 8, 2))
    return [
        OneNode("transposed-same", "ConvTranspose", 10, (IMAGE, kernel), same),
        OneNode("transposed-shape", "ConvTranspose", 10, (IMAGE, kernel), shaped),
        OneNode("one-hot", "OneHot", 9, depth, {}, (1, 2)),
        OneNode("average-pool", "AveragePool", 10, (IMAGE,), windows | {"count_include_pad": 1}),
        OneNode("max-pool", "MaxPool", 10, (IMAGE,), windows, outputs=2),
        OneNode("erf", "Erf", 9, (CUBE,)),
        OneNode("cumulative", "CumSum", 11, (CUBE, np.array(1, np.int32)), {"reverse": 1}, (1,)),
        OneNode("cast", "Cast", 8, (CUBE,), {"to": onnx.TensorProto.INT32}),
        OneNode("cast-like", "CastLike", 15, (CUBE, vector(0))),
        OneNode("depth", "DepthToSpace", 10, (noise(1, 8, 2, 3),), {"blocksize": 2}),
        OneNode("mean-variance", "MeanVarianceNormalization", 9, (IMAGE,)),
        OneNode("global-lp", "GlobalLpPool", 8, (IMAGE,), {"p": 3}),
        OneNode("arg-max", "ArgMax", 10, (CUBE,), {"axis": 1}),
        OneNode("flatten", "Flatten", 8, (CUBE,), {"axis": 2}),
        OneNode("gemm", "Gemm", 8, (noise(3, 2), noise(2, 4), noise(4)), {"alpha": 0.5}),
        OneNode("lstm", "LSTM", 8, cell, {"hidden_size": 2}, outputs=3),
        OneNode("prelu", "PRelu", 8, (CUBE, noise(4))),
        OneNode("pow", "Pow", 11, (np.abs(CUBE), noise(1))),
        OneNode("quantise", "QuantizeLinear", 10, (CUBE, scale, zero)),
        OneNode("gather", "Gather", 10, (CUBE, vector(2, 0)), {"axis": 1}),
    ]
