"""Files: written whole or not at all, and named so that every library finds them.

Whatever dpl makes for a while only, or before it takes its place, is noted here *before* it is
made. Who made it takes it away when it leaves the block; what is still noted when the program ends
is taken away then. So no exception leaves anything behind, wherever it strikes: the disk is full,
or a signal comes between two statements.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_PREFIX = ".dpl-"
_TRIES = 100


class Provisional:
    """Files and folders that are removed at the end of a block, latest first, unless kept.

    A fork that ends leaves alone what its parent has noted.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._paths: dict[Path, bool] = {}

    def note(self, path: Path, *, with_content: bool = False) -> None:
        """Note what is about to be made.

        Args:
            path: A file or a folder that does not exist yet.
            with_content: Whether a folder is ours with all that is in it; otherwise it stays if
                something is in it.
        """
        self._paths[path] = with_content

    def forget(self, path: Path) -> None:
        """Forget a path that could not be made because something is there already."""
        self._paths.pop(path, None)

    def keep(self) -> None:
        """Leave everything where it is."""
        self._paths.clear()

    def remove(self) -> None:
        """Remove what is noted, unless it was moved away."""
        if os.getpid() != self._owner:
            return
        for path in reversed(list(self._paths)):
            if not path.is_dir() or path.is_symlink():
                path.unlink(missing_ok=True)
            elif self._paths[path]:
                shutil.rmtree(path)
            else:
                with suppress(OSError):  # somebody else has put something there
                    path.rmdir()
            self.forget(path)


_NOTED: list[Provisional] = []


@atexit.register
def remove_provisional() -> None:
    """Remove all that is noted and not kept, as the end of the program does."""
    for group in _NOTED:
        with suppress(OSError):
            group.remove()


@contextmanager
def provisional() -> Iterator[Provisional]:
    """Remove, at the end of the block, what the block notes and does not keep."""
    group = Provisional()
    _NOTED.append(group)
    try:
        yield group
    finally:
        group.remove()
        _NOTED.remove(group)


@contextmanager
def temporary_file(folder: Path, suffix: str = "") -> Iterator[Path]:
    """Make an empty file that only this user may read; remove it afterwards unless it was moved.

    Raises:
        OSError: The folder cannot be written to.
    """
    with provisional() as group:

        def make(path: Path) -> None:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

        path = _made(group, folder, suffix, make)
        with _held(path):
            yield path


@contextmanager
def temporary_folder(folder: Path | None = None) -> Iterator[Path]:
    """Make a folder that only this user may enter; remove it and all in it afterwards.

    Args:
        folder: Where to make it; None for where the system keeps such things.

    Raises:
        OSError: The folder cannot be written to.
    """
    with provisional() as group:
        parent = Path(tempfile.gettempdir()) if folder is None else folder
        path = _made(group, parent, "", lambda path: path.mkdir(0o700))
        with _held(path):
            yield path


def _made(group: Provisional, folder: Path, suffix: str, make: Callable[[Path], None]) -> Path:
    _sweep(folder)
    for _ in range(_TRIES):
        path = folder / f"{_PREFIX}{_machine()}-{os.getpid()}-{os.urandom(4).hex()}{suffix}"
        group.note(path, with_content=True)
        try:
            make(path)
        except FileExistsError:
            group.forget(path)
        else:
            return path
    raise FileExistsError(f"{folder}: no name for a temporary file is free")


# What a run left behind that was killed outright.
#
# A name says who made it: on which machine, and which process. If that is this machine, and the
# process is gone, it is stale. Else a lock tells, which who makes something holds on it, and which
# the system takes back when the process is gone, however it went: what nobody holds is stale.
# Between making and locking there is a moment; therefore what is new is left alone then.


