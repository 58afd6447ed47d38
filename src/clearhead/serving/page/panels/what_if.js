// Panel 8: switch heads or whole sub-layers off, or edit the source, and see what becomes of the translation.
import * as api from "../api.js";
import { button, el, fixed, heading, note, partName, shown } from "../draw.js";
import { compareWords, words } from "../difference.js";
import { css, diverging, over } from "../palette.js";
import { saveButtons } from "../save.js";
import { names, set, state } from "../store.js";

function marked(list, kind) { return list.map(([word, changed]) => [changed ? el("span", { class: `token ${kind}` }, word) : word, " "]); }

export function sideBySide(before, after, titles = ["before", "after"]) {
  const { old, fresh } = compareWords(words(before), words(after));
  return el("div", { class: "halves comparison" }, el("div", {}, el("h3", {}, titles[0]), el("p", { class: "before", dir: "auto" }, marked(old, "gone"))), el("div", {}, el("h3", {}, titles[1]), el("p", { class: "after", dir: "auto" }, marked(fresh, "new"))));
}

function toggle(part) {
  const chosen = names(state.try);
  set({ try: (chosen.includes(part) ? chosen.filter((one) => one !== part) : [...chosen, part]).join(",") });
}

function switches(app) {
  const chosen = new Set(names(state.try));
  const rows = app.card.parts.map(({ name, layer, heads }) => { // the row that is chosen in the map or the grid is marked
    const each = (part, label) => button(label, () => toggle(part), { "aria-pressed": String(chosen.has(part)), "aria-label": `${label}: switch off ${partName(part)}`, "data-part": part });
    const whole = `${name}.${layer}`;
    return el("tr", { class: name === (state.part || state.kind) && String(layer) === state.layer ? "chosen" : null }, el("td", {}, partName(whole)), el("td", {}, each(whole, "all")),
      el("td", {}, el("div", { class: "row" }, Array.from({ length: heads }, (_, head) => each(`${whole}.${head}`, String(head))))));
  });
  return el("div", { class: "scroll tall", tabindex: 0 }, el("table", { id: "switches" }, el("tr", {}, ["sub-layer", "whole", "heads"].map((text) => el("th", { scope: "col" }, text))), rows));
}

function changes(found, trace) {
  const values = found.token_changes;
  const most = Math.max(...values.map(Math.abs), 0.01);
  return el("div", {}, values.map((value, index) => {
    const colour = diverging(value / most);
    const cell = el("span", { class: "token", title: fixed(value, 4) }, `${shown(trace.outputs[trace.num_given + index].text)} ${fixed(value, 3)}`);
    cell.style.background = css(colour);
    cell.style.color = over(colour);
    return cell;
  }));
}

async function showEffect(app, box) {
  const off = names(state.try);
  if (!off.length) { box.replaceChildren(note("Choose what to switch off. Nothing is yet.")); return; }
  const found = await api.ablate(app.trace.id, off);
  box.replaceChildren(el("div", { class: "row" }, el("h2", { class: "grow" }, off.length === 1 ? `Without ${partName(off[0])}` : `Without ${off.length} parts`), saveButtons(() => box, "what-if")), sideBySide(found.before, found.after, ["whole model", "parts off"]),
    el("p", { id: "change", "data-change": found.change, "data-after": found.after }, `The old output's log-probability changes by ${fixed(found.change, 4)}: it is ${found.change < 0 ? "less" : "more"} probable by a factor of ${Math.exp(Math.abs(found.change)).toPrecision(3)}.`),
    el("p", { class: "quiet small" }, "Piece by piece, the change in log-probability of the old output:"), changes(found, app.trace),
    button("Open this model everywhere", () => set({ off: off.join(","), tab: "attention" }, { remember: true }), { id: "open-off" }));
}

