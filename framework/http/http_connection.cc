#include "framework/http/http_connection.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr size_t kMaxHeaderBytes = 64u << 10;
constexpr size_t kMaxErrorBytes = 64u << 10;             // of the body of an answer that is no success
constexpr long kBufferBytes = 512l << 10;                // libcurl's own, per connection and direction
constexpr uint64_t kSlowestBytesPerSecond = 128u << 10;  // below it, a large request counts as stuck
constexpr long kMaxConnectMs = 10'000;

bool IsSuccess(int status) { return status >= 200 && status < 300; }

// What the callbacks know of the request under way.
struct Transfer {
  const HttpRequest& request;
  HttpAnswer answer;
  uint64_t sent = 0;
  size_t header_bytes = 0;
  bool headers_ended = false;  // libcurl takes the end of the connection for the end of the headers
  absl::Status failure;        // why a callback has ended the request
};

size_t SendBody(char* out, size_t size, size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  const absl::StatusOr<size_t> got = transfer.request.body->Read(transfer.sent, out, size * count);
  if (!got.ok()) {
    transfer.failure = got.status();
    return CURL_READFUNC_ABORT;
  }
  transfer.sent += *got;
  return *got;
}

// libcurl begins the body again when a connection that was kept open turns out to be closed.
int SeekBody(void* context, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<Transfer*>(context)->sent = static_cast<uint64_t>(offset);
  return CURL_SEEKFUNC_OK;
}

// "HTTP/1.1 200 OK" -> 200; 0 if it is none.
int ParseStatusLine(absl::string_view line) {
  const size_t space = line.find(' ');
  if (space == absl::string_view::npos || line.size() < space + 4) return 0;
  int status = 0;
  for (const char c : line.substr(space + 1, 3)) {
    if (c < '0' || c > '9') return 0;
    status = status * 10 + (c - '0');
  }
  return status;
}

size_t TakeHeader(char* data, size_t size, size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  const size_t bytes = size * count;
  transfer.header_bytes += bytes;
  if (transfer.header_bytes > kMaxHeaderBytes) {
    transfer.failure =
        absl::FailedPreconditionError(absl::StrCat("the answer has over ", kMaxHeaderBytes, " bytes of headers"));
    return 0;
  }
  const absl::string_view line = absl::StripAsciiWhitespace(absl::string_view(data, bytes));
  transfer.headers_ended = transfer.headers_ended || line.empty();  // after it, trailers may come
  if (absl::StartsWith(line, "HTTP/")) {  // also after a "100 Continue", and when libcurl has begun again
    transfer.headers_ended = false;
    transfer.answer = HttpAnswer{};
    transfer.answer.status = ParseStatusLine(line);
  } else if (const size_t colon = line.find(':'); colon != absl::string_view::npos) {
    transfer.answer.headers.emplace_back(absl::AsciiStrToLower(line.substr(0, colon)),
                                         absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return bytes;
}

size_t TakeBody(char* data, size_t size, size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  const size_t bytes = size * count;
  HttpAnswer& answer = transfer.answer;
  if (transfer.request.discard_answer) return bytes;
  if (!IsSuccess(answer.status)) {  // for people; the beginning of it will do
    answer.body.append(data, std::min(bytes, kMaxErrorBytes - std::min(answer.body.size(), kMaxErrorBytes)));
    return bytes;
  }
  const bool into = transfer.request.into.has_value();
  const size_t have = into ? answer.bytes_into : answer.body.size();
  const size_t limit = into ? transfer.request.into->size() : transfer.request.max_answer_bytes;
  if (bytes > limit - have) {
    transfer.failure =
        absl::FailedPreconditionError(absl::StrCat("the answer has more bytes than the ", limit, " asked for"));
    return 0;
  }
  if (into) {
    std::memcpy(transfer.request.into->data() + have, data, bytes);
    answer.bytes_into += bytes;
  } else {
    answer.body.append(data, bytes);
  }
  return bytes;
}

using HeaderList = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

HeaderList MakeHeaders(const Fields& fields) {
  HeaderList list(nullptr, &curl_slist_free_all);
  const auto append = [&](const std::string& line) {
    curl_slist* longer = curl_slist_append(list.get(), line.c_str());
    if (longer == nullptr) return;
    (void)list.release();
    list.reset(longer);
  };
  for (const auto& [name, value] : fields) append(value.empty() ? name + ";" : absl::StrCat(name, ": ", value));
  append("Expect:");  // no round trip before each body
  const bool has_type = std::any_of(fields.begin(), fields.end(), [](const auto& field) {
    return absl::EqualsIgnoreCase(field.first, "content-type");
  });
  if (!has_type) append("Content-Type:");  // no invention of libcurl's
  return list;
}

int ShouldGiveUp(void* context, curl_off_t /*total*/, curl_off_t /*now*/, curl_off_t /*upload_total*/,
                 curl_off_t /*upload_now*/) {
  return static_cast<const HttpRequest*>(context)->give_up() ? 1 : 0;
}

// A large body gets more time; silence and a trickle do not.
long TotalTimeoutMs(const HttpRequest& request) {
  const uint64_t bytes =
      (request.body == nullptr ? 0 : request.body->size()) + (request.into ? request.into->size() : 0);
  return static_cast<long>(request.timeout.count() + static_cast<int64_t>(bytes * 1000 / kSlowestBytesPerSecond));
}

void SetLimits(CURL* curl, const HttpRequest& request) {
  const long timeout_ms = static_cast<long>(request.timeout.count());
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TotalTimeoutMs(request));
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, std::min(timeout_ms, kMaxConnectMs));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1024L);  // bytes per second, on average over the time below
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, std::max(1L, (timeout_ms + 999) / 1000));
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, request.tls_only ? "https" : "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);  // a signed request is for one host
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
  if (request.give_up) {
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &ShouldGiveUp);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &request);
  }
  if (request.direct) curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl, CURLOPT_CA_CACHE_TIMEOUT, 0L);  // authorities that were replaced count at once
  if (!request.ca_file.empty()) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, request.ca_file.c_str());
    curl_easy_setopt(curl, CURLOPT_CAPATH,
                     nullptr);  // libcurl's default is the system's authorities, which would hold, too
  }
  if (!request.cert_file.empty()) curl_easy_setopt(curl, CURLOPT_SSLCERT, request.cert_file.c_str());
  if (!request.key_file.empty()) curl_easy_setopt(curl, CURLOPT_SSLKEY, request.key_file.c_str());
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);  // name look-ups must not use SIGALRM in a process with threads
}

