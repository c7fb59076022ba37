// Which heads a trace gets, and whether they fit it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/half.h"
#include "tests/trace/raw_file.h"
#include "trace/trace.h"

namespace dspark::test {
namespace {

std::vector<float> numbers(const HostMatrix& matrix) {
  EXPECT_EQ(matrix.type, DType::f32);
  std::vector<float> out(matrix.bytes.size() / 4);
  std::memcpy(out.data(), matrix.bytes.data(), matrix.bytes.size());
  return out;
}

class HeadsOf : public ::testing::Test {
 protected:
  HeadsOf() {
    make_hidden_anchors(trace_path);
    make_heads(heads_path);
  }
  [[nodiscard]] Heads load(const std::string& heads_override = {}, std::uint64_t budget = 0) const {
    const auto trace = TraceFile::open(trace_path);
    return load_heads(*trace, heads_override, budget);
  }
  void expect_bad(const std::vector<std::string>& parts) const {
    expect_trace_error(parts, [&] { (void)load(heads_path); });
  }
  // Loads with heads changed by `how`, which must be refused.
  void expect_bad_after(const std::function<void(RawFile&)>& how,
                        const std::vector<std::string>& parts) const {
    make_heads(heads_path);
    {
      RawFile file = RawFile::edit(heads_path);
      how(file);
    }
    expect_bad(parts);
  }
  TemporaryFolder dir;
  std::string trace_path = dir.file("t.h5");
  std::string heads_path = dir.file("heads.h5");
};

TEST_F(HeadsOf, AreReadFromAHeadsFile) {
  const Heads heads = load(heads_path);
  EXPECT_EQ(heads.file, heads_path);
  EXPECT_EQ(heads.markov_w1.rows, kV);
  EXPECT_EQ(heads.markov_w1.cols, kR);
  EXPECT_EQ(numbers(heads.markov_w1), ramp(kV * kR));
  EXPECT_EQ(numbers(heads.markov_w2), ramp(kV * kR));
  EXPECT_EQ(heads.confidence_weight, ramp(kH + kR));
  EXPECT_EQ(heads.confidence_bias, -0.5f);
  EXPECT_TRUE(heads.confidence_with_markov);
  EXPECT_EQ(numbers(heads.lm_head), ramp(kV * kHt));
  EXPECT_EQ(numbers(heads.draft_lm_head), ramp(kV * kH));
}

// --- where they come from ---

TEST_F(HeadsOf, TheOverrideWinsOverTheGroupWhichWinsOverTheFileBeside) {
  RawFile::edit(trace_path).text("heads_file", "heads.h5");
  EXPECT_EQ(load().file, heads_path);
  {
    RawFile file = RawFile::edit(trace_path);
    add_heads(file);
  }
  EXPECT_EQ(load().file, trace_path);
  EXPECT_EQ(load(heads_path).file, heads_path);
}

TEST_F(HeadsOf, AttributesOfHeadsInsideATraceStandOnTheGroup) {
  {
    RawFile file = RawFile::edit(trace_path);
    add_heads(file);
    file.integer("markov_rank", kR, "/heads");
    file.integer("vocab_size", kV, "/heads");
    file.integer("confidence_with_markov", 1, "/heads");
  }
  EXPECT_TRUE(load().confidence_with_markov);
  RawFile::edit(trace_path).integer("markov_rank", kR + 1, "/heads");
  expect_trace_error({"/heads, attribute 'markov_rank'", "is 3"}, [&] { (void)load(); });
}

TEST_F(HeadsOf, AnotherTraceWithHeadsServesAsAHeadsFile) {
  const std::string other = dir.file("other.h5");
  make_hidden_anchors(other);
  {
    RawFile file = RawFile::edit(other);
    add_heads(file);
  }
  EXPECT_EQ(load(other).file, other);
}

TEST_F(HeadsOf, AFileWithoutHeadsIsNoHeadsFile) {
  expect_trace_error({trace_path, "/heads", "is missing"}, [&] { (void)load(trace_path); });
  expect_trace_error({"none.h5", "no such file"}, [&] { (void)load(dir.file("none.h5")); });
  RawFile::edit(trace_path).text("heads_file", "none.h5");
  expect_trace_error({"none.h5", "no such file"}, [&] { (void)load(); });
}

TEST_F(HeadsOf, ATraceOfLogitsNeedsNoHeads) {
  make_anchors(trace_path);
  const Heads heads = load();
  EXPECT_EQ(heads.file, "");
  EXPECT_FALSE(heads.has_markov());
  EXPECT_FALSE(heads.has_confidence());
  EXPECT_TRUE(heads.lm_head.empty());
}

TEST_F(HeadsOf, ATraceOfHiddenStatesNeedsThem) {
  expect_trace_error({trace_path, "has no heads", "stand in for logits", "--heads"},
                     [&] { (void)load(); });
}

// --- what is loaded ---

TEST_F(HeadsOf, VocabularyMatricesAreLoadedOnlyWhereHiddenStatesStandIn) {
  make_anchors(trace_path);
  const Heads heads = load(heads_path);
  EXPECT_TRUE(heads.has_markov());
  EXPECT_TRUE(heads.has_confidence());
  EXPECT_TRUE(heads.lm_head.empty());
  EXPECT_TRUE(heads.draft_lm_head.empty());
}

TEST_F(HeadsOf, DraftLogitsWinOverDraftHidden) {
  RawFile::edit(trace_path).floats("/anchors/draft_logits", {5, kP, kV}, ramp(5 * kP * kV));
  const Heads heads = load(heads_path);
  EXPECT_FALSE(heads.lm_head.empty());
  EXPECT_TRUE(heads.draft_lm_head.empty());
}

TEST_F(HeadsOf, TargetLogitsWinOverTargetHidden) {
  RawFile::edit(trace_path).floats("/anchors/target_logits", {5, kV}, ramp(5 * kV));
  const Heads heads = load(heads_path);
  EXPECT_TRUE(heads.lm_head.empty());
  EXPECT_FALSE(heads.draft_lm_head.empty());
}

TEST_F(HeadsOf, LmHeadServesTheDraftOnlyIfTheHiddenSizesAreEqual) {
  RawFile::edit(heads_path).remove("/heads/draft_lm_head");
  expect_bad({"/heads/lm_head", "4 columns", "draft_hidden", "3"});

  // Equal sizes.
  {
    RawFile file = RawFile::edit(trace_path);
    file.integer("target_hidden_size", kH);
    file.floats("/anchors/target_hidden", {5, kH}, ramp(5 * kH));
  }
  {
    RawFile file = RawFile::edit(heads_path);
    file.integer("target_hidden_size", kH);
    file.floats("/heads/lm_head", {kV, kH}, ramp(kV * kH));
  }
  const Heads heads = load(heads_path);
  EXPECT_EQ(heads.lm_head.cols, kH);
  EXPECT_TRUE(heads.draft_lm_head.empty());
}

TEST_F(HeadsOf, AMissingLmHeadIsNamedWithTheReason) {
  expect_bad_after([](RawFile& f) { f.remove("/heads/lm_head"); },
                   {"/heads/lm_head", "is missing", "stand in for logits"});
}

TEST_F(HeadsOf, MarkovAndConfidenceAreOptional) {
  {
    RawFile file = RawFile::edit(heads_path);
    for (const char* name : {"markov_w1", "markov_w2", "confidence_weight", "confidence_bias"}) {
      file.remove(std::string("/heads/") + name);
    }
    file.remove_attribute("confidence_with_markov");
  }
  const Heads heads = load(heads_path);
  EXPECT_FALSE(heads.has_markov());
  EXPECT_FALSE(heads.has_confidence());
}

TEST_F(HeadsOf, HalfOfAMarkovHeadIsRefused) {
  expect_bad_after([](RawFile& f) { f.remove("/heads/markov_w1"); }, {"/heads/markov_w1"});
  expect_bad_after([](RawFile& f) { f.remove("/heads/markov_w2"); }, {"/heads/markov_w2"});
}

TEST_F(HeadsOf, TheConfidenceWeightSaysWhetherItHasMarkovFeatures) {
  {
    RawFile file = RawFile::edit(heads_path);
    file.floats("/heads/confidence_weight", {kH}, ramp(kH));
    file.remove_attribute("confidence_with_markov");
    file.floats("/heads/confidence_bias", {}, {0.75f});  // a scalar
  }
  const Heads heads = load(heads_path);
  EXPECT_FALSE(heads.confidence_with_markov);
  EXPECT_EQ(heads.confidence_bias, 0.75f);
  RawFile::edit(heads_path).integer("confidence_with_markov", 1);
  expect_bad({"'confidence_with_markov'", "is 1", "3 numbers"});
  RawFile::edit(heads_path).integer("confidence_with_markov", 0);
  EXPECT_FALSE(load(heads_path).confidence_with_markov);
}

TEST_F(HeadsOf, ConfidenceBiasDefaultsToZero) {
  RawFile::edit(heads_path).remove("/heads/confidence_bias");
  EXPECT_EQ(load(heads_path).confidence_bias, 0.0f);
}

TEST_F(HeadsOf, ABooleanIsNoInteger) {
  expect_bad_after(
      [](RawFile& f) {
        const hid_t boolean = H5Tenum_create(H5T_NATIVE_INT8);
        const std::int8_t no = 0, yes = 1;
        H5Tenum_insert(boolean, "FALSE", &no);
        H5Tenum_insert(boolean, "TRUE", &yes);
        f.attribute("/", "confidence_with_markov", boolean, boolean, &yes);
        H5Tclose(boolean);
      },
      {"'confidence_with_markov'", "enumeration"});
}

// --- shapes ---

TEST_F(HeadsOf, ShapesThatDisagreeAreNamed) {
  const std::vector<std::pair<std::string, Dims>> cases = {{"markov_w1", {kV + 1, kR}},
                                                           {"markov_w1", {kV * kR}},
                                                           {"markov_w2", {kV, kR + 1}},
                                                           {"lm_head", {kV, kHt + 1}},
                                                           {"lm_head", {kV - 1, kHt}},
                                                           {"draft_lm_head", {kV, kH + 1}},
                                                           {"confidence_weight", {kH + kR + 1}},
                                                           {"confidence_weight", {1, kH + kR}},
                                                           {"confidence_bias", {2}}};
  for (const auto& [name, dims] : cases) {
    expect_bad_after([&, n = name, d = dims](RawFile& f) { f.floats("/heads/" + n, d, ramp(100)); },
                     {"/heads/" + name});
  }
}

TEST_F(HeadsOf, AttributesThatDisagreeAreNamed) {
  for (const char* name : {"vocab_size", "hidden_size", "target_hidden_size", "markov_rank"}) {
    expect_bad_after([&](RawFile& f) { f.integer(name, 5); }, {quoted(name), "is 5"});
  }
}

TEST_F(HeadsOf, AHeadsFileMustBeOne) {
  expect_bad_after([](RawFile& f) { f.remove_attribute("format"); }, {"'format'"});
  expect_bad_after([](RawFile& f) { f.integer("format_version", 3); }, {"'format_version'"});
  expect_bad_after([](RawFile& f) { f.text("kind", "head"); }, {"'kind'"});
}

// --- features of later versions ---

TEST_F(HeadsOf, GatedAndRnnHeadsAreRefusedByName) {
  for (const char* type : {"gated", "rnn"}) {
    expect_bad_after([&](RawFile& f) { f.text("markov_head_type", type); },
                     {"'markov_head_type'", type, "does not support"});
  }
  expect_bad_after([](RawFile& f) { f.text("markov_head_type", "lstm"); },
                   {"'markov_head_type'", "lstm", "must be"});
}

TEST_F(HeadsOf, ReducedVocabulariesAreRefusedByName) {
  expect_bad_after(
      [](RawFile& f) {
        f.integers("/heads/d2t", {4}, {0, 1, 2, 3});
      },
      {"/heads/d2t", "reduced draft vocabulary", "not supported"});
  expect_bad_after(
      [](RawFile& f) {
        f.floats("/heads/markov_w2", {4, kR}, ramp(8));
      },
      {"/heads/markov_w2", "reduced draft vocabulary"});
  expect_bad_after(
      [](RawFile& f) {
        f.floats("/heads/draft_lm_head", {4, kH}, ramp(12));
      },
      {"/heads/draft_lm_head", "reduced draft vocabulary"});
}

// --- numbers ---

TEST_F(HeadsOf, WeightsThatAreNotFiniteAreNamedWithTheirIndex) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const hid_t type :
         {f16_type(), bf16_type(), hid_t{H5T_IEEE_F32LE}, hid_t{H5T_IEEE_F64BE}}) {
      expect_bad_after(
          [&](RawFile& f) {
            std::vector<float> weights = ramp(kV * kHt);
            weights[2 * kHt + 3] = bad;
            f.floats("/heads/lm_head", {kV, kHt}, weights, type);
          },
          {"/heads/lm_head[2, 3]", "not finite"});
    }
    expect_bad_after([&](RawFile& f) { f.floats("/heads/confidence_bias", {1}, {bad}); },
                     {"/heads/confidence_bias", "not finite"});
  }
}

