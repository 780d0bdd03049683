// Own threads, so that no second OpenMP runtime comes beside torch's.
#pragma once

#include <cstdint>
#include <functional>

namespace attn {

// Runs body(item) for every item in [0, items) on at most `threads` threads, the caller's among them. Items are taken one
// by one, so a slow core simply takes fewer. The caller asks `interrupted` between items, at most twenty times a second,
// and stops everyone when it says yes. Returns false then. An exception in `body` stops everyone and is thrown again here.
bool parallel_for(int threads, int64_t items, const std::function<void(int64_t)>& body,
                  const std::function<bool()>& interrupted);

// This thread's working memory, at least that many floats, aligned to 64 bytes. Kept between calls while small.
float* scratch(int64_t floats);

}  // namespace attn
