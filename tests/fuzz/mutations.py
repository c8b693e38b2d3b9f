"""Files that are nearly right: models as bytes and as structure, catalogues, plans, inputs."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

import onnx
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dplcli.catalog.catalog import read_examples
from dplcli.catalog.finding import find_catalog
from dplcli.language import PatternRule
from dplcli.onnx_io import to_proto
from dplcli.onnx_io.scratch import model_from_text
from dplcli.passes.partition import partition
from dplcli.passes.select import select_matches
from dplcli.pipeline import load_catalog_rules
from tests.diff.test_comparison_growth import nested_ifs, nested_loops
from tests.fuzz.running import SHIPPED
from tests.fuzz.typed import typed_models

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NUMBERS = (0, 1, -1, 2, 7, 65_536, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63))
NAMES = (
    "",
    "x" * 5000,
    "a\nb",
    "\x1b[31m",
    "::error::",
    "../w.bin",
    "v1",
    "<b>",
    "Relu",
    "é",
    "\x00",
)
OPERATORS = sorted(s.name for s in onnx.defs.get_all_schemas() if s.domain == "")


def _messages(message: Any) -> Iterator[Any]:  # noqa: ANN401  # any of onnx's
    """Yield a message and those in it, outer ones first."""
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if not hasattr(value, "ListFields") else (value,):
                yield from _messages(part)


def _change(draw: st.DrawFn, message: Any) -> None:  # noqa: ANN401  # any of onnx's
    """Change one field of a message: to something odd, or to something that is elsewhere."""
    field = draw(st.sampled_from([*message.DESCRIPTOR.fields]))
    held = getattr(message, field.name)
    is_many = hasattr(held, "__delitem__") or hasattr(held, "append")
    if field.type == field.TYPE_MESSAGE:
        if is_many and len(held) and draw(st.booleans()):
            at = draw(st.integers(0, len(held) - 1))
            copied = type(held[at])()
            copied.CopyFrom(held[at])
            del held[at]
            if draw(st.booleans()):
                held.extend([copied, copied])
        elif is_many:
            held.add()
        else:
            message.ClearField(field.name)
        return
    odd = _odd(draw, field)
    if not is_many:
        setattr(message, field.name, odd)
    elif len(held) and draw(st.booleans()):
        at = draw(st.integers(0, len(held) - 1))
        if draw(st.booleans()):
            held[at] = odd
        else:
            del held[at]
    else:
        held.append(odd)


def _odd(draw: st.DrawFn, field: Any) -> Any:  # noqa: ANN401  # a field's description; a value
    if field.type == field.TYPE_STRING:
        return draw(st.sampled_from(NAMES + tuple(OPERATORS if field.name == "op_type" else ())))
    if field.type == field.TYPE_BYTES:
        return draw(st.sampled_from((b"", b"\xff\xfe", bytes(7), b"\x00\x00\x80?" * 4)))
    if field.type == field.TYPE_ENUM:
        return draw(st.sampled_from([value.number for value in field.enum_type.values]))
    if field.cpp_type in {field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE}:
        return draw(st.sampled_from((0.0, -1.0, float("nan"), float("inf"), 1e38)))
    few = NUMBERS if field.cpp_type in {field.CPPTYPE_INT64, field.CPPTYPE_UINT64} else NUMBERS[:6]
    return draw(st.sampled_from([n for n in few if n >= 0 or "UINT" not in _kind(field)]))


def _kind(field: Any) -> str:  # noqa: ANN401  # a field's description
    return "UINT" if field.cpp_type in {field.CPPTYPE_UINT32, field.CPPTYPE_UINT64} else "INT"


@cache
def _examples() -> list[str]:
    """Return the examples of the shipped catalogues: most operators and types, in small models."""
    found: dict[str, None] = {}
    for name in (*SHIPPED, "dnnl_ops", "fuse_ort_attention"):
        rules = [rule.name for rule in load_catalog_rules([name])]
        for examples in read_examples(find_catalog(name), rules).values():
            found.update(dict.fromkeys(example.before for example in examples))
    return [*found]


@cache
def _outliners() -> list[PatternRule]:
    rules = load_catalog_rules(["dnnl_ops"])
    return [rule for rule in rules if isinstance(rule, PatternRule)]


@st.composite
def example_models(draw: st.DrawFn) -> onnx.ModelProto:
    """Draw an example of a shipped catalogue, partly as functions, or bodies within bodies."""
    match draw(st.integers(0, 9)):
        case 9:
            nested = draw(st.sampled_from((nested_ifs, nested_loops)))
            return nested(draw(st.integers(1, 4)), "Relu", "Neg")
        case kind:
            model = model_from_text(draw(st.sampled_from(_examples())), "example")
            if kind > 5:
                partition(model, select_matches(model, _outliners()))
            return to_proto(model)


@st.composite
def mutated_models(draw: st.DrawFn) -> bytes:
    """Draw the file of a model in which one to four things were changed, or some bytes."""
    model = draw(typed_models(4) | example_models())
    for _ in range(draw(st.integers(1, 4))):
        node = model.graph.node
        parts = list(_messages(draw(st.sampled_from([model, model.graph, *node, *node]))))
        _change(draw, draw(st.sampled_from(parts)))
    data: bytes = model.SerializeToString()
    if draw(st.integers(0, 3)) == 3:  # the simplest example leaves the bytes alone
        data = draw(mutated_bytes(data))
    return data


@st.composite
def mutated_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw what somebody may make of a file: cut off, with other bytes, with a part twice."""
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    size = draw(st.integers(0, 8))
    match draw(st.integers(0, 3)):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + draw(st.binary(max_size=8)) + data[at + size :]
        case 2:
            return data[:at] + data[at + size :]
        case _:
            return data[: at + size] + data[at:]


