"""Measure ``dpl partition`` on a long Conv-Add-Relu net, beside protobuf's floor and onnxscript.

Every figure is a ratio of measurements taken in the same run on the same file: the machine's own
speed cancels out. Times are CPU time, of all threads. dpl is timed as a user runs it, as a command:
interpreter, imports, catalogues, coverage and report included; below the table stands what each
phase of it took. The floor is a program that loads the same file with onnx, serialises it and
writes it, timed in the same way. onnxscript has an interpreter of its own, too, but warms its
imports up on a tiny net and is timed without them.

Run it from an environment that holds dplcli and its ``benchmark`` extra::

    python benchmarks/partition.py
    python benchmarks/partition.py --quick --json -
"""

import argparse
import gc
import importlib.metadata
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

MIB = 1 << 20
FULL_SIZE = 30_000  # blocks; 3.5 nodes each
LARGE = 10
"""How many times as many blocks the net has that shows whether time and memory grow evenly."""
CHANNELS = 8
CATALOGUE = "conv_relu"
DNNL, CUTLASS = ("--target", "dnnl"), ("--target", "cutlass")
WITH_JSON = ("--json", os.devnull)
NOISE_OPS = ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Log", "Neg", "Sigmoid", "Sqrt")
WIDE = 8192  # the external-data model multiplies square matrices of this width
WIDE_LAYERS = 9

P = ParamSpec("P")
R = TypeVar("R")
Work: TypeAlias = Callable[[Path, Path], None]


@dataclass(frozen=True)
class Measurement:
    """What one process did: how much CPU time and memory it took, and what it wrote."""

    seconds: float
    peak_bytes: int
    calls: int  # what the job counts in the written model, such as calls of functions
    phases: dict[str, float] = field(default_factory=dict)  # of a command


@dataclass(frozen=True)
class Job:
    """One thing to measure: *work* reads *model* and writes a model, in which *count* counts.

    Without *count*, nodes outside the default domain are counted. Instead of a function, *work* can
    be the options of a dpl *command*, which is then timed as a whole; without a command, the floor.
    """

    name: str
    work: Work | tuple[str, ...]
    model: Path
    count: Callable[[Path], int] | None = None
    command: str = "partition"


