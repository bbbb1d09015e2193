"""DEEP R in a hundred lines of NumPy, for learning: two layers, each with exactly K connections after every step.

    python examples/deep_r_in_100_lines.py

What one sees: the network learns handwritten digits with a tenth of the connections; in every step some die, and
newborns replace them elsewhere. No array has the size of the dense matrix: each layer is three arrays of length K.
"""

import numpy as np
from sklearn.datasets import load_digits


class SparseLayer:
    """K connections of an n_in × n_out matrix. Connection k goes from input column[k] to output row[k]."""

    def __init__(self, n_in: int, n_out: int, budget: int, random: np.random.Generator) -> None:
        self.n_in, self.n_out, self.budget, self.random = n_in, n_out, budget, random
        self.place(np.sort(random.choice(n_in * n_out, budget, replace=False)))
        self.theta = np.abs(random.normal(size=budget)) * np.sqrt(n_out / budget)

    def place(self, position: np.ndarray) -> None:
        """Set the positions, which must be sorted. A position numbers all possible connections, column by column."""
        self.position = position
        self.column, self.row = position // self.n_out, position % self.n_out
        # Every possible connection has a constant sign: a hash of its position, which needs no memory.
        self.sign = 1.0 - 2.0 * ((position * 2654435761 >> 17) & 1)

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        y = np.zeros((self.n_out, len(x)))
        np.add.at(y, self.row, (self.sign * self.theta)[:, None] * x.T[self.column])  # w = s θ
        return y.T

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Return the gradient of the input and keep that of the K weights. Newborns (θ = 0) get a gradient as well."""
        arriving = dy.T[self.row]
        self.gradient = self.sign * np.einsum("kb,kb->k", arriving, self.x.T[self.column])  # ∂E/∂θ = s ∂E/∂w
        dx = np.zeros((self.n_in, len(dy)))
        np.add.at(dx, self.column, (self.sign * self.theta)[:, None] * arriving)
        return dx.T

    def step(self, lr: float, l1: float, temperature: float) -> int:
        """Algorithm 1 of the paper. Returns the number of replaced connections."""
        noise = np.sqrt(2 * lr * temperature) * self.random.normal(size=self.budget)
        self.theta += -lr * self.gradient - lr * l1 + noise
        alive = self.theta >= 0  # θ < 0: the connection becomes dormant
        born = self.dormant(self.position[alive], self.budget - int(alive.sum()))
        position = np.concatenate([self.position[alive], born])
        theta = np.concatenate([self.theta[alive], np.zeros(len(born))])  # a newborn starts with θ = 0
        order = np.argsort(position)
        self.place(position[order])
        self.theta = theta[order]
        return len(born)

    def dormant(self, active: np.ndarray, count: int) -> np.ndarray:
        """Draw ``count`` dormant positions uniformly, without a list of all dormant positions.

        With the active positions sorted, the r-th dormant one is r + #{i : active[i] - i <= r}.
        """
        rank = self.random.choice(self.n_in * self.n_out - len(active), count, replace=False)
        return rank + np.searchsorted(active - np.arange(len(active)), rank, side="right")


def train(epochs: int = 30, connectivity: float = 0.1, seed: int = 0) -> float:
    """Return the test accuracy of the last epoch."""
    random = np.random.default_rng(seed)
    digits = load_digits()
    x, y = digits.data / 16, digits.target
    order = random.permutation(len(y))
    train_part, test_part = order[:1437], order[1437:]
    hidden = SparseLayer(64, 60, int(connectivity * 64 * 60), random)
    output = SparseLayer(60, 10, int(connectivity * 60 * 10 * 3), random)  # small matrices get a higher connectivity
    accuracy = 0.0
    for epoch in range(epochs):
        lr, replaced = 0.5 * (1 - epoch / epochs), 0
        for batch in np.array_split(random.permutation(train_part), 72):
            a = np.maximum(hidden.forward(x[batch]), 0)
            logits = output.forward(a)
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            p[np.arange(len(batch)), y[batch]] -= 1  # softmax cross-entropy: the gradient is p − target
            da = output.backward(p / len(batch))
            hidden.backward(da * (a > 0))
            for layer in (hidden, output):
                replaced += layer.step(lr, l1=1e-4, temperature=0.0)
                assert len(np.unique(layer.position)) == layer.budget  # exactly K, after every step
        guess = output.forward(np.maximum(hidden.forward(x[test_part]), 0)).argmax(1)
        accuracy = float((guess == y[test_part]).mean())
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: {100 * accuracy:.1f} %, {hidden.budget} + {output.budget} connections, {replaced} replaced")
    return accuracy


if __name__ == "__main__":
    train()
