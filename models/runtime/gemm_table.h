#pragma once
// The file of train.gemm_table. Its algorithms decide bits, so its digest stands in the resolved config: there it is
// kept with the run and its checkpoints, compared with that of every worker that joins, and with that of a run that
// goes on. A process that runs no model, like a coordinator on another host, needs the digest only and not the file.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/config/config.h"

namespace holdfast {

/// 16 hexadecimal digits.
std::string GemmTableDigest(const std::string& text);

/// Fills in train.gemm_table_digest, if there is a table and the config does not say it.
absl::Status ResolveGemmTable(TrainConfig* train);

/// The text; empty if there is no table. InvalidArgument, saying what to do, if the digest is another one.
absl::StatusOr<std::string> ReadGemmTable(const TrainConfig& train);

}  // namespace holdfast
