"""Rules: a pattern with a name, conditions and policies; and the matches that they find."""

from __future__ import annotations

import operator
import re
from collections import ChainMap
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    get_args,
    overload,
)

from dplcli.errors import PatternSyntaxError, UsageError, did_you_mean, did_you_mean_rule, opt
from dplcli.ir import Attribute, Node, Value
from dplcli.keys import keys
from dplcli.language.conditions import Expression
from dplcli.language.matcher import BoundNames, Matcher
from dplcli.language.pattern import DFPattern, OpPattern, OutputsPattern, VariadicPattern
from dplcli.language.text import attribute_names, bound_names, captures_of, check_roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dplcli.ir import Graph
    from dplcli.language.conditions import Bound, Condition
    from dplcli.language.matcher import Demand, InputRun, State
    from dplcli.language.pattern import OpName, TextPosition

    Check: TypeAlias = "Callable[[Match], Rejection | None]"

    Locate: TypeAlias = Callable[[TextPosition], str]

    SomeRule = TypeVar("SomeRule", bound="Rule")


Opsets: TypeAlias = tuple[int | None, int | None]

RESERVED_METADATA = frozenset({"Codegen", "PartitionedFromPattern", "dpl.nodes", "dpl.undo"})
"""Metadata keys that a partition alone writes; a rule may give another ``Composite``."""

ConstantsPolicy: TypeAlias = Literal["auto", "embed", "lift"]
EscapePolicy: TypeAlias = Literal["refuse", "duplicate", "outputs"]
RewriteEscapePolicy: TypeAlias = Literal["keep", "refuse"]
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


@keys(
    "name=qualified_name origin for_each=values doc pattern where=conditions opsets "
    "examples=examples.len kind priority=stated_priority?"
)
@dataclass(frozen=True)
class Rule:
    """What both kinds of rules have: those that outline and those that replace.

    Attributes:
        target: Who implements what it finds; the domain of the functions written (``dnnl``).
        name: Its name (``conv2d_bias_relu``).
        pattern: What to find.
        where: Conditions over the names of the pattern; all must hold.
        check: A function for what conditions cannot say: returns None or ``match.reject(reason)``.
        escape: What to do if something outside reads an inner value: refuse the match, or, in a
            rule that outlines, duplicate the inner nodes (if all their readers lead to the root)
            or make the value an output, or, in one that replaces, keep what is read.
        order: Whether consumers come first (Relay's ``partition``) or producers (Relax's
            ``FuseOpsByPattern``), where a later match absorbs those that it contains.
        doc: What it is, for a reader.
        origin: File and line it was written at, or "".
        examples: Models that show what it does.
        locate: Turns a place in the pattern's text into file, line and column.
        opsets: First and last opset of the standard operators it holds for; None is no bound.
        priority: Rules of a higher one come first; of rules of one priority, those listed first.
        unused: Names of lines in the pattern's text that the pattern does not need.
        values: The value of each variable of ``for_each`` that a catalogue made the rule for.
    """

    kind: ClassVar[Literal["pattern", "rewrite"]]
    target: str
    name: str
    pattern: DFPattern
    _: KW_ONLY
    where: tuple[Condition, ...] = ()
    check: Check | None = None
    escape: EscapePolicy | RewriteEscapePolicy = "refuse"
    order: OrderPolicy = "outermost"
    doc: str = ""
    origin: str = ""
    examples: tuple[Example, ...] = ()
    locate: Locate | None = None
    opsets: Opsets = (None, None)
    priority: int = 0
    unused: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what never matches, and conditions over names that the pattern does not bind.

        Raises:
            PatternSyntaxError: The pattern makes no sense, or a condition uses such a name.
        """
        if isinstance(self.pattern, OpPattern):
            raise PatternSyntaxError(
                f"the pattern of the rule {self.name!r} is an operator that is not called",
                hint=f"{self.pattern.as_code()}(x) is a node that reads x",
            )
        if not isinstance(self.pattern, DFPattern):
            raise PatternSyntaxError(
                f"the pattern of the rule {self.name!r} is {self.pattern!r}, which is no pattern",
                hint='is_op("Relu")(wildcard("x")) is one; texts are for YAML',
            )
        if not self.is_nodewise:
            check_roots(self.pattern)
        if any(isinstance(condition, str) for condition in self.where):
            raise PatternSyntaxError(
                f"where of the rule {self.name!r} is a text, {self.where!r}",
                hint='a condition is an object: where=(Condition("x.rank == 4"),)',
            )
        names, captures = bound_names(self.pattern), captures_of(self.pattern)
        where = tuple(condition.over(captures) for condition in self.where)
        object.__setattr__(self, "where", where)
        for expression in (*where, *self.computed.values()):
            expression.check_names(names | attribute_names(self.pattern))

    def holds_for(self, graph: Graph) -> bool:
        """Tell whether the opset of *graph* is one that the rule holds for."""
        first, last = self.opsets
        version = graph.opset_imports.get("", 0)
        return (first is None or first <= version) and (last is None or version <= last)

    @cached_property
    def qualified_name(self) -> str:
        """The name with the target before it: TVM's ``Composite`` name."""
        return f"{self.target}.{self.name}" if self.target else self.name

    @property
    def computed(self) -> Mapping[str, Expression]:
        """The attributes to compute for each match."""
        return {}

    @property
    def stated_priority(self) -> int | None:
        """Its priority, if it is not that of most rules."""
        return self.priority or None

    def outranking(self, other: Rule) -> str:
        """Say of which priority it is, behind its name, if that is why it comes before *other*."""
        return f", whose priority is {self.priority}," if self.priority > other.priority else ""

    @property
    def conditions(self) -> list[str]:
        """The conditions, as text."""
        return [condition.text for condition in self.where]

    @property
    def producers_first(self) -> bool:
        """Whether the search goes in program order."""
        return self.order == "program" or isinstance(self.pattern, OutputsPattern)

    @cached_property
    def matcher(self) -> Matcher:
        """The compiled pattern.

        Raises:
            PatternSyntaxError: The pattern makes no sense.
        """
        return Matcher(self.pattern, binds_all=self.has_code, keeps_defaults=self.keeps_defaults)

    @cached_property
    def demand(self) -> Demand:
        """What a graph must have for the pattern to match in it."""
        return self.matcher.program.demand

    @property
    def has_code(self) -> bool:
        """Whether a Python function looks at its matches."""
        return self.check is not None

    @property
    def is_nodewise(self) -> bool:
        """Whether a function looks at nodes one by one, and the pattern says nothing."""
        return False

    @property
    def keeps_defaults(self) -> bool:
        """Whether attributes that the pattern does not name must have their default."""
        return False

    def place(self, part: DFPattern) -> str:
        """Say where *part* of the pattern is written: ``rules.yaml:12:9``, or "" if unknown."""
        if part.place is None:
            return self.origin
        if self.locate is None:
            return f"line {part.place.line}, column {part.place.column + 1}"
        return self.locate(part.place)


