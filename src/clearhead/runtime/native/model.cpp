#include "model.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace clearhead {

// ---- Preparing weights

Model::Model(const Settings& s, const Tensors& tensors, const Kernels& k) : settings(s), kernels(k), prepared_(s.int8) {
    if ((int64_t)s.heads * std::max(s.key_width, s.value_width) > 1 << 24)
        throw std::invalid_argument("the heads are too wide");
    const bool is_encoder = s.architecture == Architecture::encoder;
    if (s.has_masked_head && s.has_classifier) throw std::invalid_argument("a model cannot have two heads");
    if (!is_encoder && (s.has_masked_head || s.has_classifier || s.has_pooler))
        throw std::invalid_argument("only encoders have a pooler, a classifier or a head for masked tokens");
    width_ = round_up(s.width, kPanel);
    key_columns_ = s.heads * round_up(s.key_width, kHeadMultiple);
    value_columns_ = s.heads * round_up(s.value_width, kHeadMultiple);
    projected_columns_ = round_up(2 * key_columns_ + value_columns_, kPanel);
    const std::string backbone = is_encoder ? "backbone." : "";
    if (!is_encoder || s.has_masked_head) {
        const float* weight = tensors.get("output.weight", {(size_t)s.vocabulary, (size_t)s.width});
        const float* bias = s.output_bias ? tensors.get("output.bias", {(size_t)s.vocabulary}) : nullptr;
        output = prepared_.vocabulary(weight, bias, s.vocabulary, s.width);
        output_weight_ = weight;
    }
    if (s.architecture == Architecture::encoder_decoder) {
        load_embedding(tensors, "source_embedding.", s.source_vocabulary, source_embedding_);
        load_embedding(tensors, "target_embedding.", s.vocabulary, target_embedding_);
    } else {
        load_embedding(tensors, backbone + "embedding.", s.vocabulary,
                       is_encoder ? source_embedding_ : target_embedding_);
    }
    if (s.architecture != Architecture::decoder)
        load_stack(tensors, backbone + "encoder.", s.encoder_layers, false, encoder_);
    if (!is_encoder)
        load_stack(tensors, "decoder.", s.decoder_layers, s.architecture == Architecture::encoder_decoder, decoder_);
    if (s.positions == Positions::rotary) {
        const std::vector<size_t> shape = {(size_t)s.max_positions, (size_t)s.key_width / 2};
        rotary_cos_ = prepared_.copy(tensors.get("rotary.cos", shape), shape[0] * shape[1]);
        rotary_sin_ = prepared_.copy(tensors.get("rotary.sin", shape), shape[0] * shape[1]);
    }
    if (s.has_pooler) pooler = load_linear(tensors, "backbone.pooler", s.width, s.width, true, false);
    if (s.has_classifier) output = load_linear(tensors, "output", s.labels, s.width, true, false);
    if (s.has_masked_head) {
        transform = load_linear(tensors, "transform", s.width, s.width, true, true);
        transform_norm = load_norm(tensors, "norm");
    }
}

// Returns one matrix of the bundle with its bias, if it has one.
static LinearPart load_part(const Tensors& tensors, const std::string& name, const Axis& outputs, const Axis& inputs,
                            bool has_bias, float factor = 1) {
    const size_t rows = outputs.size(), columns = inputs.size();
    const float* bias = has_bias ? tensors.get(name + ".bias", {rows}) : nullptr;
    return {tensors.get(name + ".weight", {rows, columns}), bias, outputs, factor};
}

Linear Model::load_linear(const Tensors& tensors, const std::string& name, int outputs, int inputs, bool has_bias,
                          bool may_quantize) {
    const Axis in = Axis::plain(inputs);
    return prepared_.linear({load_part(tensors, name, Axis::plain(outputs), in, has_bias)}, in, may_quantize);
}

Norm Model::load_norm(const Tensors& tensors, const std::string& name) {
    const std::vector<size_t> shape = {(size_t)settings.width};
    const float* gain = tensors.get(name + ".weight", shape);
    const bool has_bias = settings.bias && settings.norm != NormKind::rms;
    return {settings.norm, settings.width, settings.norm_epsilon, prepared_.rows(gain, 1, settings.width),
            has_bias ? prepared_.rows(tensors.get(name + ".bias", shape), 1, settings.width) : nullptr};
}

