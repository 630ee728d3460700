#include "framework/train/same_weights.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/host.h"
#include "framework/base/status.h"
#include "xxhash.h"

namespace holdfast {
namespace {

constexpr int64_t kRowsRead = 16;  // of each parameter, the first and the last among them

/// What a rank says; plain bytes, the same on every machine that takes part.
struct Sample {
  uint64_t digest = 0;
  std::array<char, 56> host = {};  // ends with a zero
};

absl::StatusOr<uint64_t> DigestOfRows(const ParameterLayout& model, const ReadWeightsFn& read) {
  uint64_t digest = 0;
  std::vector<float> row;
  for (const ParameterSpec& spec : model.parameters()) {
    const int64_t cols = spec.shape.cols(), rows = spec.shape.elements() / cols, count = std::min(rows, kRowsRead);
    row.resize(static_cast<size_t>(cols));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = count == 1 ? 0 : i * (rows - 1) / (count - 1);
      RETURN_IF_ERROR(read(spec.offset + at * cols, absl::MakeSpan(row)));
      digest = XXH3_64bits_withSeed(row.data(), row.size() * sizeof(float), digest);
    }
  }
  return digest;
}

}  // namespace

absl::Status CheckSameWeights(const ParameterLayout& model, const ReadWeightsFn& read, Communicator& world,
                              std::chrono::milliseconds timeout) {
  const auto size = static_cast<size_t>(world.size());
  std::vector<Sample> all(size);
  Sample& mine = all[static_cast<size_t>(world.rank())];
  ASSIGN_OR_RETURN(mine.digest, DigestOfRows(model, read));
  const std::string host = HostName();
  std::copy_n(host.begin(), std::min(host.size(), mine.host.size() - 1), mine.host.begin());
  std::vector<int64_t> displacements;
  for (size_t r = 0; r < size; ++r) displacements.push_back(static_cast<int64_t>(r * sizeof(Sample)));
  const std::vector<int64_t> counts(size, sizeof(Sample));
  const ConstBytes input(reinterpret_cast<const std::byte*>(&mine), sizeof(Sample));
  const Bytes output(reinterpret_cast<std::byte*>(all.data()), size * sizeof(Sample));
  RETURN_IF_ERROR(world.AllGatherV(input, {output, counts, displacements}, std::chrono::steady_clock::now() + timeout));
  for (size_t r = 1; r < size; ++r) {
    if (all[r].digest == all[0].digest) continue;
    all[r].host.back() = all[0].host.back() = '\0';
    return absl::FailedPreconditionError(absl::StrCat("train.init_from holds other weights on ", all[r].host.data(),
                                                      " (rank ", r, ") than on ", all[0].host.data(),
                                                      " (rank 0): every host needs the same model there"));
  }
  return absl::OkStatus();
}

}  // namespace holdfast
