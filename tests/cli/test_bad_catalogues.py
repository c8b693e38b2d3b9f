"""Bad catalogues: the message has file, line, column and a caret; exit code 2, nothing left."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.support import Answer, Dpl, contents

HEAD = "dpl: 1\ntarget: t\npatterns:\n  - name: r\n"


def partition_with(dpl: Dpl, folder: Path, catalogue: str | bytes) -> Answer:
    """Partition with this catalogue; check that it is refused and nothing is left behind."""
    data = catalogue.encode() if isinstance(catalogue, str) else catalogue
    (folder / "rules.yaml").write_bytes(data)
    before = contents(folder)
    answer = dpl("partition", "m.onnx", "--patterns", "rules.yaml", "-o", "out.onnx")
    assert answer.code == 2
    assert answer.out == ""
    assert contents(folder) == before
    return answer


# What is wrong, and the text under the caret.
POINTED = {
    "python-tag": (
        'dpl: 1\ntarget: t\npatterns: !!python/object/apply:os.system ["touch pwned"]\n',
        "the tag !!python/object/apply:os.system means nothing here",
        "!!python",
    ),
    "tag-of-a-name": (f"{HEAD}    pattern: !foo Relu(x)\n", "the tag !foo means", "!foo"),
    "tag-of-a-key": (f"{HEAD}    !foo pattern: Relu(x)\n", "the tag !foo means", "!foo"),
    "tag-of-a-mapping": (f"--- !foo\n{HEAD}    pattern: Relu(x)\n", "the tag !foo means", "!foo"),
    "binary": (f"{HEAD}    pattern: !!binary UmVsdQ==\n", "the tag !!binary means", "!!binary"),
    "set": (f"{HEAD}    pattern: !!set {{a}}\n", "the tag !!set means", "!!set"),
    "timestamp": (f"{HEAD}    pattern: !!timestamp 2020-01-01\n", "!!timestamp", "!!timestamp"),
    "pairs": (f"{HEAD}    where: !!pairs [a: 1]\n", "the tag !!pairs means", "!!pairs"),
    "tag-on-the-wrong-kind": (f"{HEAD}    pattern: !!map Relu(x)\n", "the tag !!map", "!!map"),
    "verbatim-tag": (f"{HEAD}    pattern: !<x:y> Relu(x)\n", "the tag x:y means", "!<x:y>"),
    "unclosed-list": (f"{HEAD}    pattern: [Relu\n    doc: x\n", "not valid YAML", None),
    "list-open-at-the-end": (f"{HEAD}    pattern: [Relu\n", "not valid YAML", None),
    "tab": (f"{HEAD}\tpattern: Relu(x)\n", "not valid YAML", None),
    "key-twice": (
        f"{HEAD}    pattern: Relu(x)\n    pattern: Abs(x)\n",
        "not valid YAML",
        "pattern",
    ),
    "undefined-alias": (f"{HEAD}    pattern: *nothing\n", "not valid YAML", "*nothing"),
    "unknown-operator": (f"{HEAD}    pattern: Rellu(x)\n", "unknown operator 'Rellu'", "Rellu"),
    "unknown-operator-in-a-block": (
        f"{HEAD}    pattern: |\n      c = Conv(x, w)\n      Reelu(c)\n",
        "unknown operator 'Reelu'",
        "Reelu",
    ),
    "unknown-operator-inside": (f"{HEAD}    pattern: Relu(Konv(x, w))\n", "'Konv'", "Konv"),
    "too-many-inputs": (f"{HEAD}    pattern: Relu(x, y)\n", "at most 1 input", "Relu"),
    "unclosed-parenthesis": (f"{HEAD}    pattern: Relu(x\n", "never closed", "("),
    "empty-pattern": (f'{HEAD}    pattern: ""\n', "rule 'r'", None),
    "pattern-missing": (HEAD, "'pattern' is missing", None),
    "pattern-is-a-number": (f"{HEAD}    pattern: 3\n", "pattern: ", None),
    "unbound-in-where": (
        f"{HEAD}    pattern: Relu(x)\n    where: [y.rank == 2]\n",
        "uses the name 'y', which the pattern does not bind",
        "y.rank",
    ),
    "where-no-expression": (
        f"{HEAD}    pattern: Relu(x)\n    where: ['x.rank =']\n",
        "x.rank =",
        None,
    ),
    "where-calls-something": (
        f"{HEAD}    pattern: Relu(x)\n    where: ['open(\"f\")']\n",
        "'open', which does not exist",
        None,
    ),
    "unknown-key": (f"{HEAD}    pattern: Relu(x)\n    wher: []\n", "unknown key 'wher'", "wher"),
    "unknown-top-key": ("dpl: 1\ntarget: t\npattern: []\n", "unknown key 'pattern'", "pattern"),
    "other-version": ("dpl: 2\ntarget: t\n", "dpl: ", "dpl: 2"),
    "no-target": ("dpl: 1\npatterns: []\n", "'target' is missing", None),
    "name-with-a-space": (
        "dpl: 1\ntarget: t\npatterns: [{name: a b, pattern: Relu(x)}]\n",
        "a b",
        None,
    ),
    "missing-include": ("dpl: 1\ntarget: t\ninclude: [gone.yaml]\n", "'gone.yaml'", "gone.yaml"),
    "constants-misspelt": (f"{HEAD}    pattern: Relu(x)\n    constants: lifted\n", "lifted", None),
}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(("text", "message", "pointed"), POINTED.values(), ids=POINTED)
def test_a_mistake_in_a_catalogue_is_pointed_at(
    dpl: Dpl, folder: Path, text: str, message: str, pointed: str | None
) -> None:
    """File, line and column, the line itself, and a caret below the culprit."""
    answer = partition_with(dpl, folder, text)

    place = re.match(r"rules\.yaml:(\d+):(\d+): ", answer.message)
    assert place is not None, answer.message
    assert message in answer.message
    first, excerpt, caret = answer.message.split("\n")
    line, column = (int(number) for number in place.groups())
    assert excerpt[4:] == text.splitlines()[line - 1]
    assert caret.index("^") == 4 + column - 1
    assert first
    if pointed is not None:
        assert excerpt[caret.index("^") :].startswith(pointed)


HINTED = {
    "operator": (f"{HEAD}    pattern: Rellu(x)\n", "did you mean 'Relu'?"),
    "key": (f"{HEAD}    pattern: Relu(x)\n    wher: []\n", "did you mean 'where'?"),
    "top-key": ("dpl: 1\ntarget: t\npattern: []\n", "did you mean 'patterns'?"),
    "name-in-where": (
        f"{HEAD}    pattern: Relu(picture)\n    where: [pictur.rank == 2]\n",
        "did you mean 'picture'?",
    ),
    "fact-in-where": (
        f"{HEAD}    pattern: Relu(x)\n    where: [x.rnak == 2]\n",
        "did you mean 'rank'?",
    ),
    "attribute": (
        f"{HEAD}    pattern: LeakyRelu(x, alfa=0.5)\n",
        "did you mean 'alpha'?",
    ),
}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(("text", "hint"), HINTED.values(), ids=HINTED)
def test_a_typo_in_a_catalogue_is_recognised(dpl: Dpl, folder: Path, text: str, hint: str) -> None:
    """The hint says what was probably meant."""
    assert hint in partition_with(dpl, folder, text).hint


WHOLE = {
    "empty": ("", "rules.yaml: is not a catalogue"),
    "only-a-comment": ("# nothing\n", "rules.yaml: is not a catalogue"),
    "a-list": ("- a\n", "rules.yaml: is not a catalogue"),
    "prose": ("just a line\n", "rules.yaml: is not a catalogue"),
    "no-rules": ("dpl: 1\ntarget: t\n", "no rules to apply"),
    "not-text": (b"\xff\xfe\x00", "is not UTF-8"),
    "a-model": (b"\x08\x07\x12\x00\x80\x81", "rules.yaml: "),
}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(("data", "message"), WHOLE.values(), ids=WHOLE)
def test_a_file_that_is_no_catalogue_is_refused(
    dpl: Dpl, folder: Path, data: str | bytes, message: str
) -> None:
    """One line that names the file."""
    answer = partition_with(dpl, folder, data)

    assert message in answer.message
    assert "\n" not in answer.message


TAGGED = {
    "text": f"{HEAD}    pattern: !!str Relu(x)\n",
    "list": f"{HEAD}    pattern: Relu(x)\n    where: !!seq [x.rank == 4]\n",
    "mapping": f"--- !!map\n{HEAD}    pattern: Relu(x)\n",
    "not-equal": f"{HEAD}    pattern: Relu(x)\n    where: [x.rank != 3]\n",
    "merged": f"{HEAD}    <<: {{pattern: Relu(x)}}\n",
}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("text", TAGGED.values(), ids=TAGGED)
def test_a_tag_that_says_what_is_there_changes_nothing(dpl: Dpl, folder: Path, text: str) -> None:
    """And what only looks like one is none."""
    (folder / "rules.yaml").write_text(text, encoding="utf-8")

    answer = dpl("match", "m.onnx", "-p", "rules.yaml")

    assert (answer.code, answer.err) == (0, "")
    assert "t.r" in answer.out


def test_what_came_with_a_merge_has_a_place(dpl: Dpl, folder: Path) -> None:
    """That of the mapping that it came into."""
    (folder / "rules.yaml").write_text(f"{HEAD}    <<: {{pattern: Rellu(x)}}\n", encoding="utf-8")

    answer = dpl("patterns", "check", "rules.yaml")

    assert answer.code in {1, 2}
    assert "unknown operator 'Rellu'" in answer.out + answer.err
    assert "internal error" not in answer.err


@pytest.mark.usefixtures("model")
def test_two_rules_of_one_name_are_refused(dpl: Dpl, folder: Path) -> None:
    """The message gives both places, in one file or in two."""
    rule = "  - name: r\n    pattern: Relu(x)\n"
    answer = partition_with(dpl, folder, f"dpl: 1\ntarget: t\npatterns:\n{rule}{rule}")

    assert "the rule 't.r' is " in answer.message
    assert "rules.yaml:4" in answer.message
    assert "rules.yaml:6" in answer.message


NAMED = {
    "target": (("--target", "dnll"), "dnll: no such catalogue", "did you mean 'dnnl'?"),
    "patterns": (("-p", "conv_rleu"), "conv_rleu: no such catalogue", "did you mean 'conv_relu'?"),
    "suffix": (("-p", "conv_relu.yml"), "conv_relu.yml: no such", "did you mean 'conv_relu'?"),
    "second": (("-p", "dnnl", "-p", "dnlnl"), "dnlnl: no such", "did you mean 'dnnl'?"),
    "unlike-any": (("-p", "qwertz"), "qwertz: no such catalogue", "cublas, cutlass, dnnl"),
    "missing-file": (("-p", "sub/rules.yaml"), "sub/rules.yaml: no such catalogue", "conv_relu"),
    "directory": (("-p", "."), "is a directory", ""),
    "empty": (("-p", ""), "no such catalogue", ""),
    "none": ((), "no catalogue is named", "--patterns"),
}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", ["partition", "match", "rewrite"])
@pytest.mark.parametrize(("options", "message", "hint"), NAMED.values(), ids=NAMED)
def test_a_catalogue_that_is_not_there_is_named(  # noqa: PLR0913, PLR0917  # fixtures
    dpl: Dpl, folder: Path, options: tuple[str, ...], message: str, hint: str, command: str
) -> None:
    """The message names what was asked for, the hint what there is."""
    before = contents(folder)

    answer = dpl(command, "m.onnx", *options)

    assert answer.code == 2
    assert message in answer.message
    assert hint in answer.hint
    assert contents(folder) == before


BOUNDED = {
    "longest": (
        lambda: f"{HEAD}    pattern: Relu(x)\n" + "# nothing to see\n" * 700_000,
        "has more than 10,000,000 characters",
    ),
    "lines": (
        lambda: f"{HEAD}    pattern: |\n" + "      a = Relu(x)\n" * 1_000_000,
        "has more than 10,000,000 characters",
    ),
    "long-pattern": (
        lambda: f"{HEAD}    pattern: |\n" + "      a = Relu(x)\n" * 20_000,
        "the pattern has 240,000 characters, more than 200,000",
    ),
    "nested-lists": (
        lambda: f"{HEAD}    pattern: {'[' * 50_000}{']' * 50_000}\n",
        "lists and mappings nest too deeply",
    ),
    "nested-mappings": (
        lambda: f"{HEAD}    pattern: {'{a: ' * 50_000}{'}' * 50_000}\n",
        "lists and mappings nest too deeply",
    ),
}


@pytest.mark.parametrize(("text", "message"), BOUNDED.values(), ids=BOUNDED)
def test_what_would_take_minutes_to_read_is_refused_at_once(
    dpl: Dpl, folder: Path, model: Path, text: Callable[[], str], message: str
) -> None:
    """Long texts and deep ones: a message within seconds of CPU time."""
    assert model.exists()
    started = time.process_time()

    answer = partition_with(dpl, folder, text())

    assert message in answer.message
    assert time.process_time() - started < 5


def test_what_is_just_short_enough_is_read(dpl: Dpl, folder: Path, model: Path) -> None:
    """The near misses: a doc string, a pattern, brackets in texts."""
    assert model.exists()
    doc = "[ " * 900 + "a" * 400_000
    lines = "      a = Relu(x)\n" * 8_000
    text = f"{HEAD}    doc: '{doc}'\n    pattern: |\n{lines}      Relu(x)\n"
    (folder / "rules.yaml").write_text(text)
    answer = dpl("match", "m.onnx", "--patterns", "rules.yaml")
    assert (answer.code, "characters" in answer.err) == (2, False)
    (folder / "rules.yaml").write_text(text.replace(lines, ""))
    assert dpl("match", "m.onnx", "--patterns", "rules.yaml").code == 0
