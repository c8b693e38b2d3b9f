"""Data beside the model: never read unasked, brought along whole, never taken from elsewhere."""

import contextlib
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime as ort
import pytest

from dplcli.errors import DplError, InvalidModelError, ModelExportError, ModelLoadError
from dplcli.ir import Model, types
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import check_external_data, check_model, convert, load_model, staged, to_proto
from dplcli.verify.model import whole_of
from dplcli.verify.values import ModelSource
from tests.support.models import parse

WEIGHT = np.array([3, 4], np.float32)


def refer(tensor: onnx.TensorProto, location: str, **entries: int) -> None:
    """Let *tensor* take its data from a file."""
    for name in ("float_data", "raw_data"):
        tensor.ClearField(name)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))


def write_model(folder: Path, location: str = "w.bin") -> Path:
    """Write a model whose weight lies in *location*, not the data itself."""
    proto = parse(
        "g (float[2] x) => (float[2] y) <float[2] w = {0, 0}> { t = Add (x, w) y = Relu (t) }"
    )
    refer(proto.graph.initializer[0], location)
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a model with its data beside it."""
    path = write_model(tmp_path / "in")
    path.with_name("w.bin").write_bytes(WEIGHT.tobytes())
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return a destination in another, empty folder."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "result.onnx"


def export(model: Model, destination: Path) -> None:
    """Write *model* to stay."""
    with staged(model, destination) as written:
        written.commit()


def assert_usable(path: Path) -> None:
    """Check that everybody can read the model at *path* with its data."""
    assert check_model(path) == ""
    weight = load_model(path).graph.values["w"].constant
    assert weight is not None
    np.testing.assert_array_equal(weight.numpy(), WEIGHT)
    loaded = onnx.load(path)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(loaded.graph.initializer[0]), WEIGHT)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.array([1, 1], np.float32)})
    np.testing.assert_array_equal(result, WEIGHT + 1)


def test_in_the_same_folder_data_is_by_reference(source: Path) -> None:
    """Beside the original the result refers to the same file, which is not touched."""
    before = source.with_name("w.bin").stat()
    export(load_model(source), source.with_name("result.onnx"))
    assert {path.name for path in source.parent.iterdir()} == {
        "model.onnx",
        "result.onnx",
        "w.bin",
    }
    assert source.with_name("w.bin").stat() == before
    assert_usable(source.with_name("result.onnx"))


@pytest.mark.parametrize("location", ["w.bin", "deep/er/w.bin", "./w.bin"])
def test_in_another_folder_data_comes_along(tmp_path: Path, out: Path, location: str) -> None:
    """Elsewhere the data is put beside the result; result and original stay usable by all."""
    path = write_model(tmp_path / "in", location)
    (path.parent / location).parent.mkdir(parents=True, exist_ok=True)
    (path.parent / location).write_bytes(WEIGHT.tobytes())
    export(load_model(path), out)
    assert_usable(out)
    assert_usable(path)


def test_data_that_cannot_be_linked_is_copied(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has no links the data is copied."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    export(load_model(source), out)
    assert_usable(out)


def test_data_behind_a_symbolic_link_comes_along(source: Path, out: Path) -> None:
    """A link, as download caches make them, is followed: the result has the data itself."""
    data = source.with_name("w.bin")
    (source.parent / "blobs").mkdir()
    data.rename(source.parent / "blobs" / "abc")
    data.symlink_to(Path("blobs", "abc"))
    export(load_model(source), out)
    assert out.with_name("w.bin").read_bytes() == WEIGHT.tobytes()
    assert_usable(out)


@pytest.mark.parametrize("content", [b"different", bytes(8)])
def test_a_different_file_is_not_overwritten(source: Path, out: Path, content: bytes) -> None:
    """A file of the same name with other content stops the export and stays."""
    out.with_name("w.bin").write_bytes(content)
    with pytest.raises(ModelExportError, match=r"w\.bin.*different file"):
        export(load_model(source), out)
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == {"w.bin": content}


def test_a_folder_in_the_way_of_data(source: Path, out: Path) -> None:
    """A folder where the data must go stops the export like a different file does."""
    out.with_name("w.bin").mkdir()
    with pytest.raises(ModelExportError, match=r"w\.bin"):
        export(load_model(source), out)
    assert [path.name for path in out.parent.iterdir()] == ["w.bin"]


def test_data_is_not_written_through_a_dangling_link(source: Path, out: Path) -> None:
    """A link that leads nowhere, in the way of the data, does not take it elsewhere."""
    elsewhere = out.parent.parent / "elsewhere"
    out.with_name("w.bin").symlink_to(elsewhere)
    with contextlib.suppress(ModelExportError):
        export(load_model(source), out)
    assert not elsewhere.exists()


def test_a_link_to_the_same_folder_is_the_same_folder(source: Path, tmp_path: Path) -> None:
    """The model's folder under another name needs no second copy, and loses nothing."""
    (tmp_path / "alias").symlink_to(source.parent)
    with staged(load_model(source), tmp_path / "alias" / "result.onnx"):
        pass
    assert source.with_name("w.bin").read_bytes() == WEIGHT.tobytes()
    export(load_model(source), tmp_path / "alias" / "result.onnx")
    assert_usable(tmp_path / "alias" / "result.onnx")


