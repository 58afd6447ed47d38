// The panel Compare: two models, or two sentences, with a map of the differences if both heads have the same shape.
import * as api from "../api.js";
import { button, el, fixed, headName, heading, note } from "../draw.js";
import { drawMatrix } from "../matrix.js";
import { diverging } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { keyPositions, queryPositions, rowName } from "../view.js";
import { selectedHead } from "./head.js";
import { beforeAndAfter } from "./what_if.js";

const MATRIX_SIZE = 300;

function labels(trace, kind) {
  return { rows: queryPositions(trace, kind).map((_, t) => rowName(trace, kind, t)), columns: keyPositions(trace, kind).map((position) => position.text) };
}

function headMatrix(trace, record, kind, label) {
  return el("div", { class: "scroll", tabindex: 0 }, drawMatrix({ weights: record.weights, allowed: record.allowed, ...labels(trace, kind), label, maxSize: MATRIX_SIZE }));
}

function differenceMap(first, second, trace, kind) {
  const isSameSize = first.weights.length === second.weights.length && first.weights[0].length === second.weights[0].length;
  if (!isSameSize) return note(`There is no difference map, because the first head has ${first.weights.length} × ${first.weights[0].length} weights and the second ${second.weights.length} × ${second.weights[0].length}. Force the same target, or use a sentence with the same number of tokens.`);
  const weights = first.weights.map((row, t) => row.map((weight, s) => weight - second.weights[t][s]));
  const largest = Math.max(...weights.map((row) => Math.max(...row.map(Math.abs))));
  return el("div", {}, el("h3", {}, "Difference: first minus second"), el("p", { class: "small quiet", id: "largest", "data-largest": largest }, `largest difference ${fixed(largest, 4)}; blue: larger weight in the first, orange: larger weight in the second`),
    el("div", { class: "scroll", tabindex: 0 }, drawMatrix({ weights, allowed: first.allowed, ...labels(trace, kind), label: "Difference map", maxSize: MATRIX_SIZE, color: diverging })));
}

async function showComparison(app, box) {
  const model = state.second_model || app.model.name;
  const text = state.second_text || app.trace.source_text;
  const other = await api.trace({ ...app.request({ tokens: "", prefix: "", ablated: "", positions: "", hypothesis: "0" }), model, ...(app.model.reads_images ? {} : { text }) });
  const firstHead = selectedHead();
  const sameHead = other.heads.some((head) => headName(head) === headName(firstHead));
  const secondHead = sameHead ? firstHead : other.heads.find((head) => head.kind === firstHead.kind) ?? other.heads[0];
  const titles = [app.model.name, model === app.model.name ? "second sentence" : model];
  const hasOutputs = app.trace.outputs.length && other.outputs.length;
  const content = hasOutputs ? [beforeAndAfter(app.trace.target_text, other.target_text, titles), el("p", { id: "compared" }, `log-probabilities of the outputs: ${fixed(app.trace.log_prob)} and ${fixed(other.log_prob)}`)] : [];
  if (firstHead.kind && secondHead) {
    const [first, second] = await Promise.all([api.head(app.trace.id, firstHead), api.head(other.id, secondHead)]);
    content.push(el("div", { class: "halves" },
      el("div", {}, el("h3", {}, `${titles[0]}: ${headName(firstHead)}`), headMatrix(app.trace, first, firstHead.kind, "First")),
      el("div", {}, el("h3", {}, `${titles[1]}: ${headName(secondHead)}`), headMatrix(other, second, secondHead.kind, "Second"))),
    firstHead.kind === secondHead.kind ? differenceMap(first, second, app.trace, firstHead.kind) : note("The second model has no attention of this kind."));
  }
  box.replaceChildren(...content);
}

export const compare = {
  id: "compare",
  title: "Compare",
  tour: "Compare two models on one sentence, or one model on two sentences: their outputs with the differences marked, the same head of both, and a map of the differences between the weights.",
  applies: (app) => app.trace && !(app.model.reads_images && app.models.length < 2),
  async draw(root, app) {
    const box = el("div", { id: "comparison", class: "stack", "aria-live": "polite" });
    const comparable = app.models.filter((model) => model.reads_images === app.model.reads_images);
    const model = el("select", { id: "second-model" }, comparable.map((option) => el("option", { value: option.name }, option.name)));
    model.value = state.second_model || (comparable.find((option) => option.name !== app.model.name) ?? app.model).name;
    const text = el("input", { id: "second-text", class: "grow", dir: "auto", value: state.second_text || app.trace.source_text, "aria-label": "Second sentence" });
    const run = async () => {
      set({ second_model: model.value, second_text: text.value === app.trace.source_text ? "" : text.value });
      try { await showComparison(app, box); } catch (error) { if (error instanceof api.ApiError) box.replaceChildren(note(error.message)); else app.showError(error); }
    };
    root.append(el("section", { class: "card stack" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading("Compare", "The head is the one that is selected in the panel Attention.")), saveButtons(() => box, "comparison")),
      el("div", { class: "row" }, el("label", { class: "inline" }, "Second model", model), !app.model.reads_images && text, button("Compare", run, { id: "compare-run", class: "primary" })), box));
    if (state.second_model || state.second_text) await run();
    else box.replaceChildren(note(app.models.length > 1 ? "Select a second model or change the sentence, then click “Compare”." : "Change the sentence, then click “Compare”. To compare two models, start the server with two folders: clearhead serve DIR DIR2."));
  },
};
