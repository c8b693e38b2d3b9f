"""What fails the check is taken back and named; the rest is written."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_

from dplcli.outcomes.written import Delivery
from dplcli.pipeline.writing import WriteJob
from tests.cli.support import Dpl, Save, contents

NET = """g (float[N, 2] x) => (float[N, 2] y) {
    [a] s = Add (x, x) [n] m = Neg (s) [b] t = Add (m, m) [r] y = Relu (t)
}"""
TO_MUL = "{name: to_mul, pattern: 'Add(x, x)', replacement: 'Mul(x, 2.0)'}"
WRONG = "{name: wrong, pattern: 'Neg(x)', replacement: 'Abs(x)'}"
UNKNOWN = "{name: unknown, pattern: 'Relu(x)', replacement: 'nobody.Relu(x)'}"
OUT = ("-o", "out.onnx")

Refuse = Callable[[Callable[[onnx.ModelProto], bool]], None]


def rules(folder: Path, *texts: str, kind: str = "rewrites") -> tuple[str, ...]:
    """Write a catalogue; return the options that name it."""
    items = "".join(f"  - {text}\n" for text in texts)
    target = "target: t\n" if kind == "patterns" else ""
    text = f"dpl: 1\n{target}{kind}:\n{items}"
    (folder / "rules.yaml").write_text(text, encoding="utf-8")
    return ("-p", "rules.yaml")


def ops(path: Path) -> list[str]:
    """Return the operators of the main graph, in order."""
    return [node.op_type for node in onnx.load(path).graph.node]


def taken(folder: Path) -> list[tuple[str, str]]:
    """Return what a report says was taken back, and where."""
    told = json.loads((folder / "r.json").read_text())
    return [(item["rule"], item["node"]) for item in told.get("taken_back", [])]


def test_one_wrong_place_spoils_nothing(dpl: Dpl, folder: Path, save: Save) -> None:
    """It is left as it was, named with the reason; all else is what --skip would have given."""
    save(NET)
    named = rules(folder, TO_MUL, WRONG)
    answer = dpl("rewrite", "m.onnx", *named, *OUT, "--json", "r.json")

    assert answer.code == 0, answer.err
    assert ops(folder / "out.onnx") == ["Mul", "Neg", "Mul", "Relu"]
    assert taken(folder) == [("wrong", "n")]
    lines = answer.out.splitlines()
    (at,) = (at for at, line in enumerate(lines) if line.startswith("taken back"))
    assert lines[at].split() == ["taken", "back", "where", "reason"]
    assert lines[at + 1].startswith("wrong       n      Neg 'm'")
    assert lines[-1] == "Wrote out.onnx."

    assert dpl("rewrite", "m.onnx", *named, "--skip", "wrong", "-o", "skipped.onnx").code == 0
    assert (folder / "skipped.onnx").read_bytes() == (folder / "out.onnx").read_bytes()


def test_what_is_kept_has_all_that_failed(dpl: Dpl, folder: Path, save: Save) -> None:
    """The result as it was first, beside the one that holds."""
    save(NET)
    options = (*OUT, "--keep-failed", "--json", "r.json")
    answer = dpl("rewrite", "m.onnx", *rules(folder, TO_MUL, WRONG, UNKNOWN), *options)

    assert answer.code == 0
    assert sorted(taken(folder)) == [("unknown", "r"), ("wrong", "n")]
    assert [*ops(folder / "out.failed.onnx")] == ["Mul", "Abs", "Mul", "Relu"]
    assert answer.out.splitlines()[-1] == "Kept what failed as out.failed.onnx."


def test_the_finding_is_a_warning(dpl: Dpl, folder: Path, save: Save) -> None:
    """Of the rule, at its place in the catalogue."""
    save(NET)
    answer = dpl("rewrite", "m.onnx", *rules(folder, WRONG), *OUT, "--sarif", "r.sarif")

    assert answer.code == 0
    (run,) = json.loads((folder / "r.sarif").read_text())["runs"]
    (found,) = run["results"]
    assert found["level"] == "warning"
    assert found["message"]["text"].startswith("wrong: taken back: wrong at 'n'")
    (where,) = found["locations"]
    assert where["physicalLocation"]["artifactLocation"]["uri"] == "rules.yaml"


@pytest.mark.parametrize(
    "options", [["--all-or-nothing"], ["--strict"], ["--expect", "wrong>=1"]], ids=" ".join
)
def test_all_or_nothing(dpl: Dpl, folder: Path, save: Save, options: list[str]) -> None:
    """Who wants all, or what was taken back, gets the answer no, and no file."""
    save(NET)
    named = rules(folder, TO_MUL, WRONG)
    before = contents(folder)
    answer = dpl("rewrite", "m.onnx", *named, *OUT, *options)

    assert answer.code == 1
    assert contents(folder) == before


def test_a_rule_that_fails_three_times_goes_as_a_whole(dpl: Dpl, folder: Path, save: Save) -> None:
    """Also where nobody looked: five places are one line."""
    lines = "  ".join(f"m{at} = Neg (x)  [c{at}] y{at} = Cos (m{at})" for at in range(5))
    outputs = ", ".join(f"float[N, 2] y{at}" for at in range(5))
    save(f"g (float[N, 2] x) => ({outputs}) {{ {lines} }}")
    wrong = "{name: wrong, pattern: 'Cos(x)', replacement: 'Sin(x)'}"
    answer = dpl("rewrite", "m.onnx", *rules(folder, wrong, TO_MUL), *OUT, "--json", "r.json")

    assert answer.code == 0
    assert taken(folder) == [("wrong", "")]
    assert "wrong       everywhere" in answer.out
    assert set(ops(folder / "out.onnx")) == {"Neg", "Cos"}


def test_what_onnxruntime_does_not_load_is_found_by_halving(
    dpl: Dpl, folder: Path, save: Save
) -> None:
    """No place names it: the candidate does not run at all."""
    save(NET)
    answer = dpl("rewrite", "m.onnx", *rules(folder, TO_MUL, UNKNOWN), *OUT, "--json", "r.json")

    assert answer.code == 0, answer.err
    assert taken(folder) == [("unknown", "r")]
    assert ops(folder / "out.onnx") == ["Mul", "Neg", "Mul", "Relu"]


def test_a_plan(dpl: Dpl, folder: Path, save: Save) -> None:
    """Its entries are taken back, too."""
    save(NET)
    named = rules(folder, TO_MUL, WRONG)
    plan = ("rewrite", "m.onnx", *named, "--plan", "p.yaml", "--dry-run")
    assert dpl(*plan).code == 0
    answer = dpl("apply", "p.yaml", "m.onnx", *OUT, "--json", "r.json")

    assert answer.code == 0
    assert taken(folder) == [("wrong", "m")]
    assert ops(folder / "out.onnx") == ["Mul", "Neg", "Mul", "Relu"]


SEQUENCE = """g (float[B, 4] x) => (float[B, 4] y) <int64 one = {1}> {
    q = SplitToSequence <axis = 1> (x, one)
    r = SequenceMap <body = b (float[B, 1] e) => (float[B, 1] f) {
        d = Relu (e)  f = Tanh (d)
    }> (q)
    y = ConcatFromSequence <axis = 1> (r)
}"""


def test_a_call_that_onnxruntime_does_not_load(dpl: Dpl, folder: Path, save: Save) -> None:
    """Two chained calls in the body of a SequenceMap: one of them is left out, and refused."""
    save(SEQUENCE)
    named = rules(
        folder, "{name: relu, pattern: Relu(x)}", "{name: tanh, pattern: Tanh(x)}", kind="patterns"
    )
    answer = dpl("partition", "m.onnx", *named, *OUT, "--json", "r.json")

    assert answer.code == 0, answer.err
    told = json.loads((folder / "r.json").read_text())
    assert len(told["partitions"]) == len(told["taken_back"]) == 1
    (refused,) = (item for item in told["refused"] if item["stage"] == "check")
    assert refused["reason"] == "with it, the result failed its check"
    onnx.checker.check_model(folder / "out.onnx", full_check=True)


def test_what_prepare_did(
    dpl: Dpl, folder: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is prepared again without it; partitions stay."""
    save(NET)
    rules(folder, TO_MUL, WRONG)
    prepare = folder / "prepare.yaml"
    (folder / "rules.yaml").rename(prepare)
    monkeypatch.setattr("dplcli.pipeline.partitioning.shipped_catalog", lambda _name: prepare)
    named = rules(folder, "{name: relu, pattern: Relu(x)}", kind="patterns")
    answer = dpl("partition", "m.onnx", *named, *OUT, "--prepare", "--json", "r.json")

    assert answer.code == 0, answer.err
    assert taken(folder) == [("wrong", "n")]
    assert ops(folder / "out.onnx") == ["Mul", "Neg", "Mul", "relu"]


