#include "tools/cli/place_arguments.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {

void AddPlaceOptions(CLI::App& command, PlaceSettings& settings) {
  command.add_option("--endpoint", settings.s3.endpoint,
                     "of the S3 service, http://HOST[:PORT]; default: AWS_ENDPOINT_URL, or else AWS");
  command.add_option("--region", settings.s3.region, "of the S3 service; default: AWS_REGION, or else us-east-1");
}

absl::StatusOr<std::unique_ptr<Places>> OpenPlaces(PlaceSettings settings, std::stop_token stop) {
  settings.stop = std::move(stop);
  std::error_code error;
  settings.staging_directory = std::filesystem::temp_directory_path(error).string();
  if (error) return ErrnoToStatus(error.value(), "no directory for temporary files (TMPDIR)");
  return std::make_unique<Places>(std::move(settings));
}

}  // namespace holdfast
