// One table as a file: written whole, and believed only if every byte is what was written. Private
// to the cache (cache.h).
//
// Layout, numbers as the machine holds them (little-endian on every supported one):
//   8 bytes   "dspktabl"
//   u32       version of this layout
//   u32       0
//   16 bytes  the key: digest of all that the table depends on
//   u64       bytes of the payload
//   ...       the payload: the table's fields in order; a list is preceded by its length (u64)
//   16 bytes  digest of everything before
#pragma once

#include <cstdint>
#include <stdexcept>

#include "replay/outcome_table.h"
#include "replay/rounds.h"
#include "support/digest.h"

namespace dspark {

/// Why an entry cannot be used, or not be written: "is truncated", "No space left on device".
class EntryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a table must look like: known from the trace and the flags before an entry is opened.
struct TableShape {
  std::int64_t blocks = 0;  ///< N or M
  std::int32_t block_size = 0;
  std::int32_t repeats = 0;         ///< of a table with worlds
  bool greedy = false;              ///< OutcomeTable::greedy
  bool off_policy = false;          ///< the table has importance weights
  bool top_probability = false;     ///< the table has top probabilities
  std::uint64_t memory_budget = 0;  ///< bytes that a table may take
};

/// Writes a table to the open file `descriptor`, from its beginning. Throws EntryError with what
/// the system says.
void write_entry(int descriptor, const Digest& key, const OutcomeTable& table);
void write_entry(int descriptor, const Digest& key, const RoundTable& table);

/// Reads a table from the open file `descriptor`, which stands at its beginning. Sizes are checked
/// against `shape` and the file before anything is allocated, everything that is used as an index
/// against its range, and the digest last. Throws EntryError where the file is anything but the
/// whole entry of `key`.
void read_entry(int descriptor, const Digest& key, const TableShape& shape, OutcomeTable& table);
void read_entry(int descriptor, const Digest& key, const TableShape& shape, RoundTable& table);

}  // namespace dspark
