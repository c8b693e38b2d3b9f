"""Facts about the values of a model: computed when first asked for, and kept."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.ir import ArrayTensor, TensorType, Value, operators
from dplcli.ir.model import is_exact
from dplcli.ir.operators import attribute_of, flops, kind_of, schema_of
from dplcli.ir.traversal import behind_identities
from dplcli.ir.types import dtype_name, is_made_up, summands
from dplcli.shapes import rules
from dplcli.shapes.rules import NOTHING, Fact, UnknownError, View
from dplcli.shapes.terms import Algebra, Term, add, is_small

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.ir import Graph, Model, Node, Shape, Tensor
    from dplcli.shapes.rules import Dims, PartlyKnown, Shapes
    from dplcli.shapes.terms import Number


# Passes replace nodes by equivalent ones, so what is true of a value stays true for a whole run.


_RULES = {**rules.SHAPE_RULES, **rules.WINDOW_RULES, **rules.ATTENTION_RULES}
MOST_COMPUTED = 1024
"""Larger tensors are not computed to learn about shapes."""

_MOST_WORK = 1_000_000
"""Most operations to spend on computing a value; a window may be huge, and a sum may not end."""

_LONGEST_SYMBOL = 200

_SAME_TYPE = (0, 3)
"""Outputs of onnxruntime's operators with the first input's element type, if there is a rule.

If the first input chooses rows of a table, they have the table's."""

_PLACEHOLDERS = frozenset({"", "?", "*", "-1", "None", "none", "unknown", "dynamic"})
"""Symbols that some tools write for every dimension they do not know."""


