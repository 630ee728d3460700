#pragma once
// Listings, page by page: objects, and multipart uploads that were begun and not finished.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/s3/s3_client.h"
#include "framework/s3/s3_page.h"

namespace holdfast {

/// All keys that begin with `prefix`, in the server's order; at most `max_keys` of them if that is not 0.
absl::StatusOr<std::vector<ListedKey>> ListKeys(S3Client& client, const std::string& prefix, int max_keys = 0);
absl::StatusOr<std::vector<ListedUpload>> ListUploads(S3Client& client, const std::string& prefix);

/// `after_outage`: as S3Call has it.
absl::Status AbortUpload(S3Client& client, const std::string& key, const std::string& id, bool after_outage = false);

}  // namespace holdfast
