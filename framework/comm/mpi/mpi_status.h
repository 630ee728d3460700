#pragma once
// MPI's error codes as absl::Status.

#include <mpi.h>

#include <string>

#include "absl/status/status.h"

namespace holdfast {

/// OK, InvalidArgument for a message longer than its memory, else Unavailable.
inline absl::Status MpiStatus(int code) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0, error_class = MPI_ERR_OTHER;
  MPI_Error_string(code, text, &length);
  MPI_Error_class(code, &error_class);
  if (error_class == MPI_ERR_TRUNCATE) return absl::InvalidArgumentError("more bytes were sent than are expected");
  return absl::UnavailableError(text);
}

}  // namespace holdfast
