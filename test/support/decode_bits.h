// SPDX-License-Identifier: MIT
#pragma once

#include <attile/attile.cuh>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../../examples/support.cuh"
#include "support/cached_run.h"
#include "support/catch.h"
#include "support/random.h"

// What kernels of `decode` promise besides their results: with Splits::kFixed the bits of a
// sequence follow from its own rows and keys; scratch memory is ready after every call, whatever
// the arguments of the call were; a sink counts once, however many parts a row has; and what is
// refused is refused before anything is written.

namespace attile_test {

/// Calls the kernel that traits name.
template <class Traits>
struct DecodeByTraits {
  using Args = typename Traits::Args;
  static constexpr int kD = Traits::kD;
  static constexpr int kBc = Traits::kBc;

  static attile::Check check(const Args& a) { return attile::check<Traits>(a); }
  static attile::Check check(const Args& a, const void* workspace, std::size_t bytes) {
    return attile::check<Traits>(a, workspace, bytes);
  }
  static attile::WorkspaceSize size(const Args& a) { return attile::workspace_size<Traits>(a); }
  static cudaError_t run(void* workspace, std::size_t bytes, const Args& a) {
    return attile::forward<Traits>(workspace, bytes, a);
  }
  static cudaError_t run(const Args& a) { return attile::forward<Traits>(a); }
};

/// Calls the one call.
template <class A, int D, int kKeysOfStep>
struct DecodeByOneCall {
  using Args = A;
  static constexpr int kD = D;
  static constexpr int kBc = kKeysOfStep;  ///< a multiple of the kernel's

  static attile::Check check(const Args& a) { return attile::check_decode<D>(a); }
  static attile::Check check(const Args& a, const void* workspace, std::size_t bytes) {
    return attile::check_decode<D>(a, workspace, bytes);
  }
  static attile::WorkspaceSize size(const Args& a) { return attile::decode_workspace_size<D>(a); }
  static cudaError_t run(void* workspace, std::size_t bytes, const Args& a) {
    return attile::decode<D>(workspace, bytes, a);
  }
  static cudaError_t run(const Args& a) { return attile::decode<D>(a); }
};

/// Scratch memory of `bytes` that holds what no ticket may be, until it is reset.
class DecodeWorkspace {
 public:
  explicit DecodeWorkspace(std::size_t bytes) : memory_(bytes) { fill_with_garbage(); }

  std::size_t bytes() const { return memory_.size(); }
  void* get() const { return memory_.get(); }
  void fill_with_garbage() const {
    REQUIRE(cudaMemset(memory_.get(), 0x55, memory_.size()) == cudaSuccess);
  }
  void reset() const {
    REQUIRE(attile::reset_workspace(memory_.get(), memory_.size()) == cudaSuccess);
  }

