"""Try rules: on their own examples, and on graphs made up for their patterns.

A rewrite is tried on many graphs: plain ones, graphs drawn at random (`sampling`), and the examples
with something changed. Each is run before and after. A graph on which the two differ is made
smaller as long as they still differ, and becomes the counterexample.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

import numpy as np

from dplcli.analysis.numbering import Numbers
from dplcli.catalog.lint import Problem
from dplcli.catalog.sketch import Instance, NoInstanceError, sketches
from dplcli.dpl.pattern import CallPattern, OpName
from dplcli.dpl.replacement import RewriteRule
from dplcli.dpl.rule import Exempt, PatternRule
from dplcli.dpl.text import all_parts
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
from dplcli.ir.traversal import behind_identities
from dplcli.ir.types import Tensor, dtype_name
from dplcli.onnx_io import check_model, to_proto
from dplcli.onnx_io.bounded import made_by_dpl
from dplcli.onnx_io.infer import objection_to
from dplcli.onnx_io.scratch import DEFAULT_OPSET, build_model, model_from_text, text_of_model
from dplcli.outcomes import Trial
from dplcli.passes.partition import partition
from dplcli.passes.rewrite import RewriteLimitError, rewrite
from dplcli.passes.select import select_matches
from dplcli.pipeline import sampling
from dplcli.pipeline.manners import ODDITIES, draw
from dplcli.pipeline.sampling import DeadEndError, Sampler, plain_graphs
from dplcli.pipeline.verifying import compare
from dplcli.settings import TrialSettings
from dplcli.verify.check import Execution
from dplcli.verify.draw_specs import DrawSpec
from dplcli.verify.values import ModelSource, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.dpl import Rejection
    from dplcli.dpl.rule import Example
    from dplcli.ir import Attribute, Graph, Model, Node, SchemaLibrary, Shape, TensorType, Value
    from dplcli.pipeline.manners import Manner, Oddity
    from dplcli.verify.run import Kind, Runner
    from dplcli.verify.values import Outputs

    AnyRule: TypeAlias = PatternRule | RewriteRule
    Array: TypeAlias = NDArray[Any]


# Comparing two models by what they compute, whatever the names in them.


def same_structure(first: Model, second: Model) -> bool:
    """Tell whether the main graphs are equal but for the names of values and nodes.

    Inputs and outputs correspond by position. Identity nodes are skipped. Constants are compared
    by their data, and functions of the model by their names.
    """
    numbers = Numbers()
    return _form(first.graph, numbers) == _form(second.graph, numbers)


def _form(graph: Graph, numbers: Numbers) -> list[int]:
    """Number every value by what computes it; equal values get equal numbers."""
    inputs = (value for value in graph.inputs if not value.is_initializer)
    number_of = {value: numbers(("input", place)) for place, value in enumerate(inputs)}

    def number(value: Value) -> int:
        origin = behind_identities(value)
        tensor = origin.constant
        if tensor is not None:
            data = (tensor.dtype, tensor.shape, str(tensor.numpy().tolist()))
            return numbers(("constant", *data))
        if origin not in number_of:
            number_of[origin] = numbers(("outside", origin.name))
        return number_of[origin]

    for node in graph:
        reads = tuple(-1 if v is None else number(v) for v in node.inputs)
        attributes = tuple(sorted((name, _value(a)) for name, a in node.attributes.items()))
        shape = (node.domain, node.op_type, reads, attributes)
        for output in node.outputs:
            if output is not None:
                number_of[output] = numbers((*shape, output.index))
    return [number(value) for value in graph.outputs]


def _value(attribute: Attribute) -> str:
    if isinstance(attribute.value, Tensor):
        return str(attribute.value.numpy().tolist())
    return f"{attribute.ref}{attribute.value!r}"


# Trying rules: on their own examples, and on graphs made up for their patterns.


DEFAULT_TRIALS: int = TrialSettings.options["trials"].default
"""On how many graphs each rewrite is tried, unless somebody says."""

_OWN_MOST = 100
_MOST_RUNS = 6
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
        wrong = _difference(before, after)
        alien = unknown_operator(before, after, self.schemas) if wrong else ""
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
        try:
            for number, graphs in enumerate(self._plain_graphs(rule), start=1):
                trials.append(_trial_of(rule, f"variant {number}", graphs))
        except NoInstanceError:
            pass
        return [trial for trial in trials if trial.verdict != "not tried"]

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
            if made is not None and wrong:
                return replace(_refuted(rule, made, wrong), tried=attempts.tried.lines())
        if not attempts.applied:
            return Trial(rule, "made up", "no graph", "not tried", attempts.blocked(why))
        left = attempts.untried(parts) if wanted >= _ENOUGH else []
        return Trial(
            rule,
            "made up",
            counted(attempts.applied, "graph"),
            "not tried" if left else "passed",
            f"no graph was made up for {some_of(left)}{attempts.because()}" if left else "",
            graphs=attempts.applied,
            tried=attempts.tried.lines(),
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
        if rule.is_nodewise:
            return
        try:
            for graphs in self._plain_graphs(rule):
                yield from (model for _, model in itertools.islice(_fitting(rule, graphs), 1))
        except NoInstanceError:
            return

    def _plain_graphs(self, rule: AnyRule) -> Iterator[Iterator[Instance]]:
        return plain_graphs(rule, self.schemas, _usual_opset(rule))


def _usual_opset(rule: AnyRule) -> int:
    """Return the opset nearest to the usual one at which *rule* applies."""
    first, last = rule.opsets
    return max(first or 0, min(last or DEFAULT_OPSET, DEFAULT_OPSET))


def unknown_operator(before: Model, after: Model, schemas: SchemaLibrary) -> str:
    """Say which operator of *after* alone onnxruntime does not have; "" if it has all."""
    operators = {node.qualified_op for node in before.graph}
    for node in after.graph:
        is_known = node.qualified_op in operators or called_function(node) is not None
        if not is_known and node.op_type not in schemas.op_types(node.domain):
            return f"onnxruntime has no {node.qualified_op}"
    return ""


def _trial_of(rule: AnyRule, place: str, graphs: Iterator[Instance]) -> Trial:
    """Try *rule* on the first graph that onnxruntime runs."""
    reason = "no graph was found that all conditions fit"
    for graph, after in itertools.islice(_fitting(rule, graphs), _MOST_RUNS):
        before = build_model(graph, _usual_opset(rule))
        if before is None:
            continue
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
        return Trial(rule, "made up", place, "failed" if wrong else "passed", wrong, graphs=1)
    return Trial(rule, "made up", place, "not tried", reason)


def _fitting(rule: AnyRule, graphs: Iterator[Instance]) -> Iterator[tuple[Instance, Model]]:
    """Yield the graphs that *rule* matches, each with its model."""
    opset = _usual_opset(rule)
    for graph in graphs:
        model = build_model(graph, opset)
        if model is not None and _takes(rule, model):
            yield graph, model


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
        graph = sampling.instance_of(model)
    except (InvalidModelError, DeadEndError):  # the example says so, or has bodies
        return []
    opset = model.graph.opset_imports.get("", DEFAULT_OPSET)

    def draw(_: float, _opset: int) -> _Made | None:
        varied = sampling.changed_at_random(graph, rule, schemas, opset, random)
        return _Made(varied, opset, is_varied=True)

    return [draw]


# One rule on one graph: what it makes of it, and whether both compute the same.


_RUN_LIMIT = Execution(timeout=5.0)
_FLOATS = {"float16": (2e-2, 1e-2), "bfloat16": (1e-1, 5e-2), "float32": (3e-4, 3e-5)}
_DOUBLE = (1e-6, 1e-6)  # attributes are of 32 bits
_DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Binary digits of floats; whole numbers count as exact."""