TEST_F(HeadsOf, AWeightThatIsFiniteOnlyAsADoubleIsRefused) {
  const double values[5] = {0, 1, 2, 1e39, 4};
  expect_bad_after(
      [&](RawFile& f) {
        f.dataset("/heads/confidence_weight", H5T_IEEE_F64LE, {5}, H5T_NATIVE_DOUBLE, values);
      },
      {"/heads/confidence_weight[3]", "not finite"});
}

TEST_F(HeadsOf, TheBadWeightOfALargeMatrixIsFoundInItsSlice) {
  constexpr std::int64_t kWide = 4000, kTall = 1500;  // 24 MB: several slices
  constexpr std::size_t kBad = 1234 * kWide + 567;
  {
    RawFile file = RawFile::edit(heads_path);
    file.integer("vocab_size", kTall);
    file.integer("markov_rank", kWide);
    file.remove_attribute("confidence_with_markov");
    file.floats("/heads/confidence_weight", {kH}, ramp(kH));
    file.floats("/heads/markov_w1", {kTall, kWide}, std::vector<float>(kTall * kWide, 1.0f));
    std::vector<float> weights(kTall * kWide, 1.0f);
    weights[kBad] = std::nanf("");
    file.floats("/heads/markov_w2", {kTall, kWide}, weights, H5T_IEEE_F32LE, Chunked({7, 4000}));
  }
  {
    make_anchors(trace_path);
    RawFile file = RawFile::edit(trace_path);
    file.integer("vocab_size", kTall);
    file.floats("/anchors/draft_logits", {5, kP, kTall}, ramp(5 * kP * kTall));
    file.floats("/anchors/target_logits", {5, kTall}, ramp(5 * kTall));
  }
  expect_bad({"/heads/markov_w2[1234, 567]"});
}

