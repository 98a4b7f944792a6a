# SPDX-License-Identifier: MIT
# How attend fails, and what it writes when it does not:
#   cmake -DATTEND=<program> -DDATA=<examples/data> -DWORK=<scratch folder> -P attend_errors.cmake
# Stops at the first case that is wrong. Needs sh, printf, head, tail and dd for the binary files.
cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/expect_words.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/npy_files.cmake")
file(MAKE_DIRECTORY "${WORK}/out" "${WORK}/folder")

set(count 0)
set(q "${DATA}/q.npy")
set(k "${DATA}/k.npy")
set(v "${DATA}/v.npy")
set(qkv --q ${q} --k ${k} --v ${v})
set(outputs --o ${WORK}/out/o.npy --lse ${WORK}/out/lse.npy)

# ---- making files ----------------------------------------------------------------------------

# take(variable source bytes): a command that writes the first `bytes` of the data of `source`.
function(take variable source bytes)
  set(${variable} "tail -c +129 '${source}' | head -c ${bytes}" PARENT_SCOPE)
endfunction()

# to_bhsd(name source rows): the first rows of a (1, rows, 12, 32) file as (1, 12, rows, 32).
function(to_bhsd name source rows)
  set(copy "for h in 0 1 2 3 4 5 6 7 8 9 10 11; do s=0; while [ $s -lt ${rows} ]; do \
dd if='${source}' bs=128 count=1 skip=$((1 + s * 12 + h)) 2>/dev/null; s=$((s + 1)); done; done")
  tensor(${name} "(1, 12, ${rows}, 32)" "${copy}")
endfunction()

# ---- running attend --------------------------------------------------------------------------

function(wrong what)
  message(FATAL_ERROR "attend ${command}\n${what}\nexit code: ${code}\n"
                      "stdout: ${stdout}\nstderr: ${stderr}")
endfunction()

macro(attend)
  execute_process(COMMAND "${ATTEND}" ${ARGN} WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code
                  OUTPUT_VARIABLE stdout ERROR_VARIABLE stderr)
  string(JOIN " " command ${ARGN})
  math(EXPR count "${count} + 1")
  set(count ${count} PARENT_SCOPE)
endmacro()

macro(expect_nothing_written)
  file(GLOB left "${WORK}/out/*" "${WORK}/folder/*")
  if(left)
    wrong("left behind: ${left}")
  endif()
endmacro()

# fails(words arguments...): exit code 2, one sentence on stderr with each of the words, no output.
function(fails words)
  attend(${ARGN})
  if(NOT code EQUAL 2)
    wrong("must exit with 2")
  elseif(NOT stderr MATCHES "^attend: [^\n]*\\.\n$")
    wrong("must print one sentence on stderr")
  elseif(NOT stdout STREQUAL "")
    wrong("must print nothing on stdout")
  endif()
  expect_words("must name on stderr" "${stderr}" "${words}")
  expect_nothing_written()
endfunction()

# misused(words arguments...): exit code 64, one sentence with the words and then the usage.
function(misused words)
  attend(${ARGN})
  if(NOT code EQUAL 64)
    wrong("must exit with 64")
  elseif(NOT stderr MATCHES "^attend: [^\n]*\\.\nusage: attend ")
    wrong("must print one sentence and the usage on stderr")
  elseif(NOT stdout STREQUAL "")
    wrong("must print nothing on stdout")
  endif()
  string(REGEX MATCH "^[^\n]*" sentence "${stderr}")
  expect_words("must name on stderr" "${sentence}" "${words}")
  expect_nothing_written()
endfunction()

# runs(pattern arguments...): exit code 0, nothing on stderr, stdout that matches the pattern.
function(runs pattern)
  attend(${ARGN})
  if(NOT code EQUAL 0)
    wrong("must exit with 0")
  elseif(NOT stderr STREQUAL "")
    wrong("must print nothing on stderr")
  elseif(NOT stdout MATCHES "${pattern}")
    wrong("must print on stdout: ${pattern}")
  endif()
  set(stdout "${stdout}" PARENT_SCOPE)
endfunction()

