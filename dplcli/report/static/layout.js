"use strict";
/* Where everything is. Each open box is laid out on its own, in layers (dagre); what is open inside
 * has its size by then. So a box costs what it shows, and stays as it is when others open. */
function makeLayout(model, colours) {
  const canvas = document.createElement("canvas").getContext("2d");
  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  const fonts = { name: `600 13px ${FONT}`, small: `11.5px ${FONT}` };
  const WIDEST = 240;
  const WIDEST_GROUP = 310;
  const HEADER = 28;
  const PAD = 14;
  const PORT = 10;
  const SLOT = 12;
  const HUB = 6;

  function widthOf(text, font) {
    canvas.font = fonts[font];
    return canvas.measureText(text).width;
  }

  /* Cut the middle out of what is too long. */
  function fitted(text, font, width) {
    if (text.length < 4 || widthOf(text, font) <= width) return text;
    let low = 1;
    let high = Math.min(text.length, 200);
    const cut = (count) =>
      `${text.slice(0, Math.ceil(count / 2))}…${text.slice(text.length - Math.floor(count / 2))}`;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (widthOf(cut(middle), font) <= width) low = middle;
      else high = middle - 1;
    }
    return cut(low);
  }

  /* The dimensions of a type, those with long names as dots. */
  function dims(type) {
    if (!type.includes("[")) return type;
    const names = type
      .slice(type.indexOf("[") + 1, -1)
      .split(/,(?![^(]*\))/)
      .map((dim) => (dim.length > 12 ? "…" : dim));
    return names.join("×") || "scalar";
  }

  /* The lines on a node: what it makes, and the shapes of the constants that it holds. */
  function linesOf(it) {
    if (it.value)
      return [{ text: it.label, font: "name" }, ...(it.value.type ? [{ text: it.value.type, font: "small" }] : [])];
    const number = colours.textOf(it);
    const coloured = number ? [{ text: number, font: "small" }] : [];
    if (it.box)
      return [
        { text: it.label || it.kind, font: "name" },
        { text: summary(it.box, WIDEST_GROUP - 24), font: "small" },
        ...coloured,
      ];
    const { node } = it;
    const lines = [{ text: node.op, font: "name" }, ...coloured];
    const made = node.outputs
      .filter((value) => value >= 0)
      .map((value) => dims(model.values[value].type))
      .filter(Boolean);
    if (made.length)
      lines.push({ text: made.length > 1 ? `${made[0]} +${made.length - 1}` : made[0], font: "small" });
    const held = node.inputs
      .filter((value) => value >= 0)
      .map((value) => model.values[value])
      .filter((value) => model.isConstant(value) && value.type.includes("[") && !value.type.includes("[]"))
      .map((value) => dims(value.type));
    if (held.length)
      lines.push({
        text: `▪ ${held.slice(0, 4).join(", ")}${held.length > 4 ? ` +${held.length - 4}` : ""}`,
        font: "small",
      });
    return lines;
  }

  /* How many nodes there are, and of which operators: as many words as fit. */
  function summary(box, width = Infinity) {
    if (!box.counts) {
      const counts = new Map();
      for (const node of model.nodesIn(box)) counts.set(node.op, (counts.get(node.op) ?? 0) + 1);
      box.counts = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    }
    const words = box.counts.slice(0, 4).map(([op, count]) => (count > 1 ? `${op} ×${count}` : op));
    for (let kept = words.length; kept > 0; kept--) {
      const text = `${box.size}: ${words.slice(0, kept).join(", ")}${kept < box.counts.length ? ", …" : ""}`;
      if (kept === 1 || widthOf(text, "small") <= width) return text;
    }
    return "empty";
  }

  function closed(it) {
    const lines = linesOf(it);
    const mark = model.canOpen(it) ? 20 : 0;
    const widest = Math.max(...lines.map((line) => widthOf(line.text, line.font)));
    const width = Math.round(Math.min(it.box ? WIDEST_GROUP : WIDEST, Math.max(72, widest + 24 + mark)));
    const text = lines.map((line, number) => ({
      ...line,
      text: fitted(line.text, line.font, width - 20 - (number ? 0 : mark)),
    }));
    return { it, width, height: 14 + 16 * lines.length, lines: text };
  }

  const laid = new Map();

  /* The layout of an item; the same object as before if nothing in it opened or closed. */
  function of(it) {
    if (!model.isOpen(it)) {
      if (!it.shape) it.shape = closed(it);
      return it.shape;
    }
    const inner = model.children(it).map(of);
    const known = laid.get(it.key);
    if (known && isSame(known.inner, inner)) return known;
    const found = finished(arranged(it, inner));
    laid.set(it.key, found);
    return found;
  }

  const isSame = (one, other) => one.length === other.length && one.every((each, i) => each === other[i]);

  /* Forget what was laid out: what is written on items has changed. */
  function forget() {
    laid.clear();
    for (const it of model.items()) it.shape = null;
  }

  const idOf = (it) => it.key.slice(it.key.lastIndexOf("/") + 1);

  /* The layers of an open item, before anything is moved to stand beside another graph. */
  function arranged(it, inner) {
    const isRoot = it.kind === "root";
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "TB", nodesep: 18, edgesep: 12, ranksep: 36 });
    graph.setDefaultEdgeLabel(() => ({}));
    const shapes = new Map(inner.map((shape) => [idOf(shape.it), shape]));
    for (const [id, { width, height }] of shapes) graph.setNode(id, { width, height });
    const { edges, ins, outs } = model.wiringOf(it);
    const sides = isRoot ? [] : [...ins.map((value) => `<${value}`), ...outs.map((value) => `>${value}`)];
    for (const id of sides) graph.setNode(id, { width: PORT, height: 2 });
    const shown = edges.filter(({ from, to }) => graph.hasNode(from) && graph.hasNode(to));
    const { drawn, stubs } = withoutHubs(shown);
    for (const edge of drawn) graph.setEdge(edge.from, edge.to, { weight: Math.min(4, edge.values.length) });
    pin(graph, sides);
    dagre.layout(graph);
    return placed(it, inner, shapes, graph, { drawn, stubs }, { ins, outs }, isRoot);
  }

  /* Leave out most edges of what is joined to very much: a mask that every layer reads, or a Concat
   * of all steps. Both ends get a stub instead, with the name of the other end. */
  function withoutHubs(edges) {
    const beside = { from: new Map(), to: new Map() };
    for (const edge of edges) {
      for (const end of ["from", "to"]) beside[end].set(edge[end], [...(beside[end].get(edge[end]) ?? []), edge]);
    }
    const stubs = new Set();
    for (const all of beside.from.values()) if (all.length > HUB) all.slice(2).forEach((edge) => stubs.add(edge));
    for (const all of beside.to.values())
      if (all.length > 2 * HUB) all.slice(0, -2).forEach((edge) => stubs.add(edge));
    const drawn = edges.filter((edge) => !stubs.has(edge));
    const joined = new Set(drawn.flatMap((edge) => [edge.from, edge.to]));
    for (const edge of stubs) {
      if (joined.has(edge.from) && joined.has(edge.to)) continue;
      stubs.delete(edge);
      drawn.push(edge);
      joined.add(edge.from).add(edge.to);
    }
    return { drawn, stubs: [...stubs] };
  }

  /* Keep what comes in on a first layer of its own, and what leaves on the last one. */
  function pin(graph, sides) {
    const loose = { "<": graph.sources(), ">": graph.sinks() };
    for (const mark of ["<", ">"]) {
      const ports = new Set(sides.filter((id) => id[0] === mark));
      if (!ports.size) continue;
      graph.setNode(mark, { width: 1, height: 1 });
      for (const id of new Set([...ports, ...loose[mark]])) {
        const label = ports.has(id) ? { weight: 50 } : { weight: 0, minlen: 2 };
        if (mark === "<") graph.setEdge(mark, id, label);
        else graph.setEdge(id, mark, label);
      }
    }
  }

  function placed(it, inner, shapes, graph, { drawn: edges, stubs }, ends, isRoot) {
    const spots = new Map();
    let left = Infinity,
      right = -Infinity,
      top = Infinity,
      bottom = -Infinity;
    for (const [id, shape] of shapes) {
      const { x, y } = graph.node(id);
      left = Math.min(left, x - shape.width / 2);
      right = Math.max(right, x + shape.width / 2);
      top = Math.min(top, y - shape.height / 2);
      bottom = Math.max(bottom, y + shape.height / 2);
    }
    for (const { from, to } of edges) {
      for (const { x } of graph.edge(from, to).points) {
        left = Math.min(left, x - 4);
        right = Math.max(right, x + 4);
      }
    }
    if (!shapes.size) left = right = top = bottom = 0;
    const header = isRoot ? 0 : HEADER;
    const label = isRoot ? 0 : Math.min(WIDEST, widthOf(it.label, "name")) + 48;
    const spare = Math.max(0, label - (right - left) - 2 * PAD) / 2;
    const dx = PAD + spare - left;
    const hasIn = !isRoot && ends.ins.length > 0;
    const hasOut = !isRoot && ends.outs.length > 0;
    const dy = header + PAD + (hasIn ? 18 : 0) - top;
    const width = right - left + 2 * (PAD + spare);
    const height = bottom + dy + PAD + (hasOut ? 18 : 0);
    for (const [id, shape] of shapes) {
      const { x, y } = graph.node(id);
      spots.set(id, { x: x + dx, top: y + dy - shape.height / 2, bottom: y + dy + shape.height / 2, shape });
    }
    const ports = { ins: new Map(), outs: new Map() };
    if (!isRoot) {
      for (const value of ends.ins) {
        const x = graph.node(`<${value}`).x + dx;
        ports.ins.set(value, x);
        spots.set(`<${value}`, { x, top: header, bottom: header, port: true });
      }
      for (const value of ends.outs) {
        const x = graph.node(`>${value}`).x + dx;
        ports.outs.set(value, x);
        spots.set(`>${value}`, { x, top: height, bottom: height, port: true, isOut: true });
      }
    }
    return { it, inner, width, height, spots, ports, graph, edges, stubs, dx, dy, bands: bands(spots) };
  }

  /* Draw the lines of what is arranged. *shift* says how far down a height moves; the item gets
   * at least the height *least*. */
  function finished({ it, inner, width, height, ports, graph, edges, stubs, dx, dy, ...rest }, shift = () => 0, least = 0) {
    const spots = new Map();
    for (const [id, spot] of rest.spots) {
      const by = shift(spot.top);
      spots.set(id, { ...spot, top: spot.top + by, bottom: spot.bottom + by });
    }
    const tall = Math.max(height + shift(height), least);
    for (const spot of spots.values()) if (spot.isOut) spot.top = spot.bottom = tall;
    return {
      it,
      width,
      height: tall,
      inner,
      ports,
      isOpen: true,
      label: it.kind === "root" ? "" : fitted(it.label, "name", width - 44),
      places: inner.map((shape) => {
        const spot = spots.get(idOf(shape.it));
        return { shape, x: spot.x - shape.width / 2, y: spot.top };
      }),
      lines: routed(graph, edges, spots, bands(spots), dx, (y) => y + dy + shift(y + dy)),
      stubs: stubbed(stubs, spots),
    };
  }

  /* Stubs, one on top of an item for all that it reads, and one below for all that read it. */
  function stubbed(edges, spots) {
    const found = new Map();
    for (const edge of edges) {
      for (const [end, other] of [
        ["to", "from"],
        ["from", "to"],
      ]) {
        const key = `${end} ${edge[end]}`;
        const spot = spots.get(edge[end]);
        if (!found.has(key)) found.set(key, { id: edge[end], end, spot, names: new Set(), others: [] });
        found.get(key).names.add(nameOf(edge[other], spots.get(edge[other])));
        found.get(key).others.push(edge[other]);
      }
    }
    return [...found.values()].map(({ id, end, spot, names, others }) => {
      const [first, ...rest] = names;
      const text =
        end === "from" && rest.length
          ? `${rest.length + 1} others`
          : fitted(first, "small", 90) + (rest.length ? ` +${rest.length}` : "");
      const x = spot.port ? spot.x + 4 : spot.x - spot.shape.width / 2 + 7;
      return { id, others, text, isIn: end === "to", x, y: end === "to" ? spot.top : spot.bottom };
    });
  }

  /* What a stub says of its other end: for what comes from outside, the operator that makes it. */
  function nameOf(id, spot) {
    const value = model.values[Number(id.slice(1))];
    return spot.shape?.it.label ?? value?.producer?.op ?? value?.name ?? "";
  }

  /* The height that each layer takes: an edge runs straight down past all of it. */
  function bands(spots) {
    const found = [];
    const shown = [...spots.values()].filter(({ port }) => !port).sort((a, b) => a.top - b.top);
    for (const { top, bottom } of shown) {
      const last = found.at(-1);
      if (last && top < last.bottom) last.bottom = Math.max(last.bottom, bottom);
      else found.push({ top, bottom });
    }
    return found;
  }

  function routed(graph, edges, spots, layers, dx, moved) {
    const routes = edges.map((edge) => {
      const from = spots.get(edge.from);
      const to = spots.get(edge.to);
      const isDown = from.port || to.port || from.bottom <= to.top;
      const middle = graph
        .edge(edge.from, edge.to)
        .points.slice(1, -1)
        .map(({ x, y }) => ({ x: x + dx, y: moved(y) }))
        .filter(({ y }) => (isDown ? y > from.bottom && y < to.top : y < from.top && y > to.bottom));
      return { edge, from, to, down: isDown, middle };
    });
    spread(routes, "from");
    spread(routes, "to");
    return routes.flatMap((route) => strands(route, layers));
  }

  /* Give the edges at a side of an item places of their own, in the order in which they come. */
  function spread(routes, end) {
    const sides = new Map();
    for (const route of routes) {
      const spot = route[end];
      const key = `${route.edge[end]} ${route.down}`;
      const next = end === "from" ? (route.middle[0] ?? route.to) : (route.middle.at(-1) ?? route.from);
      if (!sides.has(key)) sides.set(key, { spot, routes: [] });
      sides.get(key).routes.push({ route, x: next.x });
    }
    for (const { spot, routes: beside } of sides.values()) {
      beside.sort((a, b) => a.x - b.x);
      const room = spot.shape ? spot.shape.width * 0.7 : 0;
      const step = Math.min(SLOT, beside.length > 1 ? room / (beside.length - 1) : 0);
      beside.forEach(({ route }, number) => {
        route[`${end}X`] = spot.x + (number - (beside.length - 1) / 2) * step;
      });
    }
  }

  /* The lines of an edge: one, or one for each value where it ends at an open item's ports. */
  function strands({ edge, from, to, down, middle, fromX, toX }, layers) {
    const lines = new Map();
    for (const value of edge.values) {
      const x0 = portX(from, value, "outs") ?? fromX;
      const x1 = portX(to, value, "ins") ?? toX;
      const key = `${x0} ${x1}`;
      const isPort = to.port || portX(to, value, "ins") !== null;
      if (!lines.has(key)) lines.set(key, { x0, x1, values: [], isPort });
      lines.get(key).values.push(value);
    }
    return [...lines.values()].map(({ x0, x1, values, isPort }) => {
      const start = { x: x0, y: down ? from.bottom : from.top };
      const end = { x: x1, y: down ? to.top : to.bottom };
      const points = [start, ...middle, end].flatMap((point) => along(point, layers, start, end, down));
      return { from: edge.from, to: edge.to, values, path: curve(points), isPort, back: !down };
    });
  }

  /* A point inside a layer becomes two, where the layer begins and ends; between layers an edge
   * is free to bend. */
  function along(point, layers, start, end, down) {
    const layer = layers.find(({ top, bottom }) => point.y >= top - 1 && point.y <= bottom + 1);
    if (!layer) return point === start || point === end ? [point] : [];
    const [near, far] = down ? [layer.top, layer.bottom] : [layer.bottom, layer.top];
    if (point === start) return [point, { x: point.x, y: far }];
    if (point === end) return [{ x: point.x, y: near }, point];
    return [
      { x: point.x, y: near },
      { x: point.x, y: far },
    ];
  }

  function portX(spot, value, side) {
    const shape = spot.shape;
    if (!shape?.isOpen) return null;
    const left = spot.x - shape.width / 2;
    const { it } = shape;
    let number = value;
    if (!shape.ports[side].has(value)) {
      // the value has another name inside
      const node = it.kind === "body" ? it.parent.node : it.node;
      const body = model.sheets[it.kind === "body" ? it.sheet : node?.bodies[0][1]];
      const shift = side === "outs" && node?.op === "Loop" ? 1 : 0;
      const slot = node ? (side === "ins" ? node.inputs : node.outputs).indexOf(value) : -1;
      number = slot < 0 ? -1 : (side === "ins" ? body.inputs : body.outputs)[slot + shift];
    }
    return shape.ports[side].has(number) ? left + shape.ports[side].get(number) : null;
  }

  function curve(points) {
    const apart = points.filter((point, i) => !i || point.x !== points[i - 1].x || point.y !== points[i - 1].y);
    const kept = apart.filter((point, i) => {
      const before = apart[i - 1],
        after = apart[i + 1];
      return !before || !after || Math.abs(before.x - point.x) > 0.5 || Math.abs(after.x - point.x) > 0.5;
    });
    const at = ({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`;
    let path = `M${at(kept[0])}`;
    for (let i = 1; i < kept.length; i++) {
      const a = kept[i - 1],
        b = kept[i];
      const y = (a.y + b.y) / 2;
      path += Math.abs(a.x - b.x) < 0.5 ? `L${at(b)}` : `C${at({ x: a.x, y })} ${at({ x: b.x, y })} ${at(b)}`;
    }
    return path;
  }

  return { of, arranged, finished, isSame, idOf, forget, summary };
}
