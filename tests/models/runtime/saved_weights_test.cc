// Proves that a chat template that somebody wrote beside a run's saved model is there after the next save, unless the
// tokenizer brings its own; and that one which could not be used afterwards is not saved without a word. That what
// config.json says of padding and ends is taken from where it counts.

#include "models/runtime/saved_weights.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "framework/base/files.h"
#include "framework/chat/tokenizer_settings.h"
#include "framework/data/chat_template_bytes.h"
#include "gmock/gmock.h"
#include "models/transformer.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SavedWeights : public TinyRun {
 protected:
  void Save(const Config& config) {
    const auto read = [](int64_t, absl::Span<float> out) {
      std::fill(out.begin(), out.end(), 0.5f);
      return absl::OkStatus();
    };
    const absl::Status saved = SaveWeights(root_ / "model", config, TransformerLayout(config.model), read);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  void Write(const std::string& name, const std::string& text) { std::ofstream(root_ / name) << text; }
  std::string Template() { return ReadFile(root_ / "model/chat_template.jinja", 1000).value_or("none"); }
};

TEST_F(SavedWeights, AChatTemplateStays) {
  Config config = ConfigOf();
  Save(config);
  EXPECT_EQ(Template(), "none");
  Write("model/chat_template.jinja", "mine");
  Save(config);
  EXPECT_EQ(Template(), "mine");

  std::filesystem::create_directory(root_ / "tokenizer");
  std::filesystem::copy_file(root_ / "model/tokenizer.json", root_ / "tokenizer/tokenizer.json");
  config.data.tokenizer = root_ / "tokenizer/tokenizer.json";
  Save(config);
  EXPECT_EQ(Template(), "mine");
  Write("tokenizer/chat_template.jinja", "the tokenizer's");
  Save(config);
  EXPECT_EQ(Template(), "the tokenizer's");
}

// What transformers saves beside the default one: conversations with tools are written by tool_use.
TEST_F(SavedWeights, ChatTemplatesWithNamesAreSavedToo) {
  namespace fs = std::filesystem;
  Config config = ConfigOf();
  Save(config);
  fs::create_directories(root_ / "tokenizer/additional_chat_templates");
  fs::copy_file(root_ / "model/tokenizer.json", root_ / "tokenizer/tokenizer.json");
  config.data.tokenizer = root_ / "tokenizer/tokenizer.json";
  Write("tokenizer/chat_template.jinja", "one");
  Write("tokenizer/additional_chat_templates/tool_use.jinja", "two");
  Write("tokenizer/additional_chat_templates/notes.txt", "no template");
  fs::create_directories(root_ / "model/additional_chat_templates");
  Write("model/additional_chat_templates/rag.jinja", "of an older model");
  Save(config);
  const auto settings = ReadTokenizerSettings(root_ / "model");
  ASSERT_TRUE(settings.ok()) << settings.status();
  const std::map<std::string, std::string> expected{{"default", "one"}, {"tool_use", "two"}};
  EXPECT_EQ(settings->templates, expected);
  EXPECT_FALSE(fs::exists(root_ / "model/additional_chat_templates/notes.txt"));

  // Somebody's own stay where the tokenizer has none.
  fs::remove(root_ / "tokenizer/chat_template.jinja");
  fs::remove_all(root_ / "tokenizer/additional_chat_templates");
  Save(config);
  EXPECT_EQ(Template(), "one");
  EXPECT_TRUE(fs::exists(root_ / "model/additional_chat_templates/tool_use.jinja"));

  Write("tokenizer/chat_template.jinja", "three");
  Save(config);
  EXPECT_EQ(Template(), "three");
  EXPECT_FALSE(fs::exists(root_ / "model/additional_chat_templates"));
}

