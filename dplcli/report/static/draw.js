"use strict";
/* The layout as SVG. Names are only ever set as text. */
function svgElement(tag, attributes = {}, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

function makeDrawing(model, stage, colours) {
  const scene = stage.querySelector(".scene");
  const elements = new Map();
  let chosen = null;

  /* The class of an item, which gives it its colour. */
  function classOf(it) {
    if (it.node) return it.node.kind;
    if (it.value) return it.kind;
    return it.kind === "body" ? "body" : it.box.kind;
  }

  /* What is to be seen of an item: that it was added, removed or changed, or differs. */
  function markOf(it) {
    return it.node?.mark || (it.box && !model.isOpen(it) ? it.box.mark : "") || "";
  }

  /* What a screen reader says: what is to be read, and then what it is. */
  function spoken(shape) {
    const { it } = shape;
    const seen = shape.isOpen ? shape.label : shape.lines.map((line) => line.text).join(" ");
    const kind = it.value ? it.kind : it.box ? `group of ${it.box.size} nodes` : it.node.name;
    const state = model.canOpen(it) ? (shape.isOpen ? "open" : "closed") : "";
    return [seen, markOf(it), kind, state].filter(Boolean).join(", ");
  }

  /* Draw the layout of the whole picture. */
  function all(shape) {
    elements.clear();
    const whole = svgElement("g");
    contents(shape, whole);
    scene.replaceChildren(whole);
  }

  function contents(shape, parent) {
    const edges = svgElement("g", { class: "edges", "aria-hidden": "true" });
    for (const line of shape.lines) edges.append(edge(line, shape));
    for (const each of shape.stubs) edges.append(stub(each, shape));
    parent.append(edges);
    for (const { shape: inner, x, y } of shape.places) parent.append(item(inner, x, y));
  }

  function edge(line, shape) {
    const classes = ["edge", line.back ? "back" : "", line.values.length > 1 ? "several" : ""];
    const path = svgElement("path", {
      class: classes.filter(Boolean).join(" "),
      d: line.path,
      ...(line.isPort ? {} : { "marker-end": "url(#arrow)" }),
    });
    const words = line.values.slice(0, 8).map((value) => `${model.values[value].name} ${model.values[value].type}`);
    if (line.values.length > 8) words.push(`and ${line.values.length - 8} more`);
    path.append(svgElement("title", {}, words.join("\n")));
    path.dataset.ends = `${endKey(shape, line.from)} ${endKey(shape, line.to)}`;
    return path;
  }

  /* An edge whose other end is elsewhere: a short line with a name. */
  function stub({ id, others, text, isIn, x, y }, shape) {
    const [begin, end] = isIn ? [y - 15, y] : [y, y + 13];
    const group = svgElement("g", { class: "stub" });
    group.append(
      svgElement("path", {
        class: "edge",
        d: `M${x},${begin}L${x},${end}`,
        ...(isIn ? { "marker-end": "url(#arrow)" } : {}),
      }),
    );
    group.append(svgElement("text", { x: x + 5, y: isIn ? y - 6 : y + 12 }, text));
    group.append(svgElement("title", {}, isIn ? `from ${text}` : `to ${text}`));
    group.dataset.ends = [id, ...others].map((each) => endKey(shape, each)).join(" ");
    return group;
  }

  const markClass = (mark) => (mark ? `mark-${mark.split(" ")[0]}` : "");

  const endKey = (shape, id) =>
    shape.inner.find(({ it }) => it.key.slice(it.key.lastIndexOf("/") + 1) === id)?.it.key ?? "";

  function item(shape, x, y) {
    const { it, width, height } = shape;
    const canOpen = model.canOpen(it);
    const group = svgElement("g", {
      class: ["item", classOf(it), shape.isOpen ? "open" : `closed ${colours.classOf(it)}`, markClass(markOf(it))]
        .filter(Boolean)
        .join(" ")
        .trim(),
      transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`,
      role: "treeitem",
      tabindex: "-1",
      "aria-label": spoken(shape),
      "aria-level": it.depth,
      ...(canOpen ? { "aria-expanded": String(Boolean(shape.isOpen)) } : {}),
    });
    group.dataset.key = it.key;
    elements.set(it.key, group);
    const round = it.value ? height / 2 : it.box || canOpen ? 9 : 4;
    if (canOpen && !shape.isOpen)
      group.append(svgElement("rect", { class: "behind", x: 4, y: 4, width, height, rx: round }));
    group.append(svgElement("rect", { class: "frame", width, height, rx: round }));
    if (shape.isOpen) {
      for (const port of shape.ports.ins.values()) {
        group.append(
          svgElement("line", { class: "edge", x1: port, y1: 0, x2: port, y2: 28 }),
          svgElement("circle", { class: "port", cx: port, cy: 0, r: 3 }),
        );
      }
      for (const port of shape.ports.outs.values())
        group.append(svgElement("circle", { class: "port", cx: port, cy: height, r: 3 }));
      group.append(mark("−", width - 15, 18), svgElement("text", { class: "name", x: 12, y: 19 }, shape.label));
      const inner = svgElement("g", { role: "group" });
      contents(shape, inner);
      group.append(inner);
    } else {
      const middle = canOpen ? (width - 16) / 2 : width / 2;
      shape.lines.forEach((line, number) =>
        group.append(
          svgElement(
            "text",
            {
              class: line.font,
              x: number ? width / 2 : middle,
              y: 20 + 16 * number,
              "text-anchor": "middle",
            },
            line.text,
          ),
        ),
      );
      if (canOpen) group.append(mark("+", width - 15, 20));
    }
    return group;
  }

  function mark(sign, x, y) {
    const group = svgElement("g", { class: "toggle", "aria-hidden": "true" });
    group.append(
      svgElement("rect", { x: x - 9, y: y - 13, width: 18, height: 18, rx: 4 }),
      svgElement("text", { x, y, "text-anchor": "middle" }, sign),
    );
    return group;
  }

  /* Show what is chosen, and the edges at it; null for nothing. */
  function choose(it) {
    const shown = (which, isChosen) => {
      elements.get(which.key)?.classList.toggle("chosen", isChosen);
      elements.get(which.key)?.setAttribute("aria-selected", String(isChosen));
      for (const path of scene.querySelectorAll("[data-ends]")) {
        if (path.dataset.ends.split(" ").includes(which.key)) path.classList.toggle("near", isChosen);
      }
    };
    if (chosen) shown(chosen, false);
    chosen = it;
    if (it) shown(it, true);
  }

  return { all, choose, elements };
}
