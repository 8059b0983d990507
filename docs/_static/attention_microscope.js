// The figure of docs/course/microscope.md. A reader types a word or phonemes, encoder.js computes, and
// a map for each head shows all weights, a table for each layer those of the chosen query. A cell of
// the page writes the figure in Python, as it is at first.
"use strict";

// The phonemes of a typed text: { ids }, with { origin, symbols } if a list has the word. Or what is
// wrong with the text: { trouble, what }, where trouble names a sentence of the page.
function readText(text, { phonemes, vowels, longest }, words) {
  const tokens = text.trim().split(/\s+/).filter(Boolean);
  if (!tokens.length) return { trouble: "empty" };
  const entry = tokens.length === 1 ? entryOf(tokens[0].toLowerCase(), words) : null;
  if (entry) {
    return { ...entry, ids: entry.symbols.map((name) => phonemes.indexOf(withoutStress(name))) };
  }
  const names = tokens.map(withoutStress);
  const wrong = names.filter((name) => phonemes.indexOf(name) < 1); // the first is padding
  if (wrong.length && 2 * wrong.length < names.length) return { trouble: "phoneme", what: wrong[0] };
  if (wrong.length) {
    const sign = text.match(/[^a-zA-Z'\s]/u);
    if (sign) return { trouble: "sign", what: sign[0] };
    if (tokens.length > 1) return { trouble: "sentence" };
    return { trouble: "unknown", what: text.trim() };
  }
  if (names.length > longest) return { trouble: "long", what: names.length };
  const count = names.filter((name) => vowels.includes(name)).length;
  if (!count) return { trouble: "vowel" };
  if (count < 2) return { trouble: "single" };
  return { origin: "phonemes", ids: names.map((name) => phonemes.indexOf(name)) };
}

// The dictionary has a digit behind each vowel, for its stress.
const withoutStress = (name) => name.toUpperCase().replace(/[012ˈˌ]/gu, "");

// A line of a list has a word and its phonemes, each as one character.
function entryOf(word, words) {
  for (const origin of ["heldOut", "training"]) {
    const place = words[origin].indexOf(`\n${word} `);
    if (place < 0) continue;
    const first = place + word.length + 2;
    const codes = words[origin].slice(first, words[origin].indexOf("\n", first));
    return { origin, symbols: [...codes].map((code) => words.symbols[code.charCodeAt(0) - 48]) };
  }
  return null;
}

// ˈ stands before a vowel of primary stress, ˌ before one of secondary stress.
const withStress = (names, stresses) =>
  names.map((name, i) => ["", "ˈ", "ˌ"][stresses[i]] + name).join(" ");

const likeliest = (scores) => scores.indexOf(Math.max(...scores));

for (const figure of document.querySelectorAll(".microscope")) {
  const model = loadEncoder(encoderWeights);
  const first = figure.querySelector(".choice i").textContent;
  let query = Number(figure.dataset.query);
  let shown = null; // the names of the phonemes, and their weights
  showControls(figure);
  figure.querySelector(".choice").remove(); // the controls say it now
  const form = figure.querySelector("form");
  const wordButtons = figure.querySelectorAll(".words button");
  const queries = figure.querySelector(".queries");

  function say(name, text) {
    figure.querySelector(`.${name}`).textContent = text;
  }

  function sentence(group, chosen, what) {
    figure.querySelectorAll(`[data-${group}]`).forEach((made) => {
      made.hidden = made.dataset[group] !== chosen;
      if (!made.hidden && what !== undefined) made.querySelector("b").textContent = what;
    });
  }

  function cell(kind, text) {
    const made = document.createElement(kind);
    made.textContent = text;
    return made;
  }

  function weightCell(weight) {
    const made = cell("td", Math.round(100 * weight));
    made.style.setProperty("--weight", weight);
    return made;
  }

  // Rows are queries and columns are keys; the phonemes stand on the left and above. A cell is 20 wide
  // for them, because browsers may enlarge letters below a least size.
  function drawMap(place, names, weights) {
    const cells = weights.flatMap((row, i) =>
      row.map(
        (weight, j) =>
          `<rect class="cell" x="${j}" y="${i}" width="1" height="1" fill-opacity="${weight}"/>`,
      ),
    );
    const labels = names.map(
      (name, i) =>
        `<text class="query" x="-4" y="${20 * i + 14.5}">${name}</text>` +
        `<text class="key" x="${20 * i + 10}" y="-5">${name}</text>`,
    );
    const n = weights.length;
    place.innerHTML =
      `<svg viewBox="-26 -18 ${20 * n + 28} ${20 * n + 20}" aria-hidden="true">${labels.join("")}` +
      `<g transform="scale(20)">${cells.join("")}` +
      `<rect class="row" y="${query}" width="${n}" height="1"/></g></svg>`;
  }

  function show() {
    const { names, weights } = shown;
    query = Math.min(query, names.length - 1); // the word before may have been longer
    queries.replaceChildren(
      ...names.map((name, i) =>
        button(name, () => {
          query = i;
          show();
          queries.children[i].focus(); // the button that was pressed is replaced
        }),
      ),
    );
    press(queries.children, query);
    figure.querySelectorAll(".maps td").forEach((place, i) => {
      drawMap(place, names, weights[Math.floor(i / model.heads)][i % model.heads]);
    });
    figure.classList.toggle("many", names.length > 10);
    figure.querySelectorAll("table[data-layer]").forEach((table, layer) => {
      const [top, ...rows] = table.rows; // the first cell of each row is a word, which stays
      top.replaceChildren(top.cells[0], ...names.map((name) => cell("th", name)));
      rows.forEach((row, head) =>
        row.replaceChildren(row.cells[0], ...weights[layer][head][query].map(weightCell)),
      );
    });
  }

  function look(text) {
    const { trouble, what, origin, symbols, ids } = readText(text, encoderWeights, encoderWords);
    form.elements.text.value = text;
    wordButtons.forEach((made) => {
      made.setAttribute("aria-pressed", made.textContent === text);
    });
    sentence("trouble", trouble, what);
    figure.querySelectorAll(".result").forEach((part) => {
      part.hidden = Boolean(trouble);
    });
    if (trouble) return;
    const { scores, weights } = encode(ids, model);
    const names = ids.map((id) => encoderWeights.phonemes[id]);
    const isVowel = names.map((name) => encoderWeights.vowels.includes(name));
    const predicted = scores.map((row, i) => (isVowel[i] ? likeliest(row) : 0));
    say("said", withStress(names, predicted));
    const known = symbols && withStress(names, symbols.map((name) => Number(name[2] ?? 0)));
    sentence("origin", origin, known);
    shown = { names, weights };
    show();
  }

  form.onsubmit = (event) => {
    event.preventDefault();
    look(form.elements.text.value);
  };
  wordButtons.forEach((made) => {
    made.onclick = () => look(made.textContent);
  });
  look(first);
}
