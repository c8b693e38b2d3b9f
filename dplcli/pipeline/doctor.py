"""Look at what dpl runs on: packages, execution providers, extras, catalogues."""

from __future__ import annotations

import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version

from dplcli.catalog import shipped_catalogs
from dplcli.catalog.python import installed_catalogs, load_entry_point
from dplcli.errors import CatalogError, UsageError, VerificationError
from dplcli.execute.onednn.library import Library, LibraryNotFoundError, candidates
from dplcli.outcomes.rules import Diagnosis, LibraryState
from dplcli.verify.run import IS_POSSIBLE, available_providers

_OF_AN_EXTRA = re.compile(r"(?P<package>[\w.-]+).*;.*\bextra *== *['\"](?P<extra>[\w-]+)['\"]")
"""A line of a distribution's metadata that belongs to an extra (PEP 508)."""


def diagnose() -> Diagnosis:
    """Look at the installation. What is wrong is part of the answer; nothing is raised."""
    problems = []
    providers: tuple[str, ...] = ()
    try:
        providers = available_providers()
    except VerificationError as error:
        problems.append(f"no model can be run or verified: {error.message}")
    catalogs = dict.fromkeys(shipped_catalogs(), "dpl")
    for name, point in installed_catalogs().items():
        catalogs[name] = point.dist.name if point.dist is not None else point.value
        try:
            load_entry_point(point)
        except CatalogError as error:
            problems.append(error.message)
    onednn = _onednn()
    if onednn.problem:
        problems.append(onednn.problem)
    encoding = sys.stdout.encoding or "unknown"
    if encoding.lower().replace("-", "") != "utf8":
        problems.append(f"standard output is {encoding}: what UTF-8 alone has is spelled out")
    return Diagnosis(
        system=f"{platform.system()} {platform.machine()}",
        providers=providers,
        is_isolated=IS_POSSIBLE,
        missing=missing_packages(),
        catalogs=catalogs,
        libraries={"oneDNN": onednn},
        problems=tuple(problems),
    )


def _onednn() -> LibraryState:
    """Look for oneDNN as ``--with dnnl`` does. That there is none is no problem; a bad one is."""
    looked_for = tuple(candidates())
    try:
        library = Library()
    except LibraryNotFoundError:
        return LibraryState("", "", looked_for)
    except UsageError as error:
        return LibraryState("", "", looked_for, error.message)
    return LibraryState(library.name, library.path, looked_for, features=library.features)


def missing_packages() -> dict[str, tuple[str, ...]]:
    """Return, for each extra of dpl, the packages that it lacks; none if it is installed."""
    missing: dict[str, list[str]] = {}
    try:
        lines = requires("dplcli") or []
    except PackageNotFoundError:  # run from a checkout that is not installed
        lines = []
    for requirement in filter(None, map(_OF_AN_EXTRA.match, lines)):
        lacking = missing.setdefault(requirement["extra"], [])
        try:
            version(requirement["package"])
        except PackageNotFoundError:
            lacking.append(requirement["package"])
    return {extra: tuple(packages) for extra, packages in sorted(missing.items())}
