// Every kernel against plain loops, and every instruction set against every other, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "dispatch.h"
#include "weights.h"

using namespace clearhead;

namespace {

std::vector<float> random_floats(size_t count, unsigned seed, float scale = 1) {
    std::mt19937 generator(seed);
    std::vector<float> values(count);
    for (float& value : values) value = scale * ((float)(generator() % 20001) / 10000 - 1);
    return values;
}

std::vector<const Kernels*> supported() {
    std::vector<const Kernels*> result;
    for (const InstructionSet& isa : instruction_sets())
        if (isa.is_supported) result.push_back(isa.kernels);
    return result;
}

// Whether two results must have the same bits: not if only one of them has fused multiply-add.
bool are_comparable(const Kernels& a, const Kernels& b) {
#if defined(__x86_64__)
    return std::strcmp(a.name, "generic") != 0 && std::strcmp(b.name, "generic") != 0;
#else
    (void)a, (void)b;
    return true;
#endif
}

void check_same_bits(const std::vector<std::vector<float>>& results) {
    const auto kernels = supported();
    for (size_t i = 1; i < results.size(); i++)
        if (are_comparable(*kernels[0], *kernels[i]))
            CHECK(std::memcmp(results[0].data(), results[i].data(), results[0].size() * sizeof(float)) == 0);
}

// Rows of activations with separate memory.
struct Rows {
    Rows(int rows, int width, int real, unsigned seed)
        : values((size_t)rows * width), integers(values.size()), scales(rows), sums(rows) {
        const std::vector<float> some = random_floats((size_t)rows * real, seed);
        for (int r = 0; r < rows; r++)
            std::copy_n(some.begin() + (size_t)r * real, real, values.begin() + (size_t)r * width);
        x.width = x.stride = width;
        x.values = values.data();
    }
    void use_integers() {
        x.integers = integers.data();
        x.scales = scales.data();
        x.sums = sums.data();
    }
    std::vector<float> values;
    std::vector<int16_t> integers;
    std::vector<float> scales;
    std::vector<int32_t> sums;
    Activations x;
};

}  // namespace

TEST(linear_float_is_a_chain_of_fused_multiply_adds) {
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25, 37})
        for (int outputs : {1, 31, 33, 131}) {
            const int inputs = 41;
            const auto weight = random_floats((size_t)outputs * inputs, 1), bias = random_floats(outputs, 2);
            Preparation prepared(false);
            const Linear layer =
                prepared.linear({{weight.data(), bias.data(), Axis::plain(outputs)}}, Axis::plain(inputs));
            std::vector<std::vector<float>> results;
            for (const Kernels* kernels : supported()) {
                Rows in(rows, layer.inputs, inputs, 3);
                const int stride = layer.panels * kPanel;
                std::vector<float> out((size_t)rows * stride, 7);
                kernels->linear(in.x, rows, layer, 0, layer.panels, Epilogue::store, out.data(), stride);
                for (int r = 0; r < rows; r++)
                    for (int n = 0; n < outputs; n++) {
                        float y = bias[n];
                        for (int k = 0; k < inputs; k++)
                            y = std::fma(in.values[(size_t)r * layer.inputs + k], weight[(size_t)n * inputs + k], y);
                        CHECK_NEAR(out[(size_t)r * stride + n], y, are_comparable(*kernels, *kernels) ? 0.0f : 1e-5f);
                    }
                results.push_back(out);
            }
            check_same_bits(results);
        }
}

TEST(linear_int8_sums_are_exact) {
    for (int rows : {1, 2, 3, 5, 6, 7, 12, 13, 29})
        for (int outputs : {5, 64, 97}) {
            const int inputs = 70;
            const auto weight = random_floats((size_t)outputs * inputs, 4), bias = random_floats(outputs, 5);
            Preparation prepared(true);
            const Linear layer =
                prepared.linear({{weight.data(), bias.data(), Axis::plain(outputs)}}, Axis::plain(inputs));
            std::vector<std::vector<float>> results;
            for (const Kernels* kernels : supported()) {
                Rows in(rows, layer.inputs, inputs, 6);
                in.use_integers();
                kernels->quantize(in.x, rows);
                const int stride = layer.panels * kPanel;
                std::vector<float> out((size_t)rows * stride);
                kernels->linear(in.x, rows, layer, 0, layer.panels, Epilogue::store, out.data(), stride);
                for (int r = 0; r < rows; r++) {
                    float largest = 0;
                    for (int k = 0; k < inputs; k++)
                        largest = std::max(largest, std::fabs(in.values[(size_t)r * layer.inputs + k]));
                    for (int n = 0; n < outputs; n++) {
                        float most = 0;
                        for (int k = 0; k < inputs; k++)
                            most = std::max(most, std::fabs(weight[(size_t)n * inputs + k]));
                        int32_t sum = 0;
                        for (int k = 0; k < inputs; k++)
                            sum += (int32_t)std::nearbyint(in.values[(size_t)r * layer.inputs + k] * (127 / largest)) *
                                   (int32_t)std::nearbyint(weight[(size_t)n * inputs + k] * (127 / most));
                        const float expected = (float)sum * (largest / 127 * (most / 127)) + bias[n];
                        CHECK_NEAR(out[(size_t)r * stride + n], expected, 1e-5f);
                    }
                }
                results.push_back(out);
            }
            check_same_bits(results);
        }
}

