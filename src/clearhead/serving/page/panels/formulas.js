// Title, formula and explanation of each block of a model, with the sizes of the model and the lengths of the trace.
export const RECURRENT = ["rnn", "gru", "lstm"];
const POSITION_WISE = "The same two-layer network is applied to each position separately.";

// D model width, F feed-forward width, H heads, K and E head widths of keys and values, V vocabulary, O columns of the logits (labels or
// vocabulary), S source length, T length of the decoder inputs.
export function sizes(app) {
  const { config, generates_text: generatesText } = app.model;
  const numLabels = !generatesText && config.num_labels;
  return { D: config.model_dim, F: config.feed_forward_dim, H: config.num_heads, K: config.d_k, E: config.d_v, V: config.vocab_size, O: numLabels || config.vocab_size, S: app.trace.source.length, T: app.trace.inputs.length };
}

// `source`: the tensor from which keys and values are computed; x in self-attention.
function attention(n, config, queries, keys, source, mask) {
  const isSelfAttention = source === "x";
  const rotation = isSelfAttention && config.positions === "rotary" ? "\nQ, K: rotated by their positions" : "";
  const bias = isSelfAttention && config.positions === "relative" ? " + bias" : "";
  return `Q = x W_Q, K = ${source} W_K, V = ${source} W_V${rotation}\nhead = softmax(Q Kᵀ${config.scale_attention ? ` / √${n.K}` : ""}${bias}${mask}) V\noutput = concat(${n.H} heads) W_O\n\nQ: ${n.H} × ${queries} × ${n.K}\nK: ${n.H} × ${keys} × ${n.K}, V: ${n.H} × ${keys} × ${n.E}\nweights: ${n.H} × ${queries} × ${keys}\nW_Q: ${n.D} × ${n.H * n.K}, W_O: ${n.H * n.E} × ${n.D}`;
}

function feedForward(n, config) {
  const bias = (index) => (config.bias ? ` + b${index}` : "");
  const inner = `x W₁${bias("₁")}`;
  const hidden = config.activation === "relu" ? `max(0, ${inner})` : `${config.activation}(${inner})`;
  const gated = config.gated ? `(${hidden} ∘ (x W₃${bias("₃")}))` : hidden;
  return `FFN(x) = ${gated} W₂${bias("₂")}\n\nW₁: ${n.D} × ${n.F}${config.gated ? `, W₃: ${n.D} × ${n.F}` : ""}\nW₂: ${n.F} × ${n.D}`;
}

const SCORES = { dot: () => "h · s", scaled_dot: (n) => `h · s / √${n.D}`, general: (n) => `hᵀ M s, M: ${n.D} × ${n.D}`, cosine: () => "b cos(h, s), b learned", additive: (n) => `v · tanh(A h + B s), A, B: ${n.D} × ${n.D}` };
const recurrentAttention = (n, config) => `score = ${SCORES[config.attention]?.(n) ?? ""}\nweights = softmax over the source\ncontext = weights · s\n\nh (decoder states): ${n.T} × ${n.D}\ns (encoder states): ${n.S} × ${n.D}\nweights: ${n.T} × ${n.S}`;

const CELLS = {
  rnn: ["h = tanh(W x + U h + b)", 1],
  gru: ["r, z = σ(W x + U h + b)\nn = tanh(W x + r ∘ (U h) + b)\nh = (1 − z) ∘ n + z ∘ h", 3],
  lstm: ["i, f, o = σ(W x + U h + b), g = tanh(W x + U h + b)\nc = f ∘ c + i ∘ g\nh = o ∘ tanh(c)", 4],
};
const recurrentCell = (n, config) => { const [formula, gates] = CELLS[config.family]; return `${formula}\n\nW: ${n.D} × ${gates * n.D}, U: ${n.D} × ${gates * n.D}`; };

function positionTerm(config, n) {
  if (RECURRENT.includes(config.family)) return "";
  return { sinusoidal: `+ PE(pos)\nPE(pos, 2i) = sin(pos / 10000^(2i/${n.D}))\nPE(pos, 2i+1) = cos(pos / 10000^(2i/${n.D}))`, learned: "+ P[pos], P learned", rotary: "(positions rotate the queries and keys of self-attention)", relative: "(relative positions add a bias to the scores of self-attention)", none: "(no position encodings)" }[config.positions];
}

function embedding(config, n) { return `x = ${config.scale_embeddings && !RECURRENT.includes(config.family) ? `√${n.D} · ` : ""}E[token] ${positionTerm(config, n)}`; }

