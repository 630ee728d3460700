// Proves where credentials come from, that they are asked for again in time, and that nothing secret is said or sent
// where it does not belong. The services stand on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/s3/credential_services.h"
#include "framework/s3/s3_environment.h"
#include "tests/framework/s3/fault_proxy.h"
#include "tests/framework/s3/fixed_credentials.h"
#include "tests/framework/s3/s3_bed.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;
using Clock = std::chrono::system_clock;

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

/// The variables of AWS's tools, and HOME, are these alone for as long as it lives.
class Environment {
 public:
  explicit Environment(std::map<std::string, std::string> values) {
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string text = *variable, name = text.substr(0, text.find('='));
      const bool of_proxies = absl::EndsWithIgnoreCase(name, "_proxy");
      if (absl::StartsWith(name, "AWS_") || name == "HOME" || of_proxies) before_[name] = text.substr(name.size() + 1);
    }
    values.emplace("AWS_EC2_METADATA_DISABLED", "true");
    for (const auto& [name, value] : before_) unsetenv(name.c_str());
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
    set_ = std::move(values);
  }
  ~Environment() {
    for (const auto& [name, value] : set_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> before_, set_;
};

absl::StatusOr<S3Credentials> Find() { return FindS3Credentials("eu-west-1", ""); }

constexpr char kFile[] =
    "# a comment\n[default]\naws_access_key_id = D1\naws_secret_access_key=D2=/+\n\n"
    "[ other ]\r\nAWS_ACCESS_KEY_ID = O1\r\naws_secret_access_key = O2\r\naws_session_token = O3\r\nregion = x\r\n"
    "[half]\naws_access_key_id = H1\n";

/// A directory, and a service whose answers are a test's.
class Credentials : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "holdfast-s3-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    fs::create_directory(directory_ + "/.aws");
    service_.SetRule([this](const ProxiedRequest& request) {
      requests_.push_back(request);
      const auto found = answers_.find(request.target);
      return Fault{Fault::Kind::kAnswer, found == answers_.end() ? Answer("none", 404) : found->second};
    });
  }
  void TearDown() override { fs::remove_all(directory_); }

  static std::string Answer(const std::string& body, int status = 200) {
    return absl::StrCat("HTTP/1.1 ", status, " x\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
  }
  static std::string Json(const std::string& id, const std::string& expires = "2026-11-23T12:00:00Z") {
    return absl::StrCat(R"({"Code":"Success","AccessKeyId":")", id,
                        R"(","SecretAccessKey":"hidden","Token":"t","Expiration":")", expires, R"("})");
  }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
    return directory_ + "/" + name;
  }
  static std::string HeaderOf(const ProxiedRequest& request, const std::string& name) {
    for (const auto& [key, value] : request.headers) {
      if (key == name) return value;
    }
    return "";
  }

  std::string directory_;
  std::map<std::string, std::string> answers_;  // by target
  std::vector<ProxiedRequest> requests_;
  FaultProxy service_{1};
};