TEST(int8_of_rows_and_weights_near_zero_is_zero) {
    const int inputs = 64;
    const std::vector<float> weight(inputs, 1e-38f);
    Preparation prepared(true);
    const Linear layer = prepared.linear({{weight.data(), nullptr, Axis::plain(1)}}, Axis::plain(inputs));
    std::vector<std::vector<float>> results;
    for (const Kernels* kernels : supported()) {
        Rows in(1, layer.inputs, inputs, 0);
        std::fill(in.values.begin(), in.values.end(), 1e-38f);
        in.values[1] = -3e-38f;
        in.use_integers();
        kernels->quantize(in.x, 1);
        std::vector<float> out(kPanel);
        kernels->linear(in.x, 1, layer, 0, 1, Epilogue::store, out.data(), kPanel);
        CHECK_EQUAL(out[0], 0.0f);
        results.push_back(out);
    }
    check_same_bits(results);
}

TEST(int8_refuses_layers_whose_sums_would_overflow) {
    const std::vector<float> weight(kMaxQuantizedInputs + 1, 1.0f);
    const auto prepare = [&](int inputs) {
        Preparation prepared(true);
        prepared.linear({{weight.data(), nullptr, Axis::plain(1)}}, Axis::plain(inputs));
    };
    prepare(kMaxQuantizedInputs);
    CHECK_THROWS(std::invalid_argument, prepare(kMaxQuantizedInputs + 1));
}

TEST(int8_does_not_saturate) {  // 127 * 127 * 64: vpmaddubsw would
    const int inputs = 64;
    const std::vector<float> weight(inputs, -1.0f);
    Preparation prepared(true);
    const Linear layer = prepared.linear({{weight.data(), nullptr, Axis::plain(1)}}, Axis::plain(inputs));
    for (const Kernels* kernels : supported()) {
        Rows in(1, layer.inputs, inputs, 0);
        std::fill(in.values.begin(), in.values.end(), -1.0f);
        in.use_integers();
        kernels->quantize(in.x, 1);
        std::vector<float> out(kPanel);
        kernels->linear(in.x, 1, layer, 0, 1, Epilogue::store, out.data(), kPanel);
        CHECK_NEAR(out[0], 64.0f, 1e-4f);
    }
}

TEST(epilogues_act_on_the_output) {
    const std::vector<float> weight(32, 1.0f);
    Preparation prepared(false);
    const Linear layer = prepared.linear({{weight.data(), nullptr, Axis::plain(1)}}, Axis::plain(32));
    for (const Kernels* kernels : supported()) {
        Rows in(1, 32, 32, 0);
        std::fill(in.values.begin(), in.values.end(), -0.5f);  // the product is -16
        auto run = [&](Epilogue epilogue) {
            std::vector<float> out(kPanel, 3.0f);
            kernels->linear(in.x, 1, layer, 0, 1, epilogue, out.data(), kPanel);
            return out[0];
        };
        CHECK_EQUAL(run(Epilogue::store), -16.0f);
        CHECK_EQUAL(run(Epilogue::relu), 0.0f);
        CHECK_EQUAL(run(Epilogue::add), -13.0f);
        CHECK_EQUAL(run(Epilogue::multiply), -48.0f);
    }
}

