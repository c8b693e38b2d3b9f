"""Try rules: on their own examples, and on graphs made up for their patterns.

A rewrite is tried on many graphs: plain ones, graphs drawn at random (`sampling`), and the examples
with something changed. Each is run before and after. A graph on which the two differ is made
smaller as long as they still differ, and becomes the counterexample.
"""

from __future__ import annotations

import ast
import gc
import itertools
import re
import time
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from dplcli.analysis.numbering import same_structure
from dplcli.catalog.lint import Problem
from dplcli.catalog.sketch import Instance, NoInstanceError, sketches
from dplcli.errors import DplError, InvalidModelError, VerificationError, counted, some_of
from dplcli.files import temporary_folder
from dplcli.ir.model import called_function
from dplcli.ir.operators import (
    FIRST_OPSET,
    LAST_OPSET,
    ORDERING,
    PLACE_SLOTS,
    SIZED_FROM,
    draws_random,
)
from dplcli.ir.types import Exempt, dtype_name
from dplcli.language.pattern import CallPattern, OpName, TypedPattern, all_parts
from dplcli.language.replacement import RewriteRule
from dplcli.language.rule import PatternRule
from dplcli.onnx_io import check_model, to_proto
from dplcli.onnx_io.bounded import made_by_dpl
from dplcli.onnx_io.convert import RuntimeSchemas
from dplcli.onnx_io.infer import objection_to, with_operator_defined
from dplcli.onnx_io.scratch import DEFAULT_OPSET, model_from_text, text_of_model
from dplcli.outcomes.rules import Trial
from dplcli.passes.partition import partition
from dplcli.passes.rewrite import RewriteLimitError, rewrite
from dplcli.passes.select import select_matches
from dplcli.pipeline.drawing import HALF, OF_IMAGES, DeadEndError, label_of
from dplcli.pipeline.sampling import (
    IN_BLOCKS,
    RUN_LIMIT,
    SWITCHES,
    Sampler,
    model_of,
)
from dplcli.pipeline.varying import changed_at_random, instance_of, simpler
from dplcli.pipeline.verifying import compare
from dplcli.settings import TrialSettings
from dplcli.verify import Check
from dplcli.verify.behaviours import oddities_of
from dplcli.verify.check import REFERENCE_LEVEL, InputRequest, OfRule, Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dplcli.ir import Model, Node, SchemaLibrary, Shape, TensorType
    from dplcli.language import Rejection
    from dplcli.language.rule import Example
    from dplcli.verify import VerificationResult

    AnyRule: TypeAlias = PatternRule | RewriteRule


# Trying rules: on their own examples, and on graphs made up for their patterns.


DEFAULT_TRIALS: int = TrialSettings.options["trials"].default
"""On how many graphs each rewrite is tried, unless somebody says."""

_OWN_MOST = 100
_MOST_RUNS = 6
_MOST_PLAIN = 32
"""How many graphs are drawn where one is wanted, and how many of them are run."""

_HOPELESS, _HOPELESS_AT_FIRST = 120, 600
"""After how many graphs in vain a source is given up: once the rule has applied, and before."""

_DRAWS_FOR_ONE = 10
_DARING_AFTER = 10
_ENOUGH = 60
"""On fewer graphs than these it is not asked whether all parts of a rule were tried."""

_MOST_SECONDS = 15.0
"""How much time of the processor one rule may take on the usual number of graphs. Other programs
do not count, and it is only on a very slow machine that this ends it."""


class _Made(NamedTuple):
    """A graph that was made up.

    Attributes:
        graph: The graph.
        opset: The opset it is of.
        ways: Which alternatives of the pattern it is of.
        is_varied: Whether it is an example with something changed: it may hold numbers that no
            model holds, such as a negative epsilon, which kernels refuse loudly.
    """

    graph: Instance
    opset: int
    ways: frozenset[str] = frozenset()
    is_varied: bool = False


_Source: TypeAlias = "Callable[[float, int], _Made | None]"
"""Makes a graph up for an opset, as far from the usual as the number from 0 to 1 says; None for a
dead end."""


