// Panel 3: layers x heads as thumbnails, in their places or sorted by a measure.
import * as api from "../api.js";
import { bytes } from "../api.js";
import { KINDS, button, el, fixed, headName, partId } from "../draw.js";
import { isDark, painter } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";

const SORTS = {
  place: "by layer and head", entropy: "by entropy, sharp first", distance: "by distance, near first",
  diagonality: "by diagonality, most first", effect: "by effect when switched off",
};

const painted = new WeakMap(); // a head as it came -> its picture in each theme: another order paints nothing anew

function picture(one, allowed) {
  const known = painted.get(one) ?? {};
  painted.set(one, known);
  const theme = isDark() ? "dark" : "light";
  known[theme] ??= paint(one, allowed);
  return known[theme];
}

function paint(one, allowed) {
  const canvas = el("canvas", { "aria-hidden": "true", width: Math.max(1, one.columns), height: Math.max(1, one.rows) });
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const words = new Uint32Array(image.data.buffer);
  const colour = painter();
  bytes(one.pixels).forEach((value, index) => { words[index] = allowed[index] ? colour(value / 255) : 0; });
  context.putImageData(image, 0, 0);
  return canvas;
}

const isChosen = (one) => partId(one) === partId(state);

function thumb(one, small, allowed, caption) { // a caption is part of the name, for those who speak to the page
  const label = `${caption ? `${caption.map((each) => each.textContent).join(" ")}: ` : ""}${headName(one)}: entropy ${fixed(one.entropy, 2)}`;
  return button([picture(small, allowed), caption?.flatMap((each) => [each, " "])], () => set({ part: one.kind, kind: one.kind, layer: one.layer, head: one.head, row: "", column: "" }), {
    class: "thumb", "aria-label": label, title: label, "aria-current": String(isChosen(one)), "data-part": partId(one),
  });
}

export function markGrid(root) {
  for (const each of root.querySelectorAll(`.thumb[aria-current="true"], .thumb[data-part="${CSS.escape(partId(state))}"]`)) each.setAttribute("aria-current", String(each.dataset.part === partId(state)));
}

function controls() {
  const sort = el("select", { id: "sort", onchange: (event) => set({ sort: event.target.value }) },
    Object.entries(SORTS).map(([value, text]) => el("option", { value }, text)));
  sort.value = state.sort;
  const hide = el("input", { type: "checkbox", id: "hide", checked: state.hide === "1", onchange: (event) => set({ hide: event.target.checked ? "1" : "" }) });
  return el("div", { class: "row" }, el("label", { class: "inline" }, "Order", sort), el("label", { class: "inline" }, hide, "Hide special tokens"));
}

function placed(entries) {
  const blocks = [];
  for (const kind of Object.keys(KINDS)) {
    const own = entries.filter(({ one }) => one.kind === kind);
    if (!own.length) continue;
    const table = el("div", { class: "thumbs" });
    table.style.setProperty("--heads", Math.max(...own.map(({ one }) => one.head)) + 1);
    for (const layer of new Set(own.map(({ one }) => one.layer))) {
      table.append(el("span", { class: "quiet small" }, `L${layer}`));
      for (const { one, small, allowed } of own.filter((entry) => entry.one.layer === layer)) table.append(thumb(one, small, allowed, null));
    }
    blocks.push(el("h3", {}, KINDS[kind]), table);
  }
  return blocks;
}

function sorted(entries, effects) {
  const value = ({ one }) => (state.sort === "effect" ? effects.get(partId(one)) : one[state.sort]);
  const sign = state.sort === "diagonality" ? -1 : 1;
  const worst = (entry) => value(entry) ?? Infinity;
  const ordered = [...entries].sort((one, other) => (worst(one) === worst(other) ? 0 : sign * (worst(one) - worst(other))));
  return [el("div", { class: "thumbs flat" }, ordered.map((entry) =>
    thumb(entry.one, entry.small, entry.allowed, [el("span", {}, partId(entry.one)), el("span", { class: "quiet" }, fixed(value(entry), 2))])))];
}

function move(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.classList.contains("thumb")) return;
  const all = [...event.currentTarget.querySelectorAll(".thumb")];
  const next = all[all.indexOf(event.target) + step];
  if (next) { event.preventDefault(); next.focus(); }
}

const thumbnails = (trace, hide) => api.about(trace.id, `thumbnails?hide_special=${hide}`);

export async function drawGrid(root, app) {
  const { trace } = app;
  const found = await thumbnails(trace, state.hide === "1");
  requestIdleCallback(() => thumbnails(trace, state.hide !== "1").catch(() => {})); // at hand when the switch is turned
  const effects = new Map();
  if (state.sort === "effect") for (const one of (await api.about(trace.id, "effects")).effects) effects.set(one.part, one.change);
  const masks = Object.fromEntries(Object.entries(found.allowed).map(([kind, text]) => [kind, bytes(text)]));
  const entries = trace.heads.map((one, index) => ({ one, small: found.heads[index], allowed: masks[one.kind] }));
  const body = el("div", { class: "tall", tabindex: 0, onkeydown: move }, state.sort === "place" ? placed(entries) : sorted(entries, effects));
  root.replaceChildren(...[el("div", { class: "row" }, el("h2", { class: "grow" }, `${trace.heads.length === 1 ? "The only head" : `All ${trace.heads.length} heads`}`), saveButtons(() => body, "heads")), controls(),
    state.hide === "1" && el("p", { class: "note" }, "Special tokens are hidden as keys: every row is renormalised to sum to 1."), body].filter(Boolean));
}
