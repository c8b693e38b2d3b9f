"""``--external-data``: how a model's weights get to where the result is."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import dplcli
from dplcli import files
from tests.cli.support import ROOT, SAMPLES, Answer, Dpl, contents
from tests.support.helpers import one_in

BIG = 2_500_000_000
USED = np.arange(1024, dtype=np.float32)
NET = """<ir_version: 8, opset_import: ["" : 17]> g (float[1024] x) => (float[1024] y)
{ i = Identity (x) a = Add (i, w) b = Mul (a, tied) y = Relu (b) }"""
KINDS = ("copy", "link", "repack")
Kind = Literal["copy", "link", "repack"]
WRITING = {
    "rewrite": ("rewrite", "in/m.onnx", "-p", "prepare"),
    "partition": ("partition", "in/m.onnx", "-p", "rule.yaml"),
    "inline": ("inline", "in/p.onnx"),
    "apply": ("apply", "in/m.plan", "in/m.onnx"),
}


def refer(proto: onnx.ModelProto, name: str, offset: int, size: int) -> None:
    """Add a weight that lies in ``sub/w.bin``."""
    tensor = proto.graph.initializer.add(name=name, data_type=1, dims=[size // 4], data_location=1)
    for key, value in (("location", "sub/w.bin"), ("offset", offset), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))


@pytest.fixture
def data(folder: Path) -> Path:
    """Make a model of two weights that share their data, between bytes that nothing refers to."""
    proto = onnx.parser.parse_model(NET)
    for name in ("w", "tied"):
        refer(proto, name, 8192, USED.nbytes)
    for name in ("in/sub", "out"):
        (folder / name).mkdir(parents=True)
    onnx.save(proto, folder / "in" / "m.onnx")
    path = folder / "in" / "sub" / "w.bin"
    path.write_bytes(b"\x01" * 8192 + USED.tobytes() + b"\x02" * 10_000)
    return path


def computed(path: Path) -> np.ndarray:
    """Return what the model gives, in onnxruntime."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.ones(1024, np.float32)})
    return np.asarray(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", WRITING)
def test_every_command_that_writes_a_model(
    dpl: Dpl, folder: Path, data: Path, command: str, kind: str
) -> None:
    """The result computes the same, the original is as it was, and a second run changes nothing."""
    (folder / "rule.yaml").write_text(
        "dpl: 1\ntarget: t\npatterns: [{name: r, pattern: 'Relu(Mul(x, y))'}]"
    )
    plain = ("-p", "rule.yaml", "-o", "in/p.onnx")
    assert dpl("partition", "in/m.onnx", *plain).code == 0
    ready = ("rewrite", "in/m.onnx", "-p", "prepare", "-o", "in/r.onnx", "--plan", "in/m.plan")
    assert dpl(*ready).code == 0
    before = contents(folder / "in")
    words = WRITING[command]

    first = dpl(*words, "-o", "out/o.onnx", "--external-data", kind)
    written = contents(folder / "out")
    again = dpl(*words, "-o", "out/o.onnx", "--external-data", kind)

    assert (first.code, first.err, again.code, again.err) == (0, "", 0, "")
    assert "quivalent" in first.out
    assert contents(folder / "in") == before
    assert contents(folder / "out") == written
    np.testing.assert_array_equal(computed(folder / "out/o.onnx"), (USED + 1) * USED)
    assert written.keys() == {"o.onnx", "o.onnx.data" if kind == "repack" else "sub/w.bin"}
    assert (data.stat().st_nlink == 2) == (kind == "link")  # the disk of the tests has no clones
    assert ("'w.bin' has two names now: onnx refuses that" in first.out) == (kind == "link")
    if kind != "link":
        onnx.checker.check_model(str(folder / "out/o.onnx"), full_check=True)


def test_what_is_packed_is_what_is_used(dpl: Dpl, folder: Path, data: Path) -> None:
    """Once, aligned; and it is said how much that is, also where nothing else was to be done."""
    assert data.exists()
    options = ("--external-data", "repack", "-o", "in/o.onnx", "--json", "o.json")

    answer = dpl("rewrite", "in/m.onnx", "-p", "fuse_attention", *options)

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("Wrote in/o.onnx, and 4,096 bytes of external data.\n")
    assert (folder / "in/o.onnx.data").read_bytes() == USED.tobytes()
    record = json.loads((folder / "o.json").read_text())
    assert record["external_data"] == 4096
    assert record["bytes"]["after"] == (folder / "in/o.onnx").stat().st_size + 4096
    tensors = onnx.load(folder / "in/o.onnx", load_external_data=False).graph.initializer
    entries = [{entry.key: entry.value for entry in tensor.external_data} for tensor in tensors]
    assert entries == [{"location": "o.onnx.data", "offset": "0", "length": "4096"}] * 2


def test_weights_are_aligned_and_those_in_the_model_stay(folder: Path) -> None:
    """Each begins at a page; the interface for programs has the keyword, too."""
    proto = onnx.parser.parse_model(NET)
    proto.graph.node[2].input[1] = "t2"
    (folder / "sub").mkdir()
    refer(proto, "w", 4, USED.nbytes)
    refer(proto, "t2", 4104, USED.nbytes)
    proto.graph.initializer.add(name="unused", data_type=1, dims=[1], float_data=[7])
    onnx.save(proto, folder / "m.onnx")
    (folder / "sub/w.bin").write_bytes(b"\x03" * 4 + USED.tobytes() + b"\x03" * 4 + USED.tobytes())

    done = dplcli.rewrite("m.onnx", patterns="prepare", output="o.onnx", external_data="repack")

    assert done.ok
    np.testing.assert_array_equal(computed(folder / "o.onnx"), (USED + 1) * USED)
    packed = onnx.load(folder / "o.onnx", load_external_data=False).graph.initializer
    places = {t.name: {e.key: e.value for e in t.external_data}.get("offset") for t in packed}
    assert {places["w"], places["t2"]} == {"0", "4096"}
    with pytest.raises(dplcli.DplError, match="external data is put beside the output"):
        dplcli.rewrite("m.onnx", patterns="prepare", external_data="repack")
    with pytest.raises(dplcli.DplError, match="there is no 'move'"):
        dplcli.rewrite("m.onnx", patterns="prepare", output="o.onnx", external_data="move")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_in_place(dpl: Dpl, folder: Path, data: Path, kind: str) -> None:
    """Only repack writes data then, beside the old, and no data that a model needs is replaced."""
    before = data.read_bytes()
    words = ("rewrite", "in/m.onnx", "--in-place", "--external-data", kind)

    answer = dpl(*words, "-p", "prepare")

    assert (answer.code, answer.err) == (0, "")
    assert data.read_bytes() == before
    assert data.stat().st_nlink == 1
    np.testing.assert_array_equal(computed(folder / "in/m.onnx"), (USED + 1) * USED)
    assert ("m.onnx.data" in contents(folder / "in")) == (kind == "repack")
    if kind == "repack":
        assert dpl(*words, "-p", "prepare").code == 0  # the same bytes again
        model = onnx.load("in/m.onnx", load_external_data=False)
        model.graph.initializer[0].external_data[1].value = "8"
        model.graph.initializer[0].external_data[2].value = "4088"
        model.graph.initializer[0].dims[0] = 1022
        onnx.save(model, "in/m.onnx")
        there = contents(folder / "in")
        refused = dpl(*words, "-p", "prepare", "--no-verify")
        assert refused.code == 2
        assert "in/m.onnx.data: a different file stands where external data" in refused.message
        assert contents(folder / "in") == there


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["missing", "short", "folder", "elsewhere"])
def test_what_stands_in_the_way(dpl: Dpl, folder: Path, data: Path, kind: str, fault: str) -> None:
    """One message that names the file; nothing is written."""
    target = folder / "out" / ("o.onnx.data" if kind == "repack" else "sub/w.bin")
    target.parent.mkdir(exist_ok=True)
    if fault == "missing":
        data.unlink()
    elif fault == "short":
        os.truncate(data, 9000)
    elif fault == "folder":
        target.mkdir()
    else:
        target.symlink_to(folder / "precious")
    (folder / "precious").write_bytes(b"precious")
    before = contents(folder)

    words = ("rewrite", "in/m.onnx", "-p", "prepare", "-o", "out/o.onnx", "--external-data", kind)
    answer = dpl(*words)

    assert answer.code == 2
    assert "external data" in answer.message
    assert ("w.bin" if fault in {"missing", "short"} else target.name) in answer.message
    assert contents(folder) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_fails_leaves_no_data(dpl: Dpl, folder: Path, data: Path, kind: str) -> None:
    """Unless it is kept: then it can be run."""
    assert data.exists()
    (folder / "rule.yaml").write_text(
        "dpl: 1\nrewrites: [{name: r, pattern: Relu(x), replacement: 'Abs(Neg(Exp(x)))'}]"
    )
    what = ("rewrite", "in/m.onnx", "-p", "rule.yaml", "-o", "out/o.onnx", "--all-or-nothing")
    words = (*what, "--external-data", kind)

    assert dpl(*words).code == 1
    assert contents(folder / "out") == {}
    assert dpl(*words, "--keep-failed").code == 1

    assert computed(folder / "out/o.failed.onnx").shape == (1024,)
    assert (folder / "out/o.onnx").exists() is False


