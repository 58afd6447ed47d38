#include "stepwise.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace clearhead {

constexpr int kRowsTogether = 256;  // tokens that are encoded or scored together
constexpr int kBlock = kVocabularyPanels * kPanel;

// Some sequences that are computed together.
struct Run {
    size_t first, last;  // sequences [first, last)
    size_t start;        // tokens before them
    int rows;            // tokens in them
};

// Cuts sequences into runs of at most kRowsTogether tokens; a longer sequence is a separate run.
static std::vector<Run> runs_of(const std::vector<int>& lengths) {
    std::vector<Run> runs;
    size_t start = 0;
    for (size_t first = 0, last; first < lengths.size(); first = last) {
        int rows = 0;
        for (last = first; last < lengths.size() && (last == first || rows + lengths[last] <= kRowsTogether); last++)
            rows += lengths[last];
        runs.push_back({first, last, start, rows});
        start += rows;
    }
    return runs;
}

// Calls work(run, worker) for all runs, on several threads.
template <typename Work>
static void for_each_run(Execution& execution, const std::vector<int>& lengths, Work work) {
    const std::vector<Run> runs = runs_of(lengths);
    std::atomic<size_t> next{0};
    std::atomic<bool> stop{false};
    run_threads(std::min<size_t>(execution.threads, runs.size()), stop, [&](bool is_caller) {
        BorrowedWorker worker(execution.pool);
        for (size_t i; !stop && (i = next++) < runs.size();) {
            if (is_caller && execution.is_interrupted()) throw Interrupted();
            work(runs[i], *worker);
        }
    });
}

static std::vector<int> part(const std::vector<int>& values, const Run& run) {
    return {values.begin() + run.first, values.begin() + run.last};
}

static std::vector<size_t> running_sums(const std::vector<int>& values) {
    std::vector<size_t> sums(values.size() + 1);
    for (size_t i = 0; i < values.size(); i++) sums[i + 1] = sums[i] + values[i];
    return sums;
}

static void check_lengths(const std::vector<int>& lengths, int limit) {
    for (int length : lengths)
        if (length < 1 || length > limit)
            throw std::invalid_argument("a sequence is empty or longer than max_positions");
}

static VocabularyScan empty_scan() {
    VocabularyScan scan{};
    scan.maximum = -3.0e38f;
    return scan;
}

// log_probs[row * output.outputs + column] of all rows.
static void log_softmax(const Model& model, Worker& worker, const Activations& states, int rows, const Linear& output,
                        float* log_probs) {
    const size_t stride = output.outputs;
    worker.work.logits.reserve((size_t)rows * kBlock);
    std::vector<VocabularyScan> scans(rows, empty_scan());
    for (int panel = 0; panel < output.panels; panel += kVocabularyPanels) {
        const int end = std::min(panel + kVocabularyPanels, output.panels), columns = (end - panel) * kPanel;
        const int real = std::min(columns, output.outputs - panel * kPanel);
        float* logits = worker.work.logits.data();
        model.kernels.linear(states, rows, output, panel, end, Epilogue::store, logits, kBlock);
        for (int row = 0; row < rows; row++, logits += kBlock) {
            model.kernels.scan(scans[row], logits, columns, 0, nullptr, 0);
            std::memcpy(log_probs + row * stride + panel * kPanel, logits, sizeof(float) * (size_t)real);
        }
    }
    for (int row = 0; row < rows; row++) {
        const float log_sum = model.kernels.log_sum(scans[row]);
        for (size_t i = 0; i < stride; i++) log_probs[row * stride + i] -= log_sum;
    }
}

