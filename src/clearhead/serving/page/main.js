// Puts the page together: loads models, runs what the bar asks for, and keeps one panel drawn.
import * as api from "./api.js";
import { button, el, fixed, partId, probability, shown } from "./draw.js";
import { fillBar } from "./panels/bar.js";
import { attention } from "./panels/attention.js";
import { steps } from "./panels/steps.js";
import { tree } from "./panels/tree.js";
import { whatIf } from "./panels/what_if.js";
import { architecture } from "./panels/architecture.js";
import { positions } from "./panels/positions.js";
import { lens } from "./panels/lens.js";
import { compare } from "./panels/compare.js";
import { answer, filled } from "./panels/answer.js";
import { openTour } from "./panels/tour.js";
import * as save from "./save.js";
import { columnPlaces, rowPlaces } from "./view.js";
import { REQUEST, listen, names, numbers, set, state } from "./store.js";

const PANELS = [answer, attention, steps, tree, whatIf, architecture, positions, lens, compare];
const find = (id) => document.getElementById(id);
export const app = { cards: [], card: null, trace: null, picture: null, run, fail, request, usePicture };
window.clearhead = app; // for tests: what is on the screen can be compared with what was answered

export function request(changes = {}) {
  const wanted = { ...state, ...changes };
  const body = { model: app.cards.some((card) => card.name === wanted.model) ? wanted.model : app.card.name, text: wanted.text };
  if (app.picture) Object.assign(body, { text: "", picture: app.picture });
  if (wanted.target) body.target = wanted.target;
  if (wanted.tokens) body.tokens = numbers(wanted.tokens);
  if (wanted.prefix) body.prefix = numbers(wanted.prefix);
  for (const key of ["beam_size", "length_penalty"]) if (wanted[key]) body[key] = Number.isNaN(Number(wanted[key])) ? wanted[key] : Number(wanted[key]); // what is no number is refused by the server, with a reason
  if (Number(wanted.hypothesis)) body.hypothesis = Number(wanted.hypothesis);
  if (wanted.off) body.off = names(wanted.off);
  if (wanted.positions === "off") body.positions = false;
  return body;
}

function fail(problem) {
  if (problem && !(problem instanceof api.Problem)) console.error(problem);
  const box = find("problem");
  box.replaceChildren(...(problem ? [problem.message, app.trace ? "" : el("a", { href: "./", class: "again" }, "Start over")] : []));
  box.hidden = !problem;
}

let running = 0;

// What the address asked for and is not there.
function tell(sentences) {
  const box = find("notice");
  box.textContent = sentences.join(" ");
  box.hidden = !sentences.length;
}

async function run(isRestored = false) {
  const own = (running += 1);
  document.body.classList.add("busy");
  document.body.setAttribute("aria-busy", "true");
  try {
    const trace = await api.trace(request());
    if (own !== running) return;
    fail(null);
    const isAnother = app.trace !== null && !isRestored;
    app.trace = trace;
    tell(isAnother ? [] : missing());
    keepSelection(isAnother);
    showResult();
    showTabs();
    await draw(new Set(["trace"]));
  } catch (problem) { if (own === running) fail(problem); } finally {
    if (own === running) { document.body.classList.remove("busy"); document.body.removeAttribute("aria-busy"); }
  }
}

// A selection that the new trace has not would show nothing: the first head that there is takes its place.
function keepSelection(isAnother) {
  const { heads } = app.trace;
  const same = heads.some((one) => one.kind === state.kind && String(one.layer) === state.layer && String(one.head) === state.head);
  const first = same ? null : best(heads);
  const changes = first ? { kind: first.kind, layer: first.layer, head: first.head } : {};
  if (first || isAnother || !isThere()) Object.assign(changes, { row: "", column: "" });
  if (isAnother) Object.assign(changes, { node: "", all: "", edit: "" });
  if (Number(state.step) >= app.trace.outputs.length) changes.step = "";
  set({ ...changes, output: Math.min(Number(state.output), Math.max(0, app.trace.outputs.length - 1)) }, { quiet: true });
}

