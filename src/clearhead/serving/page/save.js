// Pictures out of the page: any drawing as SVG, or as PNG at twice its size.
import { button, el } from "./draw.js";
import { ink } from "./palette.js";

function download(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export function text(drawing) {
  const copy = drawing.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "system-ui, 'DejaVu Sans', sans-serif");
  for (const each of copy.querySelectorAll("[tabindex]")) each.removeAttribute("tabindex");
  const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of Object.entries({ width: "100%", height: "100%", fill: ink("card") })) back.setAttribute(key, value);
  copy.prepend(back);
  return new XMLSerializer().serializeToString(copy);
}

export async function png(drawing) {
  const url = URL.createObjectURL(new Blob([text(drawing)], { type: "image/svg+xml" }));
  try {
    const picture = new Image();
    picture.src = url;
    await picture.decode();
    const canvas = el("canvas", { width: 2 * drawing.width.baseVal.value, height: 2 * drawing.height.baseVal.value });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally { URL.revokeObjectURL(url); }
}

export function saveButtons(find, name) {
  return el("span", { class: "row" },
    button("SVG", () => download(`${name}.svg`, new Blob([text(find())], { type: "image/svg+xml" })), { "aria-label": `Save ${name} as SVG` }),
    button("PNG", async () => download(`${name}.png`, await png(find())), { "aria-label": `Save ${name} as PNG` }));
}

export function json(name, value) { download(`${name}.json`, new Blob([JSON.stringify(value)], { type: "application/json" })); }