_USUAL: tuple[Manner, ...] = ("mixed", "ties", "wide")
_BY_TURNS: tuple[Manner, ...] = ("flat", "tiny", "bounds")
_ODD: tuple[Oddity, ...] = ("nan", "inf", "zero_sign")
_FEW = 16
_LEAST_SCALE = 1e-6
_FAR = 80.0
"""The exponential of larger numbers is hardly a float32."""

_LEAST_STEP = 2.0**-7
_WIDE, _SAFE, _SMALL = 350.0, 300.0, 9.0
"""How large the numbers are that every model may meet, as floats, as float64 (the exponential of
which is a number), and as integers that do not wrap. What is rounded is told from the rest in
float64: there, the exponential of a difference of two floats is a number, too."""

_NO_KERNEL = ("NOT_IMPLEMENTED", "Could not find an implementation", "Kernel not found")
_MISSING = (*_NO_KERNEL, "ot supported", "raining")
"""What onnxruntime says where it has no kernel, and the reference evaluator stands in."""

_WORDS: dict[Manner, tuple[str, str]] = {
    "edges": ("overflow", "at the ends of the type"),
    "nan": ("nan", "where an input is no number"),
    "inf": ("inf", "where an input is infinite"),
    "zero_sign": ("zero_sign", "where an input is -0"),
}
_Fed: TypeAlias = "tuple[Manner, dict[str, Array]]"


