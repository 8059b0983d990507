"""A Transformer encoder that labels padded sequences, as an interactive textbook writes it."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import data

LABELS = 5


def masked_softmax(X, valid_lens):
    """The softmax of the last axis; keys from the valid length on have no weight."""
    if valid_lens is None:
        return F.softmax(X, dim=-1)
    shape = X.shape
    if valid_lens.dim() == 1:
        valid_lens = torch.repeat_interleave(valid_lens, shape[1])
    else:
        valid_lens = valid_lens.reshape(-1)
    X = X.reshape(-1, shape[-1])
    columns = torch.arange((shape[-1]), dtype=torch.float32, device=X.device)
    mask = columns[None, :] < valid_lens[:, None]
    X[~mask] = -1e6
    return F.softmax(X.reshape(shape), dim=-1)


class DotProductAttention(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None):
        d = queries.shape[-1]
        scores = torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(d)
        self.attention_weights = masked_softmax(scores, valid_lens)
        return torch.bmm(self.dropout(self.attention_weights), values)


class MultiHeadAttention(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.attention = DotProductAttention(dropout)
        self.W_q = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_k = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_v = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_o = nn.LazyLinear(num_hiddens, bias=bias)

    def forward(self, queries, keys, values, valid_lens):
        queries = self.transpose_qkv(self.W_q(queries))
        keys = self.transpose_qkv(self.W_k(keys))
        values = self.transpose_qkv(self.W_v(values))
        if valid_lens is not None:
            valid_lens = torch.repeat_interleave(valid_lens, repeats=self.num_heads, dim=0)
        output = self.attention(queries, keys, values, valid_lens)
        return self.W_o(self.transpose_output(output))

    def transpose_qkv(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1)
        X = X.permute(0, 2, 1, 3)
        return X.reshape(-1, X.shape[2], X.shape[3])

    def transpose_output(self, X):
        X = X.reshape(-1, self.num_heads, X.shape[1], X.shape[2])
        X = X.permute(0, 2, 1, 3)
        return X.reshape(X.shape[0], X.shape[1], -1)


class PositionalEncoding(nn.Module):
    def __init__(self, num_hiddens, dropout, max_len=1000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        P = torch.zeros((1, max_len, num_hiddens))
        X = torch.arange(max_len, dtype=torch.float32).reshape(-1, 1) / torch.pow(
            10000, torch.arange(0, num_hiddens, 2, dtype=torch.float32) / num_hiddens
        )
        P[:, :, 0::2] = torch.sin(X)
        P[:, :, 1::2] = torch.cos(X)
        self.register_buffer("P", P, persistent=False)

    def forward(self, X):
        return self.dropout(X + self.P[:, : X.shape[1], :].to(X.device))


class AddNorm(nn.Module):
    def __init__(self, norm_shape, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.ln = nn.LayerNorm(norm_shape)

    def forward(self, X, Y):
        return self.ln(self.dropout(Y) + X)


class PositionWiseFFN(nn.Module):
    def __init__(self, ffn_num_hiddens, ffn_num_outputs):
        super().__init__()
        self.dense1 = nn.LazyLinear(ffn_num_hiddens)
        self.relu = nn.ReLU()
        self.dense2 = nn.LazyLinear(ffn_num_outputs)

    def forward(self, X):
        return self.dense2(self.relu(self.dense1(X)))


class EncoderBlock(nn.Module):
    def __init__(self, num_hiddens, ffn_num_hiddens, num_heads, dropout, use_bias=False):
        super().__init__()
        self.attention = MultiHeadAttention(num_hiddens, num_heads, dropout, use_bias)
        self.addnorm1 = AddNorm(num_hiddens, dropout)
        self.ffn = PositionWiseFFN(ffn_num_hiddens, num_hiddens)
        self.addnorm2 = AddNorm(num_hiddens, dropout)

    def forward(self, X, valid_lens):
        Y = self.addnorm1(X, self.attention(X, X, X, valid_lens))
        return self.addnorm2(Y, self.ffn(Y))


class Encoder(nn.Module):
    def __init__(self, vocab_size, num_hiddens, num_heads, num_blks, dropout=0.0):
        super().__init__()
        self.num_hiddens = num_hiddens
        self.embedding = nn.Embedding(vocab_size, num_hiddens)
        self.pos_encoding = PositionalEncoding(num_hiddens, dropout)
        self.blks = nn.Sequential()
        for i in range(num_blks):
            block = EncoderBlock(num_hiddens, 2 * num_hiddens, num_heads, dropout)
            self.blks.add_module("block" + str(i), block)
        self.head = nn.LazyLinear(LABELS)

    def forward(self, X, valid_lens):
        X = self.pos_encoding(self.embedding(X) * math.sqrt(self.num_hiddens))
        self.attention_weights = [None] * len(self.blks)
        for i, blk in enumerate(self.blks):
            X = blk(X, valid_lens)
            self.attention_weights[i] = blk.attention.attention.attention_weights
        return self.head(X)


def init_weights(module):
    if type(module) == nn.Linear:
        nn.init.xavier_uniform_(module.weight)


class Trainer:
    def __init__(self, model, lr, gradient_clip_val):
        self.model, self.clip = model, gradient_clip_val
        self.optim = torch.optim.Adam(model.parameters(), lr=lr)

    def fit_batch(self, X, valid_lens, Y):
        Y_hat = self.model(X, valid_lens)
        loss = F.cross_entropy(Y_hat.reshape(-1, LABELS), Y.reshape(-1), reduction="none")
        mask = (Y.reshape(-1) != -100).type(loss.dtype)
        loss = (loss * mask).sum() / mask.sum()
        self.optim.zero_grad()
        with torch.no_grad():
            loss.backward()
            self.clip_gradients(self.clip)
            self.optim.step()
        return loss

    def clip_gradients(self, grad_clip_val):
        params = [p for p in self.model.parameters() if p.requires_grad]
        norm = torch.sqrt(sum(torch.sum((p.grad**2)) for p in params))
        if norm > grad_clip_val:
            for param in params:
                param.grad[:] *= grad_clip_val / norm


def make_model(width=16):
    net = Encoder(30, width, num_heads=4, num_blks=2)
    X, valid_lens = torch.ones((2, 7), dtype=torch.long), torch.tensor([3, 2])
    net(X, valid_lens)  # the lazy layers see their sizes
    net.apply(init_weights)
    return net


def train(model, steps, batch=4):
    rows = torch.arange(steps * batch).reshape(-1, 1)
    X = (rows * 7 + torch.arange(10) * (rows % 3 + 1)) % 30
    valid_lens = rows.reshape(-1) % 8 + 3
    Y = (X + X.roll(1, dims=1)) % LABELS
    Y[torch.arange(10)[None, :] >= valid_lens[:, None]] = -100
    dataset = data.TensorDataset(X, valid_lens, Y)
    trainer = Trainer(model, lr=0.01, gradient_clip_val=1)
    for X, valid_lens, Y in data.DataLoader(dataset, batch, shuffle=False, num_workers=0):
        yield trainer.fit_batch(X, valid_lens, Y)
