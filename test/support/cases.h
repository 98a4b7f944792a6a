// SPDX-License-Identifier: MIT
#pragma once

#include <array>

namespace attile_test {

/// The policies of a case; see policies.h for their types.
enum class Policy {
  kNone,
  kCausal,
  kCausalTopLeft,
  kWindow,
  kPrefix,
  kDocument,
  kCausalDocument,
  kWindowPrefix,
  kKeyPadding,
  kCausalKeyPadding,
  kSortedDocument,
  kCausalSortedDocument,
  kRowIntervals,
  kCausalRowIntervals,
  kPreparedAlibi,
  kAlibi,
  kFullAlibi,
  kSoftcap,
  kBias,
  kHalfBias,
  kSoftcapAlibi,
  kSoftcapBias,
  kDropout,
  kCausalDropout,
  kHalfBiasDropout,
  kUser,
  kEverything,
  kLearned,
  kLearnedDropout,
  kLearnedBias,
  kLearnedBiasDropout,
  kBlockSparse,
  kBlockSparseEverything,
  kOwnLengths,
  kPackedCausal,
  kPackedBias,
  kPaddedEverything,
  kPackedBatches,
  kSink,
  kSinkEverything,
  kOwnLengthsSink,
  kCachedCausal,
  kCachedPackedAlibi,
  kPagedWindow,
  kPagedPackedEverything,
  kEarlier,
  kEarlierEverything,
  kEarlierPaged,
};

/// Where the rows of a case's tensors lie.
enum class Layout {
  kBshd,        ///< dense, rows of all heads interleaved
  kBhsd,        ///< dense, each head in one piece; null pointers for tensors without elements
  kMixed,       ///< BSHD and BHSD taken in turn: q, k, v, o, dout, dq, dk, dv all differ
  kPadded,      ///< BSHD with gaps after each head, row and batch; 16-byte aligned
  kUnaligned,   ///< BSHD with odd strides and a base that only its element type aligns
  kPacked,      ///< q, k, v in one array (batch, row, q heads then k heads then v heads, dim)
  kSliced,      ///< every second row of k, half of each row of q, half of the heads of o
  kReversed,    ///< rows lie backwards: negative strides
  kBroadcast,   ///< k, v the same for all batches; one row of dout for everything
  kCapacity,    ///< BHSD, each head followed by room for 150 more rows
  kOddStrides,  ///< BSHD, with odd strides along the axes that have one element
  kOneCache,    ///< BSHD, k and v in one array (page, k then v, row, head, dim)
  kBhsdOut,     ///< BSHD, but o, dout and dk BHSD
};

/// What the inputs hold.
enum class Data {
  kNormal,        ///< standard normal
  kZero,          ///< q = 0: every visible key weighs the same
  kNegative,      ///< q . k about -200 sqrt(head_dim)
  kVeryNegative,  ///< q . k about -2.45e5, and a row's keys differ by a few units after scaling
  kOverflow,      ///< q normal * 5, k normal * 3
  kLarge,         ///< q, k normal * 100: q . k beyond fp16's 65504
  kNanQuery,      ///< one row of Q of each head is NaN
  kNanKey,        ///< one key of each head is NaN
  kNanValue,      ///< one component of one value of each head is NaN
  kNanGradient,   ///< dO and O of sequences without keys are inf and NaN in turn
};

/// Whether keys lie in a cache, and whether that has pages.
constexpr bool has_cache(Policy p) {
  return p == Policy::kCachedCausal || p == Policy::kCachedPackedAlibi ||
         p == Policy::kPagedWindow || p == Policy::kPagedPackedEverything ||
         p == Policy::kEarlierPaged;
}
constexpr bool is_paged(Policy p) {
  return p == Policy::kPagedWindow || p == Policy::kPagedPackedEverything ||
         p == Policy::kEarlierPaged;
}

/// Whether the pass goes on from earlier keys.
constexpr bool has_earlier_keys(Policy p) {
  return p == Policy::kEarlier || p == Policy::kEarlierEverything || p == Policy::kEarlierPaged;
}
/// Whether O is fp32 whatever the other types are.
constexpr bool has_fp32_output(Policy p) {
  return p == Policy::kEarlier || p == Policy::kEarlierPaged;
}
/// Whether there is no backward pass.
constexpr bool is_forward_only(Policy p) { return has_cache(p) || has_earlier_keys(p); }

/// Whether each sequence has its queries in a batch of its own of a dense tensor.
constexpr bool pads_queries(Policy p) {
  return p == Policy::kPaddedEverything || p == Policy::kCachedCausal ||
         p == Policy::kPagedWindow || p == Policy::kEarlierPaged;
}

/// Whether each sequence has a length of its own; `q_len` and `kv_len` are the longest ones then.
constexpr bool has_own_lengths(Policy p) {
  return p == Policy::kOwnLengths || p == Policy::kPackedCausal || p == Policy::kPackedBias ||
         p == Policy::kPaddedEverything || p == Policy::kPackedBatches ||
         p == Policy::kOwnLengthsSink || p == Policy::kEarlierEverything || has_cache(p);
}

constexpr bool has_sinks(Policy p) {
  return p == Policy::kSink || p == Policy::kSinkEverything || p == Policy::kOwnLengthsSink ||
         p == Policy::kPagedWindow;
}

/// The lengths of such sequences: see lengths_of.
enum class Lengths {
  kMixed,      ///< different ones of queries and keys, of which some have none, one or all
  kSelf,       ///< the same ones of queries and keys, up to 12
  kEmptyEnds,  ///< the first sequence and the last one are empty
  kAllEmpty,
  kAlternate,  ///< every second one is empty; else one query
  kLongest,    ///< all have the longest one
  kNoQueries,  ///< no rows are allocated for queries; keys as in kMixed
  kNoKeys,     ///< none are for keys; queries as in kMixed
  kNoRows,     ///< none are
};

constexpr bool learns(Policy p) {
  return p == Policy::kLearned || p == Policy::kLearnedDropout || p == Policy::kLearnedBias ||
         p == Policy::kLearnedBiasDropout;
}

/// Whether the mask has block lists.
constexpr bool lists_blocks(Policy p) {
  return p == Policy::kBlockSparse || p == Policy::kBlockSparseEverything;
}

/// Which scores add to the same element of what is learned.
enum class Sums {
  kNone,
  kHeads,        ///< of all batches and heads
  kRows,         ///< of all batches and columns
  kColumns,      ///< of all batches, heads and rows
  kHeadColumns,  ///< of all rows
  kDistances,    ///< of all batches, and where the distance of row and column is the same
  kWholeHeads,   ///< of a head
};

/// The sinks of a case's query heads.
enum class Sinks {
  kNormal,  ///< about as much as the keys of a row weigh together
  kMixed,   ///< in turn: such a one, none (-inf), one far above all scores, one far below
  kHigh,    ///< far above all scores, where what a float leaves of an exponent is the error
  kLarge,   ///< by more above all scores than the exponential of a float can be
  kNone,    ///< -inf
};

/// One row of the table that every executor runs.
struct Case {
  const char* name = "";
  Policy policy = Policy::kNone;
  int batch = 1;
  int q_heads = 1;
  int kv_heads = 1;
  int q_len = 0;
  int kv_len = 0;
  int head_dim = 64;
  int head_dim_v = 0;  ///< 0: head_dim
  Layout layout = Layout::kBshd;
  Data data = Data::kNormal;
  bool backward = true;  ///< a NaN has no gradient worth comparing
  bool dlse = false;
  bool lse = true;           ///< the forward pass is asked for LSE
  float scale = 0;           ///< 0: not given
  int left = -1;             ///< SlidingWindow
  int right = -1;            ///< SlidingWindow
  int prefix = 0;            ///< Prefix; with `pointers` one length for each batch. KeyPadding and
                             ///< RowIntervals: see PolicyData and IntervalRows
  float cap = 3;             ///< Softcap
  int period = 3;            ///< the user's mask
  float probability = 0.3f;  ///< of dropout
  bool pointers = false;     ///< lengths, seeds, slopes of each batch come from memory; a row's
                             ///< intervals are one; block lists are those of each batch and head;
                             ///< sequences share caches
  bool hide = false;         ///< a bias that is -inf in places; documents and blocks without a key
  bool distances = false;    ///< a bias of column - row
  Sums sums = Sums::kNone;   ///< of what is learned
  Sinks sinks = Sinks::kNormal;
  Lengths lengths = Lengths::kMixed;  ///< of sequences with lengths of their own
  bool tight = false;                 ///< packed sequences without gaps, and without seqused
  int page_size = 16;                 ///< of a cache in pages
  bool leftpad = false;               ///< sequences begin behind the first row of their cache
  bool beyond = false;                ///< sequences are longer than the page table has room for
  bool in_place = false;              ///< O and LSE of earlier keys lie where the result does
  int first_col = 0;                  ///< of dropout
};

/// Whether scores add to the same element of what is learned.
constexpr bool has_sums(const Case& c) {
  const bool has_scores = c.batch > 0 && c.q_len > 0 && c.kv_len > 0;
  return has_scores && c.sums != Sums::kNone;
}

// Comments name the source: a defect that some attention library had, or the contract.
inline constexpr auto kCases = [] {
  using enum Policy;
  using enum Layout;
  using enum Data;
  // One case in as few lines as it fits.
  // clang-format off
  return std::to_array<Case>({
      // Lengths around tile edges.
      {.name = "len_1_1", .q_heads = 8, .kv_heads = 8, .q_len = 1, .kv_len = 1},
      {.name = "len_2_2", .q_heads = 2, .kv_heads = 2, .q_len = 2, .kv_len = 2},
      {.name = "len_5_5", .batch = 2, .q_len = 5, .kv_len = 5},
      {.name = "len_17_17", .q_heads = 2, .kv_heads = 2, .q_len = 17, .kv_len = 17},
      {.name = "len_57_57", .q_heads = 2, .kv_heads = 2, .q_len = 57, .kv_len = 57},
      {.name = "len_63_63", .q_heads = 2, .kv_heads = 1, .q_len = 63, .kv_len = 63},
      {.name = "len_64_64", .batch = 2, .q_heads = 2, .kv_heads = 2, .q_len = 64, .kv_len = 64},
      {.name = "len_65_65", .batch = 2, .q_heads = 2, .kv_heads = 2, .q_len = 65, .kv_len = 65},
      {.name = "len_113_113", .q_len = 113, .kv_len = 113, .dlse = true},
      {.name = "len_127_127", .q_len = 127, .kv_len = 127},
      {.name = "len_128_128", .batch = 2, .q_heads = 2, .kv_heads = 2, .q_len = 128,
       .kv_len = 128},
      {.name = "len_129_129", .q_len = 129, .kv_len = 129},
      {.name = "len_64_900", .q_len = 64, .kv_len = 900, .head_dim = 16},
      {.name = "len_160_1000", .q_len = 160, .kv_len = 1000, .head_dim = 16},
      {.name = "len_200_200", .q_heads = 2, .kv_heads = 2, .q_len = 200, .kv_len = 200},
      {.name = "len_1_200", .batch = 3, .q_heads = 2, .kv_heads = 1, .q_len = 1, .kv_len = 200},
      {.name = "len_200_1", .q_heads = 2, .kv_heads = 2, .q_len = 200, .kv_len = 1},
      {.name = "len_5_129", .q_heads = 2, .kv_heads = 2, .q_len = 5, .kv_len = 129},
      {.name = "len_64_65", .q_len = 64, .kv_len = 65},
      {.name = "len_65_64", .q_len = 65, .kv_len = 64},
      {.name = "len_128_63", .q_len = 128, .kv_len = 63},
      {.name = "len_17_113", .batch = 2, .q_len = 17, .kv_len = 113},
      {.name = "len_127_2", .q_len = 127, .kv_len = 2},
      {.name = "without_lse", .q_len = 65, .kv_len = 70, .backward = false, .lse = false},

      // Causal; q_len > kv_len leaves the first rows empty (flashinfer #4452).
      {.name = "causal_1_1", .policy = kCausal, .q_heads = 8, .kv_heads = 8, .q_len = 1,
       .kv_len = 1},
      {.name = "causal_5_2", .policy = kCausal, .q_heads = 4, .kv_heads = 4, .q_len = 5,
       .kv_len = 2, .dlse = true},
      {.name = "causal_2_5", .policy = kCausal, .q_heads = 4, .kv_heads = 4, .q_len = 2,
       .kv_len = 5},
      {.name = "causal_17_57", .policy = kCausal, .batch = 2, .q_len = 17, .kv_len = 57},
      {.name = "causal_57_17", .policy = kCausal, .batch = 2, .q_len = 57, .kv_len = 17},
      {.name = "causal_63_64", .policy = kCausal, .q_len = 63, .kv_len = 64},
      {.name = "causal_64_63", .policy = kCausal, .q_len = 64, .kv_len = 63, .dlse = true},
      {.name = "causal_64_64", .policy = kCausal, .q_len = 64, .kv_len = 64},
      {.name = "causal_65_128", .policy = kCausal, .q_len = 65, .kv_len = 128},
      {.name = "causal_128_65", .policy = kCausal, .q_len = 128, .kv_len = 65},
      {.name = "causal_127_128", .policy = kCausal, .q_len = 127, .kv_len = 128},
      {.name = "causal_129_129", .policy = kCausal, .q_len = 129, .kv_len = 129},
      {.name = "causal_113_200", .policy = kCausal, .q_len = 113, .kv_len = 200},
      {.name = "causal_200_113", .policy = kCausal, .q_len = 200, .kv_len = 113},
      {.name = "causal_1_128", .policy = kCausal, .q_heads = 4, .kv_heads = 4, .q_len = 1,
       .kv_len = 128},
      {.name = "causal_128_1", .policy = kCausal, .q_heads = 8, .kv_heads = 8, .q_len = 128,
       .kv_len = 1},
      {.name = "causal_64_900", .policy = kCausal, .q_len = 64, .kv_len = 900, .head_dim = 16},
      // The first rows of a tile see fewer keys than the last, by more than a pipeline has stages.
      {.name = "causal_192_192", .policy = kCausal, .q_len = 192, .kv_len = 192, .head_dim = 8},
      {.name = "causal_512_256", .policy = kCausal, .q_len = 512, .kv_len = 256, .head_dim = 16},
      {.name = "causal_1024_1023", .policy = kCausal, .q_len = 1024, .kv_len = 1023,
       .head_dim = 8},
      {.name = "top_left_65_65", .policy = kCausalTopLeft, .q_len = 65, .kv_len = 65},
      {.name = "top_left_40_129", .policy = kCausalTopLeft, .q_heads = 2, .kv_heads = 1,
       .q_len = 40, .kv_len = 129},
      {.name = "top_left_129_40", .policy = kCausalTopLeft, .q_len = 129, .kv_len = 40},

      // Head dimensions.
      {.name = "dim_1", .q_heads = 2, .kv_heads = 2, .q_len = 33, .kv_len = 49, .head_dim = 1},
      {.name = "dim_8", .q_heads = 2, .kv_heads = 2, .q_len = 33, .kv_len = 49, .head_dim = 8},
      {.name = "dim_16", .q_heads = 2, .kv_heads = 2, .q_len = 33, .kv_len = 49, .head_dim = 16},
      {.name = "dim_32", .q_heads = 2, .kv_heads = 2, .q_len = 33, .kv_len = 49, .head_dim = 32},
      {.name = "dim_40", .q_heads = 2, .kv_heads = 2, .q_len = 33, .kv_len = 49, .head_dim = 40},
      {.name = "dim_41", .q_heads = 2, .kv_heads = 2, .q_len = 33, .kv_len = 49, .head_dim = 41},
      {.name = "dim_72", .q_heads = 2, .kv_heads = 2, .q_len = 33, .kv_len = 49, .head_dim = 72},
      {.name = "dim_80", .q_heads = 2, .kv_heads = 2, .q_len = 33, .kv_len = 49, .head_dim = 80},
      {.name = "dim_96", .q_heads = 2, .kv_heads = 2, .q_len = 65, .kv_len = 65, .head_dim = 96},
      {.name = "dim_128", .q_heads = 2, .kv_heads = 2, .q_len = 65, .kv_len = 65,
       .head_dim = 128},
      {.name = "dim_160", .q_len = 33, .kv_len = 49, .head_dim = 160},
      // Many tiles of rows for one of K and V.
      {.name = "rows_300_dim_160", .q_len = 300, .kv_len = 17, .head_dim = 160},
      {.name = "causal_heads_5_1", .policy = kCausal, .q_heads = 5, .q_len = 17, .kv_len = 57,
       .head_dim = 8},
      {.name = "dim_192", .q_len = 33, .kv_len = 49, .head_dim = 192},
      {.name = "dim_256", .q_heads = 2, .kv_heads = 1, .q_len = 65, .kv_len = 129,
       .head_dim = 256},
      {.name = "causal_dim_8", .policy = kCausal, .q_len = 65, .kv_len = 65, .head_dim = 8},
      {.name = "causal_dim_40", .policy = kCausal, .q_len = 65, .kv_len = 65, .head_dim = 40},
      {.name = "causal_dim_41", .policy = kCausal, .q_len = 65, .kv_len = 65, .head_dim = 41},
      {.name = "causal_dim_72", .policy = kCausal, .q_len = 17, .kv_len = 200, .head_dim = 72},
      {.name = "causal_dim_128", .policy = kCausal, .q_len = 129, .kv_len = 129, .head_dim = 128},
      {.name = "causal_dim_192", .policy = kCausal, .q_len = 65, .kv_len = 65, .head_dim = 192},
      {.name = "causal_dim_256", .policy = kCausal, .q_len = 65, .kv_len = 100, .head_dim = 256},
      {.name = "dim_192_128", .q_len = 65, .kv_len = 70, .head_dim = 192, .head_dim_v = 128},
      {.name = "dim_64_40", .q_len = 33, .kv_len = 70, .head_dim = 64, .head_dim_v = 40},
      {.name = "dim_32_96", .q_len = 33, .kv_len = 70, .head_dim = 32, .head_dim_v = 96},
      {.name = "dim_1_256", .q_len = 33, .kv_len = 70, .head_dim = 1, .head_dim_v = 256},
      {.name = "dim_256_1", .q_len = 9, .kv_len = 70, .head_dim = 256, .head_dim_v = 1},
      {.name = "causal_dim_192_128", .policy = kCausal, .q_heads = 2, .kv_heads = 1, .q_len = 70,
       .kv_len = 70, .head_dim = 192, .head_dim_v = 128},
      {.name = "causal_dim_40_64", .policy = kCausal, .q_len = 70, .kv_len = 64, .head_dim = 40,
       .head_dim_v = 64, .dlse = true},

      // Heads that share keys (flashinfer #258, #996).
      {.name = "heads_3_1", .q_heads = 3, .kv_heads = 1, .q_len = 65, .kv_len = 65,
       .head_dim = 32},
      {.name = "heads_5_5", .q_heads = 5, .kv_heads = 5, .q_len = 20, .kv_len = 65,
       .head_dim = 32},
      {.name = "heads_6_2", .batch = 2, .q_heads = 6, .kv_heads = 2, .q_len = 65, .kv_len = 30},
      {.name = "heads_10_2", .q_heads = 10, .kv_heads = 2, .q_len = 33, .kv_len = 65,
       .head_dim = 40},
      {.name = "heads_6_1", .q_heads = 6, .kv_heads = 1, .q_len = 1, .kv_len = 130,
       .head_dim = 64},
      {.name = "heads_7_1", .q_heads = 7, .kv_heads = 1, .q_len = 9, .kv_len = 65,
       .head_dim = 64},
      {.name = "heads_8_1", .q_heads = 8, .kv_heads = 1, .q_len = 40, .kv_len = 65,
       .head_dim = 64},
      // Tiles of one step each, several of them for a persistent thread block.
      {.name = "heads_18_18_short", .q_heads = 18, .kv_heads = 18, .q_len = 5, .kv_len = 17},
      {.name = "heads_16_1", .q_heads = 16, .kv_heads = 1, .q_len = 9, .kv_len = 65,
       .head_dim = 32},
      {.name = "causal_heads_16_2", .policy = kCausal, .batch = 2, .q_heads = 16, .kv_heads = 2,
       .q_len = 65, .kv_len = 65, .head_dim = 32, .dlse = true},
      // The first tile that is visited hides every key of some rows (flash-attention #2082).
      {.name = "causal_heads_14_2_first_tile_hidden", .policy = kCausal, .q_heads = 14,
       .kv_heads = 2, .q_len = 88, .kv_len = 448, .head_dim = 32, .data = kNegative},
      // More than 65535 batches or heads (flash-attention #1812, #1786; pytorch #146704).
      {.name = "batch_65537", .batch = 65537, .q_len = 1, .kv_len = 2, .head_dim = 8},
      {.name = "heads_71280", .q_heads = 71280, .kv_heads = 14256, .q_len = 1, .kv_len = 2,
       .head_dim = 8},

      // Layouts.
      {.name = "bhsd", .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 65, .kv_len = 70,
       .layout = kBhsd},
      // O and dO in different layouts, V transposed (flash-attention #355, aotriton #236).
      {.name = "mixed", .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 17, .kv_len = 70,
       .layout = kMixed},
      {.name = "padded", .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 17, .kv_len = 70,
       .layout = kPadded},
      {.name = "padded_dim_40_64", .batch = 2, .q_len = 65, .kv_len = 70, .head_dim = 40,
       .head_dim_v = 64, .layout = kPadded},
      // Rows that end inside of 16 bytes, with somebody else's memory behind them: every length to
      // 24 elements, of the rows of V, O, dO and dV, and of those of Q, K, dQ and dK. Where V has
      // few columns there are more rows: the plain computation's error in few numbers is luck.
      {.name = "padded_dims_1_24", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 1, .head_dim_v = 24, .layout = kPadded},
      {.name = "padded_dims_2_23", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 2, .head_dim_v = 23, .layout = kPadded},
      {.name = "padded_dims_3_22", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 3, .head_dim_v = 22, .layout = kPadded},
      {.name = "padded_dims_4_21", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 4, .head_dim_v = 21, .layout = kPadded},
      {.name = "padded_dims_5_20", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 5, .head_dim_v = 20, .layout = kPadded},
      {.name = "padded_dims_6_19", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 6, .head_dim_v = 19, .layout = kPadded},
      {.name = "padded_dims_7_18", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 7, .head_dim_v = 18, .layout = kPadded},
      {.name = "padded_dims_8_17", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 8, .head_dim_v = 17, .layout = kPadded},
      {.name = "padded_dims_9_16", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 9, .head_dim_v = 16, .layout = kPadded},
      {.name = "padded_dims_10_15", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 10, .head_dim_v = 15, .layout = kPadded},
      {.name = "padded_dims_11_14", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 11, .head_dim_v = 14, .layout = kPadded},
      {.name = "padded_dims_12_13", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 12, .head_dim_v = 13, .layout = kPadded},
      {.name = "padded_dims_13_12", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 13, .head_dim_v = 12, .layout = kPadded},
      {.name = "padded_dims_14_11", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 14, .head_dim_v = 11, .layout = kPadded},
      {.name = "padded_dims_15_10", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 15, .head_dim_v = 10, .layout = kPadded},
      {.name = "padded_dims_16_9", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 16, .head_dim_v = 9, .layout = kPadded},
      {.name = "padded_dims_17_8", .batch = 4, .q_heads = 2, .kv_heads = 1, .q_len = 33,
       .kv_len = 40, .head_dim = 17, .head_dim_v = 8, .layout = kPadded},
      {.name = "padded_dims_18_7", .batch = 4, .q_heads = 2, .kv_heads = 1, .q_len = 33,
       .kv_len = 40, .head_dim = 18, .head_dim_v = 7, .layout = kPadded},
      {.name = "padded_dims_19_6", .batch = 4, .q_heads = 2, .kv_heads = 1, .q_len = 33,
       .kv_len = 40, .head_dim = 19, .head_dim_v = 6, .layout = kPadded},
      {.name = "padded_dims_20_5", .batch = 4, .q_heads = 2, .kv_heads = 1, .q_len = 33,
       .kv_len = 40, .head_dim = 20, .head_dim_v = 5, .layout = kPadded},
      {.name = "padded_dims_21_4", .batch = 4, .q_heads = 2, .kv_heads = 1, .q_len = 33,
       .kv_len = 40, .head_dim = 21, .head_dim_v = 4, .layout = kPadded},
      {.name = "padded_dims_22_3", .batch = 4, .q_heads = 2, .kv_heads = 1, .q_len = 33,
       .kv_len = 40, .head_dim = 22, .head_dim_v = 3, .layout = kPadded},
      {.name = "padded_dims_23_2", .batch = 4, .q_heads = 2, .kv_heads = 1, .q_len = 33,
       .kv_len = 40, .head_dim = 23, .head_dim_v = 2, .layout = kPadded},
      {.name = "padded_dims_24_1", .batch = 4, .q_heads = 2, .kv_heads = 1, .q_len = 33,
       .kv_len = 40, .head_dim = 24, .head_dim_v = 1, .layout = kPadded},
      {.name = "padded_dims_41_51", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 41, .head_dim_v = 51, .layout = kPadded},
      {.name = "padded_dims_51_41", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 51, .head_dim_v = 41, .layout = kPadded},
      {.name = "padded_dims_63_65", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 63, .head_dim_v = 65, .layout = kPadded},
      {.name = "padded_dims_127_100", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 127, .head_dim_v = 100, .layout = kPadded},
      {.name = "padded_dims_129_161", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 129, .head_dim_v = 161, .layout = kPadded},
      {.name = "padded_dims_191_255", .q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40,
       .head_dim = 191, .head_dim_v = 255, .layout = kPadded},
      {.name = "causal_padded_dims_51_7", .policy = kCausal, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 70, .kv_len = 70, .head_dim = 51, .head_dim_v = 7,
       .layout = kPadded},
      // Bases and strides that 16 bytes do not divide (flashinfer #4299).
      {.name = "unaligned", .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 65, .kv_len = 70,
       .layout = kUnaligned},
      {.name = "unaligned_dim_41", .batch = 2, .q_heads = 2, .kv_heads = 2, .q_len = 30,
       .kv_len = 70, .head_dim = 41, .layout = kUnaligned},
      {.name = "unaligned_dim_128", .batch = 2, .q_len = 65, .kv_len = 70, .head_dim = 128,
       .layout = kUnaligned},
      // Row stride 9728 in flash-attention #2611.
      {.name = "packed", .batch = 2, .q_heads = 3, .kv_heads = 3, .q_len = 33, .kv_len = 33,
       .layout = kPacked},
      {.name = "causal_packed_heads_6_2", .policy = kCausal, .batch = 2, .q_heads = 6,
       .kv_heads = 2, .q_len = 70, .kv_len = 70, .head_dim = 40, .layout = kPacked, .dlse = true},
      // K strided, V dense (FlagAttention #45).
      {.name = "sliced", .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 17, .kv_len = 70,
       .layout = kSliced},
      {.name = "causal_reversed", .policy = kCausal, .batch = 2, .q_heads = 2, .kv_heads = 2,
       .q_len = 33, .kv_len = 70, .layout = kReversed},
      {.name = "broadcast", .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 17, .kv_len = 70,
       .layout = kBroadcast},
      // NaN and inf in the rows past a length (flash-attention #2374, #1395; pytorch #101967).
      {.name = "capacity", .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 17, .kv_len = 70,
       .layout = kCapacity},
      {.name = "causal_capacity", .policy = kCausal, .batch = 2, .q_heads = 2, .kv_heads = 2,
       .q_len = 70, .kv_len = 33, .layout = kCapacity},

      // Lengths of zero.
      {.name = "kv_len_0", .batch = 2, .q_heads = 2, .kv_heads = 1, .q_len = 9, .kv_len = 0,
       .dlse = true},
      {.name = "kv_len_0_null", .q_len = 70, .kv_len = 0, .layout = kBhsd},
      {.name = "causal_kv_len_0", .policy = kCausal, .q_len = 70, .kv_len = 0},
      {.name = "q_len_0", .batch = 2, .q_heads = 2, .kv_heads = 1, .q_len = 0, .kv_len = 70},
      {.name = "q_len_0_null", .q_len = 0, .kv_len = 9, .layout = kBhsd},
      {.name = "both_len_0", .q_len = 0, .kv_len = 0, .layout = kBhsd},
      {.name = "batch_0", .batch = 0, .q_len = 9, .kv_len = 9, .layout = kBhsd},

      // Numbers at the edge.
      {.name = "zero_q", .q_len = 33, .kv_len = 100, .data = kZero},
      // LSE < 0 (cudnn-frontend #1072, #160).
      {.name = "negative_1_128", .q_heads = 4, .kv_heads = 4, .q_len = 1, .kv_len = 128,
       .data = kNegative},
      {.name = "causal_negative", .policy = kCausal, .q_len = 65, .kv_len = 65, .data = kNegative,
       .dlse = true},
      // No finite number stands for "hidden" (flashinfer #4267, #4451).
      {.name = "very_negative_dim_128", .q_len = 65, .kv_len = 130, .head_dim = 128,
       .data = kVeryNegative},
      {.name = "causal_very_negative", .policy = kCausal, .q_len = 65, .kv_len = 65,
       .data = kVeryNegative, .scale = 0.25f},
      {.name = "large", .q_len = 65, .kv_len = 70, .data = kLarge},
      // |q . k| > 65504 in fp16 (ik_llama #1196).
      {.name = "causal_large_dim_128", .policy = kCausal, .q_len = 65, .kv_len = 70,
       .head_dim = 128, .data = kLarge},
      // test_flash_attn_bwd_overflow and _varlen_overflow of flash-attention.
      {.name = "causal_overflow_1", .policy = kCausal, .batch = 2, .q_heads = 4, .kv_heads = 4,
       .q_len = 1, .kv_len = 1, .head_dim = 16, .data = kOverflow},
      {.name = "causal_overflow_2", .policy = kCausal, .batch = 2, .q_heads = 4, .kv_heads = 4,
       .q_len = 2, .kv_len = 2, .head_dim = 64, .data = kOverflow},
      {.name = "overflow_5", .batch = 2, .q_heads = 4, .kv_heads = 4, .q_len = 5, .kv_len = 5,
       .head_dim = 32, .data = kOverflow},
      {.name = "causal_overflow_17", .policy = kCausal, .batch = 2, .q_heads = 4, .kv_heads = 4,
       .q_len = 17, .kv_len = 17, .head_dim = 64, .data = kOverflow},
      {.name = "overflow_128", .q_len = 128, .kv_len = 128, .head_dim = 16, .data = kOverflow},
      {.name = "overflow_76_1", .q_heads = 4, .kv_heads = 4, .q_len = 76, .kv_len = 1,
       .head_dim = 64, .data = kOverflow},
      {.name = "causal_overflow_146_34", .policy = kCausal, .q_len = 146, .kv_len = 34,
       .head_dim = 32, .data = kOverflow},
      // A NaN in a visible row shows, as in standard attention (flash-attention #1395).
      {.name = "nan_query", .batch = 2, .q_len = 70, .kv_len = 90, .data = kNanQuery,
       .backward = false},
      {.name = "causal_nan_query", .policy = kCausal, .batch = 2, .q_heads = 2, .kv_heads = 1,
       .q_len = 90, .kv_len = 70, .data = kNanQuery, .backward = false},
      {.name = "nan_key", .batch = 2, .q_len = 33, .kv_len = 70, .data = kNanKey,
       .backward = false},
      {.name = "causal_nan_key", .policy = kCausal, .batch = 2, .q_len = 70, .kv_len = 70,
       .data = kNanKey, .backward = false},
      {.name = "nan_value", .batch = 2, .q_len = 33, .kv_len = 70, .data = kNanValue,
       .backward = false},
      {.name = "scale_3", .q_len = 33, .kv_len = 70, .dlse = true, .scale = 3.0f},
      {.name = "scale_0_001", .q_len = 33, .kv_len = 70, .scale = 0.001f},
      {.name = "least_scale", .q_len = 33, .kv_len = 70, .head_dim = 128, .scale = 0x1p-100f},
      {.name = "causal_scale_0_5", .policy = kCausal, .q_len = 70, .kv_len = 70, .head_dim = 40,
       .scale = 0.5f},
      {.name = "dlse_heads_4_2", .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 65,
       .kv_len = 70, .dlse = true},

      // Windows include both ends (transformers #39408); negative is unlimited (hippogriff #7).
      {.name = "window_5_0", .policy = kWindow, .q_len = 65, .kv_len = 65, .left = 5, .right = 0},
      {.name = "window_3_4_heads_4_2", .policy = kWindow, .batch = 2, .q_heads = 4, .kv_heads = 2,
       .q_len = 130, .kv_len = 130, .dlse = true, .left = 3, .right = 4},
      {.name = "window_0_0", .policy = kWindow, .q_len = 70, .kv_len = 70, .left = 0, .right = 0},
      // The last rows of a tile do not see the first keys, several times for a thread block.
      {.name = "window_0_0_heads_8", .policy = kWindow, .q_heads = 8, .kv_heads = 8, .q_len = 70,
       .kv_len = 80, .head_dim = 8, .left = 0, .right = 0},
      {.name = "window_like_causal", .policy = kWindow, .q_len = 65, .kv_len = 100, .left = 1000,
       .right = 0},
      {.name = "window_unlimited_left", .policy = kWindow, .q_len = 65, .kv_len = 70, .right = 0},
      {.name = "window_unlimited_right", .policy = kWindow, .q_len = 65, .kv_len = 70, .left = 2},
      {.name = "window_unlimited", .policy = kWindow, .q_len = 65, .kv_len = 70},
      {.name = "window_2_30", .policy = kWindow, .q_len = 65, .kv_len = 70, .left = 1073741824,
       .right = 2147483647},
      {.name = "window_64_64_200", .policy = kWindow, .q_len = 200, .kv_len = 200, .head_dim = 32,
       .left = 64, .right = 64},
      // Rows of a tile that see neither its first keys nor those that the next rows begin with.
      {.name = "window_3_3_heads_6_192", .policy = kWindow, .q_heads = 6, .kv_heads = 6,
       .q_len = 192, .kv_len = 192, .head_dim = 8, .left = 3, .right = 3},
      {.name = "window_empty_rows", .policy = kWindow, .q_len = 130, .kv_len = 40, .dlse = true,
       .left = 3, .right = 2},
      {.name = "window_20_0_long_kv", .policy = kWindow, .q_len = 10, .kv_len = 200, .left = 20,
       .right = 0},

      // Prefix, documents and what masks have in common.
      {.name = "prefix_0", .policy = kPrefix, .q_len = 65, .kv_len = 70},
      {.name = "prefix_10", .policy = kPrefix, .q_heads = 4, .kv_heads = 2, .q_len = 130,
       .kv_len = 130, .head_dim = 40, .prefix = 10},
      {.name = "prefix_beyond", .policy = kPrefix, .q_len = 65, .kv_len = 70, .prefix = 500},
      {.name = "prefix_long_q", .policy = kPrefix, .q_len = 130, .kv_len = 40, .prefix = 7},
      {.name = "prefix_empty_rows", .policy = kPrefix, .q_len = 130, .kv_len = 40},
      {.name = "prefix_lengths", .policy = kPrefix, .batch = 3, .q_len = 70, .kv_len = 70,
       .prefix = 20, .pointers = true},
      {.name = "document_130", .policy = kDocument, .batch = 2, .q_heads = 2, .kv_heads = 1,
       .q_len = 130, .kv_len = 130},
      {.name = "document_65_200", .policy = kDocument, .q_len = 65, .kv_len = 200},
      {.name = "document_dim_192", .policy = kDocument, .q_heads = 2, .kv_heads = 1, .q_len = 130,
       .kv_len = 130, .head_dim = 192},
      {.name = "document_without_keys", .policy = kDocument, .batch = 2, .q_len = 33,
       .kv_len = 70, .dlse = true, .hide = true},
      {.name = "causal_document_130", .policy = kCausalDocument, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 130, .kv_len = 130, .head_dim = 32},
      {.name = "causal_document_70_40", .policy = kCausalDocument, .q_len = 70, .kv_len = 40,
       .dlse = true, .hide = true},
      // Masks by data that skip tiles: lengths of 0, below it and above kv_len; documents that
      // begin and end inside of tiles, of one row, and without keys.
      {.name = "key_padding_70_130", .policy = kKeyPadding, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 70, .kv_len = 130, .head_dim = 32, .dlse = true, .prefix = 65},
      {.name = "key_padding_40_200", .policy = kKeyPadding, .batch = 3, .q_len = 40,
       .kv_len = 200, .prefix = 7},
      {.name = "key_padding_20_60", .policy = kKeyPadding, .batch = 3, .q_len = 20, .kv_len = 60,
       .head_dim = 32, .prefix = 30},
      {.name = "key_padding_all_empty", .policy = kKeyPadding, .q_len = 33, .kv_len = 70,
       .dlse = true},
      {.name = "causal_key_padding_130", .policy = kCausalKeyPadding, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 130, .head_dim = 32, .dlse = true, .prefix = 40},
      {.name = "causal_key_padding_130_70", .policy = kCausalKeyPadding, .batch = 3, .q_len = 130,
       .kv_len = 70, .head_dim = 16, .prefix = 20},
      {.name = "sorted_document_130", .policy = kSortedDocument, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 130},
      {.name = "sorted_document_65_200", .policy = kSortedDocument, .q_len = 65, .kv_len = 200},
      {.name = "sorted_document_200_65", .policy = kSortedDocument, .batch = 2, .q_len = 200,
       .kv_len = 65, .head_dim = 32, .dlse = true, .hide = true},
      {.name = "sorted_document_without_keys", .policy = kSortedDocument, .batch = 2, .q_len = 33,
       .kv_len = 70, .dlse = true, .hide = true},
      {.name = "sorted_document_dim_192", .policy = kSortedDocument, .q_heads = 2, .kv_heads = 1,
       .q_len = 130, .kv_len = 130, .head_dim = 192},
      {.name = "causal_sorted_document_130", .policy = kCausalSortedDocument, .batch = 2,
       .q_heads = 4, .kv_heads = 2, .q_len = 130, .kv_len = 130, .head_dim = 32},
      {.name = "causal_sorted_document_300", .policy = kCausalSortedDocument, .q_len = 300,
       .kv_len = 300, .head_dim = 16, .dlse = true},
      {.name = "causal_sorted_document_70_40", .policy = kCausalSortedDocument, .q_len = 70,
       .kv_len = 40, .dlse = true, .hide = true},
      {.name = "row_intervals_130", .policy = kRowIntervals, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 130, .dlse = true, .prefix = 20},
      {.name = "row_intervals_65_200", .policy = kRowIntervals, .q_len = 65, .kv_len = 200,
       .prefix = 70},
      {.name = "row_intervals_one", .policy = kRowIntervals, .batch = 2, .q_len = 130,
       .kv_len = 65, .head_dim = 32, .prefix = 10, .pointers = true},
      {.name = "row_intervals_heads_4_1", .policy = kRowIntervals, .q_heads = 4, .q_len = 33,
       .kv_len = 65, .head_dim = 16, .prefix = 10},
      {.name = "row_intervals_dim_192", .policy = kRowIntervals, .q_heads = 2, .kv_heads = 1,
       .q_len = 70, .kv_len = 130, .head_dim = 192, .prefix = 30},
      {.name = "causal_row_intervals_130", .policy = kCausalRowIntervals, .batch = 2,
       .q_heads = 4, .kv_heads = 2, .q_len = 130, .kv_len = 130, .head_dim = 32, .prefix = 40},
      {.name = "key_padding_kv_len_0", .policy = kKeyPadding, .q_len = 70, .kv_len = 0},
      {.name = "sorted_document_kv_len_0", .policy = kSortedDocument, .q_len = 70, .kv_len = 0},
      {.name = "row_intervals_kv_len_0", .policy = kRowIntervals, .q_len = 70, .kv_len = 0},
      {.name = "causal_row_intervals_150", .policy = kCausalRowIntervals, .q_len = 150,
       .kv_len = 150, .head_dim = 16, .prefix = 33},
      {.name = "causal_row_intervals_300", .policy = kCausalRowIntervals, .q_len = 300,
       .kv_len = 300, .head_dim = 16, .prefix = 33},
      {.name = "prepared_alibi_130_150", .policy = kPreparedAlibi, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 150, .head_dim = 32, .dlse = true, .prefix = 100},
      {.name = "prepared_alibi_70_65", .policy = kPreparedAlibi, .batch = 2, .q_len = 70,
       .kv_len = 65, .head_dim = 32, .prefix = 50},
      {.name = "prepared_alibi_dim_128", .policy = kPreparedAlibi, .q_len = 65, .kv_len = 70,
       .head_dim = 128, .prefix = 50, .hide = true},
      {.name = "window_and_prefix", .policy = kWindowPrefix, .batch = 2, .q_len = 130,
       .kv_len = 130, .head_dim = 32, .left = 20, .right = 30, .prefix = 40},
      {.name = "window_and_prefix_70_130", .policy = kWindowPrefix, .q_len = 70, .kv_len = 130,
       .left = 80, .prefix = 90},

      // Score modifiers.
      {.name = "alibi_65", .policy = kAlibi, .q_heads = 4, .kv_heads = 4, .q_len = 65,
       .kv_len = 65},
      {.name = "alibi_40_130_heads_4_2", .policy = kAlibi, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 40, .kv_len = 130, .dlse = true, .pointers = true},
      {.name = "alibi_130_40", .policy = kAlibi, .q_heads = 2, .kv_heads = 2, .q_len = 130,
       .kv_len = 40},
      // Without a mask keys lie on both sides of the diagonal, which may leave the keys. Scores are
      // below 64: what fp32 resolves of larger ones decides the errors.
      {.name = "full_alibi_130_200", .policy = kFullAlibi, .q_heads = 1, .kv_heads = 1,
       .q_len = 130, .kv_len = 200, .head_dim = 16},
      {.name = "full_alibi_130_70", .policy = kFullAlibi, .q_heads = 1, .kv_heads = 1,
       .q_len = 130, .kv_len = 70, .head_dim = 16},
      {.name = "full_alibi_200_192", .policy = kFullAlibi, .q_heads = 1, .kv_heads = 1,
       .q_len = 200, .kv_len = 192, .head_dim = 16},
      {.name = "full_alibi_heads_8_1", .policy = kFullAlibi, .q_heads = 8, .kv_heads = 1,
       .q_len = 3, .kv_len = 150, .head_dim = 16},
      {.name = "full_alibi_heads_4_2", .policy = kFullAlibi, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 40, .kv_len = 130},
      // cap * tanh(s / cap), with its derivative (flash-attention PR #2402).
      {.name = "softcap_3", .policy = kSoftcap, .q_heads = 4, .kv_heads = 2, .q_len = 65,
       .kv_len = 70, .scale = 0.5f},
      {.name = "softcap_50", .policy = kSoftcap, .q_len = 33, .kv_len = 130, .dlse = true,
       .cap = 50},
      {.name = "softcap_0_5_overflow", .policy = kSoftcap, .q_len = 33, .kv_len = 70,
       .data = kOverflow, .cap = 0.5f},
      {.name = "bias_17_70", .policy = kBias, .batch = 2, .q_heads = 2, .kv_heads = 1,
       .q_len = 17, .kv_len = 70},
      {.name = "bias_hides", .policy = kBias, .batch = 2, .q_heads = 2, .kv_heads = 2,
       .q_len = 65, .kv_len = 130, .dlse = true, .hide = true},
      // Elements of 16 bits, for which sm90 has a pipeline: one row for all rows, a row each,
      // another bias for each batch, and rows that TMA cannot address.
      {.name = "half_bias_65_70", .policy = kHalfBias, .batch = 2, .q_heads = 2, .kv_heads = 1,
       .q_len = 65, .kv_len = 70},
      {.name = "half_bias_hides", .policy = kHalfBias, .batch = 2, .q_heads = 2, .kv_heads = 2,
       .q_len = 130, .kv_len = 150, .dlse = true, .hide = true},
      {.name = "half_bias_300_400", .policy = kHalfBias, .q_heads = 3, .kv_heads = 3,
       .q_len = 300, .kv_len = 400, .hide = true},
      {.name = "half_bias_columns", .policy = kHalfBias, .q_heads = 3, .kv_heads = 3,
       .q_len = 300, .kv_len = 170, .head_dim = 32},
      {.name = "half_bias_odd_rows", .policy = kHalfBias, .q_heads = 2, .kv_heads = 2,
       .q_len = 70, .kv_len = 130, .pointers = true, .hide = true},
      {.name = "half_bias_1_130", .policy = kHalfBias, .q_heads = 2, .kv_heads = 2, .q_len = 1,
       .kv_len = 130, .hide = true},
      {.name = "half_bias_130_40", .policy = kHalfBias, .batch = 3, .q_heads = 2, .kv_heads = 1,
       .q_len = 130, .kv_len = 40, .dlse = true},
      // One of column - row, whose words sm90 reads once for each diagonal.
      {.name = "half_bias_distances", .policy = kHalfBias, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 150, .dlse = true, .distances = true},
      {.name = "half_bias_distances_300_70", .policy = kHalfBias, .q_heads = 2, .kv_heads = 2,
       .q_len = 300, .kv_len = 70, .hide = true, .distances = true},
      {.name = "half_bias_distances_dim_192", .policy = kHalfBias, .q_len = 70, .kv_len = 130,
       .head_dim = 192, .distances = true},
      {.name = "half_bias_dim_192", .policy = kHalfBias, .q_heads = 2, .kv_heads = 2,
       .q_len = 130, .kv_len = 136, .head_dim = 192, .head_dim_v = 128, .hide = true},
      {.name = "half_bias_dim_256", .policy = kHalfBias, .q_heads = 2, .kv_heads = 1,
       .q_len = 136, .kv_len = 80, .head_dim = 256, .dlse = true, .hide = true},
      {.name = "half_bias_dim_96", .policy = kHalfBias, .q_heads = 2, .kv_heads = 1,
       .q_len = 300, .kv_len = 136, .head_dim = 96, .hide = true},
      // Behind a softcap a bias is read as it is alone: its elements, columns and diagonals.
      {.name = "softcap_bias_scores", .policy = kSoftcapBias, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 150, .dlse = true, .hide = true},
      {.name = "softcap_bias_columns", .policy = kSoftcapBias, .batch = 2, .q_heads = 2,
       .kv_heads = 2, .q_len = 130, .kv_len = 70, .cap = 1},
      {.name = "softcap_bias_distances", .policy = kSoftcapBias, .q_heads = 2, .kv_heads = 1,
       .q_len = 70, .kv_len = 150, .dlse = true, .distances = true},
      {.name = "softcap_bias_dim_128", .policy = kSoftcapBias, .q_heads = 2, .kv_heads = 1,
       .q_len = 70, .kv_len = 136, .head_dim = 128, .cap = 30, .hide = true},
      {.name = "softcap_bias_distances_dim_128", .policy = kSoftcapBias, .q_len = 130,
       .kv_len = 70, .head_dim = 128, .hide = true, .distances = true},
      // Beside dropout, for which sm90 has the same kernels.
      {.name = "half_bias_dropout_33_49", .policy = kHalfBiasDropout, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 33, .kv_len = 49, .head_dim = 32, .hide = true},
      {.name = "half_bias_dropout_dim_128", .policy = kHalfBiasDropout, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 72, .head_dim = 128, .dlse = true, .hide = true},
      {.name = "half_bias_dropout_distances_dim_128", .policy = kHalfBiasDropout, .q_heads = 2,
       .kv_heads = 1, .q_len = 70, .kv_len = 130, .head_dim = 128, .distances = true},
      {.name = "softcap_then_alibi", .policy = kSoftcapAlibi, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 65, .kv_len = 130, .head_dim = 40},
      {.name = "softcap_then_alibi_130_65", .policy = kSoftcapAlibi, .q_len = 130, .kv_len = 65,
       .dlse = true},

      // A factor and a bias whose gradients are wanted; causal, with a softcap between them.
      {.name = "learned_65_70", .policy = kLearned, .batch = 2, .q_heads = 2, .kv_heads = 1,
       .q_len = 65, .kv_len = 70, .head_dim = 32, .dlse = true},
      {.name = "learned_130_40", .policy = kLearned, .q_len = 130, .kv_len = 40, .hide = true},
      {.name = "learned_40_130", .policy = kLearned, .q_heads = 2, .kv_heads = 2, .q_len = 40,
       .kv_len = 130, .head_dim = 16, .layout = kPadded, .dlse = true, .hide = true},
      {.name = "learned_by_heads", .policy = kLearned, .batch = 3, .q_heads = 4, .kv_heads = 2,
       .q_len = 33, .kv_len = 70, .head_dim = 16, .sums = Sums::kHeads},
      {.name = "learned_by_columns", .policy = kLearned, .batch = 2, .q_heads = 2, .kv_heads = 2,
       .q_len = 70, .kv_len = 33, .head_dim = 16, .hide = true, .sums = Sums::kColumns},
      {.name = "learned_by_distances", .policy = kLearned, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 65, .kv_len = 65, .head_dim = 16, .sums = Sums::kDistances},
      {.name = "learned_by_whole_heads", .policy = kLearned, .batch = 2, .q_heads = 4,
       .kv_heads = 4, .q_len = 17, .kv_len = 40, .head_dim = 16, .sums = Sums::kWholeHeads},
      {.name = "learned_kv_len_0", .policy = kLearned, .q_len = 9, .kv_len = 0,
       .sums = Sums::kWholeHeads},
      {.name = "learned_q_len_0", .policy = kLearned, .q_len = 0, .kv_len = 70,
       .sums = Sums::kColumns},
      {.name = "learned_batch_0", .policy = kLearned, .batch = 0, .q_len = 5, .kv_len = 7,
       .sums = Sums::kHeads},
      {.name = "learned_dropout_65_70", .policy = kLearnedDropout, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 65, .kv_len = 70, .head_dim = 32, .dlse = true},
      {.name = "learned_dropout_by_heads", .policy = kLearnedDropout, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 40, .kv_len = 70, .head_dim = 16, .hide = true,
       .sums = Sums::kHeads},
      // A bias alone, which does not need the scores.
      {.name = "learned_bias_65_70", .policy = kLearnedBias, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 65, .kv_len = 70, .head_dim = 16, .dlse = true, .hide = true},
      {.name = "learned_bias_by_rows", .policy = kLearnedBias, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 70, .kv_len = 40, .head_dim = 16, .sums = Sums::kRows},
      {.name = "learned_bias_by_columns", .policy = kLearnedBias, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 130, .kv_len = 33, .head_dim = 16, .sums = Sums::kColumns},
      {.name = "learned_bias_by_head_columns", .policy = kLearnedBias, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 80, .kv_len = 70, .head_dim = 16, .hide = true,
       .sums = Sums::kHeadColumns},
      {.name = "learned_bias_by_distances", .policy = kLearnedBias, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 65, .kv_len = 100, .head_dim = 16, .distances = true,
       .sums = Sums::kDistances},
      {.name = "learned_bias_distances_by_rows", .policy = kLearnedBias, .batch = 2, .q_heads = 2,
       .kv_heads = 2, .q_len = 130, .kv_len = 65, .head_dim = 16, .distances = true,
       .sums = Sums::kRows},
      {.name = "learned_bias_distances_300", .policy = kLearnedBias, .q_heads = 2,
       .kv_heads = 1, .q_len = 300, .kv_len = 200, .head_dim = 32, .dlse = true, .hide = true,
       .distances = true, .sums = Sums::kDistances},
      {.name = "learned_bias_by_whole_heads", .policy = kLearnedBias, .q_heads = 6, .kv_heads = 2,
       .q_len = 130, .kv_len = 40, .head_dim = 16, .sums = Sums::kWholeHeads},
      {.name = "learned_bias_dropout_by_distances", .policy = kLearnedBiasDropout, .batch = 2,
       .q_heads = 2, .kv_heads = 1, .q_len = 130, .kv_len = 40, .head_dim = 16,
       .distances = true, .sums = Sums::kDistances},
      {.name = "learned_bias_dropout_by_head_columns", .policy = kLearnedBiasDropout, .q_heads = 4,
       .kv_heads = 2, .q_len = 70, .kv_len = 40, .head_dim = 16, .hide = true,
       .sums = Sums::kHeadColumns},
      // Heads wider than 128, whose products are shared among warpgroups.
      {.name = "learned_dim_256_by_rows", .policy = kLearned, .q_heads = 2, .kv_heads = 1,
       .q_len = 33, .kv_len = 49, .head_dim = 256, .sums = Sums::kRows},
      {.name = "learned_dim_256_by_distances", .policy = kLearned, .q_heads = 2, .kv_heads = 1,
       .q_len = 33, .kv_len = 49, .head_dim = 256, .sums = Sums::kDistances},
      {.name = "learned_dim_256_by_whole_heads", .policy = kLearned, .q_heads = 2, .kv_heads = 1,
       .q_len = 40, .kv_len = 33, .head_dim = 256, .hide = true, .sums = Sums::kWholeHeads},
      {.name = "learned_bias_dim_192_by_columns", .policy = kLearnedBias, .q_heads = 2,
       .kv_heads = 1, .q_len = 40, .kv_len = 49, .head_dim = 192, .hide = true,
       .sums = Sums::kColumns},
      {.name = "learned_bias_dim_192_by_distances", .policy = kLearnedBias, .q_len = 70,
       .kv_len = 70, .head_dim = 192, .distances = true, .sums = Sums::kDistances},
      {.name = "learned_bias_dim_160", .policy = kLearnedBias, .q_heads = 2, .kv_heads = 1,
       .q_len = 33, .kv_len = 49, .head_dim = 160, .head_dim_v = 64, .hide = true},

      // Dropout.
      {.name = "dropout_65_129", .policy = kDropout, .batch = 2, .q_heads = 2, .kv_heads = 2,
       .q_len = 65, .kv_len = 129},
      {.name = "dropout_dim_128", .policy = kDropout, .q_len = 33, .kv_len = 49, .head_dim = 128},
      {.name = "dropout_dim_256", .policy = kDropout, .q_len = 33, .kv_len = 49, .head_dim = 256},
      {.name = "dropout_0", .policy = kDropout, .q_len = 65, .kv_len = 70, .probability = 0},
      {.name = "dropout_0_9", .policy = kDropout, .q_len = 65, .kv_len = 70, .probability = 0.9f},
      {.name = "dropout_almost_all", .policy = kDropout, .q_len = 65, .kv_len = 70,
       .probability = 0.999f},
      {.name = "causal_dropout_heads_6_2", .policy = kCausalDropout, .batch = 2, .q_heads = 6,
       .kv_heads = 2, .q_len = 70, .kv_len = 100, .head_dim = 40, .dlse = true},
      // More work tiles than blocks, of three parts.
      {.name = "causal_dropout_heads_6_192", .policy = kCausalDropout, .q_heads = 6, .kv_heads = 6,
       .q_len = 192, .kv_len = 192, .head_dim = 8},
      {.name = "causal_dropout_seed_pointers", .policy = kCausalDropout, .q_len = 70,
       .kv_len = 33, .pointers = true},

      // A user's own mask and modifier, and all at once.
      {.name = "user_3", .policy = kUser, .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 65,
       .kv_len = 70, .dlse = true},
      {.name = "user_2_130", .policy = kUser, .q_len = 130, .kv_len = 65, .head_dim = 32,
       .period = 2},
      {.name = "user_hides_everything", .policy = kUser, .q_len = 65, .kv_len = 70, .dlse = true,
       .period = 1},
      {.name = "everything_heads_4_2", .policy = kEverything, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 70, .kv_len = 100, .dlse = true},
      {.name = "everything_130_70_padded", .policy = kEverything, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 70, .head_dim = 40, .head_dim_v = 56,
       .layout = kPadded, .hide = true},
      {.name = "everything_40_70", .policy = kEverything, .q_heads = 2, .kv_heads = 1, .q_len = 40,
       .kv_len = 70, .head_dim = 40},
      {.name = "everything_dim_128", .policy = kEverything, .q_heads = 2, .kv_heads = 1,
       .q_len = 33, .kv_len = 49, .head_dim = 128},
      {.name = "everything_dim_256", .policy = kEverything, .q_heads = 2, .kv_heads = 1,
       .q_len = 33, .kv_len = 49, .head_dim = 256},
      {.name = "everything_unaligned", .policy = kEverything, .q_len = 57, .kv_len = 57,
       .head_dim = 41, .layout = kUnaligned},

      // Block lists: of all heads and of each, blocks without a key, the last blocks cut.
      {.name = "block_sparse_1_1", .policy = kBlockSparse, .q_len = 1, .kv_len = 1},
      {.name = "block_sparse_60_40", .policy = kBlockSparse, .q_heads = 2, .kv_heads = 2,
       .q_len = 60, .kv_len = 40, .head_dim = 16},
      {.name = "block_sparse_300_250", .policy = kBlockSparse, .q_len = 300, .kv_len = 250,
       .head_dim = 8, .dlse = true},
      {.name = "block_sparse_heads_2_1", .policy = kBlockSparse, .q_heads = 2, .kv_heads = 1,
       .q_len = 150, .kv_len = 200, .head_dim = 8, .pointers = true},
      {.name = "block_sparse_batch_2", .policy = kBlockSparse, .batch = 2, .q_len = 200,
       .kv_len = 140, .head_dim = 8, .layout = kPadded, .pointers = true},
      {.name = "block_sparse_empty_rows", .policy = kBlockSparse, .q_len = 290, .kv_len = 260,
       .head_dim = 8, .dlse = true, .hide = true},
      {.name = "block_sparse_dim_64", .policy = kBlockSparse, .q_len = 130, .kv_len = 70},
      {.name = "block_sparse_dim_128", .policy = kBlockSparse, .q_heads = 2, .kv_heads = 1,
       .q_len = 300, .kv_len = 400, .head_dim = 128, .pointers = true},
      {.name = "block_sparse_dim_256", .policy = kBlockSparse, .q_len = 150, .kv_len = 140,
       .head_dim = 256},
      {.name = "block_sparse_kv_len_0", .policy = kBlockSparse, .q_len = 9, .kv_len = 0},
      {.name = "block_sparse_everything_280_280", .policy = kBlockSparseEverything, .q_len = 280,
       .kv_len = 280, .head_dim = 8, .dlse = true},
      {.name = "block_sparse_everything_heads_4_2", .policy = kBlockSparseEverything, .q_heads = 4,
       .kv_heads = 2, .q_len = 130, .kv_len = 140, .head_dim = 8, .pointers = true},
      {.name = "block_sparse_everything_empty_rows", .policy = kBlockSparseEverything, .batch = 2,
       .q_len = 260, .kv_len = 130, .head_dim = 8, .pointers = true, .hide = true},

      // Sequences of their own lengths: without queries, without keys, without both, of one row.
      {.name = "own_lengths_100_130", .policy = kOwnLengths, .batch = 8, .q_heads = 2,
       .kv_heads = 2, .q_len = 100, .kv_len = 130},
      {.name = "own_lengths_130_70_bhsd", .policy = kOwnLengths, .batch = 5, .q_heads = 4,
       .kv_heads = 2, .q_len = 130, .kv_len = 70, .layout = kBhsd, .dlse = true},
      {.name = "own_lengths_padded", .policy = kOwnLengths, .batch = 6, .kv_heads = 1,
       .q_len = 65, .kv_len = 65, .head_dim = 40, .head_dim_v = 56, .layout = kPadded},
      {.name = "own_lengths_unaligned", .policy = kOwnLengths, .batch = 6, .kv_heads = 1,
       .q_len = 33, .kv_len = 49, .head_dim = 41, .layout = kUnaligned, .lse = false},
      {.name = "own_lengths_dim_128", .policy = kOwnLengths, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 80, .kv_len = 80, .head_dim = 128},
      {.name = "own_lengths_dim_192", .policy = kOwnLengths, .batch = 3, .q_heads = 1,
       .kv_heads = 1, .q_len = 40, .kv_len = 70, .head_dim = 192, .head_dim_v = 128},
      {.name = "own_lengths_dim_256", .policy = kOwnLengths, .batch = 3, .q_heads = 1,
       .kv_heads = 1, .q_len = 40, .kv_len = 70, .head_dim = 256},
      {.name = "packed_causal_130_130", .policy = kPackedCausal, .batch = 8,
       .q_heads = 2, .kv_heads = 1, .q_len = 130, .kv_len = 130, .dlse = true},
      // A bias of columns, of column - row, and of scores, in packed sequences.
      {.name = "packed_bias_columns", .policy = kPackedBias, .batch = 6, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 150, .dlse = true},
      {.name = "packed_bias_distances", .policy = kPackedBias, .batch = 8, .q_heads = 2,
       .kv_heads = 2, .q_len = 70, .kv_len = 200, .dlse = true, .hide = true, .distances = true},
      {.name = "packed_bias_scores", .policy = kPackedBias, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 40, .kv_len = 70, .hide = true},
      {.name = "packed_bias_scores_130_150", .policy = kPackedBias, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 150, .dlse = true, .hide = true},
      // What the last sequence has ends far before its bounds.
      {.name = "packed_bias_scores_short", .policy = kPackedBias, .batch = 6, .q_heads = 2,
       .kv_heads = 2, .q_len = 100, .kv_len = 140, .hide = true, .lengths = Lengths::kSelf},
      {.name = "packed_bias_columns_dim_128", .policy = kPackedBias, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 70, .kv_len = 40, .head_dim = 128},
      {.name = "packed_bias_distances_dim_256", .policy = kPackedBias, .batch = 3, .q_heads = 1,
       .kv_heads = 1, .q_len = 40, .kv_len = 70, .head_dim = 256, .distances = true},
      {.name = "own_lengths_all_empty", .policy = kOwnLengths, .batch = 3, .q_len = 70,
       .kv_len = 40, .lengths = Lengths::kAllEmpty},
      {.name = "own_lengths_24_40", .policy = kOwnLengths, .batch = 6, .q_heads = 1,
       .kv_heads = 1, .q_len = 24, .kv_len = 40, .head_dim = 56, .head_dim_v = 40,
       .layout = kPadded},
      {.name = "packed_causal_24_40_dim_256", .policy = kPackedCausal, .batch = 3,
       .q_heads = 2, .kv_heads = 1, .q_len = 24, .kv_len = 40, .head_dim = 256},
      {.name = "packed_causal_dim_96", .policy = kPackedCausal, .batch = 4,
       .q_heads = 1, .kv_heads = 1, .q_len = 24, .kv_len = 40, .head_dim = 96},
      {.name = "packed_causal_dim_160", .policy = kPackedCausal, .batch = 4,
       .q_heads = 1, .kv_heads = 1, .q_len = 24, .kv_len = 40, .head_dim = 160, .head_dim_v = 64},
      {.name = "packed_causal_40_24", .policy = kPackedCausal, .batch = 6,
       .q_heads = 1, .kv_heads = 1, .q_len = 40, .kv_len = 24},
      {.name = "packed_causal_heads_2", .policy = kPackedCausal, .batch = 4,
       .q_heads = 2, .kv_heads = 1, .q_len = 24, .kv_len = 40, .layout = kPadded},
      {.name = "padded_everything_40_24", .policy = kPaddedEverything, .batch = 6,
       .q_heads = 1, .kv_heads = 1, .q_len = 40, .kv_len = 24},
      {.name = "packed_causal_40_200", .policy = kPackedCausal, .batch = 5,
       .q_heads = 2, .kv_heads = 2, .q_len = 40, .kv_len = 200, .layout = kPadded},
      {.name = "packed_causal_dim_256", .policy = kPackedCausal, .batch = 3,
       .q_heads = 2, .kv_heads = 1, .q_len = 70, .kv_len = 70, .head_dim = 256},
      {.name = "padded_everything_one_row", .policy = kPaddedEverything, .batch = 5, .q_heads = 4,
       .kv_heads = 1, .q_len = 1, .kv_len = 40, .head_dim = 32, .layout = kPadded},
      {.name = "padded_everything_100_100", .policy = kPaddedEverything, .batch = 14,
       .q_heads = 4, .kv_heads = 2, .q_len = 100, .kv_len = 100, .dlse = true},
      {.name = "padded_everything_dim_128", .policy = kPaddedEverything, .batch = 5,
       .q_heads = 2, .kv_heads = 1, .q_len = 50, .kv_len = 66, .head_dim = 128,
       .layout = kBhsd},
      {.name = "padded_everything_dim_256", .policy = kPaddedEverything, .batch = 3,
       .kv_heads = 1, .q_len = 40, .kv_len = 40, .head_dim = 256},

      // Packed sequences that lie in several batches, of which the last one ends early.
      {.name = "packed_batches_130", .policy = kPackedBatches, .batch = 14, .q_heads = 2,
       .kv_heads = 1, .q_len = 130, .kv_len = 130, .dlse = true},
      {.name = "packed_batches_100_bhsd", .policy = kPackedBatches, .batch = 9, .q_heads = 2,
       .kv_heads = 2, .q_len = 100, .kv_len = 100, .layout = kBhsd, .dlse = true},
      {.name = "packed_batches_40_padded", .policy = kPackedBatches, .batch = 8, .q_heads = 2,
       .kv_heads = 1, .q_len = 40, .kv_len = 40, .head_dim = 40, .head_dim_v = 56,
       .layout = kPadded},
      {.name = "packed_batches_70_bhsd_out", .policy = kPackedBatches, .batch = 9,
       .q_heads = 4, .kv_heads = 2, .q_len = 70, .kv_len = 70, .layout = kBhsdOut},
      {.name = "packed_batches_dim_128_bhsd_out", .policy = kPackedBatches, .batch = 6,
       .q_heads = 2, .kv_heads = 2, .q_len = 70, .kv_len = 70, .head_dim = 128,
       .layout = kBhsdOut},
      {.name = "packed_batches_unaligned", .policy = kPackedBatches, .batch = 6, .kv_heads = 1,
       .q_len = 33, .kv_len = 33, .head_dim = 41, .layout = kUnaligned},
      {.name = "packed_batches_dim_128", .policy = kPackedBatches, .batch = 6, .q_heads = 2,
       .kv_heads = 1, .q_len = 70, .kv_len = 70, .head_dim = 128, .layout = kBhsd},
      {.name = "packed_batches_dim_256", .policy = kPackedBatches, .batch = 5, .q_heads = 1,
       .kv_heads = 1, .q_len = 24, .kv_len = 24, .head_dim = 256},
      {.name = "packed_batches_60_sequences", .policy = kPackedBatches, .batch = 60, .q_heads = 1,
       .kv_heads = 1, .q_len = 9, .kv_len = 9, .head_dim = 16},
      {.name = "packed_batches_empty_ends", .policy = kPackedBatches, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 40, .kv_len = 40, .head_dim = 32, .lengths = Lengths::kEmptyEnds},
      {.name = "packed_batches_all_empty", .policy = kPackedBatches, .batch = 3, .q_len = 40,
       .kv_len = 40, .lengths = Lengths::kAllEmpty},
      {.name = "packed_batches_no_rows", .policy = kPackedBatches, .batch = 3, .q_len = 40,
       .kv_len = 40, .layout = kBhsd, .lengths = Lengths::kNoRows},

      // Sinks: rows without keys, no keys at all, sinks above all scores and below, none; heads
      // that share keys; sums of many rows (flash-attention PR #2706).
      {.name = "sink_33_40", .policy = kSink, .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 33,
       .kv_len = 40, .head_dim = 16, .dlse = true, .sinks = Sinks::kMixed},
      {.name = "sink_130_40", .policy = kSink, .q_heads = 2, .kv_heads = 2, .q_len = 130,
       .kv_len = 40, .head_dim = 32, .dlse = true},
      {.name = "sink_1_200", .policy = kSink, .batch = 3, .q_heads = 2, .q_len = 1, .kv_len = 200},
      {.name = "sink_heads_8_1", .policy = kSink, .q_heads = 8, .q_len = 9, .kv_len = 65,
       .sinks = Sinks::kMixed},
      {.name = "sink_batch_18", .policy = kSink, .batch = 18, .q_len = 40, .kv_len = 9,
       .head_dim = 8, .layout = kPadded, .dlse = true},
      {.name = "sink_1100_9", .policy = kSink, .batch = 2, .q_len = 1100, .kv_len = 9,
       .head_dim = 8, .dlse = true},
      {.name = "sink_large", .policy = kSink, .q_heads = 2, .kv_heads = 2, .q_len = 40,
       .kv_len = 33, .dlse = true, .sinks = Sinks::kLarge},
      {.name = "sink_high", .policy = kSink, .batch = 2, .q_heads = 2, .q_len = 150,
       .kv_len = 33, .head_dim = 32, .sinks = Sinks::kHigh},
      {.name = "sink_none", .policy = kSink, .q_heads = 2, .kv_heads = 2, .q_len = 70,
       .kv_len = 65, .dlse = true, .sinks = Sinks::kNone},
      {.name = "sink_scaled_scores", .policy = kSink, .q_len = 33, .kv_len = 40, .scale = 0.03f},
      {.name = "sink_without_lse", .policy = kSink, .q_len = 17, .kv_len = 40, .backward = false,
       .lse = false},
      {.name = "sink_dim_128", .policy = kSink, .q_heads = 2, .kv_heads = 1, .q_len = 40,
       .kv_len = 33, .head_dim = 128, .sinks = Sinks::kMixed},
      {.name = "sink_dim_256", .policy = kSink, .q_heads = 2, .kv_heads = 1, .q_len = 40,
       .kv_len = 33, .head_dim = 256, .dlse = true},
      {.name = "sink_kv_len_0", .policy = kSink, .batch = 2, .q_heads = 4, .q_len = 9, .kv_len = 0,
       .dlse = true, .sinks = Sinks::kMixed},
      {.name = "sink_q_len_0", .policy = kSink, .q_heads = 3, .q_len = 0, .kv_len = 70},
      {.name = "sink_batch_0", .policy = kSink, .batch = 0, .q_heads = 3, .q_len = 5, .kv_len = 7},
      {.name = "sink_everything_70_100", .policy = kSinkEverything, .batch = 2, .q_heads = 4,
       .kv_heads = 2, .q_len = 70, .kv_len = 100, .dlse = true, .sinks = Sinks::kMixed},
      {.name = "sink_everything_33_40", .policy = kSinkEverything, .q_heads = 4, .kv_heads = 2,
       .q_len = 33, .kv_len = 40, .head_dim = 16, .dlse = true, .sinks = Sinks::kMixed},
      {.name = "sink_everything_hides_all", .policy = kSinkEverything, .q_heads = 2, .q_len = 33,
       .kv_len = 40, .dlse = true, .period = 1},
      {.name = "own_lengths_sink_40_33", .policy = kOwnLengthsSink, .batch = 8, .q_heads = 2,
       .kv_heads = 1, .q_len = 40, .kv_len = 33, .head_dim = 32, .dlse = true},
      {.name = "own_lengths_sink_padded", .policy = kOwnLengthsSink, .batch = 6, .q_heads = 4,
       .kv_heads = 2, .q_len = 33, .kv_len = 24, .head_dim = 40, .head_dim_v = 56,
       .layout = kPadded, .sinks = Sinks::kMixed},
      // dO and O that are no numbers, in rows without keys.
      {.name = "sink_kv_len_0_nan", .policy = kSink, .batch = 2, .q_heads = 4, .q_len = 9,
       .kv_len = 0, .data = kNanGradient, .dlse = true, .sinks = Sinks::kMixed},
      {.name = "own_lengths_sink_nan", .policy = kOwnLengthsSink, .batch = 8, .q_heads = 2,
       .kv_heads = 1, .q_len = 33, .kv_len = 24, .head_dim = 32, .data = kNanGradient,
       .dlse = true},
      // Gaps as TransformerEngine has them in a context-parallel run (its issues 2186 and 3331).
      {.name = "packed_causal_gaps", .policy = kPackedCausal, .batch = 6, .q_heads = 2,
       .kv_heads = 1, .q_len = 12, .kv_len = 12, .head_dim = 32, .dlse = true,
       .lengths = Lengths::kSelf},
      {.name = "packed_causal_tail_of_698", .policy = kPackedCausal, .q_len = 698, .kv_len = 698,
       .lengths = Lengths::kLongest},
      {.name = "packed_causal_tail_of_58", .policy = kPackedCausal, .q_len = 58, .kv_len = 58,
       .dlse = true, .lengths = Lengths::kLongest},
      // Packed QKV and dQKV, (total, heads, dim), also without gaps.
      {.name = "packed_causal_qkv", .policy = kPackedCausal, .batch = 6, .q_heads = 3,
       .kv_heads = 3, .q_len = 12, .kv_len = 12, .head_dim = 32, .layout = kPacked,
       .lengths = Lengths::kSelf},
      {.name = "packed_causal_qkv_tight", .policy = kPackedCausal, .batch = 13, .q_heads = 2,
       .kv_heads = 1, .q_len = 12, .kv_len = 12, .layout = kPacked, .lengths = Lengths::kSelf,
       .tight = true},
      // FlashAttention's issue 1537: one query, among sequences that are empty, at heads 9:3.
      {.name = "packed_causal_heads_9_3", .policy = kPackedCausal, .batch = 4, .q_heads = 9,
       .kv_heads = 3, .q_len = 1, .kv_len = 5, .head_dim = 32, .dlse = true,
       .lengths = Lengths::kAlternate, .tight = true},
      {.name = "packed_causal_heads_7_1", .policy = kPackedCausal, .batch = 8, .q_heads = 7,
       .kv_heads = 1, .q_len = 20, .kv_len = 33, .head_dim = 16, .tight = true},
      {.name = "packed_causal_heads_8_1", .policy = kPackedCausal, .batch = 3, .q_heads = 8,
       .kv_heads = 1, .q_len = 24, .kv_len = 20, .head_dim = 16, .tight = true},
      {.name = "packed_causal_empty_ends", .policy = kPackedCausal, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 70, .kv_len = 40, .lengths = Lengths::kEmptyEnds, .tight = true},
      {.name = "packed_causal_all_empty", .policy = kPackedCausal, .batch = 3, .q_len = 70,
       .kv_len = 40, .lengths = Lengths::kAllEmpty},
      {.name = "packed_causal_one_of_all", .policy = kPackedCausal, .batch = 1, .q_heads = 2,
       .kv_heads = 2, .q_len = 65, .kv_len = 70, .lengths = Lengths::kLongest, .tight = true},
      {.name = "packed_causal_batch_0", .policy = kPackedCausal, .batch = 0, .q_len = 5,
       .kv_len = 7},
      // No rows are allocated for queries, for keys, or for both.
      {.name = "packed_causal_total_q_0", .policy = kPackedCausal, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 70, .kv_len = 40, .layout = kBhsd, .lengths = Lengths::kNoQueries},
      {.name = "packed_causal_total_k_0", .policy = kPackedCausal, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 40, .kv_len = 70, .layout = kBhsd, .dlse = true,
       .lengths = Lengths::kNoKeys},
      {.name = "packed_causal_total_0", .policy = kPackedCausal, .batch = 3, .q_len = 70,
       .kv_len = 40, .layout = kBhsd, .lengths = Lengths::kNoRows, .tight = true},
      {.name = "own_lengths_sink_total_q_0", .policy = kOwnLengthsSink, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 40, .kv_len = 33, .head_dim = 32, .layout = kBhsd,
       .lengths = Lengths::kNoQueries},
      {.name = "own_lengths_sink_total_k_0", .policy = kOwnLengthsSink, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 40, .kv_len = 33, .head_dim = 32, .layout = kBhsd, .dlse = true,
       .lengths = Lengths::kNoKeys},
      // Strides that are not read.
      {.name = "odd_strides_33_49", .q_len = 33, .kv_len = 49, .layout = kOddStrides},
      {.name = "odd_strides_1_49", .q_heads = 2, .kv_heads = 1, .q_len = 1, .kv_len = 49,
       .layout = kOddStrides},
      {.name = "packed_causal_odd_strides", .policy = kPackedCausal, .batch = 6, .q_heads = 2,
       .kv_heads = 1, .q_len = 33, .kv_len = 24, .layout = kOddStrides},
      {.name = "packed_causal_tight_130", .policy = kPackedCausal, .batch = 6, .q_heads = 1,
       .kv_heads = 1, .q_len = 130, .kv_len = 130, .head_dim = 32, .dlse = true, .tight = true},
      // More sequences than a thread block of some schedulers takes.
      {.name = "packed_causal_38_sequences", .policy = kPackedCausal, .batch = 38, .q_len = 9,
       .kv_len = 12, .head_dim = 16},
      {.name = "packed_causal_1100_sequences", .policy = kPackedCausal, .batch = 1100, .q_len = 4,
       .kv_len = 5, .head_dim = 16, .tight = true},
      {.name = "padded_everything_all_empty", .policy = kPaddedEverything, .batch = 2, .q_len = 20,
       .kv_len = 30, .lengths = Lengths::kAllEmpty},

      // Keys in a cache, a piece for each sequence: one query, and a few; caches that sequences
      // share; a first key behind the first row.
      {.name = "cached_causal_1_200", .policy = kCachedCausal, .batch = 8, .q_heads = 4,
       .kv_heads = 2, .q_len = 1, .kv_len = 200},
      {.name = "cached_causal_one_row_padded", .policy = kCachedCausal, .batch = 5, .q_heads = 4,
       .kv_heads = 1, .q_len = 1, .kv_len = 40, .head_dim = 32, .layout = kPadded},
      {.name = "cached_causal_padded", .policy = kCachedCausal, .batch = 5, .q_heads = 4,
       .kv_heads = 2, .q_len = 9, .kv_len = 40, .head_dim = 32, .layout = kPadded},
      {.name = "cached_causal_24_70", .policy = kCachedCausal, .batch = 8, .q_heads = 2,
       .kv_heads = 1, .q_len = 24, .kv_len = 70, .head_dim = 32, .layout = kBhsd},
      {.name = "cached_causal_70_40", .policy = kCachedCausal, .batch = 5, .q_heads = 2,
       .kv_heads = 2, .q_len = 70, .kv_len = 40, .head_dim = 32, .leftpad = true},
      {.name = "cached_causal_shared", .policy = kCachedCausal, .batch = 7, .q_heads = 2,
       .kv_heads = 1, .q_len = 20, .kv_len = 90, .head_dim = 32, .pointers = true,
       .leftpad = true},
      {.name = "cached_causal_unaligned", .policy = kCachedCausal, .batch = 5, .q_len = 9,
       .kv_len = 65, .head_dim = 41, .layout = kUnaligned, .pointers = true, .leftpad = true},
      {.name = "cached_causal_no_keys", .policy = kCachedCausal, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 9, .kv_len = 33, .head_dim = 32, .layout = kBhsd,
       .lengths = Lengths::kNoKeys},
      {.name = "cached_causal_dim_128", .policy = kCachedCausal, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 33, .kv_len = 140, .head_dim = 128, .pointers = true,
       .leftpad = true},
      {.name = "cached_causal_dim_256", .policy = kCachedCausal, .batch = 3, .q_len = 20,
       .kv_len = 70, .head_dim = 256, .leftpad = true},
      {.name = "cached_packed_alibi_1_90", .policy = kCachedPackedAlibi, .batch = 6, .q_heads = 4,
       .kv_heads = 1, .q_len = 1, .kv_len = 90, .head_dim = 32, .tight = true},
      {.name = "cached_packed_alibi_40_70", .policy = kCachedPackedAlibi, .batch = 8, .q_heads = 2,
       .kv_heads = 1, .q_len = 40, .kv_len = 70, .head_dim = 32},
      {.name = "cached_packed_alibi_shared", .policy = kCachedPackedAlibi, .batch = 7,
       .q_heads = 2, .kv_heads = 2, .q_len = 24, .kv_len = 100, .head_dim = 32,
       .pointers = true, .leftpad = true},
      {.name = "cached_packed_alibi_unaligned", .policy = kCachedPackedAlibi, .batch = 4,
       .q_len = 24, .kv_len = 60, .head_dim = 41, .layout = kUnaligned, .leftpad = true},
      {.name = "cached_packed_alibi_no_queries", .policy = kCachedPackedAlibi, .batch = 4,
       .q_len = 24, .kv_len = 60, .head_dim = 32, .layout = kBhsd,
       .lengths = Lengths::kNoQueries},
      {.name = "cached_packed_alibi_dim_128", .policy = kCachedPackedAlibi, .batch = 4,
       .q_heads = 2, .kv_heads = 1, .q_len = 70, .kv_len = 140, .head_dim = 128, .tight = true},
      {.name = "cached_packed_alibi_dim_256", .policy = kCachedPackedAlibi, .batch = 3,
       .q_len = 20, .kv_len = 70, .head_dim = 256, .pointers = true, .leftpad = true},

      // In pages of any size. What lies before a window is not there any more (sglang #32902), nor
      // is what lies behind the last key of a page; sequences may be longer than their line of the
      // page table (flashinfer #320); K and V are views of one buffer (kvcached #321).
      {.name = "paged_window_page_1", .policy = kPagedWindow, .batch = 6, .q_heads = 2,
       .kv_heads = 1, .q_len = 24, .kv_len = 90, .head_dim = 32, .left = 9, .right = 0,
       .page_size = 1},
      {.name = "paged_window_page_7", .policy = kPagedWindow, .batch = 8, .q_heads = 2,
       .kv_heads = 1, .q_len = 20, .kv_len = 100, .head_dim = 32, .left = 30, .right = 0,
       .page_size = 7, .leftpad = true},
      // More pages than a warp has lanes.
      {.name = "paged_window_page_8", .policy = kPagedWindow, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 9, .kv_len = 420, .head_dim = 16, .right = 0,
       .lengths = Lengths::kLongest, .page_size = 8},
      {.name = "paged_window_page_16", .policy = kPagedWindow, .batch = 7, .q_heads = 2,
       .kv_heads = 1, .q_len = 9, .kv_len = 140, .head_dim = 32, .left = 70, .right = 0,
       .pointers = true, .leftpad = true},
      {.name = "paged_window_page_64", .policy = kPagedWindow, .batch = 4, .q_heads = 2,
       .kv_heads = 2, .q_len = 30, .kv_len = 200, .head_dim = 32, .left = 100, .right = 5,
       .page_size = 64},
      {.name = "paged_window_page_256", .policy = kPagedWindow, .batch = 3, .q_heads = 2,
       .kv_heads = 1, .q_len = 9, .kv_len = 600, .head_dim = 16, .left = 40, .right = 0,
       .lengths = Lengths::kLongest, .page_size = 256},
      {.name = "paged_window_one_query", .policy = kPagedWindow, .batch = 8, .q_heads = 4,
       .kv_heads = 1, .q_len = 1, .kv_len = 130, .head_dim = 32, .left = 64, .right = 0,
       .sinks = Sinks::kMixed, .page_size = 16},
      {.name = "paged_window_unlimited", .policy = kPagedWindow, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 40, .kv_len = 90, .head_dim = 32, .page_size = 16},
      {.name = "paged_window_chunk", .policy = kPagedWindow, .batch = 2, .q_heads = 2,
       .kv_heads = 1, .q_len = 70, .kv_len = 130, .head_dim = 32, .right = 0,
       .lengths = Lengths::kLongest, .page_size = 16},
      {.name = "paged_window_one_cache", .policy = kPagedWindow, .batch = 5, .q_heads = 4,
       .kv_heads = 2, .q_len = 12, .kv_len = 90, .head_dim = 32, .layout = kOneCache, .left = 50,
       .right = 0, .page_size = 16},
      {.name = "paged_window_beyond", .policy = kPagedWindow, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 12, .kv_len = 90, .head_dim = 32, .left = 20, .right = 0,
       .page_size = 16, .beyond = true},
      {.name = "paged_window_unaligned", .policy = kPagedWindow, .batch = 5, .q_len = 17,
       .kv_len = 60, .head_dim = 41, .layout = kUnaligned, .left = 12, .right = 0,
       .page_size = 7},
      {.name = "paged_window_reversed", .policy = kPagedWindow, .batch = 4, .q_len = 17,
       .kv_len = 60, .head_dim = 32, .layout = kReversed, .left = 12, .right = 0, .page_size = 7},
      {.name = "paged_window_no_pages", .policy = kPagedWindow, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 9, .kv_len = 33, .head_dim = 32, .layout = kBhsd,
       .lengths = Lengths::kNoKeys},
      {.name = "paged_window_all_empty", .policy = kPagedWindow, .batch = 3, .q_len = 9,
       .kv_len = 33, .head_dim = 32, .lengths = Lengths::kAllEmpty},
      {.name = "paged_window_dim_128", .policy = kPagedWindow, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 33, .kv_len = 140, .head_dim = 128, .left = 60, .right = 0,
       .pointers = true},
      {.name = "paged_window_dim_256", .policy = kPagedWindow, .batch = 3, .q_len = 20,
       .kv_len = 70, .head_dim = 256, .left = 10, .right = 0, .leftpad = true},
      {.name = "paged_packed_everything_page_1", .policy = kPagedPackedEverything, .batch = 6,
       .q_heads = 2, .kv_heads = 1, .q_len = 24, .kv_len = 60, .head_dim = 32, .prefix = 40,
       .page_size = 1},
      {.name = "paged_packed_everything_page_7", .policy = kPagedPackedEverything, .batch = 8,
       .q_heads = 2, .kv_heads = 1, .q_len = 20, .kv_len = 100, .head_dim = 32, .prefix = 70,
       .pointers = true, .page_size = 7, .leftpad = true},
      {.name = "paged_packed_everything_page_16", .policy = kPagedPackedEverything, .batch = 6,
       .q_heads = 4, .kv_heads = 1, .q_len = 1, .kv_len = 90, .head_dim = 32, .prefix = 60,
       .tight = true, .page_size = 16},
      {.name = "paged_packed_everything_page_64", .policy = kPagedPackedEverything, .batch = 5,
       .q_heads = 2, .kv_heads = 2, .q_len = 40, .kv_len = 150, .head_dim = 32,
       .layout = kOneCache, .prefix = 100, .page_size = 64},
      {.name = "paged_packed_everything_page_256", .policy = kPagedPackedEverything, .batch = 3,
       .q_heads = 1, .kv_heads = 1, .q_len = 9, .kv_len = 500, .head_dim = 16, .prefix = 450,
       .lengths = Lengths::kLongest, .page_size = 256},
      {.name = "paged_packed_everything_beyond", .policy = kPagedPackedEverything, .batch = 4,
       .q_heads = 2, .kv_heads = 1, .q_len = 12, .kv_len = 90, .head_dim = 32, .prefix = 80,
       .page_size = 7, .leftpad = true, .beyond = true},
      {.name = "paged_packed_everything_unaligned", .policy = kPagedPackedEverything, .batch = 4,
       .q_len = 24, .kv_len = 60, .head_dim = 41, .layout = kUnaligned, .prefix = 30,
       .page_size = 16},
      {.name = "paged_packed_everything_no_rows", .policy = kPagedPackedEverything, .batch = 3,
       .q_len = 24, .kv_len = 60, .head_dim = 32, .layout = kBhsd, .lengths = Lengths::kNoRows,
       .page_size = 16},
      {.name = "paged_packed_everything_dim_128", .policy = kPagedPackedEverything, .batch = 4,
       .q_heads = 2, .kv_heads = 1, .q_len = 70, .kv_len = 140, .head_dim = 128, .prefix = 90,
       .page_size = 16},
      {.name = "paged_packed_everything_dim_256", .policy = kPagedPackedEverything, .batch = 3,
       .q_len = 20, .kv_len = 70, .head_dim = 256, .prefix = 60, .page_size = 16,
       .leftpad = true},

      // Earlier keys: of rows that saw none then, that see none now, or neither (vLLM PR #28181).
      // They weigh far more than the keys of the call, far less, or as much. What is known of them
      // lies where the result does, or elsewhere with other strides.
      {.name = "earlier_33_40", .policy = kEarlier, .batch = 2, .q_heads = 4, .kv_heads = 2,
       .q_len = 33, .kv_len = 40, .head_dim = 16, .backward = false},
      {.name = "earlier_130_40", .policy = kEarlier, .q_heads = 2, .kv_heads = 2, .q_len = 130,
       .kv_len = 40, .backward = false, .in_place = true},
      {.name = "earlier_1_200", .policy = kEarlier, .batch = 3, .q_heads = 2, .q_len = 1,
       .kv_len = 200, .backward = false, .in_place = true},
      {.name = "earlier_heads_8_1", .policy = kEarlier, .q_heads = 8, .q_len = 9, .kv_len = 65,
       .backward = false, .in_place = true},
      {.name = "earlier_batch_18", .policy = kEarlier, .batch = 18, .q_len = 40, .kv_len = 9,
       .head_dim = 32, .backward = false, .in_place = true},
      {.name = "earlier_1100_9", .policy = kEarlier, .q_len = 1100, .kv_len = 9, .head_dim = 8,
       .backward = false},
      {.name = "earlier_scaled_scores", .policy = kEarlier, .q_len = 33, .kv_len = 40,
       .backward = false, .scale = 0.03f},
      {.name = "earlier_without_lse", .policy = kEarlier, .q_len = 17, .kv_len = 40,
       .backward = false, .lse = false},
      {.name = "earlier_mixed", .policy = kEarlier, .batch = 2, .q_heads = 4, .kv_heads = 2,
       .q_len = 17, .kv_len = 70, .head_dim = 32, .layout = kMixed, .backward = false},
      {.name = "earlier_padded", .policy = kEarlier, .batch = 2, .q_heads = 2, .q_len = 17,
       .kv_len = 70, .head_dim = 40, .layout = kPadded, .backward = false, .in_place = true},
      {.name = "earlier_unaligned", .policy = kEarlier, .batch = 2, .q_heads = 2, .q_len = 17,
       .kv_len = 70, .head_dim = 41, .layout = kUnaligned, .backward = false, .in_place = true},
      {.name = "earlier_reversed", .policy = kEarlier, .batch = 2, .q_heads = 2, .q_len = 17,
       .kv_len = 70, .head_dim = 32, .layout = kReversed, .backward = false},
      {.name = "earlier_dim_64_40", .policy = kEarlier, .q_len = 33, .kv_len = 70, .head_dim = 64,
       .head_dim_v = 40, .backward = false, .in_place = true},
      {.name = "earlier_dim_128", .policy = kEarlier, .q_heads = 2, .kv_heads = 1, .q_len = 40,
       .kv_len = 33, .head_dim = 128, .backward = false, .in_place = true},
      {.name = "earlier_dim_256", .policy = kEarlier, .q_heads = 2, .kv_heads = 1, .q_len = 40,
       .kv_len = 33, .head_dim = 256, .backward = false, .in_place = true},
      {.name = "earlier_kv_len_0", .policy = kEarlier, .batch = 2, .q_heads = 4, .q_len = 9,
       .kv_len = 0, .backward = false, .in_place = true},
      {.name = "earlier_q_len_0", .policy = kEarlier, .q_heads = 3, .q_len = 0, .kv_len = 70,
       .layout = kBhsd, .backward = false},
      {.name = "earlier_everything_40_33", .policy = kEarlierEverything, .batch = 8, .q_heads = 2,
       .q_len = 40, .kv_len = 33, .head_dim = 32, .in_place = true, .first_col = 48},
      {.name = "earlier_everything_heads_6_2", .policy = kEarlierEverything, .batch = 5,
       .q_heads = 6, .kv_heads = 2, .q_len = 20, .kv_len = 90, .in_place = true, .first_col = 16},
      {.name = "earlier_everything_tight", .policy = kEarlierEverything, .batch = 8, .q_heads = 2,
       .q_len = 70, .kv_len = 40, .head_dim = 32, .pointers = true, .tight = true},
      {.name = "earlier_everything_padded", .policy = kEarlierEverything, .batch = 6, .q_heads = 4,
       .kv_heads = 2, .q_len = 33, .kv_len = 70, .head_dim = 40, .layout = kPadded,
       .first_col = 1 << 20},
      {.name = "earlier_everything_unaligned", .policy = kEarlierEverything, .batch = 4,
       .q_len = 24, .kv_len = 60, .head_dim = 41, .layout = kUnaligned, .in_place = true},
      {.name = "earlier_everything_no_rows", .policy = kEarlierEverything, .batch = 3, .q_len = 24,
       .kv_len = 60, .head_dim = 32, .layout = kBhsd, .lengths = Lengths::kNoRows},
      {.name = "earlier_everything_no_keys", .policy = kEarlierEverything, .batch = 4,
       .q_heads = 2, .kv_heads = 1, .q_len = 9, .kv_len = 33, .head_dim = 32, .layout = kBhsd,
       .lengths = Lengths::kNoKeys, .in_place = true},
      {.name = "earlier_everything_dim_128", .policy = kEarlierEverything, .batch = 4,
       .q_heads = 2, .kv_heads = 1, .q_len = 70, .kv_len = 140, .head_dim = 128,
       .in_place = true},
      {.name = "earlier_everything_dim_256", .policy = kEarlierEverything, .batch = 3, .q_len = 20,
       .kv_len = 70, .head_dim = 256, .in_place = true},
      {.name = "earlier_paged_page_16", .policy = kEarlierPaged, .batch = 7, .q_heads = 2,
       .kv_heads = 1, .q_len = 9, .kv_len = 140, .head_dim = 32, .pointers = true,
       .in_place = true},
      {.name = "earlier_paged_one_query", .policy = kEarlierPaged, .batch = 8, .q_heads = 4,
       .kv_heads = 1, .q_len = 1, .kv_len = 400, .head_dim = 32, .in_place = true},
      {.name = "earlier_paged_page_7", .policy = kEarlierPaged, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 12, .kv_len = 90, .head_dim = 32, .page_size = 7, .leftpad = true},
      {.name = "earlier_paged_unaligned", .policy = kEarlierPaged, .batch = 5, .q_len = 17,
       .kv_len = 60, .head_dim = 41, .layout = kUnaligned, .page_size = 7, .in_place = true},
      {.name = "earlier_paged_no_pages", .policy = kEarlierPaged, .batch = 4, .q_heads = 2,
       .kv_heads = 1, .q_len = 9, .kv_len = 33, .head_dim = 32, .layout = kBhsd,
       .lengths = Lengths::kNoKeys, .in_place = true},
      {.name = "earlier_paged_dim_128", .policy = kEarlierPaged, .batch = 5, .q_heads = 2,
       .kv_heads = 1, .q_len = 33, .kv_len = 140, .head_dim = 128, .pointers = true,
       .in_place = true},
      {.name = "earlier_paged_dim_256", .policy = kEarlierPaged, .batch = 3, .q_len = 20,
       .kv_len = 70, .head_dim = 256, .in_place = true},
  });
  // clang-format on
}();

}  // namespace attile_test
