"""Decoders of any size, written in seconds: layers whose weights are places of one small data file.

``python -m benchmarks.llm MODEL.onnx --size 70b --style dynamo --weights fp16``

Places overlap, each begins elsewhere: so 140 GB of weights take 2 GB of disk, the size of the
largest one, and no two layers hold the same. Numbers are normal with deviation 0.02; those of norms
are about 1.

Styles: ``legacy`` and ``dynamo`` spell RMS norm, rotary positions, grouped heads and the cache out
as the two exporters of PyTorch do; ``opset23`` and ``opset24`` have the operators of these opsets;
``genai`` has those of onnxruntime-genai. Weights: ``fp32``, ``fp16``; ``int4`` and ``int8`` are
MatMulNBits (``genai``: with float16 around), or DequantizeLinear by blocks with ``qdq4``.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dplcli.onnx_io.convert import dtype_bits

_PAGE = 4096
_BLOCK = 32
_EPSILON = 1e-5
_MICROSOFT = "com.microsoft"
_OPSETS = {"legacy": 17, "dynamo": 18, "opset23": 23, "opset24": 24, "genai": 21}
STYLES = tuple(_OPSETS)
WEIGHTS = ("fp32", "fp16", "int4", "int8", "qdq4")


@dataclass(frozen=True)
class Shape:
    """How large a decoder is.

    Attributes:
        layers: How many layers.
        hidden: Width of what flows from layer to layer.
        heads: Heads of attention.
        groups: Heads of keys and values.
        inner: Width inside a feed-forward part.
        words: Rows of the embedding.
    """

    layers: int
    hidden: int
    heads: int
    groups: int
    inner: int
    words: int

    @property
    def width(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads


SIZES = {
    "tiny": Shape(4, 64, 4, 2, 96, 128),
    "2b": Shape(32, 2048, 32, 4, 9728, 32000),
    "8b": Shape(32, 4096, 32, 8, 14336, 128256),
    "15b": Shape(48, 5120, 40, 8, 13824, 128256),
    "70b": Shape(80, 8192, 64, 8, 28672, 128256),
}


# How the numbers of a kind of weight are drawn: mean and deviation.
_DRAWN = {"norm": (1, 0.1), "matrix": (0, 0.02), "int4": (0, 0.004), "int8": (0, 2e-4)}


class _Writer:
    """A graph under construction, and the places of its weights.

    Weights of one kind overlap: each begins a page behind the one before it.

    Args:
        dtype: What the model computes in.
    """

    def __init__(self, dtype: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.dtype = dtype
        self._constants: dict[bytes, TensorProto] = {}
        self._weights: dict[str, list[tuple[TensorProto, int]]] = {kind: [] for kind in _DRAWN}

    @property
    def total(self) -> int:
        """How many bytes the weights would take if they did not overlap."""
        return sum(size for weights in self._weights.values() for _, size in weights)

    def node(self, op_type: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:  # noqa: ANN401  # as onnx takes them
        """Add a node with one result, and return its name."""
        return self.nodes_of(op_type, inputs, [name], **attributes)[0]

    def nodes_of(
        self,
        op_type: str,
        inputs: Sequence[str],
        names: Sequence[str],
        *,
        domain: str = "",
        **attributes: Any,  # noqa: ANN401  # as onnx takes them
    ) -> Sequence[str]:
        """Add a node, and return the names of its results."""
        first = next(filter(None, names))
        self.nodes.append(
            helper.make_node(op_type, inputs, names, first, domain=domain, **attributes)
        )
        return names

    def constant(self, value: object, dtype: type | np.dtype = np.int64) -> str:
        """Return the name of a constant."""
        array = np.array(value, dtype)
        key = array.tobytes() + str((array.dtype, array.shape)).encode()
        tensor = numpy_helper.from_array(array, f"val_{len(self._constants)}")
        return self._constants.setdefault(key, tensor).name

    def number(self, value: float) -> str:
        """Return the name of a constant of the type that the model computes in."""
        return self.constant(value, helper.tensor_dtype_to_np_dtype(self.dtype))

    def weight(
        self, name: str, dims: Sequence[int], kind: str = "matrix", dtype: int | None = None
    ) -> str:
        """Return the name of a weight, which lies at a place of its own."""
        tensor = TensorProto(name=name, data_type=dtype or self.dtype, dims=dims)
        size = int(np.prod(dims)) * dtype_bits(tensor.data_type) // 8
        self._weights[kind].append((tensor, size))
        return name

    def save(self, path: Path) -> list[TensorProto]:
        """Write the data file, and return all that is stored."""
        random = np.random.default_rng(0)
        dtype = helper.tensor_dtype_to_np_dtype(self.dtype)
        start = 0
        with path.open("wb") as file:
            for kind, weights in self._weights.items():
                largest = max((size for _, size in weights), default=0)
                for number, (tensor, size) in enumerate(weights):
                    tensor.data_location = TensorProto.EXTERNAL
                    place = {"location": path.name, "offset": start + number * _PAGE}
                    for key, entry in (place | {"length": size}).items():
                        tensor.external_data.add(key=key, value=str(entry))
                end = start + largest + len(weights) * _PAGE
                # an odd number of elements, so that the rows of a matrix differ
                count = min((end - start) // dtype.itemsize, (1 << 22) - 1) | 1
                unit = random.normal(*_DRAWN[kind], count).astype(dtype).tobytes()
                while (left := end - file.tell()) > 0:
                    file.write(unit[:left])
                start = end
        tensors = [tensor for weights in self._weights.values() for tensor, _ in weights]
        return [*tensors, *self._constants.values()]


class _Decoder:
    """Writes the layers of a decoder."""

    def __init__(self, shape: Shape, style: str, weights: str) -> None:
        self.shape, self.style, self.weights = shape, style, weights
        dtype = TensorProto.FLOAT if weights == "fp32" else TensorProto.FLOAT16
        self.opset = max(_OPSETS[style], 21 if weights == "qdq4" else 0)  # blocks came with 21
        self.w = _Writer(dtype)
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def model(self, data: Path) -> onnx.ModelProto:
        """Return the model, and write its weights to a file."""
        w, shape = self.w, self.shape
        self._given("input_ids", TensorProto.INT64, ["batch", "sequence"])
        self._given("attention_mask", TensorProto.INT64, ["batch", "total"])
        self._given("position_ids", TensorProto.INT64, ["batch", "sequence"])
        table = w.weight("model.embed_tokens.weight", [shape.words, shape.hidden])
        stream = w.node("Gather", [table, "input_ids"], "/embed", axis=0)
        self._prepare(stream)
        normed = self._norm(stream, "model.layers.0.input_layernorm")
        for number in range(shape.layers):
            stream, normed = self._layer(number, stream, normed)
        logits = self._linear(normed, "lm_head", shape.hidden, shape.words, "logits")
        self.outputs.insert(
            0, helper.make_tensor_value_info(logits, w.dtype, ["batch", "sequence", shape.words])
        )
        graph = helper.make_graph(w.nodes, "decoder", self.inputs, self.outputs, w.save(data))
        opsets = [helper.make_opsetid("", self.opset)]
        if self.style == "genai" or self.weights in {"int4", "int8"}:
            opsets.append(helper.make_opsetid(_MICROSOFT, 1))
        version = 10 if self.opset < 23 else 11  # noqa: PLR2004  # what came with onnx 1.18
        return helper.make_model(graph, opset_imports=opsets, ir_version=version)

    def _given(self, name: str, dtype: int, dims: Sequence[str | int]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def _prepare(self, embedded: str) -> None:
        """Add what all layers read: sizes, angles and the mask."""
        w = self.w
        half = self.shape.width // 2
        if self.style == "genai":
            angles = np.outer(np.arange(4096), 10000.0 ** (-np.arange(half) / half))
            dtype = helper.tensor_dtype_to_np_dtype(w.dtype)
            self.cos = w.constant(np.cos(angles), dtype)
            self.sin = w.constant(np.sin(angles), dtype)
            sums = w.node("ReduceSum", ["attention_mask", w.constant([1])], "/mask/sum", keepdims=1)
            last = w.node("Sub", [sums, w.constant([1])], "/mask/last")
            self.lengths = w.node("Cast", [last], "/mask/lengths", to=TensorProto.INT32)
            shape = w.node("Shape", ["attention_mask"], "/mask/shape")
            total = w.node("Gather", [shape, w.constant(1)], "/mask/total", axis=0)
            self.total = w.node("Cast", [total], "/mask/total_32", to=TensorProto.INT32)
            return
        batch = w.node("Shape", [embedded], "/batch", start=0, end=1)
        length = w.node("Shape", [embedded], "/length", start=1, end=2)
        total = w.node("Shape", ["attention_mask"], "/total", start=1, end=2)
        self.sizes = batch, length, total
        rates = w.constant(10000.0 ** (-np.arange(half) / half), np.dtype(np.float32))
        places = w.node("Unsqueeze", ["position_ids", w.constant([2])], "/rotary/places")
        places = w.node("Cast", [places], "/rotary/Cast", to=TensorProto.FLOAT)
        angles_read = w.node("Mul", [places, rates], "/rotary/Mul")
        if self.style in {"legacy", "dynamo"}:
            angles_read = w.node("Concat", [angles_read] * 2, "/rotary/Concat", axis=-1)
        for kind in ("Cos", "Sin"):
            value = self._cast(w.node(kind, [angles_read], f"/rotary/{kind}"), w.dtype)
            if self.style in {"legacy", "dynamo"}:
                value = w.node("Unsqueeze", [value, w.constant([1])], f"/rotary/{kind}/wide")
            setattr(self, kind.lower(), value)
        self.mask = self._mask()

    def _mask(self) -> str:
        """Add the mask of attention: what comes later, and what the input hides."""
        w = self.w
        _, length, total = self.sizes
        scalars = [w.node("Squeeze", [each], f"{each}/scalar") for each in (length, total)]
        keys = w.node("Range", [w.constant(0), scalars[1], w.constant(1)], "/mask/keys")
        past = w.node("Sub", [scalars[1], scalars[0]], "/mask/past")
        rows = w.node("Range", [past, scalars[1], w.constant(1)], "/mask/rows")
        rows = w.node("Unsqueeze", [rows, w.constant([1])], "/mask/column")
        before = w.node("LessOrEqual", [keys, rows], "/mask/before")
        shown = w.node("Cast", ["attention_mask"], "/mask/shown", to=TensorProto.BOOL)
        shown = w.node("Unsqueeze", [shown, w.constant([1, 2])], "/mask/shown/wide")
        both = w.node("And", [before, shown], "/mask/both")
        if self.style not in {"legacy", "dynamo"}:
            return both
        least = -65504.0 if w.dtype == TensorProto.FLOAT16 else -3.4e38
        return w.node("Where", [both, w.number(0), w.number(least)], "/mask")

    def _cast(self, value: str, dtype: int) -> str:
        """Cast from or to float32, if the model computes in something else."""
        if self.w.dtype == TensorProto.FLOAT:
            return value
        return self.w.node("Cast", [value], f"{value}/cast{dtype}", to=dtype)

    def _norm(self, value: str, name: str) -> str:
        w, place = self.w, f"/{name}"
        scale = w.weight(f"{name}.weight", [self.shape.hidden], "norm")
        if self.style == "genai":
            return w.node(
                "SimplifiedLayerNormalization", [value, scale], place, epsilon=_EPSILON, axis=-1
            )
        if self.style in {"opset23", "opset24"}:
            return w.node("RMSNormalization", [value, scale], place, epsilon=_EPSILON, axis=-1)
        wide = self._cast(value, TensorProto.FLOAT) if w.dtype != TensorProto.FLOAT else value
        if wide != value:
            w.nodes[-1].output[0] = w.nodes[-1].name = wide = f"{place}/Cast"
        square = w.node("Pow", [wide, w.constant(2, np.dtype(np.float32))], f"{place}/Pow")
        if self.opset < 18:  # noqa: PLR2004  # where axes became an input
            mean = w.node("ReduceMean", [square], f"{place}/ReduceMean", axes=[-1])
        else:
            mean = w.node("ReduceMean", [square, w.constant([-1])], f"{place}/ReduceMean")
        epsilon = w.constant(_EPSILON, np.dtype(np.float32))
        root = w.node("Sqrt", [w.node("Add", [mean, epsilon], f"{place}/Add")], f"{place}/Sqrt")
        if self.style == "legacy":
            one = w.constant(1, np.dtype(np.float32))
            inverse = w.node("Div", [one, root], f"{place}/Div")
        else:
            inverse = w.node("Reciprocal", [root], f"{place}/Reciprocal")
        normed = self._cast(w.node("Mul", [wide, inverse], f"{place}/Mul"), w.dtype)
        return w.node("Mul", [scale, normed], f"{place}/Mul_1")

    def _added(self, stream: str, more: str, add: str, norm: str) -> tuple[str, str]:
        """Add a residual: return the sum, and its norm."""
        if self.style != "genai":
            total = self.w.node("Add", [stream, more], add)
            return total, self._norm(total, norm)
        scale = self.w.weight(f"{norm}.weight", [self.shape.hidden], "norm")
        results = self.w.nodes_of(
            "SkipSimplifiedLayerNormalization",
            [stream, more, scale],
            [f"/{norm}", "", "", add],
            domain=_MICROSOFT,
            epsilon=_EPSILON,
        )
        return results[3], results[0]

    def _linear(self, value: str, name: str, rows: int, columns: int, to: str = "") -> str:
        w, to, weight = self.w, to or f"/{name}", f"{name}.weight"
        if self.weights in {"fp32", "fp16"}:
            return w.node("MatMul", [value, w.weight(weight, [rows, columns])], to)
        bits = 8 if self.weights == "int8" else 4
        scales = w.weight(f"{weight}_scales", [columns, rows // _BLOCK], f"int{bits}")
        if self.weights == "qdq4":
            packed = w.weight(f"{weight}_q", [columns, rows], dtype=TensorProto.INT4)
            wide = w.node(
                "DequantizeLinear", [packed, scales], f"{to}/weight", axis=1, block_size=_BLOCK
            )
            turned = w.node("Transpose", [wide], f"{to}/turned", perm=[1, 0])
            return w.node("MatMul", [value, turned], to)
        dims = [columns, rows // _BLOCK, _BLOCK * bits // 8]
        read = [value, w.weight(f"{weight}_Q{bits}", dims, dtype=TensorProto.UINT8), scales]
        sizes = {"K": rows, "N": columns, "bits": bits, "block_size": _BLOCK}
        (result,) = w.nodes_of("MatMulNBits", read, [to], domain=_MICROSOFT, **sizes)
        return result

    def _layer(self, number: int, stream: str, normed: str) -> tuple[str, str]:
        w, shape, name = self.w, self.shape, f"model.layers.{number}"
        wide = shape.groups * shape.width
        query = self._linear(normed, f"{name}.self_attn.q_proj", shape.hidden, shape.hidden)
        key = self._linear(normed, f"{name}.self_attn.k_proj", shape.hidden, wide)
        value = self._linear(normed, f"{name}.self_attn.v_proj", shape.hidden, wide)
        past = [
            self._given(f"past_key_values.{number}.{kind}", w.dtype, self._cache("past"))
            for kind in ("key", "value")
        ]
        present = [f"present.{number}.{kind}" for kind in ("key", "value")]
        self.outputs += [
            helper.make_tensor_value_info(each, w.dtype, self._cache("total")) for each in present
        ]
        write = self._grouped_query if self.style == "genai" else self._attention
        mixed = write(f"/{name}.self_attn", (query, key, value), past, present)
        mixed = self._linear(mixed, f"{name}.self_attn.o_proj", shape.hidden, shape.hidden)
        norm = f"{name}.post_attention_layernorm"
        stream, normed = self._added(stream, mixed, f"/{name}.Add", norm)
        gate = self._linear(normed, f"{name}.mlp.gate_proj", shape.hidden, shape.inner)
        up = self._linear(normed, f"{name}.mlp.up_proj", shape.hidden, shape.inner)
        sigmoid = w.node("Sigmoid", [gate], f"/{name}.mlp.Sigmoid")
        silu = w.node("Mul", [gate, sigmoid], f"/{name}.mlp.silu")
        product = w.node("Mul", [silu, up], f"/{name}.mlp.Mul")
        down = self._linear(product, f"{name}.mlp.down_proj", shape.inner, shape.hidden)
        is_last = number + 1 == shape.layers
        norm = "model.norm" if is_last else f"model.layers.{number + 1}.input_layernorm"
        return self._added(stream, down, f"/{name}.Add_1", norm)

    def _cache(self, length: str) -> list[str | int]:
        return ["batch", self.shape.groups, length, self.shape.width]

    def _grouped_query(
        self, place: str, read: Sequence[str], past: Sequence[str], present: Sequence[str]
    ) -> str:
        results = self.w.nodes_of(
            "GroupQueryAttention",
            [*read, *past, self.lengths, self.total, self.cos, self.sin],
            [place, *present],
            domain=_MICROSOFT,
            num_heads=self.shape.heads,
            kv_num_heads=self.shape.groups,
            do_rotary=1,
            scale=self.shape.width**-0.5,
        )
        return results[0]

    def _attention(
        self, place: str, read: Sequence[str], past: Sequence[str], present: Sequence[str]
    ) -> str:
        w, shape = self.w, self.shape
        batch, length, _ = self.sizes
        turned = []
        for kind, value, heads in zip(
            "qkv", read, (shape.heads, shape.groups, shape.groups), strict=True
        ):
            sizes = [batch, length, w.constant([heads]), w.constant([shape.width])]
            target = w.node("Concat", sizes, f"{place}/{kind}/shape", axis=0)
            split = w.node("Reshape", [value, target], f"{place}/{kind}/Reshape")
            turned.append(w.node("Transpose", [split], f"{place}/{kind}/turned", perm=[0, 2, 1, 3]))
        query, key = (self._rotated(each) for each in turned[:2])
        for old, new, name in zip(past, (key, turned[2]), present, strict=True):
            w.node("Concat", [old, new], name, axis=-2)
        if self.style in {"opset23", "opset24"}:
            scale = shape.width**-0.5
            mixed = w.node(
                "Attention", [query, *present, self.mask], f"{place}/Attention", scale=scale
            )
        else:
            mixed = self._spelled(place, query, present)
        mixed = w.node("Transpose", [mixed], f"{place}/mixed", perm=[0, 2, 1, 3])
        target = w.node(
            "Concat", [batch, length, w.constant([shape.hidden])], f"{place}/out", axis=0
        )
        return w.node("Reshape", [mixed, target], place)

    def _rotated(self, value: str) -> str:
        w, half = self.w, self.shape.width // 2
        cos, sin = self.cos, self.sin
        if self.style in {"opset23", "opset24"}:
            return w.node("RotaryEmbedding", [value, cos, sin], f"{value}/rotary")
        ends = w.constant([0]), w.constant([half]), w.constant([2 * half])
        axis = w.constant([3])
        parts = [
            w.node("Slice", [value, start, end, axis], f"{value}/Slice_{number}")
            for number, (start, end) in enumerate(pairwise(ends))
        ]
        negated = w.node("Neg", [parts[1]], f"{value}/Neg")
        turned = w.node("Concat", [negated, parts[0]], f"{value}/Concat", axis=-1)
        products = [
            w.node("Mul", [each, angle], f"{value}/Mul_{number}")
            for number, (each, angle) in enumerate(((value, cos), (turned, sin)))
        ]
        return w.node("Add", products, f"{value}/rotary")

    def _spelled(self, place: str, query: str, present: Sequence[str]) -> str:
        w, shape = self.w, self.shape
        batch, _, total = self.sizes
        each = w.constant([shape.heads // shape.groups])
        sizes = [batch, w.constant([shape.groups]), each, total, w.constant([shape.width])]
        widened = []
        for value in present:
            target = w.node("Concat", sizes, f"{value}/Expand/shape", axis=0)
            wide = w.node("Unsqueeze", [value, w.constant([2])], f"{value}/wide")
            wide = w.node("Expand", [wide, target], f"{value}/Expand")
            heads = [batch, w.constant([shape.heads]), total, w.constant([shape.width])]
            target = w.node("Concat", heads, f"{value}/heads/shape", axis=0)
            widened.append(w.node("Reshape", [wide, target], f"{value}/heads"))
        turned = w.node("Transpose", widened[:1], f"{place}/keys", perm=[0, 1, 3, 2])
        scores = w.node("MatMul", [query, turned], f"{place}/MatMul")
        scores = w.node("Mul", [scores, w.number(shape.width**-0.5)], f"{place}/Mul")
        scores = w.node("Add", [scores, self.mask], f"{place}/Add")
        scores = self._cast(scores, TensorProto.FLOAT)
        shares = self._cast(w.node("Softmax", [scores], f"{place}/Softmax", axis=-1), w.dtype)
        return w.node("MatMul", [shares, widened[1]], f"{place}/MatMul_1")


def write(path: Path, shape: Shape, style: str = "dynamo", weights: str = "fp16") -> int:
    """Write a decoder and the file of its weights, ``PATH.data``.

    Returns:
        How many bytes the weights would take if they did not overlap.
    """
    decoder = _Decoder(shape, style, weights)
    onnx.save(decoder.model(path.with_name(f"{path.name}.data")), path)
    return decoder.w.total


def main() -> None:
    """Write one model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--style", choices=STYLES, default="dynamo")
    parser.add_argument("--weights", choices=WEIGHTS, default="fp16")
    chosen = parser.parse_args()
    shape = SIZES[chosen.size]
    shape = replace(shape, layers=chosen.layers or shape.layers)
    total = write(chosen.model, shape, chosen.style, chosen.weights)
    print(f"{chosen.model}: {total / 1e9:,.1f} GB of weights")


if __name__ == "__main__":
    main()
