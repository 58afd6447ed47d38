// Requests to the server. Views of a trace never change, so they are cached.
export class ApiError extends Error {
  constructor({ code, message, param }) { super(message); this.code = code; this.param = param; }
}

const MAX_CACHED_VIEWS = 400;
const views = new Map(); // path -> promise of the view
const traceRequests = new Map(); // id of a trace -> its request, which is repeated if the server has dropped the trace

async function send(path, options) {
  try { return await fetch(path, options); } catch {
    throw new ApiError({ code: "gone", message: "the server does not answer; check that clearhead serve is still running" });
  }
}

async function readJson(response) {
  let body;
  try { body = await response.json(); } catch { body = {}; }
  if (!response.ok) throw new ApiError(body.error ?? { code: "broken", message: `the server answered with status ${response.status}` });
  return body;
}

const getJson = async (path) => readJson(await send(path));

export async function post(path, body) {
  return readJson(await send(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));
}

export async function models() { return (await getJson("/v1/models")).models; }

export async function trace(request) {
  const summary = await post("/v1/trace", request);
  traceRequests.set(summary.id, request);
  return summary;
}

export function view(id, name) {
  const path = `/v1/trace/${id}/${name}`;
  if (!views.has(path)) {
    const promise = withTrace(id, () => getJson(path)).catch((error) => { views.delete(path); throw error; });
    views.set(path, promise);
    if (views.size > MAX_CACHED_VIEWS) views.delete(views.keys().next().value);
  }
  return views.get(path);
}

// The trace with the attention of every head. It is not cached, because it is large.
export function completeTrace(id) { return withTrace(id, () => getJson(`/v1/trace/${id}`)); }

export function ablate(id, ablated) { return withTrace(id, () => post("/v1/ablation", { trace: id, ablated })); }

// Calls a function that requests a view of a trace; if the server has dropped the trace, has it computed again first.
async function withTrace(id, requestView) {
  try { return await requestView(); } catch (error) {
    if (error.code !== "no_such_trace" || !traceRequests.has(id)) throw error;
    await post("/v1/trace", traceRequests.get(id));
    return requestView();
  }
}

export function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

// The weights of a head are sent as float32 in base64, because JSON numbers of a long sentence take several times longer.
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