// Sentences about what the address names and this model or trace has not; something else is shown then.
function missing() {
  const { heads, outputs } = app.trace;
  const said = [];
  if (state.model && app.card.name !== state.model) said.push(`There is no model ${state.model} here; this is ${app.card.name}.`);
  if (!there().some((panel) => panel.id === state.tab)) said.push(`There is no panel ${state.tab} for this model.`);
  const isHead = !state.kind || heads.some((one) => partId(one) === partId(state));
  if (!isHead) said.push(`There is no head ${partId(state)} in this model: it has ${counts(heads)}, counted from 0.`);
  else if (state.kind && !isThere()) said.push(`There is no cell ${state.row || 0}, ${state.column || 0} in ${partId(state)}: it has ${rowPlaces(app.trace, state.kind).length} rows and ${columnPlaces(app.trace, state.kind).length} columns, counted from 0.`);
  for (const key of ["step", "output"]) if (outputs.length && !(Number(state[key]) < outputs.length)) said.push(`There is no ${key} ${state[key]}: there are ${outputs.length}, counted from 0 in the address.`);
  if (state.node && app.trace.tree?.length && !app.trace.tree.some((one) => String(one.node) === state.node)) said.push(`There is no node ${state.node} in this tree.`);
  return said;
}

function counts(heads) {
  const kinds = [...new Set(heads.map((one) => one.kind))];
  const most = (kind, key) => Math.max(...heads.filter((one) => one.kind === kind).map((one) => one[key])) + 1;
  return kinds.map((kind) => `${most(kind, "layer")} layers of ${most(kind, "head")} heads in ${kind}`).join(", ") || "no attention";
}

const isThere = () => Number(state.row) < rowPlaces(app.trace, state.kind).length && Number(state.column) < columnPlaces(app.trace, state.kind).length;

// What shows most at first sight: the head between source and target that follows the diagonal most.
function best(heads) {
  const between = heads.filter((one) => one.kind === "cross");
  const among = between.length ? between : heads;
  return [...among].sort((one, other) => (other.diagonality ?? 0) - (one.diagonality ?? 0) || one.entropy - other.entropy)[0];
}

function showResult() {
  const { trace } = app;
  const told = [];
  if (state.prefix) told.push(["a candidate was forced", { prefix: "" }]);
  if (state.tokens) told.push(["a path of the beam tree", { tokens: "" }]);
  if (Number(state.hypothesis)) told.push([`hypothesis ${state.hypothesis}`, { hypothesis: "0" }]);
  if (state.positions === "off") told.push(["without positions", { positions: "" }]);
  for (const part of names(state.off)) told.push([`${part} is off`, { off: names(state.off).filter((one) => one !== part).join(",") }]);
  const chips = told.map(([text, changes]) => el("span", { class: "chip" }, text,
    button("×", () => set(changes, { remember: true }), { "aria-label": `Undo: ${text}` })));
  const count = trace.outputs.length - trace.num_given;
  const figures = trace.outputs.length ? `log-probability ${fixed(trace.log_prob)} (${probability(trace.log_prob)}), ${count} ${app.card.writes ? "piece" : "answer"}${count === 1 ? "" : "s"}` : "";
  find("result").replaceChildren(
    el("div", { class: "text", id: "output", dir: "auto" }, (app.card.config.head === "masked_lm" ? filled(trace) : trace.target_text) || (app.card.verb === "embed" ? "(a vector, no text)" : "(nothing)")),
    el("div", { class: "row quiet small" }, figures, chips));
  document.title = `${shown(trace.target_text).slice(0, 40)} · clearhead`;
}

const there = () => PANELS.filter((panel) => panel.applies(app));

function showTabs() {
  const panels = there();
  if (!panels.some((panel) => panel.id === state.tab)) { state.tab = panels[0].id; }
  find("tabs").replaceChildren(...panels.map((panel) => button(panel.title, () => set({ tab: panel.id }), {
    role: "tab", id: `tab-${panel.id}`, "data-panel": panel.id, "aria-controls": "panel", "aria-selected": String(panel.id === state.tab), tabindex: panel.id === state.tab ? "0" : "-1",
  })));
}