TEST(norms_match_their_formulas) {
    for (NormKind kind : {NormKind::layer, NormKind::rms, NormKind::sample})
        for (int width : {5, 16, 37, 64}) {
            const auto gain = random_floats(width, 7), bias = random_floats(width, 8);
            Preparation prepared(false);
            const Norm norm{kind, width, 1e-3f, prepared.rows(gain.data(), 1, width),
                            prepared.rows(bias.data(), 1, width)};
            std::vector<std::vector<float>> results;
            for (const Kernels* kernels : supported()) {
                Rows in(3, round_up(width, kPanel), width, 9), out(3, round_up(width, kPanel), 1, 0);
                kernels->normalize(norm, in.values.data(), 3, out.x);
                for (int r = 0; r < 3; r++) {
                    const float* x = in.values.data() + (size_t)r * in.x.width;
                    double mean = 0, squares = 0;
                    for (int i = 0; i < width; i++) mean += x[i] / (double)width;
                    if (kind == NormKind::rms) mean = 0;
                    for (int i = 0; i < width; i++) squares += (x[i] - mean) * (x[i] - mean);
                    const double divisor = kind == NormKind::sample ? std::sqrt(squares / (width - 1)) + 1e-3
                                                                    : std::sqrt(squares / width + 1e-3);
                    for (int i = 0; i < in.x.width; i++) {
                        const double y = i < width ? gain[i] * (x[i] - mean) / divisor + bias[i] : 0;
                        CHECK_NEAR((double)out.values[(size_t)r * in.x.width + i], y, 2e-5);
                    }
                }
                results.push_back(out.values);
            }
            check_same_bits(results);
        }
}

TEST(activations_match_the_standard_library) {
    std::vector<float> x;
    for (int i = -2000; i < 2000; i++) x.push_back((float)i * 0.005f);
    struct {
        Activation kind;
        double (*reference)(double);
    } cases[] = {
        {Activation::relu, [](double v) { return v > 0 ? v : 0; }},
        {Activation::gelu, [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); }},
        {Activation::gelu_tanh,
         [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); }},
        {Activation::silu, [](double v) { return v / (1 + std::exp(-v)); }},
        {Activation::tanh, [](double v) { return std::tanh(v); }},
    };
    for (const auto& each : cases) {
        std::vector<std::vector<float>> results;
        for (const Kernels* kernels : supported()) {
            std::vector<float> y = x;
            kernels->activate(each.kind, y.data(), y.size());
            for (size_t i = 0; i < x.size(); i++)
                CHECK_NEAR((double)y[i], each.reference(x[i]), 1e-6 * std::max(1.0, std::fabs((double)x[i])));
            results.push_back(y);
        }
        check_same_bits(results);
    }
}

namespace {

// softmax(q k + bias) v of one head, in double precision.
std::vector<double> plain_attention(const std::vector<float>& q, const std::vector<std::vector<float>>& keys,
                                    const std::vector<std::vector<float>>& values, const std::vector<float>& bias) {
    std::vector<double> weights(keys.size()), out(values[0].size());
    double largest = -1e300, total = 0;
    for (size_t s = 0; s < keys.size(); s++) {
        for (size_t i = 0; i < q.size(); i++) weights[s] += (double)q[i] * keys[s][i];
        weights[s] += bias[s];
        largest = std::max(largest, weights[s]);
    }
    for (double& weight : weights) total += weight = std::exp(weight - largest);
    for (size_t s = 0; s < keys.size(); s++)
        for (size_t i = 0; i < out.size(); i++) out[i] += weights[s] / total * values[s][i];
    return out;
}

}  // namespace

