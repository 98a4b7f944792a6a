// SPDX-License-Identifier: MIT
// The main function of every test executable, compiled once.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using ListenerBase = Catch::EventListenerBase;
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
using ListenerBase = Catch::TestEventListenerBase;
#endif

#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <unistd.h>

#include "catch.h"
#include "main.h"

namespace {

constexpr int kFailed = 1;

struct {
  int cases = 0;
  int failed = 0;
  int skipped = 0;
  bool this_case_skipped = false;
  std::string this_case;
} run;

/// Names a case that takes long, because ctest may end the program before Catch2 does.
void name_long_case(int) {
  constexpr char kBegin[] = "still running: ";
  static_cast<void>(!write(STDOUT_FILENO, kBegin, sizeof kBegin - 1));
  static_cast<void>(!write(STDOUT_FILENO, run.this_case.data(), run.this_case.size()));
}

struct CaseCounter : ListenerBase {
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    constexpr unsigned kLongSeconds = 120;
    run.this_case_skipped = false;
    run.this_case = info.name + "\n";
    std::signal(SIGALRM, name_long_case);
    alarm(kLongSeconds);
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    alarm(0);
    ++run.cases;
    if (!stats.totals.assertions.allOk()) ++run.failed;
    if (run.this_case_skipped && stats.totals.assertions.total() == 0) ++run.skipped;
  }
};
CATCH_REGISTER_LISTENER(CaseCounter)

/// What the suites have said before main begins.
struct Suites {
  std::map<std::string, double> entries;  ///< of ctest, and how long each takes
  std::set<std::string> policies;         ///< SUITE.POLICY: has a test
  std::set<std::string> demanded;         ///< the same: has to have one
};

Suites& suites() {
  static Suites all;
  return all;
}

/// A policy that is demanded, and that no suite runs, is an entry with a test that fails.
void register_missing_tests() {
  for (const std::string& policy : suites().demanded) {
    if (suites().policies.contains(policy)) continue;
    const std::string entry = policy + ".missing", text = "no kernel of any table runs " + policy;
    suites().entries.try_emplace(entry, 0.0);
    attile_test::register_test(entry + "/no_kernel", [text] { FAIL(text); });
  }
}

/// `ENTRY MILLISECONDS`, one line each, for cmake/write_test_entries.cmake.
int list_entries() {
  for (const auto& [entry, seconds] : suites().entries) {
    std::printf("%s %.0f\n", entry.c_str(), 1000 * seconds);
  }
  return 0;
}

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
void attile_test::add_to_entry(const std::string& suite, const std::string& policy,
                               const std::string& direction, double seconds) {
  suites().entries[suite + "." + policy + "." + direction] += seconds;
  suites().policies.insert(suite + "." + policy);
}
void attile_test::demand_policy(const std::string& suite, const std::string& policy) {
  suites().demanded.insert(suite + "." + policy);
}

int main(int argc, char** argv) {
  register_missing_tests();
  if (argc == 2 && std::strcmp(argv[1], "--list-entries") == 0) return list_entries();
  Catch::Session session;
  if (session.applyCommandLine(argc, argv) != 0) return kFailed;

  if (only_lists(session.configData())) return session.run();
  if (const char* reason = attile_test::reason_to_skip()) {
    std::printf("skipped: %s\n", reason);
    return attile_test::kSkipReturnCode;
  }

  const int result = session.run();
  // For cmake/test_verdict.cmake.
  std::printf("cases: %d passed, %d failed, %d skipped\n", run.cases - run.failed - run.skipped,
              run.failed, run.skipped);
  if (run.cases == 0) std::printf("failed: no test has such a name\n");
  // Catch2 may return the number of failed assertions, which must not look like a skipped run.
  if (result != 0 || run.cases == 0) return kFailed;
  return run.skipped == run.cases ? attile_test::kSkipReturnCode : 0;
}
