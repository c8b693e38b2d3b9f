"""Random models under random rules and policies: sound, final and deterministic in every scope."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.errors import PatternSyntaxError
from dplcli.language.rule import POLICIES
from tests.support.helpers import (
    HEADER,
    check_idempotent,
    check_sound,
    partitioned,
    proto_from_text,
    rule,
)
from tests.support.random_models import RICH, named, scoped_models
from tests.support.strategies import near_patterns, rich_graphs, rich_patterns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.language import PatternRule

# A node that became part of a call is no Relu any more, say, and a call reads past an Identity, so
# that nobody else may read it.
_SHY = ("~", "Identity")


@st.composite
def policed(draw: st.DrawFn, pattern: str, number: int) -> PatternRule | None:
    """Draw the policies of a rule; None if its pattern makes no sense."""
    drawn = {name: draw(st.sampled_from(values)) for name, values in POLICIES.items()}
    try:
        return rule(pattern, name=f"r{number}", **drawn)
    except PatternSyntaxError:
        return None


def check_all(model: onnx.ModelProto, rules: Sequence[PatternRule | None]) -> None:
    """Partition twice, and check what must hold of every result."""
    usable = [item for item in rules if item is not None]
    data = model.SerializeToString()
    _, selection, written = partitioned(usable, data)
    assert partitioned(usable, data)[2] == written
    result = onnx.ModelProto.FromString(written)
    assert len(selection.matches) == sum(_is_call(node) for node in _nodes(result))
    check_sound(model, result)
    if not any(word in repr(item.pattern) for item in usable for word in _SHY):
        check_idempotent(usable, written)


def _is_call(node: onnx.NodeProto) -> bool:
    return bool(node.domain == "t")


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """List the nodes of every graph and of every function that no partition wrote."""
    pending = [*model.graph.node, *(n for f in model.functions if f.domain != "t" for n in f.node)]
    found = []
    while pending:
        node = pending.pop()
        found.append(node)
        pending += [inner for item in node.attribute for inner in item.g.node]
    return found


@pytest.mark.long
@given(st.data())
def test_in_branches_and_functions(data: st.DataObject) -> None:
    """Rules that follow some scope of a model, which captures values of those round it."""
    model = data.draw(scoped_models())
    scopes = model.graphs()
    rules = []
    for number in range(data.draw(st.integers(1, 3)) if scopes else 0):
        graph = data.draw(st.sampled_from(scopes))
        rules.append(data.draw(policed(data.draw(near_patterns(graph)).text(), number)))
    check_all(named(proto_from_text(model.text())), rules)


@pytest.mark.long
@given(st.data())
def test_with_several_outputs(data: st.DataObject) -> None:
    """Rules that use the whole language, on nodes and matches of several outputs."""
    graph = data.draw(rich_graphs(max_nodes=9))
    rules = []
    for number in range(data.draw(st.integers(1, 3))):
        features = data.draw(st.lists(st.sampled_from(RICH), max_size=2, unique=True))
        pattern = data.draw(rich_patterns(graph, features))
        rules.append(data.draw(policed(pattern.text(), number)))
    check_all(proto_from_text(HEADER + graph.text()), rules)


@pytest.mark.long
@given(st.data())
def test_a_second_target(data: st.DataObject) -> None:
    """Rules of another target on the result: they leave the functions of the first as they are."""
    model = data.draw(scoped_models())
    scopes = model.graphs()
    before = named(proto_from_text(model.text()))
    written = before.SerializeToString()
    for target in ("one", "two") if scopes else ():
        pattern = data.draw(near_patterns(data.draw(st.sampled_from(scopes))))
        drawn = data.draw(policed(pattern.text(), 0))
        rules = [] if drawn is None else [replace(drawn, target=target)]
        known = _functions_of("one", written)
        written = partitioned(rules, written)[2]
        assert target == "one" or _functions_of("one", written) == known
    check_sound(before, onnx.ModelProto.FromString(written))


def _functions_of(domain: str, model: bytes) -> list[bytes]:
    functions = onnx.ModelProto.FromString(model).functions
    return [item.SerializeToString() for item in functions if item.domain == domain]
