// Uploads in parts: each part is tried again by itself, completion is asked about rather than guessed, and no part
// stays behind where it could be removed.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "framework/base/process_id.h"
#include "framework/s3/object_writer.h"
#include "tests/framework/s3/s3_bed.h"

namespace holdfast {
namespace {

using Kind = Fault::Kind;
using ::testing::HasSubstr;

class Multipart : public S3Bed {
 protected:
  const std::string contents_ = Pattern(5 * kPart + 77);  // six parts

  void ExpectUploaded(const std::string& name = "big") {
    const absl::Status status = Put(name, contents_);
    ASSERT_TRUE(status.ok()) << status;
    ExpectObject(name, contents_);
    ExpectNoUploads();
  }
  // Nothing is there, neither object nor parts nor the staged file.
  absl::Status ExpectRefused() {
    const absl::Status status = Put("big", contents_);
    EXPECT_FALSE(status.ok());
    ExpectNothing("big");
    return status;
  }
};

TEST_F(Multipart, UploadsPartByPart) {
  ExpectUploaded();
  EXPECT_EQ(CountRequests("partNumber="), 6u);
  std::string tail(100, '\0');
  ASSERT_TRUE(Read("big", &tail, contents_.size() - 100).ok());
  EXPECT_EQ(tail, contents_.substr(contents_.size() - 100));
}

TEST_F(Multipart, AFileOfExactlyOnePartIsOneRequest) {
  const std::string one = Pattern(kPart);
  ASSERT_TRUE(Put("one", one).ok());
  ExpectObject("one", one);
  EXPECT_EQ(CountRequests("uploads"), 0u);
}

TEST_F(Multipart, APartIsTriedAgainByItself) {
  for (const Fault& fault : {Fault{Kind::kAnswer, ErrorAnswer(500, "InternalError")}, Fault{.kind = Kind::kReset},
                             Fault{.kind = Kind::kLoseAnswer}, Fault{.kind = Kind::kCutAnswer, .bytes = 30},
                             Fault{.kind = Kind::kFlipBody}}) {
    const std::string name = "big-" + std::to_string(static_cast<int>(fault.kind));
    SCOPED_TRACE(name);
    const size_t before = CountRequests("partNumber=");
    Fail(fault, 2, "PUT", "partNumber=3&");
    ExpectUploaded(name);
    EXPECT_EQ(CountRequests("partNumber=") - before, 8u);
  }
}

TEST_F(Multipart, APartThatNeverArrivesAbortsTheUpload) {
  Fail({Kind::kAnswer, ErrorAnswer(500, "InternalError")}, 1000, "PUT", "partNumber=3&");
  EXPECT_EQ(ExpectRefused().code(), absl::StatusCode::kUnavailable);
  proxy_->SetRule([](const ProxiedRequest&) { return Fault{}; });
  ExpectUploaded();  // and the next attempt starts afresh
}

// The upload was given up, and then its end was waited for as long again, as was what had become of it.
TEST_F(Multipart, AnOutageIsWaitedForOnce) {
  // With more of them, each moves the clock of all, and a part that begins late waits from its own beginning.
  options_.connections = 1;
  Open();
  for (const bool completes : {false, true}) {
    SCOPED_TRACE(completes ? "when it is to be completed" : "in its third part");
    proxy_->SetRule([completes, gone = false](const ProxiedRequest& request) mutable {
      const bool is_part = request.target.find("partNumber=3&") != std::string::npos;
      const bool is_completion = request.method == "POST" && request.target.find("uploadId=") != std::string::npos;
      gone = gone || (completes ? is_completion : is_part);
      return gone ? Fault{Kind::kAnswer, ErrorAnswer(503, "ServiceUnavailable")} : Fault{};
    });
    const auto waited = [this] {
      const std::lock_guard lock(mutex_);
      return std::accumulate(sleeps_.begin(), sleeps_.end(), std::chrono::milliseconds(0));
    };
    const std::chrono::milliseconds before = waited();
    const absl::Status status = Put("big", contents_);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("its parts stay until they are swept"));
    EXPECT_LT(waited() - before, options_.retry_for * 3 / 2);
  }
  proxy_->SetRule([](const ProxiedRequest&) { return Fault{}; });
  ASSERT_TRUE(storage_->Sweep().ok());
  ExpectNothing("big");
}

TEST_F(Multipart, ARefusalMidwayAbortsTheUpload) {
  Fail({Kind::kAnswer, ErrorAnswer(400, "InvalidRequest")}, 1, "PUT", "partNumber=5&");
  const absl::Status status = ExpectRefused();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("InvalidRequest: as told"));
}