@dataclass(frozen=True)
class Trier:
    """Tries rules.

    Attributes:
        schemas: The standard operators.
        most: On how many graphs a rewrite is tried.
        seed: Which graphs and numbers are drawn.
    """

    schemas: SchemaLibrary
    most: int = DEFAULT_TRIALS
    seed: int = 0

    def trials(self, rule: AnyRule) -> Iterator[Trial]:
        """Run the examples of *rule*, then try it on graphs made up for it."""
        shown = 0
        for number, example in enumerate(rule.examples, start=1):
            trial = Trial(rule, "example", example.origin or f"example {number}", "failed")
            try:
                trial = self._run_example(trial, example)
            except DplError as error:
                trial = replace(trial, reason=error.message)
            shown += trial.verdict == "passed" and example.after != "unchanged"
            yield trial
        if isinstance(rule, RewriteRule):
            trials = [self._proved(rule, self.most)]
        else:
            trials = self._outlined(rule) or [self._proved(rule, 1)]
        for trial in trials:
            by_example = shown and trial.verdict == "not tried"
            yield replace(trial, verdict="by example") if by_example else trial

    def _run_example(self, trial: Trial, example: Example) -> Trial:
        """Return what became of an example; *trial* is the one that failed."""
        rule = trial.rule
        before = model_from_text(example.before, "before")
        after = model_from_text(example.before, "before")
        changed, why_not = _apply(rule, after)
        if example.after == "unchanged":
            wrong = "the rule matches, though the example says unchanged" if changed else ""
            return replace(trial, verdict="failed" if wrong else "passed", reason=wrong)
        if not changed:
            return replace(trial, reason=f"the rule does not match{why_not}")
        wrong = _difference(before, after, _Attempts(rule, self.seed).excused)
        known = {node.qualified_op for node in before.graph}
        alien = unknown_operator(known, after, self.schemas) if wrong else ""
        if wrong and not alien:
            return replace(trial, reason=wrong)
        if example.after != "any":
            try:
                expected = model_from_text(example.after, "after")
            except InvalidModelError as error:
                return replace(trial, reason=error.message)
            if not same_structure(after, expected):
                return replace(trial, reason="the result is another one than the example's")
        return replace(trial, verdict="not tried" if alien else "passed", reason=alien)

    @made_by_dpl()
    def _outlined(self, rule: PatternRule) -> list[Trial]:
        """Try *rule* on one graph for each variant of its pattern: outlining only moves nodes."""
        trials: list[Trial] = []
        for number, fitting in enumerate(self._fitting(rule), start=1):
            attempts = _Attempts(rule, self.seed)
            tried = (attempts.on(made) for made, _ in itertools.islice(fitting, _MOST_RUNS))
            wrong = next((said for said in tried if said or attempts.applied), "")
            if wrong or attempts.applied:
                verdict: Literal["failed", "passed"] = "failed" if wrong else "passed"
                place = f"variant {number}"
                trials.append(Trial(rule, "made up", place, verdict, wrong, graphs=1))
        return trials

    # -- rewrites ------------------------------------------------------------------------------

    @made_by_dpl()
    def _proved(self, rule: AnyRule, wanted: int) -> Trial:
        """Try *rule* on *wanted* graphs, or up to the first on which it is wrong."""
        random = np.random.default_rng([self.seed, zlib.crc32(rule.qualified_name.encode())])
        attempts = _Attempts(rule, self.seed)
        # An opset for each way in which the operators of the rule are defined where it holds: the
        # last one of each, the newest at the end.
        first, last = rule.opsets
        high = min(last or LAST_OPSET, LAST_OPSET)
        low = max(first or 0, min(FIRST_OPSET, high))  # onnxruntime has no older ones
        calls = (part for part in all_parts(rule.pattern) if isinstance(part, CallPattern))
        operators = {c.op_type for part in calls for c in part.op.choices if isinstance(c, OpName)}
        if isinstance(rule, RewriteRule) and rule.text is not None:
            operators |= {call.op_type for call in rule.text.calls if not call.domain}
        begins = {schema.since for name in operators for schema in self.schemas.versions(name, "")}
        opsets = [begin - 1 for begin in sorted(begins) if low < begin <= high] + [high]
        sources, ways, why = self._sources(rule, random, opsets[-1])
        parts = {f"opset {opset}" for opset in opsets if ways and rule.opsets[0]} | ways
        drawn, useful = [0] * len(sources), [0] * len(sources)
        turn, end = 0, time.process_time() + _MOST_SECONDS * max(1.0, wanted / DEFAULT_TRIALS)
        while turn < _DRAWS_FOR_ONE * wanted + _HOPELESS and time.process_time() < end:
            is_enough = attempts.applied >= wanted
            if is_enough and (wanted < _ENOUGH or not attempts.untried(parts)):
                break
            patience = _HOPELESS if attempts.applied else _HOPELESS_AT_FIRST
            live = [n for n in range(len(sources)) if useful[n] or drawn[n] < patience]
            if not live:
                break
            which, before = live[turn % len(live)], attempts.applied
            daring = min(1.0, max(before, turn / _DRAWS_FOR_ONE) / _DARING_AFTER)
            made = sources[which](daring, opsets[-1 - (drawn[which] + which) % len(opsets)])
            turn += 1
            drawn[which] += 1
            wrong = "" if made is None else attempts.on(made)
            useful[which] += attempts.applied - before
            gc.collect(0)  # models are cycles, and what did not run holds on to a process
            if made is not None and wrong:
                return replace(_refuted(rule, made, wrong), tried=attempts.tried.lines())
        if not attempts.applied:
            return Trial(rule, "made up", "no graph", "not tried", attempts.blocked(why))
        left = attempts.untried(parts) if wanted >= _ENOUGH else []
        why_not = f"no graph was made up for {some_of(left)}{attempts.because()}" if left else ""
        unseen = [name for name, is_shown in attempts.tried.behaviours.items() if not is_shown]
        if unseen:
            attempts.notes[f"no graph showed that {some_of(unseen)}"] = None
        return Trial(
            rule,
            "made up",
            counted(attempts.applied, "graph"),
            "not tried" if why_not else "passed",
            why_not,
            graphs=attempts.applied,
            tried=attempts.tried.lines(),
            behaviours=attempts.tried.behaviours,
            notes=tuple(attempts.notes),
        )

    def _sources(
        self, rule: AnyRule, random: np.random.Generator, newest: int
    ) -> tuple[list[_Source], set[str], str]:
        """Return where graphs for *rule* come from, of what parts, and why there are no others."""
        sources: list[_Source] = []
        ways: set[str] = set()
        why = ""
        if rule.is_nodewise:
            why = "it has no pattern, so graphs are made of its examples only"
        else:
            try:
                for sketch, outputs in sketches(rule, self.schemas, of_each=True):
                    sampler = Sampler(sketch, rule, self.schemas, newest, random)
                    sources.append(_sampled(sampler, outputs))
                    ways |= sketch.ways
            except NoInstanceError as error:
                why = str(error)
        for example in rule.examples:
            if example.after != "unchanged":
                sources += _varied(example, rule, self.schemas, random)
        return sources, ways, why

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
        for fitting in self._fitting(rule):
            yield from (model for _, model in itertools.islice(fitting, 1))

    def _fitting(self, rule: AnyRule) -> Iterator[Iterator[tuple[_Made, Model]]]:
        """Yield for each variant of the pattern graphs that *rule* matches: plain ones first.

        They are always the same, of the opset nearest to the usual one at which the rule applies.
        """
        first, last = rule.opsets
        opset = max(first or 0, min(last or DEFAULT_OPSET, DEFAULT_OPSET))
        with suppress(NoInstanceError):
            for sketch, outputs in () if rule.is_nodewise else sketches(rule, self.schemas):
                random = np.random.default_rng(0)
                draw = _sampled(Sampler(sketch, rule, self.schemas, opset, random), outputs)
                steps = (number / _MOST_PLAIN - HALF for number in range(_MOST_PLAIN))
                drawn = (draw(max(0.0, step), opset) for step in steps)
                models = ((made, model_of(made.graph, opset)) for made in drawn if made)
                yield ((made, model) for made, model in models if model and _takes(rule, model))


