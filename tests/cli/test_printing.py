"""Nothing of a model, catalogue, path or message is markup, a control sequence or a command.

Every command prints, in every way it has, what is as hostile as files can be.
"""

from __future__ import annotations

import ast
import json
import os
import re
import select
import subprocess
import sys
import time
from contextlib import suppress
from queue import Queue
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.text import Text as RichText

from dplcli.cli import printing
from dplcli.cli.main import COMMANDS
from dplcli.cli.patterns import command as patterns_command
from dplcli.cli.printing import guarded, progress
from dplcli.escaping import json_text
from dplcli.report.layout import Group, Text, TextTable, lines_of
from dplcli.verify import run
from tests.cli.support import ROOT
from tests.support.helpers import one_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.support import Dpl, Save

SIZES: list[str | int | None] = ["batch", 3, 8, 8]
SHOWN = "float32[batch,3,8,8]"
NAMES = {
    "tag": "[/a/b]",
    "style": "[bold]x[/bold]",
    "link": "[link=http://e.x]:smile:[/]",
    "window title": "\x1b]0;pwned\x07",
    "screen": "\x1b[2J\x9b2J",
    "backwards": "\u202eevil\u2066",
    "line": "a\r\n::error file=x::b",
    "command": "::error::x",
    "azure": "##vso[task.setvariable variable=x]y",
    "group": "##[error]x",
    "teamcity": "##teamcity[buildStop]",
    "unseen": "a\u200bb\xadc\u2028d\x7f\te\u00a0\U000e0041",
    "backslash": "a\\x1bb",
}
MODEL = "[bold]m[]\x1b]0;t\x07\u202e\r\n::error::p.onnx"
OTHER = "##vso[x]y\x9b2J\n::warning::o.onnx"
CATALOGUE = "[link=c]\x1b[2J\n::error::c.yaml"
GONE = "[/gone]\x1b[2J\u202e\n::error::##[x]"
WEIGHT = np.arange(9, dtype=np.float32).reshape(3, 3, 1, 1) / 9

RULES = r"""
dpl: 1
target: t
doc: "[/doc]\e[2J\n::error::doc ##[x]"
patterns:
  - name: found
    doc: "[/rule]\e[2J\n::error::rule ##vso[x]"
    pattern: Relu(Conv(x, w))
  - name: refused
    pattern: Mul(x, c)
    where: ['x.name == "[/w]\x1b::error::##[x]"']
  - name: never
    pattern: 'Conv(x, w, auto_pad="[/w]\x1b::error::##[x]")'
"""
PIPELINE = "pipeline.yaml"
BUILD = json.dumps(
    {
        "models": [MODEL, OTHER],
        "steps": [{"partition": {"patterns": CATALOGUE}}],
        "expect": ["t.found>99"],
    }
)
REWRITES = r"""
dpl: 1
rewrites:
  - name: double
    doc: "[/rule]\e[2J\n::error::rule"
    pattern: Add(x, x)
    replacement: Mul(x, 2.0)
    examples:
      - before: "g (float[2] x) => (float[2] y) { [\"[/n]\"] y = Neg(x) }"
        after: any
  - name: refused
    pattern: Mul(x, c)
    where: ['x.name == "[/w]::error::##[x]"']
    replacement: x
"""


def hostile_model(scale: float = 1.0) -> onnx.ModelProto:
    """Return a Conv, a Relu, an Add and a Mul for each name, all called after it."""
    nodes, outputs = [], []
    typed = helper.make_tensor_value_info
    for name in NAMES.values():
        inner = [f"{name}{part}" for part in "123"]
        nodes += [
            helper.make_node("Conv", ["in[/in]", "w\x1b[2J"], [inner[0]], f"{name}c"),
            helper.make_node("Relu", inner[:1], inner[1:2], name),
            helper.make_node("Add", [inner[1], inner[1]], inner[2:], f"{name}a"),
            helper.make_node("Mul", [inner[2], "s"], [f"{name}4"], f"{name}m"),
        ]
        outputs.append(typed(f"{name}4", TensorProto.FLOAT, SIZES))
    scales = numpy_helper.from_array(np.array([scale], np.float32), "s")
    graph = helper.make_graph(
        nodes,
        "g[/g]\x1b",
        [typed("in[/in]", TensorProto.FLOAT, SIZES)],
        outputs,
        [numpy_helper.from_array(WEIGHT, "w\x1b[2J"), scales],
    )
    return helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)], producer_name="[/p]\x1b"
    )


