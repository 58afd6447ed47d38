// The state of the page. What is here stands in the address too: a link shows the same.
const DEFAULTS = {
  model: "", text: "", target: "", beam_size: "", length_penalty: "", tokens: "", prefix: "", hypothesis: "0", off: "", positions: "", picture: "",
  tab: "attention", kind: "", layer: "0", head: "0", row: "", column: "", keys: "", view: "both", hide: "", sort: "place",
  step: "", node: "", part: "", try: "", all: "", edit: "", second: "", other: "", frequency: "0", output: "0", theme: "",
};
export const REQUEST = ["model", "text", "target", "beam_size", "length_penalty", "tokens", "prefix", "hypothesis", "off", "positions", "picture"];

function read() {
  const found = { ...DEFAULTS };
  for (const [key, value] of new URLSearchParams(location.search)) if (key in DEFAULTS) found[key] = value;
  return found;
}

export const state = read();
const listeners = [];

export function listen(listener) { listeners.push(listener); }

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
  Object.assign(state, read());
  const changed = new Set(Object.keys(state).filter((key) => state[key] !== before[key]));
  for (const listener of listeners) listener(changed, true);
});

export const numbers = (text) => (text ? text.split(",").map(Number) : []);
export const names = (text) => (text ? text.split(",") : []);
