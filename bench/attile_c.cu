// SPDX-License-Identifier: MIT
// One attention kernel behind a C interface, for callers that load libraries at run time:
// bench/compare.py builds one shared library from this file for every kernel that it measures.
//
//   ATTILE_D, ATTILE_DV   head dimensions                     ATTILE_TYPE  __half, __nv_bfloat16...
//   ATTILE_MASK           NoMask, Causal or SlidingWindow     ATTILE_DIRECTION  kForward, kBackward
//   ATTILE_POLICY         a name of `bundle`, below
//   ATTILE_DQ_MODE        kAccumulate or kInOrder, for backward
//   ATTILE_DECODE         if defined, `decode` takes the place of `forward`
//   ATTILE_Q_TYPE, ATTILE_K_TYPE, ATTILE_V_TYPE  if defined, all three, the types of Q, K and V,
//                         of which some are fp8; ATTILE_TYPE is O's then
//   ATTILE_FP8_SUMS       if defined, a value of Fp8Sums
#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

extern "C" {

/// A (batch, head, row, dim) view. Units: strides count elements.
struct AttileTensor {
  void* data;
  std::int64_t batch_stride, head_stride, row_stride;
};

/// What the policies hold; each reads what is its own. Shapes: slopes, sinks and dsinks, which is
/// written, (q_heads), earlier_o and earlier_lse dense as O and LSE are, documents (batch, length)
/// in order, key_lengths (batch), and a bias of Q's type, whose strides count elements and are
/// those of its gradient, too. `table` is what attile_prepare writes. `sequences` is the number of
/// documents, where these are packed sequences. The block lists are those that all batches and
/// heads have in common, of `blocks` rows and columns. Of `ancestors` see own::Tree.
struct AttilePolicies {
  const void* bias;
  float* dbias;
  std::int64_t bias_batch_stride, bias_head_stride, bias_row_stride, bias_col_stride;
  const float *slopes, *sinks;
  float* dsinks;
  const float *earlier_o, *earlier_lse;
  const std::int32_t *documents, *key_lengths;
  void* table;
  const std::int32_t *kv_num_blocks, *kv_indices, *full_kv_num_blocks, *full_kv_indices;
  const std::int32_t *q_num_blocks, *q_indices, *full_q_num_blocks, *full_q_indices;
  const std::uint32_t* ancestors;
  std::uint64_t seed, offset;
  float dropout, softcap;
  std::int32_t prefix, window_left, window_right, blocks, sequences;
};

/// Where the keys of a cache lie, for the policies that have one: sequence b has seqused_k[b] keys.
/// Null `seqused_k`: all have kv_len. `page_table` is (batch, pages_per_sequence). `q_scale`,
/// `k_scale` and `v_scale` are one number each, of Q, K and V in fp8.
/// `splits`  of `decode`: 0 is none, kFillSplits fill, and another number the keys of fixed ones.
struct AttileCache {
  const std::int32_t *seqused_k, *page_table;
  const float *q_scale, *k_scale, *v_scale;
  std::int32_t pages, page_size, pages_per_sequence, splits;
};

/// Arguments of the kernel in device memory; what its direction does not have may be null. With
/// ATTILE_POLICY Packed, cu_seqlens (batch + 1) and total say where the sequences lie, and q_len
/// and kv_len are their bounds; of a cache they are where the queries lie.
struct AttileProblem {
  AttileTensor q, k, v, o, dout, dq, dk, dv;
  float* lse;
  void* workspace;
  std::size_t workspace_bytes;
  cudaStream_t stream;
  AttilePolicies policies;
  AttileCache cache;
  const std::int32_t* cu_seqlens;
  std::int32_t batch, q_heads, kv_heads, q_len, kv_len, total;
  float scale;
};

}  // extern "C"