void Model::load_embedding(const Tensors& tensors, const std::string& name, int tokens, Embedding& embedding) {
    const size_t width = settings.width;
    const float* table = tensors.get(name + "tokens.weight", {(size_t)tokens, width});
    embedding.tokens = tokens;
    // Views of one buffer may have different lengths: only a table that is not longer can be shared.
    if (table == output_weight_ && tokens <= output.outputs)
        embedding.tied = &output;
    else if (table == source_table_ && source_embedding_.table && tokens <= source_embedding_.tokens)
        embedding.table = source_embedding_.table;
    else
        embedding.table = prepared_.rows(table, tokens, settings.width);
    if (&embedding == &source_embedding_) source_table_ = table;
    if (settings.positions == Positions::table) {
        const float* positions = tensors.get(name + "positions.weight", {(size_t)settings.max_positions, width});
        embedding.positions = prepared_.rows(positions, settings.max_positions, settings.width);
    }
    if (settings.segments) {
        const float* segments = tensors.get(name + "segments.weight", {(size_t)settings.segments, width});
        embedding.segment = prepared_.rows(segments, 1, settings.width);
    }
    if (settings.embedding_norm) embedding.norm = load_norm(tensors, name + "norm");
}

void Model::load_stack(const Tensors& tensors, const std::string& name, int layers, bool has_cross, Stack& stack) {
    const Settings& s = settings;
    const int key = round_up(s.key_width, kHeadMultiple), value = round_up(s.value_width, kHeadMultiple);
    const Axis stream = Axis::plain(s.width), mixed = {s.heads, s.value_width, value};
    auto query = [&](const std::string& attention) {
        return load_part(tensors, attention + ".query", {s.heads, s.key_width, key}, stream, s.bias, s.query_scale);
    };
    auto keys = [&](const std::string& attention, int start) {
        return load_part(tensors, attention + ".key", {s.heads, s.key_width, key, start}, stream, s.bias);
    };
    auto values = [&](const std::string& attention, int start) {
        return load_part(tensors, attention + ".value", {s.heads, s.value_width, value, start}, stream, s.bias);
    };
    auto output = [&](const std::string& attention) {
        return prepared_.linear({load_part(tensors, attention + ".output", stream, mixed, s.bias)}, mixed);
    };
    for (int i = 0; i < layers; i++) {
        const std::string layer_name = name + "layers." + std::to_string(i) + ".";
        const std::string self = layer_name + "self_attention", cross = layer_name + "cross_attention";
        const std::string inner = layer_name + "feed_forward";
        Layer layer;
        layer.query_key_value =
            prepared_.linear({query(self), keys(self, key_columns_), values(self, 2 * key_columns_)}, stream);
        layer.self_output = output(self);
        layer.self_norm = load_norm(tensors, self + "_residual.norm");
        if (has_cross) {
            layer.query = prepared_.linear({query(cross)}, stream);
            layer.key_value = prepared_.linear({keys(cross, 0), values(cross, key_columns_)}, stream);
            layer.cross_output = output(cross);
            layer.cross_norm = load_norm(tensors, cross + "_residual.norm");
        }
        layer.w1 = load_linear(tensors, inner + ".w1", s.feed_forward, s.width, s.bias, true);
        layer.w2 = load_linear(tensors, inner + ".w2", s.width, s.feed_forward, s.bias, true);
        if (s.gated) layer.w3 = load_linear(tensors, inner + ".w3", s.feed_forward, s.width, s.bias, true);
        layer.feed_forward_norm = load_norm(tensors, inner + "_residual.norm");
        stack.layers.push_back(layer);
    }
    if (s.final_norm) stack.final_norm = load_norm(tensors, name + "norm");
    if (s.positions == Positions::relative) {
        const bool is_encoder = &stack == &encoder_;
        stack.relative_stride = is_encoder ? 2 * s.max_positions - 1 : s.max_positions;
        const size_t heads = s.heads, stride = stack.relative_stride;
        stack.relative_bias = prepared_.copy(tensors.get(name + "relative_bias", {heads, stride}), heads * stride);
    }
}

// ---- Workspace

// Unused numbers between two rows: rows at distances of 4,096 bytes would compete for a few sets of the L1 cache.
constexpr int kRowGap = 16;

