"""The page with a picture: that it stands alone, and that no name in a model breaks it."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from importlib.resources import files
from typing import Any

import onnx
import onnx.helper
import pytest

from dplcli.ir.model import scope_of
from dplcli.report.drawing import COLOURS
from dplcli.report.picture import opened, picture_of
from dplcli.report.view import SCHEMA, SCRIPTS, NodeFigures, view_data, view_page
from tests.report.made import HOSTILE
from tests.report.pages import Page
from tests.support.models import ir_of, parse


def page_of(model: str | onnx.ModelProto, label: str = "m.onnx") -> str:
    """Return the page of a model."""
    picture = picture_of(ir_of(model), label)
    return view_page(picture, opened(picture), ["a note"])


RELU = "m (float[2] x) => (float[2] y) { y = Relu(x) }"


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    """It names no other file, and its policy allows its own scripts and nothing else."""
    text = page_of(RELU)
    page = Page(text)
    run = [script for attributes, script in page.scripts if "type" not in attributes]
    hashes = [b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in run]

    assert (page.faults, page.open) == ([], [])
    assert len(run) == len(SCRIPTS)
    assert page.policy == (
        "default-src 'none'; style-src 'unsafe-inline'; script-src "
        + " ".join(f"'sha256-{each}'" for each in hashes)
    )
    for tag, attributes in page.tags:
        assert tag not in {"img", "link", "iframe", "object", "base"}
        assert not attributes.keys() & {"src", "style", "srcset", "action", "formaction"}
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href") is None
    assert "sourceMappingURL" not in text
    assert not re.search(r"url\((?!#)", text)


def test_the_library_is_the_published_one_and_its_licence_is_beside_it() -> None:
    """Whoever renews it writes the new version, and its hash, here and in the README beside it."""
    static = files("dplcli.report") / "static"
    readme = (static / "README.md").read_text(encoding="utf-8")
    library = (static / "dagre.min.js").read_bytes()

    assert hashlib.sha256(library).hexdigest() in readme
    assert "Permission is hereby granted" in (static / "dagre.LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", [*HOSTILE, "a" * 10_000, "\u2028\u2029", "</script><!--", "\u202e"]
)
def test_a_hostile_name_is_text(name: str) -> None:
    """Whatever it names: nothing in the page changes but the data."""
    model = parse(RELU)
    model.graph.node[0].name = name.encode("utf-8", "replace").decode()
    model.graph.node[0].domain = "a.b"
    model.graph.node[0].op_type = model.graph.node[0].name or "f"
    model.graph.node[0].doc_string = model.graph.node[0].name
    attribute = onnx.helper.make_attribute("k", model.graph.node[0].name)
    model.graph.node[0].attribute.append(attribute)
    model.graph.node[0].metadata_props.add(key="k", value=model.graph.node[0].name)
    model.opset_import.add(domain="a.b", version=1)
    plain = Page(page_of(RELU))
    page = Page(page_of(model, name))

    assert (page.faults, page.open) == ([], [])
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert [s for a, s in page.scripts if "type" not in a] == [
        s for a, s in plain.scripts if "type" not in a
    ]
    (node,) = page.record["nodes"]
    assert node[1].isprintable()
    assert len(json.dumps(node)) < 4_000


def test_the_data_says_all_that_is_shown() -> None:
    """Operators, types, constants, boxes and what is folded, by numbers."""
    record = Page(
        page_of("""m (float[2] x) => (float[2] y) <int8[2] w = {1, 2}, float s = {0.5}> {
        d = DequantizeLinear(w, s) y = Add(x, d) }""")
    ).record
    values = [value[0] for value in record["values"]]

    assert record["schema"] == SCHEMA
    assert [op for op, *_ in record["ops"]] == ["DequantizeLinear", "Add"]
    assert record["ops"][1][2:] == [["A", "B"], ["C"]]
    assert record["nodes"][0][5] == {
        "numbers": {"range": 64},
        "ranges": [["x", -64, 63.5, "int8, in steps of 0.5"]],
        "folded": 1,
    }
    assert [values[number] for number in record["nodes"][1][2]] == ["x", "d"]
    assert record["consts"][0][1:5] == [2, ["1", "2"], 1, 2]
    assert record["types"][record["values"][values.index("d")][1]] == "float32[2]"
    assert record["notes"] == ["a note"]


def test_weights_that_are_not_there_are_said_to_be_missing() -> None:
    """The page is made all the same."""
    model = parse(
        "m (float[2,30,30] x) => (float[2,30,30] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
    )
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.dims[:] = [2, 30, 30]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": "0", "length": "7200"}.items():
        tensor.external_data.add(key=key, value=value)

    ((*_, rest),) = Page(page_of(model)).record["consts"]
    assert "weights.bin" in rest["why"]


def test_a_page_is_small() -> None:
    """200 kB, and less than a kilobyte for each node."""
    model = parse(RELU)
    del model.graph.node[:]
    for number in range(3_000):
        reads, makes = "x" if not number else f"v{number - 1}", f"v{number}"
        node = onnx.helper.make_node("Relu", [reads], ["y" if number == 2_999 else makes])
        node.name = f"/encoder/layer.{number // 10}/attention/self/Relu_{number}"
        model.graph.node.append(node)

    assert len(page_of(RELU).encode()) < 200_000
    assert len(page_of(model).encode()) < 200_000 + 400 * 3_000


def test_page_and_drawing_have_the_same_colours() -> None:
    """The light ones; each class of nodes has one in both modes."""
    style = (files("dplcli.report") / "static" / "view.css").read_text(encoding="utf-8")
    light, dark = style.split("@media screen and (prefers-color-scheme: dark)", 1)
    for kind, colour in COLOURS.items():
        if kind in {"scope", "repeat", "shapes", "chunk", "body", "value"}:
            continue
        assert f"--{kind}: {colour};" in light
        assert re.search(f"--{kind}: #", dark)


def test_marks_are_by_scope_and_output() -> None:
    """A node in a body of the same name has none; without marks nothing says so."""
    model = ir_of(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool c) => (float[2] y) {
        a = Relu (x)
        y = If (c) <
          then_branch = t () => (z) { z = Neg (a) }, else_branch = e () => (z) { z = Abs (a) }
        > }"""
    )
    picture = picture_of(model, "m.onnx")
    bodies = [scope for scope in map(scope_of, model.graphs()) if scope != "main"]
    marks = {("main", "a"): "added", (bodies[0], "z"): "removed", ("main", "z"): "changed"}
    record = view_data(picture, opened(picture), figures=NodeFigures(marks)).as_page()

    def marked(found: dict[str, Any]) -> list[tuple[str, str]]:
        ops = [name for name, *_ in found["ops"]]
        more = [(ops[row[0]], row[5]) for row in found["nodes"] if len(row) > 5]
        return [(op, facts["mark"]) for op, facts in more if "mark" in facts]

    assert sorted(marked(record)) == [("Neg", "removed"), ("Relu", "added")]
    assert marked(view_data(picture, opened(picture)).as_page()) == []
