"""Files that are nearly right, or right and odd: an answer, or one line that names the culprit."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dplcli.pipeline import hints
from tests.cli.support import Answer, Dpl
from tests.support.models import parse

PLAIN = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] a) => (float[2] b) { b = Relu (a) }'
COMMANDS = {
    "match": ("match", "m.onnx", "--target", "dnnl"),
    "partition": ("partition", "m.onnx", "-p", "Relu(x)", "-o", "o.onnx"),
    "rewrite": ("rewrite", "m.onnx", "-p", "prepare", "-o", "o.onnx"),
    "verify": ("verify", "plain.onnx", "m.onnx"),
    "bisect": ("bisect", "m.onnx", "plain.onnx"),
    "diff": ("diff", "m.onnx", "plain.onnx"),
    "view": ("view", "m.onnx", "-o", "o.html"),
    "extract": ("extract", "m.onnx", "--to", "b", "-o", "o.onnx"),
    "inspect": ("inspect", "m.onnx"),
    "repeat": ("repeat", "m.onnx", "-o", "o.onnx"),
    "inline": ("inline", "m.onnx", "-o", "o.onnx"),
}
each_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


@pytest.fixture
def save(folder: Path) -> Callable[[onnx.ModelProto], None]:
    """Return a function that writes ``m.onnx``, beside a plain model."""

    def write(proto: onnx.ModelProto) -> None:
        (folder / "plain.onnx").write_bytes(parse(PLAIN).SerializeToString())
        (folder / "m.onnx").write_bytes(proto.SerializeToString())

    return write


def assert_no_fault(answer: Answer) -> None:
    """Whatever the answer is, dpl has not broken."""
    assert answer.code in {0, 1, 2}
    assert "internal error" not in answer.err
    if answer.code == 2:
        assert answer.message


# Where the data of a tensor lies.


def with_data(entries: dict[str, str]) -> onnx.ModelProto:
    """Return a model of which a weight is said to lie in a file."""
    proto = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] a) => (float[2] b)'
        " <float[2] w = {1, 2}> { t = Identity (a) s = Add (t, w) b = Relu (s) }"
    )
    tensor = proto.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return proto


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "w.bin", "offset": "0x10"},
        {"location": "w.bin", "length": "abc"},
        {"location": "w.bin", "offset": "-4", "length": "8"},
        {"location": "w.bin", "offset": "9" * 30},
        {"location": "\0", "offset": "zero"},
        {"location": "\0"},
    ],
    ids=lambda entries: " ".join(entries.values()),
)
def test_data_at_no_possible_place(
    dpl: Dpl, folder: Path, save: Callable[..., None], entries: dict[str, str]
) -> None:
    """Commands that need no data answer; the others name the tensor or the place, and stop."""
    np.array([1, 2], np.float32).tofile(folder / "w.bin")
    save(with_data(entries))
    for name, command in COMMANDS.items():
        answer = dpl(*command)
        assert_no_fault(answer)
        if name in {"match", "view", "inspect"}:
            assert answer.code == 0, answer.err
        if name in {"partition", "rewrite", "verify", "extract"}:
            assert answer.code == 2
            assert "'w'" in answer.message or "external data" in answer.message
    assert not (folder / "o.onnx").exists()


def test_a_hint_that_breaks_is_none(
    dpl: Dpl, save: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job was done by then; the other hints are given."""
    save(parse(PLAIN))

    def broken(*_: object) -> str:
        raise TypeError

    monkeypatch.setattr(hints, "_on_coverage", broken)
    answer = dpl("match", "m.onnx", "--target", "dnnl")
    assert answer.code == 0, answer.err
    assert "hint: 0 of 1 nodes match now" in answer.out


# What nests too deep for protobuf.


@each_command
def test_types_within_types(dpl: Dpl, save: Callable[..., None], command: Iterable[str]) -> None:
    """It is said when the file is read, whatever the command."""
    proto = parse(PLAIN)
    kind = proto.graph.input.add(name="deep").type
    for _ in range(60):
        kind = kind.sequence_type.elem_type
    kind.tensor_type.elem_type = 1
    save(proto)
    answer = dpl(*command)
    assert answer.code == 2
    assert answer.message == (
        "m.onnx: its graphs, types or other parts nest deeper than protobuf reads: over 100 levels"
    )


# Numbers of the file that onnx's C++ cannot hold.