def by_priority(rules: Iterable[SomeRule]) -> list[SomeRule]:
    """Return *rules* in the order in which they are tried."""
    return sorted(rules, key=lambda rule: -rule.priority)


@keys("... target constants escape order attrs=metadata")
@dataclass(frozen=True, kw_only=True)
class PatternRule(Rule):
    """A kind of subgraph to find and to outline (TVM's ``FusionPattern``).

    Attributes:
        constants: Which constants go into the function's body: those that a ``const(…)`` leaf
            matched (auto), all (embed) or none (lift).
        metadata: Further metadata for the function. A text that begins with ``=`` is an expression
            over the names of the pattern (``= alpha.value``), and an attribute of each call.
    """

    kind = "pattern"
    constants: ConstantsPolicy = "auto"
    metadata: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def computed(self) -> Mapping[str, Expression]:
        """The attributes to compute for each match.

        Raises:
            PatternSyntaxError: One is no expression.
        """
        captures = captures_of(self.pattern)
        return {
            name: Expression(f" {text[1:]}", f"attrs.{name}", captures)
            for name, text in self.metadata.items()
            if text.startswith("=")
        }

    def with_policies(self, **policies: str) -> Self:
        """Return the same rule with other :data:`POLICIES`; the pattern is not compiled again."""
        rule = replace(self, **policies)  # type: ignore[arg-type]  # callers pass what there is
        vars(rule)["matcher"] = self.matcher  # as cached_property keeps it
        return rule


# Policies that a user sets instead of a rule's own: ``lift``, or ``dnnl.conv2d_relu=lift``.


POLICIES: dict[str, tuple[str, ...]] = {
    "constants": get_args(ConstantsPolicy),
    "escape": get_args(EscapePolicy),
    "order": get_args(OrderPolicy),
}
"""The values of each policy."""


