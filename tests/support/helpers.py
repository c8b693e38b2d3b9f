"""What many tests share: models as text, and checks that look at everything at once."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from dplcli.catalog import find_catalog, read_catalogs, shipped_catalogs
from dplcli.ir.printer import print_node
from dplcli.ir.traversal import check_structure
from dplcli.language import Condition, Matcher, PatternRule, parse_pattern
from dplcli.language.matcher import Fingerprints, OpIndex
from dplcli.onnx_io import OnnxSchemas, model_from_proto, to_proto
from dplcli.passes.partition import partition
from dplcli.passes.select import select_matches

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from _pytest.mark.structures import ParameterSet
    from numpy.typing import NDArray

    from dplcli.ir import Graph, Model
    from dplcli.language import DFPattern, RewriteRule
    from dplcli.passes.select import Selection

    Rules: TypeAlias = str | PatternRule | Sequence[PatternRule]

HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'
SCHEMAS = OnnxSchemas()

_DTYPES: dict[int, Any] = {
    onnx.TensorProto.FLOAT: np.float32,
    onnx.TensorProto.FLOAT16: np.float16,
    onnx.TensorProto.DOUBLE: np.float64,
    onnx.TensorProto.INT64: np.int64,
    onnx.TensorProto.INT32: np.int32,
    onnx.TensorProto.INT8: np.int8,
    onnx.TensorProto.UINT8: np.uint8,
    onnx.TensorProto.BOOL: np.bool_,
}


def model_from_text(text: str) -> Model:
    """Read ONNX text; without a header of its own it is IR version 8, opset 17."""
    return model_from_proto(proto_from_text(text), Path(), "test")


def proto_from_text(text: str) -> onnx.ModelProto:
    """Parse ONNX text; without a header of its own it is IR version 8, opset 17."""
    header = "" if text.lstrip().startswith("<") else HEADER
    proto: onnx.ModelProto = onnx.parser.parse_model(header + text)
    return proto


def model_from_bytes(data: bytes) -> Model:
    """Read a serialised model."""
    return model_from_proto(onnx.ModelProto.FromString(data), Path(), "test")


def with_long(
    cases: Mapping[str, Sequence[object]], long: Container[str], exhaustive: Container[str] = ()
) -> list[ParameterSet]:
    """Return the parameters of each case, by name; those of *long* are for the long part.

    Those of *exhaustive* are tried with all sweeps.
    """
    marks = {"long": long, "exhaustive": exhaustive}
    return [
        pytest.param(
            *case, id=name, marks=[getattr(pytest.mark, m) for m in marks if name in marks[m]]
        )
        for name, case in cases.items()
    ]


def one_in(count: int, names: Iterable[str], *, gate: int = 1) -> list[ParameterSet]:
    """Return a parameter for each name; all but one in *count* are for the long part.

    Args:
        count: Of so many, one is for the quick part.
        names: The names, in order.
        gate: Of so many of the others, one is for the long part, and the rest are exhaustive.
    """
    every = list(names)
    rest = [name for rank, name in enumerate(every) if rank % count]
    marks = {name: [pytest.mark.long] for name in rest[::gate]}
    marks |= {name: [pytest.mark.long, pytest.mark.exhaustive] for name in {*rest} - marks.keys()}
    return [pytest.param(name, id=name, marks=marks.get(name, ())) for name in every]


def thinned(
    count: int, cases: Iterable[object], *, first: int = 0, name: Callable[[Any], str] = str
) -> list[ParameterSet]:
    """Return a parameter for each case; all but one in *count* are exhaustive.

    Args:
        count: Of so many, one is tried at each change.
        cases: What is tried: a tuple has a value for each argument.
        first: Where to begin to count, so that sweeps over the same cases take different ones.
        name: Names a case; that of a tuple is made of its first item.
    """
    parameters = []
    for rank, case in enumerate(cases):
        values = case if type(case) is tuple else (case,)
        marks = pytest.mark.exhaustive if (rank - first) % count else ()
        parameters.append(pytest.param(*values, id=name(values[0]), marks=marks))
    return parameters


def strides(count: int) -> list[ParameterSet]:
    """Return the steps of a sweep in one test: each change tries one case in *count*.

    The exhaustive part tries all.
    """
    return [pytest.param(count), pytest.param(1, marks=pytest.mark.exhaustive)]


@cache
def shipped_rewrites(name: str, *, with_examples: bool = True) -> Sequence[RewriteRule]:
    """Return the rewrites of a shipped catalogue, read once for all tests."""
    return tuple(read_catalogs([name], SCHEMAS, with_examples=with_examples).rewrites)


def rewriting_catalogues() -> list[str]:
    """Name the shipped catalogues that rewrite something; reading them would take seconds."""
    return [
        name
        for name in shipped_catalogs()
        if "\nrewrites:\n" in find_catalog(name).read_text(encoding="utf-8")
    ]


@dataclass(frozen=True, order=True)
class Solution:
    """One way to match, by names: root, nodes (by first output) and what each name is bound to."""

    root: str
    nodes: tuple[str, ...]
    bindings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """Read as the tests write it: ``x=a y=b``."""
        return " ".join(f"{name}={value}" for name, value in self.bindings)


def pattern_of(text: str) -> DFPattern:
    """Parse the text of a pattern, which may be indented."""
    return parse_pattern(dedent(text), SCHEMAS)


def find_solutions(pattern: str | DFPattern, model: Model) -> list[Solution]:
    """Return every solution at every root of every graph, in order of preference per root.

    A root that no node pattern is bound to (a leaf, an Identity looked through) does not count.
    Nothing that saves work rules out a root that counts: no index, and no fingerprint.
    """
    value = pattern_of(pattern) if isinstance(pattern, str) else pattern
    matcher = Matcher(value)
    fingerprints = [Fingerprints(depth) for depth in (1, 2, 3)]
    found = []
    for graph in model.graphs():
        index, program = OpIndex(graph), matcher.program
        indexed = [
            set(index.candidates(program.demand, by_edges=by_edges)) for by_edges in (False, True)
        ]
        for root in graph:
            for state in matcher.solutions(root):
                if root not in state.claimed:
                    continue
                assert all(root in roots for roots in indexed), root
                assert all(known.may_hold(known.number(root), program) for known in fingerprints), (
                    root
                )
                bound = program.bindings(state.slots)
                found.append(
                    Solution(
                        root.outputs[0].name if root.outputs[0] else "",
                        tuple(sorted(node.label for node in state.claimed)),
                        tuple((name, bound[name].name) for name in sorted(bound)),
                    )
                )
    return found


def check_match(pattern: str | DFPattern, onnx_text: str, expected: Mapping[str, str]) -> None:
    """Check where *pattern* matches, and what its preferred solution binds there.

    Args:
        pattern: The pattern.
        onnx_text: The graph.
        expected: First output of each root, and the bindings as ``x=a y=b``, names sorted.
    """
    preferred: dict[str, str] = {}
    for solution in find_solutions(pattern, model_from_text(onnx_text)):
        preferred.setdefault(solution.root, str(solution))
    assert preferred == dict(expected)


def all_bindings(pattern: str | DFPattern, onnx_text: str) -> list[str]:
    """Return every solution's bindings as ``x=a y=b``, in order, repetitions dropped."""
    found = find_solutions(pattern, model_from_text(onnx_text))
    return list(dict.fromkeys(map(str, found)))


