"""A picture of a model as a drawing that nothing needs to be run for: SVG, DOT and Mermaid.

What is open is drawn as a frame round what is in it. Graphviz and Mermaid lay out what they are
given; SVG is what Graphviz makes of DOT.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dplcli.errors import UsageError, shortened
from dplcli.escaping import one_line
from dplcli.report.picture import Box, summary, values_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dplcli.ir import Node, Value
    from dplcli.ir.types import Shape
    from dplcli.report.picture import Item, Opened, Picture, Sheet

COLOURS = {
    "elementwise": "#1a7f37",
    "broadcast": "#0b7a75",
    "injective": "#6e7781",
    "reduction": "#9a5b00",
    "out-fusable": "#0a58ca",
    "opaque": "#8250df",
    "other": "#bf3989",
    "function": "#57606a",
    "partition": "#c2410c",
    "region": "#a40e5e",
    "scope": "#7d8894",
    "repeat": "#7d8894",
    "chunk": "#7d8894",
    "shapes": "#7d8894",
    "body": "#7d8894",
    "value": "#1b1f24",
}
"""By class, the colour of frames; those of the page's light mode."""

_LONGEST = 36
_LONGEST_DIM = 12
_WAY_OUT = "draw less: a smaller --depth, or a part with --scope NAME"


@dataclass(eq=False)
class _Part:
    """Something that is drawn: a node or a group, closed or open, or a value at the edge.

    Attributes:
        lines: What is written on it.
        kind: The class that gives it its colour.
        inner: What is in it, if it is open.
        edges: The edges between what is in it, and its ports.
        ins: The ports at which values come in, by value.
        outs: The ports at which they leave.
    """

    lines: list[str]
    kind: str
    inner: list[_Part] | None = None
    edges: list[tuple[_Part, _Part]] = field(default_factory=list)
    ins: dict[Value, _Part] = field(default_factory=dict)
    outs: dict[Value, _Part] = field(default_factory=dict)

    @property
    def is_port(self) -> bool:
        """Whether it is a place at the frame of an open part, and nothing to see."""
        return self.kind == "port"

    def parts(self) -> Iterator[_Part]:
        """Iterate over what is in it at any depth, outer parts first."""
        for part in self.inner or ():
            yield part
            yield from part.parts()


@dataclass(frozen=True)
class _Drawer:
    """Makes the parts of a picture."""

    picture: Picture
    opened: Opened

    def scene(self) -> _Part:
        """Return everything that is drawn, as what is in one open part."""
        return self.sheet(self.picture.main, is_outermost=True)

    def sheet(self, sheet: Sheet, *, is_outermost: bool = False) -> _Part:
        """Return a graph as an open part; the outermost one's ports are to be seen."""
        part = self._box(sheet.root, sheet, is_seen=is_outermost)
        for value in (v for v in sheet.inputs if not self.picture.is_constant(v)):
            part.ins.setdefault(value, _end_part(value, "value" if is_outermost else "port"))
        if is_outermost:
            part.inner = [*part.ins.values(), *(part.inner or ()), *part.outs.values()]
            part.ins, part.outs = {}, {}
        return part

    def _box(self, box: Box, sheet: Sheet, *, is_seen: bool = False) -> _Part:
        part = _Part([box.label], box.kind, [])
        place: dict[Node, _Part] = {}
        for item in box.items:
            made = self._item(item, sheet)
            part.inner = [*(part.inner or ()), made]
            place |= dict.fromkeys(item.nodes() if isinstance(item, Box) else (item,), made)
        self._wire(part, place, sheet, "value" if is_seen else "port")
        return part

    def _item(self, item: Item, sheet: Sheet) -> _Part:
        if isinstance(item, Box):
            if item in self.opened.boxes:
                return self._box(item, sheet)
            count = f"{item.size:,}: "
            words = summary(item.nodes(), _LONGEST - len(count) - 3)
            return _Part([item.label, count + words], item.kind)
        kind = self.picture.kind(item)
        bodies = self.picture.bodies(item) if item in self.opened.nodes else []
        if not bodies:
            types = [value.known_type() for value in item.outputs if value is not None]
            shapes = [known.shape for known in types if known and known.shape is not None]
            sizes = ["\u00d7".join(_dims(shape)) or "scalar" for shape in shapes[:1]]
            return _Part([item.qualified_op, *sizes], kind)
        inner = [self.sheet(sheet) for _, sheet in bodies]
        if len(bodies) > 1:
            return _with_bodies(item, bodies, inner, kind)
        (part,), ((_, called),) = inner, bodies
        part.lines, part.kind = [item.qualified_op], kind
        shift = int(item.op_type == "Loop" and not item.domain)
        part.ins = _renamed(part.ins, called.inputs, item.inputs)
        part.outs = _renamed(part.outs, called.outputs[shift:], item.outputs)
        return part

    def _wire(self, part: _Part, place: Mapping[Node, _Part], sheet: Sheet, port: str) -> None:
        edges: dict[tuple[_Part, _Part], None] = {}
        for node, reader in place.items():
            for value in values_read(node):
                if self.picture.is_constant(value):
                    continue
                maker = place.get(value.producer) if value.producer is not None else None
                if maker is None:
                    maker = part.ins.setdefault(value, _end_part(value, port))
                if maker is not reader:
                    edges[maker.outs.get(value, maker), reader.ins.get(value, reader)] = None
            for made in node.outputs:
                if made is not None and _leaves(made, place, sheet):
                    end = part.outs.setdefault(made, _end_part(made, port))
                    edges[reader.outs.get(made, reader), end] = None
        part.edges = list(edges)


