"""A language model over characters with a GRU cell by hand, as a lecture on small models."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = "the quick brown fox jumps over the lazy dog while five boxing wizards jump quickly. "


@dataclass
class ModelConfig:
    block_size: int = 12
    vocab_size: int = 30
    n_embd: int = 16
    n_embd2: int = 24


class GRUCell(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.xh_to_z = nn.Linear(config.n_embd + config.n_embd2, config.n_embd2)
        self.xh_to_r = nn.Linear(config.n_embd + config.n_embd2, config.n_embd2)
        self.xh_to_hbar = nn.Linear(config.n_embd + config.n_embd2, config.n_embd2)

    def forward(self, xt, hprev):
        xh = torch.cat([xt, hprev], dim=1)
        r = F.sigmoid(self.xh_to_r(xh))
        xhr = torch.cat([xt, r * hprev], dim=1)
        hbar = F.tanh(self.xh_to_hbar(xhr))
        z = F.sigmoid(self.xh_to_z(xh))
        return (1 - z) * hprev + z * hbar


class RNN(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.block_size = config.block_size
        self.vocab_size = config.vocab_size
        self.start = nn.Parameter(torch.zeros(1, config.n_embd2))
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.cell = GRUCell(config)
        self.lm_head = nn.Linear(config.n_embd2, self.vocab_size)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        emb = self.wte(idx)
        hprev = self.start.expand((b, -1))
        hiddens = []
        for i in range(t):
            ht = self.cell(emb[:, i, :], hprev)
            hprev = ht
            hiddens.append(ht)
        logits = self.lm_head(torch.stack(hiddens, 1))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
        return logits, loss


def make_model(width=16):
    return RNN(ModelConfig(n_embd=width, n_embd2=width + width // 2))


def train(model, steps, batch=4):
    chars = sorted(list(set(TEXT)))
    stoi = {ch: i for i, ch in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in TEXT * 3], dtype=torch.long)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    n = model.block_size
    for step in range(steps):
        starts = [(step * 13 + 7 * i) % (len(data) - n - 1) for i in range(batch)]
        X = torch.stack([data[i : i + n] for i in starts])
        Y = torch.stack([data[i + 1 : i + n + 1] for i in starts])
        _, loss = model(X, Y)
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        yield loss


@torch.no_grad()
def generate(model):
    idx = torch.zeros((1, 1), dtype=torch.long)
    for _ in range(20):
        logits, _ = model(idx[:, -model.block_size :])
        _, idx_next = torch.topk(F.softmax(logits[:, -1, :], dim=-1), k=1, dim=-1)
        idx = torch.cat((idx, idx_next), dim=1)
    return [int(i) for i in idx[0]]
