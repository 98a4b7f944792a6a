// SPDX-License-Identifier: MIT
#include "map.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

namespace attend {
namespace {

using Strings = std::vector<std::string>;

// ---- words --------------------------------------------------------------------------------------

/// The bytes of the code point at `at`; 0 where it is not UTF-8.
std::size_t code_point_bytes(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  const std::size_t bytes = lead < 0x80   ? 1
                            : lead < 0xc2 ? 0
                            : lead < 0xe0 ? 2
                            : lead < 0xf0 ? 3
                            : lead < 0xf5 ? 4
                                          : 0;
  if (at + bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

std::size_t length(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

/// A word as a label: of 16 characters at most, none of them a control character.
std::string label(std::string_view word, const std::string& path, std::size_t line) {
  constexpr std::size_t kMostCharacters = 16;
  std::string text;
  std::size_t characters = 0;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t bytes = code_point_bytes(word, at);
    if (bytes == 0) {
      throw npy::Error(path + " is not UTF-8 in line " + std::to_string(line) + ".");
    }
    if (++characters > kMostCharacters) {
      while ((text.back() & 0xc0) == 0x80) text.pop_back();
      text.pop_back();
      return text + "…";
    }
    const bool control = static_cast<unsigned char>(word[at]) < ' ' || word[at] == 0x7f;
    text += control ? "?" : std::string(word.substr(at, bytes));
    at += bytes;
  }
  return text;
}

Strings read_words(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw npy::Error(path + " does not exist.");
  if (status.type() != fs::file_type::regular) throw npy::Error(path + " is not a regular file.");
  std::ifstream in(path, std::ios::binary);
  Strings words;
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    words.push_back(label(line, path, words.size() + 1));
  }
  if (!in.eof()) throw npy::Error(path + " cannot be read.");
  return words;
}

Strings labels(const Strings& words, bool have_words, int first, int count) {
  Strings texts;
  for (int i = 0; i < count; ++i) {
    texts.push_back(have_words ? words[first + i] : std::to_string(i));
  }
  return texts;
}

// ---- numbers and texts --------------------------------------------------------------------------

std::string formatted(const char* format, double x) {
  char text[48];
  std::snprintf(text, sizeof text, format, x);
  return text;
}
std::string percent(double x) { return formatted("%.0f %%", 100 * x); }
std::string pixels(double x) { return formatted("%.4g", x); }

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '&'   ? "&amp;"
           : c == '<' ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  }
  return out;
}

std::string of_all(int drawn, int all, const char* what) {
  return "the first " + std::to_string(drawn) + " of " + std::to_string(all) + " " + what;
}

/// The sentences above the picture.
Strings sentences(const Map& map, bool has_nan) {
  Strings lines;
  const std::string thing = map.words ? "word" : "row of Q or K";
  lines.push_back("Each row is a " + thing + " that looks (a query), each column one that is " +
                  "looked at (a key).");
  lines.push_back("A square is how much its row takes of its column: exp(scale q·k − LSE).");
  lines.push_back("The greatest of a row has a frame and is named at the right.");
  lines.push_back("Drawn: " + what_is_drawn(map) + ".");
  if (!map.is_whole()) lines.push_back(what_is_left_out(map) + ".");
  if (map.sinks) lines.push_back("What a row does not take of its keys, its sink takes.");
  if (has_nan) lines.push_back("Red squares are NaN.");
  return lines;
}

// ---- drawing ------------------------------------------------------------------------------------

constexpr double kCell = 17, kCharacter = 7, kLine = 18, kMargin = 16;

constexpr const char* kStyle =
    "<style>\n"
    "text{font:12px sans-serif;fill:#1f2328} .h{font:bold 16px sans-serif}\n"
    ".p{fill:#fff} .g{fill:none;stroke:#d0d7de} .c{fill:#0550ae} .n{fill:#cf222e}\n"
    ".f{fill:none;stroke:#1f2328;stroke-width:1.5} .e{text-anchor:end}\n"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3} .p{fill:#0d1117} .g{stroke:#30363d}\n"
    ".c{fill:#79c0ff} .n{fill:#ff7b72} .f{stroke:#e6edf3}}\n"
    "</style>\n";

double width_of(const Strings& texts) {
  std::size_t most = 1;
  for (const std::string& text : texts) most = std::max(most, length(text));
  return kCharacter * static_cast<double>(most);
}

std::string text_at(double x, double y, std::string_view text, const std::string& more = "") {
  return "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\"" + more + ">" + escaped(text) +
         "</text>\n";
}

std::string square(double x, double y, double width, double height, const std::string& more) {
  return "<rect x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" width=\"" + pixels(width) +
         "\" height=\"" + pixels(height) + "\" " + more;
}

/// The squares of one row, the frame of the greatest, and what is said at the right of it.
std::string drawn_row(const Map& map, int row, double left, double y, double greatest) {
  std::string out;
  for (int col = 0; col < map.drawn.kv_len; ++col) {
    const double weight = map.weight(row, col);
    const bool is_nan = std::isnan(weight);
    const double opacity = is_nan ? 1 : weight / greatest;
    if (!is_nan && !(opacity >= 0.005)) continue;
    out += square(left + kCell * col, y, kCell, kCell,
                  std::string(is_nan ? "class=\"n\"" : "class=\"c\"") + " fill-opacity=\"" +
                      formatted("%.2f", opacity) + "\"><title>" +
                      escaped(map.queries[row] + " → " + map.keys[col]) + ": " +
                      (is_nan ? std::string("NaN") : percent(weight)) + "</title></rect>\n");
  }
  const int most = map.most_of(row);
  if (most < 0) return out;
  out += square(left + kCell * most, y, kCell, kCell, "class=\"f\"/>\n");
  return out + text_at(left + kCell * map.drawn.kv_len + 8, y + kCell - 4,
                       "→ " + map.keys[most] + " " + percent(map.weight(row, most)));
}

/// Five shades, from little to the greatest weight.
std::string legend(double x, double y, double greatest) {
  std::string out = text_at(x, y + kCell - 4, "0 %");
  x += 4 * kCharacter;
  for (int shade = 1; shade <= 5; ++shade, x += kCell) {
    out += square(x, y, kCell, kCell,
                  "class=\"c\" fill-opacity=\"" + formatted("%.1f", shade / 5.0) + "\"/>\n");
  }
  return out + text_at(x + kCharacter, y + kCell - 4, percent(greatest));
}

}  // namespace

