"""Measure a rewrite on a long Conv-Add-Relu net, beside protobuf's floor and onnxscript.

One rule puts another operator in the place of each Relu: what the engine costs. Another merges
the Add of a constant into the bias of the Conv before it, which takes a condition on shapes and a
computed constant each time. Both apply once in each block. The catalogues that make models smaller
are timed, too. A check of the result is not part of it. How the time and memory are taken, and the
net, are those of :mod:`benchmarks.partition`.

Run it from the root of the repository, with dplcli and its ``benchmark`` extra installed::

    python -m benchmarks.rewrite_speed
    python -m benchmarks.rewrite_speed --quick --json -
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.partition import (
    MIB,
    Benchmark,
    Figure,
    Job,
    Measurement,
    in_own_process,
    parse,
    run,
    unchecked,
    write_net,
)

PLAIN_RULE = """\
dpl: 1
rewrites:
  - name: relu_to_leaky_relu
    pattern: Relu(x)
    replacement: LeakyRelu(x, alpha=0.0)
"""

RULE = """\
dpl: 1
rewrites:
  - name: add_to_bias
    pattern: |
      conv = Conv(x, w, **attrs)
      Add(conv, const(b))
    where: ["b.shape == (1, w.shape[0], 1, 1)"]
    replacement: Conv(x, w, const(b.value[0, :, 0, 0]), **attrs)
"""


def onnxscript_rewrite(model: Path, output: Path) -> None:
    """Apply the same rule with onnxscript's rewriter."""
    from onnxscript import ir  # noqa: PLC0415  # not what is timed
    from onnxscript.rewriter import RewriteRule, RewriteRuleSet  # noqa: PLC0415  # not what is timed

    def added(op: Any, x: Any, w: Any, b: Any) -> Any:  # noqa: ANN401
        return op.Add(op.Conv(x, w, _outputs=["conv"]), b)

    def is_bias(context: Any, w: Any, b: Any, **_: Any) -> bool:  # noqa: ANN401
        del context
        constant = b.const_value
        return constant is not None and tuple(constant.shape) == (1, w.shape[0], 1, 1)

    def with_bias(op: Any, x: Any, w: Any, b: Any, conv: Any) -> Any:  # noqa: ANN401
        data = b.const_value.numpy().reshape(-1)
        bias = op.initializer(ir.tensor(data), name=f"{b.name}_row")
        return op.Conv(x, w, bias, **conv.producer().attributes)

    rules = RewriteRuleSet([RewriteRule(added, with_bias, is_bias)])
    loaded = ir.load(model)
    rules.apply_to_model(loaded)
    ir.save(loaded, output)


def biased_convolutions(path: Path) -> int:
    """Return how many nodes are a Conv with a bias: one for each time the rule was applied."""
    import onnx  # noqa: PLC0415  # the parent process stays small

    nodes = onnx.load(path, load_external_data=False).graph.node
    return sum(node.op_type == "Conv" and len(node.input) == 3 for node in nodes)  # noqa: PLR2004


def leaky_relus(path: Path) -> int:
    """Return how many nodes are a LeakyRelu: one for each time the plain rule was applied."""
    import onnx  # noqa: PLC0415  # the parent process stays small

    nodes = onnx.load(path, load_external_data=False).graph.node
    return sum(node.op_type == "LeakyRelu" for node in nodes)


def make_jobs(folder: Path, blocks: int) -> list[Job]:
    """Write the models and the rules into *folder* and return everything that can be measured."""
    big, small = folder / "big.onnx", folder / "small.onnx"
    in_own_process(write_net, big, blocks)
    in_own_process(write_net, small, blocks // 10)
    rule = folder / "rule.yaml"
    rule.write_text(RULE, encoding="utf-8")
    plain = folder / "plain.yaml"
    plain.write_text(PLAIN_RULE, encoding="utf-8")
    fuse = unchecked("prepare", "fuse")
    return [
        Job("floor", (), big, command=""),
        Job("dpl-plain", unchecked(plain), big, leaky_relus, "rewrite"),
        Job("dpl", unchecked(rule), big, biased_convolutions, "rewrite"),
        Job("dpl-small", unchecked(rule), small, biased_convolutions, "rewrite"),
        Job("dpl-fuse", fuse, big, biased_convolutions, "rewrite"),
        Job("onnxscript", onnxscript_rewrite, big, biased_convolutions),
        Job("onnxscript-small", onnxscript_rewrite, small, biased_convolutions),
    ]


def check_applications(best: dict[str, Measurement], blocks: int) -> None:
    """Refuse to compare programs that did not apply the rule once in each block."""
    expected = {"floor": 0, "dpl-small": blocks // 10, "onnxscript-small": blocks // 10}
    for name, found in best.items():
        if found.calls != expected.get(name, blocks):
            message = f"{name}: {found.calls} applications, not {expected.get(name, blocks)}"
            raise SystemExit(message)


def figures(best: dict[str, Measurement], blocks: int) -> Iterator[Figure]:
    """Yield each figure whose two measurements were taken."""
    nodes, few = f"{blocks * 7 // 2:,}", f"{blocks // 10 * 7 // 2:,}"
    for name, over, under, target, at_least in (
        (f"rewrite {nodes} nodes, plain : load and write", "dpl-plain", "floor", 6.0, False),
        (f"rewrite {nodes} nodes, computing : load and write", "dpl", "floor", 6.0, False),
        (f"rewrite {nodes} nodes, prepare and fuse : the same", "dpl-fuse", "floor", 10.0, False),
        (f"growth from {few} to {nodes} nodes", "dpl", "dpl-small", 12.0, False),
        (f"onnxscript : rewrite, {nodes} nodes", "onnxscript", "dpl", 1.0, True),
        (f"onnxscript : rewrite, {few} nodes", "onnxscript-small", "dpl-small", 1.0, True),
    ):
        if over in best and under in best:
            a, b = best[over].seconds, best[under].seconds
            yield Figure(name, f"{a:.3f} s : {b:.3f} s", a / b, target, at_least=at_least)
    if "dpl" in best and "floor" in best:
        held, least = best["dpl"].peak_bytes, best["floor"].peak_bytes
        measured = f"{held / MIB:.0f} MiB : {least / MIB:.0f} MiB"
        yield Figure("peak memory : load and write", measured, held / least, 1.2)


def main(arguments: list[str] | None = None) -> None:
    """Measure a rewrite."""
    benchmark = Benchmark("dpl.benchmark.rewrite-speed/1", make_jobs, check_applications, figures)
    run(benchmark, parse(arguments, __doc__ or ""))


if __name__ == "__main__":
    main()
