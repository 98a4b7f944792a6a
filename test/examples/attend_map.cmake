# SPDX-License-Identifier: MIT
# The pictures of attend, and how they fail:
#   cmake -DATTEND=<program> -DDATA=<examples/data> -DWORK=<scratch folder> -P attend_map.cmake
# Needs sh, printf and head for the binary files.
cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/expect_words.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/npy_files.cmake")
set(qkv --q "${DATA}/q.npy" --k "${DATA}/k.npy" --v "${DATA}/v.npy")

function(wrong what)
  message(FATAL_ERROR "attend ${command}\n${what}\nexit code: ${code}\n"
                      "stdout: ${stdout}\nstderr: ${stderr}\npicture: ${picture}")
endfunction()

# draws(texts lacking arguments...): exit code 0, and a picture with each of the texts and none of
# those that are lacking; sets `picture` and `stdout`.
function(draws texts lacking)
  file(REMOVE "${WORK}/m.svg")
  execute_process(COMMAND "${ATTEND}" --map m.svg ${ARGN} WORKING_DIRECTORY "${WORK}"
                  RESULT_VARIABLE code OUTPUT_VARIABLE stdout ERROR_VARIABLE stderr)
  string(JOIN " " command ${ARGN})
  set(picture "")
  if(NOT code EQUAL 0 OR NOT EXISTS "${WORK}/m.svg")
    wrong("must exit with 0 and write a picture")
  endif()
  file(READ "${WORK}/m.svg" picture)
  if(NOT picture MATCHES "^<svg xmlns=\"http://www.w3.org/2000/svg\" .*</svg>\n$")
    wrong("must write an SVG")
  endif()
  expect_words("must draw" "${picture}" "${texts}")
  foreach(text IN LISTS lacking)
    string(FIND "${picture}" "${text}" found)
    if(NOT found EQUAL -1)
      wrong("must not draw: ${text}")
    endif()
  endforeach()
  # What is opened is closed.
  foreach(element IN ITEMS text title style svg)
    string(REGEX MATCHALL "<${element}[ >]" opened "${picture}")
    string(REGEX MATCHALL "</${element}>" closed "${picture}")
    list(LENGTH opened opened)
    list(LENGTH closed closed)
    if(NOT opened EQUAL closed)
      wrong("must close each of its ${opened} ${element}, not ${closed}")
    endif()
  endforeach()
  set(picture "${picture}" PARENT_SCOPE)
  set(stdout "${stdout}" PARENT_SCOPE)
endfunction()

# fails(words arguments...): exit code 2, one sentence with each of the words, no picture.
function(fails words)
  file(REMOVE "${WORK}/m.svg")
  execute_process(COMMAND "${ATTEND}" --map m.svg ${ARGN} WORKING_DIRECTORY "${WORK}"
                  RESULT_VARIABLE code OUTPUT_VARIABLE stdout ERROR_VARIABLE stderr)
  string(JOIN " " command ${ARGN})
  if(NOT code EQUAL 2 OR NOT stderr MATCHES "^attend: [^\n]*\\.\n$" OR NOT stdout STREQUAL "")
    wrong("must exit with 2 and print one sentence on stderr alone")
  endif()
  expect_words("must name on stderr" "${stderr}" "${words}")
  file(GLOB left "${WORK}/*.svg*")
  if(left)
    wrong("left behind: ${left}")
  endif()
endfunction()

# Scores of 0: a row takes the same of each key that it sees.
tensor(a.npy "(1, 3, 4, 4)" "head -c 192 /dev/zero")
set(a --q a.npy --k a.npy --v a.npy)
draws("Which query attends to which key;mean of 4 heads, sequence 0 of 1;0 → 2: 33 %" "A map has"
      ${a})
