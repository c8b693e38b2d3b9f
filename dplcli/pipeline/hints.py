"""What would let rules do more: a later opset, ranks that a file states, ``prepare``, a policy.

A hint is tried before it is given, as the command that it names would, so it costs about what the
run did. Only models of ordinary size get any, and only where rules do little.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dplcli.catalog.finding import is_shipped_target, shipped_beside, shipped_catalog
from dplcli.errors import DplError, counted
from dplcli.ir.operators import LEFTOVERS, WRITTEN_OUT
from dplcli.language import PatternRule, RewriteRule
from dplcli.language.explain import MOST_TRACED
from dplcli.language.pattern import TypedPattern
from dplcli.language.rule import with_policies
from dplcli.onnx_io import as_written, load_model
from dplcli.passes.select import explain_rules, select_matches
from dplcli.pipeline.rules import assuming, load_rewrites, load_rules
from dplcli.settings import RuleSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from dplcli.ir import Model, Node, Value
    from dplcli.language import Rejection
    from dplcli.language.rule import Rule
    from dplcli.passes.rewrite import Rewriting
    from dplcli.passes.select import Selection
    from dplcli.verify.check import Sums


_MOST_NODES = 3000
"""Matching or rewriting these takes about half a second."""

_POOR = 0.6
"""A larger share of nodes in matches is no reason to look further."""

_MOST_OF_IT = 0.5
"""A smaller share, of no more nodes than before, is not worth a sentence either."""

_MORE = 1.2
"""By which factor a run must do more to be worth a sentence."""

_SOME_MORE = 1.1
"""The same of a catalogue of single operators, which a target has beside its own."""

_MOST_TRIES = 100_000
"""At how many nodes the nearest misses of all rules together are sought."""

_MOST_NAMED = 3


class Advice(NamedTuple):
    """What would let rules do more.

    Attributes:
        hints: What to tell, a sentence each.
        refused: The refused matches, with the mend in the reason of each that is known to have one.
    """

    hints: tuple[str, ...]
    refused: tuple[Rejection, ...]


class TriedSums(NamedTuple):
    """What becomes of a model of whose sizes more is said.

    Attributes:
        left: How many nodes are left.
        done: Where a rule did something: its name, and the first output of the root.
    """

    left: int
    done: frozenset[tuple[str, str]]


def hints_on_matches(
    path: Path, model: Model, selection: Selection, *, is_prepared: bool = False
) -> Advice:
    """Say what would let more rules match, or match more.

    Args:
        path: The file of the model.
        model: The model as it was matched.
        selection: What was found in it.
        is_prepared: Whether the model was rewritten by ``prepare``, and is not that of the file.
    """
    rules, refused = selection.rules, selection.refused
    if sum(selection.totals.values()) > _MOST_NODES:
        return Advice((), tuple(refused))
    replaces = any(isinstance(rule, RewriteRule) for rule in rules)
    raising = "dpl rewrite" if replaces else "dpl rewrite -p prepare"

    preparing = "dpl rewrite -p prepare comes first" if replaces else "dpl partition --prepare"
    inside, total = selection.share

    def trial(sums: Sums) -> TriedSums:
        again = select_matches(assuming(load_model(path), {**model.sums, **sums}), rules)
        done = frozenset(_place(match.rule, match.root) for match in again.matches)
        return TriedSums(total - again.share[0], done)

    return _advice(
        refused,
        lambda: None if is_prepared else _on_sums(path, model, trial, total - inside, "unmatched"),
        lambda: "" if is_prepared else _on_opset(path, model, rules, f"{raising} --opset"),
        lambda: _on_ranks(refused),
        lambda: "" if is_prepared else _on_coverage(path, selection, preparing),
        lambda: _on_fusing(path, model, selection),
        lambda: _on_escape(model, selection),
        lambda: _on_more_rules(model, selection),
        lambda: _on_types(model, selection),
    )


def hints_on_rewrite(
    path: Path,
    load: Callable[[], Model],
    rules: Sequence[RewriteRule],
    done: Rewriting,
    nodes: tuple[int, int],
) -> Advice:
    """Say what would let more rules of a rewrite apply, or apply more often.

    Args:
        path: The file of the model.
        load: Reads the model as it was before the rewrite.
        rules: The rules.
        done: What became of them.
        nodes: How many nodes the model has, and had before.
    """
    if max(nodes) > _MOST_NODES:
        return Advice((), done.refused)
    original = load()

    def trial(more: Sums) -> TriedSums:
        from dplcli.passes.rewrite import rewrite  # noqa: PLC0415  # few models are worth the try

        model = assuming(load(), {**original.sums, **more})
        applications = rewrite(model, rules).applications
        return TriedSums(_count(model), frozenset((a.rule, a.root.output) for a in applications))

    return _advice(
        done.refused,
        lambda: _on_sums(path, original, trial, nodes[0], "left"),
        lambda: _on_opset(path, load(), rules, "--opset"),
        lambda: _on_ranks(done.refused),
        lambda: _on_applications(load(), rules, done.counts),
    )


def _advice(
    refused: Iterable[Rejection],
    sums: Callable[[], tuple[str, TriedSums] | None],
    *hints: Callable[[], str],
) -> Advice:
    """Ask for what is to be said of sizes, and for each hint; one that cannot be tried is none.

    Where a rule is refused that does something if more is said of sizes, its refusal says so; else
    a hint does.

    The job is done by then, and what a hint tries is another one: whatever stops it, even a fault
    of dpl, is no reason to withhold the answer.
    """
    lines, told = list[str](), tuple(refused)
    with suppress(Exception):
        if (said := sums()) is not None:
            text, trial = said
            mended = [_place(item.rule, item.root) in trial.done for item in told]
            told = tuple(
                item._replace(reason=f"{item.reason}; {text}") if is_mended else item
                for item, is_mended in zip(told, mended, strict=True)
            )
            lines += [] if any(mended) else [text]
    for hint in hints:
        with suppress(Exception):
            lines.append(hint())
    return Advice(tuple(filter(None, lines)), told)


def _place(rule: Rule, root: Node) -> tuple[str, str]:
    return rule.qualified_name, next((v.name for v in root.outputs if v is not None), "")


# Sizes that nothing proves to be sums of others.


def _on_sums(
    path: Path, model: Model, trial: Callable[[Sums], TriedSums], left: int, word: str
) -> tuple[str, TriedSums] | None:
    """Say what is to be said of sizes for more to match, and what becomes of the model then.

    Args:
        path: The file of the model.
        model: The model, with what is said of sizes already.
        trial: Tells what becomes of the model if more is said.
        left: How many nodes are left now.
        word: What they are.
    """
    kinds = (value.declared_type for value in model.graph.inputs)
    named = {d for kind in kinds if kind is not None for d in kind.shape or () if type(d) is str}
    if len(named) < 2:  # noqa: PLR2004  # one is the sum of nothing
        return None
    from dplcli.verify.inputs.relations import SizeTerms  # noqa: PLC0415  # few models have any
    from dplcli.verify.model import Dataflow, input_ports, read_model  # noqa: PLC0415  # few models have any

    flow = Dataflow(read_model(path))
    related = SizeTerms(flow, input_ports(flow.model.graph)).related()
    sums = {name: parts for name, parts in related.items() if name not in model.sums}
    if not 0 < len(sums) <= _MOST_NAMED or (then := trial(sums)).left >= left:
        return None
    for name in [*sums]:
        fewer = {other: parts for other, parts in sums.items() if other != name}
        if fewer and (again := trial(fewer)).left <= then.left:
            sums, then = fewer, again
    options = " ".join(f"--shape {name}={'+'.join(map(str, p))}" for name, p in sums.items())
    said = " and ".join(f"{name} is always {' + '.join(map(str, p))}" for name, p in sums.items())
    return f"{then.left:,} nodes instead of {left:,} are {word} if {said}: {options}", then


# Rules that hold for later opsets alone.


def _on_opset(path: Path, model: Model, rules: Sequence[Rule], option: str) -> str:
    """Name the rules that would do something at a later opset."""
    version = model.opset_imports.get("", 0)
    with_patterns = [r for r in rules if not r.is_nodewise]
    first = {rule.qualified_name: rule.opsets[0] or 0 for rule in with_patterns}
    late = {name: opset for name, opset in first.items() if opset > version > 0}
    if not late:
        return ""
    # Rules that look for the same; only their replacements need the opset.
    patterns = [
        replace(rule, opsets=(None, None))
        if isinstance(rule, PatternRule)
        else PatternRule(rule.target, rule.name, rule.pattern, where=rule.where)
        for rule in with_patterns
        if rule.qualified_name in late
    ]
    fitting = select_matches(model, patterns).counts
    opset = max((late[rule] for rule in fitting), default=0)
    if not opset:
        return ""
    counts = _done_at(assuming(load_model(path, opset=opset), model.sums), rules)
    counts_of_late = {rule: counts[rule] for rule in late if counts.get(rule)}
    if not counts_of_late:
        return ""
    opset = max(late[rule] for rule in counts_of_late)
    verb = "match" if any(isinstance(rule, PatternRule) for rule in rules) else "apply"
    which = f"{counted(len(counts_of_late), 'more rule')} {verb}"
    if len(counts_of_late) == 1:
        which = f"1 more rule {'matches' if verb == 'match' else 'applies'}"
    return f"{which} at opset {opset} ({_listed(counts_of_late)}): {option} {opset}"


def _done_at(model: Model, rules: Sequence[Rule]) -> Mapping[str, int]:
    """Return how often rules match in a model that was raised, or are applied to it."""
    rewrites = [rule for rule in rules if isinstance(rule, RewriteRule)]
    if len(rewrites) == len(rules):
        return _rewritten(model, rewrites)
    return select_matches(_prepare(model, rules) or model, rules).counts


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
    inside, total = selection.share
    left = sum(selection.totals.get(op, 0) - selection.covered.get(op, 0) for op in LEFTOVERS)
    if not total or inside / total > _POOR or (total - left) * _MORE > total:
        return ""
    model = _prepare(load_model(path), selection.rules)
    if model is None:
        return ""
    inside_then, total_then = select_matches(model, selection.rules).share
    share, then = inside / total, inside_then / max(total_then, 1)
    if then < _MORE * share or (inside_then <= inside and then < _MOST_OF_IT):
        return ""
    return (
        f"{inside:,} of {total:,} nodes match now, and {inside_then:,} of {total_then:,} after "
        f"prepare: {preparing}"
    )


def _on_applications(model: Model, rules: Sequence[RewriteRule], counts: Mapping[str, int]) -> str:
    """Say how often the rules would be applied beside ``prepare``, if they did nothing without."""
    prepare = _preparing(model, rules)
    if any(counts.values()) or not prepare:
        return ""
    done = _rewritten(model, [*rules, *prepare])
    times = sum(done.get(rule.qualified_name, 0) for rule in rules)
    often = "once" if times == 1 else f"{times:,} times"
    return f"the rules apply {often} with prepare: add -p prepare" if times else ""


def _prepare(model: Model, rules: Iterable[Rule]) -> Model | None:
    """Rewrite a model by ``prepare``; None if nothing came of it, or if it is among *rules*."""
    prepare = _preparing(model, rules)
    return as_written(model) if prepare and sum(_rewritten(model, prepare).values()) else None


def _preparing(model: Model, rules: Iterable[Rule]) -> list[RewriteRule]:
    """Return the rules of ``prepare``; none if one is among *rules*."""
    prepare = _shipped(["prepare"], model)
    names = {rule.qualified_name for rule in rules}
    return [] if any(rule.qualified_name in names for rule in prepare) else prepare


def _rewritten(model: Model, rules: Sequence[RewriteRule]) -> Mapping[str, int]:
    """Rewrite a model; return how often each rule was applied."""
    from dplcli.passes.rewrite import rewrite  # noqa: PLC0415  # few models are worth the try

    return rewrite(model, rules).counts


def _count(model: Model) -> int:
    return sum(node.op_type != "Constant" for graph in model.graphs() for node in graph)


# What other catalogues would make of a model first.


_FUSING = ("prepare", "fuse")
"""The catalogues that make operators of a later standard, in the order to be given."""


def _on_fusing(path: Path, model: Model, selection: Selection) -> str:
    """Name rules that would match if operators were made first that the model has written out."""
    there = {(node.domain, node.op_type) for graph in model.graphs() for node in graph}
    written_out = {
        ("", op)
        for op, sign in WRITTEN_OUT.items()
        if ("", sign) in there and ("", op) not in there
    }
    waiting = [
        rule.qualified_name
        for rule in selection.rules
        if written_out
        and isinstance(rule, PatternRule)
        and any(ops & written_out and not ops & there for ops in rule.demand.operators)
    ]
    inside, total = selection.share
    if not waiting or total < _SOME_MORE * inside:
        return ""

    from dplcli.passes.rewrite import rewrite  # noqa: PLC0415  # few models are worth the try

    def tried(names: Sequence[str], opset: int | None) -> tuple[dict[str, int], int]:
        """Count what the rules that wait match in the end, and say which opset that took."""
        again = assuming(load_model(path, opset=opset), model.sums)
        fusing = _shipped(names, again)
        done = rewrite(again, fusing)
        counts = select_matches(as_written(again), selection.rules).counts
        used = [rule.opsets[0] or 0 for rule in fusing if done.counts[rule.qualified_name]]
        return {rule: counts[rule] for rule in waiting if counts[rule]}, max(used, default=0)

    version, opset = model.opset_imports.get("", 0), None
    latest = max(rule.opsets[0] or 0 for rule in _shipped(_FUSING, model))
    if latest > version > 0:
        with suppress(DplError):  # there are models that cannot be raised
            needed = tried(_FUSING, latest)[1]
            opset = needed if needed > version else None
    matched, _ = tried(_FUSING, opset)
    if not matched:
        return ""
    if opset and tried(_FUSING, None)[0] == matched:
        opset = None
    if tried(_FUSING[:1], opset)[0] == matched:
        return ""  # what prepare alone is worth is said above
    names = _FUSING[1:] if tried(_FUSING[1:], opset)[0] == matched else _FUSING
    command = "dpl rewrite" + "".join(f" -p {name}" for name in names)
    command += f" --opset {opset}" if opset else ""
    which = "1 rule matches" if len(matched) == 1 else f"{len(matched):,} rules match"
    return f"{which} after fusing ({_listed(matched)}): {command} comes first"


def _shipped(names: Sequence[str], model: Model) -> list[RewriteRule]:
    """Return the rules of catalogues that dpl ships."""
    paths = tuple(str(shipped_catalog(name)) for name in names)
    return load_rewrites(RuleSettings(patterns=paths), model)[0]


# What another policy would make of matches that others read from.


def _on_escape(model: Model, selection: Selection) -> str:
    """Say how many nodes more would match if functions returned what others read of them.

    To compute that twice is a policy, too, but may cost more than it gains.
    """
    names = {item.rule.qualified_name for item in selection.refused if item.stage == "escape"}
    names &= {rule.qualified_name for rule in selection.rules if isinstance(rule, PatternRule)}
    if not names or len(names) > _MOST_NAMED:
        return ""
    chosen = [f"{name}=outputs" for name in sorted(names)]
    inside, total = selection.share
    then, _ = select_matches(model, with_policies(selection.rules, {"escape": chosen})).share
    if then <= inside or then < _MORE * inside:
        return ""
    options = " ".join(f"--escape {each}" for each in chosen)
    return f"{inside:,} of {total:,} nodes match now, and {then:,} with {options}"


# Further rules that dpl ships for the target.


def _on_more_rules(model: Model, selection: Selection) -> str:
    """Say how many nodes more would match with a catalogue that dpl ships beside a target's."""
    origins = {rule.qualified_name: rule.origin for rule in selection.rules}
    targets = [name.removesuffix(".yaml") for name in _files(origins.values())]
    if not all(map(is_shipped_target, targets)):
        return ""
    inside, total = selection.share
    if total < _SOME_MORE * inside:
        return ""
    claimed = {node for match in selection.matches for node in match.nodes}
    for name in shipped_beside(targets):
        rules = load_rules(RuleSettings(patterns=(str(shipped_catalog(name)),)), model)[0]
        if any(origins.get(rule.qualified_name, rule.origin) != rule.origin for rule in rules):
            continue  # it has other rules of the same names
        names = {rule.qualified_name for rule in rules}
        included = _files(rule.origin for rule in rules)
        before = [r for r in selection.rules if r.origin.partition(":")[0] not in included]
        if len(names & origins.keys()) + len(before) < len(origins):
            continue  # it has not all rules of a file of the same name
        more = [rule for rule in rules if rule.qualified_name not in origins]
        new = {node for match in select_matches(model, more).matches for node in match.nodes}
        if inside + len(new - claimed) < _SOME_MORE * inside:  # soon told, for they are few rules
            continue
        then, _ = select_matches(model, [*before, *rules]).share
        if then > inside and then >= _SOME_MORE * inside:
            kept = [target for target in targets if f"{target}.yaml" not in included]
            command = " ".join(f"-p {each}" for each in (*kept, name))
            return f"{inside:,} of {total:,} nodes match now, and {then:,} with {command}"
    return ""


