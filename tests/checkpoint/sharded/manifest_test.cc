// A manifest comes back as it was written, to the bit; whatever else is in the file is refused, by name: flipped bytes
// by the digest, and, with a digest that fits, every violation of the format.

#include "checkpoint/sharded/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "checkpoint/sharded/digest.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

const std::string kDigest = "0123456789abcdef0123456789abcdef";

Manifest Example() {
  Manifest m;
  m.name = {.step = 1000, .generation = 7};
  m.config = "run:\n  name: \"a \\ b\"\n\ttab\x01 \xc3\xa9\n";
  m.config_digest = 0x00123456789abcde;
  m.data_digest = 0x0fedcba987654321;
  m.kernel_digest = 0x13e111c856eb0b4a;
  m.build = "0a1b2c3d4e5f6071";
  m.samples = (int64_t{1} << 62) + 1;
  m.world_size = 2;
  m.sharding = "full_shard";
  m.time = 1753776000.1234567;
  m.validation_loss = 3.1000000000000001;
  m.state_digest = 0xfedcba9876543210;
  m.tensors = {
      {"embedding.weight", {50257, 768}, {"weight", "momentum"}}, {"norm.weight", {768}}, {"experts.w", {8, 3, 5}}};
  for (int i = 0; i < 2; ++i) {
    const std::string stem = absl::StrCat("shard-", i, "-of-2");
    m.shards.push_back(
        {.data = {stem + ".h5", (1ull << 45) + 1, kDigest}, .index = {stem + ".index", 100, kDigest}, .chunks = 3});
  }
  m.model = {"model.h5", 4096, kDigest};
  return m;
}

// The text with another body, and the digest that fits it.
std::string ResealManifest(const std::string& body) {
  return absl::StrCat(body, ",\n  \"digest\": \"", DigestFile(body), "\"\n}\n");
}

std::string BodyOf(const Manifest& manifest) {
  const std::string text = FormatManifest(manifest);
  return text.substr(0, text.rfind(",\n  \"digest\""));
}

// The example with one piece of its text replaced, sealed again.
std::string Edited(const std::string& from, const std::string& to) {
  const std::string body = BodyOf(Example());
  const size_t at = body.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return ResealManifest(body.substr(0, at) + to + body.substr(at + from.size()));
}

TEST(ManifestTest, ComesBack) {
  const Manifest manifest = Example();
  const std::string text = FormatManifest(manifest);
  const auto parsed = ParseManifest(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(*parsed == manifest);
  EXPECT_EQ(FormatManifest(*parsed), text);
  EXPECT_EQ(ResealManifest(BodyOf(manifest)), text);
}

TEST(ManifestTest, OlderVersionsAreReadAndLackWhatCameLater) {
  Manifest example = Example();
  std::string body =
      absl::StrReplaceAll(BodyOf(example), {{"\"version\": 4", "\"version\": 3"},
                                            {", \"planes\": [\"weight\",\"momentum\"]", ""},
                                            {", \"planes\": [\"weight\",\"exp_avg\",\"exp_avg_sq\"]", ""}});
  example.tensors[0].planes = {"weight", "exp_avg", "exp_avg_sq"};
  const auto third = ParseManifest(ResealManifest(body));
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_TRUE(*third == example);

  body = absl::StrReplaceAll(body, {{"\"version\": 3", "\"version\": 2"},
                                    {"\"kernel_digest\": \"13e111c856eb0b4a\",\n  ", ""},
                                    {"\"build\": \"0a1b2c3d4e5f6071\",\n  ", ""}});
  Manifest expected = example;
  expected.kernel_digest = 0;
  expected.build = "";
  const auto second = ParseManifest(ResealManifest(body));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(*second == expected);

  body = absl::StrReplaceAll(
      body, {{"\"version\": 2", "\"version\": 1"}, {"\"data_digest\": \"0fedcba987654321\",\n  ", ""}});
  expected.data_digest = 0;
  const auto first = ParseManifest(ResealManifest(body));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(*first == expected);
}

TEST(ManifestTest, ExtremeNumbersAreExact) {
  Manifest m = Example();
  m.name = {.step = std::numeric_limits<int64_t>::max(), .generation = std::numeric_limits<uint64_t>::max()};
  m.config_digest = 0;
  m.state_digest = std::numeric_limits<uint64_t>::max();
  m.time = 0x1.fffffffffffffp-3;
  m.validation_loss = std::numeric_limits<double>::denorm_min();
  auto parsed = ParseManifest(FormatManifest(m));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(*parsed == m);
  m.validation_loss = -2;
  parsed = ParseManifest(FormatManifest(m));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(*parsed == m);
  m.validation_loss.reset();
  parsed = ParseManifest(FormatManifest(m));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_FALSE(parsed->validation_loss.has_value());
}

TEST(ManifestTest, EveryBitOfEveryByteIsGuarded) {
  std::string text = FormatManifest(Example());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      ASSERT_TRUE(absl::IsDataLoss(ParseManifest(text).status())) << "byte " << i << " bit " << bit;
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
    }
  }
  ASSERT_TRUE(ParseManifest(text).ok());
}

