"""``dpl learn``: a rule for the subgraph that somebody points at."""

import json
from pathlib import Path

import onnx.parser
import pytest

from tests.cli.support import SAMPLES, Answer, Dpl, Save, contents

TEXT = "g (float[2] x) => (y) { [a] t = Abs (x) [b] s = Neg (t) [c] y = Add (t, s) }"
TWICE = "g (float[2] x) => (y) { [n] t = Abs (x) [n] y = Neg (t) }"
GAP = "g (float[2] x) => (y) { t = Abs (x) s = Neg (t) y = Relu (s) }"
CATALOGUE = """\
dpl: 1
target: custom
doc: Learned from m.onnx.
constants: lift
patterns:
  - name: abs_neg
    doc: "Learned from 2 nodes of m.onnx: Abs 'a', Neg 'b'."
    pattern: |
      abs_1 = Abs(x)
      neg = Neg(abs_1)
      abs_1, neg
"""


def test_prints_the_catalogue(dpl: Dpl, save: Save) -> None:
    """The catalogue goes to standard output, and a word on it to standard error."""
    answer = dpl("learn", save(TEXT), "--nodes", "a,b")
    assert (answer.code, answer.out) == (0, CATALOGUE)
    assert answer.err.splitlines() == [
        "dpl: learned custom.abs_neg from 2 nodes: 1 match in m.onnx.",
        "dpl: hint: write it with -o FILE, then: dpl match m.onnx --patterns FILE",
    ]


@pytest.mark.parametrize(
    "names",
    [
        ("--nodes", "t,s"),
        ("--nodes", " b , a ,"),
        ("--nodes", "b", "--nodes", "a"),
        ("--nodes", "a,b,a,s"),
    ],
    ids=["values", "blanks", "repeated", "twice"],
)
def test_names_nodes_in_any_way(dpl: Dpl, save: Save, names: tuple[str, ...]) -> None:
    """Nodes are named by themselves or by what they make, in any order."""
    answer = dpl("learn", save(TEXT), *names, "--quiet")
    assert (answer.code, answer.out, answer.err) == (0, CATALOGUE, "")


def test_writes_a_file_that_other_commands_read(dpl: Dpl, folder: Path) -> None:
    """What was learned from one block of the net, dpl match finds 33 times."""
    net = SAMPLES / "light_resnet50.onnx"
    answer = dpl("learn", net, "--nodes", "n36,n37,n38", "--name", "block", "-o", "rules.yaml")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == ("Learned custom.block from 3 nodes: 33 matches in light_resnet50.onnx.\n")
    assert list(contents(folder)) == ["rules.yaml"]
    matched = dpl("match", net, "--patterns", "rules.yaml", "--expect", "custom.block==33")
    assert matched.code == 0


def test_verbose_says_what_is_kept(dpl: Dpl, save: Save) -> None:
    """The notes come with the summary, wherever that goes."""
    path = save("g (float[2] x) => (y) { y = LeakyRelu <alpha = 0.5> (x) }")
    note = "note: LeakyRelu 'y' leaves alpha free"
    answer = dpl("learn", path, "--nodes", "y", "-v", "-o", "rules.yaml")
    assert answer.out.splitlines()[1:] == [note]
    assert f"dpl: {note}" in dpl("learn", path, "--nodes", "y", "-v").err.splitlines()


def test_exact_target_and_name(dpl: Dpl, save: Save) -> None:
    """Each option shows in the catalogue."""
    path = save("g (float[2] x) => (y) { y = LeakyRelu <alpha = 0.5> (x) }")
    answer = dpl("learn", path, "--nodes", "y", "--exact", "--name", "leaky", "--target", "dnnl")
    assert "target: dnnl\n" in answer.out
    assert "- name: leaky\n" in answer.out
    assert "LeakyRelu(x, alpha=0.5)\n" in answer.out


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (TEXT, (), ("no node is named", "dpl inspect --nodes lists the names")),
        (TEXT, ("--nodes", " , "), ("no node is named", "dpl inspect --nodes lists the names")),
        (
            TEXT,
            ("--nodes", "a,bb"),
            ("'bb': no node has this name or makes a value of this name", "did you mean 'b'?"),
        ),
        (
            TWICE,
            ("--nodes", "n"),
            ("'n': 2 nodes have this name", "name a value that it makes instead"),
        ),
        (
            GAP,
            ("--nodes", "t,y"),
            ("Neg 's' lies between the nodes named", "add it to the nodes"),
        ),
        (
            TEXT,
            ("--nodes", "a", "--name", "a-b"),
            ("name: 'a-b' is not a name: letters, digits and _", ""),
        ),
        (
            TEXT,
            ("--nodes", "a", "--target", "ai.onnx"),
            ("target: 'ai.onnx': the standard's own domains cannot be a target", ""),
        ),
        (TEXT, ("--nodes", "a", "-o", "m.onnx"), ("m.onnx: exists", "choose another name")),
        (
            TEXT,
            ("--nodes", "a", "-o", "no/rules.yaml"),
            ("no/rules.yaml: there is no folder 'no'", ""),
        ),
    ],
)
def test_says_what_is_wrong(
    dpl: Dpl, save: Save, text: str, options: tuple[str, ...], said: tuple[str, str]
) -> None:
    """What cannot be done ends with 2, one message and a hint, and nothing written."""
    path = save(text)
    before = contents(path.parent)
    answer = dpl("learn", path, *options)
    assert (answer.code, answer.message, answer.hint, answer.out) == (2, *said, "")
    assert contents(path.parent) == before


