"""``dpl apply``: a plan does again what ``dpl rewrite`` did, or what it was edited to do."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from io import StringIO
from pathlib import Path

import onnx
import pytest
from ruamel.yaml import YAML

from tests.cli.support import SAMPLES, Answer, Dpl, Save, contents
from tests.support.helpers import rewriting_catalogues

Rewrites = Callable[..., Path]

RULES = """\
dpl: 1
rewrites:
  - {name: to_mul, pattern: "Add(x, x)", replacement: "Mul(x, 2.0)"}
  - {name: to_abs, pattern: "Abs(Neg(x))", replacement: "Abs(x)"}
  - {name: to_neg, pattern: "Neg(Neg(Neg(x)))", replacement: "Neg(x)"}
"""
NET = """g (bool c, float[2] x) => (float[2] y) {
    [a] s = Add (x, x)  [b] t = Add (s, s)  [n] u = Neg (t)  [d] v = Abs (u)
    [i] w = If (c) <
        then_branch = th () => (float[2] o) { o = Add (v, v) },
        else_branch = el () => (float[2] o) { o = Identity (v) }>
    [e] y = Add (w, v) }"""
LINES = [
    "{rule: to_mul, scope: main, root: {output: t, op_type: Add}}",
    "{rule: to_mul, scope: main, root: {output: s, op_type: Add}}",
    "{rule: to_mul, scope: main/i.then_branch, root: {output: o, op_type: Add}}",
    "{rule: to_abs, scope: main, root: {output: v, op_type: Abs}}",
]
APPLY = ("apply", "plan.yaml", "m.onnx")
OUT = ("-o", "again.onnx")


MADE: dict[str, bytes] = {}
"""What the fixture below has made, the first time."""


@pytest.fixture
def planned(dpl: Dpl, folder: Path, save: Save) -> Path:
    """Return a plan of four applications; what they made is ``once.onnx``."""
    for name, data in MADE.items():
        (folder / name).write_bytes(data)
    if not MADE:
        (folder / "rules.yaml").write_text(RULES)
        save(NET)
        written = ("-o", "once.onnx", "--plan", "plan.yaml")
        done = dpl("rewrite", "m.onnx", "-p", "rules.yaml", *written)
        assert (done.code, done.err) == (0, "")
        MADE.update(contents(folder))
    return folder / "plan.yaml"


def entries(plan: Path) -> list[str]:
    """Return the lines of a plan that are applications, without what is said of them."""
    lines = plan.read_text().splitlines()
    return [line[4:].split("  #")[0] for line in lines if line.startswith("  - {")]


def with_entries(plan: Path, *lines: str) -> None:
    """Let a plan list these applications instead."""
    head = plan.read_text().partition("applications:")[0]
    body = "".join(f"  - {line}\n" for line in lines)
    plan.write_text(f"{head}applications:\n{body}" if lines else f"{head}applications: []\n")


def ops(path: Path) -> list[str]:
    """Return the operators of the main graph, in order."""
    return [node.op_type for node in onnx.load(path).graph.node]


# -- what a plan looks like ------------------------------------------------------------------------


def test_a_plan_lists_every_application(planned: Path) -> None:
    """One line each, in order: rule, graph, and the node that the match is rooted in."""
    assert entries(planned) == LINES
    text = planned.read_text()
    assert text.startswith("# What dpl rewrite does to m.onnx, one line for each application")
    assert "\nschema: dpl.plan/1\nmodel:\n  name: m.onnx\n  sha256: " in text
    assert "\ncatalogues:\n  - rules.yaml\napplications:\n" in text
    assert text.count("  # Add 'b' -> Mul 'b/Mul'\n") == 1
    assert text.endswith("  # Neg 'n', Abs 'd' -> Abs 'd'\n")


def test_a_plan_survives_a_round_trip_through_yaml(planned: Path) -> None:
    """A program that keeps comments writes the same bytes; so plans can be edited by one."""
    yaml = YAML()
    yaml.width = 1000
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.preserve_quotes = True
    text = planned.read_text()
    stream = StringIO()

    yaml.dump(yaml.load(text), stream)

    assert stream.getvalue() == text


def test_a_dry_run_writes_the_plan(dpl: Dpl, folder: Path, planned: Path) -> None:
    """Plan, look, apply: without a model in between."""
    options = ("--dry-run", "--plan", "dry.yaml")

    assert dpl("rewrite", "m.onnx", "-p", "rules.yaml", *options).code == 0
    assert (folder / "dry.yaml").read_text() == planned.read_text().replace(
        "dpl apply plan.yaml", "dpl apply dry.yaml"
    )


def test_a_plan_is_written_though_the_result_is_wrong(dpl: Dpl, folder: Path, save: Save) -> None:
    """It is what tells the good applications from the bad."""
    (folder / "rules.yaml").write_text(
        "dpl: 1\nrewrites: [{name: r, pattern: Neg(x), replacement: Abs(x)}]\n"
    )
    save("g (float[2] x) => (float[2] y) { s = Neg (x) t = Exp (s) y = Neg (t) }")

    named = ("rewrite", "m.onnx", "-p", "rules.yaml", "--plan", "plan.yaml")
    answer = dpl(*named, "--all-or-nothing")

    assert answer.code == 1
    assert len(entries(folder / "plan.yaml")) == 2


def test_a_plan_replaces_a_plan(dpl: Dpl, planned: Path) -> None:
    """And nothing but a plan (tests of dpl rewrite)."""
    before = planned.read_text()

    done = dpl("rewrite", "m.onnx", "-p", "rules.yaml", "--plan", "plan.yaml", "--limit", "1")

    assert done.code == 0
    assert entries(planned) == LINES[:1]
    assert before.startswith(planned.read_text()[:100])


# -- an unedited plan ------------------------------------------------------------------------------

TABLE = """\
rule    listed  applied
to_mul       3        3
to_abs       1        1

