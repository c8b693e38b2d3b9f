"use strict";
/* The panel beside the picture: what is known of the item that is chosen, or of the model. */
const Details = (() => {
  const panel = document.getElementById("details");
  const MOST = 60;
  let go = () => {};

  function make(tag, attributes = {}, ...content) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...content.filter((part) => part !== null && part !== ""));
    return element;
  }

  const code = (text) => make("code", {}, text);
  const section = (title, ...content) => make("section", {}, make("h3", {}, title), ...content);

  function facts(pairs) {
    const list = make("dl");
    for (const [name, value] of pairs) list.append(make("dt", {}, name), make("dd", {}, ...[value].flat()));
    return list;
  }

  function more(all, draw) {
    const list = make("ul", {}, ...all.slice(0, MOST).map((each) => make("li", {}, ...[draw(each)].flat())));
    if (all.length > MOST) list.append(make("li", { class: "muted" }, `and ${all.length - MOST} more`));
    return list;
  }

  /* A button that goes to a node. */
  function link(node, from) {
    const button = make("button", { type: "button", class: "link" }, node.op, node.name ? make("span", {}, ` ${node.name}`) : "");
    button.addEventListener("click", () => go(node, from));
    return button;
  }

  // Values.

  function valueLine(inner, it, direction) {
    const value = direction === "in" ? Graph.givenFor(it, inner) : inner;
    const parts = [make("div", {}, code(inner.name || "(no name)"), " ", make("span", { class: "muted" }, inner.type || value.type))];
    if (value !== inner) parts.push(make("div", { class: "muted" }, "given by the call: ", code(value.name)));
    const { producer } = value;
    if (value.constant) parts.push(constant(value.constant));
    else if (direction === "in") {
      if (producer) parts.push(make("div", {}, Graph.isConstant(value) ? "constant, made by " : "from ", link(producer, it)));
      else parts.push(make("div", { class: "muted" }, Graph.sheets[0].inputs.includes(value.id) ? "an input" : "from outside"));
    } else {
      const readers = [...new Set(value.readers)];
      if (readers.length) parts.push(make("div", {}, "to ", more(readers, (node) => link(node, it))));
      else parts.push(make("div", { class: "muted" }, "no node reads it"));
      if (Graph.sheets.some((sheet) => sheet.outputs.includes(value.id))) parts.push(make("div", { class: "muted" }, "an output"));
    }
    return parts;
  }

  function constant([type, count, first, low, high, rest = {}]) {
    const odd = typeof low === "number" ? rest : low ?? {};
    const shown = first.join(", ") + (count > first.length ? ", …" : "");
    const parts = [make("div", { class: "numbers" }, make("span", { class: "muted" }, "constant "), code(shown || "empty"))];
    if (typeof low === "number" && count > 1) {
      parts.push(make("div", { class: "muted" }, `${count.toLocaleString("en")} elements from ${low} to ${high}`));
    }
    if (odd.bins) parts.push(histogram(odd.bins, low, high));
    if (odd.looked) parts.push(make("div", { class: "muted" }, `${odd.looked.toLocaleString("en")} of them were looked at`));
    if (odd.odd) parts.push(make("div", { class: "muted" }, `${odd.odd.toLocaleString("en")} are infinite or no numbers`));
    if (odd.why) parts.push(make("div", { class: "muted" }, odd.why));
    return make("div", { class: "constant", title: Graph.record.types[type] }, ...parts);
  }

  function histogram(bins, low, high) {
    const most = Math.max(...bins);
    const image = Draw.make("svg", { viewBox: "0 0 160 36", class: "histogram", role: "img", "aria-label": `histogram from ${low} to ${high}` });
    bins.forEach((count, number) => {
      const height = count ? Math.max(1, (count / most) * 34) : 0;
      const bar = Draw.make("rect", { x: number * 10 + 0.5, y: 35 - height, width: 9, height });
      bar.append(Draw.make("title", {}, `${count.toLocaleString("en")} elements`));
      image.append(bar);
    });
    image.append(Draw.make("line", { x1: 0, x2: 160, y1: 35.5, y2: 35.5 }));
    return image;
  }

  // What is chosen.

  function ofNode(it, node) {
    const [, sheet] = node.bodies[0] ?? [null, -1];
    const called = Graph.sheets[sheet];
    const about = [["kind", node.kind]];
    if (called?.rule) about.push(["rule", code(called.rule)]);
    if (called?.target) about.push(["target", code(called.target)]);
    if (called && node.bodies.length === 1 && called.callers.length > 1) about.push(["calls of it", String(called.callers.length)]);
    if (node.metadata["dpl.rule"]) about.push(["made by rule", code(node.metadata["dpl.rule"])]);
    const content = [make("h2", {}, node.op), node.name ? make("p", { class: "long" }, code(node.name)) : "", facts(about)];
    if (node.folded >= 0) content.push(make("p", { class: "muted" }, "Computes a constant; drawn as part of ", link(Graph.nodes[node.folded], it)));
    if (node.doc) content.push(make("p", { class: "long" }, node.doc));
    if (Graph.canOpen(it)) content.push(toggle(it));
    const attributes = Object.entries(node.attributes);
    if (attributes.length) content.push(section("Attributes", facts(attributes.map(([name, text]) => [name, code(text)]))));
    const given = node.inputs.map((value, slot) => [value, slot]).filter(([value]) => value >= 0);
    if (given.length) content.push(section("Inputs", more(given, ([value]) => valueLine(Graph.values[value], it, "in"))));
    if (node.captured.length) content.push(section("Read by its bodies", more(node.captured, (value) => valueLine(Graph.values[value], it, "in"))));
    const made = node.outputs.filter((value) => value >= 0);
    if (made.length) content.push(section("Outputs", more(made, (value) => valueLine(Graph.values[value], it, "out"))));
    if (node.stands.length) content.push(section("Stands for", more(node.stands, ([op, name]) => [op, " ", code(name)])));
    if (node.holds.length) content.push(section("Constants computed for it", more(node.holds, (held) => link(Graph.nodes[held], it))));
    const metadata = Object.entries(node.metadata);
    if (metadata.length) content.push(section("Metadata", facts(metadata.map(([name, text]) => [name, code(text)]))));
    return content;
  }

  function toggle(it) {
    const button = make("button", { type: "button" }, Graph.isOpen(it) ? "Close" : "Open");
    button.addEventListener("click", () => go(null, it));
    return make("p", {}, button);
  }

  function ofBox(it) {
    const { box } = it;
    const sheet = it.kind === "body" ? Graph.sheets[it.sheet] : null;
    const counts = new Map();
    for (const node of Graph.nodesIn(box)) counts.set(node.op, (counts.get(node.op) ?? 0) + 1);
    const { ins, outs } = Graph.wiring(box);
    const content = [
      make("h2", {}, it.label || "Group"),
      facts([["kind", { scope: "module scope", chunk: "neighbouring nodes", body: "body" }[it.kind === "body" ? "body" : box.kind]], ["nodes", box.size.toLocaleString("en")]]),
      toggle(it),
      section("Operators", more([...counts].sort((a, b) => b[1] - a[1]), ([op, count]) => `${op} ${count}`)),
    ];
    if (ins.length) content.push(section(sheet ? "Inputs" : "Comes in", more(ins, (value) => valueLine(Graph.values[value], it, "in"))));
    if (outs.length) content.push(section(sheet ? "Outputs" : "Leaves", more(outs, (value) => valueLine(Graph.values[value], it, "out"))));
    return content;
  }

  function ofValue(it) {
    const { value } = it;
    const content = [make("h2", {}, value.name || "(no name)"), facts([["kind", it.kind], ["type", code(value.type || "not known")]])];
    if (it.kind === "input") content.push(section("Read by", more([...new Set(value.readers)], (node) => link(node, it))));
    else if (value.producer) content.push(section("From", link(value.producer, it)));
    return content;
  }

  function ofModel() {
    const { root, nodes, sheets, record } = Graph;
    const counts = new Map();
    for (const node of nodes) counts.set(node.op, (counts.get(node.op) ?? 0) + 1);
    const interface_ = (numbers) => more(numbers.map((value) => Graph.values[value]), (value) => [code(value.name), " ", make("span", { class: "muted" }, value.type)]);
    const content = [
      make("h2", {}, record.title),
      facts([["nodes", nodes.length.toLocaleString("en")], ...(sheets.length > 1 ? [["functions and bodies", String(sheets.length - 1)]] : [])]),
    ];
    if (record.notes.length) content.push(section("Notes", more(record.notes, (note) => note)));
    content.push(
      section("Inputs", interface_(sheets[root.sheet].inputs)),
      section("Outputs", interface_(sheets[root.sheet].outputs)),
      section("Operators", more([...counts].sort((a, b) => b[1] - a[1]), ([op, count]) => `${op} ${count}`)),
    );
    return content;
  }

  /* Show an item; null for the model. *node* is the node meant where it is folded into the item's. */
  function show(it, node = it?.node) {
    const content = it === null ? ofModel() : node ? ofNode(it, node) : it.value ? ofValue(it) : ofBox(it);
    panel.querySelector(".content").replaceChildren(...content.filter(Boolean));
    panel.querySelector(".content").scrollTop = 0;
  }

  return { show, onGo: (handler) => { go = handler; } };
})();
