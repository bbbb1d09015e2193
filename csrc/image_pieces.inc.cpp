// Images as a network is fed with them: a piece of each, mirrored or not, with its contrast changed, standardised.
#pragma once

#include "simd.h"

namespace wb::WB_ISA {

// Each piece of an image of bytes becomes (contrast * (x - m_c) + m_c - m) / s, m_c and m being the means of its channels
// and of all of it, and s the deviation of the numerator, at least 255 / sqrt(numbers of a piece). Sums are of whole
// numbers, so exact. contrast null: 1.
[[maybe_unused]] static int entry_cut_pieces(const wb_pieces* task, const uint8_t* images, const int64_t* chosen,
                                             const int64_t* top, const int64_t* left, const uint8_t* mirrored,
                                             const float* contrast, float* out, int threads) {
    const int64_t channels = task->channels, height = task->piece[0], width = task->piece[1];
    const int64_t area = height * width, stride = task->size[1], plane = task->size[0] * stride;
    parallel_for(threads, task->count, [&](int64_t b) {
        const uint8_t* image = images + chosen[b] * channels * plane + top[b] * stride + left[b];
        const double gain = contrast == nullptr ? 1.0 : static_cast<double>(contrast[b]);
        double mean = 0, within = 0, means_squared = 0;
        for (int64_t c = 0; c < channels; ++c) {
            uint64_t sum = 0, squares = 0;
            for (int64_t y = 0; y < height; ++y) {
                const uint8_t* row = image + c * plane + y * stride;
                uint32_t row_sum = 0, row_squares = 0;
                for (int64_t i = 0; i < width; ++i) {
                    row_sum += row[i];
                    row_squares += static_cast<uint32_t>(row[i]) * row[i];
                }
                sum += row_sum;
                squares += row_squares;
            }
            const double its_mean = static_cast<double>(sum) / static_cast<double>(area);
            mean += its_mean;
            means_squared += its_mean * its_mean;
            // area * squares - sum^2 is a whole number, and exactly 0 for one colour.
            within += static_cast<double>(static_cast<uint64_t>(area) * squares - sum * sum) / static_cast<double>(area);
        }
        mean /= static_cast<double>(channels);
        double between = means_squared - static_cast<double>(channels) * mean * mean;
        between = between > 0 ? between : 0;
        const double numbers = static_cast<double>(channels * area);
        const double variance = (gain * gain * within + static_cast<double>(area) * between) / numbers;
        const double least = 255.0 * 255.0 / numbers, deviation = std::sqrt(variance > least ? variance : least);
        const float factor = static_cast<float>(gain / deviation);
        for (int64_t c = 0; c < channels; ++c) {
            uint64_t sum = 0;
            for (int64_t y = 0; y < height; ++y) {
                const uint8_t* row = image + c * plane + y * stride;
                uint32_t row_sum = 0;
                for (int64_t i = 0; i < width; ++i) row_sum += row[i];
                sum += row_sum;
            }
            const double its_mean = static_cast<double>(sum) / static_cast<double>(area);
            const float level = static_cast<float>(its_mean), shift = static_cast<float>((its_mean - mean) / deviation);
            for (int64_t y = 0; y < height; ++y) {
                const uint8_t* row = image + c * plane + y * stride;
                float* to = out + ((b * channels + c) * height + y) * width;
                if (mirrored[b])
                    for (int64_t i = 0; i < width; ++i) to[i] = (static_cast<float>(row[width - 1 - i]) - level) * factor + shift;
                else
                    for (int64_t i = 0; i < width; ++i) to[i] = (static_cast<float>(row[i]) - level) * factor + shift;
            }
        }
    });
    return WB_FINE;
}

}  // namespace wb::WB_ISA
