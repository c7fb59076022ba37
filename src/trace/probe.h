// Opening what may be hostile: in another process first. Private to this folder.
#pragma once

#include <functional>
#include <string>

namespace dspark {

/// Runs `work` in a child process and throws Error(trace) about `file` if the child crashes or does
/// not come to an end; what `work` throws is ignored. HDF5 does not survive every kind of damage to
/// its metadata (a bad global heap, where texts of variable length are kept, makes it read outside
/// its buffers or loop), and checks from outside cannot reach there. Where the system does not
/// allow a child, nothing is run.
void probe(const std::string& file, const std::function<void()>& work);

}  // namespace dspark
