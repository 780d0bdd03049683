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

// Means of the blocks of one head's map, from the sums that its row tiles left.
void mean_blocks(const Call& call, const Forward& out, const Plan& plan, int64_t head) {
    for (int64_t r = 0; r < out.R; ++r) {
        const int64_t begin = r * call.M / out.R, end = (r + 1) * call.M / out.R;
        int64_t seeing = 0;
        for (int64_t i = begin; i < end; ++i) seeing += out.logsumexp[head * call.M + i] != -INFINITY;
        for (int64_t c = 0; c < out.C; ++c) {
            const int64_t width = (c + 1) * call.N / out.C - c * call.N / out.C;
            float sum = 0;
            for (int64_t t = begin / plan.lanes; t <= (end - 1) / plan.lanes; ++t)
                sum += plan.bands[(head * (plan.row_tiles + out.R) + t + r) * out.C + c];
            out.pooled[(head * out.R + r) * out.C + c] = sum / static_cast<float>(seeing * width);
        }
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
    const auto mean = [&](int64_t head) { mean_blocks(call, out, plan, head); };
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
