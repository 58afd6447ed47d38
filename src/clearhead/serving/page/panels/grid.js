// All heads as thumbnails, arranged by layer and head or sorted by a statistic.
import * as api from "../api.js";
import { KIND_NAMES, button, el, fixed, headName, headRef } from "../draw.js";
import { isDark, painter } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";

const SORT_NAMES = {
  layer: "by layer and head", entropy: "by entropy, lowest first", distance: "by distance, nearest first",
  diagonality: "by diagonality, highest first", effect: "by effect of ablation",
};

const canvases = new WeakMap(); // thumbnail -> its canvas in each theme; sorting reuses them

function thumbnailCanvas(thumbnail, allowed) {
  const byTheme = canvases.get(thumbnail) ?? {};
  canvases.set(thumbnail, byTheme);
  const theme = isDark() ? "dark" : "light";
  byTheme[theme] ??= paintThumbnail(thumbnail, allowed);
  return byTheme[theme];
}

function paintThumbnail(thumbnail, allowed) {
  const canvas = el("canvas", { "aria-hidden": "true", width: Math.max(1, thumbnail.columns), height: Math.max(1, thumbnail.rows) });
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const color = painter();
  api.decodeBase64(thumbnail.pixels).forEach((value, index) => { pixels[index] = allowed[index] ? color(value / 255) : 0; });
  context.putImageData(image, 0, 0);
  return canvas;
}

const isSelected = (head) => headRef(head) === headRef(state);

// The accessible name contains the visible caption, so that voice control can select the button by it.
function thumbnailButton({ head, thumbnail, allowed }, caption) {
  const label = `${caption ? `${caption.map((line) => line.textContent).join(" ")}: ` : ""}${headName(head)}: entropy ${fixed(head.entropy, 2)} nats`;
  return button([thumbnailCanvas(thumbnail, allowed), caption?.flatMap((line) => [line, " "])], () => set({ block: head.kind, kind: head.kind, layer: head.layer, head: head.head, row: "", column: "" }), {
    class: "thumb", "aria-label": label, title: label, "aria-current": String(isSelected(head)), "data-head-ref": headRef(head),
  });
}

export function markSelectedHead(root) {
  for (const thumb of root.querySelectorAll(`.thumb[aria-current="true"], .thumb[data-head-ref="${CSS.escape(headRef(state))}"]`)) thumb.setAttribute("aria-current", String(thumb.dataset.headRef === headRef(state)));
}

function controls() {
  const sort = el("select", { id: "sort", onchange: (event) => set({ sort: event.target.value }) },
    Object.entries(SORT_NAMES).map(([value, text]) => el("option", { value }, text)));
  sort.value = state.sort;
  const hide = el("input", { type: "checkbox", id: "hide", checked: state.hide === "1", onchange: (event) => set({ hide: event.target.checked ? "1" : "" }) });
  return el("div", { class: "row" }, el("label", { class: "inline" }, "Order", sort), el("label", { class: "inline" }, hide, "Hide special tokens"));
}

function byLayer(entries) {
  const blocks = [];
  for (const kind of Object.keys(KIND_NAMES)) {
    const ofKind = entries.filter(({ head }) => head.kind === kind);
    if (!ofKind.length) continue;
    const table = el("div", { class: "thumbs" });
    table.style.setProperty("--heads", Math.max(...ofKind.map(({ head }) => head.head)) + 1);
    for (const layer of new Set(ofKind.map(({ head }) => head.layer))) {
      table.append(el("span", { class: "quiet small" }, `L${layer}`));
      for (const entry of ofKind.filter(({ head }) => head.layer === layer)) table.append(thumbnailButton(entry, null));
    }
    blocks.push(el("h3", {}, KIND_NAMES[kind]), table);
  }
  return blocks;
}

function sorted(entries, effects) {
  const valueOf = ({ head }) => (state.sort === "effect" ? effects.get(headRef(head)) : head[state.sort]);
  const sign = state.sort === "diagonality" ? -1 : 1;
  const sortKey = (entry) => valueOf(entry) ?? Infinity;
  const ordered = [...entries].sort((a, b) => (sortKey(a) === sortKey(b) ? 0 : sign * (sortKey(a) - sortKey(b))));
  return [el("div", { class: "thumbs flat" }, ordered.map((entry) =>
    thumbnailButton(entry, [el("span", {}, headRef(entry.head)), el("span", { class: "quiet" }, fixed(valueOf(entry), 2))])))];
}

function moveFocus(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.classList.contains("thumb")) return;
  const thumbs = [...event.currentTarget.querySelectorAll(".thumb")];
  const next = thumbs[thumbs.indexOf(event.target) + step];
  if (next) { event.preventDefault(); next.focus(); }
}

const loadThumbnails = (trace, hideSpecial) => api.view(trace.id, `thumbnails?hide_special=${hideSpecial}`);

export async function drawGrid(root, app) {
  const { trace } = app;
  const loaded = await loadThumbnails(trace, state.hide === "1");
  requestIdleCallback(() => loadThumbnails(trace, state.hide !== "1").catch(() => {})); // loaded into the cache for a click on the checkbox
  const effects = new Map();
  if (state.sort === "effect") for (const effect of (await api.view(trace.id, "effects")).effects) effects.set(effect.head_ref, effect.log_prob_change);
  const masks = Object.fromEntries(Object.entries(loaded.allowed).map(([kind, text]) => [kind, api.decodeBase64(text)]));
  const entries = trace.heads.map((head, index) => ({ head, thumbnail: loaded.heads[index], allowed: masks[head.kind] }));
  const body = el("div", { class: "tall", tabindex: 0, onkeydown: moveFocus }, state.sort === "layer" ? byLayer(entries) : sorted(entries, effects));
  root.replaceChildren(...[el("div", { class: "row" }, el("h2", { class: "grow" }, trace.heads.length === 1 ? "1 head" : `All ${trace.heads.length} heads`), saveButtons(() => body, "heads")), controls(),
    state.hide === "1" && el("p", { class: "note" }, "Special tokens are hidden, and every row is renormalised: the weights of the remaining keys sum to 1."), body].filter(Boolean));
}
