// Proves that conversations packed into rows, of which only the answers are learned, lose what transformers loses on
// the same conversations one at a time (golden file, see make_packed_chat_golden.py), in fp32; and that of a
// conversation in a row no bit depends on its neighbours.

#include <map>
#include <string>
#include <vector>

#include "framework/chat/pack_conversations.h"
#include "framework/data/dataset.h"
#include "gtest/gtest.h"
#include "models/runtime/loaded_model.h"
#include "nlohmann/json.hpp"
#include "tests/framework/data/token_test_files.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

using Json = nlohmann::json;

constexpr int64_t kRow = 512;

class PackedChat : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = LoadSavedModel(golden_ + "packed_chat",
                                 {.compute_dtype = ComputeDType::kF32, .threads = 1, .batch = 1, .sequence = kRow});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    model_ = *std::move(loaded);
  }

  /// Rows of the conversations of those lines, which are short enough.
  Dataset Pack(const std::vector<size_t>& lines) {
    std::string talks;
    for (const size_t line : lines) talks += cases_.at(line).at("line").get<std::string>() + "\n";
    WriteText(directory_ / "talks.jsonl", talks);
    const auto chat = ChatTemplate::Open(chatml_, {});
    EXPECT_TRUE(chat.ok()) << chat.status();
    LocalFileAccess files;
    const PackConversationsOptions options{
        .paths = {.inputs = {directory_ / "talks.jsonl"}, .output = directory_ / "talks.bin", .overwrite = true},
        .row_tokens = kRow};
    const auto report = PackConversations(*chat, options, files);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->training.conversations, lines.size());
    return Dataset::Open({directory_ / "talks.bin"}, kRow, model_->config.vocab_size).value();
  }

  LossSum LossOf(const Microbatch& row) {
    const auto loss = model_->runner->Evaluate(row, *model_->store);
    EXPECT_TRUE(loss.ok()) << loss.status();
    return *loss;
  }
  LossSum LossOf(const Dataset& rows) {
    LossSum total;
    for (int64_t i = 0; i < rows.num_samples(); ++i) {
      const LossSum loss = LossOf(*ReadValidationMicrobatch(rows, 1, i));
      total.sum += loss.sum;
      total.counted += loss.counted;
    }
    return total;
  }

  const std::string golden_ = SourceDir() + "/tests/golden/";
  const std::string chatml_ = SourceDir() + "/tests/framework/chat/golden/chatml";
  const Json cases_ = Json::parse(ReadText(chatml_ + "/cases.json"));
  const Json losses_ = Json::parse(ReadText(golden_ + "packed_chat/losses.json"));
  TemporaryDirectory directory_;
  std::unique_ptr<LoadedModel> model_;
};

TEST_F(PackedChat, LosesWhatTransformersLosesOneAtATime) {
  ASSERT_GE(losses_.size(), 15);
  std::vector<size_t> lines;
  double sum = 0;
  int64_t learned = 0;
  for (const Json& one : losses_) {
    lines.push_back(one.at("line"));
    sum += one.at("loss").get<double>();
    learned += one.at("learned").get<int64_t>();
    const LossSum alone = LossOf(Pack({lines.back()}));
    EXPECT_EQ(alone.counted, one.at("learned").get<int64_t>());
    EXPECT_NEAR(alone.sum, one.at("loss").get<double>(), 1e-5 * one.at("loss").get<double>()) << lines.back();
  }
  const Dataset rows = Pack(lines);
  EXPECT_LT(rows.num_samples(), static_cast<int64_t>(lines.size()) / 2);
  const LossSum packed = LossOf(rows);
  EXPECT_EQ(packed.counted, learned);
  EXPECT_NEAR(packed.sum, sum, 1e-5 * sum);
}

// Rows in which only one conversation is learned, with other tokens in place of its neighbours.
TEST_F(PackedChat, NeighboursDecideNoBit) {
  std::vector<size_t> lines;
  for (const Json& one : losses_) lines.push_back(one.at("line"));
  const Dataset rows = Pack(lines);
  int compared = 0;
  for (int64_t i = 0; i < rows.num_samples(); ++i) {
    const Microbatch row = *ReadValidationMicrobatch(rows, 1, i);
    for (int32_t begin = 0; begin < kRow; begin = row.document_ends[static_cast<size_t>(begin)]) {
      const int32_t end = row.document_ends[static_cast<size_t>(begin)];
      Microbatch among = row, beside_others = row;
      for (int32_t t = 0; t < kRow; ++t) {
        if (t >= begin && t < end) continue;
        const auto at = static_cast<size_t>(t);
        among.targets[at] = beside_others.targets[at] = -1;
        beside_others.inputs[at] = (row.inputs[at] + 7 * t + 1) % 400;
      }
      const LossSum one = LossOf(among), other = LossOf(beside_others);
      if (one.counted == 0) continue;  // what is free of a row
      EXPECT_EQ(one.sum, other.sum) << "row " << i << ", document at " << begin;
      ++compared;
    }
  }
  EXPECT_EQ(compared, static_cast<int>(lines.size()));
}

// The first conversation of a row has the bits that it has in a row of its own.
TEST_F(PackedChat, AConversationInARowOfItsOwnHasTheSameBits) {
  std::map<std::vector<int32_t>, double> alone;  // by the row's inputs up to the document's end
  std::vector<size_t> lines;
  for (const Json& one : losses_) {
    lines.push_back(one.at("line"));
    const Microbatch row = *ReadValidationMicrobatch(Pack({lines.back()}), 1, 0);
    alone[{row.inputs.begin(), row.inputs.begin() + row.document_ends[0]}] = LossOf(row).sum;
  }
  const Dataset rows = Pack(lines);
  for (int64_t i = 0; i < rows.num_samples(); ++i) {
    Microbatch row = *ReadValidationMicrobatch(rows, 1, i);
    const int32_t end = row.document_ends[0];
    ASSERT_LT(end, kRow);
    std::fill(row.targets.begin() + end, row.targets.end(), -1);
    const std::vector<int32_t> first(row.inputs.begin(), row.inputs.begin() + end);
    ASSERT_TRUE(alone.contains(first));
    EXPECT_EQ(LossOf(row).sum, alone[first]) << i;
  }
}

}  // namespace
}  // namespace holdfast
