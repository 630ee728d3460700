// Proves that compressed inputs, of any number of members or frames, are read as what they hold, in steps of bounded
// size, and that one that is damaged or cut short anywhere is an error that names it and leaves no file.

#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "framework/data/document_reader.h"
#include "framework/data/pack.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/data/token_test_files.h"

namespace holdfast {
namespace {

using std::string_literals::operator""s;
using ::testing::HasSubstr;

std::string GzipOf(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string ZstdFrame(const std::string& text, bool checksum) {
  const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, checksum ? 1 : 0);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const size_t size = ZSTD_compress2(context.get(), out.data(), out.size(), text.data(), text.size());
  EXPECT_FALSE(ZSTD_isError(size));
  out.resize(size);
  return out;
}

/// As the program zstd writes it.
std::string ZstdOf(const std::string& text) { return ZstdFrame(text, /*checksum=*/true); }

struct Compression {
  std::string name;  // the end of a file's
  std::function<std::string(const std::string&)> of;
};
const Compression kCompressions[] = {{".gz", GzipOf}, {".zst", ZstdOf}};

class CompressedTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& content) {
    WriteText(directory_ / name, content);
    return directory_ / name;
  }
  absl::StatusOr<PackReport> Run(const std::string& input, PackOptions options = {}) {
    options.paths.inputs = {input};
    options.paths.output = out_;
    options.paths.overwrite = true;
    LocalFileAccess files;
    return Pack(*bytes_, options, files);
  }
  std::string Packed() { return bytes_->Decode(ReadTokens(out_)); }
  // Packing must fail so, and leave only its input.
  absl::Status ErrorOf(const std::string& input, PackOptions options = {}) {
    const std::vector<std::string> before = directory_.List();
    const absl::Status status = Run(input, std::move(options)).status();
    EXPECT_EQ(directory_.List(), before);
    EXPECT_THAT(std::string(status.message()), HasSubstr(input));
    return status;
  }

  TemporaryDirectory directory_;
  std::string out_ = directory_ / "out.bin";
  std::unique_ptr<const Tokenizer> bytes_ = *OpenTokenizer("bytes");
};

/// More than 3 MiB that compress badly.
std::string RandomLines() {
  std::string lines;
  for (uint32_t random = 1; lines.size() < 3'300'000;) {
    lines += "{\"text\": \"";
    for (int i = 0; i < 200; ++i) {
      random = random * 1664525 + 1013904223;
      lines += static_cast<char>('a' + (random >> 24) % 26);
    }
    lines += "\"}\n";
  }
  return lines;
}

TEST_F(CompressedTest, AFileIsPackedAsWhatItHolds) {
  const std::string lines = RandomLines();
  ASSERT_TRUE(Run(Write("plain.jsonl", lines)).ok());
  const std::vector<int32_t> documents = ReadTokens(out_);
  for (const Compression& compression : kCompressions) {
    const std::string stored = compression.of(lines);
    for (const std::string& name : {"a.jsonl" + compression.name, "a.txt" + compression.name}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(name + ", " + std::to_string(threads));
        int64_t read = 0, total = 0;
        const auto note = [&](int64_t done, int64_t of) { read = done, total = of; };
        const auto report = Run(Write(name, stored), {.threads = threads, .progress = note});
        ASSERT_TRUE(report.ok()) << report.status();
        EXPECT_EQ(report->input_bytes, lines.size()) << "of text";
        EXPECT_EQ(read, stored.size());
        EXPECT_EQ(total, stored.size());
        EXPECT_TRUE(name[2] == 'j' ? ReadTokens(out_) == documents : Packed() == lines);
      }
    }
  }
}

TEST_F(CompressedTest, APipeIsKnownByItsContentToo) {
  const std::string lines = RandomLines(), pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const Compression& compression : kCompressions) {
    const std::jthread writes([&] { WriteText(pipe, compression.of(lines)); });
    ASSERT_TRUE(Run(pipe).ok()) << compression.name;
    EXPECT_TRUE(Packed() == lines) << compression.name;
  }
}

// As `cat` puts them together, tapes and pzstd write them.
TEST_F(CompressedTest, MembersAreReadOneAfterTheOther) {
  for (const Compression& compression : kCompressions) {
    const std::string a = compression.of("one t"), none = compression.of(""), b = compression.of("wo three");
    ASSERT_TRUE(Run(Write("a" + compression.name, a + none + b)).ok()) << compression.name;
    EXPECT_EQ(Packed(), "one two three") << compression.name;
  }
  const std::string passed_over = "\x50\x2a\x4d\x18\x03\x00\x00\x00xyz"s;
  ASSERT_TRUE(Run(Write("b.zst", passed_over + ZstdOf("one") + passed_over + ZstdOf(" two"))).ok());
  EXPECT_EQ(Packed(), "one two");
  ASSERT_TRUE(Run(Write("b.gz", GzipOf("one") + std::string(100, '\0'))).ok());
  EXPECT_EQ(Packed(), "one");
}

