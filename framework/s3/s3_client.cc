#include "framework/s3/s3_client.h"

#include <algorithm>
#include <condition_variable>
#include <random>
#include <utility>

#include "absl/time/time.h"
#include "framework/base/counted.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/s3/s3_answer.h"
#include "framework/s3/sigv4.h"

namespace holdfast {

namespace {

constexpr std::chrono::milliseconds kLong{2'000};   // of trying again; then it is said
constexpr int kRenewals = 2;                        // of one call: of credentials and of the time
constexpr std::chrono::minutes kClockTolerance{5};  // S3 has 15

std::chrono::milliseconds Elapsed() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch());
}

void Sleep(std::chrono::milliseconds delay, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, delay, [] { return false; });
}

/// Nothing that a source of credentials or libcurl says is about the object.
absl::Status NotOfTheObject(const absl::Status& status, absl::StatusCode code) {
  return absl::IsUnavailable(status) ? status : absl::Status(code, status.message());
}

/// What a request needs to be allowed, of any object: "PUT object partNumber".
std::string KindOf(const S3Call& call) {
  return absl::StrCat(call.method, call.key.empty() ? " bucket " : " object ",
                      call.query.empty() ? "" : call.query.front().first);
}

/// What an operator changes, perhaps just now: credentials, a policy, a bucket, a certificate.
bool IsRefusal(const absl::StatusOr<HttpAnswer>& answer, const absl::Status& status) {
  if (absl::IsPermissionDenied(status)) return true;
  if (!absl::IsFailedPrecondition(status)) return false;
  return !answer.ok() || ParseS3Error(answer->body).code == "NoSuchBucket";
}

}  // namespace

S3Shell RealS3Shell() {
  return {[] { return std::chrono::system_clock::now(); }, &Elapsed, &Sleep,
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
  const std::chrono::milliseconds retry_for =
      call.after_outage ? std::min<std::chrono::milliseconds>(options_.retry_for, kAfterOutage) : options_.retry_for;
  const std::chrono::milliseconds begin = shell_.elapsed();
  const std::stop_token& stop = StopOf(call);
  int renewals = 0;
  for (int attempt = 1;; ++attempt) {
    if (stop.stop_requested()) return absl::CancelledError(absl::StrCat(what, ": stopped"));
    if (attempts != nullptr) *attempts = attempt;
    const absl::StatusOr<S3Credentials> credentials = options_.credentials->Get();
    absl::StatusOr<HttpAnswer> answer = credentials.ok()
                                            ? SendOnce(call, *payload_sha256, *credentials)
                                            : NotOfTheObject(credentials.status(), absl::StatusCode::kPermissionDenied);
    absl::Status status = answer.ok() ? StatusOfAnswer(*answer, call.method == "HEAD") : answer.status();
    // 400 is also what S3 says of credentials that have expired.
    const bool unexplained = answer.ok() && (answer->status == 404 || answer->status == 400);
    if (call.method == "HEAD" && unexplained) {
      answer = AskWhyRefused(call, *payload_sha256, *credentials);
      status = answer.ok() ? StatusOfAnswer(*answer, /*is_head=*/false) : answer.status();
      if (status.ok() || absl::IsOutOfRange(status)) {
        status = absl::UnavailableError("HEAD is refused of what is there");
      }
    }
    if (status.ok() && call.check != nullptr) status = call.check(*answer);
    if (status.ok()) {
      Allow(call);
      return answer;
    }
    if (answer.ok() && absl::IsPermissionDenied(status) && renewals < kRenewals && Renew(*answer, *credentials)) {
      ++renewals;
      continue;
    }
    const bool again = absl::IsUnavailable(status) || (absl::IsAborted(status) && call.retry_conflict) ||
                       (IsRefusal(answer, status) && WasAllowed(call));
    if (!again) return Annotate(status, what);
    const bool asked = answer.ok() && answer->retry_after.has_value();
    const auto wait = Backoff(attempt, shell_.random(), asked ? *answer->retry_after : std::chrono::seconds(0));
    const std::chrono::milliseconds tried = shell_.elapsed() - begin;
    if (tried + wait >= retry_for) {
      return absl::UnavailableError(absl::StrCat(what, ": failed in ", Counted(attempt, "attempt"), " within ",
                                                 (retry_for.count() + 999) / 1000, " s: ", status.message()));
    }
    if (tried > kLong) SayThatItTakesLong(what, status, retry_for - tried);
    shell_.sleep(wait, stop);
  }
}

const std::stop_token& S3Client::StopOf(const S3Call& call) const {
  return call.stop.stop_possible() ? call.stop : options_.stop;
}

void S3Client::Allow(const S3Call& call) {
  const std::lock_guard lock(mutex_);
  allowed_.insert(KindOf(call));
}

bool S3Client::WasAllowed(const S3Call& call) {
  const std::lock_guard lock(mutex_);
  return allowed_.contains(KindOf(call));
}

absl::StatusOr<HttpAnswer> S3Client::AskWhyRefused(const S3Call& head, const std::string& payload_sha256,
                                                   const S3Credentials& credentials) {
  S3Call get = head;
  get.method = "GET";
  get.headers.emplace_back("range", "bytes=0-0");
  return SendOnce(get, payload_sha256, credentials);
}

bool S3Client::Renew(const HttpAnswer& refusal, const S3Credentials& used) {
  absl::Time time;
  std::string wrong;
  if (absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", refusal.Header("date"), &time, &wrong)) {
    const auto error = std::chrono::duration_cast<std::chrono::milliseconds>(absl::ToChronoTime(time) - shell_.now());
    if (std::chrono::abs(error - clock_error_.load()) > kClockTolerance) {
      clock_error_ = error;
      LogWarning("s3://", options_.bucket, ": the clock of the server is ", error.count() / 1000,
                 " s ahead of this machine's; requests are signed with the server's time");
      return true;
    }
  }
  return options_.credentials->Refused(used);
}

void S3Client::SayThatItTakesLong(const std::string& what, const absl::Status& status, std::chrono::milliseconds left) {
  const std::chrono::milliseconds now = shell_.elapsed();
  std::chrono::milliseconds last = last_said_;
  if (now - last < kBetweenNotices || !last_said_.compare_exchange_strong(last, now)) return;
  LogWarning(what, ": ", status.message(), "; it is tried again for another ", left.count() / 1000, " s");
}

absl::StatusOr<HttpAnswer> S3Client::SendOnce(const S3Call& call, const std::string& payload_sha256,
                                              const S3Credentials& credentials) {
  SignableRequest signable;
  signable.method = call.method;
  signable.path = absl::StrCat(address_.path, "/", call.key);
  signable.query = call.query;
  signable.headers = call.headers;
  signable.headers.emplace_back("host", address_.host);
  signable.payload_sha256 = payload_sha256;
  SignRequest({credentials, options_.region, now()}, &signable);

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
  if (StopOf(call).stop_possible()) request.give_up = [stop = StopOf(call)] { return stop.stop_requested(); };
  absl::StatusOr<HttpAnswer> answer = pool_.Perform(request);
  if (!absl::IsInvalidArgument(answer.status())) return answer;
  return NotOfTheObject(answer.status(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace holdfast
