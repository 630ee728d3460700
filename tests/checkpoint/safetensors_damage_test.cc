// A small file is cut at every byte, has every single bit flipped, and is damaged at random in many places: opening and
// reading it ends with a value or an error, never with a crash (run this under the address sanitizer too), and a cut
// file is never accepted, nor one whose header has another length, shape or offset.

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <random>

#include "checkpoint/safetensors.h"
#include "framework/base/files.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

class SafetensorsDamageTest : public testing::Test {
 protected:
  void SetUp() override {
    auto writer = *SafetensorsWriter::Create(dir_ / "good",
                                             {{"w", FileDType::kF32, {2, 3}},
                                              {"half", FileDType::kF16, {5}},
                                              {"empty", FileDType::kF32, {0}},
                                              {"brain", FileDType::kBF16, {4}}},
                                             {{"format", "pt"}});
    ASSERT_TRUE(writer->Append({1, 2, 3, 4, 5, 6}).ok() && writer->Append({1, 2, 3, 4, 5}).ok() &&
                writer->Append({1, 2, 3, 4}).ok() && writer->Finish().ok());
    good_ = *ReadFile(dir_ / "good", 1 << 20);
  }

  /// Opens `bytes` as a file and reads all that can be read. Whether it opened.
  bool OpenAndRead(const std::string& bytes) {
    std::filesystem::remove(dir_ / "bad");  // ext4 flushes a file that is truncated and written again: 5 ms each
    std::ofstream(dir_ / "bad", std::ios::binary) << bytes;
    const auto reader = SafetensorsReader::Open(dir_ / "bad");
    if (!reader.ok()) {
      EXPECT_FALSE(reader.status().message().empty());
      return false;
    }
    for (const auto& [name, entry] : (*reader)->entries()) {
      EXPECT_LE(entry.end, bytes.size());
      std::vector<float> out((entry.end - entry.begin) / (entry.dtype == FileDType::kF32 ? 4 : 2));
      (*reader)->Read(name, 0, absl::MakeSpan(out)).IgnoreError();
    }
    return true;
  }

  TemporaryDirectory dir_;
  std::string good_;
};

TEST_F(SafetensorsDamageTest, CutAnywhere) {
  ASSERT_TRUE(OpenAndRead(good_));
  for (size_t size = 0; size < good_.size(); ++size) EXPECT_FALSE(OpenAndRead(good_.substr(0, size))) << size;
}

TEST_F(SafetensorsDamageTest, EverySingleBit) {
  for (size_t i = 0; i < 8 * good_.size(); ++i) {
    const size_t at = i / 8, bracket = good_.find_last_of("[]", at);
    const bool is_length = at < 8;
    const bool is_number = std::isdigit(static_cast<unsigned char>(good_[at])) != 0 && bracket != std::string::npos &&
                           good_[bracket] == '[';  // of a shape or offsets
    std::string bad = good_;
    bad[at] = static_cast<char>(bad[at] ^ (1 << i % 8));
    const bool opened = OpenAndRead(bad);
    EXPECT_FALSE(opened && (is_length || is_number)) << "bit " << i % 8 << " of byte " << at;
  }
}

TEST_F(SafetensorsDamageTest, RandomDamage) {
  std::mt19937 random(20240601);
  const std::string alphabet = "{}[]\",:0123456789 \\aFeu\xc3";
  for (int round = 0; round < 5000; ++round) {
    std::string bad = good_;
    for (unsigned k = 0, hits = 1 + random() % 6; k < hits; ++k) {
      const size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad[at] = alphabet[random() % alphabet.size()];
          break;
        case 2:
          bad.erase(at, random() % 8);
          break;
        default:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 40));
          break;
      }
      if (bad.empty()) bad = "x";
    }
    if (random() % 2 == 0 && bad.size() >= 8) {  // a length that fits, so that the damage behind it is reached
      const size_t length = std::min<size_t>(bad.size() - 8, random() % 400);
      for (size_t i = 0; i < 8; ++i) bad[i] = static_cast<char>(length >> (8 * i) & 0xff);
    }
    OpenAndRead(bad);
  }
}

}  // namespace
}  // namespace holdfast