// All of the file was read, and what its last block becomes is more than there was room for.
TEST_F(CompressedTest, WhatIsStillToBeDecompressedAtTheEndIsNotLost) {
  const std::string text = "one" + std::string(kDocumentPieceBytes, 'b');
  const std::string stored = ZstdFrame("one", /*checksum=*/false) + ZstdFrame(text.substr(3), /*checksum=*/false);
  ASSERT_TRUE(Run(Write("a.zst", stored)).ok());
  EXPECT_TRUE(Packed() == text);
}

TEST_F(CompressedTest, AFileThatIsCutShortIsRefusedWhereverItIs) {
  for (const Compression& compression : kCompressions) {
    const std::string first = compression.of("a text that is long enough to be cut"),
                      both = first + compression.of("b");
    for (size_t size = 4; size < both.size(); ++size) {
      if (size == first.size()) continue;
      SCOPED_TRACE(compression.name + ", " + std::to_string(size));
      const absl::Status status = ErrorOf(Write("cut" + compression.name, both.substr(0, size)));
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("its end is missing"));
    }
  }
}

TEST_F(CompressedTest, ADamagedFileIsRefused) {
  for (const Compression& compression : kCompressions) {
    const std::string whole = compression.of(RandomLines());
    for (const size_t at : {whole.size() / 3, whole.size() - 3}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      const absl::Status status = ErrorOf(Write("damaged.jsonl" + compression.name, damaged));
      // What a flipped bit makes of a text may be no JSON before the checksum is read.
      EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsInvalidArgument(status)) << status;
      EXPECT_TRUE(absl::IsDataLoss(ErrorOf(Write("damaged.txt" + compression.name, damaged)))) << at;
    }
    const absl::Status followed = ErrorOf(Write("followed" + compression.name, compression.of("text") + "and more"));
    EXPECT_TRUE(absl::IsDataLoss(followed)) << followed;
  }
}

TEST_F(CompressedTest, ALineIsNotHeldBeyondItsLimit) {
  for (const Compression& compression : kCompressions) {
    const std::string piece = compression.of(std::string(1 << 20, 'a'));
    std::string bomb;
    for (int i = 0; i < 100; ++i) bomb += piece;
    ASSERT_LT(bomb.size(), 1 << 20) << "all of it comes with one read";
    const std::string path = Write("bomb.jsonl" + compression.name, bomb);
    LocalFileAccess files;
    std::stop_source stop;
    InputFile input = *InputFile::Open(files, path, stop.get_token());
    std::string text;
    for (bool more = true; more; text.clear()) {
      const auto read = input.ReadMore(1 << 16, text);
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_LE(text.size(), 1 << 16);
      more = *read;
    }
    EXPECT_EQ(input.text_bytes(), 100 << 20);
    InputFile stopped = *InputFile::Open(files, path, stop.get_token());
    ASSERT_TRUE(stopped.ReadMore(1 << 16, text).ok());
    stop.request_stop();
    EXPECT_TRUE(absl::IsCancelled(stopped.ReadMore(1 << 16, text).status())) << "of what was read already";
    const absl::Status status = ErrorOf(path);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(":1: line longer than"));
  }
}

// A frame that wants what may be looked back at to be 256 MiB: its header, and a block of one byte as it is.
TEST_F(CompressedTest, AZstdFrameThatTakesMuchMemoryIsRefused) {
  const std::string frame = "\x28\xb5\x2f\xfd\x00\x90\x09\x00\x00q"s;
  const absl::Status status = ErrorOf(Write("long.zst", frame));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("pipe it in: zstd -dc --long=31"));
  std::string common = frame;
  common[5] = '\x88';  // 128 MiB, as zstd -22 and --long make it
  ASSERT_TRUE(Run(Write("common.zst", common)).ok());
  EXPECT_EQ(Packed(), "q");
}

TEST_F(CompressedTest, WhatIsNoTextIsNotPackedFromWithin) {
  ASSERT_TRUE(Run(Write("good.txt", "good text")).ok());
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  const std::pair<std::string, std::string> cases[] = {{GzipOf("text"), "compressed twice"},
                                                       {ZstdOf("text"), "compressed twice"},
                                                       {tar, "tar -xOf"},
                                                       {"BZh91AY&SY...", "bzcat"},
                                                       {"\xfd"
                                                        "7zXZ\0..."s,
                                                        "xzcat"},
                                                       {"PAR1\x15\x04", "Parquet; write it as JSON Lines"},
                                                       {ReadText(out_), "a token file"}};
  for (const Compression& compression : kCompressions) {
    for (const auto& [content, says] : cases) {
      const absl::Status status = ErrorOf(Write("a.txt" + compression.name, compression.of(content)));
      EXPECT_THAT(std::string(status.message()), HasSubstr(says));
    }
    const std::string lines = Write("lines.json" + compression.name, compression.of("{\"text\": \"x\"}\n"));
    EXPECT_THAT(std::string(ErrorOf(lines).message()), HasSubstr("say what it is: --format jsonl"));
    ASSERT_TRUE(Run(lines, {.format = PackOptions::Format::kJsonl}).ok());
    EXPECT_EQ(Packed(), "x");
  }
}

}  // namespace
}  // namespace holdfast
