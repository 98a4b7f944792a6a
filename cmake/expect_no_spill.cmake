# SPDX-License-Identifier: MIT
# cmake -DCOMPILER= -DFLAGS=a|b -DSOURCE= -DOBJECT= -P expect_no_spill.cmake
# Compiles the kernels of a source, and fails where ptxas keeps registers of one in memory, or makes
# wgmma instructions wait for each other.
string(REPLACE "|" ";" flags "${FLAGS}")
execute_process(
  COMMAND "${COMPILER}" ${flags} -Xptxas -v -cubin "${SOURCE}" -o "${OBJECT}"
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} does not compile:\n${output}")
endif()
string(REGEX MATCHALL "Function properties for [^\n]*\n[^\n]*" kernels "${output}")
list(LENGTH kernels count)
if(count EQUAL 0)
  message(FATAL_ERROR "${SOURCE}: ptxas names no kernel:\n${output}")
endif()
list(FILTER kernels INCLUDE REGEX "[1-9][0-9]* bytes spill")
if(kernels)
  list(JOIN kernels "\n" text)
  message(FATAL_ERROR "${SOURCE}: spilled\n${text}")
endif()
if(output MATCHES "\\(C75[0-9]+\\)[^\n]*")
  message(FATAL_ERROR "${SOURCE}: ${CMAKE_MATCH_0}")
endif()
message(STATUS "${count} kernels without a spill")
