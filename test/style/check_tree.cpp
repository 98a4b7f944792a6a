// SPDX-License-Identifier: MIT
// check_tree ROOT: holds the source tree against the rules that a compiler does not know: the order
// of the layers, the machine seam, names, lengths. Reports `file:line: text`, one line each.
// check_tree --self-test DIR: plants one violation of each kind under DIR and demands its report.
// The rules work on text with comments and literals blanked out, not on a parse: simple, and good
// enough for a tree that keeps to one style.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

namespace {

constexpr std::size_t kMaxColumns = 100;
constexpr std::size_t kMaxHeaderLines = 400;
constexpr std::size_t kMaxFunctionLines = 80;

// Headers that may be longer than kMaxHeaderLines: generated tables.
const std::set<std::string> kLongHeaders = {};

// Headers for the host alone, which may throw or assert: these and those of host/.
const std::set<std::string> kHostOnlyHeaders = {"include/attile/reference.h",
                                                "include/attile/host.h"};

struct Report {
  std::string file;
  std::size_t line;  // counted from 1
  std::string text;
};

// ---- text helpers -------------------------------------------------------------------------------

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)); }

std::string_view trim(std::string_view s) {
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

Strings split_lines(std::string_view text) {
  Strings lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

struct Word {
  std::string_view text;
  std::size_t at;
};

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> words;
  for (std::size_t i = 0; i < line.size();) {
    if (!is_word(line[i])) {
      ++i;
      continue;
    }
    const std::size_t start = i;
    while (i < line.size() && is_word(line[i])) ++i;
    words.push_back({line.substr(start, i - start), start});
  }
  return words;
}

std::vector<std::string_view> list_of(std::string_view names) {
  std::vector<std::string_view> list;
  for (const Word& word : words_of(names)) list.push_back(word.text);
  return list;
}

bool contains(const std::vector<std::string_view>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::size_t columns_of(std::string_view line) {
  // UTF-8 continuation bytes do not start a character.
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// ---- one file, its code and its comments apart --------------------------------------------------

// Of the same length as the source: `code` has blanks for comments and for the insides of literals,
// `comments` has blanks for everything else.
struct Split {
  std::string code;
  std::string comments;
};

// The end of the literal that begins at the quote `at`, one past its closing quote.
std::size_t literal_end(std::string_view s, std::size_t at) {
  const char quote = s[at];
  if (quote == '"' && at > 0 && s[at - 1] == 'R') {
    const std::size_t paren = s.find('(', at);
    if (paren == std::string_view::npos) return s.size();
    const std::string close = ")" + std::string(s.substr(at + 1, paren - at - 1)) + "\"";
    const std::size_t end = s.find(close, paren);
    return end == std::string_view::npos ? s.size() : end + close.size();
  }
  for (std::size_t i = at + 1; i < s.size() && s[i] != '\n'; ++i) {
    if (s[i] == '\\') {
      ++i;
    } else if (s[i] == quote) {
      return i + 1;
    }
  }
  return std::min(s.size(), s.find('\n', at));
}

// 1'000'000: the quote is inside a number.
bool is_digit_separator(std::string_view s, std::size_t at) {
  std::size_t start = at;
  while (start > 0 && (is_word(s[start - 1]) || s[start - 1] == '\'')) --start;
  return start < at && std::isdigit(static_cast<unsigned char>(s[start]));
}

Split split_code(std::string_view s) {
  Split out{std::string(s), std::string(s)};
  const auto blank = [&](std::string& where, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (where[i] != '\n') where[i] = ' ';
    }
  };
  std::size_t i = 0;
  while (i < s.size()) {
    std::size_t end = i + 1;
    const std::string_view two = s.substr(i, 2);
    if (two == "//" || two == "/*") {
      end = two == "//" ? s.find('\n', i) : s.find("*/", i + 2);
      end = end == std::string_view::npos ? s.size() : end + (two == "//" ? 0 : 2);
      blank(out.code, i, end);
    } else {
      if (s[i] == '"' || (s[i] == '\'' && !is_digit_separator(s, i))) {
        end = literal_end(s, i);
        if (end > i + 1) blank(out.code, i + 1, end - 1);
      }
      blank(out.comments, i, end);
    }
    i = end;
  }
  return out;
}

struct File {
  std::string path;  // relative to the root, with '/'
  std::string text;
  Strings lines;     // as they are
  Strings code;      // without comments and insides of literals
  Strings comments;  // without code
  std::string all_code;

  bool ends_with(std::string_view end) const { return path.ends_with(end); }
  bool is_header() const { return ends_with(".h") || ends_with(".cuh"); }
  bool is_source() const { return is_header() || ends_with(".cpp") || ends_with(".cu"); }
  bool is_library() const { return path.starts_with("include/"); }
  bool is_arch() const { return path.starts_with("include/attile/arch/"); }
  bool is_config() const { return path == "include/attile/core/config.h"; }
  bool is_host_only() const {
    return path.starts_with("include/attile/host/") || kHostOnlyHeaders.count(path);
  }
  bool is_cmake() const { return ends_with(".cmake") || ends_with("CMakeLists.txt"); }
};

File make_file(std::string path, std::string text) {
  File file;
  file.path = std::move(path);
  file.text = std::move(text);
  file.lines = split_lines(file.text);
  if (file.is_source()) {
    Split split = split_code(file.text);
    file.code = split_lines(split.code);
    file.comments = split_lines(split.comments);
    file.all_code = std::move(split.code);
  }
  return file;
}

// ---- the checks ---------------------------------------------------------------------------------

class Checker {
 public:
  explicit Checker(std::vector<File> files) : files_(std::move(files)) {}

  const std::vector<Report>& run() {
    for (const File& file : files_) {
      check_text(file);
      if (!file.is_source()) continue;
      check_comments(file);
      if (file.is_header()) check_header(file);
      if (file.is_library()) {
        check_includes(file);
        check_seam(file);
        check_lacking(file);
        check_kernel_body(file);
        check_old_names(file);
        check_names(file);
        check_static_asserts(file);
        check_functions(file);
      }
    }
    check_umbrella();
    std::stable_sort(reports_.begin(), reports_.end(), [](const Report& a, const Report& b) {
      return a.file != b.file ? a.file < b.file : a.line < b.line;
    });
    return reports_;
  }

 private:
  void report(const File& file, std::size_t index, std::string text) {
    reports_.push_back({file.path, index + 1, std::move(text)});
  }

  void check_text(const File& file);
  void check_comments(const File& file);
  void check_header(const File& file);
  void check_includes(const File& file);
  void check_seam(const File& file);
  void check_lacking(const File& file);
  void check_kernel_body(const File& file);
  void check_old_names(const File& file);
  void check_names(const File& file);
  void check_static_asserts(const File& file);
  void check_functions(const File& file);
  void check_umbrella();

  std::vector<File> files_;
  std::vector<Report> reports_;
};

// A package manager knows its registry, or is told a mirror of it.
constexpr std::string_view kRegistries[] = {
    "pypi"
    ".org",
    "pythonhosted"
    ".org",
    "conan"
    ".io",
    "vcpkg"
    ".io"};

void Checker::check_text(const File& file) {
  const bool limited = file.is_source() || file.is_cmake() || file.ends_with(".py");
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    if (!line.empty() && is_space(line.back())) report(file, i, "white space ends the line");
    if (line.find('\t') != std::string::npos) report(file, i, "tab character");
    if (limited && columns_of(line) > kMaxColumns) report(file, i, "line longer than 100 columns");
    for (const Word& word : words_of(line)) {
      if (word.text ==
              "TO"
              "DO" ||
          word.text ==
              "FIX"
              "ME") {
        report(file, i, "'" + std::string(word.text) + "': file an issue, or do it");
      }
    }
    for (const std::string_view host : kRegistries) {
      if (line.find(host) != line.npos) report(file, i, "the host of a package registry");
    }
  }
  if (!file.text.empty() && !file.text.ends_with('\n')) {
    report(file, file.lines.size() - 1, "the file does not end with a newline");
  }
}

// Prose may end in a semicolon too; code has a call, an assignment or a qualified name before it.
bool looks_like_code(std::string_view comment) {
  if (comment == "}" || comment.ends_with(") {")) return true;
  if (!comment.ends_with(';')) return false;
  if (comment.find('`') != comment.npos) return false;
  for (const std::string_view sign : {"=", "(", "->", "::", "++", "--"}) {
    if (comment.find(sign) != std::string_view::npos) return true;
  }
  return words_of(comment).size() <= 3;
}

// No commented-out code are documentation, ///, and the examples in a comment, which are set in by
// two columns against its first line.
void Checker::check_comments(const File& file) {
  std::size_t block_column = std::string::npos;
  for (std::size_t i = 0; i < file.comments.size(); ++i) {
    const std::string& line = file.comments[i];
    const std::size_t column = std::min(line.size(), line.find_first_not_of(" /*!<"));
    std::string_view comment = trim(std::string_view(line).substr(column));
    if (comment.ends_with("*/")) comment = trim(comment.substr(0, comment.size() - 2));
    const bool documentation = trim(line).starts_with("///");
    const bool follows = i > 0 && trim(file.code[i]).empty() && !trim(file.comments[i - 1]).empty();
    if (!follows) block_column = column;
    const bool example = follows && column >= block_column + 2;
    if (!documentation && !example && looks_like_code(comment)) {
      report(file, i, "commented-out code");
    }
  }
}

void Checker::check_header(const File& file) {
  const auto is_pragma_once = [](const std::string& line) { return trim(line) == "#pragma once"; };
  if (std::none_of(file.code.begin(), file.code.end(), is_pragma_once)) {
    report(file, 0, "header without #pragma once");
  }
  if (file.is_library() && file.lines.size() > kMaxHeaderLines && !kLongHeaders.count(file.path)) {
    report(file, kMaxHeaderLines, "header longer than 400 lines");
  }
  for (std::size_t i = 0; i < file.code.size(); ++i) {
    const std::vector<Word> words = words_of(file.code[i]);
    for (std::size_t w = 0; w + 1 < words.size(); ++w) {
      if (words[w].text == "using" && words[w + 1].text == "namespace") {
        report(file, i, "'using namespace' in a header");
      }
    }
  }
}

// What a line includes, with its brackets or quotes; empty for any other line.
std::string_view included(const File& file, std::size_t line) {
  std::string_view code = trim(file.code[line]);
  if (!code.starts_with('#')) return {};
  const std::vector<Word> words = words_of(code);
  if (words.empty() || words[0].text != "include") return {};
  const std::string_view raw = file.lines[line];
  const std::size_t open = raw.find_first_of("<\"", raw.find("include"));
  if (open == raw.npos) return {};
  const std::size_t close = raw.find(raw[open] == '<' ? '>' : '"', open + 1);
  if (close == raw.npos) return {};
  return raw.substr(open, close - open + 1);
}

// A header includes from its own layer and those before it. The parts of the CPU executor, host/,
// are a folder of the entry points.
const auto kLayers = list_of("core arch tile kernel host umbrella");

// The layer of a path below include/attile/, or kLayers.size() for a folder that is no layer.
std::size_t layer_of(std::string_view path) {
  const std::size_t slash = path.find('/');
  std::string_view layer = slash == path.npos ? "host" : path.substr(0, slash);
  if (path == "attile.cuh") layer = "umbrella";
  return std::find(kLayers.begin(), kLayers.end(), layer) - kLayers.begin();
}

std::string layer_name(std::size_t layer) {
  return kLayers[layer] == "host" ? "entry point" : std::string(kLayers[layer]);
}

void Checker::check_includes(const File& file) {
  constexpr std::string_view root = "include/attile/";
  if (!file.path.starts_with(root)) {
    report(file, 0, "a header outside include/attile");
    return;
  }
  const std::size_t own = layer_of(std::string_view(file.path).substr(root.size()));
  if (own == kLayers.size()) {
    report(file, 0, "a folder of include/attile that is no layer");
    return;
  }
  for (std::size_t i = 0; i < file.code.size(); ++i) {
    std::string_view target = included(file, i);
    if (target.empty()) continue;
    if (target.front() == '"' || target.find("..") != target.npos) {
      report(file, i, "include as <attile/layer/file>, not by a relative path");
      continue;
    }
    if (!target.starts_with("<attile/")) continue;
    target = target.substr(8, target.size() - 9);
    const std::size_t other = layer_of(target);
    if (other == kLayers.size()) {
      report(file, i, "<attile/" + std::string(target) + "> is in no layer");
    } else if (other > own) {
      report(file, i,
             "layer '" + layer_name(own) + "' may not include '" + layer_name(other) + "'");
    }
  }
}

// ---- the machine seam ---------------------------------------------------------------------------

const auto kMachineWords = list_of(
    "asm __asm __asm__ threadIdx blockIdx blockDim gridDim warpSize __shared__ __constant__ "
    "__managed__ __launch_bounds__ __grid_constant__ __maxnreg__ __noinline__ __activemask "
    "__nanosleep __trap __brkpt clock64 cooperative_groups __saturatef");

// A machine word may go on after these: __syncthreads_or, __shfl_xor_sync, atomicAdd_block...
const auto kMachinePrefixes = list_of(
    "__syncthreads __syncwarp __shfl __ballot __any __all __match_ __reduce_ __threadfence "
    "__cvta_ __ldg __ldc __ldlu __stc __stw __CUDA_ARCH __pipeline_ __cluster __isGlobal "
    "__isShared atomicAdd atomicSub atomicExch atomicMin atomicMax atomicInc atomicDec atomicCAS "
    "atomicAnd atomicOr atomicXor");

// Fast mathematics: __expf, __fmaf_rn, __frcp_rn... with the two underscores.
const auto kMathNames =
    list_of("exp log sin cos tan pow fma fadd fsub fmul fdiv frcp fsqrt frsqrt sincos tanhf");

const auto kAttributes = list_of("__global__ __device__ __host__ __forceinline__");

bool is_machine_word(std::string_view word) {
  const auto begins_with = [](std::string_view begin) {
    return [begin](std::string_view text) { return begin.starts_with(text); };
  };
  if (contains(kMachineWords, word)) return true;
  if (std::ranges::any_of(kMachinePrefixes, begins_with(word))) return true;
  return word.starts_with("__") && std::ranges::any_of(kMathNames, begins_with(word.substr(2)));
}

void Checker::check_seam(const File& file) {
  for (std::size_t i = 0; i < file.code.size(); ++i) {
    const std::string& code = file.code[i];
    for (const auto& [word, at] : words_of(code)) {
      const std::string quoted = "'" + std::string(word) + "'";
      if (word == "__CUDACC__" && !file.is_config()) {
        report(file, i, quoted + " outside core/config.h");
      }
      if (file.is_arch()) continue;
      if (is_machine_word(word)) report(file, i, quoted + " outside arch/");
      if (contains(kAttributes, word) && !file.is_config()) {
        report(file, i, quoted + " outside core/config.h and arch/");
      }
    }
    if (file.is_arch()) continue;
    if (code.find("cuda::ptx") != code.npos || included(file, i) == "<cuda/ptx>") {
      report(file, i, "cuda::ptx outside arch/");
    }
    if (code.find("<<<") != code.npos) report(file, i, "'<<<' outside arch/");
    if (trim(code).starts_with("#pragma unroll")) report(file, i, "#pragma unroll outside arch/");
  }
}

// No function is silently empty for an architecture that lacks its instruction: what is compiled
// for some architectures alone, and does not return, says what the others do instead.
void Checker::check_lacking(const File& file) {
  if (!file.is_arch()) return;
  for (std::size_t i = 0; i < file.code.size(); ++i) {
    const std::string_view begin = trim(file.code[i]);
    if (!begin.starts_with("#if __CUDA_ARCH__ >=") && !begin.starts_with("#if ATTILE_HAS_")) {
      continue;
    }
    bool has_asm = false, has_other = false;
    for (std::size_t j = i + 1; j < file.code.size() && trim(file.code[j]) != "#endif"; ++j) {
      for (const Word& word : words_of(file.code[j])) {
        has_asm |= word.text == "asm";
        has_other |= word.text == "else" || word.text == "return";
      }
    }
    if (has_asm && !has_other) {
      report(file, i, "an instruction without #else: call trap() where the target lacks it");
    }
  }
}

// ---- one language -------------------------------------------------------------------------------

// Identifiers that have a new name; docs/migration.md has the public ones.
const auto kOldNames = list_of(
    "RingPlace Ring KRing VRing QRing DoRing TilePlace PackedTilePlace BoxPlace VectorPlace "
    "Landing "
    "kLands WarpLine kAcross kDqAcross kDqLine kByRoles kPlain kPlainStep kThree kOne Handover "
    "GroupRows GroupForward ScoreGroup GradientGroup QueryTile QueryCursor kGroupRows "
    "kGroupRegisters kLoaderRegisters kComputing kLearn kClearsInPass kTellsAdded kTellers "
    "kKeepsTurns kHeadsAbreast slices_abreast slice_time dq_sum dq_sum_of add_to_sum turn_of "
    "begin_turn pass_turn take_turn end_turn keep_turns clear_share share_taken share_cleared "
    "await_zeros give_registers take_registers wgmma_touches touch_sums many_rows score_unit "
    "half_unit kSlack kRescaleSlack raise_maximum send_tile key_tile column_of kColumnsSharedBytes "
    "backward_columns_kernel kCluster PackedTileCoord kSchedules VaryingTiles ScheduledTiles "
    "drop_in_operand fast_log2_probabilities kLongUnmasked WarpCount ResidentBlocks "
    "kResidentBlocks kFetchEarly");

void Checker::check_old_names(const File& file) {
  for (std::size_t i = 0; i < file.code.size(); ++i) {
    for (const auto& [word, at] : words_of(file.code[i])) {
      if (!contains(kOldNames, word)) continue;
      report(file, i,
             "'" + std::string(word) + "' has a new name (docs/migration.md has the public ones)");
    }
  }
}

// ---- one work tile ------------------------------------------------------------------------------

// Where a row lies, and how long its sequence is, a kernel knows from its work tile: these are for
// the problem and its schedules. Standard attention is products of whole tensors, and has none.
const auto kProblemWords = list_of("q_heads kv_heads group_heads packs batch_heads bounds");

bool is_kernel_body(std::string_view path) {
  const std::string_view folder = "include/attile/kernel/";
  if (!path.starts_with(folder) || path.starts_with("include/attile/kernel/standard/"))
    return false;
  std::string_view name = path.substr(path.rfind('/') + 1);
  name = name.substr(0, name.find('.'));
  return name != "problem" && !name.ends_with("_params") && !name.ends_with("_schedule");
}

void Checker::check_kernel_body(const File& file) {
  if (!is_kernel_body(file.path)) return;
  for (std::size_t i = 0; i < file.code.size(); ++i) {
    for (const auto& [word, at] : words_of(file.code[i])) {
      if (!contains(kProblemWords, word)) continue;
      report(file, i, "'" + std::string(word) + "' in a kernel, which indexes by its work tile");
    }
  }
}

void Checker::check_names(const File& file) {
  for (std::size_t i = 0; i < file.code.size(); ++i) {
    const std::string& code = file.code[i];
    const std::vector<Word> words = words_of(code);
    if (trim(code).starts_with('#')) {
      if (words.size() > 1 && words[0].text == "define" && !words[1].text.starts_with("ATTILE_")) {
        report(file, i, "macro '" + std::string(words[1].text) + "' without the prefix ATTILE_");
      }
      continue;
    }
    if (file.is_host_only()) continue;
    for (const auto& [word, at] : words) {
      const bool call = trim(code.substr(at + word.size())).starts_with('(');
      const bool ends_program = word == "throw" || word == "abort" || (word == "exit" && call) ||
                                (word == "assert" && call);
      if (ends_program || word.ends_with("printf") || word == "cout" || word == "cerr") {
        report(file, i, "'" + std::string(word) + "': the library never prints, throws or exits");
      }
    }
  }
}

std::size_t line_at(std::string_view text, std::size_t at) {
  return std::count(text.begin(), text.begin() + at, '\n');
}

void Checker::check_static_asserts(const File& file) {
  const std::string& code = file.all_code;
  for (const auto& [word, at] : words_of(code)) {
    if (word != "static_assert") continue;
    std::size_t end = at;
    for (int depth = 0; end < code.size(); ++end) {
      if (code[end] == '(') ++depth;
      if (code[end] == ')' && --depth == 0) break;
    }
    if (!trim(code.substr(at, end - at)).ends_with('"')) {
      report(file, line_at(code, at), "static_assert without a message");
    }
  }
}

// ---- function lengths ---------------------------------------------------------------------------

std::string without_preprocessor(const File& file) {
  std::string code = file.all_code;
  std::size_t start = 0;
  bool continued = false;
  while (start < code.size()) {
    const std::size_t end = std::min(code.size(), code.find('\n', start));
    const std::string_view line = std::string_view(code).substr(start, end - start);
    const bool directive = continued || trim(line).starts_with('#');
    continued = directive && line.ends_with('\\');
    if (directive) std::fill(code.begin() + start, code.begin() + end, ' ');
    start = end + 1;
  }
  return code;
}

// Whether what stands before a '{' heads a function: it has parameters and names no type,
// namespace or concept outside its template parameters.
bool heads_function(std::string_view head) {
  static const std::set<std::string_view> kOthers = {"namespace", "struct", "class",
                                                     "union",     "enum",   "concept"};
  bool parameters = false;
  int parens = 0;
  int angles = 0;
  for (std::size_t i = 0; i < head.size(); ++i) {
    if (head[i] == '(') ++parens, parameters = true;
    if (head[i] == ')') --parens;
    if (head[i] == '<') ++angles;
    if (head[i] == '>' && angles > 0) --angles;
    const bool word_start = is_word(head[i]) && (i == 0 || !is_word(head[i - 1]));
    if (!word_start || parens > 0 || angles > 0) continue;
    if (kOthers.count(words_of(head.substr(i)).front().text)) return false;
  }
  return parameters;
}

void Checker::check_functions(const File& file) {
  struct Brace {
    std::size_t at;
    bool function;
    int parens;  // open around the brace
  };
  const std::string code = without_preprocessor(file);
  std::vector<Brace> open;
  std::size_t head = 0;
  int parens = 0;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '(') ++parens;
    if (c == ')') --parens;
    if (c == '{') {
      const bool inside =
          std::any_of(open.begin(), open.end(), [](const Brace& b) { return b.function; });
      const bool function =
          !inside && heads_function(std::string_view(code).substr(head, i - head));
      open.push_back({i, function, parens});
      parens = 0;
    }
    if (c == '}' && !open.empty()) {
      const std::size_t first = line_at(code, open.back().at);
      if (open.back().function && line_at(code, i) - first + 1 > kMaxFunctionLines) {
        report(file, first, "function longer than 80 lines");
      }
      parens = open.back().parens;
      open.pop_back();
    }
    if ((c == ';' && parens == 0) || c == '{' || c == '}') head = i + 1;
  }
}

