#include "framework/data/pack_paths.h"

#include <sys/stat.h>

#include "framework/base/status.h"
#include "framework/data/document_reader.h"

namespace holdfast {
namespace {

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat first, second;
  if (stat(a.c_str(), &first) != 0 || stat(b.c_str(), &second) != 0) return a == b;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

absl::Status CheckPackPaths(const PackPaths& paths) {
  if (paths.inputs.empty()) return absl::InvalidArgumentError("no input files");
  if (paths.output.empty()) return absl::InvalidArgumentError("no output file");
  const double fraction = paths.validation_fraction;
  if (!(fraction >= 0 && fraction < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("validation fraction ", fraction, " is not in [0, 1)"));
  }
  if ((fraction > 0) != !paths.validation_output.empty()) {
    return absl::InvalidArgumentError("a validation fraction needs a validation output, and the other way round");
  }
  if (fraction > 0 && IsSameFile(paths.output, paths.validation_output)) {
    return absl::InvalidArgumentError(absl::StrCat(paths.output, ": is both output and validation output"));
  }
  for (const std::string& input : paths.inputs) {
    for (const std::string& output : {paths.output, paths.validation_output}) {
      if (input == "-" || output.empty() || !IsSameFile(input, output)) continue;
      return absl::InvalidArgumentError(absl::StrCat(output, ": is both input and output"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> InputBytes(FileAccess& files, const std::vector<std::string>& inputs) {
  int64_t total = 0;
  bool known = true;
  for (const std::string& path : inputs) {
    if (path == "-") {
      known = false;
      continue;
    }
    ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(files, path));
    known = known && file.size() > 0;
    total += file.size();
  }
  return known ? total : 0;
}

}  // namespace holdfast
