// Entry point of the page: loads the models, traces the input and draws the selected panel.
import * as api from "./api.js";
import { button, displayText, el, fixed, headRef, plural, probability } from "./draw.js";
import { fillInputBar } from "./panels/bar.js";
import { attention } from "./panels/attention.js";
import { steps } from "./panels/steps.js";
import { tree } from "./panels/tree.js";
import { whatIf } from "./panels/what_if.js";
import { architecture } from "./panels/architecture.js";
import { positions } from "./panels/positions.js";
import { lens } from "./panels/lens.js";
import { compare } from "./panels/compare.js";
import { answer, filledText } from "./panels/answer.js";
import { openTour } from "./panels/tour.js";
import * as save from "./save.js";
import { keyPositions, queryPositions } from "./view.js";
import { TRACE_KEYS, listen, parseNames, parseNumbers, set, state } from "./store.js";

// Each panel has id, title, tour (its text in the tour), applies(app), draw(root, app), and optionally
// update(root, app, changed), which redraws the parts that depend on the changed keys of the state.
const PANELS = [answer, attention, steps, tree, whatIf, architecture, positions, lens, compare];
const byId = (id) => document.getElementById(id);
export const app = { models: [], model: null, trace: null, image: null, run, showError, request, useImage };
window.clearhead = app; // for tests, which compare the page with the trace

// The body of a trace request for the state of the page.
export function request(changes = {}) {
  const values = { ...state, ...changes };
  const body = { model: app.models.some((model) => model.name === values.model) ? values.model : app.model.name, text: values.text };
  if (app.image) Object.assign(body, { text: "", image: app.image });
  if (values.target) body.target = values.target;
  if (values.tokens) body.tokens = parseNumbers(values.tokens);
  if (values.prefix) body.prefix = parseNumbers(values.prefix);
  for (const key of ["beam_size", "length_penalty"]) if (values[key]) body[key] = Number.isNaN(Number(values[key])) ? values[key] : Number(values[key]); // other texts than numbers are sent too: the server rejects them with a message
  if (Number(values.hypothesis)) body.hypothesis = Number(values.hypothesis);
  if (values.ablated) body.ablated = parseNames(values.ablated);
  if (values.positions === "none") body.positions = false;
  return body;
}

function showError(error) {
  if (error && !(error instanceof api.ApiError)) console.error(error);
  const box = byId("problem");
  box.replaceChildren(...(error ? [error.message, app.trace ? "" : el("a", { href: "./", class: "again" }, "Start over")] : []));
  box.hidden = !error;
}

function showNotice(sentences) {
  const box = byId("notice");
  box.textContent = sentences.join(" ");
  box.hidden = !sentences.length;
}

let latestRun = 0;

async function run(isRestored = false) {
  const thisRun = (latestRun += 1);
  document.body.classList.add("busy");
  document.body.setAttribute("aria-busy", "true");
  try {
    const trace = await api.trace(request());
    if (thisRun !== latestRun) return;
    showError(null);
    const isReplaced = app.trace !== null && !isRestored;
    app.trace = trace;
    showNotice(isReplaced ? [] : missingSelections());
    adjustSelection(isReplaced);
    showResult();
    showTabs();
    await draw(new Set(["trace"]));
  } catch (error) { if (thisRun === latestRun) showError(error); } finally {
    if (thisRun === latestRun) { document.body.classList.remove("busy"); document.body.removeAttribute("aria-busy"); }
  }
}

// Selects another head if the new trace does not have the selected one, and resets selections within the old trace.
function adjustSelection(isReplaced) {
  const { heads } = app.trace;
  const hasHead = heads.some((head) => head.kind === state.kind && String(head.layer) === state.layer && String(head.head) === state.head);
  const other = hasHead ? null : mostDiagonalHead(heads);
  const changes = other ? { kind: other.kind, layer: other.layer, head: other.head } : {};
  if (other || isReplaced || !hasSelectedCell()) Object.assign(changes, { row: "", column: "" });
  if (isReplaced) Object.assign(changes, { node: "", all_heads: "", edited_text: "" });
  if (Number(state.step) >= app.trace.outputs.length) changes.step = ""; // the new output is shorter
  set({ ...changes, output: Math.min(Number(state.output), Math.max(0, app.trace.outputs.length - 1)) }, { quiet: true });
}

