#pragma once
// A base for what stands in for a device: every operation arrives at one function, as a call that is still to be made.
// Operations that are more to a class than that it overrides one by one.

#include <functional>

#include "kernels/ops.h"

namespace holdfast::kernels {

class ForwardingOps : public Ops {
 public:
#define HOLDFAST_OPERATION(name, parameters, arguments) \
  void name parameters override {                       \
    Forward([=](Ops& ops) { ops.name arguments; });     \
  }
#include "kernels/ops.def"

 private:
  /// `call` does the operation with the Ops it is given. It holds copies of all arguments, but not of what they point
  /// to.
  virtual void Forward(std::function<void(Ops&)> call) = 0;
};

}  // namespace holdfast::kernels
