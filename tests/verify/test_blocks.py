"""Models in blocks: the verdict of the whole, and never more than one block in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from benchmarks.llm import SIZES, STYLES, WEIGHTS, write
from dplcli.errors import VerificationError
from dplcli.report.json import parts_of
from dplcli.verify import Check, VerificationResult, blocks, model
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.run import Runner
from tests.support.helpers import thinned
from tests.verify.test_verdicts import Verdict, pairs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dplcli.verify.values import ModelSource
    from tests.verify.conftest import Save

SHAPE = replace(SIZES["tiny"], layers=3)
FORCED = Check(max_memory=1e-9)
"""However small a model is, it does not fit: each of its weights is a block."""
BY_LAYER = Check(max_memory=5e-4, levels=("disable",))
"""A layer of the decoder fits, and two do not."""


def said(result: VerificationResult) -> tuple[object, ...]:
    """Return all that decides of a result."""
    places = () if result.regions is None else (result.regions.differing, result.regions.judged)
    fed = tuple(result.cases.values())
    return result.verdict, result.doubts, places, [output.ok for output in result.outputs], fed


def decoder(path: Path, style: str = "dynamo", weights: str = "fp32") -> onnx.ModelProto:
    """Write a decoder, and return it without its weights."""
    write(path, SHAPE, style, weights)
    return onnx.load(path, load_external_data=False)


def changed(path: Path, name: str, change: Callable[[onnx.ModelProto], None]) -> Path:
    """Write a changed copy of a model beside it."""
    proto = onnx.load(path, load_external_data=False)
    change(proto)
    onnx.save(proto, path.with_name(name))
    return path.with_name(name)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[ModelSource]:
    """Note what is run."""
    opened: list[ModelSource] = []
    create = Runner.restart

    def restart(self: Runner) -> None:
        opened.append(self._opened[0])
        create(self)

    monkeypatch.setattr(Runner, "restart", restart)
    return opened


@pytest.mark.parametrize("pair", thinned(66, pairs(), name=lambda pair: pair.name))
def test_verdict_of_blocks_is_that_of_the_whole(save: Save, pair: Verdict) -> None:
    """Equal pairs and mutants get the same verdict, places and figures from blocks."""
    paths = [save(model, name) for name, model in zip("ab", pair.models(), strict=True)]
    answers: list[object] = []

    for settings in (Check(), FORCED):
        try:
            answers.append(said(verify_equivalence(paths[0], paths[1], settings, prove=True)))
        except VerificationError as error:
            answers.append(error.message)

    assert answers[0] == answers[1]


def test_block_opens_its_own_weights_alone(tmp_path: Path, sessions: list[ModelSource]) -> None:
    """No session holds more than one weight of a layer, and a file's data is never copied."""
    written = decoder(tmp_path / "a.onnx")

    def turn(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            if node.op_type == "Add":
                node.input.reverse()

    turned = changed(tmp_path / "a.onnx", "b.onnx", turn)
    result = verify_equivalence(tmp_path / "a.onnx", turned, replace(FORCED, levels=("disable",)))

    assert result.is_equivalent
    assert result.memory is not None
    assert result.memory.blocks > 7 * SHAPE.layers
    matrices = {t.name for t in written.graph.initializer if len(t.dims) > 1 and t.external_data}
    for source in sessions:
        if source.blocks is None and source.content is not None:
            held = onnx.load_model_from_string(source.content).graph.initializer
            weights = [t for t in held if t.name in matrices]
            assert len(weights) <= 1
            assert all(t.data_location == onnx.TensorProto.EXTERNAL for t in weights)


def wrong_weight(proto: onnx.ModelProto) -> None:
    """Let a weight of the second layer lie elsewhere."""
    (tensor,) = (t for t in proto.graph.initializer if t.name.endswith("1.mlp.up_proj.weight"))
    (offset,) = (entry for entry in tensor.external_data if entry.key == "offset")
    offset.value = str(int(offset.value) + 64)


def swapped_heads(proto: onnx.ModelProto) -> None:
    """Let the second layer take keys for queries of other heads."""
    (node,) = (n for n in proto.graph.node if n.name == "/model.layers.1.self_attn/q/Reshape")
    halves = [f"{node.input[0]}/half{number}" for number in range(2)]
    position = [*proto.graph.node].index(node)
    split = onnx.helper.make_node("Split", node.input[:1], halves, axis=-1, num_outputs=2)
    joined = onnx.helper.make_node("Concat", halves[::-1], [f"{node.input[0]}/swapped"], axis=-1)
    node.input[0] = joined.output[0]
    for new in (joined, split):
        proto.graph.node.insert(position, new)


def other_epsilon(proto: onnx.ModelProto) -> None:
    """Let a norm of the second layer add ten times as much."""
    (node,) = (n for n in proto.graph.node if n.name == "/model.layers.1.input_layernorm/Add")
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array(1e-4, np.float32), "ten times as much")
    )
    node.input[1] = "ten times as much"


