"""Where catalogues are: at a path, shipped with dpl, or offered by an installed package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dplcli.dpl.code import installed_catalogs
from dplcli.dpl.source import Source
from dplcli.errors import CatalogError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES_SUFFIX = ".examples.yaml"
_SUFFIXES = (".yaml", ".yml")
_PACKAGE = Path(__file__).parent.parent
SHIPPED_FOLDERS = (_PACKAGE / "patterns", _PACKAGE.parent / "patterns")
"""Where shipped catalogues lie: in an installed package, and in a source checkout."""


def shipped_catalogs() -> list[str]:
    """Name the catalogues that come with dpl."""
    folder = _shipped_folder()
    if folder is None:
        return []
    return sorted(path.stem for path in folder.glob("*.yaml") if not is_examples_file(path))


def is_examples_file(path: Path) -> bool:
    """Tell whether a file holds the examples of a catalogue beside it."""
    return path.name.endswith(EXAMPLES_SUFFIX)


def examples_file(catalogue: Path) -> Path:
    """Return where the examples of a catalogue are, if they are in a file of their own."""
    return catalogue.with_name(catalogue.stem + EXAMPLES_SUFFIX)


def _shipped_folder() -> Path | None:
    return next((folder for folder in SHIPPED_FOLDERS if folder.is_dir()), None)


def find_catalog(name: str) -> Path:
    """Return the file that *name* means: a path, or the name of a shipped catalogue.

    Raises:
        CatalogError: There is no such file.
    """
    if not name:
        raise CatalogError("'': no such catalogue: the name is empty")
    path = Path(name)
    if exists(path.is_file):
        return path
    if exists(path.is_dir):
        raise CatalogError(f"{name}: is a directory, not a catalogue")
    folder = _shipped_folder()
    if folder is not None and path.parent == Path():
        shipped = folder / (name if path.suffix in _SUFFIXES else f"{name}.yaml")
        if exists(shipped.is_file):
            return shipped
    known = [*shipped_catalogs(), *installed_catalogs()]
    hint = did_you_mean(path.stem, known)
    raise CatalogError(
        f"{name}: no such catalogue, neither a file nor shipped with dpl",
        hint=hint or f"shipped catalogues: {', '.join(known)}",
    )


def exists(question: Callable[[], bool]) -> bool:
    """Ask the file system; a name that it cannot hold is the name of nothing."""
    try:
        return question()
    except OSError:
        return False


def shipped_targets() -> list[str]:
    """Name the shipped catalogues that are complete for the target they are named after."""
    return [name for name in shipped_catalogs() if is_shipped_target(name)]


def is_shipped_target(name: str) -> bool:
    """Tell whether a shipped catalogue is complete for the target *name*; no other one is read."""
    folder = _shipped_folder()
    if folder is None or name not in shipped_catalogs():
        return False
    data = Source(folder / f"{name}.yaml").plain()
    return bool(data.get("target") == name)