@dataclass(frozen=True)
class Figure:
    """One row of the table: *value* is to be at most, or at least, *target*."""

    name: str
    measured: str
    value: float
    target: float
    unit: str = "x"
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the value is on the right side of the target."""
        return self.value >= self.target if self.at_least else self.value <= self.target


@dataclass(frozen=True)
class Benchmark:
    """What one script measures, for a net of so many blocks.

    Attributes:
        schema: What its JSON document is.
        jobs: Writes models into a folder and returns what can be measured.
        check: Refuses measurements of programs that did not do the same.
        figures: Yields the rows of the table.
    """

    schema: str
    jobs: Callable[[Path, int], list[Job]]
    check: Callable[[dict[str, Measurement], int], None]
    figures: Callable[[dict[str, Measurement], int], Iterable[Figure]]


# --- the models ---------------------------------------------------------------------------------


def write_net(path: Path, blocks: int, *, is_typed: bool = True) -> None:
    """Write a chain of Conv-Add-Relu *blocks*, every second one with a residual Add.

    Without *is_typed* the types of what is computed are left for whoever reads it to infer.
    """
    import numpy as np  # noqa: PLC0415  # the parent process stays small
    import onnx  # noqa: PLC0415  # the parent process stays small
    from onnx import helper, numpy_helper  # noqa: PLC0415  # the parent process stays small

    rng = np.random.default_rng(0)
    shape = [1, CHANNELS, 4, 4]
    node = helper.make_node
    pads: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    before, last = "", "x"
    for i in range(blocks):
        for name, dims in ((f"w{i}", (CHANNELS, CHANNELS, 3, 3)), (f"b{i}", (1, CHANNELS, 1, 1))):
            data = (rng.standard_normal(dims) * 0.1).astype(np.float32)
            constants.append(numpy_helper.from_array(data, name))
        nodes.append(node("Conv", [last, f"w{i}"], [f"c{i}"], name=f"conv{i}", **pads))
        nodes.append(node("Add", [f"c{i}", f"b{i}"], [f"a{i}"], name=f"add{i}"))
        if i % 2:
            nodes.append(node("Add", [f"a{i}", before], [f"s{i}"], name=f"sum{i}"))
        nodes.append(node("Relu", [nodes[-1].output[0]], [f"r{i}"], name=f"relu{i}"))
        before, last = last, f"r{i}"
    typed = partial(helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT, shape=shape)
    graph = helper.make_graph(
        nodes,
        "net",
        [typed("x")],
        [typed(last)],
        constants,
        value_info=[typed(n.output[0]) for n in nodes[:-1]] if is_typed else [],
    )
    _save(graph, path)


def write_external_net(path: Path) -> None:
    """Write a model with 2.4 GB of weights beside it, in a file of holes that fills no disk.

    One Conv-Relu comes first, then a chain of MatMul and Relu; only the first is a match.
    """
    import numpy as np  # noqa: PLC0415  # the parent process stays small
    import onnx  # noqa: PLC0415  # the parent process stays small
    from onnx import helper, numpy_helper  # noqa: PLC0415  # the parent process stays small

    size = WIDE * WIDE * 4
    weights = path.with_suffix(".weights")
    weights.touch()
    os.truncate(weights, size * WIDE_LAYERS)
    kernel = np.ones((CHANNELS, CHANNELS, 3, 3), np.float32)
    constants = [
        numpy_helper.from_array(kernel, "w"),
        numpy_helper.from_array(np.ones(CHANNELS, np.float32), "b"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
    ]
    last = "r"
    for i in range(WIDE_LAYERS):
        tensor = onnx.TensorProto(
            name=f"m{i}",
            data_type=onnx.TensorProto.FLOAT,
            dims=[WIDE, WIDE],
            data_location=onnx.TensorProto.EXTERNAL,
        )
        place = {"location": weights.name, "offset": str(i * size), "length": str(size)}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=value)
        constants.append(tensor)
        nodes.append(helper.make_node("MatMul", [last, f"m{i}"], [f"p{i}"], name=f"matmul{i}"))
        nodes.append(helper.make_node("Relu", [f"p{i}"], [f"q{i}"], name=f"relu{i}"))
        last = f"q{i}"
    shape = [1, CHANNELS, 4, WIDE]
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", last)
    )
    _save(helper.make_graph(nodes, "wide", [x], [y], constants), path)


def _save(graph: Any, path: Path) -> None:  # noqa: ANN401  # onnx is not imported up here
    """Write *graph* as a model of opset 17 and IR version 8."""
    from onnx import helper  # noqa: PLC0415  # the parent process stays small

    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())


def write_noise(path: Path, outer: Iterable[tuple[str, ...]]) -> None:
    """Write a catalogue of patterns, each a chain of unary ops that the net does not contain."""
    rules = [
        f"  - name: {'_'.join(ops).lower()}\n    pattern: {'('.join(ops)}(x{')' * len(ops)}\n"
        for ops in outer
    ]
    path.write_text("dpl: 1\ntarget: noise\npatterns:\n" + "".join(rules), encoding="utf-8")


# --- the work that is measured ------------------------------------------------------------------


THREE_RULES = """\
dpl: 1
target: dnnl
constants: lift
patterns:
  - {name: conv2d_sum_relu, pattern: "Relu(Add(Add(Conv(x, w), b), s))"}
  - {name: conv2d_bias_relu, pattern: "Relu(Add(Conv(x, w), b))"}
  - {name: conv2d_relu, pattern: "Relu(Conv(x, w))"}
"""
READS = {"Relu": "Relu({})", "Add": "Add({}, _)", "Conv": "Conv({}, _)"}
"""The operators of the net, each round what it reads."""
MISSING = ("Relu Relu", "Relu Conv", "Conv Conv", "Conv Add")
"""What reads what nowhere in the net."""


def write_many(path: Path, count: int) -> None:
    """Write patterns that cannot match: of operators that are missing, and of the net's own."""
    lines = ["dpl: 1", "target: many", "patterns:"]
    own = (c for c in product(READS, repeat=6) if any(m in " ".join(c) for m in MISSING))
    foreign = product(["Relu", *NOISE_OPS], NOISE_OPS, NOISE_OPS)
    for number, chain in enumerate(islice(chain_both(own, foreign), count)):
        text = "x"
        for op in reversed(chain):
            text = READS.get(op, op + "({})").format(text)
        lines.append(f"  - {{name: r{number}, pattern: '{text}'}}")
    path.write_text("\n".join(lines), encoding="utf-8")


