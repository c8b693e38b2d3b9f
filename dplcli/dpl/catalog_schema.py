"""What a catalogue file may hold; the JSON Schema for editors is made from it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from dplcli.dpl.rule import RESERVED_METADATA, ConstantsPolicy, EscapePolicy, OrderPolicy


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")  # noqa: TRY004  # pydantic wants a ValueError
    return value


def _foreign(domain: str) -> str:
    if domain == "ai" or domain.startswith("ai.onnx"):
        raise ValueError("the standard's own domains cannot be a target")
    return domain


def _unreserved(metadata: object) -> object:
    taken = RESERVED_METADATA & set(metadata) if isinstance(metadata, dict) else set()
    if taken:
        raise ValueError(f"{min(taken)!r} is written by dpl itself")
    return metadata


def _in_order(opsets: list[int]) -> list[int]:
    if opsets != sorted(opsets):
        raise ValueError("the first opset comes first")
    return opsets


Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Domain = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"),
    AfterValidator(_foreign),
]
FunctionReference = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")]
TransformReference = Annotated[
    str, Field(pattern=r"^[A-Za-z_]\w*((\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)?$")
]
_Opset = Annotated[int, Field(ge=1, le=1000), BeforeValidator(_no_truth_value)]
Opsets = Annotated[list[_Opset], Field(min_length=1, max_length=2), AfterValidator(_in_order)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ExampleEntry(_Strict):
    """A model, and what becomes of it."""

    before: str = Field(description="The model, as ONNX text; without a header opset 21.")
    after: str = Field(
        default="any", description='"any" (the rule does something), "unchanged", or ONNX text.'
    )


class _RuleEntry(_Strict):
    """What rules of both kinds say."""

    name: Identifier = Field(description="Unique among the rules of its kind.")
    doc: str = Field(default="", description="What it is, for a reader.")
    pattern: str = Field(description="What to find, in the pattern language.")
    where: list[str] = Field(
        default=[], description="Conditions over the names of the pattern; all must hold."
    )
    check: FunctionReference | None = Field(
        default=None,
        description="module:function that gets the match; runs only with --allow-code.",
    )
    opsets: Opsets | None = Field(
        default=None, description="First and, if there is one, last opset it holds for."
    )
    examples: list[ExampleEntry] = Field(default=[], description="Run by `dpl patterns test`.")


class PatternEntry(_RuleEntry):
    """One item of ``patterns``: a kind of subgraph to outline as a function."""

    constants: ConstantsPolicy | None = Field(
        default=None, description="Which constants go into the function's body."
    )
    escape: EscapePolicy = Field(
        default="refuse", description="What if something outside reads an inner value."
    )
    order: OrderPolicy = Field(
        default="outermost",
        description="outermost: consumers first; program: producers first, larger matches absorb.",
    )
    attrs: Annotated[dict[str, str], BeforeValidator(_unreserved)] = Field(
        default={}, description="Further metadata for the function."
    )


class RewriteEntry(_RuleEntry):
    """One item of ``rewrites``: a kind of subgraph to replace."""

    pattern: str = Field(
        default="op()(...)",
        description="What to find, in the pattern language; may be missing with some functions.",
    )
    replacement: str | None = Field(
        default=None, description="What takes its place, over the names of the pattern."
    )
    function: TransformReference | None = Field(
        default=None,
        description="Instead of a replacement: a function of dpl, by its name; or module:function, "
        "which runs only with --allow-code.",
    )
    once: bool = Field(default=False, description="Whether what it makes is left alone by it.")

    @model_validator(mode="after")
    def _one_of_two(self) -> RewriteEntry:
        if (self.replacement is None) == (self.function is None):
            raise ValueError("say either replacement or function")
        return self


class CatalogFile(_Strict):
    """A whole catalogue file, as written."""

    dpl: Annotated[Literal[1], BeforeValidator(_no_truth_value)] = Field(
        description="Version of this format."
    )
    target: Domain | None = Field(
        default=None, description="Domain of the functions that `patterns` make."
    )
    doc: str = Field(default="", description="What the catalogue is for.")
    constants: ConstantsPolicy = Field(
        default="auto", description="Which constants go into the functions' bodies, by default."
    )
    include: list[str] = Field(
        default=[], description="Other catalogues, relative to this file; their rules come first."
    )
    patterns: list[PatternEntry] = Field(default=[], description="In order of priority.")
    rewrites: list[RewriteEntry] = Field(default=[], description="In order of priority.")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a catalogue file."""
    schema = CatalogFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