 private:
  example::DeviceArray<unsigned char> memory_;
};

/// Runs a batch with scratch memory of its own.
template <class Calls, class SetPolicies>
BySequence decode_alone(const CachedRun<Calls>& run, attile::Splits splits,
                        const SetPolicies& set_policies) {
  typename Calls::Args args = run.args();
  set_policies(args);
  args.splits = splits;
  const attile::WorkspaceSize size = Calls::size(args);
  REQUIRE(std::string(size.check.why) == "");
  const DecodeWorkspace workspace(size.bytes);
  workspace.reset();
  run.clear_outputs();
  REQUIRE(Calls::run(workspace.get(), workspace.bytes(), args) == cudaSuccess);
  return run.by_sequence();
}

/// Checks that a sequence has the same bits alone and in random batches of others, of one row and
/// of several: at any place, with other bounds, and in pages of other sizes (vLLM's issue 51902,
/// pull requests 169 of its flash-attention and 2450 of flash-attention). `most_rows`, `most_keys`
/// of a sequence. `page_sizes`   of a paged cache; of another one a number that is not used.
template <class Calls, class SetPolicies>
void check_fixed_bits(int batches, int most_rows, int most_keys, int q_heads, int kv_heads,
                      const std::vector<int>& page_sizes, const SetPolicies& set_policies) {
  const auto splits = attile::Splits::fixed(Calls::kBc);
  constexpr int kSequences = 12;
  const Random random(1);
  std::vector<CachedSequence> sequences;
  BySequence alone;
  for (int i = 0; i < kSequences; ++i) {
    // Every third one has several rows; one has no key, and one fewer keys than rows.
    const int rows = i % 3 == 2 ? 1 + static_cast<int>(random.uniform(2 * i) * most_rows) : 1;
    const int keys = i == 3 ? 0 : 1 + static_cast<int>(random.uniform(2 * i + 1) * most_keys);
    sequences.push_back({rows, i == 5 ? rows / 2 : std::max(keys, i == 3 ? 0 : rows), i + 1});
    const CachedSequence& s = sequences.back();
    const CachedRun<Calls> run({{s}, s.q_len, std::max(s.kv_len, 1), page_sizes[0]}, q_heads,
                               kv_heads);
    alone.push_back(decode_alone(run, splits, set_policies)[0]);
  }
  for (int number = 0; number < batches; ++number) {
    const Random choose(static_cast<std::uint64_t>(100 + number));
    CachedBatch batch{{}, 1, 1, page_sizes[number % page_sizes.size()]};
    std::vector<int> chosen;
    const int size = 1 + static_cast<int>(choose.uniform(0) * 9);
    for (int i = 0; i < size; ++i) {
      chosen.push_back(static_cast<int>(choose.uniform(1 + i) * kSequences));
      batch.sequences.push_back(sequences[chosen.back()]);
      batch.q_len = std::max(batch.q_len, batch.sequences.back().q_len);
      batch.kv_len = std::max(batch.kv_len, batch.sequences.back().kv_len);
    }
    batch.kv_len += number % 3 * 50;
    const CachedRun<Calls> run(batch, q_heads, kv_heads);
    BySequence wanted;
    for (const int i : chosen) wanted.push_back(alone[i]);
    INFO("batch " << number);
    const bool same = decode_alone(run, splits, set_policies) == wanted;
    REQUIRE(same);
  }
}

/// Checks that a sequence of one row has the same bits alone, in pages of any of the sizes, and
/// beside prompts whose rows fill a part of a row tile, or more than one. Units    keys: the
/// sequence's.
template <class Calls, class SetPolicies>
void check_bits_beside_prompts(int keys, int q_heads, int kv_heads,
                               const std::vector<int>& page_sizes,
                               const SetPolicies& set_policies) {
  const CachedSequence own{1, keys, 1};
  const auto bits = [&](const std::vector<CachedSequence>& sequences, int number, int page_size) {
    int q_len = 1;
    for (const CachedSequence& s : sequences) q_len = std::max(q_len, s.q_len);
    const CachedRun<Calls> run({sequences, q_len, keys, page_size}, q_heads, kv_heads);
    return decode_alone(run, attile::Splits::fixed(Calls::kBc), set_policies)[number];
  };
  const std::vector<float> alone = bits({own}, 0, page_sizes[0]);
  for (const int page_size : page_sizes) {
    for (const int rows : {9, 10, 129}) {
      INFO("pages of " << page_size << ", beside " << rows << " rows");
      const CachedSequence other{rows, rows, 2};
      const bool same_first = bits({own, other}, 0, page_size) == alone;
      const bool same_second = bits({other, own}, 1, page_size) == alone;
      CHECK((same_first && same_second));
    }
  }
}

/// Checks that a row under a causal mask has the same bits by itself, when it is the last one, and
/// in calls that have other rows of its sequence, too, however many keys were in the cache before
/// (batch invariance, as Thinking Machines asked for it in 2025). Units    keys: of the sequence in
/// the end.
template <class Calls, class SetPolicies>
void check_bits_in_chunks(int keys, int q_heads, int kv_heads, int page_size,
                          const SetPolicies& set_policies) {
  const auto bits = [&](int rows, int so_far) {
    const CachedRun<Calls> run({{{rows, so_far, 1}}, rows, so_far, page_size}, q_heads, kv_heads);
    return decode_alone(run, attile::Splits::fixed(Calls::kBc), set_policies)[0];
  };
  const std::size_t per_row = static_cast<std::size_t>(q_heads) * (Calls::kD + 1);
  for (const int rows : {2, 7, 20, 70}) {
    const std::vector<float> chunk = bits(rows, keys);
    for (const int back : {0, 1, rows / 2, rows - 1}) {
      INFO("row " << back << " from the last of " << rows);
      const auto end = chunk.end() - static_cast<std::ptrdiff_t>(back * per_row);
      const std::vector<float> in_chunk(end - static_cast<std::ptrdiff_t>(per_row), end);
      const bool same = in_chunk == bits(1, keys - back);
      CHECK(same);
    }
  }
}

/// Checks that calls of other shapes, splits and numbers of blocks may share scratch memory, which
/// is reset once; and that a reset makes it ready whatever it held.
template <class Calls, class SetPolicies>
void check_workspace_stays_ready(int rounds, int keys, int page_size,
                                 const SetPolicies& set_policies) {
  struct Call {
    CachedRun<Calls> run;
    attile::Splits splits;
    int max_blocks;
    BySequence wanted;
  };
  std::vector<Call> calls;
  const auto add = [&](const std::vector<CachedSequence>& sequences, int q_heads, int kv_heads,
                       attile::Splits splits, int max_blocks) {
    CachedBatch batch{sequences, 1, 1, page_size};
    for (const CachedSequence& s : sequences) {
      batch.q_len = std::max(batch.q_len, s.q_len);
      batch.kv_len = std::max(batch.kv_len, s.kv_len);
    }
    calls.push_back({CachedRun<Calls>(batch, q_heads, kv_heads), splits, max_blocks, {}});
  };
  using attile::Splits;
  constexpr int Bc = Calls::kBc;
  add({{1, keys, 1}, {1, keys / 2, 2}}, 2, 1, Splits::fill(), 0);
  add({{1, keys, 3}}, 8, 2, Splits::fixed(Bc), 0);
  add({{2, 7, 4}, {1, keys, 5}, {3, keys / 3, 6}, {1, 2 * Bc, 7}}, 4, 4, Splits::fixed(Bc), 0);
  add({{5, keys, 8}}, 2, 2, Splits::fill(), 3);
  add({{1, keys, 9}, {1, 5 * Bc, 10}, {1, keys, 11}}, 4, 1, Splits::fixed(2 * Bc), 0);
  add({{1, keys, 12}}, 2, 2, Splits::none(), 0);
  std::size_t most = 0;
  const auto args_of = [&](const Call& call) {
    typename Calls::Args args = call.run.args();
    set_policies(args);
    args.splits = call.splits;
    args.max_blocks = call.max_blocks;
    return args;
  };
  const auto run = [&](const Call& call, const DecodeWorkspace& workspace) {
    call.run.clear_outputs();
    REQUIRE(Calls::run(workspace.get(), workspace.bytes(), args_of(call)) == cudaSuccess);
    return call.run.by_sequence();
  };
  for (Call& call : calls) {
    const attile::WorkspaceSize size = Calls::size(args_of(call));
    REQUIRE(std::string(size.check.why) == "");
    most = std::max(most, size.bytes);
    const DecodeWorkspace own(size.bytes);
    own.reset();
    call.wanted = run(call, own);
  }
  const DecodeWorkspace shared(most);
  const Random random(5);
  for (int i = 0; i < rounds; ++i) {
    if (i % 50 == 0) shared.fill_with_garbage(), shared.reset();
    const std::size_t number = static_cast<std::size_t>(random.uniform(i) * calls.size());
    INFO("round " << i << ", call " << number);
    const bool same = run(calls[number], shared) == calls[number].wanted;
    REQUIRE(same);
  }
}

/// Checks that a sink counts once, whatever the number of parts that a row has: 1 to 16. All scores
/// are 0 and all values 1, so that with a sink of ln(keys) O is 1/2, and LSE ln(2 keys).
template <class Calls>
void check_sink_counts_once(int page_size) {
  using T = typename Calls::Args::ElementType;
  for (int parts = 1; parts <= 16; ++parts) {
    const int keys = parts * Calls::kBc;
    const CachedRun<Calls> run({{{1, keys, 1}}, 1, keys, page_size}, 2, 1);
    const auto fill = [](const auto& tensor, std::size_t size, float x) {
      const std::vector<T> values(size, attile::from_float<T>(x));
      REQUIRE(cudaMemcpy(const_cast<T*>(tensor.data), values.data(), size * sizeof(T),
                         cudaMemcpyHostToDevice) == cudaSuccess);
    };
    typename Calls::Args args = run.args();
    fill(args.q, 2 * Calls::kD, 0.0f);
    const std::size_t kv_rows =
        CachedRun<Calls>::kPaged ? attile::round_up(keys, page_size) + 2 * page_size : keys;
    fill(args.v, kv_rows * Calls::kD, 1.0f);
    const example::DeviceArray<float> sinks(
        std::vector<float>(2, std::log(static_cast<float>(keys))));
    args.sink.sinks = sinks.get();
    for (const auto splits : {attile::Splits::fixed(Calls::kBc), attile::Splits::fill()}) {
      args.splits = splits;
      args.max_blocks = splits.kind == attile::Splits::Kind::kFill ? parts : 0;
      const attile::WorkspaceSize size = Calls::size(args);
      REQUIRE(std::string(size.check.why) == "");
      const DecodeWorkspace workspace(size.bytes);
      workspace.reset();
      run.clear_outputs();
      REQUIRE(Calls::run(workspace.get(), workspace.bytes(), args) == cudaSuccess);
      INFO(parts << " parts");
      const std::vector<float> found = run.by_sequence()[0];
      const std::size_t outputs = 2 * Calls::kD;
      float worst = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        const float wanted = i < outputs ? 0.5f : std::log(2.0f * static_cast<float>(keys));
        worst = std::max(worst, std::fabs(found[i] - wanted));
      }
      REQUIRE(worst < 1e-3f);
    }
  }
}

