"""``dpl view``: forms, parts, what is open, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import contents

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.support import Dpl, Save


@pytest.mark.usefixtures("model")
def test_a_page_is_written_beside_the_model(dpl: Dpl, folder: Path) -> None:
    """And written again, with the same bytes."""
    answer = dpl("view", "m.onnx")
    first = contents(folder)["m.html"]

    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "7 nodes in m.html; open it in a browser\n"
    assert dpl("view", "m.onnx", "-q").out == ""
    assert contents(folder)["m.html"] == first


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("a.dot", "// drawn by dpl"),
        ("a.gv", "//"),
        ("a.mmd", "%% drawn by dpl"),
        ("a.HTM", "<!doctype html>"),
    ],
)
@pytest.mark.usefixtures("model")
def test_the_ending_says_the_form(dpl: Dpl, folder: Path, name: str, begin: str) -> None:
    """What dpl drew it may draw again."""
    for _ in range(2):
        answer = dpl("view", "m.onnx", "-o", name)
        assert answer.code == 0, answer.err
    assert (folder / name).read_text(encoding="utf-8").startswith(begin)


@pytest.mark.usefixtures("model")
def test_a_page_goes_to_standard_output(dpl: Dpl, folder: Path) -> None:
    """And nothing else does; what a service would obey in it is a reference."""
    answer = dpl("view", "m.onnx", "-o", "-")

    assert answer.out.startswith("<!doctype html>")
    assert answer.out.endswith("</html>\n")
    assert list(contents(folder)) == ["m.onnx"]


@pytest.mark.usefixtures("model")
def test_the_data_of_the_page_is_there_for_programs(dpl: Dpl, folder: Path) -> None:
    """In a file, or instead of what is said; always the same."""
    first = dpl("view", "m.onnx", "--json", "-").out
    assert json.loads(first)["schema"] == "dpl.view/1"
    assert dpl("view", "m.onnx", "-o", "m.dot", "--json", "m.json").out == "7 nodes in m.dot\n"
    assert (folder / "m.json").read_text(encoding="utf-8") == first
    assert dpl("view", "m.onnx", "-o", "-", "--json", "-").message.endswith("want standard output")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["-o", "a.png"], "-o a.png: the ending says no form", "choose one of .html"),
        (
            ["-o", "theirs.html"],
            "-o theirs.html: exists and is no page that dpl wrote, so it is kept",
            "",
        ),
        (
            ["-o", "theirs.svg"],
            "-o theirs.svg: exists and is no drawing that dpl wrote, so it is kept",
            "",
        ),
        (
            ["-o", "nowhere/a.html"],
            "-o nowhere/a.html: cannot be written: No such file or directory",
            "",
        ),
        (
            ["--scope", "nothing"],
            "--scope nothing: no scope and no function has this name",
            "the model has no scopes and no functions",
        ),
        (
            ["--open", "nothing"],
            "--open nothing: no group, function or node has this name",
            "nothing in the picture opens",
        ),
        (["--scope", ""], "--scope '': no name is given", ""),
        (["--scope", "//"], "--scope '//': no name is given", ""),
        (["--open", ""], "--open '': no name is given", ""),
        (["--shape", "batch=2"], "no input has a dimension 'batch'", "there are: none"),
        (["--shape", "batch"], "--shape 'batch': not a size", ""),
        (
            ["--depth", "-1"],
            "Invalid value for '--depth': -1 is not in the range x>=0.",
            "try: dpl view",
        ),
    ],
)
@pytest.mark.usefixtures("model")
def test_what_cannot_be_done_is_refused(
    dpl: Dpl, folder: Path, arguments: list[str], message: str, hint: str
) -> None:
    """Before or after the model is read, nothing is left or replaced."""
    for name in ("theirs.html", "theirs.svg"):
        (folder / name).write_text("<p>mine</p>")
    before = contents(folder)
    answer = dpl("view", "m.onnx", *arguments)

    assert (answer.code, answer.message) == (2, message)
    assert answer.hint.startswith(hint)
    assert contents(folder) == before


@pytest.mark.usefixtures("model")
def test_the_model_itself_is_never_replaced(dpl: Dpl, folder: Path) -> None:
    """Even if it is called like a page."""
    (folder / "m.onnx").rename(folder / "m.html")
    before = contents(folder)

    assert dpl("view", "m.html").message == "-o m.html: is another file of this command"
    assert contents(folder) == before


def test_partitions_and_scopes_are_parts(dpl: Dpl, save: Save, folder: Path) -> None:
    """A function by its name, with or without the domain; --open and --depth open them."""
    save(
        """m (float[1,3,8,8] x) => (float[1,2,6,6] y)
    <float[2,3,3,3] w = {REST}, float[2] b = {1, 2}> { c = Conv(x, w, b) y = Relu(c) }""".replace(
            "REST", ", ".join(["1"] * 54)
        )
    )
    assert dpl("partition", "m.onnx", "-p", "conv_relu", "-o", "p.onnx", "--no-verify").code == 0

    for scope in ("conv2d_bias_relu", "dnnl::conv2d_bias_relu"):
        assert dpl("view", "p.onnx", "-o", "a.dot", "--scope", scope).code == 0
        assert (folder / "a.dot").read_text().count("label=") == 6
    for opening in (["--depth", "1"], ["--open", "conv2d_bias_relu"]):
        assert dpl("view", "p.onnx", "-o", "a.dot", *opening).code == 0
        text = (folder / "a.dot").read_text()
        assert text.count("subgraph") == 1
        assert all(op in text for op in ("Conv", "Relu", "dnnl.conv2d_bias_relu"))
    assert dpl("view", "p.onnx", "-o", "a.dot").code == 0
    assert "subgraph" not in (folder / "a.dot").read_text()


@pytest.mark.usefixtures("model")
def test_a_drawing_wants_graphviz(dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without, the message says so; with it, what it draws is marked as ours."""
    monkeypatch.setenv("PATH", str(folder))
    answer = dpl("view", "m.onnx", "-o", "m.svg")
    assert (answer.code, answer.hint[:17]) == (2, "install graphviz;")

    program = folder / "dot"
    program.write_text("#!/bin/sh\necho '<?xml?><svg/>'\n")
    program.chmod(0o755)
    assert dpl("view", "m.onnx", "-o", "m.svg").code == 0
    assert (folder / "m.svg").read_text() == "<?xml?><!-- drawn by dpl -->\n<svg/>\n"
