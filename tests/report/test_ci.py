"""JUnit XML, SARIF and Markdown: what they hold, and that no name breaks them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from dplcli.outcomes.comparing import VerifyOutcome
from dplcli.report.ci import junit_xml, markdown_text, sarif_record
from dplcli.report.document import (
    Finding,
    SourceLocation,
    read_place,
)
from dplcli.report.verify import verification_document
from dplcli.verify import Power
from tests.report.made import HOSTILE, compared, documents, inside, output, result

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = documents()
ALL = pytest.mark.parametrize("name", DOCUMENTS)


def cases(text: str) -> list[tuple[str, str, bool]]:
    """Return the class, the name and the success of every test case."""
    found = ET.fromstring(text).iter("testcase")  # noqa: S314  # our own text
    return [(c.attrib["classname"], c.attrib["name"], c.find("failure") is None) for c in found]


def test_junit_has_a_case_for_every_output_level_and_seed() -> None:
    """Each seed counts, not only the worst; the verdict has a case of its own."""
    worst = replace(output("y", share=3), seed=1)
    each = (replace(output("y"), seed=0), worst)
    found = result([replace(worst, by_seed=each), output("z", "all")])
    text = junit_xml(compared("b against a", found))

    assert cases(text) == [
        ("dpl verify", "b against a: verdict", False),
        ("level disable", "b against a: y, seed 0", True),
        ("level disable", "b against a: y, seed 1", False),
        ("level all", "b against a: z, seed 1", True),
    ]


def test_a_check_that_is_too_weak_is_a_no() -> None:
    """Though the models agree; every form says how many mutants were caught."""
    weak = replace(result([output("y")]), power=Power(3, 10, ()), min_power=0.9)
    document = compared("b against a", weak)

    assert cases(junit_xml(document))[0] == ("dpl verify", "b against a: verdict", False)
    assert "❌ Equivalent, by a check that is too weak" in markdown_text(document)
    assert "- mutants caught: 3 of 10\n" in markdown_text(document)


def test_junit_says_why() -> None:
    """A failure holds the reason first, then the figures."""
    root = ET.fromstring(junit_xml(DOCUMENTS["two"]))  # noqa: S314  # our own text
    failure = root.find("testsuite[3]/testcase/failure")
    assert failure is not None
    assert failure.attrib["message"] == "12 of 1000 elements of logits are outside the tolerance"

    assert "error of tolerance: 420 %" in (failure.text or "").splitlines()


@ALL
def test_junit_counts_what_it_holds(name: str) -> None:
    """The sums of suites and file are those of the cases; and the answer is never without one."""
    root = ET.fromstring(junit_xml(DOCUMENTS[name]))  # noqa: S314  # our own text
    for element in (root, *root.iter("testsuite")):
        tests, failures = list(element.iter("testcase")), list(element.iter("failure"))
        assert (element.attrib["tests"], element.attrib["failures"]) == (
            str(len(tests)),
            str(len(failures)),
        )
        assert tests
    names = {(case[1].rpartition(": ")[2], case[2]) for case in cases(_again(root))}
    assert ("verdict", DOCUMENTS[name].ok) in names
    times = [float(case.attrib["time"]) for case in root.iter("testcase")]
    assert sum(times) == float(root.attrib["time"]) == 0.0
    timed = ET.fromstring(junit_xml(DOCUMENTS[name], 2.5))  # noqa: S314  # our own text
    assert [case.attrib["time"] for case in timed.iter("testcase")][:2] in (
        ["2.500"],
        ["2.500", "0.000"],
    )
    assert timed.attrib["time"] == "2.500"


def _again(root: ET.Element) -> str:
    return ET.tostring(root, encoding="unicode")


@ALL
def test_every_form_can_be_written_as_utf_8_and_is_the_same_again(name: str) -> None:
    """No half surrogates, no time, no order by chance."""
    document = DOCUMENTS[name]
    for form in (junit_xml, markdown_text, lambda d: json.dumps(sarif_record(d))):
        text = form(document)
        text.encode("utf-8")
        assert text == form(document)
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_hostile_names_stay_text_in_junit() -> None:
    """The names come back as they are shown elsewhere, and nothing else is in the file."""
    root = ET.fromstring(junit_xml(DOCUMENTS["hostile"]))  # noqa: S314  # our own text
    tags = {element.tag for element in root.iter()}
    names = {case.attrib["name"].rpartition(": ")[2] for case in root.iter("testcase")}
    full = [case.attrib["name"] for case in root.iter("testcase")]

    allowed = {"testsuites", "testsuite", "properties", "property", "testcase", "failure"}
    assert tags == allowed
    assert {f"{HOSTILE[0]}, seed 1", "\\x00\\x1b[31mred, seed 1", "\\ud800, seed 1"} <= names
    assert max(map(len, full)) <= 200


def test_hostile_names_stay_text_in_markdown() -> None:
    """No tag but our own, no link, no mention, and every row has the columns of its table."""
    text = markdown_text(DOCUMENTS["hostile"])
    tags = set(re.findall("<[^>]*>", text))

    ours = {
        f"<{end}{tag}>" for tag in ("code", "details", "pre", "sub", "summary") for end in ("", "/")
    }
    assert tags == {"<!-- dpl report -->", *ours}
    assert not re.search(r"\]\(|http:|@you|\*\*|www\.|`", text)
    tables = re.findall(r"(?m)^\| ?.*\n\| -.*\n(?:\|.*\n)*", text)
    assert len(tables) == 5
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_markdown_shows_failures_first_and_says_what_it_leaves_out() -> None:
    """Of 400 comparisons 50 rows are shown, the worst first."""
    lines = markdown_text(DOCUMENTS["many"]).splitlines()
    rows = [line for line in lines if "| ✅ " in line or "| ❌ " in line]
    shown = ["| ❌ " in line for line in rows]

    assert len(rows) == 50
    assert shown == sorted(shown, reverse=True)
    assert "output&#95;199" in rows[0]
    assert "and 350 more." in lines


def test_sarif_points_to_lines_and_keeps_the_rest_as_notifications(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are relative to the repository where they can be, and always quoted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.yaml").touch()
    files = ["a b.yaml", str(tmp_path / "sub" / "c.yaml"), "./x/../d.yaml", "/else/é.yaml"]
    findings = [
        Finding(
            "example", "error", "r", "moved", SourceLocation(file, line, 4 if line == 1 else None)
        )
        for line, file in enumerate(files)
    ]
    findings.append(Finding("catalogue", "warning", "r", "somewhere", None))
    document = replace(DOCUMENTS["nothing"], findings=tuple(findings))
    (run,) = sarif_record(document)["runs"]
    places = [found["locations"][0]["physicalLocation"] for found in run["results"]]

    assert [place["artifactLocation"]["uri"] for place in places] == [
        "a%20b.yaml",
        "sub/c.yaml",
        "d.yaml",
        "file:///else/%C3%A9.yaml",
    ]
    based = [place["artifactLocation"].get("uriBaseId") for place in places]
    assert based == ["SRCROOT", "SRCROOT", None, None]  # what is not there may be shipped with dpl
    assert run["originalUriBaseIds"].keys() == {"SRCROOT"}
    assert [place["region"] for place in places] == [
        {"startLine": 1},
        {"startLine": 1, "startColumn": 4},
        {"startLine": 2},
        {"startLine": 3},
    ]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["example"]
    said = [n["message"]["text"] for n in run["invocations"][0]["toolExecutionNotifications"]]
    assert said == ["r: somewhere", "NOT equivalent.\nthe candidate lacks 'b'"]


def test_sarif_paths_start_at_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest folder upwards with a .git, which is a file in a worktree."""
    here = tmp_path / "repo" / "models"
    here.mkdir(parents=True)
    (tmp_path / "repo" / ".git").write_text("gitdir: elsewhere\n")
    (here / "r.yaml").touch()
    (tmp_path / "outside.yaml").touch()
    monkeypatch.chdir(here)
    files = ["r.yaml", "../../outside.yaml"]
    findings = [Finding("catalogue", "error", "r", "m", SourceLocation(f, 1)) for f in files]
    document = replace(DOCUMENTS["nothing"], findings=tuple(findings))
    (run,) = sarif_record(document)["runs"]
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]

    assert [place["artifactLocation"] for place in places] == [
        {"uri": "models/r.yaml", "uriBaseId": "SRCROOT"},
        {"uri": (tmp_path / "outside.yaml").as_uri()},
    ]


