"""Libraries that are compiled when they are first needed, and kept in the cache folder."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dplcli.files import cache_folder, temporary_file, temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def compiled(kind: str, name: str, compile_to: Callable[[Path], object]) -> Iterator[Path]:
    """Have a library compiled, unless that was done before.

    Args:
        kind: The folder in the cache folder that keeps it.
        name: Its file there, which tells what it was made of.
        compile_to: Writes it.

    Yields:
        Where it is. Where nothing is kept, it is gone afterwards.
    """
    folder = cache_folder()
    kept = None if folder is None else folder / kind
    if kept is not None:
        with suppress(OSError):
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    if kept is None or not _is_ours(kept):  # nothing is to be kept, or not there
        with temporary_folder() as place:
            compile_to(place / name)
            yield place / name
        return
    path = kept / name
    if not _is_ours(path):
        with temporary_file(kept, ".so") as draft:
            compile_to(draft)
            draft.replace(path)
    yield path


def _is_ours(path: Path) -> bool:
    """Tell whether something is there that nobody else could have written: it is code."""
    if not path.exists():
        return False
    found = path.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
