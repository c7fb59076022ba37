#include "calibration/records.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "support/error.h"

namespace dspark {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
constexpr const char* kSpace = " \t\r\n";

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open_file(const std::string& file) { return {std::fopen(file.c_str(), "rbe"), &std::fclose}; }

/// Lines of bounded length.
class Lines {
 public:
  explicit Lines(const std::string& name) : name_(name), file_(open_file(name)) {
    if (!file_) fail_to_read();
  }

  /// False at the end. The line is without its newline.
  bool next(std::string& line) {
    line.clear();
    for (;;) {
      const int byte = std::getc(file_.get());
      if (byte == EOF) {
        if (std::ferror(file_.get()) != 0) fail_to_read();
        number_ += !line.empty();
        return !line.empty();
      }
      if (byte == '\n') break;
      if (line.size() == kMaxLineBytes) {
        ++number_;
        fail("is longer than 1 MiB");
      }
      line.push_back(static_cast<char>(byte));
    }
    ++number_;
    return true;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw trace_error(fmt::format("{}:{}", name_, number_), what,
                      "give the confidence_records.jsonl of DeepSpec: {\"logits\": [...], "
                      "\"labels\": [...]} on every line");
  }

 private:
  [[noreturn]] void fail_to_read() const {
    throw trace_error(name_, fmt::format("cannot be read: {}", std::strerror(errno)),
                      "give a file of confidence records");
  }

  std::string name_;
  File file_;
  std::int64_t number_ = 0;
};

const Json& list_of(const Json& record, const char* key, const Lines& lines) {
  if (!record.is_object() || !record.contains(key) || !record[key].is_array()) {
    lines.fail(fmt::format("has no list '{}'", key));
  }
  if (record[key].size() > static_cast<std::size_t>(kMaxCalibratedSlots)) {
    lines.fail(fmt::format("'{}' has {} entries; a block has at most {} drafts", key,
                           record[key].size(), kMaxCalibratedSlots));
  }
  return record[key];
}

double finite_number(const Json& value) {
  return value.is_number() ? value.get<double>() : std::nan("");
}

void parse_record(const std::string& line, LabelKind kind, const Lines& lines,
                  std::vector<SampleSlot>& slots) {
  slots.clear();
  const Json record = Json::parse(line, nullptr, false);
  if (record.is_discarded()) lines.fail("is no valid JSON");
  const Json& logits = list_of(record, "logits", lines);
  const Json& labels = list_of(record, "labels", lines);
  if (logits.size() != labels.size()) {
    lines.fail(fmt::format("has {} logits and {} labels", logits.size(), labels.size()));
  }
  bool accepted = true;
  for (std::size_t k = 0; k < logits.size(); ++k) {
    const double logit = finite_number(logits[k]);
    const double label = finite_number(labels[k]);
    if (!std::isfinite(logit)) lines.fail(fmt::format("logits[{}] is no finite number", k));
    if (label != 0 && label != 1) lines.fail(fmt::format("labels[{}] is neither 0 nor 1", k));
    if (label == 1 && !accepted) {
      lines.fail(fmt::format("labels[{}] is 1 behind a 0, and a rejection ends a block", k));
    }
    const bool counts = kind == LabelKind::cumulative || accepted;
    slots.push_back({.logit = logit, .label = label, .weight = counts ? 1.0 : 0.0});
    accepted = label == 1;
  }
}

}  // namespace

bool looks_like_records(const std::string& file) {
  const File stream = open_file(file);
  if (!stream) return false;
  for (std::size_t i = 0; i < kMaxLineBytes; ++i) {
    const int byte = std::getc(stream.get());
    if (byte == EOF) return false;
    if (byte == 0 || std::strchr(kSpace, byte) == nullptr) return byte == '{';
  }
  return false;
}

void read_records(const std::string& file, CalibrationSamples& samples) {
  samples.add_input(file, file);
  Lines lines(file);
  std::string line;
  std::vector<SampleSlot> slots;
  std::int64_t records = 0;
  while (lines.next(line)) {
    if (line.find_first_not_of(kSpace) == std::string::npos) continue;
    parse_record(line, samples.labels(), lines, slots);
    if (records % kRecordsPerSequence == 0) {
      samples.add_sequence(static_cast<std::int32_t>(records / kRecordsPerSequence));
    }
    samples.raise_block_size(static_cast<std::int32_t>(slots.size()));
    samples.add_block(slots);
    ++records;
  }
  if (records == 0) throw trace_error(file, "has no record", "give a file with some");
}

}  // namespace dspark