def test_an_equal_file_is_used_and_stays(source: Path, out: Path) -> None:
    """A file of the same name and content is taken as the data, and outlives a failure."""
    out.with_name("w.bin").write_bytes(WEIGHT.tobytes())
    with staged(load_model(source), out):
        pass
    assert [path.name for path in out.parent.iterdir()] == ["w.bin"]
    export(load_model(source), out)
    assert_usable(out)


@pytest.mark.parametrize("location", ["w.bin", "deep/er/w.bin"])
def test_data_goes_again_unless_committed(tmp_path: Path, out: Path, location: str) -> None:
    """Without a commit neither data nor folders made for it are left."""
    path = write_model(tmp_path / "in", location)
    (path.parent / location).parent.mkdir(parents=True, exist_ok=True)
    (path.parent / location).write_bytes(WEIGHT.tobytes())
    with staged(load_model(path), out) as written:
        assert_usable(written.path)
    assert list(out.parent.rglob("*")) == []
    assert (path.parent / location).read_bytes() == WEIGHT.tobytes()


def test_data_stays_with_a_committed_model_despite_an_exception(source: Path, out: Path) -> None:
    """A committed model keeps its data whatever happens afterwards."""
    with pytest.raises(KeyError), staged(load_model(source), out) as written:  # noqa: PT012
        written.commit()
        raise KeyError
    assert_usable(out)


def test_data_stays_with_a_result_that_is_kept(source: Path, out: Path) -> None:
    """A failed result that is kept to be looked at keeps its data."""
    with staged(load_model(source), out) as written:
        written.keep_as(out.with_suffix(".failed.onnx"))
    assert_usable(out.with_suffix(".failed.onnx"))


def test_missing_data(tmp_path: Path, out: Path) -> None:
    """A model without its data loads; reading or moving the data is what fails."""
    model = load_model(write_model(tmp_path / "in"))
    check_structure(model)
    weight = model.graph.values["w"]
    assert str(weight.known_type()) == "float32[2]"
    assert str(model.graph.values["t"].known_type()) == "float32[2]"
    assert weight.constant is not None
    assert weight.constant.is_external
    with pytest.raises(ModelLoadError, match=r"data 'w\.bin' is missing"):
        weight.constant.numpy()
    with pytest.raises(ModelExportError, match=r"w\.bin.*missing"):
        export(model, out)
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize("location", ["../w.bin", "a/../../w.bin", "..\\w.bin", "/etc/hostname"])
def test_data_outside_the_folder_is_refused(tmp_path: Path, out: Path, location: str) -> None:
    """A location that leads out of the model's folder is neither read nor brought along."""
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    model = load_model(write_model(tmp_path / "in", location))
    with pytest.raises(InvalidModelError, match="outside the model's folder") as caught:
        export(model, out)
    assert "model.onnx" in caught.value.message
    weight = model.graph.values["w"].constant
    assert weight is not None
    with pytest.raises(DplError):
        weight.numpy()
    assert list(out.parent.iterdir()) == []


def hide(folder: Path, kind: str) -> str:
    """Put data where a model in *folder* only finds it through a link; return its location."""
    secret = folder.parent / "secret"
    secret.mkdir(exist_ok=True)
    (secret / "w.bin").write_bytes(WEIGHT.tobytes())
    folder.mkdir(exist_ok=True)
    if kind == "file":
        (folder / "w.bin").symlink_to(Path("..", "secret", "w.bin"))
    elif kind == "absolute":
        (folder / "w.bin").symlink_to(secret / "w.bin")
    elif kind == "folder":
        (folder / "sub").symlink_to(secret)
        return "sub/w.bin"
    elif kind == "chain":
        (folder / "sub").symlink_to(folder / "step")
        (folder / "step").symlink_to(secret)
        return "sub/w.bin"
    elif kind == "circle":
        (folder / "w.bin").symlink_to(folder / "other")
        (folder / "other").symlink_to(folder / "w.bin")
    else:
        (folder / "w.bin").symlink_to("/dev/zero")
    return "w.bin"


