// Vectors of sixteen floats with the same meaning for every instruction set.
//
// AVX-512 holds the sixteen lanes in one register, AVX2 in two, the generic version in an array. Every operation works
// lane by lane, fused multiply-adds are explicit, and horizontal reductions always halve 16 lanes to 8, 4, 2 and 1.
// So a result has the same bits whatever the register width is. This file is the only one with intrinsics, apart from
// the integer products in quantize.h.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

namespace clearhead::KERNELS_NAMESPACE {

constexpr int kLanes = 16;

// One rounding where the target has fused multiply-add, two where it does not (x86 without FMA).
ALWAYS_INLINE float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

#if defined(__AVX512F__)

typedef __m512 Lanes;
ALWAYS_INLINE Lanes load(const float* p) { return _mm512_loadu_ps(p); }
ALWAYS_INLINE void store(float* p, Lanes v) { _mm512_storeu_ps(p, v); }
ALWAYS_INLINE Lanes all(float x) { return _mm512_set1_ps(x); }
ALWAYS_INLINE Lanes fused(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
ALWAYS_INLINE Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
ALWAYS_INLINE Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
ALWAYS_INLINE Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
ALWAYS_INLINE Lanes div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
ALWAYS_INLINE Lanes max(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }  // b if either is NaN
ALWAYS_INLINE Lanes round(Lanes a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ALWAYS_INLINE Lanes abs(Lanes a) { return _mm512_abs_ps(a); }
ALWAYS_INLINE Lanes power_of_two(Lanes n) {  // 2^(i - 127), where i are the low bits of n
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(n), 23));
}
ALWAYS_INLINE unsigned greater(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
ALWAYS_INLINE Lanes if_negative(Lanes x, Lanes a, Lanes b) {  // lanes of a where x < 0, else of b
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ), b, a);
}
ALWAYS_INLINE Lanes first(Lanes a, int count, float rest) {  // the first `count` lanes of a, the others `rest`
    if (count >= kLanes) return a;
    return _mm512_mask_blend_ps((__mmask16)((1u << (count < 0 ? 0 : count)) - 1), all(rest), a);
}
ALWAYS_INLINE __m256 halve_sum(Lanes v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}
ALWAYS_INLINE __m256 halve_max(Lanes v) {
    return _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

// Sums over the lanes of four vectors at four steps; quarter() takes the four vectors of one step down to four lanes
// each, finish() completes four steps: out[i * stride + step] is the sum of vector i.
struct Quarter {
    __m512 lanes;
};
ALWAYS_INLINE Quarter quarter(Lanes a, Lanes b, Lanes c, Lanes d) {
    Lanes ab = add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    Lanes cd = add(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
    return {add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD))};
}
ALWAYS_INLINE void finish(const Quarter* q, float* out, int stride) {
    Lanes p01 = add(_mm512_unpacklo_ps(q[0].lanes, q[1].lanes), _mm512_unpackhi_ps(q[0].lanes, q[1].lanes));
    Lanes p23 = add(_mm512_unpacklo_ps(q[2].lanes, q[3].lanes), _mm512_unpackhi_ps(q[2].lanes, q[3].lanes));
    Lanes sums = add(_mm512_shuffle_ps(p01, p23, 0x44), _mm512_shuffle_ps(p01, p23, 0xEE));
    _mm_storeu_ps(out, _mm512_castps512_ps128(sums));
    _mm_storeu_ps(out + stride, _mm512_extractf32x4_ps(sums, 1));
    _mm_storeu_ps(out + 2 * stride, _mm512_extractf32x4_ps(sums, 2));
    _mm_storeu_ps(out + 3 * stride, _mm512_extractf32x4_ps(sums, 3));
}

#elif defined(__AVX2__)

struct Lanes {
    __m256 low, high;
};
ALWAYS_INLINE Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
ALWAYS_INLINE void store(float* p, Lanes v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
}
ALWAYS_INLINE Lanes all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
ALWAYS_INLINE Lanes fused(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
ALWAYS_INLINE Lanes add(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
ALWAYS_INLINE Lanes sub(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
ALWAYS_INLINE Lanes mul(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
ALWAYS_INLINE Lanes div(Lanes a, Lanes b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
ALWAYS_INLINE Lanes max(Lanes a, Lanes b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
ALWAYS_INLINE Lanes round(Lanes a) {
    constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.low, mode), _mm256_round_ps(a.high, mode)};
}
ALWAYS_INLINE Lanes abs(Lanes a) {
    __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return {_mm256_and_ps(a.low, mask), _mm256_and_ps(a.high, mask)};
}
ALWAYS_INLINE __m256 power_of_two(__m256 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(n), 23));
}
ALWAYS_INLINE Lanes power_of_two(Lanes n) { return {power_of_two(n.low), power_of_two(n.high)}; }
ALWAYS_INLINE unsigned greater(Lanes a, Lanes b) {
    unsigned low = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ));
    unsigned high = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ));
    return low | high << 8;
}
ALWAYS_INLINE __m256 if_negative(__m256 x, __m256 a, __m256 b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
}
ALWAYS_INLINE Lanes if_negative(Lanes x, Lanes a, Lanes b) {
    return {if_negative(x.low, a.low, b.low), if_negative(x.high, a.high, b.high)};
}
ALWAYS_INLINE Lanes first(Lanes a, int count, float rest) {
    if (count >= kLanes) return a;
    float lanes[kLanes];
    store(lanes, a);
    for (int i = count < 0 ? 0 : count; i < kLanes; i++) lanes[i] = rest;
    return load(lanes);
}
ALWAYS_INLINE __m256 halve_sum(Lanes v) { return _mm256_add_ps(v.low, v.high); }
ALWAYS_INLINE __m256 halve_max(Lanes v) { return _mm256_max_ps(v.low, v.high); }