def test_places_are_found_among_the_files_that_were_named(tmp_path: Path) -> None:
    """A catalogue names itself without its folder; what it includes lies beside it."""
    for name in ("main.yaml", "part.yaml"):
        (tmp_path / name).write_text("dpl: 1\n")
    named = ["conv_relu", str(tmp_path / "main.yaml")]

    assert read_place("main.yaml:3:7", named) == SourceLocation(str(tmp_path / "main.yaml"), 3, 7)
    assert read_place("part.yaml:3", named) == SourceLocation(str(tmp_path / "part.yaml"), 3)
    assert read_place("conv_relu.yaml:12", named) == SourceLocation("conv_relu.yaml", 12)
    assert read_place("variant 1", named) is None
    assert read_place("", named) is None


def test_values_on_the_way_have_a_table() -> None:
    """Those that differ come first, all of them; then the others, in order of computation."""
    layers = inside([0.5 if i % 100 != 99 else 2.0 for i in range(2_000)])
    found = VerifyOutcome(labels=("", ""), verification=result([output("y")]), layers=layers)
    text = markdown_text(verification_document("a against b", found))
    rows = re.findall(r"<code>v(\d+)</code>", text)

    wrong = [str(i) for i in range(99, 2_000, 100)]
    assert rows[: len(wrong)] == wrong
    assert rows[len(wrong) :] == sorted(rows[len(wrong) :], key=int)
    assert f"and {2_000 - len(rows)} more." in text