# Rules that lead from one model to another.


OLD = "g (float[2,3] x) => (y) { [a] s = Softmax <axis = 1> (x) [b] y = Log (s) }"
NEW = "g (float[2,3] x) => (y) { y = LogSoftmax <axis = 1> (x) }"
REWRITES = """\
dpl: 1
doc: Learned from a.onnx and b.onnx.
rewrites:
  - name: log_softmax
    doc: Learned from 1 place, one at Softmax 'a', Log 'b'.
    pattern: |
      softmax = Softmax(x, axis=axis)
      log_1 = Log(softmax)
      log_1
    replacement: LogSoftmax(x, axis=axis)
    examples:
"""
SAID = [
    "log_softmax: 1 place, tried on 400 graphs made up for it",
    "1 rule explains 1 of 1 changed place.",
    "What they make of a.onnx is equivalent to it in onnxruntime.",
]


def said(answer: Answer) -> list[str]:
    """Return what was said but for how long it takes, which depends on the machine."""
    return [line for line in answer.err.splitlines() if not line.startswith("dpl: still ")]


@pytest.mark.long
def test_learns_from_two_models(dpl: Dpl, save: Save) -> None:
    """The catalogue goes to standard output, and what it explains to standard error."""
    answer = dpl("learn", "--before", save(OLD, "a.onnx"), "--after", save(NEW, "b.onnx"))
    assert answer.code == 0
    assert answer.out.startswith(REWRITES)
    assert said(answer) == [f"dpl: {line}" for line in SAID]


@pytest.mark.long
def test_two_models_to_a_file(dpl: Dpl, save: Save, folder: Path) -> None:
    """The file is a catalogue that makes the one model of the other; the record says the rest."""
    pair = ("--before", save(OLD, "a.onnx"), "--after", save(NEW, "b.onnx"))
    answer = dpl("learn", *pair, "--name", "soft", "-o", "rules.yaml", "--json", "learned.json")
    # a slow machine is told after 30 seconds what takes so long
    complaints = [line for line in answer.err.splitlines() if "dpl: still " not in line]
    assert (answer.code, complaints) == (0, [])
    assert answer.out.splitlines() == [SAID[0].replace("log_softmax", "soft"), *SAID[1:]]
    record = json.loads(Path("learned.json").read_text(encoding="utf-8"))
    assert record["schema"] == "dpl.learn/1"
    assert (record["explained"], record["left"], record["beyond"]) == (1, [], 0)
    assert record["verification"]["equivalent"]
    (rule,) = record["rules"]
    assert (rule["name"], rule["places"], rule["trial"]["verdict"]) == ("soft", 1, "passed")
    assert dpl("patterns", "check", "rules.yaml").code == 0
    made = dpl("rewrite", "a.onnx", "-p", "rules.yaml", "-o", "c.onnx", "--expect", "soft==1")
    assert made.code == 0
    assert dpl("diff", "c.onnx", "b.onnx").code == 0
    assert {*contents(folder)} == {"a.onnx", "b.onnx", "c.onnx", "learned.json", "rules.yaml"}


def test_two_models_without_a_rule(dpl: Dpl, save: Save, folder: Path) -> None:
    """Without a rule the answer is no, and no catalogue is written."""
    first, second = save(OLD, "a.onnx"), save(OLD, "b.onnx")
    answer = dpl("learn", "--before", first, "--after", second, "-o", "rules.yaml")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == "dpl: a.onnx and b.onnx differ in no node: nothing to learn.\n"
    assert {*contents(folder)} == {"a.onnx", "b.onnx"}


@pytest.mark.long
def test_two_models_and_a_wrong_rule(dpl: Dpl, save: Save) -> None:
    """A rule that is wrong elsewhere is not written; -v shows the graph that it is wrong for."""
    new = "g (float[2,3] x) => (y) { y = Log (x) }"
    pair = ("--before", save(OLD, "a.onnx"), "--after", save(new, "b.onnx"))
    answer = dpl("learn", *pair, "-v", "-o", "r.yaml")
    assert (answer.code, answer.out, Path("r.yaml").exists()) == (1, "", False)
    assert "dpl: No rule explains the 1 changed place:\n  1 x Softmax -> nothing" in answer.err
    assert ": the rule learned from it is wrong: " in answer.err
    assert "softmax = Softmax" in answer.err
    assert "softmax = Softmax" not in dpl("learn", *pair).err


