// Decoding step by step, for searches outside of the core, forced decoding, and the heads of encoders.
#pragma once

#include <memory>
#include <vector>

#include "model.h"
#include "search.h"

namespace clearhead {

// Encoded sources, shared by all states that start from them.
struct Sources {
    std::vector<Source> sources;
};

// Hypotheses of some sentences, one per row, all after the same number of tokens. Row r stores its next entry in slot
// r.
struct DecoderState {
    std::shared_ptr<const Sources> sources;  // null without an encoder
    int num_sentences = 0, position = 0;
    std::vector<int> sentences;                    // by row
    std::vector<std::vector<uint16_t>> ancestors;  // by row: the slot of the hypothesis at each position
    KVCache cache;
    std::vector<std::shared_ptr<SelectedOutputs>> outputs;  // by sentence, if only some tokens are allowed; else empty
    int num_outputs = 0;                                    // log-probabilities per row
    size_t rows() const { return sentences.size(); }
};

// Resources of a call: a pool of buffers and a number of threads. `is_interrupted` is called on the calling thread
// between batches.
struct Execution {
    WorkerPool& pool;
    int threads;
    std::function<bool()> is_interrupted;
};

std::shared_ptr<Sources> encode_sources(const Model& model, Worker& worker, const int32_t* ids,
                                        const std::vector<int>& lengths);
std::unique_ptr<DecoderState> start_state(const Model& model, std::shared_ptr<const Sources> sources, int sentences,
                                          int width);
// Appends `count` tokens to every row: tokens[row * count + i]. `log_probs` gets one block per row, after its last
// token, or with `all_positions` one per token. `attention`: see Model::decode.
void step_state(const Model& model, Worker& worker, DecoderState& state, const int32_t* tokens, int count,
                bool all_positions, float* log_probs, int attention_layer, float* attention);
// Replaces row i by row rows[i]; rows may be repeated and dropped.
void reorder_state(DecoderState& state, const int32_t* rows, size_t count);
// Restricts each sentence to its list of tokens, over which log-probabilities are then normalized. Rows with a shorter
// list than others are padded with -infinity.
void restrict_state(const Model& model, DecoderState& state, const int32_t* tokens, const std::vector<int>& counts);

// Computes the log-probability of each target token, given the source and the target tokens before it, or, without an
// encoder, given the source tokens up to the same index. `attention`: one block [heads][source length] per target
// token.
void score_targets(const Model& model, Execution& execution, const int32_t* ids, const std::vector<int>& lengths,
                   const int32_t* targets, const std::vector<int>& target_lengths, int start_id, float* log_probs,
                   int attention_layer, float* attention);

enum class EncoderOutput { states, mean, pooled, classes, tags };
// Returns the number of floats that encode_texts writes; it writes one row per token (states, tags) or per sequence.
size_t encoder_output_size(const Model& model, EncoderOutput kind, const std::vector<int>& lengths);
void encode_texts(const Model& model, Execution& execution, const int32_t* ids, const std::vector<int>& lengths,
                  EncoderOutput kind, float* out);
// Computes log-probabilities of the vocabulary at some rows (token indices, counted over all sequences).
void predict_masked(const Model& model, Execution& execution, const int32_t* ids, const std::vector<int>& lengths,
                    const std::vector<int>& rows, float* log_probs);

}  // namespace clearhead