LINKS = ["file", "absolute", "folder", "chain", "circle", "device"]


@pytest.mark.parametrize("kind", LINKS)
def test_links_out_of_the_folder_are_refused(tmp_path: Path, out: Path, kind: str) -> None:
    """Nobody's file reaches what is not beside it: nothing is read, copied or packed."""
    model = load_model(write_model(tmp_path / "in", hide(tmp_path / "in", kind)))
    weight = model.graph.values["w"].constant
    assert weight is not None
    with pytest.raises(DplError, match=r"outside the model's folder|cannot be found|Symlink loop"):
        weight.numpy()
    for how in ("copy", "link", "repack"):
        with (
            pytest.raises(DplError, match=r"outside the model's folder|cannot be found|missing"),
            staged(model, out, external_data=how) as written,
        ):
            written.commit()
    assert list(out.parent.iterdir()) == []


def cached(tmp_path: Path, blobs: str = "blobs") -> Path:
    """Lay a model out as Hugging Face's cache does, and return it."""
    hub = tmp_path / "models--who--what"
    revision = hub / "snapshots" / "0f3a" / "onnx"
    revision.parent.mkdir(parents=True)
    path = write_model(revision)
    (hub / blobs).mkdir()
    path.rename(hub / blobs / "aaaa")
    (hub / blobs / "bbbb").write_bytes(WEIGHT.tobytes())
    for name, blob in (("model.onnx", "aaaa"), ("w.bin", "bbbb")):
        (revision / name).symlink_to(Path("..", "..", "..", blobs, blob))
    return path


def test_the_cache_of_hugging_face(tmp_path: Path, out: Path) -> None:
    """Its links lead out of the folder to the blobs of the cache, and are followed there."""
    model = load_model(cached(tmp_path))
    weight = model.graph.values["w"].constant
    assert weight is not None
    np.testing.assert_array_equal(weight.numpy(), WEIGHT)
    export(model, out)
    assert not out.with_name("w.bin").is_symlink()
    assert_usable(out)


def test_what_only_looks_like_a_cache(tmp_path: Path, out: Path) -> None:
    """Links to any other folder of it are refused."""
    with pytest.raises(InvalidModelError, match="outside the model's folder"):
        export(load_model(cached(tmp_path, "secrets")), out)


IMPOSSIBLE = [
    *({"length": n} for n in ("-8", str(2**70), "0x8", "8.0", "", "7", "16", "\u0668")),
    *({"offset": n} for n in ("-1", str(2**63), str(2**70), "1e0", "4")),
]


@pytest.mark.parametrize("entries", IMPOSSIBLE, ids=str)
def test_places_that_cannot_be(source: Path, entries: dict[str, str]) -> None:
    """Negative, huge, no number, or not what the type needs: an error."""
    proto = onnx.ModelProto.FromString(source.read_bytes())
    for key, text in entries.items():
        proto.graph.initializer[0].external_data.add(key=key, value=text)
    source.write_bytes(proto.SerializeToString())
    model = load_model(source)
    weight = model.graph.values["w"].constant
    assert weight is not None
    with pytest.raises(ModelLoadError, match="external data of 'w'"):
        weight.numpy()
    with pytest.raises(ModelLoadError, match=r"external data"):
        check_external_data(model)
    assert (weight.place is None) == (entries != {"offset": "4"})


