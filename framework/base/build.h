#pragma once

namespace holdfast {

/// 16 hexadecimal digits of a digest over the sources this program was built from (rooms, tools and build files). Equal
/// for builds of the same sources on different machines.
const char* BuildId();

}  // namespace holdfast
