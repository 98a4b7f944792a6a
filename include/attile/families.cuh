// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/architectures.cuh>
#include <attile/arch/device.cuh>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/decode_tuning.cuh>
#include <attile/kernel/backward/backward_kernel.cuh>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/portable/backward.cuh>
#include <attile/kernel/portable/forward.cuh>
#include <attile/kernel/sm80/backward.cuh>
#include <attile/kernel/sm80/decode.cuh>
#include <attile/kernel/sm80/forward.cuh>
#include <attile/kernel/sm90/backward.cuh>
#include <attile/kernel/sm90/forward.cuh>
#include <attile/tuning.cuh>

#include <type_traits>

// The families of kernels, and what each of them takes: the one calls run the first family that
// takes the arguments. A family has
//   kForward<Args, D, Dv>, kBackward<Args, D, Dv, kMode>   whether this file has its kernels;
//   kTakesAll   whether it runs all that it has kernels for wherever this file's code runs, so that
//               kernels of the families after it are not compiled;
//   takes_forward<D, Dv>(args), takes_backward<D, Dv, kMode>(args)   whether the current device
//               runs them for arguments that passed `check_arguments`;
//   forward<D, Dv>(args, f), backward<D, Dv, kMode>(args, f)   calls f(std::type_identity<Traits>)
//               with the fastest of its kernels, and returns what f does.

namespace attile::detail {

/// Runs wgmma, TMA and warp-specialised kernels: 16-bit types, and fp8, on compute capability 9.0,
/// where TMA can address the tensors (docs/sequences.md says which pages).
struct Sm90Family {
  static constexpr bool kTakesAll = false;  // only tensors that TMA can address
  /// V in fp8 has steps of 32 keys, which blocks of a mask may be too small for.
  template <class Args>
  static constexpr bool kTakesTypes = sizeof(typename Args::ElementType) == 2 &&
                                      (Args::Elements::kInputsEqual ||
                                       Args::Elements::kFp8Queries) &&
                                      (!Args::Elements::kAllFp8 ||
                                       fitting_columns<typename Args::MaskType>(32) == 32);
  template <class Args>
  static constexpr bool kCompiled = kTakesTypes<Args>&& arch::compiled_for([](int a) {
    return a == 900;
  });
  template <class Args, int D, int Dv>
  static constexpr bool kForward = kCompiled<Args>;
  template <class Args, int D, int Dv, DqMode kMode>
  static constexpr bool kBackward = kMode != DqMode::kTwoPass&& kCompiled<Args>;

  template <int D, int Dv, class Args>
  static bool takes_forward(const Args& args) {
    return sm90::runs<sm90::DefaultForwardTraits<Args, D, Dv>>(args);
  }
  template <int D, int Dv, DqMode kMode, class Args>
  static bool takes_backward(const Args& args) {
    return sm90::runs<sm90::DefaultBackwardTraits<Args, D, Dv, kMode>>(args);
  }

  template <int D, int Dv, class Args, class F>
  static auto forward(const Args& args, const F& f) {
    constexpr bool kHasLists = BlockListMask<typename Args::MaskType>;
    // Query heads share tiles where all sequences have one length. Dropout's groups of eight
    // scores, and block lists, are those of one head.
    if constexpr (Args::SequencesType::kUniform && !Args::DropoutType::kEnabled && !kHasLists) {
      using PackedHeads = sm90::DefaultForwardTraits<Args, D, Dv, TileSet::kPackedHeads>;
      const bool pays = forward_of<D, Dv, TileSet::kAny, TileSet::kLong>(args, [&](auto kernel) {
        return sm90::packing_pays<typename decltype(kernel)::type, PackedHeads>(args);
      });
      if (pays) return f(std::type_identity<PackedHeads>{});
    }
    using S = typename Args::ScoreModType;
    if constexpr (!kHasLists && !Args::Elements::kFp8Queries &&
                  !kIsPaged<typename Args::SequencesType>) {
      if constexpr (kHasColumnTiles<S, StandardMath>) {
        if (args.score_mod.reads_columns()) {
          return forward_of<D, Dv, TileSet::kColumns, TileSet::kLongColumns>(args, f);
        }
      }
      if constexpr (kHasDiagonalTiles<S, StandardMath>) {
        if (args.score_mod.reads_diagonals()) {
          return forward_of<D, Dv, TileSet::kDiagonals, TileSet::kLongDiagonals>(args, f);
        }
      }
    }
    if constexpr (kHasElementTiles<Args>) {
      using Elements = sm90::DefaultForwardTraits<Args, D, Dv, TileSet::kElements>;
      if (sm90::runs<Elements>(args)) {
        return forward_of<D, Dv, TileSet::kElements, TileSet::kLongElements>(args, f);
      }
    }
    return forward_of<D, Dv, TileSet::kAny, TileSet::kLong>(args, f);
  }
  template <int D, int Dv, DqMode kMode, class Args, class F>
  static auto backward(const Args& args, const F& f) {
    using Traits = sm90::DefaultBackwardTraits<Args, D, Dv, kMode>;
    if constexpr (kHasBackwardColumns<Args, D, Dv>) {
      using Columns = sm90::DefaultBackwardTraits<Args, D, Dv, kMode, TileSet::kColumns>;
      if (sm90::runs<Columns>(args)) return f(std::type_identity<Columns>{});
    }
    if constexpr (kHasBackwardDiagonals<Args>) {
      using Diagonals = sm90::DefaultBackwardTraits<Args, D, Dv, kMode, TileSet::kDiagonals>;
      if (sm90::runs<Diagonals>(args)) return f(std::type_identity<Diagonals>{});
    }
    if constexpr (kHasBackwardElementTiles<Args>) {
      using Elements = sm90::DefaultBackwardTraits<Args, D, Dv, kMode, TileSet::kElements>;
      if (sm90::runs<Elements>(args)) return f(std::type_identity<Elements>{});
    }
    return f(std::type_identity<Traits>{});
  }