TEST(ManifestTest, EveryTruncationAndExtensionIsFound) {
  const std::string text = FormatManifest(Example());
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_TRUE(absl::IsDataLoss(ParseManifest(text.substr(0, size)).status())) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(ParseManifest(text + "\n").status()));
  EXPECT_TRUE(absl::IsDataLoss(ParseManifest(" " + text).status()));
}

struct Violation {
  const char* from;
  std::string to;
  const char* message;  // part of it
};

TEST(ManifestTest, ViolationsAreRefusedByName) {
  const std::string file = absl::StrCat("{\"name\": \"shard-0-of-2.h5\", \"size\": ", (1ull << 45) + 1);
  const std::vector<Violation> violations = {
      {"\"format\": \"holdfast checkpoint\"", "\"format\": \"x\"", "format"},
      {"\"version\": 4", "\"version\": 0", "version: 0 is unknown"},
      {"\"version\": 4", "\"version\": 1", "'data_digest' where samples is expected"},
      {"\"version\": 4", "\"version\": 2", "'kernel_digest' where samples is expected"},
      {"\"version\": 4", "\"version\": 3", "'planes' where the end is expected"},
      {"\"version\": 4", "\"version\": 4.0", "version"},
      {"\"step\": 1000", "\"step\": -1", "step"},
      {"\"step\": 1000", "\"step\": 1e3", "step"},
      {"\"step\": 1000", "\"step\": 9223372036854775808", "step"},
      {"\"step\": 1000", "\"step\": 18446744073709551616", "step"},
      {"\"step\": 1000", "\"step\": \"1000\"", "step"},
      {"\"step\": 1000", "\"step\": null", "step"},
      {"\"step\": 1000", "\"step\": true", "step"},
      {"\"step\": 1000", "\"step\": [1000]", "step"},
      {"\"step\": 1000", "\"step\": {}", "step"},
      {"\"step\": 1000,\n  ", "", "'generation' where step is expected"},
      {"\"step\": 1000", "\"step\": 1000,\n  \"step\": 1000", "'step' where generation is expected"},
      {"\"samples\"", "\"Samples\"", "Samples"},
      {"\"00123456789abcde\"", "\"00123456789abcdE\"", "config_digest"},
      {"\"00123456789abcde\"", "\"0x123456789abcde\"", "config_digest"},
      {"\"00123456789abcde\"", "\"123456789abcde\"", "config_digest"},
      {"\"00123456789abcde\"", "1234", "config_digest"},
      {"\"world_size\": 2", "\"world_size\": 0", "world_size"},
      {"\"time\": ", "\"time\": 1e999, \"x\": ", "a number that is too large"},
      {"{\"name\": \"norm.weight\", \"shape\": [768]", "{\"name\": \"norm.weight\", \"shape\": []", "no shape"},
      {"[\"weight\",\"momentum\"]", "[]", "embedding.weight: planes: there are 0"},
      {"[\"weight\",\"momentum\"]", "[\"momentum\",\"weight\"]", "planes: the first is momentum"},
      {"[\"weight\",\"momentum\"]", "[\"weight\",\"a\",\"a\"]", "planes: a occurs twice"},
      {"[\"weight\",\"momentum\"]", "[\"weight\",\"a/b\"]", "planes: one cannot have this name"},
      {"[\"weight\",\"momentum\"]", "[\"weight\",1]", "tensors[0].planes"},
      {"[\"weight\",\"momentum\"]", "\"weight\"", "tensors[0].planes"},
      {"[\"weight\",\"momentum\"]", "[\"weight\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\"]", "too many planes"},
      {", \"planes\": [\"weight\",\"momentum\"]", "", "'planes' is missing"},
      {"\"shape\": [768]", "\"shape\": [0]", "tensors[1]"},
      {"\"shape\": [768]", "\"shape\": [-768]", "tensors[1].shape"},
      {"\"shape\": [768]", "\"shape\": [1,1,1,1,1]", "too many dimensions"},
      {"\"shape\": [768]", "\"shape\": [4294967296,4294967296,4294967296]", "too large"},
      {"\"shape\": [768]", "\"shape\": [1,9223372036854775807]", "too large"},
      {"\"shape\": [768]", "\"shape\": [16777217]", "too long"},
      {"\"shape\": [768]", "\"shape\": [281474976710656,1]", "too large all together"},
      {"\"shape\": [768]", "\"shape\": [[768]]", "tensors[1].shape"},
      {"\"norm.weight\"", "\"embedding.weight\"", "twice"},
      {"\"norm.weight\"", "\"\"", "tensors[1]"},
      {"\"norm.weight\"", "\"../norm\"", "tensors[1]"},
      {"\"norm.weight\"", "\"norm\\u0000\"", "tensors[1]"},
      {"\"norm.weight\"", "\"\\u00e9\"", "ASCII"},
      {"\"norm.weight\", \"shape\": [768]", "\"norm.weight\"", "'planes' where shape is expected"},
      {"shard-0-of-2.h5", "../shard-0-of-2.h5", "shards[0].data"},
      {"shard-0-of-2.h5", "a/b", "shards[0].data"},
      {"shard-0-of-2.h5", "/etc/passwd", "shards[0].data"},
      {"shard-0-of-2.h5", "..", "shards[0].data"},
      {"shard-0-of-2.h5", ".hidden", "shards[0].data"},
      {"shard-0-of-2.h5", "a\\u0000b", "shards[0].data"},
      {"shard-0-of-2.h5", std::string(201, 'a'), "shards[0].data"},
      {"shard-0-of-2.h5", "shard-1-of-2.h5", "twice"},
      {"shard-0-of-2.h5", "manifest.json", "twice"},
      {"shard-0-of-2.h5", "model.h5", "twice"},
      {file.c_str(), "{\"name\": \"shard-0-of-2.h5\", \"size\": 1125899906842625", "too large"},
      {"\"size\": 100", "\"size\": 1000000000", "shards[0].index"},
      {"\"digest\": \"0123456789abcdef0123456789abcdef\"", "\"digest\": \"0123\"", "shards[0].data"},
      {"\"chunks\": 3", "\"chunks\": 3, \"more\": 1", "more"},
      {"\"model\": ", "\"more\": 1,\n  \"model\": ", "'more' where model is expected"},
      {"\"tensors\": [", "\"tensors\": [[[[[[[[", "tensors"},
  };
  for (const Violation& violation : violations) {
    const auto parsed = ParseManifest(Edited(violation.from, violation.to));
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << violation.to << ": " << parsed.status();
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(violation.message)) << violation.to;
  }
}