// Masks as a user would write them.
namespace own {

/// Lets a row see the columns of its own parity. It says nothing of spans.
struct SameParity {
  ATTILE_HOST_DEVICE bool visible(attile::ScoreIndex i, attile::Extent) const {
    return (i.row - i.col) % 2 == 0;
  }
};

/// Lets the draft tokens of a tree, which are the last q_len keys, be seen by their descendants and
/// by themselves; all rows see the keys before them. Bit d of ancestors[i] says that row i sees
/// draft d.
struct Tree {
  const std::uint32_t* ancestors = nullptr;

  ATTILE_HOST_DEVICE bool visible(attile::ScoreIndex i, attile::Extent e) const {
    const int draft = i.col - first_draft(e);
    return draft < 0 || (ancestors[i.row] >> draft & 1) != 0;
  }
  ATTILE_HOST_DEVICE attile::Span columns(int, int, attile::Interval, attile::Extent e) const {
    return {{0, e.kv_len}, {0, first_draft(e)}};
  }
  ATTILE_HOST_DEVICE attile::Span rows(int, int, attile::Interval columns, attile::Extent e) const {
    return {{0, e.q_len}, {0, columns.end <= first_draft(e) ? e.q_len : 0}};
  }

 private:
  ATTILE_HOST_DEVICE static int first_draft(attile::Extent e) {
    return attile::max(e.kv_len - e.q_len, 0);
  }
};

}  // namespace own

