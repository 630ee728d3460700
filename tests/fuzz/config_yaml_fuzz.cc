// What ParseConfig does with any bytes. What is accepted comes back from the text that is written of it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "framework/config/config.h"
#include "framework/config/load.h"
#include "models/families/families.h"

namespace holdfast {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

void Parse(const std::string& text) {
  const absl::StatusOr<Config> config = ParseConfig(text, "run.yaml", {}, {.families = FamilyPresets()});
  if (!config.ok()) {
    Check(absl::IsInvalidArgument(config.status()));
    Check(config.status().message().size() < 10 * text.size() + 10'000);
    return;
  }
  const absl::StatusOr<Config> again =
      ParseConfig(PrintConfig(*config), "again.yaml", {}, {.families = FamilyPresets()});
  Check(again.ok() && *again == *config);
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::Parse(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
