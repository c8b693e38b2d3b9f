"""What names many models: no glob goes in circles, or stumbles over what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplcli.batch.build_file import read_build_file
from dplcli.batch.models import find_models
from dplcli.errors import DplError, UsageError

FILES = ["a.onnx", "a.data", "b/c.onnx", "b/d/e.onnx", "b/d/[x]/f.onnx", ".hidden/g.onnx"]
FILES += ["b/env/pyvenv.cfg", "b/env/lib/h.onnx"]  # a virtual environment
FILES += ["venv/lib/h.onnx", "b/conda/conda-meta/history", "b/conda/lib/h.onnx"]  # and others


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of files, with links in it that lead back and into nothing."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "back").symlink_to(tmp_path)
    (tmp_path / "b" / "loop").symlink_to(tmp_path / "b" / "loop")
    (tmp_path / "b" / "gone").symlink_to(tmp_path / "nowhere")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**", "a.onnx b/c.onnx b/d/[x]/f.onnx b/d/e.onnx"),
        ("*", "a.onnx"),
        ("**/*", "a.onnx b/c.onnx b/d/[x]/f.onnx b/d/e.onnx"),
        ("a.*", "a.data a.onnx"),
        ("b/**/*.onnx", "b/c.onnx b/d/[x]/f.onnx b/d/e.onnx"),
        ("**/d/**/f.onnx", "b/d/[x]/f.onnx"),
        ("**/b/*.onnx", "b/c.onnx"),
        ("**/[ce].onnx", "b/c.onnx b/d/e.onnx"),
    ],
)
@pytest.mark.parametrize("is_absolute", [True, False])
def test_globs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, expected: str, *, is_absolute: bool
) -> None:
    """Each file once; hidden files, environments, and what only links lead to are left out."""
    monkeypatch.chdir(folder)
    start = folder if is_absolute else Path()
    found = find_models([start / pattern])
    assert [each.path.relative_to(start).as_posix() for each in found] == expected.split()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no such folder")
def test_a_folder_that_changes_meanwhile_and_is_full_of_links() -> None:
    """Processes come and go there, and links lead to all files that there are."""
    with pytest.raises(UsageError, match="no file is called like this"):
        find_models([Path("/proc/**")])


DEEP = {
    "lists": "models = " + "[" * 5000 + "]" * 5000,
    "tables": "models = " + "{a = " * 5000 + "1" + "}" * 5000,
    "keys": "models" + ".a" * 5000 + " = 1",
    "headers": "[tool.dpl" + ".a" * 5000 + "]",
    "open": "models = " + "[" * 100_000,
}


@pytest.mark.parametrize("kind", DEEP)
def test_a_project_file_that_nests_deep(tmp_path: Path, kind: str) -> None:
    """It is refused with its name, whatever nests in it."""
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.dpl]\n{DEEP[kind]}\n")
    with pytest.raises(DplError, match=r"pyproject\.toml"):
        read_build_file(path)
