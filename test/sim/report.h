// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <source_location>
#include <string>

#include "sim/machine.h"

namespace sim {

/// "file.cuh:12" of a place in the running program, by addr2line: the line of the call, as inlined
/// as it is written; not in arch/, and with ", from file.cuh:34" where a line of tile/ was inlined.
std::string place_of(const void* pc);

/// The same of a place where the running thread is: where a function of tile/ was not inlined, its
/// caller follows in the same way.
std::string place_here(const void* pc);

/// The line outside of tile/ from which the running thread has called the function of tile/ that it
/// is in; "" where none is found. Where `pc` is given the thread is there.
std::string calling_line(const void* pc = nullptr);

/// "file.cuh:12".
std::string place_of(const std::source_location& at);

/// The counts of a launch: a line "LAUNCH METRIC VALUE" for each total, with Nsight Compute's name
/// for it, and after "#" a line for each instruction.
void print_counts(std::FILE* file, int launch, const LaunchCounts& counts);

}  // namespace sim
