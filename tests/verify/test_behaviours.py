"""What operators may do: each piece is reached where it should be, and nowhere beside it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.verify.behaviours import (
    PIECES,
    Call,
    Piece,
    Quantity,
    beside_edits,
    bounds_of,
    edits,
    goes_on,
    is_guard,
    pieces_of,
)
from dplcli.verify.coverage import calls_of, watch_bodies
from dplcli.verify.ranges import ANYTHING, Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.verify.values import Array

NAN, INF = math.nan, math.inf
TOP = 2.0**31
_TYPES = {
    "float": "float32",
    "double": "float64",
    "string": "O",
    **{name: name for name in ("float16", "bool", "int8", "uint8", "int32", "uint32")},
    **{name: name for name in ("int64", "uint64", "bfloat16")},
}


@dataclass(frozen=True)
class Case:
    """A node, one of its pieces, and what reaches it.

    Attributes:
        node: Its text. Operands in capitals are stored.
        piece: The name of the piece.
        hit: Operands that reach it, a list each.
        miss: Operands that just do not.
        types: The types of the operands; the last one goes on.
        never: Intervals of operands in which it cannot be reached; None if nothing tells.
        opset: The version of the operators.
    """

    node: str
    piece: str
    hit: Sequence[object]
    miss: Sequence[object]
    types: str = "float"
    never: Sequence[tuple[float, float]] | None = None
    opset: int = 21

    @property
    def operator(self) -> str:
        """The operator."""
        return self.node.split()[0].rpartition(".")[2]

    def call(self, operands: Sequence[object]) -> Call:
        """Return the node as it runs on operands, in onnxruntime."""
        imports = f'"" : {self.opset}, "ai.onnx.ml" : 3, "com.microsoft" : 1'
        text = f"<ir_version: 8, opset_import: [{imports}]> g () => () {{ y, z = {self.node} }}"
        model = onnx.parser.parse_model(text)
        (node,) = model.graph.node
        if self.operator not in _TWO_RESULTS:
            del node.output[1:]
        types, arrays = self.types.split(), {}
        names = [*dict.fromkeys(filter(None, node.input))]
        for at, (name, values) in enumerate(zip(names, operands, strict=True)):
            dtype = np.dtype(_TYPES[types[min(at, len(types) - 1)]])
            arrays[name] = within(np.array(values, object), dtype)
            kind = onnx.helper.np_dtype_to_tensor_dtype(dtype) if dtype.kind != "O" else 8
            if name.isupper():
                tensor = onnx.helper.make_tensor(
                    name, kind, arrays[name].shape, arrays[name].reshape(-1)
                )
                model.graph.initializer.append(tensor)
            else:
                info = onnx.helper.make_tensor_value_info(name, kind, arrays[name].shape)
                model.graph.input.append(info)
        for name in node.output:
            model.graph.output.add(name=name)
        fed = {name: array for name, array in arrays.items() if not name.isupper()}
        session = ort.InferenceSession(model.SerializeToString(), _OPTIONS)
        given_ = dict(zip(node.output, session.run(None, fed), strict=True))
        (call,) = calls_of(model, {**arrays, **given_})
        return call

    @cached_property
    def reaching(self) -> Call:
        """The run that reaches it."""
        return self.call(self.hit)

    @cached_property
    def missing(self) -> Call:
        """The run that just does not."""
        return self.call(self.miss)

    def found(self, call: Call) -> Piece:
        """Return the piece of a call."""
        found = {piece.name: piece for piece in pieces_of(call)}
        assert len(found) == len(pieces_of(call)), "two pieces have one name"
        return found[self.piece]


def within(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers as a type holds them: whole ones no further than its ends."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = np.array(
            [min(max(int(n), info.min), info.max) for n in values.flat], object
        ).reshape(values.shape)
    return np.asarray(values.astype(dtype))


_TWO_RESULTS = {"StringSplit", "TopK", "TreeEnsembleClassifier"}
_OPTIONS = ort.SessionOptions()
_OPTIONS.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
_OPTIONS.intra_op_num_threads = 1
_OPTIONS.log_severity_level = 4

NEGATIVE, POSITIVE, UNIT = [(-9, -1)], [(1, 9)], [(0, 1)]
TREE = (
    "ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, nodes_treeids = [0, 0, 0],"
    " nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0], nodes_values = [1.0, 0.0, 0.0],"
    ' nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0],'
    " nodes_falsenodeids = [2, 0, 0], nodes_missing_value_tracks_true = [1, 0, 0],"
    " target_treeids = [0, 0], target_nodeids = [1, 2], target_ids = [0, 0],"
    " target_weights = [1.0, 2.0]> (x)"
)
CLASSES = (
    TREE.replace("Regressor <n_targets = 1,", "Classifier <classlabels_int64s = [0, 1],")
    .replace("target_treeids", "class_treeids")
    .replace("target_nodeids", "class_nodeids")
    .replace("target_ids = [0, 0]", "class_ids = [0, 1]")
    .replace("target_weights", "class_weights")
)
FUSED = 'com.microsoft.Fused{} <activation = "{}"{}> (x, W)'
GEMM = FUSED.format("Gemm", "Relu", "").replace("W)", "W, B)")
CLIP = FUSED.format("Conv", "Clip", ", activation_params = [-2.0, 6.0]")
CONV = FUSED.format("Conv", "Relu", "")
ONE = [[[[1]]]]


def pixel(value: float) -> list[list[list[list[float]]]]:
    """Return a picture of one number."""
    return [[[[value]]]]


def sides(node: str, *ends: float, types: str = "float") -> list[Case]:
    """Return a case for each part between numbers at which an operator bends."""
    names = [f"below {ends[0]:g}", *(f"above {end:g}" for end in ends)]
    inside = [
        ends[0] - 1,
        *((a + b) / 2 for a, b in pairwise(ends)),
        ends[-1] + 1,
    ]
    cases = []
    for at, name in enumerate(names):
        knees = [ends[max(at - 1, 0)], ends[min(at, len(ends) - 1)]]
        others = [[number for other, number in enumerate(inside) if other != at] + knees]
        more = [[0.1]] if node.startswith("PRelu") else []
        other = inside[at - 1]  # of the first one, the last
        cases.append(
            Case(node, name, [[inside[at]], *more], [*others, *more], types, [(other, other)])
        )
    return cases


def compared(op: str) -> list[Case]:
    """Return the cases of a comparison with a constant."""
    node = f"{op} (x, K)"
    equal = Case(node, "of equal numbers", [[3], [3]], [[2.99, 3.01], [3]], never=[(4, 9), (3, 3)])
    if op == "Equal":
        other = Case(node, "of other numbers", [[2.99], [3]], [[3], [3]], never=[(3, 3), (3, 3)])
        return [equal, other]
    return [
        equal,
        Case(node, "of a smaller number", [[2.99], [3]], [[3, 4], [3]], never=[(3, 9), (3, 3)]),
        Case(node, "of a larger number", [[3.01], [3]], [[3, 2], [3]], never=[(-9, 3), (3, 3)]),
    ]


def whole(op: str, dtype: str, low: Sequence[float], high: Sequence[float]) -> list[Case]:
    """Return where whole numbers wrap around: operands beyond the least and the largest one."""
    info = np.iinfo(dtype)
    return [
        Case(f"{op} (x, w)", f"beyond {info.max:g}", [[n] for n in high], [[1], [1]], dtype,
             [(0, 2), (0, 2)]),
        Case(f"{op} (x, w)", f"beyond {info.min:g}", [[n] for n in low], [[2], [1]], dtype,
             [(2, 3), (0, 2)]),
    ]  # fmt: skip


def index(node: str, data: object, at: object, off: object, types: str) -> Case:
    """Return a case of an index that counts from the end."""
    return Case(node, "by a negative index", [data, at], [data, off], types, [ANYTHING, (0, 5)])


CASES = [
    *(
        case
        for op in ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Abs")
        for case in sides(f"{op} (x)", 0)
    ),
    *(
        Case(f"{op} (x)", "of the lowest number", [[low, 5]], [[low + 1, -low - 1]], "int32", UNIT)
        for op in ("Neg", "Abs")
        for low in (-(2**31),)
    ),
    *sides("PRelu (x, S)", 0),
    *sides("Sign (x)", 0),
    Case("Sign (x)", "of zero", [[0]], [[1e-9, -1e-9]], never=POSITIVE),
    *sides("ThresholdedRelu (x)", 1),
    *sides("ThresholdedRelu <alpha = 2.5> (x)", 2.5),
    *sides("HardSwish (x)", -3, 3),
    *sides("HardSigmoid (x)", -2.5, 2.5),
    *sides("HardSigmoid <alpha = 0.5, beta = 0.25> (x)", -0.5, 1.5),
    *sides("Shrink (x)", -0.5, 0.5),
    *sides("Shrink <lambd = 2.0> (x)", -2, 2),
    Case(
        "Clip (x, L, H)",
        "below its min",
        [[-1.1], -1, 1],
        [[-1, 2], -1, 1],
        never=[(0, 9), (-1, -1), (1, 1)],
    ),
    Case(
        "Clip (x, L, H)",
        "above its max",
        [[1.1], -1, 1],
        [[1, -2], -1, 1],
        never=[(-9, 0), (-1, -1), (1, 1)],
    ),
    Case(
        "Clip (x, L, H)",
        "above its min",
        [[0], -1, 1],
        [[-1], -1, 1],
        never=[(-9, -1), (-1, -1), (1, 1)],
    ),
    Case(
        "Clip (x, L, H)",
        "below its max",
        [[0], -1, 1],
        [[1], -1, 1],
        never=[(1, 9), (-1, -1), (1, 1)],
    ),
    Case("Clip (x, l)", "below its min", [[0], 1], [[2], 1], "int64", [(3, 4), (1, 2)]),
    Case("Clip (x, , H)", "above its max", [[7], 6], [[6], 6]),
    Case(
        "Clip <min = -1.0, max = 6.0> (x)", "below its min", [[-2]], [[-1, 7]], never=UNIT, opset=6
    ),
    Case(
        "Clip <min = -1.0, max = 6.0> (x)", "above its max", [[7]], [[6, -2]], never=UNIT, opset=6
    ),
    Case("Exp (x)", "overflowing", [[89]], [[88, -120]], never=UNIT),
    Case("Exp (x)", "underflowing", [[-120]], [[-80, 89]], never=UNIT),
    Case("Exp (x)", "overflowing", [[12]], [[11]], "float16", UNIT),
    Case("Exp (x)", "overflowing", [[710]], [[709]], "double", [(0, 100)]),
    *(
        Case(node, piece, [[hit], *more], [[miss], *more], never=[(1, 2), (2, 2)])
        for node, *more in (("Sqrt (x)",), ("Log (x)",), ("Pow (x, E)", 2))
        for piece, hit, miss in (("of a negative number", -0.1, 0), ("of zero", 0, -0.1))
    ),
    Case("Reciprocal (x)", "of zero", [[0]], [[0.1]], never=POSITIVE),
    *(
        case
        for op in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
        for case in compared(op)
    ),
    Case("Equal (x, K)", "true", [["fast"], "fast"], [["Fast"], "fast"], "string"),
    Case("Equal (x, K)", "false", [["slow"], "fast"], [["fast"], "fast"], "string"),
    Case("Equal (x, x)", "of NaN", [[NAN]], [[1, INF]]),
    Case("Less (x, w)", "of equal numbers", [[2], [2]], [[2], [3]], "int64", [(0, 1), (2, 3)]),
    *(
        Case(f"{op} (x)", name, [[sign * end]], [[-sign * end, sign * end * 0.9]], never=[(-1, 1)])
        for op, end in (("Tanh", 10), ("Sigmoid", 18), ("Erf", 4.5))
        for name, sign in (("flat below", -1), ("flat above", 1))
    ),
    *(
        Case(f"{op} (x, w)", name, [[hit], [True]], [[miss], [True]], "bool")
        for op, yes, no in (("And", True, False), ("Xor", False, True))
        for name, hit, miss in (("true", yes, no), ("false", no, yes))
    ),
    Case("Or (x, w)", "true", [[True], [False]], [[False], [False]], "bool"),
    Case("Or (x, w)", "false", [[False], [False]], [[True], [False]], "bool"),
    *(
        Case(node, name, [[hit], *more], [[not hit], *more], types, [(1 - hit, 1 - hit)])
        for node, types, *more in (("Not (x)", "bool"), ("Where (c, x, w)", "bool float", [1], [2]))
        for name, hit in (("true", True), ("false", False))
    ),
    *(
        Case(f"{op} (x)", name, [[hit]], [[miss]])
        for op, name, hit, miss in (
            ("IsNaN", "true", NAN, 1),
            ("IsNaN", "false", 1, NAN),
            ("IsInf", "of infinity", INF, -INF),
            ("IsInf", "of negative infinity", -INF, INF),
            ("IsInf", "false", 1, -INF),
        )
    ),
    *(
        Case(f"{op} (x, w, K)", name, hit, miss, never=[apart, (2, 2), (5, 5)])
        for op in ("Max", "Min")
        for name, hit, miss, apart in (
            ("of a smaller operand 1", [[1], [2], [2]], [[2], [2], [2]], (2, 3)),
            ("of a larger operand 1", [[3], [2], [2]], [[2], [2], [2]], (0, 2)),
        )
    ),
    Case(
        "Max (x, w, K)",
        "of a larger operand 2",
        [[1], [3], [2]],
        [[9], [2], [2]],
        never=[(0, 1), (0, 1), (2, 2)],
    ),
    Case(
        "Min (x, w, K)",
        "of a smaller operand 2",
        [[1], [1], [2]],
        [[0], [2], [2]],
        never=[(0, 1), (3, 4), (2, 2)],
    ),
    # casts: booleans, whole numbers, halves
    Case("Cast <to = 1> (x)", "true", [[True]], [[False]], "bool", [(0, 0)]),
    Case("Cast <to = 1> (x)", "false", [[False]], [[True]], "bool", [(1, 1)]),
    Case("Cast <to = 9> (x)", "of zero", [[0]], [[0.5]], never=POSITIVE),
    Case("Cast <to = 9> (x)", "of another number", [[1]], [[0]], "int32", [(0, 0)]),
    Case("Cast <to = 9> (x)", "of a fraction", [[0.5]], [[0, 1, -3]], never=[(2, 3)]),
    Case("Cast <to = 6> (x)", "beyond 2.14748e+09", [[3e9]], [[2e9, -3e9]], never=UNIT),
    Case("Cast <to = 6> (x)", "beyond -2.14748e+09", [[-3e9]], [[-2e9, 3e9]], never=UNIT),
    Case("Cast <to = 7> (x)", "of a positive fraction", [[1.5]], [[-1.5, 2]], never=NEGATIVE),
    Case("Cast <to = 7> (x)", "of a negative fraction", [[-1.5]], [[1.5, -2]], never=POSITIVE),
    Case(
        "Cast <to = 6> (x)",
        "beyond 2.14748e+09",
        [[2**31 + 2048]],
        [[2**31 - 1]],
        "int64",
        [(0, 9)],
    ),
    Case("Cast <to = 2> (x)", "beyond 255", [[256]], [[255, -1]], "int64", [(0, 255)]),
    Case("Cast <to = 2> (x)", "beyond 0", [[-1]], [[0]], "int64", [(0, 255)]),
    Case(
        "Cast <to = 1> (x)",
        "beyond 1.67772e+07",
        [[2**24 + 1]],
        [[2**24, -(2**25)]],
        "int64",
        [(0, 9)],
    ),
    Case(
        "Cast <to = 1> (x)",
        "beyond -1.67772e+07",
        [[-(2**24) - 1]],
        [[-(2**24)]],
        "int32",
        [(0, 9)],
    ),
    Case(
        "Cast <to = 1> (x)",
        "making one number of two",
        [[2**24, 2**24 + 1]],
        [[2**24, 2**24]],
        "int64",
        [(0, 9)],
    ),
    Case("Cast <to = 10> (x)", "beyond 65504", [[-1e5]], [[65504]], never=UNIT),
    Case("Cast <to = 1> (x)", "beyond 3.40282e+38", [[1e39]], [[3e38]], "double", UNIT),
    Case("CastLike (x, W)", "beyond 127", [[128], [0]], [[127], [0]], "float int8", UNIT),
    Case(
        "CastLike (x, W)",
        "of a positive fraction",
        [[0.5], [0]],
        [[-0.5, 1], [0]],
        "float int64",
        NEGATIVE,
    ),
    Case(
        "CastLike (x, W)",
        "of a negative fraction",
        [[-0.5], [0]],
        [[0.5, -1], [0]],
        "float int64",
        POSITIVE,
    ),
    # arithmetic
    *whole("Add", "int32", (-TOP, -5000), (TOP - 1, 5000)),
    *whole("Sub", "int64", (-(2.0**63), 2.0**60), (2.0**60, -(2.0**63))),
    *whole("Mul", "int32", (2**20, -(2**20)), (2**20, 2**20)),
    Case(
        "Add (x, K)",
        "of numbers that nearly cancel 20000",
        [[-20000.5], 20000],
        [[-19990, 20000], 20000],
        never=POSITIVE,
    ),
    Case(
        "Sub (K, x)",
        "of numbers that nearly cancel 20000",
        [20000, [20000.5]],
        [20000, [-20000]],
        never=[ANYTHING, (0, 1)],
    ),
    Case("Add (x, K)", "of no more than 1e-05", [[1e-6], 1e-5], [[2e-5], 1e-5], never=POSITIVE),
    Case("Div (x, w)", "by zero", [[1], [0]], [[0], [1]], never=[ANYTHING, (1, 2)]),
    *(
        Case(
            f"{node} (x, w)",
            f"of a {word} number with a rest",
            [[sign * 7], [2]],
            [[sign * 6, -sign * 7], [2]],
            types,
            [(-sign, -sign)],
        )
        for node, types in (("Div", "int64"), ("Mod", "int64"), ("Mod <fmod = 1>", "float"))
        for word, sign in (("positive", 1), ("negative", -1))
    ),
    *(
        Case(f"{op} (x)", name, [[hit]], [miss], never=never)
        for op in ("Floor", "Ceil", "Round")
        for name, hit, miss, never in (
            ("of an even number", -2, [0.5, 1, -3], None),
            ("of an odd number", -3, [0.5, 2, -2], None),
            ("of a negative fraction", -0.3, [0.3, -2], POSITIVE),
            ("of a positive fraction", 0.3, [-0.3, 2], NEGATIVE),
        )
    ),
    Case("Round (x)", "of a positive tie", [[2.5]], [[2.4, 3, -2.5, 1.5]]),
    Case("Round (x)", "of a negative tie", [[-2.5]], [[-2.4, -3, 2.5, -1.5]]),
    *(
        Case(
            "QuantizeLinear (x, S, Z)",
            name,
            [[hit], 0.5, 3],
            [[miss], 0.5, 3],
            "float float uint8",
            [(1, 2)],
        )
        for name, hit, miss in (
            ("below its codes", -2.5, -1.5),
            ("giving its least code", -1.5, -1),
            ("above its codes", 127, 126),
        )
    ),
    *(
        Case(
            "QuantizeLinear (x, S, Z)",
            f"of an {word} tie",
            [[hit], 0.5, 3],
            [[0.5, miss], 0.5, 3],
            "float float uint8",
        )
        for word, hit, miss in (("even", 1.25, 0.75), ("odd", 0.75, 1.25))
    ),
    # what onnxruntime fuses
    Case(GEMM, "stopped at 0", [[[-1]], [[1]], [0]], [[[1]], [[1]], [0]]),
    Case(GEMM, "above 0", [[[1]], [[1]], [0]], [[[-1]], [[1]], [0]]),
    Case(CONV, "stopped at 0", [pixel(-1), ONE], [pixel(1), ONE]),
    Case(CONV, "above 0", [pixel(1), ONE], [pixel(-1), ONE]),
    Case(CLIP, "stopped at -2", [pixel(-3), ONE], [pixel(-1), ONE]),
    Case(CLIP, "stopped at 6", [pixel(7), ONE], [pixel(5), ONE]),
    # choices
    Case("ArgMax <axis = 1> (x)", "of a tie", [[[1, 5, 5]]], [[[1, 1, 5]]]),
    Case("ArgMin <axis = 1> (x)", "of a tie", [[[1, 1, 5]]], [[[1, 5, 5]]]),
    Case("TopK (x, K)", "of a tie", [[1, 5, 5], [1]], [[1, 1, 5], [1]], "float int64"),
    Case(
        "TopK <largest = 0> (x, K)", "of a tie", [[1, 1, 5], [1]], [[1, 5, 5], [1]], "float int64"
    ),
    *(
        Case(node, name, [*more, hit], [*more, miss], types)
        for node, types, *more in (
            ("NonZero (c)", "bool"),
            ("Compress (x, c)", "float bool", [1, 2]),
        )
        for name, hit, miss in (
            ("keeping none", [False, False], [False, True]),
            ("keeping some", [True, False], [False, False]),
            ("keeping all", [True, True], [True, False]),
        )
    ),
    index("Gather (x, i)", [1, 2, 3], [-1], [2], "float int64"),
    index("GatherND (x, i)", [1, 2, 3], [[-1]], [[2]], "float int64"),
    index("GatherElements (x, i)", [1, 2, 3], [-1], [2], "float int64"),
    Case(
        "ScatterElements (x, i, u)",
        "by a negative index",
        [[1, 2], [-1], [5]],
        [[1, 2], [1], [5]],
        "float int64 float",
        [ANYTHING, (0, 1)],
    ),
    Case("ReduceMax (x)", "giving a number below 0", [[-3, -1]], [[-3, 1]], never=POSITIVE * 2),
    Case("ReduceMin (x)", "giving a number above 0", [[3, 1]], [[-3, 1]], never=NEGATIVE * 2),
    Case(
        'BitShift <direction = "LEFT"> (x, S)',
        "of its highest bit",
        [[1, 200], 1],
        [[1, 127], 1],
        "uint8",
        never=[(0, 127)],
    ),
    *(
        Case("CumSum (x, A)", f"beyond {end:g}", [[end, end], 0], [[1, 2], 0], "int32 int64")
        for end in (2**31 - 1, -(2**31))
    ),
    Case("ReduceProd (x)", "beyond 2.14748e+09", [[2**31 - 1, 2]], [[1, 2]], "int32"),
    Case(
        "ReduceProd (x, A)",
        "beyond 2.14748e+09",
        [[[2**30, 1], [3, 1]], [0]],
        [[[2**30, 3], [1, 1]], [0]],
        "int32 int64",
    ),
    *(
        Case(
            "MatMul (x, w)",
            f"beyond {end:g}",
            [[[end, end]], [[1], [1]]],
            [[[1, 2]], [[1], [1]]],
            "int32",
        )
        for end in (2**31 - 1, -(2**31))
    ),
    Case(
        "BitwiseAnd (x, S)", "of a bit that the mask stops", [[15, 16], 15], [[15, 7], 15], "uint8"
    ),
    Case("BitwiseAnd (S, x)", "of a bit that the mask stops", [12, [2]], [12, [8]], "int32"),
    *(
        Case(
            f"{op} <hidden_size = 1, clip = 3.0> (x, W, R)",
            "of more than 3",
            [[[[4]]], np.ones((1, gates, 1)), np.ones((1, gates, 1))],
            [[[[2]]], np.ones((1, gates, 1)), np.ones((1, gates, 1))],
            never=UNIT,
        )
        for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    ),
    *(
        Case(
            "ai.onnx.ml.LabelEncoder <keys_int64s = [1000003, 1000004], values_int64s = [1, 2]>(x)",
            f"of {key}",
            [[key]],
            [[4]],
            "int64",
            never=[(5, 9)],
        )
        for key in (1000003, 1000004)
    ),
    *(
        Case(
            f"StringSplit <{mark}maxsplit = 2> (x)",
            "of more than 2 marks",
            [[hit]],
            [[miss]],
            "string",
        )
        for mark, hit, miss in (
            ("", "a b c d", "a b c"),
            ('delimiter = "-", ', "a-b-c-d", "a b c d"),
        )
    ),
    Case(
        "OneHot (i, D, V)",
        "of an index beyond its depth",
        [[0, 3], 3, [0, 1]],
        [[0, 2], 3, [0, 1]],
        "int64 int64 float",
        never=[(0, 2), (3, 3)],
    ),
    Case(
        "LayerNormalization (x, S)",
        "of a row that hardly varies",
        [[[1, 1, 1.001]], [1, 1, 1]],
        [[[1, 1, 2]], [1, 1, 1]],
    ),
    Case(
        "InstanceNormalization (x, S, B)",
        "of a row that hardly varies",
        [[[[1, 1.001]]], [1], [0]],
        [[[[1, 2]]], [1], [0]],
    ),
    *(Case(node, "of NaN", [[[NAN]]], [[[1]]]) for node in (TREE, CLASSES)),
    Case(
        "ai.onnx.ml.Imputer <imputed_value_floats = [5.0], replaced_value_float = -9.0> (x)",
        "of NaN",
        [[[NAN]]],
        [[[-9]]],
    ),
    Case(
        "ai.onnx.ml.Imputer <imputed_value_floats = [5.0], replaced_value_float = -9.0> (x)",
        "of -9",
        [[[-9]]],
        [[[9]]],
        never=UNIT,
    ),
]


def named(case: Case) -> str:
    """Return what a case is called."""
    return f"{case.node[:40]} {case.piece}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_piece(case: Case) -> None:
    """It is reached by one run, missed by another, and out of reach where its intervals say so."""
    hit, miss = case.reaching, case.missing

    assert case.found(hit).distance(hit.values) == 0
    assert case.found(miss).distance(miss.values) > 0
    assert case.found(hit).is_possible(held(hit))
    if case.never is not None:
        known = [Interval(*each) for each in case.never][: len(hit.values)]
        assert not case.found(hit).is_possible(known + [ANYTHING] * (len(hit.values) - len(known)))


def held(call: Call) -> list[Interval]:
    """Return the least intervals that hold what a node read and gave."""
    return [
        Interval(float(np.min(value)), float(np.max(value)))
        if value is not None and value.size and value.dtype != object and not np.isnan(value).any()
        else ANYTHING
        for value in call.values
    ]


MIDDLE = "numbers beside one end lie beyond the other"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            each,
            marks=[pytest.mark.xfail(reason=MIDDLE)]
            * (each.node.startswith("Shrink (") and each.piece == "above -0.5"),
        )
        for each in CASES
    ],
    ids=named,
)
def test_draws_reach_their_piece(case: Case) -> None:
    """Where a node reads them: alone, or all of them in turn."""
    call = case.missing
    draws = case.found(call).draws and tuple(n for piece in pieces_of(call) for n in piece.draws)
    names = [name for name in dict.fromkeys(call.node.input) if name]
    ways = [
        [operand]
        if name.isupper()
        else [operand, *(filled(operand, some) for some in [*((n,) for n in draws), draws] if some)]
        for name, operand in zip(names, case.miss, strict=True)
    ]
    runs = (case.call(operands) for operands in product(*ways))

    assert not draws or any(case.found(run).distance(run.values) == 0 for run in runs)


def filled(like: object, draws: Sequence[object]) -> Array:
    """Return numbers in the shape of others, at least as many as there are."""
    shape = np.shape(np.array(like, object))
    return np.resize(
        np.array(draws, object), (max(*shape, len(draws)),) if len(shape) == 1 else shape
    )


def test_each_operator_has_cases_for_all_that_it_may_do() -> None:
    """No piece of any call in the table is without a case, numbers aside."""
    plain = {(case.operator, NUMBER.sub("#", case.piece)) for case in CASES}
    calls = [(case.operator, case.reaching) for case in CASES]
    calls += [(case.operator, case.missing) for case in CASES]
    met = {(op, NUMBER.sub("#", piece.name)) for op, call in calls for piece in pieces_of(call)}
    assert met == plain

    listed = {op for op, rule in PIECES.items() if rule is not PIECES["Gather"]}
    assert listed - {"If", "Loop"} == {op for op, _ in plain if op in listed}


NUMBER = re.compile(r"-?\d[\d.]*(e[+-]\d+)?")


# Bodies.


LOOP = """<ir_version: 8, opset_import: ["" : 18]>
g (int64 most, bool first, float x) => (float y) {{
 y = Loop ({}) <body = b (int64 i, bool c, float s) => (bool go, float t) {{
  t = Add (s, s) {} }}> }}"""
FOR, UNTIL = "go = Identity (c)", "k = Constant <value = float {9}> () go = Less (t, k)"
FIXED = "n = Constant <value = int64 {3}> () y = Loop (n, , x)"
TURNS = {0: "without a turn", 1: "in one turn", 2: "in two turns", 3: "in several turns"}


def loop(
    operands: str, end: str, most: int, x: float = 1.0, *, first: bool = True
) -> dict[str, bool]:
    """Return the pieces of a Loop, and whether one run reached them."""
    text = LOOP.format(operands, end).replace("y = Loop (3, , x)", FIXED)
    model = onnx.parser.parse_model(text)
    calls: list[Call] = []
    feeds = {"most": np.array(most), "first": np.array(first), "x": np.array(x, np.float32)}
    watch_bodies(model, feeds, calls.append)
    (call,) = (each for each in calls if each.node.op_type == "Loop")
    return {piece.name: piece.distance(call.values) == 0 for piece in pieces_of(call)}


@pytest.mark.parametrize("most", [0, 1, 2, 3, 7])
def test_turns_of_a_loop(most: int) -> None:
    """How often a body runs is what a Loop does."""
    assert loop("most, first, x", FOR, most) == {
        name: min(most, 3) == n for n, name in TURNS.items()
    }


def test_turns_without_a_condition() -> None:
    """It may be left out, and the loop begins."""
    assert loop("most, , x", FOR, 2)["in two turns"]


@pytest.mark.parametrize(("operands", "names"), [("3, , x", {TURNS[3]}), (", first, x", set())])
def test_turns_that_are_fixed_are_not_asked_for(operands: str, names: set[str]) -> None:
    """Nor those of a loop that only its condition ends: it has pieces of its own."""
    assert {*loop(operands, FOR if operands[0] == "3" else UNTIL, 0)} == names


@pytest.mark.parametrize(
    ("most", "first", "ends"), [(9, True, "ending early"), (2, True, "in as many turns as it may")]
)
def test_a_loop_that_may_end_early(most: int, ends: str, *, first: bool) -> None:
    """It ends by its condition, or by the number of turns."""
    found = loop("most, first, x", UNTIL, most, first=first)
    both = {"ending early", "in as many turns as it may"}
    assert {name for name in both if found[name]} == {ends}
    assert loop("most, first, x", UNTIL, 9, first=False)["without a turn"]


@pytest.mark.parametrize("taken", [True, False])
def test_branches(taken: bool) -> None:  # noqa: FBT001  # a parameter
    """An If has its two branches, and nodes in the one that runs are watched."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
