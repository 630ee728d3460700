#pragma once
// The manifest's fields as JSON text and back. Syntax only: what the values may be is CheckManifest's business.

#include <string>

#include "absl/status/status.h"
#include "checkpoint/sharded/manifest.h"

namespace holdfast {

/// Everything but the digest and the brace that closes the object.
std::string FormatManifestFields(const Manifest& manifest);

/// The whole object, without the digest. InvalidArgument, naming the field: every field once, in the order they are
/// written in, nothing else, whole numbers exact. Memory: of the manifest, not of the text's structure.
absl::Status ParseManifestFields(const std::string& json, Manifest* manifest);

}  // namespace holdfast
