// The figure of docs/course/film.md: a heat map for each head of one layer, at one of the steps at
// which the weights were kept. A cell of the page writes it in Python, as it is at the last step.
"use strict";

for (const figure of document.querySelectorAll(".film")) {
  const frames = dataOf(figure);
  showControls(figure);
  const slider = figure.querySelector("input");
  const play = figure.querySelector(".play");
  const layers = figure.querySelectorAll(".layers button");
  let chosen = layers.length - 1;
  let timer = null; // while the film plays

  function show() {
    const { x, step, loss, said, weights } = frames[slider.value];
    const heads = weights[chosen].flat(2);
    figure.querySelectorAll(".heads .cell").forEach((cell, i) => {
      cell.setAttribute("fill-opacity", heads[i] / 100);
    });
    figure.querySelector(".now").setAttribute("transform", `translate(${x} 0)`);
    const texts = { step: step.toLocaleString("en"), loss: loss.toFixed(3), said };
    slider.setAttribute("aria-valuetext", texts.step);
    for (const [name, text] of Object.entries(texts)) {
      figure.querySelector(`.${name}`).textContent = text;
    }
    press(layers, chosen);
    play.setAttribute("aria-pressed", timer !== null);
  }

  const isLast = () => Number(slider.value) === frames.length - 1;

  function stop() {
    clearInterval(timer);
    timer = null;
  }

  slider.oninput = show;
  layers.forEach((made, layer) => {
    made.onclick = () => {
      chosen = layer;
      show();
    };
  });
  play.onclick = () => {
    if (timer !== null) {
      stop();
    } else {
      if (isLast()) slider.value = 0;
      timer = setInterval(() => {
        slider.value = Number(slider.value) + 1;
        if (isLast()) stop();
        show();
      }, 500);
    }
    show();
  };
  show();
}
