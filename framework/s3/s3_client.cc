#include "framework/s3/s3_client.h"

#include <random>
#include <thread>
#include <utility>

#include "framework/base/status.h"
#include "framework/s3/s3_answer.h"
#include "framework/s3/sigv4.h"

namespace holdfast {

S3Shell RealS3Shell() {
  return {[] { return std::chrono::system_clock::now(); },
          [](std::chrono::milliseconds delay) { std::this_thread::sleep_for(delay); },
          [] {
            std::random_device device;
            return uint64_t{device()} << 32 | device();
          }};
}

S3Client::S3Client(S3Options options, S3Address address, S3Shell shell)
    : options_(std::move(options)),
      address_(std::move(address)),
      shell_(std::move(shell)),
      pool_(options_.connections) {}

absl::StatusOr<HttpAnswer> S3Client::Send(const S3Call& call, int* attempts) {
  const std::string what = absl::StrCat("s3://", options_.bucket, "/", call.key, ": ", call.method);
  absl::StatusOr<std::string> payload_sha256 = Sha256Hex("");
  if (call.body != nullptr) payload_sha256 = Sha256Hex(*call.body);
  if (!payload_sha256.ok()) return Annotate(payload_sha256.status(), what);
  for (int attempt = 1;; ++attempt) {
    if (attempts != nullptr) *attempts = attempt;
    absl::StatusOr<HttpAnswer> answer = SendOnce(call, *payload_sha256);
    const absl::Status status = answer.ok() ? StatusOfAnswer(*answer) : answer.status();
    if (status.ok()) return answer;
    const bool again = absl::IsUnavailable(status) || (absl::IsAborted(status) && call.retry_conflict);
    if (!again) return Annotate(status, what);
    if (attempt >= options_.max_attempts) {
      return absl::UnavailableError(absl::StrCat(what, ": failed after ", attempt, " attempts: ", status.message()));
    }
    const bool asked = answer.ok() && answer->retry_after.has_value();
    shell_.sleep(Backoff(attempt, shell_.random(), asked ? *answer->retry_after : std::chrono::seconds(0)));
  }
}

absl::StatusOr<HttpAnswer> S3Client::SendOnce(const S3Call& call, const std::string& payload_sha256) {
  SignableRequest signable;
  signable.method = call.method;
  signable.path = absl::StrCat(address_.path, "/", call.key);
  signable.query = call.query;
  signable.headers = call.headers;
  signable.headers.emplace_back("host", address_.host);
  signable.payload_sha256 = payload_sha256;
  SignRequest({options_.credentials, options_.region, shell_.now()}, &signable);

  HttpRequest request;
  request.method = call.method;
  const std::string query = CanonicalQuery(call.query);
  request.url = absl::StrCat(address_.base, UriEncode(signable.path, /*keep_slashes=*/true),
                             query.empty() ? "" : absl::StrCat("?", query));
  request.headers = std::move(signable.headers);
  request.body = call.body;
  request.timeout = options_.request_timeout;
  request.ca_file = options_.ca_file;
  request.into = call.into;
  return pool_.Perform(request);
}

}  // namespace holdfast
