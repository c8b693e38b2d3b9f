"""The proof that two models are one graph, node for node, once all calls are written out.

A partition only moves nodes into functions. Whether it moved them rightly needs no numbers and no
tolerance: onnx's own inliner puts the bodies back in the place of the calls, and what comes out
must be the original. (dpl could do that by itself. But then a mistake in how it outlines could
cancel out with the same mistake in how it undoes that.)

Two graphs are the same if their outputs have the same value numbers (`dplcli.verify.numbering`),
and each number stands for as many nodes here as there. Two nodes that compute the same may stand
for each other, since operators give the same for the same. Only those that draw random numbers do
not, and nobody knows of those that neither the standard nor onnxruntime has; so two of them that
are alike are not proved.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from onnx import FunctionProto, ModelProto, StringStringEntryProto, TensorProto

from dplcli.ir.operators import canonical_domain
from dplcli.onnx_io.bounded import GivenUpError
from dplcli.onnx_io.convert import load_data
from dplcli.onnx_io.external_data import all_tensors
from dplcli.onnx_io.infer import ONNX_ERRORS, Expansion, count_calls, inlined
from dplcli.onnx_io.opset import all_nodes
from dplcli.verify.model import external_places, read_model, signature_differences
from dplcli.verify.numbering import SHORT, Numbered, Numbering, digest, name_of, raw_data
from dplcli.verify.settings import Proof, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.onnx_io.infer import FunctionKey

_NO_NODES = {("", "Constant"), ("", "Identity")}
"""What is not counted: it stands for a value, and computes none."""


class UnprovedError(Exception):
    """Two models are not proved to be the same graph; the message says why."""


def prove_same(original: Path, candidate: Path) -> Proof:
    """Prove that two files hold the same graph, up to functions.

    Weights in external files are the same if they are the same bytes of the same file; else they
    are read.

    Raises:
        UnprovedError: They do not, or onnx's inliner cannot tell.
    """
    ours, theirs = read_model(original), read_model(candidate)
    for difference in signature_differences(ours.graph, theirs.graph):
        raise UnprovedError(difference)
    for model, path in ((ours, original), (theirs, candidate)):
        if not Expansion(model).is_bounded:
            raise UnprovedError(f"the functions of {path.name} stand for too many nodes")
    folders = original.parent, candidate.parent
    try:
        is_same_data = external_places(ours, folders[0]) == external_places(theirs, folders[1])
        for model, folder in zip((ours, theirs), folders, strict=True):
            _shorten(model, None if is_same_data else folder)
    except OSError as error:
        name = PurePath(error.filename or "").name
        raise UnprovedError(f"the weights in {name!r} cannot be read: {error.strerror}") from error
    except ONNX_ERRORS as error:
        raise UnprovedError(f"weights cannot be read: {one_line(str(error))}") from error
    moved = _moved(ours, theirs)
    numbering = Numbering(draws_alike=True)
    before, after = numbering.model(_without_calls(ours)), numbering.model(_without_calls(theirs))
    _require_same(before, after)
    return Proof(sum(before.nodes.values()), *moved)


def _require_same(before: Numbered, after: Numbered) -> None:
    """Refuse two graphs that are not the same; say where they differ first."""
    for doubt in (*before.doubts, *after.doubts):
        raise UnprovedError(doubt)
    for one, other, whose in ((before, after, "the original"), (after, before, "the candidate")):
        for number, node in one.example.items():
            here, there = one.nodes[number], other.nodes[number]
            if here != there:
                name = name_of(node)
                raise UnprovedError(
                    f"{node.op_type} {name!r} of {whose} has no counterpart"
                    if not there
                    else f"{whose} computes {node.op_type} {name!r} {here} times, not {there}"
                )
    if before.outputs != after.outputs:
        raise UnprovedError("an output is another value")


# Weights: short stand-ins, which are equal where the weights are.


def _shorten(model: ModelProto, folder: Path | None) -> None:
    """Put digests in the place of the data of long tensors, as if it lay in a file named so.

    Args:
        model: The model, which is edited.
        folder: Where its external data is; None if it need not be read.

    Raises:
        OSError: External data cannot be read, for one of :data:`ONNX_ERRORS`.
    """
    for tensor in all_tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            if folder is None:
                continue
            load_data(tensor, folder)
        if tensor.data_type != TensorProto.STRING and len(data := raw_data(tensor)) > SHORT:
            stand_in = TensorProto(
                name=tensor.name,
                dims=tensor.dims,
                data_type=tensor.data_type,
                data_location=TensorProto.EXTERNAL,
                external_data=[StringStringEntryProto(key="sha256", value=digest(data))],
            )
            tensor.CopyFrom(stand_in)


# Calls: written out, and counted.


def _without_calls(model: ModelProto) -> ModelProto:
    """Put the bodies of functions in the place of their calls.

    Raises:
        UnprovedError: onnx's inliner does not do it.
    """
    if not model.functions:
        return model
    names = {(canonical_domain(function.domain), function.name) for function in model.functions}
    if hidden := sorted(name for domain, name in names if not domain):
        raise UnprovedError(f"a function has the name of an operator of the standard: {hidden[0]}")
    _write_defaults(model)
    try:
        found = inlined(model)
    except GivenUpError as error:
        raise UnprovedError(f"onnx's inliner was given up {error}") from error
    except ONNX_ERRORS as error:
        raise UnprovedError(f"onnx's inliner fails: {one_line(str(error))}") from error
    for node in all_nodes(found.graph):
        if (canonical_domain(node.domain), node.op_type) in names:
            called = f"{node.domain}::{node.op_type}"
            raise UnprovedError(f"onnx's inliner leaves a call of {called} as it is")
    return found


def _write_defaults(model: ModelProto) -> None:
    """Write into calls what functions take for granted: onnx's inliner does not look there."""
    for function in model.functions:
        known = {*function.attribute, *(item.name for item in function.attribute_proto)}
        read = (item.ref_attr_name for node in all_nodes(function) for item in node.attribute)
        if unknown := {name for name in read if name} - known:
            raise UnprovedError(f"{function.name} has no attribute {min(unknown)!r}, but reads it")
    defaults = {key: each.attribute_proto for key, each in _functions(model).items()}
    if not any(defaults.values()):
        return
    for root in (model.graph, *model.functions):
        for node in all_nodes(root):
            implied = defaults.get((node.domain, node.op_type, node.overload))
            if implied:
                given = {item.name: item.ref_attr_name for item in node.attribute}
                if any(given.get(item.name) for item in implied):
                    raise UnprovedError(f"the default of {node.op_type} may stand for a reference")
                node.attribute.extend(item for item in implied if item.name not in given)


def _moved(ours: ModelProto, theirs: ModelProto) -> tuple[int, int, int]:
    """Count calls that only one model has: the nodes they stand for, the calls of each."""
    known = [_functions(model) for model in (ours, theirs)]
    nodes, calls = 0, [0, 0]
    for side, model in enumerate((ours, theirs)):
        own = known[side].keys() - known[1 - side].keys()
        if not own:
            continue
        sizes = Expansion(model, _NO_NODES | {key[:2] for key in known[side]}).sizes
        others = (function.node for key, function in known[side].items() if key not in own)
        for root in (model.graph.node, *others):
            for key, times in count_calls(root, own)[1].items():
                calls[side] += times
                nodes += times * sizes[key]
    return nodes, calls[1], calls[0]


def _functions(model: ModelProto) -> dict[FunctionKey, FunctionProto]:
    return {(each.domain, each.name, each.overload): each for each in model.functions}
