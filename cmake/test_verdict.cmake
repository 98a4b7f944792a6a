# SPDX-License-Identifier: MIT
# cmake -DRESULTS=results.xml -P test_verdict.cmake
# Counts ctest's results and fails when nothing passed. ctest itself is content with a run in which
# every test was skipped, so the workflows end with this step. An entry of ctest may have many cases
# inside; what the programs said of those that ran is counted in a second line.
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

set(case_counts "cases: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped")
string(REGEX MATCHALL "${case_counts}" lines "${xml}")
foreach(count IN ITEMS cases_passed cases_failed cases_skipped)
  set(${count} 0)
endforeach()
foreach(line IN LISTS lines)
  string(REGEX MATCH "${case_counts}" line "${line}")
  math(EXPR cases_passed "${cases_passed} + ${CMAKE_MATCH_1}")
  math(EXPR cases_failed "${cases_failed} + ${CMAKE_MATCH_2}")
  math(EXPR cases_skipped "${cases_skipped} + ${CMAKE_MATCH_3}")
endforeach()

execute_process(
  COMMAND
    "${CMAKE_COMMAND}" -E echo
    "cases inside: ${cases_passed} passed, ${cases_failed} failed, ${cases_skipped} skipped")
execute_process(COMMAND "${CMAKE_COMMAND}" -E echo
                        "tests: ${passed} passed, ${failures} failed, ${skipped} skipped")
if(failures GREATER 0)
  message(FATAL_ERROR "test_verdict: ${failures} of ${tests} tests failed")
endif()
if(passed EQUAL 0)
  message(FATAL_ERROR "test_verdict: no test ran")
endif()
