# SPDX-License-Identifier: MIT
# The simulated machine, for programs with kernels of attile's tests or of your own project: see
# docs/testing.md. Needs the target attile::attile, Boost.Context, CUDA's headers and g++.
find_package(Boost REQUIRED COMPONENTS context)
find_package(CUDAToolkit 12.4 REQUIRED)
add_library(attile_sim OBJECT)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
list(FILTER sources EXCLUDE
     REGEX "/(planted[a-z_]*|performance|train_gpt|append|merge|quantize|suite_[a-z0-9_]+)\\.cpp$")
target_sources(attile_sim PRIVATE ${sources})
target_compile_features(attile_sim PUBLIC cxx_std_20)
target_compile_options(attile_sim PRIVATE -O2 -Wall -Wextra)
# Each source takes longer for its headers than for itself.
set_target_properties(attile_sim PROPERTIES CXX_EXTENSIONS OFF UNITY_BUILD ON
                                            UNITY_BUILD_BATCH_SIZE 0)
target_include_directories(attile_sim PRIVATE ${CMAKE_CURRENT_LIST_DIR}/..)
target_link_libraries(attile_sim PRIVATE attile::attile PUBLIC Boost::context ${CMAKE_DL_LIBS})
set(ATTILE_SIM_DIR ${CMAKE_CURRENT_LIST_DIR})

# attile_sim_executable(target source): kernels in `source` see the simulated attile/arch/, and
# call the machine at every load and store. Not with less than -O2: of an element that is passed to
# a function by value, GCC shows the load only where the function is inlined. The C++ compiler gets
# a file that includes the source, which so stays nvcc's in other targets.
function(attile_sim_executable target source)
  if(NOT CMAKE_CXX_COMPILER_LOADED)
    message(FATAL_ERROR "attile: the simulated machine needs C++: project(... LANGUAGES CXX)")
  endif()
  cmake_path(ABSOLUTE_PATH source NORMALIZE)
  set(unit ${CMAKE_CURRENT_BINARY_DIR}/${target}.sim.cpp)
  file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${source}\"\n")
  add_executable(${target} ${unit})
  target_compile_options(
    ${target} PRIVATE -O2 -g1 -Wall -Wextra -Wno-restrict -Wno-unknown-pragmas -fsanitize=thread
                      -fno-optimize-sibling-calls --param tsan-instrument-func-entry-exit=0)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_include_directories(${target} BEFORE PRIVATE ${ATTILE_SIM_DIR})
  target_include_directories(${target} PRIVATE ${ATTILE_SIM_DIR}/..)
  target_link_libraries(${target} PRIVATE attile::attile attile_sim)
endfunction()