def test_two_disks_have_no_links(dpl: Dpl, folder: Path, data: Path) -> None:
    """A message that says what to do instead; what is there stays."""
    other = Path("/dev/shm")  # noqa: S108  # memory, which is another disk
    if not other.is_dir() or other.stat().st_dev == folder.stat().st_dev:
        pytest.skip("there is no other disk")
    place = other / f"dpl-test-{os.getpid()}"
    place.mkdir()
    try:
        words = ("rewrite", "in/m.onnx", "-p", "prepare", "-o", place / "o.onnx")
        answer = dpl(*words, "--external-data", "link")
        assert (answer.code, contents(place)) == (2, {})
        assert f"{data.relative_to(folder)} can have no second name there" in answer.message
        assert answer.hint == "pass --external-data copy"
    finally:
        shutil.rmtree(place)


def test_blocks_are_shared_where_the_disk_can(
    dpl: Dpl, folder: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clones are files of their own, which onnx takes: link and copy make them."""
    cloned = []

    def ioctl(new: int, request: int, old: int) -> int:
        assert request == 0x40049409
        cloned.append(old)
        os.sendfile(new, old, 0, os.fstat(old).st_size)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    for kind in ("link", "copy"):
        words = ("rewrite", "in/m.onnx", "-p", "prepare", "-o", "out/o.onnx", "--no-verify")
        answer = dpl(*words, "--external-data", kind)
        assert (answer.code, "two names" in answer.out) == (0, False)
        assert (folder / "out/sub/w.bin").read_bytes() == data.read_bytes()
        assert (folder / "out/sub/w.bin").stat().st_nlink == 1
        (folder / "out/sub/w.bin").unlink()
    assert len(cloned) == 2


def test_nothing_is_written_through_a_second_name(folder: Path) -> None:
    """A file that is written anew, or copied to, leaves the other name alone."""
    (folder / "a").write_bytes(b"first")
    files.link_file(folder / "a", folder / "b")
    (folder / "c").write_bytes(b"third")

    files.write_file(folder / "b", b"second")
    assert (folder / "a").read_bytes() == b"first"
    files.link_file(folder / "a", folder / "d")
    files.copy_file(folder / "c", folder / "d")

    assert (folder / "a").read_bytes() == b"first"
    with pytest.raises(OSError, match="exists") as caught:
        files.link_file(folder / "c", folder / "a")
    assert caught.value.errno == errno.EEXIST


PEAK = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "dplcli", *sys.argv[1:]])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def run_apart(folder: Path, *words: str) -> tuple[Answer, int]:
    """Run a command; return its answer, and the most memory that it had, in megabytes."""
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", PEAK, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    *_, peak = done.stdout.splitlines()
    return Answer(done.returncode, done.stdout, done.stderr), int(peak) // 1024


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_large_data_takes_neither_memory_nor_disk(folder: Path, data: Path, kind: str) -> None:
    """2.5 GB, most of it a hole: under 300 MB resident; what is in it comes along."""
    proto = onnx.parser.parse_model(NET)
    proto.graph.node[2].input[1] = "w"
    refer(proto, "w", 8192, USED.nbytes)
    refer(proto, "huge", 16_384, BIG)
    proto.graph.node.add(op_type="Size", input=["huge"], output=["n"])
    proto.graph.output.add(name="n").type.tensor_type.elem_type = 7
    onnx.save(proto, folder / "in/m.onnx")
    with data.open("r+b") as stream:
        stream.truncate(16_384)
        stream.seek(16_384 + BIG - 4)
        stream.write(b"last")

    words = ("rewrite", "in/m.onnx", "-p", "fuse", "-o", "out/o.onnx", "--no-verify")
    answer, peak = run_apart(folder, *words, "--external-data", kind)

    assert (answer.code, answer.err) == (0, "")
    assert peak < 300
    (written,) = (
        path for path in (folder / "out").rglob("*") if path.name in {"w.bin", "o.onnx.data"}
    )
    assert written.stat().st_size >= BIG
    assert written.stat().st_blocks * 512 < 1 << 20
    model = onnx.load(folder / "out/o.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        with written.open("rb") as stream:
            stream.seek(int(place["offset"]))
            first = stream.read(4)
            stream.seek(int(place["offset"]) + int(place["length"]) - 4)
            last = stream.read(4)
        wanted = {"w": (USED[:1].tobytes(), USED[-1:].tobytes()), "huge": (bytes(4), b"last")}
        assert (first, last) == wanted[tensor.name]


# -- what was computed -----------------------------------------------------------------------------

SCALED = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 64] x) => (float[n, 64] y)
{ a = MatMul (x, w) b = Mul (a, half) c = MatMul (b, v) y = Relu (c) }"""
FOLD = ("rewrite", "in/m.onnx", "-p", "prepare", "-o", "out/m.onnx")


@pytest.fixture
def scaled(folder: Path) -> Path:
    """Make a model of two weights in a file each, of which one is folded; return its folder.

    The file of the folded one has more that nobody reads. It has the name of the result's data.
    """
    weights = np.random.default_rng(0).standard_normal((2, 64, 64), np.float32)
    proto = onnx.parser.parse_model(SCALED)
    proto.graph.initializer.add(name="half", data_type=1, dims=[1], float_data=[0.5])
    for name in ("in", "out"):
        (folder / name).mkdir()
    for name, place, more in (("w", "m.onnx.data", b"\x07" * 50_000), ("v", "v.bin", b"")):
        data = weights["wv".index(name)]
        tensor = proto.graph.initializer.add(name=name, data_type=1, dims=[64, 64])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=place)
        tensor.external_data.add(key="length", value=str(data.nbytes))
        (folder / "in" / place).write_bytes(data.tobytes() + more)
    onnx.save(proto, folder / "in" / "m.onnx")
    return folder / "in"


