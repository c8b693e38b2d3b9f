"""``dpl diff`` as a user meets it."""

import html
import json
import re
from pathlib import Path

import pytest

from tests.cli.support import SAMPLES, Dpl, Save

A = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Add (x, w) y = Relu (a) }"
B = A.replace("Relu", "Sigmoid").replace("{1, 2}", "{1, 4}")


def test_equal_models(dpl: Dpl, save: Save) -> None:
    """Equal models are 0, and what differs without counting is said."""
    first, second = save(A, "a.onnx"), save(A.replace("a =", "b =").replace("(a)", "(b)"), "b.onnx")
    answer = dpl("diff", first, second)
    assert (answer.code, answer.err) == (0, "")
    assert "a.onnx and b.onnx are structurally equal." in answer.out
    assert "Not counted: names 1 (--ignore nothing counts and lists them)." in answer.out
    answer = dpl("diff", first, second, "--ignore", "nothing")
    assert answer.code == 1
    assert "~ names: main: 'a' -> 'b'" in answer.out


def test_different_models(dpl: Dpl, save: Save) -> None:
    """Different models are 1, one line for each difference."""
    answer = dpl("diff", save(A, "a.onnx"), save(B, "b.onnx"))
    assert (answer.code, answer.err) == (1, "")
    assert answer.out.splitlines() == [
        "a.onnx -> b.onnx: 1 node changed, 1 weight changed.",
        "",
        "main  2 nodes -> 2, 2 in both",
        "  ~ Relu y -> Sigmoid y: another operator",
        "  ~ weight w float32[2]: 1 of 2 elements differ, by at most 2, relative 0.5",
    ]
    assert dpl("diff", "a.onnx", "b.onnx", "--quiet").out == ""


def test_record(dpl: Dpl, save: Save, folder: Path) -> None:
    """The JSON says all of it, the same each time, and mirrored the other way round."""
    save(A, "a.onnx"), save(B, "b.onnx")
    first = dpl("diff", "a.onnx", "b.onnx", "--json", "-")
    assert first.code == 1
    assert first.out == dpl("diff", "a.onnx", "b.onnx", "--json", "-").out
    record = json.loads(first.out)
    assert record["schema"] == "dpl.diff/1"
    assert (record["model"], record["candidate"]) == ("a.onnx", "b.onnx")
    assert not record["equal"]
    (main,) = record["graphs"]
    assert [c["after"]["op_type"] for c in main["changed"]] == ["Sigmoid"]
    assert main["weights"] == [
        {
            "before": {"name": "w", "type": "float32[2]"},
            "after": {"name": "w", "type": "float32[2]"},
            "distance": {"changed": 1, "size": 2, "max_abs": 2.0, "max_rel": 0.5},
        }
    ]
    back = json.loads(dpl("diff", "b.onnx", "a.onnx", "--json", "-").out)
    assert back["counts"] == record["counts"]
    assert {path.name for path in folder.iterdir()} == {"a.onnx", "b.onnx"}


def test_long_lists_are_shortened(dpl: Dpl, save: Save) -> None:
    """Twelve lines of a kind are shown, --verbose shows all."""
    nodes = " ".join(f"v{k + 1} = Neg (v{k})" for k in range(30))
    more = f"g (float[2] v0) => (float[2] y) {{ {nodes} y = Relu (v30) }}"
    save("g (float[2] v0) => (float[2] y) { y = Relu (v0) }", "a.onnx"), save(more, "b.onnx")
    answer = dpl("diff", "a.onnx", "b.onnx")
    assert answer.out.count("  + ") == 12
    assert "  … 18 more: 18 Neg (--verbose)" in answer.out
    assert dpl("diff", "a.onnx", "b.onnx", "--verbose").out.count("  + ") == 30


@pytest.mark.parametrize("what", ["partition", "rewrite"])
def test_what_dpl_does_is_told(dpl: Dpl, model: Path, what: str) -> None:
    """A partition is functions and calls; inlined again it is equal, IR version aside."""
    assert SAMPLES.is_dir()
    if what == "rewrite":
        done = dpl("rewrite", model, "-p", "prepare", "-o", "r.onnx", "--no-verify")
        assert done.code == 0
        assert dpl("diff", "r.onnx", "r.onnx").code == 0
        return
    assert dpl("partition", model, "--target", "dnnl", "-o", "p.onnx", "--no-verify").code == 0
    answer = dpl("diff", model, "p.onnx")
    assert answer.code == 1
    assert "+ function dnnl::conv2d_bias_relu" in answer.out
    assert dpl("inline", "p.onnx", "-o", "i.onnx", "--no-verify").code == 0
    assert dpl("diff", model, "i.onnx").code == 0


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (["--ignore", "name"], "--ignore: 'name' is nothing that can be", "did you mean 'names'?"),
        (["--ignore", ""], "--ignore: '' is nothing that can be", "one of names"),
        (["--ignore", "nothing,doc"], "--ignore: 'nothing' stands alone", ""),
        (["--json", "m.onnx"], "--json m.onnx: is another file", ""),
    ],
)
def test_bad_usage(dpl: Dpl, model: Path, options: list[str], message: str, hint: str) -> None:
    """What cannot be done is 2, with one message."""
    answer = dpl("diff", model.name, model.name, *options)
    assert answer.code == 2
    assert answer.message.startswith(message)
    assert hint in answer.hint
    assert answer.out == ""


def test_bad_files(dpl: Dpl, model: Path, folder: Path) -> None:
    """A file that is no model is 2, whichever of the two it is."""
    (folder / "bad.onnx").write_bytes(b"\xff" * 40)
    for files in ((model, "bad.onnx"), ("bad.onnx", model), (model, "missing.onnx")):
        answer = dpl("diff", *files)
        assert answer.code == 2
        assert answer.message


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_pages_say_what_the_terminal_says(dpl: Dpl, save: Save, folder: Path, form: str) -> None:
    """Every difference has a line, no model is needed any more, and nothing else is replaced."""
    save(A, "a.onnx"), save(B, "b.onnx")
    page = folder / f"d.{form}"
    answer = dpl("diff", "a.onnx", "b.onnx", f"--{form}", page.name)
    text = html.unescape(re.sub("<[^>]*>", "", page.read_text(encoding="utf-8")))

    assert (answer.code, answer.err) == (1, "")
    assert "Different" in text
    assert "main  2 nodes -> 2, 2 in both" in text
    for line in answer.out.splitlines()[3:]:
        assert line[4:] in text
    assert dpl("diff", "a.onnx", "a.onnx", f"--{form}", page.name).code == 0
    assert "Structurally equal" in page.read_text(encoding="utf-8")
    assert dpl("diff", "a.onnx", "b.onnx", f"--{form}", "b.onnx").code == 2
