// A saved model comes back with the same values: fused, split, transposed, in one file or in shards; whatever does not
// fit is named, all at once; a save that fails leaves the old model, and no shard outside the directory is opened.

#include "checkpoint/saved_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <numeric>

#include "checkpoint/model_directory.h"
#include "checkpoint/saved_model_reader.h"
#include "framework/base/files.h"
#include "tests/checkpoint/load_weights.h"
#include "tests/checkpoint/raw_file.h"
#include "tests/framework/base/file_size_limit.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kWide = 1100;  // a transposed tensor of several blocks

ParameterLayout MakeLayout() {
  return ParameterLayout({{.name = "embedding", .shape = {7, 4}},
                          {.name = "qkv", .shape = {6, 4}, .unit = 1},
                          {.name = "qkv.bias", .shape = {6}, .unit = 1},
                          {.name = "mlp", .shape = {kWide, 2 * kWide}, .unit = 1},
                          {.name = "experts", .shape = {2, 3, 5}, .unit = 2}},
                         {"embedding", "block", "head"});
}

TensorMap MakeMap() {
  return {{"wte", 0, 0, 7, false, {7, 4}},
          {"k", 1, 2, 2, false, {2, 4}},  // not in the order of the layout
          {"q", 1, 0, 2, false, {2, 4}},
          {"v.transposed", 1, 4, 2, true, {4, 2}},
          {"bias.q", 2, 0, 2, false, {2}},
          {"bias.kv", 2, 2, 4, false, {4}},
          {"mlp.conv1d", 3, 0, kWide, true, {2 * kWide, kWide}},
          {"experts.0", 4, 0, 3, false, {3, 5}},
          {"experts.1", 4, 3, 3, false, {3, 5}}};
}

class SavedModelTest : public testing::Test {
 protected:
  SavedModelTest() : values_(static_cast<size_t>(layout_.elements())) {
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(static_cast<int>(i * 37 % 251) - 125);
  }

  absl::Status Save(const std::string& config = "{}", const std::map<std::string, std::string>& others = {}) {
    const auto read = [&](int64_t first, absl::Span<float> out) {
      std::copy_n(values_.begin() + first, out.size(), out.begin());
      return absl::OkStatus();
    };
    return SaveModel(dir_ / "model", layout_, map_, read, dtype_, {config, others}, max_file_bytes_);
  }

  absl::Status Load(std::vector<float>* values = nullptr) {
    std::vector<float> loaded(values_.size(), NAN);
    const absl::Status status = LoadWeights(
        dir_ / "model", layout_, map_, [](const std::string& name) { return name == "mask"; }, absl::MakeSpan(loaded));
    if (values != nullptr) *values = loaded;
    return status;
  }

