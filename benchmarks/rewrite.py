"""Compare what dpl's catalogues and other tools make of the same models: nodes, bytes, fused ops.

Nodes are counted as :mod:`benchmarks.counting` says, in the result and in what onnxruntime makes of
it by default: what a tool leaves out may be what onnxruntime would have fused. The question that
the summary answers: on how many models does dpl leave no more nodes than the best of onnxslim,
onnxsim and onnxscript, with a result that ``dpl verify`` does not find wrong; and on how many are
there no more after onnxruntime? Where there is no verdict the nodes alone decide, and the model is
listed. A model for which none of the three has a result does not count; with ``--check all`` their
results are verified, too, and a wrong one is none. What a tool has *made* is every operator that
there is more of than before. ``--latency ROUNDS`` runs each result in turn with the model, on one
thread, and gives the median of the ratios of processor time.

Run it from the root of the repository, with dplcli and its ``benchmark`` extra installed::

    python -m benchmarks.rewrite
    python -m benchmarks.rewrite MODEL_OR_FOLDER --only-models 'bert*' --peers onnxslim --json -
"""

import argparse
import importlib.metadata
import json
import platform
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from google.protobuf.message import DecodeError
from rich.console import Console
from rich.table import Table

from benchmarks.comparison import OURS, RIVALS, Outcome, Row, Size, Verdict, compare_tools
from benchmarks.peers import PACKAGES, PEERS, Counts, Tool, dpl, missing_packages
from dplcli.catalog import find_catalog
from dplcli.errors import CatalogError

SAMPLES = Path(__file__).parents[1] / "sample_models"
CATALOGS = ("prepare", "fuse")
WIDTH = 200  # of the tables where there is no terminal


# --- what is reported ---------------------------------------------------------------------------


def worst_first(rows: list[Row]) -> list[Row]:
    """Return *rows*, first those where dpl has no result or a wrong one, then by nodes behind."""

    def rank(row: Row) -> tuple[bool, bool, int, str]:
        ours = row.outcomes[OURS]
        return (ours.size is not None, not ours.is_wrong, -(row.behind or 0), row.model)

    return sorted(rows, key=rank)


def summary(rows: list[Row], catalogs: list[str]) -> Iterator[str]:
    """Yield what the run says as a whole, one finding a line."""
    compared = [row for row in rows if row.best is not None]
    if compared:
        reached = sum(row.is_reached for row in compared)
        yield (
            f"dpl's {'+'.join(Path(name).stem for name in catalogs)} leaves no more nodes than "
            f"the best of {', '.join(RIVALS)} on {reached} of {len(compared)} models"
        )
    left = [row.behind_optimised for row in rows if row.behind_optimised is not None]
    if left:
        reached = sum(behind <= 0 for behind in left)
        yield f"after onnxruntime's optimisation, on {reached} of {len(left)} models"
    for name, text in (
        ("dpl is behind on", [_behind(r) for r in rows if (r.behind or 0) > 0]),
        (
            "after onnxruntime dpl is behind on",
            [f"{r.model} ({r.behind_optimised:+})" for r in rows if (r.behind_optimised or 0) > 0],
        ),
        (
            "onnxruntime leaves more nodes than of the original on",
            [f"{r.model} (+{r.defeated})" for r in rows if r.defeated],
        ),
        ("dpl has no result for", [r.model for r in rows if r.outcomes[OURS].size is None]),
        ("dpl's result is wrong for", [r.model for r in rows if r.outcomes[OURS].is_wrong]),
        ("no verdict on", [r.model for r in rows if _is_open(r.outcomes[OURS])]),
        (
            "the file grows for",
            [f"{r.model} (x{r.growth:.3f})" for r in rows if r.growth > 1],
        ),
    ):
        if text:
            yield f"{name} {len(text)}: {', '.join(text)}"


def _behind(row: Row) -> str:
    """Name a model that dpl is behind on, and what the rival's lead costs in bytes."""
    grown = row.best.bytes / row.before.bytes if row.best is not None else 0.0
    cost = f", whose file is x{grown:.2f}" if grown > 1 else ""
    return f"{row.model} ({row.behind:+}{cost})"


def _is_open(outcome: Outcome) -> bool:
    return outcome.verdict is not None and outcome.verdict.equivalent is None