@pytest.mark.parametrize("version", [2**31 - 1, 2**31, 2**63 - 1, -(2**31), -(2**63)])
@pytest.mark.parametrize("command", ["verify", "bisect", "match", "partition", "rewrite"])
def test_an_opset_beyond_32_bits(
    dpl: Dpl, save: Callable[..., None], command: str, version: int
) -> None:
    """No operator is known at such a version, and that is all."""
    proto = parse(PLAIN)
    proto.opset_import[0].version = version
    save(proto)
    assert_no_fault(dpl(*COMMANDS[command]))


@pytest.mark.parametrize("order", [("m.onnx", "plain.onnx"), ("plain.onnx", "m.onnx")])
def test_verify_with_an_opset_beyond_32_bits(
    dpl: Dpl, save: Callable[..., None], order: tuple[str, str]
) -> None:
    """The answer is no: onnxruntime refuses one of them."""
    proto = parse(PLAIN)
    proto.opset_import[0].version = 2**31
    save(proto)
    assert dpl("verify", *order).code == 1


# Attributes without their values.


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("GRAPH", "graph"),
        ("TENSOR", "tensor"),
        ("TYPE_PROTO", "type proto"),
        ("SPARSE_TENSOR", "sparse tensor"),
    ],
)
@each_command
def test_an_attribute_without_a_value(
    dpl: Dpl, save: Callable[..., None], command: Iterable[str], kind: str, said: str
) -> None:
    """The node and its attribute are named, whatever the command."""
    proto = parse(PLAIN)
    proto.graph.node[0].name = "r"
    proto.graph.node[0].attribute.add(name="body", type=kind)
    save(proto)
    answer = dpl(*command)
    assert answer.code == 2
    assert answer.message == (
        f"m.onnx: invalid model: Relu 'r': its attribute 'body' is stated to be a {said} "
        "and holds none"
    )


@pytest.mark.parametrize("kind", ["GRAPHS", "TENSORS", "TYPE_PROTOS", "SPARSE_TENSORS", "INTS"])
@pytest.mark.parametrize("command", ["partition", "rewrite", "match", "view", "inspect"])
def test_an_empty_list_is_a_value(
    dpl: Dpl, save: Callable[..., None], command: str, kind: str
) -> None:
    """A list that holds nothing is an empty one."""
    proto = parse(PLAIN)
    proto.graph.node[0].attribute.add(name="body", type=kind)
    save(proto)
    assert_no_fault(dpl(*COMMANDS[command]))


def test_a_default_without_a_value(dpl: Dpl, save: Callable[..., None]) -> None:
    """The function is named."""
    proto = parse(
        '<ir_version: 8, opset_import: ["" : 17, "o" : 1]> g (float[2] a) => (float[2] b)'
        ' { b = o.f (a) } <domain: "o", opset_import: ["" : 17]> f (x) => (y) { y = Relu (x) }'
    )
    proto.functions[0].attribute_proto.add(name="t", type="TENSOR")
    save(proto)
    answer = dpl("inspect", "m.onnx")
    assert answer.code == 2
    assert "the function o::f: its attribute 't' is stated to be a tensor" in answer.message


# What is cut out of odd models.


def checked(path: Path) -> onnx.ModelProto:
    """Return a model that onnx's full check accepts."""
    onnx.checker.check_model(path, full_check=True)
    return onnx.load(path)


@pytest.mark.parametrize(
    ("start", "inputs"), [((), ["x", "w"]), (("t",), ["t"]), (("w",), ["w", "x"])]
)
def test_extract_from_ir_version_3(
    dpl: Dpl, folder: Path, save: Callable[..., None], start: tuple[str, ...], inputs: list[str]
) -> None:
    """A weight is an input, too, as that version wants it; what the part is given is listed."""
    save(
        parse(
            '<ir_version: 3, opset_import: ["" : 7]> g (float[2,3] x, float[3] w) => (float[2,3] b)'
            " <float[3] w = {1, 1, 1}> { t = Mul (x, w) b = Relu (t) }"
        )
    )
    options = [part for name in start for part in ("--from", name)]
    answer = dpl("extract", "m.onnx", "--to", "b", "-o", "o.onnx", *options)
    assert answer.code == 0, answer.err
    assert [info.name for info in checked(folder / "o.onnx").graph.input] == inputs


