// Export of a drawing or card of the page as SVG, or as PNG with twice its width and height.
import { button, el, svg } from "./draw.js";
import { themeColor } from "./palette.js";
import { snapshot } from "./snapshot.js";

const MAX_PIXELS = 12000; // per side of a PNG; browsers limit the size of canvases

function download(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Returns an SVG drawing unchanged, and a snapshot of any other element.
const toSvg = (element) => (element instanceof SVGSVGElement ? element : snapshot(element));

export function svgText(element) {
  const copy = toSvg(element).cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "system-ui, 'DejaVu Sans', sans-serif");
  for (const focusable of copy.querySelectorAll("[tabindex]")) focusable.removeAttribute("tabindex");
  copy.prepend(svg("rect", { width: "100%", height: "100%", fill: themeColor("card") }));
  return new XMLSerializer().serializeToString(copy);
}

export async function png(element) {
  const drawing = toSvg(element);
  const url = URL.createObjectURL(new Blob([svgText(drawing)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const [width, height] = ["width", "height"].map((side) => Number(drawing.getAttribute(side)));
    const scale = Math.min(2, MAX_PIXELS / Math.max(width, height));
    const canvas = el("canvas", { width: Math.ceil(scale * width), height: Math.ceil(scale * height) });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  } finally { URL.revokeObjectURL(url); }
}

// Returns the buttons that save an element; `getElement` finds it at the click, because panels replace their elements.
export function saveButtons(getElement, name) {
  return el("span", { class: "saves" },
    button("SVG", () => download(`${name}.svg`, new Blob([svgText(getElement())], { type: "image/svg+xml" })), { "aria-label": `SVG: save ${name}`, title: `Save ${name} as SVG` }),
    button("PNG", async () => download(`${name}.png`, await png(getElement())), { "aria-label": `PNG: save ${name}`, title: `Save ${name} as PNG` }));
}

export function json(name, value) { download(`${name}.json`, new Blob([JSON.stringify(value)], { type: "application/json" })); }