def totals(rows: list[Row], names: list[str]) -> Table:
    """Return one line for each tool, over the models that all tools have a result for."""
    shared = [r for r in rows if all(r.outcomes[name].size is not None for name in names)]
    columns = ("results", "nodes", "Constant", "bytes", "optimised", "seconds", "wrong", "latency")
    table = _table("tool", *columns, right=len(columns))
    before = [row.before for row in shared]
    table.add_row("(before)", str(len(rows)), *_sums(before), "", "", "")
    for name in names:
        all_of_it = [row.outcomes[name] for row in rows]
        sizes = [size for row in shared if (size := row.outcomes[name].size) is not None]
        table.add_row(
            name,
            str(sum(outcome.size is not None for outcome in all_of_it)),
            *_sums(sizes),
            f"{sum(outcome.seconds for outcome in all_of_it):.0f}",
            str(sum(outcome.is_wrong for outcome in all_of_it)),
            _middle([outcome.latency for outcome in all_of_it if outcome.latency is not None]),
        )
    return table


def _sums(sizes: list[Size]) -> tuple[str, str, str, str]:
    return (
        f"{sum(size.nodes for size in sizes):,}",
        f"{sum(size.constants for size in sizes):,}",
        f"{sum(size.bytes for size in sizes):,}",
        f"{sum(size.optimised or 0 for size in sizes):,}",
    )


def _middle(ratios: list[float]) -> str:
    return f"x{statistics.median(ratios):.2f}" if ratios else ""


def models_table(rows: list[Row], names: list[str]) -> Table:
    """Return one line for each model: nodes after each tool, and more on dpl's result.

    Behind the stroke are the nodes that onnxruntime leaves.
    """
    numbers = ("before", *names, "behind", "bytes", "growth", "latency")
    table = _table("model", *numbers, "same", right=len(numbers))
    table.add_column("made by dpl", overflow="fold")
    for row in rows:
        ours = row.outcomes[OURS]
        table.add_row(
            row.model,
            _nodes(row.before),
            *(_nodes(row.outcomes[name].size) for name in names),
            _signed(row.behind) + "/" + _signed(row.behind_optimised),
            f"{row.before.bytes:,}",
            f"x{row.growth:.2f}" if ours.size is not None else "",
            "" if ours.latency is None else f"x{ours.latency:.2f}",
            _answer(ours.verdict),
            _listed(ours.made) or ours.problem,
        )
    return table


def made_table(rows: list[Row], names: list[str]) -> Table:
    """Return one line for each operator that a tool makes: how many, over all models."""
    made: dict[str, Counter[str]] = {name: Counter() for name in names}
    for row in rows:
        for name in names:
            made[name].update(row.outcomes[name].made)
    table = _table("made", *names, right=len(names))
    for op in sorted(set().union(*made.values()), key=lambda op: (-made[OURS][op], op)):
        table.add_row(op, *(str(made[name][op] or "") for name in names))
    return table


def problems(rows: list[Row], names: list[str]) -> Iterator[str]:
    """Yield each failure, and each verdict that is not a yes."""
    for row in rows:
        for name in names:
            outcome = row.outcomes[name]
            if outcome.size is None:
                yield f"{name} {row.model}: {outcome.problem}"
            elif outcome.verdict is not None and not outcome.verdict.equivalent:
                word = "not equivalent" if outcome.is_wrong else "no verdict"
                yield f"{name} {row.model}: {word}: {outcome.verdict.reason}"


def _table(first: str, *columns: str, right: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number < right else "left", no_wrap=True)
    return table


def _nodes(size: Size | None) -> str:
    if size is None:
        return "-"
    nodes = f"{size.nodes}+{size.constants}" if size.constants else str(size.nodes)
    return nodes if size.optimised is None else f"{nodes}/{size.optimised}"


def _signed(number: int | None) -> str:
    return "" if number is None else f"{number:+}"


