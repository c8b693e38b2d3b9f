"""``dpl inspect --contract``, ``dpl patterns contract`` and the files that they write."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import SAMPLES, contents

if TYPE_CHECKING:
    from tests.cli.support import Dpl, Save

CONV = "dnnl::conv2d_bias_relu"


@pytest.fixture
def model(folder: Path, dpl: Dpl) -> Path:
    """Return a partitioned model."""
    path = folder / "p.onnx"
    source = SAMPLES / "residual_block.onnx"
    answer = dpl("partition", source, "-p", "conv_relu", "-o", path, "--no-verify", "-q")
    assert answer.code == 0, answer.err
    return path


def test_the_table_of_a_model(dpl: Dpl, model: Path) -> None:
    """One block per function, for a reader."""
    answer = dpl("inspect", model, "--contract")

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        CONV,
        "  rule dnnl.conv2d_bias_relu, 2 calls, body: Conv Relu",
        "  input      0  x             float32 rank 4",
        "  input      1  w             float32 rank 4  constant",
        "  input      2  b             float32 rank 1  constant",
        "  attribute     dilations     ints            Conv.dilations: [1, 1]",
        "  attribute     kernel_shape  ints            Conv.kernel_shape: [3, 3]",
        "  attribute     pads          ints            Conv.pads: [1, 1, 1, 1]",
        "  attribute     strides       ints            Conv.strides: [1, 1]",
        "  output     0  relu_1_out    float32 rank 4",
    ]


def test_the_record_of_a_model(dpl: Dpl, model: Path) -> None:
    """The same for programs, without paths, in stable bytes."""
    first, second = (dpl("inspect", model, "--contract", "--json", "-").out for _ in range(2))
    record = json.loads(first)

    assert first == second
    assert (record["schema"], record["of"], record["model"]) == (
        "dpl.contract/1",
        "model",
        "p.onnx",
    )
    assert [(f["domain"], f["name"], f["calls"]) for f in record["functions"]] == [
        ("dnnl", "conv2d_bias_relu", 2)
    ]


def test_a_model_without_functions_has_an_empty_contract(dpl: Dpl, folder: Path) -> None:
    """That is no error, and the header is still one."""
    header = folder / "none.h"
    answer = dpl("inspect", SAMPLES / "residual_block.onnx", "--c-header", header)

    assert answer.code == 0
    assert answer.out == "residual_block.onnx has no function of a target.\n"
    assert header.read_text().startswith("/* Kernels for")


def test_the_files_are_written_and_written_again(dpl: Dpl, model: Path, folder: Path) -> None:
    """What dpl wrote it may replace; the bytes are the same."""
    files = ("--c-header", folder / "k.h", "--python", folder / "k.py", "--json", folder / "k.json")
    assert dpl("inspect", model, *files).code == 0
    first = contents(folder)
    assert dpl("inspect", model, *files, "-q").out == ""

    assert contents(folder) == first
    assert {"k.h", "k.py", "k.json"} < first.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--c-header", "p.onnx"), "is another file of this command"),
        (("--python", "p.onnx"), "is another file of this command"),
        (("--c-header", "same", "--python", "same"), "is another file of this command"),
        (("--c-header", "k.json", "--json", "k.json"), "is another file of this command"),
        (("--c-header", "new.h", "--python", "mine.py"), "was not written by dpl, so it is kept"),
        (("--c-header", "no/folder.h"), "its folder does not exist"),
        (("--c-header", "."), "is not a file"),
        (("--contract", "--node", "Relu_0"), "contradict each other"),
        (("--c-header", "new.h", "--node", "Relu_0"), "contradict each other"),
    ],
)
def test_what_must_not_be_overwritten_is_kept(
    options: tuple[str, ...], message: str, dpl: Dpl, model: Path, folder: Path
) -> None:
    """One message, exit code 2, and nothing is written, not even the file that could be."""
    assert model.is_file()
    (folder / "mine.py").write_text("print('mine')\n")
    before = contents(folder)
    answer = dpl("inspect", "p.onnx", *options)

    assert answer.code == 2
    assert message in answer.message
    assert contents(folder) == before


def test_a_catalogue_shows_what_it_may_write(dpl: Dpl, folder: Path) -> None:
    """Each form of the pattern, with the rule's conditions; --rule narrows it down."""
    header = folder / "k.h"
    rules = ("--rule", "conv2d_bias_relu")
    answer = dpl("patterns", "contract", "conv_relu", *rules, "--c-header", header)
    blocks = answer.out.split("\n\n")

    assert (answer.code, answer.err, len(blocks)) == (0, "", 2)
    assert blocks[0].splitlines()[0] == CONV
    name, *lines = blocks[1].splitlines()[:4]
    assert re.fullmatch(rf"{CONV}_[0-9a-f]{{8}}", name)
    assert lines == [
        "  rule dnnl.conv2d_bias_relu, body: Conv Add Relu",
        "  not in every function of the rule: Add",
        "  where per_channel(b, conv)",
    ]
    assert f"int dpl_{name.replace('::', '_')}(" in header.read_text()


def test_a_catalogue_of_rewrites_writes_no_functions(dpl: Dpl) -> None:
    """Rewrites have no contract."""
    answer = dpl("patterns", "contract", "prepare")

    assert (answer.code, answer.out) == (0, "prepare outlines nothing.\n")


