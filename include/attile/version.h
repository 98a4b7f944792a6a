// SPDX-License-Identifier: MIT
#pragma once

// This is the version of the library, and the only place that says it: CMake and the packages read
// these three lines.
#define ATTILE_VERSION_MAJOR 0
#define ATTILE_VERSION_MINOR 1
#define ATTILE_VERSION_PATCH 0

#define ATTILE_VERSION_TEXT_OF(major, minor, patch) #major "." #minor "." #patch
#define ATTILE_VERSION_TEXT(major, minor, patch) ATTILE_VERSION_TEXT_OF(major, minor, patch)
/// Is the version as a text: "MAJOR.MINOR.PATCH".
#define ATTILE_VERSION_STRING \
  ATTILE_VERSION_TEXT(ATTILE_VERSION_MAJOR, ATTILE_VERSION_MINOR, ATTILE_VERSION_PATCH)
