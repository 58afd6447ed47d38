// Norms over the channels of one position (layer, RMS, and the Annotated Transformer's), and activation functions.
//
//   layer   gain (x - mean) / sqrt(variance + epsilon) + bias
//   rms     gain x / sqrt(mean of squares + epsilon)
//   sample  gain (x - mean) / (sample deviation + epsilon) + bias
#pragma once

#include "kernels.h"
#include "lanes.h"
#include "quantize.h"

namespace clearhead::KERNELS_NAMESPACE {

ALWAYS_INLINE void normalize_row(const Norm& norm, const float* x, int padded, float* y) {
    const int width = norm.width;
    float mean = 0;
    if (norm.kind != NormKind::rms) {
        Lanes total = all(0.0f);
        for (int i = 0; i < width; i += kLanes) total = add(total, load(x + i));  // padding is zero
        mean = sum(total) / (float)width;
    }
    const Lanes center = all(mean);
    Lanes squares = all(0.0f);
    for (int i = 0; i < width; i += kLanes) {
        Lanes d = first(sub(load(x + i), center), width - i, 0.0f);
        squares = fused(d, d, squares);
    }
    float total = sum(squares), factor;
    if (norm.kind == NormKind::sample)
        factor = 1.0f / (__builtin_sqrtf(total / (float)(width - 1)) + norm.epsilon);
    else
        factor = 1.0f / __builtin_sqrtf(total / (float)width + norm.epsilon);
    const Lanes scale = all(factor);
    for (int i = 0; i < padded; i += kLanes) {
        Lanes v = mul(sub(load(x + i), center), scale), gain = load(norm.gain + i);
        store(y + i, norm.bias ? fused(v, gain, load(norm.bias + i)) : mul(v, gain));
    }
}

static void normalize(const Norm& norm, const float* x, int rows, Activations& y) {
    for (int row = 0; row < rows; row++) {
        const float* from = x + (size_t)row * y.stride;
        float* to = y.values + (size_t)row * y.stride;
        if (norm.kind != NormKind::none)
            normalize_row(norm, from, y.width, to);
        else if (from != to)
            memcpy(to, from, sizeof(float) * (size_t)y.width);
        if (y.integers) quantize_row(y, row);
    }
}

ALWAYS_INLINE Lanes activated(Activation kind, Lanes x) {
    switch (kind) {
        case Activation::relu:
            return max(all(0.0f), x);
        case Activation::gelu:
            return mul(mul(all(0.5f), x), add(all(1.0f), erf(mul(x, all(0.70710678f)))));
        case Activation::gelu_tanh: {
            Lanes cubic = fused(mul(all(0.044715f), mul(x, x)), x, x);
            return mul(mul(all(0.5f), x), add(all(1.0f), tanh(mul(all(0.79788456f), cubic))));
        }
        case Activation::silu:
            return mul(x, sigmoid(x));
        case Activation::tanh:
            return tanh(x);
    }
    return x;
}

static void activate(Activation kind, float* x, size_t count) {
    for (size_t i = 0; i < count; i += kLanes) store(x + i, activated(kind, load(x + i)));
}

}  // namespace clearhead::KERNELS_NAMESPACE
