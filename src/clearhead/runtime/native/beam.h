// The hypotheses of one sentence during its search. Unfinished ones are stored as back pointers, one array of `width`
// choices per step, and as the slot of each ancestor in the KV cache; tokens are read back when a hypothesis finishes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "search.h"
#include "weights.h"

namespace clearhead {

struct Choice {  // a candidate of a sentence: hypothesis `parent` continued with `token`
    float rank;  // the total; in greedy search the log-probability of the token
    float total, log_prob;
    int parent, token;
};

inline bool is_before(const Choice& a, const Choice& b) {
    if (a.rank != b.rank) return a.rank > b.rank;
    return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
}

class Beam {
  public:
    Beam() = default;
    Beam(const Model& model, const SearchSettings& settings, const SearchRequest& search_request, int index);

    // Finishes hypothesis `last.parent` with `last.token`, which is the end token or reaches the length limit.
    void finish(const SearchSettings& settings, const Choice& last, bool is_end);
    // Finishes the unfinished hypotheses without a further token, because no token may follow.
    void finish_blocked(const SearchSettings& settings);
    // Returns whether the stopping rule holds if `best` is the best choice that continues.
    bool is_done(const SearchSettings& settings, const Choice& best) const;
    // Replaces the unfinished hypotheses by these choices.
    void keep(const std::vector<Choice>& choices);
    // Returns the best finished hypotheses; without scores they have no probabilities.
    std::vector<Hypothesis> take_finished(int n_best, bool has_scores);

    int request_index = 0;
    int prompt = 0;    // number of tokens before the output: the prompt, or the start token
    int length = 0;    // number of tokens generated so far
    int live = 1;      // number of unfinished hypotheses
    int capacity = 0;  // number of positions of an ancestor table
    const SearchRequest* request = nullptr;
    const Linear* output = nullptr;  // projection to the vocabulary or to the shortlist
    const Source* source = nullptr;
    std::vector<uint16_t> ancestors;  // [width][capacity]
    std::vector<float> totals;
    std::vector<int> last_tokens;
    std::vector<Hypothesis> finished;
    std::unique_ptr<SelectedOutputs> shortlist;

  private:
    Hypothesis backtrace(int w) const;

    int width_ = 0;
    std::vector<uint16_t> next_ancestors_;
    std::vector<Choice> history_;  // [length][width]: the choice that created each hypothesis
};

}  // namespace clearhead
