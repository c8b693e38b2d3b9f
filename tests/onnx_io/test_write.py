"""A model is written whole or not at all, and nothing else is touched."""

import os
import stat
from pathlib import Path

import onnx
import pytest

from dplcli import pipeline
from dplcli.errors import ModelExportError
from dplcli.ir import Function, Graph, Model
from dplcli.onnx_io import check_destination, check_model, is_modified, load_model, staged, to_proto
from dplcli.settings import PartitionSettings, RewriteSettings
from tests.cli.support import ROOT
from tests.support.models import ir_of, parse

TEXT = "g (float[2] x) => (float[2] y) { y = Relu (x) }"
CALLS = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
g (float[2] x) => (float[2] y) { y = o.f (x) }
<domain: "o", opset_import: ["" : 17]> f (a) => (b) { b = Relu (a) }
<domain: "o", opset_import: ["" : 17]> unused (a) => (b) { b = Neg (a) }"""


class Boom(Exception):  # noqa: N818  # not an error of anybody's
    """What the code inside a ``with`` may raise."""


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """Return a model loaded from a folder of its own."""
    path = tmp_path / "in" / "model.onnx"
    path.parent.mkdir()
    path.write_bytes(parse(TEXT).SerializeToString())
    return load_model(path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return a file that does not exist yet in an empty folder."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "result.onnx"


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below *folder*, empty folders included."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"(folder)"
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("touched", [False, True])
def test_the_staged_file_is_the_model(model: Model, out: Path, *, touched: bool) -> None:
    """The temporary file lies beside the destination, is complete, and becomes it."""
    model.graph.modified = touched
    with staged(model, out) as written:
        assert written.path.parent == out.parent
        assert written.path != out
        assert not out.exists()
        assert onnx.load(written.path) == parse(TEXT)
        assert check_model(written.path) == ""
        written.commit()
    assert contents(out.parent).keys() == {"result.onnx"}
    assert onnx.load(out) == parse(TEXT)


@pytest.mark.parametrize("existing", [None, b"what was there"])
def test_without_commit_nothing_is_left(model: Model, out: Path, existing: bytes | None) -> None:
    """Leaving without a commit leaves the folder as it was."""
    if existing is not None:
        out.write_bytes(existing)
    before = contents(out.parent)
    with staged(model, out):
        pass
    assert contents(out.parent) == before


@pytest.mark.parametrize("error", [Boom("why"), OSError("why"), KeyboardInterrupt()])
def test_an_exception_inside_leaves_nothing(model: Model, out: Path, error: BaseException) -> None:
    """Whatever is raised inside comes out as it is, and the folder is as it was."""
    out.write_bytes(b"what was there")
    with pytest.raises(type(error)) as caught, staged(model, out):
        raise error
    assert caught.value is error
    assert contents(out.parent) == {"result.onnx": b"what was there"}


def test_a_committed_file_stays_despite_a_later_exception(model: Model, out: Path) -> None:
    """What was committed is committed."""
    with pytest.raises(Boom), staged(model, out) as written:  # noqa: PT012  # the order is the point
        written.commit()
        raise Boom
    assert onnx.load(out) == parse(TEXT)


def test_a_failed_result_can_be_kept(model: Model, out: Path) -> None:
    """A result that is not wanted goes where one can look at it, and the destination stays."""
    out.write_bytes(b"what was there")
    with staged(model, out) as written:
        written.keep_as(out.with_suffix(".failed.onnx"))
    assert onnx.load(out.with_suffix(".failed.onnx")) == parse(TEXT)
    assert out.read_bytes() == b"what was there"
    assert len(contents(out.parent)) == 2


def test_a_model_may_replace_its_own_file(model: Model) -> None:
    """Writing a model over its own file works, modified or not."""
    assert model.path is not None
    for _ in range(2):
        with staged(model, model.path) as written:
            written.commit()
        model.graph.modified = True
    assert onnx.load(model.path) == parse(TEXT)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_permissions_are_those_of_a_new_file(model: Model, out: Path, umask: int) -> None:
    """The result can be read by whom the umask allows, not just by its owner."""
    before = os.umask(umask)
    try:
        with staged(model, out) as written:
            written.commit()
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~umask


def test_a_relative_destination(model: Model, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare file name is written to the current folder."""
    monkeypatch.chdir(out.parent)
    with staged(model, Path("result.onnx")) as written:
        written.commit()
    assert onnx.load(out) == parse(TEXT)


def test_a_long_name_that_the_file_system_takes(model: Model, out: Path) -> None:
    """A destination whose name is as long as may be is no harder to write than another."""
    target = out.with_name("n" * 250 + ".onnx")
    target.write_bytes(b"the file system takes it")
    with staged(model, target) as written:
        written.commit()
    assert onnx.load(target) == parse(TEXT)


def bad_destinations(folder: Path) -> list[tuple[Path, str]]:
    """Return places that cannot be written to, and what is to be said of each."""
    (folder / "file").write_bytes(b"")
    return [
        (folder, "is a directory"),
        (folder / "missing" / "m.onnx", "there is no folder"),
        (folder / "file" / "m.onnx", "there is no folder"),
    ]


