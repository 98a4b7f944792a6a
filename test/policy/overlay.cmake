# SPDX-License-Identifier: MIT
# attile_policy_overlay(include folder): the headers that one more kind of policy edits, edited, and
# its own: the bundle, the arguments' field and the place that applies it. What else had to change
# for a new policy would have to be listed here.
function(attile_policy_overlay include folder)
  function(edit header)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${include}/${header}")
    file(READ "${include}/${header}" text)
    string(REPLACE ";" "@" text "${text}")  # which no header has, and no list is cut at
    set(rest ${ARGN})
    while(rest)
      list(POP_FRONT rest old new)
      string(FIND "${text}" "${old}" at)
      if(at EQUAL -1)
        message(FATAL_ERROR "test/policy: ${header} has no '${old}'")
      endif()
      string(REPLACE "${old}" "${new}" text "${text}")
    endwhile()
    string(REPLACE "@" ";" text "${text}")
    file(CONFIGURE OUTPUT "${folder}/${header}" CONTENT "${text}" @ONLY)
  endfunction()

  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/temperature.h
                 "${folder}/attile/core/temperature.h" COPYONLY)
  # The bundle.
  edit(attile/core/policies.h
       "#include <attile/core/sink.h>"
       "#include <attile/core/sink.h>\n#include <attile/core/temperature.h>"
       "AttentionSink K>\nstruct Pol" "AttentionSink K, Tempering H>\nstruct Pol"
       "AttentionSink K>\ninline" "AttentionSink K, Tempering H>\ninline"
       "AttentionSink K, class Policy>" "AttentionSink K, Tempering H, class Policy>"
       "AttentionSink K,\n" "AttentionSink K, Tempering H,\n"
       "PolicyBundle<M, S, P, Q, K>" "PolicyBundle<M, S, P, Q, K, H>"
       "PolicyBundle<Other, S, P, Q, K>" "PolicyBundle<Other, S, P, Q, K, H>"
       "dropout, sequences}" "dropout, sequences, temperature}"
       "BundleOf<Bundle, M, S, P, Q, K, Others...>"
       "BundleOf<Bundle, M, S, P, Q, K, H, Others...>"
       "  Q sequences@" "  Q sequences@\n  H temperature@"
       "using SinkType = K@" "using SinkType = K@\n  using TemperatureType = H@"
       "args.sequences}" "args.sequences, args.temperature}"
       "Sequences<Policy> + AttentionSink<Policy>"
       "Sequences<Policy> + AttentionSink<Policy> + Tempering<Policy>"
       "AttentionSink<Policy>>::type>"
       "AttentionSink<Policy>>::type,
                            typename Chosen<H, Policy, NoTemperature, Tempering<Policy>>::type>"
       "NoDropout, Uniform, NoSink>" "NoDropout, Uniform, NoSink, NoTemperature>"
       "return policy_fault(sink)"
       "if (const char* why = policy_fault(sink)) return why@
    return policy_fault(temperature)")
  # Its field of the arguments.
  edit(attile/core/args.h
       "  SequencesType sequences{}@"
       "  SequencesType sequences{}@\n  typename P::TemperatureType temperature{}@")
  # The place that applies it.
  edit(attile/tile/scores.cuh
       "  modifier.template apply<kMasked>(scores)@"
       "  if constexpr (Policies::TemperatureType::kTempers) {
    scores.for_each([&](int, int, float& s) { s *= policies.temperature.factor()@ })@
  }
  modifier.template apply<kMasked>(scores)@")
endfunction()
