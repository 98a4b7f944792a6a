# SPDX-License-Identifier: MIT
# Tests of what the compiler says: each header alone, all of them linked twice, promised errors,
# registers.

# attile_for_one_architecture(target): what no device runs is built for one architecture.
function(attile_for_one_architecture target)
  if(NOT ATTILE_TEST_ARCHITECTURES)
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES
                                               ${ATTILE_COMPILE_TEST_ARCHITECTURE})
  endif()
endfunction()

# Each header compiled with nothing before it but what it includes itself, twice in a row: .h by the
# host compiler; .cuh by nvcc to PTX, which takes a quarter of the time of both passes. Then a
# program of all objects of the .h, and one of two translation units with every .cuh, are linked, so
# that a function defined in a header without inline is defined twice and does not link. The second
# one of all headers has them in reverse: what a header says has one meaning whatever comes before.
function(attile_header_tests)
  attile_header_sources(alone h cpp all reversed)
  attile_header_program(cxx ${alone} ${all} ${reversed} linkage/calls.cpp)
  # Only what the compiler says of it is of interest.
  set_source_files_properties(linkage/calls.cpp PROPERTIES COMPILE_OPTIONS -O0)

  attile_header_sources(alone cuh cu all reversed)
  add_library(headers_ptx OBJECT ${alone})
  attile_own(headers_ptx)
  attile_ptx_only(headers_ptx)
  attile_header_program(cuda ${all} ${reversed} linkage/calls.cu)
  target_link_libraries(headers_cuda PRIVATE CUDA::cublas)  # standard.cuh
endfunction()

# attile_header_closures(headers...): sets closure_HEADER to the headers of attile that it includes,
# directly or by another one.
function(attile_header_closures)
  foreach(header IN LISTS ARGN)
    set(left ${header})
    set(closure)
    while(left)
      list(POP_FRONT left next)
      if(NOT DEFINED includes_${next})
        file(STRINGS "${PROJECT_SOURCE_DIR}/include/${next}" includes_${next}
             REGEX "^#include <attile/")
        list(TRANSFORM includes_${next} REPLACE "^#include <([^>]*)>.*" "\\1")
      endif()
      foreach(include IN LISTS includes_${next})
        if(NOT DEFINED seen_${header}_${include})
          set(seen_${header}_${include} ON)
          list(APPEND closure ${include})
          list(APPEND left ${include})
        endif()
      endforeach()
    endwhile()
    set(closure_${header} "${closure}" PARENT_SCOPE)
  endforeach()
endfunction()

# attile_header_chains(result header...): sets `result` to the names of lists, result_NUMBER, each
# of headers of which every one includes those before it. A translation unit of such a list is as
# good as one for each of them: a header that comes behind some that it includes anyway has nothing
# from others.
function(attile_header_chains result)
  attile_header_closures(${ARGN})
  set(sorted)
  foreach(header IN LISTS ARGN)
    list(LENGTH closure_${header} length)
    math(EXPR length "${length} + 10000")  # numbers of as many digits
    list(APPEND sorted "${length}:${header}")
  endforeach()
  list(SORT sorted ORDER DESCENDING)
  list(TRANSFORM sorted REPLACE "^[0-9]+:" "")
  set(names)
  set(number 0)
  while(sorted)
    list(POP_FRONT sorted last)
    set(chain ${last})
    foreach(header IN LISTS sorted)
      if(header IN_LIST closure_${last})
        list(PREPEND chain ${header})
        set(last ${header})
      endif()
    endforeach()
    list(REMOVE_ITEM sorted ${chain})
    set(${result}_${number} "${chain}" PARENT_SCOPE)
    list(APPEND names ${result}_${number})
    math(EXPR number "${number} + 1")
  endwhile()
  set(${result} "${names}" PARENT_SCOPE)
endfunction()

