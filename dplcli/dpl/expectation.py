"""Demands on the number of matches, such as ``dnnl.conv2d_bias_relu>=33``."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplcli.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dplcli.dpl.rule import Rule

_EXPECTATION = re.compile(r"^\s*([\w.]+)\s*(>=|<=|==|=|>|<)\s*([0-9]{1,9})\s*$")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Expectation:
    """A demand on the number of matches of a rule."""

    text: str
    rule: str
    relation: str
    number: int

    def is_met(self, counts: Mapping[str, int]) -> bool:
        """Tell whether *counts* satisfy it."""
        return _COMPARE[self.relation](counts[self.rule], self.number)


def parse_expectations(texts: Iterable[str], rules: Sequence[Rule]) -> list[Expectation]:
    """Read expectations such as ``dnnl.conv2d_bias_relu>=33``.

    Raises:
        UsageError: One is malformed, or names a rule that the catalogues do not have.
    """
    known = {rule.qualified_name for rule in rules}
    expectations = []
    for text in texts:
        found = _EXPECTATION.match(text)
        if found is None:
            raise UsageError(
                f"--expect {text!r}: not an expectation", hint="write RULE>=NUMBER, or <= == > <"
            )
        rule, relation, number = found.groups()
        if rule not in known:
            raise UsageError(
                f"--expect {text!r}: there is no rule {rule!r}",
                hint=did_you_mean(rule, sorted(known)),
            )
        expectations.append(Expectation(text.strip(), rule, relation, int(number)))
    return expectations


def unmet_expectations(
    expected: Iterable[Expectation], counts: Mapping[str, int]
) -> tuple[str, ...]:
    """Say of each expectation that is not met what was found instead."""
    return tuple(
        f"expected {item.text}, found {counts[item.rule]}"
        for item in expected
        if not item.is_met(counts)
    )
