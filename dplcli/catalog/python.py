"""Catalogues and checks in Python. They are code and are executed."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplcli.errors import CatalogError, DplError, PatternSyntaxError
from dplcli.files import resolved
from dplcli.language.replacement import RewriteRule
from dplcli.language.rule import PatternRule
from dplcli.language.text import check_operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.metadata import EntryPoint
    from types import CodeType, ModuleType

    from dplcli.ir import SchemaLibrary

ENTRY_POINTS = "dplcli.catalogs"
"""The group under which an installed package offers catalogues."""

VARIABLE = "CATALOG"

FUNCTION = re.compile(r"(?P<module>.*[^:/\\]):(?P<function>[A-Za-z_]\w*)", re.DOTALL)
"""How a text names a function: ``module:function`` or ``FILE.py:function``."""

_PACKAGE = Path(__file__).parent.parent


def installed_catalogs() -> dict[str, EntryPoint]:
    """Return the catalogues that installed packages offer, by name; no code is run."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # slow to load, rarely needed

    return {point.name: point for point in sorted(entry_points(group=ENTRY_POINTS))}


def load_entry_point(point: EntryPoint) -> Path | list[PatternRule | RewriteRule]:
    """Load an entry point; return its rules, or the path of its catalogue file.

    It may name a module that defines ``CATALOG``, a list of rules, a path, or a function that
    returns one of them.

    Raises:
        CatalogError: It cannot be loaded, or is none of these.
    """
    label = f"{ENTRY_POINTS} {point.name!r} ({point.value})"
    try:
        offer: Any = point.load()
        if callable(offer):
            offer = offer()
    except (Exception, SystemExit) as error:
        raise _failed(label, error) from error
    if isinstance(offer, (str, Path)):
        return Path(offer)
    return _rules_in(getattr(offer, VARIABLE, offer), label)


def load_python_catalog(path: Path) -> list[PatternRule | RewriteRule]:
    """Execute a Python file; return the rules of its ``CATALOG``.

    Raises:
        CatalogError: It fails, or defines no such list of rules.
    """
    try:
        module = _execute(path)
    except (Exception, SystemExit) as error:
        raise _failed(path.name, error) from error
    if not hasattr(module, VARIABLE):
        raise CatalogError(f"{path.name}: defines no {VARIABLE}", hint=f"{VARIABLE} = [rule, …]")
    return _rules_in(getattr(module, VARIABLE), path.name)


class _Source(SourceFileLoader):
    """Compiles a file each time.

    Python tells bytecode that is out of date by the second, and would leave it beside the file.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.get_filename(fullname))


def _execute(path: Path) -> ModuleType:
    """Run a Python file as a module with a name of its own."""
    name = f"dpl_code_{sha256(str(resolved(path)).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no Python module")
    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = _Source(name, str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def _rules_in(offer: object, label: str) -> list[PatternRule | RewriteRule]:
    if isinstance(offer, (PatternRule, RewriteRule)):
        return [offer]
    if not isinstance(offer, (list, tuple)):
        raise CatalogError(f"{label}: {VARIABLE} is no list of rules but {type(offer).__name__}")
    for item in offer:
        if not isinstance(item, (PatternRule, RewriteRule)):
            raise CatalogError(f"{label}: {VARIABLE} holds {_shown(item)}, which is no rule")
    return list(offer)


def check_rules(rules: Iterable[object], schemas: SchemaLibrary) -> None:
    """Refuse rules, among other things, that no version of their operators can match.

    Raises:
        CatalogError: Names the rule, and says what is wrong.
    """
    for rule in rules:
        if isinstance(rule, (PatternRule, RewriteRule)):
            try:
                check_operators(rule.pattern, schemas)
            except PatternSyntaxError as error:
                message = f"rule {rule.qualified_name!r}: {error.wording}"
                raise CatalogError(message, hint=error.advice) from error


def find_function(reference: str, folder: Path, role: str) -> Callable[..., Any]:
    """Import the function that ``module:function`` names; modules in *folder* come first.

    Raises:
        CatalogError: There is none, or the import fails.
    """
    module_name, _, function_name = reference.partition(":")
    beside = folder / Path(*module_name.split(".")).with_suffix(".py")
    sys.path.insert(0, str(folder))
    try:
        module = _execute(beside) if beside.is_file() else importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise _failed(f"{role} {reference!r}", error) from error
    finally:
        sys.path.remove(str(folder))
    function = getattr(module, function_name, None)
    if not callable(function):
        raise CatalogError(f"{role} {reference!r}: {module_name} has no function {function_name!r}")
    checked: Callable[..., Any] = function
    return checked


def _shown(item: object) -> str:
    """Return a short ``repr``; it is foreign code and may fail."""
    try:
        return repr(item)[:80]
    except Exception:  # noqa: BLE001  # whatever it does
        return f"a {type(item).__name__}"


def _failed(label: str, error: BaseException) -> CatalogError:
    frames = traceback.extract_tb(error.__traceback__)
    outside = (f for f in frames if not Path(f.filename).is_relative_to(_PACKAGE))
    foreign = [f for f in outside if not f.filename.startswith("<")]  # as of a dataclass
    last = (foreign or frames)[-1:]  # where the user's code called what refused it
    where = "".join(f" (line {frame.lineno} of {Path(frame.filename).name})" for frame in last)
    reason = " ".join(str(error).split())
    hint = error.advice if isinstance(error, DplError) else None
    return CatalogError(f"{label}: failed with {type(error).__name__}: {reason}{where}", hint=hint)
