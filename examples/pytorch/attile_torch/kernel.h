// SPDX-License-Identifier: MIT
#pragma once

// One attention pass behind the C interface. The generated file says
//   ATTILE_TORCH_TYPE         element type
//   ATTILE_TORCH_D, _DV       head dimensions of the kernels
//   ATTILE_TORCH_POLICIES     policies, in any order; of keys in a cache the pass is `decode`
//   ATTILE_TORCH_DIRECTION    kForward or kBackward
//   ATTILE_TORCH_MODE         kAccumulate or kInOrder, for backward
#ifdef __CUDACC__
#include <attile/attile.cuh>
#else
#include <attile/host.h>
#endif
#include <attile/core/splits.h>
#include <attile/core/workspace.h>

#include <call.h>

extern "C" {

/// Strides of a (batch, head, row, column) array. Units: elements.
struct AttileTorchBiasStrides {
  std::int64_t batch, head, row, col;
};

/// What differs between calls of one kind: addresses, as numbers, 0 for what is not there.
struct AttileTorchData {
  std::int64_t stream, threads;
  std::int64_t q, k, v, o, lse;
  std::int64_t bias, slopes, sinks, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k;
  std::int64_t rng;            // a seed and an offset in device memory; if 0, what follows counts
  std::uint64_t seed, offset;  // of dropout
  std::int64_t dout, dlse, dq, dk, dv, dbias, dsinks;  // the backward pass alone reads these
};

/// What `decode` is told besides: where the keys are, and how they are split over blocks.
struct AttileTorchDecode {
  AttileTorchCache cache;
  std::int64_t splits, split_keys;  // Splits::Kind as a number
  std::int64_t reset;               // whether scratch memory has to be made ready
};

/// All that a call may need, in words of eight bytes. `_call.py` writes the same order, and
/// `_cache.py` that of `decode`.
struct AttileTorchCall {
  std::int64_t device, batch, q_heads, kv_heads, q_len, kv_len, head_dim, head_dim_v;
  std::int64_t window_left, window_right, total_q, total_k, has_scale;
  double scale, softcap, dropout;
  std::int64_t slopes_batch_stride;
  AttileTorchStrides q, k, v, o;
  AttileTorchBiasStrides bias;
  AttileTorchStrides dout, dq, dk, dv;  // the backward pass alone reads these
  AttileTorchBiasStrides dbias;
  AttileTorchData data;
  AttileTorchDecode decode;  // only calls of `decode` have it
};

}  // extern "C"

