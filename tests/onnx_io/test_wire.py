"""The wire format is read as protobuf reads it; what protobuf would not write is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    helper,
)

from dplcli.onnx_io import wire
from dplcli.onnx_io.wire import (
    IrregularError,
    fields,
    intern,
    padded,
    require_regular,
    varint,
)
from tests.corpus.nets import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message

    from dplcli.onnx_io.arrays import Ints


def places(*numbers: int) -> Ints:
    """Return positions."""
    return np.array(numbers, np.int64)


def spans(parts: list[bytes]) -> tuple[wire.Bytes, Ints, Ints]:
    """Lay strings out, with a byte between them that belongs to none."""
    size = np.array([len(part) for part in parts], np.int64)
    begin = np.cumsum(size + 1) - size
    return padded(b"\xff" + b"\xff".join(parts)), begin, begin + size


NUMBERS = st.integers(0, (1 << 64) - 1) | st.sampled_from([0, 127, 128, 1 << 14, (1 << 64) - 1])


@given(st.lists(NUMBERS, max_size=20))
def test_numbers_come_back(numbers: list[int]) -> None:
    """From 0 to 2 ** 64 - 1; protobuf writes negative ones as those from 2 ** 63 on."""
    data, begin, end = spans([varint(number) for number in numbers])
    value, behind = wire.varints(data, begin, end)
    assert [number % (1 << 64) for number in value.tolist()] == numbers
    assert behind.tolist() == end.tolist()


@pytest.mark.parametrize(
    "text",
    [b"", b"\x80", b"\x80\x00", b"\xff\x80\x00", b"\xff" * 10, b"\xff" * 9 + b"\x02", b"\x80" * 9],
    ids=bytes.hex,
)
def test_a_number_that_protobuf_would_not_write(text: bytes) -> None:
    """It ends too late, never, or takes bytes that say nothing; no byte behind it is looked at."""
    data = padded(text + b"\x01" * 9)
    with pytest.raises(IrregularError):
        wire.varints(data, places(0), places(len(text)))


NOTHING = OperatorSetIdProto.DESCRIPTOR
"""A type with two fields, of which the tests of framing use none: what is unknown is framed too."""


def field_bytes() -> st.SearchStrategy[bytes]:
    """Fields of any number and wire type, regular ones."""

    def make(number: int, kind: int, text: bytes) -> bytes:
        content = {0: varint(len(text)), 1: text[:1] * 8, 2: varint(len(text)) + text}
        content[1] = bytes(8)
        content[5] = bytes(4)
        return varint(number << 3 | kind) + content[kind]

    numbers = st.integers(16, 40) | st.integers(16, (1 << 29) - 1)
    return st.builds(make, numbers, st.sampled_from([0, 1, 2, 5]), st.binary(max_size=200))


def slow_fields(text: bytes, offset: int) -> list[tuple[int, int, int, int]]:
    """Walk one message with nothing but a loop."""

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (text[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if text[at - 1] < 128:
                return value, at

    found = []
    at = 0
    while at < len(text):
        head = at
        tag, at = number(at)
        size = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 == 0:
            size = number(at)[1] - at
        if tag & 7 == 2:
            size, at = number(at)
        found.append((tag >> 3, head + offset, at + offset, at + size + offset))
        at += size
    return found


@pytest.mark.long
@given(st.lists(st.lists(field_bytes(), max_size=12).map(b"".join), max_size=14))
def test_messages_are_walked_in_lockstep(messages: list[bytes]) -> None:
    """Every field of every message, whatever their number: what a loop finds, in its order."""
    data, begin, end = spans(messages)
    found = fields(data, NOTHING, begin, end)
    columns = (found.owner, found.number, found.head, found.begin, found.end)
    rows = list(zip(*(part.tolist() for part in columns), strict=True))
    starts = begin.tolist()
    assert rows == [
        (owner, 0, *row[1:])
        for owner, text in enumerate(messages)
        for row in slow_fields(text, starts[owner])
    ]


@pytest.mark.parametrize("width", [1, 20], ids=["alone", "lockstep"])
@pytest.mark.parametrize(
    "text",
    [
        b"\x00",
        b"\x02\x00",
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0a\x80\x00",
        b"\x8a\x00\x01a",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x0a" + b"\xff" * 9 + b"\x01",
        b"\x0b\x0c",
        b"\x0e\x01",
        b"\x0f",
        b"\x08",
        b"\x08\x80",
        b"\x09\x00",
        b"\x0d\x00\x00\x00",
    ],
    ids=bytes.hex,
)
def test_irregular_fields_are_refused(text: bytes, width: int) -> None:
    """Fields that do not end, sizes that would wrap round, groups, field number 0."""
    data, begin, end = spans([b"\x0a\x01a"] * (width - 1) + [text])
    with pytest.raises(IrregularError):
        fields(data, NOTHING, begin, end)


def is_regular(text: bytes, kind: type[Message]) -> bool:
    """Tell whether a message is what protobuf would write."""
    try:
        require_regular(padded(text), kind.DESCRIPTOR, places(0), places(len(text)))
    except IrregularError:
        return False
    return True


@pytest.mark.parametrize(
    "path", sorted((ROOT / "sample_models").glob("*.onnx")), ids=lambda path: path.stem
)
def test_what_protobuf_writes_is_regular(path: Path) -> None:
    """Every model of the project, as it stands and written again."""
    text = path.read_bytes()
    assert is_regular(ModelProto.FromString(text).SerializeToString(), ModelProto)


NODE = helper.make_node("Conv", ["x", "w"], ["y"], "n", domain="d", pads=[1, 1], auto_pad="SAME")
BODY = helper.make_graph([NODE], "g", [], [helper.make_tensor_value_info("y", 1, [1, "n"])])
OUTER = helper.make_node("If", ["c"], ["z"], then_branch=BODY, else_branch=BODY, values=[1.5, -1.0])
GRAPH = helper.make_graph(
    [OUTER, NODE], "main", [], [], [helper.make_tensor("w", 1, [2], [1.0, 2.0])]
).SerializeToString()


@given(st.data())
def test_what_is_regular_protobuf_accepts(data: st.DataObject) -> None:
    """Bytes changed anywhere: regular ones are what protobuf makes of them, byte for byte."""
    text = bytearray(GRAPH)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        if data.draw(st.booleans()):
            text[at] = data.draw(st.integers(0, 255))
        else:
            del text[at : at + data.draw(st.integers(1, 4))]
    if not text or not is_regular(bytes(text), GraphProto):
        return
    assert GraphProto.FromString(bytes(text)).SerializeToString() == bytes(text)


@given(st.data())
def test_what_protobuf_refuses_is_irregular(data: st.DataObject) -> None:
    """Nothing that it refuses gets past, down to the tensors of attributes of bodies."""
    text = bytearray(GRAPH)
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        GraphProto.FromString(bytes(text))
    except DecodeError:
        assert not is_regular(bytes(text), GraphProto)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(b"\x1a\x01a\x1a\x01b", NodeProto, id="twice"),
        pytest.param(b"\x0a\x02\x01\x02", TensorProto, id="packed"),
        pytest.param(b"\x25\x00\x00\x80\x3f", TensorProto, id="not-packed"),
        pytest.param(b"\x10" + varint(1 << 32), TensorProto, id="more-than-32-bits"),
        pytest.param(b"\x2a\x03\x0a\x05a", NodeProto, id="inside"),
        pytest.param(b"\x22\x03\x00\x00\x80", TensorProto, id="half-a-float"),
        pytest.param(b"\x22\x00", TensorProto, id="no-floats"),
        pytest.param(b"\x2a\x01\x80", TensorProto, id="half-a-number"),
        pytest.param(b"\x2a\x05" + varint(1 << 32), TensorProto, id="packed-more-than-32-bits"),
        pytest.param(b"\x3a\x02\x80\x00", TensorProto, id="packed-longer-than-needed"),
        pytest.param(b"\x32\x00\x32\x00", AttributeProto, id="message-twice"),
        pytest.param(b"\x12\x01b\x0a\x01a", NodeProto, id="out-of-order"),
        pytest.param(b"\xa2\x3e\x01y\x0a\x01a", NodeProto, id="unknown-before-known"),
    ],
)
def test_what_protobuf_would_write_otherwise(text: bytes, kind: type[Message]) -> None:
    """It is accepted by protobuf, or not, and is not regular."""
    assert not is_regular(text, kind)


def test_a_negative_number_is_regular() -> None:
    """It takes ten bytes."""
    tensor = TensorProto(dims=[-1], data_type=-3)
    assert is_regular(tensor.SerializeToString(), TensorProto)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(b"\xfa\x7f\x02ab" + b"\xf8\x7f\x01", NodeProto, id="number"),
        pytest.param(b"\x08\x01" + b"\x08\x02", NodeProto, id="wire-type"),
        pytest.param(b"\xa0\x01\x63", AttributeProto, id="choice"),
    ],
)
def test_fields_that_nobody_knows_are_regular(text: bytes, kind: type[Message]) -> None:
    """They come from a later version of ONNX: no field that is known."""
    assert is_regular(text, kind)
    found = fields(padded(text), kind.DESCRIPTOR, places(0), places(len(text)))
    assert not found.number.any()
    assert not kind.FromString(text).ListFields()


STRINGS = st.lists(
    st.binary(max_size=3)
    | st.sampled_from([b"", b"a" * 8, b"a" * 9, b"a" * 300, b"a" * 299 + b"b", b"\0", b"\0\0"]),
    max_size=40,
)


def check_interned(strings: list[bytes]) -> None:
    """Compare with a dictionary."""
    data, begin, end = spans(strings)
    which, example = intern(data, begin, end)
    firsts = list(dict.fromkeys(strings))
    assert which.tolist() == [firsts.index(text) for text in strings]
    assert example.tolist() == [strings.index(text) for text in firsts]


@given(STRINGS)
def test_equal_strings_are_one(strings: list[bytes]) -> None:
    """Numbered by first appearance, whatever their length."""
    check_interned(strings)


@pytest.mark.parametrize("turns", [1, 2, 99])
@given(strings=STRINGS)
def test_strings_that_share_a_hash(turns: int, strings: list[bytes]) -> None:
    """They are told apart: in another turn, or by their bytes if hashes collide in every turn."""
    hashes = wire._hashes  # noqa: SLF001  # what collides

    def colliding(
        data: wire.Bytes, begin: Ints, size: Ints, turn: int
    ) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return (
            hashes(data, begin, size, turn) if turn >= turns else np.full(size.size, 7, np.uint64)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_hashes", colliding)
        check_interned(strings)


def test_words_at_the_end_of_the_data() -> None:
    """Nothing behind the last byte is read."""
    strings = [b"abcdefgh" * 2, b"h"]
    data, begin, end = spans(strings)
    assert data.size == end[-1] + wire.PADDING
    assert intern(data, begin, end)[0].tolist() == [0, 1]
    assert crc32(data[int(begin[1]) : int(end[1])].tobytes()) == crc32(b"h")
