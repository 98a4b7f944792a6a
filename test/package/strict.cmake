# SPDX-License-Identifier: MIT
# strict(target): a project that asks its compilers for more warnings than attile does, as errors.
function(strict target)
  set(warnings -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Werror)
  list(JOIN warnings "," for_host)
  target_compile_options(
    ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
                      "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${for_host};-Werror=all-warnings>")
endfunction()
