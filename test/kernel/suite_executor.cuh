// SPDX-License-Identifier: MIT
#pragma once

#include <attile/attile.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "support/cases.h"
#include "support/catch.h"
#include "support/gpu_executor.h"
#include "support/suite_cases.h"

namespace attile_test {

/// Head dimensions a kernel is built for, and the cases it is given: the larger of theirs is above
/// kAbove.
template <int kD, int kDv = kD, int kAbove = 0>
struct Dims {
  static constexpr int D = kD;
  static constexpr int Dv = kDv;
  static constexpr int kTf32Products = 0;  ///< for each one of fp32, where that is so

  static bool take(const Case& c) {
    const int v = c.head_dim_v > 0 ? c.head_dim_v : c.head_dim;
    return c.head_dim <= D && v <= Dv && std::max(c.head_dim, v) > kAbove;
  }
};

/// The same for fp32 in TF32 products, without head_dim 1: a score is one product then, and held to
/// less, as docs/numerics.md says.
template <int kD, int kDv = kD, int kAbove = 0>
struct SplitDims : Dims<kD, kDv, kAbove> {
  static constexpr int kTf32Products = 3;

  static bool take(const Case& c) { return c.head_dim > 1 && Dims<kD, kDv, kAbove>::take(c); }
};

/// For fp32 in one product of TF32: scores that are no larger than a softmax makes use of. Others
/// are off by more than 1 there, and P by any factor.
template <int kD, int kDv = kD, int kAbove = 0>
struct ModerateDims : Dims<kD, kDv, kAbove> {
  static constexpr int kTf32Products = 1;

