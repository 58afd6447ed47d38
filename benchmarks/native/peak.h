// Limits of one core: multiply-adds on registers, and reading memory.
#pragma once

#include <cstddef>

namespace clearhead {

struct Peak {
    const char* name;  // name of the instruction set
    // Run independent chains of multiply-adds, `steps` each. Return the number of multiply-adds.
    size_t (*multiply_floats)(size_t steps);
    size_t (*multiply_integers)(size_t steps);
    // Return the sum of `count` floats, a multiple of 128.
    float (*read)(const float* data, size_t count);
};

// Return the limits for an instruction set. Throws std::invalid_argument if it was not compiled.
const Peak& select_peak(const char* name);

}  // namespace clearhead
