"""The documents that dpl writes as JSON, as types: ``dpl schema`` makes JSON Schemas of them.

A class is closed: a key that it does not have is a mistake, and the tests hold every document that
they write against it. A key with a default may be missing.
"""

from typing import Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field

from dplcli.catalog.plan import Reproducer
from dplcli.diff import OpsetChange
from dplcli.outcomes import CatalogEntry, LibraryState
from dplcli.verify.settings import InputChoice, Opinion, PartitionRun, Proof, Sight

Version: TypeAlias = str
Number: TypeAlias = float | Literal["inf", "-inf", "nan"]
Size: TypeAlias = int | str | None
Plain: TypeAlias = int | float | str | list[int] | list[float] | list[str]
Counts: TypeAlias = dict[str, int]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True, protected_namespaces=())


class _Document(_Closed):
    dpl_version: Version = Field(description="The version of dpl that wrote it.")


class _OfModel(_Document):
    model: str = Field(description="The model's file name.")


class _OfTwo(_OfModel):
    candidate: str = Field(description="The second model's file name.")


# Parts that several documents have.


class NodeId(_Closed):
    """A node. The name of its first output identifies it, as nodes may have no names."""

    op_type: str
    domain: str
    name: str
    output: str


class FunctionId(_Closed):
    """A function of a model."""

    domain: str
    name: str
    overload: str = ""


class TypedValue(_Closed):
    """A value and its type, as far as it is known."""

    name: str
    dtype: str | None
    shape: list[Size] | None


class Refused(_Closed):
    """A match that was not taken, and why."""

    rule: str
    root: NodeId
    stage: str = Field(description="Which test it failed: where, check, escape, overlap, …")
    reason: str
    at: str | NodeId | None = Field(description="The value or node concerned.")


class NumberEnds(_Closed):
    """A number before and after."""

    before: int
    after: int


class FiguresPart(_Closed):
    """How far two values are apart, in the worst case; null where a figure has no meaning."""

    dtype: str
    shape: list[int]
    max_abs: float | None
    max_rel: float | None
    rmse: float | None
    cosine: float | None
    max_ulp: int | None
    mismatches: int = Field(description="Elements outside the tolerance.")
    nan_mismatches: int
    worst_index: list[int] | None
    rtol: float
    atol: float
    ok: bool
    reason: str | None
    excuse: str
    derivation: str = Field(description="Where the tolerance comes from.")
    mean_abs: float | None
    mean_rel: float | None
    quantile_abs: float | None
    snr_db: float | None
    inf_mismatches: int
    ulp_histogram: list[int]
    worst_values: list[str] | None
    needed_rtol: float | None
    needed_atol: float | None
    steps: int | None
    sensitivity: float | None


class Output(FiguresPart):
    """One output at one level, for the worst seed."""

    name: str
    level: str
    baseline: str
    seed: int


class LayerItem(FiguresPart):
    """One value that both models compute."""

    original: str
    candidate: str
    op_type: str
    aligned_by: str


class LayersPart(_Closed):
    """The values inside two models, compared."""

    schema_: Literal["dpl.layers/1"] = Field(alias="schema")
    seed: int
    alone: list[int] = Field(description="Values of each model that have no partner.")
    first: str | None = Field(description="The first value that differs.")
    layers: list[LayerItem]


class KernelsPart(_Closed):
    """Where the partitions ran."""

    target: str
    library: str
    require: str
    allow_inexact: bool
    runs: int
    ran: int
    partitions: list[PartitionRun]


class RegionsPart(_Closed):
    """What the changed places give by themselves."""

    judged: int
    unchanged: int
    differing: list[str]
    exact: int
    unseen: list[str] = []
    changes: list[str] = []
    notes: list[str] = []
    sights: list[Sight] = []


class PowerPart(_Closed):
    """What the check notices."""

    blind_outputs: list[str]
    mutants: int = 0
    caught: int = 0
    missed: list[str] = []
    regions: str = ""


class CasePart(_Closed):
    """One set of inputs."""

    seed: int
    name: str


class Verification(_Closed):
    """The numerical check of a result."""

    schema_: Literal["dpl.verify/1"] = Field(alias="schema")
    equivalent: bool
    verdict: Literal["equivalent", "different", "inconclusive"]
    doubts: list[str]
    accepted: bool
    proof: Proof | None
    unproved: str
    regions: RegionsPart | None
    reasons: list[str]
    seeds: list[int]
    levels: list[str]
    inputs: list[InputChoice]
    outputs: list[Output]
    power: PowerPart
    refilled: int
    cases: list[CasePart]
    third_opinion: list[Opinion]
    warnings: list[str]
    kernels: KernelsPart | None = None


