#include "nn/rvq.h"

#include <algorithm>

namespace dualar::nn {

void Rvq::look_up(const int32_t* codes, int64_t frames, float* out) const {
    for (size_t q = 0; q < codebooks.size(); ++q) {
        const HostTable& book = codebooks[q];
        for (int64_t t = 0; t < frames; ++t) {
            const int64_t code = codes[static_cast<int64_t>(q) * frames + t];
            book.read(std::clamp<int64_t>(code, 0, book.rows() - 1),
                      out + t * columns() + static_cast<int64_t>(q) * codebook_dim);
        }
    }
}

}  // namespace dualar::nn
