// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <string>

namespace sim {

/// "file.cuh:12 (function)" of a place in the running program, by addr2line; the line of the call,
/// as inlined as it is written.
std::string place_of(const void* pc);

/// "file.cuh:12".
std::string place_of(const std::source_location& at);

}  // namespace sim
