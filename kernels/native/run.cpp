#include "run.hpp"

#include <math.h>

#include <algorithm>
#include <vector>

#include "kernels.hpp"
#include "parallel.hpp"

namespace attn {
namespace {

constexpr int64_t kKeysPerSplit = 512;      // fewer are not worth a second pass over the results
constexpr double kWorkPerThread = 1 << 20;  // multiplications; waking a thread costs about as much time

// Few queries (decoding) share a piece across the heads of a group, and their keys are split, to keep all threads busy.
Plan plan_of(const Kernels& kernels, const Call& call, const Forward& out, int threads) {
    Plan plan;
    const int64_t per_group = call.H / call.G;
    plan.lanes = kernels.lanes;
    plan.heads = std::max<int64_t>(1, std::min(per_group, plan.lanes / call.M));
    plan.packs = (per_group + plan.heads - 1) / plan.heads;
    plan.row_tiles = (call.M + plan.lanes - 1) / plan.lanes;
    plan.items = call.B * call.G * plan.packs * plan.row_tiles;
    plan.state = kernels.state_floats(call);
    const int64_t wanted = 4 * threads;
    if (threads > 1 && plan.items < wanted && !out.pooled)
        plan.splits = std::max<int64_t>(1, std::min((wanted + plan.items - 1) / plan.items, call.N / kKeysPerSplit));
    return plan;
}

int threads_for(const Call& call, int threads) {
    const double work = static_cast<double>(call.B * call.H * call.M) * static_cast<double>(call.N * (call.D + call.E));
    return static_cast<int>(std::max(1.0, std::min<double>(threads, work / kWorkPerThread)));
}

// Columns of each block of the pooled map.
std::vector<float> widths_of(int64_t columns, int64_t blocks) {
    std::vector<float> widths(static_cast<size_t>(blocks));
    for (int64_t c = 0; c < blocks; ++c)
        widths[static_cast<size_t>(c)] = static_cast<float>((c + 1) * columns / blocks - c * columns / blocks);
    return widths;
}

// Means of the blocks of one head's map, from the sums that its row tiles left.
void mean_blocks(const Call& call, const Forward& out, const Plan& plan, const float* widths, int64_t head) {
    for (int64_t r = 0; r < out.R; ++r) {
        const int64_t begin = r * call.M / out.R, end = (r + 1) * call.M / out.R;
        float seeing = 0;
        for (int64_t i = begin; i < end; ++i) seeing += out.logsumexp[head * call.M + i] != -INFINITY;
        float* mean = out.pooled + (head * out.R + r) * out.C;
        const int64_t first = begin / plan.lanes, last = (end - 1) / plan.lanes;
        const float* band = plan.bands + (head * (plan.row_tiles + out.R) + first + r) * out.C;
        for (int64_t c = 0; c < out.C; ++c) mean[c] = band[c];
        for (int64_t t = first + 1; t <= last; ++t) {
            band += out.C;
            for (int64_t c = 0; c < out.C; ++c) mean[c] += band[c];
        }
        for (int64_t c = 0; c < out.C; ++c) mean[c] /= seeing * widths[c];
    }
}

}  // namespace

bool forward(const Kernels& kernels, const Call& call, const Forward& out, int threads,
             const std::function<bool()>& interrupted) {
    threads = threads_for(call, threads);
    Plan plan = plan_of(kernels, call, out, threads);
    const int64_t floats = kernels.scratch_floats(call, out);
    std::vector<float> parts(plan.splits > 1 ? static_cast<size_t>(plan.items * plan.splits * plan.state) : 0);
    std::vector<float> bands(out.pooled ? static_cast<size_t>(call.B * call.H * (plan.row_tiles + out.R) * out.C) : 0);
    plan.parts = parts.data();
    plan.bands = bands.data();
    const auto attend = [&](int64_t i) {
        kernels.attend(call, out, plan, i / plan.splits, i % plan.splits, scratch(floats));
    };
    if (!parallel_for(threads, plan.items * plan.splits, attend, interrupted)) return false;
    const auto merge = [&](int64_t item) { kernels.merge(call, out, plan, item, scratch(floats)); };
    if (plan.splits > 1 && !parallel_for(threads, plan.items, merge, interrupted)) return false;
    const std::vector<float> widths = widths_of(call.N, out.pooled ? out.C : 0);
    const auto mean = [&](int64_t head) { mean_blocks(call, out, plan, widths.data(), head); };
    return !out.pooled || parallel_for(1, call.B * call.H, mean, interrupted);
}

int available(const Kernels** found) {
    int count = 0;
#if defined(ATTN_HAS_X86)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (avx512) found[count++] = &avx512::kernels;
    if (avx2) found[count++] = &avx2::kernels;
#endif
#if defined(ATTN_HAS_NEON)
    found[count++] = &neon::kernels;
#endif
    found[count++] = &portable::kernels;
    return count;
}

}  // namespace attn
