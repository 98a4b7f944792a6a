# SPDX-License-Identifier: MIT
# Asks nvcc for C++20 in everything that links the target. A compile feature does that from CMake
# 3.25.2 on; 3.25.1, Debian 12's, does not know nvcc's flag. It is the CMake of the project that
# uses attile that counts, so neither form is exported, and the installed package asks again.
function(attile_require_cuda_standard target)
  if(CMAKE_VERSION VERSION_LESS 3.25.2)
    set(flag $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
    target_compile_options(${target} INTERFACE $<BUILD_INTERFACE:${flag}>)
  else()
    target_compile_features(${target} INTERFACE $<BUILD_INTERFACE:cuda_std_20>)
  endif()
endfunction()
