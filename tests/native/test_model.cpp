// Loading of weights, and the forward pass against plain loops in double precision.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "decoding.h"

using namespace clearhead;

namespace {

using Matrix = std::vector<std::vector<double>>;

// y = W x + b of every row.
Matrix linear(const RandomTensors& tensors, const std::string& name, const Matrix& x) {
    const Array &weight = tensors.arrays.at(name + ".weight"), &bias = tensors.arrays.at(name + ".bias");
    Matrix y(x.size(), std::vector<double>(weight.shape[0]));
    for (size_t row = 0; row < x.size(); row++)
        for (size_t n = 0; n < weight.shape[0]; n++) {
            y[row][n] = bias.values[n];
            for (size_t k = 0; k < weight.shape[1]; k++)
                y[row][n] += x[row][k] * weight.values[n * weight.shape[1] + k];
        }
    return y;
}

Matrix layer_norm(const RandomTensors& tensors, const std::string& name, const Matrix& x) {
    const Array &gain = tensors.arrays.at(name + ".weight"), &bias = tensors.arrays.at(name + ".bias");
    Matrix y = x;
    for (std::vector<double>& row : y) {
        double mean = 0, variance = 0;
        for (double value : row) mean += value / (double)row.size();
        for (double value : row) variance += (value - mean) * (value - mean) / (double)row.size();
        for (size_t i = 0; i < row.size(); i++)
            row[i] = (row[i] - mean) / std::sqrt(variance + 1e-5) * gain.values[i] + bias.values[i];
    }
    return y;
}

// Attention of the rows of `x` to those of `memory`; causal: to those up to their own position.
Matrix attention(const RandomTensors& tensors, const Settings& s, const std::string& name, const Matrix& x,
                 const Matrix& memory, bool is_causal) {
    const Matrix q = linear(tensors, name + ".query", x), k = linear(tensors, name + ".key", memory);
    const Matrix v = linear(tensors, name + ".value", memory);
    Matrix mixed(x.size(), std::vector<double>((size_t)s.heads * s.value_width));
    for (size_t i = 0; i < x.size(); i++)
        for (int h = 0; h < s.heads; h++) {
            const size_t count = is_causal ? i + 1 : memory.size();
            std::vector<double> weights(count);
            double total = 0;
            for (size_t j = 0; j < count; j++) {
                double product = 0;
                for (int c = h * s.key_width; c < (h + 1) * s.key_width; c++) product += q[i][c] * k[j][c];
                weights[j] = std::exp(product * s.query_scale);
                total += weights[j];
            }
            for (size_t j = 0; j < count; j++)
                for (int c = h * s.value_width; c < (h + 1) * s.value_width; c++)
                    mixed[i][c] += weights[j] / total * v[j][c];
        }
    return linear(tensors, name + ".output", mixed);
}

void add(Matrix& x, const Matrix& y) {
    for (size_t row = 0; row < x.size(); row++)
        for (size_t i = 0; i < x[row].size(); i++) x[row][i] += y[row][i];
}

// A pre-norm stack with ReLU and a table of positions; `memory` null: an encoder.
Matrix run_stack(const RandomTensors& tensors, const Settings& s, const std::string& name, Matrix x,
                 const Matrix* memory) {
    const int layers = memory ? s.decoder_layers : s.encoder_layers;
    for (int i = 0; i < layers; i++) {
        const std::string layer = name + ".layers." + std::to_string(i) + ".";
        const Matrix normed = layer_norm(tensors, layer + "self_attention_residual.norm", x);
        add(x, attention(tensors, s, layer + "self_attention", normed, normed, memory != nullptr));
        if (memory) {
            const Matrix query = layer_norm(tensors, layer + "cross_attention_residual.norm", x);
            add(x, attention(tensors, s, layer + "cross_attention", query, *memory, false));
        }
        Matrix inner =
            linear(tensors, layer + "feed_forward.w1", layer_norm(tensors, layer + "feed_forward_residual.norm", x));
        for (std::vector<double>& row : inner)
            for (double& value : row) value = std::max(value, 0.0);
        add(x, linear(tensors, layer + "feed_forward.w2", inner));
    }
    return layer_norm(tensors, name + ".norm", x);
}

Matrix embed(const RandomTensors& tensors, const Settings& s, const std::string& table, const std::string& name,
             const Ids& ids) {
    const std::vector<float>& tokens = tensors.arrays.at(table).values;
    const std::vector<float>& positions = tensors.arrays.at(name + ".positions.weight").values;
    Matrix x(ids.size(), std::vector<double>(s.width));
    for (size_t i = 0; i < ids.size(); i++)
        for (int c = 0; c < s.width; c++)
            x[i][c] = s.embedding_scale * tokens[(size_t)ids[i] * s.width + c] + positions[i * s.width + c];
    return x;
}

Model build(const Shape& shape, const RandomTensors& tensors) {
    return Model(shape.settings, tensors.view(), select_kernels(nullptr));
}

// The tensor that building a model of these settings leaves unread; empty: none.
std::string unused(const Settings& settings, const RandomTensors& tensors) {
    const Tensors view = tensors.view();
    const Model model(settings, view, select_kernels(nullptr));
    return view.unused();
}

std::vector<Shape> all_shapes() {
    return {translator(), gated_translator(), language_model(), text_encoder(true), text_encoder(false)};
}

}  // namespace

