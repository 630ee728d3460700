// Proves that Encode gives exactly the ids of Hugging Face's `tokenizers` (golden files, see
// tests/golden/make_tokenizer_golden.py), that encoding in pieces gives the ids of encoding at once, and that broken or
// foreign tokenizer.json files are refused by name.

#include "framework/data/tokenizer.h"

#include <future>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "framework/data/nfc.h"
#include "framework/data/tokenizer_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/framework/base/slower.h"
#include "tests/framework/data/token_test_files.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kGolden = SourceDir() + "/tests/framework/data/golden/";

std::unique_ptr<const Tokenizer> Open(const std::string& name) {
  auto tokenizer = OpenTokenizer(name);
  EXPECT_TRUE(tokenizer.ok()) << std::string(tokenizer.status().message());
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<const Tokenizer> tokenizer_ = Open(kGolden + "tokenizer_" + GetParam() + ".json");
  Json cases_ = Json::parse(ReadText(kGolden + "cases_" + GetParam() + ".json"));
};

TEST_P(Golden, SameIdsAndBack) {
  ASSERT_GT(cases_.size(), 100);
  for (const Json& one : cases_) {
    const auto text = one.at("text").get<std::string>();
    const std::vector<int32_t> ids = tokenizer_->Encode(text).value();
    EXPECT_EQ(ids, one.at("ids").get<std::vector<int32_t>>()) << one.at("text");
    EXPECT_EQ(tokenizer_->Decode(ids), text);
  }
}

// The text arrives in pieces of random size; what EncodeBeginning leaves goes in front of the next piece.
std::vector<int32_t> EncodeInPieces(const Tokenizer& tokenizer, std::string_view text, std::mt19937& random) {
  std::vector<int32_t> tokens;
  std::string buffer;
  while (!text.empty()) {
    const size_t piece = std::min<size_t>(text.size(), 1 + random() % 9);
    buffer += text.substr(0, piece);
    text.remove_prefix(piece);
    buffer.erase(0, tokenizer.EncodeBeginning(buffer, tokens).value());
  }
  const std::vector<int32_t> end = tokenizer.Encode(buffer).value();
  tokens.insert(tokens.end(), end.begin(), end.end());
  return tokens;
}

TEST_P(Golden, PiecesGiveTheIdsOfTheWhole) {
  std::mt19937 random(1);
  std::string all;
  for (const Json& one : cases_) all += one.at("text").get<std::string>();
  all += "\xff\xfe broken \xe4\xb8 \xf0\x9f\x98\x80 \xc3";
  const std::vector<int32_t> whole = tokenizer_->Encode(all).value();
  for (int round = 0; round < 5; ++round) ASSERT_EQ(EncodeInPieces(*tokenizer_, all, random), whole) << round;
  for (const Json& one : cases_) {
    const auto text = one.at("text").get<std::string>();
    ASSERT_EQ(EncodeInPieces(*tokenizer_, text, random), one.at("ids").get<std::vector<int32_t>>()) << one.at("text");
  }
}

TEST_P(Golden, PiecesDoNotPileUp) {
  std::vector<int32_t> tokens;
  const std::string text = "some words, more words\n\nand <| 12345 again and again ";
  EXPECT_GT(tokenizer_->EncodeBeginning(text, tokens).value(), text.size() - 8);
}

TEST_P(Golden, BrokenUtf8BecomesItsBytes) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i)
      text.push_back(static_cast<char>(random() % 3 == 0 ? random() % 256 : "ab \n\xe4\xb8\xad"[random() % 7]));
    ASSERT_EQ(tokenizer_->Decode(tokenizer_->Encode(text).value()), text);
    ASSERT_EQ(EncodeInPieces(*tokenizer_, text, random), tokenizer_->Encode(text).value());
  }
  // A broken byte stands alone: it changes nothing around it.
  std::vector<int32_t> expected = tokenizer_->Encode("the step").value();
  expected.push_back(tokenizer_->Encode("\xff").value()[0]);
  expected.push_back(expected.back());
  const std::vector<int32_t> rest = tokenizer_->Encode("of a run").value();
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(tokenizer_->Encode("the step\xff\xffof a run").value(), expected);
}

TEST_P(Golden, ManyThreadsGetTheSame) {
  std::vector<std::future<bool>> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.push_back(std::async(std::launch::async, [&] {
      for (const Json& one : cases_) {
        if (tokenizer_->Encode(one.at("text").get<std::string>()).value() != one.at("ids")) return false;
      }
      return true;
    }));
  }
  for (auto& thread : threads) EXPECT_TRUE(thread.get());
}

TEST_P(Golden, EndOfTextAndUnknownIds) {
  ASSERT_TRUE(tokenizer_->end_of_text().has_value());
  EXPECT_EQ(tokenizer_->Decode({*tokenizer_->end_of_text()}), "<|endoftext|>");
  const std::string begin = GetParam() == "gpt_oss_style" ? "<|startoftext|>" : "<|endoftext|>";
  EXPECT_EQ(tokenizer_->Decode({tokenizer_->begin_of_text().value()}), begin);
  EXPECT_EQ(tokenizer_->Decode({-1, static_cast<int32_t>(tokenizer_->vocab_size())}), "\xef\xbf\xbd\xef\xbf\xbd");
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden, ::testing::Values("gpt2_style", "llama3_style", "gpt_oss_style"));