FRUGAL = """
import resource, sys, time
from pathlib import Path
from dplcli.onnx_io import load_model, staged

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
before, start = peak(), time.process_time()
model = load_model(Path(sys.argv[1]))
assert model.graph.values["t"].known_type() is not None
model.graph.modified = True
with staged(model, Path(sys.argv[2])) as written:
    written.commit()
assert time.process_time() - start < 5, "it took too long"
assert peak() - before < 100_000, f"it took {peak() - before} kB"
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("dims", "more"),
    [
        pytest.param([3 << 18, 1024], "", id="3-GB"),
        pytest.param([4 << 20], "", id="flat-16-MB"),
        pytest.param([4 << 20], "s = Shape (x)", id="flat-beside-shape"),
    ],
)
def test_huge_data_is_never_read(tmp_path: Path, dims: list[int], more: str) -> None:
    """Loading, typing and writing a model with much data beside it takes next to nothing."""
    proto = parse(f"g (float[N] x) => (y) {{ t = Add (x, w) y = Relu (t) {more} }}")
    refer(proto.graph.initializer.add(name="w", data_type=1, dims=dims), "w.bin")
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with path.with_name("w.bin").open("wb") as data:
        data.truncate(4 * math.prod(dims))
    out = tmp_path / "result.onnx"
    command = [sys.executable, "-c", FRUGAL, str(path), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size < 1000


def external_places() -> dict[str, onnx.ModelProto]:
    """Return models with external data in each place that a tensor can stand in."""
    base = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (bool c) => (y) { y = %s }
        <domain: "o", opset_import: ["" : 17]>
        f () => (k) { k = Constant <value = float {1}> () }"""
    constant = parse(base % "Constant <value = float {1}> ()")
    refer(constant.graph.node[0].attribute[0].t, "w.bin")
    body = parse(base % "If (c) <then_branch = t () => (k) <float k = {1}> { }>")
    refer(body.graph.node[0].attribute[0].g.initializer[0], "w.bin")
    function = parse(base % "o.f ()")
    refer(function.functions[0].node[0].attribute[0].t, "w.bin")
    sparse = parse(base % "Constant <value = float {1}> ()")
    attribute = sparse.graph.node[0].attribute[0]
    attribute.name, attribute.type = "sparse_value", onnx.AttributeProto.SPARSE_TENSOR
    attribute.ClearField("t")
    one = onnx.numpy_helper.from_array(np.array([1], np.float32), "v")
    zero = onnx.numpy_helper.from_array(np.array([0], np.int64), "i")
    attribute.sparse_tensor.CopyFrom(onnx.helper.make_sparse_tensor(one, zero, [2]))
    refer(attribute.sparse_tensor.values, "w.bin")
    default = parse(base % "o.f ()")
    default.functions[0].attribute_proto.append(constant.graph.node[0].attribute[0])
    return {
        "constant": constant,
        "body": body,
        "function": function,
        "sparse-attribute": sparse,
        "function-default": default,
    }


@pytest.mark.parametrize("place", external_places())
def test_data_comes_along_from_every_place(tmp_path: Path, out: Path, place: str) -> None:
    """Wherever in the model a tensor with external data stands, its file comes along."""
    path = tmp_path / "model.onnx"
    path.write_bytes(external_places()[place].SerializeToString())
    path.with_name("w.bin").write_bytes(np.float32(7).tobytes())
    export(load_model(path), out)
    assert out.with_name("w.bin").read_bytes() == np.float32(7).tobytes()


def test_constant_node_reads_its_data_from_the_models_folder(tmp_path: Path) -> None:
    """A Constant node's external data is read from the model's folder, as an initializer's is."""
    path = tmp_path / "model.onnx"
    path.write_bytes(external_places()["constant"].SerializeToString())
    path.with_name("w.bin").write_bytes(np.float32(7).tobytes())
    constant = load_model(path).graph.values["y"].constant
    assert constant is not None
    assert constant.is_external
    assert constant.numpy() == 7


def test_offset_and_length_are_kept(source: Path, out: Path) -> None:
    """Several tensors in one file stay where they are in it."""
    proto = parse("g () => (y) <float[2] v = {0, 0}, float[2] w = {0, 0}> { y = Sub (w, v) }")
    refer(proto.graph.initializer[0], "w.bin", offset=8, length=8)
    refer(proto.graph.initializer[1], "w.bin", offset=0, length=8)
    source.with_name("w.bin").write_bytes(np.array([3, 4, 5, 6], np.float32).tobytes())
    source.write_bytes(proto.SerializeToString())
    export(load_model(source), out)
    constant = load_model(out).graph.values["v"].constant
    assert constant is not None
    np.testing.assert_array_equal(constant.numpy(), [5, 6])


