// Panel 2: the stacks as in the paper's figure, drawn from the model's own config, with the shape at every edge.
import { button, el, heading, svg } from "../draw.js";
import { ink } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { RECURRENT, describe, sizes } from "./formulas.js";

const BOX = { width: 170, height: 34 };
const STEP = 62;
const REPEATED = ["encoder", "encoder_feed_forward", "decoder", "decoder_feed_forward", "encoder_recurrent", "decoder_recurrent"];

function block(at, x, y, label, part, isChosen) {
  const open = () => {
    const own = at.card.parts.filter((one) => one.name === part);
    const found = own.find((one) => String(one.layer) === state.layer) ?? own[0];
    const looks = at.card.parts.find((one) => one.heads && one.layer === found?.layer && one.name.split("_")[0] === part.split("_")[0]); // itself, or the attention beside it
    if (!looks) set({ part });
    else set({ part, kind: looks.name, layer: looks.layer, head: Math.min(Number(state.head), looks.heads - 1), row: "", column: "" });
  };
  return svg("g", { tabindex: 0, role: "button", "aria-label": label, "aria-pressed": String(isChosen), "data-part": part, class: "part", onclick: open, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } } },
    svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 7, fill: isChosen ? ink("accent-soft") : ink("soft"), stroke: isChosen ? ink("accent") : ink("line"), "stroke-width": isChosen ? 2 : 1 }),
    svg("text", { x: x + BOX.width / 2, y: y + 21, "text-anchor": "middle", "font-size": 12, fill: ink("ink") }, label));
}

function arrow(x, from, to, shape) {
  return svg("g", { class: "edge" }, svg("path", { d: `M${x} ${from} V${to + 5} m-4 5 l4 -8 l4 8`, stroke: ink("quiet"), fill: "none", "stroke-width": 1.3 }), shape && svg("text", { x: x + 8, y: (from + to) / 2 + 4, "font-size": 11, fill: ink("quiet") }, shape));
}

// One stack from the bottom up: [part, label] pairs, the middle ones repeated by every layer; what goes in and comes out.
function column(app, x, bottom, parts, shape, count, ends) {
  const group = svg("g", {});
  const middle = x + BOX.width / 2;
  parts.forEach(([part, label], index) => {
    const y = bottom - index * STEP;
    if (index) group.append(arrow(middle, y + STEP, y + BOX.height, shape));
    group.append(block(app, x, y, label, part, state.part === part));
  });
  const top = bottom - (parts.length - 1) * STEP;
  if (ends.input) group.append(arrow(middle, bottom + STEP, bottom + BOX.height, ends.input));
  if (ends.output) group.append(arrow(middle, top, top - STEP + BOX.height, ends.output));
  const inner = parts.map(([part], index) => [part, index]).filter(([part]) => REPEATED.includes(part) || (part === "cross" && !parts.some(([one]) => one === "decoder_recurrent"))).map(([, index]) => index);
  if (inner.length) {
    const [low, high] = [Math.min(...inner), Math.max(...inner)];
    group.prepend(svg("rect", { x: x - 16, y: bottom - high * STEP - 12, width: BOX.width + 32, height: (high - low) * STEP + BOX.height + 24, rx: 12, fill: "none", stroke: ink("line"), "stroke-dasharray": "4 3" }),
      svg("text", { x: x - 22, y: bottom - high * STEP + 2, "text-anchor": "end", "font-size": 13, "font-weight": 600, fill: ink("ink") }, `${count} ×`));
  }
  return group;
}

