#pragma once
// Storage in memory; staged files lie in `scratch`, a directory.

#include <memory>
#include <string>

#include "framework/storage/storage.h"

namespace holdfast {

std::unique_ptr<Storage> MakeMemoryStorage(const std::string& scratch);

}  // namespace holdfast
