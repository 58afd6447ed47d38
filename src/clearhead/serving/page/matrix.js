// Two drawings of attention weights: a matrix of cells, and lines between tokens.
import { shortText, svg } from "./draw.js";
import { css, themeColor, painter, sequential } from "./palette.js";

const MAX_LINES = 1500;
const MIN_LINE_WEIGHT = 0.02;

// Returns a canvas of one pixel per cell; masked cells are transparent, so that the hatching behind them is visible.
export function drawCells(weights, allowed, color = sequential) {
  const canvas = document.createElement("canvas");
  canvas.height = weights.length;
  canvas.width = weights[0].length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const paint = painter(color);
  let index = 0;
  weights.forEach((row, t) => row.forEach((weight, s) => { pixels[index] = !allowed || allowed[t][s] ? paint(weight) : 0; index += 1; }));
  context.putImageData(image, 0, 0);
  return canvas;
}

const CORNER = { top: 84, left: 96 };

function hatching(id) {
  return svg("defs", {}, svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width: 6, height: 6, fill: themeColor("card") }), svg("rect", { width: 2, height: 6, fill: themeColor("hatch") })));
}

function labels(rows, columns, size, top, left) {
  const group = svg("g", { "font-size": Math.min(12, Math.max(9, size - 2)), fill: themeColor("text") });
  if (size < 9) return group;
  rows.forEach((text, t) => group.append(svg("text", { x: left - 6, y: top + (t + 0.5) * size + 4, "text-anchor": "end" }, shortText(text, 13))));
  columns.forEach((text, s) => {
    const x = left + (s + 0.5) * size + 4;
    group.append(svg("text", { x, y: top - 6, transform: `rotate(-55 ${x} ${top - 6})` }, shortText(text, 11)));
  });
  return group;
}

let counter = 0;

// Returns an SVG that calls `onhover` for the cell under the pointer, and `onselect` for the cell selected by a click or arrow keys.
export function drawMatrix({ weights, allowed, rows, columns, label, maxSize = 420, color, selected, onhover, onselect }) {
  const [height, width] = [weights.length, weights[0]?.length ?? 0];
  if (!height || !width) return svg("svg", { width: 10, height: 10 });
  const size = Math.max(2, Math.min(30, Math.floor(maxSize / Math.max(height, width))));
  const { top, left } = size < 9 ? { top: 12, left: 12 } : CORNER;
  const id = `hatch-${(counter += 1)}`;
  const mark = svg("rect", { width: size, height: size, fill: "none", stroke: themeColor("warm"), "stroke-width": 2, class: "selected", visibility: "hidden" });
  const markCell = (t, s) => { mark.setAttribute("x", left + s * size); mark.setAttribute("y", top + t * size); mark.setAttribute("visibility", "visible"); };
  const area = svg("rect", { x: left, y: top, width: width * size, height: height * size, fill: "transparent", class: "area" });
  const drawing = svg("svg", { width: left + width * size + 44, height: top + height * size + 6, role: "img", "aria-label": label, tabindex: onselect ? 0 : null, class: "matrix" },
    hatching(id), svg("rect", { x: left, y: top, width: width * size, height: height * size, fill: `url(#${id})` }),
    svg("image", { x: left, y: top, width: width * size, height: height * size, preserveAspectRatio: "none", "image-rendering": "pixelated", href: drawCells(weights, allowed, color).toDataURL() }),
    labels(rows, columns, size, top, left), mark, area);
  const cellAt = (event) => {
    const box = area.getBoundingClientRect();
    const [s, t] = [Math.floor((event.clientX - box.left) / size), Math.floor((event.clientY - box.top) / size)];
    return t >= 0 && s >= 0 && t < height && s < width ? [t, s] : null;
  };
  area.addEventListener("pointermove", (event) => { const cell = cellAt(event); if (cell) onhover?.(...cell); });
  area.addEventListener("click", (event) => { const cell = cellAt(event); if (cell && onselect) { markCell(...cell); onselect(...cell); } });
  let current = selected ?? [0, 0];
  if (selected && selected[0] < height && selected[1] < width) markCell(...selected);
  drawing.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move || !onselect) return;
    event.preventDefault();
    current = [Math.min(height - 1, Math.max(0, current[0] + move[0])), Math.min(width - 1, Math.max(0, current[1] + move[1]))];
    markCell(...current);
    onselect(...current);
  });
  return drawing;
}

// Lines of similar weight are drawn by one path element, because a long sentence has thousands of lines and as many elements are slow.
const NUM_SHADES = 20;
function pathsByShade(cells, pathOf) {
  const shades = new Map();
  for (const cell of cells) {
    const shade = Math.min(NUM_SHADES - 1, Math.floor(cell[0] * NUM_SHADES));
    shades.set(shade, `${shades.get(shade) ?? ""}${pathOf(cell)}`);
  }
  return [...shades].map(([shade, d]) => { const weight = (shade + 0.5) / NUM_SHADES; return svg("path", { d, "stroke-width": 0.5 + 3 * weight, opacity: Math.max(0.06, weight) }); });
}

export function drawLines({ width = 384, weights, rows, columns, label, sides, selected, onhover, onselect }) {
  const step = 20;
  const [left, right] = [104, width - 108];
  const height = Math.max(rows.length, columns.length) * step + 34;
  const y = (index, count) => 30 + index * step + ((Math.max(rows.length, columns.length) - count) * step) / 2;
  const cells = [];
  weights.forEach((row, t) => row.forEach((weight, s) => { if (weight > MIN_LINE_WEIGHT) cells.push([weight, t, s]); }));
  cells.sort((a, b) => b[0] - a[0]);
  const drawn = cells.slice(0, MAX_LINES);
  const paths = (subset) => pathsByShade(subset, ([, t, s]) => `M${right} ${y(t, rows.length)}L${left} ${y(s, columns.length)}`);
  const [all, focused] = ["all", "focused"].map((name) => svg("g", { stroke: css(sequential(1)), fill: "none", class: name, "data-lines": name === "all" ? drawn.length : null }));
  all.append(...paths(drawn));
  const focus = (t) => {
    all.setAttribute("opacity", t === null ? 1 : 0.12);
    focused.replaceChildren(...(t === null ? [] : paths(drawn.filter(([, row]) => row === t))));
  };
  const wordLabel = (text, index, count, x, anchor, isRow) => svg("text", { x, y: y(index, count) + 4, "text-anchor": anchor, "font-size": 12, fill: themeColor("text"),
    class: isRow ? "selectable" : null, onpointerenter: isRow && (() => focus(index)), onpointerleave: isRow && (() => focus(selected ?? null)), onclick: isRow && (() => onselect?.(index)) }, shortText(text, 13));
  const drawing = svg("svg", { width, height, role: "img", "aria-label": label, class: "lines" },
    svg("text", { x: left, y: 12, "text-anchor": "end", "font-size": 11, fill: themeColor("quiet") }, sides[0]),
    svg("text", { x: width - 4, y: 12, "text-anchor": "end", "font-size": 11, fill: themeColor("quiet") }, sides[1]), all, focused,
    columns.map((text, s) => wordLabel(text, s, columns.length, left - 6, "end", false)), rows.map((text, t) => wordLabel(text, t, rows.length, right + 6, "start", true)));
  if (onhover) drawing.addEventListener("pointermove", () => onhover());
  return { drawing, numHidden: cells.length - drawn.length };
}
