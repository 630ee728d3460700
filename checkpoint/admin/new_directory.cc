#include "checkpoint/admin/new_directory.h"

#include <filesystem>
#include <system_error>

namespace holdfast {

bool IsAbsentOrEmpty(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return !fs::exists(status) || (fs::is_directory(status) && fs::is_empty(path, error));
}

}  // namespace holdfast