@pytest.mark.parametrize(
    "change",
    [
        wrong_weight,
        pytest.param(swapped_heads, marks=pytest.mark.long),
        pytest.param(other_epsilon, marks=pytest.mark.long),
    ],
)
def test_mutant_is_named_by_its_layer(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None]
) -> None:
    """What is wrong in one layer is found in blocks, and said of a value of that layer."""
    decoder(tmp_path / "a.onnx")

    result = verify_equivalence(
        tmp_path / "a.onnx", changed(tmp_path / "a.onnx", "b.onnx", change), BY_LAYER
    )

    assert result.verdict == "different"
    assert result.regions is not None
    assert result.regions.differing
    assert all("layers.1." in each for each in result.regions.differing)
    assert result.memory is not None
    seen = {each.number: each for each in result.memory.seen if each.judged}
    assert len(seen) == 1
    assert all("layers.1." in each.worst and (each.off or 0) > 100 for each in seen.values())


@pytest.mark.long
@pytest.mark.parametrize(
    ("style", "weights"),
    thinned(12, [(style, weights) for style in STYLES for weights in WEIGHTS], name=str),
)
def test_decoder_runs_in_blocks(tmp_path: Path, style: str, weights: str) -> None:
    """A decoder of each kind gives the same bits in blocks, cut at the same values."""
    decoder(tmp_path / "a.onnx", style, weights)
    result = verify_equivalence(tmp_path / "a.onnx", tmp_path / "a.onnx", FORCED, prove=True)

    assert result.is_equivalent
    assert {output.max_abs for output in result.outputs} == {0}


IF = """g (float[N, 4] x, bool c) => (float[N, 4] y)
<float[4, 4] v = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 9},
 float[4, 4] w = {2, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 9}, float[4] b = {1, 2, 3, 4}>
{
    a = MatMul (x, v)
    p = If (c) <then_branch = t () => (float[N, 4] d) { d = Add (a, b) },
                else_branch = e () => (float[N, 4] d) { k = Mul (a, b) d = Sub (k, x) }>
    q = MatMul (p, w)
    r = Add (q, a)
    y = MatMul (r, v)
}"""


def test_bodies_go_with_their_block(save: Save, sessions: list[ModelSource]) -> None:
    """What a branch reads from outside is handed from block to block, and a stored value is not."""
    path = save(IF)

    result = verify_equivalence(path, save(IF.replace("Add (q, a)", "Add (a, q)"), "b"), FORCED)

    assert result.is_equivalent
    assert result.memory is not None
    assert result.memory.blocks == 4
    given = [
        {info.name for info in onnx.load_model_from_string(source.content).graph.input}
        for source in sessions
        if source.content is not None and "block 2 of 4" in source.name
    ]
    assert given
    assert all(names <= {"a", "x", "c"} for names in given)


def test_shape_is_handed_on_with_its_length(save: Save) -> None:
    """A Resize in another block than its sizes are computed in runs as it does in the whole."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 1, 2, 2] x) => (float[N, 1, h, w] y)
    <float[2, 2] u = {1, 2, 3, 4}, float[2, 2] v = {1, 0.5, 3, 4}, int64[1] from = {0},
     int64[1] to = {2}, int64[2] size = {4, 6}>
    { a = MatMul (x, u) s = Shape (a) n = Slice (s, from, to) t = Concat <axis = 0> (n, size)
      b = MatMul (a, v) c = Relu (b) y = Resize <mode = "nearest"> (c, , , t) }"""
    other = save(text.replace("c = Relu (b)", "z = Sub (b, b) c = Max (z, b)"), "b")

    result = verify_equivalence(save(text), other, FORCED)

    assert result.is_equivalent
    assert result.memory is not None
    assert result.memory.blocks > 1


def test_need_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: list[ModelSource]
) -> None:
    """A run that would not fit is never started, and the message says what it needs."""
    decoder(tmp_path / "a.onnx", weights="fp16")
    monkeypatch.setattr(blocks, "free_memory", lambda: 1000)

    with pytest.raises(VerificationError, match=r"not enough memory: a run needs about [\d.]+ MB"):
        verify_equivalence(tmp_path / "a.onnx", tmp_path / "a.onnx", FORCED)

    assert not sessions