@pytest.fixture
def hostile(folder: Path) -> Path:
    """Return a folder with two hostile models that differ, and hostile catalogues."""
    (folder / MODEL).write_bytes(hostile_model().SerializeToString())
    (folder / OTHER).write_bytes(hostile_model(1.5).SerializeToString())
    (folder / CATALOGUE).write_text(RULES, encoding="utf-8")
    (folder / "rewrites.yaml").write_text(REWRITES, encoding="utf-8")
    (folder / PIPELINE).write_text(BUILD, encoding="utf-8")
    return folder


def assert_plain(text: str, *, styled: bool = False) -> None:
    """What is printed controls nothing; *styled* texts may have colours of ours."""
    if styled:
        text = re.sub(r"\x1b\[[\d;]*m", "", text)
    odd = {char for char in text if not char.isprintable()} - {"\n"}
    assert not odd
    assert not [line for line in text.split("\n") if line.lstrip().startswith("::")]
    assert not re.search(r"##[\w.-]*\[", text)
    assert "internal error" not in text


Calls = list[tuple[int | str, ...]]
"""Exit codes and arguments."""
CALLS: dict[str, Calls] = {
    "apply": [
        (0, "rewrite", MODEL, "-p", "rewrites.yaml", "--plan", "plan.yaml", "-o", "r.onnx"),
        (0, "apply", "plan.yaml", MODEL, "-o", "a.onnx", "-v"),
        (0, "apply", "plan.yaml", OTHER, "-o", "b.onnx", "--skip-missing", "--force", "-v"),
        (2, "apply", "plan.yaml", OTHER, "-o", "b.onnx"),
    ],
    "accuracy": [
        (0, "accuracy", MODEL, OTHER, "--layers", "-v"),
        (1, "accuracy", MODEL, OTHER, "--min-sqnr", "1000"),
        (2, "accuracy", MODEL, MODEL, "--shape", f"{GONE}=x"),
    ],
    "bench": [
        (0, "bench", MODEL, OTHER, "--runs", "1"),
        (2, "bench", MODEL, MODEL, "--shape", f"{GONE}=x"),
    ],
    "bisect": [
        (1, "bisect", MODEL, OTHER, "-v", "-o", "found"),
        (0, "bisect", MODEL, "-p", "rewrites.yaml", "-v"),
    ],
    "build": [(1, "build", PIPELINE, "-v"), (1, "build", PIPELINE, "--check")],
    "diff": [(1, "diff", MODEL, OTHER), (1, "diff", MODEL, OTHER, "-v", "--ignore", "nothing")],
    "doctor": [(0, "doctor")],
    "explain": [
        (0, "explain", MODEL, "-p", CATALOGUE, "-v"),
        *((0, "explain", MODEL, "-p", CATALOGUE, "--node", name) for name in NAMES.values()),
    ],
    "extract": [
        *((0, "extract", MODEL, "--to", f"{name}2", "-o", "e.onnx") for name in NAMES.values()),
        (2, "extract", MODEL, "--to", NAMES["tag"]),
        (2, "extract", MODEL, "--from", GONE),
    ],
    "init": [(2, "init", GONE), (0, "init", MODEL, OTHER)],
    "inline": [
        (0, "partition", MODEL, "-p", CATALOGUE, "--no-verify", "-o", "p.onnx"),
        (0, "inline", "p.onnx", "-v", "-o", "i.onnx", "--no-verify"),
        (2, "inline", "p.onnx", "--call", GONE),
    ],
    "inspect": [
        (0, "inspect", MODEL),
        (0, "inspect", MODEL, "--contract"),
        *((0, "inspect", MODEL, "--node", name) for name in NAMES.values()),
    ],
    "kernels": [(2, "kernels", "plan", GONE, "-o", "k.plan")],
    "learn": [
        (0, "learn", MODEL, "--nodes", f"{NAMES['tag']}c,{NAMES['tag']}", "-v"),
        (2, "learn", MODEL, "--nodes", f"{NAMES['screen']}c,{NAMES['azure']}"),
    ],
    "match": [(1, "match", MODEL, "-p", CATALOGUE, "-v", "--expect", "t.found>99")],
    "partition": [
        (0, "partition", MODEL, "-p", CATALOGUE, "-v", "-o", "p.onnx"),
        (0, "inspect", "p.onnx", "--contract"),
    ],
    "patterns": [
        (0, "patterns", "list"),
        (0, "patterns", "schema"),
        *((0, "patterns", do, CATALOGUE) for do in ("show", "check", "contract")),
        (1, "patterns", "test", CATALOGUE, "--trials", "3"),
        (0, "patterns", "show", "rewrites.yaml"),
        (1, "patterns", "test", "rewrites.yaml", "-v", "--trials", "3"),
    ],
    "repeat": [(0, "repeat", MODEL, "-v", "-o", "q.onnx", "--no-verify")],
    "rewrite": [
        (0, "rewrite", MODEL, "-p", "rewrites.yaml", "-v", "-o", "r.onnx", "--verify-each"),
        (0, "rewrite", MODEL, "-p", "rewrites.yaml", "--trace", "--dry-run"),
        (0, "rewrite", MODEL, "-p", "prepare", "-p", "fuse", "-v", "--dry-run"),
    ],
    "run": [(0, "run", MODEL), (2, "run", MODEL, "--shape", f"{GONE}=x")],
    "schema": [(0, "schema"), (0, "schema", "match"), (2, "schema", GONE)],
    "verify": [
        (1, "verify", MODEL, OTHER, "-v", "--layers"),
        (2, "verify", MODEL, MODEL, "--tolerance", f"{GONE}=rtol:1"),
        (2, "verify", MODEL, MODEL, "--shape", f"{GONE}=x"),
    ],
    "view": [
        (0, "view", MODEL, "-v"),
        *((0, "view", MODEL, "-o", f"drawing.{form}", "--depth", "3") for form in ("dot", "mmd")),
        (2, "view", MODEL, "--scope", GONE),
        (2, "view", MODEL, "--open", GONE),
    ],
}