g (bool c, float x) => (float y) { y = If (c) <
 then_branch = t () => (float a) { a = Relu (x) },
 else_branch = e () => (float b) { b = Abs (x) }> }""")
    calls: list[Call] = []
    watch_bodies(model, {"c": np.array(taken), "x": np.array(1.0, np.float32)}, calls.append)
    assert [call.node.op_type for call in calls] == ["Relu" if taken else "Abs", "If"]
    found = {piece.name: piece.distance(calls[1].values) == 0 for piece in pieces_of(calls[1])}
    assert found == {"true": taken, "false": not taken}


# Whatever a node is given.

VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic
SHAPES: Sequence[Sequence[tuple[int, ...]]] = [
    [(2, 3)] * 9, [()] * 9, [(0, 3)] * 9, [(2, 3, 4), (3,), (1,)] * 3, [(3,), ()] * 5, [(5,)] * 9
]  # fmt: skip


def versions() -> list[onnx.defs.OpSchema]:
    """Return all versions of the standard's operators that have pieces, but for control flow."""
    every = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in {"", "ai.onnx.ml"}]
    return [each for each in every if each.name in PIECES and each.name not in {"If", "Loop"}]


@pytest.mark.parametrize("schema", versions(), ids=lambda s: f"{s.name}-{s.since_version}")
def test_no_version_of_an_operator_fails(schema: onnx.defs.OpSchema) -> None:
    """Whatever the types and ranks of its operands are, and whether they are stored."""
    rng, given_types = (
        np.random.default_rng(0),
        {each.type_param_str: each for each in schema.type_constraints},
    )
    count = min(len(schema.inputs) if schema.inputs[-1].option != VARIADIC else 3, 9)
    attributes: Mapping[str, Any] = {
        "to": 6, **({"activation": "Relu"} if schema.name.startswith("Fused") else {})
    }  # fmt: skip
    own = {name: value for name, value in attributes.items() if name in schema.attributes}
    node = onnx.helper.make_node(schema.name, [f"i{n}" for n in range(count)], ["y"], **own)
    formals = [schema.inputs[min(n, len(schema.inputs) - 1)] for n in range(count)] + [
        schema.outputs[0]
    ]
    for turn in range(max(len(each.allowed_type_strs) for each in given_types.values())):
        dtypes = []
        for formal in formals:
            each = given_types.get(formal.type_str)
            names = [formal.type_str] if each is None else each.allowed_type_strs
            some = [n for n in map(plain_type, names) if n is not None] or [np.dtype("float32")]
            dtypes.append(some[turn % len(some)])
        for shapes in SHAPES:
            values = [
                np.array(["a"] * math.prod(s), object).reshape(s)
                if d.kind == "O"
                else np.asarray(rng.integers(1, 4, s), np.float64)
                for s, d in zip(shapes, dtypes, strict=False)
            ]
            for is_stored in (True, False):
                call = Call(node, values, dtypes, [is_stored] * count)
                for piece in pieces_of(call):
                    assert piece.is_possible([ANYTHING] * len(values)), piece.name