CATALOGUE = """dpl: 1
target: t
fragments: {act: "Relu | Sigmoid"}
patterns:
  - name: first
    doc: a sentence
    pattern: |
      c = Conv(x, const(w), group=1)
      Relu(c | Add(c, const(b)))
    where: [x.rank == 4, "w.shape[0] >= 2"]
    escape: outputs
  - name: "each_${op}"
    for_each: {op: [Relu, Sigmoid]}
    pattern: "${op}(Add(x, y))"
rewrites:
  - name: twice
    pattern: Add(x, x)
    replacement: Mul(x, 2.0)
    where: "x.dtype == 'float32'"
  - {name: gone, pattern: Identity(x), replacement: x}
"""
WORDS = (
    *(
        "[",
        "]",
        "{",
        "}",
        ":",
        "- ",
        "|",
        ">",
        "&a ",
        "*a",
        "!!str ",
        "!!python/none ",
        "<<: ",
        "\t",
    ),
    *(
        "Relu(",
        ")",
        "const(",
        "x",
        "not ",
        "optional(",
        "**",
        "==",
        "1e999",
        "9" * 400,
        "${op}",
        "${",
    ),
    *(
        "'",
        '"',
        "#",
        "\n",
        "\n  ",
        "é",
        "\x00",
        "null",
        "~",
        "2020-01-01",
        "repeat(x)",
        "lambda: 0",
    ),
)


TEXTS = (
    """<ir_version: 8, opset_import: ["" : 17, "t" : 1]>
g (float[N, 3] x, bool c) => (float[N, 3] y) <float[3] w = {1, -2, 3e-3}, float[N, 3] i> {
  i = t.f <alpha = 0.5> (x, w)
  y = If (c) <then_branch = yes () => (float[N, 3] a) { a = Relu (i) },
              else_branch = no () => (float[N, 3] b) { b = Neg (i) }>
}
<domain: "t", opset_import: ["" : 17]>
f <alpha> (x, w) => (z) { s = LeakyRelu <alpha: float = @alpha> (x) z = Add (s, w) }""",
    """<ir_version: 9, opset_import: ["" : 21]>
g (uint8[1, 4] q, string[N] t, seq(float[2]) s, optional(int64) o) => (float[1, 4] y, string[N] u)
<float scale = {0.1}, uint8 zero = {3}> {
  d = DequantizeLinear (q, scale, zero)
  y = Reshape <allowzero = 1> (d, shape)
  shape = Constant <value_ints = [1, 4]> ()
  u = Identity (t)
}""",
)
"""Models that have what examples have not: functions, attributes that refer, bodies, odd types."""
FUNCTIONS = """<domain: "t", opset_import: ["" : 17]>
twice_pattern (x) => (y) { y = Add (x, x) }
<domain: "t", opset_import: ["" : 17]>
twice_replacement (x) => (y) { two = Constant <value = float {2.0}> () y = Mul (x, two) }
<domain: "t", opset_import: ["" : 17]>
leaky_pattern <alpha> (x) => (y) {
  c = LeakyRelu <alpha: float = @alpha> (x)
  y = Relu (c)
}
<domain: "t", opset_import: ["" : 17]>
leaky_replacement <alpha> (x) => (y) { y = Relu (x) }"""
"""Functions that are patterns."""
TEXT_WORDS = (
    *("<", ">", "(", ")", "{", "}", "[", "]", ",", ":", "=", "=>", '"', "\n", " ", "# ", "@", "."),
    *(
        "x",
        "y",
        "float",
        "float[N]",
        "float[-1]",
        "float[99999999999]",
        "seq(",
        "map(int64, ",
        "1e999",
    ),
    *(
        "Relu (x)",
        "y = Add (x, x)",
        "Split <num_outputs = 900> (x)",
        "Constant <value = float {1}> ()",
    ),
    *(
        "ir_version: 99",
        'opset_import: ["" : 999]',
        "é",
        "\x00",
        "9" * 400,
        "-",
        "a: graph = ",
        "0x1",
    ),
)


