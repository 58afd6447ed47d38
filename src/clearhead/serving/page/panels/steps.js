// The panel Steps: decoding token by token. A click on a candidate forces it, and the search continues from there.
import * as api from "../api.js";
import { button, displayText, el, headName, heading, plural, probability, token } from "../draw.js";
import { css, sequential, textColorOn } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { keyPositions } from "../view.js";
import { selectedHead } from "./head.js";

const RECURRENT = ["rnn", "gru", "lstm"];
let timer = null;
const stop = () => { clearInterval(timer); timer = null; };

function currentStep(trace) { return state.step === "" ? trace.prompt_length : Math.min(Number(state.step), trace.outputs.length - 1); }

function goTo(trace, step) {
  if (step < trace.prompt_length || step >= trace.outputs.length) { stop(); return; }
  set({ step });
}

function forceCandidate(trace, step, candidate) {
  stop();
  set({ prefix: [...trace.output_ids.slice(0, step - trace.prompt_length), candidate.token].join(","), tokens: "", target: "", hypothesis: "0" }, { remember: true });
}

function candidates(trace, step) {
  const generated = trace.outputs[step].token;
  return el("div", { class: "bars", id: "candidates" }, trace.candidates[step].map((candidate) => {
    const fill = el("div", { class: "fill" });
    fill.style.width = `${100 * Math.exp(candidate.log_prob)}%`;
    const label = `${displayText(candidate.text)}${candidate.token === generated ? " (generated)" : ""}`;
    const force = button(label, () => forceCandidate(trace, step, candidate), { disabled: candidate.token === generated, "data-token": candidate.token, "aria-label": `${label}, ${probability(candidate.log_prob)}. Force this token` });
    return [force, el("div", { class: "track" }, fill), el("span", { class: "mono" }, probability(candidate.log_prob))];
  }));
}

// Returns sentences about the size of the KV cache, or of the recurrent state, before this step.
function describeCache(app, step) {
  const { config, sublayers } = app.model;
  if (RECURRENT.includes(config.family)) {
    const numbers = config.num_decoder_layers * (config.family === "lstm" ? 2 : 1) * config.model_dim;
    const source = config.attention === "none" ? "Without attention, the encoder states are used only to initialize it." : `The encoder states of the ${app.trace.source.length} source positions were computed once; every step attends to them.`;
    return `Recurrent state: ${numbers.toLocaleString("en")} numbers in ${plural(config.num_decoder_layers, "layer")}, independent of the output length. ${source}`;
  }
  const width = (config.d_k + config.d_v) * config.num_heads;
  const numSelf = sublayers.filter((sublayer) => sublayer.name === "decoder").length;
  const numCross = sublayers.filter((sublayer) => sublayer.name === "cross").length;
  const lines = [`KV cache before this step: keys and values of ${plural(step, "decoder position")} in ${plural(numSelf, "layer")}, ${(numSelf * step * width).toLocaleString("en")} numbers; this step adds one position.`];
  if (numCross) lines.push(`Keys and values of the ${app.trace.source.length} source positions were computed once, for encoder-decoder attention: ${(numCross * app.trace.source.length * width).toLocaleString("en")} numbers, used by every step.`);
  return lines.join(" ");
}

async function drawAttentionOfStep(app, step) {
  const { trace } = app;
  const selected = selectedHead();
  const head = selected.kind && selected.kind !== "encoder" ? selected : trace.heads.find((other) => other.kind === "cross") ?? trace.heads.find((other) => other.kind === "decoder");
  if (!head) return null;
  const record = await api.head(trace.id, head);
  const words = keyPositions(trace, head.kind).map((position, s) => {
    const color = sequential(record.weights[step][s]);
    const word = token(position.text, record.allowed[step][s] ? "" : "masked");
    word.style.background = record.allowed[step][s] ? css(color) : "";
    word.style.color = record.allowed[step][s] ? textColorOn(color) : "";
    word.title = record.allowed[step][s] ? record.weights[step][s].toFixed(7) : "masked";
    return word;
  });
  return el("div", {}, el("h3", {}, `Attention of this step: ${headName(head)}`), el("div", {}, words));
}

async function show(root, app) {
  const { trace } = app;
  const step = currentStep(trace);
  const outputs = trace.outputs.map((position, index) => button(displayText(position.text), () => goTo(trace, index), {
    class: `token ${index === step ? "current" : ""}`, disabled: index < trace.prompt_length, "aria-label": `Step ${index + 1}: ${displayText(position.text)}`,
  }));
  for (const [index, word] of outputs.entries()) if (index > step) word.classList.add("future");
  const body = root.querySelector("#step-body");
  body.replaceChildren(...[
    el("div", { id: "outputs" }, outputs),
    el("h3", {}, `Step ${step + 1} of ${trace.outputs.length}: most probable tokens after ${displayText(trace.inputs[step].text)}`),
    candidates(trace, step), await drawAttentionOfStep(app, step), el("p", { class: "quiet small", id: "cached" }, describeCache(app, step)),
  ].filter(Boolean));
}

export const steps = {
  id: "steps",
  title: "Steps",
  tour: "The decoder generates one token per step, from the tokens before it. Play the steps, or click another candidate to force it: the search then continues from there.",
  applies: (app) => app.trace && app.model.generates_text,
  async draw(root, app) {
    stop();
    const play = button("▶ Play", () => {
      if (timer) { stop(); return; }
      if (currentStep(app.trace) === app.trace.outputs.length - 1) set({ step: app.trace.prompt_length });
      timer = setInterval(() => { if (state.tab !== "steps") stop(); else goTo(app.trace, currentStep(app.trace) + 1); }, 900);
    }, { id: "play" });
    root.append(el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading("Decoding, step by step", "Click a candidate to force it instead of the generated token.")), saveButtons(() => root.querySelector("#step-body"), "step")),
      el("div", { class: "row" }, button("◀ Back", () => { stop(); goTo(app.trace, currentStep(app.trace) - 1); }, { id: "back" }), play,
        button("Forward ▶", () => { stop(); goTo(app.trace, currentStep(app.trace) + 1); }, { id: "forward" }), state.prefix && button("Back to the search result", () => set({ prefix: "" }, { remember: true }), { id: "unforce" })),
      el("div", { id: "step-body", class: "stack" })));
    await show(root, app);
  },
  async update(root, app, changed) { if (changed.has("step")) await show(root, app); },
};