def with_policies(rules: Sequence[SomeRule], wanted: Mapping[str, Sequence[str]]) -> list[SomeRule]:
    """Return *rules*; those that outline get the policies that are wanted instead of their own.

    Args:
        rules: The rules.
        wanted: Entries for names of :data:`POLICIES`. Each is ``VALUE``, for every rule that
            outlines, or ``RULE=VALUE``, for one rule; the latter wins. A rule is named with its
            target or without.

    Raises:
        UsageError: An entry is malformed, contradicts another, or names a rule that is not
            there or does not outline.
    """
    changes: dict[str, dict[str, str]] = {}
    for policy, texts in wanted.items():
        for name, value in _read_policy(policy, texts, rules).items():
            changes.setdefault(name, {})[policy] = value
    return [_with_policies(rule, changes.get(rule.qualified_name, {})) for rule in rules]


def _with_policies(rule: SomeRule, wanted: dict[str, str]) -> SomeRule:
    """Return *rule* with the policies *wanted*; itself where it states them already."""
    different = {key: value for key, value in wanted.items() if getattr(rule, key) != value}
    return rule.with_policies(**different) if isinstance(rule, PatternRule) and different else rule


def _read_policy(policy: str, texts: Iterable[str], rules: Sequence[Rule]) -> dict[str, str]:
    """Return the value of *policy* for each rule that *texts* name, by qualified name."""
    for_all: dict[str, str] = {}
    for_one: dict[str, str] = {}
    for text in [texts] if isinstance(texts, str) else texts:
        name, value = _split_policy(policy, text)
        values = for_one if name else for_all
        for qualified in _rules_meant(f"--{policy} {text!r}", name, rules):
            if values.setdefault(qualified, value) != value:
                other = f"{values[qualified]!r}" + (f" for {qualified}" if name else "")
                raise UsageError(
                    f"--{policy} {text!r}: contradicts {other}", hint="pass one of them"
                )
    return for_all | for_one


def _split_policy(policy: str, text: str) -> tuple[str, str]:
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
        names = [n for rule in rules for n in (rule.name, rule.qualified_name)]
        hint = did_you_mean_rule(name, names)
        raise UsageError(f"{option}: there is no rule {name!r}", hint=hint)
    outlining = [rule.qualified_name for rule in meant if isinstance(rule, PatternRule)]
    if not outlining:
        problem = f"the rule {name!r} replaces" if name else "the rules replace"
        raise UsageError(f"{option}: {problem}, so there is nothing to outline")
    return outlining


# Demands on the number of matches, such as ``dnnl.conv2d_bias_relu>=33``.


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


def read_expectation(text: str) -> Expectation | None:
    """Read an expectation such as ``dnnl.conv2d_bias_relu>=33``; None if it is none."""
    parts = _EXPECTATION.match(text)
    if parts is None:
        return None
    rule, relation, number = parts.groups()
    return Expectation(text.strip(), rule, relation, int(number))


def parse_expectations(texts: Iterable[str], rules: Sequence[Rule]) -> list[Expectation]:
    """Read expectations such as ``dnnl.conv2d_bias_relu>=33``.

    Raises:
        UsageError: One is malformed, or names a rule that the catalogues do not have.
    """
    names = {rule.qualified_name for rule in rules}
    expectations = []
    for text in texts:
        expectation = read_expectation(text)
        if expectation is None:
            raise UsageError(
                f"{opt('expect')} {text!r}: not an expectation",
                hint="write RULE>=NUMBER, or <= == > <",
            )
        if expectation.rule not in names:
            raise UsageError(
                f"{opt('expect')} {text!r}: there is no rule {expectation.rule!r}",
                hint=did_you_mean_rule(expectation.rule, sorted(names)),
            )
        expectations.append(expectation)
    return expectations


class JudgedExpectation(NamedTuple):
    """An expectation, and what was found.

    Attributes:
        rule: The rule.
        text: The expectation, as it was given.
        found: How many matches the rule has.
        is_met: Whether that is as expected.
    """

    rule: str
    text: str
    found: int
    is_met: bool

    def __str__(self) -> str:
        """Say it in a sentence."""
        return f"expected {self.text}, found {self.found}"


def judge_expectations(
    expected: Iterable[Expectation], counts: Mapping[str, int]
) -> tuple[JudgedExpectation, ...]:
    """Hold what was found against each expectation."""
    return tuple(
        JudgedExpectation(item.rule, item.text, counts[item.rule], item.is_met(counts))
        for item in expected
    )


def unmet_of(expected: Iterable[JudgedExpectation]) -> tuple[str, ...]:
    """Return a sentence for each expectation that is not met."""
    return tuple(str(item) for item in expected if not item.is_met)


