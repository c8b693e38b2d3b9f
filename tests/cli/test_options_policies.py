"""--constants, --escape and --order, for all rules and for one."""

from pathlib import Path

import onnx
import pytest

from tests.cli.support import Dpl, Save, contents
from tests.support.helpers import rule_name

RULES = """
dpl: 1
target: t
constants: lift
patterns:
  - {name: add, pattern: "Add(Neg(x), const(c))"}
  - {name: mul, pattern: "Mul(Relu(x), const(c))"}
"""
CONSTANTS = """g (float[2] a) => (float[2] o) <float[2] k = {1, 2}, float[2] l = {3, 4}> {
    n = Neg (a) s = Add (n, k) r = Relu (s) o = Mul (r, l) }"""
LEAKING = """g (float[2] a) => (float[2] o, float[2] n) <float[2] k = {1, 2}> {
    n = Neg (a) o = Add (n, k) }"""
CHAIN = """g (float[2] a) => (float[2] o) { x = Neg (a) y = Neg (x) o = Neg (y) }"""


@pytest.fixture(autouse=True)
def _rules(folder: Path) -> None:
    (folder / "rules.yaml").write_text(RULES, encoding="utf-8")
    (folder / "pair.yaml").write_text(
        "dpl: 1\ntarget: t\npatterns: [{name: pair, pattern: Neg(Neg(x))}]\n", encoding="utf-8"
    )


def bodies(path: Path) -> dict[str, int]:
    """Count the constants in each function of a model."""
    return {
        rule_name(function.name): [node.op_type for node in function.node].count("Constant")
        for function in onnx.load(path).functions
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"add": 0, "mul": 0}),
        (("--constants", "embed"), {"add": 1, "mul": 1}),
        (("--constants", "auto"), {"add": 1, "mul": 1}),
        (("--constants", "t.add=embed"), {"add": 1, "mul": 0}),
        (("--constants", "mul=embed"), {"add": 0, "mul": 1}),
        (("--constants", "mul=lift", "--constants", "embed"), {"add": 1, "mul": 0}),
        (("--constants", "embed", "--constants", "t.mul=lift"), {"add": 1, "mul": 0}),
        (("--constants", "add=embed", "--constants", "t.add=embed"), {"add": 1, "mul": 0}),
    ],
)
def test_constants_for_all_rules_and_for_one(
    dpl: Dpl, save: Save, folder: Path, options: tuple[str, ...], expected: dict[str, int]
) -> None:
    """What is said of one rule counts more than what is said of all, in whatever order."""
    save(CONSTANTS)

    answer = dpl("partition", "m.onnx", "-p", "rules.yaml", "-o", "out.onnx", *options)

    assert (answer.code, answer.err) == (0, "")
    assert bodies(folder / "out.onnx") == expected


def test_an_option_is_as_good_as_a_line_in_the_catalogue(
    dpl: Dpl, save: Save, folder: Path
) -> None:
    """The same bytes."""
    save(CONSTANTS)
    stated = RULES.replace("constants: lift", "constants: embed")
    (folder / "stated.yaml").write_text(stated, encoding="utf-8")

    asked = dpl(
        *("partition", "m.onnx", "-p", "rules.yaml", "--constants", "embed", "-o", "a.onnx")
    )
    written = dpl("partition", "m.onnx", "-p", "stated.yaml", "-o", "b.onnx")

    assert (asked.code, written.code) == (0, 0)
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()


@pytest.mark.parametrize("command", ["match", "partition"])
@pytest.mark.parametrize(
    ("options", "matches"),
    [
        ((), 0),
        (("--escape", "outputs"), 1),
        (("--escape", "add=outputs"), 1),
        (("--escape", "mul=outputs"), 0),
        (("--escape", "duplicate"), 0),
        (("--escape", "outputs", "--escape", "t.add=refuse"), 0),
    ],
)
def test_escape(dpl: Dpl, save: Save, command: str, options: tuple[str, ...], matches: int) -> None:
    """An inner value that is a graph output: refused, or a further output."""
    save(LEAKING)
    expected = ("--expect", f"t.add=={matches}")

    answer = dpl(command, "m.onnx", "-p", "rules.yaml", *expected, *options)

    assert (answer.code, answer.err) == (0, "")