def _with_bodies(
    node: Node, bodies: list[tuple[str, Sheet]], inner: list[_Part], kind: str
) -> _Part:
    """Return a node with several bodies: what it reads goes into them, and comes out of each."""
    part = _Part([node.qualified_op], kind, inner)
    for (name, sheet), body in zip(bodies, inner, strict=True):
        body.lines, body.kind = [name], "body"
        for value, port in body.ins.items():
            outer = part.ins.setdefault(value, _Part(port.lines, "port"))
            part.edges.append((outer, port))
        for returned, made in zip(sheet.outputs, node.outputs, strict=False):
            if made is not None and returned in body.outs:
                outer = part.outs.setdefault(made, _Part([made.name], "port"))
                part.edges.append((body.outs[returned], outer))
    return part


def _leaves(value: Value, place: Mapping[Node, _Part], sheet: Sheet) -> bool:
    inside = sheet.graph
    return value in sheet.outputs or any(
        user.graph is inside and user not in place and user not in sheet.folded
        for user, _ in value.iter_uses()
    )


def _renamed(
    ports: dict[Value, _Part], inner: Sequence[Value], outer: Sequence[Value | None]
) -> dict[Value, _Part]:
    """Return the ports of a body by the values that the call has there."""
    names = {one: other for one, other in zip(inner, outer, strict=False) if other is not None}
    return {names.get(value, value): port for value, port in ports.items()}


def _end_part(value: Value, kind: str) -> _Part:
    """Return where a value comes in or leaves."""
    known = value.known_type()
    if known is None or known.shape is None:
        return _Part([value.name, *([] if known is None else [str(known)])], kind)
    return _Part([value.name, f"{known.dtype or '?'}[{','.join(_dims(known.shape))}]"], kind)


def _dims(shape: Shape) -> list[str]:
    """Return the dimensions, those with long names as dots."""
    names = ("?" if dim is None else str(dim) for dim in shape)
    return [name if len(name) <= _LONGEST_DIM else "…" for name in names]


def _words(part: _Part) -> list[str]:
    return [one_line(line, _LONGEST) or "(no name)" for line in part.lines]


def _joined(scene: _Part) -> list[tuple[_Part, _Part]]:
    """Return the edges between what is seen: those that meet at a port become one."""
    following: dict[_Part, list[_Part]] = defaultdict(list)
    for part in (scene, *scene.parts()):
        for start, end in part.edges:
            following[start].append(end)
    found: dict[tuple[_Part, _Part], None] = {}
    for start in [part for part in following if not part.is_port]:
        pending, seen = list(following[start]), set[_Part]()
        while pending:
            end = pending.pop(0)
            if not end.is_port:
                found[start, end] = None
            elif end not in seen:
                seen.add(end)
                pending += following.get(end, ())
    return list(found)


# DOT and Mermaid: both know groups, and lay out by themselves.


_MOST_MERMAID_EDGES = 500
_MOST_MERMAID_TEXT = 50_000
_SIGN = re.compile(r"[^\w .,:/\u00d7…?+-]")
"""What Mermaid or HTML may take for a sign of theirs."""