/// Qwen's normalizer before it: letters with marks in parts, in another order, Hangul in parts.
TEST(NfcTokenizer, HasTheIdsOfTheLibraryAlsoInPieces) {
  Json root = Json::parse(ReadText(kGolden + "tokenizer_llama3_style.json"));
  root["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = MakeTokenizer(ParseTokenizerJson(root.dump()).value());
  const auto plain = Open(kGolden + "tokenizer_llama3_style.json");
  std::mt19937 random(4);
  int changed = 0;
  for (const Json& one : Json::parse(ReadText(kGolden + "cases_nfc.json"))) {
    const auto text = one.at("text").get<std::string>();
    const auto ids = one.at("ids").get<std::vector<int32_t>>();
    const auto [tokens, ranges] = tokenizer->EncodeWithRanges(text).value();
    EXPECT_EQ(tokens, ids) << one.at("text");
    EXPECT_EQ(tokenizer->Encode(text).value(), ids) << one.at("text");
    EXPECT_EQ(EncodeInPieces(*tokenizer, text, random), ids) << one.at("text");
    changed += plain->Encode(text).value() != ids ? 1 : 0;
    size_t end = 0;  // nothing of the text is left out, and nothing before it
    for (const ByteRange& range : ranges) {
      EXPECT_LE(range.begin, end) << one.at("text");
      EXPECT_GE(range.end, end) << one.at("text");
      end = range.end;
    }
    EXPECT_EQ(end, text.size()) << one.at("text");
  }
  EXPECT_GT(changed, 100);
}

class NfcPieces : public ::testing::Test {
 protected:
  NfcPieces() {
    Json root = Json::parse(ReadText(kGolden + "tokenizer_llama3_style.json"));
    root["normalizer"] = {{"type", "NFC"}};
    tokenizer_ = MakeTokenizer(ParseTokenizerJson(root.dump()).value());
  }
  std::unique_ptr<const Tokenizer> tokenizer_;
};

// The expression takes 's for a word that no text can change; a mark can.
TEST_F(NfcPieces, AMarkBelongsToTheLastCharacterOfThePieceBefore) {
  for (const std::string end : {"cd's", "cd't", "cd'd", "12"}) {
    for (const std::string rest : {"\xcc\xa3 x", "\xcc\xa3", "\xcc\xa3\xcc\x87s", "x"}) {  // U+0323, U+0307
      std::vector<int32_t> tokens;
      std::string buffer = "some text, " + end;
      buffer.erase(0, tokenizer_->EncodeBeginning(buffer, tokens).value());
      const std::vector<int32_t> after = tokenizer_->Encode(buffer + rest).value();
      tokens.insert(tokens.end(), after.begin(), after.end());
      EXPECT_EQ(tokens, tokenizer_->Encode("some text, " + end + rest).value()) << end << rest;
    }
  }
}

TEST_F(NfcPieces, ACharacterInPartsDoesNotMakeTheTextPileUp) {
  const std::string composed = "e\xcc\x81 ", marks = "x\xcc\x87\xcc\xa3 ";  // the latter in the wrong order
  std::string words, many;
  for (int i = 0; i < 1000; ++i) {
    words += "more words ";
    many += marks;
  }
  for (const std::string& text : {composed + words, words + composed, words + marks, many, many + composed}) {
    std::vector<int32_t> tokens;
    EXPECT_GT(tokenizer_->EncodeBeginning(text, tokens).value(), text.size() - 20);
  }
  EXPECT_EQ(NfcFinished("\xe5\xad\xa6\xe5\xad\xa6"), 3u) << "nor do texts without ASCII: a Han character begins anew";
  EXPECT_EQ(NfcFinished("ab\xcc\x81\xcc"), 1u);
}

// Of whatever composes, changes places, stands alone, or is not UTF-8.
TEST_F(NfcPieces, GiveTheIdsOfTheWhole) {
  const std::string parts[] = {"'s",
                               "'t",
                               " cd",
                               "e",
                               "S",
                               " ",
                               "\n",
                               "12",
                               "!",
                               "<|endoftext|>",
                               "<|endof",
                               "\xcc\x81",
                               "\xcc\xa3",
                               "\xcc\x87",
                               "\xcd\x84",
                               "\xc3\xa9",
                               "\xe1\xb8\x8d",  // marks, é, d with a dot below
                               "\xe1\x84\x80",
                               "\xe1\x85\xa1",
                               "\xe1\x86\xa8",
                               "\xea\xb0\x80",  // Hangul in parts
                               "\xe3\x81\x8b",
                               "\xe3\x82\x99",
                               "\xe5\xad\xa6",
                               "\xef\xa4\x80",  // ka, its mark, Han, its double
                               "\xd7\xa9",
                               "\xd6\xbc",
                               "\xd7\x81",
                               "\xe0\xa7\x87",
                               "\xe0\xa6\xbe",
                               "\xf0\x9f\x98\x80",  // Hebrew, Bengali
                               "\xff",
                               "\xcc",
                               "\xe3\x82"};
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += parts[random() % std::size(parts)];
    ASSERT_EQ(EncodeInPieces(*tokenizer_, text, random), tokenizer_->Encode(text).value())
        << "round " << round << ": " << absl::CHexEscape(text);
  }
}

TEST(NfcTokenizer, SaysWhereAChangedPieceWas) {
  const NfcText text("ab e\xcc\x81\xcc\xa3z");  // e with two marks, whose order changes
  EXPECT_EQ(text.InOriginal(2, false), 2u);
  const size_t begin = text.text().find('\xe1'), end = text.text().find('z');
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(text.InOriginal(begin, false), 3u);
  EXPECT_EQ(text.InOriginal(begin + 1, false), 3u);
  EXPECT_EQ(text.InOriginal(begin + 1, true), 8u);
  EXPECT_EQ(text.InOriginal(end, true), 8u);
  EXPECT_EQ(text.InOriginal(text.text().size(), true), 9u);
  EXPECT_TRUE(text.IsInOriginal(begin) && text.IsInOriginal(end) && !text.IsInOriginal(begin + 1));
}