TEST(attention_over_transposed_keys_and_over_a_cache) {
    for (int heads : {1, 3, 4, 6})
        for (int width : {16, 32, 48, 64})
            for (int length : {1, 3, 16, 21, 40}) {
                const int columns = heads * width, capacity = round_up(length, 16), count = 6;
                const auto q = random_floats((size_t)count * columns, 10),
                           bias = random_floats((size_t)heads * 128, 13);
                const auto entries = random_floats((size_t)length * 2 * columns, 11);
                std::vector<std::vector<float>> results, cached_results;
                for (const Kernels* kernels : supported()) {
                    AttentionShape shape{heads, width, width, bias.data(), 128};
                    std::vector<float> keys((size_t)columns * capacity, std::numeric_limits<float>::quiet_NaN());
                    kernels->transpose(entries.data(), 2 * columns, length, columns, keys.data(), capacity);
                    std::vector<float> out((size_t)count * columns),
                        scratch((size_t)std::max(4, round_up(heads, 4)) * capacity);
                    std::vector<float> weights((size_t)count * heads * length);
                    kernels->attend(shape, q.data(), columns, count, keys.data(), capacity, length,
                                    entries.data() + columns, 2 * columns, 50, out.data(), columns, weights.data(),
                                    scratch.data());
                    std::vector<const float*> pointers(length + 3, entries.data());
                    for (int s = 0; s < length; s++) pointers[s] = entries.data() + (size_t)s * 2 * columns;
                    std::vector<float> cached(columns);
                    kernels->attend_cached(shape, q.data(), pointers.data(), length, cached.data(), scratch.data());
                    for (int h = 0; h < heads; h++) {
                        std::vector<std::vector<float>> head_keys, head_values;
                        for (int s = 0; s < length; s++) {
                            const float* entry = entries.data() + (size_t)s * 2 * columns;
                            head_keys.emplace_back(entry + h * width, entry + (h + 1) * width);
                            head_values.emplace_back(entry + columns + h * width, entry + columns + (h + 1) * width);
                        }
                        for (int i = 0; i < count; i++) {
                            std::vector<float> head_q(q.begin() + (size_t)i * columns + h * width,
                                                      q.begin() + (size_t)i * columns + (h + 1) * width);
                            std::vector<float> by_offset, by_distance;
                            for (int s = 0; s < length; s++) {
                                by_offset.push_back(bias[(size_t)h * 128 + 50 + s - i]);
                                by_distance.push_back(bias[(size_t)h * 128 + length - 1 - s]);
                            }
                            const auto expected = plain_attention(head_q, head_keys, head_values, by_offset);
                            for (int c = 0; c < width; c++)
                                CHECK_NEAR((double)out[(size_t)i * columns + h * width + c], expected[c], 2e-5);
                            float sum = 0;
                            for (int s = 0; s < length; s++) sum += weights[((size_t)i * heads + h) * length + s];
                            CHECK_NEAR(sum, 1.0f, 1e-5f);
                            if (i) continue;
                            const auto cached_expected = plain_attention(head_q, head_keys, head_values, by_distance);
                            for (int c = 0; c < width; c++)
                                CHECK_NEAR((double)cached[h * width + c], cached_expected[c], 2e-5);
                        }
                    }
                    results.push_back(out);
                    cached_results.push_back(cached);
                }
                check_same_bits(results);
                check_same_bits(cached_results);
            }
}

TEST(vocabulary_scan_finds_the_best_tokens_and_the_normalization) {
    const int blocks = 3, columns = kVocabularyPanels * kPanel;
    auto logits = random_floats((size_t)blocks * columns, 14, 5);
    logits[100] = logits[700] = 6;  // equal: the lower id comes first
    logits[3] = 7;
    double total = 0;
    for (float logit : logits) total += std::exp((double)logit);
    std::vector<std::vector<float>> results;
    for (const Kernels* kernels : supported()) {
        std::vector<float> copy = logits;
        Candidate best[4];
        VocabularyScan scan{};
        scan.maximum = -3e38f;
        scan.max_candidates = 4;
        scan.best = best;
        const int banned[] = {3};
        for (int b = 0; b < blocks; b++)
            kernels->scan(scan, copy.data() + (size_t)b * columns, columns, b * columns, banned, b == 0 ? 1 : 0);
        CHECK_EQUAL(scan.num_candidates, 4);
        CHECK_EQUAL(best[0].token, 100);
        CHECK_EQUAL(best[1].token, 700);
        CHECK(best[2].logit >= best[3].logit);
        const float log_sum = kernels->log_sum(scan);
        CHECK_NEAR((double)log_sum, std::log(total), 2e-6);
        results.push_back({log_sum});
    }
    check_same_bits(results);
}

TEST(a_logit_that_is_not_a_number_makes_the_normalization_not_a_number) {
    for (uint32_t bits : {0x7fc00000u, 0x7fc00001u, 0x7fc00081u, 0xffc12345u})
        for (size_t index : {0u, 17u, 511u})
            for (const Kernels* kernels : supported()) {
                auto logits = random_floats(512, 15);
                std::memcpy(&logits[index], &bits, 4);
                VocabularyScan scan{};
                scan.maximum = -3e38f;
                kernels->scan(scan, logits.data(), 512, 0, nullptr, 0);
                CHECK(std::isnan(kernels->log_sum(scan)));
            }
}

TEST(weights_of_an_output_are_recovered) {
    const auto weight = random_floats(70 * 41, 16);
    for (bool int8 : {false, true}) {
        Preparation prepared(int8);
        const Linear layer = prepared.vocabulary(weight.data(), nullptr, 70, 41);
        std::vector<float> row(layer.inputs, 9);
        copy_output_weights(layer, 67, 2, row.data());
        for (int k = 0; k < layer.inputs; k++)
            CHECK_NEAR(row[k], k < 41 ? 2 * weight[67 * 41 + k] : 0.0f, int8 ? 0.02f : 0.0f);
        const int some[] = {3, 67};
        SelectedOutputs selected(layer, some, 2);
        copy_output_weights(selected.linear, 1, 2, row.data());
        for (int k = 0; k < 41; k++) CHECK_NEAR(row[k], 2 * weight[67 * 41 + k], int8 ? 0.02f : 0.0f);
    }
}
