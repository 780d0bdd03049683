#include <algorithm>
#include <memory>

#include "kernels.hpp"
#include "parallel.hpp"
#include "run.hpp"

namespace attn {
namespace {

constexpr int64_t kItemsPerThread = 8;      // so that all threads end at about the same time
constexpr int64_t kKeysPerSplit = 256;      // each split costs one more set of gradients of the queries
constexpr double kWorkPerThread = 1 << 20;  // multiplications; waking a thread costs about as much time

int threads_for(const Call& call, int threads) {
    const double work = static_cast<double>(call.B * call.H * call.M) * static_cast<double>(call.N * (call.D + call.E));
    return static_cast<int>(std::max(1.0, std::min<double>(threads, work / kWorkPerThread)));
}

int64_t splits_for(const Call& call, int threads) {
    if (threads == 1) return 1;
    const int64_t groups = call.B * call.G, wanted = (kItemsPerThread * threads + groups - 1) / groups;
    return std::max<int64_t>(1, std::min(wanted, call.N / kKeysPerSplit));
}

}  // namespace

bool backward(const Kernels& kernels, const Call& call, Backward out, int threads,
              const std::function<bool()>& interrupted) {
    threads = threads_for(call, threads);
    out.splits = splits_for(call, threads);
    const int64_t tiles = call.B * call.H * ((call.M + kernels.lanes - 1) / kernels.lanes);
    // not cleared here: each thread writes its own parts first
    const std::unique_ptr<float[]> parts(new float[out.query.data ? tiles * out.splits * call.D * kernels.lanes : 0]);
    out.parts = parts.get();
    const auto step = [&](Step what) {
        const Work<Backward>& w = kernels.backward[what];
        const int64_t floats = w.scratch_floats(call, out);
        return parallel_for(
            threads, w.items(call, out), [&](int64_t item) { w.run(call, out, item, scratch(floats)); }, interrupted);
    };
    return step(kDelta) && step(kSplit) && (!out.query.data || step(kGather));
}

}  // namespace attn
