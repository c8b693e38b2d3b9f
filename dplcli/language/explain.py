"""Why rules match where they do, and why not elsewhere.

To say why a pattern does not match at a node, the search runs again and reports every failure.
An attempt is what the search has bound when a step fails; the attempt that got furthest is kept.
Then it runs once more and goes on without the first step that fails, so that what is wrong with the
largest part that fits is the reason, wherever that stands.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from dplcli.errors import counted
from dplcli.ir.traversal import users
from dplcli.keys import keys
from dplcli.language.matcher import (
    DEFAULT_BUDGET,
    AbsentStep,
    AnyStep,
    CallStep,
    Matcher,
    OpIndexes,
    OutputStep,
    RepeatStep,
    RestStep,
    SharedStep,
    StepBudgetExceededError,
    StepFailure,
    TypeStep,
    ValueStep,
    describe,
)
from dplcli.language.pattern import (
    CallPattern,
    RepeatPattern,
    WildcardPattern,
    all_parts,
    hidden_parts,
    visible_parts,
)
from dplcli.language.replacement import whole_node
from dplcli.language.text import own_line, write_part

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from dplcli.ir import Graph, Node, Value
    from dplcli.language.matcher import Goals, Ops, State, Step
    from dplcli.language.pattern import DFPattern
    from dplcli.language.replacement import RewriteRule
    from dplcli.language.rule import Match, Rejection, Rule

Standing: TypeAlias = Literal["matched", "inside", "refused", "mismatch", "taken", "skipped"]

TRACE_BUDGET = 4 * DEFAULT_BUDGET
"""A search without pruning takes more steps than the matcher's."""


@keys("pattern place at expected found")
class Mismatch(NamedTuple):
    """Where and why an attempt failed.

    Attributes:
        part: The part of the pattern that failed.
        place: Where it is written, or "".
        at: The value it failed at; None where an input is omitted, or no value is concerned.
        expected: What was expected, for a reader.
        found: What was found.
    """

    part: DFPattern
    place: str
    at: Value | None
    expected: str
    found: str

    @property
    def pattern(self) -> str:
        """The part as text, with ``…`` for its own parts."""
        return headline(self.part)


class TraceLine(NamedTuple):
    """One part of a pattern, and whether it matched.

    Attributes:
        depth: How deep it stands.
        pattern: Its text, with ``…`` for its parts.
        place: Where it is written, or "".
        status: "matched", "failed" or "not reached".
        found: What it matched, or what was found instead.
    """

    depth: int
    pattern: str
    place: str
    status: Literal["matched", "failed", "not reached"]
    found: str


@keys("root fits given_up matched of failed=mismatch tree=lines")
class MatchTrace(NamedTuple):
    """The attempt that got furthest.

    Attributes:
        root: The node.
        matched: How many node patterns fitted.
        of: How many node patterns there are.
        mismatch: Where it ended; None if it fits, or if the search was given up.
        lines: The pattern as a tree.
        fits: Whether the pattern fits.
        given_up: Whether the search took too many steps.
        values: For each of *lines* the value that it matched, or that was found instead.
        rule: The rule whose pattern it is.
    """

    rule: Rule
    root: Node
    matched: int
    of: int
    mismatch: Mismatch | None
    lines: tuple[TraceLine, ...]
    fits: bool = False
    given_up: bool = False
    values: tuple[Value | None, ...] = ()


