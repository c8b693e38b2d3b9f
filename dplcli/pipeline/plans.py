"""Plans as files: written beside what they speak of, read with the catalogues they name."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dplcli.dpl.catalog_files import exists, find_catalog
from dplcli.dpl.code import installed_catalogs
from dplcli.dpl.plan import SCHEMA, Plan, PlanEntry, plan_schema, read_plan, write_plan
from dplcli.errors import CatalogError, UsageError, did_you_mean
from dplcli.passes.applications import list_nodes
from dplcli.pipeline.writing import write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.dpl import RewriteRule
    from dplcli.passes.applications import Application

__all__ = [
    "check_plan_path",
    "check_rules_of",
    "check_same_model",
    "named_catalogues",
    "plan_schema",
    "read_plan",
    "save_plan",
]

_CODE = ".py"
_PROBE = 1 << 14


def save_plan(
    path: Path,
    model: Path,
    catalogues: Iterable[str],
    applications: Iterable[Application],
    *,
    opset: int | None = None,
) -> None:
    """Write what was done as a plan that does it again.

    Args:
        path: Where to.
        model: The model that it was done to.
        catalogues: The catalogues that have the rules, as they were named.
        applications: What was done.
        opset: The opset that the model was raised to before.

    Raises:
        UsageError: It cannot be written.
    """
    entries = tuple(
        PlanEntry(
            item.rule, item.scope, item.root.output, item.root.qualified_op, describe_change(item)
        )
        for item in applications
    )
    names = tuple(_written(name, path.parent) for name in catalogues)
    plan = Plan(model.name, sha256_of(model), names, entries, opset)
    write_text(path, write_plan(plan, path.name), "--plan")


def describe_change(application: Application) -> str:
    """Say in one line what became of which nodes: ``Conv 'c', Relu 'r' -> FusedConv 'c'``."""
    removed, added = list_nodes(application.removed), list_nodes(application.added)
    return f"{removed} -> {added}" if removed and added else removed or added


def _written(name: str, folder: Path) -> str:
    """Return how a plan in *folder* names a catalogue: by its path from there, or its name."""
    if not exists(Path(name).is_file):
        return Path(name).stem if Path(name).suffix in {".yaml", ".yml"} else name
    return Path(os.path.relpath(Path(name).resolve(), folder.resolve())).as_posix()


def check_plan_path(path: Path, others: Iterable[Path | None]) -> None:
    """Refuse, before any work is done, a plan that cannot be or must not be written.

    Raises:
        UsageError: It is another file of the run, holds something else, or has no folder.
    """
    if any(other is not None and path.resolve() == other.resolve() for other in others):
        raise UsageError(f"--plan {path}: is another file of this command")
    if not path.name or path.is_dir():
        raise UsageError(f"--plan {str(path)!r}: is not a file")
    if not path.parent.is_dir():
        raise UsageError(f"--plan {path}: there is no folder {str(path.parent)!r}")
    if not exists(path.is_file):
        return
    with path.open("rb") as file:
        if SCHEMA.encode() not in file.read(_PROBE):
            raise UsageError(f"--plan {path}: exists and is no plan, so it is kept")


def named_catalogues(plan: Plan, *, allow_code: bool) -> list[str]:
    """Return the catalogues that *plan* names, as paths or names to be looked up from here.

    Raises:
        CatalogError: One is missing, or is code, which a plan does not run by itself.
    """
    folder = Path() if plan.path is None else plan.path.parent
    names = []
    for name in plan.catalogues:
        is_path = Path(name).suffix != "" or Path(name).name != name
        is_code = name.endswith(_CODE) if is_path else name in installed_catalogs()
        if is_code and not allow_code:
            raise CatalogError(
                f"{plan.label}: the catalogue {name!r} is Python code, which a plan does not run "
                "by itself",
                hint="pass --allow-code if you trust it, or name it with --patterns",
            )
        found = str(folder / name) if is_path else name
        try:
            if is_path or not is_code:
                find_catalog(found)
        except CatalogError as error:
            hint = f"{error.hint}; --patterns names another" if error.hint else None
            raise CatalogError(f"{plan.label}: {error.message}", hint=hint) from error
        names.append(found)
    return names


def check_rules_of(plan: Plan, rules: Sequence[RewriteRule]) -> None:
    """Refuse a plan that names a rule which is not there.

    Raises:
        CatalogError: Names the entry.
    """
    known = {rule.qualified_name for rule in rules}
    for entry in plan.entries:
        if entry.rule not in known:
            hint = did_you_mean(entry.rule, sorted(known))
            raise CatalogError(f"{plan.place(entry)}: there is no rule {entry.rule!r}", hint=hint)


def check_same_model(plan: Plan, model: Path) -> str:
    """Say how *model* differs from the one that *plan* was made for, or ""."""
    found = sha256_of(model)
    if found == plan.sha256:
        return ""
    return (
        f"{model.name} is not the file that {plan.label} was made for: "
        f"its sha256 is {found[:12]}…, not {plan.sha256[:12]}…"
    )


def sha256_of(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
