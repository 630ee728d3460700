#include "checkpoint/admin/new_directory.h"

#include <filesystem>
#include <system_error>

#include "framework/storage/temporary_name.h"

namespace holdfast {

bool IsAbsentOrEmpty(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return !fs::exists(status) || (fs::is_directory(status) && fs::is_empty(path, error));
}

bool HoldsModel(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  bool only_left_over = true;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const fs::path name = entry.path().filename();
    if (name.extension() == ".safetensors") return true;
    only_left_over = only_left_over && IsTemporaryName(name.string());
  }
  return only_left_over;
}

}  // namespace holdfast
