"""A language model over words from nn.TransformerEncoder, as an official example writes it."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

TEXT = (
    "a model reads the words before a word and says which word comes next . "
    "the words that came before say much about the next word of a text , "
    "but a word far away may say more than the word before . <eos> "
)


class Dictionary(object):
    def __init__(self):
        self.word2idx = {}
        self.idx2word = []

    def add_word(self, word):
        if word not in self.word2idx:
            self.idx2word.append(word)
            self.word2idx[word] = len(self.idx2word) - 1
        return self.word2idx[word]

    def __len__(self):
        return len(self.idx2word)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.0, max_len=200):
        super(PositionalEncoding, self).__init__()
        self.dropout = nn.Dropout(p=dropout)
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        pe = pe.unsqueeze(0).transpose(0, 1)
        self.register_buffer("pe", pe)

    def forward(self, x):
        x = x + self.pe[: x.size(0), :]
        return self.dropout(x)


class TransformerModel(nn.Module):
    def __init__(self, ntoken, ninp, nhead, nhid, nlayers, dropout=0.0):
        super().__init__()
        self.model_type = "Transformer"
        self.src_mask = None
        self.pos_encoder = PositionalEncoding(ninp, dropout)
        encoder_layers = nn.TransformerEncoderLayer(ninp, nhead, nhid, dropout)
        self.transformer_encoder = nn.TransformerEncoder(encoder_layers, nlayers)
        self.input_emb = nn.Embedding(ntoken, ninp)
        self.ninp = ninp
        self.decoder = nn.Linear(ninp, ntoken)
        self.init_weights()

    def _generate_square_subsequent_mask(self, sz):
        return torch.log(torch.tril(torch.ones(sz, sz)))

    def init_weights(self):
        initrange = 0.1
        nn.init.uniform_(self.input_emb.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -initrange, initrange)

    def forward(self, src, padding=None):
        device = src.device
        if self.src_mask is None or self.src_mask.size(0) != len(src):
            mask = self._generate_square_subsequent_mask(len(src)).to(device)
            self.src_mask = mask.to(self.decoder.weight.dtype)
        src = self.input_emb(src) * math.sqrt(self.ninp)
        src = self.pos_encoder(src)
        if padding is not None:
            blocked = torch.zeros(padding.shape, dtype=src.dtype, device=device)
            padding = blocked.masked_fill_(padding, float("-inf"))
        output = self.transformer_encoder(src, mask=self.src_mask, src_key_padding_mask=padding)
        return F.log_softmax(self.decoder(output), dim=-1)


def tokenize(dictionary):
    words = (TEXT * 4).split()
    for word in words:
        dictionary.add_word(word)
    return torch.tensor([dictionary.word2idx[word] for word in words]).type(torch.int64)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous()


def get_batch(source, i, bptt=8):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)


def make_model(width=16):
    dictionary = Dictionary()
    tokenize(dictionary)
    return TransformerModel(len(dictionary), width, 2, 2 * width, 2)


def train(model, steps, batch=4):
    criterion = nn.NLLLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 8, gamma=0.5)
    train_data = batchify(tokenize(Dictionary()), batch)
    model.train()
    for step in range(steps):
        i = step * 3 % (train_data.size(0) - 9)
        data, targets = get_batch(train_data, i)
        padding = torch.zeros(batch, len(data), dtype=torch.bool)
        if step % 2:
            padding[1, -2:] = True
        optimizer.zero_grad()
        output = model(data, padding if step % 2 else None)
        loss = criterion(output.view(-1, output.size(-1)), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        scheduler.step()
        yield loss


def generate(model):
    model.eval()
    input = torch.zeros(1, 1).long()
    with torch.no_grad():
        for _ in range(10):
            word_weights = model(input)[-1].squeeze().div(0.7).exp().cpu()
            word_idx = word_weights.argmax()
            word_tensor = torch.Tensor([[0]]).long().fill_(word_idx)
            input = torch.cat([input, word_tensor], 0)
    return input.flatten().tolist()
