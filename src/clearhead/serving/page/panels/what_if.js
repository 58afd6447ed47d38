// The panel What if: ablation of heads or sub-layers, and edits of the source, with their effect on the output.
import * as api from "../api.js";
import { button, displayText, el, fixed, heading, headRefName, note } from "../draw.js";
import { compareWords, splitWords } from "../difference.js";
import { css, diverging, textColorOn } from "../palette.js";
import { saveButtons } from "../save.js";
import { parseNames, set, state } from "../store.js";

function markChanges(words, kind) { return words.map(([word, isChanged]) => [isChanged ? el("span", { class: `token ${kind}` }, word) : word, " "]); }

export function beforeAndAfter(before, after, titles = ["before", "after"]) {
  const words = compareWords(splitWords(before), splitWords(after));
  return el("div", { class: "halves comparison" }, el("div", {}, el("h3", {}, titles[0]), el("p", { class: "before", dir: "auto" }, markChanges(words.before, "removed"))), el("div", {}, el("h3", {}, titles[1]), el("p", { class: "after", dir: "auto" }, markChanges(words.after, "added"))));
}

function toggle(ref) {
  const ablated = parseNames(state.whatif);
  set({ whatif: (ablated.includes(ref) ? ablated.filter((other) => other !== ref) : [...ablated, ref]).join(",") });
}

function ablationTable(app) {
  const ablated = new Set(parseNames(state.whatif));
  const rows = app.model.sublayers.map(({ name, layer, num_heads: numHeads }) => {
    const toggleButton = (ref, label) => button(label, () => toggle(ref), { "aria-pressed": String(ablated.has(ref)), "aria-label": `${label}: ablate ${headRefName(ref)}`, "data-head-ref": ref });
    const sublayer = `${name}.${layer}`;
    const isSelected = name === (state.block || state.kind) && String(layer) === state.layer; // in the other panels
    return el("tr", { class: isSelected ? "selected" : null }, el("td", {}, headRefName(sublayer)), el("td", {}, toggleButton(sublayer, "all")),
      el("td", {}, el("div", { class: "row" }, Array.from({ length: numHeads }, (_, head) => toggleButton(`${sublayer}.${head}`, String(head))))));
  });
  return el("div", { class: "scroll tall", tabindex: 0 }, el("table", { id: "ablations" }, el("tr", {}, ["sub-layer", "whole", "single heads"].map((text) => el("th", { scope: "col" }, text))), rows));
}

function tokenChanges(effect, trace) {
  const changes = effect.token_log_prob_changes;
  const largest = Math.max(...changes.map(Math.abs), 0.01);
  return el("div", {}, changes.map((change, index) => {
    const color = diverging(change / largest);
    const token = el("span", { class: "token", title: fixed(change, 4) }, `${displayText(trace.outputs[trace.prompt_length + index].text)} ${fixed(change, 3)}`);
    token.style.background = css(color);
    token.style.color = textColorOn(color);
    return token;
  }));
}

async function showEffect(app, box) {
  const ablated = parseNames(state.whatif);
  if (!ablated.length) { box.replaceChildren(note("Select heads or sub-layers to ablate.")); return; }
  const effect = await api.ablate(app.trace.id, ablated);
  const change = effect.log_prob_change;
  const title = ablated.length === 1 ? `Without ${headRefName(ablated[0])}` : `Without ${ablated.length} heads or sub-layers`;
  box.replaceChildren(el("div", { class: "row" }, el("h2", { class: "grow" }, title), saveButtons(() => box, "what-if")), beforeAndAfter(effect.before, effect.after, ["complete model", "ablated model"]),
    el("p", { id: "change", "data-change": change, "data-after": effect.after }, `The log-probability of the original output changes by ${fixed(change, 4)}: it is ${change < 0 ? "less" : "more"} probable by a factor of ${Math.exp(Math.abs(change)).toPrecision(3)}.`),
    el("p", { class: "quiet small" }, "Change in the log-probability of each token of the original output:"), tokenChanges(effect, app.trace),
    button("Use the ablated model in all panels", () => set({ ablated: ablated.join(","), tab: "attention" }, { remember: true }), { id: "use-ablated" }));
}

