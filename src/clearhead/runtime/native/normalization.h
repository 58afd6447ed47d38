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

// R rows in lockstep: each waits for its own sums, so several are computed at a time.
template <int R>
ALWAYS_INLINE void normalize_rows(const Norm& norm, const float* x, int stride, int padded, float* y) {
    const int width = norm.width;
    Lanes center[R], total[R], squares[R], scale[R];
    UNROLL for (int r = 0; r < R; r++) center[r] = total[r] = squares[r] = all(0.0f);
    if (norm.kind != NormKind::rms) {
        for (int i = 0; i < width; i += kLanes)  // padding is zero
            UNROLL for (int r = 0; r < R; r++) total[r] = add(total[r], load(x + (size_t)r * stride + i));
        UNROLL for (int r = 0; r < R; r++) center[r] = all(sum(total[r]) / (float)width);
    }
    for (int i = 0; i < width; i += kLanes) {
        UNROLL for (int r = 0; r < R; r++) {
            Lanes d = first(sub(load(x + (size_t)r * stride + i), center[r]), width - i, 0.0f);
            squares[r] = fused(d, d, squares[r]);
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        const float all_squares = sum(squares[r]);
        if (norm.kind == NormKind::sample)
            scale[r] = all(1.0f / (__builtin_sqrtf(all_squares / (float)(width - 1)) + norm.epsilon));
        else
            scale[r] = all(1.0f / __builtin_sqrtf(all_squares / (float)width + norm.epsilon));
    }
    for (int i = 0; i < padded; i += kLanes) {
        const Lanes gain = load(norm.gain + i);
        UNROLL for (int r = 0; r < R; r++) {
            Lanes v = mul(sub(load(x + (size_t)r * stride + i), center[r]), scale[r]);
            store(y + (size_t)r * stride + i, norm.bias ? fused(v, gain, load(norm.bias + i)) : mul(v, gain));
        }
    }
}

static void normalize(const Norm& norm, const float* x, int rows, Activations& y) {
    if (norm.kind == NormKind::none && x != y.values)
        for (int row = 0; row < rows; row++)
            memcpy(y.values + (size_t)row * y.stride, x + (size_t)row * y.stride, sizeof(float) * (size_t)y.width);
    if (norm.kind != NormKind::none) {
        int row = 0;
        for (; row + kTogether <= rows; row += kTogether) {
            const size_t start = (size_t)row * y.stride;
            normalize_rows<kTogether>(norm, x + start, y.stride, y.width, y.values + start);
        }
        for (; row < rows; row++) {
            const size_t start = (size_t)row * y.stride;
            normalize_rows<1>(norm, x + start, y.stride, y.width, y.values + start);
        }
    }
    if (y.integers) quantize(y, rows);
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