  static bool take(const Case& c) {
    return c.data != Data::kNegative && c.data != Data::kVeryNegative && c.data != Data::kLarge &&
           c.data != Data::kOverflow && Dims<kD, kDv, kAbove>::take(c);
  }
};

/// The portable family's default tiles for that many KB of shared memory.
template <int kSharedKb = attile::kCommonSharedKb>
struct PortableTiles {
  template <class Args, class Dim>
  using Forward = attile::portable::DefaultForwardTraits<Args, Dim::D, Dim::Dv, kSharedKb>;
  template <class Args, class Dim, attile::DqMode kMode>
  using Backward = attile::portable::DefaultBackwardTraits<Args, Dim::D, Dim::Dv, kMode, kSharedKb>;
};

/// The sm80 family's default tiles for that many KB of shared memory.
template <int kSharedKb>
struct Sm80Tiles {
  template <class Args, class Dim>
  using Forward = attile::sm80::DefaultForwardTraits<Args, Dim::D, Dim::Dv, kSharedKb>;
  template <class Args, class Dim, attile::DqMode kMode>
  using Backward = attile::sm80::DefaultBackwardTraits<Args, Dim::D, Dim::Dv, kMode, kSharedKb>;
};

/// The caller's tiles; the tunings name the families.
template <int Br, int Bc, class Tuning = attile::portable::Tuning<>, class BackwardTuning = Tuning>
struct Tiles {
  template <class Args, class Dim>
  using Forward =
      attile::ForwardTraits<Br, Bc, Dim::D, typename Args::Elements, typename Args::Policies,
                            attile::NoScoreMod, attile::NoDropout, Dim::Dv, Tuning>;
  template <class Args, class Dim, attile::DqMode kMode>
  using Backward =
      attile::BackwardTraits<Br, Bc, Dim::D, typename Args::Elements, typename Args::Policies,
                             attile::NoScoreMod, attile::NoDropout, Dim::Dv, kMode, BackwardTuning>;
};

/// The caller's tiles in the family sm90; where its copies cannot address the inputs, those of
/// sm80, as in the one call.
template <int Br, int Bc, class Tuning, class BackwardTuning = attile::sm90::BackwardTuning<>>
struct Sm90Tiles {
  template <class Args, class Dim, attile::DqMode kMode>
  using Backward =
      attile::sm90::BackwardTraits<Br, Bc, Dim::D, typename Args::Elements, typename Args::Policies,
                                   Dim::Dv, kMode, BackwardTuning>;
  template <class Args, class Dim, attile::DqMode kMode>
  using BackwardFallback = attile::sm80::DefaultBackwardTraits<Args, Dim::D, Dim::Dv, kMode>;
  template <class Args, class Dim>
  using Forward = attile::sm90::ForwardTraits<Br, Bc, Dim::D, typename Args::Elements,
                                              typename Args::Policies, Dim::Dv, Tuning>;
  template <class Args, class Dim>
  using Fallback = attile::sm80::DefaultForwardTraits<Args, Dim::D, Dim::Dv>;
};

/// The default tiles of the family sm90, likewise.
template <attile::sm90::TileSet kTileSet = attile::sm90::TileSet::kAny>
struct Sm90DefaultTiles {
  template <class Args, class Dim, attile::DqMode kMode>
  using Backward = attile::sm90::DefaultBackwardTraits<Args, Dim::D, Dim::Dv, kMode, kTileSet>;
  template <class Args, class Dim, attile::DqMode kMode>
  using BackwardFallback = attile::sm80::DefaultBackwardTraits<Args, Dim::D, Dim::Dv, kMode>;
  template <class Args, class Dim>
  using Forward = attile::sm90::DefaultForwardTraits<Args, Dim::D, Dim::Dv, kTileSet>;
  template <class Args, class Dim>
  using Fallback = attile::sm80::DefaultForwardTraits<Args, Dim::D, Dim::Dv>;
};

/// Whether TMA copies O, which that in fp32 is not.
template <class Args>
inline constexpr bool kOutputIsCopied = sizeof(typename Args::Elements::O) == 2;

/// Whether the family sm90 runs the problem where there is one, with tiles of bc keys, by the rules
/// of docs/kernels.md and docs/sequences.md and not by its code: or the suite would pass without
/// it.
template <class Args>
bool sm90_addresses(const Args& a, int bc) {
  // Sequences of their own lengths may share what is read, if no other tensor's batches count with
  // it.
  const auto is_repeated = [](const auto& t) {
    return Args::kIsForward && !Args::SequencesType::kUniform && t.batch_stride == 0;
  };
  const auto addresses = [&](const auto& t, attile::RowShape shape, int heads) {
    const auto steps = [&](std::int64_t stride, int count) {
      return count == 1 || (stride > 0 && stride * int{sizeof *t.data} % 16 == 0);
    };
    return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 &&
           (is_repeated(t) || steps(t.batch_stride, shape.batches)) &&
           steps(t.head_stride, heads) && steps(t.row_stride, shape.rows);
  };
  // What copies write has rows of whole units of 16 bytes.
  const auto whole = [](const auto& t, int dim) { return dim * int{sizeof *t.data} % 16 == 0; };
  const int dim_v = a.head_dim_v > 0 ? a.head_dim_v : a.head_dim;
  const attile::RowShape queries = a.sequences.q_shape(a.batch, a.q_len);
  const attile::RowShape keys = a.sequences.kv_shape(a.batch, a.kv_len);
  const bool no_keys = a.batch == 0 || keys.rows == 0;
  const bool no_rows = a.batch == 0 || queries.rows == 0;
  const auto of_rows = [&](const auto& t) { return no_rows || addresses(t, queries, a.q_heads); };
  const auto of_keys = [&](const auto& t) { return no_keys || addresses(t, keys, a.kv_heads); };
  if (!no_rows && !no_keys && a.v_col_stride != 1) {
    // V by columns is the matrix of which a row is a column, and whose sequences have one length.
    const attile::Tensor columns{a.v.data, a.v.batch_stride, a.v.head_stride, a.v_col_stride};
    const bool is_boxed =
        Args::SequencesType::kUniform && addresses(columns, {keys.batches, dim_v}, a.kv_heads);
    if (!is_boxed) return false;
  }
  if constexpr (!Args::SequencesType::kUniform) {
    // Batches, or pages, are whole rows or whole heads apart, in all of these tensors alike.
    const auto apart = [](attile::RowShape shape, int heads, const auto& first,
                          const auto& second) {
      const auto by = [&](std::int64_t stride, std::int64_t other) {
        return stride > 0 && other > 0 && first.batch_stride % stride == 0 &&
               second.batch_stride % other == 0 &&
               first.batch_stride / stride == second.batch_stride / other;
      };
      return shape.batches <= 1 || shape.rows == 1 || heads == 1 ||
             by(first.row_stride, second.row_stride) || by(first.head_stride, second.head_stride);
    };
    if (!no_rows && !no_keys && !apart(keys, a.kv_heads, a.k, a.v)) return false;
    if (!no_rows && kOutputIsCopied<Args> && !apart(queries, a.q_heads, a.q, a.o)) return false;
  }
  if constexpr (attile::kIsPaged<typename Args::SequencesType>) {
    // A box of rows lies in one page.
    const bool boxes = std::gcd(keys.rows, bc) % 8 == 0 && a.sequences.leftpad_k == nullptr;
    if (!no_rows && !no_keys && !boxes) return false;
  }
  if constexpr (!Args::kIsForward) {
    return no_keys ||
           (of_rows(a.q) && of_rows(a.dout) && of_keys(a.k) && of_keys(a.v) && of_keys(a.dk) &&
            of_keys(a.dv) && whole(a.dk, a.head_dim) && whole(a.dv, dim_v));
  } else {
    const bool stored = !kOutputIsCopied<Args> || (of_rows(a.o) && whole(a.o, dim_v));
    const bool values = a.v_col_stride != 1 || of_keys(a.v);
    return no_rows || (of_rows(a.q) && of_keys(a.k) && values && stored);
  }
}

/// Whether TMA addresses the elements of a score modifier, likewise.
template <class T>
bool sm90_addresses_elements(const attile::ElementTensor<T>& x) {
  const auto steps = [](std::int64_t stride) {
    return stride >= 0 && stride * int{sizeof(T)} % 16 == 0;
  };
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.col_stride == 1 &&
         steps(x.batch_stride) && steps(x.head_stride) && steps(x.row_stride) && x.row_stride > 0;
}

/// Whether a score modifier reads, and backward also sums, by diagonals.
template <class Traits, class S>
bool reads_by_diagonals(const S& mod) {
  if constexpr (Traits::kDirection == attile::Direction::kBackward &&
                attile::kGradientTerms<S> == 1) {
    if (mod.gradient_per() != attile::GradientPer::kDiagonal) return false;
  }
  return mod.reads_diagonals();
}

/// Whether the traits' own kernel runs the problem, or what stands in for it.
template <class Traits, class Kernel>
bool runs_on_sm90(Kernel kernel, const typename Traits::Args& args) {
  const bool own = attile::sm90::runs<Traits>(args);
  if (attile::arch::device_architecture() == 900 && !attile::arch::is_empty(kernel)) {
    bool wanted = sm90_addresses(args, Traits::kBc);
    if constexpr (requires {
                    requires Traits::kElementStages >
                    0;
                  }) {
      const attile::Extent longest = attile::longest_lengths(args);
      const bool no_keys = args.batch == 0 || longest.q_len == 0 || longest.kv_len == 0;
      wanted = wanted && (no_keys || sm90_addresses_elements(args.score_mod.elements()));
    }
    if constexpr (requires { Traits::kWords; }) {
      using attile::sm90::ModifierWords;
      const bool no_rows = args.batch == 0 || args.q_len == 0;
      if constexpr (Traits::kWords == ModifierWords::kColumns) {
        wanted = wanted && (no_rows || args.score_mod.reads_columns());
      }
      if constexpr (Traits::kWords == ModifierWords::kDiagonals) {
        wanted = wanted && (no_rows || reads_by_diagonals<Traits>(args.score_mod));
      }
    }
    REQUIRE(own == wanted);
  }
  return own;
}

/// Whether the family sm80 reads the data of a score modifier as the traits say, by the rules of
/// docs/kernels.md and not by its code, or what stands in for the kernel runs the problem.
template <class Traits>
bool reads_on_sm80(const typename Traits::Args& args) {
  using attile::sm80::ModifierReads;
  const bool own = bool(Traits::check_reads(args.score_mod));
  if constexpr (Traits::kReads == ModifierReads::kColumns) {
    REQUIRE(own == args.score_mod.reads_columns());
  }
  if constexpr (Traits::kReads == ModifierReads::kElements) {
    const auto x = args.score_mod.elements();
    const auto whole = [](std::int64_t stride) { return stride * int{sizeof *x.data} % 16 == 0; };
    const bool wanted = reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.col_stride == 1 &&
                        whole(x.batch_stride) && whole(x.head_stride) && whole(x.row_stride) &&
                        x.row_stride != 0;
    REQUIRE(own == wanted);
  }
  return own;
}

/// Whether the traits' own kernel runs the problem, or what stands in for it.
template <class Traits, class Kernel>
bool runs_itself(Kernel kernel, const typename Traits::Args& args) {
  if constexpr (requires { Traits::kReads; }) {
    return reads_on_sm80<Traits>(args);
  } else {
    return runs_on_sm90<Traits>(kernel, args);
  }
}

/// Whether V in fp8 may be transposed ahead of a kernel.
template <class Traits>
constexpr bool transposes_ahead() {
  if constexpr (requires { Traits::kTransposesAhead; }) {
    return Traits::kTransposesAhead;
  } else {
    return false;
  }
}

/// The forward pass, of every second batch size with scratch memory where sequences have lengths of
/// their own, or V may be transposed ahead: kernels then share the work in another way, or load
/// another V.
template <class Traits>
cudaError_t forward_either_way(const typename Traits::Args& args) {
  if constexpr (!Traits::SequencesType::kUniform || transposes_ahead<Traits>()) {
    if (args.batch % 2 == 0) {
      return with_workspace([&](void* workspace, std::size_t& bytes) {
        return attile::forward<Traits>(workspace, bytes, args);
      });
    }
  }
  return attile::forward<Traits>(args);
}

/// The kernels of one choice of tiles, head dimensions and way to dQ, for the suite.
template <class Dim, class TileChoice = PortableTiles<>,
          attile::DqMode kMode = attile::DqMode::kAccumulate>
struct GpuExecutor {
  static constexpr bool kRepeatsBackward = kMode != attile::DqMode::kAccumulate;
  static constexpr int kTf32Products = Dim::kTf32Products;

