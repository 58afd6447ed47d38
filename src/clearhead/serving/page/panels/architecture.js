// The panel Architecture: encoder and decoder as in figure 1 of the paper, with the shape of the tensor at every edge.
import { button, el, heading, svg } from "../draw.js";
import { themeColor } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";
import { RECURRENT, describeBlock, sizes } from "./formulas.js";

const BLOCK_SIZE = { width: 170, height: 34 };
const BLOCK_DISTANCE = 62;
const REPEATED_BLOCKS = ["encoder", "encoder_feed_forward", "decoder", "decoder_feed_forward", "encoder_recurrent", "decoder_recurrent"];

function drawBlock(app, x, y, label, block, isSelected) {
  const select = () => {
    const layers = app.model.sublayers.filter((sublayer) => sublayer.name === block);
    const selected = layers.find((sublayer) => String(sublayer.layer) === state.layer) ?? layers[0];
    const attention = app.model.sublayers.find((sublayer) => sublayer.num_heads && sublayer.layer === selected?.layer && sublayer.name.split("_")[0] === block.split("_")[0]); // the selected sub-layer, or for a feed-forward network the attention of its layer
    if (!attention) set({ block });
    else set({ block, kind: attention.name, layer: attention.layer, head: Math.min(Number(state.head), attention.num_heads - 1), row: "", column: "" });
  };
  return svg("g", { tabindex: 0, role: "button", "aria-label": label, "aria-pressed": String(isSelected), "data-block": block, class: "block", onclick: select, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); select(); } } },
    svg("rect", { x, y, width: BLOCK_SIZE.width, height: BLOCK_SIZE.height, rx: 7, fill: isSelected ? themeColor("accent-soft") : themeColor("soft"), stroke: isSelected ? themeColor("accent") : themeColor("line"), "stroke-width": isSelected ? 2 : 1 }),
    svg("text", { x: x + BLOCK_SIZE.width / 2, y: y + 21, "text-anchor": "middle", "font-size": 12, fill: themeColor("text") }, label));
}

function drawArrow(x, from, to, shape) {
  return svg("g", { class: "edge" }, svg("path", { d: `M${x} ${from} V${to + 5} m-4 5 l4 -8 l4 8`, stroke: themeColor("quiet"), fill: "none", "stroke-width": 1.3 }), shape && svg("text", { x: x + 8, y: (from + to) / 2 + 4, "font-size": 11, fill: themeColor("quiet") }, shape));
}

// Returns a drawing of [block, label] pairs from the bottom up, with a frame around the blocks that are repeated `count` times.
function drawStack(app, x, bottom, blocks, shape, count, ends) {
  const group = svg("g", {});
  const middle = x + BLOCK_SIZE.width / 2;
  blocks.forEach(([block, label], index) => {
    const y = bottom - index * BLOCK_DISTANCE;
    if (index) group.append(drawArrow(middle, y + BLOCK_DISTANCE, y + BLOCK_SIZE.height, shape));
    group.append(drawBlock(app, x, y, label, block, state.block === block));
  });
  const top = bottom - (blocks.length - 1) * BLOCK_DISTANCE;
  if (ends.input) group.append(drawArrow(middle, bottom + BLOCK_DISTANCE, bottom + BLOCK_SIZE.height, ends.input));
  if (ends.output) group.append(drawArrow(middle, top, top - BLOCK_DISTANCE + BLOCK_SIZE.height, ends.output));
  const isRecurrent = blocks.some(([block]) => block === "decoder_recurrent");
  const repeated = blocks.map(([block], index) => [block, index]).filter(([block]) => REPEATED_BLOCKS.includes(block) || (block === "cross" && !isRecurrent)).map(([, index]) => index);
  if (repeated.length) {
    const [low, high] = [Math.min(...repeated), Math.max(...repeated)];
    group.prepend(svg("rect", { x: x - 16, y: bottom - high * BLOCK_DISTANCE - 12, width: BLOCK_SIZE.width + 32, height: (high - low) * BLOCK_DISTANCE + BLOCK_SIZE.height + 24, rx: 12, fill: "none", stroke: themeColor("line"), "stroke-dasharray": "4 3" }),
      svg("text", { x: x - 22, y: bottom - high * BLOCK_DISTANCE + 2, "text-anchor": "end", "font-size": 13, "font-weight": 600, fill: themeColor("text") }, `${count} ×`));
  }
  return group;
}

