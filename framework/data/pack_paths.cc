#include "framework/data/pack_paths.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "framework/base/status.h"
#include "framework/data/document_reader.h"
#include "framework/data/token_file.h"
#include "framework/data/token_index.h"

namespace holdfast {
namespace {

/// Of a file that need not exist: x//a, a symlinked directory and a relative path give what the plain path gives. So
/// two objects of a storage whose names differ in such things only count as one, which only refuses them.
std::filesystem::path PlainPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  std::filesystem::path plain = std::filesystem::weakly_canonical(absolute, error);
  return error ? absolute.lexically_normal() : plain;
}

struct NamedFile {
  std::string path, name;
};

/// An output is two files: itself and its index.
std::vector<NamedFile> FilesOf(const std::string& output, const std::string& name) {
  if (output.empty()) return {};
  return {{output, name}, {TokenIndexPath(output), "index of " + name}};
}

/// More than a name that was taken, as by mktemp.
bool HoldsSomething(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  return !error && bytes > 0;
}

/// A token file whose content cannot be read is one, if its header and length are right. Objects of a storage are never
/// replaced.
bool HoldsSomethingElse(const std::string& path) {
  LocalFileAccess files;
  return HoldsSomething(path) && absl::IsInvalidArgument(TokenFile::Open(files, path).status());
}

}  // namespace

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat first, second;
  if (stat(a.c_str(), &first) != 0 || stat(b.c_str(), &second) != 0) return PlainPath(a) == PlainPath(b);
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

absl::Status CheckPackPaths(const PackPaths& paths) {
  if (paths.inputs.empty()) return absl::InvalidArgumentError("no input files");
  if (paths.output.empty()) return absl::InvalidArgumentError("no output file");
  if (std::ranges::count(paths.inputs, "-") > 1) {
    return absl::InvalidArgumentError("standard input (-) is named twice, and can be read only once; leave one out");
  }
  const double fraction = paths.validation_fraction;
  if (!(fraction >= 0 && fraction < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a validation fraction of ", fraction, " leaves no training data: it is from 0 to below 1"));
  }
  if (fraction > 0 && paths.validation_output.empty()) {
    return absl::InvalidArgumentError("a validation fraction needs a validation output");
  }
  if (fraction == 0 && !paths.validation_output.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a validation fraction of 0 leaves nothing for ",
                                                   paths.validation_output, ": give a larger one, or leave both out"));
  }
  std::vector<NamedFile> used;
  for (const std::string& input : paths.inputs) {
    if (input != "-") used.push_back({input, "input"});
  }
  for (const std::string& file : paths.tokenizer) used.push_back({file, "the tokenizer's"});
  for (const auto& output : {FilesOf(paths.output, "output"), FilesOf(paths.validation_output, "validation output")}) {
    for (const NamedFile& file : output) {
      const auto same = [&](const NamedFile& other) { return IsSameFile(file.path, other.path); };
      const auto found = std::find_if(used.begin(), used.end(), same);
      if (found == used.end()) continue;
      return absl::InvalidArgumentError(absl::StrCat(file.path, ": is both ", found->name, " and ", file.name));
    }
    used.insert(used.end(), output.begin(), output.end());
  }
  for (const std::string& output : {paths.output, paths.validation_output}) {
    if (output.empty()) continue;
    if (HoldsSomethingElse(output)) {
      return absl::AlreadyExistsError(
          absl::StrCat(output, ": there is something already that is no token file; give another name"));
    }
    RETURN_IF_ERROR(CheckIndexPlace(output));
    if (!paths.overwrite && HoldsSomething(output)) {
      return absl::AlreadyExistsError(absl::StrCat(
          output, ": there is a token file already; give another name, or pass --overwrite to replace it"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> InputBytes(FileAccess& files, const std::vector<std::string>& inputs,
                                   const std::stop_token& stop) {
  int64_t total = 0;
  bool known = true;
  for (const std::string& path : inputs) {
    if (path == "-") {
      known = false;
      continue;
    }
    struct stat info;
    if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {  // a pipe is opened once
      known = false;
      continue;
    }
    ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(files, path, stop));
    known = known && file.size() > 0;
    total += file.size();
  }
  return known ? total : 0;
}

absl::Status OfWriting(const absl::Status& status) {
  if (!absl::IsCancelled(status)) return status;
  return absl::AbortedError(absl::StrCat(status.message(), ", and it may be written all the same"));
}

}  // namespace holdfast
