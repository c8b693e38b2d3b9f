"""Learn rules that replace from a model and from what somebody made of it.

Places of one kind, with the same operators wired in the same way, give one rule
(`passes.learn_rewrite`), from the most frequent kind on, until nothing new is learned. Each rule is
tried on graphs made up for it, and narrowed by conditions that hold at all places; graphs that had
no say in that have the last word. What all rules make of the first model is compared with the
second one by structure, and with the first one in onnxruntime.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, permutations
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from dplcli.analysis.numbering import same_structure
from dplcli.analysis.pairing import find_differences
from dplcli.catalog.catalog import write_catalog
from dplcli.catalog.sketch import NoInstanceError
from dplcli.errors import DplError, counted
from dplcli.files import temporary_folder
from dplcli.ir.model import RULE_KEY
from dplcli.language.conditions import Condition
from dplcli.language.foldings import is_near
from dplcli.language.rule import Example
from dplcli.language.text import captures_of
from dplcli.onnx_io import OnnxSchemas, load_model, paused_gc, staged
from dplcli.onnx_io.scratch import model_from_text, text_of_model
from dplcli.outcomes.rules import LearnedRewrite, LeftPlaces, RewritesOutcome, Trial
from dplcli.passes.learn_rewrite import ChangedPlace, RuleWriter, numbers_of
from dplcli.passes.pattern_writer import NoRuleError, list_nodes, node_word, rule_name
from dplcli.passes.rewrite import RewriteLimitError, rewrite
from dplcli.passes.rewriter import claim
from dplcli.passes.select import select_matches
from dplcli.pipeline.proving import DEFAULT_TRIALS, Trier, exemption_of, unknown_operator
from dplcli.pipeline.writing import check_result, say_nothing
from dplcli.settings import LearnSettings
from dplcli.verify import Check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.analysis.pairing import Difference
    from dplcli.ir import Model
    from dplcli.language.conditions import Bound
    from dplcli.language.replacement import RewriteRule
    from dplcli.language.rule import Opsets
    from dplcli.outcomes.written import Delivery
    from dplcli.passes.rewrite import Rewriting
    from dplcli.pipeline.writing import Progress


DEFAULT_BUDGET: int = LearnSettings.options["budget"].default

_MOST_FOR_A_KIND = 16
"""How often rules for places of one kind are tried, all that are narrowed on the way included."""

_LONGEST_EXAMPLE = 1500
"""Longer examples, in characters, show nothing to a reader."""

_MOST_NAMED = 3
"""Most nodes that a text names."""

_MOST_APART = 3
"""How many rules are made of places of one kind that differ in numbers or attributes."""

_FREE_APPLICATIONS = 20
"""A rule may be applied so often, and twice for each match in the first model, to try it."""

_FEWEST = 10
"""A rule that was right on fewer graphs is not proved."""

_FRESH_SETS = 2
"""On so many sets of graphs a rule is tried. They are others each time, so that nothing was learned
of those that have the last word."""

_Texts: TypeAlias = tuple[str, ...]
"""Conditions that go together."""

_Applied: TypeAlias = "tuple[Model, Rewriting, list[Difference]]"
"""The first model rewritten, what was done, and where it differs from the second one."""


class _Refusal(NamedTuple):
    """Why there is no rule for places of a kind, and the graph on which one was wrong."""

    reason: str
    counterexample: str = ""


_IDLE = _Refusal("the rule learned from it does not apply")


@dataclass(eq=False)
class _Learner:
    """Learns the rules between two models.

    Attributes:
        before: The file of the first model.
        after: The second model.
        name: What to call the rules; "" for names made of the operators.
        most: On how many graphs each rule is tried.
        budget: How often rules are tried, all in all.
        takes_unproved: Whether rules that are not proved count, too.
        say: Told what is going on.
        tried: How often rules were tried.
        limit: When those of the kind that is looked at are given up.
        refusals: Why places of a kind have no rule; _IDLE if they have one.
        changed: The values that differ at first, and whether they are new ones.
    """

    before: Path
    after: Model
    name: str
    most: int
    budget: int
    takes_unproved: bool
    say: Progress
    tried: int = 0
    limit: int = 0
    learned: list[LearnedRewrite] = field(default_factory=list)
    unproved: list[LearnedRewrite] = field(default_factory=list)
    refusals: dict[tuple[object, ...], _Refusal] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    changed: set[tuple[bool, str]] = field(default_factory=set)
    schemas: OnnxSchemas = field(default_factory=OnnxSchemas)

    @cached_property
    def original(self) -> Model:
        """The first model, as it was."""
        return load_model(self.before)

    @property
    def is_spent(self) -> bool:
        """Whether no rule is tried any more."""
        return self.tried >= self.budget

    def run(self) -> _Applied:
        """Learn, and apply what was learned: rules of more nodes first, then the frequent ones."""
        model, done, differences = self._apply()
        self.changed = {name for each in differences for name in _names_of(each)}
        while learned := self._learn_from(filter(self.is_left, differences)):
            self.learned += learned
            self.learned.sort(key=lambda item: (-item.rule.largest_match, -item.places))
            model, done, differences = self._apply()
        used = [item for item in self.learned if done.counts.get(item.rule.name)]
        if len(used) < len(self.learned):
            self.learned = used
            return self._apply()
        return model, done, differences

    def is_left(self, difference: Difference) -> bool:
        """Tell whether no rule explains a difference, rather than that a rule made it."""
        return any(name in self.changed for name in _names_of(difference))

    def _apply(self) -> _Applied:
        """Apply the rules to the first model, and compare with the second."""
        self.say("comparing the models")
        model = load_model(self.before)
        done = rewrite(model, [item.rule for item in self.learned])
        nearness = is_near if self.learned else None
        return model, done, find_differences(model, self.after, is_near=nearness)

    def _learn_from(self, differences: Iterable[Difference]) -> list[LearnedRewrite]:
        """Learn from places of kinds that were not looked at before."""
        groups: dict[tuple[object, ...], list[ChangedPlace]] = defaultdict(list)
        for difference in differences:
            if not any(RULE_KEY in node.remarks.metadata for node in difference.removed):
                with suppress(NoRuleError):
                    place = ChangedPlace(difference)
                    groups[place.kind].append(place)
        kinds = [item for item in groups.items() if item[0] not in self.refusals]
        kinds.sort(key=lambda item: -len(item[1]))
        learned = []
        for number, (kind, places) in enumerate(kinds, start=1):
            where = f"{counted(len(places), 'place')} like {_shown(places)}"
            self.say(f"learning from {where} ({number} of {len(kinds)} kinds)")
            self.refusals[kind] = _IDLE
            for item in self._learn_kind(kind, places):
                if self.takes_unproved or item.trial.verdict == "passed":
                    learned.append(item)
                else:
                    self.unproved.append(item)
                    reason = f"the rule learned from it is not proved: {item.trial.reason}"
                    self.refusals[kind] = _Refusal(reason)
        return learned

    def _learn_kind(
        self, kind: tuple[object, ...], places: Sequence[ChangedPlace]
    ) -> list[LearnedRewrite]:
        """Learn a rule, else one for each of the largest groups that agree in their numbers.

        Not if they differ at each of many places: a rule would only say the place again.
        """
        try:
            return [self._learn(places)]
        except NoRuleError as error:
            reason, counterexample = str(error), error.counterexample
        groups: dict[str, list[ChangedPlace]] = defaultdict(list)
        for place in places:
            groups[numbers_of(place)].append(place)
        parts = sorted(groups.values(), key=len, reverse=True)
        is_each = len(parts) == len(places) > _MOST_APART
        if is_each:
            reason += f"; each of the {len(places)} places has numbers of its own"
        elif len(parts) > _MOST_APART:
            reason += f"; only the {_MOST_APART} most frequent of {len(parts)} variants were tried"
        self.refusals[kind] = _Refusal(reason, counterexample)
        learned = []
        for part in [] if is_each or len(parts) == 1 else parts[:_MOST_APART]:
            with suppress(NoRuleError):
                learned.append(self._learn(part))
        return learned

    def _learn(self, places: Sequence[ChangedPlace]) -> LearnedRewrite:
        """Learn one rule: the most general one that is not refuted.

        What lies above the old nodes may be what makes it right: Relu(x) is x if x is a Relu.

        Raises:
            NoRuleError: There is none.
        """
        if self.is_spent:
            raise NoRuleError(self._spent)
        self.limit = min(self.budget, self.tried + _MOST_FOR_A_KIND)
        wrong: list[Trial] = []
        for rule, writer in self._candidates(places):
            trial = self._narrowed(rule, writer)
            if trial.verdict != "failed":
                self.names.add(rule.name)
                return LearnedRewrite(cast("RewriteRule", trial.rule), len(places), trial)
            wrong.append(trial)
            if self.tried >= self.limit:
                break
        reason = f"the rule learned from it is wrong: {wrong[0].reason}"
        raise NoRuleError(reason, wrong[0].counterexample)

    @property
    def _spent(self) -> str:
        return f"the budget of {counted(self.budget, 'trial')} was spent"

    def _candidates(
        self, places: Sequence[ChangedPlace]
    ) -> Iterator[tuple[RewriteRule, RuleWriter]]:
        """Yield the rules of places, then those of the same places and what lies above them.

        Raises:
            NoRuleError: There is none.
        """
        yield from self._rules(places)
        with suppress(NoRuleError):
            wider = [ChangedPlace(place.difference, 1) for place in places]
            if len({place.kind for place in wider}) == 1:
                yield from self._rules(wider)

    def _rules(self, places: Sequence[ChangedPlace]) -> Iterator[tuple[RewriteRule, RuleWriter]]:
        """Yield the rules of places, the most general one first, each with what wrote it.

        Raises:
            NoRuleError: There is none.
        """
        name = claim(self.name or _word(places[0]), {*self.names})
        doc = f"Learned from {counted(len(places), 'place')}, one at {_shown(places)}."
        seen: set[str] = set()
        reason = _IDLE.reason
        for general, carries in ((True, True), (False, True), (False, False)):
            try:
                writer = RuleWriter(places, self.schemas, general=general, carries=carries)
                rule = writer.rule(name)
                text = f"{rule.pattern!r}{rule.becomes}"
                if text not in seen:
                    rule = self._checked(rule)
                    seen.add(text)
                    yield replace(rule, doc=doc), writer
            except NoRuleError as error:
                reason = str(error)
        if not seen:
            raise NoRuleError(reason)

    def _checked(self, rule: RewriteRule) -> RewriteRule:
        """Apply a rule alone to the first model; if it matches what it makes, let it do so once.

        Raises:
            NoRuleError: It does not apply, or without an end.
        """
        most = _FREE_APPLICATIONS + 2 * len(select_matches(self.original, [rule]).matches)
        try:
            done = rewrite(load_model(self.before), [rule], most=most)
        except RewriteLimitError as error:
            if rule.once:
                raise NoRuleError(error.wording) from error
            return self._checked(replace(rule, once=True))
        except DplError as error:
            raise NoRuleError(error.wording) from error
        if not done.counts.get(rule.name):
            why = f": {done.refused[0].reason}" if done.refused else ""
            raise NoRuleError(f"{_IDLE.reason}{why}")
        return rule

    def _narrowed(self, rule: RewriteRule, writer: RuleWriter) -> Trial:
        """Try a rule; add conditions that hold at all places as long as a graph shows it wrong.

        They are the likeliest that refuse those graphs, and the places of the first model that the
        second one has as before. Graphs that had no say in them have the last word.
        """
        holding, sizes = _holding(rule, writer), {*_sizes(writer)}
        alike = select_matches(self.original, [rule]).matches
        left = [m for m in alike if not any((False, v.name) in self.changed for v in m.outputs)]
        spared = [each for m in left if (each := _refusing(holding, m.bound) - sizes)]
        refused = spared
        before: list[_Texts] = []
        while True:
            chosen = _cover(refused, [*holding])
            trial = self._trial(_with(rule, chosen, holding))
            if trial.verdict == "passed" or self.tried >= self.limit:
                return trial
            if trial.verdict != "failed":  # the last conditions may keep all graphs out
                fresh = {*chosen} - {*before}
                refused = [each - fresh for each in refused] if fresh else [set()]
            elif (odd := exemption_of(trial.reason)) and odd not in rule.excepted:
                rule = replace(rule, excepted=(*rule.excepted, odd))  # it says for what it is wrong
                continue
            elif not trial.counterexample:
                return trial
            else:
                shown = model_from_text(trial.counterexample, "counterexample")
                refusing = {  # of all ways to match it, operands the other way round included
                    texts
                    for texts in holding
                    if not select_matches(shown, [_with(rule, [texts], holding)]).matches
                }
                if refusing:
                    refused = [*refused, refusing]
                else:
                    opsets = self._opsets_without(rule, shown)
                    own = self.original.graph.opset_imports.get("", 0)
                    tried = cast("RewriteRule", trial.rule)
                    here = replace(tried, opsets=(own, own), examples=())
                    if opsets == rule.opsets or self._on_graphs(here).verdict == "failed":
                        return trial  # if it is wrong there, opsets do not matter
                    rule, refused, chosen = replace(rule, opsets=opsets), spared, []
            if not all(refused):
                return trial
            before = chosen

    def _trial(self, rule: RewriteRule) -> Trial:
        """Try a rule, with an example, on sets of graphs of which nothing was learned before."""
        self.say(f"trying {rule.name} on graphs made up for it")
        rule = replace(rule, examples=tuple(self._example(rule)))
        trials = [self._on_graphs(rule)]
        while trials[-1].verdict == "passed" and len(trials) < _FRESH_SETS:
            trials.append(self._on_graphs(rule))
        trial = replace(trials[-1], graphs=sum(each.graphs for each in trials))
        if trial.verdict == "passed" and trial.graphs < min(self.most, _FEWEST):
            reason = f"only {counted(trial.graphs, 'graph')} could be made up for it"
            return replace(trial, verdict="not tried", reason=reason)
        return trial

    def _on_graphs(self, rule: RewriteRule) -> Trial:
        """Try a rule on its examples and a fresh set of graphs, if that is within the budget."""
        trial = Trial(rule, "made up", "no graph", "not tried", self._spent)
        if self.is_spent:
            return trial
        self.tried += 1
        for trial in Trier(self.schemas, self.most, seed=self.tried).trials(rule):
            if trial.verdict == "failed":
                shown = trial.counterexample or rule.examples[0].before
                return replace(trial, counterexample=shown)
        return trial

    def _opsets_without(self, rule: RewriteRule, shown: Model) -> Opsets:
        """Leave out the opset of a graph, and those beyond, if the model is of another."""
        here, wrong = (m.graph.opset_imports.get("", 0) for m in (self.original, shown))
        first, last = rule.opsets
        if wrong < here and (first is None or first <= wrong):
            return wrong + 1, last
        is_after = 0 < here < wrong and (last is None or wrong <= last)
        return (first, wrong - 1) if is_after else rule.opsets

    def _example(self, rule: RewriteRule) -> Iterator[Example]:
        """Show what a rule does on a small graph; constants that it computes are not shown."""
        try:
            model = next(Trier(self.schemas).models(rule), None)
            if model is None:
                return
            before = f"{text_of_model(model)}\n"
            if len(before) > _LONGEST_EXAMPLE or not rewrite(model, [rule], most=1).rounds:
                return
            after = f"{text_of_model(model)}\n"
            is_exact = same_structure(model_from_text(after, "after"), model)
            is_short = is_exact and ".value" not in rule.becomes
            yield Example(before=before, after=after if is_short else "any")
        except (NoInstanceError, DplError):
            return


def _word(place: ChangedPlace) -> str:
    """Name the rule for places of a kind."""
    old, new = place.nodes, place.made
    if len(new) == 1 and new[0].op_type not in {node.op_type for node in old}:
        return node_word(new[0])
    return f"{rule_name(old)}_to_{rule_name(new)}" if new else f"drop_{rule_name(old)}"


def _shown(places: Sequence[ChangedPlace]) -> str:
    return list_nodes(places[0].nodes, _MOST_NAMED)


def _names_of(difference: Difference) -> Iterator[tuple[bool, str]]:
    """Yield what its nodes make, by name, and whether they are the new ones."""
    for is_new, nodes in ((False, difference.removed), (True, difference.added)):
        yield from ((is_new, v.name) for node in nodes for v in node.outputs if v is not None)


# Conditions that may make a rule right.


_Holding: TypeAlias = "dict[_Texts, tuple[Condition, ...]]"
"""Conditions that hold at all places, the likely ones last."""


def _cover(refused: Sequence[set[_Texts]], texts: Sequence[_Texts]) -> list[_Texts]:
    """Choose conditions that each set has one of: the likeliest, which are last."""
    chosen: list[_Texts] = []
    for item in refused:
        if item.isdisjoint(chosen):
            chosen.append(max(item, key=texts.index))
    return chosen


def _with(rule: RewriteRule, chosen: Iterable[_Texts], holding: _Holding) -> RewriteRule:
    every = {c.text: c for c in (*rule.where, *(c for texts in chosen for c in holding[texts]))}
    return replace(rule, where=tuple(every.values()))


def _refusing(holding: _Holding, bound: Mapping[str, Bound]) -> set[_Texts]:
    """Return the conditions that do not hold for what a match binds."""
    return {
        texts
        for texts, conditions in holding.items()
        if any(condition.unmet_by(bound) is not None for condition in conditions)
    }


def _holding(rule: RewriteRule, writer: RuleWriter) -> _Holding:
    """Return the conditions that hold at all places, those on single sizes first."""
    captures = captures_of(rule.pattern)
    every = (*_sizes(writer), *_conditions(rule, writer))
    texts = [(each,) if isinstance(each, str) else each for each in every]
    holding = {each: tuple(Condition(text, captures) for text in each) for each in texts}
    for place in writer.places:
        unmet = _refusing(holding, {n: place.value(o) for n, o in writer.bound.items()})
        holding = {each: known for each, known in holding.items() if each not in unmet}
    return holding


def _conditions(rule: RewriteRule, writer: RuleWriter) -> Iterator[str | _Texts]:
    """Yield what could be demanded of the values that a rule binds; the likely ones are last."""
    bound, place = writer.bound, writer.first
    nodes = [name for name, operand in bound.items() if operand[0] == "node"]
    leaves = [name for name, operand in bound.items() if operand[0] == "leaf"]
    types = {n: place.value(o).known_type() for n, o in bound.items() if o[0] != "node"}
    ranks = {n: len(t.shape) for n, t in types.items() if t is not None and t.shape is not None}
    text = repr(rule.pattern)
    constants = [name for name in types if name not in leaves or f"const({name})" in text]
    yield from (f"{leaf}.is_const" for leaf in leaves if leaf not in constants)
    for leaf, other in permutations(leaves, 2):
        if ranks.get(leaf) == 1:
            yield f"{leaf}.rank == 1", f"{leaf}.shape[0] == {other}.shape[-1]"
    yield from (f"same_shape({one}, {other})" for one, other in combinations(leaves, 2))
    for name, known in types.items():
        if known is not None and known.dtype is not None:
            yield f'{name}.dtype == "{known.dtype}"'
        if name in ranks and name not in constants:
            yield f"{name}.rank == {ranks[name]}"
    for root in (name for name in nodes if bound[name] in place.outputs):
        yield from (f"{leaf}.dtype == {root}.dtype" for leaf in leaves)
        yield from (f"same_shape({leaf}, {root})" for leaf in leaves)
        yield from (f"shaped_like({root}, {other})" for other in [*nodes, *leaves] if other != root)
    yield from (f"{name}.rank == {ranks[name]}" for name in constants if name in ranks)


def _sizes(writer: RuleWriter) -> Iterator[_Texts]:
    """Yield the sizes of the values that a rule binds."""
    for name, operand in writer.bound.items():
        known = writer.first.value(operand).known_type() if operand[0] == "leaf" else None
        shape = (known and known.shape) or ()
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                yield f"{name}.rank == {len(shape)}", f"{name}.shape[{axis}] == {size}"


@paused_gc()
def learn_rewrites(  # noqa: PLR0913  # all but the models by keyword
    before: Path,
    after: Path,
    *,
    name: str = "",
    trials: int = DEFAULT_TRIALS,
    budget: int = DEFAULT_BUDGET,
    unproved: bool = False,
    verify: bool = True,
    progress: Progress | None = None,
) -> RewritesOutcome:
    """Learn the rules that lead from one model to another, and verify what they make of it.

    Args:
        before: The first model.
        after: What somebody made of it.
        name: What to call the rules; "" for names made of the operators.
        trials: On how many graphs each rule is tried.
        budget: How often rules are tried, all in all.
        unproved: Whether rules that are not proved count, too.
        verify: Whether to compare the first model with what the rules make of it in onnxruntime.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        DplError: A model cannot be used.
    """
    say = progress or say_nothing
    say(f"reading {before.name} and {after.name}")
    learner = _Learner(before, load_model(after), name, trials, budget, unproved, say)
    model, done, differences = learner.run()
    of_none = [difference for difference in differences if learner.is_left(difference)]
    left = Counter(_left(each, learner.refusals) for each in of_none)
    changed = sum(item.places for item in learner.learned)
    rules = [item.rule for item in learner.learned]
    return RewritesOutcome(
        before=before.name,
        after=after.name,
        learned=tuple(learner.learned),
        unproved=tuple(learner.unproved),
        explained=min(changed, sum(done.counts.values())),
        left=tuple(LeftPlaces(what, count, shown) for (what, shown), count in left.most_common()),
        beyond=len(differences) - len(of_none),
        spent=budget if learner.is_spent else None,
        delivery=_delivery(before, model, learner.schemas, say) if rules and verify else None,
        yaml=_catalogue(learner, f"Learned from {before.name} and {after.name}."),
    )


def _catalogue(learner: _Learner, doc: str) -> str:
    """Write the rules; those that do not count are commented out."""
    every = [*learner.learned, *learner.unproved]
    comments = {
        item.rule.name: f"Not proved: {item.trial.reason}."
        for item in every
        if item.trial.verdict != "passed"
    }
    off = {item.rule.name for item in learner.unproved}
    rules = [item.rule for item in every]
    return write_catalog(rules, doc=doc, comments=comments, off=off) if rules else ""


def _delivery(
    before: Path, rewritten: Model, schemas: OnnxSchemas, say: Progress
) -> Delivery | str:
    """Compare a model with what rules made of it; return why that was impossible, if it was."""
    try:
        with temporary_folder() as folder, staged(rewritten, folder / before.name) as written:
            delivery = check_result(before, written.path, Check(), say)
    except DplError as error:
        return error.message
    known = {node.qualified_op for node in load_model(before).graph}
    alien = "" if delivery.is_sound else unknown_operator(known, rewritten, schemas)
    return alien or delivery


def _what(difference: Difference) -> str:
    both = difference.removed, difference.added
    old, new = (Counter(node.op_type for node in nodes) for nodes in both)

    def said(ops: Counter[str]) -> str:
        texts = [op if count == 1 else f"{count} {op}" for op, count in ops.items()]
        return ", ".join([*texts[:5], *(["…"] if len(texts) > 5 else [])])  # noqa: PLR2004  # so many fit a line

    return f"{said(old) or 'nothing'} -> {said(new) or 'nothing'}"


def _left(
    difference: Difference, refusals: Mapping[tuple[object, ...], _Refusal]
) -> tuple[str, str]:
    """Return what is left and why, and the graph on which the rule learned from it is wrong."""
    try:
        reason, counterexample = refusals.get(ChangedPlace(difference).kind, _IDLE)
    except NoRuleError as error:
        reason, counterexample = str(error), ""
    return f"{_what(difference)}: {reason}", counterexample