/// BPE over characters.
class MetaspaceGolden : public Golden {};

// Whole characters of the text, as `tokenizers` counts.
ByteRange WholeCharacters(const std::string& text, ByteRange range) {
  const auto is_inside = [&](size_t at) { return at < text.size() && (text[at] & 0xc0) == 0x80; };
  while (is_inside(range.begin)) --range.begin;
  while (is_inside(range.end)) ++range.end;
  return range;
}

TEST_P(MetaspaceGolden, SameIdsAndPlacesAndBack) {
  ASSERT_GT(cases_.size(), 100);
  for (const Json& one : cases_) {
    const auto text = one.at("text").get<std::string>();
    const auto [ids, ranges] = tokenizer_->EncodeWithRanges(text).value();
    EXPECT_EQ(ids, one.at("ids").get<std::vector<int32_t>>()) << one.at("text");
    EXPECT_EQ(tokenizer_->Encode(text).value(), ids) << one.at("text");
    Json places = Json::array();
    for (const ByteRange& range : ranges) {
      const ByteRange whole = WholeCharacters(text, range);
      places.push_back({whole.begin, whole.end});
    }
    EXPECT_EQ(places, one.at("ranges")) << one.at("text");
    std::string decoded = tokenizer_->Decode(ids);
    if (GetParam() != "gemma_style" && decoded.starts_with(' ')) decoded.erase(0, 1);  // as its decoder does
    EXPECT_EQ(decoded, one.at("decoded").get<std::string>()) << one.at("text");
  }
}

TEST_P(MetaspaceGolden, BrokenUtf8BecomesItsBytes) {
  std::mt19937 random(5);
  for (int round = 0; round < 1000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i)
      text.push_back(static_cast<char>(random() % 3 == 0 ? random() % 256 : "ab \n\xe4\xb8\xad"[random() % 7]));
    std::string decoded = tokenizer_->Decode(tokenizer_->Encode(text).value());
    if (GetParam() == "llama2_style" || (GetParam() != "gemma_style" && decoded.size() > text.size())) {
      decoded.erase(0, 1);
    }
    ASSERT_EQ(decoded, text);
    const auto [ids, ranges] = tokenizer_->EncodeWithRanges(text).value();
    ASSERT_EQ(ranges.back().end, text.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, MetaspaceGolden,
                         ::testing::Values("llama2_style", "mistral_style", "gemma_style", "split_style"));

TEST_P(Golden, PlacesCoverTheText) {
  for (const Json& one : cases_) {
    const auto text = one.at("text").get<std::string>();
    const auto [ids, ranges] = tokenizer_->EncodeWithRanges(text).value();
    EXPECT_EQ(ids, tokenizer_->Encode(text).value());
    size_t at = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(ranges[i].begin, at);
      at = ranges[i].end;
      ASSERT_EQ(text.substr(ranges[i].begin, at - ranges[i].begin), tokenizer_->Decode({ids[i]}));
    }
    EXPECT_EQ(at, text.size());
  }
}

TEST(Tokenizer, LongWordsTakeNoLongTime) {
  const auto tokenizer = Open(kGolden + "tokenizer_gpt2_style.json");
  std::string word(3'000'000 / kSlower, 'a');
  for (size_t i = 0; i < word.size(); i += 3) word[i] = 't';
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(word).value()), word);  // minutes if it were quadratic
  const std::string spaces(word.size(), ' ');
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(spaces).value()), spaces);
}

TEST(Tokenizer, Bytes) {
  const auto tokenizer = Open("bytes");
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_FALSE(tokenizer->end_of_text().has_value());
  EXPECT_EQ(tokenizer->Encode("a\xff\n").value(), (std::vector<int32_t>{'a', 255, '\n'}));
  EXPECT_EQ(tokenizer->Decode({104, 105, 256}), "hi\xef\xbf\xbd");
}

TEST(Tokenizer, BytesAsAFile) {
  auto spec = ParseTokenizerJson(ByteTokenizerJson());
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  const auto tokenizer = MakeTokenizer(*std::move(spec));
  std::string text = "it's 12  \n\xe5\xad\xa6 ";
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  EXPECT_EQ(tokenizer->Encode(text).value(), Open("bytes")->Encode(text).value());
  EXPECT_EQ(tokenizer->vocab_size(), 256);
}

TEST(Tokenizer, PrefixSpace) {
  Json root = Json::parse(ReadText(kGolden + "tokenizer_gpt2_style.json"));
  root["pre_tokenizer"]["add_prefix_space"] = true;
  auto spec = ParseTokenizerJson(root.dump());
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  const auto prefixing = MakeTokenizer(*std::move(spec));
  const auto plain = Open(kGolden + "tokenizer_gpt2_style.json");
  EXPECT_EQ(prefixing->Encode("the step").value(), plain->Encode(" the step").value());
  const std::string text = "the<|endoftext|>b";
  const auto [ids, ranges] = prefixing->EncodeWithRanges(text).value();
  for (size_t i = 0; i < ids.size(); ++i) {  // the space in front is not in the text
    const std::string place = text.substr(ranges[i].begin, ranges[i].end - ranges[i].begin);
    EXPECT_TRUE(prefixing->Decode({ids[i]}) == place || prefixing->Decode({ids[i]}) == " " + place ||
                prefixing->Decode({ids[i]}) == " ");
  }
  EXPECT_EQ(ranges.back().end, text.size());
  EXPECT_EQ(prefixing->Encode(" the step").value(), plain->Encode(" the step").value());
  EXPECT_EQ(prefixing->Encode("a<|endoftext|>b").value(), plain->Encode(" a<|endoftext|> b").value());
  EXPECT_TRUE(prefixing->Encode("").value().empty());
  std::mt19937 random(3);
  EXPECT_EQ(EncodeInPieces(*prefixing, "the step the step", random), plain->Encode(" the step the step").value());
}

