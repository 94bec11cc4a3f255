// Loads what ggml computes with, and says whether this CPU can run it. Leaves devices to the backend.
#pragma once

#include <string>

namespace dualar {

// Load the CPU variant that suits this machine best, and other backends, from the shared modules that a portable build
// carries in `folder`; nowhere else is looked for any. Other builds have theirs linked in: nothing happens. Called
// once, before anything else of ggml.
void load_backend_modules(const std::string& folder);

// What this CPU lacks of what the build needs, as "AVX2, FMA", so that an import can be refused where the first graph
// would end the process with an illegal instruction. Empty where nothing is missing.
std::string missing_cpu_features();

}  // namespace dualar