  std::vector<std::string> ListModel() const {
    std::vector<std::string> names;
    for (const auto& e : std::filesystem::directory_iterator(dir_ / "model")) names.push_back(e.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  // Writes a file of the model directory with one-dimensional fp32 tensors of value 1.
  void WriteTensors(const std::string& file, const std::vector<SafetensorsWriter::Entry>& entries) {
    std::filesystem::create_directories(dir_ / "model");
    auto writer = *SafetensorsWriter::Create(dir_ / ("model/" + file), entries, {});
    for (const auto& entry : entries) {
      const int64_t n = std::accumulate(entry.shape.begin(), entry.shape.end(), int64_t{1}, std::multiplies<>());
      ASSERT_TRUE(writer->Append(std::vector<float>(static_cast<size_t>(n), 1.f)).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  }

  void WriteIndex(const std::string& json) { std::ofstream(dir_ / "model/model.safetensors.index.json") << json; }

  TemporaryDirectory dir_;
  ParameterLayout layout_ = MakeLayout();
  TensorMap map_ = MakeMap();
  std::vector<float> values_;
  FileDType dtype_ = FileDType::kF32;
  uint64_t max_file_bytes_ = 0;
};

TEST_F(SavedModelTest, ShardsHoldWhatOneFileWould) {
  ASSERT_TRUE(Save("one").ok());
  max_file_bytes_ = 250;  // wte, k, q, v, biases: 112 + 32 + 32 + 32 + 8 + 16; the next alone has more; experts
  ASSERT_TRUE(Save("many").ok());
  EXPECT_EQ(ListModel(), (std::vector<std::string>{
                             "config.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                             "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  EXPECT_THAT(
      *ReadFile(dir_ / "model/model.safetensors.index.json", 10000),
      AllOf(HasSubstr("\"bias.kv\":\"model-00001-of-00003.safetensors\""), HasSubstr("\"total_size\":9680352")));
  std::vector<float> loaded;
  const absl::Status status = Load(&loaded);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(loaded, values_);
}

TEST_F(SavedModelTest, AFailedSaveOfShardsLeavesTheOldModel) {
  ASSERT_TRUE(Save("old").ok());
  const std::vector<float> old = values_;
  values_.back() = NAN;  // in the last of them
  max_file_bytes_ = 250;
  EXPECT_THAT(std::string(Save("new").message()), HasSubstr("tensor \"experts.1\": element 14 is nan"));
  std::vector<float> loaded;
  ASSERT_TRUE(Load(&loaded).ok());
  EXPECT_EQ(loaded, old);
  EXPECT_EQ(ListModel(), (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST_F(SavedModelTest, ValuesComeBackInEveryDType) {
  for (const FileDType dtype : {FileDType::kF32, FileDType::kF16, FileDType::kBF16}) {
    dtype_ = dtype;
    ASSERT_TRUE(Save().ok());
    std::vector<float> loaded;
    const absl::Status status = Load(&loaded);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(loaded, values_);
  }
}

TEST_F(SavedModelTest, WhatIsMarkedStaysInFp32) {
  dtype_ = FileDType::kBF16;
  map_.front().fp32 = true;
  const float value = values_.front() = 1.0F + 0x1p-20F;
  ASSERT_TRUE(Save().ok());
  std::vector<float> loaded;
  ASSERT_TRUE(Load(&loaded).ok());
  EXPECT_EQ(loaded.front(), value);
  const auto reader = *SafetensorsReader::Open(dir_ / "model/model.safetensors");
  for (const ExternalTensor& tensor : map_) {
    EXPECT_EQ(reader->entries().at(tensor.name).dtype, tensor.fp32 ? FileDType::kF32 : FileDType::kBF16) << tensor.name;
  }
}

// As Gemma's files have the factors of norms. What is rounded to bf16 is what the file holds.
TEST_F(SavedModelTest, FilesMayHoldValuesLessOne) {
  map_[3].subtracted = 1;  // v.transposed
  map_[5].subtracted = 1;  // bias.kv
  const int64_t v = layout_.parameters()[1].offset + 4 * 4, kv = layout_.parameters()[2].offset + 2;
  values_[static_cast<size_t>(kv)] = 1 + 0x1p-12F;
  values_[static_cast<size_t>(kv) + 3] = 0;
  for (const FileDType dtype : {FileDType::kF32, FileDType::kBF16}) {
    dtype_ = dtype;
    ASSERT_TRUE(Save().ok());
    const auto reader = *SafetensorsReader::Open(dir_ / "model/model.safetensors");
    std::vector<float> biases(4), others(2), rows(8), loaded;
    ASSERT_TRUE(reader->Read("bias.kv", 0, absl::MakeSpan(biases)).ok());
    EXPECT_EQ(biases[0], 0x1p-12F);
    EXPECT_EQ(biases[3], -1);
    ASSERT_TRUE(reader->Read("bias.q", 0, absl::MakeSpan(others)).ok());
    EXPECT_EQ(others[0], values_[static_cast<size_t>(kv) - 2]);
    ASSERT_TRUE(reader->Read("v.transposed", 0, absl::MakeSpan(rows)).ok());
    EXPECT_EQ(rows[1], values_[static_cast<size_t>(v) + 4] - 1);
    ASSERT_TRUE(Load(&loaded).ok());
    EXPECT_EQ(loaded, values_);
  }
}

TEST_F(SavedModelTest, TransposedTensorsAreTransposedInTheFile) {
  ASSERT_TRUE(Save().ok());
  const auto reader = *SafetensorsReader::Open(dir_ / "model/model.safetensors");
  EXPECT_EQ(reader->metadata().at("format"), "pt");
  std::vector<float> v(8);
  ASSERT_TRUE(reader->Read("v.transposed", 0, absl::MakeSpan(v)).ok());
  const float* rows = &values_[static_cast<size_t>(layout_.parameters()[1].offset) + 4 * 4];  // rows 4 and 5 of qkv
  EXPECT_EQ(v, (std::vector<float>{rows[0], rows[4], rows[1], rows[5], rows[2], rows[6], rows[3], rows[7]}));
}

TEST_F(SavedModelTest, WritesAndReplacesTheOtherFiles) {
  ASSERT_TRUE(Save("first", {{"tokenizer.json", "tokens"}, {"generation_config.json", "{}"}}).ok());
  EXPECT_EQ(ListModel(),
            (std::vector<std::string>{"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}));
  ASSERT_TRUE(Save("second", {{"tokenizer.json", "others"}}).ok());
  EXPECT_EQ(*ReadFile(dir_ / "model/tokenizer.json", 100), "others");
  EXPECT_EQ(*ReadFile(dir_ / "model/config.json", 100), "second");
  WriteIndex("{}");
  ASSERT_TRUE(Save("third").ok());
  EXPECT_EQ(ListModel(), (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST_F(SavedModelTest, AFailedSaveLeavesTheOldModel) {
  ASSERT_TRUE(Save("old", {{"tokenizer.json", "tokens"}}).ok());
  const std::vector<float> old = values_;
  values_[5] = 4711;
  {
    const FileSizeLimit limit(1 << 16);
    const absl::Status status = Save("new");
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("model.safetensors"));
  }
  values_[6] = NAN;
  const absl::Status nan = Save("new");
  EXPECT_TRUE(absl::IsInvalidArgument(nan));
  EXPECT_THAT(std::string(nan.message()), HasSubstr("tensor \"wte\": element 6 is nan"));

  std::vector<float> loaded;
  ASSERT_TRUE(Load(&loaded).ok());
  EXPECT_EQ(loaded, old);
  EXPECT_EQ(*ReadFile(dir_ / "model/config.json", 100), "old");
  EXPECT_EQ(ListModel(), (std::vector<std::string>{"config.json", "model.safetensors", "tokenizer.json"}));
}

// Whoever was frozen while it wrote is asked once more whether the model is its to write.
TEST_F(SavedModelTest, NoNameChangesIfItMayNotReplaceWhatIsThere) {
  ASSERT_TRUE(Save().ok());
  const std::vector<std::string> before = ListModel();
  const std::vector<float> old = values_;
  for (float& value : values_) value += 1;
  int given = 0;
  const auto read = [&](int64_t first, absl::Span<float> out) {
    std::copy_n(values_.begin() + first, out.size(), out.begin());
    given += static_cast<int>(out.size());
    return absl::OkStatus();
  };
  const auto refuse = [&] {
    EXPECT_GE(given, static_cast<int>(values_.size())) << "all is written by then";
    return absl::AbortedError("another one's");
  };
  EXPECT_TRUE(
      absl::IsAborted(SaveModel(dir_ / "model", layout_, map_, read, dtype_, {"{\"a\":1}", {}, refuse}, 1 << 20)));
  EXPECT_EQ(ListModel(), before);
  std::vector<float> loaded;
  ASSERT_TRUE(Load(&loaded).ok());
  EXPECT_EQ(loaded, old);
  const auto ones = [](absl::Span<float> out) {
    std::fill(out.begin(), out.end(), 1.0f);
    return absl::OkStatus();
  };
  AdapterFiles adapters{.config_json = "{}", .metadata = {}, .tensors = {{.name = "a", .shape = {2, 3}, .read = ones}}};
  adapters.may_replace = [] { return absl::AbortedError("another one's"); };
  EXPECT_TRUE(absl::IsAborted(SaveAdapterFiles(dir_ / "adapters", adapters, FileDType::kF32)));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "adapters/adapter_config.json"));
}

// Who loads a directory with both cannot tell which of the two is meant.
TEST_F(SavedModelTest, AdaptersAreNotWrittenBesideAModel) {
  const auto ones = [](absl::Span<float> out) {
    std::fill(out.begin(), out.end(), 1.0f);
    return absl::OkStatus();
  };
  const AdapterFiles adapters{
      .config_json = "{}", .metadata = {}, .tensors = {{.name = "a", .shape = {2, 3}, .read = ones}}};
  for (const uint64_t max_file_bytes : {uint64_t{0}, uint64_t{1} << 20}) {  // one file, and an index of shards
    std::filesystem::remove_all(dir_ / "model");
    max_file_bytes_ = max_file_bytes;
    ASSERT_TRUE(Save().ok());
    const std::vector<std::string> before = ListModel();
    const absl::Status refused = SaveAdapterFiles(dir_ / "model", adapters, FileDType::kF32);
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(dir_ / "model"));
    EXPECT_EQ(ListModel(), before);
  }
  std::filesystem::remove(dir_ / "model/config.json");  // what a save that was killed may leave
  EXPECT_TRUE(SaveAdapterFiles(dir_ / "model", adapters, FileDType::kF32).ok());
  EXPECT_TRUE(SaveAdapterFiles(dir_ / "model", adapters, FileDType::kF32).ok()) << "adapters are replaced";
}

TEST_F(SavedModelTest, UnwritablePlaceIsAClearError) {
  std::ofstream(dir_ / "model") << "a file";
  const absl::Status status = Save();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir_ / "model"));
}

TEST_F(SavedModelTest, AnAliasIsReadWhereTheNameIsMissing) {
  ASSERT_TRUE(Save().ok());
  std::vector<float> loaded;
  map_[0].others = {{"no such", 0, {}}, {"wte", 0, map_[0].shape}};
  map_[0].name = "transformer.wte";
  EXPECT_TRUE(Load(&loaded).ok());
  EXPECT_EQ(loaded, values_);
}

// Experts as transformers keeps them in memory: those of a layer in one tensor, gate above up.
TEST_F(SavedModelTest, RowsOfAStackedTensorAreRead) {
  layout_ = ParameterLayout({{.name = "a", .shape = {4, 3}}, {.name = "b", .shape = {4, 3}}}, {"all"});
  map_.clear();
  for (const int parameter : {0, 1}) {
    for (const int64_t row : {0, 2}) {
      const std::string name = absl::StrCat(parameter, row == 0 ? ".gate" : ".up");
      map_.push_back({name, parameter, row, 2, false, {2, 3}, 0, {{"stacked", parameter * 4 + row, {2, 4, 3}}}});
    }
  }
  std::string bytes;
  std::vector<float> expected;
  for (int i = 0; i < 24; ++i) {
    bytes += {'\0', static_cast<char>(0x40 + i)};  // bf16
    expected.push_back(std::bit_cast<float>(static_cast<uint32_t>(0x40 + i) << 24));
  }
  std::filesystem::create_directories(dir_ / "model");
  const auto load = [&](const std::string& shape) {
    WriteRawFile(dir_ / "model/model.safetensors",
                 R"({"stacked":{"dtype":"BF16","shape":)" + shape + R"(,"data_offsets":[0,48]}})", bytes);
    values_.assign(24, 0);
    return LoadWeights(dir_ / "model", layout_, map_, nullptr, absl::MakeSpan(values_));
  };
  EXPECT_TRUE(load("[2,4,3]").ok());
  EXPECT_EQ(values_, expected);
  EXPECT_THAT(std::string(load("[4,2,3]").message()), HasSubstr("[2, 4, 3]"));
}

/// Two experts, each of `width` gates above as many other rows, of `cols` values, with biases.
ParameterLayout ExpertsLayout(int64_t width, int64_t cols) {
  std::vector<ParameterSpec> parameters;
  for (const std::string expert : {"0", "1"}) {
    parameters.push_back({.name = expert + ".weight", .shape = {2 * width, cols}});
    parameters.push_back({.name = expert + ".bias", .shape = {2 * width}});
  }
  return ParameterLayout(std::move(parameters), {"all"});
}

/// As gpt-oss has them: matrices transposed, rows of both halves in turns; the experts in no order.
TensorMap JoinedExperts(int64_t width, int64_t cols) {
  TensorMap map;
  for (const int parameter : {2, 3, 0, 1}) {
    const bool is_weight = parameter % 2 == 0;
    for (const int64_t half : {1, 0}) {
      map.push_back({.name = is_weight ? "gate_up" : "gate_up_bias",
                     .parameter = parameter,
                     .first_row = half * width,
                     .num_rows = width,
                     .transposed = true,
                     .shape = is_weight ? Shape{2, cols, 2 * width} : Shape{2, 2 * width},
                     .file_row = parameter / 2 * 2 * width + half,
                     .row_step = 2});
    }
  }
  return map;
}

TEST_F(SavedModelTest, ExpertsThatAreJoinedInTurnsAreWrittenAndRead) {
  constexpr int64_t kWidth = 700, kCols = 800;  // a matrix of more than a block
  layout_ = ExpertsLayout(kWidth, kCols);
  map_ = JoinedExperts(kWidth, kCols);
  values_.resize(static_cast<size_t>(layout_.elements()));
  for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i % 251) - 125;
  for (const auto& [dtype, max_file_bytes] : {std::pair(FileDType::kF32, 0), {FileDType::kBF16, 1 << 16}}) {
    dtype_ = dtype;
    max_file_bytes_ = static_cast<uint64_t>(max_file_bytes);
    ASSERT_TRUE(Save().ok());
    EXPECT_EQ(ListModel().size(), max_file_bytes > 0 ? 4u : 2u);  // both tensors in a file of their own, and an index
    std::vector<float> loaded;
    const absl::Status status = Load(&loaded);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(loaded, values_);
    const auto model = *ModelDirectory::Open(dir_ / "model");
    std::vector<float> weights(2 * kCols * 2 * kWidth), biases(2 * 2 * kWidth);
    ASSERT_TRUE(model.tensors().at("gate_up")->Read("gate_up", 0, absl::MakeSpan(weights)).ok());
    ASSERT_TRUE(model.tensors().at("gate_up_bias")->Read("gate_up_bias", 0, absl::MakeSpan(biases)).ok());
    for (int64_t expert = 0; expert < 2; ++expert) {
      const float* const weight = &values_[static_cast<size_t>(layout_.parameters()[2 * expert].offset)];
      const float* const bias = &values_[static_cast<size_t>(layout_.parameters()[2 * expert + 1].offset)];
      for (int64_t at = 0; at < 2 * kWidth; ++at) {  // in the file
        const int64_t row = at % 2 * kWidth + at / 2;
        ASSERT_EQ(biases[static_cast<size_t>(expert * 2 * kWidth + at)], bias[row]) << expert << " " << at;
        for (const int64_t col : {int64_t{0}, int64_t{1}, kCols - 2, kCols - 1}) {
          ASSERT_EQ(weights[static_cast<size_t>((expert * kCols + col) * 2 * kWidth + at)], weight[row * kCols + col])
              << expert << " " << at << " " << col;
        }
      }
    }
  }
}

TEST_F(SavedModelTest, AMapThatLeavesAPlaceOfAJoinedTensorEmptyIsOurBug) {
  layout_ = ExpertsLayout(2, 3);
  values_.resize(static_cast<size_t>(layout_.elements()));
  map_ = JoinedExperts(2, 3);
  EXPECT_TRUE(Save().ok());
  for (const auto change : std::vector<void (*)(ExternalTensor*)>{
           [](ExternalTensor* t) {
             t->shape = Shape{3, 3, 4};
           },                                           // one has room for three
           [](ExternalTensor* t) { t->file_row = 7; },  // beyond the last
           [](ExternalTensor* t) { t->file_row = 3; },  // in two matrices
           [](ExternalTensor* t) { t->row_step = 0; }, [](ExternalTensor* t) { t->transposed = false; }}) {
    map_ = JoinedExperts(2, 3);
    change(&map_[0]);
    EXPECT_TRUE(absl::IsInternal(Save())) << Save();
  }
  map_ = JoinedExperts(2, 3);
  for (ExternalTensor& tensor : map_) {
    if (tensor.name == "gate_up") tensor.shape = Shape{3, 3, 4};
  }
  EXPECT_TRUE(absl::IsInternal(Save())) << Save();
}

/// One expert of two rows of 64 values and its twin, whose rows take turns in a file in MXFP4.
class Mxfp4ModelTest : public SavedModelTest {
 protected:
  Mxfp4ModelTest() {
    layout_ = ParameterLayout({{.name = "gates", .shape = {2, 64}}, {.name = "others", .shape = {2, 64}}}, {"all"});
    map_.clear();
    for (const int parameter : {0, 1}) {
      map_.push_back(
          {.name = "w",
           .parameter = parameter,
           .num_rows = 2,
           .transposed = true,
           .shape = {1, 64, 4},
           .file_row = parameter,
           .others =
               {{.name = "w_blocks", .first_row = parameter, .shape = {1, 4, 64}, .row_step = 2, .scales = "w_scales"}},
           .row_step = 2});
    }
    values_.resize(256);
    for (size_t i = 0; i < 128; ++i) blocks_ += static_cast<char>(i * 37 % 256);
    std::filesystem::create_directories(dir_ / "model");
  }

  absl::Status LoadFile(const std::string& header, std::vector<float>* values = nullptr) {
    WriteRawFile(dir_ / "model/model.safetensors", header, blocks_ + scales_);
    return Load(values);
  }
  /// Value `col` of a row of the file.
  float Expected(size_t row, size_t col) const {
    constexpr float kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const auto byte = static_cast<uint8_t>(blocks_[row * 32 + col / 2]);
    const int bits = col % 2 == 0 ? byte & 15 : byte >> 4;
    const int exponent = static_cast<uint8_t>(scales_[row * 2 + col / 32]) - 127;
    return std::ldexp((bits & 8) != 0 ? -kValues[bits & 7] : kValues[bits & 7], exponent);
  }

  static constexpr char kBlocks[] = R"("w_blocks":{"dtype":"U8","shape":[1,4,2,16],"data_offsets":[0,128]})";
  static constexpr char kScales[] = R"("w_scales":{"dtype":"U8","shape":[1,4,2],"data_offsets":[128,136]})";
  std::string blocks_, scales_ = "\x7f\x80\x7d\x7e\x82\x7f\x70\x90";
};

TEST_F(Mxfp4ModelTest, ItsRowsAreRead) {
  std::vector<float> loaded;
  const absl::Status status = LoadFile(absl::StrCat("{", kBlocks, ",", kScales, "}"), &loaded);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t parameter = 0; parameter < 2; ++parameter) {
    for (size_t row = 0; row < 2; ++row) {
      for (size_t col = 0; col < 64; ++col) {
        EXPECT_EQ(loaded[(parameter * 2 + row) * 64 + col], Expected(2 * row + parameter, col)) << row << " " << col;
      }
    }
  }
  const auto reader = SavedModelReader::Open(dir_ / "model", layout_, map_, nullptr);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<float> part(90);  // ends within rows
  ASSERT_TRUE(reader->Read(135, absl::MakeSpan(part)).ok());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), loaded.begin() + 135));
}

TEST_F(Mxfp4ModelTest, WhatDoesNotFitIsNamed) {
  const auto error = [&](const std::string& header) { return std::string(LoadFile(header).message()); };
  const std::string blocks = kBlocks, scales = kScales, whole = absl::StrCat("{", blocks, ",", scales, "}");
  EXPECT_THAT(error("{" + blocks + R"(,"x_scales":{"dtype":"U8","shape":[1,4,2],"data_offsets":[128,136]}})"),
              AllOf(HasSubstr("\"w_scales\" is missing"), HasSubstr("\"x_scales\" is unexpected")));
  EXPECT_THAT(error(R"({"x":{"dtype":"U8","shape":[128],"data_offsets":[0,128]},)" + scales + "}"),
              AllOf(HasSubstr("\"w\" is missing"), HasSubstr("\"w_scales\" is unexpected")));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_THAT(error(changed("[1,4,2,16]", "[1,2,4,16]")),
              HasSubstr("\"w_blocks\" has shape [1, 2, 4, 16]; expected [1, 4, 2, 16]"));
  EXPECT_THAT(error(changed("[1,4,2]", "[1,8]")), HasSubstr("\"w_scales\" has shape [1, 8]; expected [1, 4, 2]"));
  EXPECT_THAT(error(changed("U8", "I8")), HasSubstr("\"w_blocks\" has dtype \"I8\"; U8 is expected"));
  const std::string other = R"("w":{"dtype":"BF16","shape":[1,64,4],"data_offsets":[136,648]})";
  scales_ += std::string(512, '\0');
  EXPECT_THAT(error(absl::StrCat("{", blocks, ",", scales, ",", other, "}")),
              ::testing::EndsWith(": 1 problem\n  tensor \"w\" is there a second time, as \"w_blocks\" and "
                                  "\"w_scales\": remove one of the two forms from the files"));
  scales_.resize(8);
  scales_[5] = '\xff';
  const absl::Status not_a_number = LoadFile(whole);
  EXPECT_EQ(not_a_number.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(not_a_number.message()), HasSubstr("\"w_blocks\": value 32 of row 2 is NaN or infinite"));
}

TEST_F(SavedModelTest, ADuplicateMustHaveTheSameValues) {
  layout_ = ParameterLayout({{.name = "w", .shape = {2, 1}}}, {"all"});
  map_ = {{"w", 0, 0, 2, false, {2, 1}, 0, {}, "head"}};
  values_.resize(2);
  const auto save = [&](const std::string& shape, const std::string& head) {
    WriteRawFile(dir_ / "model/model.safetensors",
                 R"({"w":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},)"
                 R"("head":{"dtype":"BF16","shape":)" +
                     shape + R"(,"data_offsets":[4,8]}})",
                 std::string("\x80\x3f\x80\x3f") + head);
  };
  std::filesystem::create_directories(dir_ / "model");
  const auto load = [&] {
    std::vector<float> loaded(2);
    return LoadWeights(
        dir_ / "model", layout_, map_, [](const std::string& name) { return name == "head"; }, absl::MakeSpan(loaded));
  };
  save("[2,1]", "\x80\x3f\x80\x3f");
  EXPECT_TRUE(load().ok()) << load();
  save("[2,1]", "\x80\x3f\x81\x3f");
  EXPECT_THAT(std::string(load().message()), HasSubstr("\"head\" differs from \"w\""));
  save("[1,2]", "\x80\x3f\x80\x3f");
  EXPECT_THAT(std::string(load().message()), HasSubstr("\"head\" differs from \"w\""));
}

TEST_F(SavedModelTest, AllProblemsAreNamedAtOnce) {
  WriteTensors("model.safetensors", {{"wte", FileDType::kF32, {4, 7}},
                                     {"q", FileDType::kF32, {2, 4}},
                                     {"k", FileDType::kF32, {8}},
                                     {"mask", FileDType::kF32, {1}},
                                     {"what", FileDType::kF32, {1}}});
  const absl::Status status = Load();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("9 problems"), HasSubstr("\"wte\" has shape [4, 7]; expected [7, 4]"),
                    HasSubstr("\"k\" has shape [8]; expected [2, 4]"), HasSubstr("\"experts.1\" is missing"),
                    HasSubstr("\"what\" is unexpected"), Not(HasSubstr("mask")), Not(HasSubstr("\"q\""))));

  std::vector<SafetensorsWriter::Entry> many;
  for (int i = 0; i < 500; ++i) many.push_back({absl::StrCat("extra.", i), FileDType::kF32, {1}});
  WriteTensors("model.safetensors", many);
  const std::string message(Load().message());
  EXPECT_THAT(message, AllOf(HasSubstr("509 problems"), HasSubstr("and 499 more")));
  EXPECT_LT(message.size(), 2000u);
}

TEST_F(SavedModelTest, IntegerWeightsAreAProblemIgnorableOnesAreNot) {
  ASSERT_TRUE(Save().ok());
  layout_ = ParameterLayout({{.name = "w", .shape = {2}}}, {"all"});
  map_ = {{"w", 0, 0, 2, false, {2}}};
  values_.resize(2);
  WriteRawFile(dir_ / "model/model.safetensors",
               R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[8,11]}})",
               std::string(11, '\0'));
  EXPECT_TRUE(Load().ok());
  WriteRawFile(dir_ / "model/model.safetensors", R"({"w":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})",
               std::string(8, '\0'));
  EXPECT_THAT(std::string(Load().message()), HasSubstr("\"w\" has dtype \"I32\""));
}