class _Run(NamedTuple):
    """What a graph was fed, in which manner, and what came of it."""

    manner: Manner
    feed: dict[str, Array]
    outputs: Outputs


@dataclass
class Exercised:
    """What the graphs had on which a rule was tried.

    Attributes:
        opsets: Their opsets.
        ways: The alternatives of the pattern.
        types: Element types of what is read.
        ranks: The ranks of that.
        values: Values of attributes that are one of a few, by operator and name.
    """

    opsets: set[int] = field(default_factory=set)
    ways: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    values: dict[str, set[str]] = field(default_factory=dict)

    def add(self, made: _Made) -> None:
        """Count a graph."""
        graph = made.graph
        self.opsets.add(made.opset)
        self.ways |= made.ways
        for dtype, shape in graph.inputs.values():
            self.types.add(dtype)
            self.ranks.add(len(shape))
        for node in graph.nodes:
            for name, value in node.attributes.items():
                if isinstance(value, str) or name in sampling.SWITCHES:
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
        objections: What onnxruntime says of others.
        tried: What the graphs had.
        refused: The parts of which a graph was refused by the conditions.
        notes: Where results differ in what nobody may rely on.
    """

    rule: AnyRule
    seed: int = 0
    applied: int = 0
    turns: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    objections: Counter[str] = field(default_factory=Counter)
    tried: Exercised = field(default_factory=Exercised)
    refused: set[str] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)

    @cached_property
    def is_of_integers(self) -> bool:
        """Whether the rule names integer types: then it is held to what they do when they wrap."""
        nodes = (node for condition in self.rule.where for node in condition.nodes)
        texts = (node.value for node in nodes if isinstance(node, ast.Constant))
        return any(isinstance(text, str) and text in _WHOLE_NAMES for text in texts)

    def on(self, made: _Made, *, manners: Sequence[Manner] = ()) -> str:
        """Try the rule on a graph; return what is wrong, or "".

        Args:
            made: The graph.
            manners: How to draw what it is fed; if none are named, in some of all ways, by turns.
        """
        model = build_model(made.graph, made.opset)
        if model is None or any(map(_overreaches, model.graph)):
            return ""
        declared = [value.known_type() for value in model.graph.outputs]
        before = to_proto(model).SerializeToString()
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
        if is_random and any(map(draws_random, model.graph)):
            return self._objected("both draw random numbers")
        self.turns += 1
        turn = self.turns
        manners = manners or (
            *(*_USUAL, _BY_TURNS[turn % len(_BY_TURNS)]),
            *("edges", _ODD[turn % len(_ODD)]),
        )
        if _holds_nan(made.graph):  # one oddity at a time: what is no number, or what overflows
            manners = [manner for manner in manners if manner not in ODDITIES]
        feeds = [(manner, self._fed(made.graph, manner, turn)) for manner in manners]
        runs, engine = self._runs_as_declared(before, feeds, declared)
        return self._compared(made, model, before, runs, engine) if runs else ""

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

    def _fed(self, graph: Instance, manner: Manner, turn: int) -> dict[str, Array]:
        """Draw what a graph is fed."""
        small = (d for d in graph.constants.values() if d.size <= _FEW and d.dtype.kind in "fiu")
        numbers = (float(n) for data in small for n in data.reshape(-1) if np.isfinite(n))
        bound = math.inf if self.is_of_integers or _is_quantised(graph) else _SMALL
        is_whole = not any(dtype.startswith("float") for dtype, _ in graph.inputs.values())
        spec = DrawSpec(
            low=-bound if is_whole else -math.inf,
            high=bound if is_whole else math.inf,
            constants=tuple(dict.fromkeys(n for n in numbers if abs(n) <= _WIDE)),
            scale=2.0,
            never_zero=any(node.op_type in {"Div", "Mod"} for node in graph.nodes),
        )
        most = _largest_place(graph)
        kept = replace(spec, low=most > 1, high=most) if most else None
        scales = {
            name for node in graph.nodes if "izeLinear" in node.op_type for name in node.inputs[1:2]
        }
        drawn: dict[str, Array] = {}
        for name, (dtype, shape) in graph.inputs.items():
            key, like = f"{self.seed}/{turn}/{manner}/{name}", np.zeros(shape, dtype)
            if name in scales:
                drawn[name] = draw(key, like, DrawSpec(low=_LEAST_STEP, high=1.0), "mixed")
            elif kept is not None and like.dtype.kind in "iu":
                drawn[name] = draw(key, like, kept, "mixed")
            else:
                is_double = dtype == "float64"  # nothing finer tells what is rounding
                drawn[name] = draw(key, like, spec, manner, _SAFE if is_double else _WIDE)
        return drawn

    def _runs_as_declared(
        self, content: bytes, feeds: Sequence[_Fed], declared: Sequence[TensorType | None]
    ) -> tuple[list[_Run], Kind]:
        """Run the graph; return nothing if nobody runs it, or if it makes other sizes than onnx."""
        engine: Kind = "onnxruntime"
        runs: list[_Run] = []
        objection = ""
        while not runs:
            try:
                runner = _runner(content, engine)
                for manner, feed in feeds:
                    try:
                        runs.append(_Run(manner, feed, runner.run(feed)))
                    except RunError as error:  # not for these numbers
                        objection = objection or str(error)
            except (RunError, VerificationError) as error:
                objection = objection or str(error)
                if engine == "onnxruntime" and any(words in str(error) for words in _MISSING):
                    engine = "evaluator"
                    continue
            break
        if not runs:
            self.objections[objection] += 1
            return [], engine
        shapes = [leaves[0].data.shape for leaves in runs[0].outputs.values()]
        if all(kind and _may_have(kind.shape, s) for kind, s in zip(declared, shapes, strict=True)):
            return runs, engine
        self.objections["it makes other sizes than onnx says"] += 1
        return [], engine

    def _compared(
        self, made: _Made, model: Model, before: bytes, runs: Sequence[_Run], engine: Kind
    ) -> str:
        """Compare what the graph and the result compute; return what is wrong, or ""."""
        after = to_proto(model).SerializeToString()
        objection = objection_to(after)
        invalid = f"the result is not valid: {objection}" if objection else ""
        is_odd = "Training_mode" in invalid or "Product cannot be 0" in invalid
        if invalid and (engine == "evaluator" or is_odd):
            # a type of which onnxruntime has no kernels, training that nobody reads, no elements
            return self._objected(invalid)
        try:
            runner = _runner(after, engine)
            results = [runner.run(run.feed) for run in runs]
        except (RunError, VerificationError) as error:
            if any(words in str(error) for words in _NO_KERNEL) and engine == "onnxruntime":
                return self._by_evaluator(made, model, before, runs)
            # kernels of other domains refuse numbers that no model holds, and say so loudly; and
            # some kernels want some elements
            is_open = made.is_varied or engine == "evaluator" or _is_empty(made.graph)
            if is_open or any(node.domain for node in model.graph):
                return invalid or self._objected(f"not the result: {error}")
            return invalid or f"onnxruntime runs the graph, but not the result: {error}"
        made_there = (leaf for run in runs for leaves in run.outputs.values() for leaf in leaves)
        if any(leaf.data.size for leaf in made_there):
            self.applied += 1
            self.tried.add(made)
        for run, theirs in zip(runs, results, strict=True):
            wrong = self._judged(made.graph, before, after, run, theirs)
            if wrong:
                return wrong
        return invalid

    def _objected(self, objection: str) -> str:
        """Count why the result was not compared; nothing is wrong then."""
        self.objections[objection] += 1
        return ""

    def _by_evaluator(self, made: _Made, model: Model, before: bytes, runs: Sequence[_Run]) -> str:
        """Compare in the reference evaluator what onnxruntime has no kernels for."""
        try:
            runner = _runner(before, "evaluator")
            again = [run._replace(outputs=runner.run(run.feed)) for run in runs]
        except (RunError, VerificationError) as error:
            return self._objected(str(error))
        return self._compared(made, model, before, again, "evaluator")

    def _judged(
        self, graph: Instance, before: bytes, after: bytes, run: _Run, theirs: Outputs
    ) -> str:
        """Compare the results for one feed; return what is wrong, or ""."""
        manner, feed, ours = run
        manner = "nan" if _holds_nan(graph) else manner
        least = 1.0 if manner == "tiny" else _LEAST_SCALE  # what it becomes on the way is larger
        scale = max(least, _scale([*graph.constants.values(), *feed.values()], ours))
        wrong, is_free, is_lost = _disagreement(ours, theirs, scale, manner, graph)
        word, where = _WORDS.get(manner, ("", ""))
        is_whole = all(data.dtype.kind != "f" for data in feed.values())
        may_overflow = word == "overflow" and not (is_whole and self.is_of_integers)
        if not wrong:
            said = (
                f"results differ {where}"
                if word
                else "the result is a number where the pattern has none"
            )
            note = said if is_free else ""
        elif word and word in excepted(self.rule):
            note = f"results differ {where}, as the rule says"
        elif may_overflow or _is_open(graph, manner):
            note = f"results differ {where}".strip()
        elif not word and is_lost and "float16" not in _types_of(graph).values():
            return wrong  # what is fed is far from what float32 does not hold
        elif (is_rounding := _is_rounding(graph, before, after, feed, scale)) or (
            is_rounding is None  # then what it becomes on the way may be about 1
            and not _disagreement(ours, theirs, max(scale, 1.0), manner, graph).where
        ):
            note = f"results differ {where}, by rounding or in the kernels" if word else ""
        else:
            return f"{wrong}, {where} {_ADVICE.format(word)}" if word else wrong
        if note:
            self.notes[note] = None
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


def _runner(content: bytes, engine: Kind) -> Runner:
    from dplcli.verify.run import Runner  # noqa: PLC0415  # loads onnxruntime, elsewhere

    source = ModelSource(Path("made_up.onnx"), content, execution=_RUN_LIMIT)
    return Runner(source, "disable", engine)


def _largest_place(graph: Instance) -> int:
    """Return how large whole numbers may be that are sizes or places of a graph; 0 if none are."""
    most = 0
    for node in graph.nodes:
        for slot, name in enumerate(node.inputs):
            if name and name not in graph.constants:
                if slot >= SIZED_FROM.get(node.op_type, slot + 1):
                    return 3
                most = max(most, (node.op_type, slot) in PLACE_SLOTS)
    return most


def _overreaches(node: Node) -> bool:
    """Tell whether a window is larger than what it lies on: what that gives is nowhere said.

    So it is if the blocks of DepthToSpace and SpaceToDepth do not come out even.
    """
    if node.op_type in sampling.IN_BLOCKS and node.inputs[0]:
        image, size = node.inputs[0].known_type(), node.attributes["blocksize"].value
        if image is None or not image.shape or not isinstance(size, int):
            return True
        is_deep = node.op_type == "DepthToSpace"
        cut, most = (image.shape[1:2], size * size) if is_deep else (image.shape[2:], size)
        return any(isinstance(length, int) and length % most for length in cut)
    known = (
        node.inputs[0].known_type()
        if node.op_type in sampling.WINDOWED and node.inputs[0]
        else None
    )
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


_EXCEPTIONS = {
    "nan": r"\bNaNs?\b|no number",
    "inf": r"\binf(init[a-z]+)?\b",
    "zero_sign": r"-0\b|sign of (a )?zero|signed zero",
    "overflow": r"\boverflow|\bwrap",
}
_UNLIKE = r"\b(except|but|unless|differ|unlike|not|lose|other)[^.]*?(?:{})"


def excepted(rule: AnyRule) -> set[str]:
    """Return for which numbers a rule may be wrong: it says so, or its description does."""
    said = (
        word
        for word, text in _EXCEPTIONS.items()
        if re.search(_UNLIKE.format(text), rule.doc, re.IGNORECASE)
    )
    return {*said, *(rule.excepted if isinstance(rule, RewriteRule) else ())}


def _holds_nan(graph: Instance) -> bool:
    """Tell whether a constant of a graph has elements that are no numbers."""
    floats = (data for data in graph.constants.values() if data.dtype.kind == "f")
    return any(np.isnan(data).any() for data in floats)


def _is_open(graph: Instance, manner: Manner) -> bool:
    """Tell whether the standard leaves open what a graph makes of odd numbers.

    A float out of range is anything as a whole number. NaN has no place in an order, and none is
    the largest of no numbers.
    """
    operators = {node.op_type for node in graph.nodes}
    if (manner == "nan" or _is_empty(graph)) and operators & ORDERING:
        return True
    casts = (node.attributes.get("to") for node in graph.nodes if node.op_type == "Cast")
    floats = (data for data in graph.constants.values() if data.dtype.kind == "f" and data.size)
    is_far = manner in {"wide", *ODDITIES} or any(np.abs(data).max() > _FAR for data in floats)
    return is_far and any(to in _WHOLE_TYPES for to in casts)


def _types_of(graph: Instance) -> dict[str, str]:
    """Return the element types of what a graph reads."""
    types = {name: dtype for name, (dtype, _) in graph.inputs.items()}
    return types | {name: str(data.dtype) for name, data in graph.constants.items()}


def _rounds_by_cast(graph: Instance) -> bool:
    """Tell whether a Cast has fewer digits than what it reads; of inner values, than any float."""
    types = {name: _DIGITS.get(dtype, math.inf) for name, dtype in _types_of(graph).items()}
    casts = [
        (node.inputs[0], _DIGITS.get(dtype_name(to), math.inf))
        for node in graph.nodes
        if node.op_type == "Cast" and isinstance(to := node.attributes.get("to"), int)
    ]
    floats = [n for n in (*types.values(), *(digits for _, digits in casts)) if n < math.inf]
    most = max(floats, default=0)
    return any(digits < types.get(read, most) for read, digits in casts)


def _is_empty(graph: Instance) -> bool:
    """Tell whether something that a graph reads has no elements."""
    shapes = [shape for _, shape in graph.inputs.values()]
    return any(0 in shape for shape in [*shapes, *(d.shape for d in graph.constants.values())])


_WHOLE_TYPES = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
_WHOLE_NAMES = frozenset(map(dtype_name, _WHOLE_TYPES))


def _scale(arrays: Iterable[Array], results: Outputs) -> float:
    """Return the largest number around: differences far below it come of rounding."""
    scale = _LEAST_SCALE
    for array in [*arrays, *(leaf.data for leaves in results.values() for leaf in leaves)]:
        if array.dtype.kind == "f":
            finite = np.abs(array[np.isfinite(array)].astype(np.float64))
            scale = max(scale, float(finite.max(initial=0.0)))
    return scale


def _is_quantised(graph: Instance) -> bool:
    return any("Linear" in node.op_type or "Integer" in node.op_type for node in graph.nodes)


class _Disagreement(NamedTuple):
    """Where two results differ.

    Attributes:
        where: The first such element, and what it is; "" if they agree.
        is_free: Whether they differ where the original is no number, and any result is right.
        is_lost: Whether a number became none there, or infinite.
    """

    where: str = ""
    is_free: bool = False
    is_lost: bool = False


def _disagreement(
    ours: Outputs, theirs: Outputs, scale: float, manner: Manner, graph: Instance
) -> _Disagreement:
    """Compare two results.

    Where the original is no number, the result may be anything; where it is infinite, too, if
    nothing infinite is fed and the result is finite, or if large numbers are fed. What is quantised
    may be one step off: the last bit before a rounding is a step after it.
    """
    is_free, in_steps = False, _is_quantised(graph)
    is_half = any(dtype == "float16" for dtype, _ in graph.inputs.values())
    least = _FLOATS["float16"] if is_half else _DOUBLE
    for name, leaves in ours.items():
        for mine, its in zip(leaves, theirs.get(name, ()), strict=False):
            if (mine.dtype, mine.data.shape) != (its.dtype, its.data.shape):
                kinds = [f"{x.dtype}[{','.join(map(str, x.data.shape))}]" for x in (mine, its)]
                return _Disagreement(f"{name} is {kinds[1]} instead of {kinds[0]}")
            relative, absolute = max(_FLOATS.get(mine.dtype, _DOUBLE), least)
            if mine.data.dtype.kind != "f":
                different = np.asarray(mine.data != its.data)
                if in_steps and mine.data.dtype.itemsize == 1 and mine.data.dtype.kind != "b":
                    gap = np.abs(mine.data.astype(np.int16) - its.data.astype(np.int16))
                    different = np.asarray(gap > 1)
            else:
                with np.errstate(invalid="ignore", over="ignore"):
                    a, b = mine.data.astype(np.float64), its.data.astype(np.float64)
                    far = ~(np.abs(a - b) <= absolute * scale + relative * np.abs(a))
                    far |= np.isinf(a) & (a != b)
                    far &= (a != b) & ~(np.isnan(a) & np.isnan(b))
                    may_overflow = np.isfinite(b) & (manner != "inf") | (manner == "edges")
                    is_lost = np.isnan(b) & (manner == "inf")  # an infinity minus another
                    free = np.isnan(a) | (np.isinf(a) & (may_overflow | is_lost))
                    is_free |= bool((far & free).any())
                    different = np.asarray(far & ~free)
            if different.any():
                at = tuple(int(axis) for axis in np.argwhere(different)[0])
                place = f"{name}[{','.join(map(str, at))}]" if at else name
                where = f"{place} is {its.data[at]:.6g} instead of {mine.data[at]:.6g}"
                is_real = mine.data.dtype.kind == "f"
                lost = is_real and np.isfinite(mine.data[at]) and not np.isfinite(its.data[at])
                return _Disagreement(where, is_free, bool(lost))
    return _Disagreement(is_free=is_free)


def _is_rounding(
    graph: Instance, before: bytes, after: bytes, feed: Mapping[str, Array], scale: float
) -> bool | None:
    """Tell whether the difference is gone in float64, unless a Cast to fewer digits matters.

    None if the evaluator does not run them.
    """
    from dplcli.verify.float64 import wide_feed, widened  # noqa: PLC0415  # slow to load

    if _rounds_by_cast(graph):
        return False
    wide = {name: wide_feed(array) for name, array in feed.items()}
    try:
        ours, theirs = (_runner(widened(each), "evaluator").run(wide) for each in (before, after))
    except (RunError, VerificationError, ValueError):
        return None
    scale = _scale([np.array([scale])], ours)
    return not _disagreement(ours, theirs, scale, "mixed", Instance()).where


# Counterexamples: the smallest graph on which a rule is still wrong.


_MOST_STEPS = 400
_ALL: tuple[Manner, ...] = (*_USUAL, *_BY_TURNS, "edges", *_ODD)


def _refuted(rule: AnyRule, made: _Made, wrong: str) -> Trial:
    """Return the failed trial of *rule*, with a graph that cannot be made smaller."""
    steps = 0
    smallest, why = made, wrong
    first, last = rule.opsets
    if (first or 0) <= DEFAULT_OPSET <= (last or DEFAULT_OPSET):  # it goes without saying
        usual = made._replace(opset=DEFAULT_OPSET)
        if still := _Attempts(rule).on(usual, manners=_ALL):
            smallest, why, made = usual, still, usual
    candidates = sampling.simpler(smallest.graph)
    seen: set[str] = {repr(smallest.graph)}
    while steps < _MOST_STEPS and (graph := next(candidates, None)) is not None:
        if repr(graph) in seen:
            continue
        seen.add(repr(graph))
        steps += 1
        smaller = made._replace(graph=graph)
        still = _Attempts(rule).on(smaller, manners=_ALL)
        if still:
            smallest, why = smaller, still
            candidates = sampling.simpler(graph)
    model = build_model(smallest.graph, smallest.opset)
    text = "" if model is None else text_of_model(model)
    return Trial(rule, "made up", "1 graph", "failed", why, graphs=1, counterexample=text)
