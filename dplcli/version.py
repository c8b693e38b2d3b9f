"""The versions of dpl and of what it runs on, for all that stands below the front door."""

import os
from pathlib import Path

__version__ = "0.1.0"

_PACKAGE = Path(__file__).parent


def program_files() -> dict[str, Path]:
    """Return all files that dpl is made of, by their names in the package, sorted.

    That is code, tables and templates, and the catalogues, which lie beside the package in a source
    checkout.
    """
    places = {"": _PACKAGE}
    if not (_PACKAGE / "patterns").is_dir():
        places["patterns"] = _PACKAGE.parent / "patterns"
    found: dict[str, Path] = {}
    for before, place in places.items():
        for folder, inside, names in os.walk(place):
            inside[:] = [each for each in inside if each != "__pycache__"]
            within = os.path.join(before, os.path.relpath(folder, place))  # noqa: PTH118  # starts sooner than pathlib
            found |= {os.path.normpath(f"{within}/{name}"): Path(folder, name) for name in names}
    return dict(sorted(found.items()))


def version_of(package: str) -> str:
    """Return a package's version; "unknown" if none is installed under this name.

    onnxruntime has other names, such as onnxruntime-gpu.
    """
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # not for --help

    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
