"""Every real model: partitioned for dnnl and verified, or left as it is, or a clear word."""

from pathlib import Path

import onnx
import pytest

from dplcli import pipeline
from dplcli.ir.operators import DEQUANTIZING
from dplcli.onnx_io import check_model
from dplcli.onnx_io.convert import all_nodes
from dplcli.outcomes.partitioning import PartitionOutcome
from dplcli.settings import MatchSettings, PartitionSettings
from tests.corpus.nets import VARIABLE, corpus_manifest, manifest, real_model
from tests.corpus.untouched import check_untouched
from tests.support.helpers import thinned

MODELS = manifest()
pytestmark = pytest.mark.long

# One session takes onnxruntime two minutes; the structure is checked all the same.
UNVERIFIED = {"gru_unrolled-legacy17.onnx"}
REFUSED = {n for n, m in MODELS.items() if m["checks"]["onnxruntime_cpu"] != "ok"}
INVALID = {n for n, m in MODELS.items() if m["checks"]["onnx_checker_full"] != "ok"}
RUNNABLE = sorted(MODELS.keys() - REFUSED)
# The largest found is 480 bytes; a call, and its part of a function, should not cost much more.
BYTES_PER_PARTITION = 1000
NO_VERIFY = PartitionSettings(verify=False)


def check_structure(name: str, result: Path, outcome: PartitionOutcome) -> None:
    """Check validity, growth, and that nothing but the matches was touched."""
    original = real_model(name)
    if not outcome.is_changed:
        assert result.read_bytes() == original.read_bytes()
        return
    if name not in INVALID:
        assert check_model(result) == ""
    before, after = onnx.load(original), onnx.load(result)
    matched = {node for match in outcome.selection.matches for node in match.nodes}
    kept = {(n.op_type, *n.output) for n in all_nodes(after.graph) if n.op_type in DEQUANTIZING}
    covered = sum((n.op_type, *(v.name for v in n.outputs if v)) not in kept for n in matched)
    assert len(outcome.partitions) == len(outcome.selection.matches)
    check_untouched(before, after, covered)
    growth = result.stat().st_size - original.stat().st_size
    assert growth <= BYTES_PER_PARTITION * len(outcome.partitions)


def check_final(result: Path, folder: Path) -> None:
    """Check that a second run finds nothing and copies every byte."""
    again = pipeline.partition(result, NO_VERIFY.but(output=folder / "again.onnx", target=["dnnl"]))
    assert not again.is_changed
    assert (folder / "again.onnx").read_bytes() == result.read_bytes()


@pytest.mark.parametrize("name", thinned(7, RUNNABLE, first=1))
def test_partition_succeeds_or_changes_nothing(tmp_path: Path, name: str) -> None:
    """Verified with default settings; valid, small, final; nothing else is touched."""
    result = tmp_path / name
    settings = NO_VERIFY if name in UNVERIFIED else PartitionSettings()

    outcome = pipeline.partition(real_model(name), settings.but(output=result, target=["dnnl"]))

    assert outcome.ok
    assert outcome.is_changed == (any(outcome.counts.values()) or outcome.is_sorted)
    if outcome.is_changed and settings.verify:
        assert outcome.verification is not None
        assert outcome.verification.equivalent
    check_structure(name, result, outcome)
    check_final(result, tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_onnxruntime_refuses_is_a_clear_word(tmp_path: Path, name: str) -> None:
    """What was only moved is proved; that it was not run is a warning of one line."""
    result = tmp_path / name
    matched = any(pipeline.match(real_model(name), MatchSettings(target=["dnnl"])).counts.values())

    if matched:
        outcome = pipeline.partition(
            real_model(name), PartitionSettings(output=result, target=["dnnl"])
        )
        assert outcome.ok
        assert outcome.verification is not None
        assert outcome.verification.proof is not None
        (warning,) = outcome.verification.warnings
        assert warning.startswith("it was not run: onnxruntime does not run the original model")
        assert "\n" not in warning
        assert warning.count("'") % 2 == 0  # a quotation is closed
        result.unlink()
    outcome = pipeline.partition(real_model(name), NO_VERIFY.but(output=result, target=["dnnl"]))

    assert outcome.ok
    assert outcome.is_changed == matched
    check_structure(name, result, outcome)
    check_final(result, tmp_path)


def test_the_corpus_is_whole() -> None:
    """141 models, of which onnxruntime refuses five and onnx.checker four; ours are among them."""
    if not corpus_manifest():
        pytest.skip(f"there is no corpus: {VARIABLE} names none")
    assert (len(corpus_manifest()), len(REFUSED), len(INVALID)) == (141, 5, 4)
    assert MODELS.keys() == corpus_manifest().keys()