class VerifyDocument(Verification, _OfTwo):
    """Whether two models compute the same."""

    layers: LayersPart | None = None


class _Checked(_Closed):
    objection: str = Field(description="What onnx.checker says against the result.")
    verification: Verification | None
    stripped: Counts = {}
    external_data: int = Field(
        default=0, description="Bytes of external data that were put into a file of its own."
    )
    fault: str = Field(default="", description="What onnx says against the model itself.")


# What matches, and what became of it.


class MatchItem(_Closed):
    """A match."""

    rule: str
    scope: str = Field(description="The graph: main, or the path to a body or function.")
    root: NodeId
    nodes: list[NodeId]
    bindings: dict[str, Any] = Field(description="What each capture is bound to.")


class _ByRule(_Closed):
    counts: Counts = Field(description="How often each rule was used, of those that were.")
    unmet: list[str]
    refused: list[Refused]
    hints: list[str] = []


class MatchDocument(_ByRule, _OfModel):
    """Where rules match."""

    schema_: Literal["dpl.match/1"] = Field(alias="schema")
    matches: list[MatchItem]


class _Called(_Closed):
    target: str
    function: FunctionId
    call: str = Field(description="Name of the node that calls it.")
    scope: str
    inputs: list[str]
    outputs: list[str]


class PartitionItem(_Called):
    """A match that became a call of a function."""

    rule: str
    nodes: list[NodeId]


class RegionItem(_Called):
    """Neighbouring partitions that became one call."""

    partitions: list[str]


class CoveredCount(_Closed):
    """How much of how much is inside functions."""

    covered: int
    of: int


class CoveredWork(CoveredCount):
    """How many operations are inside functions."""

    unknown: CoveredCount


class CoveredOp(CoveredCount):
    """How many nodes of an operator are inside functions."""

    flops: CoveredWork | None = None


class WorkPart(_Closed):
    """Nodes and what they cost."""

    nodes: int
    flops: int
    unknown: int


class LeftOutPart(WorkPart):
    """What no function takes, and why."""

    op: str
    rule: str
    stage: str
    reason: str


class SizesPart(_Closed):
    """The sizes with which costs were counted."""

    given: Counts
    chosen: Counts


class CoveragePart(_Closed):
    """How much of the model is inside functions."""

    nodes: int
    of: int
    by_op: dict[str, CoveredOp]
    flops: CoveredWork | None = None
    symbols: list[str] = []
    sizes: SizesPart | None = None
    by_target: dict[str, WorkPart] = {}
    left_out: list[LeftOutPart] = []


class PreparedPart(_Closed):
    """What was rewritten before matches were outlined."""

    counts: Counts
    rounds: int
    proof: str
    unproved: str
    nodes: NumberEnds


class DifferingPart(_Closed):
    """In what the calls of one kind of block differ."""

    attributes: list[str]
    weight_shapes: int


class FamilyItem(_Closed):
    """A kind of block that repeats."""

    rule: str
    function: FunctionId
    calls: int
    nodes: int
    nested: bool
    inputs: list[str]
    outputs: list[str]
    differing: DifferingPart
    first: list[NodeId]


class PartitionDocument(_ByRule, _Checked, _OfModel):
    """What was outlined as functions, by dpl partition and dpl repeat."""

    schema_: Literal["dpl.partition/1"] = Field(alias="schema")
    partitions: list[PartitionItem]
    coverage: CoveragePart
    regions: list[RegionItem] | None
    prepared: PreparedPart | None = None
    families: list[FamilyItem] = Field([], description="Of dpl repeat.")


class ApplicationPart(_Closed):
    """One application of a rule."""

    id: int
    rule: str
    scope: str
    root: NodeId
    removed: list[NodeId]
    added: list[NodeId]


class BrokenPart(_Closed):
    """The first turn of a rule that broke the model."""

    rule: str
    round: int
    applications: list[int]
    reason: str


class ChangedNodes(NumberEnds):
    """How many nodes there were and are."""

    by_op: dict[str, NumberEnds]


class RewriteDocument(_ByRule, _Checked, _OfModel):
    """What was replaced, by dpl rewrite and dpl apply."""

    schema_: Literal["dpl.rewrite/1"] = Field(alias="schema")
    applications: list[ApplicationPart]
    rounds: int
    missing: list[str] = Field(description="Entries of the plan that do not fit.")
    broken: BrokenPart | None
    nodes: ChangedNodes
    bytes_: NumberEnds = Field(alias="bytes")
    growth: str