operator   before  after
Add             4      1
Mul             0      3
Neg             1      0
all nodes       8      7
"""


@pytest.mark.usefixtures("planned")
def test_an_unedited_plan_gives_the_same_bytes(dpl: Dpl, folder: Path) -> None:
    """The report is that of the rewrite, but for the rules that the plan does not name."""
    answer = dpl(*APPLY, *OUT)

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(TABLE)
    assert "Equivalent in onnxruntime" in answer.out
    assert answer.out.endswith("Wrote again.onnx.\n")
    assert (folder / "again.onnx").read_bytes() == (folder / "once.onnx").read_bytes()


# Convolutions and matrix products with what follows, an operator for another, and rules that feed
# others; once and with alternatives, so that what a plan names is not all that could be done.
REAL_RULES = r"""
dpl: 1
rewrites:
  - name: fused_conv
    pattern: |
      c = Conv(x, w, b, **attrs)
      Relu(c)
    replacement: com.microsoft.FusedConv(x, w, b, activation="Relu", **attrs)
  - name: clip
    pattern: Relu(x)
    where: ['x.dtype == "float32"']
    replacement: Max(x, 0.0)
  - name: sum
    pattern: Add(x, y)
    where: ['same_shape(x, y)']
    replacement: Sum(x, y)
  - name: sum_more
    pattern: Sum(Sum(x, y), z)
    replacement: Sum(x, y, z)
  - name: back
    once: true
    pattern: Max(Sum(x, y), c)
    replacement: Max(c, Sum(y, x))
  - name: halves
    pattern: Mul(x, 0.5) | Div(x, 2.0)
    replacement: Mul(0.5, x)
    once: true
"""
SHIPPED = rewriting_catalogues()


@pytest.mark.long
@pytest.mark.parametrize("catalogues", [["rules.yaml"], SHIPPED], ids=["own", "shipped"])
@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.onnx")))
def test_an_unedited_plan_gives_the_same_bytes_on_real_models(
    dpl: Dpl, folder: Path, name: str, catalogues: list[str]
) -> None:
    """Names, order and all."""
    (folder / "rules.yaml").write_text(REAL_RULES)
    model = SAMPLES / f"{name}.onnx"
    options = ("--no-verify", "--quiet", "--max-growth", "1000")
    patterns = [word for name in catalogues for word in ("-p", name)]

    done = dpl("rewrite", model, *patterns, *options, "-o", "a.onnx", "--plan", "p.yaml")
    again = dpl("apply", "p.yaml", model, *options, "-o", "b.onnx")

    assert (done.code, again.code) == (0, 0), again.err
    assert entries(folder / "p.yaml") or catalogues == SHIPPED
    assert (folder / "b.onnx").read_bytes() == (folder / "a.onnx").read_bytes()


MEMORY = """
import numpy as np

