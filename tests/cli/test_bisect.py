"""``dpl bisect``: what makes a model compute something else, and a folder that shows it."""

from __future__ import annotations

import json
import shutil
from html import unescape
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from dplcli.pipeline.verifying import compare
from dplcli.verify import Execution
from tests.cli.support import Answer, Dpl, Save, contents

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.verify import VerificationResult

NET = """g (float[2, 8] x) => (float[2, 8] y) {
    [a] s = Add (x, x)  [b] t = Tanh (s)  [c] u = Neg (t)  [d] v = Abs (u)
    [e] w = Sigmoid (v)  [f] y = Add (w, w) }"""

DOUBLE = '  - {name: double, pattern: "Add(x, x)", replacement: "Mul(x, 2.0)"}\n'
TREBLE = '  - {name: treble, pattern: "Mul(x, 2.0)", replacement: "Mul(x, 3.0)"}\n'
THRICE = '  - {name: thrice, pattern: "Add(x, x)", replacement: "Mul(x, 3.0)"}\n'
FOURFOLD = '  - {name: fourfold, pattern: "Mul(x, 3.0)", replacement: "Mul(x, 4.0)"}\n'
SOFTSIGN = '  - {name: softsign, pattern: "Tanh(x)", replacement: "Softsign(x)"}\n'
ABS = '  - {name: no_neg, pattern: "Abs(Neg(x))", replacement: "Abs(x)"}\n'
CUT = '  - {name: no_abs, pattern: "Abs(x)", replacement: "x"}\n'


def rules(folder: Path, *lines: str) -> None:
    """Write a catalogue ``r.yaml``."""
    (folder / "r.yaml").write_text("dpl: 1\nrewrites:\n" + "".join(lines))


def found(answer: Answer) -> list[tuple[list[str], list[str]]]:
    """Return of each cause in a JSON record its culprits and what they build on."""
    return [
        (
            [f"{step['rule']}@{step['root']['output']}" for step in cause["culprits"]],
            [f"{step['rule']}@{step['root']['output']}" for step in cause["needed"]],
        )
        for cause in json.loads(answer.out)["causes"]
    ]


@pytest.fixture
def net(save: Save) -> Path:
    """Return a small net."""
    return save(NET)


def test_says_that_there_is_nothing_to_find(dpl: Dpl, folder: Path, net: Path) -> None:
    """Right rules: exit code 0, and no folder."""
    rules(folder, DOUBLE, ABS)

    answer = dpl("bisect", net, "-p", "r.yaml", "-o", "out")

    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (
        "Equivalent: 3 applications, none of them changes what m.onnx computes.\n"
    )
    assert not (folder / "out").exists()


def test_says_that_no_rule_applies(dpl: Dpl, folder: Path, net: Path) -> None:
    """Nothing done, nothing wrong."""
    rules(folder, '  - {name: n, pattern: "Cos(x)", replacement: "Sin(x)"}\n')
    answer = dpl("bisect", net, "-p", "r.yaml")
    assert (answer.code, answer.out) == (0, "Equivalent: no rule applies to m.onnx.\n")


def test_tells_the_culprit_from_what_it_builds_on(dpl: Dpl, folder: Path, net: Path) -> None:
    """A right rule makes what a wrong one is applied to: only the wrong one is blamed."""
    rules(folder, DOUBLE, TREBLE)

    answer = dpl("bisect", net, "-p", "r.yaml", "--json", "-", "-o", "out")

    assert answer.code == 1
    ((culprits, needed),) = found(answer)
    assert [item.split("@")[0] for item in culprits] == ["treble"]
    assert [item.split("@")[0] for item in needed] == ["double"]
    assert dpl("bisect", "--reproduce", "out/1").code == 1
    assert len(onnx.load(folder / "out/1/original.onnx").graph.node) == 1
    assert "They build on these" in (folder / "out/1/README.md").read_text()


