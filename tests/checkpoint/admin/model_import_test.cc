// Proves that a saved model without biases of routers can be imported for a run that has them: they begin at 0, and all
// else is what the files hold; and that an import or an export that is stopped leaves nothing.

#include "checkpoint/admin/model_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <stop_token>

#include "absl/strings/match.h"
#include "checkpoint/admin/model_export.h"
#include "checkpoint/admin/new_directory.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/saved_model.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "framework/storage/local_storage.h"
#include "models/families/huggingface.h"
#include "models/runtime/initial_model.h"
#include "models/transformer.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/storage/memory_storage.h"
#include "tests/models/runtime/tiny_run.h"
#include "tests/models/test_models.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

using testing::Each;

constexpr int64_t kExperts = 8, kHidden = 32, kLayers = 2;

TEST(ModelImportTest, BiasesOfRoutersBeginAtZero) {
  const std::string directory = SourceDir() + "/tests/golden/tiny_olmoe";
  Config config;
  config.model = ReadModelConfig(directory).value().model;
  config.model.router_bias = true;
  config.batch.sequence_length = 16;
  const auto import = ModelImport::Open(config, directory);
  ASSERT_TRUE(import.ok()) << import.status();

  const TemporaryDirectory scratch;
  const std::unique_ptr<Storage> storage = MakeMemoryStorage(scratch.path());
  const auto manifest = import->WriteTo(*storage, "a test", nullptr, {});
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto checkpoint = CheckpointReader::Open(*storage, manifest->name);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto file = SafetensorsReader::Open(directory + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  int64_t biases = 0;
  for (size_t i = 0; i < manifest->tensors.size(); ++i) {
    const StoredTensor& tensor = manifest->tensors[i];
    std::vector<float> values(static_cast<size_t>(tensor.rows() * tensor.cols()));
    ASSERT_TRUE((*checkpoint)->ReadRows(static_cast<int>(i), 0, 0, absl::MakeSpan(values)).ok());
    if (absl::EndsWith(tensor.name, ".router_bias")) {
      ++biases;
      EXPECT_EQ(values.size(), static_cast<size_t>(kExperts));
      EXPECT_THAT(values, Each(0.0f));
    } else if (tensor.name == "blocks.1.experts.router.weight") {
      std::vector<float> saved(kExperts * kHidden);
      ASSERT_TRUE((*file)->Read("model.layers.1.mlp.gate.weight", 0, absl::MakeSpan(saved)).ok());
      EXPECT_EQ(values, saved);
    }
  }
  EXPECT_EQ(biases, kLayers);
}

class StoppedImportTest : public TinyRun {};

TEST_F(StoppedImportTest, LeavesNoCheckpointAndNoModel) {
  const Config config = ConfigOf({"model.num_layers=2"});
  const ParameterLayout layout = TransformerLayout(config.model);
  const std::vector<float> values = RandomWeights(layout, 3);
  const auto read = [&](int64_t first, absl::Span<float> out) {
    std::copy_n(values.begin() + first, out.size(), out.begin());
    return absl::OkStatus();
  };
  ASSERT_TRUE(SaveModel(root_ / "given", layout, HuggingFaceTensorMap(config.model, layout), read, FileDType::kF32,
                        {HuggingFaceConfigJson(config.model, {}), {}})
                  .ok());
  const auto import = ModelImport::Open(config, root_ / "given");
  ASSERT_TRUE(import.ok()) << import.status();
  std::stop_source stop;
  const ByteProgress stops = [&](uint64_t done, uint64_t /*total*/) {
    if (done > 0) stop.request_stop();  // something is written by now
  };

  const auto stopped = OpenLocalStorage(root_ / "stopped", {}).value();
  EXPECT_EQ(import->WriteTo(*stopped, "a test", stops, stop.get_token()).status().code(), absl::StatusCode::kCancelled);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_ / "stopped")) {
    EXPECT_TRUE(entry.is_directory() || absl::StartsWith(entry.path().filename().string(), "fence-")) << entry.path();
  }

  const auto whole = OpenLocalStorage(root_ / "whole", {}).value();
  const auto manifest = import->WriteTo(*whole, "a test", nullptr, {});
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto checkpoint = CheckpointReader::Open(*whole, manifest->name);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  stop = std::stop_source();
  const ModelExportOptions options{
      .output = root_ / "model", .tokenizer = "bytes", .base = {}, .stop = stop.get_token()};
  EXPECT_EQ(ExportModel(**checkpoint, options, stops).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(IsAbsentOrEmpty(options.output));
}

}  // namespace
}  // namespace holdfast