class AppliedEvent(ApplicationPart):
    """A rule was applied."""

    event: Literal["applied"]


class RefusedEvent(_Closed):
    """A rule was refused."""

    event: Literal["refused"]
    scope: str
    root: NodeId
    stage: str
    reason: str


class TurnPart(_Closed):
    """One rule in one round."""

    round: int
    rule: str
    candidates: int
    applied: int
    events: list[AppliedEvent | RefusedEvent]


class TraceDocument(_OfModel):
    """What a rewrite did turn by turn, for --trace-json."""

    schema_: Literal["dpl.trace/1"] = Field(alias="schema")
    turns: list[TurnPart]


class InlinedItem(_Closed):
    """A call that was replaced."""

    function: FunctionId
    call: NodeId
    scope: str
    nodes: list[NodeId]
    restored: bool


class KeptCall(_Closed):
    """A call that stays, and why."""

    function: FunctionId
    call: NodeId
    scope: str
    reason: str


class InlineDocument(_Checked, _OfModel):
    """Which functions were put in the place of their calls."""

    schema_: Literal["dpl.inline/1"] = Field(alias="schema")
    counts: Counts
    calls: list[InlinedItem]
    refused: list[KeptCall]
    removed: list[FunctionId]
    nodes: NumberEnds


class ExtractDocument(_OfModel):
    """A part that was cut out of a model."""

    schema_: Literal["dpl.extract/1"] = Field(alias="schema")
    inputs: list[str]
    outputs: list[str]
    weights: int
    operators: Counts
    data: int = Field(description="Bytes of external data.")
    notes: list[str]
    nodes: NumberEnds


# What a model is, and what it gives.


class NodeCounts(_Closed):
    """How many nodes there are."""

    total: int
    main: int
    by_op: Counts


class WeightCounts(_Closed):
    """How many initializers there are."""

    count: int
    elements: int
    external: int


class FunctionItem(FunctionId):
    """A function, and who calls it."""

    nodes: int
    calls: int
    composite: str


class InspectDocument(_OfModel):
    """What a model is made of."""

    schema_: Literal["dpl.inspect/1"] = Field(alias="schema")
    ir_version: int
    opsets: Counts
    inputs: list[TypedValue]
    outputs: list[TypedValue]
    nodes: NodeCounts
    initializers: WeightCounts
    overridable: list[TypedValue]
    functions: list[FunctionItem]
    notes: list[str]


class NodeItem(NodeId):
    """A node and what is around it."""

    scope: str
    inputs: list[TypedValue | None]
    outputs: list[TypedValue | None]
    attributes: dict[str, str]
    window: list[str]


class NodeDocument(_OfModel):
    """Nodes of a model, for dpl inspect --node."""

    schema_: Literal["dpl.node/1"] = Field(alias="schema")
    nodes: list[NodeItem]


class PortItem(_Closed):
    """An input or output of a function."""

    name: str
    dtypes: list[str]
    ranks: list[int]
    unknown: int
    constant: bool | None
    values: list[Plain]
    distinct: int


class ContractAttribute(_Closed):
    """An attribute of a function."""

    name: str
    kind: str
    node: int
    reads: str
    given: bool
    values: list[Plain]
    distinct: int
    default: Plain | None


class BodyNodeItem(_Closed):
    """A node in the body of a function."""

    op_type: str
    domain: str
    inputs: list[str]
    outputs: list[str]
    references: dict[str, str]
    attributes: dict[str, str]


class PartsItem(_Closed):
    """What sets a function off from others of its rule."""

    operators: list[str]
    inputs: list[str]


class ContractItem(_Closed):
    """What a kernel for a function is given and has to return."""

    domain: str
    name: str
    rule: str
    target: str
    doc: str
    calls: int | None
    opsets: Counts
    inputs: list[PortItem]
    attributes: list[ContractAttribute]
    outputs: list[PortItem]
    body: list[BodyNodeItem]
    parts: PartsItem
    conditions: list[str]
    variations: list[str]


class ContractDocument(_Document):
    """The functions of a model, or of catalogues, for whoever writes kernels."""

    schema_: Literal["dpl.contract/1"] = Field(alias="schema")
    of: Literal["model", "catalogue"]
    model: str = ""
    catalogue: str = ""
    functions: list[ContractItem]
    notes: dict[str, str]


