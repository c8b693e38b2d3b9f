"use strict";
/* The graph that the page holds: nodes, values, boxes and sheets, and which items a box shows.
 *
 * An item is something on the screen: a node, a box, one of several bodies of a node, or an input
 * or output of the model. A function is there once, and drawn at each call that is open; so an item
 * has a key, the way to it: "n4/n12" is node 12 in the open node 4.
 */
function makeModel(record) {
  const { kinds, sheets, consts, types } = record;
  const ops = record.ops.map(([name, kind, ins, outs]) => ({ name, kind: kinds[kind], roles: [ins, outs] }));

  const values = record.values.map(([name, type, constant = -1], id) => ({
    id,
    name,
    type: types[type] ?? "",
    constant: consts[constant] ?? null,
    producer: null,
    readers: [],
    sheet: -1,
    given: false,
  }));
  const boxes = record.boxes.map(([label, kind, parent, sheet, open], id) => ({
    id,
    label,
    kind,
    parent,
    sheet,
    open: Boolean(open),
    items: [],
    size: 0,
    mark: "",
  }));
  const nodes = record.nodes.map(([op, name, inputs, outputs, box, more = {}], id) => ({
    id,
    op: ops[op].name,
    kind: ops[op].kind,
    roles: ops[op].roles,
    name,
    inputs,
    outputs,
    box,
    sheet: -1,
    folded: -1,
    bodies: [],
    captured: [],
    attributes: {},
    metadata: {},
    numbers: {},
    ranges: [],
    stands: [],
    doc: "",
    mark: "",
    ...more,
    holds: [],
  }));

  // What is folded into a node, and where everything is.
  for (const node of nodes) {
    if (node.folded >= 0) nodes[node.folded].holds.push(node.id);
    else boxes[node.box].items.push({ node });
    node.sheet = boxes[node.folded >= 0 ? nodes[node.folded].box : node.box].sheet;
    for (const value of node.outputs) {
      if (value >= 0) Object.assign(values[value], { producer: node, sheet: node.sheet });
    }
  }
  sheets.forEach((sheet, number) => {
    sheet.callers = [];
    for (const value of sheet.given) values[value].given = true;
    for (const value of sheet.inputs) {
      if (values[value].sheet < 0) values[value].sheet = number;
    }
  });
  for (const node of nodes) {
    for (const value of new Set([...node.inputs, ...node.captured])) {
      if (value >= 0) values[value].readers.push(node);
    }
    for (const [, sheet] of node.bodies) sheets[sheet].callers.push(node);
  }
  // A box has the mark of what stands out most in it, and so has a node of what is folded into it.
  const MARKS = ["", "outlined", "changed", "added", "fits", "removed", "differs", "first to differ", "does not fit"];
  const louder = (one, other) => (MARKS.indexOf(other) > MARKS.indexOf(one) ? other : one);
  for (const node of nodes) {
    if (node.folded >= 0) nodes[node.folded].mark = louder(nodes[node.folded].mark, node.mark);
  }
  for (const box of [...boxes].reverse()) {
    for (const { node } of box.items) if (node) box.mark = louder(box.mark, node.mark);
    if (box.parent >= 0) boxes[box.parent].mark = louder(boxes[box.parent].mark, box.mark);
    box.size += box.items.filter((item) => item.node).length;
    if (box.parent < 0) continue;
    boxes[box.parent].size += box.size;
    boxes[box.parent].items.push({ box });
  }
  const first = (item) => item.node?.id ?? item.box.first;
  for (const box of [...boxes].reverse()) {
    box.items.sort((a, b) => first(a) - first(b));
    box.first = box.items.length ? first(box.items[0]) : 0;
  }

  /* Whether a value belongs to who reads it, rather than to be drawn as an edge. */
  const isConstant = (value) => value.constant !== null || value.given || (value.producer?.folded ?? -1) >= 0;

  /* What is directly in *outer* and holds the node: the node, or a box. */
  function within(node, outer) {
    let inner = null;
    let box = node.box;
    while (box >= 0 && box !== outer) {
      inner = box;
      box = boxes[box].parent;
    }
    if (box < 0) return null;
    return inner === null ? `n${node.id}` : `b${inner}`;
  }

  function* nodesIn(box) {
    for (const item of box.items) {
      if (item.node) yield item.node;
      else yield* nodesIn(item.box);
    }
  }

  /* How what is directly in a box is wired: edges with the values that pass, and what comes in
   * ("<" and a value) and leaves (">" and a value). */
  function wiring(box) {
    if (box.wiring) return box.wiring;
    const edges = new Map();
    const ins = new Set();
    const outs = new Set();
    const inside = new Map();
    for (const node of nodesIn(box)) inside.set(node.id, within(node, box.id));
    const sheet = sheets[box.sheet];
    const isRoot = sheet.root === box.id;
    const returned = new Set(sheet.outputs);
    const join = (from, to, value) => {
      if (from === to) return;
      const key = `${from} ${to}`;
      if (!edges.has(key)) edges.set(key, { from, to, values: new Set() });
      edges.get(key).values.add(value);
    };
    for (const [id, place] of inside) {
      const node = nodes[id];
      for (const number of new Set([...node.inputs, ...node.captured])) {
        if (number < 0 || isConstant(values[number])) continue;
        const from = inside.get(values[number].producer?.id);
        if (!from) ins.add(number);
        join(from ?? `<${number}`, place, number);
      }
      for (const number of node.outputs) {
        if (number < 0) continue;
        const leaves =
          returned.has(number) ||
          values[number].readers.some(
            (reader) => reader.sheet === box.sheet && reader.folded < 0 && !inside.has(reader.id),
          );
        if (!leaves) continue;
        outs.add(number);
        join(place, `>${number}`, number);
      }
    }
    if (isRoot) {
      for (const number of sheet.inputs) if (!isConstant(values[number])) ins.add(number);
      for (const number of sheet.outputs) {
        if (outs.has(number)) continue;
        outs.add(number);
        if (ins.has(number)) join(`<${number}`, `>${number}`, number);
      }
    }
    const order = (set, known) =>
      [...set].sort((a, b) => (known.indexOf(a) + 1 || 1e9) - (known.indexOf(b) + 1 || 1e9) || a - b);
    box.wiring = {
      edges: [...edges.values()].map((edge) => ({ ...edge, values: [...edge.values] })),
      ins: order(ins, isRoot ? sheet.inputs : []),
      outs: order(outs, isRoot ? sheet.outputs : []),
    };
    return box.wiring;
  }

  /* The same of a node with several bodies: what they read goes into each, and what it makes
   * comes out of each. */
  function wiringOfBodies(node) {
    const ins = new Set();
    const edges = [];
    node.bodies.forEach(([, number], place) => {
      const sheet = sheets[number];
      for (const value of wiring(boxes[sheet.root]).ins) {
        ins.add(value);
        edges.push({ from: `<${value}`, to: `s${place}`, values: [value] });
      }
      for (const value of node.outputs) {
        if (value >= 0) edges.push({ from: `s${place}`, to: `>${value}`, values: [value] });
      }
    });
    return { edges, ins: [...ins], outs: node.outputs.filter((value) => value >= 0) };
  }

  /* How what an open item shows is wired. */
  function wiringOf(it) {
    const box = shownBox(it);
    return box ? wiring(box) : wiringOfBodies(it.node);
  }

  // Items.

  const items = new Map();
  const toggled = new Map();
  const DEEPEST = 60;

  function item(key, kind, parent, facts) {
    let found = items.get(key);
    if (!found) {
      const depth = parent ? parent.depth + 1 : 0;
      found = { key, kind, parent, depth, ...facts };
      items.set(key, found);
    }
    return found;
  }

  const root = item("", "root", null, { box: boxes[sheets[0].root], prefix: "", sheet: 0 });

  function canOpen(it) {
    if (it.depth > DEEPEST) return false;
    if (it.kind === "node") return it.node.bodies.length > 0;
    return it.kind === "box" || it.kind === "body";
  }

  function isOpen(it) {
    if (it.kind === "root") return true;
    if (!canOpen(it)) return false;
    if (toggled.has(it.key)) return toggled.get(it.key);
    if (it.kind === "body") return it.box.size <= 30;
    return Boolean(it.kind === "node" ? it.node.open : it.box.open);
  }

  /* The box that an open item shows; null for a node with several bodies, which are its items. */
  function shownBox(it) {
    if (it.kind !== "node") return it.box;
    return it.node.bodies.length === 1 ? boxes[sheets[it.node.bodies[0][1]].root] : null;
  }

  const inner = (it) => (it.kind === "box" || it.kind === "root" ? it.prefix : `${it.key}/`);

  function children(it) {
    const prefix = inner(it);
    const box = shownBox(it);
    if (!box) {
      return it.node.bodies.map(([name, sheet], number) =>
        item(`${prefix}s${number}`, "body", it, {
          box: boxes[sheets[sheet].root],
          sheet,
          label: name,
          prefix,
        }),
      );
    }
    const found = box.items.map((each) =>
      each.node
        ? item(`${prefix}n${each.node.id}`, "node", it, { node: each.node, prefix, label: each.node.op })
        : item(`${prefix}b${each.box.id}`, "box", it, { box: each.box, prefix, label: each.box.label }),
    );
    if (it.kind !== "root") return found;
    const { ins, outs } = wiring(box);
    const isShown = (node) => !node || !found.some((each) => isLikeOthers(node, each));
    const ends = (numbers, kind, mark, at) =>
      numbers
        .filter((number) => at(values[number]).some(isShown))
        .map((number) =>
          item(`${mark}${number}`, kind, it, { value: values[number], label: values[number].name, prefix }),
        );
    const given = ends(ins, "input", "<", (value) => (value.readers.length ? value.readers : [null]));
    return [...given, ...found, ...ends(outs, "output", ">", (value) => [value.producer])];
  }

  function holds(box, node) {
    for (let at = (nodes[node.folded] ?? node).box; at >= 0; at = boxes[at].parent) if (boxes[at] === box) return true;
    return false;
  }

  /* Of layers that are drawn as one, what comes in and leaves is shown of the first. */
  function isLikeOthers(node, it) {
    if (it.box?.kind !== "repeat" || isOpen(it)) return false;
    return holds(it.box, node) && !holds(it.box.items[0].box, node);
  }

  function toggle(it, open = !isOpen(it)) {
    if (canOpen(it)) toggled.set(it.key, open);
  }

  /* The item of a node of the sheet that *outer* shows, with the items round it. */
  function itemIn(outer, node) {
    const path = [];
    for (let box = node.box; boxes[box].parent >= 0; box = boxes[box].parent) path.unshift(`b${box}`);
    path.push(`n${node.id}`);
    let it = outer;
    for (const step of path) {
      it = children(it).find((each) => each.key === inner(it) + step);
      if (!it) return null;
    }
    return it;
  }

  /* An item of a node, at the first call of each function round it. */
  function place(node) {
    const drawn = node.folded >= 0 ? nodes[node.folded] : node;
    const seen = new Set();
    const callers = [];
    for (let at = drawn; at.sheet !== 0; at = callers[0]) {
      const caller = sheets[at.sheet].callers.find((each) => !seen.has(each.id));
      if (!caller) return null;
      seen.add(caller.id);
      callers.unshift(caller);
    }
    let outer = root;
    [...callers, drawn].forEach((each, number, all) => {
      if (!outer) return;
      outer = itemIn(outer, each);
      if (!outer || number === all.length - 1 || each.bodies.length === 1) return;
      outer = children(outer).find((body) => body.sheet === all[number + 1].sheet) ?? null;
    });
    return outer;
  }

  /* What the calls round an item give for a value that is an input of a function. */
  function givenFor(it, value) {
    for (let outer = it; outer && !value.producer && !value.constant; outer = outer.parent) {
      const sheet = outer.node?.bodies.length === 1 ? sheets[outer.node.bodies[0][1]] : null;
      const slot = sheet ? sheet.inputs.indexOf(value.id) : -1;
      if (slot >= 0) value = values[outer.node.inputs[slot]] ?? value;
    }
    return value;
  }

  /* The item for a node as seen from another item: within the same call if it is there. */
  function near(it, node) {
    const drawn = node.folded >= 0 ? nodes[node.folded] : node;
    for (let outer = it; outer; outer = outer.parent) {
      if (shownSheet(outer) === drawn.sheet) return itemIn(outer, drawn);
    }
    return place(node);
  }

  /* The sheet whose root an item shows; -1 for boxes inside one. */
  function shownSheet(it) {
    if (it.kind === "root" || it.kind === "body") return it.sheet;
    return it.kind === "node" && it.node.bodies.length === 1 ? it.node.bodies[0][1] : -1;
  }

  function* visible(it = root) {
    for (const each of children(it)) {
      yield each;
      if (isOpen(each)) yield* visible(each);
    }
  }

  /* What an item is called in an address. */
  const nameOf = (it) =>
    it.node
      ? it.node.name || values[it.node.outputs.find((value) => value >= 0)]?.name || `@${it.node.id}`
      : it.value
        ? it.value.name
        : it.label;

  return {
    record,
    items: () => items.values(),
    nodes,
    values,
    sheets,
    boxes,
    root,
    isConstant,
    wiring,
    wiringOf,
    nodesIn,
    children,
    isOpen,
    canOpen,
    toggle,
    place,
    near,
    givenFor,
    visible,
    nameOf,
  };
}
