#include "tools/cli/output_arguments.h"

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace holdfast {

absl::Status CheckReplaces(const std::string& option, const std::string& path, const std::string& what,
                           const std::function<bool(const std::string&)>& is_one) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);  // who writes refuses what is no regular file
  if (error || bytes == 0 || is_one(path)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(option, " ", path, ": there is something already that is no ", what, "; give another name"));
}

}  // namespace holdfast