def plain_type(text: str) -> np.dtype[Any] | None:
    """Return the type of a tensor as an operator's definition spells it."""
    name = text.removeprefix("tensor(").rstrip(")")
    return np.dtype(_TYPES[name]) if name in _TYPES and name != "bfloat16" else None


NUMBERS = st.floats(-1000, 1000, width=32) | st.just(NAN) | st.sampled_from([0.0, 1.0, -1.0])


@given(values=st.lists(NUMBERS, max_size=5), low=NUMBERS, width=st.floats(0, 10) | st.just(INF))
def test_a_distance_is_zero_where_some_element_is_inside(
    values: list[float], low: float, width: float
) -> None:
    """And infinite where there is none; it never is none."""
    piece = Piece("", Quantity(lambda v: v[0], lambda r: r[0]), low, low + width)
    found = piece.distance([np.array(values)])
    assert (found == 0) == any(low <= value <= low + width for value in values)
    assert found >= 0


@pytest.mark.parametrize("end", [-INF, INF])
def test_infinity_lies_in_what_has_no_end(end: float) -> None:
    """An overflow that went as far as can be has been seen."""
    piece = Piece("", Quantity(lambda v: v[0]), min(end, 1.0), max(end, 1.0))
    assert piece.distance([np.array([end])]) == 0


