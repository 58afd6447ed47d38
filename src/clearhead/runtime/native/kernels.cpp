#include "kernels.h"

#ifndef KERNELS_NAMESPACE
#error "KERNELS_NAMESPACE names the instruction set: avx512, avx2 or generic"
#endif

namespace clearhead::KERNELS_NAMESPACE {

static float fused_multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

static const Kernels kernels = {fused_multiply_add};

}  // namespace clearhead::KERNELS_NAMESPACE

#define JOIN_NAMES(prefix, name) prefix##name
#define EXPORTED_NAME(name) JOIN_NAMES(clearhead_kernels_, name)

extern "C" const clearhead::Kernels* EXPORTED_NAME(KERNELS_NAMESPACE)() {
    return &clearhead::KERNELS_NAMESPACE::kernels;
}