struct Quarter {
    __m256 ab, cd;
};
ALWAYS_INLINE __m256 quarter_of_two(Lanes a, Lanes b) {
    __m256 x = halve_sum(a), y = halve_sum(b);
    return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
}
ALWAYS_INLINE Quarter quarter(Lanes a, Lanes b, Lanes c, Lanes d) {
    return {quarter_of_two(a, b), quarter_of_two(c, d)};
}
ALWAYS_INLINE __m256 finish_two(__m256 a, __m256 b, __m256 c, __m256 d) {
    __m256 p01 = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    __m256 p23 = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    return _mm256_add_ps(_mm256_shuffle_ps(p01, p23, 0x44), _mm256_shuffle_ps(p01, p23, 0xEE));
}
ALWAYS_INLINE void finish(const Quarter* q, float* out, int stride) {
    __m256 ab = finish_two(q[0].ab, q[1].ab, q[2].ab, q[3].ab), cd = finish_two(q[0].cd, q[1].cd, q[2].cd, q[3].cd);
    _mm_storeu_ps(out, _mm256_castps256_ps128(ab));
    _mm_storeu_ps(out + stride, _mm256_extractf128_ps(ab, 1));
    _mm_storeu_ps(out + 2 * stride, _mm256_castps256_ps128(cd));
    _mm_storeu_ps(out + 3 * stride, _mm256_extractf128_ps(cd, 1));
}

#else  // generic

struct Lanes {
    float lane[kLanes];
};
#define EACH_LANE for (int i = 0; i < kLanes; i++)
ALWAYS_INLINE Lanes load(const float* p) {
    Lanes v;
    memcpy(v.lane, p, sizeof v.lane);
    return v;
}
ALWAYS_INLINE void store(float* p, Lanes v) { memcpy(p, v.lane, sizeof v.lane); }
ALWAYS_INLINE Lanes all(float x) {
    Lanes v;
    EACH_LANE v.lane[i] = x;
    return v;
}
ALWAYS_INLINE Lanes fused(Lanes a, Lanes b, Lanes c) {
    EACH_LANE c.lane[i] = fused(a.lane[i], b.lane[i], c.lane[i]);
    return c;
}
ALWAYS_INLINE Lanes add(Lanes a, Lanes b) {
    EACH_LANE a.lane[i] += b.lane[i];
    return a;
}
ALWAYS_INLINE Lanes sub(Lanes a, Lanes b) {
    EACH_LANE a.lane[i] -= b.lane[i];
    return a;
}
ALWAYS_INLINE Lanes mul(Lanes a, Lanes b) {
    EACH_LANE a.lane[i] *= b.lane[i];
    return a;
}
ALWAYS_INLINE Lanes div(Lanes a, Lanes b) {
    EACH_LANE a.lane[i] /= b.lane[i];
    return a;
}
ALWAYS_INLINE Lanes max(Lanes a, Lanes b) {
    EACH_LANE a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}
ALWAYS_INLINE Lanes round(Lanes a) {
    EACH_LANE a.lane[i] = __builtin_rintf(a.lane[i]);
    return a;
}
ALWAYS_INLINE Lanes abs(Lanes a) {
    EACH_LANE a.lane[i] = __builtin_fabsf(a.lane[i]);
    return a;
}
ALWAYS_INLINE Lanes power_of_two(Lanes n) {
    EACH_LANE {
        uint32_t bits;
        memcpy(&bits, &n.lane[i], 4);
        bits <<= 23;
        memcpy(&n.lane[i], &bits, 4);
    }
    return n;
}
ALWAYS_INLINE unsigned greater(Lanes a, Lanes b) {
    unsigned mask = 0;
    EACH_LANE mask |= (unsigned)(a.lane[i] > b.lane[i]) << i;
    return mask;
}
ALWAYS_INLINE Lanes if_negative(Lanes x, Lanes a, Lanes b) {
    EACH_LANE a.lane[i] = x.lane[i] < 0 ? a.lane[i] : b.lane[i];
    return a;
}
ALWAYS_INLINE Lanes first(Lanes a, int count, float rest) {
    for (int i = count < 0 ? 0 : count; i < kLanes; i++) a.lane[i] = rest;
    return a;
}
ALWAYS_INLINE float sum(Lanes v) {
    for (int half = kLanes / 2; half; half /= 2)
        for (int i = 0; i < half; i++) v.lane[i] += v.lane[i + half];
    return v.lane[0];
}
ALWAYS_INLINE float maximum(Lanes v) {
    for (int half = kLanes / 2; half; half /= 2)
        for (int i = 0; i < half; i++) v.lane[i] = v.lane[i] > v.lane[i + half] ? v.lane[i] : v.lane[i + half];
    return v.lane[0];
}

