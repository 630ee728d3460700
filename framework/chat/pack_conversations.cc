#include "framework/chat/pack_conversations.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "framework/base/counted.h"
#include "framework/base/in_order.h"
#include "framework/base/status.h"
#include "framework/chat/conversation.h"
#include "framework/data/line_batch.h"
#include "framework/data/row_packer.h"
#include "framework/data/token_file.h"

namespace holdfast {
namespace {

/// One of the two files.
class RowFile {
 public:
  static absl::StatusOr<RowFile> Create(FileAccess& files, const std::string& path, const RowPacker::Options& rows) {
    const TokenFileKind kind{.bytes_per_token = 4, .has_marks = true, .row_tokens = rows.row_tokens};
    ASSIGN_OR_RETURN(auto writer, TokenFileWriter::Create(files, path, kind));
    return RowFile(std::move(writer), rows);
  }

  absl::Status Add(absl::Span<const uint32_t> conversation, int64_t learned) {
    ++packed_.conversations;
    packed_.learned_tokens += learned;
    return rows_.Add(conversation, [this](absl::Span<const uint32_t> row) { return writer_->AppendMarked(row); });
  }

  absl::StatusOr<PackedRows> Prepare() {
    RETURN_IF_ERROR(rows_.Finish([this](absl::Span<const uint32_t> row) { return writer_->AppendMarked(row); }));
    // Any token, behind the last row: what is read of a row ends with the token after it, its last target.
    RETURN_IF_ERROR(writer_->AppendMarked({kDocumentStart | kNotLearned}));
    packed_.rows = rows_.rows();
    packed_.tokens = rows_.tokens();
    RETURN_IF_ERROR(writer_->Prepare());
    return packed_;
  }
  absl::Status Finish() { return writer_->Finish(); }
  bool is_empty() const { return packed_.conversations == 0; }

 private:
  RowFile(std::unique_ptr<TokenFileWriter> writer, const RowPacker::Options& rows)
      : writer_(std::move(writer)), rows_(rows) {}

  std::unique_ptr<TokenFileWriter> writer_;
  RowPacker rows_;
  PackedRows packed_;
};

// What a task has made of lines.
struct Encoded {
  // That goes into a row.
  struct Kept {
    int64_t number;  // of the conversations of these lines
    std::vector<uint32_t> marked;
    int64_t learned;
  };

  absl::Status status;
  PackConversationsReport report;  // without what is written
  std::vector<Kept> kept;
};

void Add(const PackConversationsReport& some, PackConversationsReport& all) {
  all.conversations += some.conversations;
  all.too_long += some.too_long;
  all.longest = std::max(all.longest, some.longest);
  all.without_learned += some.without_learned;
  all.left_out_tools += some.left_out_tools;
  all.left_out_reasoning += some.left_out_reasoning;
  all.left_out_calls += some.left_out_calls;
  all.left_out_system += some.left_out_system;
  all.without_end += some.without_end;
}

class ConversationPacker {
 public:
  ConversationPacker(const ChatTemplate& chat, const PackConversationsOptions& options, FileAccess& files)
      : chat_(chat),
        options_(options),
        files_(files),
        encoding_(options.threads, [this](const Encoded& encoded) { return Take(encoded); }) {}

  absl::StatusOr<PackConversationsReport> Run() {
    RETURN_IF_ERROR(Open());
    const absl::Status read = ReadInputs();
    if (absl::IsCancelled(read)) return read;
    RETURN_IF_ERROR(encoding_.Finish());  // what is wrong with a conversation before the line that could not be read
    RETURN_IF_ERROR(read);
    return Finish();
  }

 private:
  absl::Status Open() {
    RETURN_IF_ERROR(CheckPackPaths(options_.paths));
    if (options_.row_tokens < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("rows of ", Counted(options_.row_tokens, "token"), " hold no conversation"));
    }
    const RowPacker::Options rows{.row_tokens = options_.row_tokens};
    ASSIGN_OR_RETURN(RowFile training, RowFile::Create(files_, options_.paths.output, rows));
    training_ = std::move(training);
    if (options_.paths.validation_output.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(RowFile validation, RowFile::Create(files_, options_.paths.validation_output, rows));
    validation_ = std::move(validation);
    return absl::OkStatus();
  }

  absl::Status ReadInputs() {
    ASSIGN_OR_RETURN(const int64_t total, InputBytes(files_, options_.paths.inputs, options_.stop));
    int64_t done = 0;
    const auto count = [&](int64_t bytes) {
      done += bytes;
      if (options_.progress) options_.progress(done, total);
    };
    const auto take = [this](LineBatch batch) {
      return encoding_.Begin([this, lines = std::move(batch)] { return EncodeLines(lines); });
    };
    for (const std::string& path : options_.paths.inputs) {
      ASSIGN_OR_RETURN(InputFile file, InputFile::Open(files_, path, options_.stop));
      RETURN_IF_ERROR(ReadLineBatches(file, take, count));
    }
    return absl::OkStatus();
  }

