# SPDX-License-Identifier: MIT
# The documents and the headers' /// blocks as HTML: target `docs`, in html/ of the build folder.
# Doxygen's warnings are errors. Concepts need 1.9.4, which finds no document under a path with a
# space in it. Where the target cannot be there, only the preset docs (ATTILE_BUILD_DOCS) minds.
find_package(Doxygen 1.9.4 QUIET)
find_program(ATTILE_SED sed)
mark_as_advanced(ATTILE_SED)

set(attile_docs_need "Doxygen, 1.9.4 or newer, sed, and a source folder without spaces in its path")
if(DOXYGEN_FOUND AND ATTILE_SED AND NOT PROJECT_SOURCE_DIR MATCHES " ")
  set(ATTILE_DOCS_HTML "${PROJECT_BINARY_DIR}/html")
  set(ATTILE_DOXYFILE "${PROJECT_BINARY_DIR}/Doxyfile")
  configure_file(docs/Doxyfile.in "${ATTILE_DOXYFILE}" @ONLY)
  add_custom_target(
    docs
    COMMAND Doxygen::doxygen "${ATTILE_DOXYFILE}"
    COMMENT "Documents in ${ATTILE_DOCS_HTML}/index.html"
    VERBATIM)
elseif(ATTILE_BUILD_DOCS)
  message(FATAL_ERROR "attile: the documents need ${attile_docs_need}.")
endif()

# Test `docs`, label host: the documents build without a warning.
function(attile_docs_test)
  if(TARGET docs)
    add_test(NAME docs COMMAND Doxygen::doxygen "${ATTILE_DOXYFILE}")
  else()
    add_test(NAME docs COMMAND ${CMAKE_COMMAND} -E echo "skipped: needs ${attile_docs_need}")
    set_tests_properties(docs PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped:")
  endif()
  set_tests_properties(docs PROPERTIES LABELS host)
endfunction()
