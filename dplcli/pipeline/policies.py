"""Policies of rules, as a user overrides them: ``lift``, or ``dnnl.conv2d_relu=lift``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar, get_args

from dplcli.dpl.rule import ConstantsPolicy, EscapePolicy, OrderPolicy, PatternRule
from dplcli.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.dpl.rule import Rule

    SomeRule = TypeVar("SomeRule", bound=Rule)


POLICIES: dict[str, tuple[str, ...]] = {
    "constants": get_args(ConstantsPolicy),
    "escape": get_args(EscapePolicy),
    "order": get_args(OrderPolicy),
}
"""What each policy may be."""


@dataclass(frozen=True, kw_only=True)
class Policies:
    """Policies to use instead of those that the rules state.

    Each entry is ``VALUE``, for every rule that outlines, or ``RULE=VALUE``, for one rule, which
    counts more. A rule is named with its target or without.

    Attributes:
        constants: Which constants go into the functions' bodies.
        escape: What if something outside reads a value inside a match.
        order: Which matches come first.
    """

    constants: Sequence[str] = ()
    escape: Sequence[str] = ()
    order: Sequence[str] = ()

    def apply_to(self, rules: Sequence[SomeRule]) -> list[SomeRule]:
        """Return *rules*, those that outline with the policies asked for.

        Raises:
            UsageError: An entry is malformed, contradicts another, or names a rule that is not
                there or does not outline.
        """
        changes: dict[str, dict[str, str]] = {}
        for policy in fields(self):
            for name, value in _read_policy(policy.name, getattr(self, policy.name), rules).items():
                changes.setdefault(name, {})[policy.name] = value
        return [_changed(rule, changes.get(rule.qualified_name, {})) for rule in rules]


def _changed(rule: SomeRule, wanted: dict[str, str]) -> SomeRule:
    """Return *rule* with the policies *wanted*; itself where it states them already."""
    different = {key: value for key, value in wanted.items() if getattr(rule, key) != value}
    if not isinstance(rule, PatternRule) or not different:
        return rule
    return rule.with_policies(**different)  # type: ignore[arg-type]  # values were checked


def _read_policy(policy: str, texts: Iterable[str], rules: Sequence[Rule]) -> dict[str, str]:
    """Return what *policy* shall be, by qualified name of each rule that a text is about."""
    for_all: dict[str, str] = {}
    for_one: dict[str, str] = {}
    for text in [texts] if isinstance(texts, str) else texts:
        name, value = _split(policy, text)
        known = for_one if name else for_all
        for qualified in _rules_meant(f"--{policy} {text!r}", name, rules):
            if known.setdefault(qualified, value) != value:
                other = f"{known[qualified]!r}" + (f" for {qualified}" if name else "")
                raise UsageError(
                    f"--{policy} {text!r}: contradicts {other}", hint="pass one of them"
                )
    return for_all | for_one


def _split(policy: str, text: str) -> tuple[str, str]:
    """Take ``RULE=VALUE`` or ``VALUE`` apart."""
    name, separator, value = text.rpartition("=")
    allowed = POLICIES[policy]
    if separator and not name:
        raise UsageError(f"--{policy} {text!r}: names no rule", hint="write RULE=VALUE, or VALUE")
    if value not in allowed:
        hint = did_you_mean(value, allowed) or f"there are: {', '.join(allowed)}"
        raise UsageError(f"--{policy} {text!r}: there is no policy {value!r}", hint=hint)
    return name, value


def _rules_meant(option: str, name: str, rules: Sequence[Rule]) -> list[str]:
    """Return the qualified names of the rules that *name* stands for; all for ""."""
    meant = [rule for rule in rules if name in {"", rule.name, rule.qualified_name}]
    if not meant:
        known = [n for rule in rules for n in (rule.name, rule.qualified_name)]
        there = [rule.qualified_name for rule in rules if isinstance(rule, PatternRule)]
        hint = did_you_mean(name, known) or f"there are: {', '.join(there)}"
        raise UsageError(f"{option}: there is no rule {name!r}", hint=hint)
    outlining = [rule.qualified_name for rule in meant if isinstance(rule, PatternRule)]
    if not outlining:
        problem = f"the rule {name!r} replaces" if name else "the rules replace"
        raise UsageError(f"{option}: {problem}, so there is nothing to outline")
    return outlining
