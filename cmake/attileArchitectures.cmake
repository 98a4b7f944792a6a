# SPDX-License-Identifier: MIT
# Warns a project whose CUDA code would run slower kernels than its devices have, without a word:
# for 7.5, which CMake chooses where nobody does, there is no tensor core code, and Hopper's own
# kernels are in code for 90a, not for 90. Silence: -DATTILE_ARCHITECTURE_WARNINGS=OFF.
option(ATTILE_ARCHITECTURE_WARNINGS "Warn of CUDA architectures without attile's best kernels" ON)
mark_as_advanced(ATTILE_ARCHITECTURE_WARNINGS)

function(attile_warn_of_architectures)
  if(NOT ATTILE_ARCHITECTURE_WARNINGS OR NOT CMAKE_CUDA_COMPILER_LOADED)
    return()
  endif()
  set(numbers)
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(architecture MATCHES "^([0-9]+[a-z]?)(-real|-virtual)?$")
      list(APPEND numbers "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  if("75" IN_LIST numbers)
    message(
      WARNING
        "attile: CMAKE_CUDA_ARCHITECTURES is \"${CMAKE_CUDA_ARCHITECTURES}\". Code for 75, CMake's "
        "default, has no kernels for tensor cores; name the GPUs that you compile for, "
        "for example 80 or 90a.")
  endif()
  if("90" IN_LIST numbers AND NOT "90a" IN_LIST numbers)
    message(
      WARNING
        "attile: CMAKE_CUDA_ARCHITECTURES is \"${CMAKE_CUDA_ARCHITECTURES}\". Code for 90 has the "
        "kernels of 8.0; those for Hopper are in code for 90a.")
  endif()
endfunction()
