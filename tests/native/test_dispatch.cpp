#include <cstring>
#include <stdexcept>

#include "check.h"
#include "dispatch.h"

using clearhead::instruction_sets;
using clearhead::InstructionSet;
using clearhead::select_instruction_set;

TEST(fastest_supported_instruction_set_is_selected) {
    const InstructionSet* first = nullptr;
    for (const InstructionSet& isa : instruction_sets()) {
        if (first == nullptr && isa.supported) first = &isa;
    }
    CHECK(first == &select_instruction_set(nullptr));
    CHECK(first == &select_instruction_set(""));
}

TEST(generic_kernels_are_always_supported) {
    CHECK(instruction_sets().back().supported);
    CHECK_EQUAL(std::string(instruction_sets().back().name), std::string("generic"));
}

TEST(forced_instruction_set_is_selected) {
    for (const InstructionSet& isa : instruction_sets()) {
        if (isa.supported) {
            CHECK(&select_instruction_set(isa.name) == &isa);
            CHECK(&clearhead::select_kernels(isa.name) == isa.kernels);
        } else {
            CHECK_THROWS(std::invalid_argument, select_instruction_set(isa.name));
        }
    }
}

TEST(unknown_instruction_set_throws) {
    CHECK_THROWS(std::invalid_argument, select_instruction_set("sse9"));
    CHECK_THROWS(std::invalid_argument, select_instruction_set("avx"));
}
