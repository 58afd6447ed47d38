// One head in detail: lines between tokens, and a matrix.
import * as api from "../api.js";
import { button, displayText, el, fixed, headName, headRef } from "../draw.js";
import { drawLines, drawMatrix } from "../matrix.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { keyPositions, rowName, selectCells, strongestCell, visibleCells } from "../view.js";
import { drawPatches } from "./answer.js";

export const selectedHead = () => ({ kind: state.kind, layer: Number(state.layer), head: Number(state.head) });

export function selectedCell(trace, record) {
  return state.row === "" || state.column === "" ? strongestCell(trace, record, state.kind) : [Number(state.row), Number(state.column)];
}

function describeCell(trace, kind, isRenormalized, row, column, weight, isAllowed) {
  const query = rowName(trace, kind, row);
  const key = displayText(keyPositions(trace, kind)[column].text);
  if (!isAllowed) return `${query} may not attend to ${key}: masked`;
  return `${query} attends to ${key}: ${weight.toFixed(7)}${isRenormalized ? " (renormalised)" : ""}`;
}

function describeStatistics(trace) {
  const head = trace.heads.find((other) => headRef(other) === headRef(state));
  const statistics = [`${headRef(head)} (counted from 0)`, `entropy ${fixed(head.entropy)} nats`];
  if (head.distance !== null) statistics.push(`mean distance ${fixed(head.distance, 2)}`);
  if (head.diagonality !== null) statistics.push(`diagonality ${fixed(head.diagonality, 2)}`);
  return [...statistics, `${(100 * head.special_share).toFixed(0)} % of weight on special tokens`].join(" · ");
}

const SIDES = { encoder: ["key", "query"], decoder: ["key", "query"], cross: ["source", "predicted token"] };

export async function drawHead(root, app) {
  const { trace } = app;
  const head = selectedHead();
  const record = await api.head(trace.id, head);
  const hideSpecial = state.hide === "1";
  const visible = visibleCells(trace, head.kind, hideSpecial);
  const { weights, allowed } = selectCells(record, visible, hideSpecial);
  const readout = el("p", { class: "readout", id: "readout", "aria-live": "polite" });
  const showCell = (t, s) => { readout.textContent = describeCell(trace, head.kind, hideSpecial, visible.rows[t], visible.columns[s], weights[t][s], allowed[t][s]); };
  const cell = selectedCell(trace, record);
  const drawnCell = [visible.rows.indexOf(cell[0]), visible.columns.indexOf(cell[1])];
  const selected = drawnCell[0] >= 0 && drawnCell[1] >= 0 ? drawnCell : null;
  if (selected) showCell(...selected);
  const rows = visible.rows.map((t) => rowName(trace, head.kind, t));
  const columns = visible.columns.map((s) => keyPositions(trace, head.kind)[s].text);
  const title = headName(head);
  const select = (t, s) => { showCell(t, s); set({ row: visible.rows[t], column: visible.columns[s] }); };
  const drawings = [];
  let numHidden = 0;
  if (state.view !== "matrix" && !trace.grid && weights.length && weights[0].length) {
    const strongestKey = (t) => weights[t].indexOf(Math.max(...weights[t]));
    const lines = drawLines({ width: Math.min(384, innerWidth - 60), weights, rows, columns, label: `Lines of ${title}`, sides: SIDES[head.kind], onselect: (t) => select(t, strongestKey(t)) });
    numHidden = lines.numHidden;
    drawings.push(el("div", { class: "scroll tall", tabindex: 0 }, lines.drawing));
  }
  if (trace.grid) drawings.push(drawPatches(trace, record, head, cell[0]));
  if (state.view !== "lines" || trace.grid) drawings.push(el("div", { class: "scroll tall", tabindex: 0 }, drawMatrix({ weights, allowed, rows, columns, label: `Matrix of ${title}`, maxSize: 340, selected, onhover: showCell, onselect: select })));
  const views = ["both", "lines", "matrix"].map((view) => button(view, () => set({ view }), { "aria-pressed": String(state.view === view) }));
  root.replaceChildren(...[
    el("div", { class: "row" }, el("h2", { class: "grow", id: "head-title" }, title), !trace.grid && views, saveButtons(() => root.querySelector(".drawings"), headRef(head))),
    el("p", { class: "quiet small" }, describeStatistics(trace)),
    el("div", { class: "row drawings" }, drawings), readout,
    numHidden > 0 && el("p", { class: "quiet small" }, `${numHidden} lines of smaller weights are not drawn.`),
  ].filter(Boolean));
  root.querySelector(".drawings").style.alignItems = "start";
}
