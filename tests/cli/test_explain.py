"""``dpl explain``: figures that add up, and a nearest miss that points at the culprit."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import onnx
import onnx.parser
import pytest

from tests.cli.support import SAMPLES, Answer, Dpl, Save
from tests.support.helpers import one_in

Json: TypeAlias = dict[str, Any]
Explain = Callable[..., Json]

NODE = ["op_type", "domain", "name", "output"]
REFUSAL = ["rule", "root", "stage", "reason", "at"]
RULE = [
    *("rule", "origin", "candidates", "matched", "taken", "refused", "examples"),
    *("missing_operators", "opset_holds", "nearest", "part"),
]
TRACE = ["root", "fits", "given_up", "matched", "of", "failed", "tree"]
FAILED = ["pattern", "place", "at", "expected", "found"]
LINE = ["depth", "pattern", "place", "status", "found"]
VERDICT = ["rule", "node", "scope", "verdict", "match", "refusal", "trace"]
HEAD = "dpl: 1\ntarget: t\n"
CHAIN = "g (float[2] x) => (float[2] y) { a = Neg (x) b = Relu (a) y = Sigmoid (b) }"
SHIPPED = [
    *("residual_block", "light_squeezenet", "light_resnet50"),
    *("resnet18_bn", "super_resolution", "deit"),
]


def rules(*entries: tuple[str, ...]) -> str:
    """Write a catalogue of rules: name, pattern and perhaps further keys in flow style."""
    lines = [
        f"  - {{name: {name}, pattern: {json.dumps(pattern)}{', ' if more else ''}{''.join(more)}}}"
        for name, pattern, *more in entries
    ]
    return "\n".join([f"{HEAD}patterns:", *lines, ""])


@pytest.fixture(autouse=True)
def unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables be as wide as they are; parallel tests run with COLUMNS set."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def explain(dpl: Dpl, folder: Path, save: Save) -> Explain:
    """Return a function that explains a model, given as ONNX text, and returns the record."""

    def call(model: str | onnx.ModelProto, catalogue: str, *options: object) -> Json:
        save(model)
        (folder / "rules.yaml").write_text(catalogue, encoding="utf-8")
        answer = dpl("explain", "m.onnx", "-p", "rules.yaml", *options, "--json", "-")
        assert (answer.code, answer.err) == (0, "")
        record: Json = json.loads(answer.out)
        return record

    return call


@pytest.fixture
def nearest(explain: Explain) -> Explain:
    """Return a function that returns where one pattern's nearest miss failed."""

    def call(model: str, pattern: str) -> Json:
        (rule,) = explain(model, rules(("r", pattern)))["rules"]
        assert rule["matched"] == 0
        assert rule["nearest"] is not None, rule
        failed: Json = rule["nearest"]["failed"]
        return failed

    return call


# -- the record --------------------------------------------------------------------------------


def test_the_record_has_the_keys_of_the_contract(explain: Explain) -> None:
    """dpl.explain/1: one item per rule; the nearest miss as a tree."""
    found = explain(CHAIN, rules(("r", "Sigmoid(Relu(Abs(x)))"), ("n", "Gelu(Neg(x))")))

    assert list(found) == ["schema", "dpl_version", "model", "rules", "verdicts"]
    assert (found["schema"], found["model"], found["verdicts"]) == ("dpl.explain/1", "m.onnx", [])
    assert [list(rule) for rule in found["rules"]] == [RULE, RULE]
    trace = found["rules"][0]["nearest"]
    assert list(trace) == TRACE
    assert list(trace["root"]) == NODE
    assert list(trace["failed"]) == FAILED
    assert [list(line) for line in trace["tree"]] == [LINE] * 4
    assert list(found["rules"][1]["part"]) == ["pattern", "place", "nodes", "example", "read_by"]


def test_the_record_of_a_node_has_the_keys_of_the_contract(explain: Explain) -> None:
    """With --node there are verdicts and no rules."""
    found = explain(CHAIN, rules(("r", "Relu(Neg(x))")), "--node", "b")

    assert found["rules"] == []
    (verdict,) = found["verdicts"]
    assert list(verdict) == VERDICT
    assert verdict["match"] == {"rule": "t.r", "root": verdict["node"]}
    assert verdict["trace"]["fits"]


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="rules", marks=pytest.mark.long),
        pytest.param(("--node", "Relu_0"), id="node"),
    ],
)
def test_the_same_bytes_in_every_run(
    dpl_process: Dpl, folder: Path, options: tuple[str, ...]
) -> None:
    """Nothing depends on hashing."""
    shutil.copy(SAMPLES / "residual_block.onnx", folder / "m.onnx")
    seen = set()
    for seed in ("0", "4711"):
        command = ("explain", "m.onnx", "--target", "dnnl", *options, "--json", "-")
        answer = dpl_process(*command, PYTHONHASHSEED=seed)
        assert (answer.code, answer.err) == (0, "")
        seen.add(answer.out)
    assert len(seen) == 1


def test_no_path_of_this_machine_is_in_a_report(dpl: Dpl, folder: Path, model: Path) -> None:
    """Absolute paths as arguments give the same record as relative ones."""
    (folder / "rules.yaml").write_text(rules(("r", "Relu(Neg(x))")))
    relative = dpl("explain", "m.onnx", "-p", "rules.yaml", "--json", "-")

    absolute = dpl("explain", model, "-p", folder / "rules.yaml", "--json", "-")

    assert relative.code == absolute.code == 0
    assert absolute.out == relative.out
    assert str(folder) not in absolute.out


