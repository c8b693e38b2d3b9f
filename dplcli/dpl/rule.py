"""Rules: a pattern with a name, conditions and a policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from dplcli.dpl.conditions import Condition, bound_names
from dplcli.dpl.matcher import Matcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.dpl.pattern import DFPattern

RESERVED_METADATA = frozenset({"Composite", "Codegen", "PartitionedFromPattern", "dpl.nodes"})
"""Metadata keys that a partition writes itself."""

ConstantsPolicy: TypeAlias = Literal["auto", "embed", "lift"]


@dataclass(frozen=True)
class PatternRule:
    """A kind of subgraph to find and to outline (TVM's ``FusionPattern``).

    Attributes:
        target: Who implements it; the domain of the functions written (``dnnl``).
        name: Name of the functions written (``conv2d_bias_relu``).
        pattern: What to find.
        where: Conditions over the names of the pattern; all must hold.
        constants: Which constants go into the function's body: those that a ``const(…)`` leaf
            matched (auto), all (embed) or none (lift).
        doc: What it is, for a reader.
        metadata: Further metadata for the function.
        origin: File and line it was written at, or "".
    """

    target: str
    name: str
    pattern: DFPattern
    where: tuple[Condition, ...] = ()
    constants: ConstantsPolicy = "auto"
    doc: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""

    def __post_init__(self) -> None:
        """Refuse conditions over names that the pattern does not bind.

        Raises:
            PatternSyntaxError: A condition names something unbound.
        """
        names = bound_names(self.pattern)
        for condition in self.where:
            condition.check_names(names)

    @property
    def qualified_name(self) -> str:
        """``dnnl.conv2d_bias_relu``: TVM's ``Composite`` name."""
        return f"{self.target}.{self.name}"

    @cached_property
    def matcher(self) -> Matcher:
        """The compiled pattern."""
        return Matcher(self.pattern)
