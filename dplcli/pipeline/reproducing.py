"""A folder that shows one fault by itself: a small model, rules, inputs, and how to run it."""

from __future__ import annotations

import shutil
from pathlib import Path

from dplcli.dpl.reproducer import Reproducer, read_reproducer
from dplcli.errors import DplError, InvalidGraphError, UsageError
from dplcli.files import temporary_folder
from dplcli.ir.verifier import verify_model
from dplcli.onnx_io import check_model, load_model, staged
from dplcli.pipeline.changes import load_changes
from dplcli.pipeline.rules import RuleSource, files_of
from dplcli.verify.bisect_result import Reproduced, Step

ORIGINAL = "original.onnx"
CANDIDATE = "candidate.onnx"


def reproduce(folder: Path, *, allow_code: bool = False) -> Reproduced:
    """Run a reproducer: apply its rules, and compare what comes out on its inputs.

    Args:
        folder: The folder.
        allow_code: Whether its catalogues may be Python, or import Python functions.

    Raises:
        UsageError: It is no reproducer, or its rules are code and that was not allowed.
        DplError: A model or a catalogue in it cannot be used.
    """
    spec = read_reproducer(folder)
    if spec.needs_code and not allow_code:
        raise UsageError(
            f"{folder}: its rules are Python code", hint="pass --allow-code if you trust it"
        )
    return run_reproducer(folder, spec)


def run_reproducer(folder: Path, spec: Reproducer) -> Reproduced:
    """Run what *spec* says in *folder*.

    Raises:
        DplError: A model or a catalogue in it cannot be used.
    """
    if spec.kind == "models":
        return _compare(folder, spec, folder / CANDIDATE)
    model = load_model(folder / ORIGINAL)
    changes, _ = load_changes(_rules(folder, spec), model, spec.kind)
    steps = _steps(spec)
    applied = changes.apply(model, steps)
    if len(applied) < len(steps):
        return Reproduced(folder.name, fitted=False)
    try:
        verify_model(model)
    except InvalidGraphError as error:
        return Reproduced(folder.name, f"the graph is broken: {error.message}")
    with (
        temporary_folder() as scratch,
        staged(model, scratch / CANDIDATE) as written,
    ):
        objection = check_model(written.path)
        if objection and not check_model(folder / ORIGINAL):
            return Reproduced(folder.name, f"onnx.checker refuses the result: {objection}")
        return _compare(folder, spec, written.path)


def _rules(folder: Path, spec: Reproducer) -> RuleSource:
    """Return where the rules come from: files in the folder, else what is shipped."""
    names = [str(folder / name) if (folder / name).is_file() else name for name in spec.catalogues]
    return RuleSource(names, allow_code=spec.allow_code)


def _steps(spec: Reproducer) -> list[Step]:
    return [Step(item.rule, item.scope, item.op_type, item.output) for item in spec.steps]


def _compare(folder: Path, spec: Reproducer, candidate: Path) -> Reproduced:
    from dplcli.verify.exhibit import Rules, read_feed, show  # noqa: PLC0415  # onnxruntime
    from dplcli.verify.sessions import RunError, Source  # noqa: PLC0415

    values = [
        (item, read_feed(folder / item.file, is_sequence=item.is_sequence)) for item in spec.inputs
    ]
    ours = {item.original: value for item, value in values if item.original is not None}
    theirs = {item.candidate: value for item, value in values if item.candidate is not None}
    libraries = tuple(folder / name for name in spec.custom_ops)
    original = Source(folder / ORIGINAL, libraries=libraries if spec.needs_custom_ops else ())
    rules = Rules(spec.level, spec.coarsest, spec.rtol, spec.atol)
    try:
        shown = show(
            (original, Source(candidate, libraries=libraries)), (ours, theirs), spec.outputs, rules
        )
    except RunError as error:
        message = f"{folder}: onnxruntime does not run the original: {error}"
        raise UsageError(message) from error
    return Reproduced(folder.name, shown.reason, shown.outputs)


def shows(folder: Path, spec: Reproducer) -> bool:
    """Tell whether the fault shows in *folder*; what cannot be run does not show it."""
    try:
        return run_reproducer(folder, spec).differs
    except DplError:
        return False


def write_candidate(folder: Path, spec: Reproducer) -> None:
    """Write what the rules make of the original, for a look."""
    model = load_model(folder / ORIGINAL)
    changes, _ = load_changes(_rules(folder, spec), model, spec.kind)
    changes.apply(model, _steps(spec))
    with staged(model, folder / CANDIDATE) as written:
        written.commit()


def copy_rules(source: RuleSource, folder: Path) -> list[str]:
    """Copy the catalogues that are files into *folder*; return how they are named there."""
    own = [Path(name).resolve() for name in source.patterns if Path(name).is_file()]
    if not own:
        return [*source.patterns, *source.targets]
    brought = files_of([str(path) for path in own], allow_code=source.allow_code) | set(own)
    top = _common_parent(brought)
    for path in brought:
        target = folder / "rules" / path.relative_to(top)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    names = [
        f"rules/{Path(name).resolve().relative_to(top).as_posix()}"
        if Path(name).is_file()
        else name
        for name in source.patterns
    ]
    return [*names, *source.targets]


def _common_parent(paths: set[Path]) -> Path:
    first, *others = paths
    parent = first.parent
    while not all(path.is_relative_to(parent) for path in others):
        parent = parent.parent
    return parent
