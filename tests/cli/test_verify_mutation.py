"""Verification can fail: single mistakes in a partitioned model are noticed and named."""

from collections import Counter
from pathlib import Path

import onnx
import pytest

from dplcli import pipeline
from dplcli.settings import PartitionSettings
from tests.cli.mutants import Mutant, mutants
from tests.cli.support import SAMPLES, Dpl, Save
from tests.support.helpers import rule_name, thinned

# One net with everything that has a number in it, weights inside the function bodies.
EMBEDDED = """dpl: 1
target: t
constants: embed
patterns:
  - {name: bn_leaky, pattern: "LeakyRelu(BatchNormalization(Conv(x, w, ...), s, b, m, v))"}
  - {name: bias_clip, pattern: "Clip(Conv(x, w, b), const(low), const(high))"}
  - {name: sigmoid, pattern: "Sigmoid(Conv(x, w, ...))"}
"""
NET = """g (float[1, 2, 6, 6] x) => (float[1, 2, 6, 6] y, float[1, 2, 6, 6] z)
<float[2, 2, 3, 3] w = {
0.5, -0.3, 0.2, 0.7, -0.1, 0.4, 0.9, -0.6, 0.2, 0.1, 0.8, -0.4, 0.3, 0.3, -0.9, 0.5, 0.2, 0.6,
0.4, -0.2, 0.1, 0.6, -0.7, 0.3, 0.8, -0.5, 0.1, 0.2, 0.9, -0.3, 0.4, 0.2, -0.8, 0.6, 0.1, 0.5},
float[2] b = {0.3, -0.2}, float[2] s = {1.2, 0.8}, float[2] m = {0.1, -0.1},
float[2] v = {0.9, 1.1},
float low = {-1.0}, float high = {1.0}>
{ c = Conv <pads = [1, 0, 1, 2]> (x, w, b)
  n = BatchNormalization <epsilon = 0.01> (c, s, b, m, v)
  l = LeakyRelu <alpha = 0.3> (n)
  d = Conv <pads = [2, 1, 0, 1]> (l, w, b)
  y = Clip (d, low, high)
  e = Conv <pads = [1, 1, 1, 1]> (l, w, b)
  z = Sigmoid (e) }"""


def changed(text: str, old: str, new: str) -> str:
    """Return *text* with the only occurrence of *old* replaced."""
    assert text.count(old) == 1
    return text.replace(old, new)


@pytest.fixture
def embedded(dpl: Dpl, folder: Path, save: Save) -> Path:
    """Return the net partitioned with its weights embedded; it is equivalent."""
    (folder / "rules.yaml").write_text(EMBEDDED)
    save(NET)
    answer = dpl("partition", "m.onnx", "-p", "rules.yaml", "-o", "p.onnx")
    assert answer.code == 0
    functions = {function.name for function in onnx.load(folder / "p.onnx").functions}
    assert set(map(rule_name, functions)) == {"bn_leaky", "bias_clip", "sigmoid"}
    return folder / "p.onnx"


BODIES = {
    "weight": ("bias_clip", "Constant", "weight", "y"),
    "operator": ("sigmoid", "Sigmoid", "Tanh", "z"),
    "operator-before-both": ("bn_leaky", "LeakyRelu", "Relu", "y"),
    "operands": ("bn_leaky", "BatchNormalization", "operands", "z"),
}


@pytest.mark.parametrize(("name", "op", "change", "output"), BODIES.values(), ids=BODIES)
def test_one_change_inside_one_function_body_is_noticed(  # noqa: PLR0913, PLR0917  # fixtures
    dpl: Dpl, embedded: Path, name: str, op: str, change: str, output: str
) -> None:
    """``dpl verify`` exits with 1 and names the output that differs."""
    model = onnx.load(embedded)
    (function,) = [item for item in model.functions if rule_name(item.name) == name]
    node = next(item for item in function.node if item.op_type == op)
    if change == "weight":
        tensor = max((n.attribute[0].t for n in function.node if n.op_type == op), key=_size)
        array = onnx.numpy_helper.to_array(tensor).copy()
        array.flat[3] *= 1.01
        tensor.CopyFrom(onnx.numpy_helper.from_array(array))
    elif change == "operands":
        node.input[1], node.input[4] = node.input[4], node.input[1]
    else:
        node.op_type = change
        del node.attribute[:]
    onnx.save(model, embedded)

    answer = dpl("verify", "m.onnx", embedded)

    assert answer.code == 1
    assert f"{output} at level disable: " in answer.out
    assert f"{output} at level all: " in answer.out
    assert "NOT equivalent" in answer.out