def unknown_operator(known: Collection[str], after: Model, schemas: SchemaLibrary) -> str:
    """Say which operator of *after* onnxruntime does not have, and that is not *known*."""
    for node in after.graph:
        is_known = node.qualified_op in known or called_function(node) is not None
        if not is_known and node.op_type not in schemas.op_types(node.domain):
            return f"onnxruntime has no {node.qualified_op}"
    return ""


def _takes(rule: AnyRule, model: Model) -> bool:
    return bool(select_matches(model, [rule]).matches)


def _apply(rule: AnyRule, model: Model, *, most: int | None = None) -> tuple[bool, str]:
    """Apply *rule*; return whether it did anything, and why it was refused."""
    if isinstance(rule, PatternRule):
        selection = select_matches(model, [rule])
        return bool(partition(model, selection)), _objection(selection.refused)
    done = rewrite(model, [rule], most=most)
    return done.rounds > 0, _objection(done.refused)


def _objection(refused: Sequence[Rejection]) -> str:
    return f": refused by {refused[0].stage}: {refused[0].reason}" if refused else ""


def _difference(before: Model, after: Model, excused: frozenset[Exempt]) -> str:
    """Compare as drawn graphs are compared; return what is wrong, or ""."""
    check = Check(levels=(REFERENCE_LEVEL,), execution=RUN_LIMIT, of_rule=OfRule(excused))
    with temporary_folder() as folder:
        paths = folder / "before.onnx", folder / "after.onnx"
        for path, model in zip(paths, (before, after), strict=True):
            path.write_bytes(to_proto(model).SerializeToString())
        objection = check_model(paths[1])
        if objection:
            return f"the result is not valid: {objection}"
        result = compare(*paths, check, None)
    if result.equivalent:  # an example need not be large enough to be sure
        return ""
    worst = next((o for o in result.outputs if not o.ok), None)
    difference = (
        "; ".join(result.objections) if worst is None else f"{worst.name} moved by {worst.max_abs}"
    )
    return f"the result is not equivalent: {difference}"