namespace {

using T = ATTILE_TYPE;
constexpr int kD = ATTILE_D, kDv = ATTILE_DV;
[[maybe_unused]] constexpr auto kMode = attile::DqMode::ATTILE_DQ_MODE;
[[maybe_unused]] constexpr std::int32_t kFillSplits = -1;

// ---- policies -----------------------------------------------------------------------------------

/// What ATTILE_POLICY names.
namespace bundle {

using Mask = attile::ATTILE_MASK;
template <class Other>
using Masked = attile::Policies<
    std::conditional_t<std::is_same_v<Mask, attile::NoMask>, Other, attile::And<Mask, Other>>>;

using Plain = attile::Policies<Mask>;
using Dropout = attile::Policies<Mask, attile::PhiloxDropout>;
using Softcap = attile::Policies<Mask, attile::Softcap>;
using Alibi = attile::Policies<Mask, attile::Alibi>;
using SoftcapAlibiDropout =
    attile::Policies<Mask, attile::Then<attile::Softcap, attile::Alibi>, attile::PhiloxDropout>;
using Documents = Masked<attile::SortedDocument>;
using Prefix = attile::Policies<attile::Prefix>;  // it has the causal mask in it
using Parity = Masked<own::SameParity>;
using Bias = attile::Policies<Mask, attile::AdditiveBias<T>>;
using BiasDropout = attile::Policies<Mask, attile::AdditiveBias<T>, attile::PhiloxDropout>;
using SoftcapBias = attile::Policies<Mask, attile::Then<attile::Softcap, attile::AdditiveBias<T>>>;
using LearnedBias = attile::Policies<Mask, attile::LearnedBias<T>>;
using KeyPadding = Masked<attile::KeyPadding>;
#if __has_include(<attile/core/sink.h>)  // earlier headers have none
using Sink = attile::Policies<Mask, attile::Sink<>>;
#endif
#if __has_include(<attile/core/earlier_keys.h>)
using Earlier = attile::Policies<Mask, attile::EarlierKeys<>>;
#endif
#if __has_include(<attile/core/block_sparse.h>)  // earlier headers have none
using Blocks = attile::Policies<attile::BlockSparse<Mask>>;
#endif
#if __has_include(<attile/core/packed.h>)
using Packed = attile::Policies<Mask, attile::Packed>;
using PackedBias = attile::Policies<Mask, attile::Packed, attile::AdditiveBias<T>>;
#endif
#if __has_include(<attile/core/packed_batches.h>)
using PackedDocuments = attile::Policies<Mask, attile::PackedBatches>;
#endif
#if __has_include(<attile/core/cache.h>)
using Cached = attile::Policies<Mask, attile::Cached>;
using CachedTree = attile::Policies<own::Tree, attile::Cached>;
using Paged = attile::Policies<Mask, attile::Paged>;
using PagedPacked = attile::Policies<Mask, attile::PagedPacked>;
#endif

}  // namespace bundle

/// Sets a policy from what the caller gave.
template <class Policy>
void set(Policy& to, const AttilePolicies& from) {
  if constexpr (requires { to.first, to.second; }) {  // And, Then
    set(to.first, from), set(to.second, from);
  } else if constexpr (std::is_same_v<Policy, attile::SlidingWindow>) {
    to.left = from.window_left, to.right = from.window_right;
  } else if constexpr (std::is_same_v<Policy, attile::SortedDocument>) {
    to.table = from.table;
  } else if constexpr (std::is_same_v<Policy, attile::Prefix>) {
    to.length = from.prefix;
  } else if constexpr (std::is_same_v<Policy, attile::KeyPadding>) {
    to.lengths = from.key_lengths;
  } else if constexpr (requires { to.inner, to.kv_indices; }) {  // BlockSparse
    set(to.inner, from);
    to.q_blocks = to.kv_blocks = from.blocks;
    to.kv_num_blocks = from.kv_num_blocks, to.kv_indices = from.kv_indices;
    to.full_kv_num_blocks = from.full_kv_num_blocks, to.full_kv_indices = from.full_kv_indices;
    to.q_num_blocks = from.q_num_blocks, to.q_indices = from.q_indices;
    to.full_q_num_blocks = from.full_q_num_blocks, to.full_q_indices = from.full_q_indices;
  } else if constexpr (std::is_same_v<Policy, own::Tree>) {
    to.ancestors = from.ancestors;
  } else if constexpr (std::is_same_v<Policy, attile::Softcap>) {
    to.cap = from.softcap;
  } else if constexpr (std::is_same_v<Policy, attile::Alibi>) {
    to.slopes = from.slopes;
  } else if constexpr (std::is_same_v<Policy, attile::AdditiveBias<T>>) {
    to.bias = static_cast<const T*>(from.bias);
    to.batch_stride = from.bias_batch_stride, to.head_stride = from.bias_head_stride;
    to.row_stride = from.bias_row_stride, to.col_stride = from.bias_col_stride;
  } else if constexpr (requires { to.sinks, to.dsinks; }) {
    to.sinks = from.sinks, to.dsinks = from.dsinks;
  } else if constexpr (std::is_same_v<Policy, attile::LearnedBias<T>>) {
    set(to.bias, from);
    to.gradient = {from.dbias, to.bias.batch_stride, to.bias.head_stride, to.bias.row_stride,
                   to.bias.col_stride};
  } else if constexpr (std::is_same_v<Policy, attile::PhiloxDropout>) {
    to.probability = from.dropout, to.seed = from.seed, to.offset = from.offset;
  } else {
    static_assert(std::is_empty_v<Policy>, "attile_c.cu does not set what this policy holds");
  }
}

// ---- arguments ----------------------------------------------------------------------------------

#ifdef ATTILE_FP8_SUMS
using Types = attile::Elements<ATTILE_Q_TYPE, ATTILE_K_TYPE, ATTILE_V_TYPE, T,
                               attile::Fp8Sums::ATTILE_FP8_SUMS>;
#elif defined(ATTILE_K_TYPE)
using Types = attile::Elements<ATTILE_Q_TYPE, ATTILE_K_TYPE, ATTILE_V_TYPE, T>;
#endif
#ifdef ATTILE_K_TYPE
using Args = attile::ForwardArgs<Types, bundle::ATTILE_POLICY>;
#else
using Args = std::conditional_t<attile::Direction::ATTILE_DIRECTION == attile::Direction::kForward,
                                attile::ForwardArgs<T, bundle::ATTILE_POLICY>,
                                attile::BackwardArgs<T, bundle::ATTILE_POLICY>>;
#endif

template <class A>
concept Backward = requires(A a) {
  a.dout.data;
};

template <class Element>
void set(attile::Tensor<Element>& to, const AttileTensor& from) {
  to = {static_cast<Element*>(from.data), from.batch_stride, from.head_stride, from.row_stride};
}

/// Sets the sequences of a cache.
template <class Sequences>
void set_cache(Sequences& to, const AttileProblem& p) {
  if constexpr (requires { to.queries.cu_seqlens_q; }) {
    to.queries.cu_seqlens_q = p.cu_seqlens, to.queries.total_q = p.total;
  }
  to.seqused_k = p.cache.seqused_k;
  if constexpr (requires { to.page_table; }) {
    to.page_table = p.cache.page_table, to.pages_per_sequence = p.cache.pages_per_sequence;
    to.pages = p.cache.pages, to.page_size = p.cache.page_size;
  }
}

template <class A = Args>
A args_of(const AttileProblem& p) {
  A a;
  set(a.q, p.q), set(a.k, p.k), set(a.v, p.v), set(a.o, p.o);
  if constexpr (Backward<A>) {
    set(a.dout, p.dout), set(a.dq, p.dq), set(a.dk, p.dk), set(a.dv, p.dv);
  }
  set(a.mask, p.policies), set(a.score_mod, p.policies), set(a.dropout, p.policies);
  if constexpr (requires { a.sink.lse; }) {  // EarlierKeys
    a.sink.o =
        attile::bshd(p.policies.earlier_o, {.rows = p.q_len, .heads = p.q_heads, .dim = kDv});
    a.sink.lse = attile::bhs(p.policies.earlier_lse, {.rows = p.q_len, .heads = p.q_heads});
  } else if constexpr (requires { a.sink; }) {
    set(a.sink, p.policies);
  }
  a.lse = p.lse;
  a.batch = p.batch, a.q_heads = p.q_heads, a.kv_heads = p.kv_heads;
  a.q_len = p.q_len, a.kv_len = p.kv_len;
  a.scale = p.scale;
  if constexpr (requires { a.sequences.cu_seqlens_q; }) {
    a.sequences.cu_seqlens_q = a.sequences.cu_seqlens_k = p.cu_seqlens;
    a.sequences.total_q = a.sequences.total_k = p.total;
  }
  if constexpr (requires { a.sequences.batches; }) {  // PackedBatches
    a.sequences.cu_seqlens = static_cast<const int*>(p.policies.table);
    a.sequences.batches = p.batch, a.sequences.rows = p.q_len;
    a.batch = p.policies.sequences;
  }
  if constexpr (requires { a.sequences.queries; }) set_cache(a.sequences, p);
  if constexpr (requires { a.q_scale.data; }) a.q_scale = {p.cache.q_scale};
  if constexpr (requires { a.k_scale.data; }) a.k_scale = {p.cache.k_scale};
  if constexpr (requires { a.v_scale.data; }) a.v_scale = {p.cache.v_scale};
#ifdef ATTILE_DECODE
  const std::int32_t splits = p.cache.splits;
  if (splits != 0) {
    a.splits = splits == kFillSplits ? attile::Splits::fill() : attile::Splits::fixed(splits);
  }
#endif
  return a;
}

#ifdef ATTILE_DECODE

template <class A>
attile::Check check(const A& a) {
  return attile::check_decode<kD, kDv>(a);
}

template <class A>
cudaError_t workspace_of(const A& a, std::size_t& bytes) {
  return attile::decode<kD, kDv>(nullptr, bytes, a);
}

template <class A>
cudaError_t run(const A& a, const AttileProblem& p) {
  return attile::decode<kD, kDv>(p.workspace, p.workspace_bytes, a, p.stream);
}

cudaError_t reset(const AttileProblem& p) {
  return attile::reset_workspace(p.workspace, p.workspace_bytes, p.stream);
}

#else

template <class A>
attile::Check check(const A& a) {
  return attile::check<kD, kDv>(a);
}

template <class A>
cudaError_t workspace_of(const A& a, std::size_t& bytes) {
  return attile::forward<kD, kDv>(nullptr, bytes, a);
}

template <class A>
cudaError_t run(const A& a, const AttileProblem& p) {
  std::size_t bytes = p.workspace_bytes;
  return attile::forward<kD, kDv>(p.workspace, bytes, a, p.stream);
}

cudaError_t reset(const AttileProblem&) { return cudaSuccess; }

#endif

template <Backward A>
attile::Check check(const A& a) {
  return attile::check<kD, kDv, kMode>(a);
}

template <Backward A>
cudaError_t workspace_of(const A& a, std::size_t& bytes) {
  return attile::backward<kD, kDv, kMode>(nullptr, bytes, a);
}

template <Backward A>
cudaError_t run(const A& a, const AttileProblem& p) {
  std::size_t bytes = p.workspace_bytes;
  return attile::backward<kD, kDv, kMode>(p.workspace, bytes, a, p.stream);
}

/// Prepares the table of a mask, or of sequences; with a null one it sets `bytes` to its size: 0
/// where it has none.
template <class Policy>
cudaError_t prepare(const Policy& policy, const AttileProblem& p, std::size_t& bytes) {
  const std::int32_t* const ids = p.policies.documents;
  if constexpr (requires { policy.first, policy.second; }) {
    return prepare(policy.second, p, bytes);  // bundle::Masked: the policy's mask
  } else if constexpr (std::is_same_v<Policy, attile::SortedDocument>) {
    const attile::SortedIds source{ids, ids, p.batch, p.q_len, p.kv_len};
    return attile::prepare(p.policies.table, bytes, source, p.stream);
#if __has_include(<attile/core/packed_batches.h>)  // earlier headers have none
  } else if constexpr (std::is_same_v<Policy, attile::PackedBatches>) {
    const attile::PackedIds source{ids, p.batch, p.q_len, p.policies.sequences};
    return attile::prepare(p.policies.table, bytes, source, p.stream);
#endif
  } else {
    bytes = 0;
    return cudaSuccess;
  }
}

}  // namespace