TEST_F(Multipart, CredentialsThatExpireMidwayAreWaitedFor) {
  options_.connections = 1;  // the parts before it are up
  Open();
  Fail({Kind::kAnswer, ErrorAnswer(400, "ExpiredToken")}, 5, "PUT", "partNumber=5&");
  ExpectUploaded();
}

TEST_F(Multipart, SaysSoWherePartsHadToStay) {
  proxy_->SetRule([](const ProxiedRequest& request) {
    const bool refused = request.method == "DELETE" || request.target.find("partNumber=2&") != std::string::npos;
    return refused ? Fault{Kind::kAnswer, ErrorAnswer(403, "AccessDenied")} : Fault{};
  });
  const absl::Status status = Put("big", contents_);
  EXPECT_THAT(std::string(status.message()), HasSubstr("its parts stay until they are swept"));
  proxy_->SetRule([](const ProxiedRequest&) { return Fault{}; });
  EXPECT_EQ(ListUploads(*direct_, "")->size(), 1u);
  ASSERT_TRUE(storage_->Sweep().ok());  // this server says of every upload that it was begun in 2010
  ExpectNothing("big");
}

TEST_F(Multipart, ACompletionWhoseAnswerIsLost) {
  for (const Fault& fault : {Fault{.kind = Kind::kLoseAnswer}, Fault{.kind = Kind::kCutAnswer, .bytes = 120},
                             Fault{Kind::kAnswerLate, ErrorAnswer(500, "InternalError")},
                             Fault{Kind::kAnswerLate, ErrorAnswer(200, "InternalError")},
                             Fault{Kind::kAnswerLate, "HTTP/1.1 200 x\r\nContent-Length: 0\r\n\r\n"}}) {
    const std::string name = "lost-" + std::to_string(CountRequests("POST"));
    Fail(fault, 1, "POST", "uploadId=");
    ExpectUploaded(name);
  }
}

// AWS forgets an upload once it is completed; this server does not.
TEST_F(Multipart, ACompletionAskedForTwiceMayBeUnknown) {
  for (const int status : {404, 412}) {
    proxy_->SetRule([=, seen = 0](const ProxiedRequest& request) mutable {
      if (request.method != "POST" || request.target.find("uploadId=") == std::string::npos) return Fault{};
      if (++seen == 1) return Fault{.kind = Kind::kLoseAnswer};
      return Fault{Kind::kAnswer, ErrorAnswer(status, status == 404 ? "NoSuchUpload" : "PreconditionFailed")};
    });
    ExpectUploaded("twice-" + std::to_string(status));
  }
}

TEST_F(Multipart, AnUploadThatVanishedIsNoSuccess) {
  Fail({Kind::kAnswer, ErrorAnswer(404, "NoSuchUpload")}, 100, "POST", "uploadId=");
  const absl::Status status = ExpectRefused();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("NoSuchUpload"));
}

