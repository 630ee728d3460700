#define XXH_INLINE_ALL
#include "kernels/cpu/cpu_ops.h"
#include "xxhash.h"

namespace holdfast::kernels {

void CpuOps::ChunkDigests(const ChunkDigestsArgs& args) {
  const int64_t chunks = (args.n + args.chunk - 1) / args.chunk;
  ParallelFor(executor_, chunks, [&](int64_t chunk, int) {
    const int64_t first = chunk * args.chunk;
    const auto bytes = static_cast<size_t>(std::min(args.chunk, args.n - first)) * sizeof(float);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (int plane = 0; plane < args.num_planes; ++plane) {
      XXH3_64bits_update(&state, args.planes[static_cast<size_t>(plane)] + first, bytes);
    }
    args.digests[chunk] = XXH3_64bits_digest(&state);
  });
}

}  // namespace holdfast::kernels