/// `change` to a good file, and then the tokenizer.
std::unique_ptr<const Tokenizer> Changed(const std::string& pointer, const Json& value) {
  Json root = Json::parse(ReadText(kGolden + "tokenizer_llama3_style.json"));
  root[Json::json_pointer(pointer)] = value;
  auto spec = ParseTokenizerJson(root.dump());
  EXPECT_TRUE(spec.ok()) << Message(spec.status());
  return MakeTokenizer(*std::move(spec));
}

TEST(Tokenizer, AnExpressionThatPcre2GivesUpOnIsAnError) {
  const auto hostile = Changed("/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a+)+\\z");
  EXPECT_TRUE(hostile->Encode("aaaa").ok());
  const std::string text = std::string(64, 'a') + "b";
  const auto whole = hostile->Encode("b" + text);
  EXPECT_EQ(whole.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(whole.status()), AllOf(HasSubstr("(a+)+\\z"), HasSubstr("match limit")));
  std::vector<int32_t> tokens;
  EXPECT_EQ(hostile->EncodeBeginning(text, tokens).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Tokenizer, AnchorsAreCharactersInAClassOrAfterABackslash) {
  const auto tokenizer = Changed("/pre_tokenizer/pretokenizers/0/pattern/Regex", R"([^a^$]+|\^|\$|a[$^]?)");
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a$^b\na").value()), "a$^b\na");
}

TEST(Tokenizer, ManyAddedTokensTakeNoLongTime) {
  constexpr int kUsed = 100'000 / kSlower;
  Json added = Json::array();
  for (int i = 0; i < 2 * kUsed; ++i) {
    added.push_back({{"id", 5000 + i}, {"content", absl::StrCat("<|added_", i, "|>")}, {"special", true}});
  }
  const auto tokenizer = Changed("/added_tokens", added);  // minutes if they were sorted after each
  std::string text;
  for (int i = 0; i < kUsed; ++i) absl::StrAppend(&text, "<<|added_", i, "|>");  // minutes if each were looked at
  const std::vector<int32_t> tokens = tokenizer->Encode(text).value();
  ASSERT_EQ(tokens.size(), 2 * kUsed);
  for (int i = 0; i < kUsed; ++i) ASSERT_EQ(tokens[2 * i + 1], 5000 + i);
}

TEST(Tokenizer, OfAddedTokensTheLongestIsTaken) {
  Json added = Json::array();
  for (const std::string content : {"<b", "<bcd", "<bc", "<bcde", "<|z"}) {
    added.push_back({{"id", 5000 + added.size()}, {"content", content}});
  }
  const auto tokenizer = Changed("/added_tokens", added);
  EXPECT_EQ(tokenizer->Encode("<bcd<|z<bcde<b<bc<bcd").value(),
            (std::vector<int32_t>{5001, 5004, 5003, 5000, 5002, 5001}));
  std::mt19937 random(4);
  for (const std::string text : {"<bcd", "<bcdf", "<<bcde<|z<", "<bcd<bcde"}) {
    EXPECT_EQ(EncodeInPieces(*tokenizer, text, random), tokenizer->Encode(text).value()) << text;
  }
}

// One change to a good file, and what the error must name.
struct Broken {
  const char* pointer;  // JSON pointer
  const char* value;
  absl::StatusCode code;
  const char* says;
};

class BrokenJson : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenJson, IsRefusedByName) {
  Json root = Json::parse(ReadText(kGolden + "tokenizer_llama3_style.json"));
  root[Json::json_pointer(GetParam().pointer)] = Json::parse(GetParam().value);
  const auto spec = ParseTokenizerJson(root.dump());
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), GetParam().code) << Message(spec.status());
  EXPECT_THAT(Message(spec.status()), HasSubstr(GetParam().says));
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
INSTANTIATE_TEST_SUITE_P(
    Tokenizers, BrokenJson,
    ::testing::Values(Broken{"/model", "null", kInvalid, "model"},
                      Broken{"/model/type", "\"WordPiece\"", kUnimplemented, "WordPiece"},
                      Broken{"/model/type", "7", kInvalid, "model"}, Broken{"/model/vocab", "[]", kInvalid, "vocab"},
                      Broken{"/model/vocab", "{\"a\": 0}", kUnimplemented, "byte 0"},
                      Broken{"/model/vocab/a", "-1", kInvalid, "\"a\""},
                      Broken{"/model/vocab/a", "4194304", kInvalid, "\"a\""},
                      Broken{"/model/vocab/a", "18446744073709551615", kInvalid, "\"a\""},
                      Broken{"/model/vocab/a", "1.5", kInvalid, "\"a\""},
                      Broken{"/model/vocab/a", "5", kInvalid, "two tokens"},
                      Broken{"/model/merges/3", "\"ab\"", kInvalid, "merge 3"},
                      Broken{"/model/merges/3", "[\"a\"]", kInvalid, "merge 3"},
                      Broken{"/model/merges/3", "\"a b c\"", kInvalid, "merge 3"},
                      Broken{"/model/merges/3", "[\"a\", \"qqqq\"]", kInvalid, "merge 3"},
                      Broken{"/model/dropout", "0.1", kUnimplemented, "dropout"},
                      Broken{"/model/byte_fallback", "true", kUnimplemented, "\u2581"},
                      Broken{"/model/end_of_word_suffix", "\"</w>\"", kUnimplemented, "end_of_word_suffix"},
                      Broken{"/normalizer", "{\"type\": \"NFKC\"}", kUnimplemented, "NFKC"},
                      Broken{"/decoder", "{\"type\": \"Metaspace\"}", kUnimplemented, "Metaspace"},
                      Broken{"/pre_tokenizer", "null", kInvalid, "pre_tokenizer"},
                      Broken{"/pre_tokenizer", "{\"type\": \"Whitespace\"}", kUnimplemented, "ByteLevel"},
                      Broken{"/pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", kUnimplemented, "Removed"},
                      Broken{"/pre_tokenizer/pretokenizers/0/invert", "true", kUnimplemented, "invert"},
                      Broken{"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(a\"", kInvalid, "(a"},
                      Broken{"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\\\\w+\"", kUnimplemented, "\\w"},
                      Broken{"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"[a[bc]]\"", kUnimplemented, "nested"},
                      Broken{"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"a{,3}\"", kUnimplemented, "{,n}"},
                      Broken{"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"^a|b\"", kUnimplemented, "^a|b: ^ ("},
                      Broken{"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"[$]a$\"", kUnimplemented, "$: $ ("},
                      Broken{"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(?i)b\"", kUnimplemented, "(?i) ("},
                      Broken{"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(?m:.)\"", kUnimplemented, "(?m: ("},
                      Broken{"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(*UCP)\"", kUnimplemented, "(*UC ("},
                      Broken{"/added_tokens/0/id", "3", kInvalid, "two tokens"},
                      Broken{"/added_tokens/0/content", "7", kInvalid, "added_tokens"},
                      Broken{"/added_tokens/0", "{}", kInvalid, "added_tokens: "},
                      Broken{"/added_tokens", "7", kInvalid, "added_tokens: "}));