UNKNOWN = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x, int64[K] s) => (float b)'
    " { r = Reshape (x, s) q = Relu (r) b = ReduceSum <keepdims = 0> (q) }"
)
SEQUENCE = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] b) <int64 i = {0}>'
    " { r = SequenceConstruct (x, x) b = SequenceAt (r, i) }"
)
OPTIONAL = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] b)'
    " { r = Optional (x) b = OptionalGetElement (r) }"
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(UNKNOWN, "'r': its shape is not stated and does not follow", id="shape"),
        pytest.param(SEQUENCE, "'r': its type is not stated and does not follow", id="sequence"),
        pytest.param(OPTIONAL, "'r': its type is not stated and does not follow", id="optional"),
    ],
)
@pytest.mark.parametrize("side", ["--from", "--to"])
def test_extract_at_a_value_of_unknown_type(  # noqa: PLR0913, PLR0917  # fixtures
    dpl: Dpl, folder: Path, save: Callable[..., None], text: str, why: str, side: str
) -> None:
    """The value is named."""
    save(parse(text))
    answer = dpl("extract", "m.onnx", side, "r", "-o", "o.onnx")
    assert answer.code == 2
    assert answer.message.startswith(why)
    assert not (folder / "o.onnx").exists()


# More axes than numpy's arrays have.


def of_axes(count: int, weight: str = "") -> onnx.ModelProto:
    """Return a model whose values have so many axes."""
    dims = ",".join(["2", *["1"] * (count - 1)])
    stored = f"<float[{dims}] w = {{1, 2}}>" if weight else ""
    node = f"b = {weight} (a, w)" if weight else "b = Relu (a)"
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    return parse(f"{header} g (float[{dims}] a) => (float[{dims}] b) {stored} {{ {node} }}")


@pytest.mark.parametrize("weight", ["", "Add"])
@each_command
def test_more_axes_than_arrays_have(
    dpl: Dpl, save: Callable[..., None], command: Iterable[str], weight: str
) -> None:
    """No command breaks."""
    save(of_axes(65, weight))
    assert_no_fault(dpl(*command))


def test_more_axes_are_proved_and_not_run(dpl: Dpl, save: Callable[..., None]) -> None:
    """The input is named."""
    save(of_axes(65))
    answer = dpl("verify", "m.onnx", "m.onnx")
    assert answer.code == 0, answer.err
    assert "input 'a' has 65 axes" in answer.out + answer.err


# What onnx accepts before, it accepts afterwards.


HEAD = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[2,3] x{}) => (float[2,6] y) '
SILU = '<domain: "my", opset_import: ["" : 17]> two (x) => (y) { s = Sigmoid (x) y = Mul (x, s) }'
CALLS = {
    "main": HEAD.format("") + "{ t = my.two (x) y = Concat <axis = 1> (t, x) }" + SILU,
    "branch": HEAD.format(", bool c") + "{ y = If (c) <"
    "then_branch = a () => (float[2,6] p) { t = my.two (x) p = Concat <axis = 1> (t, x) },"
    "else_branch = b () => (float[2,6] q) { q = Concat <axis = 1> (x, x) }> }" + SILU,
}
NESTED = (
    HEAD.format("")
    + '{ y = my.one (x) } <domain: "my", opset_import: ["" : 17, "my" : 1]>'
    + "one (x) => (y) { t = my.two (x) y = Concat <axis = 1> (t, x) }"
    + SILU
)


@pytest.mark.parametrize("text", CALLS.values(), ids=CALLS)
def test_an_operator_onnx_does_not_know_in_a_function(
    dpl: Dpl, folder: Path, save: Callable[..., None], text: str
) -> None:
    """The call's type is stated, by `rewrite` and by `apply`."""
    save(parse(text))
    checked(folder / "m.onnx")
    answer = dpl("rewrite", "m.onnx", "-p", "fuse_ort", "-o", "o.onnx", "--plan", "o.plan")
    assert answer.code == 0, answer.err
    assert [node.domain for node in checked(folder / "o.onnx").functions[0].node] == [
        "com.microsoft"
    ]
    answer = dpl("apply", "o.plan", "m.onnx", "-o", "again.onnx")
    assert answer.code == 0, answer.err
    assert (folder / "again.onnx").read_bytes() == (folder / "o.onnx").read_bytes()


def test_an_operator_onnx_does_not_know_below_two_calls(
    dpl: Dpl, folder: Path, save: Callable[..., None]
) -> None:
    """In a function no statement helps, so what the rule did is taken back."""
    save(parse(NESTED))
    checked(folder / "m.onnx")
    answer = dpl("rewrite", "m.onnx", "-p", "fuse_ort", "-o", "o.onnx")
    assert answer.code == 0, answer.err
    assert "onnx.checker refuses the result" in answer.out
    checked(folder / "o.onnx")


