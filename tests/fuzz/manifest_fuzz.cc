// What ParseManifest does with any bytes. The digest is put right first, else hardly anything would get past it; what
// is accepted must come back from its own text as the same manifest.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/manifest.h"

namespace holdfast {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

void Parse(const std::string& text) {
  const absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (!manifest.ok()) {
    Check(absl::IsDataLoss(manifest.status()) || absl::IsInvalidArgument(manifest.status()) ||
          absl::IsUnimplemented(manifest.status()));
    return;
  }
  for (const StoredTensor& tensor : manifest->tensors) Check(tensor.rows() > 0 && tensor.cols() > 0);
  const absl::StatusOr<Manifest> again = ParseManifest(FormatManifest(*manifest));
  Check(again.ok() && *again == *manifest);
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  holdfast::Parse(input);
  const std::string body = input.substr(0, input.rfind(",\n  \"digest\""));
  holdfast::Parse(absl::StrCat(body, ",\n  \"digest\": \"", holdfast::DigestFile(body), "\"\n}\n"));
  holdfast::CheckpointName::Parse(input);
  return 0;
}