void SetTransport(CURL* curl) {
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);  // what is sent is what was signed
  curl_easy_setopt(curl, CURLOPT_MAXCONNECTS, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "holdfast");
}

void SetMethod(CURL* curl, const HttpRequest& request) {
  if (request.body != nullptr) {
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body->size()));
  } else if (request.method == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  }
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

void SetCallbacks(CURL* curl, Transfer* transfer) {
  curl_easy_setopt(curl, CURLOPT_READFUNCTION, &SendBody);
  curl_easy_setopt(curl, CURLOPT_READDATA, transfer);
  curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, &SeekBody);
  curl_easy_setopt(curl, CURLOPT_SEEKDATA, transfer);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &TakeHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &TakeBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
}

absl::Status TransportStatus(CURLcode code, const char* detail) {
  const std::string message = *detail != '\0' ? detail : curl_easy_strerror(code);
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return absl::InvalidArgumentError(message);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
      return absl::FailedPreconditionError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpConnection>> HttpConnection::Create() {
  CURL* curl = curl_easy_init();
  if (curl == nullptr) return absl::ResourceExhaustedError("no memory for libcurl");
  return std::unique_ptr<HttpConnection>(new HttpConnection(curl));
}

HttpConnection::~HttpConnection() { curl_easy_cleanup(curl_); }

absl::StatusOr<HttpAnswer> HttpConnection::Perform(const HttpRequest& request) {
  Transfer transfer{.request = request, .answer = {}, .failure = {}};
  const HeaderList headers = MakeHeaders(request.headers);
  std::array<char, CURL_ERROR_SIZE> detail{};
  curl_easy_reset(curl_);  // the options; the connection stays
  curl_easy_setopt(curl_, CURLOPT_ERRORBUFFER, detail.data());
  curl_easy_setopt(curl_, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, headers.get());
  SetLimits(curl_, request);
  SetTransport(curl_);
  SetMethod(curl_, request);
  SetCallbacks(curl_, &transfer);
  const CURLcode code = curl_easy_perform(curl_);
  curl_off_t retry_after = 0;
  curl_easy_getinfo(curl_, CURLINFO_RETRY_AFTER, &retry_after);
  curl_easy_reset(curl_);  // keeps no pointer into this function
  if (!transfer.failure.ok()) return transfer.failure;
  if (code != CURLE_OK) return TransportStatus(code, request.secret_url ? "" : detail.data());
  if (!transfer.headers_ended) return absl::UnavailableError("the answer broke off in its headers");
  if (retry_after > 0) transfer.answer.retry_after = std::chrono::seconds(retry_after);
  return std::move(transfer.answer);
}

}  // namespace holdfast
