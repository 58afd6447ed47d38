// Pictures out of the page: any drawing or card as SVG, or as PNG at twice its size.
import { button, el, svg } from "./draw.js";
import { ink } from "./palette.js";
import { snapshot } from "./snapshot.js";

const MOST_PIXELS = 12000; // a side of a PNG: canvases end somewhere above

function download(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// A drawing as it is; of anything else what it looks like.
const drawn = (element) => (element instanceof SVGSVGElement ? element : snapshot(element));

export function text(element) {
  const copy = drawn(element).cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "system-ui, 'DejaVu Sans', sans-serif");
  for (const each of copy.querySelectorAll("[tabindex]")) each.removeAttribute("tabindex");
  copy.prepend(svg("rect", { width: "100%", height: "100%", fill: ink("card") }));
  return new XMLSerializer().serializeToString(copy);
}

export async function png(element) {
  const drawing = drawn(element);
  const url = URL.createObjectURL(new Blob([text(drawing)], { type: "image/svg+xml" }));
  try {
    const picture = new Image();
    picture.src = url;
    await picture.decode();
    const [width, height] = ["width", "height"].map((side) => Number(drawing.getAttribute(side)));
    const scale = Math.min(2, MOST_PIXELS / Math.max(width, height));
    const canvas = el("canvas", { width: Math.ceil(scale * width), height: Math.ceil(scale * height) });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally { URL.revokeObjectURL(url); }
}

export function saveButtons(find, name) {
  return el("span", { class: "saves" },
    button("SVG", () => download(`${name}.svg`, new Blob([text(find())], { type: "image/svg+xml" })), { "aria-label": `SVG: save ${name}`, title: `Save ${name} as SVG` }),
    button("PNG", async () => download(`${name}.png`, await png(find())), { "aria-label": `PNG: save ${name}`, title: `Save ${name} as PNG` }));
}

export function json(name, value) { download(`${name}.json`, new Blob([JSON.stringify(value)], { type: "application/json" })); }
