// Small models with seeded random weights. Sizes are distinct primes, so that swapped axes fail.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dispatch.h"
#include "model.h"

// A linear congruential generator: the same numbers with every compiler and standard library.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 2862933555777941757u + 3037000493u) {}
    uint32_t next() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return (uint32_t)(state_ >> 32);
    }
    int below(int n) { return (int)(next() % (uint32_t)n); }
    float symmetric() { return (float)(next() >> 8) * 0x1p-23f - 1; }  // in [-1, 1)

  private:
    uint64_t state_;
};

inline std::vector<int32_t> random_ids(int length, uint64_t seed, int vocabulary) {
    Random random(seed);
    std::vector<int32_t> ids(length);
    for (int32_t& id : ids) id = random.below(vocabulary);
    return ids;
}

struct Shape {
    clearhead::Settings settings;
    bool is_tied = false;  // one table for the output and the target's embeddings
};

struct Array {
    std::vector<size_t> shape;
    std::vector<float> values;
};

// All tensors of a model. Tests remove, add and reshape some of them.
class RandomTensors {
  public:
    explicit RandomTensors(const Shape& shape, uint64_t seed = 1) : random_(seed) {
        const clearhead::Settings& s = shape.settings;
        const bool is_encoder = s.architecture == clearhead::Architecture::encoder;
        const size_t width = s.width, vocabulary = s.vocabulary;
        const std::string backbone = is_encoder ? "backbone." : "";
        if (!is_encoder || s.has_masked_head) add_linear("output", vocabulary, width, s.output_bias);
        if (s.architecture == clearhead::Architecture::encoder_decoder) {
            add_embedding("source_embedding.", s, s.source_vocabulary, false);
            add_embedding("target_embedding.", s, s.vocabulary, shape.is_tied);
        } else {
            add_embedding(backbone + "embedding.", s, s.vocabulary, shape.is_tied);
        }
        if (s.architecture != clearhead::Architecture::decoder)
            add_stack(backbone + "encoder.", s, s.encoder_layers, false, 2 * s.max_positions - 1);
        if (!is_encoder)
            add_stack("decoder.", s, s.decoder_layers, s.architecture != clearhead::Architecture::decoder,
                      s.max_positions);
        if (s.positions == clearhead::Positions::rotary)
            for (const char* name : {"rotary.cos", "rotary.sin"})
                add(name, {(size_t)s.max_positions, (size_t)s.key_width / 2});
        if (s.has_pooler) add_linear("backbone.pooler", width, width, true);
        if (s.has_classifier) add_linear("output", s.labels, width, true);
        if (s.has_masked_head) {
            add_linear("transform", width, width, true);
            add_norm("norm", s);
        }
    }

    // The tensors as the core sees them; they stay in this object.
    clearhead::Tensors view() const {
        clearhead::Tensors tensors;
        for (const auto& [name, array] : arrays) tensors.add(name, {array.values.data(), array.shape});
        for (const auto& [name, other] : tied)
            tensors.add(name, {arrays.at(other).values.data(), arrays.at(other).shape});
        return tensors;
    }

    std::map<std::string, Array> arrays;
    std::map<std::string, std::string> tied;  // name -> name of the array

