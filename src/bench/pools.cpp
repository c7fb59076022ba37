#include "bench/pools.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/random.h"

namespace dspark {
namespace {

struct Pair {
  double first, second;
};

// Box and Muller, from the halves of 64 bits.
Pair normal_pair(std::uint64_t bits) {
  const double u = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32;
  const double v = static_cast<double>(bits & 0xFFFFFFFFu) * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(u));
  const double angle = 2 * std::numbers::pi * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// store(i, normal) for i < size, `size` even.
template <class Store>
void for_normals(std::uint64_t seed, BenchStream stream, std::int64_t size, int threads,
                 const Store& store) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < size; i += 2) {
    const Pair pair = normal_pair(bench_bits(seed, stream, 0, static_cast<std::uint64_t>(i)));
    store(i, pair.first);
    store(i + 1, pair.second);
  }
}

// One logit in 4096, as the few tokens that a language model is sure of.
float logit(std::uint64_t seed, std::int64_t i, double normal) {
  const std::uint64_t bits =
      bench_bits(seed, BenchStream::pool_logits, 1, static_cast<std::uint64_t>(i));
  if (bits >> 52 == 0) {
    return static_cast<float>(9 + 8 * static_cast<double>(bits & 0xFFFFFFu) * 0x1p-24);
  }
  return static_cast<float>(2.5 * normal);
}

}  // namespace

std::uint64_t bench_bits(std::uint64_t seed, BenchStream stream, std::uint32_t set,
                         std::uint64_t index) {
  RandomKey key;
  key.seed = seed;
  key.sequence = set;
  key.position = static_cast<std::uint32_t>(index);
  key.slot = static_cast<std::uint32_t>(index >> 32);
  key.branch = static_cast<std::uint32_t>(stream);
  key.purpose = RandomPurpose::bench;
  return random_uniform(key);
}

std::int64_t pool_size(std::int64_t longest) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 18;
  constexpr std::int64_t kMost = std::int64_t{1} << 23;
  return std::max({kLeast, std::min(16 * longest, kMost), 2 * longest}) / 2 * 2;
}

Pools make_pools(std::uint64_t seed, std::int64_t size, int threads) {
  Pools pools;
  pools.seed = seed;
  pools.logits.resize(static_cast<std::size_t>(size));
  pools.hidden.resize(static_cast<std::size_t>(size));
  pools.weights.resize(static_cast<std::size_t>(size));
  for_normals(seed, BenchStream::pool_logits, size, threads, [&](std::int64_t i, double normal) {
    pools.logits[static_cast<std::size_t>(i)] = logit(seed, i, normal);
  });
  for_normals(seed, BenchStream::pool_hidden, size, threads, [&](std::int64_t i, double normal) {
    pools.hidden[static_cast<std::size_t>(i)] = to_float16(static_cast<float>(normal));
  });
  for_normals(seed, BenchStream::pool_weights, size, threads, [&](std::int64_t i, double normal) {
    pools.weights[static_cast<std::size_t>(i)] = to_float16(static_cast<float>(0.04 * normal));
  });
  return pools;
}

}  // namespace dspark
