// Proves that a chat template that somebody wrote beside a run's saved model is there after the next save, unless the
// tokenizer brings its own.

#include "models/runtime/saved_weights.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "framework/base/files.h"
#include "models/transformer.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

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

}  // namespace
}  // namespace holdfast
