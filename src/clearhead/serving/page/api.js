// Questions to the server. Answers about a trace never change, so each is asked once.
export class Problem extends Error {
  constructor({ code, message, param }) { super(message); this.code = code; this.param = param; }
}

const known = new Map();
const asked = new Map(); // id of a trace -> the request it came from, should the server have forgotten it

async function answer(response) {
  let body;
  try { body = await response.json(); } catch { body = {}; }
  if (!response.ok) throw new Problem(body.error ?? { code: "broken", message: `the server answered ${response.status}` });
  return body;
}

export async function post(path, body) {
  let response;
  const headers = { "Content-Type": "application/json" };
  try { response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }); } catch {
    throw new Problem({ code: "gone", message: "the server does not answer; is clearhead serve still running?" });
  }
  return answer(response);
}

export async function models() { return (await answer(await fetch("/v1/models"))).models; }

export async function trace(request) {
  const found = await post("/v1/trace", request);
  asked.set(found.id, request);
  return found;
}

export function about(id, what) {
  const path = `/v1/trace/${id}/${what}`;
  if (!known.has(path)) {
    const promise = ask(id, path).catch((problem) => { known.delete(path); throw problem; });
    known.set(path, promise);
    if (known.size > 400) known.delete(known.keys().next().value);
  }
  return known.get(path);
}

async function ask(id, path) {
  try { return await answer(await fetch(path)); } catch (problem) {
    if (problem.code !== "no_such_trace" || !asked.has(id)) throw problem;
    await post("/v1/trace", asked.get(id));
    return answer(await fetch(path));
  }
}

export async function ablate(id, off) {
  try { return await post("/v1/ablation", { trace: id, off }); } catch (problem) {
    if (problem.code !== "no_such_trace" || !asked.has(id)) throw problem;
    await post("/v1/trace", asked.get(id));
    return post("/v1/ablation", { trace: id, off });
  }
}

export function bytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const found = atob(text);
  const values = new Uint8Array(found.length);
  for (let at = 0; at < found.length; at += 1) values[at] = found.charCodeAt(at);
  return values;
}

// The weights of a head come packed, four bytes each: as decimals a long sentence takes several times as long.
const unpacked = new WeakMap();
export async function head(id, { kind, layer, head: number }) {
  const found = await about(id, `attention/${kind}/${layer}/${number}?packed=true`);
  if (!unpacked.has(found)) {
    const { rows, columns } = found;
    const [weights, allowed] = [new Float32Array(bytes(found.weights).buffer), bytes(found.allowed)];
    const cut = (values) => Array.from({ length: rows }, (_, t) => values.subarray(t * columns, (t + 1) * columns));
    unpacked.set(found, { ...found, weights: cut(weights), allowed: cut(allowed) });
  }
  return unpacked.get(found);
}
