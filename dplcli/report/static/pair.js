"use strict";
/* Two graphs side by side: which item of the one is which of the other, and layouts in which both
 * stand at one height. *pairs* lists the nodes that belong together, by their numbers. */
function makePair(models, layouts, pairs) {
  const forth = new Map();
  const back = new Map();
  for (const [one, other] of pairs) {
    forth.set(one, [...(forth.get(one) ?? []), other]);
    back.set(other, [...(back.get(other) ?? []), one]);
  }
  const laid = new Map();
  const known = new Map();

  /* The nodes of the other graph that belong to a node. */
  const partners = (side, node) => ((side ? back : forth).get(node.id) ?? []).map((id) => models[1 - side].nodes[id]);

  /* The children of two items that belong together: nodes that do, the boxes that share most nodes,
   * inputs and outputs of one name, and the bodies of nodes by their places. */
  function children(one, other) {
    const key = `${one.key} ${other.key}`;
    if (known.has(key)) return known.get(key);
    const found = new Map();
    const theirs = models[1].children(other);
    const byName = new Map(theirs.filter((it) => it.value).map((it) => [`${it.kind} ${it.label}`, it]));
    const owners = new Map();
    for (const it of theirs) {
      if (it.node) owners.set(it.node.id, it);
      else if (it.kind === "box") for (const node of models[1].nodesIn(it.box)) owners.set(node.id, it);
    }
    const votes = [];
    models[0].children(one).forEach((it, place) => {
      if (it.value) {
        const end = byName.get(`${it.kind} ${it.label}`);
        if (end) found.set(it, end);
        return;
      }
      if (it.kind === "body") {
        if (theirs[place]?.kind === "body") found.set(it, theirs[place]);
        return;
      }
      const counts = new Map();
      for (const node of it.node ? [it.node] : models[0].nodesIn(it.box)) {
        for (const id of forth.get(node.id) ?? []) {
          const owner = owners.get(id);
          if (owner && Boolean(owner.node) === Boolean(it.node)) counts.set(owner, (counts.get(owner) ?? 0) + 1);
        }
      }
      for (const [owner, count] of counts) votes.push({ it, owner, count, place });
    });
    const taken = new Set();
    for (const { it, owner } of votes.sort((a, b) => b.count - a.count || b.place - a.place)) {
      if (found.has(it) || taken.has(owner)) continue;
      found.set(it, owner);
      taken.add(owner);
    }
    known.set(key, found);
    return found;
  }

  /* The item of the other graph that an item belongs to; null if there is none. */
  function partner(side, it) {
    if (it.kind === "root") return models[1 - side].root;
    const outer = partner(side, it.parent);
    if (!outer) return null;
    const found = side ? children(outer, it.parent) : children(it.parent, outer);
    if (!side) return found.get(it) ?? null;
    for (const [one, other] of found) if (other === it) return one;
    return null;
  }

  /* Open in the second graph what is open in the first. */
  function open(one = models[0].root, other = models[1].root) {
    for (const [a, b] of children(one, other)) {
      if (!models[0].canOpen(a) || !models[1].canOpen(b)) continue;
      models[1].toggle(b, models[0].isOpen(a));
      if (models[0].isOpen(a)) open(a, b);
    }
  }

  /* Lay out two open items that belong together. */
  function of(one = models[0].root, other = models[1].root) {
    const inside = children(one, other);
    const shapes = new Map();
    const both = [...inside].filter(([a, b]) => models[0].isOpen(a) && models[1].isOpen(b));
    for (const [a, b] of both) of(a, b).forEach((shape) => shapes.set(shape.it, shape));
    const inner = [one, other].map((it, side) =>
      models[side].children(it).map((each) => shapes.get(each) ?? layouts[side].of(each)),
    );
    const key = `${one.key} ${other.key}`;
    const before = laid.get(key);
    if (before && inner.every((each, side) => layouts[side].isSame(each, before[side].inner))) return before;
    const plans = [one, other].map((it, side) => layouts[side].arranged(it, inner[side]));
    const shifts = aligned(plans, inside);
    const least = Math.max(...plans.map(({ height }, side) => height + shifts[side](height)));
    const found = plans.map((plan, side) => layouts[side].finished(plan, shifts[side], least));
    laid.set(key, found);
    return found;
  }

  /* How far down each height of two plans moves, so that what belongs together is at one height. */
  function aligned(plans, inside) {
    const spot = (side, it) => plans[side].spots.get(layouts[side].idOf(it));
    const middle = ({ top, bottom }) => (top + bottom) / 2;
    const anchors = [...inside]
      .map(([a, b]) => [spot(0, a), spot(1, b)])
      .filter(([a, b]) => a && b && Boolean(a.shape.isOpen) === Boolean(b.shape.isOpen))
      .map((ends) => ends.map(middle))
      .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const gaps = [[], []];
    const shifts = gaps.map((all) => (y) => all.reduce((sum, { from, by }) => (y >= from ? sum + by : sum), 0));
    const last = [-Infinity, -Infinity];
    for (const ends of chain(anchors)) {
      const tops = ends.map((y, side) => plans[side].bands.find((band) => y <= band.bottom).top - 2);
      const apart = ends[0] + shifts[0](ends[0]) - ends[1] - shifts[1](ends[1]);
      const side = apart < 0 ? 0 : 1;
      if (Math.abs(apart) > 0.5 && tops[side] > last[side]) gaps[side].push({ from: tops[side], by: Math.abs(apart) });
      tops.forEach((top, number) => (last[number] = Math.max(last[number], top)));
    }
    return shifts;
  }

  /* The longest run of anchors whose heights grow on both sides (patience sorting). */
  function chain(anchors) {
    const tails = [];
    anchors.forEach((anchor, at) => {
      let low = 0;
      let high = tails.length;
      while (low < high) {
        const half = (low + high) >> 1;
        if (anchors[tails[half].at][1] <= anchor[1]) low = half + 1;
        else high = half;
      }
      tails[low] = { at, before: tails[low - 1] ?? null };
    });
    const found = [];
    for (let tail = tails.at(-1); tail; tail = tail.before) found.unshift(anchors[tail.at]);
    return found;
  }

  /* How far to the right the second layout has what is in the first, for most of it. */
  function aside(shapes) {
    const found = [];
    const pending = [[...shapes, 0, 0]];
    while (pending.length) {
      const [one, other, x, theirs] = pending.pop();
      const places = new Map(other.places.map((place) => [place.shape.it, place]));
      const inside = children(one.it, other.it);
      for (const place of one.places) {
        const partner = places.get(inside.get(place.shape.it));
        if (!partner) continue;
        const [mine, its] = [x + place.x, theirs + partner.x];
        found.push(its + partner.shape.width / 2 - mine - place.shape.width / 2);
        if (place.shape.isOpen && partner.shape.isOpen) pending.push([place.shape, partner.shape, mine, its]);
      }
    }
    found.sort((a, b) => a - b);
    return found[found.length >> 1] ?? 0;
  }

  return { of, aside, open, partner, partners, forget: () => laid.clear() };
}