 private:
  /// Calls f for the tiles of `kLongSet` where rows are long, else for those of `kSet`. Only a
  /// sequence's own length may choose its kernel: where q_len is a bound, it does not.
  template <int D, int Dv, TileSet kSet, TileSet kLongSet, class Args, class F>
  static auto forward_of(const Args& args, const F& f) {
    using Short = sm90::DefaultForwardTraits<Args, D, Dv, kSet>;
    using Mask = typename Args::MaskType;
    constexpr bool kTeams = sm90::kHasTeams<Short>;
    if constexpr (Args::SequencesType::kUniform &&
                  (std::is_same_v<Mask, Causal> || (std::is_same_v<Mask, NoMask> && kTeams))) {
      using Long = sm90::DefaultForwardTraits<Args, D, Dv, kLongSet>;
      if (sm90::has_long_rows(args, max(D, Dv), kTeams)) return f(std::type_identity<Long>{});
    }
    return f(std::type_identity<Short>{});
  }
};

/// Runs kernels of mma.sync and cp.async: all types on compute capability 8.0 and later, with the
/// largest tiles that the device takes of those for the architectures that this file is compiled
/// for. On a device of 99 KB, backward in fp32 above 128 columns runs the portable kernels.
struct Sm80Family {
  static constexpr bool kCompiled = arch::compiled_for([](int a) { return a >= 800; });
  static constexpr bool kTakesAll = !arch::compiled_for([](int a) { return a < 800; });
  template <class Args, int D, int Dv>
  static constexpr bool kForward = kCompiled;
  template <class Args, int D, int Dv, DqMode kMode>
  static constexpr bool kBackward = (kMode != DqMode::kTwoPass) && kCompiled;

  template <int D, int Dv, class Args>
  static bool takes_forward(const Args&) {
    return !arch::lacks(forward_kernel<sm80::DefaultForwardTraits<Args, D, Dv, kLeastKb>>, 800);
  }
  template <int D, int Dv, DqMode kMode, class Args>
  static bool takes_backward(const Args&) {
    return !arch::lacks(kv_kernel<DefaultBackwardTraits<Args, D, Dv, kMode, kLeastKb>>(), 800);
  }

  template <int D, int Dv, class Args>
  static bool takes_decode(const Args&) {
    return !arch::lacks(forward_kernel<sm80::DefaultDecodeTraits<Args, D, Dv, kLeastKb>>, 800);
  }
  template <int D, int Dv, class Args, class F>
  static auto decode(const Args&, const F& f) {
    return with_shared_kb([&](auto kb) {
      return f(std::type_identity<sm80::DefaultDecodeTraits<Args, D, Dv, kb.value>>{});
    });
  }

  template <int D, int Dv, class Args, class F>
  static auto forward(const Args& args, const F& f) {
    return with_shared_kb([&](auto kb) {
      return with_set<D, Dv, kb.value>(args, [&](auto set) {
        return f(std::type_identity<
                 sm80::DefaultForwardTraits<Args, D, Dv, kb.value, decltype(set)::value>>{});
      });
    });
  }
  template <int D, int Dv, DqMode kMode, class Args, class F>
  static auto backward(const Args& args, const F& f) {
    return with_shared_kb([&](auto kb) {
      if constexpr (kMode == DqMode::kAccumulate) {
        return with_set<D, Dv, kb.value>(args, [&](auto set) {
          if constexpr (set.value == TileSet::kAny) {
            return f(std::type_identity<DefaultBackwardTraits<Args, D, Dv, kMode, kb.value>>{});
          } else {
            return f(std::type_identity<sm80::DefaultBackwardTraits<Args, D, Dv, kMode, kb.value,
                                                                    decltype(set)::value>>{});
          }
        });
      } else {
        return f(std::type_identity<DefaultBackwardTraits<Args, D, Dv, kMode, kb.value>>{});
      }
    });
  }

