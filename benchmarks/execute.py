"""Partitions on oneDNN against stock onnxruntime: how many run, and how long they take.

``python -m benchmarks.execute`` times nets of their usual sizes, with random weights: partition by
partition, and in regions after ``prepare`` and ``merge``; in float32, and in bfloat16 where the CPU
gains by it. ``--net`` and ``--form`` choose some. ``python -m benchmarks.execute MODELS`` counts
for each model of a folder which calls run on oneDNN, and why the others do not. Both print a table
for Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import dplcli
from dplcli.execute import kernels_for
from dplcli.execute.onednn.library import Library
from dplcli.execute.session import open_session
from dplcli.verify.check import Execution
from dplcli.verify.values import ModelSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OPSET = 17


class Net:
    """A model that grows node by node."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def weight(self, *shape: int) -> str:
        """Add weights that keep numbers as large as they are."""
        scale = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 1e4)
        data = scale * self._random.standard_normal(shape)
        return self.number(data.astype(np.float32))

    def number(self, data: np.ndarray) -> str:
        """Add a constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401  # as onnx does
        """Add a node."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def write(self, path: Path, last: str, **shapes: tuple[int, ...]) -> None:
        """Write the model, with the shapes of its inputs."""
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in shapes.items()
        ]
        result = helper.make_tensor_value_info(last, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", values, [result], self.weights)
        opset = [helper.make_opsetid("", _OPSET)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)

    def conv(  # noqa: PLR0913  # as Conv has them
        self,
        x: str,
        sizes: tuple[int, int],
        width: int,
        *,
        step: int = 1,
        group: int = 1,
        pad: int | None = None,
    ) -> str:
        """Add a convolution with a bias."""
        made, read = sizes
        pads = [width // 2 if pad is None else pad] * 4
        kernel = self.weight(made, read // group, width, width)
        return self.op(
            "Conv", x, kernel, self.weight(made), strides=[step] * 2, pads=pads, group=group
        )

    def dense(self, x: str, read: int, made: int) -> str:
        """Add a product with a bias."""
        product = self.op("MatMul", x, self.op("Transpose", self.weight(made, read)))
        return self.op("Add", product, self.weight(made))

    def gelu(self, x: str) -> str:
        """Add a Gelu, spelt out."""
        root, one, half = (self.number(np.array(each, np.float32)) for each in (2**0.5, 1, 0.5))
        erf = self.op("Add", self.op("Erf", self.op("Div", x, root)), one)
        return self.op("Mul", self.op("Mul", x, erf), half)

    def channels(self, x: str, size: int) -> str:
        """Add a normalisation over the channels of an image."""
        x = self.op("Transpose", x, perm=[0, 2, 3, 1])
        x = self.op("LayerNormalization", x, self.weight(size), self.weight(size), axis=-1)
        return self.op("Transpose", x, perm=[0, 3, 1, 2])


def resnet50(path: Path) -> None:
    """He and others 2015, at 224 x 224."""
    net = Net()
    x = net.op("Relu", net.conv("x", (64, 3), 7, step=2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    read = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner, made = 64 << stage, 256 << stage
        for block in range(blocks):
            step = 2 if stage and not block else 1
            y = net.op("Relu", net.conv(x, (inner, read), 1))
            y = net.op("Relu", net.conv(y, (inner, inner), 3, step=step))
            y = net.conv(y, (made, inner), 1)
            x = x if block else net.conv(x, (made, read), 1, step=step)
            x, read = net.op("Relu", net.op("Add", y, x)), made
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    net.write(path, net.dense(x, read, 1000), x=(1, 3, 224, 224))


def mobilenetv2(path: Path) -> None:
    """Sandler and others 2018, at 224 x 224."""
    net = Net()
    bounds = [net.number(np.array(bound, np.float32)) for bound in (0, 6)]
    x, read = net.op("Clip", net.conv("x", (32, 3), 3, step=2), *bounds), 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
    for times, made, blocks, first in (*stages, (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(blocks):
            step, wide, y = (1 if block else first), read * times, x
            if times > 1:
                y = net.op("Clip", net.conv(y, (wide, read), 1), *bounds)
            y = net.op("Clip", net.conv(y, (wide, wide), 3, step=step, group=wide), *bounds)
            y = net.conv(y, (made, wide), 1)
            x, read = (net.op("Add", y, x) if read == made and step == 1 else y), made
    x = net.op("Clip", net.conv(x, (1280, read), 1), *bounds)
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    net.write(path, net.dense(x, 1280, 1000), x=(1, 3, 224, 224))


def bert(path: Path, layers: int = 4) -> None:
    """Devlin and others 2018: layers of the base encoder, 128 tokens."""
    net = Net()
    width, heads = 768, 12
    split = net.number(np.array([1, 128, heads, width // heads]))
    whole = net.number(np.array([1, 128, width]))
    eighth = net.number(np.array(0.125, np.float32))
    x = "x"
    for _ in range(layers):
        parts = [net.op("Reshape", net.dense(x, width, width), split) for _ in range(3)]
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        q, k, v = (net.op("Transpose", p, perm=o) for p, o in zip(parts, orders, strict=True))
        weights = net.op("Softmax", net.op("Mul", net.op("MatMul", q, k), eighth), axis=-1)
        y = net.op("Transpose", net.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        y = net.op("Add", net.dense(net.op("Reshape", y, whole), width, width), x)
        x = net.op("LayerNormalization", y, net.weight(width), net.weight(width), axis=-1)
        y = net.op("Add", net.dense(net.gelu(net.dense(x, width, 4 * width)), 4 * width, width), x)
        x = net.op("LayerNormalization", y, net.weight(width), net.weight(width), axis=-1)
    net.write(path, x, x=(1, 128, width))


def convnext(path: Path) -> None:
    """Liu and others 2022: the tiny one, at 224 x 224, as PyTorch writes it."""
    net = Net()
    x, read = net.channels(net.conv("x", (96, 3), 4, step=4, pad=0), 96), 96
    for stage, blocks in enumerate((3, 3, 9, 3)):
        made = 96 << stage
        if stage:
            x, read = net.conv(net.channels(x, read), (made, read), 2, step=2, pad=0), made
        for _ in range(blocks):
            y = net.op("Transpose", net.conv(x, (made, made), 7, group=made), perm=[0, 2, 3, 1])
            y = net.op("LayerNormalization", y, net.weight(made), net.weight(made), axis=-1)
            y = net.dense(net.gelu(net.dense(y, made, 4 * made)), 4 * made, made)
            y = net.op("Transpose", net.op("Mul", y, net.weight(made)), perm=[0, 3, 1, 2])
            x = net.op("Add", y, x)
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    x = net.op("LayerNormalization", x, net.weight(read), net.weight(read), axis=-1)
    net.write(path, net.dense(x, read, 1000), x=(1, 3, 224, 224))


def decoder(path: Path, tokens: int, past: int, layers: int = 4) -> None:
    """Touvron and others 2023: layers of a small decoder, without rotation."""
    net = Net()
    width, heads, wide, size = 1024, 16, 2816, 64
    split, whole = (net.number(np.array(each)) for each in ([1, -1, heads, size], [1, -1, width]))
    eighth, two, least = (net.number(np.array(each, np.float32)) for each in (0.125, 2, 1e-6))
    before = np.triu(np.full((tokens, past + tokens), -1e9, np.float32), past + 1)
    mask, last, x = net.number(before), net.number(np.array([-1])), "x"
    shapes: dict[str, tuple[int, ...]] = {"x": (1, tokens, width)}

    def normal(x: str) -> str:
        square = net.op("ReduceMean", net.op("Pow", x, two), axes=[-1])
        root = net.op("Sqrt", net.op("Add", square, least))
        return net.op("Mul", net.op("Div", x, root), net.weight(width))

    def product(x: str, read: int, made: int) -> str:
        return net.op("MatMul", x, net.op("Transpose", net.weight(made, read), perm=[1, 0]))

    for layer in range(layers):
        y, parts = normal(x), []
        for name in "qkv":
            part = net.op("Reshape", product(y, width, width), split)
            part = net.op("Transpose", part, perm=[0, 2, 1, 3])
            if past and name != "q":
                shapes[f"past_{name}{layer}"] = (1, heads, past, size)
                part = net.op("Concat", f"past_{name}{layer}", part, axis=2)
            parts.append(part)
        scores = net.op("MatMul", parts[0], net.op("Transpose", parts[1], perm=[0, 1, 3, 2]))
        scores = net.op("Softmax", net.op("Add", net.op("Mul", scores, eighth), mask), axis=-1)
        y = net.op("Transpose", net.op("MatMul", scores, parts[2]), perm=[0, 2, 1, 3])
        x = net.op("Add", product(net.op("Reshape", y, whole), width, width), x)
        y = normal(x)
        gate = product(y, width, wide)
        y = net.op("Mul", net.op("Mul", gate, net.op("Sigmoid", gate)), product(y, width, wide))
        x = net.op("Add", product(y, wide, width), x)
    logits = product(net.op("Gather", normal(x), last, axis=1), width, 32000)
    net.write(path, logits, **shapes)


def steps(build: Callable[[Path], None], shape: tuple[int, ...]) -> Callable[[Path], None]:
    """Quantise a net of one input as onnxruntime does: QDQ, weights by channel."""

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # has no types
        def __init__(self) -> None:
            random = np.random.default_rng(0)
            self._left = [{"x": random.standard_normal(shape, np.float32)} for _ in range(2)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self._left.pop() if self._left else None

    def quantised(path: Path) -> None:
        build(path)
        quant_pre_process(path, path, skip_symbolic_shape=True)
        quantize_static(path, path, Reader(), per_channel=True, activation_type=QuantType.QUInt8)

    return quantised


IMAGE = (1, 3, 224, 224)
NETS: dict[str, Callable[[Path], None]] = {
    "ResNet-50": resnet50,
    "ResNet-50 in 8 bits": steps(resnet50, IMAGE),
    "MobileNetV2": mobilenetv2,
    "MobileNetV2 in 8 bits": steps(mobilenetv2, IMAGE),
    "BERT, 4 layers": bert,
    "ConvNeXt-T": convnext,
    "decoder, 128 tokens": partial(decoder, tokens=128, past=0),
    "decoder, 1 token": partial(decoder, tokens=1, past=128),
}

_PREPARED: dict[str, Any] = {"prepare": True}
_MERGED: dict[str, Any] = {"prepare": True, "merge": True}

FORMS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "partitions": ({}, []),
    "partitions of prepare": (_PREPARED, []),
    "regions of prepare": (_MERGED, []),
    "regions with dnnl_ops": (_MERGED, ["dnnl_ops"]),
}


def speed(nets: Sequence[str], forms: Sequence[str], rounds: int, threads: int) -> None:
    """Time each net in each form and arithmetic; print a row for each."""
    print("| net | form | math | calls | stock, ms | with oneDNN, ms | ratio | middle half |")
    print("|---|---|---|---|---|---|---|---|")
    maths = ("fp32", "bf16") if Library().has_bf16 else ("fp32",)
    with tempfile.TemporaryDirectory() as folder:
        for name in nets:
            path = Path(folder, "net.onnx")
            NETS[name](path)
            for form, math in product(forms, maths):
                (options, more), result = FORMS[form], Path(folder, "partitioned.onnx")
                given: dict[str, Any] = {**options, "output": result, "verify": False}
                dplcli.partition(path, target="dnnl", patterns=more, **given)
                timed: dict[str, Any] = {"kernels": "dnnl", "math": math, "threads": threads}
                outcome = dplcli.bench(path, result, runs=rounds, **timed)
                low, ratio, high = outcome.ratios.cpu
                stock, other = (np.median(side.timing.cpu) * 1e3 for side in outcome.sides)
                ran = outcome.kernels.ran if outcome.kernels is not None else 0
                times = f"{stock:.2f} | {other:.2f} | {ratio:.2f} | {low:.2f} to {high:.2f}"
                print(f"| {name} | {form} | {math} | {ran} | {times} |", flush=True)


def coverage(models: Path) -> None:
    """Count what runs of each model; print a row for each, and the reasons."""
    reasons: Counter[str] = Counter()
    print("| model | calls | on oneDNN | not |")
    print("|---|---|---|---|")
    for path in sorted(models.glob("*.onnx")):
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, path.name)
            try:
                dplcli.partition(path, target="dnnl", output=result, verify=False)
                asked = Execution(isolated=False, kernels=kernels_for("dnnl"))
                record = open_session(ModelSource(result, execution=asked), "all").record()
            except Exception as error:  # noqa: BLE001  # models that nothing opens are listed so
                print(f"| {path.stem} | | | {type(error).__name__} |")
                continue
        refused = Counter(_reason(item.why) for item in record if item.why)
        reasons += refused
        said = "; ".join(f"{count} {why}" for why, count in refused.most_common())
        if record:
            ran = len(record) - refused.total()
            print(f"| {path.stem} | {len(record)} | {ran} | {said} |", flush=True)
    print()
    for why, count in reasons.most_common():
        print(f"- {count}: {why}")


def _reason(why: str) -> str:
    """Leave out the names in a reason: those of calls that suffer for another have its reason."""
    return why.rpartition(", cannot: ")[2].split(" of '")[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--net", choices=NETS, action="append")
    parser.add_argument("--form", choices=FORMS, action="append")
    given = parser.parse_args()
    if given.models is None:
        speed(given.net or [*NETS], given.form or [*FORMS], given.rounds, given.threads)
    else:
        coverage(given.models)