def _answer(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    return {True: "yes", False: "NO", None: "?"}[verdict.equivalent]


def _listed(counts: Counts) -> str:
    return ", ".join(f"{op} {count}" for op, count in counts.items())


def as_json(rows: list[Row], args: argparse.Namespace) -> str:
    """Return the whole run as a JSON document."""
    document = {
        "schema": "dpl.benchmark.rewrite/2",
        "catalogs": args.patterns,
        "limit": args.limit,
        "versions": versions(),
        "summary": list(summary(rows, args.patterns)),
        "models": [
            asdict(row)
            | {
                "best": row.best and row.best.nodes,
                "behind": row.behind,
                "behind_optimised": row.behind_optimised,
                "reached": row.is_reached,
            }
            for row in rows
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def versions() -> dict[str, str]:
    """Return the version of everything that takes part, where installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


# --- the command --------------------------------------------------------------------------------


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of one run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rewrite", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("models", nargs="*", type=Path, default=[SAMPLES], help="models, or folders of them")
    add("--only-models", metavar="GLOB", default="*", help="only files whose names match")
    add("--patterns", nargs="+", default=list(CATALOGS), metavar="NAME", help="dpl's catalogues")
    add("--peers", nargs="*", default=list(PEERS), choices=PEERS, help="the other tools")
    add("--limit", type=float, default=120.0, help="seconds for each run (default 120)")
    add("--check", choices=("dpl", "all", "none"), default="dpl", help="whose results to verify")
    add("--latency", type=int, default=0, metavar="ROUNDS", help="run every result, too")
    add("--keep", type=Path, metavar="FOLDER", help="keep every result here, by tool")
    add("--json", metavar="FILE", help="write JSON too (- is standard output)")
    return parser.parse_args(arguments)


def find_models(args: argparse.Namespace) -> list[Path]:
    """Return the files to read, each once, by name.

    Raises:
        SystemExit: There is none.
    """
    found = {
        path.resolve()
        for place in args.models
        for path in (place.rglob("*.onnx") if place.is_dir() else [place])
        if fnmatch(path.name, args.only_models)
    }
    if missing := [str(path) for path in found if not path.is_file()]:
        raise SystemExit(f"no such file: {', '.join(missing)}")
    if not found:
        raise SystemExit("there is no model to compare")
    return sorted(found, key=lambda path: path.name)


def find_tools(args: argparse.Namespace) -> dict[str, Tool]:
    """Return the tools to run, by name.

    Raises:
        SystemExit: A peer is not installed, or there is no such catalogue.
    """
    if missing := missing_packages(args.peers):
        raise SystemExit(f"not installed: {', '.join(missing)}; install the extra 'benchmark'")
    for name in args.patterns:
        try:
            find_catalog(name)
        except CatalogError as error:
            raise SystemExit(f"--patterns: {error.message}") from None
    ours = partial(dpl, catalogs=tuple(args.patterns))
    return {OURS: ours, **{name: PEERS[name] for name in args.peers}}


def run_all(args: argparse.Namespace) -> list[Row]:
    """Compare the tools on every model, one after the other."""
    models, tools = find_models(args), find_tools(args)
    checked: set[str] = {"none": set(), "dpl": {OURS}, "all": set(tools)}[args.check]
    rows = []
    for number, model in enumerate(models, 1):
        print(f"[{number}/{len(models)}] {model.name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="dpl-benchmark-") as name:
            try:
                rows.append(
                    compare_tools(model, tools, Path(name), args.limit, checked, args.latency)
                )
            except DecodeError as error:
                print(f"left out, it is no model: {error}", file=sys.stderr)
            if args.keep:
                shutil.copytree(name, args.keep / model.stem, dirs_exist_ok=True)
    return worst_first(rows)


def main(arguments: list[str] | None = None) -> None:
    """Run the comparison and print its tables."""
    args = parse(arguments)
    rows = run_all(args)
    if args.json == "-":
        print(as_json(rows, args), end="")
        return
    if args.json:
        Path(args.json).write_text(as_json(rows, args), encoding="utf-8")
    names = [OURS, *args.peers]
    width = None if sys.stdout.isatty() else WIDTH
    console = Console(width=width, highlight=False, markup=False)
    console.print(", ".join(f"{name} {version}" for name, version in versions().items()))
    for title, part in (
        (
            "Nodes without Constant (+ Constant nodes) / left by onnxruntime; worst for dpl first",
            models_table(rows, names),
        ),
        ("Operators that there are more of than before, all models", made_table(rows, names)),
        ("Sums over the models that every tool has a result for", totals(rows, names)),
    ):
        console.print("", title, part, sep="\n")
    for line in ("", *problems(rows, names), "", *summary(rows, args.patterns)):
        console.print(line)


if __name__ == "__main__":
    main()