// ---- the umbrella header ------------------------------------------------------------------------

// CUB alone costs a user 11 seconds of compilation, so attile.cuh must not reach it.
void Checker::check_umbrella() {
  std::map<std::string, const File*> headers;
  for (const File& file : files_) {
    if (file.is_library()) headers[file.path] = &file;
  }
  std::set<std::string> seen;
  std::vector<std::string> to_visit = {"include/attile/attile.cuh"};
  while (!to_visit.empty()) {
    const std::string path = to_visit.back();
    to_visit.pop_back();
    if (!headers.count(path) || !seen.insert(path).second) continue;
    const File& file = *headers[path];
    for (std::size_t i = 0; i < file.code.size(); ++i) {
      const std::string target(included(file, i));
      if (target.starts_with("<attile/")) {
        to_visit.push_back("include/" + target.substr(1, target.size() - 2));
      }
      for (const char* heavy : {"<cub/", "<thrust/", "<cublas"}) {
        if (target.starts_with(heavy)) report(file, i, "attile.cuh reaches " + target);
      }
    }
  }
}

// ---- the tree -----------------------------------------------------------------------------------

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_checked(const fs::path& path) {
  static const std::set<std::string> kExtensions = {".h",     ".cuh", ".cpp",  ".cu", ".in",  ".md",
                                                    ".cmake", ".py",  ".json", ".sh", ".toml"};
  static const std::set<std::string> kNames = {"CMakeLists.txt", "run", ".clang-format"};
  return kExtensions.count(path.extension().string()) || kNames.count(path.filename().string());
}

