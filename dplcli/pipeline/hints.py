"""What would let rules do more: a later opset, ranks that a file states, ``prepare`` before them.

A hint is tried before it is given, so it costs about what the run did. Only models of ordinary size
get any, and only where rules do little.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.catalog.places import shipped_catalog
from dplcli.dpl import PatternRule, RewriteRule
from dplcli.errors import DplError, counted
from dplcli.ir.operators import LEFTOVERS
from dplcli.onnx_io import load_model
from dplcli.passes.select import select_matches
from dplcli.pipeline.rules import load_rewrites
from dplcli.settings import RuleSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from dplcli.dpl import Rejection
    from dplcli.dpl.rule import Rule
    from dplcli.ir import Model, Value
    from dplcli.passes.select import Selection


_MOST_NODES = 3000
"""Matching or rewriting these takes about half a second."""

_POOR = 0.6
"""A larger share of nodes in matches is no reason to look further."""

_MOST_OF_IT = 0.5
"""A smaller share, of no more nodes than before, is not worth a sentence either."""

_MORE = 1.2
"""By which factor a run must do more to be worth a sentence."""

_MOST_NAMED = 3


def hints_on_matches(
    path: Path, model: Model, selection: Selection, *, is_prepared: bool = False
) -> tuple[str, ...]:
    """Say what would let more rules match, or match more.

    Args:
        path: The file of the model.
        model: The model as it was matched, or parts of it outlined since.
        selection: What was found in it.
        is_prepared: Whether the model was rewritten by ``prepare``, and is not that of the file.
    """
    rules, refused = selection.rules, selection.refused
    if sum(selection.totals.values()) > _MOST_NODES:
        return ()
    replaces = any(isinstance(rule, RewriteRule) for rule in rules)
    raising = "dpl rewrite" if replaces else "dpl rewrite -p prepare"

    preparing = "dpl rewrite -p prepare comes first" if replaces else "dpl partition --prepare"
    return _said(
        lambda: "" if is_prepared else _on_opset(path, model, rules, f"{raising} --opset"),
        lambda: _on_ranks(refused),
        lambda: "" if is_prepared else _on_coverage(path, selection, preparing),
    )


def hints_on_rewrite(
    path: Path,
    rules: Sequence[RewriteRule],
    counts: Mapping[str, int],
    refused: Iterable[Rejection],
    nodes: int,
) -> tuple[str, ...]:
    """Say what would let more rules of a rewrite apply, or apply more often.

    Args:
        path: The file of the model.
        rules: The rules.
        counts: How often each was applied.
        refused: What was refused.
        nodes: How many nodes the model has.
    """
    if nodes > _MOST_NODES:
        return ()
    model = load_model(path)
    rules = [rule for rule in rules if not rule.is_nodewise]

    return _said(
        lambda: _on_opset(path, model, rules, "--opset"),
        lambda: _on_ranks(refused),
        lambda: _on_applications(path, rules, counts),
    )


def _said(*hints: Callable[[], str]) -> tuple[str, ...]:
    """Ask for each hint; one that cannot be tried is none."""
    lines = []
    for hint in hints:
        try:
            lines.append(hint())
        except DplError:
            continue
    return tuple(filter(None, lines))


# Rules that hold for later opsets alone.


def _on_opset(path: Path, model: Model, rules: Sequence[Rule], option: str) -> str:
    """Name the rules that would do something at a later opset."""
    version = model.opset_imports.get("", 0)
    late = {r.qualified_name: r.opsets[0] for r in rules if (r.opsets[0] or 0) > version > 0}
    if not late:
        return ""
    # Rules that look for the same; only their replacements need the opset.
    patterns = [
        replace(rule, opsets=(None, None))
        if isinstance(rule, PatternRule)
        else PatternRule(rule.target, rule.name, rule.pattern, where=rule.where)
        for rule in rules
        if rule.qualified_name in late
    ]
    fitting = select_matches(load_model(path), patterns).counts
    opset = max((late[rule] or 0 for rule in fitting), default=0)
    if not opset:
        return ""
    counts = select_matches(load_model(path, opset=opset), rules).counts
    counts_of_late = {rule: counts[rule] for rule in late if counts.get(rule)}
    if not counts_of_late:
        return ""
    opset = max(late[rule] or 0 for rule in counts_of_late)
    which = (
        "1 more rule matches"
        if len(counts_of_late) == 1
        else f"{len(counts_of_late)} more rules match"
    )
    return f"{which} at opset {opset} ({_listed(counts_of_late)}): {option} {opset}"


def _listed(counts: Mapping[str, int]) -> str:
    """Write ``fuse.gelu 12 times, fuse.layer_normalization 25 times and 2 more``."""
    words = [
        f"{rule} {'once' if count == 1 else f'{count:,} times'}"
        for rule, count in Counter(counts).most_common(_MOST_NAMED)
    ]
    more = len(counts) - len(words)
    return ", ".join(words) + (f" and {more} more" if more else "")


# Ranks that nothing tells.


def _on_ranks(refused: Iterable[Rejection]) -> str:
    """Say how many matches are refused for want of a rank, and where the doubt begins."""
    asked = [item.unranked for item in refused if item.unranked is not None]
    # The values of unknown rank, upwards from *values*, that depend on no other such.
    sources: list[Value] = []
    pending = list(dict.fromkeys(asked))
    seen = set(pending)
    while pending:
        value = pending.pop()
        if _is_ranked(value):
            continue
        read = [] if value.producer is None else value.producer.inputs
        before = [item for item in read if item is not None and not _is_ranked(item)]
        if not before and (value.producer is None or value.producer.source is not None):
            sources.append(value)
        new = dict.fromkeys(item for item in before if item not in seen)
        pending += new
        seen.update(new)
    if not sources:
        return ""
    count = "1 match is" if len(asked) == 1 else f"{len(asked):,} matches are"
    maker = sources[0].producer
    what = f"{sources[0].name!r}, " + (
        "an input" if maker is None else f"made by {maker.qualified_op}"
    )
    more = f" (and {counted(len(sources) - 1, 'other value')})" if len(sources) > 1 else ""
    return (
        f"{count} refused because a rank is unknown: state the shape of {what}{more}, in "
        "the file, and the others follow"
    )


def _is_ranked(value: Value) -> bool:
    kind = value.known_type()
    return kind is not None and kind.shape is not None


# What ``prepare`` would make of a model first.


def _on_coverage(path: Path, selection: Selection, preparing: str) -> str:
    """Say how many nodes would be in matches after ``prepare``, if few are and more would be."""
    inside, total = _covered(selection)
    left = sum(selection.totals.get(op, 0) - selection.covered.get(op, 0) for op in LEFTOVERS)
    if not total or inside / total > _POOR or (total - left) * _MORE > total:
        return ""
    model = load_model(path)
    if not _prepare(model, selection.rules):
        return ""
    inside_then, total_then = _covered(select_matches(model, selection.rules))
    share, then = inside / total, inside_then / max(total_then, 1)
    if then < _MORE * share or (inside_then <= inside and then < _MOST_OF_IT):
        return ""
    return (
        f"{inside:,} of {total:,} nodes match now, and {inside_then:,} of {total_then:,} after "
        f"prepare: {preparing}"
    )


def _covered(selection: Selection) -> tuple[int, int]:
    """Count the nodes in matches and in calls of earlier ones, and all; a Constant holds data."""
    inside = {**selection.covered, **selection.outlined}
    counts = (Counter(inside), Counter(selection.totals))
    matched, total = (sum(of.values()) - of["Constant"] for of in counts)
    return matched, total


def _on_applications(path: Path, rules: Sequence[RewriteRule], counts: Mapping[str, int]) -> str:
    """Say how often the rules would match after ``prepare``, if they did nothing without."""
    model = load_model(path)
    if any(counts.values()) or not _prepare(model, rules):
        return ""
    matches = len(select_matches(model, rules).matches)
    times = "once" if matches == 1 else f"{matches:,} times"
    return f"the rules match {times} after prepare: add -p prepare" if matches else ""


def _prepare(model: Model, rules: Iterable[Rule]) -> bool:
    """Rewrite a model by ``prepare``; tell whether that changed it and is none of *rules*."""
    from dplcli.passes.rewrite import rewrite  # noqa: PLC0415  # few models are worth the try

    rewrites, _ = load_rewrites(RuleSettings(patterns=str(shipped_catalog("prepare"))), model)
    names = {rule.qualified_name for rule in rules}
    if any(rule.qualified_name in names for rule in rewrites):
        return False
    return rewrite(model, rewrites).rounds > 0