class ArrayItem(_Closed):
    """An array that went in or came out."""

    name: str
    dtype: str
    shape: list[int]
    min: float | None
    max: float | None
    mean: float | None


class RunDocument(_OfModel):
    """What a model gave."""

    schema_: Literal["dpl.run/1"] = Field(alias="schema")
    fed: str
    inputs: list[ArrayItem]
    level: str
    outputs: list[ArrayItem]
    kernels: KernelsPart | None


class SpreadPart(_Closed):
    """A time in seconds, or a ratio: the middle of the rounds, and the middle half of them."""

    median: float
    quartiles: list[float]


class RoundsPart(_Closed):
    """The seconds of each round."""

    cpu: list[float]
    wall: list[float]


class BenchSideItem(_Closed):
    """One of two models, in the engine that ran it."""

    model: str
    engine: str
    cpu: SpreadPart
    wall: SpreadPart
    rounds: RoundsPart


class RatiosPart(_Closed):
    """How many times as long the second takes."""

    cpu: SpreadPart
    wall: SpreadPart


class PartitionTimeItem(_Closed):
    """How long a partition ran on a library."""

    call: str
    milliseconds: float
    reorders: float


class BenchDocument(_OfTwo):
    """How long two models take, for dpl bench."""

    schema_: Literal["dpl.bench/1"] = Field(alias="schema")
    models: list[BenchSideItem]
    ratios: RatiosPart
    quicker: Literal["first", "second"] | None
    fed: str
    level: str
    threads: int
    kernels: KernelsPart | None
    times: list[PartitionTimeItem]


class PlannedPartition(_Closed):
    """A partition, and whether a plan has it."""

    call: str
    function: str
    library: str = Field(description="The library that runs it; empty if it is not in the plan.")
    why: str = Field(description="Why it is not in the plan.")


class KernelsDocument(_OfModel):
    """Which partitions a plan of kernels takes, for dpl kernels plan."""

    schema_: Literal["dpl.kernels/1"] = Field(alias="schema")
    planned: int
    partitions: list[PlannedPartition]


class SheetItem(_Closed):
    """A graph as it is drawn."""

    title: str
    root: int
    inputs: list[Any]
    outputs: list[Any]
    given: list[Any]


class ViewDocument(_OfModel):
    """What the page of dpl view draws; rows refer to each other by their numbers."""

    schema_: Literal["dpl.view/1"] = Field(alias="schema")
    title: str
    kinds: list[str]
    nodes: list[list[Any]]
    boxes: list[list[Any]]
    sheets: list[SheetItem]
    values: list[list[Any]]
    ops: list[list[Any]]
    consts: list[Any]
    types: list[str]
    notes: list[str]
    open: list[str]


# In what two models differ, and what makes them.


class RemarkItem(_Closed):
    """A difference that changes nothing that is computed."""

    facet: str
    where: str
    before: str
    after: str


class FunctionChangeItem(_Closed):
    """A function that differs."""

    what: Literal["added", "removed", "renamed", "redeclared"]
    before: FunctionId | None
    after: FunctionId | None


class TextEnds(_Closed):
    """A text before and after."""

    before: str
    after: str


class DeclaredValue(_Closed):
    """A value and its type as the file states it."""

    name: str
    type: str | None


class SignatureItem(_Closed):
    """An input or output that differs."""

    side: Literal["input", "output"]
    what: Literal["added", "removed", "renamed", "moved", "retyped", "rewired"]
    before: DeclaredValue | None
    after: DeclaredValue | None


class AttributeItem(_Closed):
    """An attribute that differs."""

    name: str
    before: Plain | list[Any] | None
    after: Plain | list[Any] | None


class InputItem(_Closed):
    """An operand that differs."""

    slot: int
    before: str | None
    after: str | None


class ChangedNode(_Closed):
    """A node that both models have, but different."""

    before: NodeId
    after: NodeId
    attributes: list[AttributeItem]
    inputs: list[InputItem]
    outputs: list[int]


class DistanceItem(_Closed):
    """How far two weights are apart."""

    changed: int
    size: int
    max_abs: Number | None
    max_rel: Number | None


class WeightItem(_Closed):
    """A weight that differs."""

    before: DeclaredValue
    after: DeclaredValue
    distance: DistanceItem | None


class PairedNodes(NumberEnds):
    """How many nodes there are, and how many have a partner."""

    paired: int


