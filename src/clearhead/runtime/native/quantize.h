// int8: rows of activations get one scale each when they are computed, columns of weights one when they are prepared.
//
// An int8 product is exact: sums are 32-bit integers, and one fused multiply-add turns a sum into
// scale(row) scale(column) sum + bias. VNNI multiplies unsigned by signed bytes, hence weights are stored plus 128 and
// 128 times the sum of the row is subtracted. Without VNNI no product of bytes is free of saturation: the integers of
// activations are stored as 16 bits, and weights are widened to 16 bits when a tile loads them.
#pragma once

#include "kernels.h"
#include "lanes.h"

namespace clearhead::KERNELS_NAMESPACE {

#if defined(__AVX512VNNI__)
typedef int8_t Quantized;  // an element of a row of activations
typedef __m512i Sums;      // sixteen columns
typedef __m512i Weights;   // of sixteen columns, for four inputs each
typedef __m512i Inputs;    // four inputs, repeated
ALWAYS_INLINE Sums all_sums(int32_t x) { return _mm512_set1_epi32(x); }
ALWAYS_INLINE Weights load_weights(const uint8_t* p) { return _mm512_loadu_si512(p); }
ALWAYS_INLINE Inputs load_inputs(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}
ALWAYS_INLINE void multiply_add(Sums& sums, Weights w, Inputs x) {
    // GCC 12 spills registers around the intrinsic; as inline assembly the loop is twice as fast.
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(w), "v"(x));
}
ALWAYS_INLINE Lanes as_floats(Sums sums) { return _mm512_cvtepi32_ps(sums); }
#elif defined(__AVX512F__)
typedef int16_t Quantized;
struct Sums {
    __m512i pairs[2];  // two partial sums for each of eight columns
};
struct Weights {
    __m512i wide[2];  // as int16
};
typedef __m512i Inputs;
ALWAYS_INLINE Sums all_sums(int32_t x) {
    __m512i even = _mm512_maskz_set1_epi32(0x5555, x);
    return {{even, even}};
}
ALWAYS_INLINE Weights load_weights(const uint8_t* p) {
    return {{_mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)p)),
             _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)(p + 32)))}};
}
ALWAYS_INLINE Inputs load_inputs(const int16_t* p) {
    int64_t four;
    memcpy(&four, p, 8);
    return _mm512_set1_epi64(four);
}
ALWAYS_INLINE void multiply_add(Sums& sums, const Weights& w, Inputs x) {
    for (int i = 0; i < 2; i++) sums.pairs[i] = _mm512_add_epi32(sums.pairs[i], _mm512_madd_epi16(w.wide[i], x));
}
ALWAYS_INLINE Lanes as_floats(const Sums& sums) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_permutex2var_epi32(sums.pairs[0], even, sums.pairs[1]),
                                               _mm512_permutex2var_epi32(sums.pairs[0], odd, sums.pairs[1])));
}
#elif defined(__AVX2__)
typedef int16_t Quantized;
struct Sums {
    __m256i pairs[4];  // two partial sums for each of four columns
};
struct Weights {
    __m256i wide[4];  // as int16
};
typedef __m256i Inputs;
ALWAYS_INLINE Sums all_sums(int32_t x) {
    __m256i even = _mm256_set_epi32(0, x, 0, x, 0, x, 0, x);
    return {{even, even, even, even}};
}
ALWAYS_INLINE Weights load_weights(const uint8_t* p) {
    Weights w;
    for (int i = 0; i < 4; i++) w.wide[i] = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)(p + 16 * i)));
    return w;
}
ALWAYS_INLINE Inputs load_inputs(const int16_t* p) {
    int64_t four;
    memcpy(&four, p, 8);
    return _mm256_set1_epi64x(four);
}
ALWAYS_INLINE void multiply_add(Sums& sums, const Weights& w, Inputs x) {
    for (int i = 0; i < 4; i++) sums.pairs[i] = _mm256_add_epi32(sums.pairs[i], _mm256_madd_epi16(w.wide[i], x));
}
ALWAYS_INLINE Lanes as_floats(const Sums& sums) {
    __m256i low = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums.pairs[0], sums.pairs[1]), 0xD8);
    __m256i high = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums.pairs[2], sums.pairs[3]), 0xD8);
    return {_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)};
}
#else
typedef int16_t Quantized;
struct Sums {
    int32_t column[kLanes];
};
typedef const uint8_t* Weights;
typedef const int16_t* Inputs;
ALWAYS_INLINE Sums all_sums(int32_t x) {
    Sums sums;
    EACH_LANE sums.column[i] = x;
    return sums;
}
ALWAYS_INLINE Weights load_weights(const uint8_t* p) { return p; }
ALWAYS_INLINE Inputs load_inputs(const int16_t* p) { return p; }
ALWAYS_INLINE void multiply_add(Sums& sums, Weights w, Inputs x) {
    EACH_LANE {
        const uint8_t* four = w + 4 * i;
        sums.column[i] += (int)four[0] * x[0] + (int)four[1] * x[1] + (int)four[2] * x[2] + (int)four[3] * x[3];
    }
}
ALWAYS_INLINE Lanes as_floats(const Sums& sums) {
    Lanes v;
    EACH_LANE v.lane[i] = (float)sums.column[i];
    return v;
}
#endif