class Tracer:
    """Says how far a rule's pattern gets at a node.

    Args:
        rule: The rule whose pattern it is.
        budget: Most steps to spend on one node.
    """

    def __init__(self, rule: Rule, *, budget: int = TRACE_BUDGET) -> None:
        self.rule = rule
        defaults = rule.keeps_defaults
        self.matcher = Matcher(rule.pattern, budget=budget, prune=False, keeps_defaults=defaults)
        self.parts = visible_parts(rule.pattern)
        self.chains = [part for part in self.parts if isinstance(part, RepeatPattern)]

    def trace(self, root: Node) -> MatchTrace:
        """Match at *root*, and report the attempt that got furthest."""
        return self._report(self._forgiving(self._attempt(root)))

    def nearest(self, roots: Iterable[Node]) -> MatchTrace | None:
        """Report the attempt that matched most nodes where the pattern does not fit.

        The first of several; None if the pattern fits at all of *roots*.
        """
        missed = [attempt for attempt in map(self._attempt, roots) if not attempt.fits]
        missed.sort(key=lambda attempt: -attempt.matched)
        best = max(map(self._forgiving, missed[:_MOST_FORGIVEN]), key=_matched, default=None)
        return None if best is None else self._report(best)

    def _attempt(self, root: Node) -> _Attempt:
        attempt = _Attempt(root, {id(chain.step) for chain in self.chains})
        try:
            for state in self.matcher.solutions(root, on_failure=attempt.offer):
                if root in state.claimed:
                    attempt.fits, attempt.matched = True, len(state.claimed)
                    attempt.slots = list(state.slots)
                    break
        except StepBudgetExceededError:
            attempt.given_up = True
        return attempt

    def _forgiving(self, attempt: _Attempt) -> _Attempt:
        """Look for the largest part that fits but for one failure, which is the reason then."""
        if not attempt.fits:
            with suppress(StepBudgetExceededError):
                for state in self.matcher.solutions(attempt.root, on_failure=attempt.forgive):
                    if state.forgiven is not None:
                        attempt.keep(state.forgiven, state, is_whole=True)
        return attempt

    def _report(self, attempt: _Attempt) -> MatchTrace:
        root, mismatch, shown = attempt.root, None, None
        if not attempt.fits and attempt.step is not None:
            part, expected = attempt.step.pattern, attempt.expected
            chain = self._chain_of(part)
            if chain is not None:
                number = self._links(chain, attempt.failed_with) + 1
                least = f" of {chain.least} or more" if number <= chain.least else ""
                word = "as" if part is chain.link else "in"
                expected = f"{expected}, {word} {chain.unit} {number} of a chain{least}"
                part = chain if part is chain.link else part  # a link has no text of its own
            shown = chain or part
            place = self.rule.place(part)
            mismatch = Mismatch(part, place, attempt.value, expected, attempt.found)
        elif not attempt.fits and not attempt.given_up:
            pattern = shown = self.rule.pattern
            expected = f"a node that is {headline(pattern)}"
            there = f"{root.qualified_op} {root.label!r}, which the pattern does not bind"
            mismatch = Mismatch(pattern, self.rule.place(pattern), None, expected, there)
        tree = self._lines(attempt.slots, mismatch, shown)
        lines, values = tuple(line for line, _ in tree), tuple(value for _, value in tree)
        fits, given_up = attempt.fits, attempt.given_up and not attempt.fits
        matched, of = attempt.matched, max(attempt.matched, self._size(attempt.slots))
        return MatchTrace(self.rule, root, matched, of, mismatch, lines, fits, given_up, values)

    def _size(self, slots: list[object]) -> int:
        """Count the nodes of the pattern, of a chain those that matched, or that have to."""
        size = sum(isinstance(part, CallPattern) for part in self.parts)
        for chain in self.chains:
            nodes = sum(isinstance(part, CallPattern) for part in visible_parts(chain.step))
            size += nodes * max(chain.least, self._links(chain, slots))
        return size

    def _chain_of(self, part: DFPattern) -> RepeatPattern | None:
        """Return the chain of which *part* is a node, or stands in one."""
        for chain in self.chains:
            if any(inner is part for inner in all_parts(chain.step)):
                return chain
        return None

    def _links(self, chain: RepeatPattern, slots: list[object]) -> int:
        """Return how many steps of a chain have matched."""
        step = self.matcher.program.steps[id(chain)]
        step = step.inner if isinstance(step, SharedStep) else step
        return step.links_in(slots) if isinstance(step, RepeatStep) else 0

    def _lines(
        self, slots: list[object], mismatch: Mismatch | None, failed: DFPattern | None
    ) -> list[tuple[TraceLine, Value | None]]:
        around = set() if failed is None else _around(failed, self.rule.pattern)
        lines: list[tuple[TraceLine, Value | None]] = []
        seen: set[int] = set()
        pending: list[tuple[DFPattern, int]] = [(self.rule.pattern, 0)]
        while pending:
            part, depth = pending.pop()
            if id(part) in seen or (isinstance(part, WildcardPattern) and not part.name):
                continue
            seen.add(id(part))
            status: Literal["matched", "failed", "not reached"] = "not reached"
            words, value = "", None
            step = self.matcher.program.steps[id(part)]
            if mismatch is not None and part is failed:
                status, words = "failed", f"expected {mismatch.expected}, found {mismatch.found}"
                value = mismatch.at
            elif slots and id(part) not in around and (bound := step.bound_values_in(slots)):
                status, words, value = "matched", describe(bound[0]), bound[0]
            elif isinstance(part, RepeatPattern) and (links := self._links(part, slots)):
                status, words = "matched", f"a chain of {counted(links, part.unit)}"
            place = self.rule.place(part) if part.place is not None else ""
            lines.append((TraceLine(depth, headline(part), place, status, words), value))
            hidden = {id(inner) for inner in hidden_parts(part)}
            pending += [(p, depth + 1) for p in reversed(part.parts) if id(p) not in hidden]
        return lines


