"""Which models are meant by paths, folders and globs, and where their results go."""

from __future__ import annotations

import glob
import os
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dplcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_SUFFIX = ".onnx"


class ModelFile(NamedTuple):
    """One of many models.

    Attributes:
        path: The file, as it is named or found.
        place: Where it lies below the folder that was named; its name, if it was named itself.
        problem: Why there is nothing to be done; "" if there is.
    """

    path: Path
    place: Path
    problem: str = ""


def is_one_model(given: Sequence[Path]) -> bool:
    """Tell whether one file is named, and no folder or glob."""
    return len(given) == 1 and not _is_folder(given[0]) and not _is_glob(given[0])


def _is_folder(path: Path) -> bool:
    """A folder that is called like a model is no folder of models: somebody means a file."""
    return os.path.isdir(path) and path.suffix.lower() != _SUFFIX  # noqa: PTH112  # never raises


def _is_glob(path: Path) -> bool:
    return glob.has_magic(str(path)) and not os.path.lexists(path)


def find_models(given: Sequence[Path], results: Collection[str] = ()) -> list[ModelFile]:
    """Return the models that paths, folders and globs name, those of a folder sorted.

    A folder stands for all ``.onnx`` files in it and below. What an earlier run wrote beside a
    model (``m.partitioned.onnx`` beside ``m.onnx``) is left out, unless it is named itself.

    Args:
        given: What is named. A model that is named twice comes once more, with a problem; a link
            to one that is found anyway does not.
        results: The middle parts of the names of such results, such as ``partitioned``.

    Raises:
        UsageError: One folder or glob is named, and there is no model.
    """
    found: list[ModelFile] = []
    meant = [each for path in given for each in _meant_by(path, results)]
    files = {os.path.realpath(each.path) for each in meant if not each.path.is_symlink()}
    first: dict[str, Path] = {}
    for each in meant:
        real = os.path.realpath(each.path)
        is_link = each.path not in given and each.path.is_symlink()
        if is_link and real in files | first.keys():
            continue
        known = first.setdefault(real, each.path)
        if known is not each.path and not each.problem:
            other = "" if known == each.path else f" as {known}, too"
            problem = f"{each.path}: is named twice{other}; it is done once"
            found.append(each._replace(problem=problem))
        else:
            found.append(each)
    if len(found) == 1 and found[0].problem:
        raise UsageError(found[0].problem)
    return found


def _meant_by(path: Path, results: Collection[str]) -> Iterator[ModelFile]:
    if _is_folder(path):
        inside = [Path(at, name) for at, _, names in _walk(path) for name in names]
        models = [each for each in inside if each.suffix.lower() == _SUFFIX]
        kept = [each for each in models if not _is_result(each, results)]
        if not kept:
            yield ModelFile(path, path, f"{path}: no {_SUFFIX} file is in this folder or below")
        yield from (ModelFile(each, each.relative_to(path)) for each in kept)
    elif _is_glob(path):
        ending = {"**": f"**/*{_SUFFIX}", "*": f"*{_SUFFIX}"}.get(path.name, path.name)
        files = sorted(set(_called(path.parent / ending)))
        kept = [each for each in files if not (_is_folder(each) or _is_result(each, results))]
        if not kept:
            yield ModelFile(path, path, f"{path}: no file is called like this")
        folders = takewhile(lambda part: not glob.has_magic(part), path.parts)
        fixed = Path(*folders)  # before the first part with a wildcard
        yield from (ModelFile(each, each.relative_to(fixed)) for each in kept)
    else:
        yield ModelFile(path, Path(path.name))


def _called(pattern: Path) -> Iterator[Path]:
    """Yield what is called like a glob; ``**`` stands for the folders below, but for links."""
    parts = pattern.parts
    if "**" not in parts:
        yield from map(Path, glob.iglob(str(pattern)))  # noqa: PTH207  # an absolute one, too
        return
    place = parts.index("**")
    for start in _called(Path(*parts[:place])):
        for folder, _, _ in _walk(start):
            yield from _called(Path(glob.escape(folder), *parts[place + 1 :]))


def _walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Go through a folder in order.

    What is hidden is left out, such as what is being written, and so are environments of Python:
    packages bring models of their own.
    """
    for at, folders, names in os.walk(folder):
        if _ENVIRONMENT & {*names, *folders, Path(at).name} and Path(at) != folder:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield at, folders, sorted(name for name in names if not name.startswith("."))


_ENVIRONMENT = {"pyvenv.cfg", "conda-meta", "site-packages", "venv"}
"""What is in environments of Python, or what they are called."""


def _is_result(path: Path, results: Collection[str]) -> bool:
    """Tell whether an earlier run wrote the file beside its model."""
    base, _, word = path.stem.removesuffix(".failed").rpartition(".")
    return word in results and path.with_name(f"{base}{path.suffix}").exists()


def pair_models(first: Path, second: Path) -> list[tuple[ModelFile, ModelFile | None]]:
    """Pair the models of two folders by their places; or ``a.onnx`` with ``a.WORD.onnx``.

    Returns:
        Every model of the first folder with its partner; None if it has none, or several.

    Raises:
        UsageError: A folder has no models.
    """
    ones = find_models([first])
    others = {each.place: each for each in find_models([second])}
    pairs: list[tuple[ModelFile, ModelFile | None]] = []
    for one in ones:
        start = f"{one.place.stem}."
        like = [
            each
            for place, each in others.items()
            if place.parent == one.place.parent
            and place.name.startswith(start)
            and "." not in place.stem.removeprefix(start)
        ]
        partner = others.get(one.place) or (like[0] if len(like) == 1 else None)
        pairs.append((one, partner))
    return pairs
