#include "checkpoint/admin/checkpoint_diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "checkpoint/sharded/stored_layout.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kBatchElements = int64_t{4} << 20;  // 16 MiB of each plane on each side at a time

/// The same chunk on both sides.
struct ChunkPair {
  int a = 0, b = 0;
};

/// One side, with the digest of every chunk of its layout that is stored as such.
struct Side {
  const CheckpointReader& reader;
  ParameterLayout layout;
  std::map<std::pair<int, int64_t>, std::pair<int64_t, uint64_t>> digests;  // (tensor, first row) -> (rows, digest)
};

absl::StatusOr<Side> SideOf(const CheckpointReader& reader) {
  ASSIGN_OR_RETURN(ParameterLayout layout, LayoutOf(reader.manifest()));
  Side side{reader, std::move(layout), {}};
  for (const auto& shard : reader.chunks()) {
    for (const StoredChunk& chunk : shard) {
      side.digests[{chunk.tensor, chunk.first_row}] = {chunk.rows, chunk.digest};
    }
  }
  return side;
}

bool EqualByDigest(const Side& a, const Side& b, const ChunkPair& pair) {
  const Chunk& chunk_a = a.layout.chunks()[static_cast<size_t>(pair.a)];
  const Chunk& chunk_b = b.layout.chunks()[static_cast<size_t>(pair.b)];
  const auto found_a = a.digests.find({chunk_a.parameter, chunk_a.first_row});
  const auto found_b = b.digests.find({chunk_b.parameter, chunk_b.first_row});
  return found_a != a.digests.end() && found_b != b.digests.end() && found_a->second == found_b->second &&
         found_a->second.first == chunk_a.num_rows;
}

/// Index in a, index in b.
using TensorPairs = std::vector<std::pair<int, int>>;

/// Those that both have are left to `common`.
std::vector<TensorMismatch> CompareTensorLists(const Manifest& a, const Manifest& b, TensorPairs& common) {
  std::map<std::string, int> in_b;
  for (size_t i = 0; i < b.tensors.size(); ++i) in_b[b.tensors[i].name] = static_cast<int>(i);
  std::vector<TensorMismatch> mismatches;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const auto found = in_b.find(a.tensors[i].name);
    if (found == in_b.end()) {
      mismatches.push_back({.name = a.tensors[i].name, .shape_a = a.tensors[i].shape, .shape_b = {}});
      continue;
    }
    const StoredTensor& other = b.tensors[static_cast<size_t>(found->second)];
    if (other.shape == a.tensors[i].shape && other.planes == a.tensors[i].planes) {
      common.emplace_back(static_cast<int>(i), found->second);
    } else {
      mismatches.push_back({.name = other.name,
                            .shape_a = a.tensors[i].shape,
                            .shape_b = other.shape,
                            .planes_a = a.tensors[i].planes,
                            .planes_b = other.planes});
    }
    in_b.erase(found);
  }
  for (const auto& [name, index] : in_b) {
    mismatches.push_back({.name = name, .shape_a = {}, .shape_b = b.tensors[static_cast<size_t>(index)].shape});
  }
  return mismatches;
}

/// Chunks of common tensors whose digests do not settle it.
std::vector<ChunkPair> PairsToRead(const Side& a, const Side& b, const TensorPairs& common) {
  std::vector<ChunkPair> pairs;
  for (const auto& [tensor_a, tensor_b] : common) {
    const auto first = [](const Side& side, int tensor) {
      const auto chunks = side.layout.chunks();
      return static_cast<int>(std::lower_bound(chunks.begin(), chunks.end(), tensor,
                                               [](const Chunk& c, int t) { return c.parameter < t; }) -
                              chunks.begin());
    };
    ChunkPair pair{first(a, tensor_a), first(b, tensor_b)};
    const auto chunks = a.layout.chunks();
    for (; static_cast<size_t>(pair.a) < chunks.size() && chunks[static_cast<size_t>(pair.a)].parameter == tensor_a;
         ++pair.a, ++pair.b) {
      if (!EqualByDigest(a, b, pair)) pairs.push_back(pair);
    }
  }
  return pairs;
}