// Returns a sentence for each selection in the address that this model or trace does not have.
function missingSelections() {
  const { heads, outputs } = app.trace;
  const sentences = [];
  if (state.model && app.model.name !== state.model) sentences.push(`This server has no model ${state.model}; ${app.model.name} is shown instead.`);
  if (!availablePanels().some((panel) => panel.id === state.tab)) sentences.push(`This model has no panel ${state.tab}.`);
  const hasHead = !state.kind || heads.some((head) => headRef(head) === headRef(state));
  if (!hasHead) sentences.push(`This model has no head ${headRef(state)}: it has ${headCounts(heads)}, counted from 0.`);
  else if (state.kind && !hasSelectedCell()) sentences.push(`${headRef(state)} has no cell ${state.row || 0}, ${state.column || 0}: it has ${queryPositions(app.trace, state.kind).length} rows and ${keyPositions(app.trace, state.kind).length} columns, counted from 0.`);
  for (const key of ["step", "output"]) if (outputs.length && !(Number(state[key]) < outputs.length)) sentences.push(`This trace has no ${key} ${state[key]}: it has ${plural(outputs.length, key)}, counted from 0 in the address.`);
  if (state.node && app.trace.tree?.length && !app.trace.tree.some((node) => String(node.node) === state.node)) sentences.push(`The beam tree has no node ${state.node}.`);
  return sentences;
}

function headCounts(heads) {
  const kinds = [...new Set(heads.map((head) => head.kind))];
  const count = (kind, key) => Math.max(...heads.filter((head) => head.kind === kind).map((head) => head[key])) + 1;
  return kinds.map((kind) => `${plural(count(kind, "layer"), "layer")} of ${plural(count(kind, "head"), "head")} in ${kind}`).join(", ") || "no attention";
}

const hasSelectedCell = () => Number(state.row) < queryPositions(app.trace, state.kind).length && Number(state.column) < keyPositions(app.trace, state.kind).length;

// The head that is shown first: the most diagonal head of the encoder-decoder attention, or of all heads if there is none.
function mostDiagonalHead(heads) {
  const cross = heads.filter((head) => head.kind === "cross");
  return [...(cross.length ? cross : heads)].sort((a, b) => (b.diagonality ?? 0) - (a.diagonality ?? 0) || a.entropy - b.entropy)[0];
}

function showResult() {
  const { trace, model } = app;
  const conditions = [];
  if (state.prefix) conditions.push(["forced candidate", { prefix: "" }]);
  if (state.tokens) conditions.push(["path from the beam tree", { tokens: "" }]);
  if (Number(state.hypothesis)) conditions.push([`hypothesis ${state.hypothesis}`, { hypothesis: "0" }]);
  if (state.positions === "none") conditions.push(["without positions", { positions: "" }]);
  for (const ref of parseNames(state.ablated)) conditions.push([`${ref} ablated`, { ablated: parseNames(state.ablated).filter((other) => other !== ref).join(",") }]);
  const chips = conditions.map(([text, changes]) => el("span", { class: "chip" }, text,
    button("×", () => set(changes, { remember: true }), { "aria-label": `Undo: ${text}` })));
  const count = plural(trace.outputs.length - trace.prompt_length, model.generates_text ? "token" : "prediction");
  const summary = trace.outputs.length ? `log-probability ${fixed(trace.log_prob)} (probability ${probability(trace.log_prob)}), ${count}` : "";
  const output = model.config.head === "masked_lm" ? filledText(trace) : trace.target_text;
  byId("result").replaceChildren(
    el("div", { class: "text", id: "output", dir: "auto" }, output || (model.command === "embed" ? "(an embedding: a vector, not a text)" : "(empty output)")),
    el("div", { class: "row quiet small" }, summary, chips));
  document.title = `${displayText(trace.target_text).slice(0, 40)} · clearhead`;
}

const availablePanels = () => PANELS.filter((panel) => panel.applies(app));

function showTabs() {
  const panels = availablePanels();
  if (!panels.some((panel) => panel.id === state.tab)) { state.tab = panels[0].id; }
  byId("tabs").replaceChildren(...panels.map((panel) => button(panel.title, () => set({ tab: panel.id }), {
    role: "tab", id: `tab-${panel.id}`, "data-panel": panel.id, "aria-controls": "panel", "aria-selected": String(panel.id === state.tab), tabindex: panel.id === state.tab ? "0" : "-1",
  })));
}

