// The panel Beam tree: columns are steps, nodes are candidates of the search, best at the top.
import { button, el, heading, fixed, probability, shortText, displayText, svg } from "../draw.js";
import { themeColor } from "../palette.js";
import { saveButtons } from "../save.js";
import { set, state } from "../store.js";

const OUTCOMES = {
  kept: "kept: in the beam, continued in the next step", finished: "finished: end token within the beam",
  length: "finished: maximum length reached", outside_beam: "pruned: outside the beam",
  end_outside_beam: "pruned: end token outside the beam", stopped: "dropped: the search ended in this step",
};
const COLUMN_WIDTH = 136;
const ROW_HEIGHT = 30;

function layout(nodes) {
  const ranks = new Map();
  const nodesById = new Map();
  for (const node of nodes) {
    const rank = ranks.get(node.position) ?? 0;
    ranks.set(node.position, rank + 1);
    nodesById.set(node.node, { ...node, x: 12 + node.position * COLUMN_WIDTH, y: 30 + rank * ROW_HEIGHT });
  }
  return { nodesById, rows: Math.max(...ranks.values()), columns: ranks.size };
}

function pathTo(nodesById, node) {
  const path = [];
  for (let current = nodesById.get(node); current; current = nodesById.get(current.parent)) path.unshift(current);
  return path;
}

// Returns the ids of the nodes on the path of the traced hypothesis.
function tracedPath(nodesById, trace) {
  const end = [...nodesById.values()].find((node) => (node.outcome === "finished" || node.outcome === "length") && String(pathTo(nodesById, node.node).map((step) => step.token)) === String(trace.output_ids));
  return new Set(end ? pathTo(nodesById, end.node).map((step) => step.node) : []);
}

function drawEdge(from, to, isBest) {
  const start = from.x + COLUMN_WIDTH - 18;
  return svg("path", { d: `M${start} ${from.y} C${start + 10} ${from.y} ${to.x - 10} ${to.y} ${to.x} ${to.y}`, fill: "none", stroke: isBest ? themeColor("accent") : themeColor("hatch"), "stroke-width": isBest ? 2.5 : 1 });
}

function drawNode(node, isBest, select) {
  const isKept = ["kept", "finished", "length"].includes(node.outcome);
  const isSelected = state.node === String(node.node);
  const group = svg("g", { tabindex: 0, role: "button", class: "node", "data-node": node.node, "data-best": String(isBest), "data-outcome": node.outcome,
    "aria-label": `${shortText(node.text, 8)} ${fixed(node.score, 2)}, ${OUTCOMES[node.outcome]}`, onclick: () => select(node), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); select(node); } } });
  const isFinished = node.outcome === "finished" || node.outcome === "length";
  group.append(svg("title", {}, `${displayText(node.text)}: ${OUTCOMES[node.outcome]}`), svg("rect", { x: node.x, y: node.y - 11, width: COLUMN_WIDTH - 18, height: 22, rx: 5, fill: isFinished ? themeColor("good-soft") : isKept ? themeColor("accent-soft") : themeColor("card"), stroke: isSelected ? themeColor("warm") : isBest ? themeColor("accent") : themeColor("line"), "stroke-width": isSelected ? 3 : isBest ? 2 : 1, "stroke-dasharray": isKept ? null : "3 2" }),
    svg("text", { x: node.x + 6, y: node.y + 4, "font-size": 12, fill: isKept ? themeColor("text") : themeColor("quiet") }, shortText(node.text, 8)), " ",
    svg("text", { x: node.x + COLUMN_WIDTH - 24, y: node.y + 4, "font-size": 10, "text-anchor": "end", fill: themeColor("quiet") }, fixed(node.score, 2)));
  return group;
}

function nodeDetails(nodesById) {
  const node = nodesById.get(Number(state.node));
  if (state.node === "" || !node) return el("p", { class: "quiet" }, "Select a node to see its scores and why it was kept or pruned.");
  const path = pathTo(nodesById, node.node);
  return el("div", { id: "node" }, el("h3", {}, path.map((step) => displayText(step.text)).join(" ")), el("p", {}, OUTCOMES[node.outcome]),
    el("p", { class: "mono" }, `log-probability of this token ${fixed(node.log_prob)} (probability ${probability(node.log_prob)}), of the path ${fixed(node.total)}; score ${fixed(node.score)}`),
    button("Show the attention of this path", () => set({ tokens: path.map((step) => step.token).join(","), prefix: "", target: "", hypothesis: "0", tab: "attention" }, { remember: true }), { id: "open-node" }));
}

