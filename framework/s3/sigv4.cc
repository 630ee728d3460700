#include "framework/s3/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr char kAlgorithm[] = "AWS4-HMAC-SHA256";
constexpr size_t kDigestBytes = 32;
constexpr size_t kPieceBytes = 256u << 10;  // fits the cache between reading and hashing

std::string HmacSha256(absl::string_view key, absl::string_view message) {
  std::string digest(kDigestBytes, '\0');
  unsigned int size = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                   reinterpret_cast<unsigned char*>(digest.data()), &size);
  HOLDFAST_CHECK(made != nullptr && size == kDigestBytes);
  return digest;
}

// "20130524T000000Z"
std::string BasicTime(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  HOLDFAST_CHECK(gmtime_r(&seconds, &parts) != nullptr);
  std::array<char, 32> text;
  return std::string(text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts));
}

// Without spaces around it, and several in a row inside made one.
std::string CanonicalValue(absl::string_view value) {
  std::string text(absl::StripAsciiWhitespace(value));
  text.erase(std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; }), text.end());
  return text;
}

struct CanonicalHeaders {
  std::string lines;  // "host:example.com\nx-amz-date:...\n"
  std::string names;  // "host;x-amz-date"
};

CanonicalHeaders Canonicalize(Fields headers) {
  std::sort(headers.begin(), headers.end());
  CanonicalHeaders result;
  for (const auto& [name, value] : headers) {
    absl::StrAppend(&result.lines, name, ":", CanonicalValue(value), "\n");
    absl::StrAppend(&result.names, result.names.empty() ? "" : ";", name);
  }
  return result;
}

std::string SigningKey(const SigningContext& context, absl::string_view date) {
  std::string key = absl::StrCat("AWS4", context.credentials.secret_access_key);
  for (const absl::string_view part :
       {date, absl::string_view(context.region), absl::string_view("s3"), absl::string_view("aws4_request")}) {
    key = HmacSha256(key, part);
  }
  return key;
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  HOLDFAST_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::Update(absl::string_view bytes) {
  HOLDFAST_CHECK(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::FinishHex() {
  std::string digest(kDigestBytes, '\0');
  HOLDFAST_CHECK(EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1);
  return absl::BytesToHexString(digest);
}

std::string Sha256Hex(absl::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.FinishHex();
}

absl::StatusOr<std::string> Sha256Hex(const BodySource& body) {
  std::vector<char> piece(static_cast<size_t>(std::min<uint64_t>(kPieceBytes, body.size())));
  Sha256 hash;
  for (uint64_t offset = 0; offset < body.size();) {
    ASSIGN_OR_RETURN(const size_t got, body.Read(offset, piece.data(), piece.size()));
    hash.Update({piece.data(), got});
    offset += got;
  }
  return hash.FinishHex();
}

std::string UriEncode(absl::string_view text, bool keep_slashes) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_' ||
                       c == '~' || (c == '/' && keep_slashes);
    if (plain) {
      encoded += c;
    } else {
      const unsigned byte = static_cast<unsigned char>(c);
      encoded += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return encoded;
}

std::string CanonicalQuery(const Fields& query) {
  std::vector<std::pair<std::string, std::string>> encoded;
  encoded.reserve(query.size());
  for (const auto& [name, value] : query) encoded.emplace_back(UriEncode(name, false), UriEncode(value, false));
  std::sort(encoded.begin(), encoded.end());  // by the encoded names
  std::string text;
  for (const auto& [name, value] : encoded) absl::StrAppend(&text, text.empty() ? "" : "&", name, "=", value);
  return text;
}

void SignRequest(const SigningContext& context, SignableRequest* request) {
  const std::string time = BasicTime(context.time);
  const std::string date = time.substr(0, time.find('T'));
  request->headers.emplace_back("x-amz-content-sha256", request->payload_sha256);
  request->headers.emplace_back("x-amz-date", time);
  if (!context.credentials.session_token.empty()) {
    request->headers.emplace_back("x-amz-security-token", context.credentials.session_token);
  }
  const CanonicalHeaders headers = Canonicalize(request->headers);
  const std::string canonical =
      absl::StrCat(request->method, "\n", UriEncode(request->path, /*keep_slashes=*/true), "\n",
                   CanonicalQuery(request->query), "\n", headers.lines, "\n", headers.names, "\n") +
      request->payload_sha256;
  const std::string scope = absl::StrCat(date, "/", context.region, "/s3/aws4_request");
  const std::string to_sign = absl::StrCat(kAlgorithm, "\n", time, "\n", scope, "\n", Sha256Hex(canonical));
  const std::string signature = absl::BytesToHexString(HmacSha256(SigningKey(context, date), to_sign));
  request->headers.emplace_back("authorization",
                                absl::StrCat(kAlgorithm, " Credential=", context.credentials.access_key_id, "/", scope,
                                             ",SignedHeaders=", headers.names, ",Signature=", signature));
}

}  // namespace holdfast
