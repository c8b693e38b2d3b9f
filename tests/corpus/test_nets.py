"""Which models there are: ours are whole and licensed, and the corpus is where it is said to be."""

from __future__ import annotations

import hashlib
import re
from fnmatch import fnmatch
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.conftest import pytest_runtest_makereport
from tests.corpus import nets

if TYPE_CHECKING:
    from pathlib import Path

README = (nets.OURS / "README.md").read_text(encoding="utf-8")
ENTRIES = nets._entries(nets.OURS)  # noqa: SLF001  # of ours alone


def test_each_file_is_as_the_manifest_says() -> None:
    """No model without an entry, no entry without its model, and no byte changed."""
    files = {path.name for path in nets.OURS.glob("*.onnx")}
    samples = {f"{name}.onnx" for name in nets.SAMPLES}

    assert files.isdisjoint(samples)
    assert files | samples == set(ENTRIES)
    for name, entry in ENTRIES.items():
        path = nets.our_model(name)
        assert path is not None
        data = path.read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (entry["sha256"], entry["size"])


def test_each_file_has_its_licence() -> None:
    """The README lists each model and each licence, and no licence is left over."""
    named = [name for row in README.splitlines() for name in re.findall(r"`(\S+?)`", row[:300])]
    for path in nets.OURS.glob("*.onnx"):
        assert any(fnmatch(path.name, pattern) for pattern in named), path.name
    used = {text for entry in ENTRIES.values() for text in entry.get("licence_file", ())}
    assert used == {f"LICENSES/{path.name}" for path in (nets.OURS / "LICENSES").iterdir()}
    assert used == set(re.findall(r"\((LICENSES/\S+)\)", README))


def corpus_with(monkeypatch: pytest.MonkeyPatch, named: str | None, beside: Path) -> Path | None:
    """Look for the corpus where the variable is *named*, or unset."""
    monkeypatch.setattr(nets, "BESIDE", beside)
    monkeypatch.delenv(nets.VARIABLE, raising=False)
    if named is not None:
        monkeypatch.setenv(nets.VARIABLE, named)
    return nets.corpus.__wrapped__()


def test_the_corpus_is_what_the_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable first, then what lies beside the checkout; an empty text is none."""
    beside, other, none = (tmp_path / name for name in ("beside", "other", "none"))
    for folder in (beside, other, none):
        folder.mkdir()
    for folder in (beside, other):
        (folder / "manifest.json").write_text('{"models": []}', encoding="utf-8")

    assert corpus_with(monkeypatch, None, beside) == beside
    assert corpus_with(monkeypatch, str(other), beside) == other
    assert corpus_with(monkeypatch, "", beside) is None
    assert corpus_with(monkeypatch, None, none) is None
    with pytest.raises(pytest.UsageError, match=r"DPL_CORPUS=.*none: no folder with a manifest"):
        corpus_with(monkeypatch, str(none), beside)


def test_a_model_is_found_or_the_test_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours first, then the corpus; else a reason that names the model and the variable."""
    (tmp_path / "far.onnx").write_bytes(b"")
    monkeypatch.setattr(nets, "corpus", lambda: tmp_path)

    assert nets.real_model("far") == nets.real_model("far.onnx") == tmp_path / "far.onnx"
    assert nets.real_model("trt_loop.onnx") == nets.OURS / "trt_loop.onnx"
    assert nets.real_model("deit-dynamo18").name == "deit.onnx"
    assert nets.real_model("onnx_light_vgg19").is_file()
    with pytest.raises(pytest.skip.Exception, match=r"nowhere is not among .* DPL_CORPUS"):
        nets.real_model("nowhere")
    monkeypatch.setattr(nets, "corpus", lambda: None)
    with pytest.raises(pytest.skip.Exception, match=r"far is not among .* DPL_CORPUS"):
        nets.real_model("far")


@pytest.mark.parametrize(
    ("marks", "reason", "outcome"),
    [
        pytest.param((), f"far {nets.ABSENT}", "failed", id="quick"),
        pytest.param(("long",), f"far {nets.ABSENT}", "skipped", id="long"),
        pytest.param((), "gcc is not installed", "skipped", id="other-reason"),
    ],
)
def test_no_quick_test_is_skipped_for_want_of_a_model(
    marks: tuple[str, ...], reason: str, outcome: str
) -> None:
    """The quick part is run where there is no corpus, and the long part would not run it."""
    item = SimpleNamespace(nodeid="test_it", get_closest_marker=lambda name: name in marks or None)
    report = SimpleNamespace(skipped=True, outcome="skipped", longrepr=("f.py", 1, reason))
    hook = pytest_runtest_makereport(item)  # type: ignore[arg-type]
    next(hook)

    with pytest.raises(StopIteration):
        hook.send(report)  # type: ignore[arg-type]

    assert report.outcome == outcome


def test_what_others_have_is_for_the_long_part() -> None:
    """A parameter that needs the corpus is marked; one of ours is not."""
    ours, theirs = nets.each_model(["trt_loop", "nowhere"], 1)

    assert (ours.values, ours.id, list(ours.marks)) == (("trt_loop", 1), "trt_loop", [])
    assert theirs.values == ("nowhere", 1)
    assert [mark.name for mark in theirs.marks] == ["long"]