async function showAllHeads(app, box) {
  box.replaceChildren(note("Ablating one head at a time…"));
  const { effects } = await api.view(app.trace.id, "effects?outputs=true");
  const ordered = [...effects].sort((a, b) => a.log_prob_change - b.log_prob_change);
  const newOutput = (text) => (text === app.trace.target_text ? el("span", { class: "quiet" }, "unchanged") : markChanges(compareWords(splitWords(app.trace.target_text), splitWords(text)).after, "added"));
  box.replaceChildren(el("div", { class: "row" }, el("h2", { class: "grow" }, "Each head ablated, one at a time"), saveButtons(() => box, "every-head")), el("div", { class: "scroll tall", tabindex: 0 }, el("table", { id: "effects" }, el("tr", {}, ["head", "change in log-probability", "output of the ablated model"].map((text) => el("th", { scope: "col" }, text))),
    ordered.map((effect) => el("tr", { "data-head-ref": effect.head_ref }, el("td", {}, button(headRefName(effect.head_ref), () => set({ whatif: effect.head_ref }), { "data-show": effect.head_ref })), el("td", { class: "num" }, fixed(effect.log_prob_change)),
      el("td", { dir: "auto" }, newOutput(effect.after)))))));
}

async function showEdit(app, box, text) {
  if (!text.trim()) { box.replaceChildren(note("Enter a sentence to compare with.")); return; }
  const edited = await api.trace({ ...app.request({ tokens: "", prefix: "", target: "", hypothesis: "0" }), text });
  box.replaceChildren(beforeAndAfter(app.trace.source_text, text, ["source", "edited source"]), beforeAndAfter(app.trace.target_text, edited.target_text, ["output", "output for the edited source"]),
    el("p", { id: "edit-change" }, `log-probability of the output ${fixed(app.trace.log_prob)}, for the edited source ${fixed(edited.log_prob)}`));
}

const showErrors = (app, box, promise) => promise.catch((error) => { if (error instanceof api.ApiError) box.replaceChildren(note(error.message)); else app.showError(error); });

export const whatIf = {
  id: "whatif",
  title: "What if",
  tour: "Ablate a head: its output becomes zero, and the change in the model's output shows what the head contributes to this example. Or change a word of the source and compare the outputs.",
  applies: (app) => app.trace?.outputs.length > 0 && app.model.sublayers.length > 0,
  async draw(root, app) {
    const hasHeads = app.trace.heads.length > 0;
    const effect = el("section", { class: "card", id: "effect", "aria-live": "polite" });
    const allHeads = el("section", { class: "card", id: "all-heads" }, el("p", { class: "quiet" }, "Click “Try every head” to ablate one head at a time and to compare the effects."));
    const tryAll = button("Try every head", () => { set({ all_heads: "1" }); showErrors(app, allHeads, showAllHeads(app, allHeads)); }, { id: "try-all" });
    const selection = el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading("Ablate", "The output of an ablated head or sub-layer becomes zero.")), button("None", () => set({ whatif: "" })), hasHeads && tryAll), ablationTable(app));
    root.append(el("div", { class: "halves" }, selection, el("div", { class: "stack" }, effect, hasHeads && allHeads)));
    if (!app.model.reads_images) {
      const input = el("input", { id: "edit", dir: "auto", value: state.edited_text || app.trace.source_text, "aria-label": "Edited source", class: "grow" });
      const output = el("div", { id: "edited", "aria-live": "polite" });
      const show = () => { set({ edited_text: input.value }); showErrors(app, output, showEdit(app, output, input.value)); };
      input.addEventListener("keydown", (event) => { if (event.key === "Enter") show(); });
      root.append(el("section", { class: "card" }, heading("Edit the source", "Change a word and compare the outputs."), el("div", { class: "row" }, input, button("Compare", show, { id: "edit-run" }), saveButtons(() => output, "edited-source")), output));
      if (state.edited_text) await showErrors(app, output, showEdit(app, output, state.edited_text));
    }
    if (state.all_heads === "1" && hasHeads) await showErrors(app, allHeads, showAllHeads(app, allHeads));
    await showErrors(app, effect, showEffect(app, effect));
  },
  async update(root, app, changed) {
    if (!changed.has("whatif")) return;
    const ablated = new Set(parseNames(state.whatif));
    for (const toggleButton of root.querySelectorAll("#ablations button")) toggleButton.setAttribute("aria-pressed", String(ablated.has(toggleButton.dataset.headRef)));
    const box = root.querySelector("#effect");
    await showErrors(app, box, showEffect(app, box));
  },
};
