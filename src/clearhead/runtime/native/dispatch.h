// Selection of the kernels that this CPU can run.
#pragma once

#include <vector>

#include "kernels.h"

namespace clearhead {

struct InstructionSet {
    const Kernels* kernels;
    bool is_supported;  // by this CPU and its operating system
};

// All instruction sets in this binary, the fastest first; the last one is always supported.
const std::vector<InstructionSet>& instruction_sets();

// Return the fastest supported kernels, or those of the instruction set `forced` unless that is null or empty.
// Throws std::invalid_argument if `forced` is unknown or not supported.
const Kernels& select_kernels(const char* forced);

}  // namespace clearhead
