"""Learn rules that replace from a model and from what somebody made of it.

Places of one kind, with the same operators wired in the same way, give one rule (`describing`),
from the most frequent kind on, until nothing new is learned. Each rule is tried on graphs made up
for it, and narrowed by conditions that hold at all places; graphs that had no say in that have the
last word. What all rules make of the first model is compared with the second one by structure, and
with the first one in onnxruntime.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from dplcli.analysis.numbering import same_structure
from dplcli.analysis.pairing import find_differences
from dplcli.catalog.catalog import write_catalog
from dplcli.catalog.sketch import NoInstanceError
from dplcli.dpl.conditions import Condition
from dplcli.dpl.pattern import CallPattern, ConstantPattern
from dplcli.dpl.rule import Example
from dplcli.dpl.text import all_parts, bound_names, captures_of
from dplcli.errors import DplError, counted
from dplcli.files import temporary_folder
from dplcli.ir.model import RULE_KEY
from dplcli.onnx_io import OnnxSchemas, load_model, paused_gc, staged
from dplcli.onnx_io.scratch import model_from_text, text_of_model
from dplcli.outcomes import LearnedRewrite, LeftPlaces, RewritesOutcome, Trial
from dplcli.passes import learn
from dplcli.passes.learn import PatternNames, node_word
from dplcli.passes.rewrite import RewriteLimitError, rewrite
from dplcli.passes.rewriter import claim
from dplcli.passes.select import select_matches
from dplcli.pipeline.changes import (
    ChangedPlace,
    NoRuleError,
    Operand,
    attributes_of,
    read_place,
)
from dplcli.pipeline.describing import RuleWriter, is_near, names_at, small_data
from dplcli.pipeline.proving import (
    DEFAULT_TRIALS,
    Trier,
    exemption_of,
    unknown_operator,
)
from dplcli.pipeline.writing import check_result, say_nothing
from dplcli.settings import LearnSettings
from dplcli.verify import Check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.analysis.pairing import Difference
    from dplcli.dpl.replacement import RewriteRule
    from dplcli.dpl.rule import Opsets
    from dplcli.ir import Model
    from dplcli.outcomes import Delivery
    from dplcli.passes.rewrite import Rewriting
    from dplcli.pipeline.writing import Progress


DEFAULT_BUDGET: int = LearnSettings.options["budget"].default

_MOST_AROUND = 1
"""How many nodes above the old ones are looked at, if a rule is wrong without them."""

_MOST_FOR_A_KIND = 16
"""How often rules for places of one kind are tried, all that are narrowed on the way included."""

_MANY = 5
"""After so many graphs on which a rule is wrong it gets all conditions, not the fewest."""

_MOST_NAMED = 3
"""Most nodes that a text names."""

_LONGEST_EXAMPLE = 1500
"""Longer examples, in characters, show nothing to a reader."""

_MOST_ROUNDS = 4
"""How often what is left is looked at again, with the rules so far applied."""

_MOST_APART = 3
"""How many rules are made of places of one kind that differ in numbers or attributes."""

_FREE_APPLICATIONS = 20
"""A rule may be applied so often, and twice for each match in the first model, to try it."""

_FEW_TRIALS = 60
"""On so many graphs a rule is tried first: most that are wrong show it there."""

_FEWEST = 10
"""A rule that was right on fewer graphs is not proved."""

_FRESH_SETS = 2
"""On so many sets of graphs a rule is tried last, of which nothing was learned before."""


class _Refusal(NamedTuple):
    """Why there is no rule for places of a kind, and the graph on which one was wrong."""

    reason: str
    counterexample: str = ""


_IDLE = _Refusal("the rule learned from it does not apply")


_Applied: TypeAlias = "tuple[Model, Rewriting, list[Difference]]"
"""The first model rewritten, what was done, and where it differs from the second one."""


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
        sets: How many sets of graphs were drawn to have the last word.
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
    sets: int = 0
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
        for _ in range(_MOST_ROUNDS):
            learned = self._learn_from(filter(self.is_left, differences))
            if not learned:
                break
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
            raise NoRuleError(f"the rule learned from it does not apply{why}")
        return rule

    def _learn_from(self, differences: Iterable[Difference]) -> list[LearnedRewrite]:
        groups: dict[tuple[object, ...], list[ChangedPlace]] = defaultdict(list)
        for difference in differences:
            if any(RULE_KEY in node.remarks.metadata for node in difference.removed):
                continue
            try:
                place = read_place(difference)
            except NoRuleError:
                continue
            if place.kind not in self.refusals:
                groups[place.kind].append(place)
        learned = []
        kinds = sorted(groups.items(), key=lambda item: -len(item[1]))
        for number, (kind, places) in enumerate(kinds, start=1):
            shown = learn.list_nodes(places[0].nodes, _MOST_NAMED)
            where = f"{counted(len(places), 'place')} like {shown}"
            self.say(f"learning from {where} ({number} of {len(kinds)} kinds)")
            self.refusals[kind] = _IDLE
            try:
                candidates = [self._learn_kind(places)]
            except NoRuleError as error:
                self.refusals[kind] = _Refusal(str(error), error.counterexample)
                candidates = [*self._learn_apart(kind, places)]
            for item in candidates:
                self.names.add(item.rule.name)
                if self.takes_unproved or item.trial.verdict == "passed":
                    learned.append(item)
                else:
                    self.unproved.append(item)
                    reason = f"the rule learned from it is not proved: {item.trial.reason}"
                    self.refusals[kind] = _Refusal(reason)
        return learned

    def _learn_apart(
        self, kind: tuple[object, ...], places: Sequence[ChangedPlace]
    ) -> Iterator[LearnedRewrite]:
        """Learn a rule for each of the largest groups of places that agree in their numbers.

        Not if they differ at each of many places: a rule would only say the place again.
        """
        groups: dict[str, list[ChangedPlace]] = defaultdict(list)
        for place in places:
            attributes = [attributes_of(node) for node in (*place.nodes, *place.made)]
            small = [(slot, small_data(tensor)) for slot, tensor in place.constants.items()]
            groups[repr((sorted(place.numbers.items()), attributes, small))].append(place)
        parts = sorted(groups.values(), key=len, reverse=True)
        is_each = len(parts) == len(places) > _MOST_APART
        why = f"only the {_MOST_APART} most frequent of {len(parts)} variants were tried"
        why = f"each of the {len(places)} places has numbers of its own" if is_each else why
        if len(parts) > _MOST_APART:
            refusal = self.refusals[kind]
            self.refusals[kind] = refusal._replace(reason=f"{refusal.reason}; {why}")
        for part in [] if is_each or len(parts) == 1 else parts[:_MOST_APART]:
            with suppress(NoRuleError):
                yield self._learn_kind(part)

    def _learn_kind(self, places: Sequence[ChangedPlace]) -> LearnedRewrite:
        """Learn one rule: the most general one that is not refuted.

        What lies above the old nodes may be what makes it right: Relu(x) is x if x is a Relu.

        Raises:
            NoRuleError: There is none.
        """
        if self.is_spent:
            raise NoRuleError(self._spent)
        self.limit = min(self.budget, self.tried + _MOST_FOR_A_KIND)
        wrong: list[Trial] = []
        try:
            for rule, wider in self._candidates(places):
                learned = self._proved(self._spared(rule, wider), wider)
                if learned.trial.verdict != "failed":
                    return learned
                wrong.append(learned.trial)
                if self.tried >= self.limit:
                    break
        except NoRuleError:
            if not wrong:
                raise
        reason = f"the rule learned from it is wrong: {wrong[0].reason}"
        raise NoRuleError(reason, wrong[0].counterexample)

    @property
    def _spent(self) -> str:
        return f"the budget of {counted(self.budget, 'trial')} was spent"

    def _spared(self, rule: RewriteRule, places: Sequence[ChangedPlace]) -> RewriteRule:
        """Add conditions that hold at all places, and not where the second model is as before."""
        beyond = [
            match
            for match in select_matches(self.original, [rule]).matches
            if not any((False, value.name) in self.changed for value in match.outputs)
        ]
        holding = _holding(rule, places) if beyond else []
        conditions = {texts: _with_conditions(rule, [texts]).where for texts in holding}
        refused = [
            {
                texts
                for texts, where in conditions.items()
                if any(condition.unmet_by(match.bound) is not None for condition in where)
            }
            for match in beyond
        ]
        return _with_conditions(rule, _cover(list(filter(None, refused)), holding))

    def _candidates(
        self, places: Sequence[ChangedPlace]
    ) -> Iterator[tuple[RewriteRule, Sequence[ChangedPlace]]]:
        """Yield rules, the most general one first, and the places that each is learned from.

        Raises:
            NoRuleError: There is none.
        """
        shown = learn.list_nodes(places[0].nodes, _MOST_NAMED)
        doc = f"Learned from {counted(len(places), 'place')}, one at {shown}."
        for around in range(_MOST_AROUND + 1):
            wider = [read_place(one.difference, around) for one in places] if around else places
            if len({place.kind for place in wider}) > 1:
                return
            name = claim(self.name or _word(wider[0]), {*self.names})
            reasons = []
            seen: set[str] = set()
            writer: RuleWriter | None = None
            for general, carries in ((True, True), (False, True), (False, False)):
                if not carries and not (writer and writer.carried):
                    break  # it would be the same rule
                writer = RuleWriter(wider, self.schemas, general=general, carries=carries)
                try:
                    rule = self._checked(writer.rule(name))
                except NoRuleError as error:
                    reasons.append(error)
                    continue
                text = f"{rule.pattern!r}{rule.becomes}"
                if text not in seen:
                    yield replace(rule, doc=doc), wider
                seen.add(text)
            if len(reasons) > 1:
                raise reasons[-1]

    def _proved(self, rule: RewriteRule, places: Sequence[ChangedPlace]) -> LearnedRewrite:
        """Try a rule; add conditions that hold at all places as long as a graph shows it wrong.

        They are the likeliest that refuse those graphs. Graphs that had no say in them have the
        last word.
        """
        general = _holding(rule, places)
        holding = [*_holding(rule, places, is_sized=True), *general]
        refused: list[set[_Texts]] = []
        before: list[_Texts] = []
        chosen: list[_Texts] = []
        while True:
            trial = self._trial(_with_conditions(rule, chosen))
            if trial.verdict == "passed" or self.tried >= self.limit:
                break
            if trial.verdict != "failed":  # the last conditions may keep all graphs out
                refused = [each - ({*chosen} - {*before}) for each in refused]
                if chosen == before:
                    break
            elif (odd := exemption_of(trial.reason)) and odd not in rule.excepted:
                rule = replace(rule, excepted=(*rule.excepted, odd))  # it says for what it is wrong
                continue
            elif refusing := self._refusing(rule, holding, trial.counterexample):
                refused.append(refusing)
            elif (opsets := self._opsets_without(rule, trial.counterexample)) != rule.opsets:
                own = self.original.graph.opset_imports[""]  # if wrong there, opsets do not matter
                here = replace(_with_conditions(rule, chosen), opsets=(own, own))
                if self._on_graphs(here, min(self.most, _FEW_TRIALS), 0).verdict == "failed":
                    break
                rule = replace(rule, opsets=opsets)
                refused, before, chosen = [], [], []
                continue
            else:
                break
            if not all(refused):
                break
            is_last = len(refused) == _MANY
            before, chosen = chosen, general if is_last else _cover(refused, holding, general)
        return LearnedRewrite(cast("RewriteRule", trial.rule), len(places), trial)

    def _trial(self, rule: RewriteRule) -> Trial:
        """Try a rule, with an example, on few graphs; then on many of which nothing was learned."""
        self.say(f"trying {rule.name} on graphs made up for it")
        rule = replace(rule, examples=tuple(self._example(rule)))
        trial = self._on_graphs(rule, min(self.most, _FEW_TRIALS), 0)
        graphs = 0
        for _ in range(_FRESH_SETS):
            if trial.verdict != "passed":
                return trial
            self.sets += 1
            trial = self._on_graphs(rule, self.most, self.sets)
            graphs += trial.graphs
        if trial.verdict == "passed" and graphs < min(self.most, _FEWEST):
            reason = f"only {counted(graphs, 'graph')} could be made up for it"
            return replace(trial, verdict="not tried", reason=reason, graphs=graphs)
        return replace(trial, graphs=graphs)

    def _on_graphs(self, rule: RewriteRule, most: int, seed: int) -> Trial:
        """Try a rule on its example and a set of graphs, if that is within the budget."""
        trial = Trial(rule, "made up", "no graph", "not tried", self._spent)
        if self.is_spent:
            return trial
        self.tried += 1
        for trial in Trier(self.schemas, most, seed).trials(rule):
            if trial.verdict == "failed":
                shown = trial.counterexample or rule.examples[0].before
                return replace(trial, counterexample=shown)
        return trial

    @staticmethod
    def _refusing(rule: RewriteRule, holding: Sequence[_Texts], counterexample: str) -> set[_Texts]:
        """Return the conditions that keep a rule from a graph; none if there is no graph."""
        if not counterexample:
            return set()
        shown = model_from_text(counterexample, "counterexample")
        return {
            texts
            for texts in holding
            if not select_matches(shown, [_with_conditions(rule, [texts])]).matches
        }

    def _opsets_without(self, rule: RewriteRule, counterexample: str) -> Opsets:
        """Leave out the opset of a counterexample, and those beyond, if the model is of another."""
        here, (first, last) = self.original.graph.opset_imports.get("", 0), rule.opsets
        if not counterexample or not here:
            return rule.opsets
        wrong = model_from_text(counterexample, "counterexample").graph.opset_imports.get("", 0)
        if wrong < here and (first is None or first <= wrong):
            return wrong + 1, last
        return (
            (first, wrong - 1) if wrong > here and (last is None or wrong <= last) else rule.opsets
        )

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
    name = learn.rule_name(old)
    return f"{name}_to_{learn.rule_name(new)}" if new else f"drop_{name}"


def _names_of(difference: Difference) -> Iterator[tuple[bool, str]]:
    """Yield what its nodes make, by name, and whether they are the new ones."""
    for is_new, nodes in ((False, difference.removed), (True, difference.added)):
        yield from ((is_new, v.name) for node in nodes for v in node.outputs if v is not None)


_Texts: TypeAlias = tuple[str, ...]
"""Conditions that go together."""


def _cover(
    refused: Sequence[set[_Texts]], texts: Sequence[_Texts], preferred: Sequence[_Texts] = ()
) -> list[_Texts]:
    """Choose conditions that each set has one of: the likeliest, which are last.

    One that is not preferred is chosen for a set without any that is.
    """
    chosen: list[_Texts] = []
    for item in refused:
        if item.isdisjoint(chosen):
            chosen.append(max(item & {*preferred} or item, key=texts.index))
    return chosen


def _with_conditions(rule: RewriteRule, chosen: Iterable[_Texts]) -> RewriteRule:
    captures, there = captures_of(rule.pattern), {condition.text for condition in rule.where}
    fresh = [text for text in dict.fromkeys(chain(*chosen)) if text not in there]
    return replace(rule, where=(*rule.where, *(Condition(text, captures) for text in fresh)))


def _holding(
    rule: RewriteRule, places: Sequence[ChangedPlace], *, is_sized: bool = False
) -> list[_Texts]:
    """Return the conditions that hold at all places: those on single sizes, or all others."""
    every = (_sizes if is_sized else _conditions)(rule, places[0])
    texts = [(text,) if isinstance(text, str) else text for text in every]
    return [each for each in texts if all(_holds(rule, text, places) for text in each)]


def _conditions(rule: RewriteRule, place: ChangedPlace) -> Iterator[str | _Texts]:
    """Yield what could be demanded of the values that a rule binds; the likely ones are last."""
    bound = _bound_at(rule, place)
    nodes, leaves, numbers = (
        [name for name, operand in bound.items() if operand[0] == kind]
        for kind in ("node", "leaf", "number")
    )
    constants = [leaf for leaf in leaves if f"const({leaf})" in repr(rule.pattern)] + numbers
    types = {name: place.value(bound[name]).known_type() for name in [*leaves, *numbers]}
    ranks = {
        name: len(known.shape)
        for name, known in types.items()
        if known is not None and known.shape is not None
    }
    vectors = [leaf for leaf in leaves if ranks.get(leaf) == 1]
    yield from (f"{leaf}.is_const" for leaf in leaves if leaf not in constants)
    for leaf in vectors:
        for other in leaves:
            if other != leaf:
                yield f"{leaf}.rank == 1", f"{leaf}.shape[0] == {other}.shape[-1]"
    yield from (f"same_shape({one}, {other})" for one, other in combinations(leaves, 2))
    for name, known in types.items():
        if known is not None and known.dtype is not None:
            yield f'{name}.dtype == "{known.dtype}"'
        if name in ranks and name not in constants:
            yield f"{name}.rank == {ranks[name]}"
    for root in (name for name in nodes if bound[name] in dict(place.outputs)):
        yield from (f"{leaf}.dtype == {root}.dtype" for leaf in leaves)
        yield from (f"same_shape({leaf}, {root})" for leaf in leaves)
        yield from (f"shaped_like({root}, {other})" for other in [*nodes, *leaves] if other != root)
    yield from (f"{name}.rank == {ranks[name]}" for name in constants if name in ranks)


def _sizes(rule: RewriteRule, place: ChangedPlace) -> Iterator[_Texts]:
    """Yield the sizes of the values that a rule binds."""
    for name, operand in _bound_at(rule, place).items():
        known = place.value(operand).known_type() if operand[0] == "leaf" else None
        shape = (known and known.shape) or ()
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                yield f"{name}.rank == {len(shape)}", f"{name}.shape[{axis}] == {size}"


def _holds(rule: RewriteRule, text: str, places: Sequence[ChangedPlace]) -> bool:
    condition = Condition(text, captures_of(rule.pattern))
    return all(
        condition.unmet_by({n: p.value(o) for n, o in _bound_at(rule, p).items()}) is None
        for p in places
    )


def _bound_at(rule: RewriteRule, place: ChangedPlace) -> dict[str, Operand]:
    """Return what each name of a learned rule stands for: names are given in the same order."""
    nodes, leaves = names_at(place, PatternNames(()))
    operands: dict[str, Operand] = {name: ("node", n, 0) for n, name in enumerate(nodes)}
    operands |= {name: ("leaf", n) for n, name in enumerate(leaves)}
    for part in all_parts(rule.pattern):
        if isinstance(part, CallPattern) and part.name in nodes:
            for slot, arg in enumerate(part.args):
                if isinstance(arg, ConstantPattern) and arg.name not in operands:
                    operands[arg.name] = ("number", nodes.index(part.name), slot)
    bound = bound_names(rule.pattern)
    return {name: operand for name, operand in operands.items() if name in bound}


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
        return ", ".join([*texts[:5], *(["…"] if len(texts) > 5 else [])])  # noqa: PLR2004

    return f"{said(old) or 'nothing'} -> {said(new) or 'nothing'}"


def _left(
    difference: Difference, refusals: Mapping[tuple[object, ...], _Refusal]
) -> tuple[str, str]:
    """Return what is left and why, and the graph on which the rule learned from it is wrong."""
    try:
        reason, counterexample = refusals.get(read_place(difference).kind, _IDLE)
    except NoRuleError as error:
        reason, counterexample = str(error), ""
    return f"{_what(difference)}: {reason}", counterexample