TEST(encoder_is_that_of_plain_loops) {
    const Shape shape = translator();
    const RandomTensors tensors(shape);
    const Model model = build(shape, tensors);
    const Ids source = random_ids(17, 5, shape.settings.source_vocabulary);
    const std::vector<float> found = encode_texts(model, {source}, EncoderOutput::states);
    const Matrix x = embed(tensors, shape.settings, "source_embedding.tokens.weight", "source_embedding", source);
    const Matrix expected = run_stack(tensors, shape.settings, "encoder", x, nullptr);
    for (size_t row = 0; row < source.size(); row++)
        for (int c = 0; c < shape.settings.width; c++)
            CHECK_NEAR((double)found[row * shape.settings.width + c], expected[row][c], 2e-4);
}

TEST(decoder_is_that_of_plain_loops) {
    const Shape shape = translator();
    const RandomTensors tensors(shape);
    const Settings& s = shape.settings;
    const Ids source = random_ids(13, 5, s.source_vocabulary), target = random_ids(7, 6, s.vocabulary);
    const Matrix memory =
        run_stack(tensors, s, "encoder",
                  embed(tensors, s, "source_embedding.tokens.weight", "source_embedding", source), nullptr);
    const Matrix states =
        run_stack(tensors, s, "decoder", embed(tensors, s, "output.weight", "target_embedding", target), &memory);
    const Matrix logits = linear(tensors, "output", states);
    const Model model = build(shape, tensors);
    Decoder decoder(model, {source}, 1);
    const std::vector<float> found = decoder.step(target, true);
    for (size_t row = 0; row < target.size(); row++) {
        double total = 0;
        for (double logit : logits[row]) total += std::exp(logit);
        for (int token = 0; token < s.vocabulary; token++)
            CHECK_NEAR((double)found[row * s.vocabulary + token], logits[row][token] - std::log(total), 5e-4);
    }
}

TEST(every_tensor_is_needed) {
    for (const Shape& shape : all_shapes()) {
        const RandomTensors whole(shape);
        build(shape, whole);
        for (const auto& [name, array] : whole.arrays) {
            RandomTensors damaged = whole;
            if (name == "output.weight") damaged.tied.clear();
            damaged.arrays.erase(name);
            CHECK_THROWS(std::invalid_argument, build(shape, damaged));
        }
    }
}

TEST(tensors_of_other_settings_are_refused) {
    for (const Shape& shape : all_shapes()) {
        const RandomTensors whole(shape);
        const auto fits = [&](const Settings& settings) {
            try {
                return unused(settings, whole).empty();
            } catch (const std::invalid_argument&) {
                return false;
            }
        };
        for (Positions kind : {Positions::none, Positions::table, Positions::relative, Positions::rotary}) {
            Settings settings = shape.settings;
            settings.positions = kind;
            CHECK_EQUAL(fits(settings), kind == shape.settings.positions);
        }
        Settings settings = shape.settings;
        settings.bias = !settings.bias;
        CHECK(!fits(settings));
        settings = shape.settings;
        settings.output_bias = !settings.output_bias;
        CHECK_EQUAL(fits(settings), settings.has_classifier);  // a classifier always has a bias
    }
}