TEST_F(Credentials, ProfilesOfAFile) {
  EXPECT_EQ(ParseCredentialsFile(kFile, "default")->secret_access_key, "D2=/+");
  const S3Credentials other = *ParseCredentialsFile(kFile, "other");
  EXPECT_EQ(other.access_key_id + " " + other.secret_access_key + " " + other.session_token, "O1 O2 O3");
  EXPECT_EQ(ParseCredentialsFile(kFile, "none").status().code(), absl::StatusCode::kNotFound);
  const absl::Status half = ParseCredentialsFile(kFile, "half").status();
  EXPECT_EQ(half.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(TextOf(half), HasSubstr("aws_secret_access_key"));
  EXPECT_THAT(TextOf(half), Not(HasSubstr("H1")));
}

TEST_F(Credentials, TheFirstThatIsThere) {
  Write(".aws/credentials", kFile);
  answers_["/creds"] = Answer(Json("C1"));
  const std::string container = service_.url() + "/creds";
  {
    const Environment set({{"AWS_ACCESS_KEY_ID", "E1"}, {"AWS_SECRET_ACCESS_KEY", "E2"}, {"HOME", directory_}});
    EXPECT_EQ(Find()->access_key_id, "E1");
  }
  {
    const Environment set({{"HOME", directory_}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI", container}});
    EXPECT_EQ(Find()->access_key_id, "D1");
  }
  {
    const Environment set(
        {{"AWS_SHARED_CREDENTIALS_FILE", directory_ + "/.aws/credentials"}, {"AWS_PROFILE", "other"}});
    EXPECT_EQ(Find()->access_key_id, "O1");
  }
  {
    const Environment set({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", container}});
    EXPECT_EQ(Find()->access_key_id, "C1");
  }
}

TEST_F(Credentials, AProfileThatIsNamedIsNotReplacedByOthers) {
  Write(".aws/credentials", kFile);
  answers_["/creds"] = Answer(Json("C1"));
  const std::string container = service_.url() + "/creds";
  for (const std::string& home : {directory_, directory_ + "/nowhere"}) {
    const Environment set({{"HOME", home}, {"AWS_PROFILE", "othr"}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI", container}});
    const absl::Status none = Find().status();
    EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(TextOf(none), HasSubstr("AWS_PROFILE is othr"));
  }
}

TEST_F(Credentials, WhatIsMissingIsSaid) {
  {
    const Environment set({{"AWS_SECRET_ACCESS_KEY", "E2"}, {"HOME", directory_}});
    const absl::Status half = Find().status();
    EXPECT_EQ(half.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(TextOf(half), HasSubstr("AWS_ACCESS_KEY_ID is not"));
  }
  {
    const Environment set({{"HOME", directory_ + "/nowhere"}});
    const absl::Status none = Find().status();
    EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(TextOf(none), HasSubstr(directory_ + "/nowhere/.aws/credentials"));
  }
  const Environment set(
      {{"AWS_EC2_METADATA_DISABLED", "false"}, {"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1"}});
  const absl::Status none = Find().status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(TextOf(none), HasSubstr("no metadata service at http://127.0.0.1:1"));
}

TEST_F(Credentials, OfAWebIdentity) {
  const std::string token = Write("token", "a token+/=\n");
  answers_["/"] = Answer(
      "<AssumeRoleWithWebIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'>"
      "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>W1</AccessKeyId><SecretAccessKey>W2</SecretAccessKey>"
      "<SessionToken>W3</SessionToken><Expiration>2026-11-23T12:00:00Z</Expiration></Credentials>"
      "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>");
  const Environment set({{"AWS_WEB_IDENTITY_TOKEN_FILE", token},
                         {"AWS_ROLE_ARN", "arn:aws:iam::1:role/trainer"},
                         {"AWS_ENDPOINT_URL_STS", service_.url()}});
  const absl::StatusOr<S3Credentials> found = Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->access_key_id + found->secret_access_key + found->session_token, "W1W2W3");
  EXPECT_EQ(Clock::to_time_t(*found->expires_at), 1'795'435'200);
  ASSERT_EQ(requests_.size(), 1u);
  EXPECT_EQ(requests_[0].Line(), "POST /");
  EXPECT_EQ(requests_[0].body,
            "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Ftrainer&RoleSessionName=holdfast&"
            "Version=2011-06-15&WebIdentityToken=a%20token%2B%2F%3D");

  answers_["/"] = Answer(
      "<ErrorResponse><Error><Code>ExpiredTokenException</Code><Message>a token</Message></Error></ErrorResponse>",
      400);
  const absl::Status refused = Find().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(TextOf(refused), HasSubstr("role/trainer: HTTP status 400, ExpiredTokenException"));
  for (const std::string& answer : {Answer("<html>", 503), Answer("<html>"), Answer("<A><Credentials/></A>")}) {
    answers_["/"] = answer;
    EXPECT_EQ(Find().status().code(), absl::StatusCode::kUnavailable) << answer;
  }
  fs::remove(token);  // as while it is replaced
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(Credentials, OfAContainer) {
  answers_["/creds?a=b"] = Answer(Json("C1"));
  const std::string url = service_.url() + "/creds?a=b";
  {
    const Environment set(
        {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url}, {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic x"}});
    ASSERT_EQ(Find()->access_key_id, "C1");
    EXPECT_EQ(HeaderOf(requests_.back(), "authorization"), "Basic x");
  }
  const Environment set({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url},
                         {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", Write("authorization", "first\n")},
                         {"http_proxy", "http://127.0.0.1:1"}});
  ASSERT_EQ(Find()->access_key_id, "C1") << "past proxies";
  Write("authorization", "second");
  ASSERT_EQ(Find()->session_token, "t");
  EXPECT_EQ(HeaderOf(requests_.back(), "authorization"), "second");
  for (const char* body :
       {"", "[]", "{}", R"({"AccessKeyId":1})", R"({"AccessKeyId":"x","SecretAccessKey":"hidden","Token":"a\nb"})"}) {
    answers_["/creds?a=b"] = Answer(body);
    const absl::Status status = Find().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << body;
    EXPECT_THAT(TextOf(status), Not(HasSubstr("hidden")));
  }
}

TEST_F(Credentials, ASecretDoesNotGoToAnAddressInTheOpen) {
  for (const char* url :
       {"http://169.254.170.3/x", "http://example.com/x", "http://localhost.example.com/x", "ftp://127.0.0.2/x"}) {
    EXPECT_EQ(CredentialsOfContainer({.url = url, .authorization = "secret"}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << url;
  }
}

TEST_F(Credentials, OfAnInstance) {
  const std::string roles = "/latest/meta-data/iam/security-credentials/";
  answers_["/latest/api/token"] = Answer("session");
  const Environment set({{"AWS_EC2_METADATA_DISABLED", "no"}, {"AWS_EC2_METADATA_SERVICE_ENDPOINT", service_.url()}});
  EXPECT_THAT(TextOf(Find().status()), HasSubstr("this instance has no role"));
  answers_[roles] = Answer("trainer");
  answers_[roles + "trainer"] = Answer(Json("I1"));
  requests_.clear();
  ASSERT_EQ(Find()->access_key_id, "I1");
  ASSERT_EQ(requests_.size(), 3u);
  EXPECT_EQ(requests_[0].Line(), "PUT /latest/api/token");
  EXPECT_EQ(HeaderOf(requests_[0], "x-aws-ec2-metadata-token-ttl-seconds"), "21600");
  EXPECT_EQ(HeaderOf(requests_[2], "x-aws-ec2-metadata-token"), "session");
  answers_[roles + "trainer"] = Answer("busy", 503);
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kUnavailable);
  answers_["/latest/api/token"] = Answer("busy", 503);
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kUnavailable) << "it is there";
}

/// A source of credentials K1, K2, .. that live an hour each, and its clock.
struct Hours {
  Clock::time_point now = Clock::from_time_t(1'000'000);
  int loaded = 0;
  absl::Status trouble;
  std::shared_ptr<S3CredentialSource> source = RefreshedS3Credentials(
      [this]() -> absl::StatusOr<S3Credentials> {
        if (!trouble.ok()) return trouble;
        return S3Credentials{absl::StrCat("K", ++loaded), "s", "", now + std::chrono::hours(1)};
      },
      [this] { return now; });

  std::string Get() {
    const absl::StatusOr<S3Credentials> got = source->Get();
    return got.ok() ? got->access_key_id : absl::StrCat("error ", TextOf(got.status()));
  }
};

TEST(RefreshedCredentials, AreAskedForBeforeTheyExpire) {
  Hours hours;
  EXPECT_EQ(hours.Get(), "K1");
  hours.now += std::chrono::minutes(54);
  EXPECT_EQ(hours.Get(), "K1");
  hours.now += std::chrono::minutes(1);
  EXPECT_EQ(hours.Get(), "K2");
}

TEST(RefreshedCredentials, ThoseThatStillHoldStayWhileThereAreNoOthers) {
  Hours hours;
  EXPECT_EQ(hours.Get(), "K1");
  hours.trouble = absl::UnavailableError("busy");
  hours.now += std::chrono::minutes(59);
  EXPECT_EQ(hours.Get(), "K1");
  hours.now += std::chrono::minutes(2);
  const absl::Status expired = hours.source->Get().status();
  EXPECT_EQ(expired.code(), absl::StatusCode::kUnavailable) << "whoever waits may have others";
  EXPECT_THAT(TextOf(expired), HasSubstr("have expired, and there are no others: busy"));
  hours.trouble = absl::OkStatus();
  hours.now += std::chrono::minutes(2);
  EXPECT_EQ(hours.Get(), "K2");
}

TEST(RefreshedCredentials, ARefusalAsksForOthers) {
  Hours hours;
  const S3Credentials first = *hours.source->Get();
  EXPECT_TRUE(hours.source->Refused(first));
  EXPECT_EQ(hours.Get(), "K2");
  EXPECT_TRUE(hours.source->Refused(first)) << "another thread's request was refused with the same";
  EXPECT_EQ(hours.Get(), "K2");
  const auto same = RefreshedS3Credentials([] { return S3Credentials{"a", "b", ""}; });
  EXPECT_FALSE(same->Refused(*same->Get())) << "the same would be refused again";
}

TEST(RefreshedCredentials, ThoseOfMinutesAreNotAskedForWithEachRequest) {
  Hours hours;
  int loaded = 0;
  const auto source = RefreshedS3Credentials(
      [&]() -> absl::StatusOr<S3Credentials> {
        return S3Credentials{absl::StrCat("K", ++loaded), "s", "", hours.now + std::chrono::minutes(4)};
      },
      [&] { return hours.now; });
  for (int second = 0; second < 60; ++second, hours.now += std::chrono::seconds(1)) EXPECT_TRUE(source->Get().ok());
  EXPECT_EQ(loaded, 1);
}

TEST(RefreshedCredentials, MustFitIntoAHeader) {
  EXPECT_TRUE(FixedCredentials({"id", "secret", ""})->Get().ok());
  EXPECT_THAT(FixedCredentials({"", "", ""})->Get().status().ToString(),
              HasSubstr("INVALID_ARGUMENT: the S3 credentials are empty"));
  EXPECT_THAT(FixedCredentials({"id", "secret", "a\r\nx-evil: 1"})->Get().status().ToString(),
              HasSubstr("INVALID_ARGUMENT: the S3 credentials have spaces or control characters"));
}

TEST(S3Environment, FillsInWhatIsEmpty) {
  const Environment set(
      {{"AWS_ENDPOINT_URL", "http://any:1"}, {"AWS_DEFAULT_REGION", "eu-north-1"}, {"AWS_CA_BUNDLE", "/ca.pem"}});
  S3Options empty, full;
  full.endpoint = "http://mine:1", full.region = "mine", full.ca_file = "/mine.pem";
  FillFromEnvironment(&empty);
  FillFromEnvironment(&full);
  EXPECT_EQ(empty.endpoint + " " + empty.region + " " + empty.ca_file, "http://any:1 eu-north-1 /ca.pem");
  EXPECT_EQ(full.endpoint + " " + full.region + " " + full.ca_file, "http://mine:1 mine /mine.pem");
  const Environment better(
      {{"AWS_ENDPOINT_URL", "http://any:1"}, {"AWS_ENDPOINT_URL_S3", "http://s3:1"}, {"AWS_REGION", "r"}});
  S3Options options;
  FillFromEnvironment(&options);
  EXPECT_EQ(options.endpoint + " " + options.region, "http://s3:1 r");
  const Environment nothing({});
  S3Options aws;
  FillFromEnvironment(&aws);
  EXPECT_EQ(aws.endpoint + aws.region, "us-east-1");
}

// A run of days lives on credentials of an hour: the server refuses the old ones, and nobody above notices.
class Rotation : public S3Bed {};

TEST_F(Rotation, ARequestIsMadeAgainWithOtherCredentials) {
  const S3Credentials good = *options_.credentials->Get();
  std::mutex mutex;
  S3Credentials current = good;
  options_.credentials = RefreshedS3Credentials([&]() -> absl::StatusOr<S3Credentials> {
    const std::lock_guard lock(mutex);
    return current;
  });
  Open();
  Fail({Fault::Kind::kAnswer, ErrorAnswer(400, "ExpiredToken")}, 1);
  EXPECT_EQ(storage_->Create("a", "x").code(), absl::StatusCode::kPermissionDenied) << "there are no others";
  current.session_token = "others";
  Fail({Fault::Kind::kAnswer, ErrorAnswer(400, "ExpiredToken")}, 1);
  const absl::Status status = storage_->Create("b", "x");
  EXPECT_THAT(TextOf(status), Not(HasSubstr("ExpiredToken"))) << "the request was not made again";
  EXPECT_EQ(CountRequests("PUT"), 3u);
  EXPECT_TRUE(sleeps_.empty());
}

/// Has others whenever it is asked.
class RenewedSource final : public S3CredentialSource {
 public:
  explicit RenewedSource(S3Credentials credentials) : credentials_(std::move(credentials)) {}
  absl::StatusOr<S3Credentials> Get() override { return credentials_; }
  bool Refused(const S3Credentials& /*credentials*/) override { return ++refused_ > 0; }
  int refused() const { return refused_; }

 private:
  const S3Credentials credentials_;
  std::atomic<int> refused_{0};
};

// The first request of a large shard is a HEAD, whose answer has no body that would name the reason.
TEST_F(Rotation, AHeadIsMadeAgainToo) {
  const auto source = std::make_shared<RenewedSource>(*options_.credentials->Get());
  options_.credentials = source;
  Open();
  ASSERT_TRUE(storage_->Create("a", "12345").ok());
  proxy_->SetRule([requests = 0](const ProxiedRequest& request) mutable {
    if (++requests > 2) return Fault{};
    const bool is_head = request.method == "HEAD";
    return Fault{Fault::Kind::kAnswer,
                 is_head ? "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" : ErrorAnswer(400, "ExpiredToken")};
  });
  const absl::StatusOr<uint64_t> size = storage_->Size("a");
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(*size, 5u);
  EXPECT_EQ(source->refused(), 1);
  EXPECT_TRUE(sleeps_.empty());
}

}  // namespace
}  // namespace holdfast
