#include "decoding_step.h"

#include <algorithm>
#include <cmath>
#include <deque>

namespace clearhead {

namespace {

// Named tensors with random values.
class RandomTensors {
  public:
    const float* add(const std::string& name, std::vector<size_t> shape) {
        size_t count = 1;
        for (size_t n : shape) count *= n;
        const float range = std::sqrt(3.0f / (float)shape.back());
        std::vector<float>& values = values_.emplace_back(count);
        for (float& value : values) {
            state_ = state_ * 1664525u + 1013904223u;
            value = range * ((float)(state_ >> 8) / 8388608.0f - 1.0f);
        }
        tensors.add(name, {values.data(), std::move(shape)});
        return values.data();
    }
    void add_linear(const std::string& name, size_t outputs, size_t inputs) {
        add(name + ".weight", {outputs, inputs});
        add(name + ".bias", {outputs});
    }
    void add_norm(const std::string& name, size_t width) {
        add(name + ".weight", {width});
        add(name + ".bias", {width});
    }

    Tensors tensors;

  private:
    std::deque<std::vector<float>> values_;
    uint32_t state_ = 1;
};

Settings settings_of(const Shape& shape, bool int8) {
    Settings s;
    s.decoder_layers = shape.layers;
    s.width = shape.width;
    s.feed_forward = shape.inner;
    s.heads = shape.heads;
    s.key_width = s.value_width = shape.width / shape.heads;
    s.vocabulary = s.source_vocabulary = shape.vocabulary;
    s.max_positions = std::max(kPositions, kSourceLength);
    s.query_scale = 1 / std::sqrt((float)s.key_width);
    s.embedding_scale = std::sqrt((float)s.width);
    s.int8 = int8;
    return s;
}

}  // namespace

std::unique_ptr<Model> random_model(const Shape& shape, bool int8, const Kernels& kernels) {
    const Settings settings = settings_of(shape, int8);
    const size_t width = shape.width, inner = shape.inner, mixed = (size_t)settings.heads * settings.key_width;
    RandomTensors random;
    const float* table = random.add("output.weight", {(size_t)shape.vocabulary, width});
    for (const char* side : {"source_embedding.", "target_embedding."}) {
        random.tensors.add(side + std::string("tokens.weight"), {table, {(size_t)shape.vocabulary, width}});
        random.add(side + std::string("positions.weight"), {(size_t)settings.max_positions, width});
    }
    for (int i = 0; i < shape.layers; i++) {
        const std::string layer = "decoder.layers." + std::to_string(i) + ".";
        for (const char* attention : {"self_attention", "cross_attention"}) {
            for (const char* projection : {".query", ".key", ".value"})
                random.add_linear(layer + attention + projection, mixed, width);
            random.add_linear(layer + attention + ".output", width, mixed);
            random.add_norm(layer + attention + "_residual.norm", width);
        }
        random.add_linear(layer + "feed_forward.w1", inner, width);
        random.add_linear(layer + "feed_forward.w2", width, inner);
        random.add_norm(layer + "feed_forward_residual.norm", width);
    }
    random.add_norm("encoder.norm", width);
    random.add_norm("decoder.norm", width);
    return std::make_unique<Model>(settings, random.tensors, kernels);
}

DecodingStep::DecodingStep(const Model& model, int sentences, int beam)
    : model_(model),
      beam_(beam),
      num_candidates_(beam + 2),
      cache_(model.settings.decoder_layers, sentences * beam, model.entry_width()),
      sources_(sentences) {
    const std::vector<int32_t> ids(kSourceLength, 1);
    for (Source& source : sources_) {
        const Activations& states = model.encode(work_, ids.data(), {kSourceLength});
        model.attend_to(work_, states, 0, kSourceLength, source);
    }
    for (int w = 0; w < beam; w++) {  // hypotheses that share no ancestors: each entry is read once
        ancestors_.emplace_back(kPositions);
        for (int p = 0; p < kPositions; p++) ancestors_[w][p] = (uint16_t)((w + p) % beam);
    }
    for (int slot = 0; slot < sentences * beam; slot++) {
        const int first = slot / beam * beam;
        rows_.push_back({0, 0, slot, first, ancestors_[slot - first].data(), &sources_[slot / beam]});
    }
    candidates_.resize(rows_.size() * num_candidates_);
    for (int position = 0; position + 1 < kPositions; position++) decode(position);
}

void DecodingStep::decode(int position) {
    for (DecoderRow& row : rows_) {
        token_ = token_ * 1664525u + 1013904223u;
        row.token = (int)((token_ >> 8) % (uint32_t)model_.settings.vocabulary);
        row.position = position;
    }
    model_.decode(work_, rows_, cache_);
}

void DecodingStep::run() {
    decode(kPositions - 1);
    scan();
}

void DecodingStep::scan() {
    const int rows = (int)rows_.size(), block = kVocabularyPanels * kPanel;
    const Linear& output = model_.output;
    float* logits = work_.logits.data();
    scans_.assign(rows, VocabularyScan{});
    for (int row = 0; row < rows; row++) {
        scans_[row].maximum = -3.0e38f;
        scans_[row].max_candidates = num_candidates_;
        scans_[row].best = candidates_.data() + (size_t)row * num_candidates_;
    }
    for (int panel = 0; panel < output.panels; panel += kVocabularyPanels) {
        const int end = std::min(panel + kVocabularyPanels, output.panels);
        model_.kernels.linear(work_.normed, rows, output, panel, end, Epilogue::store, logits, block);
        for (int row = 0; row < rows; row++)
            model_.kernels.scan(scans_[row], logits + (size_t)row * block, (end - panel) * kPanel, panel * kPanel,
                                nullptr, 0);
    }
    best_ = 0;
    for (const VocabularyScan& scan : scans_) best_ += scan.best[0].logit - model_.kernels.log_sum(scan);
}

}  // namespace clearhead
