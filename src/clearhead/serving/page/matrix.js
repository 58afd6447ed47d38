// Two pictures of one matrix of weights: cells, and lines between words. Used by every panel that shows attention.
import { short, shown, svg } from "./draw.js";
import { css, ink, painter, sequential } from "./palette.js";

const MOST_LINES = 1500;
const FAINTEST = 0.02;

// One pixel a cell; a cell that is masked stays clear, and shows the hatching behind it.
export function cells(weights, allowed, colour = sequential) {
  const canvas = document.createElement("canvas");
  canvas.height = weights.length;
  canvas.width = weights[0].length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const words = new Uint32Array(image.data.buffer);
  const paint = painter(colour);
  let at = 0;
  weights.forEach((row, t) => row.forEach((weight, s) => { words[at] = !allowed || allowed[t][s] ? paint(weight) : 0; at += 1; }));
  context.putImageData(image, 0, 0);
  return canvas;
}

const CORNER = { top: 84, left: 96 };

function hatching(id) {
  return svg("defs", {}, svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width: 6, height: 6, fill: ink("card") }), svg("rect", { width: 2, height: 6, fill: ink("hatch") })));
}

function labels(rows, columns, size, top, left) {
  const group = svg("g", { "font-size": Math.min(12, Math.max(9, size - 2)), fill: ink("ink") });
  if (size < 9) return group;
  rows.forEach((text, t) => group.append(svg("text", { x: left - 6, y: top + (t + 0.5) * size + 4, "text-anchor": "end" }, short(text, 13))));
  columns.forEach((text, s) => {
    const x = left + (s + 0.5) * size + 4;
    group.append(svg("text", { x, y: top - 6, transform: `rotate(-55 ${x} ${top - 6})` }, short(text, 11)));
  });
  return group;
}

let counter = 0;

// `onmove` is told the cell under the pointer, `onpick` the one that is chosen; arrow keys move the chosen one.
export function matrix({ weights, allowed, rows, columns, label, room = 420, colour, chosen, onmove, onpick }) {
  const [height, width] = [weights.length, weights[0]?.length ?? 0];
  if (!height || !width) return svg("svg", { width: 10, height: 10 });
  const size = Math.max(2, Math.min(30, Math.floor(room / Math.max(height, width))));
  const { top, left } = size < 9 ? { top: 12, left: 12 } : CORNER;
  const id = `hatch-${(counter += 1)}`;
  const mark = svg("rect", { width: size, height: size, fill: "none", stroke: ink("warm"), "stroke-width": 2, class: "chosen", visibility: "hidden" });
  const place = (t, s) => { mark.setAttribute("x", left + s * size); mark.setAttribute("y", top + t * size); mark.setAttribute("visibility", "visible"); };
  const area = svg("rect", { x: left, y: top, width: width * size, height: height * size, fill: "transparent", class: "area" });
  const drawing = svg("svg", { width: left + width * size + 44, height: top + height * size + 6, role: "img", "aria-label": label, tabindex: onpick ? 0 : null, class: "matrix" },
    hatching(id), svg("rect", { x: left, y: top, width: width * size, height: height * size, fill: `url(#${id})` }),
    svg("image", { x: left, y: top, width: width * size, height: height * size, preserveAspectRatio: "none", "image-rendering": "pixelated", href: cells(weights, allowed, colour).toDataURL() }),
    labels(rows, columns, size, top, left), mark, area);
  const at = (event) => {
    const box = area.getBoundingClientRect();
    const [s, t] = [Math.floor((event.clientX - box.left) / size), Math.floor((event.clientY - box.top) / size)];
    return t >= 0 && s >= 0 && t < height && s < width ? [t, s] : null;
  };
  area.addEventListener("pointermove", (event) => { const cell = at(event); if (cell) onmove?.(...cell); });
  area.addEventListener("click", (event) => { const cell = at(event); if (cell && onpick) { place(...cell); onpick(...cell); } });
  let current = chosen ?? [0, 0];
  if (chosen && chosen[0] < height && chosen[1] < width) place(...chosen);
  drawing.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move || !onpick) return;
    event.preventDefault();
    current = [Math.min(height - 1, Math.max(0, current[0] + move[0])), Math.min(width - 1, Math.max(0, current[1] + move[1]))];
    place(...current);
    onpick(...current);
  });
  return drawing;
}

// Lines of about the same weight are one path: a long sentence has a thousand of them, and elements cost more than lines.
const SHADES = 20;
function bundled(found, line) {
  const shades = new Map();
  for (const each of found) {
    const shade = Math.min(SHADES - 1, Math.floor(each[0] * SHADES));
    shades.set(shade, `${shades.get(shade) ?? ""}${line(each)}`);
  }
  return [...shades].map(([shade, d]) => { const weight = (shade + 0.5) / SHADES; return svg("path", { d, "stroke-width": 0.5 + 3 * weight, opacity: Math.max(0.06, weight) }); });
}

export function lines({ room = 384, weights, rows, columns, label, sides, chosen, onmove, onpick }) {
  const step = 20;
  const [left, right] = [104, room - 108];
  const height = Math.max(rows.length, columns.length) * step + 34;
  const y = (index, count) => 30 + index * step + ((Math.max(rows.length, columns.length) - count) * step) / 2;
  const found = [];
  weights.forEach((row, t) => row.forEach((weight, s) => { if (weight > FAINTEST) found.push([weight, t, s]); }));
  found.sort((one, other) => other[0] - one[0]);
  const drawn = found.slice(0, MOST_LINES);
  const strands = (some) => bundled(some, ([, t, s]) => `M${right} ${y(t, rows.length)}L${left} ${y(s, columns.length)}`);
  const [all, one] = ["all", "one"].map((name) => svg("g", { stroke: css(sequential(1)), fill: "none", class: name, "data-lines": name === "all" ? drawn.length : null }));
  all.append(...strands(drawn));
  const focus = (t) => {
    all.setAttribute("opacity", t === null ? 1 : 0.12);
    one.replaceChildren(...(t === null ? [] : strands(drawn.filter(([, own]) => own === t))));
  };
  const word = (text, index, count, x, anchor, pick) => svg("text", { x, y: y(index, count) + 4, "text-anchor": anchor, "font-size": 12, fill: ink("ink"),
    class: pick ? "pick" : null, onpointerenter: pick && (() => focus(index)), onpointerleave: pick && (() => focus(chosen ?? null)), onclick: pick && (() => onpick?.(index)) }, short(text, 13));
  const drawing = svg("svg", { width: room, height, role: "img", "aria-label": label, class: "lines" },
    svg("text", { x: left, y: 12, "text-anchor": "end", "font-size": 11, fill: ink("quiet") }, sides[0]),
    svg("text", { x: room - 4, y: 12, "text-anchor": "end", "font-size": 11, fill: ink("quiet") }, sides[1]), all, one,
    columns.map((text, s) => word(text, s, columns.length, left - 6, "end", false)), rows.map((text, t) => word(text, t, rows.length, right + 6, "start", true)));
  if (onmove) drawing.addEventListener("pointermove", () => onmove());
  return { drawing, left: found.length - drawn.length };
}

export const names = (places) => places.map((place) => shown(place.text));
