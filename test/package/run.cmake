# SPDX-License-Identifier: MIT
# Uses attile the way another project does: WAY is find_package, add_subdirectory or fetch_content.
# Configures, builds and runs the consumer in test/package/WAY and looks at what it installs.
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

function(run what)
  execute_process(
    COMMAND ${ARGN}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed (${result}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# Each way has languages of its own. A compiler of a language that is not enabled is not given:
# FindCUDAToolkit takes it for a sign that FindThreads works.
set(cxx "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}")
set(cuda "-DCMAKE_CUDA_COMPILER=${CUDA_COMPILER}")
if(WAY STREQUAL "find_package")
  run("installing attile"
      ${CMAKE_COMMAND} --install "${ATTILE_BINARY_DIR}" --prefix "${WORK}/prefix")
  set(options ${cxx} ${cuda} "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
  set(ENV{CUDAARCHS} "${CUDA_ARCHITECTURE}")
elseif(WAY STREQUAL "add_subdirectory")
  set(options ${cuda} "-DATTILE_SOURCE_DIR=${ATTILE_SOURCE_DIR}")
  set(ENV{CUDAARCHS} "80;90a")
else()
  set(options ${cxx} "-DFETCHCONTENT_SOURCE_DIR_ATTILE=${ATTILE_SOURCE_DIR}")
endif()

run("configuring the consumer"
    ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}/${WAY}" -B "${WORK}/build" -G "${GENERATOR}"
    "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" ${options})
# Whoever compiles for devices without the fast kernels is told so, and nobody else.
if(output MATCHES "CMAKE_CUDA_ARCHITECTURES is")
  message(FATAL_ERROR "a warning without a reason:\n${output}")
endif()
if(NOT WAY STREQUAL "fetch_content")
  file(READ "${WORK}/build/CMakeCache.txt" cache)
  string(FIND "${cache}" "CMAKE_CUDA_ARCHITECTURES:STRING=$ENV{CUDAARCHS}\n" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "the consumer is not for $ENV{CUDAARCHS}")
  endif()
endif()
if(WAY STREQUAL "find_package")
  foreach(case IN ITEMS "75;75, CMake's" "90;90 has the")
    list(GET case 0 architectures)
    list(GET case 1 words)
    run("configuring the consumer for ${architectures}"
        ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}/${WAY}" -B "${WORK}/warned" -G "${GENERATOR}"
        "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" ${options}
        "-DCMAKE_CUDA_ARCHITECTURES=${architectures}")
    if(NOT output MATCHES "${words}")
      message(FATAL_ERROR "no warning of ${architectures}:\n${output}")
    endif()
  endforeach()
endif()
run("building the consumer" ${CMAKE_COMMAND} --build "${WORK}/build")
run("running the consumer" "${WORK}/build/consumer")
set(refused "refused: q_heads must be a multiple of kv_heads\n")
set(expected "computed: 5 6 7 8 \n${refused}")
if(NOT WAY STREQUAL "fetch_content")  # which has no kernel
  string(APPEND expected "${refused}")
endif()
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "the consumer says:\n${output}\ninstead of:\n${expected}")
endif()

# attile must add nothing to a parent project: no tests, no installed files.
run("listing the consumer's tests" ${CMAKE_CTEST_COMMAND} --test-dir "${WORK}/build" -N)
if(NOT output MATCHES "Total Tests: 0")
  message(FATAL_ERROR "attile added tests to its parent:\n${output}")
endif()
run("installing the consumer"
    ${CMAKE_COMMAND} --install "${WORK}/build" --prefix "${WORK}/installed")
file(GLOB_RECURSE installed RELATIVE "${WORK}/installed" "${WORK}/installed/*")
if(NOT installed STREQUAL "bin/consumer")
  message(FATAL_ERROR "the consumer installed more than itself: ${installed}")
endif()