// The same, of a file with BPE over characters.
class BrokenMetaspace : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenMetaspace, IsRefusedByName) {
  Json root = Json::parse(ReadText(kGolden + "tokenizer_llama2_style.json"));
  root[Json::json_pointer(GetParam().pointer)] = Json::parse(GetParam().value);
  const auto spec = ParseTokenizerJson(root.dump());
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), GetParam().code) << Message(spec.status());
  EXPECT_THAT(Message(spec.status()), HasSubstr(GetParam().says));
}

constexpr char kMetaspace[] = R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"})";
INSTANTIATE_TEST_SUITE_P(
    Tokenizers, BrokenMetaspace,
    ::testing::Values(
        Broken{"/model/byte_fallback", "false", kUnimplemented, "a vocabulary without a token for byte 0"},
        Broken{"/model/type", "\"Unigram\"", kUnimplemented, "model Unigram"},
        Broken{"/model/vocab", "{\"\u2581\": 0, \"<0x00>\": 1}", kUnimplemented, "byte 1"},
        Broken{"/model/merges/0", R"(["<0x41>", "<0x42>"])", kInvalid, "merge 0"},
        Broken{"/normalizer", "null", kUnimplemented, "byte_fallback without a sign for spaces"},
        Broken{"/normalizer", R"({"type": "Prepend", "prepend": "\u2581"})", kUnimplemented, "Prepend"},
        Broken{"/normalizer/normalizers/0", R"({"type": "NFKC"})", kUnimplemented, "normalizer: NFKC is not supported"},
        Broken{"/normalizer/normalizers/0/prepend", "\"_\"", kUnimplemented, "Prepend"},
        Broken{"/normalizer/normalizers/1/content", "\"_\"", kUnimplemented, "Replace"},
        Broken{"/pre_tokenizer", kMetaspace, kUnimplemented, "pre_tokenizer: Metaspace"},
        Broken{"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": " "}})", kUnimplemented, "Split"},
        Broken{"/decoder/decoders/0", R"({"type": "WordPiece"})", kUnimplemented, "decoder: WordPiece"},
        Broken{"/added_tokens/8/content", "\"\\n\"", kUnimplemented, "rstrip of \"<|right|>\""}));

TEST(Tokenizer, OlderMetaspacesSayOtherwiseWhatIsPutInFront) {
  const auto opened = [](const Json& metaspace) {
    Json root = Json::parse(ReadText(kGolden + "tokenizer_split_style.json"));
    root["pre_tokenizer"] = metaspace;
    return MakeTokenizer(ParseTokenizerJson(root.dump()).value());
  };
  const Json plain = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
  Json never = plain;
  never["add_prefix_space"] = false;
  EXPECT_EQ(opened(plain)->Encode("the").value(), opened(never)->Encode(" the").value());
  EXPECT_NE(opened(plain)->Encode("the").value(), opened(never)->Encode("the").value());
}

// A model whose merges join words is given the text as a whole.
TEST(Tokenizer, MergesAcrossSpaces) {
  Json root = Json::parse(ReadText(kGolden + "tokenizer_mistral_style.json"));
  root["model"]["vocab"]["e\u2581"] = 2000;
  root["model"]["vocab"]["e\u2581s"] = 2001;
  const Json merges = Json::array({Json::array({"e", "\u2581"}), Json::array({"e\u2581", "s"})});
  root["model"]["merges"] = merges;
  const auto tokenizer = MakeTokenizer(ParseTokenizerJson(root.dump()).value());
  EXPECT_EQ(tokenizer->Encode("e se s e").value(),
            (std::vector<int32_t>{tokenizer->Encode(" ").value()[0], 2001, 2001, tokenizer->Encode(" ").value()[0],
                                  tokenizer->Encode(" e").value()[1]}));
  root["model"]["ignore_merges"] = true;
  const auto whole = MakeTokenizer(ParseTokenizerJson(root.dump()).value());
  const auto vocab = root["model"]["vocab"];
  EXPECT_EQ(whole->Encode("the").value(), (std::vector<int32_t>{vocab.at("\u2581the")}));
}