def dot(picture: Picture, opened: Opened) -> str:
    """Return a graph for Graphviz."""
    scene = _Drawer(picture, opened).scene()
    names = {part: f"p{number}" for number, part in enumerate(scene.parts())}
    lines = [
        f"// drawn by dpl: {one_line(picture.label)}",
        "digraph model {",
        '  graph [fontname="Helvetica", compound=true];',
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11];',
        '  edge [color="#7d8894", arrowsize=0.7];',
    ]

    def begin(part: _Part) -> list[str]:
        colour, fill = COLOURS[part.kind], _tinted(part.kind)
        words = (word.replace("\\", "\\\\").replace('"', '\\"') for word in _words(part))
        label = "\\n".join(words)
        if part.inner is None:
            return [f'{names[part]} [label="{label}", color="{colour}", fillcolor="{fill}"];']
        look = f'  label="{label}"; color="{colour}"; style=rounded;'
        return [f"subgraph cluster_{names[part]} {{", look]

    lines += _nested(scene, begin, "}")
    lines += [f"  {names[start]} -> {names[end]};" for start, end in _drawable(scene, names)]
    return "\n".join([*lines, "}", ""])


def _nested(part: _Part, begin: Callable[[_Part], list[str]], end: str) -> Iterator[str]:
    """Yield the lines of all that is in a part, indented: *end* is the last one of an open part."""
    for inner in part.inner or ():
        yield from (f"  {line}" for line in begin(inner))
        if inner.inner is not None:
            yield from (f"  {line}" for line in _nested(inner, begin, end))
            yield f"  {end}"


def _drawable(scene: _Part, names: Mapping[_Part, str]) -> list[tuple[_Part, _Part]]:
    """Return the edges, those of an open node with several bodies at the first of them."""
    return [(_leaf(a), _leaf(b)) for a, b in _joined(scene) if a in names and b in names]


def _leaf(part: _Part) -> _Part:
    while part.inner:
        part = part.inner[0]
    return part


def mermaid(picture: Picture, opened: Opened) -> str:
    """Return a flowchart for Mermaid, which Markdown on code hosts shows.

    Raises:
        UsageError: It has more edges, or more text, than Mermaid draws by default.
    """
    scene = _Drawer(picture, opened).scene()
    names = {part: f"p{number}" for number, part in enumerate(scene.parts())}
    lines = [f"%% drawn by dpl: {one_line(picture.label)}", "flowchart TD"]
    kinds: dict[str, list[str]] = defaultdict(list)

    def begin(part: _Part) -> list[str]:
        words = (_SIGN.sub(lambda sign: f"#{ord(sign[0])};", word) for word in _words(part))
        label = "<br/>".join(words)
        if part.inner is not None:
            return [f'subgraph {names[part]}["{label}"]']
        kinds[part.kind].append(names[part])
        opening, closing = ('(["', '"])') if part.kind == "value" else ('["', '"]')
        return [f"{names[part]}{opening}{label}{closing}"]

    lines += _nested(scene, begin, "end")
    edges = _drawable(scene, names)
    lines += [f"  {names[start]} --> {names[end]}" for start, end in edges]
    for number, (kind, parts) in enumerate(kinds.items()):
        fill, ink = _tinted(kind), "#1b1f24"
        lines.append(f"  classDef k{number} fill:{fill},stroke:{COLOURS[kind]},color:{ink}")
        lines.append(f"  class {','.join(parts)} k{number}")
    text = "\n".join([*lines, ""])
    if len(edges) > _MOST_MERMAID_EDGES or len(text) > _MOST_MERMAID_TEXT:
        raise UsageError(
            f"{len(edges):,} edges and {len(text):,} characters are more than Mermaid draws "
            f"({_MOST_MERMAID_EDGES} and {_MOST_MERMAID_TEXT:,})",
            hint=f"{_WAY_OUT}; or write .dot",
        )
    return text


def _tinted(kind: str) -> str:
    """Return the colour of a class, mixed with white."""
    colour = COLOURS[kind]
    if kind == "value":
        return "#ffffff"
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(255 + (part - 255) * 0.13):02x}" for part in parts)


# SVG: Graphviz lays it out.


def svg(picture: Picture, opened: Opened) -> str:
    """Return a drawing.

    Raises:
        UsageError: Graphviz is not installed, or cannot draw it.
    """
    program = shutil.which("dot")
    if program is None:
        raise UsageError(
            "Graphviz lays out drawings, and its program dot is not here",
            hint="install graphviz; or write .html, .dot or .mmd",
        )
    text = dot(picture, opened).encode("utf-8", "backslashreplace")
    done = subprocess.run([program, "-Tsvg"], input=text, capture_output=True, check=False)  # noqa: S603  # a fixed command
    if done.returncode:
        raise UsageError(f"dot cannot draw it: {shortened(done.stderr.decode(errors='replace'))}")
    head, mark, rest = done.stdout.decode().partition("<svg")
    return f"{head}<!-- drawn by dpl -->\n{mark}{rest}"
