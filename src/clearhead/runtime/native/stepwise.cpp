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
    run_threads(std::min<size_t>(execution.threads, runs.size()), stop, execution.is_interrupted, [&](bool is_caller) {
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

// Returns the logarithm of the sum of exponentials of each row's logits. Calls take(row, column, logits, count) for
// each block of logits while it is in the cache; `column` is the first of its `count` columns.
template <typename Take>
static std::vector<float> log_sums(const Model& model, Worker& worker, const Activations& states, int rows,
                                   const Linear& output, Take take) {
    VocabularyScan empty{};
    empty.maximum = -3.0e38f;
    std::vector<VocabularyScan> scans(rows, empty);
    worker.work.logits.reserve((size_t)rows * kBlock);
    for (int panel = 0; panel < output.panels; panel += kVocabularyPanels) {
        const int end = std::min(panel + kVocabularyPanels, output.panels), column = panel * kPanel;
        const int padded = (end - panel) * kPanel, count = std::min(padded, output.outputs - column);
        float* logits = worker.work.logits.data();
        model.kernels.linear(states, rows, output, panel, end, Epilogue::store, logits, kBlock);
        for (int row = 0; row < rows; row++, logits += kBlock) {
            model.kernels.scan(scans[row], logits, padded, 0, nullptr, 0);
            take(row, column, logits, count);
        }
    }
    std::vector<float> sums(rows);
    for (int row = 0; row < rows; row++) sums[row] = model.kernels.log_sum(scans[row]);
    return sums;
}

// Writes the log-probabilities of all rows to log_probs[row * stride + column].
static void log_softmax(const Model& model, Worker& worker, const Activations& states, int rows, const Linear& output,
                        float* log_probs, size_t stride) {
    auto copy = [&](int row, int column, const float* logits, int count) {
        std::copy_n(logits, count, log_probs + row * stride + column);
    };
    const std::vector<float> sums = log_sums(model, worker, states, rows, output, copy);
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < output.outputs; i++) log_probs[row * stride + i] -= sums[row];
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
    if (count < 1 || count > model.settings.max_positions - state.position)
        throw std::invalid_argument("a sequence is longer than max_positions");
    if (attention && (!state.sources || attention_layer < 0 || attention_layer >= model.settings.decoder_layers))
        throw std::invalid_argument("this layer has no cross-attention");
    std::vector<DecoderRow> rows;
    for (size_t r = 0; r < state.rows(); r++) {
        std::vector<uint16_t>& ancestors = state.ancestors[r];
        ancestors.resize(state.position);  // a step that failed may have left entries behind
        ancestors.resize((size_t)state.position + count, (uint16_t)r);
        const Source* source = state.sources ? &state.sources->sources[state.sentences[r]] : nullptr;
        for (int t = 0; t < count; t++)
            rows.push_back({tokens[r * count + t], state.position + t, (int)r, 0, ancestors.data(), source});
    }
    Activations states = model.decode(worker.work, rows, state.cache, attention_layer, attention);
    // Number of rows per hypothesis whose log-probabilities are returned: all, or the last one.
    const int each = all_positions ? count : 1;
    const size_t columns = state.num_outputs;
    const bool is_at_once = state.outputs.empty() && each == count;
    if (is_at_once) log_softmax(model, worker, states, (int)rows.size(), model.output, log_probs, columns);
    for (size_t r = 0; !is_at_once && r < state.rows(); r++, log_probs += each * columns) {
        const Linear& output = state.outputs.empty() ? model.output : state.outputs[state.sentences[r]]->linear;
        std::fill_n(log_probs, each * columns,
                    -INFINITY);  // the columns that only longer shortlists of other sentences have
        log_softmax(model, worker, from_row(states, (int)((r + 1) * count - each)), each, output, log_probs, columns);
    }
    state.position += count;  // at the end: a step that throws has appended nothing
}

void reorder_state(DecoderState& state, const int32_t* rows, size_t count) {
    if (count < 1 || count > UINT16_MAX) throw std::invalid_argument("a state has 1 to 65,535 rows");
    std::vector<std::vector<uint16_t>> ancestors;
    std::vector<int> sentences;
    for (size_t i = 0; i < count; i++) {
        if (rows[i] < 0 || (size_t)rows[i] >= state.rows())
            throw std::invalid_argument("there is no such row in the state");
        ancestors.push_back(state.ancestors[rows[i]]);
        sentences.push_back(state.sentences[rows[i]]);
    }
    state.cache.widen((int)count, state.position);
    state.ancestors = std::move(ancestors);
    state.sentences = std::move(sentences);
}

void restrict_state(const Model& model, DecoderState& state, const int32_t* tokens, const std::vector<int>& counts) {
    if (counts.size() != (size_t)state.num_sentences)
        throw std::invalid_argument("expected a list of tokens for each sentence");
    const std::vector<size_t> starts = running_sums(counts);
    model.check_ids(tokens, starts.back(), model.settings.vocabulary);
    std::vector<std::shared_ptr<SelectedOutputs>> outputs(counts.size());
    int num_outputs = 0;
    for (size_t i = 0; i < counts.size(); i++) {
        if (counts[i] < 1) throw std::invalid_argument("at least one token must be allowed");
        outputs[i] = std::make_shared<SelectedOutputs>(model.output, tokens + starts[i], counts[i]);
        num_outputs = std::max(num_outputs, counts[i]);
    }
    state.outputs = std::move(outputs);
    state.num_outputs = num_outputs;
}

void score_targets(const Model& model, Execution& execution, const int32_t* ids, const std::vector<int>& lengths,
                   const int32_t* targets, const std::vector<int>& target_lengths, int start_id, float* log_probs,
                   int attention_layer, float* attention) {
    const bool has_encoder = model.settings.architecture == Architecture::encoder_decoder;
    if (model.settings.architecture == Architecture::encoder)
        throw std::invalid_argument("this model does not generate text");
    if (start_id < 0 || start_id >= model.settings.vocabulary) throw std::invalid_argument("unknown start id");
    check_lengths(target_lengths, model.settings.max_positions);
    if (has_encoder ? lengths.size() != target_lengths.size() : lengths != target_lengths)
        throw std::invalid_argument(has_encoder ? "expected a target for each source"
                                                : "expected a target token for each source token");
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
        const int32_t *source = ids + source_starts[run.first], *target = targets + run.start;
        if (has_encoder) sources = encode_sources(model, worker, source, part(lengths, run));
        model.check_ids(target, run.rows, model.settings.vocabulary);
        KVCache cache(model.settings.decoder_layers, (int)(run.last - run.first), model.entry_width());
        std::vector<DecoderRow> inputs;
        int row = 0;
        for (size_t i = run.first; i < run.last; i++) {
            const int slot = (int)(i - run.first);
            for (int t = 0; t < target_lengths[i]; t++, row++) {
                const int token = !has_encoder ? source[row] : t ? target[row - 1] : start_id;
                inputs.push_back({token, t, slot, slot, own_slot.data(), sources ? &sources->sources[slot] : nullptr});
            }
        }
        const Activations& states = model.decode(worker.work, inputs, cache, attention_layer,
                                                 attention ? attention + attention_starts[run.first] : nullptr);
        float* out = log_probs + run.start;
        auto pick = [&](int row, int column, const float* logits, int size) {
            const int index = target[row] - column;
            if (index >= 0 && index < size) out[row] = logits[index];
        };
        const std::vector<float> sums = log_sums(model, worker, states, run.rows, model.output, pick);
        for (int i = 0; i < run.rows; i++) out[i] -= sums[i];
    });
}