from dplcli.language import RewriteRule, wildcard
from dplcli.language.replacement import nodewise

@nodewise("Neg")
class every_third:
    def __init__(self):
        self.seen = 0

    def __call__(self, match, build):
        self.seen += 1
        if self.seen % 3:
            return None
        return build.op("Mul", match.root.inputs[0], build.constant(np.float32(-1)))

CATALOG = [RewriteRule("every_third", wildcard(), every_third)]
"""
MANY = (
    f"g (float[2] x0) => (float[2] x9) {{ {' '.join(f'x{i + 1} = Neg (x{i})' for i in range(9))} }}"
)


def test_functions_that_remember_see_what_they_saw(dpl: Dpl, folder: Path, save: Save) -> None:
    """What such a rule does at a node depends on nodes at which it did nothing."""
    (folder / "code.py").write_text(MEMORY)
    save(MANY)
    run = dpl("rewrite", "m.onnx", "-p", "code.py", "-o", "once.onnx", "--plan", "plan.yaml")
    assert (run.code, run.err) == (0, "")
    done = [line.partition("output: ")[2][:2] for line in entries(folder / "plan.yaml")]
    assert done[:3] == ["x3", "x6", "x9"]

    answer = dpl(*APPLY, *OUT, "--allow-code")

    assert (answer.code, answer.err) == (0, "")
    assert (folder / "again.onnx").read_bytes() == (folder / "once.onnx").read_bytes()


# -- an edited plan --------------------------------------------------------------------------------

EDITED = {
    "none": ([], ["Add", "Add", "Neg", "Abs", "If", "Add"]),
    "first": (LINES[:1], ["Add", "Mul", "Neg", "Abs", "If", "Add"]),
    "last": (LINES[3:], ["Add", "Add", "Abs", "If", "Add"]),
    "reversed": (LINES[::-1], ["Mul", "Mul", "Abs", "If", "Add"]),
    "mixed": ([LINES[1], LINES[3], LINES[0]], ["Mul", "Mul", "Abs", "If", "Add"]),
    "default-scope": (
        ["{rule: to_mul, root: {output: s, op_type: Add}}"],
        ["Mul", "Add", "Neg", "Abs", "If", "Add"],
    ),
}


@pytest.mark.parametrize(("lines", "left"), EDITED.values(), ids=EDITED)
def test_a_plan_does_what_it_lists_and_nothing_else(
    dpl: Dpl, folder: Path, planned: Path, lines: list[str], left: list[str]
) -> None:
    """In its own order, whatever order the rules would take by themselves."""
    with_entries(planned, *lines)

    answer = dpl(*APPLY, *OUT, "--json", "r.json")

    assert (answer.code, answer.err) == (0, "")
    assert ops(folder / "again.onnx") == left
    done = json.loads((folder / "r.json").read_text())["applications"]
    shown = [
        f"{{rule: {item['rule']}, scope: {item['scope']}, "
        f"root: {{output: {item['root']['output']}, op_type: {item['root']['op_type']}}}}}"
        for item in done
    ]
    assert shown == [line.replace("to_mul, root", "to_mul, scope: main, root") for line in lines]


def test_an_empty_plan_gives_a_copy(dpl: Dpl, folder: Path, planned: Path) -> None:
    """And says that it lists nothing."""
    with_entries(planned)

    answer = dpl(*APPLY, *OUT)

    assert answer.out == "The plan lists nothing.\nWrote again.onnx, unchanged.\n"
    assert (folder / "again.onnx").read_bytes() == (folder / "m.onnx").read_bytes()


MUL_AGAIN = "{rule: to_mul, scope: main, root: {output: t, op_type: Add}}"
UNFIT = {
    "twice": (
        [LINES[0], LINES[0]],
        "plan.yaml:17: to_mul does not fit at 't' in main: 't' is made by Mul 'b/Mul', not by Add",
    ),
    "no-such-graph": (
        ["{rule: to_mul, scope: main/j.body, root: {output: o, op_type: Add}}"],
        "plan.yaml:16: to_mul does not fit at 'o' in main/j.body: the model has no graph 'main/j",
    ),
    "no-such-value": (
        ["{rule: to_mul, scope: main, root: {output: o, op_type: Add}}"],
        "plan.yaml:16: to_mul does not fit at 'o' in main: 'o' does not exist there",
    ),
    "input": (
        ["{rule: to_mul, scope: main, root: {output: x, op_type: Add}}"],
        "plan.yaml:16: to_mul does not fit at 'x' in main: 'x' is not made by a node",
    ),
    "gone": (
        [LINES[3], "{rule: to_neg, scope: main, root: {output: u, op_type: Neg}}"],
        "plan.yaml:17: to_neg does not fit at 'u' in main: 'u' does not exist there",
    ),
    "mismatch": (
        ["{rule: to_neg, scope: main, root: {output: u, op_type: Neg}}"],
        "plan.yaml:16: to_neg does not fit at 'u' in main: the pattern expects ",
    ),
    "not-twice-the-same": (
        ["{rule: to_mul, scope: main, root: {output: y, op_type: Add}}"],
        "plan.yaml:16: to_mul does not fit at 'y' in main: the pattern expects ",
    ),
}


@pytest.mark.parametrize(("lines", "message"), UNFIT.values(), ids=UNFIT)
def test_an_entry_that_does_not_fit_is_no(
    dpl: Dpl, folder: Path, planned: Path, lines: list[str], message: str
) -> None:
    """Exit 1; the entry, its line and the reason; nothing is written."""
    with_entries(planned, *lines)
    before = contents(folder)

    answer = dpl(*APPLY, *OUT)

    assert answer.code == 1
    told, where = answer.err.splitlines()
    assert told.startswith(f"dpl: {message}")
    assert where == "dpl: nothing was written"
    assert "Wrote" not in answer.out
    assert contents(folder) == before


@pytest.mark.parametrize(("lines", "message"), UNFIT.values(), ids=UNFIT)
def test_skip_missing_goes_on(
    dpl: Dpl, folder: Path, planned: Path, lines: list[str], message: str
) -> None:
    """What does not fit is left out and said; what stands behind it is done."""
    behind = "{rule: to_mul, scope: main/i.then_branch, root: {output: o, op_type: Add}}"
    with_entries(planned, *lines, behind)

    answer = dpl(*APPLY, *OUT, "--skip-missing", "--json", "r.json")

    assert (answer.code, answer.err) == (0, "")
    assert f"left out: {message}" in " ".join(answer.out.split())
    found = json.loads((folder / "r.json").read_text())
    assert [text.startswith(message) for text in found["missing"]] == [True]
    assert found["applications"][-1]["scope"] == "main/i.then_branch"
    assert len(found["applications"]) == len(lines)


def test_a_refused_match_says_why(dpl: Dpl, folder: Path, planned: Path, save: Save) -> None:
    """A value that is now read outside is the reason."""
    (folder / "rules.yaml").write_text(RULES.replace('"Abs(x)"}', '"Abs(x)", escape: refuse}'))
    with_entries(planned, LINES[3])
    save(NET.replace("(float[2] y)", "(float[2] y, float[2] u)"))
    before = contents(folder)

    answer = dpl(*APPLY, *OUT, "--force")

    assert answer.code == 1
    assert "does not fit at 'v' in main: refused by escape: " in answer.err
    assert contents(folder) == before


def test_a_plan_that_computes_something_else_is_no(dpl: Dpl, folder: Path, planned: Path) -> None:
    """The result is verified as that of a rewrite is."""
    (folder / "rules.yaml").write_text(RULES.replace("Mul(x, 2.0)", "Mul(x, 3.0)"))
    before = contents(folder)

    answer = dpl(*APPLY, *OUT, "--all-or-nothing")
    each = dpl(*APPLY, *OUT, "--verify-each")

    assert answer.code == each.code == 1
    assert "not equivalent to the original" in answer.err
    assert "the rule to_mul breaks the model in round 1" in each.err
    assert contents(folder) == before
    assert entries(planned) == LINES


# -- the model, the catalogues ---------------------------------------------------------------------


@pytest.mark.usefixtures("planned")
def test_another_model_is_refused(dpl: Dpl, folder: Path) -> None:
    """Exit 2 by the hash; --force goes on, and says so."""
    (folder / "once.onnx").rename(folder / "m.onnx")
    before = contents(folder)

    answer = dpl(*APPLY, *OUT)
    forced = dpl(*APPLY, *OUT, "--force", "--skip-missing")

    assert answer.code == 2
    assert "m.onnx is not the file that plan.yaml was made for: its sha256 is " in answer.message
    assert answer.hint == "pass --force to apply it all the same"
    assert forced.code == 0
    assert "note: m.onnx is not the file that plan.yaml was made for" in forced.out
    assert {**contents(folder), "again.onnx": b""} == {**before, "again.onnx": b""}


def test_catalogues_are_found_from_where_the_plan_lies(
    dpl: Dpl, folder: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are relative to the plan, however they were given; shipped ones keep their names."""
    (folder / "rules").mkdir()
    (folder / "plans").mkdir()
    (folder / "rules" / "r.yaml").write_text(RULES)
    save(NET)
    absolute = folder / "rules" / "r.yaml"
    names = ("-p", absolute, "-p", "conv_relu.yaml")
    run = dpl("rewrite", "m.onnx", *names, "-o", "once.onnx", "--plan", "plans/p.yaml")
    assert (run.code, run.err) == (0, "")
    assert (
        "catalogues:\n  - ../rules/r.yaml\n  - conv_relu\n"
        in (folder / "plans" / "p.yaml").read_text()
    )

    monkeypatch.chdir(folder / "rules")
    answer = dpl("apply", "../plans/p.yaml", "../m.onnx", "-o", "../again.onnx")

    assert (answer.code, answer.err) == (0, "")
    assert (folder / "again.onnx").read_bytes() == (folder / "once.onnx").read_bytes()


