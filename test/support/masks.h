// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/mask.h>

#include <vector>

#include "support/policies.h"

namespace attile_test {

/// What the tests of masks hold every mask against.
inline const std::vector<attile::Extent>& extents() {
  static const std::vector<attile::Extent> all = {
      {1, 1},   {5, 2},   {2, 5},   {1, 70},    {70, 1}, {64, 64}, {65, 63},   {63, 65},
      {57, 57}, {7, 130}, {130, 7}, {128, 128}, {0, 3},  {3, 0},   {129, 200}, {200, 129}};
  return all;
}

inline constexpr int kRunLengths[] = {1, 3, 16, 57, 64, 300};

/// Calls visit(mask) for every interval mask of the library, with many parameters.
template <class Visit>
void visit_interval_masks(const Visit& visit) {
  using attile::Prefix;
  visit(attile::NoMask{});
  visit(attile::Causal{});
  visit(attile::CausalTopLeft{});
  for (const int left : {-1, 0, 1, 5, 64, 1000, 2147483647}) {
    for (const int right : {-1, 0, 3, 70, 2147483647}) visit(attile::SlidingWindow{left, right});
  }
  static const int lengths[] = {5, 70}, outside[] = {-2147483647, 2147483647};
  for (const int length : {0, 1, 16, 57, 64, 500, 2147483647}) visit(Prefix{length, nullptr});
  visit(Prefix{-1, lengths});
  visit(Prefix{-1, outside});
}

/// The same for masks that are made of others, and for those that know no intervals.
template <class Visit>
void visit_other_masks(const Visit& visit) {
  using attile::And;
  using attile::Causal;
  using attile::CausalTopLeft;
  using attile::Document;
  using attile::Prefix;
  using attile::SlidingWindow;
  static const std::vector<int> q_ids = [] {
    std::vector<int> ids;
    for (int i = 0; i < 400; ++i) ids.push_back(i / 37);
    return ids;
  }();
  static const std::vector<int> kv_ids = [] {
    std::vector<int> ids;
    for (int i = 0; i < 400; ++i) ids.push_back(i / 41 + i % 97 / 96);
    return ids;
  }();
  const Document document{q_ids.data(), kv_ids.data()};
  visit(document);
  visit(Gaps{3});
  visit(And<Causal, Document>{{}, document});
  visit(And<Document, SlidingWindow>{document, {20, 5}});
  for (const int length : {0, 30, 100}) {
    visit(And<SlidingWindow, Prefix>{{20, 30}, {length, nullptr}});
    visit(And<Prefix, CausalTopLeft>{{length, nullptr}, {}});
  }
  visit(And<And<SlidingWindow, Prefix>, Gaps>{{{20, 30}, {40, nullptr}}, {2}});
}

}  // namespace attile_test
