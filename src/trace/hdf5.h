// A thin layer over the HDF5 C API: ids that close themselves, files whose links are followed by
// our rules, attributes that are checked before they are believed. Private to this folder. Every
// failure is an Error(trace).
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace dspark::h5 {

/// Owns an HDF5 id.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  Handle(Handle&& other) noexcept { swap(other); }
  Handle& operator=(Handle&& other) noexcept {
    Handle moved(std::move(other));
    swap(moved);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }

  [[nodiscard]] hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  /// Closes now; false where HDF5 says that closing failed (data that could not be flushed).
  bool close() {
    const hid_t id = std::exchange(id_, -1);
    return id < 0 || close_(id) >= 0;
  }
  /// Forgets the id without closing it.
  void abandon() { id_ = -1; }

 private:
  void swap(Handle& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
  }
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// Starts the library: its own error printing off, no plug-ins (a trace may come from a stranger).
void initialise();

/// Turns the library's own error printing off in the calling thread: where HDF5 is built for
/// threads, each has a switch of its own.
void quiet_this_thread();

/// What HDF5 says about its last failure, as " (HDF5: ...)"; empty where it says nothing.
[[nodiscard]] std::string last_message();

/// An IEEE-like float type of `exponent` + `mantissa` + 1 bits in the order of `like`.
[[nodiscard]] Handle float_type(hid_t like, std::size_t exponent, std::size_t mantissa);

/// The attributes of one object. Absent ones are empty; those of another type are errors.
class Attributes {
 public:
  /// `object` must outlive this; `object_path` "" is the root.
  Attributes(std::string file, std::string object_path, hid_t object);

  /// Any integer type, scalar or one element; never a float, a string or a boolean (an
  /// enumeration).
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& name) const;
  /// Any float or integer type, scalar or one element.
  [[nodiscard]] std::optional<double> real(const std::string& name) const;
  /// Fixed or variable length, any character set, scalar or one element; at most 64 KiB.
  [[nodiscard]] std::optional<std::string> text(const std::string& name) const;

  /// As above, but missing ones are errors.
  [[nodiscard]] std::int64_t require_integer(const std::string& name) const;
  [[nodiscard]] double require_real(const std::string& name) const;
  [[nodiscard]] std::string require_text(const std::string& name) const;

  /// Throws an error about the attribute `name`.
  [[noreturn]] void fail(const std::string& name, const std::string& problem,
                         const std::string& remedy = {}) const;

 private:
  [[nodiscard]] Handle open(const std::string& name) const;
  [[nodiscard]] Handle open_type(const std::string& name, hid_t attribute) const;
  [[noreturn]] void fail_missing(const std::string& name, const char* type) const;
  std::string file_;
  std::string object_path_;
  hid_t object_;
};

/// A file opened for reading. Locks nothing, so read-only folders and network file systems work.
class File {
 public:
  [[nodiscard]] static File open(const std::string& path);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// The descriptor that HDF5 reads from; this file owns it.
  [[nodiscard]] int descriptor() const;
  [[nodiscard]] Attributes root_attributes() const { return {name_, "", id_.get()}; }

  /// The group at `path`, or an empty handle if there is none. Anything else there is an error.
  [[nodiscard]] Handle find_group(const std::string& path) const;

  /// Where an object stands: a hard link.
  struct Link {
    Handle parent;
    std::string name;
  };
  /// Follows `path` from the root. Soft links are followed (at most 32 of them); external and
  /// user-defined links, and soft links that lead nowhere, are errors. Nothing if there is no such
  /// object.
  [[nodiscard]] std::optional<Link> find(const std::string& path) const;

 private:
  std::string name_;
  std::uint64_t bytes_ = 0;
  Handle id_;
};

}  // namespace dspark::h5