def _shadowed(rule: AnyRule, earlier: Sequence[AnyRule], models: Sequence[Model]) -> list[Problem]:
    """Report a rule if earlier rules take nodes of every variant of its pattern."""
    greedy = [  # they take all that their patterns fit; a function may decline
        other
        for other in earlier
        if not (isinstance(other, RewriteRule) and other.text is None)
        and (not other.where and other.check is None and other.opsets == (None, None))
    ]
    culprits = []
    for model in models:
        taking = next((other for other in greedy if _overlap(other, rule, model)), None)
        if taking is None:
            return []
        culprits.append(taking.qualified_name)
    if not culprits:
        return []
    names = ", ".join(dict.fromkeys(culprits))
    message = f"can never match: {names}, listed before, takes its nodes"
    return [Problem("warning", rule.qualified_name, rule.origin, message)]


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


# Where graphs come from.


def _sampled(sampler: Sampler, outputs: Sequence[str]) -> _Source:
    def draw(daring: float, opset: int) -> _Made | None:
        sampler.daring, sampler.opset = daring, opset
        try:
            return _Made(sampler.draw(outputs), opset, frozenset(sampler.sketch.ways))
        except DeadEndError:
            return None

    return draw


def _varied(
    example: Example, rule: AnyRule, schemas: SchemaLibrary, random: np.random.Generator
) -> list[_Source]:
    try:
        model = model_from_text(example.before, "before")
        graph = instance_of(model)
    except (InvalidModelError, DeadEndError):  # the example says so, or has bodies
        return []
    opset = model.graph.opset_imports.get("", DEFAULT_OPSET)

    def draw(_: float, _opset: int) -> _Made | None:
        varied = changed_at_random(graph, rule, schemas, opset, random)
        return _Made(varied, opset, is_varied=True)

    return [draw]


# One rule on one graph: what it makes of it, and whether the check finds a difference.


_SMALL = 9.0
"""How large whole numbers are that do not wrap around, unless a rule is of whole numbers."""

_LEAST_STEP = 2.0**-7
"""The least scale that a quantiser is fed."""

_NO_KERNEL = re.compile(r"(?:find an implementation|find kernel) for (\w+)\(")
"""What onnxruntime says where it has no kernel."""

_CHOOSY = re.compile(r"running \w+ node|during initialization")
"""What onnxruntime says when a kernel, not the form of its operands, refuses them."""

_UNFIT = ("Training_mode", "Product cannot be 0")
"""What onnxruntime says of training that nobody reads, and of values without elements."""