// out[row] is the log-probability of token wanted[row] after that row.
static void log_probs_of(const Model& model, Worker& worker, const Activations& states, const std::vector<int>& wanted,
                         float* out) {
    const int count = (int)wanted.size();
    std::vector<VocabularyScan> scans(count, empty_scan());
    worker.work.logits.reserve((size_t)count * kBlock);
    for (int panel = 0; panel < model.output.panels; panel += kVocabularyPanels) {
        const int end = std::min(panel + kVocabularyPanels, model.output.panels), columns = (end - panel) * kPanel;
        float* logits = worker.work.logits.data();
        model.kernels.linear(states, count, model.output, panel, end, Epilogue::store, logits, kBlock);
        for (int row = 0; row < count; row++, logits += kBlock) {
            model.kernels.scan(scans[row], logits, columns, 0, nullptr, 0);
            const int column = wanted[row] - panel * kPanel;
            if (column >= 0 && column < columns) out[row] = logits[column];
        }
    }
    for (int row = 0; row < count; row++) out[row] -= model.kernels.log_sum(scans[row]);
}

std::shared_ptr<Sources> encode_sources(const Model& model, Worker& worker, const int32_t* ids,
                                        const std::vector<int>& lengths) {
    if (model.settings.architecture != Architecture::encoder_decoder)
        throw std::invalid_argument("this model has no encoder with a decoder");
    check_lengths(lengths, model.settings.max_positions);
    auto result = std::make_shared<Sources>();
    result->sources.resize(lengths.size());
    for (const Run& run : runs_of(lengths)) {
        const Activations& states = model.encode(worker.work, ids + run.start, part(lengths, run));
        int row = 0;
        for (size_t i = run.first; i < run.last; row += lengths[i++])
            model.attend_to(worker.work, states, row, lengths[i], result->sources[i]);
    }
    return result;
}

std::unique_ptr<DecoderState> start_state(const Model& model, std::shared_ptr<const Sources> sources, int sentences,
                                          int width) {
    if (model.settings.architecture == Architecture::encoder)
        throw std::invalid_argument("this model does not generate text");
    if (sources) sentences = (int)sources->sources.size();
    if (sentences < 1 || width < 1 || (int64_t)sentences * width > UINT16_MAX)
        throw std::invalid_argument("a state has 1 to 65,535 rows");
    auto state = std::make_unique<DecoderState>();
    state->sources = std::move(sources);
    state->num_sentences = sentences;
    state->num_outputs = model.output.outputs;
    for (int row = 0; row < sentences * width; row++) state->sentences.push_back(row / width);
    state->ancestors.resize(state->rows());
    state->cache = KVCache(model.settings.decoder_layers, sentences * width, model.entry_width());
    return state;
}

void step_state(const Model& model, Worker& worker, DecoderState& state, const int32_t* tokens, int count,
                bool all_positions, float* log_probs, int attention_layer, float* attention) {
    if (count < 1 || state.position + count > model.settings.max_positions)
        throw std::invalid_argument("a sequence is longer than max_positions");
    if (attention && (!state.sources || attention_layer < 0 || attention_layer >= model.settings.decoder_layers))
        throw std::invalid_argument("this layer has no cross-attention");
    model.check_ids(tokens, state.rows() * count, model.settings.vocabulary);
    std::vector<DecoderRow> rows;
    for (size_t r = 0; r < state.rows(); r++) {
        std::vector<uint16_t>& ancestors = state.ancestors[r];
        ancestors.resize((size_t)state.position + count, (uint16_t)r);
        const Source* source = state.sources ? &state.sources->sources[state.sentences[r]] : nullptr;
        for (int t = 0; t < count; t++)
            rows.push_back({tokens[r * count + t], state.position + t, (int)r, 0, ancestors.data(), source});
    }
    Activations states = model.decode(worker.work, rows, state.cache, attention_layer, attention);
    state.position += count;
    // Rows whose log-probabilities are wanted: all, or the last of each hypothesis.
    const int each = all_positions ? count : 1;
    if (state.outputs.empty() && each == count)
        return log_softmax(model, worker, states, (int)rows.size(), model.output, log_probs);
    for (size_t r = 0; r < state.rows(); r++, log_probs += (size_t)each * state.num_outputs) {
        const Activations some = from_row(states, (int)((r + 1) * count - each));
        if (state.outputs.empty()) {
            log_softmax(model, worker, some, each, model.output, log_probs);
            continue;
        }
        const Linear& output = state.outputs[state.sentences[r]]->linear;
        std::vector<float> allowed((size_t)each * output.outputs);
        log_softmax(model, worker, some, each, output, allowed.data());
        std::fill(log_probs, log_probs + (size_t)each * state.num_outputs, -INFINITY);
        for (int i = 0; i < each; i++)
            std::copy_n(allowed.data() + (size_t)i * output.outputs, output.outputs,
                        log_probs + (size_t)i * state.num_outputs);
    }
}

