// SPDX-License-Identifier: MIT
// Writing the results of attend: all of them, or none.
#pragma once

#include <attile/core/element.h>

#include <concepts>
#include <memory>
#include <string>
#include <vector>

#include "../npy.h"
#include "../output_file.h"
#include "options.h"
#include "problem.h"

namespace attend {

/// The files that are wanted. The constructor fails unless each can be written; nothing takes its
/// final name before everything is written.
class OutputFiles {
 public:
  explicit OutputFiles(const Options& options)
      : o_(open(options.o)),
        lse_(open(options.lse)),
        dq_(open(options.dq)),
        dk_(open(options.dk)),
        dv_(open(options.dv)),
        dsinks_(open(options.dsinks)),
        map_(open(options.map)) {}

  /// `picture` is the text of the map.
  template <class T>
  void write(const Problem& p, const Tensors<T>& t, const std::string& picture) {
    constexpr auto kDtype = std::same_as<T, __half> ? npy::Dtype::kFloat16 : npy::Dtype::kFloat32;
    const auto write = [](example::OutputFile* file, npy::Dtype dtype, const npy::Shape& shape,
                          const auto& values) {
      if (file == nullptr) return;
      std::vector<float> wide;
      wide.reserve(values.size());
      for (const auto x : values) wide.push_back(attile::to_float(x));
      npy::write(*file, dtype, shape, wide);
    };
    write(o_.get(), kDtype, p.o_shape(), t.o);
    write(lse_.get(), npy::Dtype::kFloat32, p.lse_shape(), t.lse);
    write(dq_.get(), kDtype, p.q_shape(), t.dq);
    write(dk_.get(), kDtype, p.k_shape(), t.dk);
    write(dv_.get(), kDtype, p.v_shape(), t.dv);
    write(dsinks_.get(), npy::Dtype::kFloat32, p.sinks_shape(), t.dsinks);
    if (map_ != nullptr) map_->write({picture});
    for (example::OutputFile* file :
         {o_.get(), lse_.get(), dq_.get(), dk_.get(), dv_.get(), dsinks_.get(), map_.get()}) {
      if (file != nullptr) file->commit();
    }
  }

 private:
  static std::unique_ptr<example::OutputFile> open(const std::string& path) {
    return path.empty() ? nullptr : std::make_unique<example::OutputFile>(path);
  }

  std::unique_ptr<example::OutputFile> o_, lse_, dq_, dk_, dv_, dsinks_, map_;
};

}  // namespace attend
