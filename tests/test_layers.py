"""The package graph is a design decision, so a test owns it. So is that modules form no circle.

Every import statement counts: at the top of a module, inside a function, under TYPE_CHECKING, and
``import_module`` with a literal name.
"""

import ast
import re
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "dplcli"
YAML_SIDE = {"ruamel", "pydantic"}
MAY_IMPORT: dict[str, set[str]] = {
    "docstrings": set(),
    "errors": set(),
    "escaping": set(),
    "files": set(),
    "keys": set(),
    "lazy": set(),
    "version": set(),
    "ir": {"errors", "keys"},
    "shapes": {"ir"},
    "onnx_io": {"errors", "files", "lazy", "version", "ir", "shapes", "onnx", "onnxruntime"},
    "analysis": {"errors", "ir", "onnx_io", "onnx"},
    "diff": {"keys", "ir", "onnx_io", "analysis"},
    "language": {"errors", "keys", "lazy", "ir", "shapes"},
    "rewrites": {"errors", "ir", "shapes", "language"},
    "settings": {"docstrings", "errors", "language", "onnx_io"},
    "catalog": {"errors", "files", "lazy", "version", "ir", "language", "rewrites"}
    | {"pydantic", "ruamel"},
    "passes": {"errors", "keys", "ir", "analysis", "language", "catalog", "settings"},
    "verify": {"errors", "files", "keys", "ir", "shapes", "onnx_io", "analysis", "diff"}
    | {"onnx", "onnxruntime"},
    "execute": {"errors", "files", "version", "ir", "onnx_io", "verify", "onnx", "onnxruntime"},
    "targets": {"errors", "keys", "ir", "language", "jinja2"},
    "outcomes": {
        "errors",
        "escaping",
        "files",
        "keys",
        "onnx",
        "ir",
        "diff",
        "language",
        "catalog",
        "passes",
        "verify",
    },
    "report": {
        "docstrings",
        "errors",
        "escaping",
        "lazy",
        "keys",
        "ir",
        "diff",
        "language",
        "catalog",
        "passes",
        "verify",
        "targets",
        "outcomes",
        "version",
        "jinja2",
        "rich",
    },
    "pipeline": {
        "errors",
        "escaping",
        "files",
        "lazy",
        "ir",
        "onnx_io",
        "analysis",
        "diff",
        "language",
    }
    | {"catalog"}
    | {"passes", "verify", "execute", "targets", "outcomes", "settings", "shapes"},
    "batch": {"errors", "files", "version", "onnx_io", "language", "catalog", "pydantic"},
    "api": {
        "execute",
        "errors",
        "escaping",
        "files",
        "onnx_io",
        "diff",
        "language",
        "passes",
        "verify",
        "outcomes",
        "settings",
    }
    | {"execute", "report", "pipeline", "onnx"},
    "cli": {
        "docstrings",
        "errors",
        "escaping",
        "files",
        "outcomes",
        "pipeline",
        "report",
        "api",
        "batch",
    }
    | {"settings", "version", "click", "rich"},
    "__init__": {"errors", "lazy", "version", "language", "outcomes", "api"},
    "__main__": {"cli"},
}
GUARDED = MAY_IMPORT.keys() | {"onnx", "onnxruntime", "click", "jinja2", "rich"} | YAML_SIDE


@cache
def imports_in(source: str) -> list[ast.AST]:
    """Return what may import something; several tests look at it, and a whole tree is large."""
    return [
        part
        for part in ast.walk(ast.parse(source))
        if isinstance(part, ast.Import | ast.ImportFrom)
        or (isinstance(part, ast.Call) and dynamically_imported(part))
    ]


def imported_names(source: str) -> set[str]:
    """Return each layer of dplcli, and each guarded third-party package, that *source* imports.

    ``import dplcli`` alone reaches every layer, so it reads as importing ``dplcli``, which no
    layer may.
    """
    names: set[str] = set()
    for node in imports_in(source):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "use absolute imports"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call):
            names |= dynamically_imported(node)
    layers = {name.removeprefix("dplcli.").split(".")[0] for name in names}
    return layers & (GUARDED | {"dplcli"})


def dynamically_imported(call: ast.Call) -> set[str]:
    """Return the module that ``import_module("...")`` or ``__import__("...")`` names."""
    match call:
        case ast.Call(
            func=ast.Name(id=function) | ast.Attribute(attr=function),
            args=[ast.Constant(value=str(module)), *_],
        ) if function in {"import_module", "__import__"}:
            return {module}
    return set()


