"""A neural probabilistic language model over names, as a lecture on small models writes it."""

import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from torch.utils.data.dataloader import DataLoader

SYLLABLES = "ka ri mo te lu san del vi no ber ath os".split()


class CharDataset(Dataset):
    def __init__(self, words, chars, max_word_length):
        self.words = words
        self.chars = chars
        self.max_word_length = max_word_length
        self.stoi = {ch: i + 1 for i, ch in enumerate(chars)}
        self.itos = {i: s for s, i in self.stoi.items()}

    def __len__(self):
        return len(self.words)

    def get_vocab_size(self):
        return len(self.chars) + 1

    def get_output_length(self):
        return self.max_word_length + 1

    def encode(self, word):
        return torch.tensor([self.stoi[w] for w in word], dtype=torch.long)

    def decode(self, ix):
        return "".join(self.itos[i] for i in ix)

    def __getitem__(self, idx):
        ix = self.encode(self.words[idx])
        x = torch.zeros(self.max_word_length + 1, dtype=torch.long)
        y = torch.zeros(self.max_word_length + 1, dtype=torch.long)
        x[1 : 1 + len(ix)] = ix
        y[: len(ix)] = ix
        y[len(ix) + 1 :] = -1  # the loss leaves these out
        return x, y


class MLP(nn.Module):
    """Takes the embeddings of the last characters side by side."""

    def __init__(self, vocab_size, block_size, n_embd, n_embd2):
        super().__init__()
        self.block_size = block_size
        self.vocab_size = vocab_size
        self.wte = nn.Embedding(vocab_size + 1, n_embd)  # one more for what stands before
        self.mlp = nn.Sequential(
            nn.Linear(self.block_size * n_embd, n_embd2),
            nn.Tanh(),
            nn.Linear(n_embd2, self.vocab_size),
        )

    def get_block_size(self):
        return self.block_size

    def forward(self, idx, targets=None):
        embs = []
        for _ in range(self.block_size):
            embs.append(self.wte(idx))
            idx = torch.roll(idx, 1, 1)
            idx[:, 0] = self.vocab_size
        logits = self.mlp(torch.cat(embs, -1))
        loss = None
        if targets is not None:
            flat = logits.view(-1, logits.size(-1))
            loss = F.cross_entropy(flat, targets.view(-1), ignore_index=-1)
        return logits, loss


@torch.no_grad()
def sample(model, idx, max_new_tokens, top_k=None):
    for _ in range(max_new_tokens):
        logits, _ = model(idx)
        logits = logits[:, -1, :]
        if top_k is not None:
            v, _ = torch.topk(logits, top_k)
            logits[logits < v[:, [-1]]] = -float("Inf")
        idx_next = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
        idx = torch.cat((idx, idx_next), dim=1)
    return idx


@torch.inference_mode()
def evaluate(model, dataset, batch_size=50, max_batches=None):
    model.eval()
    losses = []
    for i, batch in enumerate(DataLoader(dataset, shuffle=False, batch_size=batch_size)):
        X, Y = (t.to("cpu") for t in batch)
        losses.append(model(X, Y)[1].item())
        if max_batches is not None and i >= max_batches:
            break
    mean_loss = torch.tensor(losses).mean().item()
    model.train()
    return mean_loss


def make_dataset(number):
    parts = len(SYLLABLES)
    words = [
        SYLLABLES[i % parts] + SYLLABLES[(i * i + 3) % parts] + SYLLABLES[i // 2 % parts]
        for i in range(number)
    ]
    return CharDataset(words, sorted(set("".join(SYLLABLES))), 9)


def make_model(width=32):
    dataset = make_dataset(3)
    return MLP(dataset.get_vocab_size(), 4, width, 2 * width)


def train(model, steps, batch=4):
    dataset = make_dataset(steps * batch)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=5e-3, weight_decay=0.01, betas=(0.9, 0.99), eps=1e-8
    )
    loader = DataLoader(dataset, batch_size=batch, pin_memory=False, num_workers=0)
    ready = list(loader)  # so that a step's time is not that of making its batch
    for step, (X, Y) in enumerate(ready):
        logits, loss = model(X, Y)
        model.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step == 10:
            evaluate(model, dataset, max_batches=1)
        yield loss


def generate(model):
    X_init = torch.zeros(3, 1, dtype=torch.long)
    X_init[1:, 0] = torch.tensor([2, 5])
    return sample(model, X_init, 9, top_k=1).tolist()
