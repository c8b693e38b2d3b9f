"""What is done already: found again by what it means, wherever it lies."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from dplcli.batch import done
from dplcli.batch.done import contents_of, forget_oldest, keep_answer, key_of, program, read_answer
from dplcli.catalog import compiled
from dplcli.version import program_files

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


def with_external_data(folder: Path, links_to: Path | None = None) -> Path:
    """Write a model into a folder, its weights beside it or elsewhere; return where these are."""
    folder.mkdir(parents=True)
    proto = onnx.load(MODEL)
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    path = folder / "n.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w", size_threshold=0)
    if links_to is None:
        return folder / "w"
    links_to.parent.mkdir(parents=True)
    (folder / "w").rename(links_to)
    (folder / "w").symlink_to(os.path.relpath(links_to, folder))
    return links_to


RULE = "patterns:\n- {name: a, pattern: Relu(x), check: 'checks:ok'}\n"
READ = {
    "a function": ("feeds.py:make", "feeds.py"),
    "a module": ("feeds:make", "feeds.py"),
    "what it imports": ("feeds.py:make", "helper.py"),
    "what it opens": ("feeds:make", "numbers.npy"),
    "a folder": ("data", "data/test_data_set_0/input_0.pb"),
    "a check": ("c.yaml", "checks.py"),
    "what a check imports": ("c.yaml", "helper.py"),
    "a plan": ("plan.yaml", "checks.py"),
    "another model": ("two/n.onnx", "two/w"),
    "a cache of Hugging Face": ("hub/snapshots/1/n.onnx", "hub/blobs/2"),
}


@pytest.mark.usefixtures("projects")
@pytest.mark.parametrize(("text", "file"), READ.values(), ids=READ)
def test_what_is_named_inside_a_text_counts(text: str, file: str) -> None:
    """However it is spelled: another content is another question, and so is none."""
    Path("feeds.py").write_text("from helper import K\ndef make(s): open('numbers.npy')\n")
    Path("checks.py").write_text("import helper\n")
    Path("helper.py").write_text("K = 1\n")
    Path("numbers.npy").write_text("1")
    Path("c.yaml").write_text(f"dpl: 1\ntarget: t\n{RULE}")
    Path("plan.yaml").write_text("catalogues: [c.yaml]\n")
    Path("data/test_data_set_0").mkdir(parents=True)
    Path("data/test_data_set_0/input_0.pb").write_text("1")
    with_external_data(Path("two"))
    with_external_data(Path("hub/snapshots/1"), Path("hub/blobs/2"))

    def key() -> str:
        contents = contents_of(Path("m.onnx"), [text], reads=True)
        return key_of(contents, [text], Path.cwd())

    first = key()
    assert first
    assert key() == first
    Path(file).write_bytes(Path(file).read_bytes() + b" ")
    assert key() not in {first, ""}
    Path(file).unlink()
    assert key() != first


def test_all_files_of_the_package_count() -> None:
    """Tables, templates and code in other languages, too; its catalogues wherever they lie."""
    package = Path(done.__file__).parents[1]
    found = {each for each in package.rglob("*") if each.is_file() and each.suffix != ".pyc"}
    files = program_files()
    assert found <= {*files.values()}
    assert {"onnx_io/contrib.txt", "execute/cutlass/product.cu", "patterns/fuse.yaml"} <= {*files}


@pytest.mark.parametrize("kept", [program, compiled.code], ids=["answers", "rules"])
def test_a_table_of_dpl_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Callable[[], object]
) -> None:
    """What is kept of answers, and of the rules of catalogues, is for one table."""
    table = tmp_path / "contrib.txt"
    told = []
    for text in ("Gelu:", "Gelu: approximate"):
        table.write_text(text)
        for module in (done, compiled):
            monkeypatch.setattr(module, "program_files", lambda: {"contrib.txt": table})
        kept.cache_clear()  # type: ignore[attr-defined]
        told.append(kept())
    kept.cache_clear()  # type: ignore[attr-defined]
    assert told[0] != told[1]


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
