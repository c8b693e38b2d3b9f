"""Writing the folder that shows a fault: cut out as small as it still shows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.dpl.reproducer import FILE, InputItem, Reproducer, StepItem
from dplcli.errors import UsageError
from dplcli.files import put_folder, temporary_folder
from dplcli.pipeline.reproducing import ORIGINAL, copy_rules, shows, write_candidate
from dplcli.verify.ddmin import minimise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.pipeline.rules import RuleSource
    from dplcli.verify import Settings as VerifySettings
    from dplcli.verify.bisect_result import Cause
    from dplcli.verify.exhibit import Cutting, Specimen

_ROUNDS = 4
README = "README.md"


def check_folder(folder: Path) -> None:
    """Refuse, before any work is done, a folder that reproducers cannot be written to.

    Raises:
        UsageError: It holds something, is a file, or cannot be made.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"-o {folder}: is not a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"-o {folder}: is not empty, so it is kept", hint="name a new folder")
    if not folder.resolve().parent.is_dir():
        raise UsageError(f"-o {folder}: there is no folder {str(folder.resolve().parent)!r}")


class RuleExhibit:
    """Writes reproducers of faults of rules, all of one model.

    Args:
        model_path: The model.
        source: The rules.
        kind: ``rewrite`` or ``partition``.
        settings: How models are compared.
    """

    def __init__(
        self,
        model_path: Path,
        source: RuleSource,
        kind: str,
        settings: VerifySettings,
    ) -> None:
        """Find inputs that the model runs on.

        Raises:
            VerificationError: There are none.
        """
        from dplcli.verify.capturing import feed  # noqa: PLC0415  # onnxruntime

        self.source = source
        self.kind = kind
        self.label = model_path.name
        self.settings = settings
        self.fed = feed(model_path, settings)

    def write(self, cause: Cause, folder: Path) -> Cause:
        """Write the reproducer of *cause* to *folder*, which does not exist yet.

        Returns:
            The cause with the folder; without one if the fault shows in no part of the model, nor
            in the whole.
        """
        from dplcli.verify.exhibit import Specimen  # noqa: PLC0415  # onnxruntime

        specimen = Specimen(self.fed, cause.trial.seed)
        with temporary_folder(folder.resolve().parent) as draft:
            spec = self._spec(cause, draft)
            levels = cause.trial.levels or self.settings.levels
            specs = (spec.model_copy(update={"level": level}) for level in levels)
            drafts = (self._cut_out(cause, specimen, draft, spec) for spec in specs)
            found = next((item for item in drafts if item is not None), None)
            if found is None:
                return replace(cause, is_hidden=True)
            spec, cutting = found
            (draft / FILE).write_text(spec.to_text(), encoding="utf-8")
            write_candidate(draft, spec)
            nodes = (cutting.nodes, len(specimen.wiring.nodes))
            text = _readme(cause, spec, self.label, nodes)
            (draft / README).write_text(text, encoding="utf-8")
            put_folder(draft, folder)
        return replace(cause, reproducer=folder, nodes=nodes)

    def _spec(self, cause: Cause, folder: Path) -> Reproducer:
        """Copy the rules, and say what is to be done; what is fed is not known yet."""
        libraries = []
        for number, path in enumerate(self.settings.custom_ops):
            libraries.append(f"libraries/{number}/{path.name}")
            (folder / libraries[-1]).parent.mkdir(parents=True)
            shutil.copyfile(path, folder / libraries[-1])
        return Reproducer.model_validate(
            {
                "schema": "dpl.reproducer/1",
                "kind": self.kind,
                "catalogues": copy_rules(self.source, folder),
                "allow_code": self.source.allow_code,
                "steps": [
                    StepItem(rule=s.rule, scope=s.scope, op_type=s.op_type, output=s.output)
                    for s in cause.steps
                ],
                "inputs": [],
                "outputs": [],
                "level": self.settings.levels[0],
                "coarsest": self.fed.facts.coarsest,
                "custom_ops": libraries,
                "needs_custom_ops": bool(self.fed.source.libraries),
            }
        )

    def _cut_out(
        self, cause: Cause, specimen: Specimen, folder: Path, spec: Reproducer
    ) -> tuple[Reproducer, Cutting] | None:
        """Write the smallest part of the model that shows it, and return what is to be fed."""

        def show(nodes: set[int]) -> tuple[Reproducer, Cutting] | None:
            shutil.rmtree(folder / "test_data_set_0", ignore_errors=True)
            cutting = specimen.write(folder, ORIGINAL, nodes)
            if cutting is None:
                return None
            full = _with_data(spec, cutting, self.settings)
            return (full, cutting) if shows(folder, full) else None

        covered = {name for step in cause.steps for name in step.covered}
        core: set[int] = set()
        for nodes in specimen.growing(covered, _ROUNDS):
            core = core or nodes
            if show(nodes) is None:
                continue
            extra = sorted(nodes - core)
            if not extra:
                return show(nodes)

            def needs(part: Sequence[int], kept: set[int] = core) -> Sequence[int] | None:
                return part if show(kept | set(part)) else None

            return show(core | set(minimise(extra, needs)))
        return None


def tolerance_of(settings: VerifySettings, outputs: Sequence[str]) -> dict[str, float | None]:
    """Return what somebody chose for the outputs of a reproducer: for the only one, or for all."""
    own = settings.tolerances.get(outputs[0]) if len(outputs) == 1 else None
    chosen = {"rtol": settings.rtol, "atol": settings.atol}
    given = {} if own is None else {"rtol": own.rtol, "atol": own.atol}
    return chosen | {name: value for name, value in given.items() if value is not None}


def _with_data(spec: Reproducer, cutting: Cutting, settings: VerifySettings) -> Reproducer:
    inputs = [
        InputItem(file=file, original=name, candidate=name, is_sequence=is_sequence)
        for file, name, is_sequence in cutting.inputs
    ]
    outputs = [(name, name) for name in cutting.outputs]
    chosen = tolerance_of(settings, cutting.outputs)
    return spec.model_copy(update={"inputs": inputs, "outputs": outputs, **chosen})


def _readme(cause: Cause, spec: Reproducer, label: str, nodes: tuple[int, int]) -> str:
    allow = " --allow-code" if spec.needs_code else ""
    what = "Applying these rules" if spec.kind == "rewrite" else "Outlining these partitions"
    lines = [
        "# A fault, by itself",
        "",
        f"{what} to `{ORIGINAL}` gives a model that computes something else:",
        "",
        *(f"- {step.label}" for step in cause.culprits),
    ]
    if cause.needed:
        lines += ["", "They build on these, which are applied first:", ""]
        lines += [f"- {step.label}" for step in cause.needed]
    lines += [
        "",
        f"In `{label}`: {cause.trial.reason}.",
        "",
        (
            "Run it again from inside this folder; exit code 1: the fault is still there, 0: it is "
            "gone, 2: it could not be tried."
        ),
        "",
        f"    dpl bisect --reproduce .{allow}",
        "",
        f"- `{ORIGINAL}`: {nodes[0]:,} of the {nodes[1]:,} nodes of `{label}`.",
        "- `candidate.onnx`: what the rules made of it when this was written.",
        "- `test_data_set_0/`: what is fed, and what the original gives.",
        f"- `{FILE}`: what is applied where, and how the results are compared.",
    ]
    if any(name.startswith("rules/") for name in spec.catalogues):
        lines.append("- `rules/`: the rules, as they are applied when this is run: mend them here.")
    return "\n".join(lines) + "\n"
