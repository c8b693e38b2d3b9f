"""A model that imports one domain in two versions is looked at, and not changed."""

import json

import onnx
import pytest

from tests.cli.support import Dpl, Save, contents

TWICE = "imports the default domain twice: '' 18 and 'ai.onnx' 13"
NODES = "g (float[2,3] x) => (float[3,2] y) { t = Transpose (x) u = Identity (t) y = Relu (u) }"
IN_FUNCTION = f"""<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
{NODES.replace("Identity", "d.f")}
<domain: "d", opset_import: ["" : 17, "ai.onnx" : 13]> f (a) => (b) {{ b = Identity (a) }}"""


def importing(*imports: tuple[str, int]) -> onnx.ModelProto:
    """Return a model with such imports."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 1]> {NODES}')
    del model.opset_import[:]
    for domain, version in imports:
        model.opset_import.add(domain=domain, version=version)
    return model


CHANGING = [
    ["rewrite", "m.onnx", "-p", "prepare", "-o", "o.onnx"],
    ["rewrite", "m.onnx", "-p", "prepare", "-o", "o.onnx", "--opset", "20"],
    ["rewrite", "m.onnx", "-p", "prepare", "--dry-run"],
    ["partition", "m.onnx", "-p", "conv_relu", "-o", "o.onnx", "--no-verify"],
    ["repeat", "m.onnx", "-o", "o.onnx"],
    ["inline", "m.onnx", "-o", "o.onnx"],
    ["bisect", "m.onnx", "-p", "prepare"],
]


@pytest.mark.parametrize("command", CHANGING, ids=lambda command: " ".join(command[::2]))
def test_what_would_change_it_refuses(dpl: Dpl, save: Save, command: list[str]) -> None:
    """No edit is right for every reader, so there is none; the message says what to do."""
    folder = save(importing(("", 18), ("ai.onnx", 13))).parent
    before = contents(folder)
    answer = dpl(*command)
    assert (answer.code, answer.message) == (2, f"m.onnx: {TWICE}")
    assert "delete the import that is wrong" in answer.hint
    assert contents(folder) == before


def test_what_looks_at_it_says_so(dpl: Dpl, save: Save) -> None:
    """The opset shown is that which onnxruntime takes."""
    save(importing(("", 18), ("ai.onnx", 13)))
    said = dpl("inspect", "m.onnx")
    assert said.code == 0
    text = " ".join(said.out.split())
    assert f"m.onnx: {TWICE}; read as version 13, which onnxruntime takes" in text
    assert "opsets ai.onnx 13 input" in text
    note = json.loads(dpl("inspect", "m.onnx", "--json", "-", "-q").out)["notes"]
    assert [TWICE in line for line in note] == [True]
    matched = dpl("match", "m.onnx", "-p", "conv_relu")
    assert TWICE in " ".join((matched.out + matched.err).split())


@pytest.mark.parametrize(
    ("imports", "what"),
    [
        ([("ai.onnx", 13), ("", 18)], "the default domain twice: 'ai.onnx' 13 and '' 18"),
        ([("", 13), ("", 18)], "the default domain twice: '' 13 and '' 18"),
        ([("", 13), ("d", 1), ("d", 2)], "the domain 'd' twice: 'd' 1 and 'd' 2"),
        (
            [("", 13), ("ai.onnx", 13), ("", 14)],
            "the default domain 3 times: '' 13, 'ai.onnx' 13 and '' 14",
        ),
    ],
    ids=["other-way-round", "same-spelling", "other-domain", "three"],
)
def test_any_domain_in_two_versions(
    dpl: Dpl, save: Save, imports: list[tuple[str, int]], what: str
) -> None:
    """The order and the spelling play no part."""
    save(importing(*imports))
    assert dpl("inline", "m.onnx", "-o", "o.onnx").message == f"m.onnx: imports {what}"


def test_an_import_inside_a_function(dpl: Dpl, save: Save) -> None:
    """The message names the function."""
    save(onnx.parser.parse_model(IN_FUNCTION))
    expected = "the function d::f imports the default domain twice: '' 17 and 'ai.onnx' 13"
    assert dpl("inline", "m.onnx", "-o", "o.onnx").message == f"m.onnx: {expected}"
    assert expected in " ".join(dpl("inspect", "m.onnx").out.split())


@pytest.mark.parametrize(
    "imports",
    [[("", 17), ("ai.onnx", 17)], [("", 17), ("", 17)], [("", 17), ("ai.onnx.ml", 3)]],
    ids=["two-spellings", "twice", "another-domain"],
)
def test_equal_versions_are_one_import(
    dpl: Dpl, save: Save, imports: list[tuple[str, int]]
) -> None:
    """Nothing is said of them, and they are written as they were."""
    save(importing(*imports))
    assert "imports" not in dpl("inspect", "m.onnx").out
    answer = dpl("rewrite", "m.onnx", "-p", "prepare", "-o", "o.onnx")
    assert answer.code == 0, answer.err
    assert "note" not in answer.out + answer.err
    written = onnx.load("o.onnx")
    assert len(written.graph.node) == 2
    assert [(opset.domain, opset.version) for opset in written.opset_import] == imports
