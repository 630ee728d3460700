// holdfast ckpt diff: which tensors of two checkpoints differ, where first and by how much. What has equal digests is
// not read.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/status.h"
#include "tools/ckpt_actions.h"
#include "tools/ckpt_text.h"
#include "tools/command.h"

namespace holdfast {
namespace {

constexpr int64_t kBatchElements = int64_t{4} << 20;  // 16 MiB of each plane on each side at a time

struct Difference {
  int64_t count = 0, first = -1;  // elements; index in the tensor
  float first_a = 0, first_b = 0;
  double max_abs = 0;
  bool unordered = false;  // a NaN on one side
};
using PlaneDifferences = std::vector<Difference>;  // by plane of a tensor

/// The same chunk on both sides.
struct ChunkPair {
  int a = 0, b = 0;
};

/// One side, with the digest of every chunk of its layout that is stored as such.
struct Side {
  std::unique_ptr<OpenedCheckpoint> checkpoint;
  ParameterLayout layout;
  std::map<std::pair<int, int64_t>, std::pair<int64_t, uint64_t>> digests;  // (tensor, first row) -> (rows, digest)

  const CheckpointReader& reader() const { return *checkpoint->reader; }
};

absl::StatusOr<Side> OpenSide(const TargetOptions& options) {
  HF_ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(options));
  HF_ASSIGN_OR_RETURN(ParameterLayout layout, LayoutOf(checkpoint->reader->manifest()));
  Side side{std::move(checkpoint), std::move(layout), {}};
  for (const auto& shard : side.reader().chunks()) {
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

/// Prints tensors that only one side has, or in another shape; returns how many. `common`: index in a, index in b.
size_t CompareTensorLists(const Manifest& a, const Manifest& b, std::vector<std::pair<int, int>>& common) {
  std::map<std::string, int> in_b;
  for (size_t i = 0; i < b.tensors.size(); ++i) in_b[b.tensors[i].name] = static_cast<int>(i);
  size_t different = 0;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const auto found = in_b.find(a.tensors[i].name);
    if (found == in_b.end()) {
      std::printf("%s: only in A\n", a.tensors[i].name.c_str());
      ++different;
      continue;
    }
    const StoredTensor& other = b.tensors[static_cast<size_t>(found->second)];
    if (other.shape == a.tensors[i].shape && other.planes != a.tensors[i].planes) {
      std::printf("%s: state %s in A, %s in B\n", other.name.c_str(), absl::StrJoin(a.tensors[i].planes, ", ").c_str(),
                  absl::StrJoin(other.planes, ", ").c_str());
      ++different;
    } else if (other.shape == a.tensors[i].shape) {
      common.emplace_back(static_cast<int>(i), found->second);
    } else {
      std::printf("%s: shape %s in A, %s in B\n", other.name.c_str(), ShapeText(a.tensors[i].shape).c_str(),
                  ShapeText(other.shape).c_str());
      ++different;
    }
    in_b.erase(found);
  }
  for (const auto& [name, index] : in_b) std::printf("%s: only in B\n", name.c_str());
  return different + in_b.size();
}

/// Chunks of common tensors whose digests do not settle it.
std::vector<ChunkPair> PairsToRead(const Side& a, const Side& b, const std::vector<std::pair<int, int>>& common) {
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

void CompareValues(const float* a, const float* b, int64_t count, int64_t first, Difference& difference) {
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
  HF_RETURN_IF_ERROR(side.reader().ReadChunks(side.layout, ascending, {.threads = threads}, keep));
  return values;
}

/// By tensor of a.
absl::StatusOr<std::map<int, PlaneDifferences>> ComparePairs(const Side& a, const Side& b,
                                                             const std::vector<ChunkPair>& pairs, int threads) {
  const auto chunk_of = [&](size_t i) -> const Chunk& { return a.layout.chunks()[static_cast<size_t>(pairs[i].a)]; };
  if (pairs.empty()) return std::map<int, PlaneDifferences>();
  uint64_t bytes = 0;
  const auto planes_of = [&](const Chunk& chunk) {
    return a.reader().manifest().tensors[static_cast<size_t>(chunk.parameter)].planes.size();
  };
  const auto bytes_of = [&](const Chunk& chunk) {
    return 2 * planes_of(chunk) * sizeof(float) * static_cast<uint64_t>(chunk.elements);
  };
  for (size_t i = 0; i < pairs.size(); ++i) bytes += bytes_of(chunk_of(i));
  SharedProgress progress("comparing", bytes);
  std::map<int, PlaneDifferences> differences;
  for (size_t begin = 0, end = 0; begin < pairs.size(); begin = end) {
    std::vector<int> wanted_a, wanted_b;
    for (int64_t elements = 0; end < pairs.size() && (end == begin || elements < kBatchElements); ++end) {
      wanted_a.push_back(pairs[end].a);
      wanted_b.push_back(pairs[end].b);
      elements += chunk_of(end).elements;
    }
    HF_ASSIGN_OR_RETURN(const auto values_a, ReadSide(a, wanted_a, threads));
    HF_ASSIGN_OR_RETURN(const auto values_b, ReadSide(b, wanted_b, threads));
    for (size_t i = begin; i < end; ++i) {
      const Chunk& chunk = chunk_of(i);
      const int64_t first = chunk.offset - a.layout.parameters()[static_cast<size_t>(chunk.parameter)].offset;
      PlaneDifferences& of_tensor = differences[chunk.parameter];
      of_tensor.resize(planes_of(chunk));
      for (size_t plane = 0; plane < of_tensor.size(); ++plane) {
        const size_t at = plane * static_cast<size_t>(chunk.elements);
        CompareValues(&values_a[i - begin][at], &values_b[i - begin][at], chunk.elements, first, of_tensor[plane]);
      }
      progress.Add(bytes_of(chunk));
    }
  }
  progress.Finish();
  return differences;
}

/// "[17, 3]" of a row-major index.
std::string IndexText(int64_t index, const std::vector<int64_t>& shape) {
  std::vector<int64_t> position(shape.size());
  for (size_t i = shape.size(); i > 0; --i) {
    position[i - 1] = index % shape[i - 1];
    index /= shape[i - 1];
  }
  return ShapeText(position);
}

size_t PrintDifferences(const Manifest& manifest, const std::map<int, PlaneDifferences>& differences) {
  size_t different = 0;
  for (const auto& [tensor, planes] : differences) {
    const StoredTensor& t = manifest.tensors[static_cast<size_t>(tensor)];
    bool any = false;
    for (size_t plane = 0; plane < planes.size(); ++plane) {
      const Difference& d = planes[plane];
      if (d.count == 0) continue;
      any = true;
      std::printf("%s %s: %s of %s values differ, by at most %.6g%s; first at %s: %.9g and %.9g\n", t.name.c_str(),
                  t.planes[plane].c_str(), WithCommas(static_cast<uint64_t>(d.count)).c_str(),
                  WithCommas(static_cast<uint64_t>(t.rows() * t.cols())).c_str(), d.max_abs,
                  d.unordered ? " and NaN" : "", IndexText(d.first, t.shape).c_str(), static_cast<double>(d.first_a),
                  static_cast<double>(d.first_b));
    }
    different += any ? 1 : 0;
  }
  return different;
}

}  // namespace

absl::StatusOr<int> CkptDiff(const CkptDiffOptions& options) {
  HF_ASSIGN_OR_RETURN(const Side a, OpenSide(options.a));
  HF_ASSIGN_OR_RETURN(const Side b, OpenSide(options.b));
  const Manifest &manifest_a = a.reader().manifest(), &manifest_b = b.reader().manifest();
  std::printf(
      "A  %s, state digest %s\nB  %s, state digest %s\n",
      Describe(manifest_a.name, *a.checkpoint->place.storage).c_str(), DigestText(manifest_a.state_digest).c_str(),
      Describe(manifest_b.name, *b.checkpoint->place.storage).c_str(), DigestText(manifest_b.state_digest).c_str());
  std::vector<std::pair<int, int>> common;
  size_t different = CompareTensorLists(manifest_a, manifest_b, common);
  const size_t tensors = common.size() + different;
  HF_ASSIGN_OR_RETURN(const auto differences, ComparePairs(a, b, PairsToRead(a, b, common), options.threads));
  different += PrintDifferences(manifest_a, differences);
  if (different == 0) {
    std::printf("equal: %zu tensors, all of their state, to the last bit\n", common.size());
    return kExitDone;
  }
  std::printf("different: %zu of %zu tensors\n", different, tensors);
  return kExitFailure;
}

}  // namespace holdfast
