// The two figures of docs/course/microscope.md. A cell of the page writes them in Python, as they are
// at first; here they get buttons and a slider.
"use strict";

function button(text, click) {
  const made = document.createElement("button");
  Object.assign(made, { type: "button", textContent: text });
  made.addEventListener("click", click);
  return made;
}

const press = (buttons, chosen) =>
  [...buttons].forEach((made, i) => made.setAttribute("aria-pressed", i === chosen));

// What is stored under the figure: the numbers that the cell read.
const dataOf = (figure) => JSON.parse(figure.querySelector("script").textContent);

// One table for each layer: a row for each head, with the weights of the chosen query.
for (const figure of document.querySelectorAll(".microscope")) {
  const words = dataOf(figure);
  const chosen = { word: 0, query: Number(figure.dataset.query) };
  const [wordButtons, queryButtons] = [0, 1].map(() => document.createElement("div"));
  wordButtons.className = queryButtons.className = "controls";
  figure.querySelector(".choice").replaceWith(wordButtons, queryButtons);

  function table(heads, layer, phonemes) {
    const cells = (head) =>
      head[chosen.query].map((w) => `<td style="--weight: ${w / 100}">${w}</td>`).join("");
    const rows = heads.map((head, h) => `<tr><th>head ${h + 1}</th>${cells(head)}</tr>`).join("");
    const names = phonemes.map((name) => `<th>${name}</th>`).join("");
    return `<table data-layer="${layer + 1}"><caption>layer ${layer + 1}</caption>
      <thead><tr><th></th>${names}</tr></thead><tbody>${rows}</tbody></table>`;
  }

  function show() {
    const { phonemes, weights } = words[chosen.word];
    queryButtons.replaceChildren(
      "query: ",
      ...phonemes.map((name, query) =>
        button(name, () => {
          chosen.query = query;
          show();
        }),
      ),
    );
    press(wordButtons.querySelectorAll("button"), chosen.word);
    press(queryButtons.querySelectorAll("button"), chosen.query);
    figure.querySelector(".steps").innerHTML = weights
      .map((heads, layer) => table(heads, layer, phonemes))
      .join("");
  }

  wordButtons.append(
    "word: ",
    ...words.map(({ word, phonemes }, i) =>
      button(word, () => {
        chosen.word = i;
        chosen.query = Math.min(chosen.query, phonemes.length - 1); // the new word may be shorter
        show();
      }),
    ),
  );
  show();
}

// A heat map for each head of one layer, at one of the steps at which they were kept.
for (const figure of document.querySelectorAll(".film")) {
  const frames = dataOf(figure);
  const chosen = { frame: frames.length - 1, layer: frames[0].weights.length - 1 };
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, max: chosen.frame, value: chosen.frame });
  const layers = frames[0].weights.map((_, layer) =>
    button(`layer ${layer + 1}`, () => {
      chosen.layer = layer;
      show();
    }),
  );
  slider.addEventListener("input", () => {
    chosen.frame = Number(slider.value);
    show();
  });
  const label = document.createElement("label");
  label.append("training ", slider);
  figure.querySelector(".controls").append(label, ...layers);

  function show() {
    const { x, step, loss, said, weights } = frames[chosen.frame];
    const heads = weights[chosen.layer].flat(2);
    figure.querySelectorAll(".heads .cell").forEach((cell, i) => {
      cell.setAttribute("fill-opacity", heads[i] / 100);
    });
    figure.querySelector(".now").setAttribute("transform", `translate(${x} 0)`);
    const texts = { step, loss: loss.toFixed(3), said, layer: chosen.layer + 1 };
    for (const [name, text] of Object.entries(texts)) {
      figure.querySelector(`.${name}`).textContent = text;
    }
    press(layers, chosen.layer);
  }
  show();
}