def test_explain_knows_the_policy_asked_for(dpl: Dpl, save: Save) -> None:
    """Refused as the rule says, matched as the command line says."""
    save(LEAKING)
    ask = ("explain", "m.onnx", "-p", "rules.yaml", "--rule", "add", "--node", "o")

    assert "is a graph output" in dpl(*ask).out
    assert "matches" in dpl(*ask, "--escape", "outputs").out


@pytest.mark.parametrize(("options", "left"), [((), "x"), (("--order", "program"), "o")])
def test_order(dpl: Dpl, save: Save, folder: Path, options: tuple[str, ...], left: str) -> None:
    """Of three the last two, or the first two."""
    save(CHAIN)

    answer = dpl("partition", "m.onnx", "-p", "pair.yaml", "-o", "out.onnx", *options)

    assert answer.code == 0
    graph = onnx.load(folder / "out.onnx").graph
    assert [node.output[0] for node in graph.node if node.op_type == "Neg"] == [left]


RULE = ("partition", "m.onnx", "-p", "rules.yaml")


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            ("--constants", "embd"),
            "--constants 'embd': there is no policy 'embd'",
            "did you mean 'embed'?",
        ),
        (
            ("--escape", "embed"),
            "--escape 'embed': there is no policy 'embed'",
            "there are: refuse, duplicate, outputs",
        ),
        (
            ("--order", "t.add="),
            "--order 't.add=': there is no policy ''",
            "there are: outermost, program",
        ),
        (
            ("--constants", "=embed"),
            "--constants '=embed': names no rule",
            "write RULE=VALUE, or VALUE",
        ),
        (
            ("--constants", "t.ad=embed"),
            "--constants 't.ad=embed': there is no rule 't.ad'",
            "did you mean 't.add'?",
        ),
        (
            ("--constants", "xyz=embed"),
            "--constants 'xyz=embed': there is no rule 'xyz'",
            "there are: t.add, t.mul",
        ),
        (
            ("--escape", "outputs", "--escape", "refuse"),
            "--escape 'refuse': contradicts 'outputs'",
            "pass one of them",
        ),
        (
            ("--escape", "add=outputs", "--escape", "t.add=refuse"),
            "--escape 't.add=refuse': contradicts 'outputs' for t.add",
            "pass one of them",
        ),
    ],
)
def test_bad_usage(dpl: Dpl, save: Save, options: tuple[str, ...], message: str, hint: str) -> None:
    """One message, the way out, exit code 2, and no file."""
    folder = save(CONSTANTS).parent
    before = contents(folder)

    answer = dpl(*RULE, *options)

    assert (answer.code, answer.message, answer.hint) == (2, message, hint)
    assert contents(folder) == before


def test_rules_that_replace_have_no_policy(dpl: Dpl, save: Save, folder: Path) -> None:
    """Nothing is outlined, so nothing can be said of it; beside rules that outline it is fine."""
    save(CONSTANTS)
    (folder / "replace.yaml").write_text(
        "dpl: 1\nrewrites: [{name: twice, pattern: 'Add(x, x)', replacement: 'Mul(x, 2.0)'}]\n",
        encoding="utf-8",
    )

    alone = dpl("match", "m.onnx", "-p", "replace.yaml", "--escape", "outputs")
    named = dpl("match", "m.onnx", "-p", "replace.yaml", "--escape", "twice=outputs")
    beside = dpl("match", "m.onnx", "-p", "replace.yaml", "-p", "rules.yaml", "--escape", "outputs")

    assert (alone.code, named.code, beside.code) == (2, 2, 0)
    assert "the rules replace" in alone.message
    assert "the rule 'twice' replaces" in named.message


def test_match_has_no_constants(dpl: Dpl, save: Save) -> None:
    """They do not change where a rule matches."""
    save(CONSTANTS)

    answer = dpl("match", "m.onnx", "-p", "rules.yaml", "--constants", "embed")

    assert answer.code == 2
    assert "--constants" in answer.message