/// Checks that splits are refused without scratch memory, with too little of it, and with parts
/// that no step of the kernel ends; and that nothing is written then.
template <class Calls, class SetPolicies>
void check_decode_refusals(int page_size, const SetPolicies& set_policies) {
  using attile::Splits;
  const CachedRun<Calls> run({{{1, 3 * Calls::kBc, 1}}, 1, 3 * Calls::kBc, page_size}, 2, 1);
  typename Calls::Args args = run.args();
  set_policies(args);
  const auto untouched = [&] {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    std::vector<float> lse(2);
    REQUIRE(cudaMemcpy(lse.data(), args.lse, 2 * sizeof(float), cudaMemcpyDeviceToHost) ==
            cudaSuccess);
    return lse[0] != lse[0] && lse[1] != lse[1];
  };
  for (const Splits splits : {Splits::fill(), Splits::fixed(Calls::kBc)}) {
    args.splits = splits;
    CHECK(bool(Calls::check(args)));
    const attile::WorkspaceSize size = Calls::size(args);
    REQUIRE(bool(size));
    const DecodeWorkspace workspace(size.bytes);
    workspace.reset();
    const auto why = [&](const void* memory, std::size_t bytes) {
      return std::string(Calls::check(args, memory, bytes).why);
    };
    CHECK(why(workspace.get(), workspace.bytes()) == "");
    CHECK(why(nullptr, workspace.bytes()) ==
          "splits need scratch memory: a workspace of as many bytes as the call asks for, which "
          "reset_workspace has made ready");
    CHECK(Calls::run(args) == cudaErrorInvalidValue);
    CHECK(why(workspace.get(), workspace.bytes() - 1) ==
          "workspace_bytes is less than the call needs: a null workspace asks how many");
    CHECK(Calls::run(workspace.get(), workspace.bytes() - 1, args) == cudaErrorInvalidValue);
    void* const misaligned = static_cast<char*>(workspace.get()) + 8;
    CHECK(why(misaligned, workspace.bytes()) == "workspace is not aligned to 16 bytes");
    CHECK(Calls::run(misaligned, workspace.bytes(), args) == cudaErrorInvalidValue);
    CHECK(untouched());
  }
  args.splits = Splits::none();
  CHECK(std::string(Calls::check(args, nullptr, 16).why) ==
        "workspace is null: such a call only sets workspace_bytes, which then must be a variable");
  args.splits = Splits::fixed(Calls::kBc + 1);
  const std::string not_a_multiple =
      "splits.keys must be a multiple of the kernel's Bc: for default tiles any multiple of 128 is "
      "one";
  CHECK(std::string(Calls::check(args).why) == not_a_multiple);
  CHECK(std::string(Calls::check(args, nullptr, 0).why) == not_a_multiple);
  CHECK(Calls::run(args) == cudaErrorInvalidValue);
  for (const int keys : {0, -Calls::kBc}) {
    args.splits = Splits::fixed(keys);
    INFO("splits of " << keys << " keys");
    CHECK(!Calls::check(args));
  }
  CHECK(untouched());
}

}  // namespace attile_test
