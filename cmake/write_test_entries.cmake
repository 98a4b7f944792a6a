# SPDX-License-Identifier: MIT
# cmake -DPROGRAM= -DPREFIX= -DBOTH_DIRECTIONS= -DLAUNCHER=a|b -DPROPERTIES=name|value|... -DFILE=
# -P this
# Writes a file for ctest: one test for each entry that the program lists. See attile_suite_entries
# in test_entries.cmake.
execute_process(
  COMMAND "${PROGRAM}" --list-entries
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --list-entries: ${result}")
endif()
string(REGEX MATCHALL "[^\n]+" lines "${output}")
if(NOT lines)
  message(FATAL_ERROR "${PROGRAM} has no suite")
endif()
string(REPLACE "|" ";" launcher "${LAUNCHER}")
string(REPLACE "|" ";" properties "${PROPERTIES}")

# quote(result word...): the words as bracket arguments.
function(quote result)
  set(words "")
  foreach(word IN LISTS ARGN)
    string(APPEND words " [==[${word}]==]")
  endforeach()
  set(${result} "${words}" PARENT_SCOPE)
endfunction()

set(entries)
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^([a-z0-9_.]+)(\\.[a-z]+) ([0-9]+)$")
    message(FATAL_ERROR "${PROGRAM} --list-entries: '${line}'")
  endif()
  set(entry "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
  set(cost "${CMAKE_MATCH_3}")
  set(pattern "${entry}/*")
  if(BOTH_DIRECTIONS)
    set(entry "${CMAKE_MATCH_1}")
    set(pattern "${entry}.*")
  endif()
  list(APPEND entries "${entry}")
  set(pattern_${entry} "${pattern}")
  math(EXPR cost_${entry} "0${cost_${entry}} + ${cost}")
endforeach()
list(REMOVE_DUPLICATES entries)

set(script "")
foreach(entry IN LISTS entries)
  quote(test "${PREFIX}${entry}" ${launcher} "${PROGRAM}" "${pattern_${entry}}")
  # What takes longest begins first.
  quote(all_properties ${properties} COST ${cost_${entry}})
  quote(name "${PREFIX}${entry}")
  string(APPEND script "add_test(${test} )\n"
         "set_tests_properties(${name} PROPERTIES ${all_properties} )\n")
endforeach()
file(WRITE "${FILE}" "${script}")
