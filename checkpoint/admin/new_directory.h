#pragma once
// Where a model may be written without replacing anything, or nothing but a model.

#include <string>

namespace holdfast {

/// Whether nothing is at `path`, or an empty directory.
bool IsAbsentOrEmpty(const std::string& path);
/// Whether the directory is a saved model's, or holds only what is left of one that was not finished.
bool HoldsModel(const std::string& directory);

}  // namespace holdfast
