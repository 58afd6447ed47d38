// The matrix product: rows of activations times panels of weights.
//
// A tile of R rows and C vectors of sixteen columns stays in registers while it runs over all inputs; each step loads C
// vectors of weights, broadcasts R inputs and does R * C fused multiply-adds. Twelve rows by two vectors fill the 32
// registers of AVX-512, six by one (two registers each) the 16 of AVX2. With few rows, tiles are wider instead, so that
// enough independent sums are in flight to hide the latency of the multiply-add.
#pragma once

#include "kernels.h"
#include "lanes.h"
#include "quantize.h"

namespace clearhead::KERNELS_NAMESPACE {

template <int R, int C>
ALWAYS_INLINE void put(Lanes (&y)[R][C], Epilogue epilogue, float* out, int stride) {
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) {
            float* target = out + (size_t)r * stride + c * kLanes;
            Lanes v = y[r][c];
            if (epilogue == Epilogue::relu) v = max(all(0.0f), v);  // NaN stays NaN
            if (epilogue == Epilogue::add) v = add(load(target), v);
            if (epilogue == Epilogue::multiply) v = mul(load(target), v);
            store(target, v);
        }
}

// Prefetches upcoming weights into the L2 cache, some lines of 64 bytes per step of a tile; otherwise the first tile of
// each panel would wait for the L3 cache. With many rows these are the weights of the next panel: two tiles have as
// many steps as a panel has lines. With three to six rows in int8, whose products are too slow to keep many loads in
// flight and too fast to hide them, they are the weights of the next group of panels, but only in large matrices: the
// weights of small ones are in a cache that is fast enough.
constexpr int kFarInputs = 512;

struct Prefetch {
    const char* line = nullptr;
    int step = 0;
};
template <int Lines>
ALWAYS_INLINE void advance(Prefetch& ahead) {
    UNROLL for (int i = 0; i < Lines; i++) __builtin_prefetch(ahead.line + 64 * i, 0, 2);
    ahead.line += ahead.step;
}

struct FloatTile {
    typedef Lanes Vector;
    static const void* panel(const Linear& layer, int panel) {
        return layer.weight + (size_t)panel * layer.inputs * kPanel;
    }
    static constexpr int kStepInputs = 1;
    // Rows [row, row + R), C vectors from vector `half` of panel `panel` on.
    template <int R, int C, int Lines>
    ALWAYS_INLINE void run(const Activations& x, int row, const Linear& layer, int panel, int half, Epilogue epilogue,
                           float* out, int stride, Prefetch ahead) {
        const int inputs = layer.inputs;
        const size_t next_panel = (size_t)inputs * kPanel;
        const float* a = x.values + (size_t)row * x.stride;
        const float* w = layer.weight + panel * next_panel + half * kLanes;
        const float* bias = layer.bias + panel * kPanel + half * kLanes;
        Lanes y[R][C];
        UNROLL for (int c = 0; c < C; c++) {
            Lanes b = load(bias + c * kLanes);
            UNROLL for (int r = 0; r < R; r++) y[r][c] = b;
        }
        for (int k = 0; k < inputs; k++) {
            advance<Lines>(ahead);
            Lanes columns[C];
            UNROLL for (int c = 0; c < C; c++) columns[c] =
                load(w + (c >> 1) * next_panel + (size_t)k * kPanel + (c & 1) * kLanes);
            UNROLL for (int r = 0; r < R; r++) {
                Lanes input = all(a[(size_t)r * x.stride + k]);
                UNROLL for (int c = 0; c < C; c++) y[r][c] = fused(input, columns[c], y[r][c]);
            }
        }
        put<R, C>(y, epilogue, out, stride);
    }
};

struct IntegerTile {
    typedef Sums Vector;
    static const void* panel(const Linear& layer, int panel) {
        return layer.weight_plus_128 + (size_t)panel * layer.inputs * kPanel;
    }
    static constexpr int kStepInputs = 4;
    template <int R, int C, int Lines>
    ALWAYS_INLINE void run(const Activations& x, int row, const Linear& layer, int panel, int half, Epilogue epilogue,
                           float* out, int stride, Prefetch ahead) {
        const int inputs = layer.inputs;
        const size_t next_panel = (size_t)inputs * kPanel;
        const Quantized* a = quantized(x, row);
        const uint8_t* w = layer.weight_plus_128 + panel * next_panel + half * 4 * kLanes;
        const size_t distance = (size_t)x.stride * sizeof(int16_t) / sizeof(Quantized);  // of two rows
        Sums sums[R][C];
        UNROLL for (int r = 0; r < R; r++) {
            Sums correction = all_sums(-128 * x.sums[row + r]);
            UNROLL for (int c = 0; c < C; c++) sums[r][c] = correction;
        }
        for (int k = 0; k < inputs; k += 4) {
            advance<Lines>(ahead);
            Weights columns[C];
            UNROLL for (int c = 0; c < C; c++) columns[c] =
                load_weights(w + (c >> 1) * next_panel + (size_t)k * kPanel + (c & 1) * 4 * kLanes);
            UNROLL for (int r = 0; r < R; r++) {
                Inputs input = load_inputs(a + r * distance + k);
                UNROLL for (int c = 0; c < C; c++) multiply_add(sums[r][c], columns[c], input);
            }
        }
        const int column = panel * kPanel + half * kLanes;
        Lanes y[R][C];
        UNROLL for (int c = 0; c < C; c++) {
            Lanes scale = load(layer.scale + column + c * kLanes), bias = load(layer.bias + column + c * kLanes);
            UNROLL for (int r = 0; r < R; r++) y[r][c] =
                fused(as_floats(sums[r][c]), mul(all(x.scales[row + r]), scale), bias);
        }
        put<R, C>(y, epilogue, out, stride);
    }
};

