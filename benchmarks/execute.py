"""Partitions on oneDNN against stock onnxruntime: how many run, and how long they take.

``python -m benchmarks.execute`` times a ResNet-50, a MobileNetV2 and a BERT encoder of their usual
sizes, with random weights: partition by partition, and in regions after ``prepare`` and ``merge``.
``python -m benchmarks.execute MODELS`` counts for each model of a folder which calls run on oneDNN,
and why the others do not. Both print a table for Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dplcli
from dplcli.execute import kernels_for
from dplcli.execute.session import open_session
from dplcli.verify.check import Execution
from dplcli.verify.values import ModelSource

if TYPE_CHECKING:
    from collections.abc import Callable

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

    def write(self, path: Path, shape: tuple[int, ...], last: str) -> None:
        """Write the model."""
        value = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        result = helper.make_tensor_value_info(last, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", [value], [result], self.weights)
        opset = [helper.make_opsetid("", _OPSET)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)

    def conv(
        self, x: str, sizes: tuple[int, int], width: int, *, step: int = 1, group: int = 1
    ) -> str:
        """Add a convolution with a bias."""
        made, read = sizes
        pads = [width // 2] * 4
        kernel = self.weight(made, read // group, width, width)
        return self.op(
            "Conv", x, kernel, self.weight(made), strides=[step] * 2, pads=pads, group=group
        )

    def dense(self, x: str, read: int, made: int) -> str:
        """Add a product with a bias."""
        product = self.op("MatMul", x, self.op("Transpose", self.weight(made, read)))
        return self.op("Add", product, self.weight(made))


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
    net.write(path, (1, 3, 224, 224), net.dense(x, read, 1000))


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
    net.write(path, (1, 3, 224, 224), net.dense(x, 1280, 1000))


def bert(path: Path, layers: int = 4) -> None:
    """Devlin and others 2018: layers of the base encoder, 128 tokens."""
    net = Net()
    width, heads = 768, 12
    split = net.number(np.array([1, 128, heads, width // heads]))
    whole = net.number(np.array([1, 128, width]))
    eighth, root = net.number(np.array(0.125, np.float32)), net.number(np.array(2**0.5, np.float32))
    one, half = net.number(np.array(1, np.float32)), net.number(np.array(0.5, np.float32))
    x = "x"
    for _ in range(layers):
        parts = [net.op("Reshape", net.dense(x, width, width), split) for _ in range(3)]
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        q, k, v = (net.op("Transpose", p, perm=o) for p, o in zip(parts, orders, strict=True))
        weights = net.op("Softmax", net.op("Mul", net.op("MatMul", q, k), eighth), axis=-1)
        y = net.op("Transpose", net.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        y = net.op("Add", net.dense(net.op("Reshape", y, whole), width, width), x)
        x = net.op("LayerNormalization", y, net.weight(width), net.weight(width), axis=-1)
        y = net.dense(x, width, 4 * width)
        erf = net.op("Add", net.op("Erf", net.op("Div", y, root)), one)
        y = net.op("Mul", net.op("Mul", y, erf), half)
        y = net.op("Add", net.dense(y, 4 * width, width), x)
        x = net.op("LayerNormalization", y, net.weight(width), net.weight(width), axis=-1)
    net.write(path, (1, 128, width), x)


NETS: dict[str, Callable[[Path], None]] = {
    "ResNet-50": resnet50,
    "MobileNetV2": mobilenetv2,
    "BERT, 4 layers": bert,
}

_PREPARED: dict[str, Any] = {"prepare": True}
_MERGED: dict[str, Any] = {"prepare": True, "merge": True}

FORMS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "partitions": ({}, []),
    "partitions of prepare": (_PREPARED, []),
    "regions of prepare": (_MERGED, []),
    "regions with dnnl_ops": (_MERGED, ["dnnl_ops"]),
}


def speed(rounds: int, threads: int) -> None:
    """Time each net in both forms; print a row for each."""
    print("| net | form | calls | stock, ms | with oneDNN, ms | ratio | middle half |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, build in NETS.items():
            path = Path(folder, "net.onnx")
            build(path)
            for form, (options, more) in FORMS.items():
                result = Path(folder, "partitioned.onnx")
                given: dict[str, Any] = {**options, "output": result, "verify": False}
                dplcli.partition(path, target="dnnl", patterns=more, **given)
                outcome = dplcli.bench(path, result, kernels="dnnl", runs=rounds, threads=threads)
                low, ratio, high = outcome.ratios.cpu
                stock, other = (np.median(side.timing.cpu) * 1e3 for side in outcome.sides)
                ran = outcome.kernels.ran if outcome.kernels is not None else 0
                times = f"{stock:.2f} | {other:.2f} | {ratio:.2f} | {low:.2f} to {high:.2f}"
                print(f"| {name} | {form} | {ran} | {times} |", flush=True)


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
    given = parser.parse_args()
    if given.models is None:
        speed(given.rounds, given.threads)
    else:
        coverage(given.models)