def test_tolerance_of_an_output_is_that_of_its_reproducer(
    dpl: Dpl, folder: Path, save: Save
) -> None:
    """What only a tighter tolerance sees is found, by rules and in two models, and seen again."""
    text = "g (float[2, 8] x) => (float[2, 8] y) <float w = {%s}> { a = Abs (x)  y = Mul (a, w) }"
    net, other = save(text % "1.0", "m.onnx"), save(text % "1.0000003", "other.onnx")
    rules(folder, '  - {name: grow, pattern: "Abs(x)", replacement: "Sqrt(x * x * 1.0000005)"}\n')
    tight = ("--tolerance", "y=rtol:1e-7,atol:0")

    assert dpl("bisect", net, other).code == 0
    for what in ((net, other), (net, "-p", "r.yaml")):
        answer = dpl("bisect", *what, *tight, "-o", "out")

        assert answer.code == 1
        [spec] = (folder / "out").rglob("reproducer.json")
        assert dpl("bisect", "--reproduce", spec.parent).code == 1
        shutil.rmtree(folder / "out")


def test_names_what_could_not_be_judged(dpl: Dpl, folder: Path, net: Path) -> None:
    """What is applied to the result of a wrong rule goes with it, and that is said."""
    rules(folder, THRICE, FOURFOLD)

    answer = dpl("bisect", net, "-p", "r.yaml", "--json", "-")

    assert answer.code == 1
    record = json.loads(answer.out)
    assert {step["rule"] for c in record["causes"] for step in c["culprits"]} == {"thrice"}
    assert {step["rule"] for step in record["unjudged"]} == {"fourfold"}
    text = dpl("bisect", net, "-p", "r.yaml").out
    assert "Not judged: 2 applications that build on those of a rule found wrong." in text


def test_finds_rules_that_are_wrong_only_together(dpl: Dpl, folder: Path, save: Save) -> None:
    """Each of two is right by itself: minimal is the set of both."""
    net = save("g (float[2, 8] x) => (float[2, 8] y) { a = Abs (x)  b = Relu (a)  y = Abs (b) }")
    drop = '  - {name: drop, pattern: "Relu(x)", replacement: "x"}\n'
    inner = (
        '  - {name: inner, pattern: "Abs(x)", where: ["x.name == \'x\'"], replacement: "Neg(x)"}\n'
    )
    outer = '  - {name: outer, pattern: "Abs(x)", where: ["x.name != \'x\'"], replacement: "x"}\n'
    rules(folder, drop, inner, outer)

    answer = dpl("bisect", net, "-p", "r.yaml", "--json", "-")

    assert answer.code == 1
    named = [{item.split("@")[0] for item in culprits} for culprits, _ in found(answer)]
    assert named == [{"inner"}]


def test_a_mended_rule_no_longer_reproduces(dpl: Dpl, folder: Path, net: Path) -> None:
    """The rules in the folder are those that run: mended, exit code 0; gone, it is said."""
    rules(folder, SOFTSIGN)
    answer = dpl("bisect", net, "-p", "r.yaml", "-o", "out")
    assert answer.code == 1
    assert "reproduce: dpl bisect --reproduce out/1 (1 of 6 nodes)" in answer.out
    path = folder / "out/1/rules/r.yaml"

    path.write_text(path.read_text().replace("Softsign(x)", "Neg(Tanh(Neg(x)))"))
    mended = dpl("bisect", "--reproduce", "out/1")
    assert (mended.code, mended.out) == (0, "Equivalent: the fault is gone.\n")
    path.write_text(path.read_text().replace("Neg(Tanh(Neg(x)))", "Neg(Neg(x))"))
    assert dpl("bisect", "--reproduce", "out/1").code == 1
    path.write_text(path.read_text().replace("Tanh(x)", "Cos(x)"))
    gone = dpl("bisect", "--reproduce", "out/1")
    assert (gone.code, "do not apply there any more" in gone.out) == (0, True)