  bool takes(const Case& c) const {
    return Dim::take(c) && (kMode == attile::DqMode::kAccumulate || !has_sums(c));
  }

  template <class Args>
  attile::Check forward(const Args& host_args, const std::vector<Region>& regions) const {
    using Traits = typename TileChoice::template Forward<Args, Dim>;
    if constexpr (requires { typename TileChoice::template Fallback<Args, Dim>; }) {
      using Fallback = typename TileChoice::template Fallback<Args, Dim>;
      if (const auto check = attile::check<Fallback>(host_args); !check) return check;
      return run_on_device(host_args, regions, [](const Args& args) {
        return runs_itself<Traits>(attile::forward_kernel<Traits>, args)
                   ? forward_either_way<Traits>(args)
                   : attile::forward<Fallback>(args);
      });
    } else {
      if (const attile::Check check = attile::check<Traits>(host_args); !check) return check;
      return run_on_device(host_args, regions,
                           [](const Args& args) { return attile::forward<Traits>(args); });
    }
  }

  template <class Args>
  attile::Check backward(const Args& host_args, const std::vector<Region>& regions) const {
    using Traits = typename TileChoice::template Backward<Args, Dim, kMode>;
    const auto run = []<class Kernel>(std::type_identity<Kernel>, const Args& args) {
      return with_workspace([&](void* workspace, std::size_t& bytes) {
        return attile::backward<Kernel>(workspace, bytes, args);
      });
    };
    if constexpr (requires { typename TileChoice::template BackwardFallback<Args, Dim, kMode>; }) {
      using Fallback = typename TileChoice::template BackwardFallback<Args, Dim, kMode>;
      if (const auto check = attile::check<Fallback>(host_args); !check) return check;
      return run_on_device(host_args, regions, [&](const Args& args) {
        return runs_itself<Traits>(attile::detail::kv_kernel<Traits>(), args)
                   ? run(std::type_identity<Traits>{}, args)
                   : run(std::type_identity<Fallback>{}, args);
      });
    } else {
      if (const attile::Check check = attile::check<Traits>(host_args); !check) return check;
      return run_on_device(host_args, regions, [&](const Args& args) {
        return run(std::type_identity<Traits>{}, args);
      });
    }
  }
};

/// The kernels of an executor for T and a policy.
template <class Executor, attile::Element T, Policy kPolicy>
struct KernelsOf;
template <class Dim, class TileChoice, attile::DqMode kMode, attile::Element T, Policy kPolicy>
  requires(is_forward_only(kPolicy))
struct KernelsOf<GpuExecutor<Dim, TileChoice, kMode>, T, kPolicy> {
  using Forward = typename TileChoice::template Forward<ForwardArgsOf<T, kPolicy>, Dim>;
};
template <class Dim, class TileChoice, attile::DqMode kMode, attile::Element T, Policy kPolicy>
  requires(!is_forward_only(kPolicy))
struct KernelsOf<GpuExecutor<Dim, TileChoice, kMode>, T, kPolicy> {
  using Forward = typename TileChoice::template Forward<ForwardArgsOf<T, kPolicy>, Dim>;
  using Backward = typename TileChoice::template Backward<BackwardArgsOf<T, kPolicy>, Dim, kMode>;
};

/// The one calls, with whatever kernel they choose.
template <class Dim>
struct OneCall {
  static constexpr bool kRepeatsBackward = false;
  static constexpr int kTf32Products = Dim::kTf32Products;

  bool takes(const Case& c) const { return Dim::take(c); }

  template <class Args>
  attile::Check forward(const Args& host_args, const std::vector<Region>& regions) const {
    if (const attile::Check check = attile::check<Dim::D, Dim::Dv>(host_args); !check) return check;
    return run_on_device(host_args, regions,
                         [](const Args& args) { return attile::forward<Dim::D, Dim::Dv>(args); });
  }

  template <class Args>
  attile::Check backward(const Args& host_args, const std::vector<Region>& regions) const {
    if (const attile::Check check = attile::check<Dim::D, Dim::Dv>(host_args); !check) return check;
    return run_on_device(host_args, regions, [](const Args& args) {
      return with_workspace([&](void* workspace, std::size_t& bytes) {
        return attile::backward<Dim::D, Dim::Dv>(workspace, bytes, args);
      });
    });
  }
};

}  // namespace attile_test
