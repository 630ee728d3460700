#include "tests/framework/s3/moto_server.h"

#include <cstdlib>
#include <string>

#include "framework/s3/s3_client.h"
#include "framework/s3/sigv4.h"
#include "framework/s3/xml_scanner.h"
#include "tests/framework/s3/fixed_credentials.h"

namespace holdfast {
namespace {

constexpr int kUnverifiedRequests = 3;  // those of MakeUser; from then on everything is verified

}  // namespace

MotoServer* MotoServer::Shared() {
  static const std::unique_ptr<MotoServer> server = []() -> std::unique_ptr<MotoServer> {
    setenv("no_proxy", "127.0.0.1", 1);
    setenv("INITIAL_NO_AUTH_ACTION_COUNT", std::to_string(kUnverifiedRequests).c_str(), 1);
    setenv("MOTO_S3_DEFAULT_MAX_KEYS", "50", 1);    // pages of listings
    setenv("S3_UPLOAD_PART_MIN_SIZE", "65536", 1);  // small parts, quick tests
    std::unique_ptr<MotoServer> made(new MotoServer);
    made->process_ = PeerProcess::Start("verifying_server.py", {"-H", "127.0.0.1", "-p", "0"});
    if (made->process_ == nullptr) return nullptr;
    made->port_ = made->process_->WaitForNumber("log", "Running on http://127.0.0.1:");
    made->MakeUser();
    return made;
  }();
  return server.get();
}

void MotoServer::MakeUser() {
  const std::unique_ptr<HttpConnection> connection = *HttpConnection::Create();
  const auto call = [&](const std::string& form) {
    const MemoryBody body(form);
    HttpRequest request;
    request.method = "POST";
    request.url = "http://127.0.0.1:" + std::to_string(port_) + "/";
    request.body = &body;
    request.headers = {{"content-type", "application/x-www-form-urlencoded"},
                       {"authorization", "AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/iam/aws4_request"}};
    const absl::StatusOr<HttpAnswer> answer = connection->Perform(request);
    if (!answer.ok() || answer->status != 200) std::abort();
    return answer->body;
  };
  const std::string who = "&UserName=test&Version=2010-05-08";
  const std::string all = R"({"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]})";
  call("Action=CreateUser" + who);
  call("Action=PutUserPolicy&PolicyName=all&PolicyDocument=" + UriEncode(all, false) + who);
  const absl::Status scanned =
      ScanXml(call("Action=CreateAccessKey" + who), [&](absl::string_view path, absl::string_view text) {
        const absl::string_view name = path.substr(path.rfind('/') + 1);
        if (name == "AccessKeyId") credentials_.access_key_id = std::string(text);
        if (name == "SecretAccessKey") credentials_.secret_access_key = std::string(text);
        return absl::OkStatus();
      });
  if (!scanned.ok() || credentials_.secret_access_key.empty()) std::abort();
}

S3Options MotoServer::NewBucket() {
  S3Options options;
  const std::string number = std::to_string(++buckets_);
  options.bucket = "bucket-" + number;
  options.endpoint = "http://127.0.0.1:" + std::to_string(port_);
  options.credentials = FixedCredentials(credentials_);
  options.region = "us-east-1";
  options.staging_directory = process_->folder() + "/staging-" + number;
  options.part_bytes = 1u << 20;
  options.request_timeout = std::chrono::milliseconds(120'000);  // no measure of speed
  S3Client client(options, *ResolveAddress(options), RealS3Shell());
  const MemoryBody nothing("");
  const absl::StatusOr<HttpAnswer> made = client.Send({.method = "PUT", .body = &nothing});
  EXPECT_TRUE(made.ok()) << made.status();
  return options;
}

}  // namespace holdfast
