// Objects in a bucket keep the promises of random_access_file.h, also when others replace them; and token files and
// their indexes lie in a bucket as they do in a directory, through a network that breaks things.

#include <gmock/gmock.h>

#include <cstdlib>

#include "framework/places/places.h"
#include "tests/framework/s3/s3_bed.h"
#include "tests/framework/storage/random_access_conformance.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

struct BucketBed {
  std::shared_ptr<Storage> storage;
  std::unique_ptr<S3Client> others;  // which replace objects
};

RandomAccessBed MakeBucketBed() {
  SkipWithoutServer();
  MotoServer* server = MotoServer::Shared();
  if (server == nullptr) return {};
  S3Options options = server->NewBucket();
  options.prefix = "corpora";
  auto parts = std::make_shared<BucketBed>();
  parts->storage = *OpenS3Storage(options);
  parts->others = std::make_unique<S3Client>(options, *ResolveAddress(options), RealS3Shell());
  return {.put =
              [parts](const std::string& contents) {
                const MemoryBody body(contents);
                const auto answer = parts->others->Send({.method = "PUT", .key = "corpora/file", .body = &body});
                ASSERT_TRUE(answer.ok()) << answer.status();
              },
          .open = [parts]() -> absl::StatusOr<std::shared_ptr<const RandomAccessFile>> {
            return parts->storage->Open("file");
          },
          .keep_alive = parts};
}

INSTANTIATE_TEST_SUITE_P(S3, RandomAccessConformance, testing::Values(RandomAccessBedFactory{"S3", MakeBucketBed}),
                         RandomAccessBedName);

class PlacesTest : public S3Bed {
 protected:
  void SetUp() override {
    S3Bed::SetUp();
    if (IsSkipped()) return;
    setenv("AWS_ACCESS_KEY_ID", options_.credentials->Get()->access_key_id.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", options_.credentials->Get()->secret_access_key.c_str(), 1);
    root_ = "s3://" + options_.bucket + "/run";
    settings_ = {.s3 = {.endpoint = proxy_->url(), .retry_seconds = 3}, .staging_directory = testing::TempDir()};
  }
  static std::string ReadAll(const RandomAccessFile& file) { return ReadWhole(file, 1 << 20).value_or(""); }

  std::string root_;
  PlaceSettings settings_;
};

TEST_F(PlacesTest, FilesOfABucketAreMadeAndReadAsThoseOfADirectory) {
  const std::string local = testing::TempDir() + "places-" + std::to_string(getpid());
  for (const std::string& path : {root_ + "/deep/er/a.bin", local}) {
    std::shared_ptr<const RandomAccessFile> file;
    {
      Places places(settings_);
      EXPECT_TRUE(absl::IsNotFound(places.Open(path).status())) << path;
      {
        const auto made = places.Create(path);
        ASSERT_TRUE(made.ok()) << made.status();
        ASSERT_TRUE((*made)->Append("????????56789").ok());
        ASSERT_TRUE((*made)->Overwrite(0, "01234567").ok());
        EXPECT_TRUE(absl::IsNotFound(places.Open(path).status())) << "before Commit";
        const absl::Status committed = (*made)->Commit();
        ASSERT_TRUE(committed.ok()) << committed;
      }
      file = *places.Open(path);
    }
    EXPECT_EQ(ReadAll(*file), "0123456756789") << "an open file outlives who has opened it";
    EXPECT_EQ(file->path(), path);
  }
  EXPECT_TRUE(absl::IsAlreadyExists(Places(settings_).Create(root_ + "/deep/er/a.bin").status()))
      << "an object is never replaced, and that is said before it is made";
  unlink(local.c_str());
}

TEST_F(PlacesTest, OneStorageServesADirectory) {
  Places places(settings_);
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(storage_->Create(name, name).ok());
  const size_t before = CountRequests("list-type=2");
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(ReadAll(**places.Open(root_ + "/" + name)), name);
  EXPECT_EQ(CountRequests("list-type=2"), before + 1);
}

TEST_F(PlacesTest, PlacesThatAreNone) {
  Places places(settings_);
  for (const char* place : {"s3://", "s3://bucket", "s3://bucket/", "s3:///name", "s3://bucket/dir/"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(places.Open(place).status())) << place;
    EXPECT_TRUE(absl::IsInvalidArgument(places.Create(place).status())) << place;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(OpenRemoteStorage("/a/directory", settings_).status()));
}

TEST_F(PlacesTest, AReadSurvivesWhatPassesAndNamesWhatDoesNot) {
  ASSERT_TRUE(storage_->Create("file", Pattern(50'000)).ok());
  const auto file = *storage_->Open("file");
  std::string out(2000, '\0');
  const auto read = [&](uint64_t offset) {
    return file->ReadAt(offset, absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size()));
  };
  for (const Fault& fault : {Fault{.kind = Fault::Kind::kReset}, Fault{.kind = Fault::Kind::kCutAnswer, .bytes = 250},
                             Fault{Fault::Kind::kAnswer, ErrorAnswer(503, "SlowDown")}}) {
    Fail(fault, 2);
    const absl::Status status = read(30'000);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(out == Pattern(50'000).substr(30'000, 2000));
  }
  Fail({.kind = Fault::Kind::kReset}, 1000);
  const absl::Status status = read(10'000);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(root_ + "/file at byte 10000"));
  // Whatever a server says of a file that could be opened, the config is not to blame: a run does not end by it.
  Fail({Fault::Kind::kAnswer, ErrorAnswer(400, "InvalidRequest")});
  const absl::Status refused = read(20'000);
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(root_ + "/file at byte 20000"));
}

}  // namespace
}  // namespace holdfast