TEST_F(SavedModelTest, NanInAFileIsNamed) {
  layout_ = ParameterLayout({{.name = "w", .shape = {2}}}, {"all"});
  map_ = {{"w", 0, 0, 2, false, {2}}};
  values_.resize(2);
  std::filesystem::create_directories(dir_ / "model");
  WriteRawFile(dir_ / "model/model.safetensors", R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
               std::string("\0\0\xc0\x7f", 4));
  EXPECT_THAT(std::string(Load().message()),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("\"w\": element 1 is NaN")));
}

TEST_F(SavedModelTest, WeightsOfAPickleAreNotRead) {
  std::filesystem::create_directories(dir_ / "model");
  for (const std::string pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    const std::string file = dir_ / ("model/" + pickle);
    std::ofstream(file) << "";
    EXPECT_THAT(std::string(Load().message()), HasSubstr("its weights are in a " + pickle + ", which is not read"));
    std::filesystem::remove(file);
  }
}

TEST_F(SavedModelTest, AnEmptyDirectoryIsNotAModel) {
  std::filesystem::create_directories(dir_ / "model");
  EXPECT_TRUE(absl::IsNotFound(Load()));
  std::filesystem::remove(dir_ / "model");
  EXPECT_TRUE(absl::IsNotFound(Load()));
}

