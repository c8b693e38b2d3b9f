"use strict";
/* What nodes are coloured by: their class, or a number, in steps that differ in lightness too, so
 * that they are told apart in light, in dark, in print and by colour-blind readers. */
const COLOURINGS = {
  cost: {
    title: "cost",
    about: "Floating-point operations, as a share of the model's.",
    steps: [
      [0, "nothing"],
      [0.001, "up to 0.1 %"],
      [0.01, "up to 1 %"],
      [0.05, "up to 5 %"],
      [0.2, "up to 20 %"],
      [Infinity, "more"],
    ],
    join: (one, other) => one + other,
    text: (number, whole) => `${amount(number)} FLOP${whole && number ? `, ${percent(number / whole)}` : ""}`,
  },
  error: {
    title: "error",
    about: "The largest error, as a share of the tolerance.",
    steps: [
      [0, "none"],
      [0.01, "up to 1 %"],
      [0.1, "up to 10 %"],
      [1, "within the tolerance"],
      [10, "up to 10 times", "over-1"],
      [100, "up to 100 times", "over-2"],
      [Infinity, "more, or no number", "over-3"],
    ],
    join: (one, other) => Math.max(one, other),
    text: (number) =>
      number > 1e9 ? "error without measure" : `error ${number > 1 ? `${rounded(number)} times` : percent(number)}`,
  },
  range: {
    title: "quantised range",
    about: "The largest number that the quantised tensor can hold.",
    steps: [
      [0.1, "up to 0.1"],
      [1, "up to 1"],
      [10, "up to 10"],
      [100, "up to 100"],
      [Infinity, "more"],
    ],
    join: (one, other) => Math.max(one, other),
    text: (number) => `± ${rounded(number)}`,
  },
};

const rounded = (number) => Number(number.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
const percent = (share) => (share > 0 && share < 0.001 ? "<0.1 %" : `${rounded(100 * share)} %`);

/* A number of operations with three digits: 1.23 G. */
function amount(number) {
  const at = Math.min(5, Math.max(0, Math.floor(Math.log10(number || 1) / 3)));
  return `${rounded(number / 1000 ** at)}${["", " k", " M", " G", " T", " P"][at]}`;
}

function makeColours(model) {
  let name = "";
  const whole = {};

  /* What a node is coloured by: its own number, or that of the function that it calls. */
  function ofNode(node, by = name, depth = 0) {
    if (node.numbers[by] !== undefined) return node.numbers[by];
    const isCall = node.bodies.length === 1 && node.bodies[0][0] === "" && by === "cost";
    return isCall && depth < 20 ? ofBox(model.boxes[model.sheets[node.bodies[0][1]].root], by, depth + 1) : undefined;
  }

  function ofBox(box, by = name, depth = 0) {
    const key = `number ${by}`;
    if (!(key in box)) {
      const numbers = [...model.nodesIn(box)].map((node) => ofNode(node, by, depth)).filter((each) => each !== undefined);
      box[key] = numbers.length ? numbers.reduce(COLOURINGS[by].join) : undefined;
    }
    return box[key];
  }

  const of = (it) => (!name || it.value ? undefined : it.node ? ofNode(it.node) : ofBox(it.box));

  /* The colourings for which some node has a number. */
  const offered = () =>
    Object.keys(COLOURINGS).filter((each) => model.nodes.some((node) => node.numbers[each] !== undefined));

  function total(by) {
    whole[by] ??= by === "cost" ? ofBox(model.root.box, by) : 1;
    return whole[by];
  }

  const stepOf = (number) => {
    const share = name === "cost" ? number / (total(name) || 1) : number;
    return COLOURINGS[name].steps.findIndex(([most]) => share <= most);
  };

  const classAt = (step) => COLOURINGS[name].steps[step][2] ?? `step-${step}`;

  /* The class of an item, and what is written on it; "" if nothing is known of it. */
  function classOf(it) {
    const number = of(it);
    if (!name || it.value) return "";
    return number === undefined ? "unknown" : classAt(stepOf(number));
  }

  const textOf = (it) => (of(it) === 0 ? "" : textFor(of(it), name));
  const textFor = (number, by) => (number === undefined ? "" : COLOURINGS[by].text(number, total(by)));

  /* What is known of a node, by any colouring, with the names of these. */
  const facts = (node) => offered().map((by) => [COLOURINGS[by].title, textFor(ofNode(node, by), by)]);

  return { choose: (by) => (name = by), offered, classOf, textOf, facts };
}
