// The panel Answer: predictions of models that do not generate text. Also the drawing of attention over image patches.
import { button, displayText, el, heading, probability, svg } from "../draw.js";
import { css, themeColor, sequential } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";

const PATCHES_SIZE = 168;

function probabilityBars(candidates, predicted) {
  return el("div", { class: "bars" }, candidates.map((candidate) => {
    const fill = el("div", { class: "fill" });
    fill.style.width = `${100 * Math.exp(candidate.log_prob)}%`;
    return [el("span", { class: candidate.token === predicted ? "chip" : "" }, displayText(candidate.text)), el("div", { class: "track" }, fill), el("span", { class: "mono" }, probability(candidate.log_prob))];
  }));
}

const isMask = (position) => position.text === "<mask>";

// Returns the text with the predicted tokens in place of the masks.
export function filledText(trace) {
  const words = trace.source.flatMap((position, index) => (isMask(position) ? [displayText(trace.outputs[index].text)] : []));
  if (!words.length) return `${trace.source_text} (no mask: write [MASK] in place of a word to predict it)`;
  return trace.source_text.replace(/\[MASK\]|<mask>/g, () => words.shift() ?? "");
}

export const answer = {
  id: "answer",
  title: "Answer",
  tour: "The predictions of the model with their probabilities: the label of a text or an image, the tag of each token, or the token for each mask.",
  applies: (app) => app.trace?.outputs.length > 0 && !app.model.generates_text,
  async draw(root, app) {
    const { trace } = app;
    const mask = trace.source.findIndex(isMask);
    if (mask >= 0 && state.output === "0") set({ output: mask }, { quiet: true });
    const selected = Math.min(Number(state.output), trace.outputs.length - 1);
    const isSingle = trace.outputs.length === 1;
    const positions = isSingle ? [] : trace.source.map((position, index) => button(`${displayText(position.text)} · ${displayText(trace.outputs[index].text)}`, () => set({ output: index }), { "aria-pressed": String(index === selected), class: "mono" }));
    const title = isSingle ? heading(`Label: ${trace.target_text}`, "The most probable labels, best first.") : heading("One prediction per position", "Each button shows a token and its prediction; select one to see its most probable candidates.");
    root.append(el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, title), saveButtons(() => root, "answer")),
      el("div", { class: "row" }, positions), el("h3", {}, isSingle ? "Labels" : `Candidates for ${displayText(trace.source[selected].text)}`), probabilityBars(trace.candidates[selected], trace.outputs[selected].token)));
  },
  async update(root, app, changed) { if (changed.has("output")) { root.replaceChildren(); await this.draw(root, app); } },
};

// Returns a drawing of one row of a head over an image: each patch in the color of its weight; null for the decoder's self-attention.
export function drawPatches(trace, record, head, row) {
  const { rows, columns, has_class_token: hasClassToken } = trace.grid;
  const first = hasClassToken ? 1 : 0;
  const weights = record.weights[row];
  if (head.kind === "decoder") return null;
  const size = Math.floor(PATCHES_SIZE / Math.max(rows, columns));
  const largest = Math.max(...weights, 1e-9);
  const drawing = svg("svg", { width: columns * size + 2, height: rows * size + 2, role: "img", class: "patches", "aria-label": "Attention over image patches" });
  for (let patch = 0; patch < rows * columns; patch += 1) {
    const [y, x] = [Math.floor(patch / columns), patch % columns];
    drawing.append(svg("rect", { x: 1 + x * size, y: 1 + y * size, width: size, height: size, fill: css(sequential(weights[first + patch] / largest)), stroke: themeColor("line") }, svg("title", {}, `patch ${y},${x}: ${weights[first + patch].toFixed(7)}`)));
  }
  const query = head.kind === "cross" ? `→${trace.outputs[row].text}` : trace.source[row].text;
  return el("figure", { class: "small" }, drawing, el("figcaption", { class: "quiet" }, `attention weights of query ${query}${hasClassToken ? `; class token ${weights[0].toFixed(3)}` : ""}`));
}