TEST(Tokenizer, LongAddedTokensAreRefused) {
  Json root = Json::parse(ReadText(kGolden + "tokenizer_llama3_style.json"));
  root["added_tokens"][0]["content"] = std::string(5000, 'x');
  EXPECT_THAT(Message(ParseTokenizerJson(root.dump()).status()), HasSubstr("5000 bytes"));
}

TEST(Tokenizer, BrokenFiles) {
  const std::string good = ReadText(kGolden + "tokenizer_gpt2_style.json");
  EXPECT_EQ(ParseTokenizerJson("").status().code(), kInvalid);
  EXPECT_EQ(ParseTokenizerJson("[]").status().code(), kInvalid);
  for (size_t length = 0; length < good.size() - 1; length += 997) {
    EXPECT_EQ(ParseTokenizerJson(good.substr(0, length)).status().code(), kInvalid) << length;
  }
  EXPECT_THAT(Message(ParseTokenizerJson(std::string(1'000'000, '[')).status()), HasSubstr("nested"));
  const auto missing = OpenTokenizer("/nonexistent/tokenizer.json");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(missing.status()), HasSubstr("/nonexistent/tokenizer.json"));
  const auto empty = OpenTokenizer(kGolden);
  EXPECT_EQ(empty.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(empty.status()), HasSubstr("/tokenizer.json"));
}

TEST(Tokenizer, MayBeNamedByItsDirectory) {
  const std::string directory = SourceDir() + "/tests/framework/chat/golden/deepseek";
  const auto of_directory = OpenTokenizer(directory), of_file = OpenTokenizer(directory + "/tokenizer.json");
  ASSERT_TRUE(of_directory.ok() && of_file.ok()) << of_directory.status();
  EXPECT_EQ((*of_directory)->Encode("a text").value(), (*of_file)->Encode("a text").value());
  const auto end = (*of_file)->end_of_text();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ((*of_file)->Decode({*end}), "<｜end▁of▁sentence｜>");
}

// It has 1,000 tokens and five that were added.
TEST(Tokenizer, OnlyAddedTokensMayBeBeyondAVocabulary) {
  const auto tokenizer = Open(kGolden + "tokenizer_gpt2_style.json");
  const auto llama = Open(kGolden + "tokenizer_llama2_style.json");
  EXPECT_LT(llama->base_vocab_size(), llama->vocab_size());
  EXPECT_EQ(tokenizer->base_vocab_size(), 1000);
  EXPECT_TRUE(CheckVocabulary(*tokenizer, "its.json", 1000).ok());
  const std::string last = tokenizer->Decode({999});
  EXPECT_THAT(Message(CheckVocabulary(*tokenizer, "its.json", 999)),
              HasSubstr("the tokenizer its.json has 1005 tokens, model.vocab_size is only 999: from \"" + last));
}

TEST(Tokenizer, ATextWithATokenBeyondAVocabularyIsRefused) {
  const auto tokenizer = Open(kGolden + "tokenizer_gpt2_style.json");
  const std::vector<int32_t> tokens = tokenizer->Encode("some added text").value();
  EXPECT_TRUE(CheckTokens(*tokenizer, tokens, 1004).ok());
  EXPECT_THAT(Message(CheckTokens(*tokenizer, tokens, 1003)),
              HasSubstr("the text has token 1003, \"added\", for which the model has no embedding"));
}

// Its vocabulary has <s> and </s>, too, which are tags of HTML there.
TEST(Tokenizer, GemmasTextsBeginAndEndWithItsOwnTokens) {
  const auto gemma = Open(SourceDir() + "/tests/framework/chat/golden/gemma");
  ASSERT_TRUE(gemma->end_of_text().has_value() && gemma->begin_of_text().has_value());
  EXPECT_EQ(gemma->Decode({*gemma->end_of_text()}), "<eos>");
  EXPECT_EQ(gemma->Decode({*gemma->begin_of_text()}), "<bos>");
}

// As transformers 4.57 and 5.24 have it: special_tokens_map.json comes first, but does not count beside an
// added_tokens_decoder.
TEST(Tokenizer, ItsEndOfTextIsNamedBesideIt) {
  const TemporaryDirectory directory;
  const std::string file = directory / "tokenizer.json";
  Json root = Json::parse(ReadText(kGolden + "tokenizer_gpt2_style.json"));
  for (Json& added : root["added_tokens"]) {
    if (added["content"] == "<|endoftext|>") added["content"] = "<|stop|>";
  }
  WriteText(file, root.dump());
  const auto end = [&](const std::string& config, const std::string& map) -> std::string {
    WriteText(directory / "tokenizer_config.json", config);
    WriteText(directory / "special_tokens_map.json", map);
    const auto tokenizer = Open(directory / "");
    if (tokenizer == nullptr) return "not opened";
    return tokenizer->end_of_text().has_value() ? tokenizer->Decode({*tokenizer->end_of_text()}) : "none";
  };
  EXPECT_EQ(end("{}", "{}"), "none");
  EXPECT_EQ(end(R"({"eos_token": "<|stop|>"})", "{}"), "<|stop|>");
  EXPECT_EQ(end(R"({"eos_token": {"content": "<|stop|>", "special": true}})", "{}"), "<|stop|>");
  const std::string pad = R"({"eos_token": "<|pad|>"})", stop = R"({"eos_token": "<|stop|>"})";
  EXPECT_EQ(end(R"({"eos_token": null})", stop), "<|stop|>");
  EXPECT_EQ(end(pad, stop), "<|stop|>");
  EXPECT_EQ(end(pad, R"({"eos_token": null})"), "none");
  EXPECT_EQ(end(R"({"eos_token": "<|pad|>", "added_tokens_decoder": {}})", stop), "<|pad|>");
  EXPECT_EQ(end(R"({"added_tokens_decoder": {}})", stop), "none");
  for (const char* none :
       {R"({"eos_token": ""})", R"({"eos_token": 3})", R"({"bos_token": "<|stop|>"})", R"([1])", "{", ""}) {
    EXPECT_EQ(end(none, "{}"), "none") << none;
  }
  EXPECT_FALSE(Open(file)->begin_of_text().has_value());
  EXPECT_EQ(NoEndOfText("bytes"), "the tokenizer bytes has no end of text");
  EXPECT_THAT(NoEndOfText(file), HasSubstr("name no eos_token that it has"));
}