class Knowledge:
    """What is known of the values of one model.

    Args:
        bound: The types of values for inputs of certain types; without, facts hold for all that
            the model can be given.

    Attributes:
        algebra: What numbers are computed with.
    """

    def __init__(self, bound: Mapping[Value, TensorType] | None = None) -> None:
        self.algebra = Algebra()
        self._bound = bound
        self._facts: dict[Value, Fact] = {}
        self._stored: dict[Value, NDArray[Any]] = {}
        self._up_to_callers: set[Value] | None = None
        self._types: dict[Value, TensorType | None] = {}
        self._told: dict[Value, TensorType | None] = {}
        self._named: dict[str, Number] = {}
        self._closed: dict[Graph, bool] = {}

    def give(self, value: Value, array: NDArray[Any]) -> None:
        """Say what the elements of an input are."""
        self._facts[value] = _fact_of(array)

    def fact(self, value: Value) -> Fact:
        """Return what is known of *value*."""
        pending = [] if value in self._facts else [value]
        opened: set[Value] = set()
        while pending:
            current = pending[-1]
            if current not in opened and current not in self._facts:
                opened.add(current)
                pending += self._needed(current)
                continue
            pending.pop()
            if current not in self._facts:
                self._learn(current)
        return self._facts[value]

    def shape(self, value: Value) -> Dims | None:
        """Return the dimensions of *value*; None if even the rank is unknown."""
        if value not in self._facts:
            kind = self._known_type(value)
            if kind is not None and is_exact(kind) and self._has_numbers(value.graph):
                return kind.shape  # type: ignore[return-value]  # all are numbers
        return self.fact(value).shape

    def _has_numbers(self, graph: Graph) -> bool:
        """Tell whether all that *graph* is given has sizes that are numbers.

        If not, a type may state a number where a size follows from one that callers choose.
        """
        if graph not in self._closed:
            given = (value.declared_type for value in graph.inputs)
            self._closed[graph] = graph.owner is None and all(map(is_exact, given))
        return self._closed[graph]

    def content(self, value: Value) -> Dims | None:
        """Return the elements of a scalar or vector of whole numbers."""
        return self.fact(value).content

    def type_of(self, value: Value) -> TensorType | None:
        """Return the type of *value* as far as it follows; None if not even the rank does.

        Equal dimensions have equal symbols: that of the file, or the sum of products in brackets.
        What is known by now stays, but for the symbols that inference makes up.
        """
        if value not in self._types:
            self._types[value] = None  # whoever asks on the way to the answer is told nothing
            try:
                fact = self.fact(value)
            except Exception:  # noqa: BLE001  # a broken node: what it makes stays unknown
                fact = NOTHING
            if fact.dtype is not None and fact.shape is not None:
                shape = tuple([self._symbol(number, value.graph) for number in fact.shape])
                told = self._told_by_type(value)
                if told is not None and told.shape is not None and len(told.shape) == len(shape):
                    pairs = zip(told.shape, shape, strict=True)
                    shape = tuple([new if is_made_up(said) else said for said, new in pairs])
                self._types[value] = TensorType(fact.dtype, shape)
        return self._types[value]

    def _symbol(self, number: Number, graph: Graph) -> int | str | None:
        """Write a dimension for a type; None if it is too long to be read."""
        if isinstance(number, int):
            return number
        match self.algebra.meaning(number):
            case ("symbol", of, str() as said) if of is graph:
                return said
            case ("dim", Value() as of, int() as axis):
                told = self._told_by_type(of)
                shape = () if told is None else told.shape or ()
                if axis < len(shape) and is_made_up(shape[axis]):  # a bad file states another rank
                    return shape[axis]
            case _:
                pass
        if not self._named:  # a file may have odd symbols, which mean something else
            types = [value.declared_type for value in graph.model.graph.inputs]
            dims = [dim for kind in types if kind is not None for dim in kind.shape or ()]
            self._named = {dim: 0 for dim in dims if isinstance(dim, str)}
        text = f"({self.describe(number)})"
        while self._named.setdefault(text, number) != number:
            text += "'"
        return text if len(text) <= _LONGEST_SYMBOL else None

    def describe(self, number: Number) -> str:
        """Write a number with the names that its unknowns have in the model."""
        return self.algebra.written(number, _name_of)

    def array(self, value: Value) -> NDArray[Any] | None:
        """Return the elements of *value* if they are few and can only have these values."""
        fact = self.fact(value)
        if fact.array is not None:
            return fact.array
        if fact.content is not None and fact.shape is not None and fact.dtype is not None:
            # Make an array of elements that are all plain numbers.
            if not _are_numbers(fact.content):
                return None
            array = np.array(fact.content, dtype=fact.dtype)
            return array if fact.shape else array.reshape(())
        if value not in self._stored:
            tensor = value.constant if value.is_constant else None
            if tensor is None or tensor.is_external or tensor.size > MOST_COMPUTED:
                return None
            self._stored[value] = tensor.numpy()
        return self._stored[value]

    def numbers(self, value: Value) -> NDArray[Any] | None:
        """Return the elements of *value* as :meth:`array` does; None behind a broken node."""
        try:
            return self.array(value)
        except Exception:  # noqa: BLE001  # whatever a rule meets in it
            return None

    def _needed(self, value: Value) -> list[Value]:
        """List what must be known first."""
        node = value.producer
        if node is None or value.is_constant or self._is_told_by_type(value):
            return []
        return [
            item
            for item in node.inputs
            if item is not None and item not in self._facts and item is not value
        ]

    def _is_told_by_type(self, value: Value) -> bool:
        """Tell whether the type says all: sizes as numbers, and too many elements to compute."""
        kind = self._known_type(value)
        if kind is None or kind.dtype is None:
            return False
        size = _size(kind.shape)
        return size is not None and size > MOST_COMPUTED

    def _learn(self, value: Value) -> None:
        node = value.producer
        tensor = value.constant if value.is_constant else None
        if tensor is not None:
            self._facts[value] = Fact(tensor.dtype, tensor.shape, _elements(tensor))
        elif node is None or self._is_told_by_type(value):
            self._facts[value] = self._typed(value, self._known_type(value))
        else:
            view = View(node, self.algebra, self._known)
            for output, fact in zip(node.outputs, self._made_by(view), strict=True):
                if output is not None:
                    self._facts.setdefault(output, fact)
        self._told.clear()  # more may be known of types when somebody asks again

    def _known(self, value: Value) -> Fact:
        """Return a fact that was computed before, or that needs nothing else."""
        if value not in self._facts:
            self._learn(value)
        return self._facts[value]

    # -- values that no rule speaks of ---------------------------------------------------------

    def _known_type(self, value: Value) -> TensorType | None:
        """Return what the type says, without sizes that follow from data that callers give.

        Such a size may differ at each run; the file states what it was once.
        """
        if self._bound is not None:
            return self._told_by_type(value)
        if value not in self._told:
            self._told[value] = self._type_for_all(value)
        return self._told[value]

    def _told_by_type(self, value: Value) -> TensorType | None:
        if self._bound is not None:
            return self._bound.get(value) or value.declared_type
        return value.known_type()

    def _type_for_all(self, value: Value) -> TensorType | None:
        kind = value.known_type()
        if kind is None or kind.shape is None:
            return kind
        if self._up_to_callers is None:
            self._up_to_callers = sized_by_data(value.graph.model)
        if value not in self._up_to_callers:
            return kind
        return TensorType(kind.dtype, (None,) * len(kind.shape))

    def _typed(self, value: Value, kind: TensorType | None) -> Fact:
        if kind is None:
            return NOTHING
        shape = None if kind.shape is None else self._merged(value, None, kind)
        return Fact(kind.dtype, shape, self._unknown_elements(value, kind.dtype, shape))

    def _merged(self, value: Value, partly: PartlyKnown | None, kind: TensorType | None) -> Dims:
        """Join what a rule has found and what the type says into dimensions."""
        declared = None if kind is None else kind.shape
        rank = len(partly if partly is not None else declared or ())
        if declared is None or len(declared) != rank:
            declared = (None,) * rank
        dims = partly if partly is not None else (None,) * rank
        return tuple(
            self._dim(value, axis, dim, said)
            for axis, (dim, said) in enumerate(zip(dims, declared, strict=True))
        )

    def _dim(self, value: Value, axis: int, size: Number | None, said: int | str | None) -> Number:
        own = ("dim", value, axis)
        if isinstance(size, Term) and not is_small(size):
            size = None
        if isinstance(size, int):
            disagrees = isinstance(said, int) and said != size
            return self.algebra.atom(own, low=0) if disagrees or size < 0 else size
        if isinstance(said, int) and not (size is not None and self.algebra.is_plain(size)):
            return said
        if size is not None:
            return size
        if isinstance(said, str) and _is_name(said):
            return self._named_size(value, said)
        return self.algebra.atom(own, low=0)

    def _named_size(self, value: Value, symbol: str) -> Number:
        """Return what a symbol stands for; one that is a sum of others is what they are."""
        is_input = value.producer is None
        parts = value.graph.model.sums.get(symbol, ()) or (summands(symbol) if is_input else ())
        if not parts:
            return self.algebra.atom(("symbol", value.graph, symbol), low=0, plain=is_input)
        total: Number = 0
        for part in parts:
            size = part if isinstance(part, int) else self._named_size(value, part)
            total = add(total, size)
        return total

    def _unknown_elements(self, value: Value, dtype: str | None, shape: Dims | None) -> Dims | None:
        """Return atoms for the elements of a short vector that nothing is known of."""
        if dtype not in rules.WHOLE or shape is None or len(shape) > 1:
            return None
        length = shape[0] if shape else 1
        if not isinstance(length, int) or length > rules.MOST_ELEMENTS:
            return None
        low = 0 if dtype.startswith(("u", "b")) else None
        return tuple(self.algebra.atom(("item", value, n), low=low) for n in range(length))

    # -- what nodes make -----------------------------------------------------------------------

    def _made_by(self, view: View) -> list[Fact]:
        node = view.node
        shapes = self._shapes(view)
        facts = [
            NOTHING if value is None else self._reasoned(view, value, shapes)
            for value in node.outputs
        ]
        if all(fact.content is not None and _are_numbers(fact.content) for fact in facts):
            return facts
        arrays = self._computed(node, dict(zip(node.outputs, facts, strict=True)))
        if arrays is not None:
            return [_fact_of(array) for array in arrays]
        return facts

    def _reasoned(self, view: View, value: Value, shapes: Shapes) -> Fact:
        """Say what the rules say of one output."""
        kind = self._known_type(value)
        derived = shapes[value.index] if value.index < len(shapes) else None
        is_ranked = derived is not None or (kind is not None and kind.shape is not None)
        shape = self._merged(value, derived, kind) if is_ranked else None
        dtype = kind.dtype if kind is not None and kind.dtype else _dtype(view, value.index)
        content = self._content(view, shape, dtype) if value.index == 0 else None
        if content is None:
            content = self._unknown_elements(value, dtype, shape)
        return Fact(dtype, shape, content)

    def _computed(
        self, node: Node, facts: Mapping[Value | None, Fact]
    ) -> tuple[NDArray[Any], ...] | None:
        """Compute a node over known elements."""
        if node.domain or node.op_type not in operators.FOLDABLE or node.subgraphs:
            return None
        arrays = self._read_by(node)
        if arrays is None:
            return None
        if node.op_type in operators.EXPLOSIVE and not self._stays_small(node):
            return None
        cost = flops(node, lambda value: _numbers(facts.get(value) or self._known(value)))
        if cost is not None and cost > _MOST_WORK:
            return None
        results = node.graph.model.codec.evaluate(node, arrays)
        if results is None or len(results) != len(node.outputs):
            return None
        return results if all(map(_is_small, results)) else None

    def _read_by(self, node: Node) -> list[NDArray[Any] | None] | None:
        """Return the elements of all that *node* reads; None if it reads nothing or more."""
        arrays: list[NDArray[Any] | None] = []
        for value in node.inputs:
            array = None if value is None else self._known_array(value)
            if array is None and value is not None:
                return None
            arrays.append(array)
        return arrays if any(array is not None for array in arrays) else None

    def _known_array(self, value: Value) -> NDArray[Any] | None:
        return self.array(value) if value in self._facts or value.is_constant else None

    def _stays_small(self, node: Node) -> bool:
        """Tell whether a node that can make much of little makes little here."""
        shapes = self._shapes(View(node, self.algebra, self._known))
        size = _size(shapes[0]) if shapes else None
        return size is not None and size <= MOST_COMPUTED

    def _shapes(self, view: View) -> Shapes:
        node = view.node
        if node.domain:
            rule = rules.DOMAIN_RULES.get(node.domain, {}).get(node.op_type)
        else:
            rule = _RULES.get(node.op_type)
            if rule is None and kind_of(node.op_type) == "elementwise":
                return [view.fact().shape]
        try:
            return [] if rule is None else rule(view)
        except UnknownError:
            return []

    def _content(self, view: View, shape: Dims | None, dtype: str | None) -> Dims | None:
        if shape is None or len(shape) > 1 or dtype not in rules.WHOLE or view.node.domain:
            return None
        rule = rules.CONTENT_RULES.get(view.op_type)
        try:
            content = None if rule is None else rule(view)
        except UnknownError:
            return None
        if content is None or len(content) > rules.MOST_ELEMENTS:
            return None
        length = shape[0] if shape else 1
        if isinstance(length, int) and len(content) != length:
            return None
        return content if all(_fits(item, dtype) for item in content) else None