void CompareValues(const float* a, const float* b, int64_t count, int64_t first, ValueDifference& difference) {
  for (int64_t i = 0; i < count; ++i) {
    if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
    if (difference.count++ == 0) {
      difference.first = first + i;
      difference.first_a = a[i];
      difference.first_b = b[i];
    }
    const double gap = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(gap)) difference.unordered = true;
    if (gap > difference.max_abs) difference.max_abs = gap;
  }
}

/// The chunks `wanted` of one side, one after the other.
absl::StatusOr<std::vector<std::vector<float>>> ReadSide(const Side& side, const std::vector<int>& wanted,
                                                         int threads) {
  std::map<int, size_t> place;
  for (size_t i = 0; i < wanted.size(); ++i) place[wanted[i]] = i;
  std::vector<std::vector<float>> values(wanted.size());
  const auto keep = [&](int chunk, absl::Span<const std::byte> bytes) {
    std::vector<float>& out = values[place.at(chunk)];
    out.resize(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  };
  std::vector<int> ascending = wanted;
  std::sort(ascending.begin(), ascending.end());
  RETURN_IF_ERROR(side.reader.ReadChunks(side.layout, ascending, {.threads = threads}, keep));
  return values;
}

/// By tensor of a.
absl::StatusOr<std::map<int, PlaneDifferences>> ComparePairs(const Side& a, const Side& b,
                                                             const std::vector<ChunkPair>& pairs, int threads,
                                                             const ByteProgress& progress) {
  const auto chunk_of = [&](size_t i) -> const Chunk& { return a.layout.chunks()[static_cast<size_t>(pairs[i].a)]; };
  if (pairs.empty()) return std::map<int, PlaneDifferences>();
  uint64_t bytes = 0;
  const auto planes_of = [&](const Chunk& chunk) {
    return a.reader.manifest().tensors[static_cast<size_t>(chunk.parameter)].planes.size();
  };
  const auto bytes_of = [&](const Chunk& chunk) {
    return 2 * planes_of(chunk) * sizeof(float) * static_cast<uint64_t>(chunk.elements);
  };
  for (size_t i = 0; i < pairs.size(); ++i) bytes += bytes_of(chunk_of(i));
  ByteCounter counter(bytes, progress);
  std::map<int, PlaneDifferences> differences;
  for (size_t begin = 0, end = 0; begin < pairs.size(); begin = end) {
    std::vector<int> wanted_a, wanted_b;
    for (int64_t elements = 0; end < pairs.size() && (end == begin || elements < kBatchElements); ++end) {
      wanted_a.push_back(pairs[end].a);
      wanted_b.push_back(pairs[end].b);
      elements += chunk_of(end).elements;
    }
    ASSIGN_OR_RETURN(const auto values_a, ReadSide(a, wanted_a, threads));
    ASSIGN_OR_RETURN(const auto values_b, ReadSide(b, wanted_b, threads));
    for (size_t i = begin; i < end; ++i) {
      const Chunk& chunk = chunk_of(i);
      const int64_t first = chunk.offset - a.layout.parameters()[static_cast<size_t>(chunk.parameter)].offset;
      PlaneDifferences& of_tensor = differences[chunk.parameter];
      of_tensor.resize(planes_of(chunk));
      for (size_t plane = 0; plane < of_tensor.size(); ++plane) {
        const size_t at = plane * static_cast<size_t>(chunk.elements);
        CompareValues(&values_a[i - begin][at], &values_b[i - begin][at], chunk.elements, first, of_tensor[plane]);
      }
      counter.Add(bytes_of(chunk));
    }
  }
  return differences;
}

}  // namespace

absl::StatusOr<CheckpointDifference> DiffCheckpoints(const CheckpointReader& a, const CheckpointReader& b, int threads,
                                                     const ByteProgress& progress) {
  ASSIGN_OR_RETURN(const Side side_a, SideOf(a));
  ASSIGN_OR_RETURN(const Side side_b, SideOf(b));
  TensorPairs common;
  CheckpointDifference difference;
  difference.mismatches = CompareTensorLists(a.manifest(), b.manifest(), common);
  difference.common = common.size();
  ASSIGN_OR_RETURN(difference.of_tensor,
                   ComparePairs(side_a, side_b, PairsToRead(side_a, side_b, common), threads, progress));
  return difference;
}

}  // namespace holdfast
