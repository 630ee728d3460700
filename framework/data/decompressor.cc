#include "framework/data/decompressor.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <cstddef>
#include <new>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

absl::Status Damaged(const char* format, const char* what) {
  return absl::DataLossError(absl::StrCat("damaged ", format, ": ", what));
}

absl::Status CutShort(const char* format) {
  return absl::DataLossError(absl::StrCat("damaged ", format, ": its end is missing"));
}

class GzipDecompressor final : public Decompressor {
 public:
  GzipDecompressor() {
    constexpr int kGzipWithItsLargestWindow = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipWithItsLargestWindow) != Z_OK) throw std::bad_alloc();
  }
  ~GzipDecompressor() override { inflateEnd(&stream_); }
  GzipDecompressor(const GzipDecompressor&) = delete;
  GzipDecompressor& operator=(const GzipDecompressor&) = delete;

  absl::Status Advance(absl::Span<const char>& in, absl::Span<char>& out) override {
    while (true) {
      if (is_between_members_) {
        while (!in.empty() && in[0] == '\0') in.remove_prefix(1);  // up to a block of a tape: gzip takes it, too
        if (in.empty()) return absl::OkStatus();
        HOLDFAST_CHECK(inflateReset(&stream_) == Z_OK);
        is_between_members_ = false;
      }
      const int code = Inflate(in, out);
      is_between_members_ = code == Z_STREAM_END;
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {  // the last: one of both is empty
        return Damaged("gzip", stream_.msg != nullptr ? stream_.msg : "it cannot be read");
      }
      if (in.empty() || out.empty()) return absl::OkStatus();
    }
  }

  absl::Status CheckEnd() const override { return is_between_members_ ? absl::OkStatus() : CutShort("gzip"); }

 private:
  int Inflate(absl::Span<const char>& in, absl::Span<char>& out) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));  // zlib only reads it
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int code = inflate(&stream_, Z_NO_FLUSH);
    in.remove_prefix(in.size() - stream_.avail_in);
    out.remove_prefix(out.size() - stream_.avail_out);
    return code;
  }

  z_stream stream_ = {};
  bool is_between_members_ = false;
};

class ZstdDecompressor final : public Decompressor {
 public:
  ZstdDecompressor() {
    if (context_ == nullptr) throw std::bad_alloc();
  }

  absl::Status Advance(absl::Span<const char>& in, absl::Span<char>& out) override {
    while (!(in.empty() && is_between_frames_)) {
      ZSTD_inBuffer input{in.data(), in.size(), 0};
      ZSTD_outBuffer output{out.data(), out.size(), 0};
      const size_t code = ZSTD_decompressStream(context_.get(), &output, &input);
      in.remove_prefix(input.pos);
      out.remove_prefix(output.pos);
      if (ZSTD_isError(code) != 0) return ErrorOf(code);
      is_between_frames_ = code == 0;
      if (in.empty() || out.empty()) break;
    }
    return absl::OkStatus();
  }

  absl::Status CheckEnd() const override { return is_between_frames_ ? absl::OkStatus() : CutShort("zstd"); }

 private:
  static absl::Status ErrorOf(size_t code) {
    if (ZSTD_getErrorCode(code) != ZSTD_error_frameParameter_windowTooLarge) {
      return Damaged("zstd", ZSTD_getErrorName(code));
    }
    return absl::InvalidArgumentError(
        "zstd that takes more than 128 MiB of memory, as --long=28 and more make it; pipe it in: zstd -dc --long=31 "
        "...");
  }

  struct Free {
    void operator()(ZSTD_DStream* context) const { ZSTD_freeDStream(context); }
  };
  std::unique_ptr<ZSTD_DStream, Free> context_{ZSTD_createDStream()};
  bool is_between_frames_ = false;
};

/// Also of what zstd passes over, with which the files of pzstd begin.
bool BeginsAsZstd(std::string_view start) {
  return start.substr(0, 4) == "\x28\xb5\x2f\xfd" ||
         (start.size() >= 4 && (start[0] & 0xf0) == 0x50 && start.substr(1, 3) == "\x2a\x4d\x18");
}

}  // namespace

std::unique_ptr<Decompressor> MakeDecompressor(std::string_view start) {
  if (start.substr(0, 2) == "\x1f\x8b") return std::make_unique<GzipDecompressor>();
  if (BeginsAsZstd(start)) return std::make_unique<ZstdDecompressor>();
  return nullptr;
}

}  // namespace holdfast