def test_patterns_override_the_plan(dpl: Dpl, folder: Path, planned: Path) -> None:
    """The rules may come from elsewhere, and the plan's catalogue need not be there."""
    (folder / "rules.yaml").rename(folder / "moved.yaml")

    gone = dpl(*APPLY, *OUT)
    moved = dpl(*APPLY, *OUT, "-p", "moved.yaml")

    assert gone.code == 2
    assert gone.message.startswith("plan.yaml: rules.yaml: no such catalogue")
    assert "--patterns names another" in gone.hint
    assert moved.code == 0
    assert planned.exists()
    assert (folder / "again.onnx").read_bytes() == (folder / "once.onnx").read_bytes()


def test_a_rule_that_is_not_there_is_named(dpl: Dpl, folder: Path, planned: Path) -> None:
    """Exit 2, with the line of the entry, whatever may be left out."""
    with_entries(planned, LINES[0], LINES[3].replace("to_abs", "to_ab"))

    answer = dpl(*APPLY, *OUT, "--skip-missing")

    assert (answer.code, answer.message) == (2, "plan.yaml:17: there is no rule 'to_ab'")
    assert answer.hint == "did you mean 'to_abs'?"
    assert not (folder / "again.onnx").exists()


def test_a_plan_does_not_run_code_by_itself(dpl: Dpl, folder: Path, save: Save) -> None:
    """A plan from somebody else may name a Python file; who applies it must say yes."""
    (folder / "code.py").write_text(f"raise SystemExit('it ran')\n{MEMORY}")
    digest = sha256(save(MANY).read_bytes()).hexdigest()
    (folder / "plan.yaml").write_text(
        f"schema: dpl.plan/1\nmodel: {{name: m.onnx, sha256: '{digest}'}}\n"
        "catalogues: [code.py]\napplications: []\n"
    )

    answer = dpl(*APPLY, *OUT)

    assert answer.code == 2
    assert answer.message == (
        "plan.yaml: the catalogue 'code.py' is Python code, which a plan does not run by itself"
    )
    assert "--allow-code" in answer.hint
    assert "it ran" in dpl(*APPLY, *OUT, "--allow-code").message
    assert "it ran" in dpl(*APPLY, *OUT, "-p", "code.py").message