TEST_F(SavedModelTest, AMapThatDoesNotFitTheLayoutIsOurBug) {
  map_.pop_back();
  EXPECT_TRUE(absl::IsInternal(Save()));
  EXPECT_TRUE(absl::IsInternal(Load()));
  map_ = MakeMap();
  map_[1].first_row = 1;  // overlaps q
  EXPECT_TRUE(absl::IsInternal(Save()));
  map_ = MakeMap();
  map_[3].shape = Shape{2, 4};  // transposed, but not said so
  EXPECT_TRUE(absl::IsInternal(Save()));
}

class ShardsTest : public SavedModelTest {
 protected:
  ShardsTest() {
    layout_ = ParameterLayout({{.name = "a", .shape = {2, 3}}, {.name = "b", .shape = {5}}}, {"all"});
    map_ = {{"a", 0, 0, 2, false, {2, 3}}, {"b", 1, 0, 5, false, {5}}};
    values_.assign(11, 1.f);
    WriteTensors("one.safetensors", {{"a", FileDType::kF32, {2, 3}}});
    WriteTensors("two.safetensors", {{"b", FileDType::kBF16, {5}}, {"mask", FileDType::kF32, {1}}});
  }

  std::string LoadMessage() { return std::string(Load().message()); }
};

TEST_F(ShardsTest, AreReadTogether) {
  WriteIndex(R"({"metadata":{"total_size":38,"x":[1,{"y":null}]},)"
             R"("weight_map":{"a":"one.safetensors","b":"two.safetensors","mask":"two.safetensors"}})");
  std::vector<float> loaded;
  const absl::Status status = Load(&loaded);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(loaded, values_);
}