namespace {

using T = ATTILE_TORCH_TYPE;
constexpr auto kWay = attile::Direction::ATTILE_TORCH_DIRECTION;
constexpr bool kForward = kWay == attile::Direction::kForward;
using Args = std::conditional_t<kForward, attile::ForwardArgs<T, ATTILE_TORCH_POLICIES>,
                                attile::BackwardArgs<T, ATTILE_TORCH_POLICIES>>;
template <class A>
constexpr bool kDecodes = attile::CacheSequences<typename A::SequencesType>;

using Call = AttileTorchCall;
constexpr std::int64_t kCallBytes = kDecodes<Args> ? sizeof(Call) : offsetof(Call, decode);

// ---- policies: `set` fills one from a call ------------------------------------------------------

template <class Policy>
void set(Policy&, const Call&) requires std::is_empty_v<Policy> {}

void set(attile::SlidingWindow& to, const Call& from) {
  to.left = number(from.window_left), to.right = number(from.window_right);
}
void set(attile::Softcap& to, const Call& from) { to.cap = static_cast<float>(from.softcap); }
void set(attile::Alibi& to, const Call& from) {
  to.slopes = pointer<const float>(from.data.slopes), to.batch_stride = from.slopes_batch_stride;
}
template <class B>
void set(attile::AdditiveBias<B>& to, const Call& from) {
  const AttileTorchBiasStrides& s = from.bias;
  to = {pointer<const B>(from.data.bias), s.batch, s.head, s.row, s.col};
}
template <class B>
void set(attile::LearnedBias<B>& to, const Call& from) {
  set(to.bias, from);
  const AttileTorchBiasStrides& s = from.dbias;
  to.gradient = {pointer<float>(from.data.dbias), s.batch, s.head, s.row, s.col};
}
template <class A, class B>
void set(attile::Then<A, B>& to, const Call& from) {
  set(to.first, from), set(to.second, from);
}
void set(attile::PhiloxDropout& to, const Call& from) {
  to.probability = static_cast<float>(from.dropout);
  to.seed = from.data.seed, to.offset = from.data.offset;
  if (from.data.rng == 0) return;
  to.seed_pointer = pointer<const std::uint64_t>(from.data.rng);
  to.offset_pointer = to.seed_pointer + 1;
}
void set(attile::Padded& to, const Call& from) {
  to = {pointer<const int>(from.data.seqused_q), pointer<const int>(from.data.seqused_k)};
}
void set(attile::Packed& to, const Call& from) {
  to = {pointer<const int>(from.data.cu_seqlens_q),
        pointer<const int>(from.data.cu_seqlens_k),
        number(from.total_q),
        number(from.total_k),
        pointer<const int>(from.data.seqused_q),
        pointer<const int>(from.data.seqused_k)};
}
template <class S>
void set(attile::Sink<S>& to, const Call& from) {
  to.sinks = pointer<const S>(from.data.sinks);
  if constexpr (!kForward) to.dsinks = pointer<float>(from.data.dsinks);
}

template <class A = Args>
A args_of(const Call& c) {
  const AttileTorchData& data = c.data;
  A a;
  set(a.q, data.q, c.q), set(a.k, data.k, c.k), set(a.v, data.v, c.v), set(a.o, data.o, c.o);
  a.lse = pointer<float>(data.lse);
  if constexpr (!A::kIsForward) {
    set(a.dout, data.dout, c.dout);
    set(a.dq, data.dq, c.dq), set(a.dk, data.dk, c.dk), set(a.dv, data.dv, c.dv);
    a.dlse = pointer<const float>(data.dlse);
  }
  a.batch = number(c.batch), a.q_heads = number(c.q_heads), a.kv_heads = number(c.kv_heads);
  a.q_len = number(c.q_len), a.kv_len = number(c.kv_len);
  a.head_dim = number(c.head_dim), a.head_dim_v = number(c.head_dim_v);
  if (c.has_scale != 0) a.scale = static_cast<float>(c.scale);
  set(a.mask, c), set(a.score_mod, c), set(a.dropout, c);
  if constexpr (kDecodes<A>) {
    const AttileTorchDecode& decode = c.decode;
    set(a.sequences, decode.cache);
    a.splits = {static_cast<attile::Splits::Kind>(decode.splits), number(decode.split_keys)};
  } else {
    set(a.sequences, c);
  }
  if constexpr (A::SinkType::kEnabled) set(a.sink, c);
  return a;
}

// ---- the two executors --------------------------------------------------------------------------

#ifdef __CUDACC__

constexpr int kD = ATTILE_TORCH_D, kDv = ATTILE_TORCH_DV;
constexpr auto kMode = attile::DqMode::ATTILE_TORCH_MODE;

template <class A = Args>
attile::WorkspaceSize size_of(const A& a) {
  if constexpr (kDecodes<A>) {
    return attile::decode_workspace_size<kD, kDv>(a);
  } else if constexpr (!A::kIsForward) {
    return attile::workspace_size<kD, kDv, kMode>(a);
  } else {
    const attile::WorkspaceSize size = attile::workspace_size<kD, kDv>(a);
    return A::SequencesType::kUniform ? attile::WorkspaceSize{size.check, 0} : size;
  }
}

template <class A = Args>
attile::Check check(const A& a) {
  if constexpr (kDecodes<A>)
    return attile::check_decode<kD, kDv>(a);
  else if constexpr (A::kIsForward)
    return attile::check<kD, kDv>(a);
  else
    return attile::check<kD, kDv, kMode>(a);
}

template <class A = Args>
cudaError_t run(const Call& c, const A& a, void* workspace, std::size_t bytes) {
  const cudaStream_t stream = pointer<Stream>(c.data.stream);
  if constexpr (kDecodes<A>) {
    if (workspace == nullptr) return attile::decode<kD, kDv>(a, stream);
    if (c.decode.reset != 0) {
      if (const attile::Check ok = check(a); !ok) return ok.error;
      if (const cudaError_t error = attile::reset_workspace(workspace, bytes, stream)) return error;
    }
    return attile::decode<kD, kDv>(workspace, bytes, a, stream);
  } else if constexpr (!A::kIsForward) {
    return attile::backward<kD, kDv, kMode>(workspace, bytes, a, stream);
  } else if constexpr (A::SequencesType::kUniform) {
    return attile::forward<kD, kDv>(a, stream);
  } else {
    return attile::forward<kD, kDv>(workspace, bytes, a, stream);
  }
}

#else

attile::WorkspaceSize size_of(const Args& a) { return {attile::check_arguments(a, 0, 0), 0}; }
attile::Check check(const Args& a) { return attile::check_arguments(a, 0, 0); }

template <class A = Args>
cudaError_t run(const Call& c, const A& a, void*, std::size_t) {
  const attile::host::Options options{.threads = number(c.data.threads)};
  if constexpr (A::kIsForward)
    return attile::host::forward(a, options).error;
  else
    return attile::host::backward(a, options).error;
}

#endif

}  // namespace

#include <exports.h>
