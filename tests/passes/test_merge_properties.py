"""Random models under random rules of two targets, merged: sound, largest, undoable, settled."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli import pipeline
from dplcli.onnx_io import to_proto
from dplcli.passes import merge
from dplcli.passes.inline import inline
from dplcli.settings import PartitionSettings
from tests.passes.merged import check_largest, check_merge, merged
from tests.support.helpers import check_sound, model_from_bytes, partitioned, proto_from_text, rule
from tests.support.random_models import HEADER, rule_texts, scoped_models
from tests.support.strategies import BINARY, UNARY, graphs, rich_graphs, subgraph_patterns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.language import PatternRule
    from tests.support.strategies import RandomGraph

_ARGUMENTS = dict.fromkeys(UNARY, "x") | dict.fromkeys(BINARY, "x, y") | {"Sum": "x, y, z"}
_SINGLE = [f"{op}({args})" for op, args in _ARGUMENTS.items() if op != "Identity"]


@st.composite
def two_targets(draw: st.DrawFn, found: Sequence[RandomGraph]) -> list[PatternRule]:
    """Draw rules of two targets: parts of the graphs, and single operators."""
    patterns = draw(st.lists(st.sampled_from(_SINGLE), min_size=1, max_size=5, unique=True))
    if draw(st.booleans()) and found:
        graph = draw(st.sampled_from(list(found)))
        exact: bool = draw(st.booleans())
        part = draw(subgraph_patterns(graph))[0] if exact else draw(rule_texts(graph))
        patterns.insert(0, part)
    escape = draw(st.sampled_from(("refuse", "refuse", "outputs", "duplicate")))
    return [
        rule(
            pattern,
            name=f"r{number}",
            target=draw(st.sampled_from("st")),
            constants=draw(st.sampled_from(("auto", "embed", "lift"))),
            escape=escape if number == 0 else "refuse",
        )
        for number, pattern in enumerate(patterns)
    ]


@pytest.mark.long
@given(st.data())
def test_flat_graphs(data: st.DataObject) -> None:
    """Regions of one graph."""
    graph = data.draw(graphs(14))
    check_merge(data.draw(two_targets([graph])), graph.text())


@pytest.mark.long
@given(st.data())
def test_branches_and_functions(data: st.DataObject) -> None:
    """Regions in branches that capture, and in the bodies of functions."""
    model = data.draw(scoped_models())
    check_merge(data.draw(two_targets(model.graphs())), model.text())


@pytest.mark.long
@given(st.data())
def test_nodes_of_several_outputs(data: st.DataObject) -> None:
    """Regions of calls that make more than one value."""
    graph = data.draw(rich_graphs(max_nodes=12))
    patterns = ["Split(x)", "Concat(x, y)", "Relu(x)", "Neg(x)", "Add(x, y)", "LeakyRelu(x)"]
    chosen = data.draw(st.lists(st.sampled_from(patterns), min_size=2, unique=True))
    rules = [
        rule(pattern, name=f"r{number}", target=data.draw(st.sampled_from("sst")))
        for number, pattern in enumerate(chosen)
    ]
    check_merge(rules, HEADER + graph.text())


_OPERATORS = {
    ("s", 1): "Relu",
    ("s", 2): "Add",
    ("t", 1): "Neg",
    ("t", 2): "Mul",
    ("", 1): "Sigmoid",
    ("", 2): "Sub",
}
_TARGETS = [
    rule(f"{op}(x)" if count == 1 else f"{op}(x, y)", name=op.lower(), target=target)
    for (target, count), op in _OPERATORS.items()
    if target
]


def dense_graph(random: Random) -> str:
    """Write a graph with many ways from node to node: two targets, other nodes, and captures."""
    values = ["a", "b"]
    lines = []
    mostly = random.choice(("s", "st", "sst"))
    outside = random.choice((0.1, 0.3, 0.5))
    for number in range(random.randint(4, 16)):
        near = values[-random.randint(2, 6) :]
        reads = [random.choice(near) for _ in range(random.randint(1, 2))]
        name = f"v{number}"
        if random.random() < outside / 4:
            branches = [f"{side}{number}" for side in "pq"]
            bodies = [f"{side} = Abs ({random.choice(near)})" for side in branches]
            then, other = (
                f"g{side} () => (float[2] {side}) {{ {body} }}"
                for side, body in zip(branches, bodies, strict=True)
            )
            if random.random() < 0.3:
                other = f"g{number} () => (float[2] {reads[0]}) {{ }}"
            lines.append(f"{name} = If (c) <then_branch = {then}, else_branch = {other}>")
        else:
            target = "" if random.random() < outside else random.choice(mostly)
            lines.append(f"{name} = {_OPERATORS[target, len(reads)]} ({', '.join(reads)})")
        values.append(name)
    made = values[2:]
    outputs = sorted({made[-1], random.choice(made)})
    return (
        f"g (float[2] a, float[2] b, bool c) => ({', '.join(f'float[2] {o}' for o in outputs)}) "
        f"{{ {' '.join(lines)} }}"
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_dense_graphs(seed: int) -> None:
    """Regions never form a cycle, and no two neighbours are left that could be one."""
    random = Random(seed)  # noqa: S311  # nothing secret
    for _ in range(120):
        text = dense_graph(random)
        plain, _, _ = partitioned(_TARGETS, text)
        _, regions, _ = merged(_TARGETS, text)
        check_largest(plain, regions)


@pytest.mark.long
@pytest.mark.parametrize("runs", [(4,), (2, 2)], ids=["one-run", "two-runs"])
def test_inlining_undoes_it(runs: tuple[int, ...]) -> None:
    """Nodes, names and order come back, from regions that grew in a second run, too."""
    random = Random(len(runs))  # noqa: S311  # nothing secret
    for _ in range(150):
        text = dense_graph(random)
        written = proto_from_text(text).SerializeToString()
        rules = list(_TARGETS)
        for count in runs:
            written = merged(rules[:count], written)[2]
            rules = rules[count:]
        model = model_from_bytes(written)
        inline(model, list(model.functions.values()))
        restored, original = to_proto(model), proto_from_text(text)
        assert _identities(restored) == _identities(original)
        assert list(restored.functions) == []


def _identities(model: onnx.ModelProto) -> list[tuple[object, ...]]:
    return [
        (node.op_type, node.domain, node.name, list(node.input), list(node.output))
        for node in model.graph.node
    ]


@pytest.mark.long
@given(data=st.data())
def test_pruned(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is left is heavy, or its target's only region; a second run leaves the same out."""
    folder = tmp_path_factory.mktemp("pruned")
    graph = data.draw(graphs(14))
    rules = [
        rule("Sum(x, y, z)", name="sum", target="s"),
        *(rule(p, name=f"r{i}", target="s") for i, p in enumerate(("Relu(x)", "Add(x, y)"))),
        rule("Neg(x)", name="neg", target="t"),
    ]
    options = PartitionSettings(verify=False, merge=True, prune=True)
    model = proto_from_text(graph.text())
    onnx.save(model, folder / "m.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "HEAVY", frozenset({("", "Sum")}))
        first = pipeline.partition(
            folder / "m.onnx", options.but(output=folder / "a.onnx", patterns=rules)
        )
        pipeline.partition(folder / "a.onnx", options.but(output=folder / "b.onnx", patterns=rules))
    check_sound(model, onnx.load(folder / "a.onnx"))
    assert (folder / "b.onnx").read_bytes() == (folder / "a.onnx").read_bytes()
    assert first.regions is not None
    sums = {match.nodes[-1] for match in first.selection.matches if match.rule.name == "sum"}
    heavy = {item.call.name for item in first.partitions if item.match.root in sums}
    for target in "st":
        regions = [region for region in first.regions if region.function.domain == target]
        light = [region for region in regions if not heavy.intersection(region.partitions)]
        assert not light or len(regions) == 1
    pruned = [item for item in first.selection.refused if item.stage == "prune"]
    assert not {item.root for item in pruned} & {item.root for item in first.selection.matches}
