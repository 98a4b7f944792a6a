// SPDX-License-Identifier: MIT
// A cascade: sequences whose text begins alike share the keys of this prefix. A step of generation
// attends to the prefix once, with the queries of all sequences as the rows of one; then each
// sequence goes on from that result to its own suffix (EarlierKeys). The same step by one call,
// which reads the prefix for each sequence, is held against it and timed beside it.
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
constexpr int kPage = 16, kPrefix = 8192, kSuffix = 256;
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

/// A step of generation both ways. Each result has its memory; all calls of `decode` are in one
/// stream, and so share scratch memory.
class Step {
 public:
  Step()
      : q_(example::normal<T>(kRows * kDim, 1)),
        k_(example::normal<T>(kKeys * kDim, 2)),
        v_(example::normal<T>(kKeys * kDim, 3)),
        table_(page_table()),
        prefix_length_(std::vector<int>{kPrefix}),
        suffix_lengths_(lengths(0)),
        lengths_(lengths(kPrefix)),
        bytes_(std::max({scratch_bytes(prefix()), scratch_bytes(suffix()), scratch_bytes(all())})),
        scratch_(bytes_) {
    example::must(attile::reset_workspace(scratch_, bytes_), "reset_workspace");
  }

  void in_one_call() const { decode(all()); }
  void as_cascade() const {
    decode(prefix());
    decode(suffix());
  }

  /// Compares both results. In each of them P was rounded to T, and then O: four roundings of at
  /// most 2^-11 of the largest element.
  bool compare() const {
    double largest = 0;
    for (const float x : o_prefix_.download()) largest = std::max<double>(largest, std::abs(x));
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
        .splits = attile::Splits::fill(),
    };
  }
  /// All keys of every sequence.
  Args all() const {
    Args args = common<Args>();
    args.o = attile::bshd(o_whole_.get(), {.rows = 1, .heads = kHeads, .dim = kDim});
    return args;
  }
  /// One sequence, whose rows are the queries of all: (1, q_heads, batch, dim). Its pages are the
  /// first ones of any line.
  PrefixArgs prefix() const {
    PrefixArgs args = common<PrefixArgs>();
    args.q = attile::bshd<const T>(q_.get(), {.rows = kBatch, .heads = kHeads, .dim = kDim});
    args.o = attile::bshd(o_prefix_.get(), {.rows = kBatch, .heads = kHeads, .dim = kDim});
    args.lse = lse_prefix_;
    args.batch = 1, args.q_len = kBatch, args.kv_len = kPrefix;
    args.sequences.seqused_k = prefix_length_;
    return args;
  }
  /// The pages behind the prefix, whose results are those of earlier keys.
  SuffixArgs suffix() const {
    SuffixArgs args = common<SuffixArgs>();
    args.sink.o =
        attile::bshd<const float>(o_prefix_.get(), {.rows = 1, .heads = kHeads, .dim = kDim});
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
  example::DeviceArray<float> o_prefix_{kRows * kDim}, lse_prefix_{kRows};
  example::DeviceArray<T> o_{kRows * kDim}, o_whole_{kRows * kDim};
  example::DeviceArray<int> table_, prefix_length_, suffix_lengths_, lengths_;
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
