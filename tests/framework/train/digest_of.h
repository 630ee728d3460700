#pragma once
// The digest of a trainer's state.

#include <cstdint>
#include <vector>

#include "framework/parallel/sharded_state.h"
#include "framework/train/trainer.h"

namespace holdfast {

/// StateDigest of the whole state; only in a world of one.
inline uint64_t DigestOf(Trainer& trainer) {
  const ShardedState& state = trainer.state();
  std::vector<uint64_t> digests;
  for (int c = 0; c < static_cast<int>(state.map().layout().chunks().size()); ++c) {
    digests.push_back(state.ChunkDigest(c));
  }
  return StateDigest(digests);
}

}  // namespace holdfast
