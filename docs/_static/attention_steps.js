// The figure of docs/course/steps.md: its tables stand in the page, written by a cell in Python.
// Here they get a slider and a mask to click. Each change computes the four steps anew.
"use strict";

for (const figure of document.querySelectorAll(".attention-steps")) {
  const { queries, keys, values, divisor, visible } = dataOf(figure);
  const state = { divisor, visible };

  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const sum = (row) => row.reduce((total, x) => total + x, 0);

  function softmax(row) {
    const largest = Math.max(...row);
    if (largest === -Infinity) return row.map(() => 0); // no visible key, no weight
    const e = row.map((x) => Math.exp(x - largest));
    return e.map((x) => x / sum(e));
  }

  function attention() {
    const scores = queries.map((query) => keys.map((key) => dot(query, key) / state.divisor));
    const masked = scores.map((row, i) => row.map((x, j) => (state.visible[i][j] ? x : -Infinity)));
    const weights = masked.map(softmax);
    const output = weights.map((row) => values[0].map((_, c) => dot(row, values.map((v) => v[c]))));
    return { scores, masked, weights, output };
  }

  // As Python's format(x, ".2f") writes it, with the minus sign of the page.
  function written(x) {
    const text = x === -Infinity ? "-∞" : x.toFixed(2);
    return (text === "-0.00" ? "0.00" : text).replace("-", "−");
  }

  const cells = (step) => {
    const rows = [...figure.querySelectorAll(`table[data-step=${step}] tbody tr`)];
    return rows.map((row) => [...row.querySelectorAll("td")]);
  };

  function show() {
    const steps = attention();
    for (const [step, numbers] of Object.entries(steps)) {
      cells(step).forEach((row, i) =>
        row.forEach((cell, j) => {
          (cell.querySelector("button") ?? cell).textContent = written(numbers[i][j]);
          if (step === "weights") cell.style.setProperty("--weight", numbers[i][j]);
          if (step === "masked") {
            cell.classList.toggle("hidden-key", !state.visible[i][j]);
            cell.querySelector("button").setAttribute("aria-pressed", !state.visible[i][j]);
          }
        }),
      );
    }
    steps.output.forEach(([x, y], i) => {
      const dot = figure.querySelectorAll("g.output")[i];
      dot.setAttribute("transform", `translate(${x} ${-y})`);
    });
    for (const place of figure.querySelectorAll(".divisor")) {
      place.textContent = state.divisor.toFixed(2);
    }
    for (const made of figure.querySelectorAll("[data-mask]")) {
      const rule = sees[made.dataset.mask];
      const isChosen = state.visible.every((row, i) => row.every((seen, j) => seen === rule(i, j)));
      made.setAttribute("aria-pressed", isChosen);
    }
  }

  showControls(figure);
  const slider = figure.querySelector("input");
  slider.oninput = () => {
    state.divisor = Number(slider.value);
    show();
  };

  const sees = {
    none: () => true,
    causal: (i, j) => j <= i,
    padding: (i, j) => j < keys.length - 1,
  };
  for (const made of figure.querySelectorAll("[data-mask]")) {
    made.onclick = () => {
      const rule = sees[made.dataset.mask];
      state.visible = queries.map((_, i) => keys.map((_, j) => rule(i, j)));
      show();
    };
  }

  const { title } = figure.querySelector("[data-step=masked]").dataset;
  cells("masked").forEach((row, i) =>
    row.forEach((cell, j) => {
      const made = button("", () => {
        state.visible[i][j] = !state.visible[i][j];
        show();
      });
      made.title = title;
      cell.replaceChildren(made);
    }),
  );
  show();
}