def test_the_place_of_the_catalogue_in_the_folder_follows_its_includes(
    dpl: Dpl, folder: Path, net: Path
) -> None:
    """A catalogue that includes one of a folder below is copied with it."""
    (folder / "sub").mkdir()
    rules(folder / "sub", SOFTSIGN)
    (folder / "top.yaml").write_text("dpl: 1\ntarget: t\ninclude: [sub/r.yaml]\n")
    assert dpl("bisect", net, "-p", "top.yaml", "-o", "out").code == 1
    (folder / "sub/r.yaml").unlink()
    assert dpl("bisect", "--reproduce", "out/1").code == 1


def test_a_reproducer_has_the_code_of_its_checks(dpl: Dpl, folder: Path, net: Path) -> None:
    """And what that imports: it runs where nothing else lies."""
    (folder / "c").mkdir()
    wrong = "{name: wrong, pattern: Tanh(x), replacement: Softsign(x), check: 'checks:ok'}"
    (folder / "c" / "r.yaml").write_text(f"dpl: 1\nrewrites: [{wrong}]\n")
    (folder / "c" / "checks.py").write_text("import helper\ndef ok(match): return helper.none\n")
    (folder / "c" / "helper.py").write_text("none = None\n")
    call = ("bisect", net, "-p", "c/r.yaml", "--allow-code", "-o", "out")
    assert dpl(*call).code == 1
    shutil.rmtree(folder / "c")
    assert dpl("bisect", "--reproduce", "out/1", "--allow-code").code == 1
    rules = {each.name for each in (folder / "out" / "1" / "rules").iterdir()}
    assert rules >= {"r.yaml", "checks.py", "helper.py"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "0 models are named"),
        (("m.onnx",), "one model is named and no rules"),
        (("m.onnx", "m.onnx", "m.onnx"), "3 models are named"),
        (("m.onnx", "-p", "r.yaml", "-o", "full"), "-o full: is not empty, so it is kept"),
        (("m.onnx", "-p", "r.yaml", "-o", "m.onnx"), "-o m.onnx: is not a folder"),
        (("m.onnx", "-p", "r.yaml", "-o", "no/where"), "-o no/where: there is no folder"),
        (("m.onnx", "--reproduce", "full"), "--reproduce DIR stands alone"),
        (("--reproduce", "full", "--rtol", "1"), "--reproduce DIR stands alone"),
        (("m.onnx", "m.onnx", "--min-power", "0.9"), "--mutants and --min-power measure a check"),
        (("--reproduce", "full"), "full/reproducer.json: cannot be read: No such file"),
        (("m.onnx", "-p", "r.yaml", "--by", "partition"), "r.yaml: no rules to apply"),
    ],
)
def test_refuses_what_cannot_be_meant(
    dpl: Dpl, folder: Path, net: Path, argv: tuple[str, ...], message: str
) -> None:
    """One message, exit code 2, and nothing is written."""
    rules(folder, SOFTSIGN)
    (folder / "full").mkdir()
    (folder / "full" / "file").write_text("kept")
    before = contents(folder)

    answer = dpl("bisect", *argv)

    assert answer.code == 2
    assert answer.message.startswith(message)
    assert contents(folder) == before
    assert net.is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: "{", "the file: Invalid JSON"),
        (lambda t: t.replace("dpl.reproducer/1", "dpl.reproducer/9"), "schema: "),
        (lambda t: t.replace("rules/r.yaml", "../r.yaml"), "'../r.yaml' is outside"),
        (lambda t: t.replace('"inputs": 1', '"inputs": 2'), "input_1.pb: there is no such file"),
        (lambda t: t.replace("CPUExecution", "NoExecution"), "json: --provider NoExecutionProvid"),
        (lambda t: t.replace('"timeout": 3600.0', '"timeout": 0.0'), "json: the time limit must"),
        (
            lambda t: t.replace('"options": []', '"options": [["x", "1"]]'),
            "json: --session-option x",
        ),
        (
            lambda t: t.replace('"tolerances": {}', '"tolerances": {"z": {}}'),
            "json: a toler",
        ),
        (lambda t: t.replace('"level": "disable"', '"level": "most"'), "level: "),
        (lambda t: t.replace('"coarsest": "float32"', '"coarsest": "float31"'), "coarsest: "),
        (lambda t: t.replace('"rtol": null', '"rtol": -1'), "rtol: "),
        (lambda t: t.replace('"atol": null', '"atol": NaN'), "atol: "),
    ],
)
def test_refuses_a_damaged_reproducer(
    dpl: Dpl, folder: Path, net: Path, change: object, message: str
) -> None:
    """One message that names the place, and exit code 2."""
    rules(folder, SOFTSIGN)
    assert dpl("bisect", net, "-p", "r.yaml", "-o", "out").code == 1
    path = folder / "out/1/reproducer.json"
    assert callable(change)
    path.write_text(change(path.read_text()))

    answer = dpl("bisect", "--reproduce", "out/1")

    assert (answer.code, message in answer.message) == (2, True), answer


