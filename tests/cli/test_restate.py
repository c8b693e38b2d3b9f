"""``dpl rewrite --shape`` and ``--rename``: another interface, checked as all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx.numpy_helper import from_array

import dplcli as dpl_api
from tests.cli.conftest import HEADER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.support import Dpl, Save

OPEN = """g (float[n, 3] x, float[n, 4] m, bool c) => (float[n, 4] y, float[n] s)
<float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, int64[1] ax = {1}, float[n, 4] h> {
    h = MatMul(x, w)
    y = If(c) <then_branch = t () => (float[n, 4] a) { a = Add(h, m) },
               else_branch = e () => (float[n, 4] b) { x2 = Neg(h) b = Relu(x2) }>
    s = ReduceSum<keepdims = 0>(y, ax) }"""
FIXED = """g (float[1, 3, 4, 4] image) => (float[1, 8] y) <float[1, 2, 2, 2] t> {
    t = Conv(image, w)
    y = Reshape(t, size) }"""


def ports(path: Path) -> list[str]:
    """Return the inputs and outputs of a file, as text."""
    graph = onnx.load(path, load_external_data=False).graph
    texts = []
    for info in (*graph.input, *graph.output):
        dims = [dim.dim_param or dim.dim_value or "?" for dim in info.type.tensor_type.shape.dim]
        texts.append(f"{info.name}[{','.join(map(str, dims))}]")
    return texts


def fixed(size: tuple[int, ...] = (-1, 8)) -> onnx.ModelProto:
    """Return a model whose sizes are fixed; it reshapes to *size*."""
    model = onnx.parser.parse_model(HEADER + FIXED)
    weight = np.random.default_rng(0).random((2, 3, 3, 3), np.float32)
    model.graph.initializer.extend([from_array(weight, "w"), from_array(np.array(size), "size")])
    return model


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--shape", "n=4"), "x[4,3] m[4,4] c[] y[4,4] s[4]"),
        (("--shape", "x:0=4"), "x[4,3] m[4,4] c[] y[4,4] s[4]"),
        (("--shape", "x=4x3"), "x[4,3] m[4,4] c[] y[4,4] s[4]"),
        (("--shape", "n=rows"), "x[rows,3] m[rows,4] c[] y[rows,4] s[rows]"),
        (("--rename", "x=image"), "image[n,3] m[n,4] c[] y[n,4] s[n]"),
        (("--rename", "y=x", "--rename", "x=y"), "y[n,3] m[n,4] c[] x[n,4] s[n]"),
        (("--rename", "h=hidden", "--shape", "n=2"), "x[2,3] m[2,4] c[] y[2,4] s[2]"),
        (("--rename", "m=mask", "-p", "fuse"), "x[n,3] mask[n,4] c[] y[n,4] s[n]"),
        (("--size", "n=5", "--rename", "h=k"), "x[n,3] m[n,4] c[] y[n,4] s[n]"),
    ],
)
def test_what_is_open(
    dpl: Dpl, save: Save, folder: Path, options: tuple[str, ...], expected: str
) -> None:
    """A symbol wherever it stands; names in bodies, too; with rules or without."""
    path = save(OPEN, "m.onnx")
    before = path.read_bytes()
    answer = dpl("rewrite", "m.onnx", *options, "-o", "out.onnx")

    assert (answer.code, answer.err) == (0, "")
    assert "Equivalent" in answer.out
    assert ports(folder / "out.onnx") == expected.split()
    assert path.read_bytes() == before
    assert {each.name for each in folder.iterdir()} == {"m.onnx", "out.onnx"}


@pytest.mark.parametrize(
    ("size", "options", "expected"),
    [
        ((-1, 8), ("--shape", "image:0=4"), "image[4,3,4,4] y[4,8]"),
        ((-1, 8), ("--shape", "image:0=batch"), "image[batch,3,4,4] y[batch,8]"),
        ((-1, 8), ("--shape", "image:-4=4"), "image[4,3,4,4] y[4,8]"),
        ((-1, 8), ("--shape", "image=1x3x4x4"), "image[1,3,4,4] y[1,8]"),
        ((1, -1), ("--shape", "image=1x3x6x5"), "image[1,3,6,5] y[1,24]"),
        ((1, -1), ("--shape", "image:0=2", "--rename", "y=z"), "image[2,3,4,4] z[1,16]"),
    ],
)
def test_what_is_fixed(
    dpl: Dpl,
    folder: Path,
    size: tuple[int, ...],
    options: tuple[str, ...],
    expected: str,
) -> None:
    """What follows is stated anew, and what does not hold any more is left out."""
    onnx.save(fixed(size), folder / "m.onnx")
    answer = dpl("rewrite", "m.onnx", *options, "-o", "out.onnx")

    assert (answer.code, answer.err) == (0, "")
    assert ports(folder / "out.onnx") == expected.split()
    onnx.checker.check_model(onnx.load(folder / "out.onnx"), full_check=True)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (("--rename", "xx=q"), "--rename xx: the model has no such value", "did you mean 'x'?"),
        (("--rename", "x=y"), "--rename x=y: the name is taken", "give that another name, too"),
        (("--rename", "x=x2"), "--rename x=x2: the name is taken", ""),
        (("--rename", "x=q", "--rename", "m=q"), "--rename m=q: the name is taken", ""),
        (("--rename", "x"), "--rename 'x': not a name", "write --rename image=pixels"),
        (("--rename", "x="), "--rename 'x=': not a name", ""),
        (("--shape", "k=4"), "--shape: no input has a dimension 'k'", "there are: n, x:AXIS"),
        (("--shape", "x:2=4"), "--shape x:2: x has 2 axes, from 0", ""),
        (("--shape", "x=4"), "--shape: no input has a dimension 'x'", "x:AXIS"),
        (("--shape", "x=4x3x1"), "--shape x: it has 2 axes, not 3", ""),
        (("--shape", "q=4x3"), "--shape q: there is no such input", "there are: x, m, c"),
        (("--shape", "n=4", "--shape", "x:0=5"), "--shape: n cannot be both 4 and 5", ""),
        (("--shape", "x=4x5"), "--shape: the model contradicts it: MatMul", ""),
        (("--shape", "n=4", "--plan", "p"), "--shape and --plan contradict each other", "first"),
        ((), "no catalogue is named", "pass --patterns FILE or --target NAME"),
    ],
)
def test_what_cannot_be_is_refused(  # noqa: PLR0913, PLR0917  # the fixtures, and a case
    dpl: Dpl, save: Save, folder: Path, options: tuple[str, ...], message: str, hint: str
) -> None:
    """Before anything is written, and where the check is left out, too."""
    save(OPEN, "m.onnx")
    for more in ((), ("--no-verify",)):
        answer = dpl("rewrite", "m.onnx", *options, *more, "-o", "out.onnx")

        assert answer.code == 2
        assert answer.message.startswith(message)
        assert hint in answer.hint
        assert [each.name for each in folder.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize(
    ("size", "options", "how"),
    [
        ((-1, 8), ("--shape", "image:1=4"), ""),
        ((1, 8), ("--shape", "image:0=batch"), " with batch=2"),
        ((1, 8), ("--shape", "image:0=batch", "--size", "batch=5"), " with batch=5"),
    ],
)
def test_a_size_that_a_run_contradicts(
    dpl: Dpl, folder: Path, size: tuple[int, ...], options: tuple[str, ...], how: str
) -> None:
    """What types do not show, the check does: also a batch that is baked in."""
    onnx.save(fixed(size), folder / "m.onnx")
    answer = dpl("rewrite", "m.onnx", *options, "-o", "out.onnx")

    assert answer.code == 2
    assert answer.message.startswith(f"--shape: the model does not run like this{how}: ")
    assert not (folder / "out.onnx").exists()


def test_nothing_names_the_file_in_between(dpl: Dpl, folder: Path) -> None:
    """Neither a note nor an error, beside external data either."""
    model = onnx.parser.parse_model(HEADER + OPEN)
    for name, size in (("a.onnx", 1 << 20), ("b.onnx", 9)):
        path = folder / name
        onnx.save(model, path, save_as_external_data=True, location="d", size_threshold=size)
        done = dpl("rewrite", name, "--rename", "x=q", "--opset", "18", "-o", f"out.{name}")
        assert (done.code, done.err) == (0, "")
        assert f"note: {name}: raised from opset 17 to 18" in done.out
        failed = dpl("rewrite", name, "--rename", "x=q", "--opset", "7", "-o", "c.onnx")
        assert failed.message == f"{name}: is of opset 17, which cannot be lowered to 7"
    assert not list(folder.glob(".dpl*"))


def test_a_wrong_rule_is_noticed_with_other_names(dpl: Dpl, save: Save, folder: Path) -> None:
    """The check maps names, and still says no."""
    save(OPEN, "m.onnx")
    (folder / "r.yaml").write_text(
        "dpl: 1\nrewrites: [{name: wrong, pattern: Relu(x), replacement: Neg(x)}]\n"
    )
    options = ("-p", "r.yaml", "--rename", "x=image", "--all-or-nothing")
    answer = dpl("rewrite", "m.onnx", *options, "-o", "out.onnx")

    assert answer.code == 1
    assert not (folder / "out.onnx").exists()


def test_verify_is_told_the_names(dpl: Dpl, save: Save) -> None:
    """Without them, the two have other inputs."""
    save(OPEN, "m.onnx")
    names = ("--rename", "x=image", "--rename", "s=total")
    assert dpl("rewrite", "m.onnx", *names, "-o", "out.onnx").code == 0

    assert dpl("verify", "m.onnx", "out.onnx").code == 1
    assert dpl("verify", "m.onnx", "out.onnx", *names).code == 0
    assert dpl("verify", "m.onnx", "out.onnx", "--rename", "x=image").code == 1
    assert dpl("verify", "m.onnx", "out.onnx", "--rename", "q=image").code == 2
    answer = dpl("verify", "m.onnx", "--save-results", "k.npz", *names)
    assert (answer.code, answer.message) == (2, "--rename takes two models")


def test_what_lies_beside_the_graph_keeps_up(folder: Path) -> None:
    """Quantisation annotations, external data and bodies that use the name for something else."""
    model = onnx.parser.parse_model(
        HEADER
        + """g (float[2] x, bool c) => (float[2] y) { v = Relu(x)
        y = If(c) <then_branch = t () => (float[2] a) { q = Neg(v) a = Abs(q) },
                   else_branch = e () => (float[2] b) { q = Abs(v) b = Neg(q) }> }"""
    )
    note = model.graph.quantization_annotation.add(tensor_name="v")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    model.graph.initializer.append(from_array(np.ones(2000, np.float32), "scale"))
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="d", size_threshold=9)

    answer = dpl_api.rewrite(folder / "m.onnx", rename={"v": "w", "scale": "factor"}, shape={})
    result = answer.model.graph

    assert answer.ok
    assert result.quantization_annotation[0].tensor_name == "w"
    assert result.quantization_annotation[0].quant_parameter_tensor_names[0].value == "factor"
    bodies = [attribute.g for attribute in result.node[1].attribute]
    assert [body.node[0].input[0] for body in bodies] == ["w", "w"]
    with pytest.raises(dpl_api.DplError, match=r"^rename v=q: the name is taken"):
        dpl_api.rewrite(folder / "m.onnx", rename={"v": "q"})
