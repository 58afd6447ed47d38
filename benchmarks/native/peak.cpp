// Compiled once per instruction set, like kernels.cpp, with the vectors of the kernels (lanes.h, quantize.h). The
// chains fill twelve registers: enough to hide the latency of a multiply-add, which is 4 or 5 cycles in two units.
#include "peak.h"

#pragma GCC diagnostic ignored "-Wunused-function"  // only some functions of the headers are called

#include "lanes.h"
#include "quantize.h"

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define JOIN_TWO(a, b) a##b
#define JOIN(a, b) JOIN_TWO(a, b)

namespace clearhead::KERNELS_NAMESPACE {

#if defined(__AVX512F__)
constexpr size_t kRegisters = 12 * 64, kIntegerRegisters = kRegisters;  // bytes
#elif defined(__AVX2__)
constexpr size_t kRegisters = 12 * 32, kIntegerRegisters = 8 * 32;  // of 16; four contain weights
#else
constexpr size_t kRegisters = 12 * 16, kIntegerRegisters = kRegisters;
#endif

// Keeps the compiler from removing the computation of an unused value, or from computing it only once.
template <class Value>
ALWAYS_INLINE void hide(Value& value) {
    asm volatile("" : "+m"(value));
}

static size_t multiply_floats(size_t steps) {
    constexpr int kChains = kRegisters / sizeof(Lanes);
    Lanes chains[kChains];
    for (int c = 0; c < kChains; c++) chains[c] = all((float)c);
    const Lanes factor = all(0.5f), term = all(1.0f);
    for (size_t step = 0; step < steps; step++)
        UNROLL for (int c = 0; c < kChains; c++) chains[c] = fused(chains[c], factor, term);
    hide(chains);
    return steps * kChains * kLanes;
}

// Argument of load_inputs: int8 or int16 values, depending on the instruction set.
struct Zeros {
    alignas(64) uint8_t bytes[512] = {};
    operator const int8_t*() const { return (const int8_t*)bytes; }
    operator const int16_t*() const { return (const int16_t*)bytes; }
};

static size_t multiply_integers(size_t steps) {
    constexpr int kChains = kIntegerRegisters / sizeof(Sums);
    Zeros zeros;
    Sums sums[kChains];
    Inputs inputs[kChains];
    hide(zeros);
    const Weights weights = load_weights(zeros.bytes);
    UNROLL for (int c = 0; c < kChains; c++) {  // without unrolling, the sums are kept in memory
        sums[c] = all_sums(c);
        inputs[c] = load_inputs(zeros);
    }
    for (size_t step = 0; step < steps; step++) UNROLL for (int c = 0; c < kChains; c++) {
            hide(inputs[c]);  // the product with the same input would be computed once
            multiply_add(sums[c], weights, inputs[c]);
        }
    Lanes total = all(0.0f);  // hide(sums) would also keep them in memory
    UNROLL for (int c = 0; c < kChains; c++) total = add(total, as_floats(sums[c]));
    hide(total);
    return steps * kChains * kLanes * 4;
}

static float read(const float* data, size_t count) {
    constexpr int kVectors = 8;
    Lanes sums[kVectors];
    for (int c = 0; c < kVectors; c++) sums[c] = all(0.0f);
    for (size_t i = 0; i < count; i += kVectors * kLanes)
        UNROLL for (int c = 0; c < kVectors; c++) sums[c] = add(sums[c], load(data + i + c * kLanes));
    for (int c = 1; c < kVectors; c++) sums[0] = add(sums[0], sums[c]);
    return sum(sums[0]);
}

}  // namespace clearhead::KERNELS_NAMESPACE

extern "C" const clearhead::Peak* JOIN(clearhead_peak_, KERNELS_NAMESPACE)() {
    namespace k = clearhead::KERNELS_NAMESPACE;
    static const clearhead::Peak peak = {TEXT(KERNELS_NAMESPACE), k::multiply_floats, k::multiply_integers, k::read};
    return &peak;
}
