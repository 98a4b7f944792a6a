# SPDX-License-Identifier: MIT
# What attile's own programs are compiled with. None of it reaches the users of attile::attile.

include(CheckCompilerFlag)

# One nvcc takes up to 2 GB, so Ninja is given as many jobs as the memory carries.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_JOB_POOL_COMPILE)
  cmake_host_system_information(RESULT attile_jobs QUERY NUMBER_OF_LOGICAL_CORES)
  cmake_host_system_information(RESULT attile_memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
  math(EXPR attile_memory_jobs "${attile_memory_mb} / 2048")
  if(attile_memory_jobs LESS attile_jobs)
    set(attile_jobs ${attile_memory_jobs})
  endif()
  if(attile_jobs LESS 1)
    set(attile_jobs 1)
  endif()
  set_property(GLOBAL APPEND PROPERTY JOB_POOLS attile_compile=${attile_jobs})
  set(CMAKE_JOB_POOL_COMPILE attile_compile)
endif()

# Tests want that everything compiles; what cannot run here does so for one architecture, to PTX
# and host code that need not be good. What runs here runs for less time than -O1 would take.
if(ATTILE_BUILD_TESTS AND ATTILE_TEST_ARCHITECTURES)
  foreach(flags IN ITEMS CMAKE_CUDA_FLAGS_RELEASE CMAKE_CUDA_FLAGS_RELWITHDEBINFO)
    string(REGEX REPLACE "-O[0-3]" "" ${flags} "${${flags}}")
  endforeach()
endif()

# g++ collects its garbage ten times less often, which is a tenth of its time: for tests of which
# few kernels are built, since a source of all of them would take more memory than many machines
# have.
set(ATTILE_SPARE_COLLECTION
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=1000>")

# attile_own(target): the library, our warnings as errors, line numbers for the profiler.
# `--compile-no-warning-as-error` of cmake turns the errors back into warnings.
function(attile_own target)
  target_link_libraries(${target} PRIVATE attile::attile)
  set_target_properties(${target} PROPERTIES COMPILE_WARNING_AS_ERROR ON CXX_EXTENSIONS OFF)
  set(optimise -O3)
  if(ATTILE_BUILD_TESTS AND ATTILE_TEST_ARCHITECTURES)
    set(optimise -Og)
    target_compile_options(${target} PRIVATE ${ATTILE_SPARE_COLLECTION})
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${ATTILE_TEST_ARCHITECTURES}")
    check_compiler_flag(CUDA -Ofc=max ATTILE_FAST_COMPILE)  # nvcc 12.9
    if(ATTILE_FAST_COMPILE)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Ofc=max>)
    endif()
  endif()
  # -Wno-restrict: GCC 12 and 13 see an overlap in `"text" + std::string` (GCC bug 105651).
  target_compile_options(
    ${target}
    PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-restrict>"
            "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-restrict;-lineinfo>")
  # Not for .cu: cudafe++ does not know every intrinsic that the host's -march=native brings.
  if(ATTILE_NATIVE)
    target_compile_options(
      ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${optimise};-march=native>")
  endif()
endfunction()

# attile_warn_more(target): a project that has a copy of include/ and asks its compilers for more
# warnings than attile's own build does, as errors.
function(attile_warn_more target)
  set(warnings -Wshadow -Wconversion -Wsign-conversion)
  list(JOIN warnings "," for_host)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
                                           "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${for_host}>")
endfunction()
