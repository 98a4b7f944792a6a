// SPDX-License-Identifier: MIT
// The version of attile, that of the CMake project.
#pragma once

#define ATTILE_VERSION_MAJOR 0
#define ATTILE_VERSION_MINOR 1
#define ATTILE_VERSION_PATCH 0
#define ATTILE_VERSION_STRING "0.1.0"
