"""Try rules out: on their own examples, and on graphs made up for their patterns."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from dplcli.dpl.instance import NoInstanceError, instances
from dplcli.dpl.lint import Problem
from dplcli.dpl.rule import PatternRule, RewriteRule
from dplcli.errors import DplError, InvalidModelError, VerificationError
from dplcli.files import temporary_folder
from dplcli.onnx_io import check_model, to_proto
from dplcli.onnx_io.build import DEFAULT_OPSET, build_model, model_from_text
from dplcli.passes.canonical import same_structure
from dplcli.passes.loops import RewriteLimitError
from dplcli.passes.partition import partition
from dplcli.passes.rewriting import rewrite
from dplcli.passes.selection import select_matches
from dplcli.pipeline.verifying import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dplcli.dpl import Rejection
    from dplcli.dpl.instance import Instance
    from dplcli.dpl.rule import Example, Rule
    from dplcli.ir import Model, SchemaLibrary

    AnyRule: TypeAlias = PatternRule | RewriteRule
    Verdict: TypeAlias = Literal["passed", "failed", "not tried"]

_OWN_MOST = 100
_MOST_RUNS = 6


class Trial(NamedTuple):
    """One attempt at a rule.

    Attributes:
        rule: The rule.
        kind: "example" or "made up".
        place: Where the example is written, or which variant of the pattern was made up.
        verdict: "passed", "failed", or "not tried" (nothing could be made up).
        reason: Why it failed or was not tried, or how far the numbers moved.
    """

    rule: AnyRule
    kind: Literal["example", "made up"]
    place: str
    verdict: Verdict
    reason: str = ""


class Trier:
    """Tries rules.

    Args:
        schemas: The standard operators.
    """

    def __init__(self, schemas: SchemaLibrary) -> None:
        """Use *schemas* to make graphs up."""
        self.schemas = schemas

    def trials(self, rule: AnyRule) -> Iterator[Trial]:
        """Run the examples of *rule*, then try it on each variant of its pattern."""
        for number, example in enumerate(rule.examples, start=1):
            place = example.origin or f"example {number}"
            yield Trial(rule, "example", place, *_judged(partial(_run_example, rule, example)))
        if isinstance(rule, RewriteRule) and rule.text is None:
            reason = "only its examples can show what a function does"
            yield Trial(rule, "made up", "variant 1", "not tried", reason)
            return
        try:
            for number, guesses in enumerate(instances(rule, self.schemas), start=1):
                yield _trial_of(rule, f"variant {number}", guesses)
        except NoInstanceError as error:
            yield Trial(rule, "made up", "variant 1", "not tried", str(error))

    # -- conflicts -----------------------------------------------------------------------------

    def find_conflicts(self, rules: Sequence[AnyRule]) -> list[Problem]:
        """Look for rules that cannot be reached, and for rewrites without an end."""
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
        """Yield the models of the examples of *rule* that it takes."""
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
        """Make up one model for each variant of the pattern of *rule* that it takes."""
        if isinstance(rule, RewriteRule) and rule.is_nodewise:
            return
        try:
            for guesses in instances(rule, self.schemas):
                fitting = _fitting(rule, guesses)
                yield from itertools.islice((again for _, again in fitting), 1)
        except NoInstanceError:
            return


def _trial_of(rule: AnyRule, place: str, guesses: Iterator[Instance]) -> Trial:
    """Try *rule* on the first guess that onnxruntime runs as it is."""
    reason = "no graph was found that the pattern and all conditions fit"
    for before, after in itertools.islice(_fitting(rule, guesses), _MOST_RUNS):
        try:
            wrong = _run_made_up(rule, before, after)
        except VerificationError as error:
            reason = f"onnxruntime runs none of the graphs made up: {error.message}"
            continue
        except DplError as error:
            wrong = error.message
        return Trial(rule, "made up", place, "failed" if wrong else "passed", wrong)
    return Trial(rule, "made up", place, "not tried", reason)


def _fitting(rule: AnyRule, guesses: Iterator[Instance]) -> Iterator[tuple[Model, Model]]:
    """Yield the guesses that are models and that *rule* takes, each twice: to keep, to change."""
    opset = _opset_of(rule)
    for guess in guesses:
        model, again = build_model(guess, opset), build_model(guess, opset)
        if model is not None and again is not None and _takes(rule, model):
            yield model, again


def _opset_of(rule: Rule) -> int:
    first, last = rule.opsets
    opset = DEFAULT_OPSET if last is None else min(last, DEFAULT_OPSET)
    return max(opset, first or 0)


def _takes(rule: AnyRule, model: Model) -> bool:
    return bool(select_matches(model, [rule]).matches)


def _judged(trial: Callable[[], str]) -> tuple[Verdict, str]:
    """Run *trial*, which returns what went wrong or ""."""
    try:
        wrong = trial()
    except DplError as error:
        wrong = error.message
    return ("failed", wrong) if wrong else ("passed", "")


def _run_example(rule: AnyRule, example: Example) -> str:
    before = model_from_text(example.before, "before")
    after = model_from_text(example.before, "before")
    changed, why_not = _apply(rule, after)
    if example.after == "unchanged":
        return "the rule matches, though the example says unchanged" if changed else ""
    if not changed:
        return f"the rule does not match{why_not}"
    wrong = _difference(before, after)
    if wrong or example.after == "any":
        return wrong
    try:
        expected = model_from_text(example.after, "after")
    except InvalidModelError as error:
        return error.message
    return "" if same_structure(after, expected) else "the result is another one than the example's"


def _run_made_up(rule: AnyRule, before: Model, after: Model) -> str:
    changed, why_not = _apply(rule, after)
    if not changed:
        return f"the rule does not apply to a graph made up for it{why_not}"
    return _difference(before, after)


def _apply(rule: AnyRule, model: Model) -> tuple[bool, str]:
    """Apply *rule*; tell whether it did anything, and what was said against it."""
    if isinstance(rule, PatternRule):
        selection = select_matches(model, [rule])
        return bool(partition(model, selection)), _objection(selection.refused)
    done = rewrite(model, [rule])
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
    if result.equivalent:
        return ""
    worst = next((o for o in result.outputs if not o.ok), None)
    found = "; ".join(result.reasons) if worst is None else f"{worst.name} moved by {worst.max_abs}"
    return f"the result is not equivalent: {found}"


def _shadowed(rule: AnyRule, earlier: Sequence[AnyRule], models: Sequence[Model]) -> list[Problem]:
    """Report a rule whose every variant is taken, at least in part, by one that comes before."""
    culprits: dict[str, None] = {}
    for model in models:
        taking = next((e for e in earlier if _is_free(e) and _overlap(e, rule, model)), None)
        if taking is None:
            return []
        culprits[taking.qualified_name] = None
    if not culprits:
        return []
    names = ", ".join(culprits)
    message = f"can never match: {names}, listed before, takes its nodes"
    return [Problem("warning", rule.qualified_name, rule.origin, message)]


def _is_free(rule: Rule) -> bool:
    """Tell whether *rule* takes whatever its pattern fits: a function may leave it."""
    if isinstance(rule, RewriteRule) and rule.text is None:
        return False
    return not rule.where and rule.check is None and rule.opsets == (None, None)


def _overlap(first: AnyRule, second: AnyRule, model: Model) -> bool:
    taken = {n for match in select_matches(model, [first]).matches for n in match.nodes}
    wanted = {n for match in select_matches(model, [second]).matches for n in match.nodes}
    return not taken.isdisjoint(wanted)


def _endless(
    rule: RewriteRule, rules: Sequence[RewriteRule], models: Sequence[Model]
) -> list[Problem]:
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
