"""What goes to which stream: results to stdout, the rest to stderr, no colour in a pipe."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import ROOT, SAMPLES, Catalogue, Dpl, Save

COMMANDS = {
    "match": ("match", "m.onnx", "--target", "dnnl"),
    "partition": ("partition", "m.onnx", "--target", "dnnl", "-o", "out.onnx"),
    "verify": ("verify", "m.onnx", "m.onnx"),
    "inspect": ("inspect", "m.onnx"),
    "inspect-node": ("inspect", "m.onnx", "--node", "Relu_0"),
}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_success_in_a_pipe_is_plain_and_silent_on_stderr(
    dpl: Dpl, command: tuple[str, ...]
) -> None:
    """No progress, no escape codes, no trailing blanks, and one newline at the end."""
    answer = dpl(*command)

    assert (answer.code, answer.err) == (0, "")
    assert "\x1b" not in answer.out
    assert "\r" not in answer.out
    assert answer.out.endswith("\n")
    assert not answer.out.endswith("\n\n")
    assert [line for line in answer.out.splitlines() if line != line.rstrip()] == []


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("flag", ["-q", "--quiet"])
def test_quiet_prints_nothing(dpl: Dpl, command: tuple[str, ...], flag: str) -> None:
    """Only the exit code answers, and the files."""
    answer = dpl(*command, flag)

    assert (answer.code, answer.out, answer.err) == (0, "", "")


@pytest.mark.usefixtures("model")
def test_quiet_still_says_why_it_fails(dpl: Dpl) -> None:
    """Errors and unmet expectations are what --quiet is not about."""
    unmet = dpl(*COMMANDS["match"], "--quiet", "--expect", "dnnl.conv2d>0")
    failed = dpl("match", "gone.onnx", "--target", "dnnl", "--quiet")

    assert (unmet.code, unmet.out) == (1, "")
    assert "expected dnnl.conv2d>0, found 0" in unmet.err
    assert (failed.code, failed.out) == (2, "")
    assert "gone.onnx" in failed.message


@pytest.mark.usefixtures("model")
def test_json_on_stdout_comes_alone_however_talkative(dpl: Dpl) -> None:
    """``--json - --verbose`` keeps stdout for the JSON; --quiet does not take it away."""
    plain = dpl(*COMMANDS["match"], "--json", "-")

    assert dpl(*COMMANDS["match"], "--json", "-", "--verbose").out == plain.out
    assert dpl(*COMMANDS["match"], "--json", "-", "--quiet").out == plain.out


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", ["match", "partition"])
def test_verbose_lists_every_match(dpl: Dpl, command: str) -> None:
    """Rule, scope, root, the call if there is one, and nodes; progress goes to stderr."""
    answer = dpl(*COMMANDS[command], "--verbose")

    assert answer.code == 0
    calls = ["conv2d_bias_relu_0", "conv2d_bias_relu_1", "conv2d_bias_0"]
    told = [
        ["dnnl.conv2d_bias_relu", "main", "Relu_0", "Conv:Conv_1", "Relu:Relu_0"],
        ["dnnl.conv2d_bias_relu", "main", "Relu_1", "Conv:Conv_2", "Relu:Relu_1"],
        ["dnnl.conv2d_bias", "main", "Conv_0", "Conv:Conv_0"],
    ]
    if command == "partition":
        told = [[*row[:3], call, *row[3:]] for row, call in zip(told, calls, strict=True)]
    rows = [line.split() for line in answer.out.splitlines()]
    assert all(row in rows for row in told)
    assert answer.err
    assert all(line.startswith("dpl: ") for line in answer.err.splitlines())


def test_verbose_lists_every_refusal(dpl: Dpl, save: Save, catalogue: Catalogue) -> None:
    """Rule, root, stage and reason: here a value that is a graph output, too."""
    save(
        """g (float[1, 1, 4, 4] x, float[1, 1, 1, 1] w) => (float[1, 1, 4, 4] y, c)
        { c = Conv (x, w) y = Relu (c) }"""
    )

    answer = dpl("match", "m.onnx", "-p", catalogue("Relu(Conv(x, w))"), "--verbose")

    assert answer.code == 0
    (line,) = [line for line in answer.out.splitlines() if line.startswith("t.r   Relu y")]
    assert "escape" in line


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("count", [0, 1, 2])
def test_sentences_agree_in_number(dpl: Dpl, folder: Path, count: int) -> None:
    """``None of the 1 rules matches`` is no English."""
    rules = [f"{{name: r{i}, pattern: '{op}(x)'}}" for i, op in enumerate(["Relu", "Tanh", "Sin"])]
    silent = [rules[:1], rules[1:2], rules[:2]][count]
    (folder / "rules.yaml").write_text(
        f"dpl: 1\ntarget: t\npatterns: [{', '.join(silent)}]\n", encoding="utf-8"
    )

    answer = dpl("match", "m.onnx", "-p", "rules.yaml")

    assert answer.code == 0
    assert "the 1 rules" not in answer.out
    assert "1 other rules" not in answer.out


@pytest.mark.usefixtures("model")
def test_names_that_look_like_markup_are_printed_as_they_are(dpl: Dpl, save: Save) -> None:
    """A node called ``[bold]x[/bold]`` is shown, and does not switch on bold type."""
    net = save('g (float[2] x) => (float[2] y) { ["[bold]n[/red]"] y = Relu (x) }')

    answer = dpl("inspect", net, "--node", "y")

    assert answer.code == 0
    assert "[bold]n[/red]" in answer.out


def test_a_name_that_the_terminal_cannot_show_is_no_failure(dpl_process: Dpl, folder: Path) -> None:
    """Where stdout is ASCII, letters outside it are replaced; the work is done all the same."""
    shutil.copy(SAMPLES / "residual_block.onnx", folder / "grün.onnx")
    command = ("partition", "grün.onnx", "--target", "dnnl", "--no-verify")

    answer = dpl_process(*command, PYTHONIOENCODING="ascii")

    assert (answer.code, answer.err) == (0, "")
    assert "Wrote gr" in answer.out
    assert (folder / "grün.partitioned.onnx").is_file()


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run a process that imports dpl from this checkout."""
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]  # noqa: S603  # ours
        command, env=environment, stderr=subprocess.PIPE, timeout=120, check=False, **options
    )


