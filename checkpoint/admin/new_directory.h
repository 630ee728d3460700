#pragma once
// Where a model may be written without replacing anything.

#include <string>

namespace holdfast {

/// Whether nothing is at `path`, or an empty directory.
bool IsAbsentOrEmpty(const std::string& path);

}  // namespace holdfast