# -- malformed plans -------------------------------------------------------------------------------

HEAD = f"schema: dpl.plan/1\nmodel:\n  name: m.onnx\n  sha256: '{'0' * 64}'\n"
ENTRY = "applications:\n  - {rule: r, scope: main, root: {output: y, op_type: Add}}\n"
MALFORMED = {
    "no-yaml": (HEAD + "applications: [\n", "plan.yaml:5:16: not valid YAML"),
    "no-mapping": ("- a\n", "plan.yaml: is not a plan"),
    "empty": ("", "plan.yaml: is not a plan"),
    "a-catalogue": (RULES, "plan.yaml: is not a plan"),
    "other-version": (
        HEAD.replace("plan/1", "plan/2") + ENTRY,
        "plan.yaml:1:1: schema: input should be 'dpl.plan/1'",
    ),
    "no-model": ("schema: dpl.plan/1\n" + ENTRY, "plan.yaml:1:1: the key 'model' is missing"),
    "no-hash": (
        HEAD.replace(f"  sha256: '{'0' * 64}'\n", "") + ENTRY,
        "plan.yaml:2:1: the key 'sha256' is missing",
    ),
    "bad-hash": (
        HEAD.replace("'0", "'x0") + ENTRY,
        "plan.yaml:4:3: model.sha256: expected 64 hexadecimal digits",
    ),
    "no-list": (HEAD, "plan.yaml:1:1: the key 'applications' is missing"),
    "list-of-what": (
        HEAD + "applications: {rule: r}\n",
        "plan.yaml:5:1: applications: input should be a valid list",
    ),
    "entry-of-what": (
        HEAD + "applications:\n  - to_mul\n",
        "plan.yaml:6:5: applications.0: input should be",
    ),
    "no-rule": (
        HEAD + ENTRY.replace("rule: r, ", ""),
        "plan.yaml:6:5: the key 'rule' is missing",
    ),
    "no-output": (
        HEAD + ENTRY.replace("output: y, ", ""),
        "plan.yaml:6:28: the key 'output' is missing",
    ),
    "misspelt": (
        HEAD + ENTRY.replace("scope", "scop"),
        "plan.yaml:6:15: unknown key 'scop'",
    ),
    "misspelt-in-root": (
        HEAD + ENTRY.replace("op_type", "optype"),
        "plan.yaml:6:46: unknown key 'optype'",
    ),
    "misspelt-above": (HEAD + "catalogs: []\n" + ENTRY, "plan.yaml:5:1: unknown key 'catalogs'"),
    "null": (
        HEAD + ENTRY.replace("rule: r", "rule: null"),
        "plan.yaml:6:6: applications.0.rule: input should be a valid string",
    ),
    "number": (
        HEAD + ENTRY.replace("output: y", "output: 7"),
        "plan.yaml:6:35: applications.0.root.output: input should be a valid string",
    ),
    "opset": (HEAD + "opset: new\n" + ENTRY, "plan.yaml:5:1: opset: input should be"),
    "binary": (b"\xff\xfe\x00", "plan.yaml: is not UTF-8 text"),
}