TEST_F(Multipart, AnErrorWithStatus200IsAnError) {
  Fail({Kind::kAnswer, ErrorAnswer(200, "InternalError")}, 2, "POST", "uploadId=");
  ExpectUploaded("a");
  Fail({Kind::kAnswer, ErrorAnswer(200, "InternalError")}, 100, "POST", "uploadId=");
  EXPECT_EQ(ExpectRefused().code(), absl::StatusCode::kUnavailable);
  Fail({Kind::kAnswer, ErrorAnswer(200, "InvalidRequest")}, 100, "POST", "uploadId=");
  EXPECT_EQ(ExpectRefused().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(Multipart, AConflictStartsANewUpload) {
  Fail({Kind::kAnswer, ErrorAnswer(409, "ConditionalRequestConflict")}, 1, "POST", "uploadId=");
  ExpectUploaded();
  EXPECT_EQ(CountRequests("partNumber="), 12u);
}

TEST_F(Multipart, SomebodyElseComesFirst) {
  const MemoryBody theirs("theirs");
  proxy_->SetRule([&](const ProxiedRequest& request) {
    if (request.method == "POST" && request.target.find("uploadId=") != std::string::npos) {
      EXPECT_TRUE(direct_->Send({.method = "PUT", .key = "run/big", .body = &theirs}).ok());
    }
    return Fault{};
  });
  EXPECT_EQ(Put("big", contents_).code(), absl::StatusCode::kAlreadyExists);
  ExpectObject("big", "theirs");
  ExpectNoUploads();
  EXPECT_EQ(CountRequests("partNumber="), 6u);
  EXPECT_EQ(Put("big", contents_).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(CountRequests("partNumber="), 6u) << "a name that is taken is found before the parts go up";
}

TEST_F(Multipart, ABeginningWhoseAnswerIsLostLeavesNoUpload) {
  Fail({.kind = Kind::kLoseAnswer}, 2, "POST", "uploads=");
  ExpectUploaded();
}

TEST_F(Multipart, SweepSparesYoungUploadsAndThoseOfOthers) {
  const MemoryBody nothing("");
  for (const std::string key : {"run/a", "runner/b"}) {
    ASSERT_TRUE(direct_->Send({.method = "POST", .key = key, .query = {{"uploads", ""}}, .body = &nothing}).ok());
  }
  const auto begun = *ParseIsoTime("2010-11-10T20:48:33.000Z");  // this server says so of every upload
  clock_error_ = begun + std::chrono::hours(23) - std::chrono::system_clock::now();
  ASSERT_TRUE(storage_->Sweep().ok());
  EXPECT_EQ(ListUploads(*direct_, "")->size(), 2u);
  clock_error_ = begun + std::chrono::hours(25) - std::chrono::system_clock::now();
  ASSERT_TRUE(storage_->Sweep().ok());
  const std::vector<ListedUpload> left = *ListUploads(*direct_, "");
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].key, "runner/b");
}

TEST_F(Multipart, SweepOfAWholeBucketSparesAllUploads) {
  options_.prefix.clear();
  Open();
  const MemoryBody nothing("");
  ASSERT_TRUE(direct_->Send({.method = "POST", .key = "theirs", .query = {{"uploads", ""}}, .body = &nothing}).ok());
  ASSERT_TRUE(storage_->Sweep().ok());  // this server says of every upload that it was begun in 2010
  EXPECT_EQ(ListUploads(*direct_, "")->size(), 1u);
}

// The machines of workers may have no coordinator that would sweep them.
TEST_F(Multipart, WhoStagesClearsAwayWhatTheDeadHaveLeft) {
  const std::string folder = options_.staging_directory + "/s3-0123456789abcdef";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/shard") << "x";
  ProcessId dead = ThisProcess();
  ++dead.started;  // its number is ours by now
  std::ofstream(folder + ".lock") << ToText(dead) << "\n";
  EXPECT_TRUE(Put("a", "x").ok());
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_FALSE(std::filesystem::exists(folder + ".lock"));
}

TEST_F(Multipart, AFileThatBecomesShorterIsNoObject) {
  absl::StatusOr<std::unique_ptr<StagedFile>> file = storage_->Stage("big", contents_.size());
  ASSERT_TRUE(file.ok());
  const std::string path = (*file)->path();
  std::ofstream(path, std::ios::binary) << contents_;
  proxy_->SetRule([&](const ProxiedRequest& request) {
    if (request.target.find("uploads=") != std::string::npos) std::filesystem::resize_file(path, 2 * kPart);
    return Fault{};
  });
  EXPECT_EQ((*file)->Commit().code(), absl::StatusCode::kDataLoss);
  ExpectNothing("big");
}

TEST(PartBytes, StaysBelowTenThousandParts) {
  constexpr uint64_t kMiB = 1u << 20;
  EXPECT_EQ(PartBytes(100 * kMiB, 16 * kMiB), 16 * kMiB);
  EXPECT_EQ(PartBytes(160'000 * kMiB, 16 * kMiB), 16 * kMiB);
  EXPECT_EQ(PartBytes(160'000 * kMiB + 1, 16 * kMiB), 17 * kMiB);
  const uint64_t huge = uint64_t{5} << 40;
  EXPECT_LE((huge + PartBytes(huge, 1) - 1) / PartBytes(huge, 1), 10'000u);
}

}  // namespace
}  // namespace holdfast
