// The figure of docs/course/microscope.md: one table for each layer, a row for each head, with the
// weights of the chosen query. A cell of the page writes it in Python, as it is at first.
"use strict";

for (const figure of document.querySelectorAll(".microscope")) {
  const words = dataOf(figure);
  const chosen = { word: 0, query: Number(figure.dataset.query) };
  showControls(figure);
  figure.querySelector(".choice").remove(); // the buttons say it now
  const wordButtons = figure.querySelectorAll(".words button");
  const queries = figure.querySelector(".queries");

  function cell(kind, text) {
    const made = document.createElement(kind);
    made.textContent = text;
    return made;
  }

  function weightCell(weight) {
    const made = cell("td", weight);
    made.style.setProperty("--weight", weight / 100);
    return made;
  }

  function show() {
    const { phonemes, weights } = words[chosen.word];
    queries.replaceChildren(
      ...phonemes.map((name, query) =>
        button(name, () => {
          chosen.query = query;
          show();
        }),
      ),
    );
    press(wordButtons, chosen.word);
    press(queries.children, chosen.query);
    figure.querySelectorAll("table").forEach((table, layer) => {
      const [names, ...heads] = table.rows; // the first cell of each row is a word, which stays
      names.replaceChildren(names.cells[0], ...phonemes.map((name) => cell("th", name)));
      heads.forEach((row, head) =>
        row.replaceChildren(row.cells[0], ...weights[layer][head][chosen.query].map(weightCell)),
      );
    });
  }

  wordButtons.forEach((made, i) => {
    made.onclick = () => {
      chosen.word = i;
      chosen.query = Math.min(chosen.query, words[i].phonemes.length - 1); // it may be shorter
      show();
    };
  });
  show();
}