const hasAddedPositions = (config) => !RECURRENT.includes(config.family) && ["sinusoidal", "learned"].includes(config.positions);
const embeddingSentence = (config, unit) => `Each ${unit} becomes a vector${hasAddedPositions(config) ? ", to which the encoding of its position is added" : ""}.`;

function sourceEmbedding(config, n, readsImages) {
  if (readsImages) return ["Patch embedding", `x = patch W + b ${positionTerm(config, n)}\n\nW: ${config.patch_size ** 2 * config.image_channels} × ${n.D}\nx: ${n.S} × ${n.D}`, `The image is divided into patches. ${embeddingSentence(config, "patch")}`];
  return ["Source embedding", `E: ${n.V} × ${n.D}\n${embedding(config, n)}\n\nx: ${n.S} × ${n.D}`, embeddingSentence(config, "token")];
}

function outputLayer(config, n) {
  const pooled = { first: "state of the first position", mean: "mean of the states", last: "state of the last position" }[config.pooling];
  const projection = (unit) => `A linear layer computes a score for each ${unit}; the softmax turns the scores into probabilities.`;
  if (config.head === "classification") return ["Output", `x = ${pooled}\np = softmax(x W + b)\n\nW: ${n.D} × ${n.O}`, `The states are pooled into one vector. ${projection("label")}`];
  if (config.head === "token_classification") return ["Output", `p = softmax(x W + b), at every position\n\nW: ${n.D} × ${n.O}`, projection("tag")];
  if (config.head === "masked_lm") return ["Output", `h = norm(gelu(x W + b))\np = softmax(h W_Eᵀ + b_E)\n\nW: ${n.D} × ${n.D}\nW_E: ${n.O} × ${n.D}, shared with the embedding`, `A further layer transforms the state of each position. ${projection("token of the vocabulary")}`];
  const isShared = config.tied_embeddings === "all";
  return ["Output", `p = softmax(x W_Eᵀ${config.scale_output ? ` / √${n.D}` : ""}${config.output_bias ? " + b" : ""})\n\nW_E: ${n.O} × ${n.D}${isShared ? ", shared with the embedding" : ""}`, projection("token of the vocabulary")];
}

// Returns [title, formula, explanation] of a block of the architecture, or undefined if there is no such block.
export function describeBlock(block, app) {
  const { config } = app.model;
  const n = sizes(app);

  const isRecurrent = RECURRENT.includes(config.family);
  return {
    source: () => sourceEmbedding(config, n, app.model.reads_images),
    target: () => ["Target embedding", `${embedding(config, n)}\n\nx: ${n.T} × ${n.D}`, `The decoder inputs are the outputs shifted right by the start token. ${embeddingSentence(config, "token")}`],
    encoder: () => ["Self-attention", attention(n, config, n.S, n.S, "x", ""), "Each position attends to all positions of the source."],
    decoder: () => ["Masked self-attention", attention(n, config, n.T, n.T, "x", " + mask"), "Each position attends to itself and to previous positions; later positions are masked."],
    cross: () => (isRecurrent ? ["Encoder-decoder attention", recurrentAttention(n, config), "The decoder state is scored against each encoder state; the context is the weighted sum of the encoder states."] : ["Encoder-decoder attention", attention(n, config, n.T, n.S, "encoder_output", ""), "Queries come from the decoder, keys and values from the encoder output."]),
    encoder_feed_forward: () => ["Feed-forward", feedForward(n, config), POSITION_WISE],
    decoder_feed_forward: () => ["Feed-forward", feedForward(n, config), POSITION_WISE],
    encoder_recurrent: () => ["Recurrent layers of the encoder", recurrentCell(n, config), `Positions are processed in order: each state is computed from the input and the previous state.${config.bidirectional ? " The source is read in both directions, and a linear layer combines the states of both directions." : ""}`],
    decoder_recurrent: () => ["Recurrent layers of the decoder", recurrentCell(n, config), "Tokens are processed in order, starting from the final states of the encoder."],
    merge: () => ["Attentional state", `x = tanh(${config.attention === "none" ? "h" : "[context, h]"} W + b)\n\nW: ${(config.attention === "none" ? 1 : 2) * n.D} × ${n.D}`, config.attention === "none" ? "The decoder state is transformed into the vector from which the output is computed." : "The context and the decoder state are combined into the vector from which the output is computed."],
    output: () => outputLayer(config, n),
  }[block]?.();
}