void repeat_state(DecoderState& state, int width) {
    if (width < 1 || state.rows() * width > UINT16_MAX) throw std::invalid_argument("a state has 1 to 65,535 rows");
    DecoderState wide;
    for (size_t r = 0; r < state.rows(); r++) {
        for (uint16_t& slot : state.ancestors[r]) slot = (uint16_t)(slot * width);
        wide.ancestors.insert(wide.ancestors.end(), width, state.ancestors[r]);
        wide.sentences.insert(wide.sentences.end(), width, state.sentences[r]);
    }
    state.cache = state.cache.widened(width, state.position);
    state.ancestors = std::move(wide.ancestors);
    state.sentences = std::move(wide.sentences);
}

void reorder_state(DecoderState& state, const int32_t* rows, size_t count) {
    if (count < 1 || count > (size_t)state.cache.slots()) throw std::invalid_argument("too few or too many rows");
    std::vector<std::vector<uint16_t>> ancestors;
    std::vector<int> sentences;
    for (size_t i = 0; i < count; i++) {
        if (rows[i] < 0 || (size_t)rows[i] >= state.rows()) throw std::invalid_argument("there is no such row");
        ancestors.push_back(state.ancestors[rows[i]]);
        sentences.push_back(state.sentences[rows[i]]);
    }
    state.ancestors = std::move(ancestors);
    state.sentences = std::move(sentences);
}

void restrict_state(const Model& model, DecoderState& state, const int32_t* tokens, const std::vector<int>& counts) {
    if (counts.size() != (size_t)state.num_sentences)
        throw std::invalid_argument("expected a list of tokens for each sentence");
    const std::vector<size_t> starts = running_sums(counts);
    model.check_ids(tokens, starts.back(), model.settings.vocabulary);
    std::vector<std::shared_ptr<SelectedOutputs>> outputs(counts.size());
    state.num_outputs = 0;
    for (size_t i = 0; i < counts.size(); i++) {
        if (counts[i] < 1) throw std::invalid_argument("at least one token must be allowed");
        outputs[i] = std::make_shared<SelectedOutputs>(model.output, tokens + starts[i], counts[i]);
        state.num_outputs = std::max(state.num_outputs, counts[i]);
    }
    state.outputs = std::move(outputs);
}