TEST_F(HeadsOf, StoredTypesAreKeptAndDoublesNarrowed) {
  {
    RawFile file = RawFile::edit(heads_path);
    file.floats("/heads/markov_w1", {kV, kR}, ramp(kV * kR), f16_type());
    file.floats("/heads/markov_w2", {kV, kR}, ramp(kV * kR), bf16_type());
    file.floats("/heads/lm_head", {kV, kHt}, ramp(kV * kHt), H5T_IEEE_F64LE);
    file.floats("/heads/confidence_weight", {kH + kR}, ramp(kH + kR), f16_type());
  }
  const Heads heads = load(heads_path);
  EXPECT_EQ(heads.markov_w1.type, DType::f16);
  EXPECT_EQ(heads.markov_w1.bytes.size(), static_cast<std::size_t>(kV * kR * 2));
  EXPECT_EQ(heads.markov_w2.type, DType::bf16);
  EXPECT_EQ(numbers(heads.lm_head), ramp(kV * kHt));
  EXPECT_EQ(heads.confidence_weight, ramp(kH + kR));
  Float16 last{};
  std::memcpy(&last, heads.markov_w1.bytes.data() + heads.markov_w1.bytes.size() - 2, 2);
  EXPECT_EQ(to_float(last), ramp(kV * kR).back());
}