TEST_F(ShardsTest, IndexAndShardsMustAgree) {
  WriteIndex(R"({"weight_map":{"a":"two.safetensors","b":"two.safetensors","c":"one.safetensors"}})");
  EXPECT_THAT(LoadMessage(),
              AllOf(HasSubstr("\"a\" is not in \"two.safetensors\""), HasSubstr("\"c\" is not in \"one.safetensors\""),
                    HasSubstr("\"mask\" of \"two.safetensors\" is not listed")));
  WriteIndex(R"({"weight_map":{"a":"gone.safetensors"}})");
  EXPECT_TRUE(absl::IsNotFound(Load()));
  EXPECT_THAT(LoadMessage(), HasSubstr("gone.safetensors"));
}

TEST_F(ShardsTest, BadIndexesAreRefused) {
  for (const char* json :
       {"", "[]", "{}", "{\"weight_map\":[]}", "{\"weight_map\":{\"a\":1}}", "{\"weight_map\":\"a\"}",
        "{\"weight_map\":{\"a\":\"f\",\"a\":\"g\"}}", "{\"weight_map\":{},\"weight_map\":{}}",
        "{\"weight_map\":{\"a\":{\"b\":\"c\"}}}", "{\"weight_map\":{}"}) {
    WriteIndex(json);
    EXPECT_TRUE(absl::IsInvalidArgument(Load())) << json << "\n" << Load();
    EXPECT_THAT(LoadMessage(), HasSubstr("model.safetensors.index.json")) << json;
  }
  WriteIndex("{\"metadata\":" + std::string(100000, '['));
  EXPECT_TRUE(absl::IsInvalidArgument(Load()));
}

