# SPDX-License-Identifier: MIT
# Packed sentences of a real text, in attend: each has the same O, dQ, dK and dV among the others as
# alone, bit for bit, and all are within the contract's bounds.
#   cmake -DATTEND=<program> -DDATA=<examples/data> -DWORK=<folder> -P attend_sentences.cmake
# Needs sh, printf, head and tail for the binary files.
cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/npy_files.cmake")
file(MAKE_DIRECTORY "${WORK}/alone" "${WORK}/packed")
set(row_bytes 1536) # 12 heads of 32 floats

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    string(JOIN " " command ${ARGN})
    message(FATAL_ERROR "${command}\nexit code: ${code}\n${output}")
  endif()
endfunction()

# cut(to from first rows): those rows of a (1, rows, 12, 32) file whose data begin at byte 128.
function(cut to from first rows)
  math(EXPR begin "129 + ${first} * ${row_bytes}")
  math(EXPR bytes "${rows} * ${row_bytes}")
  tensor(${to} "(1, ${rows}, 12, 32)" "tail -c +${begin} '${from}' | head -c ${bytes}")
endfunction()

# attention(folder outputs arguments...): both passes, dO being the model's O.
set(outputs o dq dk dv)
function(attention folder from)
  set(files)
  foreach(name IN LISTS outputs)
    list(APPEND files --${name} ${folder}/${name}.npy)
  endforeach()
  run("${ATTEND}" --q ${from}/q.npy --k ${from}/k.npy --v ${from}/v.npy --do ${from}/o.npy --check
      --cu-seqlens-q ${ARGN} ${files})
endfunction()

file(STRINGS "${DATA}/sentences.txt" sentences)
attention(packed "${DATA}" "${sentences}")
string(REPLACE "," ";" offsets "${sentences}")
list(POP_FRONT offsets first)
if(NOT first EQUAL 0)
  message(FATAL_ERROR "the first sentence begins at ${first}")
endif()
set(count 0)
foreach(end IN LISTS offsets)
  math(EXPR rows "${end} - ${first}")
  foreach(name IN ITEMS q k v o)
    cut(${name}.npy "${DATA}/${name}.npy" ${first} ${rows})
  endforeach()
  attention(alone . 0,${rows})
  foreach(name IN LISTS outputs)
    cut(among.npy packed/${name}.npy ${first} ${rows})
    cut(alone.npy alone/${name}.npy 0 ${rows}) # with the same header
    run(${CMAKE_COMMAND} -E compare_files among.npy alone.npy)
  endforeach()
  set(first ${end})
  math(EXPR count "${count} + 1")
endforeach()
if(NOT count EQUAL 6 OR NOT first EQUAL 152)
  message(FATAL_ERROR "there are ${count} sentences, up to token ${first}")
endif()
message(STATUS "${count} sentences are the same among the others as alone")
