"""``dpl learn``: a rule for the subgraph that somebody points at."""

from pathlib import Path

import pytest

from tests.cli.support import SAMPLES, Dpl, Save, contents

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
        (TEXT, (), ("no node is named", "pass --nodes NAME,NAME,…")),
        (TEXT, ("--nodes", " , "), ("no node is named", "pass --nodes NAME,NAME,…")),
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
