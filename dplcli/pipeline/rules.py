"""The rules that a run applies, and the files that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, TypeVar

from dplcli.catalog import is_shipped_target, shipped_targets
from dplcli.catalog.compiled import read_compiled
from dplcli.catalog.finding import check_distinct
from dplcli.errors import (
    CatalogError,
    ModelError,
    PatternSyntaxError,
    UsageError,
    did_you_mean,
    opt,
)
from dplcli.files import exists
from dplcli.language import PatternRule, RewriteRule
from dplcli.language.rule import POLICIES, with_policies
from dplcli.language.text import check_roots, read_pattern
from dplcli.onnx_io import load_model
from dplcli.onnx_io.scratch import functions_from_text
from dplcli.shapes import assume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dplcli.catalog import Catalog
    from dplcli.ir import Model, SchemaLibrary
    from dplcli.language.rule import Rule
    from dplcli.settings import RuleSettings
    from dplcli.verify.check import Sums

    R = TypeVar("R", bound=Rule)

    PatternSource: TypeAlias = str | PatternRule | RewriteRule


# Catalogues that are ONNX models: their functions are pairs of a pattern and a replacement.


def _read_functions(path: Path) -> Sequence[RewriteRule]:
    try:
        if path.suffix == ".onnx":
            model = load_model(path)
        else:
            model = functions_from_text(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path.name}: cannot be read: {error}") from error
    except ModelError as error:
        raise CatalogError(error.wording, hint=error.advice) from error
    from dplcli.catalog.catalog import rules_of_functions  # noqa: PLC0415  # rarely needed

    return rules_of_functions(model.functions.values(), path.name)


READERS: dict[str, Callable[[Path], Sequence[RewriteRule]]] = {
    ".onnx": _read_functions,
    ".onnxtxt": _read_functions,
}
"""The readers of catalogues by suffix."""


# The rules of a run.


def load_rules(settings: RuleSettings, model: Model) -> tuple[list[PatternRule], set[Path]]:
    """Gather the rules of *settings* that outline, and the files that they were read from.

    Raises:
        UsageError: No rule is named, or a policy names none.
        CatalogError: A catalogue cannot be found or read, or two rules have the same name.
    """
    catalog = _read_sources(settings, model)
    hint = "its rules replace: dpl rewrite applies them" if catalog.rewrites else None
    _check(catalog.patterns, settings, "no rules to apply", hint)
    return with_policies(catalog.patterns, _policies_of(settings)), catalog.files


def load_rewrites(settings: RuleSettings, model: Model) -> tuple[list[RewriteRule], set[Path]]:
    """Gather the rules of *settings* that replace, and the files that they were read from.

    Raises:
        UsageError: No rule is named.
        CatalogError: A catalogue cannot be found or read, or two rules have the same name.
    """
    catalog = _read_sources(settings, model)
    hint = "its rules outline: dpl partition applies them" if catalog.patterns else None
    _check(catalog.rewrites, settings, "no rules that replace", hint)
    return catalog.rewrites, catalog.files


def load_any_rules(settings: RuleSettings, model: Model) -> tuple[list[Rule], set[Path]]:
    """Gather the rules of *settings* that look for patterns, of both kinds.

    Raises:
        UsageError: No rule is named, or a policy names none.
        CatalogError: A catalogue cannot be found or read, or two rules have the same name.
    """
    catalog = _read_sources(settings, model)
    loaded: list[Rule] = [*catalog.patterns, *catalog.rewrites]
    rules = [rule for rule in loaded if not rule.is_nodewise]
    _check(rules, settings, "no rules with a pattern")
    return with_policies(rules, _policies_of(settings)), catalog.files


def _policies_of(settings: RuleSettings) -> dict[str, Sequence[str]]:
    return {name: vars(settings).get(name, ()) for name in POLICIES}


def _read_sources(settings: RuleSettings, model: Model) -> Catalog:
    schemas = model.codec.schemas
    names = [*with_rules_of_texts(settings.patterns, schemas), *settings.target]
    if not names:
        raise UsageError(
            "no catalogue is named",
            hint=f"pass {opt('patterns', 'FILE')} or {opt('target', 'NAME')}",
        )
    for target in settings.target:
        if not is_shipped_target(target):
            shipped = shipped_targets()
            hint = did_you_mean(target, shipped) or f"there are: {', '.join(shipped)}"
            raise CatalogError(f"{opt('target')} {target}: no such catalogue", hint=hint)
    return read_compiled(names, schemas, allow_code=settings.allow_code, readers=READERS)


def with_rules_of_texts(
    sources: Sequence[PatternSource], schemas: SchemaLibrary
) -> list[PatternSource]:
    """Return *sources* with a rule for each that is the text of a pattern.

    Raises:
        PatternSyntaxError: A text is no pattern.
    """
    texts = [item for item in sources if is_pattern_text(item)]
    rules_of_texts = {
        text: rule_of_text(text, f"pattern_{number + 1}" if number else "pattern", schemas)
        for number, text in enumerate(dict.fromkeys(texts))
    }
    return [rules_of_texts.get(item, item) if isinstance(item, str) else item for item in sources]


def is_pattern_text(source: PatternSource) -> TypeGuard[str]:
    """Tell whether *source* is the text of a pattern, such as ``Relu(Conv(x, w))``."""
    return isinstance(source, str) and "(" in source and not exists(Path(source).is_file)


def catalogs_in(sources: Iterable[PatternSource]) -> list[str]:
    """Return the names and paths of catalogues that are among *sources*."""
    return [item for item in sources if isinstance(item, str) and not is_pattern_text(item)]


TEXT_TARGET = "custom"
"""The target of rules that are made of a pattern alone."""


def rule_of_text(text: str, name: str, schemas: SchemaLibrary) -> PatternRule:
    """Make a rule that outlines what the text of a pattern matches.

    Raises:
        PatternSyntaxError: The text is no pattern.
    """
    try:
        pattern, unused = read_pattern(text, schemas)
        check_roots(pattern)
    except PatternSyntaxError as error:
        where = f"{error.line}:{error.column + 1}"
        raise PatternSyntaxError(
            f"the pattern {text!r}, {where}: {error.wording}",
            line=error.line,
            column=error.column,
            hint=error.advice,
        ) from error
    return PatternRule(target=TEXT_TARGET, name=name, pattern=pattern, unused=unused)


def names_of(rules: Iterable[Rule]) -> list[str]:
    """List the names of *rules*, with and without their target, sorted."""
    return sorted({name for rule in rules for name in (rule.name, rule.qualified_name)})


def rules_named(rules: Iterable[R], names: Sequence[str]) -> list[R]:
    """Return the rules with one of these *names*; all rules if there are no names."""
    wanted = set(names)
    return [rule for rule in rules if not wanted or wanted & {rule.name, rule.qualified_name}]


def _check(
    rules: Sequence[Rule], settings: RuleSettings, problem: str, hint: str | None = None
) -> None:
    """Refuse a run without rules, or with two rules of one name."""
    if not rules:
        named = [item if isinstance(item, str) else item.name for item in settings.patterns]
        names = ", ".join([*named, *settings.target]) or "the rules given"
        raise CatalogError(f"{names}: {problem}", hint=hint)
    check_distinct(rules)


# What rules may rely on.


def assuming(model: Model, sums: Sums) -> Model:
    """Let rules rely on *sums*, and on those that the outputs of *model* state; return it.

    Raises:
        UsageError: No input has a dimension that is named.
    """
    kinds = (value.declared_type for value in model.graph.inputs)
    dims = {d for kind in kinds if kind is not None for d in kind.shape or () if isinstance(d, str)}
    for name, parts in sums.items():
        for each in (name, *parts):
            if isinstance(each, str) and each not in dims:
                hint = f"there are: {', '.join(sorted(dims)) or 'none'}"
                raise UsageError(f"{opt('shape')}: no input has a dimension {each!r}", hint=hint)
    assume(model, sums)
    return model
