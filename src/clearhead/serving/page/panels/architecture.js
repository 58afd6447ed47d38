// Panel 2: the stacks as in the paper's figure, drawn from the model's own config, with the shape at every edge.
import { button, el, heading, svg } from "../draw.js";
import { ink } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";

const BOX = { width: 170, height: 34 };
const STEP = 62;

function sizes(app) {
  const { config } = app.card;
  return { D: config.model_dim, F: config.inner_dim, H: config.num_heads, K: config.d_k, E: config.d_v, V: config.vocab_size || config.num_labels, S: app.trace.source.length, T: app.trace.inputs.length };
}

const attend = (n, rows, keys, columns, mask) => `Q = x W_Q, K = ${columns} W_K, V = ${columns} W_V\nhead = softmax(Q Kᵀ / √${n.K}${mask}) V\nout = concat(${n.H} heads) W_O\n\nQ: ${n.H} × ${rows} × ${n.K}\nK: ${n.H} × ${keys} × ${n.K}, V: ${n.H} × ${keys} × ${n.E}\nweights: ${n.H} × ${rows} × ${keys}\nW_Q: ${n.D} × ${n.H * n.K}, W_O: ${n.H * n.E} × ${n.D}`;

function describe(part, n, config) {
  const place = { sinusoidal: `+ PE(pos), PE(pos, 2i) = sin(pos / 10000^(2i/${n.D}))`, learned: "+ a learned vector a place", rotary: "(places turn queries and keys inside attention)", relative: "(places are a bias on the scores)", none: "(no places)" }[config.positions];
  const scale = config.scale_embeddings ? `√${n.D} · ` : "";
  const ffn = `${config.gated ? "(act(x W₁) ∘ x W₃)" : `${config.activation}(x W₁ + b₁)`} W₂\n\nW₁: ${n.D} × ${n.F}\nW₂: ${n.F} × ${n.D}`;
  return {
    source: [`What is read`, `E: ${n.V} × ${n.D}\nx = ${scale}E[token] ${place}\n\nx: ${n.S} × ${n.D}`, "Every piece becomes a vector; where it stands is marked on it."],
    target: [`What is written so far`, `x = ${scale}E[token] ${place}\n\nx: ${n.T} × ${n.D}`, "The decoder is given what stands before, shifted by the start token."],
    encoder: ["Self-attention", attend(n, n.S, n.S, "x", ""), "Every place looks at every place of the source and takes a mix of what it finds."],
    decoder: ["Masked self-attention", attend(n, n.T, n.T, "x", " + mask"), "Every place looks at itself and at what stands before; what comes later is masked."],
    cross: ["Encoder-decoder attention", attend(n, n.T, n.S, "memory", ""), "Queries come from what is written, keys and values from the source."],
    encoder_feed_forward: ["Feed-forward", ffn, "The same small network at every place, each on its own."],
    decoder_feed_forward: ["Feed-forward", ffn, "The same small network at every place, each on its own."],
    output: ["Output", `p = softmax(x W_Eᵀ)\n\nW_E: ${n.V} × ${n.D}${config.embeddings === "shared" ? ", the embedding itself" : ""}`, "A score for every piece of the vocabulary; the softmax makes probabilities of them."],
  }[part];
}

function block(at, x, y, label, part, isChosen) {
  const open = () => {
    const layers = at.trace.heads.filter((one) => one.kind === part);
    const layer = layers.some((one) => String(one.layer) === state.layer) ? state.layer : 0;
    set(layers.length ? { part, kind: part, layer, head: Math.min(Number(state.head), layers.filter((one) => String(one.layer) === String(layer)).length - 1), row: "", column: "" } : { part });
  };
  return svg("g", { tabindex: 0, role: "button", "aria-label": label, "aria-pressed": String(isChosen), "data-part": part, class: "part", onclick: open, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } } },
    svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 7, fill: isChosen ? ink("accent-soft") : ink("soft"), stroke: isChosen ? ink("accent") : ink("line"), "stroke-width": isChosen ? 2 : 1 }),
    svg("text", { x: x + BOX.width / 2, y: y + 21, "text-anchor": "middle", "font-size": 12, fill: ink("ink") }, label));
}

function arrow(x, from, to, shape) {
  return svg("g", {}, svg("path", { d: `M${x} ${from} V${to + 5} m-4 5 l4 -8 l4 8`, stroke: ink("quiet"), fill: "none", "stroke-width": 1.3 }), shape && svg("text", { x: x + 8, y: (from + to) / 2 + 4, "font-size": 11, fill: ink("quiet") }, shape));
}

