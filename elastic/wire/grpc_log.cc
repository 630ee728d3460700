#include "elastic/wire/grpc_log.h"

#include <grpc/support/log.h>

#include "framework/base/log.h"

namespace holdfast {

void TakeGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args* line) { LogDebug("gRPC: ", line->message); });
}

}  // namespace holdfast