TEST(heads_that_do_not_belong_to_the_model_throw) {
    for (const Shape& shape : {translator(), language_model()})
        for (bool Settings::* head : {&Settings::has_masked_head, &Settings::has_classifier, &Settings::has_pooler}) {
            Shape wrong = shape;
            wrong.settings.labels = wrong.settings.vocabulary;  // the tensors fit both heads
            wrong.settings.*head = true;
            CHECK_THROWS(std::invalid_argument, random_model(wrong));
        }
    Shape both = text_encoder(true);
    both.settings.labels = both.settings.vocabulary;
    both.settings.has_masked_head = both.settings.has_classifier = true;
    CHECK_THROWS(std::invalid_argument, random_model(both));
}

TEST(tensors_of_other_shapes_throw) {
    for (const Shape& shape : all_shapes()) {
        const RandomTensors whole(shape);
        for (const auto& [name, array] : whole.arrays) {
            RandomTensors damaged = whole;
            damaged.arrays.at(name).shape.back()++;
            CHECK_THROWS(std::invalid_argument, build(shape, damaged));
            damaged.arrays.at(name).shape = {array.values.size(), 1, 1};
            CHECK_THROWS(std::invalid_argument, build(shape, damaged));
            damaged.arrays.at(name).shape = {};
            CHECK_THROWS(std::invalid_argument, build(shape, damaged));
        }
    }
}

TEST(tensor_that_no_layer_reads_is_reported) {
    for (const Shape& shape : all_shapes()) {
        RandomTensors tensors(shape);
        Tensors exact = tensors.view();
        Model model(shape.settings, exact, select_kernels(nullptr));
        CHECK_EQUAL(exact.unused(), std::string());
        tensors.arrays["decoder.layers.97.norm.weight"] = {{2}, {1, 2}};
        const Tensors more = tensors.view();
        Model same(shape.settings, more, select_kernels(nullptr));
        CHECK_EQUAL(more.unused(), std::string("decoder.layers.97.norm.weight"));
    }
}

TEST(tied_table_gives_the_results_of_a_copy) {
    const Shape tied = translator();
    Shape separate = tied;
    separate.is_tied = false;
    const RandomTensors tensors(tied);
    RandomTensors copied = tensors;
    copied.tied.clear();
    copied.arrays["target_embedding.tokens.weight"] = tensors.arrays.at("output.weight");
    const Model model = build(tied, tensors), other = build(separate, copied);
    const std::vector<Ids> sources = random_sequences({11}, 43), targets = random_sequences({7}, 601);
    CHECK(is_same(score(model, sources, targets), score(other, sources, targets)));
    CHECK(model.weight_bytes() < other.weight_bytes());
}

// One buffer may be seen as tables of different lengths; only the shorter one may be shared.
TEST(longer_view_of_the_same_table_is_not_tied) {
    Shape shape = translator();
    shape.settings.vocabulary = 5;
    shape.settings.source_vocabulary = 1009;
    RandomTensors tensors(shape);
    tensors.tied.clear();
    const Array long_table = tensors.arrays.at("source_embedding.tokens.weight");
    const Array short_table = {{5, 23}, {long_table.values.begin(), long_table.values.begin() + 5 * 23}};
    tensors.arrays["output.weight"] = tensors.arrays["target_embedding.tokens.weight"] = short_table;
    const Model copied = build(shape, tensors);
    Tensors views = tensors.view();
    const float* data = tensors.arrays.at("source_embedding.tokens.weight").values.data();
    for (const char* name : {"output.weight", "target_embedding.tokens.weight"}) views.add(name, {data, {5, 23}});
    const Model model(shape.settings, views, select_kernels(nullptr));
    const std::vector<Ids> sources = {{1008, 7, 601, 4}}, targets = {{4, 1, 2}};
    CHECK(is_same(score(model, sources, targets), score(copied, sources, targets)));
}