def _around(part: DFPattern, pattern: DFPattern) -> set[int]:
    """Return the parts around *part* up to the next node; they match only if it does."""
    around = {id(part)}
    for other in all_parts(pattern):
        if not isinstance(other, CallPattern) and any(id(inner) in around for inner in other.parts):
            around.add(id(other))
    return around - {id(part)}


class _Attempt:
    """How far the pattern got at a node: to its end, or what is wrong with the largest part.

    Args:
        root: The node.
        steps: The ``id`` of each pattern that is a step of a chain.
    """

    def __init__(self, root: Node, steps: Container[int]) -> None:
        self.root = root
        self.steps = steps
        self.fits = self.given_up = False
        self.score = (-1, False, 0)
        self.matched = 0
        self.step: Step | None = None
        self.value: Value | None = None
        self.expected = self.found = ""
        self.slots: list[object] = []
        self.failed_with: list[object] = []

    def offer(self, step: Step, value: Value | None, state: State, _rest: Goals) -> None:
        """Keep the failure of *step* if no attempt got further; inside ``~`` steps should fail."""
        if not state.negations:
            self.keep(StepFailure(step, value, state.words, list(state.slots)), state)

    def forgive(self, step: Step, value: Value | None, state: State, rest: Goals) -> None:
        """Let the search go on without the first step that fails; the second one ends it."""
        if state.forgiven is not None:
            if not state.negations:
                self.keep(state.forgiven, state)
        elif not state.negations and isinstance(step, _FORGIVEN):
            failure = StepFailure(step, value, state.words, list(state.slots))
            go_on = RestStep(step.pattern, partial(_go_on, failure))
            state.choices.append(((go_on, None, rest), len(state.trail)))

    def keep(self, failure: StepFailure, state: State, *, is_whole: bool = False) -> None:
        """Keep *failure* if no attempt got further than *state*: first of all, in nodes.

        Where a chain may end, what it ends in says more than one more node of it. If all else of
        the pattern fits, that says more than a second failure.
        """
        score = len(state.claimed), is_whole, len(state.trail)
        was_link = self.step is not None and id(self.step.pattern) in self.steps
        is_end = was_link and failure.value is self.value and failure.step is not self.step
        if is_end or score > self.score:
            self.score, self.matched = score, len(state.claimed)
            self.step, self.value = failure.step, failure.value
            self.expected, self.found = failure.words or ("any value", describe(failure.value))
            self.slots, self.failed_with = list(state.slots), failure.slots


_FORGIVEN = (CallStep, OutputStep, ValueStep, AbsentStep, AnyStep, TypeStep)
"""The steps without which a search can go on: what is left to do stands beside them."""


def _go_on(failure: StepFailure, state: State, _value: Value | None, rest: Goals) -> Goals:
    state.change("forgiven", failure)
    return rest


def _matched(attempt: _Attempt) -> int:
    return attempt.matched


def headline(part: DFPattern) -> str:
    """Return the text of *part* with ``…`` for what is inside."""
    if isinstance(part, CallPattern) and not part.bodies:
        text = part.op.spelled(lambda _: "…")
    else:
        text = write_part(part, lambda _: "…")
    line = own_line(part)
    return f"{line} = {text}" if line else text


# What each rule of a run found, and what it says of each node.


