// The pieces that need no server: XML, what answers mean, addresses, staging.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "framework/base/parallel.h"
#include "framework/base/process_id.h"
#include "framework/s3/s3_answer.h"
#include "framework/s3/s3_client.h"
#include "framework/s3/s3_listing.h"
#include "framework/s3/staging_area.h"
#include "framework/s3/xml_scanner.h"
#include "tests/framework/s3/fixed_credentials.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// ---- XML

absl::StatusOr<std::vector<std::string>> Scan(absl::string_view xml) {
  std::vector<std::string> seen;
  const absl::Status status = ScanXml(xml, [&](absl::string_view path, absl::string_view text) {
    seen.push_back(absl::StrCat(path, "=", text));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return seen;
}

TEST(XmlScanner, ReadsElementsTextAndEntities) {
  EXPECT_THAT(*Scan("\xef\xbb\xbf \n<?xml version=\"1.0\"?>\n<!-- <a> --><a xmlns='x>y'>1<s3:b/>2<c d=\"/\">&lt;&#233;"
                    "&#x20AC;&#x1f600;&amp;&gt;&quot;&apos;</c></a>\n"),
              ElementsAre("a/b=", "a/c=<\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80&>\"'", "a=12"));
}

TEST(XmlScanner, RefusesEverythingElse) {
  std::string deep;
  for (int i = 0; i < 17; ++i) deep += "<a>";
  for (const std::string& xml : {std::string(""),
                                 std::string("x"),
                                 std::string("<a>"),
                                 std::string("<a></b>"),
                                 std::string("</a>"),
                                 std::string("<a></a><b></b>"),
                                 std::string("<a></a>x"),
                                 std::string("<a>&</a>"),
                                 std::string("<a>&nope;</a>"),
                                 std::string("<a>&#x110000;</a>"),
                                 std::string("<a>&#;</a>"),
                                 std::string("<a>&#x;</a>"),
                                 std::string("<a>&#12a;</a>"),
                                 std::string("<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>"),
                                 std::string("<a b=\"<\"></a>\"><"),
                                 std::string("<a <b></a>"),
                                 std::string("<a"),
                                 std::string("<"),
                                 std::string("<></>"),
                                 std::string("<a><!-- </a>"),
                                 std::string("<?xml"),
                                 deep}) {
    EXPECT_EQ(Scan(xml).status().code(), absl::StatusCode::kInvalidArgument) << xml;
  }
}

TEST(XmlScanner, SurvivesDamage) {
  const std::string whole = "<?xml version=\"1.0\"?><L x=\"y\"><C><K>a&amp;b</K><S>1</S></C><T>false</T></L>";
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_FALSE(Scan(whole.substr(0, i)).ok()) << i;
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = whole;
    for (int j = 0; j < 3; ++j) damaged[random() % damaged.size()] = "<>&;/\"a #x!-?\0"[random() % 14];
    Scan(damaged).status().IgnoreError();
  }
}

// ---- answers

TEST(S3Answer, ErrorsAreForPeople) {
  const S3Error error =
      ParseS3Error("<Error><Code>A</Code><Message>b\x7f[2J\n" + std::string(1000, 'x') + "</Message></Error>");
  EXPECT_EQ(error.code, "A");
  EXPECT_EQ(error.message.size(), 300u);
  EXPECT_THAT(error.message, Not(HasSubstr("\x7f")));
  EXPECT_EQ(ParseS3Error("<html>Bad Gateway").code, "");
}

TEST(S3Answer, WhatMayPass) {
  for (const int status : {408, 425, 429, 500, 502, 503, 504, 520, 599}) EXPECT_TRUE(MayPass(status, {})) << status;
  for (const int status : {301, 400, 401, 403, 404, 409, 411, 412, 416, 501, 505, 507}) {
    EXPECT_FALSE(MayPass(status, {})) << status;
  }
  EXPECT_TRUE(MayPass(400, {"RequestTimeout", ""}));
  EXPECT_TRUE(MayPass(400, {"XAmzContentSHA256Mismatch", ""}));
  EXPECT_TRUE(MayPass(200, {"InternalError", ""}));
  for (const int status : {302, 307, 404}) EXPECT_TRUE(MayPass(status, {}, /*speaks_s3=*/false)) << status;
  for (const int status : {400, 403, 405}) EXPECT_FALSE(MayPass(status, {}, /*speaks_s3=*/false)) << status;
}

// Where readers see InvalidArgument or DataLoss, they take an object for damaged; `prune --damaged` deletes it.
TEST(S3Answer, NoAnswerSaysThatAnObjectIsDamaged) {
  const std::string page = "<html><body>Welcome to nginx</body></html>";
  const auto error = [](const char* code) { return absl::StrCat("<Error><Code>", code, "</Code></Error>"); };
  for (int status = 100; status < 700; ++status) {
    if (status / 100 == 2) continue;
    for (const std::string& body :
         {std::string(), page, error("NoSuchKey"), error("NoSuchBucket"), error("Nonsense")}) {
      HttpAnswer answer;
      answer.status = status;
      answer.body = body;
      for (const bool is_head : {false, true}) {
        const absl::Status said = StatusOfAnswer(answer, is_head);
        EXPECT_FALSE(said.ok() || absl::IsInvalidArgument(said) || absl::IsDataLoss(said)) << said;
        const bool missing =
            body == error("NoSuchKey") || (status == 404 && (body == error("Nonsense") || (body.empty() && is_head)));
        EXPECT_TRUE(missing || !absl::IsNotFound(said)) << body << ": " << said;
        EXPECT_TRUE(status != 404 || !body.empty() || is_head || absl::IsUnavailable(said)) << said;
      }
    }
  }
}

TEST(S3Answer, BackoffDoublesAndIsJittered) {
  using std::chrono::milliseconds;
  const std::chrono::seconds none(0);
  EXPECT_EQ(Backoff(1, 0, none), milliseconds(0));
  EXPECT_EQ(Backoff(1, 100, none), milliseconds(100));
  EXPECT_EQ(Backoff(1, 101, none), milliseconds(0));
  EXPECT_EQ(Backoff(4, 800, none), milliseconds(800));
  EXPECT_EQ(Backoff(4, 801, none), milliseconds(0));
  EXPECT_EQ(Backoff(1000, 20'000, none), milliseconds(20'000));
  EXPECT_EQ(Backoff(1000, 20'001, none), milliseconds(0));
  EXPECT_EQ(Backoff(1, 50, std::chrono::seconds(3)), milliseconds(3000));
  EXPECT_EQ(Backoff(1, 50, std::chrono::hours(3)), milliseconds(60'000));
}

TEST(S3Listing, Times) {
  const auto seconds = [](absl::string_view text) { return std::chrono::system_clock::to_time_t(*ParseIsoTime(text)); };
  EXPECT_EQ(seconds("1970-01-02T00:00:01.000Z"), 86'401);
  EXPECT_EQ(seconds("2010-11-10T20:48:33Z"), 1'289'422'113);
  EXPECT_EQ(seconds("9999-12-31T23:59:59Z"), 7'258'118'400) << "never, to some; beyond what the clock can count";
  EXPECT_EQ(seconds("0001-01-01T00:00:00Z"), 0);
  for (const absl::string_view text : {"", "yesterday", "2010-11-10"}) EXPECT_FALSE(ParseIsoTime(text)) << text;
}

TEST(S3Listing, PagesOfUploads) {
  const std::string upload =
      "<Upload><Key>k</Key><UploadId>u</UploadId><Initiated>2010-11-10T20:48:33Z</Initiated></Upload>";
  const auto page = [](const std::string& inside) {
    return ParseUploadPage("<ListMultipartUploadsResult>" + inside + "</ListMultipartUploadsResult>");
  };
  const UploadPage more = *page(upload +
                                "<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>"
                                "<NextUploadIdMarker>u</NextUploadIdMarker>");
  ASSERT_EQ(more.uploads.size(), 1u);
  EXPECT_EQ(more.uploads[0].id, "u");
  EXPECT_EQ(more.next_key + more.next_id, "ku");
  EXPECT_EQ(page(upload + "<NextKeyMarker>k</NextKeyMarker>")->next_key, "");
  EXPECT_EQ(page("<IsTruncated>true</IsTruncated>").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(page("<Upload><Key>k</Key></Upload>").status().code(), absl::StatusCode::kUnavailable);
}

// ---- addresses

S3Options Options(const std::string& bucket, const std::string& endpoint = "",
                  const std::string& region = "eu-west-1") {
  S3Options options;
  options.bucket = bucket;
  options.endpoint = endpoint;
  options.region = region;
  options.credentials = FixedCredentials({"id", "secret", ""});
  return options;
}

TEST(S3Address, StylesOfAddressing) {
  const S3Address aws = *ResolveAddress(Options("my-bucket"));
  EXPECT_EQ(aws.base, "https://my-bucket.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(aws.host, "my-bucket.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(aws.path, "");
  const S3Address dots = *ResolveAddress(Options("my.bucket"));
  EXPECT_EQ(dots.base + dots.path, "https://s3.eu-west-1.amazonaws.com/my.bucket");
  EXPECT_EQ(ResolveAddress(Options("b", "", "cn-north-1"))->host, "b.s3.cn-north-1.amazonaws.com.cn");
  const S3Address local = *ResolveAddress(Options("b", "http://127.0.0.1:9000/"));
  EXPECT_EQ(local.base + local.path, "http://127.0.0.1:9000/b");
  EXPECT_EQ(local.host, "127.0.0.1:9000");
  EXPECT_EQ(ResolveAddress(Options("b", "https://minio.example:443"))->host, "minio.example");
  EXPECT_EQ(ResolveAddress(Options("b", "http://minio.example:80"))->host, "minio.example");
  EXPECT_EQ(ResolveAddress(Options("b", "http://[::1]:9000"))->host, "[::1]:9000");
  S3Options by_host = Options("b", "https://storage.example:8443/"), by_path = Options("b");
  by_host.by_host = true, by_path.by_host = false;
  const S3Address host = *ResolveAddress(by_host), path = *ResolveAddress(by_path);
  EXPECT_EQ(host.base + host.path + " " + host.host, "https://b.storage.example:8443 b.storage.example:8443");
  EXPECT_EQ(path.base + path.path, "https://s3.eu-west-1.amazonaws.com/b");
}

TEST(S3Address, BadOptionsAreNamed) {
  for (const S3Options& options :
       {Options(""), Options("a/b"), Options("a b"), Options(".."), Options("b", "minio:9000"), Options("b", "ftp://x"),
        Options("b", "http://"), Options("b", "http://user:pw@host"), Options("b", "http://host/path"),
        Options("b", "http://host?x"), Options("b", "http://ho st"), Options("b", "", ""), Options("b", "", "x/y")}) {
    EXPECT_EQ(ResolveAddress(options).status().code(), absl::StatusCode::kInvalidArgument)
        << options.bucket << " " << options.endpoint << " " << options.region;
  }
  const auto opens = [](auto change) {
    S3Options options = Options("b", "http://127.0.0.1:1");
    change(options);
    return OpenS3Storage(options).status().code();
  };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(opens([](S3Options& o) { o.credentials = nullptr; }), kBad);
  EXPECT_EQ(opens([](S3Options& o) { o.prefix = "a/../b"; }), kBad);
  EXPECT_EQ(opens([](S3Options& o) { o.prefix = "a//b"; }), kBad);
  EXPECT_EQ(opens([](S3Options& o) { o.prefix = "a\nb"; }), kBad);
  EXPECT_EQ(opens([](S3Options& o) { o.connections = 0; }), kBad);
  EXPECT_EQ(opens([](S3Options& o) { o.retry_for = std::chrono::milliseconds(-1); }), kBad);
  EXPECT_EQ(opens([](S3Options& o) { o.part_bytes = 0; }), kBad);
  EXPECT_EQ(opens([](S3Options& o) { o.endpoint = "", o.part_bytes = 1 << 20; }), kBad);
}

// ---- staging

class Staging : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "holdfast-s3-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }
  size_t Entries() { return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), {})); }

  std::string directory_;
};

TEST_F(Staging, MakesEmptyFilesOfItsOwn) {
  absl::StatusOr<std::unique_ptr<StagingArea>> area = StagingArea::Create(directory_ + "/a/b");
  ASSERT_TRUE(area.ok()) << area.status();
  const std::string one = *(*area)->NewFile("x", 0), two = *(*area)->NewFile("x", 0);
  EXPECT_NE(one, two);
  EXPECT_EQ(fs::file_size(one), 0u);
  EXPECT_EQ((*area)->NewFile("x", uint64_t{1} << 60).status().code(), absl::StatusCode::kResourceExhausted);
  area->reset();
  EXPECT_TRUE(fs::is_empty(directory_ + "/a/b"));
}

TEST_F(Staging, SweepRemovesWhatTheDeadHaveLeft) {
  const pid_t child = fork();
  if (child == 0) {  // dies without a destructor
    const absl::StatusOr<std::unique_ptr<StagingArea>> area = StagingArea::Create(directory_);
    const bool made = area.ok() && (*area)->NewFile("x", 0).ok();
    _exit(made ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  const absl::StatusOr<std::unique_ptr<StagingArea>> alive = StagingArea::Create(directory_);
  const std::string file = *(*alive)->NewFile("mine", 0);
  fs::create_directory(directory_ + "/s3-not-ours");
  std::ofstream(directory_ + "/s3-0123456789abcde.lock") << "a name that is too short";
  std::ofstream(directory_ + "/results.lock") << "somebody's";
  ASSERT_EQ(Entries(), 7u);
  ASSERT_TRUE(StagingArea::Sweep(directory_).ok());
  EXPECT_EQ(Entries(), 5u);
  EXPECT_TRUE(fs::exists(file));
  EXPECT_TRUE(StagingArea::Sweep(directory_ + "/none").ok());
}

// Of another machine, or of a container, nobody here can say whether its processes run.
TEST_F(Staging, SweepLeavesWhatOthersMayNeedForADay) {
  const absl::StatusOr<std::unique_ptr<StagingArea>> area = StagingArea::Create(directory_);
  const std::string file = *(*area)->NewFile("x", 0), folder = fs::path(file).parent_path(), claim = folder + ".lock";
  ProcessId other = ThisProcess();
  other.boot = "another";
  std::ofstream(claim) << ToText(other);
  const auto age = [](const std::string& path, int hours) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  ASSERT_TRUE(StagingArea::Sweep(directory_).ok());
  EXPECT_TRUE(fs::exists(file));
  age(claim, 25);
  ASSERT_TRUE(StagingArea::Sweep(directory_).ok());
  EXPECT_TRUE(fs::exists(file)) << "it was just written";
  age(file, 25);
  ASSERT_TRUE(StagingArea::Sweep(directory_).ok());
  EXPECT_EQ(Entries(), 0u);
  EXPECT_TRUE((*area)->NewFile("y", 0).ok()) << "its owner has not noticed";
  EXPECT_EQ(Entries(), 2u);
}

TEST_F(Staging, SweepLeavesWhatItCannotRead) {
  std::ofstream(directory_ + "/s3-0123456789abcdef.lock") << "";  // being written
  std::ofstream(directory_ + "/s3-0123456789abcdee.lock") << "pid=x started=\nrubbish";
  ASSERT_TRUE(StagingArea::Sweep(directory_).ok());
  EXPECT_EQ(Entries(), 2u);
}

TEST_F(Staging, AreasAndSweepsAtOnce) {
  const absl::Status status = RunParallel(8, 8, [&](int64_t) -> absl::Status {
    for (int i = 0; i < 40; ++i) {
      const absl::StatusOr<std::unique_ptr<StagingArea>> area = StagingArea::Create(directory_);
      if (!area.ok()) return area.status();
      const absl::StatusOr<std::string> file = (*area)->NewFile("x", 0);
      if (!file.ok()) return file.status();
      const absl::Status swept = StagingArea::Sweep(directory_);
      if (!swept.ok()) return swept;
      if (!fs::exists(*file)) return absl::InternalError("swept while in use");
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(Entries(), 0u);
}

// ---- parallel

TEST(Parallel, RunsEachOnceAndStopsAtAnError) {
  std::vector<std::atomic<int>> runs(100);
  EXPECT_TRUE(RunParallel(100, 7, [&](int64_t i) {
                ++runs[static_cast<size_t>(i)];
                return absl::OkStatus();
              }).ok());
  for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
  std::atomic<int> begun{0};
  const absl::Status failed =
      RunParallel(1000, 4, [&](int64_t) { return ++begun >= 3 ? absl::DataLossError("x") : absl::OkStatus(); });
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss);
  EXPECT_LT(begun, 10);
  EXPECT_TRUE(RunParallel(0, 4, [](int64_t) { return absl::InternalError("none"); }).ok());
}

}  // namespace
}  // namespace holdfast
