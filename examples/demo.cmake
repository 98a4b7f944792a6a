# SPDX-License-Identifier: MIT
# A step of the demo:
#   cmake -DSTEP=about|cpu|gpu|no_gpu -DDATA=<examples/data> -DATTEND=<program> -DPICTURE=<svg>
#         -DGPU=ON|OFF -P demo.cmake
# ATTEND and PICTURE are for the steps cpu and gpu; GPU says whether a GPU part is built.
cmake_minimum_required(VERSION 3.25)

# say(text...): lines on stdout, where message() has stderr.
function(say)
  foreach(line IN LISTS ARGN)
    execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${line}")
  endforeach()
endfunction()

# attend(title options...): a run on the model's Q, K and V, with every error against fp64.
function(attend title)
  say("" "${title}")
  execute_process(COMMAND "${ATTEND}" --q "${DATA}/q.npy" --k "${DATA}/k.npy" --v "${DATA}/v.npy"
                          --check ${ARGN} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "attend failed: ${code}")
  endif()
endfunction()

if(STEP STREQUAL about)
  file(STRINGS "${DATA}/text.txt" lines)
  list(GET lines 0 line)
  say("" "Attention of one layer of a real model, on a real text:"
      "  model  sentence-transformers/all-MiniLM-L6-v2 (BERT, 6 layers): layer 1, 12 heads of D 32"
      "  text   the opening of Lincoln's Gettysburg Address, 152 tokens:"
      "         \"${line} ...\""
      "  files  ${DATA}: q.npy, k.npy, v.npy,"
      "         and o.npy, which the model itself computed from them" "")
  if(GPU)
    say("The program, attend, is built for the CPU first, which takes a minute or two, its kernels"
        "for the GPU, which take some minutes, after that." "")
  else()
    say("The program, attend, is built for the CPU, which takes a minute or two: no GPU was found"
        "here, and none was named." "")
  endif()
elseif(STEP STREQUAL cpu OR STEP STREQUAL gpu)
  set(device auto)
  if(STEP STREQUAL cpu)
    set(device cpu)
  endif()
  file(STRINGS "${DATA}/sentences.txt" sentences)
  attend("1. Every token sees every token: is O what the model computed, and what fp64 does?"
         --device ${device} --expect "${DATA}/o.npy")
  attend("2. Causal: a token sees itself and those before it." --device ${device} --causal)
  attend("3. Each of the six sentences by itself, as packed sequences, and a map of the first one."
         --device ${device} --cu-seqlens-q ${sentences} --map "${PICTURE}"
         --words "${DATA}/words.txt" --map-head 7)
  say("" "The picture, which word attends to which, is for a browser:" "  ${PICTURE}"
      "In this head, small words look at the word that they lead to (on, this -> continent),"
      "the others rest on [CLS], the token that every text begins with." "")
elseif(STEP STREQUAL no_gpu)
  say("For a GPU: cmake --preset demo -DATTILE_ATTEND_GPU=ON, and the same command again. The"
      "kernels take minutes to build." "")
else()
  message(FATAL_ERROR "there is no step '${STEP}'")
endif()
