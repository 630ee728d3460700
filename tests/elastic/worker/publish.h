#pragma once
// The coordinator's part of a checkpoint of one worker: what was saved begins to exist.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "checkpoint/sharded/commit.h"
#include "elastic/control/messages.h"
#include "framework/nn/state_layout.h"

namespace holdfast {

/// The checkpoint's name.
inline std::string Publish(Storage& storage, const SavedMessage& saved, const StateLayout& layout) {
  Manifest manifest;
  manifest.name = {saved.step, saved.generation};
  manifest.config = "{}";
  manifest.world_size = 1;
  manifest.sharding = "full_shard";
  manifest.tensors = StoredTensorsOf(layout);
  manifest.shards.push_back({{saved.data.name, saved.data.size, saved.data.digest},
                             {saved.index.name, saved.index.size, saved.index.digest},
                             saved.chunks});
  const absl::StatusOr<std::unique_ptr<Fence>> fence = Fence::Claim(storage, "this test");
  EXPECT_TRUE(fence.ok()) << fence.status();
  const absl::StatusOr<Manifest> committed = CommitCheckpoint(storage, **fence, manifest);
  EXPECT_TRUE(committed.ok()) << committed.status();
  return manifest.name.ToString();
}

}  // namespace holdfast
