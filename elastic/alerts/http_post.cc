#include "elastic/alerts/http_post.h"

#include <curl/curl.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr long kTooManyRequests = 429;

// An answer is never quoted: error pages repeat the URL, which is the secret.
size_t Discard(char* /*data*/, size_t size, size_t count, void* /*context*/) { return size * count; }

int ShouldGiveUp(void* context, curl_off_t /*total*/, curl_off_t /*now*/, curl_off_t /*upload_total*/,
                 curl_off_t /*upload_now*/) {
  const auto* post = static_cast<const HttpPost*>(context);
  return post->give_up && post->give_up() ? 1 : 0;
}

void SetOptions(CURL* curl, const HttpPost& post, curl_slist* headers) {
  const long timeout_ms = static_cast<long>(post.timeout.count());
  curl_easy_setopt(curl, CURLOPT_URL, post.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, post.allow_plain_http ? "http,https" : "https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, post.body.c_str());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(post.body.size()));
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, timeout_ms);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);  // name look-ups must not use SIGALRM in a process with threads
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Discard);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &ShouldGiveUp);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &post);
}

absl::Status StatusOf(long code) {
  if (code >= 200 && code < 300) return absl::OkStatus();
  const std::string message = absl::StrCat("HTTP status ", code);
  const bool may_pass = code >= 500 || code == kTooManyRequests;
  return may_pass ? absl::UnavailableError(message) : absl::FailedPreconditionError(message);
}

}  // namespace

absl::Status Perform(const HttpPost& post) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), &curl_easy_cleanup);
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"), &curl_slist_free_all);
  if (curl == nullptr || headers == nullptr) return absl::ResourceExhaustedError("no memory for libcurl");
  SetOptions(curl.get(), post, headers.get());
  const CURLcode result = curl_easy_perform(curl.get());
  if (result == CURLE_URL_MALFORMAT || result == CURLE_UNSUPPORTED_PROTOCOL) {
    return absl::FailedPreconditionError(curl_easy_strerror(result));
  }
  if (result != CURLE_OK) return absl::UnavailableError(curl_easy_strerror(result));
  long code = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &code);
  return StatusOf(code);
}

}  // namespace holdfast
