#include "models/runtime/gemm_table.h"

#include "absl/strings/str_cat.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "xxhash.h"

namespace holdfast {
namespace {

constexpr size_t kMaxTableBytes = size_t{16} << 20;  // about 60,000 products

absl::StatusOr<std::string> ReadTable(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxTableBytes);
  if (text.ok() && text->empty())
    return absl::InvalidArgumentError(absl::StrCat("train.gemm_table: ", path, " is empty"));
  if (text.ok()) return text;
  return absl::Status(text.status().code(),
                      absl::StrCat("train.gemm_table: ", text.status().message(),
                                   "; `holdfast tune` makes it (a host that only coordinates can do with "
                                   "train.gemm_table_digest, which `tune` prints)"));
}

}  // namespace

std::string GemmTableDigest(const std::string& text) {
  return absl::StrCat(absl::Hex(XXH3_64bits(text.data(), text.size()), absl::kZeroPad16));
}

absl::Status ResolveGemmTable(TrainConfig* train) {
  if (train->gemm_table.empty() || !train->gemm_table_digest.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadTable(train->gemm_table));
  train->gemm_table_digest = GemmTableDigest(text);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadGemmTable(const TrainConfig& train) {
  if (train.gemm_table.empty()) return "";
  ASSIGN_OR_RETURN(std::string text, ReadTable(train.gemm_table));
  const std::string digest = GemmTableDigest(text);
  if (train.gemm_table_digest.empty() || train.gemm_table_digest == digest) return text;
  return absl::InvalidArgumentError(absl::StrCat(
      train.gemm_table, " has the digest ", digest, ", but train.gemm_table_digest is ", train.gemm_table_digest,
      ": it is not the table that this config was resolved with; bring that one back, or leave the digest out to take "
      "this one"));
}

}  // namespace holdfast
