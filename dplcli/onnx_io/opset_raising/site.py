"""What an adapter sees of the node that it adapts, and says about what is to take its place."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, NodeProto, helper, numpy_helper

from dplcli.onnx_io.attributes import decode_attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from onnx import FunctionProto

    from dplcli.ir import Dim
    from dplcli.onnx_io.opset_raising.scopes import Scope

    IsGiven = Callable[[FunctionProto, str], bool]

_FLOATS = {"float16", "float32", "float64"}
_FIRST_CAST_LIKE = 15
_FIRST_PLAIN_CONSTANT = 12


class Refusal(Exception):  # noqa: N818  # an answer, not an error, until all are collected
    """A node cannot be raised; the message says why, without naming it.

    Attributes:
        version: The opset that it cannot be raised to, though to the one before; 0 if to none.
    """

    version = 0


class Site:
    """One node to be adapted to the schema of the next version of its operator.

    An adapter asks, and then says what takes the node's place by :meth:`helper` and
    :meth:`replace`; if it says nothing, the node stays as it is.

    Args:
        node: The node, which is not edited.
        scope: The graph or function that it is in.
        version: The opset whose schema the node is to fit.
        target: The opset that the model is raised to.
        is_given: Tells whether a function's attribute has a value at every call.

    Attributes:
        made: What takes the node's place, each with the opset that it is written for.
    """

    def __init__(
        self, node: NodeProto, scope: Scope, version: int, target: int, is_given: IsGiven
    ) -> None:
        """Make nothing yet."""
        self.node = node
        self.version = version
        self.target = target
        self.made: list[tuple[NodeProto, int]] = []
        self._scope = scope
        self._is_given = is_given

    def attribute(self, name: str) -> AttributeProto | None:
        """Return an attribute as it stands."""
        return next((found for found in self.node.attribute if found.name == name), None)

    def known(self, name: str) -> AttributeProto | None:
        """Return an attribute whose value is needed.

        Raises:
            Refusal: The value is whatever the function's caller gives.
        """
        found = self.attribute(name)
        if found is not None and found.ref_attr_name:
            raise Refusal(f"its attribute {name!r} is the function's {found.ref_attr_name!r}")
        return found

    def integer(self, name: str, default: int) -> int:
        """Return the value of an integer attribute."""
        found = self.known(name)
        return default if found is None else found.i

    def text(self, name: str, default: str) -> str:
        """Return the value of a text attribute."""
        found = self.known(name)
        return default if found is None else found.s.decode(errors="replace")

    def input(self, slot: int) -> str:
        """Return the name of an input, "" if there is none."""
        return self.node.input[slot] if slot < len(self.node.input) else ""

    def is_output_read(self, slot: int) -> bool:
        """Tell whether an output is there and read by anything."""
        return slot < len(self.node.output) and self._scope.names.is_read(self.node.output[slot])

    def dtype(self, slot: int) -> str | None:
        """Return the element type of an input if it is known."""
        found = self._scope.type_of(self.input(slot))
        return None if found is None else found.dtype

    def shape(self, slot: int) -> tuple[Dim, ...] | None:
        """Return the shape of an input if its rank is known."""
        found = self._scope.type_of(self.input(slot))
        return None if found is None else found.shape

    def value(self, slot: int) -> np.ndarray[Any, np.dtype[Any]] | None:
        """Return the value of an input if it is a constant in the file."""
        return self._scope.value_of(self.input(slot))

    def constant(self, array: np.ndarray[Any, np.dtype[Any]], wanted: str) -> str:
        """Return the name of a value that is always *array*."""
        return self._scope.add_constant(numpy_helper.from_array(array), wanted)

    def as_input(self, name: str, array: Callable[[Any], np.ndarray[Any, Any]], field: str) -> str:
        """Return the name of a value that holds an attribute's, "" if the attribute is not there.

        An empty list counts as not there: so the older operators treat it.

        Args:
            name: The attribute.
            array: Makes the constant of the attribute's value.
            field: The attribute of Constant that takes the value where it is the caller's.
        """
        found = self.attribute(name)
        if found is None:
            return ""
        if not found.ref_attr_name:
            value = decode_attribute(found, {}).value
            return self.constant(array(value), name) if value != () else ""
        if self.target < _FIRST_PLAIN_CONSTANT:
            raise Refusal(
                f"its attribute {name!r} is the function's {found.ref_attr_name!r}, which only "
                f"opset {_FIRST_PLAIN_CONSTANT} and later can turn into an input"
            )
        function = self._scope.function
        if function is None or not self._is_given(function, found.ref_attr_name):
            raise Refusal(
                f"its attribute {name!r} is the function's {found.ref_attr_name!r}, which not "
                "every call gives"
            )
        reference = AttributeProto(name=field, type=found.type, ref_attr_name=found.ref_attr_name)
        return self._scope.add_reference(reference, name)

    def scalar_like_input(self, name: str) -> str:
        """Return the name of a scalar of the first input's type that holds a float attribute's.

        Returns:
            "" if the attribute is not there.

        Raises:
            Refusal: The type is none of floats, or not known and the target has no CastLike.
        """
        found = self.attribute(name)
        if found is None:
            return ""
        dtype = self.dtype(0)
        if dtype is not None and dtype not in _FLOATS:
            raise Refusal(f"its input is of type {dtype}, which it did not take")
        if dtype is not None and not found.ref_attr_name:
            with np.errstate(over="ignore"):  # a bound beyond float16 is an infinite one
                return self.as_input(name, lambda value: np.array(value, dtype), "")
        if self.target < _FIRST_CAST_LIKE:
            raise Refusal(
                f"the type of {self.input(0)!r}, which {name!r} must have, is not known, and only "
                f"opset {_FIRST_CAST_LIKE} and later can do without"
            )
        number = self.as_input(name, lambda value: np.array(value, np.float32), "value_float")
        return self.helper(
            "CastLike", [number, self.input(0)], f"{name}_cast", version=_FIRST_CAST_LIKE
        )

    def helper(
        self,
        op_type: str,
        inputs: Iterable[str],
        wanted: str,
        attributes: Iterable[AttributeProto] = (),
        *,
        version: int = 0,
    ) -> str:
        """Put a new node here, before or behind the adapted one in the order of the calls.

        Args:
            op_type: The operator, of the standard.
            inputs: Names of values.
            wanted: What to call its output if that is free; an output of the node is taken over.
            attributes: The attributes.
            version: The opset that the node is written for; that of the site if 0.

        Returns:
            The name of its output.
        """
        output = wanted if wanted in self.node.output else self._scope.names.new(wanted)
        name = self.node.name and self._scope.names.new(f"{self.node.name}_{op_type}")
        node = NodeProto(op_type=op_type, name=name, input=inputs, output=[output])
        node.attribute.extend(attributes)
        self.made.append((node, version or self.version))
        return output

    def replace(  # noqa: PLR0913  # all by keyword
        self,
        *,
        op_type: str = "",
        inputs: Sequence[str] = (),
        output: str = "",
        outputs: int = 0,
        without: Iterable[str] = (),
        attributes: Mapping[str, int | str | list[int]] = MappingProxyType({}),
        version: int = 0,
    ) -> str:
        """Put the node itself here, changed; whatever is not named stays, as unknown fields do.

        Args:
            op_type: The new operator.
            inputs: The new inputs; those at the end may be "".
            output: What to call the first output, if that is free, where the name is taken over.
            outputs: How many outputs to keep; all if 0.
            without: Attributes to drop.
            attributes: Attributes to add, or to give another value.
            version: The opset that the node is written for; that of the site if 0.

        Returns:
            The name of its first output.
        """
        node = NodeProto()
        node.CopyFrom(self.node)
        node.op_type = op_type or node.op_type
        if inputs:
            del node.input[:]
            node.input.extend(_trimmed(inputs))
        if output:
            node.output[0] = self._scope.names.new(output)
        del node.output[outputs or len(node.output) :]
        for number in reversed(range(len(node.attribute))):
            if node.attribute[number].name in {*without, *attributes}:
                del node.attribute[number]
        node.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
        self.made.append((node, version or self.version))
        return str(node.output[0])


def _trimmed(names: Sequence[str]) -> Sequence[str]:
    used = len(names)
    while used and not names[used - 1]:
        used -= 1
    return names[:used]
