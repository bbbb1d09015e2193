// The update of one connection, in double, by torch's formulas.
#pragma once

#include <cmath>

#include "wirebound.h"

struct ConnectionState {
    double theta, moment1, moment2, moment2_max;
};

inline void optimise_reference(const wb_rule& rule, ConnectionState& s, double gradient, bool has_momentum, bool amsgrad,
                               double age) {
    double g = rule.maximize ? -gradient : gradient;
    if (rule.kind == WB_SGD) {
        g += rule.weight_decay * s.theta;
        if (has_momentum) {
            s.moment1 = rule.fresh ? g : rule.momentum * s.moment1 + (1 - rule.dampening) * g;
            g = rule.nesterov ? g + rule.momentum * s.moment1 : s.moment1;
        }
        s.theta -= rule.lr * g;
    } else if (rule.kind == WB_ADAM) {
        if (rule.decoupled) s.theta *= 1 - rule.lr * rule.weight_decay;
        else g += rule.weight_decay * s.theta;
        s.moment1 += (1 - rule.beta1) * (g - s.moment1);
        s.moment2 = rule.beta2 * s.moment2 + (1 - rule.beta2) * g * g;
        double second = s.moment2;
        if (amsgrad) second = s.moment2_max = std::fmax(s.moment2_max, s.moment2);
        const double correction1 = 1 - std::pow(rule.beta1, age), correction2 = 1 - std::pow(rule.beta2, age);
        s.theta -= rule.lr / correction1 * s.moment1 / (std::sqrt(second) / std::sqrt(correction2) + rule.eps);
    }
}