// Rows whose reductions are computed at a time: one waits for the others' latencies.
#if defined(__AVX512F__)
constexpr int kTogether = 4;
#else
constexpr int kTogether = 2;
#endif

// The integers of a row.
ALWAYS_INLINE Quantized* quantized(const Activations& x, int row) {
    return (Quantized*)(x.integers + (size_t)row * x.stride);
}

// Rounds a row to integers and returns their sum.
ALWAYS_INLINE int32_t round_row(const float* values, int width, Lanes scale, Quantized* integers) {
#if defined(__AVX512F__)
    __m512i sums = _mm512_setzero_si512();
    for (int i = 0; i < width; i += kLanes) {
        __m512i lanes = _mm512_cvtps_epi32(mul(load(values + i), scale));  // to the nearest, ties to even
        lanes = _mm512_max_epi32(lanes, _mm512_set1_epi32(-127));          // infinite and NaN become the least integer
#if defined(__AVX512VNNI__)
        _mm_storeu_si128((__m128i*)(integers + i), _mm512_cvtsepi32_epi8(lanes));
#else
        _mm256_storeu_si256((__m256i*)(integers + i), _mm512_cvtsepi32_epi16(lanes));
#endif
        sums = _mm512_add_epi32(sums, lanes);
    }
    return _mm512_reduce_add_epi32(sums);
#else
    int32_t total = 0;
    for (int i = 0; i < width; i += kLanes) {
        float lanes[kLanes];
        store(lanes, round(mul(load(values + i), scale)));
        for (int j = 0; j < kLanes; j++) {
            int value = lanes[j] > -127 ? (lanes[j] < 127 ? (int)lanes[j] : 127) : -127;
            integers[i + j] = (Quantized)value;
            total += value;
        }
    }
    return total;
#endif
}

// Rounds R rows in lockstep to integers from -127 to 127, where 127 represents the largest absolute value of the row.
template <int R>
ALWAYS_INLINE void quantize_rows(Activations& x, int row) {
    const float* values = x.values + (size_t)row * x.stride;
    Lanes largest[R], zero[R];
    UNROLL for (int r = 0; r < R; r++) largest[r] = zero[r] = all(0.0f);
    for (int i = 0; i < x.width; i += kLanes) {
        UNROLL for (int r = 0; r < R; r++) {
            const Lanes v = load(values + (size_t)r * x.stride + i);
            largest[r] = max(largest[r], abs(v));
            zero[r] = fused(v, all(0.0f), zero[r]);  // NaN if any value is infinite or NaN
        }
    }
    float top[R];
    UNROLL for (int r = 0; r < R; r++) {
        top[r] = maximum(largest[r]);
        if (!(top[r] > 1e-30f)) top[r] = 1;  // 127 / top is finite
        x.scales[row + r] = top[r] / 127.0f + sum(zero[r]);
    }
    UNROLL for (int r = 0; r < R; r++) x.sums[row + r] =
        round_row(values + (size_t)r * x.stride, x.width, all(127.0f / top[r]), quantized(x, row + r));
}

static void quantize(Activations& x, int rows) {
    int row = 0;
    for (; row + kTogether <= rows; row += kTogether) quantize_rows<kTogether>(x, row);
    for (; row < rows; row++) quantize_rows<1>(x, row);
}

}  // namespace clearhead::KERNELS_NAMESPACE
