#pragma once
// NCCL's and CUDA's error codes as absl::Status.

#include <cuda_runtime.h>
#include <nccl.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace holdfast {

/// OK also for a call that runs on in the background. FailedPrecondition for what no other world mends: two ranks on
/// one GPU, different versions of NCCL.
inline absl::Status NcclStatus(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const auto code = result == ncclInvalidUsage ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnavailable;
  return absl::Status(code, absl::StrCat(what, ": ", ncclGetErrorString(result), "; ", ncclGetLastError(nullptr)));
}

inline absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, ": ", cudaGetErrorString(error)));
}

}  // namespace holdfast
