// SPDX-License-Identifier: MIT
// The main function of every test executable, compiled once.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using ListenerBase = Catch::EventListenerBase;
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
using ListenerBase = Catch::TestEventListenerBase;
#endif

#include <cstdio>

#include "main.h"

namespace {

constexpr int kFailed = 1;

struct {
  int cases = 0;
  int skipped = 0;
  bool this_case_skipped = false;
} run;

struct SkipCounter : ListenerBase {
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo&) override { run.this_case_skipped = false; }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ++run.cases;
    if (run.this_case_skipped && stats.totals.assertions.total() == 0) ++run.skipped;
  }
};
CATCH_REGISTER_LISTENER(SkipCounter)

bool only_lists(const Catch::ConfigData& config) {
  const bool lists = config.listTests || config.listTags || config.listReporters;
#ifdef CATCH_CONFIG_RUNNER
  return lists || config.listTestNamesOnly || config.showHelp || config.libIdentify;
#else
  return lists || config.listListeners || config.showHelp || config.libIdentify;
#endif
}

}  // namespace

void attile_test::mark_skipped() { run.this_case_skipped = true; }

int main(int argc, char** argv) {
  Catch::Session session;
  if (session.applyCommandLine(argc, argv) != 0) return kFailed;

  if (only_lists(session.configData())) return session.run();
  if (const char* reason = attile_test::reason_to_skip()) {
    std::printf("skipped: %s\n", reason);
    return attile_test::kSkipReturnCode;
  }

#ifndef CATCH_CONFIG_RUNNER
  session.configData().allowZeroTests = true;  // as in version 2
#endif
  // Catch2 may return the number of failed assertions, which must not look like a skipped run.
  if (session.run() != 0) return kFailed;
  if (run.skipped > 0) std::printf("skipped: %d of %d test cases\n", run.skipped, run.cases);
  return run.skipped == run.cases ? attile_test::kSkipReturnCode : 0;
}
