// The state of the page. It is stored in the address, so that a link opens the same view.
const DEFAULTS = {
  model: "", text: "", target: "", beam_size: "", length_penalty: "", tokens: "", prefix: "", hypothesis: "0", ablated: "", positions: "", image: "",
  tab: "attention", kind: "", layer: "0", head: "0", row: "", column: "", keys: "", view: "both", hide: "", sort: "layer",
  step: "", node: "", block: "", whatif: "", all_heads: "", edited_text: "", second_model: "", second_text: "", dimension: "0", output: "0", theme: "",
};
// Keys whose changes require a new trace.
export const TRACE_KEYS = ["model", "text", "target", "beam_size", "length_penalty", "tokens", "prefix", "hypothesis", "ablated", "positions", "image"];

function readAddress() {
  const values = { ...DEFAULTS };
  for (const [key, value] of new URLSearchParams(location.search)) if (key in DEFAULTS) values[key] = value;
  return values;
}

export const state = readAddress();
const listeners = [];

export function listen(listener) { listeners.push(listener); }

// Changes the state and the address. remember: add an entry to the browser's history; quiet: do not call the listeners.
export function set(changes, { remember = false, quiet = false } = {}) {
  const changed = new Set();
  for (const [key, value] of Object.entries(changes)) {
    const text = String(value);
    if (state[key] !== text) { state[key] = text; changed.add(key); }
  }
  if (!changed.size) return;
  const query = new URLSearchParams();
  for (const key of Object.keys(DEFAULTS)) if (state[key] !== DEFAULTS[key]) query.set(key, state[key]);
  const address = query.size ? `?${query}` : location.pathname;
  history[remember ? "pushState" : "replaceState"](null, "", address);
  if (!quiet) for (const listener of listeners) listener(changed);
}

window.addEventListener("popstate", () => {
  const before = { ...state };
  Object.assign(state, readAddress());
  const changed = new Set(Object.keys(state).filter((key) => state[key] !== before[key]));
  for (const listener of listeners) listener(changed, true);
});

export const parseNumbers = (text) => (text ? text.split(",").map(Number) : []);
export const parseNames = (text) => (text ? text.split(",") : []);
