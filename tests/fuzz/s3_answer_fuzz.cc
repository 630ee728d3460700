// What is made of the answers of an object store, and of what a credentials file holds, whatever their bytes. No answer
// that is not 2xx says that an object is damaged, and what is shown of one is printable.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "framework/base/process_id.h"
#include "framework/s3/s3_answer.h"
#include "framework/s3/s3_credentials.h"
#include "framework/s3/s3_page.h"
#include "framework/s3/xml_scanner.h"

namespace holdfast {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

void Answer(int status, const std::string& body) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = body;
  const absl::Status said = StatusOfAnswer(answer, /*is_head=*/body.size() % 2 == 0);
  Check(said.ok() == (status / 100 == 2));
  Check(!absl::IsInvalidArgument(said) && !absl::IsDataLoss(said));
  Check(said.message().size() < 1000);
  for (const char c : said.message()) Check(c >= ' ' && c != '\x7f');
}

void Parse(const std::string& text) {
  size_t deepest = 0;
  const absl::Status scanned = ScanXml(text, [&](absl::string_view path, absl::string_view inside) {
    Check(inside.size() <= text.size());
    size_t depth = 1;
    for (const char c : path) depth += c == '/' ? 1 : 0;
    deepest = depth > deepest ? depth : deepest;
    return absl::OkStatus();
  });
  Check(scanned.ok() || absl::IsInvalidArgument(scanned));
  Check(deepest <= 16);
  const absl::StatusOr<ListPage> page = ParseListPage(text);
  Check(page.ok() || absl::IsUnavailable(page.status()));
  const absl::StatusOr<UploadPage> uploads = ParseUploadPage(text);
  Check(uploads.ok() || absl::IsUnavailable(uploads.status()));
  const absl::StatusOr<S3Credentials> credentials = ParseCredentialsFile(text, "default");
  Check(!credentials.ok() || !credentials->secret_access_key.empty());
  const ProcessId process = ParseProcessId(text);
  Check(ParseProcessId(ToText(process)) == process);
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  holdfast::Parse(text);
  for (const int status : {200, 302, 400, 403, 404, 412, 416, 503, 520}) holdfast::Answer(status, text);
  return 0;
}
