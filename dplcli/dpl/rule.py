"""Rules: a pattern with a name, conditions and a policy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from dplcli.dpl.lost_attributes import FIRST_OPSET
from dplcli.dpl.matcher import Matcher
from dplcli.dpl.nodewise import (
    is_far_sighted,
    is_nodewise,
    nodewise_reach,
    operators_of,
)
from dplcli.dpl.pattern import CallPattern, EdgePattern, OutputsPattern
from dplcli.dpl.reach import reach_of
from dplcli.dpl.replacement import Captured, Replacement, new_nodes
from dplcli.dpl.scoping import all_parts, bound_names
from dplcli.errors import PatternSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.dpl.conditions import Condition
    from dplcli.dpl.draft import RewriteFunction
    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.pattern import DFPattern, Place
    from dplcli.ir import Graph

    Opsets: TypeAlias = tuple[int | None, int | None]
    Check: TypeAlias = Callable[[Match], Rejection | None]
    Locate: TypeAlias = Callable[[Place], str]

RESERVED_METADATA = frozenset(
    {"Composite", "Codegen", "PartitionedFromPattern", "dpl.nodes", "dpl.undo"}
)
"""Metadata keys that a partition writes itself."""

ConstantsPolicy: TypeAlias = Literal["auto", "embed", "lift"]
EscapePolicy: TypeAlias = Literal["refuse", "duplicate", "outputs"]
OrderPolicy: TypeAlias = Literal["outermost", "program"]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A model that shows what a rule does.

    Attributes:
        before: The model, as ONNX text.
        after: What becomes of it: "any" (something), "unchanged", or ONNX text.
        origin: File and line it was written at, or "".
    """

    before: str
    after: str = "any"
    origin: str = ""


class Rule:
    """What rules of both kinds can do.

    Attributes:
        name: Its name.
        pattern: What to find.
        where: Conditions over the names of the pattern; all must hold.
        check: What conditions cannot say: returns None, or ``match.reject(reason)``.
        origin: File and line it was written at, or "".
        locate: Turns a place in the pattern's text into file, line and column.
        opsets: First and last opset of the standard operators it holds for; None is no bound.
        unused: Names of lines in the pattern's text that the pattern does not need.
        values: What a catalogue wrote it out for: the value of each variable of ``for_each``.
    """

    name: str
    pattern: DFPattern
    where: tuple[Condition, ...]
    check: Check | None
    escape: EscapePolicy
    order: OrderPolicy
    doc: str
    origin: str
    examples: tuple[Example, ...]
    locate: Locate | None
    opsets: Opsets
    unused: tuple[str, ...]
    values: Mapping[str, str]

    def holds_for(self, graph: Graph) -> bool:
        """Tell whether the opset of *graph* is one that the rule holds for."""
        first, last = self.opsets
        version = graph.opset_imports.get("", 0)
        return (first is None or first <= version) and (last is None or version <= last)

    def check_names(self) -> None:
        """Refuse conditions over names that the pattern does not bind.

        Raises:
            PatternSyntaxError: A condition names something unbound.
        """
        names = bound_names(self.pattern)
        for condition in self.where:
            condition.check_names(names)

    @property
    def qualified_name(self) -> str:
        """What it is called where rules of several catalogues meet."""
        return self.name

    @property
    def producers_first(self) -> bool:
        """Whether its matches are looked for in program order."""
        return self.order == "program" or isinstance(self.pattern, OutputsPattern)

    @cached_property
    def matcher(self) -> Matcher:
        """The compiled pattern.

        Raises:
            PatternSyntaxError: The pattern makes no sense.
        """
        return Matcher(self.pattern, notes_all=self.has_code)

    @property
    def has_code(self) -> bool:
        """Whether a Python function looks at its matches."""
        return self.check is not None

    def place(self, part: DFPattern) -> str:
        """Say where *part* of the pattern is written: ``rules.yaml:12:9``, or "" if unknown."""
        if part.place is None:
            return self.origin
        if self.locate is None:
            return f"line {part.place.line}, column {part.place.column + 1}"
        return self.locate(part.place)