// Ids and tokens are those of transformers 4.57 and 5.24 with the same files.
TEST(Tokenizer, TokensThatItsSettingsAddAreFound) {
  const TemporaryDirectory directory;
  WriteText(directory / "tokenizer.json", ReadText(kGolden + "tokenizer_gpt2_style.json"));
  const auto tokenizer = Open(directory / "");
  WriteText(directory / "tokenizer_config.json", R"({"added_tokens_decoder": {
      "10": {"content": "<|ten|>", "special": true},
      "7": {"content": "<|seven|>", "lstrip": false, "normalized": false, "special": true},
      "3": {"content": "in", "normalized": false},
      "4": {"content": "<|endoftext|>", "lstrip": true, "normalized": false, "special": true}}})");
  const auto adding = Open(directory / "");
  ASSERT_TRUE(tokenizer != nullptr && adding != nullptr);
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(tokenizer->vocab_size(), 1005);
  EXPECT_EQ(adding->vocab_size(), 1007);
  EXPECT_EQ(adding->Encode("x<|ten|>y<|seven|>").value(), (Ids{87, 1006, 88, 1005})) << "in the order of numbers";
  EXPECT_EQ(adding->Decode({1005, 1006}), "<|seven|><|ten|>");
  EXPECT_EQ(tokenizer->Encode("going").value(), (Ids{70, 78, 747}));
  EXPECT_EQ(adding->Encode("going").value(), (Ids{70, 78, 312, 70})) << "a word of the vocabulary keeps its id";
  EXPECT_EQ(tokenizer->Encode("a  <|endoftext|>b").value(), (Ids{64, 220, 220, 1000, 65}));
  EXPECT_EQ(adding->Encode("a  <|endoftext|>b").value(), (Ids{64, 1000, 65})) << "found as the settings say";
  for (const char* broken : {R"({"x": {"content": "a"}})", R"({"5": {}})", R"({"5": 3})", "3"}) {
    WriteText(directory / "tokenizer_config.json", absl::StrCat(R"({"added_tokens_decoder": )", broken, "}"));
    const absl::Status refused = OpenTokenizer(directory / "").status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << broken;
    EXPECT_THAT(Message(refused), HasSubstr("added_tokens_decoder of tokenizer_config.json")) << broken;
  }
}

// Tokens are those of transformers 5.24 with the same files.
TEST(Tokenizer, TokensOfAnOlderFileAreFound) {
  const TemporaryDirectory directory;
  WriteText(directory / "tokenizer.json", ReadText(kGolden + "tokenizer_gpt2_style.json"));
  const auto open = [&](const std::string& added, const std::string& config) {
    WriteText(directory / "added_tokens.json", added);
    WriteText(directory / "tokenizer_config.json", config);
    return OpenTokenizer(directory / "");
  };
  const auto encode = [&](const std::string& added, const std::string& config = "{}") -> std::vector<int32_t> {
    const auto tokenizer = open(added, config);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? (*tokenizer)->Encode("a <x> b<y>c").value() : std::vector<int32_t>();
  };
  using Ids = std::vector<int32_t>;
  const Ids plain = {64, 641, 87, 29, 220, 65, 27, 88, 29, 66}, x = {64, 220, 1005, 220, 65, 27, 88, 29, 66};
  EXPECT_EQ(encode("{}"), plain);
  EXPECT_EQ(encode(R"({"<x>": 1005})"), x);
  EXPECT_EQ(encode(R"({"<x>": 1005})", R"({"eos_token": "<x>"})"), x) << "which was refused: nobody had it";
  EXPECT_EQ(encode(R"({"<y>": 1006, "<x>": 1005})"), (Ids{64, 220, 1005, 220, 65, 1006, 66}));
  EXPECT_EQ(encode(R"({"<x>": 7})", R"({"added_tokens_decoder": {}})"), plain) << "does not count then";
  EXPECT_EQ(encode(R"({"<|endoftext|>": 1000, "<x>": 1005})"), x);
  const auto error = [&](const std::string& added) { return Message(open(added, "{}").status()); };
  for (const char* other : {R"({"<x>": 1006})", R"({"<x>": 3})", R"({"<y>": 1005, "<x>": 1007})"}) {
    EXPECT_THAT(error(other), HasSubstr("added_tokens.json: \"<x>\" has id ")) << other;
  }
  EXPECT_THAT(error(R"({"<x>": 1000})"), HasSubstr(R"("<x>" has id 1000, but 1005 with tokenizer.json)"));
  EXPECT_THAT(error(R"({"<|endoftext|>": 1005})"), HasSubstr(R"("<|endoftext|>" has id 1005, but 1000 with)"));
  EXPECT_THAT(error(R"({"<x>": 1005, "<y>": 1005})"), HasSubstr(R"(id 1005 is given to "<x>" and "<y>")"));
  EXPECT_THAT(error(R"({"<x>": "1005"})"), HasSubstr(R"(added_tokens.json: id of token "<x>" is "1005")"));
  for (const char* broken : {"", "{", "[]", "3"}) {
    EXPECT_THAT(error(broken), HasSubstr("added_tokens.json: cannot be read, or is no JSON object")) << broken;
  }
}