def test_places_that_cannot_be_written_to(model: Model, tmp_path: Path) -> None:
    """A missing folder or a directory as destination is refused before anything is written."""
    for destination, reason in bad_destinations(tmp_path):
        before = contents(tmp_path)
        for attempt in (check_destination, lambda d: staged(model, d).__enter__()):
            with pytest.raises(ModelExportError, match=reason) as caught:
                attempt(destination)
            assert caught.value.message.startswith(f"{destination}: ")
            assert "\n" not in caught.value.message
        assert contents(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_folder(model: Model, out: Path) -> None:
    """A folder without write permission is refused."""
    out.parent.chmod(0o555)
    with pytest.raises(ModelExportError, match="cannot be written"), staged(model, out):
        pass


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that takes no files")
def test_a_folder_that_takes_no_files(model: Model) -> None:
    """A folder that refuses the file, whatever its permissions say, is an export error."""
    with (
        pytest.raises(ModelExportError, match="cannot be written"),
        staged(model, Path("/proc/result.onnx")),
    ):
        pass


def test_a_destination_that_became_a_directory(model: Model, out: Path) -> None:
    """A destination that can no longer be replaced at commit is an export error."""
    with pytest.raises(ModelExportError, match="cannot be written"):  # noqa: PT012, SIM117
        with staged(model, out) as written:
            out.mkdir()
            written.commit()
    assert contents(out.parent) == {"result.onnx": b"(folder)"}


def test_modified_tells_of_any_graph() -> None:
    """A change in a body or a function counts as a change of the model."""
    model = ir_of("""g (float[2] x, bool c) => (y) {
        y = If (c) <then_branch = t () => (p) { p = Neg (x) }> }""")
    assert not is_modified(model)
    inner = list(model.graphs())[1]
    inner.modified = True
    assert is_modified(model)


def test_added_and_removed_functions_are_written_however_often() -> None:
    """Each export writes the functions that the model has by then, and what is in them."""
    model = ir_of(CALLS)
    del model.functions["o", "unused", ""]
    assert [function.name for function in to_proto(model).functions] == ["f"]
    body = model.functions["o", "f", ""].body
    node = next(iter(body))
    node.source, node.attributes, node.op_type = None, {}, "Abs"
    body.modified = True
    assert to_proto(model).functions[0].node[0].op_type == "Abs"
    new = Function("o", "new", Graph(model, {"": 17}))
    new.attributes, new.metadata = ("k",), {"a": "b"}
    model.functions[new.key] = new
    result = to_proto(model).functions
    assert [(item.name, item.node[0].op_type if item.node else "") for item in result] == [
        ("f", "Abs"),
        ("new", ""),
    ]
    assert list(result[1].attribute) == ["k"]
    assert result[1].metadata_props[0].key == "a"


def test_an_edited_node_keeps_the_edits_in_its_bodies() -> None:
    """A node that is written anew has its bodies as they are by then."""
    model = ir_of("""g (float[2] x, bool c) => (y) {
        y = If (c) <then_branch = t () => (p) { p = Neg (x) }> }""")
    choice = next(iter(model.graph))
    body = choice.subgraphs["then_branch"]
    node = next(iter(body))
    for edited in (choice, node):
        edited.attributes = dict(edited.attributes)
        edited.source = None
    node.op_type = "Abs"
    model.graph.modified = body.modified = True
    result = to_proto(model).graph.node[0]
    assert [item.name for item in result.attribute] == ["then_branch"]
    assert [item.op_type for item in result.attribute[0].g.node] == ["Abs"]


def test_opset_imports_are_added_once() -> None:
    """A domain that a pass imports is written once, the others stay as they were."""
    model = ir_of(TEXT)
    model.opset_imports["dnnl"] = 1
    for _ in range(2):
        imports = [(item.domain, item.version) for item in to_proto(model).opset_import]
        assert imports == [("", 17), ("dnnl", 1)]


def test_check_model_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    """Onnx's checker is asked in full: its answer is one line, empty if there is nothing."""
    path = tmp_path / "m.onnx"
    proto = parse(TEXT)
    path.write_bytes(proto.SerializeToString())
    assert check_model(path) == ""
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 3
    path.write_bytes(proto.SerializeToString())
    assert check_model(path)
    assert "\n" not in check_model(path)
    path.write_bytes(b"no model")
    assert check_model(path)


@pytest.mark.parametrize("name", ["resnet18_bn", "deit"])
def test_what_is_written_is_regular(tmp_path: Path, name: str) -> None:
    """New nodes stand in the file as protobuf would write them, so it is read at full speed."""
    model, out, again = ROOT / "sample_models" / f"{name}.onnx", tmp_path / "a", tmp_path / "b"
    unchecked = PartitionSettings(verify=False)
    done = pipeline.partition(model, unchecked.but(output=out, target=["dnnl"]))
    assert done.partitions
    pipeline.rewrite(
        out,
        RewriteSettings(output=again, patterns=["prepare", "fuse"], verify=False, max_growth=1000),
    )
    for path in (out, again):
        data = path.read_bytes()
        assert data != model.read_bytes()
        proto = onnx.ModelProto.FromString(data)
        for node in (*proto.graph.node, *(n for f in proto.functions for n in f.node)):
            assert node.SerializeToString() in data
