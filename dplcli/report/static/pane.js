"use strict";
/* One graph on its stage: what is open, where everything is, and what of it is seen. */
function makePane(record, element, isPart) {
  const stage = element.querySelector(".stage");
  const model = makeModel(record);
  const colours = makeColours(model);
  const layout = makeLayout(model, colours);
  const drawing = makeDrawing(model, stage, colours);
  const camera = makeCamera(stage, element.querySelector(".map"), isPart);
  let spots = new Map();
  let size = { width: 0, height: 0 };
  let marked = [];

  /* Where each item is in the whole picture. */
  function locate(shape) {
    const found = new Map();
    const pending = [[shape, 0, 0]];
    while (pending.length) {
      const [outer, left, top] = pending.pop();
      for (const { shape: inner, x, y } of outer.places) {
        const { width, height, isOpen } = inner;
        const spot = { it: inner.it, x: left + x, y: top + y, width, height, isOpen };
        found.set(inner.it.key, spot);
        if (inner.isOpen) pending.push([inner, spot.x, spot.y]);
      }
    }
    return found;
  }

  /* Draw a layout; *still* stays where it is on the screen. */
  function draw(shape, still = null) {
    const before = still && spots.get(still.key);
    const place = before && camera.onScreen({ x: before.x + before.width / 2, y: before.y });
    spots = locate(shape);
    size = shape;
    drawing.all(shape);
    camera.show(shape, [...spots.values()]);
    const after = still && spots.get(still.key);
    if (place && after) camera.hold({ x: after.x + after.width / 2, y: after.y }, place);
    point(marked, stage.classList.contains("pointing"));
  }

  /* Point out items, or what is closed round them; what is beside them steps back. */
  function point(items, isOn = items.length > 0) {
    marked = items;
    stage.classList.toggle("pointing", isOn);
    for (const each of stage.querySelectorAll(".item.now")) each.classList.remove("now");
    for (let it of items) {
      while (it && !drawing.elements.has(it.key)) it = it.parent;
      drawing.elements.get(it?.key)?.classList.add("now");
    }
  }

  /* Open everything round an item; tell whether something was closed. */
  function openRound(it) {
    let isNew = false;
    for (let outer = it.parent; outer && outer.kind !== "root"; outer = outer.parent) {
      if (!model.isOpen(outer)) {
        model.toggle(outer, true);
        isNew = true;
      }
    }
    return isNew;
  }

  /* The rectangle round items, as far as they are drawn. */
  function round(items) {
    const found = items.map((it) => spots.get(it.key)).filter(Boolean);
    if (!found.length) return null;
    const x = Math.min(...found.map((spot) => spot.x));
    const y = Math.min(...found.map((spot) => spot.y));
    const right = Math.max(...found.map((spot) => spot.x + spot.width));
    return { x, y, width: right - x, height: Math.max(...found.map((spot) => spot.y + spot.height)) - y };
  }

  /* Where most of the model is: the closed group with the most nodes, the first of several. */
  function spine() {
    const weight = ({ it, isOpen }) => (isOpen || !it.box || it.box.kind === "shapes" ? 0 : it.box.size);
    return [...spots.values()].reduce((one, other) => (weight(other) > weight(one) ? other : one), spots.values().next().value);
  }

  function count(most) {
    let seen = 0;
    for (const _ of model.visible()) if (++seen > most) break;
    return seen;
  }

  /* On paper, all of it is seen. */
  function print(isOn) {
    if (isOn) {
      stage.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
      stage.querySelector(".scene").removeAttribute("transform");
    } else {
      stage.removeAttribute("viewBox");
      camera.apply();
    }
  }

  return {
    model, colours, layout, drawing, camera, stage, draw, point, openRound, round, spine, count, print,
    spot: (it) => spots.get(it.key),
    spotOf: (key) => spots.get(key),
    spots: () => [...spots.values()],
    width: () => size.width,
  };
}
