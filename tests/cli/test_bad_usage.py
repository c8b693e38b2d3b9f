"""Bad options and places to write to: one clear message, exit code 2, nothing touched."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.support import SAMPLES, Dpl, contents

DNNL = ("partition", "m.onnx", "--target", "dnnl")

OPTIONS = {
    "no-model": (("partition", "--target", "dnnl"), "'MODEL'", "dpl partition --help"),
    "three-models": (("verify", "m.onnx", "n.onnx", "o.onnx"), "o.onnx", "dpl verify --help"),
    "unknown-option": ((*DNNL, "--verbos"), "--verbos", "dpl partition --help"),
    "option-of-another": (("match", "m.onnx", "--in-place"), "--in-place", "dpl match --help"),
    "unknown-command": (("partitoin", "m.onnx"), "did you mean 'partition'?", "dpl --help"),
    "unlike-any-command": (("frobnicate",), "'frobnicate'", "dpl --help"),
    "unknown-global": (("--frob", "match"), "--frob", "dpl --help"),
    "in-place-and-output": ((*DNNL, "--in-place", "-o", "out.onnx"), "--in-place", ""),
    "expect-nothing": ((*DNNL, "--expect", ""), "not an expectation", "RULE>=NUMBER"),
    "expect-no-number": ((*DNNL, "--expect", "dnnl.conv2d>=x"), "not an expectation", "RULE>="),
    "expect-negative": ((*DNNL, "--expect", "dnnl.conv2d>=-1"), "not an expectation", "RULE>="),
    "expect-no-relation": ((*DNNL, "--expect", "dnnl.conv2d"), "not an expectation", "RULE>="),
    "expect-two": ((*DNNL, "--expect", "dnnl.conv2d>=1,dnnl.conv2d_bias>=1"), "not an exp", ""),
    "expect-unknown-rule": (
        (*DNNL, "--expect", "dnnl.conv2d_bias_rleu>=1"),
        "there is no rule 'dnnl.conv2d_bias_rleu'",
        "did you mean 'dnnl.conv2d_bias_relu'?",
    ),
    "expect-without-target": (
        (*DNNL, "--expect", "conv2d_bias_relu>=1"),
        "there is no rule 'conv2d_bias_relu'",
        "did you mean 'dnnl.conv2d_bias_relu'?",
    ),
    "size-without-number": ((*DNNL, "--size", "batch"), "--shape 'batch'", "batch=4"),
    "size-without-name": ((*DNNL, "--size", "=4"), "--shape '=4'", "batch=4"),
    "size-negative": ((*DNNL, "--size", "batch=-4"), "--shape 'batch=-4'", "batch=4"),
    "size-superscript": ((*DNNL, "--size", "batch=²"), "--shape 'batch=²'", "batch=4"),
    "size-of-nothing": ((*DNNL, "--size", "batch=4"), "no input has a dimension 'batch'", ""),
    "seed-negative": ((*DNNL, "--seed", "-1"), "seed", ""),
    "seed-no-number": ((*DNNL, "--seed", "x"), "'--seed'", "dpl partition --help"),
    "level-unknown": ((*DNNL, "--level", "al"), "'al'", "dpl partition --help"),
    "rtol-negative": ((*DNNL, "--rtol", "-1"), "rtol", ""),
    "rtol-infinite": ((*DNNL, "--rtol", "inf"), "rtol", ""),
    "atol-infinite": ((*DNNL, "--atol", "inf"), "atol", ""),
    "rtol-nan": ((*DNNL, "--rtol", "nan"), "rtol", ""),
    "atol-no-number": ((*DNNL, "--atol", "x"), "'--atol'", "dpl partition --help"),
    "power-of-no-check": (
        (*DNNL, "--no-verify", "--min-power", "0.9"),
        "a check that is not made has no power",
        "leave --no-verify out",
    ),
    "power-of-no-check-of-functions": (
        ("inline", "m.onnx", "--all-functions", "--no-verify", "--mutants", "5"),
        "a check that is not made has no power",
        "leave --no-verify out",
    ),
    "node-unknown": (
        ("inspect", "m.onnx", "--node", "Rellu_0"),
        "'Rellu_0': no node",
        "did you mean 'Relu_0'?",
    ),
    "one-model-to-verify": (("verify", "m.onnx"), "needs ORIGINAL and CANDIDATE", "--from RESULTS"),
}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(("arguments", "message", "hint"), OPTIONS.values(), ids=OPTIONS)
def test_wrong_usage_is_refused_in_one_line(
    dpl: Dpl, folder: Path, arguments: tuple[str, ...], message: str, hint: str
) -> None:
    """The message says which word is wrong, the hint what to write; nothing is touched."""
    before = contents(folder)

    answer = dpl(*arguments)

    assert answer.code == 2
    assert message in answer.message
    assert "\n" not in answer.message
    assert hint in answer.hint
    assert answer.out == ""
    assert contents(folder) == before


def test_no_command_is_answered_with_the_help(dpl: Dpl) -> None:
    """Plain ``dpl`` shows what it can do; an overview is no error message."""
    answer = dpl()

    assert answer.code == 2
    assert "Usage: dpl" in answer.out + answer.err
    assert "partition" in answer.out + answer.err
    assert "error:" not in answer.err


PLACES = {
    "missing-folder": ("gone/out.onnx", "there is no folder 'gone'"),
    "file-as-folder": ("file/out.onnx", "'file'"),
    "directory": ("sub", "is a directory"),
    "directory-with-slash": ("sub/", "is a directory"),
    "here": (".", "is a directory"),
    "nameless": ("", ""),
    "no-files-there": ("/proc/out.onnx", "cannot be written"),
    "name-too-long": ("x" * 300 + ".onnx", "cannot be written"),
    "pipe": ("pipe", "pipe"),
}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("verify", [(), ("--no-verify",)], ids=["verify", "no-verify"])
@pytest.mark.parametrize(("place", "message"), PLACES.values(), ids=PLACES)
def test_an_output_that_cannot_be_written_is_refused(
    dpl: Dpl, folder: Path, place: str, message: str, verify: tuple[str, ...]
) -> None:
    """The message names the place; a device or pipe in the way is not replaced by a file."""
    (folder / "file").write_text("text")
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe")
    before = contents(folder)

    answer = dpl(*DNNL, "-o", place, *verify)

    assert answer.code == 2
    assert message in answer.message
    assert (folder / "pipe").is_fifo()
    assert contents(folder) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.usefixtures("model")
def test_a_read_only_folder_is_refused(dpl: Dpl, folder: Path) -> None:
    """Permission is asked for before any work is done."""
    (folder / "sub").mkdir(mode=0o555)

    answer = dpl(*DNNL, "-o", "sub/out.onnx")

    assert answer.code == 2
    assert "cannot be written" in answer.message


SAME = ["m.onnx", "./m.onnx", "sub/../m.onnx", "link.onnx", "hard.onnx", "linked/m.onnx"]


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
@pytest.mark.parametrize("place", SAME)
def test_the_model_is_not_overwritten_without_leave(
    dpl: Dpl, folder: Path, model: Path, place: str, *, absolute: bool
) -> None:
    """However the model is spelt, an output that is the model needs --in-place."""
    (folder / "sub").mkdir()
    (folder / "link.onnx").symlink_to(model)
    (folder / "hard.onnx").hardlink_to(model)
    (folder / "linked").symlink_to(folder)
    before = model.read_bytes()

    answer = dpl(*DNNL, "-o", folder / place if absolute else place)

    assert answer.code == 2
    assert "the output is the input" in answer.message
    assert "--in-place" in answer.hint
    assert model.read_bytes() == before


def test_the_default_output_does_not_overwrite_the_model(dpl: Dpl, folder: Path) -> None:
    """A link that leads from the default output to the model is noticed, too."""
    shutil.copy(SAMPLES / "residual_block.onnx", folder / "m.onnx")
    (folder / "m.partitioned.onnx").symlink_to("m.onnx")
    before = contents(folder)

    answer = dpl(*DNNL)

    assert answer.code == 2
    assert "--in-place" in answer.hint
    assert contents(folder) == before


JSON_PLACES = {
    "missing-folder": "gone/report.json",
    "directory": "sub",
    "no-files-there": "/proc/report.json",
    "the-model": "m.onnx",
    "the-output": "out.onnx",
    "the-catalogue": "rules.yaml",
    "nameless": "",
}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("place", JSON_PLACES.values(), ids=JSON_PLACES)
def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    dpl: Dpl, folder: Path, place: str
) -> None:
    """Exit 2 leaves no output model behind, and no report replaces a model or a catalogue."""
    shutil.copy(SAMPLES.parent / "patterns" / "conv_relu.yaml", folder / "rules.yaml")
    (folder / "sub").mkdir()
    before = contents(folder)

    answer = dpl("partition", "m.onnx", "-p", "rules.yaml", "-o", "out.onnx", "--json", place)

    assert answer.code == 2
    assert "--json" in answer.message
    assert contents(folder) == before


@pytest.mark.usefixtures("model")
def test_a_report_does_not_replace_a_pipe(dpl: Dpl, folder: Path) -> None:
    """``--json >(program)`` hands over a pipe: it is written to, or refused, but stays."""
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    answer = dpl("match", "m.onnx", "--target", "dnnl", "--json", "pipe")

    os.close(reader)
    assert answer.code in {0, 2}
    assert (folder / "pipe").is_fifo()


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", [("match", "--target", "dnnl"), ("inspect",)])
def test_a_report_does_not_replace_the_model(
    dpl: Dpl, folder: Path, command: tuple[str, ...]
) -> None:
    """``--json MODEL`` is a slip of the hand, not a wish to lose the model."""
    before = contents(folder)

    answer = dpl(*command, "m.onnx", "--json", "m.onnx")

    assert answer.code == 2
    assert "--json" in answer.message
    assert contents(folder) == before


def test_verify_does_not_replace_a_model_by_its_report(dpl: Dpl, folder: Path) -> None:
    """Neither the original nor the candidate is overwritten."""
    for name in ("a.onnx", "b.onnx"):
        shutil.copy(SAMPLES / "residual_block.onnx", folder / name)
    before = contents(folder)

    assert dpl("verify", "a.onnx", "b.onnx", "--json", "a.onnx").code == 2
    assert dpl("verify", "a.onnx", "b.onnx", "--json", "b.onnx").code == 2
    assert contents(folder) == before
