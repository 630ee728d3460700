#pragma once
// A directory with token files, and configs of runs on them that take a second.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/config/load.h"
#include "framework/data/token_file.h"
#include "framework/storage/file_access.h"
#include "models/families/families.h"
#include "models/runtime/arithmetic.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {

class TinyRun : public testing::Test {
 protected:
  static constexpr int64_t kVocabulary = 256;

  void SetUp() override { WriteTokens("train.bin", 97); }

  /// 4,000 tokens, the last of which is `last`.
  void WriteTokens(const std::string& name, int32_t last) {
    LocalFileAccess files;
    auto writer = TokenFileWriter::Create(files, root_ / name, kVocabulary);
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 4000; ++i) tokens.push_back(i * i % 97);
    tokens.back() = last;
    ASSERT_TRUE((*writer)->Append(tokens).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
  }

  /// Resolved, as a command hands it to a launcher.
  Config ConfigOf(std::vector<std::string> overrides = {}) {
    overrides.insert(overrides.begin(), absl::StrCat("data.train=[", root_ / "train.bin", "]"));
    auto config = ParseConfig(
        "model: {family: llama, vocab_size: 256, num_layers: 1, hidden_size: 32, num_heads: 2, num_kv_heads: 1,\n"
        "        intermediate_size: 64, max_sequence_length: 16}\n"
        "data: {tokenizer: bytes}\n"
        "batch: {sequence_length: 16, microbatch_size: 2, microbatches: 2}\n"
        "train: {steps: 12}\n"
        "log: {digest_every_steps: 4, sample_bytes: 0}\n",
        "tiny", overrides, {.families = FamilyPresets()});
    EXPECT_TRUE(config.ok()) << config.status();
    if (!config.ok()) return {};
    EXPECT_TRUE(ResolveArithmetic(&config->train, "").ok());
    return *config;
  }

  TemporaryDirectory root_;
};

}  // namespace holdfast
