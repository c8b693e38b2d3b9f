"""The steps that look at types: only what is known counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.state import describe
from dplcli.dpl.steps import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.pattern import DFPattern, TypedPattern
    from dplcli.dpl.state import State
    from dplcli.dpl.steps import Goals, Outcome
    from dplcli.ir import Dim, Shape, Value


class TypeStep(Step):
    """A check of what is known of the value's type; leaves nothing bound but dimensions.

    Args:
        pattern: The pattern compiled.
        dims: One per dimension: a number, the slot of a dimension variable, or None; or None.
    """

    __slots__ = ("dims", "dtypes", "ranks", "wanted")

    def __init__(
        self, pattern: TypedPattern, dims: tuple[tuple[str, int] | None, ...] | None
    ) -> None:
        """Check after the inner pattern has matched."""
        super().__init__(pattern)
        self.wanted = pattern
        self.dtypes = pattern.dtypes
        self.ranks = pattern.ranks
        self.dims = dims

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Accept only what is known to fit."""
        known = None if value is None else value.known_type()
        if known is None:
            return False
        if self.dtypes is not None and known.dtype not in self.dtypes:
            return False
        if self.ranks is None and self.dims is None:
            return rest
        if known.shape is None:
            return False
        if self.ranks is not None and len(known.shape) not in self.ranks:
            return False
        return rest if self.dims is None or self._fits(state, known.shape) else False

    def _fits(self, state: State, shape: Sequence[Dim]) -> bool:
        assert self.dims is not None  # noqa: S101  # checked by the only caller
        if len(shape) != len(self.dims):
            return False
        for wanted, dim in zip(self.dims, shape, strict=True):
            if wanted is None:
                continue
            if dim is None:
                return False
            kind, number = wanted
            if kind == "number":
                if dim != number:
                    return False
            elif state.slots[number] is None:
                state.bind(number, dim)
            elif state.slots[number] != dim:
                return False
        return True

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        """Name the facts asked for, dimension variables with what they stand for."""
        wanted = self.wanted
        texts = []
        if wanted.dtypes is not None:
            texts.append(f"element type {' or '.join(wanted.dtypes)}")
        if wanted.ranks is not None:
            texts.append(f"rank {' or '.join(map(str, wanted.ranks))}")
        if wanted.shape is not None:
            texts.append(f"shape [{', '.join(self._dimensions(state, wanted.shape))}]")
        return " and ".join(texts), _type_of(value)

    def _dimensions(self, state: State, shape: Shape) -> list[str]:
        texts = []
        for dim, place in zip(shape, self.dims or (), strict=True):
            known = state.slots[place[1]] if isinstance(dim, str) and place is not None else None
            texts.append("_" if dim is None else f"{dim}" if known is None else f"{dim}={known}")
        return texts


class TypedStep(Step):
    """An inner step, then a check of the type."""

    __slots__ = ("check", "inner")

    def __init__(self, pattern: DFPattern, inner: Step, check: TypeStep) -> None:
        """Match *inner* first: types may have to be inferred."""
        super().__init__(pattern)
        self.inner = inner
        self.stands_for = inner
        self.check = check
        self.heads = inner.heads
        self.required = inner.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Demand both."""
        return (self.inner, value, (self.check, value, rest))


class SameShapeStep(Step):
    """An inner step, and at the very end a comparison of shapes."""

    __slots__ = ("inner", "other")

    def __init__(self, pattern: DFPattern, inner: Step, other: Step) -> None:
        """Compare with what *other* is bound to elsewhere."""
        super().__init__(pattern)
        self.inner = inner
        self.stands_for = inner
        self.other = other
        self.heads = inner.heads
        self.required = inner.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match the inner step; the other may not be bound yet."""
        state.defer(_Comparison(self), value)
        return (self.inner, value, rest)


class _Comparison(Step):
    __slots__ = ("other",)

    def __init__(self, owner: SameShapeStep) -> None:
        super().__init__(owner.pattern)
        self.other = owner.other

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        shape = _known_shape(value)
        others = self.other.bound_values_in(state.slots)
        same = shape is not None and bool(others) and shape == _known_shape(others[0])
        return rest if same else False

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        others = self.other.bound_values_in(state.slots)
        if not others:
            return "the shape of a value that takes no part", _type_of(value)
        return f"the shape of {_type_of(others[0])}", _type_of(value)


def _known_shape(value: Value | None) -> Shape | None:
    known = None if value is None else value.known_type()
    return None if known is None or known.shape is None or None in known.shape else known.shape


def _type_of(value: Value | None) -> str:
    known = None if value is None else value.known_type()
    if value is None or known is None:
        return f"{describe(value)}, whose type is not known"
    rank = " and unknown rank" if known.shape is None else ""
    return f"{describe(value)} of type {known}{rank}"