// The library is to be built with hidden visibility: many are loaded into one process.
#pragma GCC visibility push(default)
extern "C" {

/// The size of AttileProblem that this library was built with. Units: bytes.
std::size_t attile_problem_bytes() { return sizeof(AttileProblem); }

/// Why the kernel would refuse `problem`, in one sentence; empty when it would not.
const char* attile_check(const AttileProblem* problem) { return check(args_of(*problem)).why; }

/// Sets `bytes` to the scratch memory that `attile_run` needs: 0 for most forward kernels.
/// Errors   a cudaError_t; 0 for success.
int attile_workspace(const AttileProblem* problem, std::size_t* bytes) {
  return workspace_of(args_of(*problem), *bytes);
}

/// With a null policies.table sets `bytes` to the size of the table of the mask, or of the
/// sequences, 0 where there is none; else writes the table, of `bytes`, asynchronously on the
/// problem's stream.
/// Errors   a cudaError_t; 0 for success.
int attile_prepare(const AttileProblem* problem, std::size_t* bytes) {
  if constexpr (Args::SequencesType::kUniform) {
    return prepare(Args::MaskType{}, *problem, *bytes);
  } else {
    return prepare(typename Args::SequencesType{}, *problem, *bytes);
  }
}

/// Makes the scratch memory of `decode` ready, once, asynchronously on the problem's stream; other
/// kernels need nothing of that.
/// Errors   a cudaError_t; 0 for success.
int attile_reset(const AttileProblem* problem) { return reset(*problem); }

/// Runs the kernel, asynchronously on the problem's stream.
/// Errors   a cudaError_t; 0 for success.
int attile_run(const AttileProblem* problem) { return run(args_of(*problem), *problem); }

/// What a number returned by the others means.
const char* attile_error(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // extern "C"
#pragma GCC visibility pop
