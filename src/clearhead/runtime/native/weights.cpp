#include "weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

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

// Indices of the weight of output n and input k in a prepared layer.
static size_t float_index(const Linear& layer, int n, int k) {
    return ((size_t)(n / kPanel) * layer.inputs + k) * kPanel + n % kPanel;
}
static size_t byte_index(const Linear& layer, int n, int k) {
    return (((size_t)(n / kPanel) * (layer.inputs / 4) + k / 4) * kPanel + n % kPanel) * 4 + k % 4;
}

// Prepared layers are read-only, except for the Preparation that owns their memory.
template <typename T>
static T* writable(const T* owned) {
    return const_cast<T*>(owned);
}

// Returns a layer of zeros; `inputs` is the padded number.
Linear Preparation::allocate(int inputs, int outputs, bool int8) {
    Linear layer;
    layer.inputs = inputs;
    layer.outputs = outputs;
    layer.panels = round_up(outputs, kPanel) / kPanel;
    const size_t columns = (size_t)layer.panels * kPanel, size = columns * inputs;
    layer.bias = floats(columns);
    if (int8) {
        bytes_.emplace_back(size);
        std::memset(bytes_.back().data(), 128, size);
        layer.weight_plus_128 = bytes_.back().data();
        layer.scale = floats(columns);
    } else {
        layer.weight = floats(size);
    }
    return layer;
}

Linear Preparation::linear(const std::vector<LinearPart>& parts, const Axis& inputs, bool may_quantize) {
    int outputs = 0;
    for (const LinearPart& part : parts) {
        const Axis& axis = part.outputs;
        outputs = std::max(outputs, axis.start + (axis.blocks > 1 ? axis.blocks * axis.padded : axis.width));
    }
    const bool int8 = int8_ && may_quantize;
    if (int8 && inputs.size() > kMaxQuantizedInputs)
        throw std::invalid_argument("int8 needs at most " + std::to_string(kMaxQuantizedInputs) + " inputs per layer");
    const Linear layer = allocate(round_up(inputs.start + inputs.blocks * inputs.padded, kPanel), outputs, int8);
    float *weight = writable(layer.weight), *scale = writable(layer.scale), *bias = writable(layer.bias);
    uint8_t* bytes = writable(layer.weight_plus_128);
    for (const LinearPart& part : parts)
        for (int n = 0; n < part.outputs.size(); n++) {
            const float* row = part.weight + (size_t)n * inputs.size();
            const int column = part.outputs.at(n);
            if (part.bias) bias[column] = part.bias[n] * part.factor;
            if (!int8) {
                for (int k = 0; k < inputs.size(); k++)
                    weight[float_index(layer, column, inputs.at(k))] = row[k] * part.factor;
                continue;
            }
            float largest = 0, zero = 0;
            for (int k = 0; k < inputs.size(); k++) {
                largest = std::max(largest, std::fabs(row[k] * part.factor));
                zero += 0 * row[k];  // NaN if any weight is infinite or NaN
            }
            if (!(largest > 1e-30f)) largest = 1;
            scale[column] = largest / 127 + zero;
            if (!(zero == 0)) continue;  // every output is NaN
            for (int k = 0; k < inputs.size(); k++) {
                float steps = std::nearbyint(row[k] * part.factor * (127 / largest));
                bytes[byte_index(layer, column, inputs.at(k))] = (uint8_t)(128 + (int)steps);
            }
        }
    return layer;
}

Linear Preparation::vocabulary(const float* weight, const float* bias, int outputs, int inputs) {
    const Linear layer = linear({{weight, bias, Axis::plain(outputs)}}, Axis::plain(inputs));
    std::fill(writable(layer.bias) + outputs, writable(layer.bias) + layer.panels * kPanel, kNoLogit);
    return layer;
}

Linear Preparation::select(const Linear& layer, const int* indices, int count) {
    const Linear some = allocate(layer.inputs, count, layer.weight_plus_128 != nullptr);
    std::fill_n(writable(some.bias), some.panels * kPanel, kNoLogit);
    for (int n = 0; n < count; n++) {
        writable(some.bias)[n] = layer.bias[indices[n]];
        if (layer.weight) {
            const float* from = layer.weight + float_index(layer, indices[n], 0);
            float* to = writable(some.weight) + float_index(some, n, 0);
            for (int k = 0; k < layer.inputs; k++) to[(size_t)k * kPanel] = from[(size_t)k * kPanel];
        } else {
            writable(some.scale)[n] = layer.scale[indices[n]];
            for (int k = 0; k < layer.inputs; k += 4)
                std::memcpy(writable(some.weight_plus_128) + byte_index(some, n, k),
                            layer.weight_plus_128 + byte_index(layer, indices[n], k), 4);
        }
    }
    return some;
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
    for (const auto& buffer : floats_) total += buffer.size() * sizeof(float);
    for (const auto& buffer : bytes_) total += buffer.size();
    return total;
}

void copy_output_weights(const Linear& layer, int index, float factor, float* out) {
    if (layer.weight) {
        const float* from = layer.weight + float_index(layer, index, 0);
        for (int k = 0; k < layer.inputs; k++) out[k] = from[(size_t)k * kPanel] * factor;
    } else {
        const float step = layer.scale[index] * factor;
        for (int k = 0; k < layer.inputs; k++)
            out[k] = (float)((int)layer.weight_plus_128[byte_index(layer, index, k)] - 128) * step;
    }
}

}  // namespace clearhead
