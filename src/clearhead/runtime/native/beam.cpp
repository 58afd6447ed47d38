#include "beam.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

namespace clearhead {

Beam::Beam(const Model& model, const SearchSettings& settings, const SearchRequest& search_request, int index)
    : request_index(index), request(&search_request), width_(settings.beam_size) {
    const bool has_encoder = model.settings.architecture == Architecture::encoder_decoder;
    prompt = has_encoder ? 1 : request->length;
    capacity = prompt + request->limit;
    ancestors.resize((size_t)width_ * capacity);
    next_ancestors_.resize((size_t)width_ * capacity);
    totals.assign(width_, 0.0f);
    last_tokens.assign(width_, has_encoder ? settings.start_id : request->ids[request->length - 1]);
    if (request->allowed)
        shortlist = std::make_unique<SelectedOutputs>(model.output, request->allowed, request->num_allowed);
    output = shortlist ? &shortlist->linear : &model.output;
}

void Beam::finish(const SearchSettings& settings, const Choice& last, bool is_end) {
    Hypothesis hypothesis = backtrace(last.parent);
    if (!is_end) hypothesis.tokens.push_back(last.token);
    hypothesis.log_probs.push_back(last.log_prob);
    hypothesis.total = last.total;
    hypothesis.score = last.total / settings.penalties[hypothesis.log_probs.size()];
    hypothesis.reason = is_end ? FinishReason::end : FinishReason::length;
    finished.push_back(std::move(hypothesis));
}

void Beam::finish_blocked(const SearchSettings& settings) {
    for (int w = 0; w < live; w++) {
        Hypothesis hypothesis = backtrace(w);
        hypothesis.total = totals[w];
        hypothesis.score = hypothesis.total / settings.penalties[std::max<size_t>(1, hypothesis.log_probs.size())];
        hypothesis.reason = FinishReason::blocked;
        finished.push_back(std::move(hypothesis));
    }
}

// Reads the tokens of a hypothesis, from the last back to the first.
Hypothesis Beam::backtrace(int w) const {
    Hypothesis hypothesis;
    hypothesis.tokens.resize(length);
    hypothesis.log_probs.resize(length);
    for (int i = length - 1; i >= 0; i--) {
        const Choice& choice = history_[(size_t)i * width_ + w];
        hypothesis.tokens[i] = choice.token;
        hypothesis.log_probs[i] = choice.log_prob;
        w = choice.parent;
    }
    return hypothesis;
}

bool Beam::is_done(const SearchSettings& settings, const Choice& best) const {
    if ((int)finished.size() < width_) return false;
    if (settings.stopping_rule == StoppingRule::beam_finished) return true;
    std::vector<float> scores;
    for (const Hypothesis& hypothesis : finished) scores.push_back(hypothesis.score);
    std::sort(scores.begin(), scores.end(), std::greater<float>());
    const bool is_now = settings.stopping_rule == StoppingRule::no_better_now;
    const float penalty = settings.penalties[is_now ? length + 1 : request->limit];
    return best.total / penalty <= scores[width_ - 1];
}

void Beam::keep(const std::vector<Choice>& choices) {
    const int position = prompt - 1 + length;
    history_.resize((size_t)(length + 1) * width_);
    for (int w = 0; w < (int)choices.size(); w++) {
        const Choice& choice = choices[w];
        uint16_t* to = next_ancestors_.data() + (size_t)w * capacity;
        std::memcpy(to, ancestors.data() + (size_t)choice.parent * capacity, sizeof(uint16_t) * (size_t)position);
        to[position] = (uint16_t)choice.parent;
        history_[(size_t)length * width_ + w] = choice;
        totals[w] = choice.total;
        last_tokens[w] = choice.token;
    }
    ancestors.swap(next_ancestors_);
    live = (int)choices.size();
    length++;
}

std::vector<Hypothesis> Beam::take_finished(int n_best, bool has_scores) {
    std::stable_sort(finished.begin(), finished.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    if ((int)finished.size() > n_best) finished.resize(n_best);
    if (!has_scores)
        for (Hypothesis& hypothesis : finished) {
            hypothesis.log_probs.clear();
            hypothesis.total = hypothesis.score = std::numeric_limits<float>::quiet_NaN();
        }
    return std::move(finished);
}

}  // namespace clearhead
