#include "replay/table_entry.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace dspark {
namespace {

constexpr char kMagic[8] = {'d', 's', 'p', 'k', 't', 'a', 'b', 'l'};
constexpr std::uint32_t kLayoutVersion = 1;
constexpr std::uint64_t kMaxText = 4096;

struct EntryHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t reserved;
  Digest key;
  std::uint64_t payload_bytes;
};
static_assert(sizeof(EntryHeader) == 40 && std::has_unique_object_representations_v<EntryHeader>);

/// A round without padding, whose bytes would be anything.
struct PackedRound {
  std::int32_t slots, accepted, diverged_slot;
  std::uint8_t censored, reproduced, near_tie, reserved;
};
static_assert(std::has_unique_object_representations_v<PackedRound>);

[[noreturn]] void refuse(const char* why) { throw EntryError(why); }

void require_shape(bool holds) {
  if (!holds) refuse("is damaged (it is not the shape of this trace)");
}

// --- the three things that go over a table's fields ---

/// Adds up what a table takes.
class Sizer {
 public:
  void raw(const void* /*data*/, std::size_t bytes) { bytes_ += bytes; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_ = 0;
};

/// Writes, and takes the digest of what it wrote.
class Writer {
 public:
  explicit Writer(int descriptor) : descriptor_(descriptor) {}
  void raw(const void* data, std::size_t bytes) {
    digester_.add(data, bytes);
    plain(data, bytes);
  }
  void finish() {
    const Digest digest = digester_.digest();
    plain(digest.bytes.data(), digest.bytes.size());
  }

 private:
  void plain(const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(descriptor_, at, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw EntryError(std::strerror(errno));
      at += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }
  int descriptor_;
  Digester digester_;
};

/// Reads what is said to be there and no more, and takes its digest.
class Reader {
 public:
  explicit Reader(int descriptor) : descriptor_(descriptor) {}

  /// From here on `bytes` are left.
  void limit(std::uint64_t bytes) { left_ = bytes; }
  [[nodiscard]] std::uint64_t left() const { return left_; }
  void raw(void* data, std::size_t bytes) {
    if (bytes > left_) refuse("is damaged (its sizes contradict each other)");
    left_ -= bytes;
    plain(data, bytes);
    digester_.add(data, bytes);
  }
  void finish() {
    if (left_ != 0) refuse("is damaged (its sizes contradict each other)");
    Digest stored;
    plain(stored.bytes.data(), stored.bytes.size());
    if (!(stored == digester_.digest())) refuse("is damaged (its digest differs)");
  }

 private:
  void plain(void* data, std::size_t bytes) {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t count = ::read(descriptor_, at, bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw EntryError(std::string("cannot be read: ") + std::strerror(errno));
      if (count == 0) refuse("is truncated");
      at += count;
      bytes -= static_cast<std::size_t>(count);
    }
  }
  int descriptor_;
  Digester digester_;
  std::uint64_t left_ = sizeof(EntryHeader);
};

/// Fields of a table to a Sizer or a Writer.
template <class Sink>
class Store {
 public:
  explicit Store(Sink& sink) : sink_(sink) {}
  template <class T>
  void number(const T& value) {
    static_assert(std::is_arithmetic_v<T>);
    sink_.raw(&value, sizeof value);
  }
  template <class List>  // a vector or a text
  void list(const List& values, std::optional<std::uint64_t> /*count*/ = {}) {
    number(std::uint64_t{values.size()});
    sink_.raw(values.data(), values.size() * sizeof values[0]);
  }
  void text(const std::string& value) { list(value.substr(0, kMaxText)); }
  void require(bool /*holds*/) {}

