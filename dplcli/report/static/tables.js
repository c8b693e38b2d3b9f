"use strict";
// Tables of a report: search, sort, group, CSV. Rows are made as far as somebody scrolls.

const CHUNK = 200;
const FEW = 6; // smaller tables need no tools
const MOST_GROUPS = 60;
const MOST_PRINTED = 50; // as in the style of the page
const GROUPABLE = new Set(["rule", "scope", "operator", "root", "stage", "level", "verdict",
  "target", "function", "severity", "left out", "block", "change"]);
const UNITS = {"%": 1, times: 100, FLOP: 1, kFLOP: 1e3, MFLOP: 1e6, GFLOP: 1e9, TFLOP: 1e12,
  PFLOP: 1e15};

/** Return the number that a text says, or null. */
function measure(text) {
  if (text === "infinite") return Infinity;
  const found = /^[<>]?\s*(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*(%|times|[kMGTP]?FLOP)?$/.exec(text);
  return found && parseFloat(found[1].replaceAll(",", "")) * (UNITS[found[2]] ?? 1);
}

/** Return an element with attributes and children. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

class ReportTable {
  constructor(box) {
    this.table = box.querySelector("table");
    this.body = this.table.tBodies[0];
    this.heads = [...this.table.tHead.rows[0].cells];
    this.titles = this.heads.map((head) => head.textContent);
    this.looks = this.heads.map((head) => head.className);
    this.rows = [...this.body.rows].map((row) => [...row.cells].map((cell) => {
      const mood = cell.dataset.mood ?? "";
      return [cell.textContent, mood];
    }));
    const more = box.nextElementSibling;
    if (more?.matches("script.rows")) {
      for (const row of JSON.parse(more.textContent)) {
        this.rows.push(row.map((cell) => (typeof cell === "string" ? [cell, ""] : cell)));
      }
    }
    this.query = "";
    this.sorted = null;
    this.direction = 1;
    this.group = -1;
    this.closed = new Set();
    if (this.rows.length < FEW) return;
    this.addTools(box);
    this.sentinel = make("tr", {"aria-hidden": "true"}, make("td", {colspan: this.heads.length}));
    new IntersectionObserver((seen) => {
      if (seen.some((entry) => entry.isIntersecting)) this.append(CHUNK);
    }, {root: box, rootMargin: "400px"}).observe(this.sentinel);
    this.show();
  }

  addTools(box) {
    const caption = this.table.caption.textContent;
    const search = make("input", {type: "search", placeholder: "Search", size: 18,
      "aria-label": `Search ${caption}`, title: "Words, or a column and a word: rule:conv"});
    search.addEventListener("input", () => { this.query = search.value; this.show(); });
    this.said = make("output", {"aria-live": "polite"});
    const csv = make("button", {type: "button"}, "CSV");
    csv.addEventListener("click", () => this.download(caption));
    const tools = make("div", {class: "tools", role: "search", "aria-label": caption}, search);
    const groups = this.titles.map((title, column) => [title, column])
      .filter(([, column]) => this.isGroupable(column));
    if (groups.length) {
      const select = make("select", {"aria-label": `Group ${caption}`},
        make("option", {value: -1}, "not grouped"),
        ...groups.map(([title, column]) => make("option", {value: column}, `by ${title}`)));
      select.addEventListener("change", () => {
        this.group = Number(select.value);
        this.closed = new Set(this.rows.length > CHUNK ? this.values(this.group) : []);
        this.show();
      });
      tools.append(select);
    }
    tools.append(csv, this.said);
    box.before(tools);
    if (this.rows.length > MOST_PRINTED) {
      box.after(make("p", {class: "muted paper"}, `The first ${MOST_PRINTED} rows are on paper.`));
    }
    this.heads.forEach((head, column) => {
      const button = make("button", {type: "button"}, ...head.childNodes);
      button.addEventListener("click", () => this.sort(column));
      head.append(button);
    });
  }

  values(column) {
    return new Set(column < 0 ? [] : this.rows.map((row) => row[column][0]));
  }

  isGroupable(column) {
    if (!GROUPABLE.has(this.titles[column])) return false;
    const count = this.values(column).size;
    return count > 1 && count <= MOST_GROUPS && count < this.rows.length;
  }

  sort(column) {
    this.direction = this.sorted === column ? -this.direction : 1;
    this.sorted = column;
    this.heads.forEach((head, at) => {
      if (at === column) head.setAttribute("aria-sort", this.direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.show();
  }

  /** Return the rows that are searched for, in the order that is wanted. */
  chosen() {
    const words = this.query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
      const colon = word.indexOf(":");
      const column = colon > 0 ? this.titles.findIndex(
        (title) => title.toLowerCase().startsWith(word.slice(0, colon))) : -1;
      return column < 0 ? [null, word] : [column, word.slice(colon + 1)];
    });
    const has = (row, [column, word]) => (column === null ? row : [row[column]])
      .some(([text]) => text.toLowerCase().includes(word));
    const rows = this.rows.filter((row) => words.every((word) => has(row, word)));
    if (this.sorted === null) return rows;
    const keys = new Map(rows.map((row) => [row, this.key(row[this.sorted][0])]));
    return rows.sort((a, b) => this.compare(keys.get(a), keys.get(b)));
  }

  key(text) {
    return text === "" ? null : this.looks[this.sorted] === "number" ? measure(text) ?? text : text;
  }

  compare(a, b) {
    if (a === null || b === null) return (a === null) - (b === null); // blanks come last
    const order = typeof a === "number" && typeof b === "number" ? a - b
      : String(a).localeCompare(String(b), "en", {numeric: true});
    return this.direction * order;
  }

  show() {
    const rows = this.chosen();
    this.items = rows;
    if (this.group >= 0) {
      const groups = Map.groupBy ? Map.groupBy(rows, (row) => row[this.group][0])
        : rows.reduce((all, row) => all.set(row[this.group][0],
          [...(all.get(row[this.group][0]) ?? []), row]), new Map());
      this.items = [...groups].flatMap(([value, of]) =>
        [{value, count: of.length}, ...(this.closed.has(value) ? [] : of)]);
    }
    const count = this.rows.length.toLocaleString("en");
    this.said.textContent = rows.length === this.rows.length ? `${count} rows`
      : `${rows.length.toLocaleString("en")} of ${count} rows`;
    this.made = 0;
    this.body.replaceChildren(this.sentinel);
    this.append(CHUNK);
  }

  append(count) {
    const next = this.items.slice(this.made, this.made + count);
    this.made += next.length;
    this.sentinel.before(...next.map((item) => (Array.isArray(item) ? this.row(item) : this.head(item))));
    if (this.made >= this.items.length) this.sentinel.remove();
  }

  row(cells) {
    return make("tr", {}, ...cells.map(([text, mood], column) => {
      const look = this.looks[column];
      const inner = look === "name" ? make("code", {}, text) : text;
      const attributes = {class: `${look} ${mood}`.trim(), ...(mood && {"data-mood": mood})};
      return look === "name" ? make("th", {scope: "row", ...attributes}, inner) : make("td", attributes, inner);
    }));
  }

  head({value, count}) {
    const isOpen = !this.closed.has(value);
    const button = make("button", {type: "button", "aria-expanded": isOpen},
      `${isOpen ? "▾" : "▸"} ${value || "(none)"}`, make("span", {class: "muted"}, ` ${count.toLocaleString("en")}`));
    button.addEventListener("click", () => {
      if (!this.closed.delete(value)) this.closed.add(value);
      this.show();
    });
    return make("tr", {class: "group"},
      make("th", {colspan: this.heads.length, scope: "rowgroup"}, button));
  }

  download(caption) {
    const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = [this.titles, ...this.chosen().map((row) => row.map(([text]) => text))];
    const text = lines.map((line) => line.map(quote).join(",")).join("\r\n");
    const link = make("a", {download: `${caption.toLowerCase().replaceAll(/\W+/g, "-")}.csv`,
      href: URL.createObjectURL(new Blob([`${text}\r\n`], {type: "text/csv"}))});
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

/** What is farther to the right is cut off softly, so that a reader knows of it. */
function hintMore(box) {
  const look = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  box.addEventListener("scroll", look, {passive: true});
  new ResizeObserver(look).observe(box.querySelector("table"));
  new ResizeObserver(look).observe(box);
}

for (const box of document.querySelectorAll(".wide")) {
  new ReportTable(box);
  hintMore(box);
}
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.defaultPrevented || event.target.matches("input, select")) return;
  const graphs = document.querySelector("#graphs")?.shadowRoot;
  const field = graphs?.querySelector("#search") ?? document.querySelector("input[type=search]");
  if (!field) return;
  field.focus();
  event.preventDefault();
});
document.body.dataset.ready = "";
