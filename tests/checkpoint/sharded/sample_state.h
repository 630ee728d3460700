#pragma once
// A small model's state for the tests of shard and model files: tensors of every rank, rows that do and do not fill
// chunks, values that do and do not compress.

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/shard_writer.h"
#include "framework/nn/layout.h"
#include "tests/checkpoint/sharded/three_planes.h"

namespace holdfast {

inline ParameterLayout SampleLayout() {
  std::vector<ParameterSpec> parameters;
  const auto add = [&](const char* name, Shape shape) {
    ParameterSpec spec;
    spec.name = name;
    spec.shape = shape;
    parameters.push_back(spec);
  };
  add("embedding.weight", Shape({300, 768}));  // 85 rows a chunk: three and a rest of 45
  add("norm.weight", Shape({768}));
  add("scale", Shape({1}));
  add("experts.up", Shape({3, 50, 1000}));  // 65 rows a chunk, over the borders of experts
  add("deep", Shape({2, 3, 5, 9000}));      // 7 rows a chunk of 30
  add("wide", Shape({2, 70000}));           // a row a chunk
  add("even", Shape({256, 512}));           // 128 rows a chunk, no rest
  add("odd %b name", Shape({4, 4}));
  return ParameterLayout(std::move(parameters), {"model"});
}

/// weight: normal; exp_avg: zeros in the first half of the chunks, else normal; exp_avg_sq: bits that do not compress.
inline CapturedChunk SampleChunk(const ParameterLayout& layout, int chunk, unsigned seed = 1) {
  const auto elements = static_cast<size_t>(layout.chunks()[static_cast<size_t>(chunk)].elements);
  uint64_t state = seed * 1000u + static_cast<unsigned>(chunk);
  const auto random = [&state] {  // quick also under a sanitizer
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 32;
  };
  std::vector<float> values(elements * kStateKinds);
  for (size_t i = 0; i < elements; ++i) {
    values[i] = static_cast<float>(static_cast<int64_t>(random() % 20'001) - 10'000) * 1e-4f;
    values[elements + i] = chunk % 2 == 0 ? 0.0f : values[i] * 0.5f;
    const auto bits = static_cast<uint32_t>(random() & 0xBFFFFFFFu);  // finite
    std::memcpy(&values[2 * elements + i], &bits, sizeof bits);
  }
  CapturedChunk captured{.chunk = chunk, .bytes = CpuBytes(values.size() * sizeof(float))};
  std::memcpy(captured.bytes.data(), values.data(), captured.bytes.size());
  captured.digest = DigestBytes(captured.bytes);
  return captured;
}

/// Chunk c goes to shard owner(c).
template <typename Owner>
std::vector<std::vector<int>> Distribute(const ParameterLayout& layout, int num_shards, Owner owner) {
  std::vector<std::vector<int>> shards(static_cast<size_t>(num_shards));
  for (int c = 0; c < static_cast<int>(layout.chunks().size()); ++c) shards[static_cast<size_t>(owner(c))].push_back(c);
  return shards;
}

inline absl::StatusOr<ShardReport> WriteSampleShard(Storage& storage, const ShardWriterOptions& options,
                                                    const ParameterLayout& layout, std::vector<int> chunks) {
  auto writer = ShardWriter::Create(storage, options, ThreePlanes(layout), chunks);
  if (!writer.ok()) return writer.status();
  std::mt19937 random(7);
  std::shuffle(chunks.begin(), chunks.end(), random);  // any order will do
  for (const int c : chunks) {
    if (absl::Status added = (*writer)->Add(SampleChunk(layout, c)); !added.ok()) return added;
  }
  return (*writer)->Commit();
}

inline std::vector<StoredTensor> TensorsOf(const ParameterLayout& layout) {
  std::vector<StoredTensor> tensors;
  for (const ParameterSpec& spec : layout.parameters()) {
    StoredTensor tensor{spec.name, {}};
    for (int i = 0; i < spec.shape.rank(); ++i) tensor.shape.push_back(spec.shape[i]);
    tensors.push_back(tensor);
  }
  return tensors;
}

/// The values of a whole tensor, one kind.
inline std::vector<float> WholeTensor(const ParameterLayout& layout, int parameter, StateKind kind) {
  std::vector<float> values;
  for (int c = 0; c < static_cast<int>(layout.chunks().size()); ++c) {
    if (layout.chunks()[static_cast<size_t>(c)].parameter != parameter) continue;
    const CapturedChunk chunk = SampleChunk(layout, c);
    const size_t bytes = chunk.bytes.size() / kStateKinds;
    const size_t at = values.size();
    values.resize(at + bytes / sizeof(float));
    std::memcpy(values.data() + at, chunk.bytes.data() + static_cast<size_t>(kind) * bytes, bytes);
  }
  return values;
}

}  // namespace holdfast
