"""What holds for every file: each property takes a folder and something drawn, and names faults."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from hypothesis import strategies as st

from tests.fuzz.mutations import (
    changed_catalogues,
    changed_pipelines,
    changed_texts,
    mutated_models,
)
from tests.fuzz.running import asked, faults, refused_results, wrong_numbers
from tests.fuzz.typed import typed_models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TARGETS = ("dnnl", "cutlass", "cublas")
POLICIES = (
    *((), ("--escape", "duplicate"), ("--escape", "outputs"), ("--order", "program")),
    *(("--constants", "embed"), ("--constants", "lift"), ("--merge",), ("--merge", "--prune")),
)
REWRITES = (("prepare", "fuse"), ("fuse_ort",), ("fuse_attention",), ("fuse_ort_quantized",))
WITHOUT = ("--no-verify", "-q", "-o")


@st.composite
def hostile_model(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, ...]]]:
    """Draw a file, and commands to run on it."""
    target, policy = draw(st.sampled_from(TARGETS)), draw(st.sampled_from(POLICIES))
    rewrites = [word for name in draw(st.sampled_from(REWRITES)) for word in ("-p", name)]
    chosen = [
        ("match", "m.onnx", "--target", target, "-v"),
        ("partition", "m.onnx", "--target", target, *policy, *WITHOUT, "p.onnx"),
        ("rewrite", "m.onnx", *rewrites, *WITHOUT, "r.onnx"),
        ("repeat", "m.onnx", *WITHOUT, "e.onnx"),
        ("inspect", "m.onnx"),
        ("diff", "m.onnx", "m.onnx", "-v"),
        ("inline", "m.onnx", *WITHOUT, "i.onnx"),
        ("view", "m.onnx", "-o", "v.html"),
        ("explain", "m.onnx", "--target", target),
    ]
    return draw(mutated_models()), draw(st.permutations(chosen))[:4]


def survives(folder: Path, drawn: tuple[bytes, list[tuple[str, ...]]]) -> list[str]:
    """No model brings about an internal error, a hang, a stray file or a result that is broken."""
    data, commands = drawn
    (folder / "m.onnx").write_bytes(data)
    found = []
    for words in commands:
        codes = (0, 2) if words[0] == "diff" else (0, 1, 2)  # no model differs from itself
        found += faults(folder, *words, codes=codes)
    return found + refused_results(folder, "m.onnx", "p.onnx", "r.onnx", "e.onnx", "i.onnx")


SMALL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] z) <float[2, 2, 1, 1] w = {1, 2, 3, 4}>
{ c = Conv (x, w) r = Relu (c) i = Identity (r) z = Add (i, i) }"""


def _small(folder: Path) -> None:
    onnx.save(onnx.parser.parse_model(SMALL), folder / "m.onnx")


def reads_texts(folder: Path, drawn: bytes) -> list[str]:
    """No ONNX text does, be it an example of a catalogue or one itself."""
    _small(folder)
    (folder / "f.onnxtxt").write_bytes(drawn)
    text = drawn.decode("utf-8", "replace")
    rule = {"name": "r", "pattern": "Relu(x)", "examples": [{"before": text}]}
    catalogue = {"dpl": 1, "target": "t", "patterns": [rule]}
    (folder / "c.yaml").write_text(json.dumps(catalogue))
    commands = [
        ("patterns", "test", "c.yaml"),
        ("match", "m.onnx", "-p", "f.onnxtxt"),
    ]
    return [fault for words in commands for fault in faults(folder, *words)]


def reads_catalogues(folder: Path, drawn: bytes) -> list[str]:
    """No catalogue does, either; what it makes of a model is sound."""
    _small(folder)
    (folder / "c.yaml").write_bytes(drawn)
    commands = [
        ("patterns", "check", "c.yaml"),
        ("match", "m.onnx", "-p", "c.yaml"),
        ("rewrite", "m.onnx", "-p", "c.yaml", *WITHOUT, "r.onnx"),
    ]
    found = [fault for words in commands for fault in faults(folder, *words)]
    return found + refused_results(folder, "m.onnx", "r.onnx")


def reads_pipelines(folder: Path, drawn: bytes) -> list[str]:
    """No pipeline file does; what it has made is sound, and in the folder that it names."""
    _small(folder)
    (folder / "dpl.yaml").write_bytes(drawn)
    found = faults(folder, "build", "--jobs", "1", makes_any=True)
    built = [str(path.relative_to(folder)) for path in folder.glob("*/*.onnx")]
    return found + refused_results(folder, "m.onnx", *built)


@st.composite
def changed_file(draw: st.DrawFn, kind: str) -> tuple[str, Any]:
    """Draw what becomes of a file that is there only when the test runs."""
    place, how, byte = st.floats(0, 1), st.integers(0, 3), st.integers(0, 255)
    return kind, draw(st.lists(st.tuples(place, how, byte), max_size=3))


