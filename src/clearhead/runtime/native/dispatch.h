// Selection of the kernels that this CPU can run.
#pragma once

#include <vector>

#include "kernels.h"

namespace clearhead {

struct InstructionSet {
    const char* name;  // avx512vnni, avx512, avx2 or generic
    const Kernels* kernels;
    bool supported;  // by this CPU and its operating system
};

// All instruction sets in this binary, the fastest first; the last one is always supported.
const std::vector<InstructionSet>& instruction_sets();

// Return the fastest supported instruction set, or the one named `forced` unless that is null or empty.
// Throws std::invalid_argument if `forced` is unknown or not supported.
const InstructionSet& select_instruction_set(const char* forced);

// Return the kernels of select_instruction_set(forced).
const Kernels& select_kernels(const char* forced);

}  // namespace clearhead
