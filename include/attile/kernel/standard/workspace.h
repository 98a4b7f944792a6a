// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/check.h>
#include <attile/core/math.h>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace attile::standard {

/// Holds the sizes of a problem that both passes need. Units: scores: elements of P.
struct Sizes {
  HeadDims dim;
  int group;
  std::int64_t rows, kv_rows;
  int kv_len;

  /// Returns the number of scores. Scope: after check_sizes, which keeps it from overflowing.
  std::int64_t scores() const { return rows * kv_len; }
};

/// Returns the sizes of a problem.
template <class Args>
Sizes sizes_of(const Args& a) {
  static_assert(
      Args::SequencesType::kUniform && Args::Elements::kAllEqual,
      "attile::standard: products of whole tensors take sequences of one length, Uniform, "
      "and one element type");
  static_assert(!kIsEarlierKeys<typename Args::SinkType>,
                "attile::standard: EarlierKeys are for the kernels of attile::forward");
  const std::int64_t rows = std::int64_t{a.batch} * a.q_heads * a.q_len;
  const std::int64_t kv_rows = std::int64_t{a.batch} * a.kv_heads * a.kv_len;
  return {head_dims(a, 0, 0), a.q_heads / a.kv_heads, rows, kv_rows, a.kv_len};
}

/// Lays out the parts of a workspace, one after the other.
class WorkspacePlan {
 public:
  /// Adds `elements` of T and returns their offset. Units: bytes from the workspace's begin.
  template <class T>
  std::size_t add(std::int64_t elements) {
    const std::size_t at = bytes_;
    bytes_ += round_up<std::size_t>(sizeof(T) * static_cast<std::size_t>(elements), 16);
    return at;
  }
  std::size_t bytes() const { return max<std::size_t>(bytes_, 16); }

 private:
  std::size_t bytes_ = 0;
};

/// Holds the offset of each part of the scratch memory. Units: bytes; unneeded parts have none.
struct ForwardWorkspace {
  std::size_t s, dropped, bytes;
};

template <class Args>
ForwardWorkspace forward_workspace(const Args& args) {
  using T = typename Args::ElementType;
  const std::int64_t scores = sizes_of(args).scores();
  WorkspacePlan plan;
  ForwardWorkspace w{};
  w.s = plan.add<float>(std::same_as<T, float> ? 0 : scores);
  w.dropped = plan.add<T>(Args::DropoutType::kEnabled ? scores : 0);
  w.bytes = plan.bytes();
  return w;
}

/// Holds the offset of each part of the scratch memory. Units: bytes; unneeded parts have none.
struct BackwardWorkspace {
  std::size_t dp, ds, dropped, s, sums, sink_parts, bytes;
  bool has_sums;
};

template <class Args>
BackwardWorkspace backward_workspace(const Args& args) {
  using T = typename Args::ElementType;
  constexpr bool kFloat = std::same_as<T, float>;
  const Sizes sizes = sizes_of(args);
  WorkspacePlan plan;
  BackwardWorkspace w{};
  w.has_sums = !kFloat && sizes.group > 1;
  w.dp = plan.add<float>(sizes.scores());
  w.ds = kFloat ? w.dp : plan.add<T>(sizes.scores());
  w.dropped = plan.add<T>(Args::DropoutType::kEnabled ? sizes.scores() : 0);
  w.s = plan.add<float>(kNeedsScores<typename Args::ScoreModType> ? sizes.scores() : 0);
  w.sums = plan.add<float>(w.has_sums ? sizes.kv_rows * max(sizes.dim.qk, sizes.dim.v) : 0);
  w.sink_parts = plan.add<float>(Args::SinkType::kEnabled ? sizes.rows : 0);
  w.bytes = plan.bytes();
  return w;
}

template <class T>
T* part(void* workspace, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<unsigned char*>(workspace) + offset);
}

}  // namespace attile::standard
