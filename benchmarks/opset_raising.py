"""Measure whether onnx's own version converter could raise opsets in the place of ours.

The first table goes over the changes of operators between two opsets. Each is tried on models of
one node at the opset before it, onnx's own test cases and those of our tests, with the converter
and with :func:`~dplcli.onnx_io.raise_opset`. Each node is tried as it stands, without the shapes of
its inputs, in a function, and in a function that hands on the attributes of its caller. The
second table goes over real models: how many are converted, are valid and compute the same by
verification, and what of a model is lost. The last lines say what a conversion costs.

Run it from the root of the repository, with dplcli and its ``test`` extra installed::

    python -m benchmarks.opset_raising
    python -m benchmarks.opset_raising models/*.onnx --all

Without files it takes the models of the tests; ``--all`` prints every change and every model.
"""

import argparse
import copy
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import onnx
from onnx import AttributeProto, ModelProto, TensorProto, helper, parser, version_converter

from dplcli import pipeline
from dplcli.errors import DplError
from dplcli.onnx_io import model_from_proto, paused_gc, raise_opset
from dplcli.onnx_io.convert import all_nodes, all_scopes
from dplcli.onnx_io.opset import ADAPTERS, bumps, imported_standard
from tests.onnx_io import one_node
from tests.onnx_io.test_opset_sweep import (
    NEWEST_RUN,
    at_opset,
    changes_of,
    differences,
    one_node_cases,
    run_if_possible,
)

LARGEST = 60 * 2**20
SECONDS = 120
BAD = ("crashed or too slow", "invalid", "does not run", "other numbers")
WITHOUT_KERNEL = {("GlobalLpPool", 22), ("RoiAlign", 22)}
Raise = Callable[[ModelProto, int], ModelProto]


def converted(model: ModelProto, version: int) -> ModelProto:
    """Raise a model with onnx's converter."""
    result: ModelProto = version_converter.convert_version(model, version)
    return result


def raised(model: ModelProto, version: int) -> ModelProto:
    """Raise a copy of a model with ours."""
    after = copy.deepcopy(model)
    raise_opset(after, version, lambda: model_from_proto(model, Path(), "the model").graph)
    return after


WAYS: Mapping[str, Raise] = {"onnx": converted, "dpl": raised}


