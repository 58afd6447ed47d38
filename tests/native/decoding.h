// Searches and decoder states of the tests: helpers with the signatures of search.h and stepwise.h.
#pragma once

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "models.h"
#include "search.h"
#include "stepwise.h"

using Ids = std::vector<int32_t>;

inline std::vector<int> lengths_of(const std::vector<Ids>& sequences) {
    std::vector<int> lengths;
    for (const Ids& each : sequences) lengths.push_back((int)each.size());
    return lengths;
}

inline Ids joined(const std::vector<Ids>& sequences) {
    Ids ids;
    for (const Ids& each : sequences) ids.insert(ids.end(), each.begin(), each.end());
    return ids;
}

inline std::vector<Ids> random_sequences(const std::vector<int>& lengths, int vocabulary, uint64_t seed = 2) {
    std::vector<Ids> sequences;
    for (int length : lengths) sequences.push_back(random_ids(length, ++seed, vocabulary));
    return sequences;
}

inline bool has_encoder(const clearhead::Model& model) {
    return model.settings.architecture == clearhead::Architecture::encoder_decoder;
}

constexpr int kEnd = 3, kStart = 2, kLimit = 19;

inline clearhead::SearchSettings search_settings(int beam_size, int threads = 1) {
    clearhead::SearchSettings settings;
    settings.beam_size = settings.n_best = beam_size;
    settings.threads = threads;
    settings.end_id = kEnd;
    settings.start_id = kStart;
    settings.suppressed = {0, 2};
    for (int length = 0; length <= kLimit; length++) settings.penalties.push_back((float)(length + 5) / 6);
    return settings;
}

inline clearhead::SearchRequest request(const Ids& source, int limit = kLimit) {
    clearhead::SearchRequest asked{};
    asked.ids = source.data();
    asked.length = (int)source.size();
    asked.limit = limit;
    return asked;
}

inline std::vector<clearhead::SearchRequest> requests_of(const std::vector<Ids>& sources, int limit = kLimit) {
    std::vector<clearhead::SearchRequest> requests;
    for (const Ids& source : sources) requests.push_back(request(source, limit));
    return requests;
}

inline std::vector<clearhead::SearchResult> run_search(const clearhead::Model& model,
                                                       const clearhead::SearchSettings& settings,
                                                       const std::vector<clearhead::SearchRequest>& requests) {
    clearhead::WorkerPool pool;
    return clearhead::search(model, pool, settings, requests, [] { return false; });
}

inline bool is_same(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

inline bool is_same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Whether two results have the same hypotheses, bit for bit.
inline bool is_same(const clearhead::SearchResult& a, const clearhead::SearchResult& b) {
    if (a.cancelled != b.cancelled || a.hypotheses.size() != b.hypotheses.size()) return false;
    for (size_t i = 0; i < a.hypotheses.size(); i++) {
        const clearhead::Hypothesis &x = a.hypotheses[i], &y = b.hypotheses[i];
        if (x.tokens != y.tokens || x.reason != y.reason || !is_same(x.log_probs, y.log_probs)) return false;
        if (!is_same(x.score, y.score) || !is_same(x.total, y.total)) return false;
    }
    return true;
}

// Hypotheses that are decoded step by step.
class Decoder {
  public:
    // `sequences`: sources; without an encoder only their number counts.
    Decoder(const clearhead::Model& model, const std::vector<Ids>& sequences, int width) : model_(model) {
        std::shared_ptr<const clearhead::Sources> sources;
        if (has_encoder(model))
            sources = clearhead::encode_sources(model, worker_, joined(sequences).data(), lengths_of(sequences));
        state = clearhead::start_state(model, sources, (int)sequences.size(), width);
    }
    // Log-probabilities [row][output], or with `all_positions` [row][token][output], after count tokens per row.
    std::vector<float> step(const Ids& tokens, bool all_positions = false, int attention_layer = -1,
                            std::vector<float>* attention = nullptr) {
        const int count = (int)(tokens.size() / state->rows());
        std::vector<float> log_probs(state->rows() * (all_positions ? count : 1) * state->num_outputs);
        clearhead::step_state(model_, worker_, *state, tokens.data(), count, all_positions, log_probs.data(),
                              attention_layer, attention ? attention->data() : nullptr);
        return log_probs;
    }
    void reorder(const Ids& rows) { clearhead::reorder_state(*state, rows.data(), rows.size()); }
    void restrict(const std::vector<Ids>& lists) {
        clearhead::restrict_state(model_, *state, joined(lists).data(), lengths_of(lists));
    }

    std::unique_ptr<clearhead::DecoderState> state;

  private:
    const clearhead::Model& model_;
    clearhead::Worker worker_;
};

// Log-probabilities of the targets' tokens, one target after the other.
inline std::vector<float> score(const clearhead::Model& model, const std::vector<Ids>& sources,
                                const std::vector<Ids>& targets, int threads = 1) {
    clearhead::WorkerPool pool;
    clearhead::Execution execution{pool, threads, [] { return false; }};
    std::vector<float> log_probs(joined(targets).size());
    clearhead::score_targets(model, execution, joined(sources).data(), lengths_of(sources), joined(targets).data(),
                             lengths_of(targets), kStart, log_probs.data(), -1, nullptr);
    return log_probs;
}

inline std::vector<float> encode_texts(const clearhead::Model& model, const std::vector<Ids>& texts,
                                       clearhead::EncoderOutput kind, int threads = 1) {
    clearhead::WorkerPool pool;
    clearhead::Execution execution{pool, threads, [] { return false; }};
    std::vector<float> out(clearhead::encoder_output_size(model, kind, lengths_of(texts)));
    clearhead::encode_texts(model, execution, joined(texts).data(), lengths_of(texts), kind, out.data());
    return out;
}

inline std::vector<float> predict_masked(const clearhead::Model& model, const std::vector<Ids>& texts,
                                         const std::vector<int>& rows, int threads = 1) {
    clearhead::WorkerPool pool;
    clearhead::Execution execution{pool, threads, [] { return false; }};
    std::vector<float> out(rows.size() * model.settings.vocabulary);
    clearhead::predict_masked(model, execution, joined(texts).data(), lengths_of(texts), rows, out.data());
    return out;
}
