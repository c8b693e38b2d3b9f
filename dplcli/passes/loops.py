"""Tell rules that go on for ever from rules that take long."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from dplcli.errors import PassError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dplcli.dpl.draft import Draft
    from dplcli.dpl.match import Match
    from dplcli.ir import Model, Node, Value

    Form: TypeAlias = tuple[object, ...]

_GROWTH = 10
_FREE = 1000
"""A model may become ten times as large, and some; a rule may be applied as often as that."""

_PATIENCE = 4
"""A value may be replaced so often before its forms are compared."""

_DEPTH = 6
_SMALL = 64


class RewriteLimitError(PassError):
    """Rules were applied again and again without an end."""


class Birth(NamedTuple):
    """How a node came to be.

    Attributes:
        generation: Of how many applications it is the fruit, each of what the last one made.
        rule: The rule that made it.
        parent: The same of the youngest node that the rule matched, if a rule had made that.
    """

    generation: int
    rule: str
    parent: Birth | None


class LoopDetector:
    """Remembers what became of values that are replaced again and again.

    Two rules that undo each other bring a value back to a form it has had; a rule that feeds
    itself has descendants of more generations than the model has places for.
    """

    def __init__(self, model: Model, most: int | None = None) -> None:
        """Measure *model*; *most* is how often a rule may be applied."""
        self.model = model
        self.largest = _GROWTH * (_size(model) + _FREE)
        self.most = self.largest if most is None else most
        self.oldest = _size(model) + _inputs(model) + _FREE
        self._births: dict[Node, Birth] = {}
        self._replaced: dict[Value, int] = {}
        self._forms: dict[Value, dict[Form, str]] = {}

    def note(self, match: Match, draft: Draft) -> None:
        """Look at what *draft* is about to replace of *match*; an output may stay as it is.

        Raises:
            RewriteLimitError: The value has had this form before; names the rules between.
        """
        for value, new in zip(match.outputs, draft.outputs, strict=True):
            if new is value:
                continue
            count = self._replaced[value] = self._replaced.get(value, 0) + 1
            if count > _PATIENCE:
                self._compare(value, match.rule.qualified_name)

    def note_birth(self, match: Match, nodes: Iterable[Node]) -> None:
        """Remember that *nodes* were made from *match*.

        Raises:
            RewriteLimitError: They have too many forebears; names the rules that made those.
        """
        parent = self._youngest(match)
        generation = 1 if parent is None else parent.generation + 1
        birth = Birth(generation, match.rule.qualified_name, parent)
        for node in nodes:
            self._births[node] = birth
        if generation > self.oldest:
            self._refuse(birth, match)

    def _youngest(self, match: Match) -> Birth | None:
        youngest: Birth | None = None
        for node in match.nodes:
            birth = self._births.get(node)
            if birth is not None and (youngest is None or birth.generation > youngest.generation):
                youngest = birth
        return youngest

    def _refuse(self, birth: Birth | None, match: Match) -> NoReturn:
        names: dict[str, None] = {}
        while birth is not None:
            names[birth.rule] = None
            birth = birth.parent
        raise RewriteLimitError(
            f"{_named(names)} applied {self.oldest:,} times in a row to what came of it, "
            f"last at {match.root.label!r}",
            hint=_HINT,
        )

    def _compare(self, value: Value, rule: str) -> None:
        form = _form(value, _DEPTH)
        history = self._forms.setdefault(value, {})
        if form in history:
            names = list(history.values())[list(history).index(form) :]
            raise RewriteLimitError(_cycle(names, value), hint=_HINT)
        history[form] = rule

    def check(self, rule: str, count: int) -> None:
        """Refuse to apply a rule more often than a model of this size has places for it.

        Raises:
            RewriteLimitError: Names the rule.
        """
        if count > self.most:
            raise RewriteLimitError(
                f"the rule {rule} was applied {count:,} times and still matches", hint=_HINT
            )

    def check_size(self, rules: Iterable[str]) -> None:
        """Refuse to let *rules* make the model grow without an end.

        Raises:
            RewriteLimitError: It has become more than ten times as large.
        """
        size = _size(self.model)
        if size > self.largest:
            names = ", ".join(rules)
            raise RewriteLimitError(
                f"the rules {names} made the model grow to {size:,} nodes", hint=_HINT
            )


_HINT = "a rule matches what it or another rule makes; narrow its pattern, or say once: true"


def _named(rules: Iterable[str]) -> str:
    names = list(rules)
    return f"the rule {names[0]} was" if len(names) == 1 else f"the rules {', '.join(names)} were"


def _cycle(names: list[str], value: Value) -> str:
    if len(set(names)) == 1:
        return f"the rule {names[0]} feeds itself at {value.name!r}"
    return f"the rules {' -> '.join([*names, names[0]])} undo each other at {value.name!r}"


def _form(value: Value, depth: int) -> Form:
    """Describe how *value* is made, as far as passes have made it."""
    node = value.producer
    if node is None:
        tensor = value.constant
        if tensor is None or tensor.size > _SMALL or tensor.is_external:
            return ("value", value)
        return ("constant", tensor.dtype, tensor.shape, tensor.numpy().tobytes())
    if depth == 0 or (node.source is not None and not node.rewired and depth < _DEPTH):
        return ("value", value)
    attributes = tuple((name, repr(item)) for name, item in sorted(node.attributes.items()))
    inputs = tuple(None if item is None else _form(item, depth - 1) for item in node.inputs)
    return (node.qualified_op, value.index, attributes, inputs)


def _size(model: Model) -> int:
    return sum(graph.node_count for graph in model.graphs())


def _inputs(model: Model) -> int:
    return sum(len(node.inputs) for graph in model.graphs() for node in graph)
