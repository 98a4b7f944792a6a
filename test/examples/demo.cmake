# SPDX-License-Identifier: MIT
# The steps of the demo, as they are run without a GPU:
#   cmake -DDEMO=<examples/demo.cmake> -DATTEND=<program> -DDATA=<examples/data> -DWORK=<folder>
#         -P demo.cmake
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

# step(name gpu pattern): prints what matches.
function(step name gpu pattern)
  execute_process(COMMAND "${CMAKE_COMMAND}" -DSTEP=${name} -DATTEND=${ATTEND} -DDATA=${DATA}
                          -DPICTURE=${WORK}/attention.svg -DGPU=${gpu} -P "${DEMO}"
                  RESULT_VARIABLE code OUTPUT_VARIABLE stdout ERROR_VARIABLE stderr)
  if(NOT code EQUAL 0 OR NOT stderr STREQUAL "" OR NOT stdout MATCHES "${pattern}")
    message(FATAL_ERROR "step ${name}, exit code: ${code}, must print: ${pattern}\n"
                        "stdout: ${stdout}\nstderr: ${stderr}")
  endif()
endfunction()

step(about OFF "model +sentence-transformers/all-MiniLM-L6-v2.*Gettysburg.*Four score.*no GPU was")
step(about ON "for the CPU first.*GPU, which take")
set(three "1\\. .*o.npy.*within.*2\\. .*mask causal.*within.*3\\. .*batch 6.*within.*map ")
foreach(name IN ITEMS cpu gpu)
  file(REMOVE "${WORK}/attention.svg")
  step(${name} OFF "${three}.*on -> continent +83 %.*attention.svg")
  file(READ "${WORK}/attention.svg" picture)
  if(NOT picture MATCHES "→ fathers 75 %")
    message(FATAL_ERROR "the picture lacks a word: ${picture}")
  endif()
endforeach()
step(no_gpu OFF "ATTILE_ATTEND_GPU=ON")
message(STATUS "the demo is as it should be")
