#include <vector>

#include "parity.h"

namespace dspark::parity {
namespace {

class RowsParity : public Parity {
 protected:
  static void same_laws(const std::vector<RowKind>& kinds, std::int32_t vocab, std::int64_t stride,
                        std::size_t skew, const SamplingRule& rule) {
    Numbers numbers(static_cast<std::uint64_t>(vocab));
    const std::vector<float> logits = rows_of(numbers, kinds, vocab, stride);
    same("V=" + std::to_string(vocab) + " stride=" + std::to_string(stride) + " " + rule_text(rule),
         [&](Side& side) {
           const auto rows = static_cast<std::int64_t>(kinds.size());
           auto* laws = side.make<RowLaw>(kinds.size());
           side.backend.row_laws(
               {{side.put(logits, skew), rows, vocab, stride}, rule, {laws, rows}});
           // Field by field: differences are then named.
           std::vector<RowLaw> got(kinds.size());
           side.backend.download(got.data(), laws, got.size() * sizeof(RowLaw));
           keep(side, "boundary_key", got, [](const RowLaw& law) { return law.boundary_key; });
           keep(side, "boundary_mass", got, [](const RowLaw& law) { return law.boundary_mass; });
           keep(side, "total", got, [](const RowLaw& law) { return law.total; });
           keep(side, "scale", got, [](const RowLaw& law) { return law.scale; });
           keep(side, "max_logit", got,
                [](const RowLaw& law) { return bits_from_float(law.max_logit); });
           keep(side, "second_logit", got,
                [](const RowLaw& law) { return bits_from_float(law.second_logit); });
           keep(side, "inverse_temperature", got,
                [](const RowLaw& law) { return bits_from_float(law.inverse_temperature); });
           keep(side, "argmax", got, [](const RowLaw& law) { return law.argmax; });
           keep(side, "status", got, [](const RowLaw& law) { return law.status; });
           keep(side, "reserved", got, [](const RowLaw& law) { return law.reserved; });
         });
  }

