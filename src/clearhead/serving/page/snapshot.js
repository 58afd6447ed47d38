// Conversion of a card of the page to one SVG with its boxes, texts, canvases and drawings, including those scrolled out of view.
import { svg } from "./draw.js";

const EXCLUDED = ".saves, select, input, textarea, dialog"; // controls

function drawBox(element, style, toDrawing) {
  const fill = style.backgroundColor;
  const width = parseFloat(style.borderTopWidth);
  const isFilled = fill !== "rgba(0, 0, 0, 0)";
  if (!isFilled && !width) return null;
  return svg("rect", { ...toDrawing(element.getBoundingClientRect()), rx: Math.min(8, parseFloat(style.borderTopLeftRadius) || 0), fill: isFilled ? fill : "none", stroke: width ? style.borderTopColor : null, opacity: style.opacity });
}

// Returns one text element per displayed line of a text node.
function drawText(node, style, toDrawing) {
  const lines = [];
  const range = document.createRange();
  for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = toDrawing(range.getBoundingClientRect());
    if (!box.width) continue;
    const last = lines.at(-1);
    if (last && Math.abs(last.y - box.y) < 2) last.text += ` ${word}`;
    else lines.push({ ...box, text: word });
  }
  return lines.map(({ x, y, height, text }) => svg("text", { x, y: y + height / 2, "dominant-baseline": "central", "font-size": style.fontSize, "font-weight": style.fontWeight, "font-family": style.fontFamily, fill: style.color, opacity: style.opacity }, text));
}

function copyDrawing(drawing, toDrawing) {
  const copy = drawing.cloneNode(true);
  for (const [key, value] of Object.entries(toDrawing(drawing.getBoundingClientRect()))) copy.setAttribute(key, value);
  return copy;
}

function drawChildren(parent, toDrawing) {
  return [...parent.childNodes].flatMap((node) => {
    if (node.nodeType === Node.TEXT_NODE) return drawText(node, getComputedStyle(parent), toDrawing);
    if (!(node instanceof Element) || node.matches(EXCLUDED) || !node.getClientRects().length) return [];
    if (node instanceof SVGSVGElement) return [copyDrawing(node, toDrawing)];
    if (node instanceof HTMLCanvasElement) return [svg("image", { ...toDrawing(node.getBoundingClientRect()), preserveAspectRatio: "none", "image-rendering": "pixelated", href: node.toDataURL() })];
    return [drawBox(node, getComputedStyle(node), toDrawing), ...drawChildren(node, toDrawing)].filter(Boolean);
  });
}

export function snapshot(element) {
  element.classList.add("whole"); // shows scrolled content while positions are measured; removed before the next frame
  try {
    const frame = element.getBoundingClientRect();
    const toDrawing = (box) => ({ x: box.left - frame.left + 8, y: box.top - frame.top + 8, width: box.width, height: box.height });
    const children = drawChildren(element, toDrawing);
    const [width, height] = ["scrollWidth", "scrollHeight"].map((side) => Math.ceil(element[side]) + 16);
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, children);
  } finally { element.classList.remove("whole"); }
}
