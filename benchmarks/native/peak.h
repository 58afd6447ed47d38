// Measured limits of one core: multiply-adds from registers, and reading memory.
#pragma once

#include <cstddef>

namespace clearhead {

struct Peak {
    const char* name;  // of the instruction set
    // Run independent chains of multiply-adds, `steps` each. Return the number of multiply-adds.
    size_t (*multiply_floats)(size_t steps);
    size_t (*multiply_integers)(size_t steps);
    // Return the sum of `count` floats, a multiple of 128.
    float (*read)(const float* data, size_t count);
};

// Return the limits for the instruction set of this name. Throws std::invalid_argument if there is none.
const Peak& select_peak(const char* name);

}  // namespace clearhead
