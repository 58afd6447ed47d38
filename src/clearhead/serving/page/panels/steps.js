// Panel 6: decoding, piece by piece. A click on another candidate forces it, and decoding goes on from there.
import * as api from "../api.js";
import { button, el, headName, heading, probability, shown, token } from "../draw.js";
import { css, over, sequential } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { chosenPart } from "./head.js";

const RECURRENT = ["rnn", "gru", "lstm"];
let timer = null;
const stop = () => { clearInterval(timer); timer = null; };

function now(trace) { return state.step === "" ? trace.num_given : Math.min(Number(state.step), trace.outputs.length - 1); }

function go(trace, step) {
  if (step < trace.num_given || step >= trace.outputs.length) { stop(); return; }
  set({ step });
}

function force(trace, step, option) {
  stop();
  set({ prefix: [...trace.output_ids.slice(0, step - trace.num_given), option.token].join(","), tokens: "", target: "", hypothesis: "0" }, { remember: true });
}

function candidates(trace, step) {
  const taken = trace.outputs[step].token;
  return el("div", { class: "bars", id: "candidates" }, trace.candidates[step].map((option) => {
    const fill = el("div", { class: "fill" });
    fill.style.width = `${100 * Math.exp(option.log_prob)}%`;
    const label = `${shown(option.text)}${option.token === taken ? " (taken)" : ""}`;
    const pick = button(label, () => force(trace, step, option), { disabled: option.token === taken, "data-token": option.token, "aria-label": `${label}, ${probability(option.log_prob)}. Force it.` });
    return [pick, el("div", { class: "track" }, fill), el("span", { class: "mono" }, probability(option.log_prob))];
  }));
}

// Keys and values that need not be computed again, by the sizes of this model.
function cached(app, step) {
  const { config, parts } = app.card;
  if (RECURRENT.includes(config.family)) {
    const kept = config.num_decoder_layers * (config.family === "lstm" ? 2 : 1) * config.model_dim;
    const looked = config.attention === "none" ? "Of the source nothing else is kept." : `The states of the ${app.trace.source.length} source places were computed once and are looked up by every step.`;
    return `Kept between steps: ${kept.toLocaleString("en")} numbers, the state of ${config.num_decoder_layers} layers, however much is written. ${looked}`;
  }
  const width = (config.d_k + config.d_v) * config.num_heads;
  const own = parts.filter((part) => part.name === "decoder").length;
  const across = parts.filter((part) => part.name === "cross").length;
  const lines = [`Cached before this step: keys and values of ${step} written ${step === 1 ? "place" : "places"} in ${own} layers, ${(own * step * width).toLocaleString("en")} numbers; this step adds one place.`];
  if (across) lines.push(`Keys and values of the ${app.trace.source.length} source places were computed once: ${(across * app.trace.source.length * width).toLocaleString("en")} numbers, used by every step.`);
  return lines.join(" ");
}

async function looking(app, step) {
  const { trace } = app;
  const part = chosenPart();
  const own = part.kind && part.kind !== "encoder" ? part : trace.heads.find((one) => one.kind === "cross") ?? trace.heads.find((one) => one.kind === "decoder");
  if (!own) return null;
  const record = await api.head(trace.id, own);
  const places = own.kind === "cross" ? trace.source : trace.inputs;
  const words = places.map((place, s) => {
    const colour = sequential(record.weights[step][s]);
    const word = token(place.text, record.allowed[step][s] ? "" : "masked");
    word.style.background = record.allowed[step][s] ? css(colour) : "";
    word.style.color = record.allowed[step][s] ? over(colour) : "";
    word.title = record.allowed[step][s] ? record.weights[step][s].toFixed(7) : "masked";
    return word;
  });
  return el("div", {}, el("h3", {}, `Where it looks: ${headName(own)}`), el("div", {}, words));
}

async function show(root, app) {
  const { trace } = app;
  const step = now(trace);
  const written = trace.outputs.map((place, index) => button(shown(place.text), () => go(trace, index), {
    class: `token ${index === step ? "now" : ""}`, disabled: index < trace.num_given, "aria-label": `Step ${index + 1}: ${shown(place.text)}`,
  }));
  for (const [index, word] of written.entries()) if (index > step) word.classList.add("off");
  const body = root.querySelector("#step-body");
  body.replaceChildren(...[
    el("div", { id: "written" }, written),
    el("h3", {}, `Step ${step + 1} of ${trace.outputs.length}: the best candidates for what follows ${shown(trace.inputs[step].text)}`),
    candidates(trace, step), await looking(app, step), el("p", { class: "quiet small", id: "cached" }, cached(app, step)),
  ].filter(Boolean));
}

export const steps = {
  id: "steps",
  title: "Steps",
  tour: "The decoder writes one piece at a time; each step sees only what stands before it. Play it, and click on a candidate that was not taken: decoding goes on as if it had been.",
  applies: (app) => app.trace && app.card.writes,
  async draw(root, app) {
    stop();
    const play = button("▶ Play", () => {
      if (timer) { stop(); return; }
      if (now(app.trace) === app.trace.outputs.length - 1) set({ step: app.trace.num_given });
      timer = setInterval(() => { if (state.tab !== "steps") stop(); else go(app.trace, now(app.trace) + 1); }, 900);
    }, { id: "play" });
    root.append(el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading("Decoding, step by step", "Click on a candidate to force it.")), saveButtons(() => root.querySelector("#step-body"), "step")),
      el("div", { class: "row" }, button("◀ Back", () => { stop(); go(app.trace, now(app.trace) - 1); }, { id: "back" }), play,
        button("Forward ▶", () => { stop(); go(app.trace, now(app.trace) + 1); }, { id: "forward" }), state.prefix && button("Back to what search found", () => set({ prefix: "" }, { remember: true }), { id: "unforce" })),
      el("div", { id: "step-body", class: "stack" })));
    await show(root, app);
  },
  async update(root, app, changed) { if (changed.has("step")) await show(root, app); },
};