# written(name descr shape): the output is there, with that header, and nothing else is.
function(written name descr shape)
  file(STRINGS "${WORK}/out/${name}" header LIMIT_COUNT 1 REGEX "descr")
  string(FIND "${header}" "{'descr': '${descr}', 'fortran_order': False, 'shape': ${shape}, }" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${name} has the header ${header}, not ${descr} and ${shape}")
  endif()
endfunction()

# notes(words pattern arguments...): the same, but for one sentence on stderr, with the words.
function(notes words pattern)
  attend(${ARGN})
  if(NOT code EQUAL 0)
    wrong("must exit with 0")
  elseif(NOT stderr MATCHES "^attend: [^\n]*\\.\n$")
    wrong("must print one sentence on stderr")
  elseif(NOT stdout MATCHES "${pattern}")
    wrong("must print on stdout: ${pattern}")
  endif()
  expect_words("must name on stderr" "${stderr}" "${words}")
endfunction()

function(clear_outputs names)
  file(GLOB left RELATIVE "${WORK}/out" "${WORK}/out/*")
  list(SORT left)
  list(SORT names)
  if(NOT "${left}" STREQUAL "${names}")
    message(FATAL_ERROR "wrote ${left} instead of ${names}")
  endif()
  foreach(name IN LISTS left)
    file(RENAME "${WORK}/out/${name}" "${WORK}/${name}")
  endforeach()
endfunction()

function(same_bytes a b)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E compare_files "${WORK}/${a}" "${WORK}/${b}"
                  RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${a} and ${b} differ")
  endif()
endfunction()

# ---- a file that cannot be read --------------------------------------------------------------

set(with_kv --k ${k} --v ${v} ${outputs})
set(zeros "head -c 96 /dev/zero")  # (1, 2, 3, 4) of '<f4'

fails("nothing.npy;does not exist" --q nothing.npy ${with_kv})
fails("nothing.npy;does not exist" --q ${q} --k ${k} --v nothing.npy ${outputs})
fails("nothing.npy;does not exist" ${qkv} --do nothing.npy ${outputs})
fails("nothing.npy;does not exist" ${qkv} --expect nothing.npy ${outputs})
fails("folder;not a regular file" --q folder ${with_kv})
fails("text.txt;not a .npy file;np.save" --q ${DATA}/text.txt ${with_kv})
shell(": > empty.npy")
fails("empty.npy;not a .npy file" --q empty.npy ${with_kv})
shell("{ printf 'PK'; cat '${q}'; } > archive.npz")
fails("archive.npz;an archive;np.savez;np.save" --q archive.npz ${with_kv})
shell("head -c 100000 '${q}' > cut.npy")
fails("cut.npy;is truncated;233472 bytes;99872" --q cut.npy ${with_kv})
shell("head -c 60 '${q}' > cut_header.npy")
fails("cut_header.npy;truncated in its header" --q cut_header.npy ${with_kv})
shell("head -c 9 '${q}' > cut_length.npy")
fails("cut_length.npy;truncated in its header" --q cut_length.npy ${with_kv})
shell("{ cat '${q}'; printf x; } > long.npy")
fails("long.npy;has trailing bytes" --q long.npy ${with_kv})
shell("{ printf '\\223NUMPY\\004\\000v\\000'; tail -c +11 '${q}'; } > version.npy")
fails("version.npy;version 4.0" --q version.npy ${with_kv})
npy(int.npy "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }" "${zeros}")
fails("int.npy;the dtype '<i4';astype" --q int.npy ${with_kv})
npy(big_endian.npy "{'descr': '>f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }" "${zeros}")
fails("big_endian.npy;the dtype '>f4'" --q big_endian.npy ${with_kv})
npy(records.npy "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (24,), }" "${zeros}")
fails("records.npy;holds records" --q records.npy ${with_kv})
npy(fortran.npy "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2, 3, 4), }" "${zeros}")
fails("fortran.npy;Fortran order;C order;np.ascontiguousarray(x)" --q fortran.npy ${with_kv})
npy(no_shape.npy "{'descr': '<f4', 'fortran_order': False, }" "${zeros}")
fails("no_shape.npy;header is malformed" --q no_shape.npy ${with_kv})
npy(negative.npy "{'descr': '<f4', 'fortran_order': False, 'shape': (1, -2, 3, 4), }" "${zeros}")
fails("negative.npy;header is malformed" --q negative.npy ${with_kv})
npy(unclosed.npy "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4)" "${zeros}")
fails("unclosed.npy;header is malformed" --q unclosed.npy ${with_kv})
tensor(rank3.npy "(2, 3, 4)" "${zeros}")
fails("rank3.npy;rank 3;rank 4 is needed;x[None]" --q rank3.npy ${with_kv})
tensor(overflow.npy "(4294967296, 4294967296, 4294967296, 1)" "${zeros}")
fails("overflow.npy;overflows 64 bits" --q overflow.npy ${with_kv})
tensor(digits.npy "(1, 2, 3, 99999999999999999999)" "${zeros}")
fails("digits.npy;overflows 64 bits" --q digits.npy ${with_kv})
tensor(huge.npy "(1, 1048576, 1024, 128)" "${zeros}")
fails("huge.npy;is truncated;549755813888 bytes" --q huge.npy ${with_kv})
tensor(large_value.npy "(1, 1, 1, 1)" "printf '\\000\\044\\164\\111'")  # 1e6
fails("large_value.npy;fp16 cannot hold;--dtype" --q large_value.npy --k large_value.npy
      --v large_value.npy --dtype fp16 ${outputs})

# ---- shapes that do not fit each other -------------------------------------------------------

# All of one size in bytes, 12 * 4 = 48 floats, unless said otherwise.
set(zeros "head -c 192 /dev/zero")
tensor(a.npy "(1, 3, 4, 4)" "${zeros}")  # rows 3, heads 4, D 4
tensor(batch3.npy "(3, 1, 4, 4)" "${zeros}")
tensor(rows12.npy "(1, 12, 1, 4)" "${zeros}")
tensor(heads3.npy "(1, 4, 3, 4)" "${zeros}")
tensor(dim2.npy "(1, 6, 4, 2)" "${zeros}")
tensor(heads2.npy "(1, 3, 2, 8)" "${zeros}")
tensor(no_heads.npy "(1, 3, 0, 4)" ":")
tensor(no_dim.npy "(1, 3, 4, 0)" ":")
tensor(wide.npy "(1, 1, 1, 257)" "head -c 1028 /dev/zero")
tensor(very_long.npy "(0, 2000000000, 1, 4)" ":")
set(a --q a.npy --k a.npy --v a.npy)

fails("batch3.npy;batch 3;a.npy" --q a.npy --k batch3.npy --v batch3.npy ${outputs})
fails("dim2.npy;head dim 2;a.npy" --q a.npy --k dim2.npy --v dim2.npy ${outputs})
fails("batch3.npy;batch 3;a.npy" --q a.npy --k a.npy --v batch3.npy ${outputs})
fails("dim2.npy;length 6;a.npy" --q a.npy --k a.npy --v dim2.npy ${outputs})
fails("heads2.npy;number of heads 2;a.npy" --q a.npy --k a.npy --v heads2.npy ${outputs})
fails("heads3.npy;do not divide;a.npy;--layout bhsd" --q a.npy --k heads3.npy
      --v heads3.npy ${outputs})
fails("no_heads.npy;no heads" --q no_heads.npy --k a.npy --v a.npy ${outputs})
fails("no_dim.npy;head dim is 0" --q a.npy --k a.npy --v no_dim.npy ${outputs})
fails("wide.npy;above 256" --q wide.npy --k wide.npy --v wide.npy ${outputs})
fails("very_long.npy;above 2^30" --q very_long.npy --k a.npy --v a.npy ${outputs})
fails("rows12.npy;(1, 3, 4, 4)" ${a} --do rows12.npy ${outputs})
fails("rows12.npy;(1, 3, 4, 4)" ${a} --expect rows12.npy ${outputs})
tensor(sinks3.npy "(3,)" "head -c 12 /dev/zero")
fails("sinks3.npy;(3,);12 query heads" ${qkv} --sinks sinks3.npy ${outputs})
fails("a.npy;rank 1 is needed" ${qkv} --sinks a.npy ${outputs})

# ---- outputs that cannot be written ----------------------------------------------------------

fails("nowhere/o.npy;cannot be written" ${qkv} --o nowhere/o.npy)
fails("folder;not a regular file" ${qkv} --o folder)
fails("/dev/null;not a regular file" ${qkv} --o /dev/null)
fails("nowhere/lse.npy;cannot be written" ${qkv} --o out/o.npy --lse nowhere/lse.npy)
fails("nowhere/dk.npy;cannot be written" ${qkv} --do ${q} --o out/o.npy --dq out/dq.npy
      --dk nowhere/dk.npy --dv out/dv.npy)

# Through symbolic links, of which nothing is lost.
file(WRITE "${WORK}/kept.npy" "old")
file(CREATE_LINK kept.npy "${WORK}/link.npy" SYMBOLIC)
file(CREATE_LINK loop.npy "${WORK}/loop.npy" SYMBOLIC)
file(CREATE_LINK nowhere/o.npy "${WORK}/astray.npy" SYMBOLIC)
fails("loop.npy;cannot be written" ${qkv} --o loop.npy)
fails("astray.npy, a link to;nowhere/o.npy;cannot be written" ${qkv} --o astray.npy)
fails("nowhere/lse.npy;cannot be written" ${qkv} --o link.npy --lse nowhere/lse.npy)
# No file may be longer than 512 bytes, or 1024.
set(long "trap '' XFSZ; ulimit -f 1; exec '${ATTEND}' --q '${q}' --k '${k}' --v '${v}'")
execute_process(COMMAND sh -c "${long} --o link.npy" WORKING_DIRECTORY "${WORK}"
                RESULT_VARIABLE code OUTPUT_VARIABLE stdout ERROR_VARIABLE stderr)
set(command "--o link.npy, where files must be short")
if(NOT code EQUAL 2 OR NOT stderr MATCHES "link.npy, a link to [^\n]*kept.npy, cannot be written")
  wrong("must exit with 2 and say that link.npy cannot be written")
endif()
file(READ "${WORK}/kept.npy" kept)
file(GLOB left RELATIVE "${WORK}" "${WORK}/kept.npy*" "${WORK}/link.npy*")
if(NOT kept STREQUAL "old" OR NOT left STREQUAL "kept.npy;link.npy")
  wrong("must leave kept.npy as it was, and nothing beside it: ${left}")
endif()

# ---- usage -----------------------------------------------------------------------------------

misused("--q is missing")
misused("--k is missing" --q ${q} --v ${v} ${outputs})
misused("--v is missing" --q ${q} --k ${k} ${outputs})
misused("'--frobnicate' is not an option" ${qkv} --frobnicate ${outputs})
misused("'${q}' is not an option" ${qkv} ${outputs} ${q})
misused("--q needs a value" --q --k ${k} --v ${v} ${outputs})
misused("--o needs a value" ${qkv} --o)
misused("--q is given twice" ${qkv} --q ${q} ${outputs})
misused("--causal is given twice" ${qkv} --causal --causal ${outputs})
misused("--q is given twice" ${qkv} --q=${q} ${outputs})
misused("--o needs a value" ${qkv} --o=)
misused("--causal takes no value" ${qkv} --causal=yes)
misused("'--frobnicate' is not an option" ${qkv} --frobnicate=1)
misused("'-x' is not an option" -x)
foreach(bad IN ITEMS 0 -1 1.5 many)
  misused("--repeat;'${bad}'" ${qkv} --repeat ${bad} ${outputs})
endforeach()
foreach(bad IN ITEMS -1 soon inf)
  misused("--progress;'${bad}'" ${qkv} --progress ${bad} ${outputs})
endforeach()
misused("--words needs --map" ${qkv} --words ${DATA}/words.txt)
misused("--map-head needs --map" ${qkv} --map-head 0)
misused("--map-sequence needs --map" ${qkv} --map-sequence 0)
misused("--map writes an SVG;'.png'" ${qkv} --map out/m.png)
misused("--map-head;'-1'" ${qkv} --map out/m.svg --map-head -1)
misused("--map-sequence;'first'" ${qkv} --map out/m.svg --map-sequence first)
foreach(bad IN ITEMS zero 0 -1 1x inf nan 1e99)
  misused("--scale;'${bad}'" ${qkv} --scale ${bad} ${outputs})
endforeach()
foreach(bad IN ITEMS 3 3, ,3 1,2,3 -2,0 0,-2 a,b 1.5,2 99999999999,0)
  misused("--window;'${bad}'" ${qkv} --window ${bad} ${outputs})
endforeach()
misused("--cu-seqlens-q;'0,9,5'" ${qkv} --cu-seqlens-q 0,9,5 ${outputs})
misused("--cu-seqlens-q;'-1,9'" ${qkv} --cu-seqlens-q -1,9 ${outputs})
misused("--cu-seqlens-q;'0,,9'" ${qkv} --cu-seqlens-q 0,,9 ${outputs})
misused("--cu-seqlens-k;--cu-seqlens-q" ${qkv} --cu-seqlens-k 0,9 ${outputs})
misused("--cu-seqlens-k;numbers" ${qkv} --cu-seqlens-q 0,9 --cu-seqlens-k 0 ${outputs})
fails("${q};152 rows;153" ${qkv} --cu-seqlens-q 0,153 ${outputs})
misused("--window;--causal" ${qkv} --causal --window 4,4 ${outputs})
misused("--layout;bhsd, bshd;'sbhd'" ${qkv} --layout sbhd ${outputs})
misused("--dtype;'fp64'" ${qkv} --dtype fp64 ${outputs})
misused("--device;'gpu'" ${qkv} --device gpu ${outputs})
misused("--dq needs --do" ${qkv} --dq out/dq.npy)
misused("--dk needs --do" ${qkv} --dk out/dk.npy)
misused("--dv needs --do" ${qkv} --dv out/dv.npy)
misused("--dsinks needs --do" ${qkv} --sinks s.npy --dsinks out/dsinks.npy)
misused("--dsinks needs --sinks" ${qkv} --do ${q} --dsinks out/dsinks.npy)
misused("out/o.npy;two outputs" ${qkv} --o out/o.npy --lse out/../out/o.npy)
misused("out/o.npy;two outputs" ${qkv} --o out/o.npy --map out/o.npy)
misused("link.npy;two outputs" ${qkv} --o kept.npy --lse link.npy)
misused("a.npy;an input and as an output" ${a} --o a.npy)
file(CREATE_LINK a.npy "${WORK}/link_to_a.npy" SYMBOLIC)
misused("link_to_a.npy;an input and as an output" ${a} --o link_to_a.npy)
runs("usage: attend .*Exit codes: " --help)
runs("usage: attend .*Exit codes: " -h)
runs("^attend, of attile [0-9]+\\.[0-9]+\\.[0-9]+\n$" --version)

# ---- what works ------------------------------------------------------------------------------

runs("within" ${qkv} --check)
if(stdout MATCHES "no GPU")
  fails("--device cuda needs a GPU" ${qkv} --device cuda ${outputs})
endif()
runs("device +CPU" ${qkv} --device cpu --check)

# Outputs, their dtypes and shapes; an old file is replaced.
file(WRITE "${WORK}/out/o.npy" "old")
runs("forward " ${qkv} --o out/o.npy --lse out/lse.npy)
written(o.npy "<f4" "(1, 152, 12, 32)")
written(lse.npy "<f4" "(1, 12, 152)")
clear_outputs("o.npy;lse.npy")
runs("error against o.npy\n  o +max abs 0.00e.00" ${qkv} --expect o.npy)
runs("max abs 0.00e.00" --q=${q} --k=${k} --v ${v} --expect=o.npy)

# Through symbolic links, one of which leads to a link and one to nothing: they stay links.
file(CREATE_LINK ../link.npy "${WORK}/folder/link.npy" SYMBOLIC)
file(CREATE_LINK new.npy "${WORK}/folder/dangling.npy" SYMBOLIC)
shell("chmod 640 kept.npy")
runs("forward " ${qkv} --o folder/link.npy --lse folder/dangling.npy)
foreach(link IN ITEMS link.npy folder/link.npy folder/dangling.npy)
  if(NOT IS_SYMLINK "${WORK}/${link}")
    wrong("must leave ${link} a link")
  endif()
endforeach()
same_bytes(kept.npy o.npy)
same_bytes(folder/new.npy lse.npy)
shell("test -n \"$(find kept.npy -perm 640)\"")
file(REMOVE_RECURSE "${WORK}/folder")
file(MAKE_DIRECTORY "${WORK}/folder")

# Times, and progress, which comes after the heading.
runs("forward [^\n]*median of 9, " ${qkv})
runs("forward [^\n]*median of 3, .*backward [^\n]*median of 3, " ${qkv} --do ${q} --repeat 3)
runs("forward [^\n]*one call" ${qkv} --repeat=1)
runs("within" ${qkv} --check --progress 0)
set(slow ${qkv} --do ${q} --check --progress 0.001)
string(JOIN "' '" words ${slow})
set(command "${slow}")
execute_process(COMMAND sh -c "exec '${ATTEND}' '${words}' 2>&1" RESULT_VARIABLE code
                OUTPUT_VARIABLE stdout)
set(first "^(attend: reading: [^\n]*\n)*shape .*\ndevice ")
set(then "attend: errors against fp64: [0-9]+ % after [0-9]+ s, about [0-9]+ s to go\n")
if(NOT code EQUAL 0 OR NOT stdout MATCHES "${first}.*${then}(.*\n)?error against fp64\n")
  wrong("must print the heading, then how far it is, then the errors")
endif()
find_program(script script) # of util-linux: a terminal
if(script AND CMAKE_HOST_SYSTEM_NAME STREQUAL "Linux")
  execute_process(COMMAND ${script} -qec "'${ATTEND}' '${words}'" /dev/null OUTPUT_VARIABLE stdout)
  string(ASCII 27 escape)
  string(FIND "${stdout}" "\r${escape}[Kerror against fp64" found)
  if(found EQUAL -1 OR NOT stdout MATCHES "attend: errors against fp64: ")
    wrong("must write over its line on a terminal, and clear it")
  endif()
endif()

# What can be computed with, and is odd.
set(some "printf '\\000\\000\\300\\177'; printf '\\000\\000\\200\\177'")
tensor(nan.npy "(1, 3, 4, 4)" "head -c 92 /dev/zero; ${some}; head -c 92 /dev/zero")
notes("nan.npy holds 1 NaN and 1 infinite among its 48 values;(0, 1, 1, 3)" " o .*NaN in both"
      --layout bshd --q nan.npy --k a.npy --v a.npy --check)
tensor(turned.npy "(1, 4, 12, 1)" "head -c 192 /dev/zero")
notes("turned.npy;4 rows of 12 heads;--layout bhsd" "q_len 4" --q turned.npy --k turned.npy
      --v turned.npy)
runs("q_heads 12" --layout bshd --q turned.npy --k turned.npy --v turned.npy)
foreach(dtype IN ITEMS fp16 bf16)
  set(descr "<f4")
  if(dtype STREQUAL fp16)
    set(descr "<f2")
  endif()
  runs("run +${dtype}.*within" ${qkv} --dtype ${dtype} --o out/o_${dtype}.npy --check)
  written(o_${dtype}.npy ${descr} "(1, 152, 12, 32)")
  clear_outputs("o_${dtype}.npy")
  runs("max abs 0.00e.00" ${qkv} --dtype ${dtype} --expect o_${dtype}.npy)
endforeach()
runs("D 32" --q o_fp16.npy --k o_fp16.npy --v o_fp16.npy --dtype fp16 --check)

# The gradients, which are then read back.
runs("backward .*dq .*within.*dk .*within.*dv .*within" ${qkv} --do ${DATA}/o.npy --causal --check
     --dq out/dq.npy --dk out/dk.npy --dv out/dv.npy)
foreach(name IN ITEMS dq dk dv)
  written(${name}.npy "<f4" "(1, 152, 12, 32)")
endforeach()
clear_outputs("dq.npy;dk.npy;dv.npy")
runs("within" --q dq.npy --k dk.npy --v dv.npy --check)

# Sinks, and their gradient.
take(sinks "${DATA}/k.npy" 48)
tensor(sinks.npy "(12,)" "${sinks}")
runs("sinks.*lse .*within.*dq .*within.*dsinks .*within" ${qkv} --sinks sinks.npy --causal
     --do ${DATA}/o.npy --check --dsinks out/dsinks.npy)
written(dsinks.npy "<f4" "(12,)")
# Sinks of 60, far above all scores: an exponent's error is the same in all rows.
set(high "for h in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '\\000\\000\\160\\102'; done")
tensor(high.npy "(12,)" "${high}")
foreach(dtype IN ITEMS fp32 fp16 bf16)
  runs("dsinks .*within" ${qkv} --sinks high.npy --do ${DATA}/o.npy --dtype ${dtype} --check)
endforeach()
clear_outputs("dsinks.npy")

# The same rows in the other layout give the same bits in the other layout.
foreach(name IN ITEMS q k v)
  take(data "${DATA}/${name}.npy" 24576)
  tensor(${name}_bshd.npy "(1, 16, 12, 32)" "${data}")
  to_bhsd(${name}_bhsd.npy ${name}_bshd.npy 16)
endforeach()
foreach(layout IN ITEMS bshd bhsd)
  runs("layout ${layout}.*within" --layout ${layout} --q q_${layout}.npy --k k_${layout}.npy
       --v v_${layout}.npy --do q_${layout}.npy --check
       --o out/o_${layout}.npy --lse out/lse_${layout}.npy --dv out/dv_${layout}.npy)
  clear_outputs("o_${layout}.npy;lse_${layout}.npy;dv_${layout}.npy")
endforeach()
to_bhsd(o_turned.npy o_bshd.npy 16)
to_bhsd(dv_turned.npy dv_bshd.npy 16)
same_bytes(o_turned.npy o_bhsd.npy)
same_bytes(lse_bshd.npy lse_bhsd.npy)
runs("max abs 0.00e.00" --layout bhsd --q q_bhsd.npy --k k_bhsd.npy --v v_bhsd.npy
     --expect o_turned.npy)

# Masks: an unlimited window hides nothing, R = 0 is causal.
runs("mask none" ${qkv} --window -1,-1 --expect o.npy)
runs("mask causal" ${qkv} --causal --o out/causal.npy)
clear_outputs("causal.npy")
runs("mask causal.*max abs 0.00e.00" ${qkv} --window -1,0 --expect causal.npy)
runs("mask window, left 8, right 0.*within" ${qkv} --causal --window 8,-1 --check)
runs("mask window, left 3, right 2.*within" ${qkv} --do ${q} --window 3,2 --check)
runs("packed    152 rows.*within" ${qkv} --do ${q} --causal --check --cu-seqlens-q 0,31,31,70)
runs("packed    152 rows.*within" ${qkv} --do ${q} --check --cu-seqlens-q 3,9,80
     --cu-seqlens-k 0,70,71)
runs("scale 0.5.*within" ${qkv} --scale 0.5 --check)

# Grouped heads, q_len != kv_len, Dv != D, the largest D, and no rows at all: the same numbers
# under other shapes.
take(all "${k}" 233472)
take(half "${k}" 116736)
tensor(k_gqa.npy "(1, 456, 4, 32)" "${all}")
runs("q_len 152, kv_len 456, q_heads 12, kv_heads 4.*within" --q ${q} --k k_gqa.npy --v k_gqa.npy
     --causal --do ${q} --check)
tensor(k_half.npy "(1, 76, 12, 32)" "${half}")
tensor(v_wide.npy "(1, 76, 12, 64)" "${all}")
runs("D 32, Dv 64.*within" --q ${q} --k k_half.npy --v v_wide.npy --check)
tensor(d256.npy "(1, 228, 1, 256)" "${all}")
runs("D 256.*within" --q d256.npy --k d256.npy --v d256.npy --scale 0.01 --do d256.npy --check)
take(odd "${q}" 7500)
tensor(odd.npy "(1, 25, 1, 75)" "${odd}")
runs("D 75.*within" --q odd.npy --k odd.npy --v odd.npy --do odd.npy --dtype bf16 --check)
tensor(none.npy "(1, 0, 12, 32)" ":")
runs("q_len 0.*within" --q none.npy --k ${k} --v ${v} --check)
runs("kv_len 0.*within" --q ${q} --k none.npy --v none.npy --do ${q} --check)

message(STATUS "${count} runs of attend as they should be")
