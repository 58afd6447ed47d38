// The formula of each block of a model, with the model's own sizes.
export const RECURRENT = ["rnn", "gru", "lstm"];
const EACH_POSITION = "The same two-layer network is applied to every position separately.";

// D model width, F feed-forward width, H heads, K and E head width of keys and values, V vocabulary, O outputs, S and T lengths.
export function sizes(app) {
  const { config, generates_text: generatesText } = app.model;
  const numLabels = !generatesText && config.num_labels;
  return { D: config.model_dim, F: config.feed_forward_dim, H: config.num_heads, K: config.d_k, E: config.d_v, V: config.vocab_size, O: numLabels || config.vocab_size, S: app.trace.source.length, T: app.trace.inputs.length };
}

const attention = (n, queries, keys, from, mask) => `Q = x W_Q, K = ${from} W_K, V = ${from} W_V\nhead = softmax(Q Kᵀ / √${n.K}${mask}) V\nout = concat(${n.H} heads) W_O\n\nQ: ${n.H} × ${queries} × ${n.K}\nK: ${n.H} × ${keys} × ${n.K}, V: ${n.H} × ${keys} × ${n.E}\nweights: ${n.H} × ${queries} × ${keys}\nW_Q: ${n.D} × ${n.H * n.K}, W_O: ${n.H * n.E} × ${n.D}`;

const SCORES = { dot: () => "h · s", scaled_dot: (n) => `h · s / √${n.D}`, general: (n) => `hᵀ M s, M: ${n.D} × ${n.D}`, cosine: () => "b cos(h, s), b learned", additive: (n) => `v · tanh(A h + B s), A, B: ${n.D} × ${n.D}` };
const recurrentAttention = (n, config) => `score = ${SCORES[config.attention]?.(n) ?? ""}\nweights = softmax over the source\ncontext = weights · s\n\nh: ${n.T} × ${n.D}, s: ${n.S} × ${n.D}\nweights: ${n.T} × ${n.S}`;

const CELLS = {
  rnn: ["h = tanh(W x + U h + b)", 1],
  gru: ["r, z = σ(W x + U h + b)\nn = tanh(W x + r ∘ (U h) + b)\nh = (1 − z) ∘ n + z ∘ h", 3],
  lstm: ["i, f, o = σ(W x + U h + b), g = tanh(W x + U h + b)\nc = f ∘ c + i ∘ g\nh = o ∘ tanh(c)", 4],
};
const recurrentCell = (n, config) => { const [formula, gates] = CELLS[config.family]; return `${formula}\n\nW: ${n.D} × ${gates * n.D}, U: ${n.D} × ${gates * n.D}`; };

function positionTerm(config, n) {
  if (RECURRENT.includes(config.family)) return "";
  return { sinusoidal: `+ PE(pos), PE(pos, 2i) = sin(pos / 10000^(2i/${n.D}))`, learned: "+ a learned vector per position", rotary: "(queries and keys are rotated by position, inside attention)", relative: "(relative positions add a bias to the scores)", none: "(no positions)" }[config.positions];
}

function embedding(config, n) { return `x = ${config.scale_embeddings && !RECURRENT.includes(config.family) ? `√${n.D} · ` : ""}E[token] ${positionTerm(config, n)}`; }

function sourceEmbedding(config, n, readsImages) {
  if (readsImages) return ["Patch embedding", `x = patch W + b ${positionTerm(config, n)}\n\nW: ${config.patch_size ** 2 * config.image_channels} × ${n.D}\nx: ${n.S} × ${n.D}`, "The image is cut into patches; every patch becomes a vector, which encodes its position."];
  return ["Source embedding", `E: ${n.V} × ${n.D}\n${embedding(config, n)}\n\nx: ${n.S} × ${n.D}`, "Every token becomes a vector, which encodes its position."];
}

function outputLayer(config, n) {
  if (config.head === "classification") return ["Output", `x = pool(states), by ${config.pooling}\np = softmax(x W + b)\n\nW: ${n.D} × ${n.O}`, "One vector for the complete input; a score for every label, and the softmax turns scores into probabilities."];
  if (config.head === "token_classification") return ["Output", `p = softmax(x W + b), at every position\n\nW: ${n.D} × ${n.O}`, "A score for every tag at every position; the softmax turns scores into probabilities."];
  return ["Output", `p = softmax(x W_Eᵀ)\n\nW_E: ${n.O} × ${n.D}${config.tied_embeddings === "all" ? ", shared with the embedding" : ""}`, "A score for every token of the vocabulary; the softmax turns scores into probabilities."];
}

// Returns [title, formula, sentence] of a block of the architecture, or undefined.
export function describeBlock(block, app) {
  const { config } = app.model;
  const n = sizes(app);
  const feedForward = `${config.gated ? "(act(x W₁) ∘ x W₃)" : `${config.activation}(x W₁ + b₁)`} W₂\n\nW₁: ${n.D} × ${n.F}\nW₂: ${n.F} × ${n.D}`;
  const isRecurrent = RECURRENT.includes(config.family);
  return {
    source: () => sourceEmbedding(config, n, app.model.reads_images),
    target: () => ["Target embedding", `${embedding(config, n)}\n\nx: ${n.T} × ${n.D}`, "The decoder receives the previous tokens, shifted by the start token."],
    encoder: () => ["Self-attention", attention(n, n.S, n.S, "x", ""), "Every position attends to every position of the source."],
    decoder: () => ["Masked self-attention", attention(n, n.T, n.T, "x", " + mask"), "Every position attends to itself and to previous positions; later positions are masked."],
    cross: () => (isRecurrent ? ["Encoder-decoder attention", recurrentAttention(n, config), "The state of the decoder is compared with every encoder state; the context is their weighted sum."] : ["Encoder-decoder attention", attention(n, n.T, n.S, "encoder_output", ""), "Queries come from the decoder, keys and values from the encoder output."]),
    encoder_feed_forward: () => ["Feed-forward", feedForward, EACH_POSITION],
    decoder_feed_forward: () => ["Feed-forward", feedForward, EACH_POSITION],
    encoder_recurrent: () => ["Recurrent layers of the encoder", recurrentCell(n, config), `Positions are processed in order: each state is computed from the previous one.${config.bidirectional ? " The source is read in both directions, and the two states are merged." : ""}`],
    decoder_recurrent: () => ["Recurrent layers of the decoder", recurrentCell(n, config), "Tokens are processed in order, starting from the last states of the encoder."],
    merge: () => ["Attentional state", `x = tanh(${config.attention === "none" ? "h" : "[context, h]"} W + b)\n\nW: ${(config.attention === "none" ? 1 : 2) * n.D} × ${n.D}`, "The context vector and the decoder's state are combined into one vector."],
    output: () => outputLayer(config, n),
  }[block]?.();
}
