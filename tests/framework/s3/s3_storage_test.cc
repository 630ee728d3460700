// S3 storage against a server that verifies signatures: keys, buckets, pages, parts, staged files.
#include "framework/s3/s3_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "framework/s3/s3_client.h"
#include "framework/s3/s3_listing.h"
#include "tests/framework/s3/fixed_credentials.h"
#include "tests/framework/s3/moto_server.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::string Pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>((i * 2654435761u) >> 13);
  return text;
}

void Write(const std::string& path, const std::string& contents) {
  std::ofstream out(path, std::ios::binary);
  out << contents;
  ASSERT_TRUE(out.flush().good());
}

TEST(S3Storage, WritesListsReadsAndDeletes) {
  HOLDFAST_MOTO_OR_SKIP(moto);
  S3Options options = moto->NewBucket();
  options.prefix = "/runs/a/";
  const absl::StatusOr<std::unique_ptr<Storage>> opened = OpenS3Storage(options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  Storage& storage = **opened;
  EXPECT_EQ(storage.Describe(), "s3://" + options.bucket + "/runs/a");
  ASSERT_TRUE(storage.Create("step-1/manifest.json", "hello").ok());
  EXPECT_EQ(storage.Create("step-1/manifest.json", "HELLO").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*storage.List("step"), (std::vector<StoredObject>{{"step-1/manifest.json", 5}}));
  EXPECT_EQ(*ReadObject(storage, "step-1/manifest.json", 100), "hello");
  ASSERT_TRUE(storage.Delete("step-1/manifest.json").ok());
  EXPECT_TRUE(storage.List("")->empty());
}

TEST(S3Storage, UploadsInPartsAndReadsInPieces) {
  HOLDFAST_MOTO_OR_SKIP(moto);
  S3Options options = moto->NewBucket();
  options.part_bytes = 2u << 20;
  const std::unique_ptr<Storage> storage = *OpenS3Storage(options);
  const std::string contents = Pattern((9u << 20) + 17);
  absl::StatusOr<std::unique_ptr<StagedFile>> file = storage->Stage("big", contents.size());
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string path = (*file)->path();
  Write(path, contents);
  const absl::Status committed = (*file)->Commit();
  ASSERT_TRUE(committed.ok()) << committed;
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(*ReadObject(*storage, "big", contents.size()) == contents);
  S3Client client(options, *ResolveAddress(options), RealS3Shell());
  EXPECT_TRUE(ListUploads(client, "")->empty());
}

TEST(S3Storage, AWrongKeyIsRefused) {
  HOLDFAST_MOTO_OR_SKIP(moto);
  S3Options options = moto->NewBucket();
  S3Credentials wrong = moto->credentials();
  wrong.secret_access_key.back() ^= 1;
  options.credentials = FixedCredentials(wrong);
  const absl::Status wrong_secret = OpenS3Storage(options).status();
  EXPECT_EQ(wrong_secret.code(), absl::StatusCode::kPermissionDenied) << wrong_secret;
  EXPECT_THAT(Message(wrong_secret), HasSubstr("SignatureDoesNotMatch"));
  EXPECT_THAT(Message(wrong_secret), testing::Not(HasSubstr(wrong.secret_access_key)));
  options.credentials = FixedCredentials({"AKIAIOSFODNN7EXAMPLE", moto->credentials().secret_access_key, ""});
  const absl::Status wrong_id = OpenS3Storage(options).status();
  EXPECT_EQ(wrong_id.code(), absl::StatusCode::kPermissionDenied) << wrong_id;
  EXPECT_THAT(Message(wrong_id), HasSubstr("InvalidAccessKeyId"));
}

TEST(S3Storage, NamesWhatIsWrongWhenOpened) {
  HOLDFAST_MOTO_OR_SKIP(moto);
  S3Options options = moto->NewBucket();
  options.bucket = "no-such-bucket";
  options.retry_for = std::chrono::milliseconds(0);
  const absl::Status no_bucket = OpenS3Storage(options).status();
  EXPECT_EQ(no_bucket.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(no_bucket), HasSubstr("NoSuchBucket"));
  options.endpoint = "http://127.0.0.1:1";
  const absl::Status no_server = OpenS3Storage(options).status();
  EXPECT_EQ(no_server.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(no_server), HasSubstr("failed in 1 attempt within 0 s"));
}

TEST(S3Storage, ListsPageAfterPage) {
  HOLDFAST_MOTO_OR_SKIP(moto);
  const std::unique_ptr<Storage> storage = *OpenS3Storage(moto->NewBucket());
  std::vector<StoredObject> expected;
  for (int i = 0; i < 120; ++i) {  // the server gives 50 at once
    expected.push_back({"object-" + std::to_string(1000 + i), static_cast<uint64_t>(i)});
    ASSERT_TRUE(storage->Create(expected.back().name, std::string(static_cast<size_t>(i), 'x')).ok());
  }
  EXPECT_EQ(*storage->List("object-"), expected);
}

}  // namespace
}  // namespace holdfast
