// A card of the page as one drawing: boxes, words, canvases and drawings where they stand, what is scrolled away too.
import { svg } from "./draw.js";

const LEFT_OUT = ".saves, select, input, textarea, dialog"; // what is there to be used, not to be looked at

function box(element, style, at) {
  const fill = style.backgroundColor;
  const width = parseFloat(style.borderTopWidth);
  const isFilled = fill !== "rgba(0, 0, 0, 0)";
  if (!isFilled && !width) return null;
  return svg("rect", { ...at(element.getBoundingClientRect()), rx: Math.min(8, parseFloat(style.borderTopLeftRadius) || 0), fill: isFilled ? fill : "none", stroke: width ? style.borderTopColor : null, opacity: style.opacity });
}

// The words of a text node, one element a line that they stand in.
function lines(node, style, at) {
  const found = [];
  const range = document.createRange();
  for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const place = at(range.getBoundingClientRect());
    if (!place.width) continue;
    const last = found.at(-1);
    if (last && Math.abs(last.y - place.y) < 2) last.text += ` ${word}`;
    else found.push({ ...place, text: word });
  }
  return found.map(({ x, y, height, text }) => svg("text", { x, y: y + height / 2, "dominant-baseline": "central", "font-size": style.fontSize, "font-weight": style.fontWeight, "font-family": style.fontFamily, fill: style.color, opacity: style.opacity }, text));
}

function copied(drawing, at) {
  const copy = drawing.cloneNode(true);
  for (const [key, value] of Object.entries(at(drawing.getBoundingClientRect()))) copy.setAttribute(key, value);
  return copy;
}

function parts(parent, at) {
  return [...parent.childNodes].flatMap((node) => {
    if (node.nodeType === Node.TEXT_NODE) return lines(node, getComputedStyle(parent), at);
    if (!(node instanceof Element) || node.matches(LEFT_OUT) || !node.getClientRects().length) return [];
    if (node instanceof SVGSVGElement) return [copied(node, at)];
    if (node instanceof HTMLCanvasElement) return [svg("image", { ...at(node.getBoundingClientRect()), preserveAspectRatio: "none", "image-rendering": "pixelated", href: node.toDataURL() })];
    return [box(node, getComputedStyle(node), at), ...parts(node, at)].filter(Boolean);
  });
}

export function snapshot(element) {
  element.classList.add("whole"); // nothing scrolls while it is measured; it is not painted so
  try {
    const frame = element.getBoundingClientRect();
    const at = (place) => ({ x: place.left - frame.left + 8, y: place.top - frame.top + 8, width: place.width, height: place.height });
    const found = parts(element, at);
    const [width, height] = ["scrollWidth", "scrollHeight"].map((side) => Math.ceil(element[side]) + 16);
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, found);
  } finally { element.classList.remove("whole"); }
}