TEST(longer_target_view_of_the_source_table_is_not_shared) {
    const Shape shape = translator();
    RandomTensors tensors(shape);
    tensors.tied["target_embedding.tokens.weight"] = "all";
    tensors.arrays["all"] = tensors.arrays.at("output.weight");
    Tensors views = tensors.view();
    const float* data = tensors.arrays.at("all").values.data();
    views.add("source_embedding.tokens.weight", {data, {43, 23}});
    const Model model(shape.settings, views, select_kernels(nullptr));
    tensors.arrays.at("source_embedding.tokens.weight").values.assign(data, data + 43 * 23);
    const Model copied = build(shape, tensors);
    const std::vector<Ids> sources = {{42, 7, 1}}, targets = {{600, 44, 2}};
    CHECK(is_same(score(model, sources, targets), score(copied, sources, targets)));
}

TEST(outputs_of_encoders_in_a_batch_are_those_alone) {
    for (const bool int8 : {false, true})
        for (const Shape& shape : {text_encoder(true), text_encoder(false), translator(), gated_translator()}) {
            const Model model = random_model(with_int8(shape, int8));
            const bool has_labels = shape.settings.has_classifier;
            const std::vector<Ids> texts = random_sequences({1, 37, 5, 23, 31, 2, 37, 37, 37, 37, 37, 37}, 43);
            for (EncoderOutput kind : {EncoderOutput::states, EncoderOutput::mean, EncoderOutput::pooled,
                                       EncoderOutput::classes, EncoderOutput::tags}) {
                if (!has_labels && (kind == EncoderOutput::classes || kind == EncoderOutput::tags)) continue;
                std::vector<float> alone;
                for (const Ids& text : texts)
                    for (float value : encode_texts(model, {text}, kind)) alone.push_back(value);
                CHECK(is_same(encode_texts(model, texts, kind), alone));
                CHECK(is_same(encode_texts(model, texts, kind, 3), alone));
            }
        }
}

TEST(masked_predictions_in_a_batch_are_those_alone) {
    for (const bool int8 : {false, true}) {
        const Model model = random_model(with_int8(text_encoder(false), int8));
        const std::vector<Ids> texts = random_sequences({7, 37, 1, 37, 37, 37, 37, 37, 37, 37}, 601);
        std::vector<float> alone;
        std::vector<int> rows;
        int start = 0;
        for (const Ids& text : texts) {
            const int row = (int)text.size() / 2;
            for (float value : predict_masked(model, {text}, {row})) alone.push_back(value);
            rows.push_back(start + row);
            start += (int)text.size();
        }
        CHECK(is_same(predict_masked(model, texts, rows), alone));
        CHECK(is_same(predict_masked(model, texts, rows, 3), alone));
        double total = 0;
        for (int token = 0; token < 601; token++) total += std::exp((double)alone[token]);
        CHECK_NEAR(total, 1.0, 1e-4);
    }
}

TEST(wrong_texts_throw) {
    const Model labels = random_model(text_encoder(true)), masked = random_model(text_encoder(false));
    const Model writer = random_model(language_model());
    const EncoderOutput states = EncoderOutput::states;
    CHECK_THROWS(std::invalid_argument, encode_texts(labels, {{5, 601}}, states));
    CHECK_THROWS(std::invalid_argument, encode_texts(labels, {{5}, {-1}}, states));
    CHECK_THROWS(std::invalid_argument, encode_texts(labels, {{5}, {}}, states));
    CHECK_THROWS(std::invalid_argument, encode_texts(labels, {Ids(38, 5)}, states));
    CHECK_THROWS(std::invalid_argument, encode_texts(labels, {{5}, {601}}, states, 3));
    CHECK_THROWS(std::invalid_argument, encode_texts(masked, {{5}}, EncoderOutput::classes));
    CHECK_THROWS(std::invalid_argument, encode_texts(masked, {{5}}, EncoderOutput::tags));
    CHECK_THROWS(std::invalid_argument, encode_texts(writer, {{5}}, states));
    CHECK_THROWS(std::invalid_argument, predict_masked(labels, {{5}}, {0}));
    CHECK_THROWS(std::invalid_argument, predict_masked(masked, {{5}}, {1}));
    CHECK_THROWS(std::invalid_argument, predict_masked(masked, {{5}}, {-1}));
    CHECK_THROWS(std::invalid_argument, predict_masked(masked, {{5, 6, 7}}, {2, 1}));
    CHECK_THROWS(std::invalid_argument, predict_masked(masked, {{5, 601}}, {0}));
}
