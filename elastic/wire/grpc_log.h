#pragma once
// What gRPC logs by itself.

namespace holdfast {

/// From now on it goes into the log of this process, for debugging. gRPC writes a line of its own form for each
/// connection that a stranger resets; what an operator has to know, the rooms here log themselves. To be called before
/// a server or channel is made; once more does no harm.
void TakeGrpcLog();

}  // namespace holdfast
