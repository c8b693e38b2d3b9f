"use strict";
/* The panel beside the picture: what is known of the item that is chosen, or of the model. */
function makeDetails(model, content, colours) {
  const MOST = 60;
  let go = () => {};

  function make(tag, attributes = {}, ...parts) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...parts.flat().filter((part) => part !== ""));
    return element;
  }

  const number = (count) => count.toLocaleString("en");
  const code = (text) => make("code", {}, text);
  const line = (...parts) => make("div", {}, ...parts);
  const aside = (...parts) => make("div", { class: "muted" }, ...parts);
  const dim = (text) => make("span", { class: "muted" }, text);
  const title = (text) => make("h2", {}, text || "(no name)");

  function facts(pairs) {
    const rows = pairs.map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
    return make("dl", {}, ...rows.flat());
  }

  function list(all, draw) {
    const lines = all.slice(0, MOST).map((each) => make("li", {}, draw(each)));
    if (all.length > MOST) lines.push(make("li", { class: "muted" }, `and ${number(all.length - MOST)} more`));
    return make("ul", {}, ...lines);
  }

  /* A heading with a list below it; nothing where the list is empty. */
  function section(heading, all, draw) {
    return all.length ? make("section", {}, make("h3", {}, heading), list(all, draw)) : "";
  }

  function table(heading, texts) {
    const pairs = Object.entries(texts).map(([name, text]) => [name, code(text)]);
    return pairs.length ? make("section", {}, make("h3", {}, heading), facts(pairs)) : "";
  }

  function operators(nodes) {
    const counts = new Map();
    for (const { op } of nodes) counts.set(op, (counts.get(op) ?? 0) + 1);
    const most = [...counts].sort((a, b) => b[1] - a[1]);
    return section("Operators", most, ([op, count]) => `${op} ${number(count)}`);
  }

  /* A button that goes to a node, seen from an item; or to one of the other graph. */
  function link(node, it, isOther = false) {
    const button = make("button", { type: "button", class: "link" }, node.op, node.name ? dim(` ${node.name}`) : "");
    button.addEventListener("click", () => go(node, it, isOther));
    return button;
  }

  function toggle(it) {
    if (!model.canOpen(it)) return "";
    const button = make("button", { type: "button" }, model.isOpen(it) ? "Close" : "Open");
    button.addEventListener("click", () => go(null, it));
    return make("p", {}, button);
  }

  // Values.

  /* A value that is read: where it comes from, or what it holds. *role* is what the operator calls it. */
  function read(inner, it, role = "") {
    const value = model.givenFor(it, inner);
    const parts = [line(role ? dim(`${role} `) : "", code(inner.name), " ", dim(inner.type || value.type))];
    if (value !== inner) parts.push(aside("given by the call: ", code(value.name)));
    if (value.constant) parts.push(constant(value.constant));
    else if (value.producer)
      parts.push(line(model.isConstant(value) ? "constant, made by " : "from ", link(value.producer, it)));
    else parts.push(aside(model.sheets[0].inputs.includes(value.id) ? "an input" : "from outside"));
    return parts;
  }

  /* A value that is made: who reads it. */
  function made(value, it, role = "") {
    const readers = [...new Set(value.readers)];
    const isReturned = model.sheets.some((sheet) => sheet.outputs.includes(value.id));
    return [
      line(role ? dim(`${role} `) : "", code(value.name), " ", dim(value.type)),
      readers.length
        ? line(
            "to ",
            list(readers, (node) => link(node, it)),
          )
        : "",
      isReturned ? aside("an output") : readers.length ? "" : aside("no node reads it"),
    ];
  }

  function constant([type, count, first, low, high, rest]) {
    const hasRange = typeof low === "number";
    const { bins, looked, odd, why } = (hasRange ? rest : low) ?? {};
    return make(
      "div",
      { class: "constant", title: model.record.types[type] },
      line(dim("constant "), code((first.join(", ") || "empty") + (count > first.length ? ", …" : ""))),
      hasRange && count > 1 ? aside(`${number(count)} elements from ${low} to ${high}`) : "",
      bins ? histogram(bins, low, high) : "",
      looked ? aside(`${number(looked)} of them were looked at`) : "",
      odd ? aside(`${number(odd)} are infinite or no numbers`) : "",
      why ? aside(why) : "",
    );
  }

  function histogram(bins, low, high) {
    const most = Math.max(...bins);
    const label = `histogram from ${low} to ${high}`;
    const image = svgElement("svg", { viewBox: "0 0 160 36", class: "histogram", role: "img", "aria-label": label });
    bins.forEach((count, place) => {
      const height = count ? Math.max(1, (count / most) * 34) : 0;
      const bar = svgElement("rect", { x: place * 10 + 0.5, y: 35 - height, width: 9, height });
      bar.append(svgElement("title", {}, `${number(count)} elements`));
      image.append(bar);
    });
    image.append(svgElement("line", { x1: 0, x2: 160, y1: 35.5, y2: 35.5 }));
    return image;
  }

  // What is chosen.

  const valueOf = (id) => model.values[id];

  /* What a node reads or makes, each with the name that the operator, or the function, has for it. */
  function slots(values, names) {
    const found = values.map((id, slot) => ({ id, role: names[Math.min(slot, names.length - 1)] ?? "" }));
    return found.filter(({ id }) => id >= 0);
  }

  function ofNode(it, node, others, told) {
    const called = node.bodies.length === 1 ? model.sheets[node.bodies[0][1]] : null;
    const about = [
      ["here", node.mark],
      ["kind", node.kind],
      ["rule", called?.rule ?? node.metadata["dpl.rule"]],
      ["target", called?.target],
      ["calls of it", called?.callers.length > 1 ? number(called.callers.length) : ""],
      ...colours.facts(node),
    ];
    return [
      title(node.op),
      node.name ? make("p", { class: "long" }, code(node.name)) : "",
      facts(about.filter(([, text]) => text)),
      node.folded >= 0 ? aside("Computes a constant; drawn as part of ", link(model.nodes[node.folded], it)) : "",
      node.doc ? make("p", { class: "long" }, node.doc) : "",
      toggle(it),
      section("What was done", told, (text) => text),
      section("In the other graph", others, (other) => link(other, it, true)),
      section("Quantised ranges", node.ranges, ([role, low, high, how]) => [role ? dim(`${role} `) : "", `${low} to ${high}`, aside(how)]),
      table("Attributes", node.attributes),
      section("Inputs", slots(node.inputs, node.roles[0]), ({ id, role }) => read(valueOf(id), it, role)),
      section("Read by its bodies", node.captured, (id) => read(valueOf(id), it)),
      section("Outputs", slots(node.outputs, node.roles[1]), ({ id, role }) => made(valueOf(id), it, role)),
      section("Stands for", node.stands, ([op, name]) => [op, " ", code(name)]),
      section("Constants computed for it", node.holds, (id) => link(model.nodes[id], it)),
      table("Metadata", node.metadata),
    ];
  }

  const GROUPS = { scope: "module scope", repeat: "layers that are alike", chunk: "neighbouring nodes", shapes: "what computes sizes", sheet: "body" };

  function ofGroup(it) {
    const { ins, outs } = model.wiring(it.box);
    return [
      title(it.label),
      facts([
        ["kind", GROUPS[it.box.kind]],
        ["nodes", number(it.box.size)],
      ]),
      toggle(it),
      operators(model.nodesIn(it.box)),
      section("Comes in", ins, (id) => read(valueOf(id), it)),
      section("Leaves", outs, (id) => made(valueOf(id), it)),
    ];
  }

  function ofEnd(it) {
    const { value } = it;
    return [
      title(value.name),
      facts([
        ["kind", it.kind],
        ["type", code(value.type || "not known")],
      ]),
      it.kind === "input" ? section("Read by", [...new Set(value.readers)], (node) => link(node, it)) : "",
      it.kind === "output" && value.producer ? section("From", [value.producer], (node) => link(node, it)) : "",
    ];
  }

  function ofModel() {
    const { nodes, sheets, record } = model;
    const end = (id) => [code(valueOf(id).name), " ", dim(valueOf(id).type)];
    const counts = [
      ["nodes", number(nodes.length)],
      ["functions and bodies", number(sheets.length - 1)],
    ];
    return [
      title(record.title),
      facts(counts.slice(0, sheets.length)),
      section("Notes", record.notes, (note) => note),
      section("Inputs", sheets[0].inputs, end),
      section("Outputs", sheets[0].outputs, end),
      operators(nodes),
    ];
  }

  /* Show an item; null for the model. *node* is what is meant where it is folded into the item's. */
  function show(it, node = it?.node, others = [], told = []) {
    const parts = it === null ? ofModel() : node ? ofNode(it, node, others, told) : it.value ? ofEnd(it) : ofGroup(it);
    content.replaceChildren(...parts.filter((part) => part !== ""));
    content.scrollTop = 0;
  }

  function onGo(handler) {
    go = handler;
  }

  return { show, onGo };
}