def test_an_unknown_rule_or_catalogue_is_refused(dpl: Dpl) -> None:
    """As everywhere."""
    assert dpl("patterns", "contract", "conv_relu", "--rule", "conv2d_bais").code == 2
    assert dpl("patterns", "contract", "conv_rleu").code == 2
    assert dpl("patterns", "contract").code == 2


def test_a_catalogue_is_not_overwritten(dpl: Dpl, folder: Path) -> None:
    """Not by its own header."""
    path = folder / "own.yaml"
    path.write_text("dpl: 1\ntarget: t\npatterns: [{name: k, pattern: Relu(x)}]\n")
    before = contents(folder)
    answer = dpl("patterns", "contract", path, "--c-header", path)

    assert answer.code == 2
    assert contents(folder) == before


def test_a_region_is_no_partition_of_a_rule(dpl: Dpl, save: Save) -> None:
    """It is said what it is, in the table and in the sources, and never compared with another."""
    save(
        "g (float[2] x) => (y, z) { a = Relu (x) b = Neg (a) c = Exp (b) y = Neg (c) z = Abs (y) }"
    )
    ops = ("Relu", "Neg", "Abs")
    rules = "".join(f"  - {{name: {op.lower()}, pattern: {op}(x)}}\n" for op in ops)
    Path("r.yaml").write_text(f"dpl: 1\ntarget: t\npatterns:\n{rules}")
    assert dpl("partition", "m.onnx", "-p", "r.yaml", "--merge", "-o", "p.onnx").code == 0
    answer = dpl("inspect", "p.onnx", "--contract", "--c-header", "k.h", "--python", "k.py")
    lines = answer.out.splitlines()
    assert (
        lines[lines.index("t::region") + 1]
        == "  region of 2 partitions, 1 call, body: t.relu t.neg"
    )
    assert "not in every function" not in answer.out
    assert "/* t::region, region of 2 partitions; calls: 1" in Path("k.h").read_text()
    assert "'t::region, region of 2 partitions.'" in Path("k.py").read_text()


def test_long_bodies_are_cut(dpl: Dpl, save: Save) -> None:
    """A region of many partitions fits a screen, in both tables; JSON has all of it."""
    lines = " ".join(f"v{n} = Add (v{n - 1}, w{n})" for n in range(1, 31))
    weights = ", ".join(f"float[2] w{n} = {{1, 2}}" for n in range(1, 31))
    save(f"g (float[2] v0) => (float[2] v30) <{weights}> {{ {lines} }}")
    rules = "dpl: 1\ntarget: t\npatterns: [{name: add, pattern: 'Add(x, w)', constants: lift}]"
    Path("r.yaml").write_text(rules, encoding="utf-8")
    assert dpl("partition", "m.onnx", "-p", "r.yaml", "--merge", "-o", "p.onnx").code == 0
    dpl("inspect", "p.onnx", "--contract", "--json", "c.json")
    region = json.loads(Path("c.json").read_text(encoding="utf-8"))["functions"][1]
    assert (region["name"], len(region["body"])) == ("region", 30)
    table = dpl("inspect", "p.onnx", "--contract").out
    assert f"region of 30 partitions, 1 call, body: {'t.add ' * 24}and 6 more" in table
    (row,) = (x for x in dpl("inspect", "p.onnx").out.splitlines() if x.startswith("t::region"))
    assert row.split()[1:4] == ["x,", "w,", "w_1,"]
    assert "w_10 and 19 more" in row
    assert row.endswith(f"{'t.add ' * 12}and 18 more")


POOL = """
dpl: 1
target: t
patterns:
  - {name: pool, pattern: MaxPool(x)}
  - name: gelu
    pattern: com.acme.FastGelu(x)
    examples:
      - {before: "not a model", after: any}
      - before: "g (float[1,4] x) => (float[1,4] y) { y = Relu (x) }"
        after: any
      - before: |
          <ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
          g (float[1,4] x) => (float[1,4] y) { y = com.acme.FastGelu (x) }
        after: any
"""


def test_examples_show_what_cannot_be_made_up(dpl: Dpl) -> None:
    """The size of a pool is, an operator that onnx does not know is not."""
    Path("pool.yaml").write_text(POOL, encoding="utf-8")
    assert dpl("patterns", "contract", "pool.yaml", "--json", "c.json", "-q").code == 0
    record = json.loads(Path("c.json").read_text(encoding="utf-8"))
    pool, gelu = record["functions"]
    assert [node["op_type"] for node in (*pool["body"], *gelu["body"])] == ["MaxPool", "FastGelu"]
    assert pool["inputs"][0]["ranks"] == []
    (size,) = [item for item in pool["attributes"] if item["name"] == "kernel_shape"]
    assert (size["given"], size["values"]) == (True, [])
    assert record["notes"]["t.gelu"].startswith("only the forms that its examples have")


SUM = """
dpl: 1
target: t
patterns:
  - name: sum
    pattern: Sum(x, ...)
    examples:
      - before: |
          g (float[4] a, float[4] b, float[4] c, float[4] d) => (float[4] y) {
            y = Sum (a, b, c, d) }
        after: any
"""


def test_examples_show_more_than_what_is_made_up(dpl: Dpl) -> None:
    """How many operands a pattern leaves open nobody tells from the pattern."""
    Path("sum.yaml").write_text(SUM, encoding="utf-8")
    assert dpl("patterns", "contract", "sum.yaml", "--json", "c.json", "-q").code == 0
    record = json.loads(Path("c.json").read_text(encoding="utf-8"))
    assert {len(function["inputs"]) for function in record["functions"]} >= {1, 4}