def test_need_counts_weights_and_copies(tmp_path: Path) -> None:
    """float16 takes a copy in float32, int4 one of its size, and an embedding none."""
    needs = {}
    for weights in ("fp16", "int4"):
        decoder(tmp_path / "a.onnx", weights=weights)
        result = verify_equivalence(
            tmp_path / "a.onnx", tmp_path / "a.onnx", Check(max_memory=8), prove=True
        )
        assert result.memory is not None
        assert result.memory.blocks == 1
        needs[weights] = result.memory.need

    hidden, inner, words = SHAPE.hidden, SHAPE.inner, SHAPE.words
    layers = SHAPE.layers * (2 * hidden * hidden + hidden * hidden + 3 * hidden * inner)
    matrices = layers + words * hidden
    table = 2 * words * hidden
    assert needs["fp16"].weights == pytest.approx(2 * matrices + table, rel=0.02)
    assert needs["fp16"].copies == pytest.approx(4 * matrices, rel=0.02)
    assert needs["int4"].weights == pytest.approx((0.5 + 2 / 32) * matrices + table, rel=0.03)
    assert needs["int4"].copies == pytest.approx((0.5 + 4 / 32) * matrices, rel=0.1)


def test_small_models_say_nothing_of_memory(save: Save) -> None:
    """Where memory cannot run short, the answer has no word of it."""
    path = save(IF)

    assert "memory" not in parts_of(verify_equivalence(path, path))
    assert parts_of(verify_equivalence(path, path, FORCED))["memory"]["blocks"] == 4


def test_default_is_fed_and_not_stored(save: Save) -> None:
    """A default that a caller replaces is what the caller says, in each block that reads it."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 2] x, float f = {2}) => (float[N, 2] y)
    <float[2, 2] v = {1, 2, 3, 4}, float[2, 2] w = {1, 0.5, 3, 4}>
    { a = MatMul (x, v) b = Mul (a, f) c = MatMul (b, w) y = %s }"""
    path = save(text % "Mul (c, f)")

    assert verify_equivalence(path, save(text % "Mul (f, c)", "b"), FORCED).is_equivalent
    assert not verify_equivalence(path, save(text % "Add (c, f)", "c"), FORCED).is_equivalent


@pytest.mark.long
def test_interrupted_check_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: list[ModelSource]
) -> None:
    """What blocks gave before is not run again, unless weights have changed; it goes at the end."""
    monkeypatch.setattr(blocks, "_WORTH_STORING", -1)
    decoder(tmp_path / "a.onnx")
    other = changed(tmp_path / "a.onnx", "b.onnx", other_epsilon)

    def check() -> VerificationResult:
        sessions.clear()
        return verify_equivalence(tmp_path / "a.onnx", other, BY_LAYER)

    expected = check()
    in_full = len(sessions)
    assert not [*(tmp_path / "cache").glob("*.block.npz")]

    def interrupt(phrase: str) -> None:
        if "the candidate, block 2 of" in phrase:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify_equivalence(tmp_path / "a.onnx", other, BY_LAYER, progress=interrupt)
    stored = [*(tmp_path / "cache").glob("*.block.npz")]
    assert stored

    assert said(check()) == said(expected)
    assert (resumed := len(sessions)) == in_full - len(stored)
    assert not [*(tmp_path / "cache").glob("*.block.npz")]

    with pytest.raises(KeyboardInterrupt):
        verify_equivalence(tmp_path / "a.onnx", other, BY_LAYER, progress=interrupt)
    (tmp_path / "a.onnx.data").write_bytes((tmp_path / "a.onnx.data").read_bytes())
    check()
    assert resumed < len(sessions) <= in_full


@pytest.mark.parametrize(
    ("place", "said_of_it"),
    [
        (None, ""),
        ("model.layers.1.mlp.up_proj.weight", "layers.1.mlp.up_proj"),
        ("model.embed_tokens.weight", "Gather '/embed', fed drawn values"),
    ],
)
def test_weights_elsewhere_are_told_by_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None, said_of_it: str
) -> None:
    """Large weights in another file are not loaded: equal ones are equal, and one number tells."""
    monkeypatch.setattr(model, "_AT_ONCE", 4096)
    shape = replace(SHAPE, layers=2, words=4096)
    write(tmp_path / "a.onnx", shape, "dynamo", "fp32")
    (tmp_path / "there").mkdir()
    other = onnx.load(tmp_path / "a.onnx")
    for tensor in other.graph.initializer:
        if tensor.name == place:
            values = onnx.numpy_helper.to_array(tensor).copy()
            values[-40, -1] += 1
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    beside = tmp_path / "there" / "b.onnx"
    onnx.save(other, beside, save_as_external_data=True, location="weights", size_threshold=1024)
    settings = Check(levels=("disable",))

    result = verify_equivalence(tmp_path / "a.onnx", beside, settings, prove=True)

    assert result.is_equivalent == (place is None)
    assert (result.proof is not None) == (place is None)
    if place is not None:
        assert result.regions is not None
        assert len(result.regions.differing) == 1
        assert said_of_it in result.regions.differing[0]