Activations Workspace::activations(int count, int width, bool int8) {
    Activations a;
    a.width = width;
    a.stride = width + kRowGap;
    floats_.emplace_back((size_t)count * a.stride);
    a.values = floats_.back().data();
    if (!int8) return a;
    quantized_.emplace_back((size_t)count * a.stride);
    floats_.emplace_back((size_t)count);
    integers_.emplace_back((size_t)count);
    a.integers = quantized_.back().data();
    a.scales = floats_.back().data();
    a.sums = integers_.back().data();
    return a;
}

void Workspace::reserve(const Model& model, int more_rows, int longer) {
    const Settings& s = model.settings;
    // Sizes are set after the allocations: if memory for a buffer is missing, the next call allocates all of them
    // again.
    if (longer > longest) {
        longest = 0;
        const int capacity = round_up(longer, kHeadMultiple);
        scratch.reserve((size_t)std::max(round_up(s.heads, 4), 4) * capacity);
        transposed.reserve((size_t)model.key_columns_ * capacity);
        entries.resize((size_t)longer + 4);
        longest = longer;
    }
    if (more_rows <= rows) return;
    rows = 0;
    floats_.clear();
    quantized_.clear();
    integers_.clear();
    x = activations(more_rows, model.width_, s.int8);
    normed = activations(more_rows, model.width_, s.int8);
    mixed = activations(more_rows, round_up(model.value_columns_, kPanel), s.int8);
    inner = activations(more_rows, round_up(s.feed_forward, kPanel), s.int8);
    projected.reserve((size_t)more_rows * model.projected_columns_);
    logits.reserve((size_t)more_rows * kVocabularyPanels * kPanel);
    rows = more_rows;
}

// ---- Parts of the forward pass

void Model::check_ids(const int32_t* ids, size_t count, int vocabulary) const {
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            throw std::invalid_argument("token id " + std::to_string(ids[i]) + " is outside of the vocabulary of " +
                                        std::to_string(vocabulary) + " tokens");
}

void Model::apply_panels(const Workspace& work, const Linear& layer, int first, int last, const Activations& x,
                         int rows, float* out, int stride, Epilogue epilogue) const {
    if (!work.team) return kernels.linear(x, rows, layer, first, last, epilogue, out, stride);
    work.team->run([&](int member, int members) {
        const int start = first + (last - first) * member / members,
                  end = first + (last - first) * (member + 1) / members;
        kernels.linear(x, rows, layer, start, end, epilogue, out + (start - first) * kPanel, stride);
    });
}

// Computes all outputs of a layer.
void Model::apply(const Workspace& work, const Linear& layer, const Activations& x, int rows, float* out, int stride,
                  Epilogue epilogue) const {
    apply_panels(work, layer, 0, layer.panels, x, rows, out, stride, epilogue);
}

void Model::embed(const Embedding& embedding, int token, int position, float* out) const {
    if (embedding.tied) {
        copy_output_weights(*embedding.tied, token, settings.embedding_scale, out);
    } else {
        const float* row = embedding.table + (size_t)token * width_;
        for (int i = 0; i < width_; i++) out[i] = row[i] * settings.embedding_scale;
    }
    if (embedding.positions) {
        const float* row = embedding.positions + (size_t)position * width_;
        for (int i = 0; i < width_; i++) out[i] += row[i];
    }
    if (embedding.segment)
        for (int i = 0; i < width_; i++) out[i] += embedding.segment[i];
}

void Model::start_stack(Workspace& work, const Embedding& embedding, int rows) const {
    if (embedding.norm.kind != NormKind::none)
        kernels.normalize(embedding.norm, work.x.values, rows, work.x);
    else if (settings.int8 && !settings.pre_norm)
        kernels.quantize(work.x, rows);
}

// Returns the input of a sub-layer: the normalized residual stream (pre-norm) or the stream itself (post-norm).
const Activations& Model::enter(Workspace& work, const Norm& norm, int rows) const {
    if (!settings.pre_norm) return work.x;
    kernels.normalize(norm, work.x.values, rows, work.normed);
    return work.normed;
}

// Adds the last projection of a sub-layer to the residual stream, which post-norm then normalizes.
void Model::leave(Workspace& work, const Linear& layer, Activations& y, const Norm& norm, int rows) const {
    if (settings.int8) kernels.quantize(y, rows);
    apply(work, layer, y, rows, work.x.values, work.x.stride, Epilogue::add);
    if (!settings.pre_norm) kernels.normalize(norm, work.x.values, rows, work.x);
}

