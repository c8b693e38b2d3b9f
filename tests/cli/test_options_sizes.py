"""The sizes at which work is counted: those given, else those that the check chose."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from benchmarks.llm import SIZES, write
from tests.support.helpers import proto_from_text

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.support import Dpl

NET = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[batch, 3] x, float[rows, 3] v) => (y, z) <float[3, 4] w> {
        p = MatMul (x, w) y = Relu (p) z = Tanh (v) }"""
RULE = """dpl: 1
target: t
patterns:
  - {name: dense, pattern: "Relu(MatMul(x, w))"}
"""
MADE = ("partition", "m.onnx", "-p", "c.yaml", "-o", "out.onnx")


@pytest.fixture(name="net")
def _net(folder: Path) -> Path:
    proto = proto_from_text(NET.replace("<float[3, 4] w>", ""))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    onnx.save(proto, folder / "m.onnx")
    (folder / "c.yaml").write_text(RULE, encoding="utf-8")
    return folder / "m.onnx"


def coverage_of(dpl: Dpl, *options: object) -> dict[str, Any]:
    """Return the part of the JSON."""
    answer = dpl(*MADE, "--json", "-", "--quiet", *options)
    assert answer.code == 0, answer.err
    found: dict[str, Any] = json.loads(answer.out)["coverage"]
    return found


def work(batch: int, rows: int) -> int:
    """Count by hand."""
    return batch * 4 * (2 * 3 + 1) + rows * 3


@pytest.mark.usefixtures("net")
def test_the_check_chooses_what_nobody_gave(dpl: Dpl) -> None:
    """The sizes that it fed are the ones that are counted with, and named."""
    answer = dpl(*MADE)
    found = coverage_of(dpl)
    chosen = found["sizes"]["chosen"]

    assert set(chosen) == {"batch", "rows"}
    assert found["flops"]["of"] == work(**chosen)
    assert found["flops"]["unknown"] == {"covered": 0, "of": 0}
    assert found["symbols"] == []
    line = " ".join(answer.out.split())
    sizes = f"at batch={chosen['batch']}, rows={chosen['rows']} (chosen by the check"
    assert sizes in line
    assert "--shape batch=N --shape rows=N for yours" in line
    assert "is not known" not in line


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize(
    ("options", "given"),
    [
        (("--shape", "batch=7"), {"batch": 7}),
        (("--shape", "x=7x3"), {"batch": 7}),
        (("--shape", "batch=7", "--shape", "rows=5"), {"batch": 7, "rows": 5}),
    ],
)
def test_what_is_given_is_counted_with(
    dpl: Dpl, options: tuple[str, ...], given: dict[str, int]
) -> None:
    """And is not said to be chosen; the rest is."""
    sizes = coverage_of(dpl, *options)["sizes"]
    assert sizes["given"] == given
    assert set(sizes["chosen"]) == {"batch", "rows"} - given.keys()
    shown = " ".join(dpl(*MADE, *options).out.split())
    assert ("chosen by the check" in shown) == bool(sizes["chosen"])
    assert "batch=7" not in shown


@pytest.mark.usefixtures("net")
def test_fed_values_have_sizes_of_their_own(dpl: Dpl, folder: Path) -> None:
    """Those of a file count."""
    np.savez(folder / "in.npz", x=np.ones((9, 3), np.float32), v=np.ones((4, 3), np.float32))
    found = coverage_of(dpl, "--inputs", "in.npz")
    assert found["sizes"]["chosen"] == {"batch": 9, "rows": 4}
    assert found["flops"]["of"] == work(9, 4)


@pytest.mark.usefixtures("net")
def test_without_a_check_nothing_is_chosen(dpl: Dpl) -> None:
    """The text asks; with a whole shape it counts."""
    found = coverage_of(dpl, "--no-verify")
    assert found["symbols"] == ["batch", "rows"]
    assert found["sizes"] == {"given": {}, "chosen": {}}
    found = coverage_of(dpl, "--no-verify", "--shape", "x=7x3", "--shape", "rows=5")
    assert found["flops"]["of"] == work(7, 5)