byId("tabs").addEventListener("keydown", (event) => {
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!move) return;
  const panels = availablePanels();
  const next = panels[(panels.findIndex((panel) => panel.id === state.tab) + move + panels.length) % panels.length];
  set({ tab: next.id });
  byId(`tab-${next.id}`).focus();
});

let drawnPanel = null;
let latestDrawing = 0;

async function draw(changed) {
  const thisDrawing = (latestDrawing += 1);
  const panel = availablePanels().find((available) => available.id === state.tab);
  const root = byId("panel");
  const isNew = drawnPanel !== panel.id || changed.has("trace") || changed.has("theme");
  root.setAttribute("aria-labelledby", `tab-${panel.id}`);
  try {
    if (isNew) {
      const content = el("div", { class: "stack", "data-panel": panel.id });
      await panel.draw(content, app);
      if (thisDrawing !== latestDrawing) return;
      drawnPanel = panel.id;
      const focused = root.contains(document.activeElement) ? document.activeElement.id : "";
      root.replaceChildren(content);
      if (focused) document.getElementById(focused)?.focus();
    } else await panel.update?.(root.firstElementChild, app, changed);
  } catch (error) { if (thisDrawing === latestDrawing) { root.replaceChildren(el("p", { class: "note" }, error.message)); drawnPanel = null; showError(error instanceof api.ApiError ? null : error); } }
  root.dataset.drawn = `${panel.id}:${(Number((root.dataset.drawn ?? ":0").split(":")[1]) || 0) + 1}`;
}

function showModel() {
  app.model = app.models.find((model) => model.name === state.model) ?? app.models[0];
  byId("model-info").textContent = `${app.model.task}: ${app.model.description}, ${app.model.num_parameters.toLocaleString("en")} parameters`;
  byId("model").value = app.model.name;
  fillInputBar(byId("bar"), app);
}

function applyTheme() {
  document.documentElement.dataset.theme = state.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

// Small images are included in the address. If the image is larger, a notice says that a link does not include it.
const MAX_IMAGE_IN_ADDRESS = 6000;
function useImage(encoded) {
  const isInAddress = encoded.length <= MAX_IMAGE_IN_ADDRESS;
  app.image = encoded;
  set({ image: isInAddress ? encoded : "" }, { quiet: true });
  fillInputBar(byId("bar"), app);
  run().then(() => { if (!isInAddress) showNotice(["This image is too large for the address: a link to this page does not include it."]); });
}

listen((changed, isRestored = false) => {
  if (changed.has("theme")) applyTheme();
  if (changed.has("image")) app.image = state.image || null;
  if (changed.has("model")) { if (!isRestored) app.image = null; showModel(); } else if (TRACE_KEYS.some((key) => changed.has(key))) fillInputBar(byId("bar"), app);
  if (app.model?.reads_images && !app.image) return; // `useImage` runs the trace
  if (TRACE_KEYS.some((key) => changed.has(key))) { run(isRestored); return; }
  if (!app.trace) return;
  if (changed.has("tab")) showTabs();
  draw(changed);
});

async function start() {
  applyTheme();
  try { app.models = await api.models(); } catch (error) { showError(error); return; }
  byId("model").replaceChildren(...app.models.map((model) => el("option", { value: model.name }, model.name)));
  byId("model").addEventListener("change", (event) => {
    const model = app.models.find((other) => other.name === event.target.value);
    set({ model: model.name, text: model.example, target: "", tokens: "", prefix: "", ablated: "", positions: "", image: "", hypothesis: "0" }, { remember: true });
  });
  byId("theme").addEventListener("click", () => set({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" }));
  byId("tour").addEventListener("click", () => openTour(byId("tour-box"), availablePanels(), set));
  byId("save").addEventListener("click", async () => {
    try { save.json("trace", await api.completeTrace(app.trace.id)); } catch (error) { showError(error); }
  });
  const model = app.models.find((candidate) => candidate.name === state.model) ?? app.models[0];
  if (model.reads_images && state.image) app.image = state.image;
  if (!state.text && !model.reads_images) state.text = model.example;
  showModel();
  if (!model.reads_images || app.image) await run();
}

start();