TEST(ManifestTest, ThatOfALaterVersionIsNoDamage) {
  const absl::Status status = ParseManifest(Edited("\"version\": 4", "\"version\": 5")).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("version: 5 is unknown"));
}

TEST(ManifestTest, EveryFieldIsRequired) {
  const std::string body = BodyOf(Example());
  int fields = 0;
  for (size_t at = body.find("\n  \""); at != std::string::npos; at = body.find("\n  \"", at + 1)) {
    const size_t end = body.find(",\n  \"", at);
    const std::string without =
        end == std::string::npos ? body.substr(0, at - 1) : body.substr(0, at) + body.substr(end + 1);
    EXPECT_TRUE(absl::IsInvalidArgument(ParseManifest(ResealManifest(without)).status())) << without.substr(at, 30);
    ++fields;
  }
  EXPECT_EQ(fields, 18);
}

TEST(ManifestTest, WhatIsNotJsonIsRefused) {
  for (const std::string body :
       {"", "{", "[]", "null", "1", "{}", "{\"format\": \"holdfast checkpoint\"", "\xff\xfe", "//"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseManifest(ResealManifest(body)).status())) << body;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ParseManifest(ResealManifest(BodyOf(Example()) + "}, {")).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseManifest(ResealManifest(std::string(1'000'000, '['))).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseManifest(std::string(kMaxManifestBytes + 1, ' ')).status()));
}

TEST(ManifestTest, NoTensorsOrShardsIsNoCheckpoint) {
  Manifest m = Example();
  m.tensors.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(ParseManifest(FormatManifest(m)).status()));
  m = Example();
  m.shards.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(ParseManifest(FormatManifest(m)).status()));
}

TEST(CheckpointNameTest, HasOneSpelling) {
  const CheckpointName name{.step = 1000, .generation = 7};
  EXPECT_EQ(name.ToString(), "step-0000001000-g7");
  for (const CheckpointName& n :
       {name, CheckpointName{0, 0},
        CheckpointName{std::numeric_limits<int64_t>::max(), std::numeric_limits<uint64_t>::max()}}) {
    EXPECT_EQ(CheckpointName::Parse(n.ToString()), n);
  }
  for (const char* text :
       {"", "step-", "step-g7", "step-1000-g7", "step-0000001000", "step-0000001000-g", "step-0000001000-g07",
        "step-0000001000-g7 ", " step-0000001000-g7", "step-0000001000-g-7", "step-0000001000-g+7",
        "step--000001000-g7", "step-00000001000-g7", "step-9999999999999999999-g1",
        "step-0000001000-g99999999999999999999", "-g", "-gstep-", "step-0000001000-g7/", "Step-0000001000-g7"}) {
    EXPECT_FALSE(CheckpointName::Parse(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace holdfast
