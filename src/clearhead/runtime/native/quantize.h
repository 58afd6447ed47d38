// int8: rows of activations get one scale each when they are computed, columns of weights one when they are prepared.
//
// An int8 product is exact: sums are 32-bit integers, and one fused multiply-add turns a sum into
// scale(row) scale(column) sum + bias. VNNI multiplies unsigned by signed bytes, hence weights are stored plus 128 and
// 128 times the sum of the row is taken off. Without VNNI no product of bytes is free of saturation: the integers of
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

// The integers of a row.
ALWAYS_INLINE Quantized* quantized(const Activations& x, int row) {
    return (Quantized*)(x.integers + (size_t)row * x.stride);
}

// Rounds a row to integers from -127 to 127, where 127 stands for its largest absolute value.
ALWAYS_INLINE void quantize_row(Activations& x, int row) {
    const float* values = x.values + (size_t)row * x.stride;
    Quantized* integers = quantized(x, row);
    Lanes largest = all(0.0f), zero = all(0.0f);
    for (int i = 0; i < x.width; i += kLanes) {
        largest = max(largest, abs(load(values + i)));
        zero = fused(load(values + i), all(0.0f), zero);  // NaN if any value is infinite or NaN
    }
    float top = maximum(largest);
    if (!(top > 1e-30f)) top = 1;  // 127 / top is finite
    Lanes scale = all(127.0f / top);
    int32_t integer_sum = 0;
#if defined(__AVX512F__)
    __m512i sums = _mm512_setzero_si512();
    for (int i = 0; i < x.width; i += kLanes) {
        __m512i lanes = _mm512_cvtps_epi32(mul(load(values + i), scale));  // to the nearest, ties to even
        lanes = _mm512_max_epi32(lanes, _mm512_set1_epi32(-127));          // infinite and NaN become the least integer
#if defined(__AVX512VNNI__)
        _mm_storeu_si128((__m128i*)(integers + i), _mm512_cvtsepi32_epi8(lanes));
#else
        _mm256_storeu_si256((__m256i*)(integers + i), _mm512_cvtsepi32_epi16(lanes));
#endif
        sums = _mm512_add_epi32(sums, lanes);
    }
    integer_sum = _mm512_reduce_add_epi32(sums);
#else
    for (int i = 0; i < x.width; i += kLanes) {
        Lanes rounded = round(mul(load(values + i), scale));
        float lanes[kLanes];
        store(lanes, rounded);
        for (int j = 0; j < kLanes; j++) {
            int value = lanes[j] > -127 ? (lanes[j] < 127 ? (int)lanes[j] : 127) : -127;
            integers[i + j] = (Quantized)value;
            integer_sum += value;
        }
    }
#endif
    x.scales[row] = top / 127.0f + sum(zero);
    x.sums[row] = integer_sum;
}

static void quantize(Activations& x, int rows) {
    for (int row = 0; row < rows; row++) quantize_row(x, row);
}

}  // namespace clearhead::KERNELS_NAMESPACE
