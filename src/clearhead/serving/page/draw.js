// Creation of HTML and SVG elements, and display texts of tokens, numbers and heads. Texts are inserted only as text nodes.
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
export function token(text, kind = "") { return el("span", { class: `token ${kind}` }, displayText(text)); }

// The text of a token without the mark of a word's beginning (▁ or Ġ); "␣" if nothing remains.
export const displayText = (text) => text.replace(/^[▁Ġ]/, "").replaceAll("▁", " ") || "␣";
export const shortText = (text, maxLength = 14) => { const characters = [...displayText(text)]; return characters.length > maxLength ? `${characters.slice(0, maxLength - 1).join("")}…` : characters.join(""); };
// Decimals with a typographic minus sign, without the sign of a rounded zero.
export const fixed = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−"));
export const probability = (logProb) => { const p = Math.exp(logProb); return p >= 0.0005 || p === 0 ? `${(100 * p).toFixed(1)} %` : p.toExponential(1); };

export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

export const KIND_NAMES = { encoder: "Encoder self-attention", decoder: "Masked decoder self-attention", cross: "Encoder-decoder attention" };
export const SHORT_KIND_NAMES = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };
// Layers and heads are counted from 0, as on the command line and in the API: cross.0.1 is the same head everywhere.
export const headRef = ({ kind, layer, head }) => `${kind}.${layer}.${head}`;
export function headRefName(ref) {
  const [name, layer, head] = ref.split(".");
  const sublayer = KIND_NAMES[name] ?? `${name.split("_")[0] === "encoder" ? "Encoder" : "Decoder"} feed-forward`;
  return `${sublayer}, layer ${layer}${head === undefined ? "" : `, head ${head}`}`;
}
export const headName = (head) => headRefName(headRef(head));