# attile_header_sources(alone extension source_extension all reversed): sets `alone` to sources that
# have each header with the extension as attile_header_chains says, `all` to one that includes them
# all, and `reversed` to one that does so from the last to the first.
function(attile_header_sources alone extension source_extension all reversed)
  set(include_dir "${PROJECT_SOURCE_DIR}/include")
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/headers")
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${include_dir}"
       "${include_dir}/attile/*.${extension}")
  list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>" OUTPUT_VARIABLE includes)
  list(TRANSFORM headers PREPEND "${include_dir}/" OUTPUT_VARIABLE paths)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${paths}")
  attile_header_chains(chains ${headers})
  set(sources)
  foreach(chain IN LISTS chains)
    list(GET ${chain} -1 last)
    list(TRANSFORM ${chain} REPLACE "(.+)" "#include <\\1>\n" OUTPUT_VARIABLE chain_includes)
    list(JOIN chain_includes "" chain_includes)
    set(source "${generated}/${last}.${source_extension}")
    file(CONFIGURE OUTPUT "${source}" CONTENT "${chain_includes}${chain_includes}")
    list(APPEND sources "${source}")
  endforeach()
  set(${alone} "${sources}" PARENT_SCOPE)
  foreach(whole IN ITEMS all reversed)
    list(JOIN includes "\n" all_includes)
    set(source "${generated}/${whole}.${source_extension}")
    configure_file("${PROJECT_SOURCE_DIR}/test/linkage/all.in" "${source}" @ONLY)
    set(${${whole}} "${source}" PARENT_SCOPE)
    list(REVERSE includes)
  endforeach()
endfunction()

# attile_header_program(language sources...): that they link is the test compile.headers_LANGUAGE.
function(attile_header_program language)
  set(target headers_${language})
  add_executable(${target} "${PROJECT_SOURCE_DIR}/test/linkage/main.cpp" ${ARGN})
  attile_own(${target})
  attile_warn_more(${target})
  attile_for_one_architecture(${target})
  add_test(NAME compile.${target} COMMAND ${target})
  set_tests_properties(compile.${target} PROPERTIES LABELS compile)
endfunction()

# attile_nvcc_flags(result): what nvcc gets when a test runs it, but for the architecture.
function(attile_nvcc_flags result)
  set(flags -Werror all-warnings)
  if(CMAKE_CUDA_HOST_COMPILER)
    list(APPEND flags -ccbin ${CMAKE_CUDA_HOST_COMPILER})
  endif()
  set(${result} ${flags} PARENT_SCOPE)
endfunction()

# attile_no_spill_test(source [FULL] architecture...): ptxas finds registers for every kernel that
# the source names, on each architecture: for a sample of policies, of which a build without
# ATTILE_TEST_LARGE has few; FULL: for all policies, which takes long.
function(attile_no_spill_test source)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FULL" "" "")
  cmake_path(GET source STEM name)
  set(test_name no_spill)
  set(label compile)
  set(full 0)
  set(few 1)
  if(ATTILE_TEST_LARGE)
    set(few 0)
  endif()
  if(arg_FULL)
    set(test_name no_spill_full)
    set(label slow)
    set(full 1)
    set(few 0)
  endif()
  foreach(architecture IN LISTS arg_UNPARSED_ARGUMENTS)
    attile_nvcc_flags(flags)
    list(APPEND flags -std=c++20 -I${PROJECT_SOURCE_DIR}/include -arch=sm_${architecture}
         -DATTILE_TEST_FULL=${full} -DATTILE_TEST_FEW=${few})
    list(JOIN flags "|" flags)
    set(test ${test_name}.${name}.${architecture})
    add_test(
      NAME compile.${test}
      COMMAND
        ${CMAKE_COMMAND} -DCOMPILER=${CMAKE_CUDA_COMPILER} -DFLAGS=${flags} -DSOURCE=${source}
        -DOBJECT=${CMAKE_CURRENT_BINARY_DIR}/${test}.cubin -P
        ${PROJECT_SOURCE_DIR}/cmake/expect_no_spill.cmake)
    set_tests_properties(compile.${test} PROPERTIES LABELS ${label} TIMEOUT 1800 COST 30000)
  endforeach()
endfunction()

# attile_traps_test(source nvcc_architecture architecture): in code for that architecture exactly
# the kernels trap that need a later one. No warnings as errors: ptxas has advice about multicast.
function(attile_traps_test source nvcc_architecture architecture)
  set(flags -std=c++20 -I${PROJECT_SOURCE_DIR}/include)
  if(CMAKE_CUDA_HOST_COMPILER)
    list(APPEND flags -ccbin ${CMAKE_CUDA_HOST_COMPILER})
  endif()
  list(JOIN flags "|" flags)
  set(test compile.traps.${nvcc_architecture})
  add_test(
    NAME ${test}
    COMMAND
      ${CMAKE_COMMAND} -DCOMPILER=${CMAKE_CUDA_COMPILER} -DFLAGS=${flags} -DSOURCE=${source}
      -DPTX=${CMAKE_CURRENT_BINARY_DIR}/${test}.ptx -DNVCC_ARCHITECTURE=${nvcc_architecture}
      -DARCHITECTURE=${architecture} -P ${PROJECT_SOURCE_DIR}/cmake/expect_traps.cmake)
  set_tests_properties(${test} PROPERTIES LABELS compile)
