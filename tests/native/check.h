// Minimal unit tests: TEST(name) { CHECK(...); }. Every test runs even if an earlier one failed; see main.cpp.
#pragma once

#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace check {

struct Case {
    const char* name;
    void (*run)();
};

inline std::vector<Case> cases;
inline int failures = 0;

inline bool add(const char* name, void (*run)()) {
    cases.push_back({name, run});
    return true;
}

inline void report(bool passed, const char* file, int line, const std::string& message) {
    if (passed) return;
    ++failures;
    if (failures <= 20) std::fprintf(stderr, "%s:%d: %s\n", file, line, message.c_str());
}

template <typename Value>
std::string show(const Value& value) {
    if constexpr (std::is_floating_point_v<Value>) {
        char text[40];
        std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
        return text;
    } else if constexpr (std::is_arithmetic_v<Value>) {
        return std::to_string(value);
    } else {
        return std::string(value);
    }
}

// Return whether the expression throws an Expected.
template <typename Expected>
bool throws(const std::function<void()>& expression) {
    try {
        expression();
    } catch (const Expected&) {
        return true;
    }
    return false;
}

}  // namespace check

#define TEST(name)                                                 \
    static void name();                                            \
    static const bool name##_is_added = ::check::add(#name, name); \
    static void name()

#define CHECK(condition) ::check::report(static_cast<bool>(condition), __FILE__, __LINE__, #condition)

#define CHECK_EQUAL(actual, expected)                                                                             \
    do {                                                                                                          \
        const auto actual_value = (actual);                                                                       \
        const auto expected_value = (expected);                                                                   \
        ::check::report(actual_value == expected_value, __FILE__, __LINE__,                                       \
                        #actual " is " + ::check::show(actual_value) + ", not " + ::check::show(expected_value)); \
    } while (false)

// Absolute difference of at most `tolerance`; NaN fails.
#define CHECK_NEAR(actual, expected, tolerance)                                                                   \
    do {                                                                                                          \
        const auto actual_value = (actual);                                                                       \
        const auto expected_value = (expected);                                                                   \
        ::check::report(std::abs(actual_value - expected_value) <= (tolerance), __FILE__, __LINE__,               \
                        #actual " is " + ::check::show(actual_value) + ", not " + ::check::show(expected_value)); \
    } while (false)

#define CHECK_THROWS(exception, ...)                                                      \
    ::check::report(::check::throws<exception>([&] { __VA_ARGS__; }), __FILE__, __LINE__, \
                    #__VA_ARGS__ " does not throw " #exception)
