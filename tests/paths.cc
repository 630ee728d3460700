#include "tests/paths.h"

#include <cstdlib>

namespace holdfast {

std::string SourceDir() { return HOLDFAST_SOURCE_DIR; }

std::string TestedBinary() {
  const char* carried = std::getenv("HOLDFAST_BINARY");
  return carried == nullptr ? HOLDFAST_BINARY : carried;
}

}  // namespace holdfast