# Nodes that lack what their operators need.


LACKING = {
    "no-input": "c = Identity ()",
    "one-of-two": "c = MatMul (a)",
    "no-weight": "c = Conv (a)",
    "nothing-to-cast": "c = Cast <to = 1> ()",
    "no-scale": "c = QuantizeLinear (a)",
    "no-condition": "c = If () <then_branch = t () => (float[2] p) { p = Relu (a) },"
    " else_branch = e () => (float[2] q) { q = Neg (a) }>",
}
RAISED = ("rewrite", "m.onnx", "-p", "prepare", "-p", "fuse", "--opset", "21", "-o", "o.onnx")


@pytest.mark.parametrize("node", LACKING.values(), ids=LACKING)
@pytest.mark.parametrize("command", [*COMMANDS.values(), RAISED], ids=[*COMMANDS, "raise"])
def test_a_node_that_lacks_operands(
    dpl: Dpl, save: Callable[..., None], command: Iterable[str], node: str
) -> None:
    """It is an answer or a clear error, whatever the command asks such a node for."""
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] a) => (float[2] b, float[2] c) '
    save(parse(f"{head} {{ n = Neg (a) m = Neg (n) b = Relu (m) {node} }}"))
    assert_no_fault(dpl(*command))


@pytest.mark.parametrize("node", ["Relu (a)", "Identity ()", "Cast <to = 1> (a)", "MatMul (a)"])
@pytest.mark.parametrize("command", [*COMMANDS.values(), RAISED], ids=[*COMMANDS, "raise"])
def test_a_node_that_makes_nothing(
    dpl: Dpl, save: Callable[..., None], command: Iterable[str], node: str
) -> None:
    """Nor does one without outputs end a command."""
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] a) => (float[2] b) '
    proto = parse(f"{head} {{ n = Neg (a) m = Neg (n) b = Relu (m) c = {node} }}")
    del proto.graph.node[-1].output[:]
    save(proto)
    assert_no_fault(dpl(*command))


def all_operators(count: int, domain: str, *, makes: bool) -> onnx.ModelProto:
    """Return a model with every operator, each with so many inputs and an output, or none."""
    proto = parse(PLAIN)
    proto.opset_import.add(domain="my", version=1)
    for schema in onnx.defs.get_all_schemas():
        if not schema.domain:
            node = proto.graph.node.add(op_type=schema.name, domain=domain, input=["a"] * count)
            node.output.extend([f"of {schema.name}"] * makes)
            for name in node.output:
                info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 2])
                proto.graph.output.append(info)
    return proto


@pytest.mark.parametrize("makes", [True, False])
@pytest.mark.parametrize(("count", "domain"), [(0, ""), (1, ""), (0, "my")])
@pytest.mark.parametrize(
    "command",
    [
        ("verify", "m.onnx", "m.onnx"),
        ("partition", "m.onnx", "--target", "cutlass", "--prepare", "-o", "o.onnx"),
        RAISED,
    ],
    ids=["verify", "partition", "raise"],
)
def test_operators_with_too_few_operands(  # noqa: PLR0913, PLR0917  # fixtures
    dpl: Dpl,
    save: Callable[..., None],
    command: Iterable[str],
    count: int,
    domain: str,
    makes: bool,  # noqa: FBT001  # a parameter
) -> None:
    """Of none of them is more asked than it has."""
    save(all_operators(count, domain, makes=makes))
    assert_no_fault(dpl(*command))


def test_what_is_lacking_is_not_written(dpl: Dpl, folder: Path, save: Callable[..., None]) -> None:
    """A node that nothing changes stays as it was."""
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] a) => (float[2] b, float[2] c) '
    save(parse(f"{head} {{ n = Neg (a) m = Neg (n) b = Relu (m) c = Identity () }}"))
    answer = dpl("rewrite", "m.onnx", "-p", "prepare", "--no-verify", "-o", "o.onnx")
    assert answer.code == 0, answer.err
    nodes = onnx.load(folder / "o.onnx").graph.node
    assert [(node.op_type, [*node.input]) for node in nodes] == [("Relu", ["a"]), ("Identity", [])]


# Links that lead round.


WRITING: dict[str, tuple[str, ...]] = {
    "rewrite": ("rewrite", "m.onnx", "-p", "prepare", "-o"),
    "partition": ("partition", "m.onnx", "-p", "Relu(x)", "-o"),
    "extract": ("extract", "m.onnx", "--to", "b", "-o"),
    "html": ("match", "m.onnx", "--target", "dnnl", "--html"),
    "json": ("match", "m.onnx", "--target", "dnnl", "--json"),
    "input": ("inspect",),
    "candidate": ("verify", "m.onnx"),
    "catalogue": ("match", "m.onnx", "-p"),
    "inputs": ("verify", "m.onnx", "m.onnx", "--inputs"),
}