# What a search finds: matches, and why some are refused.


Stage: TypeAlias = Literal["where", "check", "escape", "convexity", "overlap", "budget", "prune"]


class RootedMatch(NamedTuple):
    """A match by its rule and root."""

    rule: Rule
    root: Node


@keys("rule scope=root.scope root nodes bindings=named")
@dataclass(eq=False, repr=False, slots=True)
class Match:
    """One place where a rule's pattern fits; it does not change.

    Attributes:
        rule: The rule.
        root: The node that makes the pattern's (first) output.
        nodes: The nodes matched, in topological order, Identity nodes between them included.
        bindings: What each name of the pattern is bound to: a leaf's value, or output 0 of a
            named node; names that took no part are missing.
        constants: The constants that ``const(…)`` and number leaves matched.
        attributes: What each ``**name`` is bound to.
        operators: What each operator variable stands for.
        runs: Which inputs each ``*name`` is bound to.
        outputs: The values of the pattern's outputs.
        escaping: Inner values that something outside reads, where the rule allows that.
        slots: What each step of the compiled pattern is bound to.
    """

    rule: Final[Rule]
    root: Final[Node]
    nodes: Final[tuple[Node, ...]]
    bindings: Final[Mapping[str, Value]]
    constants: Final[tuple[Value, ...]]
    attributes: Final[Mapping[str, Mapping[str, Attribute]]]
    outputs: Final[tuple[Value, ...]]
    escaping: Final[tuple[Value, ...]] = ()
    slots: Final[tuple[object, ...]] = ()
    operators: Final[Mapping[str, OpName]] = field(default_factory=dict)
    runs: Final[Mapping[str, InputRun]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Name the rule and the root."""
        return f"<Match of {self.rule.qualified_name} at {self.root.op_type} {self.root.label!r}>"

    def with_escaping(self, escaping: tuple[Value, ...]) -> Match:
        """Return the same match with other escaping values."""
        return replace(self, escaping=escaping)

    @property
    def bound(self) -> Mapping[str, Bound]:
        """What each name of an expression stands for."""
        single: Mapping[str, Bound] = self.bindings
        if self.runs:
            single = BoundNames(self.bindings, self.runs)
        return ChainMap({**self.attributes}, single) if self.attributes else single  # type: ignore[arg-type]  # nobody writes to it

    @property
    def variadic(self) -> Mapping[str, tuple[Value, ...]]:
        """The inputs that each ``*name`` is bound to."""
        return {name: run.values for name, run in self.runs.items()}

    @property
    def place(self) -> RootedMatch:
        """The rule and the root."""
        return RootedMatch(self.rule, self.root)

    @property
    def named(self) -> Mapping[str, Value]:
        """What each name is bound to that is no name of an attribute, in order."""
        names = self.bindings.keys() - captures_of(self.rule.pattern).keys()
        return {name: self.bindings[name] for name in sorted(names)}

    @property
    def roots(self) -> tuple[Node, ...]:
        """The nodes that make the outputs, each once."""
        if len(self.outputs) == 1:
            return (self.root,)
        makers = (value.producer for value in self.outputs)
        return tuple(dict.fromkeys(node for node in makers if node is not None))

    def value(self, pattern: DFPattern | str) -> Value | None:
        """Return what a pattern object of the rule, or a name, is bound to.

        None if it took no part. A node pattern is bound to its output 0.

        Raises:
            KeyError: The rule's pattern does not contain it, or does not bind it.
        """
        if isinstance(pattern, str):
            return self.bindings.get(pattern)
        step = self.rule.matcher.program.steps.get(id(pattern))
        if step is None:
            raise KeyError(f"the rule {self.rule.name!r} does not contain {pattern!r}")
        values = step.bound_values_in(self.slots)
        return values[0] if values else None

    @overload
    def __getitem__(self, key: OpPattern) -> OpName: ...

    @overload
    def __getitem__(self, key: VariadicPattern) -> tuple[Value, ...]: ...  # type: ignore[overload-overlap]  # it is no single value

    @overload
    def __getitem__(self, key: DFPattern | str) -> Value: ...

    def __getitem__(self, key: DFPattern | OpPattern | str) -> Value | tuple[Value, ...] | OpName:
        """Return what a pattern object is bound to, or the value of a name: ``match["x"]``.

        An operator variable is bound to an operator, a :func:`rest` to inputs.

        Raises:
            KeyError: It took no part in the match, or the rule's pattern does not bind it.
        """
        several: Mapping[str, tuple[Value, ...] | OpName] = {}
        if isinstance(key, OpPattern):
            several = self.operators
        elif isinstance(key, VariadicPattern):
            several = self.variadic
        if not isinstance(key, str) and key.name in several:
            return several[key.name]
        if isinstance(key, OpPattern):
            what = f"{key.as_code()} is no operator variable of the rule {self.rule.name!r}"
            raise KeyError(f'{what}: name it, {key.as_code()}.named("f")')
        value = self.value(key)
        for word, bound in (("operators", self.operators), ("variadic", self.runs)):
            if value is None and key in bound:
                raise KeyError(f"{key!r} is no single value: it is in match.{word}[{key!r}]")
        if isinstance(key, str) and key not in bound_names(self.rule.pattern):
            raise KeyError(f"the rule {self.rule.name!r} binds no name {key!r}")
        if value is None:
            raise KeyError(f"{key!r} took no part in this match of {self.rule.name!r}")
        return value

    def node(self, pattern: DFPattern | str) -> Node | None:
        """Return the node that makes what *pattern* is bound to; None if there is none."""
        bound = self.value(pattern)
        return None if bound is None else bound.producer

    def reject(self, reason: str, at: Value | Node | None = None) -> Rejection:
        """Refuse the match, from a rule's ``check`` function."""
        return Rejection(self.rule, self.root, "check", reason, self.root if at is None else at)


_POSITION = attrgetter("position")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


Outlook: TypeAlias = Literal["mend", "open", "none"]
"""What a reader can do about a refusal: something, perhaps something, nothing."""

_MENDED = ("escape", "budget", "prune")
"""Stages of refusals that another option undoes."""


@keys("rule root stage reason at", columns="rule root stage reason:prose")
class Rejection(NamedTuple):
    """Why a match at *root* was refused.

    Attributes:
        rule: The rule.
        root: The node it fits at.
        stage: Which test it failed.
        reason: What the test found, for a reader.
        at: The value or node concerned.
        unranked: The value whose rank would have to be known to tell.
        condition: The condition that does not hold.
        bound: What its names stand for.
        is_open: Whether the condition may hold once more is known of the model, or less names it.
    """

    rule: Rule
    root: Node
    stage: Stage
    reason: str
    at: Value | Node | None = None
    unranked: Value | None = None
    condition: Condition | None = None
    bound: Mapping[str, Bound] = MappingProxyType({})
    is_open: bool = False

    @property
    def outlook(self) -> Outlook:
        """Whether a reader can do something about it."""
        if self.is_open or self.stage in _MENDED:
            return "mend"
        return "none" if self.stage == "where" else "open"

    @property
    def facts(self) -> list[str]:
        """What the condition asks about, for a reader."""
        return [] if self.condition is None else self.condition.facts_of(self.bound)


def read_match(rule: Rule, root: Node, state: State) -> Match | None:
    """Copy a solution out of *state*; None if an output is not made by a node of the match.

    That happens if the root is an Identity that is looked through, or if an output is a leaf. Two
    outputs that are one value are no match either.
    """
    if root not in state.claimed:
        return None
    program = rule.matcher.program
    outputs = program.outputs(state)
    if len(outputs) > 1:
        distinct = len(set(outputs)) == len(outputs)
        if not distinct or any(value.producer not in state.claimed for value in outputs):
            return None
    slots = state.slots
    nodes = state.claimed
    repeated: list[Value] = []
    if state.noted:
        nodes = nodes.union(thing for thing in state.noted if isinstance(thing, Node))
        repeated = [thing for thing in state.noted if isinstance(thing, Value)]
    return Match(
        rule,
        root,
        tuple(sorted(nodes, key=_POSITION)),
        program.bindings(slots),
        _constants(rule, slots, repeated),
        program.bound_attributes(slots) if program.attribute_names else _NOTHING,
        outputs,
        slots=tuple(slots),
        operators=program.bound_operators(slots) if program.operators else _NOTHING,
        runs=program.bound_inputs(slots) if program.variadic else _NOTHING,
    )


def _constants(rule: Rule, slots: list[object], repeated: list[Value]) -> tuple[Value, ...]:
    """Return the values that only constant leaves matched; a wildcard's are lifted."""
    program = rule.matcher.program
    if not program.constant_slots:
        return ()
    by_other = {slots[slot] for slot in program.other_slots}
    each = dict.fromkeys([*(slots[slot] for slot in program.constant_slots), *repeated])
    return tuple([v for v in each if isinstance(v, Value) and v not in by_other])
