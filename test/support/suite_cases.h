// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/policy_lists.h"
#include "support/suite.h"

// The table of kernels that a suite is: test/README.md says how to read and to extend one.

namespace attile_test {

enum class Direction { kForward, kBackward };

/// Runs the case and says what is wrong with it.
template <Direction kDirection, attile::Element T, Policy kPolicy, class Executor>
std::string case_faults(Executor& executor, const Case& c) {
  if constexpr (kDirection == Direction::kBackward) {
    return backward_faults<T, kPolicy>(executor, c);
  } else {
    return forward_faults<T, kPolicy>(executor, c);
  }
}

/// Whether some row of the case sees a key. Masks that leave each row one at least are not asked.
constexpr bool sees_a_key(const Case& c) {
  using enum Policy;
  if (c.batch == 0 || c.q_len == 0 || c.kv_len == 0 || c.period == 1) return false;
  const bool is_empty = c.lengths == Lengths::kAllEmpty || c.lengths == Lengths::kNoQueries ||
                        c.lengths == Lengths::kNoKeys || c.lengths == Lengths::kNoRows;
  if (has_own_lengths(c.policy) && is_empty) return false;
  // PolicyData gives the first batch `prefix` keys, and the second one none.
  const bool pads = c.policy == kKeyPadding || c.policy == kCausalKeyPadding;
  return !pads || c.prefix > 0 || c.batch > 2;
}

/// FLOPs of a case, roughly, and a price for each block: what its time goes with.
inline double cost(const Case& c) {
  const double used = has_own_lengths(c.policy) ? 0.3 : 1.0;  // of the longest rows and keys
  const double flops = used * c.q_len * c.kv_len * c.head_dim;
  return static_cast<double>(c.batch) * c.q_heads * (flops + 2e4);
}

/// What an executor has seen beside the results, where it looks at more; then it forgets that.
template <class Executor>
std::string reports_of(const Executor& executor) {
  if constexpr (requires { executor.take_reports(); }) {
    return executor.take_reports();
  } else {
    return {};
  }
}

/// How long a case takes, roughly: it decides which entries of ctest begin first.
template <class Executor>
double seconds_of(const Executor& executor, const Case& c) {
  if constexpr (requires { executor.seconds(c); }) {
    return executor.seconds(c);
  } else {
    return 1e-8 * cost(c);
  }
}

/// Which of the cases that a kernel takes it runs: one of `every`, from `begin` on.
struct Sample {
  std::size_t begin = 0, every = 1;
};

/// How many samples an entry of ctest has had. Entries begin anywhere: many have one kernel.
inline std::size_t count_sample(const std::string& entry) {
  static std::map<std::string, std::size_t> counts;
  const auto [at, is_first] = counts.try_emplace(entry, 0);
  if (is_first) at->second = std::accumulate(entry.begin(), entry.end(), std::size_t{0});
  return at->second++;
}

/// The sample of a kernel that takes so many cases. ATTILE_SUITE_EVERY is for tools under which all
/// of them would take hours. A kernel has one of `every` cases, or of fewer, so that four remain,
/// or two where the small sample is built. Each kernel of an entry begins at another case: as many
/// as `every` run all that they all take, and fewer leave some out.
inline Sample sample_of(const std::string& entry, std::size_t every, std::size_t taken) {
  if (const char* const every_of_tool = std::getenv("ATTILE_SUITE_EVERY")) {
    return {0, static_cast<std::size_t>(std::max(1, std::atoi(every_of_tool)))};
  }
  if (every == 1) return {};
  every = std::max<std::size_t>(1, std::min(every, taken / (kTestLarge ? 4 : 2)));
  return {count_sample(entry) % every, every};
}

/// Which sample of its cases an executor asks for: all, unless it has a `kEvery`.
template <class Executor>
constexpr std::size_t every_of() {
  if constexpr (requires { Executor::kEvery; }) {
    return Executor::kEvery;
  } else {
    return 1;
  }
}

template <attile::Element T>
constexpr const char* type_name() {
  if constexpr (std::same_as<T, float>) return "fp32";
  if constexpr (std::same_as<T, __half>) return "fp16";
  if constexpr (std::same_as<T, __nv_bfloat16>) return "bf16";
}

/// The kernels of one family on one executor. A row of the table, which is a call of forward(),
/// backward() or both(), is a kernel for each of its policies. It registers a test for each case
/// with that policy that the executor takes, with the name
///   EXECUTOR.FAMILY.POLICY.DIRECTION/TYPE.KERNEL/CASE
/// of which all that comes before the first slash is one entry of ctest. A kernel that takes no
/// case has a test that fails.
class Suite {
 public:
  /// `name`: EXECUTOR.FAMILY. A policy of `must_have` that no row of any table of this name in the
  /// program has is a test that fails.
  template <Policy... kPolicies>
  explicit Suite(std::string name, Policies<kPolicies...> must_have) : name_(std::move(name)) {
    demand(must_have);
  }
  /// Adds to `must_have`.
  template <Policy... kPolicies>
  void demand(Policies<kPolicies...>) const {
    (demand_policy(name_, name_of(kPolicies)), ...);
  }

