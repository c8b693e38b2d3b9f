"""What kernels have to keep to: of a model's functions, and of those that catalogues may write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dplcli.dpl import PatternRule
from dplcli.dpl.instance import MOST_VARIANTS, NoInstanceError, instances
from dplcli.errors import UsageError
from dplcli.onnx_io import OnnxSchemas, load_model, paused_gc
from dplcli.passes.partition import partition
from dplcli.passes.selection import select_matches
from dplcli.pipeline.catalogs import load_catalog_rules
from dplcli.pipeline.trials import Trier
from dplcli.pipeline.writing import write_text
from dplcli.targets import Contract, contract_of, with_parts
from dplcli.targets.possible import possible_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.ir import Model
    from dplcli.targets import FunctionContract

_BEGINNING = 4096
_BY_EXAMPLE = "only the forms that its examples have are listed: no graph was made up that fits"
_MARK = b"ritten by dpl"


def model_contract(model_path: Path) -> Contract:
    """Return the contract of the functions in a model.

    Raises:
        DplError: The file is no model.
    """
    return contract_of(load_model(model_path), model_path.name)


@paused_gc()
def catalog_contract(
    names: Sequence[str], *, only: Sequence[str] = (), allow_code: bool = False
) -> Contract:
    """Return the contract of the functions that rules of catalogues may write.

    Raises:
        CatalogError: A catalogue cannot be read.
        UsageError: There is no such rule, or no catalogue is named.
    """
    rules = load_catalog_rules(names, only=only, allow_code=allow_code)
    schemas = OnnxSchemas()
    trier = Trier(schemas)
    functions: list[FunctionContract] = []
    notes: dict[str, str] = {}
    for rule in rules:
        if not isinstance(rule, PatternRule):
            continue
        models = list(trier.models(rule))
        shown = [] if models else list(trier.shown(rule))
        functions += _possible(rule, models or shown)
        if note := _BY_EXAMPLE if shown else _note(rule, schemas, len(models)):
            notes[rule.qualified_name] = note
    label = ", ".join(Path(name).name for name in names)
    return Contract(label, with_parts(functions), is_of_model=False, notes=notes)


def _possible(rule: PatternRule, models: Iterable[Model]) -> list[FunctionContract]:
    """Return the functions that *rule* writes for *models*, made up for it, each once."""
    found: dict[object, FunctionContract] = {}
    for model in models:
        for made in partition(model, select_matches(model, [rule])):
            function = possible_function(rule, made.function, made.call)
            body = [(node.op_type, node.domain, node.inputs) for node in function.body]
            found.setdefault((*body, function.outputs), function)
    return list(found.values())


def _note(rule: PatternRule, schemas: OnnxSchemas, found: int) -> str:
    """Say what is missing, and why; *found* forms of the pattern were made up."""
    try:
        forms = sum(1 for _ in instances(rule, schemas))
    except NoInstanceError as error:
        return f"nothing is known without a model: {error}"
    if not found:
        return "nothing is known without a model: no graph was found that all conditions fit"
    if forms > found:
        return f"{found} of {forms} forms of its pattern are listed: no graphs fit the others"
    if forms >= MOST_VARIANTS:
        return f"only the first {forms} forms of its pattern are listed"
    return ""


def write_bindings(
    contract: Contract, *, header: Path | None, stub: Path | None, others: Sequence[Path | str] = ()
) -> None:
    """Write what kernels are written against: a C header, and abstract classes in Python.

    Args:
        contract: The functions.
        header: The header to write; None for none.
        stub: The Python module to write; None for none.
        others: Files that must not be overwritten; names of shipped catalogues do no harm.

    Raises:
        UsageError: A file cannot be written, or holds something else; nothing is written then.
    """
    from dplcli.targets.bindings import c_header, python_stub  # noqa: PLC0415  # jinja2

    texts: list[tuple[str, Path, str]] = []
    taken = [Path(other).resolve() for other in others]
    if header is not None:
        texts.append(("--c-header", header, c_header(contract, header.name)))
    if stub is not None:
        texts.append(("--python", stub, python_stub(contract)))
    for option, path, _ in texts:
        _check_place(path, option, taken)
        taken.append(path.resolve())
    for option, path, text in texts:
        write_text(path, text, option)


def _check_place(path: Path, option: str, taken: Sequence[Path]) -> None:
    if path.resolve() in taken:
        raise UsageError(f"{option} {path}: is another file of this command")
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{option} {path}: is not a file, or its folder does not exist")
    if not path.is_file():
        return
    with path.open("rb") as file:
        beginning = file.read(_BEGINNING)
    if beginning and _MARK not in beginning:
        raise UsageError(
            f"{option} {path}: exists and was not written by dpl, so it is kept",
            hint="name another file, or delete this one",
        )
