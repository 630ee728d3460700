#include "framework/data/pack.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "framework/base/file_descriptor.h"
#include "framework/base/in_order.h"
#include "framework/base/status.h"
#include "framework/data/document_reader.h"
#include "framework/data/line_batch.h"
#include "framework/data/token_file.h"

namespace holdfast {
namespace {

// Tokens on disk until their number, and so the place of the split, is known: a file without a name, which no crash can
// leave behind.
class TokenSpill {
 public:
  static absl::StatusOr<TokenSpill> Create(const std::string& directory, const std::string& output) {
    std::string name = directory + "/.holdfast-pack-XXXXXX";
    TokenSpill spill;
    spill.fd_ = FileDescriptor(mkostemp(name.data(), O_CLOEXEC));
    if (!spill.fd_.ok()) return ErrnoToStatus(errno, absl::StrCat("cannot create a file in ", directory));
    unlink(name.c_str());
    spill.name_ = absl::StrCat(output, ": temporary file in ", directory);
    return spill;
  }

  absl::Status Append(absl::Span<const int32_t> tokens) {
    count_ += static_cast<int64_t>(tokens.size());
    return WriteAll(fd_.get(), {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)}, name_);
  }
  int64_t count() const { return count_; }

  // Copies the next `count` tokens, from the first on.
  absl::Status CopyNext(int64_t count, const std::function<absl::Status(absl::Span<const int32_t>)>& write) {
    std::vector<int32_t> block;
    for (; count > 0; count -= static_cast<int64_t>(block.size())) {
      block.resize(std::min<int64_t>(count, 1 << 18));
      const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(block.data()), block.size() * sizeof(int32_t));
      RETURN_IF_ERROR(ReadExactly(fd_.get(), static_cast<uint64_t>(read_) * sizeof(int32_t), {&bytes, 1}, name_));
      read_ += static_cast<int64_t>(block.size());
      RETURN_IF_ERROR(write(block));
    }
    return absl::OkStatus();
  }

 private:
  TokenSpill() = default;
  FileDescriptor fd_;
  std::string name_;
  int64_t count_ = 0, read_ = 0;
};

// Of a text, which is a document: what lies from one place where it was cut to the next, and what was read behind that.
struct TextPiece {
  std::string file, text;
  int64_t begin = 0;     // in the document
  bool is_last = false;  // the text ends the document
  size_t encoded = 0;    // bytes that have their tokens
};

// What a task has made of lines, or of a piece.
struct Encoded {
  absl::Status status;
  std::vector<int32_t> tokens;
  int64_t documents = 0, empty_documents = 0, text_bytes = 0;  // of lines
  std::optional<TextPiece> piece = std::nullopt;
};

// Of a text, to find a place to cut: words of any language, and numbers, which some tokenizers cut at only.
constexpr size_t kWindowBytes = 4 << 10;
constexpr size_t kWindowGrowth = 8;

// One run of Pack.
class Packer {
 public:
  Packer(const Tokenizer& tokenizer, const PackOptions& options, FileAccess& files)
      : tokenizer_(tokenizer),
        options_(options),
        files_(files),
        encoding_(options.threads, [this](Encoded encoded) { return Take(std::move(encoded)); }) {}

  absl::StatusOr<PackReport> Run() {
    RETURN_IF_ERROR(CheckPackPaths(options_.paths));
    RETURN_IF_ERROR(CheckFormats());
    RETURN_IF_ERROR(OpenOutputs());
    ASSIGN_OR_RETURN(total_bytes_, InputBytes(files_, options_.paths.inputs, options_.stop));
    const absl::Status read = ReadInputs();
    if (absl::IsCancelled(read)) return read;
    RETURN_IF_ERROR(encoding_.Finish());  // what is wrong with a text before the one that could not be read
    RETURN_IF_ERROR(read);
    RETURN_IF_ERROR(Finish());
    return report_;
  }

