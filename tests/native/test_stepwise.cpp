// Decoding step by step: every order of its calls gives the log-probabilities of forced decoding.
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "decoding.h"

using namespace clearhead;

namespace {

constexpr int kVocabulary = 601;

std::vector<Shape> generators() { return {translator(), gated_translator(), language_model()}; }

std::vector<Ids> some_sources(const Model& model, const std::vector<int>& lengths) {
    return random_sequences(lengths, has_encoder(model) ? model.settings.source_vocabulary : kVocabulary);
}

// Log-probabilities after `tokens`, decoded alone from the start.
std::vector<float> alone(const Model& model, const Ids& source, const Ids& tokens) {
    Decoder decoder(model, {source}, 1);
    return decoder.step(tokens);
}

std::vector<float> row_of(const std::vector<float>& values, int row, int columns = kVocabulary) {
    return {values.begin() + (size_t)row * columns, values.begin() + (size_t)(row + 1) * columns};
}

}  // namespace

TEST(single_steps_give_the_bits_of_one_long_step) {
    for (const bool int8 : {false, true})
        for (const Shape& shape : generators()) {
            const Model model = random_model(with_int8(shape, int8));
            const std::vector<Ids> sources = some_sources(model, {11, 1, 37});
            const Ids tokens = random_ids(3 * 23, 9, kVocabulary);
            Decoder together(model, sources, 1), single(model, sources, 1);
            const std::vector<float> expected = together.step(tokens, true);
            for (int t = 0; t < 23; t++) {
                const std::vector<float> found = single.step({tokens[t], tokens[23 + t], tokens[46 + t]});
                for (int row = 0; row < 3; row++) CHECK(is_same(row_of(found, row), row_of(expected, row * 23 + t)));
            }
        }
}

TEST(scores_of_targets_are_the_log_probabilities_of_steps) {
    for (const bool int8 : {false, true})
        for (const Shape& shape : generators()) {
            const Model model = random_model(with_int8(shape, int8));
            const std::vector<int> lengths = {7, 1, 37, 19, 2, 11, 37, 37, 37, 37, 37, 37};
            const std::vector<Ids> targets = random_sequences(lengths, kVocabulary, 5);
            const std::vector<Ids> sources = has_encoder(model)
                                                 ? some_sources(model, {5, 37, 1, 13, 29, 31, 37, 37, 37, 37, 37, 37})
                                                 : random_sequences(lengths, kVocabulary, 6);
            std::vector<float> expected;
            for (size_t i = 0; i < targets.size(); i++) {
                Ids inputs = sources[i];
                if (has_encoder(model)) {
                    inputs = {kStart};
                    inputs.insert(inputs.end(), targets[i].begin(), targets[i].end() - 1);
                }
                Decoder decoder(model, {sources[i]}, 1);
                const std::vector<float> log_probs = decoder.step(inputs, true);
                for (size_t t = 0; t < inputs.size(); t++)
                    expected.push_back(log_probs[t * kVocabulary + targets[i][t]]);
            }
            CHECK(is_same(score(model, sources, targets), expected));
            CHECK(is_same(score(model, sources, targets, 3), expected));
        }
}

TEST(reordered_and_repeated_rows_continue_their_own_tokens) {
    for (const bool int8 : {false, true})
        for (const Shape& shape : generators()) {
            const Model model = random_model(with_int8(shape, int8));
            const std::vector<Ids> sources = some_sources(model, {11, 1, 17});
            Decoder decoder(model, sources, 1);
            std::vector<Ids> tokens(3);  // by row: what its hypothesis has
            std::vector<int> sentences = {0, 1, 2};
            Random random(11);
            auto step = [&](int count) {
                Ids inputs;
                for (Ids& row : tokens)
                    for (int t = 0; t < count; t++) {
                        row.push_back(random.below(kVocabulary));
                        inputs.push_back(row.back());
                    }
                const std::vector<float> found = decoder.step(inputs);
                for (size_t row = 0; row < tokens.size(); row++)
                    CHECK(is_same(row_of(found, (int)row), alone(model, sources[sentences[row]], tokens[row])));
            };
            auto reorder = [&](const Ids& rows) {
                std::vector<Ids> next_tokens;
                std::vector<int> next_sentences;
                for (int32_t row : rows) {
                    next_tokens.push_back(tokens[row]);
                    next_sentences.push_back(sentences[row]);
                }
                tokens = next_tokens;
                sentences = next_sentences;
                decoder.reorder(rows);
            };
            step(1);
            reorder({2, 0});
            step(3);
            reorder({0, 0, 0, 1, 1, 1});  // more rows than there were slots
            step(1);
            reorder({5, 1, 1, 3, 0, 2, 4, 4, 4});
            step(2);
            reorder({8, 8, 1});
            step(17);  // beyond the positions of one chunk of the cache
            reorder({0, 0, 1, 1, 2, 2, 0, 1, 2, 0, 1});
            step(1);
        }
}