def test_an_original_that_does_not_run_is_no_answer(dpl: Dpl, folder: Path, save: Save) -> None:
    """Exit code 2, for rules and for two models."""
    net = save("g (float[2] x) => (float[2] y) { a = Tanh (x)  y = com.microsoft.Nothing (a) }")
    text = "g (float[2] x) => (float[2] y) { a = Abs (x)  y = com.microsoft.Nothing (a) }"
    rules(folder, SOFTSIGN)
    for argv in ((net, "-p", "r.yaml"), (net, save(text, "other.onnx"))):
        answer = dpl("bisect", *argv, "-o", "out")
        assert answer.code == 2
        assert answer.message.startswith("onnxruntime does not run the original model")
        assert not (folder / "out").exists()


def test_finds_where_two_models_part(dpl: Dpl, folder: Path, net: Path, save: Save) -> None:
    """Names are all others, and misleading: what counts is what flows in."""
    other = """g (float[2, 8] x) => (float[2, 8] y) {
        v = Add (x, x)  u = Tanh (v)  t = Neg (u)  [k] s = Softplus (t)
        w0 = Sigmoid (s)  y = Add (w0, w0) }"""
    candidate = save(other, "c.onnx")

    answer = dpl("bisect", net, candidate, "-o", "out", "--json", "-")

    assert answer.code == 1
    place = json.loads(answer.out)["place"]
    assert place["nodes"] == {"original": ["Abs 'v'"], "candidate": ["Softplus 's'"]}
    assert dpl("bisect", "--reproduce", "out").code == 1
    assert len(onnx.load(folder / "out/original.onnx").graph.node) == 1
    assert "dpl bisect --reproduce ." in (folder / "out/README.md").read_text()


# A normalisation inside steps: the tolerance of the output is too wide to see it.
STEPS = """g (float[4, 8] x) => (float[4, 8] y)
    <float one = {1}, float[8] g = {1, 1, 1, 1, 1, 1, 1, 1}, float s = {0.02}, uint8 z = {128}> {
    a = Add (x, one)  l = LayerNormalization <epsilon = EPSILON> (a, g)
    q = QuantizeLinear (l, s, z)  d = DequantizeLinear (q, s, z)  m = Mul (d, d)
    y = Softmax (m) }"""
WIDER = (
    '  - {name: wider, pattern: "LayerNormalization(x, g, **_)", once: true, '
    'replacement: "LayerNormalization(x, g, axis=-1, epsilon=0.001)"}\n'
)
TURNED = '  - {name: turned, pattern: "Mul(x, x)", once: true, replacement: "Pow(x, 2.0)"}\n'