def test_a_report_in_a_file_is_the_one_on_stdout(dpl: Dpl, folder: Path, model: Path) -> None:
    """FILE gets the bytes that ``-`` prints, and the table is printed then."""
    printed = dpl("explain", model, "--target", "dnnl", "--json", "-")
    filed = dpl("explain", model, "--target", "dnnl", "--json", "report.json")

    assert (folder / "report.json").read_text(encoding="utf-8") == printed.out
    assert filed.out == dpl("explain", model, "--target", "dnnl").out
    assert "dnnl.conv2d_bias_relu" in filed.out


def test_the_model_is_left_alone(dpl: Dpl, model: Path) -> None:
    """A report over the model is refused, and explaining writes nothing."""
    before = model.read_bytes()

    assert dpl("explain", model, "--target", "dnnl").code == 0
    assert dpl("explain", model, "--target", "dnnl", "--json", "m.onnx").code == 2
    assert model.read_bytes() == before


# -- figures -----------------------------------------------------------------------------------


def test_figures_of_one_rule(explain: Explain) -> None:
    """Candidates are the nodes of the root's operator, and each is accounted for once."""
    model = """g (float[2] x, float[3] z) => (float[2] y, float[2] c, float[3] w) {
        a = Neg (x) y = Relu (a)
        b = Neg (x) c = Abs (b) d = Relu (b)
        e = Neg (z) w = Relu (e)
        f = Relu (x)
    }"""
    catalogue = rules(("r", "Relu(Neg(x))", "where: ['x.shape[0] == 2']"))
    (rule,) = explain(model, catalogue)["rules"]

    assert (rule["candidates"], rule["matched"], rule["taken"]) == (4, 1, 0)
    assert rule["refused"] == {"escape": 1, "where": 1}
    assert [item["stage"] for item in rule["examples"]] == ["escape", "where"] or [
        item["stage"] for item in rule["examples"]
    ] == ["where", "escape"]
    assert [list(item) for item in rule["examples"]] == [REFUSAL, REFUSAL]
    assert rule["nearest"]["root"]["output"] == "f"
    assert rule["nearest"]["matched"] == 1


def test_candidates_that_others_have_are_counted_apart(explain: Explain) -> None:
    """A node in a match of another rule, or inside one of this rule, is taken."""
    model = "g (float[2] x) => (float[2] y) { a = Relu (x) b = Neg (a) c = Relu (b) y = Relu (c) }"
    first, second = explain(model, rules(("f", "Neg(Relu(x))"), ("s", "Relu(Relu(x))")))["rules"]

    assert (first["candidates"], first["matched"], first["taken"]) == (1, 1, 0)
    assert (second["candidates"], second["matched"], second["taken"]) == (3, 1, 2)
    assert (second["refused"], second["nearest"]) == ({}, None)


def test_an_inner_match_that_was_absorbed_is_not_counted(explain: Explain) -> None:
    """In program order a later match takes in an earlier one: one match, its root is taken."""
    model = "g (float[2] x) => (float[2] y) { a = Relu (x) b = Relu (a) y = Neg (b) }"
    pattern = "Relu(x) | Neg(Relu(Relu(x)))"
    (rule,) = explain(model, rules(("r", pattern, "order: program")))["rules"]

    assert rule["matched"] == 1
    assert rule["candidates"] == rule["matched"] + rule["taken"] + sum(rule["refused"].values())


