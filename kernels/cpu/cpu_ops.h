#pragma once
// The operations of kernels/ops.h on CPU memory: one file per operation in this directory. The instruction set is
// picked at run time (AVX2 at least). Thread-safety: one call at a time per object, as the executor demands.
//
// Example:
//   ThreadPool pool(8);
//   CpuOps ops(pool);

#include "kernels/arithmetic.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

class CpuOps final : public Ops {
 public:
  /// `arithmetic`: one that CpuHas.
  explicit CpuOps(Executor& executor, Arithmetic arithmetic = Arithmetic::kPortable)
      : executor_(executor), arithmetic_(arithmetic) {}

#define HOLDFAST_OPERATION(name, parameters, arguments) void name parameters override
#include "kernels/ops.def"

 private:
  Executor& executor_;
  Arithmetic arithmetic_;
};

}  // namespace holdfast::kernels
