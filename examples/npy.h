// SPDX-License-Identifier: MIT
// Reads and writes NumPy .npy files (format versions 1.0, 2.0 and 3.0; little endian, C order).
//
// Every failure is an npy::Error whose text is one sentence that names the file and the reason.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "output_file.h"

namespace npy {

static_assert(std::endian::native == std::endian::little, "npy.h needs a little-endian machine");

using Error = example::FileError;

enum class Dtype { kFloat16, kFloat32, kFloat64 };

inline constexpr const char* descr(Dtype t) {
  return t == Dtype::kFloat16 ? "<f2" : t == Dtype::kFloat32 ? "<f4" : "<f8";
}
inline constexpr std::size_t size_of(Dtype t) {
  return t == Dtype::kFloat16 ? 2 : t == Dtype::kFloat32 ? 4 : 8;
}

using Shape = std::vector<std::int64_t>;

/// "(1, 152, 12, 32)", as Python prints it.
inline std::string to_string(const Shape& shape) {
  std::string s = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    s += (i ? ", " : "") + std::to_string(shape[i]);
  }
  return s + (shape.size() == 1 ? ",)" : ")");
}

struct Array {
  Shape shape;
  std::vector<float> values;
};

/// Number of elements; throws Error when `shape` has more than 2^63 - 1 bytes of `dtype`.
inline std::int64_t count(const Shape& shape, Dtype dtype, const std::string& path) {
  const auto limit =
      std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(size_of(dtype));
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) {
    if (extent != 0 && n > limit / extent) {
      throw Error(path + " has the shape " + to_string(shape) + ", which overflows 64 bits.");
    }
    n *= extent;
  }
  return n;
}

// ---- float16 --------------------------------------------------------------------------------

inline float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1fu;
  const std::uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24 is exact in float
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

/// Rounds to nearest, ties to even; overflow gives infinity, a NaN stays a NaN.
inline std::uint16_t float_to_half(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520, halfway to 2^16, rounds up
  if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal, in units of 2^-24
    const float units = std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24));
    return sign | static_cast<std::uint16_t>(units);
  }
  // A carry out of the mantissa is what increments the exponent.
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<std::uint16_t>((rounded - ((127u - 15u) << 23)) >> 13);
}

// ---- header ---------------------------------------------------------------------------------

namespace detail {

struct Header {
  Shape shape;
  Dtype dtype = Dtype::kFloat32;
};

/// Parses the Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Header parse() {
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        if (peek() == '[')
          throw Error(path_ +
                      " holds records, not floating-point numbers: save one field of them.");
        descr_ = quoted();
      } else if (key == "fortran_order") {
        order_ = word();
      } else if (key == "shape") {
        parse_shape();
      } else {
        malformed();
      }
      if (!accept(',') && peek() != '}') malformed();
    }
    if (peek() != '\0' || descr_.empty() || order_.empty() || !has_shape_) malformed();
    return finish();
  }

 private:
  [[noreturn]] void malformed() const {
    throw Error(path_ + " is not a valid .npy file: its header is malformed.");
  }

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) malformed();
  }

  std::string quoted() {
    const char quote = peek();
    const std::size_t end = text_.find(quote, at_ + 1);
    if ((quote != '\'' && quote != '"') || end == std::string_view::npos) malformed();
    const std::string s(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return s;
  }

  std::string word() {
    peek();
    const std::size_t begin = at_;
    while (at_ < text_.size() && ((text_[at_] | 32) >= 'a' && (text_[at_] | 32) <= 'z')) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  void parse_shape() {
    has_shape_ = true;
    expect('(');
    while (!accept(')')) {
      shape_.push_back(integer());
      if (!accept(',') && peek() != ')') malformed();
    }
  }

  std::int64_t integer() {
    if (peek() < '0' || peek() > '9') malformed();
    constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
    std::int64_t n = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const std::int64_t digit = text_[at_] - '0';
      if (n > (kMax - digit) / 10) {
        throw Error(path_ + " has a shape with an extent that overflows 64 bits.");
      }
      n = 10 * n + digit;
    }
    return n;
  }

  Header finish() {
    Header header{shape_, Dtype::kFloat32};
    if (descr_ == "<f2") {
      header.dtype = Dtype::kFloat16;
    } else if (descr_ == "<f8") {
      header.dtype = Dtype::kFloat64;
    } else if (descr_ != "<f4") {
      for (char& c : descr_) c = c >= ' ' && c <= '~' ? c : '?';  // it is printed
      throw Error(path_ + " has the dtype '" + descr_ +
                  "', but only '<f2', '<f4' and '<f8' are read: save x.astype('<f4').");
    }
    if (order_ == "True") {
      throw Error(path_ +
                  " is in Fortran order, but only C order is read: save np.ascontiguousarray(x).");
    }
    if (order_ != "False") malformed();
    return header;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  std::string descr_, order_;
  Shape shape_;
  bool has_shape_ = false;
};

inline void read_bytes(std::ifstream& in, void* to, std::uint64_t n, const std::string& path) {
  in.read(static_cast<char*>(to), static_cast<std::streamsize>(n));
  if (static_cast<std::uint64_t>(in.gcount()) != n) throw Error(path + " cannot be read.");
}

/// Reads magic, version and header; leaves `in` at the data and subtracts what it read from `left`.
inline Header read_header(std::ifstream& in, std::uint64_t& left, const std::string& path) {
  constexpr char kMagic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
  unsigned char start[8] = {};
  if (left < sizeof start) throw Error(path + " is not a .npy file: it is too short.");
  read_bytes(in, start, sizeof start, path);
  if (std::memcmp(start, kMagic, sizeof kMagic) != 0) {
    const bool zip = start[0] == 'P' && start[1] == 'K';
    throw Error(path + " is not a .npy file: " +
                (zip ? "it is an archive, as np.savez writes it; save each array with np.save."
                     : "it does not begin with \\x93NUMPY; np.save makes one."));
  }
  const unsigned major = start[6];
  if (major < 1 || major > 3 || start[7] != 0) {
    throw Error(path + " has the .npy version " + std::to_string(major) + "." +
                std::to_string(start[7]) + ", but only 1.0, 2.0 and 3.0 are read.");
  }
  left -= sizeof start;

  const std::uint64_t width = major == 1 ? 2 : 4;
  std::uint32_t length = 0;
  if (left >= width) read_bytes(in, &length, width, path);
  if (left < width || left - width < length) throw Error(path + " is truncated in its header.");
  std::string text(length, '\0');
  read_bytes(in, text.data(), length, path);
  left -= width + length;
  return HeaderParser(text, path).parse();
}

template <class Stored, class Convert>
void read_values(std::ifstream& in, std::vector<float>& to, const std::string& path,
                 Convert convert) {
  constexpr std::size_t kChunk = 1 << 16;
  std::vector<Stored> chunk(std::min(kChunk, to.size()));
  for (std::size_t done = 0; done < to.size();) {
    const std::size_t n = std::min(kChunk, to.size() - done);
    read_bytes(in, chunk.data(), n * sizeof(Stored), path);
    for (std::size_t i = 0; i < n; ++i) to[done + i] = convert(chunk[i]);
    done += n;
  }
}

}  // namespace detail