find("tabs").addEventListener("keydown", (event) => {
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!move) return;
  const panels = there();
  const next = panels[(panels.findIndex((panel) => panel.id === state.tab) + move + panels.length) % panels.length];
  set({ tab: next.id });
  find(`tab-${next.id}`).focus();
});

let drawn = null;
let drawing = 0;

async function draw(changed) {
  const own = (drawing += 1);
  const panel = there().find((one) => one.id === state.tab);
  const root = find("panel");
  const isNew = drawn !== panel.id || changed.has("trace") || changed.has("theme");
  root.setAttribute("aria-labelledby", `tab-${panel.id}`);
  try {
    if (isNew) {
      const fresh = el("div", { class: "stack", "data-panel": panel.id });
      await panel.draw(fresh, app);
      if (own !== drawing) return;
      drawn = panel.id;
      const focused = root.contains(document.activeElement) ? document.activeElement.id : "";
      root.replaceChildren(fresh);
      if (focused) document.getElementById(focused)?.focus();
    } else await panel.update?.(root.firstElementChild, app, changed);
  } catch (problem) { if (own === drawing) { root.replaceChildren(el("p", { class: "note" }, problem.message)); drawn = null; fail(problem instanceof api.Problem ? null : problem); } }
  root.dataset.drawn = `${panel.id}:${(Number((root.dataset.drawn ?? ":0").split(":")[1]) || 0) + 1}`;
}

function showModel() {
  app.card = app.cards.find((card) => card.name === state.model) ?? app.cards[0];
  find("card").textContent = `${app.card.task}: ${app.card.description}, ${app.card.parameters.toLocaleString("en")} parameters`;
  find("model").value = app.card.name;
  fillBar(find("bar"), app);
}

function useTheme() {
  const wants = state.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = wants;
}

// A small picture stands in the address as well; of a large one the page says that a link will not show it.
const MOST_IN_ADDRESS = 6000;
function usePicture(encoded) {
  const wanted = encoded.length <= MOST_IN_ADDRESS ? encoded : "";
  app.picture = encoded;
  set({ picture: wanted }, { quiet: true });
  fillBar(find("bar"), app);
  run().then(() => { if (!wanted) tell(["This picture is too large for the address: a link to this page shows another one."]); });
}

listen((changed, isRestored = false) => {
  if (changed.has("theme")) useTheme();
  if (changed.has("picture")) app.picture = state.picture || null;
  if (changed.has("model")) { if (!isRestored) app.picture = null; showModel(); } else if (REQUEST.some((key) => changed.has(key))) fillBar(find("bar"), app);
  if (app.card?.reads_images && !app.picture) return; // it runs as soon as there is one
  if (REQUEST.some((key) => changed.has(key))) { run(isRestored); return; }
  if (!app.trace) return;
  if (changed.has("tab")) showTabs();
  draw(changed);
});

async function start() {
  useTheme();
  try { app.cards = await api.models(); } catch (problem) { fail(problem); return; }
  find("model").replaceChildren(...app.cards.map((card) => el("option", { value: card.name }, card.name)));
  find("model").addEventListener("change", (event) => {
    const card = app.cards.find((one) => one.name === event.target.value);
    set({ model: card.name, text: card.example, target: "", tokens: "", prefix: "", off: "", positions: "", picture: "", hypothesis: "0" }, { remember: true });
  });
  find("theme").addEventListener("click", () => set({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" }));
  find("tour").addEventListener("click", () => openTour(find("tour-box"), there(), set));
  find("save").addEventListener("click", async () => {
    try { save.json("trace", await (await fetch(`/v1/trace/${app.trace.id}`)).json()); } catch (problem) { fail(problem); }
  });
  const card = app.cards.find((one) => one.name === state.model) ?? app.cards[0];
  if (card.reads_images && state.picture) app.picture = state.picture;
  if (!state.text && !card.reads_images) state.text = card.example;
  showModel();
  if (!card.reads_images || app.picture) await run();
}

start();
