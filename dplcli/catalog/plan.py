"""Files that dpl writes and reads again: plans of rewrites, and descriptions of reproducers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dplcli.catalog.yaml import YamlSource, explain_invalid, read_utf8
from dplcli.errors import CatalogError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Where: TypeAlias = tuple[str | int, ...]


# Plans: the applications of rules, in order, in a YAML file that can be edited.
#
# ``dpl rewrite --plan`` writes one, ``dpl apply`` applies it.


PLAN_SCHEMA = "dpl.plan/1"
FIRST_LINE = f"schema: {PLAN_SCHEMA}"

_SHA256 = re.compile("[0-9a-f]{64}")
_PLAIN = re.compile(r"(?:\.\./)*[A-Za-z_/][\w./-]*", re.ASCII)
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off"})
_LONGEST_COMMENT = 160


class PlanEntry(NamedTuple):
    """One application of a rule.

    Attributes:
        rule: The rule's name.
        scope: The graph, as :func:`dplcli.ir.model.scope_of` names it.
        output: Name of the first output of the node that the match is rooted in.
        op_type: That node's operator, ``com.microsoft.Gelu`` outside the standard domain.
        note: What it did when the plan was made; "" if that is not known.
        line: Its line in the file it was read from; 0 for none.
    """

    rule: str
    scope: str
    output: str
    op_type: str
    note: str = ""
    line: int = 0


class Plan(NamedTuple):
    """The applications of rules to one model.

    Attributes:
        model: The model's file name.
        sha256: The hash of that file.
        catalogues: The catalogues that have the rules: their names, or paths relative to the plan.
        entries: What to do, in order.
        opset: The opset that the model is raised to first; None if it is not raised.
        path: The file it was read from.
    """

    model: str
    sha256: str
    catalogues: tuple[str, ...]
    entries: tuple[PlanEntry, ...]
    opset: int | None = None
    path: Path | None = None

    @property
    def label(self) -> str:
        """The plan's file name."""
        return "the plan" if self.path is None else self.path.name

    def place(self, entry: PlanEntry) -> str:
        """Say where *entry* stands: ``plan.yaml:14``."""
        return f"{self.label}:{entry.line}"


def _hash(text: str) -> str:
    if not _SHA256.fullmatch(text):
        raise ValueError("expected 64 hexadecimal digits")
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class ModelItem(_Strict):
    """The model that a plan is for."""

    name: str = Field(description="Name of its file, for a reader.")
    sha256: Annotated[str, AfterValidator(_hash)] = Field(description="Hash of its file.")


class RootItem(_Strict):
    """The node that a match is rooted in."""

    output: str = Field(description="Name of its first output.")
    op_type: str = Field(description="Its operator; with the domain outside the standard one.")


class ApplicationItem(_Strict):
    """One application of a rule."""

    rule: str = Field(description="Name of the rule.")
    scope: str = Field(default="main", description="The graph: main, or as dpl reports name it.")
    root: RootItem = Field(description="The node that the match is rooted in.")


class PlanFile(_Strict):
    """A whole plan, as written."""

    schema_: Literal["dpl.plan/1"] = Field(alias="schema", description="Version of this format.")
    model: ModelItem = Field(description="The model that it is for.")
    opset: int | None = Field(
        default=None, ge=1, description="Opset that the model is raised to before."
    )
    catalogues: list[str] = Field(
        default=[], description="Names of catalogues, or paths relative to this file."
    )
    applications: list[ApplicationItem] = Field(description="What to do, in order.")


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        CatalogError: With file, line and column of what is wrong.
    """
    source = YamlSource(path, "plan", FIRST_LINE, read_utf8(path))
    data = source.data
    if "schema" not in data:
        raise CatalogError(
            f"{source.label}: is not a plan", hint=f"it starts with a line: {FIRST_LINE}"
        )
    try:
        file = PlanFile.model_validate(data)
    except ValidationError as error:
        raise explain_invalid(source, error, _keys_at) from error
    entries = tuple(
        PlanEntry(
            item.rule,
            item.scope,
            item.root.output,
            item.root.op_type,
            line=source.line(("applications", index)),
        )
        for index, item in enumerate(file.applications)
    )
    catalogues = tuple(file.catalogues)
    return Plan(file.model.name, file.model.sha256, catalogues, entries, file.opset, path)


def _keys_at(where: Where) -> Iterable[str]:
    if len(where) == 1:
        return ["schema" if name == "schema_" else name for name in PlanFile.model_fields]
    if where[0] == "model":
        return ModelItem.model_fields
    return RootItem.model_fields if "root" in where else ApplicationItem.model_fields


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan."""
    schema = PlanFile.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": PLAN_SCHEMA,
    }


_HEADER = """\
# What dpl rewrite does to {model}, one line for each application of a rule, in order.
#
# Edit it, then: dpl apply {plan} {model} -o OUTPUT
#   - Take a line out, and that application is left out.
#   - Put a line in, or elsewhere: the rule is applied once, when its turn comes, to what is rooted
#     in the node that then makes the output "output" in the graph "scope".
#   - A line that does not fit stops dpl apply with exit code 1; --skip-missing goes on.
# What stands behind a # is for you to read.
"""


