#include "stages.h"

#include <algorithm>

namespace clearhead {

double ticks_per_second() {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const uint64_t first = ticks();
    std::chrono::duration<double> seconds{};
    while (seconds.count() < 0.05) seconds = Clock::now() - start;
    return (double)(ticks() - first) / seconds.count();
}

const char* stage_name(int stage) {
    static const char* const names[kStages] = {
        "embed",
        "norm",
        "quantize",
        "query, key, value product",
        "cache",
        "self-attention",
        "output product",
        "cross-attention query product",
        "cross-attention",
        "cross-attention output product",
        "feed-forward",
        "vocabulary product",
        "softmax and candidates",
    };
    return names[stage];
}

namespace {

// Return the ticks between two readings of the clock, which are part of every measured interval.
double ticks_of_clock() {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        const uint64_t start = ticks();
        least = std::min(least, ticks() - start);
    }
    return (double)least;
}

struct Recorder {
    const Kernels* real = nullptr;
    const Linear* vocabulary = nullptr;
    double clock = 0;
    Costs costs;
    Stage product = kFeedForward;  // of the last matrix product
    bool is_first = true;
    uint64_t last = 0;  // end of the last call

    void add(Stage stage, uint64_t interval) { costs[stage].ticks += std::max(0.0, (double)interval - clock); }
    template <class Call>
    void time(Stage stage, Call call) {
        const uint64_t start = ticks();
        if (is_first) add(kEmbed, start - last);
        if (stage == kSelfAttention) add(kCache, start - last);
        is_first = false;
        call();
        last = ticks();
        add(stage, last - start);
    }
    Stage stage_of(const Linear& layer, Epilogue epilogue) const {
        if (&layer == vocabulary) return kVocabulary;
        if (epilogue == Epilogue::store) return product == kSelfOutput ? kCrossQuery : kProjection;
        if (epilogue == Epilogue::add && product == kProjection) return kSelfOutput;
        if (epilogue == Epilogue::add && product == kCrossQuery) return kCrossOutput;
        return kFeedForward;
    }
};

Recorder recorder;

void linear(const Activations& x, int rows, const Linear& layer, int first, int last, Epilogue epilogue, float* out,
            int stride) {
    recorder.product = recorder.stage_of(layer, epilogue);
    recorder.time(recorder.product, [&] { recorder.real->linear(x, rows, layer, first, last, epilogue, out, stride); });
    const size_t columns = std::min(layer.outputs, last * kPanel) - first * kPanel;
    Cost& cost = recorder.costs[recorder.product];
    cost.multiply_adds += (size_t)rows * layer.inputs * columns;
    cost.bytes += (layer.weight ? sizeof(float) : sizeof(uint8_t)) * layer.inputs * (size_t)(last - first) * kPanel;
}

void quantize(Activations& x, int rows) {
    recorder.time(kQuantize, [&] { recorder.real->quantize(x, rows); });
}

// The kernel quantizes each row after its norm. Here all rows are quantized after all norms, to time both separately.
void normalize(const Norm& norm, const float* x, int rows, Activations& y) {
    Activations floats = y;
    floats.integers = nullptr;
    recorder.time(kNorm, [&] { recorder.real->normalize(norm, x, rows, floats); });
    if (y.integers) quantize(y, rows);
}

void attend(const AttentionShape& shape, const float* q, int q_stride, int count, const float* keys, int capacity,
            int length, const float* values, int value_stride, int first_offset, float* out, int out_stride,
            float* weights, float* scratch) {
    recorder.time(kCrossAttention, [&] {
        recorder.real->attend(shape, q, q_stride, count, keys, capacity, length, values, value_stride, first_offset,
                              out, out_stride, weights, scratch);
    });
}

void attend_cached(const AttentionShape& shape, const float* q, const float* const* entries, int length, float* out,
                   float* scratch) {
    recorder.time(kSelfAttention, [&] { recorder.real->attend_cached(shape, q, entries, length, out, scratch); });
}

void scan(VocabularyScan& scan, float* logits, int count, int first, const int* banned, int num_banned) {
    recorder.time(kSoftmax, [&] { recorder.real->scan(scan, logits, count, first, banned, num_banned); });
}

float log_sum(const VocabularyScan& scan) {
    float sum = 0;
    recorder.time(kSoftmax, [&] { sum = recorder.real->log_sum(scan); });
    return sum;
}

}  // namespace

Kernels timed_kernels(const Kernels& real, const Linear& vocabulary) {
    recorder.real = &real;
    recorder.vocabulary = &vocabulary;
    recorder.clock = ticks_of_clock();
    Kernels timed = real;
    timed.linear = linear;
    timed.quantize = quantize;
    timed.normalize = normalize;
    timed.attend = attend;
    timed.attend_cached = attend_cached;
    timed.scan = scan;
    timed.log_sum = log_sum;
    return timed;
}

void start_step() {
    recorder.costs = Costs();
    recorder.product = kFeedForward;
    recorder.is_first = true;
    recorder.last = ticks();
}

const Costs& costs_of_step() { return recorder.costs; }

}  // namespace clearhead
