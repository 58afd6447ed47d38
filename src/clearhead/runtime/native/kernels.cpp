// Compiled once per instruction set, with KERNELS_NAMESPACE naming it. No standard library templates here: the linker
// could use a copy compiled for AVX-512 in code that runs everywhere.
#include "kernels.h"

#include "attention.h"
#include "matmul.h"
#include "normalization.h"
#include "quantize.h"
#include "softmax.h"

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define JOIN_TWO(a, b) a##b
#define JOIN(a, b) JOIN_TWO(a, b)

extern "C" const clearhead::Kernels* JOIN(clearhead_kernels_, KERNELS_NAMESPACE)() {
    namespace k = clearhead::KERNELS_NAMESPACE;
    static const clearhead::Kernels kernels = {
        TEXT(KERNELS_NAMESPACE), k::linear,    k::quantize, k::normalize, k::activate, k::attend,
        k::attend_cached,        k::transpose, k::scan,     k::log_sum,
    };
    return &kernels;
}
