// Making elements. Text is always text: nothing here ever reads markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function button(label, onclick, attributes = {}) { return el("button", { type: "button", onclick, ...attributes }, label); }
export function note(text) { return el("p", { class: "note" }, text); }
export function heading(title, text) { return el("div", {}, el("h2", {}, title), text && el("p", { class: "quiet small" }, text)); }
export function token(text, kind = "") { return el("span", { class: `token ${kind}` }, shown(text)); }

// Pieces carry a mark where a word begins; people see a space there.
export const shown = (text) => text.replace(/^[▁Ġ]/, "").replaceAll("▁", " ") || "␣";
export const short = (text, most = 14) => { const all = [...shown(text)]; return all.length > most ? `${all.slice(0, most - 1).join("")}…` : all.join(""); };
export const fixed = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−"));
export const probability = (logarithm) => { const p = Math.exp(logarithm); return p >= 0.0005 || p === 0 ? `${(100 * p).toFixed(1)} %` : p.toExponential(1); };

export const KINDS = { encoder: "Encoder self-attention", decoder: "Masked decoder self-attention", cross: "Encoder-decoder attention" };
export const BRIEF = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };
// Layers and heads are counted from 0, as the command line and the API count them: cross.0.1 is the same head everywhere.
export const partId = ({ kind, layer, head }) => `${kind}.${layer}.${head}`;
export function partName(part) {
  const [name, layer, head] = part.split(".");
  const words = KINDS[name] ?? `${name.split("_")[0] === "encoder" ? "Encoder" : "Decoder"} feed-forward`;
  return `${words}, layer ${layer}${head === undefined ? "" : `, head ${head}`}`;
}
export const headName = (one) => partName(partId(one));
