// The encoder of examples/train_encoder.py: phonemes in, the scores of three stresses out. It computes
// with the parameters of encoder_weights.js, and tests compare it with tinyattn. A sequence of N
// positions is an array of N rows, each an array of numbers.
"use strict";

// Numbers in rows

const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);
const mean = (numbers) => sum(numbers) / numbers.length;
const dot = (a, b) => sum(a.map((x, i) => x * b[i]));
const add = (a, b) => a.map((row, i) => row.map((x, j) => x + b[i][j]));

// Page 0, "From text to numbers and back": the embedding of an id is its row of the table.
const embedding = (ids, table) => ids.map((id) => table[id]);

// Page 10, "Position": P[i, 2j] = sin(i / 10000^(2j / D)), P[i, 2j + 1] = cos of the same angle.
function positions(length, width) {
  const angle = (i, j) => i / 10000 ** ((j - (j % 2)) / width);
  const value = (i, j) => (j % 2 ? Math.cos(angle(i, j)) : Math.sin(angle(i, j)));
  return Array.from({ length }, (_, i) => Array.from({ length: width }, (_, j) => value(i, j)));
}

// Page 8, "Linear, dropout, LayerNorm": x Wᵀ + b, the same at every position.
const linear = (x, { weight, bias }) =>
  x.map((row) => weight.map((w, j) => dot(w, row) + bias[j]));

// Page 5, "Softmax that does not overflow": the largest score is subtracted, so that no exp is too large.
function softmax(scores) {
  const largest = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - largest));
  const total = sum(exps);
  return exps.map((e) => e / total);
}

// Page 1, "Attention is a soft lookup": softmax(q kᵀ / √d) v.
function attention(q, k, v) {
  const scores = q.map((query) => k.map((key) => dot(query, key) / Math.sqrt(query.length)));
  const weights = scores.map(softmax);
  const columns = v[0].map((_, j) => v.map((value) => value[j]));
  return { output: weights.map((row) => columns.map((column) => dot(row, column))), weights };
}

// Page 9, "Many heads": each head has its own columns of q, k and v; the outputs stand side by side again.
function multiHeadAttention(x, { W_q, W_k, W_v, W_o }, heads) {
  const [q, k, v] = [W_q, W_k, W_v].map((W) => linear(x, W));
  const width = q[0].length / heads;
  const columnsOf = (rows, h) => rows.map((row) => row.slice(h * width, (h + 1) * width));
  const each = Array.from({ length: heads }, (_, h) =>
    attention(columnsOf(q, h), columnsOf(k, h), columnsOf(v, h)),
  );
  const joined = x.map((_, i) => each.flatMap(({ output }) => output[i]));
  return { output: linear(joined, W_o), weights: each.map(({ weights }) => weights) };
}

// Page 8: each position gets mean 0 and variance 1, then a factor and a bias.
const layerNorm = (x, { weight, bias }) =>
  x.map((row) => {
    const center = mean(row);
    const deviation = Math.sqrt(mean(row.map((number) => (number - center) ** 2)) + 1e-5);
    return row.map((number, j) => ((number - center) / deviation) * weight[j] + bias[j]);
  });

// Page 11, "The encoder": two linear layers, with ReLU between them.
const feedForward = (x, { w_1, w_2 }) =>
  linear(linear(x, w_1).map((row) => row.map((number) => Math.max(0, number))), w_2);

// Page 11: a residual connection around attention, and one around the feed-forward network. The norm
// stands before each (pre-norm).
function encoderLayer(x, { self_attn, feed_forward, sublayer }, heads) {
  const { output, weights } = multiHeadAttention(layerNorm(x, sublayer[0].norm), self_attn, heads);
  const y = add(x, output);
  return { output: add(y, feedForward(layerNorm(y, sublayer[1].norm), feed_forward)), weights };
}

// Ids to the scores of the three stresses, (N, 3), and the weights, (layers, heads, N, N).
function encode(ids, model) {
  const table = model.embedding.weight;
  let x = add(embedding(ids, table), positions(ids.length, table[0].length));
  const weights = [];
  for (const layer of Object.values(model.encoder.layers)) {
    const done = encoderLayer(x, layer, model.heads);
    x = done.output;
    weights.push(done.weights);
  }
  return { scores: linear(layerNorm(x, model.encoder.norm), model.output), weights };
}

// The kept parameters

// A float16 has a bit for the sign, five for the exponent and ten for the fraction. JavaScript has
// numbers of this format only in new browsers.
function fromFloat16(bits) {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction);
}

// The parameters by their names: model.encoder.layers[0].self_attn.W_q.weight is an array of rows.
function loadEncoder({ heads, shapes, float16 }) {
  const bytes = atob(float16);
  const model = { heads };
  let place = 0;
  const next = () => {
    const bits = bytes.charCodeAt(place) + 256 * bytes.charCodeAt(place + 1);
    place += 2;
    return fromFloat16(bits);
  };
  const filled = ([length, ...rest]) =>
    Array.from({ length }, () => (rest.length ? filled(rest) : next()));
  for (const [name, shape] of Object.entries(shapes)) {
    const parts = name.split(".");
    const last = parts.pop();
    const module = parts.reduce((inside, part) => (inside[part] ??= {}), model);
    module[last] = filled(shape);
  }
  return model;
}