_SETTLED = 60.0


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a lock on a file or folder of ours."""
    descriptor = _locked(path)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _locked(path: Path) -> int | None:
    """Lock a file or folder, whatever becomes of its name; None if that is not possible."""
    try:
        import fcntl  # noqa: PLC0415  # not on Windows

        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody else holds it, or the file system has no locks
        os.close(descriptor)
        return None
    return descriptor


def remove_stale(folder: Path) -> None:
    """Remove what runs that were killed have left in a folder."""
    with suppress(OSError):
        for path in list(folder.iterdir()):
            name = _OURS.fullmatch(path.name)
            if name is None:
                continue
            descriptor = None
            if not (name["machine"] == _machine() and _is_gone(int(name["process"]))):
                is_new = time.time() - path.lstat().st_mtime < _SETTLED
                descriptor = None if is_new else _locked(path)
                if descriptor is None:
                    continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            if descriptor is not None:
                os.close(descriptor)


_sweep = cache(remove_stale)
"""The same, once for each folder."""

_OURS = re.compile(
    re.escape(_PREFIX) + r"(?:(?P<machine>[0-9a-f]{8})-(?P<process>\d{1,9})-)?[0-9a-f]{8}(?:\.\w+)?"
)


@cache
def _machine() -> str:
    """Return what stands for where numbers mean the processes that they mean here, until it stops.

    Containers of one machine number theirs apart.
    """
    told = [os.uname().nodename] if hasattr(os, "uname") else []
    with suppress(OSError):
        told.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        told.append(str(Path("/proc/self/ns/pid").readlink()))
    return f"{crc32(os.fsencode(' '.join(told))):08x}"


def _is_gone(process: int) -> bool:
    """Tell whether a process of this machine has ended; False if nobody can tell."""
    if not hasattr(os, "geteuid"):  # Windows would end it
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is somebody else's
        return False
    return False


def resolved(path: Path) -> Path:
    """Return *path* without links. Those that lead round in a circle, which is no error, stay."""
    return Path(os.path.realpath(path))


def end_of(path: Path) -> Path:
    """Return the file that is made where *path* is written to: links are followed.

    Raises:
        OSError: They lead round in a circle.
    """
    end = resolved(path)
    if end.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return end


def write_file(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file in one step; a link is followed, and a pipe or a device stays one.

    Args:
        path: Where to.
        content: What to write, or what writes it.

    Raises:
        OSError: It cannot be written; what was there before still is.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            _write(stream, content)
        return
    path = end_of(path)
    with temporary_file(path.parent) as draft:
        with draft.open("wb") as stream:
            _write(stream, content)
        draft.chmod(mode_for(path))
        draft.replace(path)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file in one step; what takes no room on the disk takes none in the copy.

    Where the disk can do that, both share their blocks until one is written to.

    Raises:
        OSError: It cannot be read, or the copy cannot be written.
    """

    def copy(new: BinaryIO) -> None:
        if not _cloned(old, new):
            copy_part(old, new, 0, os.fstat(old.fileno()).st_size)

    with source.open("rb") as old:
        write_file(target, copy)


def link_file(source: Path, target: Path) -> None:
    """Give a file a second name, or a copy that shares its blocks, where the disk can do that.

    dpl writes no file in place, so that it never writes through the second name.

    Raises:
        OSError: The two are not on one disk, or it has no links; or something is there.
    """
    with source.open("rb") as old, temporary_file(target.parent) as draft:
        with draft.open("wb") as new:
            is_cloned = _cloned(old, new)
        if is_cloned:
            draft.chmod(mode_for(target))
            draft.replace(target)
        else:
            target.hardlink_to(resolved(source))


_CLONE = 0x40049409
"""Linux' FICLONE, which Python does not name."""


def _cloned(old: BinaryIO, new: BinaryIO) -> bool:
    """Let a new file share the blocks of an old one; tell whether the disk can do that."""
    if not sys.platform.startswith("linux"):
        return False
    import fcntl  # noqa: PLC0415  # not on Windows

    try:
        fcntl.ioctl(new.fileno(), _CLONE, old.fileno())
    except OSError:
        return False
    return True


def copy_part(old: BinaryIO, new: BinaryIO, begin: int, end: int) -> None:
    """Copy a part of a file to where *new* stands; its holes are holes in the copy.

    The copy is as long as the part, or ends where *old* does.

    Raises:
        OSError: It cannot be read or written.
    """
    shift = new.tell() - begin
    end = max(begin, min(end, os.fstat(old.fileno()).st_size))
    for first, last in _extents(old, begin, end):
        old.seek(first)
        new.seek(first + shift)
        new.writelines(old.read(min(_COPIED, last - at)) for at in range(first, last, _COPIED))
    new.truncate(max(end + shift, new.tell()))
    new.seek(end + shift)


_COPIED = 1 << 22


