"""A picture of a model as a drawing that nothing needs to be run for: SVG, DOT and Mermaid.

What is open is drawn as a frame round what is in it. SVG is laid out here, one open box after the
other as on the page (:mod:`dplcli.report.view`); Graphviz and Mermaid lay out what they are given.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dplcli.errors import UsageError
from dplcli.escaping import one_line
from dplcli.report import layers
from dplcli.report.layers import Band, Spot
from dplcli.report.page import templates
from dplcli.report.picture import Box, summary, values_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
            types = [value.inferred_type() for value in item.outputs if value is not None]
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
    """Return where a value comes in or leaves; hints name a port by the operator that makes it."""
    maker, known = value.producer, value.inferred_type()
    if kind != "value" and maker is not None:
        return _Part([maker.op_type], kind)
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
            hint=f"{_WAY_OUT}; or write .svg",
        )
    return text


def _tinted(kind: str, share: float = 0.13) -> str:
    """Return the colour of a class, mixed with white."""
    colour = COLOURS[kind]
    if kind == "value":
        return "#ffffff"
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in parts)


# SVG: open parts are laid out one by one, inner ones first, and drawn into each other.


_PAD = 14.0
_HEADER = 28.0
_HUB = 6
_BOLD, _PLAIN = 7.9, 6.6
"""How wide a letter is, about; there is no font here to ask."""


class _Layout(NamedTuple):
    """An open part that is laid out.

    Attributes:
        width: How wide it is.
        height: How high.
        spots: Where what is in it is.
        paths: The edges, as SVG has them, and whether each ends at something to see.
        hints: The words for those that are not drawn: above a part, where and which.
        ports: How far from the left each port is.
    """

    width: float
    height: float
    spots: dict[_Part, Spot]
    paths: list[tuple[str, bool]]
    hints: list[tuple[float, float, str]]
    ports: dict[_Part, float]


_Edge: TypeAlias = tuple[_Part, _Part, _Part, _Part]
"""The parts at both ends, and the ports of theirs, or again the parts."""


def svg(picture: Picture, opened: Opened) -> str:
    """Return a drawing."""
    scene = _Drawer(picture, opened).scene()
    layouts: dict[_Part, _Layout] = {}
    for part in reversed([scene, *scene.parts()]):
        if part.inner is not None:
            layouts[part] = _laid_out(part, layouts, header=0.0 if part is scene else _HEADER)
    pending: list[tuple[_Part, float, float]] = [(scene, 0.0, 0.0)]
    groups = []
    for part, left, top in pending:  # which grows
        layout = layouts[part]
        frames = [_frame(inner, spot) for inner, spot in layout.spots.items()]
        groups.append({"left": left, "top": top, "layout": layout, "frames": frames})
        opened_parts = [item for item in layout.spots.items() if item[0].inner is not None]
        pending += [(inner, left + spot.x, top + spot.y) for inner, spot in opened_parts]
    template = templates().get_template("drawing.svg.j2")
    return template.render(title=one_line(picture.label), whole=layouts[scene], groups=groups)


def _frame(part: _Part, spot: Spot) -> dict[str, object]:
    is_open = part.inner is not None
    return {
        "spot": spot,
        "radius": spot.height / 2 if part.kind == "value" else 9 if is_open else 5,
        "fill": _tinted(part.kind, 0.05 if is_open else 0.13),
        "colour": COLOURS[part.kind],
        "is_open": is_open,
        "words": _words(part)[: 1 if is_open else None],
    }


def _size(part: _Part, layouts: Mapping[_Part, _Layout]) -> tuple[float, float]:
    if part in layouts:
        return layouts[part].width, layouts[part].height
    if part.is_port:
        return 8.0, 0.0
    first, *rest = _words(part)
    widest = max([len(first) * _BOLD, *(len(word) * _PLAIN for word in rest)])
    return max(72.0, widest + 24), 30.0 + 16 * len(rest)


def _laid_out(part: _Part, layouts: Mapping[_Part, _Layout], *, header: float) -> _Layout:
    inner = part.inner or []
    holder = {port: each for each in inner for port in (*each.ins.values(), *each.outs.values())}
    edges = [(holder.get(a, a), holder.get(b, b), a, b) for a, b in part.edges]
    drawn, hinted = _without_hubs(edges)
    tops, bottoms = list(part.ins.values()), list(part.outs.values())
    sizes = {each: _size(each, layouts) for each in (*tops, *inner, *bottoms)}
    pairs = list(dict.fromkeys((start, end) for start, end, _, _ in drawn))
    graph = layers.laid_out(sizes, pairs, tops, bottoms)
    label = len(_words(part)[0]) * _BOLD + 2 * _PAD if header else 0.0
    width = max(graph.width + 2 * _PAD, label)
    left, above = (width - graph.width) / 2, header + _PAD
    height = graph.height + above + _PAD
    spots = {
        each: spot._replace(x=spot.x + left, y=spot.y + above) for each, spot in graph.spots.items()
    }
    for side, y in ((tops, header), (bottoms, height)):
        for port in side:
            spots[port] = spots[port]._replace(y=y)
    ports = {port: spots[port].x + spots[port].width / 2 for port in (*tops, *bottoms)}
    paths = [(f"M{ports[port]:.1f},0L{ports[port]:.1f},{header:.1f}", False) for port in tops]
    for start, end, first, last in drawn:
        route = [
            Band(band.x + left, band.top + above, band.bottom + above)
            for band in graph.routes[start, end]
        ]
        x0, x1 = (_end(*each, spots, layouts) for each in ((start, first), (end, last)))
        shape = _curve(route, spots[start], spots[end], x0, x1)
        paths.append((shape, not last.is_port))
    seen = {each: spots[each] for each in inner}
    return _Layout(width, height, seen, paths, _hints(hinted, spots), ports)


def _without_hubs(edges: list[_Edge]) -> tuple[list[_Edge], list[_Edge]]:
    """Leave out most edges of what very many read, as the page does; return both kinds."""
    beside: dict[_Part, list[_Edge]] = defaultdict(list)
    for edge in edges:
        beside[edge[0]].append(edge)
    hubs = {edge for group in beside.values() if len(group) > _HUB for edge in group[2:]}
    drawn = [edge for edge in edges if edge not in hubs]
    joined = {end for edge in drawn for end in edge[:2]}
    hinted = [edge for edge in edges if edge in hubs and edge[1] in joined]
    return [edge for edge in edges if edge not in set(hinted)], hinted


def _hints(hinted: Iterable[_Edge], spots: Mapping[_Part, Spot]) -> list[tuple[float, float, str]]:
    names: dict[_Part, list[str]] = defaultdict(list)
    for start, end, _, _ in hinted:
        names[end].append(_words(start)[0])
    texts = {
        end: f"↓ {one_line(first, 16)}" + (f" +{len(rest)}" if rest else "")
        for end, (first, *rest) in names.items()
    }
    return [(spots[end].x + 4, spots[end].y - 5, text) for end, text in texts.items()]


def _end(
    part: _Part, port: _Part, spots: Mapping[_Part, Spot], layouts: Mapping[_Part, _Layout]
) -> float:
    """Return where an edge ends: in the middle of a part, or at a port of an open one."""
    if part in layouts and port in layouts[part].ports:
        return spots[part].x + layouts[part].ports[port]
    return spots[part].x + spots[part].width / 2


def _curve(route: list[Band], start: Spot, end: Spot, x0: float, x1: float) -> str:
    """Return an edge that runs straight past each layer, and bends between them."""
    is_down = route[0].bottom <= route[-1].top
    points = [(band.x, y) for band in route for y in (band[1:] if is_down else band[:0:-1])]
    points[:2] = [(x0, start.y + start.height * is_down), (x0, points[1][1])]
    points[-2:] = [(x1, points[-2][1]), (x1, end.y + end.height * (not is_down))]
    shape = "M{:.1f},{:.1f}".format(*points[0])
    for (ax, ay), (bx, by) in pairwise(points):
        middle = (ay + by) / 2
        if abs(ax - bx) >= 0.5:  # noqa: PLR2004  # less cannot be seen
            shape += f"C{ax:.1f},{middle:.1f} {bx:.1f},{middle:.1f} {bx:.1f},{by:.1f}"
        elif ay != by:
            shape += f"L{bx:.1f},{by:.1f}"
    return shape
