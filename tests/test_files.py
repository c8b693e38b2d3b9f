"""Files are written whole or not at all, nothing stays behind, and libraries find odd names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import pytest

from dplcli import files

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
LEFT = """
import os, sys
from pathlib import Path
from dplcli import files
scope = getattr(files, sys.argv[1])(Path("."))
path = scope.__enter__()
(path / "inside" if path.is_dir() else path).write_text("x")
if sys.argv[2] == "fork" and os.fork() == 0:
    sys.exit()
os.wait() if sys.argv[2] == "fork" else None
print(path.exists())
"""


def names(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def full(stream: BinaryIO) -> NoReturn:
    """Write a little, until the disk is full."""
    stream.write(b"half")
    raise OSError(28, "No space left on device")


WRITERS = {
    "write_file": lambda path: files.write_file(path, full),
    "temporary_file": lambda path: _in_block(files.temporary_file(path.parent)),
    "temporary_folder": lambda path: _in_block(files.temporary_folder(path.parent)),
}


def _in_block(scope: object) -> None:
    with scope as path:  # type: ignore[attr-defined]
        (path / "x" if path.is_dir() else path).write_bytes(b"half")
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, write: Callable[[Path], None]) -> None:
    """What is replaced stays as it was, and nothing lies beside it."""
    path = tmp_path / "report.json"
    path.write_text("before", encoding="utf-8")

    with pytest.raises(OSError, match="No space left"):
        write(path)

    assert names(tmp_path) == ["report.json"]
    assert path.read_text(encoding="utf-8") == "before"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("call", ["close", "mkdir"])
def test_a_signal_right_after_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: type[BaseException]
) -> None:
    """It is known before it is there, so there is no moment in which it can be lost."""
    close, mkdir = os.close, Path.mkdir

    def close_then(descriptor: int) -> NoReturn:
        close(descriptor)
        raise error

    def mkdir_then(path: Path, mode: int) -> NoReturn:
        mkdir(path, mode)
        raise error

    if call == "close":
        monkeypatch.setattr(os, "close", close_then)
        scope: object = files.temporary_file(tmp_path)
    else:
        monkeypatch.setattr(Path, "mkdir", mkdir_then)
        scope = files.temporary_folder(tmp_path)
    with pytest.raises(error):
        scope.__enter__()  # type: ignore[attr-defined]

    assert names(tmp_path) == []


@pytest.mark.parametrize("scope", ["temporary_file", "temporary_folder"])
@pytest.mark.parametrize("how", ["leave", "fork"])
def test_what_is_still_there_at_the_end_of_the_program(
    tmp_path: Path, scope: str, how: str
) -> None:
    """A block that nobody leaves is left by the program's end; a fork's end leaves it alone."""
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", LEFT, scope, how],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )

    assert done.stdout == "True\n"
    assert names(tmp_path) == []


def test_a_name_that_is_taken_stays_whose_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's file is taken for ours because it has the name that we thought of."""
    drawn = iter(["aaaaaaaa", "aaaaaaaa", "bbbbbbbb"])
    monkeypatch.setattr("os.urandom", lambda _: bytes.fromhex(next(drawn)))
    with files.temporary_file(tmp_path) as path:
        name = path.name
    (tmp_path / name).write_text("theirs", encoding="utf-8")

    with files.temporary_file(tmp_path) as path:
        assert path.name == name.replace("aaaaaaaa", "bbbbbbbb")

    assert names(tmp_path) == [name]


def test_what_is_moved_away_is_kept(tmp_path: Path) -> None:
    """As a result is that took its place."""
    with files.temporary_file(tmp_path) as path:
        path.replace(tmp_path / "result")

    assert names(tmp_path) == ["result"]


def test_permissions_are_those_of_what_is_replaced(tmp_path: Path) -> None:
    """A new file has what the umask leaves, an old one keeps what it had; a link stays one."""
    path, link = tmp_path / "old", tmp_path / "link"
    path.write_bytes(b"")
    path.chmod(0o640)
    link.symlink_to(path)
    mask = os.umask(0o027)
    try:
        files.write_file(link, b"new")
        files.write_file(tmp_path / "new", b"new")
    finally:
        os.umask(mask)

    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert path.read_bytes() == b"new"


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    """Not even one that came while we were at work."""
    path = tmp_path / "rules.yaml"
    files.write_new_file(path, b"first")

    with pytest.raises(FileExistsError):
        files.write_new_file(path, b"second")

    assert names(tmp_path) == ["rules.yaml"]
    assert path.read_bytes() == b"first"
    assert path.stat().st_nlink == 1