@dataclass
class Exercised:
    """What the graphs had on which a rule was tried.

    Attributes:
        opsets: Their opsets.
        ways: The alternatives of the pattern.
        types: Element types of what is read.
        ranks: The ranks of that.
        values: Values of attributes that are one of a few, by operator and name.
        behaviours: What the operators may do, before or after, and whether some graph showed it.
    """

    opsets: set[int] = field(default_factory=set)
    ways: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    values: dict[str, set[str]] = field(default_factory=dict)
    behaviours: dict[str, bool] = field(default_factory=dict)

    def add(self, made: _Made, behaviours: Mapping[str, bool]) -> None:
        """Count a graph, and which behaviours of its operators were seen."""
        for behaviour, is_shown in behaviours.items():
            self.behaviours[behaviour] = is_shown or self.behaviours.get(behaviour, False)
        graph = made.graph
        self.opsets.add(made.opset)
        self.ways |= made.ways
        for dtype, shape in graph.inputs.values():
            self.types.add(dtype)
            self.ranks.add(len(shape))
        for node in graph.nodes:
            for name, value in node.attributes.items():
                if isinstance(value, str) or name in SWITCHES:
                    self.values.setdefault(f"{node.op_type}.{name}", set()).add(str(value))

    def lines(self) -> tuple[str, ...]:
        """Return what was exercised, a kind of part in each line."""
        given: dict[str, Iterable[object]] = {
            "opsets": sorted(self.opsets),
            "types": sorted(self.types),
            "ranks": sorted(self.ranks),
            "forms": sorted(self.ways),
        }
        given |= {name: sorted(values) for name, values in sorted(self.values.items())}
        return tuple(f"{key} {', '.join(map(str, items))}" for key, items in given.items() if items)