READING = {
    "float": [
        "Clip (x, w, v)",
        "Add (x, w)",
        "Max (x, w)",
        "Round (x)",
        "Cast <to = 6> (x)",
        "Sign (x)",
        "Less (x, w)",
        "Erf (x)",
        "HardSwish (x)",
        "Exp (x)",
        "Cast <to = 9> (x)",
        "Sqrt (x)",
        "Where (x, w, v)",
        "Cast <to = 10> (x)",
    ],
    "int32": [
        "Sub (x, w)",
        "Mul (x, w)",
        "Div (x, w)",
        "Mod (x, w)",
        "Cast <to = 2> (x)",
        "Equal (x, w)",
        "Cast <to = 1> (x)",
    ],
    "uint8": ["Add (x, w)"],
}


@given(
    data=st.data(),
    which=st.sampled_from([(text, dtype) for dtype in READING for text in READING[dtype]]),
)
def test_what_is_reached_is_possible(data: st.DataObject, which: tuple[str, str]) -> None:
    """No interval that holds what a node read says that what it did is out of reach."""
    node = onnx.parser.parse_node(f"y = {which[0]}")
    numbers = st.integers(-(10**10), 10**10) | st.integers(-5, 5)
    some = numbers if which[1] != "float" else numbers.map(lambda n: n / 4)
    own = data.draw(st.lists(st.tuples(some, some, some), min_size=1, max_size=4))
    operands = [np.array(each, np.float64) for each in zip(*own, strict=True)][: len(node.input)]
    dtypes = [np.dtype(_TYPES[which[1]])] * len(operands)
    call = Call(node, [*operands, operands[0]], [*dtypes, dtypes[0]], [False] * len(operands))
    for piece in pieces_of(call):
        if piece.distance(call.values) == 0:
            assert piece.is_possible(held(call)), piece.name


