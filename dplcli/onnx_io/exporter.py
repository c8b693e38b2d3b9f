"""Write a model back: what was not touched as it came, what was changed anew, all or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

from dplcli.errors import ModelExportError
from dplcli.ir import Attribute, Function, Graph, Model, Node, Value
from dplcli.onnx_io.attributes import encode_attribute
from dplcli.onnx_io.external_data import linked_data, referenced_files

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableSequence, Sequence


_Message = TypeVar("_Message")


class StagedModel:
    """A model written beside its destination, to be looked at before it takes the place.

    Attributes:
        path: The temporary file, in the destination's folder so that external data is found.
        destination: Where :meth:`commit` puts it.
    """

    def __init__(self, path: Path, destination: Path) -> None:
        """Stand for the file at *path*."""
        self.path = path
        self.destination = destination
        self.is_committed = False

    def commit(self) -> None:
        """Put the file in its place, replacing what is there in one step."""
        self.path.replace(self.destination)
        self.is_committed = True

    def keep_as(self, path: Path) -> None:
        """Put the file at *path* instead: a result that failed and is to be looked at."""
        self.path.replace(path)


def check_destination(destination: Path) -> None:
    """Refuse a destination that cannot be written to.

    Raises:
        ModelExportError: It is a directory, or its folder is missing or read-only.
    """
    folder = destination.parent
    if destination.is_dir():
        raise ModelExportError(f"{destination}: is a directory", hint="name a file in it")
    if not folder.is_dir():
        raise ModelExportError(f"{destination}: there is no folder {str(folder)!r} to write to")
    if not os.access(folder, os.W_OK):
        raise ModelExportError(f"{destination}: the folder {str(folder)!r} cannot be written to")


@contextmanager
def staged(model: Model, destination: Path) -> Iterator[StagedModel]:
    """Write *model* to a temporary file beside *destination*.

    The file is gone afterwards unless it was committed, and so is external data that was put
    beside it.

    Raises:
        ModelExportError: The folder cannot be written to, or external data stands in the way.
    """
    check_destination(destination)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{destination.stem}-", suffix=".onnx", dir=destination.parent)
    except OSError as error:
        raise ModelExportError(f"{destination}: cannot be written: {error.strerror}") from error
    path = Path(name)
    try:
        with os.fdopen(handle, "wb"), linked_data(model, destination) as data:
            _write(model, path)
            path.chmod(0o666 & ~_umask())
            result = StagedModel(path, destination)
            yield result
            data.keep = result.is_committed
    except OSError as error:
        raise ModelExportError(f"{destination}: cannot be written: {error.strerror}") from error
    finally:
        path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write(model: Model, path: Path) -> None:
    if model.path is not None and not is_modified(model):
        shutil.copyfile(model.path, path)
        return
    proto = to_proto(model)
    with path.open("wb") as file:
        file.write(proto.SerializeToString())


def is_modified(model: Model) -> bool:
    """Tell whether anything was edited since *model* was loaded."""
    return any(graph.modified for graph in model.graphs())


def to_proto(model: Model) -> ModelProto:
    """Bring the model's own message up to date with its IR, and return it."""
    proto = model.source
    assert isinstance(proto, ModelProto)  # noqa: S101  # the loader sets nothing else
    writer = _Writer()
    writer.update_graph(proto.graph, model.graph)
    proto.ir_version = model.ir_version
    _update_opsets(proto, model.opset_imports)
    functions = [writer.function(function) for function in model.functions.values()]
    if len(functions) != len(proto.functions) or any(map(_is_new, model.functions.values())):
        kept = [FunctionProto.FromString(item.SerializeToString()) for item in functions]
        del proto.functions[:]
        proto.functions.extend(kept)
    return proto


def _is_new(function: Function) -> bool:
    return function.source is None


def _update_opsets(proto: ModelProto | FunctionProto, opset_imports: dict[str, int]) -> None:
    listed = {"" if opset.domain == "ai.onnx" else opset.domain for opset in proto.opset_import}
    for domain, version in opset_imports.items():
        if domain not in listed:
            proto.opset_import.add(domain=domain, version=version)


class _Writer:
    """Writes nodes, remembering encoded attributes: most nodes share theirs with many others."""

    def __init__(self) -> None:
        self._attributes: dict[tuple[str, Attribute], AttributeProto] = {}

    def function(self, function: Function) -> FunctionProto:
        if isinstance(function.source, FunctionProto):
            if function.body.modified:
                self._update_nodes(function.source, function.body)
                _update_opsets(function.source, function.body.opset_imports)
            return function.source
        body = function.body
        proto = FunctionProto(domain=function.domain, name=function.name)
        proto.input.extend(value.name for value in body.inputs)
        proto.output.extend(value.name for value in body.outputs)
        proto.attribute.extend(function.attributes)
        proto.node.extend(self.node(node) for node in body)
        _update_opsets(proto, body.opset_imports)
        for key, value in function.metadata.items():
            proto.metadata_props.add(key=key, value=value)
        return proto

    def update_graph(self, proto: GraphProto, graph: Graph) -> None:
        """Bring *proto* up to date with *graph*, bodies first."""
        self._update_bodies(graph)
        if not graph.modified:
            return
        self._update_nodes(proto, graph)
        inputs = {value.name for value in graph.inputs}
        _keep(proto.input, [info for info in proto.input if info.name in inputs])
        gone = graph.erased - graph.values.keys()
        if not gone:
            return
        _keep(proto.value_info, [info for info in proto.value_info if info.name not in gone])
        _keep(proto.initializer, [item for item in proto.initializer if item.name not in gone])
        _keep(
            proto.sparse_initializer,
            [item for item in proto.sparse_initializer if item.values.name not in gone],
        )

    def _update_bodies(self, graph: Graph) -> None:
        for node in graph:
            for body in node.subgraphs.values():
                if isinstance(body.source, GraphProto):
                    self.update_graph(body.source, body)

    def _update_nodes(self, proto: GraphProto | FunctionProto, graph: Graph) -> None:
        if isinstance(proto, FunctionProto):
            self._update_bodies(graph)
        nodes = [self.node(node) for node in graph]
        del proto.node[:]
        proto.node.extend(nodes)

    def node(self, node: Node) -> NodeProto:
        if isinstance(node.source, NodeProto):
            return node.source
        proto = NodeProto(
            op_type=node.op_type,
            name=node.name,
            input=[_name(value) for value in node.inputs],
            output=[_name(value) for value in node.outputs],
        )
        if node.domain:
            proto.domain = node.domain
        if node.overload:
            proto.overload = node.overload
        proto.attribute.extend([self._attribute(*item) for item in node.attributes.items()])
        for key, value in node.metadata.items():
            proto.metadata_props.add(key=key, value=value)
        return proto

    def _attribute(self, name: str, attribute: Attribute) -> AttributeProto:
        try:
            known = self._attributes.get((name, attribute))
        except TypeError:
            return encode_attribute(name, attribute)
        if known is None:
            known = self._attributes[name, attribute] = encode_attribute(name, attribute)
        return known


def _name(value: Value | None) -> str:
    return "" if value is None else value.name


def _keep(field: MutableSequence[_Message], kept: Sequence[_Message]) -> None:
    """Reduce a repeated field to *kept*, some of its items."""
    if len(kept) == len(field):
        return
    del field[:]
    field.extend(kept)
