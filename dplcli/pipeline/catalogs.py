"""Jobs on catalogues: list, check and try them, learn a rule, and derive contracts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dplcli.catalog import find_catalog, read_catalogs, shipped_catalogs
from dplcli.catalog.catalog import write_catalog
from dplcli.catalog.finding import lacks_examples
from dplcli.catalog.lint import Problem, lint
from dplcli.catalog.python import installed_catalogs
from dplcli.catalog.schema import json_schema
from dplcli.catalog.sketch import MOST_VARIANTS, NoInstanceError, sketches
from dplcli.catalog.yaml import YamlSource
from dplcli.errors import UsageError, did_you_mean_rule, opt
from dplcli.files import resolved
from dplcli.language.rule import PatternRule
from dplcli.onnx_io import OnnxSchemas, load_model, paused_gc
from dplcli.onnx_io.convert import RuntimeSchemas
from dplcli.outcomes.rules import CatalogEntry, LearnOutcome, Trial
from dplcli.passes.forms import further_forms
from dplcli.passes.learn_pattern import learn_rule
from dplcli.passes.partition import partition
from dplcli.passes.select import select_matches
from dplcli.pipeline.inspecting import find_nodes
from dplcli.pipeline.proving import DEFAULT_TRIALS, Trier
from dplcli.pipeline.rules import READERS, names_of, rules_named, with_rules_of_texts
from dplcli.pipeline.writing import write_text
from dplcli.targets.contract import Contract, contract_of, possible_function, with_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.catalog import Catalog
    from dplcli.ir import Model
    from dplcli.language.replacement import RewriteRule
    from dplcli.passes.forms import FurtherForm
    from dplcli.targets.contract import FunctionContract

    AnyRule: TypeAlias = PatternRule | RewriteRule


# Catalogues without a model: which there are, and whether their rules are right.


def list_catalogs() -> list[CatalogEntry]:
    """Return the catalogues that dpl and installed packages offer."""
    schemas = OnnxSchemas()
    entries = []
    for name in shipped_catalogs():
        data = YamlSource(find_catalog(name)).data
        target, doc = str(data.get("target", "")), str(data.get("doc", ""))
        count = len(read_catalogs([name], schemas).rules)
        entries.append(CatalogEntry(name, "dpl", target, doc, count))
    for name, point in installed_catalogs().items():
        package = point.dist.name if point.dist is not None else point.value
        entries.append(CatalogEntry(name, package))
    return entries


def load_catalog_rules(
    names: Sequence[str], *, only: Sequence[str] = (), allow_code: bool = False
) -> list[AnyRule]:
    """Return the rules of catalogues, those that outline first.

    Args:
        names: Paths, names of catalogues, or texts of patterns.
        only: Names of rules, with or without their target; empty for all.
        allow_code: Whether YAML may name Python functions to import.

    Raises:
        CatalogError: A catalogue cannot be read.
        UsageError: There is no such rule, or no catalogue is named.
    """
    return _named(_read(names, allow_code=allow_code).rules, only)


def _read(names: Sequence[str], *, allow_code: bool) -> Catalog:
    if not names:
        raise UsageError("no catalogue is named", hint="dpl patterns list shows what there is")
    schemas = OnnxSchemas()
    sources = with_rules_of_texts(names, schemas)
    return read_catalogs(
        sources, schemas, allow_code=allow_code, readers=READERS, with_examples=True
    )


_IN_SOURCES = "its examples come with the sources of dpl"


def _shown_in_sources(catalog: Catalog) -> set[str]:
    """Name the rules whose examples are not installed."""
    parts = catalog.parts.items()
    lacking = [part.rules for path, part in parts if lacks_examples(str(path))]
    return {rule.qualified_name for rules in lacking for rule in rules}


def _named(rules: Sequence[AnyRule], only: Sequence[str]) -> list[AnyRule]:
    names = names_of(rules)
    for name in only:
        if name not in names:
            raise UsageError(f"{name}: no such rule", hint=did_you_mean_rule(name, names))
    return rules_named(rules, only)


@paused_gc()
def check_catalogs(
    names: Sequence[str], *, only: Sequence[str] = (), allow_code: bool = False
) -> list[Problem]:
    """Look for mistakes in the rules of catalogues, without a model.

    Raises:
        CatalogError: A catalogue cannot be read at all.
    """
    schemas = OnnxSchemas()
    rules = load_catalog_rules(names, allow_code=allow_code)
    wanted = {rule.qualified_name for rule in _named(rules, only)}
    problems = [problem for rule in rules for problem in lint(rule, schemas)]
    problems += Trier(RuntimeSchemas()).find_conflicts(rules)
    return [problem for problem in problems if problem.rule in wanted]


@paused_gc()
def try_catalogs(
    names: Sequence[str],
    *,
    only: Sequence[str] = (),
    allow_code: bool = False,
    trials: int = DEFAULT_TRIALS,
    seed: int = 0,
) -> list[Trial]:
    """Run the examples of catalogues, and try each rule on graphs made up for it.

    Args:
        names: The catalogues.
        only: The rules to try; none for all.
        allow_code: Whether catalogues may be code, which is executed.
        trials: On how many graphs each rewrite is tried.
        seed: Which graphs are made up, and which numbers they are fed.

    Raises:
        CatalogError: A catalogue cannot be read.
    """
    trier = Trier(RuntimeSchemas(), trials, seed)
    catalog = _read(names, allow_code=allow_code)
    elsewhere = _shown_in_sources(catalog)
    return [
        replace(trial, verdict="by example", reason=f"{trial.reason}; {_IN_SOURCES}")
        if trial.verdict == "not tried" and rule.qualified_name in elsewhere
        else trial
        for rule in _named(catalog.rules, only)
        for trial in trier.trials(rule)
    ]


def catalog_schema() -> dict[str, Any]:
    """Return the JSON Schema of a catalogue file."""
    return json_schema()


# Contracts: of the functions in a model, and of those that catalogues may write.


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
    catalog = _read(names, allow_code=allow_code)
    elsewhere = _shown_in_sources(catalog)
    schemas = RuntimeSchemas()
    trier = Trier(schemas)
    functions: list[FunctionContract] = []
    notes: dict[str, str] = {}
    for rule in _named(catalog.rules, only):
        if not isinstance(rule, PatternRule):
            continue
        models, shown = list(trier.models(rule)), list(trier.shown(rule))
        functions += _possible(rule, [*models, *shown], further_forms(rule, schemas))
        is_by_example = bool(shown) and not models
        if note := _BY_EXAMPLE if is_by_example else _note(rule, schemas, len(models)):
            lacks = not models and rule.qualified_name in elsewhere
            notes[rule.qualified_name] = f"{note}; {_IN_SOURCES}" if lacks else note
    label = ", ".join(Path(name).name for name in names)
    return Contract(label, with_parts(functions), is_of_model=False, notes=notes)


def _possible(
    rule: PatternRule, models: Iterable[Model], more: Mapping[str, Sequence[FurtherForm]]
) -> list[FunctionContract]:
    """Return the different functions that *rule* writes for *models*, which were made up for it."""
    contracts: dict[object, FunctionContract] = {}
    for model in models:
        for made in partition(model, select_matches(model, [rule])):
            function = possible_function(
                rule, made.function, made.call, more.get(made.function.name, ())
            )
            body = [(node.op_type, node.domain, node.inputs) for node in function.body]
            contracts.setdefault((*body, function.outputs), function)
    return list(contracts.values())


def _note(rule: PatternRule, schemas: OnnxSchemas, matches: int) -> str:
    """Say which forms of the pattern are missing, and why; *matches* of them were made up."""
    try:
        forms = sum(1 for _ in sketches(rule, schemas))
    except NoInstanceError as error:
        return f"nothing is known without a model: {error}"
    if not matches:
        return "nothing is known without a model: no graph was found that all conditions fit"
    if forms > matches:
        return f"{matches} of {forms} forms of its pattern are listed: no graphs fit the others"
    if forms >= MOST_VARIANTS:
        return f"only the first {forms} forms of its pattern are listed"
    return ""


def write_bindings(
    contract: Contract, *, header: Path | None, stub: Path | None, others: Sequence[Path | str] = ()
) -> None:
    """Write a contract as a C header and as abstract classes in Python.

    Args:
        contract: The functions.
        header: The header to write; None for none.
        stub: The Python module to write; None for none.
        others: Files that must not be overwritten; names of shipped catalogues may be among them.

    Raises:
        UsageError: A file cannot be written, or holds something else; nothing is written then.
    """
    from dplcli.targets.bindings import c_header, python_stub  # noqa: PLC0415  # jinja2

    taken = [resolved(Path(other)) for other in others]
    texts = []
    for option, path in ((opt("header"), header), (opt("stub"), stub)):
        if path is not None:
            _check_place(path, option, taken)
            taken.append(resolved(path))
            is_c = option == opt("header")
            text = c_header(contract, path.name) if is_c else python_stub(contract)
            texts.append((path, text, option))
    for path, text, option in texts:
        write_text(path, text, option)


def _check_place(path: Path, option: str, taken: Sequence[Path]) -> None:
    if resolved(path) in taken:
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


# Learning a rule from an example.


@paused_gc()
def learn(
    model_path: Path, *, nodes: Sequence[str], name: str, target: str, exact: bool
) -> LearnOutcome:
    """Make a rule for a subgraph.

    Args:
        model_path: The model.
        nodes: Names of its nodes, or of values that they make.
        name: The name of the rule; "" for a name made of the operators.
        target: The target of the rule.
        exact: Whether the rule demands every attribute that the file states.

    Raises:
        DplError: The model cannot be used, or the nodes make no subgraph.
    """
    model = load_model(model_path)
    chosen = []
    for wanted in nodes:
        found = find_nodes(model, wanted)
        if len(found) > 1:
            hint = "name a value that it makes instead"
            raise UsageError(f"{wanted!r}: {len(found)} nodes have this name", hint=hint)
        chosen += found
    learned = learn_rule(model, chosen, name=name, target=target, exact=exact)
    doc = f"Learned from {model_path.name}."
    return LearnOutcome(model_path.name, learned, yaml=write_catalog([learned.rule], doc=doc))
