#include <stdexcept>
#include <string>

#include "check.h"
#include "dispatch.h"

using clearhead::instruction_sets;
using clearhead::InstructionSet;
using clearhead::Kernels;
using clearhead::select_kernels;

TEST(fastest_supported_instruction_set_is_selected) {
    const Kernels* first = nullptr;
    for (const InstructionSet& isa : instruction_sets()) {
        if (first == nullptr && isa.is_supported) first = isa.kernels;
    }
    CHECK(first == &select_kernels(nullptr));
    CHECK(first == &select_kernels(""));
}

TEST(generic_kernels_are_always_supported) {
    CHECK(instruction_sets().back().is_supported);
    CHECK_EQUAL(std::string(instruction_sets().back().kernels->name), std::string("generic"));
}

TEST(forced_instruction_set_is_selected) {
    for (const InstructionSet& isa : instruction_sets()) {
        if (isa.is_supported)
            CHECK(&select_kernels(isa.kernels->name) == isa.kernels);
        else
            CHECK_THROWS(std::invalid_argument, select_kernels(isa.kernels->name));
    }
}

TEST(unknown_instruction_set_throws) {
    CHECK_THROWS(std::invalid_argument, select_kernels("sse9"));
    CHECK_THROWS(std::invalid_argument, select_kernels("avx"));
}
