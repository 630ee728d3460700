#pragma once
// Reads the XML that S3 answers with, and nothing more: elements, text, the five named entities and character
// references. Comments and processing instructions are skipped; a document type or CDATA, a tag that does not match, an
// unknown entity, depth over 16 or anything after the root is an error. Memory: the text of the element being read.

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// Calls `on_element` at the end of each element with its path ("ListBucketResult/Contents/Key", without namespace
/// prefixes) and the text directly in it. InvalidArgument if the document is not well-formed, or what `on_element`
/// returns.
absl::Status ScanXml(absl::string_view document,
                     absl::FunctionRef<absl::Status(absl::string_view path, absl::string_view text)> on_element);

}  // namespace holdfast
