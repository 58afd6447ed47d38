// Runs all tests, or those whose names contain the first argument.
#include <cstring>
#include <exception>

#include "check.h"

int main(int count, char** arguments) {
    int run = 0;
    for (const check::Case& each : check::cases) {
        if (count > 1 && std::strstr(each.name, arguments[1]) == nullptr) continue;
        const int before = check::failures;
        try {
            each.run();
        } catch (const std::exception& error) {
            check::report(false, each.name, 0, error.what());
        }
        if (check::failures > before) std::fprintf(stderr, "FAILED %s\n", each.name);
        ++run;
    }
    std::printf("%d tests, %d failed checks\n", run, check::failures);
    return check::failures > 0 || run == 0;
}
