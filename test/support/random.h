// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

namespace attile_test {

/// Random values that depend on (seed, index) alone, the same on every machine and in any order.
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed), drawn_(drawn(seed)) {}

  /// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
  std::uint64_t bits(std::uint64_t index) const {
    std::uint64_t z = mix(seed_ + 1) + (index + 1) * 0x9E3779B97F4A7C15u;
    return mix(z);
  }

  /// 0 < x < 1.
  double uniform(std::uint64_t index) const {
    return (static_cast<double>(bits(index) >> 11) + 0.5) * 0x1p-53;
  }

  /// Standard normal. The first ones are kept: every problem of the suite draws the same again, and
  /// a third of the time of its host tests went into that.
  float normal(std::uint64_t index) const {
    constexpr std::uint64_t kKept = 1 << 20;
    if (index >= kKept) return draw(index);
    while (drawn_.size() <= index) drawn_.push_back(draw(drawn_.size()));
    return drawn_[index];
  }

 private:
  /// By Box and Muller.
  float draw(std::uint64_t index) const {
    constexpr double kTwoPi = 6.283185307179586;
    const double radius = std::sqrt(-2.0 * std::log(uniform(2 * index)));
    return static_cast<float>(radius * std::cos(kTwoPi * uniform(2 * index + 1)));
  }

  static std::vector<float>& drawn(std::uint64_t seed) {
    static thread_local std::map<std::uint64_t, std::vector<float>> of_seed;
    return of_seed[seed];
  }

  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  std::uint64_t seed_;
  std::vector<float>& drawn_;
};

}  // namespace attile_test
