// A whole step of Algorithm 1 for one wiring: the update, and the rewiring of who died in it.
#pragma once

#include "rewire.inc.cpp"
#include "update.inc.cpp"

namespace wb::WB_ISA {

template <class T>
static int64_t count_active(const T* theta, int64_t from, int64_t to) {
    int64_t count = 0;
    for (int64_t k = from; k < to; ++k) count += theta[k] >= 0;
    return count;
}

template <class T>
static int64_t entry_step(const wb_step* task, int threads) {
    static thread_local Dead dead;
    static thread_local RewireScratch scratch;
    const UpdateArrays<T> arrays{static_cast<T*>(task->theta),   static_cast<const T*>(task->gradient),
                                 static_cast<T*>(task->moment1), static_cast<T*>(task->moment2),
                                 static_cast<T*>(task->moment2_max), task->birth};
    dead.most = most_listed(task->budget);
    if (try_update<T>(task->rule, arrays, task->budget, task->drifts, task->n_drifts, threads, dead)) return WB_NOT_FINITE;
    const RewireTask rewiring{task->budget, task->layers, task->n_in, task->n_out, task->colptr, task->packed_rows, task->carried,
                              task->n_carried, nullptr, task->rule.seed, task->wiring_index, task->rule.step,
                              task->shares, dead.most, task->open_columns, task->open_counts};
    if (worth_streaming(rewiring, dead.count)) {
        mark_negative(rewiring, arrays.theta, scratch);
        rewire_by_streaming(rewiring, dead.count, task->born, task->died, threads, scratch);
    } else {
        rewire_wiring(rewiring, dead.indices.data(), dead.count, task->born, task->died, threads, scratch);
    }
    scratch.give_back_large();
    give_back_if_large(dead.indices);
    const int64_t* colptr = task->colptr;
    for (int64_t i = 0; i < task->layers; colptr += task->n_in[i], ++i)
        task->active[i] = count_active(arrays.theta, colptr[0], colptr[task->n_in[i]]);
    return dead.count;
}

}  // namespace wb::WB_ISA