// With a normalizer: the sign for the space in front of a text is before one that is found in what is normalized. Ids
// are those of transformers 5.24.
TEST(Tokenizer, SpecialTokensOfAnOlderFileAreFoundBeforeNormalizing) {
  const TemporaryDirectory directory;
  WriteText(directory / "tokenizer.json", ReadText(kGolden + "tokenizer_llama2_style.json"));
  WriteText(directory / "added_tokens.json", R"({"<x>": 902})");
  const auto is_special = [&](const std::string& config, const std::string& map) {
    WriteText(directory / "tokenizer_config.json", config);
    WriteText(directory / "special_tokens_map.json", map);
    using Ids = std::vector<int32_t>;
    const Ids ids = Open(directory / "")->Encode("a<x>a").value();
    EXPECT_TRUE(ids == (Ids{392, 902, 392}) || ids == (Ids{392, 63, 306, 65, 284})) << config << map;
    return ids.size() == 3;
  };
  EXPECT_FALSE(is_special("{}", "{}"));
  EXPECT_TRUE(is_special(R"({"pad_token": "<x>"})", "{}"));
  EXPECT_FALSE(is_special(R"({"pad_token": {"__type": "AddedToken", "content": "<x>"}})", "{}"));
  EXPECT_TRUE(is_special("{}", R"({"pad_token": "<x>"})"));
  EXPECT_TRUE(is_special("{}", R"({"pad_token": {"content": "<x>", "normalized": true}})"));
  EXPECT_TRUE(is_special(R"({"additional_special_tokens": ["<x>"]})", "{}"));
  EXPECT_FALSE(is_special("{}", R"({"additional_special_tokens": ["<x>"]})"));
  EXPECT_TRUE(is_special("{}", R"({"extra_special_tokens": [{"content": "<x>"}]})"));
}

// Tokens are those of transformers 5.24 with the same files.
TEST(Tokenizer, SpecialTokensThatNoListHasAreFound) {
  const TemporaryDirectory directory;
  WriteText(directory / "tokenizer.json", ReadText(kGolden + "tokenizer_gpt2_style.json"));
  const auto encode = [&](const std::string& config, const std::string& map) {
    WriteText(directory / "tokenizer_config.json", config);
    WriteText(directory / "special_tokens_map.json", map);
    return Open(directory / "")->Encode("x in going").value();
  };
  using Ids = std::vector<int32_t>;
  const Ids plain = {87, 347, 344, 78, 747}, found = {87, 220, 312, 344, 78, 312, 70},
            stripped = {87, 312, 344, 78, 312, 70};
  EXPECT_EQ(encode("{}", "{}"), plain);
  EXPECT_EQ(encode(R"({"eos_token": "in"})", "{}"), found);
  EXPECT_EQ(encode(R"({"eos_token": {"__type": "AddedToken", "content": "in", "lstrip": true}})", "{}"), stripped);
  EXPECT_EQ(encode(R"({"unk_token": {"__type": "AddedToken", "content": "in", "normalized": true}})", "{}"), found);
  EXPECT_EQ(encode(R"({"pad_token": "x"})", R"({"pad_token": "in"})"), found);
  EXPECT_EQ(encode(R"({"pad_token": "x", "added_tokens_decoder": {}})", R"({"pad_token": "in"})"), plain);
  EXPECT_EQ(encode(R"({"additional_special_tokens": ["in"]})", "{}"), found);
  EXPECT_EQ(encode("{}", R"({"additional_special_tokens": ["in"]})"), found);
  EXPECT_EQ(encode(R"({"extra_special_tokens": {"image": "in"}})", "{}"), found);
  const std::string listed = R"("added_tokens_decoder": {"5": {"content": "in", "lstrip": true, "special": true}})";
  EXPECT_EQ(encode(R"({"eos_token": "in", )" + listed + "}", "{}"), stripped) << "as the list says";
  EXPECT_EQ(Open(directory / "")->vocab_size(), 1005);

  WriteText(directory / "special_tokens_map.json", "{}");
  WriteText(directory / "tokenizer_config.json", R"({"pad_token": "<|gone|>"})");
  EXPECT_EQ(Open(directory / "")->Encode("x in going").value(), plain);
  for (const char* name : {"bos_token", "eos_token", "unk_token"}) {
    WriteText(directory / "tokenizer_config.json", absl::StrCat("{\"", name, R"(": "<|gone|>"})"));
    const absl::Status refused = OpenTokenizer(directory / "").status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(Message(refused), HasSubstr(absl::StrCat(name, R"( is "<|gone|>", which the tokenizer does not)")));
  }
}

// So that data packed before stays what it is: chat models name what ends a turn.
TEST(Tokenizer, AUsualNameComesBeforeTheOneBesideIt) {
  const TemporaryDirectory directory;
  WriteText(directory / "tokenizer.json", ReadText(kGolden + "tokenizer_gpt2_style.json"));
  WriteText(directory / "tokenizer_config.json", R"({"eos_token": "a"})");
  const auto tokenizer = Open(directory / "tokenizer.json");
  EXPECT_EQ(tokenizer->Decode({*tokenizer->end_of_text()}), "<|endoftext|>");
}

}  // namespace
}  // namespace holdfast
