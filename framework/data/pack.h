#pragma once
// Text to token files: streaming, in bounded memory, with the ids of encoding every document whole.

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/data/pack_paths.h"
#include "framework/data/tokenizer.h"
#include "framework/storage/file_access.h"

namespace holdfast {

struct PackOptions {
  enum class Format { kAuto, kText, kJsonl };

  PackPaths paths = {};              // validation_fraction: of the tokens, the last
  Format format = Format::kAuto;     // kAuto: HasNameOfJsonLines, or all else is text: one document per file
  std::string jsonl_field = "text";  // JSONL: one document per line, in this field
  /// After every document that is not empty, if the tokenizer has one.
  bool append_end_of_text = true;
  /// Files that say where documents begin, so that training keeps them apart: with marks, of 4 bytes a token.
  bool documents = false;
  int threads = 1;  // that encode; no bit of the files depends on it
  /// Of the files, as they are stored. May be empty; total 0 = unknown.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};
  std::stop_token stop = {};  // Cancelled, and nothing written, where it comes before all has been
};

struct PackReport {
  int64_t documents = 0, empty_documents = 0;
  int64_t input_bytes = 0;                    // what is compressed counts as what it holds
  int64_t text_bytes = 0;                     // of the documents: of JSON Lines the field alone
  int64_t tokens = 0, validation_tokens = 0;  // in `output` and in `validation_output`
};

/// Writes the token file(s) and their indexes, each complete or not at all, and none before all can be; errors name
/// file and line, the first that has one. A document's text may not hold more than 64 MiB without a place to cut (a
/// line of JSONL: 64 MiB in all).
absl::StatusOr<PackReport> Pack(const Tokenizer& tokenizer, const PackOptions& options, FileAccess& files);

}  // namespace holdfast
