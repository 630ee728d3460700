// Proves that a saved model without biases of routers can be imported for a run that has them: they begin at 0, and all
// else is what the files hold.

#include "checkpoint/admin/model_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "models/runtime/initial_model.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/storage/memory_storage.h"
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
  const auto manifest = import->WriteTo(*storage, "a test", nullptr);
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

}  // namespace
}  // namespace holdfast