void Model::feed_forward(Workspace& work, const Layer& layer, int rows) const {
    const Activations& in = enter(work, layer.feed_forward_norm, rows);
    Activations& inner = work.inner;
    const bool is_relu = settings.activation == Activation::relu;
    apply(work, layer.w1, in, rows, inner.values, inner.stride, is_relu ? Epilogue::relu : Epilogue::store);
    if (!is_relu) kernels.activate(settings.activation, inner.values, (size_t)rows * inner.stride);
    if (settings.gated) apply(work, layer.w3, in, rows, inner.values, inner.stride, Epilogue::multiply);
    leave(work, layer.w2, inner, layer.feed_forward_norm, rows);
}

const Activations& Model::finish_stack(Workspace& work, const Stack& stack, int rows, float scale) const {
    kernels.normalize(stack.final_norm, work.x.values, rows, work.normed);
    if (scale != 1) {
        for (size_t i = 0; i < (size_t)rows * work.normed.stride; i++) work.normed.values[i] *= scale;
        if (settings.int8) kernels.quantize(work.normed, rows);
    }
    return work.normed;
}

// Rotary positions: dimension i of each head is paired with i + key_width / 2.
void Model::rotate(float* x, int position) const {
    const int half = settings.key_width / 2, padded = round_up(settings.key_width, kHeadMultiple);
    const float *cos = rotary_cos_ + (size_t)position * half, *sin = rotary_sin_ + (size_t)position * half;
    for (int h = 0; h < settings.heads; h++, x += padded)
        for (int i = 0; i < half; i++) {
            const float a = x[i], b = x[i + half];
            x[i] = a * cos[i] - b * sin[i];
            x[i + half] = b * cos[i] + a * sin[i];
        }
}

AttentionShape Model::attention_shape(const Stack* stack) const {
    const float* bias = stack ? stack->relative_bias : nullptr;
    return {settings.heads, round_up(settings.key_width, kHeadMultiple), round_up(settings.value_width, kHeadMultiple),
            bias, stack ? stack->relative_stride : 0};
}

// ---- Encoder

const Activations& Model::encode(Workspace& work, const int32_t* ids, const std::vector<int>& lengths) const {
    int rows = 0, longest = 1;
    for (int length : lengths) {
        rows += length;
        longest = std::max(longest, length);
    }
    if (longest > settings.max_positions) throw std::invalid_argument("a sequence is longer than max_positions");
    check_ids(ids, rows, source_embedding_.tokens);
    work.reserve(*this, rows, longest);
    for (int row = 0, i = 0; i < (int)lengths.size(); i++)
        for (int position = 0; position < lengths[i]; position++, row++)
            embed(source_embedding_, ids[row], position, from_row(work.x, row).values);
    start_stack(work, source_embedding_, rows);
    const AttentionShape shape = attention_shape(&encoder_);
    const int stride = projected_columns_;
    for (const Layer& layer : encoder_.layers) {
        const Activations& in = enter(work, layer.self_norm, rows);
        apply(work, layer.query_key_value, in, rows, work.projected.data(), stride);
        int row = 0;
        for (int length : lengths) {
            float* q = work.projected.data() + (size_t)row * stride;
            if (rotary_cos_)
                for (int i = 0; i < length; i++) {
                    rotate(q + (size_t)i * stride, i);
                    rotate(q + (size_t)i * stride + key_columns_, i);
                }
            const int capacity = round_up(length, kHeadMultiple);
            kernels.transpose(q + key_columns_, stride, length, key_columns_, work.transposed.data(), capacity);
            kernels.attend(shape, q, stride, length, work.transposed.data(), capacity, length, q + 2 * key_columns_,
                           stride, settings.max_positions - 1, from_row(work.mixed, row).values, work.mixed.stride,
                           nullptr, work.scratch.data());
            row += length;
        }
        leave(work, layer.self_output, work.mixed, layer.self_norm, rows);
        feed_forward(work, layer, rows);
    }
    return finish_stack(work, encoder_, rows, 1);
}