static bool is_per_token(EncoderOutput kind) { return kind == EncoderOutput::states || kind == EncoderOutput::tags; }
static bool needs_labels(EncoderOutput kind) { return kind == EncoderOutput::classes || kind == EncoderOutput::tags; }

size_t encoder_output_size(const Model& model, EncoderOutput kind, const std::vector<int>& lengths) {
    const size_t rows = is_per_token(kind) ? running_sums(lengths).back() : lengths.size();
    return rows * (needs_labels(kind) ? model.settings.labels : model.settings.width);
}

// Computes one vector per sequence: the first state, the last, or the mean, summed in the order of the positions.
static void pool(const Activations& states, int length, Pooling pooling, float* out) {
    const float* from = states.values + (pooling == Pooling::last ? (size_t)(length - 1) * states.stride : 0);
    std::copy_n(from, states.width, out);
    if (pooling != Pooling::mean) return;
    for (int s = 1; s < length; s++)
        for (int i = 0; i < states.width; i++) out[i] += from[(size_t)s * states.stride + i];
    for (int i = 0; i < states.width; i++) out[i] /= (float)length;
}

void encode_texts(const Model& model, Execution& execution, const int32_t* ids, const std::vector<int>& lengths,
                  EncoderOutput kind, float* out) {
    const Settings& s = model.settings;
    if (s.architecture == Architecture::decoder) throw std::invalid_argument("this model has no encoder");
    if (needs_labels(kind) && !s.has_classifier) throw std::invalid_argument("this model has no labels");
    check_lengths(lengths, s.max_positions);
    const bool needs_pooler = s.has_pooler && (kind == EncoderOutput::pooled || kind == EncoderOutput::classes);
    const size_t columns = needs_labels(kind) ? s.labels : s.width;
    for_each_run(execution, lengths, [&](const Run& run, Worker& worker) {
        Workspace& work = worker.work;
        Activations vectors = model.encode(work, ids + run.start, part(lengths, run));
        const int count = is_per_token(kind) ? run.rows : (int)(run.last - run.first);
        if (!is_per_token(kind)) {
            Activations states = vectors;
            vectors = work.x;  // free after encoding
            for (int i = 0; i < count; i++) {
                const int length = lengths[run.first + i];
                pool(states, length, kind == EncoderOutput::mean ? Pooling::mean : s.pooling,
                     from_row(vectors, i).values);
                states = from_row(states, length);
            }
        }
        auto apply = [&](const Linear& layer, Activations to) {
            model.kernels.linear(vectors, count, layer, 0, layer.panels, Epilogue::store, to.values, to.stride);
            vectors = to;
        };
        if (needs_pooler) {
            apply(model.pooler, work.normed);
            model.kernels.activate(s.pooler_activation, vectors.values, (size_t)count * vectors.stride);
        }
        Buffer<float> logits;
        if (needs_labels(kind)) {
            const int width = model.output.panels * kPanel;
            logits.reserve((size_t)count * width);
            apply(model.output, {width, width, logits.data(), nullptr, nullptr, nullptr});
        }
        float* to = out + (is_per_token(kind) ? run.start : run.first) * columns;
        for (int row = 0; row < count; row++, to += columns) std::copy_n(from_row(vectors, row).values, columns, to);
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
            std::copy_n(from_row(states, rows[first + i] - (int)run.start).values, x.width, from_row(x, i).values);
        if (s.int8) model.kernels.quantize(x, count);
        Activations& hidden = worker.work.normed;
        model.kernels.linear(x, count, model.transform, 0, model.transform.panels, Epilogue::store, hidden.values,
                             hidden.stride);
        model.kernels.activate(Activation::gelu, hidden.values, (size_t)count * hidden.stride);
        model.kernels.normalize(model.transform_norm, hidden.values, count, hidden);
        log_softmax(model, worker, hidden, count, model.output, log_probs + first * s.vocabulary, s.vocabulary);
    });
}

}  // namespace clearhead