def test_a_new_file_where_there_are_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems have none."""

    def refuse(_path: Path, _target: Path) -> NoReturn:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    path = tmp_path / "rules.yaml"
    files.write_new_file(path, b"first")
    with pytest.raises(FileExistsError):
        files.write_new_file(path, b"second")

    assert names(tmp_path) == ["rules.yaml"]
    assert path.read_bytes() == b"first"


def test_what_is_added_is_added_whole(tmp_path: Path) -> None:
    """A full disk leaves a file that others share as it was."""
    path = tmp_path / "summary.md"
    path.write_bytes(b"theirs")
    files.append_to_file(path, b" ours")
    assert path.read_bytes() == b"theirs ours"
    script = (
        "import resource, sys; from pathlib import Path; from dplcli import files\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (14, 14))\n"
        "files.append_to_file(Path('summary.md'), b'too much of it')"
    )

    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )

    assert "File too large" in done.stderr
    assert path.read_bytes() == b"theirs ours"


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_is_put_in_its_place(tmp_path: Path, exists: bool) -> None:  # noqa: FBT001
    """Where nothing is, or an empty folder, which stays the same."""
    place = tmp_path / "place"
    if exists:
        place.mkdir()
    inode = place.stat().st_ino if exists else None
    with files.temporary_folder(tmp_path) as draft:
        (draft / "sub").mkdir()
        (draft / "sub" / "file").write_bytes(b"x")
        files.put_folder(draft, place)

    assert names(tmp_path) == ["place"]
    assert (place / "sub" / "file").read_bytes() == b"x"
    assert place.stat().st_mode & 0o555 == 0o555
    assert inode in {None, place.stat().st_ino}


def test_a_folder_of_others_stays_if_they_use_it(tmp_path: Path) -> None:
    """What was made for our files goes with them, unless something else came into it."""
    ours, shared = tmp_path / "ours", tmp_path / "shared"
    with files.provisional() as made:
        for folder in (ours, shared):
            made.note(folder)
            folder.mkdir()
        (shared / "theirs").write_bytes(b"")

    assert names(tmp_path) == ["shared"]


ODD = os.fsdecode(b"m\xff.bin")


@pytest.mark.parametrize("folder", ["plain", "m\u00f6d", os.fsdecode(b"d\xff")])
@pytest.mark.parametrize("name", ["w.bin", "\u6a21.bin", ODD])
def test_every_name_can_be_said_as_text(folder: str, name: str) -> None:
    """The text, encoded as UTF-8, opens the file; beside it lies what lies beside the file."""
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, folder, name)
        path.parent.mkdir()
        path.write_bytes(b"content")
        (path.parent / "beside").write_bytes(b"data")

        with files.text_path(path) as text:
            raw = text.encode()
            assert Path(os.fsdecode(raw)).read_bytes() == b"content"
            beside = Path(os.fsdecode(os.path.dirname(raw)), "beside")  # noqa: PTH120
            assert beside.is_file() is files.is_text(path) is (name != ODD)
        descriptors = names(Path("/proc/self/fd"))
        with files.text_path(path):
            pass
        assert names(Path("/proc/self/fd")) == descriptors


def test_a_name_in_a_report_can_be_had_back() -> None:
    """The escape is that of JSON."""
    assert files.encoded(f'["{ODD}"]') == b'["m\\udcff.bin"]'


@pytest.mark.parametrize("runs", [[], [(0, 5)], [(0, 5), (3 << 20, 7), (9 << 20, 1)], [(5000, 70)]])
def test_holes_stay_holes(tmp_path: Path, runs: list[tuple[int, int]]) -> None:
    """A copy has the same bytes and takes no more room; holes at the end count as well."""
    source, copy = tmp_path / "a", tmp_path / "b"
    with source.open("wb") as stream:
        for at, count in runs:
            stream.seek(at)
            stream.write(b"x" * count)
        stream.truncate(20 << 20)

    files.copy_file(source, copy)

    assert copy.read_bytes() == source.read_bytes()
    assert copy.stat().st_blocks <= source.stat().st_blocks + 8


def test_a_copy_where_the_disk_tells_no_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is read."""
    (tmp_path / "a").write_bytes(bytes(10) + b"end")
    monkeypatch.delattr(os, "SEEK_DATA", raising=False)
    files.copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == bytes(10) + b"end"


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("age", [0, 100])
@pytest.mark.parametrize("is_held", [False, True])
def test_what_a_killed_run_left_is_taken_away(
    tmp_path: Path, kind: str, age: int, *, is_held: bool
) -> None:
    """If nobody holds it, and it is not just being made; and nothing that is not ours."""
    stale, other = tmp_path / ".dpl-0123abcd.onnx", tmp_path / ".dpl-notes"
    for path in (stale, other):
        path.mkdir() if kind == "folder" else path.write_text("x")
        if kind == "folder":
            (path / "inside").write_text("x")
        os.utime(path, (time.time() - age,) * 2)
    holder = files._locked(stale) if is_held else None  # noqa: SLF001  # as its owner does
    files._sweep.cache_clear()  # noqa: SLF001  # another run

    with files.temporary_file(tmp_path):
        pass

    assert stale.exists() == (is_held or age == 0)
    assert other.exists()
    if holder is not None:
        os.close(holder)


KILLED = """
import os, signal
from pathlib import Path
from dplcli import files
scopes = files.temporary_file(Path("."), ".onnx"), files.temporary_folder(Path("."))
for scope in scopes:
    scope.__enter__()
if os.fork() == 0:  # holds the locks on
    os.close(1)
    signal.pause()
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows cannot tell whose process is gone")
@pytest.mark.parametrize("machine", ["ours", "another"])
def test_what_a_process_left_that_is_gone_is_taken_away_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    """However new it is, if it was of this machine: nobody can tell about another one's."""
    with subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-c", KILLED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.communicate(timeout=60)[0].split() == [str(process.pid).encode()]
    left = names(tmp_path)
    assert len(left) == 2
    if machine == "another":
        monkeypatch.setattr(files, "_machine", lambda: "01234567")
    with files.temporary_file(tmp_path) as ours:
        files.remove_stale(tmp_path)
        assert ours.exists()

    os.killpg(process.pid, signal.SIGKILL)
    assert names(tmp_path) == (left if machine == "another" else [])


def test_what_is_in_use_is_held(tmp_path: Path) -> None:
    """Files and folders, whatever they are called by then; and no longer than that."""
    with files.temporary_file(tmp_path) as path:
        assert files._locked(path) is None  # noqa: SLF001
        path.replace(tmp_path / "moved")
        assert files._locked(tmp_path / "moved") is None  # noqa: SLF001
    with files.temporary_folder(tmp_path) as folder:
        assert files._locked(folder) is None  # noqa: SLF001
    descriptor = files._locked(tmp_path / "moved")  # noqa: SLF001
    assert descriptor is not None
    os.close(descriptor)
