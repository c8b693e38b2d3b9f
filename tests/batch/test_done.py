"""What is done already: found again by what it means, wherever it lies."""

import os
import shutil
from pathlib import Path

import pytest

from dplcli.batch.done import contents_of, forget_oldest, keep_answer, key_of, read_answer

MODEL = Path(__file__).parents[2] / "sample_models" / "residual_block.onnx"


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return two folders with one model, and a cache of their own; the first is where we are."""
    monkeypatch.setenv("DPL_CACHE", str(tmp_path / "cache"))
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        shutil.copy(MODEL, folder / "m.onnx")
    monkeypatch.chdir(folders[0])
    return folders


def test_the_same_files_elsewhere_are_the_same_question(
    projects: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the request names the folder; another request is another one."""
    keys = []
    for folder in projects:
        monkeypatch.chdir(folder)
        contents = contents_of(Path("m.onnx"), [f"{folder}/m.onnx"], reads=True)
        keys += [key_of(contents, ["match", f"{folder}/m.onnx", n], folder) for n in range(2)]
    assert keys[0] == keys[2] != keys[1] == keys[3]
    monkeypatch.chdir(projects[0])
    keep_answer(keys[0], {"yes": 1})
    monkeypatch.chdir(projects[1])
    assert read_answer(keys[0]) == {"yes": 1}
    assert read_answer(keys[1]) is None


@pytest.mark.usefixtures("projects")
def test_a_catalogue_is_what_it_means() -> None:
    """Comments, layout and the order of keys change nothing; order that has a meaning does."""

    def told(text: str) -> str:
        Path("c.yaml").write_text(text)
        return contents_of(Path("m.onnx"), ["c.yaml"], reads=True)["c.yaml"]

    rule = "patterns:\n- {name: a, pattern: Relu(x)}\n"
    same = told(f"dpl: 1\ntarget: t\n{rule}")
    assert told(f"# new\n{rule}target: t   # here\ndpl: 1\n") == same
    assert told("patterns:\n- pattern: Relu(x)\n  name: a\ntarget: t\ndpl: 1\n") == same
    assert told(f"dpl: 1\ntarget: u\n{rule}") != same
    two = "patterns:\n- {name: %s}\n- {name: %s}\n"
    assert told(two % ("a", "b")) != told(two % ("b", "a"))
    each = "patterns:\n- {name: a, for_each: {%s: [1], %s: [2, 3]}}\n"
    assert told(each % ("k", "l")) != told(each % ("l", "k"))
    assert told("include: [c.yaml]\n") != told("not: [yaml")


def test_a_project_has_room_of_its_own(
    projects: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for last stays; another project loses nothing."""
    for folder in projects:
        monkeypatch.chdir(folder)
        for number in range(3):
            keep_answer(f"{folder.name}{number}", {"text": "x" * 400_000})
        for place in Path(os.environ["DPL_CACHE"]).rglob(f"{folder.name}*.json"):
            os.utime(place, (1, 1))
    assert read_answer("b1") is not None
    forget_oldest(1)

    kept = {each.stem for each in Path(os.environ["DPL_CACHE"]).rglob("*.json")}
    assert kept > {"a0", "a1", "a2", "b1"}
    assert len(kept) == 5