void score_targets(const Model& model, Execution& execution, const int32_t* ids, const std::vector<int>& lengths,
                   const int32_t* targets, const std::vector<int>& target_lengths, int start_id, float* log_probs,
                   int attention_layer, float* attention) {
    const bool has_encoder = model.settings.architecture == Architecture::encoder_decoder;
    check_lengths(target_lengths, model.settings.max_positions);
    if (has_encoder && lengths.size() != target_lengths.size()) throw std::invalid_argument("a target for each source");
    if (attention && (!has_encoder || attention_layer < 0 || attention_layer >= model.settings.decoder_layers))
        throw std::invalid_argument("this layer has no cross-attention");
    const std::vector<size_t> source_starts = running_sums(lengths);
    std::vector<size_t> attention_starts(target_lengths.size() + 1);
    if (attention)
        for (size_t i = 0; i < lengths.size(); i++)
            attention_starts[i + 1] =
                attention_starts[i] + (size_t)lengths[i] * target_lengths[i] * model.settings.heads;
    const std::vector<uint16_t> own_slot(model.settings.max_positions, 0);
    for_each_run(execution, target_lengths, [&](const Run& run, Worker& worker) {
        std::shared_ptr<Sources> sources;
        if (has_encoder) sources = encode_sources(model, worker, ids + source_starts[run.first], part(lengths, run));
        const int32_t* target = targets + run.start;
        model.check_ids(target, run.rows, model.settings.vocabulary);
        KVCache cache(model.settings.decoder_layers, (int)(run.last - run.first), model.entry_width());
        std::vector<DecoderRow> inputs;
        std::vector<int> wanted;
        for (size_t i = run.first; i < run.last; target += target_lengths[i++]) {
            const int slot = (int)(i - run.first);
            for (int t = has_encoder ? 0 : 1; t < target_lengths[i]; t++) {
                const int before = t ? target[t - 1] : start_id, position = has_encoder ? t : t - 1;
                inputs.push_back(
                    {before, position, slot, slot, own_slot.data(), sources ? &sources->sources[slot] : nullptr});
                wanted.push_back(target[t]);
            }
        }
        if (inputs.empty()) return;
        const Activations& states = model.decode(worker.work, inputs, cache, attention_layer,
                                                 attention ? attention + attention_starts[run.first] : nullptr);
        float* out = log_probs + run.start - (has_encoder ? 0 : run.first);
        log_probs_of(model, worker, states, wanted, out);
    });
}

size_t encoder_output_size(const Model& model, EncoderOutput kind, const std::vector<int>& lengths) {
    size_t tokens = 0;
    for (int length : lengths) tokens += length;
    const size_t width = model.settings.width, labels = model.settings.labels;
    switch (kind) {
        case EncoderOutput::states:
            return tokens * width;
        case EncoderOutput::tags:
            return tokens * labels;
        case EncoderOutput::classes:
            return lengths.size() * labels;
        default:
            return lengths.size() * width;
    }
}

// One vector for a sequence of states: the first, the last, or the mean, added in the order of the positions.
static void pool(const Activations& states, int first, int length, Pooling pooling, int width, float* out) {
    const float* from = states.values + (size_t)first * states.width;
    if (pooling == Pooling::last) from += (size_t)(length - 1) * states.width;
    std::memcpy(out, from, sizeof(float) * (size_t)width);
    if (pooling != Pooling::mean) return;
    for (int s = 1; s < length; s++)
        for (int i = 0; i < width; i++) out[i] += from[(size_t)s * states.width + i];
    for (int i = 0; i < width; i++) out[i] /= (float)length;
}

// out[row * layer.outputs] of a float32 layer on some vectors of `width` floats; `activation` may be null.
static void apply_head(const Model& model, const Linear& layer, const float* in, int rows, int width,
                       const Activation* activation, float* out) {
    Buffer<float> padded((size_t)rows * layer.inputs), product((size_t)rows * layer.panels * kPanel);
    for (int row = 0; row < rows; row++)
        std::memcpy(padded.data() + (size_t)row * layer.inputs, in + (size_t)row * width,
                    sizeof(float) * (size_t)width);
    Activations x;
    x.width = layer.inputs;
    x.values = padded.data();
    const int stride = layer.panels * kPanel;
    model.kernels.linear(x, rows, layer, 0, layer.panels, Epilogue::store, product.data(), stride);
    if (activation) model.kernels.activate(*activation, product.data(), product.size());
    for (int row = 0; row < rows; row++)
        std::memcpy(out + (size_t)row * layer.outputs, product.data() + (size_t)row * stride,
                    sizeof(float) * (size_t)layer.outputs);
}

