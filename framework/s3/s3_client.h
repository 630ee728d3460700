#pragma once
// Requests to one bucket: signed, sent, tried again while that may help, and their answers made into statuses.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/http/connection_pool.h"
#include "framework/s3/s3_storage.h"

namespace holdfast {

/// What the world outside is asked for besides the server; tests put their own in.
struct S3Shell {
  std::function<std::chrono::system_clock::time_point()> now;
  std::function<std::chrono::milliseconds()> elapsed;                            // of a clock that nobody sets
  std::function<void(std::chrono::milliseconds, const std::stop_token&)> sleep;  // until then or a stop
  std::function<uint64_t()> random;                                              // 64 uniform bits, from any thread
};
S3Shell RealS3Shell();

inline constexpr std::chrono::seconds kAfterOutage{10};

struct S3Call {
  std::string method;
  std::string key{};  // whole, with the prefix; empty = the bucket itself
  Fields query = {}, headers = {};
  const BodySource* body = nullptr;
  std::optional<absl::Span<std::byte>> into = std::nullopt;  // see HttpRequest
  bool retry_conflict = false;                               // 409: somebody else is at the same key just now
  std::stop_token stop = {};                                 // where it can be requested, in place of the options'
  bool after_outage = false;  // which was waited out already: what this cannot do within kAfterOutage is left undone
  /// What is wrong with an answer that says 2xx, may be empty. Unavailable: another attempt may bring a better one.
  std::function<absl::Status(const HttpAnswer&)> check = nullptr;
};

/// Where requests go.
struct S3Address {
  std::string base;  // "https://bucket.s3.eu-west-1.amazonaws.com"
  std::string host;  // as in the Host header
  std::string path;  // before "/key": "" or "/bucket"
};
/// InvalidArgument, naming the field, if the options have no valid bucket, endpoint or region.
absl::StatusOr<S3Address> ResolveAddress(const S3Options& options);

/// Thread-safe.
class S3Client {
 public:
  S3Client(S3Options options, S3Address address, S3Shell shell);

  const S3Options& options() const { return options_; }
  const S3Shell& shell() const { return shell_; }
  /// By the server's clock, as far as it has shown that ours is wrong.
  std::chrono::system_clock::time_point now() const { return shell_.now() + clock_error_.load(); }

  /// A 2xx answer that `check` likes, or the status of StatusOfAnswer with method and key before it; Unavailable when
  /// `retry_for` is over. `attempts`, if given, becomes how many it took. A refusal makes it ask the source of
  /// credentials again, or correct the time that it signs with where the server has another; PermissionDenied
  /// if there are no credentials. Where such a call has succeeded before, of any object, want of credentials, of
  /// permission or of the bucket, and a certificate that cannot be verified, are tried again as an outage is. What is
  /// tried for long is logged. Cancelled soon after a stop is requested; the request may still have been done.
  absl::StatusOr<HttpAnswer> Send(const S3Call& call, int* attempts = nullptr);

 private:
  static constexpr std::chrono::milliseconds kBetweenNotices{30'000};

  absl::StatusOr<HttpAnswer> SendOnce(const S3Call& call, const std::string& payload_sha256,
                                      const S3Credentials& credentials);
  /// 404 and 400 to HEAD have no body, and may be of anything in between: asked again in a way that has one.
  absl::StatusOr<HttpAnswer> AskWhyRefused(const S3Call& head, const std::string& payload_sha256,
                                           const S3Credentials& credentials);
  const std::stop_token& StopOf(const S3Call& call) const;
  void Allow(const S3Call& call);
  bool WasAllowed(const S3Call& call);
  /// Whether the same request may be taken where it was refused: other credentials, another time.
  bool Renew(const HttpAnswer& refusal, const S3Credentials& used);
  void SayThatItTakesLong(const std::string& what, const absl::Status& status, std::chrono::milliseconds left);

  const S3Options options_;
  const S3Address address_;
  const S3Shell shell_;
  ConnectionPool pool_;
  std::atomic<std::chrono::milliseconds> clock_error_{};  // to be added to ours, to have the server's
  std::atomic<std::chrono::milliseconds> last_said_{-kBetweenNotices};
  std::mutex mutex_;
  std::set<std::string> allowed_;  // kinds of calls that have succeeded; under mutex_
};

}  // namespace holdfast
