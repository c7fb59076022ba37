// The inner loops, written once. The including source names the instruction set (DSPARK_ISA), the
// width of its vectors and the rows of its register tile, and is compiled with the matching flags.
//
// Everything here has internal linkage, the core headers' functions included (DSPARK_HD), and
// nothing of the standard library is called: a shared inline function compiled for a newer
// processor must not become the program's only copy.

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "backends/cpu/vector_ops.h"
#include "core/dspark_ops.h"
#include "core/law.h"
#include "core/row_ops.h"

namespace dspark::cpu::DSPARK_ISA {
namespace {

// --- vectors ---

constexpr std::int64_t kLanes = DSPARK_VECTOR_BYTES / 4;
using Vector = float __attribute__((vector_size(DSPARK_VECTOR_BYTES), may_alias));
using UnalignedVector =
    float __attribute__((vector_size(DSPARK_VECTOR_BYTES), may_alias, aligned(4)));
using LaneMask = std::int32_t __attribute__((vector_size(DSPARK_VECTOR_BYTES)));

inline Vector load(const float* data) { return *reinterpret_cast<const UnalignedVector*>(data); }
inline void store(float* data, Vector v) { *reinterpret_cast<UnalignedVector*>(data) = v; }

inline Vector multiply_add(Vector a, Vector b, Vector c) {
#if DSPARK_VECTOR_BYTES == 64 && defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif DSPARK_VECTOR_BYTES == 32 && defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  Vector out;
  for (std::int64_t i = 0; i < kLanes; ++i) out[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return out;
#endif
}

// --- matrix products ---

constexpr std::int64_t kTileRows = DSPARK_TILE_ROWS;
constexpr std::int64_t kTileVectors = 2;
constexpr std::int64_t kTileColumns = kTileVectors * kLanes;
static_assert(kTileRows <= kGemmTileRows && kGemmColumns % kTileColumns == 0);

/// Where a register tile of R rows starts from and goes to.
struct Tile {
  float* out[kTileRows];
  const float* add[kTileRows];  ///< null in all rows: nothing to add
  bool carry;                   ///< out holds the chain so far
};

/// R rows of kTileColumns outputs: chains over `depth` steps of the packed a [depth, R] and b
/// [depth, kTileColumns].
template <int R>
void multiply_tile(const float* a, const float* b, std::int64_t depth, const Tile& tile) {
  Vector sum[R][kTileVectors];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int w = 0; w < kTileVectors; ++w) {
      sum[r][w] = tile.carry ? load(tile.out[r] + w * kLanes) : Vector{};
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector column[kTileVectors];
#pragma GCC unroll 2
    for (int w = 0; w < kTileVectors; ++w) {
      column[w] = *reinterpret_cast<const Vector*>(b + k * kTileColumns + w * kLanes);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const Vector row = a[k * R + r] - Vector{};
#pragma GCC unroll 2
      for (int w = 0; w < kTileVectors; ++w) sum[r][w] = multiply_add(row, column[w], sum[r][w]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int w = 0; w < kTileVectors; ++w) {
      Vector result = sum[r][w];
      if (tile.add[r] != nullptr) result = load(tile.add[r] + w * kLanes) + result;
      store(tile.out[r] + w * kLanes, result);
    }
  }
}

using MultiplyTile = void (*)(const float*, const float*, std::int64_t, const Tile&);

/// multiply_tile<1> to multiply_tile<kTileRows>.
template <int R>
MultiplyTile multiply_tile_for(std::int64_t rows) {
  if constexpr (R < kTileRows) {
    if (rows != R) return multiply_tile_for<R + 1>(rows);
  }
  return multiply_tile<R>;
}

/// b[first + n, k] for n < columns and k in [from, from + depth) as panels [columns / kTileColumns,
/// depth, kTileColumns]; the last panel is filled up with zeros.
template <class T>
void pack_columns(const Matrix& b, std::int64_t first, std::int64_t columns, std::int64_t from,
                  std::int64_t depth, float* packed) {
  for (std::int64_t panel = 0; panel < columns; panel += kTileColumns) {
    for (std::int64_t n = 0; n < kTileColumns; ++n) {
      float* to = packed + panel * depth + n;
      if (panel + n < columns) {
        const T* row = static_cast<const T*>(b.data) + (first + panel + n) * b.stride + from;
        for (std::int64_t k = 0; k < depth; ++k) to[k * kTileColumns] = to_float(row[k]);
      } else {
        for (std::int64_t k = 0; k < depth; ++k) to[k * kTileColumns] = 0.0f;
      }
    }
  }
}

/// a[r, from + k] of `count` rows as [depth, count].
template <class T>
void pack_rows(const GemmRow* rows, std::int64_t count, std::int64_t from, std::int64_t depth,
               float* packed) {
  for (std::int64_t r = 0; r < count; ++r) {
    const T* row = static_cast<const T*>(rows[r].a) + from;
    for (std::int64_t k = 0; k < depth; ++k) packed[k * count + r] = to_float(row[k]);
  }
}

/// Columns [n, n + width) of a tile whose width is below kTileColumns: goes through a full tile of
/// its own.
void multiply_edge(MultiplyTile multiply, const GemmRow* rows, std::int64_t count, const float* a,
                   const float* b, std::int64_t depth, std::int64_t n, std::int64_t width,
                   bool carry, bool last) {
  alignas(64) float values[kTileRows * kTileColumns] = {};
  Tile tile = {};
  tile.carry = carry;
  for (std::int64_t r = 0; r < count; ++r) {
    tile.out[r] = values + r * kTileColumns;
    if (!carry) continue;
    for (std::int64_t i = 0; i < width; ++i) tile.out[r][i] = rows[r].out[n + i];
  }
  multiply(a, b, depth, tile);
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t i = 0; i < width; ++i) {
      const float chain = tile.out[r][i];
      rows[r].out[n + i] = last && rows[r].add != nullptr ? rows[r].add[n + i] + chain : chain;
    }
  }
}

template <class Function>
inline void with_type(DType type, Function function) {
  switch (type) {
    case DType::f16:
      return function(Float16{});
    case DType::bf16:
      return function(BFloat16{});
    case DType::f32:
      return function(0.0f);
    case DType::e4m3:
      return function(Float8{});
  }
}

// The depth is cut so that a pack of b stays in the second-level cache and its panel in the first.
// The chains of the outputs are carried through `out` from one cut to the next, so that cutting
// leaves no trace in the bits.
void gemm(const GemmRow* rows, std::int64_t count, DType a_type, const Matrix& b,
          std::int64_t first, std::int64_t last, float* scratch) {
  float* const packed_columns = scratch;
  float* const packed_rows = scratch + kGemmColumns * kGemmDepth;
  for (std::int64_t column = first; column < last; column += kGemmColumns) {
    const std::int64_t columns = last - column < kGemmColumns ? last - column : kGemmColumns;
    for (std::int64_t from = 0; from < b.cols; from += kGemmDepth) {
      const std::int64_t depth = b.cols - from < kGemmDepth ? b.cols - from : kGemmDepth;
      const bool carry = from > 0;
      const bool final_cut = from + depth == b.cols;
      with_type(b.type, [&](auto type) {
        pack_columns<decltype(type)>(b, column, columns, from, depth, packed_columns);
      });
      for (std::int64_t row = 0; row < count; row += kTileRows) {
        const std::int64_t tile_rows = count - row < kTileRows ? count - row : kTileRows;
        const MultiplyTile multiply = multiply_tile_for<1>(tile_rows);
        with_type(a_type, [&](auto type) {
          pack_rows<decltype(type)>(rows + row, tile_rows, from, depth, packed_rows);
        });
        for (std::int64_t n = 0; n < columns; n += kTileColumns) {
          const float* const panel = packed_columns + n * depth;
          if (columns - n < kTileColumns) {
            multiply_edge(multiply, rows + row, tile_rows, packed_rows, panel, depth, column + n,
                          columns - n, carry, final_cut);
            continue;
          }
          Tile tile = {};
          tile.carry = carry;
          for (std::int64_t r = 0; r < tile_rows; ++r) {
            const GemmRow& to = rows[row + r];
            tile.out[r] = to.out + column + n;
            if (final_cut && to.add != nullptr) tile.add[r] = to.add + column + n;
          }
          multiply(packed_rows, panel, depth, tile);
        }
      }
    }
  }
}

void widen(const void* in, DType type, float* out, std::int64_t count) {
  with_type(type, [&](auto zero) {
    const auto* values = static_cast<const decltype(zero)*>(in);
    for (std::int64_t i = 0; i < count; ++i) out[i] = to_float(values[i]);
  });
}

// --- confidence ---

constexpr std::int64_t kDotLanes = 32;

/// Element j is added to lane j mod 32.
template <class T>
void add_dot(const T* values, const float* weight, std::int64_t size, float* lanes) {
  std::int64_t start = 0;
  for (; start + kDotLanes <= size; start += kDotLanes) {
    for (std::int64_t i = 0; i < kDotLanes; ++i) {
      lanes[i] = fused(to_float(values[start + i]), weight[start + i], lanes[i]);
    }
  }
  for (std::int64_t i = 0; start + i < size; ++i) {
    lanes[i] = fused(to_float(values[start + i]), weight[start + i], lanes[i]);
  }
}

float confidence_dot(const void* hidden, DType hidden_type, std::int64_t size, const void* extra,
                     DType extra_type, std::int64_t extra_size, const float* weight) {
  alignas(64) float lanes[kDotLanes] = {};
  with_type(hidden_type, [&](auto zero) {
    add_dot(static_cast<const decltype(zero)*>(hidden), weight, size, lanes);
  });
  with_type(extra_type, [&](auto zero) {
    add_dot(static_cast<const decltype(zero)*>(extra), weight + size, extra_size, lanes);
  });
  for (std::int64_t half = kDotLanes / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// --- masses ---

/// Vocabulary elements whose masses are held at a time.
constexpr std::int32_t kBlock = 256;
static_assert(kSlice % kBlock == 0);

inline std::int32_t block_size(std::int32_t first, std::int32_t end) {
  return end - first < kBlock ? end - first : kBlock;
}

/// out[i] = unfiltered mass of logits[i].
inline void plain_masses(const float* logits, std::int32_t count, float max_logit,
                         float inverse_temperature, std::uint64_t* out) {
  for (std::int32_t i = 0; i < count; ++i) {
    out[i] = unfiltered_mass(logits[i], max_logit, inverse_temperature);
  }
}

/// out[i] = law_mass of token first + i, for rows without NaN. The boundary token splits the ids in
/// two: before it a token of the boundary's logit outranks it, after it it does not.
inline void law_masses(const float* logits, const RowLaw& law, std::int32_t first,
                       std::int32_t count, std::uint64_t* out) {
  const float* const block = logits + first;
  plain_masses(block, count, law.max_logit, law.inverse_temperature, out);
  if (law.boundary_key == 0) return;
  const float boundary = float_from_order_code(static_cast<std::uint32_t>(law.boundary_key >> 32));
  const std::int32_t at = token_of_key(law.boundary_key) - first;
  const std::int32_t before = at < 0 ? 0 : at < count ? at : count;
  for (std::int32_t i = 0; i < before; ++i) out[i] = block[i] >= boundary ? out[i] : 0;
  for (std::int32_t i = before; i < count; ++i) out[i] = block[i] > boundary ? out[i] : 0;
  if (at >= 0 && at < count) out[at] = law.boundary_mass;
}

/// mass_to_probability without 128-bit arithmetic, so that it vectorises: floor(mass · scale /
/// 2^41) from 32-bit halves, exact for masses up to 2^40 and scales up to 2^62.
inline std::uint64_t probability(std::uint64_t mass, std::uint64_t scale) {
  const std::uint64_t mass_low = mass & 0xFFFFFFFFu;
  const std::uint64_t mass_high = mass >> 32;
  const std::uint64_t scale_low = scale & 0xFFFFFFFFu;
  const std::uint64_t scale_high = scale >> 32;
  const std::uint64_t middle =
      ((mass_low * scale_low) >> 32) + mass_low * scale_high + mass_high * scale_low;
  return ((mass_high * scale_high) << 23) + (middle >> 9);
}

inline std::uint64_t smaller(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) ? a : b;
}

/// max(a - b, 0).
inline std::uint64_t excess(std::uint64_t a, std::uint64_t b) {
  const auto difference = static_cast<std::int64_t>(a - b);
  return static_cast<std::uint64_t>(difference > 0 ? difference : 0);
}

inline std::uint64_t sum(const std::uint64_t* values, std::int32_t count) {
  std::uint64_t total = 0;
  for (std::int32_t i = 0; i < count; ++i) total += values[i];
  return total;
}

// --- laws ---

/// What one pass over a row finds.
struct RowScan {
  float max_logit;
  float second_logit;
  std::int32_t argmax;
  std::uint32_t status;
};

/// The status of a row that is known to be invalid.
std::uint32_t invalid_status(const float* logits, std::int32_t vocab) {
  std::uint32_t status = kRowNoFinite;
  for (std::int32_t i = 0; i < vocab; ++i) {
    const std::uint32_t magnitude = bits_from_float(logits[i]) & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {
      status |= kRowNaN;
    } else if (magnitude < 0x7F800000u) {
      status &= ~static_cast<std::uint32_t>(kRowNoFinite);
    } else if (logits[i] > 0) {
      status |= kRowPlusInfinity;
    }
  }
  return status;
}

RowScan scan_row(const float* logits, std::int32_t vocab) {
  const float minus_infinity = -__builtin_inff();
  Vector first = minus_infinity - Vector{};
  Vector second = first;
  LaneMask nan = {};
  std::int32_t i = 0;
  for (; i + kLanes <= vocab; i += kLanes) {
    const Vector x = load(logits + i);
    nan |= x != x;
    const Vector loser = first < x ? first : x;
    first = first > x ? first : x;
    second = second > loser ? second : loser;
  }
  float top = minus_infinity;
  float next = minus_infinity;
  bool invalid = false;
  const auto add = [&](float x) {
    invalid = invalid || x != x;
    if (x > top) {
      next = top;
      top = x;
    } else if (x > next) {
      next = x;
    }
  };
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    add(first[lane]);
    add(second[lane]);
    invalid = invalid || nan[lane] != 0;
  }
  for (; i < vocab; ++i) add(logits[i]);
  if (invalid || !(top > minus_infinity) || !(top < __builtin_inff())) {
    return {0, 0, -1, invalid_status(logits, vocab)};
  }

  std::int32_t argmax = 0;
  for (; argmax + kBlock <= vocab; argmax += kBlock) {
    std::int32_t found = 0;
    for (std::int32_t j = 0; j < kBlock; ++j) found |= logits[argmax + j] == top ? 1 : 0;
    if (found != 0) break;
  }
  while (logits[argmax] != top) ++argmax;
  return {top + 0.0f, next + 0.0f, argmax, kRowValid};  // + 0 turns -0 into +0
}

/// The logit at which a running measure over tokens by descending logit reaches `goal` ≥ 1, and the
/// measure of all larger logits. The measure is a count, or the mass. The row's whole measure must
/// be ≥ goal.
struct Crossing {
  float logit;
  std::uint64_t before;
};

enum class Measure { count, mass };

/// Radix search from the top of the 32-bit order codes: one histogram per digit, no sorting.
template <Measure measure>
Crossing find_crossing(const float* logits, std::int32_t vocab, float max_logit,
                       float inverse_temperature, std::uint64_t goal) {
  constexpr int kDigits = 3;
  constexpr int kShift[kDigits] = {21, 10, 0};
  constexpr int kBits[kDigits] = {11, 11, 10};
  std::uint64_t before = 0;
  std::uint32_t prefix = 0;
  for (int digit = 0; digit < kDigits; ++digit) {
    std::uint64_t histogram[1 << 11] = {};
    const int shift = kShift[digit];
    const std::uint32_t mask = (1u << kBits[digit]) - 1;
    for (std::int32_t first = 0; first < vocab; first += kBlock) {
      const float* const block = logits + first;
      const std::int32_t count = block_size(first, vocab);
      std::uint32_t codes[kBlock];
      for (std::int32_t i = 0; i < count; ++i) codes[i] = order_code(block[i]);
      if (digit == 0) {
        std::uint64_t masses[kBlock];
        if constexpr (measure == Measure::mass) {
          plain_masses(block, count, max_logit, inverse_temperature, masses);
        }
        for (std::int32_t i = 0; i < count; ++i) {
          histogram[codes[i] >> shift] += measure == Measure::mass ? masses[i] : 1;
        }
        continue;
      }
      const int above = shift + kBits[digit];
      std::uint32_t inside = 0;
      for (std::int32_t i = 0; i < count; ++i) inside |= codes[i] >> above == prefix ? 1u : 0u;
      if (inside == 0) continue;
      for (std::int32_t i = 0; i < count; ++i) {
        if (codes[i] >> above != prefix) continue;
        histogram[(codes[i] >> shift) & mask] +=
            measure == Measure::mass ? unfiltered_mass(block[i], max_logit, inverse_temperature)
                                     : 1;
      }
    }
    std::uint32_t bin = mask;
    while (bin > 0 && before + histogram[bin] < goal) before += histogram[bin--];
    prefix = (prefix << kBits[digit]) | bin;
  }
  return {float_from_order_code(prefix), before};
}

/// The id of the `rank`-th (from 1) token, in ascending order, whose logit is `logit`.
std::int32_t find_equal(const float* logits, std::int32_t vocab, float logit, std::uint64_t rank) {
  for (std::int32_t first = 0; first < vocab; first += kBlock) {
    const std::int32_t count = block_size(first, vocab);
    std::uint32_t equal = 0;
    for (std::int32_t i = 0; i < count; ++i) equal += logits[first + i] == logit ? 1u : 0u;
    if (equal < rank) {
      rank -= equal;
      continue;
    }
    for (std::int32_t i = 0; i < count; ++i) {
      if (logits[first + i] == logit && --rank == 0) return first + i;
    }
  }
  __builtin_unreachable();  // the caller counted that many
}

/// The unfiltered mass of all tokens, or of those whose logit is above `floor`.
std::uint64_t plain_total(const float* logits, std::int32_t vocab, const RowLaw& law,
                          const float* floor) {
  std::uint64_t total = 0;
  std::uint64_t masses[kBlock];
  for (std::int32_t first = 0; first < vocab; first += kBlock) {
    const std::int32_t count = block_size(first, vocab);
    plain_masses(logits + first, count, law.max_logit, law.inverse_temperature, masses);
    if (floor != nullptr) {
      const float least = *floor;
      for (std::int32_t i = 0; i < count; ++i) {
        masses[i] = logits[first + i] > least ? masses[i] : 0;
      }
    }
    total += sum(masses, count);
  }
  return total;
}

RowLaw row_law(const float* logits, std::int32_t vocab, const SamplingRule& rule) {
  RowLaw law;
  law.inverse_temperature = rule.inverse_temperature;
  const RowScan row = scan_row(logits, vocab);
  law.status = row.status;
  if (row.status != kRowValid) return law;
  law.max_logit = row.max_logit;
  law.second_logit = row.second_logit;
  law.argmax = row.argmax;

  const std::uint64_t argmax_key = token_key(row.max_logit, row.argmax);
  const auto keep = [&](std::uint64_t boundary_key, std::uint64_t boundary_mass,
                        std::uint64_t total) {
    law.boundary_key = boundary_key;
    law.boundary_mass = boundary_mass;
    law.total = total;
    law.scale = law_scale(total);
    return law;
  };
  if (rule.greedy) return keep(argmax_key, kUnitMass, kUnitMass);

  const auto mass_of = [&](float logit) {
    return unfiltered_mass(logit, law.max_logit, law.inverse_temperature);
  };
  std::uint64_t kept = 0;
  std::uint64_t boundary_key = 0;
  std::uint64_t boundary_mass = 0;
  if (rule.top_k > 0 && rule.top_k < vocab) {
    const auto top_k = static_cast<std::uint64_t>(rule.top_k);
    const Crossing crossing =
        find_crossing<Measure::count>(logits, vocab, law.max_logit, law.inverse_temperature, top_k);
    const std::uint64_t ties = top_k - crossing.before;
    boundary_mass = mass_of(crossing.logit);
    kept = plain_total(logits, vocab, law, &crossing.logit) + ties * boundary_mass;
    boundary_key = token_key(crossing.logit, find_equal(logits, vocab, crossing.logit, ties));
  } else {
    kept = plain_total(logits, vocab, law, nullptr);
  }
  if (rule.top_p == 0) return keep(boundary_key, boundary_mass, kept);

  // The target is at most the mass of the top-k set, and that set is the first in rank: top-k needs
  // no further care.
  const std::uint64_t target = top_p_target(kept, rule.top_p);
  if (target <= kUnitMass) return keep(argmax_key, kUnitMass, kUnitMass);
  const Crossing crossing =
      find_crossing<Measure::mass>(logits, vocab, law.max_logit, law.inverse_temperature, target);
  const std::uint64_t mass = mass_of(crossing.logit);
  const std::uint64_t ties = (target - crossing.before + mass - 1) / mass;
  const std::uint64_t before = crossing.before + (ties - 1) * mass;
  const std::int32_t id = find_equal(logits, vocab, crossing.logit, ties);
  if (rule.top_p_rule == TopPRule::water_filling) {
    return keep(token_key(crossing.logit, id), target - before, target);
  }
  return keep(token_key(crossing.logit, id), mass, before + mass);
}

// --- what laws are used for ---

std::uint64_t overlap(const float* target, const RowLaw& target_law, const float* draft,
                      const RowLaw& draft_law, std::int32_t vocab) {
  std::uint64_t total = 0;
  std::uint64_t p[kBlock];
  std::uint64_t q[kBlock];
  for (std::int32_t first = 0; first < vocab; first += kBlock) {
    const std::int32_t count = block_size(first, vocab);
    law_masses(target, target_law, first, count, p);
    law_masses(draft, draft_law, first, count, q);
    for (std::int32_t i = 0; i < count; ++i) {
      total += smaller(probability(p[i], target_law.scale), probability(q[i], draft_law.scale));
    }
  }
  return total;
}

/// The place at which running weights exceed a target.
struct Place {
  std::int32_t id;      ///< -1: they never do
  std::uint64_t lower;  ///< weight before it
  std::uint64_t upper;  ///< weight through it
};

/// The first id in [first, end) at which `lower` plus the running weights exceeds `target`.
/// `weights(first, count, out)` fills in a block.
template <class Weights>
Place find_place(std::int32_t first, std::int32_t end, std::uint64_t lower, std::uint64_t target,
                 Weights weights) {
  std::uint64_t block[kBlock];
  for (; first < end; first += kBlock) {
    const std::int32_t count = block_size(first, end);
    weights(first, count, block);
    const std::uint64_t through = lower + sum(block, count);
    if (through <= target) {
      lower = through;
      continue;
    }
    std::int32_t i = 0;
    while (lower + block[i] <= target) lower += block[i++];
    return {first + i, lower, lower + block[i]};
  }
  return {-1, lower, lower};
}

std::int32_t sample(const float* logits, const RowLaw& law, std::int32_t vocab,
                    std::uint64_t uniform) {
  return find_place(0, vocab, 0, cdf_target(uniform, law.total),
                    [&](std::int32_t first, std::int32_t count, std::uint64_t* out) {
                      law_masses(logits, law, first, count, out);
                    })
      .id;
}

/// The weights of each slice and of the whole row.
struct SliceSums {
  std::uint64_t slice[kMaxMassVocab / kSlice];
  std::uint64_t total;
};

template <class Weights>
void sum_slices(std::int32_t vocab, Weights weights, SliceSums& sums) {
  std::uint64_t block[kBlock];
  sums.total = 0;
  for (std::int32_t slice = 0; slice < slice_count(vocab); ++slice) {
    const std::int32_t end = vocab - slice * kSlice < kSlice ? vocab : (slice + 1) * kSlice;
    std::uint64_t total = 0;
    for (std::int32_t first = slice * kSlice; first < end; first += kBlock) {
      const std::int32_t count = block_size(first, end);
      weights(first, count, block);
      total += sum(block, count);
    }
    sums.slice[slice] = total;
    sums.total += total;
  }
}

/// find_place over a whole row whose slices are summed.
template <class Weights>
Place find_place(std::int32_t vocab, const SliceSums& sums, std::uint64_t target, Weights weights) {
  std::uint64_t lower = 0;
  for (std::int32_t slice = 0; slice < slice_count(vocab); ++slice) {
    if (lower + sums.slice[slice] > target) {
      const std::int32_t end = vocab - slice * kSlice < kSlice ? vocab : (slice + 1) * kSlice;
      return find_place(slice * kSlice, end, lower, target, weights);
    }
    lower += sums.slice[slice];
  }
  return {-1, lower, lower};
}

std::int32_t sample_excess(const float* target, const RowLaw& target_law, const float* draft,
                           const RowLaw& draft_law, std::int32_t vocab, std::uint64_t uniform) {
  const auto weights = [&](std::int32_t first, std::int32_t count, std::uint64_t* out) {
    std::uint64_t p[kBlock];
    law_masses(target, target_law, first, count, p);
    law_masses(draft, draft_law, first, count, out);
    for (std::int32_t i = 0; i < count; ++i) {
      out[i] = excess(probability(out[i], draft_law.scale), probability(p[i], target_law.scale));
    }
  };
  SliceSums sums;
  sum_slices(vocab, weights, sums);
  return find_place(vocab, sums, cdf_target(uniform, sums.total), weights).id;
}

void probabilities(const float* logits, const RowLaw& law, std::int32_t vocab, float* out) {
  const auto total = static_cast<double>(law.total);
  std::uint64_t masses[kBlock];
  for (std::int32_t first = 0; first < vocab; first += kBlock) {
    const std::int32_t count = block_size(first, vocab);
    law_masses(logits, law, first, count, masses);
    for (std::int32_t i = 0; i < count; ++i) {
      // A mass is at most 2^40, so the signed conversion, which vectorises more widely, is the
      // same.
      const auto mass = static_cast<double>(static_cast<std::int64_t>(masses[i]));
      out[first + i] = static_cast<float>(mass / total);
    }
  }
}

WeightedPick pick(const float* weights, const float* minus, std::int32_t vocab,
                  std::uint64_t uniform) {
  std::uint32_t bad = 0;
  const auto fill = [&](std::int32_t first, std::int32_t count, std::uint64_t* out) {
    std::uint32_t nan = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      const float p = weights[first + i];
      nan |= p != p ? 1u : 0u;
      out[i] = probability_weight(p);
    }
    if (minus != nullptr) {
      for (std::int32_t i = 0; i < count; ++i) {
        const float q = minus[first + i];
        nan |= q != q ? 1u : 0u;
        out[i] = excess(out[i], probability_weight(q));
      }
    }
    bad |= nan;
  };
  SliceSums sums;
  sum_slices(vocab, fill, sums);
  const std::uint64_t target = cdf_target(uniform, minus != nullptr ? sums.total : kUnitMass);
  // Beyond the row's sum the last token that has a weight is taken: the place of the row's last
  // unit of weight.
  const std::uint64_t reachable = target < sums.total || sums.total == 0 ? target : sums.total - 1;
  const Place place = find_place(vocab, sums, reachable, fill);
  if (place.id < 0) return {0, bad != 0, 0, 0, sums.total};
  return {place.id, bad != 0, place.lower, place.upper, sums.total};
}

}  // namespace

const VectorOps kVectorOps = {
    DSPARK_ISA_NAME, gemm,   widen,         confidence_dot, row_law,
    overlap,         sample, sample_excess, probabilities,  pick,
};

}  // namespace dspark::cpu::DSPARK_ISA
