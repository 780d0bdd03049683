#include <algorithm>
#include <vector>

#include "kernels.hpp"
#include "parallel.hpp"
#include "run.hpp"

namespace attn {
namespace {

constexpr double kWorkPerThread = 1 << 20;  // multiplications; waking a thread costs about as much time

int threads_for(const Call& call, const View& view, int threads) {
    const double rows = static_cast<double>(call.B * call.H * (view.row_end - view.row_begin));
    const double work = rows * static_cast<double>((view.col_end - view.col_begin) * (call.D + view.width));
    return static_cast<int>(std::max(1.0, std::min<double>(threads, work / kWorkPerThread)));
}

}  // namespace

bool view(const Kernels& kernels, Kind kind, const Call& call, View view, int threads,
          const std::function<bool()>& interrupted) {
    threads = threads_for(call, view, threads);
    const auto work = [&](Kind what) {
        const Work<View>& w = kernels.views[what];
        const int64_t floats = w.scratch_floats(call, view);
        return parallel_for(
            threads, w.items(call, view), [&](int64_t item) { w.run(call, view, item, scratch(floats)); }, interrupted);
    };
    if (kind != kPool) return work(kind);
    const int64_t row_tiles = (view.row_end - view.row_begin + kernels.lanes - 1) / kernels.lanes;
    std::vector<float> bands(static_cast<size_t>(call.B * call.H * (row_tiles + view.R) * view.C));
    view.bands = bands.data();
    return work(kPool) && work(kJoin);
}

}  // namespace attn
