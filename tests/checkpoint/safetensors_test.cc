// What is written is read back bit by bit, at any cut into pieces; the reader refuses every kind of broken file with
// the right code and the tensor's name, and a broken write leaves the old file.

#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include "tests/checkpoint/raw_file.h"
#include "tests/framework/base/file_size_limit.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

std::vector<float> RandomValues(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 256) - 128);  // exact in any dtype
  return values;
}

TEST(SafetensorsTest, RoundTripInPieces) {
  const TemporaryDirectory dir;
  const size_t n = 3 * 100003;  // several pieces of the writer, and an odd number of bytes before the next tensor
  const std::vector<float> a = RandomValues(n, 1), b = RandomValues(n, 2), c = RandomValues(n, 3);
  auto writer = SafetensorsWriter::Create(dir / "f",
                                          {{"b.bf16", FileDType::kBF16, {3, 100003}},
                                           {"nothing", FileDType::kF32, {0, 5}},
                                           {"f16", FileDType::kF16, {100003, 3}},
                                           {"scalar", FileDType::kF32, {}},
                                           {"a \"quoted\"\n\xc3\xa9", FileDType::kF32, {3, 100003}},
                                           {"last empty", FileDType::kF16, {0}}},
                                          {{"format", "pt"}, {"k", "\"v\\"}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const auto append = [&](const std::vector<float>& values, size_t piece) {
    for (size_t i = 0; i < values.size(); i += piece) {
      const absl::Status status = (*writer)->Append(absl::MakeConstSpan(values).subspan(i, piece));
      ASSERT_TRUE(status.ok()) << status;
    }
  };
  append(b, 1000);
  append(c, n);
  append({7.5f}, 1);
  append(a, 77777);
  ASSERT_TRUE((*writer)->Finish().ok());

  auto reader = SafetensorsReader::Open(dir / "f");
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"k", "\"v\\"}}));
  EXPECT_EQ((*reader)->entries().size(), 6u);
  EXPECT_EQ((*reader)->entries().at("f16").shape, (std::vector<int64_t>{100003, 3}));
  const auto read = [&](const std::string& name, size_t first, size_t count) {
    std::vector<float> out(count);
    const absl::Status status = (*reader)->Read(name, static_cast<int64_t>(first), absl::MakeSpan(out));
    EXPECT_TRUE(status.ok()) << status;
    return out;
  };
  EXPECT_EQ(read("b.bf16", 0, n), b);
  EXPECT_EQ(read("f16", 0, n), c);
  EXPECT_EQ(read("a \"quoted\"\n\xc3\xa9", 0, n), a);
  EXPECT_EQ(read("scalar", 0, 1), std::vector<float>{7.5f});
  EXPECT_EQ(read("nothing", 0, 0), std::vector<float>{});
  EXPECT_EQ(read("f16", 5, 9), std::vector<float>(c.begin() + 5, c.begin() + 14));
  std::vector<float> out(2);
  EXPECT_TRUE(absl::IsOutOfRange((*reader)->Read("f16", static_cast<int64_t>(n) - 1, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsOutOfRange((*reader)->Read("f16", -1, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsOutOfRange((*reader)->Read("f16", INT64_MAX, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsNotFound((*reader)->Read("g16", 0, absl::MakeSpan(out))));
}

TEST(SafetensorsTest, DataBeginsAtAMultipleOfEight) {
  const TemporaryDirectory dir;
  for (size_t length = 1; length < 20; ++length) {
    auto writer = *SafetensorsWriter::Create(dir / "f", {{std::string(length, 'x'), FileDType::kF32, {1}}}, {});
    ASSERT_TRUE(writer->Append({1.f}).ok() && writer->Finish().ok());
    EXPECT_EQ((std::filesystem::file_size(dir / "f") - 4) % 8, 0u);
  }
}

TEST(SafetensorsWriterTest, RefusesMisuse) {
  const TemporaryDirectory dir;
  const auto create = [&](std::vector<SafetensorsWriter::Entry> entries) {
    return SafetensorsWriter::Create(dir / "f", std::move(entries), {}).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(create({{"a", FileDType::kF32, {1}}, {"a", FileDType::kF32, {1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(create({{"__metadata__", FileDType::kF32, {1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(create({{"a", FileDType::kOther, {1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(create({{"a", FileDType::kF32, {-1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(create({{"a", FileDType::kF32, {int64_t{1} << 40, int64_t{1} << 40}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(create({{"a\xff", FileDType::kF32, {1}}})));

  auto writer = *SafetensorsWriter::Create(dir / "f", {{"a", FileDType::kF32, {3}}, {"b", FileDType::kF16, {1}}}, {});
  EXPECT_TRUE(absl::IsInvalidArgument(writer->Append({1, 2, 3, 4})));  // would run into "b"
  ASSERT_TRUE(writer->Append({1, 2}).ok());
  const absl::Status early = writer->Finish();
  EXPECT_TRUE(absl::IsInvalidArgument(early));
  EXPECT_THAT(std::string(early.message()), HasSubstr("\"a\" has 2 of 3"));
  const absl::Status nan = writer->Append({NAN});
  EXPECT_TRUE(absl::IsInvalidArgument(nan));
  EXPECT_THAT(std::string(nan.message()), HasSubstr("tensor \"a\": element 2 is nan"));
  ASSERT_TRUE(writer->Append({3}).ok());
  EXPECT_THAT(std::string(writer->Append({70000}).message()), HasSubstr("cannot be saved as F16"));
  ASSERT_TRUE(writer->Append({4}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(writer->Append({5})));
  EXPECT_TRUE(writer->Finish().ok());
}

TEST(SafetensorsWriterTest, FullDiskAndAbandonmentLeaveTheOldFile) {
  const TemporaryDirectory dir;
  WriteRawFile(dir / "f", "{}", "");
  {
    const FileSizeLimit limit(1 << 16);
    const auto writer = SafetensorsWriter::Create(dir / "f", {{"a", FileDType::kF32, {1 << 20}}}, {});
    EXPECT_TRUE(absl::IsResourceExhausted(writer.status())) << writer.status();
  }
  {
    auto writer = *SafetensorsWriter::Create(dir / "f", {{"a", FileDType::kF32, {1 << 20}}}, {});
    ASSERT_TRUE(writer->Append(std::vector<float>(1000, 1.f)).ok());
  }
  EXPECT_EQ(dir.List(), std::vector<std::string>{"f"});
  EXPECT_TRUE((*SafetensorsReader::Open(dir / "f"))->entries().empty());
}

struct BrokenFile {
  const char* json;
  size_t data_bytes;
  absl::StatusCode code;
  const char* message;
};

TEST(SafetensorsReaderTest, RefusesBrokenHeaders) {
  const auto invalid = absl::StatusCode::kInvalidArgument, lost = absl::StatusCode::kDataLoss;
  const std::vector<BrokenFile> cases = {
      {"", 0, invalid, "does not begin"},
      {" {}", 0, invalid, "does not begin"},
      {"{}", 4, invalid, "4 bytes of data belong to no tensor"},
      {"{} x", 0, invalid, "malformed JSON"},
      {"[]", 0, invalid, "does not begin"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, lost, "\"a\" ends at byte 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, invalid, "1 bytes of data"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, invalid, "\"a\": 4 bytes of data for F32 [2]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, invalid, "\"a\": its data ends before"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, invalid, "\"a\" begins at byte 4; expected 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, invalid, "\"b\" begins at byte 2, inside the tensor before it"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, invalid, "inside the tensor before it"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       12, invalid, "\"b\" begins at byte 8; expected 4"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, invalid,
       "too many elements"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, invalid,
       "0 bytes of data for"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0, invalid, "beyond 2^63"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, invalid, "negative"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, invalid, "not an integer"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, invalid, "an array is not expected"},
      {R"({"a":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})", 4, invalid, "an object is not expected"},
      {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, invalid, "a number is not expected"},
      {R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4, invalid, "an array is not expected"},
      {R"({"a":{"dtype":null,"shape":[1],"data_offsets":[0,4]}})", 4, invalid, "null"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, invalid, "two data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, invalid, "more than two"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, invalid, "\"a\": needs dtype"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, invalid, "unknown field \"x\""},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, invalid, "field \"dtype\" twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, invalid, "tensor \"a\" twice"},
      {R"({"a":[]})", 0, invalid, "an array is not expected"},
      {R"({"a":"b"})", 0, invalid, "a string is not expected"},
      {R"({"__metadata__":{"a":1}})", 0, invalid, "a number is not expected"},
      {R"({"__metadata__":{"a":{}}})", 0, invalid, "an object is not expected"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, invalid, "metadata \"a\" twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, invalid, "__metadata__ twice"},
      {"{\"\xff\":{}}", 0, invalid, "invalid UTF-8"},
  };
  const TemporaryDirectory dir;
  for (const BrokenFile& broken : cases) {
    WriteRawFile(dir / "f", broken.json, std::string(broken.data_bytes, '\0'));
    const absl::Status status = SafetensorsReader::Open(dir / "f").status();
    EXPECT_EQ(status.code(), broken.code) << broken.json << "\n" << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(broken.message)) << broken.json;
    EXPECT_THAT(std::string(status.message()), HasSubstr(dir / "f"));
  }
  WriteRawFile(dir / "f", std::string(1, '{') + std::string(1000000, '['), "");
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsReader::Open(dir / "f").status()));
}

TEST(SafetensorsReaderTest, RefusesBadLengths) {
  const TemporaryDirectory dir;
  const auto open = [&](const std::string& bytes) {
    std::ofstream(dir / "f", std::ios::binary) << bytes;
    return SafetensorsReader::Open(dir / "f").status();
  };
  EXPECT_TRUE(absl::IsDataLoss(open("")));
  EXPECT_TRUE(absl::IsDataLoss(open("1234567")));
  EXPECT_TRUE(absl::IsDataLoss(open(LittleEndian(3) + "{}")));
  EXPECT_TRUE(absl::IsInvalidArgument(open(LittleEndian(~uint64_t{0}) + "{}")));
  EXPECT_TRUE(absl::IsInvalidArgument(open("this is a text and no model")));
  EXPECT_TRUE(open(LittleEndian(2) + "{}").ok());
  EXPECT_TRUE(absl::IsNotFound(SafetensorsReader::Open(dir / "none").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsReader::Open(dir.path()).status()));
}

TEST(SafetensorsReaderTest, OtherDTypesAreListedButNotRead) {
  const TemporaryDirectory dir;
  WriteRawFile(dir / "f",
               R"({"i":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
               R"("new":{"dtype":"F6_Q9","shape":[3],"data_offsets":[16,19]},)"
               R"("x":{"dtype":"F32","shape":[1],"data_offsets":[19,23]}}  )",
               std::string(23, '\0'));
  const auto reader = SafetensorsReader::Open(dir / "f");
  ASSERT_TRUE(reader.ok()) << reader.status();
  float value = 1;
  EXPECT_TRUE((*reader)->Read("x", 0, absl::MakeSpan(&value, 1)).ok());  // its data is not aligned
  EXPECT_EQ(value, 0);
  const absl::Status status = (*reader)->Read("new", 0, absl::MakeSpan(&value, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"new\" has dtype \"F6_Q9\""));
  EXPECT_TRUE(absl::IsInvalidArgument((*reader)->Read("i", 0, absl::MakeSpan(&value, 1))));
}

TEST(SafetensorsReaderTest, BytesOfAnyTensorAreRead) {
  const TemporaryDirectory dir;
  WriteRawFile(dir / "f",
               R"({"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4]},)"
               R"("b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})",
               "abcdefg");
  const auto reader = *SafetensorsReader::Open(dir / "f");
  std::vector<uint8_t> out(2);
  ASSERT_TRUE(reader->ReadBytes("b", 1, absl::MakeSpan(out)).ok());
  EXPECT_EQ(out, (std::vector<uint8_t>{'f', 'g'}));
  ASSERT_TRUE(reader->ReadBytes("a", 2, absl::MakeSpan(out)).ok());
  EXPECT_EQ(out, (std::vector<uint8_t>{'c', 'd'}));
  for (const int64_t first : {int64_t{-1}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_TRUE(absl::IsOutOfRange(reader->ReadBytes("b", first, absl::MakeSpan(out)))) << first;
  }
  EXPECT_TRUE(absl::IsNotFound(reader->ReadBytes("c", 0, absl::MakeSpan(out))));
}

// More runs than are fetched ahead, and the last one ends with the tensor.
TEST(SafetensorsReaderTest, RunsOfATensorAreRead) {
  constexpr int64_t kRuns = 40, kStep = 90, kLength = 70;
  std::vector<float> values(20 + (kRuns - 1) * kStep + kLength), expected, out(kRuns * kLength);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (int64_t run = 0; run < kRuns; ++run) {
    for (int64_t i = 0; i < kLength; ++i) expected.push_back(static_cast<float>(20 + run * kStep + i));
  }
  const TemporaryDirectory dir;
  const auto read = [&](const ElementRuns& runs) {
    const std::string size = std::to_string(values.size()), bytes = std::to_string(4 * values.size());
    WriteRawFile(dir / "f", R"({"w":{"dtype":"F32","shape":[)" + size + R"(],"data_offsets":[0,)" + bytes + "]}}",
                 std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size()));
    return (*SafetensorsReader::Open(dir / "f"))->ReadRuns("w", runs, absl::MakeSpan(out));
  };
  ASSERT_TRUE(read({.first = 20, .step = kStep, .length = kLength}).ok());
  EXPECT_EQ(out, expected);
  EXPECT_TRUE(absl::IsOutOfRange(read({.first = 21, .step = kStep, .length = kLength})));
  values[20 + 30 * kStep - 1] = values[20 + 30 * kStep + kLength] = NAN;  // between two of them
  EXPECT_TRUE(read({.first = 20, .step = kStep, .length = kLength}).ok());
  values[20 + 30 * kStep + 7] = NAN;
  EXPECT_THAT(std::string(read({.first = 20, .step = kStep, .length = kLength}).message()),
              HasSubstr("tensor \"w\": element 2727 is NaN or infinite"));
}

TEST(SafetensorsReaderTest, NanIsRefusedWithItsPlace) {
  const TemporaryDirectory dir;
  const std::vector<float> values = {1, 2, INFINITY, 4};
  WriteRawFile(dir / "f", R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
               std::string(reinterpret_cast<const char*>(values.data()), 16));
  const auto reader = *SafetensorsReader::Open(dir / "f");
  std::vector<float> out(2);
  EXPECT_TRUE(reader->Read("w", 0, absl::MakeSpan(out)).ok());
  const absl::Status status = reader->Read("w", 1, absl::MakeSpan(out));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;  // a worker ends the run for it, and does not try again
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor \"w\": element 2 is NaN or infinite"));
}

}  // namespace
}  // namespace holdfast
