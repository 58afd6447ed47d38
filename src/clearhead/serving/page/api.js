// Requests to the server. Views of a trace never change, so each is requested once.
export class ApiError extends Error {
  constructor({ code, message, param }) { super(message); this.code = code; this.param = param; }
}

const MAX_CACHED_VIEWS = 400;
const views = new Map(); // path -> promise of the view
const traceRequests = new Map(); // id of a trace -> its request, to repeat it if the server no longer stores the trace

async function readJson(response) {
  let body;
  try { body = await response.json(); } catch { body = {}; }
  if (!response.ok) throw new ApiError(body.error ?? { code: "broken", message: `the server answered with status ${response.status}` });
  return body;
}

export async function post(path, body) {
  let response;
  const headers = { "Content-Type": "application/json" };
  try { response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }); } catch {
    throw new ApiError({ code: "gone", message: "the server does not answer; check that clearhead serve is still running" });
  }
  return readJson(response);
}

export async function models() { return (await readJson(await fetch("/v1/models"))).models; }

export async function trace(request) {
  const summary = await post("/v1/trace", request);
  traceRequests.set(summary.id, request);
  return summary;
}

export function view(id, name) {
  const path = `/v1/trace/${id}/${name}`;
  if (!views.has(path)) {
    const promise = withTrace(id, async () => readJson(await fetch(path))).catch((error) => { views.delete(path); throw error; });
    views.set(path, promise);
    if (views.size > MAX_CACHED_VIEWS) views.delete(views.keys().next().value);
  }
  return views.get(path);
}

export function ablate(id, ablated) { return withTrace(id, () => post("/v1/ablation", { trace: id, ablated })); }

// Sends a request about a trace; if the server no longer stores the trace, requests it again first.
async function withTrace(id, send) {
  try { return await send(); } catch (error) {
    if (error.code !== "no_such_trace" || !traceRequests.has(id)) throw error;
    await post("/v1/trace", traceRequests.get(id));
    return send();
  }
}

export function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

// The weights of a head are sent as base64, 4 bytes each: decimals of a long sentence take several times as long.
const decodedHeads = new WeakMap();
export async function head(id, { kind, layer, head: number }) {
  const record = await view(id, `attention/${kind}/${layer}/${number}?base64=true`);
  if (!decodedHeads.has(record)) {
    const { rows, columns } = record;
    const [weights, allowed] = [new Float32Array(decodeBase64(record.weights).buffer), decodeBase64(record.allowed)];
    const toRows = (values) => Array.from({ length: rows }, (_, t) => values.subarray(t * columns, (t + 1) * columns));
    decodedHeads.set(record, { ...record, weights: toRows(weights), allowed: toRows(allowed) });
  }
  return decodedHeads.get(record);
}
