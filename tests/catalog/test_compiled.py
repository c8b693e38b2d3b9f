"""Rules from the cache are those of the catalogue; a file that others could write is not read."""

import os
import pickle
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import pytest

import dplcli as dpl
from dplcli.catalog import compiled
from dplcli.catalog.catalog import read_catalogs
from dplcli.catalog.compiled import read_compiled
from dplcli.catalog.finding import Catalog, shipped_catalogs
from dplcli.errors import CatalogError
from dplcli.onnx_io import OnnxSchemas, load_model
from dplcli.passes.rewrite import rewrite
from dplcli.passes.select import select_matches
from dplcli.pipeline.rules import READERS
from tests.support.helpers import one_in

SAMPLES = sorted((Path(__file__).parents[2] / "sample_models").glob("*.onnx"))
RELU = "dpl: 1\ntarget: t\npatterns:\n  - name: {name}\n    pattern: {pattern}\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the cache, which is not there yet; nothing is known from before."""
    folder = tmp_path / "kept" / "dpl"
    monkeypatch.setenv("DPL_CACHE", str(folder))
    forget()
    return folder


def forget() -> None:
    """Forget what this process has read, as another process would not know it."""
    compiled.KEPT.found.clear()


def read(*names: str) -> Catalog:
    """Read catalogues as the commands do, in a process that knows nothing yet."""
    forget()
    return read_compiled(names, OnnxSchemas(), readers=READERS)