def _changed(data: bytes, drawn: list[tuple[float, int, int]]) -> bytes:
    for place, how, byte in drawn:
        at = int(place * len(data))
        match how:
            case 0:
                data = data[:at] + bytes([byte]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[at + byte % 9 :]
            case 2:
                data = data[: at + byte % 9] + data[at:]
            case _:
                data = data[:at] if byte < 32 else data  # seldom
    return data


def reads_plans(folder: Path, drawn: tuple[str, Any]) -> list[str]:
    """No plan does."""
    _small(folder)
    end = asked(
        folder, "rewrite", "m.onnx", "-p", "prepare", "--plan", "a.plan", *WITHOUT, "r.onnx"
    )
    assert end.code == 0, end.said
    plan = (folder / "a.plan").read_bytes()
    (folder / "a.plan").write_bytes(_changed(plan, drawn[1]))
    return faults(folder, "apply", "a.plan", "m.onnx", *WITHOUT, "s.onnx")


ARRAYS: dict[str, Any] = {
    "fits x": np.ones((1, 2, 4, 4), np.float32),
    "wide x": np.ones((1, 2, 4, 4)),
    "flat x": np.ones(32, np.float32),
    "none x": np.ones((0, 2, 4, 4), np.float32),
    "code x": np.array([print], object),
    "text x": np.array(["a", "b"]),
    "more x": np.ones((1, 2, 4, 4), np.float32),
    "more y": np.full(3, np.nan),
}
"""By a word and the name of an input: an array that is given for it."""


def reads_inputs(folder: Path, drawn: tuple[str, Any]) -> list[str]:
    """No file of inputs does; none is unpickled."""
    _small(folder)
    content = io.BytesIO()
    arrays = {name: array for name, array in ARRAYS.items() if name.startswith(drawn[0])}
    np.savez(content, **{name[-1]: array for name, array in arrays.items()})
    (folder / "x.npz").write_bytes(_changed(content.getvalue(), drawn[1]))
    return faults(folder, "verify", "m.onnx", "m.onnx", "--inputs", "x.npz")


@st.composite
def policies(draw: st.DrawFn) -> tuple[onnx.ModelProto, tuple[str, ...], tuple[str, ...]]:
    """Draw a valid model, how to partition it, and what to rewrite it by."""
    target = draw(st.sampled_from(TARGETS))
    how = ("partition", "--target", target, *draw(st.sampled_from(POLICIES)))
    if draw(st.integers(0, 5)) == 5:  # the simplest example has a target
        how = ("repeat", *draw(st.sampled_from(((), ("--nested",), ("--same-attributes",)))))
    rewrites = [word for name in draw(st.sampled_from(REWRITES)) for word in ("-p", name)]
    return draw(typed_models()), how, tuple(rewrites)


def is_sound(
    folder: Path, drawn: tuple[onnx.ModelProto, tuple[str, ...], tuple[str, ...]]
) -> list[str]:
    """What is written computes the same; a second run changes nothing; inline undoes partition."""
    model, how, rewrites = drawn
    onnx.save(model, folder / "m.onnx")
    commands = [
        (*how, "m.onnx", *WITHOUT, "p.onnx"),
        (*how, "p.onnx", *WITHOUT, "pp.onnx"),
        ("inline", "p.onnx", *WITHOUT, "i.onnx"),
        ("rewrite", "m.onnx", *rewrites, *WITHOUT, "r.onnx"),
        ("rewrite", "r.onnx", *rewrites, *WITHOUT, "rr.onnx"),
    ]
    found = [fault for words in commands for fault in faults(folder, *words, codes=(0,))]
    if found:
        return found
    for once, twice in (("p.onnx", "pp.onnx"), ("r.onnx", "rr.onnx")):
        if (folder / once).read_bytes() != (folder / twice).read_bytes():
            found.append(f"a second run changes {once}: {' '.join((*how, *rewrites))}")
    if "duplicate" not in how:
        found += faults(folder, "diff", "m.onnx", "i.onnx", "-q", codes=(0,))
    found += refused_results(folder, "m.onnx", "p.onnx", "i.onnx", "r.onnx")
    tolerances = {"p.onnx": 1e-5, "i.onnx": 1e-5, "r.onnx": 1e-3}
    return found + wrong_numbers(folder, tolerances, "m.onnx")


@st.composite
def on_onednn(draw: st.DrawFn) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Draw a valid model, and how to partition it for oneDNN."""
    policy = draw(st.sampled_from((*POLICIES, ("--prepare", "--merge"))))
    return draw(typed_models()), ("partition", "-p", "dnnl", "-p", "dnnl_ops", *policy)


def runs_right(folder: Path, drawn: tuple[onnx.ModelProto, tuple[str, ...]]) -> list[str]:
    """On oneDNN it computes the same, and a plan for programs can be made."""
    model, how = drawn
    onnx.save(model, folder / "m.onnx")
    found = faults(folder, *how, "m.onnx", *WITHOUT, "p.onnx", codes=(0,))
    found = found or faults(folder, "kernels", "plan", "p.onnx", "-o", "k.plan", codes=(0, 1))
    if found or not (folder / "k.plan").exists():  # it has no partition that oneDNN runs
        return found
    command = ("verify", "m.onnx", "p.onnx", "--with", "dnnl")
    end = asked(folder, *command)
    if end.code in (0, 1) and "NOT equivalent" not in end.said:
        return []
    return [f"dpl {' '.join(command)}: exit {end.code}: {end.said[-900:]}"]


Property = tuple["Callable[[Path, Any], list[str]]", st.SearchStrategy[Any]]
PROPERTIES: dict[str, Property] = {
    "models": (survives, hostile_model()),
    "texts": (reads_texts, changed_texts()),
    "catalogues": (reads_catalogues, changed_catalogues()),
    "pipelines": (reads_pipelines, changed_pipelines()),
    "plans": (reads_plans, changed_file("plan")),
    "inputs": (reads_inputs, st.sampled_from([n.split()[0] for n in ARRAYS]).flatmap(changed_file)),
    "sound": (is_sound, policies()),
    "kernels": (runs_right, on_onednn()),
}
"""What is drawn, and what has to hold of it."""