class GraphItem(_Closed):
    """The differences of one graph."""

    scope: TextEnds
    nodes: PairedNodes
    signature: list[SignatureItem]
    removed: list[NodeId]
    added: list[NodeId]
    changed: list[ChangedNode]
    weights: list[WeightItem]


class DiffDocument(_OfTwo):
    """In what two models differ."""

    schema_: Literal["dpl.diff/1"] = Field(alias="schema")
    equal: bool
    ignored: list[str]
    counts: Counts
    not_counted: Counts
    opsets: list[OpsetChange]
    functions: list[FunctionChangeItem]
    graphs: list[GraphItem]
    remarks: list[RemarkItem]


class RootPart(_Closed):
    """The node that a match is rooted in."""

    op_type: str
    output: str


class StepPart(_Closed):
    """An application of a rule, or a partition."""

    rule: str
    scope: str
    root: RootPart
    change: str


class CauseItem(_Closed):
    """A smallest set of steps that breaks the model."""

    culprits: list[StepPart]
    needed: list[StepPart]
    reason: str
    levels: list[str]
    seed: int
    third_opinion: list[Opinion]
    alike: int
    reproducer: str | None
    nodes: list[int]


class PlaceNodes(_Closed):
    """The nodes of both models that compute a value."""

    original: list[str]
    candidate: list[str]


class PlaceItem(_Closed):
    """Where two models part."""

    original: str
    candidate: str
    aligned_by: str
    reason: str
    level: str
    nodes: PlaceNodes
    reproducer: str | None


class BisectDocument(_OfModel):
    """What breaks a model: steps of rules, or, over nodes, a place in two models."""

    schema_: Literal["dpl.bisect/1"] = Field(alias="schema")
    over: Literal["rewrite", "partition", "nodes"]
    equivalent: bool
    applications: int = 0
    trials: int = 0
    complete: bool = True
    causes: list[CauseItem] = []
    unjudged: list[StepPart] = []
    candidate: str = ""
    verdict: str = ""
    remark: str = ""
    place: PlaceItem | None = None
    layers: LayersPart | None = None
    verification: Verification | None = None


class ReproducedDocument(_OfModel):
    """What running a reproducer showed."""

    schema_: Literal["dpl.reproduced/1"] = Field(alias="schema")
    equivalent: bool
    applies: bool
    objection: str
    verification: Verification | None


# Catalogues and rules.


class RuleItem(_Closed):
    """A rule."""

    name: str
    origin: str
    for_each: dict[str, Any]
    doc: str
    pattern: str
    where: list[str]
    opsets: list[int | None]
    examples: int
    kind: Literal["pattern", "rewrite"]
    replacement: str = ""
    target: str = ""
    constants: str = ""
    escape: str = ""
    order: str = ""
    attrs: dict[str, Any] = {}


class PatternsListDocument(_Document):
    """The catalogues that can be named."""

    schema_: Literal["dpl.patterns.list/1"] = Field(alias="schema")
    catalogs: list[CatalogEntry]


class PatternsShowDocument(_Document):
    """Rules with their patterns and conditions."""

    schema_: Literal["dpl.patterns.show/1"] = Field(alias="schema")
    rules: list[RuleItem]


class ProblemItem(_Closed):
    """A mistake in a catalogue."""

    severity: Literal["error", "warning"]
    rule: str
    place: str
    message: str


class PatternsCheckDocument(_Document):
    """Mistakes in catalogues."""

    schema_: Literal["dpl.patterns.check/1"] = Field(alias="schema")
    errors: int
    problems: list[ProblemItem]


class TrialItem(_Closed):
    """One attempt at a rule."""

    rule: str
    kind: Literal["example", "made up"]
    place: str
    verdict: Literal["passed", "failed", "not tried", "by example"]
    reason: str
    graphs: int
    counterexample: str


class PatternsTestDocument(_Document):
    """What became of rules on examples and made-up graphs."""

    schema_: Literal["dpl.patterns.test/1"] = Field(alias="schema")
    failed: int
    not_tried: int
    trials: list[TrialItem]


class LearnTrial(_Closed):
    """What became of a learned rule on graphs made up for it."""

    verdict: str
    reason: str
    graphs: int
    counterexample: str


class LearnedItem(RuleItem):
    """A rule that was learned."""

    matches: int = 0
    places: int = 0
    trial: LearnTrial | None = None


class LeftPlace(_Closed):
    """Changed places that no rule explains."""

    what: str
    places: int