def forbidden_imports(layer: str, source: str) -> set[str]:
    """Return what *source*, a module of *layer*, imports although its row does not list it."""
    return imported_names(source) - MAY_IMPORT[layer] - {layer}


def imported_modules(source: str, modules: set[str]) -> set[str]:
    """Return which of *modules* are imported by *source*, in whatever way."""
    names: set[str] = set()
    for node in imports_in(source):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= whole if whole <= modules else (whole & modules) | {str(node.module)}
        elif isinstance(node, ast.Call):
            names |= dynamically_imported(node)
    return names & modules


def module_name(path: Path) -> str:
    """Return the dotted name of the module at *path*."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def first_circle(sources: dict[str, str]) -> list[str]:
    """Return modules that import one another in a circle, none if there are no such."""
    modules = set(sources)
    graph = {name: imported_modules(text, modules) - {name} for name, text in sources.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def layer_of(path: Path) -> str:
    """Return the row of the table that the module at *path* belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_modules_import_only_lower_layers() -> None:
    """A layer imports itself and what its row of MAY_IMPORT lists, nothing else."""
    paths = sorted(PACKAGE.rglob("*.py"))
    assert {*map(layer_of, paths)} <= MAY_IMPORT.keys(), "give the new layer a row in MAY_IMPORT"
    forbidden = {
        module_name(path): forbidden_imports(layer_of(path), path.read_text(encoding="utf-8"))
        for path in paths
    }
    assert {name: names for name, names in forbidden.items() if names} == {}


def test_the_table_has_no_cycle() -> None:
    """Each row lists only layers of rows above it, so the order of the rows is a proof."""
    above: set[str] = set()
    for layer, allowed in list(MAY_IMPORT.items()):
        if layer != "__main__":
            assert allowed & MAY_IMPORT.keys() <= above
        above.add(layer)


def test_modules_form_no_circle() -> None:
    """Not at the top of a module, not inside a function and not under TYPE_CHECKING."""
    sources = {module_name(p): p.read_text(encoding="utf-8") for p in PACKAGE.rglob("*.py")}

    assert first_circle(sources) == []


@pytest.mark.parametrize(
    "back",
    [
        "from dplcli.a import f",
        "from dplcli import a",
        "import dplcli.a",
        "def g():\n    from dplcli.a import f",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dplcli.a import F",
        "import importlib\nm = importlib.import_module('dplcli.a')",
    ],
)
def test_sees_a_planted_circle(back: str) -> None:
    """Whichever way the arrow back is spelled."""
    sources = {"dplcli": "", "dplcli.a": "from dplcli.b import g", "dplcli.b": back}

    assert set(first_circle(sources)) == {"dplcli.a", "dplcli.b"}
    assert first_circle({**sources, "dplcli.b": "import os"}) == []


