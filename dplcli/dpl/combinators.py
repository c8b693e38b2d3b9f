"""Operators and methods that every pattern has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dplcli.dpl.spelling import spell_pattern

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from dplcli.dpl.pattern import (
        AndPattern,
        CallPattern,
        DFPattern,
        DominatorPattern,
        EdgePattern,
        NotPattern,
        OrPattern,
        Place,
        SameShapePattern,
        TypedPattern,
    )
    from dplcli.ir import Dim


class Combinators:
    """A pattern: compared by what it reads, combined by operators and methods.

    Attributes:
        name: What it binds, or "".
        place: Where it stands in a text, if it was read from one.
        needs_brackets: Whether its text must stand in brackets beside an operator or a method.
    """

    name: str
    place: Place | None
    needs_brackets = False

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """The patterns it is directly made of, left to right, each as often as it occurs."""
        return ()

    @property
    def own_line(self) -> str:
        """The left side of the assignment that names it, or ""."""
        return self.name if self.parts else ""

    @property
    def is_shareable(self) -> bool:
        """Whether using one object twice differs from using two equal ones."""
        return True

    @property
    def folded(self) -> tuple[DFPattern, DFPattern] | None:
        """A part that can be left out of the text, and what of it is then mentioned once less."""
        return None

    def spelled(self, spell: Callable[[DFPattern], str]) -> str:
        """Write it down, its parts by *spell*."""
        raise NotImplementedError

    def spelled_folded(self, spell: Callable[[DFPattern], str]) -> str:
        """Write it down without the part that :attr:`folded` names."""
        return self.spelled(spell)

    def __repr__(self) -> str:
        """Read as the text form."""
        return spell_pattern(self)

    def __eq__(self, other: object) -> bool:
        """Compare what both read."""
        if self is other:
            return True
        return isinstance(other, Combinators) and repr(self) == repr(other)

    def __hash__(self) -> int:
        """Hash what it reads."""
        return hash(repr(self))

    @property
    def _me(self) -> DFPattern:
        return cast("DFPattern", self)

    # -- operators -----------------------------------------------------------------------------

    def __or__(self, other: Any) -> OrPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match either; this one is tried first."""
        return builders.either(self._me, other)

    def __and__(self, other: Any) -> AndPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match both at the same value."""
        return builders.both(self._me, other)

    def __invert__(self) -> NotPattern:
        """Match what this does not match."""
        return builders.negation(self._me)

    def __xor__(self, other: DFPattern) -> EdgePattern:
        """Match *other* where it uses this (Relax's ``a ^ b``)."""
        return builders.edge(self._me, other)

    def __rshift__(self, other: DFPattern) -> EdgePattern:
        """Match *other* where it uses this, and nothing else does (Relax's ``a >> b``)."""
        return builders.edge(self._me, other, only=True)

    def __add__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``Add``."""
        return builders.is_op("Add")(self, other)

    def __sub__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``Sub``."""
        return builders.is_op("Sub")(self, other)

    def __mul__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``Mul``."""
        return builders.is_op("Mul")(self, other)

    def __truediv__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``Div``."""
        return builders.is_op("Div")(self, other)

    def __matmul__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``MatMul``."""
        return builders.is_op("MatMul")(self, other)

    def __pow__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``Pow``."""
        return builders.is_op("Pow")(self, other)

    def __radd__(self, other: float) -> CallPattern:
        """Match ``Add`` of a number."""
        return builders.is_op("Add")(other, self)

    def __rsub__(self, other: float) -> CallPattern:
        """Match ``Sub`` from a number."""
        return builders.is_op("Sub")(other, self)

    def __rmul__(self, other: float) -> CallPattern:
        """Match ``Mul`` of a number."""
        return builders.is_op("Mul")(other, self)

    def __rtruediv__(self, other: float) -> CallPattern:
        """Match ``Div`` of a number."""
        return builders.is_op("Div")(other, self)

    def __rpow__(self, other: float) -> CallPattern:
        """Match ``Pow`` of a number."""
        return builders.is_op("Pow")(other, self)

    def __neg__(self) -> CallPattern:
        """Match ``Neg``."""
        return builders.is_op("Neg")(self)

    # -- methods -------------------------------------------------------------------------------

    def named(self, name: str) -> Self:
        """Return a pattern that also binds *name* to what it matches; a new pattern object."""
        return replace(self, name=name)  # type: ignore[type-var]  # every pattern is a dataclass

    def optional(self, build_round: Callable[[DFPattern], DFPattern]) -> OrPattern:
        """Match this pattern alone, or what *build_round* makes round it (Relay's ``optional``)."""
        return builders.either(self._me, build_round(self._me))

    def used_by(self, other: DFPattern, index: int | None = None) -> EdgePattern:
        """Match *other* where it uses this value, in input slot *index* if that is given."""
        return builders.edge(self._me, other, index=index)

    def only_used_by(self, other: DFPattern, index: int | None = None) -> EdgePattern:
        """Match *other* where it uses this value, and nothing else does.

        To be returned by the graph, or read inside a body, is a use, too.
        """
        return builders.edge(self._me, other, only=True, index=index)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """Match this as the child of a region: see :func:`dplcli.dpl.dominates`.

        As in Relay the method belongs to the child; *path* is anything if it is not given.
        """
        return builders.dominates(parent, path, self._me)

    def same_shape_as(self, other: DFPattern) -> SameShapePattern:
        """Match if the value provably has the shape of what *other* matches elsewhere."""
        return builders.same_shape(self._me, other)

    def has_dtype(self, *dtypes: str) -> TypedPattern:
        """Match if the value's element type is known and one of *dtypes*."""
        return builders.typed(self._me, dtypes=dtypes)

    def has_rank(self, *ranks: int) -> TypedPattern:
        """Match if the value's rank is known and one of *ranks*."""
        return builders.typed(self._me, ranks=ranks)

    def has_shape(self, *dims: Dim) -> TypedPattern:
        """Match if the value's shape is known and equal.

        None is any dimension, a letter one dimension that is the same wherever the pattern has it.
        """
        return builders.typed(self._me, shape=dims)

    def has_type(self, text: str) -> TypedPattern:
        """Match if the value's type is known and equals ``float32[n, 4]``, with n as a variable.

        Raises:
            ValueError: *text* is no type.
        """
        return builders.has_type(self._me, text)


from dplcli.dpl import builders  # noqa: E402  # they are made of the class above
