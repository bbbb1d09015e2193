// The backward pass of a panel of sequences through time. In each step the gradients of all sums are made first, then
// every source gathers its gradient from them, and every connection its own.
#pragma once

#include "recurrent_links.inc.cpp"
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

// Gradients of the sums, and all that the step before needs.
template <class Panel, bool Gru, bool Masked>
static void backward_units(const wb_recurrent& job, const BackwardPanels<typename Panel::Number>& p,
                           const typename Panel::Number* slot, const typename Panel::Number* slot_before,
                           bool add_dy, const Bits<typename Panel::Number>* mask,
                           const Bits<typename Panel::Number>* mask_before) {
    using T = typename Panel::Number;
    using V = typename Panel::V;
    constexpr int64_t W = Panel::W;
    constexpr int Bytes = Panel::Bytes;
    T* h_rows = p.sources + job.n_in * W;
    T* dh_rows = p.dsources + job.n_in * W;
    for (int64_t unit = 0; unit < job.n_hidden; ++unit) {
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

// All columns of one matrix: the gradients of its sources and its connections.
template <class Panel, bool Back>
static void gather_sources(const Layer<typename Panel::Number>& layer, const Link<typename Panel::Number>* links,
                           const typename Panel::Number* sources, const typename Panel::Number* sums,
                           typename Panel::Number* dsources, typename Panel::Number* gradient) {
    constexpr int64_t W = Panel::W;
    int64_t begin = 0;
    for (int64_t column = 0; column < layer.n_in; ++column) {
        const int64_t end = layer.begin(column + 1);
        gather_links<Panel, Back>(links + begin, end - begin, sources + column * W, sums, dsources + column * W,
                                  gradient + begin);
        begin = end;
    }
}

// `gradient`: of the weights of all connections, in the order of `links`; `bias`: of all sums. Both are overwritten.
template <class Panel, bool Gru>
static void backward_stretch(const Stretch<typename Panel::Number>& run, const wb_recurrent_gradients& wanted,
                             const Matrices<typename Panel::Number>& matrices,
                             const Link<typename Panel::Number>* links, typename Panel::Number* gradient,
                             typename Panel::Number* bias) {
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
    for (int64_t step = run.steps; step-- > 0;) {
        const int64_t time = run.time(step);
        const T* slot = run.kept + step * slot_size;
        if (wanted.dy != nullptr) {
            pack<T, PanelBytes>(run.at(wanted.dy, run.first, wanted.dy_sample, time, wanted.dy_time), wanted.dy_sample,
                                run.samples, hidden, p.dy);
        }
        pack<T, PanelBytes>(run.at(job.x, run.first, job.x_sample, time, job.x_time), job.x_sample, run.samples, n_in,
                            p.sources);
        const bool masked = !run.all_run(step) || (step > 0 && !run.all_run(step - 1));
        if (masked) {
            run.mark_running(step, W, masks[0]);
            if (step > 0) run.mark_running(step - 1, W, masks[1]);
            else std::fill(masks[1], masks[1] + W, Bits<T>(-1));
        }
        const auto units = masked ? backward_units<Panel, Gru, true> : backward_units<Panel, Gru, false>;
        units(job, p, slot, step > 0 ? slot - slot_size : nullptr, wanted.dy != nullptr, masks[0], masks[1]);
        if (wanted.sums != nullptr) {  // someone watches
            const int64_t at = time * job.batch + run.first;
            unpack<T, PanelBytes>(p.sums, run.samples, kSums * hidden,
                                  static_cast<T*>(wanted.sums) + at * kSums * hidden, kSums * hidden);
            unpack<T, PanelBytes>(p.sources + n_in * W, run.samples, hidden,
                                  static_cast<T*>(wanted.h_before) + at * hidden, hidden);
        }
        gather_sources<Panel, true>(matrices.hh, links + of_ih, p.sources + n_in * W, p.sums, dh, gradient + of_ih);
        if (Gru || masked) {
            for (int64_t row = 0; row < hidden; ++row)
                for (int k = 0; k < Panel::vectors; ++k)
                    Panel::put(dh + row * W, k, Panel::get(dh + row * W, k) + Panel::get(p.past + row * W, k));
        }
        if (wanted.dx == nullptr) {
            gather_sources<Panel, false>(matrices.ih, links, p.sources, p.sums, p.dsources, gradient);
            continue;
        }
        gather_sources<Panel, true>(matrices.ih, links, p.sources, p.sums, p.dsources, gradient);
        unpack<T, PanelBytes>(p.dsources, run.samples, n_in,
                              run.at(wanted.dx, run.first, wanted.dx_sample, time, wanted.dx_time), wanted.dx_sample);
    }
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
