"""Jobs on catalogues: list, check and try them, learn a rule, and derive contracts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dplcli.catalog import find_catalog, read_catalogs, shipped_catalogs
from dplcli.catalog.catalog import installed_catalogs, write_catalog
from dplcli.catalog.lint import MOST_VARIANTS, NoInstanceError, Problem, instances, lint
from dplcli.catalog.schema import json_schema
from dplcli.catalog.yaml import YamlSource
from dplcli.dpl.replacement import RewriteRule
from dplcli.dpl.rule import PatternRule
from dplcli.errors import (
    DplError,
    InvalidModelError,
    UsageError,
    VerificationError,
    did_you_mean_rule,
)
from dplcli.files import temporary_folder
from dplcli.ir.traversal import behind_identities
from dplcli.ir.types import Tensor
from dplcli.onnx_io import OnnxSchemas, check_model, load_model, paused_gc, to_proto
from dplcli.onnx_io.read import DEFAULT_OPSET, build_model, model_from_text
from dplcli.outcomes import CatalogEntry, LearnOutcome, Trial
from dplcli.passes.learn import learn_rule
from dplcli.passes.partition import partition
from dplcli.passes.rewrite import RewriteLimitError, rewrite
from dplcli.passes.select import select_matches
from dplcli.pipeline.inspecting import find_nodes
from dplcli.pipeline.rules import READERS, names_of, rules_named
from dplcli.pipeline.verifying import compare
from dplcli.pipeline.writing import write_text
from dplcli.targets import Contract, contract_of, with_parts
from dplcli.targets.contract import possible_function

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from dplcli.catalog.lint import Instance
    from dplcli.dpl import Rejection
    from dplcli.dpl.rule import Example, Rule
    from dplcli.ir import Attribute, Graph, Model, SchemaLibrary, Value
    from dplcli.targets import FunctionContract

    Form: TypeAlias = tuple[Hashable, ...]

    AnyRule: TypeAlias = PatternRule | RewriteRule


# Comparing two models by what they compute, whatever the names in them.


def same_structure(first: Model, second: Model) -> bool:
    """Tell whether the main graphs are equal but for the names of values and nodes.

    Inputs and outputs correspond by position. Identity nodes are skipped. Constants are compared
    by their data, and functions of the model by their names.
    """
    numbers: dict[Form, int] = {}
    return _form(first.graph, numbers) == _form(second.graph, numbers)


def _form(graph: Graph, numbers: dict[Form, int]) -> list[int]:
    """Number every value by what computes it; equal values get equal numbers."""
    inputs = (value for value in graph.inputs if not value.is_initializer)
    known = {value: _number(("input", place), numbers) for place, value in enumerate(inputs)}
    for node in graph:
        reads = tuple(-1 if v is None else _of(v, known, numbers) for v in node.inputs)
        attributes = tuple(sorted((name, _value(a)) for name, a in node.attributes.items()))
        shape = (node.domain, node.op_type, reads, attributes)
        for output in node.outputs:
            if output is not None:
                known[output] = _number((*shape, output.index), numbers)
    return [_of(value, known, numbers) for value in graph.outputs]


def _of(value: Value, known: dict[Value, int], numbers: dict[Form, int]) -> int:
    origin = behind_identities(value)
    tensor = origin.constant
    if tensor is not None:
        data = (tensor.dtype, tensor.shape, str(tensor.numpy().tolist()))
        return _number(("constant", *data), numbers)
    if origin not in known:
        known[origin] = _number(("outside", origin.name), numbers)
    return known[origin]


def _number(form: Form, numbers: dict[Form, int]) -> int:
    return numbers.setdefault(form, len(numbers))


def _value(attribute: Attribute) -> str:
    if isinstance(attribute.value, Tensor):
        return str(attribute.value.numpy().tolist())
    return f"{attribute.ref}{attribute.value!r}"


# Trying rules: on their own examples, and on graphs made up for their patterns.


_OWN_MOST = 100
_MOST_RUNS = 6


@dataclass(frozen=True)
class Trier:
    """Tries rules.

    Attributes:
        schemas: The standard operators.
    """

    schemas: SchemaLibrary

    def trials(self, rule: AnyRule) -> Iterator[Trial]:
        """Run the examples of *rule*, then try it on each variant of its pattern."""
        for number, example in enumerate(rule.examples, start=1):
            try:
                wrong = _run_example(rule, example)
            except DplError as error:
                wrong = error.message
            place = example.origin or f"example {number}"
            yield Trial(rule, "example", place, "failed" if wrong else "passed", wrong)
        if isinstance(rule, RewriteRule) and rule.text is None:
            reason = "only its examples can show what a function does"
            yield Trial(rule, "made up", "variant 1", "not tried", reason)
            return
        try:
            for number, guesses in enumerate(instances(rule, self.schemas), start=1):
                yield _trial_of(rule, f"variant {number}", guesses)
        except NoInstanceError as error:
            yield Trial(rule, "made up", "variant 1", "not tried", str(error))

    # -- conflicts -----------------------------------------------------------------------------

    def find_conflicts(self, rules: Sequence[AnyRule]) -> list[Problem]:
        """Look for rules that can never match, and for rewrites that never end."""
        problems: list[Problem] = []
        models = {id(rule): list(self.models(rule)) for rule in rules}
        for kind in (PatternRule, RewriteRule):
            same = [rule for rule in rules if isinstance(rule, kind)]
            for number, rule in enumerate(same):
                problems += _shadowed(rule, same[:number], models[id(rule)])
        rewrites = [rule for rule in rules if isinstance(rule, RewriteRule)]
        for rule in rewrites:
            problems += _endless(rule, rewrites, models[id(rule)])
        return problems

    def shown(self, rule: AnyRule) -> Iterator[Model]:
        """Yield the models of those examples of *rule* that it matches."""
        for example in rule.examples:
            if example.after == "unchanged":
                continue
            try:
                model = model_from_text(example.before, "before")
            except InvalidModelError:  # `dpl patterns test` says so
                continue
            if _takes(rule, model):
                yield model

    def models(self, rule: AnyRule) -> Iterator[Model]:
        """Make up one model for each variant of the pattern of *rule*, if the rule matches it."""
        if isinstance(rule, RewriteRule) and rule.is_nodewise:
            return
        try:
            for guesses in instances(rule, self.schemas):
                fitting = _fitting(rule, guesses)
                yield from itertools.islice((again for _, again in fitting), 1)
        except NoInstanceError:
            return


def _trial_of(rule: AnyRule, place: str, guesses: Iterator[Instance]) -> Trial:
    """Try *rule* on the first guess that onnxruntime runs."""
    reason = "no graph was found that the pattern and all conditions fit"
    for before, after in itertools.islice(_fitting(rule, guesses), _MOST_RUNS):
        try:
            changed, why_not = _apply(rule, after)
            wrong = f"the rule does not apply to a graph made up for it{why_not}"
            if changed:
                wrong = _difference(before, after)
        except VerificationError as error:
            reason = f"onnxruntime runs none of the graphs made up: {error.message}"
            continue
        except DplError as error:
            wrong = error.message
        return Trial(rule, "made up", place, "failed" if wrong else "passed", wrong)
    return Trial(rule, "made up", place, "not tried", reason)


def _fitting(rule: AnyRule, guesses: Iterator[Instance]) -> Iterator[tuple[Model, Model]]:
    """Yield the guesses that *rule* matches, each as two models: one to keep, one to change."""
    opset = _opset_of(rule)
    for guess in guesses:
        model, again = build_model(guess, opset), build_model(guess, opset)
        if model is not None and again is not None and _takes(rule, model):
            yield model, again


def _opset_of(rule: Rule) -> int:
    first, last = rule.opsets
    return max(first or 0, min(last or DEFAULT_OPSET, DEFAULT_OPSET))


def _takes(rule: AnyRule, model: Model) -> bool:
    return bool(select_matches(model, [rule]).matches)


def _run_example(rule: AnyRule, example: Example) -> str:
    """Return what is wrong with the answer to an example, or ""."""
    before = model_from_text(example.before, "before")
    after = model_from_text(example.before, "before")
    changed, why_not = _apply(rule, after)
    if example.after == "unchanged":
        return "the rule matches, though the example says unchanged" if changed else ""
    if not changed:
        return f"the rule does not match{why_not}"
    wrong = _difference(before, after)
    if wrong or example.after == "any":
        return wrong
    try:
        expected = model_from_text(example.after, "after")
    except InvalidModelError as error:
        return error.message
    return "" if same_structure(after, expected) else "the result is another one than the example's"


def _apply(rule: AnyRule, model: Model) -> tuple[bool, str]:
    """Apply *rule*; return whether it did anything, and why it was refused."""
    if isinstance(rule, PatternRule):
        selection = select_matches(model, [rule])
        return bool(partition(model, selection)), _objection(selection.refused)
    done = rewrite(model, [rule])
    return done.rounds > 0, _objection(done.refused)


def _objection(refused: Sequence[Rejection]) -> str:
    return f": refused by {refused[0].stage}: {refused[0].reason}" if refused else ""


def _difference(before: Model, after: Model) -> str:
    """Compare in onnxruntime; return what is wrong, or ""."""
    with temporary_folder() as folder:
        paths = [folder / name for name in ("before.onnx", "after.onnx")]
        for path, model in zip(paths, (before, after), strict=True):
            path.write_bytes(to_proto(model).SerializeToString())
        objection = check_model(paths[1])
        if objection:
            return f"the result is not valid: {objection}"
        result = compare(paths[0], paths[1], None, None)
    if result.equivalent:  # an example need not be large enough to be sure
        return ""
    worst = next((o for o in result.outputs if not o.ok), None)
    found = (
        "; ".join(result.objections) if worst is None else f"{worst.name} moved by {worst.max_abs}"
    )
    return f"the result is not equivalent: {found}"


def _shadowed(rule: AnyRule, earlier: Sequence[AnyRule], models: Sequence[Model]) -> list[Problem]:
    """Report a rule if earlier rules take nodes of every variant of its pattern."""
    culprits = []
    for model in models:
        taking = next((e for e in earlier if _is_free(e) and _overlap(e, rule, model)), None)
        if taking is None:
            return []
        culprits.append(taking.qualified_name)
    if not culprits:
        return []
    names = ", ".join(dict.fromkeys(culprits))
    message = f"can never match: {names}, listed before, takes its nodes"
    return [Problem("warning", rule.qualified_name, rule.origin, message)]


def _is_free(rule: Rule) -> bool:
    """Tell whether *rule* takes all that its pattern fits; a function may decline."""
    if isinstance(rule, RewriteRule) and rule.text is None:
        return False
    return not rule.where and rule.check is None and rule.opsets == (None, None)


def _overlap(first: AnyRule, second: AnyRule, model: Model) -> bool:
    taken, wanted = (
        {node for match in select_matches(model, [rule]).matches for node in match.nodes}
        for rule in (first, second)
    )
    return not taken.isdisjoint(wanted)


def _endless(
    rule: RewriteRule, rules: Sequence[RewriteRule], models: Sequence[Model]
) -> list[Problem]:
    """Report a rule that never comes to an end, by itself or with others."""
    for model in models:
        try:
            rewrite(model, [rule], most=_OWN_MOST)
        except RewriteLimitError:
            message = "rewrites its own output forever"
            return [Problem("error", rule.qualified_name, rule.origin, message)]
        try:
            rewrite(model, rules, most=_OWN_MOST)
        except RewriteLimitError as error:
            message = f"does not come to an end with others: {error.message}"
            return [Problem("warning", rule.qualified_name, rule.origin, message)]
    return []


# Catalogues without a model: which there are, and whether their rules are right.


def list_catalogs() -> list[CatalogEntry]:
    """Return the catalogues that dpl and installed packages offer."""
    schemas = OnnxSchemas()
    entries = []
    for name in shipped_catalogs():
        data = YamlSource(find_catalog(name)).plain()
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
        names: Paths, or names of catalogues.
        only: Names of rules, with or without their target; empty for all.
        allow_code: Whether YAML may name Python functions to import.

    Raises:
        CatalogError: A catalogue cannot be read.
        UsageError: There is no such rule, or no catalogue is named.
    """
    if not names:
        raise UsageError("no catalogue is named", hint="dpl patterns list shows what there is")
    catalog = read_catalogs(
        names, OnnxSchemas(), allow_code=allow_code, readers=READERS, with_examples=True
    )
    return _named(catalog.rules, only)


