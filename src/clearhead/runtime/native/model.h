// A Transformer with prepared weights, and its forward pass over rows.
//
// A row is one token of one sequence; rows of all sequences form one matrix without padding. Linear layers, norms and
// activations see only the matrix; embeddings, positions and attention use the sequence that a row belongs to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels.h"
#include "kv_cache.h"
#include "memory.h"
#include "parallel.h"
#include "weights.h"

namespace clearhead {

enum class Architecture { encoder_decoder, decoder, encoder };
enum class Pooling { first, mean, last };
enum class Positions { none, table, relative, rotary };  // table: of vectors that are added to embeddings

struct Settings {
    Architecture architecture = Architecture::encoder_decoder;
    int encoder_layers = 0, decoder_layers = 0;
    int width = 0, feed_forward = 0, heads = 0, key_width = 0, value_width = 0;
    int vocabulary = 0, source_vocabulary = 0, max_positions = 0, labels = 0, segments = 0;
    float query_scale = 1, embedding_scale = 1, output_scale = 1, norm_epsilon = 1e-5f;
    NormKind norm = NormKind::layer;
    Activation activation = Activation::relu, pooler_activation = Activation::tanh;
    bool pre_norm = true, final_norm = true, gated = false, embedding_norm = false, int8 = false;
    bool has_masked_head = false, has_classifier = false, has_pooler = false;
    // Optional tensors of the model. `bias`: of attention, feed-forward network and norms other than rms; classifiers,
    // poolers and the transform of masked-token heads always have one.
    bool bias = true, output_bias = false;
    Positions positions = Positions::table;
    Pooling pooling = Pooling::mean;
};

struct Layer {
    Linear query_key_value, self_output;  // self-attention
    Linear query, key_value, cross_output;
    Linear w1, w2, w3;  // feed-forward; w3 only if gated
    Norm self_norm, cross_norm, feed_forward_norm;
};

struct Stack {
    std::vector<Layer> layers;
    Norm final_norm;
    const float* relative_bias = nullptr;  // [heads][relative_stride], by offset
    int relative_stride = 0;
};

struct Embedding {
    const float* table = nullptr;  // [tokens][padded width]; null: the tokens are outputs of `tied`
    const Linear* tied = nullptr;
    int tokens = 0;
    const float* positions = nullptr;  // [max_positions][padded width]; null: none are added
    const float* segment = nullptr;    // the vector of segment 0; null: none
    Norm norm;
};

// A source that a decoder attends to: the keys of each layer transposed ([heads * key width][capacity]), then its
// values ([length][heads * value width]).
struct Source {
    int length = 0, capacity = 0;
    Buffer<float> data;
};

// One token to decode. `ancestors[p]` is the slot of the hypothesis at position p < position, counted from
// `first_slot`.
struct DecoderRow {
    int token, position, slot, first_slot;
    const uint16_t* ancestors;
    const Source* source;  // null without an encoder
};

// Memory for the activations of some rows, reused from call to call.
class Workspace {
  public:
    void reserve(const class Model& model, int rows, int longest);
    int rows = 0, longest = 0;
    Activations x, normed, mixed, inner;  // residual stream, input of a sub-layer, attention output, hidden layer
    Buffer<float> projected, transposed, scratch, logits;
    Team* team = nullptr;  // threads that share each matrix product; null: the calling thread alone
    std::vector<const float*> entries;

  private:
    Activations activations(int rows, int width, bool int8);
    std::vector<Buffer<float>> floats_;
    std::vector<Buffer<int16_t>> quantized_;
    std::vector<Buffer<int32_t>> integers_;
};

class Model {
  public:
    Model(const Settings& settings, const Tensors& tensors, const Kernels& kernels);

    // Encodes sequences of token ids, `lengths[i]` each, one after the other in `ids`. Their final states are the rows
    // of the returned activations, which belong to the workspace.
    const Activations& encode(Workspace& work, const int32_t* ids, const std::vector<int>& lengths) const;
    // Computes the keys and values of encoder states (rows [first, first + length)) for every decoder layer.
    void attend_to(Workspace& work, const Activations& states, int first, int length, Source& source) const;
    // Returns the final states of the rows, in the same form as encode(). Rows of one hypothesis come in the order of
    // their positions; rows of one source are adjacent. `attention`, if not null: the cross-attention of
    // `attention_layer`, one block [heads][source length] per row.
    const Activations& decode(Workspace& work, const std::vector<DecoderRow>& rows, KVCache& cache,
                              int attention_layer = -1, float* attention = nullptr) const;

    // Computes the outputs of panels [first, last) of a layer; `out` points to the column of the first. With a team,
    // each member computes some of the panels.
    void apply_panels(const Workspace& work, const Linear& layer, int first, int last, const Activations& x, int rows,
                      float* out, int stride, Epilogue epilogue) const;

    void check_ids(const int32_t* ids, size_t count, int vocabulary) const;
    int entry_width() const { return key_columns_ + value_columns_; }
    size_t weight_bytes() const { return prepared_.bytes(); }

    const Settings settings;
    const Kernels& kernels;
    Linear output;             // to the vocabulary, or to the labels
    Linear pooler, transform;  // heads of encoders
    Norm transform_norm;
    int width_, key_columns_, value_columns_;  // padded: the stream, all heads of keys, all heads of values
    int projected_columns_;                    // queries, keys and values next to each other

  private:
    void load_stack(const Tensors& tensors, const std::string& name, int layers, bool has_cross, Stack& stack);
    void load_embedding(const Tensors& tensors, const std::string& name, int tokens, Embedding& embedding);
    Norm load_norm(const Tensors& tensors, const std::string& name);
    Linear load_linear(const Tensors& tensors, const std::string& name, int outputs, int inputs, bool has_bias,
                       bool may_quantize);
    void apply(const Workspace& work, const Linear& layer, const Activations& x, int rows, float* out, int stride,
               Epilogue epilogue = Epilogue::store) const;
    void embed(const Embedding& embedding, int token, int position, float* out) const;
    void start_stack(Workspace& work, const Embedding& embedding, int rows) const;
    const Activations& enter(Workspace& work, const Norm& norm, int rows) const;
    void leave(Workspace& work, const Linear& layer, Activations& y, const Norm& norm, int rows) const;
    void self_attention(Workspace& work, const Layer& layer, int index, const std::vector<DecoderRow>& rows,
                        KVCache& cache) const;
    void cross_attention(Workspace& work, const Layer& layer, int index, const std::vector<DecoderRow>& rows,
                         float* weights) const;
    void feed_forward(Workspace& work, const Layer& layer, int rows) const;
    const Activations& finish_stack(Workspace& work, const Stack& stack, int rows, float scale) const;
    void rotate(float* x, int position) const;
    AttentionShape attention_shape(const Stack* stack) const;

    Preparation prepared_;
    const float *output_weight_ = nullptr, *source_table_ = nullptr;  // tensors, to recognize tied ones while loading
    Embedding source_embedding_, target_embedding_;
    Stack encoder_, decoder_;
    const float *rotary_cos_ = nullptr, *rotary_sin_ = nullptr;  // [max_positions][key_width / 2]
};

}  // namespace clearhead
