// Over https, nothing is said to a server whose certificate cannot be verified, and a connection that breaks while
// bytes go up is an error and not a signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "framework/s3/open_s3_storage.h"
#include "tests/framework/s3/fixed_credentials.h"
#include "tests/framework/s3/peer_process.h"

namespace holdfast {
namespace {

class Tls : public testing::Test {
 protected:
  void SetUp() override {
    setenv("no_proxy", "127.0.0.1", 1);
    server_ = PeerProcess::Start("tls_server.py", {"{}"});
    if (server_ == nullptr) GTEST_SKIP() << "no TLS server to test with: run tools/test_peers.sh";
    options_.endpoint = "https://127.0.0.1:" + std::to_string(server_->WaitForNumber("port", ""));
    options_.bucket = "bucket";
    options_.credentials = FixedCredentials({"id", "secret", ""});
    options_.region = "us-east-1";
    options_.retry_for = std::chrono::milliseconds(2);
    shell_.elapsed = [this] { return std::chrono::milliseconds(sleeps_); };
    shell_.sleep = [this](std::chrono::milliseconds, const std::stop_token&) { ++sleeps_; };
    shell_.random = [] { return 0; };
  }

  std::unique_ptr<PeerProcess> server_;
  S3Options options_;
  S3Shell shell_ = RealS3Shell();
  int sleeps_ = 0;
};

TEST_F(Tls, CertificatesAreVerified) {
  const absl::Status status = OpenS3Storage(options_, shell_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("certificate"));
  EXPECT_EQ(sleeps_, 0) << "another attempt cannot help";
  options_.ca_file = server_->folder() + "/cert.pem";
  EXPECT_TRUE(OpenS3Storage(options_, shell_).ok());
  options_.endpoint.replace(options_.endpoint.find("127.0.0.1"), 9, "localhost");  // not in the certificate
  EXPECT_EQ(OpenS3Storage(options_, shell_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(Tls, ABrokenConnectionIsNoSignal) {
  options_.ca_file = server_->folder() + "/cert.pem";
  const std::unique_ptr<Storage> storage = *OpenS3Storage(options_, shell_);
  EXPECT_EQ(storage->Create("a", std::string(32u << 20, 'x')).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(sleeps_, 2);
}

// It expires, or is being replaced.
TEST_F(Tls, ACertificateThatWasGoodIsWaitedFor) {
  namespace fs = std::filesystem;
  const std::string shown = server_->folder() + "/cert.pem", good = server_->folder() + "/good.pem";
  fs::copy_file(shown, good);
  const auto show = [&](const std::string& certificate) {
    fs::copy_file(certificate, shown + ".tmp");
    fs::rename(shown + ".tmp", shown);
  };
  options_.ca_file = good;
  bool mends = true;
  shell_.sleep = [&](std::chrono::milliseconds, const std::stop_token&) {
    ++sleeps_;
    if (mends) show(good);
  };
  const std::unique_ptr<Storage> storage = *OpenS3Storage(options_, shell_);
  const auto list_over_a_new_connection = [&] {
    EXPECT_TRUE(absl::IsUnavailable(storage->Create("a", "x"))) << "which breaks the connection";
    show(server_->folder() + "/other.pem");
    sleeps_ = 0;
    return storage->List("").status();
  };
  absl::Status status = list_over_a_new_connection();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(sleeps_, 1);
  mends = false;
  status = list_over_a_new_connection();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("certificate"));
}

}  // namespace
}  // namespace holdfast
