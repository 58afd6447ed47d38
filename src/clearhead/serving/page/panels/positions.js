// The panel Positions: position encodings, and the effect of word order with and without them.
import * as api from "../api.js";
import { el, fixed, heading, note, svg } from "../draw.js";
import { drawCells } from "../matrix.js";
import { css, diverging, themeColor, sequential } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";

const DESCRIPTIONS = {
  sinusoidal: "Sines and cosines of the position, added to the embeddings. Their frequency decreases from dimension to dimension.",
  learned: "One learned vector per position, added to the embedding.",
  rotary: "Queries and keys are rotated by angles proportional to their position. The map shows sine and cosine for each pair of dimensions.",
  relative: "One learned bias per head and relative position of the key, added to the scores before the softmax.",
  none: "This model has no position encodings.",
};

function heatMap(table) {
  const [height, width] = [table.length, table[0].length];
  const largest = Math.max(...table.map((row) => Math.max(...row.map(Math.abs))));
  const size = Math.min(14, 480 / width);
  const [W, H] = [width * size, height * 3];
  return svg("svg", { width: W + 80, height: H + 40, role: "img", "aria-label": "Heat map of position encodings", class: "heat" },
    svg("image", { x: 64, y: 6, width: W, height: H, preserveAspectRatio: "none", "image-rendering": "pixelated", href: drawCells(table.map((row) => row.map((x) => x / largest)), null, diverging).toDataURL() }),
    svg("text", { x: 60, y: 16, "text-anchor": "end", "font-size": 11, fill: themeColor("quiet") }, "position 0"), svg("text", { x: 60, y: H + 6, "text-anchor": "end", "font-size": 11, fill: themeColor("quiet") }, String(height - 1)),
    svg("text", { x: 64, y: H + 24, "font-size": 11, fill: themeColor("quiet") }, `${width} dimensions →`));
}

function curve(values, label, { low, high, left = "0", right }) {
  const [W, H] = [480, 150];
  const x = (index) => 44 + (index / Math.max(1, values.length - 1)) * (W - 60);
  const y = (value) => 10 + (1 - (value - low) / (high - low || 1)) * (H - 40);
  return svg("svg", { width: W, height: H, role: "img", "aria-label": label, class: "curve" },
    svg("line", { x1: 44, x2: W - 16, y1: y(Math.max(low, Math.min(high, 0))), y2: y(Math.max(low, Math.min(high, 0))), stroke: themeColor("line") }),
    svg("polyline", { points: values.map((value, index) => `${x(index)},${y(value)}`).join(" "), fill: "none", stroke: css(sequential(0.85)), "stroke-width": 2 }),
    svg("text", { x: 38, y: 16, "text-anchor": "end", "font-size": 11, fill: themeColor("quiet") }, fixed(high, 1)), svg("text", { x: 38, y: H - 26, "text-anchor": "end", "font-size": 11, fill: themeColor("quiet") }, fixed(low, 1)),
    svg("text", { x: 44, y: H - 8, "font-size": 11, fill: themeColor("quiet") }, left), svg("text", { x: W - 16, y: H - 8, "text-anchor": "end", "font-size": 11, fill: themeColor("quiet") }, right));
}

// Returns the mean cosine similarity of two position encodings for each distance between the positions.
export function similarity(table) {
  const norms = table.map((row) => Math.hypot(...row) || 1);
  return table.map((_, offset) => {
    let total = 0;
    for (let position = 0; position + offset < table.length; position += 1) total += table[position].reduce((sum, value, index) => sum + value * table[position + offset][index], 0) / (norms[position] * norms[position + offset]);
    return total / (table.length - offset);
  });
}

function dimensionCurve(table) {
  const selected = Math.min(Number(state.dimension), table[0].length - 1);
  const values = table.map((row) => row[selected]);
  const slider = el("input", { type: "range", min: 0, max: table[0].length - 1, value: selected, id: "dimension", "aria-label": "Dimension", oninput: (event) => set({ dimension: event.target.value }) });
  return el("div", { id: "one-dimension" }, el("h3", {}, `Dimension ${selected} by position`), slider, el("div", { class: "scroll", tabindex: 0 }, curve(values, `Dimension ${selected}`, { low: Math.min(...values, -0.01), high: Math.max(...values, 0.01), right: `position ${table.length - 1}` })));
}

