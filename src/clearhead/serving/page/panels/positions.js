// Panel 9: how places are marked, and how word order vanishes without the marks.
import * as api from "../api.js";
import { el, fixed, heading, note, svg } from "../draw.js";
import { cells } from "../matrix.js";
import { css, diverging, ink, sequential } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";

const WHAT = {
  sinusoidal: "Sines and cosines of the place, added to every embedding: the left dimensions turn fast, the right ones slowly.",
  learned: "One learned vector a place, added to the embedding.",
  rotary: "Queries and keys are turned by the angle of their place: shown are the sine and cosine of each pair of dimensions.",
  relative: "A number for each distance and head, added to the scores before the softmax.",
  none: "This model marks no places.",
};

function heat(table) {
  const [height, width] = [table.length, table[0].length];
  const most = Math.max(...table.map((row) => Math.max(...row.map(Math.abs))));
  const size = Math.min(14, 480 / width);
  const [W, H] = [width * size, height * 3];
  return svg("svg", { width: W + 70, height: H + 40, role: "img", "aria-label": "Heat map of positions", class: "heat" },
    svg("image", { x: 54, y: 6, width: W, height: H, preserveAspectRatio: "none", "image-rendering": "pixelated", href: cells(table.map((row) => row.map((x) => x / most)), null, diverging).toDataURL() }),
    svg("text", { x: 50, y: 16, "text-anchor": "end", "font-size": 11, fill: ink("quiet") }, "place 0"), svg("text", { x: 50, y: H + 6, "text-anchor": "end", "font-size": 11, fill: ink("quiet") }, String(height - 1)),
    svg("text", { x: 54, y: H + 24, "font-size": 11, fill: ink("quiet") }, `${width} dimensions →`));
}

function curve(values, label, { low, high, left = "0", right }) {
  const [W, H] = [480, 150];
  const x = (index) => 44 + (index / Math.max(1, values.length - 1)) * (W - 60);
  const y = (value) => 10 + (1 - (value - low) / (high - low || 1)) * (H - 40);
  return svg("svg", { width: W, height: H, role: "img", "aria-label": label, class: "curve" },
    svg("line", { x1: 44, x2: W - 16, y1: y(Math.max(low, Math.min(high, 0))), y2: y(Math.max(low, Math.min(high, 0))), stroke: ink("line") }),
    svg("polyline", { points: values.map((value, index) => `${x(index)},${y(value)}`).join(" "), fill: "none", stroke: css(sequential(0.85)), "stroke-width": 2 }),
    svg("text", { x: 38, y: 16, "text-anchor": "end", "font-size": 11, fill: ink("quiet") }, fixed(high, 1)), svg("text", { x: 38, y: H - 26, "text-anchor": "end", "font-size": 11, fill: ink("quiet") }, fixed(low, 1)),
    svg("text", { x: 44, y: H - 8, "font-size": 11, fill: ink("quiet") }, left), svg("text", { x: W - 16, y: H - 8, "text-anchor": "end", "font-size": 11, fill: ink("quiet") }, right));
}

// The mean cosine between places that lie so far apart.
export function similarity(table) {
  const norms = table.map((row) => Math.hypot(...row) || 1);
  return table.map((_, offset) => {
    let total = 0;
    for (let at = 0; at + offset < table.length; at += 1) total += table[at].reduce((sum, value, index) => sum + value * table[at + offset][index], 0) / (norms[at] * norms[at + offset]);
    return total / (table.length - offset);
  });
}

function frequency(table) {
  const chosen = Math.min(Number(state.frequency), table[0].length - 1);
  const values = table.map((row) => row[chosen]);
  const slider = el("input", { type: "range", min: 0, max: table[0].length - 1, value: chosen, id: "frequency", "aria-label": "Dimension", oninput: (event) => set({ frequency: event.target.value }) });
  return el("div", { id: "one-frequency" }, el("h3", {}, `Dimension ${chosen}, place by place`), slider, el("div", { class: "scroll", tabindex: 0 }, curve(values, `Dimension ${chosen}`, { low: Math.min(...values, -0.01), high: Math.max(...values, 0.01), right: `place ${table.length - 1}` })));
}

// Takes the marks away from the model that every panel shows.
function removal() {
  const box = el("input", { type: "checkbox", id: "no-places", checked: state.positions === "off", onchange: (event) => set({ positions: event.target.checked ? "off" : "" }, { remember: true }) });
  return el("label", { class: "inline" }, box, "Take the positions away, in every panel");
}

function order(found) {
  if (!found) return el("section", { class: "card" }, heading("Take the positions away"), removal());
  const row = (name, one) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, one.output), el("td", {}, one.reversed_output), one.difference !== null && el("td", { class: "num", "data-difference": one.difference }, one.difference.toExponential(1)));
  const hasStates = found.with.difference !== null;
  return el("section", { class: "card" }, heading("Take the positions away", `Source: ${found.text} · reversed: ${found.reversed}`), el("div", { class: "row" }, removal(), el("span", { class: "grow" }), saveButtons(() => document.getElementById("order"), "order")),
    el("div", { class: "scroll", tabindex: 0 }, el("table", { id: "order" }, el("tr", {}, ["", "output", "output of the words reversed", ...(hasStates ? ["largest difference of a word's state when read in reverse"] : [])].map((text) => el("th", { scope: "col" }, text))), row("with positions", found.with), row("without positions", found.without))),
    hasStates ? note("Without places the encoder gives every word the same state wherever it stands: it has become a bag of words.") : note("A decoder that sees only what came before still knows a little about order: how much stands before a word."));
}

export const positions = {
  id: "positions",
  title: "Positions",
  tour: "Attention by itself does not know where a word stands. Places are marked on the words; take the marks away, and a sentence and its reverse become the same to the encoder.",
  applies: (app) => app.trace && app.card.parts.length > 0 && app.card.config.positions !== "none" && !["rnn", "gru", "lstm", "cnn", "mlp"].includes(app.card.config.family),
  async draw(root, app) {
    const found = await api.about(app.trace.id, "positions");
    this.table = found.table;
    const marks = found.table ? [el("div", { class: "scroll", tabindex: 0 }, heat(found.table))] : found.bias.map((values, index) => el("div", { class: "scroll", tabindex: 0 }, el("h3", {}, `Head ${index}: bias by distance`), curve(values, `Bias of head ${index}`, { low: Math.min(...values), high: Math.max(...values), left: `${-(values.length - 1) / 2}`, right: `+${(values.length - 1) / 2}` })));
    const right = found.table && el("section", { class: "card stack", id: "marks-by-place" }, frequency(found.table), el("div", {}, el("h3", {}, "How alike two places are, by the distance between them"), el("div", { class: "scroll", tabindex: 0 }, curve(similarity(found.table), "Similarity by offset", { low: -0.2, high: 1, right: `${found.table.length - 1} places apart` }))), saveButtons(() => document.getElementById("marks-by-place"), "positions-by-place"));
    root.append(el("div", { class: right ? "halves" : "" }, el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading(`Positions: ${found.kind}`, WHAT[found.kind])), saveButtons(() => document.getElementById("marks"), "positions")), el("div", { id: "marks", class: "stack" }, marks)), right || ""), order(found.order));
  },
  async update(root, app, changed) {
    if (!changed.has("frequency") || !this.table) return;
    const fresh = frequency(this.table);
    root.querySelector("#one-frequency h3").replaceWith(fresh.querySelector("h3"));
    root.querySelector("#one-frequency .scroll").replaceWith(fresh.querySelector(".scroll"));
  },
};
