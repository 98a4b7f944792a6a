# SPDX-License-Identifier: MIT
# How test programs become entries of ctest: a suite's by what the program lists, other tests by the
# files that they are in. test/README.md says how to run one case of an entry.

# attile_suite_entries(target [BOTH_DIRECTIONS] [PREFIX prefix] [LAUNCHER word...]
# [PROPERTIES name value...]): each entry that the program lists, EXECUTOR.FAMILY.POLICY.DIRECTION
# (see test/support/suite_cases.h), is the ctest PREFIX + entry; with BOTH_DIRECTIONS, those of one
# EXECUTOR.FAMILY.POLICY together. They are known when the program is built; until then a ctest
# says that it is not. The launcher is what the program runs under.
function(attile_suite_entries target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "BOTH_DIRECTIONS" "PREFIX" "LAUNCHER;PROPERTIES")
  list(JOIN arg_LAUNCHER "|" launcher)
  list(JOIN arg_PROPERTIES "|" properties)
  list(JOIN arg_PROPERTIES " " arg_PROPERTIES)
  set(name ${arg_PREFIX}${target})
  set(entries ${CMAKE_CURRENT_BINARY_DIR}/${name}_entries.cmake)
  set(script ${PROJECT_SOURCE_DIR}/cmake/write_test_entries.cmake)
  add_custom_command(
    TARGET ${target}
    POST_BUILD
    COMMAND
      ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${target}> -DPREFIX=${arg_PREFIX}
      -DBOTH_DIRECTIONS=${arg_BOTH_DIRECTIONS}
      "-DLAUNCHER=${launcher}" "-DPROPERTIES=${properties}" -DFILE=${entries} -P ${script}
    BYPRODUCTS ${entries}
    VERBATIM)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake)
  file(CONFIGURE OUTPUT ${include} @ONLY CONTENT [[
if(EXISTS "@entries@")
  include("@entries@")
else()
  add_test(@name@_NOT_BUILT @name@_NOT_BUILT)
  set_tests_properties(@name@_NOT_BUILT PROPERTIES @arg_PROPERTIES@)
endif()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()

# attile_file_entries(target prefix source... PROPERTIES name value...): the tests of each source
# that has a TEST_CASE are the ctest PREFIX.STEM.
function(attile_file_entries target prefix)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "PROPERTIES")
  foreach(source IN LISTS arg_UNPARSED_ARGUMENTS)
    file(STRINGS ${source} tests REGEX "^ *(TEMPLATE_)?TEST_CASE")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    if(tests)
      cmake_path(GET source STEM stem)
      # Catch2 tags each test with the name of its file.
      add_test(NAME ${prefix}.${stem} COMMAND ${target} --filenames-as-tags "[#${stem}]")
      set_tests_properties(${prefix}.${stem} PROPERTIES ${arg_PROPERTIES})
    endif()
  endforeach()
endfunction()
