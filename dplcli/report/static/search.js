"use strict";
/* Find nodes by name, operator or value; groups, inputs and outputs by name. */
function makeSearch(models, root, titles) {
  const field = root.querySelector("#search");
  const list = root.querySelector("#found");
  const count = root.querySelector("#count");
  const MOST = 40;
  let results = [];
  let current = -1;
  let go = () => {};

  /* What is written of the nodes of each graph, in small letters: made when somebody searches. */
  let texts = null;
  function index() {
    texts ??= models.map((model) =>
      model.nodes.map((node) => {
        const values = node.outputs.concat(
          node.inputs.filter((value) => value >= 0 && model.isConstant(model.values[value])),
        );
        return [node.op, node.name, ...values.map((value) => model.values[value]?.name ?? "")].join("\n").toLowerCase();
      }),
    );
    return texts;
  }

  /* How well a node fits: its operator or its name as a whole, the beginning of a part, or any part. */
  function fit(text, query) {
    const at = text.indexOf(query);
    if (at < 0) return 0;
    const lines = text.split("\n");
    if (lines.includes(query)) return 3;
    return lines.some((line) => line.startsWith(query) || line.includes(`/${query}`)) ? 2 : 1;
  }

  function find(query) {
    const words = query.trim().toLowerCase();
    if (!words) return [];
    const found = [];
    models.forEach((model, side) => {
      index()[side].forEach((text, number) => {
        const score = fit(text, words);
        if (score) found.push({ score, side, node: model.nodes[number] });
      });
      for (const box of model.boxes) {
        if (!box.label || box.kind === "chunk" || !box.items.length) continue;
        const score = fit(box.label.toLowerCase(), words);
        if (score) found.push({ score: score + 0.5, side, box });
      }
      for (const end of model.children(model.root).filter((each) => each.value)) {
        const score = fit(end.label.toLowerCase(), words);
        if (score) found.push({ score: score + 0.5, side, end });
      }
    });
    return found.sort((a, b) => b.score - a.score);
  }

  function update() {
    results = find(field.value);
    current = -1;
    list.replaceChildren(...results.slice(0, MOST).map(option));
    list.hidden = !results.length;
    field.setAttribute("aria-expanded", String(results.length > 0));
    field.removeAttribute("aria-activedescendant");
    const shown = results.length > MOST ? `, the first ${MOST} are listed` : "";
    count.textContent = field.value.trim() ? `${results.length.toLocaleString("en")} found${shown}` : "";
  }

  function option({ side, node, box, end }, number) {
    const line = document.createElement("li");
    line.id = `found-${number}`;
    line.setAttribute("role", "option");
    line.setAttribute("aria-selected", "false");
    const name = document.createElement("b");
    name.textContent = node ? node.op : box ? box.label : end.label;
    const rest = document.createElement("span");
    const what = node
      ? models[side].nameOf({ node })
      : box
        ? `group of ${box.size} nodes`
        : `${end.kind} of the model`;
    rest.textContent = models.length > 1 ? `${what} (${titles[side]})` : what;
    line.append(name, " ", rest);
    line.addEventListener("pointerdown", (event) => event.preventDefault());
    line.addEventListener("click", () => choose(number));
    return line;
  }

  function choose(number) {
    const result = results[number];
    if (!result) return;
    mark(number);
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    go(result);
  }

  function mark(number) {
    list.children[current]?.setAttribute("aria-selected", "false");
    current = number;
    const line = list.children[number];
    if (!line) return;
    line.setAttribute("aria-selected", "true");
    line.scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", line.id);
  }

  function close() {
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.blur();
  }

  field.addEventListener("input", update);
  field.addEventListener("focus", () => {
    if (results.length) list.hidden = false;
  });
  field.addEventListener("blur", () => {
    list.hidden = true;
  });
  field.addEventListener("keydown", (event) => {
    const last = Math.min(results.length, MOST) - 1;
    if (event.key === "ArrowDown") mark(Math.min(last, current + 1));
    else if (event.key === "ArrowUp") mark(Math.max(0, current - 1));
    else if (event.key === "Enter")
      choose(list.hidden && current >= 0 ? (current + 1) % (last + 1) : Math.max(0, current));
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  return {
    focus: () => {
      field.focus();
      field.select();
    },
    onGo: (handler) => {
      go = handler;
    },
  };
}
