// The computation of one attention weight with its numbers. The page computes it again and checks it against the model's weight.
import * as api from "../api.js";
import { button, el, fixed, headName, heading, shortText } from "../draw.js";
import { css, diverging, textColorOn } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { keyPositions, rowName } from "../view.js";
import { selectedCell, selectedHead } from "./head.js";

const TOLERANCE = 1e-5;
const MAX_KEYS = 40;
const sum = (values) => values.reduce((total, value) => total + value, 0);

// Returns the steps of softmax(q kᵀ scale + bias) v for one query, over the keys that are not masked.
export function compute(record) {
  const products = record.keys.map((key) => key.map((value, index) => value * record.query[index]));
  const dots = products.map(sum);
  const scores = dots.map((dot, s) => dot * record.scale + (record.bias ? record.bias[s] : 0));
  const largest = Math.max(...scores.filter((_, s) => record.allowed[s]));
  const powers = scores.map((score, s) => (record.allowed[s] ? Math.exp(score - largest) : 0));
  const total = sum(powers);
  const weights = powers.map((power) => power / total);
  const output = record.values[0].map((_, index) => sum(record.values.map((value, s) => weights[s] * value[index])));
  return { products, dots, scores, powers, total, weights, output };
}

function vectorRow(label, values, largest) {
  return el("tr", {}, el("th", { scope: "row" }, label), values.map((value) => {
    const color = diverging(largest ? value / largest : 0);
    const cell = el("td", { class: "num" }, fixed(value, 2));
    cell.style.background = css(color);
    cell.style.color = textColorOn(color);
    return cell;
  }));
}

const largestOf = (values) => Math.max(...values.map(Math.abs), 1e-9);

function vectors(record, computed, s, names) {
  return el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Query, key and their products" }, el("table", {},
    vectorRow(`query q of ${names.row}`, record.query, largestOf(record.query)), vectorRow(`key k of ${names.column}`, record.keys[s], largestOf(record.keys[s])),
    vectorRow("products qᵢ kᵢ", computed.products[s], largestOf(computed.products[s]))));
}

// Returns the keys that the table lists: those with the largest weights and the selected one, or all on request.
function listedKeys(record, column) {
  const all = record.weights.map((_, s) => s);
  if (all.length <= MAX_KEYS || state.keys === "all") return all;
  const heaviest = [...all].sort((a, b) => record.weights[b] - record.weights[a]).slice(0, MAX_KEYS - 1);
  return all.filter((s) => s === column || heaviest.includes(s));
}

function otherKeysRow(record, computed, listed) {
  const others = record.weights.map((_, s) => s).filter((s) => !listed.includes(s));
  const total = (values) => sum(others.map((s) => values[s]));
  return others.length > 0 && el("tr", { id: "other-keys" }, el("td", {}, button(`Show ${others.length} other keys`, () => set({ keys: "all" }))), el("td", { colspan: 2, class: "quiet" }, "sum"),
    [computed.powers, computed.weights, record.weights].map((values) => el("td", { class: "num" }, fixed(total(values), 7))));
}

function softmaxTable(trace, record, computed, column) {
  const keys = keyPositions(trace, record.kind);
  const listed = listedKeys(record, column);
  const header = ["key", "q · k", record.bias ? "score: scaled + bias" : "score: scaled", "exp(score − max)", "weight", "model's weight"];
  return el("div", { class: "scroll tall", tabindex: 0, role: "group", "aria-label": "Softmax of the row" }, el("table", { id: "softmax" }, el("tr", {}, header.map((text) => el("th", { scope: "col" }, text))),
    listed.map((s) => el("tr", { class: s === column ? "selected" : null }, el("td", {}, shortText(keys[s].text)),
      record.allowed[s] ? [computed.dots[s], computed.scores[s], computed.powers[s], computed.weights[s], record.weights[s]].map((value, index) => el("td", { class: "num" }, fixed(value, index > 2 ? 7 : 4)))
        : [el("td", { class: "num" }, fixed(computed.dots[s], 4)), el("td", { colspan: 2, class: "masked" }, "masked: −∞"), el("td", { class: "num" }, "0"), el("td", { class: "num" }, fixed(record.weights[s], 7))])), otherKeysRow(record, computed, listed)));
}

function checkResult(record, computed, column) {
  const difference = Math.max(...computed.weights.map((weight, s) => Math.abs(weight - record.weights[s])));
  const isEqual = difference < TOLERANCE;
  return el("p", { id: "check", class: isEqual ? "ok" : "wrong", "data-computed": computed.weights[column], "data-model": record.weights[column] },
    `${isEqual ? "✓" : "✗"} weight computed by this page: ${computed.weights[column].toFixed(7)}, by the model: ${record.weights[column].toFixed(7)}; largest difference in the row: ${difference.toExponential(1)}`);
}

export async function drawArithmetic(root, app) {
  const { trace } = app;
  const head = selectedHead();
  const [row, column] = selectedCell(trace, await api.head(trace.id, head));
  const record = await api.view(trace.id, `arithmetic/${head.kind}/${head.layer}/${head.head}/${row}`);
  const names = { row: rowName(trace, head.kind, row), column: shortText(keyPositions(trace, head.kind)[column].text) };
  const title = heading(`How much ${names.row} attends to ${names.column}, and why`, `${headName(head)}. Select another cell in the matrix.`);
  if (record.scale === null) {
    root.replaceChildren(title, el("p", { class: "note" }, `This model scores query and key by ${app.model.config.attention} attention, not by a scaled dot product; the panel Architecture shows the formula. The weight is ${record.weights[column].toFixed(7)}.`));
    return;
  }
  const computed = compute(record);
  const scale = Math.abs(record.scale - 1) < 1e-9 ? "× 1 (this model does not scale scores)" : `× ${record.scale.toFixed(5)} = 1/√${Math.round(1 / record.scale ** 2)}`;
  const mask = record.allowed[column] ? "not masked" : "masked: replaced by −∞";
  const bias = record.bias ? ` + bias ${fixed(record.bias[column], 4)}` : "";
  const weightedValue = record.values[column].map((value) => value * computed.weights[column]);
  root.replaceChildren(el("div", { class: "row" }, el("div", { class: "grow" }, title), saveButtons(() => root, "arithmetic")), checkResult(record, computed, column),
    el("h3", {}, `1. Dot product: q · k, the sum of ${record.query.length} products, is ${fixed(computed.dots[column], 4)}`), vectors(record, computed, column, names),
    el("h3", {}, `2. Scale and mask: ${fixed(computed.dots[column], 4)} ${scale}${bias} = ${fixed(computed.scores[column], 4)}; ${mask}`),
    el("h3", {}, `3. Softmax over the row: ${fixed(computed.powers[column], 4)} / ${fixed(computed.total, 4)} = ${computed.weights[column].toFixed(7)}`), softmaxTable(trace, record, computed, column),
    el("h3", {}, `4. Weighted sum of the values: the value of ${names.column} has the weight ${computed.weights[column].toFixed(3)}`),
    el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Weighted values" }, el("table", {}, vectorRow(`${computed.weights[column].toFixed(3)} × value of ${names.column}`, weightedValue, largestOf(computed.output)), vectorRow(`output for ${names.row}`, computed.output, largestOf(computed.output)))));
}