_MOST_NAMED = 4
NEAREST_BUDGET = 20_000
_MOST_FORGIVEN = 64
"""At how many nodes, of those that match most, one failure is forgiven to see what else fits."""

MOST_TRACED = 1000
"""Most nodes to look at for the nearest miss of one rule."""


@keys("pattern place nodes example read_by")
class PartFit(NamedTuple):
    """A part of a pattern that fits where the whole pattern does not.

    Attributes:
        part: The part.
        place: Where it is written, or "".
        nodes: At how many nodes it fits.
        example: The first of them.
        readers: What reads its value there: operators, most frequent first.
    """

    part: DFPattern
    place: str
    nodes: int
    example: Node
    readers: tuple[tuple[str, int], ...]

    @property
    def pattern(self) -> str:
        """The part as text, with ``…`` for its own parts."""
        return headline(self.part)

    @property
    def read_by(self) -> Mapping[str, int]:
        """How often which operators read its value there, the most frequent first."""
        return dict(self.readers)


@keys(
    "rule origin=rule.origin candidates matched taken refused examples "
    "missing_operators=missing opset_holds nearest part",
    columns="rule candidates:count matched:count taken:count refused=stages:number",
)
@dataclass(frozen=True)
class RuleExplanation:
    """What one rule found, and what it did not.

    Attributes:
        rule: The rule.
        candidates: How many nodes have an operator that the pattern's root may have.
        matched: How many matches were taken.
        taken: How many candidates lie in matches of other rules, or inside its own.
        refused: How many matches were refused, by stage.
        examples: The first refusal of each stage.
        missing: Operators that every match needs and the model does not have.
        nearest: The furthest attempt among the candidates that do not fit, or None.
        part: The largest part that fits somewhere, if the model has no candidate.
        opset_holds: Whether the rule holds for the model's opset.
    """

    rule: Rule
    candidates: int
    matched: int
    taken: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    examples: tuple[Rejection, ...] = ()
    missing: tuple[str, ...] = ()
    nearest: MatchTrace | None = None
    part: PartFit | None = None
    opset_holds: bool = True

    @property
    def stages(self) -> str:
        """How many matches were refused by which stage, in words."""
        return ", ".join(f"{count} by {stage}" for stage, count in self.refused.items()) or "0"


@keys("rule node scope=node.scope verdict match=match.place refusal=rejection trace")
class NodeExplanation(NamedTuple):
    """What one rule says of one node as the root of a match.

    Attributes:
        rule: The rule.
        node: The node.
        verdict: "matched" (it is the root of a match), "inside" (it is another node of one),
            "taken" (another rule's match has it), "refused", "mismatch", or "skipped" (it lies in
            a function that a partition wrote, or the rule does not hold for its opset).
        match: The match that has the node.
        rejection: Why a match was refused.
        trace: How far the pattern got.
    """

    rule: Rule
    node: Node
    verdict: Standing
    match: Match | None = None
    rejection: Rejection | None = None
    trace: MatchTrace | None = None


