# SPDX-License-Identifier: MIT
# Enables CXX and CUDA for attile's own programs: finds a toolkit that is not on PATH, refuses one
# that is too old, and chooses the architectures where nobody else did.

function(attile_find_nvcc)
  if(CMAKE_CUDA_COMPILER OR DEFINED ENV{CUDACXX})
    return()
  endif()
  find_program(ATTILE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(ATTILE_NVCC)
  if(NOT ATTILE_NVCC)
    message(
      FATAL_ERROR
        "attile: nvcc was found neither on PATH nor in $CUDA_HOME, $CUDA_PATH or /usr/local/cuda. "
        "Install the CUDA Toolkit, 12.4 or newer, or set CMAKE_CUDA_COMPILER.")
  endif()
  set(CMAKE_CUDA_COMPILER "${ATTILE_NVCC}" CACHE FILEPATH "CUDA compiler")
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
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  attile_gpu_architectures(attile_architectures)
  if(NOT attile_architectures)
    set(attile_architectures 80 90a)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${attile_architectures}" CACHE STRING "CUDA architectures")
endif()

enable_language(CXX)
enable_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA")
  message(FATAL_ERROR "attile's tests, examples and benchmarks are built by nvcc, "
                      "not by ${CMAKE_CUDA_COMPILER_ID} (${CMAKE_CUDA_COMPILER}).")
endif()
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
  message(FATAL_ERROR "attile needs the CUDA Toolkit 12.4 or newer; ${CMAKE_CUDA_COMPILER} is "
                      "${CMAKE_CUDA_COMPILER_VERSION}.")
endif()
message(STATUS "attile: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, "
               "architectures ${CMAKE_CUDA_ARCHITECTURES}")