def _files(origins: Iterable[str]) -> dict[str, None]:
    """List the files that rules come from, each once."""
    return dict.fromkeys(origin.partition(":")[0] for origin in origins)


# Element types that rules do not take.


def _on_types(model: Model, selection: Selection) -> str:
    """Say which element types the rules take, if nothing matches and most fail for theirs."""
    if selection.matches or selection.refused:
        return ""
    explainer = explain_rules(model, selection.rules)
    most = min(MOST_TRACED, -(-_MOST_TRIES // len(selection.rules))) if selection.rules else 0
    nearest = [explainer.rule(rule, most).nearest for rule in selection.rules]
    failed = [trace.mismatch for trace in nearest if trace is not None and trace.mismatch]
    wanted: Counter[tuple[str, str]] = Counter()
    for miss in failed:
        kind = None if miss.at is None else miss.at.known_type()
        dtypes = miss.part.dtypes if isinstance(miss.part, TypedPattern) else None
        if dtypes and kind is not None and kind.dtype not in dtypes:
            wanted[" or ".join(dtypes), str(kind.dtype)] += 1
    if not wanted:
        return ""
    (expected, found), count = wanted.most_common(1)[0]
    who = "the rule that comes nearest takes"
    if count > 1:
        who = f"the {count:,} rules that come nearest take"
    return f"{who} element type {expected}, and the model has {found}"
