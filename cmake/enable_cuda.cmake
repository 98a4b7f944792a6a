# SPDX-License-Identifier: MIT
# Enables CXX and CUDA for attile's own programs: finds a toolkit that is not on PATH, refuses one
# that is too old, and chooses the architectures where nobody else did.

# Sets CMAKE_CUDA_COMPILER where the user does not, and checks its version before CMake tries it:
# what CMake says of a compiler that knows no sm_90a helps nobody.
function(attile_find_nvcc)
  if(NOT CMAKE_CUDA_COMPILER AND DEFINED ENV{CUDACXX})
    set(CMAKE_CUDA_COMPILER "$ENV{CUDACXX}" CACHE FILEPATH "CUDA compiler")
  elseif(NOT CMAKE_CUDA_COMPILER)
    find_program(ATTILE_NVCC nvcc PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
                 PATH_SUFFIXES bin)
    mark_as_advanced(ATTILE_NVCC)
    if(NOT ATTILE_NVCC)
      message(
        FATAL_ERROR
          "attile: nvcc was found neither on PATH nor in $CUDA_HOME, $CUDA_PATH or "
          "/usr/local/cuda. Install the CUDA Toolkit, 12.4 or newer, or set CMAKE_CUDA_COMPILER.")
    endif()
    set(CMAKE_CUDA_COMPILER "${ATTILE_NVCC}" CACHE FILEPATH "CUDA compiler")
  endif()

  execute_process(
    COMMAND "${CMAKE_CUDA_COMPILER}" --version
    OUTPUT_VARIABLE version
    ERROR_VARIABLE version)
  if(NOT version MATCHES "release ([0-9]+\\.[0-9]+)")
    message(FATAL_ERROR "attile: ${CMAKE_CUDA_COMPILER} is not nvcc: ${version}")
  endif()
  if(CMAKE_MATCH_1 VERSION_LESS 12.4)
    message(FATAL_ERROR "attile needs the CUDA Toolkit 12.4 or newer; ${CMAKE_CUDA_COMPILER} is "
                        "of ${CMAKE_MATCH_1}.")
  endif()
endfunction()

# The architectures of the GPUs in this machine, those of this nvcc among them; empty without.
function(attile_gpu_architectures result)
  set(${result} "" PARENT_SCOPE)
  execute_process(
    COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    RESULT_VARIABLE failed
    OUTPUT_VARIABLE capabilities
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    return()
  endif()
  execute_process(
    COMMAND "${CMAKE_CUDA_COMPILER}" --list-gpu-arch
    OUTPUT_VARIABLE known
    ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${capabilities}")
  set(architectures)
  foreach(capability IN LISTS capabilities)
    string(REPLACE "." "" number "${capability}")
    if(NOT known MATCHES "compute_${number}\n")
      continue()
    endif()
    # wgmma and TMA exist in 90a only, not in 90.
    if(number EQUAL 90)
      set(number 90a)
    endif()
    list(APPEND architectures ${number})
  endforeach()
  list(REMOVE_DUPLICATES architectures)
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

attile_find_nvcc()
attile_gpu_architectures(attile_present)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  if(attile_present)
    set(CMAKE_CUDA_ARCHITECTURES "${attile_present}" CACHE STRING "CUDA architectures")
  else()
    set(CMAKE_CUDA_ARCHITECTURES "80;90a" CACHE STRING "CUDA architectures")
    set(ATTILE_TEST_ARCHITECTURES 90a-virtual CACHE STRING
        "CUDA architectures of a build with tests, if not all")
  endif()
endif()
if(attile_present)
  set(ATTILE_GPU_PRESENT ON)
else()
  set(ATTILE_GPU_PRESENT OFF)
endif()

enable_language(CXX)
enable_language(CUDA)
message(STATUS "attile: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, "
               "architectures ${CMAKE_CUDA_ARCHITECTURES}")
