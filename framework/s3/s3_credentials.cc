#include "framework/s3/s3_credentials.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr std::chrono::minutes kRefreshBefore{5};
constexpr std::chrono::minutes kBetweenFailures{1};  // of asking for others while those that there are still hold

class RefreshedSource final : public S3CredentialSource {
 public:
  using Clock = std::chrono::system_clock;
  RefreshedSource(std::function<absl::StatusOr<S3Credentials>()> load, std::function<Clock::time_point()> now)
      : load_(std::move(load)), now_(std::move(now)) {}

  absl::StatusOr<S3Credentials> Get() override {
    const std::lock_guard lock(mutex_);  // held while they are asked for: others want the same
    const Clock::time_point now = now_();
    if (current_.has_value() && now < refresh_at_) return *current_;
    const absl::Status status = Load();
    if (status.ok()) return *current_;
    if (!current_.has_value()) return status;
    refresh_at_ = now + kBetweenFailures;
    if (!current_->expires_at.has_value() || now < *current_->expires_at) return *current_;
    return absl::UnavailableError(
        absl::StrCat("the S3 credentials have expired, and there are no others: ", status.message()));
  }

  bool Refused(const S3Credentials& credentials) override {
    const std::lock_guard lock(mutex_);
    if (current_.has_value() && !(*current_ == credentials)) return true;  // another thread has asked
    return Load().ok() && !(*current_ == credentials);
  }

 private:
  absl::Status Load() {
    ASSIGN_OR_RETURN(const S3Credentials loaded, load_());
    RETURN_IF_ERROR(CheckCredentials(loaded));
    const auto expires = loaded.expires_at.value_or(Clock::time_point::max());
    // Whoever hands them out may hand out the same until their last minute, or others that live for less than five.
    const bool same = current_.has_value() && *current_ == loaded;
    const Clock::time_point now = now_();
    refresh_at_ = same ? now + kBetweenFailures : std::max(expires - kRefreshBefore, now + (expires - now) / 2);
    current_ = loaded;
    return absl::OkStatus();
  }

  const std::function<absl::StatusOr<S3Credentials>()> load_;
  const std::function<Clock::time_point()> now_;
  std::mutex mutex_;
  std::optional<S3Credentials> current_;  // under mutex_
  Clock::time_point refresh_at_{};        // under mutex_
};

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
}

void SetField(absl::string_view key, absl::string_view value, S3Credentials* credentials) {
  if (key == "aws_access_key_id") credentials->access_key_id = std::string(value);
  if (key == "aws_secret_access_key") credentials->secret_access_key = std::string(value);
  if (key == "aws_session_token") credentials->session_token = std::string(value);
}

}  // namespace

std::shared_ptr<S3CredentialSource> RefreshedS3Credentials(std::function<absl::StatusOr<S3Credentials>()> load,
                                                           std::function<std::chrono::system_clock::time_point()> now) {
  return std::make_shared<RefreshedSource>(std::move(load), std::move(now));
}

absl::Status CheckCredentials(const S3Credentials& credentials) {
  const bool there = !credentials.access_key_id.empty() && !credentials.secret_access_key.empty();
  const bool fit = IsPrintable(credentials.access_key_id) && IsPrintable(credentials.session_token);
  if (there && fit) return absl::OkStatus();
  return absl::InvalidArgumentError(there ? "the S3 credentials have spaces or control characters in them"
                                          : "the S3 credentials are empty");
}

absl::StatusOr<S3Credentials> ParseCredentialsFile(absl::string_view text, absl::string_view profile) {
  S3Credentials credentials;
  bool inside = false, found = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      inside = absl::StripAsciiWhitespace(line.substr(1, line.size() - 2)) == profile;
      found = found || inside;
    } else if (const size_t equals = line.find('='); inside && equals != absl::string_view::npos) {
      SetField(absl::AsciiStrToLower(absl::StripAsciiWhitespace(line.substr(0, equals))),
               absl::StripAsciiWhitespace(line.substr(equals + 1)), &credentials);
    }
  }
  if (!found) return absl::NotFoundError(absl::StrCat("no profile [", profile, "]"));
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile [", profile, "] lacks ",
                     credentials.access_key_id.empty() ? "aws_access_key_id" : "aws_secret_access_key"));
  }
  return credentials;
}

}  // namespace holdfast
