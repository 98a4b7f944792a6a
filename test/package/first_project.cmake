# SPDX-License-Identifier: MIT
# cmake -DATTILE_SOURCE_DIR= -DWORK= -DGENERATOR= -DMAKE_PROGRAM= -DCXX_COMPILER= -DCUDA_COMPILER=
#       -DCUDA_ARCHITECTURE= -P first_project.cmake
# Does what docs/calling.md says: builds its project, the first blocks of CMake and C++, beside a
# link to the sources; and configures it with an attile that the preset install has installed.
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}/mine" "${WORK}/installed")
file(CREATE_LINK "${ATTILE_SOURCE_DIR}" "${WORK}/mine/attile" SYMBOLIC)
file(READ "${ATTILE_SOURCE_DIR}/docs/calling.md" page)

# quote(language file): writes the page's first block of a language to a file.
function(quote language file)
  string(FIND "${page}" "```${language}\n" begin)
  string(LENGTH "```${language}\n" length)
  math(EXPR begin "${begin} + ${length}")
  string(SUBSTRING "${page}" ${begin} -1 rest)
  string(FIND "${rest}" "```" end)
  string(SUBSTRING "${rest}" 0 ${end} text)
  file(CONFIGURE OUTPUT "${file}" CONTENT "${text}" @ONLY)
endfunction()

function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(options -G "${GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}"
            "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_CUDA_COMPILER=${CUDA_COMPILER}"
            "-DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURE}")
quote(cmake "${WORK}/mine/CMakeLists.txt")
quote(cpp "${WORK}/mine/main.cu")
run("${CMAKE_COMMAND}" -S "${WORK}/mine" -B "${WORK}/mine/build" ${options})
run("${CMAKE_COMMAND}" --build "${WORK}/mine/build")
execute_process(COMMAND "${WORK}/mine/build/mine" RESULT_VARIABLE code OUTPUT_VARIABLE said)
if(NOT said MATCHES "^row 99 of O is 49.5,|^cudaMalloc: " OR (said MATCHES "^row" AND code))
  message(FATAL_ERROR "the first project says (${code}):\n${said}")
endif()

set(in_tree "add_subdirectory(attile)\n")
set(found "find_package(attile 0.1 REQUIRED)\n")
file(READ "${WORK}/mine/CMakeLists.txt" text)
string(REPLACE "${in_tree}" "${found}" text "${text}")
string(FIND "${text}" "${found}" is_replaced)
string(FIND "${page}" "```cmake\n${found}```" is_quoted)
if(is_replaced EQUAL -1 OR is_quoted EQUAL -1)
  message(FATAL_ERROR "docs/calling.md has not '${in_tree}' and '${found}'")
endif()
file(WRITE "${WORK}/installed/CMakeLists.txt" "${text}")
file(COPY_FILE "${WORK}/mine/main.cu" "${WORK}/installed/main.cu")
run("${CMAKE_COMMAND}" --preset install -S "${ATTILE_SOURCE_DIR}" -B "${WORK}/install")
run("${CMAKE_COMMAND}" --install "${WORK}/install" --prefix "${WORK}/prefix")
run("${CMAKE_COMMAND}" -S "${WORK}/installed" -B "${WORK}/installed/build" ${options}
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
message(STATUS "the first project: ${said}")
