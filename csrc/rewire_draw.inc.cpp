// Which dormant positions are born: sorted ranks for each layer, and how many each layer gets.
#pragma once

#include "random.inc.cpp"
#include "rewire_task.inc.cpp"

namespace wb::WB_ISA {

// Uniform over all dormant positions of the wiring: ranks through all layers, then taken apart.
static void draw_uniform(const RewireTask& task, int64_t count, int64_t* born, RewireScratch& scratch) {
    int64_t dormant = 0;
    for (int64_t here : scratch.dormant) dormant += here;
    scratch.ranks.resize(static_cast<size_t>(count));
    int64_t* ranks = scratch.ranks.data();
    sample_sorted(dormant, count, task.seed, uint32_t{WB_STREAM_NEWBORN} | static_cast<uint32_t>(task.wiring_index) << 8,
                  static_cast<uint64_t>(task.step), ranks);
    int64_t at = 0, before = 0;
    for (int64_t i = 0; i < task.layers; ++i) {
        const int64_t here = scratch.dormant[static_cast<size_t>(i)];
        for (; at < count && ranks[at] - before < here; ++at) {
            ranks[at] -= before;
            ++born[i];
        }
        before += here;
    }
}

// The layer of each newborn by the given shares; a layer that is full passes its excess on to the others, which is
// drawn again with the words that follow.
static void draw_layers(const RewireTask& task, int64_t count, const int64_t* room, int64_t* born) {
    WordReader words(task.seed, uint32_t{WB_STREAM_NEWBORN_LAYER} | static_cast<uint32_t>(task.wiring_index) << 8,
                     static_cast<uint64_t>(task.step));
    const size_t layers = static_cast<size_t>(task.layers);
    std::vector<double> edges(layers);
    std::vector<int64_t> drawn(layers);
    while (count > 0) {
        double sum = 0;
        for (size_t i = 0; i < layers; ++i) edges[i] = sum += born[i] < room[i] ? task.shares[i] : 0.0;
        if (sum == 0) {  // only layers without a share have room left
            for (size_t i = 0; i < layers; ++i) edges[i] = sum += born[i] < room[i] ? 1.0 : 0.0;
        }
        std::fill(drawn.begin(), drawn.end(), 0);
        for (int64_t t = 0; t < count; ++t) {
            const double u = words.next() * 0x1p-32 * sum;
            size_t i = 0;
            while (edges[i] <= u) ++i;
            ++drawn[i];
        }
        count = 0;
        for (size_t i = 0; i < layers; ++i) {
            const int64_t taken = std::min(drawn[i], room[i] - born[i]);
            born[i] += taken;
            count += drawn[i] - taken;
        }
    }
}

static void draw_ranks(const RewireTask& task, int64_t count, int64_t* born, RewireScratch& scratch) {
    if (task.shares == nullptr) return draw_uniform(task, count, born, scratch);
    draw_layers(task, count, scratch.dormant.data(), born);
    scratch.ranks.resize(static_cast<size_t>(count));
    int64_t* ranks = scratch.ranks.data();
    for (int64_t i = 0; i < task.layers; ++i) {
        const uint32_t stream = uint32_t{WB_STREAM_NEWBORN} | static_cast<uint32_t>(task.wiring_index) << 8 |
                                static_cast<uint32_t>(i + 1) << 20;
        sample_sorted(scratch.dormant[static_cast<size_t>(i)], born[i], task.seed, stream,
                      static_cast<uint64_t>(task.step), ranks);
        ranks += born[i];
    }
}

}  // namespace wb::WB_ISA