def write_plan(plan: Plan, name: str) -> str:
    """Return the text of *plan*, to be written to a file called *name*."""
    lines = [
        _HEADER.format(model=_shown(plan.model), plan=_shown(name)).rstrip(),
        FIRST_LINE,
        "model:",
        f"  name: {_scalar(plan.model)}",
        f'  sha256: "{plan.sha256}"',
        *([] if plan.opset is None else [f"opset: {plan.opset}"]),
        *_list("catalogues", [_scalar(item) for item in plan.catalogues]),
        *_list("applications", [_entry(item) for item in plan.entries]),
    ]
    return "\n".join(lines) + "\n"


def _list(key: str, items: Sequence[str]) -> list[str]:
    return [f"{key}:", *(f"  - {item}" for item in items)] if items else [f"{key}: []"]


def _entry(entry: PlanEntry) -> str:
    root = f"{{output: {_scalar(entry.output)}, op_type: {_scalar(entry.op_type)}}}"
    text = f"{{rule: {_scalar(entry.rule)}, scope: {_scalar(entry.scope)}, root: {root}}}"
    return f"{text}  # {_shown(entry.note)}" if entry.note else text


def _scalar(text: str) -> str:
    """Write a string as YAML: without quotes only if it cannot be read as something else."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"


def _shown(text: str) -> str:
    """Shorten a text to a comment of one line."""
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _LONGEST_COMMENT else f"{text[: _LONGEST_COMMENT - 1]}…"


# Reproducers: ``reproducer.json`` describes a folder that shows one fault.
#
# ``dpl bisect -o`` writes it, ``dpl bisect --reproduce`` runs it.


REPRODUCER_SCHEMA = "dpl.reproducer/1"
REPRODUCER_FILE = "reproducer.json"


class _StrictAndFrozen(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class StepItem(_StrictAndFrozen):
    """One application of a rule."""

    rule: str
    scope: str
    op_type: str
    output: str


class ToleranceItem(_StrictAndFrozen):
    """Tolerances; None for the derived ones."""

    rtol: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    atol: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class ExecutionItem(_StrictAndFrozen):
    """How the models are run; the limits are for both, provider and options for the candidate.

    Attributes:
        provider: The execution provider.
        options: Options of onnxruntime's session.
        timeout: Seconds for each step; None for no limit.
        memory_limit: Megabytes for a model and its run; None for no limit.
    """

    provider: str
    options: list[tuple[str, str]] = Field(strict=False)
    timeout: float | None
    memory_limit: int | None


class Reproducer(_StrictAndFrozen):
    """What ``reproducer.json`` says.

    Attributes:
        kind: ``rewrite`` or ``partition``: rules make the candidate; ``models``: it is there.
        catalogues: Paths in the folder, or names of shipped ones.
        allow_code: Whether the catalogues may import Python functions.
        steps: What is applied to the original, in order.
        inputs: How many values are fed.
        level: Optimisation level at which the candidate runs.
        coarsest: The coarsest float type that the whole original computes with.
        rounds: Whether the whole original rounds to steps.
        tolerance: Tolerances of all float outputs.
        tolerances: Tolerances of single outputs.
        custom_ops: Libraries of custom operators, in the folder.
        execution: How the models are run.
    """

    schema_: Annotated[Literal["dpl.reproducer/1"], Field(alias="schema")]
    kind: Literal["rewrite", "partition", "models"]
    catalogues: list[str] = []
    allow_code: bool = False
    steps: list[StepItem] = []
    inputs: int = Field(ge=0)
    level: Literal["disable", "basic", "extended", "all"]
    coarsest: Literal["", "float64", "float32", "float16", "bfloat16"]
    rounds: bool
    tolerance: ToleranceItem = ToleranceItem()
    tolerances: dict[str, ToleranceItem] = {}
    custom_ops: list[str] = []
    execution: ExecutionItem

    @property
    def needs_code(self) -> bool:
        """Whether running it runs Python code of its rules."""
        return self.allow_code or any(name.endswith(".py") for name in self.catalogues)

    def to_text(self) -> str:
        """Return the file's text."""
        data = self.model_dump(by_alias=True, mode="json")
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def read_reproducer(folder: Path) -> Reproducer:
    """Read the description of a reproducer.

    Raises:
        UsageError: It is no reproducer.
    """
    try:
        text = (folder / REPRODUCER_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"dpl bisect -o writes folders with a {REPRODUCER_FILE}"
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{folder / REPRODUCER_FILE}: cannot be read: {why}", hint=hint) from error
    try:
        reproducer = Reproducer.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{folder / REPRODUCER_FILE}: {where}: {first['msg']}") from error
    for name in (*reproducer.catalogues, *reproducer.custom_ops):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UsageError(f"{folder / REPRODUCER_FILE}: {name!r} is outside of the folder")
    return reproducer