  template <class Field>
  static void keep(Side& side, const std::string& name, const std::vector<RowLaw>& laws,
                   Field field) {
    using Value = decltype(field(laws[0]));
    Output output;
    output.element = sizeof(Value);
    for (const RowLaw& law : laws) {
      const Value value = field(law);
      const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
      output.bytes.insert(output.bytes.end(), bytes, bytes + sizeof value);
    }
    side.outputs[name] = output;
  }
};

TEST_F(RowsParity, LawsOfEveryKindOfRowUnderEveryRule) {
  for (std::int32_t vocab : cases({1, 2, 3, 7, 31, 257, 5003}, {3, 5003})) {
    for (const SamplingRule& rule : rules_for(vocab)) same_laws(kRowKinds, vocab, vocab, 0, rule);
  }
}

TEST_F(RowsParity, LawsWhateverTheAlignmentOfARow) {
  for (std::size_t skew : cases<std::size_t>({0, 1, 2, 3}, {1})) {
    for (std::int64_t pad : cases<std::int64_t>({0, 1, 5}, {5})) {
      for (const SamplingRule& rule : rules_for(4097)) {
        same_laws({RowKind::normal, RowKind::steps, RowKind::masked}, 4097, 4097 + pad, skew, rule);
      }
    }
  }
}

TEST_F(RowsParity, LawsOfALargeVocabulary) {
  for (const SamplingRule& rule : rules_for(151936)) {
    same_laws({RowKind::normal, RowKind::flat, RowKind::steps, RowKind::masked}, 151936, 151936, 0,
              rule);
  }
}

TEST_F(RowsParity, LawsOfALargeVocabularyOnEveryPath) {
  // Rows that fill a cluster, and rows that do not fit one.
  for (std::int32_t vocab : {81920, 262144, 327680, 409601}) {
    for (const SamplingRule& rule : rules_for(vocab)) {
      same_laws({RowKind::normal, RowKind::masked}, vocab, (vocab + 3) / 4 * 4, 0, rule);
    }
  }
}

TEST_F(RowsParity, LawsOfRowsThatAreWalked) {
  // More rows than are worked on at once, of every kind in turn.
  std::vector<RowKind> kinds;
  while (kinds.size() < cases<std::size_t>({700}, {60})[0]) {
    kinds.insert(kinds.end(), kRowKinds.begin(), kRowKinds.end());
  }
  for (const SamplingRule& rule : rules_for(2600)) same_laws(kinds, 2600, 2600, 0, rule);
}

TEST_F(RowsParity, LawsWhateverTopK) {
  for (std::int32_t top_k :
       cases({13, 14, 15, 27, 28, 29, 111, 112, 113, 224, 225, 300, 512, 513}, {112, 300})) {
    for (double top_p : {1.0, 0.9}) {
      const std::int32_t vocab = 30000;
      same_laws({RowKind::normal, RowKind::steps, RowKind::flat, RowKind::masked, RowKind::peaked},
                vocab, vocab, 0,
                make_sampling_rule(0.8, top_k, top_p, TopPRule::water_filling, vocab));
    }
  }
}

TEST_F(RowsParity, LawsOfManyRows) {
  const std::vector<RowKind> kinds(cases<std::size_t>({2500}, {1030})[0], RowKind::normal);
  for (const SamplingRule& rule : rules_for(130)) same_laws(kinds, 130, 131, 0, rule);
}

TEST_F(RowsParity, NoRowsAreNoWork) {
  same("no rows", [&](Side& side) {
    const std::vector<std::uint32_t> mark = {7};
    auto* word = side.put(mark);
    side.backend.row_laws({{nullptr, 0, 5, 5}, SamplingRule{}, {nullptr, 0}});
    side.backend.compare_pairs({{nullptr, 0, 5, 5}, {}, {nullptr, 0, 5, 5}, {}, {}, {}});
    side.backend.sample_rows({{nullptr, 0, 5, 5}, {}, {}, {}, {}});
    side.backend.synchronize();
    side.get("mark", word, 1);
  });
}

/// Target and draft rows of every kind, their laws, and pairs that also name rows and tokens out of
/// range.
struct PairCase {
  std::int32_t vocab;
  std::vector<RowKind> kinds;
  std::vector<float> target;
  std::vector<float> draft;
  std::vector<RowPair> pairs;
};

PairCase pair_case(std::int32_t vocab, const std::vector<RowKind>& kinds) {
  Numbers numbers(static_cast<std::uint64_t>(vocab) + 99);
  PairCase out{vocab,
               kinds,
               rows_of(numbers, kinds, vocab, vocab),
               rows_of(numbers, kinds, vocab, vocab + 1),
               {}};
  const auto rows = static_cast<std::int32_t>(kinds.size());
  for (std::int32_t i = 0; i < rows; ++i) {
    out.pairs.push_back({i, i, numbers.below(vocab)});
    out.pairs.push_back({i, (i + 1) % rows, numbers.below(vocab)});
  }
  out.pairs.push_back({0, 0, -1});
  out.pairs.push_back({0, 0, vocab});
  out.pairs.push_back({-1, 0, 0});
  out.pairs.push_back({0, -1, 0});
  out.pairs.push_back({rows, 0, 0});
  out.pairs.push_back({0, rows, 0});
  return out;
}

struct PairViews {
  Rows target;
  Rows draft;
  RowLaw* target_laws;
  RowLaw* draft_laws;
  RowPair* pairs;
};

PairViews put_pairs(Side& side, const PairCase& data, const SamplingRule& target_rule,
                    const SamplingRule& draft_rule) {
  const auto rows = static_cast<std::int64_t>(data.kinds.size());
  PairViews out = {{side.put(data.target), rows, data.vocab, data.vocab},
                   {side.put(data.draft), rows, data.vocab, data.vocab + 1},
                   side.make<RowLaw>(data.kinds.size()),
                   side.make<RowLaw>(data.kinds.size()),
                   side.put(data.pairs)};
  side.backend.row_laws({out.target, target_rule, {out.target_laws, rows}});
  side.backend.row_laws({out.draft, draft_rule, {out.draft_laws, rows}});
  return out;
}

TEST_F(RowsParity, PairsOfEveryKindOfRow) {
  for (std::int32_t vocab : cases({1, 2, 31, 4097, 20011}, {4097})) {
    const PairCase data = pair_case(vocab, kRowKinds);
    const std::vector<SamplingRule> rules = rules_for(vocab);
    for (std::size_t r = 0; r < rules.size(); ++r) {
      same("V=" + std::to_string(vocab) + " " + rule_text(rules[r]), [&](Side& side) {
        const auto views = put_pairs(side, data, rules[r], rules[(r + 3) % rules.size()]);
        const auto rows = static_cast<std::int64_t>(data.kinds.size());
        const auto count = static_cast<std::int64_t>(data.pairs.size());
        auto* out = side.make<PairOutcome>(data.pairs.size());
        side.backend.compare_pairs({views.target,
                                    {views.target_laws, rows},
                                    views.draft,
                                    {views.draft_laws, rows},
                                    {views.pairs, count},
                                    {out, count}});
        side.get("outcomes", out, data.pairs.size());
      });
    }
  }
}

TEST_F(RowsParity, PairsThatShareTargetRows) {
  // Blocks of P slots in the order of their anchors, the last ones cut; some rows are bad.
  const std::int32_t block = 5;
  for (std::int32_t vocab : cases({31, 4096, 4099, 20011}, {4099})) {
    PairCase data = pair_case(vocab, kRowKinds);
    const auto rows = static_cast<std::int32_t>(data.kinds.size());
    data.pairs.clear();
    for (std::int32_t n = 0; n < rows; ++n) {
      for (std::int32_t k = 0; k < block && n + k < rows; ++k) {
        data.pairs.push_back({n + k, (3 * n + k) % rows, (7 * n + k) % vocab});
      }
    }
    data.pairs.insert(data.pairs.begin() + 9, {rows, 0, 0});
    data.pairs.push_back({2, -1, 0});
    data.pairs.push_back({2, 1, vocab});
    const std::vector<SamplingRule> rules = rules_for(vocab);
    for (const SamplingRule& rule : {rules[0], rules[3], rules[6]}) {
      same("V=" + std::to_string(vocab) + " " + rule_text(rule), [&](Side& side) {
        const auto views = put_pairs(side, data, rules[0], rule);
        const auto count = static_cast<std::int64_t>(data.pairs.size());
        auto* out = side.make<PairOutcome>(data.pairs.size());
        side.backend.compare_pairs({views.target,
                                    {views.target_laws, rows},
                                    views.draft,
                                    {views.draft_laws, rows},
                                    {views.pairs, count},
                                    {out, count}});
        side.get("outcomes", out, data.pairs.size());
      });
    }
  }
}

std::vector<std::uint64_t> uniforms_64(Numbers& numbers, std::size_t count) {
  std::vector<std::uint64_t> out = {0, ~std::uint64_t{0}, 1, std::uint64_t{1} << 63};
  while (out.size() < count) out.push_back(numbers.bits());
  out.resize(count);
  return out;
}

TEST_F(RowsParity, SamplesOfRowsFewAndMany) {
  for (std::int32_t vocab : cases({1, 3, 4096, 4097, 20011}, {4097})) {
    Numbers numbers(static_cast<std::uint64_t>(vocab));
    const std::vector<float> logits = rows_of(numbers, kRowKinds, vocab, vocab);
    const auto rows = static_cast<std::int64_t>(kRowKinds.size());
    for (std::size_t samples : {std::size_t{5}, std::size_t{200}}) {
      std::vector<std::int32_t> row = {-1, static_cast<std::int32_t>(rows)};
      while (row.size() < samples) {
        row.push_back(numbers.below(static_cast<std::int32_t>(rows)));
      }
      const std::vector<std::uint64_t> uniform = uniforms_64(numbers, samples);
      for (const SamplingRule& rule : rules_for(vocab)) {
        same("V=" + std::to_string(vocab) + " " + rule_text(rule), [&](Side& side) {
          const Rows view = {side.put(logits), rows, vocab, vocab};
          auto* laws = side.make<RowLaw>(kRowKinds.size());
          auto* token = side.make<std::int32_t>(samples);
          const auto count = static_cast<std::int64_t>(samples);
          side.backend.row_laws({view, rule, {laws, rows}});
          side.backend.sample_rows({view,
                                    {laws, rows},
                                    {side.put(row), count},
                                    {side.put(uniform), count},
                                    {token, count}});
          side.get("token", token, samples);
        });
      }
    }
  }
}

TEST_F(RowsParity, SamplesOfTheExcess) {
  for (std::int32_t vocab : cases({1, 2, 4097, 20011}, {4097})) {
    const PairCase data = pair_case(vocab, kRowKinds);
    Numbers numbers(7);
    const auto pairs = static_cast<std::int32_t>(data.pairs.size());
    for (std::size_t samples : {std::size_t{6}, std::size_t{300}}) {
      std::vector<std::int32_t> pair = {-1, pairs};
      while (pair.size() < samples) pair.push_back(numbers.below(pairs));
      const std::vector<std::uint64_t> uniform = uniforms_64(numbers, samples);
      const std::vector<SamplingRule> rules = rules_for(vocab);
      for (std::size_t r = 0; r < rules.size(); ++r) {
        same("V=" + std::to_string(vocab) + " " + rule_text(rules[r]), [&](Side& side) {
          const auto views = put_pairs(side, data, rules[r], rules[(r + 1) % rules.size()]);
          const auto rows = static_cast<std::int64_t>(data.kinds.size());
          const auto count = static_cast<std::int64_t>(samples);
          auto* token = side.make<std::int32_t>(samples);
          side.backend.sample_excess({views.target,
                                      {views.target_laws, rows},
                                      views.draft,
                                      {views.draft_laws, rows},
                                      {views.pairs, pairs},
                                      {side.put(pair), count},
                                      {side.put(uniform), count},
                                      {token, count}});
          side.get("token", token, samples);
        });
      }
    }
  }
}

}  // namespace
}  // namespace dspark::parity
