#pragma once
// What runs differ in that a scaling law says nothing of.

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "framework/config/config.h"
#include "framework/search/space.h"

namespace holdfast {

/// A run of a law, as far as its config and data go.
struct MixableRun {
  Config config;
  std::optional<double> data_tokens;  // of one pass over the training data
  std::string name, data_digest;      // for messages; of training and validation data, empty: not known
};

/// In what these runs differ: their data, and keys that decide bits and of which their configs have more than one
/// value, with the values: "data.train (a.bin of 9.31 M tokens, b.bin of 3.02 M tokens), optimizer.name (adamw, lion)";
/// shortened where they are many, empty if there are none. Left out are keys that a law knows, or takes for noise:
/// sizes of the model, lengths of run and schedule, learning rate, batch, seed, and what the run is computed with. Data
/// are the same if their files have the same names, wherever they lie, as many tokens, and, as far as runs know it, one
/// digest. Another tokenizer makes other data.
std::string MixedKeys(absl::Span<const MixableRun> runs);

/// In which of these keys the trials of a search over `space` may differ.
std::vector<std::string> MixableKeys(absl::Span<const search::Dimension> space);

}  // namespace holdfast
