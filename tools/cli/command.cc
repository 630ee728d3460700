#include "tools/cli/command.h"

#include <cmath>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/jinja/functions.h"

namespace holdfast {
namespace {

constexpr char kUsage[] = "holdfast/usage";  // payload of a UsageError

}  // namespace

absl::Status UsageError(absl::string_view text) {
  absl::Status status = absl::InvalidArgumentError(text);
  status.SetPayload(kUsage, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsage).has_value(); }

bool IsMistake(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsUnimplemented(status);
}

absl::Status AsUsageError(const absl::Status& status) {
  if (IsUsageError(status) || !IsMistake(status)) return status;
  return UsageError(absl::StrCat("error: ", status.message()));
}

absl::Status AsConfigError(const absl::Status& status) {
  return IsMistake(status) ? UsageError(status.message()) : status;
}

absl::Status AsDataMistake(const absl::Status& status) {
  const bool misfit = absl::IsFailedPrecondition(status) || absl::IsOutOfRange(status);
  return misfit ? absl::InvalidArgumentError(status.message()) : status;
}

int ExitCodeOf(const absl::Status& error) {
  if (IsUsageError(error) || IsMistake(error)) return kExitUsage;
  return absl::IsUnavailable(error) || absl::IsAborted(error) ? kExitRetry : kExitFailure;
}

CLI::Validator WholeNumberWithin(int64_t least, int64_t most) {
  return {[=](const std::string& text) {
            int64_t value = 0;
            const bool within = absl::SimpleAtoi(text, &value) && value >= least && value <= most;
            return within ? std::string() : absl::StrCat("'", text, "' is no whole number from ", least, " to ", most);
          },
          absl::StrCat("INT in [", least, " - ", most, "]")};
}

CLI::Validator NumberWithin(double least, double most) {
  const std::string range = absl::StrCat("FLOAT in [", least, " - ", most, "]");
  return {[=](const std::string& text) {
            double value = 0;
            const bool within = absl::SimpleAtod(text, &value) && value >= least && value <= most;
            return within ? std::string() : absl::StrCat("'", text, "' is no number from ", least, " to ", most);
          },
          range};
}

CLI::Validator Positive() {
  return {[](const std::string& text) {
            double value = 0;
            const bool good = absl::SimpleAtod(text, &value) && value > 0 && std::isfinite(value);
            return good ? std::string() : absl::StrCat("'", text, "' is no number above 0");
          },
          "POSITIVE"};
}

CLI::Validator NotNegative() {
  return {[](const std::string& text) {
            double value = 0;
            const bool good = absl::SimpleAtod(text, &value) && value >= 0;
            return good ? std::string() : absl::StrCat("'", text, "' is no number from 0 upwards");
          },
          "NONNEGATIVE"};
}

CLI::Validator IsSeed() {
  return {[](const std::string& text) {
            uint64_t value = 0;
            return absl::SimpleAtoi(text, &value)
                       ? std::string()
                       : absl::StrCat("'", text, "' is no whole number from 0 to 18446744073709551615");
          },
          "UINT64"};
}

CLI::Validator IsDate() {
  return {[](const std::string& text) { return std::string(jinja::ParseNow(text).status().message()); }, "DATE"};
}

CLI::Validator IsPath() {
  return {[](const std::string& text) {
            if (text.empty()) return std::string("a path is expected, not '': is a variable of the shell empty?");
            return text.starts_with("--")
                       ? absl::StrCat("a path is expected, not '", text, "'; if it is one, write ./", text)
                       : std::string();
          },
          ""};
}

}  // namespace holdfast
