"""What catalogues offer, whether it does what it says, and rules learned from examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from dplcli.errors import UsageError
from dplcli.files import encoded, write_new_file
from dplcli.keys import keys
from dplcli.outcomes.base import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from dplcli.language.replacement import RewriteRule
    from dplcli.language.rule import PatternRule
    from dplcli.outcomes.written import Delivery
    from dplcli.passes.learn_pattern import LearnedRule


@dataclass(frozen=True)
class LibraryState:
    """A library that runs partitions.

    Attributes:
        version: Its version; "" if there is none that can be used.
        path: Its file, as it was loaded.
        looked_for: The files that were tried, in order.
        problem: Why one that is there cannot be used: it is too old, or known to be faulty.
        features: What it uses of the CPU, of what some arithmetics need.
    """

    version: str
    path: str
    looked_for: tuple[str, ...]
    problem: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """What dpl runs on.

    Attributes:
        system: The operating system and the processor.
        providers: The execution providers of onnxruntime.
        is_isolated: Whether models run in processes of their own.
        missing: For each extra, the packages that it lacks.
        catalogs: The catalogues that can be named, and who offers them.
        libraries: The libraries that run partitions, by their names.
        problems: What is wrong, a sentence each.
    """

    system: str
    providers: tuple[str, ...]
    is_isolated: bool
    missing: Mapping[str, tuple[str, ...]]
    catalogs: Mapping[str, str]
    libraries: Mapping[str, LibraryState]
    problems: tuple[str, ...]


@keys(columns="catalogue=name from=origin target rules:count =doc:prose")
@dataclass(frozen=True)
class CatalogEntry:
    """A catalogue that can be named.

    Attributes:
        name: Its name.
        origin: "dpl", or the package that offers it.
        target: The target of its functions, or "".
        doc: What it is for; empty for one of a package, which is code and not run to find out.
        rules: How many rules it has; None if that is not known without running it.
    """

    name: str
    origin: str
    target: str = ""
    doc: str = ""
    rules: int | None = None


@dataclass(frozen=True)
class Trial:
    """One attempt at a rule.

    Attributes:
        rule: The rule.
        kind: "example" or "made up".
        place: Where the example is written, which variant of the pattern was made up, or how many
            graphs were.
        verdict: "passed", "failed", "not tried" (nothing could be made up), or "by example"
            (neither, but the rule has examples that it applies to: they are its trials). Those of
            an installed catalogue stayed in the sources of dpl, whose tests run them.
        reason: Why it failed or was not tried.
        graphs: How many graphs were made up that the rule applies to.
        counterexample: The smallest graph found on which the rule is wrong, as ONNX text; or "".
        tried: What the graphs had: opsets, types, ranks, forms of the pattern, attributes.
        behaviours: What the operators before and after may do, in words, and whether some graph
            showed it.
        notes: Where results differ, and why that is no fault.
    """

    rule: PatternRule | RewriteRule
    kind: Literal["example", "made up"]
    place: str
    verdict: Literal["passed", "failed", "not tried", "by example"]
    reason: str = ""
    graphs: int = 0
    counterexample: str = ""
    tried: tuple[str, ...] = ()
    behaviours: Mapping[str, bool] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """How many of the behaviours were seen, in words; "" if there are none."""
        count = len(self.behaviours)
        return f"{sum(self.behaviours.values())} of {count} behaviours" if count else ""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RulesOutcome(Outcome):
    """Rules that were learned: as values, for ``patterns=``, and as the text of a catalogue.

    Attributes:
        yaml: The catalogue that holds them; "" if there are none.
    """

    yaml: str = ""

    @property
    def rules(self) -> list[PatternRule | RewriteRule]:
        """The rules."""
        raise NotImplementedError

    @property
    def ok(self) -> bool:
        """Whether there are any."""
        return bool(self.rules)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the catalogue to a new file.

        Raises:
            UsageError: There is such a file, or it cannot be written.
        """
        try:
            write_new_file(Path(path), encoded(self.yaml))
        except FileExistsError as error:
            raise UsageError(f"{path}: exists", hint="choose another name") from error
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from error

    def __str__(self) -> str:
        return self.yaml

    def _repr_html_(self) -> str:

        return f"<pre>{escape(self.yaml)}</pre>"


@keys("model=label rules=all_learned notes=learned.notes", "dpl.learn/1")
@dataclass(frozen=True, eq=False, repr=False)
class LearnOutcome(RulesOutcome):
    """Rules learned from nodes of a model, or from two models.

    Attributes:
        label: The model's file name.
        learned: The rule, and what was generalised.
    """

    label: str
    learned: LearnedRule

    @property
    def rules(self) -> list[PatternRule | RewriteRule]:
        """The rule."""
        return [self.learned.rule]

    @property
    def all_learned(self) -> tuple[LearnedRule, ...]:
        """The rules."""
        return (self.learned,)


@keys(
    "*=rule places trial.verdict=trial.verdict trial.reason=trial.reason trial.graphs=trial.graphs"
)
@dataclass(frozen=True)
class LearnedRewrite:
    """A rule that replaces, learned from places at which two models differ.

    Attributes:
        rule: The rule.
        places: How many places it was learned from.
        trial: What became of it on graphs made up for it.
    """

    rule: RewriteRule
    places: int
    trial: Trial


class LeftPlaces(NamedTuple):
    """Changed places that no rule explains.

    Attributes:
        what: What they are, and why no rule explains them.
        places: How many there are.
        counterexample: The graph on which the rule learned from them is wrong; "" for none.
    """

    what: str
    places: int
    counterexample: str = ""


@keys(
    "model=before candidate=after rules=learned unproved explained left beyond spent? *=checked "
    "verification=checked.verification not_run?",
    "dpl.learn/1",
)
@dataclass(frozen=True, eq=False, repr=False)
class RewritesOutcome(RulesOutcome):
    """What leads from one model to another.

    Attributes:
        before: The first model's file name.
        after: The second one's.
        learned: The rules, those of more nodes first.
        unproved: Rules that were neither proved nor refuted, and are commented out.
        explained: How many changed places they explain.
        left: The changed places that no rule explains: what they are and why, and how many.
        beyond: How many places the rules change that the second model has as the first.
        spent: The budget, if it was spent before all was looked at; None if it was not.
        delivery: Whether the first model computes the same when they are applied, or why that could
            not be asked; None if it was not asked.
    """

    before: str
    after: str
    learned: tuple[LearnedRewrite, ...]
    unproved: tuple[LearnedRewrite, ...]
    explained: int
    left: tuple[LeftPlaces, ...]
    beyond: int
    spent: int | None = None
    delivery: Delivery | str | None = None

    @property
    def rules(self) -> list[PatternRule | RewriteRule]:
        """The rules."""
        return [item.rule for item in self.learned]

    @property
    def checked(self) -> Delivery | None:
        """What the check said, if it ran."""
        return None if isinstance(self.delivery, str) else self.delivery

    @property
    def not_run(self) -> str:
        """Why that could not be asked, or ""."""
        return self.delivery if isinstance(self.delivery, str) else ""
