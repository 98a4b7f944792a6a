// SPDX-License-Identifier: MIT
// A cascade: sequences whose text begins alike share the keys of this prefix. A step of generation
// attends to the prefix once, with the queries of all sequences as the rows of one; then each
// sequence goes on from that result to its own suffix (EarlierKeys). The rows of all sequences are
// so many that products take more time than reading K and V: `forward` is the call for the prefix,
// and not `decode`. It gives all keys of a row to one block, so the prefix is cut into parts, which
// are sequences with the same queries, and `merge` makes one result of theirs. The same step by one
// call of `decode`, which reads the prefix for each sequence, is held against it and timed beside
// it.
#include <attile/attile.cuh>

#include <algorithm>

#include "support.cuh"

namespace {

using T = __half;
/// A sequence has one query, which sees all of its keys: nothing has to be masked.
using Args = attile::ForwardArgs<T, attile::Paged>;
/// O of the prefix stays in fp32, and is rounded once, with that of the suffix.
using PrefixArgs = attile::ForwardArgs<attile::Elements<T, T, T, float>, attile::Paged>;
using SuffixArgs = attile::ForwardArgs<T, attile::Paged, attile::EarlierKeys<>>;

constexpr int kBatch = 64, kHeads = 32, kKvHeads = 4, kDim = 128;
constexpr int kPage = 16, kPrefix = 16384, kSuffix = 512;
/// As many parts of the prefix as give each multiprocessor a tile of rows: here a head's queries
/// are one tile, and 32 heads in 4 parts make 128 of them.
constexpr int kParts = 4;
constexpr int kPrefixPages = kPrefix / kPage, kSuffixPages = kSuffix / kPage;
constexpr int kLine = kPrefixPages + kSuffixPages;  // pages of a sequence
constexpr int kPages = kPrefixPages + kBatch * kSuffixPages;

/// The lines of the page table: the first pages of all are the same.
std::vector<int> page_table() {
  std::vector<int> table;
  for (int b = 0; b < kBatch; ++b) {
    for (int i = 0; i < kPrefixPages; ++i) table.push_back(i);
    for (int i = 0; i < kSuffixPages; ++i) table.push_back(kPrefixPages + b * kSuffixPages + i);
  }
  return table;
}

/// The keys of each sequence, from 1 of its own to kSuffix, behind as many others.
std::vector<int> lengths(int others) {
  std::vector<int> keys;
  for (int b = 0; b < kBatch; ++b) keys.push_back(others + 1 + b * 37 % kSuffix);
  return keys;
}

/// A step of generation both ways. Each result has its memory; both calls of `decode` are in one
/// stream, and so share scratch memory.
class Step {
 public:
  Step()
      : q_(example::normal<T>(kRows * kDim, 1)),
        k_(example::normal<T>(kKeys * kDim, 2)),
        v_(example::normal<T>(kKeys * kDim, 3)),
        table_(page_table()),
        part_lengths_(std::vector<int>(kParts, kPrefix / kParts)),
        suffix_lengths_(lengths(0)),
        lengths_(lengths(kPrefix)),
        bytes_(std::max(scratch_bytes(suffix()), scratch_bytes(all()))),
        scratch_(bytes_) {
    example::must(attile::reset_workspace(scratch_, bytes_), "reset_workspace");
  }

  void in_one_call() const { decode(all()); }
  void as_cascade() const {
    example::must(attile::forward<kDim>(parts()), "forward");
    example::must(attile::merge(prefix()), "merge");
    decode(suffix());
  }

  /// Compares both results. In each of them P was rounded to T, and then O: four roundings of at
  /// most 2^-11 of the largest element.
  bool compare() const {
    double largest = 0;
    for (const float x : o_parts_.download()) largest = std::max<double>(largest, std::abs(x));
    for (const float x : floats(o_whole_)) largest = std::max<double>(largest, std::abs(x));
    return example::report("O", example::max_difference(floats(o_), floats(o_whole_)),
                           4 * 0x1p-11 * largest);
  }

 private:
  static constexpr int kRows = kBatch * kHeads, kKeys = kPages * kPage * kKvHeads;

