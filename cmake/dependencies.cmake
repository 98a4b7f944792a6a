# SPDX-License-Identifier: MIT
# What only attile's tests and benchmarks need: the system's packages, else the pinned sources.
# The SYSTEM of FetchContent_Declare does not work in CMake 3.25.1, the property does.
include(FetchContent)

if(ATTILE_BUILD_TESTS)
  # Versions 2.13 and 3 both do; test/support/catch.h is where they differ.
  find_package(Catch2 QUIET)
  if(NOT Catch2_FOUND)
    FetchContent_Declare(
      Catch2
      URL https://github.com/catchorg/Catch2/archive/v3.7.1.tar.gz
      URL_HASH SHA256=c991b247a1a0d7bb9c39aa35faf0fe9e19764213f28ffba3109388e62ee0269c
      DOWNLOAD_EXTRACT_TIMESTAMP ON)
    FetchContent_MakeAvailable(Catch2)
    set_target_properties(Catch2 PROPERTIES SYSTEM ON)
    list(APPEND CMAKE_MODULE_PATH "${catch2_SOURCE_DIR}/extras")
  endif()

  # Fibers, for the simulated machine (test/sim). It is tested where they are installed.
  find_package(Boost QUIET COMPONENTS context)
endif()

if(ATTILE_BUILD_BENCH)
  find_package(benchmark QUIET)
  if(NOT benchmark_FOUND)
    set(BENCHMARK_ENABLE_TESTING OFF)
    set(BENCHMARK_ENABLE_INSTALL OFF)
    FetchContent_Declare(
      benchmark
      URL https://github.com/google/benchmark/archive/refs/tags/v1.8.2.tar.gz
      URL_HASH SHA256=2aab2980d0376137f969d92848fbb68216abb07633034534fc8c65cc4e7a0e93
      DOWNLOAD_EXTRACT_TIMESTAMP ON)
    FetchContent_MakeAvailable(benchmark)
    set_target_properties(benchmark PROPERTIES SYSTEM ON)
  endif()
endif()
