// SPDX-License-Identifier: MIT
// Two ways to compute the model's attention, and a third to learn how far apart two right ones may
// be.
#pragma once

#include <attile/attile.cuh>
#include <attile/standard.cuh>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "attention.h"
#include "kernels.cuh"
#include "layer.cuh"
#include "products.cuh"

namespace gpt {

using Bf16 = __nv_bfloat16;

/// Scratch memory that grows. An entry point called with null says how much it needs.
class Workspace {
 public:
  template <class Run>
  void run(const char* what, const Run& call) {
    std::size_t bytes = 0;
    example::must(call(nullptr, bytes), what);
    if (memory_ == nullptr || memory_->size() < bytes) {
      memory_.reset();
      memory_ = std::make_unique<DeviceArray<unsigned char>>(bytes);
    }
    example::must(call(memory_->get(), bytes), what);
  }

 private:
  std::unique_ptr<DeviceArray<unsigned char>> memory_;
};

/// FlashAttention by attile: one call forward, one backward. Of the S x S matrix of a head nothing
/// but a number for each row, LSE, goes to memory.
class FlashAttention : public Attention<Bf16> {
 public:
  void forward(const AttentionForward<Bf16>& args, int) override {
    example::must(attile::forward<kHeadDim>(args), "attile::forward");
  }
  void backward(const AttentionBackward<Bf16>& args, int) override {
    workspace_.run("attile::backward", [&](void* workspace, std::size_t& bytes) {
      return attile::backward<kHeadDim>(workspace, bytes, args);
    });
  }

 private:
  Workspace workspace_;
};

/// Attention as its formula says it: S = Q K^T, P = softmax(S), O = P V, one whole matrix after the
/// other. P of every layer is kept for the backward pass.
class StandardAttention : public Attention<Bf16> {
 public:
  void forward(const AttentionForward<Bf16>& args, int layer) override {
    if (!p_.contains(layer)) {
      p_.try_emplace(layer, attile::standard::probabilities_bytes(args) / sizeof(Bf16));
    }
    workspace_.run("standard::forward", [&](void* workspace, std::size_t& bytes) {
      return attile::standard::forward(products_.handle(), p_.at(layer).get(), workspace, bytes,
                                       args);
    });
  }
  void backward(const AttentionBackward<Bf16>& args, int layer) override {
    const Bf16* const p = p_.at(layer).get();
    workspace_.run("standard::backward", [&](void* workspace, std::size_t& bytes) {
      return attile::standard::backward(products_.handle(), p, workspace, bytes, args);
    });
  }

 private:
  Products products_;
  std::map<int, DeviceArray<Bf16>> p_;
  Workspace workspace_;
};

/// Moves each element to one of its two neighbours in bf16 by chance, one time in four: as far, and
/// as often, as rounding up or down by chance is from rounding to nearest.
ATTILE_KERNEL void nudge(int count, std::uint32_t seed, Bf16* x) {
  const int i = thread_of_grid();
  if (i >= count) return;
  std::uint32_t h = static_cast<std::uint32_t>(i) * 0x9E3779B1u + seed * 0x27D4EB2Fu;
  h = (h ^ h >> 15) * 0x85EBCA77u;
  h = (h ^ h >> 13) * 0xC2B2AE3Du;
  h ^= h >> 16;
  // The upper half of an fp32 number is the bf16 number; one unit more is the next one.
  const std::uint32_t bits = attile::word_of(to_float(x[i]));
  if (h % 8 == 0) x[i] = from_float<Bf16>(attile::float_of(bits + 0x10000u));
  if (h % 8 == 1 && bits << 1 != 0) x[i] = from_float<Bf16>(attile::float_of(bits - 0x10000u));
}

/// Standard attention of Q, K and V that are nudged: what one run differs from another by where
/// both are right, but for their roundings.
class NudgedAttention : public StandardAttention {
 public:
  explicit NudgedAttention(std::uint32_t seed) : seed_(seed) {}

  void forward(const AttentionForward<Bf16>& args, int layer) override {
    // Q, K and V are the model's activations, side by side from Q on; it lets us write to them.
    const int size = args.batch * args.q_len * 3 * args.q_heads * args.head_dim;
    launch(nudge, size, seed_++, const_cast<Bf16*>(args.q.data));
    StandardAttention::forward(args, layer);
  }

 private:
  std::uint32_t seed_;
};

}  // namespace gpt
