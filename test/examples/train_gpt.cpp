// SPDX-License-Identifier: MIT
// The parts of examples/08_train_gpt that need no device: the command line, the text, the curves.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "../../examples/08_train_gpt/curves.h"
#include "../../examples/08_train_gpt/options.h"
#include "../../examples/08_train_gpt/text.h"
#include "support/catch.h"

namespace {

using namespace gpt;

TEST_CASE("train_gpt: the command line") {
  const Options defaults = gpt::parse({});
  CHECK(defaults.attention == "both");
  CHECK(defaults.text.empty());
  const Options options =
      gpt::parse({"--steps",  "7",       "--layers", "2",      "--heads",     "3",      "--seqlen",
                  "33",       "--batch", "5",        "--rate", "0.0006",      "--seed", "0",
                  "--report", "1",       "--text",   "a b",    "--attention", "attile"});
  CHECK(options.steps == 7);
  CHECK(options.layers == 2);
  CHECK(options.heads == 3);
  CHECK(options.len == 33);
  CHECK(options.batch == 5);
  CHECK(options.rate == 0.0006);
  CHECK(options.seed == 0);
  CHECK(options.report_every == 1);
  CHECK(options.text == "a b");
  CHECK(options.attention == "attile");
  CHECK(gpt::parse({"--help"}).help);
}

TEST_CASE("train_gpt: what the command line refuses") {
  const auto sentence = [](const std::vector<std::string>& words) -> std::string {
    try {
      static_cast<void>(gpt::parse(words));
    } catch (const gpt::UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(sentence({"--stpes", "7"}) == "there is no option '--stpes'; see --help.");
  CHECK(sentence({"--steps"}) == "--steps needs a value.");
  CHECK(sentence({"--steps", "1"}) == "--steps needs a whole number from 2 to 1000000, not '1'.");
  CHECK(sentence({"--heads", "2x"}) == "--heads needs a whole number from 1 to 64, not '2x'.");
  CHECK(sentence({"--batch", ""}) == "--batch needs a whole number from 1 to 1048576, not ''.");
  for (const std::string wrong : {"0", "2", "1e-3x", "nan", ""}) {
    CHECK(sentence({"--rate", wrong}) ==
          "--rate needs a number above 0, up to 1, not '" + wrong + "'.");
  }
  CHECK(sentence({"--attention", "eager"}) ==
        "--attention needs one of both, attile, standard, not 'eager'.");
  CHECK(sentence({"--batch", "16384", "--seqlen", "512", "--heads", "1"}) ==
        "--batch times --seqlen times --heads must be below 8388608.");
  CHECK(sentence({"--batch", "16383", "--seqlen", "512", "--heads", "1"}) == "accepted");
}

TEST_CASE("train_gpt: a target is the token behind") {
  const std::string text =
      "\xff"
      "bcdefghij";
  bool begins = false, ends = false;
  for (int step = 0; step < 100; ++step) {
    const Batch batch = draw(text, 2, 4, 1, step);
    REQUIRE(batch.tokens.size() == 8);
    REQUIRE(batch.targets.size() == 8);
    for (int i = 0; i < 8; ++i) {
      const auto at = text.find(static_cast<char>(batch.tokens[i]));
      REQUIRE(at != std::string::npos);
      CHECK(batch.targets[i] == static_cast<unsigned char>(text.at(at + 1)));
      begins = begins || batch.tokens[i] == 0xff;
      ends = ends || batch.targets[i] == 'j';
    }
    CHECK(batch.tokens == draw(text, 2, 4, 1, step).tokens);
  }
  CHECK((begins && ends));
  CHECK(draw(text, 8, 4, 1, 0).tokens != draw(text, 8, 4, 1, 1).tokens);
  CHECK(draw(text, 8, 4, 1, 0).tokens != draw(text, 8, 4, 2, 0).tokens);
  CHECK(draw("abcde", 1, 4, 1, 0).targets == std::vector<int>{'b', 'c', 'd', 'e'});
}

TEST_CASE("train_gpt: the text of files and folders") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::current_path() / "train_gpt_text";
  fs::remove_all(folder);
  fs::create_directories(folder / "b");
  std::ofstream(folder / "b" / "two.md") << "two";
  std::ofstream(folder / "a.h") << "one ";
  std::ofstream(folder / "a.bin") << "not text";
  CHECK(read_text(folder.string(), "") == "one two");
  CHECK(read_text((folder / "a.bin").string(), "") == "not text");
  CHECK_THROWS_AS(read_text((folder / "none").string(), ""), TextError);
  fs::remove_all(folder);
}

TEST_CASE("train_gpt: curves are the same within twice what nudged ones are apart") {
  const Curve standard(40, 1.0);
  Curve near = standard, far = standard, early = standard, nudged = standard, broken = standard;
  nudged[20] = 1.1;
  near[15] = 0.81;
  far[39] = 1.21;
  early[5] = 1.19;
  broken[30] = std::numeric_limits<double>::quiet_NaN();
  CHECK(is_same(standard, standard, {standard}));
  CHECK(is_same(near, standard, {standard, nudged}));
  CHECK_FALSE(is_same(near, standard, {standard}));
  CHECK_FALSE(is_same(far, standard, {nudged}));
  CHECK_FALSE(is_same(early, standard, {nudged}));  // long before the nudged one is
  CHECK_FALSE(is_same(broken, standard, {nudged}));
  CHECK_FALSE(is_same(standard, standard, {broken}));
}

}  // namespace