@dataclass(frozen=True)
class PatternRule(Rule):
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
        check: What conditions cannot say: returns None, or ``match.reject(reason)``.
        escape: What if something outside reads an inner value: refuse the match, duplicate the
            inner nodes (if all that reads them leads to the root), or make it an output.
        order: Whether consumers come first (Relay's ``partition``), or producers, a later match
            absorbing those it contains whole (Relax's ``FuseOpsByPattern``).
        examples: Models that show what it does.
        locate: Turns a place in the pattern's text into file, line and column.
        opsets: First and last opset of the standard operators it holds for; None is no bound.
        unused: Names of lines in the pattern's text that the pattern does not need.
        values: What a catalogue wrote it out for: the value of each variable of ``for_each``.
    """

    target: str
    name: str
    pattern: DFPattern
    where: tuple[Condition, ...] = ()
    constants: ConstantsPolicy = "auto"
    doc: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    check: Check | None = None
    escape: EscapePolicy = "refuse"
    order: OrderPolicy = "outermost"
    examples: tuple[Example, ...] = ()
    locate: Locate | None = None
    opsets: Opsets = (None, None)
    unused: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse conditions over names that the pattern does not bind.

        Raises:
            PatternSyntaxError: A condition names something unbound.
        """
        self.check_names()

    @property
    def qualified_name(self) -> str:
        """``dnnl.conv2d_bias_relu``: TVM's ``Composite`` name."""
        return f"{self.target}.{self.name}"

    def with_policies(
        self,
        *,
        constants: ConstantsPolicy | None = None,
        escape: EscapePolicy | None = None,
        order: OrderPolicy | None = None,
    ) -> Self:
        """Return the same rule with other policies; the pattern is not compiled again.

        Args:
            constants: What goes into the function's body; None for what the rule says.
            escape: What if something outside reads an inner value; None likewise.
            order: Whether consumers come first; None likewise.
        """
        made = replace(
            self,
            constants=constants or self.constants,
            escape=escape or self.escape,
            order=order or self.order,
        )
        vars(made)["matcher"] = self.matcher  # as cached_property keeps it
        return made


@dataclass(frozen=True)
class RewriteRule(Rule):
    """A kind of subgraph to find and to put something else in the place of.

    Attributes:
        name: Its name.
        pattern: What to find.
        replacement: What takes its place: a text that was parsed, or a function that describes it
            (:data:`dplcli.dpl.draft.RewriteFunction`), as TVM's ``rewrite_call`` callbacks do.
        where: Conditions over the names of the pattern; all must hold.
        doc: What it is, for a reader.
        origin: File and line it was written at, or "".
        check: What conditions cannot say: returns None, or ``match.reject(reason)``.
        examples: Models that show what it does.
        locate: Turns a place in the pattern's text into file, line and column.
        opsets: First and last opset of the standard operators it holds for; None is no bound.
        unused: Names of lines in the pattern's text that the pattern does not need.
        values: What a catalogue wrote it out for: the value of each variable of ``for_each``.
        once: Whether what it makes is left alone by it (Relay's ``rewrite_once``).
    """

    name: str
    pattern: DFPattern
    replacement: Replacement | RewriteFunction
    where: tuple[Condition, ...] = ()
    doc: str = ""
    origin: str = ""
    check: Check | None = None
    examples: tuple[Example, ...] = ()
    locate: Locate | None = None
    opsets: Opsets = (None, None)
    unused: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    escape: EscapePolicy = field(default="refuse", init=False)
    order: OrderPolicy = field(default="outermost", init=False)

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            PatternSyntaxError: A condition names something unbound, or the replacement has more
                or fewer outputs than the pattern.
        """
        self.check_names()
        if not isinstance(self.replacement, Replacement):
            return
        outputs = self.pattern.outputs if isinstance(self.pattern, OutputsPattern) else ()
        wanted, given = len(outputs) or 1, len(self.replacement.outputs)
        if wanted != given:
            raise PatternSyntaxError(
                f"the pattern has {wanted} output(s) and the replacement {given}"
            )
        _check_own_outputs(outputs or (self.pattern,), self.replacement)

    def holds_for(self, graph: Graph) -> bool:
        """Tell whether the opset of *graph* is one that the rule holds for.

        Before opset 7 operators broadcast in another way; only a rule that says so is for those.
        """
        version = graph.opset_imports.get("", 0)
        if self.opsets[0] is None and 0 < version < FIRST_OPSET:
            return False
        return super().holds_for(graph)

    @property
    def text(self) -> Replacement | None:
        """The replacement, if it is a text."""
        return self.replacement if isinstance(self.replacement, Replacement) else None

    @property
    def has_code(self) -> bool:
        """Whether a Python function looks at its matches."""
        return self.text is None or self.check is not None

    @property
    def becomes(self) -> str:
        """What takes a match's place, for a reader."""
        if isinstance(self.replacement, Replacement):
            return self.replacement.text
        return f"what {getattr(self.replacement, '__name__', 'a function')} makes"

    @cached_property
    def is_nodewise(self) -> bool:
        """Whether a function looks at nodes one by one; the pattern is not asked then."""
        return self.text is None and is_nodewise(self.replacement)

    @property
    def producers_first(self) -> bool:
        """Whether its matches are looked for in program order, as functions without pattern do."""
        return self.is_nodewise or super().producers_first

    @property
    def heads(self) -> frozenset[tuple[str, str]] | None:
        """The operators (domain, type) that its matches are rooted in; None for all."""
        if self.is_nodewise:
            return operators_of(self.replacement)
        return self.matcher.program.root.heads

    @property
    def reach(self) -> int | None:
        """How many nodes above its root a match depends on; None if there is no such number."""
        if is_far_sighted(self.replacement):
            return None
        if self.is_nodewise:
            return nodewise_reach(self.replacement)
        return reach_of(self.pattern)

    @property
    def inner_operators(self) -> frozenset[tuple[str, str]] | None:
        """The operators of the nodes that a match has besides its root; None for any."""
        return None if self.is_nodewise else self.matcher.program.inner_operators

    @property
    def largest_match(self) -> int:
        """The number of nodes that a match has at most, chains, regions and copies aside."""
        return sum(isinstance(part, CallPattern) for part in all_parts(self.pattern))

    @cached_property
    def counts_uses(self) -> bool:
        """Whether a match may depend on how often what it only reads is read."""
        if self.has_code or any(condition.asks_for("uses") for condition in self.where):
            return True
        return any(isinstance(p, EdgePattern) and p.only for p in all_parts(self.pattern))

    def instance(self) -> RewriteFunction | None:
        """Return the function for one run over one model; None if the replacement is a text.

        A class is a function with a memory: each run gets an object of its own.
        """
        if isinstance(self.replacement, Replacement):
            return None
        function = self.replacement
        return function() if isinstance(function, type) else function


def _check_own_outputs(outputs: tuple[DFPattern, ...], replacement: Replacement) -> None:
    """Refuse a replacement that reads what it replaces."""
    made = replacement.outputs
    read = {arg for node in new_nodes(made) for arg in node.args if isinstance(arg, Captured)}
    read |= {part for part in made if isinstance(part, Captured)}
    for output, part in zip(outputs, made, strict=True):
        own = Captured(output.name)
        if output.name and own in read and part != own:
            raise PatternSyntaxError(f"the replacement reads {output.name!r}, which it replaces")
