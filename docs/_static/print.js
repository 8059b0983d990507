// Folded parts, such as answers, are open while a page is printed.
"use strict";

let folded = [];
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const part of folded) part.open = true;
});
window.addEventListener("afterprint", () => {
  for (const part of folded) part.open = false;
});