struct Quarter {
    float sums[4];
};
ALWAYS_INLINE Quarter quarter(Lanes a, Lanes b, Lanes c, Lanes d) { return {{sum(a), sum(b), sum(c), sum(d)}}; }
ALWAYS_INLINE void finish(const Quarter* q, float* out, int stride) {
    for (int i = 0; i < 4; i++)
        for (int step = 0; step < 4; step++) out[i * stride + step] = q[step].sums[i];
}

#endif

#if defined(__AVX512F__) || defined(__AVX2__)
ALWAYS_INLINE float sum(Lanes v) {
    __m256 half = halve_sum(v);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
ALWAYS_INLINE float maximum(Lanes v) {
    __m256 half = halve_max(v);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
#endif

// e^x for x <= 0; below -87 the result is that of -87 (about 1.6e-38). NaN stays NaN.
// x log2(e) = n + f with an integer n and f in [-1/2, 1/2]: adding 1.5 * 2^23 + 127 rounds to an integer, and the low
// bits of the sum are n + 127, the exponent of 2^n. 2^f is a polynomial. Relative error below 3e-7.
ALWAYS_INLINE Lanes exp_of_nonpositive(Lanes x) {
    const Lanes shift = all(12583039.0f);
    x = max(all(-87.0f), x);
    Lanes rounded = fused(x, all(1.44269502f), shift);
    Lanes n = sub(rounded, shift);
    Lanes f = fused(x, all(1.44269502f), sub(all(0.0f), n));
    Lanes p = fused(f, all(1.3264718e-3f), all(9.67151299e-3f));  // minimax: relative error below 1e-7
    p = fused(f, p, all(5.55073395e-2f));
    p = fused(f, p, all(2.40222424e-1f));
    p = fused(f, p, all(6.93147004e-1f));
    p = fused(f, p, all(1.0f));
    return mul(p, power_of_two(rounded));
}

// The natural logarithm of a positive, normal, finite float; anything else is returned unchanged.
// x = m 2^e with m in [sqrt(1/2), sqrt(2)); log(m) is a polynomial in m - 1.
ALWAYS_INLINE float log_of_positive(float x) {
    if (!(x >= 1.17549435e-38f && x <= 3.4028234e38f)) return x;
    int32_t bits;
    memcpy(&bits, &x, 4);
    int32_t exponent = (bits >> 23) - 126;
    bits = (bits & 0x7fffff) | 0x3f000000;  // m in [1/2, 1)
    float m;
    memcpy(&m, &bits, 4);
    if (m < 0.70710678f) {
        m += m;
        exponent -= 1;
    }
    float f = m - 1.0f, square = f * f, e = (float)exponent;
    float p = fused(f, 7.0376836e-2f, -1.1514610e-1f);
    p = fused(f, p, 1.1676999e-1f);
    p = fused(f, p, -1.2420141e-1f);
    p = fused(f, p, 1.4249323e-1f);
    p = fused(f, p, -1.6668058e-1f);
    p = fused(f, p, 2.0000715e-1f);
    p = fused(f, p, -2.4999994e-1f);
    p = fused(f, p, 3.3333331e-1f);
    float y = f * square * p;
    y = fused(e, -2.12194440e-4f, y);
    y = fused(-0.5f, square, y);
    return fused(e, 0.693359375f, f + y);
}

// tanh(x) = sign(x) (1 - e) / (1 + e) with e = exp(-2 |x|)
ALWAYS_INLINE Lanes tanh(Lanes x) {
    Lanes e = exp_of_nonpositive(mul(all(-2.0f), abs(x)));
    Lanes t = div(sub(all(1.0f), e), add(all(1.0f), e));
    return if_negative(x, sub(all(0.0f), t), t);
}

// 1 / (1 + exp(-x))
ALWAYS_INLINE Lanes sigmoid(Lanes x) {
    Lanes e = exp_of_nonpositive(sub(all(0.0f), abs(x)));
    Lanes s = div(all(1.0f), add(all(1.0f), e));
    return if_negative(x, mul(e, s), s);
}

// The error function by Abramowitz and Stegun 7.1.26: absolute error below 1.5e-7
ALWAYS_INLINE Lanes erf(Lanes x) {
    Lanes a = abs(x), t = div(all(1.0f), fused(a, all(0.3275911f), all(1.0f)));
    Lanes p = fused(t, all(1.061405429f), all(-1.453152027f));
    p = fused(t, p, all(1.421413741f));
    p = fused(t, p, all(-0.284496736f));
    p = fused(t, p, all(0.254829592f));
    Lanes y = sub(all(1.0f), mul(mul(p, t), exp_of_nonpositive(sub(all(0.0f), mul(a, a)))));
    return if_negative(x, sub(all(0.0f), y), y);
}

}  // namespace clearhead::KERNELS_NAMESPACE