class Explainer:
    """Answers questions about what the rules of a run found.

    Args:
        graphs: Where they looked.
        matches: The matches taken.
        refused: The matches that were refused.
    """

    def __init__(
        self, graphs: Iterable[Graph], matches: Sequence[Match], refused: Sequence[Rejection]
    ) -> None:
        self.indexes = OpIndexes(graphs)
        self.matches = matches
        self.refused = refused
        self.owners = {node: match for match in matches for node in match.nodes}
        self._matched = Counter(id(match.rule) for match in matches)
        self._refused_by: dict[int, list[Rejection]] = {}
        for item in refused:
            self._refused_by.setdefault(id(item.rule), []).append(item)

    def rule(self, rule: Rule, most: int = MOST_TRACED) -> RuleExplanation:
        """Explain what *rule* found; its nearest miss is sought at *most* nodes."""
        matched = self._matched[id(rule)]
        rejections = self._refused_by.get(id(rule), [])
        first: dict[str, Rejection] = {}
        for item in rejections:
            first.setdefault(item.stage, item)
        heads = rule.demand.heads
        roots = [node for index in self.indexes.having(heads) for node in index.of(heads)]
        explanation = RuleExplanation(
            rule,
            candidates=len(roots),
            matched=matched,
            taken=sum(root in self.owners for root in roots) - matched,
            refused=dict(Counter(item.stage for item in rejections)),
            examples=tuple(first.values()),
            missing=self._missing(rule),
            opset_holds=any(rule.holds_for(index.graph) for index in self.indexes.all),
        )
        if not roots:
            return replace(explanation, part=self._largest_part(rule))
        settled = {item.root for item in rejections}
        left = [root for root in roots if root not in settled and root not in self.owners]
        tracer = Tracer(rule, budget=NEAREST_BUDGET)
        return replace(explanation, nearest=tracer.nearest(left[:most]))

    def node(self, rule: Rule, node: Node) -> NodeExplanation:
        """Explain whether *rule* matches at *node*."""
        tried = any(node.graph is index.graph for index in self.indexes.all)
        if not tried or not rule.holds_for(node.graph):
            return NodeExplanation(rule, node, "skipped")
        owner = self.owners.get(node)
        trace = Tracer(rule).trace(node)
        if owner is not None and owner.rule is rule:
            verdict: Standing = "matched" if owner.root is node else "inside"
            return NodeExplanation(rule, node, verdict, owner, trace=trace)
        for item in self.refused:
            if item.rule is rule and item.root is node:
                return NodeExplanation(rule, node, "refused", rejection=item, trace=trace)
        if owner is not None and trace.fits:
            return NodeExplanation(rule, node, "taken", owner, trace=trace)
        return NodeExplanation(rule, node, "mismatch", owner, trace=trace)

    def _missing(self, rule: Rule) -> tuple[str, ...]:
        absent = [need for need in rule.demand.required if self.indexes.lacks(need)]
        ops = [need for need in absent if isinstance(need, frozenset)]
        if ops:
            least = [need for need in ops if not any(other < need for other in ops)]
            return tuple(sorted(map(_named, least)))
        edges = (need for need in absent if not isinstance(need, frozenset))
        return tuple(sorted(f"{_named(b)} that reads a {_named(a)}" for a, b in edges))

    def _largest_part(self, rule: Rule) -> PartFit | None:
        for part in reversed(all_parts(rule.pattern)[:-1]):
            if not isinstance(part, CallPattern):
                continue
            fits = self._fits(Matcher(part, keeps_defaults=rule.keeps_defaults))
            if fits:
                readers = Counter(
                    user.qualified_op
                    for node in fits
                    for output in node.outputs
                    if output is not None
                    for user in users(output)
                )
                place = rule.place(part)
                return PartFit(part, place, len(fits), fits[0], tuple(readers.most_common(3)))
        return None

    def _fits(self, matcher: Matcher) -> list[Node]:
        roots = []
        demand = matcher.program.demand
        for index in self.indexes.within(demand):
            for node in index.candidates(demand):
                try:
                    fits = any(node in state.claimed for state in matcher.solutions(node))
                except StepBudgetExceededError:
                    fits = False
                if fits:
                    roots.append(node)
        return roots


def _named(ops: Ops) -> str:
    """Write a set of operators: ``Add or Sum``."""
    names = sorted(f"{domain}.{op_type}" if domain else op_type for domain, op_type in ops)
    shown = names if len(names) <= _MOST_NAMED else [*names[:_MOST_NAMED], "another of its class"]
    return " or ".join(shown)


def describe_part(fit: PartFit) -> str:
    """Say where a part fits, and what reads it there."""
    readers = ", ".join(f"{count} {op}" for op, count in fit.readers) or "nothing"
    times = "1 node" if fit.nodes == 1 else f"{fit.nodes} nodes"
    return f"{headline(fit.part)} fits at {times}, such as {fit.example.label!r}; read by {readers}"


def why_not(rule: RewriteRule, node: Node, rejection: Rejection | None) -> str:
    """Say why *rule* was not applied at *node*."""
    if rejection is not None:
        return f"refused by {rejection.stage}: {rejection.reason}"
    if rule.is_nodewise:
        is_dead = whole_node(rule, node) is None
        return "nobody reads what it makes" if is_dead else "the rule's function leaves it"
    trace = Tracer(rule).trace(node)
    if trace.mismatch is not None:
        return f"the pattern expects {trace.mismatch.expected}, there is {trace.mismatch.found}"
    return "the rule's function leaves it" if trace.fits else "the pattern does not match"
