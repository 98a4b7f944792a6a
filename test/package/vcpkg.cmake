# SPDX-License-Identifier: MIT
# cmake -DATTILE_SOURCE_DIR= -DWORK= -DGENERATOR= -DOPTIONS=a|b -P vcpkg.cmake
# Makes the package that the port of vcpkg describes, without vcpkg: the functions that a portfile
# calls do here what they do there. Then a consumer finds attile in it.
set(port "${ATTILE_SOURCE_DIR}/packages/vcpkg/attile")
set(CURRENT_PACKAGES_DIR "${WORK}/package")
file(REMOVE_RECURSE "${WORK}")

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  if(NOT arg_SOURCE_PATH OR DEFINED arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "vcpkg_cmake_configure: ${ARGN}")
  endif()
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${WORK}/build" -G "${GENERATOR}"
            "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" ${arg_OPTIONS}
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(vcpkg_cmake_install)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" --install "${WORK}/build"
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The files move to share/PORT, and their way to the prefix is as much shorter.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
  if(NOT arg_CONFIG_PATH STREQUAL "share/cmake/attile" OR DEFINED arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "vcpkg_cmake_config_fixup: ${ARGN}")
  endif()
  file(RENAME "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}" "${CURRENT_PACKAGES_DIR}/share/attile")
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/cmake")
  set(targets "${CURRENT_PACKAGES_DIR}/share/attile/attileTargets.cmake")
  file(READ "${targets}" text)
  set(up "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n")
  string(FIND "${text}" "${up}${up}${up}" three)
  if(three EQUAL -1)
    message(FATAL_ERROR "${targets} does not find its prefix by going up")
  endif()
  string(REPLACE "${up}${up}${up}" "${up}${up}" text "${text}")
  file(WRITE "${targets}" "${text}")
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  file(COPY_FILE ${arg_FILE_LIST} "${CURRENT_PACKAGES_DIR}/share/attile/copyright")
endfunction()

include("${port}/portfile.cmake")

# What vcpkg demands of every package of headers.
file(GLOB folders RELATIVE "${CURRENT_PACKAGES_DIR}" "${CURRENT_PACKAGES_DIR}/*"
     "${CURRENT_PACKAGES_DIR}/share/*")
if(NOT folders STREQUAL "include;share;share/attile")
  message(FATAL_ERROR "the package has ${folders}")
endif()

file(READ "${port}/vcpkg.json" manifest)
set(OPTIONS "-G${GENERATOR}|${OPTIONS}|-DCMAKE_PREFIX_PATH=${CURRENT_PACKAGES_DIR}")
set(WORK "${WORK}/consumer")
include("${CMAKE_CURRENT_LIST_DIR}/installed.cmake")
string(JSON said GET "${manifest}" version)
if(NOT said STREQUAL version)
  message(FATAL_ERROR "vcpkg.json is of ${said}, the headers are of ${version}")
endif()