 private:
  // JSON Lines have this name, too.
  absl::Status CheckFormats() const {
    if (options_.format != PackOptions::Format::kAuto) return absl::OkStatus();
    for (const std::string& path : options_.paths.inputs) {
      if (!WithoutCompressionName(path).ends_with(".json")) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": say what it is: --format jsonl packs a field of each line, --format text the file as it stands"));
    }
    return absl::OkStatus();
  }

  // First of all, so that an unwritable directory is not found out after hours.
  absl::Status OpenOutputs() {
    ASSIGN_OR_RETURN(writer_, CreateOutput(options_.paths.output));
    if (options_.paths.validation_output.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(validation_writer_, CreateOutput(options_.paths.validation_output));
    const std::string& output = options_.paths.output;
    ASSIGN_OR_RETURN(TokenSpill spill, TokenSpill::Create(files_.ScratchDirectory(output), output));
    spill_ = std::make_unique<TokenSpill>(std::move(spill));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<TokenFileWriter>> CreateOutput(const std::string& path) {
    if (!options_.documents) return TokenFileWriter::Create(files_, path, tokenizer_.vocab_size());
    return TokenFileWriter::Create(files_, path, TokenFileKind{.bytes_per_token = 4, .has_marks = true});
  }

  absl::Status Write(TokenFileWriter& writer, absl::Span<const int32_t> tokens) const {
    if (!options_.documents) return writer.Append(tokens);
    return writer.AppendMarked({reinterpret_cast<const uint32_t*>(tokens.data()), tokens.size()});
  }

  absl::Status ReadInputs() {
    for (const std::string& path : options_.paths.inputs) {
      ASSIGN_OR_RETURN(InputFile file, InputFile::Open(files_, path, options_.stop));
      const bool is_jsonl = options_.format == PackOptions::Format::kJsonl ||
                            (options_.format == PackOptions::Format::kAuto && HasNameOfJsonLines(path));
      RETURN_IF_ERROR(is_jsonl ? ReadJsonl(file) : ReadText(file));
      report_.input_bytes += file.text_bytes();
    }
    return absl::OkStatus();
  }

  absl::Status ReadJsonl(InputFile& file) {
    const auto take = [this](LineBatch batch) {
      return encoding_.Begin([this, lines = std::move(batch)] { return EncodeLines(lines); });
    };
    return ReadLineBatches(file, take, [this](int64_t bytes) { CountBytes(bytes); });
  }

  absl::Status ReadText(InputFile& file) {
    int64_t begin = 0;
    size_t left = 0;  // by the last search
    const auto take = [&](std::string_view text, bool is_last) -> absl::StatusOr<size_t> {
      if (!is_last && !IsWorthwhile(text.size(), left)) return 0;
      const size_t cut = is_last ? text.size() : PlaceToCut(text);
      left = text.size() - cut;
      if (cut == 0 && !is_last) return 0;
      TextPiece piece{.file = file.name(), .text = std::string(text), .begin = begin, .is_last = is_last};
      RETURN_IF_ERROR(encoding_.Begin([this, piece = std::move(piece)]() mutable { return Encode(std::move(piece)); }));
      begin += static_cast<int64_t>(cut);
      return cut;
    };
    return ReadTextDocument(file, {take, [this](int64_t bytes) { CountBytes(bytes); }});
  }

  // To look through a text, of which the last search has left `left` bytes without a place to cut: else each MiB more
  // would cost all that is held once again. What is too long without one is searched before it is refused.
  static bool IsWorthwhile(size_t bytes, size_t left) { return bytes >= 2 * left || bytes > kDocumentHeldBytesMax; }

  // Where the tokenizer would most likely cut a text that goes on, found at its end alone: whoever begins to split a
  // text in its middle splits it as the others do, after some words. It is a guess, which decides no token: TakePiece
  // looks whether the text was cut there. 0: nowhere.
  size_t PlaceToCut(std::string_view text) const {
    for (size_t window = kWindowBytes;; window *= kWindowGrowth) {
      size_t begin = text.size() - std::min(text.size(), window);
      // Half a character would be cut off, which is no place in the text.
      for (int i = 0; i < 3 && begin > 0 && (text[begin] & 0xc0) == 0x80; ++i) ++begin;
      std::vector<int32_t> tokens;
      const absl::StatusOr<size_t> taken = tokenizer_.EncodeBeginning(text.substr(begin), tokens);
      if (!taken.ok()) return text.size();  // whoever encodes the piece says what is wrong, if it is
      if (*taken > 0) return begin + *taken;
      if (begin == 0) return 0;
    }
  }

  // Called by several threads, as EncodeLines is.
  Encoded Encode(TextPiece piece) const {
    Encoded encoded;
    if (piece.is_last) {
      absl::StatusOr<std::vector<int32_t>> tokens = tokenizer_.Encode(piece.text);
      encoded.status = tokens.status();
      encoded.tokens = std::move(tokens).value_or(std::vector<int32_t>());
      piece.encoded = piece.text.size();
    } else {
      const absl::StatusOr<size_t> taken = tokenizer_.EncodeBeginning(piece.text, encoded.tokens);
      encoded.status = taken.status();
      piece.encoded = taken.value_or(0);
    }
    encoded.status = Annotate(encoded.status, piece.file);
    encoded.piece = std::move(piece);
    return encoded;
  }

  Encoded EncodeLines(const LineBatch& lines) const {
    Encoded encoded;
    encoded.status = lines.ForEach([&](std::string_view line) { return EncodeLine(line, encoded); });
    return encoded;
  }

  absl::Status EncodeLine(std::string_view line, Encoded& encoded) const {
    ASSIGN_OR_RETURN(const std::string document, DocumentOfLine(line, options_.jsonl_field));
    ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer_.Encode(document));
    ++encoded.documents;
    encoded.text_bytes += static_cast<int64_t>(document.size());
    if (tokens.empty()) {
      ++encoded.empty_documents;
      return absl::OkStatus();
    }
    MarkStart(tokens);
    AppendEndOfText(tokens);
    encoded.tokens.insert(encoded.tokens.end(), tokens.begin(), tokens.end());
    return absl::OkStatus();
  }

  absl::Status Take(Encoded encoded) {
    if (encoded.piece.has_value()) return TakePiece(std::move(encoded));
    RETURN_IF_ERROR(encoded.status);
    report_.documents += encoded.documents;
    report_.empty_documents += encoded.empty_documents;
    report_.text_bytes += encoded.text_bytes;
    return Append(encoded.tokens);
  }

  // Tokens are those of the whole text because every piece that is taken begins where EncodeBeginning has ended: one
  // that begins elsewhere, as a guess was wrong, is encoded again from there.
  absl::Status TakePiece(Encoded encoded) {
    if (encoded.piece->begin != text_done_) {
      TextPiece piece = *std::move(encoded.piece);
      const int64_t ahead = text_done_ - piece.begin;  // both have the bytes between
      if (ahead > 0) {
        piece.text.erase(0, static_cast<size_t>(ahead));
      } else {
        text_rest_.replace(static_cast<size_t>(-ahead), std::string::npos, piece.text);
        piece.text = std::move(text_rest_);
      }
      if (!piece.is_last && !IsWorthwhile(piece.text.size(), text_left_)) {
        text_rest_ = std::move(piece.text);
        return absl::OkStatus();
      }
      piece.begin = text_done_;
      encoded = Encode(std::move(piece));
    }
    RETURN_IF_ERROR(encoded.status);
    const TextPiece& piece = *encoded.piece;
    if (document_is_empty_ && !encoded.tokens.empty()) MarkStart(encoded.tokens);
    document_is_empty_ = document_is_empty_ && encoded.tokens.empty();
    text_done_ += static_cast<int64_t>(piece.encoded);
    report_.text_bytes += static_cast<int64_t>(piece.encoded);
    text_rest_ = piece.text.substr(piece.encoded);
    text_left_ = text_rest_.size();
    if (piece.is_last) {
      EndDocument(encoded.tokens);
    } else if (text_rest_.size() > kDocumentHeldBytesMax) {
      return NoPlaceToCut(piece.file, text_rest_.size());
    }
    return Append(encoded.tokens);
  }

  absl::Status Append(absl::Span<const int32_t> tokens) {
    return spill_ ? spill_->Append(tokens) : Write(*writer_, tokens);
  }

  void MarkStart(std::vector<int32_t>& tokens) const {
    if (options_.documents) tokens[0] = static_cast<int32_t>(static_cast<uint32_t>(tokens[0]) | kDocumentStart);
  }

  void AppendEndOfText(std::vector<int32_t>& tokens) const {
    const std::optional<int32_t> end = tokenizer_.end_of_text();
    if (options_.append_end_of_text && end.has_value()) tokens.push_back(*end);
  }

  void EndDocument(std::vector<int32_t>& tokens) {
    ++report_.documents;
    if (document_is_empty_) {
      ++report_.empty_documents;
    } else {
      AppendEndOfText(tokens);
    }
    document_is_empty_ = true;
    text_done_ = 0;
  }

  void CountBytes(int64_t bytes) {
    bytes_read_ += bytes;
    if (options_.progress) options_.progress(bytes_read_, total_bytes_);
  }

  absl::Status Finish() {
    if (spill_) RETURN_IF_ERROR(SplitOffValidation());
    RETURN_IF_ERROR(CheckStop());
    report_.tokens = writer_->num_tokens();
    if (report_.tokens == 0) return absl::InvalidArgumentError("the input holds no text: no token file written");
    RETURN_IF_ERROR(writer_->Prepare());
    if (validation_writer_) RETURN_IF_ERROR(validation_writer_->Prepare());
    RETURN_IF_ERROR(CheckStop());  // for the last time: what is written by now stays
    RETURN_IF_ERROR(OfWriting(writer_->Finish()));
    return validation_writer_ ? OfWriting(validation_writer_->Finish()) : absl::OkStatus();
  }

  absl::Status CheckStop() const {
    return options_.stop.stop_requested() ? absl::CancelledError("stopped") : absl::OkStatus();
  }

  absl::Status SplitOffValidation() {
    const double exact = options_.paths.validation_fraction * static_cast<double>(spill_->count());
    const auto validation = static_cast<int64_t>(std::llround(exact));
    if (validation == 0 || validation >= spill_->count()) {
      return absl::InvalidArgumentError(absl::StrCat("validation fraction ", options_.paths.validation_fraction, " of ",
                                                     spill_->count(), " tokens leaves one of the two files empty"));
    }
    const auto into = [this](TokenFileWriter& writer) {
      return [this, &writer](absl::Span<const int32_t> tokens) -> absl::Status {
        RETURN_IF_ERROR(CheckStop());
        return Write(writer, tokens);
      };
    };
    RETURN_IF_ERROR(spill_->CopyNext(spill_->count() - validation, into(*writer_)));
    RETURN_IF_ERROR(spill_->CopyNext(validation, into(*validation_writer_)));
    report_.validation_tokens = validation;
    return absl::OkStatus();
  }

  const Tokenizer& tokenizer_;
  const PackOptions& options_;
  FileAccess& files_;
  std::unique_ptr<TokenFileWriter> writer_, validation_writer_;
  std::unique_ptr<TokenSpill> spill_;  // only with validation
  // Of the text that is taken: up to where it has its tokens, and what was read behind that.
  int64_t text_done_ = 0;
  std::string text_rest_;
  size_t text_left_ = 0;  // of text_rest_, when it was last encoded
  bool document_is_empty_ = true;
  int64_t bytes_read_ = 0, total_bytes_ = 0;  // of the files, as they are stored
  PackReport report_;
  InOrder<Encoded> encoding_;  // last: its tasks end before what they use
};

}  // namespace

absl::StatusOr<PackReport> Pack(const Tokenizer& tokenizer, const PackOptions& options, FileAccess& files) {
  return Packer(tokenizer, options, files).Run();
}

}  // namespace holdfast
