// SPDX-License-Identifier: MIT
#pragma once

#include <attile/attile.cuh>

#include <cstddef>
#include <vector>

#include "../../examples/support.cuh"
#include "support/catch.h"

namespace attile_test {

template <class T>
example::DeviceArray<T> filled(std::size_t size, float x) {
  return example::DeviceArray<T>(std::vector<T>(size, attile::from_float<T>(x)));
}

/// What a pass of one head takes and gives, dense, all of it written: ones, but for LSE.
template <class Traits>
struct OneHead {
  using T = typename Traits::ElementType;
  static constexpr int kD = Traits::kD;

  int q_len, kv_len;
  example::DeviceArray<T> q, k, v, o, dout, dq, dk, dv;
  example::DeviceArray<float> lse;

  OneHead(int rows, int keys, float lse_of_rows)
      : q_len(rows),
        kv_len(keys),
        q(ones(rows)),
        k(ones(keys)),
        v(ones(keys)),
        o(ones(rows)),
        dout(ones(rows)),
        dq(ones(rows)),
        dk(ones(keys)),
        dv(ones(keys)),
        lse(filled<float>(static_cast<std::size_t>(rows), lse_of_rows)) {}

  void run_forward(const typename Traits::MaskType& mask) const {
    typename Traits::Args args = arguments();
    args.mask = mask;
    REQUIRE(attile::forward<Traits>(args) == cudaSuccess);
  }

  void run_backward(const typename Traits::MaskType& mask = {}) const {
    REQUIRE(try_backward(mask) == cudaSuccess);
  }
  cudaError_t try_backward(const typename Traits::MaskType& mask) const {
    typename Traits::Args args = arguments();
    args.mask = mask;
    return try_backward(args);
  }

  /// Either pass, of that many sequences that are packed in the rows and keys. Those of several
  /// batches have the same memory.
  template <class Sequences>
  cudaError_t try_packed(const Sequences& sequences, int batch, int longest_q,
                         int longest_k) const {
    typename Traits::Args args = arguments();
    args.sequences = sequences;
    if constexpr (attile::kIsInBatches<Sequences>) {
      const auto divide = [&](auto&... x) { ((x.batch_stride = sequences.rows * kD), ...); };
      divide(args.q, args.k, args.v, args.o);
      if constexpr (Traits::kDirection == attile::Direction::kBackward) {
        divide(args.dout, args.dq, args.dk, args.dv);
      }
    }
    args.batch = batch;
    args.q_len = longest_q;
    args.kv_len = longest_k;
    if constexpr (Traits::kDirection == attile::Direction::kForward) {
      return attile::forward<Traits>(args);
    } else {
      return try_backward(args);
    }
  }

 private:
  typename Traits::Args arguments() const {
    typename Traits::Args args;
    args.q = attile::bhsd<const T>(q.get(), {.rows = q_len, .heads = 1, .dim = kD});
    args.k = attile::bhsd<const T>(k.get(), {.rows = kv_len, .heads = 1, .dim = kD});
    args.v = attile::bhsd<const T>(v.get(), {.rows = kv_len, .heads = 1, .dim = kD});
    args.lse = lse.get();
    args.batch = args.q_heads = args.kv_heads = 1;
    args.q_len = q_len, args.kv_len = kv_len, args.head_dim = kD;
    args.o = attile::bhsd(o.get(), {.rows = q_len, .heads = 1, .dim = kD});
    if constexpr (Traits::kDirection == attile::Direction::kBackward) {
      args.dout = attile::bhsd<const T>(dout.get(), {.rows = q_len, .heads = 1, .dim = kD});
      args.dq = attile::bhsd(dq.get(), {.rows = q_len, .heads = 1, .dim = kD});
      args.dk = attile::bhsd(dk.get(), {.rows = kv_len, .heads = 1, .dim = kD});
      args.dv = attile::bhsd(dv.get(), {.rows = kv_len, .heads = 1, .dim = kD});
    }
    return args;
  }
  cudaError_t try_backward(const typename Traits::Args& args) const {
    std::size_t bytes = 0;
    REQUIRE(attile::backward<Traits>(nullptr, bytes, args) == cudaSuccess);
    const example::DeviceArray<unsigned char> workspace(bytes);
    return attile::backward<Traits>(workspace.get(), bytes, args);
  }
  static example::DeviceArray<T> ones(int lines) {
    return filled<T>(static_cast<std::size_t>(lines) * kD, 1.0f);
  }
};

}  // namespace attile_test
