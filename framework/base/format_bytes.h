#pragma once
// Sizes of memory, files and transfers for people, in binary units: the one way in which messages print them. Exact
// numbers of bytes are for what is compared to the byte (formats, limits of a protocol).

#include <string>

namespace holdfast {

/// 1536 -> "1.5 KiB"; below 1 KiB "512 B".
std::string FormatBytes(double bytes);

}  // namespace holdfast