def test_public_classes_have_names_of_their_own() -> None:
    """One name, one meaning."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module_name(path))

    assert {name: where for name, where in found.items() if len(where) > 1} == {}


WAITS = r"subprocess\.(run|call|check_call|check_output)|\w+\.communicate"


def test_no_test_waits_for_ever_for_a_program() -> None:
    """Each has a limit: what hangs fails one test, and holds nobody up."""
    endless = []
    for path in PACKAGE.with_name("tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "subprocess" in text else ():
            if isinstance(node, ast.Call) and re.fullmatch(WAITS, ast.unparse(node.func)):
                limits = {each.arg for each in node.keywords}
                endless += [] if "timeout" in limits else [f"{path}:{node.lineno}"]

    assert endless == []


@pytest.mark.parametrize(
    ("layer", "source", "culprits"),
    [
        pytest.param("ir", "from dplcli.language import is_op", {"language"}, id="upward"),
        pytest.param("ir", "from dplcli import passes", {"passes"}, id="upward-from-package"),
        pytest.param("ir", "import dplcli.passes.merge", {"passes"}, id="upward-by-path"),
        pytest.param("ir", "import dplcli", {"dplcli"}, id="whole-package"),
        pytest.param("passes", "from dplcli.onnx_io import load", {"onnx_io"}, id="sideways"),
        pytest.param("verify", "from dplcli.passes import Log", {"passes"}, id="verify-sees-pass"),
        pytest.param("cli", "from dplcli.ir import Model", {"ir"}, id="cli-skips-the-front-door"),
        pytest.param("ir", "import onnx", {"onnx"}, id="third-party"),
        pytest.param(
            "language", "from onnx.helper import make_node", {"onnx"}, id="third-party-inner"
        ),
        pytest.param("passes", "import onnxruntime as ort", {"onnxruntime"}, id="renamed"),
        pytest.param("pipeline", "import click", {"click"}, id="click-below-cli"),
        pytest.param("pipeline", "from rich import print", {"rich"}, id="rich-below-report"),
        pytest.param(
            "language", "from dplcli.catalog import Catalog", {"catalog"}, id="language-sees-files"
        ),
        pytest.param(
            "shapes", "from dplcli.language import Match", {"language"}, id="shapes-see-matches"
        ),
        pytest.param(
            "rewrites", "from dplcli.catalog import Catalog", {"catalog"}, id="rewrite-sees-catalog"
        ),
        pytest.param(
            "pipeline", "from dplcli.report import json", {"report"}, id="job-sees-its-report"
        ),
        pytest.param(
            "report", "from dplcli.pipeline import match", {"pipeline"}, id="report-does-the-job"
        ),
        pytest.param(
            "outcomes", "from dplcli.report import json", {"report"}, id="outcome-shows-itself"
        ),
        pytest.param("cli", "from ruamel.yaml import YAML", {"ruamel"}, id="yaml-above-catalog"),
        pytest.param(
            "language", "from ruamel.yaml import YAML", {"ruamel"}, id="yaml-below-catalog"
        ),
        pytest.param("pipeline", "import pydantic", {"pydantic"}, id="pydantic-above-catalog"),
        pytest.param("ir", "def f():\n    import onnx", {"onnx"}, id="lazy"),
        pytest.param(
            "passes",
            "class A:\n    def f(self):\n        if True:\n            from dplcli.cli import main",
            {"cli"},
            id="lazy-and-nested",
        ),
        pytest.param(
            "language",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dplcli.passes import P",
            {"passes"},
            id="type-checking-only",
        ),
        pytest.param(
            "ir", "try:\n    import onnx\nexcept ImportError:\n    pass", {"onnx"}, id="try"
        ),
        pytest.param("ir", "m = __import__('onnx')", {"onnx"}, id="dunder-import"),
        pytest.param(
            "ir",
            "import importlib\nm = importlib.import_module('dplcli.passes.merge')",
            {"passes"},
            id="import-module",
        ),
        pytest.param("ir", "import os, onnx, click", {"onnx", "click"}, id="several-at-once"),
        pytest.param("errors", "from dplcli.ir import Value", {"ir"}, id="errors-is-the-bottom"),
    ],
)
def test_sees_a_planted_violation(layer: str, source: str, culprits: set[str]) -> None:
    """No spelling of a forbidden import goes unnoticed."""
    assert forbidden_imports(layer, source) == culprits


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        (
            "ir",
            "import numpy\nfrom dplcli.errors import DplError\nfrom dplcli.ir.value import Value",
        ),
        ("onnx_io", "import onnx\nfrom onnx import helper\nfrom dplcli.ir import Model"),
        ("language", "import numpy\nfrom dplcli.shapes import Knowledge"),
        ("catalog", "import ruamel.yaml\nimport pydantic\nfrom dplcli.rewrites import attention"),
        ("language", "import onnxlike\nfrom irregular import ir"),
        ("passes", "from dplcli.language.matcher import Match"),
        ("verify", "import onnxruntime\nfrom dplcli.onnx_io import export"),
        ("report", "from rich.table import Table\nfrom dplcli.verify import Outcome"),
        (
            "pipeline",
            "from dplcli import errors, ir, onnx_io, language, passes, verify, targets, outcomes",
        ),
        (
            "cli",
            "import click, rich\nfrom dplcli import pipeline\nfrom dplcli.report import text",
        ),
        ("__main__", "from dplcli.cli import main"),
    ],
)
def test_allows_what_the_table_lists(layer: str, source: str) -> None:
    """A layer may use lower layers, itself, its own third parties and unguarded packages."""
    assert forbidden_imports(layer, source) == set()


def test_rejects_relative_imports() -> None:
    """A relative import hides the layer it reaches, so it is an error by itself."""
    with pytest.raises(AssertionError, match="absolute"):
        imported_names("from ..passes import merge")
