"""Every real model comes back from a partition as it was."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import onnx
import pytest

from dplcli import pipeline
from dplcli.ir.traversal import check_structure
from dplcli.language import PatternRule
from dplcli.language.rule import ConstantsPolicy, EscapePolicy
from dplcli.onnx_io import load_model, to_proto
from dplcli.passes.inline import inline
from dplcli.passes.merge import merge_partitions
from dplcli.passes.partition import partition
from dplcli.passes.select import select_matches
from dplcli.pipeline.partitioning import written_functions
from dplcli.pipeline.rules import load_rules
from dplcli.settings import InlineSettings, RuleSettings
from tests.corpus.nets import LIGHT_NETS, light_net, manifest, real_model
from tests.support.helpers import model_from_text, thinned
from tests.support.structure import differences

MODELS = manifest()
pytestmark = pytest.mark.long

EMPTY = "g () => () { }"
POLICIES: list[tuple[ConstantsPolicy, EscapePolicy]] = [
    ("lift", "refuse"),
    ("embed", "refuse"),
    ("lift", "duplicate"),
    ("embed", "outputs"),
]
# Models with more nodes are not partitioned with merged regions.
MANY_NODES = 1000


@cache
def rules_for_dnnl() -> list[PatternRule]:
    """Read the shipped rules once."""
    return load_rules(RuleSettings(target="dnnl"), model_from_text(EMPTY))[0]


def there_and_back(
    path: Path,
    folder: Path,
    constants: ConstantsPolicy = "lift",
    escape: EscapePolicy = "refuse",
    *,
    merge: bool = False,
) -> list[str]:
    """Partition and inline through files; say what is not as it was."""
    rules = [rule.with_policies(constants=constants, escape=escape) for rule in rules_for_dnnl()]
    model = load_model(path)
    selection = select_matches(model, rules)
    if not selection.matches:
        return []
    partition(model, selection)
    if merge:
        merge_partitions(model)
    parts = folder / path.name
    parts.write_bytes(to_proto(model).SerializeToString())
    again = load_model(parts)
    result = inline(again, written_functions(again))
    check_structure(again)
    assert len(result.calls) == len(selection.matches) or merge
    assert all(item.is_restored for item in result.calls)
    assert not result.refused
    return differences(onnx.load(path, load_external_data=False), to_proto(again))


def dealt(names: Iterable[str]) -> list[tuple[str, ConstantsPolicy, EscapePolicy]]:
    """Give each model one of the policies, in turns."""
    return [(name, *POLICIES[rank % len(POLICIES)]) for rank, name in enumerate(names)]


@pytest.mark.parametrize(("name", "constants", "escape"), thinned(9, dealt(sorted(MODELS))))
def test_a_partition_for_dnnl_is_undone(
    tmp_path: Path, name: str, constants: ConstantsPolicy, escape: EscapePolicy
) -> None:
    """Constants lifted or embedded; nodes that others need refused, repeated or returned."""
    assert there_and_back(real_model(name), tmp_path, constants, escape) == []


@pytest.mark.parametrize(
    "name", thinned(12, [n for n, m in sorted(MODELS.items()) if m["nodes"] < MANY_NODES], first=1)
)
def test_regions_are_undone(tmp_path: Path, name: str) -> None:
    """Partitions merged to regions come apart again, and then back."""
    found = there_and_back(real_model(name), tmp_path, merge=True)
    assert found == []


@pytest.mark.parametrize("name", thinned(4, LIGHT_NETS, first=3))
def test_the_nets_of_the_onnx_package(tmp_path: Path, name: str) -> None:
    """The same for the nets of the onnx package, of IR version 3."""
    for constants, escape in POLICIES:
        assert there_and_back(light_net(name), tmp_path, constants, escape) == []


@pytest.mark.parametrize(
    ("name", "nodes"),
    [("torch_transformer-legacy17-fn.onnx", 933), ("resnet18-legacy16-fn.onnx", 50)],
)
def test_functions_of_exporters(tmp_path: Path, name: str, nodes: int) -> None:
    """What torch's exporter wrote as functions is inlined, and computes the same."""
    outcome = pipeline.inline(
        real_model(name), InlineSettings(output=tmp_path / "out.onnx", all_functions=True)
    )
    assert outcome.ok
    assert outcome.verification is not None
    assert outcome.verification.equivalent
    written = onnx.load(tmp_path / "out.onnx")
    assert (len(written.graph.node), len(written.functions)) == (nodes, 0)