def _named(rules: Sequence[AnyRule], only: Sequence[str]) -> list[AnyRule]:
    known = names_of(rules)
    for name in only:
        if name not in known:
            raise UsageError(f"{name}: no such rule", hint=did_you_mean_rule(name, known))
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
    problems += Trier(schemas).find_conflicts(rules)
    return [problem for problem in problems if problem.rule in wanted]


@paused_gc()
def try_catalogs(
    names: Sequence[str], *, only: Sequence[str] = (), allow_code: bool = False
) -> list[Trial]:
    """Run the examples of catalogues, and try each rule on graphs made up for it.

    Raises:
        CatalogError: A catalogue cannot be read.
    """
    trier = Trier(OnnxSchemas())
    rules = load_catalog_rules(names, only=only, allow_code=allow_code)
    return [trial for rule in rules for trial in trier.trials(rule)]


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
    """Return the different functions that *rule* writes for *models*, which were made up for it."""
    found: dict[object, FunctionContract] = {}
    for model in models:
        for made in partition(model, select_matches(model, [rule])):
            function = possible_function(rule, made.function, made.call)
            body = [(node.op_type, node.domain, node.inputs) for node in function.body]
            found.setdefault((*body, function.outputs), function)
    return list(found.values())


def _note(rule: PatternRule, schemas: OnnxSchemas, found: int) -> str:
    """Say which forms of the pattern are missing, and why; *found* of them were made up."""
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

    taken = [Path(other).resolve() for other in others]
    texts = []
    for option, path in (("--c-header", header), ("--python", stub)):
        if path is not None:
            _check_place(path, option, taken)
            taken.append(path.resolve())
            is_c = option == "--c-header"
            text = c_header(contract, path.name) if is_c else python_stub(contract)
            texts.append((path, text, option))
    for path, text, option in texts:
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
    return LearnOutcome(model_path.name, learned, write_catalog([learned.rule], doc=doc))
