#include <algorithm>
#include <memory>

#include "kernels.hpp"
#include "parallel.hpp"
#include "run.hpp"

namespace attn {
namespace {

constexpr int64_t kItemsPerThread = 8;      // so that all threads end at about the same time
constexpr int64_t kKeysPerSplit = 256;      // each split costs one more set of gradients of the queries
constexpr int64_t kNear = 1 << 16;          // numbers of key and value that fit a cache beside their gradients
constexpr double kWorkPerItem = 1LL << 34;  // multiplications, a fraction of a second: Ctrl-C waits for an item
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

int64_t near_keys(const Kernels& kernels, const Call& call) {
    const int64_t tiles = std::min<int64_t>(512, kNear / (call.D + call.E)) / kernels.lanes;
    return std::max<int64_t>(1, tiles) * kernels.lanes;
}

int64_t turns_for(const Call& call, const Backward& out) {
    const double rows = static_cast<double>(call.H / call.G * call.M);
    const double work = rows * static_cast<double>(out.near * (3 * call.D + 2 * call.E));
    return std::max<int64_t>(1, static_cast<int64_t>(kWorkPerItem / work));
}

}  // namespace

bool backward(const Kernels& kernels, const Call& call, Backward out, int threads,
              const std::function<bool()>& interrupted) {
    threads = threads_for(call, threads);
    out.splits = splits_for(call, threads);
    out.near = near_keys(kernels, call);
    out.turns = turns_for(call, out);
    const int64_t lanes = kernels.lanes, tiles = call.B * call.H * ((call.M + lanes - 1) / lanes);
    const int64_t longest = ((call.N + lanes - 1) / lanes + out.splits - 1) / out.splits * lanes;  // of the parts
    // not cleared here: each thread writes its own parts first
    const std::unique_ptr<float[]> parts(new float[out.query.data ? tiles * out.splits * call.D * lanes : 0]);
    out.parts = parts.get();
    const auto step = [&](Step what) {
        const Work<Backward>& w = kernels.backward[what];
        const int64_t floats = w.scratch_floats(call, out);
        return parallel_for(
            threads, w.items(call, out), [&](int64_t item) { w.run(call, out, item, scratch(floats)); }, interrupted);
    };
    bool going = step(kDelta);
    for (; going && out.turn * out.near < longest; out.turn += out.turns) going = step(kSplit);
    return going && (!out.query.data || step(kGather));
}

}  // namespace attn