// ---- reading --------------------------------------------------------------------------------

/// Reads a file of floating-point numbers as float ('<f8' is rounded) with `rank` dimensions.
/// Memory is allocated only once the size of the file has confirmed the shape.
inline Array read(const std::string& path, std::size_t rank) {
  namespace fs = std::filesystem;
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (status.type() == fs::file_type::not_found) throw Error(path + " does not exist.");
  if (status.type() != fs::file_type::regular) throw Error(path + " is not a regular file.");
  std::uint64_t left = fs::file_size(path, ec);
  std::ifstream in(path, std::ios::binary);
  if (ec || !in) throw Error(path + " cannot be opened for reading.");

  const detail::Header header = detail::read_header(in, left, path);
  if (header.shape.size() != rank) {
    const bool fewer = header.shape.size() < rank;
    throw Error(path + " has rank " + std::to_string(header.shape.size()) + ", but rank " +
                std::to_string(rank) + " is needed" +
                (fewer ? ": x[None] has one more, of 1." : "."));
  }
  const std::int64_t n = count(header.shape, header.dtype, path);
  const std::uint64_t bytes = static_cast<std::uint64_t>(n) * size_of(header.dtype);
  if (left != bytes) {
    throw Error(path + (left < bytes ? " is truncated" : " has trailing bytes") + ": its shape " +
                to_string(header.shape) + " needs " + std::to_string(bytes) +
                " bytes of data, but " + std::to_string(left) + " follow the header.");
  }

  Array a{header.shape, std::vector<float>(static_cast<std::size_t>(n))};
  switch (header.dtype) {
    case Dtype::kFloat16:
      detail::read_values<std::uint16_t>(in, a.values, path, half_to_float);
      break;
    case Dtype::kFloat32:
      detail::read_bytes(in, a.values.data(), bytes, path);
      break;
    case Dtype::kFloat64:
      detail::read_values<double>(in, a.values, path, [&](double x) {
        if (std::isfinite(x) && std::abs(x) > std::numeric_limits<float>::max()) {
          throw Error(path + " holds a value that float32 cannot hold.");
        }
        return static_cast<float>(x);
      });
      break;
  }
  return a;
}

// ---- writing --------------------------------------------------------------------------------

namespace detail {

/// Magic, version, length and the Python literal, whose end is aligned to 64 bytes.
inline std::string header(Dtype dtype, const Shape& shape) {
  std::string text = std::string("{'descr': '") + descr(dtype) +
                     "', 'fortran_order': False, 'shape': " + to_string(shape) + ", }";
  constexpr std::size_t kPrefix = 10, kAlign = 64;
  text.append(kAlign - (kPrefix + text.size() + 1) % kAlign, ' ');
  text += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(text.size() & 0xff);
  head += static_cast<char>(text.size() >> 8);
  return head + text;
}

template <class Value>
std::string_view bytes_of(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

}  // namespace detail

/// Writes `values`, converted to `dtype` ('<f4' or '<f2').
inline void write(example::OutputFile& file, Dtype dtype, const Shape& shape,
                  const std::vector<float>& values) {
  const std::string head = detail::header(dtype, shape);
  if (dtype == Dtype::kFloat32) return file.write({head, detail::bytes_of(values)});
  std::vector<std::uint16_t> half(values.size());
  for (std::size_t i = 0; i < half.size(); ++i) half[i] = float_to_half(values[i]);
  file.write({head, detail::bytes_of(half)});
}

}  // namespace npy
