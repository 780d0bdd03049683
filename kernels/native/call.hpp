// What a call is made of, as plain data. No inline functions here: this header is compiled for several instruction sets,
// and the linker keeps only one copy of an inline function, which may hold instructions the processor lacks.
#pragma once

#include <cstdint>

namespace attn {

enum Type : int { kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2, kFloat64 = 3, kBool = 4 };

// A tensor in someone else's memory; strides count elements, 0 where the axis broadcasts. data is null when absent.
struct Tensor {
    char* data = nullptr;
    int type = kFloat32;
    int64_t stride[4] = {0, 0, 0, 0};
};

// query [B, H, M, D], key [B, G, N, D], value [B, G, N, E]; head h reads key/value head h / (H / G).
struct Call {
    int64_t B = 0, H = 0, G = 0, M = 0, N = 0, D = 0, E = 0;
    float scale = 1;
    float softcap = 0;         // 0: none
    Tensor query, key, value;
    Tensor bias, dense;        // broadcast to [B, H, M, N]
    Tensor padding;            // bool [B, N]
    Tensor query_segment;      // float32 [B, M]: small whole numbers, so exact
    Tensor key_segment;        // float32 [B, N]
    const float* sinks = nullptr;  // [H]
    bool causal = false;
    int64_t offset = 0;
    int64_t left = -1, right = -1, chunk = -1;  // -1: none
};

// Where a forward pass writes. Null pointers are not wanted. Rows are [B, H, M], contiguous.
struct Forward {
    Tensor output;                    // [B, H, M, E]
    float* logsumexp = nullptr;
    float* statistics = nullptr;      // entropy, largest, distance, own, previous, first: 6 times [B, H, M]
    int64_t* largest_key = nullptr;
    float* pooled = nullptr;          // [B, H, R, C]
    int64_t R = 0, C = 0;
    float* weights = nullptr;         // [B, number of chosen heads, row_end - row_begin, N]
    const int32_t* slot = nullptr;    // [H]: place of a head among the chosen ones, or -1
    int64_t chosen = 0, row_begin = 0, row_end = 0;
};

// How a forward pass is cut into pieces of work; see plan() in run.cpp.
struct Plan {
    int64_t lanes = 0;       // query rows that one piece holds at most
    int64_t heads = 0;       // heads of one group that share a piece: more than 1 only for few queries
    int64_t packs = 0;       // pieces that the heads of one group are cut into
    int64_t row_tiles = 0;   // pieces that the rows are cut into
    int64_t items = 0;       // B * G * packs * row_tiles
    int64_t splits = 1;      // parts that the keys of one item are cut into
    int64_t state = 0;       // floats of the running state of one item
    float* parts = nullptr;  // [items, splits, state] when splits > 1
    float* bands = nullptr;  // [B * H, row_tiles + R, C]: sums of the pooled map, one row for each tile and row block met
};

// Parts of the map of a finished call and what to make of them; weight = exp(score - logsumexp).
struct View {
    Tensor logsumexp;                           // float32 [B, H, M]
    int64_t row_begin = 0, row_end = 0, col_begin = 0, col_end = 0;
    Tensor vector;                              // float32 [B, H, N, width] to push, [B, H, M, width] to pull
    int64_t width = 0;
    int64_t R = 0, C = 0;                       // blocks to pool
    bool largest = false;                       // pool maxima instead of means
    float* bands = nullptr;                     // [B * H, row tiles + R, C]: one row for each tile and row block met
    float* out = nullptr;                       // contiguous
};

// What can be made of a finished call; kJoin makes the blocks of kPool out of its bands.
enum Kind : int { kTile, kPool, kJoin, kPush, kPull, kReceived, kKinds };

// What a backward pass reads and writes. Gradients that are not wanted have no data.
struct Backward {
    Tensor output, output_gradient;  // [B, H, M, E]
    Tensor logsumexp;                // float32 [B, H, M]
    Tensor query, key, value;        // gradients
    float* delta = nullptr;          // [B, H, M]: output . output gradient
    int64_t splits = 1;              // parts that the keys of a group are cut into
    float* parts = nullptr;          // [B * H, row tiles, splits, D, L]: each part's share of the gradient of query
    int64_t near = 0;                // keys that one item holds at a time
    int64_t turn = 0, turns = 0;     // an item of this round holds keys turn * near to (turn + turns) * near of its part
};

// The steps of a backward pass.
enum Step : int { kDelta, kSplit, kGather, kSteps };

// A function in pieces that threads can share.
template <class Out>
struct Work {
    int64_t (*items)(const Call&, const Out&);
    int64_t (*scratch_floats)(const Call&, const Out&);
    void (*run)(const Call&, const Out&, int64_t item, float* scratch);
};

// One instruction set's functions.
struct Kernels {
    const char* name;
    int lanes;
    int64_t (*state_floats)(const Call&);
    int64_t (*scratch_floats)(const Call&, const Forward&);
    void (*attend)(const Call&, const Forward&, const Plan&, int64_t item, int64_t split, float* scratch);
    void (*merge)(const Call&, const Forward&, const Plan&, int64_t item, float* scratch);
    const Work<View>* views;         // [kKinds]
    const Work<Backward>* backward;  // [kSteps]
};

}  // namespace attn
