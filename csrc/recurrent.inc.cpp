// LSTM and GRU: one direction of one layer through all of time, forward and backward. Threads take panels of sequences;
// where there are fewer panels than threads, they share the units of each step.
#pragma once

#include "guard.inc.cpp"
#include "recurrent_backward.inc.cpp"
#include "recurrent_forward.inc.cpp"

namespace wb::WB_ISA {

// Calls function(SamplePanel, Gru) with the narrowest panel that holds these samples.
template <class T, class Function>
static void with_recurrent_panel(const wb_recurrent& job, int64_t samples, Function&& function) {
    with_panel_bytes<T>(samples, [&](auto bytes) {
        using Panel = SamplePanel<T, decltype(bytes)::value>;
        if (job.kind == WB_GRU) function(Panel{}, std::true_type{});
        else function(Panel{}, std::false_type{});
    });
}

static int recurrent_threads(const wb_recurrent& job, int64_t connections, int threads) {
    const int64_t work = connections + kSums * 8 * job.n_hidden;
    return work * job.steps * job.batch < kParallelWork ? 1 : threads;
}

// How a job is shared: `panels` of its panels at a time, each by a team of `team` threads.
struct Sharing {
    int panels, team;
};

static Sharing share_job(const wb_recurrent& job, int64_t connections, int64_t panels, int threads) {
    constexpr int64_t kTeamWork = 40000;  // of a thread in one step: less, and threads mostly wait for each other
    threads = recurrent_threads(job, connections, threads);
    if (panels >= threads) return {threads, 1};
    const int64_t samples = (job.batch + panels - 1) / std::max<int64_t>(1, panels);
    const int64_t useful = (connections + kSums * 8 * job.n_hidden) * samples / kTeamWork;
    const int team = static_cast<int>(std::min<int64_t>(threads, useful));
    const bool countable = job.steps < (int64_t{1} << 31);
    return team > panels && countable ? Sharing{1, team} : Sharing{threads, 1};
}

template <class T>
static void recurrent_forward(const wb_recurrent* task, int threads) {
    const wb_recurrent& job = *task;
    if (job.batch <= 0 || job.n_hidden <= 0) return;
    const Matrices<T> matrices(job);
    const LinksBySum<T> links = links_by_sum(matrices);
    std::vector<T> bias(static_cast<size_t>(kSums * job.n_hidden), T(0));
    const bool gru = job.kind == WB_GRU;
    for (int64_t gate = 0; job.bias_ih != nullptr && gate < (gru ? 3 : 4); ++gate) {
        for (int64_t unit = 0; unit < job.n_hidden; ++unit) {
            T* sums = bias.data() + unit * kSums;
            sums[gate] += static_cast<const T*>(job.bias_ih)[gate * job.n_hidden + unit];
            sums[gru && gate == 2 ? 3 : gate] += static_cast<const T*>(job.bias_hh)[gate * job.n_hidden + unit];
        }
    }
    if (job.kept != nullptr)
        prefer_large_pages(job.kept, static_cast<size_t>(job.batch * job.steps * kKept * job.n_hidden) * sizeof(T));
    const int64_t panels = (job.batch + widest_samples<T> - 1) / widest_samples<T>;
    const Sharing sharing = share_job(job, matrices.connections(), panels, threads);
    parallel_for(sharing.panels, panels, [&](int64_t number) {
        const Stretch<T> run = stretch_of<T>(job, number);
        with_recurrent_panel<T>(job, run.samples, [&](auto panel, auto is_gru) {
            forward_stretch<decltype(panel), decltype(is_gru)::value>(run, links, bias.data(), sharing.team);
        });
    });
}

template <class T>
static void recurrent_backward(const wb_recurrent* task, const wb_recurrent_gradients* gradients, int threads) {
    const wb_recurrent& job = *task;
    const wb_recurrent_gradients& wanted = *gradients;
    const Matrices<T> matrices(job);
    const int64_t of_ih = matrices.ih.connections(), count = matrices.connections(), sums = kSums * job.n_hidden;
    const Link<T>* links = links_by_source(matrices);
    const int64_t panels = job.n_hidden > 0 ? (job.batch + widest_samples<T> - 1) / widest_samples<T> : 0;
    const Sharing sharing = share_job(job, count, panels, threads);
    // Each panel adds up its own gradients from 0, and these are added in the order of the panels, so that the number
    // of threads cannot matter.
    const int64_t together = std::max<int64_t>(1, std::min<int64_t>(sharing.panels, panels));
    const int64_t size = count + sums;
    T* space = static_cast<T*>(scratch(Scratch::recurrent_sums, static_cast<size_t>((together + 1) * size) * sizeof(T)));
    T* total = space + together * size;
    std::fill(total, total + size, T(0));
    for (int64_t first = 0; first < panels; first += together) {
        const int64_t here = std::min(together, panels - first);
        parallel_for(sharing.panels, here, [&](int64_t slot) {
            const Stretch<T> run = stretch_of<T>(job, first + slot);
            T* own = panels == 1 ? total : space + slot * size;
            with_recurrent_panel<T>(job, run.samples, [&](auto panel, auto is_gru) {
                constexpr bool gru = decltype(is_gru)::value;
                backward_stretch<decltype(panel), gru>(run, wanted, matrices, links, own, own + count, sharing.team);
            });
        });
        for (int64_t slot = 0; panels > 1 && slot < here; ++slot)
            for (int64_t k = 0; k < size; ++k) total[k] += space[slot * size + k];
    }
    const auto give = [](const Layer<T>& layer, const T* from, void* to) {
        for (int64_t k = 0; k < layer.connections(); ++k) static_cast<T*>(to)[k] = with_sign(from[k], layer.packed_rows[k]);
    };
    give(matrices.ih, total, wanted.dtheta_ih);
    give(matrices.hh, total + of_ih, wanted.dtheta_hh);
    const bool gru = job.kind == WB_GRU;
    for (int64_t gate = 0; wanted.dbias_ih != nullptr && gate < (gru ? 3 : 4); ++gate) {
        for (int64_t unit = 0; unit < job.n_hidden; ++unit) {
            const T* own = total + count + unit * kSums;
            static_cast<T*>(wanted.dbias_ih)[gate * job.n_hidden + unit] = own[gate];
            static_cast<T*>(wanted.dbias_hh)[gate * job.n_hidden + unit] = own[gru && gate == 2 ? 3 : gate];
        }
    }
}

template <class T>
static int recurrent_fault(const wb_recurrent& job, int bound) {
    const Matrices<T> matrices(job);
    if (const int fault = layer_fault(matrices.ih, job.connections_ih, bound)) return fault;
    return layer_fault(matrices.hh, job.connections_hh, bound);
}

// Calls run(task, threads) for each of some tasks, the directions of one layer. As many threads as tasks take one each,
// which needs no panels; more share the panels of one task after another. Which of both changes no result.
template <class T, class Run>
static void each_task(const wb_recurrent* tasks, int count, int threads, Run&& run) {
    const auto useful = [&](int task) { return recurrent_threads(tasks[task], Matrices<T>(tasks[task]).connections(), threads); };
    const bool one_panel = count > 0 && tasks[0].batch <= widest_samples<T>;
    const bool side_by_side = count > 1 && useful(0) > 1 && (threads <= count || one_panel);
    if (side_by_side) parallel_for(threads, count, [&](int64_t task) { run(task, 1); });
    for (int task = 0; !side_by_side && task < count; ++task) run(task, threads);
}

template <class T>
static int entry_recurrent_forward(const wb_recurrent* tasks, int count, int threads) {
    for (int task = 0; task < count; ++task)
        if (const int fault = recurrent_fault<T>(tasks[task], tasks[task].bound)) return fault;
    each_task<T>(tasks, count, threads, [&](int64_t task, int own) { recurrent_forward<T>(tasks + task, own); });
    return WB_FINE;
}

template <class T>
static int entry_recurrent_backward(const wb_recurrent* tasks, const wb_recurrent_gradients* gradients, int count,
                                    int threads) {
    for (int task = 0; task < count; ++task)
        if (const int fault = recurrent_fault<T>(tasks[task], 0)) return fault;
    each_task<T>(tasks, count, threads,
                 [&](int64_t task, int own) { recurrent_backward<T>(tasks + task, gradients + task, own); });
    return WB_FINE;
}

}  // namespace wb::WB_ISA
