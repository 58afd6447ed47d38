// Measures the stages of a decoding step and the limits of the core, and prints them as JSON.
//
//     kernels_benchmark SECONDS NAME:WIDTH:INNER:HEADS:LAYERS:VOCABULARY ...
//
// SECONDS is the time for each combination of shape, type of numbers and rows. CLEARHEAD_ISA forces an instruction set.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "decoding_step.h"
#include "dispatch.h"
#include "peak.h"
#include "stages.h"

// setup.py defines EACH_ISA(use) as use(avx2) use(generic) and so on, for the instruction sets that it compiles.
#define DECLARE(name) extern "C" const clearhead::Peak* clearhead_peak_##name();
EACH_ISA(DECLARE)

namespace clearhead {

const Peak& select_peak(const char* name) {
#define CALL(name) clearhead_peak_##name(),
    for (const Peak* peak : {EACH_ISA(CALL)})
        if (std::strcmp(peak->name, name) == 0) return *peak;
    throw std::invalid_argument(std::string("the limits were not compiled for instruction set ") + name);
}

namespace {

// Return the least time of a call in ticks, over at least three calls and at least the given time.
template <class Call>
double least_ticks(double time, Call call) {
    double least = INFINITY;
    const uint64_t begin = ticks();
    for (int i = 0; i < 3 || (double)(ticks() - begin) < time; i++) {
        const uint64_t start = ticks();
        call();
        least = std::min(least, (double)(ticks() - start));
    }
    return least;
}

double median(std::vector<double> values) {
    auto middle = values.begin() + (long)values.size() / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

class Benchmark {
  public:
    Benchmark(const Kernels& kernels, double seconds)
        : kernels_(kernels), peak_(select_peak(kernels.name)), rate_(ticks_per_second()), seconds_(seconds) {}

    void run(const std::vector<Shape>& shapes) {
        constexpr size_t kMemory = size_t{256} << 20;  // larger than any cache
        std::printf("{\"isa\": \"%s\", \"seconds\": %g, \"positions\": %d, \"source_length\": %d,\n", kernels_.name,
                    seconds_, kPositions, kSourceLength);
        std::printf("\"float32\": %.6g, \"int8\": %.6g, \"memory\": %.6g, \"runs\": [", peak(peak_.multiply_floats),
                    peak(peak_.multiply_integers), bandwidth(kMemory));
        for (const Shape& shape : shapes)
            for (bool int8 : {false, true}) run(shape, int8);
        std::printf("]}\n");
    }

  private:
    // Return the multiply-adds per second of the best of several runs of about 2 milliseconds.
    double peak(size_t (*multiply)(size_t)) const {
        size_t count = 0;
        const double least = least_ticks(0.1 * rate_, [&] { count = multiply(300000); });
        return (double)count * rate_ / least;
    }

    // Return the bytes per second of reading a buffer repeatedly, from the cache that contains it or from memory.
    double bandwidth(size_t bytes) {
        const size_t count = (bytes / sizeof(float) + 127) / 128 * 128;
        const Buffer<float> buffer(count);
        const double least = least_ticks(0.1 * rate_, [&] { sink_ = sink_ + peak_.read(buffer.data(), count); });
        return (double)count * sizeof(float) * rate_ / least;
    }

    void run(const Shape& shape, bool int8) {
        Kernels table = kernels_;
        const std::unique_ptr<Model> model = random_model(shape, int8, table);
        const Kernels timed = timed_kernels(kernels_, model->output);
        double rate = 0;
        const int batches[][2] = {{1, 1}, {1, 4}, {6, 4}};
        for (auto [sentences, beam] : batches) {
            DecodingStep step(*model, sentences, beam);
            std::vector<double> whole, stages[kStages];
            Costs costs;
            const uint64_t begin = ticks();
            // Warm-up steps are not counted. Steps with timed kernels alternate with steps with plain kernels.
            for (int i = 0; i < 4 || (double)(ticks() - begin) < seconds_ * rate_; i++) {
                table = kernels_;
                const uint64_t start = ticks();
                step.run();
                if (i) whole.push_back((double)(ticks() - start));
                table = timed;
                start_step();
                step.run();
                costs = costs_of_step();
                for (int s = 0; i && s < kStages; s++) stages[s].push_back(costs[s].ticks);
            }
            if (!std::isfinite(step.best())) throw std::runtime_error("the log-probabilities are not finite");
            size_t bytes = 0;
            for (const Cost& cost : costs) bytes += cost.bytes;
            if (rate == 0) rate = bandwidth(bytes);
            std::printf("%s\n{\"shape\": \"%s\", \"type\": \"%s\", \"rows\": %d, \"steps\": %zu, \"bandwidth\": %.6g, ",
                        is_first_ ? "" : ",", shape.name.c_str(), int8 ? "int8" : "float32", sentences * beam,
                        whole.size(), rate);
            is_first_ = false;
            print(costs, stages, median(whole));
        }
    }

    void print(const Costs& costs, const std::vector<double>* stages, double whole) const {
        std::printf("\"whole\": %.6g, \"stages\": [", whole / rate_);
        for (int s = 0; s < kStages; s++)
            std::printf("%s\n  {\"name\": \"%s\", \"seconds\": %.6g, \"multiply_adds\": %zu, \"bytes\": %zu}",
                        s ? "," : "", stage_name(s), median(stages[s]) / rate_, costs[s].multiply_adds, costs[s].bytes);
        std::printf("]}");
    }

    const Kernels& kernels_;
    const Peak& peak_;
    const double rate_, seconds_;  // rate_: ticks per second
    bool is_first_ = true;
    volatile float sink_ = 0;
};

Shape parse_shape(const char* text) {
    Shape shape;
    char name[32];
    const int found = std::sscanf(text, "%31[^:]:%d:%d:%d:%d:%d", name, &shape.width, &shape.inner, &shape.heads,
                                  &shape.layers, &shape.vocabulary);
    if (found != 6 || std::min({shape.width, shape.inner, shape.heads, shape.layers, shape.vocabulary}) < 1 ||
        shape.width % shape.heads)
        throw std::invalid_argument(std::string("expected NAME:WIDTH:INNER:HEADS:LAYERS:VOCABULARY, got ") + text);
    shape.name = name;
    return shape;
}

}  // namespace
}  // namespace clearhead

int main(int count, char** arguments) {
    try {
        std::vector<clearhead::Shape> shapes;
        for (int i = 2; i < count; i++) shapes.push_back(clearhead::parse_shape(arguments[i]));
        const clearhead::Kernels& kernels = clearhead::select_kernels(std::getenv("CLEARHEAD_ISA"));
        clearhead::Benchmark(kernels, count > 1 ? std::atof(arguments[1]) : 0).run(shapes);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
