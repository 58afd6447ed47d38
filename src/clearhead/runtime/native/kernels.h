// Kernels of one instruction set. kernels.cpp is compiled once per instruction set; dispatch.cpp selects one at run
// time.
//
// kernels.cpp must not instantiate inline functions of the standard library: the linker keeps one copy of each, and if
// it keeps the AVX-512 copy, portable code crashes on older CPUs.
#pragma once

namespace clearhead {

struct Kernels {
    float (*fused_multiply_add)(float a, float b, float c);
};

}  // namespace clearhead