def is_valid(model: ModelProto | Path) -> bool:
    """Tell whether onnx.checker accepts a model, types included."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception:  # noqa: BLE001  # it has several, without a common base class
        return False
    return True


class Apart:
    """Another process, which may crash, as the converter makes it, or take too long."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def ask(self, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        """Return what *function* returns there, "crashed or too slow" if it ends the process."""
        if self._pool is None:
            server = get_context("forkserver")
            server.set_forkserver_preload(["dplcli.pipeline", one_node.__name__])
            self._pool = ProcessPoolExecutor(1, mp_context=server)
        try:
            return self._pool.submit(_in_time, function, *args).result()
        except BrokenProcessPool:
            self._pool = None
            return "crashed or too slow"


def _in_time(function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
    signal.alarm(SECONDS)  # ends the process, as nothing handles it
    try:
        return function(*args)
    finally:
        signal.alarm(0)


# One node at a time.


class Change(NamedTuple):
    """A model of one node, and the opset that changes its operator.

    Attributes:
        op_type: The operator.
        version: The opset with the change; the model is of one before.
        model: The model.
        inputs: What to feed it.
    """

    op_type: str
    version: int
    model: ModelProto
    inputs: list[Any]


def changes() -> Iterator[Change]:
    """Iterate over the changes of each operator that a case is written for."""
    for case in one_node_cases():
        for version in changes_of(case.op_type):
            before = at_opset(case.model, version - 1)
            if before is not None:
                yield Change(case.op_type, version, before, list(case.inputs))
    for own in one_node.cases():
        for version in bumps(own.op_type, own.opset, NEWEST_RUN)[:1]:
            yield Change(own.op_type, version, own.model(), list(own.feeds().values()))


def without_shapes(model: ModelProto) -> ModelProto:
    """Return a copy whose inputs and outputs have no shapes."""
    bare = copy.deepcopy(model)
    for info in (*bare.graph.input, *bare.graph.output):
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    return bare


def in_function(model: ModelProto, *, hands_on: bool = False) -> ModelProto:
    """Return a model that calls a function with the node of *model*.

    Args:
        model: The model.
        hands_on: Whether the call gives the attributes, which the function hands on to the node.
    """
    outer = copy.deepcopy(model)
    outer.ir_version = max(8, model.ir_version)
    (call,) = outer.graph.node
    names = [name for name in dict.fromkeys(call.input) if name]
    results = [name for name in call.output if name]
    function = outer.functions.add(domain="f", name="f", input=names, output=results)
    function.opset_import.extend(model.opset_import)
    inner = function.node.add()
    inner.CopyFrom(call)
    outer.opset_import.add(domain="f", version=1)
    call.op_type, call.domain = "f", "f"
    call.input[:] = names
    call.output[:] = results
    if not hands_on:
        call.ClearField("attribute")
    for item in inner.attribute if hands_on else ():
        item.CopyFrom(AttributeProto(name=item.name, type=item.type, ref_attr_name=item.name))
        function.attribute.append(item.name)
    return outer


FORMS: Mapping[str, Callable[[ModelProto], ModelProto]] = {
    "as it stands": copy.copy,
    "without shapes": without_shapes,
    "in a function": in_function,
    "in a function, attributes its caller's": partial(in_function, hands_on=True),
}


def verdict(change: Change, form: str, way: str, wanted: dict[str, Any]) -> str:
    """Say what a way makes of a node in some form."""
    given = FORMS[form](change.model)
    try:
        after = WAYS[way](given, change.version)
    except Exception as error:  # noqa: BLE001  # a converter's errors have no common base class
        return "refused" if isinstance(error, DplError) else "failed"
    for field in ("input", "output"):  # the shapes that the model would have round it
        after.graph.ClearField(field)
        getattr(after.graph, field).extend(getattr(change.model.graph, field))
    if is_valid(change.model) and not is_valid(after):
        return "invalid"
    found = run_if_possible(after, change.inputs)
    if found is None:
        is_known = (change.op_type, change.version) in WITHOUT_KERNEL
        return "no kernel" if is_known else "does not run"
    return "other numbers" if differences(found, wanted) else "same"


def measure_changes(*, everything: bool) -> None:
    """Print what each way makes of each change of an operator."""
    found: dict[tuple[str, str], dict[tuple[str, int], Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    apart = Apart()
    for change in changes():
        for form, formed in FORMS.items():
            wanted = run_if_possible(formed(change.model), change.inputs)
            for name in WAYS if wanted is not None else ():
                said = apart.ask(verdict, change, form, name, wanted)
                found[form, name][change.op_type, change.version][said] += 1
    print(f"{'changes of operators':64} {'right':>6} {'wrong':>6} {'refused':>8} {'no kernel':>10}")
    for (form, name), table in found.items():
        for title, of in (("all", table), ("adapted by dpl", ADAPTERS.keys() & table.keys())):
            tally = Counter(_worst(table[key]) for key in of)
            wrong = sum(tally[word] for word in BAD)
            print(
                f"{name + ', ' + form + ', ' + title:64} {tally['same']:6} {wrong:6} "
                f"{tally['refused'] + tally['failed']:8} {tally['no kernel']:10}"
            )
    print()
    for (form, name), table in found.items():
        for (op_type, version), said in sorted(table.items()):
            if everything or said.keys() & {*BAD, "failed", "refused"}:
                words = ", ".join(f"{count} {word}" for word, count in sorted(said.items()))
                print(f"  {name}, {form}: {op_type} {version}: {words}")


def _worst(said: Counter[str]) -> str:
    return next((word for word in (*BAD, "failed", "refused", "same") if said[word]), "no kernel")


# Whole models.


ONE_OF_EACH = """<ir_version: 8, opset_import: ["" : 12, "f" : 1, "other" : 1]>
g (float[2, 3] x, bool c, float[3] w) => (float[A, B] y)
<float[3] w = {1, 2, 3}, float[2, 3] a> {
    [one] a = Mul (x, w)
    [two] b = f.fun <axes = [1]> (a)
    [three] d = other.Op (b)
    [four] y = If (c) <
        then_branch = t () => (float[A, B] p) { [five] p = ReduceSum <axes = [0]> (d) },
        else_branch = e () => (float[A, B] q) { [six] q = Softmax <axis = 0> (a) }
    >
}
<domain: "f", opset_import: ["" : 12]>
fun <axes> (v) => (r) { [seven] r = ReduceSum <axes: ints = @axes> (v) }"""


def parts_of(model: ModelProto) -> dict[str, Counter[str]]:
    """Return what of a model should survive: names, texts, functions, types, bytes."""
    roots = (model.graph, *model.functions)
    nodes = [node for root in roots for node in all_nodes(root)]
    graphs = list(all_scopes(model.graph))
    texts = [model.doc_string, *(node.doc_string for node in nodes)]
    texts += [graph.doc_string for graph in graphs]
    noted = [*model.metadata_props, *(item for node in nodes for item in node.metadata_props)]
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    return {
        "names of values": Counter(name for node in nodes for name in node.output if name),
        "names of nodes": Counter(node.name for node in nodes if node.name),
        "names of initializers": Counter(tensor.name for tensor in tensors),
        "sparse initializers": Counter(
            sparse.values.name for graph in graphs for sparse in graph.sparse_initializer
        ),
        "initializers as inputs": Counter(
            {info.name for graph in graphs for info in graph.input}
            & {tensor.name for tensor in tensors}
        ),
        "external data": Counter(
            tensor.name for tensor in tensors if tensor.data_location == tensor.EXTERNAL
        ),
        "functions": Counter(f"{item.domain}::{item.name}" for item in model.functions),
        "domains": Counter(item.domain for item in model.opset_import),
        "value_info": Counter(info.name for graph in graphs for info in graph.value_info),
        "inputs and outputs": Counter(
            info.SerializeToString(deterministic=True)
            for info in (*model.graph.input, *model.graph.output)
        ),
        "documentation": Counter(text for text in texts if text),
        "metadata": Counter(f"{item.key}={item.value}" for item in noted),
        "nodes by their outputs": Counter(str(list(node.output)) for node in nodes),
    }


class Outcome(NamedTuple):
    """What became of a model.

    Attributes:
        said: In a word: "same", "refused", "not run" where the original is not, or what is wrong.
        why: The message, if there is one.
        seconds: How long raising took.
        lost: How much of what was lost.
    """

    said: str
    why: str = ""
    seconds: float = 0.0
    lost: tuple[tuple[str, int], ...] = ()


def outcome_of(path: Path, name: str, version: int) -> Outcome:
    """Raise a model in one way, check it and verify it."""
    before = onnx.load(path)
    start = time.process_time()
    try:
        after = WAYS[name](before, version)
    except Exception as error:  # noqa: BLE001  # a converter's errors have no common base class
        word = "refused" if isinstance(error, DplError) else "failed"
        return Outcome(word, str(error).strip().split("\n")[0])
    seconds = time.process_time() - start
    kept = parts_of(after)
    losses = ((what, (parts - kept[what]).total()) for what, parts in parts_of(before).items())
    lost = tuple((what, count) for what, count in losses if count)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, path.name)
        onnx.save(after, written)
        if is_valid(path) and not is_valid(written):
            return Outcome("invalid", "", seconds, lost)
        try:
            result = pipeline.verify(path, written)
        except DplError as error:
            return Outcome("not run", error.message, seconds, lost)
    why = "; ".join(result.reasons)
    word = "does not run" if "does not run the candidate" in why else "other numbers"
    return Outcome("same" if result.equivalent else word, why, seconds, lost)


def measure_one_of_each() -> None:
    """Print what is lost of a model that holds one of each thing that can be lost."""
    model = parser.parse_model(ONE_OF_EACH)
    model.doc_string = model.graph.doc_string = "words"
    model.metadata_props.add(key="from", value="here")
    for node in all_nodes(model.graph):
        node.doc_string = f"about {node.name}"
        node.metadata_props.add(key="of", value=node.name)
    weight = model.graph.initializer[0]
    weight.ClearField("float_data")
    weight.data_location = weight.EXTERNAL
    weight.external_data.add(key="location", value="weights.bin")
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [3.0])
    indices = helper.make_tensor("", TensorProto.INT64, [1], [1])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    for name, way in WAYS.items():
        kept = parts_of(way(model, 18))
        lost = {what: [*(parts - kept[what])] for what, parts in parts_of(model).items()}
        print(f"{name}, of one of each is lost: { {what: n for what, n in lost.items() if n} }")


def _next_opset(path: Path) -> int:
    standard = imported_standard(onnx.load(path, load_external_data=False).opset_import)
    return next((version for version in (18, 21, NEWEST_RUN) if version > (standard or 0)), 0)


def measure_models(paths: Iterable[Path], *, everything: bool) -> None:
    """Print what each way makes of each model."""
    said: dict[str, Counter[str]] = {name: Counter() for name in WAYS}
    models: dict[str, Counter[str]] = {name: Counter() for name in WAYS}
    seconds = dict.fromkeys(WAYS, 0.0)
    apart = Apart()
    for path in paths:
        version = _next_opset(path)
        if path.stat().st_size > LARGEST or not version:
            continue
        for name in WAYS:
            outcome = apart.ask(outcome_of, path, name, version)
            if isinstance(outcome, str):
                outcome = Outcome(outcome)
            said[name][outcome.said] += 1
            models[name].update(what for what, _ in outcome.lost)
            seconds[name] += outcome.seconds
            if everything or outcome.said in {*BAD, "failed", "refused"}:
                lost = ", ".join(f"{count} {what}" for what, count in outcome.lost)
                why = outcome.why[:160]
                print(f"  {path.name} to {version}, {name}: {outcome.said} {why}; lost: {lost}")
            sys.stdout.flush()
    for name, tally in said.items():
        print(f"{name}: {tally.total()} models, {dict(tally)}, {seconds[name]:.1f} s")
        print(f"    models that lose something: {dict(models[name])}")


# What it costs.

REDUCTIONS = """<ir_version: 7, opset_import: ["" : 12]>
g (float[2, 3] x) => (float[A, B] v0) {{ {nodes} }}"""


def measure_time(count: int = 10_000) -> None:
    """Print how long one node takes, and a net of many nodes that all have to change."""
    for nodes in (1, count):
        lines = (f"v{number} = ReduceSum <axes = [1]> (x)" for number in range(nodes))
        model = parser.parse_model(REDUCTIONS.format(nodes="\n".join(lines)))
        for name, way in WAYS.items():
            start = time.process_time()
            with paused_gc():
                way(model, 18)
            print(f"{name}: {nodes} nodes in {time.process_time() - start:.4f} s")


def main() -> None:
    """Measure what was asked for."""
    arguments = argparse.ArgumentParser(description="Compare ways of raising opsets.")
    arguments.add_argument("models", nargs="*", type=Path, help="ONNX files")
    arguments.add_argument("--all", action="store_true", help="print every change and model")
    given = arguments.parse_args()
    root = Path(__file__).parents[1]
    own = [*(root / "sample_models").glob("*.onnx"), *(root / "tests/corpus/models").glob("*.onnx")]
    measure_changes(everything=given.all)
    measure_models(given.models or sorted(own), everything=given.all)
    measure_one_of_each()
    measure_time()


if __name__ == "__main__":
    main()