def sized_by_data(model: Model) -> set[Value]:
    """Return the values of the main graph, and of bodies in it, whose sizes depend on data.

    Data are the elements of the inputs, and all that is computed from them. What is computed from
    the shapes of values is no data.
    """
    if not any(
        node.op_type in operators.SIZED_BY for graph in model.graph.and_inner() for node in graph
    ):
        return set()
    data = {value for value in model.graph.inputs if not value.is_initializer}
    sized: set[Value] = set()
    _follow(model.graph, data, sized)
    return sized


def _follow(graph: Graph, data: set[Value], sized: set[Value]) -> None:
    """Add what the nodes of *graph* make; recursion is as deep as bodies nest."""
    for node in graph:
        read = [value for value in node.inputs if value is not None]
        is_standard = not node.domain
        for body in node.subgraphs.values():
            _follow(body, data, sized)
            read += body.outputs
        outputs = [value for value in node.outputs if value is not None]
        if is_standard and node.op_type in operators.MEASURING:
            data.update(outputs if not sized.isdisjoint(read) else ())
            continue
        slots = operators.SIZED_BY.get(node.op_type, ()) if is_standard else ()
        deciding = (node.inputs[slot] for slot in slots if slot < len(node.inputs))
        if not sized.isdisjoint(read) or any(value in data for value in deciding):
            sized.update(outputs)
        if not data.isdisjoint(read):
            data.update(outputs)