// One stack from the bottom up: [part, label] pairs, the middle ones repeated by every layer.
function column(app, x, bottom, parts, shape, count) {
  const group = svg("g", {});
  const middle = x + BOX.width / 2;
  parts.forEach(([part, label], index) => {
    const y = bottom - index * STEP;
    if (index) group.append(arrow(middle, y + STEP, y + BOX.height, shape));
    group.append(block(app, x, y, label, part, state.part === part));
  });
  const inner = parts.map(([part], index) => [part, index]).filter(([part]) => !["source", "target", "output"].includes(part)).map(([, index]) => index);
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
  const encoder = has("encoder") || (has("cross") && !has("decoder")) ? [["source", config.input === "image" || app.card.reads_pictures ? "Patches" : "Source embedding"], ...(has("encoder") ? [["encoder", "Self-attention"], ["encoder_feed_forward", "Feed-forward"]] : [])] : [];
  const decoder = writes ? [["target", "Target embedding"], ...(has("decoder") ? [["decoder", "Masked self-attention"]] : []), ...(has("cross") ? [["cross", "Encoder-decoder attention"]] : []), ...(has("decoder_feed_forward") ? [["decoder_feed_forward", "Feed-forward"]] : []), ["output", "Linear + softmax"]] : [];
  if (!writes) encoder.push(["output", "Linear + softmax"]);
  const rows = Math.max(encoder.length, decoder.length);
  const bottom = 30 + (rows - 1) * STEP;
  const right = encoder.length ? 400 : 60;
  const drawing = svg("svg", { width: decoder.length ? right + 280 : 300, height: bottom + BOX.height + 14, role: "group", "aria-label": "Map of the model", class: "map" });
  if (encoder.length) drawing.append(column(app, 60, bottom, encoder, `${n.S} × ${n.D}`, count("encoder")));
  if (decoder.length) drawing.append(column(app, right, bottom, decoder, `${n.T} × ${n.D}`, count("decoder") || count("cross")));
  const at = decoder.findIndex(([part]) => part === "cross");
  if (encoder.length && at >= 0) {
    const [from, to] = [bottom - (encoder.length - 1) * STEP, bottom - at * STEP + BOX.height / 2];
    drawing.append(svg("path", { d: `M${60 + BOX.width / 2} ${from} V${from - 22} H${320} V${to} H${right - 7} m-7 -4 l8 4 l-8 4`, fill: "none", stroke: ink("quiet"), "stroke-width": 1.3 }), svg("text", { x: 236, y: from - 28, "font-size": 11, fill: ink("quiet") }, `memory ${n.S} × ${n.D}`));
  }
  return drawing;
}

function explain(app) {
  const found = describe(state.part, sizes(app), app.card.config);
  if (!found) return [el("p", { class: "quiet" }, "Choose a part of the map to read its formula with this model's numbers.")];
  const heads = app.trace.heads.filter((one) => one.kind === state.part);
  const layers = [...new Set(heads.map((one) => one.layer))];
  return [el("h2", {}, found[0]), el("pre", { class: "formula", id: "formula", tabindex: 0 }, found[1]), el("p", {}, found[2]),
    layers.length > 0 && el("div", { class: "row" }, "Layer", layers.map((layer) => button(String(layer + 1), () => set({ layer, row: "", column: "" }), { "aria-pressed": String(String(layer) === state.layer) })), button("See its heads", () => set({ tab: "attention" }), { class: "primary" }))].filter(Boolean);
}

export const architecture = {
  id: "map",
  title: "Architecture",
  tour: "The model as the paper draws it, but with this model's own sizes: at every edge stands how many places of how many numbers flow there. A part that you choose is chosen everywhere.",
  applies: (app) => app.trace && app.card.parts.length > 0,
  async draw(root, app) {
    if (!state.part && state.kind) state.part = state.kind;
    const placement = app.card.config.norm_placement === "pre" ? "x + f(norm(x))" : "norm(x + f(x))";
    root.append(el("div", { class: "halves" }, el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading(app.card.description, ["transformer", "encoder", "decoder", "patches"].includes(app.card.config.family) ? `Around every part: ${placement}. Edges carry places × numbers.` : "Edges carry places × numbers.")), saveButtons(() => root.querySelector("svg.map"), "architecture")), el("div", { class: "scroll", tabindex: 0, id: "map-box" }, draw(app))),
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