def test_no_command_is_forgotten() -> None:
    """A new command needs a row here, and so does a new one of dpl patterns."""
    assert CALLS.keys() == COMMANDS.keys()
    assert all(any(call[1] == name for call in calls) for name, calls in CALLS.items())
    assert {call[2] for call in CALLS["patterns"]} == set(patterns_command.commands)


WAYS = ("pipe", "80", "colours")


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(
    "case", one_in(8, [f"{way} {name}" for name in COMMANDS for way in WAYS], gate=3)
)
def test_hostile_names_are_text(dpl: Dpl, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe, at 80 columns and with colours; something is printed by each call."""
    way, name = case.split()
    if way != "pipe":
        monkeypatch.setenv("COLUMNS", "80")
    if way == "colours":
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.delenv("NO_COLOR", raising=False)
    for code, *call in CALLS[name]:
        answer = dpl(*call)

        assert answer.code == code, answer.err
        assert answer.out + answer.err
        assert_plain(answer.out, styled=way == "colours")
        assert_plain(answer.err)


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("name", COMMANDS)
def test_hostile_arguments_are_text(dpl: Dpl, name: str) -> None:
    """Files that are not there, options and commands that do not exist, also with --debug."""
    for call in (
        (name, GONE, GONE),
        (name, MODEL, "-p", GONE),
        (name, f"--{GONE}"),
        (name, MODEL, "--json", GONE, "--node", GONE, "--nodes", GONE),
        (f"{name}{GONE}",),
    ):
        for start in ((), ("--debug",)):
            answer = dpl(*start, *call)

            assert answer.code == 2
            assert_plain(answer.out + answer.err)


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(
    "name",
    one_in(6, sorted(COMMANDS.keys() - {"init", "kernels", "learn", "schema"}, reverse=True)),
)
def test_json_on_standard_output_is_plain_and_exact(dpl: Dpl, name: str) -> None:
    """Names are escaped by JSON's own means, so that a parser has them back."""
    parsed = []
    for code, *call in CALLS[name]:
        if "schema" in call or "--trace" in call:
            continue
        answer = dpl(*call, "--json", "-")

        assert answer.code == code, answer.err
        assert_plain(answer.out + answer.err)
        if answer.out:
            parsed.append(json.loads(answer.out))

    assert parsed


@pytest.mark.usefixtures("hostile")
def test_a_page_on_standard_output_is_plain(dpl: Dpl) -> None:
    """Whatever names it has, no line of it is a command of another program."""
    answer = dpl("view", MODEL, "-o", "-", "--depth", "3")

    assert answer.code == 0
    assert_plain(answer.out)


@pytest.mark.usefixtures("hostile")
def test_json_has_names_as_they_are(dpl: Dpl) -> None:
    """Every name of the model is found again."""
    record = json.loads(dpl("match", MODEL, "-p", CATALOGUE, "--json", "-").out)

    assert {match["root"]["name"] for match in record["matches"]} == set(NAMES.values())


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("form", one_in(2, ["junit", "html", "sarif", "markdown"]))
def test_reports_on_standard_output_are_plain(dpl: Dpl, form: str) -> None:
    """They have names escaped in their own ways, and no command of another program, either."""
    answer = dpl("verify", MODEL, OTHER, f"--{form}", "-")

    assert answer.code == 1, answer.err
    assert_plain(answer.out)


@pytest.mark.usefixtures("hostile")
def test_source_text_of_contracts_is_plain(dpl: Dpl, hostile: Path) -> None:
    """What is written for compilers holds no hostile line, either."""
    assert dpl("partition", MODEL, "-p", CATALOGUE, "--no-verify", "-o", "p.onnx").code == 0
    answer = dpl("inspect", "p.onnx", "--c-header", "p.h", "--python", "p.py")

    assert answer.code == 0, answer.err
    header, stub = ((hostile / name).read_text(encoding="utf-8") for name in ("p.h", "p.py"))
    assert_plain(header + stub)
    ast.parse(stub)


@pytest.mark.usefixtures("hostile")
def test_symbolic_shapes_are_shown(dpl: Dpl) -> None:
    """Shapes that look like tags are in every table, beside names that do."""
    whole = dpl("inspect", MODEL).out
    node = dpl("inspect", MODEL, "--node", "[/a/b]").out

    assert f"input         in[/in] {SHOWN}\n" in whole
    assert f"output        [/a/b]4 {SHOWN}\n" in whole
    assert f"in 0   in[/in]   {SHOWN}" in dpl("inspect", MODEL, "--node", "[/a/b]c").out
    assert "> [[/a/b]] [/a/b]2 = Relu ([/a/b]1)\n" in node


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("name", NAMES)
def test_a_node_is_found_by_what_is_printed(dpl: Dpl, name: str) -> None:
    """A name with what cannot be seen is given as tables show it, or as messages quote it."""
    wanted = dpl("inspect", MODEL, "--node", NAMES[name])
    rows = [line for line in wanted.out.splitlines() if line.startswith("> ")]
    (printed,) = re.findall(r"> \[(.*)\] .* = Relu", rows[0])

    assert wanted.code == 0
    assert dpl("inspect", MODEL, "--node", printed) == wanted
    assert dpl("inspect", MODEL, "--node", repr(NAMES[name])[1:-1]) == wanted
    assert dpl("inspect", MODEL, "--node", f"{printed}!").code == 2


def test_names_that_look_alike_are_told_apart(dpl: Dpl, save: Save) -> None:
    """The one that is called so is found; if both only look so, the message quotes them."""
    nodes = [
        helper.make_node("Neg", ["x"], [out], name) for out, name in (("y", "a\t"), ("z", "a\\t"))
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xyz"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))

    assert "> [a\\t] z = Neg" in dpl("inspect", "m.onnx", "--node", "a\\t").out
    assert "> [a\\t] y = Neg" in dpl("inspect", "m.onnx", "--node", "a\t").out


def guarded_text(write: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what *write* prints where nothing may get past."""
    with guarded():
        write()
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["::error::x\n"], ":\\x3aerror::x\n"),
        (["  \t::error::x\n"], "  \t:\\x3aerror::x\n"),
        ([":", ":error::x\n"], ":\\x3aerror::x\n"),
        (["a\n", ":", ":b"], "a\n:\\x3ab"),
        (["a", "::b\n::c"], "a::b\n:\\x3ac"),
        (["a::b ::c"], "a::b ::c"),
        (["##v", "so", "[x]"], "##vso\\x5bx]"),
        (["a" * 200, "##[x] # [y]"], "a" * 200 + "##\\x5bx] # [y]"),
        (["\x1b[31m\r\b\x00"], "\\x1b[31m\\r\\x08\\x00"),
    ],
)
def test_what_anybody_writes_is_guarded(
    pieces: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the beginning of a command comes in pieces."""
    assert guarded_text(lambda: [sys.stdout.write(piece) for piece in pieces], capsys) == text


@pytest.mark.usefixtures("hostile")
def test_what_catalogues_print_is_guarded(dpl: Dpl, hostile: Path) -> None:
    """A function of one, or a library that it uses, may quote the model."""
    lines = [f"print({NAMES['line']!r})", f"sys.stderr.write({NAMES['screen']!r})"]
    code = "\n".join(["import sys", *lines, "CATALOG = []", ""])
    (hostile / "c.py").write_text(code, encoding="utf-8")

    answer = dpl("match", MODEL, "-p", "c.py")

    assert "a\\r\n:\\x3aerror file=x::b\n" in answer.out
    assert "\\x1b[2J" in answer.err
    assert_plain(answer.out + answer.err)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_a_terminal_gets_our_styles_and_no_others(hostile: Path) -> None:
    """Beside the spinner, too, while the functions of a catalogue print."""
    import pty  # noqa: PLC0415  # not on Windows

    said = "".join(NAMES.values()).replace("\t", "")  # which others may print
    code = f"import sys\nprint({said!r})\nprint({said!r}, file=sys.stderr)\nCATALOG = []\n"
    (hostile / "c.py").write_text(code, encoding="utf-8")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dplcli", "match", MODEL, "-p", "c.py", "-p", CATALOGUE]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TERM": "xterm-256color"}
    with subprocess.Popen(  # noqa: S603  # our own program
        command, cwd=hostile, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the other side is closed
            while select.select([ours], [], [], 60)[0] and (piece := os.read(ours, 65536)):
                shown += piece
        try:
            process.wait(30)
        finally:
            process.kill()
    os.close(ours)
    text = shown.decode().replace("\r\n", "\n")

    assert process.returncode == 0, text
    assert "\x1b[1mrule\x1b[0m" in text
    assert "matching in [bold]m[]\\x1b]0;t\\x07" in text
    assert "\\x1b]0;pwned\\x07" in text
    assert_plain(re.sub(r"\x1b\[(\d*[AK]|\?25[lh])|\r", "", text), styled=True)


@pytest.mark.skipif(not run.IS_POSSIBLE, reason="models run in this process")
@pytest.mark.long
@pytest.mark.usefixtures("hostile")
def test_what_onnxruntime_prints_is_guarded(dpl: Dpl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that runs models writes nothing to the terminal by itself."""
    said = NAMES["line"] + NAMES["screen"] + "\xff\n"
    monkeypatch.setattr(run, "_START", f"import os; os.write(2, {said.encode('latin-1')!r})")
    run.end_workers()

    answer = dpl("verify", MODEL, OTHER)

    assert answer.code == 2
    assert "a\\r\n:\\x3aerror file=x::b\\x1b[2J\\x9b2J\\xff\n" in answer.err
    assert "its error is above" in answer.err
    assert_plain(answer.out + answer.err)


def test_streams_are_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever asks a stream for anything else gets what it got; afterwards it is the same one."""
    before = sys.stdout, sys.stderr
    with guarded():
        assert sys.stdout.encoding == before[0].encoding
        assert sys.stdout.isatty() == before[0].isatty()
        sys.stdout.writelines(["a", "\n"])
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "a\n"


@pytest.mark.parametrize(
    "data", [{}, {"a\x1b": ["\u202e", "\ud800", "\U000e0041##vso[", "::", "ä"]}]
)
def test_json_text_is_exact(data: object) -> None:
    """What a parser reads is what was written; letters stay letters."""
    text = json_text(data)

    assert json.loads(text) == data
    assert_plain(text)
    assert ("ä" in text) == bool(data)


def laid_out(part: Group | Text | TextTable, width: int | None) -> list[str]:
    """Return the lines of a report."""
    return [line.plain for line in lines_of(part, width)]


def test_sentences_go_on_in_another_line_and_names_are_whole() -> None:
    """Indented as they began; a word that is too long has a line of its own."""
    name = "/" + "n" * 50
    text = Text(f"  of {name} it is said that it is long")

    assert laid_out(text, 30) == ["  of", f"  {name}", "  it is said that it is long"]
    assert laid_out(text, None) == [text.plain]
    assert laid_out(Text(f"a {name} b", whole=True), 10) == [f"a {name} b"]


def test_a_column_of_sentences_is_narrowed_and_no_other() -> None:
    """As far as that helps."""
    table = TextTable("name", "n", "why", right=("n",), prose=("why",))
    table.add_row("a" * 30, "1", "it " * 20)
    table.add_row("b", "22", "so")

    lines = laid_out(table, 70)
    assert lines[0] == f"{'name':30}   n  why"
    assert lines[1] == f"{'a' * 30}   1  {'it ' * 10}it"
    assert lines[2] == f"{'':36}{'it ' * 8}it"
    assert lines[3] == f"{'b':30}  22  so"
    assert laid_out(table, None)[1] == f"{'a' * 30}   1  {'it ' * 19}it"


def test_long_sentences_beside_long_names_stand_below() -> None:
    """Short ones stay; the row is longer than the terminal, and no name is broken."""
    table = TextTable("name", "why", prose=("why",))
    table.add_row("a" * 90, "it " * 40)
    table.add_row("b", "so")

    lines = laid_out(table, 80)
    assert lines[1] == "a" * 90
    assert lines[2] == f"    {'it ' * 24}it"
    assert lines[3] == f"    {'it ' * 14}it"
    assert lines[4] == f"b{'':91}so"


def test_wide_characters_count_as_wide() -> None:
    """A name in Japanese takes two columns a letter."""
    table = TextTable("name", "n")
    table.add_row("出力", "1")
    table.add_row("ab", "2")

    assert laid_out(table, 80) == ["name  n", "出力  1", "ab    2"]


def test_what_is_no_text_of_ours_cannot_be_printed() -> None:
    """A string by itself, or a text of rich's, may be markup."""
    for part in ("[b]x[/b]", RichText("x"), None):
        with pytest.raises(TypeError):
            list(lines_of(Group(part), 80))  # type: ignore[arg-type]  # that is the point


OTHER_WAYS = {"print", "click.echo", "click.secho", "warnings.warn"}
STREAMS = {"sys.stdout.write", "sys.stderr.write"}


def test_nothing_else_prints() -> None:
    """Only the module that guards the streams writes to them, and only two know of rich."""
    ways: set[tuple[str, str]] = set()
    for path in (ROOT / "dplcli").rglob("*.py"):
        name = path.relative_to(ROOT / "dplcli").as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                used = {ast.unparse(node.func)} & OTHER_WAYS
            elif isinstance(node, ast.Attribute):
                used = {ast.unparse(node)} & STREAMS
            elif isinstance(node, ast.ImportFrom):
                used = {str(node.module).split(".")[0]} & {"rich"}
            elif isinstance(node, ast.Import):
                used = {alias.name.split(".")[0] for alias in node.names} & {"rich"}
            else:
                continue
            ways |= {(name, way) for way in used}

    assert ways == {("cli/printing.py", "rich"), ("report/layout.py", "rich")}


def said_while(
    work: Callable[[Callable[[str], None]], None],
    capsys: pytest.CaptureFixture[str],
    *,
    quiet: bool = False,
    verbose: bool = False,
) -> list[str]:
    """Return the lines that a log gets while *work* goes on."""
    capsys.readouterr()
    with progress(quiet=quiet, verbose=verbose) as begin:
        work(begin)
    return capsys.readouterr().err.splitlines()


def test_a_log_says_what_is_still_being_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for every half minute that one step takes, and none for what is soon done."""
    monkeypatch.setattr(printing, "_PATIENCE", 0.2)
    said, say = Queue[str](), printing.say

    def heard(text: str, **others: bool) -> None:
        say(text, **others)
        said.put(text)

    monkeypatch.setattr(printing, "say", heard)

    def begin_some(begin: Callable[[str], None]) -> None:
        for name in ("one", "two", "three"):
            begin(f"reading {name}")

    def work(begin: Callable[[str], None]) -> None:
        begin_some(begin)
        while "still reading three, for " not in said.get(timeout=60):
            pass
        begin("running\na\x1b[2Jmodel")
        while "still running" not in said.get(timeout=60):
            pass

    lines = said_while(work, capsys)

    assert any(re.match("dpl: still reading three, for \\d+ s now$", line) for line in lines)
    assert any(line.startswith(r"dpl: still running\na\x1b[2Jmodel, for ") for line in lines)
    assert said_while(begin_some, capsys, quiet=True) == []
    assert said_while(begin_some, capsys, verbose=True)[:3] == [
        f"dpl: reading {name}" for name in ("one", "two", "three")
    ]


def test_a_log_of_short_steps_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many steps together may take long: each begins the half minute anew."""
    monkeypatch.setattr(printing, "_PATIENCE", 1.0)

    def work(begin: Callable[[str], None]) -> None:
        for place in range(25):
            begin(f"step {place}")
            time.sleep(0.05)

    assert said_while(work, capsys) == []
