# SPDX-License-Identifier: MIT

# expect_words(what text words): that the text has each of the words; else the includer's
# wrong("<what>: <word>").
function(expect_words what text words)
  foreach(word IN LISTS words)
    string(FIND "${text}" "${word}" found)
    if(found EQUAL -1)
      wrong("${what}: ${word}")
    endif()
  endforeach()
endfunction()
