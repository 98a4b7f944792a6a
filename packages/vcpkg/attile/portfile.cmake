# SPDX-License-Identifier: MIT
# attile as an overlay port of vcpkg, made of the sources that it lies in:
#   vcpkg install attile --overlay-ports=attile/packages/vcpkg
set(VCPKG_BUILD_TYPE release) # there is nothing compiled
vcpkg_cmake_configure(
  SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.."
  OPTIONS -DATTILE_BUILD_TESTS=OFF -DATTILE_BUILD_EXAMPLES=OFF -DATTILE_BUILD_BENCH=OFF
          -DATTILE_INSTALL=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/attile)
vcpkg_install_copyright(FILE_LIST "${CURRENT_PACKAGES_DIR}/share/doc/attile/LICENSE")
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