def _is_name(symbol: str) -> bool:
    """Tell whether a symbol in a shape means one size wherever it stands."""
    return symbol not in _PLACEHOLDERS and not is_made_up(symbol)


def _name_of(key: object) -> str | None:
    """Say what an unknown size is to a reader."""
    match key:
        case ("symbol", _, str() as said):
            return said
        case ("dim", value, int() as axis):
            return f"{getattr(value, 'name', '')}.shape[{axis}]"
        case _:
            return None


def _are_numbers(content: Dims) -> bool:
    return all(isinstance(item, int) for item in content)


def _fact_of(array: NDArray[Any]) -> Fact:
    """Describe a tensor whose elements are known."""
    tensor = ArrayTensor(array)
    return Fact(tensor.dtype, tensor.shape, _elements(tensor), array)


def _numbers(fact: Fact) -> Shape | None:
    """Return a shape whose unknown dimensions are None; None if the rank is not known."""
    if fact.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else None for dim in fact.shape)


def _size(shape: Sequence[Number | str | None] | None) -> int | None:
    """Count the elements; None if a dimension is not a number."""
    sizes = [dim for dim in shape or () if isinstance(dim, int)]
    return None if shape is None or len(sizes) < len(shape) else prod(sizes)


def _is_small(array: NDArray[Any]) -> bool:
    return array.size <= MOST_COMPUTED and not array.dtype.hasobject


