#pragma once
// An object of a bucket, replaced with If-Match and its entity tag, and made with If-None-Match.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "elastic/lease/lease_store.h"
#include "framework/s3/s3_client.h"

namespace holdfast {

/// Thread-safe.
class S3LeaseStore final : public LeaseStore {
 public:
  /// `options.prefix` is the object's key. With `check`, InvalidArgument if the server ignores If-Match or does not
  /// know it: one that ignores it would give the lease to all who ask.
  static absl::StatusOr<std::unique_ptr<S3LeaseStore>> Open(const S3Options& options, bool check);

  absl::StatusOr<Entry> Read() override;
  absl::StatusOr<std::string> Replace(const std::string& version, absl::string_view text) override;
  std::string Describe() const override;

 private:
  S3LeaseStore(const S3Options& options, S3Address address)
      : key_(options.prefix), client_(options, std::move(address), RealS3Shell()) {}
  absl::Status CheckIfMatch();

  const std::string key_;
  S3Client client_;
};

}  // namespace holdfast
