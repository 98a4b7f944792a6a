# SPDX-License-Identifier: MIT
# cmake -DATTILE_SOURCE_DIR= -DWORK= -DOPTIONS=a|b -P installed.cmake
# Builds the consumer in version/ with an attile that OPTIONS, of its configuration, lead to. It has
# to be the version of the source tree, and is said to be once more by the headers.
file(STRINGS "${ATTILE_SOURCE_DIR}/include/attile/version.h" version REGEX
     "_(MAJOR|MINOR|PATCH) [0-9]+$")
list(TRANSFORM version REPLACE ".* " "")
list(JOIN version "." version)
string(REPLACE "|" ";" options "${OPTIONS}")

execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/version" -B "${WORK}"
          -DVERSION=${version} ${options}
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND "${CMAKE_COMMAND}" --build "${WORK}"
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND "${WORK}/consumer"
  OUTPUT_VARIABLE said
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT said STREQUAL "${version} ${version}")
  message(FATAL_ERROR "the headers are of '${said}', and not twice of ${version}")
endif()
file(STRINGS "${WORK}/CMakeCache.txt" found REGEX "^attile_DIR:")
message(STATUS "attile ${version}: ${found}")