@dataclass
class _Attempts:
    """What became of one rule on one graph after the other.

    Attributes:
        rule: The rule.
        seed: Which numbers are drawn.
        applied: On how many graphs it was tried.
        refusals: Why it did not apply to others.
        objections: Why others were not compared.
        tried: What the graphs had.
        refused: The parts of which a graph was refused by the conditions.
        notes: Where results differ in what nobody may rely on.
        known: The graphs so far, and whether each was compared. One that is drawn again counts
            again, but is fed the same: to try it again would show nothing more.
    """

    rule: AnyRule
    seed: int = 0
    applied: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    objections: Counter[str] = field(default_factory=Counter)
    tried: Exercised = field(default_factory=Exercised)
    refused: set[str] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)
    known: dict[object, bool] = field(default_factory=dict)

    @cached_property
    def is_of_integers(self) -> bool:
        """Whether the rule names integer types: then it is held to what they do when they wrap."""
        texts = {
            node.value
            for condition in self.rule.where
            for node in condition.nodes
            if isinstance(node, ast.Constant)
        }
        parts = all_parts(self.rule.pattern)
        texts |= {dtype for p in parts if isinstance(p, TypedPattern) for dtype in p.dtypes or ()}
        return not texts.isdisjoint(_WHOLE_NAMES)

    @cached_property
    def excused(self) -> frozenset[Exempt]:
        """For which numbers the rule may be wrong: large ones, unless it is of whole numbers."""
        overflow = frozenset[Exempt]() if self.is_of_integers else frozenset[Exempt]({"overflow"})
        return overflow | excepted(self.rule)

    def _excused_on(self, graph: Instance) -> frozenset[Exempt]:
        """Return for which numbers it may be wrong there: NaN has no place in an order."""
        return self.excused | (frozenset[Exempt]({"nan"}) if _orders(graph) else frozenset())

    def on(self, made: _Made) -> str:  # noqa: PLR0911  # a way out for each thing that ends it
        """Try the rule on a graph; return what is wrong, or ""."""
        model = model_of(made.graph, made.opset)
        if model is None or any(map(_overreaches, model.graph)) or _lacks_scale(made.graph):
            return ""
        declared = [value.known_type() for value in model.graph.outputs]
        before = to_proto(model).SerializeToString()
        key = before, made.ways, made.is_varied
        if key in self.known:
            self.applied += self.known[key]
            return ""
        made = made._replace(ways=self._matched_ways(model, made.ways))
        is_random = any(map(draws_random, model.graph))
        try:
            changed, why_not = _apply(self.rule, model, most=_OWN_MOST)
        except RewriteLimitError as error:
            return error.message
        except DplError as error:
            return f"the rule fails: {error.message}"
        if not changed:
            self.refusals[why_not.removeprefix(": ") or "the pattern does not fit"] += 1
            self.refused |= {*(made.ways if why_not else ()), f"opset {made.opset}"}
            return ""
        if is_random:
            is_lost = not any(map(draws_random, model.graph))
            lost = "the graph draws random numbers, and the result does not"
            return lost if is_lost else self._objected("both draw random numbers")
        applied = self.applied
        wrong = self._tried(made, before, model, declared)
        self.known[key] = self.applied > applied
        return wrong

    def _tried(
        self, made: _Made, before: bytes, model: Model, declared: Sequence[TensorType | None]
    ) -> str:
        """Check what the rule made of a graph; return what is wrong, or ""."""
        known = {label_of(node) for node in made.graph.nodes}
        if alien := unknown_operator(known, model, RuntimeSchemas()):
            return self._objected(alien)
        after = to_proto(model).SerializeToString()
        objection = objection_to(after)
        if objection and objection_to(before):  # onnx does not see through all it defines
            objection = ""
        if any(words in objection for words in _UNFIT):
            return self._objected(objection)
        try:
            result = self._checked(made, before, after)
        except VerificationError as error:
            return self._objected(error.message)
        invalid = f"the result is not valid: {objection}" if objection else ""
        if result.reasons:
            return invalid or self._refused(made, model, "; ".join(result.reasons))
        return self._judged(made, result, declared) or invalid

    def _checked(self, made: _Made, before: bytes, after: bytes) -> VerificationResult:
        """Compare the graph before and after; what never had a kernel is what ONNX defines it by.

        Raises:
            VerificationError: onnxruntime does not run the graph.
        """
        result = self._compared(made.graph, before, after)
        missing = _NO_KERNEL.search("".join(result.reasons))
        if missing and len([*RuntimeSchemas.versions(missing[1], "")]) == 1:
            after = with_operator_defined(after, missing[1])
            result = self._compared(made.graph, before, after)
        return result

    def _compared(self, graph: Instance, before: bytes, after: bytes) -> VerificationResult:
        whole = {
            name: (0.0 if dtype.startswith("u") else -_SMALL, _SMALL)
            for name, (dtype, _) in graph.inputs.items()
            if dtype in _WHOLE_NAMES and not self.is_of_integers
        }
        places = {
            name
            for node in graph.nodes
            for slot, name in enumerate(node.inputs)
            if (node.op_type, slot) in PLACE_SLOTS or slot >= SIZED_FROM.get(node.op_type, slot + 1)
        }
        is_quantised = any(word in n.op_type for n in graph.nodes for word in ("Linear", "Integer"))
        ranges = {} if is_quantised else {n: r for n, r in whole.items() if n not in places}
        ranges |= dict.fromkeys(_scales(graph) & graph.inputs.keys(), (_LEAST_STEP, 1.0))
        types = {dtype for dtype, _ in graph.inputs.values()}
        types |= {str(data.dtype) for data in graph.constants.values()}
        check = Check(
            seeds=(self.seed,),
            levels=(REFERENCE_LEVEL,),
            execution=RUN_LIMIT,
            request=InputRequest(ranges=ranges),
            whole=Whole("float32", is_quantised) if "float64" in types else None,
            of_rule=OfRule(self._excused_on(graph)),
        )
        with temporary_folder() as folder:
            paths = folder / "before.onnx", folder / "after.onnx"
            for path, content in zip(paths, (before, after), strict=True):
                path.write_bytes(content)
            return compare(*paths, check, None)

    def _judged(  # a way out for each thing that may be wrong
        self,
        made: _Made,
        result: VerificationResult,
        declared: Sequence[TensorType | None],
    ) -> str:
        """Say what is wrong by a comparison, and note what was seen if nothing is."""
        shapes = [output.shape for output in result.outputs]
        if not all(
            kind is not None and _may_have(kind.shape, shape)
            for kind, shape in zip(declared, shapes, strict=False)
        ):
            return self._objected("it makes other sizes than onnx says")
        regions = result.regions
        odd = {} if regions is None else {k: w for k, w in _WORDS.items() if k in regions.odd}
        floats = (data for data in made.graph.constants.values() if data.dtype.kind == "f")
        excused = self._excused_on(made.graph)
        if not result.equivalent and _is_empty(made.graph) and _orders(made.graph):
            return self._objected("nothing is the largest of no numbers")
        if not result.equivalent and excused & oddities_of(floats) - {"zero_sign"}:
            return self._objected("its constants are odd numbers, for which the rule may be wrong")
        if not result.equivalent:
            worst = next((output for output in result.outputs if not output.ok), None)
            wrong = (
                "; ".join(result.objections) if worst is None else f"{worst.name}: {worst.reason}"
            )
            advice = next((f" {_ADVICE.format(kind)}" for kind in odd), "")
            return f"{wrong}{advice}"
        for kind, where in odd.items():
            if kind not in excused:
                return f"results differ {where} {_ADVICE.format(kind)}"
            self.notes[f"results differ {where}, as the rule or the standard says"] = None
        self.applied += 1
        self.tried.add(made, {} if regions is None else regions.behaviours)
        return ""

    def _refused(self, made: _Made, model: Model, objection: str) -> str:
        """Say what is wrong if onnxruntime does not run the result, if that is the rule's doing.

        Kernels of other domains refuse numbers that no model holds, as a negative epsilon, and some
        kernels want some elements, or training that somebody reads.
        """
        is_choosy = any(node.domain for node in model.graph) and _CHOOSY.search(objection)
        is_open = made.is_varied or bool(is_choosy) or _is_empty(made.graph)
        is_open = is_open or bool(_NO_KERNEL.search(objection))
        if is_open or any(words in objection for words in _UNFIT):
            return self._objected(f"not the result: {objection}")
        return objection

    def _matched_ways(self, model: Model, ways: frozenset[str]) -> frozenset[str]:
        """Return the forms of a graph, with what its first match takes for any number of inputs."""
        named = {way for way in ways if way.startswith("*") and not way.startswith("*_ ")}
        matches = select_matches(model, [self.rule]).matches if named else []
        if not matches:
            return ways
        bound = matches[0].variadic.items()
        return ways - named | {f"*{name} {'full' if taken else 'empty'}" for name, taken in bound}

    def untried(self, parts: Iterable[str]) -> list[str]:
        """Return those of *parts* that no graph reached, unless conditions refuse them."""
        reached = self.tried.ways | {f"opset {opset}" for opset in self.tried.opsets}
        return sorted({*parts} - reached - self.refused)

    def _objected(self, objection: str) -> str:
        """Count why the result was not compared; nothing is wrong then."""
        self.objections[objection] += 1
        return ""

    def because(self) -> str:
        """Say what is most often in the way of further graphs."""
        reasons = self.objections + self.refusals
        return f"; mostly, {reasons.most_common(1)[0][0]}" if reasons else ""

    def blocked(self, why: str) -> str:
        """Say why the rule was tried on no graph."""
        if self.objections:
            ((objection, _),) = self.objections.most_common(1)
            return f"onnxruntime runs none of the graphs made up: {objection}"
        conditions = [(n, reason) for reason, n in self.refusals.items() if "refused" in reason]
        if conditions:
            return f"no graph was found that all conditions fit; most were {max(conditions)[1]}"
        if self.refusals:
            return "no graph was found that the pattern fits"
        return why or "no valid graph was found for the pattern"


