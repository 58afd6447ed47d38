// Panel 5: how one weight is made, with its real numbers, computed here and checked against the model's own tensor.
import * as api from "../api.js";
import { button, el, fixed, headName, heading, short } from "../draw.js";
import { css, diverging, over } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { columnPlaces, rowName } from "../view.js";
import { chosenCell, chosenPart } from "./head.js";

const TOLERANCE = 1e-5;
const sum = (values) => values.reduce((one, other) => one + other, 0);

// The arithmetic itself: softmax(q k^T * scale + bias) over what may be looked at, times the values.
export function compute(made) {
  const products = made.keys.map((key) => key.map((value, index) => value * made.query[index]));
  const dots = products.map(sum);
  const scores = dots.map((dot, s) => dot * made.scale + (made.bias ? made.bias[s] : 0));
  const most = Math.max(...scores.filter((_, s) => made.allowed[s]));
  const powers = scores.map((score, s) => (made.allowed[s] ? Math.exp(score - most) : 0));
  const total = sum(powers);
  const weights = powers.map((power) => power / total);
  const output = made.values[0].map((_, index) => sum(made.values.map((value, s) => weights[s] * value[index])));
  return { products, dots, scores, most, powers, total, weights, output };
}

function strip(label, values, largest) {
  return el("tr", {}, el("th", { scope: "row" }, label), values.map((value) => {
    const colour = diverging(largest ? value / largest : 0);
    const cell = el("td", { class: "num" }, fixed(value, 2));
    cell.style.background = css(colour);
    cell.style.color = over(colour);
    return cell;
  }));
}

const largestOf = (values) => Math.max(...values.map(Math.abs), 1e-9);

function vectors(made, found, s, names) {
  return el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Query, key and their products" }, el("table", {},
    strip(`query q of ${names.row}`, made.query, largestOf(made.query)), strip(`key k of ${names.column}`, made.keys[s], largestOf(made.keys[s])),
    strip("products q·k, each", found.products[s], largestOf(found.products[s]))));
}

// Of a long row the keys that weigh most and the chosen one; all of them on demand.
const MOST_KEYS = 40;
function listed(made, column) {
  const every = made.weights.map((_, s) => s);
  if (every.length <= MOST_KEYS || state.keys === "all") return every;
  const heaviest = [...every].sort((one, other) => made.weights[other] - made.weights[one]).slice(0, MOST_KEYS - 1);
  return every.filter((s) => s === column || heaviest.includes(s));
}

function remaining(made, found, shown) {
  const rest = made.weights.map((_, s) => s).filter((s) => !shown.includes(s));
  const total = (values) => sum(rest.map((s) => values[s]));
  return rest.length > 0 && el("tr", { id: "other-keys" }, el("td", {}, button(`Show ${rest.length} other keys`, () => set({ keys: "all" }))), el("td", { colspan: 2, class: "quiet" }, "together"),
    [found.powers, found.weights, made.weights].map((values) => el("td", { class: "num" }, fixed(total(values), 7))));
}

function softmax(trace, made, found, column) {
  const places = columnPlaces(trace, made.kind);
  const shown = listed(made, column);
  const head = ["key", "sum of products", made.bias ? "scaled + bias" : "scaled", "exp(score − max)", "weight", "the model's"];
  return el("div", { class: "scroll tall", tabindex: 0, role: "group", "aria-label": "Softmax of the row" }, el("table", { id: "softmax" }, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text))),
    shown.map((s) => el("tr", { class: s === column ? "chosen" : null }, el("td", {}, short(places[s].text)),
      made.allowed[s] ? [found.dots[s], found.scores[s], found.powers[s], found.weights[s], made.weights[s]].map((value, index) => el("td", { class: "num" }, fixed(value, index > 2 ? 7 : 4)))
        : [el("td", { class: "num" }, fixed(found.dots[s], 4)), el("td", { colspan: 2, class: "masked" }, "masked: −∞"), el("td", { class: "num" }, "0"), el("td", { class: "num" }, fixed(made.weights[s], 7))])), remaining(made, found, shown)));
}

function verdict(made, found, column) {
  const difference = Math.max(...found.weights.map((weight, s) => Math.abs(weight - made.weights[s])));
  const isRight = difference < TOLERANCE;
  return el("p", { id: "check", class: isRight ? "ok" : "wrong", "data-computed": found.weights[column], "data-model": made.weights[column] },
    `${isRight ? "✓" : "✗"} computed here ${found.weights[column].toFixed(7)}, in the model's tensor ${made.weights[column].toFixed(7)}; largest difference in the row ${difference.toExponential(1)}`);
}

export async function drawArithmetic(root, app) {
  const { trace } = app;
  const part = chosenPart();
  const record = await api.head(trace.id, part);
  const [row, column] = chosenCell(trace, record);
  const made = await api.about(trace.id, `arithmetic/${part.kind}/${part.layer}/${part.head}/${row}`);
  const names = { row: rowName(trace, part.kind, row), column: short(columnPlaces(trace, part.kind)[column].text) };
  const title = heading(`How much ${names.row} looks at ${names.column}, and why`, `${headName(part)}. Choose another cell in the matrix.`);
  if (made.scale === null) {
    root.replaceChildren(title, el("p", { class: "note" }, `This attention (${app.card.config.attention}) compares query and key by learned weights, not by a product: there is no sum to show. Its weight is ${made.weights[column].toFixed(7)}.`));
    return;
  }
  const found = compute(made);
  const scale = Math.abs(made.scale - 1) < 1e-9 ? "× 1 (this model does not scale)" : `× ${made.scale.toFixed(5)} = 1/√${Math.round(1 / made.scale ** 2)}`;
  const mask = made.allowed[column] ? "the mask lets it through" : "the mask replaces it by −∞";
  const bias = made.bias ? ` + bias ${fixed(made.bias[column], 4)}` : "";
  root.replaceChildren(el("div", { class: "row" }, el("div", { class: "grow" }, title), saveButtons(() => root, "arithmetic")), verdict(made, found, column),
    el("h3", {}, `1. Compare: the sum of ${made.query.length} products is ${fixed(found.dots[column], 4)}`), vectors(made, found, column, names),
    el("h3", {}, `2. Scale and mask: ${fixed(found.dots[column], 4)} ${scale}${bias} = ${fixed(found.scores[column], 4)}; ${mask}`),
    el("h3", {}, `3. Softmax over the row: ${fixed(found.powers[column], 4)} / ${fixed(found.total, 4)} = ${found.weights[column].toFixed(7)}`), softmax(trace, made, found, column),
    el("h3", {}, `4. Mix: every value times its weight, summed; this key adds ${(100 * found.weights[column]).toFixed(1)} % of its value`),
    el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Weighted values" }, el("table", {}, strip(`${found.weights[column].toFixed(3)} × value of ${names.column}`, made.values[column].map((value) => value * found.weights[column]), largestOf(found.output)), strip(`what ${names.row} is given`, found.output, largestOf(found.output)))));
}
