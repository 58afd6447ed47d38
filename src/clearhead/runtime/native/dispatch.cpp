#include "dispatch.h"

#include <cstring>
#include <stdexcept>
#include <string>

// setup.py compiles the x86 variants of kernels.cpp exactly where the compiler defines __x86_64__.
extern "C" {
#if defined(__x86_64__)
const clearhead::Kernels* clearhead_kernels_avx512vnni();
const clearhead::Kernels* clearhead_kernels_avx512();
const clearhead::Kernels* clearhead_kernels_avx2();
#endif
const clearhead::Kernels* clearhead_kernels_generic();
}

namespace clearhead {

#if defined(__x86_64__)
// __builtin_cpu_supports also checks that the operating system saves the vector registers.
static bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}

static bool has_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

static bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif

const std::vector<InstructionSet>& instruction_sets() {
    static const std::vector<InstructionSet> all = {
#if defined(__x86_64__)
        {clearhead_kernels_avx512vnni(), has_vnni()},
        {clearhead_kernels_avx512(), has_avx512()},
        {clearhead_kernels_avx2(), has_avx2()},
#endif
        {clearhead_kernels_generic(), true},
    };
    return all;
}

static std::string supported_names() {
    std::string names;
    for (const InstructionSet& isa : instruction_sets()) {
        if (isa.is_supported) names += (names.empty() ? "" : ", ") + std::string(isa.kernels->name);
    }
    return names;
}

const Kernels& select_kernels(const char* forced) {
    const bool is_forced = forced != nullptr && *forced != '\0';
    for (const InstructionSet& isa : instruction_sets()) {
        if (isa.is_supported && (!is_forced || std::strcmp(isa.kernels->name, forced) == 0)) return *isa.kernels;
    }
    throw std::invalid_argument("this CPU cannot run instruction set '" + std::string(forced) +
                                "'; it can run: " + supported_names());
}

}  // namespace clearhead
