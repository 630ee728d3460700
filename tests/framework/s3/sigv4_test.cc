// Signatures are those of AWS's own examples (Amazon S3 API Reference, "Examples: Signature Calculations"), and every
// part of a request changes them.
#include "framework/s3/sigv4.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

// The key pair, time and bucket of the published examples; nobody's.
SigningContext Example() {
  const auto time = std::chrono::system_clock::from_time_t(1369353600);  // 2013-05-24 00:00:00 UTC
  return {{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""}, "us-east-1", time};
}

SignableRequest ExampleRequest(const std::string& method, const std::string& path) {
  return {method, path, {}, {{"host", "examplebucket.s3.amazonaws.com"}}, Sha256Hex("")};
}

std::string Header(const SignableRequest& request, const std::string& wanted) {
  for (const auto& [name, value] : request.headers) {
    if (name == wanted) return value;
  }
  return "";
}

std::string Signature(const SignableRequest& request) {
  const std::string value = Header(request, "authorization");
  return value.substr(value.rfind('=') + 1);
}

TEST(SigV4, GetObject) {
  SignableRequest request = ExampleRequest("GET", "/test.txt");
  request.headers.emplace_back("range", "bytes=0-9");
  SignRequest(Example(), &request);
  EXPECT_EQ(Header(request, "authorization"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_EQ(Header(request, "x-amz-date"), "20130524T000000Z");
}

TEST(SigV4, PutObject) {
  SignableRequest request = ExampleRequest("PUT", "/test$file.text");
  request.headers.emplace_back("x-amz-storage-class", "REDUCED_REDUNDANCY");
  request.headers.emplace_back("date", "Fri, 24 May 2013 00:00:00 GMT");
  request.payload_sha256 = Sha256Hex("Welcome to Amazon S3.");
  EXPECT_EQ(request.payload_sha256, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
  SignRequest(Example(), &request);
  EXPECT_EQ(Signature(request), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(SigV4, GetBucketLifecycle) {
  SignableRequest request = ExampleRequest("GET", "/");
  request.query = {{"lifecycle", ""}};
  SignRequest(Example(), &request);
  EXPECT_EQ(Signature(request), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(SigV4, ListObjects) {
  SignableRequest request = ExampleRequest("GET", "/");
  request.query = {{"prefix", "J"}, {"max-keys", "2"}};  // not in the order in which they are signed
  SignRequest(Example(), &request);
  EXPECT_EQ(Signature(request), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(SigV4, EveryPartCounts) {
  const auto signature = [](auto change) {
    SigningContext context = Example();
    SignableRequest request = ExampleRequest("GET", "/a");
    change(context, request);
    SignRequest(context, &request);
    return Signature(request);
  };
  const std::string plain = signature([](SigningContext&, SignableRequest&) {});
  const auto differs = [&](auto change) { EXPECT_NE(signature(change), plain); };
  differs([](SigningContext& c, SignableRequest&) { c.credentials.secret_access_key += "x"; });
  differs([](SigningContext& c, SignableRequest&) { c.credentials.session_token = "t"; });
  differs([](SigningContext& c, SignableRequest&) { c.region = "eu-west-1"; });
  differs([](SigningContext& c, SignableRequest&) { c.time += std::chrono::seconds(1); });
  differs([](SigningContext&, SignableRequest& r) { r.method = "HEAD"; });
  differs([](SigningContext&, SignableRequest& r) { r.path = "/b"; });
  differs([](SigningContext&, SignableRequest& r) { r.query = {{"a", ""}}; });
  differs([](SigningContext&, SignableRequest& r) { r.headers[0].second = "other"; });
  differs([](SigningContext&, SignableRequest& r) { r.headers.emplace_back("if-none-match", "*"); });
  differs([](SigningContext&, SignableRequest& r) { r.payload_sha256 = Sha256Hex("x"); });
}

TEST(SigV4, ASessionTokenIsSentAndSigned) {
  SigningContext context = Example();
  context.credentials.session_token = "token";
  SignableRequest request = ExampleRequest("GET", "/a");
  SignRequest(context, &request);
  EXPECT_EQ(Header(request, "x-amz-security-token"), "token");
  EXPECT_TRUE(absl::StrContains(Header(request, "authorization"), ";x-amz-security-token,"));
}

TEST(SigV4, HeaderValuesAreTrimmed) {
  SignableRequest spaced = ExampleRequest("GET", "/a"), plain = spaced;
  spaced.headers.emplace_back("x-amz-meta-a", "  b   c ");
  plain.headers.emplace_back("x-amz-meta-a", "b c");
  SignRequest(Example(), &spaced);
  SignRequest(Example(), &plain);
  EXPECT_EQ(Signature(spaced), Signature(plain));
}

TEST(SigV4, EncodesOnceAndOnlyWhatIsReserved) {
  EXPECT_EQ(UriEncode("/A-z.0_9~/", true), "/A-z.0_9~/");
  EXPECT_EQ(UriEncode("a/b c+d%20\xc3\xa9", false), "a%2Fb%20c%2Bd%2520%C3%A9");
  EXPECT_EQ(CanonicalQuery({{"b", "2 3"}, {"a", "/="}, {"uploads", ""}}), "a=%2F%3D&b=2%203&uploads=");
  EXPECT_EQ(CanonicalQuery({}), "");
}

TEST(SigV4, HashesInPieces) {
  Sha256 hash;
  for (const char* piece : {"Welcome ", "", "to Amazon S3."}) hash.Update(piece);
  EXPECT_EQ(hash.FinishHex(), Sha256Hex("Welcome to Amazon S3."));
}

}  // namespace
}  // namespace holdfast