endfunction()

# attile_compile_fail(name source TEXTS text... ERRORS text...): compiling the source, with warnings
# as errors, fails, says each text, and has these errors and no others. The source is C++20 unless a
# line says otherwise: `// standard: c++17`.
# The compiler is run directly: a second cmake --build beside ctest's other tests would meet them
# in the build directory.
function(attile_compile_fail name source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "TEXTS;ERRORS")
  cmake_path(GET source EXTENSION LAST_ONLY extension)
  if(extension STREQUAL ".cu")
    set(compiler "${CMAKE_CUDA_COMPILER}")
    attile_nvcc_flags(flags)
    list(APPEND flags -arch=sm_${ATTILE_COMPILE_TEST_ARCHITECTURE})
  else()
    set(compiler "${CMAKE_CXX_COMPILER}")
    list(TRANSFORM CUDAToolkit_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE flags)
    list(APPEND flags -Wall -Wextra -Werror)
  endif()
  set(standard c++20)
  file(STRINGS "${source}" other REGEX "^// standard: ")
  if(other)
    string(REPLACE "// standard: " "" standard "${other}")
  endif()
  list(APPEND flags -std=${standard} -I${PROJECT_SOURCE_DIR}/include)
  # A list in a test's command line would be split there.
  list(JOIN flags "|" flags)
  list(JOIN arg_TEXTS "|" texts)
  list(JOIN arg_ERRORS "|" errors)
  add_test(
    NAME compile.${name}
    COMMAND
      ${CMAKE_COMMAND} -DCOMPILER=${compiler} -DFLAGS=${flags} -DSOURCE=${source} "-DTEXTS=${texts}"
      "-DERRORS=${errors}" -DOBJECT=${CMAKE_CURRENT_BINARY_DIR}/${name}.o -P
      ${PROJECT_SOURCE_DIR}/cmake/expect_compile_error.cmake)
  set_tests_properties(compile.${name} PROPERTIES LABELS compile TIMEOUT 300)
endfunction()

# attile_compile_fail_unit(name source...): the same for sources with promises alone, as one
# translation unit: the compiler goes on behind an error. Each source takes far longer for its
# headers than for itself; it is in a namespace of its own, behind all headers.
function(attile_compile_fail_unit name)
  set(promises)
  set(headers)
  set(unit "")
  foreach(source IN LISTS ARGN)
    cmake_path(GET source STEM stem)
    file(STRINGS "${source}" texts REGEX "^// promises: .")
    list(TRANSFORM texts REPLACE "^// promises: " "")
    list(APPEND promises ${texts})
    file(STRINGS "${source}" includes REGEX "^#include <")
    list(APPEND headers ${includes})
    string(APPEND unit "namespace ${stem} {\n#include \"${source}\"\n}\n")
  endforeach()
  list(REMOVE_DUPLICATES headers)
  list(JOIN headers "\n" headers)
  set(file "${CMAKE_CURRENT_BINARY_DIR}/compile_fail/${name}.cu")
  file(CONFIGURE OUTPUT "${file}" CONTENT "${headers}\n${unit}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
  attile_compile_fail(${name} "${file}" TEXTS ${promises})
endfunction()

# The same for a file that carries its texts and errors itself, in lines that begin with
# `// promises: ` or `// error: `.
function(attile_compile_fail_file source)
  cmake_path(GET source STEM name)
  file(STRINGS "${source}" texts REGEX "^// promises: .")
  file(STRINGS "${source}" errors REGEX "^// error: .")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  if(NOT texts AND NOT errors)
    message(FATAL_ERROR "${source}: no line begins with '// promises: ' or '// error: '")
  endif()
  list(TRANSFORM texts REPLACE "^// promises: " "")
  list(TRANSFORM errors REPLACE "^// error: " "")
  attile_compile_fail(${name} "${source}" TEXTS ${texts} ERRORS ${errors})
endfunction()
