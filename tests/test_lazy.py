"""Packages that import their parts when asked offer what a type checker is told they do."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from dplcli.lazy import offers_of

PACKAGE = Path(__file__).parent.parent / "dplcli"
LAZY = sorted(path for path in PACKAGE.rglob("__init__.py") if "lazy(" in path.read_text("utf-8"))


def imported(tree: ast.AST) -> dict[str, str]:
    """Return the names that import statements bind, and what each comes from."""
    return {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def package_of(path: Path) -> str:
    """Return the name of the package in a folder."""
    return ".".join(path.parent.relative_to(PACKAGE.parent).parts)


@pytest.mark.parametrize("path", LAZY, ids=package_of)
def test_a_lazy_package_offers_what_it_imports_for_types(path: Path) -> None:
    """The same names, each the same thing, and nothing that is not there."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    stated = imported(ast.Module(guarded.body, []))
    package = import_module(package_of(path))

    assert stated == {name: ":".join(home) for name, home in offers_of(package_of(path)).items()}
    for name, home in stated.items():
        module, _, other = home.partition(":")
        assert getattr(package, name) is getattr(import_module(module), other)


def test_the_pattern_language_says_what_is_public() -> None:
    """Catalogues in Python import from it: all that it offers, and nothing else."""
    path = PACKAGE / "language" / "__init__.py"
    bound = imported(ast.parse(path.read_text(encoding="utf-8")))
    assert set(import_module("dplcli.language").__all__) == bound.keys() - {"TYPE_CHECKING", "lazy"}


def test_there_are_some() -> None:
    """The front door of the library is one."""
    assert {package_of(path) for path in LAZY} >= {"dplcli.pipeline", "dplcli.language"}


def test_a_name_that_is_not_offered_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in any module; what cannot be imported says why."""
    (tmp_path / "lazy_package").mkdir()
    source = (
        "from typing import TYPE_CHECKING\nfrom dplcli.lazy import lazy\nif TYPE_CHECKING:\n"
        "    from dplcli.no_such_module import a as c\nelse:\n    __getattr__ = lazy(__name__)\n"
    )
    (tmp_path / "lazy_package" / "__init__.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    package = import_module("lazy_package")
    with pytest.raises(AttributeError, match="module 'lazy_package' has no attribute 'a'"):
        package.a  # noqa: B018  # is asked for
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        package.c  # noqa: B018