void encode_texts(const Model& model, Execution& execution, const int32_t* ids, const std::vector<int>& lengths,
                  EncoderOutput kind, float* out) {
    const Settings& s = model.settings;
    if (s.architecture == Architecture::decoder) throw std::invalid_argument("this model has no encoder");
    const bool needs_labels = kind == EncoderOutput::classes || kind == EncoderOutput::tags;
    if (needs_labels && !s.has_classifier) throw std::invalid_argument("this model has no labels");
    check_lengths(lengths, s.max_positions);
    const bool is_per_token = kind == EncoderOutput::states || kind == EncoderOutput::tags;
    const size_t columns = needs_labels ? s.labels : s.width;
    for_each_run(execution, lengths, [&](const Run& run, Worker& worker) {
        const Activations& states = model.encode(worker.work, ids + run.start, part(lengths, run));
        const int count = is_per_token ? run.rows : (int)(run.last - run.first);
        std::vector<float> vectors((size_t)count * s.width);  // without padding
        if (is_per_token)
            for (int row = 0; row < run.rows; row++)
                std::memcpy(vectors.data() + (size_t)row * s.width, states.values + (size_t)row * states.width,
                            sizeof(float) * (size_t)s.width);
        else
            for (int i = 0, row = 0; i < count; row += lengths[run.first + i++])
                pool(states, row, lengths[run.first + i], kind == EncoderOutput::mean ? Pooling::mean : s.pooling,
                     s.width, vectors.data() + (size_t)i * s.width);
        if (s.has_pooler && (kind == EncoderOutput::pooled || kind == EncoderOutput::classes))
            apply_head(model, model.pooler, vectors.data(), count, s.width, &s.pooler_activation, vectors.data());
        float* to = out + (is_per_token ? run.start : run.first) * columns;
        if (needs_labels)
            apply_head(model, model.output, vectors.data(), count, s.width, nullptr, to);
        else
            std::memcpy(to, vectors.data(), sizeof(float) * vectors.size());
    });
}

void predict_masked(const Model& model, Execution& execution, const int32_t* ids, const std::vector<int>& lengths,
                    const std::vector<int>& rows, float* log_probs) {
    const Settings& s = model.settings;
    if (!s.has_masked_head) throw std::invalid_argument("this model does not predict masked tokens");
    check_lengths(lengths, s.max_positions);
    const size_t tokens = running_sums(lengths).back();
    for (size_t i = 0; i < rows.size(); i++)
        if (rows[i] < 0 || (size_t)rows[i] >= tokens || (i && rows[i] <= rows[i - 1]))
            throw std::invalid_argument("rows must ascend within the sequences");
    for_each_run(execution, lengths, [&](const Run& run, Worker& worker) {
        const size_t first = std::lower_bound(rows.begin(), rows.end(), (int)run.start) - rows.begin();
        const size_t last = std::lower_bound(rows.begin(), rows.end(), (int)run.start + run.rows) - rows.begin();
        const int count = (int)(last - first);
        if (!count) return;
        const Activations& states = model.encode(worker.work, ids + run.start, part(lengths, run));
        Activations& x = worker.work.x;  // free after encoding
        for (int i = 0; i < count; i++)
            std::memcpy(x.values + (size_t)i * x.width,
                        states.values + (size_t)(rows[first + i] - (int)run.start) * x.width,
                        sizeof(float) * (size_t)x.width);
        if (s.int8) model.kernels.quantize(x, count);
        Activations& hidden = worker.work.normed;
        model.kernels.linear(x, count, model.transform, 0, model.transform.panels, Epilogue::store, hidden.values,
                             hidden.width);
        model.kernels.activate(Activation::gelu, hidden.values, (size_t)count * hidden.width);
        model.kernels.normalize(model.transform_norm, hidden.values, count, hidden);
        log_softmax(model, worker, hidden, count, model.output, log_probs + first * s.vocabulary);
    });
}

}  // namespace clearhead
