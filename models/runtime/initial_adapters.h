#pragma once
// Adapters that a run begins with (lora.init_from), instead of random ones.

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// Both are thread-safe.
struct InitialAdapters {
  ReadWeightsFn read;          // each call is within one parameter
  std::function<void()> free;  // the adapters are in memory no more, until `read` needs them and reads them anew
};

/// Reads values of `layout`, the layout of the config's model: those of adapters from lora.init_from, which is set, all
/// others by `base`. All adapters are in memory until they are freed. InvalidArgument, saying what to set, if the
/// adapters there are not those that config.lora describes; FailedPrecondition if lora.init_digest is not theirs.
absl::StatusOr<InitialAdapters> OpenInitialAdapters(const Config& config, const ParameterLayout& layout,
                                                    ReadWeightsFn base);

/// Where lora.init_from is set: fills in lora.init_digest, or checks what it says. After ResolveInitDigest, for
/// adapters may say which weights they are for; of adapters that say it by a name alone it warns where that is another
/// one than that of train.init_from. Errors as above.
absl::Status ResolveAdapterDigest(Config* config);

}  // namespace holdfast
