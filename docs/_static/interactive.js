// What the figures of docs/course/steps.md, microscope.md and film.md share. A cell of the page writes
// a figure in Python. Its words stand there, and none in a script, because docs/build.py puts them into
// Chinese.
"use strict";

// The numbers that the cell stored under the figure.
const dataOf = (figure) =>
  JSON.parse(figure.querySelector('script[type="application/json"]').textContent);

// The figure keeps its controls as text, because without scripts they would do nothing.
function showControls(figure) {
  const controls = figure.querySelector('script[type="text/html"]');
  controls.outerHTML = controls.textContent;
}

function button(text, click) {
  const made = document.createElement("button");
  Object.assign(made, { type: "button", textContent: text, onclick: click });
  return made;
}

const press = (buttons, chosen) =>
  [...buttons].forEach((made, i) => made.setAttribute("aria-pressed", i === chosen));
