# SPDX-License-Identifier: MIT
# Programs that need a GPU to run. Where there is none, they are compiled for the sake of the tests.

# How much is built: on a GPU all; elsewhere a sample, and what no GPU runs where it tells something
# that the sample does not. test/README.md says what is in it.
option(ATTILE_TEST_FULL "Build every kernel of the suite's matrix" ${ATTILE_GPU_PRESENT})
option(ATTILE_TEST_LARGE "Build the large sample of it, where not all is built" OFF)
if(ATTILE_TEST_FULL OR NOT ATTILE_TEST_ARCHITECTURES)
  set(ATTILE_TEST_LARGE ON)
endif()

# One architecture is enough for what is compiled and not run: the last of those that are built, as
# a number.
list(GET CMAKE_CUDA_ARCHITECTURES -1 ATTILE_COMPILE_TEST_ARCHITECTURE)
if(ATTILE_COMPILE_TEST_ARCHITECTURE MATCHES "^[0-9]+[af]?")
  set(ATTILE_COMPILE_TEST_ARCHITECTURE "${CMAKE_MATCH_0}")
else()  # native, all, all-major
  set(ATTILE_COMPILE_TEST_ARCHITECTURE 90a)
endif()

# attile_ptx_only(target): of an object library's .cu files only PTX is made, for one architecture.
function(attile_ptx_only target)
  # PTX of several architectures is an error.
  set_target_properties(
    ${target} PROPERTIES CUDA_PTX_COMPILATION ON
                         CUDA_ARCHITECTURES ${ATTILE_COMPILE_TEST_ARCHITECTURE}-virtual)
endfunction()

# attile_gpu_program(target sources...): an executable for a GPU. A build of tests that no device
# runs has an object library of PTX instead: that pass of nvcc reads what is for the host too, so it
# refuses what does not compile, and takes a third of the time of all.
function(attile_gpu_program target)
  if(ATTILE_BUILD_TESTS AND ATTILE_TEST_ARCHITECTURES)
    add_library(${target} OBJECT ${ARGN})
    attile_own(${target})
    attile_ptx_only(${target})
  else()
    add_executable(${target} ${ARGN})
    attile_own(${target})
  endif()
endfunction()

# attile_gpu_entry(name target COMMAND word... PROPERTIES name value...): a ctest that runs the
# target. Where that is PTX alone, it is skipped.
function(attile_gpu_entry name target)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "COMMAND;PROPERTIES")
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL EXECUTABLE)
    set(arg_COMMAND ${CMAKE_COMMAND} -E echo "skipped: no CUDA device was here to build it for")
    list(APPEND arg_PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped:")
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES ${arg_PROPERTIES})
endfunction()

# attile_one_unit(result file source...): sets `result` to a file of the build folder that includes
# the sources: one translation unit of those that take far longer for their headers than for
# themselves.
function(attile_one_unit result file)
  set(includes "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source)
    string(APPEND includes "#include \"${source}\"\n")
  endforeach()
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/${file}")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "${includes}" @ONLY)
  set(${result} "${unit}" PARENT_SCOPE)
endfunction()
