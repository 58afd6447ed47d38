#include "weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace clearhead {

static std::string shape_text(const std::vector<size_t>& shape) {
    std::string text = "[";
    for (size_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
    return text + "]";
}

const float* Tensors::get(const std::string& name, std::vector<size_t> shape) const {
    auto found = tensors_.find(name);
    if (found == tensors_.end()) throw std::invalid_argument("the tensor " + name + " is missing");
    if (found->second.shape != shape)
        throw std::invalid_argument("the tensor " + name + " has shape " + shape_text(found->second.shape) +
                                    "; the settings say " + shape_text(shape));
    used_.insert(name);
    return found->second.data;
}

std::string Tensors::unused() const {
    for (const auto& [name, tensor] : tensors_)
        if (!used_.count(name)) return name;
    return "";
}

float* Preparation::floats(size_t count) {
    floats_.emplace_back(count);
    return floats_.back().data();
}

// Places of output n and input k of a prepared layer.
static size_t float_place(const Linear& layer, int n, int k) {
    return ((size_t)(n / kPanel) * layer.inputs + k) * kPanel + n % kPanel;
}
static size_t byte_place(const Linear& layer, int n, int k) {
    return (((size_t)(n / kPanel) * (layer.inputs / 4) + k / 4) * kPanel + n % kPanel) * 4 + k % 4;
}

Linear Preparation::linear(const std::vector<LinearPart>& parts, const Axis& inputs, bool may_quantize) {
    Linear layer;
    layer.inputs = round_up(inputs.start + inputs.blocks * inputs.padded, kPanel);
    for (const LinearPart& part : parts) {
        const Axis& axis = part.outputs;
        int end = axis.start + (axis.blocks > 1 ? axis.blocks * axis.padded : axis.width);
        layer.outputs = end > layer.outputs ? end : layer.outputs;
    }
    layer.panels = round_up(layer.outputs, kPanel) / kPanel;
    const size_t columns = (size_t)layer.panels * kPanel, size = columns * layer.inputs;
    const bool int8 = int8_ && may_quantize;
    float *weight = nullptr, *scale = nullptr, *bias = floats(columns);
    uint8_t* bytes = nullptr;
    if (int8) {
        bytes_.emplace_back(size);
        bytes = bytes_.back().data();
        std::memset(bytes, 128, size);
        scale = floats(columns);
    } else {
        weight = floats(size);
    }
    for (const LinearPart& part : parts)
        for (int n = 0; n < part.outputs.size(); n++) {
            const float* row = part.weight + (size_t)n * inputs.size();
            const int column = part.outputs.at(n);
            if (part.bias) bias[column] = part.bias[n] * part.factor;
            if (!int8) {
                for (int k = 0; k < inputs.size(); k++)
                    weight[float_place(layer, column, inputs.at(k))] = row[k] * part.factor;
                continue;
            }
            float largest = 0, zero = 0;
            for (int k = 0; k < inputs.size(); k++) {
                largest = std::max(largest, std::fabs(row[k] * part.factor));
                zero += 0 * row[k];  // NaN if any weight is infinite or NaN
            }
            if (largest == 0) largest = 1;
            scale[column] = largest / 127 + zero;
            if (!(zero == 0)) continue;  // every output is NaN
            for (int k = 0; k < inputs.size(); k++) {
                float steps = std::nearbyint(row[k] * part.factor * (127 / largest));
                bytes[byte_place(layer, column, inputs.at(k))] = (uint8_t)(128 + (int)steps);
            }
        }
    layer.weight = weight;
    layer.weight_plus_128 = bytes;
    layer.scale = scale;
    layer.bias = bias;
    return layer;
}

Linear Preparation::vocabulary(const float* weight, const float* bias, int outputs, int inputs) {
    auto [slot, is_new] = shared_.try_emplace({weight, bias});
    if (is_new) {
        Linear layer = linear({{weight, bias, Axis::plain(outputs)}}, Axis::plain(inputs));
        float* biases = const_cast<float*>(layer.bias);  // owned by this object
        for (int n = outputs; n < layer.panels * kPanel; n++) biases[n] = kNoLogit;
        slot->second = layer;
    }
    return slot->second;
}

Norm Preparation::norm(NormKind kind, int width, float epsilon, const float* gain, const float* bias) {
    Norm norm{kind, width, epsilon, nullptr, nullptr};
    if (kind == NormKind::none) return norm;
    norm.gain = rows(gain, 1, width);
    norm.bias = bias ? rows(bias, 1, width) : nullptr;
    return norm;
}

const float* Preparation::rows(const float* data, int count, int width) {
    const int padded = round_up(width, kPanel);
    float* to = floats((size_t)count * padded);
    for (int i = 0; i < count; i++)
        std::memcpy(to + (size_t)i * padded, data + (size_t)i * width, sizeof(float) * (size_t)width);
    return to;
}

const float* Preparation::copy(const float* data, size_t count) {
    float* to = floats(count);
    std::memcpy(to, data, sizeof(float) * count);
    return to;
}

size_t Preparation::bytes() const {
    size_t total = 0;
    for (const auto& each : floats_) total += each.size() * sizeof(float);
    for (const auto& each : bytes_) total += each.size();
    return total;
}

void copy_output_weights(const Linear& layer, int index, float factor, float* out) {
    if (layer.weight) {
        const float* from = layer.weight + float_place(layer, index, 0);
        for (int k = 0; k < layer.inputs; k++) out[k] = from[(size_t)k * kPanel] * factor;
    } else {
        const float step = layer.scale[index] * factor;
        for (int k = 0; k < layer.inputs; k++)
            out[k] = (float)((int)layer.weight_plus_128[byte_place(layer, index, k)] - 128) * step;
    }
}

SelectedOutputs::SelectedOutputs(const Linear& layer, const int* indices, int count) {
    linear.inputs = layer.inputs;
    linear.outputs = count;
    linear.panels = round_up(count, kPanel) / kPanel;
    const size_t columns = (size_t)linear.panels * kPanel, size = columns * layer.inputs;
    bias_ = Buffer<float>(columns);
    if (layer.weight) {
        weight_ = Buffer<float>(size);
        for (int n = 0; n < count; n++) {
            const float* from = layer.weight + float_place(layer, indices[n], 0);
            float* to = weight_.data() + float_place(linear, n, 0);
            for (int k = 0; k < layer.inputs; k++) to[(size_t)k * kPanel] = from[(size_t)k * kPanel];
        }
    } else {
        bytes_ = Buffer<uint8_t>(size);
        scale_ = Buffer<float>(columns);
        for (int n = 0; n < count; n++) {
            for (int k = 0; k < layer.inputs; k += 4)
                std::memcpy(bytes_.data() + byte_place(linear, n, k),
                            layer.weight_plus_128 + byte_place(layer, indices[n], k), 4);
            scale_[n] = layer.scale[indices[n]];
        }
    }
    for (size_t n = 0; n < columns; n++) bias_[n] = n < (size_t)count ? layer.bias[indices[n]] : kNoLogit;
    linear.weight = layer.weight ? weight_.data() : nullptr;
    linear.weight_plus_128 = layer.weight ? nullptr : bytes_.data();
    linear.scale = layer.weight ? nullptr : scale_.data();
    linear.bias = bias_.data();
}

}  // namespace clearhead
