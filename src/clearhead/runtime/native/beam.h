// The hypotheses of one sentence during its search. Unfinished ones are back pointers, one array of `width` choices per
// step, and for the KV cache the slot of each ancestor; tokens are read back when a hypothesis is finished.
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
    Beam(const Model& model, const SearchSettings& settings, const SearchRequest& asked, int request);

    // Finishes hypothesis `last.parent` with that token, which is the end or the last one that the limit allows.
    void finish(const SearchSettings& settings, const Choice& last, bool is_end);
    // Finishes the unfinished hypotheses without a further token: nothing may follow.
    void finish_blocked(const SearchSettings& settings);
    // Whether the stopping rule holds if `best` is the best choice that continues.
    bool is_settled(const SearchSettings& settings, const Choice& best) const;
    // Continues with these choices.
    void keep(const std::vector<Choice>& choices);
    // Returns the best finished hypotheses; without scores they have no probabilities.
    std::vector<Hypothesis> take_finished(int n_best, bool has_scores);

    int request = 0, prompt = 0, length = 0;  // length: tokens generated so far
    int live = 1;                             // unfinished hypotheses
    int capacity = 0;                         // positions of an ancestor table
    const SearchRequest* asked = nullptr;
    const Linear* output = nullptr;  // of the vocabulary or the shortlist
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
    std::vector<Choice> history_;  // [length][width]: how each hypothesis came about
};

}  // namespace clearhead
