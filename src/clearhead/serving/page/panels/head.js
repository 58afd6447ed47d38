// Panel 4: one head, as lines between words and as a matrix.
import * as api from "../api.js";
import { button, el, fixed, headName, partId, shown } from "../draw.js";
import { lines, matrix } from "../matrix.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { columnPlaces, cut, rowName, strongest, visible } from "../view.js";
import { drawPatches } from "./answer.js";

export const chosenPart = () => ({ kind: state.kind, layer: Number(state.layer), head: Number(state.head) });

export function chosenCell(trace, record) {
  return state.row === "" || state.column === "" ? strongest(trace, record, state.kind) : [Number(state.row), Number(state.column)];
}

function readout(trace, kind, hide, shownRow, shownColumn, weight, isAllowed) {
  const looks = rowName(trace, kind, shownRow);
  const at = shown(columnPlaces(trace, kind)[shownColumn].text);
  if (!isAllowed) return `${looks} may not look at ${at}: masked, the weight is not small but absent`;
  return `${looks} looks at ${at}: ${weight.toFixed(7)}${hide ? " (renormalised)" : ""}`;
}

function statistics(trace) {
  const one = trace.heads.find((each) => partId(each) === partId(state));
  const parts = [`${partId(one)}, counted from 0`, `entropy ${fixed(one.entropy)} nats`];
  if (one.distance !== null) parts.push(`mean distance ${fixed(one.distance, 2)}`);
  if (one.diagonality !== null) parts.push(`diagonality ${fixed(one.diagonality, 2)}`);
  return [...parts, `${(100 * one.special).toFixed(0)} % on special tokens`].join(" · ");
}

const SIDES = { encoder: ["looked at", "looks"], decoder: ["looked at", "looks"], cross: ["source", "step that writes"] };

export async function drawHead(root, app) {
  const { trace } = app;
  const part = chosenPart();
  const record = await api.head(trace.id, part);
  const hide = state.hide === "1";
  const seen = visible(trace, part.kind, hide);
  const { weights, allowed } = cut(record, seen, hide);
  const out = el("p", { class: "readout", id: "readout", "aria-live": "polite" });
  const tell = (t, s) => { out.textContent = readout(trace, part.kind, hide, seen.rows[t], seen.columns[s], weights[t][s], allowed[t][s]); };
  const cell = chosenCell(trace, record);
  const at = [seen.rows.indexOf(cell[0]), seen.columns.indexOf(cell[1])];
  const chosen = at[0] >= 0 && at[1] >= 0 ? at : null;
  if (chosen) tell(...chosen);
  const rows = seen.rows.map((t) => rowName(trace, part.kind, t));
  const columns = seen.columns.map((s) => columnPlaces(trace, part.kind)[s].text);
  const title = headName(part);
  const pick = (t, s) => { tell(t, s); set({ row: seen.rows[t], column: seen.columns[s] }); };
  const pictures = [];
  let faint = 0;
  if (state.view !== "matrix" && !trace.grid && weights.length && weights[0].length) {
    const best = (t) => weights[t].indexOf(Math.max(...weights[t]));
    const drawn = lines({ room: Math.min(384, innerWidth - 60), weights, rows, columns, label: `Lines of ${title}`, sides: SIDES[part.kind], onpick: (t) => pick(t, best(t)) });
    faint = drawn.left;
    pictures.push(el("div", { class: "scroll tall", tabindex: 0 }, drawn.drawing));
  }
  if (trace.grid) pictures.push(drawPatches(trace, record, part, cell[0]));
  if (state.view !== "lines" || trace.grid) pictures.push(el("div", { class: "scroll tall", tabindex: 0 }, matrix({ weights, allowed, rows, columns, label: `Matrix of ${title}`, room: 340, chosen, onmove: tell, onpick: pick })));
  const views = ["both", "lines", "matrix"].map((view) => button(view, () => set({ view }), { "aria-pressed": String(state.view === view) }));
  root.replaceChildren(...[
    el("div", { class: "row" }, el("h2", { class: "grow", id: "head-title" }, title), !trace.grid && views, saveButtons(() => root.querySelector(".pictures"), partId(part))),
    el("p", { class: "quiet small" }, statistics(trace)),
    el("div", { class: "row pictures" }, pictures), out,
    faint > 0 && el("p", { class: "quiet small" }, `${faint} weaker lines are not drawn.`),
  ].filter(Boolean));
  root.querySelector(".pictures").style.alignItems = "start";
}