def applied(dpl: Dpl, folder: Path, plan: str | bytes) -> Answer:
    """Apply a plan that is no good, and check that nothing is left behind."""
    data = plan.encode() if isinstance(plan, str) else plan
    (folder / "plan.yaml").write_bytes(data)
    before = contents(folder)
    answer = dpl(*APPLY, *OUT)
    assert (answer.code, answer.out) == (2, "")
    assert contents(folder) == before
    return answer


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(("plan", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_plan_is_refused_with_its_place(
    dpl: Dpl, folder: Path, plan: str | bytes, message: str
) -> None:
    """File, line, column and what; exit 2."""
    assert applied(dpl, folder, plan).message.startswith(message)


@pytest.mark.usefixtures("model")
def test_a_misspelt_key_gets_a_suggestion(dpl: Dpl, folder: Path) -> None:
    """Of the keys that may stand there."""
    wrong = [("scope", "scop"), ("op_type", "optype"), ("output", "outputt")]
    for right, typo in wrong:
        answer = applied(dpl, folder, HEAD + ENTRY.replace(right, typo))
        assert answer.hint == f"did you mean {right!r}?"
    answer = applied(dpl, folder, HEAD.replace("name:", "nam:") + ENTRY)
    assert answer.hint == "did you mean 'name'?"


@pytest.mark.usefixtures("model")
def test_a_missing_plan_is_named(dpl: Dpl) -> None:
    """Exit 2."""
    answer = dpl("apply", "gone.yaml", "m.onnx", *OUT)

    assert (answer.code, answer.message) == (
        2,
        "gone.yaml: cannot be read: No such file or directory",
    )


def test_the_json_schema_is_printed(dpl: Dpl) -> None:
    """For editors; it names the version."""
    answer = dpl("schema", "plan")

    assert (answer.code, answer.err) == (0, "")
    schema = json.loads(answer.out)
    assert schema["title"] == "dpl.plan/1"
    assert set(schema["required"]) == {"schema", "model", "applications"}
    assert schema["properties"]["schema"]["const"] == "dpl.plan/1"


# -- where it is written ---------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "plan.yaml"), "plan.yaml: is the plan"),
        (("-o", "rules.yaml"), "rules.yaml: is a catalogue that this run reads"),
        (("-o", "m.onnx"), "m.onnx: the output is the input"),
        (("--in-place", "-o", "x.onnx"), "--in-place and --output contradict"),
        (("--json", "plan.yaml"), "--json plan.yaml: is another file"),
        (("--trace-json", "plan.yaml"), "--trace-json plan.yaml: is another file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_no_file_of_the_run_is_replaced(
    dpl: Dpl, folder: Path, options: tuple[str, ...], message: str
) -> None:
    """Nor the plan itself."""
    before = contents(folder)

    answer = dpl(*APPLY, *options)

    assert answer.code == 2
    assert message in answer.message
    assert contents(folder) == before


@pytest.mark.usefixtures("planned")
def test_in_place_replaces_the_model(dpl: Dpl, folder: Path) -> None:
    """And the plan then is one for another model."""
    assert dpl(*APPLY, "--in-place").code == 0
    assert (folder / "m.onnx").read_bytes() == (folder / "once.onnx").read_bytes()
    assert dpl(*APPLY, "--in-place").code == 2


@pytest.mark.usefixtures("planned")
def test_the_options_of_a_rewrite_work(dpl: Dpl, folder: Path) -> None:
    """Dry runs, traces, growth, quiet, the default output."""
    before = contents(folder)
    dry = dpl(*APPLY, "--dry-run", "--trace")
    assert dry.code == 0
    assert dry.out.startswith("round 1\n  to_mul: 4 candidates, applied 3 times\n    1. replaced ")
    assert "Nothing was verified or written, as asked." in dry.out
    grown = dpl(*APPLY, "--max-growth", "0")
    assert (grown.code, "--max-growth" in grown.err) == (1, True)
    assert contents(folder) == before

    answer = dpl(*APPLY, "--quiet", "--no-verify")

    assert (answer.code, answer.out, answer.err) == (0, "", "")
    assert (folder / "m.rewritten.onnx").read_bytes() == (folder / "once.onnx").read_bytes()


def test_a_plan_remembers_the_opset(dpl: Dpl, folder: Path, save: Save) -> None:
    """What was raised before it was rewritten is raised again."""
    (folder / "rules.yaml").write_text(RULES)
    save(
        onnx.parser.parse_model(
            '<ir_version: 6, opset_import: ["": 10]> g (float[2] x) => (float[2] y) '
            "{ s = Add (x, x) y = Clip <min = 0.0, max = 1.0> (s) }"
        )
    )
    run = ("rewrite", "m.onnx", "-p", "rules.yaml", "--opset", "18", "--plan", "plan.yaml")
    assert dpl(*run, "-o", "once.onnx").code == 0
    assert "\nopset: 18\n" in (folder / "plan.yaml").read_text()

    answer = dpl(*APPLY, *OUT)

    assert (answer.code, answer.err) == (0, "")
    assert "note: m.onnx: raised from opset 10 to 18; adapted: Clip" in answer.out
    assert (folder / "again.onnx").read_bytes() == (folder / "once.onnx").read_bytes()
    assert onnx.load(folder / "again.onnx").opset_import[0].version == 18


def test_external_data_comes_along(dpl: Dpl, folder: Path, save: Save) -> None:
    """As in a rewrite."""
    (folder / "rules.yaml").write_text(RULES)
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[2] x) => (float[2] y) { s = Add (x, x) y = Mul (s, w) }"
    )
    weight = proto.graph.initializer.add(name="w", data_type=1, dims=[2], data_location=1)
    weight.external_data.add(key="location", value="w.bin")
    (folder / "w.bin").write_bytes(bytes(8))
    save(proto)
    for name in ("a", "b"):
        (folder / name).mkdir()
    dpl("rewrite", "m.onnx", "-p", "rules.yaml", "-o", "a/o.onnx", "--plan", "plan.yaml")

    assert dpl(*APPLY, "-o", "b/o.onnx").code == 0
    assert contents(folder / "a") == contents(folder / "b")
    assert sorted(contents(folder / "b")) == ["o.onnx", "w.bin"]
    shutil.rmtree(folder / "a")
