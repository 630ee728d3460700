#include "elastic/lease/etcd_store.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/json.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxAnswerBytes = 64u << 10;

/// A field of an answer that is a string, "" if it is not there. The gateway writes 64-bit numbers as strings.
std::string Text(const Json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  return object.is_object() && found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

absl::StatusOr<LeaseStore::Entry> EntryOf(const Json& range) {
  if (!range.is_object()) return absl::UnavailableError("the answer is not etcd's");
  const auto keys = range.find("kvs");
  if (keys == range.end() || keys->empty()) return LeaseStore::Entry{};
  if (!keys->is_array()) return absl::UnavailableError("the answer is not etcd's");
  LeaseStore::Entry entry{.text = "", .version = Text((*keys)[0], "mod_revision")};
  const bool is_whole = absl::Base64Unescape(Text((*keys)[0], "value"), &entry.text) && !entry.version.empty();
  if (!is_whole) return absl::UnavailableError("the answer is not etcd's");
  return entry;
}

/// What etcd says is wrong; nothing of it depends on the key.
absl::Status StatusOfAnswer(const HttpAnswer& answer) {
  if (answer.status >= 200 && answer.status < 300) return absl::OkStatus();
  std::string said = Text(ParseJson(answer.body).value_or(nullptr), "error");
  if (said.empty()) said = answer.body;
  const std::string message = absl::StrCat("HTTP status ", answer.status, ": ", absl::CHexEscape(said.substr(0, 200)));
  // Without a leader or in the middle of an election it says 503 or 500.
  if (answer.status >= 500 || answer.status == 408 || answer.status == 429) return absl::UnavailableError(message);
  // A token of before the last change of users or roles is refused so, until it has expired.
  const bool is_old = absl::StrContains(said, "revision of auth store is old");
  if (answer.status == 401 || is_old) return absl::UnauthenticatedError(message);
  const bool is_refused = answer.status == 403 || absl::StrContains(said, "permission denied") ||
                          absl::StrContains(said, "authentication") || absl::StrContains(said, "user name is empty");
  if (is_refused) return absl::PermissionDeniedError(message);
  return absl::InvalidArgumentError(absl::StrCat(message, " (etcd 3.4 or later with its JSON gateway is needed)"));
}

}  // namespace

std::string EtcdStore::Describe(const std::string& endpoint) const {
  const bool is_tls = absl::StartsWith(endpoint, "https:");
  return absl::StrCat(is_tls ? "etcds" : "etcd", endpoint.substr(endpoint.find(':')), options_.key);
}
std::string EtcdStore::Describe() const { return Describe(options_.endpoints.front()); }

absl::StatusOr<std::string> EtcdStore::CallAny(const std::string& path, const std::string& body,
                                               const std::string& token) {
  const size_t count = options_.endpoints.size();
  size_t first = 0;
  {
    const std::lock_guard lock(mutex_);
    first = first_;
  }
  const MemoryBody bytes(body);
  absl::Status last;
  for (size_t i = 0; i < std::min<size_t>(count, 2); ++i) {
    const size_t at = (first + i) % count;
    HttpRequest request;
    request.method = "POST";
    request.url = absl::StrCat(options_.endpoints[at], path);
    request.headers = {{"content-type", "application/json"}};
    request.body = &bytes;
    request.timeout = count == 1 ? options_.timeout : options_.timeout / 2;
    request.ca_file = options_.ca_file;
    request.cert_file = options_.cert_file;
    request.key_file = options_.key_file;
    request.max_answer_bytes = kMaxAnswerBytes;
    request.direct = true;  // a cluster's http_proxy is not meant for its own services
    if (!token.empty()) request.headers.emplace_back("authorization", token);
    const absl::StatusOr<HttpAnswer> answer = pool_.Perform(request);
    last = Annotate(answer.ok() ? StatusOfAnswer(*answer) : answer.status(), Describe(options_.endpoints[at]));
    if (absl::IsFailedPrecondition(last)) last = absl::InvalidArgumentError(last.message());  // its certificate
    const std::lock_guard lock(mutex_);
    first_ = absl::IsUnavailable(last) ? (at + 1) % count : at;
    if (last.ok()) return answer->body;
    if (!absl::IsUnavailable(last)) break;
  }
  return last;
}

absl::StatusOr<std::string> EtcdStore::SignIn() {
  const Json body{{"name", options_.user}, {"password", options_.password}};
  ASSIGN_OR_RETURN(const std::string answer,
                   CallAny("/v3/auth/authenticate", body.dump(-1, ' ', false, Json::error_handler_t::replace), ""));
  std::string token = Text(ParseJson(answer).value_or(nullptr), "token");
  if (token.empty()) return absl::UnavailableError(absl::StrCat(Describe(), ": no token in the answer to a sign-in"));
  const std::lock_guard lock(mutex_);
  token_ = token;
  return token;
}

// A token is good for some minutes, and for the life of the member that gave it.
absl::StatusOr<std::string> EtcdStore::Call(const std::string& path, const std::string& body) {
  std::string token;
  {
    const std::lock_guard lock(mutex_);
    token = token_;
  }
  if (token.empty() && !options_.user.empty()) {
    ASSIGN_OR_RETURN(token, SignIn());
  }
  absl::StatusOr<std::string> answer = CallAny(path, body, token);
  if (!absl::IsUnauthenticated(answer.status())) return answer;
  if (options_.user.empty()) return absl::PermissionDeniedError(answer.status().message());
  ASSIGN_OR_RETURN(token, SignIn());
  answer = CallAny(path, body, token);
  if (absl::IsUnauthenticated(answer.status())) return absl::PermissionDeniedError(answer.status().message());
  return answer;
}

absl::StatusOr<LeaseStore::Entry> EtcdStore::Read() {
  const Json body{{"key", absl::Base64Escape(options_.key)}};
  ASSIGN_OR_RETURN(const std::string answer, Call("/v3/kv/range", body.dump()));
  absl::StatusOr<Entry> entry = EntryOf(ParseJson(answer).value_or(nullptr));
  return entry.ok() ? entry : Annotate(entry.status(), Describe());
}

absl::StatusOr<std::string> EtcdStore::Replace(const std::string& version, absl::string_view text) {
  const std::string key = absl::Base64Escape(options_.key);
  const Json compare{
      {"key", key}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", version.empty() ? "0" : version}};
  const Json put{{"requestPut", {{"key", key}, {"value", absl::Base64Escape(text)}}}};
  const Json body{{"compare", Json::array({compare})}, {"success", Json::array({put})}};
  ASSIGN_OR_RETURN(const std::string answer, Call("/v3/kv/txn", body.dump()));
  const Json done = ParseJson(answer).value_or(nullptr);
  if (!done.is_object() || !done.contains("header")) {
    return absl::UnavailableError(absl::StrCat(Describe(), ": the answer is not etcd's"));
  }
  const auto succeeded = done.find("succeeded");
  if (succeeded == done.end() || *succeeded != true) {
    return absl::AbortedError(absl::StrCat(Describe(), ": something else stands there by now"));
  }
  return Text(done["header"], "revision");  // of the whole store, and so of the key just written
}

}  // namespace holdfast
