# SPDX-License-Identifier: MIT
include(CMakeFindDependencyMacro)

find_dependency(CUDAToolkit 12.4)
# FindThreads stops the configuration in a project of CUDA alone, which needs it not.
if(CMAKE_C_COMPILER_LOADED OR CMAKE_CXX_COMPILER_LOADED)
  find_dependency(Threads)
endif()

include("${CMAKE_CURRENT_LIST_DIR}/attileTargets.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/attileCudaStandard.cmake")
attile_require_cuda_standard(attile::attile)
include("${CMAKE_CURRENT_LIST_DIR}/attileArchitectures.cmake")
attile_warn_of_architectures()
