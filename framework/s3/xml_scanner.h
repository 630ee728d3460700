#pragma once
// Reads the XML that S3 answers with, by expat. A document type is refused, and so are entities of its own, elements
// nested deeper than 16, and documents over 64 MiB. Memory: the texts of the elements that are open.

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace holdfast {

inline constexpr size_t kMaxXmlBytes = 64u << 20;

/// Calls `on_element` at the end of each element with its path ("ListBucketResult/Contents/Key", without namespace
/// prefixes) and the text directly in it. InvalidArgument if the document is not well-formed, or what `on_element`
/// returns.
absl::Status ScanXml(absl::string_view document,
                     absl::FunctionRef<absl::Status(absl::string_view path, absl::string_view text)> on_element);

}  // namespace holdfast