TEST_F(ShardsTest, NamesStayInsideTheDirectory) {
  WriteTensors("../outside.safetensors", {{"a", FileDType::kF32, {2, 3}}, {"b", FileDType::kF32, {5}}});
  std::filesystem::create_directories(dir_ / "model/sub");
  WriteTensors("sub/s.safetensors", {{"a", FileDType::kF32, {2, 3}}, {"b", FileDType::kF32, {5}}});
  std::filesystem::create_symlink("../outside.safetensors", dir_ / "model/link.safetensors");
  std::filesystem::create_symlink("one.safetensors", dir_ / "model/inner.safetensors");
  const auto index = [](const std::string& file) {
    return R"({"weight_map":{"a":")" + file + R"(","b":")" + file + "\"}}";
  };
  for (const std::string& file :
       {std::string("../outside.safetensors"), dir_ / "outside.safetensors", std::string("sub/s.safetensors"),
        std::string(".."), std::string("."), std::string(), std::string("one.safetensors\\u0000")}) {
    WriteIndex(index(file));
    EXPECT_TRUE(absl::IsInvalidArgument(Load())) << file;
    EXPECT_THAT(LoadMessage(), HasSubstr("is no file name")) << file;
  }
  WriteIndex(index("link.safetensors"));
  EXPECT_THAT(LoadMessage(), HasSubstr("outside of the directory"));
  WriteIndex(R"({"weight_map":{"a":"inner.safetensors","b":"two.safetensors","mask":"two.safetensors"}})");
  EXPECT_TRUE(Load().ok()) << Load();
}

// <repository>/snapshots/<revision>/shard -> ../../blobs/<hash>
TEST_F(ShardsTest, LinksIntoTheBlobsOfAHubCacheAreFollowed) {
  std::filesystem::create_directories(dir_ / "hub/blobs");
  std::filesystem::create_directories(dir_ / "hub/snapshots/r1");
  for (const char* shard : {"one.safetensors", "two.safetensors"}) {
    std::filesystem::rename(dir_ / ("model/" + std::string(shard)), dir_ / ("hub/blobs/" + std::string(shard)));
    std::filesystem::create_symlink("../../blobs/" + std::string(shard),
                                    dir_ / ("hub/snapshots/r1/" + std::string(shard)));
  }
  WriteIndex(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors","mask":"two.safetensors"}})");
  std::filesystem::rename(dir_ / "model/model.safetensors.index.json",
                          dir_ / "hub/snapshots/r1/model.safetensors.index.json");
  std::filesystem::remove_all(dir_ / "model");
  std::filesystem::create_symlink("hub/snapshots/r1", dir_ / "model");
  EXPECT_TRUE(Load().ok()) << Load();
}

}  // namespace
}  // namespace holdfast
