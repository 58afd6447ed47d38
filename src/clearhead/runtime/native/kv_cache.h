// Keys and values of the tokens that a decoder has processed.
//
// An entry holds the keys and then the values of all heads of one token in one layer. Entries are stored by position
// and slot; a sentence owns `width` consecutive slots, one per hypothesis. An entry is never moved: when hypotheses are
// reordered, only their ancestor tables change, which contain the slot of the hypothesis at every position.
#pragma once

#include <vector>

#include "memory.h"

namespace clearhead {

class KVCache {
  public:
    KVCache() = default;
    KVCache(int layers, int slots, int entry_width) : layers_(layers), slots_(slots), entry_width_(entry_width) {}

    // Makes positions [0, count) available.
    void reserve(int count) {
        while ((int)chunks_.size() * kPositions < count)
            chunks_.emplace_back((size_t)layers_ * kPositions * slots_ * entry_width_, Content::anything);
    }
    float* entry(int layer, int position, int slot) {
        float* chunk = chunks_[position / kPositions].data();
        return chunk + (((size_t)layer * kPositions + position % kPositions) * slots_ + slot) * entry_width_;
    }
    int slots() const { return slots_; }
    // Makes slots [0, count) available; keeps positions [0, positions).
    void widen(int count, int positions) {
        if (count <= slots_) return;
        KVCache wide(layers_, count, entry_width_);
        wide.reserve(positions);
        const size_t size = sizeof(float) * (size_t)slots_ * entry_width_;
        for (int layer = 0; layer < layers_; layer++)
            for (int position = 0; position < positions; position++)
                std::memcpy(wide.entry(layer, position, 0), entry(layer, position, 0), size);
        *this = std::move(wide);
    }

  private:
    static constexpr int kPositions = 16;  // positions per chunk
    int layers_ = 0, slots_ = 0, entry_width_ = 0;
    std::vector<Buffer<float>> chunks_;
};

}  // namespace clearhead
