// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/machine.h"
#include "support/catch.h"
#include "support/suite_cases.h"

// The suite's cases on the simulated machine, each a test of its own.

namespace attile_test {

/// What the machine has to say, as a fault of the case; each case begins with nothing said.
inline std::string machine_reports() {
  std::string text;
  for (const sim::Report& report : sim::take_reports()) {
    text += report.kind + ": " + report.text + "\n";
  }
  return text;
}

/// Registers a test under a name that is made when the program starts.
class Registered {
 public:
  Registered(std::string name, std::function<void()> test) : name_(std::move(name)) {
    struct Invoker : Catch::ITestInvoker {
      explicit Invoker(std::function<void()> f) : run(std::move(f)) {}
      void invoke() const override { run(); }
      std::function<void()> run;
    };
#if CATCH_VERSION_MAJOR >= 3
    const Catch::AutoReg add(
        Catch::Detail::unique_ptr<Catch::ITestInvoker>(new Invoker(std::move(test))),
        CATCH_INTERNAL_LINEINFO, {}, {name_, {}});
#else
    const Catch::AutoReg add(new Invoker(std::move(test)), CATCH_INTERNAL_LINEINFO, {}, {name_});
#endif
  }

 private:
  std::string name_;
};

/// FLOPs of a case, roughly, and a price for each block: what its time on the machine goes with.
inline double cost(const Case& c) {
  return static_cast<double>(c.batch) * c.q_heads * (1.0 * c.q_len * c.kv_len * c.head_dim + 2e4);
}

/// A test for each case with this policy that the executor takes and the machine ends in seconds.
template <Direction kDirection, attile::Element T, Policy kPolicy, class Executor>
void register_cases(const std::string& family, Executor executor, double most_cost) {
  constexpr bool kBackward = kDirection == Direction::kBackward;
  for (const Case& c : kCases) {
    if (c.policy != kPolicy || (kBackward && !c.backward) || !executor.takes(c)) continue;
    if (cost(c) > most_cost) continue;
    static std::vector<std::unique_ptr<Registered>> all;
    const std::string name = family + (kBackward ? ".backward." : ".forward.") + c.name;
    all.push_back(std::make_unique<Registered>(name, [executor, &c]() mutable {
      std::string faults = machine_reports();
      if constexpr (kBackward) {
        faults += backward_faults<T, kPolicy>(executor, c);
      } else {
        faults += forward_faults<T, kPolicy>(executor, c);
      }
      faults += machine_reports();
      INFO(faults);
      CHECK(faults.empty());
    }));
  }
}

}  // namespace attile_test
