// The order in which tiles of a product are worked on.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace dspark::kernels {

/// Tiles that run at the same time should share both operands: groups of at most `group` rows of
/// tiles, whose part of a stays in the second-level cache while b is walked through; within a group
/// the tiles of one column follow each other.
struct TileOrder {
  std::int64_t tiles_m;
  std::int64_t tiles_n;
  std::int64_t group;

  struct Tile {
    std::int64_t m;
    std::int64_t n;
  };

  DSPARK_HD std::int64_t count() const { return tiles_m * tiles_n; }

  DSPARK_HD Tile at(std::int64_t index) const {
    const std::int64_t first = index / (group * tiles_n) * group;
    const std::int64_t inside = index - first * tiles_n;
    const std::int64_t height = tiles_m - first < group ? tiles_m - first : group;
    return {first + inside % height, inside / height};
  }
};

}  // namespace dspark::kernels