def chain_both(
    one: Iterable[tuple[str, ...]], other: Iterable[tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    """Take turns."""
    for pair in zip(one, other, strict=False):
        yield from pair


FLOOR = """\
import sys
from pathlib import Path

import onnx

Path(sys.argv[2]).write_bytes(onnx.load(sys.argv[1]).SerializeToString())
"""
"""Lets protobuf read a model and write it again; nothing can be cheaper."""

CLOCKED = """\
import contextlib, json, sys, time

from dplcli.cli import main, options

marks = [("start-up", 0.0)]

@contextlib.contextmanager
def clocked(**_):
    yield lambda phrase: marks.append((phrase.split()[0], time.process_time()))

options.progress = clocked
marks_file = sys.argv.pop(1)
try:
    main.main()
finally:
    with open(marks_file, "w") as file:
        json.dump(marks, file)
"""
"""Runs ``dpl`` and writes what it says that it does, with the CPU time at which it begins."""

PHASES = {
    "reading": "load",
    "loading": "catalogue",
    "matching": "match",
    "measuring": "coverage",
    "outlining": "outline",
    "merging": "merge",
    "writing": "write and report",
}


def unchecked(*catalogues: Path | str, options: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the options of a command that applies catalogues without the numerical check."""
    named = [str(part) for name in catalogues for part in ("--patterns", name)]
    return (*named, "--no-verify", "--quiet", *options)


def put_in_page_cache(path: Path) -> None:
    """Read a file, a piece at a time: what this process holds counts as its children's peak."""
    with path.open("rb") as file:
        while file.read(MIB):
            pass


def run_command(job: Job) -> Measurement:
    """Run a command of dpl, or the floor, as a process, and ask the system what it took."""
    output = job.model.with_name(f"{job.name}.out.onnx")
    marks_file = output.with_suffix(".json")
    put_in_page_cache(job.model)
    marks_file.write_text("[]", encoding="utf-8")
    command = [FLOOR, str(job.model), str(output)]
    if job.command:
        command = [CLOCKED, str(marks_file), job.command, str(job.model), *job.work]  # type: ignore[misc]
        command += ["-o", str(output)]
    process = subprocess.Popen([sys.executable, "-c", *command])  # noqa: S603  # our own program
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        message = f"{job.name}: {' '.join(command[1:])} ended with {process.returncode}"
        raise SystemExit(message)
    seconds = used.ru_utime + used.ru_stime
    marks = [*json.loads(marks_file.read_text(encoding="utf-8")), ("", seconds)]
    phases: dict[str, float] = {}
    for (word, start), (_, end) in pairwise(marks):
        phase = PHASES.get(word, word)
        phases[phase] = phases.get(phase, 0.0) + end - start
    # a process begins with the peak of the one that starts it: this one must stay small
    calls = in_own_process(job.count or count_calls, output)
    output.unlink(missing_ok=True)
    unit = 1 if sys.platform == "darwin" else 1024
    return Measurement(seconds, used.ru_maxrss * unit, calls, phases)


def onnxscript_rewrite(model: Path, output: Path, *, as_function: bool = False) -> None:
    """Replace what ``conv_relu`` matches by one node each, with onnxscript's rewriter."""
    from onnxscript import ir  # noqa: PLC0415  # the parent process stays small
    from onnxscript.rewriter import RewriteRule, RewriteRuleSet  # noqa: PLC0415  # the parent process stays small

    def bias_relu(op: Any, x: Any, w: Any, b: Any) -> Any:  # noqa: ANN401
        return op.Relu(op.Add(op.Conv(x, w), b))

    def call_bias_relu(op: Any, x: Any, w: Any, b: Any) -> Any:  # noqa: ANN401
        return op.conv2d_bias_relu(x, w, b, _domain="dnnl")

    def sum_relu(op: Any, x: Any, w: Any, b: Any, s: Any) -> Any:  # noqa: ANN401
        return op.Relu(op.Add(op.Add(op.Conv(x, w), b), s))

    def call_sum_relu(op: Any, x: Any, w: Any, b: Any, s: Any) -> Any:  # noqa: ANN401
        return op.conv2d_bias_sum_relu(x, w, b, s, _domain="dnnl")

    rules = RewriteRuleSet(
        [
            RewriteRule(sum_relu, call_sum_relu, as_function=as_function),
            RewriteRule(bias_relu, call_bias_relu, as_function=as_function),
        ]
    )
    loaded = ir.load(model)
    rules.apply_to_model(loaded)
    ir.save(loaded, output)


# --- measuring ----------------------------------------------------------------------------------


def in_own_process(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what *function* returns when a fresh interpreter runs it."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(function, *args, **kwargs).result()


def measure(job: Job, tiny: Path) -> Measurement:
    """Run *job* in this process, once its imports are done and its file is in the page cache."""
    output, work = job.model.with_name(f"{job.name}.out.onnx"), job.work
    assert callable(work)  # noqa: S101  # commands go to run_command
    work(tiny, output)
    output.unlink(missing_ok=True)
    put_in_page_cache(job.model)
    gc.collect()
    start = time.process_time()
    work(job.model, output)
    seconds = time.process_time() - start
    peak = peak_memory()
    calls = (job.count or count_calls)(output) if output.exists() else 0
    output.unlink(missing_ok=True)
    return Measurement(seconds, peak, calls)


def peak_memory() -> int:
    """Return the most memory, in bytes, that this process ever had resident.

    Linux keeps ``ru_maxrss`` across ``exec``: a child would report its parent's peak.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(li for li in status.read_text().splitlines() if li.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def count_calls(path: Path) -> int:
    """Return how many nodes of the main graph belong to a domain other than ONNX's own."""
    import onnx  # noqa: PLC0415  # the parent process stays small

    model = onnx.load(path, load_external_data=False)
    return sum(node.domain not in {"", "ai.onnx"} for node in model.graph.node)


def run_all(jobs: list[Job], tiny: Path, repeat: int) -> dict[str, Measurement]:
    """Measure each job *repeat* times, taking turns, and keep the best of each."""
    best: dict[str, Measurement] = {}
    for turn in range(repeat):
        for job in jobs:
            print(f"[{turn + 1}/{repeat}] {job.name}", file=sys.stderr, flush=True)
            now = in_own_process(measure, job, tiny) if callable(job.work) else run_command(job)
            best[job.name] = min(best.get(job.name, now), now, key=lambda m: m.seconds)
    return best


def make_jobs(folder: Path, blocks: int) -> list[Job]:
    """Write the models and catalogues into *folder* and return everything that can be measured."""
    big, bare, small, large, wide = (
        folder / f"{name}.onnx" for name in ("big", "bare", "small", "large", "wide")
    )
    in_own_process(write_net, big, blocks)
    in_own_process(write_net, large, blocks * LARGE)
    in_own_process(write_net, bare, blocks, is_typed=False)
    in_own_process(write_net, small, blocks // 10)
    in_own_process(write_external_net, wide)
    absent, near = folder / "absent.yaml", folder / "near.yaml"
    write_noise(absent, product(NOISE_OPS, NOISE_OPS))
    write_noise(near, product(["Relu"], NOISE_OPS, NOISE_OPS))
    three, many = folder / "three.yaml", folder / "many.yaml"
    three.write_text(THREE_RULES, encoding="utf-8")
    write_many(many, 297)
    return [
        Job("floor", (), big, command=""),
        Job("dpl-3", unchecked(three), big),
        Job("dpl-300", unchecked(three, many), big),
        Job("dpl", unchecked(CATALOGUE), big),
        Job("dpl-json", unchecked(CATALOGUE, options=WITH_JSON), big),
        Job("dpl-dnnl", unchecked(options=DNNL), big),
        Job("dpl-dnnl-json", unchecked(options=DNNL + WITH_JSON), big),
        Job("dpl-cutlass", unchecked(options=CUTLASS), big),
        Job("dpl-cutlass-json", unchecked(options=CUTLASS + WITH_JSON), big),
        Job("dpl-large", unchecked(CATALOGUE), large),
        Job("dpl-untyped", unchecked(CATALOGUE), bare),
        Job("dpl-merge", unchecked(CATALOGUE, options=["--merge"]), big),
        Job("dpl-absent", unchecked(CATALOGUE, absent), big),
        Job("dpl-near", unchecked(CATALOGUE, near), big),
        Job("dpl-small", unchecked(CATALOGUE), small),
        Job("dpl-external", unchecked(CATALOGUE), wide),
        Job("onnxscript", onnxscript_rewrite, big),
        Job("onnxscript-function", partial(onnxscript_rewrite, as_function=True), small),
    ]


# --- what is reported ---------------------------------------------------------------------------


def check_calls(best: dict[str, Measurement], blocks: int) -> None:
    """Refuse to compare programs that did not find the same matches: one in each block."""
    expected = {"floor": 0, "dpl-external": 1, "dpl-merge": 1}
    expected |= dict.fromkeys(("dpl-small", "onnxscript-function"), blocks // 10)
    expected["dpl-large"] = blocks * LARGE
    for name, found in best.items():
        if found.calls != expected.get(name, blocks):
            message = f"{name}: {found.calls} matches instead of {expected.get(name, blocks)}"
            raise SystemExit(message)


def figures(best: dict[str, Measurement], blocks: int) -> Iterator[Figure]:
    """Yield each figure whose two measurements were taken."""
    nodes, few = f"{blocks * 7 // 2:,}", f"{blocks // 10 * 7 // 2:,}"
    many = f"{blocks * LARGE * 7 // 2:,}"
    pairs = [
        (f"partition {nodes} nodes : load and write", "dpl", "floor", 3.0, False),
        ("the same, --target dnnl", "dpl-dnnl", "floor", 4.0, False),
        ("the same, --target cutlass", "dpl-cutlass", "floor", 6.0, False),
        ("with --json : without", "dpl-json", "dpl", 1.15, False),
        ("the same, --target dnnl", "dpl-dnnl-json", "dpl-dnnl", 1.15, False),
        ("the same, --target cutlass", "dpl-cutlass-json", "dpl-cutlass", 1.15, False),
        ("types to be inferred : load and write", "dpl-untyped", "floor", 4.0, False),
        (f"onnxscript : partition, {nodes} nodes", "onnxscript", "dpl", 6.5, True),
        (
            f"onnxscript as_function : partition, {few} nodes",
            "onnxscript-function",
            "dpl-small",
            50.0,
            True,
        ),
        (f"growth from {few} to {nodes} nodes", "dpl", "dpl-small", 8.0, False),
        (f"growth from {nodes} to {many} nodes", "dpl-large", "dpl", 11.0, False),
        ("300 rules : 3 rules, the others cannot match", "dpl-300", "dpl-3", 1.5, False),
        ("merged into one region : not merged", "dpl-merge", "dpl", 2.0, False),
        ("100 further patterns, root op absent", "dpl-absent", "dpl", 1.15, False),
        ("100 further patterns, root op Relu", "dpl-near", "dpl", 1.15, False),
    ]
    for name, over, under, target, at_least in pairs:
        if over in best and under in best:
            a, b = best[over].seconds, best[under].seconds
            yield Figure(name, f"{a:.3f} s : {b:.3f} s", a / b, target, at_least=at_least)
    if "dpl" in best and "floor" in best:
        held, least = best["dpl"].peak_bytes, best["floor"].peak_bytes
        measured = f"{held / MIB:.0f} MiB : {least / MIB:.0f} MiB"
        yield Figure("peak memory : load and write", measured, held / least, 1.2)
    if "dpl-external" in best:
        found = best["dpl-external"]
        held_mb = found.peak_bytes / 1e6
        measured = f"{found.seconds:.3f} s, {held_mb:.0f} MB"
        name = "peak memory, 2.4 GB of external data"
        yield Figure(name, measured, held_mb, 200.0, unit=" MB")


def versions() -> dict[str, str]:
    """Return the version of everything that takes part, where installed."""
    found = {"python": platform.python_version()}
    for name in ("dplcli", "onnx", "protobuf", "onnxscript", "onnx-ir"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def print_table(rows: list[Figure]) -> None:
    """Print one line for each figure."""
    cells = [("figure", "measured", "ratio", "target", "met")]
    for row in rows:
        sign = ">=" if row.at_least else "<="
        value, target = (f"{number:.4g}{row.unit}" for number in (row.value, row.target))
        cells.append(
            (row.name, row.measured, value, f"{sign} {target}", "yes" if row.met else "NO")
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def print_phases(best: dict[str, Measurement]) -> None:
    """Print what each phase of the commands took, in CPU seconds."""
    commands = {name: found for name, found in best.items() if found.phases}
    phases = list(dict.fromkeys(phase for found in commands.values() for phase in found.phases))
    width = max(map(len, commands), default=0)
    if phases:
        print(f"\n{'CPU seconds':{width}}  {'  '.join(phases)}  whole")
    for name, found in commands.items():
        cells = [f"{found.phases.get(phase, 0.0):{len(phase)}.2f}" for phase in phases]
        print(f"{name:{width}}  {'  '.join(cells)}  {found.seconds:5.2f}")


def as_json(
    schema: str, best: dict[str, Measurement], rows: list[Figure], args: argparse.Namespace
) -> str:
    """Return the whole run as a JSON document."""
    document = {
        "schema": schema,
        "blocks": args.blocks,
        "repeat": args.repeat,
        "versions": versions(),
        "measurements": {name: asdict(found) for name, found in best.items()},
        "figures": [asdict(row) | {"met": row.met} for row in rows],
    }
    return json.dumps(document, indent=2) + "\n"


def parse(arguments: list[str] | None, description: str) -> argparse.Namespace:
    """Return the options of one run; *description* begins with what it does."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=FULL_SIZE, help="size of the net")
    parser.add_argument("--repeat", type=int, default=3, help="best of this many (default 3)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure just these")
    parser.add_argument("--skip-onnxscript", action="store_true", help="leave the peer out")
    parser.add_argument("--quick", action="store_true", help="a tenth of the net, once")
    parser.add_argument("--json", metavar="FILE", help="write JSON too (- is standard output)")
    args = parser.parse_args(arguments)
    if args.quick:
        args.blocks, args.repeat = FULL_SIZE // 10, 1
    return args


def choose(jobs: list[Job], args: argparse.Namespace) -> list[Job]:
    """Return the jobs that were asked for.

    Raises:
        SystemExit: One of them is none.
    """
    if args.skip_onnxscript:
        jobs = [job for job in jobs if not job.name.startswith("onnxscript")]
    if not args.only:
        return jobs
    if unknown := set(args.only) - {job.name for job in jobs}:
        message = f"--only: no such measurement: {', '.join(sorted(unknown))}"
        raise SystemExit(message)
    return [job for job in jobs if job.name in args.only]


def run(benchmark: Benchmark, args: argparse.Namespace) -> None:
    """Run the benchmark and print its table."""
    with tempfile.TemporaryDirectory(prefix="dpl-benchmark-") as name:
        folder = Path(name)
        jobs = choose(benchmark.jobs(folder, args.blocks), args)
        tiny = folder / "tiny.onnx"
        in_own_process(write_net, tiny, 2)
        best = run_all(jobs, tiny, args.repeat)
    benchmark.check(best, args.blocks)
    rows = list(benchmark.figures(best, args.blocks))
    if args.json == "-":
        print(as_json(benchmark.schema, best, rows, args), end="")
        return
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    if args.blocks != FULL_SIZE:
        print(f"The targets are meant for --blocks {FULL_SIZE}.")
    print_table(rows)
    print_phases(best)
    if args.json:
        document = as_json(benchmark.schema, best, rows, args)
        Path(args.json).write_text(document, encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Measure a partition."""
    benchmark = Benchmark("dpl.benchmark/1", make_jobs, check_calls, figures)
    run(benchmark, parse(arguments, __doc__ or ""))


if __name__ == "__main__":
    main()
