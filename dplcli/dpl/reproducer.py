"""What a folder that shows one fault says of itself, in ``reproducer.json``.

``dpl bisect -o`` writes it, ``dpl bisect --reproduce`` runs it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dplcli.errors import UsageError

SCHEMA = "dpl.reproducer/1"
FILE = "reproducer.json"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StepItem(_Strict):
    """One application of a rule."""

    rule: str
    scope: str
    op_type: str
    output: str


class InputItem(_Strict):
    """One value that is fed.

    Attributes:
        file: Where it lies.
        original: The input of the original that it is for; None if it has none.
        candidate: The input of the candidate.
        is_sequence: Whether it is a sequence of tensors.
    """

    file: str
    original: str | None
    candidate: str | None
    is_sequence: bool = False


class Reproducer(_Strict):
    """What ``reproducer.json`` says.

    Attributes:
        kind: ``rewrite`` or ``partition``: rules make the candidate; ``models``: it is there.
        catalogues: Paths in the folder, or names of shipped ones.
        allow_code: Whether the catalogues may import Python functions.
        steps: What is applied to the original, in order.
        inputs: What is fed.
        outputs: Which output of the original each output of the candidate is compared with.
        level: Optimisation level at which the candidate runs.
        coarsest: The coarsest float type that the original computes with.
        rtol: Relative tolerance; None for the derived one.
        atol: Absolute tolerance; None for the derived one.
        custom_ops: Libraries of custom operators, in the folder.
        needs_custom_ops: Whether the original needs them, too.
    """

    schema_: Annotated[Literal["dpl.reproducer/1"], Field(alias="schema")]
    kind: Literal["rewrite", "partition", "models"]
    catalogues: list[str] = []
    allow_code: bool = False
    steps: list[StepItem] = []
    inputs: list[InputItem]
    outputs: list[tuple[str, str]] = Field(strict=False)
    level: Literal["disable", "basic", "extended", "all"]
    coarsest: Literal["", "float64", "float32", "float16", "bfloat16"]
    rtol: float | None = None
    atol: float | None = None
    custom_ops: list[str] = []
    needs_custom_ops: bool = False

    @property
    def needs_code(self) -> bool:
        """Whether running it runs Python code of its rules."""
        return self.allow_code or any(name.endswith(".py") for name in self.catalogues)

    def to_text(self) -> str:
        """Return the file's text."""
        data = self.model_dump(by_alias=True, mode="json")
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def read_reproducer(folder: Path) -> Reproducer:
    """Read what a folder is to show.

    Raises:
        UsageError: It is no reproducer.
    """
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"dpl bisect -o writes folders with a {FILE}"
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{folder / FILE}: cannot be read: {why}", hint=hint) from error
    try:
        found = Reproducer.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{folder / FILE}: {where}: {first['msg']}") from error
    for name in (*(item.file for item in found.inputs), *found.catalogues, *found.custom_ops):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UsageError(f"{folder / FILE}: {name!r} is outside of the folder")
    return found
