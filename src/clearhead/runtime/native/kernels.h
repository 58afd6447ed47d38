// The kernels: everything that is compiled once per instruction set, behind one table of functions.
//
// Shapes. Widths are padded: a row of activations has a multiple of 32 floats, a head a multiple of 16. Padding is zero
// in weights, biases and gains, so it stays zero in every row and adds exact zeros to every sum.
// Order of sums. Each output of a matrix product is one chain of fused multiply-adds over the input, first to last,
// starting from the bias. Reductions over a row (norms, softmax) run in sixteen lanes that are added pairwise at the
// end. Neither depends on how many rows are computed together, so a row has the same bits in every batch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clearhead {

constexpr int kPanel = 32;                    // output columns of a panel of weights
constexpr int kHeadMultiple = 16;             // heads are padded to this width
constexpr int kMaxQuantizedInputs = 1 << 16;  // sums of products of bytes fit into int32
constexpr float kNoLogit = -1e30f;            // bias of the columns that pad a vocabulary
constexpr int kVocabularyPanels = 16;  // panels that the softmax over the vocabulary takes at a time: fixed blocks

// A linear layer y = x W^T + b, prepared: panels of 32 output columns, inside a panel one line of 32 per input.
struct Linear {
    int inputs = 0;   // padded
    int outputs = 0;  // not padded
    int panels = 0;
    const float* weight = nullptr;             // float32: [panels][inputs][32]
    const uint8_t* weight_plus_128 = nullptr;  // int8: [panels][inputs / 4][32][4], each weight + 128
    const float* scale = nullptr;              // int8: [panels * 32], value of one step of a column
    const float* bias = nullptr;               // [panels * 32]
};

// Rows of activations; for int8 products also as integers with one scale per row. A row has room for `width` numbers of
// 16 bits; kernels with VNNI store numbers of 8 bits at its start (quantize.h).
struct Activations {
    int width = 0;   // padded
    int stride = 0;  // distance between two rows
    float* values = nullptr;
    int16_t* integers = nullptr;
    float* scales = nullptr;  // value of one step of a row
    int32_t* sums = nullptr;  // sum of the integers of a row, to correct for the 128 in weight_plus_128
};

// Returns the rows from `row` on.
static inline Activations from_row(Activations x, int row) {
    x.values += (size_t)row * x.stride;
    if (x.integers) {
        x.integers += (size_t)row * x.stride;
        x.scales += row;
        x.sums += row;
    }
    return x;
}

enum class Epilogue { store, relu, add, multiply };  // sets out to the product y, max(y, 0), out + y or out * y
enum class Activation { relu, gelu, gelu_tanh, silu, tanh };
enum class NormKind { none, layer, rms, sample };

struct Norm {
    NormKind kind = NormKind::none;
    int width = 0;  // not padded
    float epsilon = 0;
    const float* gain = nullptr;  // padded with zeros
    const float* bias = nullptr;  // padded with zeros; null: none
};

// Attention of some queries of one sequence over its keys. Scores are softmax(q k + bias); the scale is part of the
// query projection.
struct AttentionShape {
    int heads;
    int key_width;      // of a head, padded
    int value_width;    // of a head, padded
    const float* bias;  // relative positions: bias[h * bias_stride + offset], null: none
    int bias_stride;
};

struct Candidate {
    float logit;
    int token;
};

// Running softmax and best candidates of one row over the blocks of a vocabulary.
struct VocabularyScan {
    bool is_normalized = true;  // false: the softmax is skipped
    float maximum;
    float lanes[16];  // sums of exp(logit - maximum); without softmax NaN if any logit is infinite or NaN, else 0
    int max_candidates;
    int num_candidates;
    Candidate* best;  // by logit, descending; equal logits by token
};

struct Kernels {
    const char* name;  // of the instruction set: avx512vnni, avx512, avx2 or generic

    // out[row][column] for panels [first, last); `out` points to the column of the first panel.
    void (*linear)(const Activations& x, int rows, const Linear& layer, int first, int last, Epilogue epilogue,
                   float* out, int stride);
    void (*quantize)(Activations& x, int rows);
    // y = norm(x); with y.integers also quantized. x and y.values may be the same.
    void (*normalize)(const Norm& norm, const float* x, int rows, Activations& y);
    void (*activate)(Activation kind, float* x, size_t count);  // count: a multiple of 16

    // Queries q[i * q_stride], i < count, over `length` keys stored transposed: keys[(h * key_width + k) * capacity +
    // s] (capacity: a multiple of 16), values[s * value_stride + h * value_width]. Query i has the relative position
    // bias of offset s - i + first_offset. `weights`, if not null: [count][heads][length]. `scratch`: 4 * capacity
    // floats.
    void (*attend)(const AttentionShape& shape, const float* q, int q_stride, int count, const float* keys,
                   int capacity, int length, const float* values, int value_stride, int first_offset, float* out,
                   int out_stride, float* weights, float* scratch);
    // One query over `length` cached entries, each the keys of all heads followed by the values of all heads.
    // entries[length .. length + 2] must be readable too. Entry s has the bias of offset length - 1 - s.
    // `scratch`: heads rounded up to 4, times `length` rounded up to 16.
    void (*attend_cached)(const AttentionShape& shape, const float* q, const float* const* entries, int length,
                          float* out, float* scratch);
    // keys[(column) * capacity + s] = x[s * stride + column]
    void (*transpose)(const float* x, int stride, int length, int columns, float* keys, int capacity);

    // Adds the logits of `count` (a multiple of 16) columns, starting at token `first`, to the running softmax (unless
    // it is skipped), and those that are not -infinity to the candidates. `banned` columns (ascending, relative to the
    // block) count in the softmax but are not candidates: their logits are overwritten with -infinity.
    void (*scan)(VocabularyScan& scan, float* logits, int count, int first, const int* banned, int num_banned);
    float (*log_sum)(const VocabularyScan& scan);  // maximum + log(sum of exp(logit - maximum)); NaN if any logit was
};

}  // namespace clearhead
