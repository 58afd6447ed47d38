// Attention: softmax(q k + bias) v for each head.
//
// `attend` serves encoders and cross-attention: the keys of a sentence are transposed once, so sixteen keys are
// compared with a query in the sixteen lanes of one chain over the head's width, and up to four queries share the
// loads. `attend_cached` serves the decoder's self-attention: keys and values stay where they were computed (reordering
// a beam copies nothing) and are found through one pointer per position. There the lanes run over the head's width.
#pragma once

#include "kernels.h"
#include "lanes.h"

namespace clearhead::KERNELS_NAMESPACE {

constexpr float kLowest = -3.0e38f;

ALWAYS_INLINE int whole_lanes(int count) { return (count + kLanes - 1) / kLanes * kLanes; }

// Converts scores to weights, in place. Scores beyond `count` in the last vector may be anything and become zero.
static void softmax(float* scores, int count) {
    const int end = whole_lanes(count);
    Lanes largest = all(kLowest);
    for (int i = 0; i < end; i += kLanes) largest = max(largest, first(load(scores + i), count - i, kLowest));
    const Lanes top = all(maximum(largest));
    Lanes total = all(0.0f);
    for (int i = 0; i < end; i += kLanes) {
        Lanes e = first(exp_of_nonpositive(sub(load(scores + i), top)), count - i, 0.0f);
        store(scores + i, e);
        total = add(total, e);
    }
    const Lanes factor = all(1.0f / sum(total));
    for (int i = 0; i < end; i += kLanes) store(scores + i, mul(load(scores + i), factor));
}

// Attention of Q queries and H heads at a time: four independent sums hide the latency of the multiply-add. V: number
// of vectors of a head's values; 0: `value_width` / 16, not known at compile time. `weights` points to those of the
// first query and head.
template <int H, int Q, int V>
static void attend_heads(const AttentionShape& shape, int head, const float* q, int q_stride, const float* keys,
                         int capacity, int length, const float* values, int value_stride, int offset, float* out,
                         int out_stride, float* weights, size_t weights_stride, float* scratch) {
    const int width = shape.key_width;
    for (int s = 0; s < length; s += kLanes) {
        Lanes score[H][Q];
        for (int h = 0; h < H; h++)
            for (int i = 0; i < Q; i++) score[h][i] = all(0.0f);
        for (int k = 0; k < width; k++)
            for (int h = 0; h < H; h++) {
                Lanes key = load(keys + (size_t)(h * width + k) * capacity + s);
                for (int i = 0; i < Q; i++)
                    score[h][i] = fused(all(q[(size_t)i * q_stride + h * width + k]), key, score[h][i]);
            }
        for (int h = 0; h < H; h++)
            for (int i = 0; i < Q; i++) store(scratch + (size_t)(h * Q + i) * capacity + s, score[h][i]);
    }
    for (int h = 0; h < H; h++)
        for (int i = 0; i < Q; i++) {
            float* scores = scratch + (size_t)(h * Q + i) * capacity;
            if (shape.bias) {
                const float* bias = shape.bias + (size_t)(head + h) * shape.bias_stride + offset - i;
                for (int s = 0; s < length; s++) scores[s] += bias[s];
            }
            softmax(scores, length);
            if (weights)
                memcpy(weights + i * weights_stride + (size_t)h * length, scores, sizeof(float) * (size_t)length);
        }
    constexpr int kStep = V ? V : 1;
    const int vectors = V ? V : shape.value_width / kLanes;
    for (int v = 0; v < vectors; v += kStep) {
        Lanes mixed[H][Q][kStep];
        for (int h = 0; h < H; h++)
            for (int i = 0; i < Q; i++)
                for (int c = 0; c < kStep; c++) mixed[h][i][c] = all(0.0f);
        for (int s = 0; s < length; s++)
            for (int h = 0; h < H; h++) {
                const float* row = values + (size_t)s * value_stride + h * shape.value_width + v * kLanes;
                Lanes value[kStep];
                for (int c = 0; c < kStep; c++) value[c] = load(row + c * kLanes);
                for (int i = 0; i < Q; i++) {
                    Lanes weight = all(scratch[(size_t)(h * Q + i) * capacity + s]);
                    for (int c = 0; c < kStep; c++) mixed[h][i][c] = fused(weight, value[c], mixed[h][i][c]);
                }
            }
        for (int h = 0; h < H; h++)
            for (int i = 0; i < Q; i++)
                for (int c = 0; c < kStep; c++)
                    store(out + (size_t)i * out_stride + h * shape.value_width + (v + c) * kLanes, mixed[h][i][c]);
    }
}

template <int V>
static void attend_all(const AttentionShape& shape, const float* q, int q_stride, int count, const float* keys,
                       int capacity, int length, const float* values, int value_stride, int first_offset, float* out,
                       int out_stride, float* weights, float* scratch) {
    const size_t weights_stride = (size_t)shape.heads * length;
    const int by_four = count / 4 * 4;  // queries in groups of four; the remaining queries, four heads at a time
    auto run = [&](auto attend_some, int head, int query) {
        attend_some(
            shape, head, q + (size_t)query * q_stride + head * shape.key_width, q_stride,
            keys + (size_t)head * shape.key_width * capacity, capacity, length, values + head * shape.value_width,
            value_stride, first_offset - query, out + (size_t)query * out_stride + head * shape.value_width, out_stride,
            weights ? weights + query * weights_stride + (size_t)head * length : nullptr, weights_stride, scratch);
    };
    for (int h = 0; h < shape.heads; h++)
        for (int i = 0; i < by_four; i += 4) run(attend_heads<1, 4, V>, h, i);
    for (int i = by_four; i < count; i++) {
        int h = 0;
        for (; h + 4 <= shape.heads; h += 4) run(attend_heads<4, 1, V>, h, i);
        for (; h < shape.heads; h++) run(attend_heads<1, 1, V>, h, i);
    }
}

static void attend(const AttentionShape& shape, const float* q, int q_stride, int count, const float* keys,
                   int capacity, int length, const float* values, int value_stride, int first_offset, float* out,
                   int out_stride, float* weights, float* scratch) {
    auto run = attend_all<0>;
    if (shape.value_width == 2 * kLanes) run = attend_all<2>;
    if (shape.value_width == 4 * kLanes) run = attend_all<4>;
    run(shape, q, q_stride, count, keys, capacity, length, values, value_stride, first_offset, out, out_stride, weights,
        scratch);
}

// Returns the product of one head's query and key as sixteen partial sums.
template <int K>
ALWAYS_INLINE Lanes products(const float* q, const float* key, int vectors) {
    Lanes p = mul(load(q), load(key));
    for (int c = 1; c < (K ? K : vectors); c++) p = fused(load(q + c * kLanes), load(key + c * kLanes), p);
    return p;
}

// Scores of all heads at all positions: scratch[head * stride + position].
template <int K>
ALWAYS_INLINE void cached_scores(const AttentionShape& shape, const float* q, const float* const* entries, int length,
                                 float* scratch, int stride) {
    const int width = shape.key_width, vectors = width / kLanes;
    int h = 0;
    for (; h + 4 <= shape.heads; h += 4)  // four heads and four positions at a time share the horizontal sums
        for (int s = 0; s < length; s += 4) {
            Quarter quarters[4];
            for (int j = 0; j < 4; j++) {
                const float* key = entries[s + j] + h * width;
                Lanes p[4];
                for (int i = 0; i < 4; i++) p[i] = products<K>(q + (h + i) * width, key + i * width, vectors);
                quarters[j] = quarter(p[0], p[1], p[2], p[3]);
            }
            finish(quarters, scratch + (size_t)h * stride + s, stride);
        }
    for (; h < shape.heads; h++)
        for (int s = 0; s < length; s++)
            scratch[(size_t)h * stride + s] = sum(products<K>(q + h * width, entries[s] + h * width, vectors));
}

// Computes the weighted sums of the values of H heads from head `h` on, V vectors at a time (0: one vector at a time).
template <int H, int V>
ALWAYS_INLINE void mix_heads(const AttentionShape& shape, int h, const float* const* entries, int length, float* out,
                             const float* scratch, int stride) {
    constexpr int kStep = V ? V : 1;
    const int width = shape.value_width, vectors = width / kLanes, keys = shape.heads * shape.key_width;
    for (int v = 0; v < vectors; v += kStep) {
        Lanes mixed[H][kStep];
        for (int i = 0; i < H; i++)
            for (int c = 0; c < kStep; c++) mixed[i][c] = all(0.0f);
        for (int s = 0; s < length; s++) {
            const float* value = entries[s] + keys + h * width + v * kLanes;
            for (int i = 0; i < H; i++) {
                Lanes weight = all(scratch[(size_t)(h + i) * stride + s]);
                for (int c = 0; c < kStep; c++)
                    mixed[i][c] = fused(weight, load(value + i * width + c * kLanes), mixed[i][c]);
            }
        }
        for (int i = 0; i < H; i++)
            for (int c = 0; c < kStep; c++) store(out + (h + i) * width + (v + c) * kLanes, mixed[i][c]);
    }
}

template <int H, int V>
ALWAYS_INLINE void cached_mixture(const AttentionShape& shape, const float* const* entries, int length, float* out,
                                  const float* scratch, int stride) {
    int h = 0;
    for (; h + H <= shape.heads; h += H) mix_heads<H, V>(shape, h, entries, length, out, scratch, stride);
    for (; h < shape.heads; h++) mix_heads<1, V>(shape, h, entries, length, out, scratch, stride);
}

static void attend_cached(const AttentionShape& shape, const float* q, const float* const* entries, int length,
                          float* out, float* scratch) {
    const int stride = whole_lanes(length);
    switch (shape.key_width / kLanes) {
        case 1:
            cached_scores<1>(shape, q, entries, length, scratch, stride);
            break;
        case 2:
            cached_scores<2>(shape, q, entries, length, scratch, stride);
            break;
        case 4:
            cached_scores<4>(shape, q, entries, length, scratch, stride);
            break;
        default:
            cached_scores<0>(shape, q, entries, length, scratch, stride);
    }
    for (int h = 0; h < shape.heads; h++) {
        float* scores = scratch + (size_t)h * stride;
        if (shape.bias) {
            const float* bias = shape.bias + (size_t)h * shape.bias_stride + length - 1;
            for (int s = 0; s < length; s++) scores[s] += bias[-s];
        }
        softmax(scores, length);
    }
    switch (shape.value_width / kLanes) {
        case 1:
            cached_mixture<4, 1>(shape, entries, length, out, scratch, stride);
            break;
        case 2:
            cached_mixture<4, 2>(shape, entries, length, out, scratch, stride);
            break;
        case 4:
            cached_mixture<2, 4>(shape, entries, length, out, scratch, stride);
            break;
        default:
            cached_mixture<1, 0>(shape, entries, length, out, scratch, stride);
    }
}

static void transpose(const float* x, int stride, int length, int columns, float* keys, int capacity) {
    for (int column = 0; column < columns; column += kLanes)
        for (int s = 0; s < length; s++) {
            const float* row = x + (size_t)s * stride + column;
            for (int i = 0; i < kLanes; i++) keys[(size_t)(column + i) * capacity + s] = row[i];
        }
}

}  // namespace clearhead::KERNELS_NAMESPACE
