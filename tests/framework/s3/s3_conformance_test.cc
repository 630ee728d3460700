// What every storage promises, kept by S3 storage on a server that verifies signatures and payloads.
#include "framework/s3/s3_storage.h"
#include "tests/framework/s3/moto_server.h"
#include "tests/framework/storage/conformance.h"

namespace holdfast {
namespace {

StorageBed MakeS3Bed() {
  SkipWithoutServer();
  MotoServer* server = MotoServer::Shared();
  if (server == nullptr) return {};
  S3Options options = server->NewBucket();
  options.prefix = "runs/gpt-2 small";  // whatever a user has for a folder
  options.part_bytes = 4u << 20;
  return {[options] {
            absl::StatusOr<std::unique_ptr<Storage>> storage = OpenS3Storage(options);
            EXPECT_TRUE(storage.ok()) << storage.status();
            return storage.ok() ? *std::move(storage) : nullptr;
          },
          nullptr};
}

INSTANTIATE_TEST_SUITE_P(S3, StorageConformance, testing::Values(StorageBedFactory{"S3", MakeS3Bed}), StorageBedName);

}  // namespace
}  // namespace holdfast
