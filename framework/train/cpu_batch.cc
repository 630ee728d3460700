#include "framework/train/cpu_batch.h"

#include <algorithm>
#include <utility>

namespace holdfast {

CpuBatch::CpuBatch(Microbatch tokens)
    : batch(tokens.batch),
      sequence(tokens.sequence),
      counted(std::count_if(tokens.targets.begin(), tokens.targets.end(), [](int32_t target) { return target >= 0; })),
      step(tokens.step),
      index(tokens.index) {
  arrays.emplace_back(std::move(tokens.inputs));
  arrays.emplace_back(std::move(tokens.targets));
  arrays.emplace_back(std::move(tokens.document_begins));
  arrays.emplace_back(std::move(tokens.document_ends));
}

}  // namespace holdfast