  private:
    void add(const std::string& name, std::vector<size_t> shape, float scale = 0.5f, float center = 0) {
        size_t size = 1;
        for (size_t n : shape) size *= n;
        Array& array = arrays[name] = {std::move(shape), std::vector<float>(size)};
        for (float& value : array.values) value = center + scale * random_.symmetric();
    }
    void add_linear(const std::string& name, size_t outputs, size_t inputs, bool has_bias) {
        add(name + ".weight", {outputs, inputs});
        if (has_bias) add(name + ".bias", {outputs});
    }
    void add_norm(const std::string& name, const clearhead::Settings& s) {
        add(name + ".weight", {(size_t)s.width}, 0.5f, 1);
        if (s.bias && s.norm != clearhead::NormKind::rms) add(name + ".bias", {(size_t)s.width});
    }
    void add_embedding(const std::string& name, const clearhead::Settings& s, size_t tokens, bool is_tied) {
        const size_t width = s.width;
        if (is_tied)
            tied[name + "tokens.weight"] = "output.weight";
        else
            add(name + "tokens.weight", {tokens, width});
        if (s.positions == clearhead::Positions::table)
            add(name + "positions.weight", {(size_t)s.max_positions, width});
        if (s.segments) add(name + "segments.weight", {(size_t)s.segments, width});
        if (s.embedding_norm) add_norm(name + "norm", s);
    }
    void add_stack(const std::string& name, const clearhead::Settings& s, int layers, bool has_cross, int offsets) {
        const size_t width = s.width, heads = s.heads, keys = heads * s.key_width, values = heads * s.value_width;
        for (int i = 0; i < layers; i++) {
            const std::string layer = name + "layers." + std::to_string(i) + ".";
            for (const char* kind : {"self_attention", "cross_attention"}) {
                if (!has_cross && std::string(kind) == "cross_attention") continue;
                add_linear(layer + kind + ".query", keys, width, s.bias);
                add_linear(layer + kind + ".key", keys, width, s.bias);
                add_linear(layer + kind + ".value", values, width, s.bias);
                add_linear(layer + kind + ".output", width, values, s.bias);
                add_norm(layer + kind + "_residual.norm", s);
            }
            add_linear(layer + "feed_forward.w1", s.feed_forward, width, s.bias);
            add_linear(layer + "feed_forward.w2", width, s.feed_forward, s.bias);
            if (s.gated) add_linear(layer + "feed_forward.w3", s.feed_forward, width, s.bias);
            add_norm(layer + "feed_forward_residual.norm", s);
        }
        if (s.final_norm) add_norm(name + "norm", s);
        if (s.positions == clearhead::Positions::relative) add(name + "relative_bias", {heads, (size_t)offsets});
    }

    Random random_;
};

inline Shape base_shape(clearhead::Architecture architecture) {
    Shape shape;
    clearhead::Settings& s = shape.settings;
    s.architecture = architecture;
    s.encoder_layers = architecture == clearhead::Architecture::decoder ? 0 : 2;
    s.decoder_layers = architecture == clearhead::Architecture::encoder ? 0 : 3;
    s.width = 23;
    s.feed_forward = 29;
    s.heads = 5;
    s.key_width = 7;
    s.value_width = 11;
    s.vocabulary = 601;  // more than the softmax takes at a time
    s.source_vocabulary = 43;
    s.max_positions = 37;
    s.query_scale = 0.375f;
    s.output_bias = true;
    return shape;
}

// A translator in the paper's form, with one table for targets and output.
inline Shape translator() {
    Shape shape = base_shape(clearhead::Architecture::encoder_decoder);
    shape.is_tied = true;
    return shape;
}

// A translator in T5's form.
inline Shape gated_translator() {
    Shape shape = base_shape(clearhead::Architecture::encoder_decoder);
    shape.settings.positions = clearhead::Positions::relative;
    shape.settings.bias = false;
    shape.settings.norm = clearhead::NormKind::rms;
    shape.settings.activation = clearhead::Activation::gelu_tanh;
    shape.settings.gated = true;
    shape.settings.output_scale = 0.75f;
    return shape;
}

inline Shape language_model() {
    Shape shape = base_shape(clearhead::Architecture::decoder);
    shape.settings.positions = clearhead::Positions::rotary;
    shape.settings.activation = clearhead::Activation::silu;
    return shape;
}

// An encoder in BERT's form, with a masked-token head or with labels.
inline Shape text_encoder(bool has_labels) {
    Shape shape = base_shape(clearhead::Architecture::encoder);
    clearhead::Settings& s = shape.settings;
    s.pre_norm = s.final_norm = false;
    s.embedding_norm = true;
    s.segments = 2;
    s.activation = clearhead::Activation::gelu;
    s.has_masked_head = !has_labels;
    s.has_classifier = s.has_pooler = has_labels;
    s.labels = has_labels ? 3 : 0;
    return shape;
}

inline Shape with_int8(Shape shape, bool int8 = true) {
    shape.settings.int8 = int8;
    return shape;
}

inline clearhead::Model random_model(const Shape& shape, uint64_t seed = 1, const char* isa = nullptr) {
    return clearhead::Model(shape.settings, RandomTensors(shape, seed).view(), clearhead::select_kernels(isa));
}
