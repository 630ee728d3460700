#pragma once
// One of Gloo's pairs over a connection that stands, encrypted or not. Gloo's own way to connect takes a listening
// socket, and so an address to tell, for every pair.

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>

#include <memory>

#include "framework/comm/gloo/connection.h"

namespace holdfast {

/// On the thread of the device's loop, so that no event comes between. `context` and `device` are of the TCP transport.
/// Throws what Gloo throws.
std::unique_ptr<gloo::transport::Pair> MakeGlooPair(gloo::transport::Context& context, gloo::transport::Device& device,
                                                    int rank, Connection connection);

}  // namespace holdfast