function hypothesesTable(trace) {
  return el("div", { class: "scroll", tabindex: 0 }, el("table", { id: "hypotheses" }, el("tr", {}, ["", "hypothesis", "score", "log-probability", "end"].map((text) => el("th", { scope: "col" }, text))),
    trace.hypotheses.map((hypothesis, index) => el("tr", { class: index === trace.hypothesis_index ? "selected" : null }, el("td", { class: "num" }, String(index)),
      el("td", {}, index === trace.hypothesis_index ? hypothesis.text : button(hypothesis.text, () => set({ hypothesis: index }, { remember: true }), { "aria-label": `Trace hypothesis ${index}: ${hypothesis.text}` })),
      el("td", { class: "num" }, fixed(hypothesis.score)), el("td", { class: "num" }, fixed(hypothesis.log_prob)), el("td", {}, hypothesis.finish_reason === "end" ? "end token" : "maximum length")))));
}

export const tree = {
  id: "tree",
  title: "Beam tree",
  tour: "Beam search keeps the best hypotheses of each step. The tree shows every candidate with its score. Select a node to see why it was kept or pruned, and to show the attention of its path.",
  applies: (app) => app.trace && app.model.generates_text,
  async draw(root, app) {
    const { trace } = app;
    if (!trace.tree.length) {
      root.append(el("section", { class: "card" }, heading("Beam tree"), el("p", {}, "This output was forced. Only a search has a beam tree."), button("Search for an output", () => set({ target: "", tokens: "", prefix: "" }, { remember: true }), { id: "search-again" })));
      return;
    }
    const { nodesById, rows, columns } = layout(trace.tree);
    const best = tracedPath(nodesById, trace);
    const select = (node) => set({ node: node.node });
    const drawing = svg("svg", { width: columns * COLUMN_WIDTH + 24, height: rows * ROW_HEIGHT + 34, role: "group", "aria-label": `Beam tree of ${trace.tree.length} candidates`, class: "tree" });
    for (let step = 0; step < columns; step += 1) drawing.append(svg("text", { x: 12 + step * COLUMN_WIDTH, y: 12, "font-size": 10, fill: themeColor("quiet") }, `step ${step + 1}`));
    for (const node of nodesById.values()) if (nodesById.has(node.parent)) drawing.append(drawEdge(nodesById.get(node.parent), node, best.has(node.node)));
    for (const node of nodesById.values()) drawing.append(drawNode(node, best.has(node.node), select));
    root.append(el("section", { class: "card" }, el("div", { class: "row" }, el("div", { class: "grow" }, heading(`Beam of ${trace.settings.beam_size}: ${trace.tree.length} candidates`, "Columns are steps, best at the top. Solid: kept; green: finished; dashed: pruned. The number in a node is the score of the path to it.")), saveButtons(() => root.querySelector("svg.tree"), "beam-tree")),
      el("div", { class: "scroll", tabindex: 0 }, drawing), el("div", { id: "details" }, nodeDetails(nodesById))), el("section", { class: "card" }, el("h2", {}, "Hypotheses"), hypothesesTable(trace)));
    this.nodesById = nodesById;
  },
  async update(root, app, changed) {
    if (!changed.has("node") || !this.nodesById) return;
    for (const group of root.querySelectorAll("g.node")) {
      const isSelected = group.dataset.node === state.node;
      const shape = group.querySelector("rect");
      const isBest = group.dataset.best === "true";
      shape.setAttribute("stroke", isSelected ? themeColor("warm") : isBest ? themeColor("accent") : themeColor("line"));
      shape.setAttribute("stroke-width", isSelected ? 3 : isBest ? 2 : 1);
    }
    root.querySelector("#details").replaceChildren(nodeDetails(this.nodesById));
  },
};
