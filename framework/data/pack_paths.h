#pragma once
// What packing checks of the places it reads from and writes to, before it does either.

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/storage/file_access.h"

namespace holdfast {

struct PackPaths {
  std::vector<std::string> inputs = {};  // places of `files`; "-" = standard input
  std::string output = {};
  double validation_fraction = 0;  // of what is packed goes to validation_output instead; 0 = all to `output`
  std::string validation_output = {};
  std::vector<std::string> tokenizer = {};  // files that were read before
  bool overwrite = false;                   // outputs may be token files, which are replaced
};

/// However the two are spelled; of files that need not exist.
bool IsSameFile(const std::string& a, const std::string& b);

/// InvalidArgument if a place is missing or used twice, however it is spelled; each output's index is one too.
/// AlreadyExists if an output would take the place of a token file without `overwrite`, or of what is no token file, or
/// no index of one.
absl::Status CheckPackPaths(const PackPaths& paths);

/// Opens every input once, so that a missing one is found at once: the sum of their sizes, 0 if one of them is unknown.
absl::StatusOr<int64_t> InputBytes(FileAccess& files, const std::vector<std::string>& inputs,
                                   const std::stop_token& stop);

/// Of the end of packing, at which outputs get their names: where a stop ends that amid a transfer it is Aborted, for
/// what is written by then stays, and nobody knows whether that one is.
absl::Status OfWriting(const absl::Status& status);

}  // namespace holdfast