PIPELINE = """models: [m.onnx, {path: "m*.onnx", expect: ["dnnl.conv2d_relu>=0"]}]
output: out
targets: [dnnl]
steps:
  - rewrite: {patterns: [prepare], limit: 3}
  - partition: {escape: outputs, merge: true}
  - inline: {}
verify: false
expect: ["add_neg_to_sub>=0"]
budgets: {nodes: 9, size: 12 MB, growth: 50 %, coverage: 1}
reports: {json: r.json, markdown: r.md, html: r.html}
"""


def changed_catalogues() -> st.SearchStrategy[bytes]:
    """Draw a catalogue that is nearly right, as text or as a structure."""
    return _mutated_text(CATALOGUE) | _mutated_structure(CATALOGUE)


@st.composite
def changed_texts(draw: st.DrawFn) -> bytes:
    """Draw a model, or functions, in ONNX text that is nearly right."""
    text = draw(st.sampled_from((*TEXTS, FUNCTIONS, FUNCTIONS)) | st.sampled_from(_examples()))
    return draw(_mutated_text(text, TEXT_WORDS))


def changed_pipelines() -> st.SearchStrategy[bytes]:
    """Draw a pipeline file that is nearly right; it runs no other program."""
    return _mutated_text(PIPELINE) | _mutated_structure(PIPELINE)


ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    "",
    "x" * 5000,
    "a\nb",
    "${op}",
    "é",
    [],
    {},
    [[]],
    {"a": {}},
)


@st.composite
def _mutated_structure(draw: st.DrawFn, text: str) -> bytes:
    """Draw what a file says in which values, keys and their places were changed, as JSON."""
    root = [YAML(typ="safe").load(text)]
    for _ in range(draw(st.integers(1, 3))):
        places = [*_places(root)]
        holder, key = draw(st.sampled_from(places[1:]))
        others = [inner[at] for inner, at in places]
        match draw(st.sampled_from(("odd", "other", "gone", "name", "deep"))):
            case "odd":
                holder[key] = deepcopy(draw(st.sampled_from(ODD)))  # it may be changed next
            case "other":
                holder[key] = json.loads(json.dumps(draw(st.sampled_from(others))))
            case "gone":
                del holder[key]
            case "name" if isinstance(holder, dict):
                holder[draw(st.sampled_from(NAMES))] = holder.pop(key)
            case _:
                for _ in range(draw(st.sampled_from((1, 50, 200)))):
                    holder[key] = [holder[key]]
    return json.dumps(root[0], ensure_ascii=draw(st.booleans())).encode("utf-8", "replace")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401  # of any kind
    """Yield where values stand: in what, and by which key; none is within more than a few."""
    pending = [value]
    while pending:
        holder = pending.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            yield holder, key
            if isinstance(holder[key], (dict, list)) and len(pending) < 50:
                pending.append(holder[key])


@st.composite
def _mutated_text(draw: st.DrawFn, text: str, words: Sequence[str] = WORDS) -> bytes:
    """Draw a text in which words were put in, taken out or repeated."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        gone = draw(st.sampled_from((0, 0, 1, 4, 20)))
        times = draw(st.sampled_from((1, 1, 1, 40)))
        text = text[:at] + draw(st.sampled_from(words)) * times + text[at + gone :]
    return text.encode()
