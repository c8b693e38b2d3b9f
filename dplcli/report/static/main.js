"use strict";
/* What happens when somebody does something: open, choose, walk, step, search, follow an address.
 *
 * There are one or two graphs, *records*; of two, *pairs* tells which nodes belong together. *steps*
 * are what led from the one to the other: a title, a text, and the nodes of each graph. What is
 * *apart*, patterns and a model, is moved and laid out each by itself. What *begins* at the first
 * step shows it at once. */
function makeView(root, records, { pairs, steps, apart = false, begins = false }, isPart) {
  const part = (id) => root.querySelector(`#${id}`);
  const view = root.querySelector(".view");
  const [panel, status, help] = ["details", "status", "help"].map(part);
  const panes = [...root.querySelectorAll(".picture")].map((each, side) => makePane(records[side], each, isPart));
  const content = panel.querySelector(".content");
  const models = panes.map(({ model }) => model);
  const details = panes.map(({ model, colours }) => makeDetails(model, content, colours));
  const pair = panes.length > 1 ? makePair(models, panes.map(({ layout }) => layout), pairs) : null;
  const finder = makeSearch(models, root, records.map(({ title }) => title));
  const MOST_SEEN = 3000;
  const MOST_READ = 300; // as many as a press of one button opens
  let chosen = null;
  let pane = panes[0]; // where somebody is
  let aside = 0; // how far to the right the second graph has what is in the first

  const sideOf = (it) => {
    while (it.parent) it = it.parent;
    return models.findIndex(({ root: top }) => top === it);
  };
  const paneOf = (it) => panes[sideOf(it)];
  const modelOf = (it) => models[sideOf(it)];
  const beside = (it) => (pair && !apart && it ? pair.partner(sideOf(it), it) : null);
  const focused = () => root.getRootNode().activeElement ?? null;

  /* Lay out and draw again; *still* stays where it is on the screen. */
  function redraw(still = null) {
    const hadFocus = panes.find(({ stage }) => stage.contains(focused()));
    const at = still ? sideOf(still) : -1;
    const shapes = pair && !apart ? pair.of() : panes.map((each, side) => each.layout.of(models[side].root));
    if (pair && !apart) aside = pair.aside(shapes);
    panes.forEach((each, side) => side !== at && each.draw(shapes[side]));
    if (at >= 0) panes[at].draw(shapes[at], still);
    else pane.camera.share();
    mark();
    if (hadFocus && chosen) paneOf(chosen).drawing.elements.get(chosen.key)?.focus({ preventScroll: true });
  }

  function mark() {
    if (chosen && !paneOf(chosen).drawing.elements.has(chosen.key)) chosen = null;
    const other = beside(chosen);
    for (const each of panes) {
      const { drawing } = each;
      const it = [chosen, other].find((item) => item && paneOf(item) === each);
      const element = it ? drawing.elements.get(it.key) : drawing.elements.values().next().value;
      for (const one of drawing.elements.values()) one.setAttribute("tabindex", "-1");
      element?.setAttribute("tabindex", "0");
      drawing.choose(it ?? null);
    }
  }

  function toggle(it, open = !modelOf(it).isOpen(it)) {
    const items = [it, beside(it)].filter((each) => each && modelOf(each).canOpen(each));
    if (!items.includes(it)) return;
    for (const each of items) modelOf(each).toggle(each, open);
    if (open && isFull()) {
      for (const each of items) modelOf(each).toggle(each, false);
      say(`More than ${MOST_SEEN.toLocaleString("en")} items would be seen; close something first.`);
      return;
    }
    redraw(it);
    if (chosen === it) tell(it);
    say(`${it.label} ${open ? "opened" : "closed"}`);
  }

  const isFull = (most = MOST_SEEN) => panes.some((each) => each.count(most) > most);

  let silence = 0;
  function say(text) {
    status.textContent = text;
    clearTimeout(silence);
    silence = setTimeout(() => {
      status.textContent = "";
    }, 5000);
  }

  /* Put a place into the address, unless this is a part of a report and has none. */
  function remember(place) {
    if (!isPart) history.replaceState(null, "", `#${place}`);
  }

  /* Show what is known of an item, and what stands for it in the other graph. */
  function tell(it, node) {
    if (it) pane = paneOf(it);
    const side = panes.indexOf(pane);
    const about = node ?? it?.node;
    const others = pair && about ? pair.partners(side, about) : [];
    const told = about ? steps.filter((each) => each[2 + side]?.includes(about.id)) : [];
    details[side].show(it, node, others, told.map(([title, text]) => text || title));
  }

  /* Choose an item: mark it, show what is known of it, and put it into the address. */
  function choose(it, { node, isQuiet = false, focus = true } = {}) {
    chosen = it;
    tell(it, node);
    mark();
    if (!it) {
      if (!isQuiet) remember("");
      return;
    }
    showDetails();
    if (focus) paneOf(it).drawing.elements.get(it.key)?.focus({ preventScroll: true });
    if (!isQuiet) remember(address(it, node));
  }

  /* Open everything round items, in both graphs. */
  function openRound(items) {
    let isNew = false;
    for (const it of items) {
      isNew = paneOf(it).openRound(it) || isNew;
      for (let outer = it.parent; pair && outer?.parent; outer = outer.parent) {
        const other = beside(outer);
        if (other && modelOf(other).canOpen(other)) modelOf(other).toggle(other, true);
      }
    }
    if (isNew) redraw();
  }

  /* Open everything round an item and go there. */
  function visit(it, node) {
    if (!it) return;
    openRound([it]);
    choose(it, { node });
    paneOf(it).camera.reveal(paneOf(it).spot(it), true);
  }

  /* What round a node: the item of a box at its first place. */
  function itemOfBox(model, box) {
    const node = model.nodesIn(box).next().value;
    for (let it = model.place(node); it; it = it.parent) if (it.box === box) return it;
    return null;
  }

  // Steps: what led from one graph to the other, one after the other.

  let current = -1;

  function goTo(number) {
    if (number < 0 || number >= steps.length) return;
    current = number;
    const [title, text, ...sides] = steps[number];
    const items = panes.map(({ model }, side) =>
      [...new Set((sides[side] ?? []).map((id) => model.place(model.nodes[id])))].filter(Boolean),
    );
    if (apart) for (const it of models[0].children(models[0].root)) models[0].toggle(it, false);
    openRound(items.flat());
    panes.forEach((each, side) => (apart && side === 0 ? each.point([]) : each.point(items[side], true))); // a pattern has its marks
    part("step").value = String(number);
    part("what").textContent = text || title;
    part("before").disabled = number === 0;
    part("next").disabled = number === steps.length - 1;
    const rects = panes.map((each, side) => each.round(items[side]));
    const seen = rects.map((rect, side) => (rect ? side : -1)).filter((side) => side >= 0);
    for (const side of apart ? seen : seen.slice(0, 1)) panes[side].camera.reveal(rects[side], true);
    for (const side of seen) panes[side].camera.peek(rects[side]); // where it is not at that height
  }

  function endSteps() {
    current = -1;
    for (const each of panes) each.point([]);
    part("step").value = "";
    part("what").textContent = "";
    part("before").disabled = true;
    part("next").disabled = false;
  }

  function offerSteps() {
    if (!steps.length) return;
    part("steps").hidden = false;
    part("step").options[0].textContent = `${steps.length.toLocaleString("en")} step${steps.length > 1 ? "s" : ""}, one by one`;
    steps.forEach(([title], number) => {
      const option = document.createElement("option");
      option.value = String(number);
      option.textContent = title;
      part("step").append(option);
    });
    part("step").addEventListener("change", ({ target }) => (target.value ? goTo(Number(target.value)) : endSteps()));
    part("before").addEventListener("click", () => goTo(current - 1));
    part("next").addEventListener("click", () => goTo(current + 1));
    endSteps();
  }

  // Addresses: #node=NAME, in functions #node=CALL/NAME, each part with its own slashes escaped.

  function address(it, node) {
    const names = [];
    for (let each = it; each && each.kind !== "root"; each = each.parent) {
      if (each === it || each.node || each.kind === "body")
        names.unshift(modelOf(it).nameOf(each === it && node ? { node } : each));
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
    const [model] = models;
    const [, kind, text] = location.hash.match(/^#(node|group|value)=(.*)$/s) ?? [];
    if (!kind) return false;
    const names = text.split("/").map(decoded);
    let outer = model.root;
    for (const [number, name] of names.entries()) {
      const isLast = number === names.length - 1;
      const found = search(model, outer, name, isLast ? kind : "node");
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
  function search(model, outer, name, kind) {
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
    const from = chosen && paneOf(chosen).spot(chosen);
    if (!from) {
      const [first] = pane.spots();
      if (first) choose(first.it);
      return;
    }
    const siblings = pane.spots().filter((spot) => spot.it.parent === chosen.parent && spot !== from);
    const middle = (spot) => spot.x + spot.width / 2;
    const isDown = key === "ArrowDown",
      isUp = key === "ArrowUp";
    const candidates =
      isDown || isUp
        ? joined(isDown)
            .map((it) => pane.spot(it))
            .filter(Boolean)
        : siblings.filter(
            (spot) =>
              (key === "ArrowRight" ? middle(spot) > middle(from) : middle(spot) < middle(from)) &&
              spot.y < from.y + from.height &&
              spot.y + spot.height > from.y,
          );
    const fallback =
      isDown || isUp
        ? siblings.filter((spot) => (isDown ? spot.y >= from.y + from.height : spot.y + spot.height <= from.y))
        : [];
    const distance = (spot) =>
      Math.abs(middle(spot) - middle(from)) +
      3 * Math.min(Math.abs(spot.y - from.y - from.height), Math.abs(from.y - spot.y - spot.height));
    const next = (candidates.length ? candidates : fallback).sort((a, b) => distance(a) - distance(b))[0];
    if (!next) return;
    choose(next.it);
    pane.camera.reveal(next);
  }

  /* The items at the other ends of the edges that leave, or come in. */
  function joined(isDown) {
    const id = (it) => it.key.slice(it.key.lastIndexOf("/") + 1);
    const [near, far] = isDown ? ["from", "to"] : ["to", "from"];
    const ends = new Set(
      pane.model
        .wiringOf(chosen.parent)
        .edges.filter((edge) => edge[near] === id(chosen))
        .map((edge) => edge[far]),
    );
    return pane.model.children(chosen.parent).filter((it) => ends.has(id(it)));
  }

  function enter() {
    if (!chosen) return;
    if (pane.model.canOpen(chosen)) toggle(chosen);
    else panel.querySelector("button.link")?.focus();
  }

  function leave() {
    if (help.open) help.close();
    else if (current >= 0) endSteps();
    else if (panel.contains(focused()) && chosen) pane.drawing.elements.get(chosen.key)?.focus({ preventScroll: true });
    else if (chosen && chosen.parent.kind !== "root") {
      choose(chosen.parent);
      pane.camera.reveal(pane.spot(chosen));
    } else {
      choose(null);
      hideDetails();
    }
  }

  function hideDetails() {
    panel.hidden = true;
  }

  function showDetails() {
    panel.hidden = false;
  }

  /* Show all: what is widest decides. No other pane is left empty by that. */
  function fit(least) {
    const widest = panes.reduce((one, other) => (other.width() > one.width() ? other : one));
    for (const each of apart ? panes : [widest]) each.camera.fit(least, each.spine());
    for (const each of panes) {
      const spots = each.spots();
      if (spots.length && !spots.some(each.camera.isSeen)) each.camera.peek(spots[0]);
    }
  }

  const keys = {
    "+": () => pane.camera.zoom(1.25),
    "=": () => pane.camera.zoom(1.25),
    "-": () => pane.camera.zoom(0.8),
    0: () => fit(),
    f: () => fit(),
    "/": () => finder.focus(),
    "?": () => help.showModal(),
    n: () => goTo(current + 1),
    p: () => goTo(current - 1),
    Escape: leave,
    Enter: enter,
    " ": enter,
  };

  root.addEventListener("keydown", (event) => {
    const isField = event.target.closest("input, select, summary");
    const isButton = event.target.closest("button");
    if (isField || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isButton && (event.key === "Enter" || event.key === " ")) return;
    if (event.key.startsWith("Arrow") && !event.target.closest("aside")) {
      if (event.shiftKey) {
        const [dx, dy] = { ArrowUp: [0, 80], ArrowDown: [0, -80], ArrowLeft: [80, 0], ArrowRight: [-80, 0] }[
          event.key
        ];
        pane.camera.move(dx, dy);
      } else step(event.key);
    } else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  });

  for (const each of panes) {
    each.stage.addEventListener("click", (event) => {
      pane = each;
      if (each.camera.wasDragged()) return;
      const element = event.target.closest("g.item");
      if (!element) {
        choose(null);
        return;
      }
      const { it } = each.spotOf(element.dataset.key);
      const isToggle = event.target.closest(".toggle");
      if (isToggle || (chosen === it && each.model.canOpen(it) && event.detail > 1)) toggle(it);
      choose(it);
    });
    // Where the keyboard goes, as with Tab, the item is chosen that is there.
    each.stage.addEventListener("focusin", (event) => {
      const spot = each.spotOf(event.target.dataset?.key);
      if (spot && spot.it !== chosen && event.target.matches(":focus-visible")) choose(spot.it, { focus: false });
    });
    if (pair && !apart) {
      const other = panes[1 - panes.indexOf(each)];
      each.camera.onMove((seen) => other.camera.follow(seen, other === panes[1] ? aside : -aside));
    }
    new ResizeObserver(() => each.stage.hasAttribute("viewBox") || each.camera.apply()).observe(each.stage);
  }

  const buttons = {
    fit: () => fit(),
    closer: () => pane.camera.zoom(1.25),
    farther: () => pane.camera.zoom(0.8),
    keys: () => help.showModal(),
    about: () => {
      if (panel.hidden) {
        choose(null);
        showDetails();
      } else hideDetails();
    },
    shut: () => {
      choose(null);
      hideDetails();
    },
    openAll: () => level(true),
    closeAll: () => level(false),
  };
  for (const [id, act] of Object.entries(buttons)) part(id).addEventListener("click", act);

  /* Open the next level of groups, or close all. Where that is too much to read, the groups on the
   * screen open, as many as can be read. */
  function level(open) {
    const changed = panes.flatMap(({ model }) => {
      const seen = [...model.visible()];
      if (!open) return seen;
      const shut = seen.filter((it) => it.kind === "box" && !model.isOpen(it));
      return shut.length ? shut : seen.filter((it) => !model.isOpen(it) && model.canOpen(it));
    });
    for (const it of changed) modelOf(it).toggle(it, open);
    if (!open || !isFull(MOST_READ)) {
      if (open && !apart) pair?.open();
      redraw();
      fit(0.25);
      return;
    }
    for (const it of changed) modelOf(it).toggle(it, false);
    const near = changed.filter((it) => paneOf(it).camera.isSeen(paneOf(it).spot(it)));
    const opened = near.filter((it) => {
      modelOf(it).toggle(it, true);
      if (isFull(MOST_READ)) modelOf(it).toggle(it, false);
      return modelOf(it).isOpen(it);
    });
    if (opened.length) {
      if (!apart) pair?.open();
      redraw(opened[0]);
    }
    say(`${opened.length} of ${changed.length.toLocaleString("en")} groups opened, of those on the screen; more could not be read.`);
  }

  details.forEach((each, side) =>
    each.onGo((node, it, isOther) => {
      const at = isOther ? 1 - side : side;
      if (node) visit(isOther ? models[at].place(node) : models[at].near(it, node), node);
      else toggle(it);
      if (!node) choose(it);
    }),
  );
  finder.onGo(({ side, node, box, end }) => {
    const model = models[side];
    visit(end ?? (node ? model.place(node) : itemOfBox(model, box)), node);
  });
  if (!isPart) window.addEventListener("hashchange", follow);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => panes.forEach((each) => each.camera.apply()));
  window.addEventListener("beforeprint", () => panes.forEach((each) => each.print(true)));
  window.addEventListener("afterprint", () => panes.forEach((each) => each.print(false)));

  // What colours mean: the classes that occur and what is to be seen of nodes, or the steps of a number.

  const nodes = models.flatMap((model) => model.nodes);
  const KIND_NAMES = { part: "part of a pattern", "out-fusable": "heavy (out-fusable)", injective: "moves data (injective)", other: "other domain" };

  function explainColours(by) {
    const line = (className, text) => {
      const found = document.createElement("li");
      found.className = className;
      found.textContent = text;
      return found;
    };
    const used = new Set(nodes.map((node) => node.kind));
    const kinds = models[0].record.kinds.filter((each) => used.has(each));
    const steps = COLOURINGS[by]?.steps.map(([, text, name], step) => line(name ?? `step-${step}`, text));
    const marks = [...new Set(nodes.map((node) => node.mark).filter(Boolean))];
    root.querySelector("#legend ul").replaceChildren(
      ...(steps ?? kinds.map((kind) => line(kind, KIND_NAMES[kind] ?? kind))),
      ...(steps ? [line("unknown", "not known")] : []),
      ...marks.map((mark) => line(`mark-${mark.split(" ")[0]}`, mark)),
    );
    const sizes = by === "cost" ? [...new Set(models.flatMap(({ record }) => record.open))] : [];
    const wanted = sizes.length ? ` Some depend on sizes: dpl view ${sizes.map((size) => `--shape ${size}=N`).join(" ")}` : "";
    part("about-colours").textContent = `${COLOURINGS[by]?.about ?? ""}${wanted}`;
  }

  function colour(by) {
    for (const { colours, layout } of panes) {
      colours.choose(by);
      layout.forget();
    }
    pair?.forget();
    view.classList.toggle("by-number", by !== "");
    explainColours(by);
    part("colours").value = by;
    redraw(chosen);
  }

  function offerColours() {
    const offered = [...new Set(panes.flatMap(({ colours }) => colours.offered()))];
    part("colours").hidden = !offered.length;
    for (const by of offered) {
      const option = document.createElement("option");
      option.value = by;
      option.textContent = `by ${COLOURINGS[by].title}`;
      part("colours").append(option);
    }
    part("colours").addEventListener("change", ({ target }) => colour(target.value));
    explainColours("");
    return offered;
  }

  if (pair || view.clientWidth < 700) hideDetails();
  if (view.clientWidth < 700) part("legend").open = false;
  const offered = offerColours();
  offerSteps();
  details[0].show(null);
  if (!apart) pair?.open();
  if (offered.includes("error")) colour("error");
  else redraw();
  if (isPart || !follow()) fit(0.7);
  if (begins) goTo(0);
}

/* Show the graphs of this page: all of it, or the part of a report, once somebody comes near. */
function showGraphs() {
  const read = (element) => JSON.parse(element.textContent);
  const records = [...document.querySelectorAll("script.graph")];
  const beside = document.querySelector("script.beside");
  const host = document.querySelector("#graphs");
  const start = () => {
    const place = host ?? document.body;
    if (place.dataset.ready) return;
    makeView(host?.shadowRoot ?? place, records.map(read), beside ? read(beside) : { pairs: [], steps: [] }, Boolean(host));
    place.dataset.ready = Math.round(performance.now()); // since the page was asked for
  };
  if (!host) {
    start();
    return;
  }
  new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && start(), { rootMargin: "600px" }).observe(host);
  window.addEventListener("beforeprint", start);
}

if (document.querySelector("script.graph")) showGraphs();