TEST_F(HeadsOf, MustFitTheMemoryBudget) {
  const std::uint64_t needed = 4 * (2 * kV * kR + kH + kR + 1 + kV * kHt + kV * kH);
  EXPECT_TRUE(load(heads_path, needed).has_markov());
  expect_trace_error({heads_path, "memory", "budget"}, [&] { (void)load(heads_path, needed - 1); });
}

TEST_F(HeadsOf, ADeclaredSizeIsNotAllocatedBeforeItIsChecked) {
  // Nothing of it is in the file, but it would be read as its fill value.
  constexpr std::int64_t kHuge = kMaxVocab;
  {
    RawFile file = RawFile::edit(heads_path);
    file.integer("vocab_size", kHuge);
    for (const char* name : {"/heads/markov_w1", "/heads/markov_w2"}) {
      file.dataset(name, H5T_IEEE_F32LE, {kHuge, kMaxHidden}, H5T_NATIVE_FLOAT, nullptr,
                   Chunked({16, kMaxHidden}));
    }
    file.integer("markov_rank", kMaxHidden);
    file.remove("/heads/confidence_weight");
    file.remove("/heads/confidence_bias");
    file.remove_attribute("confidence_with_markov");
  }
  make_anchors(trace_path);
  {
    RawFile file = RawFile::edit(trace_path);
    file.integer("vocab_size", kHuge);
    file.dataset("/anchors/draft_logits", H5T_IEEE_F32LE, {5, kP, kHuge}, H5T_NATIVE_FLOAT, nullptr,
                 Chunked({1, 1, kHuge}));
    file.dataset("/anchors/target_logits", H5T_IEEE_F32LE, {5, kHuge}, H5T_NATIVE_FLOAT, nullptr,
                 Chunked({1, kHuge}));
  }
  expect_bad({"never written"});
}

}  // namespace
}  // namespace dspark::test
