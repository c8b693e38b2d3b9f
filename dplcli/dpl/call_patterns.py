"""Patterns of nodes and of their outputs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from dplcli.dpl.callee import Callee, FunctionName, FunctionPattern
from dplcli.dpl.combinators import Combinators
from dplcli.dpl.written import AttributeValue, Place, attribute_value, spelled_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.dpl.pattern import DFPattern

    Spell: TypeAlias = Callable[[DFPattern], str]

WAIVED = "_"
"""What ``**_`` binds: attributes that a replacement may lose."""


@dataclass(frozen=True)
class OpPattern:
    """A callee: one of several operators or functions, preferred ones first."""

    choices: tuple[Callee, ...]

    def __or__(self, other: OpPattern) -> OpPattern:
        """Accept either callee."""
        return OpPattern(self.choices + tuple(c for c in other.choices if c not in self.choices))

    def __call__(self, *args: Any, **attributes: object) -> CallPattern:  # noqa: ANN401  # see Args
        """Match a node of this operator with exactly these inputs.

        Args:
            args: One pattern per input; a number is a constant, None an omitted input, ``...`` as
                the last one any further inputs, and one :func:`unordered` all of them.
            attributes: Attributes that must be equal, defaults included.

        Raises:
            TypeError: An argument is none of these.
        """
        from dplcli.dpl.builders import call_pattern  # noqa: PLC0415  # they build on this module

        return call_pattern(self, args, attributes)

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """The patterns inside its function patterns."""
        functions = (c for c in self.choices if isinstance(c, FunctionPattern))
        return tuple(part for function in functions for part in function.parts)

    def spelled(self, spell: Spell) -> str:
        """``Conv`` or ``(Add | Sub)``."""
        text = self.alternatives(spell)
        return text if len(self.choices) == 1 else f"({text})"

    def alternatives(self, spell: Spell) -> str:
        """``Conv`` or ``Add | Sub``, without brackets."""
        return " | ".join(
            c.spelled_with(spell) if isinstance(c, FunctionPattern) else c.spelled()
            for c in self.choices
        )


@dataclass(frozen=True, eq=False, repr=False)
class CallPattern(Combinators):
    """A node: its operator, inputs and attributes.

    As a value it is the node's output 0; ``pattern[1]`` is output 1.

    Attributes:
        op: The callee.
        args: One pattern per input.
        rest: Whether further inputs may follow.
        is_unordered: Whether the inputs may come in any order, whatever the operator.
        attributes: What must be equal after defaults are filled in.
        attributes_name: Name that binds all attributes not named; "_" waives them, "" leaves
            them free.
        bodies: By attribute name, patterns for the results of the node's bodies.
        name: Name of the node, which is also that of its output 0, or "".
        output_names: Names of the outputs from 1 on, "" for those without.
        place: Where it stands in the text.
    """

    op: OpPattern
    args: tuple[DFPattern, ...] = ()
    rest: bool = False
    is_unordered: bool = False
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    attributes_name: str = ""
    bodies: tuple[tuple[str, tuple[DFPattern, ...]], ...] = ()
    name: str = ""
    output_names: tuple[str, ...] = ()
    place: Place | None = None

    def __getitem__(self, index: int) -> OutputPattern:
        """Match output *index* of the node.

        Raises:
            IndexError: A negative index: how many outputs a node has is not known.
        """
        if index < 0:
            raise IndexError("outputs are counted from the first one")
        return OutputPattern(self, index)

    def outputs(self, *names: str) -> tuple[DFPattern, ...]:
        """Name the first outputs, "" for those without, and return a pattern for each.

        The first of them is the node itself, which is a new pattern object.
        """
        node = replace(self, name=names[0], output_names=names[1:])
        return (node, *(OutputPattern(node, index) for index in range(1, len(names))))

    def has_attr(self, attributes: Mapping[str, object]) -> CallPattern:
        """Return a pattern that also demands these attributes; it is a new pattern object.

        Raises:
            TypeError: A value is no number, string, or list of them.
        """
        merged = dict(self.attributes) | {k: attribute_value(v) for k, v in attributes.items()}
        return replace(self, attributes=tuple(merged.items()))

    def bind_attrs(self, name: str = WAIVED) -> CallPattern:
        """Return a pattern that binds all attributes not named; it is a new pattern object."""
        return replace(self, attributes_name=name)

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """Patterns of functions called, arguments, then results of bodies."""
        results = tuple(result for _, of_body in self.bodies for result in of_body)
        return (*self.op.parts, *self.args, *results)

    @property
    def own_line(self) -> str:
        """``conv``, or ``y, mean`` where further outputs have names."""
        if not self.output_names:
            return self.name
        return ", ".join(name or "_" for name in (self.name, *self.output_names))

    def spelled(self, spell: Spell) -> str:
        """``Conv(x, w, group=1, **attrs)``."""
        if self.bodies:
            return f"if_({', '.join([spell(self.args[0]), *self._branches(spell)])})"
        args = [spell(arg) for arg in self.args]
        if self.is_unordered:
            args = [f"unordered({', '.join(args)})"]
        return self._spelled_with(spell, args)

    def _branches(self, spell: Spell) -> list[str]:
        texts = [", ".join(map(spell, results)) for _, results in self.bodies]
        return [
            text if len(results) == 1 else f"({text})"
            for text, (_, results) in zip(texts, self.bodies, strict=True)
        ]

    def _spelled_with(self, spell: Spell, args: list[str]) -> str:
        items = [*args, *(["..."] if self.rest else []), *spelled_attributes(self.attributes)]
        if self.attributes_name:
            items.append(f"**{self.attributes_name}")
        if len(self.op.choices) == 1 and isinstance(self.op.choices[0], FunctionName):
            return f"call({', '.join([json.dumps(self.op.choices[0].name), *items])})"
        return f"{self.op.spelled(spell)}({', '.join(items)})"

    def spelled_as_option(self, spell: Spell) -> str:
        """``optional(Add)(base, b)``: this node, or its first argument alone."""
        text = self._spelled_with(spell, [spell(arg) for arg in self.args])
        return f"optional({self.op.alternatives(spell)}){text.removeprefix(self.op.spelled(spell))}"


@dataclass(frozen=True, eq=False, repr=False)
class OutputPattern(Combinators):
    """One output of the node that *node* matches."""

    node: CallPattern
    index: int
    name: str = ""
    place: Place | None = None

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """The node."""
        return (self.node,)

    @property
    def is_shareable(self) -> bool:
        """Two that mean the same output of the same node are the same."""
        return False

    @property
    def given_name(self) -> str:
        """The name that the node gives to this output."""
        names = (self.node.name, *self.node.output_names)
        return names[self.index] if self.index < len(names) else ""

    def spelled(self, spell: Spell) -> str:
        """``node[1]``, or its name."""
        if self.index and self.given_name:
            return self.given_name
        return f"{spell(self.node)}[{self.index}]"
