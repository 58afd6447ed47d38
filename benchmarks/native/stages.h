// Time, multiply-adds and weights of each stage of a decoding step.
//
// A model calls its kernels through a table. The timed table calls the real kernels and adds the time of each call to
// its stage. A matrix product is recognized by the product before it. Two stages have no kernel: embedding is the time
// before the first call, and the cache (storing keys and values, finding the entries of a hypothesis) the time before
// each call of self-attention.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "kernels.h"

namespace clearhead {

enum Stage {
    kEmbed,
    kNorm,
    kQuantize,
    kProjection,
    kCache,
    kSelfAttention,
    kSelfOutput,
    kCrossQuery,
    kCrossAttention,
    kCrossOutput,
    kFeedForward,
    kVocabulary,
    kSoftmax,
    kStages
};

struct Cost {
    double ticks = 0;
    size_t multiply_adds = 0, bytes = 0;  // of matrix products and their weights
};

using Costs = std::array<Cost, kStages>;

// Not synchronized with surrounding instructions: up to a hundred of them may be attributed to the neighboring stage.
inline uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();  // a tenth of the time of a system clock
#else
    return (uint64_t)std::chrono::steady_clock::now().time_since_epoch().count();
#endif
}

double ticks_per_second();

const char* stage_name(int stage);

// Return a table whose calls are timed. Only one model at a time can be timed: kernels have no argument for a context.
// `vocabulary` is the layer that is recognized as the projection to the vocabulary.
Kernels timed_kernels(const Kernels& real, const Linear& vocabulary);

// Starts a step: all costs are zero afterwards.
void start_step();
// Return the costs since start_step().
const Costs& costs_of_step();

}  // namespace clearhead
