"""Learn a rule from a subgraph: check the nodes, build the pattern, prove that it matches them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplcli.dpl.match import Match, read_match
from dplcli.dpl.pattern import ConstantPattern
from dplcli.dpl.rule import PatternRule
from dplcli.dpl.scoping import all_parts
from dplcli.dpl.state import StepBudgetExceededError
from dplcli.dpl.text import parse_pattern
from dplcli.errors import PassError, PatternSyntaxError, UsageError
from dplcli.ir.traversal import is_identity
from dplcli.passes.judgement import judge
from dplcli.passes.learning.pattern import build_pattern
from dplcli.passes.learning.region import list_nodes, read_region, say
from dplcli.passes.learning.words import rule_name
from dplcli.passes.selection import matchable_graphs, select_matches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dplcli.dpl.pattern import DFPattern
    from dplcli.ir import Model, Node
    from dplcli.passes.learning.region import Region
    from dplcli.passes.selection import Selection

DEFAULT_TARGET = "custom"


@dataclass(frozen=True)
class LearnedRule:
    """A rule made from an example.

    Attributes:
        rule: The rule.
        text: The text of its pattern.
        nodes: The nodes it was learned from, in topological order.
        notes: What it keeps of the example and what it leaves free.
        matches: How many matches it has in the model.
    """

    rule: PatternRule
    text: str
    nodes: tuple[Node, ...]
    notes: tuple[str, ...]
    matches: int


def learn_rule(
    model: Model,
    nodes: Sequence[Node],
    *,
    name: str = "",
    target: str = DEFAULT_TARGET,
    exact: bool = False,
) -> LearnedRule:
    """Make a rule that matches *nodes* and all that is like them; the model is not changed.

    Args:
        model: The model.
        nodes: Nodes of one of its graphs, connected and convex. Identity and Constant nodes among
            them do not count.
        name: What to call the rule; "" for a name made from the operators.
        target: Target of the rule.
        exact: Whether to demand every attribute that the file states.

    Raises:
        UsageError: The nodes make no subgraph that a rule can describe.
        PassError: The rule does not match the nodes it was learned from.
    """
    region = read_region(nodes)
    if region.nodes[0].graph not in matchable_graphs(model):
        raise UsageError(
            f"{say(region.nodes[0])} is in a function that dpl partition wrote",
            hint="learn from the model that was partitioned",
        )
    learned = build_pattern(region, exact=exact)
    text = _readable_text(learned.pattern, model)
    rule = PatternRule(
        target=target,
        name=name or rule_name(region.nodes),
        pattern=learned.pattern,
        where=learned.where,
        constants="lift",
        doc=_doc(region, model),
    )
    _prove(rule, region)
    selection = select_matches(model, [rule])
    notes = [*learned.notes, *_notes_on_search(selection, region)]
    if not _given_up(selection) and _has_constants(rule):
        looser = build_pattern(region, exact=exact, any_values=True)
        notes += _notes_on_constants(model, replace(rule, pattern=looser.pattern), selection)
    return LearnedRule(rule, text, region.nodes, tuple(notes), len(selection.matches))


def _doc(region: Region, model: Model) -> str:
    count = len(region.nodes)
    label = "a model" if model.path is None else model.path.name
    what = "1 node" if count == 1 else f"{count} nodes"
    return f"Learned from {what} of {label}: {list_nodes(region.nodes)}."


def _notes_on_search(selection: Selection, region: Region) -> Iterator[str]:
    if not any(_core(match) == set(region.nodes) for match in selection.matches):
        yield "another match of the rule takes some of the nodes it was learned from"
    count = _given_up(selection)
    if count:
        where = "1 node" if count == 1 else f"{count} nodes"
        yield f"the search was given up at {where}: too much in the model is like these nodes"


def _given_up(selection: Selection) -> int:
    return sum(item.stage == "budget" for item in selection.refused)


def _has_constants(rule: PatternRule) -> bool:
    return any(isinstance(part, ConstantPattern) for part in all_parts(rule.pattern))


def _notes_on_constants(model: Model, looser: PatternRule, selection: Selection) -> Iterator[str]:
    more = len(select_matches(model, [looser]).matches) - len(selection.matches)
    if more > 0:
        yield f"{more} more would match if constants might be computed: x instead of const(x)"


def _readable_text(pattern: DFPattern, model: Model) -> str:
    """Write the pattern's text, which reads as an equal pattern."""
    text = repr(pattern)
    try:
        read = parse_pattern(text, model.codec.schemas)
    except PatternSyntaxError as error:
        raise UsageError(
            f"no pattern can describe these nodes: {error.message}", hint=error.hint
        ) from error
    if read != pattern:
        raise PassError(f"the pattern does not read as it was written:\n{text}")
    return text


def _prove(rule: PatternRule, region: Region) -> None:
    """Check that the rule may match exactly *region*, as far as no other match is concerned."""
    try:
        reasons = list(_objections(rule, region))
    except StepBudgetExceededError as error:
        raise PassError(
            f"too much in the model is like these nodes: {error.message}",
            hint="name fewer nodes, or those as well that tell them from the others",
        ) from error
    if "" not in reasons:
        why = "; ".join(dict.fromkeys(reasons)) or "its pattern does not fit"
        raise PassError(
            f"the rule learned does not match the nodes it was learned from: {why}",
            hint=f"this is a bug in dpl; the pattern is\n{rule.pattern!r}",
        )


def _objections(rule: PatternRule, region: Region) -> Iterator[str]:
    """Yield for each way to match exactly *region* why it is refused; last "" if one is not."""
    members, root = set(region.nodes), region.roots[0]
    for state in rule.matcher.solutions(root):
        match = read_match(rule, root, state)
        if match is None or _core(match) != members:
            continue
        verdict = judge(match)
        yield "" if isinstance(verdict, Match) else f"{verdict.stage}: {verdict.reason}"
        if isinstance(verdict, Match):
            return


def _core(match: Match) -> set[Node]:
    return {node for node in match.nodes if not is_identity(node)}
