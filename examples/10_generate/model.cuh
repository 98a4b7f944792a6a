// SPDX-License-Identifier: MIT
// What stands in for a language model: projections, and a choice of the next token, that are
// functions of numbers. So the CPU knows every row of Q, K and V without weights.
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/element.h>
#include <attile/core/philox.h>
#include <attile/core/vec.h>

#include <cstdint>

namespace generate {

namespace arch = attile::arch;
using bf16 = __nv_bfloat16;

inline constexpr int kLayers = 2, kQHeads = 8, kKvHeads = 2, kDim = 64;
inline constexpr int kVocabulary = 1 << 15;
/// Scores of random rows are nearly equal by 1 / sqrt(kDim). By this scale a few keys decide.
inline constexpr float kScale = 1.0f;

// A row of qkv, which a layer's projection makes of a token: Q, then K, then V.
inline constexpr int kKHead = kQHeads, kVHead = kKHead + kKvHeads, kHeads = kVHead + kKvHeads;
inline constexpr int kRowElements = kHeads * kDim;

/// Returns an element of the row of qkv that a layer makes of a token: between -1 and 1.
ATTILE_HOST_DEVICE bf16 projected(int layer, int token, int head, int d) {
  const attile::PhiloxBlock element{{static_cast<std::uint32_t>(head * kDim + d), 0, 0, 0}};
  const attile::PhiloxBlock bits = attile::philox4x32<7>(element, token, layer);
  return attile::from_float<bf16>(static_cast<float>(bits.word[0] >> 8) * 0x1p-23f - 1.0f);
}

/// Returns the token behind another one.
ATTILE_HOST_DEVICE constexpr int next_token(int token) { return (token * 5 + 1) % kVocabulary; }

inline constexpr int kThreads = 128;

/// qkv = the projections of the tokens, a thread for each element. Rows behind the last sequence's
/// are left as they are.
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1)
    project(const int* cu_seqlens, int batch, const int* tokens, int layer, bf16* qkv) {
  const int i = arch::block_index() * kThreads + arch::thread_index();
  const int row = i / kRowElements, head = i % kRowElements / kDim;
  if (row >= cu_seqlens[batch]) return;
  arch::store(qkv + i, attile::Vec<bf16, 1>{{projected(layer, tokens[row], head, i % kDim)}});
}

/// Goes on from one step to the next, a thread for each sequence: its length grows by its rows of
/// the next step. A single row there is the token behind its last one; those of a chunk are known.
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1)
    advance(const int* cu_seqlens, const int* tokens, const int* next_cu_seqlens, int* next_tokens,
            int batch, int* seqused_k) {
  const int b = arch::thread_index();
  if (b >= batch) return;
  const int first = next_cu_seqlens[b], rows = next_cu_seqlens[b + 1] - first;
  if (rows == 1) next_tokens[first] = next_token(tokens[cu_seqlens[b + 1] - 1]);
  seqused_k[b] += rows;
}

}  // namespace generate