 private:
  Sink& sink_;
};

/// Fields of a table from a Reader.
class Load {
 public:
  explicit Load(Reader& reader) : reader_(reader) {}
  template <class T>
  void number(T& value) {
    static_assert(std::is_arithmetic_v<T>);
    reader_.raw(&value, sizeof value);
  }
  void number(bool& value) {
    std::uint8_t byte = 0;
    number(byte);
    require_shape(byte <= 1);
    value = byte == 1;
  }
  /// `count`: the length that the list must have; without, what is left in the file bounds it.
  template <class List>
  void list(List& values, std::optional<std::uint64_t> count = {}) {
    std::uint64_t size = 0;
    number(size);
    require_shape(size == count.value_or(size) && size <= reader_.left() / sizeof values[0]);
    values.resize(static_cast<std::size_t>(size));
    reader_.raw(values.data(), values.size() * sizeof values[0]);
  }
  void text(std::string& value) {
    list(value);
    require_shape(value.size() <= kMaxText);
  }
  void require(bool holds) { require_shape(holds); }

 private:
  Reader& reader_;
};

// The fields are taken apart by structured bindings: a field that is added to a table and not here
// does not compile.

template <class Archive, class Table>
void exchange_outcomes(Archive& archive, const TableShape& shape, Table& table) {
  auto& [block_size, repeats, greedy, has_confidence, sequence_offsets, slots, beta, alpha,
         importance, confidence, agreement, world_confidence, top_probability,
         world_top_probability, invalid_rows, impossible_tokens, near_ties, first_problem] = table;
  archive.number(block_size);
  archive.number(repeats);
  archive.number(greedy);
  archive.number(has_confidence);
  archive.require(block_size == shape.block_size && (repeats == 0 || repeats == shape.repeats) &&
                  greedy == shape.greedy);
  const auto blocks = static_cast<std::uint64_t>(shape.blocks);
  const std::uint64_t cells = blocks * static_cast<std::uint64_t>(shape.block_size);
  const std::uint64_t worlds = blocks * static_cast<std::uint64_t>(repeats) *
                               static_cast<std::uint64_t>(worlds_per_repeat(shape.block_size));
  archive.list(sequence_offsets);
  archive.list(slots, blocks);
  archive.list(beta, cells);
  archive.list(alpha, cells);
  archive.list(importance, shape.off_policy ? cells : 0);
  archive.list(confidence, cells);
  archive.list(agreement, cells);
  archive.list(world_confidence, has_confidence ? worlds : 0);
  archive.list(top_probability, shape.top_probability ? cells : 0);
  archive.list(world_top_probability, shape.top_probability ? worlds : 0);
  archive.number(invalid_rows);
  archive.number(impossible_tokens);
  archive.number(near_ties);
  archive.text(first_problem);
}

template <class Archive, class Table, class Rounds>
void exchange_rounds(Archive& archive, const TableShape& shape, Table& table, Rounds& packed) {
  auto& [block_size, has_confidence, drafts_replayed, outcomes_recorded, rounds, request,
         confidence, top_probability, invalid_rows, first_problem] = table;
  static_cast<void>(rounds);  // `packed` stands for them
  archive.number(block_size);
  archive.number(has_confidence);
  archive.number(drafts_replayed);
  archive.number(outcomes_recorded);
  archive.require(block_size == shape.block_size);
  const auto blocks = static_cast<std::uint64_t>(shape.blocks);
  archive.list(packed, blocks);
  archive.list(request, blocks);
  const std::uint64_t cells = blocks * static_cast<std::uint64_t>(shape.block_size);
  archive.list(confidence, cells);
  archive.list(top_probability, shape.top_probability ? cells : 0);
  archive.number(invalid_rows);
  archive.text(first_problem);
}

PackedRound pack(const RoundOutcome& round) {
  const auto& [slots, accepted, diverged_slot, censored, reproduced, near_tie] = round;
  return {slots, accepted, diverged_slot, censored, reproduced, near_tie, 0};
}

RoundOutcome unpack(const PackedRound& packed) {
  RoundOutcome round;
  auto& [slots, accepted, diverged_slot, censored, reproduced, near_tie] = round;
  slots = packed.slots;
  accepted = packed.accepted;
  diverged_slot = packed.diverged_slot;
  censored = packed.censored != 0;
  reproduced = packed.reproduced != 0;
  near_tie = packed.near_tie != 0;
  return round;
}

/// Writes an entry whose payload is what `exchange` gives to an archive.
template <class Exchange>
void write_payload(int descriptor, const Digest& key, const Exchange& exchange) {
  Sizer sizer;
  Store measure(sizer);
  exchange(measure);
  EntryHeader header{};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  header.version = kLayoutVersion;
  header.key = key;
  header.payload_bytes = sizer.bytes();

  Writer writer(descriptor);
  writer.raw(&header, sizeof header);
  Store store(writer);
  exchange(store);
  writer.finish();
}

template <class Exchange>
void read_payload(int descriptor, const Digest& key, const TableShape& shape,
                  const Exchange& exchange) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) throw EntryError(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse("is not a regular file");
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  constexpr std::uint64_t kFrame = sizeof(EntryHeader) + sizeof(Digest);
  if (file_bytes < kFrame) refuse("is truncated");

  Reader reader(descriptor);
  EntryHeader header{};
  reader.raw(&header, sizeof header);
  if (!std::equal(std::begin(kMagic), std::end(kMagic), header.magic)) refuse("is no table");
  if (header.version != kLayoutVersion) refuse("was written by another version");
  if (!(header.key == key)) refuse("is the table of something else");
  if (header.payload_bytes != file_bytes - kFrame) {
    refuse(header.payload_bytes > file_bytes - kFrame ? "is truncated"
                                                      : "is damaged (bytes follow its end)");
  }
  if (header.payload_bytes > shape.memory_budget) refuse("needs more than the memory budget");
  reader.limit(header.payload_bytes);
  Load load(reader);
  exchange(load);
  reader.finish();
}

/// What the evaluation indexes with must lie where it may. The digest is known to be right, so this
/// only fails for an entry that was made up.
void check_ranges(const TableShape& shape, const OutcomeTable& table) {
  const auto& offsets = table.sequence_offsets;
  require_shape(offsets.size() >= 2 && offsets.front() == 0 && offsets.back() == shape.blocks &&
                std::is_sorted(offsets.begin(), offsets.end()));
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
    for (std::int64_t n = offsets[s]; n < offsets[s + 1]; ++n) {
      require_shape(table.slots[static_cast<std::size_t>(n)] <=
                    std::min<std::int64_t>(shape.block_size, offsets[s + 1] - n));
    }
  }
}