void Model::attend_to(Workspace& work, const Activations& states, int first, int length, Source& source) const {
    source.length = length;
    source.capacity = round_up(length, kHeadMultiple);
    const size_t keys = (size_t)key_columns_ * source.capacity, layer_size = keys + (size_t)length * value_columns_;
    source.data.reserve(decoder_.layers.size() * layer_size);
    const Activations some = from_row(states, first);
    const int stride = projected_columns_;
    for (size_t i = 0; i < decoder_.layers.size(); i++) {
        const Linear& layer = decoder_.layers[i].key_value;
        float* data = source.data.data() + i * layer_size;
        apply(work, layer, some, length, work.projected.data(), stride);
        kernels.transpose(work.projected.data(), stride, length, key_columns_, data, source.capacity);
        for (int s = 0; s < length; s++)
            std::memcpy(data + keys + (size_t)s * value_columns_,
                        work.projected.data() + (size_t)s * stride + key_columns_,
                        sizeof(float) * (size_t)value_columns_);
    }
}

// ---- Decoder

const Activations& Model::decode(Workspace& work, const std::vector<DecoderRow>& rows, KVCache& cache,
                                 int attention_layer, float* attention) const {
    const int count = (int)rows.size();
    int longest = 1;
    for (const DecoderRow& row : rows) {
        if (row.position < 0 || row.position >= settings.max_positions)
            throw std::invalid_argument("a sequence is longer than max_positions");
        check_ids(&row.token, 1, settings.vocabulary);
        longest = std::max(longest, std::max(row.position + 1, row.source ? row.source->length : 0));
    }
    cache.reserve(longest);
    work.reserve(*this, count, longest);
    for (int r = 0; r < count; r++)
        embed(target_embedding_, rows[r].token, rows[r].position, from_row(work.x, r).values);
    start_stack(work, target_embedding_, count);
    for (int i = 0; i < (int)decoder_.layers.size(); i++) {
        const Layer& layer = decoder_.layers[i];
        self_attention(work, layer, i, rows, cache);
        if (layer.query.panels) cross_attention(work, layer, i, rows, i == attention_layer ? attention : nullptr);
        feed_forward(work, layer, count);
    }
    return finish_stack(work, decoder_, count, settings.output_scale);
}

void Model::self_attention(Workspace& work, const Layer& layer, int index, const std::vector<DecoderRow>& rows,
                           KVCache& cache) const {
    const int count = (int)rows.size(), stride = projected_columns_;
    const AttentionShape shape = attention_shape(&decoder_);
    apply(work, layer.query_key_value, enter(work, layer.self_norm, count), count, work.projected.data(), stride);
    // All rows are stored before any attends: several rows may be positions of one hypothesis.
    for (int r = 0; r < count; r++) {
        float* q = work.projected.data() + (size_t)r * stride;
        if (rotary_cos_) {
            rotate(q, rows[r].position);
            rotate(q + key_columns_, rows[r].position);
        }
        std::copy_n(q + key_columns_, entry_width(), cache.entry(index, rows[r].position, rows[r].slot));
    }
    for (int r = 0; r < count; r++) {
        const DecoderRow& row = rows[r];
        for (int p = 0; p < row.position; p++)
            work.entries[p] = cache.entry(index, p, row.first_slot + row.ancestors[p]);
        // The entry of this row, and three more that the kernel may read.
        std::fill_n(work.entries.begin() + row.position, 4, cache.entry(index, row.position, row.slot));
        kernels.attend_cached(shape, work.projected.data() + (size_t)r * stride, work.entries.data(), row.position + 1,
                              from_row(work.mixed, r).values, work.scratch.data());
    }
    leave(work, layer.self_output, work.mixed, layer.self_norm, count);
}

void Model::cross_attention(Workspace& work, const Layer& layer, int index, const std::vector<DecoderRow>& rows,
                            float* weights) const {
    const int count = (int)rows.size(), stride = projected_columns_;
    const AttentionShape shape = attention_shape(nullptr);
    apply(work, layer.query, enter(work, layer.cross_norm, count), count, work.projected.data(), stride);
    for (int r = 0, end; r < count; r = end) {
        const Source& source = *rows[r].source;
        for (end = r + 1; end < count && rows[end].source == &source;) end++;
        const size_t keys = (size_t)key_columns_ * source.capacity;
        const float* data = source.data.data() + index * (keys + (size_t)source.length * value_columns_);
        kernels.attend(shape, work.projected.data() + (size_t)r * stride, stride, end - r, data, source.capacity,
                       source.length, data + keys, value_columns_, 0, from_row(work.mixed, r).values, work.mixed.stride,
                       weights, work.scratch.data());
        if (weights) weights += (size_t)(end - r) * settings.heads * source.length;
    }
    leave(work, layer.cross_output, work.mixed, layer.cross_norm, count);
}

}  // namespace clearhead