int Map::most_of(int row) const {
  int most = -1;
  for (int col = 0; col < drawn.kv_len; ++col) {
    if (weight(row, col) > (most < 0 ? 0 : weight(row, most))) most = col;
  }
  return most;
}

std::string what_is_drawn(const Map& map) {
  const std::string head =
      map.head < 0 ? "the mean of " + std::to_string(map.heads) + " heads"
                   : "head " + std::to_string(map.head) + " of " + std::to_string(map.heads);
  return head + ", sequence " + std::to_string(map.sequence) + " of " +
         std::to_string(map.sequences) + ", counted from 0";
}

std::string what_is_left_out(const Map& map) {
  if (map.is_whole()) return "";
  return "A map has at most " + std::to_string(kMostDrawn) + " rows and columns: this one has " +
         of_all(map.drawn.q_len, map.all.q_len, "queries") + " and " +
         of_all(map.drawn.kv_len, map.all.kv_len, "keys");
}

Map make_map(const Options& options, const Problem& p) {
  Map map;
  map.sequence = options.map_sequence.value_or(0);
  map.sequences = p.batch;
  map.head = options.map_head.value_or(-1);
  map.heads = p.q_heads;
  map.words = !options.words.empty();
  map.sinks = p.sinks;
  if (map.head >= p.q_heads) {
    throw npy::Error("--map-head is " + std::to_string(map.head) + ", but " + options.q + " has " +
                     std::to_string(p.q_heads) + " heads, counted from 0.");
  }
  if (map.sequence >= p.batch) {
    throw npy::Error("--map-sequence is " + std::to_string(map.sequence) + ", but there are " +
                     std::to_string(p.batch) + " sequences, counted from 0.");
  }
  map.all = p.extent(map.sequence);
  if (map.all.q_len == 0 || map.all.kv_len == 0) {
    throw npy::Error("--map has nothing to draw: sequence " + std::to_string(map.sequence) +
                     " has " + std::to_string(map.all.q_len) + " queries and " +
                     std::to_string(map.all.kv_len) + " keys.");
  }
  map.drawn = {std::min(map.all.q_len, kMostDrawn), std::min(map.all.kv_len, kMostDrawn)};
  const Strings words = map.words ? read_words(options.words) : Strings();
  if (map.words && words.size() != static_cast<std::size_t>(p.kv_rows)) {
    throw npy::Error(options.words + " has " + std::to_string(words.size()) + " lines, but " +
                     options.k + " has " + std::to_string(p.kv_rows) + " rows.");
  }
  // A query is a word of the same number only where both are of one text.
  const bool one_text = p.q_rows == p.kv_rows && p.cu_seqlens_q == p.cu_seqlens_k;
  const int first = p.is_packed() ? p.cu_seqlens_k[map.sequence] : 0;
  map.keys = labels(words, map.words, first, map.drawn.kv_len);
  map.queries = labels(words, map.words && one_text, first, map.drawn.q_len);
  return map;
}