def test_a_blind_check_takes_nothing_back(dpl: Dpl, folder: Path, save: Save) -> None:
    """It is blind with and without what was done."""
    save("g (float[2] x) => (float[2] y) { s = Add (x, x)  z = Sub (s, s)  y = Exp (z) }")
    answer = dpl("rewrite", "m.onnx", *rules(folder, TO_MUL), *OUT)
    assert "taken back" not in answer.out


SWISH = """<ir_version: 11, opset_import: ["" : 25]>
g (float[2] x) => (float[2] y) { s = Sigmoid (x)  y = Mul (s, x) }"""


def test_an_operator_without_a_kernel_is_not_made(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The installed onnxruntime is asked once; for a result that is not checked, it is not."""
    made = onnx.parser.parse_model(
        SWISH.replace("s = Sigmoid (x)  y = Mul (s, x)", "y = Swish (x)")
    )
    try:
        ort.InferenceSession(made.SerializeToString())
    except NotImplemented_:
        pass
    else:
        pytest.skip("this onnxruntime has a kernel for Swish")
    monkeypatch.setenv("DPL_CACHE", str(folder / "cache"))
    onnx.save(onnx.parser.parse_model(SWISH), folder / "m.onnx")
    named = rules(folder, "{name: swish, pattern: 'Mul(Sigmoid(x), x)', replacement: 'Swish(x)'}")

    for _ in range(2):
        answer = dpl("rewrite", "m.onnx", *named, *OUT, "--json", "r.json")
        assert answer.code == 0, answer.err
        (refused,) = json.loads((folder / "r.json").read_text())["refused"]
        assert refused["reason"] == "the installed onnxruntime has no kernel for Swish at opset 25"
        assert taken(folder) == []
        (kept,) = (folder / "cache").glob("kernels-*.json")
        assert json.loads(kept.read_text()) == {" Swish 25 float32": True}

    answer = dpl("rewrite", "m.onnx", *named, "-o", "unchecked.onnx", "--no-verify")
    assert answer.code == 0
    assert ops(folder / "unchecked.onnx") == ["Swish"]


# Where the check itself would say yes: a check that refuses what it is told to.


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Return a function that makes the check refuse some results."""

    def set_up(is_wrong: Callable[[onnx.ModelProto], bool]) -> None:
        def check(_job: WriteJob, written: Path) -> Delivery:
            return Delivery(objection="no" if is_wrong(onnx.load(written)) else "")

        monkeypatch.setattr(WriteJob, "check", check)

    return set_up


CALLS = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
g (float[2] x) => (float[2] y) { a = own.f (x)  b = own.g (a)  c = own.f (b)  y = Abs (c) }
<domain: "own", opset_import: ["" : 17]> f (x) => (y) { y = Neg (x) }
<domain: "own", opset_import: ["" : 17]> g (x) => (y) { y = Tanh (x) }"""


def test_an_inlined_call(dpl: Dpl, folder: Path, refuse: Refuse) -> None:
    """It stays a call, and is listed among those."""
    onnx.save(onnx.parser.parse_model(CALLS), folder / "m.onnx")
    refuse(lambda model: any(node.op_type == "Tanh" for node in model.graph.node))
    answer = dpl("inline", "m.onnx", "--all-functions", *OUT, "--json", "r.json")

    assert answer.code == 0, answer.err
    assert taken(folder) == [("own::g", "b")]
    assert ops(folder / "out.onnx") == ["Neg", "g", "Neg", "Abs"]
    (refused,) = json.loads((folder / "r.json").read_text())["refused"]
    assert refused["reason"] == "with it, the result failed its check"


def test_a_region_falls_back_to_its_calls(
    dpl: Dpl, folder: Path, save: Save, refuse: Refuse
) -> None:
    """The partitions stay as they are without --merge."""
    save("g (float[2] x) => (float[2] y) { a = Relu (x)  b = Tanh (a)  y = Abs (b) }")
    named = rules(
        folder, "{name: relu, pattern: Relu(x)}", "{name: tanh, pattern: Tanh(x)}", kind="patterns"
    )
    refuse(lambda model: any(function.name == "region" for function in model.functions))
    answer = dpl("partition", "m.onnx", *named, "--merge", *OUT, "--json", "r.json")

    assert answer.code == 0, answer.err
    assert taken(folder) == [("t.region", "b")]
    assert ops(folder / "out.onnx") == ["relu", "tanh", "Abs"]


def test_a_kind_of_block(dpl: Dpl, folder: Path, save: Save, refuse: Refuse) -> None:
    """All blocks of it stay; other kinds are outlined."""
    one = "{i}a = Neg ({i})  {i}b = Exp ({i}a)  {i}c = Cos ({i}b)  {o} = Abs ({i}c)"
    two = "{i}a = Relu ({i})  {i}b = Tanh ({i}a)  {i}c = Erf ({i}b)  {o} = Sin ({i}c)"
    names = pairwise("xpqrsty")
    body = "  ".join(
        text.format(i=i, o=o) for text, (i, o) in zip([one] * 3 + [two] * 3, names, strict=True)
    )
    save(f"g (float[2] x) => (float[2] y) {{ {body} }}")
    refuse(lambda model: any(node.op_type == "Tanh" for f in model.functions for node in f.node))
    answer = dpl("repeat", "m.onnx", *OUT, "--json", "r.json")

    assert answer.code == 0, answer.err
    assert [rule for rule, _ in taken(folder)] == ["block"]
    assert ops(folder / "out.onnx").count("Tanh") == 3
    assert "Neg" not in ops(folder / "out.onnx")
