// For models that read: labels, tags, masked words; and for pictures, their patches.
import { button, el, heading, probability, shown, svg } from "../draw.js";
import { css, ink, sequential } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";

const SIDE = 168;

function bars(options, chosen) {
  return el("div", { class: "bars" }, options.map((option) => {
    const fill = el("div", { class: "fill" });
    fill.style.width = `${100 * Math.exp(option.log_prob)}%`;
    return [el("span", { class: option.token === chosen ? "chip" : "" }, shown(option.text)), el("div", { class: "track" }, fill), el("span", { class: "mono" }, probability(option.log_prob))];
  }));
}

const isGap = (place) => place.text === "<mask>";

// The text with the words that the model would put into its gaps.
export function filled(trace) {
  const words = trace.source.flatMap((place, index) => (isGap(place) ? [shown(trace.outputs[index].text)] : []));
  if (!words.length) return `${trace.source_text} (no gap: write [MASK] where a word is to be found)`;
  return trace.source_text.replace(/\[MASK\]|<mask>/g, () => words.shift() ?? "");
}

export const answer = {
  id: "answer",
  title: "Answer",
  tour: "What the model answers, and how sure it is: the label of a text or picture, the tag of every word, the word in a gap.",
  applies: (app) => app.trace?.outputs.length > 0 && !app.card.writes,
  async draw(root, app) {
    const { trace } = app;
    const gap = trace.source.findIndex(isGap);
    if (gap >= 0 && state.output === "0") set({ output: gap }, { quiet: true });
    const picked = Math.min(Number(state.output), trace.outputs.length - 1);
    const isOne = trace.outputs.length === 1;
    const words = isOne ? [] : trace.source.map((place, index) => button(`${shown(place.text)} · ${shown(trace.outputs[index].text)}`, () => set({ output: index }), { "aria-pressed": String(index === picked), class: "mono" }));
    root.append(el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading(isOne ? `The answer is ${trace.target_text}` : "One answer a place; choose one", isOne ? "The labels, by probability." : "A place, and what the model says of it.")), saveButtons(() => root, "answer")),
      el("div", { class: "row" }, words), el("h3", {}, isOne ? "Labels" : `For ${shown(trace.source[picked].text)}`), bars(trace.candidates[picked], trace.outputs[picked].token)));
  },
  async update(root, app, changed) { if (changed.has("output")) { root.replaceChildren(); await this.draw(root, app); } },
};

// A row of a head over a picture: every patch in the colour of its weight.
export function drawPatches(trace, record, part, row) {
  const { rows, columns, has_class_token: hasClass } = trace.grid;
  const first = hasClass ? 1 : 0;
  const weights = record.weights[row];
  if (part.kind === "decoder") return null;
  const size = Math.floor(SIDE / Math.max(rows, columns));
  const most = Math.max(...weights, 1e-9);
  const drawing = svg("svg", { width: columns * size + 2, height: rows * size + 2, role: "img", class: "patches", "aria-label": "Where this place looks in the picture" });
  for (let patch = 0; patch < rows * columns; patch += 1) {
    const [y, x] = [Math.floor(patch / columns), patch % columns];
    drawing.append(svg("rect", { x: 1 + x * size, y: 1 + y * size, width: size, height: size, fill: css(sequential(weights[first + patch] / most)), stroke: ink("line") }, svg("title", {}, `patch ${y},${x}: ${weights[first + patch].toFixed(7)}`)));
  }
  const looks = part.kind === "cross" ? `→${trace.outputs[row].text}` : trace.source[row].text;
  return el("figure", { class: "small" }, drawing, el("figcaption", { class: "quiet" }, `where ${looks} looks${hasClass ? `; class token ${weights[0].toFixed(3)}` : ""}`));
}