TEST(restricted_steps_are_normalized_over_their_tokens) {
    for (const bool int8 : {false, true})
        for (const Shape& shape : generators()) {
            const Model model = random_model(with_int8(shape, int8));
            const std::vector<Ids> sources = some_sources(model, {11, 1}), lists = {{3, 7, 500, 600}, {5, 599}};
            Decoder free(model, sources, 2), restricted(model, sources, 2);
            restricted.restrict(lists);
            const Ids tokens = random_ids(4 * 2, 13, kVocabulary);
            const std::vector<float> all = free.step(tokens, true), found = restricted.step(tokens, true);
            CHECK_EQUAL(found.size(), size_t{4 * 2 * 4});
            for (int block = 0; block < 8; block++) {
                const Ids& list = lists[block / 4];
                double total = 0;
                for (int32_t token : list) total += std::exp((double)all[block * kVocabulary + token]);
                for (int i = 0; i < 4; i++) {
                    if (i < (int)list.size())
                        CHECK_NEAR((double)found[block * 4 + i],
                                   (double)all[block * kVocabulary + list[i]] - std::log(total), 1e-4);
                    else
                        CHECK_EQUAL(found[block * 4 + i], -std::numeric_limits<float>::infinity());
                }
            }
        }
}

TEST(attention_of_each_head_sums_to_one) {
    const Model model = random_model(translator());
    const int heads = model.settings.heads;
    Decoder decoder(model, random_sequences({11, 11}, 43), 1);
    std::vector<float> attention((size_t)2 * 3 * heads * 11);
    decoder.step(random_ids(2 * 3, 3, kVocabulary), false, 1, &attention);
    for (int block = 0; block < 2 * 3 * heads; block++) {
        double total = 0;
        for (int s = 0; s < 11; s++) total += attention[block * 11 + s];
        CHECK_NEAR(total, 1.0, 1e-5);
    }
    for (int layer : {-1, 3}) CHECK_THROWS(std::invalid_argument, decoder.step({5, 7}, false, layer, &attention));
}

TEST(wrong_steps_throw_and_change_nothing) {
    for (const Shape& shape : generators()) {
        const Model model = random_model(shape);
        const std::vector<Ids> sources = some_sources(model, {11, 1});
        Decoder decoder(model, sources, 1);
        decoder.step({5, 7});
        CHECK_THROWS(std::invalid_argument, decoder.step({5, kVocabulary}));
        CHECK_THROWS(std::invalid_argument, decoder.step({-1, 5}));
        CHECK_THROWS(std::invalid_argument, decoder.step({}));
        CHECK_THROWS(std::invalid_argument, decoder.step(Ids(2 * 37, 5)));
        for (const Ids& rows : std::vector<Ids>{{}, {0, 1, 2}, {2}, {-1}, Ids(65536, 0)})
            CHECK_THROWS(std::invalid_argument, decoder.reorder(rows));
        const std::vector<std::vector<Ids>> wrong_lists = {{{5}}, {{5, 7}, {}}, {{}, {5}}, {{5}, {601}}, {{-1}, {5}}};
        for (const std::vector<Ids>& lists : wrong_lists) CHECK_THROWS(std::invalid_argument, decoder.restrict(lists));
        CHECK_EQUAL(decoder.state->num_outputs, kVocabulary);
        const std::vector<float> found = decoder.step({11, 13});
        CHECK(is_same(row_of(found, 0), alone(model, sources[0], {5, 11})));
        CHECK(is_same(row_of(found, 1), alone(model, sources[1], {7, 13})));
    }
}

TEST(wrong_starts_and_targets_throw) {
    const Model model = random_model(translator()), writer = random_model(language_model());
    for (const std::vector<Ids>& sources : std::vector<std::vector<Ids>>{{}, {{}}, {{43}}, {{5}, {-1}}, {Ids(38, 5)}})
        CHECK_THROWS(std::invalid_argument, Decoder(model, sources, 1));
    for (int width : {0, -1, 65536, std::numeric_limits<int>::max()}) {
        CHECK_THROWS(std::invalid_argument, Decoder(model, {{5}}, width));
        CHECK_THROWS(std::invalid_argument, Decoder(writer, {{5}}, width));
    }
    CHECK_THROWS(std::invalid_argument, Decoder(random_model(text_encoder(true)), {{5}}, 1));
    CHECK_THROWS(std::invalid_argument, score(model, {{5}}, {{601}}));
    CHECK_THROWS(std::invalid_argument, score(model, {{5}}, {{}}));
    CHECK_THROWS(std::invalid_argument, score(model, {{43}}, {{5}}));
    CHECK_THROWS(std::invalid_argument, score(model, {{5}, {7}}, {{5}}));
    CHECK_THROWS(std::invalid_argument, score(model, {{5}}, {Ids(38, 5)}));
    CHECK_THROWS(std::invalid_argument, score(writer, {}, {{5, 601}}, 3));
}