@pytest.mark.long
def test_two_models_that_cannot_be_run(dpl: Dpl, save: Save) -> None:
    """A result that onnxruntime has no operator for is not called wrong."""
    own = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[2,3] x) => (float[2,3] y) '
    first = save(onnx.parser.parse_model(own + "{ s = Softmax (x) y = Log (s) }"), "a.onnx")
    second = save(onnx.parser.parse_model(own + "{ y = my.Foo (x) }"), "b.onnx")
    pair = ("--before", first, "--after", second)
    answer = dpl("learn", *pair, "--unproved")
    reason = "onnxruntime has no my.Foo"
    assert answer.code == 0
    first_line, *others = said(answer)
    assert first_line.startswith("dpl: foo: 1 place, not proved: onnxruntime runs none ")
    assert first_line.endswith(reason)
    assert others == [
        "dpl: 1 rule explains 1 of 1 changed place.",
        "dpl: warning: what the rules make of a.onnx could not be run: onnxruntime has no my.Foo",
    ]
    assert f"{reason}.\n  - name: foo\n" in answer.out


@pytest.mark.long
def test_a_rule_that_is_not_proved_is_commented_out(dpl: Dpl, save: Save) -> None:
    """The catalogue shows it and says why; the answer is no, since no rule does anything."""
    own = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[2,3] x) => (float[2,3] y) '
    first = save(onnx.parser.parse_model(own + "{ s = Softmax (x) y = Log (s) }"), "a.onnx")
    second = save(onnx.parser.parse_model(own + "{ y = my.Foo (x) }"), "b.onnx")
    answer = dpl("learn", "--before", first, "--after", second, "-o", "rules.yaml")
    assert answer.code == 1
    assert answer.out.splitlines()[1] == (
        "1 rule that is not proved stands in the catalogue as comments (--unproved writes all)."
    )
    written = Path("rules.yaml").read_text(encoding="utf-8")
    assert "rewrites: []\n  # Not proved: " in written
    assert "  # - name: foo\n" in written
    assert dpl("patterns", "check", "rules.yaml").code == 0


def test_nodes_as_json(dpl: Dpl, save: Save) -> None:
    """The record has the rule, and how often it matches."""
    path = save(TEXT)
    answer = dpl("learn", path, "--nodes", "a,b", "-o", "rules.yaml", "--json", "-")
    (rule,) = json.loads(answer.out)["rules"]
    assert (rule["name"], rule["matches"]) == ("custom.abs_neg", 1)
    both = dpl("learn", path, "--nodes", "a,b", "--json", "-")
    assert (both.code, both.message) == (2, "--json - and the catalogue both want standard output")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), ("no model is named", "pass MODEL --nodes NAMES, or --before FILE --after FILE")),
        (("--before", "a.onnx"), ("--before without --after", "pass --after FILE as well")),
        (("--after", "a.onnx"), ("--after without --before", "pass --before FILE as well")),
        *(
            (
                ("--before", "a.onnx", "--after", "a.onnx", *others),
                (
                    f"{others[0].replace('a.onnx', 'MODEL')} does not go with --before and --after",
                    "rules are learned from nodes of one model, or from two models",
                ),
            )
            for others in (("a.onnx",), ("--nodes", "a"), ("--target", "dnnl"), ("--exact",))
        ),
        *(
            (
                ("a.onnx", "--nodes", "a", *option),
                (
                    f"{option[0]} goes only with --before and --after",
                    "rules are learned from nodes of one model, or from two models",
                ),
            )
            for option in (("--no-verify",), ("--unproved",), ("--budget", "7"))
        ),
        (
            ("--before", "a.onnx", "--after", "a.onnx", "-o", "a.onnx"),
            ("a.onnx: exists", "choose another name"),
        ),
    ],
)
def test_two_models_or_nodes_of_one(
    dpl: Dpl, save: Save, options: tuple[str, ...], said: tuple[str, str]
) -> None:
    """What does not go together is refused before any work is done."""
    save(OLD, "a.onnx")
    answer = dpl("learn", *options)
    assert (answer.code, answer.message, answer.hint, answer.out) == (2, *said, "")


@pytest.mark.long
def test_the_same_bytes_in_every_run(save: Save, dpl_process: Dpl) -> None:
    """Which operand of a product comes first does not depend on how Python mixes its hashes."""
    old = """g (float[2] x) => (float[2] y) <float half = {0.5}> {
        a = Neg (x) b = Exp (x) c = Mul (a, b) d = Tanh (x) e = Mul (c, d) y = Mul (e, half) }"""
    new = """g (float[2] x) => (float[2] y) <float half = {0.5}> {
        a = Neg (x) b = Exp (x) c = Mul (a, b) d = Tanh (x) p = Mul (d, half) y = Mul (c, p) }"""
    pair = ("--before", save(old, "a.onnx"), "--after", save(new, "b.onnx"))
    answers = {dpl_process("learn", *pair, PYTHONHASHSEED=seed).out for seed in ("1", "2")}
    (text,) = answers
    assert "mul_1 = Mul(" in text
