"""Try rules: on their own examples, and on graphs made up for their patterns.

A rewrite is tried on many graphs: plain ones, graphs drawn at random (`sampling`), and the examples
with something changed. Each is run before and after. A graph on which the two differ is made
smaller as long as they still differ, and becomes the counterexample.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from dplcli.catalog.lint import Problem
from dplcli.catalog.sketch import NoInstanceError, instances, sketches
from dplcli.dpl.replacement import RewriteRule
from dplcli.dpl.rule import PatternRule
from dplcli.errors import DplError, InvalidModelError, VerificationError, counted
from dplcli.files import temporary_folder
from dplcli.ir.model import called_function
from dplcli.ir.traversal import behind_identities
from dplcli.ir.types import Tensor
from dplcli.onnx_io import check_model, to_proto
from dplcli.onnx_io.bounded import made_by_dpl
from dplcli.onnx_io.infer import objection_to
from dplcli.onnx_io.read import (
    DEFAULT_OPSET,
    build_model,
    model_from_text,
    text_of_model,
)
from dplcli.outcomes import Trial
from dplcli.passes.partition import partition
from dplcli.passes.rewrite import RewriteLimitError, rewrite
from dplcli.passes.select import select_matches
from dplcli.pipeline.sampling import (
    DeadEndError,
    Sampler,
    changed_at_random,
    instance_of,
    simpler,
    wishes_of,
)
from dplcli.pipeline.verifying import compare
from dplcli.settings import TrialSettings
from dplcli.verify.settings import Execution, ModelSource, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.catalog.sketch import Instance
    from dplcli.dpl import Rejection
    from dplcli.dpl.rule import Example, Rule
    from dplcli.ir import Attribute, Graph, Model, SchemaLibrary, Value
    from dplcli.pipeline.sampling import Wishes
    from dplcli.verify.settings import Outputs

    Form: TypeAlias = tuple[Hashable, ...]
    AnyRule: TypeAlias = PatternRule | RewriteRule
    Array: TypeAlias = NDArray[Any]


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
    number_of = {value: _number(("input", place), numbers) for place, value in enumerate(inputs)}
    for node in graph:
        reads = tuple(-1 if v is None else _of(v, number_of, numbers) for v in node.inputs)
        attributes = tuple(sorted((name, _value(a)) for name, a in node.attributes.items()))
        shape = (node.domain, node.op_type, reads, attributes)
        for output in node.outputs:
            if output is not None:
                number_of[output] = _number((*shape, output.index), numbers)
    return [_of(value, number_of, numbers) for value in graph.outputs]


def _of(value: Value, number_of: dict[Value, int], numbers: dict[Form, int]) -> int:
    origin = behind_identities(value)
    tensor = origin.constant
    if tensor is not None:
        data = (tensor.dtype, tensor.shape, str(tensor.numpy().tolist()))
        return _number(("constant", *data), numbers)
    if origin not in number_of:
        number_of[origin] = _number(("outside", origin.name), numbers)
    return number_of[origin]


def _number(form: Form, numbers: dict[Form, int]) -> int:
    return numbers.setdefault(form, len(numbers))


def _value(attribute: Attribute) -> str:
    if isinstance(attribute.value, Tensor):
        return str(attribute.value.numpy().tolist())
    return f"{attribute.ref}{attribute.value!r}"


# Trying rules: on their own examples, and on graphs made up for their patterns.


DEFAULT_TRIALS: int = TrialSettings.options["trials"].default
"""On how many graphs each rewrite is tried, unless somebody says."""

_OWN_MOST = 100
_MOST_RUNS = 6
_HOPELESS = 120
_DRAWS_FOR_ONE = 10
_DARING_AFTER = 20


class _Made(NamedTuple):
    """A graph that was made up.

    Attributes:
        graph: The graph.
        opset: The opset it is of.
        is_varied: Whether it is an example with something changed: it may hold numbers that no
            model holds, such as a negative epsilon, which kernels refuse loudly.
    """

    graph: Instance
    opset: int
    is_varied: bool = False


_Source: TypeAlias = "Callable[[float], _Made | None]"
"""Makes a graph up, as far from the usual as the number from 0 to 1 says; None for a dead end."""


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
            for number, guesses in enumerate(instances(rule, self.schemas), start=1):
                trials.append(_trial_of(rule, f"variant {number}", guesses))
        except NoInstanceError:
            pass
        return [trial for trial in trials if trial.verdict != "not tried"]

    # -- rewrites ------------------------------------------------------------------------------

    @made_by_dpl()
    def _proved(self, rule: AnyRule, wanted: int) -> Trial:
        """Try *rule* on *wanted* graphs, or up to the first on which it is wrong."""
        random = np.random.default_rng([self.seed, zlib.crc32(rule.qualified_name.encode())])
        attempts = _Attempts(rule)
        sources, why = self._sources(rule, random)
        drawn, useful = [0] * len(sources), [0] * len(sources)
        turn = 0
        while attempts.applied < wanted and turn < _DRAWS_FOR_ONE * wanted + _HOPELESS:
            live = [n for n in range(len(sources)) if useful[n] or drawn[n] < _HOPELESS]
            if not live:
                break
            which, before = live[turn % len(live)], attempts.applied
            turn += 1
            drawn[which] += 1
            made = sources[which](min(1.0, max(before, turn / _DRAWS_FOR_ONE) / _DARING_AFTER))
            wrong = "" if made is None else attempts.on(made, random)
            useful[which] += attempts.applied - before
            if made is not None and wrong:
                return _refuted(rule, made, wrong)
        if attempts.applied:
            place = counted(attempts.applied, "graph")
            return Trial(rule, "made up", place, "passed", graphs=attempts.applied)
        return Trial(rule, "made up", "no graph", "not tried", attempts.blocked(why))

    def _sources(self, rule: AnyRule, random: np.random.Generator) -> tuple[list[_Source], str]:
        """Return where graphs for *rule* come from, and why there are no others."""
        sources: list[_Source] = []
        opset, wishes, why = _opset_of(rule), wishes_of(rule), ""
        if isinstance(rule, RewriteRule) and rule.is_nodewise:
            why = "it has no pattern, so graphs are made of its examples only"
        else:
            try:
                for guesses in instances(rule, self.schemas):
                    sources.append(_plain(guesses, opset))  # noqa: PERF401  # it may stop half-way
                for sketch, outputs in sketches(rule, self.schemas):
                    sampler = Sampler(sketch, wishes, self.schemas, opset, random)
                    sources.append(_sampled(sampler, outputs))
            except NoInstanceError as error:
                why = str(error)
        for example in rule.examples:
            if example.after != "unchanged":
                sources += _varied(example, wishes, self.schemas, random)
        return sources, why

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


def unknown_operator(before: Model, after: Model, schemas: SchemaLibrary) -> str:
    """Say which operator of *after* alone onnxruntime does not have; "" if it has all."""
    operators = {node.qualified_op for node in before.graph}
    for node in after.graph:
        is_known = node.qualified_op in operators or called_function(node) is not None
        if not is_known and node.op_type not in schemas.op_types(node.domain):
            return f"onnxruntime has no {node.qualified_op}"
    return ""


def _trial_of(rule: AnyRule, place: str, guesses: Iterator[Instance]) -> Trial:
    """Try *rule* on the first guess that onnxruntime runs."""
    reason = "no graph was found that all conditions fit"
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
        return Trial(rule, "made up", place, "failed" if wrong else "passed", wrong, graphs=1)
    return Trial(rule, "made up", place, "not tried", reason)


def _fitting(rule: AnyRule, guesses: Iterator[Instance]) -> Iterator[tuple[Model, Model]]:
    """Yield the guesses that *rule* matches, each as two models: one to keep, one to change."""
    opset = _opset_of(rule)
    for guess in guesses:
        model = build_model(guess, opset)
        if model is not None and _takes(rule, model):  # few are: only they are built again
            again = build_model(guess, opset)
            if again is not None:
                yield model, again


def _opset_of(rule: Rule) -> int:
    first, last = rule.opsets
    return max(first or 0, min(last or DEFAULT_OPSET, DEFAULT_OPSET))


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
    culprits = []
    for model in models:
        # A rule that takes all that its pattern fits; a function may decline.
        taking = next(
            (
                e
                for e in earlier
                if (
                    not (isinstance(e, RewriteRule) and e.text is None)
                    and (not e.where and e.check is None and e.opsets == (None, None))
                )
                and _overlap(e, rule, model)
            ),
            None,
        )
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


def _plain(guesses: Iterator[Instance], opset: int) -> _Source:
    few = itertools.islice(guesses, _MOST_RUNS)

    def draw(_: float) -> _Made | None:
        guess = next(few, None)
        return None if guess is None else _Made(guess, opset)

    return draw


def _sampled(sampler: Sampler, outputs: Sequence[str]) -> _Source:
    def draw(daring: float) -> _Made | None:
        sampler.daring = daring
        try:
            return _Made(sampler.draw(outputs), sampler.opset)
        except DeadEndError:
            return None

    return draw


def _varied(
    example: Example, wishes: Wishes, schemas: SchemaLibrary, random: np.random.Generator
) -> list[_Source]:
    try:
        model = model_from_text(example.before, "before")
        graph = instance_of(model)
    except (InvalidModelError, DeadEndError):  # the example says so, or has bodies
        return []
    opset = model.graph.opset_imports.get("", DEFAULT_OPSET)

    def draw(_: float) -> _Made | None:
        varied = changed_at_random(graph, wishes, schemas, opset, random)
        return _Made(varied, opset, is_varied=True)

    return [draw]


# One rule on one graph: what it makes of it, and whether both compute the same.


_RUN_LIMIT = Execution(timeout=60.0)
_FEEDS = 2
_FLOATS = {"float16": (2e-2, 1e-2), "bfloat16": (1e-1, 5e-2), "float32": (3e-4, 3e-5)}
_DOUBLE = (1e-6, 1e-6)  # attributes are of 32 bits
_NARROWER = frozenset({1, 10, 16})


@dataclass
class _Attempts:
    """What became of one rule on one graph after the other.

    Attributes:
        rule: The rule.
        applied: On how many graphs it was tried.
        refusals: Why it did not apply to others.
        objections: What onnxruntime says of others.
    """

    rule: AnyRule
    applied: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    objections: Counter[str] = field(default_factory=Counter)

    def on(self, made: _Made, random: np.random.Generator) -> str:
        """Try the rule on a graph; return what is wrong, or ""."""
        model = build_model(made.graph, made.opset)
        if model is None:
            return ""
        before = to_proto(model).SerializeToString()
        try:
            changed, why_not = _apply(self.rule, model, most=_OWN_MOST)
        except RewriteLimitError as error:
            return error.message
        except DplError as error:
            return f"the rule fails: {error.message}"
        if not changed:
            self.refusals[why_not.removeprefix(": ") or "the pattern does not fit"] += 1
            return ""
        feeds = [_numbers_for(made.graph, random, turn) for turn in range(_FEEDS)]
        runs = self._runs_as_declared(before, feeds, model)
        return self._compared(made, model, before, feeds, runs) if runs else ""

    def _runs_as_declared(
        self, content: bytes, feeds: Sequence[Mapping[str, Array]], model: Model
    ) -> list[Outputs]:
        """Run the graph; return nothing if onnxruntime refuses, or makes other sizes than onnx."""
        try:
            runs = _runs(content, feeds)
        except (RunError, VerificationError) as error:
            self.objections[str(error)] += 1
            return []
        declared = [value.known_type() for value in model.graph.outputs]
        shapes = [leaves[0].data.shape for leaves in runs[0].values()]
        if [kind and kind.shape for kind in declared] == shapes:
            return runs
        self.objections["it makes other sizes than onnx says"] += 1
        return []

    def _compared(
        self,
        made: _Made,
        model: Model,
        before: bytes,
        feeds: Sequence[dict[str, Array]],
        runs: Sequence[Outputs],
    ) -> str:
        """Compare what the graph and the result compute; return what is wrong, or ""."""
        after = to_proto(model).SerializeToString()
        objection = objection_to(after)
        invalid = f"the result is not valid: {objection}" if objection else ""
        try:
            results = _runs(after, feeds)
        except (RunError, VerificationError) as error:
            # kernels of other domains refuse numbers that no model holds, and say so loudly
            if invalid or not (made.is_varied or any(node.domain for node in model.graph)):
                return invalid or f"onnxruntime runs the graph, but not the result: {error}"
            self.objections[f"not the result: {error}"] += 1
            return ""
        self.applied += 1
        in_steps = _is_quantised(made.graph)
        for feed, ours, theirs in zip(feeds, runs, results, strict=True):
            # The largest number around: differences far below it come of rounding.
            arrays = [*made.graph.constants.values(), *feed.values()]
            arrays += [leaf.data for leaves in ours.values() for leaf in leaves]
            scale = 1e-6
            for array in arrays:
                if array.dtype.kind == "f":
                    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
                    scale = max(scale, float(finite.max(initial=0.0)))
            wrong = _disagreement(ours, theirs, scale, in_steps=in_steps)
            if wrong and not _is_rounding(made.graph, before, after, feed, scale):
                return wrong
        return invalid

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


def _runs(content: bytes, feeds: Sequence[Mapping[str, Array]]) -> list[Outputs]:
    from dplcli.verify.run import Runner  # noqa: PLC0415  # loads onnxruntime, elsewhere

    runner = Runner(ModelSource(Path("made_up.onnx"), content, execution=_RUN_LIMIT), "disable")
    return [runner.run(feed) for feed in feeds]


def _numbers_for(graph: Instance, random: np.random.Generator, turn: int) -> dict[str, Array]:
    """Draw inputs: of both signs, with zeros, small and large ones by turns."""
    bent = {"Clip", "Cast", "QuantizeLinear"} & {node.op_type for node in graph.nodes}
    whole = _is_quantised(graph)
    scales = [1.0, 10.0, 0.03, 1.0] + ([400.0] if bent else [])
    arrays: dict[str, Array] = {}
    for name, (dtype, shape) in graph.inputs.items():
        if dtype == "bool":
            arrays[name] = np.asarray(random.random(shape) < 0.5)  # noqa: PLR2004  # half
            continue
        if np.dtype(dtype).kind in "iu":
            limits = np.iinfo(dtype)
            low, high = (limits.min, limits.max) if limits.bits == 8 and whole else (-4, 5)  # noqa: PLR2004
            arrays[name] = random.integers(max(low, limits.min), high, shape).astype(dtype)
            continue
        scale = scales[int(random.integers(len(scales)))] if turn else 1.0
        numbers = random.normal(0, scale, shape)
        numbers = np.where(random.random(shape) < 0.1, 0.0, numbers)  # noqa: PLR2004  # a few
        arrays[name] = numbers.astype(dtype)
    return arrays


def _is_quantised(graph: Instance) -> bool:
    return any("Linear" in node.op_type or "Integer" in node.op_type for node in graph.nodes)


def _disagreement(ours: Outputs, theirs: Outputs, scale: float, *, in_steps: bool = False) -> str:
    """Say where the results differ; "" if they do not.

    Where the original is no number the result may be anything. What is quantised (*in_steps*) may
    be one step off: the last bit before a rounding is a step after it.
    """
    for name, leaves in ours.items():
        for mine, its in zip(leaves, theirs.get(name, ()), strict=False):
            if (mine.dtype, mine.data.shape) != (its.dtype, its.data.shape):
                kinds = [f"{x.dtype}[{','.join(map(str, x.data.shape))}]" for x in (mine, its)]
                return f"{name} is {kinds[1]} instead of {kinds[0]}"
            relative, absolute = _FLOATS.get(mine.dtype, _DOUBLE)
            if mine.data.dtype.kind != "f":
                different = np.asarray(mine.data != its.data)
                if in_steps and mine.data.dtype.itemsize == 1 and mine.data.dtype.kind != "b":
                    gap = np.abs(mine.data.astype(np.int16) - its.data.astype(np.int16))
                    different = np.asarray(gap > 1)
            else:
                with np.errstate(invalid="ignore", over="ignore"):
                    a, b = mine.data.astype(np.float64), its.data.astype(np.float64)
                    far = ~(np.abs(a - b) <= absolute * scale + relative * np.abs(a))
                    different = np.asarray(far & (a != b) & ~np.isnan(a))
            if different.any():
                at = tuple(int(axis) for axis in np.argwhere(different)[0])
                place = f"{name}[{','.join(map(str, at))}]" if at else name
                return f"{place} is {its.data[at]:.6g} instead of {mine.data[at]:.6g}"
    return ""


def _is_rounding(
    graph: Instance, before: bytes, after: bytes, feed: Mapping[str, Array], scale: float
) -> bool:
    """Tell whether the difference is gone in float64, unless the types themselves matter."""
    from dplcli.verify.float64 import wide_feed, widened  # noqa: PLC0415  # slow to load
    from dplcli.verify.run import Runner  # noqa: PLC0415  # as above

    if any(n.op_type == "Cast" and n.attributes.get("to") in _NARROWER for n in graph.nodes):
        return False
    wide = {name: wide_feed(array) for name, array in feed.items()}
    differences = []
    try:
        for content in (before, after):
            name = Path("made_up.onnx")
            source = ModelSource(name, widened(content), execution=_RUN_LIMIT)
            differences.append(Runner(source, "disable", "float64").run(wide))
    except (RunError, VerificationError, ValueError):
        return False
    return not _disagreement(differences[0], differences[1], scale)


# Counterexamples: the smallest graph on which a rule is still wrong.


_MOST_STEPS = 400


def _refuted(rule: AnyRule, made: _Made, wrong: str) -> Trial:
    """Return the failed trial of *rule*, with a graph that cannot be made smaller."""
    steps = 0
    smallest, why = made, wrong
    candidates = simpler(smallest.graph)
    seen: set[str] = {repr(smallest.graph)}
    while steps < _MOST_STEPS and (graph := next(candidates, None)) is not None:
        if repr(graph) in seen:
            continue
        seen.add(repr(graph))
        steps += 1
        smaller = made._replace(graph=graph)
        still = _Attempts(rule).on(smaller, np.random.default_rng(0))
        if still:
            smallest, why = smaller, still
            candidates = simpler(graph)
    model = build_model(smallest.graph, smallest.opset)
    text = "" if model is None else text_of_model(model)
    return Trial(rule, "made up", "1 graph", "failed", why, graphs=1, counterexample=text)
