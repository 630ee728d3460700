#pragma once
// OpenS3Storage with the clock, the waiting and the dice given from outside: for tests.

#include <memory>

#include "framework/s3/s3_client.h"
#include "framework/s3/s3_storage.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Storage>> OpenS3Storage(const S3Options& options, const S3Shell& shell);

}  // namespace holdfast