  // Called by several threads.
  Encoded EncodeLines(const LineBatch& lines) const {
    Encoded encoded;
    encoded.status = lines.ForEach([&](std::string_view line) -> absl::Status {
      ASSIGN_OR_RETURN(const Conversation conversation, ParseConversation({line.data(), line.size()}));
      return Encode(conversation, encoded);
    });
    return encoded;
  }

  absl::Status Encode(const Conversation& conversation, Encoded& encoded) const {
    ASSIGN_OR_RETURN(ChatTokens tokens, chat_.Encode(conversation));
    PackConversationsReport& report = encoded.report;
    const int64_t number = report.conversations++;
    const auto length = static_cast<int64_t>(tokens.tokens.size());
    report.longest = std::max(report.longest, length);
    report.left_out_tools += chat_.LeavesOutTools(conversation) ? 1 : 0;
    report.left_out_reasoning += tokens.leaves_out_thought ? 1 : 0;
    report.left_out_calls += tokens.leaves_out_calls ? 1 : 0;
    report.left_out_system += tokens.leaves_out_system ? 1 : 0;
    report.without_end += tokens.learns_end ? 0 : 1;
    if (length > options_.row_tokens) {
      ++report.too_long;
      if (options_.too_long == PackConversationsOptions::TooLong::kDrop) return absl::OkStatus();
      tokens.tokens.resize(static_cast<size_t>(options_.row_tokens));
      tokens.learned.resize(static_cast<size_t>(options_.row_tokens));
    }
    // The first token is nobody's target.
    const int64_t learned =
        tokens.tokens.empty() ? 0 : std::accumulate(tokens.learned.begin() + 1, tokens.learned.end(), int64_t{0});
    if (learned == 0) {
      ++report.without_learned;
      return absl::OkStatus();
    }
    encoded.kept.push_back({number, Marked(tokens), learned});
    return absl::OkStatus();
  }

  absl::Status Take(const Encoded& encoded) {
    RETURN_IF_ERROR(encoded.status);
    for (const Encoded::Kept& kept : encoded.kept) {
      RETURN_IF_ERROR(FileOf(report_.conversations + kept.number).Add(kept.marked, kept.learned));
    }
    Add(encoded.report, report_);
    return absl::OkStatus();
  }

  static std::vector<uint32_t> Marked(const ChatTokens& encoded) {
    std::vector<uint32_t> marked;
    for (size_t i = 0; i < encoded.tokens.size(); ++i) {
      marked.push_back(static_cast<uint32_t>(encoded.tokens[i]) | (i == 0 ? kDocumentStart : 0) |
                       (encoded.learned[i] != 0 ? 0 : kNotLearned));
    }
    return marked;
  }

  RowFile& FileOf(int64_t number) {
    const auto up_to = [this](int64_t n) {
      return static_cast<int64_t>(options_.paths.validation_fraction * static_cast<double>(n));
    };
    return validation_.has_value() && up_to(number + 1) > up_to(number) ? *validation_ : *training_;
  }

  absl::StatusOr<PackConversationsReport> Finish() {
    if (report_.conversations == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(absl::StrJoin(options_.paths.inputs, ", "), ": no conversation; one is expected in each line"));
    }
    if (training_->is_empty() || (validation_.has_value() && validation_->is_empty())) {
      return absl::InvalidArgumentError(
          absl::StrCat(training_->is_empty() ? "no conversation" : "no conversation for validation", " is left of ",
                       report_.conversations, ": ", report_.too_long, " are longer than ", options_.row_tokens,
                       " tokens (the longest has ", report_.longest, "), ", report_.without_learned,
                       " have nothing to learn; ", "give more conversations or a larger --sequence-length"));
    }
    ASSIGN_OR_RETURN(report_.training, training_->Prepare());
    if (validation_.has_value()) {
      ASSIGN_OR_RETURN(report_.validation, validation_->Prepare());
    }
    if (options_.stop.stop_requested()) return absl::CancelledError("stopped");
    RETURN_IF_ERROR(OfWriting(training_->Finish()));
    if (validation_.has_value()) RETURN_IF_ERROR(OfWriting(validation_->Finish()));
    return report_;
  }

  const ChatTemplate& chat_;
  const PackConversationsOptions& options_;
  FileAccess& files_;
  std::optional<RowFile> training_, validation_;
  PackConversationsReport report_;
  InOrder<Encoded> encoding_;  // last: its tasks end before what they use
};

}  // namespace

absl::StatusOr<PackConversationsReport> PackConversations(const ChatTemplate& chat,
                                                          const PackConversationsOptions& options, FileAccess& files) {
  return ConversationPacker(chat, options, files).Run();
}

}  // namespace holdfast