@pytest.mark.parametrize("command", WRITING.values(), ids=WRITING)
@pytest.mark.parametrize("place", ["round", "loop/file", "one"])
def test_links_that_lead_round(
    dpl: Dpl, folder: Path, save: Callable[..., None], command: tuple[str, ...], place: str
) -> None:
    """They are refused in one line, and stay."""
    save(parse(PLAIN))
    for name, target in (("round", "round"), ("loop", "loop"), ("one", "two"), ("two", "one")):
        (folder / name).symlink_to(target)
    answer = dpl(*command, place)
    assert answer.code == 2
    assert place in answer.message
    assert "internal" not in answer.message
    assert (folder / "round").is_symlink()
    assert (folder / "one").is_symlink()


# Names of any length.


LONG = "d" * 70_000


def rename(proto: onnx.ModelProto, part: str) -> None:
    """Give one part of a model a long name."""
    graph: Any = proto.graph
    if part == "domain":
        graph.node[0].domain = LONG
        proto.opset_import.add(domain=LONG, version=1)
    elif part == "blanks":
        graph.node[0].domain = LONG.replace("dd", "d ")
        proto.opset_import.add(domain=LONG.replace("dd", "d "), version=1)
    elif part == "value":
        graph.node[0].output[0] = graph.node[1].input[0] = LONG
    elif part == "input":
        graph.input[0].name = graph.node[0].input[0] = LONG
    elif part == "function":
        proto.functions.add(domain="o", name=LONG, input=["x"], output=["y"])
        proto.functions[0].node.add(op_type="Relu", input=["x"], output=["y"])
        proto.functions[0].opset_import.add(version=17)
        proto.opset_import.add(domain="o", version=1)
        graph.node[0].domain, graph.node[0].op_type = "o", LONG
    else:
        setattr(graph.node[0], part, LONG)


@pytest.mark.parametrize(
    "part", ["domain", "blanks", "value", "input", "function", "name", "op_type"]
)
def test_long_names_are_shortened(
    dpl: Dpl, folder: Path, save: Callable[..., None], part: str
) -> None:
    """In whatever is printed for people; JSON stays whole."""
    proto = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] a) => (float[2] b)'
        " { t = Relu (a) b = Neg (t) }"
    )
    rename(proto, part)
    save(proto)
    for command in COMMANDS.values():
        answer = dpl(*command)
        assert_no_fault(answer)
        assert len(answer.out + answer.err) < 8_000, command
    if part not in {"blanks", "name", "value"}:
        dpl("inspect", "m.onnx", "--json", "o.json")
        assert LONG in (folder / "o.json").read_text(encoding="utf-8")


def test_an_operand_of_another_kind(dpl: Dpl, save: Callable[..., None]) -> None:
    """Axes that are text: onnx objects, and no rule looks at them."""
    proto = onnx.parser.parse_model(
        '<ir_version: 6, opset_import: ["" : 11]> g (float[2] x) => (float[2, 1] y)'
        " { y = Unsqueeze <axes = [1]> (x) }"
    )
    (axes,) = proto.graph.node[0].attribute
    axes.ClearField("ints")
    axes.type, axes.s = onnx.AttributeProto.STRING, b""
    save(proto)
    assert_no_fault(dpl("rewrite", "m.onnx", "-p", "prepare", "-p", "fuse_ort", "--no-verify"))


def test_an_element_type_that_there_is_not(dpl: Dpl, save: Callable[..., None]) -> None:
    """A constant of it equals nothing."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y)'
        " <float[2] w = {1, 2}> { y = Add (x, w) }"
    )
    proto.graph.initializer[0].data_type = 2**31 - 1
    save(proto)
    assert_no_fault(dpl("verify", "m.onnx", "m.onnx"))


def test_a_convolution_without_its_weight(dpl: Dpl, save: Callable[..., None]) -> None:
    """Onnx objects, onnxruntime does not run it, and dpl says so."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 1, 4, 4] x) => (float[N, 1, 4, 4] y)'
        " { n = Neg (x)  m = Neg (n)  y = Conv (m) }"
    )
    save(proto)
    assert_no_fault(dpl("rewrite", "m.onnx", "-p", "prepare"))
