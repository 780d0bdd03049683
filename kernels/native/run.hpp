// A whole forward pass: cuts it into items, runs them on threads, joins what has to be joined.
#pragma once

#include <functional>

#include "call.hpp"

namespace attn {

// False when `interrupted` stopped it; the results are then incomplete.
bool forward(const Kernels& kernels, const Call& call, const Forward& out, int threads,
             const std::function<bool()>& interrupted);

bool backward(const Kernels& kernels, const Call& call, Backward out, int threads,
              const std::function<bool()>& interrupted);

// One function of a finished call. False when `interrupted` stopped it.
bool view(const Kernels& kernels, Kind kind, const Call& call, View view, int threads,
          const std::function<bool()>& interrupted);

}  // namespace attn