void check_ranges(const TableShape& shape, const RoundTable& table) {
  const auto in_block = [&](std::int32_t k) { return k >= 0 && k <= shape.block_size; };
  for (const RoundOutcome& round : table.rounds) {
    require_shape(in_block(round.slots) && in_block(round.accepted) &&
                  in_block(round.diverged_slot));
  }
}

}  // namespace

void write_entry(int descriptor, const Digest& key, const OutcomeTable& table) {
  const TableShape unchecked;
  write_payload(descriptor, key,
                [&](auto& archive) { exchange_outcomes(archive, unchecked, table); });
}

void write_entry(int descriptor, const Digest& key, const RoundTable& table) {
  std::vector<PackedRound> packed;
  packed.reserve(table.rounds.size());
  for (const RoundOutcome& round : table.rounds) packed.push_back(pack(round));
  const TableShape unchecked;
  write_payload(descriptor, key,
                [&](auto& archive) { exchange_rounds(archive, unchecked, table, packed); });
}

void read_entry(int descriptor, const Digest& key, const TableShape& shape, OutcomeTable& table) {
  read_payload(descriptor, key, shape, [&](Load& load) { exchange_outcomes(load, shape, table); });
  check_ranges(shape, table);
}

void read_entry(int descriptor, const Digest& key, const TableShape& shape, RoundTable& table) {
  std::vector<PackedRound> packed;
  read_payload(descriptor, key, shape,
               [&](Load& load) { exchange_rounds(load, shape, table, packed); });
  table.rounds.clear();
  for (const PackedRound& round : packed) table.rounds.push_back(unpack(round));
  check_ranges(shape, table);
}

}  // namespace dspark
