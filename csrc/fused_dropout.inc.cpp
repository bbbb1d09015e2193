// Dropout of a layer's inputs in the fused step. What is left out is a function of (seed, index, call), as in
// src/wirebound/nn/dropout.py: feature f of sample b goes by half word f * lanes + b of the call's stream (the low half of
// a word comes first), `lanes` being the batch rounded up to 8; it is left out if that half is below the threshold.
#pragma once

#include "random.inc.cpp"

namespace wb::WB_ISA {

class Dropout {
public:
    // `batch` is the largest that will be drawn for.
    Dropout(const wb_fused_layer& layer, int64_t batch)
        : spec_(layer), threshold_(static_cast<int32_t>(std::lround(layer.dropout * 65536.0))),
          scale_(static_cast<float>(1.0 / (1.0 - layer.dropout))) {
        if (is_on()) words_.resize(static_cast<size_t>(round_up(layer.n_in * round_up(batch, 8) / 2, 32) + kBeyond));
    }

    bool is_on() const { return spec_.dropout > 0.0; }

    // The numbers of one batch; `step` counts from the first of this run.
    void draw(int64_t step, int64_t batch) {
        lanes_ = round_up(batch, 8);
        const PhiloxKeys keys(spec_.dropout_seed);
        const uint32_t stream = uint32_t{WB_STREAM_DROPOUT} | static_cast<uint32_t>(spec_.dropout_index) << 8;
        const uint64_t call = static_cast<uint64_t>(spec_.dropout_calls + step);
        const int64_t groups = (spec_.n_in * lanes_ / 2 + 31) / 32;
        for (int64_t g = 0; g < groups; ++g)
            group_words<1>(keys, stream, call, static_cast<uint64_t>(g), words_.data() + 32 * g);
    }

    // to = from where it is kept, times 1 / (1 - p), and 0 elsewhere; panels whose first sample is number `first`.
    template <int V>
    void apply(int64_t first, const float* from, float* to) const {
        const char* halves = reinterpret_cast<const char*>(words_.data());
        const Floats8 scale = splat<float, 32>(scale_);
        const Ints8 threshold = Ints8{} + threshold_;
        for (int64_t f = 0; f < spec_.n_in; ++f)
            for (int v = 0; v < V; ++v) {
                Vec<uint16_t, 16> drawn;
                std::memcpy(&drawn, halves + 2 * (f * lanes_ + first + 8 * v), sizeof drawn);
                const Ints8 kept = __builtin_convertvector(drawn, Ints8) >= threshold;
                const int64_t at = (f * V + v) * 8;
                store<float, 32>(to + at, (Floats8)((Ints8)(load<float, 32>(from + at) * scale) & kept));
            }
    }

private:
    static constexpr int64_t kBeyond = 16;  // words that a last panel, which is wider than the batch, reads beyond it
    const wb_fused_layer& spec_;
    int32_t threshold_;
    float scale_;
    int64_t lanes_ = 0;
    std::vector<uint32_t> words_;
};

}  // namespace wb::WB_ISA