def multiplied(path: Path) -> np.ndarray:
    """Return what the model gives, in onnxruntime."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.eye(64, dtype=np.float32)})
    return np.asarray(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["rewrite", "partition"])
def test_what_was_computed_lies_in_a_file_of_its_own(
    dpl: Dpl, folder: Path, scaled: Path, command: str, kind: str
) -> None:
    """Only files that are used come along; a second run makes the same; the original stays."""
    before = contents(scaled)
    wanted = multiplied(scaled / "m.onnx")
    words = ("partition", "in/m.onnx", "--target", "dnnl", "--prepare", *FOLD[-2:])
    words = (*(FOLD if command == "rewrite" else words), "--external-data", kind)

    first = dpl(*words)
    written = contents(folder / "out")
    again = dpl(*words)

    assert (first.code, first.err, again.code, again.err) == (0, "", 0, "")
    assert (contents(scaled), contents(folder / "out")) == (before, written)
    assert len(written["m.onnx"]) < 8192
    is_taken = kind == "link" or (command, kind) == ("rewrite", "copy")
    own = "m.onnx.1.data" if is_taken else "m.onnx.data"
    assert written.keys() == {"m.onnx", own, *(() if kind == "repack" else ("v.bin",))}
    np.testing.assert_allclose(multiplied(folder / "out/m.onnx"), wanted, rtol=1e-5)
    if kind != "link":
        onnx.checker.check_model(str(folder / "out/m.onnx"), full_check=True)


@pytest.mark.parametrize("kind", ["copy", "link"])
def test_what_was_computed_stays_beside_the_model(
    dpl: Dpl, folder: Path, scaled: Path, kind: str
) -> None:
    """In place, no data that is there is replaced; what fails leaves none, unless it is kept."""
    before = contents(scaled)
    wanted = multiplied(scaled / "m.onnx")
    (folder / "wrong.yaml").write_text(
        "dpl: 1\nrewrites: [{name: r, pattern: 'MatMul(x, const(w))', "
        "replacement: 'MatMul(x, const(w.value * 2))', once: true}]"
    )
    what = ("rewrite", "in/m.onnx", "-p", "wrong.yaml", "--all-or-nothing")
    wrong = (*what, "--external-data", kind)
    assert dpl(*wrong, "--in-place").code == 1
    assert contents(scaled) == before

    answer = dpl("rewrite", "in/m.onnx", "-p", "prepare", "--in-place", "--external-data", kind)

    assert (answer.code, answer.err) == (0, "")
    assert contents(scaled).keys() - before.keys() == {"m.onnx.1.data"}
    assert contents(scaled)["m.onnx.data"] == before["m.onnx.data"]
    np.testing.assert_allclose(multiplied(scaled / "m.onnx"), wanted, rtol=1e-5)
    assert dpl(*wrong, "--keep-failed", "-o", "out/o.onnx").code == 1
    np.testing.assert_allclose(multiplied(folder / "out/o.failed.onnx"), 4 * wanted, rtol=1e-5)


def test_what_is_small_stays_in_the_model(dpl: Dpl, folder: Path, scaled: Path) -> None:
    """Up to 1 kB; and a model without external data gets none."""
    (folder / "in/small.onnx").write_bytes((scaled / "m.onnx").read_bytes())
    model = onnx.load(scaled / "m.onnx")
    onnx.save(model, folder / "in/whole.onnx")
    (folder / "rule.yaml").write_text(
        "dpl: 1\nrewrites: [{name: r, pattern: 'Relu(x)', "
        "replacement: 'Max(x, const(expand(cast(0, x.dtype), [64])))'}]"
    )

    for name, rule in (("small", "rule.yaml"), ("whole", "prepare")):
        words = ("rewrite", f"in/{name}.onnx", "-p", rule, "-o", f"out/{name}.onnx")
        assert dpl(*words).code == 0
    assert contents(folder / "out").keys() == {
        "small.onnx",
        "whole.onnx",
        "m.onnx.data",
        "v.bin",
    }


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["run", "dry"])
def test_growth_counts_what_is_used(
    dpl: Dpl, folder: Path, scaled: Path, dry: tuple[str, ...]
) -> None:
    """Of shared files of data, too: the way to be rid of what is not used is named."""
    shared = (scaled / "m.onnx.data").read_bytes() + (scaled / "v.bin").read_bytes()
    model = onnx.load(scaled / "m.onnx", load_external_data=False)
    place = {entry.key: entry for entry in model.graph.initializer[2].external_data}
    place["location"].value = "m.onnx.data"
    model.graph.initializer[2].external_data.add(key="offset", value=str(len(shared) - 16_384))
    (scaled / "m.onnx.data").write_bytes(shared)
    onnx.save(model, scaled / "m.onnx")

    answer = dpl(*FOLD, "--max-growth", "1", *dry, "--json", "r.json")

    assert (answer.code, answer.err) == (0, "")
    size = json.loads((folder / "r.json").read_text())["bytes"]
    assert size["before"] == (scaled / "m.onnx").stat().st_size + 2 * 16_384
    if not dry:
        assert size["after"] == (folder / "out/m.onnx").stat().st_size + 2 * 16_384
        assert "have 66,384 bytes that the result does not use" in answer.out
        assert "--external-data repack leaves them out" in " ".join(answer.out.split())
        assert "does not use" not in dpl(*FOLD, "--external-data", "repack").out
    assert abs(size["after"] - size["before"]) < 300


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files have no holes")
def test_folding_holds_nothing_but_the_result(folder: Path) -> None:
    """A weight of 60 MB in a file takes at most 1.2 times as much memory, and 100 MB."""
    proto = onnx.parser.parse_model(SCALED.replace("n, 64] x", "n, 10000] x"))
    proto.graph.initializer.add(name="half", data_type=1, dims=[1], float_data=[0.5])
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 1500
    del proto.graph.node[2]
    proto.graph.node[2].input[0] = "b"
    (folder / "sub").mkdir()
    refer(proto, "w", 0, 60_000_000)
    proto.graph.initializer[1].dims[:] = [10_000, 1500]
    onnx.save(proto, folder / "m.onnx")
    with (folder / "sub/w.bin").open("wb") as stream:
        stream.truncate(60_000_000)

    words = ("rewrite", "m.onnx", "-p", "prepare", "-o", "o.onnx", "--no-verify")
    answer, peak = run_apart(folder, *words)

    assert (answer.code, answer.err) == (0, "")
    assert "fold_factor_into_matmul" in answer.out
    assert (folder / "o.onnx.data").stat().st_size == 60_000_000
    assert peak < 1.2 * 60 + 100


LACKING = {
    "apply": ("p.plan", "in/m.onnx"),
    "bench": ("in/m.onnx", "in/m.onnx"),
    "bisect": ("in/m.onnx", "-p", "prepare"),
    "diff": ("in/m.onnx", "light.onnx"),
    "explain": ("in/m.onnx", "-p", "prepare"),
    "extract": ("in/m.onnx", "--to", "a"),
    "inline": ("in/m.onnx",),
    "partition": ("in/m.onnx", "--target", "dnnl", "--no-verify"),
    "repeat": ("in/m.onnx",),
    "rewrite": ("in/m.onnx", "-p", "prepare"),
    "run": ("in/m.onnx",),
    "verify": ("light.onnx", "in/m.onnx"),
}


@pytest.mark.parametrize("command", one_in(4, LACKING))
def test_data_that_is_missing_is_one_message(
    dpl: Dpl, data: Path, folder: Path, command: str
) -> None:
    """In the same words, of every command that needs it; nothing of onnx or onnxruntime."""
    shutil.copy(SAMPLES / "residual_block.onnx", folder / "light.onnx")
    plan = ("--plan", "p.plan", "-o", "out/o.onnx")
    assert dpl("rewrite", "in/m.onnx", "-p", "prepare", "--no-verify", *plan).code == 0
    data.unlink()
    answer = dpl(command, *LACKING[command])
    assert answer.code == 2
    assert answer.message == "in/m.onnx: its external data 'sub/w.bin' is missing"