function draw(app) {
  const { config, parts, writes } = app.card;
  const n = sizes(app);
  const has = (name) => parts.some((part) => part.name === name);
  const count = (name) => parts.filter((part) => part.name === name).length;
  const isRecurrent = RECURRENT.includes(config.family);
  const kind = config.family.toUpperCase();
  const encoder = isRecurrent ? [["source", "Source embedding"], ["encoder_recurrent", config.bidirectional ? `${kind}, both directions` : kind]] : has("encoder") || (has("cross") && !has("decoder")) ? [["source", config.input === "image" || app.card.reads_images ? "Patches" : "Source embedding"], ...(has("encoder") ? [["encoder", "Self-attention"], ["encoder_feed_forward", "Feed-forward"]] : [])] : [];
  const decoder = writes ? [["target", "Target embedding"], ...(isRecurrent ? [["decoder_recurrent", kind]] : []), ...(has("decoder") ? [["decoder", "Masked self-attention"]] : []), ...(has("cross") ? [["cross", "Encoder-decoder attention"]] : []), ...(has("decoder_feed_forward") ? [["decoder_feed_forward", "Feed-forward"]] : []), ...(isRecurrent ? [["merge", "Linear + tanh"]] : []), ["output", "Linear + softmax"]] : [];
  if (!writes) encoder.push(["output", "Linear + softmax"]);
  const rows = Math.max(encoder.length, decoder.length);
  const bottom = 40 + (rows - 1) * STEP;
  const right = encoder.length ? 320 : 60;
  const read = app.trace.grid ? `${app.trace.grid.rows * app.trace.grid.columns} patches` : `${n.S} pieces`;
  const output = `${n.T || app.trace.outputs.length} × ${n.O.toLocaleString("en")}`;
  const drawing = svg("svg", { width: decoder.length ? right + 250 : 300, height: bottom + STEP + 6, role: "group", "aria-label": "Map of the model", class: "map" });
  if (encoder.length) drawing.append(column(app, 60, bottom, encoder, `${n.S} × ${n.D}`, isRecurrent ? config.num_encoder_layers : count("encoder"), { input: read, output: writes ? "" : output }));
  if (decoder.length) drawing.append(column(app, right, bottom, decoder, `${n.T} × ${n.D}`, isRecurrent ? config.num_decoder_layers : count("decoder") || count("cross"), { input: `${n.T} pieces`, output }));
  const at = decoder.findIndex(([part]) => part === "cross");
  if (encoder.length && at >= 0) {
    const [from, to] = [bottom - (encoder.length - 1) * STEP, bottom - at * STEP + BOX.height / 2];
    drawing.append(svg("g", { class: "edge" }, svg("path", { d: `M${60 + BOX.width / 2} ${from} V${from - 22} H${274} V${to} H${right - 7} m-7 -4 l8 4 l-8 4`, fill: "none", stroke: ink("quiet"), "stroke-width": 1.3 }), svg("text", { x: 158, y: from - 28, "font-size": 11, fill: ink("quiet") }, `memory ${n.S} × ${n.D}`)));
  }
  return drawing;
}

function explain(app) {
  const found = describe(state.part, app);
  if (!found) return [el("p", { class: "quiet" }, "Choose a part of the map to read its formula with this model's numbers.")];
  const own = app.card.parts.filter((one) => one.name === state.part);
  const chosen = own.find((one) => String(one.layer) === state.layer) ?? own[0];
  const next = chosen?.heads ? button("See its heads", () => set({ tab: "attention" }), { class: "primary" }) : button("Switch it off", () => set({ try: `${state.part}.${chosen?.layer}`, tab: "whatif" }), { class: "primary" });
  return [el("h2", {}, found[0]), el("pre", { class: "formula", id: "formula", tabindex: 0 }, found[1]), el("p", {}, found[2]),
    own.length > 0 && el("div", { class: "row", id: "layers" }, "Layer, counted from 0", own.map(({ layer }) => button(String(layer), () => set({ layer, row: "", column: "" }), { "aria-pressed": String(layer === chosen.layer) })), next)].filter(Boolean);
}

export const architecture = {
  id: "map",
  title: "Architecture",
  tour: "The model as the paper draws it, but with this model's own sizes: at every edge stands how many places of how many numbers flow there. A part that you choose is chosen everywhere.",
  applies: (app) => app.trace && app.card.parts.length > 0,
  async draw(root, app) {
    if (!state.part && state.kind) set({ part: state.kind }, { quiet: true });
    const placement = app.card.config.norm_placement === "pre" ? "x + f(norm(x))" : "norm(x + f(x))";
    root.append(el("div", { class: "halves" }, el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading(app.card.description, ["transformer", "encoder", "decoder", "vit"].includes(app.card.config.family) ? `Around every part: ${placement}. Edges carry places × numbers.` : "Edges carry places × numbers.")), saveButtons(() => root.querySelector("svg.map"), "architecture")), el("div", { class: "scroll", tabindex: 0, id: "map-box" }, draw(app))),
      el("section", { class: "card", id: "explained", "aria-live": "polite" }, explain(app))));
  },
  async update(root, app, changed) {
    if (!["part", "layer", "kind"].some((key) => changed.has(key))) return;
    const focused = document.activeElement?.dataset?.part;
    root.querySelector("#map-box").replaceChildren(draw(app));
    root.querySelector("#explained").replaceChildren(...explain(app));
    if (focused) root.querySelector(`g.part[data-part="${focused}"]`)?.focus();
  },
};
