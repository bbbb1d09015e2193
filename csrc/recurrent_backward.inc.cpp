// The backward pass of a panel of sequences through time. In each step the gradients of all sums are made first, then
// every source gathers its gradient from them, and every connection its own.
#pragma once

#include "recurrent_links.inc.cpp"
#include "team.inc.cpp"
#include "vector_math.inc.cpp"
#include "transpose.inc.cpp"

namespace wb::WB_ISA {

// The panels of a backward pass.
template <class T>
struct BackwardPanels {
    T *sources, *dsources;  // x and h that went into the step, and their gradients; what of dh comes past the sums is in `past`
    T *past, *dc, *dy;
    T *tanh_c;        // of c after the step
    T *h_0, *c_0;
    T *sums;          // gradients of the four sums of each unit
    T *bias;          // gradients of the sums, added up over time: one vector for each
};

// Gradients of the sums of the units [begin, end), and all that the step before needs of them.
template <class Panel, bool Gru, bool Masked>
static void backward_units(const wb_recurrent& job, int64_t begin, int64_t end,
                           const BackwardPanels<typename Panel::Number>& p,
                           const typename Panel::Number* slot, const typename Panel::Number* slot_before,
                           bool add_dy, const Bits<typename Panel::Number>* mask,
                           const Bits<typename Panel::Number>* mask_before) {
    using T = typename Panel::Number;
    using V = typename Panel::V;
    constexpr int64_t W = Panel::W;
    constexpr int Bytes = Panel::Bytes;
    T* h_rows = p.sources + job.n_in * W;
    T* dh_rows = p.dsources + job.n_in * W;
    for (int64_t unit = begin; unit < end; ++unit) {
        const T* cell = slot + unit * kKept * W;
        const T* before = slot_before ? slot_before + unit * kKept * W : nullptr;
        if (before) prefetch_unit<Panel>(before);
        const T* h_0 = p.h_0 + unit * W;
        const T* state_before = before ? before + 4 * W : (Gru ? p.h_0 : p.c_0) + unit * W;
        T* sums = p.sums + unit * kSums * W;
        V totals[kSums] = {};
        for (int k = 0; k < Panel::vectors; ++k) {
            const V carried = Panel::get(dh_rows + unit * W, k);
            V dh = carried;
            if (add_dy) dh += Panel::get(p.dy + unit * W, k);
            typename Panel::Mask running = {}, ran = {};
            if constexpr (Masked) {
                running = load<Bits<T>, Bytes>(mask + k * Panel::lanes);
                ran = load<Bits<T>, Bytes>(mask_before + k * Panel::lanes);
            }
            const V state = Panel::get(state_before, k);
            V d[kSums], h_before;
            if constexpr (Gru) {
                const V r = Panel::get(cell, k), z = Panel::get(cell + W, k), n = Panel::get(cell + 2 * W, k);
                h_before = state;
                d[2] = dh * (T(1) - z) * (T(1) - n * n);
                d[1] = dh * (h_before - n) * (z * (T(1) - z));
                d[0] = d[2] * Panel::get(cell + 3 * W, k) * (r * (T(1) - r));
                d[3] = d[2] * r;
                V past = dh * z;
                if constexpr (Masked) past = Panel::choose(running, past, carried);
                Panel::put(p.past + unit * W, k, past);
            } else {
                const V i = Panel::get(cell, k), f = Panel::get(cell + W, k);
                const V g = Panel::get(cell + 2 * W, k), o = Panel::get(cell + 3 * W, k);
                const V tanh_c = Panel::get(p.tanh_c + unit * W, k), dc_after = Panel::get(p.dc + unit * W, k);
                const V dc = dc_after + dh * o * (T(1) - tanh_c * tanh_c);
                d[0] = dc * g * (i * (T(1) - i));
                d[1] = dc * state * (f * (T(1) - f));
                d[2] = dc * i * (T(1) - g * g);
                d[3] = dh * tanh_c * (o * (T(1) - o));
                V dc_before = dc * f;
                if constexpr (Masked) {
                    dc_before = Panel::choose(running, dc_before, dc_after);
                    Panel::put(p.past + unit * W, k, Panel::only(~running, carried));
                }
                Panel::put(p.dc + unit * W, k, dc_before);
                // h before the step is not kept: it follows from what its own step keeps.
                const V tanh_before = tanh_of<T, Bytes>(state);
                Panel::put(p.tanh_c + unit * W, k, tanh_before);
                h_before = before ? Panel::get(before + 3 * W, k) * tanh_before : Panel::get(h_0, k);
                if constexpr (Masked) h_before = Panel::choose(ran, h_before, Panel::get(h_0, k));
            }
            Panel::put(h_rows + unit * W, k, h_before);
            for (int gate = 0; gate < kSums; ++gate) {
                if constexpr (Masked) d[gate] = Panel::only(running, d[gate]);
                Panel::put(sums + gate * W, k, d[gate]);
                totals[gate] += d[gate];
            }
        }
        T* bias = p.bias + unit * kSums * Panel::lanes;
        for (int gate = 0; gate < kSums; ++gate)
            Panel::put(bias + gate * Panel::lanes, 0, Panel::get(bias + gate * Panel::lanes, 0) + totals[gate]);
    }
}

// The columns [first, last) of one matrix: the gradients of these sources and their connections.
template <class Panel, bool Back>
static void gather_sources(int64_t first, int64_t last, const Layer<typename Panel::Number>& layer,
                           const Link<typename Panel::Number>* links,
                           const typename Panel::Number* sources, const typename Panel::Number* sums,
                           typename Panel::Number* dsources, typename Panel::Number* gradient) {
    constexpr int64_t W = Panel::W;
    if (first >= last) return;
    int64_t begin = layer.begin(first);
    for (int64_t column = first; column < last; ++column) {
        const int64_t end = layer.begin(column + 1);
        gather_links<Panel, Back>(links + begin, end - begin, sources + column * W, sums, dsources + column * W,
                                  gradient + begin);
        begin = end;
    }
}

// Where parts of the joined sources begin that take about the same time.
template <class T>
static void share_sources(const Matrices<T>& matrices, int64_t parts, int64_t* begin) {
    constexpr int64_t kEmpty = 8;  // connections that take as long as a source without any
    const int64_t n_in = matrices.ih.n_in, sources = matrices.sources(), of_ih = matrices.ih.connections();
    const auto work_before = [&](int64_t source) {
        const int64_t links = source < n_in ? matrices.ih.begin(source) : of_ih + matrices.hh.begin(source - n_in);
        return links + kEmpty * source;
    };
    begin[0] = 0;
    for (int64_t part = 1; part <= parts; ++part) {
        begin[part] = begin[part - 1];
        while (begin[part] < sources && work_before(begin[part]) * parts < work_before(sources) * part) ++begin[part];
    }
    begin[parts] = sources;
}

// `gradient`: of the weights of all connections, in the order of `links`; `bias`: of all sums. Both are overwritten.
// A step is two phases of a team: the gradients of the sums (block 0 packs x), then those of sources and connections.
template <class Panel, bool Gru>
static void backward_stretch(const Stretch<typename Panel::Number>& run, const wb_recurrent_gradients& wanted,
                             const Matrices<typename Panel::Number>& matrices,
                             const Link<typename Panel::Number>* links, typename Panel::Number* gradient,
                             typename Panel::Number* bias, int threads) {
    using T = typename Panel::Number;
    constexpr int64_t W = Panel::W;
    constexpr int PanelBytes = Panel::PanelBytes;
    const wb_recurrent& job = run.job;
    const int64_t hidden = job.n_hidden, n_in = job.n_in, slot_size = kKept * hidden * W;
    const int64_t rows = 2 * (n_in + hidden) + 6 * hidden + kSums * hidden;
    T* space = static_cast<T*>(scratch(
        Scratch::recurrent, static_cast<size_t>(rows * W + kSums * hidden * Panel::lanes) * sizeof(T)));
    const auto take = [&](int64_t count) { return std::exchange(space, space + count * W); };
    BackwardPanels<T> p;
    p.sources = take(n_in + hidden);
    p.dsources = take(n_in + hidden);
    p.past = take(hidden);
    p.dc = take(hidden);
    p.dy = take(hidden);
    p.tanh_c = take(hidden);
    p.h_0 = take(hidden);
    p.c_0 = take(hidden);
    p.sums = take(kSums * hidden);
    p.bias = space;
    T* dh = p.dsources + n_in * W;
    const auto start = [&](const void* state, T* panel) {
        if (state != nullptr) pack<T, PanelBytes>(run.rows_of_state(state), hidden, run.samples, hidden, panel);
        else std::fill(panel, panel + hidden * W, T(0));
    };
    start(job.h_0, p.h_0);
    start(wanted.dh_n, dh);
    if constexpr (!Gru) {
        start(job.c_0, p.c_0);
        start(wanted.dc_n, p.dc);
        for (int64_t unit = 0; run.steps > 0 && unit < hidden; ++unit)
            for (int k = 0; k < Panel::vectors; ++k)
                Panel::put(p.tanh_c + unit * W, k,
                           tanh_of<T, Panel::Bytes>(
                               Panel::get(run.kept + (run.steps - 1) * slot_size + (unit * kKept + 4) * W, k)));
    }
    const int64_t of_ih = matrices.ih.connections(), of_hh = matrices.hh.connections();
    std::fill(gradient, gradient + of_ih + of_hh, T(0));
    std::fill(p.bias, p.bias + kSums * hidden * Panel::lanes, T(0));
    alignas(64) Bits<T> masks[2][W];
    const auto masked = [&](int64_t step) { return !run.all_run(step) || (step > 0 && !run.all_run(step - 1)); };
    const auto mark = [&](int64_t step) {
        run.mark_running(step, W, masks[0]);
        if (step > 0) run.mark_running(step - 1, W, masks[1]);
        else std::fill(masks[1], masks[1] + W, Bits<T>(-1));
    };
    const auto pack_x = [&](int64_t time) {
        pack<T, PanelBytes>(run.at(job.x, run.first, job.x_sample, time, job.x_time), job.x_sample, run.samples, n_in,
                            p.sources);
    };
    const auto units = [&](int64_t step, int64_t begin, int64_t end) {
        const int64_t time = run.time(step), count = end - begin;
        const T* slot = run.kept + step * slot_size;
        if (wanted.dy != nullptr) {
            pack<T, PanelBytes>(run.at(wanted.dy, run.first, wanted.dy_sample, time, wanted.dy_time) + begin,
                                wanted.dy_sample, run.samples, count, p.dy + begin * W);
        }
        const auto take = masked(step) ? backward_units<Panel, Gru, true> : backward_units<Panel, Gru, false>;
        take(job, begin, end, p, slot, step > 0 ? slot - slot_size : nullptr, wanted.dy != nullptr, masks[0], masks[1]);
        if (wanted.sums != nullptr) {  // someone watches
            const int64_t at = (time * job.batch + run.first) * hidden + begin;
            unpack<T, PanelBytes>(p.sums + kSums * begin * W, run.samples, kSums * count,
                                  static_cast<T*>(wanted.sums) + at * kSums, kSums * hidden);
            unpack<T, PanelBytes>(p.sources + (n_in + begin) * W, run.samples, count,
                                  static_cast<T*>(wanted.h_before) + at, hidden);
        }
    };
    const auto gather = [&](int64_t step, int64_t begin, int64_t end) {
        const int64_t h_begin = std::max(begin, n_in) - n_in, h_end = std::max(end, n_in) - n_in;
        gather_sources<Panel, true>(h_begin, h_end, matrices.hh, links + of_ih, p.sources + n_in * W, p.sums, dh,
                                    gradient + of_ih);
        for (int64_t row = h_begin; (Gru || masked(step)) && row < h_end; ++row)
            for (int k = 0; k < Panel::vectors; ++k)
                Panel::put(dh + row * W, k, Panel::get(dh + row * W, k) + Panel::get(p.past + row * W, k));
        const int64_t x_end = std::min(end, n_in);
        if (wanted.dx == nullptr) {
            gather_sources<Panel, false>(begin, x_end, matrices.ih, links, p.sources, p.sums, p.dsources, gradient);
        } else if (begin < x_end) {
            gather_sources<Panel, true>(begin, x_end, matrices.ih, links, p.sources, p.sums, p.dsources, gradient);
            T* dx = run.at(wanted.dx, run.first, wanted.dx_sample, run.time(step), wanted.dx_time) + begin;
            unpack<T, PanelBytes>(p.dsources + begin * W, run.samples, x_end - begin, dx, wanted.dx_sample);
        }
    };
    const int64_t parts = parts_of(hidden, threads);
    std::vector<int64_t> first_source(static_cast<size_t>(parts) + 1);
    share_sources(matrices, parts, first_source.data());
    const auto step_of = [&](int64_t phase) { return run.steps - 1 - phase / 2; };
    Team::walk(
        threads, 2 * run.steps, [&](int64_t phase) { return phase % 2 == 0 ? 1 + parts : parts; },
        [&](int64_t phase) {
            if (phase % 2 == 0 && masked(step_of(phase))) mark(step_of(phase));
        },
        [&](int64_t phase, int64_t block) {
            const int64_t step = step_of(phase);
            if (phase % 2 == 1) gather(step, first_source[block], first_source[block + 1]);
            else if (block == 0) pack_x(run.time(step));
            else units(step, part_begin(hidden, parts, block - 1), part_begin(hidden, parts, block));
        });
    for (int64_t time = run.steps; wanted.dx != nullptr && time < job.steps; ++time)
        for (int64_t b = 0; b < run.samples; ++b)
            clear_rows(run.at(wanted.dx, run.first, wanted.dx_sample, time, wanted.dx_time), wanted.dx_sample, n_in, b);
    unpack<T, PanelBytes>(dh, run.samples, hidden, run.rows_of_state(wanted.dh_0), hidden);
    if constexpr (!Gru) unpack<T, PanelBytes>(p.dc, run.samples, hidden, run.rows_of_state(wanted.dc_0), hidden);
    for (int64_t sum = 0; sum < kSums * hidden; ++sum) {
        T total = 0;
        for (int lane = 0; lane < Panel::lanes; ++lane) total += p.bias[sum * Panel::lanes + lane];
        bias[sum] = total;
    }
}

}  // namespace wb::WB_ISA
