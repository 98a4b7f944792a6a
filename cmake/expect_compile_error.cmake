# SPDX-License-Identifier: MIT
# cmake -DCOMPILER= -DFLAGS=a|b -DSOURCE= -DTEXTS=a|b -DOBJECT= -P expect_compile_error.cmake
string(REPLACE "|" ";" flags "${FLAGS}")
string(REPLACE "|" ";" texts "${TEXTS}")
execute_process(
  COMMAND "${COMPILER}" ${flags} -c "${SOURCE}" -o "${OBJECT}"
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles; it must be refused")
endif()
foreach(text IN LISTS texts)
  string(FIND "${output}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${SOURCE} is refused, but not with '${text}':\n${output}")
  endif()
endforeach()
