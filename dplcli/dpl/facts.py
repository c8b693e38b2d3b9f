"""What a condition may ask of a captured value; what is not known raises, and is a no."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.room import allow_for
from dplcli.ir.parameters import parameter_of

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from numpy.typing import NDArray

    from dplcli.ir import Node, TensorType, Value

_FIRST_SPATIAL_AXIS = 2
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger"})


class UnknownFactError(Exception):
    """A condition asked for something that the model does not say."""


class UnknownDim:
    """A dimension nobody knows: whoever compares it or computes with it has no answer."""

    def __init__(self, owner: str) -> None:
        """Remember whose dimension it is."""
        self._owner = owner

    def _refuse(self, *_: object) -> NoReturn:
        raise UnknownFactError(f"a dimension of {self._owner!r} is unknown")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = __bool__ = __add__ = __radd__ = __sub__ = __rsub__ = _refuse
    __mul__ = __rmul__ = __mod__ = __floordiv__ = __truediv__ = __neg__ = __abs__ = _refuse
    __rmod__ = __rfloordiv__ = __rtruediv__ = __pow__ = __rpow__ = _refuse


class AttributeFacts:
    """``x.attrs``: the attributes of the node that makes a value, defaults included."""

    def __init__(self, node: Node | None, label: str) -> None:
        """Look at *node*, if there is one."""
        self._node = node
        self._label = label

    def __getattr__(self, name: str) -> object:
        """Return the attribute's value.

        Raises:
            UnknownFactError: No node, no such attribute, or one that a function's caller gives.
        """
        if self._node is None:
            raise UnknownFactError(f"{self._label!r} is not made by a node, so has no attributes")
        attribute = parameter_of(self._node, name)
        if attribute is None or attribute.ref:
            raise UnknownFactError(f"{self._node!r} has no attribute {name!r}")
        return attribute.value


class ValueFacts:
    """A captured value as conditions see it."""

    __slots__ = ("_value",)

    def __init__(self, value: Value) -> None:
        """Look at *value*, and only at what is asked for."""
        self._value = value

    @property
    def subject(self) -> Value:
        """The value itself, for functions; expressions cannot ask for it."""
        return self._value

    @property
    def name(self) -> str:
        """The value's name."""
        return self._value.name

    @property
    def uses(self) -> int:
        """How often it is read, as a graph output included."""
        return self._value.use_count + len(self._value.returned_by)

    @property
    def is_const(self) -> bool:
        """Whether it is a constant."""
        return self._value.is_constant

    @property
    def attrs(self) -> AttributeFacts:
        """The attributes of the node that makes it."""
        return AttributeFacts(self._value.producer, self._value.name)

    @property
    def dtype(self) -> str:
        """The element type's name."""
        dtype = self._type.dtype
        if dtype is None:
            raise UnknownFactError(f"the element type of {self.name!r} is unknown")
        return dtype

    @property
    def shape(self) -> tuple[int | str | UnknownDim, ...]:
        """The dimensions: numbers, symbols, and those that are unknown."""
        shape = self._type.shape
        if shape is None:
            raise UnknownFactError(f"the rank of {self.name!r} is unknown")
        if None not in shape:
            return shape  # type: ignore[return-value]  # all are numbers or symbols
        return tuple([UnknownDim(self.name) if dim is None else dim for dim in shape])

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def value(self) -> NDArray[Any]:
        """The data of a constant."""
        tensor = self._value.constant
        if tensor is None:
            raise UnknownFactError(f"{self.name!r} is not a constant")
        allow_for(tensor.size)
        return tensor.numpy()

    @property
    def channels_and_rank(self) -> tuple[object, int]:
        """Extent of axis 1, and the rank; for a convolution read off its weight."""
        node = self._value.producer
        if node is not None and node.op_type in _CONVOLUTIONS and node.domain == "":
            weight = node.inputs[1]
            if weight is not None:
                shape = ValueFacts(weight).shape
                return shape[0], len(shape)
        if node is not None and node.op_type == "ConvTranspose" and node.domain == "":
            weight, group = node.inputs[1], parameter_of(node, "group")
            if weight is not None and group is not None and isinstance(group.value, int):
                shape = ValueFacts(weight).shape
                if isinstance(shape[1], int):
                    return shape[1] * group.value, len(shape)
        shape = self.shape
        if len(shape) < _FIRST_SPATIAL_AXIS:
            raise UnknownFactError(f"{self.name!r} has no channel axis")
        return shape[1], len(shape)

    @property
    def _type(self) -> TensorType:
        known = self._value.known_type()
        if known is None:
            raise UnknownFactError(f"the type of {self.name!r} is unknown")
        return known
