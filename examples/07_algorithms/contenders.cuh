// SPDX-License-Identifier: MIT
// The three algorithms on the same tensors.
#pragma once

#include <attile/attile.cuh>
#include <attile/flash1.cuh>
#include <attile/standard.cuh>

#include <cublas_v2.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../support.cuh"
#include "costs.h"
#include "options.h"
#include "result.h"

namespace algorithms {

using example::DeviceArray;
using example::must;

struct Memory {
  void* data;
  std::size_t bytes;

  void fill_with_nan() const { must(cudaMemset(data, 0xff, bytes), "cudaMemset"); }
};

/// A pass that can be run again and again, after the forward pass of the same algorithm.
struct Contender {
  PassResult result;
  std::function<cudaError_t()> run;
  /// What it writes, scratch memory left out.
  std::vector<Memory> outputs;
  /// LSE of all rows; null where the pass leaves nothing to take it from.
  std::function<std::vector<float>()> lse{};
};

/// Dense (batch, head, row, dim) tensors, so that a product of standard attention is one call of
/// cuBLAS. Every algorithm writes to the same outputs.
template <class T>
struct Tensors {
  std::size_t rows, size;
  std::vector<T> host_q, host_k, host_v, host_dout;
  DeviceArray<T> q, k, v, dout, o, dq, dk, dv;

  explicit Tensors(const Problem& p)
      : rows(std::size_t{1} * p.batch * p.heads * p.len),
        size(rows * p.dim),
        host_q(example::normal<T>(size, 1)),
        host_k(example::normal<T>(size, 2)),
        host_v(example::normal<T>(size, 3)),
        host_dout(example::normal<T>(size, 4)),
        q(host_q),
        k(host_k),
        v(host_v),
        dout(host_dout),
        o(size),
        dq(size),
        dk(size),
        dv(size) {}

  std::size_t bytes() const { return size * sizeof(T); }

