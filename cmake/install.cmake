# SPDX-License-Identifier: MIT
include(CMakePackageConfigHelpers)

# SameMinorVersion while the major version is 0. ARCH_INDEPENDENT: there is nothing compiled.
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/attileConfigVersion.cmake" COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)

install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/include/"
  DESTINATION include
  FILES_MATCHING
  PATTERN "*.h"
  PATTERN "*.cuh")
install(TARGETS attile EXPORT attileTargets)
install(
  EXPORT attileTargets
  NAMESPACE attile::
  DESTINATION share/cmake/attile)
install(
  FILES "${PROJECT_SOURCE_DIR}/cmake/attileConfig.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/attileArchitectures.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/attileCudaStandard.cmake"
        "${PROJECT_BINARY_DIR}/attileConfigVersion.cmake"
  DESTINATION share/cmake/attile)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION share/doc/attile)