std::string svg(const Map& map) {
  double greatest = 0;
  bool has_nan = false;
  for (const double weight : map.weights) {
    greatest = std::max(greatest, std::isnan(weight) ? 0 : weight);
    has_nan = has_nan || std::isnan(weight);
  }
  const char* const title =
      map.words ? "Which word attends to which" : "Which query attends to which key";
  const Strings lines = sentences(map, has_nan);
  const double left = kMargin + width_of(map.queries) + 8;
  const double top =
      kMargin + kLine * static_cast<double>(lines.size() + 1) + 16 + width_of(map.keys) + 8;
  const double right = left + kCell * map.drawn.kv_len, bottom = top + kCell * map.drawn.q_len;
  const double width = kMargin + std::max(right + 8 + width_of(map.keys) + 9 * kCharacter,
                                          kMargin + width_of(lines));
  const double height = bottom + 2 * kCell + kMargin;

  const std::string size = pixels(width) + "\" height=\"" + pixels(height);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + size +
                    "\" viewBox=\"0 0 " + pixels(width) + " " + pixels(height) +
                    "\" role=\"img\">\n<title>" + std::string(title) + "</title>\n" + kStyle +
                    "<rect class=\"p\" width=\"" + size + "\"/>\n";
  out += text_at(kMargin, kMargin + 12, title, " class=\"h\"");
  double y = kMargin + 12;
  for (const std::string& line : lines) out += text_at(kMargin, y += kLine, line);
  for (int col = 0; col < map.drawn.kv_len; ++col) {
    const double x = left + kCell * (col + 1) - 5;
    out += text_at(x, top - 6, map.keys[col],
                   " transform=\"rotate(-90 " + pixels(x) + " " + pixels(top - 6) + ")\"");
  }
  for (int row = 0; row < map.drawn.q_len; ++row) {
    const double at = top + kCell * row;
    out += text_at(left - 8, at + kCell - 4, map.queries[row], " class=\"e\"");
    out += drawn_row(map, row, left, at, greatest > 0 ? greatest : 1);
  }
  out += square(left, top, right - left, bottom - top, "class=\"g\"/>\n");
  return out + legend(left, bottom + kCell, greatest) + "</svg>\n";
}

void print_map(const std::string& path, const Map& map) {
  std::printf("map       %s: %s\n", path.c_str(), what_is_drawn(map).c_str());
  if (!map.is_whole()) std::printf("  %s.\n", what_is_left_out(map).c_str());
  // The greatest square of each column, of the five columns where it is the greatest.
  std::printf("  strongest, one for each key:\n");
  std::vector<std::pair<double, std::string>> columns;
  for (int col = 0; col < map.drawn.kv_len; ++col) {
    int most = 0;
    for (int row = 1; row < map.drawn.q_len; ++row) {
      if (map.weight(row, col) > map.weight(most, col)) most = row;
    }
    const double weight = map.weight(most, col);
    if (weight > 0) columns.emplace_back(weight, map.queries[most] + " -> " + map.keys[col]);
  }
  std::stable_sort(columns.begin(), columns.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  columns.resize(std::min<std::size_t>(columns.size(), 5));
  for (const auto& [weight, text] : columns) {
    std::printf("    %-28s %s\n", text.c_str(), percent(weight).c_str());
  }
}

}  // namespace attend
