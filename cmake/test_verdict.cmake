# SPDX-License-Identifier: MIT
# cmake -DRESULTS=results.xml -P test_verdict.cmake
# Counts ctest's results and fails when nothing passed. ctest itself is content with a run in which
# every test was skipped, so the workflows end with this step.
if(NOT EXISTS "${RESULTS}")
  message(FATAL_ERROR "test_verdict: ${RESULTS} is missing: ctest has not run")
endif()
file(READ "${RESULTS}" xml)

set(suite "<testsuite[^>]*")
foreach(count IN ITEMS tests failures disabled skipped)
  if(NOT xml MATCHES "${suite}[ \t\r\n]${count}=\"([0-9]+)\"")
    message(FATAL_ERROR "test_verdict: no ${count}= in ${RESULTS}")
  endif()
  set(${count} ${CMAKE_MATCH_1})
endforeach()
math(EXPR skipped "${skipped} + ${disabled}")
math(EXPR passed "${tests} - ${failures} - ${skipped}")

execute_process(COMMAND "${CMAKE_COMMAND}" -E echo
                        "tests: ${passed} passed, ${failures} failed, ${skipped} skipped")
if(failures GREATER 0)
  message(FATAL_ERROR "test_verdict: ${failures} of ${tests} tests failed")
endif()
if(passed EQUAL 0)
  message(FATAL_ERROR "test_verdict: no test ran")
endif()
