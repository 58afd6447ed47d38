// One decoding step of a Transformer with random weights, from token ids to log-probabilities.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model.h"

namespace clearhead {

struct Shape {
    std::string name;
    int width, inner, heads, layers, vocabulary;
};

constexpr int kPositions = 10;     // positions that self-attention reads, including the row's
constexpr int kSourceLength = 14;  // positions that cross-attention reads

// Return a pre-norm model with uniformly distributed weights and tied embeddings. It has no encoder layers, because a
// step reads only their results.
std::unique_ptr<Model> random_model(const Shape& shape, bool int8, const Kernels& kernels);

// Decoding step of several sentences with `beam` hypotheses each, at the last of kPositions positions.
class DecodingStep {
  public:
    DecodingStep(const Model& model, int sentences, int beam);
    // Decode all rows and scan the vocabulary, like a step of the search. Each call uses different tokens.
    void run();
    // Return the sum of the log-probabilities of the best tokens of the last call.
    float best() const { return best_; }

  private:
    void decode(int position);
    void scan();

    const Model& model_;
    const int beam_, wanted_;  // wanted_: candidates per row, as in the search
    KVCache cache_;
    Workspace work_;
    std::vector<Source> sources_;
    std::vector<std::vector<uint16_t>> ancestors_;
    std::vector<DecoderRow> rows_;
    std::vector<VocabularyScan> scans_;
    std::vector<Candidate> candidates_;
    uint32_t token_ = 1;
    float best_ = 0;
};

}  // namespace clearhead