def test_finds_a_place_that_only_its_own_run_shows(dpl: Dpl, folder: Path, save: Save) -> None:
    """No output is outside its tolerance; the folder shows it, and can be verified like a model."""
    net, other = (save(STEPS.replace("EPSILON", e), f"m{e}.onnx") for e in ("1e-12", "1e-5"))

    answer = dpl("bisect", net, other, "-o", "out", "--json", "-")

    assert answer.code == 1
    record = json.loads(answer.out)
    assert all(output["ok"] for output in record["verification"]["outputs"])
    layer = ["LayerNormalization 'l'"]
    assert record["place"]["nodes"] == {"original": layer, "candidate": layer}
    again = dpl("bisect", "--reproduce", "out", "--json", "-")
    assert again.code == 1
    assert json.loads(again.out)["verification"]["regions"]["differing"]
    pair = ("out/original.onnx", "out/candidate.onnx")
    assert dpl("verify", *pair, "--inputs", "out/test_data_set_0").code == 1
    shutil.copyfile(folder / pair[0], folder / pair[1])
    assert dpl("bisect", "--reproduce", "out").code == 0


@pytest.mark.long
def test_finds_a_rule_that_only_its_own_run_shows(dpl: Dpl, folder: Path, save: Save) -> None:
    """The rule that is right is not blamed, and the folder shows the fault by the same rules."""
    net = save(STEPS.replace("EPSILON", "1e-12"))
    rules(folder, TURNED, WIDER)

    answer = dpl("bisect", net, "-p", "r.yaml", "-o", "out", "--json", "-")

    assert (answer.code, json.loads(answer.out)["applications"]) == (1, 2)
    ((culprits, needed),) = found(answer)
    assert (culprits, needed) == (["wider@l"], [])
    assert dpl("bisect", "--reproduce", "out/1").code == 1
    path = folder / "out/1/rules/r.yaml"
    path.write_text(path.read_text().replace("0.001", "1e-12"))
    assert dpl("bisect", "--reproduce", "out/1").code == 0


def test_a_part_gets_the_names_of_the_other(dpl: Dpl, folder: Path, save: Save) -> None:
    """Names that stand for other values there give way, those that bodies read, too."""
    net = save("""g (float[4] x, bool c) => (float[4] y) {
        t = Tanh (x)  u = Exp (t)  y = Neg (u) }""")
    other = save(
        """g (float[4] x, bool c) => (float[4] y) {
        u = Tanh (x)  t = Sin (u)  w = If (c) <
            then_branch = p () => (float[4] h) { h = Add (t, u) },
            else_branch = q () => (float[4] k) { k = Add (u, t) }>
        y = Neg (w) }""",
        "c.onnx",
    )

    assert dpl("bisect", net, other, "-o", "out").code == 1

    ours, theirs = (onnx.load(folder / f"out/{name}.onnx") for name in ("original", "candidate"))
    assert ours.graph.input == theirs.graph.input
    assert ours.graph.output == theirs.graph.output
    t = np.array([0.1, -0.2, 0.3, 0.9], np.float32)
    feeds = {"t": t, "c": np.array(True)}  # noqa: FBT003  # a value that is fed
    (made,) = ReferenceEvaluator(theirs).run(None, feeds)
    assert np.allclose(made, np.sin(t) + t)


@pytest.mark.long
@pytest.mark.parametrize("option", [None, "intra_op_num_threads=1"])
def test_a_reproducer_runs_as_the_check_did(
    dpl: Dpl, folder: Path, save: Save, monkeypatch: pytest.MonkeyPatch, option: str | None
) -> None:
    """Session options and limits are kept, and are in force when it is run again."""
    seen = list[Execution]()

    def watched(*given: Any, **named: Any) -> VerificationResult:  # noqa: ANN401  # as for compare
        seen.append(given[2].execution)
        return compare(*given, **named)

    rules(folder, SOFTSIGN)
    more = () if option is None else ("--session-option", option)
    asked = ("-p", "r.yaml", "--timeout", "50", *more, "-o", "out")
    assert dpl("bisect", save(NET), *asked).code == 1
    monkeypatch.setattr("dplcli.pipeline.bisecting.compare", watched)

    path = folder / "out/1/reproducer.json"
    assert dpl("bisect", "--reproduce", path.parent).code == 1
    options = () if option is None else (("intra_op_num_threads", "1"),)
    assert seen == [Execution(options=options, timeout=50)]
    kept = json.loads(path.read_text())
    kept["execution"]["memory_limit"] = 3000
    path.write_text(json.dumps(kept))
    assert dpl("bisect", "--reproduce", path.parent).code == 1
    assert seen[-1] == Execution(options=options, timeout=50, memory_limit=3000)