  template <attile::Element T, class Executor, Policy... kPolicies>
  void forward(const std::string& kernel, const Executor& executor, Policies<kPolicies...>) const {
    (add<Direction::kForward, T, kPolicies>(kernel, executor), ...);
  }
  template <attile::Element T, class Executor, Policy... kPolicies>
  void backward(const std::string& kernel, const Executor& executor, Policies<kPolicies...>) const {
    (add<Direction::kBackward, T, kPolicies>(kernel, executor), ...);
  }
  template <attile::Element T, class Executor, Policy... kPolicies>
  void both(const std::string& kernel, const Executor& executor, Policies<kPolicies...> p) const {
    forward<T>(kernel, executor, p);
    backward<T>(kernel, executor, p);
  }

  /// A test that is none of the cases. `seconds`: those of a long one on the simulated machine.
  void test(const std::string& policy, const std::string& direction, const std::string& test,
            std::function<void()> run, double seconds = 5) const {
    add_to_entry(name_, policy, direction, seconds);
    register_test(name_ + "." + policy + "." + direction + "/" + test, std::move(run));
  }

 private:
  /// What a kernel of the table is without its types: of a class that has them little is compiled.
  struct Kernel {
    Policy policy;
    Direction direction;
    std::string name;   ///< TYPE.KERNEL
    std::size_t every;  ///< see sample_of
    std::function<bool(const Case&)> takes;
    std::function<double(const Case&)> seconds;
    std::function<std::string(const Case&)> faults;
  };

  template <Direction kDirection, attile::Element T, Policy kPolicy, class Executor>
  void add(const std::string& kernel, const Executor& executor) const {
    const auto faults = [executor](const Case& c) {
      Executor own = executor;
      std::string text = reports_of(own);
      text += case_faults<kDirection, T, kPolicy>(own, c);
      return text + reports_of(own);
    };
    add({kPolicy, kDirection, std::string(type_name<T>()) + "." + kernel, every_of<Executor>(),
         [executor](const Case& c) { return executor.takes(c); },
         [executor](const Case& c) { return seconds_of(executor, c); }, faults});
  }

  void add(const Kernel& kernel) const {
    const bool is_backward = kernel.direction == Direction::kBackward;
    const std::string direction = is_backward ? "backward" : "forward";
    const std::string policy = name_of(kernel.policy), prefix = kernel.name + "/";
    std::vector<const Case*> taken;
    for (const Case& c : kCases) {
      if (c.policy != kernel.policy || (is_backward && !c.backward) || !kernel.takes(c)) continue;
      taken.push_back(&c);
    }
    const Sample sample =
        sample_of(name_ + "." + policy + "." + direction, kernel.every, taken.size());
    bool sees = false;
    for (std::size_t i = sample.begin; i < taken.size(); i += sample.every) {
      const Case& c = *taken[i];
      sees = sees || sees_a_key(c);
      const auto run = [faults_of = kernel.faults, &c] {
        const std::string faults = faults_of(c);
        INFO(faults);
        CHECK(faults.empty());
      };
      test(policy, direction, prefix + c.name, run, kernel.seconds(c));
    }
    if (taken.empty()) {
      test(policy, direction, prefix + "no_case", [] { FAIL("the kernel takes no case"); });
    } else if (!sees) {
      test(policy, direction, prefix + "no_key", [] { FAIL("no row of its cases sees a key"); });
    }
  }

  std::string name_;
};

}  // namespace attile_test