@pytest.mark.usefixtures("net")
def test_a_check_that_is_not_made_chooses_nothing(dpl: Dpl, folder: Path) -> None:
    """Nothing matched: there is nothing to check."""
    (folder / "c.yaml").write_text(RULE.replace("Relu", "Sigmoid"), encoding="utf-8")
    assert coverage_of(dpl)["symbols"] == ["batch", "rows"]


def test_work_is_that_of_the_model_before_it_is_replaced(dpl: Dpl, net: Path) -> None:
    """In place, merged, with a model that had to be sorted."""
    proto = onnx.load(net)
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    onnx.save(proto, net)
    expected = coverage_of(dpl)
    assert (expected["nodes"], expected["of"]) == (2, 3)
    merged = coverage_of(dpl, "--merge")
    assert merged == expected
    answer = dpl("partition", "m.onnx", "-p", "c.yaml", "--in-place", "--json", "-", "--quiet")
    assert json.loads(answer.out)["coverage"] == expected


def deep(depth: int) -> onnx.ModelProto:
    """Write functions that call each other twice each."""
    functions = "".join(
        f"""<domain: "o", opset_import: ["" : 17, "o" : 1]> f{n} (x) => (z) {{
            t = {f"o.f{n - 1}" if n else "Neg"} (x) z = {f"o.f{n - 1}" if n else "Neg"} (t) }}"""
        for n in range(depth)
    )
    return proto_from_text(f"""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2, 3] x) => (float[2, 3] y) {{ y = o.f{depth - 1} (x) }} {functions}""")


@pytest.mark.long
def test_functions_without_end_are_no_verdict_unless_somebody_waits(dpl: Dpl, folder: Path) -> None:
    """2 to the 40 nodes are not given to onnxruntime; with a time limit it may try."""
    onnx.save(deep(40), folder / "m.onnx")
    other = deep(40)
    other.doc_string = "copies are proved to be the same"
    onnx.save(other, folder / "other.onnx")
    answer = dpl("verify", "m.onnx", "other.onnx")
    assert (answer.code, "2,199,023,255,551 nodes" in answer.message) == (2, True)
    assert "--timeout" in answer.err
    answer = dpl("verify", "m.onnx", "other.onnx", "--timeout", "1")
    assert (answer.code, "did not finish within 1 s" in answer.message) == (2, True)


def test_functions_in_functions_are_verified(dpl: Dpl, folder: Path) -> None:
    """The near miss: 30 nodes."""
    onnx.save(deep(4), folder / "m.onnx")
    assert dpl("verify", "m.onnx", "m.onnx").code == 0


# -- sizes that are sums of others ----------------------------------------------------------------


ADDED = """g (float[past, 3] p, float[now, 3] x, float[%s, 3] m) => (float[n, 3] y)
{ a = Concat <axis = 0> (p, x) y = %s }"""


@pytest.mark.parametrize(("name", "options"), [("whole", ("whole=past+now",)), ("past + now", ())])
def test_sum_holds_wherever_inputs_are_made(
    dpl: Dpl, folder: Path, name: str, options: tuple[str, ...]
) -> None:
    """What a dimension is the sum of is said with --shape, or by its own name."""
    plain, turned = (
        proto_from_text(ADDED % ("whole", made)) for made in ("Add (a, m)", "Add (m, a)")
    )
    for proto, path in ((plain, "m.onnx"), (turned, "other.onnx")):
        proto.graph.input[2].type.tensor_type.shape.dim[0].dim_param = name
        onnx.save(proto, folder / path)
    flags = [word for text in options for word in ("--shape", text)]

    answer = dpl("verify", "m.onnx", "other.onnx", "--json", "-", "--quiet", *flags)

    assert answer.code == 0, answer.err
    fed = {each["name"]: each["shape"][0] for each in json.loads(answer.out)["inputs"]}
    assert fed["m"] == fed["p"] + fed["x"]
    assert fed["p"] > 1