  /// What all calls have in common. A sequence has one query.
  template <class AnyArgs>
  AnyArgs common() const {
    return {
        .q = attile::bshd<const T>(q_.get(), {.rows = 1, .heads = kHeads, .dim = kDim}),
        .k = attile::bshd<const T>(k_.get(), {.rows = kPage, .heads = kKvHeads, .dim = kDim}),
        .v = attile::bshd<const T>(v_.get(), {.rows = kPage, .heads = kKvHeads, .dim = kDim}),
        .batch = kBatch,
        .q_heads = kHeads,
        .kv_heads = kKvHeads,
        .q_len = 1,
        .kv_len = kPrefix + kSuffix,
        .sequences = {.page_table = table_,
                      .pages_per_sequence = kLine,
                      .page_size = kPage,
                      .pages = kPages,
                      .seqused_k = lengths_},
    };
  }
  /// All keys of every sequence.
  Args all() const {
    Args args = common<Args>();
    args.splits = attile::Splits::fill();
    args.o = attile::bshd(o_whole_.get(), {.rows = 1, .heads = kHeads, .dim = kDim});
    return args;
  }
  /// A sequence for each part of the prefix, whose rows are the queries of all: (parts, q_heads,
  /// batch, dim). The prefix's pages are the first ones of any line.
  PrefixArgs parts() const {
    PrefixArgs args = common<PrefixArgs>();
    args.q = attile::bshd<const T>(q_.get(), {.rows = kBatch, .heads = kHeads, .dim = kDim});
    args.q.batch_stride = 0;
    args.o = attile::bshd(o_parts_.get(), {.rows = kBatch, .heads = kHeads, .dim = kDim});
    args.lse = lse_parts_;
    args.batch = kParts, args.q_len = kBatch, args.kv_len = kPrefix / kParts;
    args.sequences.pages_per_sequence = kPrefixPages / kParts;
    args.sequences.seqused_k = part_lengths_;
    return args;
  }
  /// The result over the whole prefix, in the place of that over its first part.
  attile::MergeArgs<float> prefix() const {
    return {
        .parts = {{.o = attile::bshd<const float>(o_parts_.get(),
                                                  {.rows = kBatch, .heads = kHeads, .dim = kDim}),
                   .lse = attile::bhs<const float>(lse_parts_.get(),
                                                   {.rows = kBatch, .heads = kHeads}),
                   .count = kParts,
                   .o_stride = kRows * kDim,
                   .lse_stride = kRows}},
        .part_tensors = 1,
        .o = attile::bshd(o_parts_.get(), {.rows = kBatch, .heads = kHeads, .dim = kDim}),
        .lse = lse_prefix_,
        .batch = 1,
        .q_heads = kHeads,
        .q_len = kBatch,
        .head_dim_v = kDim,
    };
  }
  /// The pages behind the prefix, whose results are those of earlier keys.
  SuffixArgs suffix() const {
    SuffixArgs args = common<SuffixArgs>();
    args.splits = attile::Splits::fill();
    args.sink.o =
        attile::bshd<const float>(o_parts_.get(), {.rows = 1, .heads = kHeads, .dim = kDim});
    // (q_heads, batch): a row of the one sequence is a sequence here.
    args.sink.lse = {lse_prefix_.get(), /*batch_stride=*/1, /*head_stride=*/kBatch,
                     /*row_stride=*/0};
    args.o = attile::bshd(o_.get(), {.rows = 1, .heads = kHeads, .dim = kDim});
    args.kv_len = kSuffix;
    args.sequences.page_table = table_ + kPrefixPages;
    args.sequences.table_stride = kLine;
    args.sequences.pages_per_sequence = kSuffixPages;
    args.sequences.seqused_k = suffix_lengths_;
    return args;
  }

  template <class AnyArgs>
  static std::size_t scratch_bytes(const AnyArgs& args) {
    const attile::WorkspaceSize size = attile::decode_workspace_size<kDim>(args);
    if (!size.check) {
      std::fprintf(stderr, "decode: %s\n", size.check.why);
      std::exit(1);
    }
    return size.bytes;
  }
  template <class AnyArgs>
  void decode(const AnyArgs& args) const {
    example::must(attile::decode<kDim>(scratch_.get(), bytes_, args), "decode");
  }
  static std::vector<float> floats(const example::DeviceArray<T>& x) {
    std::vector<float> values;
    for (const T value : x.download()) values.push_back(attile::to_float(value));
    return values;
  }

  example::DeviceArray<T> q_, k_, v_;
  example::DeviceArray<float> o_parts_{kParts * kRows * kDim}, lse_parts_{kParts * kRows};
  example::DeviceArray<float> lse_prefix_{kRows};
  example::DeviceArray<T> o_{kRows * kDim}, o_whole_{kRows * kDim};
  example::DeviceArray<int> table_, part_lengths_, suffix_lengths_, lengths_;
  std::size_t bytes_;
  example::DeviceArray<unsigned char> scratch_;
};

/// Prints the time of a step, in microseconds: the mean of some in a row, after one that is not
/// counted.
template <class Run>
void print_time(const char* what, const Run& run) {
  constexpr int kRuns = 50;
  cudaEvent_t begin, end;
  float milliseconds = 0;
  example::must(cudaEventCreate(&begin), "cudaEventCreate");
  example::must(cudaEventCreate(&end), "cudaEventCreate");
  run();
  example::must(cudaEventRecord(begin), "cudaEventRecord");
  for (int i = 0; i < kRuns; ++i) run();
  example::must(cudaEventRecord(end), "cudaEventRecord");
  example::must(cudaEventSynchronize(end), "a step");
  example::must(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  example::must(cudaEventDestroy(begin), "cudaEventDestroy");
  example::must(cudaEventDestroy(end), "cudaEventDestroy");
  std::printf("%-24s %8.1f us\n", what, 1e3 * milliseconds / kRuns);
}

}  // namespace

int main() {
  example::need_gpu();
  const Step step;
  std::printf("%d sequences: %d keys that they share, 1 to %d of their own\n", kBatch, kPrefix,
              kSuffix);
  print_time("one call for all keys", [&] { step.in_one_call(); });
  print_time("cascade", [&] { step.as_cascade(); });
  return step.compare() ? 0 : 1;
}