def _fits(item: Number, dtype: str) -> bool:
    """Tell whether an element type can hold a number; a term may be as large as need be."""
    if isinstance(item, Term):
        return is_small(item)
    if dtype == "bool":
        return item in (0, 1)
    bits = int(dtype.lstrip("uint"))
    low = 0 if dtype.startswith("u") else -(1 << (bits - 1))
    return low <= item < low + (1 << bits)


def _elements(tensor: Tensor) -> Dims | None:
    if (
        tensor.dtype not in rules.WHOLE
        or len(tensor.shape) > 1
        or tensor.size > rules.MOST_ELEMENTS
    ):
        return None
    return None if tensor.is_external else tuple(int(item) for item in tensor.numpy().ravel())


def _dtype(view: View, index: int) -> str | None:
    """Return the element type of what a node makes, where no type says it."""
    if view.node.domain == "com.microsoft" and view.op_type in rules.DOMAIN_RULES[view.node.domain]:
        slot, _ = operators.INDEXED.get((view.op_type, 0), (0, 0))  # a table, if the first chooses
        return view.fact(slot).dtype if index in _SAME_TYPE else None
    if view.op_type == "Cast":
        code = attribute_of(view.node, "to")
        return dtype_name(code.value) if code and isinstance(code.value, int) else None
    schema = schema_of(view.node)
    typed_by = () if schema is None else schema.typed_by
    source = typed_by[min(index, len(typed_by) - 1)] if typed_by else None
    return view.fact(source).dtype if isinstance(source, int) else source


# Questions about one value, answered from what is known of its model.


def shape_of(value: Value) -> Dims | None:
    """Return the dimensions of a value; None if not even the rank is known."""
    return value.graph.model.memory(Knowledge).shape(value)


def items_of(value: Value) -> NDArray[Any] | None:
    """Return the elements of a small tensor, as an array of objects; None if they are not known.

    An element is a bool, a float, an int or a :class:`Term`.
    """
    knowledge = value.graph.model.memory(Knowledge)
    array = knowledge.array(value)
    if array is not None:
        if array.dtype.name == "bfloat16":
            array = array.astype(np.float32)
        return array.astype(object) if array.dtype.kind in "biuf" else None
    fact = knowledge.fact(value)
    if fact.content is None or fact.shape is None:
        return None
    return np.array(fact.content, dtype=object).reshape((-1,) if fact.shape else ())


def assume(model: Model, sums: Mapping[str, tuple[int | str, ...]]) -> None:
    """Let *sums*, and those that the outputs of *model* state, be what is known of sizes."""
    model.sums = {**_sums_of_outputs(model.graph), **sums}
    if model.sums:
        model.forget()  # what is known without them


def _sums_of_outputs(graph: Graph) -> dict[str, tuple[int | str, ...]]:
    """Return the sizes of inputs that are sums of others, as outputs state and the graph makes it.

    If the keys that a model returns, past ones and new ones, are ``total`` long, then so is a mask
    of ``total`` elements: a symbol is one size wherever the file has it.
    """
    known = graph.model.memory(Knowledge)
    kinds = (value.declared_type for value in graph.inputs)
    symbols = {dim for kind in kinds if kind is not None for dim in kind.shape or ()}
    sums: dict[str, tuple[int | str, ...]] = {}
    for value in graph.outputs:
        maker, stated = behind_identities(value).producer, value.declared_type
        axes = range(0) if stated is None else range(len(stated.shape or ()))
        if maker is None or (maker.domain, maker.op_type) != ("", "Concat"):
            continue
        for axis in axes:
            said = stated.shape[axis]  # type: ignore[index, union-attr]  # it has axes
            size = (known.shape(value) or (None,) * len(axes))[axis] if said in symbols else None
            if isinstance(said, str) and isinstance(size, Term):
                parts = known.algebra.summands(size)
                names = [p[2] if type(p) is tuple and p[0] == "symbol" else p for p in parts]
                if names and all(type(n) is int or n in symbols - {said} for n in names):
                    sums.setdefault(said, tuple(names))
    return sums


def described(value: Value, number: Number) -> str:
    """Write a dimension of a value for a reader: ``2*batch*seq``."""
    return value.graph.model.memory(Knowledge).describe(number)
