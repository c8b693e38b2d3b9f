"""What the IR asks of whoever read the file: to decode a part when it is first looked at.

The IR keeps each node, tensor and type as the opaque object that the loader found
(*source*) and never looks inside; so a weight that no rule reads is never decoded or copied,
and what nobody touched can be written back as it came.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.ir.model import Model
    from dplcli.ir.node import Node
    from dplcli.ir.tensor import Tensor
    from dplcli.ir.types import Attribute, TensorType
    from dplcli.ir.value import Value


class Remarks(NamedTuple):
    """What a node, or the type of a value, carries for readers and tools.

    Attributes:
        doc: Its ``doc_string``.
        metadata: Its ``metadata_props``.
    """

    doc: str
    metadata: Mapping[str, str]


NO_REMARKS = Remarks("", {})


class StatedType(NamedTuple):
    """What a file states of a value beside the graph's interface.

    Attributes:
        known: The type, if it is a tensor's.
        remarks: What is added for readers and tools.
        encoded: The whole statement as the codec encodes it, if the rest does not say it all.
    """

    known: TensorType | None
    remarks: Remarks = NO_REMARKS
    encoded: bytes = b""


class TypeStatement:
    """A :class:`StatedType`, decoded when it is first asked for.

    Values of which the file states the same share it.

    Args:
        encoded: The statement as the codec encodes it, without the value's name.
        decode: Reads the type, if it is a tensor's, and the whole statement.
    """

    __slots__ = ("_decode", "_decoded", "encoded")

    def __init__(
        self, encoded: bytes, decode: Callable[[bytes], tuple[TensorType | None, StatedType]]
    ) -> None:
        """Keep *encoded* as it is."""
        self.encoded = encoded
        self._decode = decode
        self._decoded: tuple[TensorType | None, StatedType] | None = None

    @property
    def type(self) -> TensorType | None:
        """The type; None if it is not a tensor's."""
        return (self._decoded or self._read())[0]

    @property
    def stated(self) -> StatedType:
        """All that is stated."""
        return (self._decoded or self._read())[1]

    def refined(self, found: TensorType) -> TypeStatement:
        """Return the same statement of a value of which more is known than it says."""
        copy = TypeStatement(self.encoded, self._decode)
        copy._decoded = found, self.stated
        return copy

    def _read(self) -> tuple[TensorType | None, StatedType]:
        self._decoded = self._decode(self.encoded)
        return self._decoded


@dataclass(frozen=True)
class OpSchema:
    """What the standard says of one operator at one opset version.

    Attributes:
        inputs: Names of the formal inputs; a variadic last one counts once.
        min_inputs: Fewest inputs a node must have.
        max_inputs: Most inputs a node may have (a large number if variadic).
        outputs: Names of the formal outputs.
        max_outputs: Most outputs a node may have.
        attributes: Kind of each attribute.
        defaults: The attributes that have a machine-readable default.
        since: The opset it came with.
        required_attributes: The attributes that a node must state.
        integer_inputs: The inputs that are int64 (or int32) whatever the others are.
    """

    inputs: tuple[str, ...]
    min_inputs: int
    max_inputs: int
    outputs: tuple[str, ...]
    max_outputs: int
    attributes: Mapping[str, str]
    defaults: Mapping[str, Attribute] = field(default_factory=dict)
    since: int = 1
    integer_inputs: frozenset[int] = frozenset()
    required_attributes: frozenset[str] = frozenset()


class SchemaLibrary(Protocol):
    """Knowledge of the standard operators."""

    def find(self, op_type: str, domain: str, version: int) -> OpSchema | None:
        """Return the schema in force at opset *version*, or None if there is none."""

    def versions(self, op_type: str, domain: str) -> Iterable[OpSchema]:
        """Return every version of an operator's schema, oldest first; none if unknown."""

    def op_types(self, domain: str) -> Iterable[str]:
        """Return the operators known in *domain*, for suggestions; none for a foreign one."""


class Codec(Protocol):
    """Decoder of opaque sources."""

    schemas: SchemaLibrary

    def attributes(self, node: Node) -> dict[str, Attribute]:
        """Decode the attributes of *node*, whose source is set."""

    def remarks(self, node: Node) -> Remarks:
        """Read what *node*, whose source is set, carries for readers and tools."""

    def tensor(self, source: object) -> Tensor:
        """Wrap a tensor without decoding its data."""

    def declared_type(self, source: object) -> TensorType | None:
        """Decode a declared type; None if it is not a tensor's."""

    def infer_types(
        self, model: Model, *, anew: bool = False
    ) -> tuple[Mapping[Value, TensorType], str]:
        """Infer the types that the file does not declare.

        Args:
            model: The model.
            anew: Whether to look at the model as it has become, rather than at the file.

        Returns:
            The types found, and why there are not more ("" if nothing went wrong).
        """

    def statements_hold(self, model: Model) -> bool:
        """Tell whether all types are stated, numbers only, and each is what its node makes."""

    def infer_node(self, node: Node) -> Sequence[TensorType | None]:
        """Infer the types of one node's outputs from those of its inputs; empty if unknown."""

    def evaluate(
        self, node: Node, inputs: Sequence[NDArray[Any] | None]
    ) -> tuple[NDArray[Any], ...] | None:
        """Compute the outputs of one node; None if that is not possible."""