def test_data_with_two_names_is_read(source: Path, tmp_path: Path) -> None:
    """It is no attack; what leads out of the folder, and what is cut off, is refused."""
    data = source.with_name("w.bin")
    (tmp_path / "second.bin").hardlink_to(data)
    weight = load_model(source).graph.values["w"].constant
    assert weight is not None
    np.testing.assert_array_equal(weight.numpy(), WEIGHT)
    assert [list(part) for part in weight.chunks()] == [[3, 4]]
    np.testing.assert_array_equal(
        whole_of(ModelSource(source)).graph.initializer[0].raw_data, WEIGHT.tobytes()
    )
    os.truncate(data, 7)
    with pytest.raises(ModelLoadError, match="external data of 'w' is cut off"):
        weight.numpy()
    with pytest.raises(ValueError, match="external data of 'w' is cut off"):
        whole_of(ModelSource(source))
    os.truncate(tmp_path / "second.bin", 8)
    data.unlink()
    data.symlink_to(tmp_path / "second.bin")
    (tmp_path / "third.bin").hardlink_to(tmp_path / "second.bin")
    with pytest.raises(ModelLoadError, match="outside the model's folder"):
        weight.numpy()


def test_an_edited_model_keeps_its_references(source: Path) -> None:
    """Writing a graph anew leaves external tensors external."""
    model = load_model(source)
    model.graph.modified = True
    tensor = to_proto(model).graph.initializer[0]
    assert [(entry.key, entry.value) for entry in tensor.external_data] == [("location", "w.bin")]
    assert not tensor.HasField("raw_data")


CHUNKED = ["float", "float16", "bfloat16", "int64", "uint8", "float8e5m2", "int4", "bool"]


@pytest.mark.parametrize("dtype", CHUNKED)
def test_data_is_read_chunk_by_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """The chunks are the whole; onnx reads no more than one of them at a time."""
    code = onnx.TensorProto.DataType.Value(dtype.upper())
    tensor = onnx.helper.make_tensor("w", code, [3, 50], [number % 2 for number in range(150)])
    raw = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor)).raw_data
    (tmp_path / "w.bin").write_bytes(bytes(7) + raw)
    refer(tensor, "w.bin", offset=7, length=len(raw))
    tensor.ClearField("int32_data")
    tensor.ClearField("int64_data")
    for module in (convert, types):
        monkeypatch.setattr(module, "CHUNK", 16)
    read: list[int] = []
    to_array = onnx.numpy_helper.to_array

    def spy(proto: onnx.TensorProto) -> object:
        read.append(math.prod(proto.dims))
        return to_array(proto)

    monkeypatch.setattr(onnx.numpy_helper, "to_array", spy)
    held = convert.ProtoTensor(tensor, convert.Home(tmp_path, "m.onnx"))
    parts = list(held.chunks())

    assert max(read) == 16
    np.testing.assert_array_equal(np.concatenate(parts), held.numpy().reshape(-1))


@pytest.mark.parametrize("entries", [{"length": 400}, {"offset": 500}, {"offset": -4}])
def test_a_chunk_that_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: dict[str, int]
) -> None:
    """As the whole is, whatever the file states."""
    (tmp_path / "w.bin").write_bytes(bytes(600))
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[150])
    refer(tensor, "w.bin", **entries)
    monkeypatch.setattr(convert, "CHUNK", 16)
    held = convert.ProtoTensor(tensor, convert.Home(tmp_path, "m.onnx"))
    with pytest.raises(ModelLoadError, match="cannot be read"):
        list(held.chunks())


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files have no holes")
def test_a_diff_of_large_data_takes_little_memory(tmp_path: Path) -> None:
    """One tensor of 2.5 GB, of which one number differs: under 300 MB resident."""
    size = 2_500_000_000
    for name in ("a", "b"):
        with (tmp_path / f"{name}.bin").open("wb") as stream:
            stream.seek(size // 2)
            stream.write(b"\x00\x00\x80?" if name == "b" else bytes(4))
            stream.truncate(size)
        tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[size // 4])
        refer(tensor, f"{name}.bin", offset=0, length=size)
        proto = parse("g (float x) => (y) <float w = {0}> { y = Add (x, w) }")
        proto.graph.initializer[0].CopyFrom(tensor)
        (tmp_path / f"{name}.onnx").write_bytes(proto.SerializeToString())

    process = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", PEAK_OF_DIFF],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )

    said, kilobytes = process.stdout.rsplit("\n", 2)[:2]
    assert "1 of 625000000 elements differ, by at most 1" in said, process.stderr
    assert int(kilobytes) < 300 * 1024


PEAK_OF_DIFF = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "dplcli", "diff", "a.onnx", "b.onnx"])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