def _size(tensor: onnx.TensorProto) -> int:
    size: int = onnx.numpy_helper.to_array(tensor).size
    return size


NUMBERS = {
    "pads": ("pads = [2, 1, 0, 1]", "pads = [1, 1, 1, 1]", {"y"}),
    "epsilon": ("epsilon = 0.01", "epsilon = 0.011", {"y", "z"}),
    "alpha": ("alpha = 0.3", "alpha = 0.301", {"y", "z"}),
    "bound": ("high = {1.0}", "high = {0.99}", {"y"}),
    "weight": ("\n0.5, -0.3, 0.2", "\n0.5, -0.3, 0.202", {"y", "z"}),
    "bias": ("b = {0.3,", "b = {0.301,", {"y", "z"}),
    "variance": ("v = {0.9,", "v = {0.901,", {"y", "z"}),
}


@pytest.mark.long
@pytest.mark.parametrize(("old", "new", "outputs"), NUMBERS.values(), ids=NUMBERS)
def test_one_number_changed_before_partitioning_is_noticed_after(  # noqa: PLR0913, PLR0917  # fixtures
    dpl: Dpl, folder: Path, save: Save, embedded: Path, old: str, new: str, outputs: set[str]
) -> None:
    """The partition of a net with one slip in it is not equivalent to the right net."""
    save(changed(NET, old, new), "slip.onnx")
    command = ("partition", "slip.onnx", "-p", "rules.yaml", "-o", embedded)
    assert dpl(*command).code == 0

    answer = dpl("verify", "m.onnx", embedded)

    assert answer.code == 1
    assert {name for name in ("y", "z") if f"{name} at level disable: " in answer.out} == outputs
    assert folder.is_dir()


# Net, how many mutants, how many of the weights and inputs must be noticed. The rest has
# no effect: a weight behind a ReLU that is shut, the bias of a key, which softmax takes away.
NETS = {
    "residual_block": (6, 1.0),
    "resnet18_bn": (6, 0.9),
    "deit": (4, 0.75),
}


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(2, NETS))
@pytest.mark.usefixtures("folder")
def test_random_single_mistakes_are_noticed(name: str) -> None:
    """Every wrong operator and attribute is, and all weights but those without effect."""
    count, share = NETS[name]
    original, partitioned = SAMPLES / f"{name}.onnx", Path("partitioned.onnx")
    settings = pipeline.Check(seeds=(0,), levels=("disable",))
    pipeline.partition(
        original,
        PartitionSettings(output=partitioned, target="dnnl", seed=0, level="disable"),
    )
    found = mutants(onnx.load(partitioned), 20260101, count)
    missed = [mutant for mutant in found if not is_noticed(original, mutant, settings)]

    assert len(found) == count
    assert [m.what for m in missed if m.kind in {"operator", "attribute"}] == []
    kinds = Counter(mutant.kind for mutant in found)
    others = kinds["weight"] + kinds["input"]
    assert len(missed) <= (1 - share) * others, [mutant.what for mutant in missed]


def is_noticed(original: Path, mutant: Mutant, check: pipeline.Check) -> bool:
    """Tell whether verification says no, and names an output."""
    path = Path("mutant.onnx")
    onnx.save(mutant.model, path)
    result = pipeline.verify(original, path, check=check)
    names = {value.name for value in mutant.model.graph.output}
    assert {item.name for item in result.outputs if not item.ok} <= names
    return not result.equivalent
