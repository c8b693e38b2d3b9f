"""What is done already: answers, kept by the content of all that they depend on.

They lie in the user's cache folder, one file for each, as JSON, in a folder for each working
directory. So a run that was killed goes on where it was, what has not changed since the last build
costs nothing, and no project takes another one's room.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplcli.errors import DplError
from dplcli.files import cache_folder, encoded, resolved, write_file
from dplcli.version import __version__, program_files, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Json = dict[str, Any]

_MEGABYTE = 1_000_000
_FORGOTTEN = 90 * 86_400.0
"""After how many seconds a project that nobody works in has no answers any more."""

_YAML = (".yaml", ".yml")
_MODEL = ".onnx"
_SHORT = 16
_OTHERS = ("onnx", "onnxruntime", "numpy")


def _folder() -> Path | None:
    """Return where answers of the working directory are kept; None if nothing is to be kept."""
    folder = cache_folder()
    return None if folder is None else folder / "answers" / _joined([str(Path.cwd())])[:_SHORT]


# What an answer depends on.


def digest_of(path: Path) -> str:
    """Return the hash of a file's content; of a folder, that of all files in it.

    Raises:
        OSError: It cannot be read.
    """
    if path.is_dir():
        inside = sorted(each for each in path.rglob("*") if each.is_file())
        return _joined([str(each.relative_to(path)), digest_of(each)] for each in inside)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _joined(parts: Iterable[object]) -> str:
    text = json.dumps(list(parts), sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@cache
def program() -> dict[str, str]:
    """Return the versions of dpl, which are hashes, too, and of what it runs on."""
    code = _joined([name, digest_of(file)] for name, file in program_files().items())
    return {
        "dpl": f"{__version__} {code[:_SHORT]}",
        **{name: version_of(name) for name in _OTHERS},
    }


def size_of(model: Path) -> int:
    """Return the bytes of a model, and of the external data that it uses.

    Raises:
        DplError: It is no model.
    """
    from dplcli.onnx_io import data_used, load_model  # noqa: PLC0415  # slow to load

    return model.stat().st_size + data_used(load_model(model))


def contents_of(model: Path, texts: Iterable[str], *, reads: bool) -> dict[str, str]:
    """Return the hashes of all files that a job reads, by their names; "" for what is not known.

    This is the one place that says which files these are: the model, what the request names, what
    these files name in turn (:mod:`dplcli.catalog.needs`), and the external data of models. dpl
    itself is a part of each key (:func:`program`).

    Args:
        model: The model.
        texts: The parts of a request that may name files.
        reads: Whether a model that was never seen is read, to know its external data. If not,
            nothing is known about it.
    """
    from dplcli.catalog.needs import absolute, files_named  # noqa: PLC0415  # loads YAML

    said, own = {}, absolute(model)
    for path in {own, *files_named({*texts})}:
        try:
            is_model = path.suffix == _MODEL or path == own
            found = _model_digest(path, reads=reads) if is_model else _meaning(path)
        except OSError:
            found = ""
        said[_name_of(path)] = found
    return dict(sorted(said.items()))


def _name_of(path: Path) -> str:
    """Return how a file is called on all machines: as it is seen from the folder, or from Python's.

    Environments of Python may lie elsewhere on another machine.
    """
    from dplcli.catalog.needs import installed_place  # noqa: PLC0415  # as above

    here = Path.cwd()
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    place = installed_place(path)
    return str(path) if place is None else f"installed {path.relative_to(place)}"


def _model_digest(path: Path, *, reads: bool) -> str:
    """Return the hash of a model's content, its external data included; "" if that is not known.

    Raises:
        OSError: A file cannot be read.
    """
    own = digest_of(path)
    known = read_answer(f"external-{own}")  # which files these are, the model's file decides
    if known is None and not reads:
        return ""
    names = _external_names(path) if known is None else known["names"]
    if known is None:
        keep_answer(f"external-{own}", {"names": names})
    folder = resolved(path.parent)
    return _joined([own, *([name, digest_of(folder / name)] for name in names)])


def _external_names(path: Path) -> list[str]:
    """Return the files of a model's external data, as seen from its folder; none if it is no model.

    In a cache of Hugging Face, they lie outside.
    """
    from dplcli.onnx_io import external_files, load_model  # noqa: PLC0415  # slow to load

    folder = resolved(path.parent)
    try:
        return sorted(
            os.path.relpath(each, folder) for each in external_files(load_model(path), path.parent)
        )
    except DplError:
        return []


def _meaning(path: Path) -> str:
    """Return the hash of what a file says: of YAML without comments and layout.

    Raises:
        OSError: It cannot be read.
    """
    own = digest_of(path)
    return _said_in(path, own) if path.suffix in _YAML else own


@cache
def _said_in(path: Path, own: str) -> str:
    """Return the hash of what a file in YAML says by itself.

    Keys may stand in any order at the top and in an entry of a list; in what else there is, such
    as for_each, their order has a meaning.
    """
    from dplcli.catalog.needs import said_in  # noqa: PLC0415  # slow to load

    try:
        said = {
            str(key): [dict(sorted(i.items())) if isinstance(i, dict) else i for i in value]
            if isinstance(value, list)
            else value
            for key, value in sorted(said_in(path).data.items())
        }
        return _joined([json.dumps(said, default=str)])
    except (DplError, TypeError, RecursionError):
        return own


def key_of(contents: Mapping[str, str], request: object, folder: Path) -> str:
    """Return what stands for an answer about a model; "" if none can be kept.

    Args:
        contents: What files hold, as :func:`contents_of` says.
        request: What is asked, as JSON would hold it.
        folder: Where; the same files elsewhere are the same question.
    """
    if not contents or not all(contents.values()):
        return ""
    text = json.dumps([program(), contents, request], sort_keys=True, default=str)
    return _joined([text.replace(f"{folder}{os.sep}", "")])


# Answers.


def read_answer(key: str) -> Json | None:
    """Return what is kept under *key*; None if there is nothing that can be read."""
    own = _folder()
    if not key or own is None:
        return None
    for folder in (own, *own.parent.glob("*")):
        with suppress(OSError, ValueError):
            file = folder / f"{key}.json"
            found = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                os.utime(file)  # what is asked for is the last to be forgotten
                return found
    return None


def keep_answer(key: str, answer: Mapping[str, Any]) -> None:
    """Keep an answer in one step; nothing happens where the folder cannot be written."""
    folder = _folder()
    if not key or folder is None:
        return
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        write_file(folder / f"{key}.json", encoded(json.dumps(answer)))
    except OSError:
        return


def once(key: str, run: str, do: Callable[[], Json], *, keeps: bool = True) -> Json:
    """Return the answer that *do* makes, which is kept; in the same run it is not made again.

    A scheduler whose worker is lost has done again what that worker did and nobody fetched yet.

    Args:
        key: What stands for the answer; "" if it cannot be kept.
        run: Names the run.
        do: Makes the answer.
        keeps: Whether anything may be written.
    """
    known = read_answer(key)
    if known is not None and known["run"] == run:
        return dict(known["answer"])
    answer = do()
    if keeps and answer["status"] != "error":
        keep_answer(key, {"run": run, "answer": answer})
    return answer


def forget_oldest(most: int) -> None:
    """Keep no more answers of this working directory than so many megabytes, the last ones.

    Those of one that nobody has worked in for long go altogether.
    """
    size, folder = 0, _folder()
    if folder is None:
        return
    with suppress(OSError):  # another run does the same
        os.utime(folder)
        files = [(each.stat().st_mtime, each) for each in folder.glob("*.json")]
        for _, each in sorted(files, reverse=True):
            size += each.stat().st_size
            if size > most * _MEGABYTE:
                each.unlink(missing_ok=True)
        for other in folder.parent.iterdir():
            if time.time() - other.stat().st_mtime > _FORGOTTEN:
                shutil.rmtree(other, ignore_errors=True)


def are_there(files: Mapping[str, str]) -> bool:
    """Tell whether files are there with the content that they had."""
    try:
        return all(digest_of(Path(path)) == digest for path, digest in files.items())
    except OSError:
        return False