// Returns the checkbox that removes the position encodings of the traced model, which all panels show.
function removalCheckbox() {
  const box = el("input", { type: "checkbox", id: "no-positions", checked: state.positions === "none", onchange: (event) => set({ positions: event.target.checked ? "none" : "" }, { remember: true }) });
  return el("label", { class: "inline" }, box, "Remove the position encodings in all panels");
}

function wordOrder(effect) {
  if (!effect) return el("section", { class: "card" }, heading("Without position encodings"), removalCheckbox());
  const row = (name, variant) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, variant.output), el("td", {}, variant.reversed_output), variant.difference !== null && el("td", { class: "num", "data-difference": variant.difference }, variant.difference.toExponential(1)));
  const hasStates = effect.with.difference !== null;
  return el("section", { class: "card" }, heading("Without position encodings", `Source: ${effect.text} · reversed source: ${effect.reversed}`), el("div", { class: "row" }, removalCheckbox(), el("span", { class: "grow" }), saveButtons(() => document.getElementById("order"), "order")),
    el("div", { class: "scroll", tabindex: 0 }, el("table", { id: "order" }, el("tr", {}, ["", "output", "output for the reversed source", ...(hasStates ? ["largest difference of a token's encoder state"] : [])].map((text) => el("th", { scope: "col" }, text))), row("with position encodings", effect.with), row("without position encodings", effect.without))),
    hasStates ? note("Without position encodings, the encoder state of a token does not depend on the order of the tokens: the source is a bag of words.") : note("Without position encodings, masked self-attention still has some information about order, because each token attends only to the tokens before it."));
}

export const positions = {
  id: "positions",
  title: "Positions",
  tour: "Attention does not depend on the order of the tokens; position encodings add this information. Without them, the encoder computes the same states for a sentence and for its reversal.",
  applies: (app) => app.trace && app.model.sublayers.length > 0 && app.model.config.positions !== "none" && !["rnn", "gru", "lstm", "cnn", "mlp"].includes(app.model.config.family),
  async draw(root, app) {
    const view = await api.view(app.trace.id, "positions");
    this.table = view.table;
    const encodings = view.table ? [el("div", { class: "scroll", tabindex: 0 }, heatMap(view.table))] : view.bias.map((values, index) => el("div", { class: "scroll", tabindex: 0 }, el("h3", {}, `Head ${index}: bias by relative position of the key`), curve(values, `Bias of head ${index}`, { low: Math.min(...values), high: Math.max(...values), left: `${-(values.length - 1) / 2}`, right: `+${(values.length - 1) / 2}` })));
    const curves = view.table && el("section", { class: "card stack", id: "position-curves" }, dimensionCurve(view.table), el("div", {}, el("h3", {}, "Mean cosine similarity of two positions by their distance"), el("div", { class: "scroll", tabindex: 0 }, curve(similarity(view.table), "Similarity by distance", { low: -0.2, high: 1, right: `distance ${view.table.length - 1}` }))), saveButtons(() => document.getElementById("position-curves"), "position-curves"));
    root.append(el("div", { class: curves ? "halves" : "" }, el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading(`Position encodings: ${view.kind}`, DESCRIPTIONS[view.kind])), saveButtons(() => document.getElementById("encodings"), "positions")), el("div", { id: "encodings", class: "stack" }, encodings)), curves || ""), wordOrder(view.order));
  },
  async update(root, app, changed) {
    if (!changed.has("dimension") || !this.table) return;
    const updated = dimensionCurve(this.table);
    root.querySelector("#one-dimension h3").replaceWith(updated.querySelector("h3"));
    root.querySelector("#one-dimension .scroll").replaceWith(updated.querySelector(".scroll"));
  },
};