draws("0 → 0: 100 %;1 → 0: 50 %;1 → 1: 50 %;2 → 2: 33 %" "0 → 1;1 → 2" ${a} --causal)
draws("head 3 of 4" "mean" ${a} --map-head 3 --dtype bf16)
# A sink of score 0 is one key more.
tensor(sinks.npy "(4,)" "head -c 16 /dev/zero")
draws("0 → 0: 50 %;2 → 1: 25 %;its sink takes" "" ${a} --causal --sinks sinks.npy)
# A second sequence, by itself and of a batch; grouped heads; more keys than queries.
tensor(two.npy "(2, 3, 2, 4)" "head -c 192 /dev/zero")
draws("sequence 1 of 2;2 → 1: 33 %" "" --q two.npy --k two.npy --v two.npy --map-sequence 1)
draws("sequence 1 of 2;0 → 1: 50 %" "2 → " ${a} --cu-seqlens-q 0,1,3 --map-sequence 1)
tensor(k.npy "(1, 12, 2, 4)" "head -c 384 /dev/zero")
draws("0 → 9: 10 %;2 → 11: 8 %" "0 → 10" --q a.npy --k k.npy --v k.npy --causal --map-head 3)
# A row that sees no key takes nothing.
draws("2 → 0: 100 %" "0 → 0;1 → 0" ${a} --causal --cu-seqlens-q 0,3 --cu-seqlens-k 2,3)

# Words, which are escaped, cut, and those of keys alone where queries are no rows of the same text.
file(WRITE "${WORK}/words.txt" "<&>\r\n\"quoted\"\nabcdefghijklmnoéqrstuvwxyz")
draws("Which word attends to which;&lt\;&amp\;&gt\; → &quot\;quoted&quot\;: 33 %;abcdefghijklmno…"
      "<&>;abcdefghijklmnoé" ${a} --words words.txt)
file(WRITE "${WORK}/twelve.txt" "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n")
draws("0 → a: 10 %;2 → l: 8 %" "" --q a.npy --k k.npy --v k.npy --causal --words twelve.txt)

# NaN is drawn as such.
tensor(nan.npy "(1, 3, 4, 4)"
       "head -c 96 /dev/zero; printf '\\000\\000\\300\\177'; head -c 92 /dev/zero")
draws("1 → 0: NaN;0 → 0: 33 %;Red squares are NaN" "" --q nan.npy --k a.npy --v a.npy)

# The model's own: more than is drawn, and one sentence.
draws("the first 64 of 152 queries and the first 64 of 152 keys" ">64<" ${qkv})
if(NOT stdout MATCHES "\n  A map has at most 64 rows and columns")
  wrong("must say on stdout what is left out")
endif()
draws("on → continent: 83 %;→ fathers 75 %;head 7 of 12, sequence 0 of 6;prefers-color-scheme:dark"
      "A map has" ${qkv} --cu-seqlens-q 0,35,63,76,106,118,152 --words ${DATA}/words.txt
      --map-head 7)
set(printed "map +m.svg: head 7 .*\n  strongest, one for each key:\n.*\n    on -> continent +83 %")
if(NOT stdout MATCHES "${printed}")
  wrong("must print the strongest squares")
endif()
string(REGEX MATCHALL "class=\"e\"" rows "${picture}")
list(LENGTH rows rows)
if(NOT rows EQUAL 35)
  wrong("must draw 35 rows, not ${rows}")
endif()

fails("--map-head is 4;a.npy has 4 heads" ${a} --map-head 4)
fails("--map-sequence is 1;1 sequences" ${a} --map-sequence 1)
fails("twelve.txt has 12 lines;a.npy has 3 rows" ${a} --words twelve.txt)
fails("nothing.txt does not exist" ${a} --words nothing.txt)
shell("printf 'a\\n\\377\\nc\\n' > latin.txt")
fails("latin.txt is not UTF-8 in line 2" ${a} --words latin.txt)
tensor(none.npy "(1, 0, 4, 4)" ":")
fails("nothing to draw;0 queries and 3 keys" --q none.npy --k a.npy --v a.npy)
message(STATUS "the pictures of attend are as they should be")
