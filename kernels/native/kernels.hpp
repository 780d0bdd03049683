// The instruction sets this library was compiled for, and which of them this processor has.
#pragma once

#include "call.hpp"

namespace attn {

#if defined(ATTN_HAS_X86)
namespace avx512 {
extern const Kernels kernels;
}
namespace avx2 {
extern const Kernels kernels;
}
#endif
#if defined(ATTN_HAS_NEON)
namespace neon {
extern const Kernels kernels;
}
#endif
namespace portable {
extern const Kernels kernels;
}

// Best first. At most 4; returns how many.
int available(const Kernels** found);

}  // namespace attn
