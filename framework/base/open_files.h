#pragma once

namespace holdfast {

/// Lets this process have as many files and sockets open as its hard limit allows; the usual soft one, 1,024, ends at a
/// few hundred peers.
void RaiseOpenFileLimit();

}  // namespace holdfast