SUMS = "Sub(Sum({}), x0.has_rank(3))".format(", ".join(f"x{i}" for i in range(10)))
SUMMED = "g ({}) => (o) {{ s = Sum ({}) o = Sub (s, a0) }}".format(
    ", ".join(f"float[1] a{i}" for i in range(10)), ", ".join(f"a{i}" for i in range(10))
)
FORK = "g (float[2] x) => (float[2] y) { a = Relu (x) b = Neg (a) y = Add (a, b) }"
STAGES = {
    "where": (CHAIN, (("r", "Relu(Neg(x))", "where: ['x.rank == 3']"),), "r", "x.rank == 3", "b"),
    "escape": (
        "g (float[2] x) => (float[2] y, a) { a = Neg (x) y = Relu (a) }",
        (("r", "Relu(Neg(x))"),),
        "r",
        "output",
        "y",
    ),
    "convexity": (FORK, (("r", "Add(Relu(x), y)", "escape: outputs"),), "r", "b", "y"),
    "overlap": (
        FORK.replace("Add (a, b)", "Add (b, x)"),
        (("f", "Neg(Relu(x))"), ("r", "Add(Neg(x), y)")),
        "r",
        "t.f",
        "y",
    ),
    "budget": (SUMMED, (("r", SUMS),), "r", "100,000", "o"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_refusal_names_its_stage(explain: Explain, dpl: Dpl, stage: str) -> None:
    """A fit that was refused: how many by which test, with one example, in table and record."""
    model, entries, name, reason, root = STAGES[stage]
    found = explain(model, rules(*entries))["rules"]

    rule = next(item for item in found if item["rule"] == f"t.{name}")
    assert (rule["matched"], rule["refused"]) == (0, {stage: 1})
    (example,) = rule["examples"]
    assert (example["stage"], example["root"]["output"]) == (stage, root)
    assert reason in example["reason"]
    table = dpl("explain", "m.onnx", "-p", "rules.yaml").out
    assert f"1 by {stage}" in table
    assert f"refused by {stage} at " in table
    if stage != "budget":
        (verdict,) = explain(model, rules(*entries), "--node", root, "--rule", name)["verdicts"]
        assert verdict["verdict"] == "refused"
        assert verdict["refusal"] == example
        assert verdict["trace"]["fits"]


def test_a_condition_that_fails_shows_what_it_asks_about(explain: Explain, dpl: Dpl) -> None:
    """Names, types and small constants, for a node and in the table of rules; nothing else."""
    model = """g (float[2] x, float[3,2] y) => (float[3,2] z) <float c = {2.0}> {
        t = Mul (x, c) z = Add (t, y) }"""
    where = "where: ['a.rank == y.rank and c.value == 1']"
    explain(model, rules(("f", "Add(Mul(a, const(c)), y)", where)))

    for more in ((), ("--node", "z")):
        said = " ".join(dpl("explain", "m.onnx", "-p", "rules.yaml", *more).out.split())
        assert "(a float32[2], c float32[] = 2.0, y float32[3,2])" in said


def test_what_was_not_reached_is_folded(explain: Explain, dpl: Dpl) -> None:
    """One line counts it; --verbose lists it."""
    model = "g (float[2] x) => (float[2] z) { t = Relu (x) z = Add (t, x) }"
    explain(model, rules(("f", "Add(Sub(Neg(Abs(Exp(Log(a)))), a), b)")))
    brief, full = (
        dpl("explain", "m.onnx", "-p", "rules.yaml", "--node", "z", *more).out
        for more in ((), ("--verbose",))
    )

    assert "further parts" in brief
    assert "further parts" not in full
    assert full.count("rules.yaml:") > brief.count("rules.yaml:") + 3


def test_a_refusal_by_a_check_names_its_stage(explain: Explain, folder: Path) -> None:
    """What a Python function says, and the value it says it of."""
    (folder / "odd_checks.py").write_text(
        "def judge(match):\n    return match.reject('no taste', at=match.bindings['x'])\n"
    )
    catalogue = rules(("r", "Relu(Neg(x))", "check: 'odd_checks:judge'"))
    (rule,) = explain(CHAIN, catalogue, "--allow-code")["rules"]

    assert rule["refused"] == {"check": 1}
    (example,) = rule["examples"]
    assert (example["stage"], example["reason"], example["at"]) == ("check", "no taste", "x")


def test_each_stage_has_its_first_refusal_as_the_example(explain: Explain) -> None:
    """Two refusals by one stage are counted as two and one is shown."""
    model = """g (float[2] x) => (float[2] y, z) {
        a = Neg (x) y = Relu (a) b = Neg (x) z = Relu (b) }"""
    (rule,) = explain(model, rules(("r", "Relu(Neg(x))", "where: ['x.rank == 3']")))["rules"]

    assert rule["refused"] == {"where": 2}
    assert len(rule["examples"]) == 1


def test_operators_that_the_model_does_not_have(explain: Explain, dpl: Dpl) -> None:
    """What every match needs and nothing offers is named; a choice is named as one."""
    catalogue = rules(
        ("one", "Sigmoid(Conv(x, w))"),
        ("choice", "Sigmoid((Sum | Add)(x, y))"),
        ("optional", "Sigmoid(optional(Abs)(x))"),
        ("both", "Abs(Tan(x))"),
        ("edge", "Sigmoid(Neg(x))"),
        ("foreign", "com.microsoft.Gelu(Neg(x))"),
    )
    found = {item["rule"]: item["missing_operators"] for item in explain(CHAIN, catalogue)["rules"]}

    assert found == {
        "t.one": ["Conv"],
        "t.choice": ["Add or Sum"],
        "t.optional": [],
        "t.both": ["Abs", "Tan"],
        "t.edge": ["Sigmoid that reads a Neg"],
        "t.foreign": ["com.microsoft.Gelu"],
    }
    assert (
        "the model has no Conv, which every match needs"
        in dpl("explain", "m.onnx", "-p", "rules.yaml").out
    )


@pytest.mark.parametrize(("count", "is_short"), [(20, False), (21, True)])
def test_many_rules_that_lack_an_operator_are_summed_up(
    dpl: Dpl, folder: Path, save: Save, *, count: int, is_short: bool
) -> None:
    """Those that came nearer are listed; --verbose lists all."""
    save(CHAIN)
    lacking = [(f"r{number}", "Exp(Tanh(x))") for number in range(count - 1)]
    (folder / "rules.yaml").write_text(
        rules(("near", "Relu(Neg(x.has_rank(4)))"), *lacking), encoding="utf-8"
    )
    short, whole = (
        dpl("explain", "m.onnx", "-p", "rules.yaml", *more).out for more in ((), ("-v",))
    )

    assert ("t.r5" in short) != is_short
    assert ("20 other rules cannot match: the model lacks Exp (20), Tanh (20)" in short) == is_short
    assert "t.near" in short
    assert "t.r5" in whole


def test_the_largest_part_that_fits(explain: Explain) -> None:
    """Without a candidate for the root: the biggest inner part that fits, and who reads it."""
    model = """g (float[2] x) => (float[2] y, z) {
        a = Neg (x) b = Relu (a) y = Sigmoid (b) z = Abs (b) c = Neg (x) }"""
    (rule,) = explain(model, rules(("r", "n = Neg(x)\nTan(Relu(n))")))["rules"]

    assert (rule["candidates"], rule["nearest"]) == (0, None)
    part = rule["part"]
    assert (part["pattern"], part["nodes"]) == ("Relu", 1)
    assert part["example"]["output"] == "b"
    assert part["read_by"] == {"Abs": 1, "Sigmoid": 1}


def test_no_part_fits_at_all(explain: Explain) -> None:
    """Then there is none, and that is no error."""
    (rule,) = explain(CHAIN, rules(("r", "Tan(Abs(x))")))["rules"]

    assert (rule["part"], rule["nearest"], rule["candidates"]) == (None, None, 0)


# -- the nearest miss --------------------------------------------------------------------------


def text_at(folder: Path, place: str) -> str:
    """Return what stands at ``rules.yaml:line:column``."""
    label, line, column = place.rsplit(":", 2)
    assert label == "rules.yaml"
    shown = (folder / "rules.yaml").read_bytes().decode().splitlines()[int(line) - 1]
    assert int(column) <= len(shown), (place, shown)
    return shown[int(column) - 1 :]


MODEL = "g (float[2] x) => (float[2] y) { a = Neg (x) b = Relu (a) c = Abs (x) y = Add (b, c) }"
SCALARS = {
    "plain": "    pattern: Add(Relu(Tanh(x)), Abs(z))\n",
    "single-quoted": "    pattern: 'Add(Relu(Tanh(x)), Abs(z))'\n",
    "double-quoted": '    pattern: "Add(Relu(Tanh(x)), Abs(z))"\n',
    "block": "    pattern: |\n      r = Relu(Tanh(x))\n      Add(r, Abs(z))\n",
    "block-with-a-blank-line": (
        "    pattern: |\n\n      r = Relu(Tanh(x))\n\n      Add(r, Abs(z))\n"
    ),
    "block-with-a-comment": (
        "    pattern: | # here\n      # first\n      Add(Relu(Tanh(x)), Abs(z))\n"
    ),
    "block-stripped": "    pattern: |-\n      Add(Relu(Tanh(x)), Abs(z))\n",
    "block-kept": "    pattern: |+\n      Add(Relu(Tanh(x)), Abs(z))\n\n\n",
    "block-with-continued-line": "    pattern: |\n      Add(Relu(\n          Tanh(x)), Abs(z))\n",
    "folded": "    pattern: >\n      Add(Relu(Tanh(x)), Abs(z))\n",
    "folded-over-lines": "    pattern: >\n      Add(Relu(\n      Tanh(x)), Abs(z))\n",
    "plain-over-lines": "    pattern: Add(Relu(\n      Tanh(x)), Abs(z))\n",
    "single-quoted-over-lines": "    pattern: 'Add(Relu(\n      Tanh(x)), Abs(z))'\n",
    "double-quoted-newline": '    pattern: "r = Relu(Tanh(x))\\nAdd(r, Abs(z))"\n',
    "double-quoted-second-line": '    pattern: "a = Abs(z)\\nAdd(Relu(Tanh(x)), a)"\n',
    "double-quoted-escape-before": '    pattern: "Add(\\x52elu(Tanh(x)), Abs(z))"\n',
    "single-quotes-doubled": ("    pattern: 'Add(Abs(z.has_dtype(''float32'')), Relu(Tanh(x)))'\n"),
    "double-quotes-escaped": (
        '    pattern: "Add(Abs(z.has_dtype(\\"float32\\")), Relu(Tanh(x)))"\n'
    ),
    "anchor": "    pattern: &p Add(Relu(Tanh(x)), Abs(z))\n",
    "anchored-block": "    pattern: &p |\n      Add(Relu(Tanh(x)), Abs(z))\n",
    "tag": "    pattern: !!str Add(Relu(Tanh(x)), Abs(z))\n",
    "value-on-the-next-line": "    pattern:\n      Add(Relu(Tanh(x)), Abs(z))\n",
    "wide-letters-before": "    pattern: 'Add(Abs(größe), Relu(Tanh(x)))'\n",
    "wide-letters-in-a-block": (
        "    pattern: |\n      größe = Abs(ß)\n      Add(größe, Relu(Tanh(x)))\n"
    ),
    "key-quoted": "    'pattern': Add(Relu(Tanh(x)), Abs(z))\n",
    "windows": "    pattern: |\r\n      r = Relu(Tanh(x))\r\n      Add(r, Abs(z))\r\n",
}


@pytest.mark.parametrize("scalar", SCALARS.values(), ids=SCALARS)
def test_the_place_is_where_the_part_is_written(
    dpl: Dpl, folder: Path, save: Save, scalar: str
) -> None:
    """File, line and column of the part that failed, in every style of YAML."""
    save(MODEL)
    (folder / "rules.yaml").write_bytes(f"{HEAD}patterns:\n  - name: r\n{scalar}".encode())

    answer = dpl("explain", "m.onnx", "-p", "rules.yaml", "--json", "-")

    assert (answer.code, answer.err) == (0, "")
    (rule,) = json.loads(answer.out)["rules"]
    failed = rule["nearest"]["failed"]
    assert failed["pattern"] == "Tanh"
    assert text_at(folder, failed["place"]).startswith("Tanh")
    assert failed["place"] in dpl("explain", "m.onnx", "-p", "rules.yaml").out


def test_every_part_of_the_tree_says_where_it_is_written(explain: Explain, folder: Path) -> None:
    """Each line's place holds the text of that part."""
    lines = ["pattern: |", "  r = Relu(Neg(x), )", "  s = Sigmoid(optional(Abs)(r))", "  s"]
    catalogue = "\n    ".join([f"{HEAD}patterns:\n  - name: r", *lines, ""])
    (rule,) = explain(CHAIN.replace("Relu", "Tanh"), catalogue)["rules"]

    tree = rule["nearest"]["tree"]
    assert [line["status"] for line in tree].count("failed") == 1
    for line in tree:
        if line["pattern"].startswith(("s =", "r =", "Neg", "x")):
            word = line["pattern"].rpartition(" ")[2]
            assert text_at(folder, line["place"]).startswith(word), line


def test_the_place_in_an_included_file(dpl: Dpl, folder: Path, save: Save) -> None:
    """The file that holds the rule is named, not the one on the command line."""
    save(CHAIN)
    (folder / "inner.yaml").write_text(rules(("r", "Sigmoid(Relu(Tanh(x)))")))
    (folder / "rules.yaml").write_text(f"{HEAD}include: [inner.yaml]\npatterns: []\n")
    answer = dpl("explain", "m.onnx", "-p", "rules.yaml", "--json", "-")

    (rule,) = json.loads(answer.out)["rules"]
    assert rule["origin"].startswith("inner.yaml:4")
    assert rule["nearest"]["failed"]["place"].startswith("inner.yaml:4:")


def test_a_part_used_twice_is_blamed_where_it_is_written_first(nearest: Explain) -> None:
    """A name that must be one value and is two: what it stands for, and what else was found."""
    failed = nearest(MODEL, "Add(Relu(Neg(x)), Abs(Abs(x)))")
    assert (failed["pattern"], failed["expected"]) == ("Abs", "Abs")
    assert "'x'" in failed["found"]

    model = "g (float[2] x, float[2] z) => (float[2] y) { a = Neg (x) b = Abs (z) y = Sub (a, b) }"
    failed = nearest(model, "Sub(Neg(x), Abs(x))")
    assert failed["pattern"] == "x"
    assert "'x'" in failed["expected"]
    assert "'z'" in failed["found"]


CONV = """g (float[1,1,4,4] x, float[1] b) => (float[1,1,4,4] y)
    <float[1,1,1,1] w = {2}> { c = Conv <strides = [2, 2]> (x, w, b) y = Relu (c) }"""
MISMATCHES = {
    "attribute": (CONV, "Relu(Conv(x, w, _, strides=[1, 1]))", "Conv", "strides", "2"),
    "default-attribute": (CONV, "Relu(Conv(x, w, _, group=2))", "Conv", "group", "1"),
    "too-many-inputs": (CONV, "Relu(Conv(x, w))", "Conv", "2 inputs", "3"),
    "too-few-inputs": (
        CONV.replace("x, w, b)", "x, w)"),
        "Relu(Conv(x, w, b))",
        "b",
        "any value",
        "omitted",
    ),
    "input-there": (
        "g (float[2] x, float l, float h) => (float[2] y) { c = Clip (x, l, h) y = Relu (c) }",
        "Relu(Clip(x, None, h))",
        "None",
        "no input",
        "'l'",
    ),
    "input-omitted": (
        "g (float[2] x, float h) => (float[2] y) { c = Clip (x, , h) y = Relu (c) }",
        "Relu(Clip(x, lowest, h))",
        "lowest",
        "any value",
        "omitted",
    ),
    "output-index": (
        "g (float[4] x) => (float[2] y) { a, b = Split <num_outputs = 2> (x) y = Relu (a) }",
        "Relu(Split(x, ...)[1])",
        "[1]",
        "output 1",
        "output 0",
    ),
    "constant-wanted": (
        "g (float[2] x, float[2] w) => (float[2] y) { a = Add (x, w) y = Relu (a) }",
        "Relu(Add(x, const(w)))",
        "const(w)",
        "constant",
        "input",
    ),
    "constant-of-another-value": (
        "g (float[2] x) => (float[2] y) <float w = {3}> { a = Sub (x, w) y = Relu (a) }",
        "Relu(Sub(x, 2.0))",
        "2.0",
        "2.0",
        "3",
    ),
    "constant-of-several-numbers": (
        "g (float[2] x) => (float[2] y) <float[2] w = {2, 2}> { a = Sub (x, w) y = Relu (a) }",
        "Relu(Sub(x, 2.0))",
        "2.0",
        "2.0",
        "float32[2]",
    ),
    "input-wanted": (
        "g (float[2] x) => (float[2] y) { a = Neg (x) b = Neg (a) y = Relu (b) }",
        'Relu(Neg(input("i")))',
        "input",
        "input",
        "Neg",
    ),
    "negation": (CHAIN, "Sigmoid(~Relu(x))", "~", "~Relu(x)", "Relu 'b'"),
    "alternatives": (CHAIN, "Sigmoid(Abs(x) | Tan(x))", "Abs", "Abs", "Relu 'b'"),
    "rank": (CHAIN, "Relu(Neg(x.has_rank(3)))", "has_rank(3)", "rank 3", "[2]"),
    "element-type": (CHAIN, 'Relu(Neg(x.has_dtype("float16")))', "float16", "float16", "float32"),
    "shape": (CHAIN, "Relu(Neg(x.has_shape(3)))", "has_shape(3)", "[3]", "[2]"),
    "another-domain": (
        CHAIN,
        "Sigmoid(com.microsoft.Gelu(x))",
        "com.microsoft.Gelu",
        "com.microsoft.Gelu",
        "Relu 'b'",
    ),
}


@pytest.mark.parametrize("row", MISMATCHES.values(), ids=MISMATCHES)
def test_what_was_expected_and_what_was_found(nearest: Explain, row: tuple[str, ...]) -> None:
    """The part to blame, in words that a reader understands."""
    model, pattern, part, expected, found = row
    failed = nearest(model, pattern)

    assert part in failed["pattern"]
    assert expected in failed["expected"]
    assert found in failed["found"]


def test_a_type_that_nobody_knows(explain: Explain) -> None:
    """Inside a function that is called for two ranks: the reason says that it is not known."""
    model = """g (float[2] x, float[2, 2] v) => (float[2] y, float[2, 2] z) {
            y = own.F (x) z = own.F (v) }
        <domain: "own", opset_import: ["" : 17]>
        F (p) => (q) { n = Neg (p) q = Relu (n) }"""
    header = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
    proto = onnx.parser.parse_model(header + model)
    (rule,) = explain(proto, rules(("r", "Relu(Neg(x.has_rank(1)))")))["rules"]
    failed = rule["nearest"]["failed"]
    assert "rank 1" in failed["expected"]
    assert failed["found"] == "the input 'p' of type float32 and unknown rank"

    (rule,) = explain(proto, rules(("r", "Relu(Neg(x))", "where: ['x.rank == 1']")))["rules"]
    assert rule["refused"] == {"where": 1}
    assert "not known" in rule["examples"][0]["reason"]


def test_the_attempt_that_got_furthest_counts(explain: Explain) -> None:
    """Of several roots the one with the most nodes matched, the first of those."""
    model = """g (float[2] x) => (float[2] y, z, w) {
        y = Sigmoid (x)
        a = Relu (x) z = Sigmoid (a)
        b = Abs (x) c = Relu (b) w = Sigmoid (c) }"""
    (rule,) = explain(model, rules(("r", "Sigmoid(Relu(Abs(Tan(x))))")))["rules"]

    trace = rule["nearest"]
    assert trace["root"]["output"] == "w"
    assert (trace["matched"], trace["of"], trace["fits"]) == (3, 4, False)
    assert [line["status"] for line in trace["tree"]] == [
        *("matched", "matched", "matched", "failed", "not reached"),
    ]


def test_nothing_fails_above_what_matched(explain: Explain) -> None:
    """A part of which no alternative matches is not shown as matched."""
    pattern = "t = Abs(x) | Tan(x)\nSub(Relu(t), t)"
    model = "g (float[2] x) => (float[2] y) { a = Neg (x) b = Relu (a) y = Sub (b, a) }"
    (rule,) = explain(model, rules(("r", pattern)))["rules"]

    shared = next(line for line in rule["nearest"]["tree"] if line["pattern"].startswith("t = "))
    assert shared["status"] != "matched"


def test_verbose_shows_the_tree(explain: Explain, dpl: Dpl) -> None:
    """With --verbose every part of the nearest miss is printed with its place."""
    explain(CHAIN, rules(("r", "Sigmoid(Relu(Tanh(x)))")))
    brief = dpl("explain", "m.onnx", "-p", "rules.yaml").out
    full = dpl("explain", "m.onnx", "-p", "rules.yaml", "--verbose").out

    assert "nearest miss at Sigmoid 'y': 2 of 3 nodes of the pattern match" in brief
    assert "not reached" not in brief
    assert "not reached" in full
    for line in brief.splitlines():
        assert line in full


# -- one node ----------------------------------------------------------------------------------

NAMED = """g (float[2] x) => (float[2] y, v) {
    [first] a = Neg (x) [second] b = Relu (a) y = Sigmoid (b) [third] c = Neg (x) v = Relu (c) }"""


@pytest.mark.parametrize("name", ["second", "b"])
def test_a_node_is_found_by_its_name_or_by_an_outputs(explain: Explain, name: str) -> None:
    """Both lead to the same verdict."""
    (verdict,) = explain(NAMED, rules(("r", "Relu(Neg(x))")), "--node", name)["verdicts"]

    assert verdict["node"] == {"op_type": "Relu", "domain": "", "name": "second", "output": "b"}
    assert (verdict["verdict"], verdict["scope"]) == ("matched", "main")


def test_any_output_finds_a_node(explain: Explain) -> None:
    """The second output does, too."""
    model = "g (float[4] x) => (float[2] a, b) { a, b = Split <num_outputs = 2> (x) }"
    (verdict,) = explain(model, rules(("r", "Split(x)")), "--node", "b")["verdicts"]

    assert verdict["node"]["output"] == "a"
    assert verdict["verdict"] == "matched"


def test_verdicts_on_one_node(explain: Explain, dpl: Dpl) -> None:
    """Every rule has its say: matched, inside, taken, refused, mismatch."""
    catalogue = rules(
        ("whole", "Relu(Neg(x))", "where: ['x.uses > 1']"),
        ("inner", "Neg(x)"),
        ("other", "Relu(x)"),
        ("never", "Relu(Neg(x))", "where: ['x.rank == 9']"),
        ("far", "Sigmoid(Relu(x))"),
        ("missing", "Relu(Abs(x))"),
    )

    def verdicts(node: str) -> dict[str, str]:
        found = explain(NAMED, catalogue, "--node", node)["verdicts"]
        return {item["rule"].removeprefix("t."): item["verdict"] for item in found}

    of_relu, of_neg, of_sigmoid = verdicts("b"), verdicts("a"), verdicts("y")
    assert (of_relu["whole"], of_neg["whole"], of_sigmoid["whole"]) == (
        *("matched", "inside", "mismatch"),
    )
    assert (of_relu["other"], of_neg["inner"]) == ("taken", "taken")
    assert of_relu["missing"] == "mismatch"
    assert of_relu["never"] in {"taken", "refused"}
    assert of_sigmoid["far"] == "refused"
    printed = dpl("explain", "m.onnx", "-p", "rules.yaml", "--node", "b").out
    assert "t.whole at Relu 'second': matches" in printed
    assert "belongs to the match of t.whole" in printed
    assert "does not match (1 of 2 nodes): expected Abs, found Neg 'first'" in printed


def test_a_body_that_a_partition_wrote_is_skipped(dpl: Dpl, folder: Path, save: Save) -> None:
    """Its nodes are not candidates, and asked about one, dpl says why."""
    save(NAMED)
    (folder / "rules.yaml").write_text(rules(("r", "Relu(Neg(x))")))
    assert dpl("partition", "m.onnx", "-p", "rules.yaml", "-o", "out.onnx").code == 0
    record = json.loads(dpl("explain", "out.onnx", "-p", "rules.yaml", "--json", "-").out)
    assert (record["rules"][0]["candidates"], record["rules"][0]["matched"]) == (0, 0)
    (function,) = onnx.load(str(folder / "out.onnx")).functions
    inner = function.node[-1].output[0]

    answer = dpl("explain", "out.onnx", "-p", "rules.yaml", "--node", inner, "--json", "-")

    verdicts = [(v["scope"], v["verdict"]) for v in json.loads(answer.out)["verdicts"]]
    assert [verdict for scope, verdict in verdicts if scope != "main"] == ["skipped"]
    printed = dpl("explain", "out.onnx", "-p", "rules.yaml", "--node", inner).out
    assert "function that a partition wrote" in printed


def test_nodes_in_bodies_are_found(explain: Explain) -> None:
    """A node of a branch is asked about as any other, and its scope is said."""
    model = """g (float[2] x, bool c) => (float[2] y) {
        y = If (c) <
            then_branch = t () => (float[2] p) { n = Neg (x) p = Relu (n) },
            else_branch = e () => (float[2] q) { q = Abs (x) }
        > }"""
    (verdict,) = explain(model, rules(("r", "Relu(Neg(x))")), "--node", "p")["verdicts"]

    assert verdict["verdict"] == "matched"
    assert verdict["scope"] != "main"


def test_a_rule_whose_opsets_do_not_hold(explain: Explain, dpl: Dpl) -> None:
    """A pattern that fits and is for other opsets: no match, and that is the reason given."""
    catalogue = rules(("r", "Relu(Neg(x))", "opsets: [18]"), ("s", "Relu(Neg(x))", "opsets: [17]"))
    first, second = explain(CHAIN, catalogue)["rules"]

    assert (first["opset_holds"], first["matched"]) == (False, 0)
    assert (second["opset_holds"], second["matched"]) == (True, 1)
    assert "opsets 18 to the newest" in dpl("explain", "m.onnx", "-p", "rules.yaml").out


def test_a_node_that_fits_a_rule_of_other_opsets(explain: Explain, dpl: Dpl) -> None:
    """Asked about the node, the answer is not "does not match" without a word on opsets."""
    catalogue = rules(("r", "Relu(Neg(x))", "opsets: [18]"))
    (verdict,) = explain(CHAIN, catalogue, "--node", "b")["verdicts"]

    assert verdict["verdict"] not in {"matched", "inside", "taken"}
    printed = dpl("explain", "m.onnx", "-p", "rules.yaml", "--node", "b").out
    assert "opset" in printed


# -- usage -------------------------------------------------------------------------------------


def refused(answer: Answer) -> Answer:
    """Check that the answer is a usage error."""
    assert (answer.code, answer.out) == (2, "")
    return answer


def test_an_unknown_rule(dpl: Dpl, model: Path) -> None:
    """Exit 2 and a guess."""
    command = ("explain", model, "--target", "dnnl", "--rule")
    answer = refused(dpl(*command, "conv2d_bais_relu"))

    assert "conv2d_bais_relu" in answer.message
    assert answer.hint == "did you mean 'dnnl.conv2d_bias_relu'?"
    assert refused(dpl(*command, "xyzzy")).hint


def test_one_rule_only(dpl: Dpl, model: Path) -> None:
    """--rule takes the name with or without its target, and the others still take their nodes."""
    command = ("explain", model, "--target", "dnnl", "--json", "-", "--rule")
    long, short = dpl(*command, "dnnl.conv2d"), dpl(*command, "conv2d")

    assert long.out == short.out
    (rule,) = json.loads(long.out)["rules"]
    assert (rule["rule"], rule["candidates"], rule["taken"]) == ("dnnl.conv2d", 3, 3)


@pytest.mark.parametrize(("name", "hint"), [("Rleu_0", "Relu_0"), ("nothing like it", None)])
def test_an_unknown_node(dpl: Dpl, model: Path, name: str, hint: str | None) -> None:
    """Exit 2, and a guess if there is one."""
    answer = refused(dpl("explain", model, "--target", "dnnl", "--node", name))

    assert name in answer.message
    if hint:
        assert f"did you mean '{hint}'?" == answer.hint


def test_an_empty_name_is_the_name_of_nothing(dpl: Dpl, save: Save, catalogue: Any) -> None:  # noqa: ANN401  # a fixture
    """Unnamed nodes are not all found by --node ''."""
    save(CHAIN)
    catalogue("Relu(x)")
    refused(dpl("explain", "m.onnx", "-p", "rules.yaml", "--node", ""))


# -- agreement with match ----------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(3, SHIPPED))
def test_explain_agrees_with_match(dpl: Dpl, name: str) -> None:
    """The same matches and the same refusals, and no candidate is counted twice."""
    path = SAMPLES / f"{name}.onnx"
    matched = json.loads(dpl("match", path, "--target", "dnnl", "--json", "-").out)
    explained = json.loads(dpl("explain", path, "--target", "dnnl", "--json", "-").out)["rules"]

    assert {r["rule"]: r["matched"] for r in explained if r["matched"]} == matched["counts"]
    refusals = Counter((item["rule"], item["stage"]) for item in matched["refused"])
    counted = {(r["rule"], s): n for r in explained for s, n in r["refused"].items()}
    assert counted == dict(refusals)
    for rule in explained:
        settled = rule["matched"] + rule["taken"] + sum(rule["refused"].values())
        assert rule["candidates"] >= settled
        assert (rule["nearest"] is not None) == (rule["candidates"] > settled)
        for example in rule["examples"]:
            assert example in matched["refused"]


@pytest.mark.parametrize("name", ["residual_block", "light_squeezenet"])
def test_verdicts_on_nodes_agree_with_match(dpl: Dpl, name: str) -> None:
    """The roots of matches are "matched", their other nodes "inside"."""
    path = SAMPLES / f"{name}.onnx"
    matched = json.loads(dpl("match", path, "--target", "dnnl", "--json", "-").out)
    for match in matched["matches"][:4]:
        for node in match["nodes"]:
            command = ("explain", path, "--target", "dnnl", "--rule", match["rule"])
            answer = dpl(*command, "--node", node["output"], "--json", "-")
            (verdict,) = json.loads(answer.out)["verdicts"]
            wanted = "matched" if node == match["root"] else "inside"
            assert (verdict["verdict"], verdict["match"]["root"]) == (wanted, match["root"])


TWO_CHAINS = """g (float[2] x, float[2,2] z) => (y, v) {
    a = Neg (x) b = Abs (a) y = Sigmoid (b)
    c = Neg (z) d = Abs (c) v = Sigmoid (d)
}"""


@pytest.mark.parametrize(
    ("model", "entries", "expected"),
    [
        pytest.param(
            CHAIN,
            [("r", "Relu(Neg(x))")],
            [("Sigmoid", 1, None, "", "no rule has this operator")],
            id="the-rest-is-in-a-match",
        ),
        pytest.param(
            TWO_CHAINS,
            [("r", "Sigmoid(Neg(x))"), ("s", "Sigmoid(Abs(Relu(x)))")],
            [
                ("Neg", 2, None, "", "no rule is rooted at this operator"),
                ("Abs", 2, "s", "2 of 3", "expected Relu, found Neg 'a'"),
                ("Sigmoid", 2, "s", "2 of 3", "expected Relu, found Neg 'a'"),
            ],
            id="twins-once-and-the-nearest-of-two-rules",
        ),
        pytest.param(
            TWO_CHAINS,
            [("r", "Abs(x)", "where: ['x.rank == 3']"), ("s", "Abs(x)", "where: [x.rank == 2]")],
            [
                ("Neg", 2, None, "", "no rule has this operator"),
                ("Abs", 1, "r", "all", "'x.rank == 3' does not hold"),
                ("Sigmoid", 2, None, "", "no rule has this operator"),
            ],
            id="near-miss-a-condition-refuses-one-of-them",
        ),
    ],
)
def test_left_out_names_the_nearest_rule_of_each_node(
    explain: Explain, dpl: Dpl, model: str, entries: list[tuple[str, ...]], expected: list[Any]
) -> None:
    """What no match has, one line for all that are alike, and nothing else."""
    record = explain(model, rules(*entries), "--left-out")
    said = dpl("explain", "m.onnx", "-p", "rules.yaml", "--left-out").out
    found = [
        (
            each["node"]["op_type"],
            each["alike"],
            each["rule"] and each["rule"].removeprefix("t."),
            "all" if each["stage"] else f"{each['matched']} of {each['of']}" if each["of"] else "",
            each["reason"],
        )
        for each in record["left_out"]
    ]
    assert found == expected
    assert record["rules"] == []
    assert len(said.splitlines()) == len(expected) + 2


def test_left_out_is_not_about_one_node(dpl: Dpl, model: Path) -> None:
    """Two questions are two commands."""
    answer = dpl("explain", model.name, "-p", "conv_relu", "--left-out", "--node", "Relu_0")
    assert answer.code == 2
    assert "--left-out is about all nodes" in answer.err
