// The panel Attention: all heads as thumbnails, one head in detail, and the arithmetic of one of its weights.
import { el } from "../draw.js";
import { drawArithmetic } from "./arithmetic.js";
import { drawGrid, markSelectedHead } from "./grid.js";
import { drawHead } from "./head.js";

const SELECTION = ["kind", "layer", "head"];

export const attention = {
  id: "attention",
  title: "Attention",
  tour: "The attention weights of every head in every layer. Rows are queries, columns are keys; the stronger the color, the larger the weight. Select a head to see it in detail, and a cell to see how its weight is computed.",
  applies: (app) => app.trace?.heads.length > 0,
  async draw(root, app) {
    const grid = el("section", { class: "card", id: "grid", "aria-label": "All heads" });
    const head = el("section", { class: "card", id: "head", "aria-label": "One head" });
    const arithmetic = el("section", { class: "card", id: "arithmetic", "aria-label": "Arithmetic of one cell" });
    root.append(el("div", { class: "split" }, grid, head), arithmetic);
    await Promise.all([drawGrid(grid, app), drawHead(head, app)]);
    await drawArithmetic(arithmetic, app);
  },
  async update(root, app, changed) {
    const [grid, head, arithmetic] = ["#grid", "#head", "#arithmetic"].map((id) => root.querySelector(id));
    if (changed.has("sort") || changed.has("hide")) await drawGrid(grid, app);
    else if (SELECTION.some((key) => changed.has(key))) markSelectedHead(grid);
    if ([...SELECTION, "hide", "view"].some((key) => changed.has(key))) await drawHead(head, app);
    if ([...SELECTION, "row", "column", "keys"].some((key) => changed.has(key))) await drawArithmetic(arithmetic, app);
  },
};