std::vector<File> read_tree(const fs::path& root) {
  std::vector<File> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::end(it); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory()) {
      const bool hidden = name.starts_with('.') && name != ".ci";
      if (hidden || (it.depth() == 0 && name.starts_with("build"))) it.disable_recursion_pending();
    } else if (it->is_regular_file() && is_checked(it->path())) {
      files.push_back(
          make_file(it->path().lexically_relative(root).generic_string(), read(it->path())));
    }
  }
  return files;
}

int check(const fs::path& root) {
  std::vector<File> files = read_tree(root);
  const auto headers =
      std::count_if(files.begin(), files.end(), [](const File& f) { return f.is_library(); });
  if (headers == 0) {
    std::printf("%s: no header below include/\n", root.string().c_str());
    return 1;
  }
  const std::size_t count = files.size();
  Checker checker(std::move(files));
  const std::vector<Report>& reports = checker.run();
  for (const Report& r : reports) {
    std::printf("%s:%zu: %s\n", r.file.c_str(), r.line, r.text.c_str());
  }
  std::printf("%zu files, %zu violations\n", count, reports.size());
  return reports.empty() ? 0 : 1;
}

// ---- the self-test ------------------------------------------------------------------------------

struct Planted {
  std::string path;
  std::string text;
  std::size_t line;  // 0: no report
  std::string report;
};

