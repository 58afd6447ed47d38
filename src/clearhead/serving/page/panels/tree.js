// Panel 7: the beam tree. A column is a step, a node a candidate that search looked at, best on top.
import { button, el, heading, fixed, probability, short, shown, svg } from "../draw.js";
import { ink } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";

const OUTCOMES = {
  kept: "kept: among the best, it goes on", finished: "finished: it wrote the end token among the best",
  length: "cut: it reached the longest length allowed", outside_beam: "pruned: enough others are better",
  end_outside_beam: "pruned: it would end here, but is not among the best of its step", stopped: "dropped: the search was over, enough hypotheses are finished",
};
const WIDTH = 136;
const HEIGHT = 30;

function layout(nodes) {
  const ranks = new Map();
  const placed = new Map();
  for (const node of nodes) {
    const rank = ranks.get(node.position) ?? 0;
    ranks.set(node.position, rank + 1);
    placed.set(node.node, { ...node, x: 12 + node.position * WIDTH, y: 30 + rank * HEIGHT });
  }
  return { placed, rows: Math.max(...ranks.values()), columns: ranks.size };
}

function pathTo(placed, node) {
  const path = [];
  for (let one = placed.get(node); one; one = placed.get(one.parent)) path.unshift(one);
  return path;
}

// The nodes that spell the hypothesis which the trace shows.
function chosenPath(placed, trace) {
  const end = [...placed.values()].find((one) => (one.outcome === "finished" || one.outcome === "length") && String(pathTo(placed, one.node).map((each) => each.token)) === String(trace.output_ids));
  return new Set(end ? pathTo(placed, end.node).map((one) => one.node) : []);
}

function edge(from, to, isBest) {
  const start = from.x + WIDTH - 18;
  return svg("path", { d: `M${start} ${from.y} C${start + 10} ${from.y} ${to.x - 10} ${to.y} ${to.x} ${to.y}`, fill: "none", stroke: isBest ? ink("accent") : ink("hatch"), "stroke-width": isBest ? 2.5 : 1 });
}

function box(one, isBest, open) {
  const isAlive = ["kept", "finished", "length"].includes(one.outcome);
  const isChosen = state.node === String(one.node);
  const group = svg("g", { tabindex: 0, role: "button", class: "node", "data-node": one.node, "data-best": String(isBest), "data-outcome": one.outcome,
    "aria-label": `${short(one.text, 8)} ${fixed(one.score, 2)}, ${OUTCOMES[one.outcome]}`, onclick: () => open(one), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(one); } } });
  const done = one.outcome === "finished" || one.outcome === "length";
  group.append(svg("title", {}, `${shown(one.text)}: ${OUTCOMES[one.outcome]}`), svg("rect", { x: one.x, y: one.y - 11, width: WIDTH - 18, height: 22, rx: 5, fill: done ? ink("good-soft") : isAlive ? ink("accent-soft") : ink("card"), stroke: isChosen ? ink("warm") : isBest ? ink("accent") : ink("line"), "stroke-width": isChosen ? 3 : isBest ? 2 : 1, "stroke-dasharray": isAlive ? null : "3 2" }),
    svg("text", { x: one.x + 6, y: one.y + 4, "font-size": 12, fill: isAlive ? ink("ink") : ink("quiet") }, short(one.text, 8)), " ",
    svg("text", { x: one.x + WIDTH - 24, y: one.y + 4, "font-size": 10, "text-anchor": "end", fill: ink("quiet") }, fixed(one.score, 2)));
  return group;
}

function details(placed, trace) {
  const one = placed.get(Number(state.node));
  if (state.node === "" || !one) return el("p", { class: "quiet" }, "Choose a node to read why it was kept or pruned.");
  const path = pathTo(placed, one.node);
  return el("div", { id: "node" }, el("h3", {}, path.map((each) => shown(each.text)).join(" ")), el("p", {}, OUTCOMES[one.outcome]),
    el("p", { class: "mono" }, `this piece ${fixed(one.log_prob)} (${probability(one.log_prob)}), all pieces ${fixed(one.total)}, score ${fixed(one.score)}`),
    button("Open its attention", () => set({ tokens: path.map((each) => each.token).join(","), prefix: "", target: "", hypothesis: "0", tab: "attention" }, { remember: true }), { id: "open-node" }));
}

function table(trace) {
  return el("div", { class: "scroll", tabindex: 0 }, el("table", { id: "hypotheses" }, el("tr", {}, ["", "hypothesis", "score", "log-probability", "ended by"].map((text) => el("th", { scope: "col" }, text))),
    trace.hypotheses.map((one, index) => el("tr", { class: index === trace.chosen ? "chosen" : null }, el("td", { class: "num" }, String(index)),
      el("td", {}, index === trace.chosen ? one.text : button(one.text, () => set({ hypothesis: index }, { remember: true }), { "aria-label": `Look at hypothesis ${index}: ${one.text}` })),
      el("td", { class: "num" }, fixed(one.score)), el("td", { class: "num" }, fixed(one.log_prob)), el("td", {}, one.finish_reason === "end" ? "the end token" : "the longest length")))));
}

export const tree = {
  id: "tree",
  title: "Beam tree",
  tour: "Beam search keeps a few hypotheses alive. Every candidate it looked at is here, with its score and why it was dropped; a node opens its own attention.",
  applies: (app) => app.trace && app.card.writes,
  async draw(root, app) {
    const { trace } = app;
    if (!trace.tree.length) {
      root.append(el("section", { class: "card" }, heading("Beam tree"), el("p", {}, "What is shown was forced, not searched for: there is no tree."), button("Search", () => set({ target: "", tokens: "", prefix: "" }, { remember: true }), { id: "search-again" })));
      return;
    }
    const { placed, rows, columns } = layout(trace.tree);
    const best = chosenPath(placed, trace);
    const open = (one) => set({ node: one.node });
    const drawing = svg("svg", { width: columns * WIDTH + 24, height: rows * HEIGHT + 34, role: "group", "aria-label": `Beam tree of ${trace.tree.length} candidates`, class: "tree" });
    for (let place = 0; place < columns; place += 1) drawing.append(svg("text", { x: 12 + place * WIDTH, y: 12, "font-size": 10, fill: ink("quiet") }, `step ${place + 1}`));
    for (const one of placed.values()) if (placed.has(one.parent)) drawing.append(edge(placed.get(one.parent), one, best.has(one.node)));
    for (const one of placed.values()) drawing.append(box(one, best.has(one.node), open));
    root.append(el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading(`Beam of ${trace.settings.beam_size}: ${trace.tree.length} candidates`, "A column is a step, best on top. Solid: kept; green: finished; dashed: pruned. The number is the score if it ended there.")), saveButtons(() => root.querySelector("svg.tree"), "beam-tree")),
      el("div", { class: "scroll", tabindex: 0 }, drawing), el("div", { id: "details" }, details(placed, trace))), el("section", { class: "card" }, el("h2", {}, "What was found"), table(trace)));
    this.placed = placed;
  },
  async update(root, app, changed) {
    if (!changed.has("node") || !this.placed) return;
    for (const each of root.querySelectorAll("g.node")) {
      const isChosen = each.dataset.node === state.node;
      const shape = each.querySelector("rect");
      const isBest = each.dataset.best === "true";
      shape.setAttribute("stroke", isChosen ? ink("warm") : isBest ? ink("accent") : ink("line"));
      shape.setAttribute("stroke-width", isChosen ? 3 : isBest ? 2 : 1);
    }
    root.querySelector("#details").replaceChildren(details(this.placed, app.trace));
  },
};