function drawMap(app) {
  const { config, sublayers, generates_text: generatesText, reads_images: readsImages } = app.model;
  const n = sizes(app);
  const has = (name) => sublayers.some((sublayer) => sublayer.name === name);
  const count = (name) => sublayers.filter((sublayer) => sublayer.name === name).length;
  const isRecurrent = RECURRENT.includes(config.family);
  const kind = config.family.toUpperCase();
  const encoder = isRecurrent ? [["source", "Source embedding"], ["encoder_recurrent", config.bidirectional ? `${kind}, both directions` : kind]] : has("encoder") || (has("cross") && !has("decoder")) ? [["source", config.input === "image" || readsImages ? "Patches" : "Source embedding"], ...(has("encoder") ? [["encoder", "Self-attention"], ["encoder_feed_forward", "Feed-forward"]] : [])] : [];
  const decoder = generatesText ? [["target", "Target embedding"], ...(isRecurrent ? [["decoder_recurrent", kind]] : []), ...(has("decoder") ? [["decoder", "Masked self-attention"]] : []), ...(has("cross") ? [["cross", "Encoder-decoder attention"]] : []), ...(has("decoder_feed_forward") ? [["decoder_feed_forward", "Feed-forward"]] : []), ...(isRecurrent ? [["merge", "Linear + tanh"]] : []), ["output", "Linear + softmax"]] : [];
  if (!generatesText) encoder.push(["output", "Linear + softmax"]);
  const rows = Math.max(encoder.length, decoder.length);
  const bottom = 40 + (rows - 1) * BLOCK_DISTANCE;
  const right = encoder.length ? 320 : 60;
  const input = app.trace.grid ? `${app.trace.grid.rows * app.trace.grid.columns} patches` : `${n.S} tokens`;
  const output = `${n.T || app.trace.outputs.length} × ${n.O.toLocaleString("en")}`;
  const drawing = svg("svg", { width: decoder.length ? right + 250 : 300, height: bottom + BLOCK_DISTANCE + 6, role: "group", "aria-label": "Map of the model", class: "map" });
  if (encoder.length) drawing.append(drawStack(app, 60, bottom, encoder, `${n.S} × ${n.D}`, isRecurrent ? config.num_encoder_layers : count("encoder"), { input, output: generatesText ? "" : output }));
  if (decoder.length) drawing.append(drawStack(app, right, bottom, decoder, `${n.T} × ${n.D}`, isRecurrent ? config.num_decoder_layers : count("decoder") || count("cross"), { input: `${n.T} tokens`, output }));
  const cross = decoder.findIndex(([block]) => block === "cross");
  if (encoder.length && cross >= 0) {
    const [from, to] = [bottom - (encoder.length - 1) * BLOCK_DISTANCE, bottom - cross * BLOCK_DISTANCE + BLOCK_SIZE.height / 2];
    drawing.append(svg("g", { class: "edge" }, svg("path", { d: `M${60 + BLOCK_SIZE.width / 2} ${from} V${from - 22} H${274} V${to} H${right - 7} m-7 -4 l8 4 l-8 4`, fill: "none", stroke: themeColor("quiet"), "stroke-width": 1.3 }), svg("text", { x: 158, y: from - 28, "font-size": 11, fill: themeColor("quiet") }, `encoder output ${n.S} × ${n.D}`)));
  }
  return drawing;
}

function explain(app) {
  const description = describeBlock(state.block, app);
  if (!description) return [el("p", { class: "quiet" }, "Select a block to see its formula with this model's sizes.")];
  const [title, formula, sentence] = description;
  const layers = app.model.sublayers.filter((sublayer) => sublayer.name === state.block);
  const selected = layers.find((sublayer) => String(sublayer.layer) === state.layer) ?? layers[0];
  const next = selected?.num_heads ? button("Show the heads", () => set({ tab: "attention" }), { class: "primary" }) : button("Ablate this sub-layer", () => set({ whatif: `${state.block}.${selected?.layer}`, tab: "whatif" }), { class: "primary" });
  return [el("h2", {}, title), el("pre", { class: "formula", id: "formula", tabindex: 0 }, formula), el("p", {}, sentence),
    layers.length > 0 && el("div", { class: "row", id: "layers" }, "Layer, counted from 0", layers.map(({ layer }) => button(String(layer), () => set({ layer, row: "", column: "" }), { "aria-pressed": String(layer === selected.layer) })), next)].filter(Boolean);
}

export const architecture = {
  id: "map",
  title: "Architecture",
  tour: "The architecture as in figure 1 of the paper. Every edge shows the shape of its tensor, positions × width. Select a block to see its formula; the other panels then select it too.",
  applies: (app) => app.trace && app.model.sublayers.length > 0,
  async draw(root, app) {
    if (!state.block && state.kind) set({ block: state.kind }, { quiet: true });
    const placement = app.model.config.norm_placement === "pre" ? "x + f(norm(x))" : "norm(x + f(x))";
    root.append(el("div", { class: "halves" }, el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading(app.model.description, ["transformer", "encoder", "decoder", "vit"].includes(app.model.config.family) ? `Each sub-layer f computes ${placement}. Edges: positions × width.` : "Edges: positions × width.")), saveButtons(() => root.querySelector("svg.map"), "architecture")), el("div", { class: "scroll", tabindex: 0, id: "map-box" }, drawMap(app))),
      el("section", { class: "card", id: "explained", "aria-live": "polite" }, explain(app))));
  },
  async update(root, app, changed) {
    if (!["block", "layer", "kind"].some((key) => changed.has(key))) return;
    const focused = document.activeElement?.dataset?.block;
    root.querySelector("#map-box").replaceChildren(drawMap(app));
    root.querySelector("#explained").replaceChildren(...explain(app));
    if (focused) root.querySelector(`g.block[data-block="${focused}"]`)?.focus();
  },
};
