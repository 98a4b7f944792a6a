# SPDX-License-Identifier: MIT
# What the scripts that run attend begin with, after which WORK is an empty folder, and how they
# make files. Needs sh and printf.

foreach(variable IN ITEMS ATTEND DATA WORK)
  if(NOT DEFINED ${variable})
    cmake_path(GET CMAKE_SCRIPT_MODE_FILE FILENAME script)
    message(FATAL_ERROR "${script} needs -D${variable}=...")
  endif()
endforeach()
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

# shell(script): runs it with sh in the work folder.
function(shell script)
  execute_process(COMMAND sh -c "${script}" WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "cannot make a test file: ${script}")
  endif()
endfunction()

# npy(name header data): a .npy file of version 1.0 whose header is padded to 118 characters, so
# that the data begin at byte 128. `data` is a shell command that writes them.
function(npy name header data)
  shell("{ printf '\\223NUMPY\\001\\000v\\000%-117s\\n' \"${header}\"; ${data}; } > ${name}")
endfunction()

# tensor(name shape data): the same with the usual header.
function(tensor name shape data)
  npy(${name} "{'descr': '<f4', 'fortran_order': False, 'shape': ${shape}, }" "${data}")
endfunction()
