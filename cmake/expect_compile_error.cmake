# SPDX-License-Identifier: MIT
# cmake -DCOMPILER= -DFLAGS=a|b -DSOURCE= -DTEXTS=a|b -DERRORS=a|b -DOBJECT= -P this
# The compiler says each of TEXTS. ERRORS are, in their order, in the lines of all its errors: none
# has to be looked for in the notes behind it, and none draws another one after it.
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

string(REPLACE "|" ";" promised "${ERRORS}")
if(promised)
  string(REGEX REPLACE "[][;]" "," lines "${output}")  # which are those of lists
  string(REGEX MATCHALL "[^\n]*error: [^\n]*" errors "${lines}")
  list(LENGTH promised count)
  list(LENGTH errors found)
  if(NOT count EQUAL found)
    message(FATAL_ERROR "${SOURCE}: ${found} errors, not ${count}:\n${output}")
  endif()
  foreach(error text IN ZIP_LISTS errors promised)
    string(FIND "${error}" "${text}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "${SOURCE}: an error is\n${error}\nand not '${text}':\n${output}")
    endif()
  endforeach()
endif()