struct Product {
    const Activations& x;
    const Linear& layer;
    Epilogue epilogue;
    float* out;
    int stride;
};

// A tile of `rows` <= R rows: recursion over the template turns the number into a constant.
template <class Tile, int R, int C>
ALWAYS_INLINE void tile_of(const Product& p, int rows, int row, int panel, int half, float* out, Prefetch ahead) {
    if (rows == R)
        Tile::template run<R, C, 1>(p.x, row, p.layer, panel, half, p.epilogue, out, p.stride, ahead);
    else if constexpr (R > 1)
        tile_of<Tile, R - 1, C>(p, rows, row, panel, half, out, ahead);
}

// R rows against all panels, C vectors at a time.
template <class Tile, int R, int C>
ALWAYS_INLINE void few_rows(const Product& p, int first, int last) {
    const bool is_far = R >= 3 && Tile::kStepInputs > 1 && p.layer.inputs >= kFarInputs;
    int panel = first;
    for (; panel + C / 2 <= last; panel += C / 2) {
        const bool has_next = panel + C <= last;
        float* out = p.out + (panel - first) * kPanel;
        const Prefetch ahead{(const char*)Tile::panel(p.layer, has_next ? panel + C / 2 : panel),
                             has_next ? 64 * C : 0};
        if (is_far)
            Tile::template run<R, C, C>(p.x, 0, p.layer, panel, 0, p.epilogue, out, p.stride, ahead);
        else
            Tile::template run<R, C, 0>(p.x, 0, p.layer, panel, 0, p.epilogue, out, p.stride, ahead);
    }
    for (; panel < last; panel++)
        Tile::template run<R, 2, 0>(p.x, 0, p.layer, panel, 0, p.epilogue, p.out + (panel - first) * kPanel, p.stride,
                                    {});
}

// Rows are divided into tiles of nearly equal height: 13 rows are 7 and 6, not 12 and 1.
template <class Tile, int R, int C>
ALWAYS_INLINE void many_rows(const Product& p, int rows, int first, int last) {
    const int tiles = (rows + R - 1) / R, height = rows / tiles, higher = rows % tiles;
    const int lines = p.layer.inputs / Tile::kStepInputs;  // steps of a tile
    for (int panel = first; panel < last; panel++) {
        const char* next = (const char*)Tile::panel(p.layer, panel + 1 < last ? panel + 1 : panel);
        for (int half = 0; half < 2; half += C)
            for (int tile = 0, row = 0; tile < tiles; tile++) {
                int count = height + (tile < higher);
                float* out = p.out + (size_t)row * p.stride + (panel - first) * kPanel + half * kLanes;
                const Prefetch ahead{next + (tile ? (size_t)lines * 64 : 0), tile < 2 ? 64 : 0};
                tile_of<Tile, R, C>(p, count, row, panel, half, out, ahead);
                row += count;
            }
    }
}

// Tiles by number of registers: AVX-512 has 32, AVX2 16; a vector of float sums takes one or two of them, one of
// integer sums without VNNI twice as many.
template <class Tile>
static void multiply(const Product& p, int rows, int first, int last) {
#if defined(__AVX512F__)
    constexpr bool is_narrow = sizeof(typename Tile::Vector) == 64;
    if constexpr (is_narrow) switch (rows) {
            case 1:
                return few_rows<Tile, 1, 8>(p, first, last);
            case 2:
                return few_rows<Tile, 2, 8>(p, first, last);
            case 3:
                return few_rows<Tile, 3, 6>(p, first, last);
            case 4:
                return few_rows<Tile, 4, 4>(p, first, last);
            case 5:
                return few_rows<Tile, 5, 4>(p, first, last);
            case 6:
                return few_rows<Tile, 6, 4>(p, first, last);
            default:
                return many_rows<Tile, 12, 2>(p, rows, first, last);
        }
    if (rows == 1) return few_rows<Tile, 1, 4>(p, first, last);
    if (rows == 2) return few_rows<Tile, 2, 4>(p, first, last);
    many_rows<Tile, 6, 2>(p, rows, first, last);
#else
    constexpr bool is_narrow = sizeof(typename Tile::Vector) == 64;
    if constexpr (!is_narrow) return many_rows<Tile, 3, 1>(p, rows, first, last);
    if (rows == 1) return few_rows<Tile, 1, 4>(p, first, last);
    if (rows == 2) return few_rows<Tile, 2, 2>(p, first, last);
    many_rows<Tile, 6, 1>(p, rows, first, last);
#endif
}

static void linear(const Activations& x, int rows, const Linear& layer, int first, int last, Epilogue epilogue,
                   float* out, int stride) {
    if (rows <= 0) return;
    const Product p{x, layer, epilogue, out, stride};
    if (layer.weight_plus_128)
        multiply<IntegerTile>(p, rows, first, last);
    else
        multiply<FloatTile>(p, rows, first, last);
}

}  // namespace clearhead::KERNELS_NAMESPACE
