"""The proof that two models are one graph, node for node, once all calls are written out.

A partition only moves nodes into functions. Whether it moved them rightly needs no numbers and no
tolerance: onnx's own inliner puts the bodies back in the place of the calls, and what comes out
must be the original. (dpl could do that by itself. But then a mistake in how it outlines could
cancel out with the same mistake in how it undoes that.) The inliner is asked once for each kind of
call: of calls that differ only in the names of what they read and make, the body is the same.

Two graphs are the same if their outputs have the same value numbers (`dplcli.verify.numbering`),
and each number stands for as many nodes here as there. Two nodes that compute the same may stand
for each other, since operators give the same for the same. Only those that draw random numbers do
not, and nobody knows of those that neither the standard nor onnxruntime has; so two of them that
are alike are proved only if their results have the same names in both graphs.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError

from dplcli.ir.operators import DEQUANTIZING, canonical_domain
from dplcli.onnx_io import paused_gc
from dplcli.onnx_io.bounded import GivenUpError
from dplcli.onnx_io.convert import all_nodes, all_tensors, graphs_of
from dplcli.onnx_io.infer import ONNX_ERRORS, Expansion, count_calls, inlined, write_defaults
from dplcli.verify.model import load_unshared, read_model, signature_differences
from dplcli.verify.numbering import (
    SHORT,
    Numbered,
    Numbering,
    call_key,
    digest,
    mark,
    raw_data,
)
from dplcli.verify.values import one_line
from dplcli.verify.verdict import Proof

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.onnx_io.infer import FunctionKey
    from dplcli.verify.numbering import CallKey

_MARK = b"location"
"""The key in every reference to external data."""


class UnprovedError(Exception):
    """Two models are not proved to be the same graph; the message says why."""


@paused_gc()
def prove_same(original: Path, candidate: Path) -> Proof:
    """Prove that two files hold the same graph, up to functions.

    Files of the same bytes do, whatever their operators are, if their weights are the same. Weights
    in external files are the same if they are the same bytes of the same file; else they are read.

    Raises:
        ModelLoadError: A file cannot be read, or does not hold a model.
        InvalidModelError: A name in it is not UTF-8.
        UnprovedError: They do not, or onnx's inliner cannot tell.
    """
    try:
        return _prove_same(original, candidate)
    except TypeError:  # protobuf returns bytes for an operator's name that is not UTF-8
        for path in (original, candidate):
            read_model(path)  # says so
        raise


def _prove_same(original: Path, candidate: Path) -> Proof:
    (ours, outside), (theirs, other) = _read(original), _read(candidate)
    if outside or other:
        _read_weights((ours, original.parent), (theirs, candidate.parent))
    is_as_long = original.stat().st_size == candidate.stat().st_size
    if outside == other and is_as_long and original.read_bytes() == candidate.read_bytes():
        return Proof()
    for difference in signature_differences(ours.graph, theirs.graph):
        raise UnprovedError(difference)
    expansions = Expansion(ours), Expansion(theirs)
    for expansion, path in zip(expansions, (original, candidate), strict=True):
        if not expansion.is_bounded:
            raise UnprovedError(f"the functions of {path.name} stand for too many nodes")
    bodies = _bodies(ours), _bodies(theirs)

    def numbered(*, by_name: bool) -> tuple[Numbered, Numbered]:
        numbering = Numbering(by_name=by_name)
        return numbering.model(ours, bodies=bodies[0]), numbering.model(theirs, bodies=bodies[1])

    before, after = numbered(by_name=False)
    difference = _difference(before, after)
    is_doubt = bool(before.doubts or after.doubts)
    if difference and not (is_doubt and not _difference(*numbered(by_name=True))):
        raise UnprovedError(difference)
    undone, calls = _own_calls((ours, theirs), [expansion.calls for expansion in expansions])
    return Proof(calls, undone)


def _read(path: Path) -> tuple[onnx.ModelProto, list[onnx.TensorProto]]:
    """Read a model, and tell which of its tensors have external data, which is not read.

    All that protobuf accepts is read. What reads the files of other commands has no part in it.
    """
    model = onnx.ModelProto()
    try:
        data = path.read_bytes()
        model.ParseFromString(data)
    except (OSError, DecodeError):
        data, model = _MARK, read_model(path)  # which says what is wrong
    tensors = all_tensors(model) if _MARK in data else ()
    return model, [each for each in tensors if each.data_location == onnx.TensorProto.EXTERNAL]


def _difference(before: Numbered, after: Numbered) -> str:
    """Return where two graphs differ first, or why that cannot be told; "" if they are the same."""
    for doubt in (*before.doubts, *after.doubts):
        return doubt
    for one, other, whose in ((before, after, "the original"), (after, before, "the candidate")):
        for number, node in one.example.items():
            here, there = one.nodes[number], other.nodes[number]
            is_copied = here and there and not node.domain and node.op_type in DEQUANTIZING
            if here != there and not is_copied:  # a number stands for one value, however often
                name = node.name or next(filter(None, node.output), "")
                named = f"{node.op_type} {name!r}"
                if not there:
                    return f"{named} of {whose} has no counterpart"
                return f"{whose} computes {named} {here} times, not {there}"
    return "" if before.outputs == after.outputs else "an output is another value"


# Weights: short marks, which are equal where the weights are.


def _read_weights(*sides: tuple[onnx.ModelProto, Path]) -> None:
    """Read external data, and shorten it, but for what both have in the same place of one file.

    Args:
        sides: Each model, and its folder.

    Raises:
        UnprovedError: It cannot be read.
    """
    try:
        for tensor in load_unshared(*sides):
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                _shorten(tensor)
    except OSError as error:
        name = PurePath(error.filename or "").name
        raise UnprovedError(f"the weights in {name!r} cannot be read: {error.strerror}") from error
    except ONNX_ERRORS as error:
        raise UnprovedError(f"weights cannot be read: {one_line(str(error))}") from error


def _shorten(tensor: onnx.TensorProto) -> None:
    """Put a digest in the place of long data, as if that lay in a file.

    Raises:
        Exception: One of :data:`ONNX_ERRORS`: the data is damaged.
    """
    if tensor.data_type == onnx.TensorProto.STRING or len(data := raw_data(tensor)) <= SHORT:
        return
    short = onnx.TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    short.data_location = onnx.TensorProto.EXTERNAL
    mark(short, digest(data))
    tensor.CopyFrom(short)


# Calls: what stands in their place, and how many they are.


def _bodies(model: onnx.ModelProto) -> dict[CallKey, onnx.GraphProto]:
    """Have the bodies of functions put in the place of calls, one of each kind.

    Raises:
        UnprovedError: onnx's inliner does not do it.
    """
    if not model.functions:
        return {}
    names = {(canonical_domain(function.domain), function.name) for function in model.functions}
    if hidden := sorted(name for domain, name in names if not domain):
        raise UnprovedError(f"a function has the name of an operator of the standard: {hidden[0]}")
    _check_references(model)
    try:
        write_defaults(model)
        calls = dict.fromkeys(map(call_key, _calls(model.graph, names)))
        asked = onnx.ModelProto(opset_import=model.opset_import, functions=model.functions)
        for key in calls:
            body = asked.graph.node.add(op_type="Body").attribute.add(
                type=onnx.AttributeProto.GRAPH
            )
            body.g.CopyFrom(_alone(*key))
        for tensor in all_tensors(asked):
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                _shorten(tensor)
        answer = inlined(asked).graph
    except GivenUpError as error:
        raise UnprovedError(f"onnx's inliner was given up {error}") from error
    except ONNX_ERRORS as error:
        raise UnprovedError(f"onnx's inliner fails: {one_line(str(error))}") from error
    for left in _calls(answer, names):
        called = f"{left.domain}::{left.op_type}"
        raise UnprovedError(f"onnx's inliner leaves a call of {called} as it is")
    return {key: node.attribute[0].g for key, node in zip(calls, answer.node, strict=True)}


def _calls(graph: onnx.GraphProto, names: Container[tuple[str, str]]) -> Iterator[onnx.NodeProto]:
    """Iterate over the calls in a graph and its bodies, of functions by domain and name."""
    for node in all_nodes(graph):
        if (canonical_domain(node.domain), node.op_type) in names:
            yield node


def _alone(text: bytes, reads: Sequence[bool], makes: Sequence[bool]) -> onnx.GraphProto:
    """Return a graph of one call, with names of its own."""
    node = onnx.NodeProto.FromString(text)
    if any(graphs_of(node)):
        raise UnprovedError(f"a body is handed to {node.op_type}")
    node.input.extend(f"in{slot}" * is_there for slot, is_there in enumerate(reads))
    node.output.extend(f"out{slot}" * is_there for slot, is_there in enumerate(makes))
    return onnx.GraphProto(
        node=[node],
        input=[onnx.ValueInfoProto(name=name) for name in node.input],
        output=[onnx.ValueInfoProto(name=name) for name in node.output],
    )


def _check_references(model: onnx.ModelProto) -> None:
    """Refuse functions that read attributes that they do not have."""
    for function in model.functions:
        declared = {*function.attribute, *(item.name for item in function.attribute_proto)}
        read = (item.ref_attr_name for node in all_nodes(function) for item in node.attribute)
        if unknown := {name for name in read if name} - declared:
            raise UnprovedError(f"{function.name} has no attribute {min(unknown)!r}, but reads it")


def _own_calls(
    models: tuple[onnx.ModelProto, onnx.ModelProto], outside: Sequence[Mapping[FunctionKey, int]]
) -> list[int]:
    """Count the calls in each model of functions that only it has.

    Args:
        models: Both.
        outside: How often the main graph of each calls which function.
    """
    known = [_functions(model) for model in models]
    counts = []
    for side, functions in enumerate(known):
        own = functions.keys() - known[1 - side].keys()
        others = (function.node for key, function in functions.items() if key not in own)
        called = [outside[side], *(count_calls(body, own)[1] for body in others)]
        counts.append(sum(each.get(key, 0) for each in called for key in own))
    return counts


def _functions(model: onnx.ModelProto) -> dict[FunctionKey, onnx.FunctionProto]:
    return {(each.domain, each.name, each.overload): each for each in model.functions}
