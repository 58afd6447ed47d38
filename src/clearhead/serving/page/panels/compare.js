// Panel 11: two models, or two sentences, side by side, with a map of the differences where both have the same cells.
import * as api from "../api.js";
import { button, el, fixed, headName, heading, note } from "../draw.js";
import { matrix } from "../matrix.js";
import { diverging } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { columnPlaces, rowName, rowPlaces } from "../view.js";
import { chosenPart } from "./head.js";
import { sideBySide } from "./what_if.js";

function picture(trace, record, kind, label) {
  const rows = rowPlaces(trace, kind).map((_, t) => rowName(trace, kind, t));
  return el("div", { class: "scroll", tabindex: 0 }, matrix({ weights: record.weights, allowed: record.allowed, rows, columns: columnPlaces(trace, kind).map((place) => place.text), label, room: 300 }));
}

function difference(one, other, traces, kind) {
  const isSame = one.weights.length === other.weights.length && one.weights[0].length === other.weights[0].length;
  if (!isSame) return note(`No difference map: one is ${one.weights.length} × ${one.weights[0].length}, the other ${other.weights.length} × ${other.weights[0].length} cells. Force the same target, or choose a sentence of the same length.`);
  const weights = one.weights.map((row, t) => row.map((weight, s) => weight - other.weights[t][s]));
  const largest = Math.max(...weights.map((row) => Math.max(...row.map(Math.abs))));
  const rows = rowPlaces(traces[0], kind).map((_, t) => rowName(traces[0], kind, t));
  return el("div", {}, el("h3", {}, "Difference: first minus second"), el("p", { class: "small quiet", id: "largest", "data-largest": largest }, `largest ${fixed(largest, 4)}; blue: more in the first, orange: more in the second`),
    el("div", { class: "scroll", tabindex: 0 }, matrix({ weights, allowed: one.allowed, rows, columns: columnPlaces(traces[0], kind).map((place) => place.text), label: "Difference map", room: 300, colour: diverging })));
}

async function show(app, box) {
  const model = state.second || app.card.name;
  const text = state.other || app.trace.source_text;
  const other = await api.trace({ ...app.request({ tokens: "", prefix: "", off: "", positions: "", hypothesis: "0" }), model, ...(app.card.reads_images ? {} : { text }) });
  const part = chosenPart();
  const own = other.heads.some((one) => one.kind === part.kind && one.layer === part.layer && one.head === part.head) ? part : other.heads.find((one) => one.kind === part.kind) ?? other.heads[0];
  const titles = [`${app.card.name}`, model === app.card.name ? "the other sentence" : model];
  const parts = !(app.trace.outputs.length && other.outputs.length) ? [] : [sideBySide(app.trace.target_text, other.target_text, titles), el("p", { id: "compared" }, `log-probability ${fixed(app.trace.log_prob)} and ${fixed(other.log_prob)}`)];
  if (part.kind && own) {
    const [first, second] = await Promise.all([api.head(app.trace.id, part), api.head(other.id, own)]);
    parts.push(el("div", { class: "halves" }, el("div", {}, el("h3", {}, `${titles[0]}: ${headName(part)}`), picture(app.trace, first, part.kind, "First")), el("div", {}, el("h3", {}, `${titles[1]}: ${headName(own)}`), picture(other, second, own.kind, "Second"))),
      part.kind === own.kind ? difference(first, second, [app.trace, other], part.kind) : note("The other model has no attention of this kind."));
  }
  box.replaceChildren(...parts);
}

export const compare = {
  id: "compare",
  title: "Compare",
  tour: "Two models on one sentence, or one model on two sentences: outputs with their differences marked, one head of each, and where they differ.",
  applies: (app) => app.trace && !(app.card.reads_images && app.cards.length < 2),
  async draw(root, app) {
    const box = el("div", { id: "comparison", class: "stack", "aria-live": "polite" });
    const fits = app.cards.filter((card) => card.reads_images === app.card.reads_images);
    const model = el("select", { id: "second" }, fits.map((card) => el("option", { value: card.name }, card.name)));
    model.value = state.second || (fits.find((card) => card.name !== app.card.name) ?? app.card).name;
    const text = el("input", { id: "other", class: "grow", dir: "auto", value: state.other || app.trace.source_text, "aria-label": "Second sentence" });
    const go = async () => {
      set({ second: model.value, other: text.value === app.trace.source_text ? "" : text.value });
      try { await show(app, box); } catch (problem) { if (problem instanceof api.Problem) box.replaceChildren(note(problem.message)); else app.fail(problem); }
    };
    root.append(el("section", { class: "card stack" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading("Compare", "The head that is compared is the one chosen under Attention.")), saveButtons(() => box, "comparison")),
      el("div", { class: "row" }, el("label", { class: "inline" }, "Second model", model), !app.card.reads_images && text, button("Compare", go, { id: "compare-run", class: "primary" })), box));
    if (state.second || state.other) await go();
    else box.replaceChildren(note(app.cards.length > 1 ? "Choose a model or change the sentence, and compare." : "Change the sentence and compare; with clearhead serve DIR DIR2 two models can be compared."));
  },
};
