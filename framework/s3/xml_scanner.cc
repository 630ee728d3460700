#include "framework/s3/xml_scanner.h"

#include <expat.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "framework/base/byte_order_mark.h"

namespace holdfast {
namespace {

constexpr size_t kMaxDepth = 16;

using OnElement = absl::FunctionRef<absl::Status(absl::string_view path, absl::string_view text)>;
using Parser = std::unique_ptr<std::remove_pointer_t<XML_Parser>, decltype(&XML_ParserFree)>;

/// What expat's callbacks know.
struct Scan {
  XML_Parser parser;
  OnElement on_element;
  std::string path{};
  std::vector<std::string> texts{};  // of the elements that are open
  absl::Status failure{};            // why a callback has ended the parsing

  void Stop(absl::Status status) {
    if (failure.ok()) failure = std::move(status);
    XML_StopParser(parser, XML_FALSE);
  }
};

absl::string_view WithoutPrefix(absl::string_view name) { return name.substr(name.find(':') + 1); }

void Begin(void* context, const char* name, const char** /*attributes*/) {
  auto& scan = *static_cast<Scan*>(context);
  if (scan.texts.size() == kMaxDepth) {
    return scan.Stop(absl::InvalidArgumentError(absl::StrCat("elements are nested deeper than ", kMaxDepth)));
  }
  absl::StrAppend(&scan.path, scan.texts.empty() ? "" : "/", WithoutPrefix(name));
  scan.texts.emplace_back();
}

void Text(void* context, const char* text, int bytes) {
  auto& scan = *static_cast<Scan*>(context);
  scan.texts.back().append(text, static_cast<size_t>(bytes));
}

void End(void* context, const char* /*name*/) {
  auto& scan = *static_cast<Scan*>(context);
  const absl::Status status = scan.on_element(scan.path, scan.texts.back());
  scan.texts.pop_back();
  scan.path.resize(scan.texts.empty() ? 0 : scan.path.rfind('/'));
  if (!status.ok()) scan.Stop(status);
}

void RefuseType(void* context, const char* /*name*/, const char* /*system*/, const char* /*public*/, int /*internal*/) {
  static_cast<Scan*>(context)->Stop(absl::InvalidArgumentError("a document type is not expected"));
}

}  // namespace

absl::Status ScanXml(absl::string_view document, OnElement on_element) {
  const Parser parser(XML_ParserCreate("UTF-8"), &XML_ParserFree);
  if (parser == nullptr) return absl::ResourceExhaustedError("no memory for an XML parser");
  document =
      absl::StripLeadingAsciiWhitespace(WithoutByteOrderMark(document));  // which servers send while somebody waits
  if (document.size() > kMaxXmlBytes) {
    return absl::InvalidArgumentError(absl::StrCat("over ", kMaxXmlBytes, " bytes of XML"));
  }
  Scan scan{.parser = parser.get(), .on_element = on_element};
  XML_SetUserData(parser.get(), &scan);
  XML_SetElementHandler(parser.get(), &Begin, &End);
  XML_SetCharacterDataHandler(parser.get(), &Text);
  XML_SetStartDoctypeDeclHandler(parser.get(), &RefuseType);  // so there are no entities but the five
  const XML_Status parsed = XML_Parse(parser.get(), document.data(), static_cast<int>(document.size()), /*isFinal=*/1);
  if (!scan.failure.ok()) return scan.failure;
  if (parsed == XML_STATUS_OK) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("not XML at byte ", XML_GetCurrentByteIndex(parser.get()), ": ",
                                                 XML_ErrorString(XML_GetErrorCode(parser.get()))));
}

}  // namespace holdfast
