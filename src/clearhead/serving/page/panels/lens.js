// The panel Lens & attribution: predictions after each layer, attribution of outputs to inputs, and entropy by layer.
import * as api from "../api.js";
import { KIND_NAMES, SHORT_KIND_NAMES, el, fixed, heading, note, headRef, probability, shortText, displayText, svg } from "../draw.js";
import { css, diverging, themeColor, textColorOn, sequential } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { keyPositions } from "../view.js";

const withSaveButtons = (title, name) => el("div", { class: "row" }, el("div", { class: "grow" }, title), saveButtons(() => document.getElementById(name), name));
// Returns an error of the server instead of throwing it, because some models have no logit lens or no attribution.
const orApiError = (promise) => promise.catch((error) => { if (error instanceof api.ApiError) return error; throw error; });

function lensTable(trace, lensView) {
  const header = ["after", ...trace.outputs.map((output) => shortText(output.text, 9))];
  const rows = [...lensView.layers].reverse().map((layer) => el("tr", {}, el("th", { scope: "row" }, layer.layer < 0 ? "embedding" : `layer ${layer.layer}`), layer.candidates.map((candidates, index) => {
    const [best] = candidates;
    const color = sequential(Math.exp(best.log_prob));
    const cell = el("td", { title: `${displayText(best.text)} ${probability(best.log_prob)}; probability of the model's output ${displayText(trace.outputs[index].text)}: ${probability(layer.token_log_probs[index])}` }, best.token === trace.outputs[index].token ? el("strong", {}, shortText(best.text, 9)) : shortText(best.text, 9));
    cell.style.background = css(color);
    cell.style.color = textColorOn(color);
    return cell;
  })));
  return el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Logit lens" }, el("table", { id: "lens-table" }, el("tr", {}, header.map((text) => el("th", { scope: "col" }, text))), rows));
}

const shortNumber = (value) => (Math.abs(value) >= 0.005 || value === 0 ? fixed(value, 2) : value.toExponential(0).replaceAll("-", "−"));

function shadedWords(texts, values) {
  const largest = Math.max(...values.map(Math.abs), 1e-9);
  return el("div", {}, texts.map((text, index) => {
    const color = diverging(values[index] / largest);
    const word = el("span", { class: "token", title: fixed(values[index], 5) }, `${displayText(text)} ${shortNumber(values[index])}`);
    word.style.background = css(color);
    word.style.color = textColorOn(color);
    return word;
  }));
}

async function attributionOf(app, attribution) {
  const { trace } = app;
  const output = Math.min(Number(state.output), trace.outputs.length - 1);
  const select = el("select", { id: "output-choice", onchange: (event) => set({ output: event.target.value }) }, trace.outputs.map((position, index) => el("option", { value: index }, `step ${index + 1}: ${displayText(position.text)}`)));
  select.value = String(output);
  const texts = (positions) => positions.map((position) => position.text);
  const content = [el("p", { class: "note", id: "caution" }, attribution.caution), el("label", { class: "inline" }, "Output", select)];
  if (attribution.source) content.push(el("h3", {}, "Gradient × input: source"), shadedWords(texts(trace.source), attribution.source[output]));
  if (attribution.inputs) content.push(el("h3", {}, "Gradient × input: decoder inputs"), shadedWords(texts(trace.inputs), attribution.inputs[output]));
  const generated = output - trace.prompt_length; // index without the prompt
  if (generated >= 0) content.push(el("h3", {}, `Leave-one-out: decrease in log-probability without each ${app.model.reads_images ? "patch" : "word"}`), shadedWords(attribution.leave_one_out.texts, attribution.leave_one_out.losses.map((row) => row[generated])));
  const kind = ["cross", "encoder", "decoder"].find((name) => trace.heads.some((head) => head.kind === name));
  if (kind === "cross" || (kind === "decoder" && trace.inputs.length)) {
    const heads = trace.heads.filter((head) => head.kind === kind);
    const records = await Promise.all(heads.filter((head) => head.layer === heads.at(-1).layer).map((head) => api.head(trace.id, head)));
    const mean = records[0].weights[output].map((_, s) => records.reduce((sum, record) => sum + record.weights[output][s], 0) / records.length);
    content.push(el("h3", {}, `For comparison: ${KIND_NAMES[kind].toLowerCase()} in the last layer, mean over heads`), shadedWords(texts(keyPositions(trace, kind)), mean));
  }
  return content;
}

