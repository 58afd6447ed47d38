// What each part of a model computes, with the model's own numbers.
export const RECURRENT = ["rnn", "gru", "lstm"];

export function sizes(app) {
  const { config, writes } = app.card;
  const labels = !writes && config.num_labels;
  return { D: config.model_dim, F: config.feed_forward_dim, H: config.num_heads, K: config.d_k, E: config.d_v, V: config.vocab_size, O: labels || config.vocab_size, S: app.trace.source.length, T: app.trace.inputs.length };
}

const attend = (n, rows, keys, from, mask) => `Q = x W_Q, K = ${from} W_K, V = ${from} W_V\nhead = softmax(Q Kᵀ / √${n.K}${mask}) V\nout = concat(${n.H} heads) W_O\n\nQ: ${n.H} × ${rows} × ${n.K}\nK: ${n.H} × ${keys} × ${n.K}, V: ${n.H} × ${keys} × ${n.E}\nweights: ${n.H} × ${rows} × ${keys}\nW_Q: ${n.D} × ${n.H * n.K}, W_O: ${n.H * n.E} × ${n.D}`;

const SCORES = { dot: () => "h · s", scaled_dot: (n) => `h · s / √${n.D}`, general: (n) => `hᵀ M s, M: ${n.D} × ${n.D}`, cosine: () => "b cos(h, s), b learned", additive: (n) => `v · tanh(A h + B s), A, B: ${n.D} × ${n.D}` };
const lookUp = (n, config) => `score = ${SCORES[config.attention]?.(n) ?? ""}\nweights = softmax over the source\ncontext = weights · s\n\nh: ${n.T} × ${n.D}, s: ${n.S} × ${n.D}\nweights: ${n.T} × ${n.S}`;

const CELLS = {
  rnn: ["h = tanh(W x + U h + b)", 1],
  gru: ["r, z = σ(W x + U h + b)\nn = tanh(W x + r ∘ (U h) + b)\nh = (1 − z) ∘ n + z ∘ h", 3],
  lstm: ["i, f, o = σ(W x + U h + b), g = tanh(W x + U h + b)\nc = f ∘ c + i ∘ g\nh = o ∘ tanh(c)", 4],
};
const cell = (n, config) => { const [formula, gates] = CELLS[config.family]; return `${formula}\n\nW: ${n.D} × ${gates * n.D}, U: ${n.D} × ${gates * n.D}`; };

function placed(config, n) {
  if (RECURRENT.includes(config.family)) return "";
  return { sinusoidal: `+ PE(pos), PE(pos, 2i) = sin(pos / 10000^(2i/${n.D}))`, learned: "+ a learned vector a place", rotary: "(places turn queries and keys inside attention)", relative: "(places are a bias on the scores)", none: "(no places)" }[config.positions];
}

function read(config, n, isPicture) {
  if (isPicture) return ["What is read", `x = patch W + b ${placed(config, n)}\n\nW: ${config.patch_size ** 2 * config.image_channels} × ${n.D}\nx: ${n.S} × ${n.D}`, "The picture is cut into patches; every patch becomes a vector, and where it stands is marked on it."];
  return ["What is read", `E: ${n.V} × ${n.D}\nx = ${config.scale_embeddings && !RECURRENT.includes(config.family) ? `√${n.D} · ` : ""}E[token] ${placed(config, n)}\n\nx: ${n.S} × ${n.D}`, "Every piece becomes a vector; where it stands is marked on it."];
}

function answered(config, n) {
  if (config.head === "classification") return ["Output", `x = pool(states), by ${config.pooling}\np = softmax(x W + b)\n\nW: ${n.D} × ${n.O}`, "One vector for the whole; a score for every label, and the softmax makes probabilities of them."];
  if (config.head === "token_classification") return ["Output", `p = softmax(x W + b), at every place\n\nW: ${n.D} × ${n.O}`, "A score for every tag at every place; the softmax makes probabilities of them."];
  return ["Output", `p = softmax(x W_Eᵀ)\n\nW_E: ${n.O} × ${n.D}${config.tied_embeddings === "all" ? ", the embedding itself" : ""}`, "A score for every piece of the vocabulary; the softmax makes probabilities of them."];
}

// [title, formula, sentence] of a part.
export function describe(part, app) {
  const { config } = app.card;
  const n = sizes(app);
  const ffn = `${config.gated ? "(act(x W₁) ∘ x W₃)" : `${config.activation}(x W₁ + b₁)`} W₂\n\nW₁: ${n.D} × ${n.F}\nW₂: ${n.F} × ${n.D}`;
  const isRecurrent = RECURRENT.includes(config.family);
  return {
    source: () => read(config, n, app.card.reads_images),
    target: () => ["What is written so far", `x = ${config.scale_embeddings && !isRecurrent ? `√${n.D} · ` : ""}E[token] ${placed(config, n)}\n\nx: ${n.T} × ${n.D}`, "The decoder is given what stands before, shifted by the start token."],
    encoder: () => ["Self-attention", attend(n, n.S, n.S, "x", ""), "Every place looks at every place of the source and takes a mix of what it finds."],
    decoder: () => ["Masked self-attention", attend(n, n.T, n.T, "x", " + mask"), "Every place looks at itself and at what stands before; what comes later is masked."],
    cross: () => (isRecurrent ? ["Encoder-decoder attention", lookUp(n, config), "The state of the decoder is compared with every state of the source, and given their mix."] : ["Encoder-decoder attention", attend(n, n.T, n.S, "memory", ""), "Queries come from what is written, keys and values from the source."]),
    encoder_feed_forward: () => ["Feed-forward", ffn, "The same small network at every place, each on its own."],
    decoder_feed_forward: () => ["Feed-forward", ffn, "The same small network at every place, each on its own."],
    encoder_recurrent: () => ["Recurrent layers of the encoder", cell(n, config), `One place after the other: each state is made from the one before.${config.bidirectional ? " Read in both directions, and the two states merged into one." : ""}`],
    decoder_recurrent: () => ["Recurrent layers of the decoder", cell(n, config), "One piece after the other; it starts from the last states of the encoder."],
    merge: () => ["What it makes of both", `x = tanh(${config.attention === "none" ? "h" : "[context, h]"} W + b)\n\nW: ${(config.attention === "none" ? 1 : 2) * n.D} × ${n.D}`, "What was looked up and the decoder's own state become one vector."],
    output: () => answered(config, n),
  }[part]?.();
}