def _extents(file: BinaryIO, begin: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield from where to where, beyond *begin*, there is data in a file; between are holes."""
    end = begin
    while end < size:
        try:
            begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            end = min(os.lseek(file.fileno(), begin, os.SEEK_HOLE), size)
        except (OSError, AttributeError) as error:  # not every system and not every disk tells
            if getattr(error, "errno", None) != errno.ENXIO:  # the rest is a hole
                yield end, size
            return
        if begin < size:
            yield begin, end


def write_new_file(path: Path, content: bytes) -> None:
    """Write a file that does not exist yet, in one step.

    Raises:
        FileExistsError: It does, by now.
        OSError: It cannot be written, and is not there.
    """
    with temporary_file(path.parent) as draft:
        draft.write_bytes(content)
        draft.chmod(mode_for(path))
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            raise
        except OSError:  # not every file system has links
            if path.exists():
                raise FileExistsError(f"{path}: exists") from None
            draft.replace(path)


def put_folder(draft: Path, place: Path) -> None:
    """Put a folder that :func:`temporary_folder` made where nothing is, or into an empty folder.

    Raises:
        OSError: It cannot be put there.
    """
    if not place.exists():
        mask = os.umask(0)
        os.umask(mask)
        draft.chmod(0o777 & ~mask)
        draft.rename(place)
        return
    with provisional() as made:
        for item in draft.iterdir():
            made.note(place / item.name, with_content=True)
            item.rename(place / item.name)
        made.keep()


def append_to_file(path: Path, content: bytes) -> None:
    """Add to a file that others write to as well; all of it or nothing.

    Raises:
        OSError: It cannot be written; it is as long as it was.
    """
    with path.open("ab", buffering=0) as stream:
        size = stream.tell()
        try:
            written = 0
            while written < len(content):
                written += stream.write(content[written:])
        except BaseException:
            with suppress(OSError):
                stream.truncate(size)
            raise


def _write(stream: BinaryIO, content: bytes | Callable[[BinaryIO], object]) -> None:
    if isinstance(content, bytes):
        stream.write(content)
    else:
        content(stream)


def encoded(text: str) -> bytes:
    r"""Encode text that may name files: what is not UTF-8 in a name becomes ``\udcff``.

    In JSON that is an escape, from which the name can be had back.
    """
    return text.encode("utf-8", "backslashreplace")


def mode_for(path: Path) -> int:
    """Return the permissions of the file that is replaced, or those of a new file."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def is_text(path: Path) -> bool:
    """Tell whether the last part of *path* is UTF-8 text on the disk, as libraries want it."""
    return _text_of(Path(path.name)) is not None


@contextmanager
def text_path(path: Path) -> Iterator[str]:
    """Yield a name of *path* that is UTF-8 text on the disk, for libraries that want nothing else.

    Python's own text is that of the locale, and any bytes can name a file. Where those are no
    text, an open descriptor stands for the folder; and if the last part is none (:func:`is_text`),
    for the file itself, beside which nothing is found then.
    """
    text = _text_of(path)
    if text is not None:
        yield text
        return
    name = _text_of(Path(path.name))
    descriptor = os.open(path if name is None else path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}" + ("" if name is None else f"/{name}")
    finally:
        os.close(descriptor)


def path_of(text: str) -> Path:
    """Return the path that *text*, from a file, names whatever the locale."""
    try:
        return Path(os.fsdecode(text.encode()))
    except UnicodeError:
        return Path(text)


def exists(question: Callable[[], bool]) -> bool:
    """Ask the file system; return False for a name that it cannot hold."""
    try:
        return question()
    except OSError:
        return False


def place_in(folder: Path, location: str) -> Path:
    """Return the file that *location*, from a model in *folder*, stands for; links are followed.

    They may lead to the folder or below it. In a snapshot of Hugging Face's cache, that is
    ``snapshots/REVISION``, they may lead to the cache's ``blobs``, too.

    Raises:
        ValueError: It lies elsewhere, or has no possible name.
    """
    if "\0" in location:
        raise ValueError(f"external data at {location!r}: no file can have this name")
    real = resolved(folder)
    place = resolved(folder / path_of(location))
    if exists(place.is_symlink):
        raise ValueError(f"external data at {location!r} cannot be found: its links form a circle")
    parts = PurePosixPath(location.replace("\\", "/"))
    is_inside = not parts.is_absolute() and ".." not in parts.parts
    snapshots = (part for part in (real, *real.parents) if part.parent.name == "snapshots")
    blobs = [part.parents[1] / "blobs" for part in snapshots]
    if not is_inside or not (place.is_relative_to(real) or place.parent in blobs):
        raise ValueError(f"external data at {location!r} lies outside the model's folder")
    return place


def _text_of(path: Path) -> str | None:
    try:
        return os.fsencode(path).decode()
    except UnicodeError:
        return None


# What can be made again.


CACHE = "DPL_CACHE"
"""The environment variable that names another folder than the user's, or is empty for none."""


def cache_folder() -> Path | None:
    """Return this user's folder for what can be made again; it need not exist.

    None if nothing is to be kept, or if nobody's home is known.
    """
    named = os.environ.get(CACHE)
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or ""
    try:
        own = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    except RuntimeError:
        return None
    return (Path(base) if Path(base).is_absolute() else own) / "dpl"