@pytest.mark.long
@pytest.mark.parametrize("how", ["rules", "models", "reproduce"])
def test_every_form_says_what_was_found(
    dpl: Dpl, folder: Path, net: Path, save: Save, how: str
) -> None:
    """JUnit, SARIF, Markdown and HTML hold the verdict; SARIF has the rule's line."""
    rules(folder, DOUBLE, SOFTSIGN)
    other = save(NET.replace("Tanh (s)", "Softsign (s)"), "c.onnx")
    assert dpl("bisect", net, other, "-o", "out").code == 1
    argv = {
        "rules": (net, "-p", "r.yaml"),
        "models": (net, other),
        "reproduce": ("--reproduce", "out"),
    }
    forms = {form: folder / f"r.{form}" for form in ("junit", "sarif", "markdown", "html")}
    asked = [word for form, path in forms.items() for word in (f"--{form}", path)]

    assert dpl("bisect", *argv[how], *asked).code == 1

    said = {form: path.read_text() for form, path in forms.items()}
    cases = list(ET.fromstring(said["junit"]).iter("testcase"))  # noqa: S314  # our own text
    assert cases[0].find("failure") is not None
    assert all("NOT equivalent" in text for text in said.values())
    assert all("outside the tolerance" in text for text in said.values())
    (run,) = json.loads(said["sarif"])["runs"]
    lines = [
        result["locations"][0]["physicalLocation"]["region"]["startLine"]
        for result in run["results"]
    ]
    if how == "rules":
        assert lines == [4]
        wrong = {case.get("name"): case.find("failure") is not None for case in cases[1:]}
        assert wrong == {"m.onnx: double": False, "m.onnx: softsign": True}
    else:
        assert lines == []
    if how == "models":
        page = unescape(said["html"])
        assert "They part at 't'" in page
        assert "original:  Tanh 't'" in page
        assert "candidate: Softsign 't'" in page
        assert "they part at 't'" in said["markdown"]


def test_two_models_alike_have_no_place(dpl: Dpl, folder: Path, net: Path) -> None:
    """Exit code 0, and nothing is written."""
    answer = dpl("bisect", net, net, "-o", "out")
    assert (answer.code, answer.out) == (0, "Equivalent: m.onnx computes what m.onnx does.\n")
    assert not (folder / "out").exists()


def test_another_signature_has_no_place(dpl: Dpl, net: Path, save: Save) -> None:
    """That is an answer: exit code 1, with the reason."""
    other = save("g (float[2, 8] z) => (float[2, 8] y) { y = Tanh (z) }", "c.onnx")
    answer = dpl("bisect", net, other)
    assert answer.code == 1
    assert "the candidate has no input 'x'" in answer.out


@pytest.mark.long
def test_verify_shows_the_values_inside(dpl: Dpl, folder: Path, net: Path, save: Save) -> None:
    """A row per value, the first that differs named; without --layers nothing of it."""
    other = save(NET.replace("Tanh (s)", "Softsign (s)"), "c.onnx")

    answer = dpl("verify", net, other, "--layers")

    assert answer.code == 1
    assert "5 differ; the first is 't' (Tanh)." in answer.out
    record = json.loads(dpl("verify", net, other, "--layers", "--json", "-").out)
    assert record["layers"]["first"] == "t"
    assert [layer["ok"] for layer in record["layers"]["layers"]] == [True] + [False] * 5
    assert "layers" not in json.loads(dpl("verify", net, other, "--json", "-").out)
    assert sorted(path.name for path in folder.iterdir()) == ["c.onnx", "m.onnx"]
