// The softmax over the vocabulary and the best tokens, block by block while the logits are in the cache.
//
// Blocks are fixed: the sum of exponentials is rescaled only when a block has a new maximum, so its bits depend on the
// row alone. Candidates are kept sorted by logit; a whole vector of logits is skipped if none of them is high enough.
#pragma once

#include "kernels.h"
#include "lanes.h"

namespace clearhead::KERNELS_NAMESPACE {

ALWAYS_INLINE void insert(VocabularyScan& scan, float logit, int token) {
    int slot = scan.num_candidates < scan.max_candidates ? scan.num_candidates++ : scan.max_candidates - 1;
    for (; slot > 0 && scan.best[slot - 1].logit < logit; slot--) scan.best[slot] = scan.best[slot - 1];
    scan.best[slot] = {logit, token};
}

static void scan(VocabularyScan& scan, float* logits, int count, int first, const int* banned, int num_banned) {
    Lanes largest = load(logits);
    for (int i = kLanes; i < count; i += kLanes) largest = max(largest, load(logits + i));
    float top = maximum(largest);
    Lanes total = load(scan.lanes);
    if (top > scan.maximum) {
        if (scan.is_normalized) total = mul(total, exp_of_nonpositive(all(scan.maximum - top)));
        scan.maximum = top;
    }
    if (scan.is_normalized) {
        const Lanes maximum_lanes = all(scan.maximum);
        for (int i = 0; i < count; i += kLanes)
            total = add(total, exp_of_nonpositive(sub(load(logits + i), maximum_lanes)));
    } else {
        for (int i = 0; i < count; i += kLanes) total = fused(load(logits + i), all(0.0f), total);
    }
    store(scan.lanes, total);
    for (int i = 0; i < num_banned; i++) logits[banned[i]] = -__builtin_inff();
    if (!scan.max_candidates) return;
    float lowest =
        scan.num_candidates == scan.max_candidates ? scan.best[scan.max_candidates - 1].logit : -__builtin_inff();
    if (!(top > lowest)) return;
    for (int i = 0; i < count; i += kLanes) {
        unsigned higher = greater(load(logits + i), all(lowest));
        while (higher) {
            int lane = __builtin_ctz(higher);
            higher &= higher - 1;
            if (!(logits[i + lane] > lowest)) continue;
            insert(scan, logits[i + lane], first + i + lane);
            if (scan.num_candidates == scan.max_candidates) lowest = scan.best[scan.max_candidates - 1].logit;
        }
    }
}

static float log_sum(const VocabularyScan& scan) { return scan.maximum + log_of_positive(sum(load(scan.lanes))); }

}  // namespace clearhead::KERNELS_NAMESPACE