_WORDS: dict[Exempt, str] = {
    "nan": "where an input is no number",
    "inf": "where an input is infinite",
    "zero_sign": "where an input is -0",
    "overflow": "where numbers are so large that squares of them overflow",
}
_ADVICE = "(say except: [{}] if that may be)"


def exemption_of(reason: str) -> Exempt | None:
    """Return the kind of odd numbers for which alone a rule failed; None for usual ones."""
    return next((kind for kind in get_args(Exempt) if _ADVICE.format(kind) in reason), None)


def _may_have(declared: Shape | None, shape: Sequence[int]) -> bool:
    """Tell whether *shape* is as declared, where a number of finds is left open."""
    return (
        declared is not None
        and len(declared) == len(shape)
        and all(
            wanted in {size, None} or isinstance(wanted, str)
            for wanted, size in zip(declared, shape, strict=True)
        )
    )


def _overreaches(node: Node) -> bool:
    """Tell whether a window is larger than what it lies on: what that gives is nowhere said.

    So it is if the blocks of DepthToSpace and SpaceToDepth do not come out even.
    """
    if node.op_type in IN_BLOCKS and node.inputs[0]:
        image, size = node.inputs[0].known_type(), node.attributes["blocksize"].value
        if image is None or not image.shape or not isinstance(size, int):
            return True
        is_deep = node.op_type == "DepthToSpace"
        cut, most = (image.shape[1:2], size * size) if is_deep else (image.shape[2:], size)
        return any(isinstance(length, int) and length % most for length in cut)
    known = node.inputs[0].known_type() if node.op_type in OF_IMAGES and node.inputs[0] else None
    if known is None or known.shape is None or "kernel_shape" not in node.attributes:
        return False
    given: dict[str, Any] = {name: item.value for name, item in node.attributes.items()}
    if str(given.get("auto_pad", "")).startswith("SAME"):
        return False
    kernel = given["kernel_shape"]
    count = len(kernel)
    pads = given.get("pads", (0,) * (2 * count))
    steps = given.get("dilations", (1,) * count)
    sides = zip(kernel, steps, pads[:count], pads[count:], known.shape[2:], strict=False)
    return any(size + a + b <= (width - 1) * step for width, step, a, b, size in sides)


