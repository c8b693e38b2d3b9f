"use strict";
/* What happens when somebody does something: open, choose, walk, search, follow an address. */
function makeView(root, record) {
  const part = (id) => root.querySelector(`#${id}`);
  const [stage, panel, status, help] = ["stage", "details", "status", "help"].map(part);
  const model = makeModel(record);
  const layout = makeLayout(model);
  const drawing = makeDrawing(model, stage);
  const camera = makeCamera(stage, part("map"));
  const details = makeDetails(model, panel.querySelector(".content"));
  const finder = makeSearch(model, root);
  const MOST_SEEN = 3000;
  let chosen = null;
  let spots = new Map();

  /* Where each item is in the whole picture. */
  function locate(shape) {
    const found = new Map();
    const pending = [[shape, 0, 0]];
    while (pending.length) {
      const [outer, left, top] = pending.pop();
      for (const { shape: inner, x, y } of outer.places) {
        const spot = {
          it: inner.it,
          x: left + x,
          y: top + y,
          width: inner.width,
          height: inner.height,
          isOpen: inner.isOpen,
        };
        found.set(inner.it.key, spot);
        if (inner.isOpen) pending.push([inner, spot.x, spot.y]);
      }
    }
    return found;
  }

  /* Lay out and draw again; *still* stays where it is on the screen. */
  function redraw(still = null) {
    const before = still && spots.get(still.key);
    const place = before && camera.onScreen({ x: before.x + before.width / 2, y: before.y });
    const hadFocus = stage.contains(document.activeElement);
    const shape = layout.of(model.root);
    spots = locate(shape);
    drawing.all(shape);
    camera.show(shape, [...spots.values()]);
    const after = still && spots.get(still.key);
    if (place && after) camera.hold({ x: after.x + after.width / 2, y: after.y }, place);
    mark();
    if (hadFocus && chosen) drawing.elements.get(chosen.key).focus({ preventScroll: true });
  }

  function mark() {
    if (chosen && !drawing.elements.has(chosen.key)) chosen = null;
    const first = chosen ? drawing.elements.get(chosen.key) : drawing.elements.values().next().value;
    for (const element of drawing.elements.values()) element.setAttribute("tabindex", "-1");
    first?.setAttribute("tabindex", "0");
    if (chosen) drawing.choose(chosen, true);
  }

  function toggle(it, open = !model.isOpen(it)) {
    if (!model.canOpen(it)) return;
    model.toggle(it, open);
    if (open && count() > MOST_SEEN) {
      model.toggle(it, false);
      say(`More than ${MOST_SEEN.toLocaleString("en")} items would be seen; close something first.`);
      return;
    }
    redraw(it);
    if (chosen === it) details.show(it);
    say(`${it.label} ${open ? "opened" : "closed"}`);
  }

  function count() {
    let seen = 0;
    for (const _ of model.visible()) if (++seen > MOST_SEEN) break;
    return seen;
  }

  let silence = 0;
  function say(text) {
    status.textContent = text;
    clearTimeout(silence);
    silence = setTimeout(() => {
      status.textContent = "";
    }, 5000);
  }

  /* Put a place into the address, unless this page is a part of a report and has none. */
  function remember(place) {
    if (location.protocol !== "about:") history.replaceState(null, "", `#${place}`);
  }

  /* Choose an item: mark it, show what is known of it, and put it into the address. */
  function choose(it, { node, isQuiet = false, focus = true } = {}) {
    if (chosen) drawing.choose(chosen, false);
    chosen = it;
    details.show(it, node);
    if (!it) {
      if (!isQuiet) remember("");
      return;
    }
    panel.hidden = false;
    root.classList.add("with-details");
    mark();
    if (focus) drawing.elements.get(it.key)?.focus({ preventScroll: true });
    if (!isQuiet) remember(address(it, node));
  }

  /* Open everything round an item and go there. */
  function visit(it, node) {
    if (!it) return;
    let isNew = false;
    for (let outer = it.parent; outer && outer.kind !== "root"; outer = outer.parent) {
      if (!model.isOpen(outer)) {
        model.toggle(outer, true);
        isNew = true;
      }
    }
    if (isNew) redraw();
    choose(it, { node });
    camera.reveal(spots.get(it.key), true);
  }

  /* What round a node: the item of a box at its first place. */
  function itemOfBox(box) {
    const node = model.nodesIn(box).next().value;
    for (let it = model.place(node); it; it = it.parent) if (it.box === box) return it;
    return null;
  }

  // Addresses: #node=NAME, in functions #node=CALL/NAME, each part with its own slashes escaped.

  function address(it, node) {
    const names = [];
    for (let each = it; each && each.kind !== "root"; each = each.parent) {
      if (each === it || each.node || each.kind === "body")
        names.unshift(model.nameOf(each === it && node ? { node } : each));
    }
    return `${it.node ? "node" : it.value ? "value" : "group"}=${names.map(encodeURIComponent).join("/")}`;
  }

  function decoded(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  }

  function follow() {
    const [, kind, text] = location.hash.match(/^#(node|group|value)=(.*)$/s) ?? [];
    if (!kind) return false;
    const names = text.split("/").map(decoded);
    let outer = model.root;
    for (const [number, name] of names.entries()) {
      const isLast = number === names.length - 1;
      const found = search(outer, name, isLast ? kind : "node");
      if (!found) {
        say(`There is no ${kind} ${name} here.`);
        return false;
      }
      if (isLast) visit(found.it, found.node);
      else outer = found.it;
    }
    return true;
  }

  /* Find a name among what an item shows, in its boxes too. */
  function search(outer, name, kind) {
    const pending = [...model.children(outer)];
    while (pending.length) {
      const it = pending.shift();
      if (it.kind === "box") pending.push(...model.children(it));
      if (it.kind === "box" && kind !== "group") continue;
      if ((kind === "value") !== Boolean(it.value)) continue;
      const held = (it.node?.holds ?? []).map((id) => model.nodes[id]);
      for (const node of [it.node, ...held]) {
        if (
          kind !== "group" &&
          node &&
          (node.name === name || node.outputs.some((value) => model.values[value]?.name === name))
        )
          return { it, node };
      }
      if (!it.node && model.nameOf(it) === name) return { it };
      if (it.node && model.nameOf(it) === name) return { it };
    }
    return null;
  }

  // Walking with the keyboard: to what reads, to what makes, to the neighbour.

  function step(key) {
    const from = chosen && spots.get(chosen.key);
    if (!from) {
      const first = spots.values().next().value;
      if (first) choose(first.it);
      return;
    }
    const beside = [...spots.values()].filter((spot) => spot.it.parent === chosen.parent && spot !== from);
    const middle = (spot) => spot.x + spot.width / 2;
    const isDown = key === "ArrowDown",
      isUp = key === "ArrowUp";
    const candidates =
      isDown || isUp
        ? joined(isDown)
            .map((it) => spots.get(it.key))
            .filter(Boolean)
        : beside.filter(
            (spot) =>
              (key === "ArrowRight" ? middle(spot) > middle(from) : middle(spot) < middle(from)) &&
              spot.y < from.y + from.height &&
              spot.y + spot.height > from.y,
          );
    const fallback =
      isDown || isUp
        ? beside.filter((spot) => (isDown ? spot.y >= from.y + from.height : spot.y + spot.height <= from.y))
        : [];
    const distance = (spot) =>
      Math.abs(middle(spot) - middle(from)) +
      3 * Math.min(Math.abs(spot.y - from.y - from.height), Math.abs(from.y - spot.y - spot.height));
    const next = (candidates.length ? candidates : fallback).sort((a, b) => distance(a) - distance(b))[0];
    if (!next) return;
    choose(next.it);
    camera.reveal(next);
  }

  /* The items at the other ends of the edges that leave, or come in. */
  function joined(isDown) {
    const id = (it) => it.key.slice(it.key.lastIndexOf("/") + 1);
    const [near, far] = isDown ? ["from", "to"] : ["to", "from"];
    const ends = new Set(
      model
        .wiringOf(chosen.parent)
        .edges.filter((edge) => edge[near] === id(chosen))
        .map((edge) => edge[far]),
    );
    return model.children(chosen.parent).filter((it) => ends.has(id(it)));
  }

  function enter() {
    if (!chosen) return;
    if (model.canOpen(chosen)) toggle(chosen);
    else panel.querySelector("button.link")?.focus();
  }

  function leave() {
    if (help.open) help.close();
    else if (panel.contains(document.activeElement) && chosen)
      drawing.elements.get(chosen.key)?.focus({ preventScroll: true });
    else if (chosen && chosen.parent.kind !== "root") {
      choose(chosen.parent);
      camera.reveal(spots.get(chosen.key));
    } else {
      choose(null);
      hideDetails();
    }
  }

  function hideDetails() {
    panel.hidden = true;
    root.classList.remove("with-details");
    camera.apply();
  }

  const keys = {
    "+": () => camera.zoom(1.25),
    "=": () => camera.zoom(1.25),
    "-": () => camera.zoom(0.8),
    0: () => camera.fit(),
    f: () => camera.fit(),
    "/": () => finder.focus(),
    "?": () => help.showModal(),
    Escape: leave,
    Enter: enter,
    " ": enter,
  };

  root.addEventListener("keydown", (event) => {
    const isField = event.target.closest("input, summary");
    const isButton = event.target.closest("button");
    if (isField || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isButton && (event.key === "Enter" || event.key === " ")) return;
    if (event.key.startsWith("Arrow") && !event.target.closest("aside")) {
      if (event.shiftKey) {
        const [dx, dy] = { ArrowUp: [0, 80], ArrowDown: [0, -80], ArrowLeft: [80, 0], ArrowRight: [-80, 0] }[
          event.key
        ];
        camera.move(dx, dy);
      } else step(event.key);
    } else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  });

  stage.addEventListener("click", (event) => {
    if (camera.wasDragged()) return;
    const element = event.target.closest("g.item");
    if (!element) {
      choose(null);
      return;
    }
    const { it } = spots.get(element.dataset.key);
    const isToggle = event.target.closest(".toggle");
    if (isToggle || (chosen === it && model.canOpen(it) && event.detail > 1)) toggle(it);
    choose(it);
  });
  // Where the keyboard goes, as with Tab, the item is chosen that is there.
  stage.addEventListener("focusin", (event) => {
    const spot = spots.get(event.target.dataset?.key);
    if (spot && spot.it !== chosen && event.target.matches(":focus-visible")) choose(spot.it, { focus: false });
  });

  const buttons = {
    fit: () => camera.fit(),
    closer: () => camera.zoom(1.25),
    farther: () => camera.zoom(0.8),
    keys: () => help.showModal(),
    about: () => {
      if (panel.hidden) {
        choose(null);
        panel.hidden = false;
        root.classList.add("with-details");
      } else hideDetails();
      camera.apply();
    },
    shut: () => {
      choose(null);
      hideDetails();
    },
    openAll: () => level(true),
    closeAll: () => level(false),
  };
  for (const [id, act] of Object.entries(buttons)) part(id).addEventListener("click", act);

  /* Open the next level of groups, or close all. */
  function level(open) {
    const seen = [...model.visible()];
    if (!open) for (const it of seen) model.toggle(it, false);
    const shut = open ? seen.filter((it) => it.kind === "box" && !model.isOpen(it)) : [];
    const next = shut.length ? shut : open ? seen.filter((it) => !model.isOpen(it) && model.canOpen(it)) : [];
    for (const it of next) model.toggle(it, true);
    if (open && count() > MOST_SEEN) {
      for (const it of next) model.toggle(it, false);
      say(`More than ${MOST_SEEN.toLocaleString("en")} items would be seen; open groups one by one.`);
      return;
    }
    redraw();
    camera.fit(0.25);
  }

  details.onGo((node, it) => {
    if (node) visit(model.near(it, node), node);
    else toggle(it);
    if (!node) choose(it);
  });
  finder.onGo(({ node, box, end }) => visit(end ?? (node ? model.place(node) : itemOfBox(box)), node));
  window.addEventListener("hashchange", follow);
  window.addEventListener("resize", () => camera.apply());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => camera.apply());
  window.addEventListener("beforeprint", () => {
    const { width, height } = layout.of(model.root);
    stage.setAttribute("viewBox", `0 0 ${width} ${height}`);
    part("scene").removeAttribute("transform");
  });
  window.addEventListener("afterprint", () => {
    stage.removeAttribute("viewBox");
    camera.apply();
  });

  // The legend has the classes that occur.
  const used = new Set(model.nodes.map((node) => node.kind));
  const legend = root.querySelector("#legend ul");
  for (const kind of model.record.kinds.filter((each) => used.has(each))) {
    const line = document.createElement("li");
    line.className = kind;
    line.textContent =
      { "out-fusable": "heavy (out-fusable)", injective: "moves data (injective)", other: "other domain" }[kind] ??
      kind;
    legend.append(line);
  }

  for (const mark of new Set(model.nodes.map((node) => node.mark).filter(Boolean))) {
    const line = document.createElement("li");
    line.className = `mark-${mark.split(" ")[0]}`;
    line.textContent = mark;
    legend.append(line);
  }

  if (innerWidth < 700) {
    hideDetails();
    part("legend").open = false;
  } else root.classList.add("with-details");
  details.show(null);
  redraw();
  if (!follow()) camera.fit(0.7);
}

makeView(document.body, JSON.parse(document.getElementById("graph").textContent));
document.body.dataset.ready = Math.round(performance.now()); // since the page was asked for