def is_read_anew(monkeypatch: pytest.MonkeyPatch, *names: str) -> bool:
    """Tell whether the catalogues themselves are read, and not the cache."""
    reader = Mock(side_effect=read_catalogs)
    with monkeypatch.context() as patch:
        patch.setattr("dplcli.catalog.catalog.read_catalogs", reader)
        read(*names)
    return reader.called


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", one_in(5, shipped_catalogs()))
def test_the_rules_are_those_of_the_catalogue(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same order, of the same files, with the same places, and they find the same."""
    fresh = read_catalogs([name], OnnxSchemas())
    assert is_read_anew(monkeypatch, name)
    assert not is_read_anew(monkeypatch, name)
    kept = read(name)

    assert kept.files == fresh.files
    for made, rule in zip(kept.rules, fresh.rules, strict=True):
        assert (type(made), made.qualified_name) == (type(rule), rule.qualified_name)
        assert repr(made.pattern) == repr(rule.pattern)
        assert [part.text for part in made.where] == [part.text for part in rule.where]
        assert (made.opsets, made.escape, made.order) == (rule.opsets, rule.escape, rule.order)
        assert made.origin == rule.origin
    pairs = zip(kept.rules, fresh.rules, strict=True)
    made, rule = next(pair for pair in pairs if not getattr(pair[0], "is_nodewise", False))
    assert made.place(made.pattern) == rule.place(rule.pattern)
    for path in SAMPLES[:2]:
        found = [select_matches(load_model(path), catalog.patterns) for catalog in (kept, fresh)]
        assert found[0].counts == found[1].counts
        assert [str(each.reason) for each in found[0].refused] == [
            str(each.reason) for each in found[1].refused
        ]
        done = [rewrite(load_model(path), catalog.rewrites) for catalog in (kept, fresh)]
        assert done[0].counts == done[1].counts


@pytest.mark.usefixtures("cache")
def test_each_file_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one catalogue includes and another is, is there once, from the cache as well."""
    expected = [rule.name for rule in read_catalogs(["dnnl_ops", "dnnl"], OnnxSchemas()).rules]
    for _ in range(2):
        assert [rule.name for rule in read("dnnl_ops", "dnnl").rules] == expected
    assert not is_read_anew(monkeypatch, "dnnl", "dnnl_ops")
    both = read_catalogs(["dnnl", "dnnl_ops"], OnnxSchemas()).rules
    assert [rule.name for rule in read("dnnl", "dnnl_ops").rules] == [rule.name for rule in both]


@pytest.mark.usefixtures("cache")
def test_a_changed_text_gives_other_rules(tmp_path: Path) -> None:
    """Its own, or that of a file that it includes."""
    outer, inner = tmp_path / "outer.yaml", tmp_path / "inner.yaml"
    outer.write_text(RELU.format(name="a", pattern="Relu(x)") + "include: [inner.yaml]\n")
    inner.write_text(RELU.format(name="b", pattern="Abs(x)"))
    assert [rule.name for rule in read(str(outer)).rules] == ["b", "a"]
    inner.write_text(RELU.format(name="c", pattern="Abs(x)"))
    assert [rule.name for rule in read(str(outer)).rules] == ["c", "a"]
    assert [rule.name for rule in read(str(outer)).rules] == ["c", "a"]
    outer.write_text(RELU.format(name="d", pattern="Relu(x)"))
    assert [rule.name for rule in read(str(outer)).rules] == ["d"]
    outer.write_text(RELU.format(name="d", pattern="Relux(x)"))
    with pytest.raises(CatalogError, match=r"outer.yaml:5.*unknown operator 'Relux'"):
        read(str(outer))
    outer.unlink()
    with pytest.raises(CatalogError, match="no such catalogue"):
        read(str(outer))


@pytest.mark.usefixtures("cache")
def test_two_rules_of_one_name_are_refused_as_ever(tmp_path: Path) -> None:
    """Though each catalogue alone is in the cache."""
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    for path in (one, other):
        path.write_text(RELU.format(name="same", pattern="Relu(x)"))
        read(str(path))
    with pytest.raises(CatalogError) as fresh:
        read_catalogs([str(one), str(other)], OnnxSchemas())
    with pytest.raises(CatalogError) as kept:
        read(str(one), str(other))
    assert kept.value.message == fresh.value.message


def evil(marker: Path) -> bytes:
    """Return a file of the cache that does something when it is read."""
    data = pickle.dumps(Evil(marker))
    return sha256(data).digest() + data


class Evil:
    """Makes a file when somebody reads it."""

    def __init__(self, marker: Path) -> None:
        """Remember which."""
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        """Have the reader make it."""
        return Path.touch, (self.marker,)


def widen(path: Path) -> None:
    """Let others write it."""
    path.chmod(0o666)


def widen_folder(path: Path) -> None:
    """Let others put files beside it."""
    path.parent.chmod(0o777)


def give_away(path: Path) -> None:
    """Make it somebody else's."""
    if os.geteuid():
        pytest.skip("only root may give files away")
    os.chown(path, 12345, 12345)


def give_folder_away(path: Path) -> None:
    """Make its folder somebody else's."""
    give_away(path.parent)


def put_behind_a_link(path: Path) -> None:
    """Let the name be a link, which others may have put there."""
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def cut_off(path: Path) -> None:
    """Lose the end, as when a disk is full."""
    path.write_bytes(path.read_bytes()[:-1])


def make_pipe(path: Path) -> None:
    """Let a reader wait for ever."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "make",
    [
        None,
        widen,
        widen_folder,
        give_away,
        give_folder_away,
        put_behind_a_link,
        cut_off,
        make_pipe,
    ],
)
def test_a_strangers_file_is_never_unpickled(
    cache: Path, tmp_path: Path, make: Callable[[Path], None] | None
) -> None:
    """Only what this user alone could have written is; the first case shows that this can fail."""
    read("conv_relu")
    (file,) = cache.iterdir()
    marker = tmp_path / "marker"
    file.write_bytes(evil(marker))
    if make is not None:
        make(file)

    assert len(read("conv_relu").rules) == 12
    assert marker.exists() == (make is None)


def test_there_may_be_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is wanted, none can be made, or something else is in its place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPL_CACHE", "")
    assert is_read_anew(monkeypatch, "conv_relu")
    assert is_read_anew(monkeypatch, "conv_relu")
    (tmp_path / "file").touch()
    for place in ("file", "file/dpl", "/proc/dpl"):
        monkeypatch.setenv("DPL_CACHE", place)
        assert len(read("conv_relu").rules) == 12
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208  # names


def test_few_files_are_kept(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first."""
    monkeypatch.setattr(compiled, "_MOST_FILES", 3)
    for number in range(5):
        path = tmp_path / f"{number}.yaml"
        path.write_text(RELU.format(name=f"r{number}", pattern="Relu(x)"))
        read(str(path))
    assert len(list(cache.iterdir())) == 3
    assert not is_read_anew(monkeypatch, str(tmp_path / "4.yaml"))
    assert is_read_anew(monkeypatch, str(tmp_path / "0.yaml"))


def test_only_the_user_may_read_it(cache: Path) -> None:
    """Patterns may be somebody's secret."""
    read("conv_relu")
    (file,) = cache.iterdir()
    assert (cache.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_code_is_read_each_time(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalogue in Python, and one that may import code; no bytecode is left beside it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "rules.py"
    path.write_text(
        "from dplcli.language import *\n"
        "CATALOG = [PatternRule('t', 'r', is_op('Relu')(wildcard()))]\n"
    )
    model = SAMPLES[0]
    assert "t.r" in dpl.match(model, patterns=path).counts
    path.write_text(path.read_text().replace("'r'", "'s'"))
    assert "t.s" in dpl.match(model, patterns=path).counts
    assert not (tmp_path / "__pycache__").exists()
    dpl.match(model, patterns="conv_relu", allow_code=True)
    of_hints = {*cache.glob("*")}
    dpl.match(model, patterns="conv_relu")
    assert len({*cache.glob("*")} - of_hints) == 1