class LearnDocument(_OfModel):
    """Rules learned from nodes of a model, or from two models."""

    schema_: Literal["dpl.learn/1"] = Field(alias="schema")
    rules: list[LearnedItem]
    notes: list[str] = []
    candidate: str = ""
    explained: int = 0
    left: list[LeftPlace] = []
    beyond: int = 0
    objection: str = ""
    verification: Verification | None = None
    stripped: Counts = {}
    not_run: str = ""


class TreeLine(_Closed):
    """A part of a pattern, and how far it got."""

    depth: int
    pattern: str
    place: str
    status: Literal["matched", "failed", "not reached"]
    found: str


class FailedPart(_Closed):
    """Where an attempt at a match ended."""

    pattern: str
    place: str
    at: str | None
    expected: str
    found: str


class AttemptPart(_Closed):
    """An attempt at a match."""

    root: NodeId
    fits: bool
    given_up: bool
    matched: int
    of: int
    failed: FailedPart | None
    tree: list[TreeLine]


class FittingPart(_Closed):
    """The largest part of a pattern that fits somewhere."""

    pattern: str
    place: str
    nodes: int
    example: NodeId
    read_by: Counts


class ExplainedRule(_Closed):
    """What became of a rule."""

    rule: str
    origin: str
    candidates: int
    matched: int
    taken: int
    refused: Counts
    examples: list[Refused]
    missing_operators: list[str]
    opset_holds: bool
    nearest: AttemptPart | None
    part: FittingPart | None


class RootedMatch(_Closed):
    """A match by its rule and root."""

    rule: str
    root: NodeId


class NodeVerdict(_Closed):
    """What a rule says of a node."""

    rule: str
    node: NodeId
    scope: str
    verdict: str
    match: RootedMatch | None
    refusal: Refused | None
    trace: AttemptPart | None


class ExplainDocument(_OfModel):
    """Why rules match where they do, and not elsewhere."""

    schema_: Literal["dpl.explain/1"] = Field(alias="schema")
    rules: list[ExplainedRule]
    verdicts: list[NodeVerdict]


# Many models, and what dpl runs on.


class ManyCounts(_Closed):
    """How many models ended how."""

    ok: int
    no: int
    error: int


class RuleTotal(_Closed):
    """How often a rule was used in all models."""

    used: int
    refused: int


class AnswerItem(_Closed):
    """What was said of one of many models."""

    model: str
    status: Literal["ok", "no", "error"]
    verdict: str
    messages: list[str]
    result: dict[str, Any] | None = Field(
        description="The document of the command; of dpl build, steps with one each."
    )


class ModelsDocument(_Document):
    """What was said of many models, by any command and by dpl build."""

    schema_: Literal["dpl.models/1"] = Field(alias="schema")
    command: str
    models: ManyCounts
    rules: dict[str, RuleTotal]
    answers: list[AnswerItem]


class DoctorDocument(_Document):
    """What dpl runs on."""

    schema_: Literal["dpl.doctor/1"] = Field(alias="schema")
    versions: dict[str, str]
    system: str
    providers: list[str]
    isolated: bool
    missing: dict[str, list[str]]
    catalogs: dict[str, str]
    libraries: dict[str, LibraryState]
    problems: list[str]


_WRITTEN: tuple[type[BaseModel], ...] = (
    *(MatchDocument, ExplainDocument, PartitionDocument, RewriteDocument, TraceDocument),
    *(InlineDocument, ExtractDocument, VerifyDocument, DiffDocument),
    *(BisectDocument, ReproducedDocument, Reproducer, LearnDocument, InspectDocument),
    *(NodeDocument, ContractDocument, RunDocument, BenchDocument, KernelsDocument),
    *(ViewDocument, ModelsDocument),
    *(PatternsListDocument, PatternsShowDocument, PatternsCheckDocument, PatternsTestDocument),
    DoctorDocument,
)


def _named(document: type[BaseModel]) -> str:
    (name,) = get_args(document.model_fields["schema_"].annotation)
    return str(name).removeprefix("dpl.").partition("/")[0]


DOCUMENTS = {_named(document): document for document in _WRITTEN}
"""The documents by their names, without ``dpl.`` and the version."""


def summary(document: type[BaseModel]) -> str:
    """Say in one line what a document is."""
    return (document.__doc__ or "").strip().partition("\n")[0].replace("``", "")


def json_schema(document: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a document, as draft 2020-12."""
    schema = document.model_json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        if "properties" in part:
            part.setdefault("additionalProperties", False)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
