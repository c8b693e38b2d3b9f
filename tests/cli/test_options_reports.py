"""--junit, --sarif, --markdown and --html, on the commands that have them."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, NoReturn, TypeVar
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dplcli.report.view import SCRIPTS
from tests.cli.support import contents

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.cli.support import Dpl

    T = TypeVar("T")

FORMS = {"--junit": "r.xml", "--sarif": "r.sarif", "--markdown": "r.md", "--html": "r.html"}
EVERY_FORM = [part for pair in FORMS.items() for part in pair]
WRONG = """
dpl: 1
rewrites:
  - name: fine
    pattern: Abs(Abs(x))
    replacement: Abs(x)
  - name: wrong
    pattern: Relu(x)
    replacement: Abs(x)
    examples:
      - before: "g (float[2] x) => (float[2] y) { y = Relu(x) }"
        after: "g (float[2] x) => (float[2] y) { y = Abs(x) }"
"""


@pytest.fixture
def other(model: Path) -> Path:
    """Return the model with other weights."""
    proto = onnx.load(model)
    weight = proto.graph.initializer[0]
    values = numpy_helper.to_array(weight) * np.float32(1.01)
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(proto, model.parent / "other.onnx")
    return model.parent / "other.onnx"


@pytest.fixture
def wrong(folder: Path) -> Path:
    """Return a catalogue with a rule that is wrong, in a folder of its own."""
    (folder / "sub").mkdir()
    path = folder / "sub" / "wrong.yaml"
    path.write_text(WRONG.lstrip())
    return path


def places(path: Path) -> list[tuple[str, int]]:
    """Return the file and the line of each result in a SARIF file."""
    (run,) = json.loads(path.read_text())["runs"]
    found = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    return [(at["artifactLocation"]["uri"], at["region"]["startLine"]) for at in found]


def failed(path: Path) -> list[str]:
    """Return the names of the test cases that failed, without that of the model."""
    root = ET.parse(path).getroot()  # noqa: S314  # our own file
    wrong = [case for case in root.iter("testcase") if case.find("failure") is not None]
    return [case.attrib["name"].rpartition(": ")[2] for case in wrong]


def timeless(files: Mapping[T, bytes]) -> dict[T, bytes]:
    """Return what files hold, without how long anything took."""
    return {name: re.sub(rb' time="[0-9.]+"', b"", data) for name, data in files.items()}


def test_all_forms_are_written_at_once(dpl: Dpl, model: Path, folder: Path) -> None:
    """The table is printed, too; a second run writes the same bytes over them."""
    answer = dpl("verify", model, model, *EVERY_FORM, "--json", "r.json")
    first = contents(folder)
    again = dpl("verify", model, model, *EVERY_FORM, "--json", "r.json")

    assert (answer.code, again.code, answer.err) == (0, 0, "")
    assert answer.out.endswith("; it gives the same bits in onnxruntime (seeds 0, 1).\n")
    assert first.keys() == {"m.onnx", "r.json", *FORMS.values()}
    assert timeless(contents(folder)) == timeless(first)
    assert failed(folder / "r.xml") == []


@pytest.mark.long
def test_a_no_is_written_as_well(dpl: Dpl, model: Path, other: Path, folder: Path) -> None:
    """Each output, level and seed that differs is a failed test; exit code 1."""
    answer = dpl("verify", model, other, *EVERY_FORM, "-q")

    assert (answer.code, answer.out, answer.err) == (1, "", "")
    assert failed(folder / "r.xml") == [
        "verdict",
        *["global_out, seed 0", "global_out, seed 1"] * 2,
    ]
    assert "NOT equivalent" in (folder / "r.md").read_text()
    assert "NOT equivalent" in (folder / "r.html").read_text()
    assert places(folder / "r.sarif") == []


@pytest.mark.parametrize("form", FORMS)
def test_a_form_may_take_the_tables_place(form: str, dpl: Dpl, model: Path, folder: Path) -> None:
    """On standard output there is the report and nothing else."""
    written = dpl("verify", model, model, form, "r", "-q")
    printed = dpl("verify", model, model, form, "-")

    assert (written.code, written.out, printed.code, printed.err) == (0, "", 0, "")
    both = [printed.out.encode(), (folder / "r").read_bytes()]
    assert len(set(timeless(dict(enumerate(both))).values())) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--junit", "-", "--html", "-"), "--junit - and --html - both want standard output"),
        (("--json", "-", "--sarif", "-"), "--json - and --sarif - both want standard output"),
        (("--junit", "a", "--html", "./a"), "is another file of this command"),
        (("--junit", "a", "--json", "a"), "is another file of this command"),
        (("--html", "m.onnx"), "is another file of this command"),
        (("--markdown", "mine.md"), "exists and is no Markdown report of dpl, so it is kept"),
        (("--sarif", "mine.md"), "exists and is no SARIF report of dpl, so it is kept"),
        (("--junit", "no/folder.xml"), "cannot be written: No such file or directory"),
        (("--html", "."), "is not a file"),
        (("--html", ""), "is not a file"),
    ],
)
@pytest.mark.parametrize("command", ["verify", "partition", "rewrite", "inline"])
@pytest.mark.usefixtures("model")
def test_what_cannot_be_written_is_refused_before_the_work(
    command: str, options: tuple[str, ...], message: str, dpl: Dpl, folder: Path
) -> None:
    """Exit code 2, and not even the model is written."""
    if command == "inline" and "--sarif" in options:
        pytest.skip("inline has no rules to point to")
    (folder / "mine.md").write_text("# Mine\n")
    arguments = {
        "verify": ("m.onnx", "m.onnx"),
        "partition": ("m.onnx", "-p", "conv_relu"),
        "rewrite": ("m.onnx", "-p", "fuse"),
        "inline": ("m.onnx",),
    }
    before = contents(folder)
    answer = dpl(command, *arguments[command], *options)

    assert answer.code == 2
    assert message in answer.message
    assert contents(folder) == before


def test_reports_and_traces_do_not_share_a_place(dpl: Dpl, model: Path, folder: Path) -> None:
    """Neither standard output nor a file."""
    before = contents(folder)
    for options in (("--trace", "--junit", "-"), ("--trace-json", "t", "--html", "t")):
        answer = dpl("rewrite", model, "-p", "fuse", *options)

        assert answer.code == 2
        assert "standard output" in answer.message or "another file" in answer.message
    assert contents(folder) == before


def test_a_step_summary_is_added_to(
    dpl: Dpl, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that steps share keeps what others wrote; any other is replaced."""
    summary = folder / "summary"
    summary.write_text("# Built\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for _ in range(2):
        assert dpl("verify", model, model, "--markdown", "summary", "-q").code == 0

    text = summary.read_text()
    assert text.startswith("# Built\n\n<!-- dpl report -->\n")
    assert text.count("## ✅ Equivalent\n") == 2


def test_a_rule_that_breaks_a_model_is_pointed_to(dpl: Dpl, model: Path, wrong: Path) -> None:
    """By its file as it was named, and the line where it begins."""
    answer = dpl("rewrite", model, "-p", "sub/wrong.yaml", "--verify-each", *EVERY_FORM)

    assert answer.code == 1
    assert places(wrong.parent.parent / "r.sarif") == [("sub/wrong.yaml", 6)]
    assert "the rule wrong breaks the model" in (wrong.parent.parent / "r.html").read_text()
    assert failed(wrong.parent.parent / "r.xml")[0] == "verdict"


def test_a_rule_is_not_blamed_for_what_two_did(dpl: Dpl, model: Path, wrong: Path) -> None:
    """Without --verify-each the guilty one is known only if it did all there is."""
    alone = dpl("rewrite", model, "-p", wrong, "--sarif", "r.sarif", "-q", "--all-or-nothing")
    assert (alone.code, places(wrong.parents[1] / "r.sarif")) == (1, [("sub/wrong.yaml", 6)])

    rules = wrong.read_text()
    wrong.write_text(f"{rules}  - name: sum\n    pattern: Add(x, y)\n    replacement: Sum(x, y)\n")
    both = dpl("rewrite", model, "-p", wrong, "--sarif", "r.sarif", "-q", "--all-or-nothing")
    assert (both.code, places(wrong.parents[1] / "r.sarif")) == (1, [])


def test_partition_and_inline_report_what_they_did(dpl: Dpl, model: Path, folder: Path) -> None:
    """Rules with their counts, nodes before and after, and the check."""
    out = ("-o", "p.onnx", "-q")
    assert dpl("partition", model, "-p", "conv_relu", *EVERY_FORM, *out).code == 0
    text = (folder / "r.md").read_text()
    assert "| <code>dnnl.conv2d&#95;bias&#95;relu</code> | 2 | 1 | 0 |" in text
    assert "- nodes of the main graph after: 5\n" in text

    forms = ("--junit", "i.xml", "--markdown", "i.md", "--html", "i.html")
    assert dpl("inline", "p.onnx", *forms, "-q").code == 0
    assert "- calls inlined: 2\n" in (folder / "i.md").read_text()
    assert failed(folder / "i.xml") == []


def test_an_expectation_that_is_not_met_is_a_failed_test(
    dpl: Dpl, model: Path, folder: Path
) -> None:
    """The numbers agree, and the answer is still no."""
    options = ("--expect", "dnnl.conv2d_bias_relu>=9", *EVERY_FORM, "-q")
    assert dpl("partition", model, "-p", "conv_relu", *options).code == 1

    assert failed(folder / "r.xml") == ["dnnl.conv2d_bias_relu>=9"]
    assert "Equivalent, but not as asked" in (folder / "r.html").read_text()
    assert ">=9" in ET.parse(folder / "r.xml").findtext(".//failure", "")  # noqa: S314


@pytest.mark.parametrize("command", ["match", "partition"])
def test_every_expectation_is_a_case_and_an_unmet_one_has_a_place(
    dpl: Dpl, model: Path, folder: Path, command: str
) -> None:
    """One that is met passes; SARIF points at the rule of the other; cases name the model."""
    rules = "dpl: 1\ntarget: t\npatterns:\n  - {name: a, pattern: Relu(x)}\n"
    (folder / "r.yaml").write_text(f"{rules}  - {{name: b, pattern: Sin(x)}}\n")
    expected = ("--expect", "t.a>=1", "--expect", "t.b>=1")

    assert dpl(command, model, "-p", "r.yaml", *expected, *EVERY_FORM, "-q").code == 1

    root = ET.parse(folder / "r.xml").getroot()  # noqa: S314  # our own file
    found = {c.attrib["name"]: c.find("failure") is None for c in root.iter("testcase")}
    assert (found["m.onnx: t.a>=1"], found["m.onnx: t.b>=1"]) == (True, False)
    assert all(name.startswith("m.onnx: ") for name in found)
    assert float(root.attrib["time"]) > 0
    assert places(folder / "r.sarif") == [("r.yaml", 5)]
    (run,) = json.loads((folder / "r.sarif").read_text())["runs"]
    message = run["results"][0]["message"]["text"]
    assert message == "t.b: m.onnx: expected t.b>=1, found 0"
    for report in ("r.md", "r.html"):
        assert "expected t.b" in (folder / report).read_text()


def test_catalogues_are_checked_and_tested_with_places(dpl: Dpl, wrong: Path) -> None:
    """A mistake, a failing example and a failing graph each point to a line."""
    folder = wrong.parents[1]
    answer = dpl("patterns", "test", "sub/wrong.yaml", *EVERY_FORM, "-q")
    assert answer.code == 1
    assert places(folder / "r.sarif") == [("sub/wrong.yaml", 10), ("sub/wrong.yaml", 6)]
    assert len(failed(folder / "r.xml")) == 2

    wrong.write_text(wrong.read_text().replace("replacement: Abs", "replacement: Gelu"))
    answer = dpl("patterns", "check", wrong, *EVERY_FORM, "-q")
    assert answer.code == 1
    assert set(places(folder / "r.sarif")) == {("sub/wrong.yaml", 3), ("sub/wrong.yaml", 6)}


def test_a_catalogue_that_cannot_be_read_is_reported_too(dpl: Dpl, wrong: Path) -> None:
    """Exit code 2 and the message stay; a code host still shows the line."""
    wrong.write_text(wrong.read_text().replace("replacement: Abs", "replaced: Abs"))
    for name in ("check", "test"):
        answer = dpl("patterns", name, wrong, "--sarif", "r.sarif", "--junit", "r.xml")

        assert answer.code == 2
        assert "dpl: error: wrong.yaml:5:5: unknown key 'replaced'" in answer.err
        assert answer.err.rstrip().endswith("dpl: error: 2 mistakes")
        both = [("sub/wrong.yaml", 5), ("sub/wrong.yaml", 8)]
        assert places(wrong.parents[1] / "r.sarif") == both
        assert failed(wrong.parents[1] / "r.xml") == ["verdict"]


def test_no_verdict_no_report(dpl: Dpl, model: Path, folder: Path) -> None:
    """What cannot be compared leaves nothing behind."""
    (folder / "bad.onnx").write_bytes(b"no model")
    before = contents(folder)
    answer = dpl("verify", model, "bad.onnx", *EVERY_FORM)

    assert answer.code == 2
    assert contents(folder) == before


def test_hostile_names_of_outputs_reach_every_form(dpl: Dpl, model: Path, folder: Path) -> None:
    """From a real model, through a real comparison."""
    name = "<script>alert('1')</script>|`\n]]>"
    proto = onnx.load(model)
    shutil.copy(model, folder / "plain.onnx")
    old = proto.graph.output[0].name
    proto.graph.output[0].name = name
    for node in proto.graph.node:
        node.output[:] = [name if output == old else output for output in node.output]
    onnx.save(proto, model)
    answer = dpl("verify", model, model, *EVERY_FORM, "-q")

    assert answer.code == 0
    cases = [c.attrib["name"] for c in ET.parse(folder / "r.xml").iter("testcase")]  # noqa: S314
    assert "m.onnx against m.onnx: <script>alert('1')</script>|`\\n]]>, seed 0" in cases
    for file, own in (("r.html", 1 + len(SCRIPTS)), ("r.md", 0)):
        assert (folder / file).read_text().count("<script>") == own


def test_a_page_is_written_though_a_model_cannot_be_drawn(
    dpl: Dpl, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says why; the answer is what it is without the picture."""

    def gone(*_: object, **__: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("dplcli.pipeline.view", gone)
    assert dpl("diff", model, model, "--html", "d.html").code == 0
    text = (folder / "d.html").read_text(encoding="utf-8")
    assert f"{model.name}: cannot be read: Permission denied" in text
    assert '<h2 id="graph">' in text
