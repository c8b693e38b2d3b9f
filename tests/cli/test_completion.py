"""What a shell offers after Tab."""

from pathlib import Path

import onnx
import pytest

from tests.cli.support import Dpl

OWN = """dpl: 1
target: own
patterns:
  - {name: first, doc: The first one., pattern: Relu(x)}
rewrites:
  - {name: second, pattern: Relu(Relu(x)), replacement: Relu(x)}
"""
NAMED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x) => (float[2] out) { [relu_1] hidden = Relu (x) [] out = Neg (hidden) }"""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("match m.onnx -p fuse_a", ["plain,fuse_attention", "file,fuse_a"]),
        ("match m.onnx -p ./ru", ["file,./ru"]),
        ("patterns show conv_r", ["plain,conv_relu", "file,conv_r"]),
        ("match m.onnx --target dn", ["plain,dnnl"]),
        ("match m.onnx --target dnnl,cut", ["plain,dnnl,cutlass"]),
        ("match m.onnx --target nothing", []),
        ("explain m.onnx -p own.yaml --rule fi", ["plain,first"]),
        ("explain m.onnx -p own.yaml --rule own.f", ["plain,own.first"]),
        ("match m.onnx -p own.yaml --expect s", ["plain,second"]),
        ("rewrite m.onnx -p own.yaml --only s", ["plain,second"]),
        ("patterns test own.yaml --rule own.f", ["plain,own.first"]),
        ("explain m.onnx -p absent.yaml --rule f", []),
        ("explain m.onnx --rule f", []),
        ("doct", ["plain,doctor"]),
        ("inspect n.onnx --node re", ["plain,relu_1"]),
        ("explain n.onnx -p own.yaml --node hi", ["plain,hidden"]),
        ("extract n.onnx --from x --to hidden,ou", ["plain,hidden,out"]),
        ("learn n.onnx --nodes re", ["plain,relu_1"]),
        ("rewrite n.onnx -p own.yaml --only second@ou", ["plain,second@out"]),
        ("inspect --node re", []),
        ("inspect absent.onnx --node re", []),
        ("inspect own.yaml --node re", []),
    ],
)
def test_values_are_offered(
    dpl: Dpl,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    offered: list[str],
) -> None:
    """Catalogues, targets and rules by name; nothing, and no message, where nothing fits."""
    (folder / "own.yaml").write_text(OWN, encoding="utf-8")
    onnx.save(onnx.parser.parse_model(NAMED), folder / "n.onnx")
    monkeypatch.setenv("_DPL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"dpl {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))

    answer = dpl()

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.split() == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(dpl: Dpl, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    """What a user puts into the shell's start file."""
    monkeypatch.setenv("_DPL_COMPLETE", f"{shell}_source")

    answer = dpl()

    assert answer.code == 0
    assert f"_DPL_COMPLETE={shell}_complete" in answer.out
