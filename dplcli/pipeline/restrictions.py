"""Where rules may be tried: ``RULE``, ``RULE@NODE`` or ``@NODE``, as users write it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import UsageError, did_you_mean
from dplcli.passes.rewriting import Narrowed, Restriction
from dplcli.pipeline.inspecting import find_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl import RewriteRule
    from dplcli.ir import Model, Node


class NotedRestrictions(Narrowed):
    """Restrictions that remember which of them said something."""

    def __init__(
        self, only: Sequence[Restriction], skip: Sequence[Restriction], limit: int | None
    ) -> None:
        """Restrict a rewrite."""
        super().__init__(only, skip, limit)
        self._idle = {item for item in skip if item.node}

    def admits(self, rule: RewriteRule, root: Node) -> bool:
        """Tell whether the restrictions let *rule* be tried at *root*."""
        if self._idle:
            self._idle -= {item for item in self._idle if item.covers(rule, root)}
        return super().admits(rule, root)

    def may_try(self, rule: RewriteRule) -> bool:
        """Tell whether the restrictions let *rule* be tried anywhere."""
        names = {"", rule.name, rule.qualified_name}
        if self.only and not any(item.rule in names for item in self.only):
            return False
        return not any(item.rule in names and not item.node for item in self.skip)

    def notes(self) -> list[str]:
        """Say which nodes were to be skipped and never came up: a name may be misspelt."""
        return [
            f"--skip {item.rule}@{item.node}: this never came up"
            for item in self.skip
            if item in self._idle
        ]


def parse_restrictions(
    option: str, texts: Sequence[str], rules: Sequence[RewriteRule], model: Model
) -> list[Restriction]:
    """Read what an option says.

    Args:
        option: The option, for messages; the nodes of --only must be there.
        texts: What it was given.
        rules: The rules there are.
        model: The model, not yet edited.

    Raises:
        UsageError: One is malformed, or names a rule or a node that is not there.
    """
    known = {name for rule in rules for name in (rule.name, rule.qualified_name)}
    return [_parse(option, text, known, model) for text in texts]


def _parse(option: str, text: str, known: set[str], model: Model) -> Restriction:
    rule, separator, node = text.partition("@")
    if not (rule or node) or (separator and not node):
        raise UsageError(f"{option} {text!r}: names nothing", hint="write RULE, RULE@NODE or @NODE")
    if rule and rule not in known:
        hint = did_you_mean(rule, sorted(known)) or f"there are: {', '.join(sorted(known))}"
        raise UsageError(f"{option} {text!r}: there is no rule {rule!r}", hint=hint)
    if node and option == "--only":
        try:
            find_nodes(model, node)
        except UsageError as error:
            raise UsageError(f"{option} {text!r}: {error.message}", hint=error.hint) from error
    return Restriction(rule, node)
