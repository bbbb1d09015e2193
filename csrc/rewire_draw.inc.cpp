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

// The smallest word w for which w / 2^32 * sum, as doubles, is not below the edge; 2^32 if there is none.
static uint64_t first_word_beyond(double edge, double sum) {
    const auto beyond = [&](uint64_t word) { return static_cast<double>(word) * 0x1p-32 * sum >= edge; };
    constexpr uint64_t kEnd = uint64_t{1} << 32;
    uint64_t word = static_cast<uint64_t>(std::min(std::max(edge / sum * 0x1p32, 0.0), 0x1p32));
    while (word > 0 && beyond(word - 1)) --word;
    while (word < kEnd && !beyond(word)) ++word;
    return word;
}

// The layer of each newborn by the given shares: the first one whose edge is above a uniform number. A layer that is full
// passes its excess on to the others, which is drawn again with the words that follow.
static void draw_layers(const RewireTask& task, int64_t count, int64_t* born, RewireScratch& scratch) {
    WordReader words(task.seed, uint32_t{WB_STREAM_NEWBORN_LAYER} | static_cast<uint32_t>(task.wiring_index) << 8,
                     static_cast<uint64_t>(task.step));
    const size_t layers = static_cast<size_t>(task.layers);
    const int64_t* room = scratch.dormant.data();
    std::vector<double>& edges = scratch.edges;
    std::vector<uint64_t>& bounds = scratch.bounds;
    std::vector<int64_t>& below = scratch.below;
    edges.resize(layers), bounds.resize(layers);
    while (count > 0) {
        double sum = 0;
        for (size_t i = 0; i < layers; ++i) edges[i] = sum += born[i] < room[i] ? task.shares[i] : 0.0;
        if (sum == 0) {  // only layers without a share have room left
            for (size_t i = 0; i < layers; ++i) edges[i] = sum += born[i] < room[i] ? 1.0 : 0.0;
        }
        for (size_t i = 0; i < layers; ++i) bounds[i] = first_word_beyond(edges[i], sum);
        below.assign(layers, 0);
        words.count_below(count, bounds.data(), task.layers, below.data());
        count = 0;
        for (size_t i = 0; i < layers; ++i) {
            const int64_t drawn = below[i] - (i > 0 ? below[i - 1] : 0), taken = std::min(drawn, room[i] - born[i]);
            born[i] += taken;
            count += drawn - taken;
        }
    }
}

static void draw_ranks(const RewireTask& task, int64_t count, int64_t* born, RewireScratch& scratch) {
    if (task.shares == nullptr) return draw_uniform(task, count, born, scratch);
    draw_layers(task, count, born, scratch);
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