function entropies(trace) {
  const kinds = [...new Set(trace.heads.map((head) => head.kind))];
  const largest = Math.max(...trace.heads.map((head) => head.entropy), 0.1);
  return el("div", { class: "row", id: "entropy" }, kinds.map((kind) => {
    const heads = trace.heads.filter((head) => head.kind === kind);
    const layers = Math.max(...heads.map((head) => head.layer)) + 1;
    const [W, H] = [Math.max(210, layers * 46 + 60), 160];
    const y = (value) => H - 26 - (value / largest) * (H - 58);
    const drawing = svg("svg", { width: W, height: H, role: "img", "aria-label": `Entropy by layer, ${SHORT_KIND_NAMES[kind]}`, class: "entropy" }, svg("text", { x: 34, y: 12, "font-size": 11, fill: themeColor("quiet") }, `${SHORT_KIND_NAMES[kind]}: entropy in nats`), svg("line", { x1: 30, x2: W - 6, y1: y(0), y2: y(0), stroke: themeColor("line") }), svg("text", { x: 26, y: y(largest) + 6, "font-size": 10, "text-anchor": "end", fill: themeColor("quiet") }, fixed(largest, 1)));
    for (const head of heads) drawing.append(svg("circle", { cx: 54 + head.layer * 46, cy: y(head.entropy), r: 5, fill: css(sequential(0.8)), opacity: 0.75 }, svg("title", {}, `${headRef(head)}: ${fixed(head.entropy)}`)));
    for (let layer = 0; layer < layers; layer += 1) drawing.append(svg("text", { x: 54 + layer * 46, y: H - 8, "text-anchor": "middle", "font-size": 11, fill: themeColor("quiet") }, `L${layer}`));
    return drawing;
  }));
}

export const lens = {
  id: "lens",
  title: "Lens & attribution",
  tour: "The logit lens applies the output layer after each layer: it shows what the model would predict if it ended there. Attribution measures how much each input contributes to an output, by gradients and by removing words, not by attention weights.",
  applies: (app) => app.trace && app.trace.outputs.length > 0,
  async draw(root, app) {
    const [lensView, attribution] = await Promise.all([orApiError(api.view(app.trace.id, "lens")), orApiError(api.view(app.trace.id, "attribution"))]);
    this.attribution = attribution;
    root.append(el("section", { class: "card" }, withSaveButtons(heading("Logit lens", "Most probable token after each layer (rows) for each output (columns); the stronger the color, the higher the probability. Bold: same as the model's output."), "lens-table"), lensView instanceof Error ? note(lensView.message) : lensTable(app.trace, lensView)));
    if (app.trace.heads.length) root.append(el("section", { class: "card" }, withSaveButtons(heading("Entropy by layer", "Each dot is a head. Low entropy: it attends to few positions; high entropy: it attends equally to many."), "entropy"), entropies(app.trace)));
    root.append(el("section", { class: "card", id: "attribution" }, withSaveButtons(heading("Attribution", "Contribution of each input to the log-probability of one output."), "attributed"), el("div", { id: "attributed" }, attribution instanceof Error ? note(attribution.message) : await attributionOf(app, attribution))));
  },
  async update(root, app, changed) {
    if (changed.has("output") && this.attribution && !(this.attribution instanceof Error)) root.querySelector("#attributed").replaceChildren(...await attributionOf(app, this.attribution));
  },
};