# Guards, bounds and lists.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IsNaN (x)", True),
        ("Equal (x, x)", True),
        ("Equal (x, w)", False),
        ("Relu (x)", False),
        (TREE, True),
        (TREE.replace("tracks_true = [1,", "tracks_true = [0,"), False),
    ],
)
def test_guards(text: str, *, expected: bool) -> None:
    """A node that asks whether a number is one."""
    assert is_guard(onnx.parser.parse_node(f"y = {text}")) is expected


@pytest.mark.parametrize(
    ("text", "stored", "bounds"),
    [
        ("Slice (x, b, e)", {"b": [-3], "e": [512]}, {1, 3, 512}),
        ("Slice (t, b, e)", {"t": np.ones((300, 4))}, {300, 4}),
        ("Shape (w)", {"w": np.ones((222, 3))}, {222, 3}),
        ("Gather (b, i)", {"b": [*range(32, 48)]}, {*range(32, 48), 16}),
        ("Cast <to = 2> (x)", {}, {255}),
        ("Cast <to = 10> (x)", {}, {2048}),
        ("Conv <dilations = [2, 1]> (x, w)", {"w": np.ones((4, 4, 3, 5))}, {2, 1, 4}),
        (
            "QLinearConv <dilations = [2, 1]> (x, s, z, w, s, z, s, z)",
            {"s": np.float32(0.5), "z": np.uint8(3), "w": np.ones((4, 4, 3, 5))},
            {1, 2, 3, 4},
        ),
        ("Resize (x, , s)", {"s": [1, 1, 0.25]}, {1, 4}),
        ("LRN <size = 5> (x)", {}, {5}),
        ("Add (x, w)", {"w": [7.5]}, set()),
    ],
)
def test_bounds(text: str, stored: Mapping[str, Any], bounds: set[int]) -> None:
    """Sizes at which a node may bend."""
    tensors = {name: onnx.numpy_helper.from_array(np.asarray(v)) for name, v in stored.items()}
    assert bounds_of([onnx.parser.parse_node(f"y = {text}")], tensors.get) == bounds


def test_lists_that_differ() -> None:
    """What stands beside an element that differs is drawn: the word of a label."""
    text = "y = ai.onnx.ml.LabelEncoder <keys_strings = {}, values_int64s = {}> (x)"
    ours, theirs = (
        [onnx.parser.parse_node(text.format('["a", "b", "c"]', values))]
        for values in ("[1, 2, 3]", "[1, 5, 3]")
    )
    assert edits(ours, theirs) == {"LabelEncoder 'y'": (["b", 2, "b", 5], "values_int64s[1]")}
    assert beside_edits(ours, theirs) == ["b", 2, "b", 5]
    assert not edits(ours, ours)
    assert not edits(ours, [*theirs, *theirs])


@pytest.mark.parametrize(("end", "expected"), [(FOR, True), (UNTIL, False)])
def test_whether_a_loop_goes_on(end: str, *, expected: bool) -> None:
    """A body that hands its condition on never ends a loop."""
    assert (
        goes_on(onnx.parser.parse_model(LOOP.format("most, first, x", end)).graph.node[0])
        is expected
    )