def _lacks_scale(graph: Instance) -> bool:
    """Tell whether the scale of a quantiser is not positive: what that gives is nowhere said."""
    scales = _scales(graph) & graph.constants.keys()
    return not all((graph.constants[name] > 0).all() for name in scales)


def _scales(graph: Instance) -> set[str]:
    """Return the scales of quantisers."""
    return {
        name for node in graph.nodes if "izeLinear" in node.op_type for name in node.inputs[1:2]
    }


_EXCEPTIONS: dict[Exempt, str] = {
    "nan": r"\bNaNs?\b|no number",
    "inf": r"\binf(init[a-z]+)?\b",
    "zero_sign": r"-0\b|sign of (a )?zero|signed zero",
    "overflow": r"\boverflow|\bwrap",
}
_UNLIKE = r"\b(except|but|unless|differ|unlike|not|lose|other)[^.]*?(?:{})"


def excepted(rule: AnyRule) -> set[Exempt]:
    """Return for which numbers a rule may be wrong: it says so, or its description does."""
    said = (
        word
        for word, text in _EXCEPTIONS.items()
        if re.search(_UNLIKE.format(text), rule.doc, re.IGNORECASE)
    )
    return {*said, *(rule.excepted if isinstance(rule, RewriteRule) else ())}


def _orders(graph: Instance) -> bool:
    return any(node.op_type in ORDERING for node in graph.nodes)


def _is_empty(graph: Instance) -> bool:
    """Tell whether something that a graph reads has no elements."""
    shapes = [shape for _, shape in graph.inputs.values()]
    return any(0 in shape for shape in [*shapes, *(d.shape for d in graph.constants.values())])


_WHOLE_TYPES = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
_WHOLE_NAMES = frozenset(map(dtype_name, _WHOLE_TYPES))


# Counterexamples: the smallest graph on which a rule is still wrong.


_MOST_STEPS = 150


def _refuted(rule: AnyRule, made: _Made, wrong: str) -> Trial:
    """Return the failed trial of *rule*, with a graph that cannot be made smaller."""
    steps = 0
    smallest, why = made, wrong
    first, last = rule.opsets
    if (first or 0) <= DEFAULT_OPSET <= (last or DEFAULT_OPSET):  # it goes without saying
        usual = made._replace(opset=DEFAULT_OPSET)
        if still := _Attempts(rule).on(usual):
            smallest, why, made = usual, still, usual
    candidates = simpler(smallest.graph)
    seen: set[str] = {repr(smallest.graph)}
    while steps < _MOST_STEPS and (graph := next(candidates, None)) is not None:
        if repr(graph) in seen:
            continue
        seen.add(repr(graph))
        steps += 1
        smaller = made._replace(graph=graph)
        still = _Attempts(rule).on(smaller)
        if still and exemption_of(still) == exemption_of(why):  # wrong for numbers as usual
            smallest, why = smaller, still
            candidates = simpler(graph)
    model = model_of(smallest.graph, smallest.opset)
    text = "" if model is None else text_of_model(model)
    return Trial(rule, "made up", "1 graph", "failed", why, graphs=1, counterexample=text)