  /// Those that a pass writes.
  std::vector<Memory> outputs(Direction direction) const {
    if (direction == Direction::kForward) return {{o.get(), bytes()}};
    return {{dq.get(), bytes()}, {dk.get(), bytes()}, {dv.get(), bytes()}};
  }
};

/// A handle of cuBLAS that ends with its owner.
class Cublas {
 public:
  Cublas() { must(attile::standard::to_cuda_error(cublasCreate(&handle_)), "cublasCreate"); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas() { static_cast<void>(cublasDestroy(handle_)); }
  cublasHandle_t get() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

template <class T, int D, class Mask>
class Contenders {
 public:
  using Forward = attile::ForwardArgs<T, Mask>;
  using Backward = attile::BackwardArgs<T, Mask>;

  Contenders(const Problem& problem, const Tensors<T>& tensors)
      : problem_(problem),
        tensors_(tensors),
        lse_(tensors.rows),
        l_(tensors.rows),
        m_(tensors.rows) {
    int shared = 0;
    must(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0),
         "shared memory of a block");
    if (shared >= 227 * 1024) {
      add_flash2<227>();
    } else {
      add_flash2<attile::kCommonSharedKb>();
    }
    add_flash1();
    add_standard();
    workspace_ = std::make_unique<DeviceArray<unsigned char>>(workspace_bytes_);
  }

  /// Forward and backward of FlashAttention-2, FlashAttention-1 and standard attention.
  std::vector<Contender>& all() { return all_; }

 private:
  Forward forward_args(float* lse) const {
    Forward args{.o = view(tensors_.o), .lse = lse};
    describe(args);
    return args;
  }

  Backward backward_args(const float* lse) const {
    Backward args{.o = view(tensors_.o),
                  .lse = lse,
                  .dout = view(tensors_.dout),
                  .dq = view(tensors_.dq),
                  .dk = view(tensors_.dk),
                  .dv = view(tensors_.dv)};
    describe(args);
    return args;
  }

  attile::Tensor<T> view(const DeviceArray<T>& a) const {
    return attile::bhsd(a.get(), {.rows = problem_.len, .heads = problem_.heads, .dim = D});
  }

  /// What both passes have in common.
  template <class Args>
  void describe(Args& args) const {
    args.q = view(tensors_.q);
    args.k = view(tensors_.k);
    args.v = view(tensors_.v);
    args.batch = problem_.batch;
    args.q_heads = args.kv_heads = problem_.heads;
    args.q_len = args.kv_len = problem_.len;
    args.head_dim = D;
  }

  Shape shape() const {
    return {static_cast<double>(problem_.batch) * problem_.heads, static_cast<double>(problem_.len),
            D, sizeof(T)};
  }

  /// Adds a pass. `own_bytes`: what it needs besides the tensors; `call(workspace, bytes)` runs it
  /// with `workspace_bytes` of scratch memory.
  template <class Call>
  Contender& add(Pass pass, const attile::Check& check, Cost cost, std::size_t own_bytes,
                 std::size_t workspace_bytes, Call call) {
    const std::size_t tensors = pass.direction == Direction::kForward ? 4 : 8;
    Contender c{{.pass = pass,
                 .why_not = check ? "" : std::string("left out: ") + check.why,
                 .cost = cost,
                 .memory = tensors * tensors_.bytes() + own_bytes + workspace_bytes},
                nullptr,
                tensors_.outputs(pass.direction)};
    if (check && pass.algorithm == Algorithm::kStandard) {
      c.result.why_not = does_not_fit(own_bytes + workspace_bytes);
    }
    if (c.result.why_not.empty()) {
      workspace_bytes_ = std::max(workspace_bytes_, workspace_bytes);
      c.run = [this, call, workspace_bytes] {
        std::size_t bytes = workspace_bytes;
        return call(workspace_->get(), bytes);
      };
    }
    return all_.emplace_back(std::move(c));
  }

  Memory statistic(const DeviceArray<float>& rows) const {
    return {rows.get(), tensors_.rows * sizeof(float)};
  }

  /// A sentence, where the device has less memory than the tensors and `more` take.
  std::string does_not_fit(std::size_t more) const {
    constexpr double kGb = 1e9, kKept = 1e9;  // kKept: cuBLAS's own, and code
    std::size_t free = 0, total = 0;
    must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const double room = static_cast<double>(free) + (p_ ? p_bytes_ : 0) - kKept;
    if (static_cast<double>(more) <= room) return {};
    const double ours = 8.0 * tensors_.bytes() + 3.0 * sizeof(float) * tensors_.rows;
    char text[80];
    std::snprintf(text, sizeof text, "out of memory: needs %.1f GB of %.1f GB", (ours + more) / kGb,
                  (ours + room) / kGb);
    return text;
  }

  void add_standard() {
    const Forward forward = forward_args(nullptr);
    const Backward backward = backward_args(lse_.get());  // has to be given, is not read
    std::size_t forward_bytes = 0, backward_bytes = 0;
    const attile::Check forward_check = attile::standard::check(forward);
    const attile::Check backward_check = attile::standard::check(backward);
    T* const no_p = nullptr;
    if (forward_check) {
      must(attile::standard::forward(nullptr, no_p, nullptr, forward_bytes, forward),
           "workspace size");
    }
    if (backward_check) {
      must(attile::standard::backward(nullptr, no_p, nullptr, backward_bytes, backward),
           "workspace size");
    }
    p_bytes_ = attile::standard::probabilities_bytes(forward);
    Contender& c =
        add({Algorithm::kStandard, Direction::kForward}, forward_check, standard_forward(shape()),
            p_bytes_, forward_bytes, [this, forward](void* workspace, std::size_t& bytes) {
              return attile::standard::forward(cublas_.get(), p_->get(), workspace, bytes, forward);
            });
    if (c.run) {
      p_ = std::make_unique<DeviceArray<T>>(p_bytes_ / sizeof(T));
      c.outputs.push_back({p_->get(), p_bytes_});
    }
    add({Algorithm::kStandard, Direction::kBackward}, backward_check, standard_backward(shape()),
        p_bytes_, backward_bytes, [this, backward](void* workspace, std::size_t& bytes) {
          return attile::standard::backward(cublas_.get(), p_->get(), workspace, bytes, backward);
        });
  }

  void add_flash1() {
    namespace flash1 = attile::flash1;
    using ForwardTraits = flash1::DefaultForwardTraits<Forward, D>;
    using BackwardTraits = flash1::DefaultBackwardTraits<Backward, D>;
    const flash1::State state{.l = l_.get(), .m = m_.get()};
    const Forward forward = forward_args(nullptr);
    const Backward backward = backward_args(nullptr);
    std::size_t forward_bytes = 0, backward_bytes = 0;
    const attile::Check forward_check = flash1::check<ForwardTraits>(forward, state);
    const attile::Check backward_check = flash1::check<BackwardTraits>(backward, state);
    if (forward_check) {
      must(flash1::forward<ForwardTraits>(nullptr, forward_bytes, forward, state),
           "workspace size");
    }
    if (backward_check) {
      must(flash1::backward<BackwardTraits>(nullptr, backward_bytes, backward, state),
           "workspace size");
    }
    const std::size_t statistics = 2 * sizeof(float) * tensors_.rows;  // l and m
    Contender& c =
        add({Algorithm::kFlash1, Direction::kForward}, forward_check,
            flash1_forward(shape(), Mask{}, ForwardTraits::kBr, ForwardTraits::kBc,
                           ForwardTraits::kSlabTiles),
            statistics, forward_bytes, [forward, state](void* workspace, std::size_t& bytes) {
              return flash1::forward<ForwardTraits>(workspace, bytes, forward, state);
            });
    c.outputs.insert(c.outputs.end(), {statistic(l_), statistic(m_)});
    c.lse = [this] {
      std::vector<float> lse = m_.download();
      const std::vector<float> l = l_.download();
      for (std::size_t i = 0; i < l.size(); ++i) lse[i] += std::log(l[i]);
      return lse;
    };
    add({Algorithm::kFlash1, Direction::kBackward}, backward_check,
        flash_backward(shape(), Mask{}, BackwardTraits::kBr, BackwardTraits::kBc,
                       Algorithm::kFlash1),
        statistics, backward_bytes, [backward, state](void* workspace, std::size_t& bytes) {
          return flash1::backward<BackwardTraits>(workspace, bytes, backward, state);
        });
  }

  template <int kSharedKb>
  void add_flash2() {
    namespace portable = attile::portable;
    using ForwardTraits = portable::DefaultForwardTraits<Forward, D, D, kSharedKb>;
    using BackwardTraits =
        portable::DefaultBackwardTraits<Backward, D, D, attile::DqMode::kAccumulate, kSharedKb>;
    const Forward forward = forward_args(lse_.get());
    const Backward backward = backward_args(lse_.get());
    const attile::Check backward_check = attile::check<BackwardTraits>(backward);
    std::size_t backward_bytes = 0;
    if (backward_check) {
      must(attile::backward<BackwardTraits>(nullptr, backward_bytes, backward), "workspace size");
    }
    const std::size_t statistics = sizeof(float) * tensors_.rows;  // LSE
    Contender& c =
        add({Algorithm::kFlash2, Direction::kForward}, attile::check<ForwardTraits>(forward),
            flash2_forward(shape(), Mask{}, ForwardTraits::kBr, ForwardTraits::kBc), statistics, 0,
            [forward](void*, std::size_t&) { return attile::forward<ForwardTraits>(forward); });
    c.outputs.push_back(statistic(lse_));
    c.lse = [this] { return lse_.download(); };
    add({Algorithm::kFlash2, Direction::kBackward}, backward_check,
        flash_backward(shape(), Mask{}, BackwardTraits::kBr, BackwardTraits::kBc,
                       Algorithm::kFlash2),
        statistics, backward_bytes, [backward](void* workspace, std::size_t& bytes) {
          return attile::backward<BackwardTraits>(workspace, bytes, backward);
        });
  }

  Problem problem_;
  const Tensors<T>& tensors_;
  DeviceArray<float> lse_, l_, m_;
  Cublas cublas_;
  std::unique_ptr<DeviceArray<T>> p_;
  std::unique_ptr<DeviceArray<unsigned char>> workspace_;
  std::size_t p_bytes_ = 0, workspace_bytes_ = 16;
  std::vector<Contender> all_;
};

}  // namespace algorithms