// One of 16 MiB was saved with the model, and could not be read by those who use it.
TEST_F(SavedWeights, AChatTemplateThatCannotBeUsedIsLeftOutWithAWarning) {
  const Config config = ConfigOf();
  constexpr char kLeftOut[] = "the chat template is not saved with the model: ";
  const auto log_of_save = [&](const Config& of_run) {
    testing::internal::CaptureStderr();
    Save(of_run);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(log_of_save(config).find(kLeftOut), std::string::npos) << "there is none";
  const std::string largest(kChatTemplateBytesMax, 'a');
  Write("model/chat_template.jinja", largest);
  EXPECT_EQ(log_of_save(config).find(kLeftOut), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(root_ / "model/chat_template.jinja"), kChatTemplateBytesMax);
  EXPECT_TRUE(ReadTokenizerSettings(root_ / "model").ok());

  Write("model/chat_template.jinja", largest + "a");
  EXPECT_FALSE(ReadTokenizerSettings(root_ / "model").ok());
  const std::string said = log_of_save(config);
  EXPECT_NE(said.find(kLeftOut), std::string::npos) << said;
  EXPECT_NE(said.find("model/chat_template.jinja: 1048577 bytes; at most 1048576"), std::string::npos) << said;
  EXPECT_EQ(said.find(kLeftOut), said.rfind(kLeftOut)) << "once";
  EXPECT_FALSE(std::filesystem::exists(root_ / "model/chat_template.jinja"));

  std::filesystem::create_directories(root_ / "tokenizer/chat_template.jinja");  // as a folder it cannot be read
  std::filesystem::copy_file(root_ / "model/tokenizer.json", root_ / "tokenizer/tokenizer.json");
  Config with_tokenizer = config;
  with_tokenizer.data.tokenizer = root_ / "tokenizer/tokenizer.json";
  EXPECT_NE(log_of_save(with_tokenizer).find("tokenizer/chat_template.jinja"), std::string::npos);
}

// What the model says of itself counts, then what lies beside the tokenizer; of generation what lies beside it.
TEST_F(SavedWeights, PaddingIsThatOfTheModelBeforeThatOfTheTokenizer) {
  namespace fs = std::filesystem;
  Config config = ConfigOf();
  const auto saved = [&](const std::string& file) { return *ReadFile(root_ / ("model/" + file), 10000); };
  Save(config);
  EXPECT_THAT(saved("config.json"), HasSubstr("\"pad_token_id\": null"));
  fs::create_directory(root_ / "tokenizer");
  fs::create_directory(root_ / "base");
  fs::copy_file(root_ / "model/tokenizer.json", root_ / "tokenizer/tokenizer.json");
  Write("tokenizer/config.json", R"({"pad_token_id": 8, "eos_token_id": [9, 10]})");
  Write("base/config.json", R"({"pad_token_id": 7, "eos_token_id": 11})");
  config.data.tokenizer = root_ / "tokenizer/tokenizer.json";
  Save(config);
  EXPECT_THAT(saved("config.json"), HasSubstr("\"pad_token_id\": 8"));
  config.train.init_from = root_ / "base";
  Save(config);
  EXPECT_THAT(saved("config.json"), AllOf(HasSubstr("\"pad_token_id\": 7"), HasSubstr("\"eos_token_id\": null")));
  EXPECT_EQ(saved("generation_config.json"),
            "{\n  \"eos_token_id\": [\n    9,\n    10\n  ],\n  \"pad_token_id\": 8,\n  \"bos_token_id\": null\n}\n");
  Write("tokenizer/generation_config.json", R"({"pad_token_id": 12})");
  Save(config);
  EXPECT_THAT(saved("generation_config.json"), AllOf(HasSubstr("\"pad_token_id\": 12"), Not(HasSubstr("9"))));
  config.data.tokenizer = "bytes";
  fs::remove_all(root_ / "base");  // it has moved
  Save(config);
  EXPECT_THAT(saved("config.json"), HasSubstr("\"pad_token_id\": null"));
}

}  // namespace
}  // namespace holdfast
