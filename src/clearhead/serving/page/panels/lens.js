// Panel 10: what the model would have said after each layer, what an output hangs on, and how sharp each layer looks.
import * as api from "../api.js";
import { BRIEF, el, fixed, heading, note, partId, probability, short, shown, svg } from "../draw.js";
import { css, diverging, ink, over, sequential } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { columnPlaces } from "../view.js";

const titled = (title, name) => el("div", { class: "row" }, el("div", { class: "grow" }, title), saveButtons(() => document.getElementById(name), name));
const soft = (work) => work.catch((problem) => { if (problem instanceof api.Problem) return problem; throw problem; });

function lensTable(trace, found) {
  const heads = ["after", ...trace.outputs.map((place) => short(place.text, 9))];
  const rows = [...found.layers].reverse().map((layer) => el("tr", {}, el("th", { scope: "row" }, layer.layer < 0 ? "embedding" : `layer ${layer.layer}`), layer.candidates.map((options, index) => {
    const [best] = options;
    const colour = sequential(Math.exp(best.log_prob));
    const cell = el("td", { title: `${shown(best.text)} ${probability(best.log_prob)}; the piece that came at last: ${probability(layer.token_log_probs[index])}` }, best.token === trace.outputs[index].token ? el("strong", {}, short(best.text, 9)) : short(best.text, 9));
    cell.style.background = css(colour);
    cell.style.color = over(colour);
    return cell;
  })));
  return el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Logit lens" }, el("table", { id: "lens-table" }, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text))), rows));
}

const brief = (value) => (Math.abs(value) >= 0.005 || value === 0 ? fixed(value, 2) : value.toExponential(0).replaceAll("-", "−"));

function shaded(texts, values) {
  const most = Math.max(...values.map(Math.abs), 1e-9);
  return el("div", {}, texts.map((text, index) => {
    const colour = diverging(values[index] / most);
    const word = el("span", { class: "token", title: fixed(values[index], 5) }, `${shown(text)} ${brief(values[index])}`);
    word.style.background = css(colour);
    word.style.color = over(colour);
    return word;
  }));
}

async function attribution(app, found) {
  const { trace } = app;
  const output = Math.min(Number(state.output), trace.outputs.length - 1);
  const choice = el("select", { id: "output-choice", onchange: (event) => set({ output: event.target.value }) }, trace.outputs.map((place, index) => el("option", { value: index }, `step ${index + 1}: ${shown(place.text)}`)));
  choice.value = String(output);
  const names = (places) => places.map((place) => place.text);
  const parts = [el("p", { class: "note", id: "caution" }, found.caution), el("label", { class: "inline" }, "Output", choice)];
  if (found.source) parts.push(el("h3", {}, "Gradient × input, of the source"), shaded(names(trace.source), found.source[output]));
  if (found.inputs) parts.push(el("h3", {}, "Gradient × input, of what was written before"), shaded(names(trace.inputs), found.inputs[output]));
  const own = output - trace.num_given;
  if (own >= 0) parts.push(el("h3", {}, "Left out: how much log-probability is lost without the word"), shaded(found.left_out.texts, found.left_out.losses.map((row) => row[own])));
  const kind = ["cross", "encoder", "decoder"].find((each) => trace.heads.some((one) => one.kind === each));
  if (kind === "cross" || (kind === "decoder" && trace.inputs.length)) {
    const heads = trace.heads.filter((one) => one.kind === kind);
    const records = await Promise.all(heads.filter((one) => one.layer === heads.at(-1).layer).map((one) => api.head(trace.id, one)));
    const mean = records[0].weights[output].map((_, s) => records.reduce((sum, one) => sum + one.weights[output][s], 0) / records.length);
    parts.push(el("h3", {}, `Beside it, attention: ${BRIEF[kind].toLowerCase()}, last layer, mean of its heads`), shaded(names(columnPlaces(trace, kind)), mean));
  }
  return parts;
}

function entropies(trace) {
  const kinds = [...new Set(trace.heads.map((one) => one.kind))];
  const most = Math.max(...trace.heads.map((one) => one.entropy), 0.1);
  return el("div", { class: "row", id: "entropy" }, kinds.map((kind) => {
    const own = trace.heads.filter((one) => one.kind === kind);
    const layers = Math.max(...own.map((one) => one.layer)) + 1;
    const [W, H] = [Math.max(210, layers * 46 + 60), 160];
    const y = (value) => H - 26 - (value / most) * (H - 58);
    const drawing = svg("svg", { width: W, height: H, role: "img", "aria-label": `Entropy by layer, ${BRIEF[kind]}`, class: "entropy" }, svg("text", { x: 34, y: 12, "font-size": 11, fill: ink("quiet") }, `${BRIEF[kind]}: entropy in nats`), svg("line", { x1: 30, x2: W - 6, y1: y(0), y2: y(0), stroke: ink("line") }), svg("text", { x: 26, y: y(most) + 6, "font-size": 10, "text-anchor": "end", fill: ink("quiet") }, fixed(most, 1)));
    for (const one of own) drawing.append(svg("circle", { cx: 54 + one.layer * 46, cy: y(one.entropy), r: 5, fill: css(sequential(0.8)), opacity: 0.75 }, svg("title", {}, `${partId(one)}: ${fixed(one.entropy)}`)));
    for (let layer = 0; layer < layers; layer += 1) drawing.append(svg("text", { x: 54 + layer * 46, y: H - 8, "text-anchor": "middle", "font-size": 11, fill: ink("quiet") }, `L${layer}`));
    return drawing;
  }));
}

export const lens = {
  id: "lens",
  title: "Lens & attribution",
  tour: "The lens reads every layer as if it were the last: one sees when the answer appears. Attribution asks the model itself what an output hangs on.",
  applies: (app) => app.trace && app.trace.outputs.length > 0,
  async draw(root, app) {
    const [seen, found] = await Promise.all([soft(api.about(app.trace.id, "lens")), soft(api.about(app.trace.id, "attribution"))]);
    this.found = found;
    root.append(el("section", { class: "card" }, titled(heading("Logit lens", "A row is a layer, a column an output; the stronger the colour, the surer. Bold: what came out at last."), "lens-table"), seen instanceof Error ? note(seen.message) : lensTable(app.trace, seen)));
    if (app.trace.heads.length) root.append(el("section", { class: "card" }, titled(heading("Entropy by layer", "Low: a head looks at one place. High: at many alike."), "entropy"), entropies(app.trace)));
    root.append(el("section", { class: "card", id: "attribution" }, titled(heading("Attribution", "What one output hangs on."), "attributed"), el("div", { id: "attributed" }, found instanceof Error ? note(found.message) : await attribution(app, found))));
  },
  async update(root, app, changed) {
    if (changed.has("output") && this.found && !(this.found instanceof Error)) root.querySelector("#attributed").replaceChildren(...await attribution(app, this.found));
  },
};