std::string repeat(const std::string& text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::vector<Planted> planted_violations() {
  const std::string top = "#pragma once\n";
  std::vector<Planted> all;
  int number = 0;
  const auto in = [&](const std::string& folder, const std::string& text, std::size_t line,
                      const std::string& report) {
    const std::string path = folder + "v" + std::to_string(++number) + ".h";
    all.push_back({path, top + text, line, report});
  };
  const std::string library = "include/attile/";
  const std::string core = library + "core/";
  const std::string arch = library + "arch/";
  const std::string tile = library + "tile/";
  const std::string kernel = library + "kernel/portable/";

  in(core, "#include <attile/arch/a.cuh>\n", 2, "layer 'core' may not include 'arch'");
  in(arch, "#include <attile/tile/a.cuh>\n", 2, "layer 'arch' may not include 'tile'");
  in(tile, "#include <attile/kernel/a.cuh>\n", 2, "layer 'tile' may not include 'kernel'");
  in(kernel, "#include <attile/forward.cuh>\n", 2, "layer 'kernel' may not include 'entry point'");
  in(kernel, "#include <attile/host/simd.h>\n", 2, "layer 'kernel' may not include 'entry point'");
  in(library, "#include <attile/attile.cuh>\n", 2,
     "layer 'entry point' may not include 'umbrella'");
  in(core, "#include <attile/warp/a.cuh>\n", 2, "<attile/warp/a.cuh> is in no layer");
  in(core, "#include \"math.h\"\n", 2, "include as <attile/layer/file>");
  in(core, "#include <attile/core/../math.h>\n", 2, "include as <attile/layer/file>");
  in(library + "warp/", "\n", 1, "no layer");
  in("include/other/", "\n", 1, "outside include/attile");

  for (const char* word :
       {"asm(\"\")", "threadIdx.x", "blockIdx.y", "blockDim.x", "gridDim.x", "__syncthreads()",
        "__syncthreads_or(1)", "__shfl_xor_sync(1, 2, 3)", "__syncwarp()", "__ballot_sync(1, 2)",
        "__any_sync(1, 2)", "atomicAdd(p, 1)", "__shared__", "__launch_bounds__(1)",
        "__grid_constant__", "__expf(x)", "__fmaf_rn(x, y, z)", "__ldg(p)", "__threadfence()"}) {
    in(kernel, std::string("auto x = ") + word + ";\n", 2, "outside arch/");
  }
  in(tile, "#if __CUDA_ARCH__ >= 900\n#endif\n", 2, "'__CUDA_ARCH__' outside arch/");
  in(tile, "using cuda::ptx::get_sreg_tid_x;\n", 2, "cuda::ptx outside arch/");
  in(tile, "#include <cuda/ptx>\n", 2, "cuda::ptx outside arch/");
  in(kernel, "kernel<<<1, 1>>>();\n", 2, "'<<<' outside arch/");
  in(kernel, "#pragma unroll\n", 2, "#pragma unroll outside arch/");
  in(arch, "#ifdef __CUDACC__\n#endif\n", 2, "'__CUDACC__' outside core/config.h");
  for (const char* word : {"__global__", "__device__", "__host__", "__forceinline__"}) {
    in(tile, std::string(word) + " void f();\n", 2, "outside core/config.h and arch/");
  }

  in(arch, "void f() {\n#if __CUDA_ARCH__ >= 900\n  asm(\"x;\");\n#endif\n}\n", 3,
     "an instruction without #else");

  for (const char* word : {"head / p.group_heads", "at % p.q_heads", "p.kv_heads", "p.bounds.q_len",
                           "p.packs", "p.batch_heads"}) {
    in(kernel, std::string("auto x = ") + word + ";\n", 2, "which indexes by its work tile");
  }
  for (const char* name : {"portable/forward_params.cuh", "sm90/x_schedule.cuh", "problem.cuh",
                           "standard/softmax.cuh"}) {
    all.push_back({library + "kernel/" + name, top + "int x = p.q_heads;\n", 0, ""});
  }

  for (const char* name : {"tile::Ring<T, 2> k;", "p.turn_of(at);", "int kGroupRows = 64;"}) {
    in(kernel, std::string(name) + "\n", 2, "has a new name");
    in(core, std::string(name) + "\n", 2, "has a new name");
  }

  in(core, "using namespace std;\n", 2, "'using namespace' in a header");
  in("test/", "using namespace std;\n", 2, "'using namespace' in a header");
  in(core, "#define WARP 32\n", 2, "macro 'WARP' without the prefix");
  in(core, "#  define WARP 32\n", 2, "macro 'WARP' without the prefix");
  all.push_back({"include/attile/core/unguarded.h", "int x;\n", 1, "without #pragma once"});
  all.push_back({"test/unguarded.cuh", "int x;\n", 1, "without #pragma once"});
  in(core, "static_assert(is_same<int, long>);\n", 2, "static_assert without a message");
  in(core, "\nstatic_assert(f(\"text\"),\n  g(1));\n", 3, "static_assert without a message");
  in(core, "// " + repeat("x", 98) + "\n", 2, "line longer than 100 columns");
  all.push_back({"test/wide.cpp", "// " + repeat("x", 98) + "\n", 1, "longer than 100 columns"});
  all.push_back({"cmake/wide.cmake", "# " + repeat("x", 99) + "\n", 1, "longer than 100 columns"});
  in(core, repeat("\n", 400), 401, "header longer than 400 lines");
  in(core, "\nvoid f(int x) {\n" + repeat("  g();\n", 79) + "}\n", 3, "function longer than 80");
  in(core,
     "template <class T>\n  requires(f<T>())\nstruct A : B {\n  int f() const {\n" +
         repeat("    g({1}, [] { h(); });\n", 79) + "  }\n};\n",
     5, "function longer than 80");

  in(core, "// x = f(y);\n", 2, "commented-out code");
  in(core, "/* return x; */\n", 2, "commented-out code");
  in(core, "/* Text.\n   return x;\n*/\n", 3, "commented-out code");
  in(core, "int x;  // int y;\n", 2, "commented-out code");
  in(core, "// if (x) {\n", 2, "commented-out code");
  in(core, "// The launch:\n//   f(x);\n// g(x);\n", 4, "commented-out code");
  in(core,
     "// TO"
     "DO: later\n",
     2, "file an issue");
  all.push_back({"README.md",
                 "FIX"
                 "ME\n",
                 1, "file an issue"});
  all.push_back({"docs/registry.md",
                 "pypi"
                 ".org\n",
                 1, "the host of a package registry"});
  for (const char* call : {"printf(\"\")", "std::fprintf(f, \"\")", "exit(1)", "throw 1",
                           "std::abort()", "assert(x)", "std::cout << 1"}) {
    in(kernel, std::string("inline void f() { ") + call + "; }\n", 2, "never prints, throws");
  }
  in(core, "int x; \n", 2, "white space ends the line");
  all.push_back({"docs/a.md", "text\n\ttext\n", 2, "tab character"});
  in(core, "int x;", 2, "does not end with a newline");

  all.push_back({"include/attile/attile.cuh", top + "#include <attile/reach.cuh>\n", 0, ""});
  all.push_back({"include/attile/reach.cuh", top + "#include <cub/cub.cuh>\n", 2, "reaches <cub/"});
  return all;
}

// What looks like a violation and is none.
std::vector<Planted> planted_traps() {
  const std::string top = "#pragma once\n";
  return {
      {"include/attile/core/config.h",
       top + "#ifdef __CUDACC__\n#define ATTILE_DEVICE __device__ __forceinline__\n#endif\n", 0,
       ""},
      {"include/attile/arch/all.cuh",
       top + "#include <attile/core/config.h>\nasm(\"\"); __syncthreads(); f<<<1, 1>>>();\n"
             "#if __CUDA_ARCH__\n#pragma unroll\n#endif\n__device__ int x = threadIdx.x;\n"
             "#if __CUDA_ARCH__ >= 900\nasm(\"\");\n#else\ntrap();\n#endif\n",
       0, ""},
      {"include/attile/host/simd.h", top + "#include <attile/reference.h>\n", 0, ""},
      {"include/attile/reference.h", top + "inline void f() { throw 1; }\n", 0, ""},
      {"include/attile/kernel/traps.cuh",
       top + "// threadIdx and asm in a comment; prose that ends here;\n"
             "const char* text = \"threadIdx // printf( __shared__\\\"\"; /* <<< */\n"
             "constexpr int million = 1'000'000; constexpr char quote = '\"';\n"
             "auto raw = R\"x(throw 1; \" asm)x\";\n"
             "static_assert(same<int, long>(1, 2),\n  \"with a (message)\");\n"
             "/// Element x of f(y);\nint x;\n"
             "// The launch:\n//   x = f(y);\n//   g(x);\n// with `f(x);` of x;\n"
             "int __half2float_is_no_machine_word; int no_throw, exits;\n",
       0, ""},
      {"include/attile/kernel/short_functions.cuh",
       top + "namespace a {\nstruct B {\n  int f() { return 1; }\n" + repeat("  int g();\n", 90) +
           "};\nint table[] = {\n" + repeat("1,\n", 90) + "};\nvoid h() {\n" +
           repeat("  f();\n", 78) + "}\n}  // namespace a\n",
       0, ""},
      {"test/source.cpp", "using namespace std;\nint main() { printf(\"x\"); }\n", 0, ""},
      {"build/ignored.h", "using namespace std;", 0, ""},
      {".git/ignored.h", "using namespace std;", 0, ""},
  };
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

int self_test(const fs::path& work) {
  const fs::path root = work / "planted_tree";
  fs::remove_all(root);
  std::vector<Planted> planted = planted_violations();
  for (Planted& trap : planted_traps()) planted.push_back(std::move(trap));
  for (const Planted& p : planted) write(root / p.path, p.text);

  Checker checker(read_tree(root));
  std::vector<Report> reports = checker.run();
  int failures = 0;
  int violations = 0;
  for (const Planted& p : planted) {
    const auto matches = [&](const Report& r) {
      return r.file == p.path && r.line == p.line && r.text.find(p.report) != std::string::npos;
    };
    if (p.line == 0) continue;
    ++violations;
    const auto found = std::find_if(reports.begin(), reports.end(), matches);
    if (found != reports.end()) {
      reports.erase(found);
    } else {
      std::printf("not reported: %s:%zu: %s\n", p.path.c_str(), p.line, p.report.c_str());
      ++failures;
    }
  }
  for (const Report& r : reports) {
    std::printf("wrongly reported: %s:%zu: %s\n", r.file.c_str(), r.line, r.text.c_str());
    ++failures;
  }
  fs::remove_all(root);
  std::printf("%d planted violations, %d failures\n", violations, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--self-test") return self_test(argv[2]);
  if (argc == 2) return check(argv[1]);
  std::fprintf(stderr, "usage: check_tree ROOT\n       check_tree --self-test DIR\n");
  return 64;
}