DPL = [sys.executable, "-m", "dplcli"]
RESNET = str(SAMPLES / "light_resnet50.onnx")


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ("match", RESNET, "--target", "dnnl", "--verbose"),
        ("match", RESNET, "--target", "dnnl", "--json", "-"),
        ("inspect", RESNET),
        ("--help",),
    ],
    ids=["table", "json", "inspect", "help"],
)
def test_a_reader_that_leaves_early_is_no_failure(command: tuple[str, ...]) -> None:
    """``| head -1``: no traceback, no word on stderr but progress, and never 1, which means no."""
    reader, writer = os.pipe()
    os.close(reader)

    done = run([*DPL, *command], stdout=writer)

    os.close(writer)
    assert b"Traceback" not in done.stderr
    assert b"error" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert done.returncode != 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_no_bug_of_dpl() -> None:
    """What cannot be printed is said in one line; nobody is asked to report a bug."""
    with Path("/dev/full").open("wb") as full:
        done = run([*DPL, "inspect", RESNET], stdout=full)

    assert done.returncode == 2
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"bug" not in done.stderr


def test_no_color_is_honoured_even_where_colour_is_forced(dpl_process: Dpl, model: Path) -> None:
    """NO_COLOR wins over what a terminal, or FORCE_COLOR, would allow."""
    command = ("match", model, "--target", "dnnl")
    answer = dpl_process(*command, NO_COLOR="1", FORCE_COLOR="1", TERM="xterm-256color")

    assert answer.code == 0
    assert "\x1b[3" not in answer.out  # foreground colours
    assert "\x1b[9" not in answer.out  # bright ones