async function tryAll(app, box) {
  box.replaceChildren(note("Switching off every head, one at a time…"));
  const { effects } = await api.about(app.trace.id, "effects?outputs=true");
  const ordered = [...effects].sort((one, other) => one.change - other.change);
  box.replaceChildren(el("div", { class: "row" }, el("h2", { class: "grow" }, "Every head, switched off alone"), saveButtons(() => box, "every-head")), el("div", { class: "scroll tall", tabindex: 0 }, el("table", { id: "effects" }, el("tr", {}, ["head", "change", "what it writes then"].map((text) => el("th", { scope: "col" }, text))),
    ordered.map((one) => el("tr", { "data-part": one.part }, el("td", {}, button(partName(one.part), () => set({ try: one.part }), { "data-show": one.part })), el("td", { class: "num" }, fixed(one.change)),
      el("td", { dir: "auto" }, one.after === app.trace.target_text ? el("span", { class: "quiet" }, "the same") : marked(compareWords(words(app.trace.target_text), words(one.after)).fresh, "new")))))));
}

async function editSource(app, box, text) {
  if (!text.trim()) { box.replaceChildren(note("Write a sentence to compare with.")); return; }
  const other = await api.trace({ ...app.request({ tokens: "", prefix: "", target: "", hypothesis: "0" }), text });
  box.replaceChildren(sideBySide(app.trace.source_text, text, ["source", "edited source"]), sideBySide(app.trace.target_text, other.target_text, ["output", "output of the edited source"]),
    el("p", { id: "edit-change" }, `log-probability ${fixed(app.trace.log_prob)} before, ${fixed(other.log_prob)} after`));
}

const guarded = (app, box, work) => work.catch((problem) => { if (problem instanceof api.Problem) box.replaceChildren(note(problem.message)); else app.fail(problem); });

export const whatIf = {
  id: "whatif",
  title: "What if",
  tour: "Switch a head off and the model translates without it: what changes is what the head was good for here. Or change a word of the source and see what follows.",
  applies: (app) => app.trace?.outputs.length > 0 && app.card.parts.length > 0,
  async draw(root, app) {
    const effect = el("section", { class: "card", id: "effect", "aria-live": "polite" });
    const all = el("section", { class: "card", id: "all-heads" }, el("p", { class: "quiet" }, "Or switch off every head, one at a time, and see what each is good for."));
    const left = el("section", { class: "card" }, el("div", { class: "row" }, el("h2", { class: "grow" }, "Switch off"), button("None", () => set({ try: "" })), app.trace.heads.length > 0 && button("Try every head", () => { set({ all: "1" }); guarded(app, all, tryAll(app, all)); }, { id: "try-all" })), switches(app));
    root.append(el("div", { class: "halves" }, left, el("div", { class: "stack" }, effect, app.trace.heads.length > 0 && all)));
    if (!app.card.reads_images) {
      const input = el("input", { id: "edit", dir: "auto", value: state.edit || app.trace.source_text, "aria-label": "Edited source", class: "grow" });
      const out = el("div", { id: "edited", "aria-live": "polite" });
      const show = () => { set({ edit: input.value }); guarded(app, out, editSource(app, out, input.value)); };
      input.addEventListener("keydown", (event) => { if (event.key === "Enter") show(); });
      root.append(el("section", { class: "card" }, heading("Edit the source", "Change a word and compare."), el("div", { class: "row" }, input, button("Compare", show, { id: "edit-run" }), saveButtons(() => out, "edited-source")), out));
      if (state.edit) await guarded(app, out, editSource(app, out, state.edit));
    }
    if (state.all === "1" && app.trace.heads.length) await guarded(app, all, tryAll(app, all));
    await guarded(app, effect, showEffect(app, effect));
  },
  async update(root, app, changed) {
    if (!changed.has("try")) return;
    const chosen = new Set(names(state.try));
    for (const each of root.querySelectorAll("#switches button")) each.setAttribute("aria-pressed", String(chosen.has(each.dataset.part)));
    const box = root.querySelector("#effect");
    await guarded(app, box, showEffect(app, box));
  },
};