def rule(pattern: str | DFPattern, *where: str, **settings: Any) -> PatternRule:  # noqa: ANN401
    """Make a rule ``t.r``; *settings* are further fields of PatternRule."""
    value = pattern_of(pattern) if isinstance(pattern, str) else pattern
    conditions = tuple(Condition(text) for text in where)
    return PatternRule(**({"target": "t", "name": "r"} | settings), pattern=value, where=conditions)


def rules_of(rules: Rules) -> list[PatternRule]:
    """Read *rules*: a catalogue's text, the text of one pattern, or rules."""
    if isinstance(rules, PatternRule):
        return [rules]
    if not isinstance(rules, str):
        return list(rules)
    text = dedent(rules).lstrip()
    return catalog_rules(text) if text.startswith("dpl:") else [rule(text)]


def catalog_rules(text: str) -> list[PatternRule]:
    """Load a catalogue from its text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalog.yaml"
        path.write_text(dedent(text), encoding="utf-8")
        return read_catalogs([str(path)], SCHEMAS).patterns


def print_graph(graph: Graph) -> str:
    """Return a graph, one node a line."""
    inputs = ", ".join(value.name for value in graph.inputs)
    outputs = ", ".join(value.name for value in graph.outputs)
    body = "\n".join(f"  {print_node(node)}" for node in graph)
    return f"({inputs}) => ({outputs}) {{\n{body}\n}}"


def rule_name(function: str) -> str:
    """Return the name of the rule that a function is named after, whatever its form."""
    return re.sub(r"_[0-9a-f]{8}$", "", function)


def numbered_forms(model: onnx.ModelProto) -> dict[str, str]:
    """Number the forms of each rule as the file has them: ``r``, ``r_1``; by function name."""
    found: dict[str, str] = {}
    count: Counter[str] = Counter()
    for function in model.functions:
        name = rule_name(function.name)
        found[function.name] = f"{name}_{count[name]}" if count[name] else name
        count[name] += 1
    return found


def print_numbered(model: Model) -> str:
    """Print a model as :func:`print_model` does, with numbers for the forms of each rule."""
    text = print_model(model)
    for name, plain in numbered_forms(to_proto(model)).items():
        text = text.replace(name, plain)
    return text


def print_model(model: Model) -> str:
    """Print the main graph, the bodies in it, and the functions, in that order."""
    texts = [print_graph(model.graph)]
    for graph in model.graphs():
        texts += [print_graph(b) for node in graph for b in node.subgraphs.values()]
    for function in model.functions.values():
        attributes = f" <{', '.join(function.attributes)}>" if function.attributes else ""
        texts.append(f"{function.domain}.{function.name}{attributes} {print_graph(function.body)}")
    return "\n".join(texts)


def describe_refusals(selection: Selection) -> list[str]:
    """Write each refusal as ``r at y: escape: why``."""
    return [
        f"{item.rule.name} at {item.root.outputs[0].name if item.root.outputs[0] else ''}: "
        f"{item.stage}: {item.reason}"
        for item in selection.refused
    ]


def selected(rules: Rules, onnx_text: str) -> Selection:
    """Run the selection over a graph."""
    return select_matches(model_from_text(onnx_text), rules_of(rules))


def taken(selection: Selection) -> list[str]:
    """Write each match taken as ``r: y, z``, nodes by label in order."""
    return [
        f"{match.rule.name}: {', '.join(node.label for node in match.nodes)}"
        for match in selection.matches
    ]


def partitioned(rules: Rules, before: str | bytes) -> tuple[Model, Selection, bytes]:
    """Partition a model; return it, what was selected, and the model written."""
    data = proto_from_text(before).SerializeToString() if isinstance(before, str) else before
    model = model_from_bytes(data)
    selection = select_matches(model, rules_of(rules))
    partition(model, selection)
    check_structure(model)
    written = to_proto(model).SerializeToString(deterministic=True)
    assert print_model(model_from_bytes(written)) == print_model(model)
    return model, selection, written


def check_partition(
    rules: Rules, before: str, *, after: str | None = None, refused: Iterable[str] = ()
) -> onnx.ModelProto:
    """Partition and compare everything: text, refusals, validity, numbers, a second run.

    Args:
        rules: A catalogue's text, the text of one pattern (rule ``t.r``), or rules.
        before: The model as ONNX text.
        after: What :func:`print_model` prints afterwards; None if nothing may change.
        refused: Refusals, as :func:`describe_refusals` writes them.

    Returns:
        The model written.
    """
    unchanged = print_model(model_from_text(before))
    model, selection, written = partitioned(rules, before)
    expected = unchanged if after is None else dedent(after).strip()
    assert print_numbered(model) == expected
    assert describe_refusals(selection) == list(refused)
    result: onnx.ModelProto = onnx.ModelProto.FromString(written)
    check_sound(proto_from_text(before), result)
    check_idempotent(rules, written)
    return result


def check_outcome(rules: Rules, before: str) -> onnx.ModelProto:
    """Partition; check validity, numbers and a second run, but not the exact text."""
    _, _, written = partitioned(rules, before)
    result: onnx.ModelProto = onnx.ModelProto.FromString(written)
    check_sound(proto_from_text(before), result)
    check_idempotent(rules, written)
    return result


def check_sound(before: onnx.ModelProto, after: onnx.ModelProto, *, seed: int = 0) -> None:
    """Check that *after* is valid and computes what *before* does, optimised or not."""
    onnx.checker.check_model(after, full_check=True)
    feeds = random_inputs(before, seed)
    wanted = run_model(before, feeds, optimise=False)
    for optimise in (False, True):
        found = run_model(after, feeds, optimise=optimise)
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def check_idempotent(rules: Rules, written: bytes) -> None:
    """Check that a second run finds nothing and writes the same bytes."""
    _, selection, again = partitioned(rules, written)
    assert taken(selection) == []
    assert onnx.ModelProto.FromString(again) == onnx.ModelProto.FromString(written)


def run_model(
    model: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]], *, optimise: bool
) -> dict[str, NDArray[Any]]:
    """Run *model* in onnxruntime on one thread."""
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def random_inputs(model: onnx.ModelProto, seed: int) -> dict[str, NDArray[Any]]:
    """Make a seeded array for every input without data; a dimension that is no number is 2."""
    rng = np.random.default_rng(seed)
    stored = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for info in model.graph.input:
        if info.name in stored:
            continue
        tensor = info.type.tensor_type
        shape = [dim.dim_value or 2 for dim in tensor.shape.dim]
        dtype = _DTYPES[tensor.elem_type]
        if dtype is np.bool_:
            feeds[info.name] = np.asarray(rng.random(shape) < 0.5)
        else:
            low, high = (0, 255) if dtype is np.uint8 else (-2, 2)
            feeds[info.name] = np.asarray(rng.uniform(low, high, shape)).astype(dtype)
    return feeds