 private:
  /// Says whether this file has code for a device whose tiles are those for blocks with kSharedKb.
  template <int kSharedKb>
  static constexpr bool kTakesTiles = arch::compiled_for([](int a) {
    return a >= 800 && arch::shared_kb(a) == kSharedKb;
  });
  /// Is the least of these sizes: devices with 99 KB run code for 8.0 too.
  static constexpr int kLeastKb = kTakesTiles<99> || kTakesTiles<163> ? 99 : 227;

  /// Calls f(set) with the set of tiles whose kernels read what the values of a score modifier say.
  template <int D, int Dv, int kSharedKb, class Args, class F>
  static auto with_set(const Args& args, const F& f) {
    if constexpr (kHasSm80Set<Args, D, Dv, kSharedKb, TileSet::kColumns>) {
      if (sm80::check_reads<sm80::ModifierReads::kColumns>(args.score_mod)) {
        return f(std::integral_constant<TileSet, TileSet::kColumns>{});
      }
    }
    if constexpr (kHasSm80Set<Args, D, Dv, kSharedKb, TileSet::kElements>) {
      if (sm80::check_reads<sm80::ModifierReads::kElements>(args.score_mod)) {
        return f(std::integral_constant<TileSet, TileSet::kElements>{});
      }
    }
    return f(std::integral_constant<TileSet, TileSet::kAny>{});
  }

  /// Calls f(kb) with the shared memory that the default tiles are for. Units    KB, a constant.
  template <class F>
  static auto with_shared_kb(const F& f) {
    const int shared_kb = arch::device_shared_kb();
    if constexpr (kTakesTiles<227> && kLeastKb < 227) {
      if (shared_kb >= 227) return f(std::integral_constant<int, 227>{});
    }
    if constexpr (kTakesTiles<163>) {
      if (shared_kb >= 163) return f(std::integral_constant<int, 163>{});
    }
    return f(std::integral_constant<int, kLeastKb>{});
  }
};

/// Runs kernels of shared memory and FMAs, which take everything: the last family is not asked.
struct PortableFamily {
  template <int D, int Dv, class Args, class F>
  static auto forward(const Args&, const F& f) {
    return f(std::type_identity<portable::DefaultForwardTraits<Args, D, Dv>>{});
  }
  template <int D, int Dv, DqMode kMode, class Args, class F>
  static auto backward(const Args&, const F& f) {
    return f(std::type_identity<portable::DefaultBackwardTraits<Args, D, Dv, kMode>>{});
  }
};

/// Says whether there are kernels of these dims; where there are none it is an error, once.
template <int D, int Dv>
struct Dims {
  static constexpr bool kRight = D >= 1 && D <= 256 && Dv >= 1 && Dv <= 256;
  static_assert(kRight, "attile: D and Dv, as in forward<D, Dv>, must be 1 to 256");
};

/// Holds families in the order in which they are asked; the last one takes everything.
template <class Family, class... Others>
struct Families {
  template <int D, int Dv, class Args, class F>
  static auto forward(const Args& args, const F& f) {
    constexpr bool kIsLast = sizeof...(Others) == 0;
    if constexpr (!Dims<D, Dv>::kRight) {
      return PortableFamily::forward<64, 64>(args, f);  // so that this is the only error
    } else if constexpr (kIsLast) {
      return Family::template forward<D, Dv>(args, f);
    } else if constexpr (Family::kTakesAll && Family::template kForward<Args, D, Dv>) {
      return Family::template forward<D, Dv>(args, f);
    } else {
      if constexpr (Family::template kForward<Args, D, Dv>) {
        if (Family::template takes_forward<D, Dv>(args)) {
          return Family::template forward<D, Dv>(args, f);
        }
      }
      return Families<Others...>::template forward<D, Dv>(args, f);
    }
  }
  template <int D, int Dv, DqMode kMode, class Args, class F>
  static auto backward(const Args& args, const F& f) {
    constexpr bool kIsLast = sizeof...(Others) == 0;
    if constexpr (!Dims<D, Dv>::kRight) {
      return PortableFamily::backward<64, 64, kMode>(args, f);
    } else if constexpr (kIsLast) {
      return Family::template backward<D, Dv, kMode>(args, f);
    } else if constexpr (Family::kTakesAll && Family::template kBackward<Args, D, Dv, kMode>) {
      return Family::template backward<D, Dv, kMode>(args, f);
    } else {
      if constexpr (Family::template kBackward<Args, D, Dv, kMode>) {
        if (Family::template takes_backward<D, Dv, kMode>(args)) {
          return Family::template backward<D, Dv, kMode>(args, f);
        }
      }
      return Families<Others...>::template backward<D, Dv, kMode>(args, f);
    }
  }
};

using AllFamilies = Families<Sm90Family, Sm80Family, PortableFamily>;
/// Serves arguments that `check_arguments` refuses: nothing may be concluded from their values.
using FamiliesOfAny = Families<Sm80Family, PortableFamily>;

}  // namespace attile::detail