def test_rules_rely_on_sums(dpl: Dpl, folder: Path) -> None:
    """A cache and what is new have the length of a mask, if that is said; without it, nobody knows.

    What the model returns says it, too: a Concat of both. A sum of dimensions that no input has,
    and what is no sum, are refused.
    """
    shape = replace(SIZES["tiny"], layers=1)
    write(folder / "said.onnx", shape, "dynamo", "fp32")
    model = onnx.load(folder / "said.onnx", load_external_data=False)
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_param = {"total": "longer"}.get(dim.dim_param, dim.dim_param)
    onnx.save(model, folder / "m.onnx")
    made = "rewrite m.onnx --opset 24 -p prepare -p fuse --no-verify --json - --quiet -o o.onnx"

    def applied(*options: str) -> int:
        answer = dpl(*made.split(), *options)
        assert answer.code == 0, answer.err
        counts: dict[str, int] = json.loads(answer.out)["counts"]
        return counts.get("attention_with_cache", 0)

    assert (applied(), applied("--shape", "total=past+sequence")) == (0, 1)
    assert applied("--shape", "total=past+batch") == 0
    assert applied("--shape", "total=past+2*sequence") == 0
    hints = dpl(*made.replace("--json - --quiet", "").split()).out
    assert "if total is always" in hints
    assert "--shape total=" in hints
    found = dpl("match", "o.onnx", "-p", "fuse", "--shape", "total=past+sequence", "--json", "-")
    assert found.code == 0, found.err
    made = made.replace("m.onnx", "said.onnx")
    assert applied() == 1

    for text, said in (
        ("total=past+seq", "no input has a dimension 'seq'"),
        ("total=past+", "not a size, nor a sum"),
        ("total=past*sequence", "not a size"),
        ("total=17*past", "not a size"),
        ("total=total", "'total' is a part of itself"),
    ):
        for command in (made, "match m.onnx -p fuse", "explain m.onnx -p fuse"):
            answer = dpl(*command.split(), "--shape", text)
            assert (answer.code, said in answer.err) == (2, True), answer.err
        answer = dpl(*made.split(), "--shape", text)
        assert (answer.code, said in answer.err) == (2, True), answer.err


def test_a_dimension_may_always_be_another_one(dpl: Dpl, folder: Path) -> None:
    """A multiple, too; without it nothing proves that the sizes are equal."""
    text = """g (float[n] x, float[m] y) => (float[k] o, float[l] q) {
        a = Relu (x) b = Neg (y) c = Concat <axis = 0> (x, x) d = Neg (y)
        o = Concat <axis = 0> (a, b) q = Concat <axis = 0> (c, d) }"""
    onnx.save(proto_from_text(text), folder / "m.onnx")
    rules = """dpl: 1
target: t
patterns:
- {name: same, pattern: "Concat(Relu(x), Neg(y), axis=0)", where: ["dims(x) == dims(y)"]}
- {name: twice, pattern: "Concat(c & Concat(_, _), Neg(y), axis=0)", where: [dims(c) == dims(y)]}
"""
    (folder / "r.yaml").write_text(rules, encoding="utf-8")

    def matched(*options: str) -> dict[str, int]:
        answer = dpl("match", "m.onnx", "-p", "r.yaml", "--json", "-", "--quiet", *options)
        assert answer.code == 0, answer.err
        counts: dict[str, int] = json.loads(answer.out)["counts"]
        return {rule: count for rule, count in counts.items() if count}

    assert matched() == {}
    assert matched("--shape", "m=n") == {"t.same": 1}
    assert matched("--shape", "m=2*n") == {"t.twice": 1}
    answer = dpl("explain", "m.onnx", "-p", "r.yaml", "--shape", "m=n", "--json", "-", "--quiet")
    assert [rule["matched"] for rule in json.loads(answer.out)["rules"]] == [1, 0]
    answer = dpl("match", "m.onnx", "-p", "r.yaml", "--shape", "m=4")
    assert (answer.code, answer.message) == (
        2,
        "--shape m: nothing is run here, so no size is chosen",
    )
    answer = dpl("match", "m.onnx", "-p", "r.yaml", "--shape", "m=n+1", "--shape", "n=m")
    assert (answer.code, "is a part of itself" in answer.message) == (2, True)
