// From the tensors of a bundle to prepared weights: padded, in panels, float32 or int8.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels.h"
#include "memory.h"

namespace clearhead {

inline int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// A view of a float32 tensor whose memory the caller owns.
struct Tensor {
    const float* data = nullptr;
    std::vector<size_t> shape;
};

// Named tensors. `get` throws std::invalid_argument if a tensor is missing or does not have the expected shape.
class Tensors {
  public:
    void add(std::string name, Tensor tensor) { tensors_[std::move(name)] = std::move(tensor); }
    const float* get(const std::string& name, std::vector<size_t> shape) const;
    std::string unused() const;  // the name of a tensor that was never read; empty if there is none

  private:
    std::map<std::string, Tensor> tensors_;
    mutable std::set<std::string> used_;
};

// Where the elements of an axis are stored: `blocks` blocks (heads) of `width` elements, each padded to `padded`,
// from element `start` on.
struct Axis {
    int blocks, width, padded, start = 0;
    int size() const { return blocks * width; }
    int at(int i) const { return start + i / width * padded + i % width; }
    static Axis plain(int width, int start = 0) { return {1, width, width, start}; }
};

// One weight matrix [outputs][inputs] of a linear layer, with its bias [outputs] or null, both times `factor`.
struct LinearPart {
    const float* weight;
    const float* bias;
    Axis outputs;
    float factor = 1;
};

// Owner of all prepared weights; the structs that it returns point into its memory.
class Preparation {
  public:
    explicit Preparation(bool int8) : int8_(int8) {}

    // Combines several matrices into one layer; the axis of each part defines where its outputs are stored.
    Linear linear(const std::vector<LinearPart>& parts, const Axis& inputs, bool may_quantize = true);
    // Prepares the projection to the vocabulary. Columns of padding have the logit kNoLogit.
    Linear vocabulary(const float* weight, const float* bias, int outputs, int inputs);
    // Copies the outputs `indices` of a layer to a new layer. Columns of padding have the logit kNoLogit.
    Linear select(const Linear& layer, const int* indices, int count);
    const float* rows(const float* data, int count, int width);  // each row padded
    const float* copy(const float* data, size_t count);
    size_t bytes() const;

  private:
    float* floats(size_t count);
    Linear allocate(int inputs, int outputs, bool int8);

    bool int8_;
    std::vector<Buffer<float>> floats_;
    std::vector<Buffer<uint8_t>> bytes_;
};

// Copies the weights of output `index` (an embedding, where the layer is tied to one) to `out`, times `factor`.
void copy_output_weights(const Linear& layer, int index, float factor, float* out);

// The outputs `indices` of a layer as a separate layer, with the memory that it needs.
class SelectedOutputs {
  public:
    SelectedOutputs(const Linear& layer, const int* indices, int count)
        : memory_(layer.weight_plus_128), linear(memory_.select(layer, indices, count)) {}

  private:
    Preparation memory_;

  public:
    const Linear linear;
};

}  // namespace clearhead
