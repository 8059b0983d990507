"""A translator with a GRU and additive attention, as a textbook's chapter builds it."""

import torch
from torch import nn
from torch.nn import functional as F

PAD, BOS, VOCAB = 0, 1, 25


def init_seq2seq(module):
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
    if isinstance(module, nn.GRU):
        for name, param in module.named_parameters():
            if "weight" in name:
                nn.init.xavier_uniform_(param)


def masked_softmax(scores, valid_lens):
    columns = torch.arange(scores.size(-1), device=scores.device)
    mask = columns[None, None, :] >= valid_lens[:, None, None]
    return F.softmax(scores.masked_fill(mask, -1e6), dim=-1)


class AdditiveAttention(nn.Module):
    def __init__(self, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_k = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens):
        queries, keys = self.W_q(queries), self.W_k(keys)
        features = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))
        scores = self.w_v(features).squeeze(-1)
        self.attention_weights = masked_softmax(scores, valid_lens)
        return torch.bmm(self.dropout(self.attention_weights), values)


class Seq2SeqEncoder(nn.Module):
    def __init__(self, vocab_size, embed_size, num_hiddens, num_layers):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_size)
        self.rnn = nn.GRU(embed_size, num_hiddens, num_layers, dropout=0.0)

    def forward(self, X):
        embs = self.embedding(X.t().type(torch.int64))
        return self.rnn(embs)


class Seq2SeqAttentionDecoder(nn.Module):
    def __init__(self, vocab_size, embed_size, num_hiddens, num_layers):
        super().__init__()
        self.attention = AdditiveAttention(num_hiddens)
        self.embedding = nn.Embedding(vocab_size, embed_size)
        self.rnn = nn.GRU(embed_size + num_hiddens, num_hiddens, num_layers)
        self.dense = nn.Linear(num_hiddens, vocab_size)

    def init_state(self, enc_outputs, enc_valid_lens):
        outputs, hidden_state = enc_outputs
        return (outputs.permute(1, 0, 2), hidden_state, enc_valid_lens)

    def forward(self, X, state):
        enc_outputs, hidden_state, enc_valid_lens = state
        X = self.embedding(X).permute(1, 0, 2)
        outputs, self._attention_weights = [], []
        for x in X:
            query = torch.unsqueeze(hidden_state[-1], dim=1)
            context = self.attention(query, enc_outputs, enc_outputs, enc_valid_lens)
            x = torch.cat((context, torch.unsqueeze(x, dim=1)), dim=-1)
            out, hidden_state = self.rnn(x.permute(1, 0, 2), hidden_state)
            outputs.append(out)
            self._attention_weights.append(self.attention.attention_weights)
        outputs = self.dense(torch.cat(outputs, dim=0))
        return outputs.permute(1, 0, 2), [enc_outputs, hidden_state, enc_valid_lens]


class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, src, tgt, src_valid_len):
        enc_all_outputs = self.encoder(src)
        dec_state = self.decoder.init_state(enc_all_outputs, src_valid_len)
        return self.decoder(tgt, dec_state)[0]

    @torch.no_grad()
    def predict_step(self, src, src_valid_len, num_steps):
        state = self.decoder.init_state(self.encoder(src), src_valid_len)
        outputs = [torch.full((src.shape[0], 1), BOS)]
        for _ in range(num_steps):
            Y, state = self.decoder(outputs[-1], state)
            outputs.append(Y.argmax(2))
        return torch.cat(outputs[1:], 1)


def pairs(step, batch):
    rows = torch.arange(batch).reshape(-1, 1)
    lens = (torch.arange(batch) * 3 + step) % 5 + 3
    src = (rows * 4 + step + torch.arange(7) * 2) % (VOCAB - 2) + 2
    src = src * (torch.arange(7) < lens.reshape(-1, 1)).type(src.dtype)
    tgt = torch.where(src > 0, (src + 3) % (VOCAB - 2) + 2, PAD)
    return src, lens, tgt


def make_model(width=16):
    encoder = Seq2SeqEncoder(VOCAB, width, width, num_layers=2)
    decoder = Seq2SeqAttentionDecoder(VOCAB, width, width, num_layers=2)
    model = Seq2Seq(encoder, decoder)
    model.apply(init_seq2seq)
    return model


def train(model, steps, batch=4):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    model.train()
    for step in range(steps):
        src, lens, tgt = pairs(step, batch)
        bos = torch.tensor([BOS] * tgt.shape[0], device=src.device).reshape(-1, 1)
        dec_input = torch.cat([bos, tgt[:, :-1]], 1)
        Y_hat = model(src, dec_input, lens)
        l = F.cross_entropy(Y_hat.reshape(-1, VOCAB), tgt.reshape(-1), reduction="none")
        mask = (tgt.reshape(-1) != PAD).type(torch.float32)
        loss = (l * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        yield loss


def generate(model):
    model.eval()
    src, lens, _ = pairs(2, 3)
    return model.predict_step(src, lens, 7).tolist()
